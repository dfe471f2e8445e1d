//! The tasks of a teardown: those of a deployment, backwards (INV-6). A node waits for everything that waits for it otherwise.

use std::collections::BTreeSet;

use crate::graph::{Graph, NodeIx, Task};
use crate::name::NodeId;
use crate::run::{RunNode, RunTask};

/// What stands between Applications that the graph does not know and everything that it does.
const STRANGERS: &str = "forge:strangers";

/// The nodes that a scope of a teardown is about, and everything that lies between two of them.
pub fn between(graph: &Graph, nodes: &[NodeIx]) -> Vec<NodeIx> {
    let before: BTreeSet<NodeIx> = graph.with_predecessors(nodes).into_iter().collect();
    graph.with_successors(nodes).into_iter().filter(|node| before.contains(node)).collect()
}

/// The nodes that depend on these, directly or not, and are not among them.
pub fn dependents(graph: &Graph, nodes: &[NodeIx]) -> Vec<NodeIx> {
    graph.with_successors(nodes).into_iter().filter(|node| !nodes.contains(node)).collect()
}

/// The tasks in reverse. `of` gives the node as it is to be removed; one for which it gives nothing is not removed, and what
/// is on both sides of it stays in order all the same. `strangers` are Applications that nothing is known about: whatever
/// they depend on, they go first.
pub fn reversed(
    graph: &Graph,
    nodes: &[NodeIx],
    strangers: Vec<RunNode>,
    mut of: impl FnMut(&NodeId) -> Option<RunNode>,
) -> Vec<RunTask> {
    let reduced = graph.reduced(nodes);
    let count = reduced.tasks.len();
    let mut tasks: Vec<RunTask> = strangers
        .into_iter()
        .map(|node| RunTask { id: node.id.to_string(), before: Vec::new(), node: Some(node) })
        .collect();
    let first = tasks.len();
    if first > 0 {
        tasks.push(RunTask { id: STRANGERS.to_owned(), before: (0..first).collect(), node: None });
    }
    let offset = tasks.len();
    let place = |forward: usize| offset + (count - 1 - forward);
    let mut before: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (forward, (_, awaited)) in reduced.tasks.iter().enumerate() {
        for task in awaited {
            if let Some(list) = before.get_mut(task.index()) {
                list.push(place(forward));
            }
        }
    }
    for (forward, (task, _)) in reduced.tasks.iter().enumerate().rev() {
        let (id, node) = match task {
            Task::Node(ix) => {
                let id = &graph.node(*ix).id;
                (id.to_string(), of(id))
            }
            Task::End(rank) => (format!("stack:{}:begin", stack(graph, *rank)), None),
            Task::Begin(rank) => (format!("stack:{}", stack(graph, *rank)), None),
        };
        let mut before = before.get_mut(forward).map(std::mem::take).unwrap_or_default();
        before.sort_unstable();
        if before.is_empty() && first > 0 {
            before.push(first);
        }
        tasks.push(RunTask { id, before, node });
    }
    tasks
}

fn stack(graph: &Graph, rank: usize) -> &str {
    graph.stacks().get(rank).map_or("", |stack| stack.name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::DependencyGraph;
    use crate::yaml::{Decoder, Dialect, Limits, read};

    fn graph(stacks: &str) -> Graph {
        let text = format!("apiVersion: {}\nkind: DependencyGraph\nspec:\n{stacks}", crate::format::API_VERSION);
        let stream = read(&text, Dialect::Strict, Limits::FILE);
        let mut decoder = Decoder::new("graph.yaml");
        let graph = DependencyGraph::decode(&mut decoder, &stream.documents[0]).unwrap();
        Graph::build(&graph, "graph.yaml", None, &[]).graph.unwrap()
    }

    fn node(id: &NodeId) -> RunNode {
        let text = format!(
            r#"{{"id": "{id}", "application": "{id}", "content": {{"type": "revisions", "revisions": []}},
                "timeouts": {{"sync": "1m", "health": "1m"}},
                "retry": {{"limit": 0, "backoff": "1s", "factor": 1, "max": "1s"}}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    const CHAIN: &str = "  stacks:
  - name: base
    apps: [{project: a/one}, {project: a/two, dependsOn: [a/one]}]
  - name: top
    dependsOn: [\"stack:base\"]
    apps: [{project: b/one}, {project: b/two, dependsOn: [b/one]}]
";

    /// What each node waits for, joins dissolved, by the tasks alone.
    fn awaited(tasks: &[RunTask]) -> Vec<(String, Vec<String>)> {
        let mut through: Vec<Vec<String>> = Vec::new();
        let mut found = Vec::new();
        for task in tasks {
            let mut all: Vec<String> = Vec::new();
            for place in &task.before {
                match &tasks[*place].node {
                    Some(node) => all.push(node.id.to_string()),
                    None => all.extend(through[*place].iter().cloned()),
                }
            }
            all.sort_unstable();
            all.dedup();
            if let Some(node) = &task.node {
                found.push((node.id.to_string(), all.clone()));
            }
            through.push(all);
        }
        found
    }

    #[test]
    fn every_task_waits_for_what_waits_for_it_otherwise() {
        let graph = graph(CHAIN);
        let all: Vec<NodeIx> = graph.indexes().collect();
        let tasks = reversed(&graph, &all, Vec::new(), |id| Some(node(id)));
        for (place, task) in tasks.iter().enumerate() {
            assert!(task.before.iter().all(|before| *before < place), "{task:?}");
        }
        let told = awaited(&tasks);
        let names: Vec<&str> = told.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["b/two", "b/one", "a/two", "a/one"]);
        assert_eq!(told[0].1, Vec::<String>::new());
        assert_eq!(told[1].1, ["b/two"]);
        assert!(told[2].1.contains(&"b/one".to_owned()) && told[3].1.contains(&"a/two".to_owned()), "{told:?}");
    }

    #[test]
    fn strangers_go_first_and_what_is_not_removed_keeps_the_order_of_the_rest() {
        let graph = graph(CHAIN);
        let all: Vec<NodeIx> = graph.indexes().collect();
        let left_out: NodeId = "a/two".parse().unwrap();
        let strangers = vec![node(&"argocd/odd".parse().unwrap())];
        let tasks = reversed(&graph, &all, strangers, |id| (*id != left_out).then(|| node(id)));
        let told = awaited(&tasks);
        assert_eq!(told[0].0, "argocd/odd");
        assert_eq!(told[1], ("b/two".to_owned(), vec!["argocd/odd".to_owned()]));
        // Through the one that stays.
        assert_eq!(told[3], ("a/one".to_owned(), vec!["b/one".to_owned()]));
    }

    #[test]
    fn a_scope_is_its_own_nodes_with_what_lies_between_and_others_depend_on_it() {
        let graph = graph(CHAIN);
        let find = |id: &str| graph.find(&id.parse().unwrap()).unwrap();
        let names = |nodes: &[NodeIx]| -> Vec<String> { nodes.iter().map(|n| graph.node(*n).id.to_string()).collect() };
        assert_eq!(names(&between(&graph, &[find("a/one"), find("b/one")])), ["a/one", "a/two", "b/one"]);
        assert_eq!(names(&between(&graph, &[find("a/two")])), ["a/two"]);
        assert_eq!(names(&dependents(&graph, &[find("a/two")])), ["b/one", "b/two"]);
        assert_eq!(dependents(&graph, &[find("b/two")]), Vec::<NodeIx>::new());
    }

    #[test]
    fn nothing_has_no_tasks() {
        assert!(reversed(&graph("  stacks: []\n"), &[], Vec::new(), |id| Some(node(id))).is_empty());
    }
}
