//! The plan: what a run would do, in which order, with which limits. Making it cannot fail, and it is a pure function of
//! the repository and the scope: the same inputs give the same bytes and the same hash (INV-2, INV-9).

use std::collections::BTreeSet;

use serde::Serialize;

use crate::digest::{CommitId, Digest};
use crate::duration::Duration;
use crate::format::{Health, Reference, Subject};
use crate::gate::{ObjectRef, Retry, Timeouts};
use crate::graph::{Graph, NodeIx, Scope, StackNode};
use crate::name::{EnvironmentName, NodeId, StackName};
use crate::repository::{ApplicationName, EnvironmentFiles, Repository, application_name};

/// What a run would do.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The environment.
    pub environment: EnvironmentName,
    /// What it is about, names in full.
    pub scope: Scope,
    /// Digest of everything else in here.
    pub hash: Digest,
    /// Deadline of the whole run.
    pub timeout: Duration,
    /// How many waves it has.
    pub waves: usize,
    /// How many nodes the widest wave has.
    pub width: usize,
    /// The chain that may take longest.
    pub critical_path: Vec<NodeId>,
    /// The longest that the critical path may take.
    pub bound: Duration,
    /// The stacks of these nodes, with what every node of them waits for.
    pub stacks: Vec<StackNode>,
    /// The nodes, each after all that it waits for.
    pub nodes: Vec<PlannedNode>,
}

/// One node of a plan.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedNode {
    /// Its identity.
    pub id: NodeId,
    /// Its Argo CD Application.
    pub application: ApplicationName,
    /// Its AppProject, where the layout says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Its stack.
    pub stack: StackName,
    /// Its wave, from 0.
    pub wave: usize,
    /// There because of the layout, not because `graph.yaml` says so.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub implicit: bool,
    /// What it waits for beside what its stack waits for.
    pub depends_on: Vec<Reference>,
    /// What it is to run; none for `application:` nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<PlannedRelease>,
    /// Objects that must exist.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<ObjectRef>,
    /// Objects that must hold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub health: Vec<Health>,
    /// How long it may take.
    pub timeouts: Timeouts,
    /// How a failed sync is tried again.
    pub retry: Retry,
}

/// The release that a node is to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlannedRelease {
    /// Source commit.
    pub commit: CommitId,
    /// Digest of the release image.
    pub digest: Digest,
}

/// Makes the plan of a scope that [`Graph::scope`] resolved.
pub fn plan(repository: &Repository, files: &EnvironmentFiles, graph: &Graph, scope: &Scope, nodes: &[NodeIx]) -> Plan {
    let environment = &files.environment.name.value;
    let ordered = graph.ordered(nodes);
    let planned = ordered.iter().map(|node| planned(repository, files, graph, *node)).collect();
    let waves = ordered.last().map_or(0, |node| graph.wave(*node) + 1);
    let width = ordered.chunk_by(|a, b| graph.wave(*a) == graph.wave(*b)).map(<[_]>::len).max().unwrap_or(0);
    let critical = graph.critical_path_of(nodes);
    let mut plan = Plan {
        environment: environment.clone(),
        scope: scope.clone(),
        hash: Digest::of(b""),
        timeout: graph.timeout,
        waves,
        width,
        bound: critical.iter().map(|node| graph.node(*node).budget()).sum(),
        critical_path: critical.iter().map(|node| graph.node(*node).id.clone()).collect(),
        stacks: stacks(graph, nodes),
        nodes: planned,
    };
    // Everything but the hash itself, which is the same for all at this point.
    plan.hash = Digest::of_json(&plan);
    plan
}

fn stacks(graph: &Graph, nodes: &[NodeIx]) -> Vec<StackNode> {
    let used: BTreeSet<&StackName> = nodes.iter().map(|node| &graph.node(*node).stack).collect();
    graph.stacks().iter().filter(|stack| used.contains(&stack.name)).cloned().collect()
}

fn planned(repository: &Repository, files: &EnvironmentFiles, graph: &Graph, ix: NodeIx) -> PlannedNode {
    let environment = &files.environment.name.value;
    let node = graph.node(ix);
    let argo = repository.installation.argo.namespace.as_str();
    let (project, release) = match &node.subject {
        Subject::Project(id) => {
            let release = files.projects.get(id).map(|pointer| PlannedRelease {
                commit: pointer.release.value.clone(),
                digest: pointer.digest.value.clone(),
            });
            (Some(environment.to_string()), release)
        }
        Subject::Application(_) => (node.implicit.then(|| "forge-system".to_owned()), None),
    };
    PlannedNode {
        id: node.id.clone(),
        application: application_name(environment, argo, &node.subject),
        project,
        stack: node.stack.clone(),
        wave: graph.wave(ix),
        implicit: node.implicit,
        depends_on: node.depends_on.clone(),
        release,
        requires: node.requires.clone(),
        health: node.health.clone(),
        timeouts: node.timeouts,
        retry: node.retry,
    }
}

impl Plan {
    /// The name of the runs of this plan, without the number that tells one from the next: derived, never random.
    pub fn run(&self) -> String {
        format!("{}-{}", self.environment, self.hash.short(10))
    }
}
