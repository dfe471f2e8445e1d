//! Removes an environment, or a part of it, in reverse (SPEC.md sections 4 to 6, phase 4). What is decided is decided in
//! `forge_core::teardown`; what happens to nodes is a run like any other, an Argo Workflow of the same runners under the same
//! Lease, conducted by whoever confirmed it.
//!
//! Around the nodes, in this order: a token is lent, what would make them again is stopped, volumes are secured; then the nodes;
//! then what the environment shared, its namespaces, and, when no environment is left, what bootstrap installed. Everything that it
//! knows is in the cluster, so it can die at any moment and begin again. What carries neither our label nor was handed over by
//! name is never touched (INV-11).

mod clearing;
pub(crate) mod inventory;
mod look;
mod primitives;
pub(crate) mod rehearse;
mod release;
mod remover;
mod rest;
mod stop;
mod volumes;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use forge_core::code::Code;
use forge_core::duration;
use forge_core::executor::PvPolicy;
use forge_core::exit::Exit;
use forge_core::failure::Failure;
use forge_core::render::{AGENT_TICK, Places};
use forge_core::run::{RunAction, RunPlan, Verdict};
use forge_core::teardown::{Remnant, RemovalRecord, Target};
use forge_core::view::{NoRun, RunReport};
use jiff::Timestamp;
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::time::Instant;

pub(crate) use clearing::Clearing;
pub(crate) use look::{Environment, Made, Seen, made, run};
pub(crate) use primitives::Primitives;
pub(crate) use remover::Remover;

use clearing::left_of;
use look::look;
use primitives::primitives;

use crate::account;
use crate::cluster::{Cluster, ClusterError, Kinds, path};
use crate::install::Outcome;
use crate::interrupt::Interrupts;
use crate::records;
use crate::run::Place;
use crate::run::lease;
use crate::run::prepare;

/// How long a single object may take to go, where nothing says otherwise.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long a request of ours may take to show.
const SHOWN: Duration = Duration::from_secs(90);
/// Between two looks at what goes, where nobody tells.
const LOOK: Duration = Duration::from_secs(3);
/// How often a list is asked for until two of them agree.
const TRIES: usize = 6;
/// How much longer than the run a token is good for.
const LONGER: u64 = 3600;

/// Lists a collection until two answers in a row name the same objects: one that came back empty, or short, says nothing
/// (INV-10).
async fn surely(cluster: &Cluster, collection: &str, selector: &str) -> Result<Vec<Value>, ClusterError> {
    let uids = |list: &[Value]| -> BTreeSet<String> {
        let uid = |object: &Value| object.pointer("/metadata/uid").and_then(Value::as_str).map(str::to_owned);
        list.iter().filter_map(uid).collect()
    };
    let mut before = cluster.list(collection, selector).await?;
    for _ in 0..TRIES {
        let now = cluster.list(collection, selector).await?;
        if uids(&before) == uids(&now) {
            return Ok(now);
        }
        before = now;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    Err(ClusterError::Unreachable(format!("`{collection}` was listed {TRIES} times and never twice the same")))
}

/// What there is to remove, and where.
pub(crate) struct Found {
    pub(crate) place: Place,
    /// Runs can take place.
    pub(crate) prepared: bool,
    pub(crate) seen: Seen,
}

/// Looks at what there is to remove. Writes nothing.
///
/// # Errors
/// When something must not be removed, when nodes are there and no run could remove them, or when the cluster does not answer.
pub(crate) async fn survey(cluster: &Cluster, workflows: &str, made: &Made) -> Result<Found, Failure> {
    let argocd = made.environment.argocd.as_str();
    let noted = prepare::prepared(cluster, workflows, argocd).await?;
    let prepared = noted.is_some();
    let places = noted.unwrap_or_else(|| {
        let (workflows, argocd) = (workflows.to_owned(), argocd.to_owned());
        Places { workflows, argocd, image: String::new(), agent_tick: AGENT_TICK }
    });
    let earlier = records::all(cluster, workflows, &made.environment.name).await?;
    let seen = look(cluster, workflows, made, &earlier).await?;
    if seen.has_nodes() && !prepared {
        let message = "Applications of the environment are there, and the cluster is not prepared for runs";
        return Err(Failure::new(Code::NotBootstrapped, message).hint("`forge bootstrap`, then tear down again"));
    }
    Ok(Found { place: Place { cluster: cluster.clone(), places }, prepared, seen })
}

/// What comes after the nodes, or where there are none: what is left of the environment, then, when it was the last, what
/// bootstrap installed, then what is left behind. False where it was told to stop.
///
/// # Errors
/// When the cluster or helm refuses.
pub(crate) async fn finish(
    teardown: &Teardown<'_>,
    found: &Found,
    (run, tools): (Option<&RunPlan>, &Primitives<'_>),
    record: &RefCell<RemovalRecord>,
    interrupts: &mut Interrupts,
    say: &mut dyn FnMut(&str),
) -> Result<bool, Failure> {
    if run.is_none() && teardown.environment.whole && teardown.has_rest().await? {
        let work = teardown.leftovers(record);
        if found.prepared {
            let name = format!("{}-rest", teardown.environment.name);
            lease::held(&found.place, &teardown.environment.name, &name, work).await?;
        } else {
            work.await?;
        }
    }
    if found.seen.last && record.borrow().orphans.is_empty() {
        let done = primitives(teardown, tools, interrupts, record, say).await?;
        if done == Outcome::Interrupted {
            return Ok(false);
        }
    }
    teardown.inventory(run, record).await?;
    Ok(true)
}

/// The report of a teardown that had no run.
pub(crate) fn report_without_run(
    made: &Made,
    record: RemovalRecord,
    started: Timestamp,
    verdict: NoRun,
) -> (RunReport, Exit) {
    let nothing = record.removed.is_empty() && record.orphans.is_empty();
    let message = match (verdict, nothing) {
        (NoRun::DryRun, _) => "dry run: nothing was written",
        (_, true) => "nothing was there to remove, and nothing was written",
        (_, false) => "no node was there; what was left of the environment is gone",
    };
    let (environment, scope) = (made.environment.name.as_str(), made.plan.scope.to_string());
    let (exit, times) = (Exit::Done, (started, Timestamp::now()));
    let report = RunReport::without_run(RunAction::Teardown, environment, &scope, verdict, exit, message, times);
    with_removal(report, record)
}

/// A report with what happened around its nodes; what is left behind changes how it ended.
pub(crate) fn with_removal(report: RunReport, record: RemovalRecord) -> (RunReport, Exit) {
    let clean = report.exit == Some(Exit::Done as u8);
    let orphans = !record.orphans.is_empty();
    let mut report = RunReport { removal: Some(record), ..report };
    if clean && orphans {
        report.verdict = Verdict::Orphans.as_str().to_owned();
        report.exit = Some(Exit::Partial as u8);
    }
    let exit = match report.exit {
        Some(0) => Exit::Done,
        Some(1) => Exit::Findings,
        Some(4) => Exit::Timeout,
        _ => Exit::Partial,
    };
    (report, exit)
}

/// A teardown, for whoever conducts its run.
pub(crate) struct Teardown<'t> {
    cluster: &'t Cluster,
    places: &'t Places,
    environment: &'t Environment,
    /// ApplicationSets of the environment.
    sets: &'t BTreeSet<String>,
    options: &'t Options,
    kinds: Arc<Kinds>,
    /// When everything is over.
    deadline: Instant,
}

/// What a person decided.
pub(crate) struct Options {
    /// What becomes of volumes.
    pub(crate) policy: PvPolicy,
    /// Objects whose finalizers are given up.
    pub(crate) targets: Vec<Target>,
    /// A token of an Argo CD account that may make one of `forge-teardown`.
    pub(crate) administrator: Option<SecretString>,
}

impl<'t> Teardown<'t> {
    pub(crate) fn new(
        (cluster, places): (&'t Cluster, &'t Places),
        (environment, sets): (&'t Environment, &'t BTreeSet<String>),
        options: &'t Options,
        timeout: duration::Duration,
    ) -> Self {
        let deadline = Instant::now() + Duration::from_secs(timeout.seconds());
        Self { cluster, places, environment, sets, options, kinds: Arc::new(Kinds::new(cluster)), deadline }
    }

    /// What becomes of volumes, in a word.
    pub(crate) fn policy(&self) -> &'static str {
        self.options.policy.as_str()
    }

    /// Before the first node goes. Doing it again changes nothing.
    ///
    /// # Errors
    /// When something cannot be stopped, or a volume not secured: then no node was removed.
    pub(crate) async fn before(&self, plan: &RunPlan, record: &RefCell<RemovalRecord>) -> Result<(), Failure> {
        let lifetime = duration::Duration::from_seconds(plan.timeout.seconds().saturating_add(LONGER));
        let (places, administrator) = (self.places, self.options.administrator.as_ref());
        let at = (places.workflows.as_str(), places.argocd.as_str());
        account::lend(self.cluster, at, &self.environment.name, administrator, lifetime).await?;
        self.secure_volumes(plan, record).await?;
        self.stop(record).await?;
        self.mark_nodes(plan).await?;
        self.release(plan, record).await
    }

    /// While nodes go: what would make them again stays stopped, and what was given up by name is let go. Called every few
    /// seconds.
    ///
    /// # Errors
    /// When the cluster refuses.
    pub(crate) async fn meanwhile(&self, plan: &RunPlan, record: &RefCell<RemovalRecord>) -> Result<(), Failure> {
        self.stop(record).await?;
        self.release(plan, record).await
    }

    /// Removes what is left of an environment without nodes.
    async fn leftovers(&self, record: &RefCell<RemovalRecord>) -> Result<(), Failure> {
        self.stop(record).await?;
        self.empty(&BTreeSet::new(), record).await?;
        self.environments_own(record).await
    }

    /// What should be gone and is not.
    ///
    /// INTEGRATION (issue 7): `crate::teardown::inventory` belongs here. Before the run `inventory::looked(&asked)`, `asked` from
    /// [`Made`]; here `inventory::take(cluster, Some(&looked.inventory))`, then `inventory::report(&asked, &began, &after)`, and each
    /// orphan of it into the record. It compares complete listings of all API groups with the snapshot of phase 0. Until that module
    /// is there, what the nodes were last known to have made is looked for once more, each object by its name, and nothing else.
    async fn inventory(&self, run: Option<&RunPlan>, record: &RefCell<RemovalRecord>) -> Result<(), Failure> {
        self.kinds.forget().await;
        for node in run.into_iter().flat_map(RunPlan::nodes) {
            for remnant in left_of(self.cluster, &self.kinds, node).await {
                record.borrow_mut().orphan(remnant.object.clone(), remnant.told(Timestamp::now()));
            }
        }
        Ok(())
    }

    /// The token is taken back, however the run ended. Gives what could not be done, in words.
    pub(crate) async fn give_back(&self) -> Option<String> {
        let given = account::give_back(self.cluster, &self.places.workflows, &self.environment.name).await;
        given.err().map(|failure| {
            format!("the token of the teardown could not be taken back and ends by itself: {}", failure.message)
        })
    }

    /// What is left of the time.
    pub(crate) fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// The same, at most so much.
    fn within(&self, limit: Duration) -> Duration {
        limit.min(self.left())
    }

    /// Waits until an object is gone; gives what is there of it when the time is over.
    async fn gone(
        &self,
        (collection, name): (&str, &str),
        object: &str,
        uid: &str,
        limit: Duration,
    ) -> Result<Option<Remnant>, ClusterError> {
        gone(self.cluster, (collection, name), object, uid, self.within(limit)).await
    }
}

/// Waits until an object is gone; gives what is there of it when the time is over. Another one of its name is another one.
async fn gone(
    cluster: &Cluster,
    (collection, name): (&str, &str),
    object: &str,
    uid: &str,
    limit: Duration,
) -> Result<Option<Remnant>, ClusterError> {
    let end = Instant::now() + limit;
    loop {
        let live = cluster.get(&path::object(collection, name)).await?;
        let text = |live: &Value, pointer: &str| live.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let Some(live) = live.filter(|live| text(live, "/metadata/uid").as_deref() == Some(uid)) else {
            return Ok(None);
        };
        if Instant::now() >= end {
            return Ok(Some(Remnant::read(object, &live)));
        }
        let version = text(&live, "/metadata/resourceVersion").unwrap_or_default();
        let pause = LOOK.min(end.saturating_duration_since(Instant::now()));
        cluster.changed(collection, name, &version, pause).await;
    }
}

/// Something that does not go, with what keeps it, whose that is, and since when.
fn stuck(remnant: &Remnant) -> Failure {
    let told = remnant.told(Timestamp::now());
    Failure::new(Code::RemovalStuck, format!("it does not go: {told}")).hint(format!(
        "see to what owns the finalizer; if that is gone for good: --release-finalizer {}. Then tear down again",
        forge_core::name::clip(&remnant.object)
    ))
}

/// A patch for exactly this version of an object.
fn at_version(mut patch: Value, object: &Value) -> Value {
    let version = object.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
    if let Value::Object(fields) = &mut patch
        && let Value::Object(metadata) = fields.entry("metadata").or_insert_with(|| json!({}))
    {
        metadata.insert("resourceVersion".to_owned(), version);
    }
    patch
}

/// The uid of an object.
fn uid_of(object: &Value) -> &str {
    object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default()
}

/// The name of an object.
fn name_of(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}
