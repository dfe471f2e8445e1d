//! The mark that a sync of ours carries: run, node and attempt, derived and never random (SPEC section 6).
//!
//! A process that restarts computes the same nonce again, so it adopts its own operation instead of starting a second one.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::name::{MAX_NAME, NameError, NodeId, clip};

/// The name of one run, also a label value and part of ConfigMap names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunId(Box<str>);

impl RunId {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for RunId {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        let inner = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if !inner || text.starts_with('-') || text.ends_with('-') {
            let rule = "use lower-case letters, digits and `-`, starting and ending with a letter or digit";
            return Err(NameError::Malformed { name: clip(text), what: "run id", rule });
        }
        if text.len() > MAX_NAME {
            return Err(NameError::TooLong { name: clip(text), length: text.len(), max: MAX_NAME });
        }
        Ok(Self(text.into()))
    }
}

impl TryFrom<String> for RunId {
    type Error = NameError;
    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<RunId> for String {
    fn from(run: RunId) -> Self {
        run.0.into()
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a text is no nonce of ours. Operations of other people carry such texts; that is not an error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NonceError {
    /// Not four segments, or an attempt that is not written as we write it.
    #[error("`{0}` is not a nonce: expected `run/namespace/name/attempt`")]
    Form(String),
    /// A segment that is no valid name.
    #[error(transparent)]
    Name(#[from] NameError),
}

/// `run/namespace/name/attempt`. No segment can contain a slash, so the text parses in one way only.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Nonce {
    /// The run that asked.
    pub run: RunId,
    /// The node that it asked for.
    pub node: NodeId,
    /// Counted from 1.
    pub attempt: u32,
}

impl Nonce {
    /// True when this run asked for this node, in whatever attempt.
    pub fn is_of(&self, run: &RunId, node: &NodeId) -> bool {
        self.run == *run && self.node == *node
    }
}

impl FromStr for Nonce {
    type Err = NonceError;
    fn from_str(text: &str) -> Result<Self, NonceError> {
        let form = || NonceError::Form(clip(text));
        let (run, rest) = text.split_once('/').ok_or_else(form)?;
        let (node, digits) = rest.rsplit_once('/').ok_or_else(form)?;
        let attempt: u32 = digits.parse().map_err(|_| form())?;
        // `+1` and `01` parse as numbers; a second spelling of one attempt would not be adopted as ours.
        if attempt == 0 || attempt.to_string() != digits {
            return Err(form());
        }
        Ok(Self { run: run.parse()?, node: node.parse()?, attempt })
    }
}

impl TryFrom<String> for Nonce {
    type Error = NonceError;
    fn try_from(text: String) -> Result<Self, NonceError> {
        text.parse()
    }
}

impl From<Nonce> for String {
    fn from(nonce: Nonce) -> Self {
        nonce.to_string()
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.run, self.node, self.attempt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nonce_reads_back_as_itself() {
        for text in ["r1/shop/api/1", "2026-11-15/argocd/legacy.proxy/4294967295", "a/b/c/10"] {
            assert_eq!(text.parse::<Nonce>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_text_that_we_would_not_have_written_is_not_ours() {
        for bad in [
            "",
            "r1",
            "r1/shop/api",
            "r1/shop/1",
            "r1/shop/api/0",
            "r1/shop/api/01",
            "r1/shop/api/+1",
            "r1/shop/api/-1",
            "r1/shop/api/ 1",
            "r1/shop/api/4294967296",
            "r1/shop/api/x/1",
            "R1/shop/api/1",
            "/shop/api/1",
            "r1//api/1",
            "r1/shop/api/",
            "r1/shop/api/1/",
            "-r/shop/api/1",
            "r\u{0}/shop/api/1",
        ] {
            assert!(bad.parse::<Nonce>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_operation_is_ours_by_run_and_node_alone() {
        let nonce: Nonce = "r1/shop/api/3".parse().unwrap();
        assert!(nonce.is_of(&"r1".parse().unwrap(), &"shop/api".parse().unwrap()));
        assert!(!nonce.is_of(&"r2".parse().unwrap(), &"shop/api".parse().unwrap()));
        assert!(!nonce.is_of(&"r1".parse().unwrap(), &"shop/web".parse().unwrap()));
    }
}
