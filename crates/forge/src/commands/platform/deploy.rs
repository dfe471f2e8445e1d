//! `forge platform deploy`

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::path::Path;

use clap::{Args, ValueEnum};
use forge_core::code::Code;
use forge_core::digest::CommitId;
use forge_core::exit::Exit;
use forge_core::failure::Failure;
use forge_core::format::{Argo, ArgoInstall};
use forge_core::graph::Scope;
use forge_core::plan::plan;
use forge_core::run::{Record, RunPlan, Runner};
use forge_core::view::{LookedAt, RunReport};
use jiff::Timestamp;

use crate::argocd::ArgoCd;
use crate::bootstrap;
use crate::cli::Global;
use crate::cluster::{Cluster, ClusterArguments};
use crate::commands::release::ReachArguments;
use crate::commands::selection;
use crate::git::{self, Pushed};
use crate::git_reader::GitCredentials;
use crate::interrupt::Interrupts;
use crate::live::Live;
use crate::load;
use crate::metrics::Metrics;
use crate::output::{Output, Paint};
use crate::records;
use crate::run::lease::{self, Conducted};
use crate::run::prepare::releases::Releases;
use crate::run::prepare::{self, Looked, Made};
use crate::run::{self, Place, follow};
use crate::run_report::{Format, document};
use crate::runtime::block_on;

/// Run the dependency graph through Argo Workflows and Argo CD until every node is proven
///
/// Nothing starts before its predecessors are proven healthy. What is proven already passes without a sync, so running it
/// again resumes; where nothing is left to do, nothing is written. The run is a Job in the cluster: this command starts it
/// and follows it. An interrupt stops the run cleanly: nothing new starts, what runs is left to Argo CD.
///
/// Exit codes: 0 done, 1 failed, 2 partial or cancelled, 4 timed out, 5 another run is in progress, or somebody
/// takes its window away, 6 not permitted.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The environment
    #[arg(long, short, env = "FORGE_ENVIRONMENT")]
    environment: String,
    /// What it is about: platform, stack:<name> or app:<name>; a scope brings its predecessors along
    #[arg(long, short, default_value = "platform", env = "FORGE_TARGET_SCOPE")]
    scope: String,
    /// Look and say what would happen; write nothing
    #[arg(long, env = "FORGE_DRY_RUN")]
    dry_run: bool,
    /// Conduct the run in this process instead of a Job
    #[arg(long, conflicts_with = "detach")]
    local: bool,
    /// Start the run and do not follow it
    #[arg(long)]
    detach: bool,
    /// Wait while another run of this environment is in progress
    #[arg(long)]
    wait: bool,
    /// How nodes are run; as the workflow-controller allows if absent: by the plugin, or by pods where it has executor
    /// plugins switched off
    #[arg(long, value_enum)]
    runner: Option<RunnerArgument>,
    /// The commit to deploy; what is checked out if absent
    #[arg(long, value_name = "COMMIT")]
    commit: Option<CommitId>,
    /// Deadline of the whole run, instead of the graph's own
    #[arg(long, value_name = "DURATION")]
    timeout: Option<forge_core::duration::Duration>,
    /// With how many tasks a band of the Workflow is full; for tests of graphs that are small
    #[arg(long, value_name = "TASKS", hide = true)]
    band: Option<usize>,
    /// How the report is written
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,
    #[command(flatten)]
    registries: ReachArguments,
    #[command(flatten)]
    cluster: ClusterArguments,
}

/// How nodes are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum RunnerArgument {
    /// Tasks of the executor plugin: one pod in all
    Plugin,
    /// A pod per node, where plugins are not allowed
    Pod,
}

impl From<RunnerArgument> for Runner {
    fn from(argument: RunnerArgument) -> Self {
        match argument {
            RunnerArgument::Plugin => Self::Plugin,
            RunnerArgument::Pod => Self::Pod,
        }
    }
}

impl Arguments {
    /// A whole environment, followed to its end, with everything else as it is by default.
    pub(crate) fn of(environment: &str, cluster: ClusterArguments) -> Self {
        Self {
            environment: environment.to_owned(),
            scope: "platform".to_owned(),
            dry_run: false,
            local: false,
            detach: false,
            wait: false,
            runner: None,
            commit: None,
            timeout: None,
            band: None,
            output: Format::Text,
            registries: ReachArguments::default(),
            cluster,
        }
    }
}

pub(crate) fn run(global: &Global, arguments: &Arguments, output: &mut Output<'_>) -> Result<Exit, Failure> {
    let usable = selection::repository(global)?;
    let repository = &usable.repository;
    let files = selection::environment(repository, &arguments.environment)?;
    let graph = selection::graph(repository, Some(files))?;
    let scope: Scope = arguments.scope.parse()?;
    let (scope, nodes) = graph.scope(&scope, Some(&files.environment.name))?;
    usable.require_pointers(files, &graph, &nodes)?;
    let mut plan = plan(repository, files, &graph, &scope, &nodes);
    if let Some(timeout) = arguments.timeout {
        plan.timeout = timeout;
    }
    let root = load::root(global.repo.as_deref())?;
    let branch = repository.installation.repository.branch.value.as_str();
    let commit = commit(&root, branch, arguments.commit.as_ref(), output)?;
    let made = Made {
        plan: &plan,
        graph: &graph,
        nodes: &nodes,
        commit,
        repository: Some(repository.installation.repository.url.value.clone()),
        band: arguments.band,
        credentials: GitCredentials::Helper,
        releases: Releases::of(repository, files, &root, || arguments.registries.options())?,
    };
    let argo = &repository.installation.argo;
    block_on(deploy(arguments, argo, &made, output))?
}

async fn deploy(arguments: &Arguments, argo: &Argo, made: &Made<'_>, output: &mut Output<'_>) -> Result<Exit, Failure> {
    let cluster = Cluster::connect(&arguments.cluster).await?;
    let place = prepare::place(&cluster, &arguments.cluster.workflows_namespace, argo.namespace.as_str()).await?;
    if argo.cd == ArgoInstall::Existing {
        bootstrap::project_is_there(&cluster, argo.namespace.as_str(), &made.plan.environment).await?;
    }
    let argocd = ArgoCd::through(&cluster, &place.places.workflows).await;
    let argocd = argocd.map_err(|failure| if arguments.dry_run { with_less(failure) } else { failure })?;
    let (runner, note) = prepare::runner(&place, arguments.runner.map(Runner::from)).await?;
    if let Some(note) = note {
        output.say(&format!("note: {note}"));
    }
    output.say(&format!(
        "looking at {} nodes of {} on {}",
        made.plan.nodes.len(),
        made.plan.environment,
        cluster.context
    ));
    let run = loop {
        match started(arguments, &place, &argocd, (made, runner), output).await {
            // Whoever waited looks again: the other run has changed what is there.
            Err(failure) if failure.code == Code::RunInProgress && arguments.wait => {
                output.say(&format!("waiting: {}", failure.message));
                lease::free(&place, &made.plan.environment).await?;
            }
            Err(failure) => return Err(failure),
            Ok(ControlFlow::Break(exit)) => return Ok(exit),
            Ok(ControlFlow::Continue(run)) => break run,
        }
    };
    if arguments.detach {
        output.say(&format!("\nhint: forge status --environment {}", run.environment));
        return Ok(Exit::Done);
    }
    let record = if arguments.local {
        let (metrics, mut interrupts) = (Metrics::default(), Interrupts::listen());
        let follow = followed(&place, &run, Conducted::Here, &mut interrupts, output);
        run::here(&place, &argocd, &run, &metrics, None, follow).await?
    } else {
        followed(&place, &run, Conducted::ByJob, &mut Interrupts::keyboard(), output).await?
    };
    let Some(record) = record else { return Ok(Exit::Partial) };
    finish(arguments.output, &run, &record, output)
}

/// A dry run has Argo CD compare, so it takes the token of a run. Who may not read it has another command for what he wants to know.
fn with_less(failure: Failure) -> Failure {
    if failure.code != Code::Forbidden {
        return failure;
    }
    failure.hint(
        "also a dry run has Argo CD compare, with its token; `forge platform validate` needs get and list alone. `forge lint --explain FORGE-D002` lists what deploying takes",
    )
}

/// Looks, and starts a run; the end, where there is none to start.
async fn started(
    arguments: &Arguments,
    place: &Place,
    argocd: &ArgoCd,
    (made, runner): (&Made<'_>, Runner),
    output: &mut Output<'_>,
) -> Result<ControlFlow<Exit, RunPlan>, Failure> {
    if !arguments.dry_run {
        lease::refuse_a_second(place, &made.plan.environment).await?;
    }
    let looked = prepare::look(place, argocd, made, runner).await?;
    let passed = looked.passed().len();
    if let Some(exit) = without_a_run(arguments, made, &looked, output)? {
        return Ok(ControlFlow::Break(exit));
    }
    let run = prepare::start(place, looked, arguments.local).await?;
    output.say(&format!("run {}: {passed} of {} nodes are proven already", run.run, run.len()));
    Ok(ControlFlow::Continue(run))
}

/// The end, where nothing has to be done or nothing may be.
fn without_a_run(
    arguments: &Arguments,
    made: &Made<'_>,
    looked: &Looked,
    output: &mut Output<'_>,
) -> Result<Option<Exit>, Failure> {
    let passed = looked.passed().len();
    if looked.is_done() {
        output.say(&format!(
            "{} all {passed} nodes are proven at {}; nothing to do",
            output.paint(Paint::Good, "done"),
            made.commit
        ));
        if arguments.output != Format::Text {
            output.data(&document(arguments.output, &looked.told().done(Timestamp::now())))?;
        }
        return Ok(Some(Exit::Done));
    }
    if arguments.dry_run {
        let looked = looked.told();
        output.data(&match arguments.output {
            Format::Text => outlook(&looked),
            format => document(format, &looked.dry_run(Timestamp::now())),
        })?;
        return Ok(Some(Exit::Done));
    }
    Ok(None)
}

/// Follows a run and draws it, until it has ended. Whoever was told to stop meanwhile knows it afterwards.
///
/// # Errors
/// When the Job of the run ends without ending the run.
pub(super) async fn followed(
    place: &Place,
    run: &RunPlan,
    conducted: Conducted,
    interrupts: &mut Interrupts,
    output: &mut Output<'_>,
) -> Result<Option<Record>, Failure> {
    let who = std::env::var("USER").unwrap_or_else(|_| "somebody".to_owned());
    // Without the times of earlier runs there is a run to follow all the same.
    let kept = records::all(&place.cluster, &place.places.workflows, &run.environment).await.unwrap_or_default();
    let earlier: Vec<&Record> =
        kept.runs.iter().filter(|stored| stored.plan.run != run.run).map(|stored| &stored.record).collect();
    let live = RefCell::new(Live::new(output.live).like(run, &earlier));
    let output = RefCell::new(output);
    let show = |record: &Record| live.borrow_mut().update(run, record, Timestamp::now(), &mut output.borrow_mut());
    let say = |text: &str| live.borrow().note(text, &mut output.borrow_mut());
    follow::follow(place, run, conducted, &who, interrupts, show, say).await
}

/// The report on stdout; the exit code says the same.
fn finish(format: Format, run: &RunPlan, record: &Record, output: &mut Output<'_>) -> Result<Exit, Failure> {
    output.data(&document(format, &RunReport::new(run, record, Timestamp::now())))?;
    let verdict = record.header.ended.as_ref().map(|ended| ended.verdict);
    Ok(verdict.map_or(Exit::Partial, |verdict| verdict.exit(run.action)))
}

/// What a run would do, a line for each node.
fn outlook(looked: &LookedAt<'_>) -> String {
    looked.plan.nodes().map(|node| format!("{:<50} {}\n", node.id.as_str(), looked.outlook(&node.id))).collect()
}

/// The commit of the run, and that Argo CD can see it.
pub(super) fn commit(
    root: &Path,
    branch: &str,
    given: Option<&CommitId>,
    output: &mut Output<'_>,
) -> Result<CommitId, Failure> {
    if let Some(commit) = given {
        return Ok(commit.clone());
    }
    let not_in_git = |message: String| Failure::new(Code::NotInGit, message);
    let head = git::head(root).and_then(|head| head.parse().ok()).ok_or_else(|| {
        not_in_git(format!("`{}` is not a Git checkout with a commit", root.display()))
            .hint("commit it, or name one with --commit")
    })?;
    if let Some(path) = git::changed(root) {
        return Err(not_in_git(format!("`{path}` is changed and not committed; Argo CD would deploy something else"))
            .hint("commit and push, or name the commit with --commit"));
    }
    match git::pushed(root, branch) {
        Pushed::Yes => {}
        Pushed::No => {
            return Err(not_in_git(format!("commit {head} is not on branch `{branch}` of origin")).hint("git push"));
        }
        Pushed::Unknown => {
            output.say(&format!("note: it is not known here whether branch `{branch}` of origin holds {head}"));
        }
    }
    Ok(head)
}
