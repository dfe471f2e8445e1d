//! Something that is still there: what keeps it, whose that is, and since when. Finalizers are named and never stripped
//! silently; a [`Target`] is one object that a person gave up by name.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::duration::Duration;
use crate::name::clip;
use crate::view::{between, shown};

/// Finalizers that Kubernetes and Argo CD set themselves, of which no field says whose they are.
const KNOWN: [(&str, &str); 10] = [
    ("foregroundDeletion", "the garbage collector, which waits for what it owns"),
    ("orphan", "the garbage collector"),
    ("kubernetes", "the namespace controller, which waits for what is in it"),
    ("kubernetes.io/pvc-protection", "the volume controller, which waits for the pods that use it"),
    ("kubernetes.io/pv-protection", "the volume controller, which waits for its claim"),
    ("external-provisioner.volume.kubernetes.io/finalizer", "the provisioner of its storage class"),
    ("service.kubernetes.io/load-balancer-cleanup", "the cloud controller, which removes the load balancer"),
    ("customresourcecleanup.apiextensions.k8s.io", "the API server, which waits for its instances"),
    ("resources-finalizer.argocd.argoproj.io", "Argo CD"),
    ("batch.kubernetes.io/job-tracking", "the job controller"),
];

/// A finalizer, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finalizer {
    /// Its name.
    pub name: String,
    /// Who set it, by the fields of the object or because everybody knows it; absent where neither says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

impl fmt::Display for Finalizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.owner {
            Some(owner) => write!(f, "`{}` of {}", clip(&self.name), clip(owner)),
            None => write!(f, "`{}` of an unknown owner", clip(&self.name)),
        }
    }
}

impl Finalizer {
    /// Those in the metadata of an object.
    pub(super) fn all(live: &Value) -> Vec<Self> {
        let names = live.pointer("/metadata/finalizers").and_then(Value::as_array).into_iter().flatten();
        names.filter_map(Value::as_str).map(|name| Self::of(live, name)).collect()
    }

    fn of(live: &Value, name: &str) -> Self {
        Self { name: name.to_owned(), owner: owner(live, name) }
    }
}

/// An object that is still there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Remnant {
    /// `Kind/namespace/name`, or `Kind/name`.
    pub object: String,
    /// Since when it is being deleted; absent where nobody asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleting: Option<Timestamp>,
    /// What keeps it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<Finalizer>,
    /// Why it is not known whether it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread: Option<String>,
}

impl Remnant {
    /// An object as it was read, of which the metadata are enough.
    pub fn read(object: &str, live: &Value) -> Self {
        let mut finalizers = Finalizer::all(live);
        // Those of a namespace are elsewhere.
        let elsewhere = live.pointer("/spec/finalizers").and_then(Value::as_array).into_iter().flatten();
        finalizers.extend(elsewhere.filter_map(Value::as_str).map(|name| Finalizer::of(live, name)));
        let deleting = live.pointer("/metadata/deletionTimestamp").and_then(Value::as_str);
        Self {
            object: object.to_owned(),
            deleting: deleting.and_then(|text| text.parse().ok()),
            finalizers,
            unread: None,
        }
    }

    /// One of which nobody can say whether it is there.
    pub fn unread(object: &str, why: &str) -> Self {
        Self { object: object.to_owned(), deleting: None, finalizers: Vec::new(), unread: Some(why.to_owned()) }
    }

    /// For how long it is being deleted.
    pub fn age(&self, now: Timestamp) -> Option<Duration> {
        self.deleting.map(|since| between(since, now))
    }

    /// With its age.
    pub fn told(&self, now: Timestamp) -> String {
        match self.age(now) {
            Some(age) if self.unread.is_none() => format!("{self} for {age}"),
            _ => self.to_string(),
        }
    }
}

impl fmt::Display for Remnant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let object = shown(&self.object);
        if let Some(why) = &self.unread {
            return write!(f, "{object}, which cannot be read: {}", shown(why));
        }
        match (self.deleting, self.finalizers.as_slice()) {
            (None, _) => write!(f, "{object}, which nobody asked to go"),
            (Some(_), []) => write!(f, "{object}, which is being deleted"),
            (Some(_), finalizers) => {
                let names: Vec<String> = finalizers.iter().map(ToString::to_string).collect();
                write!(f, "{object}, kept by {}", names.join(" and "))
            }
        }
    }
}

/// Who set a finalizer: by the fields that managers own, else because everybody knows it.
fn owner(live: &Value, name: &str) -> Option<String> {
    let entries = live.pointer("/metadata/managedFields").and_then(Value::as_array);
    let key = format!("v:{}", Value::from(name));
    let owns = |entry: &&Value| {
        let fields = entry.pointer("/fieldsV1/f:metadata/f:finalizers");
        fields.and_then(|fields| fields.get(key.as_str())).is_some()
    };
    let found = entries.into_iter().flatten().find(owns);
    let manager = found.and_then(|entry| entry.get("manager")).and_then(Value::as_str).filter(|m| !m.is_empty());
    let known = KNOWN.iter().find(|(known, _)| *known == name || name.starts_with(&format!("{known}/")));
    manager.map(str::to_owned).or_else(|| known.map(|(_, owner)| (*owner).to_owned()))
}

/// One object whose finalizers a person gives up: `Kind/namespace/name`, or `Kind/name` where it is in no namespace. The kind
/// may carry its group: `CephCluster.ceph.rook.io/storage/main`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// Its kind.
    pub kind: String,
    /// Its group; absent where the kind alone says enough.
    pub group: Option<String>,
    /// Its namespace; empty where it is in none.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// A text that names no object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` names no object: write it as `Kind/namespace/name`, or `Kind/name` where it is in no namespace")]
pub struct ParseTargetError(String);

impl FromStr for Target {
    type Err = ParseTargetError;
    fn from_str(text: &str) -> Result<Self, ParseTargetError> {
        let error = || ParseTargetError(clip(text));
        let parts: Vec<&str> = text.split('/').collect();
        let (kind, namespace, name) = match parts.as_slice() {
            [kind, name] => (*kind, "", *name),
            [kind, namespace, name] => (*kind, *namespace, *name),
            _ => return Err(error()),
        };
        let plain = |text: &str| {
            !text.is_empty()
                && text.len() <= 253
                && text.chars().all(|c| c.is_ascii_alphanumeric() || "-._:".contains(c))
        };
        let (kind, group) = kind.split_once('.').map_or((kind, None), |(kind, group)| (kind, Some(group)));
        let begins = kind.starts_with(|c: char| c.is_ascii_uppercase());
        let placed = parts.len() == 2 || plain(namespace);
        if !begins || !plain(kind) || !plain(name) || !placed {
            return Err(error());
        }
        if group.is_some_and(|group| !plain(group)) {
            return Err(error());
        }
        let (kind, namespace, name) = (kind.to_owned(), namespace.to_owned(), name.to_owned());
        Ok(Self { kind, group: group.map(str::to_owned), namespace, name })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        if let Some(group) = &self.group {
            write!(f, ".{group}")?;
        }
        if !self.namespace.is_empty() {
            write!(f, "/{}", self.namespace)?;
        }
        write!(f, "/{}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    #[test]
    fn what_keeps_an_object_is_named_with_its_owner_and_its_age() {
        let live = json!({"metadata": {
            "deletionTimestamp": at(0).to_string(),
            "finalizers": ["ceph.rook.io/disaster", "kubernetes.io/pvc-protection", "x.example.com/y"],
            "managedFields": [
                {"manager": "kubectl", "fieldsV1": {"f:metadata": {"f:labels": {}}}},
                {"manager": "rook", "fieldsV1": {"f:metadata": {"f:finalizers": {"v:\"ceph.rook.io/disaster\"": {}}}}},
            ],
        }});
        let found = Remnant::read("CephCluster/storage/main", &live);
        let owners: Vec<Option<&str>> = found.finalizers.iter().map(|f| f.owner.as_deref()).collect();
        assert_eq!(owners, [Some("rook"), Some("the volume controller, which waits for the pods that use it"), None]);
        let told = found.told(at(185));
        assert!(told.starts_with("CephCluster/storage/main, kept by `ceph.rook.io/disaster` of rook and "), "{told}");
        assert!(told.contains("`x.example.com/y` of an unknown owner") && told.ends_with(" for 3m5s"), "{told}");
        let text = serde_json::to_string(&found).unwrap();
        assert_eq!(serde_json::from_str::<Remnant>(&text).unwrap(), found);
    }

    #[test]
    fn a_namespace_has_its_finalizers_elsewhere_and_what_nobody_asked_to_go_says_so() {
        let namespace =
            json!({"metadata": {"deletionTimestamp": at(0).to_string()}, "spec": {"finalizers": ["kubernetes"]}});
        let told = Remnant::read("Namespace/shop", &namespace).to_string();
        assert_eq!(
            told,
            "Namespace/shop, kept by `kubernetes` of the namespace controller, which waits for what is in it"
        );
        let plain = Remnant::read("ConfigMap/shop/x", &json!({"metadata": {}}));
        assert_eq!(plain.told(at(9)), "ConfigMap/shop/x, which nobody asked to go");
        let unread = Remnant::unread("Secret/shop/x", "secrets is forbidden");
        assert_eq!(unread.told(at(9)), "Secret/shop/x, which cannot be read: secrets is forbidden");
    }

    #[test]
    fn a_target_is_one_object_and_reads_back_as_itself() {
        for text in ["PersistentVolumeClaim/shop/data-0", "CephCluster.ceph.rook.io/storage/main", "Namespace/shop"] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
        for bad in
            ["", "x", "/a/b", "pvc/shop/data", "Kind/a/b/c", "Kind//b", "Kind/a/", "Kind/a/*", "Kind./a/b", "Kind/a b"]
        {
            assert!(bad.parse::<Target>().is_err(), "{bad}");
        }
    }
}
