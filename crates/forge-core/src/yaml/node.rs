//! The tree itself: nodes with positions.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};

use super::Dialect;
use super::scalar::{self, Resolved};

/// A place in a file, both counted from 1 as editors do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Position {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

impl Position {
    /// Where a file begins.
    pub const START: Self = Self { line: 1, column: 1 };
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A value and where it was written. Two are equal when their values are: the place is for messages only.
#[derive(Debug, Clone, Copy)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Where it stands.
    pub at: Position,
}

impl<T> At<T> {
    /// A value that stands at `at`.
    pub const fn new(value: T, at: Position) -> Self {
        Self { value, at }
    }
}

impl<T: PartialEq> PartialEq for At<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: Eq> Eq for At<T> {}

impl<T> std::ops::Deref for At<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Serialize> Serialize for At<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

impl<T: JsonSchema> JsonSchema for At<T> {
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }
    fn inline_schema() -> bool {
        T::inline_schema()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// One node of a document.
#[derive(Debug, Clone)]
pub struct Node<'a> {
    /// What it holds.
    pub value: Value<'a>,
    /// Where it begins.
    pub at: Position,
}

/// What a node holds.
#[derive(Debug, Clone)]
pub enum Value<'a> {
    /// A text, a number, a boolean or nothing; see [`Scalar`].
    Scalar(Scalar<'a>),
    /// A list.
    Sequence(Vec<Node<'a>>),
    /// Keys and values in the order of the file. Keys are unique: `read` reports duplicates and drops them.
    Mapping(Vec<(Key<'a>, Node<'a>)>),
}

/// A scalar as it was written.
#[derive(Debug, Clone)]
pub struct Scalar<'a> {
    /// Its text, after escapes.
    pub text: Cow<'a, str>,
    /// Written without quotes or block style: only such a scalar can be a number, a boolean or null.
    pub plain: bool,
    /// Written as a literal block (`|`) that begins where its node does: its lines are lines of the file.
    pub literal: bool,
}

/// A key of a mapping.
#[derive(Debug, Clone)]
pub struct Key<'a> {
    /// Its text.
    pub text: Cow<'a, str>,
    /// Written without quotes: only such a key can be a number or a boolean to Kubernetes.
    pub plain: bool,
    /// Where it begins.
    pub at: Position,
}

impl Key<'_> {
    /// The key of a JSON object that Kubernetes makes of this one: `on` is `true` there, and `010` is `8`.
    fn to_json(&self) -> String {
        let written = Scalar { text: Cow::Borrowed(&*self.text), plain: self.plain, literal: false };
        match scalar::resolve(&written, Dialect::Kubernetes) {
            Resolved::Bool(value) => value.to_string(),
            Resolved::Int(value) => value.to_string(),
            Resolved::Float(_) | Resolved::Null | Resolved::Text(_) => self.text.to_string(),
        }
    }
}

/// A comment, which lint reads for suppressions.
#[derive(Debug, Clone)]
pub struct Comment<'a> {
    /// The text after `#`.
    pub text: Cow<'a, str>,
    /// Where the `#` stands.
    pub at: Position,
    /// Nothing but white space stands before it on its line.
    pub own_line: bool,
}

impl<'a> Node<'a> {
    /// The entries, if this is a mapping.
    pub fn entries(&self) -> Option<&[(Key<'a>, Node<'a>)]> {
        match &self.value {
            Value::Mapping(entries) => Some(entries),
            _ => None,
        }
    }

    /// The items, if this is a sequence.
    pub fn items(&self) -> Option<&[Node<'a>]> {
        match &self.value {
            Value::Sequence(items) => Some(items),
            _ => None,
        }
    }

    /// The value under a key, if this is a mapping that has it.
    pub fn get(&self, key: &str) -> Option<&Node<'a>> {
        self.entries()?.iter().find(|(k, _)| k.text == key).map(|(_, node)| node)
    }

    /// The value under a path of keys.
    pub fn path(&self, keys: &[&str]) -> Option<&Node<'a>> {
        keys.iter().try_fold(self, |node, key| node.get(key))
    }

    /// The key and the value under a path of keys.
    pub fn entry(&self, keys: &[&str]) -> Option<(&Key<'a>, &Node<'a>)> {
        let (last, before) = keys.split_last()?;
        let entries = self.path(before)?.entries()?;
        entries.iter().find(|(key, _)| key.text == *last).map(|(key, node)| (key, node))
    }

    /// The text of a scalar, whatever its type.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar(scalar) => Some(&scalar.text),
            _ => None,
        }
    }

    /// The text under a path of keys.
    pub fn text_at(&self, keys: &[&str]) -> Option<&str> {
        self.path(keys)?.text()
    }

    /// What this scalar means in a dialect; `None` for collections.
    pub fn resolve(&self, dialect: Dialect) -> Option<Resolved<'_>> {
        match &self.value {
            Value::Scalar(scalar) => Some(scalar::resolve(scalar, dialect)),
            _ => None,
        }
    }

    /// True for `null`, `~` and nothing at all.
    pub fn is_null(&self) -> bool {
        matches!(self.resolve(Dialect::Strict), Some(Resolved::Null))
    }

    /// What kind of thing this is, for messages.
    pub fn kind(&self) -> &'static str {
        match &self.value {
            Value::Sequence(_) => "a list",
            Value::Mapping(_) => "a mapping",
            Value::Scalar(scalar) => scalar::resolve(scalar, Dialect::Strict).kind(),
        }
    }

    /// The same as JSON, the way Kubernetes would read it.
    pub fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Scalar(scalar) => scalar::resolve(scalar, Dialect::Kubernetes).to_json(),
            Value::Sequence(items) => items.iter().map(Node::to_json).collect(),
            Value::Mapping(entries) => {
                serde_json::Value::Object(entries.iter().map(|(k, v)| (k.to_json(), v.to_json())).collect())
            }
        }
    }
}
