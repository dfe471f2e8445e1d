//! The driver itself, on a real sandbox with the real Argo: that it deploys, sees, judges and cleans up. Syncs are asked for
//! by the test, in the right order and in a wrong one.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forge_testkit::order::{self, Why};
use forge_testkit::platform::{Environment, Platform};
use forge_testkit::sandbox::{eventually, run};
use forge_testkit::twin::{self, TwinNode, config_map, deployment, kwok_deployment};

const PATIENCE: Duration = Duration::from_secs(120);

/// Three nodes in a row: a real pod, a simulated one, a ConfigMap.
fn row(environment: &Environment) -> BTreeMap<String, BTreeSet<String>> {
    let image = &environment.platform.sample;
    let nodes = [
        TwinNode::new("base", &[], vec![deployment("base", image, 3, &[])]),
        TwinNode::new("side", &["base"], vec![kwok_deployment("side", image, 3, false)]),
        TwinNode::new("top", &["side"], vec![config_map("top", "first")]),
    ];
    let commit = environment.push(&twin::small(&environment.options(), &nodes), "three nodes");
    assert_eq!(commit.len(), 40);
    environment.apply();
    let name = |node: &str| environment.options().application(node);
    [("side", "base"), ("top", "side")]
        .into_iter()
        .map(|(node, before)| (name(node), BTreeSet::from([name(before)])))
        .collect()
}

/// Starts a sync as `kubectl` can: by writing the operation into the Application. Options of the Application count only
/// for syncs through Argo CD's server, so they are repeated.
fn sync(environment: &Environment, node: &str) {
    let operation = r#"{"operation":{"initiatedBy":{"username":"test"},"sync":{"prune":true,"syncOptions":["CreateNamespace=true"]}}}"#;
    let name = environment.options().application(node);
    let sandbox = &environment.platform.sandbox;
    sandbox.kubectl(&["patch", "application", &name, "-n", "argocd", "--type=merge", "-p", operation]);
}

fn healthy(environment: &Environment, node: &str) {
    eventually(&format!("{node} is healthy"), PATIENCE, || {
        let status = environment.application(node)["status"].clone();
        let well = status["health"]["status"] == "Healthy" && status["operationState"]["phase"] == "Succeeded";
        if well { Ok(()) } else { Err(status.to_string()) }
    });
}

#[test]
fn a_run_in_order_breaks_no_edge_and_leaves_nothing_behind() {
    let environment = Platform::shared().environment("in-order");
    let predecessors = row(&environment);
    let linted = environment.forge(&["lint"], PATIENCE);
    assert_eq!(linted.code, 0, "{}{}", linted.stdout, linted.stderr);
    let recorder = environment.record();
    for node in ["base", "side", "top"] {
        sync(&environment, node);
        healthy(&environment, node);
    }
    let facts = environment.facts(&predecessors, recorder, &[], true);
    assert_eq!(order::violations(&facts), [], "{facts:#?}");
    assert_eq!(order::edges_judged(&facts), 2, "{facts:#?}");
    let (name, sandbox) = (environment.name.clone(), &environment.platform.sandbox);
    drop(environment);
    eventually("everything of the environment is gone", PATIENCE, || {
        let found = sandbox.kubectl(&["get", "applications,appprojects,namespaces", "-A", "-o", "name"]);
        if found.contains(&name) { Err(found) } else { Ok(()) }
    });
}

#[test]
fn a_run_out_of_order_is_found_out() {
    let environment = Platform::shared().environment("disorder");
    let predecessors = row(&environment);
    let recorder = environment.record();
    for node in ["base", "side", "top"] {
        sync(&environment, node);
    }
    for node in ["base", "side", "top"] {
        healthy(&environment, node);
    }
    let facts = environment.facts(&predecessors, recorder, &[], true);
    let found = order::violations(&facts);
    assert_eq!(found.len(), 2, "{facts:#?}");
    assert!(found.iter().all(|violation| !matches!(violation.why, Why::NeverDeployed)), "{found:?}");
}

#[test]
fn pods_run_the_forge_that_is_tested() {
    let platform = Platform::shared();
    let space = platform.sandbox.kubectl(&["get", "namespace", "argo", "-o", "name"]);
    assert_eq!(space.trim(), "namespace/argo");
    let name = format!("forge-version-{}", std::process::id());
    let sandbox = &platform.sandbox;
    let image = format!("--image={}", platform.image());
    sandbox.kubectl(&["run", &name, "-n", "argo", &image, "--restart=Never", "--command", "--", "forge", "--version"]);
    let pod = format!("pod/{name}");
    sandbox.kubectl(&["wait", &pod, "-n", "argo", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s"]);
    let here = run(std::process::Command::new(&platform.binary).arg("--version"), None).stdout;
    assert_eq!(sandbox.kubectl(&["logs", &name, "-n", "argo"]), here);
    sandbox.kubectl(&["delete", &pod, "-n", "argo", "--wait=false"]);
}
