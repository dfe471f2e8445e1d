//! What people with few rights can do: adopt an Argo CD, look at runs, and be refused clearly.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

use forge_testkit::foreign;
use forge_testkit::platform::{Platform, attempts, mark};
use forge_testkit::sandbox::{Ended, Sandbox, eventually, run};
use forge_testkit::twin::{TwinNode, config_map, push};
use serde_json::{Value, json};

use crate::stage::{PATIENCE, Stage};

/// A kubeconfig of a service account.
pub(crate) fn kubeconfig(sandbox: &Sandbox, folder: &std::path::Path, namespace: &str, account: &str) -> PathBuf {
    let token = sandbox.kubectl(&["create", "token", account, "-n", namespace, "--duration=1h"]);
    // The sandbox writes JSON.
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(&sandbox.kubeconfig).unwrap()).unwrap();
    config["users"][0]["user"] = json!({"token": token.trim()});
    let path = folder.join(format!("{account}.kubeconfig"));
    std::fs::write(&path, config.to_string()).unwrap();
    path
}

pub(crate) fn forge(
    binary: &std::path::Path,
    kubeconfig: &std::path::Path,
    folder: &std::path::Path,
    args: &[&str],
) -> Ended {
    run(Command::new(binary).args(args).current_dir(folder).env("KUBECONFIG", kubeconfig).env("NO_COLOR", "1"), None)
}

/// What an account tried to change: attempts, so that a refusal does not hide one.
pub(crate) fn tried(sandbox: &Sandbox, since: jiff::Timestamp, account: &str) -> Vec<String> {
    let account = format!(":{account}");
    let lines = attempts(sandbox, since).into_iter().filter(|line| line.user.ends_with(&account));
    lines.map(|line| format!("{line:?}")).collect()
}

#[test]
fn a_reader_is_refused_a_run_clearly_and_everything_else_works() {
    let stage = Stage::new("reader", false, |_| vec![TwinNode::new("app", &[], vec![config_map("app", "1")])]);
    stage.deploy(0);
    let sandbox = &stage.environment.platform.sandbox;
    let name = stage.environment.name.clone();
    sandbox.kubectl(&["create", "serviceaccount", &name, "-n", "default"]);
    sandbox.kubectl(&["create", "clusterrole", &name, "--verb=get,list,watch",
        "--resource=applications.argoproj.io,appprojects.argoproj.io,workflows.argoproj.io,clusterworkflowtemplates.argoproj.io,configmaps,leases.coordination.k8s.io,customresourcedefinitions.apiextensions.k8s.io"]);
    sandbox.kubectl(&[
        "create",
        "clusterrolebinding",
        &name,
        &format!("--clusterrole={name}"),
        &format!("--serviceaccount=default:{name}"),
    ]);
    let folder = tempfile::tempdir().unwrap();
    let reader = kubeconfig(sandbox, folder.path(), "default", &name);
    let repository = stage.environment.repository.folder();
    let binary = &stage.environment.platform.binary;
    let since = mark();
    let environment = ["--environment", name.as_str()];
    let deploy = [&["platform", "deploy"][..], &environment].concat();
    for (dry, command) in [(false, deploy.clone()), (true, [&deploy[..], &["--dry-run"]].concat())] {
        let refused = forge(binary, &reader, repository, &command);
        assert_eq!(refused.code, 6, "{}", refused.stderr);
        assert!(refused.stderr.contains("FORGE-D002") && refused.stderr.contains("secrets"), "{}", refused.stderr);
        // What a dry run is for can be had with less.
        assert_eq!(refused.stderr.contains("forge platform validate"), dry, "{}", refused.stderr);
    }
    let image = stage.environment.platform.image();
    for (command, code, says) in [
        (&["platform", "teardown", "--environment", &name, "--confirm", &name][..], 6, "FORGE-D002"),
        (&["rotate"], 6, "FORGE-D002"),
        (&["bootstrap", "--image", image], 3, "nothing was changed"),
    ] {
        let refused = forge(binary, &reader, repository, command);
        assert_eq!(refused.code, code, "{command:?}: {}", refused.stderr);
        assert!(refused.stderr.contains(says) && refused.stderr.contains("\nhint: "), "{}", refused.stderr);
    }
    let asked = |command: &[&str]| forge(binary, &reader, repository, &[command, &environment].concat());
    let read = |command: &[&str]| {
        let ended = asked(command);
        assert_eq!(ended.code, 0, "{command:?}: {}{}", ended.stdout, ended.stderr);
        ended.stdout
    };
    let node = stage.options.id("app");
    for command in
        [&["status"][..], &["history"], &["why", &node], &["graph"], &["plan", "--offline"], &["plan", "--simulate"]]
    {
        read(command);
    }
    let page = read(&["status", "--output", "html"]);
    assert!(page.contains("<svg") && page.contains(&node), "{page}");
    let status: Value = serde_json::from_str(&read(&["status", "--output", "json"])).unwrap();
    assert_eq!(status["nodes"][0]["node"], node.as_str(), "{status:#}");
    let lint = forge(binary, &reader, repository, &["lint"]);
    assert_eq!(lint.code, 0, "{}{}", lint.stdout, lint.stderr);
    // Much of it is not known with these rights, which is an answer.
    let judged = asked(&["platform", "validate"]);
    assert!((0..3).contains(&judged.code), "{}{}", judged.stdout, judged.stderr);
    // Bootstrap asks first what the account may do: such a question is stored nowhere.
    let mut tried = tried(sandbox, since, &name);
    tried.retain(|line| !line.contains(r#"resource: "selfsubject"#));
    assert_eq!(tried, Vec::<String>::new());
    sandbox.kubectl(&["delete", "clusterrole,clusterrolebinding", &name]);
    sandbox.kubectl(&["delete", "serviceaccount", &name, "-n", "default"]);
}

#[test]
fn an_argo_cd_with_thirty_foreign_applications_is_adopted_with_get_alone_and_without_a_write() {
    let platform = Platform::shared();
    let sandbox = &platform.sandbox;
    let url = "http://git.sandbox.internal:3000/foreign/apps.git";
    push(&sandbox.git, "foreign/apps.git", &foreign::repository(url), "main").unwrap();
    sandbox.try_kubectl(&["create", "namespace", "foreign-team"], None);
    let applied = sandbox.try_kubectl(&["apply", "--server-side", "-f", "-"], Some(&foreign::manifests(url)));
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    eventually("the foreign applications are there", PATIENCE, || {
        let columns = "custom-columns=NAME:.metadata.name,SYNC:.status.sync.status";
        let list = sandbox.kubectl(&["get", "applications", "-A", "--no-headers", "-o", columns]);
        let ours = list.lines().filter(|line| line.starts_with("foreign-"));
        // Two are never compared: that is what they are there for.
        let never = |line: &str| line.starts_with("foreign-paused") || line.starts_with("foreign-outside");
        let known = ours.filter(|line| !line.ends_with("<none>") || never(line)).count();
        if known == foreign::APPLICATIONS {
            Ok(())
        } else {
            Err(format!("{known} of {}: {list}", foreign::APPLICATIONS))
        }
    });
    // Argo CD tells of hooks when they have run, and nobody else syncs this one.
    let operation =
        r#"{"operation":{"initiatedBy":{"username":"somebody"},"sync":{"syncOptions":["CreateNamespace=true"]}}}"#;
    let hooks = ["application", "foreign-hooks", "-n", "argocd"];
    sandbox.kubectl(&[&["patch"][..], &hooks, &["--type=merge", "-p", operation]].concat());
    eventually("the hooks have run", PATIENCE, || {
        let phase = "jsonpath={.status.operationState.phase}";
        let phase = sandbox.kubectl(&[&["get"][..], &hooks, &["-o", phase]].concat());
        if phase == "Succeeded" { Ok(()) } else { Err(phase) }
    });
    let rbac = sandbox.try_kubectl(&["apply", "-f", "-"], Some(&foreign::read_only_rbac("adopter")));
    assert_eq!(rbac.code, 0, "{}", rbac.stderr);
    let account = sandbox.kubectl(&[
        "get",
        "serviceaccounts",
        "-A",
        "--field-selector=metadata.name=adopter",
        "-o",
        "jsonpath={.items[0].metadata.namespace}",
    ]);
    let folder = tempfile::tempdir().unwrap();
    let reader = kubeconfig(sandbox, folder.path(), account.trim(), "adopter");
    let target = folder.path().join("adopted");
    let since = mark();
    let place = target.to_string_lossy();
    let adopted = forge(&platform.binary, &reader, folder.path(), &["adopt", &place, "--output", "json"]);
    assert_eq!(adopted.code, 0, "{}{}", adopted.stdout, adopted.stderr);
    assert_eq!(tried(sandbox, since, "adopter"), Vec::<String>::new());
    let adopted: Value = serde_json::from_str(&adopted.stdout).unwrap();
    for (kind, name, detail) in [
        ("sync-hook", "foreign-hooks", "PreSync ConfigMap presync"),
        ("multi-source", "foreign-multi-source", "2 sources"),
        ("chart-source", "foreign-helm", "Helm, version 1.2.x"),
        ("chart-source", "foreign-oci", "OCI, version 1.2.3"),
    ] {
        let about = format!("Application argocd/{name}");
        let of_it = |hazard: &&Value| hazard["kind"] == kind && hazard["about"] == about.as_str();
        let told: Vec<&Value> = adopted["hazards"].as_array().unwrap().iter().filter(of_it).collect();
        assert!(told.len() == 1 && told[0]["detail"] == detail, "{kind} of {name}: {told:?}");
    }
    let graph = std::fs::read_to_string(target.join("graph.yaml")).unwrap();
    let foreign = graph.lines().filter(|line| line.contains("/foreign-") && line.contains("application:")).count();
    assert_eq!(foreign, foreign::APPLICATIONS, "{graph}");
    let ended = |code: i32, command: &[&str]| {
        let ended = forge(&platform.binary, &reader, &target, command);
        assert_eq!(ended.code, code, "{command:?}: {}{}", ended.stdout, ended.stderr);
        ended.stdout
    };
    ended(0, &["lint"]);
    let graph: Value = serde_json::from_str(&ended(0, &["graph", "--output", "json"])).unwrap();
    let before: BTreeMap<&str, Vec<&str>> = graph["nodes"].as_array().unwrap().iter().map(predecessors).collect();
    for (later, earlier) in [
        // By sync waves, below one parent and below a parent of parents; the former also with an ApplicationSet between them.
        ("foreign-portal", "foreign-gadgets"),
        ("foreign-dashboards", "foreign-widgets"),
        // By a step.
        ("foreign-shop-staging", "foreign-shop-dev"),
    ] {
        let [later, earlier] = [later, earlier].map(|name| format!("argocd/{name}"));
        assert!(waits_for(&before, &later, &earlier), "{later} {earlier}: {before:#?}");
        assert!(!waits_for(&before, &earlier, &later), "{later} {earlier}: {before:#?}");
    }
    let environment = adopted["environment"].as_str().unwrap();
    ended(0, &["plan", "--simulate", "--environment", environment]);
    // Whether a run has proven them is not known without the records of runs, so nothing is well.
    let status = ended(2, &["status", "--environment", environment]);
    assert!(status.contains("Synced and Healthy") && status.contains("argocd/foreign-degraded"), "{status}");
    let words = "jsonpath={.status.sync.status}, {.status.health.status}";
    let words = sandbox.kubectl(&["get", "application", "foreign-degraded", "-n", "argocd", "-o", words]);
    let why = ended(0, &["why", "foreign-degraded", "--environment", environment]);
    assert!(why.contains(&words) && why.contains("told by Argo CD alone"), "{words}\n{why}");
    assert_eq!(tried(sandbox, since, "adopter"), Vec::<String>::new());
    sandbox.try_kubectl(&["delete", "-f", "-", "--wait=false"], Some(&foreign::manifests(url)));
}

/// A node of `graph --output json`, and the nodes that it waits for.
fn predecessors(node: &Value) -> (&str, Vec<&str>) {
    let before = node["predecessors"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    (node["id"].as_str().unwrap(), before)
}

/// Whether a node waits for another one, be it by way of others.
fn waits_for(before: &BTreeMap<&str, Vec<&str>>, node: &str, awaited: &str) -> bool {
    let (mut seen, mut open) = (BTreeSet::new(), vec![node]);
    while let Some(at) = open.pop() {
        if seen.insert(at) {
            open.extend(before.get(at).into_iter().flatten());
        }
    }
    node != awaited && seen.contains(awaited)
}
