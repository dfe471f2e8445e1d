//! Cycles: one for each knot of the graph, whole, the same whatever the order of the input.

use std::collections::{BTreeMap, VecDeque};

use super::adjacency::{Adjacency, PerVertex, Vertex};

/// Finds a shortest cycle in every knot (strongly connected part of more than one vertex). Vertices from `first_node` on
/// are nodes; a cycle starts with the smallest node of its knot, or with a stack if there is no node in it.
pub(super) fn find(vertices: usize, first_node: usize, predecessors: &Adjacency) -> Vec<Vec<Vertex>> {
    let knots = knots(vertices, predecessors);
    let mut starts: BTreeMap<u32, Vertex> = BTreeMap::new();
    let nodes_first = (first_node..vertices).chain(0..first_node).map(Vertex::new);
    for vertex in nodes_first {
        if let Some(knot) = knots[vertex] {
            starts.entry(knot).or_insert(vertex);
        }
    }
    let mut cycles: Vec<Vec<Vertex>> =
        starts.into_iter().filter_map(|(knot, start)| shortest(start, knot, &knots, predecessors)).collect();
    cycles.sort();
    cycles
}

/// The shortest way from `start` along what it waits for back to itself, inside its knot.
fn shortest(start: Vertex, knot: u32, knots: &PerVertex<Option<u32>>, predecessors: &Adjacency) -> Option<Vec<Vertex>> {
    let mut came_from: BTreeMap<Vertex, Vertex> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(vertex) = queue.pop_front() {
        for next in predecessors.of(vertex).iter().copied().filter(|next| knots[*next] == Some(knot)) {
            if next == start {
                let mut cycle = vec![vertex];
                let mut at = vertex;
                while let Some(before) = came_from.get(&at) {
                    cycle.push(*before);
                    at = *before;
                }
                cycle.reverse();
                return Some(cycle);
            }
            came_from.entry(next).or_insert_with(|| {
                queue.push_back(next);
                vertex
            });
        }
    }
    None
}

/// The knot of every vertex that is in one, by Tarjan's algorithm, without recursion.
fn knots(vertices: usize, adjacency: &Adjacency) -> PerVertex<Option<u32>> {
    const UNSEEN: u32 = u32::MAX;
    let mut index: PerVertex<u32> = PerVertex::filled(vertices, UNSEEN);
    let mut low: PerVertex<u32> = PerVertex::filled(vertices, UNSEEN);
    let mut open: PerVertex<bool> = PerVertex::filled(vertices, false);
    let mut knots: PerVertex<Option<u32>> = PerVertex::filled(vertices, None);
    let (mut stack, mut count): (Vec<Vertex>, u32) = (Vec::new(), 0);
    for root in (0..vertices).map(Vertex::new) {
        if index[root] != UNSEEN {
            continue;
        }
        // Vertices on the way down, each with how many of its edges have been followed.
        let mut path: Vec<(Vertex, usize)> = vec![(root, 0)];
        while let Some((vertex, followed)) = path.last_mut() {
            let vertex = *vertex;
            if *followed == 0 {
                index[vertex] = count;
                low[vertex] = count;
                count += 1;
                stack.push(vertex);
                open[vertex] = true;
            }
            if let Some(next) = adjacency.of(vertex).get(*followed).copied() {
                *followed += 1;
                if index[next] == UNSEEN {
                    path.push((next, 0));
                } else if open[next] {
                    low[vertex] = low[vertex].min(index[next]);
                }
                continue;
            }
            path.pop();
            if let Some((above, _)) = path.last() {
                low[*above] = low[*above].min(low[vertex]);
            }
            if low[vertex] == index[vertex] {
                let first = stack.iter().rposition(|v| *v == vertex).unwrap_or(0);
                let members = stack.split_off(first);
                let knot = (members.len() > 1).then_some(index[vertex]);
                for member in members {
                    open[member] = false;
                    knots[member] = knot;
                }
            }
        }
    }
    knots
}
