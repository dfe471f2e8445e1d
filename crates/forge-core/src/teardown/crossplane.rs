//! What Crossplane makes for itself when it starts: the definitions of its kinds, a webhook, and a few objects of those kinds. No
//! chart has it, so that neither Helm nor Argo CD knows of it, and it carries no label. It is told from everything else by who
//! wrote it, which an API server notes: Crossplane's own program, and nobody besides (`internal/initializer` of Crossplane 2).
//!
//! Where its Application is ours it came with that, and goes after it, if the snapshot of phase 0 does not have it, no other
//! Crossplane is there, and nobody uses it (INV-11).

use serde_json::Value;

use super::Content;
use super::inventory::{DEFINITIONS, Item};
use crate::preflight::items;

/// The Application of Crossplane, where the root file has one.
pub const CROSSPLANE: &str = "crossplane";
/// What every workload of its chart carries.
pub const CROSSPLANE_SELECTOR: &str = "app.kubernetes.io/name=crossplane";

/// Who it is where an API server notes who wrote a field: the name of its program.
const WRITER: &str = "crossplane";
/// The groups of its own kinds.
const GROUPS: [&str; 4] =
    ["apiextensions.crossplane.io", "ops.crossplane.io", "pkg.crossplane.io", "protection.crossplane.io"];
/// What it makes beside definitions: group, plural and name.
const STARTED: [(&str, &str, &str); 4] = [
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations", "crossplane-no-usages"),
    ("apiextensions.crossplane.io", "managedresourceactivationpolicies", "default"),
    ("pkg.crossplane.io", "deploymentruntimeconfigs", "default"),
    LOCK,
];
/// That of its packages. While there are none it is nothing but its name, and of that no API server notes who wrote it.
const LOCK: (&str, &str, &str) = ("pkg.crossplane.io", "locks", "lock");

/// Crossplane wrote all of an object, but for its status, which an API server writes too.
pub(super) fn wrote(object: &Value) -> bool {
    let mut writers = writers(object).peekable();
    writers.peek().is_some() && writers.all(|writer| writer == Some(WRITER))
}

/// An object is nothing but its name: nobody is noted who wrote anything into it.
pub(super) fn is_unwritten(object: &Value) -> bool {
    let says = |field: &str| object.get("metadata").and_then(|metadata| metadata.get(field)).is_some();
    let known = |key: &String| ["apiVersion", "kind", "metadata", "status"].contains(&key.as_str());
    let is_bare = object.as_object().is_some_and(|object| object.keys().all(known));
    is_bare && !says("labels") && !says("annotations") && writers(object).next().is_none()
}

fn writers(object: &Value) -> impl Iterator<Item = Option<&str>> {
    items(object, "/metadata/managedFields")
        .filter(|entry| entry.get("subresource").and_then(Value::as_str) != Some("status"))
        .map(|entry| entry.get("manager").and_then(Value::as_str))
}

/// True for what Crossplane makes when it starts, by group and plural and what the object says. What belongs to something, or
/// says that somebody else made it, is none of it.
pub fn started((group, resource): (&str, &str), item: &Item) -> bool {
    let definition = (group, resource) == DEFINITIONS && item.name.split_once('.').is_some_and(|(_, of)| is_its(of));
    let named = (group, resource, item.name.as_str());
    let wrote = item.crossplane || (named == LOCK && item.unwritten);
    (definition || STARTED.contains(&named)) && wrote && item.parents.is_empty() && item.made_by().is_none()
}

/// True for a group of Crossplane's own kinds.
pub(super) fn is_its(group: &str) -> bool {
    GROUPS.contains(&group)
}

/// The first object of a definition of Crossplane's (its name) that keeps it: everything but what Crossplane made when it started.
/// That counts too where a finalizer is on it, because nobody is left to clear it.
pub fn used_by<'c>(definition: &str, instances: &'c [Content]) -> Option<&'c Content> {
    let (resource, group) = definition.split_once('.').unwrap_or((definition, ""));
    let is_own = |content: &Content| {
        let item = Item::read(&content.object);
        item.is_some_and(|item| started((group, resource), &item) && item.finalizers.is_empty())
    };
    instances.iter().find(|content| !is_own(content))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn written(name: &str, writers: &[&str], more: &Value) -> Value {
        let fields: Vec<Value> = writers.iter().map(|by| json!({"manager": by, "operation": "Update"})).collect();
        let mut fields = json!(fields);
        let status = json!({"manager": "kube-apiserver", "operation": "Update", "subresource": "status"});
        fields.as_array_mut().unwrap().push(status);
        let mut metadata = json!({"name": name, "uid": name, "managedFields": fields});
        metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "metadata": metadata })
    }

    fn is_started(of: (&str, &str), object: &Value) -> bool {
        Item::read(object).is_some_and(|item| started(of, &item))
    }

    #[test]
    fn what_crossplane_makes_when_it_starts_is_known_by_its_name_and_by_who_wrote_it() {
        let none = json!({});
        let webhooks = ("admissionregistration.k8s.io", "validatingwebhookconfigurations");
        for (of, name) in [
            (DEFINITIONS, "locks.pkg.crossplane.io"),
            (DEFINITIONS, "environmentconfigs.apiextensions.crossplane.io"),
            (webhooks, "crossplane-no-usages"),
            (("pkg.crossplane.io", "locks"), "lock"),
            (("apiextensions.crossplane.io", "managedresourceactivationpolicies"), "default"),
        ] {
            assert!(is_started(of, &written(name, &["crossplane"], &none)), "{name}");
            // Somebody else wrote it, or wrote in it.
            for writers in [&["kubectl-create"][..], &["crossplane", "kubectl-edit"]] {
                assert!(!is_started(of, &written(name, writers, &none)), "{name} by {writers:?}");
            }
            let unsaid = json!({"metadata": {"name": name, "uid": "x"}});
            for nobody in [written(name, &[], &none), unsaid] {
                assert_eq!(is_started(of, &nobody), name == "lock", "{name} by nobody");
            }
        }
        // By Crossplane too, and not because it started.
        for (of, name) in [
            (DEFINITIONS, "databases.example.com"),
            (DEFINITIONS, "objects.kubernetes.crossplane.io"),
            (webhooks, "somebodys"),
            (("pkg.crossplane.io", "providers"), "provider-aws"),
            (("", "configmaps"), "lock"),
        ] {
            assert!(!is_started(of, &written(name, &["crossplane"], &none)), "{name}");
        }
        for marks in [
            json!({"ownerReferences": [{"kind": "ProviderRevision", "name": "x", "uid": "x"}]}),
            json!({"annotations": {"argocd.argoproj.io/tracking-id": "theirs:x:y/locks.pkg.crossplane.io"}}),
            json!({"annotations": {"meta.helm.sh/release-name": "x", "meta.helm.sh/release-namespace": "y"}}),
        ] {
            assert!(!is_started(DEFINITIONS, &written("locks.pkg.crossplane.io", &["crossplane"], &marks)), "{marks}");
        }
    }

    #[test]
    fn a_definition_of_crossplane_is_used_by_everything_that_it_did_not_make_itself() {
        let content = |object: Value| Content { kind: "Lock".to_owned(), object };
        let own = content(written("lock", &["crossplane"], &json!({})));
        assert_eq!(used_by("locks.pkg.crossplane.io", &[]), None);
        assert_eq!(used_by("locks.pkg.crossplane.io", std::slice::from_ref(&own)), None);
        let bare = json!({"apiVersion": "pkg.crossplane.io/v1beta1", "kind": "Lock", "metadata": {"name": "lock", "uid": "u"}});
        assert_eq!(used_by("locks.pkg.crossplane.io", &[content(bare.clone())]), None);
        let mut filled = bare.clone();
        filled["packages"] = json!([{"name": "p"}]);
        let mut labelled = bare;
        labelled["metadata"]["labels"] = json!({"team": "other"});
        for other in [filled, labelled].map(content) {
            assert!(used_by("locks.pkg.crossplane.io", std::slice::from_ref(&other)).is_some());
        }
        let held = content(written("lock", &["crossplane"], &json!({"finalizers": ["lock.pkg.crossplane.io"]})));
        let theirs = content(written("other", &["kubectl-create"], &json!({})));
        let edited = content(written("lock", &["crossplane", "kubectl-edit"], &json!({})));
        for user in [held, theirs, edited] {
            let all = [own.clone(), user.clone()];
            assert_eq!(used_by("locks.pkg.crossplane.io", &all), Some(&user));
        }
        // Of another kind the same object is somebody's.
        assert_eq!(used_by("providers.pkg.crossplane.io", std::slice::from_ref(&own)), Some(&own));
    }
}
