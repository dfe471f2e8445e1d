//! Writes an image of a `forge` binary as a tar that `forge sandbox image load` takes, and prints what to call it:
//! `forge-image FORGE OUTPUT.tar`.

use std::env;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use forge_testkit::image::Image;

fn main() -> ExitCode {
    let arguments: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    let [binary, output] = arguments.as_slice() else {
        return ended(&writeln!(io::stderr(), "usage: forge-image FORGE OUTPUT.tar"), ExitCode::from(3));
    };
    let written = Image::of(binary).map_err(|error| error.to_string()).and_then(|image| {
        let failed = |error| format!("failed to write `{}`: {error}", output.display());
        fs::write(output, &image.archive).map_err(failed).map(|()| image.name)
    });
    match written {
        Ok(name) => ended(&writeln!(io::stdout(), "{name}"), ExitCode::SUCCESS),
        Err(error) => ended(&writeln!(io::stderr(), "{error}"), ExitCode::FAILURE),
    }
}

/// The code, unless nobody could be told.
fn ended(told: &io::Result<()>, code: ExitCode) -> ExitCode {
    if told.is_ok() { code } else { ExitCode::FAILURE }
}
