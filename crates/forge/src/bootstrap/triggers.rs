//! What starts runs by itself: the EventBus, the sources and Sensors of Argo Events, and the key that deliveries are signed with
//! (SPEC.md section 5; docs/guides/triggers.md). They are made where forge.yaml asks for them, and what an earlier one asked for goes.

use base64::Engine as _;
use forge_core::code::Code;
use forge_core::digest::hex;
use forge_core::failure::Failure;
use forge_core::format::{ArgoEvents, Environment, Installation, Repository};
use forge_core::install::{says, stamped};
use forge_core::name::EnvironmentName;
use forge_core::preflight::is_foreign;
use forge_core::render::{
    self, ENVIRONMENT_LABEL, MANAGED_BY, Placed, Places, RUN_LABEL, Trigger, WEBHOOK_PATH, WEBHOOK_PORT,
    WEBHOOK_SECRET, WEBHOOK_SECRET_KEY, WEBHOOK_SOURCE,
};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

use super::{apply, at, bus, permitted, random_bytes, title};
use crate::cluster::{Cluster, ClusterError, path, secret_text};
use crate::failpoint;

/// The shortest key that deliveries may be signed with.
pub(crate) const SHORTEST_SECRET: usize = 16;

/// Without these nothing starts runs by itself.
pub(super) const DEFINITIONS: [&str; 3] = ["eventbus.argoproj.io", "eventsources.argoproj.io", "sensors.argoproj.io"];

/// What may start runs by itself.
pub(crate) struct Events<'w> {
    pub(crate) repository: &'w Repository,
    /// The environments that are prepared, those without a trigger too: what an earlier one left is removed.
    pub(crate) environments: Vec<&'w Environment>,
    /// All environments of forge.yaml: what is there of others of this repository is removed too.
    pub(crate) known: Vec<&'w EnvironmentName>,
    /// Whether anything may start runs by itself: not with `argo: {events: none}`.
    pub(crate) listens: bool,
}

impl<'w> Events<'w> {
    /// With what forge.yaml says.
    pub(crate) fn new(installation: &'w Installation, environments: Vec<&'w Environment>) -> Self {
        Self {
            repository: &installation.repository,
            environments,
            known: installation.environments.iter().map(|environment| &environment.name.value).collect(),
            listens: installation.argo.events != ArgoEvents::None,
        }
    }

    fn trigger<'t>(&self, environment: &'t Environment) -> Option<Trigger<'t>> {
        if self.listens { Trigger::of(environment) } else { None }
    }

    fn triggers(&self) -> Vec<Trigger<'_>> {
        self.environments.iter().filter_map(|environment| self.trigger(environment)).collect()
    }

    /// Whether a Git host tells of pushes.
    pub(crate) fn pushes(&self) -> bool {
        self.triggers().iter().any(|trigger| trigger.push)
    }

    /// Everything but the Secret.
    pub(crate) fn objects(&self, places: &Places) -> Vec<Placed> {
        let objects = render::events(places, self.repository, &self.triggers());
        objects.into_iter().map(|placed| Placed { object: stamped(placed.object), ..placed }).collect()
    }

    /// What an earlier forge.yaml may have asked for of these environments, and this one does not: names alone.
    pub(super) fn withdrawn(&self, places: &Places) -> Vec<Placed> {
        let mut objects = Vec::new();
        for environment in &self.environments {
            let name = &environment.name.value;
            match self.trigger(environment) {
                None => objects.extend(starting(places, name)),
                Some(trigger) if trigger.schedule.is_none() => objects.push(clock(places, name)),
                Some(_) => {}
            }
        }
        objects
    }
}

fn named(collection: String, version: &str, kind: &str, name: &str, namespace: &str) -> Placed {
    let metadata = json!({"name": name, "namespace": namespace});
    Placed { collection, object: json!({"apiVersion": version, "kind": kind, "metadata": metadata}) }
}

fn clock(places: &Places, environment: &EnvironmentName) -> Placed {
    let (collection, name) = (path::argo(&places.workflows, "eventsources"), render::clock_name(environment));
    named(collection, "argoproj.io/v1alpha1", "EventSource", &name, &places.workflows)
}

/// What starts runs of an environment: names alone. By the last one it is known that the others may be there, so it goes last.
pub(crate) fn starting(places: &Places, environment: &EnvironmentName) -> [Placed; 3] {
    let (workflows, sensor) = (&places.workflows, render::sensor_name(environment));
    let sensor = named(path::argo(workflows, "sensors"), "argoproj.io/v1alpha1", "Sensor", &sensor, workflows);
    let told = render::configuration_name(environment);
    let told = named(path::config_maps(workflows), "v1", "ConfigMap", &told, workflows);
    [sensor, clock(places, environment), told]
}

/// What is there of ours that started runs once and that forge.yaml no longer asks for: of the environments that are prepared, and
/// of those that are gone from it. Who may not look has nothing to remove.
///
/// # Errors
/// When the cluster does not answer: what was listed in part is not known (INV-10).
pub(crate) async fn unwanted(
    cluster: &Cluster,
    places: &Places,
    events: &Events<'_>,
) -> Result<Vec<Placed>, ClusterError> {
    let mut names = events.withdrawn(places);
    // Plans and records of runs are large, and named after an environment too.
    let selector = format!("{MANAGED_BY}=forge,{ENVIRONMENT_LABEL},!{RUN_LABEL}");
    let told = permitted(cluster.list(&path::config_maps(&places.workflows), &selector).await)?;
    let of = |told: &Value| render::configured(told, events.repository);
    let gone = told.iter().flatten().filter_map(of).filter(|name| !events.known.contains(&name));
    names.extend(gone.flat_map(|name| starting(places, &name)));
    let mut found = Vec::new();
    for placed in names {
        let (_, name) = title(&placed);
        let live = permitted(cluster.get(&path::object(&placed.collection, name)).await)?.flatten();
        if live.is_some_and(|live| render::is_ours(&live)) {
            found.push(placed);
        }
    }
    Ok(found)
}

/// What starts runs by itself, where Argo Events is there; gives what a person has to do about it.
pub(super) async fn settle(
    cluster: &Cluster,
    places: &Places,
    events: &Events<'_>,
    done: &mut impl FnMut(&str),
) -> Result<Vec<String>, Failure> {
    if let Some(crd) = undefined(cluster).await? {
        let names: Vec<String> = events.triggers().iter().map(|trigger| format!("`{}`", trigger.environment)).collect();
        let note = format!(
            "no event starts a run of {}: there is no CRD `{crd}`. Install Argo Events and run this again",
            names.join(", ")
        );
        return Ok(if names.is_empty() { Vec::new() } else { vec![note] });
    }
    for placed in unwanted(cluster, places, events).await? {
        withdraw(cluster, &placed, done).await?;
    }
    if events.pushes() {
        sign(cluster, places, done).await?;
    }
    let objects = events.objects(places);
    for placed in &objects {
        apply(cluster, placed, false, done).await?;
    }
    let mut notes: Vec<String> = bus::settle(cluster, places, &objects, done).await?.into_iter().collect();
    let place = format!("Service {WEBHOOK_SOURCE}-eventsource-svc:{WEBHOOK_PORT} in `{}`", places.workflows);
    let note = format!(
        "pushes are heard by {place}, path {WEBHOOK_PATH}, signed with what Secret {WEBHOOK_SECRET} holds: enter both at the Git host"
    );
    notes.extend(events.pushes().then_some(note));
    Ok(notes)
}

/// Nothing has to be made, changed or removed for what starts runs by itself: all of it is there as forge.yaml asks for it, as far as
/// the account may look, or Argo Events is not, without which nothing can be made.
///
/// # Errors
/// When the cluster does not answer.
pub(crate) async fn are_settled(cluster: &Cluster, places: &Places, events: &Events<'_>) -> Result<bool, Failure> {
    match undefined(cluster).await {
        Ok(None) => {}
        Ok(Some(_)) => return Ok(true),
        // Who may not look leaves it as it is.
        Err(failure) if failure.code == Code::Forbidden => return Ok(true),
        Err(failure) => return Err(failure),
    }
    for placed in events.objects(places) {
        // What somebody else made and says the same stays his.
        let is_there =
            |live: Value| says(&live, &placed.object) || !(render::is_ours(&live) || is_foreign(&live, &placed.object));
        if let Some(live) = permitted(cluster.get(&at(&placed)).await)?
            && !live.is_some_and(is_there)
        {
            return Ok(false);
        }
    }
    let secret = path::object(&path::core(&places.workflows, "secrets"), WEBHOOK_SECRET);
    if events.pushes() && matches!(permitted(cluster.get(&secret).await)?, Some(None)) {
        return Ok(false);
    }
    Ok(unwanted(cluster, places, events).await?.is_empty())
}

/// The first of Argo Events' definitions that is not there.
pub(crate) async fn undefined(cluster: &Cluster) -> Result<Option<&'static str>, Failure> {
    let definitions = path::global("apiextensions.k8s.io", "v1", "customresourcedefinitions");
    for crd in DEFINITIONS {
        if cluster.get(&path::object(&definitions, crd)).await?.is_none() {
            return Ok(Some(crd));
        }
    }
    Ok(None)
}

/// Removes a trigger of ours that forge.yaml no longer asks for (INV-11).
async fn withdraw(cluster: &Cluster, placed: &Placed, done: &mut impl FnMut(&str)) -> Result<(), Failure> {
    let (title, name) = title(placed);
    failpoint::write(&format!("{title} goes"));
    cluster.delete(&path::object(&placed.collection, name)).await?;
    done(&format!("removed {title}: forge.yaml no longer asks for it"));
    Ok(())
}

/// What a Git host signs with: made once, kept, and never shown.
pub(super) async fn sign(cluster: &Cluster, places: &Places, done: &mut impl FnMut(&str)) -> Result<(), Failure> {
    let collection = path::core(&places.workflows, "secrets");
    if let Some(stored) = cluster.get(&path::object(&collection, WEBHOOK_SECRET)).await? {
        let length = key_length(&stored);
        // Argo Events takes every delivery for good where the key is empty.
        return if length >= SHORTEST_SECRET { Ok(()) } else { Err(short_secret(length)) };
    }
    let secret = random()?;
    let data = base64::engine::general_purpose::STANDARD.encode(secret.expose_secret());
    let object = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": WEBHOOK_SECRET, "namespace": places.workflows, "labels": {MANAGED_BY: "forge"}},
        "data": {WEBHOOK_SECRET_KEY: data},
    });
    failpoint::write(&format!("Secret {WEBHOOK_SECRET}"));
    match cluster.create(&collection, &object).await {
        Err(error) if !error.is_conflict() => return Err(error.into()),
        _ => {}
    }
    done(&format!("Secret {WEBHOOK_SECRET}: what a Git host signs its deliveries with"));
    Ok(())
}

/// How long what deliveries are signed with is.
pub(crate) fn key_length(secret: &Value) -> usize {
    secret_text(secret, WEBHOOK_SECRET_KEY).map_or(0, |text| text.trim().len())
}

fn short_secret(length: usize) -> Failure {
    Failure::new(
        Code::BadArgument,
        format!(
            "key `{WEBHOOK_SECRET_KEY}` of Secret `{WEBHOOK_SECRET}` has {length} characters; at least {SHORTEST_SECRET} keep others out"
        ),
    )
    .hint("delete the Secret and run this again, then enter the new one at the Git host")
}

/// As many random characters as a signature is strong.
fn random() -> Result<SecretString, Failure> {
    Ok(SecretString::from(hex(&random_bytes::<32>()?)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use forge_core::validate::{Content as Text, tree};

    use super::*;

    /// What forge.yaml says with this in it.
    fn installation(events: &str, environment: &str) -> Installation {
        let header = "apiVersion: forge.projectcatalyst.io/v1alpha1\n";
        let forge = format!(
            "{header}kind: Forge\nspec:\n  repository: {{url: https://git.example.com/p.git}}\n  argo: {{cd: existing, workflows: existing, events: {events}}}\n  environments: [{{name: dev, cluster: dev, {environment}}}]\n"
        );
        let graph = format!("{header}kind: DependencyGraph\nspec:\n  stacks: []\n");
        let files = [("forge.yaml", forge), ("graph.yaml", graph)];
        let files: BTreeMap<String, Text> =
            files.into_iter().map(|(path, text)| (path.to_owned(), Text::Bytes(text.into_bytes()))).collect();
        tree(&files).repository.unwrap().installation
    }

    #[test]
    fn what_no_longer_starts_runs_is_withdrawn_also_where_nothing_may_start_any() {
        let withdrawn = |events: &str, environment: &str| -> Vec<String> {
            let installation = installation(events, environment);
            let events = Events::new(&installation, vec![&installation.environments[0]]);
            assert!(events.pushes() == environment.contains("ordered"), "{environment}");
            events.withdrawn(&Places::default()).iter().map(|placed| title(placed).0).collect()
        };
        let all = ["Sensor forge-dev", "EventSource forge-at-dev", "ConfigMap forge-event-dev"];
        assert_eq!(withdrawn("existing", "sync: manual"), all);
        assert_eq!(withdrawn("none", "sync: manual"), all);
        assert_eq!(withdrawn("existing", "sync: ordered"), ["EventSource forge-at-dev"]);
        assert_eq!(withdrawn("existing", "sync: ordered, schedule: \"0 3 * * *\""), Vec::<String>::new());
    }

    #[test]
    fn a_key_for_signatures_is_long_and_another_one_each_time() {
        let (one, other) = (random().unwrap(), random().unwrap());
        assert!(one.expose_secret().len() == 64 && one.expose_secret() != other.expose_secret());
        assert!(!format!("{one:?}").contains(one.expose_secret()));
    }
}
