//! Removes an environment, or a part of it, in reverse (SPEC.md sections 4 to 6, phase 4). What is decided is decided in
//! `forge_core::teardown`; what happens to nodes is a run like any other, an Argo Workflow of the same runners under the same
//! Lease, conducted by whoever confirmed it.
//!
//! Around the nodes, in this order: everything is listed, a token is lent, volumes are secured, what would make nodes again is
//! stopped; then the nodes; then what the environment shared, its namespaces, and, when no environment is left, what bootstrap
//! installed; then everything is listed again, and what is left is said. Everything that it knows is in the cluster, so it can die
//! at any moment and begin again. What carries neither our label nor was handed over by name is never touched (INV-11).

mod clearing;
mod crossplane;
pub(crate) mod inventory;
mod look;
mod owners;
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
use forge_core::preflight::{Component, Intent, Purpose};
use forge_core::render::{AGENT_TICK, Places};
use forge_core::rights::{self, Answer};
use forge_core::run::{Record, RunAction, RunPlan, Verdict};
use forge_core::teardown::inventory::{CleanExitReport, Snapshot, Stays};
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
use inventory::{Asked, Began, Looked};
use look::look;
use primitives::primitives;
use release::Moment;

use crate::account;
use crate::cluster::{Cluster, ClusterError, Kinds, path};
use crate::install::Outcome;
use crate::interrupt::Interrupts;
use crate::preflight;
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
/// How long everything may take to be listed, once.
const LISTED: Duration = Duration::from_secs(180);
/// How long what goes by itself, such as the volume of a claim, may take before it is called left.
const SETTLING: Duration = Duration::from_secs(30);
/// How much of its time a teardown keeps to say what did not go.
const LAST_WORDS: Duration = Duration::from_secs(30);
/// How much longer than its deadline a teardown may take, to say what is left. Nothing is removed any more by then.
const GRACE: Duration = Duration::from_secs(60);
/// How many rights a message names.
const NAMED: usize = 10;

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
    look::refuse_unremovable(cluster, made, &seen).await?;
    Ok(Found { place: Place { cluster: cluster.clone(), places }, prepared, seen })
}

/// Asks whether whoever tears down may write what a teardown of the whole environment writes: one that is refused half way is
/// worse than one that does not begin. What may not be read is told where it matters.
///
/// # Errors
/// With what he may not do; then nothing was written.
pub(crate) async fn permitted(found: &Found, made: &Made, policy: PvPolicy) -> Result<(), Failure> {
    let environment = &made.environment;
    if !environment.whole || !(found.prepared || found.seen.has_nodes()) {
        return Ok(());
    }
    let Places { workflows, argocd, .. } = found.place.places.clone();
    let handed = environment.intents.cd == Intent::Existing;
    let purpose = Purpose { workflows, argocd, handed, ..Purpose::default() };
    let asks = rights::removing(&purpose, found.seen.last, policy == PvPolicy::Snapshot);
    let answers = preflight::answers(&found.place.cluster, asks).await;
    let denied = answers.iter().filter(|(_, answer)| matches!(answer, Answer::Denied(_)));
    let denied: Vec<String> = denied.map(|(ask, _)| format!("{} {}", ask.verb(), ask.about())).collect();
    if denied.is_empty() {
        return Ok(());
    }
    let more = denied.len().saturating_sub(NAMED);
    let mut named = denied.into_iter().take(NAMED).collect::<Vec<_>>().join(", ");
    if more > 0 {
        named.push_str(&format!(" and {more} more"));
    }
    let message = format!("whoever tears down may not {named}; nothing was written");
    Err(Failure::new(Code::Forbidden, message)
        .hint("tear down as somebody who may; docs/guides/teardown.md says what it takes"))
}

/// Whether what comes after the nodes may come: all of them are gone, and the run that saw to it has ended. One that was left in a
/// hurry has not, and whoever left it wants nothing more to go.
pub(crate) fn all_gone(report: Option<&RunReport>, record: Option<&Record>) -> bool {
    let gone = report.is_none_or(|report| report.statistics.gone == report.statistics.nodes);
    gone && record.is_none_or(|record| record.header.ended.is_some())
}

/// How what comes after the nodes ended.
#[derive(Debug)]
pub(crate) enum Finished {
    /// It is done, or was not to be begun; with what is left, where that was looked at.
    Done(Option<CleanExitReport>),
    /// The time was over before it was done.
    Late(Option<CleanExitReport>),
    /// It was told to stop.
    Stopped,
}

/// What comes after the nodes, or where there are none: what is left of the environment, then, when it was the last, what
/// bootstrap installed, then what is left behind. Nothing where it was told to stop, also before it began. Whatever hangs, it does
/// nothing more when the time is over, and ends a grace later.
///
/// # Errors
/// When the cluster or helm refuses.
pub(crate) async fn finish(
    teardown: &Teardown<'_>,
    (found, begun): (&Found, Option<&Begun<'_>>),
    (run, tools): (Option<&RunPlan>, &Primitives<'_>),
    record: &RefCell<RemovalRecord>,
    interrupts: &mut Interrupts,
    say: &mut dyn FnMut(&str),
) -> Result<Finished, Failure> {
    // Somebody may have said so while the last nodes went: what all environments share is not taken from them by who is leaving.
    if interrupts.told().await {
        return Ok(Finished::Stopped);
    }
    let standing = async {
        let rest = run.is_none() && teardown.environment.whole && teardown.has_rest().await?;
        // Whoever was killed after the last node was gone could not take it back, and no run of ours will.
        let (workflows, name) = (&teardown.places.workflows, &teardown.environment.name);
        let lent = run.is_none() && account::is_lent_out(teardown.cluster, workflows, name).await?;
        Ok::<_, Failure>((rest, lent))
    };
    let Ok(standing) = tokio::time::timeout_at(teardown.deadline, standing).await else {
        return Ok(Finished::Late(None));
    };
    let (rest, lent) = standing?;
    let work = async {
        if lent {
            match teardown.give_back().await {
                None => record.borrow_mut().removed("the token of a teardown that did not end"),
                Some(why) => say(&why),
            }
        }
        if rest && unless_told(interrupts, teardown.leftovers(record)).await?.is_none() {
            return Ok(Outcome::Interrupted);
        }
        if found.seen.last && record.borrow().orphans.is_empty() {
            return primitives(teardown, tools, found.prepared, interrupts, record, say).await;
        }
        Ok::<_, Failure>(Outcome::Done)
    };
    // What is dropped when the time is over is found by whoever goes on, as if it had been killed. Whoever deploys or tears down
    // meanwhile is told so, as while nodes go.
    let mut done: Option<Outcome> = if found.prepared && (rest || lent || found.seen.last) {
        let name = format!("{}-rest", teardown.environment.name);
        lease::held(&found.place, &teardown.environment.name, &name, teardown.deadline, work).await?
    } else {
        tokio::time::timeout_at(teardown.deadline, work).await.ok().transpose()?
    };
    match done {
        Some(Outcome::Interrupted) => return Ok(Finished::Stopped),
        Some(Outcome::Done) if found.prepared && found.seen.last && tools.inside.is_none() => {
            let discarded = lease::discard(&found.place, &teardown.environment.name);
            match tokio::time::timeout_at(teardown.deadline, discarded).await {
                Ok(discarded) => discarded?,
                Err(_) => done = None,
            }
        }
        _ => {}
    }
    let looked = async { Ok::<_, Failure>(teardown.left_in_time(run, begun, record).await) };
    Ok(match (unless_told(interrupts, looked).await?, done) {
        (None, _) => Finished::Stopped,
        (Some(left), Some(_)) => Finished::Done(left),
        (Some(left), None) => Finished::Late(left),
    })
}

/// Does something, unless told to stop, before it or meanwhile: then there is nothing. What it had begun is found by whoever goes
/// on, as if it had been killed.
async fn unless_told<T>(
    interrupts: &mut Interrupts,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<Option<T>, Failure> {
    if interrupts.told().await {
        return Ok(None);
    }
    tokio::select! {
        done = work => done.map(Some),
        () = interrupts.heard() => Ok(None),
    }
}

/// The report of a teardown, with what happened after its nodes and how that ended.
pub(crate) fn reported(
    made: &Made,
    (report, record): (Option<RunReport>, RemovalRecord),
    finished: Finished,
    started: Timestamp,
) -> (RunReport, Exit) {
    let (left, cut) = match finished {
        Finished::Done(left) => (left, None),
        Finished::Late(left) => (left, Some((Verdict::TimedOut, "the time was over before all of it was gone"))),
        Finished::Stopped => (None, Some((Verdict::Cancelled, "told to stop before all of it was gone"))),
    };
    let (report, exit) = match report {
        Some(report) => with_removal(report, record, left),
        None => report_without_run(made, (record, left), started, NoRun::Done),
    };
    let Some((verdict, message)) = cut else { return (report, exit) };
    let exit = verdict.exit(RunAction::Teardown);
    let message = Some(format!("{message}; tear down again: what is gone stays gone"));
    (RunReport { verdict: verdict.as_str().to_owned(), exit: Some(exit as u8), message, ..report }, exit)
}

/// The report of a teardown that had no run.
pub(crate) fn report_without_run(
    made: &Made,
    (record, left): (RemovalRecord, Option<CleanExitReport>),
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
    with_removal(report, record, left)
}

/// A report with what happened around its nodes and what is left; what is left behind, or not known, changes how it ended.
fn with_removal(report: RunReport, record: RemovalRecord, left: Option<CleanExitReport>) -> (RunReport, Exit) {
    let clean = report.exit == Some(Exit::Done as u8);
    let orphans = !record.orphans.is_empty();
    let unknown = left.as_ref().is_some_and(|left| !left.not_known.is_empty());
    let mut report = RunReport { removal: Some(record), clean_exit: left, ..report };
    if clean && orphans {
        report.verdict = Verdict::Orphans.as_str().to_owned();
        report.exit = Some(Exit::Partial as u8);
    } else if clean && unknown {
        report.verdict = "not known".to_owned();
        report.exit = Some(Exit::Findings as u8);
    }
    let exit = match report.exit {
        Some(0) => Exit::Done,
        Some(1) => Exit::Findings,
        Some(4) => Exit::Timeout,
        Some(5) => Exit::Conflict,
        _ => Exit::Partial,
    };
    (report, exit)
}

/// What was there before the first deletion, for whoever says at the end what is left.
pub(crate) struct Begun<'b> {
    asked: Asked<'b>,
    /// Or why it is not known.
    looked: Result<Looked, String>,
    snapshot: Option<Snapshot>,
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
        self.secure_volumes(Some(plan), record).await?;
        // What an earlier teardown could not stop may be among what was given up by name.
        self.release(Some(plan), record, Moment::Before).await?;
        self.stop(record, true).await?;
        self.mark_nodes(plan).await?;
        self.release(Some(plan), record, Moment::Before).await
    }

    /// While nodes go: what would make them again stays stopped, and what was given up by name is let go. Called every few
    /// seconds.
    ///
    /// # Errors
    /// When the cluster refuses.
    pub(crate) async fn meanwhile(&self, plan: &RunPlan, record: &RefCell<RemovalRecord>) -> Result<(), Failure> {
        self.secure_new_volumes(plan, record).await?;
        self.stop(record, false).await?;
        self.release(Some(plan), record, Moment::Meanwhile).await
    }

    /// Removes what is left of an environment without nodes. Its namespaces may still hold claims: volumes come first.
    async fn leftovers(&self, record: &RefCell<RemovalRecord>) -> Result<(), Failure> {
        self.secure_volumes(None, record).await?;
        self.release(None, record, Moment::Before).await?;
        self.stop(record, true).await?;
        self.empty(None, record).await?;
        // Before what says that something of the environment is there: whoever is killed here comes back.
        self.undefine_crossplane(None, record).await?;
        self.environments_own(record).await
    }

    /// Lists everything, before the first deletion: Applications say best what they manage. Nothing where nothing of Forge is
    /// there. Who is not `outside` of the cluster leaves what Forge itself made. `say` hears of what cannot be known.
    ///
    /// # Errors
    /// When the cluster does not answer.
    pub(crate) async fn begin<'b>(
        &self,
        found: &'b Found,
        made: &'b Made,
        outside: bool,
        say: &mut dyn FnMut(&str),
    ) -> Result<Option<Begun<'b>>, Failure> {
        let (cluster, workflows) = (&found.place.cluster, found.place.places.workflows.as_str());
        let snapshot = match inventory::stored(cluster, workflows).await {
            Ok(snapshot) => snapshot,
            Err(failure) => {
                say(&format!("note: {} {}", failure.code, failure.message));
                None
            }
        };
        let nodes = found.prepared || found.seen.has_nodes() || snapshot.is_some();
        let there = nodes || (self.environment.whole && self.has_rest().await?);
        if !there {
            return Ok(None);
        }
        let asked = made.asked(cluster, workflows, self.options.policy, Some(found.seen.last && outside));
        let asked = Asked { more: found.seen.unknown(), ..asked };
        let looked = self.listed(inventory::looked(&asked)).await;
        if let Err(why) = &looked {
            say(&format!("note: what is in the cluster is not known: {why}"));
        }
        Ok(Some(Begun { asked, looked, snapshot }))
    }

    /// The same as `inventory`, and that nothing is known where it takes longer than there is.
    async fn left_in_time(
        &self,
        run: Option<&RunPlan>,
        begun: Option<&Begun<'_>>,
        record: &RefCell<RemovalRecord>,
    ) -> Option<CleanExitReport> {
        let looked = tokio::time::timeout_at(self.deadline + GRACE, self.inventory(run, begun, record)).await;
        looked.unwrap_or_else(|_| begun.map(|_| self.unlisted("the time of the teardown was over")))
    }

    /// Where nothing could be listed.
    fn unlisted(&self, why: &str) -> CleanExitReport {
        CleanExitReport::unlisted(&self.cluster.context, self.environment.name.as_str(), why, Timestamp::now())
    }

    /// What should be gone and is not: what the nodes were last known to have made, each object by its name; then everything,
    /// by complete lists of all API groups, held against what was there before and against the snapshot of phase 0 (INV-10).
    async fn inventory(
        &self,
        run: Option<&RunPlan>,
        begun: Option<&Begun<'_>>,
        record: &RefCell<RemovalRecord>,
    ) -> Option<CleanExitReport> {
        self.kinds.forget().await;
        for node in run.into_iter().flat_map(RunPlan::nodes) {
            for remnant in left_of(self.cluster, &self.kinds, node).await {
                record.borrow_mut().orphan(remnant.object.clone(), remnant.told(Timestamp::now()));
            }
        }
        let stays = self.stays(&record.borrow());
        let left = self.left_at_the_end(begun?, &stays).await;
        let mut record = record.borrow_mut();
        for orphan in &left.orphaned {
            // As everything else in the record is named: without its group.
            let object = orphan.target.parse::<Target>().map(|target| Target { group: None, ..target }.to_string());
            let object = object.unwrap_or_else(|_| orphan.object.clone());
            let mut why = format!("{}: {}; next: {}", orphan.reason.as_str(), orphan.detail, orphan.next);
            // What is ours and stays because of somebody else is left behind all the same.
            if let Some(at) = record.kept.iter().position(|kept| kept.object == object) {
                let kept = record.kept.remove(at);
                why = format!("it was kept, because {}; {why}", kept.why);
            }
            record.orphan(object, why);
        }
        // Volumes are told of apart.
        for kept in left.retained.iter().filter(|kept| !kept.object.starts_with("persistentvolumes ")) {
            record.kept(kept.object.clone(), kept.why.clone());
        }
        Some(left)
    }

    /// What was left where it is by now, and said so. A namespace of ours that stays for somebody else is judged by what is in it.
    fn stays(&self, record: &RemovalRecord) -> Stays {
        let said = record.kept.iter().filter(|kept| !kept.object.starts_with("Namespace/"));
        let mut stays = Stays::default();
        stays.objects.extend(said.map(|kept| (kept.object.clone(), kept.why.clone())));
        for part in Component::ALL {
            if record.orphans.iter().any(|orphan| orphan.object == part.title()) {
                let place = self.place(part);
                stays.releases.insert(format!("{place}/{}", part.release()));
                stays.namespaces.insert(place.to_owned());
            }
        }
        stays
    }

    /// Lists everything again, until nothing is left or it has had its time.
    async fn left_at_the_end(&self, begun: &Begun<'_>, stays: &Stays) -> CleanExitReport {
        let Begun { asked, looked, snapshot } = begun;
        let looked = match looked {
            Ok(looked) => looked,
            Err(why) => return self.unlisted(why),
        };
        let before = Some(&looked.inventory);
        let began = Began { claims: &looked.claims, before, snapshot: snapshot.as_ref(), stays };
        let end = Instant::now() + SETTLING.min(self.left());
        loop {
            let work = async {
                let after = inventory::take(self.cluster, before).await?;
                Ok::<_, Failure>(inventory::report(asked, &began, &after).await)
            };
            let left = self.listed(work).await.unwrap_or_else(|why| self.unlisted(&why));
            if left.exit() == Exit::Done || Instant::now() >= end {
                return left;
            }
            tokio::time::sleep(LOOK).await;
        }
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

    /// The same, at most so much, and with time left to say what did not go.
    fn within(&self, limit: Duration) -> Duration {
        limit.min(self.left().saturating_sub(LAST_WORDS))
    }

    /// How long helm may wait for a part of Argo to go: no longer than there is time, and not for nothing.
    fn for_helm(&self, most: Duration) -> Duration {
        self.within(most).max(Duration::from_secs(1))
    }

    /// How long everything may take to be listed.
    fn for_listing(&self) -> Duration {
        LISTED.min(self.left() + GRACE)
    }

    /// What came of listing everything, or why there is nothing: none of it hangs past its deadline.
    async fn listed<T>(&self, work: impl Future<Output = Result<T, Failure>>) -> Result<T, String> {
        let limit = self.for_listing();
        match tokio::time::timeout(limit, work).await {
            Ok(done) => done.map_err(|failure| failure.message),
            Err(_) => Err(format!("it could not be listed within {} s", limit.as_secs())),
        }
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

#[cfg(test)]
mod sample;
#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::sample::World;
    use super::*;
    use crate::cluster::fake::Fake;
    use crate::run::sample::put_lease;

    #[tokio::test]
    async fn whoever_was_told_to_stop_while_nodes_went_begins_nothing_new() {
        let begun = Cell::new(0);
        let work = || async {
            begun.set(begun.get() + 1);
            Ok::<_, Failure>("done")
        };
        assert_eq!(unless_told(&mut Interrupts::already(), work()).await.unwrap(), None);
        assert_eq!(begun.get(), 0);
        assert_eq!(unless_told(&mut Interrupts::none(), work()).await.unwrap(), Some("done"));
    }

    #[tokio::test]
    async fn helm_and_listings_have_no_more_time_than_the_teardown_and_its_grace() {
        let world = World::new(Fake::default(), PvPolicy::Retain).await;
        let five = Duration::from_secs(300);
        assert_eq!(world.teardown(3600).for_helm(five), five);
        let short = world.teardown(60).for_helm(five);
        assert!(short <= Duration::from_secs(30) && short >= Duration::from_secs(25), "{short:?}");
        assert_eq!(world.teardown(0).for_helm(five), Duration::from_secs(1));
        assert_eq!((world.teardown(3600).for_listing(), world.teardown(0).for_listing()), (LISTED, GRACE));
    }

    #[tokio::test]
    async fn the_lease_is_not_waited_for_longer_than_the_teardown_has_time() {
        let mut fake = Fake::default();
        // Whoever has it seems to be gone, and is looked at for a while before it is taken from him.
        put_lease(&mut fake, "dev-lost-1", Timestamp::UNIX_EPOCH);
        let world = World::new(fake, PvPolicy::Retain).await;
        let (teardown, found) = (world.teardown(1), world.found(true));
        let kubeconfig = || Err(Failure::new(Code::Unreachable, "no helm is needed"));
        let tools = Primitives { kubeconfig: &kubeconfig, helm: None, timeout: PATIENCE, inside: None };
        let record = RefCell::new(RemovalRecord::new("retain"));
        let (looked, with) = ((&found, None), (None, &tools));
        let finished = finish(&teardown, looked, with, &record, &mut Interrupts::none(), &mut |_| {}).await;
        assert!(matches!(finished, Ok(Finished::Late(None))), "{finished:?}");
        assert_eq!(world.writes(), Vec::<String>::new());
    }
}
