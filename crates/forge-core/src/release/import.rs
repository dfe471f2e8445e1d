//! An Argo CD Application as the source of a project: what it renders and how, so far as a source folder can say the same
//! (`forge project import`).
//!
//! Pure. The Application is somebody else's: read loosely, and whatever it says that a source could not repeat is refused with
//! why, all of it at once. Facts about Argo CD are read in its source: `reposerver/repository`, `util/helm`, `util/kustomize`.

mod kustomization;
mod scope;
mod values;

use std::collections::BTreeSet;

use serde_json::Value;

pub use kustomization::{edit, folders};
pub use scope::Scopes;
pub use values::values;

use crate::name::clip;

/// Where Argo CD puts what it knows into texts.
const VARIABLES: [&str; 2] = ["$ARGOCD_", "${ARGOCD_"];

/// What an Application deploys.
#[derive(Debug, Clone, PartialEq)]
pub struct Import {
    /// Its name.
    pub name: String,
    /// Where its source is.
    pub repository: String,
    /// What it deployed last, or else what it follows.
    pub revision: String,
    /// The folder in the repository; empty for all of it, or where the source is a chart of a chart repository.
    pub path: String,
    /// The chart, where the source is a chart repository.
    pub chart: Option<String>,
    /// How it is rendered.
    pub how: How,
    /// The namespace of objects that say none.
    pub namespace: Option<String>,
    /// What Argo CD manages, where it is in sync: what a rendering must give.
    pub managed: Option<BTreeSet<Managed>>,
    /// What it says that a project does not take over, for people.
    pub notes: Vec<String>,
}

/// How an Application is rendered.
#[derive(Debug, Clone, PartialEq)]
pub enum How {
    /// It does not say: what is in the folder decides.
    Found,
    /// By helm.
    Helm(Helm),
    /// By kustomize, with these fields of `spec.source.kustomize`.
    Kustomize(Value),
    /// As it is.
    Directory(Directory),
}

/// What helm is told.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Helm {
    /// The name of the release; that of the Application if absent.
    pub release_name: Option<String>,
    /// The namespace; that of the destination if absent.
    pub namespace: Option<String>,
    /// Files of values, from the folder, or from the root of the repository where they begin with a slash.
    pub value_files: Vec<String>,
    /// Files of values need not be there.
    pub ignore_missing: bool,
    /// Values over those of files, as YAML.
    pub values: Option<String>,
    /// Single values over all others.
    pub parameters: Vec<Parameter>,
    /// The version of Kubernetes that the chart sees.
    pub kube_version: Option<String>,
    /// What else it sees that is served.
    pub api_versions: Vec<String>,
    /// Definitions of the chart are left out.
    pub skip_crds: bool,
}

/// A single value of a chart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// Which.
    pub name: String,
    /// What.
    pub value: String,
    /// It is a text, whatever it looks like.
    pub force_string: bool,
}

/// Which files of a folder count.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Directory {
    /// Those of folders in it too.
    pub recurse: bool,
    /// Only these.
    pub include: Option<String>,
    /// Not these.
    pub exclude: Option<String>,
}

/// An object that Argo CD manages.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Managed {
    /// The group; empty for the core one.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The namespace; empty for an object of the whole cluster.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl std::fmt::Display for Managed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.kind)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if !self.namespace.is_empty() {
            write!(f, " {}/{}", self.namespace, self.name)
        } else {
            write!(f, " {}", self.name)
        }
    }
}

fn text<'v>(value: &'v Value, pointer: &str) -> Option<&'v str> {
    value.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty())
}

fn owned(value: &Value, pointer: &str) -> Option<String> {
    text(value, pointer).map(str::to_owned)
}

fn list<'v>(value: &'v Value, pointer: &str) -> &'v [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn texts(value: &Value, pointer: &str) -> Vec<String> {
    list(value, pointer).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn truth(value: &Value, pointer: &str) -> bool {
    value.pointer(pointer).and_then(Value::as_bool).unwrap_or(false)
}

fn is_set(value: &Value, field: &str) -> bool {
    value.get(field).is_some_and(|value| match value {
        Value::Null => false,
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::String(text) => !text.is_empty(),
        Value::Bool(set) => *set,
        Value::Number(_) => true,
    })
}

/// Whether a text, or one inside, holds a variable of Argo CD.
fn has_variable(value: &Value) -> bool {
    match value {
        Value::String(text) => VARIABLES.iter().any(|variable| text.contains(variable)),
        Value::Array(items) => items.iter().any(has_variable),
        Value::Object(fields) => fields.values().any(has_variable),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

impl Import {
    /// Of an Application.
    ///
    /// # Errors
    /// With everything that keeps it from being imported.
    pub fn of(application: &Value) -> Result<Self, Vec<String>> {
        let mut refused = Vec::new();
        let sources = list(application, "/spec/sources");
        let source = match sources {
            [] => application.pointer("/spec/source"),
            [one] => Some(one),
            several => {
                let count = several.len();
                return Err(vec![format!(
                    "it has {count} sources: a release is made from one; import each as a project of its own, or flatten them first"
                )]);
            }
        };
        let Some(source) = source.filter(|source| source.is_object()) else {
            return Err(vec!["it has no source".to_owned()]);
        };
        let mut refuse = |why: String| refused.push(why);
        let repository = owned(source, "/repoURL").unwrap_or_default();
        if repository.is_empty() {
            refuse("its source has no repoURL".to_owned());
        }
        if repository.starts_with("oci://") {
            refuse("its source is an OCI image: `forge release build` reads folders".to_owned());
        }
        if is_set(source, "plugin") {
            refuse("it is rendered by a plugin, which only Argo CD can run".to_owned());
        }
        if is_set(source, "ref") {
            refuse("its source is only there to be referred to".to_owned());
        }
        if application.pointer("/spec/sourceHydrator").is_some_and(Value::is_object) {
            refuse("its source is hydrated: import what is in the branch that it syncs from".to_owned());
        }
        let chart = owned(source, "/chart");
        let said: Vec<&str> = ["helm", "kustomize"].into_iter().filter(|how| is_set(source, how)).collect();
        let directory = source.get("directory").filter(|_| is_set(source, "directory"));
        let how = match (said.as_slice(), directory) {
            ([_, _], _) => {
                refuse("it says both `helm` and `kustomize`".to_owned());
                How::Found
            }
            (["helm"], _) => How::Helm(helm(source, &mut refuse)),
            (["kustomize"], _) => How::Kustomize(kustomize(source, &mut refuse)),
            _ if chart.is_some() => How::Helm(Helm::default()),
            (_, Some(directory)) => How::Directory(self::directory(directory, &mut refuse)),
            _ => How::Found,
        };
        let target = text(source, "/targetRevision").unwrap_or("HEAD");
        let synced = text(application, "/status/sync/revision");
        let path = text(source, "/path").unwrap_or_default().trim_matches('/');
        if path.split('/').any(|part| part == "..") {
            refuse(format!("its path `{}` leads out of its repository", clip(path)));
        }
        if !refused.is_empty() {
            return Err(refused);
        }
        Ok(Self {
            name: owned(application, "/metadata/name").unwrap_or_default(),
            repository,
            revision: synced.unwrap_or(target).to_owned(),
            path: if path == "." { String::new() } else { path.to_owned() },
            chart,
            how,
            namespace: owned(application, "/spec/destination/namespace"),
            managed: managed(application),
            notes: notes(application),
        })
    }
}

fn helm(source: &Value, refuse: &mut impl FnMut(String)) -> Helm {
    let empty = Value::Null;
    let given = source.get("helm").unwrap_or(&empty);
    if text(given, "/version").is_some_and(|version| version.starts_with("v2")) {
        refuse("it is rendered by Helm 2".to_owned());
    }
    if is_set(given, "fileParameters") {
        refuse("it has `helm.fileParameters`: put what is in these files into values".to_owned());
    }
    let value_files = texts(given, "/valueFiles");
    for file in &value_files {
        if file.contains("://") {
            refuse(format!("its file of values `{}` is fetched: put it beside the chart", clip(file)));
        } else if file.starts_with('$') {
            refuse(format!("its file of values `{}` is of another source", clip(file)));
        }
    }
    // In inline values Argo CD looks for none: there a variable is what is written.
    for field in ["valueFiles", "parameters"] {
        if given.get(field).is_some_and(has_variable) {
            refuse(format!("`helm.{field}` holds a variable of Argo CD: write the value"));
        }
    }
    let object = given.get("valuesObject").filter(|object| object.is_object());
    let parameters = list(given, "/parameters").iter().filter_map(|parameter| {
        Some(Parameter {
            name: owned(parameter, "/name")?,
            value: parameter.pointer("/value").and_then(Value::as_str).unwrap_or_default().to_owned(),
            force_string: truth(parameter, "/forceString"),
        })
    });
    Helm {
        release_name: owned(given, "/releaseName"),
        namespace: owned(given, "/namespace"),
        value_files,
        ignore_missing: truth(given, "/ignoreMissingValueFiles"),
        values: object.map(crate::yaml::write).or_else(|| owned(given, "/values")),
        parameters: parameters.collect(),
        kube_version: owned(given, "/kubeVersion"),
        api_versions: texts(given, "/apiVersions"),
        skip_crds: truth(given, "/skipCrds"),
    }
}

fn kustomize(source: &Value, refuse: &mut impl FnMut(String)) -> Value {
    let given = source.get("kustomize").cloned().unwrap_or_default();
    if has_variable(&given) {
        refuse("`kustomize` holds a variable of Argo CD: write the value".to_owned());
    }
    if is_set(&given, "ignoreMissingComponents") {
        refuse(
            "`kustomize.ignoreMissingComponents` would make the release depend on what is there by chance".to_owned(),
        );
    }
    for component in texts(&given, "/components") {
        if component.contains("://") {
            refuse(format!("component `{}` is fetched: put it into the repository", clip(&component)));
        }
    }
    given
}

fn directory(given: &Value, refuse: &mut impl FnMut(String)) -> Directory {
    if is_set(given, "jsonnet") {
        refuse(
            "it is Jsonnet, which Forge does not render: commit what it gives, or flatten it with another tool"
                .to_owned(),
        );
    }
    let pattern = |field: &str, refuse: &mut dyn FnMut(String)| {
        let pattern = owned(given, &format!("/{field}"))?;
        if pattern.contains(['[', ']', '\\']) || pattern.matches('{').count() > 1 {
            refuse(format!("`directory.{field}` is `{}`: only `*`, `?` and one `{{a,b}}` are read", clip(&pattern)));
        }
        Some(pattern)
    };
    Directory {
        recurse: truth(given, "/recurse"),
        include: pattern("include", refuse),
        exclude: pattern("exclude", refuse),
    }
}

impl Directory {
    /// Whether a file counts, by its path below the folder.
    pub fn takes(&self, path: &str) -> bool {
        let fits = |pattern: &Option<String>| pattern.as_ref().map(|pattern| fits(pattern, path));
        (self.recurse || !path.contains('/')) && fits(&self.exclude) != Some(true) && fits(&self.include) != Some(false)
    }
}

/// A pattern as Argo CD reads it: a star stands for anything, slashes too.
pub(crate) fn fits(pattern: &str, path: &str) -> bool {
    let braces = pattern.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)));
    match braces {
        Some((before, (choices, after))) => {
            choices.split(',').any(|choice| wild(&format!("{before}{choice}{after}"), path))
        }
        None => wild(pattern, path),
    }
}

fn wild(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    // Where the last star was, and how much it stands for so far.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == '?' || Some(c) == text.get(t) => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, until)) => {
                    star = Some((at, until + 1));
                    p = at + 1;
                    t = until + 1;
                }
                None => return false,
            },
        }
    }
    pattern.iter().skip(p).all(|c| *c == '*')
}

/// What Argo CD manages, if it says that it is in sync.
fn managed(application: &Value) -> Option<BTreeSet<Managed>> {
    if text(application, "/status/sync/status") != Some("Synced") {
        return None;
    }
    let counts = |resource: &&Value| !truth(resource, "/hook") && !truth(resource, "/requiresPruning");
    let read = |resource: &Value| {
        Some(Managed {
            group: owned(resource, "/group").unwrap_or_default(),
            kind: owned(resource, "/kind")?,
            namespace: owned(resource, "/namespace").unwrap_or_default(),
            name: owned(resource, "/name")?,
        })
    };
    let all: BTreeSet<Managed> =
        list(application, "/status/resources").iter().filter(counts).filter_map(read).collect();
    (!all.is_empty()).then_some(all)
}

/// What the Application says and a project has from its environment.
fn notes(application: &Value) -> Vec<String> {
    let mut notes = Vec::new();
    let empty = Value::Null;
    let spec = application.get("spec").unwrap_or(&empty);
    if is_set(spec, "ignoreDifferences") {
        notes.push(
            "`ignoreDifferences` is not taken over: write it into the ApplicationSet of the environment".to_owned(),
        );
    }
    let options = texts(spec, "/syncPolicy/syncOptions");
    let usual = ["CreateNamespace=true", "ServerSideApply=true"];
    let others: Vec<&str> = options.iter().map(String::as_str).filter(|option| !usual.contains(option)).collect();
    if !others.is_empty() {
        let options: Vec<String> = others.iter().map(|option| clip(option)).collect();
        notes.push(format!("sync options are those of the environment: {} is not taken over", options.join(", ")));
    }
    if spec.pointer("/syncPolicy/managedNamespaceMetadata").is_some_and(Value::is_object) {
        notes.push("`managedNamespaceMetadata` is not taken over: put a Namespace into the source".to_owned());
    }
    notes
}

#[cfg(test)]
mod tests;
