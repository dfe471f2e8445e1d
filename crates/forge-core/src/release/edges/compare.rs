//! The graph of one environment against its releases.

use std::collections::{BTreeMap, BTreeSet};

use super::profile::{Thing, Webhook};
use super::{Missing, Owner, Profile, Profiles, is_system};
use crate::adopt::is_plural_of;
use crate::format::{Reference, Subject};
use crate::graph::{Graph, NodeIx};
use crate::name::NodeId;

/// What came of it.
pub(super) struct Compared {
    pub(super) missing: Vec<Missing>,
    /// Every declared dependency whose ends are known, and whether it is without a reason and not free.
    pub(super) declared: Vec<(Owner, Reference, bool)>,
}

/// Compares them.
pub(super) fn compare(graph: &Graph, profiles: &Profiles) -> Compared {
    let releases = Releases::new(graph, profiles);
    let mut needed = BTreeSet::new();
    let missing = releases.missing(&mut needed);
    Compared { missing, declared: releases.declared(&needed) }
}

struct Releases<'r> {
    graph: &'r Graph,
    /// What is known of nodes.
    known: BTreeMap<NodeIx, &'r Profile>,
    /// Who brings what.
    brought: BTreeMap<&'r Thing, Vec<NodeIx>>,
    plurals: BTreeMap<(&'r str, &'r str), &'r str>,
}

impl<'r> Releases<'r> {
    fn new(graph: &'r Graph, profiles: &'r Profiles) -> Self {
        let mut releases = Self { graph, known: BTreeMap::new(), brought: BTreeMap::new(), plurals: BTreeMap::new() };
        for node in graph.indexes() {
            let Subject::Project(id) = &graph.node(node).subject else { continue };
            let Some(profile) = profiles.get(id) else { continue };
            releases.known.insert(node, profile);
            for thing in profile.brings.keys() {
                releases.brought.entry(thing).or_default().push(node);
            }
            for ((group, kind), plural) in &profile.plurals {
                releases.plurals.insert((group.as_str(), kind.as_str()), plural.as_str());
            }
        }
        releases
    }

    fn id(&self, node: NodeIx) -> NodeId {
        self.graph.node(node).id.clone()
    }

    fn before(&self, nodes: &[NodeIx]) -> BTreeSet<NodeIx> {
        self.graph.with_predecessors(nodes).into_iter().collect()
    }

    /// What the graph does not have. Adds every pair of which one needs something of the other.
    fn missing(&self, needed: &mut BTreeSet<(NodeIx, NodeIx)>) -> Vec<Missing> {
        let mut missing = Vec::new();
        for (user, profile) in &self.known {
            let before = self.before(&[*user]);
            let mut found: BTreeMap<Vec<NodeIx>, Vec<String>> = BTreeMap::new();
            let node = self.graph.node(*user);
            let required = node.requires.iter().map(|object| (Thing::of(object), "its `requires`"));
            let healthy = node.health.iter().map(|health| (Thing::of(&health.object), "its `health`"));
            let named: Vec<(Thing, &str)> = required.chain(healthy).collect();
            let needs = profile.needs.iter().map(|(thing, by)| (thing, by.as_str()));
            for (thing, by) in needs.chain(named.iter().map(|(thing, by)| (thing, *by))) {
                let Some(providers) = self.brought.get(thing) else { continue };
                needed.extend(providers.iter().map(|provider| (*user, *provider)));
                if !providers.iter().any(|provider| before.contains(provider)) {
                    found.entry(providers.clone()).or_default().push(format!("{by} needs {thing}"));
                }
            }
            self.asked(*user, profile, &before, &mut found, needed);
            for (providers, reasons) in found {
                let contradicts = providers.iter().all(|provider| self.before(&[*provider]).contains(user));
                let providers = providers.into_iter().map(|provider| self.id(provider)).collect();
                missing.push(Missing { user: self.id(*user), providers, reasons, contradicts });
            }
        }
        missing
    }

    /// Webhooks of others that are asked about objects of a release. One that comes later is not there yet when these are made.
    fn asked(
        &self,
        user: NodeIx,
        profile: &Profile,
        before: &BTreeSet<NodeIx>,
        found: &mut BTreeMap<Vec<NodeIx>, Vec<String>>,
        needed: &mut BTreeSet<(NodeIx, NodeIx)>,
    ) {
        for (node, other) in self.known.iter().filter(|(node, _)| **node != user) {
            for webhook in &other.webhooks {
                let Some((kind, by)) = self.asks(webhook, profile) else { continue };
                let service = webhook.service.as_ref().map(|(namespace, name)| Thing::service(namespace, name));
                let answers = service.as_ref().and_then(|service| self.brought.get(service));
                let answers = answers.cloned().unwrap_or_else(|| vec![*node]);
                needed.extend(answers.iter().map(|provider| (user, *provider)));
                let ordered =
                    |provider: &NodeIx| before.contains(provider) || self.before(&[*provider]).contains(&user);
                if !answers.iter().any(ordered) {
                    let reason = format!(
                        "{by} is refused while {} is not answered, which is asked about {kind}",
                        webhook.document
                    );
                    found.entry(answers).or_default().push(reason);
                }
            }
        }
    }

    /// The first kind of a release that a webhook is asked about, and the document of it.
    fn asks<'p>(&self, webhook: &Webhook, profile: &'p Profile) -> Option<(&'p str, &'p str)> {
        let asked = |group: &str, kind: &str| {
            let mut rules = webhook.rules.iter().filter(|(of, _)| of == group);
            match self.plurals.get(&(group, kind)) {
                Some(plural) => rules.any(|(_, resource)| resource == plural),
                None => rules.any(|(_, resource)| is_plural_of(resource, kind)),
            }
        };
        profile.kinds().find(|(group, kind, _)| asked(group, kind)).map(|(_, kind, by)| (kind, by))
    }

    /// Every dependency as it is written, where it can be said whether a release explains it.
    fn declared(&self, needed: &BTreeSet<(NodeIx, NodeIx)>) -> Vec<(Owner, Reference, bool)> {
        let mut closures: BTreeMap<&Reference, (Vec<NodeIx>, BTreeSet<NodeIx>)> = BTreeMap::new();
        for node in self.graph.indexes() {
            for reference in self.graph.awaited(node) {
                closures.entry(reference).or_insert_with(|| {
                    let members = self.members(reference);
                    let all = self.before(&members);
                    (members, all)
                });
            }
        }
        let own = self.graph.indexes().flat_map(|node| {
            let written = self.graph.node(node).depends_on.iter();
            written.map(move |reference| (Owner::Node(self.id(node)), vec![node], reference))
        });
        let of_stacks = self.graph.stacks().iter().flat_map(|stack| {
            let users = self.members(&Reference::Stack(stack.name.clone()));
            stack.depends_on.iter().map(move |reference| (Owner::Stack(stack.name.clone()), users.clone(), reference))
        });
        let mut declared = Vec::new();
        for (owner, users, reference) in own.chain(of_stacks) {
            let Some((members, all)) = closures.get(reference) else { continue };
            if users.is_empty() || members.is_empty() || is_system(reference) {
                continue;
            }
            let known = |node: &NodeIx| self.known.contains_key(node);
            if !users.iter().all(known) || !members.iter().all(known) {
                continue;
            }
            let mut state = State { unclear: false, explained: false, costs: false };
            for user in users {
                let others: Vec<&BTreeSet<NodeIx>> = self
                    .graph
                    .awaited(user)
                    .filter(|other| *other != reference)
                    .filter_map(|other| closures.get(other).map(|(_, all)| all))
                    .collect();
                let otherwise = |node: &NodeIx| others.iter().any(|all| all.contains(node));
                state.costs |= !members.iter().all(otherwise);
                for provider in all.iter().filter(|node| !otherwise(node) && !self.graph.node(**node).implicit) {
                    state.unclear |= !known(provider);
                    state.explained |= needed.contains(&(user, *provider)) || self.speaks(user, *provider);
                }
            }
            if !state.unclear {
                declared.push((owner, reference.clone(), state.costs && !state.explained));
            }
        }
        declared
    }

    /// The nodes that a reference names.
    fn members(&self, reference: &Reference) -> Vec<NodeIx> {
        match reference {
            Reference::Node(id) => self.graph.find(id).into_iter().collect(),
            Reference::Stack(name) => {
                self.graph.indexes().filter(|node| self.graph.node(*node).stack == *name).collect()
            }
        }
    }

    /// Whether a release talks to a Service of another one, or shares a namespace with it: a reason to wait, if not one that can be
    /// proven.
    fn speaks(&self, user: NodeIx, provider: NodeIx) -> bool {
        let (Some(user), Some(provider)) = (self.known.get(&user), self.known.get(&provider)) else { return true };
        let spoken =
            user.hosts.iter().any(|(name, namespace)| provider.brings.contains_key(&Thing::service(namespace, name)));
        spoken || !user.namespaces.is_disjoint(&provider.namespaces)
    }
}

/// What is known of a declared dependency.
struct State {
    /// Something between the two is not known from releases.
    unclear: bool,
    /// Something of it is needed.
    explained: bool,
    /// Without it more could start at the same time.
    costs: bool,
}
