//! Cycles: one for each knot of the graph, whole, the same whatever the order of the input.

use std::collections::VecDeque;

use super::adjacency::{Adjacency, PerVertex, Vertex};

/// Finds a shortest cycle in every strongly connected part. `sorted` are the vertices that a topological sort could
/// place; the knots are among the rest. Vertices from `first_node` on are nodes, and a cycle starts with its smallest
/// node (every cycle has one, because stacks wait for each other only directly or through nodes).
pub(super) fn find(
    vertices: usize,
    first_node: usize,
    sorted: &[Vertex],
    predecessors: &Adjacency,
) -> Vec<Vec<Vertex>> {
    let mut rest: PerVertex<bool> = PerVertex::filled(vertices, true);
    for vertex in sorted {
        rest[*vertex] = false;
    }
    let mut cycles = Vec::new();
    let nodes_first = (first_node..vertices).chain(0..first_node).map(Vertex::new);
    for start in nodes_first {
        if !rest[start] {
            continue;
        }
        match shortest(vertices, start, &rest, predecessors) {
            Some(cycle) => {
                // What is in the same knot has been told; what merely hangs on it goes with it.
                for vertex in knot(vertices, start, &rest, predecessors) {
                    rest[vertex] = false;
                }
                cycles.push(cycle);
            }
            None => rest[start] = false,
        }
    }
    cycles
}

/// The shortest way from `start` along what it waits for back to itself.
fn shortest(vertices: usize, start: Vertex, rest: &PerVertex<bool>, predecessors: &Adjacency) -> Option<Vec<Vertex>> {
    let mut came_from: PerVertex<Option<Vertex>> = PerVertex::filled(vertices, None);
    let mut queue = VecDeque::from([start]);
    while let Some(vertex) = queue.pop_front() {
        for next in predecessors.of(vertex).iter().copied().filter(|next| rest[*next]) {
            if next == start {
                let mut cycle = vec![vertex];
                let mut at = vertex;
                while let Some(before) = came_from[at] {
                    cycle.push(before);
                    at = before;
                }
                cycle.reverse();
                return Some(cycle);
            }
            if came_from[next].is_none() {
                came_from[next] = Some(vertex);
                queue.push_back(next);
            }
        }
    }
    None
}

/// All vertices that `start` waits for and that wait for `start`.
fn knot(vertices: usize, start: Vertex, rest: &PerVertex<bool>, predecessors: &Adjacency) -> Vec<Vertex> {
    let reach = |adjacency: &Adjacency| {
        let mut seen: PerVertex<bool> = PerVertex::filled(vertices, false);
        let mut stack = vec![start];
        while let Some(vertex) = stack.pop() {
            for next in adjacency.of(vertex).iter().copied().filter(|next| rest[*next]) {
                if !seen[next] {
                    seen[next] = true;
                    stack.push(next);
                }
            }
        }
        seen
    };
    let (before, after) = (reach(predecessors), reach(&predecessors.reversed()));
    (0..vertices).map(Vertex::new).filter(|vertex| before[*vertex] && after[*vertex]).collect()
}
