//! What a release says of itself: where it comes from, who built it, what it holds. JSON, with a published schema.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Limits, ReleaseError, json, whole};
use crate::digest::{CommitId, Digest};
use crate::name::{EnvironmentName, ProjectId, clip};
use crate::oci::Descriptor;

/// The version of the format that is written and read.
pub const SCHEMA_VERSION: u32 = 1;

/// The metadata of a release.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseMetadata {
    /// The version of this format.
    #[schemars(extend("const" = SCHEMA_VERSION))]
    pub schema_version: u32,
    /// The project, as `repo/project`.
    pub project: ProjectId,
    /// What it was built from.
    pub source: Source,
    /// What built it.
    pub builder: Builder,
    /// The version that people give it, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// What was built along with it, in the order of references.
    #[serde(default)]
    pub artifacts: Vec<ArtifactReference>,
    /// The layers of resources by environment; `default` is for all that have none of their own.
    pub resources: BTreeMap<String, LayerSummary>,
}

/// Where a release comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Source {
    /// The repository, as it is cloned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// The commit.
    pub commit: CommitId,
    /// The folder inside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// The program that built a release.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Builder {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// Something that was built along with a release: an image, a chart, a schema.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactReference {
    /// Where it is, without its digest.
    pub reference: String,
    /// Which it is.
    pub digest: Digest,
}

/// What a layer of resources holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LayerSummary {
    /// The digest of the layer as it is transferred.
    pub digest: Digest,
    /// How many documents there are.
    pub documents: u32,
    /// How many of each kind, by `Kind.group`.
    pub kinds: BTreeMap<String, u32>,
    /// The CustomResourceDefinitions, by name.
    #[serde(default)]
    pub definitions: Vec<String>,
    /// The images, each fixed by digest.
    #[serde(default)]
    pub images: Vec<String>,
}

impl ReleaseMetadata {
    /// Reads the metadata that a manifest points at. Fields that we do not know are left alone: a later Forge may say more.
    ///
    /// # Errors
    /// When these are not the bytes that the descriptor promises, or are not metadata of a version that we know.
    pub fn read(bytes: &[u8], descriptor: &Descriptor, limits: &Limits) -> Result<Self, ReleaseError> {
        let what = "the metadata of the release";
        if bytes.len() > limits.manifest {
            let (found, limit) = (bytes.len() as u64, limits.manifest as u64);
            return Err(ReleaseError::TooLarge { what: what.to_owned(), found, limit, unit: "bytes" });
        }
        whole(what, bytes, descriptor)?;
        let value = json::read(what, bytes, limits.depth)?;
        match value.get("schemaVersion").and_then(serde_json::Value::as_u64) {
            Some(version) if version == u64::from(SCHEMA_VERSION) => {}
            Some(version) => {
                let why = format!("schemaVersion is {version}, expected {SCHEMA_VERSION}; a newer Forge may read it");
                return Err(ReleaseError::malformed(what, why));
            }
            None => return Err(ReleaseError::malformed(what, format!("schemaVersion is not {SCHEMA_VERSION}"))),
        }
        if json::has_control_characters(&value) {
            return Err(ReleaseError::malformed(what, "a text holds control characters, expected none"));
        }
        let read: Self =
            serde_json::from_value(value).map_err(|error| ReleaseError::malformed(what, clip(&error.to_string())))?;
        if let Some(name) = read.resources.keys().find(|name| name.parse::<EnvironmentName>().is_err()) {
            let why = format!("`{}` in resources is not the name of an environment", clip(name));
            return Err(ReleaseError::malformed(what, why));
        }
        Ok(read)
    }

    /// As it is stored: sorted keys, no spaces.
    pub fn bytes(&self) -> Vec<u8> {
        // Texts, numbers, and maps whose keys are texts: nothing that JSON cannot hold.
        let mut value = serde_json::to_value(self).unwrap_or_default();
        value.sort_all_objects();
        value.to_string().into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oci::Layout;

    fn sample() -> ReleaseMetadata {
        let summary = LayerSummary {
            digest: Digest::of(b"layer"),
            documents: 2,
            kinds: [("Deployment.apps".to_owned(), 1), ("Service".to_owned(), 1)].into(),
            definitions: Vec::new(),
            images: vec![format!("docker.io/library/nginx@{}", Digest::of(b"image"))],
        };
        ReleaseMetadata {
            schema_version: SCHEMA_VERSION,
            project: "shop/api".parse().unwrap(),
            source: Source {
                repository: None,
                commit: "0".repeat(40).parse().unwrap(),
                path: Some("deploy".to_owned()),
            },
            builder: Builder { name: "forge".to_owned(), version: "0.1.0".to_owned() },
            version: None,
            artifacts: Vec::new(),
            resources: [("default".to_owned(), summary)].into(),
        }
    }

    fn read(bytes: &[u8]) -> Result<ReleaseMetadata, ReleaseError> {
        let descriptor = Layout::default().blob(crate::release::media_type::METADATA, bytes.to_vec());
        ReleaseMetadata::read(bytes, &descriptor, &Limits::default())
    }

    #[test]
    fn what_is_written_reads_back_and_is_in_order() {
        let bytes = sample().bytes();
        assert_eq!(read(&bytes).unwrap(), sample());
        let text = String::from_utf8(bytes).unwrap();
        assert!(
            text.starts_with(r#"{"artifacts":[],"builder":{"name":"forge","version":"0.1.0"},"project":"shop/api","#)
        );
        assert!(!text.contains("repository") && !text.contains(r#""version":null"#), "{text}");
    }

    #[test]
    fn what_a_later_forge_adds_is_left_alone_but_another_version_is_refused() {
        let with = |field: &str, value: serde_json::Value| {
            let mut metadata = serde_json::to_value(sample()).unwrap();
            metadata[field] = value;
            read(metadata.to_string().as_bytes())
        };
        assert_eq!(with("new", serde_json::json!({"a": [1]})).unwrap(), sample());
        let refused = with("schemaVersion", 2.into()).unwrap_err().to_string();
        assert!(refused.contains("schemaVersion is 2, expected 1"), "{refused}");
        let refused = with("version", "1.0\u{1b}[2J".into()).unwrap_err().to_string();
        assert!(refused.contains("control characters"), "{refused}");
        let refused = with("project", "shop".into()).unwrap_err().to_string();
        assert!(refused.contains("repo/project"), "{refused}");
        let resources = serde_json::json!({"../dev": serde_json::to_value(sample()).unwrap()["resources"]["default"]});
        assert!(with("resources", resources).unwrap_err().to_string().contains("`../dev` in resources"));
    }
}
