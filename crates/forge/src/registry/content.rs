//! What manifests and indexes refer to, read loosely: enough to fetch, to store and to pass on. Whether a release is one is
//! for `forge_core::release`.

use forge_core::digest::Digest;
use forge_core::oci::{Annotations, Descriptor, media_type};
use serde_json::{Value, json};

/// Manifests and indexes as Docker made them before there was a specification: for images that releases name.
pub(super) const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
/// See above.
pub(super) const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";

/// More annotations than anybody writes.
const MOST_ANNOTATIONS: usize = 256;
/// More blobs than a release may have, with room for what is copied and not ours.
const MOST_REFERENCES: usize = 256;

/// A descriptor as OCI writes it.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn descriptor(value: &Value) -> Result<Descriptor, String> {
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    let digest = text("digest").ok_or("a descriptor has no digest")?;
    let digest = digest.parse::<Digest>().map_err(|error| error.to_string())?;
    let size = value.get("size").and_then(Value::as_u64).ok_or_else(|| format!("{digest} has no size"))?;
    let annotations = match value.get("annotations") {
        Some(Value::Object(annotations)) if annotations.len() > MOST_ANNOTATIONS => {
            return Err(format!("{digest} has {} annotations", annotations.len()));
        }
        Some(Value::Object(annotations)) => {
            let one = |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
            annotations.iter().filter_map(one).collect()
        }
        _ => Annotations::new(),
    };
    Ok(Descriptor {
        media_type: text("mediaType").unwrap_or_default().to_owned(),
        digest,
        size,
        architecture: None,
        artifact_type: text("artifactType").map(str::to_owned),
        annotations,
    })
}

/// The descriptors of an index, those aside whose digests are not by SHA-256, at most so many.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn index(bytes: &[u8], most: usize) -> Result<Vec<Descriptor>, String> {
    let value: Value = serde_json::from_slice(bytes).map_err(|error| format!("it is no JSON: {error}"))?;
    let Some(Value::Array(manifests)) = value.get("manifests") else {
        return Err("it is no index: it has no list `manifests`".to_owned());
    };
    if manifests.len() > most {
        return Err(format!("it lists {} manifests; at most {most} are taken", manifests.len()));
    }
    let known =
        |value: &&Value| value.get("digest").and_then(Value::as_str).is_some_and(|text| text.starts_with("sha256:"));
    manifests.iter().filter(known).map(descriptor).collect()
}

/// An index with another entry, made of this one or of nothing. Whatever else it holds stays as it is.
pub(super) fn extended(index: Option<&[u8]>, more: &Descriptor) -> Vec<u8> {
    let mut value: Value = index.and_then(|bytes| serde_json::from_slice(bytes).ok()).unwrap_or_default();
    let mut manifests = match value.get_mut("manifests").map(Value::take) {
        Some(Value::Array(manifests)) => manifests,
        _ => Vec::new(),
    };
    manifests.push(more.json());
    let mut whole = json!({"schemaVersion": 2, "mediaType": media_type::INDEX, "manifests": manifests});
    if let (Value::Object(whole), Value::Object(fields)) = (&mut whole, value) {
        for (name, field) in fields {
            whole.entry(name).or_insert(field);
        }
    }
    whole.sort_all_objects();
    whole.to_string().into_bytes()
}

/// What a manifest refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct References {
    /// Its configuration and layers, each once.
    pub(crate) blobs: Vec<Descriptor>,
    /// What it speaks of.
    pub(crate) subject: Option<Descriptor>,
    /// What it is.
    pub(crate) artifact_type: Option<String>,
    /// What it says about itself.
    pub(crate) annotations: Annotations,
}

/// What a manifest, not an index, refers to.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn references(bytes: &[u8]) -> Result<References, String> {
    let value: Value = serde_json::from_slice(bytes).map_err(|error| format!("it is no JSON: {error}"))?;
    if value.get("manifests").is_some() {
        return Err("it is an index of manifests, not a manifest".to_owned());
    }
    let config = value.get("config").ok_or("it is no manifest: it has no `config`")?;
    let Some(Value::Array(layers)) = value.get("layers") else {
        return Err("it is no manifest: it has no list `layers`".to_owned());
    };
    if layers.len() > MOST_REFERENCES {
        return Err(format!("it lists {} layers; at most {MOST_REFERENCES} are taken", layers.len()));
    }
    let mut blobs: Vec<Descriptor> = Vec::new();
    for blob in std::iter::once(config).chain(layers) {
        let blob = descriptor(blob)?;
        match blobs.iter().find(|other| other.digest == blob.digest) {
            Some(other) if other.size != blob.size => {
                return Err(format!("{} has {} bytes and {} bytes", blob.digest, other.size, blob.size));
            }
            Some(_) => {}
            None => blobs.push(blob),
        }
    }
    let subject = value.get("subject").filter(|subject| !subject.is_null()).map(descriptor).transpose()?;
    let whole = descriptor(&serde_json::json!({
        "digest": Digest::of(bytes), "size": bytes.len(), "annotations": value.get("annotations"),
    }))?;
    let artifact_type = value.get("artifactType").and_then(Value::as_str).map(str::to_owned);
    let config_type = config.get("mediaType").and_then(Value::as_str);
    // Where an artifact does not say what it is, its configuration does.
    let artifact_type =
        artifact_type.or_else(|| config_type.filter(|kind| *kind != media_type::EMPTY).map(str::to_owned));
    Ok(References { blobs, subject, artifact_type, annotations: whole.annotations })
}

#[cfg(test)]
mod tests {
    use forge_core::oci::{Artifact, Entry, Layout};

    use super::*;

    #[test]
    fn what_our_own_layouts_write_is_read_back() {
        let mut layout = Layout::default();
        let layer = layout.blob("application/x", b"layer".to_vec()).annotated("a", "1");
        let subject = Layout::default().blob(media_type::MANIFEST, b"{}".to_vec());
        let annotations: Annotations = [("b".to_owned(), "2".to_owned())].into();
        let (layers, subject) = ([layer.clone(), layer.clone()], Some(&subject));
        let artifact = Artifact { subject, ..Artifact::new("application/y", &layers, &annotations) };
        let made = layout.artifact(&artifact);
        layout.offer(made.clone(), Some("name"));
        let tree = layout.tree();
        let file = |path: &str| match tree.get(path) {
            Some(Entry::File { content, .. }) => content.clone(),
            other => panic!("{path}: {other:?}"),
        };
        let bytes = file(&format!("blobs/sha256/{}", made.digest.short(64)));
        let found = references(&bytes).unwrap();
        assert_eq!(
            found.blobs.iter().map(|blob| &blob.digest).collect::<Vec<_>>(),
            [&Digest::of(b"{}"), &layer.digest]
        );
        assert_eq!(found.subject.as_ref(), subject);
        assert_eq!(found.artifact_type.as_deref(), Some("application/y"));
        assert_eq!(found.annotations, annotations);
        let roots = index(&file("index.json"), 10).unwrap();
        assert_eq!(roots.len(), 1);
        assert_eq!(roots[0].digest, made.digest);
        assert_eq!(descriptor(&layer.json()).unwrap(), layer);
    }

    #[test]
    fn what_is_no_manifest_is_said_to_be_none() {
        let digest = Digest::of(b"x");
        let blob = json!({"mediaType": "x", "digest": digest, "size": 1});
        let refused = |value: Value| references(value.to_string().as_bytes()).unwrap_err();
        assert!(references(b"<html>").unwrap_err().contains("no JSON"));
        assert!(refused(json!({"manifests": []})).contains("an index"));
        assert!(refused(json!({"layers": []})).contains("no `config`"));
        assert!(refused(json!({"config": blob})).contains("no list `layers`"));
        assert!(refused(json!({"config": blob, "layers": [{"digest": digest}]})).contains("no size"));
        assert!(
            refused(json!({"config": blob, "layers": [{"digest": "sha256:0", "size": 1}]})).contains("not a digest")
        );
        assert!(
            refused(json!({"config": blob, "layers": [{"digest": digest, "size": 2}]})).contains("1 bytes and 2 bytes")
        );
        assert!(refused(json!({"config": blob, "layers": vec![blob.clone(); 300]})).contains("300 layers"));
        assert!(index(br#"{"manifests":{}}"#, 1).is_err());
        let two = json!({"manifests": [blob, blob]}).to_string();
        assert!(index(two.as_bytes(), 1).unwrap_err().contains("at most 1"));
        let other = json!({"manifests": [{"digest": "sha512:00", "size": 1}, blob]}).to_string();
        assert_eq!(index(other.as_bytes(), 9).unwrap().len(), 1);
    }

    #[test]
    fn an_index_grows_and_keeps_what_is_not_read() {
        let one = Layout::default().blob(media_type::MANIFEST, b"one".to_vec());
        let first = extended(None, &one);
        assert_eq!(index(&first, 9).unwrap(), std::slice::from_ref(&one));
        let foreign = json!({"digest": "sha512:00", "size": 1, "platform": {"os": "plan9"}, "x": [1]});
        let theirs = json!({"schemaVersion": 2, "manifests": [foreign], "annotations": {"by": "them"}}).to_string();
        let grown = extended(Some(theirs.as_bytes()), &one);
        assert_eq!(index(&grown, 9).unwrap(), [one]);
        let grown: Value = serde_json::from_slice(&grown).unwrap();
        assert_eq!((&grown["manifests"][0], &grown["annotations"]["by"]), (&foreign, &json!("them")));
        assert_eq!(grown["mediaType"], media_type::INDEX);
    }
}
