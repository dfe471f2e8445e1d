//! The gate: one pure function that says whether a node is proven, must wait, or has failed (SPEC section 6).
//!
//! The plugin, the pod runner, `why`, `validate` and the simulation all call [`decide`], so that they cannot disagree.
//! Invariants: a node is never proven while a predecessor is not (INV-1), nor on state older than the refresh that
//! followed the operation; failure is never shown as waiting (INV-4); every wait ends, because its `until` lies ahead and
//! something else is decided there. It must not read a clock, remember anything, or trust a time that Argo CD wrote.

mod aggregate;
mod decision;
mod expression;
mod nonce;
mod observed;
mod proof;
mod receipt;
mod wanted;

use jiff::Timestamp;

pub use aggregate::{NodeHealth, aggregate};
pub use decision::{Act, Decision, Failure, Rendered, Wait, WaitingFor, Why, plugin_code, plugin_says};
pub use expression::{ExprError, MAX_EXPRESSION, compile};
pub use nonce::{Nonce, NonceError, RunId};
pub use observed::{
    ApplicationState, Container, Folder, Freshness, GitContent, Health, LiveObject, Observed, Operation, Phase,
    PredecessorState, Progress, RenderReceipt, SyncRequested, SyncState, Tree, Unwell, Workload, remember,
};
pub use receipt::{Proof, Receipt};
pub use wanted::{ContainerKey, Content, HealthRule, ObjectRef, Retry, Timeouts, Wanted};

use crate::duration::Duration;
use observed::{Owner, owner};
use proof::{After, Unmet};

/// How long an Application that was seen to fall, or whose containers restarted, must stay Healthy.
const SETTLING: Duration = Duration::from_seconds(15);
/// How long a request of ours may go unseen: Argo CD is read again in full within it.
const SHOWN: Duration = Duration::from_seconds(20);

/// What was started again later than this had not settled when its node was proven: whoever proved it had not seen that yet.
pub fn settled_before(proven: Timestamp) -> Timestamp {
    proven.saturating_sub(SETTLING.as_jiff()).unwrap_or(Timestamp::MIN)
}

/// Says of one node: proven, wait, or failed.
pub fn decide(wanted: &Wanted, observed: &Observed, now: Timestamp) -> Decision {
    let mut pending = None;
    for node in &wanted.predecessors {
        match observed.predecessors.get(node) {
            Some(PredecessorState::Failed) => return failed(Why::Blocked { by: node.clone() }),
            Some(PredecessorState::Proven) => {}
            Some(PredecessorState::Waiting) | None => pending = pending.or(Some(node)),
        }
    }
    if now >= observed.deadline {
        return failed(Why::RunTimeout { predecessor: pending.cloned() });
    }
    if let Some(node) = pending {
        let on = WaitingFor::Predecessor { node: node.clone() };
        return Decision::Wait(Wait { on, until: observed.deadline, since: None });
    }
    Gate { wanted, observed, progress: &remember(wanted, observed, now), now }.decide()
}

/// Whether an expression holds of an object: for tests of what others evaluate.
#[cfg(test)]
pub(crate) fn holds(expr: &str, object: &serde_json::Value) -> bool {
    let program = expression::program(expr).unwrap();
    expression::evaluate(&program, object) == expression::Verdict::Holds
}

/// A node whose predecessors are proven, at one moment.
struct Gate<'a> {
    wanted: &'a Wanted,
    observed: &'a Observed,
    progress: &'a Progress,
    now: Timestamp,
}

impl Gate<'_> {
    fn decide(&self) -> Decision {
        let Some(application) = &self.observed.application else {
            let since = self.progress.absent_since.unwrap_or(self.now);
            return self.wait(WaitingFor::Application, since, self.sync(), Why::MissingApplication);
        };
        let request = self.progress.sync_requested;
        match (owner(self.wanted, self.observed), request) {
            (Owner::Foreign(operation), _) if operation.phase.is_running() => self.foreign(),
            (Owner::Ours(operation, attempt), _) => self.ours(application, operation, attempt),
            (Owner::Nobody, Some(SyncRequested { attempt, at })) => {
                let message = self.progress.refused.clone().unwrap_or_default();
                let on = WaitingFor::SyncStart { attempt, message: message.clone() };
                self.wait(on, at, self.sync(), Why::SyncNotStarted { attempt, message })
            }
            // One that ended after our request has overtaken it. Reads may also be older than the request, so ours gets
            // the back-off's time to show.
            (Owner::Foreign(_), Some(SyncRequested { attempt, .. })) => {
                let message = "overtaken by another operation";
                if attempt > self.wanted.retry.limit {
                    // The last one gets its time too.
                    let since = self.progress.attempt_failed_at.unwrap_or(self.now);
                    let on = WaitingFor::Backoff { attempt, message: message.to_owned() };
                    return self.wait(on, since, self.pause(attempt).max(SHOWN), Why::Superseded { attempt });
                }
                self.retry(attempt, message, Why::Superseded { attempt })
            }
            (Owner::Foreign(last), None) => {
                self.untouched(application, if last.phase.is_failed() { After::Failure } else { After::Nothing })
            }
            (Owner::Nobody, None) => self.untouched(application, After::Nothing),
        }
    }

    /// Somebody else's operation: awaited, then asked to end, then a conflict.
    fn foreign(&self) -> Decision {
        let since = self.progress.foreign_since.unwrap_or(self.now);
        let patience = after(since, self.sync());
        if self.now < patience {
            return self.wait(WaitingFor::ForeignOperation, since, self.sync(), Why::ForeignOperation);
        }
        match self.progress.terminated_at {
            None => self.act(WaitingFor::ForeignTermination { asked: false }),
            Some(asked) => {
                let on = WaitingFor::ForeignTermination { asked: true };
                self.wait(on, asked.max(patience), self.sync(), Why::ForeignOperation)
            }
        }
    }

    /// An operation that carries our nonce.
    fn ours(&self, application: &ApplicationState, operation: &Operation, attempt: u32) -> Decision {
        let message = operation.message.clone();
        // Argo CD says so for one pass about a sync that the window lets through.
        let windowed = operation.phase.is_failed() && message.contains("blocked by sync window");
        if operation.phase.is_running() || windowed {
            let since = self.progress.sync_requested.map_or(self.now, |request| request.at);
            let on = WaitingFor::Operation { attempt, message: message.clone() };
            return self.wait(on, since, self.sync(), Why::SyncTimeout { attempt, message });
        }
        if operation.phase.is_failed() {
            return self.retry(attempt, &operation.message, Why::SyncFailed { attempt, message });
        }
        let since = self.progress.operation_finished_seen_at.unwrap_or(self.now);
        match self.stale(application, since, self.wanted.timeouts.health) {
            Some(decision) => decision,
            None => self.prove(application, After::Attempt(attempt), since),
        }
    }

    /// Nothing of ours was asked for yet: perhaps nothing has to change.
    fn untouched(&self, application: &ApplicationState, after: After) -> Decision {
        if self.progress.foreign_seen {
            return self.act(WaitingFor::SyncRequest { attempt: 1 });
        }
        // A sync compares by itself, so what is known to differ needs no fresh comparison first: only "nothing had to
        // change" does.
        if application.refresh != Freshness::Answered
            && let Some(decision) = self.differs(application)
        {
            return decision;
        }
        // Once for the Application to appear, once for the answer; and as long as content may be waited for, because
        // that wait asks for refreshes again.
        let patience = (self.sync() + self.sync()).max(self.wanted.timeouts.health);
        match self.stale(application, self.ready(), patience) {
            Some(decision) => decision,
            None => self.prove(application, after, self.ready()),
        }
    }

    /// Compared with the wanted content and different from it, if only by an older comparison.
    fn differs(&self, application: &ApplicationState) -> Option<Decision> {
        if application.sync != SyncState::OutOfSync || !application.conditions.is_empty() || application.resources == 0
        {
            return None;
        }
        match proof::source(self.wanted, application).map_err(|unmet| *unmet) {
            Ok(()) => Some(self.act(WaitingFor::SyncRequest { attempt: 1 })),
            Err(Unmet::Unread(on)) => Some(self.act(on)),
            Err(_) => None,
        }
    }

    /// What is older than the refresh does not count, whatever it says.
    fn stale(&self, application: &ApplicationState, since: Timestamp, patience: Duration) -> Option<Decision> {
        match application.refresh {
            Freshness::Answered => None,
            Freshness::NotAsked => Some(self.act(WaitingFor::Refresh { asked: false })),
            // Whoever was away longer than that has only just asked.
            Freshness::Asked => {
                let since = application.refresh_asked_at.map_or(since, |asked| asked.max(since));
                Some(self.wait(WaitingFor::Refresh { asked: true }, since, patience, Why::RefreshUnanswered))
            }
        }
    }

    fn prove(&self, application: &ApplicationState, after: After, since: Timestamp) -> Decision {
        let anew = self.progress.rendered_anew_at.is_some();
        match proof::check(self.wanted, application, after, anew).map_err(|unmet| *unmet) {
            Ok(receipt) => self.unsettled(application, since).unwrap_or_else(|| Decision::Proven(Box::new(receipt))),
            Err(Unmet::Never(why)) => failed(why),
            Err(Unmet::Unread(on)) => self.act(on),
            Err(Unmet::Sync(..)) if !matches!(after, After::Attempt(_)) => {
                self.act(WaitingFor::SyncRequest { attempt: 1 })
            }
            Err(Unmet::Sync(on, why)) => match after {
                After::Attempt(attempt) if self.synced_before_rendered(application) => {
                    self.act(WaitingFor::SyncRequest { attempt: attempt.saturating_add(1) })
                }
                _ => self.wait(on, since, self.wanted.timeouts.health, why),
            },
            Err(Unmet::Time(on, why)) => self.wait(on, since, self.wanted.timeouts.health, why),
        }
    }

    /// What our sync brought was rendered before Argo CD was asked to render anew, and now it differs.
    fn synced_before_rendered(&self, application: &ApplicationState) -> bool {
        application.sync == SyncState::OutOfSync && self.progress.is_synced_before_rendered()
    }

    /// What fell, or was started again, must stay Healthy for a while before it counts.
    fn unsettled(&self, application: &ApplicationState, since: Timestamp) -> Option<Decision> {
        let falls = self.progress.falls;
        let containers = application.tree.iter().flat_map(|tree| &tree.containers);
        let again = containers.filter(|container| container.running && container.restarts > 0);
        let restarts = application.tree.as_ref().map_or(0, Tree::restarts);
        let crashes = application.tree.as_ref().is_some_and(Tree::crashes);
        if falls == 0 && restarts == 0 && !crashes {
            return None;
        }
        // What was started again may be back before Argo CD has noticed.
        let started = again.filter_map(|container| container.started).max();
        let healthy = self.progress.healthy_since.unwrap_or(self.now);
        let settled = after(started.map_or(healthy, |started| started.max(healthy)), SETTLING);
        if self.now >= settled && !crashes {
            return None;
        }
        let on = WaitingFor::Settling { falls, restarts };
        let patience = self.wanted.timeouts.health;
        let decision = self.wait(on.clone(), since, patience, Why::Flapping { falls, restarts });
        Some(match decision {
            Decision::Wait(wait) if !crashes => Decision::Wait(Wait { until: wait.until.min(settled), ..wait }),
            other => other,
        })
    }

    /// The next attempt, when its time has come and one is left.
    fn retry(&self, attempt: u32, message: &str, why: Why) -> Decision {
        if attempt > self.wanted.retry.limit {
            return failed(why);
        }
        let since = self.progress.attempt_failed_at.unwrap_or(self.now);
        let pause = self.pause(attempt);
        if self.now >= after(since, pause) {
            return self.act(WaitingFor::SyncRequest { attempt: attempt.saturating_add(1) });
        }
        self.wait(WaitingFor::Backoff { attempt, message: message.to_owned() }, since, pause, why)
    }

    /// Between an attempt and the next one.
    fn pause(&self, attempt: u32) -> Duration {
        let retry = self.wanted.retry;
        retry.backoff.grown(retry.factor, attempt.saturating_sub(1), retry.max)
    }

    /// Waits for something that has so much time, counted from a stored moment.
    fn wait(&self, on: WaitingFor, since: Timestamp, patience: Duration, why: Why) -> Decision {
        let until = after(since, patience);
        if self.now >= until {
            return failed(why);
        }
        Decision::Wait(Wait { on, until: until.min(self.observed.deadline), since: Some(since) })
    }

    /// The caller's turn: nothing else changes the answer before the run ends.
    fn act(&self, on: WaitingFor) -> Decision {
        Decision::Wait(Wait { on, until: self.observed.deadline, since: None })
    }

    fn ready(&self) -> Timestamp {
        self.progress.ready_at.unwrap_or(self.now)
    }

    fn sync(&self) -> Duration {
        self.wanted.timeouts.sync
    }
}

fn failed(why: Why) -> Decision {
    Decision::Failed(why.into())
}

fn after(moment: Timestamp, span: Duration) -> Timestamp {
    moment.saturating_add(span.as_jiff()).unwrap_or(Timestamp::MAX)
}
