//! A value against a structural schema (OpenAPI v3 as CRDs may use it). Pure; reports everything wrong, not the first
//! thing. The schema itself is trusted: the API server has already refused those that are not structural.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use regex::Regex;
use serde_json::{Map, Value};

use super::meta;

/// Where in the schema a value stands.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Level {
    /// The object itself: `apiVersion`, `kind` and `metadata` are known without being in the schema.
    Root,
    /// Inside the structure: every field is known or a problem.
    Field,
    /// Under `allOf`, `anyOf`, `oneOf`, `not` or `metadata`: fields are constrained there, but not made known.
    Constraint,
}

const RESOURCE_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

const DATE_TIME: &str = concat!(
    r"^[0-9]{4}-((0[1-9]|1[0-2])-(0[1-9]|[12][0-9])|(0[13-9]|1[0-2])-30|(0[13578]|1[02])-31)",
    r"[Tt]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$"
);
const BASE64: &str = r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$";

/// The path of a field. Keys that are not plain words are quoted.
pub(super) fn child(at: &str, key: &str) -> String {
    let plain = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "_-$".contains(c));
    match (plain, at) {
        (true, "") => key.to_owned(),
        (true, _) => format!("{at}.{key}"),
        (false, _) => format!("{at}[{key:?}]"),
    }
}

/// Whether a boolean keyword is there and true.
pub(super) fn flag(schema: &Value, keyword: &str) -> bool {
    schema.get(keyword).and_then(Value::as_bool).unwrap_or(false)
}

fn list<'a>(schema: &'a Value, keyword: &str) -> &'a [Value] {
    schema.get(keyword).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn field_schema<'a>(schema: &'a Value, key: &str) -> Option<&'a Value> {
    let declared = schema.get("properties").and_then(|properties| properties.get(key));
    declared.or_else(|| schema.get("additionalProperties").filter(|additional| additional.is_object()))
}

/// Adds the defaults of fields that are absent, as the server does before it validates.
pub(super) fn fill_defaults(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
                if let Some(default) = property.get("default").filter(|_| !fields.contains_key(key)) {
                    fields.insert(key.clone(), default.clone());
                }
            }
            for (key, field) in fields {
                if let Some(schema) = field_schema(schema, key) {
                    fill_defaults(schema, field);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                items.iter_mut().for_each(|item| fill_defaults(schema, item));
            }
        }
        _ => {}
    }
}

/// Adds the problems of `value`, which stands at the path `at`.
pub(super) fn check(schema: &Value, value: &Value, at: &str, level: Level, problems: &mut Vec<String>) {
    let mut problem = |text: String| problems.push(if at.is_empty() { text } else { format!("{at}: {text}") });
    let wanted = schema.get("type").and_then(Value::as_str);
    let int_or_string = flag(schema, "x-kubernetes-int-or-string");
    if value.is_null() {
        if !flag(schema, "nullable") && (level != Level::Constraint || wanted.is_some() || int_or_string) {
            problem("must not be null".to_owned());
        }
        return;
    }
    let fits = match wanted {
        _ if int_or_string => value.is_string() || is_integer(value),
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => is_integer(value),
        Some("number") => value.is_number(),
        _ => true,
    };
    if !fits {
        let wanted = if int_or_string { "integer or string" } else { wanted.unwrap_or_default() };
        problem(format!("expected {wanted}, found {}", type_name(value)));
        return;
    }
    let allowed = list(schema, "enum");
    if !allowed.is_empty() && !allowed.contains(value) {
        let allowed: Vec<_> = allowed.iter().map(|one| format!("`{one}`")).collect();
        problem(format!("`{value}` is not one of {}", allowed.join(", ")));
    }
    match value {
        Value::String(text) => check_string(schema, text, &mut problem),
        Value::Number(_) => check_number(schema, value, &mut problem),
        Value::Array(items) => check_array(schema, items, at, level, problems),
        Value::Object(fields) => check_object(schema, fields, at, level, problems),
        Value::Null | Value::Bool(_) => {}
    }
    check_junctors(schema, value, at, problems);
}

fn check_junctors(schema: &Value, value: &Value, at: &str, problems: &mut Vec<String>) {
    let matches = |schema: &Value| {
        let mut problems = Vec::new();
        check(schema, value, at, Level::Constraint, &mut problems);
        problems.is_empty()
    };
    let prefix = if at.is_empty() { String::new() } else { format!("{at}: ") };
    for schema in list(schema, "allOf") {
        check(schema, value, at, Level::Constraint, problems);
    }
    let any_of = list(schema, "anyOf");
    if !any_of.is_empty() && !any_of.iter().any(matches) {
        problems.push(format!("{prefix}matches none of the {} schemas of `anyOf`", any_of.len()));
    }
    let one_of = list(schema, "oneOf");
    let matching = one_of.iter().filter(|schema| matches(schema)).count();
    if !one_of.is_empty() && matching != 1 {
        problems.push(format!("{prefix}matches {matching} of the {} schemas of `oneOf`, must match one", one_of.len()));
    }
    if let Some(schema) = schema.get("not").filter(|schema| matches(schema)) {
        problems.push(format!("{prefix}must not match `{schema}`"));
    }
}

fn check_string(schema: &Value, text: &str, problem: &mut impl FnMut(String)) {
    check_size(schema, ["minLength", "maxLength"], text.chars().count(), "characters", problem);
    if let Some(pattern) = schema.get("pattern").and_then(Value::as_str) {
        match is_match(pattern, text) {
            Ok(true) => {}
            Ok(false) => problem(format!("`{text}` does not match `{pattern}`")),
            Err(error) => problem(format!("failed to compile the pattern `{pattern}`: {error}")),
        }
    }
    let syntax = match schema.get("format").and_then(Value::as_str) {
        Some("date-time") => DATE_TIME,
        Some("byte") => BASE64,
        _ => return,
    };
    if is_match(syntax, text) != Ok(true) {
        problem(format!("`{text}` is not {}", if syntax == BASE64 { "base64" } else { "a date-time of RFC 3339" }));
    }
}

fn check_number(schema: &Value, value: &Value, problem: &mut impl FnMut(String)) {
    let number = value.as_f64().unwrap_or(f64::NAN);
    let bound = |keyword| schema.get(keyword).and_then(Value::as_f64);
    if let Some(minimum) = bound("minimum") {
        if flag(schema, "exclusiveMinimum") && number <= minimum {
            problem(format!("`{value}` must be greater than {minimum}"));
        } else if number < minimum {
            problem(format!("`{value}` must be at least {minimum}"));
        }
    }
    if let Some(maximum) = bound("maximum") {
        if flag(schema, "exclusiveMaximum") && number >= maximum {
            problem(format!("`{value}` must be less than {maximum}"));
        } else if number > maximum {
            problem(format!("`{value}` must be at most {maximum}"));
        }
    }
    if let Some(step) = bound("multipleOf").filter(|step| (number / step).fract() != 0.0) {
        problem(format!("`{value}` must be a multiple of {step}"));
    }
    // `int64` needs no check: what does not fit is no integer at all.
    let is_int32 = schema.get("format").and_then(Value::as_str) == Some("int32");
    if is_int32 && !(f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&number) {
        problem(format!("`{value}` is out of range for int32"));
    }
}

fn check_size(schema: &Value, keywords: [&str; 2], size: usize, unit: &str, problem: &mut impl FnMut(String)) {
    let [minimum, maximum] = keywords.map(|keyword| schema.get(keyword).and_then(Value::as_u64));
    let size = u64::try_from(size).unwrap_or(u64::MAX);
    if let Some(minimum) = minimum.filter(|minimum| size < *minimum) {
        problem(format!("has {size} {unit}, must have at least {minimum}"));
    }
    if let Some(maximum) = maximum.filter(|maximum| size > *maximum) {
        problem(format!("has {size} {unit}, must have at most {maximum}"));
    }
}

fn check_array(schema: &Value, items: &[Value], at: &str, level: Level, problems: &mut Vec<String>) {
    let mut problem = |text| problems.push(format!("{at}: {text}"));
    check_size(schema, ["minItems", "maxItems"], items.len(), "items", &mut problem);
    let list_type = schema.get("x-kubernetes-list-type").and_then(Value::as_str);
    let keys = if list_type == Some("map") { list(schema, "x-kubernetes-list-map-keys") } else { &[] };
    let unique = list_type == Some("set") || flag(schema, "uniqueItems") || !keys.is_empty();
    // What makes an item itself: its keys in a map, all of it in a set.
    let identity = |item: &Value| -> Value {
        if keys.is_empty() {
            return item.clone();
        }
        let key = |key: &Value| Some((key.as_str()?.to_owned(), item.get(key.as_str()?)?.clone()));
        Value::Object(keys.iter().filter_map(key).collect())
    };
    let mut seen: Vec<Value> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let at = format!("{at}[{index}]");
        if unique {
            let identity = identity(item);
            if seen.contains(&identity) {
                problems.push(format!("{at}: duplicate of an earlier item: `{identity}`"));
            }
            seen.push(identity);
        }
        if let Some(schema) = schema.get("items") {
            check(schema, item, &at, level, problems);
        }
    }
}

fn check_object(schema: &Value, fields: &Map<String, Value>, at: &str, level: Level, problems: &mut Vec<String>) {
    let embedded = flag(schema, "x-kubernetes-embedded-resource");
    let is_resource = embedded || level == Level::Root;
    let below = if level == Level::Root { Level::Field } else { level };
    let mut problem = |text| problems.push(if at.is_empty() { text } else { format!("{at}: {text}") });
    check_size(schema, ["minProperties", "maxProperties"], fields.len(), "fields", &mut problem);
    for name in list(schema, "required").iter().filter_map(Value::as_str) {
        if !fields.contains_key(name) {
            problems.push(format!("{}: required", child(at, name)));
        }
    }
    let keeps_unknown = level == Level::Constraint
        || flag(schema, "x-kubernetes-preserve-unknown-fields")
        || flag(schema, "additionalProperties");
    for (key, field) in fields {
        let at = child(at, key);
        let is_implied = is_resource && RESOURCE_FIELDS.contains(&key.as_str());
        match field_schema(schema, key) {
            // That metadata is an object is for ObjectMeta to say.
            Some(_) if is_implied && key == "metadata" && !field.is_object() => {}
            Some(schema) if is_implied => check(schema, field, &at, Level::Constraint, problems),
            Some(schema) => check(schema, field, &at, below, problems),
            None if is_implied || keeps_unknown => {}
            None => problems.push(format!("{at}: unknown field")),
        }
    }
    if level == Level::Root {
        meta::check_root(fields, problems);
    } else if embedded {
        meta::check_embedded(fields, at, problems);
    }
}

/// As the server counts: 64 bits with a sign, or a float that is whole and exact.
fn is_integer(value: &Value) -> bool {
    const MAX_EXACT: f64 = ((1_u64 << 53) - 1) as f64;
    let is_whole = |number: f64| number.fract() == 0.0 && number.abs() <= MAX_EXACT;
    value.is_i64() || value.as_f64().is_some_and(is_whole)
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) if is_integer(value) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Whether the pattern occurs in the text. A CRD repeats few patterns hundreds of times, so each is compiled once.
fn is_match(pattern: &str, text: &str) -> Result<bool, regex::Error> {
    static COMPILED: LazyLock<Mutex<HashMap<String, Regex>>> = LazyLock::new(Mutex::default);
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(regex) = compiled.get(pattern) {
        return Ok(regex.is_match(text));
    }
    let regex = Regex::new(pattern)?;
    Ok(compiled.entry(pattern.to_owned()).or_insert(regex).is_match(text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problems(schema: &Value, value: &Value) -> Vec<String> {
        let mut value = value.clone();
        fill_defaults(schema, &mut value);
        let mut problems = Vec::new();
        check(schema, &value, "x", Level::Field, &mut problems);
        problems
    }

    /// Each row: a schema, values that pass, values that do not with the one problem each has.
    #[test]
    fn every_keyword_passes_what_it_should_and_names_what_it_should_not() {
        let table = [
            (
                json!({"type": "integer"}),
                vec![json!(1), json!(1.0)],
                vec![(json!(1.5), "expected integer, found number")],
            ),
            (
                json!({"type": "number"}),
                vec![json!(1), json!(1.5)],
                vec![(json!("1"), "expected number, found string")],
            ),
            (json!({"type": "boolean"}), vec![json!(true)], vec![(json!("true"), "expected boolean, found string")]),
            (json!({"type": "string", "nullable": true}), vec![json!(null)], vec![]),
            (json!({"type": "string"}), vec![json!("")], vec![(json!(null), "must not be null")]),
            (
                json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}], "pattern": "^[0-9]+%$"}),
                vec![json!(1), json!("5%")],
                vec![
                    (json!(true), "expected integer or string, found boolean"),
                    (json!("5"), "`5` does not match `^[0-9]+%$`"),
                ],
            ),
            (
                json!({"type": "integer", "minimum": 1, "maximum": 3}),
                vec![json!(1), json!(3)],
                vec![(json!(0), "`0` must be at least 1"), (json!(4), "`4` must be at most 3")],
            ),
            (
                json!({"type": "number", "minimum": 1, "exclusiveMinimum": true, "maximum": 3, "exclusiveMaximum": true}),
                vec![json!(2)],
                vec![(json!(1), "`1` must be greater than 1"), (json!(3), "`3` must be less than 3")],
            ),
            (
                json!({"type": "integer", "multipleOf": 5}),
                vec![json!(10)],
                vec![(json!(7), "`7` must be a multiple of 5")],
            ),
            (
                json!({"type": "integer", "format": "int32"}),
                vec![json!(i32::MAX), json!(i32::MIN)],
                vec![(json!(2_147_483_648_i64), "`2147483648` is out of range for int32")],
            ),
            (
                json!({"type": "integer", "format": "int64"}),
                vec![json!(i64::MIN), json!(i64::MAX)],
                vec![(json!(u64::MAX), "expected integer, found number")],
            ),
            (
                json!({"type": "string", "minLength": 2, "maxLength": 3}),
                vec![json!("äö"), json!("äöü")],
                vec![
                    (json!("ä"), "has 1 characters, must have at least 2"),
                    (json!("abcd"), "has 4 characters, must have at most 3"),
                ],
            ),
            (
                json!({"type": "string", "format": "date-time"}),
                vec![json!("2024-02-29T23:59:59Z"), json!("2024-01-01T00:00:00.123+02:00")],
                vec![
                    (json!("2024-01-01"), "`2024-01-01` is not a date-time of RFC 3339"),
                    (json!("2024-02-30T00:00:00Z"), "`2024-02-30T00:00:00Z` is not a date-time of RFC 3339"),
                ],
            ),
            (
                json!({"type": "string", "format": "byte"}),
                vec![json!("YWI="), json!("")],
                vec![(json!("a"), "`a` is not base64")],
            ),
            (
                json!({"type": "array", "minItems": 1, "maxItems": 2, "uniqueItems": true, "items": {"type": "integer"}}),
                vec![json!([1]), json!([1, 2])],
                vec![
                    (json!([]), "has 0 items, must have at least 1"),
                    (json!([1, 2, 3]), "has 3 items, must have at most 2"),
                ],
            ),
            (
                json!({"type": "object", "maxProperties": 1, "additionalProperties": true}),
                vec![json!({"a": {"b": null}})],
                vec![],
            ),
            (
                json!({"type": "string", "allOf": [{"minLength": 2}], "not": {"enum": ["no"]}}),
                vec![json!("yes")],
                vec![
                    (json!("y"), "has 1 characters, must have at least 2"),
                    (json!("no"), r#"must not match `{"enum":["no"]}`"#),
                ],
            ),
            (
                json!({"type": "integer", "oneOf": [{"minimum": 5}, {"maximum": 7}]}),
                vec![json!(1), json!(9)],
                vec![(json!(6), "matches 2 of the 2 schemas of `oneOf`, must match one")],
            ),
            (
                json!({"type": "integer", "anyOf": [{"minimum": 7}, {"maximum": 5}]}),
                vec![json!(1), json!(9)],
                vec![(json!(6), "matches none of the 2 schemas of `anyOf`")],
            ),
        ];
        for (schema, good, bad) in table {
            for value in good {
                assert_eq!(problems(&schema, &value), Vec::<String>::new(), "{schema} {value}");
            }
            for (value, problem) in bad {
                assert_eq!(problems(&schema, &value), [format!("x: {problem}")], "{schema} {value}");
            }
        }
    }

    #[test]
    fn unknown_fields_are_kept_only_where_the_schema_keeps_them_and_not_below() {
        let inner = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        let open =
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"inner": inner}});
        assert_eq!(problems(&open, &json!({"any": {"thing": 1}, "inner": {"b": 1}})), ["x.inner.b: unknown field"]);
        let map = json!({"type": "object", "additionalProperties": inner});
        assert_eq!(problems(&map, &json!({"k.v": {"b": 1}})), [r#"x["k.v"].b: unknown field"#]);
    }

    #[test]
    fn a_junctor_constrains_fields_but_does_not_make_them_known() {
        let schema = json!({
            "type": "object",
            "properties": {"a": {"type": "string"}},
            "oneOf": [{"required": ["a"], "properties": {"b": {}}}, {"required": ["b"]}],
        });
        assert_eq!(problems(&schema, &json!({"a": ""})), Vec::<String>::new());
        assert_eq!(problems(&schema, &json!({"b": 1})), ["x.b: unknown field"]);
    }

    #[test]
    fn a_default_satisfies_required_and_completes_the_keys_of_a_list() {
        let item = json!({
            "type": "object",
            "required": ["port", "protocol"],
            "properties": {"port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}},
        });
        let schema = json!({
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["port", "protocol"],
            "items": item,
        });
        assert_eq!(problems(&schema, &json!([{"port": 1}, {"port": 1, "protocol": "UDP"}])), Vec::<String>::new());
        assert_eq!(
            problems(&schema, &json!([{"port": 1}, {"port": 1, "protocol": "TCP"}])),
            [r#"x[1]: duplicate of an earlier item: `{"port":1,"protocol":"TCP"}`"#]
        );
    }

    #[test]
    fn an_embedded_resource_says_what_it_is_and_has_the_metadata_of_an_object() {
        let schema = json!({"type": "object", "x-kubernetes-embedded-resource": true});
        let good = json!({"apiVersion": "a.b/v1", "kind": "Input", "metadata": {"name": "Any_Name"}});
        assert_eq!(problems(&schema, &good), Vec::<String>::new());
        let bad = json!({"apiVersion": "a/b/c", "metadata": {"name": "a/b", "colour": "red"}, "spec": {}});
        assert_eq!(
            problems(&schema, &bad),
            [
                "x.spec: unknown field",
                "x.apiVersion: `a/b/c` is not valid",
                "x.kind: required",
                "x.metadata.colour: unknown field",
                "x.metadata.name: `a/b` is not a segment of a path",
            ]
        );
    }
}
