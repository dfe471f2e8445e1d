//! The graph as Mermaid, for pages that draw it.

use std::fmt::Write as _;

use crate::format::Reference;
use crate::graph::{Graph, NodeIx};

/// A flowchart with stacks as subgraphs and the critical path marked.
pub fn mermaid(graph: &Graph, nodes: &[NodeIx]) -> String {
    let mut text = String::from("flowchart LR\n");
    let id = |node: NodeIx| format!("n{}", node.index());
    let critical = graph.critical_path_of(nodes);
    for (s, stack) in graph.stacks().iter().enumerate() {
        let members: Vec<NodeIx> = nodes.iter().copied().filter(|node| graph.node(*node).stack == stack.name).collect();
        if members.is_empty() {
            continue;
        }
        let _ = writeln!(text, "  subgraph s{s}[\"{}\"]", stack.name);
        for node in members {
            let _ = writeln!(text, "    {}[\"{}\"]", id(node), graph.node(node).id);
        }
        text.push_str("  end\n");
    }
    let shown = |stack: &crate::name::StackName| {
        nodes
            .iter()
            .any(|node| graph.node(*node).stack == *stack)
            .then(|| graph.stacks().iter().position(|s| s.name == *stack))
            .flatten()
    };
    let find = |id: &crate::name::NodeId| graph.find(id).filter(|node| nodes.binary_search(node).is_ok());
    for stack in graph.stacks() {
        let Some(to) = shown(&stack.name) else { continue };
        for reference in graph.essential_dependencies(stack) {
            match reference {
                Reference::Stack(from) => {
                    if let Some(from) = shown(from) {
                        let _ = writeln!(text, "  s{from} --> s{to}");
                    }
                }
                Reference::Node(from) => {
                    if let Some(from) = find(from) {
                        let _ = writeln!(text, "  {} --> s{to}", id(from));
                    }
                }
            }
        }
    }
    for node in nodes {
        for reference in &graph.node(*node).depends_on {
            let from = match reference {
                Reference::Node(from) => find(from).map(id),
                Reference::Stack(from) => shown(from).map(|from| format!("s{from}")),
            };
            if let Some(from) = from {
                let _ = writeln!(text, "  {from} --> {}", id(*node));
            }
        }
    }
    if !critical.is_empty() {
        let list: Vec<String> = critical.into_iter().map(id).collect();
        let _ =
            writeln!(text, "  classDef critical stroke:#c2410c,stroke-width:3px\n  class {} critical", list.join(","));
    }
    text
}
