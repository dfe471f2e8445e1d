//! Exit codes (SPEC.md section 5). Every command uses this table and no other.

use std::process::ExitCode;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done, healthy, clean.
    Done = 0,
    /// Findings, or a failure.
    Findings = 1,
    /// Some of it: partial, degraded, orphans left.
    Partial = 2,
    /// Invalid arguments, configuration or input.
    Invalid = 3,
    /// Timed out.
    Timeout = 4,
    /// Somebody else changed it.
    Conflict = 5,
    /// Refused by policy.
    Policy = 6,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
