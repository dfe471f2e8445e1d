//! Releases in the registry of a sandbox: built and pushed by the `forge` that is tested, or put together by hand where it would
//! not make them; and what becomes of a registry that lost something, or holds something else.
//!
//! The registry speaks plain HTTP, on an address that the host and pods reach alike, so `forge.yaml` names it by that. Whoever asks
//! it must be told that there is no TLS: [`PLAIN_HTTP`] says it to `forge`, and [`crate::twin::plugin_values`] to the plugin.

#![allow(clippy::panic, reason = "a driver of tests fails by panicking, with what it saw")]

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use forge_core::digest::{CommitId, Digest};
use forge_core::name::ProjectId;
use forge_core::oci::{OciError, Tree, gzip, media_type as oci};
use forge_core::release::metadata::SCHEMA_VERSION;
use forge_core::release::{Builder, DEFAULT_LAYER, ENVIRONMENT, LayerSummary, ReleaseMetadata, Source, media_type};
use jiff::Timestamp;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::platform::Platform;
use crate::registry_client::RegistryClient;
use crate::sandbox::{Ended, run};
use crate::twin::{File, Pointer};

/// The variable that names registries without TLS.
pub const PLAIN_HTTP: &str = "FORGE_PLAIN_HTTP_REGISTRIES";
/// Below this, releases are kept.
const PREFIX: &str = "releases";

/// Where the releases of a test are made and kept.
#[derive(Debug)]
pub struct Releases {
    forge: PathBuf,
    client: RegistryClient,
    storage: PathBuf,
    folder: TempDir,
}

/// A blob that is not what it was.
#[derive(Debug)]
#[must_use = "what is damaged stays so until it is mended"]
pub struct Damaged {
    file: PathBuf,
    bytes: Vec<u8>,
}

impl Damaged {
    /// Puts back what was there.
    pub fn mend(self) {
        replaced(&self.file, &self.bytes);
    }
}

/// The commit that a release of this text is said to be of.
pub fn commit(of: &str) -> CommitId {
    let digest = Digest::of(of.as_bytes());
    digest.short(40).parse::<CommitId>().unwrap_or_else(|error| panic!("{error}"))
}

impl Releases {
    /// In the registry of a sandbox.
    pub fn new(platform: &Platform) -> Self {
        let sandbox = &platform.sandbox;
        // Folder of the sandbox, its `pki`, the file.
        let folder = sandbox.kubeconfig.ancestors().nth(2).unwrap_or_else(|| panic!("no folder of {}", sandbox.name));
        Self {
            forge: platform.binary.clone(),
            client: RegistryClient::new(&sandbox.registry),
            storage: folder.join("data/registry"),
            folder: tempfile::tempdir().unwrap_or_else(|error| panic!("no temporary folder: {error}")),
        }
    }

    /// The host and port of the registry.
    pub fn host(&self) -> &str {
        self.client.host()
    }

    /// Where releases are kept, as `forge.yaml` says it.
    pub fn registry(&self) -> String {
        format!("{}/{PREFIX}", self.host())
    }

    /// Runs `forge release`, whatever comes of it.
    pub fn forge(&self, arguments: &[&str]) -> Ended {
        self.forge_told(arguments, &[])
    }

    /// The same, with these variables.
    fn forge_told(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
        let mut command = Command::new(&self.forge);
        command.arg("release").args(arguments).current_dir(self.folder.path()).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", self.folder.path());
        run(command.env(PLAIN_HTTP, self.host()).envs(variables.iter().copied()), None)
    }

    /// Builds a release of what lies in a folder; `further` says where it goes.
    fn build_from(
        &self,
        source: &Path,
        project: &str,
        commit: &CommitId,
        further: &[&str],
        variables: &[(&str, &str)],
    ) -> Pointer {
        let place = source.to_string_lossy();
        let build = ["build", &place, "--project", project, "--commit", commit.as_str()];
        let built = self.forge_told(&[&build[..], further].concat(), variables);
        assert!(built.code == 0, "release build of {project}: exit {}\n{}", built.code, built.stderr);
        let said = built.stdout.trim();
        let digest = said.rsplit('@').next().unwrap_or(said);
        let digest = digest.parse::<Digest>().unwrap_or_else(|error| panic!("release build says {said}: {error}"));
        Pointer { commit: commit.clone(), digest }
    }

    /// Builds a release of these files; `further` says where it goes.
    fn build(&self, project: &str, commit: &CommitId, files: &[File], further: &[&str]) -> Pointer {
        let source = tempfile::tempdir_in(self.folder.path()).unwrap_or_else(|error| panic!("no source: {error}"));
        for (name, text) in files {
            fs::write(source.path().join(name), text).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        self.build_from(source.path(), project, commit, further, &[])
    }

    /// Builds a release of a chart or a kustomization that lies somewhere, with further arguments and variables, and pushes it.
    pub fn pushed_from(
        &self,
        source: &Path,
        project: &str,
        commit: &CommitId,
        further: &[&str],
        variables: &[(&str, &str)],
    ) -> Pointer {
        let registry = self.registry();
        let push = [further, &["--push", &registry]].concat();
        self.build_from(source, project, commit, &push, variables)
    }

    /// Builds a release of these files and pushes it.
    pub fn pushed(&self, project: &str, commit: &CommitId, files: &[File]) -> Pointer {
        self.build(project, commit, files, &["--push", &self.registry()])
    }

    /// Builds a release of these files into a folder, for [`Releases::push`]; the registry does not have it.
    pub fn kept(&self, project: &str, commit: &CommitId, files: &[File]) -> (PathBuf, Pointer) {
        let layout = self.folder.path().join(format!("layout-{commit}"));
        let pointer = self.build(project, commit, files, &["--output-layout", &layout.to_string_lossy()]);
        (layout, pointer)
    }

    /// Pushes what lies in a folder.
    pub fn push(&self, layout: &Path) {
        let pushed = self.forge(&["push", &layout.to_string_lossy(), "--registry", &self.registry()]);
        assert!(pushed.code == 0, "release push: exit {}\n{}", pushed.code, pushed.stderr);
    }

    /// Signs a release of a project with the key in a file.
    pub fn sign(&self, project: &str, pointer: &Pointer, key: &Path) {
        let name = format!("{}/{project}@{}", self.registry(), pointer.digest);
        let signed = self.forge(&["sign", &name, "--key", &key.to_string_lossy()]);
        assert!(signed.code == 0, "release sign of {name}: exit {}\n{}", signed.code, signed.stderr);
    }

    /// Stores a release by hand, where those of one project are, and that says that it is of another, or of the same: of a layer of
    /// these files for all environments, be they what they may.
    pub fn stored(&self, place: &str, project: &str, commit: &CommitId, files: &[(&str, &[u8])]) -> Pointer {
        let made = layer(files).map_err(io::Error::other);
        let made = made.and_then(|layer| stored(&self.client, &format!("{PREFIX}/{place}"), project, commit, &layer));
        let digest = made.unwrap_or_else(|error| panic!("no release of {project}: {error}"));
        Pointer { commit: commit.clone(), digest }
    }

    /// Puts other bytes in the place of a release's resources, as a broken disk does, or somebody.
    pub fn damage(&self, project: &str, pointer: &Pointer) -> Damaged {
        let manifest = self.client.manifest(&format!("{PREFIX}/{project}"), pointer.digest.as_str());
        let manifest = manifest.unwrap_or_else(|error| panic!("no manifest: {error}"));
        let manifest: Value = serde_json::from_slice(&manifest).unwrap_or_default();
        let layers = manifest.get("layers").and_then(Value::as_array).into_iter().flatten();
        let of_resources =
            |layer: &&Value| layer.get("mediaType").and_then(Value::as_str) == Some(media_type::RESOURCES);
        let digest = layers.filter(of_resources).find_map(|layer| layer.get("digest")?.as_str());
        let digest = digest.unwrap_or_default().parse::<Digest>().unwrap_or_else(|error| panic!("{manifest}: {error}"));
        let (start, all) = (digest.short(2), digest.short(64));
        let file = self.storage.join(format!("docker/registry/v2/blobs/sha256/{start}/{all}/data"));
        let bytes = fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let mut other = bytes.clone();
        let middle = other.len() / 2;
        if let Some(byte) = other.get_mut(middle) {
            *byte ^= 1;
        }
        replaced(&file, &other);
        Damaged { file, bytes }
    }

    /// Another image that holds the same as this one, for pods that are to run something else: its configuration says who made
    /// it. Gives how pods name it.
    pub fn another_image(&self, image: &str, author: &str) -> String {
        let (name, digest) = image.split_once('@').unwrap_or_else(|| panic!("{image} has no digest"));
        let (host, name) = name.split_once('/').unwrap_or_else(|| panic!("{image} has no host"));
        let repository = name.split_once(':').map_or(name, |(repository, _)| repository);
        let made = || -> io::Result<Digest> {
            let manifest = self.client.manifest(repository, digest)?;
            let mut manifest: Value = serde_json::from_slice(&manifest)?;
            let said = |pointer: &str| manifest.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
            let (kind, config) = (said("/mediaType"), said("/config/digest"));
            let config = self.client.blob(repository, &config.parse::<Digest>().map_err(io::Error::other)?)?;
            let mut config: Value = serde_json::from_slice(&config)?;
            if let Value::Object(fields) = &mut config {
                fields.insert("author".to_owned(), author.into());
            }
            let config = config.to_string();
            let digest = self.client.put_blob(repository, config.as_bytes())?;
            if let Some(Value::Object(fields)) = manifest.get_mut("config") {
                fields.insert("digest".to_owned(), digest.as_str().into());
                fields.insert("size".to_owned(), config.len().into());
            }
            self.client.put_manifest(repository, &kind, manifest.to_string().as_bytes(), Some(author))
        };
        let digest = made().unwrap_or_else(|error| panic!("no other image than {image}: {error}"));
        format!("{host}/{repository}@{digest}")
    }
}

/// Writes a file anew: blobs of a sandbox's registry may be links to those of the build cache.
fn replaced(file: &Path, bytes: &[u8]) {
    let draft = file.with_extension("draft");
    let written = fs::write(&draft, bytes).and_then(|()| fs::rename(&draft, file));
    written.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
}

/// A layer of these files, packed.
///
/// # Errors
/// When they cannot be archived.
pub fn layer(files: &[(&str, &[u8])]) -> Result<Vec<u8>, OciError> {
    let mut tree = Tree::default();
    for (path, bytes) in files {
        tree.file(path, *bytes, 0o644);
    }
    gzip(&tree.archive(Timestamp::UNIX_EPOCH)?)
}

/// Stores a release whose only layer of resources is this one, for all environments, and gives its digest. Nothing of it is checked.
///
/// # Errors
/// When the registry does not take it.
pub fn stored(
    client: &RegistryClient,
    repository: &str,
    project: &str,
    commit: &CommitId,
    layer: &[u8],
) -> io::Result<Digest> {
    let project: ProjectId = project.parse().map_err(io::Error::other)?;
    let resources = client.put_blob(repository, layer)?;
    let summary = LayerSummary {
        digest: resources.clone(),
        documents: 1,
        kinds: BTreeMap::new(),
        definitions: Vec::new(),
        images: Vec::new(),
    };
    let metadata = ReleaseMetadata {
        schema_version: SCHEMA_VERSION,
        project,
        source: Source { repository: None, commit: commit.clone(), path: None },
        builder: Builder { name: "testkit".to_owned(), version: "0".to_owned() },
        version: None,
        artifacts: Vec::new(),
        resources: BTreeMap::from([(DEFAULT_LAYER.to_owned(), summary)]),
    };
    let bytes = metadata.bytes();
    let described =
        |kind: &str, digest: &Digest, size: usize| json!({"mediaType": kind, "digest": digest, "size": size});
    let config = described(oci::EMPTY, &client.put_blob(repository, b"{}")?, 2);
    let metadata = described(media_type::METADATA, &client.put_blob(repository, &bytes)?, bytes.len());
    let mut resources = described(media_type::RESOURCES, &resources, layer.len());
    if let Value::Object(fields) = &mut resources {
        fields.insert("annotations".to_owned(), json!({ENVIRONMENT: DEFAULT_LAYER}));
    }
    let manifest = json!({
        "schemaVersion": 2, "mediaType": oci::MANIFEST, "artifactType": media_type::RELEASE,
        "config": config, "layers": [metadata, resources],
    });
    client.put_manifest(repository, oci::MANIFEST, manifest.to_string().as_bytes(), None)
}

#[cfg(test)]
mod tests {
    use forge_core::release::{Limits, Manifest, documents, unpack};

    use super::*;
    use crate::registry::Registry;

    #[test]
    fn what_is_stored_by_hand_reads_as_a_release() {
        let registry = Registry::start().unwrap();
        let client = RegistryClient::new(&registry.host());
        let (limits, commit) = (Limits::default(), commit("one"));
        let file = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n".as_slice();
        let packed = layer(&[("a.yaml", file)]).unwrap();
        let digest = stored(&client, "releases/twin/one", "twin/one", &commit, &packed).unwrap();
        let bytes = client.manifest("releases/twin/one", digest.as_str()).unwrap();
        let manifest = Manifest::read(&bytes, &digest, &limits).unwrap();
        let metadata = client.blob("releases/twin/one", &manifest.metadata.digest).unwrap();
        let metadata = ReleaseMetadata::read(&metadata, &manifest.metadata, &limits).unwrap();
        manifest.agrees(&metadata).unwrap();
        assert_eq!((metadata.project.to_string().as_str(), &metadata.source.commit), ("twin/one", &commit));
        let mut found = Vec::new();
        unpack(&mut packed.as_slice(), manifest.layer("dev").unwrap(), &limits, &mut |path, bytes| {
            found.extend(documents(path, &bytes, &limits)?);
            Ok(())
        })
        .unwrap();
        assert_eq!(found.len(), 1);
    }
}
