//! The last environment of a cluster goes, and with it everything that bootstrap installed, on the bare cluster that `install` has
//! too. `tools/cluster` takes the sandbox down afterwards.
//!
//! `FORGE_CYCLES` says how often a platform comes and goes: `make soak` sets it.

use forge_testkit::campaign::number;
use forge_testkit::sandbox::{Ended, run};
use serde_json::{Value, json};

use crate::install::Bare;
use crate::stage::PATIENCE;

/// What a cluster has, of kinds that no namespace takes along, and its namespaces.
fn cluster_wide(bare: &Bare) -> String {
    let kinds = "crd,namespaces,clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,persistentvolumes";
    bare.sandbox().kubectl(&["get", kinds, "-o", "name"])
}

fn teardown(bare: &Bare) -> Ended {
    let name = bare.environment.name.as_str();
    let arguments = ["platform", "teardown", "-e", name, "--confirm", name, "-o", "json"];
    let mut command = bare.forge(bare.environment.repository.folder(), &arguments);
    run(command.arg("--helm").arg(&bare.sandbox().helm), None)
}

/// From nothing to a platform and back to nothing; gives the report of the removal.
fn cycle(bare: &Bare) -> Value {
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
    let ended = teardown(bare);
    assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(report["statistics"]["gone"], 2, "{report:#}");
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
    let report = cycle(&bare);
    assert_eq!(before, cluster_wide(&bare), "{report:#}");
    let again = teardown(&bare);
    assert_eq!(again.code, 0, "{}\n{}", again.stdout, again.stderr);
    assert!(again.stdout.contains("nothing was there to remove"), "{}", again.stdout);
}

#[test]
#[ignore = "takes half an hour; tools/soak runs it"]
fn however_often_a_platform_comes_and_goes_nothing_grows() {
    let cycles: u64 = number("FORGE_CYCLES", 10);
    let bare = Bare::up();
    bare.clear();
    let before = cluster_wide(&bare);
    for round in 0..cycles {
        let report = cycle(&bare);
        assert_eq!(before, cluster_wide(&bare), "cycle {round}: {report:#}");
    }
}
