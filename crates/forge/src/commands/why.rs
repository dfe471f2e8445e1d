//! `forge why`

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use clap::{Args, ValueEnum};
use forge_core::code::Code;
use forge_core::exit::Exit;
use forge_core::failure::Failure;
use forge_core::gate::RunId;
use forge_core::graph::Graph;
use forge_core::name::{ApplicationId, EnvironmentName, NodeId, clip};
use forge_core::run::{Phase, StoredRun};
use forge_core::view::{self, ApplicationFacts, Chain, between};
use jiff::Timestamp;

use super::look::{self, Look, LookArguments};
use crate::cli::Global;
use crate::cluster::Cluster;
use crate::output::{Output, Paint};
use crate::{records, runtime};

/// Say what keeps an application: what it waits for, down to the cause, and what to do next
///
/// The chain is the shortest one to a node that is itself not proven while all before it are. Reads only. Without a record
/// of a run the graph of a checkout and Argo CD's own words must do. Exit code 0 means that there is an answer.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// repo/project, a unique suffix of it, or the Argo CD name
    #[arg(value_name = "APP")]
    app: String,
    #[command(flatten)]
    look: LookArguments,
    /// The run that is asked about; the newest one that has the application if absent
    #[arg(long)]
    run: Option<RunId>,
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
    let (chain, run) = runtime::block_on(gather(&mut look, arguments))??;
    let rendered = match arguments.output {
        Format::Text => text(&chain, run.as_ref(), Timestamp::now(), output),
        Format::Json => {
            let value =
                serde_json::json!({"environment": look.environment, "run": run, "chain": chain, "notes": look.notes});
            format!("{value:#}\n")
        }
    };
    output.data(&rendered)?;
    for note in &look.notes {
        output.say(&format!("\nnote: {}", view::shown(note)));
    }
    Ok(Exit::Done)
}

/// The node that a name means in a graph.
fn named(graph: &Graph, name: &str, environment: &EnvironmentName) -> Result<NodeId, Failure> {
    let found = graph.select(name, Some(environment))?;
    match found.as_slice() {
        [node] => Ok(graph.node(*node).id.clone()),
        _ => Err(Failure::new(Code::BadArgument, format!("`{}` is a stack; name one application", clip(name)))
            .hint("`forge status` shows all of them")),
    }
}

async fn gather(look: &mut Look, arguments: &Arguments) -> Result<(Chain, Option<RunId>), Failure> {
    let cluster = Cluster::connect(&arguments.look.cluster).await?;
    let stored = look.runs(&cluster, &arguments.look.cluster.workflows_namespace).await?;
    let runs = match &arguments.run {
        Some(run) => vec![records::one(stored, run)?],
        None => match stored.newest_is_broken() {
            Some(broken) => return Err(records::unusable(broken)),
            None => stored.runs,
        },
    };
    let found = match of_a_run(&runs, &arguments.app, &look.environment) {
        // It may have come into the graph since.
        Err(failure) if failure.code == Code::UnknownName && look.checkout.is_some() => None,
        other => other?,
    };
    match found {
        Some((run, node)) => {
            look.notes.extend(run.notes.iter().cloned());
            let applications = run.plan.nodes().map(|node| (node.id.clone(), node.application.clone())).collect();
            let facts = facts(look, &cluster, &applications).await?;
            let chain = view::why(&run.plan, &run.record, &node, &facts).ok_or_else(|| look.nothing_known())?;
            Ok((chain, Some(run.plan.run.clone())))
        }
        None => {
            let Some(checkout) = &look.checkout else { return Err(look.nothing_known()) };
            let node = named(&checkout.graph, &arguments.app, &look.environment)?;
            let facts = facts(look, &cluster, &checkout.applications).await?;
            let chain = view::why_live(&checkout.graph, &checkout.applications, &node, &facts);
            Ok((chain.ok_or_else(|| look.nothing_known())?, None))
        }
    }
}

/// The newest run that has such a node. Where none has it, the answer of the newest run is the error, unless there is no
/// run at all.
fn of_a_run<'r>(
    runs: &'r [StoredRun],
    name: &str,
    environment: &EnvironmentName,
) -> Result<Option<(&'r StoredRun, NodeId)>, Failure> {
    let mut first: Option<Failure> = None;
    for run in runs {
        let Some(graph) = view::graph(&run.plan) else { continue };
        match named(&graph, name, environment) {
            Ok(node) => return Ok(Some((run, node))),
            Err(failure) if failure.code == Code::AmbiguousName => return Err(failure),
            Err(failure) => first = first.or(Some(failure)),
        }
    }
    match first {
        Some(failure) => Err(failure),
        None => Ok(None),
    }
}

async fn facts(
    look: &Look,
    cluster: &Cluster,
    applications: &BTreeMap<NodeId, ApplicationId>,
) -> Result<BTreeMap<NodeId, ApplicationFacts>, Failure> {
    let wanted: BTreeSet<ApplicationId> = applications.values().cloned().collect();
    let mut seen = look::applications(cluster, &look.argocd, &wanted).await?;
    Ok(applications.iter().filter_map(|(id, app)| Some((id.clone(), seen.found.remove(app)?))).collect())
}

fn text(chain: &Chain, run: Option<&RunId>, now: Timestamp, output: &Output<'_>) -> String {
    let mut text = String::new();
    let width = chain.links.iter().map(|link| link.node.as_str().len()).max().unwrap_or(0).clamp(8, 40);
    let phases = chain.links.iter().map(|link| link.phase.map_or(0, |phase| phase.as_str().len()));
    let words = phases.max().unwrap_or(0).max(8);
    for (step, link) in chain.links.iter().enumerate() {
        let phase = link.phase.map_or("", Phase::as_str);
        let paint = match link.phase {
            Some(Phase::Failed) => Paint::Bad,
            Some(Phase::Proven | Phase::Gone) => Paint::Good,
            _ => Paint::Busy,
        };
        let arrow = if step == 0 { "  " } else { "→ " };
        let phase = output.paint(paint, &format!("{phase:<words$}"));
        let line = format!("{arrow}{:<width$}  {phase}  {}", link.node.as_str(), link.detail);
        let _ = writeln!(text, "{}", line.trim_end());
        let mut more = |what: &str, value: String| {
            let _ = writeln!(text, "  {:<width$}  {what:<words$}  {value}", "");
        };
        if step + 1 < chain.links.len() && link.live.is_none() {
            continue;
        }
        if let Some(since) = link.since {
            more("since", format!("{} ({} ago)", since.strftime("%FT%TZ"), between(since, now)));
        }
        if let Some(resource) = &link.resource {
            more("resource", resource.clone());
        }
        if let Some(live) = &link.live {
            let word = |word: &Option<String>| word.clone().unwrap_or_else(|| "unknown".to_owned());
            more("Argo CD", format!("{}, {}", word(&live.sync), word(&live.health)));
            for unwell in &live.unwell {
                more("", format!("{} {} {}", unwell.resource, unwell.health, unwell.message).trim_end().to_owned());
            }
            for condition in &live.conditions {
                more("", condition.clone());
            }
            if let Some(operation) = &live.operation {
                more("", format!("an operation runs, {operation}"));
            }
        }
    }
    if !chain.others.is_empty() {
        let names: Vec<&str> = chain.others.iter().map(NodeId::as_str).take(8).collect();
        let more = chain.others.len().saturating_sub(8);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let _ = writeln!(text, "\nalso in the way: {}{more}", names.join(", "));
    }
    let _ = writeln!(text, "\nnext: {}", chain.next);
    let _ = match run {
        Some(run) => writeln!(text, "told by run {run}"),
        None => writeln!(text, "told by Argo CD alone; no run has this node"),
    };
    text
}
