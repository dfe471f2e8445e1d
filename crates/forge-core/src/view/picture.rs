//! The graph of a run that nobody has a checkout for: its plan holds enough of it for names and a picture.

use crate::format::{App, Defaults, DependencyGraph, Reference, Stack, Subject};
use crate::graph::Graph;
use crate::name::{ApplicationId, NodeId};
use crate::run::RunPlan;
use crate::yaml::{At, Position};

/// The graph of a run. Its stacks are not known, so all nodes are in one that is called after the environment.
pub fn graph(plan: &RunPlan) -> Option<Graph> {
    fn at<T>(value: T) -> At<T> {
        At::new(value, Position::START)
    }
    let apps = plan.wanted().into_iter().map(|wanted| {
        Some(App {
            subject: at(subject(&wanted.node, &wanted.application)?),
            depends_on: wanted.predecessors.into_iter().map(|id| at(Reference::Node(id))).collect(),
            requires: wanted.requires,
            health: Vec::new(),
            timeouts: crate::format::TimeoutsSpec {
                sync: Some(wanted.timeouts.sync),
                health: Some(wanted.timeouts.health),
            },
            retry: crate::format::RetrySpec::default(),
        })
    });
    let stack = Stack {
        name: at(plan.environment.as_str().parse().ok()?),
        layer: None,
        depends_on: Vec::new(),
        apps: apps.collect::<Option<_>>()?,
    };
    let written = DependencyGraph { defaults: Defaults::default(), timeout: plan.timeout, stacks: vec![stack] };
    Graph::build(&written, "plan", None, &[]).graph
}

/// What a node stands for, so that people can call it what they call it elsewhere.
fn subject(node: &NodeId, application: &ApplicationId) -> Option<Subject> {
    if NodeId::from(application) == *node {
        return Some(Subject::Application(application.clone()));
    }
    node.as_str().parse().ok().map(Subject::Project)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::sample;

    #[test]
    fn a_node_of_a_run_is_found_by_all_its_names() {
        let run = sample::stored("r-1", 0);
        let graph = graph(&run.plan).unwrap();
        let environment = "dev".parse().unwrap();
        for (name, id) in [("b/two", "b/two"), ("dev-b-two", "b/two"), ("proxy", "argocd/proxy")] {
            let found = graph.select(name, Some(&environment)).unwrap();
            assert_eq!(graph.node(found[0]).id.as_str(), id, "{name}");
        }
        let top = graph.find(&"b/one".parse().unwrap()).unwrap();
        assert_eq!(graph.wave(top), 2);
    }
}
