//! Takes parts of Argo away again that Forge installed: the other end of phase 1. Only releases all of whose revisions are
//! ours (INV-11); what their charts keep stays.

use std::path::Path;
use std::time::Duration;

use forge_core::code::Code;
use forge_core::failure::Failure;
use forge_core::install::Revision;
use forge_core::preflight::Component;
use secrecy::SecretString;

use super::helm::{Helm, HelmError, Release};
use super::{Outcome, lock};
use crate::bootstrap::administrator;
use crate::cluster::{Cluster, ClusterError, path};
use crate::failpoint;
use crate::interrupt::Interrupts;
use crate::registry::Options;

/// Parts of Argo that are to be removed.
pub(crate) struct Removing<'r> {
    pub(crate) cluster: &'r Cluster,
    /// How the cluster was reached, so that helm reaches the same; asked only where helm is needed.
    pub(crate) kubeconfig: &'r dyn Fn() -> Result<SecretString, Failure>,
    /// The namespace of Argo Workflows, where bootstraps wait for each other.
    pub(crate) workflows: &'r str,
    /// The program; that of the path if absent.
    pub(crate) helm: Option<&'r Path>,
    /// How long a part may take to go, asked when its turn comes.
    pub(crate) timeout: &'r dyn Fn() -> Duration,
    /// Hears of each part that is gone.
    pub(crate) removed: &'r dyn Fn(Component),
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
    // Nothing is fetched.
    let registries = Options::default();
    let helm = match Helm::find(removing.helm, &kubeconfig, registries, interrupts).await {
        Err(HelmError::Interrupted) => return Ok(Outcome::Interrupted),
        found => found.map_err(|error| error.failure())?,
    };
    let lock = if removing.locked { None } else { Some(lock::take(removing.cluster, removing.workflows, say).await?) };
    let mut outcome = Ok(Outcome::Done);
    for (component, namespace) in parts {
        let name = component.release();
        failpoint::write(&format!("helm uninstall {name}"));
        match helm.uninstall(Release { name, namespace }, (removing.timeout)(), interrupts).await {
            Ok(()) => {
                say(&format!("{:<14} uninstall removed", component.title()));
                (removing.removed)(*component);
                // Helm does not know of it, and there is no Argo CD any more that it would count for.
                if *component == Component::Cd
                    && let Err(failure) = administrator::forget(removing.cluster, namespace).await
                {
                    outcome = Err(failure);
                    break;
                }
            }
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
