//! What bootstrap installed goes when no environment is left (SPEC.md section 4): Argo CD's hold on itself, the root, what starts
//! runs, Forge's own objects, then the parts of Argo in the reverse order of their installation, then definitions that nobody uses,
//! receipts, and namespaces at the very end. Every step looks at what is there, so that whoever was killed goes on.
//!
//! A part of Argo that somebody else uses stays, and so does everything that does not carry our label (INV-11).

use std::cell::RefCell;
use std::path::Path;
use std::time::Duration;

use forge_core::failure::Failure;
use forge_core::install::{self, APPLICATION, Receipt};
use forge_core::preflight::{Component, Intent};
use forge_core::render::{self, ENVIRONMENT_LABEL, MANAGED_BY, is_ours};
use forge_core::root;
use forge_core::scaffold::ROOT_SET;
use forge_core::teardown::inventory::SNAPSHOT_LABEL;
use forge_core::teardown::{Content, RemovalRecord, belongs, foreign_beside_argo, user};
use jiff::Timestamp;
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::look::is_last;
use super::{PATIENCE, SETTLING, SHOWN, Teardown, name_of, surely, uid_of, unless_told};
use crate::bootstrap::{applied, former};
use crate::cluster::{ClusterError, Owned, path};
use crate::failpoint;
use crate::install::{Outcome, Removing, lock, uninstall, whose_release};
use crate::interrupt::Interrupts;
use crate::run::lease;

/// Where Argo Events is.
const EVENTS: &str = "argo-events";
const DEFINITIONS: &str = "customresourcedefinitions";
const EXTENSIONS: &str = "apiextensions.k8s.io";
const NAMESPACES: &str = "/api/v1/namespaces";
/// Where the receipt of Argo CD says what that managed of itself.
const MANAGED: &str = "managed";
/// Kinds of Forge's own objects that carry our label beside the Workflows: what runs leave, and what they need.
const LEFT: [(&str, &str, &str); 9] = [
    ("batch", "v1", "jobs"),
    ("argoproj.io", "v1alpha1", "workflows"),
    ("rbac.authorization.k8s.io", "v1", "rolebindings"),
    ("rbac.authorization.k8s.io", "v1", "roles"),
    ("", "v1", "secrets"),
    ("", "v1", "serviceaccounts"),
    ("", "v1", "configmaps"),
    ("argoproj.io", "v1alpha1", "workflowtasksets"),
    ("coordination.k8s.io", "v1", "leases"),
];

/// What is needed to remove what Helm installed.
pub(crate) struct Primitives<'p> {
    /// How the cluster was reached, so that helm reaches the same.
    pub(crate) kubeconfig: &'p dyn Fn() -> Result<SecretString, Failure>,
    /// The program; that of the path if absent.
    pub(crate) helm: Option<&'p Path>,
    /// How long a part of Argo may take to go, where the teardown has that much time.
    pub(crate) timeout: Duration,
    /// The namespace that this process runs in, where it is a pod: that cannot go with it inside.
    pub(crate) inside: Option<String>,
}

/// Removes what bootstrap installed. While the cluster is prepared nobody bootstraps meanwhile. `say` hears of every step.
///
/// # Errors
/// When the cluster or helm refuses; what was removed until then stays removed.
pub(super) async fn primitives(
    teardown: &Teardown<'_>,
    tools: &Primitives<'_>,
    prepared: bool,
    interrupts: &mut Interrupts,
    record: &RefCell<RemovalRecord>,
    say: &mut dyn FnMut(&str),
) -> Result<Outcome, Failure> {
    let removed = if prepared {
        let mut lock = lock::take(teardown.cluster, &teardown.places.workflows, say).await?;
        // Looked at again now that nobody can bootstrap: nodes may have taken hours to go, and somebody may have come meanwhile.
        let removal = async {
            if !is_last(teardown.cluster, &teardown.places.workflows, teardown.environment).await? {
                let why = "another environment is there by now";
                record.borrow_mut().kept("what bootstrap installed", why);
                return Ok::<_, Failure>(None);
            }
            installed(teardown, tools, true, interrupts, record, say).await.map(Some)
        };
        let removed = tokio::select! {
            removed = removal => removed,
            failure = lock.lost() => Err(failure),
        };
        match removed {
            Ok(Some(Outcome::Done)) => {
                lock.discard(teardown.cluster).await?;
                Outcome::Done
            }
            // The Lease stays for whoever goes on, is there by now, or has taken it.
            other => {
                let _ = lock.release(teardown.cluster).await;
                match other? {
                    None => return Ok(Outcome::Done),
                    Some(outcome) => outcome,
                }
            }
        }
    } else {
        installed(teardown, tools, false, interrupts, record, say).await?
    };
    if removed == Outcome::Done {
        let emptied = unless_told(interrupts, teardown.empty_out(tools.inside.as_deref(), record)).await?;
        return Ok(if emptied.is_some() { Outcome::Done } else { Outcome::Interrupted });
    }
    Ok(removed)
}

/// All of it but the namespaces.
async fn installed(
    teardown: &Teardown<'_>,
    tools: &Primitives<'_>,
    locked: bool,
    interrupts: &mut Interrupts,
    record: &RefCell<RemovalRecord>,
    say: &mut dyn FnMut(&str),
) -> Result<Outcome, Failure> {
    let before_helm = async {
        let managed = teardown.unhand(record).await?;
        teardown.uproot(record).await?;
        teardown.silence(record).await?;
        let going = teardown.unused(record).await?;
        match &tools.inside {
            None => teardown.remove_own(locked, record).await?,
            Some(inside) => {
                let why = "this executor uses them: `forge platform teardown` from outside removes them";
                record.borrow_mut().kept(format!("Forge's own objects in {inside}"), why);
            }
        }
        Ok::<_, Failure>((managed, going))
    };
    let Some((managed, going)) = unless_told(interrupts, before_helm).await? else {
        return Ok(Outcome::Interrupted);
    };
    let (cluster, workflows) = (teardown.cluster, teardown.places.workflows.as_str());
    let Primitives { kubeconfig, helm, .. } = tools;
    let timeout = || teardown.for_helm(tools.timeout);
    let removed = |part: Component| {
        record.borrow_mut().removed(format!("{}, Helm release {}", part.title(), part.release()));
    };
    let (timeout, removed) = (&timeout, &removed);
    let removing = Removing { cluster, kubeconfig: *kubeconfig, workflows, helm: *helm, timeout, removed, locked };
    // At once: in between, nobody who waits for the Lease may begin.
    let parts: Vec<(Component, &str)> = going.iter().map(|part| (*part, teardown.place(*part))).collect();
    if uninstall(&removing, &parts, interrupts, say).await? == Outcome::Interrupted {
        return Ok(Outcome::Interrupted);
    }
    let after_helm = async {
        teardown.remove_managed(&managed, record).await?;
        for part in &going {
            teardown.undefine(*part, record).await?;
        }
        Ok::<_, Failure>(())
    };
    let done = unless_told(interrupts, after_helm).await?;
    Ok(if done.is_some() { Outcome::Done } else { Outcome::Interrupted })
}

/// What says of each object what it is, and nothing else.
fn addresses(managed: &[Value]) -> Value {
    let keys = ["group", "version", "kind", "namespace", "name"];
    let address = |resource: &Value| -> Value {
        keys.iter().filter_map(|key| Some(((*key).to_owned(), resource.get(key)?.clone()))).collect()
    };
    managed.iter().map(address).collect()
}

/// The Helm release that brought an object, by its own word, and the namespace of that.
fn release_of(object: &Value) -> (&str, &str) {
    let mark = |key: &str| {
        let marks = object.pointer("/metadata/annotations").and_then(|marks| marks.get(key));
        marks.and_then(Value::as_str).unwrap_or_default()
    };
    (mark("meta.helm.sh/release-name"), mark("meta.helm.sh/release-namespace"))
}

impl Teardown<'_> {
    pub(super) fn place(&self, component: Component) -> &str {
        match component {
            Component::Cd => &self.environment.argocd,
            Component::Workflows => &self.places.workflows,
            Component::Events => EVENTS,
        }
    }

    fn installs(&self, component: Component) -> bool {
        let intents = &self.environment.intents;
        let intent = match component {
            Component::Cd => intents.cd,
            Component::Workflows => intents.workflows,
            Component::Events => intents.events,
        };
        intent == Intent::Install
    }

    /// Argo CD lets go of itself: its own Application goes, and nothing of Argo CD. Gives what it managed.
    async fn unhand(&self, record: &RefCell<RemovalRecord>) -> Result<Vec<Value>, Failure> {
        let object = path::object(&path::argo(&self.environment.argocd, "applications"), APPLICATION);
        // Whoever was killed after it went had written down what it managed.
        let Some(own) = self.cluster.get(&object).await? else { return self.noted().await };
        // One of ours that was not handed over yet goes too: nobody would be left to see to it.
        if install::managed(&own, &self.environment.argocd).is_none() && !is_ours(&own) {
            return Ok(Vec::new());
        }
        if !is_ours(&own) {
            let why = "it does not carry our label, and Argo CD is in its hands";
            record.borrow_mut().kept(format!("Application/{}/{APPLICATION}", self.environment.argocd), why);
            return Ok(Vec::new());
        }
        let managed = own.pointer("/status/resources").and_then(Value::as_array).cloned().unwrap_or_default();
        self.note(&managed).await?;
        if self.without_cascade(APPLICATION).await? {
            record.borrow_mut().removed(format!("Application {APPLICATION}, without Argo CD"));
        }
        Ok(managed)
    }

    /// What Argo CD managed of itself is written down beside the receipt of its installation, before nobody can tell any more.
    async fn note(&self, managed: &[Value]) -> Result<(), Failure> {
        let object = self.receipt_path(Component::Cd);
        if managed.is_empty() || !self.cluster.get(&object).await?.is_some_and(|receipt| is_ours(&receipt)) {
            return Ok(());
        }
        let patch = json!({"data": {MANAGED: addresses(managed).to_string()}});
        failpoint::write("what Argo CD managed of itself");
        self.cluster.merge(&object, &patch).await?;
        Ok(())
    }

    async fn noted(&self) -> Result<Vec<Value>, Failure> {
        let receipt = self.cluster.get(&self.receipt_path(Component::Cd)).await?.filter(is_ours);
        let text = receipt.as_ref().and_then(|receipt| receipt.get("data")?.get(MANAGED)?.as_str());
        Ok(text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default())
    }

    fn receipt_path(&self, part: Component) -> String {
        path::object(&path::config_maps(self.place(part)), &install::receipt_name(part))
    }

    /// The root goes: the set without what it made, and the projects that no Application is in any more.
    async fn uproot(&self, record: &RefCell<RemovalRecord>) -> Result<(), Failure> {
        let argocd = self.environment.argocd.as_str();
        let receipts = path::config_maps(argocd);
        let receipt = self.cluster.get(&path::object(&receipts, root::RECEIPT)).await?.filter(is_ours);
        let mut names: Vec<String> = root::listed(receipt.as_ref()).into_iter().collect();
        // Sets first: they would make Applications of projects that are about to go.
        names.sort_by_key(|name| !name.starts_with("ApplicationSet "));
        if names.is_empty() {
            names.push(format!("ApplicationSet {ROOT_SET}"));
        }
        for identity in &names {
            match identity.split_once(' ') {
                Some(("ApplicationSet", name)) => {
                    self.remove_one(
                        &path::argo(argocd, "applicationsets"),
                        "ApplicationSet",
                        name,
                        Owned::Stay,
                        record,
                    )
                    .await?;
                }
                Some(("AppProject", name)) => self.remove_project(name, record).await?,
                // Applications of the root went as nodes, or were Argo CD's own.
                _ => {}
            }
        }
        if receipt.is_some() {
            self.remove_one(&receipts, "ConfigMap", root::RECEIPT, Owned::Follow, record).await?;
        }
        Ok(())
    }

    async fn remove_project(&self, name: &str, record: &RefCell<RemovalRecord>) -> Result<(), Failure> {
        let argocd = self.environment.argocd.as_str();
        let applications = self.served(&path::argo(argocd, "applications"), "").await?;
        let uses = |found: &&Value| found.pointer("/spec/project").and_then(Value::as_str) == Some(name);
        if let Some(user) = applications.iter().find(uses) {
            let why = format!("Application {} is in it", name_of(user));
            record.borrow_mut().kept(format!("AppProject/{argocd}/{name}"), why);
            return Ok(());
        }
        self.remove_one(&path::argo(argocd, "appprojects"), "AppProject", name, Owned::Follow, record).await
    }

    /// What starts runs goes while Argo Events is there to put it away.
    async fn silence(&self, record: &RefCell<RemovalRecord>) -> Result<(), Failure> {
        let workflows = &self.places.workflows;
        for (plural, kind) in [("sensors", "Sensor"), ("eventsources", "EventSource"), ("eventbus", "EventBus")] {
            let collection = path::argo(workflows, plural);
            for found in self.served(&collection, &format!("{MANAGED_BY}=forge")).await? {
                self.remove_one(&collection, kind, name_of(&found), Owned::Follow, record).await?;
            }
        }
        Ok(())
    }

    /// The parts of Argo that are ours and that nobody else uses, in the reverse order of their installation.
    async fn unused(&self, record: &RefCell<RemovalRecord>) -> Result<Vec<Component>, Failure> {
        let mut going = Vec::new();
        for part in Component::ALL.into_iter().rev().filter(|part| self.installs(*part)) {
            let title = part.title();
            match (whose_release(self.cluster, part, self.place(part)).await?, self.receipt(part).await?) {
                (Some(false), _) => record.borrow_mut().kept(title, "its Helm release does not carry our label"),
                (None, None) => {}
                // A release that is gone and a receipt that is there: whoever was here before did not get further.
                (Some(true), _) | (None, Some(_)) => match self.user_of(part).await {
                    Ok(None) => going.push(part),
                    Ok(Some(user)) => record.borrow_mut().orphan(title, format!("{user} uses it, and is not ours")),
                    // What cannot be listed may be somebody's (INV-10).
                    Err(error) => record.borrow_mut().orphan(title, format!("who uses it could not be told: {error}")),
                },
            }
        }
        Ok(going)
    }

    /// What bootstrap noted about a part of Argo that it installed.
    async fn receipt(&self, part: Component) -> Result<Option<Receipt>, ClusterError> {
        Ok(self.cluster.get(&self.receipt_path(part)).await?.as_ref().and_then(Receipt::read))
    }

    /// The definitions that a part of Argo brought, by its receipt; where there is none, by what they say themselves: a receipt that
    /// was lost does not say that nobody uses it (INV-10).
    async fn definitions(&self, part: Component) -> Result<Vec<String>, ClusterError> {
        if let Some(receipt) = self.receipt(part).await? {
            let parts = receipt.parts.into_iter().filter(|part| part.namespace.is_none());
            return Ok(parts.map(|part| part.name).collect());
        }
        let all = surely(self.cluster, &path::global(EXTENSIONS, "v1", DEFINITIONS), "").await?;
        let own = all.iter().filter(|definition| release_of(definition) == (part.release(), self.place(part)));
        Ok(own.map(|definition| name_of(definition).to_owned()).collect())
    }

    /// All objects of a definition; none where it is gone.
    pub(super) async fn instances(&self, definition: &str) -> Result<Vec<Content>, ClusterError> {
        let object = path::object(&path::global(EXTENSIONS, "v1", DEFINITIONS), definition);
        let Some(crd) = self.cluster.get(&object).await? else { return Ok(Vec::new()) };
        let text = |pointer: &str| crd.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let versions = crd.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten();
        let served = |version: &&Value| version.get("served").and_then(Value::as_bool) == Some(true);
        let mut served = versions.filter(served).filter_map(|version| version.get("name").and_then(Value::as_str));
        let Some(version) = served.next() else {
            return Err(ClusterError::Unreadable(format!("`{definition}` serves no version")));
        };
        let collection = path::global(text("/spec/group"), version, text("/spec/names/plural"));
        let kind = text("/spec/names/kind").to_owned();
        let all = surely(self.cluster, &collection, "").await?;
        Ok(all.into_iter().map(|object| Content { kind: kind.clone(), object }).collect())
    }

    /// Somebody else who uses a part of Argo.
    async fn user_of(&self, part: Component) -> Result<Option<String>, ClusterError> {
        for definition in self.definitions(part).await? {
            let instances = self.instances(&definition).await?;
            if let Some(user) = user(&instances) {
                return Ok(Some(user.id()));
            }
        }
        Ok(None)
    }

    /// Forge's own objects go, where they are not in a namespace that goes with all of them.
    async fn remove_own(&self, locked: bool, record: &RefCell<RemovalRecord>) -> Result<(), Failure> {
        let handed = self.environment.intents.cd == Intent::Existing;
        let mut objects = applied(self.places, std::slice::from_ref(&self.environment.name), handed);
        objects.extend(render::of_events(self.places));
        objects.reverse();
        objects.extend(former(self.cluster, self.places).await?);
        for placed in objects {
            let kind = placed.object.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
            self.remove_one(&placed.collection, &kind, name_of(&placed.object), Owned::Follow, record).await?;
        }
        let workflows = self.places.workflows.as_str();
        // Whoever was killed before may have left them, and then nobody holds them.
        let held = [lease::name(&self.environment.name), lock::NAME.to_owned()];
        let held: &[String] = if locked { &held } else { &[] };
        let mut any = false;
        for (group, version, plural) in LEFT {
            let collection = if group.is_empty() {
                path::core(workflows, plural)
            } else {
                path::named(group, version, workflows, plural)
            };
            let mut all = self.served(&collection, &format!("{MANAGED_BY}=forge")).await?;
            // The newest run last: it says that those before it are over, also to whoever comes after one that was killed here.
            all.sort_by_key(|found| found.pointer("/metadata/creationTimestamp").map(Value::to_string));
            for found in all {
                // A receipt says what is left to do, what Helm keeps of its releases is how they go, the snapshot is what the
                // end is compared with, and two Leases are held: all of them later.
                let label = |key: &str| found.pointer("/metadata/labels")?.get(key)?.as_str();
                let later = label("owner") == Some("helm") || label(SNAPSHOT_LABEL).is_some();
                if later || name_of(&found).starts_with("forge-install-") || held.contains(&name_of(&found).to_owned())
                {
                    continue;
                }
                any = true;
                failpoint::write(&format!("{plural} {} goes", name_of(&found)));
                let object = path::object(&collection, name_of(&found));
                self.cluster.remove(&object, uid_of(&found), Owned::Follow).await?;
            }
        }
        if any {
            record.borrow_mut().removed(format!("Forge's own objects in {workflows}"));
        }
        Ok(())
    }

    /// The snapshot of phase 0, where its namespace does not go with it.
    async fn remove_snapshot(&self) -> Result<(), Failure> {
        let collection = path::config_maps(&self.places.workflows);
        for found in self.served(&collection, &format!("{MANAGED_BY}=forge,{SNAPSHOT_LABEL}")).await? {
            failpoint::write(&format!("ConfigMap {} goes", name_of(&found)));
            self.cluster.remove(&path::object(&collection, name_of(&found)), uid_of(&found), Owned::Follow).await?;
        }
        Ok(())
    }

    /// What Argo CD made of itself after Helm had installed it: Helm does not know of it.
    async fn remove_managed(&self, managed: &[Value], record: &RefCell<RemovalRecord>) -> Result<(), Failure> {
        for resource in managed {
            let text = |key: &str| resource.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
            let member = forge_core::teardown::Member {
                group: text("group"),
                version: text("version"),
                kind: text("kind"),
                namespace: text("namespace"),
                name: text("name"),
                uid: None,
            };
            if member.group == EXTENSIONS || member.kind == "Namespace" {
                continue;
            }
            let Some(collection) = self.kinds.place(&member).await? else { continue };
            let object = path::object(&collection, &member.name);
            let Some(live) = self.cluster.get(&object).await? else { continue };
            let tracked = live.pointer("/metadata/annotations/argocd.argoproj.io~1tracking-id").and_then(Value::as_str);
            if tracked.is_some_and(|id| id.split(':').next() == Some(APPLICATION)) {
                failpoint::write(&format!("{member} goes"));
                self.cluster.remove(&object, uid_of(&live), Owned::Follow).await?;
                record.borrow_mut().removed(member.to_string());
            }
        }
        Ok(())
    }

    /// Definitions of a part of Argo that is gone: each only if our release brought it and nothing of it is there. Then the
    /// receipt, which said so.
    async fn undefine(&self, part: Component, record: &RefCell<RemovalRecord>) -> Result<(), Failure> {
        let collection = path::global(EXTENSIONS, "v1", DEFINITIONS);
        for definition in self.definitions(part).await? {
            let shown = format!("CustomResourceDefinition/{definition}");
            let object = path::object(&collection, &definition);
            let Some(live) = self.cluster.get(&object).await? else { continue };
            if release_of(&live) != (part.release(), self.place(part)) {
                record.borrow_mut().kept(shown, "our release did not bring it");
                continue;
            }
            match self.instances(&definition).await {
                Ok(instances) => {
                    if let Some(user) = user(&instances) {
                        record.borrow_mut().kept(shown, format!("{} is of it, and is not ours", user.id()));
                        continue;
                    }
                }
                Err(error) => {
                    record.borrow_mut().orphan(shown, format!("what uses it could not be told: {error}"));
                    continue;
                }
            }
            failpoint::write(&format!("{shown} goes"));
            self.cluster.remove(&object, uid_of(&live), Owned::Follow).await?;
            match self.gone((collection.as_str(), definition.as_str()), &shown, uid_of(&live), SHOWN).await? {
                None => record.borrow_mut().removed(shown),
                Some(remnant) => record.borrow_mut().orphan(shown, remnant.told(Timestamp::now())),
            }
        }
        let receipts = path::config_maps(self.place(part));
        self.remove_one(&receipts, "ConfigMap", &install::receipt_name(part), Owned::Follow, record).await
    }

    /// The namespaces that bootstrap made, at the very end: that of Argo Workflows last, because it holds what is recorded.
    async fn empty_out(&self, inside: Option<&str>, record: &RefCell<RemovalRecord>) -> Result<(), Failure> {
        self.kinds.forget().await;
        let mut places = vec![EVENTS, self.environment.argocd.as_str(), self.places.workflows.as_str()];
        places.dedup();
        let settled = Instant::now() + self.within(SETTLING);
        for place in places {
            let shown = format!("Namespace/{place}");
            let Some(namespace) = self.cluster.get(&path::object(NAMESPACES, place)).await? else { continue };
            if !belongs(&namespace) {
                if is_ours(&namespace) || place != EVENTS {
                    record.borrow_mut().kept(shown, "bootstrap did not make it");
                }
                continue;
            }
            if inside == Some(place) {
                record.borrow_mut().kept(shown, "this executor runs in it: remove it from outside");
                continue;
            }
            match self.keeper(place, settled, foreign_beside_argo).await {
                Ok(None) => {}
                Ok(Some(content)) => {
                    record.borrow_mut().kept(shown, format!("{} is in it, and is not ours", content.id()));
                    continue;
                }
                Err(error) => {
                    record.borrow_mut().orphan(shown, format!("it could not be looked into: {error}"));
                    continue;
                }
            }
            failpoint::write(&format!("{shown} goes"));
            self.cluster.remove(&path::object(NAMESPACES, place), uid_of(&namespace), Owned::Follow).await?;
            match self.gone((NAMESPACES, place), &shown, uid_of(&namespace), PATIENCE).await? {
                None => record.borrow_mut().removed_namespace(place),
                Some(remnant) => record.borrow_mut().orphan(shown, remnant.told(Timestamp::now())),
            }
        }
        // Whoever begins again has something to compare with until here.
        if inside.is_none() { self.remove_snapshot().await } else { Ok(()) }
    }

    /// Removes one object that is ours, and waits until it is gone.
    async fn remove_one(
        &self,
        collection: &str,
        kind: &str,
        name: &str,
        owned: Owned,
        record: &RefCell<RemovalRecord>,
    ) -> Result<(), Failure> {
        let object = path::object(collection, name);
        let Some(found) = self.cluster.get(&object).await? else { return Ok(()) };
        let shown = match found.pointer("/metadata/namespace").and_then(Value::as_str) {
            Some(namespace) => format!("{kind}/{namespace}/{name}"),
            None => format!("{kind}/{name}"),
        };
        if !is_ours(&found) {
            record.borrow_mut().kept(shown, "it does not carry our label");
            return Ok(());
        }
        // One of another environment is that environment's.
        let environment = found.pointer("/metadata/labels").and_then(|labels| labels.get(ENVIRONMENT_LABEL));
        if environment.and_then(Value::as_str).is_some_and(|name| name != self.environment.name.as_str()) {
            record.borrow_mut().kept(shown, "it is of another environment");
            return Ok(());
        }
        failpoint::write(&format!("{shown} goes"));
        self.cluster.remove(&object, uid_of(&found), owned).await?;
        match self.gone((collection, name), &shown, uid_of(&found), SHOWN).await? {
            None => record.borrow_mut().removed(shown),
            Some(remnant) => record.borrow_mut().orphan(shown, remnant.told(Timestamp::now())),
        }
        Ok(())
    }

    /// A collection, where its kind is served.
    async fn served(&self, collection: &str, selector: &str) -> Result<Vec<Value>, Failure> {
        match surely(self.cluster, collection, selector).await {
            Err(error) if error.is_missing() => Ok(Vec::new()),
            other => Ok(other?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_argo_cd_managed_of_itself_is_written_down_without_what_changes() {
        let managed =
            [json!({"version": "v1", "kind": "ConfigMap", "namespace": "argocd", "name": "a", "status": "Synced",
            "health": {"status": "Healthy"}})];
        let noted = addresses(&managed);
        assert_eq!(noted, json!([{"version": "v1", "kind": "ConfigMap", "namespace": "argocd", "name": "a"}]));
        assert_eq!(serde_json::from_str::<Vec<Value>>(&noted.to_string()).unwrap().len(), 1);
    }

    #[test]
    fn a_definition_says_which_release_brought_it() {
        let marks = json!({"meta.helm.sh/release-name": "argo-cd", "meta.helm.sh/release-namespace": "argocd"});
        assert_eq!(release_of(&json!({"metadata": {"annotations": marks}})), ("argo-cd", "argocd"));
        assert_eq!(release_of(&json!({})), ("", ""));
    }
}
