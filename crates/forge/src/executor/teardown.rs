//! `executor teardown`: read, look, then remove in reverse in this very process (SPEC.md sections 4 and 5, phase 4). The same code
//! as `forge platform teardown`; what it holds is what whoever started it holds.

use std::cell::RefCell;
use std::path::Path;

use forge_core::code::Code;
use forge_core::executor::{Access, Input, Inputs, Level};
use forge_core::exit::Exit;
use forge_core::failure::Failure;
use forge_core::run::{Record, RunPlan};
use forge_core::teardown::RemovalRecord;
use forge_core::view::{NoRun, RunReport};
use jiff::Timestamp;

use super::deploy::unless_stopped;
use super::session::{READ, Session, TEARDOWN};
use super::watch::Watcher;
use super::{Options, Stopped, desired};
use crate::account;
use crate::argocd::ArgoCd;
use crate::cluster::{Cluster, for_programs};
use crate::install::TIMEOUT;
use crate::interrupt::Interrupts;
use crate::run::lease::{self, Conducted};
use crate::run::{self, follow, prepare};
use crate::teardown::{self, Finished, Found, Made, Primitives, Teardown};
use crate::telemetry::Traces;

/// How often a Lease is tried for that others have.
const TRIES: usize = 3;
/// Where a pod finds the namespace that it is in.
const NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// Removes; gives the report and how it ended.
pub(super) async fn teardown(
    session: &Session,
    traces: &Traces,
    prefix: &str,
    inputs: &Inputs,
    options: &Options,
    interrupts: &mut Interrupts,
) -> Result<(RunReport, Exit), Stopped> {
    let started = Timestamp::now();
    let work = async { Ok::<_, Stopped>(desired::read_to_remove(inputs, options).await?) };
    let made = session.phase(traces, READ, Some(&mut *interrupts), work).await?;
    session.log(Level::Info, READ, "", &format!("{} nodes are in scope {}", made.plan.nodes.len(), made.plan.scope));
    let variable = format!("{prefix}{}", Input::KubeconfigData.variable());
    let cluster = Cluster::reach(&inputs.access, &variable).await?;
    let decided = teardown::Options {
        policy: inputs.pv_policy,
        targets: inputs.release_finalizers.clone(),
        administrator: administrator(options)?,
    };
    let request = Request { session, traces, inputs, made: &made, decided: &decided, variable: &variable, started };
    // It listens to interrupts itself: a run is stopped, not dropped.
    let work = request.carried_out(&cluster, interrupts);
    session.phase(traces, TEARDOWN, None, work).await
}

/// A token of an Argo CD account that may make one of `forge-teardown`, where one is mounted.
fn administrator(options: &Options) -> Result<Option<secrecy::SecretString>, Failure> {
    let file = options.secrets.join("argocd-admin").join("token");
    if file.exists() { account::token_in(&file).map(Some) } else { Ok(None) }
}

struct Request<'r> {
    session: &'r Session,
    traces: &'r Traces,
    inputs: &'r Inputs,
    made: &'r Made,
    decided: &'r teardown::Options,
    variable: &'r str,
    started: Timestamp,
}

impl Request<'_> {
    fn say(&self, level: Level, line: &str) {
        self.session.log(level, TEARDOWN, "", line);
    }

    async fn carried_out(&self, cluster: &Cluster, interrupts: &mut Interrupts) -> Result<(RunReport, Exit), Stopped> {
        let found = self.found(cluster, interrupts).await?;
        let run = if found.seen.has_nodes() { Some(self.planned(&found, interrupts).await?) } else { None };
        if self.inputs.dry_run {
            let nodes = run.as_ref().map_or(0, RunPlan::len);
            self.say(Level::Info, &format!("{nodes} nodes would go"));
            let record = RemovalRecord::new(self.decided.policy.as_str());
            return Ok(teardown::report_without_run(self.made, (record, None), self.started, NoRun::DryRun));
        }
        teardown::permitted(&found, self.made, self.decided.policy).await?;
        let place = &found.place;
        let environment = (&self.made.environment, &found.seen.sets);
        let limits = self.made.plan.timeout;
        let teardown = Teardown::new((&place.cluster, &place.places), environment, self.decided, limits);
        let mut note = |line: &str| self.say(Level::Warn, line);
        let outside = inside(&self.inputs.access).is_none();
        let begun = unless_stopped(interrupts, teardown.begin(&found, self.made, outside, &mut note)).await?;
        let mut ended: Option<(RunPlan, Record)> = None;
        if let Some(run) = run {
            let argocd = ArgoCd::through(&place.cluster, &place.places.workflows).await?;
            let run = prepare::begin(place, run, true).await?;
            self.say(Level::Info, &format!("run {} begins: {} nodes are to go", run.run, run.len()));
            let mut watcher = Watcher::new(self.session, self.traces, &run, TEARDOWN);
            let show = |record: &Record| watcher.update(record);
            let say = |text: &str| self.say(Level::Warn, text);
            let who = "an interrupt of the executor";
            let followed = follow::follow(place, &run, Conducted::Here, who, interrupts, show, say);
            let metrics = self.session.metrics();
            let record = run::here(place, &argocd, &run, metrics, Some(&teardown), followed).await?;
            let Some(record) = record else { return Err(Stopped::Interrupted) };
            ended = Some((run, record));
        }
        let report = ended.as_ref().map(|(run, record)| RunReport::new(run, record, Timestamp::now()));
        let before = ended.as_ref().and_then(|(_, record)| record.header.removal.clone());
        let record = RefCell::new(before.unwrap_or_else(|| RemovalRecord::new(self.decided.policy.as_str())));
        // What comes after the nodes comes only when all of them are gone.
        let mut finished = Finished::Done(None);
        if teardown::all_gone(report.as_ref(), ended.as_ref().map(|(_, record)| record)) {
            let tools = Primitives {
                kubeconfig: &|| for_programs(&self.inputs.access, self.variable),
                helm: None,
                timeout: std::time::Duration::from_secs(TIMEOUT.seconds()),
                inside: inside(&self.inputs.access),
            };
            let run = ended.as_ref().map(|(run, _)| run);
            let mut say = |line: &str| self.say(Level::Info, line);
            let looked = (&found, begun.as_ref());
            finished = teardown::finish(&teardown, looked, (run, &tools), &record, interrupts, &mut say).await?;
        }
        Ok(teardown::reported(self.made, (report, record.into_inner()), finished, self.started))
    }

    /// What there is to remove. A pod that was lost took its run with it, and its Lease lasts a little longer.
    async fn found(&self, cluster: &Cluster, interrupts: &mut Interrupts) -> Result<Found, Stopped> {
        let (workflows, environment) = (self.inputs.workflows_namespace.as_str(), &self.made.environment.name);
        for _ in 1..TRIES {
            let found = unless_stopped(interrupts, teardown::survey(cluster, workflows, self.made)).await?;
            match lease::refuse_a_second(&found.place, environment).await {
                Err(failure) if failure.code == Code::RunInProgress && !self.inputs.dry_run => {
                    self.say(Level::Warn, &format!("{}; looking whether it lives", failure.message));
                    let abandoned = async { Ok::<_, Failure>(lease::abandoned(&found.place, environment).await?) };
                    if !unless_stopped(interrupts, abandoned).await? {
                        return Err(failure.into());
                    }
                }
                Err(failure) if !self.inputs.dry_run => return Err(failure.into()),
                _ => return Ok(found),
            }
        }
        unless_stopped(interrupts, teardown::survey(cluster, workflows, self.made)).await
    }

    async fn planned(&self, found: &Found, interrupts: &mut Interrupts) -> Result<RunPlan, Stopped> {
        let argocd = ArgoCd::through(&found.place.cluster, &found.place.places.workflows).await?;
        let (runner, note) = prepare::runner(&found.place, self.inputs.runner).await?;
        if let Some(note) = note {
            self.say(Level::Warn, note);
        }
        unless_stopped(interrupts, teardown::run(&argocd, self.made, &found.seen, runner)).await
    }
}

/// The namespace that this process runs in, where it is a pod that uses its own account.
fn inside(access: &Access) -> Option<String> {
    if *access != Access::InCluster {
        return None;
    }
    let found = std::fs::read_to_string(Path::new(NAMESPACE)).ok()?;
    Some(found.trim().to_owned()).filter(|namespace| !namespace.is_empty())
}
