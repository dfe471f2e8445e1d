//! The graph as DOT, for Graphviz.

use std::fmt::Write as _;

use crate::graph::{Graph, NodeIx, Task};

/// A digraph of the reduced edges, with stacks as clusters and the critical path marked.
pub fn dot(graph: &Graph, nodes: &[NodeIx]) -> String {
    let mut text = String::from("digraph forge {\n  rankdir=LR;\n  node [shape=box, fontname=\"sans-serif\"];\n");
    let critical = graph.critical_path_of(nodes);
    for (s, stack) in graph.stacks().iter().enumerate() {
        let members: Vec<NodeIx> = nodes.iter().copied().filter(|node| graph.node(*node).stack == stack.name).collect();
        if members.is_empty() {
            continue;
        }
        let _ = writeln!(text, "  subgraph cluster_{s} {{\n    label=\"{}\";", stack.name);
        for node in members {
            let mark = if critical.contains(&node) { " [color=\"#c2410c\", penwidth=3]" } else { "" };
            let _ = writeln!(text, "    \"{}\"{mark};", graph.node(node).id);
        }
        text.push_str("  }\n");
    }
    let reduced = graph.reduced(nodes);
    let name = |task: &Task| match task {
        Task::Node(node) => graph.node(*node).id.to_string(),
        Task::Begin(stack) => format!("begin {}", graph.stacks().get(*stack).map_or("", |s| s.name.as_str())),
        Task::End(stack) => format!("end {}", graph.stacks().get(*stack).map_or("", |s| s.name.as_str())),
    };
    for (task, before) in &reduced.tasks {
        for awaited in before {
            if let Some((from, _)) = reduced.tasks.get(awaited.index()) {
                let _ = writeln!(text, "  \"{}\" -> \"{}\";", name(from), name(task));
            }
        }
    }
    text.push_str("}\n");
    text
}
