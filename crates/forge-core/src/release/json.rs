//! JSON that is read strictly: no key twice, no deeper and no more than allowed, nothing after it. Two readers that disagree about the
//! same bytes are how a signature comes to cover something else than what is deployed.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;
use serde_json::{Map, Value};

use super::ReleaseError;
use crate::name::clip;

/// How many keys and values are taken of what may have so many bytes. Two bytes are enough for a value, which takes some hundred in
/// memory; what people write has more, and what is small may be as dense as it likes.
pub(super) fn most_values(bytes: usize) -> usize {
    (bytes / 32).max(1024)
}

/// Why bytes are not taken as JSON.
pub(super) enum Refused {
    /// They are none.
    Syntax(String),
    /// They are, but two readers could take them for two things.
    Ambiguous(String),
    /// Nested too deep, or too many keys and values.
    Beyond(String),
}

/// Reads one JSON value of a release.
pub(super) fn read(what: &str, bytes: &[u8], depth: usize, values: usize) -> Result<Value, ReleaseError> {
    parse(bytes, depth, values).map_err(|refused| match refused {
        Refused::Syntax(why) => ReleaseError::malformed(what, format!("it is not JSON: {why}")),
        Refused::Ambiguous(why) => ReleaseError::malformed(what, why),
        Refused::Beyond(why) => ReleaseError::Beyond { what: what.to_owned(), why },
    })
}

/// Reads one JSON value, of so many levels and, with all that is in it, so many keys and values. The reader of YAML counts alike: what
/// is taken from JSON is written as YAML, and must be taken from that too.
pub(super) fn parse(bytes: &[u8], depth: usize, values: usize) -> Result<Value, Refused> {
    let (beyond, taken) = (Cell::new(false), Cell::new(0));
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let strict = Strict { left: depth, most: depth, values, taken: &taken, beyond: &beyond };
    let value = strict.deserialize(&mut deserializer).and_then(|value| deserializer.end().map(|()| value));
    value.map_err(|error| match error.classify() {
        _ if beyond.get() => Refused::Beyond(error.to_string()),
        Category::Data => Refused::Ambiguous(error.to_string()),
        Category::Io | Category::Syntax | Category::Eof => Refused::Syntax(error.to_string()),
    })
}

/// Whether there is a text or a key with a character that could drive a terminal.
pub(super) fn has_control_characters(value: &Value) -> bool {
    let control = |text: &str| text.chars().any(char::is_control);
    match value {
        Value::String(text) => control(text),
        Value::Array(items) => items.iter().any(has_control_characters),
        Value::Object(fields) => fields.iter().any(|(key, value)| control(key) || has_control_characters(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Reads a value of which so many levels are left.
#[derive(Clone, Copy)]
struct Strict<'c> {
    left: usize,
    most: usize,
    /// How many keys and values there may be, and how many there were.
    values: usize,
    taken: &'c Cell<usize>,
    beyond: &'c Cell<bool>,
}

impl Strict<'_> {
    fn inner<E: serde::de::Error>(self) -> Result<Self, E> {
        match self.left.checked_sub(1) {
            Some(left) => Ok(Self { left, ..self }),
            None => {
                self.beyond.set(true);
                Err(E::custom(format!("nested deeper than {} levels", self.most)))
            }
        }
    }

    /// Counts a key or a value before there is one.
    fn counted<E: serde::de::Error>(self) -> Result<Self, E> {
        self.taken.set(self.taken.get().saturating_add(1));
        if self.taken.get() <= self.values {
            return Ok(self);
        }
        self.beyond.set(true);
        Err(E::custom(format!("more than {} keys and values", self.values)))
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self.counted()?)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_string<E: serde::de::Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let mut found = Vec::new();
        while let Some(item) = items.next_element_seed(inner)? {
            found.push(item);
        }
        Ok(Value::Array(found))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let mut found = Map::new();
        while let Some(key) = fields.next_key::<String>()? {
            self.counted::<A::Error>()?;
            if found.contains_key(&key) {
                return Err(A::Error::custom(format!("key `{}` stands twice", clip(&key))));
            }
            let value = fields.next_value_seed(inner)?;
            found.insert(key, value);
        }
        Ok(Value::Object(found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str, depth: usize) -> String {
        read("it", text.as_bytes(), depth, 1_000_000).map_or_else(|error| error.to_string(), |value| value.to_string())
    }

    #[test]
    fn what_everybody_reads_alike_is_read() {
        let text = r#"{"b":[1,-2,1.5,null,true,"x\n"],"a":{},"c":18446744073709551615}"#;
        assert_eq!(said(text, 2), text);
        assert_eq!(said("  3 ", 0), "3");
    }

    #[test]
    fn two_keys_of_one_name_depth_and_what_follows_are_refused() {
        assert!(said(r#"{"a":{"b":1,"b":2}}"#, 9).contains("it: key `b` stands twice"));
        // The same key, written in another way.
        assert!(said(r#"{"a":1,"\u0061":2}"#, 9).contains("key `a` stands twice"));
        assert!(said("[[1]]", 1).contains("nested deeper than 1 levels"));
        assert!(said(&"[".repeat(100_000), 64).contains("nested deeper than 64 levels"));
        for text in ["", "{", "{} {}", "{}x", "{'a':1}", "nul", "[1,]"] {
            assert!(said(text, 9).starts_with("it: it is not JSON: "), "{text}: {}", said(text, 9));
        }
        assert!(read("it", b"\"\xff\"", 9, 9).is_err());
    }

    #[test]
    fn keys_and_values_are_counted_wherever_they_are_as_in_yaml() {
        use crate::yaml::{self, Dialect};
        for (text, values) in [("[0,0,0]", 4), (r#"{"a":{"b":[]},"c":"x"}"#, 7), ("1", 1), ("{}", 1)] {
            assert!(read("it", text.as_bytes(), 9, values).is_ok(), "{text}");
            let said = read("it", text.as_bytes(), 9, values - 1).unwrap_err();
            assert_eq!(said.code(), crate::code::Code::ReleaseTooLarge, "{said}");
            let words = format!("more than {} keys and values", values - 1);
            assert!(said.to_string().contains(&words), "{said}");
            let bounds = |nodes: usize| yaml::Limits { bytes: 1024, depth: 9, nodes };
            assert!(yaml::read(text, Dialect::Kubernetes, bounds(values)).problems.is_empty(), "{text}");
            let problems = yaml::read(text, Dialect::Kubernetes, bounds(values - 1)).problems;
            assert_eq!(problems.first().map(|problem| problem.message.as_str()), Some(words.as_str()), "{text}");
        }
    }

    #[test]
    fn characters_that_drive_terminals_are_seen_wherever_they_are() {
        for text in [r#""\u001b[31m""#, r#"["\u0007"]"#, r#"{"a":{"\n":1}}"#] {
            assert!(has_control_characters(&parse(text.as_bytes(), 9, 9).ok().unwrap()), "{text}");
        }
        assert!(!has_control_characters(&parse(br#"{"a":["b",1,null]}"#, 9, 9).ok().unwrap()));
    }
}
