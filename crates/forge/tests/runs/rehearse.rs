//! Wedges that are planted on a real cluster, one of each kind that a rehearsal knows: each is foretold with what to do, by an
//! account that can only read, and the audit log shows no write. Then all of them are met by a removal: it ends in its time, names
//! them, and takes nothing that is somebody else's. What an API server answers badly is planted in `tests/rehearse.rs`.

use forge_testkit::platform::{Platform, attempts, mark};
use forge_testkit::sandbox::{Ended, Sandbox, eventually, run};
use forge_testkit::twin::{TwinNode, config_map, deployment};
use serde_json::{Value, json};

use crate::preflight::{Undo, undo};
use crate::readers::kubeconfig;
use crate::stage::{PATIENCE, Stage};
use crate::teardown::{Keeper, teardown};

fn apply(sandbox: &Sandbox, objects: &[Value]) {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
    let made = sandbox.try_kubectl(&["apply", "--server-side", "-f", "-"], Some(&list));
    assert_eq!(made.code, 0, "{}", made.stderr);
}

/// An account that can read everything and change nothing, and its kubeconfig; both go with the test.
struct Reader {
    account: String,
    kubeconfig: std::path::PathBuf,
    _folder: tempfile::TempDir,
    _undo: Undo,
}

impl Reader {
    fn new(sandbox: &Sandbox, name: &str) -> Self {
        let account = format!("{name}-reader");
        let undo = undo(&[
            &["delete", "clusterrolebinding,clusterrole", &account, "--ignore-not-found"],
            &["delete", "serviceaccount", &account, "-n", "default", "--ignore-not-found"],
        ]);
        let rules = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]}]);
        let rbac = "rbac.authorization.k8s.io";
        apply(
            sandbox,
            &[
                json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account, "namespace": "default"}}),
                json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": account}, "rules": rules}),
                json!({
                    "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": account},
                    "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": account},
                    "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "default"}],
                }),
            ],
        );
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = kubeconfig(sandbox, folder.path(), "default", &account);
        Self { account, kubeconfig, _folder: folder, _undo: undo }
    }

    /// Rehearses a teardown, with these eyes.
    fn rehearse(&self, stage: &Stage) -> (Ended, Value) {
        let environment = &stage.environment;
        let mut command = std::process::Command::new(&environment.platform.binary);
        command.args(["platform", "teardown", "--rehearse", "--output", "json", "--environment", &environment.name]);
        command.current_dir(environment.repository.folder()).env("KUBECONFIG", &self.kubeconfig).env("NO_COLOR", "1");
        let ended = run(&mut command, None);
        let report = serde_json::from_str(&ended.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}\n{}", ended.stdout, ended.stderr));
        (ended, report)
    }

    /// What it tried to change.
    fn tried(&self, sandbox: &Sandbox, since: jiff::Timestamp) -> Vec<String> {
        let end = format!(":{}", self.account);
        let lines = attempts(sandbox, since).into_iter();
        let lines = lines.filter(|line| line.user.ends_with(&end) && !line.resource.starts_with("selfsubject"));
        lines.map(|line| format!("{line:?}")).collect()
    }
}

/// Everything that a rule says about something.
fn told(report: &Value, rule: &str, about: &str) -> Vec<String> {
    let findings = report["findings"].as_array().cloned().unwrap_or_default();
    let of = |finding: &&Value| finding["rule"] == rule && finding.to_string().contains(about);
    findings.iter().filter(of).map(|finding| format!("{finding:#}")).collect()
}

/// Definition of a kind of one version, which a service converts or nobody.
fn definition(group: &str, plural: &str, kind: &str, converts: Option<&Value>, tracking: &Value) -> Value {
    let mut spec = json!({
        "group": group, "scope": "Namespaced",
        "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
        "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
    });
    if let Some(service) = converts {
        let webhook = json!({"clientConfig": {"service": service}, "conversionReviewVersions": ["v1"]});
        spec["conversion"] = json!({"strategy": "Webhook", "webhook": webhook});
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}"), "annotations": tracking}, "spec": spec,
    })
}

/// One story, because an environment takes a while and the wedges do not meet.
#[test]
fn every_planted_wedge_is_foretold_with_its_fix_by_a_reader_and_nothing_is_written() {
    let stage = Stage::new("rehearse", false, |options| {
        let mut side = TwinNode::new("side", &[], vec![config_map("side", "1")]);
        side.settings = "timeouts: {sync: 60s, health: 45s}".to_owned();
        let mut operator = TwinNode::new("operator", &[], vec![deployment("operator", &options.image, 1, &[])]);
        operator.settings = "timeouts: {sync: 60s, health: 2m}".to_owned();
        vec![operator, side]
    });
    stage.deploy(0);
    let sandbox = &stage.environment.platform.sandbox;
    let name = stage.environment.name.clone();
    let group = format!("plant.{name}.example.com");
    let (operator, side, stuck) = (format!("{name}-operator"), format!("{name}-side"), format!("{name}-stuck"));
    let (widgets, gadgets) = (format!("widgets.{group}"), format!("gadgets.{group}"));
    let free = r#"{"metadata":{"finalizers":null}}"#;
    let patch = ["--type=merge", "-p", free];
    let widget = [&["patch", &widgets, "one", "-n", &side], &patch[..]].concat();
    let held = [&["patch", "configmap", "held", "-n", &side], &patch[..]].concat();
    let inside = [&["patch", "configmap", "held", "-n", &stuck], &patch[..]].concat();
    let balancer = [&["patch", "service", "waiting", "-n", &side], &patch[..]].concat();
    let _undo = undo(&[
        // First of all: it would refuse the rest.
        &["delete", "validatingwebhookconfiguration", &name, "--ignore-not-found"],
        &widget,
        &held,
        &inside,
        &balancer,
        &["delete", "clusterrole,clusterrolebinding", &operator, "--ignore-not-found"],
        &["delete", "pv", &name, "--ignore-not-found", "--wait=false"],
        &["delete", "namespace", &stuck, "--ignore-not-found", "--wait=false"],
    ]);

    let tracking = |node: &str, what: &str, place: &str| json!({"argocd.argoproj.io/tracking-id": format!("{name}-{node}:{what}:{place}")});
    let (of_operator, of_side) = (
        |what: &str, place: &str| tracking("operator", what, place),
        |what: &str, place: &str| tracking("side", what, place),
    );
    let guard = json!({"namespace": operator, "name": "guard"});
    let crd = "apiextensions.k8s.io/CustomResourceDefinition";
    let rbac = "rbac.authorization.k8s.io";
    let keeping = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": "held", "namespace": side, "finalizers": ["hold.example.org/x"],
            "annotations": of_side("/ConfigMap", &format!("{side}/held")),
        },
    });
    // It is asked about Widgets of this test, and nobody else's.
    let refusing = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": name},
        "webhooks": [{
            "name": "guard.example.com", "clientConfig": {"service": guard}, "admissionReviewVersions": ["v1"],
            "sideEffects": "None", "failurePolicy": "Fail",
            "rules": [{"apiGroups": [group], "apiVersions": ["*"], "resources": ["widgets"], "operations": ["DELETE"]}],
        }],
    });
    apply(
        sandbox,
        &[
            definition(&group, "widgets", "Widget", None, &of_operator(crd, &format!("{operator}/{widgets}"))),
            definition(&group, "gadgets", "Gadget", Some(&guard), &of_operator(crd, &format!("{operator}/{gadgets}"))),
            // Who clears finalizers of Widgets, by its rights.
            json!({
                "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": operator},
                "rules": [{"apiGroups": [group], "resources": ["widgets"], "verbs": ["get", "update"]}],
            }),
            json!({
                "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": operator},
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": operator},
                "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": operator}],
            }),
            json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": {"name": "guard", "namespace": operator, "annotations": of_operator("/Service", &format!("{operator}/guard"))},
                "spec": {"selector": {"app.kubernetes.io/name": "operator"}, "ports": [{"port": 443, "targetPort": 8080}]},
            }),
            keeping.clone(),
            json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": {"name": "edge", "namespace": side, "annotations": of_side("/Service", &format!("{side}/edge"))},
                "spec": {"type": "LoadBalancer", "ports": [{"port": 80}], "selector": {"app": "none"}},
            }),
            json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": {
                    "name": "waiting", "namespace": side, "finalizers": ["service.kubernetes.io/load-balancer-cleanup"],
                    "annotations": of_side("/Service", &format!("{side}/waiting")),
                },
                "spec": {"type": "LoadBalancer", "ports": [{"port": 80}], "selector": {"app": "none"}},
            }),
            // Its claim is gone.
            json!({
                "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
                "spec": {
                    "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Retain",
                    "hostPath": {"path": "/nowhere"},
                    "claimRef": {"namespace": side, "name": "old", "uid": "00000000-0000-0000-0000-000000000001"},
                },
            }),
            json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": stuck, "labels": {
                    "app.kubernetes.io/managed-by": "forge", "forge.projectcatalyst.io/environment": name,
                }},
            }),
        ],
    );
    for plural in [&widgets, &gadgets] {
        sandbox.kubectl(&["wait", "crd", plural, "--for=condition=Established", "--timeout=60s"]);
    }
    let api = format!("{group}/v1");
    apply(
        sandbox,
        &[
            json!({
                "apiVersion": api, "kind": "Widget",
                "metadata": {
                    "name": "one", "namespace": side, "finalizers": [format!("{group}/clean")],
                    "annotations": of_side(&format!("{group}/Widget"), &format!("{side}/one")),
                },
            }),
            json!({"apiVersion": api, "kind": "Widget", "metadata": {"name": "theirs", "namespace": "default"}}),
            json!({
                "apiVersion": api, "kind": "Gadget",
                "metadata": {
                    "name": "one", "namespace": side, "annotations": of_side(&format!("{group}/Gadget"), &format!("{side}/one")),
                },
            }),
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "held", "namespace": stuck, "finalizers": ["hold.example.org/x"]},
            }),
            refusing.clone(),
        ],
    );
    let address = r#"{"status":{"loadBalancer":{"ingress":[{"ip":"203.0.113.7"}]}}}"#;
    sandbox.kubectl(&["patch", "service", "edge", "-n", &side, "--subresource=status", "--type=merge", "-p", address]);
    sandbox.kubectl(&["delete", "namespace", &stuck, "--wait=false"]);
    eventually("the wedges are planted", PATIENCE, || {
        let volume = sandbox.kubectl(&["get", "pv", &name, "-o", "jsonpath={.status.phase}"]);
        let held = r#"jsonpath={.status.conditions[?(@.status=="True")].type}"#;
        let namespace = sandbox.kubectl(&["get", "namespace", &stuck, "-o", held]);
        let slices = ["get", "endpointslices", "-n", &operator, "-l", "kubernetes.io/service-name=guard"];
        let slices =
            sandbox.kubectl(&[&slices[..], &["-o", "jsonpath={.items[*].endpoints[*].conditions.ready}"]].concat());
        let well =
            volume == "Released" && namespace.contains("NamespaceFinalizersRemaining") && slices.contains("true");
        if well { Ok(()) } else { Err(format!("{volume}; {namespace}; {slices}")) }
    });

    let reader = Reader::new(sandbox, &name);
    let since = mark();
    let (ended, report) = reader.rehearse(&stage);
    assert_eq!((ended.code, &report["verdict"]), (1, &json!("would stop")), "{report:#}\n{}", ended.stderr);
    let wedges = [
        ("controllers", format!("{widgets} {side}/one"), "wedges"),
        ("finalizers", format!("configmaps {side}/held"), "wedges"),
        ("foreign", format!("{widgets}: default/theirs"), "leaves"),
        ("webhooks", format!("validatingwebhookconfigurations {name}, webhook guard.example.com"), "wedges"),
        ("conversions", format!("{gadgets}: Service {operator}/guard"), "wedges"),
        ("volumes", format!("{name} 1Gi of {side}/old"), "leaves"),
        ("load-balancers", format!("services {side}/edge"), "leaves"),
        ("load-balancers", format!("services {side}/waiting"), "wedges"),
        ("stuck", format!("namespace `{stuck}` is being deleted"), "wedges"),
    ];
    for (rule, about, severity) in &wedges {
        let found = told(&report, rule, about);
        assert_eq!(found.len(), 1, "{rule}, {about}: {report:#}");
        assert!(found[0].contains(&format!("\"severity\": \"{severity}\"")), "{}", found[0]);
        assert!(found[0].contains("\"fix\": \"") && found[0].contains("FORGE-O0"), "{}", found[0]);
    }
    assert_eq!(reader.tried(sandbox, since), Vec::<String>::new());

    // As the fixes say, two of them: they are not foretold any more.
    sandbox.kubectl(&["delete", "validatingwebhookconfiguration", &name]);
    sandbox.kubectl(&held);
    let (_, report) = reader.rehearse(&stage);
    for (rule, about, _) in wedges.iter().filter(|(rule, ..)| ["webhooks", "finalizers"].contains(rule)) {
        assert_eq!(told(&report, rule, about), Vec::<String>::new());
    }

    // Back in their places, for whoever does not rehearse.
    apply(sandbox, &[keeping, refusing]);
    met(&stage, &group, &stuck);
}

/// Application of a node, as Argo CD knows it by now, lists these.
fn managed(stage: &Stage, node: &str, names: &[&str]) {
    eventually("Argo CD knows what was planted", PATIENCE, || {
        let application = stage.environment.application(node);
        let resources = application["status"]["resources"].as_array().cloned().unwrap_or_default();
        let lacks = names.iter().find(|name| !resources.iter().any(|resource| resource["name"] == **name));
        if lacks.is_none() { Ok(()) } else { Err(format!("{lacks:?}: {resources:?}")) }
    });
}

/// A removal with all wedges in its way.
fn met(stage: &Stage, group: &str, stuck: &str) {
    let (keeper, name) = (Keeper::new(stage), stage.environment.name.as_str());
    let (operator, side) = (stage.options.application("operator"), stage.options.application("side"));
    let (widgets, gadgets) = (format!("widgets.{group}"), format!("gadgets.{group}"));
    managed(stage, "operator", &["guard", &widgets, &gadgets]);
    managed(stage, "side", &["one", "held", "waiting", "edge"]);
    let theirs = [widgets.as_str(), "theirs", "-n", "default"];
    let untouched = |object: &[&str]| {
        let live = stage.environment.json(&[&["get"], object].concat());
        assert!(live["metadata"]["deletionTimestamp"].is_null(), "{live:#}");
    };
    let foreign: [&[&str]; 4] =
        [&theirs, &["clusterrole", &operator], &["clusterrolebinding", &operator], &["pv", name]];

    // The operator goes, what waits for it does not: it is said so when its time is over, and not later.
    let report = teardown(stage, 4, &["--timeout", "4m"]);
    assert_eq!(report["statistics"]["gone"], 1, "{report:#}");
    let why = report["failures"][0]["diagnosis"].as_str().unwrap();
    assert!(why.contains(&format!("/{side}/")), "{why}");
    foreign.iter().for_each(|object| untouched(object));
    untouched(&["validatingwebhookconfiguration", name]);
    // Nothing is stripped, and everything that is left is named.
    let left = stage.forge(&["platform", "teardown", "--report", "--output", "json"]);
    assert_eq!(left.code, 2, "{}\n{}", left.stdout, left.stderr);
    let left: Value = serde_json::from_str(&left.stdout).unwrap();
    let orphaned = left["orphaned"].to_string();
    for object in [
        format!("{widgets} {side}/one"),
        format!("configmaps {side}/held"),
        format!("services {side}/waiting"),
        format!("namespaces {stuck}"),
    ] {
        assert!(orphaned.contains(&format!("\"{object}\"")), "{object}: {left:#}");
    }
    drop(keeper);
}

/// What concerns the whole cluster: these run when nothing else does (`tools/cluster`).
mod alone {
    use super::*;

    #[test]
    fn an_api_that_is_down_is_foretold_and_what_it_serves_is_not_known() {
        let sandbox = &Platform::shared().sandbox;
        let stage = Stage::new("outage", false, |_| vec![TwinNode::new("app", &[], vec![config_map("app", "1")])]);
        let group = format!("{}.example.com", stage.environment.name);
        let name = format!("v1.{group}");
        let _undo = undo(&[&["delete", "apiservice", &name, "--ignore-not-found"]]);
        apply(
            sandbox,
            &[json!({
                "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": name},
                "spec": {
                    "group": group, "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100,
                    "insecureSkipTLSVerify": true, "service": {"namespace": "default", "name": "nowhere"},
                },
            })],
        );
        eventually("the API is known to be down", PATIENCE, || {
            let said = sandbox.kubectl(&["get", "apiservice", &name, "-o", "jsonpath={.status.conditions[*].status}"]);
            if said == "False" { Ok(()) } else { Err(said) }
        });
        let reader = Reader::new(sandbox, &stage.environment.name);
        let since = mark();
        let (ended, report) = reader.rehearse(&stage);
        assert_eq!(ended.code, 1, "{report:#}\n{}", ended.stderr);
        assert_eq!(told(&report, "api-services", &name).len(), 1, "{report:#}");
        assert_eq!(told(&report, "inventory", &format!("{group}/v1: ")).len(), 1, "{report:#}");
        assert_eq!(reader.tried(sandbox, since), Vec::<String>::new());
    }
}
