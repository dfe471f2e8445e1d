//! `executor validate`: reads the repository, looks at everything, and says what is true (SPEC.md section 5). Nothing is written
//! to the cluster, and Argo CD is not asked to compare.

use forge_core::code::Code;
use forge_core::executor::{Input, Inputs, Level};
use forge_core::run::Phase;
use forge_core::trace::{Span, SpanStatus};
use forge_core::truth::{Judged, Problem, Standing, ValidationReport};
use jiff::Timestamp;

use super::session::{READ, Session, VALIDATION};
use super::{Options, Stopped, deploy, desired};
use crate::cluster::Cluster;
use crate::commands::selection;
use crate::interrupt::Interrupts;
use crate::telemetry::Traces;
use crate::truth::{Looker, Question, Tip, follow};

/// Validates; gives the report and its page.
pub(super) async fn validate(
    session: &Session,
    traces: &Traces,
    prefix: &str,
    inputs: &Inputs,
    options: &Options,
    interrupts: &mut Interrupts,
) -> Result<(ValidationReport, String), Stopped> {
    let work = async { Ok::<_, Stopped>(desired::read(inputs, options).await?) };
    let desired = session.phase(traces, READ, Some(&mut *interrupts), work).await?;
    let (nodes, commit) = (desired.plan.nodes.len(), &desired.commit);
    let read = inputs.git_repository.value.as_str();
    session.log(Level::Info, READ, "", &format!("{nodes} nodes of {read} at {commit}"));
    let variable = format!("{prefix}{}", Input::KubeconfigData.variable());
    let cluster = Cluster::reach(&inputs.access, &variable).await?;
    let argocd = deploy::mounted(inputs, options).map(|folder| deploy::mounted_argocd(&folder)).transpose()?;
    let tree = desired.files();
    let question = Question {
        usable: desired.usable(),
        files: selection::environment(desired.repository(), inputs.environment.as_str())?,
        graph: &desired.graph,
        nodes: &desired.nodes,
        plan: &desired.plan,
        commit: desired.commit.clone(),
        // It was read a moment ago, at the revision that was named.
        tip: Tip::Given,
        tree: &tree,
        releases: desired.releases(inputs, options)?,
        is_checkout: false,
        workflows: inputs.workflows_namespace.as_str(),
        stale_after: inputs.stale_after,
        allowed: inputs.allowed.clone(),
    };
    let looker = Looker::new(&cluster, question, desired::credentials(options), argocd)?;
    let started = Timestamp::now();
    let judged = if inputs.watch {
        // It listens to interrupts itself, and tells what was true last.
        let work = async {
            let tell = |line: &str, judged: &Judged| {
                session.log(Level::Info, VALIDATION, "", line);
                figures(session, &judged.report);
            };
            follow(&looker, inputs.watch_timeout, interrupts, tell).await?.ok_or(Stopped::Interrupted)
        };
        session.phase(traces, VALIDATION, None, work).await?
    } else {
        let work = async { Ok::<_, Stopped>(looker.look().await?) };
        session.phase(traces, VALIDATION, Some(interrupts), work).await?
    };
    told(session, traces, &judged.report, started);
    let page = looker.page(&judged);
    Ok((judged.report, page))
}

/// Where everything stands, as figures.
fn figures(session: &Session, report: &ValidationReport) {
    for standing in &report.components {
        let phase = match standing.verdict.as_str() {
            "healthy" => Phase::Proven,
            "unhealthy" => Phase::Failed,
            _ => Phase::Proving,
        };
        session.metrics().component(&standing.component, phase);
    }
}

/// Tells everything that is wrong, and every node as a span.
fn told(session: &Session, traces: &Traces, report: &ValidationReport, started: Timestamp) {
    figures(session, report);
    for problem in &report.failures {
        let Problem { component, kind, code, verdict, diagnosis, next, .. } = problem;
        let unhealthy = verdict == "unhealthy";
        let level = if unhealthy { Level::Error } else { Level::Warn };
        session.log(level, VALIDATION, component, &format!("{code} {verdict}, {kind}: {diagnosis}; next: {next}"));
        if let (true, Ok(code)) = (unhealthy, code.parse::<Code>()) {
            session.node_failed(code.class());
        }
    }
    for note in &report.notes {
        session.log(Level::Info, VALIDATION, "", note);
    }
    let parent = session.span(VALIDATION);
    for standing in report.components.iter().filter(|standing| standing.sort == "node") {
        let Standing { component, verdict, detail, application, .. } = standing;
        traces.tell(Span {
            id: parent.below(component),
            parent: Some(parent.clone()),
            name: component.clone(),
            started,
            ended: report.ended,
            attributes: vec![
                ("forge.application", application.clone().unwrap_or_default()),
                ("forge.verdict", verdict.clone()),
            ],
            status: match verdict.as_str() {
                "healthy" => SpanStatus::Done,
                "unhealthy" => SpanStatus::Failed(detail.clone()),
                _ => SpanStatus::Unfinished,
            },
        });
    }
}
