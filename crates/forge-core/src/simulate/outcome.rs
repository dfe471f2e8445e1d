//! What a simulated run came to, computed from the moments at which nodes started and ended.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::simulate::{Moment, Subject};

/// How a node ended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum NodeState {
    /// Everything held.
    Proven,
    /// In words.
    Failed {
        /// Why.
        why: String,
    },
    /// A predecessor failed (INV-4).
    Blocked {
        /// Its index.
        by: usize,
    },
    /// Its predecessors never ended: the graph is not one.
    #[default]
    NeverStarted,
}

/// One node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeOutcome {
    /// How it ended.
    pub state: NodeState,
    /// When its predecessors were proven.
    pub started: Option<Moment>,
    /// When it was proven, failed or blocked.
    pub finished: Option<Moment>,
}

impl NodeOutcome {
    /// How long it took; blocked nodes took no time.
    fn took(&self) -> u64 {
        self.started.zip(self.finished).map_or(0, |(from, to)| to.0.saturating_sub(from.0))
    }
}

/// The whole run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// One per subject, in their order.
    pub nodes: Vec<NodeOutcome>,
    /// When the last node ended.
    pub makespan: Moment,
    /// When it would have ended if every wave waited for the whole one before, with the same durations.
    pub wave_barriers: Moment,
    /// The chain of nodes, first to last, each of which started when the one before was proven, that gave the makespan.
    pub critical_path: Vec<usize>,
    /// Most nodes that were on their way at one moment.
    pub max_parallel: usize,
    /// Nodes that failed themselves.
    pub failed: Vec<usize>,
    /// The blast radius: all that depends on a failed node.
    pub blocked: Vec<usize>,
    /// Nodes that nothing freed and nothing blocked; empty unless the predecessors have a cycle or a wrong index.
    pub never_started: Vec<usize>,
}

impl Outcome {
    pub(super) fn new(subjects: &[Subject], nodes: Vec<NodeOutcome>) -> Self {
        let which = |test: fn(&NodeState) -> bool| {
            nodes.iter().enumerate().filter(|(_, node)| test(&node.state)).map(|(index, _)| index).collect()
        };
        let mut waves: BTreeMap<usize, u64> = BTreeMap::new();
        for (subject, node) in subjects.iter().zip(&nodes) {
            let longest = waves.entry(subject.wave).or_default();
            *longest = (*longest).max(node.took());
        }
        Self {
            makespan: nodes.iter().filter_map(|node| node.finished).max().unwrap_or_default(),
            wave_barriers: Moment(waves.values().fold(0, |sum, longest| sum.saturating_add(*longest))),
            critical_path: critical_path(subjects, &nodes),
            max_parallel: max_parallel(&nodes),
            failed: which(|state| matches!(state, NodeState::Failed { .. })),
            blocked: which(|state| matches!(state, NodeState::Blocked { .. })),
            never_started: which(|state| *state == NodeState::NeverStarted),
            nodes,
        }
    }
}

/// From the last node back, each time to the predecessor that was proven last. Of equals the lowest index.
fn critical_path(subjects: &[Subject], nodes: &[NodeOutcome]) -> Vec<usize> {
    let ended = |index: usize| {
        let node = nodes.get(index)?;
        node.started.and(node.finished)
    };
    let last = |indexes: &mut dyn Iterator<Item = usize>| {
        indexes
            .filter_map(|i| Some((ended(i)?, i)))
            .max_by_key(|(end, i)| (*end, std::cmp::Reverse(*i)))
            .map(|(_, i)| i)
    };
    let mut path = Vec::new();
    let mut next = last(&mut (0..nodes.len()));
    while let Some(index) = next {
        path.push(index);
        let predecessors = subjects.get(index).into_iter().flat_map(|subject| subject.predecessors.iter().copied());
        next = last(&mut predecessors.into_iter());
    }
    path.reverse();
    path
}

/// A node that ends at the moment at which another starts makes room for it.
fn max_parallel(nodes: &[NodeOutcome]) -> usize {
    let spans = nodes.iter().filter_map(|node| node.started.zip(node.finished));
    let mut steps: Vec<(Moment, bool)> = spans.flat_map(|(from, to)| [(from, true), (to, false)]).collect();
    // Ends sort before starts.
    steps.sort_unstable();
    let (mut running, mut most) = (0_usize, 0_usize);
    for (_, starts) in steps {
        running = if starts { running.saturating_add(1) } else { running.saturating_sub(1) };
        most = most.max(running);
    }
    most
}
