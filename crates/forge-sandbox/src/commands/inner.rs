//! What `up` runs to get into a sandbox; not for people.

use std::path::PathBuf;

use clap::Args;
use forge_core::code::Code;
use forge_core::exit::Exit;
use forge_core::failure::Failure;

use crate::error::IntoFailure;
use crate::folder::Folder;
use crate::{init, namespace};

/// Used by `up` itself.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    folder: PathBuf,
    cache: PathBuf,
    /// Who called.
    #[arg(default_value_t = 0)]
    parent: i32,
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(Code::SandboxStep, error)
}

/// Makes the namespaces and their first process.
pub(crate) fn enter(arguments: &Arguments) -> Result<Exit, Failure> {
    let name = arguments.folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let name = name.parse().map_err(IntoFailure::into_failure)?;
    let folder = Folder::new(arguments.folder.parent().unwrap_or(&arguments.folder), name);
    namespace::enter(&folder, &arguments.cache, arguments.parent).map_err(failed)?;
    Ok(Exit::Done)
}

/// Is that first process.
pub(crate) fn init(arguments: &Arguments) -> Result<Exit, Failure> {
    init::run(&arguments.folder, &arguments.cache).map_err(failed)?;
    Ok(Exit::Done)
}
