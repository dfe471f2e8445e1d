//! Phase 1, Helm installs (SPEC.md section 4): Argo CD, Argo Workflows and Argo Events, one after the other, each through
//! pre-check, apply, test, validate, rollback and result. What is to be done is decided by the core from what the cluster
//! says; where nothing is, helm is not even looked for.
//!
//! Must never change a release, a namespace or a ConfigMap that Forge did not make (INV-11). Whatever ends this between any
//! two writes, the next run reads where it stands and goes on from there.

mod charts;
mod check;
mod helm;
pub(crate) mod lock;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forge_core::code::Code;
use forge_core::failure::Failure;
use forge_core::health::HealthChecks;
use forge_core::install::{
    self, APPLICATION, Fault, Managed, Own, Part, PlannedChart, PlannedSource, Receipt, Revision, Step, Wanted, decide,
    has_tests, parts, same_objects, says, values_path,
};
use forge_core::name::clip;
use forge_core::preflight::{Component, Intent, Intents, Purpose};
use forge_core::render::MANAGED_BY;
use forge_core::repository::{ROOT_APP_FILE, Repository};
use forge_core::root::{self, Root};
use forge_core::yaml::{Dialect, Limits, Node, read};
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::time::Instant;

pub(crate) use charts::Charts;
pub(crate) use check::{Compared, check};

use crate::cluster::{Cluster, ClusterError, path};
use crate::failpoint;
use crate::interrupt::Interrupts;
use crate::teardown::inventory::Before;
use charts::Source;
use helm::{Helm, HelmError, Made, Release};

/// How long a part of Argo may take to come up unless somebody says otherwise, and as long again to go back.
pub(crate) const TIMEOUT: forge_core::duration::Duration = forge_core::duration::Duration::from_seconds(300);
/// How often what a killed bootstrap left is put right before somebody has to look.
const REPAIRS: usize = 3;
/// Between two looks.
const PAUSE: Duration = Duration::from_secs(1);
/// Definitions of Argo are deeper than files of a repository.
const OBJECTS: Limits = Limits { depth: 256, ..Limits::FILE };

/// A part of Argo that is to be installed, and its chart.
pub(crate) struct Installing {
    pub(crate) wanted: Wanted,
    source: Source,
}

/// The parts of Argo that are to be installed, in their order. Argo CD is installed as its own Application says where it is to
/// be handed over to that, with a chart that may be in the repository itself.
///
/// # Errors
/// When a chart is not there.
pub(crate) fn installing(
    purpose: &Purpose,
    health: &HealthChecks,
    values: &BTreeMap<Component, Value>,
    charts: &Charts,
    own: Option<(&Own, &Path)>,
) -> Result<Vec<Installing>, Failure> {
    let wanted = Component::ALL.into_iter().filter(|component| purpose.intent(*component) == Intent::Install);
    wanted
        .map(|component| {
            let namespace = purpose.place(component);
            if let (Component::Cd, Some((own, repository))) = (component, own) {
                let (source, version) = charts.own(&own.chart, repository)?;
                let wanted = Wanted::of_application(namespace, own, &version, source.content.as_ref());
                return Ok(Installing { wanted, source });
            }
            let chart = install::chart(component);
            let source = charts.source(chart.name, chart.version)?;
            let wanted = Wanted::new(component, namespace, health, values.get(&component), source.content.as_ref());
            Ok(Installing { wanted, source })
        })
        .collect()
}

/// The same for a program that installs them by other means.
pub(crate) fn planned(installing: &[Installing]) -> Vec<PlannedChart> {
    let of = |part: &Installing| {
        let Source { reference, repository, version, .. } = &part.source;
        let (chart, repository, version) =
            (reference.to_string_lossy().into_owned(), repository.clone(), version.clone());
        PlannedChart::new(&part.wanted, PlannedSource { chart, repository, version })
    };
    installing.iter().map(of).collect()
}

/// The namespaces that they need, with our label: they go with what was installed in them. None where nothing is installed.
pub(crate) fn namespaces(installing: &[Installing], workflows: &str) -> Vec<Value> {
    let mut names: BTreeSet<&str> = installing.iter().map(|part| part.wanted.namespace.as_str()).collect();
    if !names.is_empty() {
        names.insert(workflows);
    }
    let of = |name: &str| {
        let metadata = json!({"name": name, "labels": {MANAGED_BY: "forge"}});
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    };
    names.into_iter().map(of).collect()
}

/// What of the root file of a repository is applied; nothing where there is none, or where Argo CD is somebody else's.
///
/// # Errors
/// When it cannot be applied.
pub(crate) fn root(repository: &Repository) -> Result<Option<Root>, Failure> {
    if !repository.applies_root() {
        return Ok(None);
    }
    Root::of(repository).map_err(|problems| {
        Failure::new(Code::RootUnusable, format!("{ROOT_APP_FILE} cannot be applied: {}", problems.join("; ")))
            .hint("`forge init` in an empty folder shows what belongs into it")
    })
}

/// What Argo CD's own Application says, where it is to be handed over to that.
///
/// # Errors
/// When there is none, Argo CD is somebody else's, or Helm cannot be given the same.
pub(crate) fn own(repository: &Repository) -> Result<Own, Failure> {
    let print = "`forge bootstrap --print --with self-managed-argocd` prints it as it should be";
    if Intents::of(&repository.installation.argo).cd != Intent::Install {
        let message = "self-managed-argocd: Argo CD is `existing`, and whoever owns it manages it";
        return Err(Failure::new(Code::BadArgument, message).hint("leave it out, or set `argo: {cd: install}`"));
    }
    let own = root(repository)?.and_then(|root| root.own).ok_or_else(|| {
        let message =
            format!("{ROOT_APP_FILE} has no Application `{APPLICATION}` that Argo CD could be handed over to");
        Failure::new(Code::RootUnusable, message).hint(format!("add it; {print}"))
    })?;
    Own::read(&own.object, &repository.installation).map_err(|problems| {
        let problems = problems.join("; ");
        let what = root::identity(&own.object);
        Failure::new(Code::OwnUnusable, format!("{what} in {ROOT_APP_FILE} cannot take Argo CD over: {problems}"))
            .hint(print)
    })
}

/// What there is to say about Argo CD's own Application: its values are Git's, and not those that this version of Forge and this
/// repository would install with. Nothing where they are.
pub(crate) fn outdated(
    own: &Own,
    purpose: &Purpose,
    health: &HealthChecks,
    values: &BTreeMap<Component, Value>,
) -> Option<String> {
    let (namespace, own_values) = (purpose.place(Component::Cd), values.get(&Component::Cd));
    let ours = Wanted::new(Component::Cd, namespace, health, own_values, None);
    (!says(&own.values, &ours.values)).then(|| {
        format!(
            "Application `{APPLICATION}` in {ROOT_APP_FILE} lacks values that Forge or this repository has (health checks, {}): `forge bootstrap --print --with self-managed-argocd` prints it with them",
            values_path(Component::Cd)
        )
    })
}

/// What phase 1 is to do with Helm.
pub(crate) struct Phase<'p> {
    pub(crate) cluster: &'p Cluster,
    /// How the cluster was reached, so that helm reaches the same; asked only where helm is needed.
    pub(crate) kubeconfig: &'p dyn Fn() -> Result<SecretString, Failure>,
    /// The namespace of Argo Workflows, where bootstraps wait for each other.
    pub(crate) workflows: &'p str,
    pub(crate) installing: &'p [Installing],
    /// The program; that of the path if absent.
    pub(crate) helm: Option<&'p Path>,
    /// How long each part may take to come up, and as long again to go back.
    pub(crate) timeout: Duration,
    /// What was there before the first write, to be kept as soon as there is a namespace for it.
    pub(crate) before: &'p Before,
}

/// How it ended, if it did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Everything is installed and proven.
    Done,
    /// Somebody wanted it to stop; the next run goes on.
    Interrupted,
}

/// Parts of Argo that are to be removed.
pub(crate) struct Removing<'r> {
    pub(crate) cluster: &'r Cluster,
    /// How the cluster was reached, so that helm reaches the same; asked only where helm is needed.
    pub(crate) kubeconfig: &'r dyn Fn() -> Result<SecretString, Failure>,
    /// The namespace of Argo Workflows, where bootstraps wait for each other.
    pub(crate) workflows: &'r str,
    /// The program; that of the path if absent.
    pub(crate) helm: Option<&'r Path>,
    /// How long each part may take to go.
    pub(crate) timeout: Duration,
    /// The Lease that bootstraps wait for is held already.
    pub(crate) locked: bool,
}

/// Whether the Helm release of a part of Argo is ours, all of its revisions; nothing where there is none.
///
/// # Errors
/// When the cluster cannot be asked.
pub(crate) async fn whose_release(
    cluster: &Cluster,
    component: Component,
    namespace: &str,
) -> Result<Option<bool>, ClusterError> {
    let release = component.release();
    let selector = format!("owner=helm,name={release}");
    let secrets = cluster.list_metadata(&path::core(namespace, "secrets"), &selector).await?;
    let revisions: Vec<Revision> = secrets.iter().filter_map(|secret| Revision::read(secret, release)).collect();
    Ok((!revisions.is_empty()).then(|| revisions.iter().all(|revision| revision.ours)))
}

/// Removes parts of Argo that Forge installed, one after the other, each with its namespace; what their charts keep stays. `say`
/// hears of every step.
///
/// # Errors
/// When helm cannot be used, or a release does not go.
pub(crate) async fn uninstall(
    removing: &Removing<'_>,
    parts: &[(Component, &str)],
    interrupts: &mut Interrupts,
    say: &mut dyn FnMut(&str),
) -> Result<Outcome, Failure> {
    if parts.is_empty() {
        return Ok(Outcome::Done);
    }
    let kubeconfig = (removing.kubeconfig)()?;
    let helm = match Helm::find(removing.helm, &kubeconfig, interrupts).await {
        Err(HelmError::Interrupted) => return Ok(Outcome::Interrupted),
        found => found.map_err(|error| error.failure())?,
    };
    let lock = if removing.locked { None } else { Some(lock::take(removing.cluster, removing.workflows, say).await?) };
    let mut outcome = Ok(Outcome::Done);
    for (component, namespace) in parts {
        let name = component.release();
        failpoint::write(&format!("helm uninstall {name}"));
        match helm.uninstall(Release { name, namespace }, removing.timeout, interrupts).await {
            Ok(()) => say(&format!("{:<14} uninstall removed", component.title())),
            Err(HelmError::Interrupted) => {
                outcome = Ok(Outcome::Interrupted);
                break;
            }
            Err(error) => {
                let message = format!("{} is not removed: {error}", component.title());
                let hint = format!("`helm status {name} -n {namespace}` shows where it stands; then tear down again");
                outcome = Err(Failure::new(Code::RemovalStuck, message).hint(hint));
                break;
            }
        }
    }
    if let Some(lock) = lock {
        lock.discard(removing.cluster).await?;
    }
    outcome
}

/// Why it does not go on.
enum Halt {
    Interrupted,
    Failed(Failure),
}

impl From<Failure> for Halt {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<ClusterError> for Halt {
    fn from(error: ClusterError) -> Self {
        Self::Failed(error.into())
    }
}

/// Helm's word, as a failure of one's own making.
fn halted(error: &HelmError, failure: impl FnOnce(&HelmError) -> Failure) -> Halt {
    match error {
        HelmError::Interrupted => Halt::Interrupted,
        other => Halt::Failed(failure(other)),
    }
}

/// Installs what is to be installed, and makes as it should be what is ours already. `say` hears of every step.
///
/// # Errors
/// When something is somebody else's, helm cannot be used, or an installation failed; whatever was begun is taken back
/// first.
pub(crate) async fn phase_one(
    phase: &Phase<'_>,
    interrupts: &mut Interrupts,
    say: &mut dyn FnMut(&str),
) -> Result<Outcome, Failure> {
    match install_all(phase, interrupts, say).await {
        Ok(()) => Ok(Outcome::Done),
        Err(Halt::Interrupted) => Ok(Outcome::Interrupted),
        Err(Halt::Failed(failure)) => Err(failure),
    }
}

/// Whether Helm has nothing to do for any of these.
///
/// # Errors
/// When something is somebody else's, or cannot be read.
pub(crate) async fn is_done(cluster: &Cluster, installing: &[Installing]) -> Result<bool, Failure> {
    let mut done = true;
    for part in installing {
        let found = found(cluster, &part.wanted).await?;
        done &= found.step(&part.wanted)?.is_done();
    }
    Ok(done)
}

async fn install_all(phase: &Phase<'_>, interrupts: &mut Interrupts, say: &mut dyn FnMut(&str)) -> Result<(), Halt> {
    if is_done(phase.cluster, phase.installing).await? {
        for part in phase.installing {
            unchanged(phase, part, interrupts, say).await?;
        }
        return Ok(());
    }
    let kubeconfig = (phase.kubeconfig)()?;
    let helm = Helm::find(phase.helm, &kubeconfig, interrupts).await;
    let helm = helm.map_err(|error| halted(&error, HelmError::failure))?;
    make_namespaces(phase, say).await?;
    phase.before.keep(phase.cluster, say).await?;
    let mut lock = tokio::select! {
        lock = lock::take(phase.cluster, phase.workflows, say) => lock?,
        () = interrupts.heard() => return Err(Halt::Interrupted),
    };
    let outcome = tokio::select! {
        outcome = chain(phase, &helm, interrupts, say) => outcome,
        // What helm is at ends with it: it is the other one's to repair.
        failure = lock.lost() => Err(failure.into()),
    };
    let released = lock.release(phase.cluster).await;
    outcome?;
    Ok(released?)
}

/// One after the other: what comes later is not begun where something before it failed.
async fn chain(
    phase: &Phase<'_>,
    helm: &Helm,
    interrupts: &mut Interrupts,
    say: &mut dyn FnMut(&str),
) -> Result<(), Halt> {
    for part in phase.installing {
        let name = format!("{}.json", part.wanted.chart.name);
        let values = helm.file(&name, &part.wanted.values.to_string());
        let values = values.map_err(|error| halted(&error, HelmError::failure))?;
        Work { phase, helm, part, chart: part.source.arguments(), values }.done(interrupts, say).await?;
    }
    Ok(())
}

/// Makes the namespaces that are not there.
async fn make_namespaces(phase: &Phase<'_>, say: &mut dyn FnMut(&str)) -> Result<(), Halt> {
    let collection = "/api/v1/namespaces";
    for namespace in namespaces(phase.installing, phase.workflows) {
        let name = namespace.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        if phase.cluster.get(&path::object(collection, name)).await?.is_some() {
            continue;
        }
        failpoint::write(&format!("Namespace {name}"));
        match phase.cluster.create(collection, &namespace).await {
            Err(error) if !error.is_conflict() => return Err(error.into()),
            _ => say(&format!("Namespace {name}")),
        }
    }
    Ok(())
}

/// What a cluster says about a part of Argo.
struct Found {
    revisions: Vec<Revision>,
    /// The ConfigMap of the receipt, whosever it is.
    stored: Option<Value>,
    receipt: Option<Receipt>,
    faults: Faults,
    /// Argo CD manages itself.
    managed: Option<Managed>,
}

/// What of an installation is not as it was proven.
#[derive(Default)]
struct Faults {
    broken: Vec<String>,
    waiting: Vec<String>,
}

impl Faults {
    fn first(&self) -> Option<&String> {
        self.broken.first().or_else(|| self.waiting.first())
    }
}

impl Found {
    /// What is to be done next, whosever it is.
    fn next(&self, wanted: &Wanted) -> Step {
        match &self.managed {
            Some(managed) => Step::Managed { how: managed.how.clone() },
            None => decide(wanted, &self.revisions, self.receipt.as_ref(), &self.faults.broken),
        }
    }

    /// What is to be done next.
    ///
    /// # Errors
    /// When it is somebody else's.
    fn step(&self, wanted: &Wanted) -> Result<Step, Failure> {
        let step = self.next(wanted);
        let (title, namespace) = (wanted.component.title(), &wanted.namespace);
        let foreign = match &step {
            Step::Managed { .. } => None,
            Step::Refuse { revision } => {
                Some(format!("Helm release {} in `{namespace}` (revision {revision})", wanted.chart.name))
            }
            _ if self.stored.as_ref().is_some_and(|stored| !install::receipt_is_ours(stored)) => {
                Some(format!("ConfigMap {} in `{namespace}`", install::receipt_name(wanted.component)))
            }
            _ => None,
        };
        match foreign {
            None => Ok(step),
            Some(what) => Err(Failure::new(
                Code::ArgoNotAsSaid,
                format!("{what} is somebody else's, and forge.yaml says that Forge installs {title}"),
            )
            .hint(format!(
                "set `argo: {{{}: existing}}` in forge.yaml to use it as it is, or remove it",
                wanted.component.field()
            ))),
        }
    }
}

async fn found(cluster: &Cluster, wanted: &Wanted) -> Result<Found, ClusterError> {
    let (namespace, release) = (&wanted.namespace, wanted.chart.name);
    // Of a Secret with a whole release in it only the labels matter.
    let selector = format!("owner=helm,name={release}");
    let secrets = cluster.list_metadata(&path::core(namespace, "secrets"), &selector).await?;
    let revisions = secrets.iter().filter_map(|secret| Revision::read(secret, release)).collect();
    let stored = cluster.get(&receipt_path(wanted)).await?;
    let receipt = stored.as_ref().and_then(Receipt::read);
    let faults = match &receipt {
        Some(receipt) => faults(cluster, &receipt.parts).await?,
        None => Faults::default(),
    };
    let managed = if wanted.component == Component::Cd {
        let own = path::object(&path::argo(namespace, "applications"), APPLICATION);
        cluster.get(&own).await?.and_then(|own| install::managed(&own, namespace))
    } else {
        None
    };
    Ok(Found { revisions, stored, receipt, faults, managed })
}

fn receipt_path(wanted: &Wanted) -> String {
    path::object(&path::config_maps(&wanted.namespace), &install::receipt_name(wanted.component))
}

/// What is wrong with these parts now.
async fn faults(cluster: &Cluster, parts: &[Part]) -> Result<Faults, ClusterError> {
    let mut faults = Faults::default();
    for part in parts {
        let namespace = part.namespace.as_deref().unwrap_or_default();
        let collection = match part.kind.as_str() {
            "Deployment" => path::named("apps", "v1", namespace, "deployments"),
            "StatefulSet" => path::named("apps", "v1", namespace, "statefulsets"),
            _ => path::global("apiextensions.k8s.io", "v1", "customresourcedefinitions"),
        };
        let live = cluster.get(&path::object(&collection, &part.name)).await?;
        match install::fault(part, live.as_ref()) {
            Some(Fault::Broken(why)) => faults.broken.push(why),
            Some(Fault::Waiting(why)) => faults.waiting.push(why),
            None => {}
        }
    }
    Ok(faults)
}

/// Waits until these parts are proven, or will not be; gives what is wrong with them then.
async fn settled(phase: &Phase<'_>, parts: &[Part], interrupts: &mut Interrupts) -> Result<Faults, Halt> {
    let deadline = Instant::now() + phase.timeout;
    loop {
        let faults = faults(phase.cluster, parts).await?;
        if faults.waiting.is_empty() || !faults.broken.is_empty() || Instant::now() >= deadline {
            return Ok(faults);
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = interrupts.heard() => return Err(Halt::Interrupted),
        }
    }
}

/// Looks whether a part of Argo that has not to be changed is well.
async fn unchanged(
    phase: &Phase<'_>,
    part: &Installing,
    interrupts: &mut Interrupts,
    say: &mut dyn FnMut(&str),
) -> Result<(), Halt> {
    let wanted = &part.wanted;
    let found = found(phase.cluster, wanted).await?;
    if let Step::Managed { how } = found.next(wanted) {
        // It may be another version by now, and that is Git's to say.
        let what = format!("managed by its own Application `{APPLICATION}` ({how}); Helm is not run for it");
        say(&line(wanted, "pre-check", &what));
        return Ok(());
    }
    let receipt = found.receipt;
    let (revision, parts) = receipt.map_or((0, Vec::new()), |receipt| (receipt.revision, receipt.parts));
    let faults = settled(phase, &parts, interrupts).await?;
    match faults.first() {
        None => {
            let chart = format!("chart {} {}, revision {revision}", wanted.chart.name, wanted.version);
            say(&line(wanted, "result", &format!("{chart}: nothing to do")));
            Ok(())
        }
        Some(why) => Err(unproven(wanted, why).into()),
    }
}

/// It is there, nothing was changed, and it is not well.
fn unproven(wanted: &Wanted, why: &str) -> Failure {
    let (title, namespace) = (wanted.component.title(), &wanted.namespace);
    Failure::new(Code::InstallFailed, format!("{title} is installed and not proven: {why}"))
        .hint(format!("`kubectl -n {namespace} get pods` shows which do not run; then run this again"))
}

fn line(wanted: &Wanted, step: &str, what: &str) -> String {
    format!("{:<14} {step:<9} {what}", wanted.component.title())
}

/// All documents that helm prints, as objects.
fn objects(text: &str) -> Result<Vec<Value>, String> {
    let stream = read(text, Dialect::Kubernetes, OBJECTS);
    match stream.problems.first() {
        Some(problem) => Err(format!("what helm prints cannot be read: {}: {}", problem.at, problem.message)),
        None => Ok(stream.documents.iter().map(Node::to_json).collect()),
    }
}

/// One part of Argo on its way.
struct Work<'w> {
    phase: &'w Phase<'w>,
    helm: &'w Helm,
    part: &'w Installing,
    /// The chart, as arguments.
    chart: Vec<OsString>,
    values: PathBuf,
}

impl Work<'_> {
    fn release(&self) -> Release<'_> {
        Release { name: self.part.wanted.chart.name, namespace: &self.part.wanted.namespace }
    }

    fn made(&self) -> Made<'_> {
        Made { chart: &self.chart, values: &self.values }
    }

    fn line(&self, step: &str, what: &str) -> String {
        line(&self.part.wanted, step, what)
    }

    /// Helm is about to write.
    fn point(&self, command: &str) {
        failpoint::write(&format!("helm {command} {}", self.part.wanted.chart.name));
    }

    async fn step(&self) -> Result<Step, Halt> {
        Ok(found(self.phase.cluster, &self.part.wanted).await?.step(&self.part.wanted)?)
    }

    /// The six steps.
    async fn done(&self, interrupts: &mut Interrupts, say: &mut dyn FnMut(&str)) -> Result<(), Halt> {
        let wanted = &self.part.wanted;
        if self.step().await?.is_done() {
            return unchanged(self.phase, self.part, interrupts, say).await;
        }
        let rendered = self.helm.template(self.release(), self.made(), interrupts).await;
        rendered.map_err(|error| halted(&error, |error| self.chart_failure(error)))?;
        let mut step = self.repaired(interrupts, say).await?;
        let mut same = false;
        let there = match &step {
            Step::Install => "nothing of it is there".to_owned(),
            Step::Upgrade { from, why, broken } => {
                same = !broken && self.renders_the_same(interrupts).await?;
                let but = if same { ", and renders the same" } else { "" };
                format!("revision {from} is there: {why}{but}")
            }
            Step::Nothing { revision } | Step::Record { revision, .. } => {
                format!("revision {revision} is what is wanted, and not proven yet")
            }
            Step::RollBack { .. } | Step::Uninstall { .. } | Step::Refuse { .. } | Step::Managed { .. } => {
                "it is not repaired".to_owned()
            }
        };
        if let (true, Step::Upgrade { from, .. }) = (same, &step) {
            // It is what it was: there is nothing to go back to.
            step = Step::Record { revision: *from, back: None };
        }
        let (chart, version) = (wanted.chart.name, &wanted.version);
        say(&self.line("pre-check", &format!("chart {chart} {version} renders; {there}")));
        self.apply(&step, interrupts, say).await?;
        self.test(&step, interrupts, say).await?;
        let parts = self.validate(&step, interrupts, say).await?;
        say(&self.line("rollback", "not needed"));
        self.result(parts, same, say).await
    }

    /// Whether chart and values, which are others than those of the release, give the very objects that are there.
    async fn renders_the_same(&self, interrupts: &mut Interrupts) -> Result<bool, Halt> {
        let fresh = self.helm.rendered(self.release(), self.made(), interrupts).await;
        let there = self.helm.get("manifest", self.release(), interrupts).await;
        match (fresh, there) {
            (Err(HelmError::Interrupted), _) | (_, Err(HelmError::Interrupted)) => Err(Halt::Interrupted),
            (Ok(fresh), Ok(there)) => {
                let (fresh, there) = (objects(&fresh), objects(&there));
                Ok(fresh.is_ok_and(|fresh| there.is_ok_and(|there| same_objects(&fresh, &there))))
            }
            // Why it cannot be told is what the upgrade itself says.
            _ => Ok(false),
        }
    }

    /// What a killed bootstrap left is put right; gives what is to be done then.
    async fn repaired(&self, interrupts: &mut Interrupts, say: &mut dyn FnMut(&str)) -> Result<Step, Halt> {
        for _ in 0..REPAIRS {
            let step = self.step().await?;
            let repair = match &step {
                Step::RollBack { from, status, to } => {
                    let what = format!("revision {from} is {status}: back to revision {to}");
                    say(&self.line("repair", &what));
                    self.rolled_back(*to, interrupts, say).await
                }
                Step::Uninstall { revision, status } => {
                    let what = format!("revision {revision} is {status}, and none ever came up: it is removed first");
                    say(&self.line("repair", &what));
                    self.point("uninstall");
                    self.helm.uninstall(self.release(), self.phase.timeout, interrupts).await
                }
                _ => return Ok(step),
            };
            repair.map_err(|error| halted(&error, |error| self.stuck(&error.to_string())))?;
        }
        let step = self.step().await?;
        match &step {
            Step::RollBack { status, .. } | Step::Uninstall { status, .. } => {
                Err(self.stuck(&format!("it is still {status}")).into())
            }
            _ => Ok(step),
        }
    }

    async fn rolled_back(
        &self,
        to: u64,
        interrupts: &mut Interrupts,
        say: &mut dyn FnMut(&str),
    ) -> Result<(), HelmError> {
        self.point("rollback");
        let rollback = self.helm.rollback(self.release(), to, self.phase.timeout, interrupts);
        self.unhindered(rollback, say).await
    }

    /// Lets helm work, and meanwhile takes away the pods that Kubernetes would wait for without an end.
    async fn unhindered<T>(&self, work: impl Future<Output = T>, say: &mut dyn FnMut(&str)) -> T {
        tokio::select! {
            done = work => done,
            never = self.cleared(say) => match never {},
        }
    }

    /// Looks for pods that keep a StatefulSet of the release from becoming what it is told to be. Whoever may not look, or is
    /// not answered, leaves it to helm to say what is wrong.
    async fn cleared(&self, say: &mut dyn FnMut(&str)) -> Infallible {
        loop {
            tokio::time::sleep(PAUSE).await;
            for pod in self.in_the_way().await.unwrap_or_default() {
                failpoint::write(&format!("Pod {pod} goes"));
                let path = path::object(&path::core(&self.part.wanted.namespace, "pods"), &pod);
                if self.phase.cluster.delete(&path).await.is_ok() {
                    let what = format!("pod {} is of another revision and does not start: it is removed", clip(&pod));
                    say(&self.line("repair", &what));
                }
            }
        }
    }

    async fn in_the_way(&self) -> Result<Vec<String>, ClusterError> {
        let (cluster, Release { name, namespace }) = (self.phase.cluster, self.release());
        let mut found = Vec::new();
        for set in cluster.list(&path::named("apps", "v1", namespace, "statefulsets"), "").await? {
            let Some(selector) = install::pods_of(&set, name, namespace) else { continue };
            let pods = cluster.list(&path::core(namespace, "pods"), &selector).await?;
            let pods = pods.iter().filter(|pod| install::is_in_the_way(&set, pod));
            found.extend(pods.filter_map(|pod| pod.pointer("/metadata/name")?.as_str().map(str::to_owned)));
        }
        Ok(found)
    }

    async fn apply(&self, step: &Step, interrupts: &mut Interrupts, say: &mut dyn FnMut(&str)) -> Result<(), Halt> {
        let what = match step {
            Step::Install => "installed",
            Step::Upgrade { .. } => "upgraded",
            _ => {
                say(&self.line("apply", "nothing to apply"));
                return Ok(());
            }
        };
        let wanted = &self.part.wanted;
        let labels = wanted.labels().map(|(key, value)| format!("{key}={value}")).join(",");
        self.point("upgrade");
        let upgrade = self.helm.upgrade(self.release(), self.made(), &labels, self.phase.timeout, interrupts);
        match self.unhindered(upgrade, say).await {
            Ok(()) => {
                say(&self.line("apply", what));
                Ok(())
            }
            Err(HelmError::Interrupted) => Err(Halt::Interrupted),
            Err(error) => {
                say(&self.line("apply", "failed"));
                Err(self.taken_back(step, &error.to_string(), interrupts, say).await)
            }
        }
    }

    async fn test(&self, step: &Step, interrupts: &mut Interrupts, say: &mut dyn FnMut(&str)) -> Result<(), Halt> {
        let hooks = self.helm.get("hooks", self.release(), interrupts).await;
        let hooks = hooks.map_err(|error| halted(&error, HelmError::failure))?;
        if !objects(&hooks).is_ok_and(|hooks| has_tests(&hooks)) {
            say(&self.line("test", "the chart has no tests"));
            return Ok(());
        }
        self.point("test");
        match self.helm.test(self.release(), self.phase.timeout, interrupts).await {
            Ok(()) => {
                say(&self.line("test", "the chart's own tests pass"));
                Ok(())
            }
            Err(HelmError::Interrupted) => Err(Halt::Interrupted),
            Err(error) => Err(self.undone(step, &error.to_string(), interrupts, say).await),
        }
    }

    /// What is there is what the chart says, with its images, and available.
    async fn validate(
        &self,
        step: &Step,
        interrupts: &mut Interrupts,
        say: &mut dyn FnMut(&str),
    ) -> Result<Vec<Part>, Halt> {
        let manifest = self.helm.get("manifest", self.release(), interrupts).await;
        let manifest = manifest.map_err(|error| halted(&error, HelmError::failure))?;
        let parts = match objects(&manifest) {
            Ok(objects) => parts(&objects, &self.part.wanted.namespace),
            Err(why) => return Err(self.undone(step, &why, interrupts, say).await),
        };
        let faults = settled(self.phase, &parts, interrupts).await?;
        if let Some(why) = faults.first() {
            say(&self.line("validate", why));
            return Err(self.undone(step, why, interrupts, say).await);
        }
        let definitions = parts.iter().filter(|part| part.namespace.is_none()).count();
        let workloads = parts.len() - definitions;
        let what = format!("{workloads} workloads available with their images, {definitions} definitions established");
        say(&self.line("validate", &what));
        Ok(parts)
    }

    /// Writes down what was proven; `same` is whether another chart or other values render what is there.
    async fn result(&self, parts: Vec<Part>, same: bool, say: &mut dyn FnMut(&str)) -> Result<(), Halt> {
        let wanted = &self.part.wanted;
        let found = found(self.phase.cluster, wanted).await?;
        let revision = match found.step(wanted)? {
            Step::Nothing { revision } | Step::Record { revision, .. } => revision,
            // What an older receipt names may be gone with the new version.
            Step::Upgrade { from, broken: true, .. } => from,
            Step::Upgrade { from, broken: false, .. } if same => from,
            _ => return Err(self.stuck("somebody else changed it meanwhile").into()),
        };
        let object = Receipt::new(wanted, revision, parts).object(wanted.component, &wanted.namespace);
        if !found.stored.as_ref().is_some_and(|stored| says(stored, &object)) {
            failpoint::write(&format!("ConfigMap {}", install::receipt_name(wanted.component)));
            self.phase.cluster.apply(&receipt_path(wanted), &object).await?;
        }
        let (chart, version) = (wanted.chart.name, &wanted.version);
        say(&self.line("result", &format!("chart {chart} {version}, revision {revision}, proven")));
        Ok(())
    }

    /// What was applied came up and is not what it should be: back to what was there before, and why.
    async fn undone(&self, before: &Step, why: &str, interrupts: &mut Interrupts, say: &mut dyn FnMut(&str)) -> Halt {
        let undone = match before {
            Step::Upgrade { from, .. } | Step::Record { back: Some(from), .. } => {
                self.rolled_back(*from, interrupts, say).await
            }
            Step::Install => {
                self.point("uninstall");
                self.helm.uninstall(self.release(), self.phase.timeout, interrupts).await
            }
            // Nothing was applied, and nothing was proven before it, so nothing is taken back: a receipt that somebody deleted is no
            // reason to remove an Argo that may have been good for months.
            _ => return unproven(&self.part.wanted, why).into(),
        };
        match undone {
            Ok(()) => self.taken_back(before, why, interrupts, say).await,
            Err(error) => halted(&error, |error| self.stuck(&format!("{why}; {error}"))),
        }
    }

    /// Sees to it that what failed is gone and what was there before is there again, and says so.
    async fn taken_back(
        &self,
        before: &Step,
        why: &str,
        interrupts: &mut Interrupts,
        say: &mut dyn FnMut(&str),
    ) -> Halt {
        let now = match self.repaired(interrupts, say).await {
            Ok(now) => now,
            Err(halt) => return halt,
        };
        let wanted = &self.part.wanted;
        let title = wanted.component.title();
        let values = values_path(wanted.component);
        match (before, now) {
            (Step::Install, Step::Install) => {
                say(&self.line("rollback", "removed: nothing of it is left but its definitions"));
                let message = format!("installing {title} failed, and was taken back: {why}");
                Failure::new(Code::InstallFailed, message)
                    .hint(format!("put right what it names, in {values} or in the cluster, then run this again"))
                    .into()
            }
            (
                Step::Upgrade { .. } | Step::Record { back: Some(_), .. },
                Step::Upgrade { from, .. } | Step::Nothing { revision: from } | Step::Record { revision: from, .. },
            ) => {
                say(&self.line("rollback", &format!("back to what it was, as revision {from}")));
                let message = format!(
                    "the upgrade of {title} to chart {} failed and was taken back (it is what it was, as revision {from}): {why}",
                    wanted.version
                );
                Failure::new(Code::UpgradeFailed, message)
                    .hint(format!("put right what it names, in {values} or in the cluster, then run this again"))
                    .into()
            }
            (_, now) => self.stuck(&format!("{why}; afterwards: {now:?}")).into(),
        }
    }

    fn stuck(&self, why: &str) -> Failure {
        let wanted = &self.part.wanted;
        let (title, release, namespace) = (wanted.component.title(), wanted.chart.name, &wanted.namespace);
        Failure::new(Code::ReturnFailed, format!("{title} is neither what it was nor what it should be: {why}"))
            .hint(format!("`helm history {release} -n {namespace}` shows where it stands; then run this again"))
    }

    fn chart_failure(&self, error: &HelmError) -> Failure {
        let (title, values) = (self.part.wanted.component.title(), values_path(self.part.wanted.component));
        Failure::new(Code::ChartUnusable, format!("the chart of {title} cannot be used; nothing was changed: {error}"))
            .hint(format!("--charts says where charts are, {values} what they are given"))
    }
}

#[cfg(test)]
mod tests {
    use forge_core::install::Status;
    use forge_core::scaffold::{Source as Origin, With, root_app};
    use forge_core::validate::{Content, tree};

    use super::*;

    /// A repository with this `argo` in forge.yaml, and the root file that is made of it.
    fn repository(argo: &str, root: impl Fn(&Repository) -> Option<String>) -> Repository {
        let header = "apiVersion: forge.projectcatalyst.io/v1alpha1\n";
        let installation = format!(
            "{header}kind: Forge\nspec:\n  repository: {{url: https://git.example.com/p.git}}\n  argo: {argo}\n  environments: [{{name: dev, cluster: dev, sync: auto}}]\n"
        );
        let graph = format!("{header}kind: DependencyGraph\nspec:\n  stacks: []\n");
        let mut files = BTreeMap::from([("forge.yaml".to_owned(), installation), ("graph.yaml".to_owned(), graph)]);
        let of = |files: &BTreeMap<String, String>| {
            let bytes = |(path, text): (&String, &String)| (path.clone(), Content::Bytes(text.clone().into_bytes()));
            tree(&files.iter().map(bytes).collect()).repository.unwrap()
        };
        if let Some(text) = root(&of(&files)) {
            files.insert(ROOT_APP_FILE.to_owned(), text);
        }
        of(&files)
    }

    fn scaffolded(repository: &Repository, argocd: Origin) -> String {
        root_app(&repository.installation, With { argocd, ..With::default() })
    }

    #[test]
    fn argo_cd_is_handed_over_only_where_git_has_an_application_that_can_take_it() {
        let install = "{cd: install, workflows: install, events: none}";
        let failure = |repository: &Repository| own(repository).unwrap_err().code;
        let whole = repository(install, |it| Some(scaffolded(it, Origin::Published)));
        assert_eq!(own(&whole).unwrap().chart, install::ChartPlace::Version("9.2.0".to_owned()));
        assert!(root(&whole).unwrap().is_some());
        assert_eq!(failure(&repository(install, |_| None)), Code::RootUnusable);
        assert_eq!(failure(&repository(install, |it| Some(scaffolded(it, Origin::Without)))), Code::RootUnusable);
        let renamed =
            |it: &Repository| Some(scaffolded(it, Origin::Published).replace("releaseName: argo-cd", "releaseName: x"));
        assert_eq!(failure(&repository(install, renamed)), Code::OwnUnusable);
        // Of an Argo CD that is somebody else's nothing is applied, and nothing is handed over.
        let existing = "{cd: existing, workflows: install, events: none}";
        let existing = repository(existing, |it| Some(scaffolded(it, Origin::Published)));
        assert_eq!(failure(&existing), Code::BadArgument);
        assert!(root(&existing).unwrap().is_none());
    }

    #[test]
    fn values_that_forge_has_and_the_application_has_not_are_told() {
        let install = "{cd: install, workflows: install, events: none}";
        let own = own(&repository(install, |it| Some(scaffolded(it, Origin::Published)))).unwrap();
        let (purpose, health) = (Purpose::default(), HealthChecks::merge(&BTreeMap::new()));
        assert_eq!(outdated(&own, &purpose, &health, &BTreeMap::new()), None);
        let more = BTreeMap::from([(Component::Cd, json!({"server": {"replicas": 2}}))]);
        let note = outdated(&own, &purpose, &health, &more).unwrap();
        assert!(note.contains("argo/values/argo-cd.yaml") && note.contains("--print"), "{note}");
    }

    fn wanted() -> Wanted {
        Wanted::new(Component::Cd, "argocd", &HealthChecks::merge(&BTreeMap::new()), None, None)
    }

    fn found(revisions: Vec<Revision>, managed: Option<Managed>) -> Found {
        Found { revisions, stored: None, receipt: None, faults: Faults::default(), managed }
    }

    fn revision(ours: bool, digest: &str) -> Revision {
        Revision { number: 1, status: Status::Deployed, ours, digest: Some(digest.to_owned()), chart: None }
    }

    #[test]
    fn helm_is_run_only_for_an_argo_cd_that_is_ours_and_does_not_manage_itself() {
        let managed = || Some(Managed { how: "Synced, Healthy".to_owned(), well: true });
        let step = |found: Found| found.step(&wanted());
        // Nothing is there.
        assert_eq!(step(found(Vec::new(), None)).unwrap(), Step::Install);
        // Also where a receipt is left of what somebody uninstalled.
        let receipt = Some(Receipt::new(&wanted(), 1, Vec::new()));
        let left = step(Found { receipt, ..found(Vec::new(), None) }).unwrap();
        assert!(left == Step::Install && !left.is_done());
        // A release without an Application: as it should be, and not.
        let same = wanted().label();
        assert_eq!(step(found(vec![revision(true, &same)], None)).unwrap(), Step::Record { revision: 1, back: None });
        let other = step(found(vec![revision(true, "0")], None)).unwrap();
        assert!(matches!(other, Step::Upgrade { from: 1, broken: false, .. }), "{other:?}");
        // A release of somebody else.
        assert_eq!(step(found(vec![revision(false, &same)], None)).unwrap_err().code, Code::ArgoNotAsSaid);
        // The Application is there: whatever Helm knows.
        for revisions in [Vec::new(), vec![revision(true, "0")], vec![revision(false, "0")]] {
            let managed = step(found(revisions, managed())).unwrap();
            assert!(managed.is_done());
            assert_eq!(managed, Step::Managed { how: "Synced, Healthy".to_owned() });
        }
    }
}
