//! `forge history`

use std::fmt::Write as _;

use clap::{Args, ValueEnum};
use forge_core::duration::Duration;
use forge_core::exit::Exit;
use forge_core::failure::Failure;
use forge_core::run::StoredRun;
use forge_core::view::{self, RunReport, Seen, shown};
use jiff::Timestamp;
use serde_json::json;

use super::look::{Look, LookArguments};
use crate::cli::Global;
use crate::cluster::Cluster;
use crate::output::{Output, Paint};
use crate::{records, runtime};

/// List the runs of an environment that are kept, the newest first
///
/// The last 20 are, and the newest of the whole platform. `forge status --run RUN` shows one of them. One without an end that nobody
/// conducts is `stale`: deploying again goes on from there.
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
    let mut look = Look::new(global, &arguments.look)?;
    let workflows = arguments.look.cluster.workflows_namespace.as_str();
    let (stored, holder) = runtime::block_on(async {
        let cluster = Cluster::connect(&arguments.look.cluster).await?;
        let stored = records::all(&cluster, workflows, &look.environment).await?;
        let is_open = stored.runs.iter().any(|run| run.record.header.ended.is_none());
        // Nobody conducts a run that has ended.
        let holder = if is_open { look.holder(&cluster, workflows).await? } else { Seen::Absent };
        Ok::<_, Failure>((stored, holder))
    })??;
    let now = Timestamp::now();
    let report = |StoredRun { plan, record, .. }: &StoredRun| RunReport {
        verdict: view::verdict(&record.header, holder.as_ref(), now).to_owned(),
        ..RunReport::new(plan, record, now)
    };
    let reports: Vec<RunReport> = stored.runs.iter().map(report).collect();
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
    for note in &look.notes {
        output.say(&format!("\nnote: {}", shown(note)));
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

/// What a line may take.
const LINE: usize = 100;

fn text(reports: &[RunReport], output: &Output<'_>) -> String {
    let widest = |cell: fn(&RunReport) -> String, least: usize| {
        reports.iter().map(|report| cell(report).chars().count()).max().unwrap_or(0).max(least)
    };
    let (width, took) = (widest(|report| report.run.clone(), 3), widest(took, 4));
    let counts = widest(proven, 6);
    let mut text = format!(
        "{:<width$}  {:<20}  {:>took$}  {:<9}  {:>counts$}  {:<7}  scope\n",
        "run", "began", "took", "verdict", "proven", "commit"
    );
    for report in reports {
        let line =
            format!("{:<width$}  {}  {:>took$}", report.run, report.started.strftime("%FT%TZ"), self::took(report));
        let verdict = format!("{:<9}", report.verdict);
        let commit = report.commit.as_deref().and_then(|commit| commit.get(..7)).unwrap_or("-");
        let rest = format!("{:>counts$}  {commit:<7}", proven(report));
        let used: usize = [&line, &verdict, &rest].iter().map(|part| part.chars().count() + 2).sum();
        let scope = cut(&report.scope, LINE.saturating_sub(used));
        let verdict = output.paint(paint(report), &verdict);
        let line = format!("{line}  {verdict}  {rest}  {scope}");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    if reports.iter().any(|report| report.statistics.failed + report.statistics.blocked > 0) {
        text.push_str("\nproven: of all nodes, -failed -blocked\n");
    }
    text
}

fn took(report: &RunReport) -> String {
    Duration::from_seconds(report.statistics.makespan_seconds).to_string()
}

fn proven(report: &RunReport) -> String {
    let s = &report.statistics;
    let mut proven = format!("{}/{}", s.proven, s.nodes);
    if s.failed + s.blocked > 0 {
        let _ = write!(proven, " -{} -{}", s.failed, s.blocked);
    }
    proven
}

fn paint(report: &RunReport) -> Paint {
    match report.verdict.as_str() {
        "done" => Paint::Good,
        "running" | "stale" | "cancelled" => Paint::Busy,
        _ => Paint::Bad,
    }
}

/// A text that fits; where something is missing it ends in a mark.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(width.saturating_sub(1)).collect();
    if width > 0 {
        cut.push('…');
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(run: &str, scope: &str, verdict: &str, failed: usize) -> RunReport {
        serde_json::from_value(json!({
            "run": run, "environment": "production", "scope": scope, "plan": "sha256:0", "runner": "plugin",
            "commit": "3f2a9c1d5e7b80416a2c9d3e5f70b1a4c6d8e9f0", "verdict": verdict, "summary": "",
            "started": "2026-11-16T10:00:00Z", "failures": [], "components": [],
            "statistics": {
                "nodes": 46, "proven": 46 - failed, "synced": 1, "unchanged": 1, "failed": failed, "blocked": 0,
                "unfinished": 0, "retries": 0, "makespanSeconds": 4521, "resubmitted": 0, "agentsReplaced": 0,
                "slowest": [],
            },
        }))
        .unwrap()
    }

    fn told(reports: &[RunReport]) -> String {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        text(reports, &Output::new(&mut out, &mut err, true))
    }

    #[test]
    fn with_real_names_a_line_takes_no_more_than_100_columns_and_the_run_is_whole() {
        let told = told(&[
            report("production-0123456789-3", "platform", "done", 0),
            report("production-0123456789-12", "app:catalog/ceph-cluster-with-a-long-name", "timed out", 11),
        ]);
        assert!(told.lines().all(|line| line.chars().count() <= 100), "{told}");
        let lines: Vec<&str> = told.lines().collect();
        assert!(lines[1].starts_with("production-0123456789-3   2026-11-16T10:00:00Z  1h15m21s  done "), "{told}");
        assert!(lines[1].ends_with("  46/46  3f2a9c1  platform"), "{told}");
        assert!(lines[2].ends_with("  timed out  35/46 -11 -0  3f2a9c1  app:cat…"), "{told}");
    }

    #[test]
    fn what_fits_is_not_cut() {
        assert_eq!((cut("platform", 8), cut("platform", 7)), ("platform".to_owned(), "platfo…".to_owned()));
        assert_eq!((cut("platform", 1), cut("platform", 0)), ("…".to_owned(), String::new()));
    }
}
