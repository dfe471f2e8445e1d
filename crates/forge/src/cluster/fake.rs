//! A Kubernetes API in memory, for tests of what works with objects: gets, lists, creations, merge patches and deletions. Selectors
//! are not looked at, and a watch ends soon, so that everything is listed again.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forge_testkit::http::{Request, reply};
use serde_json::{Value, json};

use super::Cluster;

/// What it holds.
#[derive(Default)]
pub(crate) struct Fake {
    /// Objects by their paths.
    pub(crate) objects: BTreeMap<String, Value>,
    /// Every request that was no reading, in order: the method and the path.
    pub(crate) writes: Vec<String>,
    /// Paths that are answered with a status, whatever is there.
    pub(crate) refused: BTreeMap<String, u16>,
    version: u64,
}

impl Fake {
    /// Keeps an object of a collection, under another version.
    pub(crate) fn put(&mut self, collection: &str, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        if let Some((_, inside)) = collection.split_once("/namespaces/") {
            object["metadata"]["namespace"] = json!(inside.split('/').next());
        }
        let path = format!("{collection}/{}", object["metadata"]["name"].as_str().unwrap());
        self.objects.insert(path, object);
    }

    fn answer(&mut self, request: &Request) -> (u16, Value) {
        let refused = |code: u16| (code, json!({"kind": "Status", "code": code, "message": "no", "reason": "No"}));
        let path = request.uri.split('?').next().unwrap();
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        if request.method != "GET" {
            self.writes.push(format!("{} {path}", request.method));
        }
        if let Some(code) = self.refused.get(path) {
            return refused(*code);
        }
        let (parent, _) = path.rsplit_once('/').unwrap();
        let known = self.objects.get(path).cloned();
        match (request.method.as_str(), known) {
            ("GET", Some(object)) => (200, object),
            ("GET", None) if is_collection(path) => {
                let items = self.objects.iter().filter(|(at, _)| at.rsplit_once('/').is_some_and(|(of, _)| of == path));
                let items: Vec<&Value> = items.map(|(_, object)| object).collect();
                (200, json!({"metadata": {"resourceVersion": self.version.to_string()}, "items": items}))
            }
            ("POST", None) => {
                let made = format!("{path}/{}", body["metadata"]["name"].as_str().unwrap());
                if self.objects.contains_key(&made) {
                    return refused(409);
                }
                self.put(path, body.clone());
                (201, body)
            }
            ("PATCH", Some(mut object)) => {
                let version = body["metadata"]["resourceVersion"].as_str();
                if version.is_some_and(|version| object["metadata"]["resourceVersion"] != version) {
                    return refused(409);
                }
                merge(&mut object, &body);
                self.put(parent, object.clone());
                (200, object)
            }
            ("DELETE", Some(object)) => {
                self.objects.remove(path);
                (200, object)
            }
            _ => refused(404),
        }
    }
}

/// A path of a kind, in a namespace or of the whole cluster, and of no object.
fn is_collection(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    matches!(
        parts.as_slice(),
        ["api", _, _] | ["apis", _, _, _] | ["api", _, "namespaces", _, _] | ["apis", _, _, "namespaces", _, _]
    )
}

/// As a merge patch does it.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in fields {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut target[key.as_str()], value);
        }
    }
}

/// Serves it.
pub(crate) async fn served(fake: Fake) -> (Cluster, Arc<Mutex<Fake>>) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let fake = Arc::new(Mutex::new(fake));
    let shared = Arc::clone(&fake);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || {
                let Some(request) = Request::read(&stream) else { return };
                if request.uri.contains("watch=true") {
                    std::thread::sleep(Duration::from_millis(50));
                    reply(&stream, 200, &[], "");
                    return;
                }
                let (code, answer) = shared.lock().unwrap().answer(&request);
                reply(&stream, code, &[], &answer.to_string());
            });
        }
    });
    (Cluster::at(&format!("http://{address}")).unwrap(), fake)
}
