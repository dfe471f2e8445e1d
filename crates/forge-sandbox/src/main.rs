//! The `forge-sandbox` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    forge_sandbox::cli::main(std::env::args_os()).into()
}
