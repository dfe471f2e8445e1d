//! What Crossplane made for itself when it started goes after it: definitions, a webhook, and with those a few objects of its own.
//! Argo CD knows nothing of it, no chart has it, and it would be left in every cluster. It goes only where Crossplane was a node of
//! this teardown, was not there before the platform, is there no more, and as far as nobody uses it (INV-11); what it is told
//! by is in `forge_core::teardown`.

use std::cell::RefCell;

use forge_core::code::Code;
use forge_core::failure::Failure;
use forge_core::name::clip;
use forge_core::root;
use forge_core::run::{RunNode, RunPlan};
use forge_core::teardown::inventory::{Item, Snapshot};
use forge_core::teardown::{CROSSPLANE, CROSSPLANE_SELECTOR, Content, RemovalRecord, started, used_by};
use jiff::Timestamp;
use serde_json::Value;

use super::inventory::stored;
use super::look::is_last;
use super::{SHOWN, Teardown, name_of, surely, uid_of};
use crate::cluster::{ClusterError, Owned, path};
use crate::failpoint;

/// The kinds of what goes, in this order: a webhook that nobody answers any more would keep objects from going.
const KINDS: [(&str, &str, &str); 2] = [
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration"),
    ("apiextensions.k8s.io", DEFINITIONS, "CustomResourceDefinition"),
];
const DEFINITIONS: &str = "customresourcedefinitions";

/// Something that Crossplane made when it started.
struct Started {
    of: (&'static str, &'static str),
    kind: &'static str,
    collection: String,
    object: Value,
}

impl Started {
    fn name(&self) -> &str {
        name_of(&self.object)
    }

    fn shown(&self) -> String {
        format!("{}/{}", self.kind, clip(self.name()))
    }
}

impl Teardown<'_> {
    /// After Crossplane is gone as a node. Without a plan no node is left, and whoever removed them may have been killed before
    /// this.
    pub(super) async fn undefine_crossplane(
        &self,
        plan: Option<&RunPlan>,
        record: &RefCell<RemovalRecord>,
    ) -> Result<(), Failure> {
        let went = match plan {
            Some(plan) => plan.nodes().any(|node| self.is_crossplane(node)),
            None => self.had_crossplane().await?,
        };
        if !went {
            return Ok(());
        }
        let own = self.of_crossplane().await?;
        if own.is_empty() {
            return Ok(());
        }
        let snapshot = match stored(self.cluster, &self.places.workflows).await {
            Err(failure) if failure.code == Code::SnapshotUnusable => None,
            other => other?,
        };
        self.without_crossplane(&own, snapshot.as_ref(), record).await
    }

    fn is_crossplane(&self, node: &RunNode) -> bool {
        let id = &node.application;
        let here = node.removal.as_ref().is_some_and(|removal| removal.here);
        here && id.namespace.as_str() == self.environment.argocd && id.name() == CROSSPLANE
    }

    /// Crossplane was ours, by the receipt of the root, which outlives every node; its Application is gone, and so is every other
    /// environment, because all of them share it.
    async fn had_crossplane(&self) -> Result<bool, Failure> {
        let argocd = self.environment.argocd.as_str();
        let receipt = self.cluster.get(&path::object(&path::config_maps(argocd), root::RECEIPT)).await?;
        if !root::listed(receipt.as_ref()).contains(&format!("Application {CROSSPLANE}")) {
            return Ok(false);
        }
        let application = path::object(&path::argo(argocd, "applications"), CROSSPLANE);
        let gone = self.cluster.get(&application).await?.is_none();
        Ok(gone && is_last(self.cluster, &self.places.workflows, self.environment).await?)
    }

    async fn of_crossplane(&self) -> Result<Vec<Started>, ClusterError> {
        let mut found = Vec::new();
        for (group, plural, kind) in KINDS {
            let (of, collection) = ((group, plural), path::global(group, "v1", plural));
            for object in surely(self.cluster, &collection, "").await? {
                if Item::read(&object).is_some_and(|item| started(of, &item)) {
                    found.push(Started { of, kind, collection: collection.clone(), object });
                }
            }
        }
        Ok(found)
    }

    async fn without_crossplane(
        &self,
        own: &[Started],
        snapshot: Option<&Snapshot>,
        record: &RefCell<RemovalRecord>,
    ) -> Result<(), Failure> {
        if let Some(why) = self.crossplane_stays(own, snapshot).await? {
            let mut record = record.borrow_mut();
            own.iter().for_each(|started| record.kept(started.shown(), why.clone()));
            return Ok(());
        }
        let mut going = Vec::new();
        for started in own {
            let shown = started.shown();
            match self.user_of_started(started).await {
                Ok(None) => {}
                Ok(Some(user)) => {
                    record.borrow_mut().orphan(shown, format!("{user} is of it"));
                    continue;
                }
                // What cannot be listed may be somebody's (INV-10).
                Err(error) => {
                    record.borrow_mut().orphan(shown, format!("what uses it could not be told: {error}"));
                    continue;
                }
            }
            failpoint::write(&format!("{shown} goes"));
            let object = path::object(&started.collection, started.name());
            self.cluster.remove(&object, uid_of(&started.object), Owned::Follow).await?;
            going.push((started, shown));
        }
        for (started, shown) in going {
            let place = (started.collection.as_str(), started.name());
            match self.gone(place, &shown, uid_of(&started.object), SHOWN).await? {
                None => record.borrow_mut().removed(shown),
                Some(remnant) => record.borrow_mut().orphan(shown, remnant.told(Timestamp::now())),
            }
        }
        Ok(())
    }

    /// Why all of it stays, though Crossplane was ours.
    async fn crossplane_stays(
        &self,
        own: &[Started],
        snapshot: Option<&Snapshot>,
    ) -> Result<Option<String>, ClusterError> {
        let Some(snapshot) = snapshot else {
            let why = "Crossplane made it, and without a snapshot nothing says that it was not there before";
            return Ok(Some(why.to_owned()));
        };
        if let Some(before) = own.iter().find(|started| !snapshot.lacks(started.of, started.name())) {
            return Ok(Some(format!("{} may have been there before the platform, by its snapshot", before.shown())));
        }
        // Two of them would share all of it.
        let workloads = surely(self.cluster, &path::global("apps", "v1", "deployments"), CROSSPLANE_SELECTOR).await?;
        Ok(workloads.first().map(|found| {
            let namespace = found.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
            format!("another Crossplane is there, Deployment/{}/{}", clip(namespace), clip(name_of(found)))
        }))
    }

    /// What of a definition is there that Crossplane did not make itself.
    async fn user_of_started(&self, started: &Started) -> Result<Option<String>, ClusterError> {
        if started.of.1 != DEFINITIONS {
            return Ok(None);
        }
        let instances = self.instances(started.name()).await?;
        Ok(used_by(started.name(), &instances).map(Content::id))
    }
}

#[cfg(test)]
mod tests {
    use forge_core::executor::PvPolicy;
    use forge_core::teardown::inventory::{Noted, Seen};
    use serde_json::json;

    use super::*;
    use crate::cluster::fake::Fake;
    use crate::run::sample;
    use crate::teardown::sample::World;

    const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    const LOCKS: &str = "locks.pkg.crossplane.io";
    const DEPLOYMENTS: &str = "/apis/apps/v1/deployments";

    fn written(name: &str, by: &str) -> Value {
        json!({"metadata": {"name": name, "uid": format!("uid-{name}"), "managedFields": [{"manager": by}]}})
    }

    /// What Crossplane leaves, beside a definition of somebody else.
    fn left() -> Fake {
        let mut fake = Fake::default();
        fake.put(WEBHOOKS, written("crossplane-no-usages", "crossplane"));
        fake.put(WEBHOOKS, written("theirs", "crossplane"));
        let mut definition = written(LOCKS, "crossplane");
        definition["spec"] = json!({
            "group": "pkg.crossplane.io", "names": {"plural": "locks", "kind": "Lock"},
            "versions": [{"name": "v1beta1", "served": true}],
        });
        fake.put(CRDS, definition);
        fake.put(CRDS, written("widgets.example.com", "kubectl-create"));
        fake.put("/apis/pkg.crossplane.io/v1beta1/locks", written("lock", "crossplane"));
        fake
    }

    fn seen(path: &str, names: &[&str]) -> Seen {
        let mut parts = path.split('/').skip(2);
        let (group, resource) = (parts.next().unwrap(), parts.nth(1).unwrap());
        let noted = |name: &&str| Noted(String::new(), (*name).to_owned(), "then".to_owned(), false);
        let objects = names.iter().map(noted).collect();
        Seen { group: group.to_owned(), resource: resource.to_owned(), objects }
    }

    fn snapshot(definitions: &[&str]) -> Snapshot {
        let kinds = vec![seen(WEBHOOKS, &["theirs"]), seen(CRDS, definitions)];
        Snapshot { taken: Timestamp::UNIX_EPOCH, kinds, gaps: Vec::new() }
    }

    /// What was written, and what is recorded, with this snapshot.
    async fn undefined(fake: Fake, snapshot: Option<&Snapshot>) -> (Vec<String>, RemovalRecord) {
        let world = World::new(fake, PvPolicy::Retain).await;
        let teardown = world.teardown(3600);
        let record = RefCell::new(RemovalRecord::new("retain"));
        let own = teardown.of_crossplane().await.unwrap();
        teardown.without_crossplane(&own, snapshot, &record).await.unwrap();
        (world.writes(), record.into_inner())
    }

    #[tokio::test]
    async fn what_crossplane_made_when_it_started_goes_and_nothing_else() {
        let (writes, record) = undefined(left(), Some(&snapshot(&["widgets.example.com"]))).await;
        assert_eq!(writes, [format!("DELETE {WEBHOOKS}/crossplane-no-usages"), format!("DELETE {CRDS}/{LOCKS}")]);
        let gone = ["ValidatingWebhookConfiguration/crossplane-no-usages".to_owned(), definition()];
        assert_eq!((record.removed.as_slice(), record.orphans.len()), (gone.as_slice(), 0));
    }

    fn definition() -> String {
        format!("CustomResourceDefinition/{LOCKS}")
    }

    #[tokio::test]
    async fn a_definition_of_crossplane_that_somebody_uses_is_left_and_said_to_be() {
        let mut fake = left();
        fake.put("/apis/pkg.crossplane.io/v1beta1/locks", written("theirs", "kubectl-create"));
        let (writes, record) = undefined(fake, Some(&snapshot(&[]))).await;
        assert_eq!(writes, [format!("DELETE {WEBHOOKS}/crossplane-no-usages")]);
        assert_eq!(record.orphans[0].object, definition());
        assert_eq!(record.orphans[0].why, "Lock/theirs is of it");
    }

    #[tokio::test]
    async fn what_was_there_before_may_have_been_or_another_crossplane_shares_stays() {
        let mut shared = left();
        shared.put(DEPLOYMENTS, written("crossplane", "helm"));
        let (before, empty) = (snapshot(&[LOCKS]), snapshot(&[]));
        let unlisted = Snapshot { kinds: vec![seen(WEBHOOKS, &[])], ..snapshot(&[]) };
        for (fake, snapshot, why) in [
            (left(), None, "without a snapshot"),
            (left(), Some(&before), "before the platform"),
            (left(), Some(&unlisted), "before the platform"),
            (shared, Some(&empty), "another Crossplane is there"),
        ] {
            let (writes, record) = undefined(fake, snapshot).await;
            assert_eq!((writes.len(), record.removed.len(), record.orphans.len()), (0, 0, 0), "{record:?}");
            assert!(record.kept.len() == 2 && record.kept.iter().all(|kept| kept.why.contains(why)), "{record:?}");
        }
    }

    #[tokio::test]
    async fn only_after_a_crossplane_that_was_a_node_anything_of_it_is_even_looked_at() {
        let removal = |here: bool| serde_json::from_value(json!({"uid": "1", "here": here})).unwrap();
        let world = World::new(left(), PvPolicy::Retain).await;
        let teardown = world.teardown(3600);
        let record = RefCell::new(RemovalRecord::new("retain"));
        for plan in [sample::teardown("db", removal(true)), sample::teardown("crossplane", removal(false))] {
            teardown.undefine_crossplane(Some(&plan), &record).await.unwrap();
            assert_eq!(*record.borrow(), RemovalRecord::new("retain"));
        }
        // It was one, and there is no snapshot.
        let plan = sample::teardown("crossplane", removal(true));
        teardown.undefine_crossplane(Some(&plan), &record).await.unwrap();
        assert_eq!(record.borrow().kept.len(), 2);
        assert_eq!(world.writes(), Vec::<String>::new());
    }

    /// What a teardown keeps, without a snapshot, that begins when no node is left.
    async fn kept_without_a_node(more: &[(&str, Value)]) -> usize {
        let mut fake = left();
        more.iter().for_each(|(collection, object)| fake.put(collection, object.clone()));
        let world = World::new(fake, PvPolicy::Retain).await;
        let record = RefCell::new(RemovalRecord::new("retain"));
        world.teardown(3600).leftovers(&record).await.unwrap();
        record.into_inner().kept.len()
    }

    #[tokio::test]
    async fn whoever_begins_again_when_no_node_is_left_sees_to_it_where_crossplane_was_ours_and_is_gone() {
        let receipt = |names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            ("/api/v1/namespaces/argocd/configmaps", root::receipt("argocd", &names))
        };
        let ours = || receipt(&["ApplicationSet environments", "Application crossplane"]);
        assert_eq!(kept_without_a_node(&[ours()]).await, 2);
        // It never was ours, it is there, another environment has it too.
        assert_eq!(kept_without_a_node(&[receipt(&["ApplicationSet environments"])]).await, 0);
        let application =
            ("/apis/argoproj.io/v1alpha1/namespaces/argocd/applications", written("crossplane", "argocd"));
        assert_eq!(kept_without_a_node(&[ours(), application]).await, 0);
        let other = ("/api/v1/configmaps", written("forge-bootstrap-staging", "forge"));
        assert_eq!(kept_without_a_node(&[ours(), other]).await, 0);
    }
}
