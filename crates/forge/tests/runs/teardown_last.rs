//! The last environment of a cluster goes, and with it everything that bootstrap installed, on the bare cluster that `install` has
//! too. `tools/cluster` takes the sandbox down afterwards.

use forge_testkit::sandbox::run;

use crate::install::Bare;
use crate::stage::PATIENCE;

#[test]
fn with_the_last_environment_argo_and_its_definitions_go_and_a_second_time_nothing_is_there() {
    let bare = Bare::up();
    bare.clear();
    let sandbox = bare.sandbox();
    let before = sandbox.kubectl(&["get", "crd,namespaces,clusterroles,clusterrolebindings", "-o", "name"]);
    let made = bare.bootstrap(&[], None);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let folder = bare.environment.repository.folder();
    let file = folder.join("argocd/applications.yaml");
    sandbox.kubectl(&["apply", "--server-side", "-f", &file.to_string_lossy()]);
    let deployed = bare.environment.forge(&["platform", "deploy"], PATIENCE);
    assert_eq!(deployed.code, 0, "{}\n{}", deployed.stdout, deployed.stderr);
    let name = bare.environment.name.clone();
    for node in ["first", "second"] {
        let namespace = format!("{name}-{node}");
        let environment = format!("forge.projectcatalyst.io/environment={name}");
        sandbox.kubectl(&["label", "namespace", &namespace, "app.kubernetes.io/managed-by=forge", &environment]);
    }
    let teardown = || {
        let mut command = bare.forge(folder, &["platform", "teardown", "-e", &name, "--confirm", &name, "-o", "json"]);
        run(command.arg("--helm").arg(&sandbox.helm), None)
    };
    let ended = teardown();
    assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(report["statistics"]["gone"], 2, "{report:#}");
    let after = sandbox.kubectl(&["get", "crd,namespaces,clusterroles,clusterrolebindings", "-o", "name"]);
    assert_eq!(before, after, "{report:#}");
    let again = teardown();
    assert_eq!(again.code, 0, "{}\n{}", again.stdout, again.stderr);
    assert!(again.stdout.contains("nothing was there to remove"), "{}", again.stdout);
}
