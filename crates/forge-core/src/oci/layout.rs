//! Image layouts: blobs by digest, and an index of what is meant to be found.
//!
//! An image is one layer, its configuration and a manifest; an artifact is anything else that a registry keeps, with or
//! without a subject that it speaks of. JSON is written without spaces and with sorted keys.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Architecture, OciError, REF_NAME, Tree, gzip, media_type};
use crate::digest::Digest;

/// Annotations and labels by their names.
pub type Annotations = BTreeMap<String, String>;

/// What points at a blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Descriptor {
    /// What it is.
    pub media_type: String,
    /// Which it is.
    pub digest: Digest,
    /// How many bytes it has.
    pub size: u64,
    /// For what processor, where that matters.
    pub architecture: Option<Architecture>,
    /// What kind of artifact, where it is the manifest of one.
    pub artifact_type: Option<String>,
    /// What else is said about it.
    pub annotations: Annotations,
}

impl Descriptor {
    /// What points at these bytes, and says nothing else about them.
    pub fn of(media_type: &str, bytes: &[u8]) -> Self {
        Self {
            media_type: media_type.to_owned(),
            digest: Digest::of(bytes),
            size: bytes.len() as u64,
            architecture: None,
            artifact_type: None,
            annotations: Annotations::new(),
        }
    }

    /// The descriptor with another annotation.
    #[must_use]
    pub fn annotated(mut self, name: &str, value: &str) -> Self {
        self.annotations.insert(name.to_owned(), value.to_owned());
        self
    }

    /// As OCI writes it.
    pub fn json(&self) -> Value {
        let mut value = json!({"mediaType": self.media_type, "digest": self.digest, "size": self.size});
        if let Value::Object(fields) = &mut value {
            if let Some(architecture) = self.architecture {
                fields.insert("platform".to_owned(), json!({"architecture": architecture.as_str(), "os": "linux"}));
            }
            if let Some(artifact_type) = &self.artifact_type {
                fields.insert("artifactType".to_owned(), json!(artifact_type));
            }
        }
        with_annotations(value, &self.annotations)
    }

    /// The tag under which registries that know nothing of subjects keep what speaks of this one.
    pub fn referrers_tag(&self) -> String {
        self.digest.as_str().replace(':', "-")
    }
}

/// Whether a layer is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// As it is: for a registry on the same machine.
    None,
    /// By gzip.
    Gzip,
}

/// How a container of an image starts, unless it is told otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// User and group, by number.
    pub user: String,
    /// Variables of its environment.
    pub environment: BTreeMap<String, String>,
    /// What is started.
    pub entrypoint: Vec<String>,
    /// Where.
    pub working_folder: String,
    /// What tools show of it.
    pub labels: Annotations,
}

/// An image to be made.
#[derive(Debug, Clone, Copy)]
pub struct Image<'i> {
    /// For what processor.
    pub architecture: Architecture,
    /// All that it holds.
    pub tree: &'i Tree,
    /// How it starts.
    pub config: &'i Config,
    /// What its manifest says about it.
    pub annotations: &'i Annotations,
    /// Whether its layer is compressed.
    pub compression: Compression,
    /// When it was made, for those who look.
    pub time: Timestamp,
}

/// An artifact to be made.
#[derive(Debug, Clone, Copy)]
pub struct Artifact<'a> {
    /// What it is.
    pub artifact_type: &'a str,
    /// What it holds: blobs of the same layout.
    pub layers: &'a [Descriptor],
    /// What it speaks of, if of anything; need not be in the same layout.
    pub subject: Option<&'a Descriptor>,
    /// What its manifest says about it.
    pub annotations: &'a Annotations,
    /// The digests of what its layers unpack to, where tools that know of images alone are to show it too.
    pub shown: Option<&'a [Digest]>,
}

impl<'a> Artifact<'a> {
    /// One that speaks of nothing and is not shown as an image: most are for who knows them alone.
    pub fn new(artifact_type: &'a str, layers: &'a [Descriptor], annotations: &'a Annotations) -> Self {
        Self { artifact_type, layers, subject: None, annotations, shown: None }
    }
}

/// Blobs, and those of them that are meant to be found.
#[derive(Debug, Default)]
pub struct Layout {
    blobs: BTreeMap<Digest, Vec<u8>>,
    roots: Vec<Descriptor>,
}

impl Layout {
    /// Stores bytes.
    pub fn blob(&mut self, media_type: &str, bytes: Vec<u8>) -> Descriptor {
        let descriptor = Descriptor::of(media_type, &bytes);
        self.blobs.insert(descriptor.digest.clone(), bytes);
        descriptor
    }

    /// Stores an image, and gives its manifest.
    ///
    /// # Errors
    /// When its tree cannot be archived.
    pub fn image(&mut self, image: &Image<'_>) -> Result<Descriptor, OciError> {
        let archive = image.tree.archive(image.time)?;
        let difference = Digest::of(&archive);
        let layer = match image.compression {
            Compression::None => self.blob(media_type::LAYER, archive),
            Compression::Gzip => self.blob(media_type::LAYER_GZIP, gzip(&archive)?),
        };
        let Config { user, environment, entrypoint, working_folder, labels } = image.config;
        let variables: Vec<String> = environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let config = json!({
            "architecture": image.architecture.as_str(),
            "os": "linux",
            "created": image.time.to_string(),
            "config": {
                "User": user, "Env": variables, "Entrypoint": entrypoint, "WorkingDir": working_folder, "Labels": labels,
            },
            "rootfs": {"type": "layers", "diff_ids": [difference]},
        });
        let config = self.blob(media_type::CONFIG, written(config));
        let manifest = json!({
            "schemaVersion": 2, "mediaType": media_type::MANIFEST, "config": config.json(), "layers": [layer.json()],
        });
        let manifest = written(with_annotations(manifest, image.annotations));
        let manifest = self.blob(media_type::MANIFEST, manifest);
        Ok(Descriptor { architecture: Some(image.architecture), ..manifest })
    }

    /// Stores an artifact, and gives its manifest.
    pub fn artifact(&mut self, artifact: &Artifact<'_>) -> Descriptor {
        let config = match artifact.shown {
            None => self.blob(media_type::EMPTY, b"{}".to_vec()),
            // An image that runs nowhere.
            Some(unpacked) => self.blob(
                media_type::CONFIG,
                written(json!({
                    "architecture": "unknown", "os": "unknown", "config": {"Labels": artifact.annotations},
                    "rootfs": {"type": "layers", "diff_ids": unpacked},
                })),
            ),
        };
        let layers: Vec<Value> = artifact.layers.iter().map(Descriptor::json).collect();
        let mut manifest = json!({
            "schemaVersion": 2, "mediaType": media_type::MANIFEST, "artifactType": artifact.artifact_type,
            "config": config.json(), "layers": layers,
        });
        if let (Value::Object(fields), Some(subject)) = (&mut manifest, artifact.subject) {
            let subject = json!({"mediaType": subject.media_type, "digest": subject.digest, "size": subject.size});
            fields.insert("subject".to_owned(), subject);
        }
        let manifest = self.blob(media_type::MANIFEST, written(with_annotations(manifest, artifact.annotations)));
        let artifact_type = Some(artifact.artifact_type.to_owned());
        Descriptor { artifact_type, annotations: artifact.annotations.clone(), ..manifest }
    }

    /// Stores an index of manifests, in the order that is given.
    pub fn index(&mut self, manifests: &[Descriptor], annotations: &Annotations) -> Descriptor {
        let manifests: Vec<Value> = manifests.iter().map(Descriptor::json).collect();
        let index = json!({"schemaVersion": 2, "mediaType": media_type::INDEX, "manifests": manifests});
        self.blob(media_type::INDEX, written(with_annotations(index, annotations)))
    }

    /// Says of something in the layout that it is meant to be found, by this name if there are several.
    pub fn offer(&mut self, root: Descriptor, name: Option<&str>) {
        self.roots.push(match name {
            Some(name) => root.annotated(REF_NAME, name),
            None => root,
        });
    }

    /// The files of the layout.
    pub fn tree(self) -> Tree {
        let mut tree = Tree::default();
        let roots: Vec<Value> = self.roots.iter().map(Descriptor::json).collect();
        let index = json!({"schemaVersion": 2, "mediaType": media_type::INDEX, "manifests": roots});
        tree.file("index.json", written(index), 0o644);
        tree.file("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#.as_slice(), 0o644);
        for (digest, bytes) in self.blobs {
            tree.file(&format!("blobs/sha256/{}", digest.short(64)), bytes, 0o644);
        }
        tree
    }
}

fn with_annotations(mut value: Value, annotations: &Annotations) -> Value {
    if let (Value::Object(fields), false) = (&mut value, annotations.is_empty()) {
        fields.insert("annotations".to_owned(), json!(annotations));
    }
    value
}

/// JSON without spaces and with sorted keys.
fn written(mut value: Value) -> Vec<u8> {
    value.sort_all_objects();
    value.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oci::Entry;

    fn annotations() -> Annotations {
        [("b".to_owned(), "2".to_owned()), ("a".to_owned(), "1".to_owned())].into()
    }

    fn layout(compression: Compression) -> Layout {
        let mut tree = Tree::default();
        tree.file("usr/bin/run", b"#!/bin/sh\n".repeat(100), 0o755);
        let config = Config {
            user: "65532:65532".to_owned(),
            environment: [("PATH".to_owned(), "/usr/bin".to_owned())].into(),
            entrypoint: vec!["/usr/bin/run".to_owned()],
            working_folder: "/tmp".to_owned(),
            labels: annotations(),
        };
        let mut layout = Layout::default();
        let manifests: Vec<Descriptor> = Architecture::ALL
            .into_iter()
            .map(|architecture| {
                let (tree, config, annotations) = (&tree, &config, &annotations());
                let time = Timestamp::UNIX_EPOCH;
                layout.image(&Image { architecture, tree, config, annotations, compression, time }).unwrap()
            })
            .collect();
        let index = layout.index(&manifests, &annotations());
        layout.offer(index, Some("thing:v1"));
        layout
    }

    fn file<'t>(tree: &'t Tree, path: &str) -> &'t [u8] {
        match tree.get(path) {
            Some(Entry::File { content, .. }) => content,
            other => panic!("{path}: {other:?}"),
        }
    }

    /// The blob that a descriptor points at, which has the digest and the size that it says.
    fn blob<'t>(tree: &'t Tree, descriptor: &Value) -> &'t [u8] {
        let digest: Digest = descriptor["digest"].as_str().unwrap().parse().unwrap();
        let bytes = file(tree, &format!("blobs/sha256/{}", digest.short(64)));
        assert_eq!(Digest::of(bytes), digest);
        assert_eq!(descriptor["size"], bytes.len());
        bytes
    }

    fn json(bytes: &[u8]) -> Value {
        let value: Value = serde_json::from_slice(bytes).unwrap();
        let mut sorted = value.clone();
        sorted.sort_all_objects();
        // The order of keys is part of this comparison, because these are texts.
        assert_eq!(sorted.to_string().as_bytes(), bytes);
        value
    }

    #[test]
    fn every_descriptor_leads_to_a_blob_and_every_key_is_in_order() {
        for compression in [Compression::None, Compression::Gzip] {
            let tree = layout(compression).tree();
            assert_eq!(json(file(&tree, "oci-layout"))["imageLayoutVersion"], "1.0.0");
            let root = json(file(&tree, "index.json"));
            assert_eq!(root["manifests"][0]["annotations"][REF_NAME], "thing:v1");
            let index = json(blob(&tree, &root["manifests"][0]));
            assert_eq!(index["annotations"], json!(annotations()));
            let manifests = index["manifests"].as_array().unwrap();
            assert_eq!(manifests.len(), 2);
            for (manifest, architecture) in manifests.iter().zip(["amd64", "arm64"]) {
                assert_eq!(manifest["platform"], json!({"architecture": architecture, "os": "linux"}));
                let manifest = json(blob(&tree, manifest));
                let config = json(blob(&tree, &manifest["config"]));
                assert_eq!(config["architecture"], architecture);
                assert_eq!(config["created"], "1970-01-01T00:00:00Z");
                assert_eq!(config["config"]["User"], "65532:65532");
                assert_eq!(config["config"]["Env"], json!(["PATH=/usr/bin"]));
                let layer = blob(&tree, &manifest["layers"][0]);
                let same = manifest["layers"][0]["digest"] == config["rootfs"]["diff_ids"][0];
                assert_eq!(same, compression == Compression::None);
                assert_eq!(layer.starts_with(&[0x1f, 0x8b]), compression == Compression::Gzip);
            }
        }
    }

    #[test]
    fn the_same_input_gives_the_same_bytes() {
        let bytes = || layout(Compression::Gzip).tree().archive(Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(bytes(), bytes());
    }

    #[test]
    fn an_artifact_says_what_it_is_and_of_what_it_speaks() {
        let mut about = Layout::default();
        let subject = about.blob(media_type::MANIFEST, b"{}".to_vec());
        let mut layout = Layout::default();
        let content = layout.blob("application/vnd.example+json", br#"{"a":1}"#.to_vec());
        let (artifact_type, layers) = ("application/vnd.example", [content]);
        let annotations = annotations();
        let (annotations, about) = (&annotations, Some(&subject));
        let artifact = Artifact { subject: about, ..Artifact::new(artifact_type, &layers, annotations) };
        let made = layout.artifact(&artifact);
        assert_eq!(made.json()["artifactType"], artifact_type);
        let tag = subject.referrers_tag();
        assert!(tag.starts_with("sha256-") && tag.len() == 71, "{tag}");
        let index = layout.index(std::slice::from_ref(&made), &Annotations::new());
        layout.offer(index, Some(&tag));
        let tree = layout.tree();
        let manifest = json(blob(&tree, &made.json()));
        assert_eq!(manifest["artifactType"], artifact_type);
        assert_eq!(manifest["subject"]["digest"], subject.digest.as_str());
        assert_eq!(manifest["config"]["mediaType"], media_type::EMPTY);
        assert_eq!(blob(&tree, &manifest["config"]), b"{}");
        assert_eq!(blob(&tree, &manifest["layers"][0]), br#"{"a":1}"#);
        // What speaks of nothing has no such field.
        let alone = Layout::default().artifact(&Artifact { subject: None, ..artifact });
        assert_ne!(alone.digest, made.digest);
    }

    #[test]
    fn without_annotations_there_is_no_such_field() {
        let mut layout = Layout::default();
        let index = layout.index(&[], &Annotations::new());
        let tree = layout.tree();
        assert_eq!(json(blob(&tree, &index.json())).get("annotations"), None);
    }
}
