//! Takes a node from its start to its end: reads, asks [`teardown::decide`], does what is due, reads again (SPEC.md sections 4
//! and 6). Plugin and pod runner use it, with the account that can get and delete Applications and nothing else.
//!
//! That Argo CD has no such Application is asked by name before it counts, and is not enough: whoever conducts the run looks for
//! the Application and for everything that it had made in the cluster itself, and writes down what that came to.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forge_core::gate::{self, PredecessorState};
use forge_core::name::NodeId;
use forge_core::run::{Asked, Entry, RunPlan, not_asked_yet};
use forge_core::teardown::{
    self, ApplicationState, Decision, DependentState, Observed, Progress, Remnant, Wait, Waiting, Wanted, Why, remember,
};
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::argocd::{Application, Feed, Known};
use crate::metrics::Metrics;
use crate::prove::LAST_WORD;
use crate::recorder::Recorder;

/// Between two readings of what nobody tells of by itself.
const POLL: Duration = Duration::from_millis(500);
/// Between two requests that nobody has answered the way we want.
const AGAIN: Duration = Duration::from_secs(5);
/// After a request that failed on its way.
const SOON: Duration = Duration::from_millis(500);
/// When something that is being deleted is looked at more closely, and how often from then on.
const SLOW: Duration = Duration::from_secs(5);

/// A node that is to go.
struct Target {
    wanted: Wanted,
    project: String,
}

/// Removes the nodes of one run.
pub(crate) struct Remover {
    feed: Arc<Feed>,
    recorder: Arc<Recorder>,
    metrics: Arc<Metrics>,
    targets: BTreeMap<NodeId, Arc<Target>>,
    deadline: Timestamp,
}

impl Remover {
    pub(crate) fn new(
        plan: &RunPlan,
        deadline: Timestamp,
        feed: Arc<Feed>,
        recorder: Arc<Recorder>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let projects: BTreeMap<&NodeId, &str> =
            plan.nodes().filter_map(|node| Some((&node.id, node.removal.as_ref()?.project.as_str()))).collect();
        let target = |wanted: Wanted| {
            let project = projects.get(&wanted.node).copied().unwrap_or_default().to_owned();
            (wanted.node.clone(), Arc::new(Target { wanted, project }))
        };
        let targets = plan.removals().into_iter().map(target).collect();
        Self { feed, recorder, metrics, targets, deadline }
    }

    /// True if the run has such a node.
    pub(crate) fn knows(&self, node: &NodeId) -> bool {
        self.targets.contains_key(node)
    }

    /// Takes a node to its end and says how it ended; nothing for a node that the run does not have.
    pub(crate) async fn remove(&self, node: &NodeId) -> Option<gate::Decision> {
        let target = self.targets.get(node)?.clone();
        if let Some(entry) = self.recorder.entry(node).filter(Entry::is_final) {
            return Some(entry.decision);
        }
        Some(Way::new(self, target).go().await)
    }

    /// Returns when a band may begin, or the run is over; gives nothing where the run has no such band.
    pub(crate) async fn opened(&self, band: usize) -> Option<()> {
        self.recorder.opened(band, self.deadline).await
    }

    /// What is said of a node before anything is read of it. One that is asked for before its time has not begun.
    fn first_answer(&self, wanted: &Wanted) -> gate::Decision {
        let living = self.dependents(wanted).into_iter().find(|(_, state)| *state != DependentState::Gone);
        match living {
            Some((node, _)) => {
                let on = Waiting::Dependent { node };
                Decision::Wait(Wait { on, until: self.deadline, since: None }).into()
            }
            None => not_asked_yet(self.deadline),
        }
    }

    fn dependents(&self, wanted: &Wanted) -> BTreeMap<NodeId, DependentState> {
        let state = |state| match state {
            PredecessorState::Proven => DependentState::Gone,
            PredecessorState::Waiting => DependentState::Living,
            PredecessorState::Failed => DependentState::Failed,
        };
        let known = self.recorder.predecessors(&wanted.dependents);
        known.into_iter().map(|(node, known)| (node, state(known))).collect()
    }
}

/// One node on its way.
struct Way<'r> {
    remover: &'r Remover,
    target: Arc<Target>,
    entry: Entry,
    states: watch::Receiver<Known>,
    /// How many nodes had failed when it was looked at last.
    failures: usize,
    /// The dependent that it waits for, by the last decision; nothing where the last look came to none.
    awaited: Option<NodeId>,
    /// What keeps it, as far as somebody looked.
    remnants: Vec<Remnant>,
    /// When that was looked at last.
    looked: Option<Instant>,
    /// When its deletion was asked for last.
    asked: Option<Instant>,
    /// For a while nobody could ask for it: whoever did is gone, or nothing may start. Its time begins anew when it is asked for.
    held_back: bool,
    /// When its Application was last read without the feed because its time was up.
    read_at: Option<Timestamp>,
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

impl<'r> Way<'r> {
    fn new(remover: &'r Remover, target: Arc<Target>) -> Self {
        let now = Timestamp::now();
        let node = &target.wanted.node;
        let fresh = || Entry {
            node: node.clone(),
            progress: gate::Progress::default(),
            decision: remover.first_answer(&target.wanted),
            since: now,
            started: None,
            healthy: None,
            asked: Vec::new(),
            withdrawn: None,
            removal: None,
        };
        let mut entry = remover.recorder.entry(node).unwrap_or_else(fresh);
        entry.started.get_or_insert(now);
        let held_back = entry.removal.as_ref().is_some_and(|progress| progress.requested.is_some());
        let states = remover.feed.subscribe(&target.wanted.application);
        Self {
            remover,
            target,
            entry,
            states,
            failures: 0,
            awaited: None,
            remnants: Vec::new(),
            looked: None,
            asked: None,
            held_back,
            read_at: None,
        }
    }

    async fn go(mut self) -> gate::Decision {
        // Whoever supervises the agent sees that this node was asked for, even where nothing can be read of it yet.
        self.remover.recorder.put(self.entry.clone());
        loop {
            self.failures = self.remover.recorder.failures();
            self.awaited = None;
            let known = self.states.borrow_and_update().clone();
            let next = match known {
                // Nothing may be decided about what was never read.
                Known::Unread if Timestamp::now() < self.remover.deadline => Next::Wait(AGAIN),
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
        let (recorder, failures, awaited) = (&self.remover.recorder, self.failures, &self.awaited);
        let moved = async {
            match awaited {
                Some(node) => recorder.moves(node, failures).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.states.changed() => {}
            () = moved => {}
            () = tokio::time::sleep(at_most) => {}
        }
    }

    fn progress(&self) -> Progress {
        self.entry.removal.clone().unwrap_or_default()
    }

    /// Looks, decides, stores, and does what is due.
    async fn step(&mut self, known: &Known) -> Next {
        let application = match self.application(known).await {
            Ok(application) => application,
            // Argo CD does not answer: nothing is known, and nothing follows from it.
            Err(next) => return next,
        };
        let clearance = match &application {
            Some(_) => None,
            None => self.remover.recorder.clearance(&self.target.wanted.node).await,
        };
        if let Some(application) = &application {
            self.look_closer(application).await;
        }
        let now = Timestamp::now();
        let mut observed = Observed {
            dependents: self.remover.dependents(&self.target.wanted),
            deadline: self.remover.deadline,
            progress: self.progress(),
            application: application.as_ref().map(|application| self.state(application)),
            clearance,
        };
        observed.progress = remember(&self.target.wanted, &observed, now);
        let decision = teardown::decide(&self.target.wanted, &observed, now);
        self.entry.removal = Some(observed.progress.clone());
        let is_early = matches!(decision, Decision::Failed(_)) && now < self.remover.deadline;
        // Where there is none, Argo CD was asked just now.
        if is_early && application.is_some() && self.is_hearsay(&observed) {
            return self.read(now).await;
        }
        // Nobody could ask for it in that time, which is no failure of the node.
        if self.held_back && matches!(decision, Decision::Failed(Why::NotDeleted { .. })) {
            let next = self.request().await;
            self.remover.recorder.put(self.entry.clone());
            return next;
        }
        self.note(&decision, now);
        self.remover.metrics.decided(&self.entry.decision);
        match decision {
            Decision::Wait(wait) => {
                if let Waiting::Dependent { node } = &wait.on {
                    self.awaited = Some(node.clone());
                }
                let longer = if self.awaited.is_some() { LAST_WORD } else { Duration::from_millis(1) };
                let until = Duration::try_from(wait.until.duration_since(now)).unwrap_or(Duration::ZERO) + longer;
                let next = self.act(&wait.on).await;
                self.remover.recorder.put(self.entry.clone());
                match next {
                    Next::Wait(at_most) => Next::Wait(at_most.min(until)),
                    other => other,
                }
            }
            Decision::Gone(_) | Decision::Failed(_) => {
                self.remover.recorder.commit(self.entry.clone()).await;
                Next::End
            }
        }
    }

    /// The Application as it is. That there is none is believed when Argo CD, asked by name, says so too: one list that came
    /// back empty says nothing (INV-10).
    async fn application(&self, known: &Known) -> Result<Option<Application>, Next> {
        match known {
            Known::Seen(application) => Ok(Some(application.as_ref().clone())),
            Known::Absent | Known::Unread => {
                let id = &self.target.wanted.application;
                match self.remover.feed.argocd().find(id, &self.target.project).await {
                    Ok(Some(application)) => {
                        self.remover.feed.offer(application.clone());
                        Ok(Some(application))
                    }
                    Ok(None) => Ok(None),
                    Err(_) if Timestamp::now() < self.remover.deadline => Err(Next::Wait(SOON)),
                    // The end of the run is the end of every wait.
                    Err(_) => Ok(None),
                }
            }
        }
    }

    fn is_hearsay(&self, observed: &Observed) -> bool {
        let has_failed = |then| matches!(teardown::decide(&self.target.wanted, observed, then), Decision::Failed(_));
        self.remover.feed.is_hearsay(self.read_at, has_failed)
    }

    /// Reads the Application as Argo CD itself shows it now. That there is none only a list can tell, and one comes soon.
    async fn read(&mut self, now: Timestamp) -> Next {
        let Target { wanted, project } = &*self.target;
        let Ok(Some(application)) = self.remover.feed.argocd().find(&wanted.application, project).await else {
            return Next::Wait(SOON);
        };
        self.remover.feed.offer(application);
        self.read_at = Some(now);
        Next::Again
    }

    /// Something that takes its time is looked at: what keeps it is named.
    async fn look_closer(&mut self, application: &Application) {
        let since = self.progress().deleting_since.filter(|_| application.deleting);
        let slow = since.is_some_and(|since| {
            Duration::try_from(Timestamp::now().duration_since(since)).is_ok_and(|age| age >= SLOW)
        });
        if !slow || self.looked.is_some_and(|at| at.elapsed() < SLOW) {
            return;
        }
        self.looked = Some(Instant::now());
        // What cannot be looked at is told by the next look.
        if let Ok(found) = self.remover.feed.argocd().remnants(&application.id).await {
            self.remnants = found;
        }
    }

    fn state(&self, application: &Application) -> ApplicationState {
        ApplicationState {
            uid: application.uid.clone(),
            deleting: application.deleting,
            in_flight: application.in_flight,
            error: application.deletion_error.clone(),
            creator: application.creator.clone(),
            remnants: self.remnants.clone(),
        }
    }

    /// Keeps the answer, and since when it is the answer.
    fn note(&mut self, decision: &Decision, now: Timestamp) {
        let decision = gate::Decision::from(decision.clone());
        let same = match (&self.entry.decision, &decision) {
            (gate::Decision::Wait(before), gate::Decision::Wait(after)) => before.on == after.on,
            (before, after) => before == after,
        };
        if !same {
            self.entry.since = now;
        }
        self.entry.decision = decision;
    }

    /// Does what is due, once.
    async fn act(&mut self, on: &Waiting) -> Next {
        match on {
            Waiting::Request => self.request().await,
            // A request that does not show is sent again: it asks for the same thing.
            Waiting::Shown { .. } if self.asked.is_none_or(|at| at.elapsed() >= AGAIN) => self.request().await,
            Waiting::Dependent { .. } => Next::Wait(AGAIN),
            Waiting::Deletion { .. } => Next::Wait(SLOW),
            Waiting::Shown { .. } | Waiting::Operation | Waiting::Clearance | Waiting::Members { .. } => {
                Next::Wait(POLL)
            }
        }
    }

    async fn request(&mut self) -> Next {
        // Somebody may have stopped the run since this node was asked for: then nothing new goes.
        if !self.remover.recorder.may_start().await {
            self.held_back = true;
            return Next::Wait(SOON);
        }
        let (id, project) = (self.target.wanted.application.clone(), self.target.project.clone());
        let argocd = self.remover.feed.argocd();
        // What the feed shows may be older than what is: exactly the one that was planned is deleted, or none.
        let sent = match argocd.find(&id, &project).await {
            Ok(Some(found)) if Some(&found.uid) == self.target.wanted.uid.as_ref() && !found.deleting => {
                argocd.delete(&id, &project, true).await
            }
            Ok(Some(found)) => {
                self.remover.feed.offer(found);
                return Next::Wait(SOON);
            }
            Ok(None) => return Next::Wait(SOON),
            Err(error) => Err(error),
        };
        let (now, mut progress) = (Timestamp::now(), self.progress());
        self.asked = Some(Instant::now());
        match sent {
            Ok(()) => progress.refused = None,
            // It may have arrived all the same.
            Err(error) if error.is_transient() => {}
            Err(error) => progress.refused = Some(error.to_string()),
        }
        if progress.requested.is_none() {
            self.entry.asked.push(Asked { attempt: 1, at: now });
        }
        if progress.requested.is_none() || self.held_back {
            progress.requested = Some(now);
        }
        self.held_back = false;
        self.entry.removal = Some(progress);
        Next::Again
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use axum::http::{Method, StatusCode};
    use forge_core::duration;
    use forge_core::gate::Timeouts;
    use forge_core::run::{CLEARANCE_KEY, HEADER_KEY, Header, record_name};
    use forge_core::teardown::{Clearance, Removal};
    use jiff::SignedDuration;
    use secrecy::SecretString;
    use serde_json::{Value, json};

    use super::*;
    use crate::argocd::ArgoCd;
    use crate::cluster::fake::{Fake, served};
    use crate::cluster::path;
    use crate::run::sample;

    /// An Application that is to go, and the Argo CD that has it.
    #[derive(Default)]
    struct Going {
        deleting: bool,
        gone: bool,
        /// When it was listed once, nothing is answered until it was asked for so often; then it is gone.
        silent: usize,
        lists: watch::Sender<usize>,
        deletions: usize,
    }

    impl Going {
        fn answer(&mut self, method: &Method, path: &str) -> Result<Value, StatusCode> {
            let is_one = path == "/api/v1/applications/db";
            if self.silent > 0 && *self.lists.borrow() > 0 {
                if is_one {
                    self.silent -= 1;
                    self.gone = self.silent == 0;
                }
                return Err(StatusCode::INTERNAL_SERVER_ERROR);
            }
            let mut application =
                json!({"metadata": {"namespace": "argocd", "name": "db", "uid": "1", "resourceVersion": "1"}});
            if self.deleting {
                application["metadata"]["deletionTimestamp"] = json!("2026-11-16T12:00:00Z");
            }
            match (method.as_str(), path) {
                ("GET", "/api/v1/applications") => {
                    self.lists.send_modify(|times| *times += 1);
                    let items = if self.gone { Vec::new() } else { vec![application] };
                    Ok(json!({"metadata": {}, "items": items}))
                }
                ("GET", _) if is_one && !self.gone => Ok(application),
                ("DELETE", _) if is_one => {
                    self.gone = true;
                    self.deletions += 1;
                    Ok(json!({}))
                }
                _ => Err(StatusCode::NOT_FOUND),
            }
        }
    }

    /// A run that removes one node, whose deletion must show and end within so many seconds.
    fn plan(seconds: u64) -> RunPlan {
        let removal = Removal { uid: Some("1".to_owned()), project: "dev".to_owned(), ..Removal::default() };
        let mut plan = sample::teardown("db", removal);
        let patience = duration::Duration::from_seconds(seconds);
        plan.tasks[0].node.as_mut().unwrap().timeouts = Timeouts { sync: patience, health: patience };
        plan
    }

    /// The run as it is in a cluster, where this holder has the Lease and all that the node had made is gone.
    async fn removing(plan: &Arc<RunPlan>, holder: &str, going: Arc<Mutex<Going>>) -> (Remover, Arc<Mutex<Fake>>) {
        let node: NodeId = "argocd/db".parse().unwrap();
        let header = serde_json::to_string(&Header::new(plan, Timestamp::now())).unwrap();
        let cleared = serde_json::to_string(&BTreeMap::from([(node, Clearance::default())])).unwrap();
        let data = json!({HEADER_KEY: header, CLEARANCE_KEY: cleared});
        let mut fake = Fake::default();
        fake.put(&path::config_maps("argo"), json!({"metadata": {"name": record_name(&plan.run, 0)}, "data": data}));
        sample::put_lease(&mut fake, holder, Timestamp::now());
        let (cluster, fake) = served(fake).await;
        let recorder = Recorder::open(&cluster, "argo", plan.clone()).await.unwrap();
        let answer =
            move |method: &Method, uri: &axum::http::Uri, _: &Value| going.lock().unwrap().answer(method, uri.path());
        let address = crate::prove::fake::argocd(answer).await;
        let argocd = ArgoCd::at(&address, SecretString::from("t".to_owned()), None).unwrap();
        let deadline = plan.deadline(Timestamp::now());
        (Remover::new(plan, deadline, Feed::start(argocd), recorder, Arc::new(Metrics::default())), fake)
    }

    #[tokio::test]
    async fn time_that_is_up_while_argo_cd_cannot_be_read_does_not_fail_what_goes() {
        let plan = Arc::new(plan(2));
        let going = Arc::new(Mutex::new(Going { deleting: true, silent: 2, ..Going::default() }));
        let (remover, _) = removing(&plan, plan.run.as_str(), going).await;
        let node = "argocd/db".parse().unwrap();
        let decision = tokio::time::timeout(Duration::from_secs(60), remover.remove(&node)).await.unwrap();
        assert!(matches!(decision, Some(gate::Decision::Gone(_))), "{decision:?}");
    }

    #[tokio::test]
    async fn time_in_which_nobody_may_ask_for_a_deletion_does_not_count_against_the_node() {
        let plan = Arc::new(plan(2));
        let going = Arc::new(Mutex::new(Going::default()));
        let mut lists = going.lock().unwrap().lists.subscribe();
        let (remover, fake) = removing(&plan, "", going.clone()).await;
        let node: NodeId = "argocd/db".parse().unwrap();
        // What a process leaves behind that asked, and was not heard.
        let mut entry = Way::new(&remover, remover.targets[&node].clone()).entry;
        let asked = Timestamp::now() - SignedDuration::from_hours(1);
        entry.removal = Some(Progress { requested: Some(asked), ..Progress::default() });
        remover.recorder.put(entry);
        let mut going_on = std::pin::pin!(remover.remove(&node));
        let patience = Duration::from_secs(30);
        let listed = tokio::time::timeout(patience, lists.wait_for(|times| *times >= 20));
        tokio::select! {
            decision = &mut going_on => panic!("{decision:?}"),
            listed = listed => drop(listed.unwrap().unwrap()),
        }
        assert_eq!(going.lock().unwrap().deletions, 0);
        sample::put_lease(&mut fake.lock().unwrap(), plan.run.as_str(), Timestamp::now());
        let decision = tokio::time::timeout(patience, going_on).await.unwrap();
        assert!(matches!(decision, Some(gate::Decision::Gone(_))), "{decision:?}");
        assert_eq!(going.lock().unwrap().deletions, 1);
    }
}
