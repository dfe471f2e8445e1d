//! `forge serve`: what Argo Workflows, Argo Events and Jobs start inside the cluster.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand};
use forge_core::exit::Exit;
use forge_core::failure::Failure;
use forge_core::gate::RunId;
use forge_core::name::{EnvironmentName, NodeId};
use forge_core::render::{AGENT_TICK, Places};
use forge_core::run::RunAction;

use crate::argocd::ArgoCd;
use crate::cluster::{Cluster, ClusterArguments};
use crate::interrupt::Interrupts;
use crate::metrics::Metrics;
use crate::output::Output;
use crate::run::turn::{self, Event, Outcome};
use crate::run::{Place, conduct, job};
use crate::runtime::block_on;
use crate::serve::{self, Listen};

/// The code of a pod whose executor was killed, or that leaves its run: none of ours, so that Kubernetes starts another one.
const KILLED: i32 = 137;

/// What Argo Workflows starts inside the cluster; not for people
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The executor plugin: one sidecar for all nodes of a workflow
    Plugin {
        #[command(flatten)]
        common: Common,
        /// Where to listen
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:4355")]
        listen: SocketAddr,
        /// The token of the agent
        #[arg(long, value_name = "FILE", default_value = "/var/run/argo/token")]
        agent_token: PathBuf,
    },
    /// The Job that conducts a run
    Run {
        #[command(flatten)]
        common: Common,
        /// The run
        #[arg(long)]
        run: RunId,
        /// The namespace of Argo CD
        #[arg(long, default_value = "argocd")]
        argocd_namespace: String,
        /// The image of this program, for nodes in pods of their own
        #[arg(long)]
        image: String,
        /// The tick of the agent, in milliseconds
        #[arg(long, value_name = "MILLISECONDS", default_value_t = AGENT_TICK)]
        agent_tick: u32,
        /// Where /metrics is served
        #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:9090")]
        listen: SocketAddr,
    },
    /// One node in a pod of its own
    Node {
        #[command(flatten)]
        common: Common,
        /// The run
        #[arg(long)]
        run: RunId,
        /// The node
        #[arg(long)]
        node: NodeId,
    },
    /// The Job that an event makes: waits for its turn, then runs `executor deploy`
    Event {
        #[command(flatten)]
        cluster: ClusterArguments,
        /// The environment
        #[arg(long)]
        environment: EnvironmentName,
        /// The name of the Job
        #[arg(long)]
        name: String,
    },
}

#[derive(Debug, Args)]
struct Common {
    #[command(flatten)]
    cluster: ClusterArguments,
    /// The address of Argo CD, or @ and a file that holds it
    #[arg(long, value_name = "URL")]
    argocd: String,
    /// The token of the account that can get and sync Applications
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,
}

pub(crate) fn run(arguments: &Arguments, output: &mut Output<'_>) -> Result<Exit, Failure> {
    block_on(async {
        match &arguments.command {
            Command::Plugin { common, listen, agent_token } => {
                let cluster = Cluster::connect(&common.cluster).await?;
                let listen = Listen { address: *listen, agent_token: agent_token.clone() };
                let namespace = common.cluster.workflows_namespace.clone();
                serve::plugin(cluster, namespace, &common.argocd, &common.token_file, &listen).await?;
                Ok(Exit::Done)
            }
            Command::Run { common, run, argocd_namespace, image, agent_tick, listen } => {
                // First of all: what is told before anybody listens is never heard.
                let mut interrupts = Interrupts::listen();
                let cluster = Cluster::connect(&common.cluster).await?;
                let workflows = common.cluster.workflows_namespace.clone();
                let (argocd, image, agent_tick) = (argocd_namespace.clone(), image.clone(), *agent_tick);
                let places = Places { workflows, argocd, image, agent_tick };
                let place = Place { cluster, places };
                let argocd = ArgoCd::mounted(&common.argocd, &common.token_file)?;
                let metrics = Arc::new(Metrics::of_job());
                serve::metrics(*listen, metrics.clone()).await?;
                tokio::select! {
                    // A teardown is conducted by whoever confirmed it, never by a Job of a run's account.
                    verdict = conduct::conduct(&place, &argocd, run, &metrics, None) => {
                        Ok(verdict?.exit(RunAction::Deploy))
                    }
                    () = job::left(&place, run, interrupts.heard()) => {
                        output.say("told to end; the run goes on in the next pod of its Job");
                        std::process::exit(KILLED)
                    }
                }
            }
            Command::Node { common, run, node } => {
                let cluster = Cluster::connect(&common.cluster).await?;
                let namespace = &common.cluster.workflows_namespace;
                serve::node(&cluster, namespace, run, node, &common.argocd, &common.token_file).await
            }
            Command::Event { cluster: arguments, environment, name } => {
                let cluster = Cluster::connect(arguments).await?;
                let event = Event { cluster: &cluster, namespace: &arguments.workflows_namespace, environment, name };
                match turn::conduct(&event, |line| output.say(line)).await? {
                    Outcome::Ended(exit) => Ok(exit),
                    Outcome::Left(waiting) => {
                        output.say(&format!("{waiting} waits already, and deploys what the branch holds then"));
                        Ok(Exit::Done)
                    }
                    Outcome::Killed(how) => {
                        output.say(&format!("the executor was ended by something else: {how}"));
                        std::process::exit(KILLED)
                    }
                }
            }
        }
    })?
}
