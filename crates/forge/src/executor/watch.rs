//! Tells of a run while it lasts: every event once, as a line of the log; every node that has ended, as a span; where every
//! node stands, as a figure.

use std::collections::BTreeSet;

use forge_core::executor::Level;
use forge_core::gate::Decision;
use forge_core::name::NodeId;
use forge_core::run::{Entry, Record, RunPlan};
use forge_core::trace::{Span, SpanStatus};
use forge_core::view::{Event, Happened, events};

use super::session::Session;
use crate::telemetry::Traces;

/// What of a run was told already.
pub(super) struct Watcher<'w> {
    session: &'w Session,
    traces: &'w Traces,
    plan: &'w RunPlan,
    /// The phase that it is a part of.
    phase: &'static str,
    told: BTreeSet<(NodeId, Happened)>,
}

impl<'w> Watcher<'w> {
    pub(super) fn new(session: &'w Session, traces: &'w Traces, plan: &'w RunPlan, phase: &'static str) -> Self {
        Self { session, traces, plan, phase, told: BTreeSet::new() }
    }

    /// Tells what is new.
    pub(super) fn update(&mut self, record: &Record) {
        for view in record.view(self.plan) {
            self.session.metrics().component(view.node.as_str(), view.phase);
        }
        for event in events(self.plan, record) {
            if self.told.insert((event.node.clone(), event.what)) {
                self.tell(&event, record);
            }
        }
    }

    fn tell(&self, event: &Event, record: &Record) {
        let message = format!("{} {}", event.what, event.detail);
        self.session.log_at(event.at, level(event.what), self.phase, event.node.as_str(), message.trim_end());
        let status = match event.what {
            Happened::Proven(_) | Happened::Gone => SpanStatus::Done,
            Happened::Failed => SpanStatus::Failed(event.detail.clone()),
            _ => return,
        };
        let Some(entry) = record.entries.get(&event.node) else { return };
        if let Decision::Failed(failure) = &entry.decision {
            self.session.node_failed(failure.class);
        }
        let started = entry.began().unwrap_or(event.at);
        self.session.took("node", started, event.at);
        let application = self.plan.nodes().find(|node| node.id == event.node).map(|node| node.application.to_string());
        let parent = self.session.span(self.phase);
        self.traces.tell(Span {
            id: parent.below(&span(entry)),
            parent: Some(parent),
            name: event.node.to_string(),
            started,
            ended: event.at,
            attributes: vec![
                ("forge.run", self.plan.run.to_string()),
                ("forge.application", application.unwrap_or_default()),
                ("forge.syncs", entry.asked.len().to_string()),
            ],
            status,
        });
    }
}

fn level(what: Happened) -> Level {
    match what {
        Happened::Failed => Level::Error,
        Happened::Retrying(_) | Happened::Withdrawn(_) | Happened::Blocked => Level::Warn,
        Happened::Started | Happened::Proven(_) | Happened::Gone => Level::Info,
        Happened::Syncing(_) | Happened::Proving | Happened::Deleting => Level::Debug,
    }
}

/// What the span of a node is found by. One whose proof was withdrawn ends once more, and that is a span of its own.
fn span(entry: &Entry) -> String {
    match entry.withdrawals() {
        0 => entry.node.to_string(),
        times => format!("{} {times}", entry.node),
    }
}

#[cfg(test)]
mod tests {
    use forge_core::run::Withdrawn;

    use super::*;

    #[test]
    fn a_proof_that_is_withdrawn_is_a_warning_and_the_next_one_a_span_of_its_own() {
        assert_eq!([Happened::Withdrawn(1), Happened::Proven(1)].map(level), [Level::Warn, Level::Info]);
        let text = r#"{"node": "argocd/db", "since": "2026-11-16T12:00:00Z", "decision":
            {"type": "wait", "on": {"type": "application"}, "until": "2026-11-16T12:09:00Z"}}"#;
        let mut entry: Entry = serde_json::from_str(text).unwrap();
        assert_eq!(span(&entry), "argocd/db");
        entry.withdrawn = Some(Withdrawn { times: 2, at: entry.since });
        assert_eq!(span(&entry), "argocd/db 2");
    }
}
