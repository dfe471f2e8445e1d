//! Conducts a run: window, Workflow, agent pod, header, end (SPEC.md sections 4 and 6). What the Job does, and `--local`.
//!
//! Everything that it knows is in the cluster, so it can die at any moment and begin again: the first thing it does is to
//! read where the run stands. Loss of infrastructure is not a node's failure: what a lost Workflow left open is submitted
//! again under the same run.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use forge_core::code::Code;
use forge_core::failure::Failure;
use forge_core::gate::{Decision, Health, RunId, Why};
use forge_core::name::{ApplicationId, NodeId};
use forge_core::render;
use forge_core::run::{
    CANCEL_KEY, Ended, HEADER_KEY, Header, NodeView, Phase, Record, RunPlan, Verdict, entry_key, entry_piece,
    record_name, result, shortened,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::agent::{self, Supervisor};
use super::lease::{self, Renewal};
use super::window::{self, Window};
use super::{Place, keep};
use crate::argocd::ArgoCd;
use crate::cluster::{ClusterError, Store, path};
use crate::metrics::Metrics;
use crate::recorder::{read_entries, write_piece};
use crate::serve;

/// Between two writes of the window.
const WINDOW_PACE: Duration = Duration::from_millis(250);
/// How often what nobody tells of is looked at.
const TICK: Duration = Duration::from_secs(1);
/// How long everything must stay well before a run is done.
const STEADY: Duration = Duration::from_secs(5);
/// How long that may take.
const GIVE_UP: Duration = Duration::from_secs(45);
/// How often a lost Workflow is submitted again.
const MOST_RESUBMISSIONS: u32 = 30;

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
) -> Result<Verdict, Failure> {
    let plan = Arc::new(patiently(|| serve::plan(&place.cluster, &place.places.workflows, run)).await?);
    let header = patiently(|| serve::header(&place.cluster, &place.places.workflows, run)).await?;
    if let Some(ended) = header.as_ref().and_then(|header| header.ended.as_ref()) {
        return Ok(ended.verdict);
    }
    let now = Timestamp::now();
    let header = header.unwrap_or_else(|| Header::new(&plan, now));
    let mut conductor = Conductor {
        place,
        argocd,
        plan: plan.clone(),
        header,
        config_maps: Store::new(),
        workflows: Store::new(),
        pods: Store::new(),
        supervisor: Supervisor::default(),
        cancelled: None,
        last_window: Instant::now(),
        window_due: false,
        seen_workflow: false,
        refreshing: Arc::default(),
        refreshes: Vec::new(),
        standing: RefCell::default(),
    };
    conductor.save().await?;
    let outcome = tokio::select! {
        outcome = conductor.go(metrics) => outcome,
        lost = hold_lease(place, &plan) => Err(lost),
    };
    match outcome {
        Ok((verdict, message)) => {
            conductor.end(verdict, message).await?;
            Ok(verdict)
        }
        // Another run has taken over: what it finds is its own to end.
        Err(failure) if failure.code == Code::RunInProgress => Err(failure),
        Err(failure) => {
            conductor.end(Verdict::Failed, Some(failure.message.clone())).await?;
            Err(failure)
        }
    }
}

/// Asks until there is an answer; only what does not help to ask again is a failure.
async fn patiently<T, F: Future<Output = Result<T, Failure>>>(ask: impl Fn() -> F) -> Result<T, Failure> {
    let mut pause = Duration::from_millis(200);
    let give_up = Instant::now() + Duration::from_secs(600);
    loop {
        match ask().await {
            Err(failure) if failure.code == Code::Unreachable && Instant::now() < give_up => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(3));
            }
            other => return other,
        }
    }
}

async fn hold_lease(place: &Place, plan: &RunPlan) -> Failure {
    loop {
        match lease::renew(place, &plan.environment, &plan.run).await {
            Ok(Renewal::Lost(to)) => {
                return Failure::new(Code::RunInProgress, format!("run `{}` lost its Lease to `{to}`", plan.run))
                    .hint("another run has taken over; nothing of this one goes on");
            }
            Ok(Renewal::Ours) | Err(_) => tokio::time::sleep(lease::RENEWED).await,
        }
    }
}

struct Conductor<'c> {
    place: &'c Place,
    argocd: &'c ArgoCd,
    plan: Arc<RunPlan>,
    header: Header,
    config_maps: Store,
    workflows: Store,
    pods: Store,
    supervisor: Supervisor,
    cancelled: Option<String>,
    last_window: Instant,
    window_due: bool,
    seen_workflow: bool,
    refreshing: Arc<tokio::sync::Mutex<()>>,
    refreshes: Vec<tokio::task::JoinHandle<()>>,
    /// Where the run stands, until something changes.
    standing: RefCell<Option<Rc<Standing>>>,
}

/// The record and what follows from it.
struct Standing {
    record: Record,
    views: Vec<NodeView>,
}

impl Conductor<'_> {
    async fn go(&mut self, metrics: &Metrics) -> Result<(Verdict, Option<String>), Failure> {
        let selector = Place::of(&self.plan.run);
        let cluster = &self.place.cluster;
        let namespace = &self.place.places.workflows;
        let mut config_maps = cluster.watch(&path::config_maps(namespace), &selector);
        let mut workflows = cluster.watch(&self.place.workflows(), &selector);
        let mut pods = cluster.watch(&path::core(namespace, "pods"), "workflows.argoproj.io/component=agent");
        // Where the run stands comes first: a process that begins again must not take proven nodes for open ones.
        while !config_maps.keep(&mut self.config_maps).await {}
        while !workflows.keep(&mut self.workflows).await {}
        let open = self.unproven();
        let entered = patiently(|| Window::enter(self.place, self.argocd, &self.plan, &open)).await?;
        let window = entered.window;
        if self.header.not_held != entered.not_held {
            self.header.not_held = entered.not_held;
            self.save().await?;
        }
        let mut tick = tokio::time::interval(TICK);
        loop {
            if let Some(end) = self.advance().await? {
                self.settle_window(&window).await?;
                metrics.window_age(0);
                return Ok(end);
            }
            if self.window_due && self.last_window.elapsed() >= WINDOW_PACE {
                self.update_window(&window).await;
            }
            metrics.window_age(Timestamp::now().duration_since(self.header.started).as_secs());
            let pace = self.last_window + WINDOW_PACE;
            tokio::select! {
                changed = config_maps.keep(&mut self.config_maps) => {
                    self.window_due |= changed;
                    self.standing.take();
                }
                _ = workflows.keep(&mut self.workflows) => {}
                _ = pods.keep(&mut self.pods) => {}
                () = tokio::time::sleep_until(pace), if self.window_due => {}
                _ = tick.tick() => self.tick().await?,
            }
        }
    }

    /// Where the run stands. Worked out once for each change: at a thousand nodes it is a megabyte of text.
    fn standing(&self) -> Rc<Standing> {
        if let Some(standing) = &*self.standing.borrow() {
            return standing.clone();
        }
        let mut record = Record { header: self.header.clone(), entries: Default::default() };
        for config_map in self.config_maps.values() {
            // What cannot be read is as good as not written: the node is open.
            record.entries.extend(read_entries(config_map).unwrap_or_default());
        }
        let views = record.view(&self.plan);
        let standing = Rc::new(Standing { record, views });
        self.standing.replace(Some(standing.clone()));
        standing
    }

    /// What the window must hold: everything that is not proven, but for what was found proven before the run began.
    fn unproven(&self) -> BTreeSet<NodeId> {
        let standing = self.standing();
        let held = standing.views.iter().filter(|view| match view.phase {
            Phase::Proven => false,
            Phase::Failed | Phase::Blocked => true,
            _ => !self.plan.passed.contains(&view.node),
        });
        held.map(|view| view.node.clone()).collect()
    }

    /// Lets proven nodes leave the window, and Argo CD look at them at once.
    async fn update_window(&mut self, window: &Window) {
        self.last_window = Instant::now();
        match window.hold(&self.unproven()).await {
            Ok(left) => {
                self.window_due = false;
                self.refresh(&left);
            }
            // Tried again with the next tick.
            Err(_) => self.window_due = true,
        }
    }

    /// After a window has gone nothing happens until the Application is compared again: asked for, not waited for.
    fn refresh(&mut self, nodes: &[NodeId]) {
        let left = self.plan.nodes().filter(|node| nodes.contains(&node.id)).map(|node| node.application.clone());
        let (argocd, left): (ArgoCd, Vec<ApplicationId>) = (self.argocd.clone(), left.collect());
        let turn = self.refreshing.clone();
        // One after the other: comparisons of what is proven must not slow down those of what is not.
        self.refreshes.push(tokio::spawn(async move {
            for id in left {
                let _turn = turn.lock().await;
                for _ in 0..5 {
                    match argocd.refresh(&id).await {
                        Err(error) if error.is_transient() => tokio::time::sleep(Duration::from_secs(1)).await,
                        _ => break,
                    }
                }
            }
        }));
    }

    /// Waits until Argo CD was asked about everything that left: with the process the asking would end too.
    async fn refreshed(&mut self) {
        let all = futures::future::join_all(self.refreshes.drain(..));
        let _ = tokio::time::timeout(Duration::from_secs(60), all).await;
    }

    /// The window as it must be when the run has ended.
    async fn settle_window(&mut self, window: &Window) -> Result<(), Failure> {
        let open = self.unproven();
        let left = patiently(|| async { window.hold(&open).await.map_err(Failure::from) }).await?;
        self.refresh(&left);
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
        let _ = keep::last_runs(self.place, &self.plan.environment).await;
        Ok(())
    }

    /// The Workflow that runs now, under its number.
    fn workflow(&self) -> Option<&Value> {
        let name = render::workflow_name(&self.plan.run, self.header.resubmitted);
        self.workflows.get(&format!("{}/{name}", self.place.places.workflows))
    }

    /// Reads the Workflow without the watch; true where it is there.
    async fn read_workflow(&mut self) -> Result<bool, Failure> {
        let name = render::workflow_name(&self.plan.run, self.header.resubmitted);
        let path = path::object(&self.place.workflows(), &name);
        let found = patiently(|| async { self.place.cluster.get(&path).await.map_err(Failure::from) }).await?;
        let there = found.is_some();
        if let Some(workflow) = found {
            self.workflows.insert(format!("{}/{name}", self.place.places.workflows), workflow);
        }
        Ok(there)
    }

    /// Brings the run one step on; gives its end when there is one.
    async fn advance(&mut self) -> Result<Option<(Verdict, Option<String>)>, Failure> {
        self.note_cancellation();
        let standing = self.standing();
        let record = &standing.record;
        let is_open = |view: &&NodeView| !matches!(view.phase, Phase::Proven | Phase::Failed | Phase::Blocked);
        let open = standing.views.iter().filter(is_open).count();
        let Some(workflow) = self.workflow().cloned() else {
            if let Some(why) = &self.cancelled {
                return Ok(Some((result(&self.plan, record, true), Some(why.clone()))));
            }
            if self.seen_workflow && open > 0 {
                // What is followed may lag behind what was just submitted.
                if self.read_workflow().await? {
                    return Ok(None);
                }
                let message = "its Workflow was deleted".to_owned();
                return Ok(Some((result(&self.plan, record, true), Some(message))));
            }
            if open == 0 {
                return self.finished(record).await;
            }
            self.submit().await?;
            return Ok(None);
        };
        self.seen_workflow = true;
        let phase = workflow.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
        let stopped =
            workflow.pointer("/spec/shutdown").and_then(Value::as_str).filter(|shutdown| !shutdown.is_empty());
        if !matches!(phase, "Succeeded" | "Failed" | "Error") {
            if self.cancelled.is_some() && stopped.is_none() {
                self.stop().await?;
            }
            // All is said and Argo Workflows has not noticed yet: it will, and nothing waits for it.
            return Ok(None);
        }
        if open == 0 {
            return self.finished(record).await;
        }
        if let Some(stopped) = stopped {
            let by = self.cancelled.clone().unwrap_or_else(|| format!("its Workflow was stopped ({stopped})"));
            return Ok(Some((result(&self.plan, record, true), Some(by))));
        }
        if Timestamp::now() > self.header.deadline {
            return Ok(Some((Verdict::TimedOut, Some("the run took too long".to_owned()))));
        }
        if self.header.resubmitted >= MOST_RESUBMISSIONS {
            let message = format!("its Workflow was lost {MOST_RESUBMISSIONS} times");
            return Ok(Some((result(&self.plan, record, false), Some(message))));
        }
        // Infrastructure was lost: what is open goes on in a new Workflow.
        self.header.resubmitted += 1;
        self.seen_workflow = false;
        self.save().await?;
        tokio::time::sleep(Duration::from_millis(500)).await;
        self.submit().await?;
        Ok(None)
    }

    /// All nodes have ended. What was proven must stay well for a moment, for longer where something fell meanwhile;
    /// what does not is not proven after all.
    async fn finished(&mut self, record: &Record) -> Result<Option<(Verdict, Option<String>)>, Failure> {
        let give_up = Instant::now() + GIVE_UP;
        let mut fell: BTreeSet<NodeId> = BTreeSet::new();
        let mut asked = Instant::now();
        // Waits that nobody would profit from are not made: with a failure the end is known.
        let last = record.entries.values().filter(|entry| entry.receipt().is_some()).map(|entry| entry.since).max();
        let age = last.map_or(STEADY, |at| Duration::try_from(Timestamp::now().duration_since(at)).unwrap_or(STEADY));
        let mut steady_since = Instant::now().checked_sub(age).unwrap_or_else(Instant::now);
        loop {
            let down = self.fallen(record).await?;
            if !down.is_empty() {
                // What Argo CD shows may be older than what is.
                if down.iter().any(|node| fell.insert(node.clone())) || asked.elapsed() > Duration::from_secs(5) {
                    asked = Instant::now();
                    self.refresh(&down);
                }
                steady_since = Instant::now();
            }
            let needed = if fell.is_empty() { STEADY } else { STEADY * 3 };
            if down.is_empty() && steady_since.elapsed() >= needed {
                return Ok(Some((result(&self.plan, record, false), None)));
            }
            if Instant::now() >= give_up {
                self.withdraw(record, &fell).await?;
                return Ok(Some((result(&self.plan, &self.standing().record, false), None)));
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// Marks nodes that did not stay well as failed.
    async fn withdraw(&mut self, record: &Record, nodes: &BTreeSet<NodeId>) -> Result<(), Failure> {
        let namespace = &self.place.places.workflows;
        for (place, node) in self.plan.nodes().enumerate().filter(|(_, node)| nodes.contains(&node.id)) {
            let Some(mut entry) = record.entries.get(&node.id).cloned() else { continue };
            let falls = entry.progress.falls.saturating_add(1);
            entry.decision = Decision::Failed(Why::Flapping { falls, restarts: 0 }.into());
            entry.since = Timestamp::now();
            let name = record_name(&self.plan.run, entry_piece(place));
            let data = json!({entry_key(&node.id): shortened(&entry)});
            let write = || async {
                write_piece(&self.place.cluster, namespace, &self.plan, &name, &data).await.map_err(Failure::from)
            };
            patiently(write).await?;
            // The watch will tell; the verdict must not wait for it.
            let key = format!("{namespace}/{name}");
            if let Some(Value::Object(known)) = self.config_maps.get_mut(&key).and_then(|found| found.get_mut("data")) {
                known.insert(entry_key(&node.id), json!(shortened(&entry)));
            }
        }
        self.standing.take();
        Ok(())
    }

    async fn fallen(&self, record: &Record) -> Result<Vec<NodeId>, Failure> {
        let all = patiently(|| async { window::applications(self.place).await.map_err(Failure::from) }).await?;
        let proven =
            self.plan.nodes().filter(|node| record.entries.get(&node.id).is_some_and(|e| e.receipt().is_some()));
        let fallen = proven.filter(|node| {
            let here = node.application.namespace.as_str() == self.place.places.argocd;
            here && all.get(node.application.name()).is_none_or(|application| application.health != Health::Healthy)
        });
        Ok(fallen.map(|node| node.id.clone()).collect())
    }

    fn note_cancellation(&mut self) {
        let name = format!("{}/{}", self.place.places.workflows, record_name(&self.plan.run, 0));
        let wish =
            self.config_maps.get(&name).and_then(|found| found.get("data")).and_then(|data| data.get(CANCEL_KEY));
        if let (Some(by), None) = (wish.and_then(Value::as_str), &self.cancelled) {
            self.cancelled = Some(format!("cancelled by {}", forge_core::name::clip(by)));
        }
    }

    async fn submit(&mut self) -> Result<(), Failure> {
        let workflow = render::workflow(&self.plan, &self.place.places, self.header.resubmitted)
            .map_err(|error| Failure::new(Code::WorkflowTooLarge, error))?;
        let create = || async {
            match self.place.cluster.create(&self.place.workflows(), &workflow).await {
                Err(error) if !error.is_conflict() => Err(Failure::from(error)),
                _ => Ok(()),
            }
        };
        patiently(create).await?;
        let name = render::workflow_name(&self.plan.run, self.header.resubmitted);
        // The watch will tell; until then it is not submitted a second time.
        self.workflows.insert(format!("{}/{name}", self.place.places.workflows), workflow);
        if self.header.workflow.as_ref() != Some(&name) {
            self.header.workflow = Some(name);
            self.save().await?;
        }
        Ok(())
    }

    async fn stop(&self) -> Result<(), Failure> {
        let name = render::workflow_name(&self.plan.run, self.header.resubmitted);
        let path = path::object(&self.place.workflows(), &name);
        let patch = json!({"spec": {"shutdown": "Stop"}});
        let stop = || async {
            match self.place.cluster.merge(&path, &patch).await {
                Err(error) if !error.is_missing() => Err(Failure::from(error)),
                _ => Ok(()),
            }
        };
        patiently(stop).await
    }

    /// What nobody tells of: a stuck agent, a deadline that nobody kept.
    async fn tick(&mut self) -> Result<(), Failure> {
        self.window_due |= self.last_window.elapsed() > Duration::from_secs(15);
        let late = self.header.deadline.saturating_add(SignedDuration::from_secs(120)).unwrap_or(Timestamp::MAX);
        if Timestamp::now() > late {
            self.stop().await?;
        }
        let name = render::workflow_name(&self.plan.run, self.header.resubmitted);
        let of = |pod: &&Value| {
            let label = pod.pointer("/metadata/labels/workflows.argoproj.io~1workflow").and_then(Value::as_str);
            label == Some(name.as_str())
        };
        let pods: Vec<Value> = self.pods.values().filter(of).cloned().collect();
        let standing = self.standing();
        let Some((pod, _)) = self.supervisor.stuck(&standing.views, &pods) else { return Ok(()) };
        match agent::delete(self.place, &pod).await {
            Ok(()) => {
                self.header.agents_replaced += 1;
                self.save().await
            }
            Err(ClusterError::Refused { code: 403, message }) => {
                Err(ClusterError::Refused { code: 403, message }.into())
            }
            Err(_) => Ok(()),
        }
    }
}
