//! What becomes of volumes (SPEC.md section 5, `PV_POLICY`): which are an environment's, and what is written before anything is
//! deleted. What we change we mark, so that whoever decides otherwise later can put it back.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::Member;
use super::inventory::Item;
use crate::digest::Digest;
use crate::name::clip;
use crate::preflight::{items, text};
use crate::render::{ENVIRONMENT_LABEL, MANAGED_BY};
use crate::view::shown;

/// The annotation of a volume that says what its reclaim policy was before we changed it.
pub const RECLAIM_ANNOTATION: &str = "forge.projectcatalyst.io/reclaim-policy";
/// Where Kubernetes notes who made a volume.
const PROVISIONER: &str = "pv.kubernetes.io/provisioned-by";

/// A volume that a claim has, or had.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Volume {
    /// Its name.
    pub name: String,
    /// The namespace of its claim.
    pub namespace: String,
    /// The claim.
    pub claim: String,
    /// Its claim has it.
    pub bound: bool,
    /// Its claim is gone.
    pub released: bool,
    /// What becomes of it when its claim goes.
    pub policy: String,
    /// What that was before we changed it.
    pub before: Option<String>,
    /// The CSI driver that made it.
    pub driver: Option<String>,
    /// Who makes and removes it: that driver, or whoever else says so; empty where nobody does.
    pub provisioner: String,
    /// How large it is.
    pub size: String,
}

impl Volume {
    /// Reads a PersistentVolume; nothing where no claim ever had it.
    pub fn read(volume: &Value) -> Option<Self> {
        let text = |pointer: &str| volume.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
        let noted = |key: &str| volume.pointer("/metadata/annotations")?.get(key)?.as_str();
        let phase = text("/status/phase");
        let driver = text("/spec/csi/driver");
        Some(Self {
            name: text("/metadata/name")?.to_owned(),
            namespace: text("/spec/claimRef/namespace")?.to_owned(),
            claim: text("/spec/claimRef/name")?.to_owned(),
            bound: phase == Some("Bound"),
            released: matches!(phase, Some("Released" | "Failed")),
            // So it says where nothing is said.
            policy: text("/spec/persistentVolumeReclaimPolicy").unwrap_or("Retain").to_owned(),
            before: noted(RECLAIM_ANNOTATION).map(clip),
            driver: driver.map(str::to_owned),
            provisioner: driver.or_else(|| noted(PROVISIONER)).unwrap_or_default().to_owned(),
            size: text("/spec/capacity/storage").map(shown).unwrap_or_default(),
        })
    }

    /// It outlives its claim.
    pub fn is_retained(&self) -> bool {
        self.policy == "Retain"
    }

    /// The claim, `namespace/name`.
    pub fn claimed(&self) -> String {
        format!("{}/{}", self.namespace, self.claim)
    }
}

/// The volumes of these that are bound to claims of these namespaces.
pub fn bound(volumes: &[Value], namespaces: &BTreeSet<String>) -> Vec<Volume> {
    let meant = |volume: &Volume| volume.bound && namespaces.contains(&volume.namespace);
    let mut found: Vec<Volume> = volumes.iter().filter_map(Volume::read).filter(meant).collect();
    found.sort();
    found
}

/// What tells a claim of nodes that go from one of somebody else, in a namespace where both may have some.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claimants {
    /// The Applications of the nodes, as Argo CD writes them on what they manage.
    pub applications: BTreeSet<String>,
    /// Identities of what the nodes have made.
    pub members: BTreeSet<String>,
}

/// Whose a claim is, as far as one object says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    /// A node's.
    Own,
    /// Somebody else's.
    Theirs,
    /// It belongs to these and says no more: it is whose they are.
    Of(Vec<Member>),
}

impl Claimants {
    /// Whose a claim is by its own word: somebody else's where another Application manages it or a Helm release brought it. One
    /// that says nothing, as operators and StatefulSets make them, is taken for a node's: its data would be lost otherwise, and
    /// somebody else's would only be kept.
    pub fn of_claim(&self, claim: &Value) -> Word {
        self.word(claim).unwrap_or(Word::Own)
    }

    /// Whose something that a claim belongs to is by its own word. What says nothing was not made by a node: Argo CD marks what it
    /// makes.
    pub fn of_owner(&self, owner: &Value) -> Word {
        self.word(owner).unwrap_or(Word::Theirs)
    }

    fn word(&self, object: &Value) -> Option<Word> {
        let item = Item::read(object)?;
        let mut known = item.parents.iter().map(|parent| &parent.uid).chain([&item.uid]);
        if item.forge || known.any(|uid| self.members.contains(uid)) {
            return Some(Word::Own);
        }
        match &item.tracked {
            Some(application) if self.applications.contains(application) => Some(Word::Own),
            Some(_) => Some(Word::Theirs),
            None if item.release.is_some() => Some(Word::Theirs),
            None if item.parents.is_empty() => None,
            None => Some(Word::Of(owners(object, &item.namespace))),
        }
    }
}

/// What an object belongs to: in its namespace, or in none.
fn owners(object: &Value, namespace: &str) -> Vec<Member> {
    let owner = |owner: &Value| {
        let api_version = text(owner, "/apiVersion").unwrap_or_default();
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let [group, version, namespace] = [group, version, namespace].map(str::to_owned);
        let [kind, name, uid] = ["/kind", "/name", "/uid"].map(|field| text(owner, field).map(str::to_owned));
        Some(Member { group, version, kind: kind?, namespace, name: name?, uid: Some(uid?) })
    };
    items(object, "/metadata/ownerReferences").filter_map(owner).collect()
}

/// True for a volume that outlives its claim, as it was just read.
pub fn is_retained(volume: &Value) -> bool {
    volume.pointer("/spec/persistentVolumeReclaimPolicy").and_then(Value::as_str) == Some("Retain")
}

/// What makes a volume outlive its claim; nothing where it does already.
pub fn retained(volume: &Volume) -> Option<Value> {
    (!volume.is_retained()).then(|| {
        json!({
            "metadata": {"annotations": {RECLAIM_ANNOTATION: volume.policy}},
            "spec": {"persistentVolumeReclaimPolicy": "Retain"},
        })
    })
}

/// What gives a volume the policy back that it had before we changed it; nothing where we did not.
pub fn restored(volume: &Volume) -> Option<Value> {
    let before = volume.before.as_deref().filter(|before| ["Delete", "Recycle"].contains(before))?;
    Some(json!({
        "metadata": {"annotations": {RECLAIM_ANNOTATION: null}},
        "spec": {"persistentVolumeReclaimPolicy": before},
    }))
}

/// A copy of a volume that is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Its namespace, which is the claim's.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The claim.
    pub claim: String,
    /// The object that asks for it.
    pub object: Value,
}

/// The copies to make of these volumes, with these classes. Names are derived from the volume, its claim and the run: whoever
/// asks again in one run finds those that are there, and no run takes a copy of an earlier one for its own, which would be as
/// old as that.
///
/// # Errors
/// With every volume that cannot be copied, and why: then none is.
pub fn snapshots(
    volumes: &[Volume],
    classes: &[Value],
    (environment, run): (&str, &str),
) -> Result<Vec<Snapshot>, Vec<String>> {
    let (mut wanted, mut refused) = (Vec::new(), Vec::new());
    for volume in volumes {
        let Volume { name, namespace, claim, driver, .. } = volume;
        let Some(driver) = driver else {
            refused.push(format!("volume {} of {}/{} was not made by CSI", clip(name), clip(namespace), clip(claim)));
            continue;
        };
        let Some(class) = class_of(classes, driver) else {
            refused.push(format!(
                "no VolumeSnapshotClass of `{}` for {}/{}",
                clip(driver),
                clip(namespace),
                clip(claim)
            ));
            continue;
        };
        let exactly = Digest::of_json(&json!([run, namespace, claim, name]));
        let snapshot = format!("forge-{}-{}", cut(claim), exactly.short(10));
        let object = json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
            "metadata": {
                "name": snapshot, "namespace": namespace,
                "labels": {MANAGED_BY: "forge", ENVIRONMENT_LABEL: environment},
            },
            "spec": {"volumeSnapshotClassName": class, "source": {"persistentVolumeClaimName": claim}},
        });
        wanted.push(Snapshot { namespace: namespace.clone(), name: snapshot, claim: claim.clone(), object });
    }
    if refused.is_empty() { Ok(wanted) } else { Err(refused) }
}

/// A claim's name in that of its snapshot.
fn cut(claim: &str) -> &str {
    claim.get(..claim.floor_char_boundary(230)).unwrap_or(claim).trim_end_matches('.')
}

/// The class of a driver: the one that is marked as default, else the first by name.
fn class_of(classes: &[Value], driver: &str) -> Option<String> {
    const DEFAULT: &str = "snapshot.storage.kubernetes.io/is-default-class";
    let mut fitting: Vec<(bool, String)> = classes
        .iter()
        .filter(|class| class.get("driver").and_then(Value::as_str) == Some(driver))
        .filter_map(|class| {
            let marks = class.pointer("/metadata/annotations").and_then(|all| all.get(DEFAULT));
            let name = class.pointer("/metadata/name").and_then(Value::as_str)?;
            Some((marks.and_then(Value::as_str) != Some("true"), name.to_owned()))
        })
        .collect();
    fitting.sort();
    fitting.into_iter().next().map(|(_, name)| name)
}

/// What makes the content of a snapshot outlive the namespace that it was asked for in; nothing where it does already.
pub fn snapshot_content_retained(content: &Value) -> Option<Value> {
    let policy = content.pointer("/spec/deletionPolicy").and_then(Value::as_str);
    (policy != Some("Retain")).then(|| json!({"spec": {"deletionPolicy": "Retain"}}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(name: &str, namespace: &str, policy: &str, phase: &str, driver: Option<&str>) -> Value {
        let mut volume = json!({
            "metadata": {"name": name},
            "spec": {"persistentVolumeReclaimPolicy": policy, "claimRef": {"namespace": namespace, "name": "data"}},
            "status": {"phase": phase},
        });
        if let Some(driver) = driver {
            volume["spec"]["csi"] = json!({"driver": driver});
        }
        volume
    }

    #[test]
    fn a_claim_is_somebody_elses_only_where_it_says_so_and_whose_its_owner_is_otherwise() {
        let own = Claimants {
            applications: BTreeSet::from(["db".to_owned(), "apps_db".to_owned()]),
            members: BTreeSet::from(["cluster".to_owned()]),
        };
        let object = |more: Value| {
            let mut metadata = json!({"name": "data-0", "namespace": "shared", "uid": "c"});
            metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({ "metadata": metadata })
        };
        let tracked =
            |by: &str| json!({"annotations": {"argocd.argoproj.io/tracking-id": format!("{by}:/x:shared/data-0")}});
        let owned = |uid: &str| {
            let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "main", "uid": uid});
            json!({"ownerReferences": [owner]})
        };
        let helm = json!({"meta.helm.sh/release-name": "prometheus", "meta.helm.sh/release-namespace": "shared"});
        let ours = json!({"labels": {MANAGED_BY: "forge"}});
        for made in [tracked("db"), tracked("apps_db"), owned("cluster"), json!({"uid": "cluster"}), ours] {
            let made = object(made);
            assert_eq!((own.of_claim(&made), own.of_owner(&made)), (Word::Own, Word::Own), "{made}");
        }
        for other in [tracked("prometheus"), json!({"annotations": helm})] {
            let other = object(other);
            assert_eq!((own.of_claim(&other), own.of_owner(&other)), (Word::Theirs, Word::Theirs), "{other}");
        }
        let Word::Of(owners) = own.of_claim(&object(owned("another"))) else { panic!("its owner has it") };
        assert_eq!((owners[0].to_string().as_str(), owners[0].group.as_str()), ("StatefulSet/shared/main", "apps"));
        assert_eq!((owners.len(), owners[0].uid.as_deref()), (1, Some("another")));
        // Nothing is said.
        for nothing in [object(json!({})), json!({})] {
            assert_eq!((own.of_claim(&nothing), own.of_owner(&nothing)), (Word::Own, Word::Theirs));
        }
    }

    #[test]
    fn the_volumes_of_an_environment_are_those_bound_to_claims_of_its_namespaces() {
        let all = [
            volume("b", "shop", "Delete", "Bound", None),
            volume("a", "shop", "Retain", "Bound", None),
            volume("c", "other", "Delete", "Bound", None),
            volume("d", "shop", "Delete", "Released", None),
            json!({"metadata": {"name": "e"}, "status": {"phase": "Available"}}),
        ];
        let found = bound(&all, &BTreeSet::from(["shop".to_owned()]));
        let names: Vec<&str> = found.iter().map(|volume| volume.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(retained(&found[0]), None);
        let patch = retained(&found[1]).unwrap();
        assert_eq!(patch["spec"]["persistentVolumeReclaimPolicy"], "Retain");
        assert_eq!(patch["metadata"]["annotations"][RECLAIM_ANNOTATION], "Delete");
        assert!(is_retained(&all[1]) && !is_retained(&all[0]) && !is_retained(&json!({})));
        let released = Volume::read(&all[3]).unwrap();
        assert!(released.released && !released.bound && released.claimed() == "shop/data");
        assert_eq!(Volume::read(&all[4]), None);
    }

    #[test]
    fn whoever_makes_a_volume_is_its_driver_or_whom_kubernetes_notes() {
        let mut made = volume("a", "shop", "Delete", "Bound", None);
        assert_eq!(Volume::read(&made).unwrap().provisioner, "");
        made["metadata"]["annotations"] = json!({PROVISIONER: "disk.example.com"});
        let read = Volume::read(&made).unwrap();
        assert_eq!((read.provisioner.as_str(), read.driver), ("disk.example.com", None));
        let read = Volume::read(&volume("a", "shop", "Delete", "Bound", Some("csi.example.com"))).unwrap();
        assert_eq!((read.provisioner.as_str(), read.driver.as_deref()), ("csi.example.com", Some("csi.example.com")));
    }

    #[test]
    fn only_what_we_changed_is_put_back() {
        let mut changed = volume("a", "shop", "Retain", "Bound", None);
        assert_eq!(restored(&Volume::read(&changed).unwrap()), None);
        changed["metadata"]["annotations"] = json!({RECLAIM_ANNOTATION: "Delete"});
        let patch = restored(&Volume::read(&changed).unwrap()).unwrap();
        assert_eq!(patch["spec"]["persistentVolumeReclaimPolicy"], "Delete");
        assert!(patch["metadata"]["annotations"][RECLAIM_ANNOTATION].is_null());
        changed["metadata"]["annotations"] = json!({RECLAIM_ANNOTATION: "Anything"});
        assert_eq!(restored(&Volume::read(&changed).unwrap()), None);
    }

    #[test]
    fn a_volume_that_cannot_be_copied_is_a_reason_to_copy_none() {
        let read = |driver: Option<&str>| Volume::read(&volume("a", "shop", "Delete", "Bound", driver)).unwrap();
        let classes = [
            json!({"metadata": {"name": "z"}, "driver": "csi.example.com"}),
            json!({"metadata": {"name": "b", "annotations": {"snapshot.storage.kubernetes.io/is-default-class": "true"}}, "driver": "csi.example.com"}),
            json!({"metadata": {"name": "a"}, "driver": "other.example.com"}),
        ];
        let refused = snapshots(&[read(None), read(Some("none.example.com"))], &classes, ("dev", "dev-1")).unwrap_err();
        assert_eq!(refused.len(), 2);
        assert!(refused[0].contains("was not made by CSI") && refused[1].contains("`none.example.com`"), "{refused:?}");
        let made = snapshots(&[read(Some("csi.example.com"))], &classes, ("dev", "dev-1")).unwrap();
        assert!(made[0].name.starts_with("forge-data-") && made[0].namespace == "shop", "{made:?}");
        assert_eq!(made[0].object["spec"]["volumeSnapshotClassName"], "b");
        assert!(crate::render::is_ours(&made[0].object));
        assert!(snapshot_content_retained(&json!({"spec": {"deletionPolicy": "Retain"}})).is_none());
        assert!(snapshot_content_retained(&json!({"spec": {"deletionPolicy": "Delete"}})).is_some());
    }

    #[test]
    fn a_copy_that_an_earlier_teardown_made_is_never_taken_for_one_of_this() {
        let classes = [json!({"metadata": {"name": "a"}, "driver": "csi.example.com"})];
        let name = |volume: &Value, run: &str| {
            let volume = Volume::read(volume).unwrap();
            snapshots(&[volume], &classes, ("dev", run)).unwrap()[0].name.clone()
        };
        let one = volume("a", "shop", "Delete", "Bound", Some("csi.example.com"));
        assert_eq!(name(&one, "dev-1"), name(&one, "dev-1"));
        assert_ne!(name(&one, "dev-1"), name(&one, "dev-2"));
        // Two claims of which the first characters are the same.
        let mut long = [one.clone(), one];
        for (place, last) in ["x", "y"].iter().enumerate() {
            long[place]["spec"]["claimRef"]["name"] = json!(format!("{}{last}", "c".repeat(252)));
        }
        let names = long.map(|volume| name(&volume, "dev-1"));
        assert!(names[0] != names[1] && names.iter().all(|name| name.len() <= 253), "{names:?}");
    }
}
