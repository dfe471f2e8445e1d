//! What is left of an environment when its nodes are gone: its AppProject, which every Application needed to the end, its cluster
//! Secrets, what bootstrap made for it alone, and its namespaces. Each only if it is ours and nobody else is in it.

use std::cell::RefCell;
use std::collections::BTreeSet;

use forge_core::failure::Failure;
use forge_core::render::{self, ENVIRONMENT_LABEL, EXECUTOR_ACCOUNT, MANAGED_BY, is_ours};
use forge_core::run::{Record, RunPlan};
use forge_core::teardown::{Content, RemovalRecord, foreign, is_environments};
use serde_json::Value;

use super::{PATIENCE, SHOWN, Teardown, name_of, surely, uid_of};
use crate::cluster::{Cluster, ClusterError, Kinds, Owned, path};
use crate::failpoint;

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
        for kept in self.unreleased(record).await? {
            record.borrow_mut().kept(kept.object, kept.why);
        }
        for entry in nodes.entries.values() {
            if let forge_core::gate::Decision::Gone(removed) = &entry.decision {
                let mut record = record.borrow_mut();
                removed.kept.iter().for_each(|kept| record.kept(kept.object.clone(), kept.why.clone()));
            }
        }
        let of_nodes = plan.nodes().filter_map(|node| node.removal.as_ref()).filter(|removal| removal.here);
        let of_nodes: BTreeSet<String> = of_nodes.flat_map(|removal| removal.namespaces.iter().cloned()).collect();
        self.empty(&of_nodes, record).await?;
        if self.environment.whole {
            self.environments_own(record).await?;
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
            path::object(&path::argo(argocd, "applications"), &self.environment.bootstrap),
            path::object(&path::argo(workflows, "sensors"), &render::sensor_name(&self.environment.name)),
            path::object(&roles, &format!("{EXECUTOR_ACCOUNT}-{name}")),
            receipt,
        ];
        for object in &objects {
            if self.cluster.get(object).await?.is_some_and(|found| is_ours(&found)) {
                return Ok(true);
            }
        }
        let selector = format!("{MANAGED_BY}=forge,{ENVIRONMENT_LABEL}={name}");
        let namespaces = surely(self.cluster, "/api/v1/namespaces", &selector).await?;
        Ok(!self.sets.is_empty() || !namespaces.is_empty())
    }

    /// What bootstrap made for this environment alone, and what holds its Applications.
    pub(super) async fn environments_own(&self, record: &RefCell<RemovalRecord>) -> Result<(), Failure> {
        let (name, argocd) = (self.environment.name.as_str(), self.environment.argocd.as_str());
        let applications = path::argo(argocd, "applications");
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
    pub(super) async fn empty(
        &self,
        of_nodes: &BTreeSet<String>,
        record: &RefCell<RemovalRecord>,
    ) -> Result<(), Failure> {
        let name = &self.environment.name;
        let collection = "/api/v1/namespaces";
        let selector = format!("{MANAGED_BY}=forge,{ENVIRONMENT_LABEL}={name}");
        let labelled = surely(self.cluster, collection, &selector).await?;
        let meant = |found: &&Value| self.environment.whole || of_nodes.contains(name_of(found));
        let own: Vec<&Value> = labelled.iter().filter(|found| is_environments(found, name)).filter(meant).collect();
        let names: BTreeSet<&str> = own.iter().map(|found| name_of(found)).collect();
        for other in of_nodes.iter().filter(|other| !names.contains(other.as_str())) {
            if self.cluster.get(&path::object(collection, other)).await?.is_some() {
                let why = format!("it does not carry our labels: {MANAGED_BY}=forge, {ENVIRONMENT_LABEL}={name}");
                record.borrow_mut().kept(format!("Namespace/{other}"), why);
            }
        }
        self.kinds.forget().await;
        let known: BTreeSet<String> = record.borrow().kept.iter().map(|kept| kept.object.clone()).collect();
        let mut going = Vec::new();
        for namespace in own {
            let (shown, place) = (format!("Namespace/{}", name_of(namespace)), name_of(namespace));
            // What cannot be looked into is not known to be empty, and stays.
            let contents = match contents(self.cluster, &self.kinds, place).await {
                Ok(contents) => contents,
                Err(error) => {
                    record.borrow_mut().orphan(shown, format!("it could not be looked into: {error}"));
                    continue;
                }
            };
            if let Some(content) = foreign(&contents, &known) {
                record.borrow_mut().kept(shown, format!("{} is in it, and is not ours", content.id()));
                continue;
            }
            failpoint::write(&format!("{shown} goes"));
            self.cluster.remove(&path::object(collection, place), uid_of(namespace), Owned::Follow).await?;
            going.push((shown, place, uid_of(namespace)));
        }
        for (shown, place, uid) in going {
            match self.gone((collection, place), &shown, uid, PATIENCE).await? {
                None => record.borrow_mut().removed(shown),
                Some(remnant) => record.borrow_mut().orphan(shown, remnant.told(jiff::Timestamp::now())),
            }
        }
        Ok(())
    }
}

/// Everything that is in a namespace, of every kind that is served: a kind that cannot be listed is an error, never an empty
/// one (INV-10).
///
/// # Errors
/// When something cannot be listed.
pub(super) async fn contents(cluster: &Cluster, kinds: &Kinds, namespace: &str) -> Result<Vec<Content>, ClusterError> {
    let mut found = Vec::new();
    for kind in kinds.all().await?.iter().filter(|kind| kind.namespaced) {
        let listed = match cluster.list_metadata(&kind.within(namespace), "").await {
            // Its definition went since it was named.
            Err(error) if error.is_missing() => continue,
            other => other?,
        };
        found.extend(listed.into_iter().map(|object| Content { kind: kind.kind.clone(), object }));
    }
    Ok(found)
}
