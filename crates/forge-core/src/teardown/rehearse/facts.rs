//! What of live objects decides whether they stand in the way: definitions and who converts them, workloads and what their
//! accounts may write, webhooks, services, volumes, registered APIs. Read loosely: whatever is not there is not there.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::preflight::{NamespaceFacts, WorkloadFacts, items, text};
use crate::teardown::Volume;
use crate::teardown::inventory::{Gap, Item};
use crate::view::shown;

/// What is read whole: group, version and plural. No kind of it holds anything secret.
pub const WANTED: [(&str, &str, &str); 15] = [
    ("", "v1", "namespaces"),
    ("", "v1", "persistentvolumes"),
    ("", "v1", "services"),
    ("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations"),
    ("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations"),
    ("apiregistration.k8s.io", "v1", "apiservices"),
    ("apps", "v1", "daemonsets"),
    ("apps", "v1", "deployments"),
    ("apps", "v1", "statefulsets"),
    ("discovery.k8s.io", "v1", "endpointslices"),
    ("rbac.authorization.k8s.io", "v1", "clusterrolebindings"),
    ("rbac.authorization.k8s.io", "v1", "clusterroles"),
    ("rbac.authorization.k8s.io", "v1", "rolebindings"),
    ("rbac.authorization.k8s.io", "v1", "roles"),
    ("snapshot.storage.k8s.io", "v1", "volumesnapshotclasses"),
];

/// A service that something is asked at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServiceRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ServiceRef {
    fn read(reference: &Value) -> Option<Self> {
        let field = |pointer: &str| text(reference, pointer).map(str::to_owned);
        Some(Self { namespace: field("/namespace")?, name: field("/name")? })
    }
}

impl std::fmt::Display for ServiceRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Service {}/{}", self.namespace, self.name)
    }
}

/// A CustomResourceDefinition. Of its schema, which is most of it, nothing is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// Its name: `plural.group`.
    pub name: String,
    /// Who converts its objects between versions, where that is a webhook.
    pub conversion: Option<ServiceRef>,
}

impl Definition {
    /// Reads one.
    pub fn read(definition: &Value) -> Option<Self> {
        let name = text(definition, "/metadata/name")?.to_owned();
        let webhook = text(definition, "/spec/conversion/strategy") == Some("Webhook");
        let service = definition.pointer("/spec/conversion/webhook/clientConfig/service").filter(|_| webhook);
        Some(Self { name, conversion: service.and_then(ServiceRef::read) })
    }
}

/// A Deployment, StatefulSet or DaemonSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// Its kind.
    pub kind: &'static str,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uid: String,
    /// The account of its pods, `namespace/name`.
    pub account: String,
    /// A pod of it is ready.
    pub ready: bool,
    /// It is a part of Argo, which may write everything and clears nobody else's finalizers.
    pub argo: bool,
    /// Its sync wave.
    pub wave: i64,
}

impl std::fmt::Display for Workload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

impl Workload {
    fn read(kind: &'static str, workload: &Value) -> Option<Self> {
        let field = |pointer: &str| text(workload, pointer).map(str::to_owned);
        let namespace = field("/metadata/namespace")?;
        let account = text(workload, "/spec/template/spec/serviceAccountName").unwrap_or("default");
        let number = |pointer: &str| workload.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
        Some(Self {
            kind,
            account: format!("{namespace}/{account}"),
            namespace,
            name: field("/metadata/name")?,
            uid: field("/metadata/uid")?,
            ready: number("/status/readyReplicas") > 0 || number("/status/numberReady") > 0,
            argo: WorkloadFacts::read(workload).is_some(),
            wave: Item::read(workload)?.wave,
        })
    }
}

/// Which accounts may change objects of a kind, as roles say it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Powers {
    /// By group and plural; the plural is `*` where all of a group are meant.
    named: BTreeMap<(String, String), BTreeSet<String>>,
    /// Accounts that may change everything.
    all: BTreeSet<String>,
}

impl Powers {
    fn read(objects: &Objects) -> Self {
        let mut powers = Self::default();
        for binding in objects.of("clusterrolebindings").iter().chain(objects.of("rolebindings")) {
            let accounts = subjects(binding);
            if accounts.is_empty() {
                continue;
            }
            let (kind, name) = (text(binding, "/roleRef/kind"), text(binding, "/roleRef/name"));
            let namespace = text(binding, "/metadata/namespace");
            let roles = if kind == Some("ClusterRole") { objects.of("clusterroles") } else { objects.of("roles") };
            let is_meant = |role: &&Value| {
                text(role, "/metadata/name") == name
                    && (kind == Some("ClusterRole") || text(role, "/metadata/namespace") == namespace)
            };
            for rule in roles.iter().filter(is_meant).flat_map(|role| items(role, "/rules")) {
                powers.add(rule, &accounts);
            }
        }
        powers
    }

    fn add(&mut self, rule: &Value, accounts: &BTreeSet<String>) {
        let words = |pointer: &'static str| items(rule, pointer).filter_map(Value::as_str);
        // One who may only change objects that are named is not who looks after all of them.
        let named = items(rule, "/resourceNames").next().is_some();
        if named || !words("/verbs").any(|verb| matches!(verb, "update" | "patch" | "*")) {
            return;
        }
        for group in words("/apiGroups") {
            for resource in words("/resources") {
                let (plural, part) = resource.split_once('/').unwrap_or((resource, ""));
                // Whoever writes its status, or how many there are of it, clears nothing.
                if !matches!(part, "" | "finalizers" | "*") {
                    continue;
                }
                let known = match (group, plural) {
                    ("*", "*") => &mut self.all,
                    // Whoever may change a kind of every group means none of them.
                    ("*", _) => continue,
                    _ => self.named.entry((group.to_owned(), plural.to_owned())).or_default(),
                };
                known.extend(accounts.iter().cloned());
            }
        }
    }

    /// Accounts that may change objects of a kind, and say so by its name.
    pub(super) fn over(&self, group: &str, plural: &str) -> Vec<&String> {
        let of = |plural: &str| self.named.get(&(group.to_owned(), plural.to_owned()));
        [of(plural), of("*")].into_iter().flatten().flatten().collect()
    }

    /// Accounts that may change objects of some group below a domain, and say so by its name.
    pub(super) fn below(&self, domain: &str) -> BTreeSet<&String> {
        let wanted = holder(domain);
        let fits = |group: &str| group.contains('.') && holder(group) == wanted;
        self.named.iter().filter(|((group, _), _)| fits(group)).flat_map(|(_, accounts)| accounts).collect()
    }

    /// It may change everything.
    pub(super) fn is_everything(&self, account: &str) -> bool {
        self.all.contains(account)
    }
}

/// The part of a domain that somebody has registered, as far as that can be told from its letters.
fn registrable(domain: &str) -> &str {
    let mut dots = domain.rmatch_indices('.');
    match (dots.next(), dots.next()) {
        (Some(_), Some((at, _))) => domain.get(at + 1..).unwrap_or(domain),
        _ => domain,
    }
}

/// Who has a domain: the part of it that was registered. What is below those of Kubernetes is many people's, one each, and
/// every controller may change something of `coordination.k8s.io`; finalizers there have the older of their two names.
fn holder(domain: &str) -> Cow<'_, str> {
    match registrable(domain) {
        "k8s.io" | "x-k8s.io" => Cow::Borrowed(domain),
        "kubernetes.io" => {
            let front = domain.strip_suffix("kubernetes.io").unwrap_or_default();
            Cow::Owned(format!("{front}k8s.io"))
        }
        registered => Cow::Borrowed(registered),
    }
}

/// Service accounts of a binding, `namespace/name`.
fn subjects(binding: &Value) -> BTreeSet<String> {
    let own = text(binding, "/metadata/namespace").unwrap_or_default();
    let accounts = items(binding, "/subjects").filter(|subject| text(subject, "/kind") == Some("ServiceAccount"));
    accounts
        .filter_map(|subject| {
            let namespace = text(subject, "/namespace").unwrap_or(own);
            text(subject, "/name").map(|name| format!("{namespace}/{name}"))
        })
        .collect()
}

/// What a webhook is asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    groups: Vec<String>,
    resources: Vec<String>,
}

impl Asked {
    /// It is asked about objects of a kind.
    pub(super) fn about(&self, group: &str, plural: &str) -> bool {
        let fits =
            |words: &[String], wanted: &str| words.iter().any(|word| word == "*" || word == "*/*" || word == wanted);
        fits(&self.groups, group) && fits(&self.resources, plural)
    }
}

/// A webhook that is asked before something is changed or removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    /// The plural of its configuration's kind.
    pub plural: &'static str,
    /// The configuration that it is a part of.
    pub configuration: String,
    /// The configuration's identity.
    pub uid: String,
    /// Its name.
    pub name: String,
    /// Where it is asked; nothing where that is outside of the cluster.
    pub service: Option<ServiceRef>,
    /// Without an answer nothing happens.
    pub fails: bool,
    /// It is only asked about some objects or namespaces, by their labels.
    pub selects: bool,
    /// What it is asked about when that is changed or removed.
    pub asked: Vec<Asked>,
}

impl Webhook {
    fn read(plural: &'static str, configuration: &Value) -> Vec<Self> {
        let Some(name) = text(configuration, "/metadata/name") else { return Vec::new() };
        let uid = text(configuration, "/metadata/uid").unwrap_or_default();
        let of = |webhook: &Value| {
            let set = |pointer: &str| {
                let selector = webhook.pointer(pointer).and_then(Value::as_object);
                selector.is_some_and(|selector| !selector.is_empty())
            };
            let rules = items(webhook, "/rules").filter(|rule| {
                let mut operations = items(rule, "/operations").filter_map(Value::as_str);
                operations.any(|operation| matches!(operation, "*" | "UPDATE" | "DELETE"))
            });
            let words = |rule: &Value, pointer: &str| -> Vec<String> {
                items(rule, pointer).filter_map(Value::as_str).map(str::to_owned).collect()
            };
            let asked =
                rules.map(|rule| Asked { groups: words(rule, "/apiGroups"), resources: words(rule, "/resources") });
            Self {
                plural,
                configuration: name.to_owned(),
                uid: uid.to_owned(),
                name: text(webhook, "/name").unwrap_or(name).to_owned(),
                service: webhook.pointer("/clientConfig/service").and_then(ServiceRef::read),
                fails: text(webhook, "/failurePolicy") != Some("Ignore"),
                selects: set("/namespaceSelector") || set("/objectSelector"),
                asked: asked.collect(),
            }
        };
        items(configuration, "/webhooks").map(of).collect()
    }
}

/// A Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Which.
    pub reference: ServiceRef,
    /// Its identity.
    pub uid: String,
    /// Somebody answers.
    pub ready: bool,
    /// It asks for a load balancer.
    pub balanced: bool,
    /// The addresses of its load balancer.
    pub addresses: Vec<String>,
    /// Something in the cluster gives them, and there is nothing outside of it that could stay.
    pub given_inside: bool,
}

impl Service {
    fn read(service: &Value, ready: &BTreeSet<ServiceRef>) -> Option<Self> {
        let reference = service.get("metadata").and_then(ServiceRef::read)?;
        let address = |found: &Value| text(found, "/ip").or_else(|| text(found, "/hostname")).map(shown);
        Some(Self {
            uid: text(service, "/metadata/uid")?.to_owned(),
            // What has no selector is looked after by somebody else.
            ready: ready.contains(&reference),
            balanced: text(service, "/spec/type") == Some("LoadBalancer"),
            addresses: items(service, "/status/loadBalancer/ingress").filter_map(address).collect(),
            given_inside: is_given_inside(service),
            reference,
        })
    }
}

/// MetalLB and kube-vip mark the Services that they give addresses to, and Cilium says so in a condition.
fn is_given_inside(service: &Value) -> bool {
    let marks = service.pointer("/metadata/annotations").and_then(Value::as_object);
    let own = ["metallb.io/", "metallb.universe.tf/", "kube-vip.io/"];
    let is_marked = marks.is_some_and(|marks| marks.keys().any(|key| own.iter().any(|start| key.starts_with(start))));
    let mut conditions = items(service, "/status/conditions").filter_map(|found| text(found, "/type"));
    is_marked || conditions.any(|kind| kind == "cilium.io/IPAMRequestSatisfied")
}

/// Services that somebody answers at.
fn ready(slices: &[Value]) -> BTreeSet<ServiceRef> {
    let mut found = BTreeSet::new();
    for slice in slices {
        let namespace = text(slice, "/metadata/namespace");
        let name =
            slice.pointer("/metadata/labels").and_then(|labels| labels.get("kubernetes.io/service-name")?.as_str());
        let is_ready = |endpoint: &Value| endpoint.pointer("/conditions/ready").and_then(Value::as_bool) != Some(false);
        if let (Some(namespace), Some(name), true) = (namespace, name, items(slice, "/endpoints").any(is_ready)) {
            found.insert(ServiceRef { namespace: namespace.to_owned(), name: name.to_owned() });
        }
    }
    found
}

/// A registered API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiService {
    /// Its name: `version.group`.
    pub name: String,
    /// Its identity.
    pub uid: String,
    /// Where it is asked; nothing for what the API server serves itself.
    pub service: Option<ServiceRef>,
    /// It does not answer, in Kubernetes' own words.
    pub down: Option<String>,
}

impl ApiService {
    fn read(service: &Value) -> Option<Self> {
        let available = items(service, "/status/conditions").find(|found| text(found, "/type") == Some("Available"));
        let down = available.filter(|found| text(found, "/status") != Some("True"));
        let words = |found: &Value| {
            let word = |pointer: &str| text(found, pointer).unwrap_or("no reason");
            shown(&format!("{}: {}", word("/reason"), word("/message")))
        };
        Some(Self {
            name: text(service, "/metadata/name")?.to_owned(),
            uid: text(service, "/metadata/uid")?.to_owned(),
            service: service.pointer("/spec/service").and_then(ServiceRef::read),
            down: down.map(words),
        })
    }
}

/// Objects that were read whole, by their plural.
#[derive(Debug, Clone, Default)]
pub struct Objects(BTreeMap<&'static str, Vec<Value>>);

impl Objects {
    /// Objects of a kind.
    pub fn add(&mut self, plural: &'static str, objects: Vec<Value>) {
        self.0.insert(plural, objects);
    }

    fn of(&self, plural: &str) -> &[Value] {
        self.0.get(plural).map_or(&[], Vec::as_slice)
    }
}

/// What decides whether something stands in the way.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// Definitions.
    pub definitions: Vec<Definition>,
    /// Workloads.
    pub workloads: Vec<Workload>,
    /// What their accounts may change.
    pub powers: Powers,
    /// Webhooks.
    pub webhooks: Vec<Webhook>,
    /// Services.
    pub services: Vec<Service>,
    /// Volumes that a claim has, or had.
    pub volumes: Vec<Volume>,
    /// Drivers whose volumes can be copied.
    pub copied: BTreeSet<String>,
    /// Registered APIs.
    pub api_services: Vec<ApiService>,
    /// Namespaces.
    pub namespaces: Vec<NamespaceFacts>,
    /// What could not be read.
    pub gaps: Vec<Gap>,
}

impl Facts {
    /// Of definitions and of what was read whole.
    pub fn read(definitions: Vec<Definition>, objects: &Objects, gaps: Vec<Gap>) -> Self {
        let kinds = [("Deployment", "deployments"), ("StatefulSet", "statefulsets"), ("DaemonSet", "daemonsets")];
        let workloads = kinds.into_iter().flat_map(|(kind, plural)| {
            objects.of(plural).iter().filter_map(move |workload| Workload::read(kind, workload))
        });
        let webhooks = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"].into_iter();
        let webhooks = webhooks.flat_map(|plural| {
            objects.of(plural).iter().flat_map(move |configuration| Webhook::read(plural, configuration))
        });
        let ready = ready(objects.of("endpointslices"));
        let driver = |class: &Value| text(class, "/driver").map(str::to_owned);
        let namespace =
            |object: &Value| text(object, "/metadata/name").map(|name| NamespaceFacts::read(name, Some(object)));
        Self {
            definitions,
            workloads: workloads.collect(),
            powers: Powers::read(objects),
            webhooks: webhooks.collect(),
            services: objects.of("services").iter().filter_map(|service| Service::read(service, &ready)).collect(),
            volumes: objects.of("persistentvolumes").iter().filter_map(Volume::read).collect(),
            copied: objects.of("volumesnapshotclasses").iter().filter_map(driver).collect(),
            api_services: objects.of("apiservices").iter().filter_map(ApiService::read).collect(),
            namespaces: objects.of("namespaces").iter().filter_map(namespace).collect(),
            gaps,
        }
    }

    /// A service, where it is there.
    pub(super) fn service(&self, reference: &ServiceRef) -> Option<&Service> {
        self.services.iter().find(|service| service.reference == *reference)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn objects(all: &[(&'static str, Value)]) -> Objects {
        let mut objects = Objects::default();
        for (plural, list) in all {
            objects.add(plural, list.as_array().unwrap().clone());
        }
        objects
    }

    fn binding(role: &str, account: &str) -> Value {
        let (namespace, name) = account.split_once('/').unwrap();
        json!({
            "metadata": {"name": role},
            "roleRef": {"kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": name}, {"kind": "User", "name": "eve"}],
        })
    }

    fn role(name: &str, group: &str, resources: &[&str], verbs: &[&str]) -> Value {
        json!({"metadata": {"name": name}, "rules": [{"apiGroups": [group], "resources": resources, "verbs": verbs}]})
    }

    #[test]
    fn who_may_change_a_kind_is_read_from_roles_and_bindings() {
        let mut named = role("named", "example.com", &["widgets"], &["update"]);
        named["rules"][0]["resourceNames"] = json!(["one"]);
        let read = Facts::read(
            vec![],
            &objects(&[
                (
                    "clusterroles",
                    json!([
                        role("widgets", "example.com", &["widgets", "widgets/status"], &["get", "update"]),
                        role("reader", "example.com", &["widgets"], &["get", "list"]),
                        role("group", "acme.example.com", &["*"], &["*"]),
                        role("all", "*", &["*"], &["*"]),
                        role("secrets", "*", &["secrets"], &["update"]),
                        role("scaler", "*", &["*/scale"], &["update"]),
                        role("reporter", "example.com", &["widgets/status"], &["update"]),
                        role("elected", "coordination.k8s.io", &["leases"], &["update"]),
                        role("copies", "snapshot.storage.k8s.io", &["volumesnapshots"], &["update"]),
                        named,
                    ]),
                ),
                (
                    "clusterrolebindings",
                    json!([
                        binding("widgets", "ops/operator"),
                        binding("reader", "ops/reader"),
                        binding("group", "ops/acme"),
                        binding("all", "ops/admin"),
                        binding("secrets", "ops/copier"),
                        binding("scaler", "ops/scaler"),
                        binding("reporter", "ops/reporter"),
                        binding("elected", "ops/elected"),
                        binding("copies", "ops/copies"),
                        binding("named", "ops/named"),
                        binding("nowhere", "ops/nobody"),
                    ]),
                ),
                (
                    "roles",
                    json!([{"metadata": {"name": "local", "namespace": "shop"}, "rules": [
                        {"apiGroups": ["example.com"], "resources": ["gadgets/finalizers"], "verbs": ["patch"]},
                    ]}]),
                ),
                (
                    "rolebindings",
                    json!([{
                        "metadata": {"name": "local", "namespace": "shop"},
                        "roleRef": {"kind": "Role", "name": "local"},
                        "subjects": [{"kind": "ServiceAccount", "name": "gadgets"}],
                    }]),
                ),
            ]),
            vec![],
        );
        let over =
            |plural: &str| read.powers.over("example.com", plural).into_iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!(over("widgets"), ["ops/operator"]);
        assert_eq!(over("gadgets"), ["shop/gadgets"]);
        assert_eq!(read.powers.over("acme.example.com", "anything"), ["ops/acme"]);
        let below: Vec<&str> = read.powers.below("finalizers.example.com").into_iter().map(String::as_str).collect();
        assert_eq!(below, ["ops/acme", "ops/operator", "shop/gadgets"]);
        assert!(read.powers.below("example.org").is_empty());
        assert!(read.powers.is_everything("ops/admin") && !read.powers.is_everything("ops/copier"));
        // Whoever may scale everything may not change everything.
        assert!(!read.powers.is_everything("ops/scaler"));
        // Below Kubernetes' own domains everybody has something.
        assert!(read.powers.below("hold.x.k8s.io").is_empty());
        let copies = read.powers.below("snapshot.storage.kubernetes.io");
        assert_eq!(copies.into_iter().map(String::as_str).collect::<Vec<_>>(), ["ops/copies"]);
        assert_eq!(
            (registrable("a.b.example.com"), registrable("k8s.aws"), registrable("")),
            ("example.com", "k8s.aws", "")
        );
    }

    #[test]
    fn webhooks_are_those_that_are_asked_about_changes_with_where_and_what_without_an_answer() {
        let configuration = json!({"metadata": {"name": "guard", "uid": "u"}, "webhooks": [
            {
                "name": "guard.example.com", "clientConfig": {"service": {"namespace": "ops", "name": "guard"}},
                "namespaceSelector": {"matchLabels": {"a": "b"}}, "objectSelector": {},
                "rules": [
                    {"apiGroups": ["example.com"], "resources": ["widgets"], "operations": ["CREATE"]},
                    {"apiGroups": [""], "resources": ["*"], "operations": ["CREATE", "DELETE"]},
                ],
            },
            {"name": "soft.example.com", "clientConfig": {"url": "https://example.com"}, "failurePolicy": "Ignore", "rules": []},
        ]});
        let read =
            Facts::read(vec![], &objects(&[("validatingwebhookconfigurations", json!([configuration]))]), vec![]);
        let [hard, soft] = read.webhooks.as_slice() else { panic!("{:?}", read.webhooks) };
        assert!(hard.fails && hard.selects && hard.service.as_ref().is_some_and(|service| service.name == "guard"));
        assert!(hard.asked.iter().any(|asked| asked.about("", "pods")));
        assert!(!hard.asked.iter().any(|asked| asked.about("example.com", "widgets")));
        assert!(!soft.fails && !soft.selects && soft.service.is_none() && soft.asked.is_empty());
    }

    #[test]
    fn a_service_is_ready_when_an_endpoint_of_it_is() {
        let service = |name: &str| json!({"metadata": {"namespace": "ops", "name": name, "uid": name}, "spec": {"type": "ClusterIP"}});
        let slice = |name: &str, ready: Value| {
            let labels = json!({"kubernetes.io/service-name": name});
            json!({"metadata": {"namespace": "ops", "labels": labels}, "endpoints": [{"conditions": {"ready": ready}}]})
        };
        let balanced = json!({
            "metadata": {"namespace": "ops", "name": "edge", "uid": "e"}, "spec": {"type": "LoadBalancer"},
            "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.7"}, {"hostname": "lb.example.com"}, {}]}},
        });
        let read = Facts::read(
            vec![],
            &objects(&[
                ("services", json!([service("well"), service("unwell"), service("alone"), balanced])),
                ("endpointslices", json!([slice("well", json!(true)), slice("unwell", json!(false))])),
            ]),
            vec![],
        );
        let ready: Vec<bool> = read.services.iter().map(|service| service.ready).collect();
        assert_eq!(ready, [true, false, false, false]);
        assert_eq!(read.services[3].addresses, ["203.0.113.7", "lb.example.com"]);
        assert!(read.services[3].balanced && !read.services[0].balanced && !read.services[3].given_inside);
        for inside in [
            json!({"metadata": {"annotations": {"metallb.io/ip-allocated-from-pool": "lan"}}}),
            json!({"status": {"conditions": [{"type": "cilium.io/IPAMRequestSatisfied", "status": "True"}]}}),
        ] {
            assert!(is_given_inside(&inside), "{inside}");
        }
    }

    #[test]
    fn apis_that_do_not_answer_volumes_and_definitions_are_read() {
        let down = json!({
            "metadata": {"name": "v1beta1.metrics.k8s.io", "uid": "u"},
            "spec": {"service": {"namespace": "kube-system", "name": "metrics-server"}},
            "status": {"conditions": [{"type": "Available", "status": "False", "reason": "MissingEndpoints", "message": "none"}]},
        });
        let found = ApiService::read(&down).unwrap();
        assert_eq!(found.down.as_deref(), Some("MissingEndpoints: none"));
        let local = json!({"metadata": {"name": "v1.apps", "uid": "u"}, "status": {"conditions": [{"type": "Available", "status": "True"}]}});
        assert_eq!(ApiService::read(&local).unwrap().down, None);
        let volume = json!({
            "metadata": {"name": "pv"},
            "spec": {
                "claimRef": {"namespace": "shop", "name": "data"}, "persistentVolumeReclaimPolicy": "Delete",
                "csi": {"driver": "disk.example.com"}, "capacity": {"storage": "1Gi"},
            },
            "status": {"phase": "Bound"},
        });
        let volume = Volume::read(&volume).unwrap();
        assert_eq!((volume.claimed().as_str(), volume.is_retained(), volume.released), ("shop/data", false, false));
        let definition = json!({"metadata": {"name": "widgets.example.com"}, "spec": {"conversion": {
            "strategy": "Webhook", "webhook": {"clientConfig": {"service": {"namespace": "ops", "name": "convert"}}},
        }}});
        assert!(Definition::read(&definition).unwrap().conversion.is_some());
        let mut without = definition.clone();
        without["spec"]["conversion"]["strategy"] = json!("None");
        assert_eq!(Definition::read(&without).unwrap().conversion, None);
    }

    #[test]
    fn hostile_objects_are_not_there() {
        for hostile in [json!(null), json!([]), json!({"metadata": []}), json!({"metadata": {"name": 7}})] {
            let list = json!([hostile]);
            let all: Vec<(&'static str, Value)> = WANTED.iter().map(|(_, _, plural)| (*plural, list.clone())).collect();
            let read = Facts::read(vec![], &objects(&all), vec![]);
            assert!(read.workloads.is_empty() && read.webhooks.is_empty() && read.services.is_empty());
            assert!(read.volumes.is_empty() && read.api_services.is_empty() && read.namespaces.is_empty());
            assert_eq!(Definition::read(&hostile), None);
        }
    }
}
