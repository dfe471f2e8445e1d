//! What is left of an environment when its nodes are gone: its AppProject, which every Application needed to the end, its cluster
//! Secrets, what bootstrap made for it alone, and its namespaces. Each only if it is ours and nobody else is in it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forge_core::failure::Failure;
use forge_core::render::{self, ENVIRONMENT_LABEL, EXECUTOR_ACCOUNT, MANAGED_BY, is_ours};
use forge_core::run::{Record, RunNode, RunPlan};
use forge_core::teardown::inventory::Kind;
use forge_core::teardown::{
    Content, Member, Remnant, RemovalRecord, brings, definition_stays, foreign, is_definition, is_environments,
};
use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::Value;
use tokio::time::Instant;

use super::look::is_for;
use super::release::Moment;
use super::{LOOK, PATIENCE, SETTLING, SHOWN, Teardown, name_of, surely, uid_of};
use crate::cluster::{Cluster, ClusterError, Kinds, Owned, path};
use crate::failpoint;

const NAMESPACES: &str = "/api/v1/namespaces";
/// How often what was given up by name is looked at while namespaces go.
const STEP: Duration = Duration::from_secs(5);
/// How many objects a sentence names.
const NAMED: usize = 3;
/// Kinds that are listed at a time.
const AT_ONCE: usize = 8;

impl Teardown<'_> {
    /// After the last node is gone. What should go and does not is written down as left behind; nothing is waited for longer
    /// than there is time.
    ///
    /// # Errors
    /// When the cluster does not answer.
    pub(crate) async fn after(
        &self,
        plan: &RunPlan,
        nodes: &Record,
        record: &RefCell<RemovalRecord>,
    ) -> Result<(), Failure> {
        for entry in nodes.entries.values() {
            if let forge_core::gate::Decision::Gone(removed) = &entry.decision {
                let mut record = record.borrow_mut();
                // Of definitions it is said below.
                let kept = removed.kept.iter().filter(|kept| !kept.object.starts_with("CustomResourceDefinition/"));
                kept.for_each(|kept| record.kept(kept.object.clone(), kept.why.clone()));
            }
        }
        self.empty(Some(plan), record).await?;
        for kept in self.unreleased(record).await? {
            record.borrow_mut().kept(kept.object, kept.why);
        }
        self.undefine_nodes(plan, record).await?;
        self.undefine_crossplane(Some(plan), record).await?;
        if self.environment.whole {
            self.environments_own(record).await?;
        }
        Ok(())
    }

    /// Definitions that nodes had brought, which Argo CD never deletes: each goes that nobody wants to keep, that no other
    /// Application has, and of which nothing is there.
    async fn undefine_nodes(&self, plan: &RunPlan, record: &RefCell<RemovalRecord>) -> Result<(), Failure> {
        let brought: Vec<(&RunNode, &Member)> = plan
            .nodes()
            .filter_map(|node| Some((node, node.removal.as_ref().filter(|removal| removal.here)?)))
            .flat_map(|(node, removal)| removal.members.iter().map(move |member| (node, member)))
            .filter(|(_, member)| is_definition(member))
            .collect();
        if brought.is_empty() {
            return Ok(());
        }
        let applications =
            match surely(self.cluster, &path::global("argoproj.io", "v1alpha1", "applications"), "").await {
                Err(error) if error.is_missing() => Vec::new(),
                other => other?,
            };
        let collection = path::global("apiextensions.k8s.io", "v1", "customresourcedefinitions");
        for (node, member) in brought {
            let (shown, name) = (member.to_string(), member.name.as_str());
            let Some(live) = self.cluster.get(&path::object(&collection, name)).await? else { continue };
            if member.uid.as_deref().is_some_and(|uid| uid != uid_of(&live)) {
                continue;
            }
            let other = applications.iter().find(|application| lists(application, name));
            let other = other.map(|application| format!("Application {} has it too", name_of(application)));
            if let Some(why) = definition_stays(&live, node.application.name()).or(other) {
                record.borrow_mut().kept(shown, why);
                continue;
            }
            match self.instances(name).await {
                Ok(instances) => {
                    if let Some(instance) = instances.first() {
                        record.borrow_mut().orphan(shown, format!("{} is of it", instance.id()));
                        continue;
                    }
                }
                Err(error) => {
                    record.borrow_mut().orphan(shown, format!("what uses it could not be told: {error}"));
                    continue;
                }
            }
            failpoint::write(&format!("{shown} goes"));
            self.cluster.remove(&path::object(&collection, name), uid_of(&live), Owned::Follow).await?;
            match self.gone((collection.as_str(), name), &shown, uid_of(&live), SHOWN).await? {
                None => record.borrow_mut().removed(shown),
                Some(remnant) => record.borrow_mut().orphan(shown, remnant.told(jiff::Timestamp::now())),
            }
        }
        Ok(())
    }

    /// Something of the environment is there beside its nodes. Reads only.
    pub(super) async fn has_rest(&self) -> Result<bool, Failure> {
        let (name, argocd) = (self.environment.name.as_str(), self.environment.argocd.as_str());
        let workflows = self.places.workflows.as_str();
        let receipt = path::object(&path::config_maps(workflows), &format!("forge-bootstrap-{name}"));
        let roles = path::named("rbac.authorization.k8s.io", "v1", argocd, "roles");
        let objects = [
            path::object(&path::argo(argocd, "appprojects"), name),
            path::object(&path::argo(workflows, "sensors"), &render::sensor_name(&self.environment.name)),
            path::object(&roles, &format!("{EXECUTOR_ACCOUNT}-{name}")),
            receipt,
        ];
        for object in &objects {
            if self.cluster.get(object).await?.is_some_and(|found| is_ours(&found)) {
                return Ok(true);
            }
        }
        let brought = path::object(&path::argo(argocd, "applications"), &self.environment.bootstrap);
        let brought = self.cluster.get(&brought).await?;
        if brought.is_some_and(|found| brings(&found, self.environment.source())) {
            return Ok(true);
        }
        Ok(!self.sets.is_empty() || !self.own_namespaces().await?.is_empty())
    }

    /// The namespaces that carry our label and the environment's.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub(super) async fn own_namespaces(&self) -> Result<Vec<Value>, ClusterError> {
        let name = &self.environment.name;
        let selector = format!("{MANAGED_BY}=forge,{ENVIRONMENT_LABEL}={name}");
        let mut found = surely(self.cluster, NAMESPACES, &selector).await?;
        found.retain(|namespace| is_environments(namespace, name));
        Ok(found)
    }

    /// What bootstrap made for this environment alone, and what holds its Applications.
    pub(super) async fn environments_own(&self, record: &RefCell<RemovalRecord>) -> Result<(), Failure> {
        let (name, argocd) = (self.environment.name.as_str(), self.environment.argocd.as_str());
        // Wherever they are: an Application of another namespace may be in the project too.
        let applications = path::global("argoproj.io", "v1alpha1", "applications");
        let applications = match surely(self.cluster, &applications, "").await {
            Err(error) if error.is_missing() => Vec::new(),
            other => other?,
        };
        let uses = |found: &&Value| found.pointer("/spec/project").and_then(Value::as_str) == Some(name);
        let project = (path::argo(argocd, "appprojects"), "AppProject");
        match applications.iter().find(uses) {
            // Without its AppProject an Application could never go.
            Some(user) => {
                let why = format!("Application {} is in it, and is not ours to remove", name_of(user));
                record.borrow_mut().kept(format!("AppProject/{argocd}/{name}"), why);
            }
            None => self.remove(&project, argocd, name, record).await?,
        }
        let secrets = path::core(argocd, "secrets");
        let selector = format!("argocd.argoproj.io/secret-type=cluster,{MANAGED_BY}=forge,{ENVIRONMENT_LABEL}={name}");
        for secret in surely(self.cluster, &secrets, &selector).await? {
            // Without the Secret of its cluster an Application would leave everything there when it goes.
            if let Some(user) = applications.iter().find(|application| is_for(&secret, application)) {
                let why = format!("Application {} deploys to its cluster, and is not ours to remove", name_of(user));
                record.borrow_mut().kept(format!("Secret/{argocd}/{}", name_of(&secret)), why);
                continue;
            }
            self.remove(&(secrets.clone(), "Secret"), argocd, name_of(&secret), record).await?;
        }
        let role = format!("{EXECUTOR_ACCOUNT}-{name}");
        for (plural, kind) in [("rolebindings", "RoleBinding"), ("roles", "Role")] {
            let collection = path::named("rbac.authorization.k8s.io", "v1", argocd, plural);
            self.remove(&(collection, kind), argocd, &role, record).await?;
        }
        let workflows = self.places.workflows.as_str();
        let receipt = format!("forge-bootstrap-{name}");
        self.remove(&(path::config_maps(workflows), "ConfigMap"), workflows, &receipt, record).await
    }

    /// Removes an object that is ours, and waits until it is gone.
    async fn remove(
        &self,
        (collection, kind): &(String, &str),
        namespace: &str,
        name: &str,
        record: &RefCell<RemovalRecord>,
    ) -> Result<(), Failure> {
        let shown = format!("{kind}/{namespace}/{name}");
        let object = path::object(collection, name);
        let Some(found) = self.cluster.get(&object).await? else { return Ok(()) };
        if !is_ours(&found) {
            record.borrow_mut().kept(shown, "it does not carry our label");
            return Ok(());
        }
        failpoint::write(&format!("{shown} goes"));
        self.cluster.remove(&object, uid_of(&found), Owned::Follow).await?;
        match self.gone((collection.as_str(), name), &shown, uid_of(&found), SHOWN).await? {
            None => record.borrow_mut().removed(shown),
            Some(remnant) => record.borrow_mut().orphan(shown, remnant.told(jiff::Timestamp::now())),
        }
        Ok(())
    }

    /// The environment's namespaces go: those that carry its label, of the nodes that were removed, or all of them where
    /// everything goes. One in which somebody else has something stays.
    pub(super) async fn empty(&self, plan: Option<&RunPlan>, record: &RefCell<RemovalRecord>) -> Result<(), Failure> {
        let name = &self.environment.name;
        let collection = NAMESPACES;
        let of_nodes = plan.into_iter().flat_map(RunPlan::nodes).filter_map(|node| node.removal.as_ref());
        let of_nodes = of_nodes.filter(|removal| removal.here).flat_map(|removal| removal.namespaces.iter().cloned());
        let of_nodes: BTreeSet<String> = of_nodes.collect();
        let labelled = self.own_namespaces().await?;
        let meant = |found: &&Value| self.environment.whole || of_nodes.contains(name_of(found));
        let own: Vec<&Value> = labelled.iter().filter(meant).collect();
        let names: BTreeSet<&str> = own.iter().map(|found| name_of(found)).collect();
        for other in of_nodes.iter().filter(|other| !names.contains(other.as_str())) {
            if self.cluster.get(&path::object(collection, other)).await?.is_some() {
                let why = format!("it does not carry our labels: {MANAGED_BY}=forge, {ENVIRONMENT_LABEL}={name}");
                record.borrow_mut().kept(format!("Namespace/{other}"), why);
            }
        }
        self.kinds.forget().await;
        let known: BTreeSet<String> = record.borrow().kept.iter().map(|kept| kept.object.clone()).collect();
        let members = members_of(plan);
        let mut going = Vec::new();
        // For all of them together: it is the nodes that are gone which it waits for.
        let settled = Instant::now() + self.within(SETTLING);
        for namespace in own {
            let (shown, place) = (format!("Namespace/{}", name_of(namespace)), name_of(namespace));
            let kept = self.keeper(place, settled, |contents, kinds| {
                let known: BTreeSet<String> = known.iter().cloned().chain(made_by(&members, contents)).collect();
                foreign(contents, &known, kinds)
            });
            match kept.await {
                Ok(None) => {}
                Ok(Some(content)) => {
                    record.borrow_mut().kept(shown, format!("{} is in it, and is not ours", content.id()));
                    continue;
                }
                // What cannot be looked into is not known to be empty, and stays.
                Err(error) => {
                    record.borrow_mut().orphan(shown, format!("it could not be looked into: {error}"));
                    continue;
                }
            }
            failpoint::write(&format!("{shown} goes"));
            self.cluster.remove(&path::object(collection, place), uid_of(namespace), Owned::Follow).await?;
            going.push((shown, place, uid_of(namespace)));
        }
        for (shown, place, uid) in going {
            let end = Instant::now() + self.within(PATIENCE);
            let left = loop {
                // What was given up by name may be asked to go only now, with its namespace.
                self.release(plan, record, Moment::Meanwhile).await?;
                let time = end.saturating_duration_since(Instant::now());
                let left = self.gone((collection, place), &shown, uid, time.min(STEP)).await?;
                if left.is_none() || time.is_zero() {
                    break left;
                }
            };
            match left {
                None => record.borrow_mut().removed_namespace(place),
                Some(remnant) => {
                    let why = format!("{}{}", remnant.told(jiff::Timestamp::now()), self.kept_inside(place).await);
                    record.borrow_mut().orphan(shown, why);
                }
            }
        }
        Ok(())
    }

    /// The first object that keeps a namespace, as `which` finds it. One that has owners is looked at again until everything has
    /// settled: where those are gone, it goes by itself, some seconds after them.
    ///
    /// # Errors
    /// When something cannot be listed.
    pub(super) async fn keeper(
        &self,
        place: &str,
        settled: Instant,
        which: impl for<'c> Fn(&'c [Content], &[Kind]) -> Option<&'c Content>,
    ) -> Result<Option<Content>, ClusterError> {
        loop {
            let contents = contents(self.cluster, &self.kinds, place).await?;
            let kinds = self.kinds.all().await?;
            let Some(found) = which(&contents, &kinds) else { return Ok(None) };
            let owners = found.object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
            if owners.is_none_or(Vec::is_empty) || Instant::now() >= settled {
                return Ok(Some(found.clone()));
            }
            tokio::time::sleep(LOOK.min(settled.saturating_duration_since(Instant::now()))).await;
        }
    }

    /// What keeps a namespace, in words: what is in it, is going, and does not go. Nothing where that cannot be told.
    async fn kept_inside(&self, place: &str) -> String {
        let Ok(contents) = contents(self.cluster, &self.kinds, place).await else { return String::new() };
        kept_by(&contents, jiff::Timestamp::now())
    }
}

/// Everything that nodes had made in this cluster, by `Kind/namespace/name`, with its identity where that was known.
fn members_of(plan: Option<&RunPlan>) -> BTreeMap<String, Option<&str>> {
    let removals = plan.into_iter().flat_map(RunPlan::nodes).filter_map(|node| node.removal.as_ref());
    let members = removals.filter(|removal| removal.here).flat_map(|removal| &removal.members);
    members.map(|member| (member.to_string(), member.uid.as_deref())).collect()
}

/// What of a namespace nodes had made: they are gone, so that whatever is there of it stays for a reason and goes with the namespace. A
/// record names only some of very many; another one of its name is somebody's.
fn made_by(members: &BTreeMap<String, Option<&str>>, contents: &[Content]) -> Vec<String> {
    let ids = contents.iter().map(|content| (content.id(), uid_of(&content.object)));
    let own = ids.filter(|(id, uid)| members.get(id).is_some_and(|known| known.is_none_or(|known| known == *uid)));
    own.map(|(id, _)| id).collect()
}

/// Objects that finalizers keep, with whose those are and for how long, after something else that was said.
fn kept_by(contents: &[Content], now: jiff::Timestamp) -> String {
    let remnants = contents.iter().map(|content| Remnant::read(&content.id(), &content.object));
    let stuck: Vec<Remnant> =
        remnants.filter(|remnant| remnant.deleting.is_some() && !remnant.finalizers.is_empty()).collect();
    let told: Vec<String> = stuck.iter().take(NAMED).map(|remnant| remnant.told(now)).collect();
    match stuck.len().saturating_sub(NAMED) {
        _ if told.is_empty() => String::new(),
        0 => format!("; in it: {}", told.join("; ")),
        more => format!("; in it: {}; and {more} more", told.join("; ")),
    }
}

/// An Application manages this definition.
fn lists(application: &Value, definition: &str) -> bool {
    let resources = application.pointer("/status/resources").and_then(Value::as_array).into_iter().flatten();
    let mut named = resources.filter(|resource| resource.get("name").and_then(Value::as_str) == Some(definition));
    named.any(|resource| resource.get("kind").and_then(Value::as_str) == Some("CustomResourceDefinition"))
}

/// Everything that is in a namespace, of every kind that is served, listed twice: what one answer lacks the other has, and a kind
/// that cannot be listed is an error, never an empty one (INV-10).
///
/// # Errors
/// When something cannot be listed.
async fn contents(cluster: &Cluster, kinds: &Kinds, namespace: &str) -> Result<Vec<Content>, ClusterError> {
    let all = kinds.all().await?;
    let mut found: BTreeMap<(String, String, String), Content> = BTreeMap::new();
    for _ in 0..2 {
        let kinds = all.iter().filter(|kind| kind.namespaced).cloned();
        let lists = futures::stream::iter(kinds).map(|kind| async move {
            match cluster.list_metadata(&kind.within(namespace), "").await {
                // Its definition went since it was named.
                Err(error) if error.is_missing() => Ok((kind, Vec::new())),
                other => other.map(|listed| (kind, listed)),
            }
        });
        let lists: Vec<(Kind, Vec<Value>)> = lists.buffered(AT_ONCE).try_collect().await?;
        for (kind, listed) in lists {
            for object in listed {
                let known = (kind.group.clone(), kind.kind.clone(), name_of(&object).to_owned());
                found.insert(known, Content { kind: kind.kind.clone(), object });
            }
        }
    }
    Ok(found.into_values().collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::run::sample;

    #[test]
    fn whatever_nodes_had_made_and_kept_does_not_keep_its_namespace_however_much_it_is() {
        let secret = |n: usize| {
            let (name, uid) = (format!("s-{n}"), n.to_string());
            json!({"version": "v1", "kind": "Secret", "namespace": "shop", "name": name, "uid": uid})
        };
        let members: Vec<Value> = (0..30).map(secret).collect();
        let removal = json!({"uid": "1", "here": true, "namespaces": ["shop"], "members": members});
        let plan = sample::teardown("db", serde_json::from_value(removal).unwrap());
        let content = |n: usize, uid: &str| {
            let metadata = json!({"name": format!("s-{n}"), "namespace": "shop", "uid": uid});
            Content { kind: "Secret".to_owned(), object: json!({"metadata": metadata}) }
        };
        let own: Vec<Content> = (0..30).map(|n| content(n, &n.to_string())).collect();
        let members = members_of(Some(&plan));
        let known = |contents: &[Content]| made_by(&members, contents).into_iter().collect::<BTreeSet<String>>();
        assert_eq!(foreign(&own, &known(&own), &[]), None);
        // Another one of its name, and one that no node had.
        for theirs in [content(25, "another"), content(99, "99")] {
            let all = [own[0].clone(), theirs.clone()];
            assert_eq!(foreign(&all, &known(&all), &[]), Some(&theirs));
        }
        assert!(members_of(None).is_empty());
    }

    #[test]
    fn what_keeps_a_namespace_is_named_with_whose_it_is_and_for_how_long() {
        let now: jiff::Timestamp = "2026-11-16T10:02:00Z".parse().unwrap();
        let content = |name: &str, finalizers: Value, going: bool| {
            let mut metadata = json!({"name": name, "namespace": "shop", "finalizers": finalizers});
            if going {
                metadata["deletionTimestamp"] = json!("2026-11-16T10:00:00Z");
            }
            Content { kind: "Widget".to_owned(), object: json!({"metadata": metadata}) }
        };
        let held = content("held", json!(["example.com/protect"]), true);
        let others = [content("a", json!([]), true), content("b", json!(["x"]), false)];
        assert_eq!(kept_by(&others, now), "");
        let told = kept_by(&[others[0].clone(), held.clone()], now);
        assert_eq!(told, "; in it: Widget/shop/held, kept by `example.com/protect` of an unknown owner for 2m");
        let many = [held.clone(), held.clone(), held.clone(), held];
        assert!(kept_by(&many, now).ends_with("; and 1 more"));
    }
}
