//! `forge sandbox exec`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::Args;
use forge_core::code::Code;
use forge_core::exit::Exit;
use forge_core::failure::Failure;

use crate::cli::{self, Global};
use crate::commands::status::running;

/// Run kubectl in a sandbox
///
/// `forge sandbox exec get pods -A`. With `helm` or `kustomize` as the first word it is that program, with the charts of the
/// cache in the variable FORGE_CHARTS: `forge sandbox exec helm ls -A`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// What kubectl is called with
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

pub(crate) fn run(global: &Global, arguments: &Arguments) -> Result<Exit, Failure> {
    let folder = global.folder()?;
    running(&folder)?;
    let built = cli::built()?;
    let mut rest = arguments.arguments.as_slice();
    let mut program = built.kubernetes.join("kubectl");
    if let [first, others @ ..] = rest {
        let other = match first.to_str() {
            Some("kubectl") => Some(program.clone()),
            Some("helm") => Some(built.helm.clone()),
            Some("kustomize") => Some(built.kustomize.clone()),
            _ => None,
        };
        if let Some(other) = other {
            program = other;
            rest = others;
        }
    }
    let error = Command::new(&program)
        .args(rest)
        .env("KUBECONFIG", folder.kubeconfig())
        .env("FORGE_CHARTS", &built.charts)
        .exec();
    Err(Failure::new(Code::SandboxStep, format!("failed to start `{}`: {error}", program.display())))
}
