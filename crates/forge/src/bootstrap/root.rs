//! The root file on a cluster (SPEC.md section 4, phase 1): applied when every environment's AppProject holds its nodes, and
//! Argo CD handed over to its own Application where somebody asks for it. What is to be done is decided by the core.
//!
//! Must never change what somebody else made (INV-11). Whoever is killed between any two writes leaves an Application that
//! syncs nothing, or one that is as Git has it.

use std::collections::BTreeSet;
use std::time::Duration;

use forge_core::code::Code;
use forge_core::failure::Failure;
use forge_core::gate::{Health, SyncState};
use forge_core::install::{self, APPLICATION, Part, Receipt, WORKLOADS, adoption, inert, is_pending, says};
use forge_core::name::ApplicationId;
use forge_core::preflight::Component;
use forge_core::render::{Placed, Places, handing, is_ours};
use forge_core::root::{Handover, RECEIPT, Root, Step, handover, identity, listed, receipt, step};
use forge_core::teardown::keeping_exclusions;
use serde_json::Value;
use tokio::time::Instant;

use super::at;
use crate::argocd::{self, ArgoCd};
use crate::cluster::{Cluster, ClusterError, path};
use crate::failpoint;
use crate::install::lock;

/// Between two looks.
const PAUSE: Duration = Duration::from_secs(1);
/// How often Argo CD must say that it would change a pod before that is believed: the first comparison may be of an Argo CD
/// that has just started.
const REFUSALS: usize = 3;

/// The root file, and what is to be done with it.
pub(crate) struct Rooting {
    pub(crate) root: Root,
    /// Somebody wants Argo CD to manage itself.
    pub(crate) asked: bool,
    /// How long Argo CD may take to compare, and as long again to take over.
    pub(crate) patience: Duration,
    /// The files of the environments that are prepared: one that was torn down before is brought back. Others stay away.
    pub(crate) brought: BTreeSet<String>,
}

/// The file that brings an environment.
pub(crate) fn brings(path: &str) -> String {
    format!("{path}/app.yaml")
}

/// What is there of the root file.
pub(crate) struct Found<'r> {
    /// Objects, and what is to be done about each.
    pub(crate) objects: Vec<(&'r Placed, Step)>,
    /// Argo CD's own Application, and what is to be done about it.
    pub(crate) own: Option<(&'r Placed, Handover)>,
}

impl Found<'_> {
    /// Nothing has to be written.
    fn is_settled(&self) -> bool {
        let settled = |step: &Step| matches!(step, Step::Nothing | Step::Left);
        let own = match &self.own {
            None | Some((_, Handover::NotAsked)) => true,
            Some((_, Handover::Compare | Handover::Unproven(_))) => false,
            Some((_, Handover::Done(step))) => settled(step),
        };
        own && self.objects.iter().all(|(_, step)| settled(step))
    }
}

/// Looks at everything that the root file names.
pub(crate) async fn look<'r>(
    cluster: &Cluster,
    root: &'r Root,
    asked: bool,
    brought: &BTreeSet<String>,
) -> Result<Found<'r>, ClusterError> {
    let mut objects = Vec::new();
    for placed in &root.objects {
        let live = cluster.get(&at(placed)).await?;
        let wanted = keeping_exclusions(&placed.object, live.as_ref(), brought);
        objects.push((placed, step(&wanted, live.as_ref())));
    }
    let own = match &root.own {
        Some(placed) => {
            let live = cluster.get(&at(placed)).await?;
            let namespace = placed.object.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
            let stored = cluster.get(&path::object(&path::config_maps(namespace), RECEIPT)).await?;
            let proven = listed(stored.as_ref()).contains(&identity(&placed.object));
            Some((placed, handover(&placed.object, live.as_ref(), asked, proven)))
        }
        None => None,
    };
    Ok(Found { objects, own })
}

/// True where nothing of the root file has to be written, as far as the account may know: whoever may not look, as the account
/// of a run, leaves it as it is.
///
/// # Errors
/// When the cluster cannot be asked.
pub(crate) async fn settled(cluster: &Cluster, rooting: &Rooting) -> Result<bool, Failure> {
    match look(cluster, &rooting.root, rooting.asked, &rooting.brought).await {
        Ok(found) => Ok(found.is_settled()),
        Err(ClusterError::Refused { code: 401 | 403, .. }) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// What is somebody else's, and says something else.
fn foreign<'f>(found: &Found<'f>) -> Vec<&'f Placed> {
    let objects = found.objects.iter().filter(|(_, step)| *step == Step::Refuse).map(|(placed, _)| *placed);
    let own = found.own.iter().filter(|(_, what)| *what == Handover::Done(Step::Refuse));
    objects.chain(own.map(|(placed, _)| *placed)).collect()
}

/// Applies the root file. `done` hears of every object; what is left to be done by somebody is given back.
///
/// # Errors
/// When something of it is somebody else's, or Argo CD cannot be handed over; then nothing of that was changed.
pub(super) async fn rooted(
    cluster: &Cluster,
    places: &Places,
    rooting: &Rooting,
    done: &mut impl FnMut(&str),
) -> Result<Vec<String>, Failure> {
    let found = look(cluster, &rooting.root, rooting.asked, &rooting.brought).await?;
    let receipt_path = path::object(&path::config_maps(&places.argocd), RECEIPT);
    let stored = cluster.get(&receipt_path).await?;
    refused(places, &foreign(&found), stored.as_ref())?;
    let mut ours = BTreeSet::new();
    for (placed, step) in &found.objects {
        let name = identity(&placed.object);
        written(cluster, placed, *step, &rooting.brought).await?;
        let whose = if *step == Step::Left { ", which is somebody else's and says the same" } else { "" };
        done(&format!("{name}{whose}"));
        if *step != Step::Left {
            ours.insert(name);
        }
    }
    let mut notes = Vec::new();
    match &found.own {
        None => {}
        Some((_, Handover::NotAsked)) => notes.push(format!(
            "app.yaml has an Application `{APPLICATION}`, and Argo CD was not handed over to it: `forge bootstrap --with self-managed-argocd` does"
        )),
        Some((placed, Handover::Compare | Handover::Unproven(_))) => {
            // What was applied until here is written down, whatever becomes of this: the Application is not among it before it
            // is Synced and Healthy.
            noted(cluster, places, stored.as_ref(), &ours).await?;
            let over = Over { cluster, places, own: placed, patience: rooting.patience };
            let mut lock = lock::take(cluster, &places.workflows, done).await?;
            let handed = tokio::select! {
                handed = over.handed(rooting.asked, done) => handed,
                failure = lock.lost() => Err(failure),
            };
            let released = lock.release(cluster).await;
            let how = handed?;
            released?;
            done(&format!("{}: Argo CD manages itself{how}", identity(&placed.object)));
            ours.insert(identity(&placed.object));
        }
        Some((placed, Handover::Done(step))) => {
            done(&format!("{}: Argo CD manages itself", identity(&placed.object)));
            if *step != Step::Left {
                ours.insert(identity(&placed.object));
            }
        }
    }
    let named = rooting.root.objects.iter().chain(&rooting.root.own);
    let named: BTreeSet<String> = named.map(|placed| identity(&placed.object)).collect();
    let before = listed(stored.as_ref());
    let gone = before.difference(&named);
    notes
        .extend(gone.map(|name| format!("{name} was applied once and is not in app.yaml any more; it stays as it is")));
    let stored = cluster.get(&receipt_path).await?;
    noted(cluster, places, stored.as_ref(), &ours).await?;
    Ok(notes)
}

/// Nothing is written where something is somebody else's.
fn refused(places: &Places, foreign: &[&Placed], stored: Option<&Value>) -> Result<(), Failure> {
    let argocd = &places.argocd;
    if let Some(stored) = stored.filter(|stored| !is_ours(stored)) {
        let message = format!("ConfigMap {RECEIPT} in `{argocd}` is somebody else's; nothing of the root was written");
        return Err(Failure::new(Code::RootForeign, message).hint(format!("to hand it over: {}", handing(stored))));
    }
    let Some(first) = foreign.first() else { return Ok(()) };
    let names: Vec<String> = foreign.iter().map(|placed| identity(&placed.object)).collect();
    let (names, verb) = (names.join(", "), if foreign.len() == 1 { "is" } else { "are" });
    let message = format!(
        "{names} in `{argocd}` {verb} somebody else's and not as app.yaml has it; nothing of the root was written"
    );
    Err(Failure::new(Code::RootForeign, message).hint(format!("to hand one over: {}", handing(&first.object))))
}

async fn written(cluster: &Cluster, placed: &Placed, step: Step, brought: &BTreeSet<String>) -> Result<(), Failure> {
    if matches!(step, Step::Make | Step::Change) {
        // What was torn down stays out of the root set until it is prepared again.
        let live = cluster.get(&at(placed)).await?;
        let wanted = keeping_exclusions(&placed.object, live.as_ref(), brought);
        failpoint::write(&identity(&placed.object));
        cluster.apply(&at(placed), &wanted).await?;
    }
    Ok(())
}

/// Writes down what was applied, where that is not written down yet.
async fn noted(
    cluster: &Cluster,
    places: &Places,
    stored: Option<&Value>,
    ours: &BTreeSet<String>,
) -> Result<(), Failure> {
    let object = receipt(&places.argocd, ours);
    if !stored.is_some_and(|stored| says(stored, &object)) {
        failpoint::write(&identity(&object));
        cluster.apply(&path::object(&path::config_maps(&places.argocd), RECEIPT), &object).await?;
    }
    Ok(())
}

/// What Helm's installation of Argo CD was proven by.
async fn parts(cluster: &Cluster, places: &Places) -> Result<Vec<Part>, Failure> {
    let name = install::receipt_name(Component::Cd);
    let stored = cluster.get(&path::object(&path::config_maps(&places.argocd), &name)).await?;
    Ok(stored.as_ref().and_then(Receipt::read).map(|receipt| receipt.parts).unwrap_or_default())
}

/// Argo CD on its way to its own Application.
struct Over<'o> {
    cluster: &'o Cluster,
    places: &'o Places,
    own: &'o Placed,
    patience: Duration,
}

impl Over<'_> {
    /// Hands it over, as far as whoever had the Lease before did not. Gives what there is to say about it.
    async fn handed(&self, asked: bool, say: &mut impl FnMut(&str)) -> Result<String, Failure> {
        let live = self.cluster.get(&at(self.own)).await?;
        match handover(&self.own.object, live.as_ref(), asked, false) {
            Handover::Compare => {
                let parts = parts(self.cluster, self.places).await?;
                let workloads = self.hand(live.as_ref(), &parts, say).await?;
                Ok(format!("; {workloads} workloads are what they were"))
            }
            Handover::Unproven(step) => {
                written(self.cluster, self.own, step, &BTreeSet::new()).await?;
                let (argocd, id) = self.server().await?;
                self.settle(&argocd, &id, say).await?;
                Ok(String::new())
            }
            Handover::Done(_) | Handover::NotAsked => {
                let message = format!("somebody else changed {} meanwhile", identity(&self.own.object));
                Err(Failure::new(Code::BootstrapInProgress, message).hint("run this again"))
            }
        }
    }

    /// Hands it over: Argo CD compares first, and takes over only where no pod changes. Gives how many workloads there are.
    /// `say` hears what is waited for.
    async fn hand(&self, live: Option<&Value>, parts: &[Part], say: &mut impl FnMut(&str)) -> Result<usize, Failure> {
        let place = at(self.own);
        let compared = inert(&self.own.object);
        if !live.is_some_and(|live| says(live, &compared)) {
            failpoint::write(&format!("{} to be compared", identity(&compared)));
            self.cluster.apply(&place, &compared).await?;
        }
        let (argocd, id) = self.server().await?;
        let workloads = match self.compared(&argocd, &id, parts, say).await {
            Ok(workloads) => workloads,
            Err(failure) => {
                self.take_back(&place).await?;
                return Err(failure);
            }
        };
        failpoint::write(&identity(&self.own.object));
        self.cluster.apply(&place, &self.own.object).await?;
        self.settle(&argocd, &id, say).await?;
        Ok(workloads)
    }

    /// Argo CD, and what it calls its own Application.
    async fn server(&self) -> Result<(ArgoCd, ApplicationId), Failure> {
        let argocd = ArgoCd::through(self.cluster, &self.places.workflows).await?;
        let id = format!("{}/{APPLICATION}", self.places.argocd).parse::<ApplicationId>();
        Ok((argocd, id.map_err(|error| Failure::new(Code::BadArgument, error))?))
    }

    /// Waits for Argo CD's comparison, and for what it says about pods.
    async fn compared(
        &self,
        argocd: &ArgoCd,
        id: &ApplicationId,
        parts: &[Part],
        say: &mut impl FnMut(&str),
    ) -> Result<usize, Failure> {
        let deadline = Instant::now() + self.patience;
        let (mut refusals, mut said) = (0, String::new());
        loop {
            let why = match comparison(argocd, id).await {
                Ok(items) => match adoption(&items, parts) {
                    Ok(workloads) => return Ok(workloads),
                    Err(changes) => {
                        refusals += 1;
                        if refusals >= REFUSALS {
                            return Err(changed(&changes));
                        }
                        changes.join("; ")
                    }
                },
                Err(why) => why,
            };
            if Instant::now() >= deadline {
                let seconds = self.patience.as_secs();
                let message = format!("Argo CD did not compare its own Application within {seconds} s: {why}");
                return Err(Failure::new(Code::AdoptionUnfinished, message)
                    .hint("put right what it names, then run this again; Argo CD is as Helm installed it"));
            }
            say_anew(&mut said, &format!("{} is compared: {why}", identity(&self.own.object)), say);
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Removes the Application that was only compared. It has no finalizer, so nothing goes with it; one that somebody gave a
    /// finalizer stays.
    async fn take_back(&self, place: &str) -> Result<(), Failure> {
        let live = self.cluster.get(place).await?;
        let kept = |live: &Value| {
            let finalizers = live.pointer("/metadata/finalizers").and_then(Value::as_array);
            finalizers.is_some_and(|finalizers| !finalizers.is_empty())
        };
        if live.is_some_and(|live| is_ours(&live) && is_pending(&live) && !kept(&live)) {
            failpoint::write(&format!("{} goes", identity(&self.own.object)));
            self.cluster.delete(place).await?;
        }
        Ok(())
    }

    /// Waits until Argo CD has taken over.
    async fn settle(&self, argocd: &ArgoCd, id: &ApplicationId, say: &mut impl FnMut(&str)) -> Result<(), Failure> {
        let deadline = Instant::now() + self.patience;
        let (mut refreshed, mut said) = (false, String::new());
        loop {
            // What Argo CD says until it is asked may be about what the Application was before.
            let answer = if refreshed { argocd.get(id).await } else { argocd.refresh(id).await.map(Some) };
            refreshed |= answer.is_ok();
            let why = match answer {
                Ok(Some(now)) if now.sync == SyncState::Synced && now.health == Health::Healthy && !now.in_flight => {
                    return Ok(());
                }
                Ok(Some(now)) => {
                    let said = now.operation.map(|operation| operation.message).unwrap_or_default();
                    let said = now.conditions.first().cloned().unwrap_or(said);
                    format!("{}, {}{}{said}", now.sync, now.health, if said.is_empty() { "" } else { ": " })
                }
                Ok(None) => "it is gone".to_owned(),
                Err(error) => error.to_string(),
            };
            if Instant::now() >= deadline {
                let seconds = self.patience.as_secs();
                let message = format!("Argo CD's own Application is not Synced and Healthy after {seconds} s: {why}");
                let namespace = &self.places.argocd;
                return Err(Failure::new(Code::AdoptionUnfinished, message).hint(format!(
                    "`kubectl -n {namespace} describe application {APPLICATION}` says why; then run this again"
                )));
            }
            say_anew(&mut said, &format!("{} takes over: {why}", identity(&self.own.object)), say);
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Says what is waited for, where that is something else than what was said last.
fn say_anew(said: &mut String, line: &str, say: &mut impl FnMut(&str)) {
    if said.as_str() != line {
        say(line);
        line.clone_into(said);
    }
}

/// Pods would not stay what they are.
fn changed(changes: &[String]) -> Failure {
    const SHOWN: usize = 5;
    let shown: Vec<&str> = changes.iter().take(SHOWN).map(String::as_str).collect();
    let more = match changes.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let message = format!("Argo CD was not handed over to its own Application: {}{more}", shown.join("; "));
    Failure::new(Code::AdoptionRefused, message)
        .hint("are app.yaml and the chart pushed as they are here? Argo CD reads them from Git, Helm was given these")
}

/// Argo CD's own comparison of all workloads, made after it was asked for.
async fn comparison(argocd: &ArgoCd, id: &ApplicationId) -> Result<Vec<Value>, String> {
    let told = |error: ClusterError| argocd::failure(&error).message;
    let application = argocd.refresh(id).await.map_err(told)?;
    if let Some(condition) = application.conditions.into_iter().next() {
        return Err(condition);
    }
    if application.sync == SyncState::Unknown {
        return Err("it is not compared yet".to_owned());
    }
    let mut items = Vec::new();
    for kind in WORKLOADS {
        items.extend(argocd.compared(id, kind).await.map_err(told)?);
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use forge_core::render::MANAGED_BY;
    use serde_json::json;

    use super::*;

    fn placed(kind: &str, name: &str) -> Placed {
        let metadata = json!({"name": name, "namespace": "argocd", "labels": {MANAGED_BY: "forge"}});
        let collection = "/apis/argoproj.io/v1alpha1/namespaces/argocd/applicationsets".to_owned();
        Placed { collection, object: json!({"kind": kind, "metadata": metadata}) }
    }

    #[test]
    fn where_something_is_somebody_elses_it_is_named_and_how_it_is_handed_over() {
        let places = Places { argocd: "argocd".to_owned(), ..Places::default() };
        let (set, own) = (placed("ApplicationSet", "environments"), placed("Application", "argocd"));
        let found = Found { objects: vec![(&set, Step::Refuse)], own: Some((&own, Handover::Done(Step::Refuse))) };
        assert!(!found.is_settled());
        let failure = refused(&places, &foreign(&found), None).unwrap_err();
        assert_eq!(failure.code, Code::RootForeign);
        assert!(failure.message.starts_with("ApplicationSet environments, Application argocd in `argocd` are"));
        assert_eq!(
            failure.hint.unwrap(),
            "to hand one over: kubectl -n argocd label applicationset environments app.kubernetes.io/managed-by=forge --overwrite"
        );
        let stored = json!({"kind": "ConfigMap", "metadata": {"name": RECEIPT, "namespace": "argocd"}});
        assert!(refused(&places, &[], Some(&stored)).is_err());
        assert!(refused(&places, &[], None).is_ok());
    }

    #[test]
    fn nothing_is_to_be_written_where_everything_is_as_it_should_be_whosever_it_is() {
        let (set, own) = (placed("ApplicationSet", "environments"), placed("Application", "argocd"));
        for (step, what, settled) in [
            (Step::Nothing, Handover::NotAsked, true),
            (Step::Left, Handover::Done(Step::Nothing), true),
            (Step::Make, Handover::NotAsked, false),
            (Step::Change, Handover::Done(Step::Nothing), false),
            (Step::Nothing, Handover::Compare, false),
            (Step::Nothing, Handover::Unproven(Step::Change), false),
            (Step::Nothing, Handover::Unproven(Step::Nothing), false),
        ] {
            let found = Found { objects: vec![(&set, step)], own: Some((&own, what)) };
            assert_eq!(found.is_settled(), settled, "{step:?}, {what:?}");
        }
    }

    #[test]
    fn what_is_waited_for_is_said_once_until_it_is_something_else() {
        let (mut said, mut lines) = (String::new(), Vec::new());
        for line in ["a", "a", "b", "b", "a"] {
            say_anew(&mut said, line, &mut |line: &str| lines.push(line.to_owned()));
        }
        assert_eq!(lines, ["a", "b", "a"]);
    }

    #[test]
    fn of_many_changes_the_first_are_told() {
        let changes: Vec<String> = (0..7).map(|n| format!("Deployment {n} would be made")).collect();
        let failure = changed(&changes);
        assert_eq!(failure.code, Code::AdoptionRefused);
        assert!(failure.message.ends_with("Deployment 4 would be made; and 2 more"), "{}", failure.message);
    }
}
