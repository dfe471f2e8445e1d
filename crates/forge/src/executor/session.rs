//! One time that the executor works: whatever happens is told by logs, figures and spans from here, so that they agree.

use std::io;
use std::sync::Arc;

use forge_core::code::Class;
use forge_core::executor::{Action, Inputs, Level};
use forge_core::exit::Exit;
use forge_core::failure::Failure;
use forge_core::trace::{Span, SpanId, SpanStatus, TraceId};
use jiff::Timestamp;

use super::Stopped;
use crate::interrupt::Interrupts;
use crate::logs::Logs;
use crate::metrics::{Metrics, Status};
use crate::telemetry::Traces;

/// The whole of it, where a phase is asked for.
pub(super) const ALL: &str = "all";
/// Reading the repository.
pub(super) const READ: &str = "read";
/// Phase 0 (SPEC.md section 4).
pub(super) const PRE_BOOTSTRAP: &str = "pre-bootstrap";
/// Phase 1.
pub(super) const BOOTSTRAP: &str = "bootstrap";
/// Phase 2.
pub(super) const ORCHESTRATION: &str = "orchestration";
/// Phase 4.
pub(super) const TEARDOWN: &str = "teardown";
/// Looking at everything, and saying what is true.
pub(super) const VALIDATION: &str = "validation";

/// How it all ended, in words.
pub(super) struct Ending<'e> {
    /// The run; empty where there was none.
    pub(super) run: &'e str,
    pub(super) verdict: &'e str,
    pub(super) summary: &'e str,
    /// What is said beyond that.
    pub(super) message: Option<&'e str>,
}

/// One time that the executor works.
pub(super) struct Session {
    action: Action,
    environment: String,
    logs: Logs,
    metrics: Arc<Metrics>,
    root: SpanId,
}

impl Session {
    pub(super) fn new(
        action: Action,
        inputs: &Inputs,
        (trace, root): (TraceId, SpanId),
        metrics: Arc<Metrics>,
    ) -> Self {
        let wanted = (inputs.log_level, inputs.log_format);
        let logs = Logs::new(wanted, action, (trace, root.clone()), Box::new(io::stderr()));
        Self { action, environment: inputs.environment.to_string(), logs, metrics, root }
    }

    pub(super) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    pub(super) fn log(&self, level: Level, phase: &str, component: &str, message: &str) {
        self.logs.log(level, phase, component, message);
    }

    pub(super) fn log_at(&self, at: Timestamp, level: Level, phase: &str, component: &str, message: &str) {
        self.logs.log_at(at, level, phase, component, message);
    }

    /// Something that went wrong, with all that is known of it. Counted once.
    pub(super) fn failure(&self, failure: &Failure) {
        const MOST: usize = 50;
        for finding in failure.findings.iter().take(MOST) {
            let fix = finding.fix.as_ref().map(|fix| format!("; fix: {fix}")).unwrap_or_default();
            let (code, message) = (finding.code, &finding.message);
            self.log(Level::Error, ALL, &finding.place.to_string(), &format!("{code} {message}{fix}"));
        }
        self.failed(failure);
    }

    /// The same where what was found is told already.
    pub(super) fn failed(&self, failure: &Failure) {
        let hint = failure.hint.as_ref().map(|hint| format!("; hint: {hint}")).unwrap_or_default();
        self.log(Level::Error, ALL, "", &format!("{} {}{hint}", failure.code, failure.message));
        self.metrics.error(failure.code.class());
    }

    /// A node failed.
    pub(super) fn node_failed(&self, class: Class) {
        self.metrics.error(class);
    }

    /// The span of a phase.
    pub(super) fn span(&self, phase: &str) -> SpanId {
        self.root.below(phase)
    }

    /// Does the work of a phase and tells of it. Where it is told to stop, the work is dropped, unless it listens itself.
    pub(super) async fn phase<T>(
        &self,
        traces: &Traces,
        phase: &'static str,
        interrupts: Option<&mut Interrupts>,
        work: impl Future<Output = Result<T, Stopped>>,
    ) -> Result<T, Stopped> {
        let started = Timestamp::now();
        self.log(Level::Debug, phase, "", "begins");
        self.metrics.status(self.action.as_str(), phase, Status::Running);
        let heard = async {
            match interrupts {
                Some(interrupts) => interrupts.heard().await,
                None => std::future::pending::<()>().await,
            }
        };
        let done = tokio::select! {
            done = work => done,
            () = heard => Err(Stopped::Interrupted),
        };
        let (status, told) = match &done {
            Ok(_) => (Status::Done, SpanStatus::Done),
            Err(Stopped::Interrupted) => (Status::Cancelled, SpanStatus::Unfinished),
            Err(Stopped::Failed(failure) | Stopped::Unready(failure)) => {
                (Status::Failed, SpanStatus::Failed(failure.message.clone()))
            }
        };
        self.over(traces, phase, started, status, told);
        done
    }

    fn over(&self, traces: &Traces, phase: &'static str, started: Timestamp, status: Status, told: SpanStatus) {
        let ended = Timestamp::now();
        self.metrics.status(self.action.as_str(), phase, status);
        self.took(phase, started, ended);
        self.log(Level::Debug, phase, "", "ended");
        traces.tell(Span {
            id: self.span(phase),
            parent: Some(self.root.clone()),
            name: phase.to_owned(),
            started,
            ended,
            attributes: vec![("forge.action", self.action.as_str().to_owned()), ("forge.phase", phase.to_owned())],
            status: told,
        });
    }

    /// How long something took.
    pub(super) fn took(&self, phase: &str, started: Timestamp, ended: Timestamp) {
        self.metrics.took(self.action.as_str(), phase, ended.duration_since(started).as_secs_f64());
    }

    /// Everything is over.
    pub(super) fn ended(
        &self,
        traces: &Traces,
        parent: Option<SpanId>,
        started: Timestamp,
        ending: &Ending<'_>,
        exit: Exit,
    ) {
        let (status, told) = match ending.verdict {
            _ if exit == Exit::Done => (Status::Done, SpanStatus::Done),
            "cancelled" => (Status::Cancelled, SpanStatus::Unfinished),
            _ => {
                let why = ending.message.unwrap_or(ending.summary).to_owned();
                (Status::Failed, SpanStatus::Failed(why))
            }
        };
        let ended = Timestamp::now();
        self.metrics.status(self.action.as_str(), ALL, status);
        self.took(ALL, started, ended);
        traces.tell(Span {
            id: self.root.clone(),
            parent,
            name: format!("{} {}", self.action.as_str(), self.environment),
            started,
            ended,
            attributes: vec![
                ("forge.action", self.action.as_str().to_owned()),
                ("forge.environment", self.environment.clone()),
                ("forge.run", ending.run.to_owned()),
                ("forge.verdict", ending.verdict.to_owned()),
            ],
            status: told,
        });
    }
}
