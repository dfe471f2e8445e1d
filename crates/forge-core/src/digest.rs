//! Content identities: a digest is not a string, and neither is a commit.

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::name::clip;

/// Why a text is not a digest or a commit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DigestError {
    /// Not `sha256:` and 64 hex digits.
    #[error("`{0}` is not a digest: expected `sha256:` and 64 lower-case hexadecimal digits")]
    NotADigest(String),
    /// Not 40 hex digits.
    #[error("`{0}` is not a commit: expected 40 lower-case hexadecimal digits")]
    NotACommit(String),
}

fn lower_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// Writes bytes as lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |n: u8| DIGITS.get(usize::from(n)).map_or('0', |d| char::from(*d));
    bytes.iter().flat_map(|b| [digit(b >> 4), digit(b & 15)]).collect()
}

macro_rules! hex_newtype {
    ($(#[$doc:meta])* $type:ident, $pattern:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(Box<str>);

        impl $type {
            /// As text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl TryFrom<String> for $type {
            type Error = DigestError;
            fn try_from(text: String) -> Result<Self, DigestError> {
                text.parse()
            }
        }
        impl From<$type> for String {
            fn from(value: $type) -> Self {
                value.0.into()
            }
        }
        impl JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }
            fn inline_schema() -> bool {
                true
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({"type": "string", "pattern": $pattern})
            }
        }
    };
}

hex_newtype!(
    /// A `sha256:` digest.
    Digest,
    "^sha256:[0-9a-f]{64}$"
);
hex_newtype!(
    /// The full name of a Git commit, 40 hex digits.
    CommitId,
    "^[0-9a-f]{40}$"
);

impl Digest {
    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(format!("sha256:{}", hex(&Sha256::digest(bytes))).into())
    }

    /// The digest of a value's JSON, which is never held in memory whole.
    pub fn of_json(value: &impl Serialize) -> Self {
        let mut hashing = std::io::BufWriter::with_capacity(64 << 10, Digester::default());
        // Neither the types that are hashed nor the hasher can fail.
        let _ = serde_json::to_writer(&mut hashing, value);
        hashing.into_inner().unwrap_or_default().finish()
    }

    /// The first `n` hex digits, for names and for people.
    pub fn short(&self, n: usize) -> &str {
        let digits = self.0.strip_prefix("sha256:").unwrap_or(&self.0);
        digits.get(..n).unwrap_or(digits)
    }
}

/// A digest that is made while bytes pass, so that nobody has to hold them all.
#[derive(Debug, Clone, Default)]
pub struct Digester {
    hash: Sha256,
    length: u64,
}

impl Digester {
    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.length = self.length.saturating_add(bytes.len() as u64);
    }

    /// How many bytes there were until now.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The digest of all of them.
    pub fn finish(self) -> Digest {
        Digest(format!("sha256:{}", hex(&self.hash.finalize())).into())
    }
}

impl std::io::Write for Digester {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl FromStr for Digest {
    type Err = DigestError;
    fn from_str(text: &str) -> Result<Self, DigestError> {
        match text.strip_prefix("sha256:") {
            Some(digits) if lower_hex(digits, 64) => Ok(Self(text.into())),
            _ => Err(DigestError::NotADigest(clip(text))),
        }
    }
}

impl FromStr for CommitId {
    type Err = DigestError;
    fn from_str(text: &str) -> Result<Self, DigestError> {
        if lower_hex(text, 40) { Ok(Self(text.into())) } else { Err(DigestError::NotACommit(clip(text))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_full_lower_case_form_is_a_digest() {
        assert_eq!(Digest::of_json(&"x"), Digest::of(b"\"x\""));
        let good = Digest::of(b"x");
        assert_eq!(good.as_str().parse::<Digest>().unwrap(), good);
        assert_eq!(good.short(12).len(), 12);
        for bad in ["", "sha256:", "sha512:00", &good.as_str().to_uppercase(), &format!("{good}0"), "latest"] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }

    #[test]
    fn bytes_that_pass_in_pieces_have_the_digest_of_the_whole() {
        let mut digester = Digester::default();
        for piece in [&b"a"[..], b"", b"bc"] {
            digester.update(piece);
        }
        assert_eq!(digester.length(), 3);
        assert_eq!(digester.finish(), Digest::of(b"abc"));
        assert_eq!(Digester::default().finish(), Digest::of(b""));
    }

    #[test]
    fn only_40_hex_digits_are_a_commit() {
        assert!("0123456789abcdef0123456789abcdef01234567".parse::<CommitId>().is_ok());
        for bad in ["", "main", "0123456", "0123456789ABCDEF0123456789ABCDEF01234567"] {
            assert!(bad.parse::<CommitId>().is_err(), "{bad}");
        }
    }
}
