//! What a cluster says about a part of Argo: revisions of its Helm release, the receipt of what was proven, what of that is not
//! well now, and whether Argo CD manages itself. What is to be done follows from it, and is decided by the core.

use forge_core::code::Code;
use forge_core::failure::Failure;
use forge_core::install::{self, APPLICATION, Fault, Managed, Part, Receipt, Revision, Step, Wanted, decide};
use forge_core::preflight::Component;
use serde_json::Value;
use tokio::time::Instant;

use super::{Halt, PAUSE, Phase};
use crate::cluster::{Cluster, ClusterError, path};
use crate::interrupt::Interrupts;

/// What a cluster says about a part of Argo.
pub(super) struct Found {
    pub(super) revisions: Vec<Revision>,
    /// The ConfigMap of the receipt, whosever it is.
    pub(super) stored: Option<Value>,
    pub(super) receipt: Option<Receipt>,
    pub(super) faults: Faults,
    /// Argo CD manages itself.
    pub(super) managed: Option<Managed>,
}

/// What of an installation is not as it was proven.
#[derive(Default)]
pub(super) struct Faults {
    pub(super) broken: Vec<String>,
    pub(super) waiting: Vec<String>,
}

impl Faults {
    pub(super) fn first(&self) -> Option<&String> {
        self.broken.first().or_else(|| self.waiting.first())
    }
}

impl Found {
    /// What is to be done next, whosever it is.
    pub(super) fn next(&self, wanted: &Wanted) -> Step {
        match &self.managed {
            Some(managed) => Step::Managed { how: managed.how.clone() },
            None => decide(wanted, &self.revisions, self.receipt.as_ref(), &self.faults.broken),
        }
    }

    /// What is to be done next.
    ///
    /// # Errors
    /// When it is somebody else's.
    pub(super) fn step(&self, wanted: &Wanted) -> Result<Step, Failure> {
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

/// Looks.
///
/// # Errors
/// When something cannot be read.
pub(super) async fn found(cluster: &Cluster, wanted: &Wanted) -> Result<Found, ClusterError> {
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

/// Where the receipt of a part is.
pub(super) fn receipt_path(wanted: &Wanted) -> String {
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
pub(super) async fn settled(phase: &Phase<'_>, parts: &[Part], interrupts: &mut Interrupts) -> Result<Faults, Halt> {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use forge_core::health::HealthChecks;
    use forge_core::install::Status;

    use super::*;

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
