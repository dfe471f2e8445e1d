//! The receipt of an installation (INV-11): a ConfigMap that says what was installed and what of it was proven. It says
//! nothing that changes without a change, so that a second run writes nothing (INV-2).

use serde_json::{Value, json};

use super::{Part, Wanted};
use crate::name::clip;
use crate::preflight::Component;
use crate::render::{MANAGED_BY, is_ours};

/// What was installed and proven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// The chart.
    pub chart: String,
    /// Its version.
    pub version: String,
    /// The digest of chart and values.
    pub digest: String,
    /// The revision of the Helm release.
    pub revision: u64,
    /// What was proven.
    pub parts: Vec<Part>,
}

/// The name of the receipt of a part of Argo.
pub fn receipt_name(component: Component) -> String {
    format!("forge-install-{}", component.release())
}

/// True for a ConfigMap that Forge made.
pub fn receipt_is_ours(config_map: &Value) -> bool {
    is_ours(config_map)
}

impl Receipt {
    /// A receipt of what is wanted, as this revision.
    pub fn new(wanted: &Wanted, revision: u64, parts: Vec<Part>) -> Self {
        Self {
            chart: wanted.chart.name.to_owned(),
            version: wanted.version.clone(),
            digest: wanted.digest.to_string(),
            revision,
            parts,
        }
    }

    /// Reads a receipt; nothing where it is not one of ours, or says nothing that could be believed.
    pub fn read(config_map: &Value) -> Option<Self> {
        if !receipt_is_ours(config_map) {
            return None;
        }
        let text = |key: &str| config_map.pointer("/data")?.get(key)?.as_str();
        Some(Self {
            chart: clip(text("chart")?),
            version: clip(text("version")?),
            digest: clip(text("digest")?),
            revision: text("revision")?.parse().ok()?,
            parts: serde_json::from_str(text("parts")?).ok()?,
        })
    }

    /// As the ConfigMap of a part of Argo.
    pub fn object(&self, component: Component, namespace: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": receipt_name(component), "namespace": namespace, "labels": {MANAGED_BY: "forge"}},
            "data": {
                "chart": self.chart, "version": self.version, "digest": self.digest,
                "revision": self.revision.to_string(), "parts": json!(self.parts).to_string(),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receipt() -> Receipt {
        let part = Part {
            kind: "Deployment".to_owned(),
            name: "argocd-server".to_owned(),
            namespace: Some("argocd".to_owned()),
            images: vec!["argocd:v3".to_owned()],
        };
        Receipt {
            chart: "argo-cd".to_owned(),
            version: "9.2.0".to_owned(),
            digest: "sha256:00".to_owned(),
            revision: 2,
            parts: vec![part],
        }
    }

    #[test]
    fn a_receipt_is_read_as_it_was_written_and_says_no_time() {
        let object = receipt().object(Component::Cd, "argocd");
        assert_eq!(Receipt::read(&object), Some(receipt()));
        assert_eq!(object["metadata"]["name"], "forge-install-argo-cd");
        assert_eq!(object, receipt().object(Component::Cd, "argocd"));
    }

    #[test]
    fn what_does_not_carry_our_label_or_cannot_be_read_is_no_receipt() {
        let mut foreign = receipt().object(Component::Cd, "argocd");
        foreign["metadata"]["labels"] = json!({MANAGED_BY: "Helm"});
        assert_eq!(Receipt::read(&foreign), None);
        for (key, value) in [("revision", "-1"), ("parts", "{}"), ("parts", "")] {
            let mut odd = receipt().object(Component::Cd, "argocd");
            odd["data"][key] = json!(value);
            assert_eq!(Receipt::read(&odd), None, "{key}: {value}");
        }
        assert_eq!(Receipt::read(&json!(null)), None);
    }
}
