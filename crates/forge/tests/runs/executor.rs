//! `executor deploy` on the real Argo: as a Job from the image, with the rights of a run and no more; from outside, with a
//! kubeconfig; told to stop, too late, and not alone; and what it tells others on the way.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use forge_core::format::schema;
use forge_testkit::http::{Request, reply};
use forge_testkit::platform::{attempts, mark};
use forge_testkit::sandbox::eventually;
use forge_testkit::twin::{TwinNode, deployment};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::stage::{PATIENCE, Stage, names};

fn stage(test: &str, ready: u32) -> Stage {
    Stage::new(test, false, |options| {
        let node = |name: &str, before: &[&str]| {
            TwinNode::new(name, before, vec![deployment(name, &options.image, ready, &[])])
        };
        vec![node("first", &[]), node("second", &["first"])]
    })
}

/// The Job as the chart makes it.
pub(crate) fn job(stage: &Stage, name: &str) -> Value {
    let environment = &stage.environment;
    let labels = json!({"forge.projectcatalyst.io/environment": environment.name});
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": "argo", "labels": labels},
        "spec": {"backoffLimit": 0, "template": {"spec": {
            "restartPolicy": "Never", "serviceAccountName": "forge-executor",
            "securityContext": {"runAsNonRoot": true, "runAsUser": 65532},
            "containers": [{
                "name": "executor", "image": environment.platform.image(),
                "command": ["executor"], "args": ["deploy", "--output", "json"],
                "env": [
                    {"name": "ENVIRONMENT", "value": environment.name},
                    {"name": "DOMAIN", "value": "dev.example.com"},
                    {"name": "GIT_REPOSITORY", "value": environment.url},
                    {"name": "GIT_REVISION", "value": "main"},
                    {"name": "LOG_FORMAT", "value": "json"},
                ],
                "securityContext": {
                    "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [
                    {"name": "argocd", "mountPath": "/secrets/argocd", "readOnly": true},
                    {"name": "tmp", "mountPath": "/tmp"},
                ],
            }],
            "volumes": [
                {"name": "argocd", "secret": {"secretName": "forge-argocd", "defaultMode": 0o444}},
                {"name": "tmp", "emptyDir": {}},
            ],
        }}},
    })
}

/// Starts a Job and waits for its end; gives all that its pod wrote.
fn ended(stage: &Stage, name: &str) -> String {
    let sandbox = &stage.environment.platform.sandbox;
    let made = sandbox.try_kubectl(&["create", "-f", "-"], Some(&job(stage, name).to_string()));
    assert_eq!(made.code, 0, "{}", made.stderr);
    let logs = || sandbox.try_kubectl(&["logs", "-n", "argo", &format!("job/{name}"), "--tail=-1"], None).stdout;
    eventually(&format!("Job {name} has ended"), PATIENCE, || {
        let job = stage.environment.json(&["get", "job", name, "-n", "argo"]);
        let is = |condition: &Value, kind: &str| condition["type"] == kind && condition["status"] == "True";
        let conditions = job["status"]["conditions"].as_array().cloned().unwrap_or_default();
        if conditions.iter().any(|condition| is(condition, "Failed")) {
            panic!("{name} failed:\n{}", logs());
        }
        if conditions.iter().any(|condition| is(condition, "Complete")) { Ok(()) } else { Err(logs()) }
    });
    let text = logs();
    stage.kubectl(&["delete", "job", name, "-n", "argo", "--wait=false"]);
    text
}

#[test]
fn as_a_job_it_deploys_with_the_rights_of_a_run_and_again_writes_nothing() {
    let stage = stage("executor", 1);
    let name = stage.environment.name.clone();
    let text = ended(&stage, &format!("{name}-1"));
    assert!(text.contains("\"verdict\": \"done\""), "{text}");
    for node in ["first", "second"] {
        assert_eq!((stage.answer(node).as_deref(), stage.syncs(node)), (Some("proven"), 1), "{node}");
        let id = stage.options.id(node);
        let told = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).any(|line| {
            line["component"] == id.as_str() && line["message"].as_str().is_some_and(|said| said.starts_with("proven"))
        });
        assert!(told, "no line says that {id} is proven:\n{text}");
    }
    // What is done already is found done by a second Job, which changes nothing at all.
    let since = mark();
    let text = ended(&stage, &format!("{name}-2"));
    assert!(text.contains("nothing was written"), "{text}");
    let sandbox = &stage.environment.platform.sandbox;
    let own = |line: &forge_testkit::order::Line| line.user == "system:serviceaccount:argo:forge-executor";
    let mine = stage.runs().len();
    let written: Vec<String> = attempts(sandbox, since)
        .iter()
        .filter(|line| own(line))
        .map(|line| format!("{line:?}"))
        .filter(|line| line.contains(&name))
        .collect();
    assert_eq!((written, mine), (Vec::<String>::new(), 1));
}

/// The executor on this machine, under its own name, with nothing but a kubeconfig. Its log goes to `stderr` in the folder.
fn outside(stage: &Stage, folder: &Path, more: &[&str]) -> Command {
    let program = folder.join("executor");
    if !program.exists() {
        std::os::unix::fs::symlink(&stage.environment.platform.binary, &program).unwrap();
    }
    let url = format!("file://{}", stage.environment.repository.folder().display());
    let mut command = Command::new(&program);
    command.args(["deploy", "-o", "json"]).args(more).env_remove("KUBECONFIG");
    command.env("KUBECONFIG_PATH", &stage.environment.platform.sandbox.kubeconfig);
    command.env("ENVIRONMENT", &stage.environment.name).env("DOMAIN", "dev.example.com");
    command.env("GIT_REPOSITORY", url).env("GIT_REVISION", "main");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(fs::File::create(folder.join("stderr")).unwrap());
    command
}

/// Figures as Prometheus fetches them.
fn figures(address: &str) -> Result<String, String> {
    let failed = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect(address).map_err(failed)?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).map_err(failed)?;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(failed)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(failed)?;
    Ok(answer)
}

/// Takes whatever is sent to it, and remembers it.
fn collector() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let kept = Arc::clone(&heard);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let Some(request) = Request::read(&stream) else { continue };
            let content = String::from_utf8_lossy(&request.body);
            kept.lock().unwrap().push(format!("{}{content}", request.head));
            reply(&stream, 200, &[], "{}");
        }
    });
    (address, heard)
}

/// While somebody else has the Lease of the environment, and renews it, the executor ends with 5 and has done nothing.
fn refused_while_another_run_lives(stage: &Stage, folder: &Path) {
    let sandbox = &stage.environment.platform.sandbox;
    let name = format!("forge-{}", stage.environment.name);
    let now = || format!("{:.6}", Timestamp::now());
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": name, "namespace": "argo"},
        "spec": {"holderIdentity": "somebody-1", "leaseDurationSeconds": 60, "renewTime": now()},
    });
    let made = sandbox.try_kubectl(&["create", "-f", "-"], Some(&lease.to_string()));
    assert_eq!(made.code, 0, "{}", made.stderr);
    let mut child = outside(stage, folder, &["--metrics-listen", "127.0.0.1:0"]).spawn().unwrap();
    eventually("the executor has ended", PATIENCE, || {
        let renewed = json!({"spec": {"renewTime": now()}}).to_string();
        stage.kubectl(&["patch", "lease", &name, "-n", "argo", "--type", "merge", "-p", &renewed]);
        if child.try_wait().unwrap().is_some() { Ok(()) } else { Err("not yet".to_owned()) }
    });
    let output = child.wait_with_output().unwrap();
    let said = fs::read_to_string(folder.join("stderr")).unwrap();
    assert_eq!(output.status.code(), Some(5), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["exit"], &report["run"]), (&json!(5), &json!("")), "{report}");
    let message = report["message"].as_str().unwrap();
    assert!(message.starts_with("FORGE-D004") && message.contains("somebody-1"), "{message}");
    stage.kubectl(&["delete", "lease", &name, "-n", "argo"]);
    assert_eq!(stage.runs(), Vec::<String>::new());
}

#[test]
fn from_outside_it_takes_a_kubeconfig_and_told_to_stop_it_stops_and_says_so() {
    let stage = Stage::new("stopped", false, |options| {
        let node = |name: &str, before: &[&str], ready: u32| {
            TwinNode::new(name, before, vec![deployment(name, &options.image, ready, &[])])
        };
        vec![node("first", &[], 1), node("second", &["first"], 45), node("third", &["second"], 1)]
    });
    let folder = tempfile::tempdir().unwrap();
    refused_while_another_run_lives(&stage, folder.path());
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let (telemetry, heard) = collector();
    let mut command = outside(&stage, folder.path(), &["--metrics-listen", &address]);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", &telemetry).env("METRICS_PUSH_URL", &telemetry);
    let child = command.spawn().unwrap();
    stage.until_asked("second");
    // While it works, its figures say how it stands.
    let (first, second) = (stage.options.id("first"), stage.options.id("second"));
    let proven = format!("executor_component_health{{component=\"{first}\"}} 1");
    eventually("figures of the run can be fetched", PATIENCE, || {
        let text = figures(&address)?;
        let wanted = [
            proven.clone(),
            format!("executor_component_health{{component=\"{second}\"}} 0"),
            "executor_action_status{action=\"deploy\",phase=\"orchestration\",status=\"running\"} 1".to_owned(),
        ];
        if wanted.iter().all(|line| text.lines().any(|found| found == line)) { Ok(()) } else { Err(text) }
    });
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let said = fs::read_to_string(folder.path().join("stderr")).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["verdict"], "cancelled", "{report}\n{said}");
    assert_eq!(report["message"], "cancelled by an interrupt of the executor", "{report}");
    assert_eq!(stage.ended()["ended"]["verdict"], "cancelled");
    assert_eq!(stage.syncs("third"), 0);
    // What became of nodes was sent too.
    let heard = heard.lock().unwrap();
    let mut spans = heard.iter().filter(|request| request.starts_with("POST /v1/traces "));
    assert!(spans.any(|request| request.contains(&first)), "{heard:#?}\n{said}");
    let pushed = format!("PUT /metrics/job/forge-executor/environment/{} ", stage.environment.name);
    let mut pushes = heard.iter().filter(|request| request.starts_with(&pushed));
    assert!(pushes.any(|request| request.contains(&proven)), "{heard:#?}\n{said}");
}

/// What it reports, where it ends well, and its log.
fn reported(command: &mut Command, folder: &Path) -> (Value, String) {
    let output = command.output().unwrap();
    let said = fs::read_to_string(folder.join("stderr")).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let validator = jsonschema::validator_for(schema("runreport").unwrap().as_value()).unwrap();
    let errors: Vec<String> = validator.iter_errors(&report).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}: {report:#}");
    (report, said)
}

#[test]
fn a_dry_run_a_graph_that_is_given_and_a_scope_count_and_what_it_reports_fits_its_schema() {
    let stage = stage("given", 1);
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (stage.options.id("first"), stage.options.id("second"));
    let flags = ["--metrics-listen", "127.0.0.1:0"];
    let (report, said) = reported(outside(&stage, folder.path(), &flags).env("DRY_RUN", "true"), folder.path());
    assert_eq!(report["verdict"], "dry run", "{report:#}\n{said}");
    assert_eq!((stage.runs(), stage.syncs("first")), (Vec::<String>::new(), 0), "{said}");
    // The kubeconfig as text and not as a file; a graph of one node in place of the repository's two; and a trace to belong to.
    let graph = folder.path().join("dag.yaml");
    let text = json!({
        "apiVersion": "forge.projectcatalyst.io/v1alpha1", "kind": "DependencyGraph",
        "spec": {"stacks": [{"name": "all", "apps": [{"application": first}]}]},
    });
    fs::write(&graph, text.to_string()).unwrap();
    let kubeconfig = fs::read(&stage.environment.platform.sandbox.kubeconfig).unwrap();
    let kubeconfig = base64::engine::general_purpose::STANDARD.encode(kubeconfig);
    let (telemetry, heard) = collector();
    let (trace, parent) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
    let junit = folder.path().join("report.xml");
    let files = ["--dag", graph.to_str().unwrap(), "--report-junit", junit.to_str().unwrap()];
    let mut command = outside(&stage, folder.path(), &[&flags[..], &files].concat());
    command.env_remove("KUBECONFIG_PATH").env("KUBECONFIG_DATA", kubeconfig);
    command.env("TRACE_ID", trace).env("SPAN_ID", parent).env("OTEL_EXPORTER_OTLP_ENDPOINT", &telemetry);
    let (report, said) = reported(&mut command, folder.path());
    assert_eq!((&report["statistics"]["nodes"], &report["statistics"]["proven"]), (&json!(1), &json!(1)), "{report:#}");
    assert_eq!((stage.syncs("first"), stage.syncs("second")), (1, 0), "{said}");
    let cases = fs::read_to_string(junit).unwrap();
    assert!(cases.contains(&first) && !cases.contains(&second) && !cases.contains("<failure"), "{cases}");
    let spans = heard.lock().unwrap().join("\n");
    for wanted in [format!("\"traceId\":\"{trace}\""), format!("\"parentSpanId\":\"{parent}\""), first] {
        assert!(spans.contains(&wanted), "{wanted}: {spans}\n{said}");
    }
    // Its predecessor is proven, and nothing else is looked at.
    let scope = format!("app:{second}");
    let (report, said) = reported(outside(&stage, folder.path(), &flags).env("TARGET_SCOPE", &scope), folder.path());
    assert_eq!(report["scope"], scope, "{said}");
    assert_eq!((stage.syncs("first"), stage.syncs("second")), (1, 1), "{said}");
}

#[test]
fn a_run_that_takes_longer_than_it_may_ends_with_4_and_says_so() {
    let stage = stage("late", 45);
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--metrics-listen", "127.0.0.1:0", "--run-timeout", "15s"];
    let (telemetry, heard) = collector();
    let output = outside(&stage, folder.path(), &flags).env("METRICS_PUSH_URL", &telemetry).output().unwrap();
    let said = fs::read_to_string(folder.path().join("stderr")).unwrap();
    assert_eq!(output.status.code(), Some(4), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["verdict"], &report["exit"]), (&json!("timed out"), &json!(4)), "{report}");
    assert_eq!(report["failures"][0]["class"], "timeout", "{report}");
    assert_eq!((stage.syncs("second"), stage.held()), (0, names(&["first", "second"])));
    // What is left behind says that a window holds something, for whoever is alerted by it.
    let heard = heard.lock().unwrap();
    let last = heard.iter().rev().find(|request| request.starts_with("PUT /metrics/")).unwrap();
    let age = last.lines().find_map(|line| line.strip_prefix("forge_window_age_seconds ")).unwrap();
    assert!(age.parse::<u64>().unwrap() > 0, "{last}");
}
