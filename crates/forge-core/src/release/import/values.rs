//! Values of a chart as one file: what helm makes of several files and of `--set`.

use serde_json::{Map, Number, Value};

use super::Parameter;
use crate::name::clip;

/// Files in their order, each over those before it, and parameters over all of them.
///
/// # Errors
/// When a parameter is written in a way that is not read here, or goes through something that is no table.
pub fn values(files: Vec<Value>, parameters: &[Parameter]) -> Result<Value, String> {
    let mut all = Value::Object(Map::new());
    for file in files {
        match file {
            Value::Null => {}
            Value::Object(_) => lay(&mut all, file),
            _ => return Err("a file of values is no table".to_owned()),
        }
    }
    // In the order of helm: `--set`, then `--set-string`.
    let (forced, rest): (Vec<&Parameter>, Vec<&Parameter>) =
        parameters.iter().partition(|parameter| parameter.force_string);
    for parameter in rest.into_iter().chain(forced) {
        set(&mut all, parameter)?;
    }
    Ok(all)
}

/// Tables are joined, everything else is replaced. A null stays: it takes away what the chart has there.
fn lay(below: &mut Value, over: Value) {
    match (below, over) {
        (Value::Object(below), Value::Object(over)) => {
            for (key, value) in over {
                match below.get_mut(&key) {
                    Some(there) => lay(there, value),
                    None => {
                        below.insert(key, value);
                    }
                }
            }
        }
        (below, over) => *below = over,
    }
}

fn set(all: &mut Value, parameter: &Parameter) -> Result<(), String> {
    let name = clip(&parameter.name);
    let bad = |why: &str| Err(format!("`helm.parameters`: `{name}` {why}; write it into `helm.values`"));
    let Some(keys) = keys(&parameter.name) else { return bad("is not a plain name of a value") };
    if parameter.value.starts_with('{') && parameter.value.ends_with('}') {
        return bad("is a list");
    }
    let mut at = all;
    for key in keys {
        let Value::Object(fields) = at else { return bad("goes through something that is no table") };
        at = fields.entry(key).or_insert_with(|| Value::Object(Map::new()));
        if at.is_null() {
            *at = Value::Object(Map::new());
        }
    }
    *at = value(&unescaped(&parameter.value), parameter.force_string);
    Ok(())
}

/// The keys of a name; nothing where it has indexes or is not one.
fn keys(name: &str) -> Option<Vec<String>> {
    let mut keys = vec![String::new()];
    let mut characters = name.chars();
    while let Some(c) = characters.next() {
        match c {
            '[' | ']' | '=' | ',' | '{' | '}' => return None,
            '.' => keys.push(String::new()),
            '\\' => keys.last_mut()?.push(characters.next()?),
            _ => keys.last_mut()?.push(c),
        }
    }
    keys.iter().all(|key| !key.is_empty()).then_some(keys)
}

fn unescaped(value: &str) -> String {
    let mut text = String::new();
    let mut characters = value.chars();
    while let Some(c) = characters.next() {
        text.push(if c == '\\' { characters.next().unwrap_or('\\') } else { c });
    }
    text
}

/// A value as helm takes it.
fn value(text: &str, force_string: bool) -> Value {
    let is = |word: &str| text.eq_ignore_ascii_case(word);
    if force_string {
        return Value::from(text);
    }
    if is("true") || is("false") {
        return Value::Bool(is("true"));
    }
    if is("null") {
        return Value::Null;
    }
    // What begins with a zero is a text, but for the zero itself.
    let number = text.parse::<i64>().ok().filter(|_| text == "0" || !text.starts_with('0'));
    number.map_or_else(|| Value::from(text), |number| Value::Number(Number::from(number)))
}
