//! The executor at work (SPEC.md section 5): reads its inputs, deploys, validates or removes, and tells of it by report, logs,
//! figures and traces.
//! What the inputs come to is decided in `forge_core::executor`.

mod deploy;
mod desired;
mod gather;
mod phase_one;
mod session;
mod teardown;
mod validate;
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
use forge_core::truth::ValidationReport;
use forge_core::view::{NoRun, RunReport};
use jiff::Timestamp;

use crate::interrupt::Interrupts;
use crate::metrics::{Metrics, Status};
use crate::output::Output;
use crate::run_report::{Format, document, validation};
use crate::runtime::block_on;
use crate::serve;
use crate::telemetry::{Pushes, Traces, identities};
use session::{Ending, Session};

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
    /// As a page, to a file.
    pub(crate) page: Option<PathBuf>,
}

/// What came of it.
enum Came {
    /// A run, or why there was none.
    Run(Box<RunReport>),
    /// What is true, and its page where something was seen.
    Truth(Box<ValidationReport>, Option<String>),
}

impl Came {
    fn ending(&self) -> Ending<'_> {
        match self {
            Self::Run(report) => Ending {
                run: &report.run,
                verdict: &report.verdict,
                summary: &report.summary,
                message: report.message.as_deref(),
            },
            Self::Truth(report, _) => Ending {
                run: "",
                verdict: &report.verdict,
                summary: &report.summary,
                message: report.message.as_deref(),
            },
        }
    }

    fn document(&self, format: Format) -> String {
        match self {
            Self::Run(report) => document(format, report),
            Self::Truth(report, _) => validation(format, report),
        }
    }
}

/// Why there was no run, or none that could be reported on.
enum Stopped {
    Failed(Failure),
    /// The cluster is not ready; what was found is in the log already.
    Unready(Failure),
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
    let named = reports.files.iter().filter_map(|(_, file)| file.as_ref()).chain(&reports.page);
    let named: Vec<&PathBuf> = named.collect();
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
        Action::Validate => {
            let seen = validate::validate(&session, &traces, prefix, inputs, options, &mut interrupts).await;
            seen.map(|(report, page)| {
                let exit = report.exit();
                (Came::Truth(Box::new(report), Some(page)), exit)
            })
        }
        Action::Deploy => {
            let deployed = deploy::deploy(&session, &traces, prefix, inputs, options, &mut interrupts).await;
            deployed.map(|(report, exit)| (Came::Run(Box::new(report)), exit))
        }
        Action::Teardown => {
            let removed = teardown::teardown(&session, &traces, prefix, inputs, options, &mut interrupts).await;
            removed.map(|(report, exit)| (Came::Run(Box::new(report)), exit))
        }
    };
    let (came, exit) = outcome.unwrap_or_else(|stopped| told(&session, action, inputs, stopped, started));
    let ending = came.ending();
    session.log(Level::Info, session::ALL, "", &format!("{}: {}", ending.verdict, ending.summary));
    session.ended(&traces, inputs.parent.clone(), started, &ending, exit);
    let written = write(&options.reports, &came, output, &session);
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

/// The report where there was no run, or nothing was looked at.
fn told(session: &Session, action: Action, inputs: &Inputs, stopped: Stopped, started: Timestamp) -> (Came, Exit) {
    let validates = action == Action::Validate;
    let failed = |failure: Failure| {
        let hint = failure.hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default();
        let message = format!("{} {}{hint}", failure.code, failure.message);
        (NoRun::Failed, failure.exit(), message, failure.findings)
    };
    let (verdict, exit, message, findings) = match stopped {
        Stopped::Failed(failure) => {
            session.failure(&failure);
            failed(failure)
        }
        Stopped::Unready(failure) => {
            session.failed(&failure);
            failed(failure)
        }
        Stopped::Interrupted if validates => {
            session.log(Level::Warn, session::ALL, "", "told to stop before everything was seen");
            (NoRun::Cancelled, Exit::Partial, "told to stop before everything was seen".to_owned(), Vec::new())
        }
        Stopped::Interrupted => {
            session.log(Level::Warn, session::ALL, "", "told to stop before there was a run");
            let message = "told to stop before there was a run; what was begun goes on when it is started again";
            (NoRun::Cancelled, Exit::Partial, message.to_owned(), Vec::new())
        }
    };
    let (environment, scope) = (inputs.environment.as_str(), inputs.scope.to_string());
    let times = (started, Timestamp::now());
    let came = if validates {
        let verdict = if verdict == NoRun::Cancelled { "cancelled" } else { "failed" };
        let report = ValidationReport::nothing(environment, &scope, (verdict, exit), &message, times);
        Came::Truth(Box::new(report.because(&findings)), None)
    } else {
        let action = if action == Action::Teardown { RunAction::Teardown } else { RunAction::Deploy };
        let report = RunReport::without_run(action, environment, &scope, verdict, exit, &message, times);
        Came::Run(Box::new(report.because(&findings)))
    };
    (came, exit)
}

/// Writes the report everywhere; true where all of it could be written.
fn write(reports: &Reports, came: &Came, output: &mut Output<'_>, session: &Session) -> bool {
    let mut failures: Vec<Failure> = Vec::new();
    failures.extend(output.data(&came.document(reports.stdout)).err());
    let files = reports.files.iter().filter_map(|(format, file)| Some((file.as_ref()?, came.document(*format))));
    let page = match came {
        Came::Truth(_, Some(page)) => reports.page.as_ref().map(|file| (file, page.clone())),
        _ => None,
    };
    for (file, text) in files.chain(page) {
        let written = std::fs::write(file, text);
        failures.extend(written.err().map(|error| Failure::write(format!("`{}`", file.display()), &error)));
    }
    for failure in &failures {
        session.failure(failure);
    }
    failures.is_empty()
}
