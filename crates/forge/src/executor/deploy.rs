//! `executor deploy`: read, phase 0 and phase 1 where they are not behind us, then the run in this very process: the
//! executor's Job is the run's Job (SPEC.md sections 4 and 5). Where nothing is left to do, nothing is written.

use std::path::{Path, PathBuf};

use forge_core::code::Code;
use forge_core::executor::{Access, Input, Inputs, Level};
use forge_core::exit::Exit;
use forge_core::failure::Failure;
use forge_core::preflight::{Purpose, Severity};
use forge_core::run::{Record, RunAction, RunPlan};
use forge_core::view::{NoRun, RunReport};
use jiff::Timestamp;

use super::desired;
use super::phase_one::{self, Prepared, prepared};
use super::session::{BOOTSTRAP, ORCHESTRATION, PRE_BOOTSTRAP, READ, Session};
use super::watch::Watcher;
use super::{Options, Stopped};
use crate::argocd::ArgoCd;
use crate::bootstrap::signatures;
use crate::cluster::Cluster;
use crate::interrupt::Interrupts;
use crate::preflight;
use crate::records;
use crate::run::lease::{self, Conducted};
use crate::run::prepare::{self, Made};
use crate::run::{self, Place, follow};
use crate::teardown::inventory::{self, Before};
use crate::telemetry::Traces;

/// How often a Lease is tried for that others have.
const TRIES: usize = 3;

/// Deploys; gives the report and how it ended.
pub(super) async fn deploy(
    session: &Session,
    traces: &Traces,
    prefix: &str,
    inputs: &Inputs,
    options: &Options,
    interrupts: &mut Interrupts,
) -> Result<(RunReport, Exit), Stopped> {
    let started = Timestamp::now();
    let work = async {
        let desired = desired::read(inputs, options).await?;
        // What says how registries are spoken with is found unusable now, and not when the cluster is prepared.
        let releases = desired.releases(inputs, options)?;
        Ok::<_, Stopped>((desired, releases))
    };
    let (desired, releases) = session.phase(traces, READ, Some(&mut *interrupts), work).await?;
    let installation = &desired.repository().installation;
    let (read, named) = (inputs.git_repository.value.as_str(), installation.repository.url.value.as_str());
    let (nodes, commit) = (desired.plan.nodes.len(), &desired.commit);
    session.log(Level::Info, READ, "", &format!("{nodes} nodes of {read} at {commit}"));
    if read.trim_end_matches(".git") != named.trim_end_matches(".git") {
        session.log(Level::Warn, READ, "", &format!("forge.yaml calls this repository {named}, which Argo CD reads"));
    }
    let variable = |input: Input| format!("{prefix}{}", input.variable());
    let cluster = Cluster::reach(&inputs.access, &variable(Input::KubeconfigData)).await?;
    let account = mounted(inputs, options);
    let data = variable(Input::KubeconfigData);
    let warn = |line: &str| session.log(Level::Warn, BOOTSTRAP, "", line);
    let image = variable(Input::Image);
    let looked = phase_one::looked(&cluster, inputs, &desired, account.as_deref(), &image, warn).await?;
    let (Prepared::Yes(places) | Prepared::No(places)) = &looked;
    let places = places.clone();
    let environments = vec![inputs.environment.clone()];
    let purpose = preflight::purpose(Some(installation), &places.workflows, &places.image, environments);
    let purpose = Purpose { root: desired.repository().applies_root(), storage: inputs.storage, ..purpose };
    let say = |line: &str| session.log(Level::Info, BOOTSTRAP, "", line);
    let parts = phase_one::installing(inputs, &desired, &purpose, say)?;
    // What Helm installs is part of it: where that is gone, all of phase 1 is done again, and phase 0 before it.
    let installed = match looked {
        Prepared::Yes(_) => phase_one::is_installed(&cluster, &parts).await?,
        Prepared::No(_) => Some(false),
    };
    match installed {
        None | Some(true) if inputs.dry_run => {}
        None | Some(true) => {
            let work = async {
                if installed.is_none() {
                    let message = "what is installed of Argo is left as it is: the account may not look at it";
                    session.log(Level::Info, BOOTSTRAP, "", message);
                    return Ok(());
                }
                let before = Before::nothing();
                phase_one::installed(&cluster, (inputs, options), &data, &parts, &before, interrupts, say).await
            };
            session.phase(traces, BOOTSTRAP, None, work).await?;
            session.log(Level::Info, BOOTSTRAP, "", "the cluster is prepared for this environment");
        }
        Some(false) => {
            unless_stopped(interrupts, signatures::refuse(&cluster, &places)).await?;
            checked(session, traces, inputs, purpose, &cluster, interrupts).await?;
            if inputs.dry_run {
                let message = "dry run: the cluster is ready and not prepared; nothing was written";
                let (environment, scope) = (inputs.environment.as_str(), inputs.scope.to_string());
                let times = (started, Timestamp::now());
                let (action, done) = (RunAction::Deploy, Exit::Done);
                let report = RunReport::without_run(action, environment, &scope, NoRun::DryRun, done, message, times);
                return Ok((report, Exit::Done));
            }
            let done = |line: &str| session.log(Level::Info, BOOTSTRAP, line, "made, or as it was");
            let to = places.clone();
            let work = async {
                let mut note = |line: &str| session.log(Level::Warn, BOOTSTRAP, "", line);
                let mut tell = say;
                let before = inventory::snapshot_or_note(&cluster, (&to.workflows, &to.argocd), &mut note).await;
                // Helm is not dropped half way: it listens itself.
                phase_one::installed(&cluster, (inputs, options), &data, &parts, &before, interrupts, say).await?;
                // Where nothing was installed.
                before.keep(&cluster, &mut tell).await?;
                unless_stopped(interrupts, prepared(&cluster, to, &desired, inputs, done, note)).await
            };
            session.phase(traces, BOOTSTRAP, None, work).await?;
        }
    }
    let place = Place { cluster, places };
    let argocd = match &account {
        // Who has just prepared the cluster has the Secret as it is now; the kubelet brings it into the folder a while later.
        Some(folder) if installed != Some(false) => mounted_argocd(folder)?,
        _ => ArgoCd::through(&place.cluster, &place.places.workflows).await?,
    };
    let made = Made {
        plan: &desired.plan,
        graph: &desired.graph,
        nodes: &desired.nodes,
        commit: desired.commit.clone(),
        repository: Some(installation.repository.url.value.clone()),
        band: None,
        credentials: desired::credentials(options),
        releases,
    };
    // It listens to interrupts itself: a run is stopped, not dropped.
    let work = orchestrated(session, traces, inputs, &made, &place, &argocd, interrupts);
    session.phase(traces, ORCHESTRATION, None, work).await
}

/// Where Argo CD's address and token are mounted, if they are and it can be reached by that address.
pub(super) fn mounted(inputs: &Inputs, options: &Options) -> Option<PathBuf> {
    let folder = options.secrets.join("argocd");
    let there = |name: &str| folder.join(name).exists();
    (inputs.access == Access::InCluster && there("server") && there("token")).then_some(folder)
}

/// Argo CD by the address and the token that are mounted here.
pub(super) fn mounted_argocd(folder: &Path) -> Result<ArgoCd, Failure> {
    ArgoCd::mounted(&format!("@{}", folder.join("server").display()), &folder.join("token"))
}

/// Phase 0. It puts away what it made before it ends, so it is not dropped when it is told to stop.
async fn checked(
    session: &Session,
    traces: &Traces,
    inputs: &Inputs,
    purpose: Purpose,
    cluster: &Cluster,
    interrupts: &mut Interrupts,
) -> Result<(), Stopped> {
    let wanted = preflight::Wanted::new(purpose);
    let wanted = if inputs.dry_run {
        preflight::Wanted { started_before: Some("dry run: nothing is written".to_owned()), ..wanted }
    } else {
        wanted.unless_prepared(cluster).await
    };
    let work = async {
        let say = |line: &str| session.log(Level::Info, PRE_BOOTSTRAP, "", line);
        let report = preflight::preflight(cluster, &wanted, interrupts, say).await;
        for finding in &report.findings {
            let level = match finding.severity {
                Severity::Blocking | Severity::Failed => Level::Error,
                Severity::Warning => Level::Warn,
                Severity::Note => Level::Info,
            };
            let message = format!("{} {}; fix: {}", finding.code, finding.told(), finding.fix);
            session.log(level, PRE_BOOTSTRAP, &finding.check.to_string(), &message);
        }
        session.log(Level::Info, PRE_BOOTSTRAP, "", &report.summary);
        match preflight::refusal(&report) {
            Some(failure) => Err(Stopped::Unready(Failure { findings: report.obstacles(), ..failure })),
            None => Ok(()),
        }
    };
    let passed = session.phase(traces, PRE_BOOTSTRAP, None, work).await;
    if interrupts.told().await { Err(Stopped::Interrupted) } else { passed }
}

/// Phase 2: looks, and conducts a run where there is something to do.
async fn orchestrated(
    session: &Session,
    traces: &Traces,
    inputs: &Inputs,
    made: &Made<'_>,
    place: &Place,
    argocd: &ArgoCd,
    interrupts: &mut Interrupts,
) -> Result<(RunReport, Exit), Stopped> {
    let (runner, note) = unless_stopped(interrupts, prepare::runner(place, inputs.runner)).await?;
    if let Some(note) = note {
        session.log(Level::Warn, ORCHESTRATION, "", note);
    }
    let mut tries = 0;
    let plan = loop {
        let looked = unless_stopped(interrupts, prepare::look(place, argocd, made, runner)).await?;
        if looked.is_done() {
            return Ok((looked.told().done(Timestamp::now()), Exit::Done));
        }
        if inputs.dry_run {
            return Ok((looked.told().dry_run(Timestamp::now()), Exit::Done));
        }
        let (passed, nodes) = (looked.passed().len(), looked.run.len());
        session.log(Level::Info, ORCHESTRATION, "", &format!("{passed} of {nodes} nodes are proven already"));
        tries += 1;
        match prepare::start(place, looked, true).await {
            // A pod that was lost took its run with it, and its Lease lasts a little longer.
            Err(failure) if failure.code == Code::RunInProgress && tries < TRIES => {
                session.log(Level::Warn, ORCHESTRATION, "", &format!("{}; looking whether it lives", failure.message));
                let abandoned = async { Ok::<_, Failure>(lease::abandoned(place, &inputs.environment).await?) };
                if !unless_stopped(interrupts, abandoned).await? {
                    return Err(failure.into());
                }
            }
            other => break other?,
        }
    };
    session.log(Level::Info, ORCHESTRATION, "", &format!("run {} begins", plan.run));
    conducted(session, traces, &plan, place, argocd, interrupts).await
}

async fn conducted(
    session: &Session,
    traces: &Traces,
    plan: &RunPlan,
    place: &Place,
    argocd: &ArgoCd,
    interrupts: &mut Interrupts,
) -> Result<(RunReport, Exit), Stopped> {
    let mut watcher = Watcher::new(session, traces, plan, ORCHESTRATION);
    let show = |record: &Record| watcher.update(record);
    let say = |text: &str| session.log(Level::Warn, ORCHESTRATION, "", text);
    let who = "an interrupt of the executor";
    let followed = follow::follow(place, plan, Conducted::Here, who, interrupts, show, say);
    match run::here(place, argocd, plan, session.metrics(), None, followed).await {
        Ok(Some(record)) => {
            let exit = record.header.ended.as_ref().map_or(Exit::Partial, |ended| ended.verdict.exit(plan.action));
            Ok((RunReport::new(plan, &record, Timestamp::now()), exit))
        }
        Ok(None) => Err(Stopped::Interrupted),
        Err(failure) => {
            // What became of its nodes is known all the same.
            let kept = records::all(&place.cluster, &place.places.workflows, &plan.environment).await;
            let stored = records::one(kept.unwrap_or_default(), &plan.run);
            let Ok(stored) = stored else { return Err(failure.into()) };
            session.failure(&failure);
            let report = RunReport::ended(plan, &stored.record, Timestamp::now());
            let exit = failure.exit();
            let message = report.message.clone().unwrap_or_else(|| format!("{} {}", failure.code, failure.message));
            Ok((RunReport { exit: Some(exit as u8), message: Some(message), ..report }, exit))
        }
    }
}

/// Does it, unless told to stop.
pub(super) async fn unless_stopped<T>(
    interrupts: &mut Interrupts,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Stopped> {
    tokio::select! {
        done = work => Ok(done?),
        () = interrupts.heard() => Err(Stopped::Interrupted),
    }
}
