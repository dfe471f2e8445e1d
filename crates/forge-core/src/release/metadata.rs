//! What a release says of itself: where it comes from, who built it, what it holds. JSON, with a published schema.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Document, ImageReference, Limits, ReleaseError, json, whole};
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

impl LayerSummary {
    /// What these documents, in a layer of this digest, come to.
    pub fn of(digest: &Digest, documents: &[Document]) -> Self {
        let mut kinds: BTreeMap<String, u32> = BTreeMap::new();
        let mut definitions = BTreeSet::new();
        let mut images = BTreeSet::new();
        for document in documents {
            let count = kinds.entry(document.kind_and_group()).or_default();
            *count = count.saturating_add(1);
            if document.is_definition() {
                definitions.insert(document.name.clone());
            }
            let named = document.images().into_iter();
            images.extend(named.filter_map(|found| Some(found.image.parse::<ImageReference>().ok()?.to_string())));
        }
        Self {
            digest: digest.clone(),
            documents: u32::try_from(documents.len()).unwrap_or(u32::MAX),
            kinds,
            definitions: definitions.into_iter().collect(),
            images: images.into_iter().collect(),
        }
    }
}

impl ReleaseMetadata {
    /// Compares what it says of a layer with what the layer holds: people read this, and nobody reads the layer.
    ///
    /// # Errors
    /// With the first difference.
    pub fn agrees(&self, environment: &str, layer: &LayerSummary) -> Result<(), ReleaseError> {
        let bad = |why: String| Err(ReleaseError::malformed("the metadata of the release", why));
        let of = format!("the layer for `{}`", clip(environment));
        let Some(said) = self.resources.get(environment) else {
            return bad(format!("it does not speak of {of}"));
        };
        if said.digest != layer.digest {
            return bad(format!("it says that {of} is `{}`, which is `{}`", said.digest, layer.digest));
        }
        if said.documents != layer.documents {
            return bad(format!("it says that {of} has {} documents, which has {}", said.documents, layer.documents));
        }
        let count = |kinds: &BTreeMap<String, u32>, kind: &str| kinds.get(kind).copied().unwrap_or_default();
        for kind in said.kinds.keys().chain(layer.kinds.keys()) {
            let (told, found) = (count(&said.kinds, kind), count(&layer.kinds, kind));
            if told != found {
                return bad(format!("it says that {of} has {told} of `{}`, which has {found}", clip(kind)));
            }
        }
        for (what, told, found) in
            [("definition", &said.definitions, &layer.definitions), ("image", &said.images, &layer.images)]
        {
            let (told, found): (BTreeSet<_>, BTreeSet<_>) = (told.iter().collect(), found.iter().collect());
            if let Some(name) = told.difference(&found).next() {
                return bad(format!("it says that {of} has {what} `{}`, which has not", clip(name)));
            }
            if let Some(name) = found.difference(&told).next() {
                return bad(format!("it does not say that {of} has {what} `{}`", clip(name)));
            }
        }
        Ok(())
    }

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
        let value = json::read(what, bytes, limits.depth, json::most_values(limits.manifest))?;
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
    fn what_it_says_of_a_layer_must_be_what_the_layer_holds() {
        let image = format!("docker.io/library/nginx@{}", Digest::of(b"image"));
        let text = format!(
            "---\napiVersion: v1\nkind: Service\nmetadata: {{name: a}}\n---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: a}}\nspec: {{template: {{spec: {{containers: [{{name: a, image: '{image}'}}]}}}}}}\n"
        );
        let documents = crate::release::documents("a.yaml", text.as_bytes(), &Limits::default()).unwrap();
        let held = LayerSummary::of(&Digest::of(b"layer"), &documents);
        assert_eq!(sample().resources["default"], held);
        sample().agrees("default", &held).unwrap();
        let told = |change: &dyn Fn(&mut LayerSummary)| {
            let mut metadata = sample();
            change(metadata.resources.get_mut("default").unwrap());
            metadata.agrees("default", &held).unwrap_err().to_string()
        };
        let said = told(&|said| said.digest = Digest::of(b"other"));
        assert!(said.contains("it says that the layer for `default` is `sha256:"), "{said}");
        let said = told(&|said| said.documents = 3);
        assert!(said.contains("the layer for `default` has 3 documents, which has 2"), "{said}");
        let said = told(&|said| said.kinds.clear());
        assert!(said.contains("has 0 of `Deployment.apps`, which has 1"), "{said}");
        let said = told(&|said| said.definitions.push("as.b.example".to_owned()));
        assert!(said.contains("has definition `as.b.example`, which has not"), "{said}");
        let said = told(&|said| said.images.clear());
        assert!(said.contains("it does not say that the layer for `default` has image `docker.io/"), "{said}");
        let said = told(&|said| said.images.push("quay.io/b".to_owned()));
        assert!(said.contains("has image `quay.io/b`, which has not"), "{said}");
        assert!(sample().agrees("dev", &held).unwrap_err().to_string().contains("does not speak of"));
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
