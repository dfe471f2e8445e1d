//! One file per command: its arguments, whose doc comments are the help text, and one function.

pub(crate) mod adopt;
pub(crate) mod env;
pub(crate) mod graph;
pub(crate) mod init;
pub(crate) mod lint;
pub(crate) mod plan;
pub(crate) mod project;
pub(crate) mod sandbox;
pub(crate) mod schema;
mod selection;
mod simulate;
