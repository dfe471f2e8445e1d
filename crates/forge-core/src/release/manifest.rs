//! The manifest of a release: which layers there are, and for whom. Layers are found by media type and annotation, so that
//! a release that somebody else's tool made reads like one of ours.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{DEFAULT_LAYER, ENVIRONMENT, Limits, ReleaseError, ReleaseMetadata, json, media_type, same};
use crate::digest::Digest;
use crate::name::{EnvironmentName, clean, clip};
use crate::oci::{self, Annotations, Descriptor};

const WHAT: &str = "the manifest of the release";

/// The manifest of a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// Which it is.
    pub digest: Digest,
    /// Where that is which tools show that know of images alone; nobody who renders it reads it.
    pub config: Descriptor,
    /// Where its metadata is.
    pub metadata: Descriptor,
    /// Where its resources are, by environment.
    pub resources: BTreeMap<String, Descriptor>,
    /// What else it says.
    pub annotations: Annotations,
}

impl Manifest {
    /// Reads the manifest of this digest.
    ///
    /// # Errors
    /// When these are other bytes, or are not the manifest of a release.
    pub fn read(bytes: &[u8], wanted: &Digest, limits: &Limits) -> Result<Self, ReleaseError> {
        if bytes.len() > limits.manifest {
            return Err(too_large(WHAT, bytes.len() as u64, limits.manifest as u64));
        }
        same(WHAT, Digest::of(bytes), wanted)?;
        let value = json::read(WHAT, bytes, limits.depth, json::most_values(limits.manifest))?;
        let Value::Object(fields) = &value else {
            return Err(bad("it is not an object"));
        };
        if fields.get("schemaVersion").and_then(Value::as_u64) != Some(2) {
            return Err(bad("schemaVersion is not 2"));
        }
        if fields.contains_key("manifests") {
            return Err(bad("it is an index of several images, expected the manifest of one release"));
        }
        match text(fields, "mediaType")? {
            None | Some(oci::media_type::MANIFEST) => {}
            Some(other) => {
                return Err(bad(format!("mediaType is `{}`, expected `{}`", clip(other), oci::media_type::MANIFEST)));
            }
        }
        let config = descriptor("config", fields.get("config"))?;
        let artifact_type = text(fields, "artifactType")?.unwrap_or(&config.media_type);
        if artifact_type != media_type::RELEASE {
            let found = clip(artifact_type);
            return Err(bad(format!("artifactType is `{found}`, expected `{}`", media_type::RELEASE)));
        }
        let Some(Value::Array(layers)) = fields.get("layers") else {
            return Err(bad("layers is not a list"));
        };
        if layers.len() > limits.layers {
            let (found, limit) = (layers.len() as u64, limits.layers as u64);
            return Err(ReleaseError::TooLarge { what: WHAT.to_owned(), found, limit, unit: "layers" });
        }
        let (mut metadata, mut resources) = (None, BTreeMap::new());
        for (i, layer) in layers.iter().enumerate() {
            let at = format!("layers[{i}]");
            let layer = descriptor(&at, Some(layer))?;
            match layer.media_type.as_str() {
                media_type::METADATA => {
                    within(&at, &layer, limits.manifest as u64)?;
                    if metadata.replace(layer).is_some() {
                        return Err(bad(format!("{at} is a second layer of metadata, expected one")));
                    }
                }
                media_type::RESOURCES => {
                    within(&at, &layer, limits.compressed)?;
                    let environment = environment(&at, &layer)?;
                    if resources.insert(environment.clone(), layer).is_some() {
                        return Err(bad(format!(
                            "{at} is a second layer for environment `{environment}`, expected one"
                        )));
                    }
                }
                // What others add, for example a bill of materials, is theirs.
                _ => {}
            }
        }
        let Some(metadata) = metadata else {
            return Err(bad(format!("no layer is `{}`, expected one", media_type::METADATA)));
        };
        if resources.is_empty() {
            return Err(ReleaseError::Empty { what: "the release".to_owned() });
        }
        Ok(Self { digest: wanted.clone(), config, metadata, resources, annotations: annotations("it", fields)? })
    }

    /// The layer of resources for an environment: its own, or the one for all.
    ///
    /// # Errors
    /// When there is neither.
    pub fn layer(&self, environment: &str) -> Result<&Descriptor, ReleaseError> {
        self.resources.get(environment).or_else(|| self.resources.get(DEFAULT_LAYER)).ok_or_else(|| {
            ReleaseError::NoLayer { environment: clip(environment), known: self.resources.keys().cloned().collect() }
        })
    }

    /// Compares what the metadata says with what the manifest has.
    ///
    /// # Errors
    /// When they do not speak of the same layers.
    pub fn agrees(&self, metadata: &ReleaseMetadata) -> Result<(), ReleaseError> {
        let bad = |why: String| Err(ReleaseError::malformed("the metadata of the release", why));
        for (environment, layer) in &self.resources {
            match metadata.resources.get(environment) {
                Some(summary) if summary.digest == layer.digest => {}
                Some(summary) => {
                    let (found, expected) = (&summary.digest, &layer.digest);
                    return bad(format!("resources for `{environment}` are `{found}`, the manifest has `{expected}`"));
                }
                None => {
                    return bad(format!(
                        "it does not speak of the resources for `{environment}` that the manifest has"
                    ));
                }
            }
        }
        match metadata.resources.keys().find(|environment| !self.resources.contains_key(*environment)) {
            Some(environment) => bad(format!("it speaks of resources for `{environment}`, which the manifest has not")),
            None => Ok(()),
        }
    }
}

/// Whether a manifest says of itself that it is a release. For those who look through a repository; to use one,
/// [`Manifest::read`] it.
pub fn is_ours(bytes: &[u8], limits: &Limits) -> bool {
    if bytes.len() > limits.manifest {
        return false;
    }
    let values = json::most_values(limits.manifest);
    let Ok(value) = json::parse(bytes, limits.depth, values) else { return false };
    let artifact_type = value.get("artifactType").or_else(|| value.pointer("/config/mediaType"));
    artifact_type.and_then(Value::as_str) == Some(media_type::RELEASE)
}

fn bad(why: impl Into<String>) -> ReleaseError {
    ReleaseError::malformed(WHAT, why)
}

fn too_large(what: &str, found: u64, limit: u64) -> ReleaseError {
    ReleaseError::TooLarge { what: what.to_owned(), found, limit, unit: "bytes" }
}

fn within(at: &str, layer: &Descriptor, limit: u64) -> Result<(), ReleaseError> {
    if layer.size > limit { Err(too_large(&format!("{at} of {WHAT}"), layer.size, limit)) } else { Ok(()) }
}

fn text<'f>(fields: &'f Map<String, Value>, field: &str) -> Result<Option<&'f str>, ReleaseError> {
    match fields.get(field) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(bad(format!("{field} is not a text"))),
    }
}

fn descriptor(at: &str, value: Option<&Value>) -> Result<Descriptor, ReleaseError> {
    let Some(Value::Object(fields)) = value else {
        return Err(bad(format!("{at} is not a descriptor")));
    };
    let required = |field: &str| text(fields, field)?.ok_or_else(|| bad(format!("{at} has no {field}")));
    let media_type = required("mediaType")?.to_owned();
    let digest = required("digest")?.parse::<Digest>().map_err(|error| bad(format!("{at}: {error}")))?;
    let Some(size) = fields.get("size").and_then(Value::as_u64) else {
        return Err(bad(format!("{at} has no size, expected a number of bytes")));
    };
    // Content is what the registry keeps under its digest; nothing is fetched from elsewhere.
    if fields.get("urls").is_some_and(|urls| urls.as_array().is_none_or(|urls| !urls.is_empty())) {
        return Err(bad(format!("{at} has urls, expected content in the registry")));
    }
    let artifact_type = text(fields, "artifactType")?.map(str::to_owned);
    let annotations = annotations(at, fields)?;
    Ok(Descriptor { media_type, digest, size, architecture: None, artifact_type, annotations })
}

fn annotations(at: &str, fields: &Map<String, Value>) -> Result<Annotations, ReleaseError> {
    let found = match fields.get("annotations") {
        None | Some(Value::Null) => return Ok(Annotations::new()),
        Some(Value::Object(found)) => found,
        Some(_) => return Err(bad(format!("{at} has annotations that are not a mapping"))),
    };
    let mut annotations = Annotations::new();
    for (name, value) in found {
        let Value::String(value) = value else {
            return Err(bad(format!("annotation `{}` of {at} is not a text", clip(name))));
        };
        // They are shown to people as they are.
        annotations.insert(clean(name).into_owned(), clean(value).into_owned());
    }
    Ok(annotations)
}

fn environment(at: &str, layer: &Descriptor) -> Result<String, ReleaseError> {
    let Some(environment) = layer.annotations.get(ENVIRONMENT) else {
        return Err(bad(format!(
            "{at} has no annotation `{ENVIRONMENT}`, expected an environment or `{DEFAULT_LAYER}`"
        )));
    };
    match environment.parse::<EnvironmentName>() {
        Ok(_) => Ok(environment.clone()),
        Err(error) => Err(bad(format!("annotation `{ENVIRONMENT}` of {at}: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::oci::Layout;

    fn blob(media_type: &str, bytes: &[u8]) -> Descriptor {
        Layout::default().blob(media_type, bytes.to_vec())
    }

    fn sample() -> Value {
        let resources = |environment: &str| {
            blob(media_type::RESOURCES, environment.as_bytes()).annotated(ENVIRONMENT, environment).json()
        };
        json!({
            "schemaVersion": 2, "mediaType": oci::media_type::MANIFEST, "artifactType": media_type::RELEASE,
            "config": blob(oci::media_type::EMPTY, b"{}").json(),
            "layers": [blob(media_type::METADATA, b"m").json(), resources("dev"), resources("default")],
            "annotations": {"a": "b\u{7}"},
        })
    }

    fn read(value: &Value) -> Result<Manifest, ReleaseError> {
        let bytes = value.to_string().into_bytes();
        Manifest::read(&bytes, &Digest::of(&bytes), &Limits::default())
    }

    #[test]
    fn layers_are_found_by_media_type_and_annotation() {
        let manifest = read(&sample()).unwrap();
        assert_eq!(manifest.layer("dev").unwrap().digest, Digest::of(b"dev"));
        assert_eq!(manifest.layer("production").unwrap().digest, Digest::of(b"default"));
        assert_eq!(manifest.metadata.digest, Digest::of(b"m"));
        assert_eq!(manifest.annotations["a"], "b\u{fffd}");
        let mut other = sample();
        other["layers"].as_array_mut().unwrap().remove(2);
        let manifest = read(&other).unwrap();
        let said = manifest.layer("production").unwrap_err();
        assert!(matches!(&said, ReleaseError::NoLayer { known, .. } if *known == ["dev"]), "{said}");
    }

    #[test]
    fn releases_of_other_tools_are_read() {
        // Tools of the first OCI say what it is in the configuration, some leave out what follows, some add their own.
        let mut other = sample();
        let fields = other.as_object_mut().unwrap();
        fields.remove("artifactType");
        fields.remove("mediaType");
        fields.remove("annotations");
        other["config"]["mediaType"] = media_type::RELEASE.into();
        other["layers"][0]["annotations"] = json!({"org.opencontainers.image.title": "metadata.json"});
        other["layers"][0]["data"] = "bQ==".into();
        other["layers"].as_array_mut().unwrap().push(blob("application/spdx+json", b"sbom").json());
        let bytes = other.to_string().into_bytes();
        assert!(is_ours(&bytes, &Limits::default()));
        assert_eq!(read(&other).unwrap().resources.len(), 2);
        assert!(!is_ours(b"{}", &Limits::default()));
        assert!(!is_ours(b"[", &Limits::default()));
    }

    #[test]
    fn metadata_must_speak_of_the_same_layers() {
        let manifest = read(&sample()).unwrap();
        let summary = |of: &[u8]| json!({"digest": Digest::of(of), "documents": 1, "kinds": {}});
        let agrees = |resources: Value| {
            let metadata: ReleaseMetadata = serde_json::from_value(json!({
                "schemaVersion": 1, "project": "shop/api", "source": {"commit": "0".repeat(40)},
                "builder": {"name": "x", "version": "1"}, "resources": resources,
            }))
            .unwrap();
            manifest.agrees(&metadata).map_or_else(|error| error.to_string(), |()| "yes".to_owned())
        };
        let (dev, default) = (summary(b"dev"), summary(b"default"));
        assert_eq!(agrees(json!({"dev": dev, "default": default})), "yes");
        assert!(agrees(json!({"dev": default, "default": default})).contains("resources for `dev` are `sha256:"));
        assert!(agrees(json!({"dev": dev})).contains("does not speak of the resources for `default`"));
        let more = json!({"dev": dev, "default": default, "staging": dev});
        assert!(agrees(more).contains("speaks of resources for `staging`"));
    }
}
