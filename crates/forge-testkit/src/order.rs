//! Whether a run kept the order of the graph, judged from outside: by what the API server wrote into its audit log and by
//! the readiness of pods, never by what Forge says about itself.
//!
//! # What it proves
//! No Application was asked to sync (or, where that request is not known, was written to) at a moment that lies *certainly
//! before* each of its direct predecessors was done. Done means: everything that Argo CD wrote for the predecessor in the
//! window was written, and every workload among it had a ready pod (or condition, or completion) at least once after that.
//!
//! # Why it reports nothing that did not happen
//! Every fact is a [`Moment`]: an interval that contains the true time. A line of the audit log lies between the arrival
//! of its request and its answer (microseconds); a condition's transition lies within the second that it names. Something
//! is a violation only if the whole interval of the start ends before the interval of the other begins, so rounding can
//! hide a violation of up to a second but never make one. A workload that was ready and is not any more counts as having been
//! ready: whoever loses its predecessor afterwards has started rightly.
//!
//! # What it does not prove
//! - That a predecessor was still ready when a node started, or that health checks beyond readiness (`health`, `requires`)
//!   held, unless the caller adds those as workloads.
//! - Anything about objects without a namespace: the log does not say whose they are. The namespace of a node counts as its.
//! - Anything about a node that was deployed twice in the window: the window must cover one run, and nobody may delete what
//!   Argo CD then makes again.

mod evidence;
mod removal;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::{SignedDuration, Timestamp};

pub use evidence::{Line, Transition, facts, requests, transitions};
pub use removal::{removals_judged, removed_too_early};

/// When something happened: at some time from `earliest` to `latest`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Not before.
    pub earliest: Timestamp,
    /// Not after.
    pub latest: Timestamp,
}

impl Moment {
    /// Between two times that are known.
    pub fn between(earliest: Timestamp, latest: Timestamp) -> Self {
        Self { earliest, latest }
    }

    /// Within the second that a time of Kubernetes names: it is cut off, not rounded.
    pub fn within_second(second: Timestamp) -> Self {
        let latest = second.saturating_add(SignedDuration::from_micros(999_999)).unwrap_or(Timestamp::MAX);
        Self { earliest: second, latest }
    }

    /// Whether this was over before the other began, whatever the true times were.
    pub fn is_certainly_before(&self, other: &Self) -> bool {
        self.latest < other.earliest
    }
}

/// An object that Argo CD wrote for a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// `deployments/name`.
    pub name: String,
    /// When it was first written in the window.
    pub written: Moment,
    /// When it became ready, each time; `None` for what is ready by being there.
    pub ready: Option<Vec<Moment>>,
}

/// What is known of a node in the window.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// When its first sync was asked for, whatever came of it, or its first object written if that is not known; `None` if
    /// it was left alone.
    pub started: Option<Moment>,
    /// What was written for it.
    pub workloads: Vec<Workload>,
}

impl NodeFacts {
    /// Something was written for it.
    pub fn is_deployed(&self) -> bool {
        !self.workloads.is_empty()
    }
}

/// All that is known of a window.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// What each node waits for directly.
    pub predecessors: BTreeMap<String, BTreeSet<String>>,
    /// What is known of each node.
    pub nodes: BTreeMap<String, NodeFacts>,
    /// True if nothing was deployed when the window began: then a predecessor that was left alone is a violation too.
    /// Otherwise such a predecessor had nothing to change.
    pub fresh: bool,
}

/// A node that started too early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The node.
    pub node: String,
    /// When it started.
    pub started: Moment,
    /// What it should have waited for.
    pub predecessor: String,
    /// What was not so yet.
    pub why: Why,
}

/// What was not so yet when a node started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// The predecessor was not deployed at all.
    NeverDeployed,
    /// An object of the predecessor was written later.
    Written {
        /// Which.
        workload: String,
        /// When.
        at: Moment,
    },
    /// A workload of the predecessor became ready later, or never.
    Ready {
        /// Which.
        workload: String,
        /// When first.
        at: Option<Moment>,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, started, predecessor, why } = self;
        write!(f, "`{node}` started at {} before `{predecessor}`", started.latest)?;
        match why {
            Why::NeverDeployed => write!(f, " was deployed at all"),
            Why::Written { workload, at } => write!(f, " had its {workload}, written at {}", at.earliest),
            Why::Ready { workload, at: Some(at) } => write!(f, " was ready: {workload} at {}", at.earliest),
            Why::Ready { workload, at: None } => write!(f, " was ready: {workload} never was"),
        }
    }
}

/// Every edge that was certainly broken, sorted by node and predecessor.
pub fn violations(facts: &Facts) -> Vec<Violation> {
    let mut found = Vec::new();
    for (node, predecessors) in &facts.predecessors {
        let Some(started) = facts.nodes.get(node).and_then(|node| node.started) else { continue };
        for predecessor in predecessors {
            let known = facts.nodes.get(predecessor).filter(|known| known.is_deployed());
            let why = match known {
                None => facts.fresh.then_some(Why::NeverDeployed),
                Some(known) => known.workloads.iter().find_map(|workload| undone(workload, &started)),
            };
            let violation = |why| Violation { node: node.clone(), started, predecessor: predecessor.clone(), why };
            found.extend(why.map(violation));
        }
    }
    found
}

/// Why a workload was certainly not done at the start of another node.
fn undone(workload: &Workload, started: &Moment) -> Option<Why> {
    let name = || workload.name.clone();
    if started.is_certainly_before(&workload.written) {
        return Some(Why::Written { workload: name(), at: workload.written });
    }
    let moments = workload.ready.as_ref()?;
    // Readiness from before the write was that of something else.
    let after: Vec<&Moment> = moments.iter().filter(|at| !at.is_certainly_before(&workload.written)).collect();
    if after.iter().any(|at| !started.is_certainly_before(at)) {
        return None;
    }
    let first = after.into_iter().min_by_key(|at| at.earliest);
    Some(Why::Ready { workload: name(), at: first.copied() })
}

/// How many edges the facts say something about: both ends were deployed in the window. A check that looked at nothing
/// proves nothing, so tests compare this with what they expect.
pub fn edges_judged(facts: &Facts) -> usize {
    let deployed = |node: &str| facts.nodes.get(node).is_some_and(NodeFacts::is_deployed);
    let pairs = facts.predecessors.iter().filter(|(node, _)| deployed(node));
    pairs.map(|(_, before)| before.iter().filter(|node| deployed(node)).count()).sum()
}

#[cfg(test)]
mod tests;
