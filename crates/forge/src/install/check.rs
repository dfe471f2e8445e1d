//! `forge bootstrap --check`: what is missing or different, of what Forge installs and of what is somebody else's. Reads
//! only.

use std::collections::BTreeSet;

use forge_core::failure::Failure;
use forge_core::health::HealthChecks;
use forge_core::install::{
    APPLICATION, BootstrapCheck, CheckedChart, Observed, Step, Wanted, Weight, differences, receipt_is_ours,
    receipt_name, says,
};
use forge_core::name::EnvironmentName;
use forge_core::preflight::{Component, Intent, Purpose};
use forge_core::render::{ARGOCD_SECRET, Placed};
use forge_core::repository::ROOT_APP_FILE;
use forge_core::root::{self, Handover, Root, identity};
use serde_json::Value;

use super::{Found, Installing, found, lock};
use crate::bootstrap::root::{Found as Rooted, handing, look};
use crate::cluster::{Cluster, ClusterError, path, secret_text};

/// What is Forge's own.
const OWN: &str = "forge";

/// What a cluster is compared with.
pub(crate) struct Compared<'c> {
    pub(crate) purpose: &'c Purpose,
    pub(crate) health: &'c HealthChecks,
    pub(crate) installing: &'c [Installing],
    /// Forge's own objects.
    pub(crate) objects: &'c [Placed],
    pub(crate) environments: &'c [EnvironmentName],
    /// The root file, where it is Forge's to apply, and whether Argo CD is to be handed over to its own Application.
    pub(crate) root: Option<(&'c Root, bool)>,
}

/// Compares.
///
/// # Errors
/// When something cannot be read.
pub(crate) async fn check(cluster: &Cluster, compared: &Compared<'_>) -> Result<BootstrapCheck, Failure> {
    let at_work = lock::at_work(cluster, &compared.purpose.workflows).await;
    let mut checked = BootstrapCheck { at_work, ..BootstrapCheck::default() };
    let mut purpose = compared.purpose.clone();
    for part in compared.installing {
        let found = found(cluster, &part.wanted).await?;
        installed(&part.wanted, &found, &mut checked);
        if found.managed.is_some() {
            // What it is told is Git's to say, so it is looked at like one of somebody else.
            purpose.intents.cd = Intent::Existing;
        }
    }
    if Component::ALL.into_iter().any(|component| purpose.intent(component) == Intent::Existing) {
        let observed = observe(cluster, &purpose).await?;
        existing(&purpose, compared.health, &observed, &mut checked);
    }
    own(cluster, compared, &mut checked).await?;
    if let Some((root, asked)) = compared.root {
        rooted(&look(cluster, root, asked, &BTreeSet::new()).await?, &mut checked);
    }
    Ok(checked)
}

/// A part of Argo that Forge installs.
fn installed(wanted: &Wanted, found: &Found, checked: &mut BootstrapCheck) {
    let (title, chart, version) = (wanted.component.title(), wanted.chart.name, &wanted.version);
    let again = "`forge bootstrap` does it";
    let mut step = found.next(wanted);
    let mut foreign = format!("Helm release {chart}");
    let is_managed = matches!(step, Step::Managed { .. });
    if !is_managed && found.stored.as_ref().is_some_and(|stored| !receipt_is_ours(stored)) {
        foreign = format!("ConfigMap {}", receipt_name(wanted.component));
        let revision = found.revisions.iter().map(|revision| revision.number).max().unwrap_or_default();
        step = Step::Refuse { revision };
    }
    checked.charts.push(CheckedChart::new(wanted, &step));
    match step {
        Step::Nothing { revision } => match found.faults.first() {
            None => checked.good(chart, &format!("{title}: chart {chart} {version}, revision {revision}")),
            Some(why) => {
                let fix = format!("`kubectl -n {} get pods` shows which do not run", wanted.namespace);
                checked.missing(chart, &format!("{title} is installed and not available: {why}"), &fix);
            }
        },
        Step::Record { revision } => {
            checked.missing(chart, &format!("{title}: revision {revision} is installed and was never proven"), again);
        }
        Step::Install => {
            checked.missing(chart, &format!("{title} is not installed; chart {chart} {version} would be"), again);
        }
        Step::Upgrade { from, why, .. } => {
            checked.missing(chart, &format!("{title}: revision {from} is not what it should be: {why}"), again);
        }
        Step::RollBack { from, status, .. } | Step::Uninstall { revision: from, status } => {
            let what = format!("{title}: revision {from} is {status}, as a bootstrap that was cut off leaves it");
            checked.missing(chart, &what, "`forge bootstrap` repairs it and goes on");
        }
        Step::Refuse { .. } => {
            let fix = format!("set `argo: {{{}: existing}}` in forge.yaml, or remove it", wanted.component.field());
            checked.missing(chart, &format!("{title}: {foreign} is somebody else's"), &fix);
        }
        Step::Managed { how } => {
            checked.good(chart, &format!("{title}: managed by its own Application `{APPLICATION}`: {how}"));
            if found.managed.as_ref().is_some_and(|managed| !managed.well) {
                let fix = format!("`kubectl -n {} describe application {APPLICATION}` says why", wanted.namespace);
                checked.advice(chart, &format!("{title}: its own Application is not Synced and Healthy"), &fix);
            }
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
fn existing(purpose: &Purpose, health: &HealthChecks, observed: &Observed, checked: &mut BootstrapCheck) {
    let found = differences(purpose, observed, health);
    for component in Component::ALL {
        if purpose.intent(component) != Intent::Existing {
            continue;
        }
        let (mut good, part) = (true, component.release());
        for difference in found.iter().filter(|difference| difference.component == component) {
            let what = format!("{}: {}", component.title(), difference.what);
            match difference.weight {
                Weight::Missing => {
                    good = false;
                    checked.missing(part, &what, &difference.fix);
                }
                Weight::Advice => checked.advice(part, &what, &difference.fix),
            }
        }
        if good {
            checked.good(part, &format!("{} is as Forge needs it", component.title()));
        }
    }
}

/// What `forge bootstrap` makes itself.
async fn own(cluster: &Cluster, compared: &Compared<'_>, checked: &mut BootstrapCheck) -> Result<(), ClusterError> {
    let before = checked.missing;
    let again = "`forge bootstrap` does it";
    for placed in compared.objects {
        let text = |pointer: &str| placed.object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (kind, name) = (text("/kind"), text("/metadata/name"));
        match cluster.get(&path::object(&placed.collection, name)).await? {
            None => checked.missing(OWN, &format!("{kind} {name} is not there"), again),
            Some(live) if !says(&live, &placed.object) => {
                checked.missing(OWN, &format!("{kind} {name} says something else"), again);
            }
            Some(_) => {}
        }
    }
    let projects = path::argo(&compared.purpose.argocd, "appprojects");
    for environment in compared.environments {
        if cluster.get(&path::object(&projects, environment.as_str())).await?.is_none() {
            checked.missing(OWN, &format!("AppProject {environment} is not there"), again);
        }
    }
    let secret = path::object(&path::core(&compared.purpose.workflows, "secrets"), ARGOCD_SECRET);
    let stored = cluster.get(&secret).await?;
    let whole = |stored: &Value| ["token", "server"].into_iter().all(|key| secret_text(stored, key).is_some());
    if !stored.as_ref().is_some_and(whole) {
        checked.missing(OWN, &format!("Secret {ARGOCD_SECRET} holds no token of the Argo CD account `forge`"), again);
    }
    if checked.missing == before {
        let count = compared.objects.len() + compared.environments.len() + 1;
        checked.good(OWN, &format!("Forge's own {count} objects"));
    }
    Ok(())
}

/// What is there of the root file.
fn rooted(found: &Rooted<'_>, checked: &mut BootstrapCheck) {
    let before = checked.missing;
    let again = "`forge bootstrap` does it";
    let mut tell = |object: &Value, step: root::Step| {
        let name = identity(object);
        match step {
            root::Step::Nothing | root::Step::Left => {}
            root::Step::Make => checked.missing(OWN, &format!("{name} of {ROOT_APP_FILE} is not there"), again),
            root::Step::Change => {
                checked.missing(OWN, &format!("{name} says something else than {ROOT_APP_FILE}"), again);
            }
            root::Step::Refuse => {
                let what = format!("{name} is somebody else's and says something else than {ROOT_APP_FILE}");
                checked.missing(OWN, &what, &format!("to hand it over: {}", handing(object)));
            }
        }
    };
    for (placed, step) in &found.objects {
        tell(&placed.object, *step);
    }
    if let Some((placed, Handover::Done(step), _)) = &found.own {
        tell(&placed.object, *step);
    }
    match &found.own {
        Some((_, Handover::Compare, _)) => {
            checked.missing(OWN, &format!("Argo CD is not handed over to its own Application `{APPLICATION}`"), again);
        }
        Some((_, Handover::NotAsked, _)) => checked.advice(
            OWN,
            &format!("{ROOT_APP_FILE} has an Application `{APPLICATION}`, and Argo CD is not handed over to it"),
            "`forge bootstrap --with self-managed-argocd` does it",
        ),
        _ => {}
    }
    if checked.missing == before {
        let count = found.objects.len() + usize::from(found.own.is_some());
        checked.good(OWN, &format!("{ROOT_APP_FILE}: {count} objects"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::Faults;
    use super::*;
    use forge_core::install::{Managed, NextStep, Receipt, Revision, Status};
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
        let chart = Some(wanted().version);
        Revision { number: 2, status, ours: true, digest: Some(wanted().label()), chart }
    }

    fn line(revisions: Vec<Revision>, waiting: &[&str]) -> (String, usize) {
        let faults = Faults { broken: Vec::new(), waiting: waiting.iter().map(|why| (*why).to_owned()).collect() };
        let receipt = Some(Receipt::new(&wanted(), 2, Vec::new()));
        let mut checked = BootstrapCheck::default();
        installed(&wanted(), &Found { revisions, stored: None, receipt, faults, managed: None }, &mut checked);
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
                vec![Revision { number: 3, digest: None, ..revision(Status::Deployed) }],
                vec![],
                "missing  Argo CD: revision 3 is not what it should be: other values, or another content of the chart",
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
        let found = |stored| {
            let faults = Faults::default();
            Found { revisions: Vec::new(), stored, receipt: None, faults, managed: None }
        };
        let mut checked = BootstrapCheck::default();
        installed(&wanted(), &found(Some(foreign)), &mut checked);
        installed(&wanted(), &found(None), &mut checked);
        assert_eq!(checked.charts[0].step, NextStep::Refuse);
        assert_eq!(checked.charts[1].step, NextStep::Install);
        assert_eq!(checked.findings[0].what, "Argo CD: ConfigMap forge-install-argo-cd is somebody else's");
    }

    #[test]
    fn an_argo_cd_that_manages_itself_is_good_whatever_helm_knows_of_it() {
        let tell = |managed: Managed| {
            let foreign = Revision { ours: false, ..revision(Status::Failed) };
            let faults = Faults { broken: vec!["Deployment x is gone".to_owned()], waiting: Vec::new() };
            let mut checked = BootstrapCheck::default();
            let found = Found { revisions: vec![foreign], stored: None, receipt: None, faults, managed: Some(managed) };
            installed(&wanted(), &found, &mut checked);
            assert_eq!(checked.charts[0].step, NextStep::Managed);
            (checked.text(), checked.missing)
        };
        let (text, missing) = tell(Managed { how: "Synced, Healthy".to_owned(), well: true });
        assert_eq!(
            (text.as_str(), missing),
            ("ok       Argo CD: managed by its own Application `argocd`: Synced, Healthy\n", 0)
        );
        let (text, missing) = tell(Managed { how: "OutOfSync, Degraded".to_owned(), well: false });
        assert!(
            text.contains("advice   Argo CD: its own Application is not Synced and Healthy") && missing == 0,
            "{text}"
        );
    }

    #[test]
    fn what_of_the_root_file_is_not_as_it_should_be_is_told() {
        let object =
            serde_json::json!({"kind": "ApplicationSet", "metadata": {"name": "environments", "namespace": "argocd"}});
        let placed = Placed { collection: String::new(), object };
        let tell = |step: root::Step, own: Handover| {
            let mut checked = BootstrapCheck::default();
            let found = Rooted { objects: vec![(&placed, step)], own: Some((&placed, own, None)) };
            rooted(&found, &mut checked);
            (checked.text(), checked.missing)
        };
        let (text, missing) = tell(root::Step::Nothing, Handover::Done(root::Step::Left));
        assert_eq!((text.as_str(), missing), ("ok       app.yaml: 2 objects\n", 0));
        let (text, missing) = tell(root::Step::Make, Handover::Compare);
        assert!(
            text.contains("missing  ApplicationSet environments of app.yaml is not there") && missing == 2,
            "{text}"
        );
        let (text, missing) = tell(root::Step::Refuse, Handover::NotAsked);
        assert!(text.contains("kubectl -n argocd label applicationset environments") && missing == 1, "{text}");
        assert!(text.contains("advice   app.yaml has an Application `argocd`"), "{text}");
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
        let mut checked = BootstrapCheck::default();
        existing(&purpose, &health(), &observed, &mut checked);
        assert_eq!(checked.missing, 0);
        let text = checked.text();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("advice   Argo Workflows: ") && lines[0].contains("DEFAULT_REQUEUE_TIME"));
        assert_eq!(lines[2], "ok       Argo Workflows is as Forge needs it");
        let found = json!(checked);
        assert_eq!((&found["missing"], &found["findings"][0]["verdict"]), (&json!(0), &json!("advice")));
        let good = json!({"verdict": "ok", "part": "argo-workflows", "what": "Argo Workflows is as Forge needs it"});
        assert_eq!(found["findings"][1], good);
    }
}
