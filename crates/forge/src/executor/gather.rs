//! Reads what the executor is given: variables, and the file that is mounted. Decides nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use forge_core::code::Code;
use forge_core::executor::{Action, Given, Input};
use forge_core::failure::Failure;
use forge_core::name::clip;

use super::Options;
use crate::write_files::read_own;

/// Where the file is mounted.
const CONFIG: &str = "/config/environment.yaml";
/// Where a graph for this run is mounted.
const DAG: &str = "/config/dag.yaml";

/// Everything that was given.
///
/// # Errors
/// When a file that is there cannot be read.
pub(super) fn given(
    action: Action,
    prefix: &'static str,
    flags: BTreeMap<Input, String>,
    options: &Options,
) -> Result<Given, Failure> {
    let mut given = Given { action, prefix, flags, variables: BTreeMap::new(), file: None };
    for input in Input::ALL {
        if let Some(value) = std::env::var_os(given.variable(*input)) {
            given.variables.insert(*input, value.into_string().ok());
        }
    }
    given.file = text(options.config.as_deref(), CONFIG)?;
    Ok(given)
}

/// The graph for this run: its path and text.
///
/// # Errors
/// When it is there and cannot be read.
pub(super) fn dag(options: &Options) -> Result<Option<(String, String)>, Failure> {
    text(options.dag.as_deref(), DAG)
}

/// A file that was named, or the usual one where that is there.
fn text(named: Option<&Path>, usual: &str) -> Result<Option<(String, String)>, Failure> {
    let path = match named {
        Some(path) => path.to_owned(),
        None if Path::new(usual).exists() => PathBuf::from(usual),
        None => return Ok(None),
    };
    let name = path.to_str().ok_or_else(|| {
        let shown = clip(&path.to_string_lossy());
        Failure::new(Code::InvalidInput, format!("`{shown}`: the name of a file must be UTF-8"))
    })?;
    let text = read_own(Path::new(""), name)?;
    Ok(Some((name.to_owned(), text)))
}
