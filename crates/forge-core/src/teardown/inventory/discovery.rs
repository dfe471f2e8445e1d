//! Which kinds a cluster serves, by its own word. What cannot be deleted cannot be left behind, so of an inventory only kinds
//! count that can be listed and deleted.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Gap, Item};
use crate::preflight::{items, text};

/// A kind of objects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// The API group; empty for the core.
    pub group: String,
    /// The plural.
    pub resource: String,
    /// The version that it is read in.
    pub version: String,
    /// The kind.
    pub kind: String,
    /// Its objects are in namespaces.
    pub namespaced: bool,
    /// It can be listed and deleted.
    pub counts: bool,
}

impl Kind {
    /// As kubectl takes it: `plural.group`.
    pub fn name(&self) -> String {
        if self.group.is_empty() { self.resource.clone() } else { format!("{}.{}", self.resource, self.group) }
    }

    /// One of its objects as `--release-finalizer` takes it: `Kind.group/namespace/name`.
    pub fn target(&self, item: &Item) -> String {
        let group = if self.group.is_empty() { String::new() } else { format!(".{}", self.group) };
        format!("{}{group}/{}", self.kind, item.place())
    }

    /// All its objects, as a path of the API.
    pub fn collection(&self) -> String {
        self.within("")
    }

    /// Its objects in a namespace, as a path of the API; all of them where that is empty, or where it has none.
    pub fn within(&self, namespace: &str) -> String {
        let base = base(&self.group, &self.version);
        if self.namespaced && !namespace.is_empty() {
            format!("{base}/namespaces/{namespace}/{}", self.resource)
        } else {
            format!("{base}/{}", self.resource)
        }
    }

    /// It is the one of this group and plural.
    pub fn is(&self, (group, resource): (&str, &str)) -> bool {
        self.group == group && self.resource == resource
    }
}

/// Where a version of a group says what it serves.
pub fn base(group: &str, version: &str) -> String {
    if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") }
}

/// A group of kinds, and its versions, the preferred first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Its name; empty for the core.
    pub name: String,
    /// Its versions.
    pub versions: Vec<String>,
}

impl Group {
    /// The core, which `/apis` does not list.
    pub fn core() -> Self {
        Self { name: String::new(), versions: vec!["v1".to_owned()] }
    }

    /// Where each of its versions says what it serves.
    pub fn paths(&self) -> impl Iterator<Item = (&str, String)> {
        self.versions.iter().map(|version| (version.as_str(), base(&self.name, version)))
    }
}

/// Reads what `/apis` says; nothing where it says something else.
pub fn groups(list: &Value) -> Option<Vec<Group>> {
    let group = |group: &Value| {
        let name = text(group, "/name")?.to_owned();
        let mut versions: Vec<String> =
            text(group, "/preferredVersion/version").map(str::to_owned).into_iter().collect();
        for version in items(group, "/versions").filter_map(|version| text(version, "/version")) {
            if !versions.iter().any(|known| known == version) {
                versions.push(version.to_owned());
            }
        }
        Some(Group { name, versions })
    };
    list.get("groups")?.as_array()?.iter().map(group).collect()
}

/// Reads what a version of a group says; nothing where it says something else. A part of an object, such as its status, is no
/// kind.
pub fn kinds(group: &str, version: &str, list: &Value) -> Option<Vec<Kind>> {
    let kind = |resource: &Value| {
        let name = text(resource, "/name").filter(|name| !name.contains('/'))?;
        let can = |verb: &str| items(resource, "/verbs").any(|found| found.as_str() == Some(verb));
        Some(Kind {
            group: group.to_owned(),
            resource: name.to_owned(),
            version: version.to_owned(),
            kind: text(resource, "/kind").unwrap_or(name).to_owned(),
            namespaced: resource.get("namespaced").and_then(Value::as_bool).unwrap_or(false),
            counts: can("list") && can("delete"),
        })
    };
    Some(list.get("resources")?.as_array()?.iter().filter_map(kind).collect())
}

/// What a version of a group serves, or why that is not known.
#[derive(Debug, Clone)]
pub struct Served {
    /// The group.
    pub group: String,
    /// The version.
    pub version: String,
    /// Its kinds.
    pub kinds: Result<Vec<Kind>, String>,
}

/// All kinds that count, each once, in the first version that has it; and what is not known. Versions of a group stand in
/// their order.
pub fn merged(served: Vec<Served>) -> (Vec<Kind>, Vec<Gap>) {
    let mut found: BTreeMap<(String, String), Kind> = BTreeMap::new();
    let mut gaps = Vec::new();
    for Served { group, version, kinds } in served {
        match kinds {
            Ok(kinds) => {
                for kind in kinds.into_iter().filter(|kind| kind.counts) {
                    found.entry((kind.group.clone(), kind.resource.clone())).or_insert(kind);
                }
            }
            Err(why) => gaps.push(Gap::new(format!("{group}/{version}").trim_start_matches('/'), why)),
        }
    }
    (found.into_values().collect(), gaps)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn served(group: &str, version: &str, kinds: Result<Vec<Kind>, String>) -> Served {
        Served { group: group.to_owned(), version: version.to_owned(), kinds }
    }

    #[test]
    fn the_preferred_version_of_a_group_comes_first_and_what_is_no_list_of_groups_is_nothing() {
        let list = json!({"groups": [
            {"name": "apps", "versions": [{"version": "v1beta1"}, {"version": "v1"}], "preferredVersion": {"version": "v1"}},
            {"name": "odd"},
        ]});
        let found = groups(&list).unwrap();
        assert_eq!(found[0].versions, ["v1", "v1beta1"]);
        assert_eq!((found[1].name.as_str(), found[1].versions.len()), ("odd", 0));
        assert_eq!(found[0].paths().map(|(_, path)| path).collect::<Vec<_>>(), ["/apis/apps/v1", "/apis/apps/v1beta1"]);
        assert_eq!(Group::core().paths().next(), Some(("v1", "/api/v1".to_owned())));
        for hostile in [json!(null), json!({}), json!({"groups": "none"}), json!({"groups": [{"versions": []}]})] {
            assert_eq!(groups(&hostile), None, "{hostile}");
        }
    }

    #[test]
    fn only_what_can_be_listed_and_deleted_counts_and_subresources_do_not() {
        let list = json!({"resources": [
            {"name": "widgets", "kind": "Widget", "namespaced": true, "verbs": ["delete", "get", "list"]},
            {"name": "widgets/status", "kind": "Widget", "namespaced": true, "verbs": ["get"]},
            {"name": "reviews", "kind": "Review", "verbs": ["create"]},
            {"name": "figures", "kind": "Figure", "verbs": ["get", "list"]},
        ]});
        let found = kinds("example.com", "v1", &list).unwrap();
        assert_eq!(found.iter().map(|kind| kind.counts).collect::<Vec<_>>(), [true, false, false]);
        assert_eq!(merged(vec![served("example.com", "v1", Ok(found.clone()))]).0.len(), 1);
        assert_eq!(found[0].name(), "widgets.example.com");
        assert_eq!(found[0].collection(), "/apis/example.com/v1/widgets");
        assert_eq!(found[0].within("shop"), "/apis/example.com/v1/namespaces/shop/widgets");
        assert_eq!(found[1].within("shop"), "/apis/example.com/v1/reviews");
        let one = Item::read(&json!({"metadata": {"name": "one", "namespace": "shop", "uid": "u"}})).unwrap();
        assert_eq!(found[0].target(&one), "Widget.example.com/shop/one");
        assert_eq!(kinds("", "v1", &list).unwrap()[0].collection(), "/api/v1/widgets");
        assert_eq!(kinds("", "v1", &json!({"kind": "Status"})), None);
    }

    #[test]
    fn a_kind_is_listed_in_one_version_and_a_version_that_does_not_answer_is_not_known() {
        let of = |version: &str, names: &[&str]| {
            let resources: Value =
                names.iter().map(|name| json!({"name": name, "verbs": ["list", "delete"]})).collect();
            kinds("example.com", version, &json!({"resources": resources})).unwrap()
        };
        let (found, gaps) = merged(vec![
            served("example.com", "v2", Ok(of("v2", &["widgets"]))),
            served("example.com", "v1", Ok(of("v1", &["widgets", "gadgets"]))),
            served("metrics.k8s.io", "v1beta1", Err("503".to_owned())),
            served("", "v1", Err("502".to_owned())),
        ]);
        let told: Vec<(String, &str)> = found.iter().map(|kind| (kind.name(), kind.version.as_str())).collect();
        assert_eq!(told, [("gadgets.example.com".to_owned(), "v1"), ("widgets.example.com".to_owned(), "v2")]);
        assert_eq!(gaps, [Gap::new("metrics.k8s.io/v1beta1", "503"), Gap::new("v1", "502")]);
    }
}
