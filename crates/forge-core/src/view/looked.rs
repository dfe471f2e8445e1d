//! What looking came to where no run follows, because nothing is left to do or because nothing may be written. Told as
//! a report, so that a program that asks for one gets one however `deploy` ends.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::exit::Exit;
use crate::gate::{Decision, Progress};
use crate::name::NodeId;
use crate::run::{Ended, Entry, Header, Record, RunPlan, Verdict};
use crate::view::report::{DRY_RUN, summary};
use crate::view::{RunReport, shown};

/// Nodes that were looked at and not touched.
pub struct LookedAt<'l> {
    /// The run as it would be.
    pub plan: &'l RunPlan,
    /// The last answer of the gate about each node, as if its predecessors were proven.
    pub decisions: &'l BTreeMap<NodeId, Decision>,
    /// Nodes that are proven, and all that they wait for too.
    pub passed: BTreeSet<NodeId>,
}

impl LookedAt<'_> {
    /// What a run would do with a node, in words.
    pub fn outlook(&self, node: &NodeId) -> String {
        match self.decisions.get(node) {
            _ if self.passed.contains(node) => "proven; passes without a sync".to_owned(),
            Some(Decision::Proven(_)) => "unchanged; proven again after what it waits for".to_owned(),
            Some(Decision::Gone(_)) => "gone already".to_owned(),
            Some(Decision::Wait(wait)) => wait.on.to_string(),
            Some(Decision::Failed(failure)) => format!("would fail: {}", failure.why),
            None => "not looked at".to_owned(),
        }
    }

    /// The report where nothing is left to do.
    pub fn done(&self, now: Timestamp) -> RunReport {
        let mut record = self.record(now);
        let message = Some("every node is proven already; nothing to do, and nothing was written".to_owned());
        record.header.ended = Some(Ended { at: now, verdict: Verdict::Done, message });
        RunReport::new(self.plan, &record, now)
    }

    /// The report where nothing may be written. No verdict on the nodes: `dry run` is what came of it.
    pub fn dry_run(&self, now: Timestamp) -> RunReport {
        let mut report = RunReport::new(self.plan, &self.record(now), now);
        for (component, node) in report.components.iter_mut().zip(self.plan.nodes()) {
            component.detail = shown(&self.outlook(&node.id));
        }
        RunReport {
            summary: summary(self.plan.action, DRY_RUN, &report.statistics),
            verdict: DRY_RUN.to_owned(),
            exit: Some(Exit::Done as u8),
            message: Some("dry run: nothing was written; the nodes are as they were found".to_owned()),
            ended: Some(now),
            ..report
        }
    }

    /// A node that has to be proven again after what it waits for has no entry: it is not proven.
    fn record(&self, now: Timestamp) -> Record {
        let stands = |(node, decision): &(&NodeId, &Decision)| {
            self.passed.contains(*node) || !matches!(decision, Decision::Proven(_))
        };
        let entry = |(node, decision): (&NodeId, &Decision)| Entry {
            node: node.clone(),
            progress: Progress::default(),
            decision: decision.clone(),
            since: now,
            started: None,
            healthy: None,
            asked: Vec::new(),
            withdrawn: None,
            removal: None,
        };
        let entries = self.decisions.iter().filter(stands).map(|found| (found.0.clone(), entry(found)));
        Record { header: Header::new(self.plan, now), entries: entries.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::junit;
    use crate::view::sample;

    fn decisions(record: &Record) -> BTreeMap<NodeId, Decision> {
        record.entries.iter().map(|(node, entry)| (node.clone(), entry.decision.clone())).collect()
    }

    #[test]
    fn where_nothing_is_left_to_do_the_report_is_done_and_every_node_proven() {
        let run = sample::all_proven("r-1", 0);
        let decisions = decisions(&run.record);
        let looked = LookedAt { plan: &run.plan, passed: decisions.keys().cloned().collect(), decisions: &decisions };
        let report = looked.done(sample::at(0));
        assert_eq!((report.verdict.as_str(), report.exit, report.statistics.proven), ("done", Some(0), 5));
        assert!(report.ended.is_some() && report.failures.is_empty());
        let xml = junit(&report);
        assert!(xml.contains("tests=\"5\" failures=\"0\" errors=\"0\" skipped=\"0\""), "{xml}");
        assert!(xml.contains("<system-out>every node is proven already; nothing to do,"), "{xml}");
    }

    #[test]
    fn a_dry_run_says_so_and_calls_nothing_done_or_broken() {
        // `a/two` fails, so `b/one` would have to be proven again; `b/two` was not looked at.
        let run = sample::all_proven("r-1", 0);
        let mut decisions = decisions(&run.record);
        let found = sample::stored("r-1", 0).record;
        for node in ["a/two", "argocd/proxy"] {
            let node: NodeId = node.parse().unwrap();
            decisions.insert(node.clone(), found.entries[&node].decision.clone());
        }
        decisions.remove(&"b/two".parse().unwrap());
        let passed: BTreeSet<NodeId> = ["a/one".parse().unwrap()].into();
        let report = LookedAt { plan: &run.plan, decisions: &decisions, passed }.dry_run(sample::at(0));
        assert_eq!((report.verdict.as_str(), report.exit, report.statistics.proven), ("dry run", Some(0), 1));
        assert!(report.message.as_deref().is_some_and(|message| message.starts_with("dry run: nothing was written")));
        let told: Vec<_> = report.components.iter().map(|c| (c.phase.as_str(), c.detail.as_str())).collect();
        assert_eq!(
            told,
            [
                ("proven", "proven; passes without a sync"),
                ("failed", "would fail: health stayed Degraded"),
                ("blocked", "unchanged; proven again after what it waits for"),
                ("syncing", "sync 1 runs: applying \u{fffd}[2J<b>"),
                ("waiting", "not looked at"),
            ]
        );
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<RunReport>(&text).unwrap(), report);
    }

    #[test]
    fn a_dry_run_in_which_nothing_fails_is_green() {
        let (run, nothing) = (sample::all_proven("r-1", 0), BTreeMap::new());
        let report = LookedAt { plan: &run.plan, decisions: &nothing, passed: BTreeSet::new() }.dry_run(sample::at(0));
        let xml = junit(&report);
        assert!(xml.contains("tests=\"5\" failures=\"0\" errors=\"0\" skipped=\"5\""), "{xml}");
        assert!(xml.contains("<system-out>dry run: nothing was written;"), "{xml}");
    }
}
