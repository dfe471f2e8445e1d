//! The Argo Workflow of a plan: one DAG whose tasks all use one tiny template, so that a graph of 1,000 nodes fits into
//! an object, spec and status (SPEC.md section 6). A task carries its node's identity and nothing else; what the node
//! wants is in the plan's ConfigMaps.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{ENVIRONMENT_LABEL, MANAGED_BY, RUN_LABEL};
use crate::digest::Digest;
use crate::graph::{Graph, NodeIx, Task};
use crate::plan::Plan;

/// Largest Workflow that is submitted. Kubernetes takes about 1.5 MiB; the rest is for the status.
pub const WORKFLOW_LIMIT: usize = 700 << 10;
/// Above this, tasks are numbered instead of named.
const READABLE_LIMIT: usize = 320 << 10;
/// More tasks than this never fit, so nothing is computed for them.
const MOST_TASKS: usize = 5_000;
/// Largest piece of a plan in one ConfigMap (SPEC.md section 6).
const PIECE: usize = 256 << 10;

/// Why there is no Workflow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// More nodes than ever fit.
    #[error("{nodes} nodes; one workflow holds at most {MOST_TASKS}")]
    TooMany {
        /// Nodes in the scope.
        nodes: usize,
    },
    /// It would not fit into a Kubernetes object.
    #[error(
        "the workflow of {nodes} nodes and {edges} edges has {bytes} bytes; at most {WORKFLOW_LIMIT} fit into an object"
    )]
    TooLarge {
        /// Nodes in the scope.
        nodes: usize,
        /// Edges after reduction.
        edges: usize,
        /// Bytes of the object.
        bytes: usize,
    },
}

/// The Workflow of a plan.
pub fn workflow(plan: &Plan, graph: &Graph, nodes: &[NodeIx]) -> Result<Value, RenderError> {
    if nodes.len() > MOST_TASKS {
        return Err(RenderError::TooMany { nodes: nodes.len() });
    }
    let reduced = graph.reduced(nodes);
    let identities: Vec<String> = reduced
        .tasks
        .iter()
        .map(|(task, _)| match task {
            Task::Node(node) => graph.node(*node).id.to_string(),
            Task::End(stack) => stack_name(graph, *stack),
            Task::Begin(stack) => format!("{}:begin", stack_name(graph, *stack)),
        })
        .collect();
    let object = |names: &[String]| {
        let tasks: Vec<Value> = reduced
            .tasks
            .iter()
            .zip(&identities)
            .zip(names)
            .map(|(((_, before), identity), name)| {
                task(name, identity, before.iter().filter_map(|t| names.get(t.index())))
            })
            .collect();
        assembled(plan, &tasks)
    };
    let mut workflow = object(&readable(&identities));
    let mut bytes = size(&workflow);
    if bytes > READABLE_LIMIT {
        let numbered: Vec<String> = (0..identities.len()).map(|n| format!("t{n}")).collect();
        workflow = object(&numbered);
        bytes = size(&workflow);
    }
    if bytes > WORKFLOW_LIMIT {
        return Err(RenderError::TooLarge { nodes: nodes.len(), edges: reduced.edges(), bytes });
    }
    Ok(workflow)
}

fn size(value: &Value) -> usize {
    serde_json::to_vec(value).map_or(usize::MAX, |bytes| bytes.len())
}

/// A join is a node too: `stack:name` is proven when all of the stack is. Never a valid identity of an application.
fn stack_name(graph: &Graph, stack: usize) -> String {
    graph.stacks().get(stack).map(|stack| format!("stack:{}", stack.name)).unwrap_or_default()
}

/// A valid and unique task name for each identity, close to it.
fn readable(identities: &[String]) -> Vec<String> {
    const LONGEST: usize = 100;
    let mut taken: BTreeSet<String> = BTreeSet::new();
    identities
        .iter()
        .map(|identity| {
            let clean: String = identity.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
            let mut name: String = clean.chars().take(LONGEST).collect();
            if name.len() < clean.len() || taken.contains(&name) {
                name = format!("{name}-{}", Digest::of(identity.as_bytes()).short(8));
            }
            taken.insert(name.clone());
            name
        })
        .collect()
}

fn task<'n>(name: &str, identity: &str, before: impl Iterator<Item = &'n String>) -> Value {
    let mut task = json!({
        "name": name,
        "templateRef": {"name": "forge-node", "template": "node", "clusterScope": true},
        "arguments": {"parameters": [{"name": "node", "value": identity}]},
    });
    let before: Vec<&String> = before.collect();
    if let (Value::Object(fields), false) = (&mut task, before.is_empty()) {
        fields.insert("dependencies".to_owned(), json!(before));
    }
    task
}

fn assembled(plan: &Plan, tasks: &[Value]) -> Value {
    // The agent's own ticks are ten seconds by default, which would be most of a run (sandbox.md, "What was measured").
    let agent = json!({"containers": [{"name": "main", "env": [
        {"name": "ARGO_AGENT_PATCH_RATE", "value": "200ms"},
        {"name": "ARGO_AGENT_TASK_WORKERS", "value": "256"},
    ]}]});
    json!({
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {
            "name": format!("forge-{}", plan.run()),
            "namespace": "argo",
            "labels": labels(plan),
            "annotations": {
                "forge.projectcatalyst.io/plan": plan.hash,
                "forge.projectcatalyst.io/scope": plan.scope,
            },
        },
        "spec": {
            "entrypoint": "graph",
            "serviceAccountName": "forge-workflow",
            "activeDeadlineSeconds": plan.timeout.seconds(),
            "arguments": {"parameters": [
                {"name": "run", "value": plan.run()},
                {"name": "environment", "value": plan.environment},
                {"name": "plan", "value": plan.hash},
            ]},
            "podSpecPatch": agent.to_string(),
            "templates": [{"name": "graph", "dag": {"failFast": false, "tasks": tasks}}],
        },
    })
}

fn labels(plan: &Plan) -> Value {
    json!({MANAGED_BY: "forge", ENVIRONMENT_LABEL: plan.environment, RUN_LABEL: plan.run()})
}

/// The ClusterWorkflowTemplates that every Workflow refers to. They do not depend on any plan.
pub fn templates() -> Vec<Value> {
    vec![json!({
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "ClusterWorkflowTemplate",
        "metadata": {"name": "forge-node", "labels": {MANAGED_BY: "forge"}},
        "spec": {"templates": [{
            "name": "node",
            "inputs": {"parameters": [{"name": "node"}]},
            "plugin": {"forge": {
                "run": "{{workflow.parameters.run}}",
                "environment": "{{workflow.parameters.environment}}",
                "plan": "{{workflow.parameters.plan}}",
                "node": "{{inputs.parameters.node}}",
            }},
        }]},
    })]
}

/// The plan itself, in pieces that fit into ConfigMaps: what the plugin reads by the plan's hash.
pub fn plan_config_maps(plan: &Plan) -> Vec<Value> {
    let text = serde_json::to_string(plan).unwrap_or_default();
    let mut pieces: Vec<&str> = Vec::new();
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let mut end = rest.len().min(PIECE);
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let (piece, after) = rest.split_at(end);
        pieces.push(piece);
        rest = after;
    }
    let count = pieces.len();
    pieces
        .into_iter()
        .enumerate()
        .map(|(n, piece)| {
            let data: BTreeMap<&str, &str> = BTreeMap::from([("plan.json", piece)]);
            json!({
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {
                    "name": format!("forge-plan-{}-{n}", plan.run()),
                    "namespace": "argo",
                    "labels": labels(plan),
                    "annotations": {
                        "forge.projectcatalyst.io/plan": plan.hash,
                        "forge.projectcatalyst.io/pieces": count.to_string(),
                    },
                },
                "immutable": true,
                "data": data,
            })
        })
        .collect()
}
