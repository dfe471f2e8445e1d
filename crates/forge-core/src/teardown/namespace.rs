//! Whose a namespace is, and what is in it that is somebody else's: what is ours by its labels goes when nothing foreign is left
//! in it, and everything else stays (INV-11).

use std::collections::BTreeSet;

use serde_json::Value;

use super::inventory::Kind;
use crate::name::{EnvironmentName, clip};
use crate::preflight::Component;
use crate::render::{ENVIRONMENT_LABEL, MANAGED_BY, is_ours};

/// Namespaces that are the cluster's own, whatever their labels say.
pub const PROTECTED: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// Kinds that are there because something else is: they come and go by themselves.
const DERIVED: [&str; 6] =
    ["Event", "Endpoints", "EndpointSlice", "PodMetrics", "ControllerRevision", "CSIStorageCapacity"];
/// What Kubernetes, or what many install beside it, puts into every namespace.
const EVERYWHERE: [(&str, &str); 6] = [
    ("ServiceAccount", "default"),
    ("ServiceAccount", "builder"),
    ("ServiceAccount", "deployer"),
    ("ConfigMap", "kube-root-ca.crt"),
    ("ConfigMap", "openshift-service-ca.crt"),
    ("ConfigMap", "istio-ca-root-cert"),
];
/// What Argo makes for itself where it runs, and what no chart takes along.
const OF_ARGO: [(&str, &str); 10] = [
    ("Secret", "argocd-initial-admin-secret"),
    ("Secret", "argocd-redis"),
    // Made again where one of Argo CD's processes was slower to end than Helm to delete.
    ("Secret", "argocd-secret"),
    ("ConfigMap", "argocd-cm"),
    ("AppProject", "default"),
    ("ConfigMap", "argocd-gpg-keys-cm"),
    ("ConfigMap", "argocd-app-controller-shard-cm"),
    ("Lease", "58ac56fa.applicationsets.argoproj.io"),
    ("Lease", "workflow-controller"),
    ("Lease", "argo-events-controller"),
];

/// An object in a namespace, of which the metadata are enough.
#[derive(Debug, Clone, PartialEq)]
pub struct Content {
    /// Its kind.
    pub kind: String,
    /// Its metadata, as an object has them.
    pub object: Value,
}

impl Content {
    fn name(&self) -> &str {
        self.object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
    }

    /// `Kind/namespace/name`, or `Kind/name`.
    pub fn id(&self) -> String {
        let (kind, name) = (clip(&self.kind), clip(self.name()));
        match self.object.pointer("/metadata/namespace").and_then(Value::as_str) {
            Some(namespace) if !namespace.is_empty() => format!("{kind}/{}/{name}", clip(namespace)),
            _ => format!("{kind}/{name}"),
        }
    }
}

fn name_of(namespace: &Value) -> &str {
    namespace.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

fn environment_of(object: &Value) -> Option<&str> {
    object.pointer("/metadata/labels")?.get(ENVIRONMENT_LABEL)?.as_str()
}

/// True for a namespace of this environment: it carries our label and the environment's.
pub fn is_environments(namespace: &Value, environment: &EnvironmentName) -> bool {
    let named = environment_of(namespace) == Some(environment.as_str());
    named && is_ours(namespace) && !PROTECTED.contains(&name_of(namespace))
}

/// True for a namespace that bootstrap made: it carries our label, and no environment's.
pub fn belongs(namespace: &Value) -> bool {
    is_ours(namespace) && environment_of(namespace).is_none() && !PROTECTED.contains(&name_of(namespace))
}

/// The first object of a namespace that keeps it: neither ours, nor Kubernetes' own, nor going, nor of something else that is in
/// it. `known` are objects that were a node's (`Kind/namespace/name`), and go with their namespace; `kinds` are those that the
/// cluster serves.
pub fn foreign<'c>(contents: &'c [Content], known: &BTreeSet<String>, kinds: &[Kind]) -> Option<&'c Content> {
    contents.iter().find(|content| !is_expected(content, known, kinds))
}

/// The first object of a namespace that bootstrap made that keeps it: what keeps any, and also a claim, because no policy for
/// volumes was ever asked about those.
pub fn foreign_beside_argo<'c>(contents: &'c [Content], kinds: &[Kind]) -> Option<&'c Content> {
    let none = BTreeSet::new();
    let claims = |content: &&Content| content.kind == "PersistentVolumeClaim" && !is_ours(&content.object);
    foreign(contents, &none, kinds).or_else(|| contents.iter().find(claims))
}

/// The first of these objects of Argo's kinds that somebody else has, so that Argo must stay for it: one that is going still needs
/// Argo to get to its end, and one that belongs to something is only nobody's where that is of Argo's kinds too, and asked about
/// itself.
pub fn user(instances: &[Content]) -> Option<&Content> {
    let of_argo = |owner: &Value| {
        let version = owner.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        version.starts_with("argoproj.io/")
    };
    instances.iter().find(|content| {
        let owners = content.object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        let below = owners.is_some_and(|owners| owners.iter().any(of_argo));
        let known = OF_ARGO.contains(&(content.kind.as_str(), content.name()));
        !below && !known && !is_ours(&content.object)
    })
}

/// An owner that is in no namespace: whose that is, nothing in this one says, and it does not go with it.
fn is_wide(owner: &Value, kinds: &[Kind]) -> bool {
    let text = |key: &str| owner.get(key).and_then(Value::as_str).unwrap_or_default();
    let group = text("apiVersion").rsplit_once('/').map_or("", |(group, _)| group);
    kinds.iter().any(|kind| !kind.namespaced && kind.kind == text("kind") && kind.group == group)
}

fn is_expected(content: &Content, known: &BTreeSet<String>, kinds: &[Kind]) -> bool {
    let named = |list: &[(&str, &str)]| list.contains(&(content.kind.as_str(), content.name()));
    let owners = content.object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let owned = owners.is_some_and(|owners| owners.iter().any(|owner| !is_wide(owner, kinds)));
    let going = content.object.pointer("/metadata/deletionTimestamp").is_some();
    // What is in a claim is kept or not by the policy that was chosen, before anything went.
    let claim = content.kind == "PersistentVolumeClaim";
    DERIVED.contains(&content.kind.as_str())
        || named(&EVERYWHERE)
        || named(&OF_ARGO)
        || owned
        || going
        || claim
        || is_token(content)
        || is_hook(content)
        || is_ours(&content.object)
        || known.contains(&content.id())
}

/// The Secret of an account that goes with it.
fn is_token(content: &Content) -> bool {
    let annotations = content.object.pointer("/metadata/annotations");
    let of_account = annotations.and_then(|all| all.get("kubernetes.io/service-account.name")).is_some();
    content.kind == "Secret" && of_account
}

/// What a chart of ours makes before or after its release, which Helm does not count to it and leaves.
fn is_hook(content: &Content) -> bool {
    let said = |place: &str, key: &str| content.object.pointer(place)?.get(key)?.as_str();
    let release = said("/metadata/labels", "app.kubernetes.io/instance");
    said("/metadata/annotations", "helm.sh/hook").is_some()
        && said("/metadata/labels", MANAGED_BY) == Some("Helm")
        && Component::ALL.iter().any(|part| release == Some(part.release()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn namespace(name: &str, labels: &Value) -> Value {
        json!({"metadata": {"name": name, "labels": labels}})
    }

    fn content(kind: &str, metadata: &Value) -> Content {
        Content { kind: kind.to_owned(), object: json!({"metadata": metadata}) }
    }

    fn kind(group: &str, name: &str, namespaced: bool) -> Kind {
        Kind {
            group: group.to_owned(),
            resource: format!("{}s", name.to_lowercase()),
            version: "v1".to_owned(),
            kind: name.to_owned(),
            namespaced,
            counts: true,
        }
    }

    fn hook(release: &str) -> Content {
        let labels = json!({MANAGED_BY: "Helm", "app.kubernetes.io/instance": release});
        let annotations = json!({"helm.sh/hook": "pre-install,pre-upgrade"});
        content("ServiceAccount", &json!({"name": "init", "labels": labels, "annotations": annotations}))
    }

    #[test]
    fn a_namespace_is_ours_by_both_labels_and_never_the_clusters_own() {
        let dev: EnvironmentName = "dev".parse().unwrap();
        let ours = json!({MANAGED_BY: "forge", ENVIRONMENT_LABEL: "dev"});
        assert!(is_environments(&namespace("shop", &ours), &dev));
        for other in [
            namespace("kube-system", &ours),
            namespace("shop", &json!({MANAGED_BY: "forge"})),
            namespace("shop", &json!({MANAGED_BY: "forge", ENVIRONMENT_LABEL: "qa"})),
            namespace("shop", &json!({ENVIRONMENT_LABEL: "dev"})),
            namespace("shop", &json!({MANAGED_BY: "helm", ENVIRONMENT_LABEL: "dev"})),
            json!({}),
        ] {
            assert!(!is_environments(&other, &dev), "{other}");
        }
        assert!(belongs(&namespace("argo", &json!({MANAGED_BY: "forge"}))));
        assert!(!belongs(&namespace("shop", &ours)) && !belongs(&namespace("default", &json!({MANAGED_BY: "forge"}))));
    }

    #[test]
    fn what_kubernetes_puts_there_is_nobodys_and_one_object_of_somebody_keeps_a_namespace() {
        let expected = [
            content("ServiceAccount", &json!({"name": "default"})),
            content("ConfigMap", &json!({"name": "kube-root-ca.crt"})),
            content("Event", &json!({"name": "x.1"})),
            content("Pod", &json!({"name": "x", "ownerReferences": [{"kind": "ReplicaSet"}]})),
            content("Secret", &json!({"name": "t", "annotations": {"kubernetes.io/service-account.name": "default"}})),
            hook("argo-cd"),
            content("PersistentVolumeClaim", &json!({"name": "data"})),
            content("Lease", &json!({"name": "workflow-controller"})),
            content("ConfigMap", &json!({"name": "x", "labels": {MANAGED_BY: "forge"}})),
            content("ConfigMap", &json!({"name": "going", "deletionTimestamp": "2026-11-16T10:00:00Z"})),
            content("ConfigMap", &json!({"name": "kept", "namespace": "shop"})),
        ];
        let known = BTreeSet::from(["ConfigMap/shop/kept".to_owned()]);
        let kinds = [kind("apps", "ReplicaSet", true), kind("team.example.com", "Platform", false)];
        assert_eq!(foreign(&expected, &known, &kinds), None);
        let kept = foreign(&expected, &BTreeSet::new(), &kinds);
        assert_eq!(kept.map(Content::id).as_deref(), Some("ConfigMap/shop/kept"));
        // Of something that is in no namespace: that stays, and so must this.
        let composed = json!([{"apiVersion": "team.example.com/v1", "kind": "Platform"}]);
        for somebodys in [
            content("ConfigMap", &json!({"name": "mine"})),
            content("Secret", &json!({"name": "mine", "ownerReferences": []})),
            content("ServiceAccount", &json!({"name": "mine"})),
            content("Deployment", &json!({"name": "mine", "ownerReferences": composed})),
            hook("mine"),
        ] {
            let all: Vec<Content> = expected.iter().cloned().chain([somebodys.clone()]).collect();
            assert_eq!(foreign(&all, &known, &kinds), Some(&somebodys));
        }
    }

    #[test]
    fn a_claim_beside_argo_is_somebodys_and_keeps_the_namespace() {
        let claim = |labels: Value| content("PersistentVolumeClaim", &json!({"name": "data", "labels": labels}));
        let usual = content("ServiceAccount", &json!({"name": "default"}));
        assert_eq!(foreign_beside_argo(&[usual.clone(), claim(json!({MANAGED_BY: "forge"}))], &[]), None);
        let all = [usual, claim(json!({}))];
        assert_eq!(foreign_beside_argo(&all, &[]), Some(&all[1]));
    }

    #[test]
    fn argo_stays_for_what_somebody_else_has_of_it_even_where_that_goes_or_belongs_to_something() {
        let owned = |version: &str| json!({"name": "a", "ownerReferences": [{"apiVersion": version, "kind": "X"}]});
        let nobodys = [
            content("Application", &owned("argoproj.io/v1alpha1")),
            content("Application", &json!({"name": "b", "labels": {MANAGED_BY: "forge"}})),
            content("AppProject", &json!({"name": "default"})),
        ];
        assert_eq!(user(&nobodys), None);
        for somebodys in [
            content("Application", &json!({"name": "c"})),
            content("Application", &owned("teams.example.com/v1")),
            content("Application", &json!({"name": "c", "deletionTimestamp": "2026-11-16T10:00:00Z"})),
        ] {
            let all: Vec<Content> = nobodys.iter().cloned().chain([somebodys.clone()]).collect();
            assert_eq!(user(&all), Some(&somebodys));
        }
    }
}
