//! The executor at work (SPEC.md section 5): reads its inputs, deploys or removes, and tells of it by report, logs, figures and
//! traces.
//! What the inputs come to is decided in `forge_core::executor`.

mod deploy;
mod desired;
mod gather;
mod phase_one;
mod session;
mod teardown;
mod watch;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use forge_core::code::Code;
use forge_core::executor::{Action, Input, Inputs, Level, resolve};
use forge_core::exit::Exit;
use forge_core::failure::Failure;
use forge_core::finding::{Finding, Place};
use forge_core::run::RunAction;
use forge_core::view::{NoRun, RunReport};
use jiff::Timestamp;

use crate::interrupt::Interrupts;
use crate::metrics::{Metrics, Status};
use crate::output::Output;
use crate::run_report::{Format, document};
use crate::runtime::block_on;
use crate::serve;
use crate::telemetry::{Pushes, Traces, identities};
use session::Session;

/// What the executor is told beside its inputs: where things are.
pub(crate) struct Options {
    /// `environment.yaml`, if it was named.
    pub(crate) config: Option<PathBuf>,
    /// A graph for this run, if it was named.
    pub(crate) dag: Option<PathBuf>,
    /// Where credentials are mounted.
    pub(crate) secrets: PathBuf,
    /// Where figures are served.
    pub(crate) metrics_listen: SocketAddr,
    /// Where the report goes.
    pub(crate) reports: Reports,
}

/// Where the report goes.
pub(crate) struct Reports {
    /// To stdout, in this form.
    pub(crate) stdout: Format,
    /// To files.
    pub(crate) files: [(Format, Option<PathBuf>); 3],
}

/// Why there was no run, or none that could be reported on.
enum Stopped {
    Failed(Failure),
    Interrupted,
}

impl From<Failure> for Stopped {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Does it, whatever it is, and writes the report.
///
/// # Errors
/// When the inputs cannot be used: then nothing was written, and there is no report.
pub(crate) fn run(
    action: Action,
    prefix: &'static str,
    flags: BTreeMap<Input, String>,
    options: &Options,
    output: &mut Output<'_>,
) -> Result<Exit, Failure> {
    let given = gather::given(action, prefix, flags, options)?;
    let mut findings = one_file_each(&options.reports);
    let inputs = match resolve(&given) {
        Ok(inputs) if findings.is_empty() => inputs,
        Ok(_) => return Err(unusable(findings)),
        Err(more) => {
            findings.extend(more);
            return Err(unusable(findings));
        }
    };
    block_on(work(action, prefix, &inputs, options, output))?
}

/// Inputs that cannot be used, all of them.
fn unusable(findings: Vec<Finding>) -> Failure {
    let things = match findings.len() {
        1 => "1 thing is".to_owned(),
        count => format!("{count} things are"),
    };
    // Each is told above it with its own.
    let code = findings.first().map_or(Code::InvalidInput, |finding| finding.code);
    let message = format!("{things} wrong with the inputs; nothing was written");
    Failure { findings, ..Failure::new(code, message) }.hint("docs/reference/executor.md lists all inputs")
}

/// Two reports in one file would be none.
fn one_file_each(reports: &Reports) -> Vec<Finding> {
    let mut findings = Vec::new();
    let named: Vec<&PathBuf> = reports.files.iter().filter_map(|(_, file)| file.as_ref()).collect();
    for (n, file) in named.iter().enumerate() {
        if named.iter().take(n).any(|other| other == file) {
            let message = format!("two reports would be written to `{}`", file.display());
            findings.push(Finding::new(Code::ContradictoryInput, Place::whole("--report-…"), message));
        }
    }
    findings
}

async fn work(
    action: Action,
    prefix: &str,
    inputs: &Inputs,
    options: &Options,
    output: &mut Output<'_>,
) -> Result<Exit, Failure> {
    let started = Timestamp::now();
    let (random, root) = identities();
    let trace = inputs.trace.clone().unwrap_or(random);
    let metrics = Arc::new(Metrics::of_executor());
    let mut traces = Traces::start(inputs.otlp_endpoint.as_ref(), &trace, inputs.environment.as_str());
    let mut pushes = Pushes::start(inputs.metrics_push_url.as_ref(), inputs.environment.as_str(), metrics.clone());
    let session = Session::new(action, inputs, (trace, root), metrics.clone());
    // Figures that nobody can fetch are no reason not to deploy.
    if let Err(failure) = serve::metrics(options.metrics_listen, metrics.clone()).await {
        session.log(Level::Warn, session::ALL, "", &failure.message);
    }
    metrics.status(action.as_str(), session::ALL, Status::Running);
    let mut interrupts = Interrupts::listen();
    let outcome = match action {
        Action::Teardown => teardown::teardown(&session, &traces, prefix, inputs, options, &mut interrupts).await,
        Action::Deploy | Action::Validate => {
            deploy::deploy(&session, &traces, prefix, inputs, options, &mut interrupts).await
        }
    };
    let (report, exit) = match outcome {
        Ok((report, exit)) => (report, exit),
        Err(stopped) => told(&session, action, inputs, stopped, started),
    };
    session.log(Level::Info, session::ALL, "", &format!("{}: {}", report.verdict, report.summary));
    session.ended(&traces, inputs.parent.clone(), started, &report, exit);
    let written = write(&options.reports, &report, output, &session);
    let lost = traces.finish().await;
    if lost > 0 {
        session.log(Level::Warn, session::ALL, "", &format!("{lost} spans did not reach the collector"));
    }
    if let Some(why) = pushes.finish().await {
        session.log(Level::Warn, session::ALL, "", &format!("figures did not reach the Pushgateway: {why}"));
    }
    // A report that is missing must not look like a deployment that went well.
    Ok(if written || exit != Exit::Done { exit } else { Exit::Findings })
}

/// The report where there was no run.
fn told(session: &Session, action: Action, inputs: &Inputs, stopped: Stopped, started: Timestamp) -> (RunReport, Exit) {
    let (verdict, exit, message) = match stopped {
        Stopped::Failed(failure) => {
            session.failure(&failure);
            let hint = failure.hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default();
            (NoRun::Failed, failure.exit(), format!("{} {}{hint}", failure.code, failure.message))
        }
        Stopped::Interrupted => {
            session.log(Level::Warn, session::ALL, "", "told to stop before there was a run");
            let message = "told to stop before there was a run; what was begun goes on when it is started again";
            (NoRun::Cancelled, Exit::Partial, message.to_owned())
        }
    };
    let scope = inputs.scope.to_string();
    let times = (started, Timestamp::now());
    let action = if action == Action::Teardown { RunAction::Teardown } else { RunAction::Deploy };
    (RunReport::without_run(action, inputs.environment.as_str(), &scope, verdict, exit, &message, times), exit)
}

/// Writes the report everywhere; true where all of it could be written.
fn write(reports: &Reports, report: &RunReport, output: &mut Output<'_>, session: &Session) -> bool {
    let mut failures: Vec<Failure> = Vec::new();
    failures.extend(output.data(&document(reports.stdout, report)).err());
    for (format, file) in &reports.files {
        let Some(file) = file else { continue };
        let written = std::fs::write(file, document(*format, report));
        failures.extend(written.err().map(|error| Failure::write(format!("`{}`", file.display()), &error)));
    }
    for failure in &failures {
        session.failure(failure);
    }
    failures.is_empty()
}
