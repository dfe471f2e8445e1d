//! Leaves out what would close a cycle: the stacks, their order and the health of parents stand, dependencies between
//! single Applications give way.

use std::collections::BTreeMap;

use super::definitions::Use;
use super::forest::Order;
use crate::format::Reference;
use crate::lookup::Lookup;
use crate::name::{NodeId, StackName};

/// Splits the uses into those that can be written beside the stacks and those that would make a cycle. One after the other
/// in their order, so the same come out of the same input.
pub(super) fn split(order: &Order, nodes: &BTreeMap<NodeId, usize>, uses: Vec<Use>) -> (Vec<Use>, Vec<Use>) {
    let mut waits = Waits::new(order, nodes);
    for each in &uses {
        waits.add(waits.node(each.user), waits.node(each.provider));
    }
    let knotted = waits.knotted();
    let inside = |each: &Use| {
        let in_knot = |node: usize| knotted.get(waits.node(node)).copied().unwrap_or(false);
        in_knot(each.user) && in_knot(each.provider)
    };
    // What is outside of every knot cannot close a cycle; only the rest is tried one by one.
    let (tried, mut kept): (Vec<Use>, Vec<Use>) = uses.into_iter().partition(inside);
    if tried.is_empty() {
        return (kept, tried);
    }
    let mut waits = Waits::new(order, nodes);
    let mut dropped = Vec::new();
    for each in tried {
        let (user, provider) = (waits.node(each.user), waits.node(each.provider));
        if waits.reaches(provider, user, &knotted) {
            dropped.push(each);
        } else {
            waits.add(user, provider);
            kept.push(each);
        }
    }
    kept.sort();
    (kept, dropped)
}

/// Who waits for whom. A stack is two vertices, its begin and its end, as in the graph that is built of it.
struct Waits {
    stacks: usize,
    of: Vec<Vec<usize>>,
}

impl Waits {
    fn new(Order { stacks, health }: &Order, nodes: &BTreeMap<NodeId, usize>) -> Self {
        let places: Lookup<&StackName, usize> = stacks.iter().enumerate().map(|(i, stack)| (&stack.name, i)).collect();
        let most = nodes.values().max().map_or(0, |most| most + 1);
        let mut waits = Self { stacks: stacks.len(), of: vec![Vec::new(); 2 * stacks.len() + most] };
        for (index, stack) in stacks.iter().enumerate() {
            let (begin, end) = (2 * index, 2 * index + 1);
            for awaited in &stack.depends_on {
                let awaited = match awaited {
                    Reference::Stack(name) => places.get(name).map(|stack| 2 * stack + 1),
                    Reference::Node(id) => nodes.get(id).map(|node| waits.node(*node)),
                };
                awaited.into_iter().for_each(|awaited| waits.add(begin, awaited));
            }
            if stack.members.is_empty() {
                waits.add(end, begin);
            }
            for member in &stack.members {
                let node = waits.node(*member);
                waits.add(node, begin);
                waits.add(end, node);
            }
        }
        // A node is proven when it is Healthy, so a parent whose health includes its children waits for them.
        for (parent, child) in health {
            waits.add(waits.node(*parent), waits.node(*child));
        }
        waits
    }

    fn node(&self, index: usize) -> usize {
        2 * self.stacks + index
    }

    fn add(&mut self, waiting: usize, awaited: usize) {
        if let Some(list) = self.of.get_mut(waiting) {
            list.push(awaited);
        }
    }

    /// By vertex: whether it is on a cycle, or between two. What has nothing before it, or nothing after it, is not;
    /// taken away, it may set others free.
    fn knotted(&self) -> Vec<bool> {
        let mut forth = self.of.clone();
        let mut back: Vec<Vec<usize>> = vec![Vec::new(); self.of.len()];
        for (waiting, list) in self.of.iter().enumerate() {
            for awaited in list {
                if let Some(list) = back.get_mut(*awaited) {
                    list.push(waiting);
                }
            }
        }
        let mut left = vec![true; self.of.len()];
        peel(&forth, &back, &mut left);
        std::mem::swap(&mut forth, &mut back);
        peel(&forth, &back, &mut left);
        left
    }

    /// Whether one waits for the other, directly or not, inside of the knots.
    fn reaches(&self, from: usize, to: usize, knotted: &[bool]) -> bool {
        let mut seen = vec![false; self.of.len()];
        let mut open = vec![from];
        while let Some(vertex) = open.pop() {
            if vertex == to {
                return true;
            }
            let fresh = seen.get_mut(vertex).is_some_and(|seen| !std::mem::replace(seen, true));
            if fresh && knotted.get(vertex).copied().unwrap_or(false) {
                open.extend(self.of.get(vertex).into_iter().flatten().copied());
            }
        }
        false
    }
}

/// Takes away, again and again, what waits for nothing that is left.
fn peel(waits: &[Vec<usize>], waited: &[Vec<usize>], left: &mut [bool]) {
    let is_left = |left: &[bool], vertex: usize| left.get(vertex).copied().unwrap_or(false);
    let mut open: Vec<usize> = Vec::new();
    let mut count: Vec<usize> = Vec::with_capacity(waits.len());
    for (vertex, list) in waits.iter().enumerate() {
        let awaited = list.iter().filter(|awaited| is_left(left, **awaited)).count();
        count.push(awaited);
        if awaited == 0 && is_left(left, vertex) {
            open.push(vertex);
        }
    }
    while let Some(vertex) = open.pop() {
        if let Some(left) = left.get_mut(vertex) {
            *left = false;
        }
        for waiting in waited.get(vertex).into_iter().flatten() {
            if let Some(count) = count.get_mut(*waiting) {
                *count = count.saturating_sub(1);
                if *count == 0 && is_left(left, *waiting) {
                    open.push(*waiting);
                }
            }
        }
    }
}
