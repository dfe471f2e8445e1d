//! `forge release`: OCI images that hold everything that is deployed of a project (SPEC.md section 7).

mod build;
mod copy;
mod diff;
mod inspect;
mod list;
mod pull;
mod push;
mod sign;
mod verify;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use forge_core::code::Code;
use forge_core::exit::Exit;
use forge_core::failure::Failure;
use forge_core::name::ProjectId;
use forge_core::repository::INSTALLATION_FILE;

use crate::cli::Global;
use crate::load;
use crate::output::Output;
use crate::registry::{Credentials, Options, PLAIN_HTTP, Registry, RepositoryName, hosts};
use crate::release::Named;
use crate::release::place::repository;
use crate::write_files::read_own;

/// Build, move, look at, sign and verify releases: OCI images that hold all that is deployed of a project
///
/// A release is named as repo/project:COMMIT, where COMMIT may also be the beginning of one or a version and the registry is
/// that of forge.yaml; as registry.example.com/path:COMMIT or with @sha256:…; or as a folder with an OCI layout.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Build(Box<build::Arguments>),
    Push(push::Arguments),
    Pull(pull::Arguments),
    Copy(copy::Arguments),
    Inspect(inspect::Arguments),
    Diff(diff::Arguments),
    List(list::Arguments),
    Sign(sign::Arguments),
    Verify(verify::Arguments),
}

pub(crate) fn run(global: &Global, arguments: &Arguments, output: &mut Output<'_>) -> Result<Exit, Failure> {
    match &arguments.command {
        Command::Build(arguments) => build::run(global, arguments, output),
        Command::Push(arguments) => push::run(global, arguments, output),
        Command::Pull(arguments) => pull::run(global, arguments, output),
        Command::Copy(arguments) => copy::run(global, arguments, output),
        Command::Inspect(arguments) => inspect::run(global, arguments, output),
        Command::Diff(arguments) => diff::run(global, arguments, output),
        Command::List(arguments) => list::run(global, arguments, output),
        Command::Sign(arguments) => sign::run(global, arguments, output),
        Command::Verify(arguments) => verify::run(global, arguments, output),
    }
}

/// How a command writes what it found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs
    Json,
}

/// So many objects, in words.
fn objects(count: u32) -> String {
    if count == 1 { "1 object".to_owned() } else { format!("{count} objects") }
}

/// How registries are reached, and which one is meant where only a project is named.
#[derive(Debug, Args)]
pub(super) struct RegistryArguments {
    /// Where releases are kept, for example registry.example.com/releases; that of forge.yaml if absent
    #[arg(long, value_name = "REGISTRY", env = "FORGE_REGISTRY")]
    registry: Option<String>,
    #[command(flatten)]
    reached: ReachArguments,
}

/// How registries are reached.
#[derive(Debug, Default, Args)]
pub(super) struct ReachArguments {
    /// Hosts, with their ports, that are asked without TLS; this machine always is
    #[arg(long, value_name = "HOST", value_delimiter = ',', env = PLAIN_HTTP)]
    plain_http: Vec<String>,
    /// A file of credentials as Docker keeps them; that of Docker itself if absent
    #[arg(long, value_name = "FILE", env = "FORGE_REGISTRY_CONFIG")]
    registry_config: Option<PathBuf>,
    /// Certificates, as PEM, of authorities that are trusted besides those of this machine
    #[arg(long, value_name = "FILE", env = "FORGE_REGISTRY_CA")]
    registry_ca: Option<PathBuf>,
}

impl ReachArguments {
    /// As it was said, and as the user does otherwise.
    pub(super) fn options(&self) -> Result<Options, Failure> {
        let given = |file: &Option<PathBuf>| file.clone().filter(|file| !file.as_os_str().is_empty());
        let user = Options { credentials: Credentials::of_user(), ..Options::default() };
        let (config, ca) = (given(&self.registry_config), given(&self.registry_ca));
        user.named(config, ca.as_deref(), hosts(&self.plain_http.join(",")))
    }
}

impl RegistryArguments {
    /// A client for all registries.
    pub(super) fn client(&self) -> Result<Registry, Failure> {
        Registry::new(self.reached.options()?)
    }

    /// Where releases are kept: as it was said, or as forge.yaml says.
    pub(super) fn prefix(&self, global: &Global) -> Result<String, Failure> {
        if let Some(registry) = self.registry.as_ref().filter(|registry| !registry.is_empty()) {
            return Ok(registry.clone());
        }
        let hint = "name it with --registry, or write the whole name of the release";
        let nowhere = |message: String| Failure::new(Code::BadArgument, message).hint(hint);
        let root = load::root(global.repo.as_deref())
            .map_err(|failure| nowhere(format!("nobody says where releases are kept: {}", failure.message)))?;
        let installation = load::installation(&read_own(&root, INSTALLATION_FILE)?)?;
        let registry = installation.registry.map(|registry| registry.value);
        registry.ok_or_else(|| nowhere(format!("{INSTALLATION_FILE} has no `registry`")))
    }

    /// A release as it was named.
    fn named(&self, global: &Global, text: &str, release: Option<&str>) -> Result<Named, Failure> {
        Named::read(text, release, || self.prefix(global))
    }

    /// The repository of a project.
    fn repository(&self, global: &Global, project: &ProjectId) -> Result<RepositoryName, Failure> {
        repository(&self.prefix(global)?, project)
    }
}

/// A file that somebody named, as text, within limits; what goes wrong has this code.
pub(super) fn read_file(path: &Path, code: Code) -> Result<String, Failure> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    read_own(folder, name).map_err(|failure| Failure { code, ..failure })
}
