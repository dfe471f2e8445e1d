//! The Argo Workflow of a run: tasks of one DAG, or of one for each band where they are many (docs/adr/0025), that all use
//! one tiny template, so that a graph of 1,000 nodes fits into an object, spec and status (SPEC.md section 6). A task
//! carries its node's identity and nothing else; what the node wants is in the plan's ConfigMaps.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{ENVIRONMENT_LABEL, MANAGED_BY, RUN_LABEL};
use crate::digest::Digest;
use crate::name::EnvironmentName;
use crate::run::{RunAction, RunPlan, Runner, plan_name, plan_pieces};

/// Largest Workflow that is submitted. Kubernetes takes about 1.5 MiB; the rest is for the status.
pub const WORKFLOW_LIMIT: usize = 700 << 10;
/// Above this, tasks are numbered instead of named.
const READABLE_LIMIT: usize = 320 << 10;
/// More tasks than this never fit, so nothing is computed for them.
const MOST_TASKS: usize = 5_000;
/// Seconds that the plugin has to tell every node of the deadline before Argo Workflows ends the Workflow.
const GRACE: u64 = 300;

/// Names and places that a Workflow refers to. Made by `forge bootstrap`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// Where Workflows run.
    pub workflows: String,
    /// Where Argo CD runs.
    pub argocd: String,
    /// The image of `forge`, by digest.
    pub image: String,
    /// The tick of the agent in milliseconds: how long a finished node may wait before the controller hears of it.
    pub agent_tick: u32,
}

impl Default for Places {
    fn default() -> Self {
        Self {
            workflows: "argo".to_owned(),
            argocd: "argocd".to_owned(),
            image: "forge".to_owned(),
            agent_tick: AGENT_TICK,
        }
    }
}

/// The name of the executor plugin, of its container, and of the key in a template.
pub const PLUGIN: &str = "forge";
/// The account of the agent pod.
pub const WORKFLOW_ACCOUNT: &str = "forge-workflow";
/// The account of the plugin. Argo Workflows derives it from the plugin's name.
pub const PLUGIN_ACCOUNT: &str = "forge-executor-plugin";
/// The account of the Job that conducts a run.
pub const EXECUTOR_ACCOUNT: &str = "forge-executor";
/// The account of a Job that also prepares the cluster.
pub const INSTALLER_ACCOUNT: &str = "forge-installer";
/// The account of a Job that replaces the token of the Argo CD account, and nothing else.
pub const ROTATOR_ACCOUNT: &str = "forge-rotator";
/// The account of a Job that validates, and nothing else.
pub const READER_ACCOUNT: &str = "forge-reader";
/// The Secret that holds the token of the Argo CD account.
pub const ARGOCD_SECRET: &str = "forge-argocd";
/// Where that Secret is mounted.
pub const ARGOCD_SECRET_PATH: &str = "/secrets/argocd";
/// The account of Argo CD that can get and delete Applications. It has a token only while a teardown lasts.
pub const TEARDOWN_ACCOUNT: &str = "forge-teardown";
/// The Secret that holds credentials of the GitOps repository, where that is not public. Somebody else makes it.
pub const GIT_SECRET: &str = "forge-git";
/// Where that Secret is mounted.
pub const GIT_SECRET_PATH: &str = "/secrets/git";
/// The Secret with what registries are reached with: credentials as `kubernetes.io/dockerconfigjson` keeps them, `ca.crt` and
/// `plain-http`, each where it is needed. Beside Argo CD it is for the plugin, beside the Workflows for the executor; somebody
/// else makes it.
pub const REGISTRY_SECRET: &str = "forge-registry";
/// Where that Secret is mounted.
pub const REGISTRY_SECRET_PATH: &str = "/secrets/registry";
/// The agent's tick unless bootstrap was told another one. Chosen by measurement (docs/adr/0012).
pub const AGENT_TICK: u32 = 50;
/// Ticks that make sense: below, the agent does nothing else; above are Argo Workflows' own ten seconds.
pub const AGENT_TICKS: std::ops::RangeInclusive<u32> = 10..=10_000;

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

/// The Secret that holds the token of a teardown of this environment, while that lasts.
pub fn teardown_secret(environment: &EnvironmentName) -> String {
    format!("{TEARDOWN_ACCOUNT}-{environment}")
}

/// The name of the Workflow that runs this, the first or one that was submitted again.
pub fn workflow_name(run: &crate::gate::RunId, resubmitted: u32) -> String {
    match resubmitted {
        0 => format!("forge-{run}"),
        again => format!("forge-{run}-r{again}"),
    }
}

/// The Workflow of a run. The same run gives the same bytes.
///
/// # Errors
/// When it would not fit into an object.
pub fn workflow(run: &RunPlan, places: &Places, resubmitted: u32) -> Result<Value, RenderError> {
    let nodes = run.len();
    if nodes > MOST_TASKS {
        return Err(RenderError::TooMany { nodes });
    }
    let identities: Vec<&str> = run.tasks.iter().map(|task| task.id.as_str()).collect();
    let template = match run.runner {
        Runner::Plugin => "node",
        Runner::Pod => "pod",
    };
    let (bands, is_cut) = (run.bands(), run.is_cut());
    let object = |names: &[String]| {
        let tasks = |band: &[usize]| -> Vec<Value> {
            let one = |place: &usize| {
                let (of, name) = (run.tasks.get(*place)?, names.get(*place)?);
                // A join costs a task, never a pod.
                let template = if of.node.is_some() { template } else { "join" };
                // In bands only the gate waits, so that nobody waits for the controller (docs/adr/0025).
                let before = of.before.iter().filter(|_| !is_cut).filter_map(|before| names.get(*before));
                Some(task(name, &of.id, template, before))
            };
            band.iter().filter_map(one).collect()
        };
        assembled(run, places, resubmitted, &dags(bands.iter().map(|band| tasks(band)).collect()))
    };
    let mut workflow = object(&readable(&identities));
    let mut bytes = size(&workflow);
    if bytes > READABLE_LIMIT {
        let numbered: Vec<String> = (0..identities.len()).map(|n| format!("t{n}")).collect();
        workflow = object(&numbered);
        bytes = size(&workflow);
    }
    if bytes > WORKFLOW_LIMIT {
        let edges = run.tasks.iter().map(|task| task.before.len()).sum();
        return Err(RenderError::TooLarge { nodes, edges, bytes });
    }
    Ok(workflow)
}

fn size(value: &Value) -> usize {
    serde_json::to_vec(value).map_or(usize::MAX, |bytes| bytes.len())
}

/// A valid and unique task name for each identity, close to it.
fn readable(identities: &[&str]) -> Vec<String> {
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

fn task<'n>(name: &str, identity: &str, template: &str, before: impl Iterator<Item = &'n String>) -> Value {
    let mut task = json!({"name": name, "templateRef": node_template(template)});
    let before: Vec<&String> = before.collect();
    if let Value::Object(fields) = &mut task {
        if template != "join" {
            fields.insert("arguments".to_owned(), argument("node", identity));
        }
        if !before.is_empty() {
            fields.insert("dependencies".to_owned(), json!(before));
        }
    }
    task
}

fn node_template(template: &str) -> Value {
    json!({"name": "forge-node", "template": template, "clusterScope": true})
}

fn argument(name: &str, value: &str) -> Value {
    json!({"parameters": [{"name": name, "value": value}]})
}

/// The DAGs of these bands, first the one to begin with. A single band is that one; of several each is a task of it that
/// waits until the plugin opens the band. No band waits for another: what is between them is the gate's, so that nothing
/// of one that failed in part is left out of the next.
fn dags(mut bands: Vec<Vec<Value>>) -> Vec<Value> {
    let dag = |name: &str, tasks: Vec<Value>| json!({"name": name, "dag": {"failFast": false, "tasks": tasks}});
    if bands.len() <= 1 {
        return vec![dag("graph", bands.pop().unwrap_or_default())];
    }
    let mut outer = Vec::new();
    let mut inner = Vec::new();
    for (number, tasks) in bands.into_iter().enumerate() {
        let (band, open) = (format!("band-{number}"), format!("open-{number}"));
        if number == 0 {
            outer.push(json!({"name": band, "template": band}));
        } else {
            let number = argument("band", &number.to_string());
            outer.push(json!({"name": open, "templateRef": node_template("open"), "arguments": number}));
            outer.push(json!({"name": band, "template": band, "dependencies": [open]}));
        }
        inner.push(dag(&band, tasks));
    }
    inner.insert(0, dag("graph", outer));
    inner
}

fn assembled(run: &RunPlan, places: &Places, resubmitted: u32, templates: &[Value]) -> Value {
    let mut spec = json!({
        "entrypoint": "graph",
        "serviceAccountName": WORKFLOW_ACCOUNT,
        "executor": {"serviceAccountName": WORKFLOW_ACCOUNT},
        "activeDeadlineSeconds": run.timeout.seconds().saturating_add(GRACE),
        "ttlStrategy": {"secondsAfterCompletion": 7 * 24 * 3600},
        "podGC": {"strategy": "OnPodCompletion"},
        "arguments": {"parameters": [
            {"name": "run", "value": run.run},
            {"name": "environment", "value": run.environment},
            {"name": "plan", "value": run.plan},
            {"name": "image", "value": places.image},
        ]},
        "podSpecPatch": pod_patch(run.runner, &credentials(run), &places.agent_tick.to_string(), &workers(run).to_string())
            .to_string(),
        "templates": templates,
    });
    if let (Value::Object(fields), Runner::Pod) = (&mut spec, run.runner) {
        fields.insert("parallelism".to_owned(), json!(64));
    }
    json!({
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {
            "name": workflow_name(&run.run, resubmitted),
            "namespace": places.workflows,
            "labels": labels(run),
            "annotations": {
                "forge.projectcatalyst.io/plan": run.plan,
                "forge.projectcatalyst.io/scope": run.scope,
            },
        },
        "spec": spec,
    })
}

/// The agent's workers. A held request occupies one, so there is one for each node that can be open at once, one for each band that
/// is not, and some more.
fn workers(run: &RunPlan) -> usize {
    run.tasks.len() + run.bands().len() + 15
}

/// What Argo Workflows does not let a template say: the agent's ticks and workers (ten seconds and sixteen by default,
/// which would be most of a run), and what only volumes carry: the token of the Argo CD account and credentials for Git. No
/// `subPath`: only a whole volume follows a Secret that changes. The policy of the account that submits it knows this text, and
/// with it which Secret: that account submits no teardown.
pub(super) fn pod_patch(runner: Runner, credentials: &str, tick: &str, workers: &str) -> Value {
    // A place for clones of repositories: the root of the container cannot be written.
    let mounts = json!([
        {"name": ARGOCD_SECRET, "mountPath": ARGOCD_SECRET_PATH, "readOnly": true},
        {"name": GIT_SECRET, "mountPath": GIT_SECRET_PATH, "readOnly": true},
        {"name": "forge-clones", "mountPath": "/tmp"},
    ]);
    let volumes = json!([
        {"name": ARGOCD_SECRET, "secret": {"secretName": credentials, "defaultMode": 0o444}},
        {"name": GIT_SECRET, "secret": {"secretName": GIT_SECRET, "defaultMode": 0o444, "optional": true}},
        {"name": "forge-clones", "emptyDir": {}},
    ]);
    let containers = match runner {
        Runner::Plugin => json!([
            {"name": "main", "env": [
                {"name": "ARGO_AGENT_PATCH_RATE", "value": format!("{tick}ms")},
                {"name": "ARGO_AGENT_TASK_WORKERS", "value": workers},
            ], "resources": {"limits": {"cpu": "1", "memory": "512Mi"}}},
            {"name": PLUGIN, "volumeMounts": mounts},
        ]),
        Runner::Pod => json!([{"name": "main", "volumeMounts": mounts}]),
    };
    json!({"containers": containers, "volumes": volumes, "terminationGracePeriodSeconds": 5})
}

/// The Secret with the token of Argo CD's account that a run uses.
fn credentials(run: &RunPlan) -> String {
    match run.action {
        RunAction::Deploy => ARGOCD_SECRET.to_owned(),
        RunAction::Teardown => teardown_secret(&run.environment),
    }
}

fn labels(run: &RunPlan) -> Value {
    json!({MANAGED_BY: "forge", ENVIRONMENT_LABEL: run.environment, RUN_LABEL: run.run})
}

/// The ClusterWorkflowTemplates that every Workflow refers to. They do not depend on any plan.
pub fn templates() -> Vec<Value> {
    let identity = |of: &str| {
        json!({
            "run": "{{workflow.parameters.run}}",
            "environment": "{{workflow.parameters.environment}}",
            "plan": "{{workflow.parameters.plan}}",
            of: format!("{{{{inputs.parameters.{of}}}}}"),
        })
    };
    let inputs = |of: &str| json!({"parameters": [{"name": of}]});
    vec![json!({
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "ClusterWorkflowTemplate",
        "metadata": {"name": "forge-node", "labels": {MANAGED_BY: "forge"}},
        "spec": {"templates": [
            {"name": "node", "inputs": inputs("node"), "plugin": {PLUGIN: identity("node")}},
            // Succeeds when a band may begin.
            {"name": "open", "inputs": inputs("band"), "plugin": {PLUGIN: identity("band")}},
            // Nothing to do: it succeeds when all before it did. A DAG without tasks is not valid, this is.
            {"name": "join", "suspend": {"duration": "0"}},
            {
                "name": "pod",
                "inputs": inputs("node"),
                "serviceAccountName": PLUGIN_ACCOUNT,
                "container": {
                    "image": "{{workflow.parameters.image}}",
                    "command": ["forge"],
                    "args": [
                        "serve", "node", "--run", "{{workflow.parameters.run}}",
                        "--node", "{{inputs.parameters.node}}", "--workflows-namespace", "{{workflow.namespace}}",
                        "--token-file", format!("{ARGOCD_SECRET_PATH}/token"),
                        "--argocd", format!("@{ARGOCD_SECRET_PATH}/server"),
                    ],
                    "securityContext": {
                        "runAsNonRoot": true, "runAsUser": 65532, "readOnlyRootFilesystem": true,
                        "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
                    },
                    "resources": {
                        "requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"cpu": "1", "memory": "256Mi"},
                    },
                },
            },
        ]},
    })]
}

/// The plan itself, in pieces that fit into ConfigMaps: what the plugin reads by the run's name.
pub fn plan_config_maps(run: &RunPlan, places: &Places) -> Vec<Value> {
    let pieces = plan_pieces(run);
    let count = pieces.texts.len();
    pieces
        .texts
        .iter()
        .enumerate()
        .map(|(n, piece)| {
            let data: BTreeMap<&str, &str> = BTreeMap::from([(pieces.key, piece.as_str())]);
            json!({
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {
                    "name": plan_name(&run.run, n),
                    "namespace": places.workflows,
                    "labels": labels(run),
                    "annotations": {
                        "forge.projectcatalyst.io/plan": run.plan,
                        "forge.projectcatalyst.io/pieces": count.to_string(),
                    },
                },
                "immutable": true,
                "data": data,
            })
        })
        .collect()
}
