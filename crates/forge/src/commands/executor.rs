//! `executor`, the container's entry point (SPEC.md section 5), and the same as `forge executor`. Its flags and variables are
//! those of the table in `forge_core::executor`.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Arg, ArgMatches, Args, FromArgMatches, Parser, Subcommand};
use forge_core::executor::{Action, Input};
use forge_core::exit::Exit;

use crate::executor::{self, Options, Reports};
use crate::output::Output;
use crate::run_report::Format;

/// What stands before the names of variables where `forge` reads them.
const PREFIX: &str = "FORGE_";

/// The executor of Forge: deploys an environment from nothing but a kubeconfig and a repository and proves it, says what is true
/// of it, or removes it
///
/// Inputs are flags, variables and /config/environment.yaml, in this order. The report goes to stdout, logs to stderr.
///
/// Exit codes: 0 done, healthy or clean, 1 failed or unhealthy, 2 partial, cancelled, degraded, not known or orphans left,
/// 3 invalid input or not confirmed, 4 timed out, 5 another run is in progress, 6 not permitted or refused by policy.
#[derive(Debug, Parser)]
#[command(name = "executor", version, propagate_version = true, arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Entry {
    #[command(subcommand)]
    command: Command,
}

/// The container's entry point, with variables that begin with FORGE_
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Prepare the cluster where it is not prepared, deploy an environment in dependency order, and prove it
    Deploy(Given),
    /// Say what is true of an environment; writes nothing, and Argo CD is not asked to compare
    Validate(Validated),
    /// Remove an environment in reverse order, and say what is left
    Teardown(Given),
}

#[derive(Debug, Args)]
struct Given {
    #[command(flatten)]
    inputs: Flags,
    /// What is known of the environment; /config/environment.yaml where it is there
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A graph for this run, in place of the repository's; /config/dag.yaml where it is there
    #[arg(long, value_name = "FILE")]
    dag: Option<PathBuf>,
    /// Where credentials are mounted: argocd is Secret forge-argocd, git is Secret forge-git, registry is Secret forge-registry
    #[arg(long, value_name = "DIR", default_value = "/secrets")]
    secrets: PathBuf,
    /// How the report is written to stdout
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,
    /// Write the report to this file too, for people
    #[arg(long, value_name = "FILE")]
    report_text: Option<PathBuf>,
    /// Write the report to this file too, as JSON
    #[arg(long, value_name = "FILE")]
    report_json: Option<PathBuf>,
    /// Write the report to this file too, as JUnit
    #[arg(long, value_name = "FILE")]
    report_junit: Option<PathBuf>,
    /// Where /metrics is served while it works
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:9090")]
    metrics_listen: SocketAddr,
}

#[derive(Debug, Args)]
struct Validated {
    #[command(flatten)]
    given: Given,
    /// Write the report to this file too, as one page
    #[arg(long, value_name = "FILE")]
    report_html: Option<PathBuf>,
}

/// The inputs that were given by flag, before anybody looked at them.
#[derive(Debug, Clone, Default)]
struct Flags(BTreeMap<Input, String>);

/// Inputs that have a flag, and its name.
fn flags() -> impl Iterator<Item = (Input, &'static str)> {
    Input::ALL.iter().filter_map(|input| Some((*input, input.flag().strip_prefix("--")?)))
}

impl Args for Flags {
    fn augment_args(command: clap::Command) -> clap::Command {
        flags().fold(command, |command, (input, name)| {
            let flag = Arg::new(name).long(name).help(input.what());
            command.arg(match input {
                Input::DryRun | Input::Storage | Input::Watch => {
                    flag.value_name("BOOLEAN").num_args(0..=1).require_equals(true).default_missing_value("true")
                }
                _ => flag.value_name("VALUE"),
            })
        })
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self(flags().filter_map(|(input, name)| Some((input, matches.get_one::<String>(name)?.clone()))).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// As `executor`.
pub(crate) fn enter(entry: &Entry) -> Exit {
    start(&entry.command, "")
}

/// As `forge executor`.
pub(crate) fn run(arguments: &Arguments) -> Exit {
    start(&arguments.command, PREFIX)
}

fn start(command: &Command, prefix: &'static str) -> Exit {
    let (mut out, mut err) = (io::stdout(), io::stderr());
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let mut output = Output::new(&mut out, &mut err, no_colour);
    let (action, given, page) = match command {
        Command::Deploy(given) => (Action::Deploy, given, None),
        Command::Validate(validated) => (Action::Validate, &validated.given, validated.report_html.clone()),
        Command::Teardown(given) => (Action::Teardown, given, None),
    };
    let reports = Reports {
        stdout: given.output,
        files: [
            (Format::Text, given.report_text.clone()),
            (Format::Json, given.report_json.clone()),
            (Format::Junit, given.report_junit.clone()),
        ],
        page,
    };
    let options = Options {
        config: given.config.clone(),
        dag: given.dag.clone(),
        secrets: given.secrets.clone(),
        metrics_listen: given.metrics_listen,
        reports,
    };
    let ended = executor::run(action, prefix, given.inputs.0.clone(), &options, &mut output);
    ended.unwrap_or_else(|failure| output.failure(&failure))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn parsed(arguments: &[&str]) -> BTreeMap<Input, String> {
        let entry = Entry::try_parse_from([&["executor", "deploy"], arguments].concat()).unwrap();
        let Command::Deploy(given) = entry.command else { panic!() };
        given.inputs.0
    }

    #[test]
    fn every_input_but_a_kubeconfig_in_base64_has_its_flag() {
        Entry::command().debug_assert();
        for (input, name) in flags() {
            let flag = format!("--{name}=x");
            assert_eq!(parsed(&[flag.as_str()]), BTreeMap::from([(input, "x".to_owned())]), "{flag}");
        }
        assert_eq!(flags().count() + 1, Input::ALL.len());
    }

    #[test]
    fn a_dry_run_needs_no_value_and_takes_one() {
        assert_eq!(parsed(&["--dry-run"])[&Input::DryRun], "true");
        assert_eq!(parsed(&["--dry-run=false", "--runner", "pod"])[&Input::DryRun], "false");
        assert!(Entry::try_parse_from(["executor", "deploy", "--dry-run", "false"]).is_err());
        assert_eq!(parsed(&["--watch"])[&Input::Watch], "true");
        assert_eq!(parsed(&["--storage"])[&Input::Storage], "true");
        let page = Entry::try_parse_from(["executor", "validate", "--report-html", "page.html"]).unwrap();
        assert!(matches!(page.command, Command::Validate(validated) if validated.report_html.is_some()));
        assert!(Entry::try_parse_from(["executor", "deploy", "--report-html", "page.html"]).is_err());
    }
}
