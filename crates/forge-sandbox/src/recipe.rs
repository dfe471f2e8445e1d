//! What the sandbox is made from: `sandbox/components.json`, the one place of versions and checksums, and the sources
//! beside it. Both are part of the binary, so an installed `forge-sandbox` builds without a clone.

use std::collections::BTreeMap;

use forge_core::digest::Digest;
use serde::{Deserialize, Serialize};

/// Every file of `sandbox/` by its path there; tests are left out.
const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/sandbox.rs"));

/// Why the recipes cannot be used; a fault of this build of Forge.
#[derive(Debug, thiserror::Error)]
pub enum RecipeError {
    /// The file of recipes cannot be read.
    #[error("failed to read the embedded recipes: {0}")]
    Parse(#[from] serde_json::Error),
    /// A recipe names something that is not there.
    #[error("the recipe of `{recipe}` names `{name}`, which does not exist")]
    Unknown {
        /// Whose recipe.
        recipe: String,
        /// What it names.
        name: String,
    },
}

/// All recipes.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Recipes {
    /// The oldest Go that compiles every module.
    pub go: String,
    /// What is compiled from, or taken out of, Go modules.
    pub modules: Vec<Module>,
    /// Single Rust files that become static binaries.
    pub programs: Vec<Program>,
    /// What images start from.
    pub base: Base,
    /// Helm charts by name.
    pub charts: BTreeMap<String, Chart>,
    /// Container images.
    pub images: Vec<Image>,
}

/// A Go module and what is made from it.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Module {
    /// What it is called here.
    pub name: String,
    /// Its version, for modules of our own that of what they hold.
    pub version: String,
    /// Where it comes from.
    pub source: Source,
    /// What is changed before it is compiled.
    #[serde(default)]
    pub patches: Vec<Patch>,
    /// Names of binaries by package.
    #[serde(default)]
    pub builds: BTreeMap<String, String>,
    /// Further names of binaries that look at the name they are called by.
    #[serde(default)]
    pub links: BTreeMap<String, String>,
    /// Variables that the linker sets.
    #[serde(default)]
    pub variables: BTreeMap<String, String>,
    /// Files and folders of the module that are kept beside the binaries.
    #[serde(default)]
    pub keep: Vec<String>,
    /// Disk that it takes with what the compiler keeps.
    pub mebibytes: u64,
}

/// Where a Go module comes from.
#[derive(Debug, Deserialize, Serialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Source {
    /// A folder of `sandbox/`.
    Embedded {
        /// Its name.
        folder: String,
    },
    /// A module proxy.
    Published {
        /// The module's path.
        module: String,
        /// The checksum of its archive, as in `go.sum`.
        sum: String,
    },
}

/// A change to a module's files.
#[derive(Debug, Deserialize, Serialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Patch {
    /// A file is made from another one.
    Copy {
        /// Why.
        why: String,
        /// The other one.
        copy: String,
        /// The file.
        to: String,
    },
    /// A file is written.
    Write {
        /// Why.
        why: String,
        /// The file.
        write: String,
        /// Its content.
        lines: Vec<String>,
    },
}

/// A single Rust file that becomes a static binary of its name.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Program {
    /// What it is called.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its path in `sandbox/`.
    pub source: String,
}

/// What images start from: a root file system of Debian packages, and the few files of it that static binaries want.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Base {
    /// The release of Debian where the machine's own is not known.
    pub suite: String,
    /// The packages; what they depend on comes along.
    pub packages: Vec<String>,
    /// Files and folders that are left out.
    pub leave_out: Vec<String>,
    /// Files that get another name.
    pub rename: BTreeMap<String, String>,
    /// Files and folders that images of static binaries start from.
    #[serde(rename = "static")]
    pub static_files: Vec<String>,
    /// Disk that it takes while it is made.
    pub mebibytes: u64,
}

/// A Helm chart, taken out of a module.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Chart {
    /// A module's name and a path in what is kept of it.
    pub from: String,
    /// Whether its dependencies are dropped, because they cannot be fetched and are off by default.
    #[serde(default)]
    pub without_dependencies: bool,
    /// Its version, where the module holds a placeholder.
    #[serde(default)]
    pub version: Option<String>,
}

/// A container image.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Image {
    /// What it is called here.
    pub name: String,
    /// The version of what it holds, if that is not a Debian package.
    #[serde(default)]
    pub version: Option<String>,
    /// Its repositories and tags, without a host. `{package}` stands for the version of a Debian package.
    pub tags: Vec<String>,
    /// What it starts from.
    pub base: Layers,
    /// Who runs in it.
    pub user: User,
    /// Files and folders out of what was built, by their path in the image.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Files with these lines.
    #[serde(default)]
    pub texts: BTreeMap<String, Vec<String>>,
    /// Empty folders.
    #[serde(default)]
    pub folders: BTreeMap<String, Folder>,
    /// Symbolic links.
    #[serde(default)]
    pub links: BTreeMap<String, String>,
    /// Binaries that may bind ports below 1024 if their container may.
    #[serde(default)]
    pub binds_low_ports: Vec<String>,
    /// What is set beside `PATH`.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// What always runs.
    pub entrypoint: Vec<String>,
    /// Its arguments if the pod gives none.
    #[serde(default)]
    pub command: Vec<String>,
    /// Where it runs.
    #[serde(default)]
    pub working_folder: Option<String>,
}

/// What an image starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Layers {
    /// Nothing.
    None,
    /// Certificates and time zones.
    Static,
    /// A shell, Git and what else the base's packages hold.
    Debian,
}

/// Who runs in an image.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct User {
    /// The name, for programs that look it up.
    pub name: String,
    /// The number.
    pub id: u32,
    /// The group's number.
    pub group: u32,
    /// The home folder.
    #[serde(default = "root")]
    pub home: String,
}

fn root() -> String {
    "/".to_owned()
}

/// An empty folder in an image.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Folder {
    /// Whose it is.
    #[serde(default)]
    pub owner: u32,
    /// Who may do what in it, in octal.
    #[serde(default)]
    pub mode: Option<String>,
}

impl Recipes {
    /// Those of this binary.
    pub fn embedded() -> Result<Self, RecipeError> {
        Ok(serde_json::from_str(file("components.json").unwrap_or_default())?)
    }
}

/// The content of a file of `sandbox/`.
pub(crate) fn file(path: &str) -> Option<&'static str> {
    FILES.iter().find(|(name, _)| *name == path).map(|(_, content)| *content)
}

/// The files of a folder of `sandbox/`, by their path in it.
pub(crate) fn folder(name: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    FILES.iter().filter_map(move |(path, content)| Some((path.strip_prefix(name)?.strip_prefix('/')?, *content)))
}

/// Splits `component/path` at the first slash.
pub(crate) fn split(from: &str) -> (&str, &str) {
    from.split_once('/').unwrap_or((from, ""))
}

/// Hashes what a thing is made from. The number changes when the code that makes such things changes what it makes.
pub(crate) fn made_from(format: u32, recipe: &impl Serialize, sources: &[(&str, &str)], parts: &[&str]) -> Digest {
    Digest::of_json(&(format, std::env::consts::ARCH, recipe, sources, parts))
}

#[cfg(test)]
mod tests {
    use forge_core::install::chart;
    use forge_core::preflight::Component;

    use super::*;

    #[test]
    fn the_embedded_recipes_can_be_read_and_written_back() {
        let recipes = Recipes::embedded().unwrap();
        let text = serde_json::to_string(&recipes).unwrap();
        let again: Recipes = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&again).unwrap(), text);
    }

    #[test]
    fn every_published_module_has_a_version_and_a_checksum() {
        for module in Recipes::embedded().unwrap().modules {
            assert!(module.version.starts_with('v'), "{}", module.name);
            if let Source::Published { sum, .. } = &module.source {
                assert!(sum.starts_with("h1:") && sum.len() == 47 && sum.ends_with('='), "{}: {sum}", module.name);
            }
        }
    }

    #[test]
    fn what_is_installed_of_argo_is_the_very_version_that_is_tested_here() {
        let recipes = Recipes::embedded().unwrap();
        for (component, images) in [
            (Component::Cd, &["argocd"][..]),
            (Component::Workflows, &["argoexec", "workflow-controller"][..]),
            (Component::Events, &["argo-events"][..]),
        ] {
            let chart = chart(component);
            let module = recipes.modules.iter().find(|module| module.name == chart.name).unwrap();
            assert_eq!(module.version, chart.app_version, "{}", chart.name);
            for name in images {
                let image = recipes.images.iter().find(|image| image.name == *name).unwrap();
                // Under the tag of another version it would be taken for that.
                assert_eq!(image.tags, [format!("argoproj/{name}:{}", chart.app_version)]);
            }
        }
    }

    #[test]
    fn every_image_runs_as_somebody_else_than_root_and_by_a_number() {
        for image in Recipes::embedded().unwrap().images {
            assert!(image.user.id > 0 && image.user.group > 0, "{}", image.name);
            assert!(!image.entrypoint.is_empty(), "{}", image.name);
        }
    }

    #[test]
    fn what_a_thing_is_made_from_decides_its_hash() {
        let hash = |format, recipe, source, part| made_from(format, &recipe, &[("main.go", source)], &[part]);
        let one = hash(1, "recipe", "source", "part");
        assert_eq!(one, hash(1, "recipe", "source", "part"));
        for other in [
            hash(2, "recipe", "source", "part"),
            hash(1, "changed", "source", "part"),
            hash(1, "recipe", "changed", "part"),
            hash(1, "recipe", "source", "changed"),
        ] {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn a_recipe_with_an_unknown_field_is_refused() {
        let text = r#"{"name": "x", "version": "v1", "source": "x.rs", "sauce": "y.rs"}"#;
        assert!(serde_json::from_str::<Program>(text).is_err());
    }
}
