//! `metadata` as the API server reads it: ObjectMeta, whatever the CRD says about it. Its shape is a schema like any
//! other; the syntax of names, labels, annotations, finalizers and owners is checked here.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::schema::{self, Level, child};

static OBJECT_META: LazyLock<Value> = LazyLock::new(|| {
    let text = json!({ "type": "string" });
    let texts = json!({ "type": "object", "additionalProperties": text });
    let integer = json!({ "type": "integer", "format": "int64" });
    // Programs in Go write `creationTimestamp: null`.
    let time = json!({ "type": "string", "format": "date-time", "nullable": true });
    let owner = json!({
        "type": "object",
        "required": ["apiVersion", "kind", "name", "uid"],
        "properties": {
            "apiVersion": text, "kind": text, "name": text, "uid": text,
            "controller": { "type": "boolean" }, "blockOwnerDeletion": { "type": "boolean" },
        },
    });
    let manager = json!({
        "type": "object",
        "required": ["operation"],
        "properties": {
            "manager": text, "operation": { "type": "string", "enum": ["Apply", "Update"] }, "apiVersion": text, "time": time, "fieldsType": text,
            "fieldsV1": { "type": "object", "x-kubernetes-preserve-unknown-fields": true }, "subresource": text,
        },
    });
    json!({
        "type": "object",
        "properties": {
            "name": text, "generateName": text, "namespace": text, "selfLink": text, "uid": text,
            "resourceVersion": text, "generation": { "type": "integer", "minimum": 0 }, "creationTimestamp": time, "deletionTimestamp": time,
            "deletionGracePeriodSeconds": integer, "labels": texts, "annotations": texts,
            "ownerReferences": { "type": "array", "items": owner },
            "finalizers": { "type": "array", "items": text },
            "managedFields": { "type": "array", "items": manager },
        },
    })
});

const SUBDOMAIN: &str = "an RFC 1123 subdomain (lower-case letters, digits, `-` and `.`, at most 253)";
const LABEL: &str = "an RFC 1123 label (lower-case letters, digits and `-`, at most 63)";
const QUALIFIED: &str = "a qualified name (letters, digits, `-`, `_` and `.`, at most 63, after an optional `domain/`)";
const LABEL_VALUE: &str = "a label value (letters, digits, `-`, `_` and `.`, at most 63)";
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// The object itself: it must have metadata, and a name or the beginning of one.
pub(super) fn check_root(object: &Map<String, Value>, problems: &mut Vec<String>) {
    let Some(metadata) = object.get("metadata") else {
        problems.push("metadata: required".to_owned());
        return;
    };
    check(metadata, "metadata", is_subdomain, SUBDOMAIN, problems);
    let is_set = |field| metadata.get(field).is_some_and(|name| name.as_str() != Some(""));
    if metadata.is_object() && !is_set("name") && !is_set("generateName") {
        problems.push("metadata.name: required, or `generateName`".to_owned());
    }
}

/// A resource inside a resource: it says what it is; metadata and name are its own affair.
pub(super) fn check_embedded(resource: &Map<String, Value>, at: &str, problems: &mut Vec<String>) {
    for (field, is_valid) in [("apiVersion", is_version as fn(&str) -> bool), ("kind", is_kind)] {
        let at = child(at, field);
        match resource.get(field).map(Value::as_str) {
            None => problems.push(format!("{at}: required")),
            Some(None) => problems.push(format!("{at}: must be a string")),
            Some(Some(text)) if !is_valid(text) => problems.push(format!("{at}: `{text}` is not valid")),
            Some(Some(_)) => {}
        }
    }
    if let Some(metadata) = resource.get("metadata") {
        let is_segment = |name: &str| name != "." && name != ".." && !name.contains(['/', '%']);
        check(metadata, &child(at, "metadata"), is_segment, "a segment of a path", problems);
    }
}

fn check(metadata: &Value, at: &str, is_name: impl Fn(&str) -> bool, name: &str, problems: &mut Vec<String>) {
    schema::check(&OBJECT_META, metadata, at, Level::Field, problems);
    let mut require = |is_valid: bool, at: String, text: &str, wanted: &str| {
        if !is_valid {
            problems.push(format!("{at}: `{text}` is not {wanted}"));
        }
    };
    let text = |field| metadata.get(field).and_then(Value::as_str).filter(|text: &&str| !text.is_empty());
    if let Some(text) = text("name") {
        require(is_name(text), child(at, "name"), text, name);
    }
    if let Some(text) = text("generateName") {
        // The server adds letters to it, so it may end in `-`.
        let stem = text.strip_suffix('-').filter(|stem| !stem.is_empty());
        let example = stem.map_or_else(|| text.to_owned(), |stem| format!("{stem}x"));
        require(is_name(&example), child(at, "generateName"), text, name);
    }
    if let Some(text) = text("namespace") {
        require(is_label(text), child(at, "namespace"), text, LABEL);
    }
    for (key, value) in entries(metadata, "labels") {
        let at = child(&child(at, "labels"), key);
        require(is_qualified(key), at.clone(), key, QUALIFIED);
        require(value.is_empty() || is_word(value), at, value, LABEL_VALUE);
    }
    let mut size = 0_usize;
    for (key, value) in entries(metadata, "annotations") {
        size = size.saturating_add(key.len()).saturating_add(value.len());
        require(is_qualified(&key.to_lowercase()), child(&child(at, "annotations"), key), key, QUALIFIED);
    }
    let items = |field| metadata.get(field).and_then(Value::as_array).into_iter().flatten().enumerate();
    for (index, finalizer) in items("finalizers") {
        if let Some(text) = finalizer.as_str() {
            require(is_qualified(text), format!("{}[{index}]", child(at, "finalizers")), text, QUALIFIED);
        }
    }
    let owners = child(at, "ownerReferences");
    let mut controllers = 0;
    for (index, owner) in items("ownerReferences") {
        controllers += usize::from(schema::flag(owner, "controller"));
        for field in ["apiVersion", "kind", "name", "uid"] {
            let Some(text) = owner.get(field).and_then(Value::as_str) else { continue };
            let is_valid = !text.is_empty() && (field != "apiVersion" || (is_version(text) && !text.ends_with('/')));
            require(is_valid, child(&format!("{owners}[{index}]"), field), text, "valid");
        }
    }
    if controllers > 1 {
        problems.push(format!("{owners}: has {controllers} controllers, must have at most 1"));
    }
    if size > MAX_ANNOTATIONS {
        let at = child(at, "annotations");
        problems.push(format!("{at}: has {size} bytes, must have at most {MAX_ANNOTATIONS}"));
    }
}

fn entries<'a>(metadata: &'a Value, field: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let map = metadata.get(field).and_then(Value::as_object);
    map.into_iter().flatten().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
}

/// Letters and digits at both ends, and `inner` too in between.
fn is_made_of(text: &str, is_outer: impl Fn(char) -> bool, inner: &str) -> bool {
    let is_end = |end: Option<char>| end.is_some_and(&is_outer);
    is_end(text.chars().next())
        && is_end(text.chars().next_back())
        && text.chars().all(|c| is_outer(c) || inner.contains(c))
}

fn is_version(text: &str) -> bool {
    !text.is_empty() && text.matches('/').count() < 2
}

fn is_kind(text: &str) -> bool {
    let text = text.to_lowercase();
    is_label(&text) && text.starts_with(|c: char| c.is_ascii_alphabetic())
}

fn is_lower(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

fn is_label(text: &str) -> bool {
    text.len() <= 63 && is_made_of(text, is_lower, "-")
}

fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(|part| is_made_of(part, is_lower, "-"))
}

fn is_word(text: &str) -> bool {
    text.len() <= 63 && is_made_of(text, |c| c.is_ascii_alphanumeric(), "-_.")
}

fn is_qualified(text: &str) -> bool {
    match text.split_once('/') {
        Some((domain, word)) => is_subdomain(domain) && is_word(word),
        None => is_word(text),
    }
}
