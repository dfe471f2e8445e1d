//! When an installation is proven: every Deployment and StatefulSet of the release runs the wanted image and is available,
//! every definition is established. Helm's word alone is not enough (INV-5).

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::digest::Digest;
use crate::name::clip;

/// Something of a release that is looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Deployment, StatefulSet or CustomResourceDefinition.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its namespace; a definition has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The images of its containers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<String>,
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", clip(&self.kind), clip(&self.name))
    }
}

/// Why a part is not proven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// It is not there, or not what it was: waiting does not help.
    Broken(String),
    /// It may still come.
    Waiting(String),
}

/// What of the objects of a release is looked at, in their order.
pub fn parts(objects: &[Value], namespace: &str) -> Vec<Part> {
    objects.iter().filter_map(|object| part(object, namespace)).collect()
}

fn part(object: &Value, namespace: &str) -> Option<Part> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let (kind, group) = (text("/kind")?, text("/apiVersion")?.split('/').next()?);
    let namespace = match (group, kind) {
        ("apps", "Deployment" | "StatefulSet") => Some(text("/metadata/namespace").unwrap_or(namespace).to_owned()),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => None,
        _ => return None,
    };
    Some(Part { kind: kind.to_owned(), name: text("/metadata/name")?.to_owned(), namespace, images: images(object) })
}

/// The images of a workload's pods.
fn images(workload: &Value) -> Vec<String> {
    let containers = |kind: &str| {
        let list = workload.pointer(&format!("/spec/template/spec/{kind}")).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(|container| container.get("image")?.as_str().map(str::to_owned))
    };
    containers("initContainers").chain(containers("containers")).collect()
}

/// What is wrong with a part as it is; nothing where it is proven.
pub fn fault(part: &Part, live: Option<&Value>) -> Option<Fault> {
    let Some(live) = live else { return Some(Fault::Broken(format!("{part} is gone"))) };
    let is = |condition: &str| {
        let conditions = live.pointer("/status/conditions").and_then(Value::as_array);
        let text = |found: &Value, key: &str| found.get(key).and_then(Value::as_str).map(str::to_owned);
        conditions.into_iter().flatten().any(|found| {
            text(found, "type").as_deref() == Some(condition) && text(found, "status").as_deref() == Some("True")
        })
    };
    if part.kind == "CustomResourceDefinition" {
        return (!is("Established")).then(|| Fault::Waiting(format!("{part} is not established")));
    }
    // Others may be added on the way; what the chart names must be there.
    let found = images(live);
    if let Some(image) = part.images.iter().find(|image| !found.contains(image)) {
        return Some(Fault::Broken(format!("{part} does not run image `{}`", clip(image))));
    }
    let number = |pointer: &str| live.pointer(pointer).and_then(Value::as_u64);
    if number("/status/observedGeneration").unwrap_or(0) < number("/metadata/generation").unwrap_or(0) {
        return Some(Fault::Waiting(format!("{part} was not looked at yet")));
    }
    let wanted = number("/spec/replicas").unwrap_or(1);
    let (updated, available) = (number("/status/updatedReplicas"), number("/status/availableReplicas"));
    let (updated, available) = (updated.unwrap_or(0), available.unwrap_or(0));
    (updated < wanted || available < wanted).then(|| {
        Fault::Waiting(format!("{part}: of {wanted} pods {updated} are the wanted ones, {available} are available"))
    })
}

/// What selects the pods of a StatefulSet of a release, as a query; nothing where the set is not of that release.
pub fn pods_of(set: &Value, release: &str, namespace: &str) -> Option<String> {
    let mark = |part: &str| {
        let marks = set.pointer("/metadata/annotations")?;
        marks.get(format!("meta.helm.sh/release-{part}"))?.as_str()
    };
    if mark("name") != Some(release) || mark("namespace") != Some(namespace) {
        return None;
    }
    let labels = set.pointer("/spec/selector/matchLabels").and_then(Value::as_object)?;
    let words: Option<Vec<String>> =
        labels.iter().map(|(key, value)| Some(format!("{key}={}", value.as_str()?))).collect();
    words.filter(|words| !words.is_empty()).map(|words| words.join(","))
}

/// True for a pod that its StatefulSet waits for in vain: it is not ready, and of another revision than the wanted one.
/// Kubernetes replaces no pod of a set before all of them are ready, so that the way back from a version that does not come
/// up ends at the pod of that version, unless somebody takes it away.
pub fn is_in_the_way(set: &Value, pod: &Value) -> bool {
    let text = |object: &Value, pointer: &str| -> Option<String> {
        let found = object.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
        found.map(str::to_owned)
    };
    let number = |pointer: &str| set.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
    // Which revision is wanted is known only of what was looked at, and pods that somebody keeps back are his.
    let looked_at = number("/status/observedGeneration") >= number("/metadata/generation");
    let kept = text(set, "/spec/updateStrategy/type").as_deref() == Some("OnDelete")
        || number("/spec/updateStrategy/rollingUpdate/partition") > 0;
    let of = |list: &str, field: &str, wanted: &str, then: &dyn Fn(&Value) -> bool| {
        let list = pod.pointer(list).and_then(Value::as_array);
        let found = |entry: &&Value| entry.get(field).and_then(Value::as_str) == Some(wanted);
        list.into_iter().flatten().find(found).is_some_and(then)
    };
    let any = |_: &Value| true;
    let owned = text(set, "/metadata/uid").is_some_and(|uid| of("/metadata/ownerReferences", "uid", &uid, &any));
    let going = pod.pointer("/metadata/deletionTimestamp").is_some();
    let is_true = |condition: &Value| condition.get("status").and_then(Value::as_str) == Some("True");
    let ready = of("/status/conditions", "type", "Ready", &is_true);
    let revisions = text(set, "/status/updateRevision").zip(text(pod, "/metadata/labels/controller-revision-hash"));
    let other = revisions.is_some_and(|(wanted, found)| wanted != found);
    looked_at && !kept && owned && !going && !ready && other
}

/// True for hooks of a release of which one is a test.
pub fn has_tests(hooks: &[Value]) -> bool {
    let is_test = |hook: &Value| {
        let marks = hook.pointer("/metadata/annotations").and_then(|marks| marks.get("helm.sh/hook")?.as_str());
        marks.is_some_and(|marks| marks.split(',').any(|mark| matches!(mark.trim(), "test" | "test-success")))
    };
    hooks.iter().any(is_test)
}

/// True for two renderings that are the same objects, in whatever order.
pub fn same_objects(one: &[Value], other: &[Value]) -> bool {
    fn ordered(objects: &[Value]) -> Vec<(String, &Value)> {
        let text = |object: &Value, pointer: &str| object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let identity = |object: &Value| {
            let parts = ["/apiVersion", "/kind", "/metadata/namespace", "/metadata/name"];
            parts.map(|part| text(object, part).unwrap_or_default()).join(" ")
        };
        // A template that gives nothing leaves an empty document.
        let there = objects.iter().filter(|object| !object.is_null());
        let mut all: Vec<(String, &Value)> = there.map(|object| (identity(object), object)).collect();
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        all
    }
    ordered(one) == ordered(other)
}

/// The annotation that says what an object was applied as: its digest, without this.
pub const APPLIED: &str = "forge.projectcatalyst.io/applied";

/// An object as it is applied where [`says`] decides whether it is: with the digest of all that it says, because what is wanted no
/// longer cannot be told from what the server added.
pub fn stamped(mut object: Value) -> Value {
    let digest = Digest::of_json(&object);
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        let mut marks = metadata.remove("annotations").filter(Value::is_object).unwrap_or_else(|| json!({}));
        if let Value::Object(marks) = &mut marks {
            marks.insert(APPLIED.to_owned(), json!(digest));
        }
        metadata.insert("annotations".to_owned(), marks);
    }
    object
}

/// True for an object that already says all that is wanted of it; what else it says is the server's, or somebody else's, or was
/// wanted once: see [`stamped`].
pub fn says(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        // The API server leaves out what is empty.
        (Value::Object(live), Value::Object(wanted)) => wanted.iter().all(|(key, wanted)| match live.get(key) {
            Some(live) => says(live, wanted),
            None => is_empty(wanted),
        }),
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len() && live.iter().zip(wanted).all(|(live, wanted)| says(live, wanted))
        }
        _ => live == wanted,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(kind: &str) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": kind,
            "metadata": {"name": "server", "generation": 2},
            "spec": {"replicas": 2, "template": {"spec": {
                "initContainers": [{"image": "init:1"}], "containers": [{"image": "server:1"}],
            }}},
            "status": {"observedGeneration": 2, "updatedReplicas": 2, "availableReplicas": 2},
        })
    }

    fn with(pointer: &str, value: Value) -> Value {
        let mut object = workload("Deployment");
        *object.pointer_mut(pointer).unwrap() = value;
        object
    }

    fn definition(status: &str) -> Value {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "applications.argoproj.io"},
            "status": {"conditions": [
                {"type": "NamesAccepted", "status": "True"}, {"type": "Established", "status": status},
            ]},
        })
    }

    #[test]
    fn workloads_and_definitions_are_looked_at_and_nothing_else() {
        let others = [
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "server"}}),
            json!({"apiVersion": "example.com/v1", "kind": "Deployment", "metadata": {"name": "server"}}),
            json!(null),
        ];
        assert_eq!(parts(&others, "argocd"), []);
        let found = parts(&[workload("StatefulSet"), definition("True")], "argocd");
        assert_eq!(found[0].images, ["init:1", "server:1"]);
        assert_eq!(found[0].namespace.as_deref(), Some("argocd"));
        assert_eq!(found[1].to_string(), "CustomResourceDefinition applications.argoproj.io");
        assert_eq!(found[1].namespace, None);
    }

    #[test]
    fn a_part_is_proven_when_it_is_available_with_the_wanted_image() {
        let parts = parts(&[workload("Deployment"), definition("True")], "argocd");
        assert_eq!(fault(&parts[0], Some(&workload("Deployment"))), None);
        assert_eq!(fault(&parts[1], Some(&definition("True"))), None);
        assert!(matches!(fault(&parts[1], Some(&definition("False"))), Some(Fault::Waiting(_))));
        assert!(matches!(fault(&parts[0], None), Some(Fault::Broken(why)) if why == "Deployment server is gone"));
        let other = with("/spec/template/spec/containers/0/image", json!("server:2"));
        assert!(matches!(fault(&parts[0], Some(&other)), Some(Fault::Broken(why)) if why.contains("`server:1`")));
        let more = with("/spec/template/spec/containers", json!([{"image": "sidecar:1"}, {"image": "server:1"}]));
        assert_eq!(fault(&parts[0], Some(&more)), None);
        for (pointer, value) in [
            ("/status/observedGeneration", json!(1)),
            ("/status/updatedReplicas", json!(1)),
            ("/status/availableReplicas", json!(0)),
            ("/status", json!({})),
        ] {
            assert!(matches!(fault(&parts[0], Some(&with(pointer, value))), Some(Fault::Waiting(_))), "{pointer}");
        }
        assert_eq!(fault(&parts[0], Some(&with("/spec/replicas", json!(0)))), None);
    }

    fn set() -> Value {
        json!({
            "metadata": {
                "name": "controller", "uid": "u", "generation": 3,
                "annotations": {"meta.helm.sh/release-name": "argo-cd", "meta.helm.sh/release-namespace": "argocd"},
            },
            "spec": {
                "selector": {"matchLabels": {"app.kubernetes.io/name": "controller", "part": "x"}},
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
            },
            "status": {"observedGeneration": 3, "updateRevision": "controller-good"},
        })
    }

    fn pod(revision: &str, ready: &str) -> Value {
        json!({
            "metadata": {
                "name": "controller-0", "labels": {"controller-revision-hash": revision},
                "ownerReferences": [{"kind": "StatefulSet", "uid": "u"}],
            },
            "status": {"conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": ready}]},
        })
    }

    #[test]
    fn only_a_pod_of_another_revision_that_is_not_ready_is_in_the_way() {
        let broken = pod("controller-broken", "False");
        assert!(is_in_the_way(&set(), &broken));
        assert!(!is_in_the_way(&set(), &pod("controller-good", "False")));
        assert!(!is_in_the_way(&set(), &pod("controller-broken", "True")));
        let changed = |object: &Value, pointer: &str, value: Value| {
            let mut object = object.clone();
            *object.pointer_mut(pointer).unwrap() = value;
            object
        };
        for (pointer, value) in [
            ("/metadata/uid", json!("another")),
            ("/metadata/uid", json!(null)),
            ("/metadata/generation", json!(4)),
            ("/status/updateRevision", json!("")),
            ("/status", json!({})),
            ("/spec/updateStrategy/type", json!("OnDelete")),
            ("/spec/updateStrategy/rollingUpdate/partition", json!(1)),
        ] {
            assert!(!is_in_the_way(&changed(&set(), pointer, value), &broken), "{pointer}");
        }
        for (pointer, value) in [
            ("/metadata/labels", json!({})),
            ("/metadata/ownerReferences", json!([{"uid": "another"}])),
            ("/metadata", json!(null)),
        ] {
            assert!(!is_in_the_way(&set(), &changed(&broken, pointer, value)), "{pointer}");
        }
        let mut going = broken.clone();
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert!(!is_in_the_way(&set(), &going));
        // One that was never looked at is not ready either.
        assert!(is_in_the_way(&set(), &changed(&broken, "/status", json!({}))));
    }

    #[test]
    fn pods_are_looked_for_only_of_sets_of_the_release() {
        let selector = pods_of(&set(), "argo-cd", "argocd");
        assert_eq!(selector.as_deref(), Some("app.kubernetes.io/name=controller,part=x"));
        assert_eq!(pods_of(&set(), "argo-cd", "elsewhere"), None);
        assert_eq!(pods_of(&set(), "other", "argocd"), None);
        let mut odd = set();
        odd["spec"]["selector"] = json!({"matchLabels": {}});
        // An empty selector would be that of every pod.
        assert_eq!(pods_of(&odd, "argo-cd", "argocd"), None);
        odd["spec"]["selector"] = json!({"matchLabels": {"x": 1}});
        assert_eq!(pods_of(&odd, "argo-cd", "argocd"), None);
        assert_eq!(pods_of(&json!(null), "argo-cd", "argocd"), None);
    }

    #[test]
    fn a_test_is_known_by_its_hook() {
        let hook = |marks: &str| json!({"metadata": {"annotations": {"helm.sh/hook": marks}}});
        assert!(has_tests(&[hook("pre-install"), hook("post-install, test")]));
        assert!(!has_tests(&[hook("pre-install,pre-upgrade"), json!({})]));
    }

    #[test]
    fn renderings_are_the_same_whatever_their_order_and_not_where_anything_differs() {
        let (a, b) = (workload("Deployment"), definition("True"));
        assert!(same_objects(&[a.clone(), json!(null), b.clone()], &[b.clone(), a.clone()]));
        assert!(!same_objects(&[a.clone(), b.clone()], std::slice::from_ref(&a)));
        assert!(!same_objects(&[a, b.clone()], &[with("/spec/replicas", json!(3)), b]));
        assert!(same_objects(&[], &[]));
    }

    #[test]
    fn an_object_says_what_is_wanted_whatever_the_server_added() {
        let live = json!({"a": {"b": 1, "added": true}, "list": [{"x": 1, "scope": "*"}]});
        assert!(says(&live, &json!({"a": {"b": 1}, "list": [{"x": 1}], "rules": []})));
        let more = json!({"list": [{"x": 1}, {"x": 2}]});
        for other in [json!({"a": {"b": 2}}), json!({"list": []}), json!({"c": 1}), more] {
            assert!(!says(&live, &other), "{other}");
        }
    }

    #[test]
    fn what_is_wanted_no_longer_is_a_difference_by_the_digest_of_what_was_applied() {
        let role = |rule: Value| json!({"metadata": {"name": "a", "annotations": {"b": "c"}}, "rules": [rule]});
        let before = role(json!({"verbs": ["get"], "resourceNames": ["x"]}));
        let now = role(json!({"verbs": ["get"]}));
        assert!(says(&before, &now));
        assert!(!says(&stamped(before.clone()), &stamped(now.clone())));
        assert!(says(&stamped(before.clone()), &stamped(before)));
        let now = stamped(now);
        let marks = &now["metadata"]["annotations"];
        assert!(marks["b"] == "c" && marks[APPLIED].as_str().is_some_and(|digest| digest.starts_with("sha256:")));
        // What has none yet gets it.
        assert!(stamped(json!({"metadata": {}}))["metadata"]["annotations"][APPLIED].is_string());
    }
}
