//! One run of a plan: what every node must become, and what has become of it so far (SPEC.md sections 4 and 6).
//!
//! Both are data in ConfigMaps of the cluster: the [`RunPlan`] is written once, before the run begins; the [`Record`] grows
//! while it lasts. Plugin, pod runner, Job, `status`, `why` and `history` read the same types, so no process holds a
//! truth of its own (INV-3).

mod bands;
mod record;
mod store;
mod stored;
mod turn;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use bands::{BAND, Openings, stopped};
pub use record::{
    Asked, Ended, Entry, Header, NodeView, Phase, Record, Verdict, Withdrawn, not_asked_yet, not_looked_at, result,
};
pub use store::{
    CANCEL_KEY, CLEARANCE_KEY, HEADER_KEY, MOST_RUNS, NODES_PER_PIECE, Pieces, entry_key, entry_piece, plan_name,
    plan_pieces, read_plan, record_name, shortened,
};
pub use stored::{BrokenRun, Stored, StoredRun, stored};
pub use turn::{Seat, Seats, Sitting, Step, again, step};

use crate::digest::{CommitId, Digest};
use crate::duration::Duration;
use crate::format::Subject;
use crate::gate::{ContainerKey, Content, HealthRule, ObjectRef, Retry, RunId, Timeouts, Wanted};
use crate::graph::{Graph, NodeIx, Scope, Task};
use crate::name::{ApplicationId, EnvironmentName, NodeId};
use crate::plan::Plan;
use crate::teardown::{self, Removal};

/// What a run is to do: a plan, resolved to exact content, under a name of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunPlan {
    /// The run.
    pub run: RunId,
    /// The environment.
    pub environment: EnvironmentName,
    /// What it does with its nodes.
    #[serde(default, skip_serializing_if = "RunAction::is_deploy")]
    pub action: RunAction,
    /// What it is about.
    pub scope: Scope,
    /// Digest of the plan.
    pub plan: Digest,
    /// The commit of the GitOps repository that it was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitId>,
    /// The GitOps repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// Deadline of the whole run, counted from its start.
    pub timeout: Duration,
    /// How its nodes are run.
    pub runner: Runner,
    /// Nodes that were found proven before the run began: never held by its window.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub passed: BTreeSet<NodeId>,
    /// With how many tasks a band is full (docs/adr/0025); absent where all are in one, as in plans of before bands.
    /// Stored, so that whoever makes the Workflow and whoever answers it cut the run alike, whatever their versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub band: Option<usize>,
    /// Nodes and joins, each after all that it waits for.
    pub tasks: Vec<RunTask>,
}

/// What a run does with its nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RunAction {
    /// Each is synced and proven, after all that it waits for.
    #[default]
    Deploy,
    /// Each is removed, after all that waits for it.
    Teardown,
}

impl RunAction {
    /// True of a run as most are.
    pub fn is_deploy(&self) -> bool {
        *self == Self::Deploy
    }

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deploy => "deploy",
            Self::Teardown => "teardown",
        }
    }
}

/// How nodes are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Runner {
    /// Tasks of the executor plugin: one pod in all.
    #[default]
    Plugin,
    /// A pod per node, where plugins are not allowed.
    Pod,
}

/// A task of the Workflow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunTask {
    /// The identity of the node, or `stack:name` for a join.
    pub id: String,
    /// Places of the tasks that it waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<usize>,
    /// The node; absent for joins, which are proven when all before them are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<RunNode>,
}

/// What a node must become.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunNode {
    /// Its identity.
    pub id: NodeId,
    /// Its Argo CD Application.
    pub application: ApplicationId,
    /// What must be deployed.
    pub content: Content,
    /// Digests that its release names, by container.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub images: BTreeMap<ContainerKey, Digest>,
    /// Objects that must exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<ObjectRef>,
    /// Objects that must hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub health: Vec<HealthRule>,
    /// How long it may take.
    pub timeouts: Timeouts,
    /// How a failed sync is tried again.
    pub retry: Retry,
    /// What there is to remove, where it is to go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removal: Option<Removal>,
}

impl RunPlan {
    /// Makes the run of a plan. `content` says what each node must show; it is asked in the order of the plan.
    pub fn new(
        run: RunId,
        plan: &Plan,
        graph: &Graph,
        nodes: &[NodeIx],
        mut content: impl FnMut(&NodeId) -> Content,
    ) -> Self {
        let planned: BTreeMap<&NodeId, &crate::plan::PlannedNode> = plan.nodes.iter().map(|n| (&n.id, n)).collect();
        let reduced = graph.reduced(nodes);
        let stack = |rank: usize| graph.stacks().get(rank).map_or("", |stack| stack.name.as_str());
        let tasks = reduced.tasks.iter().map(|(task, before)| {
            let before = before.iter().map(|task| task.index()).collect();
            let (id, node) = match task {
                Task::End(rank) => (format!("stack:{}", stack(*rank)), None),
                Task::Begin(rank) => (format!("stack:{}:begin", stack(*rank)), None),
                Task::Node(ix) => {
                    let id = &graph.node(*ix).id;
                    let node = planned.get(id).and_then(|node| {
                        Some(RunNode {
                            id: id.clone(),
                            application: node.application.id()?,
                            content: content(id),
                            images: BTreeMap::new(),
                            requires: node.requires.clone(),
                            health: node.health.iter().map(rule).collect(),
                            timeouts: node.timeouts,
                            retry: node.retry,
                            removal: None,
                        })
                    });
                    (id.to_string(), node)
                }
            };
            RunTask { id, before, node }
        });
        let tasks: Vec<RunTask> = tasks.collect();
        Self {
            run,
            environment: plan.environment.clone(),
            action: RunAction::Deploy,
            scope: plan.scope.clone(),
            plan: plan.hash.clone(),
            commit: None,
            repository: None,
            timeout: plan.timeout,
            runner: Runner::Plugin,
            passed: BTreeSet::new(),
            band: (tasks.len() > BAND).then_some(BAND),
            tasks,
        }
    }

    /// Adds the digests that the releases of nodes name.
    pub fn name_images(&mut self, images: &BTreeMap<NodeId, BTreeMap<ContainerKey, Digest>>) {
        for node in self.tasks.iter_mut().filter_map(|task| task.node.as_mut()) {
            if let Some(images) = images.get(&node.id) {
                node.images.clone_from(images);
            }
        }
    }

    /// Makes the run that removes nodes: these tasks, which [`teardown::reversed`] put in order.
    pub fn teardown(run: RunId, plan: &Plan, tasks: Vec<RunTask>) -> Self {
        Self {
            run,
            environment: plan.environment.clone(),
            action: RunAction::Teardown,
            scope: plan.scope.clone(),
            plan: plan.hash.clone(),
            commit: None,
            repository: None,
            timeout: plan.timeout,
            runner: Runner::Plugin,
            passed: BTreeSet::new(),
            band: (tasks.len() > BAND).then_some(BAND),
            tasks,
        }
    }

    /// The nodes, each after all that it waits for.
    pub fn nodes(&self) -> impl Iterator<Item = &RunNode> {
        self.tasks.iter().filter_map(|task| task.node.as_ref())
    }

    /// The names of the nodes.
    pub fn names(&self) -> BTreeSet<NodeId> {
        self.nodes().map(|node| node.id.clone()).collect()
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.nodes().count()
    }

    /// True of a run about nothing.
    pub fn is_empty(&self) -> bool {
        self.nodes().next().is_none()
    }

    /// What each node waits for, in the order of the plan; joins dissolved.
    pub fn waits(&self) -> Vec<(&RunNode, Vec<NodeId>)> {
        let node = |place: usize| self.tasks.get(place).and_then(|task| task.node.as_ref());
        let named = |places: &[usize]| {
            let mut names: Vec<NodeId> = places.iter().filter_map(|place| node(*place)).map(|n| n.id.clone()).collect();
            names.sort_unstable();
            names.dedup();
            names
        };
        let waits = self.tasks.iter().zip(self.awaited());
        waits.filter_map(|(task, places)| Some((task.node.as_ref()?, named(&places)))).collect()
    }

    /// The places of the nodes that each task waits for, by its own place; joins dissolved.
    fn awaited(&self) -> Vec<Vec<usize>> {
        let mut awaited: Vec<Vec<usize>> = Vec::with_capacity(self.tasks.len());
        for task in &self.tasks {
            let mut places: Vec<usize> = Vec::new();
            for place in &task.before {
                match self.tasks.get(*place) {
                    Some(before) if before.node.is_some() => places.push(*place),
                    // A join stands before whoever waits for it.
                    Some(_) => places.extend(awaited.get(*place).into_iter().flatten()),
                    None => {}
                }
            }
            places.sort_unstable();
            places.dedup();
            awaited.push(places);
        }
        awaited
    }

    /// What the gate is asked about each node, in the order of the plan; joins dissolved.
    pub fn wanted(&self) -> Vec<Wanted> {
        let wanted = |(node, predecessors): (&RunNode, Vec<NodeId>)| Wanted {
            node: node.id.clone(),
            application: node.application.clone(),
            run: self.run.clone(),
            predecessors,
            content: node.content.clone(),
            images: node.images.clone(),
            requires: node.requires.clone(),
            health: node.health.clone(),
            timeouts: node.timeouts,
            retry: node.retry,
        };
        self.waits().into_iter().map(wanted).collect()
    }

    /// The same for nodes that are to go: a node waits for what depends on it.
    pub fn removals(&self) -> Vec<teardown::Wanted> {
        let wanted = |(node, dependents): (&RunNode, Vec<NodeId>)| teardown::Wanted {
            node: node.id.clone(),
            application: node.application.clone(),
            uid: node.removal.as_ref().and_then(|removal| removal.uid.clone()),
            dependents,
            timeouts: node.timeouts,
        };
        self.waits().into_iter().map(wanted).collect()
    }

    /// When a run that began then gives up.
    pub fn deadline(&self, started: Timestamp) -> Timestamp {
        started.saturating_add(self.timeout.as_jiff()).unwrap_or(Timestamp::MAX)
    }
}

fn rule(health: &crate::format::Health) -> HealthRule {
    HealthRule { object: health.object.clone(), expr: health.expr.value.clone() }
}

/// The content of a node as far as the repository alone says: the folder at the run's commit for Git; the release for a
/// project. What only the cluster knows (the revisions of other sources) is resolved when a run begins.
pub fn content(plan: &crate::plan::PlannedNode, subject: &Subject, commit: &CommitId) -> Content {
    match (subject, &plan.release) {
        (Subject::Project(_), Some(release)) => {
            let (commit, digest) = (commit.clone(), release.digest.clone());
            Content::Release { commit, digest, pointer: None, output: None }
        }
        _ => Content::Git { commit: commit.clone() },
    }
}
