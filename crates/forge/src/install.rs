//! Phase 1, Helm installs (SPEC.md section 4): Argo CD, Argo Workflows and Argo Events, one after the other, each through
//! pre-check, apply, test, validate, rollback and result. What is to be done is decided by the core from what the cluster
//! says; where nothing is, helm is not even looked for.
//!
//! Must never change a release, a namespace or a ConfigMap that Forge did not make (INV-11). Whatever ends this between any
//! two writes, the next run reads where it stands and goes on from there.

mod charts;
mod check;
mod found;
mod helm;
pub(crate) mod lock;
mod plan;
mod removal;
mod work;

use std::path::Path;
use std::time::Duration;

use forge_core::failure::Failure;
use secrecy::SecretString;
use serde_json::Value;

pub(crate) use charts::Charts;
pub(crate) use check::{Compared, check};
pub(crate) use plan::{Installing, installing, namespaces, outdated, own, planned, root};
pub(crate) use removal::{Removing, uninstall, whose_release};

use crate::cluster::{Cluster, ClusterError, path};
use crate::failpoint;
use crate::interrupt::Interrupts;
use crate::registry::Options;
use crate::teardown::inventory::Before;
use found::found;
use helm::{Helm, HelmError};
use work::{Work, unchanged};

/// How long a part of Argo may take to come up unless somebody says otherwise, and as long again to go back.
pub(crate) const TIMEOUT: forge_core::duration::Duration = forge_core::duration::Duration::from_seconds(300);
/// Between two looks.
const PAUSE: Duration = Duration::from_secs(1);

/// What phase 1 is to do with Helm.
pub(crate) struct Phase<'p> {
    pub(crate) cluster: &'p Cluster,
    /// How the cluster was reached, so that helm reaches the same; asked only where helm is needed.
    pub(crate) kubeconfig: &'p dyn Fn() -> Result<SecretString, Failure>,
    /// How registries are spoken with, for charts that come from one; asked only where helm is needed.
    pub(crate) registries: &'p dyn Fn() -> Result<Options, Failure>,
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
    let (kubeconfig, registries) = ((phase.kubeconfig)()?, (phase.registries)()?);
    let helm = Helm::find(phase.helm, &kubeconfig, registries, interrupts).await;
    let helm = helm.map_err(|error| halted(&error, HelmError::failure))?;
    // All of them before the first write: a chart that cannot be had is no reason to begin.
    let works = fetched(phase, &helm, interrupts).await?;
    make_namespaces(phase, say).await?;
    phase.before.keep(phase.cluster, say).await?;
    let mut lock = tokio::select! {
        lock = lock::take(phase.cluster, phase.workflows, say) => lock?,
        () = interrupts.heard() => return Err(Halt::Interrupted),
    };
    let outcome = tokio::select! {
        outcome = chain(works, interrupts, say) => outcome,
        // What helm is at ends with it: it is the other one's to repair.
        failure = lock.lost() => Err(failure.into()),
    };
    let released = lock.release(phase.cluster).await;
    outcome?;
    Ok(released?)
}

/// What is to be done for each part, with its chart where anything is.
async fn fetched<'w>(phase: &'w Phase<'w>, helm: &'w Helm, interrupts: &mut Interrupts) -> Result<Vec<Work<'w>>, Halt> {
    let mut works = Vec::new();
    for part in phase.installing {
        let name = format!("{}.json", part.wanted.chart.name);
        let values = helm.file(&name, &part.wanted.values.to_string());
        let values = values.map_err(|error| halted(&error, HelmError::failure))?;
        let mut work = Work { phase, helm, part, chart: Vec::new(), values };
        if !work.step().await?.is_done() {
            work.fetch(interrupts).await?;
        }
        works.push(work);
    }
    Ok(works)
}

/// One after the other: what comes later is not begun where something before it failed.
async fn chain(works: Vec<Work<'_>>, interrupts: &mut Interrupts, say: &mut dyn FnMut(&str)) -> Result<(), Halt> {
    for work in works {
        work.done(interrupts, say).await?;
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
