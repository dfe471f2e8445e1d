//! The dependency graph of one environment: an order that is stable, cycles that are printed whole.
//!
//! Nodes are applications; a stack is a pair of vertices (its begin, which waits for what the stack depends on, and
//! its end, which waits for every application in it), so that "every app here waits for every app there" costs one edge
//! per application and not their product. Everything is sorted when the graph is built: the order of the input never
//! shows (INV-9). Layers are for people and never decide order (SPEC.md section 3).

mod adjacency;
mod build;
mod cycle;
mod reach;
mod reduce;
mod scope;

use serde::Serialize;

pub use adjacency::NodeIx;
pub use build::{Build, Implicit};
pub use reduce::{Reduced, Task, TaskIx};
pub use scope::{Scope, ScopeError};

use adjacency::{Adjacency, PerVertex, Vertex};

use crate::duration::Duration;
use crate::format::{Health, Reference, Subject};
use crate::gate::{ObjectRef, Retry, Timeouts};
use crate::name::{NodeId, StackName};

/// The stack of the implicit first nodes: Crossplane, `<env>-bootstrap`, `<env>-config`.
pub const SYSTEM_STACK: &str = "forge-system";

/// One application of the graph, with everything that its stack and environment say about it applied.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// Its identity.
    pub id: NodeId,
    /// What it stands for.
    pub subject: Subject,
    /// Its stack.
    pub stack: StackName,
    /// What it waits for by itself, sorted; what its stack waits for comes on top (see [`Graph::awaited`]).
    pub depends_on: Vec<Reference>,
    /// Objects that must exist.
    pub requires: Vec<ObjectRef>,
    /// Objects that must hold.
    pub health: Vec<Health>,
    /// How long it may take.
    pub timeouts: Timeouts,
    /// How a failed sync is tried again.
    pub retry: Retry,
    /// Not in `graph.yaml`, but there because of the layout.
    pub implicit: bool,
}

impl Node {
    /// The longest that this node may take: its sync and its health.
    pub fn budget(&self) -> Duration {
        self.timeouts.sync + self.timeouts.health
    }
}

/// One stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StackNode {
    /// Its name.
    pub name: StackName,
    /// For people and pictures.
    pub layer: Option<u32>,
    /// What every application of it waits for, sorted.
    pub depends_on: Vec<Reference>,
}

/// A graph without cycles, unknown names or duplicates.
#[derive(Debug, Clone)]
pub struct Graph {
    nodes: Vec<Node>,
    stacks: Vec<StackNode>,
    predecessors: Adjacency,
    successors: Adjacency,
    /// All vertices, each after what it waits for.
    order: Vec<Vertex>,
    /// For every vertex, how many applications the longest chain up to it has.
    depth: PerVertex<u32>,
    /// Deadline of a whole run.
    pub timeout: Duration,
}

impl Graph {
    /// All nodes, sorted by identity.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// All stacks, sorted by name.
    pub fn stacks(&self) -> &[StackNode] {
        &self.stacks
    }

    /// A node.
    pub fn node(&self, node: NodeIx) -> &Node {
        adjacency::at(&self.nodes, node)
    }

    /// The node with this identity.
    pub fn find(&self, id: &NodeId) -> Option<NodeIx> {
        self.nodes.binary_search_by(|node| node.id.cmp(id)).ok().map(NodeIx::new)
    }

    /// The wave of a node, from 0: how many applications the longest chain before it has.
    pub fn wave(&self, node: NodeIx) -> usize {
        let depth = self.depth[self.vertex(node)];
        usize::try_from(depth).unwrap_or(usize::MAX).saturating_sub(1)
    }

    /// The nodes in the order in which they may start: by wave, then by identity. Deterministic, and each node comes
    /// after all that it waits for. Read backwards it is the order of teardown (INV-6).
    pub fn order(&self) -> Vec<NodeIx> {
        self.ordered(&self.indexes().collect::<Vec<_>>())
    }

    /// Some nodes in that order.
    pub fn ordered(&self, nodes: &[NodeIx]) -> Vec<NodeIx> {
        let mut nodes = nodes.to_vec();
        nodes.sort_by_cached_key(|node| (self.wave(*node), *node));
        nodes
    }

    /// The waves: a way to look at the graph, not barriers.
    pub fn waves(&self) -> Vec<Vec<NodeIx>> {
        let mut waves: Vec<Vec<NodeIx>> = Vec::new();
        for node in self.indexes() {
            let wave = self.wave(node);
            if waves.len() <= wave {
                waves.resize(wave + 1, Vec::new());
            }
            if let Some(wave) = waves.get_mut(wave) {
                wave.push(node);
            }
        }
        waves
    }

    /// How many nodes the widest wave has.
    pub fn width(&self) -> usize {
        self.waves().iter().map(Vec::len).max().unwrap_or(0)
    }

    /// The chain with the largest sum of budgets (sync and health timeouts): what bounds a run from above.
    pub fn critical_path(&self) -> Vec<NodeIx> {
        self.critical_path_of(&self.indexes().collect::<Vec<_>>())
    }

    /// The same among some nodes; a chain does not pass through others.
    pub fn critical_path_of(&self, nodes: &[NodeIx]) -> Vec<NodeIx> {
        let mut wanted: PerVertex<bool> = PerVertex::filled(self.order.len(), false);
        for node in nodes {
            wanted[self.vertex(*node)] = true;
        }
        let mut best: PerVertex<(u64, Option<Vertex>)> = PerVertex::filled(self.order.len(), (0, None));
        let mut last: Option<(u64, Vertex)> = None;
        for vertex in &self.order {
            if self.node_of(*vertex).is_some() && !wanted[*vertex] {
                continue;
            }
            let before = self
                .predecessors
                .of(*vertex)
                .iter()
                .map(|before| (best[*before].0, *before))
                // The smaller vertex wins a tie, so that the path does not depend on the input's order.
                .max_by_key(|(length, before)| (*length, std::cmp::Reverse(*before)));
            let own = self.node_of(*vertex).map_or(0, |node| self.node(node).budget().seconds());
            let length = before.map_or(0, |(length, _)| length) + own;
            best[*vertex] = (length, before.map(|(_, before)| before));
            if wanted[*vertex]
                && last.is_none_or(|(longest, end)| {
                    (length, std::cmp::Reverse(*vertex)) > (longest, std::cmp::Reverse(end))
                })
            {
                last = Some((length, *vertex));
            }
        }
        let mut path = Vec::new();
        let mut at = last.map(|(_, vertex)| vertex);
        while let Some(vertex) = at {
            path.extend(self.node_of(vertex));
            at = best[vertex].1;
        }
        path.reverse();
        path
    }

    /// Everything that a node waits for as it is written: its own dependencies, then its stack's.
    pub fn awaited(&self, node: NodeIx) -> impl Iterator<Item = &Reference> {
        let node = self.node(node);
        let stack = self.stacks.binary_search_by(|stack| stack.name.cmp(&node.stack)).ok();
        let inherited = stack.and_then(|stack| self.stacks.get(stack)).map_or(&[][..], |stack| &stack.depends_on);
        node.depends_on.iter().chain(inherited)
    }

    /// What a stack waits for, without the stacks that follow from the others: what a picture needs to show.
    pub fn essential_dependencies<'g>(&'g self, stack: &'g StackNode) -> Vec<&'g Reference> {
        let named = |name: &StackName| self.stacks.binary_search_by(|stack| stack.name.cmp(name)).ok();
        let mut implied: Vec<bool> = vec![false; self.stacks.len()];
        let mut open: Vec<usize> = Vec::new();
        let step = |stack: &StackNode, open: &mut Vec<usize>| {
            open.extend(stack.depends_on.iter().filter_map(|reference| match reference {
                Reference::Stack(name) => named(name),
                Reference::Node(_) => None,
            }));
        };
        for reference in &stack.depends_on {
            if let Reference::Stack(name) = reference
                && let Some(other) = named(name).and_then(|other| self.stacks.get(other))
            {
                step(other, &mut open);
            }
        }
        while let Some(next) = open.pop() {
            if let (Some(seen), Some(stack)) = (implied.get_mut(next), self.stacks.get(next))
                && !std::mem::replace(seen, true)
            {
                step(stack, &mut open);
            }
        }
        let follows = |reference: &&Reference| match reference {
            Reference::Stack(name) => named(name).and_then(|stack| implied.get(stack)).copied().unwrap_or(false),
            Reference::Node(_) => false,
        };
        stack.depends_on.iter().filter(|reference| !follows(reference)).collect()
    }

    /// The direct predecessors of a node, stacks resolved to their applications. Sorted.
    pub fn predecessors(&self, node: NodeIx) -> Vec<NodeIx> {
        self.neighbours(node, &self.predecessors)
    }

    /// All node indexes, in the order of identities.
    pub fn indexes(&self) -> impl Iterator<Item = NodeIx> + use<> {
        (0..self.nodes.len()).map(NodeIx::new)
    }

    fn vertex(&self, node: NodeIx) -> Vertex {
        Vertex::node(self.stacks.len(), node)
    }

    fn node_of(&self, vertex: Vertex) -> Option<NodeIx> {
        vertex.as_node(self.stacks.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::DependencyGraph;
    use crate::yaml::{Decoder, Dialect, Limits, read};

    fn graph(stacks: &str) -> Build {
        let text = format!("apiVersion: {}\nkind: DependencyGraph\nspec:\n{stacks}", crate::format::API_VERSION);
        let stream = read(&text, Dialect::Strict, Limits::FILE);
        let mut decoder = Decoder::new("graph.yaml");
        let graph = DependencyGraph::decode(&mut decoder, &stream.documents[0]).unwrap();
        assert!(decoder.is_clean(), "{:?}", decoder.into_findings());
        Graph::build(&graph, "graph.yaml", None, &[])
    }

    fn names(graph: &Graph, nodes: &[NodeIx]) -> Vec<String> {
        nodes.iter().map(|n| graph.node(*n).id.to_string()).collect()
    }

    const TWO_STACKS: &str = "  stacks:
  - name: base
    apps: [{project: a/one}, {project: a/two, dependsOn: [a/one]}]
  - name: empty
    dependsOn: [\"stack:base\"]
  - name: top
    dependsOn: [\"stack:empty\"]
    apps: [{project: b/one, timeouts: {health: 1h}}, {project: b/two}]
";

    #[test]
    fn every_app_of_a_stack_waits_for_every_app_of_its_dependencies_even_through_an_empty_stack() {
        let graph = graph(TWO_STACKS).graph.unwrap();
        assert_eq!(names(&graph, &graph.order()), ["a/one", "a/two", "b/one", "b/two"]);
        let top = graph.find(&"b/two".parse().unwrap()).unwrap();
        assert_eq!(names(&graph, &graph.predecessors(top)), ["a/one", "a/two"]);
        assert_eq!(graph.wave(top), 2);
        assert_eq!(graph.width(), 2);
    }

    #[test]
    fn the_critical_path_is_the_chain_that_may_take_longest() {
        let graph = graph(TWO_STACKS).graph.unwrap();
        assert_eq!(names(&graph, &graph.critical_path()), ["a/one", "a/two", "b/one"]);
    }

    #[test]
    fn a_cycle_through_a_stack_is_printed_whole() {
        let build = graph(
            "  stacks:
  - name: s
    dependsOn: [b/x]
    apps: [{project: a/x}]
  - name: t
    apps: [{project: b/x, dependsOn: [c/x]}, {project: c/x, dependsOn: [\"stack:s\"]}]
",
        );
        assert!(build.graph.is_none());
        let messages: Vec<_> = build.findings.iter().map(|f| f.message.clone()).collect();
        assert_eq!(messages, ["dependency cycle: a/x → stack:s → b/x → c/x → stack:s → a/x"]);
    }

    #[test]
    fn an_empty_graph_has_no_waves_and_no_path() {
        let graph = graph("  stacks: []\n").graph.unwrap();
        assert!(graph.waves().is_empty() && graph.critical_path().is_empty() && graph.width() == 0);
    }
}
