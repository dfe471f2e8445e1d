//! One file per command: its arguments, whose doc comments are the help text, and one function.

pub(crate) mod adopt;
pub(crate) mod bootstrap;
pub(crate) mod demo;
pub(crate) mod env;
pub(crate) mod executor;
pub(crate) mod graph;
pub(crate) mod history;
pub(crate) mod init;
pub(crate) mod lint;
mod look;
pub(crate) mod plan;
pub(crate) mod platform;
pub(crate) mod preflight;
pub(crate) mod project;
pub(crate) mod release;
pub(crate) mod rotate;
pub(crate) mod sandbox;
pub(crate) mod schema;
pub(crate) mod selection;
pub(crate) mod serve;
mod simulate;
pub(crate) mod status;
pub(crate) mod why;
