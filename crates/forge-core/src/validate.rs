//! Lint: everything that is wrong with a repository, at once.
//!
//! Two steps, both pure: [`inspect`] looks at one file alone, so that the caller may run it on as many threads as it
//! likes; [`assemble`] puts the files together, checks what only shows between them, and applies suppressions. What
//! comes out is the same whatever the order of the files (INV-9).

mod argo;
mod assemble;
mod embedded;
mod manifest;
mod secrets;
mod suppress;

use std::collections::BTreeMap;

pub use assemble::assemble;
pub(crate) use secrets::scrubbed;
pub use suppress::Suppression;

use crate::code::Code;
use crate::finding::{Finding, Note, Place, Suppressed};
use crate::format::{ClusterFile, DependencyGraph, EnvironmentConfig, GraphOverride, Installation, ReleasePointer};
use crate::health::{CheckName, Script, ScriptError};
use crate::preflight::Component;
use crate::release::edges::Judged;
use crate::repository::{INSTALLATION_FILE, Layout, Repository, Role, is_manifest};
use crate::yaml::{Decoder, Dialect, Limits, Node, Position, Problem, ProblemKind, Stream, decode_text, read};

/// A file as the loader found it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Its bytes.
    Bytes(Vec<u8>),
    /// Too large to be read, with its size.
    TooLarge(u64),
    /// A link that leaves the repository, or leads to a folder or to nothing.
    Symlink(&'static str),
    /// Not a regular file, or not readable; with the reason.
    Unreadable(String),
    /// Listed only: its presence is all that matters.
    Unread,
}

/// What everything is checked against.
#[derive(Debug, Clone)]
pub struct Context {
    /// `forge.yaml`, if it could be read.
    pub installation: Option<Installation>,
    /// Where the environments are.
    pub layout: Layout,
}

impl Context {
    /// From the bytes of `forge.yaml` and the list of all paths. What is wrong with the file is reported when it is
    /// inspected like any other.
    pub fn new<'p>(installation: Option<&Content>, paths: impl Iterator<Item = &'p str>) -> Self {
        let installation = match installation {
            Some(Content::Bytes(bytes)) => {
                let stream = decode_text(bytes).ok().map(|text| read(text, Dialect::Strict, Limits::FILE));
                let mut decoder = Decoder::new(INSTALLATION_FILE);
                let document = stream.as_ref().filter(|stream| stream.problems.is_empty());
                document.and_then(|stream| Installation::decode(&mut decoder, stream.documents.first()?))
            }
            _ => None,
        };
        let layout = installation.as_ref().map_or_else(|| Layout::guess(paths), Layout::of);
        Self { installation, layout }
    }
}

/// What one file says.
#[derive(Debug, Clone)]
pub enum Facts {
    /// Nothing that other files depend on.
    None,
    /// `forge.yaml`; the context has it.
    Installation,
    /// `graph.yaml`
    Graph(DependencyGraph),
    /// `<env>/graph.yaml`; `None` if there is something wrong with it.
    Override(usize, Option<GraphOverride>),
    /// The root `app.yaml`, and whether it has Crossplane.
    RootApp {
        /// It has an Application `crossplane`.
        crossplane: bool,
        /// What it holds; `None` if it cannot be read.
        objects: Option<Vec<serde_json::Value>>,
    },
    /// `<env>/app.yaml`
    EnvironmentApp(usize),
    /// `<env>/env.yaml`
    EnvironmentConfig(usize),
    /// A pointer; `None` if there is something wrong with it.
    Pointer(usize, String, String, Option<ReleasePointer>),
    /// `env.yaml` of a project, or an illegal file beside it.
    ProjectFile(usize, String, String),
    /// A health check for Argo CD; `None` if there is something wrong with it.
    HealthCheck(Option<(CheckName, Script)>),
    /// Values of a chart; `None` if there is something wrong with them.
    Values(Component, Option<serde_json::Value>),
}

/// What one file says and what is wrong with it.
#[derive(Debug, Clone)]
pub struct Inspected {
    /// Its path.
    pub path: String,
    /// What it says.
    pub facts: Facts,
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// What it suppresses.
    pub suppressions: Vec<Suppression>,
}

/// Everything that lint has to say.
#[derive(Debug)]
pub struct Report {
    /// What is wrong, sorted by place.
    pub findings: Vec<Finding>,
    /// What would be wrong but for a comment that allows it.
    pub suppressed: Vec<Suppressed>,
    /// What is not wrong and good to know, sorted by place.
    pub notes: Vec<Note>,
    /// The repository, if its own files could all be read.
    pub repository: Option<Repository>,
    /// How many files were looked at.
    pub files: usize,
    /// `forge.yaml` could be read; without it only single files were checked.
    pub installed: bool,
    /// Comments that allow what only shows when releases are read, by file.
    waiting: Vec<(String, Vec<Suppression>)>,
}

impl Report {
    /// Adds what releases show; `whole` if those of all environments were read, so that a comment that allows nothing is told.
    pub fn add_releases(&mut self, judged: Judged, whole: bool) {
        let (mut findings, suppressed) = suppress::apply(judged.findings, &self.waiting);
        findings.retain(|finding| whole || finding.code != Code::SuppressionUnused);
        self.findings.extend(findings);
        self.findings.sort();
        self.findings.dedup();
        self.suppressed.extend(suppressed);
        self.suppressed.sort();
        self.notes.extend(judged.notes);
        self.notes.sort();
    }
}

/// A whole repository in memory.
pub fn tree(files: &BTreeMap<String, Content>) -> Report {
    let context = Context::new(files.get(INSTALLATION_FILE), files.keys().map(String::as_str));
    let inspected = files.iter().map(|(path, content)| inspect(&context, path, content)).collect();
    assemble(&context, inspected)
}

/// Looks at one file.
pub fn inspect(context: &Context, path: &str, content: &Content) -> Inspected {
    let role = context.layout.role(path);
    let mut out =
        Inspected { path: path.to_owned(), facts: Facts::None, findings: Vec::new(), suppressions: Vec::new() };
    if role == Role::Vendored {
        // It is what its publisher made, as a chart of a registry is, and nobody here changes it.
        return out;
    }
    note_presence(&role, &mut out);
    let bytes = match content {
        Content::Bytes(bytes) => bytes,
        Content::TooLarge(size) => {
            let message = format!("{size} bytes; at most {} are read", Limits::FILE.bytes);
            out.findings.push(Finding::new(Code::TooLarge, Place::new(path, Position::START), message));
            return out;
        }
        Content::Symlink(why) => {
            let message = format!("symbolic link {why}");
            let fix = "replace the link by the file that it should lead to";
            out.findings.push(Finding::new(Code::Symlink, Place::whole(path), message).with_fix(fix));
            return out;
        }
        Content::Unreadable(why) => {
            out.findings.push(Finding::new(Code::Unreadable, Place::whole(path), format!("cannot be read: {why}")));
            return out;
        }
        Content::Unread => return out,
    };
    let text = match decode_text(bytes) {
        Ok(text) => text,
        Err(problem) => {
            out.findings.push(yaml_finding(path, &problem));
            return out;
        }
    };
    let hints = manifest::hints(text);
    let secrets = secrets::in_text(path, text, hints, &mut out.findings);
    let recognised = out.findings.len();
    match role {
        // A template without templates is YAML like any other.
        Role::Template if is_manifest(path) && !text.contains("{{") => {
            structured(context, &Role::Foreign, text, hints, &mut out);
        }
        Role::Template | Role::Text => unstructured(&role, text, hints, &mut out),
        Role::HealthCheck(name) => health_check(name, text, &mut out),
        _ => structured(context, &role, text, hints, &mut out),
    }
    if !secrets.is_empty() {
        out.findings.iter_mut().skip(recognised).for_each(|finding| secrets::scrub(finding, &secrets));
    }
    out
}

/// What of a live object nobody wrote who keeps a repository: not judged.
const WRITTEN_BY_OTHERS: [&str; 2] = ["managedFields", "kubectl.kubernetes.io/last-applied-configuration"];

/// Looks at a live object by the rules for manifests: hooks, waves, images, secrets. What the API server and controllers wrote
/// is left out. The places of findings are the object itself; no message holds a secret.
pub fn live(object: &serde_json::Value) -> Vec<Finding> {
    let mut object = object.clone();
    if let serde_json::Value::Object(fields) = &mut object {
        fields.retain(|name, _| !matches!(name.as_str(), "status" | "operation"));
    }
    strip(&mut object);
    let text = |pointer: &str| object.pointer(pointer).and_then(serde_json::Value::as_str).unwrap_or_default();
    let parts = [text("/kind"), text("/metadata/namespace"), text("/metadata/name")];
    let path = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
    // JSON is YAML.
    let text = object.to_string();
    let hints = manifest::hints(&text);
    let mut findings = Vec::new();
    let secrets = secrets::in_text(&path, &text, hints, &mut findings);
    let recognised = findings.len();
    for document in &read(&text, Dialect::Kubernetes, Limits::FILE).documents {
        manifest::document(&path, document, hints, &mut findings);
    }
    if !secrets.is_empty() {
        findings.iter_mut().skip(recognised).for_each(|finding| secrets::scrub(finding, &secrets));
    }
    // It is one line: where in it says nothing.
    for finding in &mut findings {
        finding.place = Place::whole(&path);
    }
    findings.sort();
    findings.dedup();
    findings
}

/// Takes out what others wrote, and checksums, which look like secrets and hide none.
fn strip(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(fields) => {
            let kept = |name: &str| !WRITTEN_BY_OTHERS.contains(&name) && !name.contains("checksum");
            fields.retain(|name, _| kept(name) && !name.ends_with("-hash"));
            fields.values_mut().for_each(strip);
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}

/// A health check for Argo CD: its name says for which kind, and its script answers.
fn health_check(name: &str, text: &str, out: &mut Inspected) {
    let name = name.parse::<CheckName>().map_err(|error| {
        let fix = "rename it, as in health/cert-manager.io_Certificate.lua; wildcards and folders do not work";
        let finding = Finding::new(Code::UnusableHealthCheck, Place::whole(&out.path), error.to_string());
        out.findings.push(finding.with_fix(fix));
    });
    let script = Script::new(text).map_err(|error| {
        let (code, fix) = match &error {
            ScriptError::TooLarge { .. } => (Code::TooLarge, None),
            ScriptError::Character { .. } => (Code::UnusableHealthCheck, Some("remove it, or write it as an escape")),
            ScriptError::Empty | ScriptError::NoAnswer => {
                let fix = "end it with `return {status = …, message = …}`, or remove the file";
                (Code::UnusableHealthCheck, Some(fix))
            }
        };
        let mut finding = Finding::new(code, Place::new(&out.path, error.at()), error.to_string());
        finding.fix = fix.map(str::to_owned);
        out.findings.push(finding);
    });
    if let (Ok(name), Ok(script)) = (name, script) {
        out.facts = Facts::HealthCheck(Some((name, script)));
    }
}

fn unstructured(role: &Role<'_>, text: &str, hints: manifest::Hints, out: &mut Inspected) {
    let template = matches!(role, Role::Template);
    if hints.has(manifest::Hints::ALLOW) {
        out.suppressions = suppress::read_lines(&out.path, text, &mut out.findings);
    }
    if template {
        manifest::template(&out.path, text, hints, &mut out.findings);
    }
    if hints.has(manifest::Hints::SECRET) {
        secrets::in_file(&out.path, text, template, &mut out.findings);
    }
}

/// Some files matter by being there, even when they cannot be read.
fn note_presence(role: &Role<'_>, out: &mut Inspected) {
    let owned = |repo: &str, project: &str| (repo.to_owned(), project.to_owned());
    out.facts = match role {
        Role::Pointer { environment, repo, project } => {
            let (repo, project) = owned(repo, project);
            Facts::Pointer(*environment, repo, project, None)
        }
        Role::ProjectConfig { environment, repo, project } => {
            let (repo, project) = owned(repo, project);
            Facts::ProjectFile(*environment, repo, project)
        }
        Role::Illegal { environment, project } => {
            let fix = "a project folder holds release.yaml and, optionally, env.yaml; nothing else is deployed";
            let message = match project {
                Some((repo, project)) => format!("not legal in the folder of project `{repo}/{project}`"),
                None => "not in a project folder: expected apps/<repo>/<project>/release.yaml".to_owned(),
            };
            out.findings.push(Finding::new(Code::IllegalFile, Place::whole(&out.path), message).with_fix(fix));
            match project {
                Some((repo, project)) => {
                    let (repo, project) = owned(repo, project);
                    Facts::ProjectFile(*environment, repo, project)
                }
                None => Facts::None,
            }
        }
        Role::EnvironmentApp(environment) => Facts::EnvironmentApp(*environment),
        Role::EnvironmentConfig(environment) => Facts::EnvironmentConfig(*environment),
        Role::Override(environment) => Facts::Override(*environment, None),
        Role::RootApp => Facts::RootApp { crossplane: false, objects: None },
        Role::Installation => Facts::Installation,
        Role::HealthCheck(_) => Facts::HealthCheck(None),
        Role::Values(component) => Facts::Values(*component, None),
        _ => Facts::None,
    };
}

fn structured(context: &Context, role: &Role<'_>, text: &str, hints: manifest::Hints, out: &mut Inspected) {
    let others = matches!(role, Role::Foreign | Role::Illegal { .. } | Role::RootApp | Role::EnvironmentApp(_));
    // Values of a chart are written as Helm reads them.
    let own = !others && !matches!(role, Role::Values(_));
    let dialect = if own { Dialect::Strict } else { Dialect::Kubernetes };
    let stream = read(text, dialect, Limits::FILE);
    if out.path.ends_with(".json") {
        // Argo CD reads such files as JSON, which has no comments and forgives nothing.
        out.findings.extend(json_finding(&out.path, text));
        let told = |problem: &&Problem| problem.kind != ProblemKind::Syntax;
        out.findings.extend(stream.problems.iter().filter(told).map(|problem| yaml_finding(&out.path, problem)));
    } else {
        out.suppressions = suppress::read(&out.path, text, &stream.comments, &mut out.findings);
        out.findings.extend(stream.problems.iter().map(|problem| yaml_finding(&out.path, problem)));
    }
    let broken = !stream.problems.is_empty();
    if own && !broken {
        own_format(context, role, &stream, out);
    }
    match role {
        Role::RootApp | Role::EnvironmentApp(_) if !broken => {
            argo::check(context, role, &stream, out);
        }
        Role::Values(component) if !broken => chart_values(*component, &stream, out),
        _ => {}
    }
    for document in &stream.documents {
        manifest::document(&out.path, document, hints, &mut out.findings);
    }
}

/// Values of a chart: one mapping. A file that says nothing changes nothing.
fn chart_values(component: Component, stream: &Stream<'_>, out: &mut Inspected) {
    if stream.documents.is_empty() {
        out.facts = Facts::Values(component, Some(serde_json::json!({})));
        return;
    }
    let Some(document) = single(stream, out) else { return };
    let path = out.path.clone();
    let mut decoder = Decoder::new(&path);
    if decoder.mapping(document, "values of a chart").is_some() {
        out.facts = Facts::Values(component, Some(document.to_json()));
    }
    out.findings.extend(decoder.into_findings());
}

/// The document of a file that must hold exactly one.
fn single<'n, 'a>(stream: &'n Stream<'a>, out: &mut Inspected) -> Option<&'n Node<'a>> {
    match stream.documents.as_slice() {
        [document] => Some(document),
        [] => {
            let place = Place::new(&out.path, Position::START);
            out.findings.push(Finding::new(Code::DocumentCount, place, "the file is empty"));
            None
        }
        [_, second, ..] => {
            let place = Place::new(&out.path, second.at);
            let message = format!("{} documents; this file must hold exactly one", stream.documents.len());
            out.findings.push(Finding::new(Code::DocumentCount, place, message));
            None
        }
    }
}

fn own_format(context: &Context, role: &Role<'_>, stream: &Stream<'_>, out: &mut Inspected) {
    let Some(document) = single(stream, out) else { return };
    let path = out.path.clone();
    let mut decoder = Decoder::new(&path);
    match role {
        Role::Installation => {
            Installation::decode(&mut decoder, document);
        }
        Role::Graph => {
            if let Some(graph) = DependencyGraph::decode(&mut decoder, document)
                && decoder.is_clean()
            {
                out.facts = Facts::Graph(graph);
            }
        }
        Role::Override(environment) => {
            if let Some(over) = GraphOverride::decode(&mut decoder, document)
                && decoder.is_clean()
            {
                out.facts = Facts::Override(*environment, Some(over));
            }
        }
        Role::Pointer { environment, repo, project } => {
            let pointer = ReleasePointer::decode(&mut decoder, document).filter(|_| decoder.is_clean());
            if let Some(pointer) = &pointer {
                expect_name(&mut decoder, &pointer.name, project);
                placeholder_pointer(&mut decoder, pointer);
            }
            out.facts = Facts::Pointer(*environment, (*repo).to_owned(), (*project).to_owned(), pointer);
        }
        Role::ProjectConfig { repo, project, .. } => {
            if let Some(config) = EnvironmentConfig::decode(&mut decoder, document) {
                expect_name(&mut decoder, &config.name, &format!("{repo}-{project}"));
            }
        }
        Role::EnvironmentConfig(index) => {
            let environment = context.installation.as_ref().and_then(|all| all.environments.get(*index));
            if let (Some(config), Some(environment)) = (EnvironmentConfig::decode(&mut decoder, document), environment)
            {
                expect_name(&mut decoder, &config.name, environment.name.as_str());
            }
        }
        Role::Cluster(name) => {
            if let Some(cluster) = ClusterFile::decode(&mut decoder, document) {
                expect_name(&mut decoder, cluster.name(), name);
            }
        }
        _ => {}
    }
    out.findings.extend(decoder.into_findings());
}

fn expect_name(decoder: &mut Decoder<'_>, name: &crate::yaml::At<String>, wanted: &str) {
    if name.value != wanted {
        let message = format!("name is `{}`, expected `{wanted}` from the path", crate::name::clip(&name.value));
        decoder.report(Code::WrongName, name.at, message).fix(format!("write `name: {wanted}`"));
    }
}

fn placeholder_pointer(decoder: &mut Decoder<'_>, pointer: &ReleasePointer) {
    for (what, at, text) in [
        ("release", pointer.release.at, pointer.release.as_str()),
        ("digest", pointer.digest.at, pointer.digest.as_str()),
    ] {
        if text.trim_start_matches("sha256:").bytes().all(|b| b == b'0') {
            decoder.report(Code::Placeholder, at, format!("{what} is still the placeholder that `project add` wrote"));
        }
    }
}

fn json_finding(path: &str, text: &str) -> Option<Finding> {
    let error = serde_json::from_str::<serde::de::IgnoredAny>(text).err()?;
    let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).max(1);
    let at = Position { line: small(error.line()), column: small(error.column()) };
    let message = error.to_string();
    let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(what, _)| what);
    Some(Finding::new(
        Code::YamlSyntax,
        Place::new(path, at),
        format!("not valid JSON: {}", crate::name::clip(message)),
    ))
}

pub(crate) fn yaml_finding(path: &str, problem: &Problem) -> Finding {
    let code = match problem.kind {
        ProblemKind::Syntax => Code::YamlSyntax,
        ProblemKind::DuplicateKey => Code::DuplicateKey,
        ProblemKind::Encoding => Code::Encoding,
        ProblemKind::TooLarge => Code::TooLarge,
        ProblemKind::Unsupported => Code::UnsupportedYaml,
    };
    Finding::new(code, Place::new(path, problem.at), problem.message.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(object: &serde_json::Value) -> Vec<(&'static str, String)> {
        live(object).into_iter().map(|finding| (finding.code.id(), finding.message)).collect()
    }

    fn deployment(image: &str, env: &serde_json::Value) -> serde_json::Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "api", "namespace": "shop", "managedFields": [{"manager": "x"}]},
            "spec": {"template": {
                "metadata": {"annotations": {"checksum/secret": "0123456789abcdef0123456789abcdef0123456789abcdef"}},
                "spec": {"containers": [{"name": "api", "image": image, "env": env}]},
            }},
            "status": {"conditions": [{"message": "image registry.example.com/x:latest"}]},
        })
    }

    #[test]
    fn a_live_object_is_judged_as_a_manifest_and_what_controllers_wrote_is_not() {
        let pinned = "registry.example.com/api@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        assert_eq!(found(&deployment(pinned, &json!([]))), Vec::new());
        let reference =
            json!([{"name": "DB_PASSWORD", "valueFrom": {"secretKeyRef": {"name": "db", "key": "password"}}}]);
        assert_eq!(found(&deployment(pinned, &reference)), Vec::new());
        let tagged = found(&deployment("registry.example.com/api:latest", &json!([])));
        assert_eq!(
            tagged,
            [("FORGE-I001", "image `registry.example.com/api:latest` is not fixed by digest".to_owned())]
        );
        let plain = json!([{"name": "DB_PASSWORD", "value": "hunter2hunter2"}]);
        assert_eq!(
            found(&deployment(pinned, &plain)),
            [("FORGE-S005", "`DB_PASSWORD` has a value in plain text".to_owned())]
        );
    }

    #[test]
    fn findings_of_a_live_object_name_it_and_hold_no_secret() {
        let token = format!("ghp_{}", "a1".repeat(20));
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "shop"},
            "data": {"settings.yaml": format!("token: {token}\n")},
        });
        let findings = live(&object);
        assert!(findings.iter().any(|finding| finding.code == Code::Token), "{findings:?}");
        for finding in &findings {
            assert_eq!(finding.place.to_string(), "ConfigMap/shop/settings");
            assert!(!format!("{finding:?}").contains("a1a1a1"), "{finding:?}");
        }
    }

    #[test]
    fn an_application_is_judged_too_and_hostile_objects_are_not() {
        let application = json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
            "metadata": {"name": "api", "namespace": "argocd", "annotations": {"argocd.argoproj.io/sync-wave": "1"}},
            "spec": {"syncPolicy": {"automated": {"allowEmpty": true}}},
        });
        let codes: Vec<&str> = found(&application).into_iter().map(|(code, _)| code).collect();
        assert_eq!(codes, ["FORGE-A005", "FORGE-W002"]);
        for hostile in [json!(null), json!([]), json!("x"), json!({"kind": 7, "metadata": []})] {
            assert_eq!(live(&hostile), Vec::new(), "{hostile}");
        }
    }
}
