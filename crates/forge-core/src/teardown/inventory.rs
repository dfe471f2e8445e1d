//! What is in a cluster, over all API groups (SPEC.md sections 1 and 5): positive, complete lists. A list that may not be
//! read, that ends too soon, that contradicts itself, or whose API does not answer is *not known*, and never an empty
//! one (INV-10).
//!
//! Names, identities and marks only: of no object is the content kept, and of Secrets it is never asked for.

mod discovery;
mod ending;
mod item;
mod page;
mod snapshot;

use std::collections::BTreeSet;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use discovery::{Group, Kind, Served, base, groups, kinds, merged};
pub use ending::{CleanExitReport, Ending, GoneKind, Left, Orphan, Reason, Stays, clean_exit};
pub use item::{Item, Parent};
pub use page::{Complete, Pages, Read, Readings};
pub use snapshot::{
    DIGEST_ANNOTATION, Noted, PIECES_ANNOTATION, Packed, SNAPSHOT, SNAPSHOT_KEY, SNAPSHOT_LABEL, Seen, Snapshot,
    is_passing,
};

use crate::view::shown;

/// The group of definitions, and their plural.
pub(crate) const DEFINITIONS: (&str, &str) = ("apiextensions.k8s.io", "customresourcedefinitions");
/// The group of registered APIs, and their plural.
pub(crate) const API_SERVICES: (&str, &str) = ("apiregistration.k8s.io", "apiservices");

/// A part of a cluster of which it is not known what is in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Gap {
    /// A kind, as `plural.group`, or a version of a group, as `group/version`.
    pub what: String,
    /// Why not.
    pub why: String,
}

impl Gap {
    /// A gap, as it may be shown.
    pub fn new(what: impl AsRef<str>, why: impl AsRef<str>) -> Self {
        Self { what: shown(what.as_ref()), why: shown(why.as_ref()) }
    }

    /// Objects of a kind may be behind it: it is the kind, or a version of its group, in whichever version the kind is read.
    pub(super) fn hides(&self, kind: &Kind) -> bool {
        match self.what.split_once('/') {
            Some((group, _)) => group == kind.group,
            None => self.what == kind.name() || (kind.group.is_empty() && self.what == kind.version),
        }
    }
}

/// What is known of the objects of a kind.
#[derive(Debug, Clone)]
pub enum Listing {
    /// All of them.
    Known(Complete),
    /// Nothing, and why.
    Unknown(String),
}

/// What is in a cluster.
#[derive(Debug, Clone)]
pub struct Inventory {
    /// When it was read.
    pub taken: Timestamp,
    /// Sorted by kind.
    kinds: Vec<(Kind, Listing)>,
    gaps: Vec<Gap>,
}

impl Inventory {
    /// Of what was listed and what discovery could not say. A kind that is defined and not served, and one that had objects
    /// `earlier` and is not served any more although nobody removed its definition, is not known either.
    pub fn new(taken: Timestamp, mut kinds: Vec<(Kind, Listing)>, mut gaps: Vec<Gap>, earlier: Option<&Self>) -> Self {
        kinds.sort_by(|(one, _), (other, _)| one.cmp(other));
        for (kind, listing) in &kinds {
            if let Listing::Unknown(why) = listing {
                gaps.push(Gap::new(kind.name(), why));
            }
        }
        let mut inventory = Self { taken, kinds, gaps };
        let mut more = inventory.unserved();
        more.extend(earlier.into_iter().flat_map(|earlier| inventory.vanished(earlier)));
        inventory.gaps.extend(more);
        inventory.gaps.sort();
        inventory.gaps.dedup_by(|one, other| one.what == other.what);
        inventory
    }

    /// All kinds that are served.
    pub fn kinds(&self) -> impl Iterator<Item = &Kind> {
        self.kinds.iter().map(|(kind, _)| kind)
    }

    /// The kind of this group and plural, where it is served.
    pub fn kind(&self, (group, resource): (&str, &str)) -> Option<&Kind> {
        self.kinds().find(|kind| kind.is((group, resource)))
    }

    /// All objects of a kind, where they are known.
    pub fn known(&self, of: (&str, &str)) -> Option<&Complete> {
        self.kinds.iter().find(|(kind, _)| kind.is(of)).and_then(|(_, listing)| match listing {
            Listing::Known(complete) => Some(complete),
            Listing::Unknown(_) => None,
        })
    }

    /// Everything that is known, kind by kind.
    pub fn objects(&self) -> impl Iterator<Item = (&Kind, &Item)> {
        self.kinds.iter().flat_map(|(kind, listing)| {
            let items = match listing {
                Listing::Known(complete) => complete.items(),
                Listing::Unknown(_) => &[],
            };
            items.iter().map(move |item| (kind, item))
        })
    }

    /// What is not known, sorted.
    pub fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    /// Definitions that discovery does not serve.
    fn unserved(&self) -> Vec<Gap> {
        let served: BTreeSet<String> = self.kinds().map(Kind::name).collect();
        let defined = self.known(DEFINITIONS).into_iter().flat_map(Complete::items);
        let open = defined.filter(|definition| !served.contains(&definition.name));
        open.map(|definition| Gap::new(&definition.name, "it is defined, and discovery does not serve it")).collect()
    }

    /// Kinds that had objects and are not served any more, although nothing that defined them is gone.
    fn vanished(&self, earlier: &Self) -> Vec<Gap> {
        let has = |inventory: &Self, of: (&str, &str), name: &str| {
            inventory.known(of).map(|list| list.items().iter().any(|item| item.name == name))
        };
        let gone =
            |of: (&str, &str), name: &str| has(earlier, of, name) == Some(true) && has(self, of, name) == Some(false);
        let mut gaps = Vec::new();
        for (kind, listing) in &earlier.kinds {
            let had = matches!(listing, Listing::Known(list) if !list.items().is_empty());
            if !had || self.kind((&kind.group, &kind.resource)).is_some() {
                continue;
            }
            let registered = format!("{}.{}", kind.version, kind.group);
            if !gone(DEFINITIONS, &kind.name()) && !gone(API_SERVICES, &registered) {
                gaps.push(Gap::new(kind.name(), "it had objects, and discovery does not serve it any more"));
            }
        }
        gaps
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::{Value, json};

    use super::*;

    pub(crate) fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_794_823_200 + second).unwrap()
    }

    pub(crate) fn kind(name: &str, kind: &str, namespaced: bool) -> Kind {
        let (resource, group) = name.split_once('.').unwrap_or((name, ""));
        Kind {
            group: group.to_owned(),
            resource: resource.to_owned(),
            version: "v1".to_owned(),
            kind: kind.to_owned(),
            namespaced,
            counts: true,
        }
    }

    /// An object: `namespace/name` or `name`, with further fields of its metadata.
    pub(crate) fn object(place: &str, more: Value) -> Value {
        let (namespace, name) = place.split_once('/').unwrap_or(("", place));
        let mut metadata = json!({"name": name, "uid": format!("uid-{place}")});
        let fields = metadata.as_object_mut().unwrap();
        if !namespace.is_empty() {
            fields.insert("namespace".to_owned(), json!(namespace));
        }
        if let Value::Object(more) = more {
            fields.extend(more);
        }
        json!({ "metadata": metadata })
    }

    /// A list that was read to its end.
    pub(crate) fn complete(version: u64, objects: &[Value]) -> Complete {
        let mut pages = Pages::default();
        let page = json!({"metadata": {"resourceVersion": version.to_string()}, "items": objects});
        assert_eq!(pages.take(&page), Ok(None));
        pages.complete().unwrap()
    }

    pub(crate) fn known(version: u64, objects: &[Value]) -> Listing {
        Listing::Known(complete(version, objects))
    }

    fn definitions(names: &[&str]) -> (Kind, Listing) {
        let objects: Vec<Value> = names.iter().map(|name| object(name, json!({}))).collect();
        (kind("customresourcedefinitions.apiextensions.k8s.io", "CustomResourceDefinition", false), known(5, &objects))
    }

    fn whats(inventory: &Inventory) -> Vec<&str> {
        inventory.gaps().iter().map(|gap| gap.what.as_str()).collect()
    }

    #[test]
    fn what_may_not_be_listed_what_is_down_and_what_is_defined_and_not_served_is_not_known() {
        let kinds = vec![
            definitions(&["widgets.example.com", "gadgets.example.com"]),
            (kind("widgets.example.com", "Widget", true), known(5, &[object("a/one", json!({}))])),
            (kind("secrets", "Secret", true), Listing::Unknown("secrets is forbidden".to_owned())),
        ];
        let gaps = vec![Gap::new("metrics.k8s.io/v1beta1", "the server is unable to handle the request")];
        let inventory = Inventory::new(at(0), kinds, gaps, None);
        assert_eq!(whats(&inventory), ["gadgets.example.com", "metrics.k8s.io/v1beta1", "secrets"]);
        assert!(inventory.known(("", "secrets")).is_none());
        assert_eq!(inventory.objects().count(), 3);
    }

    #[test]
    fn a_group_that_does_not_answer_hides_its_kinds_in_every_version_and_nobody_elses() {
        let (widgets, pods) = (kind("widgets.example.com", "Widget", true), kind("pods", "Pod", true));
        for what in ["widgets.example.com", "example.com/v1", "example.com/v1beta1"] {
            assert!(Gap::new(what, "503").hides(&widgets) && !Gap::new(what, "503").hides(&pods), "{what}");
        }
        assert!(Gap::new("v1", "503").hides(&pods) && !Gap::new("v1", "503").hides(&widgets));
        for what in ["gadgets.example.com", "com/v1", "everything"] {
            assert!(!Gap::new(what, "503").hides(&widgets), "{what}");
        }
    }

    #[test]
    fn a_kind_that_had_objects_and_is_gone_from_discovery_is_known_to_be_gone_only_with_its_definition() {
        let widgets = || (kind("widgets.example.com", "Widget", true), known(5, &[object("a/one", json!({}))]));
        let earlier = Inventory::new(at(0), vec![definitions(&["widgets.example.com"]), widgets()], vec![], None);
        assert_eq!(whats(&earlier), [""; 0]);
        let with = |now: Vec<(Kind, Listing)>| Inventory::new(at(9), now, vec![], Some(&earlier));
        assert_eq!(whats(&with(vec![definitions(&[])])), [""; 0]);
        assert_eq!(whats(&with(vec![definitions(&["widgets.example.com"])])), ["widgets.example.com"]);
        // Whether it is still defined is not known, so neither is whether it has objects.
        let (of, _) = definitions(&[]);
        let unread = with(vec![(of, Listing::Unknown("no answer".to_owned()))]);
        assert_eq!(whats(&unread), ["customresourcedefinitions.apiextensions.k8s.io", "widgets.example.com"]);
        assert_eq!(whats(&with(vec![])), ["customresourcedefinitions.apiextensions.k8s.io", "widgets.example.com"]);
    }
}
