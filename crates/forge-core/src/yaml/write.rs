//! JSON values as YAML text: block style, keys in their order, every text that could be read as something else quoted.

use std::fmt::Write as _;

use serde_json::Value;

/// One document, ending with a line break.
pub fn write(value: &Value) -> String {
    let mut text = String::new();
    node(value, 0, false, &mut text);
    text
}

/// The same for people: texts of several lines are blocks.
pub fn write_blocks(value: &Value) -> String {
    let mut text = String::new();
    node(value, 0, true, &mut text);
    text
}

fn node(value: &Value, indent: usize, blocks: bool, out: &mut String) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (i, (key, value)) in fields.iter().enumerate() {
                if i > 0 {
                    out.push_str(&" ".repeat(indent));
                }
                out.push_str(&scalar_text(key));
                out.push(':');
                nested(value, indent, blocks, out);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push_str(&" ".repeat(indent));
                }
                out.push_str("- ");
                node(item, indent + 2, blocks, out);
            }
        }
        other => {
            out.push_str(&scalar(other));
            out.push('\n');
        }
    }
}

fn nested(value: &Value, indent: usize, blocks: bool, out: &mut String) {
    match value {
        Value::String(text) if blocks && is_block(text) => {
            // How far a block is indented is read off its first line, unless it is said.
            out.push_str(if text.starts_with([' ', '\t', '\n']) { " |2\n" } else { " |\n" });
            for line in text.lines() {
                if !line.is_empty() {
                    out.push_str(&" ".repeat(indent + 2));
                    out.push_str(line);
                }
                out.push('\n');
            }
        }
        Value::Object(fields) if !fields.is_empty() => {
            let _ = write!(out, "\n{}", " ".repeat(indent + 2));
            node(value, indent + 2, blocks, out);
        }
        Value::Array(items) if !items.is_empty() => {
            let _ = write!(out, "\n{}", " ".repeat(indent + 2));
            node(value, indent + 2, blocks, out);
        }
        other => {
            out.push(' ');
            out.push_str(&scalar(other));
            out.push('\n');
        }
    }
}

/// True for a text that a literal block holds as it is: whole lines, the last one not empty, nothing that cannot be seen.
fn is_block(text: &str) -> bool {
    let special = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}');
    let seen = |c: char| matches!(c, '\n' | '\t') || !special(c);
    let lines = text.ends_with('\n') && !text.ends_with("\n\n") && text.lines().count() > 1;
    lines && text.chars().all(seen)
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => scalar_text(text),
        other => other.to_string(),
    }
}

/// Plain where that is beyond doubt in every YAML version, quoted otherwise.
fn scalar_text(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    let first = text.chars().next();
    let word = matches!(
        text.to_ascii_lowercase().as_str(),
        "true" | "false" | "yes" | "no" | "on" | "off" | "y" | "n" | "null"
    );
    if first.is_some_and(|c| c.is_ascii_alphabetic()) && text.chars().all(plain) && !word {
        text.to_owned()
    } else {
        quoted(text)
    }
}

/// In quotes, with escapes for what JSON leaves as it is and YAML does not: line breaks of YAML 1.1, which would be folded,
/// and characters that its readers refuse.
fn quoted(text: &str) -> String {
    let special =
        |c: char| matches!(c, '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}');
    let json = Value::from(text).to_string();
    if !json.contains(special) {
        return json;
    }
    let mut escaped = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if special(c) {
            let _ = write!(escaped, "\\u{:04x}", u32::from(c));
        } else {
            escaped.push(c);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml::{Dialect, Limits, read};

    #[test]
    fn what_is_written_reads_back_the_same() {
        let value = serde_json::json!({
            "a": [1, {"b": [], "c": {}}, [["deep"]], null, true],
            "text": ["yes", "0x1f", "1e3", "a: b", "- x", "#no", "", " lead", "multi\nline\ttab", "é\u{1f600}", "{{x}}",
                "a\u{85}b\u{2028}c\u{2029}d", "\u{7f}\u{80}\u{9f}", "\u{feff}a", "\u{fffe}\u{ffff}", "\u{0}\u{1b}"],
            "y": {"n": -1.5},
        });
        let text = write(&value);
        let stream = read(&text, Dialect::Kubernetes, Limits::FILE);
        assert!(stream.problems.is_empty(), "{text}\n{:?}", stream.problems);
        assert_eq!(stream.documents[0].to_json(), value, "{text}");
    }

    #[test]
    fn what_yaml_1_1_takes_for_a_line_break_or_refuses_is_escaped() {
        let text = write(&serde_json::json!({"a\u{2028}": "b\u{85}\u{7f}\u{feff}é"}));
        assert_eq!(text, "\"a\\u2028\": \"b\\u0085\\u007f\\ufeffé\"\n");
    }

    #[test]
    fn blocks_read_back_the_same_and_are_used_only_where_they_do() {
        let value = serde_json::json!({
            "a": {"block": "one\n\n  two\n", "indented": "  one\ntwo\n", "empty first": "\none\n"},
            "not": ["one\ntwo\n"],
            "open": "one\ntwo", "many": "one\ntwo\n\n", "single": "one\n", "bell": "one\n\u{7}\n",
        });
        let text = write_blocks(&value);
        let stream = read(&text, Dialect::Kubernetes, Limits::FILE);
        assert!(stream.problems.is_empty(), "{text}\n{:?}", stream.problems);
        assert_eq!(stream.documents[0].to_json(), value, "{text}");
        assert!(text.contains("  block: |\n    one\n\n      two\n"), "{text}");
        assert_eq!(text.matches('|').count(), 3, "{text}");
    }
}
