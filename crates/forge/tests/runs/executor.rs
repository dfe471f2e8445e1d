//! `executor deploy` on the real Argo: as a Job from the image, with the rights of a run and no more; from outside, with a
//! kubeconfig; told to stop.

use std::fs;
use std::process::{Command, Stdio};

use forge_testkit::platform::{attempts, mark};
use forge_testkit::sandbox::eventually;
use forge_testkit::twin::{TwinNode, deployment};
use serde_json::{Value, json};

use crate::stage::{PATIENCE, Stage};

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

#[test]
fn from_outside_it_takes_a_kubeconfig_and_told_to_stop_it_stops_and_says_so() {
    let stage = stage("stopped", 45);
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("executor");
    std::os::unix::fs::symlink(&stage.environment.platform.binary, &program).unwrap();
    let log = folder.path().join("stderr");
    let url = format!("file://{}", stage.environment.repository.folder().display());
    let mut command = Command::new(&program);
    command.args(["deploy", "-o", "json", "--metrics-listen", "127.0.0.1:0"]).env_remove("KUBECONFIG");
    command.env("KUBECONFIG_PATH", &stage.environment.platform.sandbox.kubeconfig);
    command.env("ENVIRONMENT", &stage.environment.name).env("DOMAIN", "dev.example.com");
    command.env("GIT_REPOSITORY", url).env("GIT_REVISION", "main");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(fs::File::create(&log).unwrap());
    let child = command.spawn().unwrap();
    stage.until_asked("first");
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let said = fs::read_to_string(&log).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["verdict"], "cancelled", "{report}\n{said}");
    assert_eq!(report["message"], "cancelled by an interrupt of the executor", "{report}");
    assert_eq!(stage.ended()["ended"]["verdict"], "cancelled");
    assert_eq!(stage.syncs("second"), 0);
}
