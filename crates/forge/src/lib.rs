//! The product: commands and adapters around `forge-core`. `main` only calls [`cli::main`].

pub mod cli;
mod cluster;
mod commands;
mod git;
mod lint_report;
pub mod load;
mod output;
mod runtime;
mod write_files;
