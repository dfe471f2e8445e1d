//! Conducts a run: window, Workflow, agent pod, header, end (SPEC.md sections 4 and 6). What the Job does, and `--local`.
//!
//! Everything that it knows is in the cluster, so it can die at any moment and begin again: the first thing it does is to
//! read where the run stands. Loss of infrastructure is not a node's failure: what a lost Workflow left open is submitted
//! again under the same run.

mod finish;
mod removal;
mod workflow;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use forge_core::code::{Class, Code};
use forge_core::failure::Failure;
use forge_core::gate::RunId;
use forge_core::name::{ApplicationId, NodeId, clip};
use forge_core::render;
use forge_core::run::{
    CANCEL_KEY, Ended, Entry, HEADER_KEY, Header, NodeView, Phase, Record, RunAction, RunPlan, Verdict, record_name,
    result,
};
use forge_core::teardown::Clearance;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout_at};

use finish::Finish;
use workflow::{Followed, Found, leaves_out};

use super::agent::{self, Supervisor};
use super::lease::{self, Renewal};
use super::pieces::Pieces;
use super::window::{self, Window};
use super::{Place, job, keep};
use crate::argocd::ArgoCd;
use crate::cluster::{Store, path};
use crate::metrics::Metrics;
use crate::recorder::write_piece;
use crate::serve;
use crate::teardown::{Clearing, Teardown};

/// Between two writes of the window, at least.
const WINDOW_PACE: Duration = Duration::from_millis(250);
/// Between two of them for each task: a window is written whole, and read whole by Argo CD.
const WINDOW_PACE_OF_TASK: Duration = Duration::from_millis(1);
/// How long changes are gathered, for each task.
const GATHERED: Duration = Duration::from_micros(500);
/// How often what nobody tells of is looked at.
const TICK: Duration = Duration::from_secs(1);
/// Comparisons of proven nodes at a time.
const REFRESHES: usize = 3;
/// How many more when the run has ended, and nothing else is compared.
const LAST_REFRESHES: usize = 50;
/// How long a request for a comparison may take then: Argo CD writes the wish down before it compares.
const ASKED: Duration = Duration::from_secs(2);
/// How long a Workflow that was stopped may take to end before the run ends without it.
const STOPPING: Duration = Duration::from_secs(60);
/// How long the API server may be away. The run goes on where it was: nothing is lost but time.
const OUTAGE: Duration = Duration::from_secs(6 * 3600);
/// How long a refusal may last. An API server that has just started refuses everybody, and a conflict settles.
const REFUSALS: Duration = Duration::from_secs(60);
/// How long Argo CD's server may be away where it is needed: it restarts, or another pod takes its place.
const RESTART: Duration = Duration::from_secs(300);

/// Conducts a run to its end and says how it ended.
///
/// # Errors
/// When the run cannot be conducted: its plan is broken, its Lease is lost, the window is contested, or the account may
/// not do what it takes.
pub(crate) async fn conduct(
    place: &Place,
    argocd: &ArgoCd,
    run: &RunId,
    metrics: &Metrics,
    teardown: Option<&Teardown<'_>>,
) -> Result<Verdict, Failure> {
    let plan = Arc::new(patiently(|| serve::plan(&place.cluster, &place.places.workflows, run)).await?);
    if (plan.action == RunAction::Teardown) != teardown.is_some() {
        let message = format!("run `{run}` is a {} and cannot be conducted as another", plan.action.as_str());
        return Err(Failure::new(Code::RunBroken, message).hint("tear down again: what is gone stays gone"));
    }
    let header = patiently(|| serve::header(&place.cluster, &place.places.workflows, run)).await?;
    if let Some(ended) = header.as_ref().and_then(|header| header.ended.as_ref()) {
        return Ok(ended.verdict);
    }
    let renewed = || async { lease::renew(place, &plan.environment, &plan.run).await.map_err(Failure::from) };
    if let Renewal::Lost(to) = patiently(renewed).await? {
        return Err(lease_lost(&plan, &to));
    }
    let header = header.unwrap_or_else(|| Header::new(&plan, Timestamp::now()));
    let mut conductor = Conductor::new(place, argocd, plan.clone(), header, teardown);
    conductor.save().await?;
    let outcome = tokio::select! {
        outcome = conductor.go(metrics) => outcome,
        lost = hold_lease(place, &plan) => Err(lost),
    };
    // However it ended, nothing is deleted any more; but what another run has taken over is that one's.
    // A write that somebody else was always quicker with says the same and is no loss of the run.
    let contested = outcome.as_ref().is_err_and(|failure| failure.code == Code::RunInProgress);
    let taken_over = contested && !is_still_ours(place, &plan).await;
    if let Some(teardown) = teardown.filter(|_| !taken_over)
        && let Some(why) = teardown.give_back().await
    {
        conductor.header.trouble = Some(why);
    }
    match outcome {
        Ok((verdict, message)) => {
            conductor.end(verdict, message).await?;
            Ok(verdict)
        }
        // Another run has taken over: what it finds is its own to end.
        Err(failure) if taken_over => Err(failure),
        Err(failure) => {
            conductor.abandon(&failure, metrics).await?;
            Err(failure)
        }
    }
}

fn lease_lost(plan: &RunPlan, to: &str) -> Failure {
    Failure::new(Code::RunInProgress, format!("run `{}` lost its Lease to `{to}`", plan.run))
        .hint("another run has taken over; nothing of this one goes on")
}

/// Asks until there is an answer; only what does not help to ask again is a failure.
async fn patiently<T, F: Future<Output = Result<T, Failure>>>(ask: impl Fn() -> F) -> Result<T, Failure> {
    let mut pause = Duration::from_millis(200);
    let begun = Instant::now();
    // Each reason has a time of its own: Argo CD may be away a little longer than the API server.
    let (mut start, mut before) = (begun, None);
    loop {
        let answer = ask().await;
        let code = answer.as_ref().err().map(|failure| failure.code);
        if code != before {
            (start, before) = (Instant::now(), code);
        }
        let patience = match code {
            Some(Code::Unreachable) => OUTAGE,
            Some(Code::ArgoUnreachable) => RESTART,
            // Of requests that are asked here only a conflict of writes says so.
            Some(Code::Forbidden | Code::RunInProgress) => REFUSALS,
            _ => return answer,
        };
        if start.elapsed() >= patience || begun.elapsed() >= OUTAGE {
            return answer;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(3));
    }
}

/// Whether nobody else has the Lease of a run; where that cannot be told somebody may.
async fn is_still_ours(place: &Place, plan: &RunPlan) -> bool {
    matches!(lease::renew(place, &plan.environment, &plan.run).await, Ok(Renewal::Ours))
}

async fn hold_lease(place: &Place, plan: &RunPlan) -> Failure {
    loop {
        match lease::renew(place, &plan.environment, &plan.run).await {
            Ok(Renewal::Lost(to)) => return lease_lost(plan, &to),
            Ok(Renewal::Ours) | Err(_) => tokio::time::sleep(lease::RENEWED).await,
        }
    }
}

/// Has Argo CD compare an Application. A few at a time: comparisons of what is proven must not slow down those of what is not.
/// Whoever is in a hurry waits until the wish is written down, and no longer.
async fn compared(argocd: &ArgoCd, id: &ApplicationId, turns: &Semaphore, mut hurry: watch::Receiver<bool>) {
    let _turn = turns.acquire().await;
    let asked = async {
        for _ in 0..5 {
            match argocd.refresh(id).await {
                Err(error) if error.is_transient() => tokio::time::sleep(Duration::from_secs(1)).await,
                _ => break,
            }
        }
    };
    let hurried = async {
        // It cannot be closed while somebody waits for this.
        let _ = hurry.wait_for(|hurry| *hurry).await;
        tokio::time::sleep(ASKED).await;
    };
    tokio::select! {
        () = asked => {}
        () = hurried => {}
    }
}

struct Conductor<'c> {
    place: &'c Place,
    argocd: &'c ArgoCd,
    plan: Arc<RunPlan>,
    /// Its nodes.
    known: BTreeSet<NodeId>,
    header: Header,
    config_maps: Store,
    workflows: Store,
    pods: Store,
    supervisor: Supervisor,
    cancelled: Option<String>,
    /// By the deadline of its Job, and by nobody who wanted that.
    is_overdue: bool,
    /// When the Workflow was asked to stop.
    stopping: Option<Instant>,
    last_window: Instant,
    window_due: bool,
    seen_workflow: bool,
    /// The Workflow will never ask for nodes that may start.
    stranded: bool,
    /// How far the run was when its Workflow was lost last, and how often it was lost there.
    in_vain: Option<(usize, u32)>,
    /// The last look before the end, while it lasts.
    finish: Option<Finish>,
    refreshing: Arc<Semaphore>,
    /// For comparisons that the end of the run waits for: they do not queue behind the others.
    relooking: Arc<Semaphore>,
    refreshes: Vec<tokio::task::JoinHandle<()>>,
    /// The run has ended: comparisons are asked for, and not waited for.
    hurry: watch::Sender<bool>,
    /// Where the run stands, until something changes.
    standing: RefCell<Option<Rc<Standing>>>,
    /// The entries of the record as they were read last; empty while `standing` has them.
    entries: RefCell<BTreeMap<NodeId, Entry>>,
    /// What they were read from.
    pieces: RefCell<Pieces>,
    /// What is done around nodes that are to go.
    teardown: Option<&'c Teardown<'c>>,
    /// What they had made is looked for here.
    clearing: Option<Clearing>,
    /// What that came to.
    clearances: BTreeMap<NodeId, Clearance>,
    /// When what is stopped was looked at last.
    meanwhile: Instant,
}

/// The record and what follows from it.
struct Standing {
    record: Record,
    views: Vec<NodeView>,
}

impl<'c> Conductor<'c> {
    fn new(
        place: &'c Place,
        argocd: &'c ArgoCd,
        plan: Arc<RunPlan>,
        header: Header,
        teardown: Option<&'c Teardown<'c>>,
    ) -> Self {
        // One that was submitted and is not there any more was deleted, even where this process did not see it.
        let seen_workflow = header.workflow.as_deref() == Some(&render::workflow_name(&plan.run, header.resubmitted));
        Self {
            place,
            argocd,
            known: plan.names(),
            plan,
            header,
            config_maps: Store::new(),
            workflows: Store::new(),
            pods: Store::new(),
            supervisor: Supervisor::default(),
            cancelled: None,
            is_overdue: false,
            stopping: None,
            last_window: Instant::now(),
            window_due: false,
            seen_workflow,
            stranded: false,
            in_vain: None,
            finish: None,
            refreshing: Arc::new(Semaphore::new(REFRESHES)),
            relooking: Arc::new(Semaphore::new(REFRESHES)),
            refreshes: Vec::new(),
            hurry: watch::Sender::new(false),
            standing: RefCell::default(),
            entries: RefCell::default(),
            pieces: RefCell::default(),
            teardown,
            clearing: teardown.map(|_| Clearing::new(&place.cluster)),
            clearances: BTreeMap::new(),
            meanwhile: Instant::now(),
        }
    }
}

impl Conductor<'_> {
    async fn go(&mut self, metrics: &Metrics) -> Result<(Verdict, Option<String>), Failure> {
        let selector = Place::of(&self.plan.run);
        let cluster = &self.place.cluster;
        let namespace = &self.place.places.workflows;
        let mut config_maps = cluster.watch(&path::config_maps(namespace), &selector);
        let mut workflows = cluster.watch_for::<Followed>(&self.place.workflows(), &selector);
        let mut pods = cluster.watch(&path::core(namespace, "pods"), "workflows.argoproj.io/component=agent");
        // Where the run stands comes first: a process that begins again must not take proven nodes for open ones.
        for (watch, store) in [(&mut config_maps, &mut self.config_maps), (&mut workflows, &mut self.workflows)] {
            while !watch.keep(store).await {
                watch.refused().map_or(Ok(()), Err)?;
            }
        }
        self.supersede().await?;
        let open = self.unproven();
        let entered = patiently(|| Window::enter(self.place, self.argocd, &self.plan, &open, window::PATIENCE)).await?;
        let window = entered.window;
        self.refresh(&entered.left);
        if self.header.not_held != entered.not_held {
            self.header.not_held = entered.not_held;
            self.save().await?;
        }
        self.before_removal().await?;
        let mut tick = tokio::time::interval(TICK);
        loop {
            if let Some(end) = self.advance().await? {
                self.settle_window(&window).await?;
                self.tell_age(&window, metrics);
                return self.after_removal(end).await;
            }
            self.look_for_members();
            if self.window_due && self.last_window.elapsed() >= self.window_pace() {
                self.update_window(&window).await;
            }
            self.tell_age(&window, metrics);
            let pace = self.last_window + self.window_pace();
            tokio::select! {
                changed = config_maps.keep(&mut self.config_maps) => {
                    self.window_due |= changed;
                    let until = Instant::now() + self.gathered();
                    while let Ok(changed) = timeout_at(until, config_maps.keep(&mut self.config_maps)).await {
                        self.window_due |= changed;
                    }
                    self.changed();
                }
                _ = workflows.keep(&mut self.workflows) => {}
                _ = pods.keep(&mut self.pods) => {}
                (node, clearance) = removal::cleared(self.clearing.as_mut()) => self.keep_clearance(node, clearance).await?,
                () = tokio::time::sleep_until(pace), if self.window_due => {}
                _ = tick.tick() => {
                    self.tick().await?;
                    // Looked at again in a moment where the cluster does not answer.
                    self.window_due |= window.unwedge(self.argocd).await.unwrap_or(false);
                }
            }
        }
    }

    /// How long changes are gathered: what follows from them takes longer the more nodes there are.
    fn gathered(&self) -> Duration {
        self.for_each_task(GATHERED).min(WINDOW_PACE * 2)
    }

    /// Between two writes of the window. All of them together cost what the tasks cost, not what their square does.
    fn window_pace(&self) -> Duration {
        self.for_each_task(WINDOW_PACE_OF_TASK).clamp(WINDOW_PACE, WINDOW_PACE * 8)
    }

    fn for_each_task(&self, time: Duration) -> Duration {
        time.saturating_mul(u32::try_from(self.plan.tasks.len()).unwrap_or(u32::MAX))
    }

    /// Where the run stands. Worked out once for each change: at a thousand nodes it is a megabyte of text.
    fn standing(&self) -> Rc<Standing> {
        if let Some(standing) = &*self.standing.borrow() {
            return standing.clone();
        }
        let mut entries = self.entries.take();
        self.pieces.borrow_mut().update(&self.config_maps, &self.known, &mut entries);
        let record = Record { header: self.header.clone(), entries };
        let views = record.view(&self.plan);
        let standing = Rc::new(Standing { record, views });
        self.standing.replace(Some(standing.clone()));
        standing
    }

    /// Something has changed: where the run stands is worked out again, from what is known and what is new.
    fn changed(&self) {
        let Some(standing) = self.standing.take() else { return };
        if let Ok(standing) = Rc::try_unwrap(standing) {
            self.entries.replace(standing.record.entries);
        } else {
            // Somebody still looks at it: everything is read again.
            self.entries.take();
            self.pieces.take();
        }
    }

    /// What the window must hold: everything that is not proven, but for what was found proven before the run began.
    fn unproven(&self) -> BTreeSet<NodeId> {
        let standing = self.standing();
        standing.views.iter().filter(|view| self.is_held(view)).map(|view| view.node.clone()).collect()
    }

    fn is_held(&self, view: &NodeView) -> bool {
        match view.phase {
            Phase::Proven | Phase::Gone => false,
            Phase::Failed | Phase::Blocked => true,
            _ => !self.plan.passed.contains(&view.node),
        }
    }

    /// How old the window is. What it holds when the run has ended counts too: it stays there until somebody deploys again.
    fn tell_age(&self, window: &Window, metrics: &Metrics) {
        let age = Timestamp::now().duration_since(self.header.started).as_secs();
        metrics.window_age(if window.is_holding() { age } else { 0 });
    }

    /// Lets proven nodes leave the window, and Argo CD look at them at once.
    async fn update_window(&mut self, window: &Window) {
        self.last_window = Instant::now();
        match window.hold(&self.unproven()).await {
            Ok(left) => {
                self.window_due = false;
                self.refresh(&left);
                self.held_after_all(window).await;
            }
            // Tried again with the next tick.
            Err(_) => self.window_due = true,
        }
    }

    /// What could not enter at first and is inside now is not said to be missing any more.
    async fn held_after_all(&mut self, window: &Window) {
        let open = self.unproven();
        // What was proven outside was never held.
        let is_held = |node: &NodeId| window.may_hold(node) && open.contains(node);
        if window.is_incomplete() || !self.header.not_held.keys().any(is_held) {
            return;
        }
        self.header.not_held.retain(|node, _| !is_held(node));
        // If it cannot be stored now, it is with whatever is stored of the run next.
        let _ = self.save().await;
    }

    /// After a window has gone nothing happens until the Application is compared again: asked for, not waited for.
    fn refresh(&mut self, nodes: &[NodeId]) {
        if self.plan.action != RunAction::Teardown {
            self.compare(nodes, self.refreshing.clone());
        }
    }

    /// What fell at the end is compared again: how the run ended depends on it, and on nothing that left the window before.
    fn relook(&mut self, nodes: &[NodeId]) {
        self.compare(nodes, self.relooking.clone());
    }

    fn compare(&mut self, nodes: &[NodeId], turns: Arc<Semaphore>) {
        let of = self.plan.nodes().filter(|node| nodes.contains(&node.id));
        let applications: Vec<ApplicationId> = of.map(|node| node.application.clone()).collect();
        let (argocd, hurry) = (self.argocd.clone(), self.hurry.subscribe());
        self.refreshes.push(tokio::spawn(async move {
            let all = applications.iter().map(|id| compared(&argocd, id, &turns, hurry.clone()));
            futures::future::join_all(all).await;
        }));
    }

    /// Waits until Argo CD was asked about everything that left: with the process the asking would end too.
    async fn refreshed(&mut self) {
        self.hurry.send_replace(true);
        self.refreshing.add_permits(LAST_REFRESHES);
        self.relooking.add_permits(LAST_REFRESHES);
        let all = futures::future::join_all(self.refreshes.drain(..));
        let _ = tokio::time::timeout(Duration::from_secs(60), all).await;
    }

    /// The window as it must be when the run has ended.
    async fn settle_window(&mut self, window: &Window) -> Result<(), Failure> {
        let open = self.unproven();
        let settled = patiently(|| window.settle(self.argocd, &open, window::LAST_PATIENCE)).await?;
        // Stored with the end of the run.
        self.header.not_held.retain(|node, _| !(window.may_hold(node) && open.contains(node)));
        self.header.not_held.extend(settled.not_held);
        self.refresh(&settled.left);
        self.refreshed().await;
        Ok(())
    }

    async fn save(&self) -> Result<(), Failure> {
        let data = json!({HEADER_KEY: serde_json::to_string(&self.header).unwrap_or_default()});
        let name = record_name(&self.plan.run, 0);
        let namespace = &self.place.places.workflows;
        let write = || async {
            write_piece(&self.place.cluster, namespace, &self.plan, &name, &data).await.map_err(Failure::from)
        };
        patiently(write).await
    }

    async fn end(&mut self, verdict: Verdict, message: Option<String>) -> Result<(), Failure> {
        self.header.ended = Some(Ended { at: Timestamp::now(), verdict, message });
        self.save().await?;
        // The next run can do without both.
        let _ = lease::release(self.place, &self.plan.environment, &self.plan.run).await;
        let _ = keep::last_runs(self.place, &self.plan.environment, &self.plan.run).await;
        Ok(())
    }

    /// Ends a run that cannot be conducted any further: nothing new starts, and the window is as right as it can be made.
    async fn abandon(&mut self, failure: &Failure, metrics: &Metrics) -> Result<(), Failure> {
        let _ = self.stop_once().await;
        let open = self.unproven();
        if let Ok(Ok(entered)) = tokio::time::timeout(
            STOPPING,
            Window::enter(self.place, self.argocd, &self.plan, &open, window::LAST_PATIENCE),
        )
        .await
        {
            self.header.not_held = entered.not_held;
            self.refresh(&entered.left);
            self.refreshed().await;
            self.tell_age(&entered.window, metrics);
        }
        let verdict = match result(&self.plan, &self.standing().record, false) {
            // Whoever follows it is told what to do about that: the run itself cannot do anything.
            _ if failure.code.class() == Class::Conflict => Verdict::Conflict,
            // All nodes are gone, and what comes after them did not get to its end: whoever begins again takes it up from here.
            Verdict::Done if self.plan.action == RunAction::Teardown => match failure.code.class() {
                Class::Timeout => Verdict::TimedOut,
                _ => Verdict::Failed,
            },
            verdict => verdict,
        };
        let message = match (verdict, &failure.hint) {
            (Verdict::Conflict, Some(hint)) => format!("{} {}: {hint}", failure.code, failure.message),
            _ => failure.message.clone(),
        };
        self.end(verdict, Some(message)).await
    }

    /// Brings the run one step on; gives its end when there is one.
    async fn advance(&mut self) -> Result<Option<(Verdict, Option<String>)>, Failure> {
        self.note_cancellation();
        let standing = self.standing();
        let record = &standing.record;
        let is_open = |view: &&NodeView| !view.phase.is_over();
        let open = standing.views.iter().filter(is_open).count();
        if open == 0 {
            // All is said. Argo Workflows may not have noticed yet: it will, and nothing waits for it.
            return self.finished(record).await;
        }
        self.finish = None;
        let Some(mut found) = self.workflow().map(Found::of) else {
            if let Some(why) = &self.cancelled {
                return Ok(Some((self.called_off(record), Some(why.clone()))));
            }
            // What is followed may lag behind what was just submitted.
            if self.seen_workflow && !self.read_workflow().await? {
                let message = "its Workflow was deleted".to_owned();
                return Ok(Some((result(&self.plan, record, true), Some(message))));
            }
            if !self.seen_workflow {
                self.submit().await?;
            }
            return Ok(None);
        };
        self.seen_workflow = true;
        let late = Timestamp::now() > self.header.deadline;
        let given_up = self.stopping.is_some_and(|since| since.elapsed() > STOPPING);
        let is_cancelled = self.cancelled.is_some();
        if found.ended || given_up || (is_cancelled && self.stopping.is_none()) {
            // How it was asked to end, and what it says about that, is not followed.
            self.read_workflow().await?;
            found = self.workflow().map_or(found, Found::of);
        }
        if !found.ended && !given_up {
            if is_cancelled && found.stopped.is_some() {
                // Asked already, by this run before it was started again, or by somebody who may have asked for more.
                self.stopping.get_or_insert_with(Instant::now);
            } else if is_cancelled {
                self.stop_once().await?;
            }
            // Who stopped it wants no other one.
            if std::mem::take(&mut self.stranded) && self.stopping.is_none() && found.stopped.is_none() {
                self.supervisor = Supervisor::default();
                let end = self.lost(record, "it left out nodes that may start").await?;
                if end.is_some() {
                    self.stop_once().await?;
                }
                return Ok(end);
            }
            return Ok(None);
        }
        if late && self.cancelled.is_none() {
            return Ok(Some((Verdict::TimedOut, Some("the run took too long".to_owned()))));
        }
        if found.stopped.is_some() || given_up {
            let how = found.stopped.unwrap_or_default();
            let by = self.cancelled.clone().unwrap_or_else(|| format!("its Workflow was stopped ({how})"));
            return Ok(Some((self.called_off(record), Some(by))));
        }
        self.lost(record, &found.message).await
    }

    fn note_cancellation(&mut self) {
        let name = format!("{}/{}", self.place.places.workflows, record_name(&self.plan.run, 0));
        let wish =
            self.config_maps.get(&name).and_then(|found| found.get("data")).and_then(|data| data.get(CANCEL_KEY));
        if let (Some(by), None) = (wish.and_then(Value::as_str), &self.cancelled) {
            self.is_overdue = by == job::DEADLINE;
            self.cancelled = Some(if self.is_overdue {
                format!("the run took too long: {by} ended it")
            } else {
                format!("cancelled by {}", clip(by))
            });
        }
    }

    /// How a run ends that was told to.
    fn called_off(&self, record: &Record) -> Verdict {
        match result(&self.plan, record, true) {
            Verdict::Cancelled if self.is_overdue => Verdict::TimedOut,
            verdict => verdict,
        }
    }

    /// What nobody tells of: a stuck agent, a deadline that nobody kept.
    async fn tick(&mut self) -> Result<(), Failure> {
        self.meanwhile().await?;
        self.window_due |= self.last_window.elapsed() > Duration::from_secs(15);
        let late = self.header.deadline.saturating_add(SignedDuration::from_secs(120)).unwrap_or(Timestamp::MAX);
        if Timestamp::now() > late {
            self.stop_once().await?;
        }
        let name = render::workflow_name(&self.plan.run, self.header.resubmitted);
        let of = |pod: &&Value| {
            let label = pod.pointer("/metadata/labels/workflows.argoproj.io~1workflow").and_then(Value::as_str);
            label == Some(name.as_str())
        };
        let pods: Vec<Value> = self.pods.values().filter(of).cloned().collect();
        let standing = self.standing();
        let now = Instant::now().into_std();
        let Some(stuck) = self.supervisor.stuck(&standing.views, &pods, now) else { return Ok(()) };
        drop(standing);
        self.read_workflow().await?;
        if self.workflow().is_some_and(|workflow| workflow.pointer("/spec/suspend") == Some(&json!(true))) {
            // Somebody wants a pause: nothing is asked for, and nobody is to blame.
            self.supervisor = Supervisor::default();
            return Ok(());
        }
        if self.workflow().is_some_and(|workflow| leaves_out(workflow, &stuck.unasked)) {
            // Another agent would not be told of them either.
            self.stranded = true;
            return Ok(());
        }
        // Where it cannot be deleted it is looked at again in a moment, and the header says why the run stands.
        let what = match agent::delete(self.place, &stuck.pod).await {
            Ok(()) => {
                self.header.agents_replaced += 1;
                "it was replaced".to_owned()
            }
            Err(error) => format!("it could not be replaced: {error}"),
        };
        self.header.trouble = Some(format!("{}; {what}", stuck.why));
        self.save().await
    }
}

#[cfg(test)]
mod tests;
