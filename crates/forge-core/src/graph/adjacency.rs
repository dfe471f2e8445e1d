//! Compact storage: vertices are numbers, edges are two arrays. This is the one place that indexes.

use std::ops::{Index, IndexMut};

use serde::Serialize;

/// A node by its rank among all identities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct NodeIx(u32);

impl NodeIx {
    pub(super) fn new(index: usize) -> Self {
        // The reader's limits keep graphs far below this.
        Self(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// The rank as a number, for tables.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A begin of a stack, an end of a stack, or a node, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Vertex(u32);

impl Vertex {
    pub(super) fn new(index: usize) -> Self {
        Self(u32::try_from(index).unwrap_or(u32::MAX))
    }

    pub(super) fn begin(stack: usize) -> Self {
        Self::new(stack)
    }

    pub(super) fn end(stacks: usize, stack: usize) -> Self {
        Self::new(stacks + stack)
    }

    pub(super) fn node(stacks: usize, node: NodeIx) -> Self {
        Self::new(2 * stacks + node.index())
    }

    pub(super) fn index(self) -> usize {
        self.0 as usize
    }

    /// The node, if it is one.
    pub(super) fn as_node(self, stacks: usize) -> Option<NodeIx> {
        self.index().checked_sub(2 * stacks).map(NodeIx::new)
    }

    /// The stack, if it is the begin or the end of one.
    pub(super) fn as_stack(self, stacks: usize) -> Option<usize> {
        let index = self.index();
        if index < stacks { Some(index) } else { (index < 2 * stacks).then(|| index - stacks) }
    }
}

/// An element of a table by node.
#[expect(clippy::indexing_slicing, reason = "a NodeIx is only made for the graph that it is used with")]
pub(super) fn at<T>(table: &[T], node: NodeIx) -> &T {
    &table[node.index()]
}

/// A table with one entry per vertex.
#[derive(Debug, Clone)]
pub(super) struct PerVertex<T>(Vec<T>);

impl<T: Clone> PerVertex<T> {
    pub(super) fn filled(vertices: usize, value: T) -> Self {
        Self(vec![value; vertices])
    }
}

impl<T> Index<Vertex> for PerVertex<T> {
    type Output = T;
    #[expect(clippy::indexing_slicing, reason = "tables are made with one entry per vertex")]
    fn index(&self, vertex: Vertex) -> &T {
        &self.0[vertex.index()]
    }
}

impl<T> IndexMut<Vertex> for PerVertex<T> {
    #[expect(clippy::indexing_slicing, reason = "tables are made with one entry per vertex")]
    fn index_mut(&mut self, vertex: Vertex) -> &mut T {
        &mut self.0[vertex.index()]
    }
}

/// Edges by vertex, sorted, each once.
#[derive(Debug, Clone)]
pub(super) struct Adjacency {
    first: Vec<u32>,
    targets: Vec<Vertex>,
}

impl Adjacency {
    /// From pairs (of, target).
    pub(super) fn new(vertices: usize, mut edges: Vec<(Vertex, Vertex)>) -> Self {
        edges.sort_unstable();
        edges.dedup();
        let mut first = vec![0_u32; vertices + 1];
        for (of, _) in &edges {
            if let Some(count) = first.get_mut(of.index() + 1) {
                *count += 1;
            }
        }
        let mut sum = 0;
        for count in &mut first {
            sum += *count;
            *count = sum;
        }
        Self { first, targets: edges.into_iter().map(|(_, target)| target).collect() }
    }

    /// The targets of one vertex.
    pub(super) fn of(&self, vertex: Vertex) -> &[Vertex] {
        let bound = |i: usize| self.first.get(i).map_or(0, |n| *n as usize);
        self.targets.get(bound(vertex.index())..bound(vertex.index() + 1)).unwrap_or_default()
    }

    /// All edges the other way round.
    pub(super) fn reversed(&self) -> Self {
        let vertices = self.first.len().saturating_sub(1);
        let edges = (0..vertices).map(Vertex::new).flat_map(|of| self.of(of).iter().map(move |t| (*t, of))).collect();
        Self::new(vertices, edges)
    }
}
