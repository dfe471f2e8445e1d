//! What an account is given, kind by kind; the account that installs; and requests, so that what was asked can be compared
//! with what was given.
//!
//! `forge-installer` is what `executor deploy` needs on a cluster where nothing is prepared: phase 0, phase 1 and the run. It
//! may give any right, because Argo CD's own controller may do everything; docs/adr/0024 says why it is an account of its
//! own, and when it goes.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{
    ADMINISTRATOR, Ask, BOOTSTRAP, DEPLOY, EXECUTOR, HELM, HELM_CLUSTER, OWN, PROBE_APART, RBAC, READ, ROOT, Rule,
    Scope, TRIGGERS, granted, rule,
};
use crate::preflight::{Component, Purpose};

/// Phase 0 and phase 1 look before they write. Who may not look is not stopped by it; an account that is made for it may.
static LOOKS: [Rule; 11] = [
    rule(Scope::Cluster, "", &["nodes"], &["list"], "nodes that can take a pod"),
    rule(Scope::Cluster, "storage.k8s.io", &["storageclasses"], &["list"], "where volumes would come from"),
    rule(Scope::Cluster, "apiextensions.k8s.io", &["customresourcedefinitions"], &["list"], "what is there of Argo"),
    rule(Scope::Everywhere, "apps", &["deployments", "statefulsets"], &["list"], "what is there of Argo"),
    rule(Scope::Everywhere, "argoproj.io", &["applications"], &["list"], "what another policy of signatures rendered"),
    rule(Scope::Everywhere, "", &["events"], &["list"], "why a pod does not start"),
    rule(Scope::Workflows, "", &["resourcequotas", "limitranges"], &["list"], "room for the pods of a run"),
    rule(Scope::Workflows, "", &["persistentvolumeclaims"], &["list"], "what checks left that were killed"),
    rule(Scope::Workflows, "", &["pods/log"], &["get"], "why nothing is heard of events"),
    rule(Scope::Cluster, "argoproj.io", &["clusterworkflowtemplates"], &["get"], "what is there of Forge"),
    rule(
        Scope::Cluster,
        "admissionregistration.k8s.io",
        &["validatingadmissionpolicies", "validatingadmissionpolicybindings"],
        &["get"],
        "what is there of Forge",
    ),
];

/// Whoever validates, and never writes. Who may not read some of it is told what is not known. What `requires` and `health` of a
/// graph name comes on top.
static VALIDATES: [Rule; 9] = [
    rule(Scope::Everywhere, "argoproj.io", &["applications", "appprojects"], READ, "what Argo CD says, and windows"),
    rule(Scope::Everywhere, "apps", &["deployments", "statefulsets"], READ, "controllers, and what runs"),
    rule(Scope::Everywhere, "apps", &["daemonsets"], &["get"], "what runs"),
    rule(Scope::Everywhere, "batch", &["jobs", "cronjobs"], &["get"], "rules on live objects"),
    rule(Scope::Everywhere, "", &["configmaps"], &["get"], "rules on live objects"),
    rule(Scope::Everywhere, "", &["pods"], &["get", "list"], "the digests of what runs"),
    rule(Scope::Everywhere, "coordination.k8s.io", &["leases"], &["get"], "whether a run is in progress"),
    rule(Scope::Cluster, "apiextensions.crossplane.io", &["environmentconfigs"], &["get"], "EnvironmentConfigs"),
    rule(
        Scope::Cluster,
        "apiextensions.k8s.io",
        &["customresourcedefinitions"],
        &["get"],
        "definitions that are required",
    ),
];

/// Whoever replaces the token of the Argo CD account by the calendar. The account makes its tokens itself while it has one, so
/// no administrator's password is among it.
static ROTATES: [Rule; 2] = [
    rule(Scope::Workflows, "", &["secrets"], &["get", "patch"], "the token of the Argo CD account"),
    rule(Scope::ArgoCd, "", &["services/proxy"], &["get", "create", "delete"], "the tokens of the Argo CD account"),
];

/// Who tries a volume looks whether it is gone again; who may not leaves that to its provisioner.
static VOLUME: Rule = rule(Scope::Cluster, "", &["persistentvolumes"], &["get"], "that the volume of a check is gone");

/// Whoever tears down, beside what whoever deploys and whoever installs may do.
static REMOVAL: [Rule; 14] = [
    rule(Scope::Everywhere, "*", &["*"], &["get", "list", "watch"], "what nodes had made, and what is in a namespace"),
    rule(Scope::Cluster, "", &["namespaces"], &["delete"], "the namespaces of the environment"),
    rule(Scope::Cluster, "", &["persistentvolumes"], &["patch"], "volumes that outlive their claims"),
    rule(
        Scope::Cluster,
        "apiextensions.k8s.io",
        &["customresourcedefinitions"],
        &["delete"],
        "definitions that nobody uses",
    ),
    rule(Scope::Everywhere, "snapshot.storage.k8s.io", &["volumesnapshots"], &["create"], "copies of volumes"),
    rule(Scope::Cluster, "snapshot.storage.k8s.io", &["volumesnapshotcontents"], &["patch"], "copies of volumes"),
    rule(
        Scope::ArgoCd,
        "argoproj.io",
        &["applications", "applicationsets"],
        &["patch", "delete"],
        "what would make nodes again",
    ),
    rule(Scope::ArgoCd, "argoproj.io", &["appprojects"], &["delete"], "the AppProject of an environment"),
    rule(Scope::ArgoCd, "", &["secrets", "configmaps"], &["delete"], "cluster Secrets and the receipts of bootstrap"),
    rule(Scope::ArgoCd, RBAC, &["roles", "rolebindings"], &["delete"], "the rights of a run"),
    rule(Scope::Workflows, "", &["secrets"], &["get", "create", "patch", "delete"], "the token of the teardown"),
    rule(
        Scope::Workflows,
        "argoproj.io",
        &["sensors", "eventsources", "eventbus", "workflows", "workflowtasksets"],
        &["delete"],
        "what starts runs, and what runs left",
    ),
    rule(Scope::Workflows, "batch", &["jobs"], &["delete"], "Jobs of events that wait for their turn"),
    rule(Scope::Workflows, "coordination.k8s.io", &["leases"], &["delete"], "what runs left"),
];

/// The last environment takes along what all of them shared.
static REMOVAL_OF_ALL: [Rule; 4] = [
    rule(Scope::Cluster, "argoproj.io", &["clusterworkflowtemplates"], &["delete"], "the template of all nodes"),
    rule(
        Scope::Cluster,
        "admissionregistration.k8s.io",
        &["validatingadmissionpolicies", "validatingadmissionpolicybindings"],
        &["delete"],
        "the policy that limits who writes sync windows",
    ),
    rule(
        Scope::Cluster,
        "admissionregistration.k8s.io",
        &["validatingwebhookconfigurations"],
        &["delete"],
        "what Crossplane made when it started",
    ),
    rule(
        Scope::Workflows,
        "",
        &["serviceaccounts", "configmaps"],
        &["delete"],
        "the accounts, plans and records of runs",
    ),
];

/// What is named after its namespace today, and was not.
static FORMER: [Rule; 1] = [rule(
    Scope::Cluster,
    "admissionregistration.k8s.io",
    &["validatingadmissionpolicies", "validatingadmissionpolicybindings"],
    &["delete"],
    "policies of earlier versions",
)];

/// Nobody gives more than he has, unless he may do exactly that.
static GIVING: [Rule; 1] =
    [rule(Scope::Everywhere, RBAC, &["clusterroles", "roles"], &["escalate", "bind"], "the rights of Argo")];

/// Verbs that are no requests: the API server asks for them when somebody writes a role or a binding.
const ASKED_BY_THE_SERVER: [&str; 2] = ["escalate", "bind"];

/// Rights that a good day does not need: kind, verbs, and the case that does.
static RARELY: [(&str, &[&str], &[&str], &str); 20] = [
    ("", &["pods"], &["delete"], "an agent pod is stuck"),
    ("", &["pods/log"], &["get"], "what hears events does not stay up"),
    ("", &["events"], &["list"], "the pod of a check does not start"),
    (
        "",
        &["configmaps"],
        &["delete"],
        "more runs than are kept; an installation is taken back; events no longer start runs",
    ),
    ("", &["secrets"], &["patch", "delete"], "an upgrade; a history that has grown; an installation is taken back"),
    ("", &["services"], &["patch", "delete"], "an upgrade; an installation is taken back"),
    ("", &["services/proxy"], &["delete"], "an old token goes; an operation of Argo CD is asked to end"),
    ("", &["serviceaccounts"], &["delete"], "an installation is taken back"),
    ("apps", &["deployments", "statefulsets"], &["patch", "delete"], "an upgrade; an installation is taken back"),
    ("apiextensions.k8s.io", &["customresourcedefinitions"], &["patch"], "an upgrade"),
    ("batch", &["jobs"], &["get"], "a run of `forge platform deploy`, which is a Job of its own"),
    (RBAC, &["clusterroles", "clusterrolebindings"], &["patch", "delete"], "an upgrade; an installation is taken back"),
    (RBAC, &["roles", "rolebindings"], &["delete"], "an installation is taken back"),
    (
        "admissionregistration.k8s.io",
        &["validatingadmissionpolicies", "validatingadmissionpolicybindings"],
        &["delete"],
        "an earlier version left policies",
    ),
    ("argoproj.io", &["workflows"], &["get"], "a Workflow that was just submitted is not seen yet"),
    ("argoproj.io", &["workflows"], &["patch"], "a run is told to stop, or was left by another one"),
    (
        "argoproj.io",
        &["applications"],
        &["get", "create", "patch", "delete"],
        "a root with Applications: Crossplane, or Argo CD itself",
    ),
    ("argoproj.io", &["eventbus"], &["get"], "events start runs"),
    (
        "argoproj.io",
        &["eventbus", "eventsources", "sensors"],
        &["create", "patch", "delete"],
        "events start runs, or did",
    ),
    ("coordination.k8s.io", &["leases"], &["create"], "the first run of an environment"),
];

/// What an account may do with one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Where.
    pub scope: Scope,
    /// The API group.
    pub group: &'static str,
    /// The kind, and a subresource after a `/`.
    pub resource: &'static str,
    /// What.
    pub verbs: BTreeSet<&'static str>,
}

/// Kinds of places, and what may be done with them.
type Table = BTreeMap<(Scope, &'static str, &'static str), BTreeSet<&'static str>>;

/// The rules of an account that `bootstrap` makes, kind by kind.
pub fn grants(account: &str) -> Vec<Grant> {
    let mut table = Table::new();
    for rule in granted(account) {
        add(&mut table, rule.scope, rule);
    }
    listed(table)
}

/// The account that takes a cluster from bare to a proven platform: what it may do, kind by kind. A namespace that is not
/// there yet cannot hold a Role, so what concerns others than that of Argo Workflows holds in all of them.
pub fn installer() -> Vec<Grant> {
    let of_components = Component::ALL.into_iter().flat_map(|component| {
        let scoped = move |rule: &Rule| Rule { scope: component.scope(), ..*rule };
        HELM.iter().map(scoped)
    });
    // Volumes are tried only where somebody asks for it: `volumes` has what that takes.
    let probe = PROBE_APART.iter().filter(|rule| !is_of_claims(rule));
    let own = std::slice::from_ref(&OWN);
    let fixed: [&[Rule]; 10] =
        [&EXECUTOR, &BOOTSTRAP, &ADMINISTRATOR, &TRIGGERS, own, &ROOT, &HELM_CLUSTER, &LOOKS, &FORMER, &GIVING];
    let mut table = Table::new();
    for rule in fixed.into_iter().flatten().chain(probe).copied().chain(of_components) {
        let scope = if rule.scope == Scope::Workflows { Scope::Workflows } else { Scope::Everywhere };
        add(&mut table, scope, &rule);
    }
    let everywhere = table.iter().filter(|((scope, ..), _)| *scope == Scope::Everywhere);
    let everywhere: Table = everywhere.map(|(key, verbs)| (*key, verbs.clone())).collect();
    for ((scope, group, resource), verbs) in &mut table {
        // What holds in all namespaces is not given a second time in one of them.
        if let (Scope::Workflows, Some(all)) = (*scope, everywhere.get(&(Scope::Everywhere, *group, *resource))) {
            verbs.retain(|verb| !all.contains(verb));
        }
    }
    table.retain(|_, verbs| !verbs.is_empty());
    listed(table)
}

/// An account that validates and cannot do anything else: what it may read, kind by kind.
pub fn reader() -> Vec<Grant> {
    let mut table = Table::new();
    for rule in &VALIDATES {
        add(&mut table, Scope::Everywhere, rule);
    }
    listed(table)
}

/// What phase 0 takes beyond what the account that installs has, where a volume is tried, kind by kind.
pub fn volumes() -> Vec<Grant> {
    let mut table = Table::new();
    for rule in PROBE_APART.iter().filter(|rule| is_of_claims(rule)).chain([&VOLUME]) {
        add(&mut table, Scope::Everywhere, rule);
    }
    listed(table)
}

fn is_of_claims(rule: &Rule) -> bool {
    rule.resources == ["persistentvolumeclaims"]
}

/// An account that replaces the token of the Argo CD account and cannot do anything else, kind by kind. Of the Secrets beside Argo
/// Workflows it may have that token's alone, which its role names.
pub fn rotator() -> Vec<Grant> {
    let mut table = Table::new();
    for rule in &ROTATES {
        add(&mut table, rule.scope, rule);
    }
    listed(table)
}

/// What whoever tears down the last environment needs, kind by kind. No account that `bootstrap` makes has it: who removes a
/// platform is a person who may, or a Job that was given an account for it.
pub fn remover() -> Vec<Grant> {
    let of_components = Component::ALL.into_iter().flat_map(|component| {
        let scoped = move |rule: &Rule| Rule { scope: component.scope(), ..*rule };
        HELM.iter().map(scoped)
    });
    let fixed: [&[Rule]; 5] = [&EXECUTOR, &DEPLOY, &HELM_CLUSTER, &REMOVAL, &REMOVAL_OF_ALL];
    let mut table = Table::new();
    for rule in fixed.into_iter().flatten().copied().chain(of_components) {
        add(&mut table, rule.scope, &rule);
    }
    listed(table)
}

/// What whoever tears down a whole environment writes, as an API server is asked for it beforehand. `last` is whether what all
/// environments share goes too, `copies` whether volumes are copied.
pub fn removing(purpose: &Purpose, last: bool, copies: bool) -> BTreeSet<Ask> {
    let shared: &[Rule] = if last { &REMOVAL_OF_ALL } else { &[] };
    let written = |rule: &&Rule| {
        let copy = rule.group == "snapshot.storage.k8s.io";
        // What its owner made in the namespace of his Argo CD stays his.
        let his = purpose.handed && rule.scope == Scope::ArgoCd && !rule.resources.contains(&"applications");
        rule.resources != ["*"] && (copies || !copy) && !his
    };
    REMOVAL.iter().chain(shared).filter(written).flat_map(|rule| rule.asks(purpose)).collect()
}

fn add(table: &mut Table, scope: Scope, rule: &Rule) {
    for resource in rule.resources {
        table.entry((scope, rule.group, *resource)).or_default().extend(rule.verbs.iter().copied());
    }
}

fn listed(table: Table) -> Vec<Grant> {
    let grant = |((scope, group, resource), verbs)| Grant { scope, group, resource, verbs };
    table.into_iter().map(grant).collect()
}

/// Grants as rules of a role: kinds of one group with the same verbs are one rule.
pub(crate) fn rules<'g>(grants: impl IntoIterator<Item = &'g Grant>) -> Vec<Value> {
    let mut joined: BTreeMap<(&str, Vec<&str>), Vec<&str>> = BTreeMap::new();
    for grant in grants {
        joined.entry((grant.group, grant.verbs.iter().copied().collect())).or_default().push(grant.resource);
    }
    let rules = joined.into_iter();
    rules
        .map(|((group, verbs), resources)| json!({"apiGroups": [group], "resources": resources, "verbs": verbs}))
        .collect()
}

/// The case that a right is for, where a good day does not need it.
pub fn rarely(group: &str, resource: &str, verb: &str) -> Option<&'static str> {
    let fits = |(of, resources, verbs, _): &&(&str, &[&str], &[&str], &str)| {
        *of == group && resources.contains(&resource) && verbs.contains(&verb)
    };
    RARELY.iter().find(fits).map(|(.., case)| *case)
}

/// A request, as an API server judges it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request {
    /// What.
    pub verb: String,
    /// The API group.
    pub group: String,
    /// The kind, and a subresource after a `/`.
    pub resource: String,
    /// Where; empty for objects without a namespace, and for all namespaces.
    pub namespace: String,
}

impl Request {
    /// A request by its method and address; nothing for what is no object: versions, discovery, documents.
    pub fn read(method: &str, uri: &str) -> Option<Self> {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (group, rest) = match parts.as_slice() {
            ["api", _, rest @ ..] => ("", rest),
            ["apis", group, _, rest @ ..] => (*group, rest),
            _ => return None,
        };
        // `namespaces/argo` is an object of its own, `namespaces/argo/pods` is in it.
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            other => ("", other),
        };
        let (plural, name, below) = match rest {
            [] => return None,
            [plural] => (*plural, None, None),
            [plural, name] => (*plural, Some(*name), None),
            [plural, name, below, ..] => (*plural, Some(*name), Some(*below)),
        };
        let verb = match (method, name) {
            ("GET", _) if query.split('&').any(|part| part == "watch=true") => "watch",
            ("GET", None) => "list",
            ("GET", Some(_)) => "get",
            ("POST", _) => "create",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            ("DELETE", None) => "deletecollection",
            ("DELETE", Some(_)) => "delete",
            _ => return None,
        };
        let resource = below.map_or_else(|| plural.to_owned(), |below| format!("{plural}/{below}"));
        let [verb, group, namespace] = [verb, group, namespace].map(str::to_owned);
        Some(Self { verb, group, resource, namespace })
    }

    /// A question about rights or identity: everybody may ask those, and nothing is stored.
    pub fn is_review(&self) -> bool {
        self.resource.starts_with("selfsubject")
    }
}

impl Grant {
    /// Whether it lets a request pass.
    pub fn covers(&self, request: &Request, purpose: &Purpose) -> bool {
        let place = purpose.namespace(self.scope);
        self.group == request.group
            && self.resource == request.resource
            && self.verbs.contains(request.verb.as_str())
            && (place.is_empty() || place == request.namespace)
    }

    /// What of it none of these requests needed, and no case is known for, in a line each.
    pub fn unneeded(&self, requests: &BTreeSet<Request>, purpose: &Purpose) -> Vec<String> {
        // Who follows a collection lists and watches it, in one request or in two.
        let followed = |verb: &str| if verb == "list" { "watch" } else { "list" };
        let seen = |verb: &str| {
            let wanted = [verb, if matches!(verb, "list" | "watch") { followed(verb) } else { verb }];
            let verbs = wanted.iter().filter_map(|verb| self.verbs.get(*verb)).copied().collect();
            let one = Self { verbs, ..self.clone() };
            requests.iter().any(|request| one.covers(request, purpose))
        };
        let open = self.verbs.iter().filter(|&&verb| {
            !ASKED_BY_THE_SERVER.contains(&verb) && rarely(self.group, self.resource, verb).is_none() && !seen(verb)
        });
        let place = purpose.namespace(self.scope);
        let place = if place.is_empty() { "everywhere".to_owned() } else { format!("in `{place}`") };
        open.map(|verb| format!("{verb} {} of `{}` {place}", self.resource, self.group)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight;
    use crate::render::{self, EXECUTOR_ACCOUNT, Places};
    use crate::rights::{Answer, Ask, asked, needs, probing};

    fn purpose() -> Purpose {
        Purpose { environments: vec!["dev".parse().unwrap()], triggers: true, root: true, ..Purpose::default() }
    }

    fn may(grants: &[Grant], request: &Request) -> bool {
        grants.iter().any(|grant| grant.covers(request, &purpose()))
    }

    /// What an API server that knows nothing but these grants answers to every question of phase 0.
    fn answers(grants: &[Grant]) -> BTreeMap<Ask, Answer> {
        let answer = |ask: Ask| {
            let allowed = match &ask {
                Ask::Path { .. } => false,
                Ask::Resource { namespace, group, resource, verb, .. } => {
                    let [verb, group, resource] = [verb, group, resource].map(|text| (*text).to_owned());
                    // A question about all namespaces is not answered by a rule for one of them.
                    let everywhere: Vec<Grant> =
                        grants.iter().filter(|grant| grant.scope == Scope::Everywhere).cloned().collect();
                    let known = if namespace.is_empty() { &everywhere[..] } else { grants };
                    may(known, &Request { verb, group, resource, namespace: namespace.clone() })
                }
            };
            (ask, if allowed { Answer::Allowed } else { Answer::Denied(String::new()) })
        };
        asked(&purpose()).into_iter().map(answer).collect()
    }

    #[test]
    fn the_account_that_installs_passes_phase_0_with_exactly_what_it_is_given() {
        let answers = answers(&installer());
        let judged =
            preflight::rights(&needs(&purpose()), &answers, Some("system:serviceaccount:argo:forge-installer"));
        let told: Vec<&String> = judged.findings.iter().flat_map(|finding| &finding.evidence).collect();
        assert!(told.is_empty(), "{told:#?}");
        assert!(preflight::whole(&probing(&purpose()).0, &answers), "it cannot start a pod in a namespace of its own");
        // The account of a run does not.
        let run = self::answers(&grants(EXECUTOR_ACCOUNT));
        assert!(!preflight::rights(&needs(&purpose()), &run, None).findings.is_empty());
    }

    #[test]
    fn the_account_that_installs_may_look_at_and_apply_every_object_and_is_no_administrator_by_name() {
        let grants = installer();
        for placed in render::bootstrap(&Places::default(), &purpose().environments) {
            let name = placed.object["metadata"]["name"].as_str().unwrap();
            for (method, uri) in [
                ("GET", format!("{}/{name}", placed.collection)),
                ("PATCH", format!("{}/{name}?fieldManager=forge&force=true", placed.collection)),
                ("POST", placed.collection.clone()),
            ] {
                let request = Request::read(method, &uri).unwrap();
                assert!(may(&grants, &request), "{request:?}");
            }
        }
        for grant in &grants {
            assert!(grant.group != "*" && grant.resource != "*" && !grant.verbs.contains("*"), "{grant:?}");
            assert!(matches!(grant.scope, Scope::Workflows | Scope::Everywhere), "{grant:?}");
        }
        for (verb, resource) in [("create", "nodes"), ("delete", "persistentvolumeclaims"), ("create", "pods/exec")] {
            let [verb, resource] = [verb, resource].map(str::to_owned);
            let request = Request { verb, resource, group: String::new(), namespace: "shop".to_owned() };
            assert!(!may(&grants, &request), "{request:?}");
        }
    }

    #[test]
    fn the_account_that_validates_can_only_read_and_never_a_secret() {
        for grant in reader() {
            assert!(grant.verbs.iter().all(|verb| READ.contains(verb)), "{grant:?}");
            assert!(grant.resource != "secrets" && grant.resource != "*" && !grant.resource.contains('/'), "{grant:?}");
        }
    }

    #[test]
    fn where_a_volume_is_tried_the_account_that_installs_needs_claims_and_is_given_them_then() {
        let tries = Purpose { storage: true, ..purpose() };
        let lacking = |grants: &[Grant]| -> Vec<String> {
            let given = |ask: &Ask| {
                matches!(ask, Ask::Resource { group, resource, verb, .. } if grants.iter().any(|grant| {
                    let same = (grant.scope, grant.group, grant.resource) == (Scope::Everywhere, *group, *resource);
                    same && grant.verbs.contains(verb)
                }))
            };
            let lacking = probing(&tries).0.into_iter().filter(|ask| !given(ask));
            lacking.map(|ask| format!("{} {}", ask.verb(), ask.about())).collect()
        };
        let claims = ["get", "create", "delete"].map(|verb| format!("{verb} persistentvolumeclaims cluster-wide"));
        assert_eq!(lacking(&installer()), claims);
        let all: Vec<Grant> = installer().into_iter().chain(volumes()).collect();
        assert_eq!(lacking(&all), Vec::<String>::new());
    }

    #[test]
    fn what_is_given_everywhere_is_not_given_again_in_one_namespace_and_rules_are_joined() {
        let grants = installer();
        for grant in grants.iter().filter(|grant| grant.scope == Scope::Workflows) {
            let same = |other: &&Grant| {
                other.scope == Scope::Everywhere && (other.group, other.resource) == (grant.group, grant.resource)
            };
            let twice = grants.iter().find(same).map(|other| other.verbs.intersection(&grant.verbs).count());
            assert!(matches!(twice, None | Some(0)), "{grant:?}");
        }
        let rules = rules(&grants);
        assert!(rules.len() < grants.len(), "{} {}", rules.len(), grants.len());
        let bindings = json!({
            "apiGroups": [RBAC], "resources": ["clusterrolebindings", "rolebindings"],
            "verbs": ["create", "delete", "get", "patch"],
        });
        assert!(rules.contains(&bindings), "{rules:#?}");
    }

    #[test]
    fn a_request_is_read_from_its_address() {
        let read = |method: &str, uri: &str| {
            Request::read(method, uri).map(|r| format!("{} {} {} {}", r.verb, r.group, r.resource, r.namespace))
        };
        for (method, uri, expected) in [
            ("GET", "/api/v1/nodes?limit=500&labelSelector=&continue=", "list  nodes "),
            ("GET", "/api/v1/namespaces/argo", "get  namespaces "),
            ("GET", "/api/v1/namespaces", "list  namespaces "),
            ("GET", "/api/v1/namespaces/argo/pods?labelSelector=a&watch=true&timeoutSeconds=9", "watch  pods argo"),
            ("DELETE", "/api/v1/namespaces/argo/pods/x", "delete  pods argo"),
            (
                "PATCH",
                "/apis/argoproj.io/v1alpha1/clusterworkflowtemplates/forge-node?force=true",
                "patch argoproj.io clusterworkflowtemplates ",
            ),
            (
                "POST",
                "/api/v1/namespaces/argocd/services/http:argocd-server:80/proxy/api/v1/session",
                "create  services/proxy argocd",
            ),
            ("PUT", "/api/v1/namespaces/argo/secrets/sh.helm.release.v1.x.v1", "update  secrets argo"),
        ] {
            assert_eq!(read(method, uri).as_deref(), Some(expected), "{method} {uri}");
        }
        for none in ["/version", "/apis", "/api", "/api/v1", "/apis/argoproj.io/v1alpha1", "/openapi/v3"] {
            assert_eq!(read("GET", none), None, "{none}");
        }
        assert!(Request::read("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").unwrap().is_review());
    }

    #[test]
    fn a_right_that_no_request_needed_is_told_unless_its_case_is_known() {
        let requests: BTreeSet<Request> = [
            ("GET", "/api/v1/namespaces/argo/configmaps/forge-executor-plugin"),
            ("GET", "/api/v1/namespaces/argo/configmaps?watch=true"),
            ("POST", "/api/v1/namespaces/argo/configmaps"),
        ]
        .into_iter()
        .filter_map(|(method, uri)| Request::read(method, uri))
        .collect();
        let open: Vec<String> =
            grants(EXECUTOR_ACCOUNT).iter().flat_map(|grant| grant.unneeded(&requests, &purpose())).collect();
        // The list came with the watch, a deletion is rare, and everything else was not seen.
        assert!(open.contains(&"patch configmaps of `` in `argo`".to_owned()), "{open:?}");
        assert!(
            !open.iter().any(|line| line.starts_with("list configmaps") || line.starts_with("delete ")),
            "{open:?}"
        );
        assert!(open.contains(&"list applications of `argoproj.io` in `argocd`".to_owned()), "{open:?}");
        assert_eq!(rarely("argoproj.io", "workflows", "create"), None);
    }

    #[test]
    fn every_rare_case_is_one_of_a_right_that_somebody_has() {
        let all: Vec<Grant> = installer().into_iter().chain(grants(EXECUTOR_ACCOUNT)).collect();
        for (group, resources, verbs, case) in RARELY {
            for resource in resources {
                for verb in verbs {
                    let held = |grant: &Grant| {
                        grant.group == group && grant.resource == *resource && grant.verbs.contains(verb)
                    };
                    assert!(all.iter().any(held), "{verb} {resource} of `{group}`: {case}");
                }
            }
        }
    }
}
