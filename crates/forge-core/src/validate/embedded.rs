//! Documents inside texts: Helm values of an Application, a file in a ConfigMap.

use crate::yaml::{Position, Scalar};

/// Where a text stands whose content is looked at as if it were a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Embedded {
    at: Position,
    /// Its lines are lines of the file.
    literal: bool,
}

impl Embedded {
    pub(super) fn new(at: Position, scalar: &Scalar<'_>) -> Self {
        Self { at, literal: scalar.literal }
    }

    /// The place in the file of a place in the text; the text's own where its lines are not the file's.
    pub(super) fn place(self, inside: Position) -> Position {
        if !self.literal {
            return self.at;
        }
        Position {
            line: self.at.line.saturating_add(inside.line).saturating_sub(1),
            column: self.at.column.saturating_add(inside.column).saturating_sub(1),
        }
    }
}
