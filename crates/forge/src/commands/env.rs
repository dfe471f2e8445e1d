//! `forge env add`

use clap::{Args, Subcommand, ValueEnum};
use forge_core::code::Code;
use forge_core::name::{EnvironmentName, Namespace};
use forge_core::repository::INSTALLATION_FILE;
use forge_core::scaffold;

use crate::cli::Global;
use crate::load;
use crate::output::Output;
use crate::write_files::{Lock, read_own, replace_edited, write_new};
use forge_core::exit::Exit;
use forge_core::failure::Failure;

/// Add environments to the repository
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Add(Add),
}

/// Add an environment to forge.yaml and write its files
///
/// Nothing that is there is overwritten. An environment that forge.yaml lists already only gets the files it lacks.
#[derive(Debug, Args)]
struct Add {
    /// Its name, which is also its folder
    name: EnvironmentName,
    /// A cluster registered with Argo CD; the environment's name if absent
    #[arg(long)]
    cluster: Option<String>,
    /// Who syncs after a push; manual if absent
    #[arg(long, value_enum)]
    sync: Option<SyncArgument>,
    /// Put before every namespace; needed where two environments share a cluster
    #[arg(long, value_name = "PREFIX")]
    namespace_prefix: Option<String>,
    /// Its place in promotion order: before this environment; last if absent
    #[arg(long, value_name = "ENVIRONMENT")]
    before: Option<EnvironmentName>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum SyncArgument {
    /// Argo CD, by itself
    Auto,
    /// A person or a run
    Manual,
    /// A run that an event starts, in dependency order
    Ordered,
}

impl SyncArgument {
    fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Manual => "manual",
            Self::Ordered => "ordered",
        }
    }
}

pub(crate) fn run(global: &Global, arguments: &Arguments, output: &mut Output<'_>) -> Result<Exit, Failure> {
    let Command::Add(add) = &arguments.command;
    let root = load::root(global.repo.as_deref())?;
    let lock = Lock::take(&root)?;
    let text = read_own(&root, INSTALLATION_FILE)?;
    let mut installation = load::installation(&text)?;
    let listed = |environments: &[forge_core::format::Environment], name: &EnvironmentName| {
        environments.iter().any(|environment| environment.name.value == *name)
    };
    if let Some(before) = &add.before
        && !listed(&installation.environments, before)
    {
        return Err(Failure::new(Code::UnknownName, format!("no environment `{before}` in {INSTALLATION_FILE}")));
    }
    if listed(&installation.environments, &add.name) {
        if add.cluster.is_some() || add.sync.is_some() || add.namespace_prefix.is_some() || add.before.is_some() {
            let message = format!("environment `{}` is in {INSTALLATION_FILE} already", add.name);
            return Err(Failure::new(Code::BadArgument, message).hint(format!(
                "change it in {INSTALLATION_FILE} by hand; without options its missing files are written"
            )));
        }
        output.say(&format!("environment {} is in {INSTALLATION_FILE} already", add.name));
    } else {
        let cluster = add.cluster.as_deref().unwrap_or(add.name.as_str());
        if cluster.is_empty() || cluster.chars().any(char::is_whitespace) {
            return Err(Failure::new(Code::BadArgument, "--cluster must not be empty or hold white space"));
        }
        let (prefix, sync) = (add.namespace_prefix.as_deref(), add.sync.unwrap_or(SyncArgument::Manual));
        if prefix.is_some_and(|prefix| format!("{prefix}x").parse::<Namespace>().is_err()) {
            let message =
                "--namespace-prefix must be lower-case letters, digits and `-`, starting with a letter or digit";
            return Err(Failure::new(Code::BadArgument, message).hint("write it like `qa-`"));
        }
        let edited = scaffold::add_environment(&text, &add.name, cluster, sync.word(), prefix, add.before.as_ref())
            .map_err(|error| Failure::new(Code::BadArgument, error).hint("nothing was changed"))?;
        installation = load::installation(&edited)?;
        replace_edited(&root, INSTALLATION_FILE, &edited, &lock)?;
        output.say(&format!("changed   {INSTALLATION_FILE}"));
    }
    let environment = installation.environments.iter().find(|environment| environment.name.value == add.name);
    let files = environment.map(|environment| scaffold::environment_files(&installation, environment));
    write_new(&root, &files.unwrap_or_default(), output)?;
    output.say(&format!("\nNext: forge project add <repo>/<project> --environment {}, then forge lint.", add.name));
    Ok(Exit::Done)
}
