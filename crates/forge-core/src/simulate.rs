//! The graph on a virtual clock: `forge plan --simulate` (SPEC section 6).
//!
//! Every node goes through the same [`decide`] as in a real run; only Argo CD is replaced, by a small state machine per
//! node. Invariants: same subjects and options, same events; a node is looked at only when something about it changed, so
//! a run costs O((n + e) log n). It must not know rules of its own about when a node may start.

mod argo;
mod outcome;

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use outcome::{NodeOutcome, NodeState, Outcome};

use crate::duration::Duration;
use crate::gate::{
    Act, Decision, Observed, PredecessorState, Retry, RunId, SyncRequested, Timeouts, WaitingFor, Wanted, Why, decide,
    remember,
};
use crate::name::{ApplicationId, NodeId};
use argo::{Application, unseen};

/// A node of the graph, by index.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Subject {
    /// The node.
    pub id: NodeId,
    /// Its Application.
    pub application: ApplicationId,
    /// Indexes of the nodes that it waits for.
    pub predecessors: Vec<usize>,
    /// Its wave, greater than those of its predecessors; only compared with, never obeyed.
    pub wave: usize,
    /// As in a real run.
    pub timeouts: Timeouts,
    /// As in a real run.
    pub retry: Retry,
}

/// What to simulate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Options {
    /// Same seed, same durations.
    pub seed: u64,
    /// Nodes that become Degraded and stay so.
    #[serde(default)]
    pub fail: BTreeSet<NodeId>,
    /// When the whole run gives up.
    pub run_timeout: Duration,
}

/// A moment of virtual time: milliseconds since the run began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Moment(pub u64);

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Duration::from_seconds(self.0 / 1000).fmt(f)
    }
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// When.
    pub at: Moment,
    /// Index of the node.
    pub node: usize,
    /// What.
    pub change: Change,
}

/// What happened to a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", content = "detail", rename_all = "camelCase")]
pub enum Change {
    /// Its predecessors are proven.
    Started,
    /// A sync was asked for.
    Syncing,
    /// It waits for something else than before.
    WaitingFor(String),
    /// What depends on it may start.
    Proven,
    /// Why.
    Failed(String),
    /// Index of the failed predecessor.
    Blocked(usize),
}

/// Runs the graph and reports every event in order of time. What the subjects' predecessors cannot reach (a cycle, an
/// index that does not exist) never starts and is listed as such.
pub fn run(subjects: &[Subject], options: &Options, mut on_event: impl FnMut(&Event)) -> Outcome {
    // The name is valid; there is no other way to say so than to try.
    let Ok(run) = "simulation".parse::<RunId>() else { return Outcome::default() };
    let deadline = argo::later(Timestamp::UNIX_EPOCH, options.run_timeout.as_jiff());
    let mut successors: Vec<Vec<usize>> = vec![Vec::new(); subjects.len()];
    let mut nodes = Vec::with_capacity(subjects.len());
    for (index, subject) in subjects.iter().enumerate() {
        let predecessors: BTreeSet<usize> = subject.predecessors.iter().copied().collect();
        for predecessor in &predecessors {
            if let Some(list) = successors.get_mut(*predecessor) {
                list.push(index);
            }
        }
        let wanted = argo::wanted(subject, subjects, &run);
        let application = Application::new(subject, options.seed, options.fail.contains(&subject.id));
        let observed = unseen(deadline, &wanted, None);
        let missing = predecessors.len();
        let outcome = NodeOutcome::default();
        nodes.push(Node { wanted, observed, application, missing, blocked_by: None, waiting: None, outcome });
    }
    let mut simulation =
        Simulation { nodes, successors, wake: BinaryHeap::new(), ready: VecDeque::new(), on_event: &mut on_event };
    simulation.run();
    let nodes = simulation.nodes.into_iter().map(|node| node.outcome).collect();
    Outcome::new(subjects, nodes)
}

struct Node {
    wanted: Wanted,
    observed: Observed,
    application: Application,
    /// Predecessors that are not proven yet.
    missing: usize,
    /// The predecessor that failed first.
    blocked_by: Option<usize>,
    /// What was last reported.
    waiting: Option<WaitingFor>,
    outcome: NodeOutcome,
}

impl Node {
    /// Nobody looks at it again, so its share of the edges is given back.
    fn end(&mut self, state: NodeState, at: Moment) {
        self.outcome.state = state;
        self.outcome.finished = Some(at);
        self.wanted.predecessors = Vec::new();
        self.observed.predecessors.clear();
    }
}

struct Simulation<'a, F: FnMut(&Event)> {
    nodes: Vec<Node>,
    successors: Vec<Vec<usize>>,
    /// When to look at which node again, earliest first.
    wake: BinaryHeap<Reverse<(Timestamp, usize)>>,
    /// Nodes to look at now.
    ready: VecDeque<usize>,
    on_event: &'a mut F,
}

impl<F: FnMut(&Event)> Simulation<'_, F> {
    fn run(&mut self) {
        let start = Timestamp::UNIX_EPOCH;
        for index in 0..self.nodes.len() {
            self.look(index, start);
        }
        self.settle(start);
        while let Some(Reverse((now, index))) = self.wake.pop() {
            self.look(index, now);
            self.settle(now);
        }
    }

    /// Looks at everything that became possible at this moment.
    fn settle(&mut self, now: Timestamp) {
        while let Some(index) = self.ready.pop_front() {
            self.look(index, now);
        }
    }

    /// Decides about one node, does what the decision asks for, and arranges the next look.
    fn look(&mut self, index: usize, now: Timestamp) {
        let Some(node) = self.nodes.get_mut(index) else { return };
        if node.outcome.finished.is_some() {
            return;
        }
        let at = moment(now);
        let mut report = |change| (self.on_event)(&Event { at, node: index, change });
        // Each act changes what is seen, so that it is not asked for twice; the bound only guards against a mistake here.
        for _ in 0..8 {
            let mut changes = None;
            if node.missing == 0 {
                if node.outcome.started.is_none() {
                    node.outcome.started = Some(at);
                    node.observed = unseen(node.observed.deadline, &node.wanted, Some(PredecessorState::Proven));
                    report(Change::Started);
                }
                let (state, next) = node.application.show(&node.wanted, node.observed.progress.sync_requested, now);
                node.observed.application = Some(state);
                node.observed.progress = remember(&node.wanted, &node.observed, now);
                changes = next;
            }
            match decide(&node.wanted, &node.observed, now) {
                Decision::Wait(wait) => {
                    let act = wait.on.act();
                    match act {
                        Some(Act::RequestSync { attempt }) => {
                            node.application.ask_sync();
                            node.observed.progress.sync_requested = Some(SyncRequested { attempt, at: now });
                            report(Change::Syncing);
                        }
                        Some(Act::RequestRefresh | Act::RequestHardRefresh) => node.application.ask_refresh(now),
                        _ if node.waiting.as_ref() != Some(&wait.on) => {
                            report(Change::WaitingFor(wait.on.to_string()));
                            node.waiting = Some(wait.on);
                        }
                        _ => {}
                    }
                    if act.is_some() {
                        continue;
                    }
                    // A node that waits for others is looked at when they are done.
                    if node.missing == 0 {
                        let next = changes.map_or(wait.until, |change| change.min(wait.until));
                        self.wake.push(Reverse((next, index)));
                    }
                    return;
                }
                // The gate proves, and removes nothing.
                Decision::Proven(_) | Decision::Gone(_) => {
                    report(Change::Proven);
                    node.end(NodeState::Proven, at);
                    return self.release(index);
                }
                Decision::Failed(failure) => {
                    let (change, state) = match (failure.why, node.blocked_by) {
                        (Why::Blocked { .. }, Some(by)) => (Change::Blocked(by), NodeState::Blocked { by }),
                        (why, _) => (Change::Failed(why.to_string()), NodeState::Failed { why: why.to_string() }),
                    };
                    report(change);
                    node.end(state, at);
                    return self.block(index);
                }
            }
        }
    }

    /// A proven node frees its successors.
    fn release(&mut self, index: usize) {
        for successor in self.successors.get(index).into_iter().flatten() {
            if let Some(node) = self.nodes.get_mut(*successor) {
                node.missing = node.missing.saturating_sub(1);
                if node.missing == 0 {
                    self.ready.push_back(*successor);
                }
            }
        }
    }

    /// A failed or blocked node stops its successors; none of them can have started (INV-4).
    fn block(&mut self, index: usize) {
        let Some(failed) = self.nodes.get(index).map(|node| node.wanted.node.clone()) else { return };
        for successor in self.successors.get(index).into_iter().flatten() {
            if let Some(node) = self.nodes.get_mut(*successor)
                && node.blocked_by.is_none()
            {
                node.blocked_by = Some(index);
                node.observed.predecessors.insert(failed.clone(), PredecessorState::Failed);
                self.ready.push_back(*successor);
            }
        }
    }
}

fn moment(time: Timestamp) -> Moment {
    Moment(u64::try_from(time.as_millisecond()).unwrap_or(0))
}
