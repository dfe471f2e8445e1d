//! Kubernetes documents of a release: read from YAML or JSON as Kubernetes reads them, told apart, ordered, and written in
//! one way only, so that equal objects are equal bytes.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Number, Value};

use super::json::{self, Refused};
use super::{ImageReference, Limits, ReleaseError};
use crate::digest::Digest;
use crate::name::{MAX_NAME, clip, cut, is_label};
use crate::yaml::{self, Dialect, Position, ProblemKind};

/// Longest name of an object.
const LONGEST_NAME: usize = 253;
/// Longest name of a file in a layer: what the header of every kind of archive holds.
const LONGEST_PATH: usize = 100;
/// Longest key: the YAML of Argo CD and kubectl finds no longer ones.
const LONGEST_KEY: usize = 1000;
/// The group of CustomResourceDefinitions.
const DEFINITIONS: &str = "apiextensions.k8s.io";

/// A Kubernetes object as a release holds it.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// Group and version.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace, where it says one.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// All of it.
    pub value: Value,
}

/// What makes a document the one that it is, in the order of output: Namespaces, CustomResourceDefinitions, then by
/// group, kind, namespace and name. The version does not count: it is one object in every version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    rank: u8,
    /// The group; empty for the core one.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The namespace, where one is said.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

/// `Deployment.apps shop/api`.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        match &self.namespace {
            Some(namespace) => write!(f, " {namespace}/{}", self.name),
            None => write!(f, " {}", self.name),
        }
    }
}

/// Where a document names an image.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImageUse {
    /// The field, as `spec.template.spec.containers[0].image`.
    pub at: String,
    /// The reference as it is written.
    pub image: String,
}

/// The documents of a file, YAML or JSON, in their order. Lists are taken apart, what is empty is dropped.
///
/// # Errors
/// When the file is too large, is no YAML, or holds what is no Kubernetes object with a name of its own.
pub fn documents(path: &str, bytes: &[u8], limits: &Limits) -> Result<Vec<Document>, ReleaseError> {
    let file = clip(path);
    if bytes.len() > limits.file {
        let (found, limit) = (bytes.len() as u64, limits.file as u64);
        return Err(ReleaseError::TooLarge { what: format!("`{file}`"), found, limit, unit: "bytes" });
    }
    let at = |at: Position| format!("`{file}:{at}`");
    let text = yaml::decode_text(bytes).map_err(|problem| ReleaseError::malformed(at(problem.at), problem.message))?;
    let mut found = Vec::new();
    let values = json::most_values(limits.file);
    // JSON is YAML, but for escapes of characters beyond the first plane, and its own reader is faster.
    if text.trim_start().starts_with('{') {
        match json::parse(text.as_bytes(), limits.depth, values) {
            Ok(value) => {
                take(&format!("`{file}`"), value, limits, &mut found)?;
                return Ok(found);
            }
            Err(Refused::Ambiguous(why)) => return Err(ReleaseError::malformed(format!("`{file}`"), why)),
            Err(Refused::Beyond(why)) => return Err(ReleaseError::Beyond { what: format!("`{file}`"), why }),
            Err(Refused::Syntax(_)) => {}
        }
    }
    let bounds = yaml::Limits { bytes: limits.file, depth: limits.depth, nodes: values };
    let stream = yaml::read(text, Dialect::Kubernetes, bounds);
    if let Some(problem) = stream.problems.into_iter().next() {
        let (what, why) = (at(problem.at), problem.message);
        return Err(match problem.kind {
            ProblemKind::TooLarge => ReleaseError::Beyond { what, why },
            ProblemKind::Syntax | ProblemKind::DuplicateKey | ProblemKind::Encoding | ProblemKind::Unsupported => {
                ReleaseError::Malformed { what, why }
            }
        });
    }
    for node in stream.documents {
        take(&at(node.at), node.to_json(), limits, &mut found)?;
    }
    Ok(found)
}

/// Adds an object, or the objects of a list.
fn take(what: &str, value: Value, limits: &Limits, found: &mut Vec<Document>) -> Result<(), ReleaseError> {
    let bad = |why: String| ReleaseError::malformed(what, why);
    let Value::Object(mut fields) = value else {
        return Err(bad("it is not a mapping, expected an object with apiVersion, kind and metadata".to_owned()));
    };
    if fields.is_empty() {
        return Ok(());
    }
    let text = |fields: &serde_json::Map<String, Value>, field: &str| match fields.get(field) {
        None | Some(Value::Null) => Err(bad(format!("it has no {field}, expected a Kubernetes object"))),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(bad(format!("its {field} is not a text; write it in quotes"))),
    };
    let kind = text(&fields, "kind")?;
    let api_version = text(&fields, "apiVersion")?;
    if let Some(of) = kind.strip_suffix("List") {
        match fields.remove("items") {
            Some(Value::Array(items)) => {
                for mut item in items.into_iter().filter(|item| !item.is_null()) {
                    // Lists of one kind need not repeat it.
                    if let (Value::Object(item), false) = (&mut item, of.is_empty()) {
                        item.entry("kind").or_insert_with(|| of.into());
                        item.entry("apiVersion").or_insert_with(|| api_version.as_str().into());
                    }
                    take(what, item, limits, found)?;
                }
                return Ok(());
            }
            None | Some(Value::Null) if of.is_empty() => return Ok(()),
            Some(items) => {
                fields.insert("items".to_owned(), items);
            }
            None => {}
        }
    }
    if found.len() >= limits.entries {
        let (found, limit) = (found.len() as u64 + 1, limits.entries as u64);
        return Err(ReleaseError::TooLarge { what: what.to_owned(), found, limit, unit: "documents" });
    }
    found.push(Document::new(what, api_version, kind, Value::Object(fields))?);
    Ok(())
}

/// The documents in the order of their keys.
///
/// # Errors
/// When two of them are one object.
pub fn distinct(mut documents: Vec<Document>) -> Result<Vec<Document>, ReleaseError> {
    documents.sort_by_cached_key(Document::key);
    let keys: Vec<Key> = documents.iter().map(Document::key).collect();
    match twice(&keys) {
        Some(key) => Err(ReleaseError::Twice { what: "the source".to_owned(), document: key.to_string() }),
        None => Ok(documents),
    }
}

/// The first key that comes twice, in what is sorted.
pub(super) fn twice(keys: &[Key]) -> Option<&Key> {
    keys.iter().zip(keys.iter().skip(1)).find(|(key, next)| key == next).map(|(key, _)| key)
}

fn is_subdomain(text: &str) -> bool {
    text.len() <= LONGEST_NAME && text.split('.').all(is_label)
}

/// What the API server takes as a name of whatever kind: a segment of a path.
fn is_name(text: &str) -> bool {
    let wrong = |c: char| c.is_control() || c.is_whitespace() || matches!(c, '/' | '%' | '\\');
    !text.is_empty() && text.len() <= LONGEST_NAME && text != "." && text != ".." && !text.contains(wrong)
}

fn is_kind(text: &str) -> bool {
    text.len() <= MAX_NAME
        && is_label(&text.to_ascii_lowercase())
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
}

fn has_long_key(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.iter().any(|(key, value)| key.len() > LONGEST_KEY || has_long_key(value)),
        Value::Array(items) => items.iter().any(has_long_key),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Numbers as the reader of YAML has them, whole ones of 64 bits with a sign, so that a document is the same from JSON.
fn as_yaml(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(as_yaml),
        Value::Array(items) => items.iter_mut().for_each(as_yaml),
        Value::Number(number) => {
            if let (None, Some(large)) = (number.as_i64(), number.as_u64())
                && let Some(float) = Number::from_f64(large as f64)
            {
                *number = float;
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

fn is_sorted(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.keys().is_sorted() && fields.values().all(is_sorted),
        Value::Array(items) => items.iter().all(is_sorted),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

impl Document {
    fn new(what: &str, api_version: String, kind: String, value: Value) -> Result<Self, ReleaseError> {
        let bad = |why: String| ReleaseError::malformed(what, why);
        if !is_kind(&kind) {
            return Err(bad(format!("kind `{}` is none, expected letters and digits", clip(&kind))));
        }
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version.as_str()));
        if !(group.is_empty() || is_subdomain(group)) || !is_label(version) || api_version.starts_with('/') {
            return Err(bad(format!(
                "apiVersion `{}` is none, expected `version` or `group/version`",
                clip(&api_version)
            )));
        }
        let metadata = value.get("metadata");
        let text = |field: &str| match metadata.and_then(|metadata| metadata.get(field)) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if text.is_empty() => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(bad(format!("metadata.{field} of this {kind} is not a text; write it in quotes"))),
        };
        let Some(name) = text("name")? else {
            let why = if text("generateName")?.is_some() {
                "has metadata.generateName, expected metadata.name: Argo CD would make another one with every sync"
            } else {
                "has no metadata.name"
            };
            return Err(bad(format!("this {kind} {why}")));
        };
        if !is_name(&name) {
            return Err(bad(format!("`{}` cannot be the name of a {kind}", clip(&name))));
        }
        let namespace = text("namespace")?;
        if let Some(namespace) =
            namespace.as_deref().filter(|namespace| namespace.len() > MAX_NAME || !is_label(namespace))
        {
            return Err(bad(format!("`{}` cannot be a namespace", clip(namespace))));
        }
        if has_long_key(&value) {
            return Err(bad(format!("{kind} `{}` has a key of more than {LONGEST_KEY} bytes", clip(&name))));
        }
        let mut value = value;
        as_yaml(&mut value);
        value.sort_all_objects();
        Ok(Self { api_version, kind, namespace, name, value })
    }

    /// The group; empty for the core one.
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// Whether it defines a kind.
    pub fn is_definition(&self) -> bool {
        self.kind == "CustomResourceDefinition" && self.group() == DEFINITIONS
    }

    /// `Kind.group`, or the kind alone in the core group.
    pub fn kind_and_group(&self) -> String {
        match self.group() {
            "" => self.kind.clone(),
            group => format!("{}.{group}", self.kind),
        }
    }

    /// What makes it the one that it is.
    pub fn key(&self) -> Key {
        let rank = match (self.group(), self.kind.as_str()) {
            ("", "Namespace") => 0,
            (DEFINITIONS, "CustomResourceDefinition") => 1,
            _ => 2,
        };
        Key {
            rank,
            group: self.group().to_owned(),
            kind: self.kind.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
    }

    /// The document as YAML that everybody reads alike: sorted keys, quotes where any reader could take a text for
    /// something else, one line break at the end.
    pub fn text(&self) -> String {
        if is_sorted(&self.value) {
            return yaml::write(&self.value);
        }
        let mut value = self.value.clone();
        value.sort_all_objects();
        yaml::write(&value)
    }

    /// The name of its file inside a layer: two objects never have the same, and none is a folder of another.
    pub fn path(&self) -> String {
        let folder = self.kind_and_group();
        let path = match &self.namespace {
            // A namespace has no points, so a file beside it never has its name.
            Some(namespace) => format!("{folder}/{namespace}/{}.yaml", self.name),
            None => format!("{folder}/{}.yaml", self.name),
        };
        if path.len() <= LONGEST_PATH {
            return path;
        }
        let kind: String = self.kind.chars().take(32).collect();
        format!("{kind}-{}.yaml", Digest::of(path.as_bytes()).short(40))
    }

    /// The images that it names, in the order of fields.
    ///
    /// Those of containers, wherever a kind has them, and of volumes; and every other field `image` whose text can hardly
    /// be anything else. Texts inside ConfigMaps and Secrets, and the schemas of definitions, name none.
    pub fn images(&self) -> Vec<ImageUse> {
        self.uses().into_iter().map(|found| ImageUse { at: found.at, image: found.image }).collect()
    }

    /// Fixes every image that is in `resolve`, by the reference as it is written, as `registry/repository@digest`.
    pub fn pin(&mut self, resolve: &BTreeMap<String, Digest>) {
        for found in self.uses() {
            let Some(digest) = resolve.get(&found.image) else { continue };
            let Ok(image) = found.image.parse::<ImageReference>() else { continue };
            if let Some(text) = self.value.pointer_mut(&found.pointer) {
                *text = Value::from(image.pinned(digest).to_string());
            }
        }
    }

    /// Gives a sentence about every image that is not fixed by digest to `found`.
    pub(super) fn each_loose_image(&self, found: &mut dyn FnMut(String)) {
        self.each_use(&mut |steps, image| match image.parse::<ImageReference>() {
            Ok(reference) if reference.is_pinned() => {}
            Ok(_) => found(format!("`{}`: {} is `{}`", self.key(), cut(&shown(steps), LONGEST_NAME), clip(image))),
            Err(error) => found(format!("`{}`: {}: {error}", self.key(), cut(&shown(steps), LONGEST_NAME))),
        });
    }

    fn uses(&self) -> Vec<Use> {
        let mut found = Vec::new();
        self.each_use(&mut |steps, image| {
            found.push(Use { at: shown(steps), pointer: pointer(steps), image: image.to_owned() });
        });
        found
    }

    /// Gives every image that it names to `found`, with the steps that lead to it.
    fn each_use(&self, found: &mut dyn FnMut(&[Step<'_>], &str)) {
        let silent = matches!((self.group(), self.kind.as_str()), ("", "ConfigMap" | "Secret")) || self.is_definition();
        if !silent {
            let templated = self.group() == "argoproj.io";
            walk(&self.value, &mut Vec::new(), templated, found);
        }
    }
}

/// Where an image is named, for people and for the value.
struct Use {
    at: String,
    pointer: String,
    image: String,
}

/// One step from a value to one inside it.
#[derive(Clone, Copy)]
enum Step<'v> {
    Field(&'v str),
    Item(usize),
}

fn walk<'v>(value: &'v Value, steps: &mut Vec<Step<'v>>, templated: bool, found: &mut dyn FnMut(&[Step<'_>], &str)) {
    match value {
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                steps.push(Step::Item(i));
                walk(item, steps, templated, found);
                steps.pop();
            }
        }
        Value::Object(fields) => {
            for (field, value) in fields {
                match value {
                    Value::String(text) if is_image(steps, field, text) && !(templated && text.contains("{{")) => {
                        steps.push(Step::Field(field));
                        found(steps, text);
                        steps.pop();
                    }
                    Value::Array(_) | Value::Object(_) => {
                        steps.push(Step::Field(field));
                        walk(value, steps, templated, found);
                        steps.pop();
                    }
                    _ => {}
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Whether a field at the end of these steps names an image.
fn is_image(steps: &[Step<'_>], field: &str, text: &str) -> bool {
    let mut above = steps.iter().rev().filter_map(|step| match step {
        Step::Field(field) => Some(*field),
        Step::Item(_) => None,
    });
    match (field, above.next()) {
        (
            "image",
            Some("containers" | "initContainers" | "ephemeralContainers" | "sidecars" | "container" | "script"),
        ) => true,
        ("image", _) => is_surely_image(text),
        ("reference", Some("image")) => above.next() == Some("volumes"),
        _ => false,
    }
}

/// True for a text that is a reference and says where, or which.
fn is_surely_image(text: &str) -> bool {
    let registry = text.split_once('/').is_some_and(|(first, _)| first.contains(['.', ':']) || first == "localhost");
    let image = text.parse::<ImageReference>();
    image.is_ok_and(|image| registry || image.is_pinned() || image.tag().is_some())
}

fn shown(steps: &[Step<'_>]) -> String {
    let mut text = String::new();
    for step in steps {
        match step {
            Step::Field(field) => {
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(&clip(field));
            }
            Step::Item(i) => text.push_str(&format!("[{i}]")),
        }
    }
    text
}

fn pointer(steps: &[Step<'_>]) -> String {
    let mut text = String::new();
    for step in steps {
        text.push('/');
        match step {
            Step::Field(field) => text.push_str(&field.replace('~', "~0").replace('/', "~1")),
            Step::Item(i) => text.push_str(&i.to_string()),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn all(text: &str) -> Vec<Document> {
        documents("a.yaml", text.as_bytes(), &Limits::default()).unwrap()
    }

    fn refused(text: &str) -> String {
        documents("a.yaml", text.as_bytes(), &Limits::default()).unwrap_err().to_string()
    }

    fn keys(documents: &[Document]) -> Vec<String> {
        documents.iter().map(|document| document.key().to_string()).collect()
    }

    #[test]
    fn documents_come_in_their_order_without_the_empty_ones() {
        let text = "# nothing\n---\n---\napiVersion: v1\nkind: Service\nmetadata: {name: b}\n---\n{}\n---\nnull\n---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a, namespace: shop}\n...\n";
        assert_eq!(keys(&all(text)), ["Service b", "Deployment.apps shop/a"]);
        assert!(all("").is_empty());
        assert!(all("# only a comment\n").is_empty());
    }

    #[test]
    fn lists_are_taken_apart_however_they_are_nested() {
        let text = json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}},
            {"apiVersion": "v1", "kind": "List", "items": [
                {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "b"}}, null,
            ]},
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleList", "items": [{"metadata": {"name": "c"}}]},
        ]});
        assert_eq!(keys(&all(&text.to_string())), ["ConfigMap a", "Secret b", "Role.rbac.authorization.k8s.io c"]);
        assert!(all("{apiVersion: v1, kind: List}").is_empty());
        assert!(all("{apiVersion: v1, kind: List, items: []}").is_empty());
        // A kind whose name only ends like that.
        let allowed = all("{apiVersion: example.com/v1, kind: AllowList, metadata: {name: a}, items: {b: c}}");
        assert_eq!(keys(&allowed), ["AllowList.example.com a"]);
        assert_eq!(allowed[0].value["items"]["b"], "c");
    }

    #[test]
    fn json_with_escapes_that_yaml_does_not_have_is_read() {
        let found =
            all(r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"b":"\ud83d\ude00\/"}}"#);
        assert_eq!(found[0].value["data"]["b"], "\u{1f600}/");
        // The largest number of 64 bits is the same by way of YAML.
        let large = all(r#"{"apiVersion":"v1","kind":"A","metadata":{"name":"a"},"n":[18446744073709551615,-1,1.0]}"#);
        assert_eq!(all(&large[0].text()), large);
    }

    #[test]
    fn what_is_no_object_with_a_name_of_its_own_is_refused() {
        for (text, why) in [
            ("- a\n", "`a.yaml:1:1`: it is not a mapping"),
            ("just text\n", "it is not a mapping"),
            ("a: 1\n", "it has no kind"),
            ("kind: Pod\nmetadata: {name: a}\n", "it has no apiVersion"),
            ("apiVersion: 1\nkind: Pod\n", "its apiVersion is not a text"),
            ("apiVersion: v1\nkind: [Pod]\n", "its kind is not a text"),
            ("apiVersion: v1\nkind: Pod\n", "this Pod has no metadata.name"),
            ("apiVersion: v1\nkind: Pod\nmetadata: {name: ''}\n", "this Pod has no metadata.name"),
            ("apiVersion: v1\nkind: Pod\nmetadata: {name: 12}\n", "metadata.name of this Pod is not a text"),
            ("apiVersion: v1\nkind: Pod\nmetadata: {generateName: a-}\n", "metadata.generateName"),
            ("apiVersion: v1\nkind: Pod\nmetadata: {name: ../a}\n", "`../a` cannot be the name of a Pod"),
            ("apiVersion: v1\nkind: Pod\nmetadata: {name: ..}\n", "`..` cannot be the name"),
            ("apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: a/b}\n", "`a/b` cannot be a namespace"),
            ("apiVersion: v1\nkind: ../Pod\nmetadata: {name: a}\n", "kind `../Pod` is none"),
            ("apiVersion: a/b/c\nkind: Pod\nmetadata: {name: a}\n", "apiVersion `a/b/c` is none"),
            ("apiVersion: /v1\nkind: Pod\nmetadata: {name: a}\n", "apiVersion `/v1` is none"),
            ("apiVersion: ../v1\nkind: Pod\nmetadata: {name: a}\n", "apiVersion `../v1` is none"),
            ("a: 1\na: 2\n", "`a.yaml:2:1`: key `a` stands twice"),
            ("{\"a\": 1, \"a\": 2}\n", "key `a` stands twice"),
            ("a: [\n", "`a.yaml:"),
            ("---\nok: 1\n---\n\tb: 1\n", "`a.yaml:"),
        ] {
            let said = refused(text);
            assert!(said.contains(why), "{text:?} says: {said}");
        }
        assert!(documents("a.yaml", b"a: \xff", &Limits::default()).unwrap_err().to_string().contains("not UTF-8"));
        let long = format!("apiVersion: v1\nkind: A\nmetadata: {{name: a}}\n? {}\n: b\n", "k".repeat(1001));
        assert!(refused(&long).contains("a key of more than 1000 bytes"));
    }

    #[test]
    fn limits_hold() {
        let few = Limits { file: 64, entries: 1, depth: 3, ..Limits::default() };
        let said = |text: &str| documents("a.yaml", text.as_bytes(), &few).unwrap_err();
        assert!(matches!(said(&"#".repeat(65)), ReleaseError::TooLarge { found: 65, limit: 64, .. }));
        assert!(matches!(said("a: [[[[1]]]]"), ReleaseError::Beyond { .. }));
        assert!(matches!(said(r#"{"a": [[[[1]]]]}"#), ReleaseError::Beyond { .. }));
        let pod = "{apiVersion: v1, kind: A, metadata: {name: a}}";
        let entries = Limits { entries: 1, ..Limits::default() };
        let two = format!("---\n{pod}\n---\n{pod}\n");
        let said = documents("a.yaml", two.as_bytes(), &entries).unwrap_err();
        assert!(matches!(said, ReleaseError::TooLarge { found: 2, limit: 1, unit: "documents", .. }), "{said}");
    }

    #[test]
    fn namespaces_and_definitions_come_first_and_the_version_does_not_count() {
        let object = |api_version: &str, kind: &str, name: &str| {
            format!("---\napiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: {name}}}\n")
        };
        let text = [
            object("apps/v1", "Deployment", "b"),
            object("v1", "Service", "z"),
            object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "a.example.com"),
            object("apps/v1", "Deployment", "a"),
            object("example.com/v1", "Namespace", "a"),
            object("v1", "Namespace", "z"),
        ]
        .concat();
        let sorted = distinct(all(&text)).unwrap();
        let wanted = [
            "Namespace z",
            "CustomResourceDefinition.apiextensions.k8s.io a.example.com",
            "Service z",
            "Deployment.apps a",
            "Deployment.apps b",
            "Namespace.example.com a",
        ];
        assert_eq!(keys(&sorted), wanted);
        let twice = format!("{}{}", object("apps/v1", "Deployment", "a"), object("apps/v1beta1", "Deployment", "a"));
        let said = distinct(all(&twice)).unwrap_err().to_string();
        assert_eq!(said, "the source holds `Deployment.apps a` twice, expected each object once");
    }

    #[test]
    fn texts_that_other_readers_take_for_something_else_are_quoted() {
        let value = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {
            "on": "yes", "y": "n", "octal": "0777", "hex": "0x1f", "float": "1e3", "time": "2024-01-01", "sexagesimal": "1:30",
            "null": "~", "empty": "", "merge": "<<", "line": "a\u{2028}b\u{85}c\u{7f}d", "version": "1.10",
        }});
        let text = all(&value.to_string())[0].text();
        for line in ["\"on\": \"yes\"", "\"y\": \"n\"", "octal: \"0777\"", "time: \"2024-01-01\"", "version: \"1.10\""]
        {
            assert!(text.contains(&format!("  {line}\n")), "{text}");
        }
        assert!(text.contains(r#"  line: "a\u2028b\u0085c\u007fd""#), "{text}");
        assert_eq!(all(&text)[0].value, value);
        assert!(text.starts_with("apiVersion: v1\ndata:\n  empty: \"\"\n"), "{text}");
    }

    #[test]
    fn keys_mean_what_kubernetes_takes_them_for() {
        let found =
            all("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {on: a, 'off': b, 010: c, 1.5: d}\n");
        assert_eq!(found[0].value["data"], json!({"true": "a", "off": "b", "8": "c", "1.5": "d"}));
    }

    #[test]
    fn every_object_has_a_file_of_its_own() {
        let text = "---\n{apiVersion: v1, kind: Namespace, metadata: {name: shop}}\n---\n{apiVersion: apps/v1, kind: Deployment, metadata: {name: api, namespace: shop}}\n---\n{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: 'system:api'}}\n";
        let paths: Vec<String> = all(text).iter().map(Document::path).collect();
        assert_eq!(
            paths,
            [
                "Namespace/shop.yaml",
                "Deployment.apps/shop/api.yaml",
                "ClusterRole.rbac.authorization.k8s.io/system:api.yaml"
            ]
        );
        let long = |end: &str| {
            let name = format!("{}{end}", "a".repeat(240));
            all(&format!("{{apiVersion: v1, kind: Service, metadata: {{name: {name}}}}}"))[0].path()
        };
        assert!(long("x").len() <= 100 && long("x").starts_with("Service-"), "{}", long("x"));
        assert_ne!(long("x"), long("y"));
    }

    #[test]
    fn images_are_found_where_kinds_have_them() {
        let text = r"
apiVersion: apps/v1
kind: Deployment
metadata: {name: a}
spec:
  template:
    spec:
      initContainers: [{name: i, image: busybox}]
      containers:
        - {name: a, image: 'nginx:1.25', env: [{name: image, value: x}]}
        - {name: b, image: 'quay.io/b@sha256:0000000000000000000000000000000000000000000000000000000000000000'}
      volumes:
        - {name: v, image: {reference: 'quay.io/v:1', pullPolicy: Always}}
---
apiVersion: ceph.rook.io/v1
kind: CephCluster
metadata: {name: a}
spec: {cephVersion: {image: 'quay.io/ceph/ceph:v19'}, logo: {image: logo.png}, site: {image: 'https://a.b/c.png'}, other: {image: assets/a}}
---
apiVersion: argoproj.io/v1alpha1
kind: WorkflowTemplate
metadata: {name: a}
spec: {templates: [{container: {image: alpine}}, {script: {image: '{{inputs.parameters.image}}'}}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: a}
data: {image: 'nginx:1.25'}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: a.b}
spec: {default: {containers: [{image: 'nginx:1.25'}]}}
";
        let documents = all(text);
        let found: Vec<Vec<(String, String)>> =
            documents.iter().map(|d| d.images().into_iter().map(|i| (i.at, i.image)).collect()).collect();
        let image = |at: &str, image: &str| (at.to_owned(), image.to_owned());
        let pinned = format!("quay.io/b@sha256:{}", "0".repeat(64));
        let wanted = [
            vec![
                image("spec.template.spec.containers[0].image", "nginx:1.25"),
                image("spec.template.spec.containers[1].image", &pinned),
                image("spec.template.spec.initContainers[0].image", "busybox"),
                image("spec.template.spec.volumes[0].image.reference", "quay.io/v:1"),
            ],
            vec![image("spec.cephVersion.image", "quay.io/ceph/ceph:v19")],
            vec![image("spec.templates[0].container.image", "alpine")],
            vec![],
            vec![],
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn images_are_fixed_by_the_digest_that_was_found() {
        let mut document = all("{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{image: 'nginx:1'}, {image: 'b:1'}]}}").remove(0);
        let digest = Digest::of(b"x");
        document.pin(&[("nginx:1".to_owned(), digest.clone())].into());
        let images: Vec<String> = document.images().into_iter().map(|found| found.image).collect();
        assert_eq!(images, [format!("docker.io/library/nginx@{digest}"), "b:1".to_owned()]);
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
            "[a-z0-9.:~_-]{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::vec(("[a-zA-Z0-9 .:~/-]{1,8}", inner), 0..6)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back_the_same_and_writes_the_same(spec in values()) {
            let value = json!({"spec": spec, "kind": "Thing", "metadata": {"name": "a"}, "apiVersion": "example.com/v1"});
            let document = Document::new("a", "example.com/v1".to_owned(), "Thing".to_owned(), value.clone()).unwrap();
            let text = document.text();
            let again = documents("a.yaml", text.as_bytes(), &Limits::default()).unwrap();
            prop_assert_eq!(&again[0].value, &value);
            prop_assert_eq!(again[0].text(), text);
        }
    }
}
