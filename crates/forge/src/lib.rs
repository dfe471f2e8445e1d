//! The product: commands and adapters around `forge-core`. `main` only calls [`cli::main`].

mod argocd;
mod bootstrap;
pub mod cli;
mod cluster;
mod commands;
mod executor;
mod git;
mod git_checkout;
mod git_reader;
mod interrupt;
mod lint_report;
mod live;
pub mod load;
mod logs;
mod metrics;
mod output;
mod preflight;
mod prove;
mod recorder;
mod records;
mod run;
mod run_report;
mod runtime;
mod serve;
mod telemetry;
mod write_files;
