//! Why a command could not do its work, as the user sees it: a code, a sentence, and the next step. Shared by every binary.

use std::fmt::Display;

use crate::code::{Class, Code};
use crate::finding::Finding;
use crate::graph::ScopeError;

use crate::exit::Exit;

/// A command that could not do its work.
#[derive(Debug)]
pub struct Failure {
    /// What kind of failure.
    pub code: Code,
    /// One sentence, with the values that matter.
    pub message: String,
    /// The next step, if it is more than reading the page.
    pub hint: Option<String>,
    /// What is wrong with the repository, where that is the reason.
    pub findings: Vec<Finding>,
}

impl Failure {
    /// A failure with the sentence that says what happened.
    pub fn new(code: Code, message: impl Display) -> Self {
        Self { code, message: message.to_string(), hint: None, findings: Vec::new() }
    }

    /// With the next step.
    pub fn hint(mut self, hint: impl Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }

    /// Stdout or a file that cannot be written.
    pub fn write(what: impl Display, error: &std::io::Error) -> Self {
        Self::new(Code::CannotWrite, format!("failed to write {what}: {error}"))
    }

    /// The repository cannot be used because of these; what could be allowed is not the reason.
    pub fn unusable(mut findings: Vec<Finding>) -> Self {
        findings.retain(|finding| !finding.code.allowable());
        let count = findings.len();
        let things = if count == 1 { "1 finding keeps".to_owned() } else { format!("{count} findings keep") };
        Self { findings, ..Self::new(Code::Unusable, format!("{things} this repository from being used")) }
            .hint("fix what is listed above; `forge lint` shows everything")
    }

    /// How a command that fails this way ends.
    pub fn exit(&self) -> Exit {
        match self.code.class() {
            Class::User => Exit::Invalid,
            Class::Policy => Exit::Policy,
            Class::Conflict => Exit::Conflict,
            Class::Timeout => Exit::Timeout,
            Class::Transient | Class::Unhealthy | Class::Blocked | Class::Internal => Exit::Findings,
        }
    }
}

impl From<ScopeError> for Failure {
    fn from(error: ScopeError) -> Self {
        let code = match error {
            ScopeError::Malformed(_) => Code::BadArgument,
            ScopeError::Unknown { .. } => Code::UnknownName,
            ScopeError::Ambiguous { .. } => Code::AmbiguousName,
        };
        Self::new(code, error).hint("`forge graph` lists stacks and applications")
    }
}
