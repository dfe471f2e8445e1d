//! The command line: one enum of commands, each with its arguments in its own file.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::cmp;
use crate::commands::{
    adopt, bootstrap, demo, env, executor, graph, history, init, lint, plan, platform, preflight, project, release,
    rotate, sandbox, schema, serve, status, why,
};
use crate::output::Output;
use forge_core::exit::Exit;

/// Variables that say what is meant. Without them more is, or something else: whoever lost one did not ask for that, so an empty one
/// stays a value that cannot be understood.
const MEANT: [&str; 5] =
    ["FORGE_CONTEXT", "FORGE_DRY_RUN", "FORGE_ENVIRONMENT", "FORGE_KUBECONFIG_PATH", "FORGE_TARGET_SCOPE"];

/// Deploys a platform of interdependent applications onto Kubernetes in dependency order, through Argo, from Git
///
/// Start with `forge init` in an empty Git repository, or with `forge adopt` where an Argo CD is running already; look at a
/// repository that is there with `forge lint` and `forge graph`. Only what talks to Argo needs a cluster.
#[derive(Debug, Parser)]
#[command(name = "forge", version, propagate_version = true, arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// What every command takes.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// The GitOps repository; the folder with forge.yaml at or above the current one if absent
    #[arg(long, short = 'C', global = true, value_name = "DIR", env = "FORGE_REPO")]
    pub(crate) repo: Option<PathBuf>,
    /// No colours, as with the environment variable NO_COLOR
    #[arg(long, global = true)]
    pub(crate) no_color: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    Init(init::Arguments),
    Adopt(adopt::Arguments),
    Env(env::Arguments),
    Project(project::Arguments),
    Release(release::Arguments),
    Lint(lint::Arguments),
    Graph(graph::Arguments),
    Plan(plan::Arguments),
    Preflight(preflight::Arguments),
    Bootstrap(bootstrap::Arguments),
    Rotate(rotate::Arguments),
    Platform(platform::Arguments),
    Status(status::Arguments),
    Why(why::Arguments),
    History(history::Arguments),
    Demo(demo::Arguments),
    Schema(schema::Arguments),
    Sandbox(sandbox::Arguments),
    #[command(hide = true)]
    Serve(serve::Arguments),
    #[command(hide = true)]
    Executor(executor::Arguments),
}

/// The whole command line as clap describes it, for the generated reference.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs a command line and says how it ended. The binary has other names: `executor`, the container's entry point, and that of
/// the plugin of Argo CD.
pub fn main(args: impl IntoIterator<Item = OsString>) -> Exit {
    let args: Vec<OsString> = args.into_iter().collect();
    let name = args.first().and_then(|program| Path::new(program).file_name());
    if name.is_some_and(|name| name == cmp::NAME) {
        return cmp::main(&args);
    }
    if name.is_some_and(|name| name == "executor") {
        return match executor::Entry::try_parse_from(args) {
            Ok(entry) => executor::enter(&entry),
            Err(error) => wrong(&error),
        };
    }
    let parsed =
        without_empty(command()).try_get_matches_from(args).and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => return wrong(&error),
    };
    // It logs from several threads, so it does not hold what it writes to.
    if let Command::Executor(arguments) = &cli.command {
        return executor::run(arguments);
    }
    let (mut out, mut err) = (io::stdout().lock(), io::stderr().lock());
    let no_colour = cli.global.no_color || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let mut output = Output::new(&mut out, &mut err, no_colour);
    let result = match cli.command {
        Command::Init(arguments) => init::run(&cli.global, &arguments, &mut output),
        Command::Adopt(arguments) => adopt::run(&cli.global, &arguments, &mut output),
        Command::Env(arguments) => env::run(&cli.global, &arguments, &mut output),
        Command::Project(arguments) => project::run(&cli.global, &arguments, &mut output),
        Command::Release(arguments) => release::run(&cli.global, &arguments, &mut output),
        Command::Lint(arguments) => lint::run(&cli.global, &arguments, &mut output),
        Command::Graph(arguments) => graph::run(&cli.global, &arguments, &mut output),
        Command::Plan(arguments) => plan::run(&cli.global, &arguments, &mut output),
        Command::Preflight(arguments) => preflight::run(&cli.global, &arguments, &mut output),
        Command::Bootstrap(arguments) => bootstrap::run(&cli.global, &arguments, &mut output),
        Command::Rotate(arguments) => rotate::run(&arguments, &mut output),
        Command::Platform(arguments) => platform::run(&cli.global, &arguments, &mut output),
        Command::Status(arguments) => status::run(&cli.global, &arguments, &mut output),
        Command::Why(arguments) => why::run(&cli.global, &arguments, &mut output),
        Command::History(arguments) => history::run(&cli.global, &arguments, &mut output),
        Command::Demo(arguments) => demo::run(&cli.global, &arguments, &mut output),
        Command::Schema(arguments) => schema::run(&arguments, &mut output),
        Command::Sandbox(arguments) => sandbox::run(&arguments),
        Command::Serve(arguments) => serve::run(&arguments, &mut output),
        Command::Executor(arguments) => Ok(executor::run(&arguments)),
    };
    result.unwrap_or_else(|failure| output.failure(&failure))
}

/// The same without variables that are empty, which count as not set: manifests and pipelines leave them so. Not of those that say
/// what is meant.
fn without_empty(command: clap::Command) -> clap::Command {
    let is_meant = |name: &OsStr| name.to_str().is_some_and(|name| MEANT.contains(&name));
    let is_empty =
        |name: &OsStr| !is_meant(name) && std::env::var_os(name).is_some_and(|value| value.as_os_str().is_empty());
    let cleared = |argument: clap::Arg| {
        if argument.get_env().is_some_and(is_empty) { argument.env(None::<&'static str>) } else { argument }
    };
    command.mut_args(cleared).mut_subcommands(without_empty)
}

/// A command line that cannot be understood, or that asks for help.
fn wrong(error: &clap::Error) -> Exit {
    // clap knows where its own messages go; a closed pipe is no error.
    let _ = error.print();
    if error.use_stderr() { Exit::Invalid } else { Exit::Done }
}
