//! `forge bootstrap`

use std::path::PathBuf;

use clap::Args;
use forge_core::code::Code;
use forge_core::exit::Exit;
use forge_core::failure::Failure;
use forge_core::format::{ArgoEvents, ArgoInstall};
use forge_core::name::EnvironmentName;
use forge_core::render::{self, Places};
use forge_core::yaml;
use secrecy::SecretString;

use super::selection;
use crate::bootstrap::{Events, Wanted, bootstrap};
use crate::cli::Global;
use crate::cluster::{Cluster, ClusterArguments};
use crate::interrupt::Interrupts;
use crate::output::{Output, Paint};
use crate::preflight;
use crate::runtime::block_on;

/// Prepare a cluster that runs Argo CD and Argo Workflows for runs
///
/// Makes accounts with the least that they can do with, the template of all nodes, the executor plugin, the policy that
/// limits who writes sync windows, the AppProject of every environment where there is none, the token of the Argo CD
/// account `forge`, and, where an environment is `sync: ordered` or has a schedule, what starts its runs. Applied on the server's side: a second time changes nothing. Whether the cluster is ready is checked first,
/// as by `forge preflight`; where something must be put right, nothing is written and the exit code is 3.
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
    let mut selected = Vec::new();
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
        selected.push(&files.environment);
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
    let events = Events { repository: &repository.installation.repository, environments: selected };
    let events = (repository.installation.argo.events != ArgoEvents::None).then_some(events);
    if arguments.print {
        let mut objects: Vec<String> =
            render::bootstrap(&places, &environments).iter().map(|placed| yaml::write(&placed.object)).collect();
        if let Some(events) = &events {
            objects.extend(events.objects(&places).iter().map(|placed| yaml::write(&placed.object)));
            if events.pushes() {
                let (name, key) = (render::WEBHOOK_SECRET, render::WEBHOOK_SECRET_KEY);
                output.say(&format!(
                    "note: what deliveries are signed with is not printed; make it: kubectl create secret generic {name} -n {} --from-literal={key}=$(openssl rand -hex 32)",
                    places.workflows
                ));
            }
        }
        // An Argo CD that is somebody else's is not changed; its owner is told what to merge, and why.
        if repository.installation.argo.cd == ArgoInstall::Existing {
            objects.push(usable.health_checks()?.fragment(&places.argocd));
        }
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
        let installation = Some(&repository.installation);
        let purpose = preflight::purpose(installation, &places.workflows, &places.image, environments.clone());
        let checked = preflight::Wanted::new(purpose).unless_prepared(&cluster).await;
        preflight::required(&cluster, &checked, output).await?;
        let server = arguments.argocd_server.clone();
        let wanted = Wanted { cluster: &cluster, places, environments, held, server, token, events };
        // The checks listen to interrupts, and who has once listened has to go on.
        let mut interrupts = Interrupts::listen();
        let done = tokio::select! {
            done = bootstrap(&wanted, |line| lines.push(line.to_owned())) => Some(done?),
            () = interrupts.heard() => None,
        };
        Ok::<_, Failure>(done.map(|notes| (cluster.context.clone(), notes)))
    })??;
    for line in lines {
        output.say(&format!("{} {line}", output.paint(Paint::Good, "ok")));
    }
    let Some((context, notes)) = context else {
        output.say("\ninterrupted; run it again, and it goes on from there");
        return Ok(Exit::Findings);
    };
    for note in notes {
        output.say(&format!("\nnote: {note}"));
    }
    output.say(&format!("\n{context} is prepared for runs\n\nhint: forge platform deploy --environment <environment>"));
    Ok(Exit::Done)
}
