//! Why a command could not do its work, as the user sees it: a code, a sentence, and the next step.

use std::fmt::Display;

use forge_core::code::{Class, Code};
use forge_core::finding::Finding;
use forge_core::graph::ScopeError;

use crate::exit::Exit;

/// A command that could not do its work.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    /// What is wrong with the repository, where that is the reason.
    pub(crate) findings: Vec<Finding>,
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl Display) -> Self {
        Self { code, message: message.to_string(), hint: None, findings: Vec::new() }
    }

    pub(crate) fn hint(mut self, hint: impl Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }

    /// Stdout or a file that cannot be written.
    pub(crate) fn write(what: impl Display, error: &std::io::Error) -> Self {
        Self::new(Code::CannotWrite, format!("failed to write {what}: {error}"))
    }

    /// The repository cannot be used because of these; what could be allowed is not the reason.
    pub(crate) fn unusable(mut findings: Vec<Finding>) -> Self {
        findings.retain(|finding| !finding.code.allowable());
        let count = findings.len();
        let things = if count == 1 { "1 finding keeps".to_owned() } else { format!("{count} findings keep") };
        Self { findings, ..Self::new(Code::Unusable, format!("{things} this repository from being used")) }
            .hint("fix what is listed above; `forge lint` shows everything")
    }

    pub(crate) fn exit(&self) -> Exit {
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
