//! `forge bootstrap --check`: what is missing or different, of what Forge installs and of what is somebody else's. Reads
//! only.

use forge_core::failure::Failure;
use forge_core::health::HealthChecks;
use forge_core::install::{
    BootstrapCheck, CheckSubject, CheckedRelease, Observed, Step, Wanted, Weight, decide, differences, receipt_is_ours,
    receipt_name, says,
};
use forge_core::name::EnvironmentName;
use forge_core::preflight::{Component, Intent, Purpose};
use forge_core::render::{ARGOCD_SECRET, Placed};
use serde_json::Value;

use super::{Found, Installing, found, lock};
use crate::cluster::{Cluster, ClusterError, path, secret_text};

/// What a cluster is compared with.
pub(crate) struct Compared<'c> {
    pub(crate) purpose: &'c Purpose,
    pub(crate) health: &'c HealthChecks,
    pub(crate) installing: &'c [Installing],
    /// Forge's own objects.
    pub(crate) objects: &'c [Placed],
    pub(crate) environments: &'c [EnvironmentName],
}

/// Compares.
///
/// # Errors
/// When something cannot be read.
pub(crate) async fn check(cluster: &Cluster, compared: &Compared<'_>) -> Result<BootstrapCheck, Failure> {
    let at_work = lock::at_work(cluster, &compared.purpose.workflows).await;
    let mut checked = BootstrapCheck { at_work, ..BootstrapCheck::default() };
    for part in compared.installing {
        let found = found(cluster, &part.wanted).await?;
        installed(&part.wanted, &found, &mut checked);
    }
    if Component::ALL.into_iter().any(|component| compared.purpose.intent(component) == Intent::Existing) {
        let observed = observe(cluster, compared.purpose).await?;
        existing(compared, &observed, &mut checked);
    }
    own(cluster, compared, &mut checked).await?;
    Ok(checked)
}

/// A part of Argo that Forge installs.
fn installed(wanted: &Wanted, found: &Found, checked: &mut BootstrapCheck) {
    let (title, chart) = (wanted.component.title(), &wanted.chart);
    let again = "`forge bootstrap` does it";
    let mut step = decide(wanted, &found.revisions, found.receipt.as_ref(), &found.faults.broken);
    let mut foreign = format!("Helm release {}", chart.name);
    if found.stored.as_ref().is_some_and(|stored| !receipt_is_ours(stored)) {
        foreign = format!("ConfigMap {}", receipt_name(wanted.component));
        let revision = found.revisions.iter().map(|revision| revision.number).max().unwrap_or_default();
        step = Step::Refuse { revision };
    }
    checked.releases.push(CheckedRelease::new(wanted, &step));
    let about = CheckSubject::Installed;
    match step {
        Step::Nothing { revision } => match found.faults.first() {
            None => {
                checked.good(about, &format!("{title}: chart {} {}, revision {revision}", chart.name, chart.version));
            }
            Some(why) => {
                let fix = format!("`kubectl -n {} get pods` shows which do not run", wanted.namespace);
                checked.missing(about, &format!("{title} is installed and not available: {why}"), &fix);
            }
        },
        Step::Record { revision } => {
            checked.missing(about, &format!("{title}: revision {revision} is installed and was never proven"), again);
        }
        Step::Install => {
            let what = format!("{title} is not installed; chart {} {} would be", chart.name, chart.version);
            checked.missing(about, &what, again);
        }
        Step::Upgrade { from, why } => {
            checked.missing(about, &format!("{title}: revision {from} is not what it should be: {why}"), again);
        }
        Step::RollBack { from, status, .. } | Step::Uninstall { revision: from, status } => {
            let what = format!("{title}: revision {from} is {status}, as a bootstrap that was cut off leaves it");
            checked.missing(about, &what, "`forge bootstrap` repairs it and goes on");
        }
        Step::Refuse { .. } => {
            let fix = format!("set `argo: {{{}: existing}}` in forge.yaml, or remove it", wanted.component.field());
            checked.missing(about, &format!("{title}: {foreign} is somebody else's"), &fix);
        }
    }
}

async fn observe(cluster: &Cluster, purpose: &Purpose) -> Result<Observed, ClusterError> {
    let mut workloads = Vec::new();
    for plural in ["deployments", "statefulsets"] {
        workloads.extend(cluster.list(&path::global("apps", "v1", plural), "").await?);
    }
    let config_maps = path::config_maps(&purpose.argocd);
    let settings = cluster.get(&path::object(&config_maps, "argocd-cm")).await?;
    let policies = cluster.get(&path::object(&config_maps, "argocd-rbac-cm")).await?;
    let parameters = cluster.get(&path::object(&config_maps, "argocd-cmd-params-cm")).await?;
    Ok(Observed { settings, policies, parameters, workloads })
}

/// Parts of Argo that are somebody else's.
fn existing(compared: &Compared<'_>, observed: &Observed, checked: &mut BootstrapCheck) {
    let about = CheckSubject::Existing;
    let found = differences(compared.purpose, observed, compared.health);
    for component in Component::ALL {
        if compared.purpose.intent(component) != Intent::Existing {
            continue;
        }
        let mut good = true;
        for difference in found.iter().filter(|difference| difference.component == component) {
            let what = format!("{}: {}", component.title(), difference.what);
            match difference.weight {
                Weight::Missing => {
                    good = false;
                    checked.missing(about, &what, &difference.fix);
                }
                Weight::Advice => checked.advice(about, &what, &difference.fix),
            }
        }
        if good {
            checked.good(about, &format!("{} is as Forge needs it", component.title()));
        }
    }
}

/// What `forge bootstrap` makes itself.
async fn own(cluster: &Cluster, compared: &Compared<'_>, checked: &mut BootstrapCheck) -> Result<(), ClusterError> {
    let (about, before) = (CheckSubject::Own, checked.missing);
    let again = "`forge bootstrap` does it";
    for placed in compared.objects {
        let text = |pointer: &str| placed.object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (kind, name) = (text("/kind"), text("/metadata/name"));
        match cluster.get(&path::object(&placed.collection, name)).await? {
            None => checked.missing(about, &format!("{kind} {name} is not there"), again),
            Some(live) if !says(&live, &placed.object) => {
                checked.missing(about, &format!("{kind} {name} says something else"), again);
            }
            Some(_) => {}
        }
    }
    let projects = path::argo(&compared.purpose.argocd, "appprojects");
    for environment in compared.environments {
        if cluster.get(&path::object(&projects, environment.as_str())).await?.is_none() {
            checked.missing(about, &format!("AppProject {environment} is not there"), again);
        }
    }
    let secret = path::object(&path::core(&compared.purpose.workflows, "secrets"), ARGOCD_SECRET);
    let stored = cluster.get(&secret).await?;
    let whole = |stored: &Value| ["token", "server"].into_iter().all(|key| secret_text(stored, key).is_some());
    if !stored.as_ref().is_some_and(whole) {
        let what = format!("Secret {ARGOCD_SECRET} holds no token of the Argo CD account `forge`");
        checked.missing(about, &what, again);
    }
    if checked.missing == before {
        let count = compared.objects.len() + compared.environments.len() + 1;
        checked.good(about, &format!("Forge's own {count} objects"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Faults;
    use super::*;
    use forge_core::install::{NextStep, Receipt, Revision, Status};
    use forge_core::preflight::Intents;
    use serde_json::json;
    use std::collections::BTreeMap;

    fn health() -> HealthChecks {
        HealthChecks::merge(&BTreeMap::new())
    }

    fn wanted() -> Wanted {
        Wanted::new(Component::Cd, "argocd", &health(), None, None)
    }

    fn revision(status: Status) -> Revision {
        let chart = Some(wanted().chart.version.to_owned());
        Revision { number: 2, status, ours: true, digest: Some(wanted().label()), chart }
    }

    fn line(revisions: Vec<Revision>, waiting: &[&str]) -> (String, usize) {
        let faults = Faults { broken: Vec::new(), waiting: waiting.iter().map(|why| (*why).to_owned()).collect() };
        let receipt = Some(Receipt::new(&wanted(), 2, Vec::new()));
        let mut checked = BootstrapCheck::default();
        installed(&wanted(), &Found { revisions, stored: None, receipt, faults }, &mut checked);
        (checked.text().lines().next().unwrap().to_owned(), checked.missing)
    }

    #[test]
    fn what_would_be_done_about_a_release_is_told_in_one_line() {
        for (revisions, waiting, expected) in [
            (vec![revision(Status::Deployed)], vec![], "ok       Argo CD: chart argo-cd 9.2.0, revision 2"),
            (
                vec![revision(Status::Deployed)],
                vec!["Deployment x was not looked at yet"],
                "missing  Argo CD is installed and not available: Deployment x was not looked at yet",
            ),
            (vec![], vec![], "missing  Argo CD is not installed; chart argo-cd 9.2.0 would be"),
            (
                vec![Revision { digest: None, ..revision(Status::Deployed) }],
                vec![],
                "missing  Argo CD: revision 2 is not what it should be: other values, or another content of the chart",
            ),
            (
                vec![revision(Status::PendingInstall)],
                vec![],
                "missing  Argo CD: revision 2 is pending-install, as a bootstrap that was cut off leaves it",
            ),
            (
                vec![Revision { ours: false, ..revision(Status::Deployed) }],
                vec![],
                "missing  Argo CD: Helm release argo-cd is somebody else's",
            ),
        ] {
            let (found, missing) = line(revisions, &waiting);
            assert_eq!(found, expected);
            assert_eq!(missing, usize::from(expected.starts_with("missing")));
        }
    }

    #[test]
    fn a_receipt_of_somebody_else_is_refused_before_anything_is_done() {
        let foreign = json!({"metadata": {"labels": {}}, "data": {}});
        let found = |stored| Found { revisions: Vec::new(), stored, receipt: None, faults: Faults::default() };
        let mut checked = BootstrapCheck::default();
        installed(&wanted(), &found(Some(foreign)), &mut checked);
        installed(&wanted(), &found(None), &mut checked);
        assert_eq!(checked.releases[0].step, NextStep::Refuse);
        assert_eq!(checked.releases[1].step, NextStep::Install);
        assert_eq!(checked.findings[0].what, "Argo CD: ConfigMap forge-install-argo-cd is somebody else's");
    }

    #[test]
    fn advice_is_told_and_is_not_missing() {
        let intents = Intents { cd: Intent::Install, ..Intents::existing() };
        let purpose = Purpose { intents, ..Purpose::default() };
        let controller = json!({
            "metadata": {"name": "workflow-controller"},
            "spec": {"template": {"spec": {"containers": [{
                "image": "workflow-controller:v3.7.6", "env": [{"name": "ARGO_EXECUTOR_PLUGINS", "value": "true"}],
            }]}}},
        });
        let observed = Observed { workloads: vec![controller], ..Observed::default() };
        let health = health();
        let compared =
            Compared { purpose: &purpose, health: &health, installing: &[], objects: &[], environments: &[] };
        let mut checked = BootstrapCheck::default();
        existing(&compared, &observed, &mut checked);
        assert_eq!(checked.missing, 0);
        let text = checked.text();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("advice   Argo Workflows: ") && lines[0].contains("DEFAULT_REQUEUE_TIME"));
        assert_eq!(lines[2], "ok       Argo Workflows is as Forge needs it");
    }
}
