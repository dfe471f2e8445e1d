//! What is before and after a node.

use std::collections::BTreeSet;

use super::adjacency::{Adjacency, NodeIx, PerVertex};
use super::{Graph, Vertex};

impl Graph {
    /// The nodes themselves and everything that they wait for, directly or not. Sorted.
    pub fn with_predecessors(&self, of: &[NodeIx]) -> Vec<NodeIx> {
        self.closure(of, &self.predecessors)
    }

    /// The nodes themselves and everything that waits for them, directly or not. Sorted.
    pub fn with_successors(&self, of: &[NodeIx]) -> Vec<NodeIx> {
        self.closure(of, &self.successors)
    }

    fn closure(&self, of: &[NodeIx], adjacency: &Adjacency) -> Vec<NodeIx> {
        let mut seen: PerVertex<bool> = PerVertex::filled(self.order.len(), false);
        let mut open: Vec<Vertex> = of.iter().map(|node| self.vertex(*node)).collect();
        for vertex in &open {
            seen[*vertex] = true;
        }
        while let Some(vertex) = open.pop() {
            for next in adjacency.of(vertex) {
                if !seen[*next] {
                    seen[*next] = true;
                    open.push(*next);
                }
            }
        }
        self.indexes().filter(|node| seen[self.vertex(*node)]).collect()
    }

    /// The nodes that an edge joins to this one, through begins and ends of stacks.
    pub(super) fn neighbours(&self, node: NodeIx, adjacency: &Adjacency) -> Vec<NodeIx> {
        let mut found = BTreeSet::new();
        let mut seen = BTreeSet::new();
        let mut open: Vec<Vertex> = adjacency.of(self.vertex(node)).to_vec();
        while let Some(vertex) = open.pop() {
            match self.node_of(vertex) {
                Some(node) => {
                    found.insert(node);
                }
                None if seen.insert(vertex) => open.extend_from_slice(adjacency.of(vertex)),
                None => {}
            }
        }
        found.into_iter().collect()
    }
}
