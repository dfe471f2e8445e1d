//! `forge sandbox`: finds the binary that needs root and becomes it (SPEC.md section 10).

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;
use forge_core::code::Code;
use forge_core::exit::Exit;
use forge_core::failure::Failure;

/// Run a real Kubernetes with a real node on this machine, without Docker
///
/// `forge sandbox up` starts it, `forge sandbox down` leaves nothing of it. It is a program of its own, `forge-sandbox`,
/// because it needs root; `forge sandbox --help` is its help.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Arguments {
    /// What `forge-sandbox` is called with
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

const PROGRAM: &str = "forge-sandbox";

pub(crate) fn run(arguments: &Arguments) -> Result<Exit, Failure> {
    // Beside this binary first: that one is of the same version.
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name(PROGRAM)).filter(|path| path.is_file());
    let program = beside.unwrap_or_else(|| PathBuf::from(PROGRAM));
    let error = Command::new(&program).args(&arguments.arguments).exec();
    Err(match error.kind() {
        std::io::ErrorKind::NotFound => {
            Failure::new(Code::SandboxMissing, format!("`{PROGRAM}` is neither beside this program nor in PATH"))
                .hint("`make build` in a clone of the repository builds it, or put it beside `forge`")
        }
        _ => Failure::new(Code::SandboxMissing, format!("failed to start `{}`: {error}", program.display())),
    })
}
