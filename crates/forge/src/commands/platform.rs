//! `forge platform`: the run, for people (SPEC.md sections 4 to 6).

pub(crate) mod deploy;
mod teardown;

use clap::{Args, Subcommand};
use forge_core::exit::Exit;
use forge_core::failure::Failure;

use crate::cli::Global;
use crate::output::Output;

/// Deploy the platform, in dependency order, and prove it; rehearse its teardown
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Deploy(deploy::Arguments),
    Teardown(teardown::Arguments),
}

pub(crate) fn run(global: &Global, arguments: &Arguments, output: &mut Output<'_>) -> Result<Exit, Failure> {
    match &arguments.command {
        Command::Deploy(arguments) => deploy::run(global, arguments, output),
        Command::Teardown(arguments) => teardown::run(global, arguments, output),
    }
}
