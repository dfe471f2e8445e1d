//! The real CRD schemas of Argo CD, Argo Workflows and Crossplane: an object is validated against them the way an API
//! server would, with strict field validation.
//!
//! The CRDs come from Go modules, at pinned versions (see [`crate::modules`]). A CRD is parsed when a kind of it is first asked
//! for, and once per process, because the largest is 3 MB of YAML.
//!
//! What the server would refuse is a problem, and so is what it would drop without a word: an unknown field, and `null`
//! where the schema is not `nullable`. Defaults are applied first, as the server does. A namespaced object must name its
//! namespace, which the server would take from the URL. Fields below a value of the wrong type are not looked at.
//!
//! Not checked: `x-kubernetes-validations` (CEL rules are ignored), string formats other than `date-time` and `byte`,
//! and what controllers and admission webhooks would say. Patterns run in the `regex` crate, whose classes (`\d`, `\w`)
//! are Unicode where Go's are ASCII. Kinds without a CRD here (ConfigMap, Namespace) are reported as `no schema`, never
//! passed.

mod meta;
mod schema;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde_json::Value;
use thiserror::Error;

use crate::modules::{self, ModuleError};
use schema::{Level, child};

/// A Go module, its version, and the folder inside it that holds CRDs.
pub const SOURCES: [(&str, &str, &str); 3] = [
    ("github.com/argoproj/argo-cd/v3", "v3.2.11", "manifests/crds"),
    ("github.com/argoproj/argo-workflows/v3", "v3.7.6", "manifests/base/crds/full"),
    ("github.com/crossplane/crossplane/v2", "v2.2.0", "cluster/crds"),
];

/// Why the CRDs could not be had.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CrdError {
    /// A module that holds CRDs could not be had.
    #[error(transparent)]
    Module(#[from] ModuleError),
    /// A folder or file of the module cache could not be read.
    #[error("failed to read `{path}`")]
    Read {
        /// The folder or file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A folder that should hold CRDs holds none.
    #[error("failed to find a CRD in `{0}`")]
    NoCrd(PathBuf),
}

/// The CRDs of the pinned modules. Clones share what has been parsed.
#[derive(Clone, Debug)]
pub struct Crds(Arc<BTreeMap<(String, String), Crd>>);

/// One CRD: the file it is in and, once asked for, its text as a tree, or why there is none.
#[derive(Debug)]
struct Crd {
    path: PathBuf,
    manifest: OnceLock<Result<Value, String>>,
}

impl Crds {
    /// Finds the CRDs in the Go module cache; downloads the modules that are missing. The work is done once per process.
    ///
    /// # Errors
    /// When `go` is absent or fails, or a module does not hold what it should.
    pub fn load() -> Result<Self, CrdError> {
        static LOADED: Mutex<Option<Crds>> = Mutex::new(None);
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(crds) = loaded.as_ref() {
            return Ok(crds.clone());
        }
        let crds = Self::index(&folders()?)?;
        Ok(loaded.insert(crds).clone())
    }

    fn index(folders: &[PathBuf]) -> Result<Self, CrdError> {
        let mut crds = BTreeMap::new();
        for folder in folders {
            let before = crds.len();
            let read_error = |source| CrdError::Read { path: folder.clone(), source };
            for entry in fs::read_dir(folder).map_err(read_error)? {
                let path = entry.map_err(read_error)?.path();
                if path.extension().is_none_or(|extension| extension != "yaml") {
                    continue;
                }
                let names = scan_names(&path).map_err(|source| CrdError::Read { path: path.clone(), source })?;
                if let Some(group_kind) = names {
                    crds.insert(group_kind, Crd { path, manifest: OnceLock::new() });
                }
            }
            if crds.len() == before {
                return Err(CrdError::NoCrd(folder.clone()));
            }
        }
        Ok(Self(Arc::new(crds)))
    }

    /// Whether there is a schema for this kind in this version: the CRD is here and serves the version.
    #[must_use]
    pub fn knows(&self, api_version: &str, kind: &str) -> bool {
        let Some((group, version)) = api_version.split_once('/') else { return false };
        let manifest = self.find(group, kind).and_then(|crd| crd.manifest().ok());
        manifest.is_some_and(|manifest| served(manifest).any(|(name, _)| name == version))
    }

    /// Every problem of the object, as `path: problem`, in a stable order; empty when an API server would take
    /// it. Paths are written as the server writes them: `spec.sources[0].repoURL`, `metadata.labels["example.com/x"]`.
    #[must_use]
    pub fn validate(&self, object: &Value) -> Vec<String> {
        let text = |field| object.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
        let (Some(api_version), Some(kind)) = (text("apiVersion"), text("kind")) else {
            let missing = ["apiVersion", "kind"].into_iter().filter(|field| text(field).is_none());
            return missing.map(|field| format!("{field}: required, and must be a string that is not empty")).collect();
        };
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let Some(crd) = self.find(group, kind) else {
            return vec![format!("kind: no schema for `{kind}` of `{api_version}`")];
        };
        let manifest = match crd.manifest() {
            Ok(manifest) => manifest,
            Err(reason) => return vec![format!("kind: failed to read the CRD `{}`: {reason}", crd.path.display())],
        };
        let Some((_, schema)) = served(manifest).find(|(name, _)| *name == version) else {
            let served: Vec<_> = served(manifest).map(|(name, _)| format!("`{name}`")).collect();
            let served = served.join(", ");
            return vec![format!("apiVersion: version `{version}` of `{kind}` is not served, {served} is")];
        };

        let mut object = object.clone();
        schema::fill_defaults(schema, &mut object);
        let mut problems = Vec::new();
        schema::check(schema, &object, "", Level::Root, &mut problems);
        check_scope(manifest, kind, object.get("metadata"), &mut problems);
        problems
    }

    fn find(&self, group: &str, kind: &str) -> Option<&Crd> {
        self.0.get(&(group.to_owned(), kind.to_owned()))
    }
}

impl Crd {
    fn manifest(&self) -> Result<&Value, &str> {
        let parse = || {
            let text = fs::read_to_string(&self.path).map_err(|error| error.to_string())?;
            // The default budget is for untrusted files; Workflow has more nodes than that and nests deeper.
            let budget = serde_saphyr::budget! { max_events: 20_000_000, max_nodes: 10_000_000, max_depth: 512 };
            let options = serde_saphyr::options! { budget: budget, with_snippet: false };
            serde_saphyr::from_str_with_options(&text, options).map_err(|error| error.to_string())
        };
        self.manifest.get_or_init(parse).as_ref().map_err(String::as_str)
    }
}

/// The names and schemas of the versions that the CRD serves.
fn served(manifest: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let versions = manifest.pointer("/spec/versions").and_then(Value::as_array);
    versions
        .into_iter()
        .flatten()
        .filter(|version| schema::flag(version, "served"))
        .filter_map(|version| Some((version.get("name")?.as_str()?, version.pointer("/schema/openAPIV3Schema")?)))
}

fn check_scope(manifest: &Value, kind: &str, metadata: Option<&Value>, problems: &mut Vec<String>) {
    let namespaced = manifest.pointer("/spec/scope").and_then(Value::as_str) == Some("Namespaced");
    let namespace = metadata.and_then(|metadata| metadata.get("namespace"));
    let has_namespace = namespace.is_some_and(|namespace| namespace.as_str() != Some(""));
    let at = child("metadata", "namespace");
    match (namespaced, has_namespace) {
        (true, false) => problems.push(format!("{at}: required, `{kind}` is namespaced")),
        (false, true) => problems.push(format!("{at}: must be absent, `{kind}` is cluster-scoped")),
        _ => {}
    }
}

/// Group and kind of the CRD in a file, found by layout and not by parsing; none when the file is not a CRD.
fn scan_names(path: &Path) -> io::Result<Option<(String, String)>> {
    let (mut group, mut kind, mut section) = (None, None, String::new());
    for line in BufReader::new(File::open(path)?).lines() {
        let line = line?;
        if let Some(value) = line.strip_prefix("  group: ") {
            group = Some(value.trim().to_owned());
        } else if let Some(value) = line.strip_prefix("    kind: ").filter(|_| section == "  names:") {
            kind = Some(value.trim().to_owned());
        }
        if !line.starts_with("   ") && !line.starts_with("  -") {
            section = line;
        }
        if let (Some(group), Some(kind)) = (&group, &kind) {
            return Ok(Some((group.clone(), kind.clone())));
        }
    }
    Ok(None)
}

/// The folders that hold CRDs, after the modules that were missing have been downloaded.
fn folders() -> Result<Vec<PathBuf>, CrdError> {
    let roots = modules::folders(&SOURCES.map(|(module, version, _)| (module, version)))?;
    Ok(roots.iter().zip(SOURCES).map(|(root, (_, _, folder))| root.join(folder)).collect())
}
