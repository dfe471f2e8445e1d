//! Writes the example platform into a folder, or brings that folder up to date: `example FOLDER`.

use std::env;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use forge_testkit::example;

fn main() -> ExitCode {
    let arguments: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    let [folder] = arguments.as_slice() else {
        return ended(&writeln!(io::stderr(), "usage: example FOLDER"), ExitCode::from(3));
    };
    match example::write(folder) {
        Ok(outcome) => {
            let (written, removed) = (outcome.written.len(), outcome.removed.len());
            let done = writeln!(io::stdout(), "{}: {written} files written, {removed} removed", folder.display());
            ended(&done, ExitCode::SUCCESS)
        }
        Err(error) => {
            let said = writeln!(io::stderr(), "failed to write `{}`: {error}", folder.display());
            ended(&said, ExitCode::FAILURE)
        }
    }
}

/// The code, unless nobody could be told.
fn ended(told: &io::Result<()>, code: ExitCode) -> ExitCode {
    if told.is_ok() { code } else { ExitCode::FAILURE }
}
