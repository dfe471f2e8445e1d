//! What a release is made from: a Helm chart, a Kustomize folder or plain YAML, and which parts of it belong to which
//! environment. Reading is bounded, in the order of names, and follows no link out of the source.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use forge_core::code::Code;
use forge_core::failure::Failure;
use forge_core::name::{EnvironmentName, clip};
use forge_core::release::{DEFAULT_LAYER, Limits};
use forge_core::repository::is_manifest;

/// What kustomize takes for a kustomization, in its order.
const KUSTOMIZATIONS: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];
/// What every environment has, in a source of plain YAML or of Kustomize.
const BASE: &str = "base";
/// Where Kustomize keeps what differs.
const OVERLAYS: &str = "overlays";

/// How a source is rendered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// By helm: `values.yaml`, then `values-<env>.yaml`, then parameters.
    Chart,
    /// By kustomize: `overlays/<env>`, or the folder itself.
    Kustomization,
    /// As it is: `<env>/` over `base/`, or all files.
    Plain,
}

/// A layer that is to be made.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Layer {
    /// What no environment is asked for by name.
    Default,
    /// That of an environment.
    Of(EnvironmentName),
}

impl Layer {
    /// As a release calls it.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Default => DEFAULT_LAYER,
            Self::Of(environment) => environment.as_str(),
        }
    }
}

/// A source on disk.
#[derive(Debug)]
pub(crate) struct Source {
    /// Absolute, without links.
    pub(crate) root: PathBuf,
    pub(crate) kind: Kind,
    /// A single file of plain YAML instead of a folder.
    file: bool,
}

impl Source {
    /// Looks what is there.
    ///
    /// # Errors
    /// When there is nothing, or it cannot be read.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let shown = clip(&path.display().to_string());
        let root = path.canonicalize().map_err(|error| {
            Failure::new(Code::Unreadable, format!("failed to read source `{shown}`: {error}"))
                .hint("name a Helm chart, a Kustomize folder, or a file or folder of YAML")
        })?;
        if root.is_file() {
            return Ok(Self { root, kind: Kind::Plain, file: true });
        }
        let kustomized = kustomization(&root)
            || kustomization(&root.join(BASE))
            || folders(&root.join(OVERLAYS)).iter().any(|name| kustomization(&root.join(OVERLAYS).join(name)));
        let kind = if root.join("Chart.yaml").is_file() {
            Kind::Chart
        } else if kustomized {
            Kind::Kustomization
        } else {
            Kind::Plain
        };
        Ok(Self { root, kind, file: false })
    }

    /// The environments for which the source has something of its own.
    pub(crate) fn environments(&self) -> BTreeSet<EnvironmentName> {
        let named = |name: &str| name.parse::<EnvironmentName>().ok();
        match self.kind {
            Kind::Chart => {
                let names = files(&self.root);
                let values = |name: &String| named(name.strip_prefix("values-")?.strip_suffix(".yaml")?);
                names.iter().filter_map(values).collect()
            }
            Kind::Kustomization => {
                let overlays = self.root.join(OVERLAYS);
                let names = folders(&overlays);
                names.iter().filter(|name| kustomization(&overlays.join(name))).filter_map(|name| named(name)).collect()
            }
            // Without a base a folder is a folder: nobody can tell an environment from a way to sort files.
            Kind::Plain if self.root.join(BASE).is_dir() => {
                folders(&self.root).iter().filter(|name| *name != BASE).filter_map(|name| named(name)).collect()
            }
            Kind::Plain => BTreeSet::new(),
        }
    }

    /// The layers to be made: those that are asked for; otherwise one for every environment that the source knows, and one
    /// for all others where there is a base to make it from.
    pub(crate) fn layers(&self, asked: &[EnvironmentName]) -> Vec<Layer> {
        let mut layers: BTreeSet<Layer> = asked.iter().cloned().map(Layer::Of).collect();
        if layers.is_empty() {
            layers.extend(self.environments().into_iter().map(Layer::Of));
            let base = match self.kind {
                Kind::Chart | Kind::Plain => true,
                Kind::Kustomization => self.base().is_some(),
            };
            if base {
                layers.insert(Layer::Default);
            }
        }
        layers.into_iter().collect()
    }

    /// The values of an environment, where the chart has some.
    pub(crate) fn values(&self, layer: &Layer) -> Option<PathBuf> {
        let Layer::Of(environment) = layer else { return None };
        Some(self.root.join(format!("values-{environment}.yaml"))).filter(|path| path.is_file())
    }

    /// What kustomize is to build for a layer.
    ///
    /// # Errors
    /// When there is neither an overlay nor a base.
    pub(crate) fn built(&self, layer: &Layer) -> Result<PathBuf, Failure> {
        if let Layer::Of(environment) = layer {
            let overlay = self.root.join(OVERLAYS).join(environment.as_str());
            if kustomization(&overlay) {
                return Ok(overlay);
            }
        }
        self.base().ok_or_else(|| {
            let message = format!("the source has no kustomization for `{}`, and none for all", layer.name());
            let known: Vec<String> = self.environments().iter().map(ToString::to_string).collect();
            Failure::new(Code::RenderFailed, message).hint(format!("overlays: {}", known.join(", ")))
        })
    }

    fn base(&self) -> Option<PathBuf> {
        [self.root.clone(), self.root.join(BASE)].into_iter().find(|folder| kustomization(folder))
    }

    /// That no link leads out of a chart. Helm follows every one, and by `.Files` a template may print what is behind it. Kustomize
    /// looks itself: it takes no file from outside of the folder of its kustomization, by a link or otherwise.
    ///
    /// # Errors
    /// When one does or leads nowhere, or a folder cannot be listed.
    pub(crate) fn is_closed(&self) -> Result<(), Failure> {
        // All of it, as helm does: what is hidden is a file of the chart too.
        let mut open = vec![self.root.clone()];
        while let Some(folder) = open.pop() {
            let shown = |path: &Path| clip(&path.strip_prefix(&self.root).unwrap_or(path).display().to_string());
            let unread = |error: std::io::Error| {
                Failure::new(Code::Unreadable, format!("failed to list `{}`: {error}", shown(&folder)))
            };
            for entry in fs::read_dir(&folder).map_err(unread)? {
                let entry = entry.map_err(unread)?;
                let (path, kind) = (entry.path(), entry.file_type().map_err(unread)?);
                if kind.is_dir() {
                    open.push(path);
                } else if kind.is_symlink() && !path.canonicalize().is_ok_and(|real| real.starts_with(&self.root)) {
                    let message = format!("`{}` is a link that leads out of the source, or to nothing", shown(&path));
                    return Err(Failure::new(Code::Symlink, message).hint("put the file itself there"));
                }
            }
        }
        Ok(())
    }

    /// The files of plain YAML that a layer has: what all have, and what lies over it.
    ///
    /// # Errors
    /// When a folder cannot be listed, a link leads out of the source, or there are too many files.
    pub(crate) fn plain(&self, layer: &Layer, limits: &Limits) -> Result<Plain, Failure> {
        if self.file {
            let name = self.root.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let folder = self.root.parent().map(Path::to_owned).unwrap_or_default();
            return Ok(Plain { folder, common: vec![name], own: Vec::new() });
        }
        let own = match layer {
            Layer::Of(environment) if self.root.join(environment.as_str()).is_dir() => Some(environment.as_str()),
            _ => None,
        };
        let sorted = self.root.join(BASE).is_dir() || own.is_some();
        let mut plain = Plain { folder: self.root.clone(), common: Vec::new(), own: Vec::new() };
        if sorted {
            // Files beside the folders are common to all.
            let beside = files(&self.root).into_iter().filter(|name| is_manifest(name));
            plain.common.extend(beside);
            self.walk(BASE, limits, &mut plain.common)?;
            if let Some(own) = own {
                self.walk(own, limits, &mut plain.own)?;
            }
        } else {
            self.walk("", limits, &mut plain.common)?;
        }
        Ok(plain)
    }

    /// The manifests below a folder, in the order of their paths. Hidden folders hold no desired state.
    fn walk(&self, folder: &str, limits: &Limits, found: &mut Vec<String>) -> Result<(), Failure> {
        let mut open = vec![folder.to_owned()];
        while let Some(folder) = open.pop() {
            let path = self.root.join(&folder);
            if !path.is_dir() {
                continue;
            }
            let unread = |error: std::io::Error| {
                Failure::new(Code::Unreadable, format!("failed to list `{}`: {error}", clip(&folder)))
            };
            for entry in fs::read_dir(&path).map_err(unread)? {
                let entry = entry.map_err(unread)?;
                let name = entry.file_name();
                let Some(name) = name.to_str() else { continue };
                if name.starts_with('.') {
                    continue;
                }
                let below = if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
                let kind = entry.file_type().map_err(unread)?;
                if kind.is_dir() {
                    open.push(below);
                } else if is_manifest(name) {
                    found.push(below);
                }
                if found.len() + open.len() > limits.entries {
                    let message = format!("the source has more than {} files and folders", limits.entries);
                    return Err(Failure::new(Code::ReleaseTooLarge, message).hint("is this the right folder?"));
                }
            }
        }
        found.sort();
        Ok(())
    }
}

/// Files of plain YAML, by their paths below the source.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Plain {
    /// What the paths are below.
    folder: PathBuf,
    /// What all environments have.
    pub(crate) common: Vec<String>,
    /// What lies over it.
    pub(crate) own: Vec<String>,
}

impl Plain {
    /// The bytes of one of them.
    ///
    /// # Errors
    /// When it is no regular file of the source, or is too large.
    pub(crate) fn read(&self, path: &str, limits: &Limits) -> Result<Vec<u8>, Failure> {
        let shown = clip(path);
        let unread = |error: &dyn std::fmt::Display| {
            Failure::new(Code::Unreadable, format!("failed to read `{shown}`: {error}"))
        };
        let inside = self.folder.join(path).canonicalize().map_err(|error| unread(&error))?;
        if !inside.starts_with(&self.folder) {
            let message = format!("`{shown}` is a link that leads out of the source");
            return Err(Failure::new(Code::Symlink, message).hint("put the file itself there"));
        }
        // Asked before it is opened: opening a pipe would wait for ever.
        if !inside.is_file() {
            return Err(unread(&"it is not a regular file"));
        }
        let most = u64::try_from(limits.file).unwrap_or(u64::MAX);
        let mut bytes = Vec::new();
        let read = File::open(&inside).and_then(|file| file.take(most.saturating_add(1)).read_to_end(&mut bytes));
        let length = read.map_err(|error| unread(&error))?;
        if length > limits.file {
            let message = format!("`{shown}` has more than {} bytes", limits.file);
            return Err(Failure::new(Code::ReleaseTooLarge, message));
        }
        Ok(bytes)
    }
}

fn kustomization(folder: &Path) -> bool {
    KUSTOMIZATIONS.iter().any(|name| folder.join(name).is_file())
}

/// The folders in a folder, sorted; none where it cannot be listed.
fn folders(folder: &Path) -> Vec<String> {
    listed(folder, |kind| kind.is_dir())
}

/// The files in a folder, sorted; links are files here, and looked at where they are read.
fn files(folder: &Path) -> Vec<String> {
    listed(folder, |kind| !kind.is_dir())
}

fn listed(folder: &Path, wanted: fn(fs::FileType) -> bool) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_type().is_ok_and(wanted));
    let mut names: Vec<String> = named.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.retain(|name| !name.starts_with('.'));
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(files: &[&str]) -> (tempfile::TempDir, Source) {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "a: 1\n").unwrap();
        }
        let source = Source::open(folder.path()).unwrap();
        (folder, source)
    }

    fn names(source: &Source, asked: &[&str]) -> Vec<String> {
        let asked: Vec<EnvironmentName> = asked.iter().map(|name| name.parse().unwrap()).collect();
        source.layers(&asked).iter().map(|layer| layer.name().to_owned()).collect()
    }

    fn of(name: &str) -> Layer {
        Layer::Of(name.parse().unwrap())
    }

    #[test]
    fn a_chart_has_a_layer_for_every_file_of_values_and_one_for_all_others() {
        let (_kept, chart) =
            source(&["Chart.yaml", "values.yaml", "values-dev.yaml", "values-Bad.yaml", "values-x.txt"]);
        assert_eq!(chart.kind, Kind::Chart);
        assert_eq!(names(&chart, &[]), ["default", "dev"]);
        assert_eq!(names(&chart, &["production", "dev", "dev"]), ["dev", "production"]);
        assert!(chart.values(&of("dev")).unwrap().ends_with("values-dev.yaml"));
        assert_eq!(chart.values(&of("production")), None);
        assert_eq!(chart.values(&Layer::Default), None);
    }

    #[test]
    fn kustomize_builds_the_overlay_of_an_environment_or_what_all_have() {
        let files = ["base/kustomization.yaml", "overlays/dev/kustomization.yml", "overlays/notes/readme.md"];
        let (_kept, folder) = source(&files);
        assert_eq!(folder.kind, Kind::Kustomization);
        assert_eq!(names(&folder, &[]), ["default", "dev"]);
        assert!(folder.built(&of("dev")).unwrap().ends_with("overlays/dev"));
        assert!(folder.built(&of("production")).unwrap().ends_with("base"));
        let (_kept, overlays) = source(&["overlays/dev/kustomization.yaml"]);
        assert_eq!(names(&overlays, &[]), ["dev"]);
        let failure = overlays.built(&of("production")).unwrap_err();
        assert_eq!(failure.code, Code::RenderFailed);
        assert_eq!(failure.hint.as_deref(), Some("overlays: dev"));
    }

    #[test]
    fn plain_files_of_an_environment_lie_over_the_base_and_without_one_all_files_count() {
        let limits = Limits::default();
        let (_kept, sorted) = source(&["all.yaml", "base/b.yaml", "base/a/x.json", "dev/c.yml", "dev/.x/d.yaml"]);
        assert_eq!(sorted.kind, Kind::Plain);
        assert_eq!(names(&sorted, &[]), ["default", "dev"]);
        let dev = sorted.plain(&of("dev"), &limits).unwrap();
        assert_eq!(
            (dev.common, dev.own),
            (
                vec!["all.yaml".to_owned(), "base/a/x.json".to_owned(), "base/b.yaml".to_owned()],
                vec!["dev/c.yml".to_owned()],
            )
        );
        let other = sorted.plain(&of("production"), &limits).unwrap();
        assert_eq!((other.common.len(), other.own.len()), (3, 0));
        let (_kept, flat) = source(&["b.yaml", "crds/a.yaml", "readme.md"]);
        assert_eq!(names(&flat, &[]), ["default"]);
        assert_eq!(flat.plain(&of("dev"), &limits).unwrap().common, ["b.yaml", "crds/a.yaml"]);
        // Asked for by name, a folder is an environment also without a base.
        assert_eq!(flat.plain(&of("crds"), &limits).unwrap().own, ["crds/a.yaml"]);
    }

    #[test]
    fn a_single_file_is_a_source_and_nothing_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("all.yaml");
        fs::write(&file, "a: 1\n").unwrap();
        let source = Source::open(&file).unwrap();
        let plain = source.plain(&Layer::Default, &Limits::default()).unwrap();
        assert_eq!(plain.read("all.yaml", &Limits::default()).unwrap(), b"a: 1\n");
        let failure = Source::open(&folder.path().join("nothing")).unwrap_err();
        assert_eq!(failure.code, Code::Unreadable);
    }

    #[test]
    fn no_link_is_followed_out_of_the_source_and_no_file_is_read_beyond_its_limit() {
        let (kept, source) = source(&["a.yaml"]);
        std::os::unix::fs::symlink("/etc/passwd", kept.path().join("b.yaml")).unwrap();
        std::os::unix::fs::symlink("a.yaml", kept.path().join("c.yaml")).unwrap();
        let limits = Limits::default();
        let plain = source.plain(&Layer::Default, &limits).unwrap();
        assert_eq!(plain.common, ["a.yaml", "b.yaml", "c.yaml"]);
        assert_eq!(plain.read("b.yaml", &limits).unwrap_err().code, Code::Symlink);
        assert_eq!(plain.read("c.yaml", &limits).unwrap(), b"a: 1\n");
        let small = Limits { file: 4, ..limits };
        assert_eq!(plain.read("a.yaml", &small).unwrap_err().code, Code::ReleaseTooLarge);
        assert_eq!(
            source.plain(&Layer::Default, &Limits { entries: 2, ..limits }).unwrap_err().code,
            Code::ReleaseTooLarge
        );
    }

    #[test]
    fn a_chart_with_a_link_to_what_is_not_in_it_is_refused_however_deep_or_hidden_it_is() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "x").unwrap();
        for link in ["values-dev.yaml", "files/config", ".hidden/config", "charts/lib", "nowhere"] {
            let (kept, chart) = source(&["Chart.yaml", "files/a", ".hidden/b", "charts/own/Chart.yaml"]);
            // To what is inside they may lead, also from folder to folder.
            std::os::unix::fs::symlink("../Chart.yaml", kept.path().join("files/inside")).unwrap();
            std::os::unix::fs::symlink("own", kept.path().join("charts/other")).unwrap();
            chart.is_closed().unwrap();
            let target = match link {
                "charts/lib" => outside.path().to_owned(),
                "nowhere" => outside.path().join("nothing"),
                _ => outside.path().join("secret"),
            };
            std::os::unix::fs::symlink(target, kept.path().join(link)).unwrap();
            let failure = chart.is_closed().unwrap_err();
            assert_eq!(failure.code, Code::Symlink);
            assert!(failure.message.starts_with(&format!("`{link}` is a link")), "{}", failure.message);
        }
    }
}
