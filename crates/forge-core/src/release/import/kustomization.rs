//! Kustomizations: which folders they read, and what Argo CD changes in one before it is built.

use serde_json::{Map, Value, json};

use super::{is_set, list, text, truth};
use crate::name::clip;

/// The entries of a kustomization that may be folders of others.
///
/// # Errors
/// When it fetches something, or has charts inflated.
pub fn folders(kustomization: &Value) -> Result<Vec<String>, String> {
    for field in ["helmCharts", "helmChartInflationGenerator"] {
        if is_set(kustomization, field) {
            return Err(format!("it has `{field}`: import the chart as a source of its own, or flatten"));
        }
    }
    let mut found = Vec::new();
    for field in ["resources", "bases", "components", "generators", "transformers", "validators"] {
        for entry in list(kustomization, &format!("/{field}")).iter().filter_map(Value::as_str) {
            // Objects may be written out here.
            if entry.contains('\n') {
                continue;
            }
            if entry.contains("://") || entry.starts_with("git@") || entry.contains("?ref=") {
                return Err(format!("`{field}` has `{}`, which is fetched: put it into the repository", clip(entry)));
            }
            found.push(entry.to_owned());
        }
    }
    Ok(found)
}

/// Changes a kustomization as Argo CD does for these fields of `spec.source.kustomize`.
///
/// # Errors
/// When the kustomization is no table, or a field is not read here.
pub fn edit(kustomization: &mut Value, options: &Value) -> Result<(), String> {
    let Value::Object(fields) = kustomization else { return Err("the kustomization is no table".to_owned()) };
    for name in ["namePrefix", "nameSuffix", "namespace"] {
        if let Some(value) = text(options, &format!("/{name}")) {
            fields.insert(name.to_owned(), Value::from(value));
        }
    }
    for image in list(options, "/images").iter().filter_map(Value::as_str) {
        named(fields, "images", self::image(image)?)?;
    }
    for replica in list(options, "/replicas") {
        let count = match replica.get("count") {
            Some(Value::String(count)) => count.parse::<i64>().ok(),
            count => count.and_then(Value::as_i64),
        };
        let (Some(name), Some(count)) = (text(replica, "/name"), count) else {
            return Err("`kustomize.replicas` has an entry without a name or a number".to_owned());
        };
        named(fields, "replicas", json!({"name": name, "count": count}))?;
    }
    if let Some(Value::Object(labels)) = options.get("commonLabels").filter(|labels| is_object(labels)) {
        if truth(options, "/labelWithoutSelector") {
            let mut entry = json!({"pairs": labels});
            if let (true, Value::Object(entry)) = (truth(options, "/labelIncludeTemplates"), &mut entry) {
                entry.insert("includeTemplates".to_owned(), Value::Bool(true));
            }
            push(fields, "labels", entry)?;
        } else {
            join(fields, "commonLabels", labels)?;
        }
    }
    if let Some(Value::Object(annotations)) = options.get("commonAnnotations").filter(|all| is_object(all)) {
        join(fields, "commonAnnotations", annotations)?;
    }
    for patch in list(options, "/patches") {
        push(fields, "patches", patch.clone())?;
    }
    for component in list(options, "/components") {
        push(fields, "components", component.clone())?;
    }
    Ok(())
}

fn is_object(value: &Value) -> bool {
    value.as_object().is_some_and(|fields| !fields.is_empty())
}

fn push(fields: &mut Map<String, Value>, field: &str, entry: Value) -> Result<(), String> {
    match fields.entry(field).or_insert_with(|| json!([])) {
        Value::Array(items) => items.push(entry),
        other if other.is_null() => *other = json!([entry]),
        _ => return Err(format!("`{field}` of the kustomization is no list")),
    }
    Ok(())
}

/// An entry in the place of the one with its name.
fn named(fields: &mut Map<String, Value>, field: &str, entry: Value) -> Result<(), String> {
    if let Some(Value::Array(items)) = fields.get_mut(field) {
        items.retain(|item| item.get("name") != entry.get("name"));
    }
    push(fields, field, entry)
}

fn join(fields: &mut Map<String, Value>, field: &str, more: &Map<String, Value>) -> Result<(), String> {
    match fields.entry(field).or_insert_with(|| json!({})) {
        Value::Object(there) => there.extend(more.clone()),
        _ => return Err(format!("`{field}` of the kustomization is no table")),
    }
    Ok(())
}

/// `[name=]image[:tag][@digest]`.
fn image(text: &str) -> Result<Value, String> {
    let (name, image) = text.split_once('=').map_or((None, text), |(name, image)| (Some(name), image));
    let (image, digest) = image.split_once('@').map_or((image, None), |(image, digest)| (image, Some(digest)));
    let (image, tag) = match image.rsplit_once(':') {
        Some((image, tag)) if !tag.contains('/') => (image, Some(tag)),
        _ => (image, None),
    };
    if image.is_empty() || name.is_some_and(str::is_empty) || [image, name.unwrap_or(image)].contains(&"*") {
        return Err(format!("`kustomize.images` has `{}`, which is not read here", clip(text)));
    }
    let mut entry = Map::new();
    entry.insert("name".to_owned(), Value::from(name.unwrap_or(image)));
    let parts = [("newName", name.map(|_| image)), ("newTag", tag), ("digest", digest)];
    for (field, value) in parts {
        if let Some(value) = value {
            entry.insert(field.to_owned(), Value::from(value));
        }
    }
    Ok(Value::Object(entry))
}
