//! `forge platform validate`

use std::collections::BTreeSet;

use clap::{Args, ValueEnum};
use forge_core::code::Code;
use forge_core::digest::CommitId;
use forge_core::duration::Duration;
use forge_core::exit::Exit;
use forge_core::failure::Failure;
use forge_core::graph::Scope;
use forge_core::plan::plan;
use forge_core::truth::{self, Judged};
use jiff::Timestamp;

use super::deploy;
use crate::cli::Global;
use crate::cluster::{Cluster, ClusterArguments};
use crate::commands::release::ReachArguments;
use crate::commands::selection;
use crate::git_reader::GitCredentials;
use crate::interrupt::Interrupts;
use crate::load;
use crate::output::Output;
use crate::run::prepare::releases::Releases;
use crate::run_report::{self, validation};
use crate::runtime::block_on;
use crate::truth::{Looker, Question, Tip, follow};

/// Say what is true of an environment: every node, what runs, rules on live objects, windows, controllers
///
/// Every node goes through the same decision as in a run, held against what Git holds now; then come required resources, the
/// digests of what runs, EnvironmentConfigs, rules on live objects, sync windows, and the health of Argo itself. Nothing is
/// written and Argo CD is not asked to compare: what it has not compared for a while is stale. What the account may not read
/// is not known, and never healthy.
///
/// Exit codes: 0 healthy, 1 unhealthy, or the cluster does not answer, 2 degraded or not known, 3 invalid.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The environment
    #[arg(long, short, env = "FORGE_ENVIRONMENT")]
    environment: String,
    /// What it is about: platform, stack:<name> or app:<name>; a scope brings its predecessors along
    #[arg(long, short, default_value = "platform", env = "FORGE_TARGET_SCOPE")]
    scope: String,
    /// The commit that nodes are held against; what is checked out if absent
    #[arg(long, value_name = "COMMIT")]
    commit: Option<CommitId>,
    /// How old Argo CD's comparison may be before it is called stale
    #[arg(long, value_name = "DURATION", default_value = "10m", env = "FORGE_STALE_AFTER")]
    stale_after: Duration,
    /// Rules whose findings on live objects are told and do not count, separated by commas
    #[arg(long, value_name = "CODES", env = "FORGE_ALLOW")]
    allow: Option<String>,
    /// Go on, and tell every change, until interrupted
    #[arg(long, env = "FORGE_WATCH")]
    watch: bool,
    /// How long to go on
    #[arg(long, value_name = "DURATION", requires = "watch", env = "FORGE_WATCH_TIMEOUT")]
    timeout: Option<Duration>,
    /// How the report is written
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,
    #[command(flatten)]
    registries: ReachArguments,
    #[command(flatten)]
    cluster: ClusterArguments,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs
    Json,
    /// For CI: one test case per component
    Junit,
    /// One page with a picture, which needs nothing else
    Html,
}

pub(crate) fn run(global: &Global, arguments: &Arguments, output: &mut Output<'_>) -> Result<Exit, Failure> {
    let allowed = allowed(arguments.allow.as_deref())?;
    let usable = selection::repository(global)?;
    let repository = &usable.repository;
    let files = selection::environment(repository, &arguments.environment)?;
    let graph = selection::graph(repository, Some(files))?;
    let scope: Scope = arguments.scope.parse()?;
    let (scope, nodes) = graph.scope(&scope, Some(&files.environment.name))?;
    usable.require_pointers(files, &graph, &nodes)?;
    let plan = plan(repository, files, &graph, &scope, &nodes);
    let root = load::root(global.repo.as_deref())?;
    let branch = repository.installation.repository.branch.value.as_str();
    let commit = deploy::commit(&root, branch, arguments.commit.as_ref(), output)?;
    let question = Question {
        usable: &usable,
        files,
        graph: &graph,
        nodes: &nodes,
        plan: &plan,
        // Who names a commit means that one.
        tip: if arguments.commit.is_some() { Tip::Given } else { Tip::Branch { checkout: &root, branch } },
        commit,
        tree: &root,
        releases: Releases::of(repository, files, &root, || arguments.registries.options())?,
        is_checkout: true,
        workflows: &arguments.cluster.workflows_namespace,
        stale_after: arguments.stale_after,
        allowed,
    };
    block_on(validate(arguments, question, output))?
}

async fn validate(arguments: &Arguments, question: Question<'_>, output: &mut Output<'_>) -> Result<Exit, Failure> {
    let cluster = Cluster::connect(&arguments.cluster).await?;
    let (nodes, environment) = (question.plan.nodes.len(), question.plan.environment.clone());
    let looker = Looker::new(&cluster, question, GitCredentials::Helper, None)?;
    output.say(&format!("looking at {nodes} nodes of {environment} on {}; nothing is written", cluster.context));
    let judged = if arguments.watch {
        let mut interrupts = Interrupts::listen();
        let tell = |line: &str, _: &Judged| output.say(&format!("{}  {line}", Timestamp::now().strftime("%TZ")));
        // Stopped before anything was seen.
        let Some(last) = follow(&looker, arguments.timeout, &mut interrupts, tell).await? else {
            return Ok(Exit::Partial);
        };
        last
    } else {
        looker.look().await?
    };
    let report = &judged.report;
    output.data(&match arguments.output {
        Format::Text => validation(run_report::Format::Text, report),
        Format::Json => validation(run_report::Format::Json, report),
        Format::Junit => validation(run_report::Format::Junit, report),
        Format::Html => looker.page(&judged),
    })?;
    Ok(report.exit())
}

fn allowed(codes: Option<&str>) -> Result<BTreeSet<Code>, Failure> {
    let Some(codes) = codes.filter(|codes| !codes.is_empty()) else { return Ok(BTreeSet::new()) };
    truth::allowed(codes).map_err(|why| {
        Failure::new(Code::BadArgument, format!("--allow: {why}")).hint("docs/errors/README.md lists the codes")
    })
}
