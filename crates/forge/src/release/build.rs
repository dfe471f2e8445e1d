//! From a source to documents by layer. Helm renders everything twice, in two time zones and not within one second, because
//! what comes out differently would be another release each time.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forge_core::code::Code;
use forge_core::failure::Failure;
use forge_core::name::{EnvironmentName, cut};
use forge_core::release::{self, Document, ImageReference, Limits, distinct, documents};

use super::program::{Call, Workshop};
use super::source::{Kind, Layer, Source};
use crate::interrupt::Interrupts;
use crate::registry::{Reference, Registry, RepositoryName};

/// The Kubernetes that charts are rendered for, unless another one is named: what helm itself takes differs from version to
/// version of it.
pub(crate) const KUBE_VERSION: &str = "1.34.0";
/// Two renderings lie so far apart: whatever writes the time writes another one.
const APART: Duration = Duration::from_millis(1100);
/// The zones that they are made in.
const ZONES: [&str; 2] = ["UTC", "Asia/Tokyo"];
/// How much of a difference is shown.
const SHOWN: usize = 2000;
/// What an image without a tag means.
const LATEST: &str = "latest";

/// How a source is rendered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rendering<'r> {
    pub(crate) source: &'r Source,
    /// The layers that are asked for; those of the source if there are none.
    pub(crate) environments: &'r [EnvironmentName],
    /// Files of values that lie over those of the chart.
    pub(crate) values: &'r [PathBuf],
    /// Values that lie over those of files.
    pub(crate) set: &'r [String],
    /// The name that a chart is installed by.
    pub(crate) name: &'r str,
    /// The namespace that a chart is installed in.
    pub(crate) namespace: &'r str,
    /// The version of Kubernetes that a chart sees.
    pub(crate) kube_version: &'r str,
    /// What else a chart sees that is served.
    pub(crate) api_versions: &'r [String],
    pub(crate) helm: &'r Path,
    pub(crate) kustomize: &'r Path,
}

/// Documents by layer.
pub(crate) type Layers = BTreeMap<String, Vec<Document>>;

/// Renders every layer.
///
/// # Errors
/// When a program fails, what it gives is not what a release may hold, or it gives something else the second time.
pub(crate) async fn render(
    rendering: &Rendering<'_>,
    limits: &Limits,
    interrupts: &mut Interrupts,
) -> Result<Layers, Failure> {
    let source = rendering.source;
    if source.kind != Kind::Chart && !(rendering.values.is_empty() && rendering.set.is_empty()) {
        let message = "--values and --set are for Helm charts, and the source has no Chart.yaml";
        return Err(Failure::new(Code::BadArgument, message).hint("write what differs into overlays or folders"));
    }
    let wanted = source.layers(rendering.environments);
    match source.kind {
        Kind::Plain => {
            wanted.iter().map(|layer| Ok((layer.name().to_owned(), plain(source, layer, limits)?))).collect()
        }
        Kind::Kustomization => kustomized(rendering, &wanted, limits, interrupts).await,
        Kind::Chart => {
            source.is_closed()?;
            let begin = tokio::time::Instant::now();
            let [first, second] = ZONES;
            let before = charted(rendering, &wanted, first, limits, interrupts).await?;
            tokio::time::sleep_until(begin + APART).await;
            let after = charted(rendering, &wanted, second, limits, interrupts).await?;
            same(&before, &after)?;
            Ok(before)
        }
    }
}

/// Two renderings that must not differ.
fn same(before: &Layers, after: &Layers) -> Result<(), Failure> {
    let changes = release::diff(before, after);
    let Some(first) = changes.first() else { return Ok(()) };
    let more = match changes.len() {
        1 => String::new(),
        count => format!(", and {} more", count - 1),
    };
    let text = cut(first.text.trim_end(), SHOWN);
    let message = format!("layer `{}` renders differently twice: {}{more}\n{text}", first.layer, first.document);
    Err(Failure::new(Code::NotReproducible, message)
        .hint("give the value instead of having it made up: a password, a certificate, a time"))
}

/// What lies over the base replaces what is the same object, and is added otherwise.
fn plain(source: &Source, layer: &Layer, limits: &Limits) -> Result<Vec<Document>, Failure> {
    let plain = source.plain(layer, limits)?;
    let read = |paths: &[String]| -> Result<Vec<Document>, Failure> {
        let mut all = Vec::new();
        for path in paths {
            all.extend(documents(path, &plain.read(path, limits)?, limits)?);
        }
        Ok(distinct(all)?)
    };
    let mut found: BTreeMap<_, _> =
        read(&plain.common)?.into_iter().map(|document| (document.key(), document)).collect();
    found.extend(read(&plain.own)?.into_iter().map(|document| (document.key(), document)));
    Ok(found.into_values().collect())
}

async fn kustomized(
    rendering: &Rendering<'_>,
    wanted: &[Layer],
    limits: &Limits,
    interrupts: &mut Interrupts,
) -> Result<Layers, Failure> {
    let workshop = Workshop::open()?;
    let mut done: BTreeMap<PathBuf, Vec<Document>> = BTreeMap::new();
    let mut layers = Layers::new();
    for layer in wanted {
        let folder = rendering.source.built(layer)?;
        let found = match done.get(&folder) {
            Some(found) => found.clone(),
            None => {
                let arguments = vec![OsString::from("build"), folder.clone().into_os_string()];
                let what = "kustomize build";
                let program = rendering.kustomize;
                let call = Call { program, what, layer: layer.name(), arguments, zone: "UTC" };
                let said = workshop.run(&call, interrupts).await?;
                read(what, layer, &said, limits)?
            }
        };
        done.insert(folder, found.clone());
        layers.insert(layer.name().to_owned(), found);
    }
    Ok(layers)
}

async fn charted(
    rendering: &Rendering<'_>,
    wanted: &[Layer],
    zone: &'static str,
    limits: &Limits,
    interrupts: &mut Interrupts,
) -> Result<Layers, Failure> {
    // Another one each time: what a chart finds there it left there.
    let workshop = Workshop::open()?;
    let mut done: BTreeMap<Option<PathBuf>, Vec<Document>> = BTreeMap::new();
    let mut layers = Layers::new();
    for layer in wanted {
        let values = rendering.source.values(layer);
        let found = match done.get(&values) {
            Some(found) => found.clone(),
            None => {
                let what = "helm template";
                let arguments = template(rendering, values.as_deref());
                let call = Call { program: rendering.helm, what, layer: layer.name(), arguments, zone };
                let said = workshop.run(&call, interrupts).await?;
                read(what, layer, &said, limits)?
            }
        };
        done.insert(values, found.clone());
        layers.insert(layer.name().to_owned(), found);
    }
    Ok(layers)
}

/// What helm is asked for. Tests of a chart are left out: Argo CD would never start them.
fn template(rendering: &Rendering<'_>, values: Option<&Path>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["template".into(), rendering.name.into()];
    arguments.push(rendering.source.root.clone().into_os_string());
    let fixed = ["--namespace", rendering.namespace, "--include-crds", "--skip-tests", "--kube-version"];
    arguments.extend(fixed.iter().map(OsString::from));
    arguments.push(rendering.kube_version.into());
    for version in rendering.api_versions {
        arguments.extend([OsString::from("--api-versions"), OsString::from(version)]);
    }
    for file in values.into_iter().chain(rendering.values.iter().map(PathBuf::as_path)) {
        arguments.extend([OsString::from("--values"), OsString::from(file)]);
    }
    for value in rendering.set {
        arguments.extend([OsString::from("--set"), OsString::from(value)]);
    }
    arguments
}

fn read(what: &str, layer: &Layer, said: &[u8], limits: &Limits) -> Result<Vec<Document>, Failure> {
    // All objects come as one text, so it may be as long as all files together.
    let whole = Limits { file: usize::try_from(limits.output).unwrap_or(usize::MAX), ..*limits };
    let path = format!("{what} ({})", layer.name());
    Ok(distinct(documents(&path, said, &whole)?)?)
}

/// Looks up the tags of images that are not fixed yet, each once, and fixes them. Gives what became of each.
///
/// # Errors
/// When a registry does not have one, or does not say.
pub(crate) async fn resolve(
    layers: &mut Layers,
    registry: &Registry,
    limits: &Limits,
) -> Result<BTreeMap<String, forge_core::digest::Digest>, Failure> {
    let mut found = BTreeMap::new();
    for document in layers.values().flatten() {
        for used in document.images() {
            if found.contains_key(&used.image) {
                continue;
            }
            // What is no reference is told with all others that are not fixed.
            let Ok(image) = used.image.parse::<ImageReference>() else { continue };
            if image.is_pinned() {
                continue;
            }
            let repository: RepositoryName = image.name().parse().map_err(Failure::from)?;
            let reference = Reference::Tag(image.tag().unwrap_or(LATEST).to_owned());
            let (descriptor, _) = registry.manifest(&repository, &reference, limits.manifest).await?;
            found.insert(used.image, descriptor.digest);
        }
    }
    for document in layers.values_mut().flatten() {
        document.pin(&found);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    fn map(name: &str, value: &str) -> String {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{key: {value}}}\n---\n")
    }

    #[test]
    fn what_lies_over_the_base_replaces_it_and_the_rest_is_added() {
        let (first, second, other) = (map("a", "base"), map("a", "dev"), map("b", "dev"));
        let folder =
            folder(&[("base/a.yaml", first.as_str()), ("dev/a.yaml", second.as_str()), ("dev/b.yaml", other.as_str())]);
        let source = Source::open(folder.path()).unwrap();
        let limits = Limits::default();
        let values = |layer: &Layer| -> Vec<(String, String)> {
            let documents = plain(&source, layer, &limits).unwrap();
            documents
                .iter()
                .map(|document| (document.name.clone(), document.value["data"]["key"].as_str().unwrap().to_owned()))
                .collect()
        };
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(values(&Layer::Of("dev".parse().unwrap())), [pair("a", "dev"), pair("b", "dev")]);
        assert_eq!(values(&Layer::Default), [pair("a", "base")]);
        assert_eq!(values(&Layer::Of("production".parse().unwrap())), [pair("a", "base")]);
    }

    #[test]
    fn the_same_object_twice_in_one_folder_is_refused() {
        let text = map("a", "1");
        let folder = folder(&[("x.yaml", text.as_str()), ("y.yaml", text.as_str())]);
        let source = Source::open(folder.path()).unwrap();
        let failure = plain(&source, &Layer::Default, &Limits::default()).unwrap_err();
        assert_eq!(failure.code, Code::ReleaseMalformed);
    }

    #[test]
    fn helm_is_given_values_in_their_order_and_a_fixed_kubernetes() {
        let folder = folder(&[("Chart.yaml", "name: api\n"), ("values-dev.yaml", "a: 1\n")]);
        let source = Source::open(folder.path()).unwrap();
        let (values, set) = ([PathBuf::from("/more.yaml")], ["a.b=1,2".to_owned()]);
        let rendering = Rendering {
            source: &source,
            environments: &[],
            values: &values,
            set: &set,
            name: "api",
            namespace: "shop-api",
            kube_version: KUBE_VERSION,
            api_versions: &["example.com/v1".to_owned()],
            helm: Path::new("helm"),
            kustomize: Path::new("kustomize"),
        };
        let dev = Layer::Of("dev".parse().unwrap());
        let arguments = template(&rendering, source.values(&dev).as_deref());
        let arguments: Vec<String> = arguments.into_iter().map(|argument| argument.into_string().unwrap()).collect();
        let root = source.root.display().to_string();
        let wanted = format!(
            "template|api|{root}|--namespace|shop-api|--include-crds|--skip-tests|--kube-version|1.34.0|\
             --api-versions|example.com/v1|--values|{root}/values-dev.yaml|--values|/more.yaml|--set|a.b=1,2"
        );
        assert_eq!(arguments.join("|"), wanted);
    }

    #[test]
    fn a_second_rendering_that_differs_is_refused_with_what_differs() {
        let limits = Limits::default();
        let layers = |value: &str| -> Layers {
            let text = map("a", value);
            [("dev".to_owned(), documents("a.yaml", text.as_bytes(), &limits).unwrap())].into()
        };
        assert!(same(&layers("one"), &layers("one")).is_ok());
        let failure = same(&layers("one"), &layers("other")).unwrap_err();
        assert_eq!(failure.code, Code::NotReproducible);
        for part in ["layer `dev` renders differently twice", "one", "other"] {
            assert!(failure.message.contains(part), "{}", failure.message);
        }
    }
}
