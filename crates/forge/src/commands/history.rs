//! `forge history`

use std::fmt::Write as _;

use clap::{Args, ValueEnum};
use forge_core::exit::Exit;
use forge_core::failure::Failure;
use forge_core::run::StoredRun;
use forge_core::view::{RunReport, shown};
use jiff::Timestamp;
use serde_json::json;

use super::look::{Look, LookArguments};
use crate::cli::Global;
use crate::cluster::Cluster;
use crate::output::{Output, Paint};
use crate::{records, runtime};

/// List the runs of an environment that are kept, the newest first
///
/// The last 20 are. `forge status --run RUN` shows one of them.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    look: LookArguments,
    /// How to write it
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs
    Json,
}

pub(crate) fn run(global: &Global, arguments: &Arguments, output: &mut Output<'_>) -> Result<Exit, Failure> {
    let look = Look::new(global, &arguments.look)?;
    let stored = runtime::block_on(async {
        let cluster = Cluster::connect(&arguments.look.cluster).await?;
        Ok::<_, Failure>(records::all(&cluster, &arguments.look.cluster.workflows_namespace, &look.environment).await?)
    })??;
    let now = Timestamp::now();
    let reports: Vec<RunReport> =
        stored.runs.iter().map(|StoredRun { plan, record, .. }| RunReport::new(plan, record, now)).collect();
    match arguments.output {
        Format::Text if reports.is_empty() && stored.broken.is_empty() => {
            output.say(&format!("no run of environment {} is recorded", look.environment));
        }
        Format::Text => {
            let text = text(&reports, output);
            output.data(&text)?;
        }
        Format::Json => {
            let broken: Vec<_> = stored
                .broken
                .iter()
                .map(|broken| json!({"run": broken.run, "started": broken.started, "why": broken.why}))
                .collect();
            let runs: Vec<_> = reports.iter().map(line).collect();
            output
                .data(&format!("{:#}\n", json!({"environment": look.environment, "runs": runs, "broken": broken})))?;
        }
    }
    for broken in &stored.broken {
        output.say(&format!("\nnote: the record of run `{}` cannot be used: {}", broken.run, shown(&broken.why)));
    }
    Ok(Exit::Done)
}

/// A run without its nodes.
fn line(report: &RunReport) -> serde_json::Value {
    json!({
        "run": report.run,
        "scope": report.scope,
        "commit": report.commit,
        "started": report.started,
        "ended": report.ended,
        "verdict": report.verdict,
        "exit": report.exit,
        "statistics": report.statistics,
    })
}

fn text(reports: &[RunReport], output: &Output<'_>) -> String {
    let width = reports.iter().map(|report| report.run.len()).max().unwrap_or(0).clamp(3, 28);
    let mut text = format!(
        "{:<width$}  {:<20}  {:>8}  {:<9}  {:>14}  {:<7}  scope\n",
        "run", "began", "took", "verdict", "proven", "commit"
    );
    for report in reports {
        let s = &report.statistics;
        let mut proven = format!("{}/{}", s.proven, s.nodes);
        if s.failed + s.blocked > 0 {
            let _ = write!(proven, " -{} -{}", s.failed, s.blocked);
        }
        let paint = match report.verdict.as_str() {
            "done" => Paint::Good,
            "running" | "cancelled" => Paint::Busy,
            _ => Paint::Bad,
        };
        let took = forge_core::duration::Duration::from_seconds(s.makespan_seconds).to_string();
        let verdict = output.paint(paint, &format!("{:<9}", report.verdict));
        let commit = report.commit.as_deref().and_then(|commit| commit.get(..7)).unwrap_or("-");
        let began = report.started.strftime("%FT%TZ");
        let scope: String = report.scope.chars().take(30).collect();
        let _ =
            writeln!(text, "{:<width$}  {began}  {took:>8}  {verdict}  {proven:>14}  {commit:<7}  {scope}", report.run);
    }
    if reports.iter().any(|report| report.statistics.failed + report.statistics.blocked > 0) {
        text.push_str("\nproven: of all nodes, -failed -blocked\n");
    }
    text
}
