//! Trees into values of our own formats. A decoder reports everything that is wrong, not the first thing.

use std::fmt::Display;
use std::str::FromStr;

use super::Dialect;
use super::node::{At, Key, Node, Position, Value};
use super::scalar::Resolved;
use crate::code::Code;
use crate::finding::{Finding, Place};
use crate::name::clip;

/// Collects what is wrong with one file while its values are taken out of the tree.
#[derive(Debug)]
pub struct Decoder<'f> {
    path: &'f str,
    findings: Vec<Finding>,
}

/// The fields of one mapping: those not taken by the end are unknown.
#[derive(Debug)]
pub struct Fields<'n, 'a> {
    entries: &'n [(Key<'a>, Node<'a>)],
    known: Vec<&'static str>,
    what: &'static str,
    at: Position,
}

impl<'n, 'a> Fields<'n, 'a> {
    /// The value of an optional field. `null` counts as absent.
    pub fn take(&mut self, name: &'static str) -> Option<&'n Node<'a>> {
        self.known.push(name);
        self.entries.iter().find(|(key, _)| key.text == name).map(|(_, node)| node).filter(|node| !node.is_null())
    }

    /// Where the mapping begins.
    pub fn at(&self) -> Position {
        self.at
    }
}

impl<'f> Decoder<'f> {
    /// A decoder for the file at this path.
    pub fn new(path: &'f str) -> Self {
        Self { path, findings: Vec::new() }
    }

    /// Everything that was wrong.
    pub fn into_findings(self) -> Vec<Finding> {
        self.findings
    }

    /// True as long as nothing was wrong.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    /// Reports something.
    pub fn report(&mut self, code: Code, at: Position, message: impl Into<String>) -> &mut Finding {
        self.findings.push(Finding::new(code, Place::new(self.path, at), message));
        // Just pushed.
        let last = self.findings.len() - 1;
        #[expect(clippy::indexing_slicing, reason = "the vector is not empty")]
        &mut self.findings[last]
    }

    /// The fields of a mapping.
    pub fn mapping<'n, 'a>(&mut self, node: &'n Node<'a>, what: &'static str) -> Option<Fields<'n, 'a>> {
        match &node.value {
            Value::Mapping(entries) => Some(Fields { entries, known: Vec::new(), what, at: node.at }),
            _ => {
                self.report(Code::WrongType, node.at, format!("{what} must be a mapping, not {}", node.kind()));
                None
            }
        }
    }

    /// A field that must be there.
    pub fn required<'n, 'a>(&mut self, fields: &mut Fields<'n, 'a>, name: &'static str) -> Option<&'n Node<'a>> {
        let node = fields.take(name);
        if node.is_none() {
            self.report(Code::MissingField, fields.at, format!("{} needs `{name}`", fields.what));
        }
        node
    }

    /// Reports the fields that nobody took.
    pub fn finish(&mut self, fields: &Fields<'_, '_>) {
        for (key, _) in fields.entries {
            if fields.known.iter().any(|known| *known == key.text) {
                continue;
            }
            let message = format!("unknown field `{}` in {}", clip(&key.text), fields.what);
            let near = nearest(&key.text, fields.known.iter().copied());
            let fix = match near {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("remove it; known fields are {}", quoted(&fields.known)),
            };
            self.report(Code::UnknownField, key.at, message).fix(fix);
        }
    }

    /// The items of a list; nothing for a missing one.
    pub fn list<'n, 'a>(&mut self, node: Option<&'n Node<'a>>, what: &'static str) -> &'n [Node<'a>] {
        match node.map(|node| (&node.value, node)) {
            None => &[],
            Some((Value::Sequence(items), _)) => items,
            Some((_, node)) => {
                self.report(Code::WrongType, node.at, format!("{what} must be a list, not {}", node.kind()));
                &[]
            }
        }
    }

    /// A text. A plain scalar that YAML takes for something else is refused: quoting it says what is meant.
    pub fn text<'n>(&mut self, node: &'n Node<'_>, what: &str) -> Option<At<&'n str>> {
        match node.resolve(Dialect::Strict) {
            Some(Resolved::Text(text)) => Some(At::new(text, node.at)),
            _ => {
                let message = format!("{what} must be a text, not {}", node.kind());
                let finding = self.report(Code::WrongType, node.at, message);
                if matches!(node.value, Value::Scalar(_)) {
                    finding.fix("put it into quotes");
                }
                None
            }
        }
    }

    /// A text that must parse, reported under `code` where it does not.
    pub fn parse_as<T>(&mut self, node: &Node<'_>, what: &str, code: Code) -> Option<At<T>>
    where
        T: FromStr,
        T::Err: Display,
    {
        let text = self.text(node, what)?;
        match text.value.parse() {
            Ok(value) => Some(At::new(value, node.at)),
            Err(error) => {
                self.report(code, node.at, format!("{what}: {error}"));
                None
            }
        }
    }

    /// A text that must parse.
    pub fn parse<T>(&mut self, node: &Node<'_>, what: &str) -> Option<At<T>>
    where
        T: FromStr,
        T::Err: Display,
    {
        self.parse_as(node, what, Code::InvalidValue)
    }

    /// A boolean: `true` or `false`, nothing else.
    pub fn boolean(&mut self, node: &Node<'_>, what: &str) -> Option<bool> {
        match node.resolve(Dialect::Strict) {
            Some(Resolved::Bool(value)) => Some(value),
            _ => {
                self.report(Code::WrongType, node.at, format!("{what} must be `true` or `false`, not {}", node.kind()));
                None
            }
        }
    }

    /// A whole number between limits.
    pub fn number(&mut self, node: &Node<'_>, what: &str, range: std::ops::RangeInclusive<u32>) -> Option<u32> {
        let (low, high) = (*range.start(), *range.end());
        match node.resolve(Dialect::Strict) {
            Some(Resolved::Int(value)) => {
                let small = u32::try_from(value).ok().filter(|v| range.contains(v));
                if small.is_none() {
                    let message = format!("{what} is {value}; allowed are {low} to {high}");
                    self.report(Code::InvalidValue, node.at, message);
                }
                small
            }
            _ => {
                self.report(Code::WrongType, node.at, format!("{what} must be a whole number, not {}", node.kind()));
                None
            }
        }
    }

    /// One of a few words.
    pub fn one_of<T: Copy>(&mut self, node: &Node<'_>, what: &str, words: &[(&'static str, T)]) -> Option<T> {
        let text = self.text(node, what)?;
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text.value) {
            return Some(*value);
        }
        let names: Vec<&'static str> = words.iter().map(|(word, _)| *word).collect();
        let message = format!("{what} is `{}`; allowed are {}", clip(text.value), quoted(&names));
        let near = nearest(text.value, names.into_iter());
        let finding = self.report(Code::InvalidValue, node.at, message);
        if let Some(near) = near {
            finding.fix(format!("did you mean `{near}`?"));
        }
        None
    }
}

/// A list of words for a message.
fn quoted(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    words.join(", ")
}

/// The word that was probably meant: at most two edits away, and closer than a third of its length.
pub(crate) fn nearest<'w>(wrong: &str, words: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    if wrong.len() > 100 {
        return None;
    }
    words
        .map(|word| (distance(wrong, word), word))
        .filter(|(d, word)| *d <= 2 && *d * 3 <= word.len().max(3))
        .min()
        .map(|(_, word)| word)
}

/// Edit distance over bytes.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, y) in row.iter_mut().skip(1).zip(b.bytes()) {
            let next = (diagonal + usize::from(x != y)).min(*cell + 1).min(left + 1);
            diagonal = *cell;
            *cell = next;
            left = next;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_error_is_recognised_and_a_foreign_word_is_not() {
        let words = ["dependsOn", "timeouts", "health"];
        assert_eq!(nearest("dependson", words.into_iter()), Some("dependsOn"));
        assert_eq!(nearest("helth", words.into_iter()), Some("health"));
        assert_eq!(nearest("replicas", words.into_iter()), None);
    }

    #[test]
    fn distance_is_the_number_of_edits() {
        for (a, b, d) in [("", "", 0), ("a", "", 1), ("kitten", "sitting", 3), ("ab", "ba", 2)] {
            assert_eq!(distance(a, b), d, "{a} {b}");
        }
    }
}
