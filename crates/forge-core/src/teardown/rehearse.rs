//! A teardown, rehearsed (SPEC.md section 5): what would stand in its way, said beforehand from live objects, with the fix for
//! each. Reads nothing itself and changes nothing.
//!
//! Every rule is a function of what was read: it is given everything, and says what it found and what to do. Who clears a
//! finalizer is nowhere written down, so it is concluded from what accounts of running workloads may change
//! (docs/adr/0028).

mod facts;
mod report;
mod rules;

use std::collections::BTreeSet;

use jiff::Timestamp;

pub use facts::{
    ApiService, Asked, Definition, Facts, Objects, Powers, Service, ServiceRef, WANTED, Webhook, Workload,
};
pub use report::{Foretold, Judged, Listed, RehearsalReport, Rule, Ruled, Severity};

use super::inventory::{DEFINITIONS, Inventory, Item, Kind};
use super::whose::{Claims, Order, Ownership, Whose};
use crate::executor::PvPolicy;

/// Everything that rules are given.
pub struct Live<'l> {
    /// What is in the cluster.
    pub inventory: &'l Inventory,
    /// What the teardown may call its own.
    pub claims: &'l Claims,
    /// Whose everything is.
    pub ownership: Ownership,
    /// What goes before what.
    pub order: Order,
    /// What was read whole.
    pub facts: Facts,
    /// What is to become of volumes.
    pub policy: PvPolicy,
    /// The time.
    pub now: Timestamp,
}

/// An object and whose it is.
#[derive(Clone, Copy)]
struct Thing<'l> {
    kind: &'l Kind,
    item: &'l Item,
    whose: &'l Whose,
}

impl Thing<'_> {
    /// Kind, place, and whose it is.
    fn told(&self) -> String {
        format!("{} {}, {}", self.kind.name(), self.item.place(), self.whose)
    }

    /// As kubectl takes it.
    fn address(&self) -> String {
        let place = if self.item.namespace.is_empty() { String::new() } else { format!(" -n {}", self.item.namespace) };
        format!("{} {}{place}", self.kind.name(), self.item.name)
    }
}

/// Who clears a finalizer, as far as that can be concluded.
#[derive(Default)]
struct Clearers<'l> {
    /// They may change objects of the kind, or of the finalizer's domain, by name.
    certain: Vec<&'l Workload>,
    /// They may change everything.
    perhaps: Vec<&'l Workload>,
}

impl<'l> Live<'l> {
    /// Of what was read.
    pub fn new(
        inventory: &'l Inventory,
        claims: &'l Claims,
        order: Order,
        facts: Facts,
        policy: PvPolicy,
        now: Timestamp,
    ) -> Self {
        Self { inventory, claims, ownership: claims.ownership(inventory), order, facts, policy, now }
    }

    /// How many objects go.
    pub fn goes(&self) -> usize {
        self.things().filter(|thing| thing.whose.goes()).count()
    }

    fn things(&self) -> impl Iterator<Item = Thing<'_>> {
        self.inventory.objects().map(|(kind, item)| Thing { kind, item, whose: self.ownership.of(item) })
    }

    fn going(&self) -> impl Iterator<Item = Thing<'_>> {
        self.things().filter(|thing| thing.whose.goes())
    }

    /// Kinds of objects that go.
    fn going_kinds(&self) -> BTreeSet<(&str, &str)> {
        self.going().map(|thing| (thing.kind.group.as_str(), thing.kind.resource.as_str())).collect()
    }

    /// The definition of a kind.
    fn definition(&self, kind: &Kind) -> Option<&Definition> {
        let name = kind.name();
        self.facts.definitions.iter().find(|definition| definition.name == name)
    }

    /// The object of a definition.
    fn defined(&self, definition: &Definition) -> Option<&Item> {
        let all = self.inventory.known(DEFINITIONS)?;
        all.items().iter().find(|item| item.name == definition.name)
    }

    /// Who clears a finalizer of an object.
    fn clearers(&self, thing: Thing<'_>, finalizer: &str) -> Clearers<'_> {
        let Kind { group, resource, .. } = thing.kind;
        let mut accounts: BTreeSet<&String> = self.facts.powers.below(domain(finalizer));
        let definition = self.definition(thing.kind);
        if definition.is_some() {
            accounts.extend(self.facts.powers.over(group, resource));
        }
        // Whoever brings a definition and workloads brings its controller.
        let brought_by = definition.and_then(|definition| self.defined(definition)).map(|item| self.ownership.of(item));
        let is_brought = |workload: &Workload| {
            brought_by
                .is_some_and(|whose| matches!(whose, Whose::Node(_)) && self.ownership.of_uid(&workload.uid) == whose)
        };
        let mut clearers = Clearers::default();
        for workload in &self.facts.workloads {
            if accounts.contains(&workload.account) || is_brought(workload) {
                clearers.certain.push(workload);
            } else if self.facts.powers.is_everything(&workload.account) && !workload.argo {
                clearers.perhaps.push(workload);
            }
        }
        clearers
    }

    /// What all rules say, in their order.
    pub fn judged(&self) -> Vec<Judged> {
        rules::ALL.iter().map(|rule| rule(self)).collect()
    }
}

/// The domain of a finalizer; empty where it has none.
fn domain(finalizer: &str) -> &str {
    let front = finalizer.split('/').next().unwrap_or(finalizer);
    if front.contains('.') { front } else { "" }
}

/// The domain of what is called Kubernetes' and is installed like any other controller: the one of copies of volumes.
const INSTALLED: &str = "snapshot.storage.kubernetes.io";

/// Finalizers that Kubernetes, or Argo, clears itself. Those of load balancers and volumes have rules of their own.
fn is_built_in(finalizer: &str) -> bool {
    let own = ["kubernetes", "foregroundDeletion", "orphan"];
    let ends = |end: &str| domain(finalizer) == end || domain(finalizer).ends_with(&format!(".{end}"));
    own.contains(&finalizer)
        || finalizer.starts_with("external-attacher/")
        || (ends("kubernetes.io") && domain(finalizer) != INSTALLED)
        || ends("apiextensions.k8s.io")
        || finalizer.starts_with("networking.k8s.io/")
        || ends("argocd.argoproj.io")
        || ends("workflows.argoproj.io")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kubernetes_and_argo_clear_themselves_is_known_and_everything_else_has_an_owner() {
        for own in [
            "kubernetes",
            "foregroundDeletion",
            "kubernetes.io/pvc-protection",
            "batch.kubernetes.io/job-tracking",
            "service.kubernetes.io/load-balancer-cleanup",
            "customresourcecleanup.apiextensions.k8s.io",
            "resources-finalizer.argocd.argoproj.io",
            "resources-finalizer.argocd.argoproj.io/background",
            "external-attacher/disk-example-com",
        ] {
            assert!(is_built_in(own), "{own}");
        }
        for other in [
            "example.com/hold",
            "hold",
            "finalizer.crossplane.io",
            "service.k8s.aws/resources",
            "notkubernetes.io/x",
            "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection",
        ] {
            assert!(!is_built_in(other), "{other}");
        }
        assert_eq!(
            (domain("a.example.com/b"), domain("finalizer.crossplane.io"), domain("hold")),
            ("a.example.com", "finalizer.crossplane.io", "")
        );
    }
}
