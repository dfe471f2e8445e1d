//! Whose something in a cluster is, and what goes before what. A teardown removes what a node of its scope manages and what
//! Forge made (INV-11), in the reverse order of the graph (INV-6); everything else stays.
//!
//! Evidence, in this order: what an Application lists as its own; what an object says about the Application, the Helm
//! release or the label that it carries; what Crossplane made when it started, where that goes; what it is owned by; the
//! namespace that it is in, if that goes.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::crossplane::{self, CROSSPLANE};
use super::inventory::{Inventory, Item, Kind};
use crate::graph::{Graph, NodeIx, Scope};
use crate::name::{EnvironmentName, NodeId};
use crate::preflight::{items, text};
use crate::repository::ApplicationName;

/// How Argo CD names the cluster that it runs in.
const IN_CLUSTER: [&str; 2] = ["in-cluster", "https://kubernetes.default.svc"];

/// Whose something is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whose {
    /// A node's that goes: it goes with it.
    Node(NodeId),
    /// Nobody's, in a namespace that goes: it goes with that, after all nodes.
    Inside(String),
    /// Forge's, or of what Forge installed: it goes last.
    Forge,
    /// Somebody else's: it stays.
    Foreign,
}

/// What is not known is somebody else's.
static FOREIGN: Whose = Whose::Foreign;

impl Whose {
    /// It goes at some time.
    pub fn goes(&self) -> bool {
        *self != Self::Foreign
    }
}

impl std::fmt::Display for Whose {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Node(node) => write!(f, "of {node}"),
            Self::Inside(namespace) => write!(f, "goes with namespace {namespace}"),
            Self::Forge => f.write_str("Forge's own"),
            Self::Foreign => f.write_str("somebody else's"),
        }
    }
}

/// A node that goes, and its Application as Argo CD has it.
pub struct Going<'g> {
    /// The node.
    pub node: &'g NodeId,
    /// Its Application.
    pub application: &'g ApplicationName,
    /// The object; nothing where it is not there any more.
    pub live: Option<&'g Value>,
}

/// Another environment is there, by the receipt of its phase 1 or by its AppProject. Where neither can be listed one may be.
pub fn another(environment: &EnvironmentName, inventory: &Inventory) -> bool {
    let (receipts, projects) = (("", "configmaps"), ("argoproj.io", "appprojects"));
    let unknown = |of: (&str, &str)| inventory.kind(of).is_some() && inventory.known(of).is_none();
    let of_another = |(kind, item): (&Kind, &Item)| {
        let marks = kind.is(projects) || (kind.is(receipts) && item.name.starts_with("forge-bootstrap-"));
        marks && item.forge && item.environment.as_deref().is_some_and(|name| name != environment.as_str())
    };
    unknown(receipts) || unknown(projects) || inventory.objects().any(of_another)
}

/// Group, kind, namespace and name, as Applications list them.
type Address = (String, String, String, String);

/// What a teardown may call its own.
#[derive(Debug, Clone, Default)]
pub struct Claims {
    environment: String,
    /// What Forge itself made goes too.
    whole: bool,
    managed: BTreeMap<Address, NodeId>,
    tracked: BTreeMap<String, NodeId>,
    releases: BTreeSet<String>,
    /// The node that is Crossplane: what that made when it started, and no Application lists, is its own too.
    crossplane: Option<NodeId>,
    /// Namespaces that go.
    pub namespaces: BTreeSet<String>,
    /// Namespaces that its Applications deploy into, whosever they are.
    pub destinations: BTreeSet<String>,
    /// Nodes that are in another cluster, and in which.
    pub elsewhere: Vec<(NodeId, String)>,
}

impl Claims {
    /// Of the nodes of a scope. What Forge itself made goes with the last environment, and only with all of it: `last` is
    /// whether no other one is there.
    pub fn new(
        (environment, scope, last): (&EnvironmentName, &Scope, bool),
        argocd: &str,
        nodes: &[Going<'_>],
        inventory: &Inventory,
    ) -> Self {
        let whole = *scope == Scope::Platform && last;
        let named = if *scope == Scope::Platform { environment.to_string() } else { String::new() };
        let mut claims = Self { environment: named, whole, ..Self::default() };
        for going in nodes {
            claims.add(going, argocd);
        }
        if whole {
            let secrets = inventory.objects().filter(|(kind, _)| kind.is(("", "secrets")));
            claims.releases = secrets.filter_map(|(_, item)| item.own_release()).collect();
        }
        let namespaces = inventory.objects().filter(|(kind, _)| kind.is(("", "namespaces")));
        let own = namespaces.filter(|(kind, item)| claims.directly(kind, item).goes());
        claims.namespaces = own.map(|(_, item)| item.name.clone()).collect();
        claims
    }

    /// What Forge itself made goes too.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    fn add(&mut self, going: &Going<'_>, argocd: &str) {
        let Going { node, application: ApplicationName { namespace, name }, live } = going;
        let own = ("argoproj.io".to_owned(), "Application".to_owned(), namespace.clone(), name.clone());
        self.managed.insert(own, (*node).clone());
        let place = live.and_then(|live| {
            let destination = live.pointer("/spec/destination")?;
            text(destination, "/name").or_else(|| text(destination, "/server"))
        });
        if let Some(cluster) = place.filter(|cluster| !IN_CLUSTER.contains(cluster)) {
            self.elsewhere.push(((*node).clone(), cluster.to_owned()));
            return;
        }
        // Outside of Argo CD's namespace the name is `<namespace>_<name>`; neither may hold an underscore.
        let tracked = if namespace == argocd { name.clone() } else { format!("{namespace}_{name}") };
        self.tracked.insert(tracked, (*node).clone());
        if namespace == argocd && name == CROSSPLANE {
            self.crossplane = Some((*node).clone());
        }
        let Some(live) = live else { return };
        self.destinations.extend(text(live, "/spec/destination/namespace").map(str::to_owned));
        for resource in items(live, "/status/resources") {
            let field = |pointer: &str| text(resource, pointer).unwrap_or_default().to_owned();
            let address = (field("/group"), field("/kind"), field("/namespace"), field("/name"));
            self.managed.insert(address, (*node).clone());
        }
    }

    /// Whose an object is by its own word and that of Applications, without its owners and its namespace.
    fn directly(&self, kind: &Kind, item: &Item) -> Whose {
        let address = (kind.group.clone(), kind.kind.clone(), item.namespace.clone(), item.name.clone());
        let tracked = || item.tracked.as_ref().and_then(|name| self.tracked.get(name));
        if let Some(node) = self.managed.get(&address).or_else(tracked) {
            return Whose::Node(node.clone());
        }
        let environment = item.environment.as_deref().filter(|name| !name.is_empty());
        let own = match environment {
            Some(environment) => item.forge && environment == self.environment,
            None => item.forge && self.whole,
        };
        let installed = item.release.as_ref().is_some_and(|release| self.releases.contains(release));
        if own || installed {
            return Whose::Forge;
        }
        let started = self.crossplane.as_ref().filter(|_| self.started(kind, item));
        started.map_or(Whose::Foreign, |node| Whose::Node(node.clone()))
    }

    /// Crossplane made it when it started, and goes.
    pub(super) fn started(&self, kind: &Kind, item: &Item) -> bool {
        self.crossplane.is_some() && crossplane::started((&kind.group, &kind.resource), item)
    }

    /// The same, of its own kinds: it goes with their definition.
    pub(super) fn goes_with_definition(&self, kind: &Kind, item: &Item) -> bool {
        crossplane::is_its(&kind.group) && self.started(kind, item)
    }

    /// Whose everything is.
    pub fn ownership(&self, inventory: &Inventory) -> Ownership {
        let mut by_uid: BTreeMap<String, Whose> = BTreeMap::new();
        let mut open: Vec<&Item> = Vec::new();
        for (kind, item) in inventory.objects() {
            match self.directly(kind, item) {
                Whose::Foreign if item.parents.is_empty() => {}
                Whose::Foreign => open.push(item),
                whose => {
                    by_uid.insert(item.uid.clone(), whose);
                }
            }
        }
        // Owners have owners: as often as something is found.
        loop {
            let before = open.len();
            open.retain(|item| {
                let owner = item.parents.iter().find_map(|parent| by_uid.get(&parent.uid)).cloned();
                let Some(whose) = owner else { return true };
                by_uid.insert(item.uid.clone(), whose);
                false
            });
            if open.len() == before {
                break;
            }
        }
        for (_, item) in inventory.objects().filter(|(kind, item)| kind.namespaced && self.has(item)) {
            by_uid.entry(item.uid.clone()).or_insert_with(|| Whose::Inside(item.namespace.clone()));
        }
        Ownership { by_uid }
    }

    /// An object is in a namespace that goes.
    fn has(&self, item: &Item) -> bool {
        self.namespaces.contains(&item.namespace)
    }
}

/// Whose everything in a cluster is.
#[derive(Debug, Clone, Default)]
pub struct Ownership {
    by_uid: BTreeMap<String, Whose>,
}

impl Ownership {
    /// Whose an object is.
    pub fn of(&self, item: &Item) -> &Whose {
        self.of_uid(&item.uid)
    }

    /// Whose the object of this identity is.
    pub fn of_uid(&self, uid: &str) -> &Whose {
        self.by_uid.get(uid).unwrap_or(&FOREIGN)
    }
}

/// What goes before what: dependents before what they depend on (INV-6).
#[derive(Debug, Clone, Default)]
pub struct Order {
    /// For every node, all that it depends on, directly or not.
    needs: BTreeMap<NodeId, BTreeSet<NodeId>>,
}

impl Order {
    /// Of the nodes that go.
    pub fn of(graph: &Graph, nodes: &[NodeIx]) -> Self {
        let id = |node: NodeIx| graph.node(node).id.clone();
        let needs = |node: &NodeIx| {
            let all = graph.with_predecessors(std::slice::from_ref(node));
            (id(*node), all.into_iter().filter(|before| before != node).map(id).collect())
        };
        Self { needs: nodes.iter().map(needs).collect() }
    }

    /// Something of `one` may still be there when what is of `other` is gone. Nodes that do not depend on each other go
    /// in any order.
    pub fn outlives(&self, one: &Whose, other: &Whose) -> bool {
        match (one, other) {
            (_, Whose::Foreign) => false,
            (Whose::Foreign, _) => true,
            (Whose::Node(one), Whose::Node(other)) => {
                one != other && !self.needs.get(one).is_some_and(|needs| needs.contains(other))
            }
            (Whose::Inside(_) | Whose::Forge, Whose::Node(_)) => true,
            (_, Whose::Inside(_) | Whose::Forge) => false,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;
    use crate::render::{ENVIRONMENT_LABEL, MANAGED_BY};
    use crate::teardown::inventory::Listing;
    use crate::teardown::inventory::tests::{at, kind, known, object};

    pub(crate) fn node(name: &str) -> NodeId {
        name.parse().unwrap()
    }

    pub(crate) fn application(name: &str) -> ApplicationName {
        ApplicationName { namespace: "argocd".to_owned(), name: name.to_owned() }
    }

    /// An order of nodes, each with what it depends on.
    pub(crate) fn order(needs: &[(&str, &[&str])]) -> Order {
        let of = |(one, others): &(&str, &[&str])| (node(one), others.iter().map(|other| node(other)).collect());
        Order { needs: needs.iter().map(of).collect() }
    }

    fn forge(environment: Option<&str>) -> Value {
        match environment {
            Some(environment) => json!({"labels": {MANAGED_BY: "forge", ENVIRONMENT_LABEL: environment}}),
            None => json!({"labels": {MANAGED_BY: "forge"}}),
        }
    }

    fn inventory(others: bool) -> Inventory {
        let parent = |uid: &str| json!({"ownerReferences": [{"kind": "X", "name": "x", "uid": format!("uid-{uid}")}]});
        let tracked = json!({"annotations": {"argocd.argoproj.io/tracking-id": "dev-api:/ConfigMap:api/by-name"}});
        let helm = json!({"annotations": {"meta.helm.sh/release-name": "argo-cd", "meta.helm.sh/release-namespace": "argocd"}});
        let mut projects = vec![object("argocd/dev", forge(Some("dev")))];
        if others {
            projects.push(object("argocd/staging", forge(Some("staging"))));
        }
        let kinds: Vec<(Kind, Listing)> = vec![
            (
                kind("namespaces", "Namespace", false),
                known(
                    1,
                    &[object("api", forge(Some("dev"))), object("argocd", forge(None)), object("shop", json!({}))],
                ),
            ),
            (kind("appprojects.argoproj.io", "AppProject", true), known(1, &projects)),
            (
                kind("deployments.apps", "Deployment", true),
                known(1, &[object("api/api", json!({})), object("argocd/server", helm), object("shop/own", json!({}))]),
            ),
            (
                kind("replicasets.apps", "ReplicaSet", true),
                known(1, &[object("api/rs", parent("api/api")), object("shop/rs", parent("shop/own"))]),
            ),
            (
                kind("pods", "Pod", true),
                known(1, &[object("api/pod", parent("api/rs")), object("api/alone", json!({}))]),
            ),
            (kind("configmaps", "ConfigMap", true), known(1, &[object("api/by-name", tracked)])),
            (kind("secrets", "Secret", true), known(1, &[object("argocd/sh.helm.release.v1.argo-cd.v1", forge(None))])),
        ];
        Inventory::new(at(0), kinds, vec![], None)
    }

    fn claims(scope: &str, last: bool, inventory: &Inventory) -> Claims {
        let live = json!({
            "spec": {"destination": {"server": "https://kubernetes.default.svc", "namespace": "api"}},
            "status": {"resources": [{"group": "apps", "kind": "Deployment", "namespace": "api", "name": "api"}]},
        });
        let far = json!({"spec": {"destination": {"name": "production", "namespace": "shop"}}, "status": {"resources": [
            {"group": "apps", "kind": "Deployment", "namespace": "shop", "name": "own"},
        ]}});
        let (api, shop) = (node("shop/api"), node("shop/far"));
        let (one, other) = (application("dev-api"), application("dev-far"));
        let nodes = [
            Going { node: &api, application: &one, live: Some(&live) },
            Going { node: &shop, application: &other, live: Some(&far) },
        ];
        let environment = "dev".parse().unwrap();
        Claims::new((&environment, &scope.parse().unwrap(), last), "argocd", &nodes, inventory)
    }

    fn told(claims: &Claims, inventory: &Inventory) -> BTreeMap<String, String> {
        let ownership = claims.ownership(inventory);
        inventory
            .objects()
            .map(|(kind, item)| (format!("{} {}", kind.kind, item.place()), ownership.of(item).to_string()))
            .collect()
    }

    #[test]
    fn what_applications_list_what_is_marked_and_what_is_owned_by_it_goes() {
        let inventory = inventory(false);
        let claims = claims("platform", true, &inventory);
        let told = told(&claims, &inventory);
        for (what, whose) in [
            ("Deployment api/api", "of shop/api"),
            ("ReplicaSet api/rs", "of shop/api"),
            ("Pod api/pod", "of shop/api"),
            ("ConfigMap api/by-name", "of shop/api"),
            ("Pod api/alone", "goes with namespace api"),
            ("Namespace api", "Forge's own"),
            ("Namespace argocd", "Forge's own"),
            ("Deployment argocd/server", "Forge's own"),
            ("AppProject argocd/dev", "Forge's own"),
            ("Namespace shop", "somebody else's"),
            ("Deployment shop/own", "somebody else's"),
            ("ReplicaSet shop/rs", "somebody else's"),
        ] {
            assert_eq!(told[what], whose, "{what}");
        }
        assert_eq!(claims.elsewhere, [(node("shop/far"), "production".to_owned())]);
        assert_eq!(claims.destinations, BTreeSet::from(["api".to_owned()]));
    }

    #[test]
    fn another_environment_is_there_by_its_app_project_and_whoever_may_not_look_cannot_rule_it_out() {
        let dev = "dev".parse().unwrap();
        assert!(another(&dev, &inventory(true)) && !another(&dev, &inventory(false)));
        let projects = kind("appprojects.argoproj.io", "AppProject", true);
        let unread = Inventory::new(at(0), vec![(projects, Listing::Unknown("forbidden".to_owned()))], vec![], None);
        assert!(another(&dev, &unread));
        let receipt = object("argo/forge-bootstrap-qa", forge(Some("qa")));
        let receipts = vec![(kind("configmaps", "ConfigMap", true), known(1, &[receipt]))];
        assert!(another(&dev, &Inventory::new(at(0), receipts, vec![], None)));
    }

    #[test]
    fn while_another_environment_is_there_what_all_share_stays_and_a_scope_takes_only_its_own() {
        let inventory = inventory(true);
        let told = |scope: &str| told(&claims(scope, false, &inventory), &inventory);
        let platform = told("platform");
        assert_eq!(platform["Namespace api"], "Forge's own");
        assert_eq!(platform["AppProject argocd/dev"], "Forge's own");
        for shared in ["Namespace argocd", "Deployment argocd/server", "AppProject argocd/staging"] {
            assert_eq!(platform[shared], "somebody else's", "{shared}");
        }
        let scoped = told("app:shop/api");
        assert_eq!(scoped["Deployment api/api"], "of shop/api");
        assert_eq!(
            (scoped["AppProject argocd/dev"].as_str(), scoped["Pod api/alone"].as_str()),
            ("somebody else's", "somebody else's")
        );
    }

    #[test]
    fn dependents_go_first_and_what_nothing_orders_may_outlive_the_other() {
        let order =
            order(&[("a/top", &["a/middle", "a/base"]), ("a/middle", &["a/base"]), ("a/base", &[]), ("a/side", &[])]);
        let of = |name: &str| Whose::Node(node(name));
        assert!(!order.outlives(&of("a/top"), &of("a/base")) && order.outlives(&of("a/base"), &of("a/top")));
        assert!(order.outlives(&of("a/side"), &of("a/base")) && order.outlives(&of("a/base"), &of("a/side")));
        assert!(!order.outlives(&of("a/base"), &of("a/base")));
        let inside = Whose::Inside("x".to_owned());
        assert!(order.outlives(&inside, &of("a/base")) && order.outlives(&Whose::Forge, &of("a/base")));
        assert!(!order.outlives(&of("a/base"), &Whose::Forge) && !order.outlives(&inside, &Whose::Forge));
        assert!(order.outlives(&Whose::Foreign, &Whose::Forge) && !order.outlives(&of("a/base"), &Whose::Foreign));
    }
}
