//! Tells of a run while it lasts: every event once, as a line of the log; every node that has ended, as a span; where every
//! node stands, as a figure.

use std::collections::BTreeSet;

use forge_core::executor::Level;
use forge_core::gate::Decision;
use forge_core::name::NodeId;
use forge_core::run::{Record, RunPlan};
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
        let level = match event.what {
            Happened::Failed => Level::Error,
            Happened::Retrying(_) | Happened::Blocked => Level::Warn,
            Happened::Started | Happened::Proven | Happened::Gone => Level::Info,
            Happened::Syncing(_) | Happened::Proving | Happened::Deleting => Level::Debug,
        };
        let message = format!("{} {}", event.what, event.detail);
        self.session.log_at(event.at, level, self.phase, event.node.as_str(), message.trim_end());
        let status = match event.what {
            Happened::Proven | Happened::Gone => SpanStatus::Done,
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
            id: parent.below(event.node.as_str()),
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
