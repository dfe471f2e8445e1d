//! `forge sandbox kubeconfig`.

use forge_core::exit::Exit;
use forge_core::failure::Failure;

use crate::cli::{self, Global};
use crate::commands::status::known;

/// Prints the path of the kubeconfig, for `export KUBECONFIG=$(forge sandbox kubeconfig)`.
pub(crate) fn run(global: &Global) -> Result<Exit, Failure> {
    let folder = global.folder()?;
    known(&folder)?;
    cli::data(&format!("{}\n", folder.kubeconfig().display()))?;
    Ok(Exit::Done)
}
