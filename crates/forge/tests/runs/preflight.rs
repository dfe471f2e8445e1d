//! Phase 0 on a real cluster: fourteen ways to be unready that can be planted without disturbing anybody. What cannot be planted in
//! the cluster itself, its age and its clock, is planted in what it answers. All of them, also those that cannot, are in
//! `tests/preflight.rs`, against a server of our own; `docs/guides/bootstrap.md` lists them.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use forge_testkit::http::{Change, serve_changed};
use forge_testkit::platform::{Platform, attempts, mark, merge};
use forge_testkit::sandbox::{Ended, Sandbox, eventually, run};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::readers::kubeconfig;
use crate::stage::PATIENCE;

const EXISTING: &str = "{cd: existing, workflows: existing, events: none}";
/// No such image is anywhere.
const NOWHERE: &str =
    "registry.sandbox.internal/forge/nowhere@sha256:0000000000000000000000000000000000000000000000000000000000000000";

/// A folder with a repository of one application.
fn folder(argo: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let header = "apiVersion: forge.projectcatalyst.io/v1alpha1\n";
    let installation = format!(
        "{header}kind: Forge\nspec:\n  repository: {{url: https://git.example.com/p.git}}\n  argo: {argo}\n  environments: [{{name: preflight, cluster: in-cluster, sync: manual}}]\n"
    );
    let graph = format!(
        "{header}kind: DependencyGraph\nspec:\n  stacks: [{{name: base, apps: [{{application: argocd/one}}]}}]\n"
    );
    std::fs::write(folder.path().join("forge.yaml"), installation).unwrap();
    std::fs::write(folder.path().join("graph.yaml"), graph).unwrap();
    folder
}

fn forge(platform: &Platform, kubeconfig: &Path, folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(&platform.binary);
    command.arg("preflight").args(arguments).current_dir(folder);
    command.env("KUBECONFIG", kubeconfig).env("NO_COLOR", "1").env_remove("FORGE_ENVIRONMENT");
    command
}

/// Checks the shared cluster with all rights; gives how it ended, and its report.
fn check(argo: &str, arguments: &[&str]) -> (Ended, Value) {
    checked(&Platform::shared().sandbox.kubeconfig, argo, arguments)
}

/// The same with this kubeconfig.
fn checked(kubeconfig: &Path, argo: &str, arguments: &[&str]) -> (Ended, Value) {
    let folder = folder(argo);
    let arguments = [&["--output", "json"], arguments].concat();
    let ended = run(&mut forge(Platform::shared(), kubeconfig, folder.path(), &arguments), None);
    let report = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {}", ended.stderr));
    (ended, report)
}

fn finding<'r>(report: &'r Value, check: &str, severity: &str) -> &'r Value {
    let mut findings = report["findings"].as_array().unwrap().iter();
    findings
        .find(|finding| finding["check"] == check && finding["severity"] == severity)
        .unwrap_or_else(|| panic!("no {severity} finding of {check}: {report:#}"))
}

/// The namespace that a check said it starts its pod in.
fn namespace(stderr: &str) -> String {
    let line = stderr.lines().find_map(|line| line.strip_prefix("starting a pod in namespace `"));
    line.unwrap_or_else(|| panic!("no pod was started: {stderr}")).trim_end_matches('`').to_owned()
}

fn is_gone(sandbox: &Sandbox, namespace: &str) {
    let found = sandbox.kubectl(&["get", "namespace", namespace, "--ignore-not-found", "-o", "name"]);
    assert_eq!(found.trim(), "");
}

/// Undoes what a test planted in a cluster that others share, whatever becomes of the test.
pub(crate) struct Undo(&'static Sandbox, Vec<Vec<String>>);

impl Drop for Undo {
    fn drop(&mut self) {
        for arguments in &self.1 {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            self.0.try_kubectl(&arguments, None);
        }
    }
}

pub(crate) fn undo(commands: &[&[&str]]) -> Undo {
    let owned = |command: &&[&str]| command.iter().map(|word| (*word).to_owned()).collect();
    Undo(&Platform::shared().sandbox, commands.iter().map(owned).collect())
}

/// `kubectl proxy`: the API server without TLS, with all rights, until the test ends.
struct Bridge(Child);

impl Drop for Bridge {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Bridge {
    /// Gives its address too.
    fn up(sandbox: &Sandbox) -> (Self, String) {
        let mut command = Command::new(&sandbox.kubectl);
        command.args(["proxy", "--port=0"]).env("KUBECONFIG", &sandbox.kubeconfig).stdout(Stdio::piped());
        let mut bridge = Self(command.spawn().unwrap());
        let mut said = String::new();
        BufReader::new(bridge.0.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let address = said.trim().rsplit(' ').next().unwrap().to_owned();
        assert!(address.starts_with("127.0.0.1:"), "{said}");
        (bridge, address)
    }
}

/// Checks the shared cluster, whose answers are changed on their way to us, and to nobody else.
fn checked_through(change: impl Change) -> (Ended, Value) {
    let (_bridge, address) = Bridge::up(&Platform::shared().sandbox);
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "changed",
        "clusters": [{"name": "changed", "cluster": {"server": serve_changed(&address, change).unwrap()}}],
        "contexts": [{"name": "changed", "context": {"cluster": "changed", "user": "nobody"}}],
        "users": [{"name": "nobody", "user": {}}],
    });
    std::fs::write(&kubeconfig, config.to_string()).unwrap();
    checked(&kubeconfig, EXISTING, &["--image", Platform::shared().image()])
}

/// It says that it is of another age.
struct Aged;

impl Change for Aged {
    fn wants(&self, uri: &str) -> bool {
        uri == "/version"
    }
    fn head(&self, line: &str) -> String {
        line.to_owned()
    }
    fn body(&self, _: &str, content: Vec<u8>) -> Vec<u8> {
        let mut said: Value = serde_json::from_slice(&content).unwrap();
        assert_eq!(said["major"], "1", "{said}");
        said["minor"] = json!("27");
        said["gitVersion"] = json!("v1.27.16");
        said.to_string().into_bytes()
    }
}

/// Its clock is so many seconds ahead, in every answer.
struct Skewed(i64);

impl Change for Skewed {
    fn wants(&self, _: &str) -> bool {
        false
    }
    fn head(&self, line: &str) -> String {
        let Some(("date", _)) = line.to_ascii_lowercase().split_once(':') else { return line.to_owned() };
        let date = Timestamp::now().checked_add(SignedDuration::from_secs(self.0)).unwrap();
        format!("Date: {}", date.strftime("%a, %d %b %Y %H:%M:%S GMT"))
    }
    fn body(&self, _: &str, content: Vec<u8>) -> Vec<u8> {
        content
    }
}

#[test]
fn a_kubernetes_that_is_too_old_is_told_with_its_version_and_nothing_is_left() {
    let (ended, report) = checked_through(Aged);
    assert_eq!(ended.code, 3, "{report:#}\n{}", ended.stderr);
    let version = finding(&report, "version", "blocking");
    assert!(version.to_string().contains("1.27"), "{version:#}");
    assert!(version["fix"].as_str().unwrap().contains("upgrade the cluster"), "{version:#}");
    assert_eq!(version["code"], "FORGE-B003", "{version:#}");
    is_gone(&Platform::shared().sandbox, &namespace(&ended.stderr));
}

#[test]
fn an_account_without_rights_is_told_which_it_lacks_and_nothing_is_tried() {
    let platform = Platform::shared();
    let sandbox = &platform.sandbox;
    let account = format!("preflight-{}", std::process::id());
    let _undo = undo(&[&["delete", "serviceaccount", &account, "-n", "default"]]);
    sandbox.kubectl(&["create", "serviceaccount", &account, "-n", "default"]);
    let folder = folder(EXISTING);
    let reader = kubeconfig(sandbox, folder.path(), "default", &account);
    let since = mark();
    let arguments = ["--image", platform.image(), "--output", "json"];
    let ended = run(&mut forge(platform, &reader, folder.path(), &arguments), None);
    assert_eq!(ended.code, 3, "{}\n{}", ended.stdout, ended.stderr);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let rights = finding(&report, "rights", "blocking");
    let evidence = rights["evidence"].to_string();
    assert!(
        evidence.contains("clusterworkflowtemplates.argoproj.io") && evidence.contains("secrets in `argocd`"),
        "{evidence}"
    );
    assert!(rights["fix"].as_str().unwrap().contains(&format!("--serviceaccount=default:{account}")), "{rights}");
    let tried: Vec<String> = attempts(sandbox, since)
        .into_iter()
        .filter(|line| line.user.ends_with(&format!(":{account}")) && !line.resource.starts_with("selfsubject"))
        .map(|line| format!("{line:?}"))
        .collect();
    assert_eq!(tried, Vec::<String>::new());
}

#[test]
fn an_image_that_cannot_be_pulled_is_told_in_the_registrys_words_and_nothing_is_left() {
    let sandbox = &Platform::shared().sandbox;
    // A host of its own whose last resort is the sandbox's registry too: of others the runtime tells that last resort's words.
    let host = format!("without-{}.example.com", std::process::id());
    let default = std::fs::read_to_string(registries(sandbox).join("_default/hosts.toml")).unwrap();
    let address = default.split('"').nth(1).unwrap();
    let _planted = Planted::new(sandbox, &host, address);
    let (ended, report) = check(EXISTING, &["--image", &format!("{host}/forge@{}", no_digest())]);
    assert_eq!(ended.code, 3, "{report:#}\n{}", ended.stderr);
    let image = finding(&report, "image", "blocking");
    assert!(image["evidence"].to_string().contains("not found"), "{image:#}");
    assert!(image["fix"].as_str().unwrap().contains("push the image"), "{image:#}");
    is_gone(sandbox, &namespace(&ended.stderr));
}

/// A digest that no image has.
fn no_digest() -> String {
    format!("sha256:{}", "0".repeat(64))
}

/// Where the runtime of the sandbox's node looks, at every pull, for who serves a registry.
fn registries(sandbox: &Sandbox) -> PathBuf {
    // Folder of the sandbox, its `pki`, the file.
    let folder = sandbox.kubeconfig.ancestors().nth(2).unwrap().join("etc/certs.d");
    assert!(folder.is_dir(), "{}", folder.display());
    folder
}

/// Who serves a registry, until the test ends.
struct Planted(PathBuf);

impl Planted {
    fn new(sandbox: &Sandbox, registry: &str, address: &str) -> Self {
        let planted = Self(registries(sandbox).join(registry));
        std::fs::create_dir(&planted.0).unwrap();
        let hosts = format!("server = \"{address}\"\n[host.\"{address}\"]\n  capabilities = [\"pull\", \"resolve\"]\n");
        std::fs::write(planted.0.join("hosts.toml"), hosts).unwrap();
        planted
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_registry_that_nodes_do_not_reach_is_told_as_that_and_nothing_is_left() {
    let sandbox = &Platform::shared().sandbox;
    let registry = format!("unreachable-{}.example.com", std::process::id());
    let _planted = Planted::new(sandbox, &registry, "http://127.0.0.1:1");
    let (ended, report) = check(EXISTING, &["--image", &format!("{registry}/forge@{}", no_digest())]);
    assert_eq!(ended.code, 3, "{report:#}\n{}", ended.stderr);
    let image = finding(&report, "image", "blocking");
    assert!(image["evidence"].to_string().contains("connection refused"), "{image:#}");
    assert!(image["fix"].as_str().unwrap().contains("reach the registry"), "{image:#}");
    is_gone(sandbox, &namespace(&ended.stderr));
}

#[test]
fn an_image_that_a_node_has_already_does_not_hide_a_registry_that_is_away() {
    let sandbox = &Platform::shared().sandbox;
    let registry = format!("cached-{}.example.com", std::process::id());
    let (_, name) = Platform::shared().image().split_once('/').unwrap();
    let image = format!("{registry}/{name}");
    // From here on the node has it.
    let (_, report) = check(EXISTING, &["--image", &image]);
    let pulled = |checked: &Value| checked["check"] == "image" && checked["result"] == "passed";
    assert!(report["checks"].as_array().unwrap().iter().any(pulled), "{report:#}");
    let _planted = Planted::new(sandbox, &registry, "http://127.0.0.1:1");
    let (ended, report) = check(EXISTING, &["--image", &image]);
    assert_eq!(ended.code, 3, "{report:#}\n{}", ended.stderr);
    let image = finding(&report, "image", "blocking");
    assert!(image["evidence"].to_string().contains("connection refused"), "{image:#}");
    is_gone(sandbox, &namespace(&ended.stderr));
}

#[test]
fn a_policy_of_the_cluster_that_refuses_the_pod_is_told_in_its_own_words() {
    let sandbox = &Platform::shared().sandbox;
    let name = format!("preflight-refused-{}", std::process::id());
    let _undo = undo(&[
        &["delete", "validatingadmissionpolicybinding", &name, "--ignore-not-found"],
        &["delete", "validatingadmissionpolicy", &name, "--ignore-not-found"],
    ]);
    // It knows the pod by its image, so that it concerns nobody else's.
    let image = format!("{name}.example.com/forge@{}", no_digest());
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Ignore",
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]},
            ]},
            "validations": [{
                "expression": format!("object.spec.containers.all(c, !c.image.startsWith('{name}.example.com/'))"),
                "message": "images come from elsewhere",
            }],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]},
    });
    for object in [policy, binding] {
        let made = sandbox.try_kubectl(&["apply", "--server-side", "-f", "-"], Some(&object.to_string()));
        assert_eq!(made.code, 0, "{}", made.stderr);
    }
    eventually("the policy holds", PATIENCE, || {
        let tried = sandbox.try_kubectl(&["run", &name, "-n", "default", "--dry-run=server", "--image", &image], None);
        if tried.stderr.contains("images come from elsewhere") { Ok(()) } else { Err(tried.stderr) }
    });
    let (ended, report) = check(EXISTING, &["--image", &image]);
    assert_eq!(ended.code, 3, "{report:#}\n{}", ended.stderr);
    let pod = finding(&report, "pod", "blocking");
    assert!(pod["evidence"].to_string().contains("images come from elsewhere"), "{pod:#}");
    assert!(pod["fix"].as_str().unwrap().contains("app.kubernetes.io/managed-by: forge"), "{pod:#}");
    is_gone(sandbox, &namespace(&ended.stderr));
}

#[test]
fn credentials_that_are_not_accepted_are_told_and_nothing_more_is_asked() {
    let platform = Platform::shared();
    let folder = folder(EXISTING);
    // The sandbox writes JSON.
    let text = std::fs::read_to_string(&platform.sandbox.kubeconfig).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    config["users"][0]["user"] = json!({"token": "nobody"});
    let stranger = folder.path().join("stranger.kubeconfig");
    std::fs::write(&stranger, config.to_string()).unwrap();
    let arguments = ["--image", platform.image(), "--output", "json"];
    let ended = run(&mut forge(platform, &stranger, folder.path(), &arguments), None);
    assert_eq!(ended.code, 3, "{}\n{}", ended.stdout, ended.stderr);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let api = finding(&report, "api", "blocking");
    assert!(api["fix"].as_str().unwrap().contains("kubectl auth whoami"), "{api:#}");
    assert_eq!(report["checks"].as_array().map(Vec::len), Some(1), "{report:#}");
}

#[test]
fn a_quota_that_leaves_no_room_for_a_run_blocks() {
    let sandbox = &Platform::shared().sandbox;
    let name = format!("preflight-quota-{}", std::process::id());
    let _undo = undo(&[&["delete", "namespace", &name, "--wait=false"]]);
    sandbox.kubectl(&["create", "namespace", &name]);
    sandbox.kubectl(&["create", "quota", "small", "-n", &name, "--hard=pods=1"]);
    let image = Platform::shared().image();
    let (ended, report) = check(EXISTING, &["--image", image, "--workflows-namespace", &name]);
    assert_eq!(ended.code, 3, "{report:#}\n{}", ended.stderr);
    let limits = finding(&report, "limits", "blocking");
    assert!(limits["fix"].as_str().unwrap().contains("describe quota small"), "{limits:#}");
    is_gone(sandbox, &namespace(&ended.stderr));
}

#[test]
fn an_argo_that_is_somebody_elses_and_one_that_is_not_there_are_found_together() {
    let argo = "{cd: install, workflows: existing, events: existing}";
    let (ended, report) = check(argo, &["--image", Platform::shared().image()]);
    assert_eq!(ended.code, 3, "{report:#}\n{}", ended.stderr);
    let theirs = finding(&report, "argo-cd", "blocking");
    assert!(theirs["what"].as_str().unwrap().contains("made by Helm release argocd/argo-cd"), "{theirs:#}");
    assert!(theirs["fix"].as_str().unwrap().contains("argo: {cd: existing}"), "{theirs:#}");
    let absent = finding(&report, "argo-events", "blocking");
    assert!(absent["fix"].as_str().unwrap().contains("argo: {events: install}"), "{absent:#}");
    is_gone(&Platform::shared().sandbox, &namespace(&ended.stderr));
}

#[test]
fn an_interrupt_while_the_pod_starts_leaves_nothing() {
    let platform = Platform::shared();
    let sandbox = &platform.sandbox;
    let folder = folder(EXISTING);
    let log = folder.path().join("stderr");
    let mut command = forge(platform, &sandbox.kubeconfig, folder.path(), &["--image", NOWHERE]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(std::fs::File::create(&log).unwrap());
    let child = command.spawn().unwrap();
    let said = || std::fs::read_to_string(&log).unwrap();
    eventually("the pod is on its way", PATIENCE, || {
        if said().contains("waiting for the pod") { Ok(()) } else { Err(said()) }
    });
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    // What the owner of Argo CD has not made blocks already; that it was cut off is told beside it.
    let report = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{report}\n{}", said());
    assert!(report.contains("interrupted"), "{report}");
    is_gone(sandbox, &namespace(&said()));
}

#[test]
fn a_namespace_that_is_being_deleted_blocks() {
    let sandbox = &Platform::shared().sandbox;
    let name = format!("preflight-going-{}", std::process::id());
    let free = r#"{"metadata":{"finalizers":null}}"#;
    let _undo = undo(&[&["patch", "configmap", "held", "-n", &name, "--type=merge", "-p", free]]);
    sandbox.kubectl(&["create", "namespace", &name]);
    let held = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "held", "namespace": name, "finalizers": ["example.com/hold"]},
    });
    let made = sandbox.try_kubectl(&["apply", "-f", "-"], Some(&held.to_string()));
    assert_eq!(made.code, 0, "{}", made.stderr);
    sandbox.kubectl(&["delete", "namespace", &name, "--wait=false"]);
    let image = Platform::shared().image();
    let (ended, report) = check(EXISTING, &["--image", image, "--workflows-namespace", &name]);
    assert_eq!(ended.code, 3, "{report:#}\n{}", ended.stderr);
    let going = finding(&report, "namespaces", "blocking");
    assert!(going["fix"].as_str().unwrap().contains(&format!("kubectl get namespace {name}")), "{going:#}");
    is_gone(sandbox, &namespace(&ended.stderr));
}

#[test]
fn definitions_that_nobody_owns_block_an_installation() {
    let sandbox = &Platform::shared().sandbox;
    let name = "eventsources.argoproj.io";
    let _undo = undo(&[&["delete", "crd", name, "--wait=false"]]);
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name},
        "spec": {
            "group": "argoproj.io", "scope": "Namespaced",
            "names": {"plural": "eventsources", "singular": "eventsource", "kind": "EventSource", "listKind": "EventSourceList"},
            "versions": [{"name": "v1alpha1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    });
    let made = sandbox.try_kubectl(&["apply", "--server-side", "-f", "-"], Some(&definition.to_string()));
    assert_eq!(made.code, 0, "{}", made.stderr);
    let argo = "{cd: existing, workflows: existing, events: install}";
    let (ended, report) = check(argo, &["--image", Platform::shared().image()]);
    assert_eq!(ended.code, 3, "{report:#}\n{}", ended.stderr);
    let foreign = finding(&report, "definitions", "blocking");
    assert_eq!(foreign["evidence"], json!([format!("{name}: made by nobody who says so")]));
    is_gone(sandbox, &namespace(&ended.stderr));
}

/// What concerns the whole cluster: these run when nothing else does (`tools/cluster`).
mod alone {
    use super::*;

    /// Namespaces, pods, claims and volumes, by name.
    fn everything(sandbox: &Sandbox) -> BTreeSet<String> {
        let columns = "custom-columns=KIND:.kind,NAMESPACE:.metadata.namespace,NAME:.metadata.name";
        let all = sandbox.kubectl(&["get", "namespaces,pods,pvc,pv", "-A", "--no-headers", "-o", columns]);
        all.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }

    /// To whom it is an hour later, the checks that go on are what somebody left: this one goes alone.
    #[test]
    fn clocks_that_differ_are_told_and_nothing_is_left() {
        let (ended, report) = checked_through(Skewed(3_600));
        assert_eq!(ended.code, 3, "{report:#}\n{}", ended.stderr);
        let clock = finding(&report, "clock", "blocking");
        assert!(clock["fix"].as_str().unwrap().contains("NTP"), "{clock:#}");
        assert_eq!(clock["code"], "FORGE-B004", "{clock:#}");
        is_gone(&Platform::shared().sandbox, &namespace(&ended.stderr));
    }

    #[test]
    fn a_good_cluster_is_ready_and_nothing_is_left() {
        let sandbox = &Platform::shared().sandbox;
        let image = Platform::shared().image();
        // Its owner has made what is printed for him.
        let printing = folder(EXISTING);
        let mut print = Command::new(&Platform::shared().binary);
        print.args(["bootstrap", "--print", "--image", image, "--output", "json"]).current_dir(printing.path());
        let printed = run(print.env_remove("FORGE_ENVIRONMENT"), None);
        assert_eq!(printed.code, 0, "{}", printed.stderr);
        let _undo = undo(&[
            &["delete", "role", "forge-executor-preflight", "-n", "argocd"],
            &["delete", "rolebinding", "forge-executor-preflight", "-n", "argocd"],
            &["delete", "appproject", "preflight", "-n", "argocd"],
        ]);
        merge(sandbox, &serde_json::from_str(&printed.stdout).unwrap());
        let before = everything(sandbox);
        let (ended, report) = check(EXISTING, &["--image", image, "--storage"]);
        assert_eq!(ended.code, 0, "{report:#}\n{}", ended.stderr);
        assert_eq!(report["verdict"], "ready", "{report:#}");
        for checked in report["checks"].as_array().unwrap() {
            assert!(["passed", "warning"].contains(&checked["result"].as_str().unwrap()), "{checked}");
        }
        let after = everything(sandbox);
        let new: Vec<&String> = after.difference(&before).collect();
        assert!(new.is_empty(), "{new:?}");
    }

    #[test]
    fn no_node_for_a_pod_and_no_default_storage_class_are_found_together_and_nothing_is_made() {
        let sandbox = &Platform::shared().sandbox;
        let node = sandbox.kubectl(&["get", "nodes", "-l", "type!=kwok", "-o", "jsonpath={.items[*].metadata.name}"]);
        let node = node.trim();
        let class = "storageclass.kubernetes.io/is-default-class";
        let _undo = undo(&[
            &["uncordon", node],
            &["annotate", "storageclass", "local", &format!("{class}=true"), "--overwrite"],
        ]);
        sandbox.kubectl(&["cordon", node]);
        sandbox.kubectl(&["annotate", "storageclass", "local", &format!("{class}-")]);
        let (ended, report) = check(EXISTING, &["--image", NOWHERE, "--storage"]);
        assert_eq!(ended.code, 3, "{report:#}\n{}", ended.stderr);
        let nodes = finding(&report, "nodes", "blocking");
        assert!(nodes["evidence"].to_string().contains(&format!("{node}: ")), "{nodes:#}");
        finding(&report, "storage", "blocking");
        assert!(!ended.stderr.contains("starting a pod"), "{}", ended.stderr);
    }
}
