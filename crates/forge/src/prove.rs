//! Takes a node from its start to its proof: reads, asks the gate, does what the gate says is due, reads again
//! (SPEC.md section 6). Plugin, pod runner and `deploy`'s look before a run all use it.
//!
//! Everything that must survive this process is in the record or in Argo CD: a process that starts again computes the
//! same nonce, finds its own operation and goes on. It never sleeps for a result: it waits for the feed, for an answer, or
//! for the moment that the gate names.
//!
//! A proof holds while the node stays well: as long as the run lasts it is watched, and one that falls loses its proof and
//! must stay well for a while to get it back (docs/adr/0013).

#[cfg(test)]
pub(crate) mod fake;
mod look;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forge_core::gate::{
    Act, Content, Decision, Failure, Folder, Freshness, GitContent, Health, Nonce, Observed, Phase, PredecessorState,
    SyncRequested, Wait, WaitingFor, Wanted, Why, decide, remember, settled_before,
};
use forge_core::name::{ApplicationId, NodeId};
use forge_core::run::{Asked, Entry, RunPlan};
use jiff::Timestamp;
use tokio::sync::{Semaphore, watch};

use crate::argocd::{Application, Feed, Known};
use crate::git_reader::GitReader;
use crate::metrics::Metrics;
use crate::recorder::Recorder;
use look::{Look, is_release};

/// Between two readings of what Argo CD does not tell of by itself.
const POLL: Duration = Duration::from_millis(300);
/// Between two requests that nobody has answered the way we want.
const AGAIN: Duration = Duration::from_secs(5);
/// Between two looks of whoever is told when there is something to look at.
const SELDOM: Duration = Duration::from_secs(60);
/// Between two requests to render anew because of an error of our plugin, which Argo CD keeps: it may have passed.
const RENDER_AGAIN: Duration = Duration::from_secs(30);
/// After so long without health Argo CD is asked to look again, and what it says about the resource behind that is told anew.
const RELOOK: Duration = Duration::from_secs(15);
/// When the pods of a proven node are looked at once more: what crashes is often back before Argo CD has noticed.
const RECHECK: Duration = Duration::from_secs(4);
/// How many are looked at so at a time.
const RECHECKS: usize = 4;
/// After a request that failed on its way.
const SOON: Duration = Duration::from_millis(500);
/// How much longer than the run one waits for its predecessors: how they ended is said by them.
pub(crate) const LAST_WORD: Duration = Duration::from_secs(2);

/// What a caller allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// All that it takes.
    Run,
    /// Only reading: what would need a sync, or more time, is not proven.
    Look,
}

/// Takes the nodes of one run to their proofs.
pub(crate) struct Prover {
    feed: Arc<Feed>,
    recorder: Arc<Recorder>,
    git: Arc<GitReader>,
    metrics: Arc<Metrics>,
    wanted: BTreeMap<NodeId, Arc<Wanted>>,
    deadline: Timestamp,
    rechecks: Semaphore,
}

impl Prover {
    pub(crate) fn new(
        plan: &RunPlan,
        deadline: Timestamp,
        feed: Arc<Feed>,
        recorder: Arc<Recorder>,
        git: Arc<GitReader>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let wanted = plan.wanted().into_iter().map(|wanted| (wanted.node.clone(), Arc::new(wanted))).collect();
        Self { feed, recorder, git, metrics, wanted, deadline, rechecks: Semaphore::new(RECHECKS) }
    }

    /// True if the run has such a node.
    pub(crate) fn knows(&self, node: &NodeId) -> bool {
        self.wanted.contains_key(node)
    }

    /// The nodes, by name.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &NodeId> {
        self.wanted.keys()
    }

    /// Takes a node to its end and says how it ended; nothing for a node that the run does not have.
    pub(crate) async fn prove(&self, node: &NodeId, mode: Mode) -> Option<Decision> {
        let wanted = self.wanted.get(node)?.clone();
        if let Some(entry) = self.recorder.entry(node).filter(Entry::is_final) {
            return Some(entry.decision);
        }
        Some(Way::new(self, wanted, mode).go().await)
    }

    /// Returns when a band may begin, or the run is over; gives nothing where the run has no such band.
    pub(crate) async fn opened(&self, band: usize) -> Option<()> {
        self.recorder.opened(band, self.deadline).await
    }

    /// Watches over a proven node until it falls; then its proof is withdrawn. Never returns while it stays well.
    pub(crate) async fn guard(&self, node: &NodeId) {
        let Some(wanted) = self.wanted.get(node) else { return std::future::pending().await };
        let mut states = self.feed.subscribe(&wanted.application);
        let mut recheck = std::pin::pin!(tokio::time::sleep(RECHECK));
        let mut looked = false;
        loop {
            let fell = match &*states.borrow_and_update() {
                Known::Seen(application) => application.health != Health::Healthy,
                Known::Absent => true,
                Known::Unread => false,
            };
            if fell {
                return self.recorder.withdraw(node, self.deadline).await;
            }
            tokio::select! {
                // The feed lives as long as this.
                _ = states.changed() => {}
                () = &mut recheck, if !looked => {
                    looked = true;
                    if self.has_restarted(wanted).await {
                        return self.recorder.withdraw(node, self.deadline).await;
                    }
                }
            }
        }
    }

    /// Whether containers of a node were started again since it was proven, or so shortly before that nobody had seen it.
    async fn has_restarted(&self, wanted: &Wanted) -> bool {
        let proven = self.recorder.entry(&wanted.node).filter(|entry| entry.receipt().is_some());
        let (Some(proven), Known::Seen(application)) = (proven, self.feed.get(&wanted.application)) else {
            return false;
        };
        let _turn = self.rechecks.acquire().await;
        let tree = self.feed.argocd().read_tree(&application, &[], &[]).await;
        tree.is_ok_and(|tree| tree.restarted_after(settled_before(proven.since)))
    }

    /// How far the predecessors are: proven, and well at this moment. One that fell since its proof is waited for.
    fn predecessors(&self, wanted: &Wanted) -> BTreeMap<NodeId, PredecessorState> {
        let mut states = self.recorder.predecessors(&wanted.predecessors);
        for (node, state) in &mut states {
            let application = self.wanted.get(node).map(|wanted| &wanted.application);
            if *state == PredecessorState::Proven && application.is_some_and(|id| self.is_unwell(id)) {
                *state = PredecessorState::Waiting;
            }
        }
        states
    }

    /// What is said of a node before anything is read of it. One that is asked for before its time has not begun.
    fn first_answer(&self, wanted: &Wanted, mode: Mode) -> Decision {
        let states = if mode == Mode::Run { self.predecessors(wanted) } else { BTreeMap::new() };
        match states.into_iter().find(|(_, state)| *state != PredecessorState::Proven) {
            Some((node, _)) => {
                let on = WaitingFor::Predecessor { node };
                Decision::Wait(Wait { on, until: self.deadline, since: None })
            }
            None => forge_core::run::not_looked_at(self.deadline),
        }
    }

    /// Returns when something has changed for whoever waits for this predecessor: in the record, or, where it is proven and
    /// not well, with its Application.
    async fn moves(&self, node: &NodeId, failures: usize) {
        let recorder = &self.recorder;
        let Some((wanted, mut changes)) = self.wanted.get(node).zip(recorder.subscribe(node)) else {
            return std::future::pending().await;
        };
        let mut states = self.feed.subscribe(&wanted.application);
        loop {
            recorder.moves(node, failures).await;
            let is_unwell = recorder.is_proven(node) && self.is_unwell(&wanted.application);
            if !is_unwell || recorder.failures() != failures {
                return;
            }
            // Feed and record live as long as this.
            tokio::select! {
                _ = states.changed() => {}
                _ = changes.changed() => {}
            }
        }
    }

    fn is_unwell(&self, id: &ApplicationId) -> bool {
        match self.feed.get(id) {
            Known::Seen(application) => application.health != Health::Healthy,
            Known::Absent => true,
            Known::Unread => false,
        }
    }

    /// The Applications of everything that a node waits for, near ones first.
    fn ancestors(&self, wanted: &Wanted) -> Vec<Application> {
        let mut found: Vec<Application> = Vec::new();
        let mut queue: std::collections::VecDeque<&NodeId> = wanted.predecessors.iter().collect();
        let mut seen: std::collections::BTreeSet<&NodeId> = queue.iter().copied().collect();
        while let Some(node) = queue.pop_front() {
            let Some(wanted) = self.wanted.get(node) else { continue };
            if let Known::Seen(application) = self.feed.get(&wanted.application) {
                found.push(application.as_ref().clone());
            }
            queue.extend(wanted.predecessors.iter().filter(|next| seen.insert(next)));
        }
        found
    }
}

/// One node on its way.
struct Way<'p> {
    prover: &'p Prover,
    wanted: Arc<Wanted>,
    mode: Mode,
    entry: Entry,
    look: Look,
    states: watch::Receiver<Known>,
    /// How many nodes had failed when it was looked at last.
    failures: usize,
    /// The predecessor that it waits for, by the last decision; nothing where the last look came to none.
    awaited: Option<NodeId>,
    request: Request,
    asked_again: tokio::time::Instant,
    /// Since when a wait is worded as it is.
    worded: Timestamp,
    /// When Argo CD was last asked to render anew, and whether because what is live is not of the wanted release.
    rendering: Option<(tokio::time::Instant, bool)>,
    /// When its Application was last read without the feed because its time was up.
    read_at: Option<Timestamp>,
}

/// How far our newest request got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    /// Argo CD has it, or there is none.
    Arrived,
    /// It may not have arrived: sent again under the same nonce.
    Unsure,
    /// The same, and for a while nobody could send it: whoever asked is gone, nothing may start, or Argo CD cannot be read. Its
    /// time begins anew when it is sent.
    HeldBack,
}

/// What to do after a decision.
enum Next {
    /// It ended.
    End,
    /// Look again at once.
    Again,
    /// Look again when something changes, at the latest after this.
    Wait(Duration),
}

impl<'p> Way<'p> {
    fn new(prover: &'p Prover, wanted: Arc<Wanted>, mode: Mode) -> Self {
        let now = Timestamp::now();
        let stored = prover.recorder.entry(&wanted.node);
        let fresh = || Entry {
            node: wanted.node.clone(),
            progress: Default::default(),
            decision: prover.first_answer(&wanted, mode),
            since: now,
            started: None,
            healthy: None,
            asked: Vec::new(),
            withdrawn: None,
            removal: None,
        };
        let mut entry = stored.unwrap_or_else(fresh);
        entry.started.get_or_insert(now);
        // A request that an earlier process stored and perhaps never sent.
        let request = if entry.progress.sync_requested.is_some() { Request::HeldBack } else { Request::Arrived };
        let states = prover.feed.subscribe(&wanted.application);
        Self {
            prover,
            wanted,
            mode,
            entry,
            look: Look::default(),
            states,
            failures: 0,
            awaited: None,
            request,
            asked_again: tokio::time::Instant::now(),
            worded: now,
            rendering: None,
            read_at: None,
        }
    }

    async fn go(mut self) -> Decision {
        if self.mode == Mode::Run {
            // Whoever supervises the agent sees that this node was asked for, even where nothing can be read of it yet.
            self.prover.recorder.put(self.entry.clone());
        }
        loop {
            self.failures = self.prover.recorder.failures();
            self.awaited = None;
            let known = self.states.borrow_and_update().clone();
            let next = match known {
                // Nothing may be decided about what was never read.
                Known::Unread if Timestamp::now() < self.prover.deadline => Next::Wait(AGAIN),
                known => self.step(&known).await,
            };
            match next {
                Next::End => return self.entry.decision,
                Next::Again => {}
                Next::Wait(at_most) => self.wait(at_most).await,
            }
        }
    }

    /// Waits until there is something to look at.
    async fn wait(&mut self, at_most: Duration) {
        let (prover, failures, awaited) = (self.prover, self.failures, &self.awaited);
        let moved = async {
            match awaited {
                Some(node) => prover.moves(node, failures).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.states.changed() => {}
            () = moved => {}
            answered = self.look.answer() => {
                if let Some((application, anew)) = answered {
                    if anew && self.rendering.is_some_and(|(_, outdated)| outdated) {
                        self.entry.progress.rendered_anew_at = Some(Timestamp::now());
                    }
                    self.prover.feed.offer(application);
                }
            }
            () = tokio::time::sleep(at_most) => {}
        }
    }

    /// Looks, decides, stores, and does what is due.
    async fn step(&mut self, known: &Known) -> Next {
        let application = if let Known::Seen(application) = known { Some(application.as_ref()) } else { None };
        let now = Timestamp::now();
        let mut observed = self.observe(application);
        let progress = remember(&self.wanted, &observed, now);
        if progress.operation_finished_seen_at.is_some()
            && progress.operation_finished_seen_at != self.entry.progress.operation_finished_seen_at
            && self.look.forget()
        {
            // What was read before the operation was seen finished does not count.
            self.entry.progress = progress;
            return Next::Again;
        }
        observed.progress.clone_from(&progress);
        let decision = decide(&self.wanted, &observed, now);
        self.entry.progress = progress;
        if matches!(decision, Decision::Failed(_)) && now < self.prover.deadline && self.is_hearsay(&observed) {
            // That there is none only a list can tell, and one comes soon.
            if application.is_none() {
                return Next::Wait(AGAIN);
            }
            if self.read().await.is_none() {
                return Next::Wait(SOON);
            }
            self.read_at = Some(now);
            return Next::Again;
        }
        if let Some(attempt) = self.unsent(&decision) {
            let next = self.ask_again(attempt).await;
            self.prover.recorder.put(self.entry.clone());
            return next;
        }
        self.note(application, &decision, now);
        self.prover.metrics.decided(&decision);
        match decision {
            Decision::Wait(wait) => {
                let until = wait.until.duration_since(now);
                if let WaitingFor::Predecessor { node } = &wait.on {
                    self.awaited = Some(node.clone());
                }
                let longer = if self.awaited.is_some() { LAST_WORD } else { Duration::from_millis(1) };
                let until = Duration::try_from(until).unwrap_or(Duration::ZERO) + longer;
                let next = self.act(application, &wait.on).await;
                self.prover.recorder.put(self.entry.clone());
                match next {
                    Next::Wait(at_most) => Next::Wait(at_most.min(until)),
                    other => other,
                }
            }
            Decision::Proven(_) | Decision::Gone(_) | Decision::Failed(_) => {
                if self.mode == Mode::Run {
                    self.prover.recorder.commit(self.entry.clone()).await;
                }
                Next::End
            }
        }
    }

    fn is_hearsay(&self, observed: &Observed) -> bool {
        let has_failed = |then| matches!(decide(&self.wanted, observed, then), Decision::Failed(_));
        self.prover.feed.is_hearsay(self.read_at, has_failed)
    }

    /// The attempt that has failed because its time is up, while nobody could send the request: that is no failure of the node.
    fn unsent(&self, decision: &Decision) -> Option<u32> {
        match decision {
            Decision::Failed(Failure { why: Why::SyncNotStarted { attempt, .. }, .. })
                if self.request == Request::HeldBack =>
            {
                Some(*attempt)
            }
            _ => None,
        }
    }

    fn observe(&self, application: Option<&Application>) -> Observed {
        Observed {
            predecessors: match self.mode {
                Mode::Run => self.prover.predecessors(&self.wanted),
                // What follows from what is worked out by who looks.
                Mode::Look => {
                    self.wanted.predecessors.iter().map(|node| (node.clone(), PredecessorState::Proven)).collect()
                }
            },
            deadline: self.prover.deadline,
            progress: self.entry.progress.clone(),
            application: application.map(|application| self.look.state(application, &self.wanted)),
        }
    }

    /// Keeps the answer, and since when it is the answer.
    fn note(&mut self, application: Option<&Application>, decision: &Decision, now: Timestamp) {
        let same = match (&self.entry.decision, decision) {
            (Decision::Wait(before), Decision::Wait(after)) => after.on.is_still(&before.on),
            (before, after) => before == after,
        };
        if !same {
            self.entry.since = now;
        }
        let mut decided = decision.clone();
        if let (Decision::Wait(before), Decision::Wait(after)) = (&self.entry.decision, &mut decided)
            && after.on != before.on
        {
            // Other words for the same wait come with every pod that starts, and are not worth a write each.
            let age = Duration::try_from(now.duration_since(self.worded)).unwrap_or(Duration::ZERO);
            let names = matches!(before.on, WaitingFor::Health { unwell: Some(_), .. });
            if same && names && age < RELOOK {
                after.on.clone_from(&before.on);
            } else {
                self.worded = now;
            }
        }
        self.entry.decision = decided;
        let finished = self.entry.progress.operation_finished_seen_at.is_some();
        let rule = matches!(decision, Decision::Wait(wait) if matches!(wait.on, WaitingFor::Rule { .. }));
        if rule {
            self.entry.healthy = None;
        } else if finished && application.is_some_and(|application| application.health == Health::Healthy) {
            self.entry.healthy.get_or_insert(now);
        }
    }

    /// Does what is due, once.
    async fn act(&mut self, application: Option<&Application>, on: &WaitingFor) -> Next {
        let Some(application) = application else { return self.idle(AGAIN) };
        match on.act() {
            Some(Act::RequestSync { .. } | Act::TerminateForeign | Act::RequestHardRefresh)
                if self.mode == Mode::Look =>
            {
                Next::End
            }
            Some(Act::RequestSync { attempt }) => self.request_sync(attempt).await,
            Some(Act::TerminateForeign) => {
                match self.prover.feed.argocd().terminate(&self.wanted.application).await {
                    Err(error) if error.is_transient() => Next::Wait(SOON),
                    // Refused too: it has ended meanwhile, which the next look tells, or it goes on and becomes a conflict.
                    _ => {
                        self.entry.progress.terminated_at = Some(Timestamp::now());
                        Next::Again
                    }
                }
            }
            Some(Act::RequestRefresh) => self.request_refresh(on),
            Some(Act::RequestHardRefresh) => self.request_hard_refresh(on),
            Some(Act::ReadTree) => {
                let objects = Look::objects(&self.wanted);
                let elsewhere = if objects.is_empty() { Vec::new() } else { self.prover.ancestors(&self.wanted) };
                match self.prover.feed.argocd().read_tree(application, &objects, &elsewhere).await {
                    Ok(tree) => {
                        // A proof rests on both, so both are of the same moment.
                        if is_release(&self.wanted) && !self.read_receipt(application).await {
                            return Next::Wait(SOON);
                        }
                        self.look.keep_tree(tree);
                        Next::Again
                    }
                    Err(_) => Next::Wait(SOON),
                }
            }
            Some(Act::ReadReceipt) => {
                if self.read_receipt(application).await {
                    Next::Again
                } else {
                    Next::Wait(SOON)
                }
            }
            Some(Act::ReadRepository) => self.read_repository(application).await,
            None => match on {
                WaitingFor::SyncStart { attempt, .. } if self.request != Request::Arrived => {
                    self.ask_again(*attempt).await
                }
                WaitingFor::Generation { .. }
                | WaitingFor::Image { .. }
                | WaitingFor::Object { .. }
                | WaitingFor::Settling { .. }
                | WaitingFor::Rule { .. } => {
                    // Argo CD does not tell when these change.
                    self.look.forget_tree();
                    self.idle(POLL)
                }
                // What Argo CD writes of its progress may undo the request.
                WaitingFor::ForeignTermination { .. } if self.mode == Mode::Run => {
                    if self.asked_again.elapsed() >= AGAIN {
                        self.asked_again = tokio::time::Instant::now();
                        let _ = self.prover.feed.argocd().terminate(&self.wanted.application).await;
                    }
                    Next::Wait(AGAIN)
                }
                WaitingFor::Refresh { .. } => Next::Wait(AGAIN),
                WaitingFor::Backoff { .. } if self.mode == Mode::Run => {
                    if self.asked_again.elapsed() >= AGAIN {
                        self.asked_again = tokio::time::Instant::now();
                        let _ = self.read().await;
                    }
                    Next::Wait(AGAIN)
                }
                // Whoever ends tells, and nothing else is due before.
                WaitingFor::Predecessor { node } if self.prover.recorder.is_waited_for(node, self.failures) => {
                    self.idle(SELDOM)
                }
                // Argo CD may write an older health over a newer one and not look again for minutes.
                WaitingFor::Health { .. } | WaitingFor::InSync { .. } if self.mode == Mode::Run => {
                    if self.asked_again.elapsed() >= RELOOK && !self.look.is_asking() {
                        self.ask_refresh();
                        return Next::Again;
                    }
                    Next::Wait(AGAIN)
                }
                _ => self.idle(AGAIN),
            },
        }
    }

    /// Waiting is all that is left; who only looks has seen enough.
    fn idle(&self, at_most: Duration) -> Next {
        if self.mode == Mode::Look { Next::End } else { Next::Wait(at_most) }
    }

    fn request_refresh(&mut self, on: &WaitingFor) -> Next {
        if self.look.is_asking() {
            return Next::Wait(AGAIN);
        }
        let due = matches!(on, WaitingFor::Refresh { .. });
        if !due && self.mode == Mode::Look {
            return Next::End;
        }
        if !due && self.asked_again.elapsed() < AGAIN {
            return Next::Wait(AGAIN.saturating_sub(self.asked_again.elapsed()));
        }
        self.ask_refresh();
        Next::Again
    }

    /// Asks Argo CD to render anew. Because what is live is not of the wanted release, until it has been answered once; because
    /// of an error of our plugin, now and then while it lasts.
    fn request_hard_refresh(&mut self, on: &WaitingFor) -> Next {
        if self.look.is_asking() {
            return Next::Wait(AGAIN);
        }
        let outdated = matches!(on, WaitingFor::Render { .. });
        let pause = if outdated { AGAIN } else { RENDER_AGAIN };
        let before = self.rendering.filter(|(_, for_that)| *for_that == outdated);
        match before.map(|(at, _)| pause.saturating_sub(at.elapsed())).filter(|left| !left.is_zero()) {
            Some(left) if outdated => return Next::Wait(left),
            // There may be a new commit meanwhile.
            Some(_) => return self.request_refresh(on),
            None => {}
        }
        let now = tokio::time::Instant::now();
        (self.asked_again, self.rendering) = (now, Some((now, outdated)));
        let (argocd, id) = (self.prover.feed.argocd().clone(), self.wanted.application.clone());
        self.look.ask_anew(async move { argocd.refresh_hard(&id).await });
        Next::Again
    }

    /// Reads what the plugin says it rendered. False where that cannot be read now.
    async fn read_receipt(&mut self, application: &Application) -> bool {
        match self.prover.feed.argocd().rendered(application).await {
            Ok(render) => {
                self.look.keep_render(render);
                true
            }
            Err(_) => false,
        }
    }

    fn ask_refresh(&mut self) {
        self.asked_again = tokio::time::Instant::now();
        let (argocd, id) = (self.prover.feed.argocd().clone(), self.wanted.application.clone());
        self.look.ask(async move { argocd.refresh(&id).await });
    }

    async fn request_sync(&mut self, attempt: u32) -> Next {
        // Somebody may have stopped the run since this node was asked for: then nothing new starts. And what the feed shows may
        // be older than an attempt of ours, perhaps of a process that this one takes over from: none is asked for on hearsay.
        if !self.prover.recorder.may_start().await || !self.is_next(attempt).await {
            return Next::Wait(SOON);
        }
        let nonce = Nonce { run: self.wanted.run.clone(), node: self.wanted.node.clone(), attempt };
        let at = Timestamp::now();
        self.look = Look::default();
        self.entry.healthy = None;
        self.entry.progress.sync_requested = Some(SyncRequested { attempt, at });
        self.entry.progress.falls = 0;
        self.entry.progress.healthy_since = None;
        self.entry.asked.push(Asked { attempt, at });
        self.prover.metrics.sync_requested();
        self.send(&nonce).await
    }

    /// The Application as Argo CD itself shows it now, for the feed may be behind; nothing where it cannot be read.
    async fn read(&self) -> Option<Application> {
        let application = self.prover.feed.argocd().get(&self.wanted.application).await.ok().flatten()?;
        self.prover.feed.offer(application.clone());
        Some(application)
    }

    /// Whether Argo CD itself, asked now, shows neither this attempt nor an earlier one that succeeded or goes on. What it
    /// shows is adopted.
    async fn is_next(&self, attempt: u32) -> bool {
        let Some(application) = self.read().await else { return false };
        let Some(operation) = application.operation else { return true };
        let ours = operation.nonce.filter(|nonce| nonce.is_of(&self.wanted.run, &self.wanted.node));
        // What it brought was rendered before Argo CD rendered anew.
        let outdated = self.entry.progress.is_synced_before_rendered();
        let over = operation.phase.is_failed() || (outdated && operation.phase == Phase::Succeeded);
        ours.is_none_or(|nonce| nonce.attempt < attempt && over)
    }

    async fn send(&mut self, nonce: &Nonce) -> Next {
        self.asked_again = tokio::time::Instant::now();
        match self.prover.feed.argocd().sync(&self.wanted.application, nonce).await {
            Ok(()) => {
                self.request = Request::Arrived;
                self.entry.progress.refused = None;
                Next::Wait(AGAIN)
            }
            Err(error) => {
                self.request = Request::Unsure;
                self.entry.progress.refused = (!error.is_transient()).then(|| error.to_string());
                Next::Wait(SOON)
            }
        }
    }

    /// A request that nobody shows: read without the feed, and if it really is not there, sent again under its nonce.
    async fn ask_again(&mut self, attempt: u32) -> Next {
        if self.asked_again.elapsed() < SOON * 2 {
            return Next::Wait(SOON);
        }
        self.asked_again = tokio::time::Instant::now();
        let nonce = Nonce { run: self.wanted.run.clone(), node: self.wanted.node.clone(), attempt };
        let Some(application) = self.read().await else {
            // Where Argo CD has answered it, nobody held it back.
            if self.entry.progress.refused.is_none() {
                self.request = Request::HeldBack;
            }
            return Next::Wait(SOON);
        };
        let shown = application.operation.and_then(|operation| operation.nonce).as_ref() == Some(&nonce);
        if shown || application.in_flight {
            return Next::Wait(SOON);
        }
        // Whoever stopped the run meanwhile wants nothing new to start, whenever it was asked for.
        if !self.prover.recorder.may_start().await {
            self.request = Request::HeldBack;
            return Next::Wait(SOON);
        }
        if self.request == Request::HeldBack
            && let Some(requested) = &mut self.entry.progress.sync_requested
        {
            requested.at = Timestamp::now();
        }
        self.send(&nonce).await
    }

    async fn read_repository(&mut self, application: &Application) -> Next {
        let (Content::Git { commit } | Content::Release { commit, .. }) = &self.wanted.content else {
            return Next::Wait(AGAIN);
        };
        let (Some(source), Some(revision)) = (application.sources.first(), application.revisions.first()) else {
            let content = GitContent { contains_commit: false, folder: Folder::Unknown, error: None };
            self.look.keep_git(None, content);
            return Next::Again;
        };
        if self.look.git_is_recent(revision) {
            return self.idle(AGAIN);
        }
        let (git, commit, revision, source) =
            (self.prover.git.clone(), commit.clone(), revision.clone(), source.clone());
        let asked = revision.clone();
        let read = tokio::task::spawn_blocking(move || git.content(&source.url, &source.path, &commit, &asked)).await;
        // Known to contain it or not: it could not be read, and why is all that is known.
        let unread = |error| GitContent { contains_commit: true, folder: Folder::Unknown, error };
        let content = match read {
            Ok(Ok(content)) => content,
            Ok(Err(error)) => unread(Some(error)),
            Err(_) => unread(None),
        };
        self.look.keep_git(Some(revision), content);
        Next::Again
    }
}

impl Look {
    /// Whether what an Application shows is new enough.
    fn freshness(&self, application: &Application) -> Freshness {
        match self.answered() {
            Some(version) if application.version >= version => Freshness::Answered,
            Some(_) => Freshness::Asked,
            None if self.is_asking() => Freshness::Asked,
            None => Freshness::NotAsked,
        }
    }
}
