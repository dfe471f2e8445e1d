//! What becomes of volumes, before the first node goes (SPEC.md section 5): every bound volume of the environment is set to
//! outlive its claim and read back, or copied, or given up. Found from both sides, by volume and by claim, because one list that
//! came back short would be somebody's data (INV-10). That a node has something in a namespace does not make the volumes there
//! the environment's, and a claim that says that somebody else made it, or whose owner does, is his (INV-11).

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forge_core::code::Code;
use forge_core::executor::PvPolicy;
use forge_core::failure::Failure;
use forge_core::name::clip;
use forge_core::run::{RunNode, RunPlan};
use forge_core::teardown::{
    Claimants, PROTECTED, Removal, RemovalRecord, RetainedVolume, Snapshot, Volume, bound, is_retained, restored,
    retained, snapshot_content_retained, snapshots,
};
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use super::look::out_of_reach;
use super::owners::{Owners, Whose};
use super::{PATIENCE, Teardown, name_of, surely};
use crate::cluster::path;
use crate::failpoint;

const SNAPSHOTS: &str = "snapshot.storage.k8s.io";
/// Between two looks at a copy that is being made.
const PAUSE: Duration = Duration::from_secs(1);
/// How often volumes are looked at of which nobody can tell whose they are, and how long is waited in between.
const LOOKS: u32 = 3;
const LOOK_AGAIN: Duration = Duration::from_secs(1);
const VOLUMES: &str = "/api/v1/persistentvolumes";
/// How the record begins the name of one.
const VOLUME: &str = "PersistentVolume/";

fn refused(why: &[String]) -> Failure {
    let message = format!("{}; no node was removed", why.join("; "));
    Failure::new(Code::VolumesUnsecured, message).hint(
        "secure what is named by hand, choose another --pv-policy, or give the volumes up with --pv-policy delete",
    )
}

/// A volume that stays, as the record has it.
fn told(volume: &Volume, snapshot: Option<String>) -> RetainedVolume {
    RetainedVolume {
        volume: volume.name.clone(),
        claim: volume.claimed(),
        before: volume.before.clone().or_else(|| (!volume.is_retained()).then(|| volume.policy.clone())),
        snapshot,
    }
}

/// A volume, as the record names an object.
fn named(volume: &str) -> String {
    format!("{VOLUME}{}", clip(volume))
}

/// That nobody can tell whose a volume is.
fn undecided(volume: &Volume, why: &str) -> String {
    format!("whose claim {} of volume {} is cannot be told: {why}", clip(&volume.claimed()), clip(&volume.name))
}

/// Writes down volumes that stay, each once.
fn tell(volumes: Vec<RetainedVolume>, record: &RefCell<RemovalRecord>) {
    let mut record = record.borrow_mut();
    for volume in volumes {
        // Whose it is was not known before.
        record.kept.retain(|kept| kept.object != named(&volume.volume));
        if !record.retained.iter().any(|known| known.volume == volume.volume) {
            record.retained.push(volume);
        }
    }
}

/// Where volumes are the environment's.
struct Reach {
    /// Namespaces of the environment that go: every volume.
    going: BTreeSet<String>,
    /// Other namespaces that nodes deploy to: every volume but somebody else's.
    shared: BTreeSet<String>,
    own: Claimants,
}

impl Reach {
    fn namespaces(&self) -> BTreeSet<String> {
        self.going.union(&self.shared).cloned().collect()
    }
}

impl Teardown<'_> {
    /// Does with volumes what was decided. Without a plan, where no node is left, it is about the environment's own namespaces.
    pub(super) async fn secure_volumes(
        &self,
        plan: Option<&RunPlan>,
        record: &RefCell<RemovalRecord>,
    ) -> Result<(), Failure> {
        let policy = self.options.policy;
        let elsewhere = plan.map(out_of_reach).unwrap_or_default();
        if policy != PvPolicy::Delete && !elsewhere.is_empty() {
            let claims: Vec<String> =
                elsewhere.iter().map(|claim| format!("{} is in another cluster", clip(claim))).collect();
            return Err(refused(&claims));
        }
        let volumes = self.volumes(plan).await?;
        let copies = match policy {
            PvPolicy::Retain => {
                self.retain(&volumes).await?;
                BTreeMap::new()
            }
            PvPolicy::Delete => {
                self.restore(&volumes).await?;
                BTreeMap::new()
            }
            PvPolicy::Snapshot => {
                let run = plan.map(|plan| plan.run.to_string());
                let run = run.unwrap_or_else(|| format!("rest-{}", Timestamp::now().as_second()));
                let copies = self.copy(&volumes, &run).await?;
                self.restore(&volumes).await?;
                copies
            }
        };
        let stays = |volume: &&Volume| {
            policy == PvPolicy::Retain
                || copies.contains_key(&volume.name)
                || (restored(volume).is_none() && volume.is_retained())
        };
        let told: Vec<RetainedVolume> =
            volumes.iter().filter(stays).map(|volume| told(volume, copies.get(&volume.name).cloned())).collect();
        tell(told, record);
        Ok(())
    }

    /// While nodes go: what was bound since volumes were looked at stays too, unless they are to go. What one list lacks the next
    /// one has. One of which nobody can tell whose it is is left as it is, and looked at again.
    pub(super) async fn secure_new_volumes(
        &self,
        plan: &RunPlan,
        record: &RefCell<RemovalRecord>,
    ) -> Result<(), Failure> {
        if self.options.policy == PvPolicy::Delete {
            return Ok(());
        }
        let reach = self.reach(Some(plan)).await?;
        let all = self.cluster.list(VOLUMES, "").await?;
        let known: BTreeSet<String> = record.borrow().retained.iter().map(|known| known.volume.clone()).collect();
        let (mut new, mut unknown, mut owners) = (Vec::new(), Vec::new(), Owners::default());
        for volume in bound(&all, &reach.namespaces()).into_iter().filter(|volume| !known.contains(&volume.name)) {
            let claim = path::object(&path::core(&volume.namespace, "persistentvolumeclaims"), &volume.claim);
            let shared = reach.shared.contains(&volume.namespace);
            let claim = if shared { self.cluster.get(&claim).await? } else { None };
            let whose = match claim {
                Some(claim) => self.whose(&reach.own, &claim, &mut owners).await?,
                None => Whose::Own,
            };
            match whose {
                Whose::Own => new.push(volume),
                Whose::Unknown(why) if !volume.is_retained() => unknown.push((volume, why)),
                Whose::Theirs | Whose::Unknown(_) => {}
            }
        }
        self.retain(&new).await?;
        tell(new.iter().map(|volume| told(volume, None)).collect(), record);
        let mut record = record.borrow_mut();
        // What was not known before may be known now, or be gone.
        record.kept.retain(|kept| !kept.object.starts_with(VOLUME));
        for (volume, why) in &unknown {
            record.kept(named(&volume.name), undecided(volume, why));
        }
        Ok(())
    }

    /// Where volumes are the environment's: in namespaces that carry its label and go, or may, all of them, because they would go with
    /// whatever is in them; in those that nodes deploy to in this cluster, all but somebody else's. Never the cluster's own or
    /// Argo's.
    async fn reach(&self, plan: Option<&RunPlan>) -> Result<Reach, Failure> {
        let nodes = plan.into_iter().flat_map(RunPlan::nodes);
        let here: Vec<(&RunNode, &Removal)> =
            nodes.filter_map(|node| Some((node, node.removal.as_ref().filter(|removal| removal.here)?))).collect();
        let of_nodes: BTreeSet<&str> =
            here.iter().flat_map(|(_, removal)| &removal.namespaces).map(String::as_str).collect();
        let labelled = self.own_namespaces().await?;
        let labelled = labelled.iter().map(|found| name_of(found).to_owned());
        let foreign = [self.places.argocd.as_str(), self.places.workflows.as_str()];
        let meant = |name: &String| !PROTECTED.contains(&name.as_str()) && !foreign.contains(&name.as_str());
        let going = |name: &String| self.environment.whole || of_nodes.contains(name.as_str());
        let going: BTreeSet<String> = labelled.filter(going).filter(meant).collect();
        let destinations = here.iter().map(|(_, removal)| removal.destination.clone());
        let shared = destinations.filter(|name| !name.is_empty() && !going.contains(name)).filter(meant).collect();
        let tracked = |(node, _): &(&RunNode, &Removal)| {
            let (namespace, name) = (node.application.namespace.as_str(), node.application.name());
            if namespace == self.places.argocd { name.to_owned() } else { format!("{namespace}_{name}") }
        };
        let uids = here.iter().flat_map(|(_, removal)| &removal.members).filter_map(|member| member.uid.clone());
        let own = Claimants { applications: here.iter().map(tracked).collect(), members: uids.collect() };
        Ok(Reach { going, shared, own })
    }

    /// Every bound volume of the environment. Refused where nobody can tell whose one is and it would go with its claim, also
    /// when it is looked at again: the owner of a claim goes a moment before it.
    async fn volumes(&self, plan: Option<&RunPlan>) -> Result<Vec<Volume>, Failure> {
        for _ in 1..LOOKS {
            let (volumes, open) = self.volumes_now(plan).await?;
            if open.is_empty() {
                return Ok(volumes);
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        let (volumes, open) = self.volumes_now(plan).await?;
        if open.is_empty() { Ok(volumes) } else { Err(refused(&open)) }
    }

    /// Those whose claims are in its namespaces, and those of claims that its nodes have elsewhere; and why not all are known.
    async fn volumes_now(&self, plan: Option<&RunPlan>) -> Result<(Vec<Volume>, Vec<String>), Failure> {
        let reach = self.reach(plan).await?;
        let all = surely(self.cluster, VOLUMES, "").await?;
        let (mut claims, mut others): (Vec<Value>, BTreeMap<String, Whose>) = (Vec::new(), BTreeMap::new());
        let mut owners = Owners::default();
        for namespace in &reach.namespaces() {
            for claim in surely(self.cluster, &path::core(namespace, "persistentvolumeclaims"), "").await? {
                let shared = reach.shared.contains(namespace);
                let whose = if shared { self.whose(&reach.own, &claim, &mut owners).await? } else { Whose::Own };
                if whose == Whose::Own {
                    claims.push(claim);
                } else {
                    others.insert(format!("{namespace}/{}", name_of(&claim)), whose);
                }
            }
        }
        let bound = bound(&all, &reach.namespaces());
        let open = |volume: &Volume| match others.get(&volume.claimed()) {
            Some(Whose::Unknown(why)) if !volume.is_retained() => Some(undecided(volume, why)),
            _ => None,
        };
        let is_kept = self.options.policy != PvPolicy::Delete;
        let open: Vec<String> = bound.iter().filter_map(open).filter(|_| is_kept).collect();
        let own = bound.into_iter().filter(|volume| !others.contains_key(&volume.claimed()));
        let mut found: BTreeMap<String, Volume> = own.map(|volume| (volume.name.clone(), volume)).collect();
        let nodes = plan.into_iter().flat_map(RunPlan::nodes);
        let members = nodes.filter_map(|node| node.removal.as_ref()).filter(|removal| removal.here);
        let members = members.flat_map(|removal| &removal.members);
        for member in members.filter(|member| member.group.is_empty() && member.kind == "PersistentVolumeClaim") {
            let claim = path::object(&path::core(&member.namespace, "persistentvolumeclaims"), &member.name);
            claims.extend(self.cluster.get(&claim).await?);
        }
        for claim in &claims {
            let Some(name) = claim.pointer("/spec/volumeName").and_then(Value::as_str).filter(|name| !name.is_empty())
            else {
                continue;
            };
            if !found.contains_key(name) {
                let volume = self.cluster.get(&path::object(VOLUMES, name)).await?;
                let volume = volume.as_ref().and_then(Volume::read).filter(|volume| volume.bound);
                found.extend(volume.map(|volume| (volume.name.clone(), volume)));
            }
        }
        Ok((found.into_values().collect(), open))
    }

    /// Every volume outlives its claim, and is read back.
    async fn retain(&self, volumes: &[Volume]) -> Result<(), Failure> {
        for volume in volumes {
            let object = path::object(VOLUMES, &volume.name);
            if let Some(patch) = retained(volume) {
                failpoint::write(&format!("PersistentVolume {} is retained", volume.name));
                match self.cluster.merge(&object, &patch).await {
                    // It went meanwhile, as the read below finds too.
                    Err(error) if !error.is_missing() => return Err(error.into()),
                    _ => {}
                }
            }
        }
        let mut open = Vec::new();
        for volume in volumes {
            let object = path::object(VOLUMES, &volume.name);
            let live = self.cluster.get(&object).await?;
            if live.as_ref().is_some_and(|live| !is_retained(live)) {
                open.push(format!("volume {} does not stay Retain", clip(&volume.name)));
            }
        }
        if open.is_empty() { Ok(()) } else { Err(refused(&open)) }
    }

    /// What an earlier teardown made outlive its claim gets its own policy back.
    async fn restore(&self, volumes: &[Volume]) -> Result<(), Failure> {
        for volume in volumes {
            if let Some(patch) = restored(volume) {
                failpoint::write(&format!("PersistentVolume {} gets its policy back", volume.name));
                self.cluster.merge(&path::object(VOLUMES, &volume.name), &patch).await?;
            }
        }
        Ok(())
    }

    /// Copies every volume, and makes the copies outlive the namespaces that they are asked for in. Gives them by volume.
    async fn copy(&self, volumes: &[Volume], run: &str) -> Result<BTreeMap<String, String>, Failure> {
        if volumes.is_empty() {
            return Ok(BTreeMap::new());
        }
        let classes = path::global(SNAPSHOTS, "v1", "volumesnapshotclasses");
        let classes = match surely(self.cluster, &classes, "").await {
            Err(error) if error.is_missing() => Vec::new(),
            other => other?,
        };
        let name = self.environment.name.as_str();
        let wanted = snapshots(volumes, &classes, (name, run)).map_err(|why| refused(&why))?;
        for snapshot in &wanted {
            let collection = path::named(SNAPSHOTS, "v1", &snapshot.namespace, "volumesnapshots");
            failpoint::write(&format!("VolumeSnapshot {}", snapshot.name));
            match self.cluster.create(&collection, &snapshot.object).await {
                Err(error) if !error.is_conflict() => return Err(error.into()),
                _ => {}
            }
        }
        let mut copies = BTreeMap::new();
        // The next run makes its own copies: what takes its time has it in this one.
        let end = Instant::now() + self.within(PATIENCE.max(self.left() / 2));
        for (snapshot, volume) in wanted.iter().zip(volumes) {
            let content = self.ready(snapshot, end).await?;
            let object = path::object(&path::global(SNAPSHOTS, "v1", "volumesnapshotcontents"), &content);
            if let Some(patch) = self.cluster.get(&object).await?.as_ref().and_then(snapshot_content_retained) {
                failpoint::write(&format!("VolumeSnapshotContent {content} is retained"));
                self.cluster.merge(&object, &patch).await?;
            }
            let back = self.cluster.get(&object).await?;
            if back.as_ref().is_none_or(|back| snapshot_content_retained(back).is_some()) {
                return Err(refused(&[format!("copy {} does not stay Retain", clip(&content))]));
            }
            copies.insert(volume.name.clone(), content);
        }
        Ok(copies)
    }

    /// Waits until a copy can be used; gives its content.
    async fn ready(&self, snapshot: &Snapshot, end: Instant) -> Result<String, Failure> {
        let Snapshot { namespace, name, claim, .. } = snapshot;
        let object = path::object(&path::named(SNAPSHOTS, "v1", namespace, "volumesnapshots"), name);
        loop {
            let live = self.cluster.get(&object).await?.unwrap_or_default();
            let ready = live.pointer("/status/readyToUse").and_then(Value::as_bool) == Some(true);
            let content = live.pointer("/status/boundVolumeSnapshotContentName").and_then(Value::as_str);
            if let (true, Some(content)) = (ready, content) {
                return Ok(content.to_owned());
            }
            let error = live.pointer("/status/error/message").and_then(Value::as_str);
            if Instant::now() >= end {
                let why = error.map_or_else(|| "it is not ready".to_owned(), clip);
                return Err(refused(&[format!("the copy of {}/{} was not made: {why}", clip(namespace), clip(claim))]));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use forge_core::render::{ENVIRONMENT_LABEL, MANAGED_BY};
    use serde_json::json;

    use super::*;
    use crate::cluster::fake::Fake;
    use crate::run::sample;
    use crate::teardown::sample::World;

    /// A volume that is bound, and its claim, which says this of itself.
    fn bind(fake: &mut Fake, (namespace, claim): (&str, &str), marks: Value) {
        let volume = format!("pv-{namespace}-{claim}");
        let spec = json!({
            "persistentVolumeReclaimPolicy": "Delete", "claimRef": {"namespace": namespace, "name": claim},
        });
        let metadata = json!({"name": volume, "uid": volume});
        fake.put(VOLUMES, json!({"metadata": metadata, "spec": spec, "status": {"phase": "Bound"}}));
        let mut metadata = marks;
        metadata["name"] = json!(claim);
        metadata["uid"] = json!(format!("{namespace}/{claim}"));
        let claims = path::core(namespace, "persistentvolumeclaims");
        fake.put(&claims, json!({"metadata": metadata, "spec": {"volumeName": volume}}));
    }

    fn cluster() -> Fake {
        let mut fake = Fake::default();
        let labels = json!({MANAGED_BY: "forge", ENVIRONMENT_LABEL: "dev"});
        fake.put("/api/v1/namespaces", json!({"metadata": {"name": "shop", "uid": "n", "labels": labels}}));
        fake.put("/api/v1/namespaces", json!({"metadata": {"name": "data", "uid": "d"}}));
        let theirs = || json!({"annotations": {"argocd.argoproj.io/tracking-id": "theirs:/x:x/theirs"}});
        // It goes with whatever is in it.
        bind(&mut fake, ("shop", "theirs"), theirs());
        // The node deploys to it, and it is not the environment's.
        bind(&mut fake, ("data", "pgdata-main-0"), json!({}));
        bind(&mut fake, ("data", "theirs"), theirs());
        // The node has a monitor there, and a claim.
        bind(&mut fake, ("monitoring", "prometheus-0"), json!({}));
        bind(&mut fake, ("monitoring", "own"), json!({}));
        fake
    }

    fn plan() -> RunPlan {
        let claim = json!({"version": "v1", "kind": "PersistentVolumeClaim", "namespace": "monitoring", "name": "own"});
        let removal = json!({
            "uid": "1", "here": true, "destination": "data", "namespaces": ["data", "monitoring"], "members": [claim],
        });
        sample::teardown("db", serde_json::from_value(removal).unwrap())
    }

    fn changed(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| format!("PATCH {VOLUMES}/{name}")).collect()
    }

    #[tokio::test]
    async fn volumes_of_the_environment_are_retained_and_nobody_elses_is_changed() {
        let world = World::new(cluster(), PvPolicy::Retain).await;
        let record = RefCell::new(RemovalRecord::new("retain"));
        world.teardown(3600).secure_volumes(Some(&plan()), &record).await.unwrap();
        assert_eq!(world.writes(), changed(&["pv-data-pgdata-main-0", "pv-monitoring-own", "pv-shop-theirs"]));
        let told: Vec<String> = record.borrow().retained.iter().map(|volume| volume.claim.clone()).collect();
        assert_eq!(told, ["data/pgdata-main-0", "monitoring/own", "shop/theirs"]);
    }

    #[tokio::test]
    async fn what_is_bound_while_nodes_go_is_retained_unless_it_is_somebody_elses() {
        let world = World::new(cluster(), PvPolicy::Retain).await;
        let record = RefCell::new(RemovalRecord::new("retain"));
        let teardown = world.teardown(3600);
        teardown.secure_volumes(Some(&plan()), &record).await.unwrap();
        let before = world.writes().len();
        {
            let mut fake = world.fake.lock().unwrap();
            bind(&mut fake, ("data", "late"), json!({}));
            let helm = json!({"meta.helm.sh/release-name": "x", "meta.helm.sh/release-namespace": "y"});
            bind(&mut fake, ("data", "late-theirs"), json!({"annotations": helm}));
        }
        teardown.secure_new_volumes(&plan(), &record).await.unwrap();
        assert_eq!(world.writes()[before..], changed(&["pv-data-late"]));
    }

    #[tokio::test]
    async fn without_a_node_volumes_are_those_of_the_environments_own_namespaces() {
        let world = World::new(cluster(), PvPolicy::Retain).await;
        let record = RefCell::new(RemovalRecord::new("retain"));
        world.teardown(3600).secure_volumes(None, &record).await.unwrap();
        assert_eq!(world.writes(), changed(&["pv-shop-theirs"]));
    }

    /// A StatefulSet that came after the plan was made, and what it belongs to.
    fn made_later(fake: &mut Fake, name: &str, marks: Value) {
        let served = |name: &str, kind: &str| json!({"name": name, "kind": kind, "namespaced": true});
        for (group, resource) in
            [("apps/v1", served("statefulsets", "StatefulSet")), ("db.example.com/v1", served("clusters", "Cluster"))]
        {
            fake.objects.insert(format!("/apis/{group}"), json!({"resources": [resource]}));
        }
        let mut metadata = marks;
        metadata["name"] = json!(name);
        metadata["uid"] = json!(name);
        let (_, plural) = name.split_once('-').unwrap();
        let group = if plural == "clusters" { "db.example.com" } else { "apps" };
        fake.put(&path::named(group, "v1", "data", plural), json!({"metadata": metadata}));
    }

    fn owned(kind: &str, by: &str) -> Value {
        let group = if kind == "Cluster" { "db.example.com" } else { "apps" };
        let owner = json!({"apiVersion": format!("{group}/v1"), "kind": kind, "name": by, "uid": by});
        json!({"ownerReferences": [owner]})
    }

    /// Claims of StatefulSets of which no plan knows.
    fn operated() -> Fake {
        let mut fake = cluster();
        for (of, by) in [("own", "db"), ("others", "theirs")] {
            let name = format!("{of}-clusters");
            let id = format!("{by}:db.example.com/Cluster:data/{name}");
            made_later(&mut fake, &name, json!({"annotations": {"argocd.argoproj.io/tracking-id": id}}));
            made_later(&mut fake, &format!("{of}-statefulsets"), owned("Cluster", &name));
            bind(&mut fake, ("data", of), owned("StatefulSet", &format!("{of}-statefulsets")));
        }
        made_later(&mut fake, "nobodys-statefulsets", json!({}));
        bind(&mut fake, ("data", "nobodys"), owned("StatefulSet", "nobodys-statefulsets"));
        fake
    }

    #[tokio::test]
    async fn a_claim_whose_owner_came_after_the_plan_is_whose_the_owner_is() {
        let world = World::new(operated(), PvPolicy::Retain).await;
        let record = RefCell::new(RemovalRecord::new("retain"));
        world.teardown(3600).secure_volumes(Some(&plan()), &record).await.unwrap();
        let own = ["pv-data-own", "pv-data-pgdata-main-0", "pv-monitoring-own", "pv-shop-theirs"];
        assert_eq!(world.writes(), changed(&own));
    }

    #[tokio::test]
    async fn a_claim_of_which_nobody_can_tell_whose_it_is_stops_a_teardown_before_it_begins_unless_it_stays() {
        let lost = || {
            let mut fake = operated();
            bind(&mut fake, ("data", "lost"), owned("StatefulSet", "gone-statefulsets"));
            fake
        };
        let record = RefCell::new(RemovalRecord::new("retain"));
        let world = World::new(lost(), PvPolicy::Retain).await;
        let failure = world.teardown(3600).secure_volumes(Some(&plan()), &record).await.unwrap_err();
        assert_eq!((failure.code, world.writes().len()), (Code::VolumesUnsecured, 0));
        let why = "whose claim data/lost of volume pv-data-lost is cannot be told: StatefulSet/data/gone-statefulsets is not there";
        assert!(failure.message.contains(why), "{}", failure.message);
        // It outlives its claim, whosever that is.
        let mut fake = lost();
        fake.objects.get_mut(&format!("{VOLUMES}/pv-data-lost")).unwrap()["spec"]["persistentVolumeReclaimPolicy"] =
            json!("Retain");
        let world = World::new(fake, PvPolicy::Retain).await;
        world.teardown(3600).secure_volumes(Some(&plan()), &record).await.unwrap();
        assert_eq!(world.writes().len(), 4);
    }

    #[tokio::test]
    async fn an_owner_that_cannot_be_read_is_not_known_and_one_that_goes_before_its_claim_is_looked_at_again() {
        let mut fake = operated();
        bind(&mut fake, ("data", "converted"), owned("StatefulSet", "own-statefulsets"));
        let cluster = path::object(&path::named("db.example.com", "v1", "data", "clusters"), "own-clusters");
        fake.refused.insert(cluster, 500);
        let world = World::new(fake, PvPolicy::Retain).await;
        let record = RefCell::new(RemovalRecord::new("retain"));
        let teardown = world.teardown(3600);
        let failure = teardown.secure_volumes(Some(&plan()), &record).await.unwrap_err();
        assert_eq!((failure.code, world.writes().len()), (Code::VolumesUnsecured, 0));
        assert!(failure.message.contains("Cluster/data/own-clusters could not be read"), "{}", failure.message);
        // A pod has gone, and soon its claim is too.
        let mut fake = operated();
        bind(&mut fake, ("data", "passing"), owned("StatefulSet", "gone-statefulsets"));
        let world = World::new(fake, PvPolicy::Retain).await;
        let (_, open) = world.teardown(3600).volumes_now(Some(&plan())).await.unwrap();
        assert_eq!(open.len(), 1);
        let collected = async {
            tokio::time::sleep(LOOK_AGAIN / 2).await;
            let mut fake = world.fake.lock().unwrap();
            fake.objects.retain(|path, _| !path.ends_with("/passing") && !path.ends_with("/pv-data-passing"));
        };
        let (teardown, plan) = (world.teardown(3600), plan());
        let (volumes, ()) = tokio::join!(teardown.volumes(Some(&plan)), collected);
        assert_eq!(volumes.unwrap().len(), 4);
    }

    #[tokio::test]
    async fn while_nodes_go_a_volume_of_nobody_knows_whom_is_told_and_retained_once_it_is_known() {
        let world = World::new(operated(), PvPolicy::Retain).await;
        let record = RefCell::new(RemovalRecord::new("retain"));
        let teardown = world.teardown(3600);
        teardown.secure_volumes(Some(&plan()), &record).await.unwrap();
        let before = world.writes().len();
        bind(&mut world.fake.lock().unwrap(), ("data", "late"), owned("StatefulSet", "late-statefulsets"));
        teardown.secure_new_volumes(&plan(), &record).await.unwrap();
        assert_eq!((world.writes().len(), record.borrow().kept.len()), (before, 1));
        assert_eq!(record.borrow().kept[0].object, "PersistentVolume/pv-data-late");
        made_later(&mut world.fake.lock().unwrap(), "late-statefulsets", owned("Cluster", "own-clusters"));
        teardown.secure_new_volumes(&plan(), &record).await.unwrap();
        assert_eq!(world.writes()[before..], changed(&["pv-data-late"]));
        assert_eq!(record.borrow().kept.len(), 0);
    }

    #[tokio::test]
    async fn owners_that_go_round_are_somebody_elses_and_those_without_end_are_not_known() {
        let mut fake = operated();
        made_later(&mut fake, "a-statefulsets", owned("StatefulSet", "b-statefulsets"));
        made_later(&mut fake, "b-statefulsets", owned("StatefulSet", "a-statefulsets"));
        for n in 0..10 {
            made_later(
                &mut fake,
                &format!("{n}-statefulsets"),
                owned("StatefulSet", &format!("{}-statefulsets", n + 1)),
            );
        }
        let world = World::new(fake, PvPolicy::Retain).await;
        let (teardown, mut owners) = (world.teardown(3600), Owners::default());
        let own = Claimants::default();
        let claim = |by: &str| {
            let mut metadata = owned("StatefulSet", by);
            metadata["name"] = json!("x");
            metadata["namespace"] = json!("data");
            metadata["uid"] = json!("x");
            json!({"metadata": metadata})
        };
        assert_eq!(teardown.whose(&own, &claim("a-statefulsets"), &mut owners).await.unwrap(), Whose::Theirs);
        let endless = teardown.whose(&own, &claim("0-statefulsets"), &mut owners).await.unwrap();
        assert!(matches!(&endless, Whose::Unknown(why) if why.contains("more than 8 times")), "{endless:?}");
    }
}
