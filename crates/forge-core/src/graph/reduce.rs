//! The graph as tasks: stacks dissolved into edges where that is cheap, kept as joins where it is not, and every edge
//! that follows from others removed. This is what a Workflow is made of.

use std::collections::{BTreeMap, BTreeSet};

use super::Graph;
use super::adjacency::{NodeIx, Vertex};

/// A task by its place in [`Reduced::tasks`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskIx(u32);

impl TaskIx {
    fn new(index: usize) -> Self {
        Self(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// The place as a number.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a task stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// An application.
    Node(NodeIx),
    /// The end of a stack (by its rank): done when all before it are.
    End(usize),
    /// The begin of a stack (by its rank).
    Begin(usize),
}

/// Tasks in topological order, each with the tasks that it waits for.
#[derive(Debug, Clone)]
pub struct Reduced {
    /// The tasks.
    pub tasks: Vec<(Task, Vec<TaskIx>)>,
}

impl Reduced {
    /// How many edges there are.
    pub fn edges(&self) -> usize {
        self.tasks.iter().map(|(_, before)| before.len()).sum()
    }
}

/// A join is worth a task of its own when it saves at least so many edges.
const WORTH_A_JOIN: usize = 64;

impl Graph {
    /// The tasks of these nodes, which must hold everything that lies between two of them: a scope does, and so does all
    /// that waits for a node.
    pub fn reduced(&self, nodes: &[NodeIx]) -> Reduced {
        let wanted: BTreeSet<Vertex> = nodes.iter().map(|node| self.vertex(*node)).collect();
        let kept = |vertex: &Vertex| self.node_of(*vertex).is_none() || wanted.contains(vertex);
        // In topological order, with ties in the order of names: the order of `order` depends on names alone.
        let mut order: Vec<Vertex> = self.order.iter().copied().filter(kept).collect();
        order.sort_by_key(|vertex| (self.depth[*vertex], self.node_of(*vertex).is_some(), *vertex));
        let order = self.stable(&order);
        let mut before: BTreeMap<Vertex, BTreeSet<Vertex>> = order
            .iter()
            .map(|vertex| (*vertex, self.predecessors.of(*vertex).iter().copied().filter(kept).collect()))
            .collect();
        reduce(&order, &mut before);
        self.dissolve(&order, &mut before);
        reduce(&order, &mut before);
        let rank: BTreeMap<Vertex, TaskIx> =
            order.iter().filter(|v| before.contains_key(v)).enumerate().map(|(i, v)| (*v, TaskIx::new(i))).collect();
        let tasks = rank
            .iter()
            .map(|(vertex, ix)| {
                let awaited = before.get(vertex).into_iter().flatten().filter_map(|v| rank.get(v).copied()).collect();
                (*ix, (self.task(*vertex), awaited))
            })
            .collect::<BTreeMap<TaskIx, (Task, Vec<TaskIx>)>>();
        Reduced { tasks: tasks.into_values().collect() }
    }

    fn task(&self, vertex: Vertex) -> Task {
        match (self.node_of(vertex), vertex.as_stack(self.stacks.len())) {
            (Some(node), _) => Task::Node(node),
            (None, Some(stack)) if vertex.index() >= self.stacks.len() => Task::End(stack),
            (None, stack) => Task::Begin(stack.unwrap_or(0)),
        }
    }

    /// A topological order of these vertices whose ties follow their given order.
    fn stable(&self, vertices: &[Vertex]) -> Vec<Vertex> {
        let place: BTreeMap<Vertex, usize> = vertices.iter().enumerate().map(|(i, v)| (*v, i)).collect();
        let mut open: BTreeMap<Vertex, usize> = vertices
            .iter()
            .map(|v| (*v, self.predecessors.of(*v).iter().filter(|p| place.contains_key(p)).count()))
            .collect();
        let mut ready: BTreeSet<(usize, Vertex)> =
            vertices.iter().filter(|v| open.get(v) == Some(&0)).filter_map(|v| Some((*place.get(v)?, *v))).collect();
        let mut order = Vec::with_capacity(vertices.len());
        while let Some((_, vertex)) = ready.pop_first() {
            order.push(vertex);
            for next in self.successors.of(vertex) {
                if let (Some(count), Some(at)) = (open.get_mut(next), place.get(next)) {
                    *count -= 1;
                    if *count == 0 {
                        ready.insert((*at, *next));
                    }
                }
            }
        }
        order
    }

    /// Replaces begins and ends of stacks by direct edges where that costs few.
    fn dissolve(&self, order: &[Vertex], before: &mut BTreeMap<Vertex, BTreeSet<Vertex>>) {
        let mut after: BTreeMap<Vertex, BTreeSet<Vertex>> = BTreeMap::new();
        for (vertex, awaited) in before.iter() {
            for a in awaited {
                after.entry(*a).or_default().insert(*vertex);
            }
        }
        // Begins first: what is left then is the end of a stack, which means something to people.
        let stacks = self.stacks.len();
        let (begins, ends): (Vec<Vertex>, Vec<Vertex>) =
            order.iter().filter(|vertex| self.node_of(**vertex).is_none()).partition(|vertex| vertex.index() < stacks);
        for vertex in begins.iter().chain(&ends) {
            let awaited = before.get(vertex).cloned().unwrap_or_default();
            let waiting = after.get(vertex).cloned().unwrap_or_default();
            let (cost, saved) = (awaited.len() * waiting.len(), awaited.len() + waiting.len());
            if cost > saved + WORTH_A_JOIN {
                continue;
            }
            before.remove(vertex);
            after.remove(vertex);
            for w in &waiting {
                if let Some(edges) = before.get_mut(w) {
                    edges.remove(vertex);
                    edges.extend(&awaited);
                }
            }
            for a in &awaited {
                if let Some(edges) = after.get_mut(a) {
                    edges.remove(vertex);
                    edges.extend(&waiting);
                }
            }
        }
    }
}

/// Removes every edge that a longer way replaces. Exact; costs edges times vertices over 64.
fn reduce(order: &[Vertex], before: &mut BTreeMap<Vertex, BTreeSet<Vertex>>) {
    let rank: BTreeMap<Vertex, usize> = order.iter().enumerate().map(|(i, v)| (*v, i)).collect();
    let words = order.len().div_ceil(64);
    let mut ancestors: Vec<Vec<u64>> = Vec::with_capacity(order.len());
    for vertex in order {
        let mut reached = vec![0_u64; words];
        if let Some(edges) = before.get_mut(vertex) {
            let mut awaited: Vec<usize> = edges.iter().filter_map(|v| rank.get(v).copied()).collect();
            awaited.sort_unstable_by(|a, b| b.cmp(a));
            for a in awaited {
                let known = reached.get(a / 64).is_some_and(|word| word >> (a % 64) & 1 == 1);
                if known {
                    if let Some(redundant) = order.get(a) {
                        edges.remove(redundant);
                    }
                    continue;
                }
                for (mine, theirs) in reached.iter_mut().zip(ancestors.get(a).into_iter().flatten()) {
                    *mine |= theirs;
                }
                if let Some(word) = reached.get_mut(a / 64) {
                    *word |= 1 << (a % 64);
                }
            }
        }
        ancestors.push(reached);
    }
}
