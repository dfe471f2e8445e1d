//! What the releases that pointers name must come to, read from their registry before anything is written: what the plugin must
//! say that it rendered, and which container must run which image (SPEC.md section 6).
//!
//! Signatures are the plugin's business: what it may not render never gets as far as a receipt.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use forge_core::code::{Class, Code};
use forge_core::digest::Digest;
use forge_core::failure::Failure;
use forge_core::gate::ContainerKey;
use forge_core::name::{NodeId, ProjectId};
use forge_core::plan::{PlannedNode, PlannedRelease};
use forge_core::release::{Document, Limits, ReleaseError, documents, expected};
use forge_core::repository::{EnvironmentFiles, INSTALLATION_FILE, Repository};
use futures::StreamExt as _;

use crate::registry::{Credentials, Options, Registry};
use crate::release::place::repository;
use crate::release::{Named, Place, Release, Store, Which};
use crate::write_files::read_own;

/// With what variables of `forge` begin; the executor's have nothing before them.
pub(crate) const PREFIX: &str = "FORGE_";
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
    /// Those of an environment; nothing where it has no pointers, or nobody says where releases are kept. `credentials` are
    /// looked at unless a variable names a file; names of variables begin with `prefix`.
    ///
    /// # Errors
    /// When what the environment variables name cannot be used.
    pub(crate) fn of(
        from: &Repository,
        files: &EnvironmentFiles,
        tree: &Path,
        credentials: Credentials,
        prefix: &str,
    ) -> Result<Option<Self>, Failure> {
        let Some(registry) = from.installation.registry.as_ref().filter(|_| !files.projects.is_empty()) else {
            return Ok(None);
        };
        let environment = &files.environment;
        Ok(Some(Self {
            registry: Registry::new(options(prefix, credentials, std::env::var_os)?)?,
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
        let held = found.documents(&store, &self.environment, &limits).await?;
        // The plugin would not render it, and nobody should wait to hear that.
        if held.is_empty() {
            let what = format!("release `{}` for environment `{}`", release.digest, self.environment);
            return Err(ReleaseError::Empty { what }.into());
        }
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

/// How registries are spoken with, by the variables that every command reads.
fn options(
    prefix: &str,
    credentials: Credentials,
    variable: impl Fn(String) -> Option<OsString>,
) -> Result<Options, Failure> {
    let given = |name: &str| variable(format!("{prefix}{name}")).filter(|value| !value.is_empty());
    let certificates = match given("REGISTRY_CA").map(PathBuf::from) {
        None => None,
        Some(file) => Some(std::fs::read_to_string(&file).map_err(|error| {
            Failure::new(Code::BadArgument, format!("failed to read `{}`: {error}", file.display()))
                .hint(format!("{prefix}REGISTRY_CA names a file of certificates as PEM"))
        })?),
    };
    let plain_http = given("PLAIN_HTTP_REGISTRIES").and_then(|hosts| hosts.into_string().ok()).unwrap_or_default();
    let plain_http = plain_http.split(',').map(str::trim).filter(|host| !host.is_empty());
    Ok(Options {
        plain_http: plain_http.map(str::to_owned).collect(),
        credentials: given("REGISTRY_CONFIG").map_or(credentials, |file| Credentials::Named(file.into())),
        certificates,
        ..Options::default()
    })
}

#[cfg(test)]
mod tests {
    use forge_testkit::registry::Registry as Served;
    use forge_testkit::registry_client::RegistryClient;
    use forge_testkit::releases::{commit, layer, stored};

    use super::*;

    #[tokio::test]
    async fn a_release_that_holds_nothing_ends_the_preparation() {
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
        for (files, code) in [(&[("a.yaml", object)][..], None), (&[][..], Some(Code::ReleaseEmpty))] {
            let layer = layer(files).unwrap();
            let digest = stored(&client, "releases/shop/api", "shop/api", &commit, &layer).unwrap();
            let release = PlannedRelease { commit: commit.clone(), digest };
            let found = releases.one(&"shop/api".parse().unwrap(), &release, None).await;
            assert_eq!(found.err().map(|failure| failure.code), code);
        }
    }

    #[test]
    fn registries_are_spoken_with_as_the_environment_says() {
        let usual = || Credentials::Mounted("/secrets/registry".into());
        let nothing = options("", usual(), |_| None).unwrap();
        assert_eq!((nothing.credentials, nothing.plain_http.len()), (usual(), 0));
        let said = |name: String| match name.as_str() {
            "FORGE_REGISTRY_CONFIG" => Some(OsString::from("/x/config.json")),
            "FORGE_PLAIN_HTTP_REGISTRIES" => Some(OsString::from("a:5000, ,b")),
            _ => Some(OsString::new()),
        };
        let found = options("FORGE_", usual(), said).unwrap();
        assert_eq!(found.credentials, Credentials::Named("/x/config.json".into()));
        assert_eq!(found.plain_http, ["a:5000", "b"]);
        // The executor has names of its own.
        assert_eq!(options("", usual(), said).unwrap().plain_http.len(), 0);
        let missing = |name: String| (name == "REGISTRY_CA").then(|| OsString::from("/not/there"));
        assert_eq!(options("", usual(), missing).unwrap_err().code, Code::BadArgument);
    }
}
