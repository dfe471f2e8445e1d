//! A small Argo CD for one node, on a virtual clock: what it shows depends on what was asked of it and on the time alone.
//!
//! Durations come from the seed and the node's name, so the same simulation is the same on every machine; no floating
//! point takes part.

use jiff::{SignedDuration, Timestamp};

use crate::gate::{
    ApplicationState, Content, Freshness, Health, Nonce, Observed, Operation, Phase, PredecessorState, Progress, RunId,
    SyncRequested, SyncState, Tree, Wanted,
};
use crate::simulate::Subject;

/// The revision that every simulated Application has.
const REVISION: &str = "simulated";
/// One node in so many has a first sync that fails.
const UNLUCKY: u64 = 33;

/// splitmix64: small, fixed for ever, and good enough for durations.
struct Random(u64);

impl Random {
    /// Seeded by run and node, so that adding a node does not change the others.
    fn new(seed: u64, name: &str) -> Self {
        // FNV-1a spreads the name.
        let hash =
            name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
        Self(seed ^ hash)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From `low` up to and without `high`; `low` when there is nothing between.
    fn between(&mut self, low: u64, high: u64) -> u64 {
        let drawn = self.next();
        low + drawn.checked_rem(high.saturating_sub(low)).unwrap_or(0)
    }

    /// As likely between 4 and 8 as between 40 and 80: a geometric step, then a place in it.
    fn log_uniform(&mut self, low: u64, high: u64) -> u64 {
        let steps = std::iter::successors(Some(low), |step| Some(step + step / 16 + 1));
        let steps: Vec<u64> = steps.take_while(|step| *step < high).collect();
        let count = u64::try_from(steps.len()).unwrap_or(u64::MAX);
        let chosen = usize::try_from(self.between(0, count)).unwrap_or(usize::MAX);
        let step = steps.get(chosen).copied().unwrap_or(low);
        let next = steps.get(chosen.saturating_add(1)).copied().unwrap_or(high);
        self.between(step, next)
    }
}

/// The Application of one node.
pub(super) struct Application {
    refresh: SignedDuration,
    sync: SignedDuration,
    rollout: SignedDuration,
    unlucky: bool,
    fails: bool,
    refreshed: Option<Timestamp>,
}

impl Application {
    pub(super) fn new(subject: &Subject, seed: u64, fails: bool) -> Self {
        let mut random = Random::new(seed, subject.id.as_str());
        let milliseconds = |n: u64| SignedDuration::from_millis(i64::try_from(n).unwrap_or(i64::MAX));
        let quarter = |span: crate::duration::Duration| span.seconds().saturating_mul(250);
        let sync = quarter(subject.timeouts.sync);
        let refresh = random.between(200, 1500).min(sync);
        let syncing = random.between(1000, 5000).min(sync);
        let longest = quarter(subject.timeouts.health).min(90_000);
        let rollout = random.log_uniform(4000.min(longest), longest);
        Self {
            refresh: milliseconds(refresh),
            sync: milliseconds(syncing),
            rollout: milliseconds(rollout),
            unlucky: subject.retry.limit > 0 && random.between(0, UNLUCKY) == 0,
            fails,
            refreshed: None,
        }
    }

    /// Answers a request for a refresh, in a while.
    pub(super) fn ask_refresh(&mut self, now: Timestamp) {
        self.refreshed = Some(later(now, self.refresh));
    }

    /// Takes a request to sync: the operation state goes, and with it what a refresh has shown.
    pub(super) fn ask_sync(&mut self) {
        self.refreshed = None;
    }

    /// What it shows now, and when it next shows something else.
    pub(super) fn show(
        &self,
        wanted: &Wanted,
        requested: Option<SyncRequested>,
        now: Timestamp,
    ) -> (ApplicationState, Option<Timestamp>) {
        let mut next: Option<Timestamp> = None;
        // True when the moment has come; else it is one to wake up for.
        let mut reached = |moment: Timestamp| {
            if moment > now {
                next = Some(next.map_or(moment, |earliest| earliest.min(moment)));
            }
            moment <= now
        };
        let mut state = ApplicationState {
            operation: None,
            refresh: Freshness::NotAsked,
            refresh_asked_at: None,
            sync: SyncState::OutOfSync,
            health: Health::Missing,
            unwell: None,
            conditions: Vec::new(),
            resources: 1,
            revisions: vec![REVISION.to_owned()],
            git: None,
            render: None,
            render_unread: false,
            tree: Some(Tree::default()),
        };
        if let Some(answered) = self.refreshed {
            state.refresh = if reached(answered) { Freshness::Answered } else { Freshness::Asked };
        }
        if let Some(SyncRequested { attempt, at }) = requested
            && reached(later(at, SignedDuration::from_millis(100)))
        {
            let ended = later(later(at, SignedDuration::from_millis(100)), self.sync);
            let failed = self.unlucky && attempt == 1;
            let (phase, message) = match (reached(ended), failed) {
                (false, _) => (Phase::Running, ""),
                (true, true) => (Phase::Failed, "simulated: the API server did not answer"),
                (true, false) => (Phase::Succeeded, ""),
            };
            if phase == Phase::Succeeded {
                state.sync = SyncState::Synced;
                let healthy = reached(later(ended, self.rollout));
                state.health = match (healthy, self.fails) {
                    (false, _) => Health::Progressing,
                    (true, true) => Health::Degraded,
                    (true, false) => Health::Healthy,
                };
            }
            let nonce = Nonce { run: wanted.run.clone(), node: wanted.node.clone(), attempt };
            state.operation = Some(Operation { nonce: Some(nonce), phase, message: message.to_owned() });
        }
        (state, next)
    }
}

/// What the simulation wants of a node.
pub(super) fn wanted(subject: &Subject, subjects: &[Subject], run: &RunId) -> Wanted {
    let predecessors = subject.predecessors.iter().filter_map(|p| subjects.get(*p)).map(|s| s.id.clone());
    Wanted {
        node: subject.id.clone(),
        application: subject.application.clone(),
        run: run.clone(),
        predecessors: predecessors.collect(),
        content: Content::Revisions { revisions: vec![REVISION.to_owned()] },
        images: Default::default(),
        requires: Vec::new(),
        health: Vec::new(),
        timeouts: subject.timeouts,
        retry: subject.retry,
    }
}

/// A node of which nothing is known but its predecessors.
pub(super) fn unseen(deadline: Timestamp, wanted: &Wanted, predecessors: Option<PredecessorState>) -> Observed {
    let states = predecessors.map(|state| wanted.predecessors.iter().map(|node| (node.clone(), state)).collect());
    Observed { predecessors: states.unwrap_or_default(), deadline, progress: Progress::default(), application: None }
}

pub(super) fn later(moment: Timestamp, span: SignedDuration) -> Timestamp {
    moment.saturating_add(span).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_spread_over_their_range_on_a_logarithmic_scale() {
        let mut random = Random::new(1, "shop/api");
        let drawn: Vec<u64> = (0..10_000).map(|_| random.log_uniform(4000, 90_000)).collect();
        assert!(drawn.iter().all(|d| (4000..90_000).contains(d)));
        let below = |limit: u64| drawn.iter().filter(|d| **d < limit).count();
        // The middle of the scale is the geometric mean, about 19 s.
        assert!((4500..5500).contains(&below(18_974)), "{}", below(18_974));
    }

    #[test]
    fn an_empty_range_gives_its_lower_end() {
        let mut random = Random::new(1, "a/b");
        assert_eq!((random.between(5, 5), random.between(5, 4), random.log_uniform(0, 0)), (5, 5, 0));
    }
}
