//! Whether an object is of a namespace or of the whole cluster: as Argo CD manages it, as its definition says, or as Kubernetes
//! has it.

use std::collections::{BTreeMap, BTreeSet};

use super::{Managed, text};
use crate::release::Document;

/// Kinds of Kubernetes, and of what nearly everybody has, that are of the whole cluster.
const GLOBAL: &[(&str, &str)] = &[
    ("", "Namespace"),
    ("", "Node"),
    ("", "PersistentVolume"),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicy"),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
    ("apiregistration.k8s.io", "APIService"),
    ("certificates.k8s.io", "CertificateSigningRequest"),
    ("certificates.k8s.io", "ClusterTrustBundle"),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"),
    ("networking.k8s.io", "IngressClass"),
    ("networking.k8s.io", "IPAddress"),
    ("networking.k8s.io", "ServiceCIDR"),
    ("node.k8s.io", "RuntimeClass"),
    ("rbac.authorization.k8s.io", "ClusterRole"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
    ("resource.k8s.io", "DeviceClass"),
    ("resource.k8s.io", "ResourceSlice"),
    ("scheduling.k8s.io", "PriorityClass"),
    ("storage.k8s.io", "CSIDriver"),
    ("storage.k8s.io", "CSINode"),
    ("storage.k8s.io", "StorageClass"),
    ("storage.k8s.io", "VolumeAttachment"),
    ("storage.k8s.io", "VolumeAttributesClass"),
];

/// Groups of Kubernetes itself.
const OWN: &[&str] = &[
    "",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
];

/// What is known about kinds.
#[derive(Debug, Default)]
pub struct Scopes<'s> {
    managed: Option<&'s BTreeSet<Managed>>,
    /// By group and kind, whether a definition says `Namespaced`.
    defined: BTreeMap<(&'s str, &'s str), bool>,
}

impl<'s> Scopes<'s> {
    /// From what Argo CD manages, and the definitions among documents.
    pub fn new(managed: Option<&'s BTreeSet<Managed>>, documents: &'s [Document]) -> Self {
        let mut defined = BTreeMap::new();
        for document in documents.iter().filter(|document| document.is_definition()) {
            let value = &document.value;
            if let (Some(group), Some(kind)) = (text(value, "/spec/group"), text(value, "/spec/names/kind")) {
                defined.insert((group, kind), text(value, "/spec/scope") == Some("Namespaced"));
            }
        }
        Self { managed, defined }
    }

    /// Whether an object is of a namespace; nothing where nobody says.
    pub fn is_namespaced(&self, document: &Document) -> Option<bool> {
        let (group, kind) = (document.group(), document.kind.as_str());
        if document.namespace.is_some() {
            return Some(true);
        }
        let same = |one: &&Managed| one.group == group && one.kind == kind;
        if let Some(one) = self.managed.and_then(|all| all.iter().find(same)) {
            return Some(!one.namespace.is_empty());
        }
        if let Some(namespaced) = self.defined.get(&(group, kind)) {
            return Some(*namespaced);
        }
        OWN.contains(&group).then(|| !GLOBAL.contains(&(group, kind)))
    }
}
