//! `forge bootstrap --check`: what is missing or different, of what Forge installs and of what is somebody else's. Reads
//! only.

use std::collections::BTreeSet;

use forge_core::failure::Failure;
use forge_core::health::HealthChecks;
use forge_core::install::{
    APPLICATION, BootstrapCheck, CheckedChart, INITIAL_SECRET, Observed, POLICY_MAP, Step, Wanted, Weight, differences,
    receipt_is_ours, receipt_name, says,
};
use forge_core::name::EnvironmentName;
use forge_core::preflight::{Component, Intent, Purpose, is_foreign};
use forge_core::render::{ARGOCD_SECRET, Placed, WEBHOOK_SECRET, handing, is_ours};
use forge_core::repository::ROOT_APP_FILE;
use forge_core::root::{self, Handover, Root, identity};
use jiff::Timestamp;
use serde_json::Value;

use super::found::{Found, found};
use super::{Installing, lock};
use crate::account::Stored;
use crate::bootstrap::bus::Standing;
use crate::bootstrap::root::{Found as Rooted, look};
use crate::bootstrap::triggers::{SHORTEST_SECRET, key_length};
use crate::bootstrap::{administrator, signatures};
use crate::cluster::{Cluster, ClusterError, path};

/// What is Forge's own.
const OWN: &str = "forge";
/// What to do about most of it.
const AGAIN: &str = "`forge bootstrap` does it";

/// What a cluster is compared with.
pub(crate) struct Compared<'c> {
    pub(crate) purpose: &'c Purpose,
    pub(crate) health: &'c HealthChecks,
    pub(crate) installing: &'c [Installing],
    /// Forge's own objects.
    pub(crate) objects: &'c [Placed],
    /// Environments whose AppProjects must be there: with a root file, all that it brings.
    pub(crate) projects: &'c [EnvironmentName],
    /// What the owner of an Argo CD that is somebody else's has not made in its namespace.
    pub(crate) lacking: &'c [String],
    /// A Git host tells of pushes, so there must be something that it signs with.
    pub(crate) signed: bool,
    /// What started runs once, and is there still.
    pub(crate) unwanted: &'c [Placed],
    /// What an earlier version left.
    pub(crate) former: &'c [Placed],
    /// How what hears events stands.
    pub(crate) heard: &'c Standing,
    /// How the policy of signatures stands.
    pub(crate) policy: &'c signatures::Standing,
    /// The root file, where it is Forge's to apply, whether Argo CD is to be handed over to its own Application, and the files of
    /// the environments that the root set must not leave out.
    pub(crate) root: Option<(&'c Root, bool, &'c BTreeSet<String>)>,
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
        existing(&purpose, compared.health, &observed, compared.lacking, &mut checked);
    }
    own(cluster, compared, &mut checked).await?;
    if let Some((root, asked, brought)) = compared.root {
        rooted(&look(cluster, root, asked, brought).await?, &mut checked);
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
        Step::Record { revision, .. } => {
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
fn existing(
    purpose: &Purpose,
    health: &HealthChecks,
    observed: &Observed,
    lacking: &[String],
    checked: &mut BootstrapCheck,
) {
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
        for what in lacking.iter().filter(|_| component == Component::Cd) {
            good = false;
            let fix = format!("let its owner make it in `{}`, as `forge bootstrap --print` has it", purpose.argocd);
            checked.missing(part, &format!("{}: {what}", component.title()), &fix);
        }
        if good {
            checked.good(part, &format!("{} is as Forge needs it", component.title()));
        }
    }
}

/// What `forge bootstrap` makes itself.
async fn own(cluster: &Cluster, compared: &Compared<'_>, checked: &mut BootstrapCheck) -> Result<(), ClusterError> {
    let before = checked.missing;
    for placed in compared.objects {
        let name = placed.object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let live = cluster.get(&path::object(&placed.collection, name)).await?;
        object(&placed.object, live.as_ref(), checked);
    }
    let projects = path::argo(&compared.purpose.argocd, "appprojects");
    for environment in compared.projects {
        if cluster.get(&path::object(&projects, environment.as_str())).await?.is_none() {
            checked.missing(OWN, &format!("AppProject {environment} is not there"), AGAIN);
        }
    }
    let secrets = path::core(&compared.purpose.workflows, "secrets");
    let stored = cluster.get(&path::object(&secrets, ARGOCD_SECRET)).await?;
    token(stored.as_ref().and_then(Stored::read).as_ref(), Timestamp::now(), checked);
    if compared.signed {
        let stored = cluster.get(&path::object(&secrets, WEBHOOK_SECRET)).await?;
        key(stored.as_ref(), checked);
    }
    let argocd = compared.purpose.argocd.as_str();
    if compared.purpose.intent(Component::Cd) == Intent::Install && administrator::is_due(cluster, argocd).await? {
        let what = format!("Secret {INITIAL_SECRET}: the first password of Argo CD's administrator is not replaced");
        checked.missing(OWN, &what, AGAIN);
    }
    unwanted(compared.unwanted, "starts runs that forge.yaml no longer asks for", checked);
    unwanted(compared.former, "was left by an earlier version", checked);
    heard(compared.heard, &compared.purpose.workflows, checked);
    policy(compared.policy, checked);
    if checked.missing == before {
        let count = compared.objects.len() + compared.projects.len() + 1 + usize::from(compared.signed);
        checked.good(OWN, &format!("Forge's own {count} objects"));
    }
    Ok(())
}

/// The policy of signatures: one that cannot be used is told beside everything else, and keeps bootstrap from beginning.
fn policy(standing: &signatures::Standing, checked: &mut BootstrapCheck) {
    match standing {
        signatures::Standing::Well => {}
        signatures::Standing::Due => {
            let what = format!("ConfigMap {POLICY_MAP} is not the one that everything was rendered under");
            checked.missing(OWN, &what, "`forge bootstrap` lets Argo CD render everything again");
        }
        signatures::Standing::Unusable(failure) => {
            let fix = failure.hint.as_deref().unwrap_or("mend it, or delete it if no signature is to be asked for");
            checked.missing(OWN, &failure.message, fix);
        }
    }
}

/// What is to go.
fn unwanted(objects: &[Placed], why: &str, checked: &mut BootstrapCheck) {
    for placed in objects {
        checked.missing(OWN, &format!("{} {why}", identity(&placed.object)), "`forge bootstrap` removes it");
        checked.unwanted.push(placed.object.clone());
    }
}

/// Whether what hears events can store them. What is not known is no reason to bootstrap again.
fn heard(standing: &Standing, workflows: &str, checked: &mut BootstrapCheck) {
    match (standing, standing.told(workflows)) {
        (Standing::TooFew(_), Some((what, fix))) => checked.missing(OWN, &what, &fix),
        (_, Some((what, fix))) => checked.advice(OWN, &what, &fix),
        (_, None) => {}
    }
}

/// An object of ours as it should be, and as it is.
fn object(wanted: &Value, live: Option<&Value>, checked: &mut BootstrapCheck) {
    let name = identity(wanted);
    match live {
        None => checked.missing(OWN, &format!("{name} is not there"), AGAIN),
        Some(live) if is_foreign(live, wanted) => {
            let fix = format!("rename or remove it, or hand it over: {}", handing(wanted));
            checked.missing(OWN, &format!("{name} is somebody else's"), &fix);
        }
        Some(live) if is_ours(live) && !says(live, wanted) => {
            checked.missing(OWN, &format!("{name} says something else"), AGAIN);
        }
        Some(_) => {}
    }
}

/// The token of the account, as far as it says itself: Argo CD is not asked.
fn token(stored: Option<&Stored>, now: Timestamp, checked: &mut BootstrapCheck) {
    match stored.map(|stored| stored.stale(now)) {
        None => {
            let what = format!("Secret {ARGOCD_SECRET} holds no token of the Argo CD account `forge`");
            checked.missing(OWN, &what, AGAIN);
        }
        Some(Some(how)) => checked.missing(OWN, &format!("the token in Secret {ARGOCD_SECRET} {how}"), AGAIN),
        Some(None) => {}
    }
}

/// What deliveries are signed with.
fn key(stored: Option<&Value>, checked: &mut BootstrapCheck) {
    match stored.map(key_length) {
        None => checked.missing(OWN, &format!("Secret {WEBHOOK_SECRET} is not there"), AGAIN),
        Some(length) if length < SHORTEST_SECRET => {
            let what =
                format!("the key in Secret {WEBHOOK_SECRET} has {length} characters, less than {SHORTEST_SECRET}");
            checked.missing(
                OWN,
                &what,
                "delete the Secret and run `forge bootstrap`, then enter the new one at the Git host",
            );
        }
        Some(_) => {}
    }
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
    if let Some((placed, Handover::Done(step) | Handover::Unproven(step))) = &found.own {
        tell(&placed.object, *step);
    }
    match &found.own {
        Some((_, Handover::Compare)) => {
            checked.missing(OWN, &format!("Argo CD is not handed over to its own Application `{APPLICATION}`"), again);
        }
        Some((_, Handover::Unproven(root::Step::Nothing))) => {
            let what = format!(
                "Application `{APPLICATION}` was not seen Synced and Healthy since Argo CD was handed over to it"
            );
            checked.missing(OWN, &what, "`forge bootstrap` waits for it");
        }
        Some((_, Handover::NotAsked)) => checked.advice(
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
    use super::super::found::Faults;
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
            let found = Rooted { objects: vec![(&placed, step)], own: Some((&placed, own)) };
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
        let (text, missing) = tell(root::Step::Nothing, Handover::Unproven(root::Step::Nothing));
        assert!(text.contains("`argocd` was not seen Synced and Healthy since") && missing == 1, "{text}");
        let (text, missing) = tell(root::Step::Nothing, Handover::Unproven(root::Step::Change));
        assert!(text.contains("says something else than app.yaml") && missing == 1, "{text}");
        let (text, missing) = tell(root::Step::Refuse, Handover::NotAsked);
        assert!(text.contains("kubectl -n argocd label applicationset environments") && missing == 1, "{text}");
        assert!(text.contains("advice   app.yaml has an Application `argocd`"), "{text}");
    }

    #[test]
    fn whatever_bootstrap_would_write_of_its_own_is_missing() {
        let tell = |judge: &dyn Fn(&mut BootstrapCheck)| {
            let mut checked = BootstrapCheck::default();
            judge(&mut checked);
            (checked.missing, checked.findings.into_iter().next().map(|finding| finding.what))
        };
        let label = json!({"app.kubernetes.io/managed-by": "forge"});
        let metadata = json!({"name": "forge-dev", "namespace": "argo", "labels": label});
        let wanted = json!({"kind": "Sensor", "metadata": metadata, "spec": {"a": 1}});
        let mut other = wanted.clone();
        other["spec"]["a"] = json!(2);
        let mut same = wanted.clone();
        same["metadata"]["labels"] = json!({"app.kubernetes.io/managed-by": "Helm"});
        let mut foreign = other.clone();
        foreign["metadata"]["labels"] = json!({});
        for (live, expected) in [
            (Some(wanted.clone()), None),
            (Some(same), None),
            (None, Some("Sensor forge-dev is not there")),
            (Some(other), Some("Sensor forge-dev says something else")),
            (Some(foreign), Some("Sensor forge-dev is somebody else's")),
        ] {
            let (missing, what) = tell(&|checked| object(&wanted, live.as_ref(), checked));
            assert_eq!((missing, what.as_deref()), (usize::from(expected.is_some()), expected));
        }
        use base64::Engine as _;
        let encoded = |text: &str| json!(base64::engine::general_purpose::STANDARD.encode(text));
        let claims = json!({"sub": "forge:apiKey", "jti": "forge-1", "iat": 0, "exp": 900}).to_string();
        let claims = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(claims);
        let secret = json!({"data": {
            "token": encoded(&format!("e30.{claims}.c2ln")), "token-id": encoded("forge-1"),
            "server": encoded("https://argocd-server.argocd.svc"),
        }});
        let stored = Stored::read(&secret);
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        assert_eq!(tell(&|checked| token(stored.as_ref(), at(100), checked)).0, 0);
        for (second, words) in [(700, "due to be replaced"), (900, "ended at")] {
            let (missing, what) = tell(&|checked| token(stored.as_ref(), at(second), checked));
            assert!(missing == 1 && what.as_ref().unwrap().contains(words), "{second}: {what:?}");
        }
        assert_eq!(tell(&|checked| token(None, at(100), checked)).0, 1);
        let long = json!({"data": {"secret": encoded(&"k".repeat(SHORTEST_SECRET))}});
        let short = json!({"data": {"secret": encoded("k")}});
        for (stored, missing) in [(Some(&long), 0), (Some(&short), 1), (None, 1)] {
            assert_eq!(tell(&|checked| key(stored, checked)).0, missing, "{stored:?}");
        }
    }

    #[test]
    fn what_an_earlier_version_left_is_told_and_named_for_programs() {
        let former = forge_core::render::FormerPolicy::all().remove(0);
        let mut checked = BootstrapCheck::default();
        let policy = former.policy.object.clone();
        unwanted(&[former.binding, former.policy], "was left by an earlier version", &mut checked);
        assert_eq!((checked.missing, checked.unwanted.len()), (2, 2));
        assert_eq!(checked.unwanted[1], policy);
        let what = "ValidatingAdmissionPolicy forge-window-writer was left by an earlier version";
        assert_eq!(checked.findings[1].what, what);
    }

    #[test]
    fn an_event_bus_that_hears_nothing_is_missing_and_one_that_may_not_be_looked_at_is_not() {
        for (standing, missing, verdicts) in [
            (Standing::Well, 0, vec![]),
            (Standing::TooFew(Vec::new()), 1, vec!["missing"]),
            (Standing::Unread("forge-push-x".to_owned()), 0, vec!["advice"]),
        ] {
            let mut checked = BootstrapCheck::default();
            heard(&standing, "argo", &mut checked);
            let told: Vec<&str> = checked.findings.iter().map(|finding| finding.verdict.as_str()).collect();
            assert_eq!((checked.missing, told), (missing, verdicts), "{standing:?}");
        }
    }

    #[test]
    fn a_policy_of_signatures_that_cannot_be_used_is_one_line_of_what_is_missing() {
        use forge_core::code::Code;
        let bad = Failure::new(Code::BadSignaturePolicy, "it has no `policy.yaml`").hint("make it so");
        for (standing, missing, words) in [
            (signatures::Standing::Well, 0, ""),
            (signatures::Standing::Due, 1, "render everything again"),
            (signatures::Standing::Unusable(bad), 1, "it has no `policy.yaml`"),
        ] {
            let mut checked = BootstrapCheck::default();
            policy(&standing, &mut checked);
            assert!(checked.missing == missing && checked.text().contains(words), "{}", checked.text());
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
        let mut checked = BootstrapCheck::default();
        existing(&purpose, &health(), &observed, &[], &mut checked);
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
