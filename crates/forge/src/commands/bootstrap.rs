//! `forge bootstrap`

use std::path::PathBuf;

use clap::Args;
use forge_core::code::Code;
use forge_core::exit::Exit;
use forge_core::failure::Failure;
use forge_core::name::EnvironmentName;
use forge_core::render::{self, Places};
use forge_core::yaml;
use secrecy::SecretString;

use super::selection;
use crate::bootstrap::{Wanted, bootstrap};
use crate::cli::Global;
use crate::cluster::{Cluster, ClusterArguments};
use crate::output::{Output, Paint};
use crate::runtime::block_on;

/// Prepare a cluster that runs Argo CD and Argo Workflows for runs
///
/// Makes accounts with the least that they can do with, the template of all nodes, the executor plugin, the policy that
/// limits who writes sync windows, the AppProject of every environment where there is none, and the token of the Argo CD
/// account `forge`. Applied on the server's side: a second time changes nothing.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Only these environments; all of forge.yaml if absent
    #[arg(long, short, env = "FORGE_ENVIRONMENT", value_delimiter = ',')]
    environment: Vec<String>,
    /// The image of forge, by digest, that the cluster can pull
    #[arg(long, env = "FORGE_IMAGE")]
    image: String,
    /// How often an agent tells the controller of finished nodes: sooner starts the next node sooner, later asks less of
    /// the API server
    #[arg(long, value_name = "MILLISECONDS", default_value_t = render::AGENT_TICK, value_parser = ticks())]
    agent_tick: u32,
    /// The address of Argo CD inside the cluster; found by its labels if absent
    #[arg(long, value_name = "URL")]
    argocd_server: Option<String>,
    /// A file with a token of the Argo CD account `forge`; made with the initial administrator's password if absent
    #[arg(long, value_name = "FILE")]
    argocd_token_file: Option<PathBuf>,
    /// Print the objects instead, as YAML; asks nothing of any cluster
    #[arg(long)]
    print: bool,
    #[command(flatten)]
    cluster: ClusterArguments,
}

fn ticks() -> clap::builder::RangedI64ValueParser<u32> {
    let (least, most) = (*render::AGENT_TICKS.start(), *render::AGENT_TICKS.end());
    clap::value_parser!(u32).range(i64::from(least)..=i64::from(most))
}

pub(crate) fn run(global: &Global, arguments: &Arguments, output: &mut Output<'_>) -> Result<Exit, Failure> {
    let usable = selection::repository(global)?;
    let repository = &usable.repository;
    let mut held = Vec::new();
    for files in &repository.environments {
        let name = &files.environment.name.value;
        if !arguments.environment.is_empty() && !arguments.environment.iter().any(|wanted| wanted == name.as_str()) {
            continue;
        }
        let graph = selection::graph(repository, Some(files))?;
        let (scope, nodes) = graph.scope(&forge_core::graph::Scope::Platform, Some(&files.environment.name))?;
        let plan = forge_core::plan::plan(repository, files, &graph, &scope, &nodes);
        let names = plan.nodes.iter().filter(|node| !node.implicit).map(|node| node.application.name.clone());
        held.push((name.clone(), names.collect()));
    }
    for wanted in &arguments.environment {
        selection::environment(repository, wanted)?;
    }
    let environments: Vec<EnvironmentName> = held.iter().map(|(name, _)| name.clone()).collect();
    let places = Places {
        workflows: arguments.cluster.workflows_namespace.clone(),
        argocd: repository.installation.argo.namespace.to_string(),
        image: arguments.image.clone(),
        agent_tick: arguments.agent_tick,
    };
    if arguments.print {
        let objects: Vec<String> =
            render::bootstrap(&places, &environments).iter().map(|placed| yaml::write(&placed.object)).collect();
        output.data(&objects.join("---\n"))?;
        return Ok(Exit::Done);
    }
    let token = match &arguments.argocd_token_file {
        None => None,
        Some(file) => Some(SecretString::from(
            std::fs::read_to_string(file)
                .map_err(|error| {
                    Failure::new(Code::BadArgument, format!("failed to read `{}`: {error}", file.display()))
                })?
                .trim()
                .to_owned(),
        )),
    };
    let mut lines = Vec::new();
    let context = block_on(async {
        let cluster = Cluster::connect(&arguments.cluster).await?;
        let server = arguments.argocd_server.clone();
        let wanted = Wanted { cluster: &cluster, places, environments, held, server, token };
        bootstrap(&wanted, |line| lines.push(line.to_owned())).await?;
        Ok::<_, Failure>(cluster.context.clone())
    })??;
    for line in lines {
        output.say(&format!("{} {line}", output.paint(Paint::Good, "ok")));
    }
    output.say(&format!("\n{context} is prepared for runs\n\nhint: forge platform deploy --environment <environment>"));
    Ok(Exit::Done)
}
