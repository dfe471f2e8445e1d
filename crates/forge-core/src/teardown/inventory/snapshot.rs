//! What was there before the first write of bootstrap, so that what is left at the end can be compared with it: kinds, names
//! and identities, packed for ConfigMaps. Nothing of what an object says is in it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Gap, Inventory, Item, Kind};
use crate::digest::Digest;
use crate::oci::{OciError, gunzip, gzip};

/// The ConfigMap, in the namespace of Argo Workflows; further pieces are named after it.
pub const SNAPSHOT: &str = "forge-snapshot";
/// Its data key.
pub const SNAPSHOT_KEY: &str = "snapshot.json.gz";
/// The label that marks all of its pieces.
pub const SNAPSHOT_LABEL: &str = "forge.projectcatalyst.io/snapshot";
/// The annotation that says how many pieces there are.
pub const PIECES_ANNOTATION: &str = "forge.projectcatalyst.io/pieces";
/// The annotation with the digest of all of them together.
pub const DIGEST_ANNOTATION: &str = "forge.projectcatalyst.io/digest";
/// Largest piece: what a run stores is cut the same way.
const PIECE: usize = 256 << 10;
/// Largest snapshot that is read: a million objects.
const MOST: usize = 256 << 20;

/// Kinds whose objects come and go by themselves, and are nobody's.
const PASSING: [(&str, &str); 15] = [
    ("", "endpoints"),
    ("", "events"),
    ("", "nodes"),
    ("certificates.k8s.io", "certificatesigningrequests"),
    ("certificates.k8s.io", "podcertificaterequests"),
    ("coordination.k8s.io", "leasecandidates"),
    ("coordination.k8s.io", "leases"),
    ("discovery.k8s.io", "endpointslices"),
    ("events.k8s.io", "events"),
    ("internal.apiserver.k8s.io", "storageversions"),
    ("networking.k8s.io", "ipaddresses"),
    ("resource.k8s.io", "resourceslices"),
    ("storage.k8s.io", "csinodes"),
    ("storage.k8s.io", "csistoragecapacities"),
    ("storage.k8s.io", "volumeattachments"),
];

/// True for a kind whose objects come and go by themselves.
pub fn is_passing(kind: &Kind) -> bool {
    PASSING.iter().any(|of| kind.is(*of))
}

/// An object that was there: namespace, name, identity, and whether it went with another one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Noted(pub String, pub String, pub String, pub bool);

/// The objects of a kind that were there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// The API group.
    pub group: String,
    /// The plural.
    pub resource: String,
    /// The objects, sorted.
    pub objects: Vec<Noted>,
}

/// What was there before the first write of bootstrap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// When.
    pub taken: Timestamp,
    /// Kind by kind, sorted; one that had no objects is there too.
    pub kinds: Vec<Seen>,
    /// What could not be listed, so that nothing can be compared with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<Gap>,
}

/// A snapshot as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// The digest of all pieces together.
    pub digest: Digest,
    /// How many objects it holds.
    pub objects: usize,
    /// The pieces, one at least.
    pub pieces: Vec<Vec<u8>>,
}

impl Packed {
    /// The name of a piece. Two bootstraps that begin at the same time do not mix theirs.
    pub fn name(&self, piece: usize) -> String {
        piece_name(&self.digest, piece)
    }
}

fn piece_name(digest: &Digest, piece: usize) -> String {
    if piece == 0 { SNAPSHOT.to_owned() } else { format!("{SNAPSHOT}-{}-{piece}", digest.short(10)) }
}

impl Snapshot {
    /// Of an inventory, without what is Forge's: a bootstrap that was killed may have left namespaces before it could store
    /// this.
    pub fn of(inventory: &Inventory) -> Self {
        let namespaces = inventory.known(("", "namespaces")).map(super::Complete::items).unwrap_or_default();
        let own: BTreeSet<&str> =
            namespaces.iter().filter(|namespace| namespace.forge).map(|namespace| namespace.name.as_str()).collect();
        let is_own = |item: &Item| item.forge || own.contains(item.namespace.as_str());
        let mut kinds: BTreeMap<(&str, &str), Vec<Noted>> = BTreeMap::new();
        for kind in inventory.kinds().filter(|kind| !is_passing(kind)) {
            if inventory.known((&kind.group, &kind.resource)).is_some() {
                kinds.insert((&kind.group, &kind.resource), Vec::new());
            }
        }
        for (kind, item) in inventory.objects().filter(|(_, item)| !is_own(item)) {
            if let Some(noted) = kinds.get_mut(&(kind.group.as_str(), kind.resource.as_str())) {
                let (namespace, name, uid) = (item.namespace.clone(), item.name.clone(), item.uid.clone());
                noted.push(Noted(namespace, name, uid, !item.parents.is_empty()));
            }
        }
        let seen = |((group, resource), mut objects): ((&str, &str), Vec<Noted>)| {
            objects.sort();
            Seen { group: group.to_owned(), resource: resource.to_owned(), objects }
        };
        Self { taken: inventory.taken, kinds: kinds.into_iter().map(seen).collect(), gaps: inventory.gaps().to_vec() }
    }

    /// It is known what there was of a kind, by group and plural, and nothing of this name was.
    pub fn lacks(&self, (group, resource): (&str, &str), name: &str) -> bool {
        let seen = self.kinds.iter().find(|seen| seen.group == group && seen.resource == resource);
        seen.is_some_and(|seen| seen.objects.iter().all(|noted| noted.1 != name))
    }

    /// How many objects it holds.
    pub fn count(&self) -> usize {
        self.kinds.iter().map(|seen| seen.objects.len()).sum()
    }

    /// As it is stored.
    ///
    /// # Errors
    /// When it cannot be compressed, for which there is no reason.
    pub fn packed(&self) -> Result<Packed, OciError> {
        let bytes = gzip(serde_json::to_string(self).unwrap_or_default().as_bytes())?;
        let pieces = bytes.chunks(PIECE).map(<[u8]>::to_vec).collect();
        Ok(Packed { digest: Digest::of(&bytes), objects: self.count(), pieces })
    }

    /// The names of the pieces of a snapshot with this digest.
    pub fn names(digest: &Digest, pieces: usize) -> Vec<String> {
        (0..pieces).map(|piece| piece_name(digest, piece)).collect()
    }

    /// Of its pieces, put together.
    ///
    /// # Errors
    /// When they are not what was stored.
    pub fn unpacked(bytes: &[u8], digest: &Digest) -> Result<Self, String> {
        let found = Digest::of(bytes);
        if found != *digest {
            return Err(format!("its pieces have the digest {found}, not {digest}"));
        }
        let text = gunzip(bytes, MOST).ok_or("its pieces are no gzip")?;
        serde_json::from_slice(&text).map_err(|error| format!("it cannot be read: {error}"))
    }

    /// To look things up in.
    pub(super) fn index(&self) -> Index<'_> {
        let mut index = Index { kinds: BTreeMap::new(), namespaces: BTreeSet::new() };
        for seen in &self.kinds {
            let objects = seen.objects.iter();
            let by_name = objects.map(|noted| ((noted.0.as_str(), noted.1.as_str()), noted)).collect();
            if seen.group.is_empty() && seen.resource == "namespaces" {
                index.namespaces = seen.objects.iter().map(|noted| noted.1.as_str()).collect();
            }
            index.kinds.insert((&seen.group, &seen.resource), by_name);
        }
        index
    }
}

/// Objects of a kind by namespace and name.
type ByName<'s> = BTreeMap<(&'s str, &'s str), &'s Noted>;

/// A snapshot, to look things up in.
pub(super) struct Index<'s> {
    kinds: BTreeMap<(&'s str, &'s str), ByName<'s>>,
    namespaces: BTreeSet<&'s str>,
}

impl<'s> Index<'s> {
    /// It is known what there was of a kind. One that was not served had no objects.
    pub(super) fn covers(&self, kind: &Kind, gaps: &[Gap]) -> bool {
        self.kinds.contains_key(&(kind.group.as_str(), kind.resource.as_str()))
            || !gaps.iter().any(|gap| gap.hides(kind))
    }

    /// The object was there: this very one, and not another of its name.
    pub(super) fn holds(&self, kind: &Kind, item: &Item) -> bool {
        let noted = self.find(kind, item);
        noted.is_some_and(|noted| noted.2 == item.uid)
    }

    /// The object of this name that was there.
    pub(super) fn find(&self, kind: &Kind, item: &Item) -> Option<&'s Noted> {
        let objects = self.kinds.get(&(kind.group.as_str(), kind.resource.as_str()))?;
        objects.get(&(item.namespace.as_str(), item.name.as_str())).copied()
    }

    /// The namespace was there.
    pub(super) fn has_namespace(&self, name: &str) -> bool {
        self.namespaces.contains(name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::render::MANAGED_BY;
    use crate::teardown::inventory::Listing;
    use crate::teardown::inventory::tests::{at, kind, known, object};

    fn inventory() -> Inventory {
        let ours = json!({"labels": {MANAGED_BY: "forge"}});
        let owned = json!({"ownerReferences": [{"kind": "ReplicaSet", "name": "r", "uid": "r"}]});
        let kinds = vec![
            (
                kind("namespaces", "Namespace", false),
                known(5, &[object("shop", json!({})), object("argo", ours.clone())]),
            ),
            (kind("pods", "Pod", true), known(5, &[object("shop/p", owned), object("argo/x", json!({}))])),
            (kind("configmaps", "ConfigMap", true), known(5, &[object("shop/own", ours), object("shop/c", json!({}))])),
            (kind("events", "Event", true), known(5, &[object("shop/e", json!({}))])),
            (kind("widgets.example.com", "Widget", true), known(5, &[])),
            (kind("secrets", "Secret", true), Listing::Unknown("forbidden".to_owned())),
        ];
        Inventory::new(at(0), kinds, vec![], None)
    }

    #[test]
    fn names_and_identities_are_noted_and_nothing_that_is_ours_or_passes() {
        let snapshot = Snapshot::of(&inventory());
        let told: Vec<String> = snapshot
            .kinds
            .iter()
            .flat_map(|seen| {
                seen.objects.iter().map(|noted| format!("{} {}/{} {}", seen.resource, noted.0, noted.1, noted.3))
            })
            .collect();
        assert_eq!(told, ["configmaps shop/c false", "namespaces /shop false", "pods shop/p true"]);
        assert_eq!(snapshot.gaps, [Gap::new("secrets", "forbidden")]);
        let index = snapshot.index();
        let (pods, widgets, secrets) =
            (kind("pods", "Pod", true), kind("widgets.example.com", "Widget", true), kind("secrets", "Secret", true));
        assert!(index.covers(&pods, &snapshot.gaps) && index.covers(&widgets, &snapshot.gaps));
        assert!(!index.covers(&secrets, &snapshot.gaps));
        // What was not served then had no objects.
        let gadgets = kind("gadgets.example.com", "Gadget", true);
        assert!(index.covers(&gadgets, &snapshot.gaps));
        // Its group did not answer then, in whatever version it is read now.
        assert!(!index.covers(&gadgets, &[Gap::new("example.com/v1beta1", "503")]));
        let same = Item::read(&object("shop/p", json!({}))).unwrap();
        let another = Item { uid: "another".to_owned(), ..same.clone() };
        assert!(index.holds(&pods, &same) && !index.holds(&pods, &another) && index.find(&pods, &another).is_some());
        assert!(index.has_namespace("shop") && !index.has_namespace("argo"));
        // What could not be listed then may have been there.
        assert!(snapshot.lacks(("", "pods"), "q") && !snapshot.lacks(("", "pods"), "p"));
        assert!(!snapshot.lacks(("", "secrets"), "q") && !snapshot.lacks(("example.com", "gadgets"), "q"));
    }

    #[test]
    fn what_is_packed_unpacks_to_the_same_and_what_was_changed_is_refused() {
        let snapshot = Snapshot::of(&inventory());
        let packed = snapshot.packed().unwrap();
        assert_eq!((packed.pieces.len(), packed.objects, packed.name(0).as_str()), (1, 3, SNAPSHOT));
        let bytes = packed.pieces.concat();
        assert_eq!(Snapshot::unpacked(&bytes, &packed.digest).unwrap(), snapshot);
        assert_eq!(packed, snapshot.packed().unwrap());
        assert!(Snapshot::unpacked(&bytes[1..], &packed.digest).unwrap_err().contains("digest"));
        let odd = b"no gzip".to_vec();
        assert!(Snapshot::unpacked(&odd, &Digest::of(&odd)).unwrap_err().contains("no gzip"));
        let odd = gzip(b"{}").unwrap();
        assert!(Snapshot::unpacked(&odd, &Digest::of(&odd)).unwrap_err().contains("cannot be read"));
    }

    #[test]
    fn a_large_cluster_takes_several_pieces_of_which_each_fits_into_a_config_map() {
        // Identities do not compress, as real ones do not.
        let uid = |n: u32| Digest::of(&n.to_le_bytes()).to_string();
        let objects = (0..20_000).map(|n| Noted("shop".to_owned(), format!("n-{n}"), uid(n), false)).collect();
        let kinds = vec![Seen { group: String::new(), resource: "pods".to_owned(), objects }];
        let snapshot = Snapshot { taken: at(0), kinds, gaps: Vec::new() };
        let packed = snapshot.packed().unwrap();
        assert!(packed.pieces.len() > 1 && packed.pieces.iter().all(|piece| piece.len() <= PIECE));
        let names = Snapshot::names(&packed.digest, packed.pieces.len());
        let distinct: BTreeSet<&String> = names.iter().collect();
        assert!(distinct.len() == names.len() && names.iter().all(|name| name.len() <= 63), "{names:?}");
        assert_eq!(names, (0..packed.pieces.len()).map(|piece| packed.name(piece)).collect::<Vec<_>>());
        assert_eq!(Snapshot::unpacked(&packed.pieces.concat(), &packed.digest).unwrap(), snapshot);
    }

    #[test]
    fn nothing_but_names_and_identities_is_stored() {
        let secret = object("shop/s", json!({"annotations": {"note": "hunter2"}}));
        let kinds = vec![(kind("secrets", "Secret", true), known(5, &[secret]))];
        let text = serde_json::to_value(Snapshot::of(&Inventory::new(at(0), kinds, vec![], None))).unwrap();
        let stored: &Value = &text["kinds"][0];
        assert_eq!(
            *stored,
            json!({"group": "", "resource": "secrets", "objects": [["shop", "s", "uid-shop/s", false]]})
        );
    }
}
