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
    /// Somebody else undoes what it needs.
    Conflict,
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
            Self::Conflict => Exit::Conflict,
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
            Self::Conflict => "conflict",
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

/// Proofs of a node that did not hold (docs/adr/0013).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Withdrawn {
    /// How many there were.
    pub times: u32,
    /// When the last one was taken back.
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
    /// Proofs that did not hold, where there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withdrawn: Option<Withdrawn>,
    /// Stored times of a node that is to go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removal: Option<teardown::Progress>,
}

impl Entry {
    /// The receipt, where the node is proven.
    pub fn receipt(&self) -> Option<&Receipt> {
        if let Decision::Proven(receipt) = &self.decision { Some(receipt) } else { None }
    }

    /// How often its proof was taken back.
    pub fn withdrawals(&self) -> u32 {
        self.withdrawn.map_or(0, |withdrawn| withdrawn.times)
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
    /// Its run has ended, and nothing had come of it by then ([`Record::stands`]).
    Unfinished,
}

impl Phase {
    /// All, in the order in which a node goes through them.
    pub const ALL: [Self; 10] = [
        Self::Waiting,
        Self::Starting,
        Self::Syncing,
        Self::Proving,
        Self::Deleting,
        Self::Proven,
        Self::Gone,
        Self::Failed,
        Self::Blocked,
        Self::Unfinished,
    ];

    /// It became what the run wanted; what waits for it may start.
    pub fn is_done(self) -> bool {
        matches!(self, Self::Proven | Self::Gone)
    }

    /// Nothing more happens to it in this run.
    pub fn is_over(self) -> bool {
        self.is_done() || matches!(self, Self::Failed | Self::Blocked | Self::Unfinished)
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
            Self::Unfinished => "unfinished",
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
    /// When all before it was done ([`Entry::began`]); nothing for one that is blocked.
    pub began: Option<Timestamp>,
    /// When it was proven, failed or blocked.
    pub ended: Option<Timestamp>,
    /// Predecessors that are not proven.
    pub waits_for: Vec<NodeId>,
}

impl Record {
    /// Every node of the run in the order of its plan.
    pub fn view(&self, plan: &RunPlan) -> Vec<NodeView> {
        let mut views: Vec<NodeView> = Vec::new();
        let mut phases: Vec<Option<Phase>> = Vec::with_capacity(plan.tasks.len());
        for (task, predecessors) in plan.tasks.iter().zip(plan.awaited()) {
            let Some(node) = &task.node else {
                phases.push(None);
                continue;
            };
            let entry = self.entries.get(&node.id);
            let phase_of = |place: &usize| phases.get(*place).copied().flatten();
            let open = predecessors.iter().filter(|place| !phase_of(place).is_some_and(Phase::is_done));
            let open = open.filter_map(|place| Some((&plan.tasks.get(*place)?.node.as_ref()?.id, phase_of(place))));
            let mut open: Vec<(&NodeId, Option<Phase>)> = open.collect();
            open.sort_unstable_by_key(|(node, _)| *node);
            let blocked = open.iter().find(|(_, phase)| matches!(phase, Some(Phase::Failed | Phase::Blocked)));
            let (phase, detail) = match (entry.map(|entry| &entry.decision), blocked) {
                (Some(Decision::Proven(receipt)), _) => (Phase::Proven, proven(receipt)),
                (Some(Decision::Gone(removed)), _) => (Phase::Gone, removed.to_string()),
                (Some(Decision::Failed(failure)), _) => match &failure.why {
                    Why::Blocked { .. } => (Phase::Blocked, failure.why.to_string()),
                    why => (Phase::Failed, why.to_string()),
                },
                (_, Some((by, _))) => (Phase::Blocked, Why::Blocked { by: (*by).clone() }.to_string()),
                (Some(Decision::Wait(wait)), None) => (waiting(&wait.on), wait.on.to_string()),
                (None, None) if open.is_empty() => (Phase::Starting, String::new()),
                (None, None) => (Phase::Waiting, String::new()),
            };
            phases.push(Some(phase));
            let last = entry.filter(|entry| entry.is_final()).map(|entry| entry.since);
            views.push(NodeView {
                node: node.id.clone(),
                phase,
                detail,
                since: entry.map(|entry| entry.since),
                started: entry.and_then(|entry| entry.started),
                began: entry.and_then(Entry::began).filter(|_| phase != Phase::Blocked),
                ended: last,
                waits_for: open.into_iter().map(|(node, _)| node.clone()).collect(),
            });
        }
        views
    }

    /// Every node of the run as it is told to who looks back. While the run lasts that is [`Self::view`]; when it has ended
    /// nothing of it is on its way any more, and what came to no end in it is unfinished.
    pub fn stands(&self, plan: &RunPlan) -> Vec<NodeView> {
        let mut views = self.view(plan);
        let Some(ended) = &self.header.ended else { return views };
        for view in views.iter_mut().filter(|view| !view.phase.is_over()) {
            view.detail = unfinished(plan.action, view);
            view.phase = Phase::Unfinished;
            view.since = Some(ended.at);
        }
        views
    }
}

/// Why a node is unfinished, and what was last seen of it.
fn unfinished(action: RunAction, view: &NodeView) -> String {
    let wanted = match action {
        RunAction::Deploy => Phase::Proven,
        RunAction::Teardown => Phase::Gone,
    };
    let detail = if view.detail.is_empty() { String::new() } else { format!(": {}", view.detail) };
    format!("the run ended before it was {}; last seen {}{detail}", wanted.as_str(), view.phase.as_str())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::sample;

    #[test]
    fn in_a_run_that_has_ended_nothing_is_on_its_way_any_more() {
        let mut run = sample::stored("r-1", 0);
        assert_eq!(run.record.stands(&run.plan), run.record.view(&run.plan));
        let ended = Ended { at: sample::at(100), verdict: Verdict::Cancelled, message: None };
        run.record.header.ended = Some(ended);
        let stands = run.record.stands(&run.plan);
        let told: Vec<_> = stands.iter().map(|view| (view.node.as_str(), view.phase)).collect();
        assert_eq!(
            told,
            [
                ("a/one", Phase::Proven),
                ("a/two", Phase::Failed),
                ("b/one", Phase::Blocked),
                ("argocd/proxy", Phase::Unfinished),
                ("b/two", Phase::Unfinished),
            ]
        );
        let [one, _, _, proxy, two] = stands.as_slice() else { panic!("{stands:?}") };
        assert!(
            proxy.detail.starts_with("the run ended before it was proven; last seen syncing: sync 1 runs"),
            "{proxy:?}"
        );
        assert_eq!(two.detail, "the run ended before it was proven; last seen waiting: `argocd/proxy` is not proven");
        assert_eq!((one.since, proxy.since), (Some(sample::at(13)), Some(sample::at(100))));
        // Who follows the run is told what it was at when it ended.
        let phases: Vec<Phase> = run.record.view(&run.plan).iter().skip(3).map(|view| view.phase).collect();
        assert_eq!(phases, [Phase::Syncing, Phase::Waiting]);
        run.plan.action = RunAction::Teardown;
        run.record.entries.clear();
        let first = run.record.stands(&run.plan).remove(0);
        assert_eq!(first.detail, "the run ended before it was gone; last seen starting");
    }

    #[test]
    fn a_node_began_when_all_before_it_was_done_and_a_blocked_one_never_did() {
        let run = sample::stored("r-1", 0);
        let times: Vec<_> = run.record.view(&run.plan).iter().map(|view| (view.began, view.ended)).collect();
        let at = |second| Some(sample::at(second));
        assert_eq!(times, [(at(1), at(13)), (at(14), at(60)), (None, at(61)), (at(1), None), (None, None)]);
    }
}
