//! A source folder made of what an Argo CD Application renders (`forge_core::release::import` says what that is). Everything is
//! rendered twice: as Argo CD does it, from the Application's own source, and as `forge release build` does it, from the new
//! folder; where the two differ, or differ from what Argo CD says it manages, there is no folder.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use forge_core::code::Code;
use forge_core::failure::Failure;
use forge_core::name::{EnvironmentName, clip};
use forge_core::oci::Tree;
use forge_core::release::import::{Directory, Helm, How, Import, Managed, Scopes, edit, folders, values};
use forge_core::release::{self, Document, Limits, distinct, documents};
use forge_core::yaml::{self, Dialect};
use serde_json::{Value, json};

use super::build::{Layers, Rendering, render};
use super::program::{Call, Workshop};
use super::source::Source;
use crate::interrupt::Interrupts;
use crate::layout_folder;

/// What kustomize takes for a kustomization, in its order.
const KUSTOMIZATIONS: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];
/// Where the folders of a kustomization lie in the new source, as they lay in the old one.
const TREE: &str = "tree";
/// By this Argo CD is told not to take a file for manifests.
const SKIPPED: &[u8] = b"+argocd:skip-file-rendering";
/// How many objects are named where renderings differ.
const SHOWN: usize = 5;

/// The files of a source, by their paths.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// What is to be imported, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) import: &'a Import,
    /// The Application's repository, or its chart.
    pub(crate) tree: &'a Path,
    pub(crate) environment: &'a EnvironmentName,
    /// The namespace that the project deploys to.
    pub(crate) namespace: &'a str,
    /// Only what is rendered is taken, not what it is rendered from.
    pub(crate) flatten: bool,
    /// The version of Kubernetes that a chart sees.
    pub(crate) kube_version: &'a str,
    /// What else a chart sees that is served.
    pub(crate) api_versions: &'a [String],
    pub(crate) helm: &'a Path,
    pub(crate) kustomize: &'a Path,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Imported {
    /// The source.
    pub(crate) files: Files,
    /// What it renders to.
    pub(crate) layers: Layers,
    /// What else `forge release build` has to be told to render the same.
    pub(crate) arguments: Vec<String>,
    /// For people.
    pub(crate) notes: Vec<String>,
}

/// What is found to render, and how Argo CD renders it.
enum Found {
    Chart(Helm),
    Kustomization(Value),
    Plain(Directory),
}

fn refused(why: impl std::fmt::Display) -> Failure {
    Failure::new(Code::RenderFailed, why)
}

/// Makes a source.
///
/// # Errors
/// When what the Application renders cannot be made from a source folder, with why.
pub(crate) async fn import(
    asked: &Asked<'_>,
    limits: &Limits,
    interrupts: &mut Interrupts,
) -> Result<Imported, Failure> {
    let root = asked
        .tree
        .canonicalize()
        .map_err(|error| Failure::new(Code::Unreadable, format!("failed to read `{}`: {error}", shown(asked.tree))))?;
    let folder = inside(&root, &asked.import.path)?;
    if !folder.is_dir() {
        let message = format!("`{}` has no folder `{}`", shown(asked.tree), clip(&asked.import.path));
        return Err(
            Failure::new(Code::Unreadable, message).hint("--source is the root of the Application's repository")
        );
    }
    let work = Work { asked, root, folder, limits };
    let found = work.found();
    let (files, reference, settings) = match &found {
        Found::Chart(helm) => work.chart(helm, interrupts).await?,
        Found::Kustomization(options) => work.kustomization(options, interrupts).await?,
        Found::Plain(directory) => work.plain(directory)?,
    };
    let mut notes = asked.import.notes.clone();
    notes.extend(hooks(&reference));
    work.is_managed(&reference)?;
    let (files, reference) = if asked.flatten {
        let placed = work.placed(reference)?;
        (flat(&placed), placed)
    } else {
        work.stays(&reference)?;
        (files, reference)
    };
    let layers = work.rendered(&files, &settings, interrupts).await?;
    let before: Layers = [(asked.environment.as_str().to_owned(), reference)].into();
    same(&before, &layers)?;
    let arguments = if asked.flatten { Vec::new() } else { settings.arguments(asked) };
    Ok(Imported { files, layers, arguments, notes })
}

/// How a chart is installed; nothing of it counts for other sources.
#[derive(Debug, Default)]
struct Settings {
    name: Option<String>,
    namespace: Option<String>,
    kube_version: Option<String>,
    api_versions: Vec<String>,
}

impl Settings {
    /// What `forge release build` is told.
    fn arguments(&self, asked: &Asked<'_>) -> Vec<String> {
        let mut arguments = Vec::new();
        let given = [("--release-name", &self.name), ("--namespace", &self.namespace)];
        for (option, value) in given {
            if let Some(value) = value {
                arguments.extend([option.to_owned(), value.clone()]);
            }
        }
        if self.name.is_some() && asked.kube_version != super::build::KUBE_VERSION {
            arguments.extend(["--kube-version".to_owned(), asked.kube_version.to_owned()]);
        } else if let Some(version) = &self.kube_version {
            arguments.extend(["--kube-version".to_owned(), version.clone()]);
        }
        for version in &self.api_versions {
            arguments.extend(["--api-versions".to_owned(), version.clone()]);
        }
        arguments
    }
}

struct Work<'w> {
    asked: &'w Asked<'w>,
    /// Without links.
    root: PathBuf,
    /// What the Application renders, in it.
    folder: PathBuf,
    limits: &'w Limits,
}

/// Files of the new source, what Argo CD renders, and how a chart is installed.
type Read = (Files, Vec<Document>, Settings);

impl Work<'_> {
    /// As Argo CD decides it: what the Application says, else what is there.
    fn found(&self) -> Found {
        let chart = self.folder.join("Chart.yaml").is_file();
        let kustomization = KUSTOMIZATIONS.iter().any(|name| self.folder.join(name).is_file());
        match &self.asked.import.how {
            How::Helm(helm) => Found::Chart(helm.clone()),
            How::Kustomize(options) => Found::Kustomization(options.clone()),
            // With nothing but a choice of files it is not said that it is a plain folder.
            How::Directory(directory) if directory.recurse || !(chart || kustomization) => {
                Found::Plain(directory.clone())
            }
            How::Found | How::Directory(_) if chart => Found::Chart(Helm::default()),
            How::Found | How::Directory(_) if kustomization => Found::Kustomization(json!({})),
            How::Found | How::Directory(_) => Found::Plain(Directory::default()),
        }
    }

    async fn chart(&self, helm: &Helm, interrupts: &mut Interrupts) -> Result<Read, Failure> {
        let asked = self.asked;
        let mut files = self.copied(&self.folder, &|_| true)?;
        if !files.contains_key("Chart.yaml") {
            return Err(refused(format!("`{}` is no chart: it has no Chart.yaml", shown(&self.folder))));
        }
        let workshop = Workshop::open()?;
        let mut laid = Vec::new();
        let mut given: Vec<Vec<u8>> = Vec::new();
        for file in &helm.value_files {
            let path = match file.strip_prefix('/') {
                Some(path) => self.root.join(path),
                None => self.folder.join(file),
            };
            if !path.exists() && helm.ignore_missing {
                continue;
            }
            let bytes = self.read(&path)?;
            laid.push(self.yaml(file, &bytes)?);
            given.push(bytes);
        }
        if let Some(text) = &helm.values {
            laid.push(self.yaml("helm.values", text.as_bytes())?);
            given.push(text.clone().into_bytes());
        }
        let own = values(laid, &helm.parameters).map_err(refused)?;
        if own.as_object().is_some_and(|fields| !fields.is_empty()) {
            files.insert(format!("values-{}.yaml", asked.environment), yaml::write_blocks(&own).into_bytes());
        } else {
            files.remove(&format!("values-{}.yaml", asked.environment));
        }
        if helm.skip_crds {
            let definition = |path: &str| path.starts_with("crds/") || path.contains("/crds/");
            files.retain(|path, _| !definition(path) || path.starts_with("templates/"));
        }
        let settings = Settings {
            name: Some(helm.release_name.clone().unwrap_or_else(|| asked.import.name.clone())),
            namespace: helm.namespace.clone().or_else(|| asked.import.namespace.clone()),
            kube_version: helm.kube_version.clone(),
            api_versions: helm.api_versions.iter().chain(asked.api_versions).cloned().collect(),
        };
        // What Argo CD runs, but for tests of the chart, which it renders and never applies.
        let scratch = tempfile::tempdir().map_err(|error| Failure::write("a temporary folder", &error))?;
        let mut arguments: Vec<OsString> = vec!["template".into(), self.folder.clone().into_os_string()];
        let mut tell = |option: &str, value: OsString| arguments.extend([OsString::from(option), value]);
        tell("--name-template", settings.name.clone().unwrap_or_default().into());
        if let Some(namespace) = &settings.namespace {
            tell("--namespace", namespace.into());
        }
        tell("--kube-version", self.kube_version(&settings).into());
        for parameter in &helm.parameters {
            let option = if parameter.force_string { "--set-string" } else { "--set" };
            tell(option, format!("{}={}", parameter.name, escaped(&parameter.value)).into());
        }
        for (i, bytes) in given.iter().enumerate() {
            let path = scratch.path().join(format!("{i}.yaml"));
            fs::write(&path, bytes).map_err(|error| Failure::write("a temporary file", &error))?;
            tell("--values", path.into_os_string());
        }
        for version in &settings.api_versions {
            tell("--api-versions", version.into());
        }
        if !helm.skip_crds {
            arguments.push("--include-crds".into());
        }
        arguments.push("--skip-tests".into());
        let call = Call { program: asked.helm, what: "helm template", layer: self.layer(), arguments, zone: "UTC" };
        let said = workshop.run(&call, interrupts).await?;
        Ok((files, self.parsed("helm template", &said)?, settings))
    }

    async fn kustomization(&self, options: &Value, interrupts: &mut Interrupts) -> Result<Read, Failure> {
        let mut files = Files::new();
        let mut open = vec![self.folder.clone()];
        let mut seen: BTreeSet<PathBuf> = BTreeSet::new();
        let more = options.get("components").and_then(Value::as_array).cloned().unwrap_or_default();
        while let Some(folder) = open.pop() {
            if !seen.insert(folder.clone()) {
                continue;
            }
            let below = self.below(&folder)?;
            let (name, mut kustomization) = self.kustomization_of(&folder)?;
            let mut entries = folders(&kustomization)
                .map_err(|why| refused(format!("`{}` cannot be imported: {why}", clip(&below))))?;
            for (path, bytes) in self.copied(&folder, &|_| true)? {
                files.entry(joined(&[TREE, &below, &path])).or_insert(bytes);
            }
            if folder == self.folder {
                entries.extend(more.iter().filter_map(Value::as_str).map(str::to_owned));
                if options.as_object().is_some_and(|options| !options.is_empty()) {
                    edit(&mut kustomization, options).map_err(refused)?;
                    files.insert(joined(&[TREE, &below, name]), yaml::write_blocks(&kustomization).into_bytes());
                }
            }
            for entry in entries {
                let path = folder.join(&entry);
                let path = path.canonicalize().ok().filter(|path| path.starts_with(&self.root)).ok_or_else(|| {
                    refused(format!("`{}` of `{}` is not in the repository", clip(&entry), clip(&below)))
                        .hint("nothing is fetched while rendering: put it into the repository")
                })?;
                if path.is_dir() {
                    open.push(path);
                }
            }
        }
        // The folder itself may have been changed as a part of another one that holds it.
        let entry = joined(&["..", "..", TREE, &self.below(&self.folder)?]);
        let overlay = json!({
            "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": [entry],
        });
        let path = format!("overlays/{}/kustomization.yaml", self.asked.environment);
        files.insert(path, yaml::write(&overlay).into_bytes());
        // Changed fields are in the copy; without any the Application's own folder is what Argo CD builds.
        let scratch = tempfile::tempdir().map_err(|error| Failure::write("a temporary folder", &error))?;
        let changed = options.as_object().is_some_and(|options| !options.is_empty());
        let built = if changed {
            write(scratch.path(), &files)?;
            scratch.path().join(TREE).join(self.below(&self.folder)?)
        } else {
            self.folder.clone()
        };
        let arguments = vec![OsString::from("build"), built.into_os_string()];
        let (program, what) = (self.asked.kustomize, "kustomize build");
        let call = Call { program, what, layer: self.layer(), arguments, zone: "UTC" };
        let said = Workshop::open()?.run(&call, interrupts).await?;
        Ok((files, self.parsed(what, &said)?, Settings::default()))
    }

    /// The kustomization of a folder, and the name of its file.
    fn kustomization_of(&self, folder: &Path) -> Result<(&'static str, Value), Failure> {
        let name = KUSTOMIZATIONS.into_iter().find(|name| folder.join(name).is_file());
        let name = name.ok_or_else(|| refused(format!("`{}` has no kustomization", shown(folder))))?;
        let bytes = self.read(&folder.join(name))?;
        Ok((name, self.yaml(name, &bytes)?))
    }

    fn plain(&self, directory: &Directory) -> Result<Read, Failure> {
        let manifest = |path: &str| [".yaml", ".yml", ".json"].iter().any(|ending| path.ends_with(ending));
        let mut files = Files::new();
        let mut found = Vec::new();
        let wanted = |path: &str| directory.takes(path) && (manifest(path) || path.ends_with(".jsonnet"));
        for (path, bytes) in self.copied(&self.folder, &wanted)? {
            if path.ends_with(".jsonnet") {
                let message = format!("`{}` is Jsonnet, which Forge does not render", clip(&path));
                return Err(refused(message).hint("commit what it gives as YAML instead"));
            }
            if bytes.windows(SKIPPED.len()).any(|part| part == SKIPPED) {
                continue;
            }
            found.extend(documents(&path, &bytes, self.limits)?);
            files.insert(joined(&["base", &path]), bytes);
        }
        Ok((files, distinct(found)?, Settings::default()))
    }

    /// That Argo CD manages exactly these objects, where it says which.
    fn is_managed(&self, rendered: &[Document]) -> Result<(), Failure> {
        let import = self.asked.import;
        let Some(managed) = &import.managed else { return Ok(()) };
        let scopes = Scopes::new(Some(managed), rendered);
        let own = import.namespace.clone().unwrap_or_default();
        let mut here = BTreeSet::new();
        for document in rendered.iter().filter(|document| !is_hook(document)) {
            let namespaced = scopes.is_namespaced(document).unwrap_or(false);
            let namespace =
                if namespaced { document.namespace.clone().unwrap_or_else(|| own.clone()) } else { String::new() };
            let (group, kind, name) = (document.group().to_owned(), document.kind.clone(), document.name.clone());
            here.insert(Managed { group, kind, namespace, name });
        }
        let named = |what: Vec<&Managed>| {
            let names: Vec<String> = what.iter().take(SHOWN).map(|one| format!("`{one}`")).collect();
            let more = what.len().saturating_sub(SHOWN);
            if more > 0 { format!("{} and {more} more", names.join(", ")) } else { names.join(", ") }
        };
        let (lost, new): (Vec<_>, Vec<_>) = (managed.difference(&here).collect(), here.difference(managed).collect());
        let mut differs = Vec::new();
        if !lost.is_empty() {
            differs.push(format!("Argo CD manages {}, which is not rendered", named(lost)));
        }
        if !new.is_empty() {
            differs.push(format!("{} is rendered, which Argo CD does not manage", named(new)));
        }
        if differs.is_empty() {
            return Ok(());
        }
        Err(refused(format!("`{}` renders to other objects than it has: {}", clip(&import.name), differs.join("; ")))
            .hint("a chart may ask what the cluster serves: name it with --kube-version and --api-versions"))
    }

    /// That objects without a namespace go where they are now.
    fn stays(&self, rendered: &[Document]) -> Result<(), Failure> {
        let import = self.asked.import;
        if import.namespace.as_deref() == Some(self.asked.namespace) {
            return Ok(());
        }
        let scopes = Scopes::new(import.managed.as_ref(), rendered);
        let moved = rendered
            .iter()
            .find(|document| document.namespace.is_none() && scopes.is_namespaced(document) != Some(false));
        let Some(moved) = moved else { return Ok(()) };
        let message = format!(
            "`{}` says no namespace: it is in `{}` now, and a release of this project would put it into `{}`",
            moved.key(),
            clip(import.namespace.as_deref().unwrap_or("default")),
            self.asked.namespace
        );
        Err(refused(message)
            .hint("say --flatten, which writes namespaces out; or name the project after the namespace"))
    }

    /// Documents with their namespaces written out.
    fn placed(&self, rendered: Vec<Document>) -> Result<Vec<Document>, Failure> {
        let import = self.asked.import;
        let Some(own) = &import.namespace else { return Ok(rendered) };
        if own == self.asked.namespace {
            return Ok(rendered);
        }
        let known = rendered.clone();
        let scopes = Scopes::new(import.managed.as_ref(), &known);
        let mut placed = Vec::new();
        for mut document in rendered {
            let Some(namespaced) = scopes.is_namespaced(&document) else {
                let message = format!("nobody says whether `{}` has a namespace", document.key());
                return Err(refused(message)
                    .hint("write its namespace into the source, or import it from the cluster, in sync"));
            };
            if let (true, None, Some(metadata)) =
                (namespaced, &document.namespace, document.value.get_mut("metadata").and_then(Value::as_object_mut))
            {
                metadata.insert("namespace".to_owned(), Value::from(own.as_str()));
                document.namespace = Some(own.clone());
                document.value.sort_all_objects();
            }
            placed.push(document);
        }
        Ok(distinct(placed)?)
    }

    /// What `forge release build` makes of the new source.
    async fn rendered(
        &self,
        files: &Files,
        settings: &Settings,
        interrupts: &mut Interrupts,
    ) -> Result<Layers, Failure> {
        let scratch = tempfile::tempdir().map_err(|error| Failure::write("a temporary folder", &error))?;
        write(scratch.path(), files)?;
        let source = Source::open(scratch.path())?;
        let environments = [self.asked.environment.clone()];
        let rendering = Rendering {
            source: &source,
            environments: &environments,
            values: &[],
            set: &[],
            name: settings.name.as_deref().unwrap_or(&self.asked.import.name),
            namespace: settings.namespace.as_deref().unwrap_or(self.asked.namespace),
            kube_version: self.kube_version(settings),
            api_versions: &settings.api_versions,
            helm: self.asked.helm,
            kustomize: self.asked.kustomize,
        };
        render(&rendering, self.limits, interrupts).await
    }

    /// What the command says, else what the Application says.
    fn kube_version<'s>(&'s self, settings: &'s Settings) -> &'s str {
        match &settings.kube_version {
            Some(version) if self.asked.kube_version == super::build::KUBE_VERSION => version,
            _ => self.asked.kube_version,
        }
    }

    fn layer(&self) -> &str {
        self.asked.environment.as_str()
    }

    fn parsed(&self, what: &str, said: &[u8]) -> Result<Vec<Document>, Failure> {
        let whole = Limits { file: usize::try_from(self.limits.output).unwrap_or(usize::MAX), ..*self.limits };
        Ok(distinct(documents(what, said, &whole)?)?)
    }

    /// The only document of a file that is no object of Kubernetes.
    fn yaml(&self, name: &str, bytes: &[u8]) -> Result<Value, Failure> {
        let bad = |why: String| refused(format!("`{}` cannot be read: {why}", clip(name)));
        let text = yaml::decode_text(bytes).map_err(|problem| bad(problem.message))?;
        let stream = yaml::read(text, Dialect::Kubernetes, yaml::Limits::FILE);
        match (stream.problems.into_iter().next(), stream.documents.as_slice()) {
            (Some(problem), _) => Err(bad(problem.message)),
            (None, []) => Ok(Value::Null),
            (None, [document]) => Ok(document.to_json()),
            (None, _) => Err(bad("it holds several documents".to_owned())),
        }
    }

    /// The path of a folder in the repository.
    fn below(&self, folder: &Path) -> Result<String, Failure> {
        let below = folder.strip_prefix(&self.root).ok().and_then(Path::to_str).map(str::to_owned);
        below.ok_or_else(|| refused(format!("`{}` is not in the repository", shown(folder))))
    }

    /// The files of a folder that are wanted, by their paths in it. Links are followed inside the repository, and nowhere else.
    fn copied(&self, folder: &Path, wanted: &dyn Fn(&str) -> bool) -> Result<Files, Failure> {
        let mut files = Files::new();
        let mut bytes = 0_u64;
        let mut open = vec![(folder.to_owned(), String::new())];
        while let Some((folder, below)) = open.pop() {
            let unread = |error: std::io::Error| {
                Failure::new(Code::Unreadable, format!("failed to list `{}`: {error}", shown(&folder)))
            };
            for entry in fs::read_dir(&folder).map_err(unread)? {
                let entry = entry.map_err(unread)?;
                let name = entry.file_name();
                let Some(name) = name.to_str() else {
                    return Err(refused(format!("a file in `{}` has a name that is not UTF-8", shown(&folder))));
                };
                if name == ".git" {
                    continue;
                }
                let path = if below.is_empty() { name.to_owned() } else { format!("{below}/{name}") };
                if entry.file_type().map_err(unread)?.is_dir() {
                    open.push((entry.path(), path));
                } else if wanted(&path) {
                    let content = self.read(&entry.path())?;
                    bytes = bytes.saturating_add(content.len() as u64);
                    files.insert(path, content);
                }
                if files.len() + open.len() > self.limits.entries || bytes > self.limits.extracted {
                    let message = format!(
                        "`{}` has more than {} files and folders, or {} bytes",
                        shown(&folder),
                        self.limits.entries,
                        self.limits.extracted
                    );
                    return Err(Failure::new(Code::ReleaseTooLarge, message)
                        .hint("--flatten does not help: is this the right path?"));
                }
            }
        }
        Ok(files)
    }

    /// A regular file of the repository.
    fn read(&self, path: &Path) -> Result<Vec<u8>, Failure> {
        let unread = |error: &dyn std::fmt::Display| {
            Failure::new(Code::Unreadable, format!("failed to read `{}`: {error}", shown(path)))
        };
        let real = path.canonicalize().map_err(|error| unread(&error))?;
        if !real.starts_with(&self.root) {
            let message = format!("`{}` leads out of the repository", shown(path));
            return Err(Failure::new(Code::Symlink, message).hint("put the file itself there"));
        }
        if !real.is_file() {
            return Err(unread(&"it is not a regular file"));
        }
        let most = self.limits.file as u64;
        let mut bytes = Vec::new();
        let read = File::open(&real).and_then(|file| file.take(most.saturating_add(1)).read_to_end(&mut bytes));
        read.map_err(|error| unread(&error))?;
        if bytes.len() as u64 > most {
            return Err(Failure::new(Code::ReleaseTooLarge, format!("`{}` has more than {most} bytes", shown(path))));
        }
        Ok(bytes)
    }
}

fn shown(path: &Path) -> String {
    clip(&path.display().to_string())
}

/// Parts of a path, without empty ones.
fn joined(parts: &[&str]) -> String {
    let parts: Vec<&str> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
    parts.join("/")
}

/// A folder of a repository; no link and no `..` leads out of it.
fn inside(root: &Path, path: &str) -> Result<PathBuf, Failure> {
    let folder = root.join(path);
    let real = folder.canonicalize().map_err(|error| {
        Failure::new(Code::Unreadable, format!("failed to read `{}`: {error}", shown(&folder)))
            .hint("--source is the root of the Application's repository, or its chart")
    })?;
    if !real.starts_with(root) {
        return Err(Failure::new(Code::Symlink, format!("`{}` leads out of the repository", clip(path))));
    }
    Ok(real)
}

/// A value as Argo CD gives it to `--set`.
fn escaped(value: &str) -> String {
    if value.starts_with('{') && value.ends_with('}') {
        return value.to_owned();
    }
    let mut text = String::new();
    let mut before = None;
    for c in value.chars() {
        if c == ',' && before != Some('\\') {
            text.push('\\');
        }
        text.push(c);
        before = Some(c);
    }
    text
}

fn is_hook(document: &Document) -> bool {
    let annotations = document.value.pointer("/metadata/annotations").and_then(Value::as_object);
    annotations
        .is_some_and(|all| ["argocd.argoproj.io/hook", "helm.sh/hook"].iter().any(|name| all.contains_key(*name)))
}

/// What Argo CD runs around a sync: it still does, and lint would refuse it in Git.
fn hooks(documents: &[Document]) -> Option<String> {
    let hooks: Vec<String> =
        documents.iter().filter(|document| is_hook(document)).map(|document| document.key().to_string()).collect();
    let first = hooks.first()?;
    let more = hooks.len() - 1;
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Some(format!("`{first}`{more} is a hook: an order between applications belongs into graph.yaml (FORGE-H001, H002)"))
}

/// What is rendered, as a source of its own.
fn flat(documents: &[Document]) -> Files {
    documents.iter().map(|document| (joined(&["base", &document.path()]), document.text().into_bytes())).collect()
}

fn same(before: &Layers, after: &Layers) -> Result<(), Failure> {
    let changes = release::diff(before, after);
    let Some(first) = changes.first() else { return Ok(()) };
    let names: Vec<String> = changes.iter().take(SHOWN).map(|change| format!("`{}`", change.document)).collect();
    let more = changes.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let text = forge_core::name::cut(first.text.trim_end(), 2000);
    let message = format!("the new source renders {}{more} differently from Argo CD:\n{text}", names.join(", "));
    Err(refused(message).hint("say --flatten, which takes what is rendered"))
}

/// Writes the files of a source as a folder that is there whole or not at all: who is killed, or has no room, can begin again. A
/// folder that is there, and empty, stays the same one: it may be mounted, or somebody stands in it. Then everything is written before
/// anything is moved into its place; only who is killed between two of these moves leaves a part, which is said to be in the way.
///
/// # Errors
/// When that is not possible, or something is in the folder.
pub(crate) fn appear(folder: &Path, files: &Files) -> Result<(), Failure> {
    if folder.is_dir() {
        return fill(folder, files);
    }
    let mut tree = Tree::default();
    for (path, bytes) in files {
        tree.file(path, bytes.as_slice(), 0o644);
    }
    layout_folder::appear(folder, &tree).map_err(|error| Failure::write(format!("`{}`", shown(folder)), &error))
}

/// Writes all files beside each other under a name of their own in the folder, then moves them up.
fn fill(folder: &Path, files: &Files) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::write(format!("`{}`", shown(folder)), &error);
    if fs::read_dir(folder).map_err(failed)?.next().is_some() {
        return Err(failed(std::io::ErrorKind::DirectoryNotEmpty.into()));
    }
    let inside = tempfile::Builder::new().prefix(".forge-source-").tempdir_in(folder).map_err(failed)?;
    write(inside.path(), files)?;
    for entry in fs::read_dir(inside.path()).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        fs::rename(entry.path(), folder.join(entry.file_name())).map_err(failed)?;
    }
    Ok(())
}

/// Writes files into a folder.
///
/// # Errors
/// When that is not possible, or one of them is there.
fn write(folder: &Path, files: &Files) -> Result<(), Failure> {
    for (path, bytes) in files {
        let to = folder.join(path);
        let written = to.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| {
            let mut file = OpenOptions::new().write(true).create_new(true).open(&to)?;
            file.write_all(bytes)
        });
        written.map_err(|error| Failure::write(format!("`{}`", shown(&to)), &error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(paths: &[&str]) -> Files {
        paths.iter().map(|path| ((*path).to_owned(), path.as_bytes().to_vec())).collect()
    }

    #[test]
    fn a_source_that_cannot_be_written_whole_is_not_there_and_can_be_written_again() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path().join("source");
        // A file cannot be a folder too: the second of them is one too many.
        let failure = appear(&folder, &files(&["base/a", "base/a/b"])).unwrap_err();
        assert_eq!(failure.code, Code::CannotWrite);
        assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
        fs::create_dir(&folder).unwrap();
        appear(&folder, &files(&["base/a", "base/b/c"])).unwrap();
        assert_eq!(fs::read(folder.join("base/b/c")).unwrap(), b"base/b/c");
        assert!(appear(&folder, &files(&["other"])).is_err());
        assert!(!folder.join("other").exists());
        assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 1);
    }
}
