//! `forge sandbox build`.

use clap::Args;
use forge_core::exit::Exit;
use forge_core::failure::Failure;

use crate::build::{self, debian, progress};
use crate::cli;
use crate::error::IntoFailure;

/// Build programs and images into the user's cache directory
///
/// One thing at a time, and nothing that is there already. Interrupted, it goes on where it stopped. `up` does it by
/// itself when something is missing.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Only this component and what it needs
    #[arg(value_name = "COMPONENT")]
    component: Option<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Exit, Failure> {
    let cache = cli::cache()?;
    let mut progress = progress::of_stderr();
    debian::ensure_packages(&mut progress).map_err(IntoFailure::into_failure)?;
    build::ensure(&cache, arguments.component.as_deref(), &mut progress).map_err(IntoFailure::into_failure)?;
    Ok(Exit::Done)
}
