//! `validate` through the real binary, against an API server that only answers GET and remembers what it was asked: planted states
//! and what is said about them. All sorts of states are in `forge_core::truth`; on a real cluster: `tests/runs/validate.rs`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use forge_core::format::schema;
use forge_core::preflight::Purpose;
use forge_core::render;
use forge_core::rights::{self, Request};
use forge_core::yaml::{Dialect, Limits, Node, read};
use forge_testkit::registry::{Access, Registry};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// Answers by path; what is not known is not found, what is `null` is forbidden, and a number is the code of a failure.
type Answers = BTreeMap<String, Value>;

/// A server, what it answers, and what it was asked.
struct Server {
    port: u16,
    answers: Arc<Mutex<Answers>>,
    asked: Arc<Mutex<Vec<(String, String)>>>,
}

fn serve(answers: Answers) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (answers, asked) = (Arc::new(Mutex::new(answers)), Arc::new(Mutex::new(Vec::new())));
    let (known, heard) = (Arc::clone(&answers), Arc::clone(&asked));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (known, heard) = (Arc::clone(&known), Arc::clone(&heard));
            thread::spawn(move || answer(&stream, &known, &heard));
        }
    });
    Server { port, answers, asked }
}

fn answer(stream: &TcpStream, answers: &Mutex<Answers>, asked: &Mutex<Vec<(String, String)>>) {
    let mut lines = BufReader::new(stream).lines();
    let Some(Ok(request)) = lines.next() else { return };
    while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
    let mut words = request.split(' ');
    let (method, uri) = (words.next().unwrap(), words.next().unwrap());
    asked.lock().unwrap().push((method.to_owned(), uri.to_owned()));
    let path = uri.split('?').next().unwrap();
    let status = |code: u16| {
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": format!("no {path}"), "reason": "x"}).to_string()
    };
    let found = answers.lock().unwrap().get(path).cloned();
    let (code, body) = match found {
        _ if method != "GET" => (405, status(405)),
        Some(Value::Null) => (403, status(403)),
        Some(Value::Number(code)) => {
            let code = u16::try_from(code.as_u64().unwrap()).unwrap();
            (code, status(code))
        }
        // A stream that ends at once.
        Some(_) if uri.contains("watch=true") => (200, String::new()),
        Some(body) => (200, body.to_string()),
        None => (404, status(404)),
    };
    let mut stream = stream;
    let _ = write!(
        stream,
        "HTTP/1.1 {code} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
}

fn ago(seconds: i64) -> String {
    let at = Timestamp::now().checked_sub(SignedDuration::from_secs(seconds)).unwrap();
    at.strftime("%FT%TZ").to_string()
}

const URL: &str = "https://git.example.com/p.git";
const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const OTHER: &str = "sha256:fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210";
const NODES: [&str; 3] = ["network", "db", "api"];
const APPLICATIONS: &str = "/apis/argoproj.io/v1alpha1/namespaces/argocd/applications";
const PROJECT: &str = "/apis/argoproj.io/v1alpha1/namespaces/argocd/appprojects/dev";
const CONTROLLERS: &str = "/apis/apps/v1/namespaces/argocd/deployments";
const STATEFUL: &str = "/apis/apps/v1/namespaces/argocd/statefulsets";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/argo/leases/forge-dev";
const READY: &str = "/api/v1/namespaces/api/configmaps/ready";

fn git(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .current_dir(folder)
        .args(["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main"])
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A checkout of three nodes, one after the other, whose branch is what its origin holds.
struct Home {
    folder: tempfile::TempDir,
    head: String,
}

impl Home {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let work = folder.path().join("work");
        fs::create_dir(&work).unwrap();
        let header = "apiVersion: forge.projectcatalyst.io/v1alpha1\n";
        let installation = format!(
            "{header}kind: Forge\nspec:\n  repository: {{url: {URL}}}\n  argo: {{cd: existing, workflows: existing, events: none}}\n  environments: [{{name: dev, cluster: in-cluster, sync: manual}}]\n"
        );
        let graph = format!(
            "{header}kind: DependencyGraph\nspec:\n  stacks:\n    - name: base\n      apps:\n        - application: argocd/network\n        - application: argocd/db\n          dependsOn: [argocd/network]\n        - application: argocd/api\n          dependsOn: [argocd/db]\n          requires: [{{apiVersion: v1, kind: ConfigMap, namespace: api, name: ready}}]\n"
        );
        fs::write(work.join("forge.yaml"), installation).unwrap();
        fs::write(work.join("graph.yaml"), graph).unwrap();
        for node in NODES {
            fs::create_dir_all(work.join("apps").join(node)).unwrap();
            fs::write(work.join("apps").join(node).join("x.yaml"), "a: 1\n").unwrap();
        }
        git(folder.path(), &["init", "-q", "--bare", "origin.git"]);
        git(&work, &["init", "-q"]);
        git(&work, &["add", "."]);
        git(&work, &["commit", "-q", "-m", "one"]);
        git(&work, &["remote", "add", "origin", "../origin.git"]);
        git(&work, &["push", "-q", "origin", "HEAD:main"]);
        let head = git(&work, &["rev-parse", "HEAD"]);
        Self { folder, head }
    }

    fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    /// Another commit, pushed or not.
    fn commit(&self, file: &str, push: bool) -> String {
        fs::write(self.work().join(file), "a: 2\n").unwrap();
        git(&self.work(), &["add", "."]);
        git(&self.work(), &["commit", "-q", "-m", file]);
        if push {
            git(&self.work(), &["push", "-q", "origin", "HEAD:main"]);
        }
        git(&self.work(), &["rev-parse", "HEAD"])
    }

    fn command(&self, server: &Server, arguments: &[&str]) -> Command {
        fs::write(self.folder.path().join("kubeconfig"), kubeconfig(server.port)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_forge"));
        command.args(["platform", "validate", "--environment", "dev", "--kubeconfig", "../kubeconfig"]).args(arguments);
        command.current_dir(self.work()).env_clear().env("HOME", self.folder.path());
        command.env("PATH", std::env::var_os("PATH").unwrap()).stdin(Stdio::null());
        command
    }

    fn validate(&self, answers: Answers, arguments: &[&str]) -> Came {
        let server = serve(answers);
        let output = self.command(&server, arguments).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let asked = server.asked.lock().unwrap().clone();
        let code = output.status.code().unwrap_or(-1);
        Came { code, stdout: text(output.stdout), stderr: text(output.stderr), asked }
    }

    /// The same as JSON: the exit code, and what is wrong with what.
    fn found(&self, answers: Answers, arguments: &[&str]) -> (i32, BTreeSet<(String, String)>, Value) {
        let came = self.validate(answers, &[&["-o", "json"], arguments].concat());
        let report: Value =
            serde_json::from_str(&came.stdout).unwrap_or_else(|error| panic!("{error}: {}", came.stderr));
        assert_eq!(report["exit"], came.code, "{report:#}");
        let validator = jsonschema::validator_for(schema("validationreport").unwrap().as_value()).unwrap();
        let errors: Vec<String> = validator.iter_errors(&report).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{errors:?}: {report:#}");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let failures = report["failures"].as_array().unwrap().iter();
        (came.code, failures.map(|found| (text(&found["component"]), text(&found["kind"]))).collect(), report)
    }
}

struct Came {
    code: i32,
    stdout: String,
    stderr: String,
    asked: Vec<(String, String)>,
}

fn kubeconfig(port: u16) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": format!("http://127.0.0.1:{port}")}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
    })
    .to_string()
}

fn application(name: &str, revision: &str) -> Value {
    json!({
        "metadata": {"namespace": "argocd", "name": name, "creationTimestamp": ago(90_000)},
        "spec": {
            "project": "dev",
            "source": {"repoURL": URL, "path": format!("apps/{name}"), "targetRevision": "main"},
            "destination": {"namespace": name, "server": "https://kubernetes.default.svc"},
        },
        "status": {
            "sync": {"status": "Synced", "revision": revision},
            "health": {"status": "Healthy", "lastTransitionTime": ago(50_000)},
            "reconciledAt": ago(60),
            "operationState": {"phase": "Succeeded", "startedAt": ago(50_010), "finishedAt": ago(50_000)},
            "resources": [
                {"group": "apps", "version": "v1", "kind": "Deployment", "namespace": name, "name": "web", "status": "Synced"},
                {"version": "v1", "kind": "Secret", "namespace": name, "name": "password", "status": "Synced"},
            ],
        },
    })
}

fn deployment(node: &str, image: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": node, "generation": 2},
        "spec": {"template": {"spec": {"containers": [{"name": "web", "image": image}]}}},
        "status": {"observedGeneration": 2},
    })
}

fn pod(node: &str, digest: &str) -> Value {
    json!({
        "metadata": {
            "name": "web-7d9c-x", "namespace": node, "labels": {"pod-template-hash": "7d9c"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "web-7d9c", "controller": true}],
        },
        "status": {"containerStatuses": [
            {"name": "web", "imageID": format!("registry.example.com/web@{digest}"), "restartCount": 0,
             "state": {"running": {"startedAt": ago(50_000)}}},
        ]},
    })
}

fn workload(name: &str, part: &str, ready: u64) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "argocd", "labels": {"app.kubernetes.io/part-of": part}},
        "spec": {"replicas": 1}, "status": {"readyReplicas": ready},
    })
}

fn list(items: &[Value]) -> Value {
    json!({"metadata": {"resourceVersion": "1"}, "items": items})
}

/// A cluster in which all is well.
fn well(head: &str) -> Answers {
    let named = |kinds: &[(&str, &str)]| -> Value {
        let kinds = kinds.iter().map(|(name, kind)| json!({"name": name, "kind": kind, "namespaced": true}));
        json!({"resources": kinds.collect::<Vec<_>>()})
    };
    let argo = [
        "applications",
        "appprojects",
        "workflows",
        "clusterworkflowtemplates",
        "workflowtasksets",
        "workflowtaskresults",
    ];
    let argo: Vec<(&str, &str)> = argo.iter().map(|name| (*name, *name)).collect();
    let applications: Vec<Value> = NODES.iter().map(|node| application(node, head)).collect();
    let mut answers = Answers::from([
        ("/apis/argoproj.io/v1alpha1".to_owned(), named(&argo)),
        ("/apis/apps/v1".to_owned(), named(&[("deployments", "Deployment"), ("deployments/status", "Deployment")])),
        ("/api/v1".to_owned(), named(&[("configmaps", "ConfigMap"), ("pods", "Pod"), ("pods/log", "Pod")])),
        (APPLICATIONS.to_owned(), list(&applications)),
        (PROJECT.to_owned(), json!({"spec": {}})),
        (CONTROLLERS.to_owned(), list(&[workload("argocd-repo-server", "argocd", 1)])),
        (STATEFUL.to_owned(), list(&[workload("argocd-application-controller", "argocd", 1)])),
        (
            "/apis/apps/v1/namespaces/argo/deployments".to_owned(),
            list(&[workload("workflow-controller", "argo-workflows", 1)]),
        ),
        ("/apis/apps/v1/namespaces/argo/statefulsets".to_owned(), list(&[])),
        ("/apis/argoproj.io/v1alpha1/namespaces/argocd/appprojects".to_owned(), list(&[])),
        (READY.to_owned(), json!({"kind": "ConfigMap"})),
    ]);
    for node in NODES {
        let image = format!("registry.example.com/web@{DIGEST}");
        answers.insert(format!("/apis/apps/v1/namespaces/{node}/deployments/web"), deployment(node, &image));
        answers.insert(format!("/api/v1/namespaces/{node}/pods"), list(&[pod(node, DIGEST)]));
    }
    answers
}

/// One Application of the list, changed.
fn changed(answers: &mut Answers, name: &str, change: impl FnOnce(&mut Value)) {
    let items = answers.get_mut(APPLICATIONS).unwrap()["items"].as_array_mut().unwrap();
    change(items.iter_mut().find(|item| item["metadata"]["name"] == name).unwrap());
}

#[test]
fn a_platform_that_is_well_is_healthy_and_nothing_but_what_a_reader_may_is_asked() {
    let home = Home::new();
    let came = home.validate(well(&home.head), &[]);
    assert_eq!(came.code, 0, "{}{}", came.stdout, came.stderr);
    let summary = format!("7 of 7 components healthy; 3 nodes held against {}", &home.head[..10]);
    assert_eq!(came.stdout, format!("dev in c, scope platform: healthy\n{summary}\n"));
    let grants = rights::reader();
    let purpose = Purpose::default();
    let requests: Vec<Request> = came
        .asked
        .iter()
        .filter_map(|(method, uri)| {
            assert_eq!(method, "GET", "{uri}");
            Request::read(method, uri)
        })
        .collect();
    assert!(requests.len() > 10, "{requests:?}");
    for request in requests {
        assert!(grants.iter().any(|grant| grant.covers(&request, &purpose)), "{request:?}");
    }
    // Nobody was asked for a Secret, and Argo CD's own API was left alone.
    assert!(came.asked.iter().all(|(_, uri)| !uri.contains("/secrets") && !uri.contains("/proxy")), "{:?}", came.asked);
}

#[test]
fn the_role_of_the_guide_is_the_one_of_the_table() {
    let guide = forge_testkit::checkout().join("docs/guides/validate.md");
    let text = fs::read_to_string(guide).unwrap();
    let block = text.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let stream = read(block, Dialect::Kubernetes, Limits::FILE);
    let documents: Vec<Value> = stream.documents.iter().map(Node::to_json).collect();
    assert_eq!(documents, [render::reader("forge-reader")]);
}

type Plant = fn(&mut Answers);
/// What it is, what is planted, how the command ends, and what is said about which node.
type Case = (&'static str, Plant, i32, &'static [(&'static str, &'static str)]);

#[test]
fn planted_states_are_told_with_the_exit_code_of_the_worst() {
    const CASES: &[Case] = &[
        (
            "missing",
            |a| {
                a.get_mut(APPLICATIONS).unwrap()["items"].as_array_mut().unwrap().remove(1);
            },
            1,
            &[("argocd/db", "missing")],
        ),
        (
            "degraded",
            |a| changed(a, "db", |app| app["status"]["health"]["status"] = json!("Degraded")),
            1,
            &[("argocd/db", "unhealthy")],
        ),
        (
            "progressing",
            |a| {
                changed(a, "db", |app| {
                    app["status"]["health"] = json!({"status": "Progressing", "lastTransitionTime": ago(5)});
                });
            },
            2,
            &[("argocd/db", "progressing")],
        ),
        (
            "drift",
            |a| {
                changed(a, "db", |app| {
                    app["status"]["sync"]["status"] = json!("OutOfSync");
                    app["status"]["resources"][0]["status"] = json!("OutOfSync");
                });
            },
            2,
            &[("argocd/db", "drift")],
        ),
        (
            "stale",
            |a| changed(a, "db", |app| app["status"]["reconciledAt"] = json!(ago(700))),
            2,
            &[("argocd/db", "stale")],
        ),
        (
            "never compared",
            |a| {
                changed(a, "db", |app| {
                    app["status"].as_object_mut().unwrap().remove("reconciledAt");
                });
            },
            2,
            &[("argocd/db", "stale")],
        ),
        (
            "suspended",
            |a| changed(a, "db", |app| app["status"]["health"]["status"] = json!("Suspended")),
            1,
            &[("argocd/db", "unhealthy")],
        ),
        (
            "a health that nobody knows",
            |a| changed(a, "db", |app| app["status"]["health"]["status"] = json!("Splendid")),
            1,
            &[("argocd/db", "unhealthy")],
        ),
        (
            "Argo CD cannot compare",
            |a| {
                changed(a, "db", |app| {
                    app["status"]["conditions"] = json!([{"type": "ComparisonError", "message": "rpc error"}]);
                });
            },
            1,
            &[("argocd/db", "unhealthy")],
        ),
        (
            "Argo CD does not know whether it differs",
            |a| changed(a, "db", |app| app["status"]["sync"]["status"] = json!("Unknown")),
            2,
            &[("argocd/db", "not-known")],
        ),
        (
            "the last sync failed, and nothing differs",
            |a| changed(a, "db", |app| app["status"]["operationState"]["phase"] = json!("Failed")),
            2,
            &[("argocd/db", "unhealthy")],
        ),
        (
            "the last sync failed, and something differs",
            |a| {
                changed(a, "db", |app| {
                    app["status"]["operationState"]["phase"] = json!("Error");
                    app["status"]["sync"]["status"] = json!("OutOfSync");
                });
            },
            1,
            &[("argocd/db", "unhealthy"), ("argocd/db", "drift")],
        ),
        (
            "a sync was asked for",
            |a| changed(a, "db", |app| app["operation"] = json!({"sync": {}})),
            2,
            &[("argocd/db", "progressing")],
        ),
        (
            "a sync does not end",
            |a| {
                changed(a, "db", |app| {
                    app["operation"] = json!({"sync": {}, "initiatedBy": {"username": "eve"}});
                    app["status"]["operationState"] = json!({"phase": "Running", "startedAt": ago(5000)});
                });
            },
            1,
            &[("argocd/db", "unhealthy")],
        ),
        (
            "it is being deleted",
            |a| changed(a, "db", |app| app["metadata"]["deletionTimestamp"] = json!(ago(5))),
            2,
            &[("argocd/db", "missing")],
        ),
        (
            "it is being deleted, and something keeps it",
            |a| changed(a, "db", |app| app["metadata"]["deletionTimestamp"] = json!(ago(5000))),
            1,
            &[("argocd/db", "missing")],
        ),
        (
            "it manages nothing",
            |a| changed(a, "db", |app| app["status"]["resources"] = json!([])),
            1,
            &[("argocd/db", "unhealthy")],
        ),
        (
            "a status of another shape",
            |a| changed(a, "db", |app| app["status"] = json!({"sync": 7, "resources": {"a": 1}, "conditions": "x"})),
            1,
            &[("argocd/db", "unhealthy"), ("argocd/db", "stale")],
        ),
        (
            "pods and workloads of another shape",
            |a| {
                let pods = list(&[json!({}), json!({"metadata": 7}), json!(["x"]), pod("db", DIGEST)]);
                a.insert("/api/v1/namespaces/db/pods".to_owned(), pods);
                a.insert(
                    "/apis/apps/v1/namespaces/network/deployments/web".to_owned(),
                    json!({"spec": {"template": 7}}),
                );
            },
            0,
            &[],
        ),
        (
            "a workload that Argo CD calls Synced is not there",
            |a| {
                a.remove("/apis/apps/v1/namespaces/db/deployments/web");
            },
            1,
            &[("argocd/db", "missing")],
        ),
        (
            "a controller has not caught up",
            |a| {
                let web = a.get_mut("/apis/apps/v1/namespaces/db/deployments/web").unwrap();
                web["metadata"]["generation"] = json!(3);
            },
            1,
            &[("argocd/db", "unhealthy")],
        ),
        (
            "a container crashes while Argo CD says Healthy",
            |a| {
                let mut crashes = pod("db", DIGEST);
                let state = json!({"waiting": {"reason": "CrashLoopBackOff"}});
                crashes["status"]["containerStatuses"][0]["state"] = state;
                a.insert("/api/v1/namespaces/db/pods".to_owned(), list(&[crashes]));
            },
            1,
            &[("argocd/db", "unhealthy")],
        ),
        (
            "a container does not show its image",
            |a| {
                let mut silent = pod("db", DIGEST);
                silent["status"]["containerStatuses"][0]["imageID"] = json!("");
                a.insert("/api/v1/namespaces/db/pods".to_owned(), list(&[silent]));
            },
            2,
            &[("argocd/db", "not-known")],
        ),
        (
            "an old pod runs during a roll-out that Argo CD has not noticed",
            |a| {
                a.insert("/api/v1/namespaces/db/pods".to_owned(), list(&[pod("db", OTHER)]));
                let web = a.get_mut("/apis/apps/v1/namespaces/db/deployments/web").unwrap();
                web["status"] = json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 1});
            },
            2,
            &[("argocd/db", "wrong-digest")],
        ),
        (
            "wrong digest",
            |a| {
                a.insert("/api/v1/namespaces/db/pods".to_owned(), list(&[pod("db", OTHER)]));
            },
            1,
            &[("argocd/db", "wrong-digest")],
        ),
        (
            "mutable tag",
            |a| {
                a.insert(
                    "/apis/apps/v1/namespaces/db/deployments/web".to_owned(),
                    deployment("db", "registry.example.com/web:v1"),
                );
            },
            2,
            &[("argocd/db", "policy")],
        ),
        (
            "extra",
            |a| {
                let extra = application("left-over", "1");
                a.get_mut(APPLICATIONS).unwrap()["items"].as_array_mut().unwrap().push(extra);
            },
            2,
            &[("argocd/left-over", "extra")],
        ),
        (
            "a required object is missing",
            |a| {
                a.remove(READY);
            },
            1,
            &[("argocd/api", "missing")],
        ),
        (
            "a controller is down",
            |a| {
                a.insert(CONTROLLERS.to_owned(), list(&[workload("argocd-repo-server", "argocd", 0)]));
            },
            1,
            &[("Argo CD", "controller")],
        ),
        (
            "a controller is gone, and the others are well",
            |a| {
                a.insert(STATEFUL.to_owned(), list(&[]));
            },
            1,
            &[("Argo CD", "controller")],
        ),
        (
            "controllers may not be read",
            |a| {
                a.insert("/apis/apps/v1/namespaces/argo/deployments".to_owned(), Value::Null);
            },
            2,
            &[("Argo Workflows", "not-known")],
        ),
        (
            "a window was left, and whether its run is in progress may not be read",
            |a| {
                let window = json!({"description": "forge-orchestration dev-1", "applications": ["db"], "kind": "deny", "manualSync": true});
                a.insert(PROJECT.to_owned(), json!({"spec": {"syncWindows": [window]}}));
                a.insert(LEASE.to_owned(), Value::Null);
            },
            2,
            &[("AppProject dev", "not-known")],
        ),
        (
            "the window of a run that is in progress",
            |a| {
                let window = json!({"description": "forge-orchestration dev-1", "applications": ["db"], "kind": "deny", "manualSync": true});
                a.insert(PROJECT.to_owned(), json!({"spec": {"syncWindows": [window]}}));
                let spec = json!({"holderIdentity": "dev-1", "renewTime": ago(1), "leaseDurationSeconds": 60});
                a.insert(LEASE.to_owned(), json!({"spec": spec}));
            },
            0,
            &[],
        ),
        (
            "a window was left",
            |a| {
                let window = json!({"description": "forge-orchestration dev-1", "applications": ["db"], "kind": "deny", "manualSync": true});
                a.insert(PROJECT.to_owned(), json!({"spec": {"syncWindows": [window]}}));
            },
            2,
            &[("AppProject dev", "window")],
        ),
        (
            "the AppProject is missing",
            |a| {
                a.remove(PROJECT);
            },
            1,
            &[("AppProject dev", "window")],
        ),
        (
            "the AppProject may not be read",
            |a| {
                a.insert(PROJECT.to_owned(), Value::Null);
            },
            2,
            &[("AppProject dev", "not-known")],
        ),
        (
            "pods may not be read",
            |a| {
                a.insert("/api/v1/namespaces/db/pods".to_owned(), Value::Null);
            },
            2,
            &[("argocd/db", "not-known")],
        ),
        (
            "workloads may not be read",
            |a| {
                a.insert("/apis/apps/v1/namespaces/db/deployments/web".to_owned(), Value::Null);
            },
            2,
            &[("argocd/db", "not-known")],
        ),
        (
            "pods may not be read, and a required object is missing: the one hides nothing of the other",
            |a| {
                a.insert("/api/v1/namespaces/api/pods".to_owned(), Value::Null);
                a.remove(READY);
            },
            1,
            &[("argocd/api", "not-known"), ("argocd/api", "missing")],
        ),
        (
            "a workload may not be read, and a required object is missing",
            |a| {
                a.insert("/apis/apps/v1/namespaces/api/deployments/web".to_owned(), Value::Null);
                a.remove(READY);
            },
            1,
            &[("argocd/api", "not-known"), ("argocd/api", "missing")],
        ),
        (
            "pods may not be read, and an image is not fixed by digest: rules are about what was read",
            |a| {
                a.insert("/api/v1/namespaces/db/pods".to_owned(), Value::Null);
                a.insert(
                    "/apis/apps/v1/namespaces/db/deployments/web".to_owned(),
                    deployment("db", "registry.example.com/web:v1"),
                );
            },
            2,
            &[("argocd/db", "not-known"), ("argocd/db", "policy")],
        ),
        (
            "a required object may not be read",
            |a| {
                a.insert(READY.to_owned(), Value::Null);
            },
            2,
            &[("argocd/api", "not-known")],
        ),
    ];
    let home = Home::new();
    for (name, plant, code, expected) in CASES {
        let mut answers = well(&home.head);
        plant(&mut answers);
        let (exit, told, report) = home.found(answers, &[]);
        let expected: BTreeSet<(String, String)> =
            expected.iter().map(|(component, kind)| ((*component).to_owned(), (*kind).to_owned())).collect();
        assert_eq!((exit, told), (*code, expected), "{name}: {report:#}");
    }
}

#[test]
fn who_may_read_nothing_is_told_that_nothing_is_known_and_never_that_it_is_fine() {
    let home = Home::new();
    let mut answers = well(&home.head);
    for value in answers.values_mut() {
        *value = Value::Null;
    }
    for node in NODES {
        answers.insert(format!("{APPLICATIONS}/{node}"), Value::Null);
    }
    let (code, told, report) = home.found(answers, &[]);
    assert_eq!((code, report["verdict"].as_str()), (2, Some("not known")), "{report:#}");
    for node in NODES {
        assert!(told.contains(&(format!("argocd/{node}"), "not-known".to_owned())), "{told:?}");
    }
    // All that is healthy is what Git itself says.
    assert_eq!(report["statistics"]["healthy"], 1, "{report:#}");
    // One that may get Applications and not list them sees them, and knows nothing of others.
    let mut answers = well(&home.head);
    for node in NODES {
        answers.insert(format!("{APPLICATIONS}/{node}"), application(node, &home.head));
    }
    answers.insert(APPLICATIONS.to_owned(), Value::Null);
    let (code, told, _) = home.found(answers, &[]);
    assert_eq!((code, told), (2, [("other Applications".to_owned(), "not-known".to_owned())].into()));
}

#[test]
fn a_scope_brings_its_predecessors_along_and_leaves_the_rest_alone() {
    let home = Home::new();
    let mut answers = well(&home.head);
    changed(&mut answers, "api", |app| app["status"]["health"]["status"] = json!("Degraded"));
    let extra = application("left-over", "1");
    answers.get_mut(APPLICATIONS).unwrap()["items"].as_array_mut().unwrap().push(extra);
    let (code, told, report) = home.found(answers.clone(), &["--scope", "app:argocd/db"]);
    assert_eq!((code, told.len(), report["statistics"]["nodes"].as_u64()), (0, 0, Some(2)), "{report:#}");
    let (code, told, _) = home.found(answers.clone(), &["--scope", "app:api"]);
    assert_eq!((code, told), (1, [("argocd/api".to_owned(), "unhealthy".to_owned())].into()));
    // Whoever may get and not list them lacks nothing for a part.
    for node in NODES {
        answers.insert(format!("{APPLICATIONS}/{node}"), application(node, &home.head));
    }
    answers.insert(APPLICATIONS.to_owned(), Value::Null);
    let (code, told, report) = home.found(answers, &["--scope", "app:argocd/db"]);
    assert_eq!((code, told.len()), (0, 0), "{report:#}");
}

#[test]
fn what_git_holds_now_decides_what_is_stale() {
    let home = Home::new();
    // Something was pushed that Argo CD has not seen, and it concerns one node; all of them were compared with less.
    let before = home.head.clone();
    let pushed = home.commit("apps/db/x.yaml", true);
    let (code, told, _) = home.found(well(&before), &[]);
    let stale = |node: &str| (format!("argocd/{node}"), "stale".to_owned());
    assert_eq!((code, told), (2, NODES.iter().map(|node| stale(node)).collect()));
    assert_eq!(home.found(well(&pushed), &[]).0, 0);
    // Argo CD is ahead of the commit that is asked about: what it changed since is stale, the rest is not.
    let (code, told, _) = home.found(well(&pushed), &["--commit", &before]);
    assert_eq!((code, told), (2, [stale("db")].into()));
    // The checkout is behind its origin.
    git(&home.work(), &["reset", "-q", "--hard", &before]);
    let (code, told, report) = home.found(well(&before), &[]);
    assert_eq!((code, told), (2, [("repository".to_owned(), "stale".to_owned())].into()), "{report:#}");
    // What was not committed, or not pushed, is not what Argo CD reads.
    fs::write(home.work().join("apps/db/x.yaml"), "a: 3\n").unwrap();
    let came = home.validate(well(&before), &[]);
    assert!(came.code == 3 && came.stderr.contains("FORGE-D006") && came.asked.is_empty(), "{}", came.stderr);
    // An origin that does not answer leaves it open.
    git(&home.work(), &["checkout", "-q", "."]);
    fs::remove_dir_all(home.folder.path().join("origin.git")).unwrap();
    let (code, told, _) = home.found(well(&before), &[]);
    assert_eq!((code, told), (2, [("repository".to_owned(), "not-known".to_owned())].into()));
}

#[test]
fn a_rule_can_be_allowed_by_flag_and_by_the_repository_and_nothing_else_can() {
    let home = Home::new();
    let tagged = |head: &str| {
        let mut answers = well(head);
        let tagged = deployment("db", "registry.example.com/web:v1");
        answers.insert("/apis/apps/v1/namespaces/db/deployments/web".to_owned(), tagged);
        answers
    };
    let (code, _, report) = home.found(tagged(&home.head), &["--allow", "i001"]);
    assert_eq!(code, 0, "{report:#}");
    assert!(
        report["notes"][0].as_str().unwrap().starts_with("allowed: argocd/db: FORGE-I001 Deployment/db/web"),
        "{report:#}"
    );
    let came = home.validate(well(&home.head), &["--allow", "V002"]);
    assert!(came.code == 3 && came.stderr.contains("FORGE-C007") && came.asked.is_empty(), "{}", came.stderr);
    let manifest = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  template:\n    spec:\n      containers:\n        - name: web\n          image: registry.example.com/web:v1 # forge:allow FORGE-I001 signed by its publisher\n";
    fs::write(home.work().join("apps/db/x.yaml"), manifest).unwrap();
    git(&home.work(), &["commit", "-q", "-a", "-m", "allowed"]);
    git(&home.work(), &["push", "-q", "origin", "HEAD:main"]);
    let head = git(&home.work(), &["rev-parse", "HEAD"]);
    let (code, _, report) = home.found(tagged(&head), &[]);
    assert_eq!(code, 0, "{report:#}");
}

#[test]
fn the_report_is_a_page_and_junit_too() {
    let home = Home::new();
    let mut answers = well(&home.head);
    changed(&mut answers, "db", |app| {
        app["status"]["health"]["status"] = json!("Degraded");
        app["status"]["conditions"] = json!([{"type": "SharedResourceWarning", "message": "<script>x</script>"}]);
        app["status"]["operationState"]["phase"] = json!("Failed");
        app["status"]["operationState"]["message"] = json!("</td><script>alert('x')</script>]]>\u{1b}[2J\u{202e}");
    });
    let page = home.validate(answers.clone(), &["-o", "html"]);
    assert_eq!(page.code, 1, "{}", page.stderr);
    assert!(page.stdout.starts_with("<!DOCTYPE html>") && page.stdout.contains("<svg"), "{}", page.stdout);
    assert!(page.stdout.contains("FORGE-V002") && !page.stdout.contains("<script"), "{}", page.stdout);
    let xml = home.validate(answers, &["-o", "junit"]).stdout;
    assert!(xml.contains("tests=\"7\" failures=\"1\" errors=\"0\""), "{xml}");
    assert!(xml.contains("<testcase classname=\"dev\" name=\"argocd/network\"/>"), "{xml}");
    assert!(xml.contains("&lt;script&gt;alert") && !xml.contains("<script") && !xml.contains('\u{1b}'), "{xml}");
}

#[test]
fn a_cluster_that_does_not_answer_is_1_and_so_is_one_that_fails() {
    let home = Home::new();
    let server = serve(Answers::new());
    let mut command = home.command(&server, &[]);
    // Nobody listens there.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    fs::write(home.folder.path().join("kubeconfig"), kubeconfig(free)).unwrap();
    let output = command.output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && stderr.contains("FORGE-D001"), "{stderr}");
}

/// Asks until it is so.
fn eventually(what: &str, mut ask: impl FnMut() -> bool) {
    let started = Instant::now();
    while !ask() {
        assert!(started.elapsed() < Duration::from_secs(60), "{what}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn while_it_watches_every_change_is_a_line_and_an_interrupt_ends_it_with_the_last_verdict() {
    let home = Home::new();
    let server = serve(well(&home.head));
    let log = home.folder.path().join("stderr");
    let mut command = home.command(&server, &["--watch", "-o", "json"]);
    command.stdout(Stdio::piped()).stderr(fs::File::create(&log).unwrap());
    let child = command.spawn().unwrap();
    let said = |text: &str| fs::read_to_string(&log).unwrap().contains(text);
    eventually("the first look is told", || said("  healthy: 7 of 7 components healthy"));
    changed(&mut server.answers.lock().unwrap(), "db", |app| app["status"]["sync"]["status"] = json!("OutOfSync"));
    eventually("the drift is told", || said("  argocd/db: healthy → degraded: Argo CD sees a difference to Git"));
    // What Git holds is asked again and again.
    let pushed = home.commit("notes.md", true);
    eventually("the push is told", || said("  repository: healthy → degraded: branch `main` holds"));
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), report["verdict"].as_str()), (Some(2), Some("degraded")), "{report:#}");
    // And after a while by itself.
    let came = home.validate(well(&pushed), &["--watch", "--timeout", "8s"]);
    assert_eq!(came.code, 0, "{}{}", came.stdout, came.stderr);
    assert!(came.asked.iter().all(|(method, _)| method == "GET"), "{:?}", came.asked);
    assert_eq!(home.validate(well(&pushed), &["--timeout", "3s"]).code, 3);
}

fn interrupt(child: &Child) {
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
}

#[test]
fn while_it_watches_a_cluster_that_stops_answering_is_told_and_never_ends_as_healthy() {
    let home = Home::new();
    let server = serve(well(&home.head));
    let log = home.folder.path().join("stderr");
    let mut command = home.command(&server, &["--watch", "-o", "json"]);
    command.stdout(Stdio::piped()).stderr(fs::File::create(&log).unwrap());
    let child = command.spawn().unwrap();
    let said = |text: &str| fs::read_to_string(&log).unwrap().contains(text);
    eventually("the first look is told", || said("  healthy: 7 of 7 components healthy"));
    let before = server.answers.lock().unwrap().insert(APPLICATIONS.to_owned(), json!(500)).unwrap();
    eventually("that nothing was seen is told", || said("  not looked at: "));
    // It goes on, and sees what is there when the cluster is back.
    server.answers.lock().unwrap().insert(APPLICATIONS.to_owned(), before);
    changed(&mut server.answers.lock().unwrap(), "db", |app| app["status"]["sync"]["status"] = json!("OutOfSync"));
    eventually("it is back", || said("  argocd/db: healthy → degraded: "));
    changed(&mut server.answers.lock().unwrap(), "db", |app| app["status"]["sync"]["status"] = json!("Synced"));
    eventually("all is well again", || said("  argocd/db: degraded → healthy"));
    let told = || fs::read_to_string(&log).unwrap().matches("  not looked at: ").count();
    let earlier = told();
    server.answers.lock().unwrap().insert(APPLICATIONS.to_owned(), json!(500));
    eventually("it is gone again", || told() > earlier);
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    // What was true before is not what is true.
    let log = fs::read_to_string(&log).unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b""[..]), "{log}");
    assert!(server.asked.lock().unwrap().iter().all(|(method, _)| method == "GET"));
}

/// The same checkout with one project in place of its nodes, whose release is in a registry; gives what the plugin of Argo CD
/// says that it renders.
fn released(home: &mut Home, registry: &Registry) -> Value {
    let (folder, work) = (home.folder.path().to_owned(), home.work());
    let place = format!("{}/releases", registry.host());
    let run = |command: &mut Command| {
        command.env_clear().env("HOME", &folder).env("PATH", std::env::var_os("PATH").unwrap()).stdin(Stdio::null());
        let output = command.env("FORGE_CMP_CACHE", folder.join("cache")).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    fs::create_dir(folder.join("source")).unwrap();
    let image = format!("registry.example.com/web@{DIGEST}");
    let web = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"template": {"spec": {"containers": [{"name": "web", "image": image}]}}},
    });
    fs::write(folder.join("source/web.yaml"), web.to_string()).unwrap();
    let mut build = Command::new(env!("CARGO_BIN_EXE_forge"));
    build.args(["release", "build", "source", "--project", "shop/api", "--commit", RELEASE, "--push", &place]);
    let built = run(build.current_dir(&folder));
    let digest = built.trim().rsplit('@').next().unwrap();
    let header = "apiVersion: forge.projectcatalyst.io/v1alpha1\n";
    let installation = fs::read_to_string(work.join("forge.yaml")).unwrap();
    fs::write(work.join("forge.yaml"), installation.replace("spec:\n", &format!("spec:\n  registry: {place}\n")))
        .unwrap();
    let graph = "kind: DependencyGraph\nspec:\n  stacks: [{name: base, apps: [{project: shop/api}]}]\n";
    fs::write(work.join("graph.yaml"), format!("{header}{graph}")).unwrap();
    let project = work.join("dev/apps/shop/api");
    fs::create_dir_all(&project).unwrap();
    let pointer = format!(
        "# Why.\n{header}kind: ReleasePointer\nmetadata: {{name: api}}\nspec:\n  release: \"{RELEASE}\"\n  digest: {digest}\n"
    );
    fs::write(project.join("release.yaml"), pointer).unwrap();
    let config = "apiVersion: apiextensions.crossplane.io/v1beta1\nkind: EnvironmentConfig\nmetadata: {name: shop-api}\ndata: {size: small}\n";
    fs::write(project.join("env.yaml"), config).unwrap();
    git(&work, &["add", "."]);
    git(&work, &["commit", "-q", "-m", "release"]);
    git(&work, &["push", "-q", "origin", "HEAD:main"]);
    home.head = git(&work, &["rev-parse", "HEAD"]);
    symlink(env!("CARGO_BIN_EXE_forge"), folder.join("catalyst-forge-cmp")).unwrap();
    let rendered = run(Command::new(folder.join("catalyst-forge-cmp")).arg("generate").current_dir(&project));
    let documents: Vec<Value> =
        read(&rendered, Dialect::Kubernetes, Limits::FILE).documents.iter().map(Node::to_json).collect();
    documents.into_iter().find(|document| document["metadata"]["name"] == "forge-receipt").unwrap()
}

const RELEASE: &str = "77ab00b1c6d8e9f03f2a9c1d5e7b80416a2c9d3e";
const RECEIPT: &str = "/api/v1/namespaces/shop-api/configmaps/forge-receipt";

/// A cluster in which the project is as its release says.
fn deployed(head: &str, receipt: &Value) -> Answers {
    let mut application = application("dev-shop-api", head);
    application["spec"]["source"]["path"] = json!("dev/apps/shop/api");
    application["spec"]["destination"]["namespace"] = json!("shop-api");
    application["status"]["resources"] = json!([
        {"group": "apps", "version": "v1", "kind": "Deployment", "namespace": "shop-api", "name": "web", "status": "Synced"},
        {"version": "v1", "kind": "ConfigMap", "namespace": "shop-api", "name": "forge-receipt", "status": "Synced"},
    ]);
    let mut answers = well(head);
    let image = format!("registry.example.com/web@{DIGEST}");
    let more = [
        (APPLICATIONS, list(&[application])),
        ("/apis/apps/v1/namespaces/shop-api/deployments/web", deployment("shop-api", &image)),
        ("/api/v1/namespaces/shop-api/pods", list(&[pod("shop-api", DIGEST)])),
        (RECEIPT, receipt.clone()),
    ];
    answers.extend(more.map(|(path, answer)| (path.to_owned(), answer)));
    answers
}

#[test]
fn a_project_is_proven_by_the_digests_of_its_release_and_what_else_is_there_is_told() {
    let registry = Registry::start().unwrap();
    let mut home = Home::new();
    let receipt = released(&mut home, &registry);
    let (code, found, report) = home.found(deployed(&home.head, &receipt), &[]);
    assert_eq!((code, found.len()), (0, 0), "{report:#}");
    let nodes = report["components"].as_array().unwrap();
    let node = nodes.iter().find(|node| node["component"] == "shop/api").unwrap();
    assert_eq!(node["detail"], "proven by the digests of its release; 1 container runs", "{node:#}");
    let told = |change: &dyn Fn(&mut Answers), code: i32, kind: &str, words: &str| {
        let mut answers = deployed(&home.head, &receipt);
        change(&mut answers);
        let (exit, found, report) = home.found(answers, &[]);
        assert_eq!((exit, found), (code, [("shop/api".to_owned(), kind.to_owned())].into()), "{report:#}");
        assert!(report["failures"].to_string().contains(words), "{words}: {report:#}");
    };
    for (field, words) in [
        ("release", "fedcba987654 was rendered instead of"),
        ("pointer", "was rendered by another pointer"),
        ("output", "was rendered to something else"),
    ] {
        let change = |answers: &mut Answers| answers.get_mut(RECEIPT).unwrap()["data"][field] = json!(OTHER);
        told(&change, 1, "wrong-digest", words);
    }
    let none = |answers: &mut Answers| {
        changed(answers, "dev-shop-api", |application| {
            application["status"]["resources"].as_array_mut().unwrap().pop();
        });
    };
    told(&none, 1, "wrong-digest", "there is no `forge-receipt`");
    let old = |answers: &mut Answers| {
        answers.insert("/api/v1/namespaces/shop-api/pods".to_owned(), list(&[pod("shop-api", OTHER)]));
    };
    told(&old, 1, "wrong-digest", "runs fedcba987654 instead of 0123456789ab");
    let forbidden = |answers: &mut Answers| drop(answers.insert(RECEIPT.to_owned(), Value::Null));
    told(&forbidden, 2, "not-known", "forge-receipt");
    // What a release must come to is not known without its registry, and then nothing is healthy.
    let digest = receipt["data"]["release"].as_str().unwrap().parse().unwrap();
    registry.lose("releases/shop/api", &digest);
    told(&|_| {}, 2, "not-known", "what its release must come to");
}

#[test]
fn the_same_cluster_gives_the_same_report_byte_for_byte() {
    let home = Home::new();
    let mut answers = well(&home.head);
    changed(&mut answers, "db", |app| app["status"]["health"]["status"] = json!("Degraded"));
    answers.insert("/api/v1/namespaces/api/pods".to_owned(), Value::Null);
    for name in ["left-over", "another"] {
        let extra = application(name, "1");
        answers.get_mut(APPLICATIONS).unwrap()["items"].as_array_mut().unwrap().push(extra);
    }
    let look = |answers: Answers| {
        let (_, _, mut report) = home.found(answers, &[]);
        // When it was looked at is all that may differ.
        for field in ["started", "ended"] {
            report.as_object_mut().unwrap().remove(field);
        }
        report["statistics"].as_object_mut().unwrap().remove("seconds");
        report.to_string()
    };
    let first = look(answers.clone());
    answers.get_mut(APPLICATIONS).unwrap()["items"].as_array_mut().unwrap().reverse();
    assert_eq!(look(answers), first);
}

/// `executor validate` for this repository and this server.
fn executor(home: &Home, server: &Server, arguments: &[&str]) -> Command {
    let program = home.folder.path().join("executor");
    if !program.exists() {
        symlink(env!("CARGO_BIN_EXE_forge"), &program).unwrap();
    }
    let data = base64::engine::general_purpose::STANDARD.encode(kubeconfig(server.port));
    let mut command = Command::new(program);
    command.arg("validate").args(["--metrics-listen", "127.0.0.1:0", "--secrets", "nowhere"]).args(arguments);
    command.current_dir(home.folder.path()).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    command.env("TMPDIR", home.folder.path()).env("KUBECONFIG_DATA", data).env("ENVIRONMENT", "dev");
    command.env("DOMAIN", "dev.example.com").env("GIT_REVISION", "main").env("LOG_FORMAT", "json");
    command.env("GIT_REPOSITORY", format!("file://{}", home.folder.path().join("origin.git").display()));
    command
}

#[test]
fn the_executor_says_the_same_with_report_logs_and_files_and_writes_nothing() {
    let home = Home::new();
    let server = serve(well(&home.head));
    let output =
        executor(&home, &server, &["-o", "json", "--report-html", "page.html", "--report-junit", "r.xml"]).output();
    let output = output.unwrap();
    let logs = String::from_utf8(output.stderr).unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {logs}"));
    assert_eq!((output.status.code(), report["verdict"].as_str()), (Some(0), Some("healthy")), "{report:#}\n{logs}");
    assert_eq!(report["commit"], home.head.as_str());
    let kept = |name: &str| fs::read_to_string(home.folder.path().join(name)).unwrap();
    assert!(kept("page.html").contains("<svg") && kept("r.xml").contains("failures=\"0\""));
    assert!(server.asked.lock().unwrap().iter().all(|(method, _)| method == "GET"));
    // What is wrong is a line of the log, with its component.
    changed(&mut server.answers.lock().unwrap(), "db", |app| app["status"]["health"]["status"] = json!("Degraded"));
    let output = executor(&home, &server, &["-o", "json"]).output().unwrap();
    let logs = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{logs}");
    let lines: Vec<Value> = logs.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told = lines.iter().find(|line| line["component"] == "argocd/db").unwrap();
    assert_eq!(
        (&told["level"], &told["phase"], &told["action"]),
        (&json!("error"), &json!("validation"), &json!("validate"))
    );
    assert!(
        told["message"]
            .as_str()
            .unwrap()
            .starts_with("FORGE-V002 unhealthy, unhealthy: health stayed Degraded; next: ")
    );
    // Where nothing can be looked at, there is a report that says why.
    let nobody = Server { port: 1, answers: Arc::default(), asked: Arc::default() };
    let output = executor(&home, &nobody, &["-o", "json"]).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), report["verdict"].as_str()), (Some(1), Some("failed")), "{report:#}");
    assert!(report["message"].as_str().unwrap().starts_with("FORGE-D001"), "{report:#}");
}

#[test]
fn the_executor_reads_releases_of_a_private_registry_with_what_is_mounted_or_named() {
    let registry = Registry::start().unwrap();
    let mut home = Home::new();
    let receipt = released(&mut home, &registry);
    let (username, password) = ("forge".to_owned(), "s3cret-of-the-registry".to_owned());
    let config = json!({"auths": {registry.host(): {"username": username, "password": password}}}).to_string();
    registry.require(Access::Basic { username, password });
    let server = serve(deployed(&home.head, &receipt));
    let ended = |arguments: &[&str]| {
        let output = executor(&home, &server, &[&["-o", "json"], arguments].concat()).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        assert!(!said.contains("s3cret"), "{said}");
        (output.status.code(), said)
    };
    let (code, said) = ended(&[]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("what its release must come to"), "{said}");
    fs::write(home.folder.path().join("config.json"), &config).unwrap();
    let (code, said) = ended(&["--registry-config", "config.json"]);
    assert_eq!(code, Some(0), "{said}");
    let by_people = |arguments: &[&str]| home.found(deployed(&home.head, &receipt), arguments).0;
    assert_eq!((by_people(&[]), by_people(&["--registry-config", "../config.json"])), (2, 0));
    // As Secret `forge-registry` is mounted.
    let secret = home.folder.path().join("nowhere/registry");
    fs::create_dir_all(&secret).unwrap();
    fs::write(secret.join(".dockerconfigjson"), &config).unwrap();
    let (code, said) = ended(&[]);
    assert_eq!(code, Some(0), "{said}");
}
