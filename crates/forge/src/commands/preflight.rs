//! `forge preflight`

use clap::{Args, ValueEnum};
use forge_core::code::Code;
use forge_core::duration::Duration;
use forge_core::exit::Exit;
use forge_core::failure::Failure;
use forge_core::name::EnvironmentName;
use forge_core::preflight::{PreflightReport, Purpose};
use forge_core::repository::Repository;

use super::selection;
use crate::cli::Global;
use crate::cluster::{Cluster, ClusterArguments};
use crate::interrupt::Interrupts;
use crate::load;
use crate::output::Output;
use crate::preflight::{LONGEST, TIMEOUT, Wanted, preflight, purpose};
use crate::runtime::block_on;

/// Check whether a cluster is ready, before anything is written to it
///
/// Version, clocks, rights that are really held, nodes, storage, quotas, namespaces, and what is there of Argo and whose it is. Then a
/// pod with the executor's image and restrictions is really started, in a namespace `forge-preflight-…` of its own, or in that
/// of Argo Workflows where namespaces may not be made. It is removed however this ends, and that it is gone is looked at;
/// nothing else is written. `forge bootstrap` does the same before it writes anything.
///
/// Without a repository everything is taken to be installed by Forge.
///
/// Exit codes: 0 ready, 3 something must be put right first, 1 something could not be checked.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Only these environments; all of forge.yaml if absent
    #[arg(long, short, env = "FORGE_ENVIRONMENT", value_delimiter = ',')]
    environment: Vec<String>,
    /// The image of forge, by digest, that the cluster can pull
    #[arg(long, env = "FORGE_IMAGE")]
    image: String,
    /// Something needs volumes: one of the default StorageClass is made and mounted
    #[arg(long)]
    storage: bool,
    /// How long it may take, at most 15m; removing what was made has a minute more
    #[arg(long, value_name = "DURATION", default_value_t = TIMEOUT)]
    timeout: Duration,
    /// How the report is written
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,
    #[command(flatten)]
    cluster: ClusterArguments,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs
    Json,
    /// For CI: one test case per check
    Junit,
}

pub(crate) fn run(global: &Global, arguments: &Arguments, output: &mut Output<'_>) -> Result<Exit, Failure> {
    if arguments.timeout == Duration::ZERO || arguments.timeout > LONGEST {
        return Err(Failure::new(
            Code::BadArgument,
            format!("--timeout `{}` is not more than 0s and at most {LONGEST}", arguments.timeout),
        )
        .hint(format!("leave it out for {TIMEOUT}")));
    }
    let purpose = wanted(global, arguments)?;
    let timeout = std::time::Duration::from_secs(arguments.timeout.seconds());
    let wanted = Wanted { timeout, ..Wanted::new(purpose) };
    let report = block_on(async {
        let cluster = Cluster::connect(&arguments.cluster).await?;
        output.say(&format!("checking {}", cluster.context));
        let mut interrupts = Interrupts::listen();
        Ok::<_, Failure>(preflight(&cluster, &wanted, &mut interrupts, |line| output.say(line)).await)
    })??;
    output.data(&document(arguments.output, &report))?;
    Ok(report.exit())
}

/// What the cluster is checked for.
fn wanted(global: &Global, arguments: &Arguments) -> Result<Purpose, Failure> {
    let repository = repository(global)?;
    let environments = match &repository {
        Some(repository) => selected(repository, &arguments.environment)?,
        None => {
            let parse = |name: &String| {
                let name = name.parse::<EnvironmentName>();
                name.map_err(|error| Failure::new(Code::BadArgument, error).hint("names are those of forge.yaml"))
            };
            arguments.environment.iter().filter(|name| !name.is_empty()).map(parse).collect::<Result<_, _>>()?
        }
    };
    let installation = repository.as_ref().map(|repository| &repository.installation);
    let workflows = &arguments.cluster.workflows_namespace;
    let purpose = purpose(installation, workflows, &arguments.image, environments);
    let root = repository.as_ref().is_some_and(Repository::applies_root);
    Ok(Purpose { storage: arguments.storage, root, ..purpose })
}

/// The repository; a cluster can be looked at before there is one.
fn repository(global: &Global) -> Result<Option<Repository>, Failure> {
    let given = global.repo.as_deref().is_some_and(|folder| !folder.as_os_str().is_empty());
    match load::root(global.repo.as_deref()).and_then(|_| selection::repository(global)) {
        Ok(usable) => Ok(Some(usable.repository)),
        Err(failure) if failure.code == Code::NotARepository && !given => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// The environments that are named, or all of them.
fn selected(repository: &Repository, named: &[String]) -> Result<Vec<EnvironmentName>, Failure> {
    for name in named {
        selection::environment(repository, name)?;
    }
    let all = repository.environments.iter().map(|files| &files.environment.name.value);
    let wanted = |name: &&EnvironmentName| named.is_empty() || named.iter().any(|named| named == name.as_str());
    Ok(all.filter(wanted).cloned().collect())
}

fn document(format: Format, report: &PreflightReport) -> String {
    match format {
        Format::Text => report.text(),
        Format::Json => format!("{:#}\n", serde_json::json!(report)),
        Format::Junit => report.junit(),
    }
}
