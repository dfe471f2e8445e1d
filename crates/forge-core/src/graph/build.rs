//! From what is written to a graph, or to everything that is wrong with it.

use std::collections::{BTreeMap, BTreeSet};

use super::adjacency::{Adjacency, NodeIx, PerVertex, Vertex};
use super::{Graph, Node, SYSTEM_STACK, StackNode, cycle};
use crate::code::Code;
use crate::finding::{Finding, Place};
use crate::format::{App, DependencyGraph, GraphOverride, NodeOverride, Reference, Stack, Subject};
use crate::lookup::Lookup;
use crate::name::{ApplicationId, NodeId, StackName};
use crate::yaml::{At, Position};

/// What came of building a graph.
#[derive(Debug)]
pub struct Build {
    /// The graph, unless something is wrong with it.
    pub graph: Option<Graph>,
    /// Everything that is wrong with it.
    pub findings: Vec<Finding>,
}

/// An implicit first node; each waits for the one before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Implicit(pub ApplicationId);

/// What an environment says about the graph, and where it says so.
pub(super) struct Override<'g> {
    path: &'g str,
    spec: &'g GraphOverride,
    nodes: BTreeMap<NodeId, &'g NodeOverride>,
}

struct Builder<'g> {
    path: &'g str,
    over: Option<Override<'g>>,
    findings: Vec<Finding>,
    /// Every node that is written, left out ones included.
    written: Lookup<NodeId, StackName>,
    stacks: BTreeMap<StackName, &'g Stack>,
    left_out: BTreeSet<NodeId>,
    suggested: usize,
}

impl Graph {
    /// Builds the graph of an environment from `graph.yaml` at `path`, the environment's override with its path, and
    /// the implicit first nodes that exist there.
    pub fn build(
        graph: &DependencyGraph,
        path: &str,
        over: Option<(&str, &GraphOverride)>,
        implicit: &[Implicit],
    ) -> Build {
        let over = over.map(|(path, spec)| Override {
            path,
            spec,
            nodes: spec.apps.iter().map(|node| (node.subject.id(), node)).collect(),
        });
        let mut builder = Builder {
            path,
            over,
            findings: Vec::new(),
            written: Lookup::new(),
            stacks: BTreeMap::new(),
            left_out: BTreeSet::new(),
            suggested: 0,
        };
        builder.names(graph, implicit);
        builder.overrides();
        let stacks = builder.collect_stacks(graph, implicit);
        let nodes = builder.collect_nodes(graph, implicit, &stacks);
        let edges = builder.edges(&stacks, &nodes);
        let timeout = builder.over.as_ref().and_then(|over| over.spec.timeout).unwrap_or(graph.timeout);
        let vertices = 2 * stacks.len() + nodes.len();
        let predecessors = Adjacency::new(vertices, edges);
        let successors = predecessors.reversed();
        let (order, depth) = sort(vertices, stacks.len(), &predecessors, &successors);
        let mut findings = builder.findings;
        if order.len() < vertices {
            let label = |vertex: Vertex| match vertex.as_node(stacks.len()) {
                Some(node) => nodes.get(node.index()).map(|node| node.id.to_string()),
                None => {
                    let stack = vertex.as_stack(stacks.len()).and_then(|stack| stacks.get(stack));
                    stack.map(|stack| format!("stack:{}", stack.name))
                }
            };
            let place = |vertex: Vertex| place_of(graph, &stacks, &nodes, vertex);
            for cycle in cycle::find(vertices, 2 * stacks.len(), &predecessors) {
                findings.push(cycle_finding(path, &cycle, label, place));
            }
        }
        findings.sort();
        findings.dedup();
        let graph =
            findings.is_empty().then_some(Self { nodes, stacks, predecessors, successors, order, depth, timeout });
        Build { graph, findings }
    }
}

/// Where a vertex of a cycle is written.
fn place_of(graph: &DependencyGraph, stacks: &[StackNode], nodes: &[Node], vertex: Vertex) -> Option<Position> {
    match vertex.as_node(stacks.len()) {
        Some(node) => {
            let id = &nodes.get(node.index())?.id;
            let app = graph.stacks.iter().flat_map(|stack| &stack.apps).find(|app| app.subject.id() == *id)?;
            Some(app.subject.at)
        }
        None => {
            let name = &stacks.get(vertex.as_stack(stacks.len())?)?.name;
            graph.stacks.iter().find(|stack| stack.name.value == *name).map(|stack| stack.name.at)
        }
    }
}

fn cycle_finding(
    path: &str,
    cycle: &[Vertex],
    label: impl Fn(Vertex) -> Option<String>,
    place: impl Fn(Vertex) -> Option<Position>,
) -> Finding {
    let mut names: Vec<String> = cycle.iter().filter_map(|vertex| label(*vertex)).collect();
    // The begin and the end of one stack have one name.
    names.dedup();
    if names.len() > 1 && names.first() == names.last() {
        names.pop();
    }
    names.extend(names.first().cloned());
    let at = cycle.first().and_then(|vertex| place(*vertex)).unwrap_or(Position::START);
    Finding::new(Code::Cycle, Place::new(path, at), format!("dependency cycle: {}", names.join(" → ")))
        .with_fix("each waits for the one after the arrow; remove one of these dependencies")
}

impl<'g> Builder<'g> {
    fn report(&mut self, code: Code, at: Position, message: String) {
        self.findings.push(Finding::new(code, Place::new(self.path, at), message));
    }

    fn report_fix(&mut self, path: &str, code: Code, at: Position, message: String, fix: String) {
        self.findings.push(Finding::new(code, Place::new(path, at), message).with_fix(fix));
    }

    /// Learns every name, reports those that come twice.
    fn names(&mut self, graph: &'g DependencyGraph, implicit: &[Implicit]) {
        let implicit: BTreeSet<NodeId> = implicit.iter().map(|node| (&node.0).into()).collect();
        for stack in &graph.stacks {
            if stack.name.as_str() == SYSTEM_STACK {
                let message = format!("stack name `{SYSTEM_STACK}` is reserved for Forge's own first nodes");
                self.report(Code::DuplicateNode, stack.name.at, message);
            } else if self.stacks.contains_key(&stack.name.value) {
                let message = format!("stack `{}` is listed twice", stack.name.value);
                self.report(Code::DuplicateNode, stack.name.at, message);
            } else {
                self.stacks.insert(stack.name.value.clone(), stack);
            }
            for app in &stack.apps {
                let id = app.subject.id();
                if implicit.contains(&id) {
                    let message = format!("`{id}` is an implicit first node already");
                    let fix = "remove it; it comes before every other node by itself".to_owned();
                    self.report_fix(self.path, Code::DuplicateNode, app.subject.at, message, fix);
                } else if let Some(first) = self.written.get(&id) {
                    let message = format!("`{id}` is listed twice, first in stack `{first}`");
                    self.report(Code::DuplicateNode, app.subject.at, message);
                } else {
                    self.written.insert(id, stack.name.value.clone());
                }
            }
        }
    }

    /// Checks that an override speaks of things that exist, and learns what it leaves out.
    fn overrides(&mut self) {
        let Some(over) = self.over.take() else { return };
        for reference in over.spec.only.iter().chain(&over.spec.without) {
            self.known(over.path, reference, Code::UnknownOverride);
        }
        let mut seen = BTreeSet::new();
        for node in &over.spec.apps {
            let id = node.subject.id();
            if !self.written.contains_key(&id) {
                let message = format!("`{id}` is overridden here but is not in {}", self.path);
                self.findings.push(Finding::new(
                    Code::UnknownOverride,
                    Place::new(over.path, node.subject.at),
                    message,
                ));
            } else if !seen.insert(id.clone()) {
                let message = format!("`{id}` is overridden twice");
                self.findings.push(Finding::new(Code::DuplicateNode, Place::new(over.path, node.subject.at), message));
            }
        }
        let covers = |list: &[At<Reference>], id: &NodeId, stack: &StackName| {
            list.iter().any(|reference| match &reference.value {
                Reference::Stack(name) => name == stack,
                Reference::Node(node) => node == id,
            })
        };
        self.left_out = self
            .written
            .iter()
            .filter(|(id, stack)| {
                let wanted = over.spec.only.is_empty() || covers(&over.spec.only, id, stack);
                !wanted || covers(&over.spec.without, id, stack)
            })
            .map(|(id, _)| id.clone())
            .collect();
        self.over = Some(over);
    }

    /// Reports a reference to something that does not exist; true if it does.
    fn known(&mut self, path: &str, reference: &At<Reference>, code: Code) -> bool {
        let (found, kind) = match &reference.value {
            Reference::Stack(name) => (self.stacks.contains_key(name), "stack"),
            Reference::Node(id) => (self.written.contains_key(id), "node"),
        };
        if !found {
            let text = reference.value.to_string();
            // Looking for what was meant costs a pass over all names: not for every line of a file that is all wrong.
            self.suggested += 1;
            let near = match &reference.value {
                _ if self.suggested > 50 => None,
                Reference::Stack(name) => {
                    let names = self.stacks.keys().map(StackName::as_str);
                    crate::yaml::nearest(name.as_str(), names).map(|near| format!("stack:{near}"))
                }
                Reference::Node(id) => {
                    let names = self.written.keys().map(NodeId::as_str);
                    crate::yaml::nearest(id.as_str(), names).map(ToOwned::to_owned)
                }
            };
            let fix = match near {
                Some(near) => format!("did you mean `{near}`?"),
                None if kind == "stack" => format!("add the stack to {}, or remove the reference", self.path),
                None => format!("add it to a stack of {}, or remove the reference", self.path),
            };
            self.report_fix(path, code, reference.at, format!("no {kind} `{text}` in the graph"), fix);
        }
        found
    }

    fn collect_stacks(&mut self, graph: &'g DependencyGraph, implicit: &[Implicit]) -> Vec<StackNode> {
        let mut stacks = Vec::with_capacity(self.stacks.len() + 1);
        for stack in &graph.stacks {
            if !self.stacks.contains_key(&stack.name.value) {
                continue;
            }
            let mut depends_on = Vec::new();
            for reference in &stack.depends_on {
                if !self.known(self.path, reference, Code::UnknownDependency) {
                    continue;
                }
                let itself = match &reference.value {
                    Reference::Stack(name) => *name == stack.name.value,
                    Reference::Node(id) => self.written.get(id) == Some(&stack.name.value),
                };
                if itself {
                    let message =
                        format!("stack `{}` depends on itself through `{}`", stack.name.value, reference.value);
                    self.report(Code::SelfDependency, reference.at, message);
                    continue;
                }
                // A stack that is left out as a whole needs nothing here; one without applications passes its needs on.
                let left_out = |app: &App| self.left_out.contains(&app.subject.id());
                let used = stack.apps.is_empty() || !stack.apps.iter().all(left_out);
                if used {
                    self.kept(None, &stack.name.value, reference, &mut depends_on);
                }
            }
            depends_on.sort();
            depends_on.dedup();
            stacks.push(StackNode { name: stack.name.value.clone(), layer: stack.layer, depends_on });
        }
        stacks.sort_by(|a, b| a.name.cmp(&b.name));
        stacks.dedup_by(|a, b| a.name == b.name);
        if let (false, Ok(system)) = (implicit.is_empty(), SYSTEM_STACK.parse::<StackName>()) {
            for stack in &mut stacks {
                stack.depends_on.push(Reference::Stack(system.clone()));
                stack.depends_on.sort();
            }
            let at = stacks.partition_point(|stack| stack.name < system);
            stacks.insert(at, StackNode { name: system, layer: None, depends_on: Vec::new() });
        }
        stacks
    }

    /// Takes a dependency of a node, or of a whole stack, over unless it was left out here, which is an error unless it
    /// is a whole stack.
    fn kept(
        &mut self,
        node: Option<(&NodeId, &str)>,
        stack: &StackName,
        on: &At<Reference>,
        into: &mut Vec<Reference>,
    ) {
        if let Reference::Node(id) = &on.value
            && self.left_out.contains(id)
        {
            let over = self.over.as_ref().map_or(self.path, |over| over.path).to_owned();
            let (who, path, fix) = match node {
                Some((node, path)) => {
                    let fix = format!("keep `{id}`, or write `dependsOn: {{remove: [{id}]}}` for `{node}` in {over}");
                    (format!("`{node}`"), path, fix)
                }
                None => {
                    let fix = format!("keep `{id}`, or move the dependency to the applications that need it");
                    (format!("stack `{stack}`"), self.path, fix)
                }
            };
            let message = format!("{who} needs `{id}`, which {over} leaves out");
            self.report_fix(path, Code::LeftOut, on.at, message, fix);
            return;
        }
        into.push(on.value.clone());
    }

    fn collect_nodes(&mut self, graph: &'g DependencyGraph, implicit: &[Implicit], stacks: &[StackNode]) -> Vec<Node> {
        let mut nodes: Vec<Node> = Vec::with_capacity(self.written.len() + implicit.len());
        let mut before: Option<NodeId> = None;
        for Implicit(application) in implicit {
            let id = NodeId::from(application);
            let Ok(stack) = SYSTEM_STACK.parse() else { continue };
            let node = Node {
                id: id.clone(),
                subject: Subject::Application(application.clone()),
                stack,
                depends_on: before.take().map(Reference::Node).into_iter().collect(),
                requires: Vec::new(),
                health: Vec::new(),
                timeouts: graph.defaults.timeouts,
                retry: graph.defaults.retry,
                implicit: true,
            };
            before = Some(id);
            nodes.push(node);
        }
        for stack in &graph.stacks {
            for app in &stack.apps {
                let id = app.subject.id();
                if !self.left_out.contains(&id) {
                    let node = self.node(graph, stack, app, id, stacks);
                    nodes.push(node);
                }
            }
        }
        nodes.sort_by(|a, b| a.id.cmp(&b.id));
        // What is there twice has been reported.
        nodes.dedup_by(|a, b| a.id == b.id);
        nodes
    }

    fn node(&mut self, graph: &DependencyGraph, stack: &Stack, app: &App, id: NodeId, stacks: &[StackNode]) -> Node {
        let mut depends_on = Vec::new();
        let over = self.over.take();
        let mine = over.as_ref().and_then(|over| over.nodes.get(&id).copied());
        let removed = mine.map_or(&[][..], |node| &node.depends_on.remove);
        for reference in removed {
            if !app.depends_on.contains(reference) {
                let path = over.as_ref().map_or(self.path, |over| over.path);
                let message = format!("`{id}` has no dependency `{}` of its own to remove", reference.value);
                let fix =
                    "only what its own `dependsOn` names can be removed; its stack's dependencies stay".to_owned();
                self.report_fix(path, Code::UnknownOverride, reference.at, message, fix);
            }
        }
        let override_path = over.as_ref().map_or(self.path, |over| over.path);
        let own = app.depends_on.iter().filter(|reference| !removed.contains(reference)).map(|r| (self.path, r));
        let added = mine.into_iter().flat_map(|node| &node.depends_on.add).map(|r| (override_path, r));
        let all: Vec<_> = own.chain(added).collect();
        self.over = over;
        for (path, reference) in all {
            if !self.known(path, reference, Code::UnknownDependency) {
                continue;
            }
            let itself = match &reference.value {
                Reference::Stack(name) => *name == stack.name.value,
                Reference::Node(other) => *other == id,
            };
            if itself {
                let message = format!("`{id}` depends on itself through `{}`", reference.value);
                self.findings.push(Finding::new(Code::SelfDependency, Place::new(path, reference.at), message));
                continue;
            }
            self.kept(Some((&id, path)), &stack.name.value, reference, &mut depends_on);
        }
        if let Ok(own) = stacks.binary_search_by(|s| s.name.cmp(&stack.name.value))
            && let Some(own) = stacks.get(own)
        {
            // What the stack waits for is not a dependency of its own.
            depends_on.retain(|reference| own.depends_on.binary_search(reference).is_err());
        }
        depends_on.sort();
        depends_on.dedup();
        let spec = self.over.as_ref().map(|over| over.spec);
        let timeouts = spec.map_or(graph.defaults.timeouts, |spec| spec.timeouts.or(graph.defaults.timeouts));
        let retry = spec.map_or(graph.defaults.retry, |spec| spec.retry.or(graph.defaults.retry));
        let (timeouts, retry) = (app.timeouts.or(timeouts), app.retry.or(retry));
        let mut requires = app.requires.clone();
        requires.sort();
        requires.dedup();
        let mut health = app.health.clone();
        health.sort_by(|a, b| (&a.object, &a.expr.value).cmp(&(&b.object, &b.expr.value)));
        Node {
            id,
            subject: app.subject.value.clone(),
            stack: stack.name.value.clone(),
            depends_on,
            requires,
            health,
            timeouts: mine.map_or(timeouts, |node| node.timeouts.or(timeouts)),
            retry: mine.map_or(retry, |node| node.retry.or(retry)),
            implicit: false,
        }
    }

    /// The edges as (waiting, awaited).
    fn edges(&self, stacks: &[StackNode], nodes: &[Node]) -> Vec<(Vertex, Vertex)> {
        let places: Lookup<&NodeId, usize> = nodes.iter().enumerate().map(|(i, node)| (&node.id, i)).collect();
        let stack_of = |name: &StackName| stacks.binary_search_by(|stack| stack.name.cmp(name)).ok();
        let awaited = |reference: &Reference| match reference {
            Reference::Stack(name) => stack_of(name).map(|stack| Vertex::end(stacks.len(), stack)),
            Reference::Node(id) => places.get(id).map(|node| Vertex::node(stacks.len(), NodeIx::new(*node))),
        };
        let filled: BTreeSet<&StackName> = nodes.iter().map(|node| &node.stack).collect();
        let mut edges = Vec::with_capacity(nodes.len() * 4);
        for (i, stack) in stacks.iter().enumerate() {
            let begin = Vertex::begin(i);
            if !filled.contains(&stack.name) {
                // Waiting for an empty stack means waiting for what it waits for.
                edges.push((Vertex::end(stacks.len(), i), begin));
            }
            edges.extend(stack.depends_on.iter().filter_map(awaited).map(|awaited| (begin, awaited)));
        }
        for (i, node) in nodes.iter().enumerate() {
            let vertex = Vertex::node(stacks.len(), NodeIx::new(i));
            let Some(stack) = stack_of(&node.stack) else { continue };
            edges.push((vertex, Vertex::begin(stack)));
            edges.push((Vertex::end(stacks.len(), stack), vertex));
            // What the stack waits for comes through its begin.
            edges.extend(node.depends_on.iter().filter_map(awaited).map(|awaited| (vertex, awaited)));
        }
        edges
    }
}

/// Topological order by Kahn. Shorter than the number of vertices if there is a cycle. With it, for every vertex, the
/// number of nodes on the longest chain that ends in it.
fn sort(
    vertices: usize,
    stacks: usize,
    predecessors: &Adjacency,
    successors: &Adjacency,
) -> (Vec<Vertex>, PerVertex<u32>) {
    let mut open: PerVertex<usize> = PerVertex::filled(vertices, 0);
    let mut depth: PerVertex<u32> = PerVertex::filled(vertices, 0);
    let mut order = Vec::with_capacity(vertices);
    for vertex in (0..vertices).map(Vertex::new) {
        open[vertex] = predecessors.of(vertex).len();
        if open[vertex] == 0 {
            order.push(vertex);
        }
    }
    let mut next = 0;
    while let Some(vertex) = order.get(next).copied() {
        next += 1;
        if vertex.as_node(stacks).is_some() {
            depth[vertex] += 1;
        }
        for after in successors.of(vertex) {
            depth[*after] = depth[*after].max(depth[vertex]);
            open[*after] -= 1;
            if open[*after] == 0 {
                order.push(*after);
            }
        }
    }
    (order, depth)
}
