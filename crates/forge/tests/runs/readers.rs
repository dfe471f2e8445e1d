//! What people with few rights can do: adopt an Argo CD, look at runs, and be refused clearly.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use forge_testkit::foreign;
use forge_testkit::platform::{Platform, attempts, mark};
use forge_testkit::sandbox::{Ended, Sandbox, run};
use forge_testkit::twin::{TwinNode, config_map, push};
use serde_json::{Value, json};

use crate::stage::Stage;

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
    let refused = forge(binary, &reader, repository, &[&["platform", "deploy"], &environment[..]].concat());
    assert_eq!(refused.code, 6, "{}", refused.stderr);
    assert!(refused.stderr.contains("FORGE-D002") && refused.stderr.contains("secrets"), "{}", refused.stderr);
    for command in [&["status"][..], &["history"], &["why", &stage.options.id("app")]] {
        let ended = forge(binary, &reader, repository, &[command, &environment].concat());
        assert_eq!(ended.code, 0, "{command:?}: {}{}", ended.stdout, ended.stderr);
    }
    assert_eq!(tried(sandbox, since, &name), Vec::<String>::new());
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
    forge_testkit::sandbox::eventually("the foreign applications are there", Duration::from_secs(90), || {
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
    let adopted = forge(&platform.binary, &reader, folder.path(), &["adopt", &target.to_string_lossy()]);
    assert_eq!(adopted.code, 0, "{}{}", adopted.stdout, adopted.stderr);
    assert_eq!(tried(sandbox, since, "adopter"), Vec::<String>::new());
    let graph = std::fs::read_to_string(target.join("graph.yaml")).unwrap();
    let foreign = graph.lines().filter(|line| line.contains("/foreign-") && line.contains("application:")).count();
    assert_eq!(foreign, foreign::APPLICATIONS, "{graph}");
    for command in [&["lint"][..], &["graph"]] {
        let ended = forge(&platform.binary, &reader, &target, command);
        assert_eq!(ended.code, 0, "{command:?}: {}{}", ended.stdout, ended.stderr);
    }
    let text = std::fs::read_to_string(target.join("forge.yaml")).unwrap();
    let environment = text.lines().find_map(|line| line.split("name: ").nth(1)).unwrap();
    let environment = environment.split([',', '}', ' ']).next().unwrap().to_owned();
    let simulated = forge(&platform.binary, &reader, &target, &["plan", "--simulate", "--environment", &environment]);
    assert_eq!(simulated.code, 0, "{}{}", simulated.stdout, simulated.stderr);
    sandbox.try_kubectl(&["delete", "-f", "-", "--wait=false"], Some(&foreign::manifests(url)));
}
