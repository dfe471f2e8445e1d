//! Teardown (SPEC.md sections 4 to 6, phase 4): when a node that is to go is gone, what goes before it, what would make it
//! again, what becomes of its volumes, and what is ours at all; what is in a cluster and whose it is, what would stand in the
//! way, and what is left.
//!
//! Pure. One function decides about a node, [`decide`], for plugin and pod runner alike. Invariants: nothing is asked to go
//! while something that depends on it exists (INV-6); nothing counts as gone because a listing did not name it: somebody
//! looked for each object by its name and was told that there is none (INV-10); what carries neither our label nor was handed
//! over by name is never named in a request that changes anything (INV-11); every wait ends.

mod creator;
mod crossplane;
mod decision;
pub mod inventory;
mod member;
mod namespace;
mod order;
pub mod rehearse;
mod remnant;
mod report;
mod volume;
pub mod whose;

use jiff::Timestamp;

pub use creator::{
    Creator, Makers, brings, creator, exclusion, keeping_exclusions, made_again, makes, protected, strip_owner,
    unauthorized,
};
pub use crossplane::{CROSSPLANE, CROSSPLANE_SELECTOR, started, used_by};
pub use decision::{
    ApplicationState, Decision, DependentState, Observed, Progress, Removed, Wait, Waiting, Wanted, Why, remember,
};
pub use member::{Clearance, Kept, Member, Removal, definition_stays, is_definition, judge, members};
pub use namespace::{Content, PROTECTED, belongs, foreign, foreign_beside_argo, is_environments, user};
pub use order::{between, dependents, reversed};
pub use remnant::{Finalizer, ParseTargetError, Remnant, Target};
pub use report::{ReleasedFinalizer, RemovalRecord, RetainedVolume};
pub use volume::{
    Claimants, RECLAIM_ANNOTATION, Snapshot, Volume, Word, bound, is_retained, restored, retained,
    snapshot_content_retained, snapshots,
};

use crate::duration::Duration;

/// Says of one node that is to go: gone, wait, or failed.
pub fn decide(wanted: &Wanted, observed: &Observed, now: Timestamp) -> Decision {
    let mut living = None;
    for node in &wanted.dependents {
        match observed.dependents.get(node) {
            Some(DependentState::Failed) => return Decision::Failed(Why::Blocked { by: node.clone() }),
            Some(DependentState::Gone) => {}
            Some(DependentState::Living) | None => living = living.or(Some(node)),
        }
    }
    if now >= observed.deadline {
        return Decision::Failed(Why::RunTimeout { dependent: living.cloned() });
    }
    if let Some(node) = living {
        let on = Waiting::Dependent { node: node.clone() };
        return Decision::Wait(Wait { on, until: observed.deadline, since: None });
    }
    Case { wanted, observed, progress: &remember(wanted, observed, now), now }.decide()
}

/// A node of which everything that depends on it is gone, at one moment.
struct Case<'a> {
    wanted: &'a Wanted,
    observed: &'a Observed,
    progress: &'a Progress,
    now: Timestamp,
}

impl Case<'_> {
    fn decide(&self) -> Decision {
        match &self.observed.application {
            Some(application) => self.there(application),
            None => self.absent(),
        }
    }

    /// The Application is there.
    fn there(&self, application: &ApplicationState) -> Decision {
        // Another one of that name: somebody made it since, and it is not what was to be removed.
        if self.wanted.uid.as_deref() != Some(application.uid.as_str()) {
            return Decision::Failed(Why::Recreated { by: application.creator.clone() });
        }
        let Some(deleting) = self.progress.deleting_since.filter(|_| application.deleting) else {
            return self.untouched(application);
        };
        let (remnants, error) = (application.remnants.clone(), application.error.clone());
        let on = Waiting::Deletion { remnants: remnants.clone(), error: error.clone() };
        self.wait(on, deleting, self.gone(), Why::Stuck { remnants, error, at: self.now })
    }

    /// Nobody asked it to go yet, or that does not show.
    fn untouched(&self, application: &ApplicationState) -> Decision {
        // Argo CD ends an operation before it removes anything, and one that was held back would never end.
        if application.in_flight {
            let since = self.progress.busy_since.unwrap_or(self.now);
            return self.wait(Waiting::Operation, since, self.shown(), Why::Operation);
        }
        match self.progress.requested {
            None => self.act(Waiting::Request),
            Some(at) => {
                let message = self.progress.refused.clone().unwrap_or_default();
                let on = Waiting::Shown { message: message.clone() };
                self.wait(on, at, self.shown(), Why::NotDeleted { message })
            }
        }
    }

    /// Argo CD has no such Application: now everything that it had made must be gone too.
    fn absent(&self) -> Decision {
        let since = self.progress.gone_at.unwrap_or(self.now);
        match &self.observed.clearance {
            None => self.wait(Waiting::Clearance, since, self.gone(), Why::NotCleared),
            Some(clearance) if clearance.left.is_empty() => {
                Decision::Gone(Removed { asked: self.progress.requested.is_some(), kept: clearance.kept.clone() })
            }
            Some(clearance) => {
                let remnants = clearance.left.clone();
                let on = Waiting::Members { remnants: remnants.clone() };
                self.wait(on, since, self.gone(), Why::Left { remnants, at: self.now })
            }
        }
    }

    /// Waits for something that has so much time, counted from a stored moment.
    fn wait(&self, on: Waiting, since: Timestamp, patience: Duration, why: Why) -> Decision {
        let until = since.saturating_add(patience.as_jiff()).unwrap_or(Timestamp::MAX);
        if self.now >= until {
            return Decision::Failed(why);
        }
        Decision::Wait(Wait { on, until: until.min(self.observed.deadline), since: Some(since) })
    }

    /// The caller's turn: nothing else changes the answer before the run ends.
    fn act(&self, on: Waiting) -> Decision {
        Decision::Wait(Wait { on, until: self.observed.deadline, since: None })
    }

    /// How long a request may take to show, and an operation to end.
    fn shown(&self) -> Duration {
        self.wanted.timeouts.sync
    }

    /// How long everything may take to go.
    fn gone(&self) -> Duration {
        self.wanted.timeouts.health
    }
}

#[cfg(test)]
mod tests;
