//! What is wrong, where, and what to do about it.

use serde::Serialize;

use crate::code::Code;
use crate::name::clean;
use crate::yaml::Position;

/// A place in the repository.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Place {
    /// Path inside the repository, with `/`.
    pub path: String,
    /// Position in the file, where there is one.
    #[serde(flatten)]
    pub at: Option<Position>,
}

impl Place {
    /// A position in a file.
    pub fn new(path: &str, at: Position) -> Self {
        Self { path: path.to_owned(), at: Some(at) }
    }

    /// A file or folder as a whole.
    pub fn whole(path: &str) -> Self {
        Self { path: path.to_owned(), at: None }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.at {
            Some(at) => write!(f, "{}:{at}", clean(&self.path)),
            None => f.write_str(&clean(&self.path)),
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// Where. First, so that findings sort by place.
    #[serde(flatten)]
    pub place: Place,
    /// Which rule.
    pub code: Code,
    /// What is wrong, lower case, no full stop. Never holds a secret value.
    pub message: String,
    /// What to do, where there is something better than the code's page.
    #[serde(rename = "fix", skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Finding {
    /// A finding without a fix.
    pub fn new(code: Code, place: Place, message: impl Into<String>) -> Self {
        Self { place, code, message: message.into(), fix: None }
    }

    /// Adds what to do.
    pub fn fix(&mut self, fix: impl Into<String>) {
        self.fix = Some(fix.into());
    }

    /// Adds what to do, by value.
    #[must_use]
    pub fn with_fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }
}

/// A finding that a comment in the file allows, with the reason that the comment gives.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Suppressed {
    /// What was found.
    #[serde(flatten)]
    pub finding: Finding,
    /// Why it is allowed.
    pub reason: String,
}

/// Something that is not wrong, and that a reader should know. Changes no exit code.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Note {
    /// Where.
    #[serde(flatten)]
    pub place: Place,
    /// What, lower case, no full stop.
    pub message: String,
}
