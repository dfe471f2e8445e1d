//! The `forge` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    forge::cli::main(std::env::args_os()).into()
}
