//! Phase 1, Helm installs (SPEC.md section 4): Argo CD, Argo Workflows and Argo Events, one after the other, each through
//! pre-check, apply, test, validate, rollback and result. What is to be done is decided by the core from what the cluster
//! says; where nothing is, helm is not even looked for.
//!
//! Must never change a release, a namespace or a ConfigMap that Forge did not make (INV-11). Whatever ends this between any
//! two writes, the next run reads where it stands and goes on from there.

mod charts;
mod check;
mod helm;
mod lock;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forge_core::code::Code;
use forge_core::failure::Failure;
use forge_core::health::HealthChecks;
use forge_core::install::{
    self, Fault, Part, PlannedRelease, Receipt, Revision, Step, Wanted, decide, has_tests, parts, says, values_path,
};
use forge_core::preflight::{Component, Intent, Purpose};
use forge_core::render::MANAGED_BY;
use forge_core::yaml::{Dialect, Limits, Node, read};
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::time::Instant;

pub(crate) use charts::Charts;
pub(crate) use check::{Compared, check};

use crate::cluster::{Cluster, ClusterError, path};
use crate::failpoint;
use crate::interrupt::Interrupts;
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

/// The parts of Argo that are to be installed, in their order.
///
/// # Errors
/// When a chart is not there.
pub(crate) fn installing(
    purpose: &Purpose,
    health: &HealthChecks,
    values: &BTreeMap<Component, Value>,
    charts: &Charts,
) -> Result<Vec<Installing>, Failure> {
    let wanted = Component::ALL.into_iter().filter(|component| purpose.intent(*component) == Intent::Install);
    wanted
        .map(|component| {
            let source = charts.source(&install::chart(component))?;
            let (namespace, own) = (purpose.place(component), values.get(&component));
            let wanted = Wanted::new(component, namespace, health, own, source.content.as_ref());
            Ok(Installing { wanted, source })
        })
        .collect()
}

/// The same for a program that installs them by other means.
pub(crate) fn planned(installing: &[Installing]) -> Vec<PlannedRelease> {
    let of = |part: &Installing| {
        let Source { reference, repository, version, .. } = &part.source;
        let chart = reference.to_string_lossy().into_owned();
        PlannedRelease::new(&part.wanted, chart, repository.clone(), version.clone())
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
}

/// How it ended, if it did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Everything is installed and proven.
    Done,
    /// Somebody wanted it to stop; the next run goes on.
    Interrupted,
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

async fn install_all(phase: &Phase<'_>, interrupts: &mut Interrupts, say: &mut dyn FnMut(&str)) -> Result<(), Halt> {
    let mut done = true;
    for part in phase.installing {
        let found = found(phase.cluster, &part.wanted).await?;
        done &= matches!(found.step(&part.wanted)?, Step::Nothing { .. });
    }
    if done {
        for part in phase.installing {
            unchanged(phase, part, interrupts, say).await?;
        }
        return Ok(());
    }
    let kubeconfig = (phase.kubeconfig)()?;
    let helm = Helm::find(phase.helm, &kubeconfig, interrupts).await;
    let helm = helm.map_err(|error| halted(&error, HelmError::failure))?;
    make_namespaces(phase, say).await?;
    let lock = lock::take(phase.cluster, phase.workflows, say).await?;
    let outcome = chain(phase, &helm, interrupts, say).await;
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
        failpoint::write();
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
    /// What is to be done next.
    ///
    /// # Errors
    /// When it is somebody else's.
    fn step(&self, wanted: &Wanted) -> Result<Step, Failure> {
        let step = decide(wanted, &self.revisions, self.receipt.as_ref(), &self.faults.broken);
        let (title, namespace) = (wanted.component.title(), &wanted.namespace);
        let foreign = match &step {
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
    Ok(Found { revisions, stored, receipt, faults })
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
    let receipt = found(phase.cluster, wanted).await?.receipt;
    let (revision, parts) = receipt.map_or((0, Vec::new()), |receipt| (receipt.revision, receipt.parts));
    let faults = settled(phase, &parts, interrupts).await?;
    match faults.first() {
        None => {
            let chart = format!("chart {} {}, revision {revision}", wanted.chart.name, wanted.chart.version);
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

    async fn step(&self) -> Result<Step, Halt> {
        Ok(found(self.phase.cluster, &self.part.wanted).await?.step(&self.part.wanted)?)
    }

    /// The six steps.
    async fn done(&self, interrupts: &mut Interrupts, say: &mut dyn FnMut(&str)) -> Result<(), Halt> {
        let chart = &self.part.wanted.chart;
        if let Step::Nothing { .. } = self.step().await? {
            return unchanged(self.phase, self.part, interrupts, say).await;
        }
        let rendered = self.helm.template(self.release(), self.made(), interrupts).await;
        rendered.map_err(|error| halted(&error, |error| self.chart_failure(error)))?;
        let step = self.repaired(interrupts, say).await?;
        let there = match &step {
            Step::Install => "nothing of it is there".to_owned(),
            Step::Upgrade { from, why } => format!("revision {from} is there: {why}"),
            Step::Nothing { revision } | Step::Record { revision } => {
                format!("revision {revision} is what is wanted, and not proven yet")
            }
            Step::RollBack { .. } | Step::Uninstall { .. } | Step::Refuse { .. } => "it is not repaired".to_owned(),
        };
        say(&self.line("pre-check", &format!("chart {} {} renders; {there}", chart.name, chart.version)));
        self.apply(&step, interrupts, say).await?;
        self.test(&step, interrupts, say).await?;
        let parts = self.validate(&step, interrupts, say).await?;
        say(&self.line("rollback", "not needed"));
        self.result(parts, say).await
    }

    /// What a killed bootstrap left is put right; gives what is to be done then.
    async fn repaired(&self, interrupts: &mut Interrupts, say: &mut dyn FnMut(&str)) -> Result<Step, Halt> {
        for _ in 0..REPAIRS {
            let step = self.step().await?;
            let repair = match &step {
                Step::RollBack { from, status, to } => {
                    let what = format!("revision {from} is {status}: back to revision {to}, which came up");
                    say(&self.line("repair", &what));
                    failpoint::write();
                    self.helm.rollback(self.release(), *to, self.phase.timeout, interrupts).await
                }
                Step::Uninstall { revision, status } => {
                    let what = format!("revision {revision} is {status}, and none ever came up: it is removed first");
                    say(&self.line("repair", &what));
                    failpoint::write();
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
        failpoint::write();
        match self.helm.upgrade(self.release(), self.made(), &labels, self.phase.timeout, interrupts).await {
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
        failpoint::write();
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

    async fn result(&self, parts: Vec<Part>, say: &mut dyn FnMut(&str)) -> Result<(), Halt> {
        let wanted = &self.part.wanted;
        let found = found(self.phase.cluster, wanted).await?;
        let revision = match found.step(wanted)? {
            Step::Nothing { revision } | Step::Record { revision } => revision,
            // What an older receipt names may be gone with the new version.
            Step::Upgrade { from, .. } if found.receipt.is_some() => from,
            _ => return Err(self.stuck("somebody else changed it meanwhile").into()),
        };
        let object = Receipt::new(wanted, revision, parts).object(wanted.component, &wanted.namespace);
        if !found.stored.as_ref().is_some_and(|stored| says(stored, &object)) {
            failpoint::write();
            self.phase.cluster.apply(&receipt_path(wanted), &object).await?;
        }
        let chart = &wanted.chart;
        say(&self.line("result", &format!("chart {} {}, revision {revision}, proven", chart.name, chart.version)));
        Ok(())
    }

    /// What was applied came up and is not what it should be: back to what was there before, and why.
    async fn undone(&self, before: &Step, why: &str, interrupts: &mut Interrupts, say: &mut dyn FnMut(&str)) -> Halt {
        let undone = match before {
            Step::Upgrade { from, .. } => {
                failpoint::write();
                self.helm.rollback(self.release(), *from, self.phase.timeout, interrupts).await
            }
            Step::Install => {
                failpoint::write();
                self.helm.uninstall(self.release(), self.phase.timeout, interrupts).await
            }
            // Nothing was applied, so nothing is taken back.
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
        let (title, chart) = (wanted.component.title(), &wanted.chart);
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
                Step::Upgrade { .. },
                Step::Upgrade { from, .. } | Step::Nothing { revision: from } | Step::Record { revision: from },
            ) => {
                say(&self.line("rollback", &format!("back to what it was, as revision {from}")));
                let message = format!(
                    "the upgrade of {title} to chart {} failed and was taken back (it is what it was, as revision {from}): {why}",
                    chart.version
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
