//! What an Application had made, as far as was known when its removal was planned, and whether that is gone. Each member is
//! looked for by its name: that a listing does not have it says nothing (INV-10).

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Creator, Remnant, creator};
use crate::name::clip;

/// What the removal of a node is about: fixed when the run was planned, so that whoever goes on knows it too.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Removal {
    /// The Application as Kubernetes knows it; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Its AppProject.
    #[serde(default)]
    pub project: String,
    /// It deploys to the cluster that runs Argo CD: what it made can be looked for. Elsewhere Argo CD's word must do.
    #[serde(default)]
    pub here: bool,
    /// The namespace that it deploys to; empty where it names none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub destination: String,
    /// The namespaces that anything of it is in, with the one that it deploys to. Some may be somebody else's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// What it has made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<Member>,
}

/// An object that an Application has made, directly or not.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// The API group; empty for the core.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The version.
    pub version: String,
    /// The kind.
    pub kind: String,
    /// Empty where it is in none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The name.
    pub name: String,
    /// As Kubernetes knows it, where that is known: another one of its name is another object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            return write!(f, "{}/{}", clip(&self.kind), clip(&self.name));
        }
        write!(f, "{}/{}/{}", clip(&self.kind), clip(&self.namespace), clip(&self.name))
    }
}

/// Kinds that come and go by themselves, and that nobody has to wait for.
const PASSING: [&str; 1] = ["Event"];

/// What an Application has made: what it manages by its status, and what its tree shows below that.
pub fn members(application: &Value, tree: &Value) -> Vec<Member> {
    let list = |value: &Value, pointer: &str| -> Vec<Value> {
        value.pointer(pointer).and_then(Value::as_array).cloned().unwrap_or_default()
    };
    let mut found: BTreeMap<(String, String, String, String), Member> = BTreeMap::new();
    let all = list(application, "/status/resources").into_iter().chain(list(tree, "/nodes"));
    for item in all {
        let text = |key: &str| item.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (group, version, kind) = (text("group"), text("version"), text("kind"));
        let (namespace, name, uid) = (text("namespace"), text("name"), text("uid"));
        if kind.is_empty() || name.is_empty() || version.is_empty() || PASSING.contains(&kind.as_str()) {
            continue;
        }
        let key = (group.clone(), kind.clone(), namespace.clone(), name.clone());
        let known = found.entry(key).or_insert(Member { group, version, kind, namespace, name, uid: None });
        if !uid.is_empty() {
            known.uid = Some(uid);
        }
    }
    found.into_values().collect()
}

/// What looking for the members of a node came to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Clearance {
    /// What is still there and has to go.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<Remnant>,
    /// What stays, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<Kept>,
}

/// An object that stays.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Kept {
    /// `Kind/namespace/name`.
    pub object: String,
    /// Why.
    pub why: String,
}

/// How many objects of a kind are written down: the record of a run has limits.
const MOST: usize = 20;

impl Clearance {
    /// Adds what is known of one member. Of very many only the first are written down; one that is left is never forgotten.
    pub fn add(&mut self, judged: Result<Option<Kept>, Remnant>) {
        match judged {
            Ok(None) => {}
            Ok(Some(kept)) if self.kept.len() < MOST => self.kept.push(kept),
            Err(remnant) if self.left.len() < MOST => self.left.push(remnant),
            Ok(Some(_)) | Err(_) => {}
        }
    }
}

/// Whether a member is gone (nothing), stays for a reason, or is still in the way. `live` is what somebody found who asked for
/// it by name.
///
/// # Errors
/// With what is still there.
pub fn judge(member: &Member, live: Option<&Value>) -> Result<Option<Kept>, Remnant> {
    let Some(live) = live else { return Ok(None) };
    let text = |pointer: &str| live.pointer(pointer).and_then(Value::as_str);
    if let (Some(known), Some(found)) = (member.uid.as_deref(), text("/metadata/uid"))
        && known != found
    {
        // Another one of its name.
        return Ok(None);
    }
    let left = || Err(Remnant::read(&member.to_string(), live));
    if text("/metadata/deletionTimestamp").is_some() {
        return left();
    }
    match staying(member, live) {
        Some(why) => Ok(Some(Kept { object: member.to_string(), why: why.to_owned() })),
        None => left(),
    }
}

/// Why an object of a node stays.
fn staying(member: &Member, live: &Value) -> Option<&'static str> {
    let kept = live.pointer("/metadata/annotations").and_then(|all| all.get("helm.sh/resource-policy"));
    let kept = kept.and_then(Value::as_str) == Some("keep");
    if is_definition(member) {
        return Some(NEVER_DELETED);
    }
    let claim = member.group.is_empty() && member.kind == "PersistentVolumeClaim";
    let claim = claim.then_some("nothing owns the claim: it goes with its namespace, its volume by policy");
    left_alone(kept, is_undeleted(live)).or(claim)
}

/// Why a definition is still there when its node is gone.
const NEVER_DELETED: &str = "Argo CD never deletes definitions";

/// A definition: it goes when nothing of it is there any more, and never with its node.
pub fn is_definition(member: &Member) -> bool {
    member.group == "apiextensions.k8s.io" && member.kind == "CustomResourceDefinition"
}

/// Why a definition that a node had brought stays, as far as it says so itself: its chart keeps it, Argo CD is told not to
/// delete it, or somebody else has it.
pub fn definition_stays(definition: &Value, application: &str) -> Option<String> {
    let mark = |key: &str| definition.pointer("/metadata/annotations")?.get(key)?.as_str();
    if let Some(why) = left_alone(mark("helm.sh/resource-policy") == Some("keep"), is_undeleted(definition)) {
        return Some(why.to_owned());
    }
    if let Some(release) = mark("meta.helm.sh/release-name") {
        return Some(format!("Helm release {} brought it", clip(release)));
    }
    // Outside of Argo CD's namespace the name is `<namespace>_<name>`.
    match creator(definition) {
        Some(by @ Creator::Application(_)) if !names(&by, application) => Some(format!("{by} has it")),
        Some(by @ Creator::Set(_)) => Some(format!("{by} has it")),
        _ => None,
    }
}

fn names(by: &Creator, application: &str) -> bool {
    let Creator::Application(name) = by else { return false };
    name == application || name.rsplit_once('_').is_some_and(|(_, name)| name == application)
}

/// Argo CD is told not to delete an object.
pub(super) fn is_undeleted(object: &Value) -> bool {
    let options = object.pointer("/metadata/annotations").and_then(|all| all.get("argocd.argoproj.io/sync-options"));
    let options = options.and_then(Value::as_str).unwrap_or_default();
    options.split(',').any(|option| option.trim() == "Delete=false")
}

/// Why Argo CD leaves an object that it manages, if it does. `kept` is what its chart says, `undeleted` what the object says to
/// Argo CD.
pub(super) fn left_alone(kept: bool, undeleted: bool) -> Option<&'static str> {
    if undeleted {
        return Some("it says Delete=false");
    }
    kept.then_some("its chart keeps it")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn member(kind: &str) -> Member {
        let (group, version) = (String::new(), "v1".to_owned());
        let (namespace, name) = ("shop".to_owned(), "x".to_owned());
        Member { group, version, kind: kind.to_owned(), namespace, name, uid: Some("1".to_owned()) }
    }

    #[test]
    fn members_are_what_is_managed_and_what_is_below_it_each_once() {
        let application = json!({"status": {"resources": [
            {"group": "apps", "version": "v1", "kind": "Deployment", "namespace": "shop", "name": "api"},
            {"version": "v1", "kind": "ConfigMap", "namespace": "shop", "name": "api"},
            {"kind": "Nameless", "version": "v1"},
        ]}});
        let tree = json!({"nodes": [
            {"group": "apps", "version": "v1", "kind": "Deployment", "namespace": "shop", "name": "api", "uid": "1"},
            {"version": "v1", "kind": "Pod", "namespace": "shop", "name": "api-1", "uid": "2"},
            {"version": "v1", "kind": "Event", "namespace": "shop", "name": "api.1", "uid": "3"},
        ]});
        let found: Vec<String> = members(&application, &tree).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["ConfigMap/shop/api", "Pod/shop/api-1", "Deployment/shop/api"]);
        assert_eq!(members(&application, &tree)[2].uid.as_deref(), Some("1"));
        assert!(members(&json!({}), &json!(null)).is_empty());
    }

    #[test]
    fn what_nobody_finds_is_gone_and_another_one_of_its_name_is_another_one() {
        assert_eq!(judge(&member("ConfigMap"), None), Ok(None));
        assert_eq!(judge(&member("ConfigMap"), Some(&json!({"metadata": {"uid": "2"}}))), Ok(None));
        let there = judge(&member("ConfigMap"), Some(&json!({"metadata": {"uid": "1"}})));
        assert_eq!(there.unwrap_err().to_string(), "ConfigMap/shop/x, which nobody asked to go");
    }

    #[test]
    fn what_argo_cd_leaves_stays_with_its_reason_unless_it_is_going() {
        let mut crd = member("CustomResourceDefinition");
        crd.group = "apiextensions.k8s.io".to_owned();
        let plain = json!({"metadata": {"uid": "1"}});
        let keep = json!({"metadata": {"uid": "1", "annotations": {"helm.sh/resource-policy": "keep"}}});
        let option =
            json!({"metadata": {"annotations": {"argocd.argoproj.io/sync-options": "Prune=false,Delete=false"}}});
        for (member, live, why) in [
            (&crd, &plain, "Argo CD never deletes definitions"),
            (&member("Secret"), &keep, "its chart keeps it"),
            (&member("Application"), &option, "it says Delete=false"),
            (
                &member("PersistentVolumeClaim"),
                &plain,
                "nothing owns the claim: it goes with its namespace, its volume by policy",
            ),
        ] {
            let kept = judge(member, Some(live)).unwrap().unwrap();
            assert_eq!(kept.why, why);
        }
        let going = json!({"metadata": {"uid": "1", "deletionTimestamp": "2026-11-16T10:00:00Z"}});
        assert!(judge(&member("PersistentVolumeClaim"), Some(&going)).is_err());
    }

    #[test]
    fn a_definition_stays_where_its_chart_or_somebody_else_wants_it() {
        let of = |annotations: Value| {
            let definition = json!({"metadata": {"name": "widgets.example.com", "annotations": annotations}});
            definition_stays(&definition, "dev-operator")
        };
        let tracking = "argocd.argoproj.io/tracking-id";
        for own in [json!({}), json!({tracking: "dev-operator:x:y"}), json!({tracking: "apps_dev-operator:x:y"})] {
            assert_eq!(of(own.clone()), None, "{own}");
        }
        for (annotations, why) in [
            (json!({"helm.sh/resource-policy": "keep"}), "its chart keeps it"),
            (json!({"argocd.argoproj.io/sync-options": "Delete=false"}), "it says Delete=false"),
            (json!({"meta.helm.sh/release-name": "operator"}), "Helm release operator brought it"),
            (json!({tracking: "qa-operator:x:y"}), "Application qa-operator has it"),
        ] {
            assert_eq!(of(annotations).as_deref(), Some(why));
        }
    }

    #[test]
    fn a_clearance_stays_small_and_never_forgets_that_something_is_left() {
        let mut clearance = Clearance::default();
        for _ in 0..100 {
            clearance.add(judge(&member("ConfigMap"), Some(&json!({}))));
            clearance.add(Ok(Some(Kept { object: "a".to_owned(), why: "b".to_owned() })));
            clearance.add(Ok(None));
        }
        assert_eq!((clearance.left.len(), clearance.kept.len()), (MOST, MOST));
    }
}
