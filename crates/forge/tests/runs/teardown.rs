//! Everything that was deployed goes in reverse, judged from the API server's audit log (INV-6): nothing of anybody else is touched,
//! volumes stay, and nothing is written that nobody confirmed.
//!
//! `FORGE_SEED` and `FORGE_TEARDOWNS` replay and lengthen the random graphs, `FORGE_TEARDOWN_KILLS` the killing: `make soak` sets
//! them.

mod kills;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use forge_testkit::campaign::{graphs, number};
use forge_testkit::order;
use forge_testkit::platform::mark;
use forge_testkit::random_graph::{Behaviour, RandomNode, random};
use forge_testkit::sandbox::{eventually, run};
use forge_testkit::twin::{self, File, TwinNode, config_map, deployment};
use serde_json::{Value, json};

use crate::stage::{PATIENCE, Stage};

/// Another environment that is there as far as anybody can tell: what all of them share stays.
pub(crate) struct Keeper<'s> {
    stage: &'s Stage,
    name: String,
}

impl<'s> Keeper<'s> {
    pub(crate) fn new(stage: &'s Stage) -> Self {
        let name = format!("forge-bootstrap-{}-keeper", stage.environment.name);
        stage.kubectl(&["create", "configmap", &name, "-n", "argo"]);
        let labels = ["app.kubernetes.io/managed-by=forge", "forge.projectcatalyst.io/environment=keeper"];
        stage.kubectl(&[&["label", "configmap", &name, "-n", "argo"], &labels[..]].concat());
        Self { stage, name }
    }
}

impl Drop for Keeper<'_> {
    fn drop(&mut self) {
        let sandbox = &self.stage.environment.platform.sandbox;
        sandbox.try_kubectl(&["delete", "configmap", &self.name, "-n", "argo", "--ignore-not-found"], None);
    }
}

/// Tears down and expects this exit code; gives the report.
pub(crate) fn teardown(stage: &Stage, code: i32, more: &[&str]) -> Value {
    let name = stage.environment.name.as_str();
    let arguments = [&["platform", "teardown", "--confirm", name, "--output", "json"], more].concat();
    let ended = stage.forge(&arguments);
    assert_eq!(ended.code, code, "{}\n{}", ended.stdout, ended.stderr);
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {}\n{}", ended.stdout, ended.stderr))
}

/// What each Application waits for when it is deployed.
fn predecessors(stage: &Stage, edges: &[(&str, &[&str])]) -> BTreeMap<String, BTreeSet<String>> {
    let name = |node: &str| stage.options.application(node);
    edges.iter().map(|(node, before)| (name(node), before.iter().map(|before| name(before)).collect())).collect()
}

/// Applications of the environment that are there.
fn applications(stage: &Stage) -> Vec<String> {
    let label = format!("{}={}", twin::LABEL, stage.environment.name);
    let found = stage.kubectl(&["get", "applications", "-n", "argocd", "-l", &label, "-o", "name"]);
    found.lines().map(str::to_owned).collect()
}

/// Whether an object is there.
fn exists(stage: &Stage, arguments: &[&str]) -> bool {
    stage.environment.platform.sandbox.try_kubectl(&[&["get"], arguments].concat(), None).code == 0
}

/// Whether Forge has this name: that of its accounts, or of whoever runs it from outside.
fn by_forge(user: &str) -> bool {
    user == "sandbox-admin" || user.starts_with("system:serviceaccount:argo:forge-")
}

/// What Forge wrote since then that names this environment.
fn written(stage: &Stage, since: jiff::Timestamp) -> Vec<String> {
    let lines = stage.environment.audit(since);
    let mine = lines.iter().filter(|line| by_forge(&line.user) && line.name.contains(&stage.environment.name));
    mine.map(|line| format!("{line:?}")).collect()
}

fn claim(volume: &str) -> File {
    let object = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": volume,
            "resources": {"requests": {"storage": "1Mi"}},
        },
    });
    ("claim.yaml".to_owned(), format!("{object:#}\n"))
}

/// A volume that would go with its claim.
fn volume(stage: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": stage},
        "spec": {
            "capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Delete", "hostPath": {"path": format!("/tmp/{stage}")},
        },
    })
}

/// Where the data of that volume are, as this machine sees them: a sandbox has a `/tmp` of its own, in its folder.
fn data_of(stage: &Stage, volume: &str) -> PathBuf {
    let kubeconfig = &stage.environment.platform.sandbox.kubeconfig;
    // Folder of the sandbox, its `pki`, the file.
    kubeconfig.ancestors().nth(2).unwrap().join("tmp").join(volume)
}

/// A definition that a node brings, and that its chart may want to keep.
fn definition(group: &str, keep: bool) -> File {
    let annotations = if keep { json!({"helm.sh/resource-policy": "keep"}) } else { json!({}) };
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let object = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("widgets.{group}"), "annotations": annotations},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "singular": "widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    });
    ("definition.yaml".to_owned(), format!("{object:#}\n"))
}

/// An Application of somebody else, and its namespace.
fn foreign(stage: &Stage) -> String {
    let name = format!("somebodys-{}", stage.environment.name);
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
        {
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
            "metadata": {"name": name, "namespace": "argocd"},
            "spec": {
                "project": "default",
                "source": {"repoURL": stage.environment.url, "targetRevision": "main", "path": "apps/base"},
                "destination": {"server": "https://kubernetes.default.svc", "namespace": name},
            },
        },
    ]});
    let sandbox = &stage.environment.platform.sandbox;
    let made = sandbox.try_kubectl(&["apply", "--server-side", "-f", "-"], Some(&objects.to_string()));
    assert_eq!(made.code, 0, "{}", made.stderr);
    name
}

#[test]
fn four_nodes_go_in_reverse_their_volume_stays_and_nothing_of_anybody_else_is_touched() {
    let edges: [(&str, &[&str]); 4] = [("base", &[]), ("db", &["base"]), ("api", &["db"]), ("web", &["db", "base"])];
    let mut storage = String::new();
    let stage = Stage::new("teardown", true, |options| {
        storage = format!("{}-data", options.environment);
        let mut nodes: Vec<TwinNode> = edges
            .iter()
            .map(|(name, before)| TwinNode::new(name, before, vec![deployment(name, &options.image, 1, &[])]))
            .collect();
        nodes[1].manifests.push(claim(&storage));
        nodes[2].manifests.push(config_map("api", "1"));
        nodes
    });
    let keeper = Keeper::new(&stage);
    let sandbox = &stage.environment.platform.sandbox;
    let made = sandbox.try_kubectl(&["create", "-f", "-"], Some(&volume(&storage).to_string()));
    assert_eq!(made.code, 0, "{}", made.stderr);
    let data = data_of(&stage, &storage);
    std::fs::create_dir_all(&data).unwrap();
    std::fs::write(data.join("row"), "a customer").unwrap();
    let somebodys = foreign(&stage);
    let report = stage.deploy(0);
    assert_eq!(report["statistics"]["proven"], 4, "{report:#}");

    // Nobody confirmed it: nothing is written.
    let since = mark();
    for arguments in [&["platform", "teardown"][..], &["platform", "teardown", "--confirm", "another"]] {
        let ended = stage.forge(arguments);
        assert_eq!(ended.code, 3, "{}", ended.stderr);
        assert!(ended.stderr.contains("FORGE-U004"), "{}", ended.stderr);
    }
    assert_eq!(written(&stage, since), Vec::<String>::new());

    // A part that others depend on stays.
    let scope = format!("app:{}", stage.options.id("db"));
    let refused = stage.forge(&["platform", "teardown", "--confirm", &stage.environment.name, "--scope", &scope]);
    assert_eq!(refused.code, 6, "{}", refused.stderr);
    assert!(refused.stderr.contains("FORGE-U001"), "{}", refused.stderr);

    // One namespace is handed over by name; the others are nobody's that Forge knows.
    let own = stage.options.application("web");
    let environment = format!("forge.projectcatalyst.io/environment={}", stage.environment.name);
    stage.kubectl(&["label", "namespace", &own, "app.kubernetes.io/managed-by=forge", &environment]);
    let since = mark();
    let report = teardown(&stage, 0, &[]);
    assert_eq!((&report["verdict"], &report["statistics"]["gone"]), (&json!("done"), &json!(4)), "{report:#}");
    let lines = stage.environment.audit(since);
    let graph = predecessors(&stage, &edges);
    assert_eq!(order::removed_too_early(&graph, &lines), Vec::<String>::new());
    assert_eq!(order::removals_judged(&graph, &lines), 4, "{lines:#?}");
    assert_eq!(applications(&stage), Vec::<String>::new());

    // The volume outlives its claim, says what it was, and holds what it held.
    let kept = eventually("Kubernetes has let go of the volume", PATIENCE, || {
        let kept = stage.environment.json(&["get", "persistentvolume", &storage]);
        if kept["status"]["phase"] == "Released" { Ok(kept) } else { Err(kept["status"].to_string()) }
    });
    assert_eq!(std::fs::read_to_string(data.join("row")).unwrap(), "a customer");
    assert_eq!(kept["spec"]["persistentVolumeReclaimPolicy"], "Retain", "{kept:#}");
    assert_eq!(kept["metadata"]["annotations"]["forge.projectcatalyst.io/reclaim-policy"], "Delete");
    assert_eq!(report["removal"]["retained"][0]["volume"], storage.as_str(), "{report:#}");

    // What is ours is gone, what is not is not, and the complete lists say the same.
    assert!(!exists(&stage, &["namespace", &own]) && exists(&stage, &["namespace", &stage.options.application("api")]));
    let left = &report["cleanExit"];
    assert_eq!((&left["verdict"], &left["orphaned"], &left["notKnown"]), (&json!("clean"), &json!([]), &json!([])));
    let others = left["others"].to_string();
    assert!(others.contains(&format!("namespaces {}", stage.options.application("api"))), "{others}");
    // The AppProject is its owner's, who handed over its window and nothing else: that holds nothing any more.
    let project = stage.environment.json(&["get", "appproject", &stage.environment.name, "-n", "argocd"]);
    let windows = project["spec"]["syncWindows"].as_array();
    assert!(windows.is_none_or(Vec::is_empty), "{project:#}");
    let secret = format!("forge-teardown-{}", stage.environment.name);
    assert!(!exists(&stage, &["secret", &secret, "-n", "argo"]), "the token was not given back");
    let still = stage.environment.json(&["get", "application", &somebodys, "-n", "argocd"]);
    assert!(still["metadata"]["deletionTimestamp"].is_null(), "{still:#}");
    assert!(exists(&stage, &["namespace", &somebodys]));
    let touched: Vec<_> = lines.iter().filter(|line| line.verb == "delete" && line.namespace == somebodys).collect();
    assert!(touched.is_empty(), "{touched:?}");

    // Again: nothing is left to do, and nothing is written.
    let since = mark();
    let report = teardown(&stage, 0, &[]);
    assert!(report["message"].as_str().unwrap().starts_with("nothing was there to remove"), "{report:#}");
    assert_eq!(written(&stage, since), Vec::<String>::new());

    drop(keeper);
    stage.kubectl(&["delete", "application", &somebodys, "-n", "argocd", "--wait=false"]);
    stage.kubectl(&["delete", "namespace", &somebodys, "--wait=false"]);
    stage.kubectl(&["delete", "persistentvolume", &storage, "--wait=false"]);
    std::fs::remove_dir_all(&data).unwrap();
}

#[test]
fn a_part_goes_alone_a_pod_per_node_comes_to_the_same_and_it_can_be_deployed_again() {
    let mut group = String::new();
    let stage = Stage::new("teardown-part", false, |options| {
        group = format!("{}.example.com", options.environment);
        let base = TwinNode::new("base", &[], vec![deployment("base", &options.image, 1, &[])]);
        vec![base, TwinNode::new("top", &["base"], vec![config_map("top", "1"), definition(&group, true)])]
    });
    let keeper = Keeper::new(&stage);
    stage.deploy(0);
    let scope = format!("app:{}", stage.options.id("top"));
    let report = teardown(&stage, 0, &["--scope", &scope, "--runner", "pod"]);
    assert_eq!((&report["runner"], &report["statistics"]["gone"]), (&json!("pod"), &json!(1)), "{report:#}");
    assert_eq!(applications(&stage).len(), 1);
    // The environment is still there, and what it had can come back.
    assert!(exists(&stage, &["appproject", &stage.environment.name, "-n", "argocd"]));
    let file = stage.environment.repository.folder().join("argocd/applications.yaml");
    stage.kubectl(&["apply", "--server-side", "-f", &file.to_string_lossy()]);
    let report = stage.deploy(0);
    assert_eq!(report["statistics"]["proven"], 2, "{report:#}");
    let report = teardown(&stage, 0, &[]);
    assert_eq!(report["statistics"]["gone"], 2, "{report:#}");
    // What its chart keeps is there, and is told.
    let kept = format!("widgets.{group}");
    assert!(exists(&stage, &["crd", &kept]), "{report:#}");
    let told =
        report["removal"]["kept"].as_array().unwrap().iter().find(|one| one["object"].to_string().contains(&kept));
    assert!(told.is_some_and(|one| one["why"].as_str().unwrap().contains("its chart keeps it")), "{report:#}");
    stage.kubectl(&["delete", "crd", &kept, "--wait=false"]);
    drop(keeper);
}

#[test]
fn a_finalizer_that_nobody_clears_is_named_with_its_age_and_given_up_only_by_name() {
    let stage = Stage::new("teardown-stuck", false, |_| {
        let mut held = TwinNode::new("held", &[], vec![config_map("held", "1")]);
        held.settings = "timeouts: {sync: 60s, health: 20s}".to_owned();
        vec![held, TwinNode::new("top", &["held"], vec![config_map("top", "1")])]
    });
    let keeper = Keeper::new(&stage);
    stage.deploy(0);
    let namespace = stage.options.application("held");
    let hold = r#"{"metadata":{"finalizers":["sample.example.com/never"]}}"#;
    stage.kubectl(&["patch", "configmap", "held", "-n", &namespace, "--type=merge", "-p", hold]);
    let report = teardown(&stage, 4, &[]);
    assert_eq!(report["statistics"]["gone"], 1, "{report:#}");
    let why = report["failures"][0]["diagnosis"].as_str().unwrap();
    let object = format!("ConfigMap/{namespace}/held");
    assert!(why.contains(&object) && why.contains("sample.example.com/never") && why.contains(" for "), "{why}");
    assert!(report["failures"][0]["next"].as_str().unwrap().contains("--release-finalizer"), "{report:#}");
    // It is still there: nothing is stripped silently.
    assert!(exists(&stage, &["configmap", "held", "-n", &namespace]));
    // Not of anybody else.
    let other = stage.forge(&[
        "platform",
        "teardown",
        "--confirm",
        &stage.environment.name,
        "--release-finalizer",
        "ConfigMap/kube-system/x",
    ]);
    assert_ne!(other.code, 0, "{}", other.stderr);
    let report = teardown(&stage, 0, &["--release-finalizer", &object]);
    let released = &report["removal"]["released"][0];
    assert_eq!(released["object"], object.as_str(), "{report:#}");
    assert!(released["finalizers"][0].as_str().unwrap().contains("sample.example.com/never"), "{report:#}");
    assert_eq!(applications(&stage), Vec::<String>::new());
    drop(keeper);
}

#[test]
fn a_namespace_that_does_not_go_is_told_with_what_keeps_it_and_the_next_one_gives_that_up_by_name() {
    let stage =
        Stage::new("teardown-wedged", false, |_| vec![TwinNode::new("only", &[], vec![config_map("only", "1")])]);
    let keeper = Keeper::new(&stage);
    stage.deploy(0);
    let namespace = stage.options.application("only");
    let environment = format!("forge.projectcatalyst.io/environment={}", stage.environment.name);
    stage.kubectl(&["label", "namespace", &namespace, "app.kubernetes.io/managed-by=forge", &environment]);
    let stuck = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "name": "stuck", "namespace": namespace, "labels": {"app.kubernetes.io/managed-by": "forge"},
        "finalizers": ["sample.example.com/never"],
    }});
    let sandbox = &stage.environment.platform.sandbox;
    let made = sandbox.try_kubectl(&["create", "-f", "-"], Some(&stuck.to_string()));
    assert_eq!(made.code, 0, "{}", made.stderr);
    // It ends when it said that it would, as what it is: everything went but this.
    let start = std::time::Instant::now();
    let report = teardown(&stage, 2, &["--timeout", "2m"]);
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
    assert_eq!((&report["verdict"], &report["statistics"]["gone"]), (&json!("orphans left"), &json!(1)), "{report:#}");
    let left = report["removal"]["orphans"].to_string();
    let object = format!("ConfigMap/{namespace}/stuck");
    assert!(left.contains(&format!("Namespace/{namespace}")) && left.contains(&object), "{left}");
    assert!(left.contains("sample.example.com/never"), "{left}");
    assert!(exists(&stage, &["configmap", "stuck", "-n", &namespace]));
    let report = teardown(&stage, 0, &["--release-finalizer", &object]);
    assert_eq!(report["removal"]["released"][0]["object"], object.as_str(), "{report:#}");
    assert!(!exists(&stage, &["namespace", &namespace]));
    drop(keeper);
}

#[test]
fn killed_in_the_middle_the_next_one_goes_on_and_ends() {
    let mut group = String::new();
    let stage = Stage::new("teardown-kill", false, |options| {
        group = format!("{}.example.com", options.environment);
        let mut slow = TwinNode::new("slow", &["base"], vec![deployment("slow", &options.image, 1, &[])]);
        slow.settings = "timeouts: {sync: 60s, health: 5m}".to_owned();
        let operator = TwinNode::new("operator", &["slow"], vec![definition(&group, false)]);
        vec![TwinNode::new("base", &[], vec![config_map("base", "1")]), slow, operator]
    });
    let keeper = Keeper::new(&stage);
    stage.deploy(0);
    let namespace = stage.options.application("slow");
    let hold = r#"{"metadata":{"finalizers":["sample.example.com/later"]}}"#;
    stage.kubectl(&["patch", "deployment", "slow", "-n", &namespace, "--type=merge", "-p", hold]);
    let mut child = command(&stage).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    eventually("the deployment is being deleted", PATIENCE, || {
        let found = stage.environment.json(&["get", "deployment", "slow", "-n", &namespace]);
        let going = found["metadata"]["deletionTimestamp"].is_string();
        if going { Ok(()) } else { Err(found["metadata"].to_string()) }
    });
    child.kill().unwrap();
    child.wait().unwrap();
    // One is gone, and what the other was about to remove is still there: nobody conducts, so nothing new goes.
    assert_eq!(applications(&stage).len(), 2);
    let brought = format!("widgets.{group}");
    assert!(exists(&stage, &["crd", &brought]));
    let clear = r#"{"metadata":{"finalizers":null}}"#;
    stage.kubectl(&["patch", "deployment", "slow", "-n", &namespace, "--type=merge", "-p", clear]);
    assert_eq!(completed(&stage, "a kill in the middle")["verdict"], "done");
    // Of the node that was gone before the kill, which only the killed one had known of.
    assert!(!exists(&stage, &["crd", &brought]), "the definition was left");
    let secret = format!("forge-teardown-{}", stage.environment.name);
    assert!(!exists(&stage, &["secret", &secret, "-n", "argo"]), "the token was not given back");
    drop(keeper);
}

/// A teardown that can be killed.
fn command(stage: &Stage) -> Command {
    let environment = &stage.environment;
    let mut command = Command::new(&environment.platform.binary);
    command.args(["platform", "teardown", "--confirm", &environment.name, "--output", "json"]);
    command.env("KUBECONFIG", &environment.platform.sandbox.kubeconfig).env("NO_COLOR", "1");
    command.env("FORGE_REPO", environment.repository.folder()).env("FORGE_ENVIRONMENT", &environment.name);
    command.stdin(Stdio::null());
    command
}

/// The next teardown ends well, and nothing of the environment is left; gives its report. The Lease of a killed one lasts a
/// little longer than it.
fn completed(stage: &Stage, after: &str) -> Value {
    let report = eventually("the next teardown ends", PATIENCE, || {
        let ended = run(&mut command(stage), None);
        match ended.code {
            0 => Ok(serde_json::from_str::<Value>(&ended.stdout).unwrap()),
            5 => Err(ended.stderr),
            // Whoever lost Argo CD or the API server says so, and the next one begins when they are back.
            _ if ["FORGE-D001", "FORGE-D005"].iter().any(|code| ended.stderr.contains(code)) => Err(ended.stderr),
            other => panic!("after {after}: {other}: {}\n{}", ended.stdout, ended.stderr),
        }
    });
    assert_eq!(applications(stage), Vec::<String>::new(), "after {after}");
    report
}

#[test]
fn no_node_of_a_random_graph_goes_before_everything_that_depends_on_it_is_gone() {
    let (seed, rounds) = (number("FORGE_SEED", 11), number("FORGE_TEARDOWNS", 3));
    graphs("teardown", (seed, rounds), 1, one);
}

fn one(seed: u64) -> usize {
    // Whether a node is well decides nothing here: what is there goes.
    let nodes: Vec<RandomNode> =
        random(seed, 12).into_iter().map(|node| RandomNode { behaviour: Behaviour::Well, ..node }).collect();
    let stage = Stage::new("teardown-order", seed.is_multiple_of(2), |options| {
        nodes.iter().map(|node| node.twin(&options.image)).collect()
    });
    let keeper = Keeper::new(&stage);
    stage.deploy(0);
    let name = |node: &str| stage.options.application(node);
    let graph: BTreeMap<String, BTreeSet<String>> =
        nodes.iter().map(|node| (name(&node.name), node.depends_on.iter().map(|p| name(p)).collect())).collect();
    let since = mark();
    let report = teardown(&stage, 0, &[]);
    assert_eq!(report["statistics"]["gone"], nodes.len(), "seed {seed}: {report:#}");
    let lines = stage.environment.audit(since);
    assert_eq!(order::removed_too_early(&graph, &lines), Vec::<String>::new(), "seed {seed}");
    let edges: usize = nodes.iter().map(|node| node.depends_on.len()).sum();
    assert_eq!(order::removals_judged(&graph, &lines), edges, "seed {seed}");
    assert_eq!(applications(&stage), Vec::<String>::new(), "seed {seed}");
    drop(keeper);
    edges
}
