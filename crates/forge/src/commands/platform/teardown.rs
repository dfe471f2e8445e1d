//! `forge platform teardown`

use clap::{Args, ValueEnum};
use forge_core::code::Code;
use forge_core::executor::PvPolicy;
use forge_core::exit::Exit;
use forge_core::failure::Failure;
use forge_core::graph::Scope;

use crate::cli::Global;
use crate::cluster::{Cluster, ClusterArguments};
use crate::commands::selection;
use crate::output::Output;
use crate::run_report::Format;
use crate::runtime::block_on;
use crate::teardown::inventory::{self, Asked, Began, Looked};
use crate::teardown::rehearse;

/// Say what would stand in the way of a teardown, or what is left after one
///
/// --rehearse reads everything that is in the cluster and says beforehand what would not go: custom resources whose controller goes
/// first, finalizers that nobody clears, objects of somebody else, webhooks and APIs without their service, volumes and load
/// balancers that would leak. Each comes with what to do about it. --report lists what is left of the platform, and compares with
/// what was there before `forge bootstrap`. Neither writes anything; a read-only account is enough. What may not be listed, or is
/// not answered, is told of as not known, and never taken for absent.
///
/// Exit codes: as the teardown would end. 0 clean, 1 something would stop it or is not known, 2 something would be left or is.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The environment
    #[arg(long, short, env = "FORGE_ENVIRONMENT")]
    environment: String,
    /// What it is about: platform, stack:<name> or app:<name>; without what it depends on
    #[arg(long, short, default_value = "platform", env = "FORGE_TARGET_SCOPE")]
    scope: String,
    /// Say what would stand in the way
    #[arg(long)]
    rehearse: bool,
    /// Say what is left
    #[arg(long, conflicts_with = "rehearse")]
    report: bool,
    /// What becomes of volumes
    #[arg(long, value_enum, default_value_t = Volumes::Retain, env = "FORGE_PV_POLICY")]
    pv_policy: Volumes,
    /// How the report is written
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,
    #[command(flatten)]
    cluster: ClusterArguments,
}

/// What becomes of volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Volumes {
    /// They stay, with their data
    Retain,
    /// They go
    Delete,
    /// They are copied, then go
    Snapshot,
}

impl From<Volumes> for PvPolicy {
    fn from(volumes: Volumes) -> Self {
        match volumes {
            Volumes::Retain => Self::Retain,
            Volumes::Delete => Self::Delete,
            Volumes::Snapshot => Self::Snapshot,
        }
    }
}

pub(crate) fn run(global: &Global, arguments: &Arguments, output: &mut Output<'_>) -> Result<Exit, Failure> {
    if !arguments.rehearse && !arguments.report {
        let message = "a teardown is not in this version; nothing was read and nothing was written";
        return Err(Failure::new(Code::ActionMissing, message).hint("--rehearse and --report are there"));
    }
    let usable = selection::repository(global)?;
    let repository = &usable.repository;
    let files = selection::environment(repository, &arguments.environment)?;
    let environment = &files.environment.name.value;
    let graph = selection::graph(repository, Some(files))?;
    let scope: Scope = arguments.scope.parse()?;
    // What a scope depends on stays.
    let (scope, all) = graph.scope(&scope, Some(environment))?;
    let nodes = if scope == Scope::Platform { all } else { graph.select(&scope.to_string(), Some(environment))? };
    block_on(async {
        let cluster = Cluster::connect(&arguments.cluster).await?;
        let asked = Asked {
            cluster: &cluster,
            environment,
            scope: &scope,
            argocd: repository.installation.argo.namespace.as_str(),
            workflows: &arguments.cluster.workflows_namespace,
            graph: &graph,
            nodes: &nodes,
            policy: arguments.pv_policy.into(),
        };
        if arguments.rehearse {
            let report = rehearse::run(&asked, &mut |line| output.say(line)).await?;
            output.data(&match arguments.output {
                Format::Text => report.text(),
                Format::Json => format!("{:#}\n", serde_json::json!(report)),
                Format::Junit => report.junit(),
            })?;
            return Ok::<_, Failure>(report.exit());
        }
        let Looked { inventory, claims } = inventory::looked(&asked).await?;
        let snapshot = inventory::stored(&cluster, asked.workflows).await?;
        let began = Began { claims: &claims, before: None, snapshot: snapshot.as_ref() };
        let report = inventory::report(&asked, &began, &inventory).await;
        output.data(&match arguments.output {
            Format::Text => report.text(),
            Format::Json => format!("{:#}\n", serde_json::json!(report)),
            Format::Junit => report.junit(),
        })?;
        Ok(report.exit())
    })?
}
