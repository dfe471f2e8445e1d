//! `forge graph`

use std::fmt::Write as _;

use clap::{Args, ValueEnum};
use forge_core::graph::{Graph, NodeIx};
use forge_core::render;
use serde_json::json;

use super::selection;
use crate::cli::Global;
use crate::output::{Output, Paint};
use forge_core::exit::Exit;
use forge_core::failure::Failure;

/// Show the dependency graph: nodes, waves, critical path, width
///
/// Waves are a way to look at the graph, not barriers: a run starts a node as soon as all that it waits for is proven.
/// The critical path is the chain with the largest sum of timeouts.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The graph of this environment, with its overrides and first nodes; graph.yaml alone if absent
    #[arg(long, short, env = "FORGE_ENVIRONMENT")]
    environment: Option<String>,
    /// How to write it
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,
    /// Only this application or stack and what waits for it
    #[arg(long, value_name = "NODE")]
    from: Option<String>,
    /// Only this application or stack and what it waits for
    #[arg(long, value_name = "NODE")]
    to: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs
    Json,
    /// A Mermaid flowchart
    Mermaid,
    /// For Graphviz
    Dot,
    /// A picture
    Svg,
}

pub(crate) fn run(global: &Global, arguments: &Arguments, output: &mut Output<'_>) -> Result<Exit, Failure> {
    let usable = selection::repository(global)?;
    let repository = &usable.repository;
    let files = arguments
        .environment
        .as_deref()
        .filter(|name| !name.is_empty())
        .map(|name| selection::environment(repository, name))
        .transpose()?;
    let graph = selection::graph(repository, files)?;
    let name = files.map(|files| &files.environment.name.value);
    let mut nodes: Vec<NodeIx> = graph.indexes().collect();
    if let Some(to) = &arguments.to {
        let wanted = graph.with_predecessors(&graph.select(to, name)?);
        nodes.retain(|node| wanted.binary_search(node).is_ok());
    }
    if let Some(from) = &arguments.from {
        let wanted = graph.with_successors(&graph.select(from, name)?);
        nodes.retain(|node| wanted.binary_search(node).is_ok());
    }
    let rendered = match arguments.output {
        Format::Text => text(&graph, &nodes, output),
        Format::Json => json(&graph, &nodes),
        Format::Mermaid => render::mermaid(&graph, &nodes),
        Format::Dot => render::dot(&graph, &nodes),
        Format::Svg => render::svg(&graph, &nodes),
    };
    output.data(&rendered)?;
    usable.note(output);
    Ok(Exit::Done)
}

fn waves(graph: &Graph, nodes: &[NodeIx]) -> Vec<Vec<NodeIx>> {
    let mut waves = graph.waves();
    for wave in &mut waves {
        wave.retain(|node| nodes.binary_search(node).is_ok());
    }
    waves
}

fn text(graph: &Graph, nodes: &[NodeIx], output: &Output<'_>) -> String {
    let waves = waves(graph, nodes);
    let critical = graph.critical_path_of(nodes);
    let width = waves.iter().map(Vec::len).max().unwrap_or(0);
    let bound: forge_core::duration::Duration = critical.iter().map(|node| graph.node(*node).budget()).sum();
    let widest = |lengths: &mut dyn Iterator<Item = usize>| lengths.max().unwrap_or(0).clamp(8, 40);
    let id_width = widest(&mut nodes.iter().map(|node| graph.node(*node).id.as_str().len()));
    let stack_width = widest(&mut nodes.iter().map(|node| graph.node(*node).stack.as_str().len()));
    let implicit = nodes.iter().filter(|node| graph.node(**node).implicit).count();
    let mut text = String::new();
    for (number, wave) in waves.iter().enumerate().filter(|(_, wave)| !wave.is_empty()) {
        let _ = writeln!(text, "{}", output.paint(Paint::Strong, &format!("wave {number}")));
        for ix in wave {
            let on_path = critical.contains(ix);
            let node = graph.node(*ix);
            let mark = if on_path { "*" } else { " " };
            let id = format!("{:<id_width$}", node.id.as_str());
            let id = if on_path { output.paint(Paint::Busy, &id) } else { id };
            let waits = selection::waits_for(graph.awaited(*ix), 98_usize.saturating_sub(id_width + stack_width + 6));
            let line = format!("  {mark} {id} {:<stack_width$} {waits}", node.stack.as_str());
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }
    let _ = writeln!(
        text,
        "\n{} applications{} in {} waves, at most {width} at once",
        nodes.len() - implicit,
        if implicit == 0 { String::new() } else { format!(" and {implicit} first nodes of Forge's own") },
        waves.iter().filter(|wave| !wave.is_empty()).count()
    );
    if !critical.is_empty() {
        let path: Vec<&str> = critical.iter().map(|node| graph.node(*node).id.as_str()).collect();
        let _ = writeln!(text, "critical path (*): {} nodes, at most {bound}\n{}", path.len(), selection::chain(&path));
    }
    text
}

fn json(graph: &Graph, nodes: &[NodeIx]) -> String {
    let critical = graph.critical_path_of(nodes);
    let id = |node: &NodeIx| &graph.node(*node).id;
    let listed: Vec<_> = nodes
        .iter()
        .map(|node| {
            let mut value = json!(graph.node(*node));
            if let Some(fields) = value.as_object_mut() {
                fields.insert("wave".to_owned(), json!(graph.wave(*node)));
                fields.insert(
                    "predecessors".to_owned(),
                    json!(
                        graph
                            .predecessors(*node)
                            .iter()
                            .filter(|p| nodes.binary_search(p).is_ok())
                            .map(id)
                            .collect::<Vec<_>>()
                    ),
                );
                fields.insert("critical".to_owned(), json!(critical.contains(node)));
            }
            value
        })
        .collect();
    let waves = waves(graph, nodes);
    let value = json!({
        "nodes": listed,
        "stacks": graph.stacks(),
        "waves": waves.iter().map(|wave| wave.iter().map(id).collect::<Vec<_>>()).collect::<Vec<_>>(),
        "width": waves.iter().map(Vec::len).max().unwrap_or(0),
        "criticalPath": critical.iter().map(id).collect::<Vec<_>>(),
        "timeout": graph.timeout,
    });
    format!("{value:#}\n")
}
