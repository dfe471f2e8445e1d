//! `forge preflight` through the real binary, against an API server that remembers what is made and removed: every way to be
//! unready is found, named with its fix, and leaves nothing. The same on a real cluster: `tests/runs/preflight.rs`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use forge_core::name::EnvironmentName;
use forge_core::preflight::{Check, Purpose};
use forge_core::render::{self, Places};
use forge_core::rights::{self, Grant, Request};
use forge_testkit::http;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const PROJECT: &str = "/apis/argoproj.io/v1alpha1/namespaces/argocd/appprojects/dev";
const IMAGE: &str =
    "registry.example.com/forge@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const EXISTING: &str = "{cd: existing, workflows: existing, events: none}";

/// What becomes of a pod.
#[derive(Clone)]
enum Pod {
    /// Its status.
    Is(Value),
    /// It is refused.
    Refused(&'static str),
}

/// A cluster as it is planted.
#[derive(Clone)]
struct World {
    /// Answers by path; what is not known is not found, and what is `null` is forbidden.
    answers: BTreeMap<String, Value>,
    /// Kinds that the account has no rights for; `*` for all.
    denied: Vec<&'static str>,
    /// Seconds that the server's clock is ahead.
    ahead: i64,
    pod: Pod,
    /// What is there already, by path.
    objects: BTreeMap<String, Value>,
    /// Nobody is let in.
    stranger: bool,
    /// Whoever holds it keeps the server from saying its version.
    gate: Arc<Mutex<()>>,
    /// Objects may be applied, but for those whose path has this in it.
    applies: Option<&'static str>,
}

/// What a server remembers.
struct Server {
    world: World,
    /// Requests that were to change something.
    writes: Vec<String>,
    /// All requests: method and address.
    asked: Vec<(String, String)>,
    /// Somebody asked for the version, answered or not.
    knocked: bool,
}

fn list(items: &Value) -> Value {
    json!({"metadata": {"resourceVersion": "1"}, "items": items})
}

fn workload(name: &str, namespace: &str, image: &str) -> Value {
    let release = if namespace == "argo" { "argo-workflows" } else { "argo-cd" };
    json!({
        "metadata": {
            "name": name, "namespace": namespace,
            "annotations": {"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": namespace},
        },
        "spec": {"replicas": 1, "template": {"spec": {"containers": [
            {"image": format!("quay.io/argoproj/{image}:v3"), "env": [{"name": "ARGO_EXECUTOR_PLUGINS", "value": "true"}]},
        ]}}},
        "status": {"readyReplicas": 1},
    })
}

/// A cluster that is ready.
fn good() -> World {
    let kinds = [
        "applications",
        "appprojects",
        "workflows",
        "clusterworkflowtemplates",
        "workflowtasksets",
        "workflowtaskresults",
    ];
    let named = |names: &[&str]| -> Value { names.iter().map(|name| json!({"name": name})).collect() };
    let definitions: Value =
        kinds.iter().map(|plural| json!({"metadata": {"name": format!("{plural}.argoproj.io")}})).collect();
    let description = json!({"spec": {"versions": [{"name": "v1alpha1", "schema": {"openAPIV3Schema": {"properties": {
        "spec": {"properties": {"syncWindows": {"items": {"properties": {"description": {}}}}}},
    }}}}]}});
    let node = json!({
        "metadata": {"name": "node", "labels": {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}},
        "spec": {},
        "status": {
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    });
    let class = json!({
        "metadata": {"name": "local", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "example.com/disk",
    });
    let namespace = |name: &str| json!({"metadata": {"name": name}, "status": {"phase": "Active"}});
    let nothing = list(&json!([]));
    let mut answers = BTreeMap::from([
        ("/version".to_owned(), json!({"major": "1", "minor": "36", "gitVersion": "v1.36.3"})),
        ("/api/v1/nodes".to_owned(), list(&json!([node]))),
        ("/apis/storage.k8s.io/v1/storageclasses".to_owned(), list(&json!([class]))),
        (
            "/apis/admissionregistration.k8s.io/v1".to_owned(),
            json!({"resources": named(&["validatingadmissionpolicies", "validatingadmissionpolicybindings"])}),
        ),
        ("/api/v1/namespaces/argocd".to_owned(), namespace("argocd")),
        ("/api/v1/namespaces/argo".to_owned(), namespace("argo")),
        (
            "/apis/apps/v1/deployments".to_owned(),
            list(&json!([
                workload("argocd-server", "argocd", "argocd"),
                workload("workflow-controller", "argo", "workflow-controller"),
            ])),
        ),
        ("/apis/apps/v1/statefulsets".to_owned(), nothing.clone()),
        (DEFINITIONS.to_owned(), list(&definitions)),
        (format!("{DEFINITIONS}/appprojects.argoproj.io"), description),
        ("/apis/argoproj.io/v1alpha1".to_owned(), json!({"resources": named(&kinds)})),
    ]);
    for empty in ["argo/resourcequotas", "argo/limitranges", "argocd/secrets", "argo/secrets", "argo-events/secrets"] {
        answers.insert(format!("/api/v1/namespaces/{empty}"), nothing.clone());
    }
    // What the owner of Argo CD made.
    let environment: EnvironmentName = "dev".parse().unwrap();
    for placed in render::handed(&Places::default(), &[environment]) {
        let name = placed.object["metadata"]["name"].as_str().unwrap();
        answers.insert(format!("{}/{name}", placed.collection), placed.object.clone());
    }
    answers.insert(PROJECT.to_owned(), json!({"kind": "AppProject", "spec": {}}));
    let ran = json!({"phase": "Succeeded", "containerStatuses": [{"imageID": IMAGE, "state": {"terminated": {"exitCode": 0}}}]});
    World {
        answers,
        denied: Vec::new(),
        ahead: 0,
        pod: Pod::Is(ran),
        objects: BTreeMap::new(),
        stranger: false,
        gate: Arc::default(),
        applies: None,
    }
}

fn serve(world: World) -> (u16, Arc<Mutex<Server>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = Arc::new(Mutex::new(Server { world, writes: Vec::new(), asked: Vec::new(), knocked: false }));
    let shared = Arc::clone(&server);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let server = Arc::clone(&shared);
            thread::spawn(move || answer(&stream, &server));
        }
    });
    (port, server)
}

/// Reads one request, answers it, and hangs up.
fn answer(stream: &TcpStream, server: &Mutex<Server>) {
    let Some(request) = http::Request::read(stream) else { return };
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let (method, uri) = (request.method.as_str(), request.uri.as_str());
    if uri == "/version" {
        let gate = {
            let mut server = server.lock().unwrap();
            server.knocked = true;
            Arc::clone(&server.world.gate)
        };
        drop(gate.lock().unwrap());
    }
    let (code, answer, date) = {
        let mut server = server.lock().unwrap();
        let (code, answer) = server.handle(method, uri, &body);
        let ahead = SignedDuration::from_secs(server.world.ahead);
        let date = Timestamp::now().checked_add(ahead).unwrap().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        (code, answer, date)
    };
    let text = answer.map(|answer| answer.to_string()).unwrap_or_default();
    http::reply(stream, code, &[("date", date.as_str())], &text);
}

fn status(code: u16, message: &str) -> (u16, Option<Value>) {
    let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message, "reason": "x"});
    (code, Some(body))
}

impl Server {
    fn handle(&mut self, method: &str, uri: &str, body: &Value) -> (u16, Option<Value>) {
        let path = uri.split('?').next().unwrap();
        self.asked.push((method.to_owned(), uri.to_owned()));
        if self.world.stranger {
            return status(401, "Unauthorized");
        }
        match method {
            "GET" if uri.contains("watch=true") => (200, None),
            "GET" => self.read(path),
            "POST" if path.ends_with("/selfsubjectaccessreviews") => {
                let kind = body["spec"]["resourceAttributes"]["resource"].as_str().unwrap_or_default();
                let denied = self.world.denied.iter().any(|denied| *denied == "*" || *denied == kind);
                (201, Some(json!({"status": {"allowed": !denied}})))
            }
            "POST" if path.ends_with("/selfsubjectreviews") => {
                (201, Some(json!({"status": {"userInfo": {"username": "tester"}}})))
            }
            "POST" => self.make(path, body),
            "DELETE" => {
                self.writes.push(format!("DELETE {path}"));
                let below = format!("{path}/");
                self.world.objects.retain(|place, _| place != path && !place.starts_with(&below));
                (200, Some(json!({"kind": "Status", "status": "Success"})))
            }
            _ => {
                self.writes.push(format!("{method} {path}"));
                match self.world.applies {
                    None => status(405, "not in this test"),
                    Some(refused) if path.contains(refused) => status(403, &format!("{path} is forbidden")),
                    Some(_) => {
                        self.world.objects.insert(path.to_owned(), body.clone());
                        (200, Some(body.clone()))
                    }
                }
            }
        }
    }

    fn read(&self, path: &str) -> (u16, Option<Value>) {
        if let Some(object) = self.world.objects.get(path) {
            return (200, Some(object.clone()));
        }
        match self.world.answers.get(path) {
            Some(Value::Null) => return status(403, &format!("{path} is forbidden")),
            Some(answer) => return (200, Some(answer.clone())),
            None => {}
        }
        let collections = ["/pods", "/persistentvolumeclaims", "/namespaces", "/events"];
        if !collections.iter().any(|end| path.ends_with(end)) {
            return status(404, &format!("{path} not found"));
        }
        let below = format!("{path}/");
        let mine = |place: &str| place.strip_prefix(&below).is_some_and(|name| !name.contains('/'));
        let items: Vec<&Value> =
            self.world.objects.iter().filter(|(place, _)| mine(place)).map(|(_, object)| object).collect();
        (200, Some(list(&json!(items))))
    }

    fn make(&mut self, path: &str, body: &Value) -> (u16, Option<Value>) {
        self.writes.push(format!("POST {path}"));
        let mut object = body.clone();
        if path.ends_with("/pods") {
            match &self.world.pod {
                Pod::Refused(message) => return status(403, message),
                Pod::Is(now) => object["status"] = now.clone(),
            }
        }
        if path.ends_with("/persistentvolumeclaims") {
            object["status"] = json!({"phase": "Bound"});
        }
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        self.world.objects.insert(format!("{path}/{name}"), object.clone());
        (201, Some(object))
    }
}

/// A folder with a repository and a kubeconfig for this port.
fn folder(port: u16, argo: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    let header = "apiVersion: forge.projectcatalyst.io/v1alpha1\n";
    write(
        "forge.yaml",
        &format!(
            "{header}kind: Forge\nspec:\n  repository: {{url: https://git.example.com/p.git}}\n  argo: {argo}\n  environments: [{{name: dev, cluster: dev, sync: auto}}]\n"
        ),
    );
    write(
        "graph.yaml",
        &format!(
            "{header}kind: DependencyGraph\nspec:\n  stacks: [{{name: base, apps: [{{application: argocd/network}}]}}]\n"
        ),
    );
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": format!("http://127.0.0.1:{port}")}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
    });
    write("kubeconfig", &kubeconfig.to_string());
    folder
}

fn forge(work: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forge"));
    command.args(arguments).args(["--image", IMAGE, "--kubeconfig", "kubeconfig"]).current_dir(work);
    command.env_clear().env("HOME", work).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Exit code, report, what is left, and what was written.
struct Came {
    code: i32,
    report: Value,
    stderr: String,
    left: BTreeMap<String, Value>,
    writes: Vec<String>,
    asked: Vec<(String, String)>,
}

fn check(world: World, argo: &str, arguments: &[&str]) -> Came {
    let (port, server) = serve(world);
    let folder = folder(port, argo);
    let output = forge(folder.path(), &[&["preflight", "--output", "json"], arguments].concat()).output().unwrap();
    let server = server.lock().unwrap();
    Came {
        code: output.status.code().unwrap_or(-1),
        report: serde_json::from_slice(&output.stdout).unwrap_or_default(),
        stderr: String::from_utf8(output.stderr).unwrap(),
        left: server.world.objects.clone(),
        writes: server.writes.clone(),
        asked: server.asked.clone(),
    }
}

fn result(report: &Value, check: &str) -> String {
    let checks = report["checks"].as_array().cloned().unwrap_or_default();
    let found = checks.iter().find(|checked| checked["check"] == check);
    found.map_or("absent", |checked| checked["result"].as_str().unwrap()).to_owned()
}

#[test]
fn everything_that_phase_0_asks_for_is_among_the_rights_of_the_account_that_installs() {
    let (grants, purpose) = (rights::installer(), Purpose::default());
    for argo in [EXISTING, "{cd: install, workflows: install, events: install}"] {
        let came = check(good(), argo, &[]);
        let requests = came.asked.iter().filter_map(|(method, uri)| Request::read(method, uri));
        let mut number = 0;
        for request in requests.filter(|request| !request.is_review()) {
            number += 1;
            assert!(grants.iter().any(|grant| grant.covers(&request, &purpose)), "{request:?}");
        }
        assert!(number > 10, "{:?}\n{}", came.asked, came.stderr);
    }
    // With what it is given beside where a volume is to be tried.
    let grants: Vec<Grant> = grants.into_iter().chain(rights::volumes()).collect();
    let came = check(good(), EXISTING, &["--storage"]);
    let requests: Vec<Request> = came.asked.iter().filter_map(|(method, uri)| Request::read(method, uri)).collect();
    assert!(requests.iter().any(|request| request.resource == "persistentvolumeclaims" && request.verb == "create"));
    for request in requests.iter().filter(|request| !request.is_review()) {
        assert!(grants.iter().any(|grant| grant.covers(request, &purpose)), "{request:?}");
    }
}

#[test]
fn a_good_cluster_is_ready_and_nothing_is_left_of_the_checks() {
    let came = check(good(), EXISTING, &["--storage"]);
    assert_eq!(came.code, 0, "{:#}\n{}", came.report, came.stderr);
    assert_eq!(came.report["verdict"], "ready");
    assert_eq!(came.report["findings"], json!([]), "{:#}", came.report);
    for checked in came.report["checks"].as_array().unwrap() {
        assert_eq!(checked["result"], "passed", "{checked}");
    }
    assert!(came.left.is_empty(), "{:?}", came.left.keys());
    // Nothing outside of the namespace that it made for itself.
    let made: Vec<&String> = came.writes.iter().filter(|line| line.starts_with("POST")).collect();
    assert_eq!(made.len(), 3, "{made:?}");
    for write in &came.writes {
        let path = write.split(' ').nth(1).unwrap();
        assert!(path == "/api/v1/namespaces" || path.starts_with("/api/v1/namespaces/forge-preflight-"), "{write}");
    }
}

/// A way to be unready.
struct Way {
    name: &'static str,
    plant: fn(&mut World),
    argo: &'static str,
    arguments: &'static [&'static str],
    code: i32,
    /// The check that finds it, and words of its fix.
    check: &'static str,
    fix: &'static str,
}

const USUAL: Way = Way { name: "", plant: |_| {}, argo: EXISTING, arguments: &[], code: 3, check: "", fix: "" };

fn ways() -> Vec<Way> {
    fn waiting(reason: &str, message: &str) -> Pod {
        let waiting = json!({"reason": reason, "message": message});
        Pod::Is(json!({"phase": "Pending", "containerStatuses": [{"state": {"waiting": waiting}}]}))
    }
    vec![
        Way { name: "a stranger", plant: |w| w.stranger = true, check: "api", fix: "kubectl auth whoami", ..USUAL },
        Way {
            name: "old Kubernetes",
            plant: |w| drop(w.answers.insert("/version".to_owned(), json!({"major": "1", "minor": "27+"}))),
            check: "version",
            fix: "upgrade the cluster",
            ..USUAL
        },
        Way { name: "clock ahead", plant: |w| w.ahead = 3_600, check: "clock", fix: "NTP", ..USUAL },
        Way { name: "clock behind", plant: |w| w.ahead = -3_600, check: "clock", fix: "NTP", ..USUAL },
        Way { name: "no rights", plant: |w| w.denied.push("*"), check: "rights", fix: "--user=tester", ..USUAL },
        Way {
            name: "no policies",
            plant: |w| {
                drop(w.answers.insert("/apis/admissionregistration.k8s.io/v1".to_owned(), json!({"resources": []})));
            },
            check: "policies",
            fix: "1.30",
            ..USUAL
        },
        Way {
            name: "no schedulable node",
            plant: |w| w.answers.get_mut("/api/v1/nodes").unwrap()["items"][0]["spec"] = json!({"unschedulable": true}),
            check: "nodes",
            fix: "kubectl uncordon",
            ..USUAL
        },
        Way {
            name: "no storage class",
            plant: |w| drop(w.answers.insert("/apis/storage.k8s.io/v1/storageclasses".to_owned(), list(&json!([])))),
            arguments: &["--storage"],
            check: "storage",
            fix: "is-default-class=true",
            ..USUAL
        },
        Way {
            name: "namespace terminating",
            plant: |w| {
                let going = json!({"name": "argo", "deletionTimestamp": "2026-11-16T10:00:00Z"});
                w.answers.get_mut("/api/v1/namespaces/argo").unwrap()["metadata"] = going;
            },
            check: "namespaces",
            fix: "kubectl get namespace argo",
            ..USUAL
        },
        Way {
            name: "quota used up",
            plant: |w| {
                let quota =
                    json!({"metadata": {"name": "small"}, "status": {"hard": {"pods": "1"}, "used": {"pods": "1"}}});
                w.answers.insert("/api/v1/namespaces/argo/resourcequotas".to_owned(), list(&json!([quota])));
            },
            check: "limits",
            fix: "describe quota small",
            ..USUAL
        },
        Way {
            name: "somebody else's Argo CD",
            argo: "{cd: install, workflows: existing, events: none}",
            check: "argo-cd",
            fix: "argo: {cd: existing}",
            ..USUAL
        },
        Way {
            name: "no Argo Workflows",
            plant: |w| {
                let only = list(&json!([workload("argocd-server", "argocd", "argocd")]));
                w.answers.insert("/apis/apps/v1/deployments".to_owned(), only);
            },
            check: "argo-workflows",
            fix: "argo: {workflows: install}",
            ..USUAL
        },
        Way {
            name: "foreign definitions",
            plant: |w| {
                let foreign = json!({"metadata": {"name": "eventsources.argoproj.io"}});
                w.answers.get_mut(DEFINITIONS).unwrap()["items"].as_array_mut().unwrap().push(foreign);
            },
            argo: "{cd: existing, workflows: existing, events: install}",
            check: "definitions",
            fix: "kubectl annotate crd eventsources.argoproj.io",
            ..USUAL
        },
        Way {
            name: "registry unreachable",
            plant: |w| w.pod = waiting("ImagePullBackOff", "dial tcp: lookup registry.example.com: no such host"),
            check: "image",
            fix: "reach the registry",
            ..USUAL
        },
        Way {
            name: "pod security",
            plant: |w| {
                w.pod = Pod::Refused("pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\": runAsUser");
            },
            check: "pod",
            fix: "pod-security.kubernetes.io/enforce",
            ..USUAL
        },
        Way {
            name: "a pod that waits for ever",
            plant: |w| w.pod = waiting("ContainerCreating", ""),
            arguments: &["--timeout", "10s"],
            check: "pod",
            fix: "--timeout",
            ..USUAL
        },
        Way {
            name: "a name of Forge's own that is taken",
            plant: |w| {
                let role = "/apis/rbac.authorization.k8s.io/v1/namespaces/argo/roles/forge-executor";
                let metadata = json!({"name": "forge-executor", "namespace": "argo"});
                w.answers.insert(role.to_owned(), json!({"kind": "Role", "metadata": metadata}));
            },
            check: "own",
            fix: "kubectl -n argo label role forge-executor",
            ..USUAL
        },
        Way {
            name: "an owner of Argo CD who has not made the AppProject",
            plant: |w| drop(w.answers.remove(PROJECT)),
            check: "merged",
            fix: "forge bootstrap --print",
            ..USUAL
        },
        Way {
            name: "an API server that is half away",
            plant: |w| drop(w.answers.insert("/api/v1/nodes".to_owned(), json!({"kind": "NodeList"}))),
            code: 1,
            check: "nodes",
            fix: "/readyz",
            ..USUAL
        },
    ]
}

#[test]
fn every_way_to_be_unready_is_found_named_with_its_fix_and_leaves_nothing() {
    let ways = ways();
    assert!(ways.len() >= 12);
    let wrong: Vec<String> = thread::scope(|scope| {
        let threads: Vec<_> = ways.iter().map(|way| scope.spawn(move || wrong(way))).collect();
        threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn the_guide_names_every_way_to_be_unready_with_its_check_and_its_code() {
    let guide = forge_testkit::checkout().join("docs/guides/bootstrap.md");
    let guide = fs::read_to_string(guide).unwrap();
    let rows: Vec<&str> = guide.lines().filter(|line| line.starts_with('|')).collect();
    for way in ways() {
        let check: Check = serde_json::from_value(json!(way.check)).unwrap();
        let code = check.code().id();
        let (cell, link) = (format!("| `{check}` |"), format!("[{code}]"));
        assert!(rows.iter().any(|row| row.contains(&cell) && row.contains(&link)), "{}: {cell} {link}", way.name);
    }
}

/// What is wrong with how a way was found.
fn wrong(way: &Way) -> Option<String> {
    let mut world = good();
    (way.plant)(&mut world);
    let came = check(world, way.argo, way.arguments);
    let findings = came.report["findings"].as_array().cloned().unwrap_or_default();
    let wanted = if way.code == 3 { "blocking" } else { "failed" };
    let found = findings.iter().any(|finding| {
        finding["check"] == way.check
            && finding["severity"] == wanted
            && finding["code"].as_str().is_some_and(|code| code.starts_with("FORGE-"))
            && finding["fix"].as_str().is_some_and(|fix| fix.contains(way.fix))
            && finding["means"].as_str().is_some_and(|means| !means.is_empty())
    });
    let well = came.code == way.code && found && came.left.is_empty() && result(&came.report, way.check) == wanted;
    (!well).then(|| {
        format!("{}: exit {}, left {:?}\n{:#}\n{}", way.name, came.code, came.left.keys(), came.report, came.stderr)
    })
}

#[test]
fn a_server_that_is_not_there_is_a_failure_to_check_and_no_finding_about_the_cluster() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = nobody.local_addr().unwrap().port();
    drop(nobody);
    let folder = folder(port, EXISTING);
    let output = forge(folder.path(), &["preflight", "--output", "json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((report["verdict"].as_str(), result(&report, "api").as_str()), (Some("not known"), "failed"));
    assert_eq!(report["checks"].as_array().map(Vec::len), Some(1));
}

#[test]
fn where_namespaces_may_not_be_made_the_pod_starts_where_runs_do_and_is_removed_there() {
    let mut world = good();
    world.denied.push("namespaces");
    let came = check(world, EXISTING, &[]);
    assert_eq!(came.code, 0, "{:#}\n{}", came.report, came.stderr);
    assert_eq!((result(&came.report, "pod").as_str(), came.left.len()), ("passed", 0));
    let made: Vec<&String> = came.writes.iter().filter(|line| line.starts_with("POST")).collect();
    assert_eq!(made, ["POST /api/v1/namespaces/argo/pods"]);
    // And where neither may be made, nothing is known about pods.
    let mut world = good();
    world.denied.extend(["namespaces", "pods"]);
    let came = check(world, EXISTING, &[]);
    assert_eq!((result(&came.report, "pod").as_str(), came.writes.len()), ("failed", 0), "{:#}", came.report);
}

#[test]
fn where_accounts_of_a_run_have_credentials_for_a_registry_the_pod_starts_with_them() {
    let ours = json!({"labels": {"app.kubernetes.io/managed-by": "forge"}});
    let with = json!({"metadata": ours, "imagePullSecrets": [{"name": "registry"}]});
    let account = |name: &str| format!("/api/v1/namespaces/argo/serviceaccounts/{name}");
    let mut world = good();
    for name in ["forge-executor", "forge-workflow"] {
        world.answers.insert(account(name), with.clone());
    }
    let came = check(world, EXISTING, &[]);
    assert_eq!(came.code, 0, "{:#}\n{}", came.report, came.stderr);
    let made: Vec<&String> = came.writes.iter().filter(|line| line.starts_with("POST")).collect();
    assert_eq!((made, came.left.len()), (vec![&"POST /api/v1/namespaces/argo/pods".to_owned()], 0));
    // The agent's pod would still not start.
    let mut world = good();
    world.answers.insert(account("forge-executor"), with);
    let came = check(world, EXISTING, &[]);
    let there = came.writes.iter().any(|write| write.ends_with("/namespaces/argo/pods"));
    assert!(came.code == 0 && !there, "{:?}", came.writes);
}

#[test]
fn what_may_not_be_read_is_a_note_and_keeps_nobody_from_going_on() {
    let mut world = good();
    for path in ["/api/v1/nodes", "/apis/storage.k8s.io/v1/storageclasses", "/apis/apps/v1/deployments"] {
        world.answers.insert(path.to_owned(), Value::Null);
    }
    let came = check(world, EXISTING, &[]);
    assert_eq!(came.code, 0, "{:#}\n{}", came.report, came.stderr);
    for check in ["nodes", "storage", "argo-cd", "argo-workflows"] {
        assert_eq!(result(&came.report, check), "skipped", "{check}");
    }
}

/// Something that an earlier check made, which may be used until then.
fn leftover(name: &str, expires: &str, labels: &Value) -> (String, Value) {
    let annotations = json!({"forge.projectcatalyst.io/expires": expires});
    let metadata = json!({"name": name, "labels": labels, "annotations": annotations});
    (format!("/api/v1/namespaces/{name}"), json!({ "metadata": metadata }))
}

#[test]
fn what_a_killed_check_left_is_removed_and_what_is_in_use_or_somebody_elses_is_not() {
    let ours = |id: &str| json!({"app.kubernetes.io/managed-by": "forge", "forge.projectcatalyst.io/preflight": id});
    let mut world = good();
    world.objects.extend([
        leftover("forge-preflight-old", "2020-01-01T00:00:00Z", &ours("old")),
        leftover("forge-preflight-busy", "2099-01-01T00:00:00Z", &ours("busy")),
        leftover("forge-preflight-odd", "2020-01-01T00:00:00Z", &json!({"team": "odd"})),
        leftover("production", "2020-01-01T00:00:00Z", &ours("production")),
    ]);
    let came = check(world, EXISTING, &[]);
    assert_eq!(came.code, 0, "{:#}\n{}", came.report, came.stderr);
    let left: Vec<&str> = came.left.keys().filter_map(|path| path.rsplit('/').next()).collect();
    assert_eq!(left, ["forge-preflight-busy", "forge-preflight-odd", "production"]);
}

#[test]
fn an_interrupt_while_the_pod_starts_removes_it_and_ends_with_1() {
    let mut world = good();
    world.pod = Pod::Is(json!({"phase": "Pending"}));
    let (port, server) = serve(world);
    let folder = folder(port, EXISTING);
    let child = forge(folder.path(), &["preflight"]).spawn().unwrap();
    let begin = Instant::now();
    while !server.lock().unwrap().world.objects.keys().any(|path| path.contains("/pods/")) {
        assert!(begin.elapsed() < Duration::from_secs(60), "no pod was made");
        thread::sleep(Duration::from_millis(20));
    }
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(String::from_utf8(output.stdout).unwrap().contains("interrupted"), "{stderr}");
    let server = server.lock().unwrap();
    assert!(server.world.objects.is_empty(), "{:?}", server.world.objects.keys());
}

/// Told to stop while the server is asked for its version and does not answer yet, then answered.
fn stopped_while_it_reads(mut command: Command, server: &Mutex<Server>) -> std::process::Output {
    let gate = Arc::clone(&server.lock().unwrap().world.gate);
    let closed = gate.lock().unwrap();
    let child = command.spawn().unwrap();
    let begin = Instant::now();
    while !server.lock().unwrap().knocked {
        assert!(begin.elapsed() < Duration::from_secs(60), "nothing was read");
        thread::sleep(Duration::from_millis(20));
    }
    let killed = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    drop(closed);
    child.wait_with_output().unwrap()
}

#[test]
fn told_to_stop_while_it_reads_it_says_so_and_makes_nothing() {
    let (port, server) = serve(good());
    let folder = folder(port, EXISTING);
    let output = stopped_while_it_reads(forge(folder.path(), &["preflight"]), &server);
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(1), "{out}\n{err}");
    assert!(out.contains("interrupted before"), "{out}");
    assert_eq!(server.lock().unwrap().writes, Vec::<String>::new());
}

/// `executor deploy` of the repository in this folder.
fn executor(folder: &Path) -> Command {
    let path = |name: &str| folder.join(name);
    for arguments in [
        &["init", "-q", "-b", "main"][..],
        &["add", "forge.yaml", "graph.yaml"][..],
        &["-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "-q", "-m", "one"][..],
    ] {
        assert!(Command::new("git").args(arguments).current_dir(folder).status().unwrap().success());
    }
    let url = format!("file://{}", folder.display());
    let environment = format!("name: dev\ndomain: dev.example.com\ngitRepository: {url}\ngitRevision: main\n");
    fs::write(path("environment.yaml"), environment).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_forge"), path("executor")).unwrap();
    let mut command = Command::new(path("executor"));
    command.arg("deploy").arg("--config").arg(path("environment.yaml")).arg("--secrets").arg(path("secrets"));
    command.args(["--metrics-listen", "127.0.0.1:0"]).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    command.env("TMPDIR", folder).env("ENVIRONMENT", "dev").env("IMAGE", IMAGE);
    command.env("KUBECONFIG_PATH", path("kubeconfig"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn the_executor_that_is_told_to_stop_while_phase_0_reads_makes_nothing_and_ends_with_2() {
    let (port, server) = serve(good());
    let folder = folder(port, EXISTING);
    let output = stopped_while_it_reads(executor(folder.path()), &server);
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(2), "{out}\n{err}");
    assert_eq!(server.lock().unwrap().writes, Vec::<String>::new(), "{err}");
}

#[test]
fn bootstrap_writes_nothing_where_something_must_be_put_right_first() {
    let mut world = good();
    world.answers.get_mut("/api/v1/nodes").unwrap()["items"][0]["spec"] = json!({"unschedulable": true});
    let (port, server) = serve(world);
    let folder = folder(port, EXISTING);
    let output = forge(folder.path(), &["bootstrap"]).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("error[FORGE-B001]") && stderr.contains("kubectl uncordon"), "{stderr}");
    assert_eq!(server.lock().unwrap().writes, Vec::<String>::new());
    // What could not be checked stops it too.
    let mut world = good();
    world.answers.insert("/api/v1/nodes".to_owned(), json!({"kind": "NodeList"}));
    let (port, server) = serve(world);
    let folder = crate::folder(port, EXISTING);
    let output = forge(folder.path(), &["bootstrap"]).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("error[FORGE-B002]"), "{stderr}");
    let server = server.lock().unwrap();
    assert!(server.writes.iter().all(|write| write.contains("forge-preflight-") || write == "POST /api/v1/namespaces"));
    assert!(server.world.objects.is_empty());
}

#[test]
fn bootstrap_and_the_executor_stop_where_volumes_are_needed_and_no_class_has_them_and_only_there() {
    let run = |storage: bool, command: fn(&Path, bool) -> Command| {
        // Whoever goes on makes accounts, and comes as far as their rights.
        let mut world = applying("/rolebindings/");
        world.answers.insert("/apis/storage.k8s.io/v1/storageclasses".to_owned(), list(&json!([])));
        let (port, server) = serve(world);
        let folder = folder(port, EXISTING);
        let output = command(folder.path(), storage).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains("FORGE-B008"), "{stderr}");
        assert_eq!(stderr.contains("FORGE-B001"), storage, "{stderr}");
        let server = server.lock().unwrap();
        let checks = |write: &&String| write.contains("forge-preflight-") || *write == "POST /api/v1/namespaces";
        let others: Vec<&String> = server.writes.iter().filter(|write| !checks(write)).collect();
        assert_eq!(others.is_empty(), storage, "{others:?}");
        if storage {
            assert_eq!(output.status.code(), Some(3), "{stderr}");
            assert!(server.world.objects.is_empty(), "{:?}", server.world.objects.keys());
        }
    };
    for storage in [true, false] {
        run(storage, |work, storage| {
            let arguments: &[&str] = if storage { &["bootstrap", "--storage"] } else { &["bootstrap"] };
            forge(work, arguments)
        });
        run(storage, |work, storage| {
            let mut command = executor(work);
            if storage {
                command.env("STORAGE", "true");
            }
            command
        });
    }
}

/// A cluster whose Argo is there, and where everything may be applied but what has this in its path.
fn applying(refused: &'static str) -> World {
    let mut world = World { applies: Some(refused), ..good() };
    for crd in ["applications", "workflows"] {
        world.answers.insert(format!("{DEFINITIONS}/{crd}.argoproj.io"), json!({}));
    }
    world
}

#[test]
fn a_bootstrap_that_is_refused_half_way_says_what_it_made_and_not_that_nothing_was_changed() {
    let (port, server) = serve(applying("/rolebindings/"));
    let folder = folder(port, EXISTING);
    let output = forge(folder.path(), &["bootstrap"]).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && stderr.contains("rolebindings/forge-executor is forbidden"), "{stderr}");
    assert!(stderr.contains("ok ServiceAccount forge-executor\n"), "{stderr}");
    assert!(stderr.contains("ok Role forge-executor\n") && !stderr.contains("ok RoleBinding"), "{stderr}");
    assert!(!stderr.contains("nothing was changed"), "{stderr}");
    let made = "/apis/rbac.authorization.k8s.io/v1/namespaces/argo/roles/forge-executor";
    assert!(server.lock().unwrap().world.objects.contains_key(made));
}

#[test]
fn a_cluster_that_is_prepared_with_this_image_is_looked_at_without_a_pod() {
    let mut world = good();
    let plugin = json!({"metadata": {
        "labels": {"app.kubernetes.io/managed-by": "forge"}, "annotations": {"forge.projectcatalyst.io/image": IMAGE},
    }});
    world.answers.insert("/api/v1/namespaces/argo/configmaps/forge-executor-plugin".to_owned(), plugin);
    let (port, server) = serve(world);
    let folder = folder(port, EXISTING);
    let output = forge(folder.path(), &["bootstrap"]).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    // It goes on to apply, which this server does not know.
    assert!(stderr.contains("preflight: ") && !stderr.contains("starting a pod"), "{stderr}");
    let server = server.lock().unwrap();
    assert!(!server.writes.iter().any(|write| write.contains("forge-preflight-")), "{:?}", server.writes);
}
