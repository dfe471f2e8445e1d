//! `platform teardown` through the real binary, against an API server of our own: what is refused before anything is written, and
//! what nothing comes to. On the real Argo: `tests/runs/teardown.rs`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use forge_testkit::sandbox::eventually;
use serde_json::{Value, json};

const FORGE: &str = "apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: Forge\nspec:\n  repository: {url: https://git.example.com/p.git}\n  argo: {cd: existing, workflows: existing, events: none}\n  environments: [{name: dev, cluster: in-cluster, sync: manual}, {name: qa, cluster: other, sync: manual}]\n";
const GRAPH: &str = "apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: DependencyGraph\nspec:\n  stacks: [{name: base, apps: [{application: argocd/db}, {application: argocd/api, dependsOn: [argocd/db]}]}]\n";
const APPLICATIONS: &str = "/apis/argoproj.io/v1alpha1/namespaces/argocd/applications";
const SETS: &str = "/apis/argoproj.io/v1alpha1/namespaces/argocd/applicationsets";

/// Objects by path. A collection is what is in it; everything else is not found.
#[derive(Default)]
struct Fake {
    objects: BTreeMap<String, Value>,
    /// What was asked, in order.
    asked: Vec<String>,
    /// What was asked that is no question, in order.
    writes: Vec<String>,
    /// How often this collection comes back empty although something is in it.
    empty: Option<(String, usize)>,
    /// How often this collection comes back with what is in it: then that went by itself.
    leaves: Option<(String, usize)>,
    /// This collection ends too soon, and says itself that there is more.
    short: Option<String>,
    /// This collection may not be listed.
    forbidden: Option<String>,
    /// This collection is never answered.
    held: Option<String>,
}

impl Fake {
    fn with(objects: &[(&str, Value)]) -> Self {
        let objects = objects.iter().map(|(path, object)| ((*path).to_owned(), object.clone())).collect();
        Self { objects, ..Self::default() }
    }

    fn answer(&mut self, method: &str, path: &str) -> (u16, Value) {
        let missing = || (404, json!({"kind": "Status", "code": 404, "message": format!("no {path}"), "reason": "x"}));
        // A question that Kubernetes wants as a POST, and that stores nothing.
        let is_question = path.starts_with("/apis/authorization.k8s.io/v1/selfsubject");
        if method != "GET" && !is_question {
            self.writes.push(format!("{method} {path}"));
            return (405, json!({"kind": "Status", "code": 405, "message": "only questions are answered"}));
        }
        self.asked.push(path.to_owned());
        if let Some(object) = self.objects.get(path) {
            return (200, object.clone());
        }
        // The last part of a collection is a plural, of an object a name.
        let collections = [
            "applications",
            "applicationsets",
            "configmaps",
            "namespaces",
            "jobs",
            "secrets",
            "persistentvolumes",
            "persistentvolumeclaims",
        ];
        let last = path.rsplit('/').next().unwrap_or_default();
        if !collections.contains(&last) {
            return missing();
        }
        if let Some((which, times)) = &mut self.empty
            && which == path
            && *times > 0
        {
            *times -= 1;
            return (200, json!({"items": []}));
        }
        if let Some((which, times)) = &mut self.leaves
            && which == path
        {
            if *times == 0 {
                return (200, json!({"items": []}));
            }
            *times -= 1;
        }
        if self.short.as_deref() == Some(path) {
            return (200, json!({"metadata": {"resourceVersion": "1", "remainingItemCount": 2}, "items": []}));
        }
        if self.forbidden.as_deref() == Some(path) {
            return (
                403,
                json!({"kind": "Status", "code": 403, "message": format!("{path} is forbidden"), "reason": "Forbidden"}),
            );
        }
        let inside = |(at, _): &(&String, &Value)| at.rsplit_once('/').is_some_and(|(parent, _)| parent == path);
        let items: Vec<Value> = self.objects.iter().filter(inside).map(|(_, object)| object.clone()).collect();
        (200, json!({"items": items}))
    }
}

fn serve(fake: Fake) -> (u16, Arc<Mutex<Fake>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let fake = Arc::new(Mutex::new(fake));
    let shared = Arc::clone(&fake);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let fake = Arc::clone(&shared);
            std::thread::spawn(move || answer(&stream, &fake));
        }
    });
    (port, fake)
}

fn answer(stream: &TcpStream, fake: &Mutex<Fake>) {
    let mut reader = BufReader::new(stream);
    let (mut request, mut length) = (String::new(), 0);
    if reader.read_line(&mut request).unwrap_or(0) == 0 {
        return;
    }
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 || line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut content = vec![0; length];
    reader.read_exact(&mut content).unwrap();
    let mut words = request.split(' ');
    let (method, path) = (words.next().unwrap(), words.next().unwrap().split('?').next().unwrap());
    let is_held = {
        let mut fake = fake.lock().unwrap();
        let is_held = fake.held.as_deref() == Some(path);
        if is_held {
            fake.asked.push(path.to_owned());
        }
        is_held
    };
    if is_held {
        // The connection stays open as long as the test lasts.
        loop {
            std::thread::park();
        }
    }
    let (code, body) = fake.lock().unwrap().answer(method, path);
    let (body, mut stream) = (body.to_string(), stream);
    let _ = write!(
        stream,
        "HTTP/1.1 {code} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
}

fn repository() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("forge.yaml"), FORGE).unwrap();
    fs::write(folder.path().join("graph.yaml"), GRAPH).unwrap();
    folder
}

/// `platform teardown` of `dev` on this cluster.
fn teardown(folder: &Path, port: u16, arguments: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["120", env!("CARGO_BIN_EXE_forge")]);
    of_dev(command, folder, port, arguments).output().unwrap()
}

/// The arguments and the environment of it.
fn of_dev(mut command: Command, folder: &Path, port: u16, arguments: &[&str]) -> Command {
    let kubeconfig = folder.join("kubeconfig");
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": format!("http://127.0.0.1:{port}")}}],
        "users": [{"name": "test", "user": {}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    });
    fs::write(&kubeconfig, text.to_string()).unwrap();
    command.arg("-C").arg(folder).args(["platform", "teardown", "-e", "dev"]);
    command.args(arguments).env("FORGE_KUBECONFIG_PATH", kubeconfig).env("NO_COLOR", "1");
    command.env_remove("FORGE_CONFIRM");
    command
}

fn told(output: &Output, code: i32) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{out}\n{err}");
    (out, err)
}

fn application(name: &str, more: &Value) -> (String, Value) {
    let mut metadata = json!({"name": name, "namespace": "argocd", "uid": name, "resourceVersion": "1"});
    for (key, value) in more.as_object().unwrap() {
        metadata[key] = value.clone();
    }
    let spec =
        json!({"project": "dev", "destination": {"server": "https://kubernetes.default.svc", "namespace": name}});
    (format!("{APPLICATIONS}/{name}"), json!({"metadata": metadata, "spec": spec}))
}

fn fake(objects: &[(String, Value)]) -> Fake {
    let objects: Vec<(&str, Value)> = objects.iter().map(|(path, object)| (path.as_str(), object.clone())).collect();
    Fake::with(&objects)
}

#[test]
fn without_the_name_of_the_environment_nothing_is_even_asked() {
    let folder = repository();
    let (port, fake) = serve(Fake::default());
    let (out, err) = told(&teardown(folder.path(), port, &[]), 3);
    assert!(out.is_empty() && err.starts_with("error[FORGE-U004]: the teardown of `dev` is not confirmed"), "{err}");
    let (_, err) = told(&teardown(folder.path(), port, &["--confirm", "qa"]), 3);
    assert!(err.contains("`qa` is confirmed, and `dev` is to be torn down"), "{err}");
    let (_, err) = told(&teardown(folder.path(), port, &["--confirm", "dev", "--release-finalizer", "x"]), 3);
    assert!(err.contains("names no object"), "{err}");
    assert_eq!(fake.lock().unwrap().writes, Vec::<String>::new());
}

#[test]
fn of_nothing_it_is_clean_and_writes_nothing() {
    let folder = repository();
    let (port, fake) = serve(Fake::default());
    let (out, err) = told(&teardown(folder.path(), port, &["--confirm", "dev", "-o", "json"]), 0);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&report["action"], &report["verdict"]), (&json!("teardown"), &json!("done")), "{report}\n{err}");
    assert!(report["message"].as_str().unwrap().starts_with("nothing was there to remove"), "{report}");
    assert_eq!(fake.lock().unwrap().writes, Vec::<String>::new());
}

#[test]
fn a_scope_that_something_outside_depends_on_is_refused_with_the_list() {
    let folder = repository();
    let none = json!({});
    let (port, fake) = serve(fake(&[application("db", &none), application("api", &none)]));
    let (_, err) = told(&teardown(folder.path(), port, &["--confirm", "dev", "--scope", "app:argocd/db"]), 6);
    assert!(err.contains("error[FORGE-U001]: `argocd/api` depend on app:argocd/db and exist"), "{err}");
    assert_eq!(fake.lock().unwrap().writes, Vec::<String>::new());
}

#[test]
fn what_somebody_else_would_make_again_is_refused() {
    let folder = repository();
    let owner = json!({"ownerReferences": [{"kind": "ApplicationSet", "name": "somebodys", "uid": "s"}]});
    let set =
        (format!("{SETS}/somebodys"), json!({"metadata": {"name": "somebodys", "namespace": "argocd", "uid": "s"}}));
    let (port, fake) = serve(fake(&[application("db", &json!({})), application("api", &owner), set]));
    let (_, err) = told(&teardown(folder.path(), port, &["--confirm", "dev"]), 6);
    assert!(err.contains("error[FORGE-U002]: would be made again: `argocd/api` by ApplicationSet somebodys"), "{err}");
    assert_eq!(fake.lock().unwrap().writes, Vec::<String>::new());
}

#[test]
fn a_list_that_lacks_what_is_there_is_not_believed() {
    let folder = repository();
    let mut fake = fake(&[application("db", &json!({}))]);
    fake.empty = Some((APPLICATIONS.to_owned(), 50));
    let (port, fake) = serve(fake);
    let (_, err) = told(&teardown(folder.path(), port, &["--confirm", "dev"]), 1);
    assert!(err.contains("the list of Applications lacks `db`, which is there: it is not believed"), "{err}");
    assert_eq!(fake.lock().unwrap().writes, Vec::<String>::new());
}

#[test]
fn a_page_that_ends_too_soon_or_may_not_be_read_stops_it_before_anything_is_written() {
    let folder = repository();
    let mut short = fake(&[application("db", &json!({}))]);
    short.short = Some(APPLICATIONS.to_owned());
    let (port, short) = serve(short);
    let (_, err) = told(&teardown(folder.path(), port, &["--confirm", "dev"]), 1);
    assert!(err.contains("2 more objects are said to follow"), "{err}");
    assert_eq!(short.lock().unwrap().writes, Vec::<String>::new());
    let mut forbidden = fake(&[application("db", &json!({}))]);
    forbidden.forbidden = Some(APPLICATIONS.to_owned());
    let (port, forbidden) = serve(forbidden);
    let (_, err) = told(&teardown(folder.path(), port, &["--confirm", "dev"]), 6);
    assert!(err.contains("error[FORGE-D002]"), "{err}");
    assert_eq!(forbidden.lock().unwrap().writes, Vec::<String>::new());
}

#[test]
fn what_only_has_a_name_of_the_environment_is_somebody_elses_and_stays() {
    let folder = repository();
    let theirs = "https://git.example.com/theirs.git";
    let directories = json!([{"path": "dev/apps/*/*"}]);
    let generators = json!([{"git": {"repoURL": theirs, "directories": directories}}]);
    let metadata = json!({"name": "dev-apps", "namespace": "argocd", "uid": "s", "resourceVersion": "1"});
    let set = (format!("{SETS}/dev-apps"), json!({"metadata": metadata, "spec": {"generators": generators}}));
    let owner = json!({"ownerReferences": [{"kind": "ApplicationSet", "name": "dev-apps", "uid": "s"}]});
    let (path, mut bootstrap) = application("dev-bootstrap", &json!({}));
    bootstrap["spec"]["source"] = json!({"repoURL": theirs, "path": "dev"});
    let (port, fake) = serve(fake(&[set, application("dev-theirs", &owner), (path, bootstrap)]));
    let (out, err) = told(&teardown(folder.path(), port, &["--confirm", "dev", "-o", "json"]), 0);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert!(report["message"].as_str().unwrap().starts_with("nothing was there to remove"), "{report}\n{err}");
    assert_eq!(fake.lock().unwrap().writes, Vec::<String>::new());
}

#[test]
fn volumes_of_namespaces_that_no_node_is_left_in_are_secured_before_anything_goes() {
    let folder = repository();
    let labels = json!({"app.kubernetes.io/managed-by": "forge", "forge.projectcatalyst.io/environment": "dev"});
    let namespace = json!({"metadata": {"name": "shop", "uid": "n", "resourceVersion": "1", "labels": labels}});
    let volume = json!({
        "metadata": {"name": "pv-1", "uid": "v", "resourceVersion": "1"},
        "spec": {"persistentVolumeReclaimPolicy": "Delete", "claimRef": {"namespace": "shop", "name": "data"}},
        "status": {"phase": "Bound"},
    });
    let (port, fake) = serve(fake(&[
        ("/api/v1/namespaces/shop".to_owned(), namespace),
        ("/api/v1/persistentvolumes/pv-1".to_owned(), volume),
    ]));
    let ended = teardown(folder.path(), port, &["--confirm", "dev"]);
    // The fake writes nothing, so that it ends there: the volume came first, and the namespace is still there.
    assert_ne!(ended.status.code(), Some(0));
    assert_eq!(fake.lock().unwrap().writes, ["PATCH /api/v1/persistentvolumes/pv-1"]);
}

#[test]
fn an_interrupt_after_the_nodes_is_heard_at_once_and_nothing_more_is_written() {
    const CLAIMS: &str = "/api/v1/namespaces/shop/persistentvolumeclaims";
    let folder = repository();
    let labels = json!({"app.kubernetes.io/managed-by": "forge", "forge.projectcatalyst.io/environment": "dev"});
    let namespace = json!({"metadata": {"name": "shop", "uid": "n", "resourceVersion": "1", "labels": labels}});
    let mut fake = fake(&[("/api/v1/namespaces/shop".to_owned(), namespace)]);
    fake.held = Some(CLAIMS.to_owned());
    let (port, fake) = serve(fake);
    let command = Command::new(env!("CARGO_BIN_EXE_forge"));
    let mut command = of_dev(command, folder.path(), port, &["--confirm", "dev", "-o", "json"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    // No node is there: this is asked by what comes after them.
    eventually("claims are asked for", Duration::from_secs(60), || {
        let asked = fake.lock().unwrap().asked.clone();
        if asked.iter().any(|path| path == CLAIMS) { Ok(()) } else { Err(format!("{asked:?}")) }
    });
    let told = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(told.success());
    let ended = eventually("it stops", Duration::from_secs(60), || child.try_wait().unwrap().ok_or_else(String::new));
    assert_eq!(ended.code(), Some(2));
    assert_eq!(fake.lock().unwrap().writes, Vec::<String>::new());
    // What went until then is told all the same.
    let mut out = String::new();
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&report["verdict"], &report["exit"]), (&json!("cancelled"), &json!(2)), "{report}");
    assert!(report["removal"].is_object() && report["message"].as_str().unwrap().contains("told to stop"), "{report}");
}

#[test]
fn when_the_time_is_over_what_hangs_is_given_up_and_what_was_done_is_reported() {
    let folder = repository();
    let labels = json!({"app.kubernetes.io/managed-by": "forge", "forge.projectcatalyst.io/environment": "dev"});
    let namespace = json!({"metadata": {"name": "shop", "uid": "n", "resourceVersion": "1", "labels": labels}});
    let mut fake = fake(&[("/api/v1/namespaces/shop".to_owned(), namespace)]);
    fake.held = Some("/api/v1/namespaces/shop/persistentvolumeclaims".to_owned());
    let (port, fake) = serve(fake);
    let begin = Instant::now();
    let (out, _) = told(&teardown(folder.path(), port, &["--confirm", "dev", "--timeout", "3s", "-o", "json"]), 4);
    // Its time, and the grace in which it says what is left.
    assert!(begin.elapsed() < Duration::from_secs(3 + 60), "{:?}", begin.elapsed());
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&report["verdict"], &report["exit"]), (&json!("timed out"), &json!(4)), "{report}");
    assert!(report["removal"].is_object(), "{report}");
    assert_eq!(fake.lock().unwrap().writes, Vec::<String>::new());
}

/// Tears down against this until a namespace with these things inside was kept or deleted: what comes after namespaces was asked
/// for, or something was written. That the end is looked at for a while is of no interest here.
fn looked_into(fake: Fake, inside: &str) -> Arc<Mutex<Fake>> {
    let folder = repository();
    let (port, fake) = serve(fake);
    let command = Command::new(env!("CARGO_BIN_EXE_forge"));
    let mut command = of_dev(command, folder.path(), port, &["--confirm", "dev"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    eventually("the namespace was looked into", Duration::from_secs(60), || {
        let fake = fake.lock().unwrap();
        let after = fake.asked.iter().skip_while(|path| *path != inside);
        let over = !fake.writes.is_empty() || after.clone().any(|path| path.contains("/appprojects/"));
        if over { Ok(()) } else { Err(format!("{:?}", fake.asked)) }
    });
    child.kill().unwrap();
    child.wait().unwrap();
    fake
}

#[test]
fn what_is_in_a_namespace_is_not_taken_for_nothing_because_one_list_came_back_empty() {
    const INSIDE: &str = "/api/v1/namespaces/shop/configmaps";
    let labels = json!({"app.kubernetes.io/managed-by": "forge", "forge.projectcatalyst.io/environment": "dev"});
    let namespace = json!({"metadata": {"name": "shop", "uid": "n", "resourceVersion": "1", "labels": labels}});
    let theirs = json!({"metadata": {"name": "theirs", "namespace": "shop", "uid": "c", "resourceVersion": "1"}});
    let verbs = json!(["get", "list", "delete"]);
    let kinds = json!([{"name": "configmaps", "kind": "ConfigMap", "namespaced": true, "verbs": verbs}]);
    let mut fake = fake(&[
        ("/apis".to_owned(), json!({"kind": "APIGroupList", "groups": []})),
        ("/api/v1".to_owned(), json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": kinds})),
        ("/api/v1/namespaces/shop".to_owned(), namespace),
        (format!("{INSIDE}/theirs"), theirs),
        another(),
    ]);
    fake.empty = Some((INSIDE.to_owned(), 1));
    let fake = looked_into(fake, INSIDE);
    let fake = fake.lock().unwrap();
    assert_eq!(fake.writes, Vec::<String>::new());
    assert!(fake.asked.iter().filter(|path| *path == INSIDE).count() > 1, "{:?}", fake.asked);
}

#[test]
fn what_goes_with_an_owner_that_is_gone_already_does_not_keep_its_namespace() {
    const INSIDE: &str = "/api/v1/namespaces/shop/configmaps";
    let labels = json!({"app.kubernetes.io/managed-by": "forge", "forge.projectcatalyst.io/environment": "dev"});
    let namespace = json!({"metadata": {"name": "shop", "uid": "n", "resourceVersion": "1", "labels": labels}});
    let mut metadata = json!({"name": "owned", "namespace": "shop", "uid": "c", "resourceVersion": "1"});
    metadata["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Node", "name": "gone", "uid": "o"}]);
    let verbs = json!(["get", "list", "delete"]);
    let kinds = json!([
        {"name": "configmaps", "kind": "ConfigMap", "namespaced": true, "verbs": verbs},
        {"name": "nodes", "kind": "Node", "namespaced": false, "verbs": verbs},
    ]);
    let mut fake = fake(&[
        ("/apis".to_owned(), json!({"kind": "APIGroupList", "groups": []})),
        ("/api/v1".to_owned(), json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": kinds})),
        ("/api/v1/namespaces/shop".to_owned(), namespace),
        (format!("{INSIDE}/owned"), json!({ "metadata": metadata })),
        another(),
    ]);
    // A look into a namespace lists twice.
    fake.leaves = Some((INSIDE.to_owned(), 2));
    let fake = looked_into(fake, INSIDE);
    let fake = fake.lock().unwrap();
    assert_eq!(fake.writes.first().map(String::as_str), Some("DELETE /api/v1/namespaces/shop"), "{:?}", fake.asked);
    assert!(fake.asked.iter().filter(|path| *path == INSIDE).count() > 2, "{:?}", fake.asked);
}

#[test]
fn a_token_that_a_killed_teardown_left_is_taken_back_though_no_node_is_left() {
    let folder = repository();
    let labels = json!({"app.kubernetes.io/managed-by": "forge", "forge.projectcatalyst.io/environment": "dev"});
    let token = json!({"metadata": {"name": "forge-teardown-dev", "namespace": "argo", "labels": labels}});
    let (port, fake) =
        serve(fake(&[another(), ("/api/v1/namespaces/argo/secrets/forge-teardown-dev".to_owned(), token)]));
    let _ = teardown(folder.path(), port, &["--confirm", "dev"]);
    assert_eq!(fake.lock().unwrap().writes, ["DELETE /api/v1/namespaces/argo/secrets/forge-teardown-dev"]);
}

/// The receipt of another environment: what all share stays.
fn another() -> (String, Value) {
    let metadata = json!({"name": "forge-bootstrap-other", "namespace": "elsewhere"});
    ("/api/v1/configmaps/forge-bootstrap-other".to_owned(), json!({"metadata": metadata}))
}

/// What says that runs can take place.
fn prepared() -> (String, Value) {
    let annotations = json!({"forge.projectcatalyst.io/image": "registry.example.com/forge@sha256:0"});
    let plugin = json!({"metadata": {"name": "forge-executor-plugin", "annotations": annotations}});
    ("/api/v1/namespaces/argo/configmaps/forge-executor-plugin".to_owned(), plugin)
}

#[test]
fn without_its_project_or_its_cluster_argo_cd_could_not_remove_an_application_and_nothing_is_written() {
    let folder = repository();
    let (port, fake_one) = serve(fake(&[another(), prepared(), application("db", &json!({}))]));
    let (_, err) = told(&teardown(folder.path(), port, &["--confirm", "dev"]), 6);
    assert!(err.contains("error[FORGE-U007]") && err.contains("AppProject dev of `db`"), "{err}");
    assert_eq!(fake_one.lock().unwrap().writes, Vec::<String>::new());

    let project = "/apis/argoproj.io/v1alpha1/namespaces/argocd/appprojects/dev".to_owned();
    let (path, mut db) = application("db", &json!({}));
    db["spec"]["destination"] = json!({"name": "east", "namespace": "db"});
    let objects = [another(), prepared(), (project, json!({"metadata": {"name": "dev"}})), (path, db)];
    let (port, fake) = serve(fake(&objects));
    let (_, err) = told(&teardown(folder.path(), port, &["--confirm", "dev"]), 6);
    assert!(err.contains("error[FORGE-U007]") && err.contains("the Secret of cluster east of `db`"), "{err}");
    assert_eq!(fake.lock().unwrap().writes, Vec::<String>::new());
}

#[test]
fn applications_on_a_cluster_that_no_run_could_remove_them_from_are_told_and_stay() {
    let folder = repository();
    let (port, fake) = serve(fake(&[application("db", &json!({}))]));
    let (_, err) = told(&teardown(folder.path(), port, &["--confirm", "dev"]), 3);
    assert!(err.contains("error[FORGE-D003]") && err.contains("is not prepared for runs"), "{err}");
    assert_eq!(fake.lock().unwrap().writes, Vec::<String>::new());
}

#[test]
fn what_is_to_be_looked_at_only_needs_no_confirmation() {
    let folder = repository();
    let (port, fake) = serve(Fake::default());
    let (out, _) = told(&teardown(folder.path(), port, &["--dry-run"]), 0);
    assert!(out.starts_with("no node is there to remove\n"), "{out}");
    assert_eq!(fake.lock().unwrap().writes, Vec::<String>::new());
}
