//! What the images are made from: `deploy/images.json`, and helm's part of `sandbox/components.json`, which is the one
//! place of its version and checksum.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A file of this checkout, read when it is asked for: checkouts share what is built.
fn read<T: serde::de::DeserializeOwned>(file: &str) -> Result<T, serde_json::Error> {
    serde_json::from_slice(&std::fs::read(crate::checkout().join(file)).map_err(serde_json::Error::io)?)
}

/// Both images.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Recipe {
    /// Variables that every container of ours begins with.
    pub environment: BTreeMap<String, String>,
    /// Where it begins.
    pub working_folder: String,
    /// Further names of `forge`, which looks at the one it is called by.
    pub names: Vec<String>,
    /// The images.
    pub images: Vec<Image>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Image {
    /// What it is called.
    pub name: String,
    /// What it is for, in a line.
    pub description: String,
    /// The programs in it.
    pub programs: Vec<Program>,
    /// What is started.
    pub entrypoint: Vec<String>,
    /// How large it may be where it is unpacked, in units of 1,000,000 bytes (SPEC.md section 5).
    pub megabytes: u64,
}

/// What can be in an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Program {
    /// Our own.
    Forge,
    /// Helm.
    Helm,
}

impl Program {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Forge => "forge",
            Self::Helm => "helm",
        }
    }
}

impl Recipe {
    /// That of this repository.
    ///
    /// # Errors
    /// When the file is not what this code expects.
    pub fn of_checkout() -> Result<Self, serde_json::Error> {
        read("deploy/images.json")
    }
}

/// How helm is built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Helm {
    /// The path of its module.
    pub module: String,
    /// Its version.
    pub version: String,
    /// The checksum of the module's archive, as in `go.sum`.
    pub sum: String,
    /// The package of the program.
    pub package: String,
    /// Variables that the linker sets.
    pub variables: BTreeMap<String, String>,
}

impl Helm {
    /// As the sandbox builds it.
    ///
    /// # Errors
    /// When the file of components is not what this code expects.
    pub fn of_checkout() -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Components {
            modules: Vec<serde_json::Value>,
        }
        #[derive(Deserialize)]
        struct Module {
            version: String,
            source: Source,
            builds: BTreeMap<String, String>,
            variables: BTreeMap<String, String>,
        }
        #[derive(Deserialize)]
        struct Source {
            module: String,
            sum: String,
        }
        let Components { modules } = read("sandbox/components.json")?;
        let helm = modules.into_iter().find(|module| module.get("name").is_some_and(|name| name == "helm"));
        let Module { version, source, builds, variables } = serde_json::from_value(helm.unwrap_or_default())?;
        let package = builds.into_keys().next().unwrap_or_default();
        Ok(Self { module: source.module, version, sum: source.sum, package, variables })
    }

    /// What the linker is told.
    pub fn linker(&self) -> String {
        let variables = self.variables.iter().map(|(name, value)| format!(" -X {name}={value}"));
        format!("-s -w{}", variables.collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_images_are_the_two_of_the_specification_with_its_limits() {
        let recipe = Recipe::of_checkout().unwrap();
        let limits: Vec<(&str, u64)> =
            recipe.images.iter().map(|image| (image.name.as_str(), image.megabytes)).collect();
        assert_eq!(limits, [("executor", 90), ("plugin", 20)]);
        assert_eq!(recipe.images[0].programs, [Program::Forge, Program::Helm]);
        assert_eq!(recipe.images[1].programs, [Program::Forge]);
        for image in &recipe.images {
            let name = image.entrypoint[0].strip_prefix("/usr/local/bin/").unwrap();
            assert!(name == "forge" || recipe.names.iter().any(|known| known == name), "{name}");
        }
    }

    #[test]
    fn helm_is_built_as_in_the_sandbox() {
        let helm = Helm::of_checkout().unwrap();
        assert_eq!((helm.module.as_str(), helm.package.as_str()), ("helm.sh/helm/v3", "./cmd/helm"));
        assert!(helm.version.starts_with('v') && helm.sum.starts_with("h1:"), "{helm:?}");
        let version = format!(" -X helm.sh/helm/v3/internal/version.version={}", helm.version);
        assert!(helm.linker().starts_with("-s -w ") && helm.linker().contains(&version), "{}", helm.linker());
    }
}
