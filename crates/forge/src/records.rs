//! Reads plans and records of runs from the cluster. Only reads; what is there and cannot be used is said, never guessed.

use forge_core::code::Code;
use forge_core::failure::Failure;
use forge_core::gate::RunId;
use forge_core::name::EnvironmentName;
use forge_core::render::{ENVIRONMENT_LABEL, MANAGED_BY, RUN_LABEL};
use forge_core::run::{BrokenRun, Stored, StoredRun, stored};

use crate::cluster::{Cluster, ClusterError, path};

/// All runs of an environment that are kept, the newest first, and what of them cannot be used.
///
/// # Errors
/// When the ConfigMaps cannot be listed.
pub(crate) async fn all(
    cluster: &Cluster,
    namespace: &str,
    environment: &EnvironmentName,
) -> Result<Stored, ClusterError> {
    let selector = format!("{MANAGED_BY}=forge,{ENVIRONMENT_LABEL}={environment},{RUN_LABEL}");
    Ok(stored(&cluster.list(&path::config_maps(namespace), &selector).await?))
}

/// One of those that were found.
///
/// # Errors
/// When it is not among them, or cannot be used.
pub(crate) fn one(found: Stored, run: &RunId) -> Result<StoredRun, Failure> {
    if let Some(broken) = found.broken.iter().find(|broken| broken.run == run.as_str()) {
        return Err(unusable(broken));
    }
    if found.not_begun.contains(run) {
        return Err(Failure::new(Code::NoRun, format!("run `{run}` has a plan and no record: it has not begun")).hint(
            "look again in a moment; if it never begins, `kubectl get jobs` in the namespace of the runs shows its Job",
        ));
    }
    found.runs.into_iter().find(|found| found.plan.run == *run).ok_or_else(|| {
        Failure::new(Code::NoRun, format!("no run `{run}` is recorded"))
            .hint("`forge history --environment ENVIRONMENT` lists the runs that are kept")
    })
}

/// A run that is there and cannot be used.
pub(crate) fn unusable(broken: &BrokenRun) -> Failure {
    Failure::new(Code::RunBroken, format!("the record of run `{}` cannot be used: {}", broken.run, broken.why))
        .hint("deploy again: proven nodes pass without a sync; `--run NAME` shows an older run")
}
