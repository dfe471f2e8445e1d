//! What the releases that pointers name must come to, read from their registry before anything is written: what the plugin must
//! say that it rendered, and which container must run which image (SPEC.md section 6).
//!
//! Signatures are the plugin's business: what it may not render never gets as far as a receipt.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use forge_core::code::{Class, Code};
use forge_core::digest::Digest;
use forge_core::failure::Failure;
use forge_core::gate::ContainerKey;
use forge_core::name::{NodeId, ProjectId};
use forge_core::plan::{PlannedNode, PlannedRelease};
use forge_core::release::{Document, Limits, documents, expected};
use forge_core::repository::{EnvironmentFiles, INSTALLATION_FILE, Repository};
use futures::StreamExt as _;

use crate::registry::{Options, Registry};
use crate::release::place::repository;
use crate::release::{Named, Place, Release, Store, Which};
use crate::write_files::read_own;

/// Releases that are read at once: each is in memory as a whole.
const AT_ONCE: usize = 4;

/// Where releases are kept, and what else is rendered with them.
pub(crate) struct Releases {
    registry: Registry,
    /// Before the name of every project.
    prefix: String,
    /// Where the files of the repository are.
    tree: PathBuf,
    /// The folder of the environment in it, its name, and what is put before its namespaces.
    folder: String,
    environment: String,
    namespaces: String,
}

/// What a release must come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resolved {
    /// The content of its pointer.
    pub(crate) pointer: Digest,
    /// What the plugin renders.
    pub(crate) output: Digest,
    /// Which container must run which image.
    pub(crate) images: BTreeMap<ContainerKey, Digest>,
}

impl Releases {
    /// Those of an environment; nothing where it has no pointers, or nobody says where releases are kept. How registries are
    /// spoken with is asked only where there are some.
    ///
    /// # Errors
    /// When what says how registries are spoken with cannot be used.
    pub(crate) fn of(
        from: &Repository,
        files: &EnvironmentFiles,
        tree: &Path,
        registries: impl FnOnce() -> Result<Options, Failure>,
    ) -> Result<Option<Self>, Failure> {
        let Some(registry) = from.installation.registry.as_ref().filter(|_| !files.projects.is_empty()) else {
            return Ok(None);
        };
        let environment = &files.environment;
        Ok(Some(Self {
            registry: Registry::new(registries()?)?,
            prefix: registry.value.clone(),
            tree: tree.to_owned(),
            folder: environment.path.clone(),
            environment: environment.name.value.to_string(),
            namespaces: environment.namespace_prefix.clone(),
        }))
    }

    /// What the release of every node that has one must come to. `destination` is where an Application puts what names no
    /// namespace, where there is one already. What cannot be read is told with its node; a registry that does not answer is
    /// not asked for the rest.
    pub(crate) async fn resolved<'n>(
        &self,
        nodes: impl Iterator<Item = &'n PlannedNode>,
        destination: impl Fn(&PlannedNode) -> Option<String>,
    ) -> BTreeMap<NodeId, Result<Resolved, Failure>> {
        let wanted: Vec<(NodeId, PlannedRelease, Option<String>)> =
            nodes.filter_map(|node| Some((node.id.clone(), node.release.clone()?, destination(node)))).collect();
        let silent: Mutex<Option<(Code, String)>> = Mutex::new(None);
        let silent = &silent;
        let read = futures::stream::iter(wanted).map(|(node, release, destination)| async move {
            let heard = silent.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let found = match heard {
                Some((code, message)) => Err(Failure::new(code, message)),
                None => self.one(&node, &release, destination).await,
            };
            let found = found.map_err(|failure| {
                if matches!(failure.code.class(), Class::Transient | Class::Timeout) {
                    let said = (failure.code, failure.message.clone());
                    silent.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(said);
                }
                Failure { message: format!("`{node}`: {}", failure.message), ..failure }
            });
            (node, found)
        });
        read.buffer_unordered(AT_ONCE).collect().await
    }

    async fn one(
        &self,
        node: &NodeId,
        release: &PlannedRelease,
        destination: Option<String>,
    ) -> Result<Resolved, Failure> {
        let limits = Limits::default();
        let project: ProjectId = node.as_str().parse().map_err(|error| Failure::new(Code::WrongName, error))?;
        let (pointer, config) = self.files(&project, &limits)?;
        let place = Place::Registry(repository(&self.prefix, &project)?);
        let store = Store::open(&self.registry, &place, &limits)?;
        let namespace = destination.unwrap_or_else(|| format!("{}{}", self.namespaces, project.joined()));
        let which = Which::Digest(release.digest.clone());
        let found = Release::open(&store, &Named { place, which, project: Some(project) }, &limits).await?;
        let commit = &found.metadata.source.commit;
        if *commit != release.commit {
            let message = format!(
                "release `{}` is of commit `{commit}`; the pointer names commit `{}`",
                release.digest, release.commit
            );
            return Err(Failure::new(Code::PointerMismatch, message)
                .hint("write both fields of release.yaml from one release: `forge release inspect` shows them"));
        }
        // Refuses what the plugin would not render: nobody should wait to hear that.
        let held = found.documents(&store, &self.environment, &limits).await?;
        let expected = expected(&held, &config, &namespace);
        Ok(Resolved { pointer, output: expected.output, images: expected.images })
    }

    /// The hash of a project's pointer, and the documents that are rendered behind its release.
    fn files(&self, project: &ProjectId, limits: &Limits) -> Result<(Digest, Vec<Document>), Failure> {
        let folder = format!("{}/apps/{}/{}", self.folder, project.repo, project.project);
        let pointer = read_own(&self.tree, &format!("{folder}/release.yaml"))?;
        let path = format!("{folder}/env.yaml");
        let config = if self.tree.join(&path).is_file() {
            documents(&path, read_own(&self.tree, &path)?.as_bytes(), limits)?
        } else {
            Vec::new()
        };
        Ok((Digest::of(pointer.as_bytes()), config))
    }
}

/// Says that a node has a release, and nobody says where.
pub(crate) fn nowhere(node: &NodeId) -> Failure {
    Failure::new(Code::MissingField, format!("`{node}` has a release, and {INSTALLATION_FILE} names no registry"))
        .hint("set `spec.registry` to where releases are kept, for example registry.example.com/releases")
}

#[cfg(test)]
mod tests {
    use forge_testkit::registry::Registry as Served;
    use forge_testkit::registry_client::RegistryClient;
    use forge_testkit::releases::{commit, layer, stored};

    use super::*;

    #[tokio::test]
    async fn a_release_that_the_plugin_would_not_render_ends_the_preparation() {
        let (served, tree) = (Served::start().unwrap(), tempfile::tempdir().unwrap());
        let folder = tree.path().join("dev/apps/shop/api");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("release.yaml"), "kind: ReleasePointer\n").unwrap();
        let releases = Releases {
            registry: Registry::new(Options::default()).unwrap(),
            prefix: format!("{}/releases", served.host()),
            tree: tree.path().to_owned(),
            folder: "dev".to_owned(),
            environment: "dev".to_owned(),
            namespaces: String::new(),
        };
        let (client, commit) = (RegistryClient::new(&served.host()), commit("some"));
        let object = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n".as_slice();
        let receipt = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: forge-receipt}\n".as_slice();
        let loose = b"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: nginx}]}\n"
            .as_slice();
        // Each file is within the limits, and all of them together come to more than Argo CD takes.
        let large: Vec<(String, String)> = (0..5)
            .map(|n| {
                let metadata = format!(r#""metadata": {{"name": "a{n}"}}"#);
                let data = format!(r#""data": {{"a": "{}"}}"#, "x".repeat(13 << 20));
                (format!("{n}.json"), format!(r#"{{"apiVersion": "v1", "kind": "ConfigMap", {metadata}, {data}}}"#))
            })
            .collect();
        let large: Vec<(&str, &[u8])> = large.iter().map(|(path, text)| (path.as_str(), text.as_bytes())).collect();
        type Files<'f> = &'f [(&'f str, &'f [u8])];
        let cases: [(Files<'_>, Option<Code>); 5] = [
            (&[("a.yaml", object)], None),
            (&[], Some(Code::ReleaseEmpty)),
            (&[("a.yaml", object), ("b.yaml", receipt)], Some(Code::ReleaseMalformed)),
            (&[("a.yaml", loose)], Some(Code::ImageNotPinned)),
            (&large, Some(Code::ReleaseTooLarge)),
        ];
        for (files, code) in cases {
            let layer = layer(files).unwrap();
            let digest = stored(&client, "releases/shop/api", "shop/api", &commit, &layer).unwrap();
            let release = PlannedRelease { commit: commit.clone(), digest };
            let found = releases.one(&"shop/api".parse().unwrap(), &release, None).await;
            assert_eq!(found.err().map(|failure| failure.code), code);
        }
    }
}
