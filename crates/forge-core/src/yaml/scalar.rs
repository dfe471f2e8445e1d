//! What a plain scalar means: YAML 1.2 with strict booleans for our own files, Kubernetes' reading for foreign ones.

use serde_json::json;

use super::{Dialect, Scalar};

/// The meaning of a scalar.
#[derive(Debug, Clone, PartialEq)]
pub enum Resolved<'a> {
    /// Nothing.
    Null,
    /// A boolean.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// A text.
    Text(&'a str),
}

impl Resolved<'_> {
    /// What it is, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "a boolean",
            Self::Int(_) | Self::Float(_) => "a number",
            Self::Text(_) => "a text",
        }
    }

    /// The same as JSON.
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Null => serde_json::Value::Null,
            Self::Bool(b) => json!(b),
            Self::Int(n) => json!(n),
            Self::Float(n) => json!(n),
            Self::Text(text) => json!(text),
        }
    }
}

pub(super) fn resolve<'s>(scalar: &'s Scalar<'_>, dialect: Dialect) -> Resolved<'s> {
    let text: &str = &scalar.text;
    if !scalar.plain {
        return Resolved::Text(text);
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Resolved::Null,
        "true" | "True" | "TRUE" => return Resolved::Bool(true),
        "false" | "False" | "FALSE" => return Resolved::Bool(false),
        _ => {}
    }
    if dialect == Dialect::Kubernetes {
        // sigs.k8s.io/yaml reads the booleans of YAML 1.1 (tests/kubernetes_scalars.tsv is what kubectl said).
        match text {
            "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => return Resolved::Bool(true),
            "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => return Resolved::Bool(false),
            _ => {}
        }
    }
    if dialect == Dialect::Kubernetes && text.contains('_') && text.starts_with(|c: char| c.is_ascii_digit()) {
        // `1_000` is a number there.
        return number(&text.replace('_', ""), dialect).unwrap_or(Resolved::Text(text));
    }
    number(text, dialect).unwrap_or(Resolved::Text(text))
}

fn number<'s>(text: &str, dialect: Dialect) -> Option<Resolved<'s>> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let first = digits.bytes().next()?;
    if !(first.is_ascii_digit() || first == b'.') {
        return None;
    }
    let negative = text.starts_with('-');
    let based = |digits: &str, radix| {
        i64::from_str_radix(digits, radix).ok().map(|n| Resolved::Int(if negative { -n } else { n }))
    };
    if let Some(hex) = digits.strip_prefix("0x") {
        return based(hex, 16);
    }
    if let Some(octal) = digits.strip_prefix("0o") {
        return based(octal, 8);
    }
    if let (Dialect::Kubernetes, Some(binary)) = (dialect, digits.strip_prefix("0b")) {
        return based(binary, 2);
    }
    if dialect == Dialect::Kubernetes
        && digits.len() > 1
        && digits.starts_with('0')
        && digits.bytes().all(|b| (b'0'..=b'7').contains(&b))
    {
        return based(digits, 8);
    }
    if digits.bytes().all(|b| b.is_ascii_digit()) {
        return text.parse().ok().map(Resolved::Int).or_else(|| text.parse().ok().map(Resolved::Float));
    }
    if digits == ".inf" || digits == ".nan" {
        return None;
    }
    let float = digits.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'))
        && digits.bytes().any(|b| b.is_ascii_digit());
    float.then(|| text.parse::<f64>().ok().filter(|n| n.is_finite()).map(Resolved::Float)).flatten()
}

#[cfg(test)]
mod tests {
    use crate::yaml::{Dialect, Limits, read};

    #[test]
    fn files_of_others_are_read_as_kubectl_reads_them() {
        for line in include_str!("../../tests/kubernetes_scalars.tsv").lines() {
            let (written, meant) = line.split_once('\t').unwrap();
            let stream = read(written, Dialect::Kubernetes, Limits::FILE);
            let found = stream.documents.first().map_or(serde_json::Value::Null, crate::yaml::Node::to_json);
            let meant: serde_json::Value = serde_json::from_str(meant).unwrap();
            let same = found == meant || found.as_f64().zip(meant.as_f64()).is_some_and(|(a, b)| a == b);
            assert!(same, "`{written}` is {found}, kubectl says {meant}");
        }
    }

    #[test]
    fn our_own_files_know_two_booleans() {
        for text in ["yes", "on", "y", "1_000", "0b11"] {
            let stream = read(text, Dialect::Strict, Limits::FILE);
            assert_eq!(stream.documents[0].kind(), "a text", "{text}");
        }
    }
}
