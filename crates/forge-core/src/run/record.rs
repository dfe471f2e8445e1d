//! What has become of a run: a header that the Job writes, an entry per node that the plugin writes, and what follows
//! from both.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::code::Class;
use crate::digest::{CommitId, Digest};
use crate::exit::Exit;
use crate::gate::{Decision, Progress, Receipt, RunId, Wait, WaitingFor, Why};
use crate::graph::Scope;
use crate::name::{EnvironmentName, NodeId};
use crate::run::{RunAction, RunPlan, Runner};
use crate::teardown::{self, RemovalRecord, Waiting};

/// What is known of the run as a whole. Written by the Job alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
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
    /// The commit that it deploys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitId>,
    /// How its nodes are run.
    pub runner: Runner,
    /// How many nodes it has.
    pub nodes: usize,
    /// When it began.
    pub started: Timestamp,
    /// When it gives up.
    pub deadline: Timestamp,
    /// The Workflow that runs it now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// How often a Workflow was submitted again because infrastructure was lost.
    #[serde(default)]
    pub resubmitted: u32,
    /// How often the agent pod was replaced.
    #[serde(default)]
    pub agents_replaced: u32,
    /// What was wrong with the agent pod when it was replaced last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// Applications that no window holds, and why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub not_held: BTreeMap<NodeId, String>,
    /// What a teardown did beside its nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removal: Option<RemovalRecord>,
    /// How it ended; absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ended>,
}

impl Header {
    /// The header of a run that begins now.
    pub fn new(plan: &RunPlan, now: Timestamp) -> Self {
        Self {
            run: plan.run.clone(),
            environment: plan.environment.clone(),
            action: plan.action,
            scope: plan.scope.clone(),
            plan: plan.plan.clone(),
            commit: plan.commit.clone(),
            runner: plan.runner,
            nodes: plan.len(),
            started: now,
            deadline: plan.deadline(now),
            workflow: None,
            resubmitted: 0,
            agents_replaced: 0,
            trouble: None,
            not_held: BTreeMap::new(),
            removal: None,
            ended: None,
        }
    }
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ended {
    /// When.
    pub at: Timestamp,
    /// How.
    pub verdict: Verdict,
    /// In a sentence, where there is more to say than the nodes do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// How a run ended, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// Every node is proven.
    Done,
    /// Some are.
    Partial,
    /// None is.
    Failed,
    /// What is missing took too long.
    TimedOut,
    /// Somebody stopped it.
    Cancelled,
    /// Every node is gone, and something that should be is not.
    Orphans,
}

impl Verdict {
    /// The exit code of an action (SPEC.md section 5): of a teardown, a node that did not go is a failure.
    pub fn exit(self, action: RunAction) -> Exit {
        match self {
            Self::Done => Exit::Done,
            Self::Failed => Exit::Findings,
            Self::Partial if action == RunAction::Teardown => Exit::Findings,
            Self::Partial | Self::Cancelled | Self::Orphans => Exit::Partial,
            Self::TimedOut => Exit::Timeout,
        }
    }

    /// As people say it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Partial => "partial",
            Self::Failed => "failed",
            Self::TimedOut => "timed out",
            Self::Cancelled => "cancelled",
            Self::Orphans => "orphans left",
        }
    }
}

/// A request to Argo CD that mattered, for those who measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Asked {
    /// The attempt, from 1.
    pub attempt: u32,
    /// When the request was sent.
    pub at: Timestamp,
}

/// What is known of one node. Written by the plugin, or by the node's own pod.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The node.
    pub node: NodeId,
    /// Stored times (SPEC.md section 6).
    #[serde(default)]
    pub progress: Progress,
    /// The last answer of the gate, with the receipt where it is proven.
    pub decision: Decision,
    /// Since when that is the answer.
    pub since: Timestamp,
    /// When Argo Workflows first asked for the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    /// When Argo CD was first seen to call it Healthy after our last sync, and its own rules to hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthy: Option<Timestamp>,
    /// Every sync that was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked: Vec<Asked>,
    /// Stored times of a node that is to go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removal: Option<teardown::Progress>,
}

impl Entry {
    /// The receipt, where the node is proven.
    pub fn receipt(&self) -> Option<&Receipt> {
        if let Decision::Proven(receipt) = &self.decision { Some(receipt) } else { None }
    }

    /// When everything that it waits for was first seen done.
    pub fn ready_at(&self) -> Option<Timestamp> {
        self.removal.as_ref().map_or(self.progress.ready_at, |removal| removal.ready_at)
    }

    /// True when nothing changes any more in this run.
    pub fn is_final(&self) -> bool {
        !matches!(self.decision, Decision::Wait(_))
    }

    /// True when all before it was done once, or nothing changes any more. One that was asked for before its time, because
    /// its band has begun (docs/adr/0025), has not begun.
    pub fn has_begun(&self) -> bool {
        self.is_final() || self.ready_at().is_some()
    }

    /// When all before it was done; where that is not known, when it was asked for. Nothing for one that never got so far.
    pub fn began(&self) -> Option<Timestamp> {
        let held = match &self.decision {
            Decision::Wait(wait) => matches!(
                wait.on,
                WaitingFor::Predecessor { .. } | WaitingFor::Removal { on: Waiting::Dependent { .. } }
            ),
            Decision::Failed(failure) => matches!(
                failure.why,
                Why::Blocked { .. }
                    | Why::RunTimeout { predecessor: Some(_) }
                    | Why::Removal { why: teardown::Why::RunTimeout { dependent: Some(_) } }
            ),
            Decision::Proven(_) | Decision::Gone(_) => false,
        };
        self.ready_at().or(self.started.filter(|_| !held))
    }
}

/// The answer about a node that is to go before anybody looked at it.
pub fn not_asked_yet(deadline: Timestamp) -> Decision {
    Decision::Wait(Wait { on: WaitingFor::Removal { on: Waiting::Request }, until: deadline, since: None })
}

/// The answer about a node before anybody looked at it.
pub fn not_looked_at(deadline: Timestamp) -> Decision {
    Decision::Wait(Wait { on: WaitingFor::Refresh { asked: false }, until: deadline, since: None })
}

/// Everything that is known of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The run as a whole.
    pub header: Header,
    /// Its nodes, as far as they were looked at.
    pub entries: BTreeMap<NodeId, Entry>,
}

/// Where a node stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// Its predecessors are not proven.
    Waiting,
    /// Its predecessors are proven, and nothing was asked of Argo CD yet.
    Starting,
    /// A sync of ours is on its way.
    Syncing,
    /// Synced; everything that must hold is awaited.
    Proving,
    /// It is to go, and is on its way.
    Deleting,
    /// Proven.
    Proven,
    /// It was to go, and is gone.
    Gone,
    /// Failed.
    Failed,
    /// A predecessor failed.
    Blocked,
}

impl Phase {
    /// All, in the order in which a node goes through them.
    pub const ALL: [Self; 9] = [
        Self::Waiting,
        Self::Starting,
        Self::Syncing,
        Self::Proving,
        Self::Deleting,
        Self::Proven,
        Self::Gone,
        Self::Failed,
        Self::Blocked,
    ];

    /// It became what the run wanted; what waits for it may start.
    pub fn is_done(self) -> bool {
        matches!(self, Self::Proven | Self::Gone)
    }

    /// Nothing more happens to it in this run.
    pub fn is_over(self) -> bool {
        self.is_done() || matches!(self, Self::Failed | Self::Blocked)
    }

    /// As people say it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Starting => "starting",
            Self::Syncing => "syncing",
            Self::Proving => "proving",
            Self::Deleting => "deleting",
            Self::Proven => "proven",
            Self::Gone => "gone",
            Self::Failed => "failed",
            Self::Blocked => "blocked",
        }
    }
}

/// A node as it is shown: phase, what it waits for or why it failed, and times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeView {
    /// The node.
    pub node: NodeId,
    /// Where it stands.
    pub phase: Phase,
    /// What it waits for, why it failed, or on what its proof rests; empty where there is nothing to say.
    pub detail: String,
    /// Since when.
    pub since: Option<Timestamp>,
    /// When Argo Workflows first asked for it.
    pub started: Option<Timestamp>,
    /// When it was proven, failed or blocked.
    pub ended: Option<Timestamp>,
    /// Predecessors that are not proven.
    pub waits_for: Vec<NodeId>,
}

impl Record {
    /// Every node of the run in the order of its plan.
    pub fn view(&self, plan: &RunPlan) -> Vec<NodeView> {
        let mut views: Vec<NodeView> = Vec::new();
        let mut phases: BTreeMap<NodeId, Phase> = BTreeMap::new();
        for (node, predecessors) in plan.waits() {
            let entry = self.entries.get(&node.id);
            let is_done = |node: &NodeId| phases.get(node).is_some_and(|phase| phase.is_done());
            let open: Vec<NodeId> = predecessors.into_iter().filter(|node| !is_done(node)).collect();
            let blocked = open.iter().find(|p| matches!(phases.get(*p), Some(Phase::Failed | Phase::Blocked)));
            let (phase, detail) = match (entry.map(|entry| &entry.decision), blocked) {
                (Some(Decision::Proven(receipt)), _) => (Phase::Proven, proven(receipt)),
                (Some(Decision::Gone(removed)), _) => (Phase::Gone, removed.to_string()),
                (Some(Decision::Failed(failure)), _) => match &failure.why {
                    Why::Blocked { .. } => (Phase::Blocked, failure.why.to_string()),
                    why => (Phase::Failed, why.to_string()),
                },
                (_, Some(by)) => (Phase::Blocked, Why::Blocked { by: by.clone() }.to_string()),
                (Some(Decision::Wait(wait)), None) => (waiting(&wait.on), wait.on.to_string()),
                (None, None) if open.is_empty() => (Phase::Starting, String::new()),
                (None, None) => (Phase::Waiting, String::new()),
            };
            phases.insert(node.id.clone(), phase);
            let last = entry.filter(|entry| entry.is_final()).map(|entry| entry.since);
            views.push(NodeView {
                node: node.id.clone(),
                phase,
                detail,
                since: entry.map(|entry| entry.since),
                started: entry.and_then(|entry| entry.started),
                ended: last,
                waits_for: open,
            });
        }
        views
    }
}

fn proven(receipt: &Receipt) -> String {
    match receipt.attempt {
        None => "nothing had to change".to_owned(),
        Some(1) => String::new(),
        Some(attempt) => format!("sync {attempt}"),
    }
}

fn waiting(on: &WaitingFor) -> Phase {
    match on {
        WaitingFor::Predecessor { .. } => Phase::Waiting,
        WaitingFor::Application
        | WaitingFor::ForeignOperation
        | WaitingFor::ForeignTermination { .. }
        | WaitingFor::SyncRequest { .. } => Phase::Starting,
        WaitingFor::SyncStart { .. } | WaitingFor::Operation { .. } | WaitingFor::Backoff { .. } => Phase::Syncing,
        WaitingFor::Removal { on } => match on {
            Waiting::Dependent { .. } => Phase::Waiting,
            Waiting::Request | Waiting::Operation => Phase::Starting,
            Waiting::Shown { .. } | Waiting::Deletion { .. } | Waiting::Clearance | Waiting::Members { .. } => {
                Phase::Deleting
            }
        },
        _ => Phase::Proving,
    }
}

/// How a run of these nodes ended, when nothing more will happen: what a node says counts, never what a process says.
pub fn result(plan: &RunPlan, record: &Record, cancelled: bool) -> Verdict {
    let views = record.view(plan);
    let done = views.iter().filter(|view| view.phase.is_done()).count();
    if done == views.len() {
        return Verdict::Done;
    }
    if cancelled {
        return Verdict::Cancelled;
    }
    let failures = record.entries.values().filter_map(|entry| match &entry.decision {
        Decision::Failed(failure) if failure.class != Class::Blocked => Some(failure.class),
        _ => None,
    });
    let classes: Vec<Class> = failures.collect();
    if !classes.is_empty() && classes.iter().all(|class| *class == Class::Timeout) {
        return Verdict::TimedOut;
    }
    if done == 0 { Verdict::Failed } else { Verdict::Partial }
}
