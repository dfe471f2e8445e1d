//! `forge platform teardown`

use std::cell::RefCell;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use forge_core::code::Code;
use forge_core::duration::Duration;
use forge_core::executor::PvPolicy;
use forge_core::exit::Exit;
use forge_core::failure::Failure;
use forge_core::graph::Scope;
use forge_core::run::{Record, RunPlan, Runner};
use forge_core::teardown::inventory::Stays;
use forge_core::teardown::{RemovalRecord, Target};
use forge_core::view::{NoRun, RunReport};
use jiff::Timestamp;

use super::deploy::{RunnerArgument, followed};
use crate::account;
use crate::argocd::ArgoCd;
use crate::cli::Global;
use crate::cluster::{Cluster, ClusterArguments};
use crate::commands::selection;
use crate::install::TIMEOUT;
use crate::interrupt::Interrupts;
use crate::metrics::Metrics;
use crate::output::{Output, Paint};
use crate::run::lease::{self, Conducted};
use crate::run::{self, prepare};
use crate::run_report::{Format, document};
use crate::runtime::block_on;
use crate::teardown::inventory::{self, Began, Looked};
use crate::teardown::{self, Finished, Found, Made, Options, Primitives, Teardown, rehearse};

/// Remove an environment, or a part of it, in reverse order, and say what is left
///
/// Nothing goes while something that depends on it exists. First what would make it again is stopped and every bound volume is
/// set to stay; then each node is deleted through Argo CD, and what it had made must be gone before the next one goes; then what
/// the environment shared, its namespaces, and, when no other environment is there, what `bootstrap` installed. What does not
/// carry Forge's label, or was not handed over by name, is never touched. Running it again goes on where it stopped.
///
/// A scope removes what it names and nothing else, and is refused while something outside depends on it.
///
/// --rehearse reads everything that is in the cluster and says beforehand what would not go: custom resources whose controller goes
/// first, finalizers that nobody clears, objects of somebody else, webhooks and APIs without their service, volumes and load
/// balancers that would leak. Each comes with what to do about it. --report lists what is left of the platform, and compares with
/// what was there before `forge bootstrap`, as a teardown does at its end. Neither writes anything; a read-only account is enough.
/// What may not be listed, or is not answered, is told of as not known, and never taken for absent.
///
/// Exit codes: 0 clean, 1 a node did not go, or something is not known, 2 orphans left or cancelled, 3 not confirmed or invalid,
/// 4 timed out, 5 another run is in progress, 6 refused by policy or not permitted. A rehearsal ends as the teardown would.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The environment
    #[arg(long, short, env = "FORGE_ENVIRONMENT")]
    environment: String,
    /// The name of the environment, once more: without it nothing is removed
    #[arg(long, value_name = "ENVIRONMENT", env = "FORGE_CONFIRM")]
    confirm: Option<String>,
    /// Say what would stand in the way, and remove nothing
    #[arg(long)]
    rehearse: bool,
    /// Say what is left, and remove nothing
    #[arg(long, conflicts_with = "rehearse")]
    report: bool,
    /// What of it: platform, stack:<name> or app:<name>, which may be an Application that the graph does not know any more
    #[arg(long, short, default_value = "platform", env = "FORGE_TARGET_SCOPE")]
    scope: String,
    /// What becomes of bound volumes
    #[arg(long, value_enum, default_value_t = PolicyArgument::Retain, env = "FORGE_PV_POLICY")]
    pv_policy: PolicyArgument,
    /// Give up the finalizers of one object that is being deleted and whose owner is gone for good: Kind/namespace/name.
    /// Recorded; may be given several times
    #[arg(long, value_name = "KIND/NAMESPACE/NAME")]
    release_finalizer: Vec<Target>,
    /// Look and say what would be removed; write nothing
    #[arg(long, env = "FORGE_DRY_RUN")]
    dry_run: bool,
    /// Wait while another run of this environment is in progress
    #[arg(long)]
    wait: bool,
    /// How nodes are run; as the workflow-controller allows if absent
    #[arg(long, value_enum)]
    runner: Option<RunnerArgument>,
    /// Deadline of the whole teardown, instead of the graph's own
    #[arg(long, value_name = "DURATION")]
    timeout: Option<Duration>,
    /// A file with a token of an Argo CD account that may make tokens of the account `forge-teardown`; the initial administrator
    /// does if absent
    #[arg(long, value_name = "FILE")]
    argocd_admin_token_file: Option<PathBuf>,
    /// The helm program, 3.14 or newer; that of PATH if absent. Needed only where the last environment goes
    #[arg(long, value_name = "FILE", env = "FORGE_HELM")]
    helm: Option<PathBuf>,
    /// How the report is written
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,
    #[command(flatten)]
    cluster: ClusterArguments,
}

/// What becomes of bound volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PolicyArgument {
    /// They stay: each is set to Retain, and read back, before anything is deleted
    Retain,
    /// They go with their claims
    Delete,
    /// They are copied first; refused where a driver cannot
    Snapshot,
}

impl From<PolicyArgument> for PvPolicy {
    fn from(argument: PolicyArgument) -> Self {
        match argument {
            PolicyArgument::Retain => Self::Retain,
            PolicyArgument::Delete => Self::Delete,
            PolicyArgument::Snapshot => Self::Snapshot,
        }
    }
}

pub(crate) fn run(global: &Global, arguments: &Arguments, output: &mut Output<'_>) -> Result<Exit, Failure> {
    let reads = arguments.rehearse || arguments.report;
    if !reads {
        confirmed(arguments)?;
    }
    let usable = selection::repository(global)?;
    let repository = &usable.repository;
    let files = selection::environment(repository, &arguments.environment)?;
    let scope: Scope = arguments.scope.parse()?;
    let made = teardown::made(repository, files, &scope, arguments.timeout)?;
    if reads {
        return block_on(looked(arguments, &made, output))?;
    }
    let options = Options {
        policy: arguments.pv_policy.into(),
        targets: arguments.release_finalizer.clone(),
        administrator: arguments.argocd_admin_token_file.as_deref().map(account::token_in).transpose()?,
    };
    block_on(removed(arguments, &made, &options, output))?
}

/// Nobody tears an environment down by accident.
fn confirmed(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.dry_run || arguments.confirm.as_ref() == Some(&arguments.environment) {
        return Ok(());
    }
    let environment = forge_core::name::clip(&arguments.environment);
    let message = match &arguments.confirm {
        None => format!("the teardown of `{environment}` is not confirmed; nothing was written"),
        Some(other) => {
            let other = forge_core::name::clip(other);
            format!("`{other}` is confirmed, and `{environment}` is to be torn down; nothing was written")
        }
    };
    let hint = format!("--confirm {environment} confirms it; --dry-run and --rehearse only look");
    Err(Failure::new(Code::NotConfirmed, message).hint(hint))
}

/// Says what would stand in the way, or what is left. Writes nothing.
async fn looked(arguments: &Arguments, made: &Made, output: &mut Output<'_>) -> Result<Exit, Failure> {
    let cluster = Cluster::connect(&arguments.cluster).await?;
    let workflows = arguments.cluster.workflows_namespace.as_str();
    let asked = made.asked(&cluster, workflows, arguments.pv_policy.into(), None);
    if arguments.rehearse {
        let report = rehearse::run(&asked, &mut |line: &str| output.say(line)).await?;
        output.data(&match arguments.output {
            Format::Text => report.text(),
            Format::Json => format!("{:#}\n", serde_json::json!(report)),
            Format::Junit => report.junit(),
        })?;
        return Ok(report.exit());
    }
    let Looked { inventory: all, claims, .. } = inventory::looked(&asked).await?;
    let snapshot = inventory::stored(&cluster, workflows).await?;
    let stays = Stays::default();
    let began = Began { claims: &claims, before: None, snapshot: snapshot.as_ref(), stays: &stays };
    let report = inventory::report(&asked, &began, &all).await;
    output.data(&match arguments.output {
        Format::Text => report.text(),
        Format::Json => format!("{:#}\n", serde_json::json!(report)),
        Format::Junit => report.junit(),
    })?;
    Ok(report.exit())
}

async fn removed(
    arguments: &Arguments,
    made: &Made,
    options: &Options,
    output: &mut Output<'_>,
) -> Result<Exit, Failure> {
    let started = Timestamp::now();
    let cluster = Cluster::connect(&arguments.cluster).await?;
    let (workflows, environment) = (arguments.cluster.workflows_namespace.as_str(), &made.environment.name);
    output.say(&format!("looking at what is there of {environment} on {}", cluster.context));
    let found = loop {
        let found = teardown::survey(&cluster, workflows, made).await?;
        match lease::refuse_a_second(&found.place, environment).await {
            Err(failure) if failure.code == Code::RunInProgress && arguments.wait && !arguments.dry_run => {
                output.say(&format!("waiting: {}", failure.message));
                lease::free(&found.place, environment).await?;
            }
            Err(failure) if !arguments.dry_run => return Err(failure),
            _ => break found,
        }
    };
    let run = if found.seen.has_nodes() { Some(planned(arguments, made, &found, output).await?) } else { None };
    if arguments.dry_run {
        return dry_run(arguments, made, run.as_ref(), &found, started, output);
    }
    teardown::permitted(&found, made, options.policy).await?;
    let timeout = made.plan.timeout;
    let context = (&found.place.cluster, &found.place.places);
    let teardown = Teardown::new(context, (&made.environment, &found.seen.sets), options, timeout);
    let begun = teardown.begin(&found, made, true, &mut |line: &str| output.say(line)).await?;
    // From the first write to the last: an interrupt that is heard while nodes go also stops what would come after them.
    let mut interrupts = Interrupts::listen();
    let mut ended: Option<(RunPlan, Record)> = None;
    if let Some(run) = run {
        let argocd = ArgoCd::through(&found.place.cluster, workflows).await?;
        let run = prepare::begin(&found.place, run, true).await?;
        output.say(&format!("run {}: {} nodes are to go", run.run, run.len()));
        let metrics = Metrics::default();
        let follow = followed(&found.place, &run, Conducted::Here, &mut interrupts, output);
        let record = run::here(&found.place, &argocd, &run, &metrics, Some(&teardown), follow).await?;
        let Some(record) = record else { return Ok(Exit::Partial) };
        ended = Some((run, record));
    }
    let report = ended.as_ref().map(|(run, record)| RunReport::new(run, record, Timestamp::now()));
    let before = ended.as_ref().and_then(|(_, record)| record.header.removal.clone());
    let record = RefCell::new(before.unwrap_or_else(|| RemovalRecord::new(options.policy.as_str())));
    // What comes after the nodes comes only when all of them are gone.
    let mut finished = Finished::Done(None);
    if teardown::all_gone(report.as_ref(), ended.as_ref().map(|(_, record)| record)) {
        let tools = Primitives {
            kubeconfig: &|| arguments.cluster.for_programs(),
            helm: arguments.helm.as_deref(),
            timeout: std::time::Duration::from_secs(TIMEOUT.seconds()),
            inside: None,
        };
        let run = ended.as_ref().map(|(run, _)| run);
        let mut say = |line: &str| output.say(line);
        let looked = (&found, begun.as_ref());
        finished = teardown::finish(&teardown, looked, (run, &tools), &record, &mut interrupts, &mut say).await?;
    }
    let (report, exit) = teardown::reported(made, (report, record.into_inner()), finished, started);
    output.data(&document(arguments.output, &report))?;
    if exit == Exit::Done {
        output.say(&format!(
            "{} nothing of {environment} is left but what is listed",
            output.paint(Paint::Good, "clean")
        ));
    }
    Ok(exit)
}

/// The run that removes what was found.
async fn planned(
    arguments: &Arguments,
    made: &Made,
    found: &Found,
    output: &mut Output<'_>,
) -> Result<RunPlan, Failure> {
    let argocd = ArgoCd::through(&found.place.cluster, &found.place.places.workflows).await?;
    let (runner, note) = prepare::runner(&found.place, arguments.runner.map(Runner::from)).await?;
    if let Some(note) = note {
        output.say(&format!("note: {note}"));
    }
    teardown::run(&argocd, made, &found.seen, runner).await
}

/// What would be removed, a line for each node in the order in which they would go.
fn dry_run(
    arguments: &Arguments,
    made: &Made,
    run: Option<&RunPlan>,
    found: &Found,
    started: Timestamp,
    output: &mut Output<'_>,
) -> Result<Exit, Failure> {
    let mut record = RemovalRecord::new(PvPolicy::from(arguments.pv_policy).as_str());
    for set in &found.seen.sets {
        record.removed(format!("ApplicationSet {set}"));
    }
    let (report, exit) = teardown::report_without_run(made, (record, None), started, NoRun::DryRun);
    if arguments.output != Format::Text {
        output.data(&document(arguments.output, &report))?;
        return Ok(exit);
    }
    let mut text = String::new();
    for node in run.into_iter().flat_map(RunPlan::nodes) {
        let objects = node.removal.as_ref().map_or(0, |removal| removal.members.len());
        text.push_str(&format!("{:<50} would go with {objects} objects\n", node.id.as_str()));
    }
    if run.is_none() {
        text.push_str("no node is there to remove\n");
    }
    if found.seen.last {
        text.push_str("no other environment is there: what bootstrap installed would go too\n");
    }
    output.data(&text)?;
    Ok(exit)
}
