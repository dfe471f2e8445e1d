//! Exit codes (SPEC.md section 5): those that the commands of this version can end with. Every command uses this table.

use std::process::ExitCode;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done, healthy, clean.
    Done = 0,
    /// Findings, or a failure.
    Findings = 1,
    /// Invalid arguments, configuration or input.
    Invalid = 3,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
