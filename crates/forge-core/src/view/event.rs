//! What happened in a run, one event per line: told from the record alone, so that who looks seldom misses nothing, and who
//! remembers what was told never tells it twice.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;

use crate::gate::{Decision, WaitingFor};
use crate::name::NodeId;
use crate::run::{Entry, Phase, Record, RunAction, RunPlan};
use crate::view::{between, shown};

/// Something that happened to a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub at: Timestamp,
    /// To which node.
    pub node: NodeId,
    /// What.
    pub what: Happened,
    /// More about it, cleaned: how long it took, why it failed.
    pub detail: String,
}

/// What can happen to a node. Together with the node it names an event: what can happen again is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Happened {
    /// All that it waits for is proven.
    Started,
    /// A sync was asked for.
    Syncing(u32),
    /// It failed and is tried again.
    Retrying(u32),
    /// Synced; everything that must hold is awaited.
    Proving,
    /// Its deletion was asked for.
    Deleting,
    /// It is proven, after so many proofs that did not hold.
    Proven(u32),
    /// Its proof did not hold: the first one, the second.
    Withdrawn(u32),
    /// It is gone.
    Gone,
    /// It failed.
    Failed,
    /// A node before it failed.
    Blocked,
}

impl fmt::Display for Happened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Started => "started",
            Self::Syncing(1) => "syncing",
            Self::Syncing(attempt) => return write!(f, "syncing, attempt {attempt}"),
            Self::Retrying(attempt) => return write!(f, "sync {attempt} failed, tried again"),
            Self::Proving => "proving",
            Self::Deleting => "deleting",
            Self::Proven(0) => "proven",
            Self::Proven(_) => "proven again",
            Self::Withdrawn(_) => "proof withdrawn",
            Self::Gone => "gone",
            Self::Failed => "failed",
            Self::Blocked => "blocked",
        })
    }
}

/// Everything that the record tells, in the order in which it happened.
pub fn events(plan: &RunPlan, record: &Record) -> Vec<Event> {
    let mut events = Vec::new();
    let mut stopped: BTreeMap<NodeId, Timestamp> = BTreeMap::new();
    for view in record.view(plan) {
        let entry = record.entries.get(&view.node);
        let mut tell = |at: Timestamp, what: Happened, detail: String| {
            events.push(Event { at, node: view.node.clone(), what, detail });
        };
        // Argo Workflows may ask for a node before its predecessors are proven; it has not started then.
        let began = entry.and_then(Entry::began);
        if let Some(at) = began
            && !matches!(view.phase, Phase::Waiting | Phase::Blocked)
        {
            tell(at, Happened::Started, String::new());
        }
        if matches!(view.phase, Phase::Failed | Phase::Blocked) {
            // Where nothing was written about the node itself, it is blocked since the one before it is.
            let before = view.waits_for.iter().filter_map(|before| stopped.get(before)).min();
            let at = entry.filter(|entry| entry.is_final()).map(|entry| entry.since).or(before.copied());
            stopped.insert(view.node.clone(), at.unwrap_or(record.header.started));
        }
        if view.phase == Phase::Blocked {
            let at = stopped.get(&view.node).copied().unwrap_or(record.header.started);
            tell(at, Happened::Blocked, blocked_by(&view.detail));
            continue;
        }
        let Some(entry) = entry else { continue };
        for asked in &entry.asked {
            let what = match plan.action {
                RunAction::Deploy => Happened::Syncing(asked.attempt),
                RunAction::Teardown => Happened::Deleting,
            };
            tell(asked.at, what, String::new());
        }
        if let Some(withdrawn) = entry.withdrawn {
            tell(withdrawn.at, Happened::Withdrawn(withdrawn.times), "it did not stay Healthy".to_owned());
        }
        match &entry.decision {
            Decision::Wait(wait) => {
                if let WaitingFor::Backoff { attempt, message } = &wait.on {
                    tell(entry.since, Happened::Retrying(*attempt), shown(message));
                } else if view.phase == Phase::Proving && entry.progress.sync_requested.is_some() {
                    tell(
                        entry.progress.operation_finished_seen_at.unwrap_or(entry.since),
                        Happened::Proving,
                        String::new(),
                    );
                }
            }
            Decision::Proven(_) | Decision::Gone(_) => {
                let took = began.map(|from| format!("after {}", between(from, entry.since)));
                let mut detail = took.unwrap_or_default();
                if !view.detail.is_empty() {
                    detail = format!("{detail} ({})", view.detail).trim_start().to_owned();
                }
                let proven = Happened::Proven(entry.withdrawals());
                let what = if view.phase == Phase::Gone { Happened::Gone } else { proven };
                tell(entry.since, what, detail);
            }
            Decision::Failed(_) => tell(entry.since, Happened::Failed, shown(&view.detail)),
        }
    }
    // Stable, so that what happened in one moment stays in the order of the plan.
    events.sort_by_key(|event| event.at);
    events
}

/// `blocked by x, which failed` without the word that the event says already.
fn blocked_by(detail: &str) -> String {
    shown(detail.strip_prefix("blocked ").unwrap_or(detail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{Withdrawn, not_looked_at};
    use crate::view::sample;

    #[test]
    fn a_proof_that_did_not_hold_is_told_and_so_is_the_next_one() {
        let run = sample::all_proven("r-1", 0);
        let node: NodeId = "a/one".parse().unwrap();
        let told = |record: &Record| -> Vec<(Happened, String)> {
            let of = events(&run.plan, record).into_iter().filter(|event| event.node == node);
            let line = |e: &Event| format!("{} {} {}", e.at.strftime("%H:%M:%S"), e.what, e.detail);
            of.map(|event| (event.what, line(&event).trim_end().to_owned())).collect()
        };
        let mut record = run.record.clone();
        let first = told(&record).pop().unwrap();
        assert_eq!(first.1, "10:00:10 proven after 10s");
        let entry = record.entries.get_mut(&node).unwrap();
        let proof = std::mem::replace(&mut entry.decision, not_looked_at(sample::at(600)));
        entry.withdrawn = Some(Withdrawn { times: 1, at: sample::at(60) });
        entry.since = sample::at(61);
        let texts: Vec<String> = told(&record).into_iter().map(|(_, text)| text).collect();
        assert_eq!(
            texts,
            [
                "10:00:00 started",
                "10:00:00 syncing",
                "10:01:00 proof withdrawn it did not stay Healthy",
                "10:01:01 proving"
            ]
        );
        let entry = record.entries.get_mut(&node).unwrap();
        (entry.decision, entry.since) = (proof, sample::at(80));
        let second = told(&record).pop().unwrap();
        assert_eq!(second.1, "10:01:20 proven again after 1m20s");
        assert_ne!(second.0, first.0, "who was told of the first is told of the second");
    }

    #[test]
    fn a_record_tells_everything_that_happened_in_order() {
        let run = sample::stored("r-1", 0);
        let told: Vec<String> = events(&run.plan, &run.record)
            .iter()
            .map(|e| format!("{} {} {} {}", e.at.strftime("%H:%M:%S"), e.node, e.what, e.detail).trim_end().to_owned())
            .collect();
        assert_eq!(
            told,
            [
                "10:00:01 a/one started",
                "10:00:01 argocd/proxy started",
                "10:00:02 a/one syncing",
                "10:00:02 argocd/proxy syncing",
                "10:00:13 a/one proven after 12s",
                "10:00:14 a/two started",
                "10:00:15 a/two syncing",
                "10:00:20 a/two syncing, attempt 2",
                "10:01:00 a/two failed health stayed Degraded",
                "10:01:01 b/one blocked by `a/two`, which failed",
            ]
        );
    }
}
