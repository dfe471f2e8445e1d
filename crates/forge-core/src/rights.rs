//! What Forge has to be allowed, in one table: the rules of the accounts that `bootstrap` makes, and what whoever checks,
//! installs, prepares and deploys needs himself. Roles are rendered from it, and the rights that an account really holds
//! are compared with it.
//!
//! Pure. What the code does and this does not name is found by an account that has nothing else.

mod grants;

use std::collections::BTreeSet;

pub(crate) use grants::rules;
pub use grants::{Grant, Request, grants, installer, rarely, reader, remover, removing, rotator, volumes};

use serde_json::{Value, json};

use crate::name::EnvironmentName;
use crate::preflight::{Component, Intent, Purpose};
use crate::render::{EVENTS_ACCOUNT, EXECUTOR_ACCOUNT, PLUGIN_ACCOUNT, WORKFLOW_ACCOUNT};

/// Where a rule holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Objects that are in no namespace.
    Cluster,
    /// Every namespace, also one that is not there yet.
    Everywhere,
    /// The namespace of Argo Workflows, where runs are.
    Workflows,
    /// Argo CD's namespace.
    ArgoCd,
    /// The namespace of Argo Events.
    Events,
}

/// One rule, as RBAC has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Where.
    pub scope: Scope,
    /// The API group.
    pub group: &'static str,
    /// Kinds, and subresources after a `/`.
    pub resources: &'static [&'static str],
    /// What is done with them.
    pub verbs: &'static [&'static str],
    /// Only with objects that are named after an environment.
    pub named: bool,
    /// What for.
    pub why: &'static str,
}

const fn rule(
    scope: Scope,
    group: &'static str,
    resources: &'static [&'static str],
    verbs: &'static [&'static str],
    why: &'static str,
) -> Rule {
    Rule { scope, group, resources, verbs, named: false, why }
}

const RBAC: &str = "rbac.authorization.k8s.io";
const READ: &[&str] = &["get", "list", "watch"];
/// On the server's side: made where it is not there, else changed.
const APPLY: &[&str] = &["create", "patch"];
/// As Helm treats the objects of a chart: looked for, made, changed by an upgrade, removed where it is taken back.
const CHARTED: &[&str] = &["get", "create", "patch", "delete"];

/// The Job that conducts a run: `forge serve run`, and `executor deploy` on a cluster that is prepared, with Argo CD's token
/// mounted. What the latter does beyond that on a cluster that is not prepared is what [`needs`] lists.
static EXECUTOR: [Rule; 8] = [
    rule(
        Scope::Workflows,
        "argoproj.io",
        &["workflows"],
        &["get", "list", "watch", "create", "patch"],
        "the Workflow of a run",
    ),
    rule(Scope::Workflows, "", &["pods"], &["list", "watch", "delete"], "the agent pod of a run"),
    rule(
        Scope::Workflows,
        "",
        &["configmaps"],
        &["get", "list", "watch", "create", "patch", "delete"],
        "plans and records of runs",
    ),
    rule(
        Scope::Workflows,
        "coordination.k8s.io",
        &["leases"],
        &["get", "create", "patch"],
        "the Lease of an environment",
    ),
    rule(Scope::Workflows, "apps", &["deployments"], &["list"], "whether executor plugins are switched on"),
    rule(Scope::Workflows, "batch", &["jobs"], &["get"], "whether a run goes on in another pod"),
    rule(Scope::ArgoCd, "argoproj.io", &["applications"], &["list"], "the Applications of a run"),
    // One Role for each environment, so that several installations share a cluster without taking rights from each other.
    Rule {
        scope: Scope::ArgoCd,
        group: "argoproj.io",
        resources: &["appprojects"],
        verbs: &["get", "patch"],
        named: true,
        why: "the sync window of an environment",
    },
];

/// The executor plugin, and a node that has a pod of its own.
static PLUGIN: [Rule; 2] = [
    rule(Scope::Workflows, "", &["configmaps"], &["get", "list", "create", "patch"], "plans and records of runs"),
    rule(Scope::Workflows, "coordination.k8s.io", &["leases"], &["get"], "whether anybody conducts the run"),
];

/// The agent of Argo Workflows.
static WORKFLOW: [Rule; 3] = [
    rule(Scope::Workflows, "argoproj.io", &["workflowtasksets"], READ, "the tasks of a run"),
    rule(Scope::Workflows, "argoproj.io", &["workflowtasksets/status"], &["patch"], "the tasks of a run"),
    rule(Scope::Workflows, "argoproj.io", &["workflowtaskresults"], &["create", "patch"], "the results of a run"),
];

/// Sensors of Argo Events. What such a Job may be is limited by a policy, because RBAC does not look into objects.
static EVENTS: [Rule; 1] = [rule(Scope::Workflows, "batch", &["jobs"], &["create"], "the Job of an event")];

/// A check that starts a pod in a namespace of its own.
static PROBE_APART: [Rule; 3] = [
    rule(Scope::Cluster, "", &["namespaces"], &["get", "list", "create", "delete"], "a namespace for a check"),
    rule(Scope::Everywhere, "", &["pods"], &["get", "list", "watch", "create", "delete"], "a pod that really starts"),
    rule(
        Scope::Everywhere,
        "",
        &["persistentvolumeclaims"],
        &["get", "create", "delete"],
        "a volume that is really bound",
    ),
];

/// The same check where namespaces may not be made.
static PROBE_THERE: [Rule; 2] = [
    rule(Scope::Workflows, "", &["pods"], &["get", "list", "watch", "create", "delete"], "a pod that really starts"),
    rule(
        Scope::Workflows,
        "",
        &["persistentvolumeclaims"],
        &["get", "list", "create", "delete"],
        "a volume that is really bound",
    ),
];

/// Whoever prepares a cluster.
static BOOTSTRAP: [Rule; 13] = [
    rule(Scope::Cluster, "apiextensions.k8s.io", &["customresourcedefinitions"], &["get"], "what is there of Argo"),
    rule(Scope::Cluster, "argoproj.io", &["clusterworkflowtemplates"], APPLY, "the template of all nodes"),
    rule(
        Scope::Cluster,
        "admissionregistration.k8s.io",
        &["validatingadmissionpolicies", "validatingadmissionpolicybindings"],
        APPLY,
        "the policy that limits who writes sync windows",
    ),
    rule(Scope::Workflows, "", &["serviceaccounts"], APPLY, "the accounts of a run"),
    rule(Scope::Workflows, "", &["secrets"], &["get", "create", "patch"], "the tokens of a run"),
    rule(Scope::Workflows, "", &["configmaps"], &["get", "create", "patch"], "the executor plugin"),
    rule(Scope::Workflows, RBAC, &["roles", "rolebindings"], APPLY, "the rights of a run"),
    rule(Scope::ArgoCd, RBAC, &["roles", "rolebindings"], APPLY, "the rights of a run"),
    rule(Scope::ArgoCd, "argoproj.io", &["appprojects"], &["get", "create"], "the AppProject of an environment"),
    rule(Scope::ArgoCd, "", &["secrets"], &["get"], "Argo CD's certificate and its administrator"),
    rule(Scope::ArgoCd, "", &["configmaps"], &["get"], "how Argo CD serves"),
    rule(Scope::ArgoCd, "", &["services"], &["list"], "where Argo CD serves"),
    rule(Scope::ArgoCd, "", &["services/proxy"], &["get", "create", "delete"], "the tokens of the Argo CD account"),
];

/// Whoever prepares a cluster where events start runs.
static TRIGGERS: [Rule; 2] = [
    rule(
        Scope::Workflows,
        "argoproj.io",
        &["eventbus", "eventsources", "sensors"],
        &["get", "create", "patch", "delete"],
        "what starts runs by event",
    ),
    rule(Scope::Workflows, "", &["configmaps"], &["list", "delete"], "what no longer starts runs by event"),
];

/// Whoever installs Argo CD: once it manages itself, Helm is not run for it any more.
static OWN: Rule = rule(Scope::ArgoCd, "argoproj.io", &["applications"], &["get"], "whether Argo CD manages itself");

/// Whoever installs Argo CD: the first password of its administrator is replaced.
static ADMINISTRATOR: [Rule; 2] = [
    rule(
        Scope::ArgoCd,
        "",
        &["secrets"],
        &["get", "create", "patch", "delete"],
        "the password of Argo CD's administrator",
    ),
    rule(Scope::ArgoCd, "", &["services/proxy"], &["update"], "the password of Argo CD's administrator"),
];

/// Whoever applies the root file.
static ROOT: [Rule; 2] = [
    rule(
        Scope::ArgoCd,
        "argoproj.io",
        &["applications", "applicationsets", "appprojects"],
        &["get", "create", "patch"],
        "the root file",
    ),
    // What was only compared is taken back.
    rule(Scope::ArgoCd, "argoproj.io", &["applications"], &["delete"], "the handover of Argo CD to itself"),
];

/// Helm, in the namespace of what it installs; the scope is that of the component.
static HELM: [Rule; 8] = [
    rule(
        Scope::Workflows,
        "",
        &["secrets"],
        &["get", "list", "create", "update", "patch", "delete"],
        "the Helm release and its objects",
    ),
    rule(
        Scope::Workflows,
        "",
        &["configmaps", "services", "serviceaccounts"],
        CHARTED,
        "the Helm release and its objects",
    ),
    rule(
        Scope::Workflows,
        "",
        &["pods"],
        &["list", "delete"],
        "a pod that keeps a failed upgrade from being taken back",
    ),
    rule(Scope::Workflows, "apps", &["deployments", "statefulsets"], CHARTED, "the Helm release and its objects"),
    rule(
        Scope::Workflows,
        "apps",
        &["statefulsets"],
        &["list"],
        "a pod that keeps a failed upgrade from being taken back",
    ),
    rule(Scope::Workflows, "apps", &["replicasets"], &["list"], "waiting until the Helm release is ready"),
    rule(Scope::Workflows, RBAC, &["roles", "rolebindings"], CHARTED, "the Helm release and its objects"),
    rule(
        Scope::Workflows,
        "batch",
        &["jobs"],
        &["get", "list", "watch", "create", "delete"],
        "the hooks of the Helm release",
    ),
];

/// Helm, whatever it installs.
static HELM_CLUSTER: [Rule; 4] = [
    rule(Scope::Workflows, "coordination.k8s.io", &["leases"], &["get", "create", "patch"], "one bootstrap at a time"),
    rule(Scope::Cluster, "", &["namespaces"], &["get", "create"], "the namespace of the Helm release"),
    // The charts keep their definitions: whoever takes a release back does not delete them.
    rule(
        Scope::Cluster,
        "apiextensions.k8s.io",
        &["customresourcedefinitions"],
        &["get", "create", "patch"],
        "the definitions of Argo",
    ),
    rule(Scope::Cluster, RBAC, &["clusterroles", "clusterrolebindings"], CHARTED, "the rights of Argo"),
];

/// Whoever deploys: reads and looks, takes the Lease, stores the plan, starts the Job and follows it.
static DEPLOY: [Rule; 8] = [
    rule(
        Scope::Workflows,
        "",
        &["configmaps"],
        &["get", "list", "watch", "create", "patch"],
        "plans and records of runs",
    ),
    rule(Scope::Workflows, "", &["secrets"], &["get"], "the token of the Argo CD account"),
    rule(Scope::Workflows, "", &["pods"], &["list"], "why a run does not begin"),
    rule(Scope::Workflows, "batch", &["jobs"], &["list", "watch", "create"], "the Job of a run"),
    rule(
        Scope::Workflows,
        "coordination.k8s.io",
        &["leases"],
        &["get", "create", "patch"],
        "the Lease of an environment",
    ),
    rule(Scope::Workflows, "apps", &["deployments"], &["list"], "whether executor plugins are switched on"),
    rule(Scope::ArgoCd, "argoproj.io", &["appprojects"], &["get"], "the sync window of an environment"),
    rule(Scope::ArgoCd, "", &["services/proxy"], &["get", "create"], "asking Argo CD"),
];

/// The rules of an account that `bootstrap` makes; none of any other.
pub fn granted(account: &str) -> &'static [Rule] {
    match account {
        EXECUTOR_ACCOUNT => &EXECUTOR,
        PLUGIN_ACCOUNT => &PLUGIN,
        WORKFLOW_ACCOUNT => &WORKFLOW,
        EVENTS_ACCOUNT => &EVENTS,
        _ => &[],
    }
}

impl Rule {
    /// As a rule of a Role, for objects of these names if there are any.
    pub fn rbac(&self, names: &[&str]) -> Value {
        let mut rule = json!({"apiGroups": [self.group], "resources": self.resources, "verbs": self.verbs});
        if let (Value::Object(fields), false) = (&mut rule, names.is_empty()) {
            fields.insert("resourceNames".to_owned(), json!(names));
        }
        rule
    }

    /// Every single right that it gives.
    fn asks(&self, purpose: &Purpose) -> Vec<Ask> {
        let namespace = purpose.namespace(self.scope);
        let names: Vec<String> = if self.named {
            purpose.environments.iter().map(EnvironmentName::to_string).collect()
        } else {
            vec![String::new()]
        };
        let mut asks = Vec::new();
        for &resource in self.resources {
            for &verb in self.verbs {
                for name in &names {
                    let (namespace, name) = (namespace.to_owned(), name.clone());
                    asks.push(Ask::Resource { namespace, group: self.group, resource, verb, name });
                }
            }
        }
        asks
    }
}

impl Purpose {
    /// The namespace that a scope means; empty for objects without one and for all of them.
    fn namespace(&self, scope: Scope) -> &str {
        match scope {
            Scope::Cluster | Scope::Everywhere => "",
            Scope::Workflows => &self.workflows,
            Scope::ArgoCd => &self.argocd,
            Scope::Events => &self.events,
        }
    }
}

/// A single right, as an API server is asked for it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ask {
    /// To do something with objects.
    Resource {
        /// Where; empty for objects without a namespace, and for all namespaces.
        namespace: String,
        /// The API group.
        group: &'static str,
        /// The kind, and a subresource after a `/`.
        resource: &'static str,
        /// What.
        verb: &'static str,
        /// Only with this one; empty for any.
        name: String,
    },
    /// To do something with a path that is no object.
    Path {
        /// The path.
        path: &'static str,
        /// What.
        verb: &'static str,
    },
}

impl Ask {
    /// The object that asks an API server for it. It is answered and never stored.
    pub fn review(&self) -> Value {
        let spec = match self {
            Self::Resource { namespace, group, resource, verb, name } => {
                let (resource, subresource) = resource.split_once('/').unwrap_or((*resource, ""));
                json!({"resourceAttributes": {
                    "namespace": namespace, "group": group, "resource": resource, "subresource": subresource,
                    "verb": verb, "name": name,
                }})
            }
            Self::Path { path, verb } => json!({"nonResourceAttributes": {"path": path, "verb": verb}}),
        };
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec})
    }

    /// What it is about, without the verb: equal for rights that differ in nothing else.
    pub fn about(&self) -> String {
        match self {
            Self::Resource { namespace, group, resource, name, .. } => {
                let group = if group.is_empty() { String::new() } else { format!(".{group}") };
                let name = if name.is_empty() { String::new() } else { format!(" `{name}`") };
                let place = if namespace.is_empty() { "cluster-wide".to_owned() } else { format!("in `{namespace}`") };
                let (kind, part) = resource.split_once('/').unwrap_or((*resource, ""));
                let part = if part.is_empty() { String::new() } else { format!("/{part}") };
                format!("{kind}{group}{part}{name} {place}")
            }
            Self::Path { path, .. } => format!("path {path}"),
        }
    }

    /// The verb.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Resource { verb, .. } | Self::Path { verb, .. } => verb,
        }
    }
}

/// What an API server answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It may.
    Allowed,
    /// It may not, and why if that is said.
    Denied(String),
    /// It is not known.
    Unknown(String),
}

impl Answer {
    /// Reads the answer to a review.
    pub fn read(review: &Value) -> Self {
        let said = |field: &str| review.pointer(&format!("/status/{field}"));
        let text = |field: &str| said(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        match said("allowed").and_then(Value::as_bool) {
            Some(true) => Self::Allowed,
            Some(false) => {
                let reason = text("reason");
                Self::Denied(if reason.is_empty() { text("evaluationError") } else { reason })
            }
            None => Self::Unknown("the API server answered a review without a decision".to_owned()),
        }
    }
}

/// Something that takes rights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// All of these.
    pub asks: Vec<Ask>,
    /// Or all of these; none if there is no other way.
    pub instead: Vec<Ask>,
    /// What for.
    pub why: &'static str,
    /// Without it nothing can be prepared; else somebody else may do it.
    pub required: bool,
}

/// What whoever prepares this cluster needs, and what whoever deploys on it does.
pub fn needs(purpose: &Purpose) -> Vec<Need> {
    // What its owner makes in Argo CD's namespace, nobody else needs rights for.
    let ours = |rule: &&Rule| {
        let written = rule.verbs.contains(&"create") && rule.resources != ["services/proxy"];
        !(purpose.handed && rule.scope == Scope::ArgoCd && written)
    };
    let given = |rule: &&Rule| !(purpose.handed && rule.scope == Scope::ArgoCd);
    let mut needs: Vec<Need> = BOOTSTRAP.iter().filter(ours).map(|rule| need(rule, purpose)).collect();
    let mut installs = false;
    for component in Component::ALL {
        if purpose.intent(component) == Intent::Install {
            installs = true;
            let rules = HELM.iter().map(|rule| Rule { scope: component.scope(), ..*rule });
            needs.extend(rules.map(|rule| need(&rule, purpose)));
        }
    }
    if installs {
        needs.extend(HELM_CLUSTER.iter().map(|rule| need(rule, purpose)));
        // Argo CD's controller may do everything, and nobody gives more than he has, unless he may do exactly that.
        let everything = resource("", "*", "*", "*");
        needs.push(Need {
            asks: vec![everything, Ask::Path { path: "*", verb: "*" }],
            instead: giving("", &["clusterroles", "roles"]),
            why: "the rights of Argo",
            required: true,
        });
    }
    let mut accounts = vec![EXECUTOR_ACCOUNT, PLUGIN_ACCOUNT, WORKFLOW_ACCOUNT];
    if purpose.intent(Component::Cd) == Intent::Install {
        needs.extend(ADMINISTRATOR.iter().chain([&OWN]).map(|rule| need(rule, purpose)));
    }
    if purpose.root {
        needs.extend(ROOT.iter().map(|rule| need(rule, purpose)));
    }
    if purpose.triggers {
        needs.extend(TRIGGERS.iter().map(|rule| need(rule, purpose)));
        accounts.push(EVENTS_ACCOUNT);
    }
    for account in accounts {
        needs.extend(granted(account).iter().filter(&given).map(|rule| Need {
            instead: giving(purpose.namespace(rule.scope), &["roles"]),
            why: "the rights of a run, which only those can give who have them",
            ..need(rule, purpose)
        }));
    }
    needs.extend(DEPLOY.iter().map(|rule| Need { required: false, ..need(rule, purpose) }));
    needs
}

/// What it takes to start a pod in a namespace of its own, and in that of Argo Workflows.
pub fn probing(purpose: &Purpose) -> (Vec<Ask>, Vec<Ask>) {
    let all = |rules: &[Rule]| -> Vec<Ask> {
        let wanted = |rule: &&Rule| purpose.storage || rule.resources != ["persistentvolumeclaims"];
        rules.iter().filter(wanted).flat_map(|rule| rule.asks(purpose)).collect()
    };
    (all(&PROBE_APART), all(&PROBE_THERE))
}

/// Every right that is asked for, each once, in one order.
pub fn asked(purpose: &Purpose) -> BTreeSet<Ask> {
    let needs = needs(purpose);
    let (apart, there) = probing(purpose);
    needs.into_iter().flat_map(|need| need.asks.into_iter().chain(need.instead)).chain(apart).chain(there).collect()
}

fn need(rule: &Rule, purpose: &Purpose) -> Need {
    Need { asks: rule.asks(purpose), instead: Vec::new(), why: rule.why, required: true }
}

/// To give rights that one does not have.
fn giving(namespace: &str, kinds: &[&'static str]) -> Vec<Ask> {
    let verbs = ["escalate", "bind"];
    kinds.iter().flat_map(|&kind| verbs.map(|verb| resource(namespace, RBAC, kind, verb))).collect()
}

fn resource(namespace: &str, group: &'static str, resource: &'static str, verb: &'static str) -> Ask {
    Ask::Resource { namespace: namespace.to_owned(), group, resource, verb, name: String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Intents;
    use crate::render::{self, Places};

    fn purpose(intents: Intents) -> Purpose {
        Purpose { intents, environments: vec!["dev".parse().unwrap()], ..Purpose::default() }
    }

    #[test]
    fn an_account_that_bootstrap_makes_has_exactly_the_rules_of_the_table() {
        let environments: [EnvironmentName; 2] = ["dev".parse().unwrap(), "production".parse().unwrap()];
        let objects = render::bootstrap(&Places::default(), &environments);
        let mut rules = 0;
        for account in [EXECUTOR_ACCOUNT, PLUGIN_ACCOUNT, WORKFLOW_ACCOUNT] {
            let mut rendered: Vec<Value> = Vec::new();
            for role in objects.iter().map(|placed| &placed.object).filter(|object| object["kind"] == "Role") {
                let bound = objects.iter().map(|placed| &placed.object).any(|binding| {
                    binding["kind"] == "RoleBinding"
                        && binding["metadata"]["namespace"] == role["metadata"]["namespace"]
                        && binding["roleRef"]["name"] == role["metadata"]["name"]
                        && binding["subjects"][0]["name"] == account
                });
                if bound {
                    rendered.extend(role["rules"].as_array().unwrap().iter().cloned());
                }
            }
            let mut expected = Vec::new();
            for rule in granted(account) {
                if rule.named {
                    expected.extend(["dev", "production"].map(|name| rule.rbac(&[name])));
                } else {
                    expected.push(rule.rbac(&[]));
                }
            }
            assert_eq!(rendered, expected, "{account}");
            rules += expected.len();
        }
        assert_eq!(rules, 14);
        assert!(granted("default").is_empty());
    }

    #[test]
    fn every_object_of_bootstrap_can_be_applied_by_whoever_has_the_rights_of_the_table() {
        let purpose = purpose(Intents::existing());
        let asked = asked(&purpose);
        for placed in render::bootstrap(&Places::default(), &purpose.environments) {
            // `/api/v1/namespaces/argo/secrets`, `/apis/<group>/v1/<plural>`
            let parts: Vec<&str> = placed.collection.trim_start_matches('/').split('/').collect();
            let group = if parts[0] == "api" { "" } else { parts[1] };
            let namespace = parts.iter().position(|part| *part == "namespaces").map_or("", |at| parts[at + 1]);
            let plural = parts.last().unwrap();
            for wanted in ["create", "patch"] {
                let found = asked.iter().any(|ask| {
                    matches!(ask, Ask::Resource { namespace: place, group: of, resource, verb, name }
                        if place == namespace && *of == group && resource == plural && *verb == wanted && name.is_empty())
                });
                assert!(found, "nobody asks whether {plural} may be {wanted}d in `{namespace}`");
            }
        }
    }

    #[test]
    fn in_the_namespace_of_somebody_elses_argo_cd_no_right_to_write_is_asked_for() {
        let own = purpose(Intents::existing());
        let handed = Purpose { handed: true, ..own.clone() };
        let written = |purpose: &Purpose| -> BTreeSet<String> {
            let asked = asked(purpose).into_iter().filter(|ask| match ask {
                Ask::Resource { namespace, resource, verb, .. } => {
                    namespace == "argocd" && *resource != "services/proxy" && !READ.contains(verb)
                }
                Ask::Path { .. } => false,
            });
            asked.map(|ask| ask.about()).collect()
        };
        assert!(!written(&own).is_empty());
        assert_eq!(written(&handed), BTreeSet::new());
    }

    #[test]
    fn what_events_need_is_asked_for_only_where_they_start_runs_and_is_all_that_is_applied() {
        use crate::format::Repository;
        use crate::yaml::{At, Position};
        let at = |text: &str| At::new(text.to_owned(), Position::START);
        let repository = Repository { url: at("https://git.example.com/p.git"), branch: at("main") };
        let schedule = "0 3 * * *".parse().unwrap();
        let without = purpose(Intents::existing());
        let with = Purpose { triggers: true, ..without.clone() };
        let environment = &with.environments[0];
        let trigger = render::Trigger { environment, push: true, schedule: Some(&schedule) };
        let objects = render::events(&Places::default(), &repository, &[trigger]);
        let may = |purpose: &Purpose, plural: &str, wanted: &str| {
            asked(purpose).iter().any(
                |ask| matches!(ask, Ask::Resource { resource, verb, .. } if *resource == plural && *verb == wanted),
            )
        };
        for placed in &objects {
            let plural = placed.collection.rsplit('/').next().unwrap();
            assert!(may(&with, plural, "create") && may(&with, plural, "patch"), "{plural}");
        }
        assert!(!may(&without, "sensors", "create") && !may(&without, "eventbus", "patch"));
        let rules: Vec<&Value> =
            objects.iter().filter(|p| p.object["kind"] == "Role").map(|p| &p.object["rules"]).collect();
        assert_eq!(rules, [&json!([{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create"]}])]);
    }

    #[test]
    fn what_the_root_file_takes_is_asked_for_only_where_there_is_one() {
        let without = purpose(Intents::install());
        let sets = |purpose: &Purpose| {
            let asked = asked(purpose).into_iter();
            asked.filter(|ask| matches!(ask, Ask::Resource { resource: "applicationsets", .. })).count()
        };
        assert_eq!((sets(&without), sets(&Purpose { root: true, ..without.clone() })), (0, 3));
    }

    #[test]
    fn helm_is_asked_for_only_where_something_is_installed() {
        let is_helm = |ask: &Ask| matches!(ask, Ask::Resource { resource: "statefulsets", .. } | Ask::Path { .. });
        assert!(!asked(&purpose(Intents::existing())).iter().any(is_helm));
        let install = Intents { cd: Intent::Install, ..Intents::existing() };
        let namespaces: BTreeSet<String> = asked(&purpose(install))
            .into_iter()
            .filter_map(|ask| match ask {
                Ask::Resource { namespace, resource: "statefulsets", .. } => Some(namespace),
                _ => None,
            })
            .collect();
        assert_eq!(namespaces, BTreeSet::from(["argocd".to_owned()]));
    }

    #[test]
    fn a_review_names_the_subresource_apart_and_an_answer_that_says_nothing_is_not_known() {
        let ask = resource("argocd", "", "services/proxy", "create");
        let attributes = ask.review()["spec"]["resourceAttributes"].clone();
        assert_eq!(
            (attributes["resource"].as_str(), attributes["subresource"].as_str()),
            (Some("services"), Some("proxy"))
        );
        assert_eq!(ask.about(), "services/proxy in `argocd`");
        assert_eq!(resource("", RBAC, "roles", "bind").about(), format!("roles.{RBAC} cluster-wide"));
        assert_eq!(Answer::read(&json!({"status": {"allowed": true}})), Answer::Allowed);
        let denied = json!({"status": {"allowed": false, "evaluationError": "no such role"}});
        assert_eq!(Answer::read(&denied), Answer::Denied("no such role".to_owned()));
        for nothing in [json!({}), json!(null), json!({"status": {"allowed": "yes"}}), json!([1])] {
            assert!(matches!(Answer::read(&nothing), Answer::Unknown(_)), "{nothing}");
        }
    }

    #[test]
    fn volumes_are_asked_for_only_where_something_needs_them() {
        let volumes =
            |purpose: &Purpose| probing(purpose).0.iter().filter(|ask| ask.about().contains("volume")).count();
        assert_eq!(volumes(&purpose(Intents::existing())), 0);
        assert_eq!(volumes(&Purpose { storage: true, ..purpose(Intents::existing()) }), 3);
    }
}
