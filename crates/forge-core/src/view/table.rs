//! A run while it lasts: how many nodes are where, what runs and what it waits for, and how far it is.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::duration::Duration;
use crate::gate::Wanted;
use crate::name::NodeId;
use crate::run::{Entry, Phase, Record, RunPlan};
use crate::view::{between, shown};

/// A run at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// How many nodes are in each phase, in the order of [`Phase::ALL`].
    pub counts: BTreeMap<Phase, usize>,
    /// How many there are.
    pub nodes: usize,
    /// What is on its way, in the order of the plan.
    pub running: Vec<Running>,
    /// What has not begun and what it waits for, that which waits for least first.
    pub waiting: Vec<(NodeId, Vec<NodeId>)>,
    /// How long the run has taken.
    pub elapsed: Duration,
    /// How long it will take in all if its nodes take as long as they did last time, or as those that it has proven so far.
    pub predicted: Option<Duration>,
    /// Nodes of the chain that may take longest: those that are done, and all.
    pub critical: (usize, usize),
}

/// A node on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// The node.
    pub node: NodeId,
    /// Where it stands.
    pub phase: Phase,
    /// What it waits for.
    pub on: String,
    /// For how long it has been on its way.
    pub took: Duration,
}

impl Table {
    /// The run at a moment. `predicted` is what [`predicted`] said when it began; where that was nothing, what it did so far tells.
    pub fn new(plan: &RunPlan, record: &Record, now: Timestamp, predicted: Option<Duration>) -> Self {
        let views = record.view(plan);
        let mut counts: BTreeMap<Phase, usize> = BTreeMap::new();
        let mut running = Vec::new();
        for view in &views {
            *counts.entry(view.phase).or_default() += 1;
            if matches!(view.phase, Phase::Starting | Phase::Syncing | Phase::Proving | Phase::Deleting) {
                let entry = record.entries.get(&view.node);
                let from = entry.and_then(Entry::began).or(view.since);
                let on = if view.detail.is_empty() { view.phase.as_str().to_owned() } else { shown(&view.detail) };
                running.push(Running {
                    node: view.node.clone(),
                    phase: view.phase,
                    on,
                    took: from.map_or(Duration::ZERO, |from| between(from, now)),
                });
            }
        }
        let waits = views.iter().filter(|view| view.phase == Phase::Waiting);
        let mut waiting: Vec<_> = waits.map(|view| (view.node.clone(), view.waits_for.clone())).collect();
        waiting.sort_by_key(|(_, open)| open.len());
        let wanted = plan.wanted();
        let budget = |wanted: &Wanted| wanted.timeouts.sync + wanted.timeouts.health;
        let path = longest(&wanted, budget).0;
        let done = |node: &&NodeId| views.iter().any(|view| view.node == **node && view.phase.is_done());
        let until = record.header.ended.as_ref().map_or(now, |ended| ended.at);
        Self {
            counts,
            nodes: views.len(),
            running,
            waiting,
            elapsed: between(record.header.started, until),
            predicted: predicted.or_else(|| extrapolated(plan, record, until)),
            critical: (path.iter().filter(done).count(), path.len()),
        }
    }

    /// How many nodes are in a phase.
    pub fn count(&self, phase: Phase) -> usize {
        self.counts.get(&phase).copied().unwrap_or(0)
    }
}

/// How long a run of this plan takes if its nodes take as long as they did when they were last synced, by earlier runs
/// with the newest first: the longest chain of those times. What was found proven takes no time, in this run as in
/// those, so such times say nothing about a sync. A node that is new takes as long as the middle one of the others;
/// where half of them are new nothing is predicted.
pub fn predicted(plan: &RunPlan, earlier: &[&Record]) -> Option<Duration> {
    let took = |node: &NodeId| earlier.iter().find_map(|record| sync_took(record, node));
    let known = times(plan, took);
    let open = plan.nodes().filter(|node| !plan.passed.contains(&node.id)).count();
    if known.len() * 2 < open {
        return None;
    }
    let middle = middle(known)?;
    Some(chain(plan, |node| took(node).unwrap_or(middle)))
}

/// The same for a run that has no earlier one to go by: from what it has proven so far, so it is a guess that gets better. What has
/// ended took what it took. What is open takes as long as the middle one of those that were synced, and what is on its way at least
/// as long as it has taken already.
fn extrapolated(plan: &RunPlan, record: &Record, now: Timestamp) -> Option<Duration> {
    let known = times(plan, |node| sync_took(record, node));
    if known.len() < FEW {
        return None;
    }
    let middle = middle(known)?;
    let time = |node: &NodeId| {
        let entry = record.entries.get(node);
        let until = |to| entry.and_then(Entry::began).map_or(Duration::ZERO, |from| between(from, to));
        entry.filter(|entry| entry.is_final()).map_or_else(|| until(now).max(middle), |entry| until(entry.since))
    };
    Some(chain(plan, time))
}

/// Of so many nodes times must be known before anything is said of the others.
const FEW: usize = 3;

/// What is known of the times of nodes that this run has to sync.
fn times(plan: &RunPlan, took: impl Fn(&NodeId) -> Option<Duration>) -> Vec<Duration> {
    let open = plan.nodes().filter(|node| !plan.passed.contains(&node.id));
    open.filter_map(|node| took(&node.id)).collect()
}

fn middle(mut times: Vec<Duration>) -> Option<Duration> {
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}

/// The longest chain of these times; what passed before the run takes none.
fn chain(plan: &RunPlan, time: impl Fn(&NodeId) -> Duration) -> Duration {
    let of = |wanted: &Wanted| if plan.passed.contains(&wanted.node) { Duration::ZERO } else { time(&wanted.node) };
    longest(&plan.wanted(), of).1
}

/// How long a node took in a run that synced and proved it.
fn sync_took(record: &Record, node: &NodeId) -> Option<Duration> {
    let entry = record.entries.get(node).filter(|entry| entry.receipt().is_some_and(|receipt| receipt.synced))?;
    Some(between(entry.began()?, entry.since))
}

/// The chain with the largest sum, and the sum. Of equals the one that comes first in the plan.
fn longest(wanted: &[Wanted], length: impl Fn(&Wanted) -> Duration) -> (Vec<NodeId>, Duration) {
    let mut best: BTreeMap<&NodeId, (Duration, Option<&NodeId>)> = BTreeMap::new();
    let mut last: Option<(Duration, &NodeId)> = None;
    for node in wanted {
        let mut before: Option<(Duration, &NodeId)> = None;
        for predecessor in &node.predecessors {
            // The key of the map lives as long as the nodes do, the predecessor's own text does too.
            if let Some((sum, _)) = best.get(predecessor)
                && before.is_none_or(|(longest, _)| *sum > longest)
            {
                before = Some((*sum, predecessor));
            }
        }
        let sum = before.map_or(Duration::ZERO, |(sum, _)| sum) + length(node);
        best.insert(&node.node, (sum, before.map(|(_, node)| node)));
        if last.is_none_or(|(longest, _)| sum > longest) {
            last = Some((sum, &node.node));
        }
    }
    let total = last.map_or(Duration::ZERO, |(sum, _)| sum);
    let mut path = Vec::new();
    let mut at = last.map(|(_, node)| node);
    while let Some(node) = at {
        path.push(node.clone());
        at = best.get(node).and_then(|(_, before)| *before);
    }
    path.reverse();
    (path, total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::Decision;
    use crate::view::sample;

    #[test]
    fn a_table_counts_phases_and_names_what_runs_and_for_how_long() {
        let run = sample::stored("r-1", 0);
        let table = Table::new(&run.plan, &run.record, sample::at(92), None);
        let counts: Vec<usize> = Phase::ALL.iter().map(|phase| table.count(*phase)).collect();
        assert_eq!(counts, [1, 0, 1, 0, 0, 1, 0, 1, 1, 0]);
        assert_eq!(table.elapsed.to_string(), "1m32s");
        assert_eq!(table.critical, (1, 3));
        let [proxy] = table.running.as_slice() else { panic!("{table:?}") };
        assert_eq!((proxy.node.as_str(), proxy.took.seconds()), ("argocd/proxy", 91));
        assert!(!proxy.on.contains('\u{1b}'));
    }

    #[test]
    fn a_prediction_is_the_longest_chain_of_what_nodes_took_last_time() {
        let plan = sample::stored("r-2", 0).plan;
        let earlier = sample::all_proven("r-1", 0).record;
        // a/one, a/two and b/one one after the other, ten seconds each.
        assert_eq!(predicted(&plan, &[&earlier]).unwrap().seconds(), 30);
        let mut fewer = earlier.clone();
        for node in ["a/one", "a/two", "b/one"] {
            fewer.entries.remove(&node.parse().unwrap());
        }
        assert_eq!(predicted(&plan, &[&fewer]), None);
        assert_eq!(predicted(&plan, &[]), None);
    }

    #[test]
    fn a_node_that_passed_unchanged_is_predicted_by_the_run_that_last_synced_it() {
        let mut plan = sample::stored("r-3", 0).plan;
        let older = sample::all_proven("r-1", 0).record;
        let mut newer = sample::all_proven("r-2", 500).record;
        for node in ["a/one", "a/two"] {
            let entry = newer.entries.get_mut(&node.parse().unwrap()).unwrap();
            entry.since = entry.progress.ready_at.unwrap();
            let Decision::Proven(receipt) = &mut entry.decision else { panic!("{node} is not proven") };
            receipt.synced = false;
        }
        assert_eq!(predicted(&plan, &[&newer, &older]).unwrap().seconds(), 30);
        // What is found proven before this run begins takes no time in it.
        plan.passed = ["a/one".parse().unwrap(), "a/two".parse().unwrap()].into();
        assert_eq!(predicted(&plan, &[&newer, &older]).unwrap().seconds(), 20);
    }

    #[test]
    fn a_first_run_is_guessed_from_what_it_has_proven_and_never_less_than_what_goes_on_has_taken() {
        let mut run = sample::all_proven("r-1", 0);
        run.record.header.ended = None;
        let began = run.record.entries[&"b/one".parse().unwrap()].began().unwrap();
        let open = run.record.entries.get_mut(&"b/one".parse().unwrap()).unwrap();
        open.decision = sample::stored("r-1", 0).record.entries[&"argocd/proxy".parse().unwrap()].decision.clone();
        let after = |seconds| began.checked_add(jiff::SignedDuration::from_secs(seconds)).unwrap();
        let guess = |seconds| Table::new(&run.plan, &run.record, after(seconds), None).predicted.unwrap().seconds();
        // The three others took ten seconds each, and so will b/one, or longer.
        assert_eq!((guess(1), guess(25)), (30, 45));
        run.record.entries.remove(&"b/two".parse().unwrap());
        assert_eq!(Table::new(&run.plan, &run.record, after(1), None).predicted, None, "two are too few");
    }

    #[test]
    fn a_run_that_has_ended_stops_counting() {
        let run = sample::all_proven("r-1", 0);
        let table = Table::new(&run.plan, &run.record, sample::at(100_000), None);
        assert_eq!(table.elapsed.seconds(), 40);
        assert!(table.running.is_empty());
    }
}
