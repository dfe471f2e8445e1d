//! What the documentation of Kubernetes promises, checked in the sandbox: one file for each theme.
//!
//! A test has a namespace of its own and leaves nothing behind; what can be in no namespace belongs to the test's and
//! goes with it. A check needs pods only where nothing else can tell.

mod admission;
mod apply;
mod crds;
mod dns;
mod garbage;
mod namespaces;
mod rbac;
mod services;
mod toolbox;
mod watches;
mod workloads;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use forge_testkit::sandbox::{Ended, Namespace, Sandbox, eventually};
use serde_json::{Value, json};

use crate::images::image;

/// How long anything may take: machines are noisy.
const LIMIT: Duration = Duration::from_secs(60);

/// A namespace for a test.
fn namespace(test: &str) -> Namespace {
    Sandbox::shared().namespace(test)
}

/// What the pods of the sample workload share. It is ready as soon as it answers and ends as soon as it is told to.
fn sample(env: &[(&str, &str)]) -> Value {
    let env: Vec<_> = env.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
    json!({
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "containers": [{
            "name": "main",
            "image": image("forge/sample"),
            "env": env,
            "ports": [{"name": "http", "containerPort": 8080}],
            "readinessProbe": {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 1},
        }],
    })
}

/// The same for one that runs once.
fn sample_once(env: &[(&str, &str)]) -> Value {
    let mut spec = sample(env);
    spec["restartPolicy"] = json!("Never");
    spec["containers"][0]["env"].as_array_mut().unwrap().push(json!({"name": "RUN_ONCE", "value": "true"}));
    spec["containers"][0].as_object_mut().unwrap().remove("readinessProbe");
    spec
}

/// A pod with the label `app: web`.
fn pod(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "web"}}, "spec": spec})
}

/// A Deployment whose pods have the label `app: web`.
fn deployment(name: &str, replicas: u32, spec: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": spec},
        },
    })
}

/// A Service that leads from port 80 to the pods with the label `app: web`.
fn service(name: &str, more: &Value) -> Value {
    let mut spec = json!({"selector": {"app": "web"}, "ports": [{"name": "web", "port": 80, "targetPort": "http"}]});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec})
}

fn config_map(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

/// Lets an object that is in no namespace belong to one, so that it goes with it.
fn belonging(namespace: &Namespace, mut object: Value) -> Value {
    let owner = namespace.get("namespace", &namespace.name);
    object["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Namespace", "name": namespace.name, "uid": owner["metadata"]["uid"]}]);
    object
}

/// What a JSON pointer leads to, as text; empty if there is nothing.
fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// A condition in the status of an object: `status: reason: message`.
fn condition(object: &Value, kind: &str) -> String {
    let all = object.pointer("/status/conditions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let found = all.iter().find(|condition| condition["type"] == kind);
    found.map_or(String::new(), |found| {
        format!("{}: {}: {}", text(found, "/status"), text(found, "/reason"), text(found, "/message"))
    })
}

/// Waits until an object is as it should be, and gives it.
fn until(namespace: &Namespace, kind: &str, name: &str, what: &str, good: impl Fn(&Value) -> bool) -> Value {
    eventually(what, LIMIT, || {
        let ended = namespace.try_kubectl(&["get", kind, name, "-o", "json"], None);
        let object: Value = serde_json::from_str(&ended.stdout).map_err(|_| ended.stderr)?;
        if good(&object) { Ok(object) } else { Err(object.to_string()) }
    })
}

/// kubectl failed and said all of this.
#[track_caller]
fn assert_refused(ended: &Ended, words: &[&str]) {
    assert!(ended.code != 0, "it was not refused: {}{}", ended.stdout, ended.stderr);
    for word in words {
        assert!(ended.stderr.contains(word), "`{word}` is not in what it said: {}", ended.stderr);
    }
}

/// What a web server said.
struct Answer {
    status: u16,
    body: String,
}

impl Answer {
    /// A field of what the sample workload tells about itself.
    fn field(&self, name: &str) -> String {
        let body: Value = serde_json::from_str(&self.body).unwrap_or_default();
        body[name].as_str().unwrap_or_default().to_owned()
    }
}

/// One request from the host, over a connection of its own.
fn http(address: IpAddr, port: u16, path: &str) -> Result<Answer, String> {
    // A first packet that came before the rules of a service did is lost for good; an answer may take its time.
    let (connect, answer) = (Duration::from_secs(3), Duration::from_secs(10));
    let ask = || {
        let mut stream = TcpStream::connect_timeout(&SocketAddr::new(address, port), connect)?;
        stream.set_read_timeout(Some(answer))?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n").as_bytes())?;
        let mut all = String::new();
        stream.read_to_string(&mut all)?;
        Ok(all)
    };
    let all = ask().map_err(|error: std::io::Error| error.to_string())?;
    let (head, body) = all.split_once("\r\n\r\n").ok_or_else(|| format!("no answer but `{all}`"))?;
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(|| head.to_owned())?;
    Ok(Answer { status, body: body.to_owned() })
}

/// A kubectl that goes on and tells things line by line; it ends with this value.
struct Follow {
    child: Child,
    lines: Receiver<String>,
}

impl Follow {
    fn start(namespace: &Namespace, args: &[&str]) -> Self {
        let Sandbox { kubectl, kubeconfig, .. } = namespace.sandbox;
        let mut child = Command::new(kubectl)
            .args(["--namespace", &namespace.name])
            .args(args)
            .env("KUBECONFIG", kubeconfig)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (send, lines) = mpsc::channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        Self { child, lines }
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(LIMIT).unwrap_or_else(|error| panic!("kubectl said nothing more: {error}"))
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
