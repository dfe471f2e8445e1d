//! Every rule with a world in which it speaks and one, as like as can be, in which it does not.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::*;
use crate::executor::PvPolicy;
use crate::render::{ENVIRONMENT_LABEL, MANAGED_BY};
use crate::teardown::inventory::tests::{at, kind, known, object};
use crate::teardown::inventory::{Gap, Inventory, Kind, Listing};
use crate::teardown::rehearse::{Definition, Facts, Objects, RehearsalReport, WANTED};
use crate::teardown::whose::tests::{application, node, order};
use crate::teardown::whose::{Claims, Going};

const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
const CLUSTER_WIDE: [&str; 10] = [
    "namespaces",
    "persistentvolumes",
    DEFINITIONS,
    "apiservices.apiregistration.k8s.io",
    "clusterroles.rbac.authorization.k8s.io",
    "clusterrolebindings.rbac.authorization.k8s.io",
    "validatingwebhookconfigurations.admissionregistration.k8s.io",
    "mutatingwebhookconfigurations.admissionregistration.k8s.io",
    "volumesnapshotclasses.snapshot.storage.k8s.io",
    "csidrivers.storage.k8s.io",
];

/// Nodes and what they depend on: an operator, an application that says that it needs it, and one that does not.
const NODES: &[(&str, &[&str])] = &[("a/operator", &[]), ("a/app", &["a/operator"]), ("a/side", &[])];

/// A cluster as it is planted.
struct World {
    objects: BTreeMap<&'static str, Vec<Value>>,
    gaps: Vec<Gap>,
    policy: PvPolicy,
}

/// An object of a node, by what it says itself.
fn of(node: &str, place: &str, more: Value) -> Value {
    let id = format!("dev-{}:example.com/X:{place}", node.replace('/', "-"));
    let mut object = object(place, more);
    object["metadata"]["annotations"]["argocd.argoproj.io/tracking-id"] = json!(id);
    object
}

/// The same with more than its metadata.
fn with(mut object: Value, more: Value) -> Value {
    if let (Value::Object(fields), Value::Object(more)) = (&mut object, more) {
        fields.extend(more);
    }
    object
}

fn held(finalizer: &str) -> Value {
    json!({ "finalizers": [finalizer] })
}

fn workload(ready: u64) -> Value {
    json!({"spec": {"template": {"spec": {"serviceAccountName": "operator"}}}, "status": {"readyReplicas": ready}})
}

impl World {
    /// A platform with a namespace of its own, beside one of somebody else.
    fn new() -> Self {
        let own = json!({"labels": {MANAGED_BY: "forge", ENVIRONMENT_LABEL: "dev"}});
        let world = Self { objects: BTreeMap::new(), gaps: Vec::new(), policy: PvPolicy::Retain };
        world.add("namespaces", object("shop", own)).add("namespaces", object("other", json!({})))
    }

    fn add(mut self, kind: &'static str, object: Value) -> Self {
        self.objects.entry(kind).or_default().push(object);
        self
    }

    /// With Widgets, which the operator defines and its account may change; it is ready or not.
    fn operated(self, ready: u64) -> Self {
        let rules = json!({"rules": [{"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["update"]}]});
        let binding = json!({
            "roleRef": {"kind": "ClusterRole", "name": "operator"},
            "subjects": [{"kind": "ServiceAccount", "namespace": "ops", "name": "operator"}],
        });
        self.add(DEFINITIONS, of("a/operator", "widgets.example.com", json!({})))
            .add("clusterroles.rbac.authorization.k8s.io", with(object("operator", json!({})), rules))
            .add("clusterrolebindings.rbac.authorization.k8s.io", with(object("operator", json!({})), binding))
            .add("deployments.apps", with(of("a/operator", "ops/operator", json!({})), workload(ready)))
    }

    fn widget(self, object: Value) -> Self {
        self.add("widgets.example.com", object)
    }

    fn report(&self) -> RehearsalReport {
        let listed = self.objects.iter().map(|(name, objects)| -> (Kind, Listing) {
            (kind(name, name, !CLUSTER_WIDE.contains(name)), known(9, objects))
        });
        let inventory = Inventory::new(at(0), listed.collect(), self.gaps.clone(), None);
        let mut objects = Objects::default();
        for (group, _, plural) in WANTED {
            let name = if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") };
            objects.add(plural, self.objects.get(name.as_str()).cloned().unwrap_or_default());
        }
        let definitions = self.objects.get(DEFINITIONS).into_iter().flatten().filter_map(Definition::read).collect();
        let nodes: Vec<_> = NODES
            .iter()
            .map(|(name, _)| (node(name), application(&format!("dev-{}", name.replace('/', "-")))))
            .collect();
        let going: Vec<Going<'_>> =
            nodes.iter().map(|(node, application)| Going { node, application, live: None }).collect();
        let (environment, scope) = ("dev".parse().unwrap(), "platform".parse().unwrap());
        let claims = Claims::new((&environment, &scope, true), "argocd", &going, &inventory);
        let facts = Facts::read(definitions, &objects, Vec::new());
        let live = Live::new(&inventory, &claims, order(NODES), facts, self.policy, at(600));
        RehearsalReport::new(("kind", "dev", "platform"), &live, None, (at(600), at(603)))
    }

    /// What a rule says: the worst, and all of it as text.
    fn says(&self, rule: Rule) -> (Option<Severity>, String) {
        let report = self.report();
        let mine: Vec<&Foretold> = report.findings.iter().filter(|finding| finding.rule == rule).collect();
        let text = mine.iter().map(|finding| finding.text()).collect();
        (mine.iter().map(|finding| finding.severity).min(), text)
    }

    #[track_caller]
    fn silent(&self, rule: Rule) {
        let (worst, text) = self.says(rule);
        assert_eq!(worst, None, "{text}");
    }

    #[track_caller]
    fn speaks(&self, rule: Rule, severity: Severity, words: &[&str]) {
        let (worst, text) = self.says(rule);
        assert_eq!(worst, Some(severity), "{text}");
        for word in words {
            assert!(text.contains(word), "no `{word}` in\n{text}");
        }
    }
}

#[test]
fn a_platform_without_anything_odd_would_end_clean() {
    let world = World::new().operated(1).widget(of("a/app", "shop/one", held("widgets.example.com/clean")));
    let report = world.report();
    assert_eq!((report.verdict.as_str(), report.exit), ("would end clean", 0), "{}", report.text());
    assert_eq!(report.rules.len(), Rule::ALL.len());
    for (ruled, rule) in report.rules.iter().zip(Rule::ALL) {
        assert_eq!((ruled.rule, ruled.result.as_str()), (*rule, "passed"), "{}", report.text());
    }
}

#[test]
fn what_clears_a_finalizer_must_go_after_what_carries_it() {
    let widget = |node: &str, more: Value| of(node, "shop/one", more);
    let ordered = World::new().operated(1).widget(widget("a/app", held("widgets.example.com/clean")));
    ordered.silent(Rule::Controllers);
    let side = World::new().operated(1).widget(widget("a/side", held("widgets.example.com/clean")));
    side.speaks(
        Rule::Controllers,
        Severity::Wedges,
        &[
            "widgets.example.com shop/one, of a/side",
            "Deployment ops/operator (of a/operator)",
            "nothing in the graph",
            "depend on",
        ],
    );
    // Nobody's, in a namespace that goes last.
    let nobody = World::new().operated(1).widget(object("shop/one", held("widgets.example.com/clean")));
    nobody.speaks(Rule::Controllers, Severity::Wedges, &["goes with namespace shop", "when all nodes are gone"]);
    // Whoever looks after copies of volumes is installed like any other controller.
    let copies = |node: &str| {
        let rules = json!({"rules": [{"apiGroups": ["snapshot.storage.k8s.io"], "resources": ["volumesnapshots"], "verbs": ["patch"]}]});
        let binding = json!({
            "roleRef": {"kind": "ClusterRole", "name": "copies"},
            "subjects": [{"kind": "ServiceAccount", "namespace": "ops", "name": "operator"}],
        });
        let copy = held("snapshot.storage.kubernetes.io/volumesnapshot-bound-protection");
        World::new()
            .add(DEFINITIONS, object("volumesnapshots.snapshot.storage.k8s.io", json!({})))
            .add("clusterroles.rbac.authorization.k8s.io", with(object("copies", json!({})), rules))
            .add("clusterrolebindings.rbac.authorization.k8s.io", with(object("copies", json!({})), binding))
            .add("deployments.apps", with(of("a/operator", "ops/operator", json!({})), workload(1)))
            .add("volumesnapshots.snapshot.storage.k8s.io", of(node, "shop/copy", copy))
    };
    copies("a/app").silent(Rule::Controllers);
    copies("a/side").speaks(
        Rule::Controllers,
        Severity::Wedges,
        &["volumesnapshots.snapshot.storage.k8s.io shop/copy"],
    );
    // Somebody else's stays, and so does what has no finalizer of its own.
    World::new().operated(1).widget(object("other/one", held("widgets.example.com/clean"))).silent(Rule::Controllers);
    World::new().operated(1).widget(widget("a/side", held("kubernetes.io/pvc-protection"))).silent(Rule::Controllers);
}

#[test]
fn of_one_application_a_higher_wave_goes_first_and_the_same_wave_at_once() {
    let in_wave = |wave: &str| {
        let more =
            json!({"finalizers": ["widgets.example.com/clean"], "annotations": {"argocd.argoproj.io/sync-wave": wave}});
        World::new().operated(1).widget(of("a/operator", "shop/one", more))
    };
    in_wave("1").silent(Rule::Controllers);
    in_wave("0").speaks(Rule::Controllers, Severity::Wedges, &["both go in the same moment"]);
    in_wave("-1").speaks(Rule::Controllers, Severity::Wedges, &["sync wave"]);
}

#[test]
fn a_finalizer_that_no_running_workload_may_clear_has_no_owner() {
    let map = |finalizer: &str| {
        let more = json!({"finalizers": [finalizer], "managedFields": [
            {"manager": "kubectl-edit", "fieldsV1": {"f:metadata": {"f:finalizers": {(format!("v:\"{finalizer}\"")): {}}}}},
        ]});
        World::new().operated(1).add("configmaps", of("a/app", "shop/settings", more))
    };
    map("hold.example.org/x").speaks(
        Rule::Finalizers,
        Severity::Wedges,
        &[
            "`hold.example.org/x`",
            "configmaps shop/settings, of a/app, set by kubectl-edit",
            "--release-finalizer configmaps/shop/settings",
        ],
    );
    // The operator's domain: its account may change kinds below it.
    map("keep.example.com/x").silent(Rule::Finalizers);
    map("kubernetes").silent(Rule::Finalizers);
    // It is there and does not run.
    let widget = of("a/app", "shop/one", held("anything"));
    World::new().operated(0).widget(widget.clone()).speaks(
        Rule::Finalizers,
        Severity::Wedges,
        &["Deployment ops/operator is not ready"],
    );
    World::new().operated(1).widget(widget).silent(Rule::Finalizers);
}

#[test]
fn whoever_may_change_everything_perhaps_clears_a_finalizer() {
    let rules = json!({"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]});
    let binding = json!({
        "roleRef": {"kind": "ClusterRole", "name": "all"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "ops", "name": "operator"}],
    });
    let planted = |image: &str| {
        let mut admin = with(object("ops/admin", json!({})), workload(1));
        admin["spec"]["template"]["spec"]["containers"] = json!([{ "image": image }]);
        World::new()
            .add("configmaps", of("a/app", "shop/settings", held("hold.example.org/x")))
            .add("clusterroles.rbac.authorization.k8s.io", with(object("all", json!({})), rules.clone()))
            .add("clusterrolebindings.rbac.authorization.k8s.io", with(object("all", json!({})), binding.clone()))
            .add("deployments.apps", admin)
    };
    planted("example.com/admin:1").speaks(Rule::Finalizers, Severity::Note, &["perhaps Deployment ops/admin"]);
    // Argo may change everything, and clears nobody else's.
    planted("quay.io/argoproj/argocd:v3").speaks(Rule::Finalizers, Severity::Wedges, &["nobody here clears"]);
}

#[test]
fn whoever_brings_a_definition_and_a_workload_is_taken_for_its_controller() {
    let world = World::new()
        .add(DEFINITIONS, of("a/operator", "widgets.example.com", json!({})))
        .add("deployments.apps", with(of("a/operator", "ops/operator", json!({})), workload(1)));
    world.widget(of("a/side", "shop/one", held("anything"))).speaks(
        Rule::Controllers,
        Severity::Wedges,
        &["of a/side"],
    );
}

#[test]
fn objects_of_others_are_found_under_definitions_and_in_namespaces_that_go() {
    let theirs = || World::new().operated(1).widget(object("other/theirs", json!({})));
    theirs().speaks(
        Rule::Foreign,
        Severity::Leaves,
        &["widgets.example.com: other/theirs", "helm.sh/resource-policy=keep"],
    );
    World::new().operated(1).widget(of("a/app", "shop/own", json!({}))).silent(Rule::Foreign);
    // A definition that is kept stays with them.
    let kept = json!({"annotations": {"helm.sh/resource-policy": "keep"}});
    World::new()
        .add(DEFINITIONS, of("a/operator", "widgets.example.com", kept))
        .widget(object("other/theirs", json!({})))
        .speaks(Rule::Foreign, Severity::Note, &["widgets.example.com: other/theirs"]);
    // A definition of somebody else is not looked at.
    World::new()
        .add(DEFINITIONS, object("widgets.example.com", json!({})))
        .widget(object("other/x", json!({})))
        .silent(Rule::Foreign);
    let release = json!({"annotations": {"meta.helm.sh/release-name": "db", "meta.helm.sh/release-namespace": "shop"}});
    let inside = World::new().add("configmaps", object("shop/db", release));
    inside.speaks(Rule::Foreign, Severity::Leaves, &["configmaps shop/db", "made by Helm release shop/db"]);
    World::new().add("configmaps", object("shop/plain", json!({}))).silent(Rule::Foreign);
}

fn service(node: Option<&str>, name: &str) -> Value {
    let place = format!("ops/{name}");
    let made = node.map_or_else(|| object(&place, json!({})), |node| of(node, &place, json!({})));
    with(made, json!({"spec": {"type": "ClusterIP"}}))
}

fn endpoints(name: &str) -> Value {
    let labels = json!({"labels": {"kubernetes.io/service-name": name}});
    with(object(&format!("ops/{name}-1"), labels), json!({"endpoints": [{"conditions": {"ready": true}}]}))
}

fn guard(made: Value, policy: &str, operations: &Value) -> Value {
    let rules = json!([{"apiGroups": [""], "resources": ["*"], "operations": operations}]);
    let service = json!({"service": {"namespace": "ops", "name": "guard"}});
    with(
        made,
        json!({"webhooks": [{"name": "guard.example.com", "clientConfig": service, "failurePolicy": policy, "rules": rules}]}),
    )
}

#[test]
fn a_webhook_must_not_outlive_its_service_nor_be_silent_now() {
    const PLURAL: &str = "validatingwebhookconfigurations.admissionregistration.k8s.io";
    let world = |configuration: Value, service: Value, answers: bool| {
        let world = World::new().add(PLURAL, configuration).add("services", service);
        if answers { world.add("endpointslices.discovery.k8s.io", endpoints("guard")) } else { world }
    };
    let theirs = |policy: &str, operations: Value| guard(object("guard", json!({})), policy, &operations);
    let deletes = || json!(["DELETE"]);
    let own = || service(Some("a/operator"), "guard");
    world(theirs("Fail", deletes()), own(), true).speaks(
        Rule::Webhooks,
        Severity::Wedges,
        &["may outlive its service", "Service ops/guard (of a/operator)", "webhook guard.example.com"],
    );
    // It goes with its service, before it, or never.
    let together = guard(of("a/operator", "guard", json!({})), "Fail", &deletes());
    world(together, own(), true).silent(Rule::Webhooks);
    let before = guard(of("a/app", "guard", json!({})), "Fail", &deletes());
    world(before, own(), true).silent(Rule::Webhooks);
    world(theirs("Fail", deletes()), service(None, "guard"), true).silent(Rule::Webhooks);
    // Nobody minds whether it answers, or it is not asked about what a teardown does.
    world(theirs("Ignore", deletes()), own(), true).silent(Rule::Webhooks);
    world(theirs("Fail", json!(["CREATE"])), own(), true).silent(Rule::Webhooks);
    // Silent now, whosever it is.
    let silent = world(theirs("Fail", json!(["*"])), service(None, "guard"), false);
    silent.speaks(Rule::Webhooks, Severity::Wedges, &["nobody answers for now", "has no endpoint that is ready"]);
    let gone = World::new().add(PLURAL, theirs("Fail", deletes()));
    gone.speaks(Rule::Webhooks, Severity::Wedges, &["Service ops/guard is not there"]);
}

#[test]
fn objects_must_not_outlive_who_converts_them() {
    let converting = |widget: Value, answers: bool| {
        let spec = json!({"spec": {"conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {
            "service": {"namespace": "ops", "name": "convert"},
        }}}}});
        let world = World::new()
            .add(DEFINITIONS, with(of("a/operator", "widgets.example.com", json!({})), spec))
            .add("services", service(Some("a/operator"), "convert"))
            .widget(widget);
        if answers { world.add("endpointslices.discovery.k8s.io", endpoints("convert")) } else { world }
    };
    converting(of("a/app", "shop/one", json!({})), true).silent(Rule::Conversions);
    let side = converting(of("a/side", "shop/one", json!({})), true);
    side.speaks(
        Rule::Conversions,
        Severity::Wedges,
        &["widgets.example.com: Service ops/convert (of a/operator); shop/one"],
    );
    converting(object("other/theirs", json!({})), true).speaks(Rule::Conversions, Severity::Wedges, &["other/theirs"]);
    let silent = converting(of("a/app", "shop/one", json!({})), false);
    silent.speaks(Rule::Conversions, Severity::Wedges, &["nobody converts now", "no endpoint"]);
    // Of somebody else, with objects of somebody else: broken, and in nobody's way.
    let theirs = converting(object("other/theirs", json!({})), false);
    theirs.speaks(Rule::Conversions, Severity::Note, &["without objects that go", "no endpoint"]);
}

#[test]
fn an_api_that_does_not_answer_or_outlives_its_service_is_found() {
    const PLURAL: &str = "apiservices.apiregistration.k8s.io";
    let api = |made: Value, available: &str| {
        let condition =
            json!({"type": "Available", "status": available, "reason": "MissingEndpoints", "message": "none"});
        let spec = json!({"service": {"namespace": "ops", "name": "metrics"}});
        with(made, json!({"spec": spec, "status": {"conditions": [condition]}}))
    };
    let name = "v1beta1.metrics.example.com";
    let theirs = || object(name, json!({}));
    World::new().add(PLURAL, api(theirs(), "False")).speaks(
        Rule::ApiServices,
        Severity::Wedges,
        &["1 registered API does not answer", "MissingEndpoints: none", "kubectl delete apiservice"],
    );
    let well = |made: Value| {
        World::new().add(PLURAL, api(made, "True")).add("services", service(Some("a/operator"), "metrics"))
    };
    well(theirs()).speaks(Rule::ApiServices, Severity::Wedges, &["may outlive its service", "somebody else's"]);
    well(of("a/operator", name, json!({}))).silent(Rule::ApiServices);
    let foreign = World::new().add(PLURAL, api(theirs(), "True")).add("services", service(None, "metrics"));
    foreign.silent(Rule::ApiServices);
}

#[test]
fn what_is_being_deleted_and_does_not_go_is_stuck() {
    let deleted = |ago: i64| {
        let since = at(600).checked_sub(SignedDuration::from_secs(ago)).unwrap().to_string();
        let more = json!({"finalizers": ["example.com/hold"], "deletionTimestamp": since});
        World::new().add("configmaps", of("a/app", "shop/settings", more))
    };
    deleted(120).speaks(
        Rule::Stuck,
        Severity::Wedges,
        &["configmaps shop/settings, of a/app", "since 2026-11-16T10:08:00Z"],
    );
    deleted(5).silent(Rule::Stuck);
    // A claim that a pod still uses goes when the pod does.
    let used = json!({"finalizers": ["kubernetes.io/pvc-protection"], "deletionTimestamp": "2026-11-16T09:00:00Z"});
    World::new().add("persistentvolumeclaims", of("a/app", "shop/data", used)).silent(Rule::Stuck);
    let theirs = json!({"finalizers": ["example.com/hold"], "deletionTimestamp": "2026-11-16T09:00:00Z"});
    World::new().add("configmaps", object("other/x", theirs)).silent(Rule::Stuck);
    let namespace = |name: &str, message: Option<&str>| {
        let own = json!({"labels": {MANAGED_BY: "forge"}, "deletionTimestamp": "2026-11-16T10:00:00Z"});
        let conditions: Vec<Value> = message
            .map(|message| json!({"type": "NamespaceFinalizersRemaining", "status": "True", "message": message}))
            .into_iter()
            .collect();
        World::new().add(
            "namespaces",
            with(object(name, own), json!({"status": {"phase": "Terminating", "conditions": conditions}})),
        )
    };
    namespace("stuck", Some("example.com/hold in 1 resource instances")).speaks(
        Rule::Stuck,
        Severity::Wedges,
        &[
            "namespace `stuck` is being deleted (since 2026-11-16T10:00:00Z)",
            "NamespaceFinalizersRemaining: example.com/hold",
        ],
    );
    namespace("going", None).speaks(Rule::Stuck, Severity::Note, &["namespace `going`"]);
    // What is in it goes as well, for a while.
    let emptied = |since: &str| {
        let own = json!({"labels": {MANAGED_BY: "forge"}, "deletionTimestamp": since});
        let left = json!([{"type": "NamespaceContentRemaining", "status": "True", "message": "pods. has 1"}]);
        let status = json!({"status": {"phase": "Terminating", "conditions": left}});
        World::new().add("namespaces", with(object("emptied", own), status))
    };
    emptied("2026-11-16T10:09:55Z").speaks(Rule::Stuck, Severity::Note, &["namespace `emptied`"]);
    emptied("2026-11-16T10:00:00Z").speaks(Rule::Stuck, Severity::Wedges, &["pods. has 1"]);
}

fn volume(reclaim: &str, phase: &str, claim: &str) -> Value {
    let (namespace, name) = claim.split_once('/').unwrap();
    let spec = json!({
        "claimRef": {"namespace": namespace, "name": name}, "persistentVolumeReclaimPolicy": reclaim,
        "csi": {"driver": "disk.example.com"}, "capacity": {"storage": "1Gi"},
    });
    with(object("pv-1", json!({})), json!({"spec": spec, "status": {"phase": phase}}))
}

#[test]
fn volumes_are_kept_removed_or_copied_as_the_policy_says_and_none_is_forgotten() {
    let world = |policy: PvPolicy, reclaim: &str| {
        let world = World { policy, ..World::new() };
        world
            .add("persistentvolumeclaims", of("a/app", "shop/data", json!({})))
            .add("persistentvolumes", volume(reclaim, "Bound", "shop/data"))
    };
    world(PvPolicy::Retain, "Delete").speaks(
        Rule::Volumes,
        Severity::Note,
        &["pv-1 1Gi of shop/data", "by policy retain"],
    );
    world(PvPolicy::Delete, "Delete").silent(Rule::Volumes);
    world(PvPolicy::Delete, "Retain").speaks(
        Rule::Volumes,
        Severity::Leaves,
        &["its reclaim policy is Retain", "kubectl patch pv"],
    );
    // The driver is a node's of which nothing says that it goes later.
    let driven = |node: &str| {
        world(PvPolicy::Delete, "Delete").add("csidrivers.storage.k8s.io", of(node, "disk.example.com", json!({})))
    };
    driven("a/operator").silent(Rule::Volumes);
    driven("a/side").speaks(Rule::Volumes, Severity::Wedges, &["driver `disk.example.com` (of a/side)"]);
    // Copies need a class of the driver.
    world(PvPolicy::Snapshot, "Delete").speaks(
        Rule::Volumes,
        Severity::Wedges,
        &["VolumeSnapshotClass", "disk.example.com"],
    );
    let class = with(object("disk", json!({})), json!({"driver": "disk.example.com"}));
    world(PvPolicy::Snapshot, "Delete")
        .add("volumesnapshotclasses.snapshot.storage.k8s.io", class)
        .silent(Rule::Volumes);
    // Its claim is gone, and it is not; that of somebody else is his.
    let released = |claim: &str| World::new().add("persistentvolumes", volume("Retain", "Released", claim));
    released("shop/old").speaks(Rule::Volumes, Severity::Leaves, &["released, and still there"]);
    released("other/old").silent(Rule::Volumes);
}

#[test]
fn a_load_balancer_that_nothing_waits_for_leaks_and_one_that_never_came_is_waited_for() {
    let balancer = |place: &str, finalizers: Value, addresses: Value| {
        let made = of("a/app", place, json!({ "finalizers": finalizers }));
        let balanced = json!({"spec": {"type": "LoadBalancer"}, "status": {"loadBalancer": {"ingress": addresses}}});
        World::new().add("services", with(made, balanced))
    };
    let address = || json!([{"ip": "203.0.113.7"}]);
    let cleanup = || json!(["service.kubernetes.io/load-balancer-cleanup"]);
    balancer("shop/edge", json!([]), address()).speaks(
        Rule::LoadBalancers,
        Severity::Leaves,
        &["203.0.113.7, and no finalizer", "ClusterIP"],
    );
    balancer("shop/edge", cleanup(), json!([])).speaks(
        Rule::LoadBalancers,
        Severity::Wedges,
        &["load-balancer-cleanup, and no address"],
    );
    balancer("shop/edge", cleanup(), address()).silent(Rule::LoadBalancers);
    balancer("shop/edge", json!([]), json!([])).silent(Rule::LoadBalancers);
    // MetalLB gives an address of its own network, and nothing of it is outside.
    let inside = json!({"annotations": {"metallb.io/ip-allocated-from-pool": "lan"}});
    let balanced = json!({"spec": {"type": "LoadBalancer"}, "status": {"loadBalancer": {"ingress": address()}}});
    World::new().add("services", with(of("a/app", "shop/edge", inside), balanced)).silent(Rule::LoadBalancers);
    World::new()
        .add("services", with(of("a/app", "shop/plain", json!({})), json!({"spec": {"type": "ClusterIP"}})))
        .silent(Rule::LoadBalancers);
}

#[test]
fn what_could_not_be_listed_is_not_known_and_no_clean_end_is_foretold() {
    let world = World { gaps: vec![Gap::new("secrets", "secrets is forbidden")], ..World::new() };
    world.speaks(Rule::Inventory, Severity::NotKnown, &["secrets: secrets is forbidden", "kubectl auth can-i"]);
    let report = world.report();
    assert_eq!((report.verdict.as_str(), report.exit, report.listed.not_known), ("not known", 1, 1));
    World::new().silent(Rule::Inventory);
}

#[test]
fn a_report_has_the_worst_first_ends_as_the_teardown_would_and_is_a_test_case_per_rule() {
    let leaves = World::new().operated(1).widget(object("other/theirs", json!({})));
    let report = leaves.report();
    assert_eq!((report.verdict.as_str(), report.exit), ("would leave something", 2), "{}", report.text());
    let both = leaves.add("configmaps", of("a/app", "shop/settings", held("hold.example.org/x")));
    let report = both.report();
    assert_eq!((report.verdict.as_str(), report.exit), ("would stop", 1));
    let severities: Vec<Severity> = report.findings.iter().map(|finding| finding.severity).collect();
    assert!(severities.is_sorted(), "{severities:?}");
    let text = report.text();
    assert!(text.starts_with("teardown of dev, scope platform, on kind: would stop\n"), "{text}");
    assert!(text.contains("1 thing would stop it, 1 thing would be left; looked for 3s\n"), "{text}");
    assert!(text.contains("  wedges     finalizers      1 finalizer of what goes"), "{text}");
    let xml = report.junit();
    assert!(xml.contains("tests=\"10\" failures=\"2\" errors=\"0\" skipped=\"0\" time=\"3\""), "{xml}");
    assert!(xml.contains("<failure type=\"FORGE-O005\""), "{xml}");
    let json = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<RehearsalReport>(&json).unwrap(), report);
    assert!(json.contains("\"rule\":\"finalizers\"") && json.contains("\"severity\":\"wedges\""), "{json}");
}

#[test]
fn a_rule_is_written_and_read_by_its_name_and_no_two_share_one() {
    let mut names: Vec<&str> = Rule::ALL.iter().map(|rule| rule.id()).collect();
    for rule in Rule::ALL {
        assert_eq!(json!(rule), rule.id());
        assert_eq!(serde_json::from_value::<Rule>(json!(rule.id())).unwrap(), *rule);
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Rule::ALL.len());
}
