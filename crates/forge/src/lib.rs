//! The product: commands and adapters around `forge-core`. `main` only calls [`cli::main`].

mod account;
mod argocd;
mod bootstrap;
pub mod cli;
mod cluster;
mod commands;
mod failpoint;
mod git;
mod git_reader;
mod install;
mod interrupt;
mod lint_report;
mod live;
pub mod load;
mod metrics;
mod output;
mod preflight;
mod prove;
mod recorder;
mod records;
mod run;
mod runtime;
mod serve;
mod write_files;
