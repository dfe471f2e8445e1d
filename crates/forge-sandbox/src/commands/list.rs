//! `forge sandbox list`.

use forge_core::exit::Exit;
use forge_core::failure::Failure;

use crate::cli;
use crate::folder::{Folder, names};
use crate::init::Init;

/// Lists the sandboxes of this user.
pub(crate) fn run() -> Result<Exit, Failure> {
    let sandboxes = cli::sandboxes()?;
    let mut text = String::new();
    for name in names(&sandboxes) {
        let folder = Folder::new(&sandboxes, name);
        let running =
            Init::running(&folder).map_or_else(|| "stopped".to_owned(), |init| format!("running, pid {}", init.pid));
        text.push_str(&format!("{:<20}  {running:<20}  {}\n", folder.name.as_str(), folder.path().display()));
    }
    if text.is_empty() {
        cli::say("no sandbox; `forge sandbox up` makes one");
    }
    cli::data(&text)?;
    Ok(Exit::Done)
}
