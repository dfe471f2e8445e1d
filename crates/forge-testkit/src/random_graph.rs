//! Random platforms for campaigns on a real cluster: which nodes, what waits for what, and how each behaves. The same seed
//! gives the same platform, so a failure replays.

use std::collections::{BTreeMap, BTreeSet};

use crate::generate::Random;
use crate::twin::{File, TwinNode, deployment};

/// How a workload behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// Becomes ready and stays so.
    Well,
    /// Never becomes ready: it crashes.
    Fails,
    /// Becomes ready, crashes some seconds later, and does so again after every restart.
    Flaps,
    /// Becomes ready, but late.
    Slow,
}

/// A node of a random platform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RandomNode {
    /// `n00`, `n01` …; names sort as nodes were made.
    pub name: String,
    /// Names of nodes before it.
    pub depends_on: Vec<String>,
    /// Seconds from its start to readiness: 0 to 4, and 5 more if it is slow.
    pub ready_after: u32,
    /// How it behaves.
    pub behaviour: Behaviour,
}

/// Seconds that a slow one takes longer.
const SLOW: u32 = 5;
/// Most direct predecessors of a node.
const MOST: usize = 3;

/// A platform of so many nodes. Most are well; about one in ten each is slow, flaps or fails. No cycles: nodes wait only
/// for earlier ones, and about one in five for none.
pub fn random(seed: u64, nodes: usize) -> Vec<RandomNode> {
    let mut random = Random::new(seed);
    let name = |n: usize| format!("n{n:02}");
    let node = |n: usize| {
        let behaviour = match random.below(10) {
            0 => Behaviour::Fails,
            1 => Behaviour::Flaps,
            2 => Behaviour::Slow,
            _ => Behaviour::Well,
        };
        let wanted = if n == 0 || random.below(5) == 0 { 0 } else { 1 + random.below(MOST.min(n)) };
        let mut before = BTreeSet::new();
        while before.len() < wanted {
            before.insert(random.below(n));
        }
        let late = if behaviour == Behaviour::Slow { SLOW } else { 0 };
        let ready_after = u32::try_from(random.below(5)).unwrap_or(0) + late;
        RandomNode { name: name(n), depends_on: before.into_iter().map(name).collect(), ready_after, behaviour }
    };
    (0..nodes).map(node).collect()
}

impl RandomNode {
    /// Whether it will be healthy and stay so.
    pub fn is_well(&self) -> bool {
        matches!(self.behaviour, Behaviour::Well | Behaviour::Slow)
    }

    /// Its workload on the real node.
    pub fn manifest(&self, image: &str) -> File {
        let crash;
        let extra: &[(&str, &str)] = match self.behaviour {
            Behaviour::Well | Behaviour::Slow => &[],
            Behaviour::Fails => &[("FAIL", "crash")],
            Behaviour::Flaps => {
                crash = format!("crash-after={}s", self.ready_after + 3);
                &[("FAIL", crash.as_str())]
            }
        };
        deployment(&self.name, image, self.ready_after, extra)
    }

    /// As a node of a twin, with a workload on the real node.
    pub fn twin(&self, image: &str) -> TwinNode {
        let depends_on: Vec<&str> = self.depends_on.iter().map(String::as_str).collect();
        TwinNode::new(&self.name, &depends_on, vec![self.manifest(image)])
    }
}

/// Nodes that can never start: something before them, near or far, fails.
pub fn blocked(nodes: &[RandomNode]) -> BTreeSet<String> {
    let fails: BTreeMap<&str, bool> =
        nodes.iter().map(|node| (node.name.as_str(), node.behaviour == Behaviour::Fails)).collect();
    let mut blocked: BTreeSet<String> = BTreeSet::new();
    for node in nodes {
        let stops = |before: &String| blocked.contains(before) || fails.get(before.as_str()).copied().unwrap_or(false);
        if node.depends_on.iter().any(stops) {
            blocked.insert(node.name.clone());
        }
    }
    blocked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_platform_and_another_seed_another() {
        assert_eq!(random(7, 40), random(7, 40));
        assert_ne!(random(7, 40), random(8, 40));
    }

    #[test]
    fn nodes_wait_only_for_earlier_ones_and_times_stay_in_bounds() {
        for seed in 0..200 {
            for node in random(seed, 30) {
                assert!(node.depends_on.iter().all(|before| *before < node.name), "seed {seed}: {node:?}");
                let slow = if node.behaviour == Behaviour::Slow { SLOW } else { 0 };
                assert!((slow..=slow + 4).contains(&node.ready_after), "seed {seed}: {node:?}");
            }
        }
    }

    #[test]
    fn every_behaviour_occurs_and_most_nodes_are_well() {
        let all: Vec<RandomNode> = (0..50).flat_map(|seed| random(seed, 20)).collect();
        for behaviour in [Behaviour::Well, Behaviour::Fails, Behaviour::Flaps, Behaviour::Slow] {
            assert!(all.iter().any(|node| node.behaviour == behaviour), "{behaviour:?}");
        }
        assert!(all.iter().filter(|node| node.is_well()).count() * 3 > all.len() * 2);
    }

    #[test]
    fn what_is_behind_a_failure_is_blocked_near_and_far() {
        let node = |name: &str, before: &[&str], behaviour| RandomNode {
            name: name.into(),
            depends_on: before.iter().map(|name| (*name).into()).collect(),
            ready_after: 0,
            behaviour,
        };
        let nodes = [
            node("a", &[], Behaviour::Fails),
            node("b", &["a"], Behaviour::Well),
            node("c", &["b"], Behaviour::Well),
            node("d", &[], Behaviour::Well),
        ];
        assert_eq!(blocked(&nodes).into_iter().collect::<Vec<_>>(), ["b", "c"]);
    }
}
