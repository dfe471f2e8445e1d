//! `status`, `why` and `history` through the real binary, against an API server that only answers GET: a kubeconfig that may
//! read is enough. The repository, where there is one, has `application:` nodes only.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use base64::Engine as _;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// Answers by path; what is not known is not found, and what is `null` is forbidden.
type Answers = BTreeMap<String, Value>;

fn serve(answers: Answers) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answers = Arc::new(answers);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answers = Arc::clone(&answers);
            std::thread::spawn(move || answer(&stream, &answers));
        }
    });
    port
}

fn answer(stream: &TcpStream, answers: &Answers) {
    let mut lines = BufReader::new(stream).lines();
    let request = lines.next().unwrap().unwrap();
    while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
    let mut words = request.split(' ');
    let (method, path) = (words.next().unwrap(), words.next().unwrap().split('?').next().unwrap());
    let status = |code: u16| json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": format!("no {path}"), "reason": "x"});
    let (code, body) = match answers.get(path) {
        _ if method != "GET" => (405, status(405)),
        Some(Value::Null) => (403, status(403)),
        Some(body) => (200, body.clone()),
        None => (404, status(404)),
    };
    let body = body.to_string();
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

const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn config_map(name: &str, data: &Value) -> Value {
    json!({
        "metadata": {
            "name": name,
            "labels": {
                "app.kubernetes.io/managed-by": "forge",
                "forge.projectcatalyst.io/environment": "dev",
                "forge.projectcatalyst.io/run": "dev-1",
            },
            "annotations": {"forge.projectcatalyst.io/pieces": "1"},
        },
        "data": data,
    })
}

fn task(id: &str, before: &[usize]) -> Value {
    json!({"id": id, "before": before, "node": {
        "id": id, "application": id, "content": {"type": "revisions", "revisions": ["1"]},
        "timeouts": {"sync": "5m", "health": "5m"},
        "retry": {"limit": 1, "backoff": "5s", "factor": 2, "max": "1m"},
    }})
}

fn proven(node: &str) -> Value {
    json!({
        "type": "proven", "run": "dev-1", "node": node, "application": node, "attempt": 1,
        "synced": true, "proof": "revision", "commit": null, "revisions": ["1"], "render": null, "workloads": {},
        "images": {}, "notRunning": [], "sidecars": {}, "objects": [], "health": "Healthy",
    })
}

/// The ConfigMaps of a run: its nodes one after the other, each with the last answer about it.
fn run(scope: &str, verdict: &str, nodes: &[(&str, Value)]) -> Value {
    let common = |mut value: Value| {
        for (key, known) in
            [("run", "dev-1"), ("environment", "dev"), ("scope", scope), ("plan", DIGEST), ("runner", "plugin")]
        {
            value[key] = json!(known);
        }
        value
    };
    let before = |place: usize| place.checked_sub(1).into_iter().collect::<Vec<_>>();
    let tasks: Vec<Value> = nodes.iter().enumerate().map(|(n, (node, _))| task(node, &before(n))).collect();
    let plan = common(json!({"timeout": "1h", "tasks": tasks}));
    let header = common(json!({
        "nodes": nodes.len(), "started": ago(300), "deadline": ago(-3300),
        "ended": {"at": ago(100), "verdict": verdict},
    }));
    let entries = nodes.iter().map(|(node, decision)| {
        let entry = json!({"node": node, "decision": decision, "since": ago(120), "started": ago(290), "asked": []});
        (format!("{}.json", node.replace('/', "_")), json!(entry.to_string()))
    });
    json!({"items": [
        config_map("forge-plan-dev-1-0", &json!({"plan.json": plan.to_string()})),
        config_map("forge-run-dev-1-0", &json!({"run.json": header.to_string()})),
        config_map("forge-run-dev-1-1", &Value::Object(entries.collect())),
    ]})
}

/// A run in which `network` is proven, `db` failed and `api` is blocked by it.
fn record() -> Value {
    let failed = json!({"type": "failed", "class": "unhealthy", "why": {"type": "unhealthy", "health": "Degraded"}});
    let blocked = json!({"type": "failed", "class": "blocked", "why": {"type": "blocked", "by": "argocd/db"}});
    run(
        "platform",
        "partial",
        &[("argocd/network", proven("argocd/network")), ("argocd/db", failed), ("argocd/api", blocked)],
    )
}

/// A run of which another thing is known as a whole.
fn headed(mut maps: Value, change: impl FnOnce(&mut Value)) -> Value {
    let text = &mut maps["items"][1]["data"]["run.json"];
    let mut header: Value = serde_json::from_str(text.as_str().unwrap()).unwrap();
    change(&mut header);
    *text = json!(header.to_string());
    maps
}

/// A cluster in which all is well, no window is left, and one run has proven these nodes.
fn well(scope: &str, nodes: &[&str]) -> Answers {
    let nodes: Vec<(&str, Value)> = nodes.iter().map(|node| (*node, proven(node))).collect();
    let mut answers = cluster();
    answers.insert(CONFIG_MAPS.to_owned(), run(scope, "done", &nodes));
    answers.insert(PROJECT.to_owned(), json!({"spec": {}}));
    let applications: Vec<Value> = ["network", "db", "api"].map(|name| application(name, "Healthy", 60)).into();
    answers.insert(APPLICATIONS.to_owned(), json!({"items": applications}));
    answers
}

const ALL: [&str; 3] = ["argocd/network", "argocd/db", "argocd/api"];

fn application(name: &str, health: &str, compared: i64) -> Value {
    json!({
        "metadata": {"namespace": "argocd", "name": name},
        "spec": {"project": "dev", "destination": {"namespace": name}},
        "status": {
            "sync": {"status": "Synced", "revision": "1"},
            "health": {"status": health, "lastTransitionTime": ago(500)},
            "reconciledAt": ago(compared),
            "resources": [{"kind": "StatefulSet", "namespace": name, "name": "main", "health": {"status": health, "message": "<b>\u{1b}[2J"}}],
        },
    })
}

const APPLICATIONS: &str = "/apis/argoproj.io/v1alpha1/namespaces/argocd/applications";
const CONFIG_MAPS: &str = "/api/v1/namespaces/argo/configmaps";
const PROJECT: &str = "/apis/argoproj.io/v1alpha1/namespaces/argocd/appprojects/dev";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/argo/leases/forge-dev";

fn cluster() -> Answers {
    let served = ["applications", "appprojects", "workflows", "clusterworkflowtemplates"];
    let served: Vec<Value> = served.iter().map(|name| json!({"name": name})).collect();
    let window = json!({"description": "forge-orchestration dev-1", "applications": ["db", "api"], "kind": "deny"});
    BTreeMap::from([
        ("/apis/argoproj.io/v1alpha1".to_owned(), json!({"kind": "APIResourceList", "resources": served})),
        ("/apis/argoproj.io/v1alpha1/clusterworkflowtemplates/forge-node".to_owned(), json!({"kind": "x"})),
        (PROJECT.to_owned(), json!({"spec": {"syncWindows": [window]}})),
        (CONFIG_MAPS.to_owned(), record()),
        (
            APPLICATIONS.to_owned(),
            json!({"items": [
                application("network", "Healthy", 60),
                application("db", "Degraded", 60),
                application("api", "Healthy", 100_000),
                application("left-over", "Healthy", 60),
            ]}),
        ),
    ])
}

/// Runs forge against these answers, in a folder of its own.
fn forge(answers: Answers, repository: bool, arguments: &[&str]) -> (i32, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let work = folder.path();
    if repository {
        write_repository(work);
    }
    let port = serve(answers);
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": format!("http://127.0.0.1:{port}")}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
    });
    fs::write(work.join("kubeconfig"), kubeconfig.to_string()).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_forge"))
        .args(arguments)
        .args(["--environment", "dev", "--kubeconfig", "kubeconfig"])
        .current_dir(work)
        .env_clear()
        .env("HOME", work)
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

fn write_repository(work: &Path) {
    let write = |name: &str, text: &str| fs::write(work.join(name), text).unwrap();
    let header = "apiVersion: forge.projectcatalyst.io/v1alpha1\n";
    write(
        "forge.yaml",
        &format!(
            "{header}kind: Forge\nspec:\n  repository: {{url: https://git.example.com/p.git}}\n  environments: [{{name: dev, cluster: dev, sync: auto}}]\n"
        ),
    );
    write(
        "graph.yaml",
        &format!(
            "{header}kind: DependencyGraph\nspec:\n  stacks:\n    - name: base\n      apps:\n        - application: argocd/network\n        - application: argocd/db\n          dependsOn: [argocd/network]\n        - application: argocd/api\n          dependsOn: [argocd/db]\n"
        ),
    );
}

#[test]
fn status_leads_with_phase_authority_and_window_and_needs_no_checkout() {
    let (code, out, err) = forge(cluster(), false, &["status"]);
    assert_eq!(code, 1, "{out}{err}");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0], "dev in c");
    assert_eq!(lines[1], "  phase      2 orchestration: run dev-1 has ended and left 2 Applications in its window");
    assert_eq!(lines[2], "  authority  Argo Workflows");
    assert!(lines[3].starts_with("  window     run dev-1 holds 2 for 5m"), "{out}");
    assert!(lines[3].ends_with(": api, db"), "{out}");
    assert!(out.contains("  health     Failed, 1 of 3 well: 1 proven, 1 failed, 1 blocked"), "{out}");
    assert!(out.contains("argocd/db       failed    Synced     Degraded"), "{out}");
    // Into a pipe, so all of it.
    assert!(lines.iter().any(|line| line.ends_with("blocked by `argocd/db`, which failed; stale: compared 1d3h ago")));
    assert!(out.contains("  argocd/left-over: not in the graph"), "{out}");
    let other = lines.iter().filter(|line| !line.starts_with("argocd/api "));
    assert!(other.clone().count() + 1 == lines.len() && other.clone().all(|line| line.chars().count() <= 100), "{out}");
    assert!(!out.contains('\u{1b}'), "{out}");
}

#[test]
fn status_as_json_and_as_a_page_says_the_same() {
    let (code, out, _) = forge(cluster(), true, &["status", "--output", "json"]);
    let status: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &status["phase"], &status["health"]), (1, &json!("orchestration"), &json!("Failed")));
    assert_eq!(status["window"]["applications"], json!(["api", "db"]));
    assert_eq!((&status["window"]["state"], &status["whole"]), (&json!("found"), &json!(true)));
    assert_eq!(status["nodes"][1]["live"]["unwell"][0]["resource"], json!("StatefulSet/db/main"));
    let (_, page, _) = forge(cluster(), true, &["status", "--output", "html"]);
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("class=\"node critical failed\" id=\"argocd/db\""));
    assert!(page.contains("&lt;b&gt;") && !page.contains("<b>") && !page.contains("<script"));
    assert!(page.contains("<dt>cluster</dt><dd>c</dd>"), "{page}");
    assert!(page.contains("<dl>\n<dt>as of</dt><dd>20"), "{page}");
    let times = (status["nodes"][0]["began"].as_str(), status["nodes"][0]["ended"].as_str());
    let (began, ended): (Timestamp, Timestamp) = (times.0.unwrap().parse().unwrap(), times.1.unwrap().parse().unwrap());
    let took = ended.duration_since(began).as_secs();
    assert!((169..=171).contains(&took), "{took}");
    assert!(["2m49s", "2m50s", "2m51s"].iter().any(|took| page.contains(&format!("<td>{took}</td>"))), "{page}");
}

#[test]
fn what_was_proven_and_is_gone_or_degraded_now_is_not_drawn_as_proven() {
    let mut answers = well("platform", &ALL);
    let applications = [application("network", "Healthy", 60), application("db", "Degraded", 60)];
    answers.insert(APPLICATIONS.to_owned(), json!({"items": applications}));
    let (code, page, err) = forge(answers.clone(), true, &["status", "--output", "html"]);
    assert_eq!(code, 2, "{err}");
    for (node, state) in [("network", "proven"), ("db", "degraded"), ("api", "missing")] {
        let drawn = format!(" {state}\" id=\"argocd/{node}\"><title>argocd/{node}: {state}</title>");
        assert!(page.contains(&drawn), "{page}");
        assert!(page.contains(&format!("<td class=\"p-{state}\">{state}")), "{page}");
    }
    assert!(page.contains("<td>the Application does not exist</td>"), "{page}");
    let (_, out, _) = forge(answers, true, &["status"]);
    assert!(out.contains("argocd/api      proven    -          -"), "{out}");
    assert!(out.contains("the Application does not exist\n") && out.contains("StatefulSet/db/main Degraded"), "{out}");
}

#[test]
fn after_a_run_has_ended_nothing_of_it_is_on_its_way() {
    let operation =
        json!({"type": "wait", "on": {"type": "operation", "attempt": 1, "message": "applying"}, "until": ago(-600)});
    let waits = json!({"type": "wait", "on": {"type": "predecessor", "node": "argocd/db"}, "until": ago(-600)});
    let nodes = [("argocd/network", proven("argocd/network")), ("argocd/db", operation), ("argocd/api", waits)];
    let mut answers = well("platform", &ALL);
    let maps = run("platform", "cancelled", &nodes);
    answers.insert(CONFIG_MAPS.to_owned(), maps.clone());
    let (code, out, err) = forge(answers.clone(), true, &["status"]);
    assert_eq!(code, 2, "{out}{err}");
    assert!(out.contains("1 of 3 well: 1 proven, 2 unfinished\n"), "{out}");
    assert!(out.contains("argocd/db       unfinished  Synced     Healthy"), "{out}");
    assert!(out.contains("the run ended before it was proven; last seen syncing: sync 1 runs: applying\n"), "{out}");
    assert!(!out.contains("  waiting") && !out.contains("  syncing"), "{out}");
    let (_, page, _) = forge(answers.clone(), true, &["status", "--output", "html"]);
    assert!(
        page.contains("unfinished\" id=\"argocd/db\"") && page.contains("p-unfinished\">unfinished</td>"),
        "{page}"
    );
    let (_, out, _) = forge(answers.clone(), true, &["status", "--output", "json"]);
    let status: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(status["nodes"][2]["phase"], "unfinished", "{status:#}");
    let (_, out, _) = forge(answers.clone(), true, &["why", "api"]);
    assert!(out.contains("→ argocd/db   unfinished  the run ended before it was proven"), "{out}");
    assert!(out.contains("next: deploy again"), "{out}");
    // While it lasts it is at what it is at.
    let lasts = headed(maps, |header| drop(header.as_object_mut().unwrap().remove("ended")));
    answers.insert(CONFIG_MAPS.to_owned(), lasts);
    let (_, out, _) = forge(answers, true, &["status"]);
    assert!(out.contains("1 of 3 well: 1 waiting, 1 syncing, 1 proven\n"), "{out}");
}

const SECRET: &str = "/api/v1/namespaces/argo/secrets/forge-argocd";

/// The Secret of the Argo CD account, whose token ends so many seconds from now.
fn secret(ends: i64) -> Value {
    let encoded = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    json!({"data": {
        "token": encoded("t0p-s3cret"), "server": encoded("http://argocd-server.argocd.svc"),
        "token-id": encoded("forge-1"), "expires": encoded(&ago(-ends)),
    }})
}

#[test]
fn the_end_of_the_token_is_told_in_its_last_week_and_the_token_never() {
    let status = |ends: i64, format: &str| {
        let mut answers = well("platform", &ALL);
        answers.insert(SECRET.to_owned(), secret(ends));
        forge(answers, true, &["status", "--output", format])
    };
    let (code, out, err) = status(20 * 86_400, "text");
    assert_eq!(code, 0, "{out}{err}");
    assert!(!out.contains("  token  "), "{out}");
    let (code, out, _) = status(3 * 86_400 + 60, "text");
    assert!(out.contains("  token      ends in 3d; `forge rotate` replaces it\n"), "{out}");
    // The platform is as it is.
    assert_eq!(code, 0, "{out}");
    let (_, out, _) = status(-7_200, "text");
    assert!(out.contains("  token      ended 2h ago: no run reaches Argo CD; `forge bootstrap` makes"), "{out}");
    assert!(out.lines().all(|line| line.chars().count() <= 100), "{out}");
    let (_, out, _) = status(-7_200, "json");
    let said: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(said["token"]["id"], "forge-1");
    assert!(said["token"]["warning"].as_str().unwrap().starts_with("ended 2h ago"), "{said:#}");
    assert!(!out.contains("t0p") && !out.contains("dDBwLXMzY3JldA"), "{out}");
    // Who may not read Secrets sees everything else.
    let mut answers = well("platform", &ALL);
    answers.insert(SECRET.to_owned(), Value::Null);
    let (code, out, _) = forge(answers, true, &["status"]);
    assert!(code == 0 && !out.contains("ecret"), "{out}");
}

#[test]
fn without_a_record_the_graph_of_a_checkout_and_argo_cds_words_must_do() {
    let mut answers = cluster();
    answers.insert(CONFIG_MAPS.to_owned(), json!({"items": null}));
    let (code, out, err) = forge(answers.clone(), true, &["status"]);
    assert_eq!(code, 2, "{out}{err}");
    assert!(out.contains("1 of 3 Synced and Healthy; no run has proven them"), "{out}");
    assert!(out.contains("  push       Argo CD alone syncs what is pushed, in no order (sync: auto)"), "{out}");
    // However well it looks, it is not proven.
    let mut healthy = well("platform", &ALL);
    healthy.insert(CONFIG_MAPS.to_owned(), json!({"items": null}));
    let (code, out, err) = forge(healthy.clone(), true, &["status"]);
    assert_eq!(code, 2, "{out}{err}");
    assert!(out.contains("3 of 3 Synced and Healthy; no run has proven them"), "{out}");
    let (_, page, _) = forge(healthy, true, &["status", "--output", "html"]);
    assert!(page.contains("healthy\" id=\"argocd/db\"") && !page.contains(" proven\" id="), "{page}");
    let mut missing = answers.clone();
    missing.insert(
        APPLICATIONS.to_owned(),
        json!({"items": [application("network", "Healthy", 60), application("db", "Degraded", 60)]}),
    );
    let (code, out, err) = forge(missing, true, &["why", "api"]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("→ argocd/db             Argo CD says Synced, Degraded"), "{out}");
    assert!(out.ends_with("told by Argo CD alone; no run has this node\n"), "{out}");
    let (code, _, err) = forge(answers, false, &["status"]);
    assert_eq!(code, 3);
    assert!(err.starts_with("error[FORGE-D008]: no run of environment `dev` is recorded"), "{err}");
}

#[test]
fn what_may_not_be_read_is_said_and_does_without() {
    let mut answers = cluster();
    for path in
        [CONFIG_MAPS, APPLICATIONS, "/apis/argoproj.io/v1alpha1/clusterworkflowtemplates/forge-node", PROJECT, LEASE]
    {
        answers.insert(path.to_owned(), Value::Null);
    }
    for name in ["network", "db", "api"] {
        answers.insert(format!("{APPLICATIONS}/{name}"), application(name, "Healthy", 60));
    }
    let (code, out, err) = forge(answers.clone(), true, &["status"]);
    // Nothing is known to be proven, so nothing is well.
    assert_eq!(code, 2, "{out}{err}");
    assert_eq!(out.matches("\nnote: ").count(), 5, "{out}");
    assert!(
        out.contains("  phase      not known: the records of runs may not be read\n  authority  not known\n"),
        "{out}"
    );
    assert!(out.contains("  window     not known: the AppProject may not be read\n"), "{out}");
    assert!(out.contains("3 of 3 Synced and Healthy; whether a run has proven them is not known"), "{out}");
    let (code, _, err) = forge(answers, false, &["status"]);
    assert_eq!(code, 6, "{err}");
    assert!(err.starts_with("error[FORGE-D002]"), "{err}");
}

#[test]
fn a_run_of_one_application_does_not_prove_the_platform() {
    let scoped = well("app:argocd/network", &ALL[..1]);
    let (code, out, err) = forge(scoped.clone(), true, &["status"]);
    assert_eq!(code, 2, "{out}{err}");
    assert!(out.contains("  phase      2 orchestration: not every node is proven\n"), "{out}");
    assert!(out.contains("1 of 3 well: 2 waiting, 1 proven"), "{out}");
    assert!(out.contains("argocd/api      waiting   Synced     Healthy"), "{out}");
    assert!(out.contains("no run that is kept has this node"), "{out}");
    let (code, out, err) = forge(scoped.clone(), false, &["status"]);
    assert_eq!(code, 2, "{out}{err}");
    assert!(out.contains("what is shown is proven, which need not be the whole platform"), "{out}");
    assert!(out.lines().all(|line| line.chars().count() <= 100 || line.starts_with("note: ")), "{out}");
    // Who asks for that run asks for its nodes.
    let (code, out, err) = forge(scoped, true, &["status", "--run", "dev-1"]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(!out.contains("argocd/api") && !out.contains("steady state"), "{out}");
    let (code, out, err) = forge(well("platform", &ALL), true, &["status"]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("  phase      3 steady state: every node is proven and there is no window\n"), "{out}");
}

#[test]
fn from_what_may_not_be_read_neither_steady_state_nor_a_stale_run_follows() {
    let mut answers = well("platform", &ALL);
    answers.insert(PROJECT.to_owned(), Value::Null);
    let (_, out, err) = forge(answers.clone(), true, &["status"]);
    assert!(out.contains("  phase      not known: every node is proven; whether there is a window"), "{out}{err}");
    assert!(out.contains("  window     not known") && !out.contains("steady state"), "{out}");
    let (_, out, _) = forge(answers, true, &["status", "--output", "json"]);
    let status: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&status["phase"], &status["window"]), (&json!("notKnown"), &json!({"state": "unknown"})));
    let mut answers = well("platform", &ALL);
    let unended = headed(answers[CONFIG_MAPS].clone(), |header| drop(header.as_object_mut().unwrap().remove("ended")));
    answers.insert(CONFIG_MAPS.to_owned(), unended);
    answers.insert(LEASE.to_owned(), Value::Null);
    let (_, out, err) = forge(answers.clone(), true, &["status"]);
    assert!(out.contains("run dev-1 has no end; who holds its Lease is not known"), "{out}{err}");
    assert!(!out.contains("stale"), "{out}");
    answers.remove(LEASE);
    let (_, out, err) = forge(answers, true, &["status"]);
    assert!(out.contains("nobody holds the Lease for it: stale"), "{out}{err}");
}

#[test]
fn what_is_run_and_not_held_is_said() {
    let mut answers = well("platform", &ALL);
    let why = "AppProject `default` was not handed over";
    let maps = headed(answers[CONFIG_MAPS].clone(), |header| {
        header["notHeld"] = json!({"argocd/db": why, "argocd/api": why});
    });
    answers.insert(CONFIG_MAPS.to_owned(), maps);
    let (code, out, err) = forge(answers, false, &["status"]);
    assert_eq!(code, 0, "{out}{err}");
    let note = format!("\nnote: run but not held by a window: argocd/api, argocd/db: {why}\n");
    assert!(out.contains(&note), "{out}");
}

#[test]
fn why_goes_from_a_blocked_node_to_the_cause_and_says_what_to_do() {
    let (code, out, err) = forge(cluster(), false, &["why", "api"]);
    assert_eq!(code, 0, "{out}{err}");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0], "  argocd/api  blocked   waits for `argocd/db`");
    assert!(out.contains("→ argocd/db   failed    health stayed Degraded"), "{out}");
    assert!(out.contains("resource  StatefulSet/db/main"), "{out}");
    assert!(
        out.contains("next: see what is not well: `kubectl -n db get pods` and `argocd app get argocd/db`"),
        "{out}"
    );
    assert!(out.ends_with("told by run dev-1\n") && !out.contains('\u{1b}'), "{out}");
    let (code, _, err) = forge(cluster(), false, &["why", "apo"]);
    assert_eq!(code, 3);
    assert!(err.contains("no application `apo` in the graph; did you mean `api`?"), "{err}");
}

#[test]
fn history_lists_runs_and_names_those_that_cannot_be_used() {
    let mut answers = cluster();
    let mut maps = record();
    let mut torn = maps["items"][0].clone();
    torn["metadata"]["name"] = json!("forge-plan-dev-0-0");
    torn["metadata"]["labels"]["forge.projectcatalyst.io/run"] = json!("dev-0");
    maps["items"].as_array_mut().unwrap().push(torn);
    answers.insert(CONFIG_MAPS.to_owned(), maps);
    let (code, out, err) = forge(answers.clone(), false, &["history"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("partial    1/3 -1 -1  -        platform"), "{out}");
    assert_eq!(err, "\nnote: the record of run `dev-0` cannot be used: its plan is of run `dev-1`\n");
    let (_, out, _) = forge(answers, false, &["history", "--output", "json"]);
    let history: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(history["runs"][0]["statistics"]["failed"], json!(1));
}

#[test]
fn a_run_that_is_not_there_or_cannot_be_used_is_a_clear_failure() {
    let (code, _, err) = forge(cluster(), false, &["status", "--run", "dev-9"]);
    assert_eq!(code, 3);
    assert!(err.starts_with("error[FORGE-D008]: no run `dev-9` is recorded"), "{err}");
    let mut answers = cluster();
    let mut maps = record();
    maps["items"].as_array_mut().unwrap().remove(0);
    answers.insert(CONFIG_MAPS.to_owned(), maps);
    let (code, _, err) = forge(answers, false, &["status"]);
    assert_eq!(code, 1);
    assert!(
        err.starts_with("error[FORGE-D007]: the record of run `dev-1` cannot be used: its plan is missing"),
        "{err}"
    );
}

#[test]
fn an_empty_cluster_is_before_bootstrap() {
    let (code, out, err) = forge(Answers::from([(CONFIG_MAPS.to_owned(), json!({"items": []}))]), true, &["status"]);
    assert_eq!(code, 2, "{err}");
    assert!(out.contains("  phase      0 pre-bootstrap: neither Argo CD nor Argo Workflows is installed"), "{out}");
    assert!(out.contains("  authority  the caller"), "{out}");
}
