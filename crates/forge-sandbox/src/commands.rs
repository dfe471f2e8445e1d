//! One file per command: its arguments, whose doc comments are the help text, and one function.

pub(crate) mod build;
pub(crate) mod down;
pub(crate) mod exec;
pub(crate) mod image;
pub(crate) mod inner;
pub(crate) mod kubeconfig;
pub(crate) mod list;
pub(crate) mod logs;
pub(crate) mod status;
pub(crate) mod up;
