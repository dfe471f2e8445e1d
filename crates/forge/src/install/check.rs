//! `forge bootstrap --check`: what is missing or different, of what Forge installs and of what is somebody else's. Reads
//! only.

use forge_core::failure::Failure;
use forge_core::health::HealthChecks;
use forge_core::install::{Observed, Step, Wanted, Weight, decide, differences, says};
use forge_core::name::EnvironmentName;
use forge_core::preflight::{Component, Intent, Purpose};
use forge_core::render::{ARGOCD_SECRET, Placed};
use serde::Serialize;
use serde_json::Value;

use super::{Found, Installing, found};
use crate::cluster::{Cluster, ClusterError, path, secret_text};

/// What is said of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum Verdict {
    /// It is as it should be.
    Ok,
    /// It is not, and without it a run does not work.
    Missing,
    /// It works, and could be better.
    Advice,
}

/// Something that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Finding {
    verdict: Verdict,
    /// The chart of the part of Argo that it is about, or `forge` for Forge's own.
    part: &'static str,
    what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

/// Everything that was found.
#[derive(Default, Serialize)]
pub(crate) struct Checked {
    /// How much is missing or different.
    pub(crate) missing: usize,
    findings: Vec<Finding>,
}

/// What is Forge's own.
const OWN: &str = "forge";

impl Checked {
    /// For people.
    pub(crate) fn text(&self) -> String {
        let line = |finding: &Finding| {
            let word = match finding.verdict {
                Verdict::Ok => "ok",
                Verdict::Missing => "missing",
                Verdict::Advice => "advice",
            };
            let fix = finding.fix.as_ref().map(|fix| format!("    fix: {fix}\n")).unwrap_or_default();
            format!("{word:<8} {}\n{fix}", finding.what)
        };
        self.findings.iter().map(line).collect()
    }

    fn good(&mut self, part: &'static str, what: &str) {
        self.findings.push(Finding { verdict: Verdict::Ok, part, what: what.to_owned(), fix: None });
    }

    fn missing(&mut self, part: &'static str, what: &str, fix: &str) {
        self.missing += 1;
        let (what, fix) = (what.to_owned(), Some(fix.to_owned()));
        self.findings.push(Finding { verdict: Verdict::Missing, part, what, fix });
    }

    fn advice(&mut self, part: &'static str, what: &str, fix: &str) {
        let (what, fix) = (what.to_owned(), Some(fix.to_owned()));
        self.findings.push(Finding { verdict: Verdict::Advice, part, what, fix });
    }
}

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
pub(crate) async fn check(cluster: &Cluster, compared: &Compared<'_>) -> Result<Checked, Failure> {
    let mut checked = Checked::default();
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
fn installed(wanted: &Wanted, found: &Found, checked: &mut Checked) {
    let (title, chart) = (wanted.component.title(), &wanted.chart);
    let again = "`forge bootstrap` does it";
    let mut missing = |what: &str, fix: &str| checked.missing(chart.name, what, fix);
    match decide(wanted, &found.revisions, found.receipt.as_ref(), &found.faults.broken) {
        Step::Nothing { revision } => match found.faults.first() {
            None => {
                let what = format!("{title}: chart {} {}, revision {revision}", chart.name, chart.version);
                checked.good(chart.name, &what);
            }
            Some(why) => {
                let fix = format!("`kubectl -n {} get pods` shows which do not run", wanted.namespace);
                missing(&format!("{title} is installed and not available: {why}"), &fix);
            }
        },
        Step::Record { revision } => {
            missing(&format!("{title}: revision {revision} is installed and was never proven"), again);
        }
        Step::Install => {
            missing(&format!("{title} is not installed; chart {} {} would be", chart.name, chart.version), again);
        }
        Step::Upgrade { from, why } => {
            missing(&format!("{title}: revision {from} is not what it should be: {why}"), again);
        }
        Step::RollBack { from, status, .. } | Step::Uninstall { revision: from, status } => {
            let what = format!("{title}: revision {from} is {status}, as a bootstrap that was cut off leaves it");
            missing(&what, "`forge bootstrap` repairs it and goes on");
        }
        Step::Refuse { .. } => {
            let fix = format!("set `argo: {{{}: existing}}` in forge.yaml, or remove it", wanted.component.field());
            missing(&format!("{title}: Helm release {} is somebody else's", chart.name), &fix);
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
fn existing(compared: &Compared<'_>, observed: &Observed, checked: &mut Checked) {
    let found = differences(compared.purpose, observed, compared.health);
    for component in Component::ALL {
        if compared.purpose.intent(component) != Intent::Existing {
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
async fn own(cluster: &Cluster, compared: &Compared<'_>, checked: &mut Checked) -> Result<(), ClusterError> {
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

#[cfg(test)]
mod tests {
    use super::super::Faults;
    use super::*;
    use forge_core::install::{Receipt, Revision, Status};
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
        let mut checked = Checked::default();
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
        let mut checked = Checked::default();
        existing(&compared, &observed, &mut checked);
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
