//! The command line of `forge sandbox`: one enum of commands, each with its arguments in its own file.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use forge_core::exit::Exit;
use forge_core::failure::Failure;

use crate::build::{self as building, Built, progress};
use crate::cache::Cache;
use crate::commands::{build, down, exec, image, inner, kubeconfig, list, logs, status, up};
use crate::error::IntoFailure;
use crate::folder::{Folder, Name};

/// A real Kubernetes with a real node on a bare Linux machine, without Docker
///
/// etcd, API server, controllers, scheduler, kubelet, kube-proxy, containerd, CoreDNS, a registry and a Git server, in a
/// network of their own that cannot reach anything off this machine, with the images of Argo. `up` makes it, `down` leaves
/// nothing of it. Needs root.
#[derive(Debug, Parser)]
#[command(
    name = "forge sandbox",
    bin_name = "forge sandbox",
    version,
    arg_required_else_help = true,
    max_term_width = 100
)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// What every command takes.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// Which sandbox
    #[arg(long, global = true, value_name = "NAME", env = "FORGE_SANDBOX", default_value = "default")]
    name: String,
}

impl Global {
    /// The folder of the sandbox that is meant.
    pub(crate) fn folder(&self) -> Result<Folder, Failure> {
        let name: Name = self.name.parse().map_err(IntoFailure::into_failure)?;
        Ok(Folder::new(&sandboxes()?, name))
    }
}

/// The folder of all sandboxes.
pub(crate) fn sandboxes() -> Result<PathBuf, Failure> {
    let cache = cache()?;
    Ok(cache.root().with_file_name("sandboxes"))
}

/// The user's cache directory.
pub(crate) fn cache() -> Result<Cache, Failure> {
    Cache::of_user().map_err(IntoFailure::into_failure)
}

/// Programs and images, built if they are missing.
pub(crate) fn built() -> Result<Built, Failure> {
    building::ensure(&cache()?, None, &mut progress::of_stderr()).map_err(IntoFailure::into_failure)
}

#[derive(Debug, Subcommand)]
enum Command {
    Build(build::Arguments),
    Up(up::Arguments),
    Status(status::Arguments),
    List,
    Logs(logs::Arguments),
    Kubeconfig,
    Image(image::Arguments),
    Exec(exec::Arguments),
    Down(down::Arguments),
    #[command(hide = true)]
    Enter(inner::Arguments),
    #[command(hide = true)]
    Init(inner::Arguments),
}

/// The whole command line as clap describes it, for the generated reference.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs a command line and says how it ended.
pub fn main(args: impl IntoIterator<Item = OsString>) -> Exit {
    let parsed = command().try_get_matches_from(args).and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => {
            // clap knows where its own messages go; a closed pipe is no error.
            let _ = error.print();
            return if error.use_stderr() { Exit::Invalid } else { Exit::Done };
        }
    };
    let result = match cli.command {
        Command::Build(arguments) => build::run(&arguments),
        Command::Up(arguments) => up::run(&cli.global, &arguments),
        Command::Status(arguments) => status::run(&cli.global, &arguments),
        Command::List => list::run(),
        Command::Logs(arguments) => logs::run(&cli.global, &arguments),
        Command::Kubeconfig => kubeconfig::run(&cli.global),
        Command::Image(arguments) => image::run(&cli.global, &arguments),
        Command::Exec(arguments) => exec::run(&cli.global, &arguments),
        Command::Down(arguments) => down::run(&cli.global, &arguments),
        Command::Enter(arguments) => inner::enter(&arguments),
        Command::Init(arguments) => inner::init(&arguments),
    };
    result.unwrap_or_else(|failure| {
        say(&format!("error[{}]: {}", failure.code, failure.message));
        let hint = failure.hint.clone().unwrap_or_else(|| format!("`forge lint --explain {}`", failure.code));
        say(&format!("\nhint: {hint}"));
        failure.exit()
    })
}

/// Data, on stdout. A closed pipe is no error: the reader has had enough.
pub(crate) fn data(text: &str) -> Result<(), Failure> {
    match io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::write("standard output", &error)),
        _ => Ok(()),
    }
}

/// Everything else, on stderr. There is nowhere to report that it could not be written.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// A line that the next one replaces, on a terminal only.
pub(crate) fn live(text: &str) {
    if io::stderr().is_terminal() {
        let _ = write!(io::stderr(), "\r\u{1b}[K{text}");
        let _ = io::stderr().flush();
    }
}

/// How data is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// For programs
    Json,
}
