//! `forge sandbox down`.

use std::time::Instant;

use clap::Args;
use forge_core::exit::Exit;
use forge_core::failure::Failure;

use crate::cli::{self, Global};
use crate::down::down;
use crate::error::IntoFailure;
use crate::host::HostError;

/// Take a sandbox down
///
/// Its processes, mounts, network and folder go. Debian packages and what was built stay.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Keep what it holds; the next `up` goes on with it
    #[arg(long)]
    keep_data: bool,
}

pub(crate) fn run(global: &Global, arguments: &Arguments) -> Result<Exit, Failure> {
    let start = Instant::now();
    if !nix::unistd::geteuid().is_root() {
        return Err(HostError::NotRoot.into_failure());
    }
    let folder = global.folder()?;
    let lock = folder.lock().map_err(IntoFailure::into_failure)?;
    let was = down(&folder, &lock, arguments.keep_data).map_err(IntoFailure::into_failure)?;
    let name = &folder.name;
    cli::say(&match (was, arguments.keep_data) {
        (false, _) => format!("sandbox {name} is not there"),
        (true, false) => format!("sandbox {name} is gone after {:.1} s", start.elapsed().as_secs_f64()),
        (true, true) => format!(
            "sandbox {name} has stopped after {:.1} s; its data is in `{}`",
            start.elapsed().as_secs_f64(),
            folder.path().display()
        ),
    });
    Ok(Exit::Done)
}
