//! The last environment of a cluster goes, and with it everything that bootstrap installed, on the bare cluster that `install` has
//! too. `tools/cluster` takes the sandbox down afterwards.
//!
//! `FORGE_CYCLES` says how often a platform comes and goes: `make soak` sets it.

use std::io::Write as _;
use std::process::{Command, Stdio};

use forge_testkit::campaign::number;
use forge_testkit::sandbox::{Ended, eventually, run};
use serde_json::{Value, json};

use crate::install::{Bare, points, writes};
use crate::stage::PATIENCE;

/// What a cluster has, of kinds that no namespace takes along, and its namespaces.
fn cluster_wide(bare: &Bare) -> String {
    let kinds = "crd,namespaces,clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,persistentvolumes";
    bare.sandbox().kubectl(&["get", kinds, "-o", "name"])
}

fn command(bare: &Bare) -> Command {
    let name = bare.environment.name.as_str();
    // Who was killed holds the Lease until it has run out.
    let arguments = ["platform", "teardown", "-e", name, "--confirm", name, "--wait", "-o", "json"];
    let mut command = bare.forge(bare.environment.repository.folder(), &arguments);
    command.arg("--helm").arg(&bare.sandbox().helm);
    command
}

fn teardown(bare: &Bare) -> Ended {
    run(&mut command(bare), None)
}

/// From nothing to a platform and back to nothing; gives the report of the removal.
fn cycle(bare: &Bare) -> Value {
    come(bare);
    let report = go(bare);
    assert_eq!(report["statistics"]["gone"], 2, "{report:#}");
    report
}

/// From nothing to a platform, whose namespaces are Forge's.
fn come(bare: &Bare) {
    let sandbox = bare.sandbox();
    let made = bare.bootstrap(&[], None);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let file = bare.environment.repository.folder().join("argocd/applications.yaml");
    sandbox.kubectl(&["apply", "--server-side", "-f", &file.to_string_lossy()]);
    let deployed = bare.environment.forge(&["platform", "deploy"], PATIENCE);
    assert_eq!(deployed.code, 0, "{}\n{}", deployed.stdout, deployed.stderr);
    let name = bare.environment.name.clone();
    for node in ["first", "second"] {
        let namespace = format!("{name}-{node}");
        let environment = format!("forge.projectcatalyst.io/environment={name}");
        sandbox.kubectl(&["label", "namespace", &namespace, "app.kubernetes.io/managed-by=forge", &environment]);
    }
}

/// Back to nothing; gives the report.
fn go(bare: &Bare) -> Value {
    let ended = teardown(bare);
    assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(report["statistics"]["gone"], report["statistics"]["nodes"], "{report:#}");
    // Complete lists of everything, held against the snapshot of phase 0.
    let left = &report["cleanExit"];
    assert_eq!((&left["verdict"], &left["orphaned"]), (&json!("clean"), &json!([])), "{report:#}");
    assert!(left["snapshot"].is_string(), "{report:#}");
    report
}

#[test]
fn with_the_last_environment_argo_and_its_definitions_go_and_a_second_time_nothing_is_there() {
    let bare = Bare::up();
    bare.clear();
    let before = cluster_wide(&bare);
    come(&bare);
    // Nodes and part of Argo are gone; the next one goes on from there.
    assert_eq!(killed(&bare, "helm uninstall argo-cd"), Some(()));
    let report = go(&bare);
    assert_eq!(before, cluster_wide(&bare), "{report:#}");
    let again = teardown(&bare);
    assert_eq!(again.code, 0, "{}\n{}", again.stdout, again.stderr);
    assert!(again.stdout.contains("nothing was there to remove"), "{}", again.stdout);
}

/// Dies before this write; nothing where it came to its end without it.
fn killed(bare: &Bare, point: &str) -> Option<()> {
    let ended = run(command(bare).env("FORGE_FAILPOINT", point), None);
    assert!([-1, 0].contains(&ended.code), "{point}: {}\n{}", ended.stdout, ended.stderr);
    (ended.code == -1).then_some(())
}

/// Told to stop when the last node is gone and its namespace is not: what all environments share stays for the next one.
fn interrupted(bare: &Bare) {
    let (sandbox, place) = (bare.sandbox(), format!("{}-first", bare.environment.name));
    let held = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "name": "held", "namespace": place, "labels": {"app.kubernetes.io/managed-by": "forge"},
        "finalizers": ["sample.example.com/later"],
    }});
    let made = sandbox.try_kubectl(&["create", "-f", "-"], Some(&held.to_string()));
    assert_eq!(made.code, 0, "{}", made.stderr);
    let mut child = command(bare).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    eventually("its namespace is being deleted", PATIENCE, || {
        let found = bare.json(&["get", "namespace", &place]);
        let going = found["metadata"]["deletionTimestamp"].is_string();
        if going { Ok(()) } else { Err(found["status"].to_string()) }
    });
    let told = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(told.success());
    let free = r#"{"metadata":{"finalizers":null}}"#;
    sandbox.kubectl(&["patch", "configmap", "held", "-n", &place, "--type=merge", "-p", free]);
    let ended = eventually("it stops", PATIENCE, || child.try_wait().unwrap().ok_or_else(String::new));
    assert_eq!(ended.code(), Some(2));
    for namespace in ["argocd", "argo"] {
        let found = bare.json(&["get", "namespace", namespace]);
        assert!(found["metadata"]["deletionTimestamp"].is_null(), "{found:#}");
    }
}

#[test]
#[ignore = "takes half an hour; tools/soak runs it"]
fn however_often_a_platform_comes_and_goes_nothing_grows() {
    let cycles: u64 = number("FORGE_CYCLES", 10);
    let bare = Bare::up();
    bare.clear();
    let before = cluster_wide(&bare);
    for round in 0..cycles {
        let report = if round == 0 {
            come(&bare);
            interrupted(&bare);
            go(&bare)
        } else {
            cycle(&bare)
        };
        assert_eq!(before, cluster_wide(&bare), "cycle {round}: {report:#}");
    }
}

/// One removal dies before each of its writes in turn: every process goes on where the one before it died. What a process that
/// goes on does not write again is not met by it; then a platform comes anew for the points that are left.
#[test]
#[ignore = "takes over an hour; tools/soak runs it"]
fn killed_before_any_write_of_a_removal_the_next_one_goes_on_and_nothing_is_left() {
    let bare = Bare::up();
    bare.clear();
    let before = cluster_wide(&bare);
    come(&bare);
    let points = points(&writes(command(&bare), 0));
    assert_eq!(before, cluster_wide(&bare));
    // An account is made for it, what bootstrap made goes, three releases, definitions, namespaces.
    let of = |start: &str| points.iter().filter(|point| point.starts_with(start)).count();
    assert_eq!(of("helm uninstall "), 3, "{points:?}");
    let starts = ["the Secret of a teardown", "CustomResourceDefinition/", "Namespace/"];
    assert!(starts.iter().all(|start| of(start) > 0), "{points:?}");
    come(&bare);
    let mut met = 0;
    for (at, point) in (1..).zip(&points) {
        let died = killed(&bare, point).is_some();
        let _ = writeln!(
            std::io::stderr(),
            "removal: point {at} of {}, {point}: {}",
            points.len(),
            if died { "died" } else { "not met" }
        );
        met += usize::from(died);
        if !died {
            assert_eq!(before, cluster_wide(&bare), "after {point}");
            come(&bare);
        }
    }
    let report = go(&bare);
    assert_eq!(before, cluster_wide(&bare), "{report:#}");
    let _ = writeln!(std::io::stderr(), "removal: died before {met} of {} writes", points.len());
    assert!(2 * met > points.len(), "{met} of {points:?}");
}
