//! The state of an environment: its phase and who has authority in it (SPEC.md section 4), the window, where every node
//! stands. Computed from what the cluster holds, every time (INV-3).

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::duration::Duration;
use crate::gate::{Health, NodeHealth, WaitingFor, aggregate};
use crate::graph::Scope;
use crate::name::{ApplicationId, EnvironmentName, NodeId, clip};
use crate::run::{Header, NodeView, Phase, RunAction, RunPlan, StoredRun};
use crate::view::{ApplicationFacts, age, between, shown};

/// The phase of the platform.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum PlatformPhase {
    /// Nothing is installed.
    PreBootstrap,
    /// Argo is there, Forge's own objects are not.
    Bootstrap,
    /// The graph runs, or has not been proven.
    Orchestration,
    /// Every node is proven.
    SteadyState,
    /// The environment is being removed.
    Teardown,
    /// What it follows from may not be read.
    NotKnown,
}

impl PlatformPhase {
    /// Its number and name.
    pub fn title(self) -> &'static str {
        match self {
            Self::PreBootstrap => "0 pre-bootstrap",
            Self::Bootstrap => "1 bootstrap",
            Self::Orchestration => "2 orchestration",
            Self::SteadyState => "3 steady state",
            Self::Teardown => "4 teardown",
            Self::NotKnown => "not known",
        }
    }

    /// Who decides in it.
    pub fn authority(self) -> &'static str {
        match self {
            Self::PreBootstrap => "the caller",
            Self::Bootstrap => "the executor",
            Self::Orchestration => "Argo Workflows",
            Self::SteadyState => "Argo CD; Kargo and Rollouts for promotion",
            Self::Teardown => "Argo Workflows, then the executor",
            Self::NotKnown => "not known",
        }
    }
}

/// Something that is there or not, as far as one may look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "camelCase")]
pub enum Seen<T> {
    /// It is not there.
    Absent,
    /// It may not be read, and nothing follows from that.
    Unknown,
    /// It is there.
    Found(T),
}

impl<T> Seen<T> {
    /// The same, lent.
    pub fn as_ref(&self) -> Seen<&T> {
        match self {
            Self::Absent => Seen::Absent,
            Self::Unknown => Seen::Unknown,
            Self::Found(found) => Seen::Found(found),
        }
    }

    /// What is found in what is there; nothing in it is as good as not there.
    pub fn and_then<U>(self, look: impl FnOnce(T) -> Option<U>) -> Seen<U> {
        match self {
            Self::Absent => Seen::Absent,
            Self::Unknown => Seen::Unknown,
            Self::Found(found) => look(found).map_or(Seen::Absent, Seen::Found),
        }
    }

    /// What is there.
    pub fn found(self) -> Option<T> {
        if let Self::Found(found) = self { Some(found) } else { None }
    }
}

/// What is installed, as far as one may look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Installed {
    /// Applications are served.
    pub argocd: bool,
    /// Workflows are served.
    pub workflows: bool,
    /// The templates of Forge are there; absent where nobody could look.
    pub forge: Option<bool>,
}

/// Who holds the Lease of the environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    /// `holderIdentity`: the run.
    pub run: String,
    /// When it was last renewed.
    pub renewed: Option<Timestamp>,
    /// How long it lasts without being renewed, in seconds.
    pub lasts: u64,
}

impl Holder {
    /// Reads a Lease; nothing where nobody holds it.
    pub fn read(lease: &Value) -> Option<Self> {
        let run = lease.pointer("/spec/holderIdentity").and_then(Value::as_str).filter(|run| !run.is_empty())?;
        let renewed = lease.pointer("/spec/renewTime").and_then(Value::as_str).and_then(|time| time.parse().ok());
        let lasts = lease.pointer("/spec/leaseDurationSeconds").and_then(Value::as_u64).unwrap_or(60);
        Some(Self { run: clip(run), renewed, lasts })
    }

    /// Nobody renews it any more.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.renewed.is_some_and(|renewed| between(renewed, now).seconds() > self.lasts)
    }
}

/// The window that holds automated sync back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Window {
    /// The run that opened it.
    pub run: String,
    /// The Applications in it.
    pub applications: BTreeSet<String>,
    /// Since when that run lasts, where its record is there.
    pub since: Option<Timestamp>,
}

/// What the first lines of `status` follow from.
#[derive(Debug, Clone, Copy)]
pub struct LeadFacts<'f> {
    /// What is installed.
    pub installed: Installed,
    /// Who holds the Lease.
    pub holder: Seen<&'f Holder>,
    /// The window.
    pub window: Seen<&'f Window>,
    /// The newest run.
    pub newest: Seen<&'f Header>,
    /// Every node that is known is proven.
    pub proven: bool,
    /// Every node of the environment is known.
    pub whole: bool,
    /// Now.
    pub now: Timestamp,
}

/// The first lines of `status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Lead {
    /// The phase.
    pub phase: PlatformPhase,
    /// Who has authority.
    pub authority: &'static str,
    /// The run that is in progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_progress: Option<String>,
    /// What that rests on, in a sentence.
    pub because: String,
}

/// Says in which phase the platform is.
pub fn lead(facts: &LeadFacts<'_>) -> Lead {
    let running = facts.newest.found().filter(|header| header.ended.is_none());
    let (phase, because) = not_installed(facts.installed)
        .or_else(|| {
            let phase = match running?.action {
                RunAction::Deploy => PlatformPhase::Orchestration,
                RunAction::Teardown => PlatformPhase::Teardown,
            };
            Some((phase, without_end(running?, facts)))
        })
        .unwrap_or_else(|| settled(facts));
    let held = |header: &&Header| facts.holder.found().is_some_and(|holder| holder.run == header.run.as_str());
    let in_progress = running.filter(held).map(|header| header.run.to_string());
    Lead { phase, authority: phase.authority(), in_progress, because }
}

fn not_installed(installed: Installed) -> Option<(PlatformPhase, String)> {
    let missing = match (installed.argocd, installed.workflows) {
        (false, false) => "neither Argo CD nor Argo Workflows is",
        (false, true) => "Argo CD is not",
        (true, false) => "Argo Workflows is not",
        (true, true) if installed.forge == Some(false) => {
            let because = "the ClusterWorkflowTemplate `forge-node` is missing";
            return Some((PlatformPhase::Bootstrap, because.to_owned()));
        }
        (true, true) => return None,
    };
    Some((PlatformPhase::PreBootstrap, format!("{missing} installed")))
}

/// How a run ended, in one word; of one without an end, whether anybody conducts it, as far as that is known.
pub fn verdict(header: &Header, holder: Seen<&Holder>, now: Timestamp) -> &'static str {
    match (&header.ended, holder) {
        (Some(ended), _) => ended.verdict.as_str(),
        (None, Seen::Found(holder)) if holder.run != header.run.as_str() || holder.has_expired(now) => "stale",
        (None, Seen::Absent) => "stale",
        (None, Seen::Found(_) | Seen::Unknown) => "running",
    }
}

/// What a run without an end says: in progress where the Lease names it, stale where it does not.
fn without_end(header: &Header, facts: &LeadFacts<'_>) -> String {
    let run = &header.run;
    match facts.holder {
        Seen::Found(holder) if holder.run == run.as_str() => {
            let expired = holder.has_expired(facts.now);
            let stale = if expired { ", but its Lease has run out: stale until its Job is back" } else { "" };
            format!("run {run} is in progress for {}{stale}", between(header.started, facts.now))
        }
        Seen::Unknown => format!("run {run} has no end; who holds its Lease is not known"),
        Seen::Found(_) | Seen::Absent => format!("run {run} has no end, and nobody holds the Lease for it: stale"),
    }
}

/// The phase where no run is without an end.
fn settled(facts: &LeadFacts<'_>) -> (PlatformPhase, String) {
    let (phase, because) = match (facts.window, facts.newest) {
        (Seen::Found(window), Seen::Found(_)) => {
            let because = format!("run {} has ended and left {} in its window", clip(&window.run), count(window));
            return (PlatformPhase::Orchestration, because);
        }
        (Seen::Found(window), _) => {
            let because = format!("the window of run {} holds {}", clip(&window.run), count(window));
            return (PlatformPhase::Orchestration, because);
        }
        (_, Seen::Unknown) => (PlatformPhase::NotKnown, "the records of runs may not be read"),
        (_, Seen::Absent) => (PlatformPhase::Orchestration, "no run is recorded"),
        _ if !facts.proven => (PlatformPhase::Orchestration, "not every node is proven"),
        _ if !facts.whole => {
            (PlatformPhase::Orchestration, "what is shown is proven, which need not be the whole platform")
        }
        (Seen::Unknown, _) => (PlatformPhase::NotKnown, "every node is proven; whether there is a window is not known"),
        (Seen::Absent, _) => (PlatformPhase::SteadyState, "every node is proven and there is no window"),
    };
    (phase, because.to_owned())
}

fn count(window: &Window) -> String {
    match window.applications.len() {
        1 => "1 Application".to_owned(),
        more => format!("{more} Applications"),
    }
}

/// Where the nodes of an environment stand, told by all its runs together.
#[derive(Debug, Clone, PartialEq)]
pub struct Standing {
    /// The newest run of the whole platform, or the oldest at all.
    pub plan: RunPlan,
    /// It is about the whole platform, so what it does not name is not in the graph.
    pub whole: bool,
    /// The nodes in the order of that plan; those that only other runs know come last. With the run that says so.
    pub nodes: Vec<(NodeView, ApplicationId, String)>,
    /// Nodes that are run and that no window holds, and why.
    pub not_held: BTreeMap<NodeId, String>,
}

/// What the runs of an environment, the newest first, say together. A run of a smaller scope says nothing about the nodes
/// that it leaves out: what the last run of the platform said about them still holds, or where there is none what any
/// run said.
pub fn standing(runs: &[StoredRun]) -> Option<Standing> {
    let whole = runs.iter().position(|run| run.plan.scope == Scope::Platform);
    let first = whole.or_else(|| runs.len().checked_sub(1))?;
    let plan = runs.get(first)?.plan.clone();
    let mut standing = Standing { plan, whole: whole.is_some(), nodes: Vec::new(), not_held: BTreeMap::new() };
    let mut places: BTreeMap<NodeId, usize> = BTreeMap::new();
    for run in runs.iter().take(first + 1).rev() {
        standing.add(run, &mut places);
    }
    Some(standing)
}

impl Standing {
    /// What a later run says instead.
    fn add(&mut self, run: &StoredRun, places: &mut BTreeMap<NodeId, usize>) {
        let applications: Vec<ApplicationId> = run.plan.nodes().map(|node| node.application.clone()).collect();
        for (view, application) in run.record.stands(&run.plan).into_iter().zip(applications) {
            // What was found proven did not have to be held, so nobody looked whether it could be.
            if !run.plan.passed.contains(&view.node) {
                self.not_held.remove(&view.node);
            }
            let name = run.plan.run.to_string();
            match places.get(&view.node).and_then(|place| self.nodes.get_mut(*place)) {
                Some(known) => *known = (view, application, name),
                None => {
                    places.insert(view.node.clone(), self.nodes.len());
                    self.nodes.push((view, application, name));
                }
            }
        }
        self.not_held.extend(run.record.header.not_held.clone());
    }

    /// Which nodes no window holds, a sentence for each reason.
    pub fn not_held_notes(&self) -> Vec<String> {
        const MOST: usize = 5;
        let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (node, why) in &self.not_held {
            reasons.entry(why).or_default().push(node.as_str());
        }
        let note = |(why, nodes): (&str, Vec<&str>)| {
            let named: Vec<&str> = nodes.iter().take(MOST).copied().collect();
            let more = nodes.len().saturating_sub(MOST);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("run but not held by a window: {}{more}: {why}", named.join(", "))
        };
        reasons.into_iter().map(note).collect()
    }
}

/// How a node is, in one word: by its run while that is at it or has given it up, else by what Argo CD says of it now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeState {
    /// As its run says. Proven only where Argo CD has nothing against it.
    Run(Phase),
    /// Argo CD's word for its health, whatever a run once proved; Healthy where no run has proven it.
    Live(NodeHealth),
    /// Healthy, and not what Git says, or Argo CD does not know.
    OutOfSync,
    /// Argo CD called it Healthy and has not compared for a while.
    Stale,
}

impl NodeState {
    /// As people say it, in small letters and without a space.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Run(phase) => phase.as_str(),
            Self::Live(NodeHealth::Healthy) => "healthy",
            Self::Live(NodeHealth::Suspended) => "suspended",
            Self::Live(NodeHealth::Unknown) => "unknown",
            Self::Live(NodeHealth::Progressing) => "progressing",
            Self::Live(NodeHealth::Missing) => "missing",
            Self::Live(NodeHealth::Degraded) => "degraded",
            Self::Live(NodeHealth::Failed) => "failed",
            Self::OutOfSync => "out-of-sync",
            Self::Stale => "stale",
        }
    }
}

/// One node of `status`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusNode {
    /// The node.
    pub node: NodeId,
    /// Its Application.
    pub application: ApplicationId,
    /// Where it stands in the run; absent where no run is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// What it waits for, or why it failed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// When all before it was done in that run; nothing for one that is blocked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub began: Option<Timestamp>,
    /// When it was proven, gone or failed in that run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// The run that says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// What Argo CD says now; absent where the Application does not exist or could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live: Option<ApplicationFacts>,
    /// Argo CD has not compared for a while.
    pub stale: bool,
}

impl StatusNode {
    /// A node of which nobody says anything.
    pub fn unknown(node: &NodeId, application: &ApplicationId) -> Self {
        Self {
            node: node.clone(),
            application: application.clone(),
            phase: None,
            detail: String::new(),
            since: None,
            began: None,
            ended: None,
            run: None,
            live: None,
            stale: false,
        }
    }

    /// Since when it is as it is: by the run, or where none says so by Argo CD.
    pub fn since(&self) -> Option<Timestamp> {
        self.since.or_else(|| self.live.as_ref()?.since)
    }

    /// How long its run was at it.
    pub fn took(&self) -> Option<Duration> {
        Some(between(self.began?, self.ended?))
    }

    /// How it is, in one word. What was proven and is Degraded, Missing or gone now is not proven any more.
    pub fn state(&self) -> NodeState {
        let live = match (self.phase, &self.live) {
            (None | Some(Phase::Proven), None) => return NodeState::Live(NodeHealth::Missing),
            // What is there again after it was gone is as Argo CD says.
            (None | Some(Phase::Proven | Phase::Gone), Some(live)) => live,
            (Some(phase), _) => return NodeState::Run(phase),
        };
        match live.health() {
            Health::Healthy if !live.is_synced() => NodeState::OutOfSync,
            Health::Healthy if self.stale => NodeState::Stale,
            Health::Healthy if self.is_well() => NodeState::Run(Phase::Proven),
            health => NodeState::Live(health.into()),
        }
    }

    /// What there is to say about it, the cause first; on what its proof rests comes last.
    pub fn told(&self) -> Vec<String> {
        let proven = self.phase == Some(Phase::Proven);
        let own = |wanted: bool| Some(self.detail.clone()).filter(|detail| wanted && !detail.is_empty());
        let live = self.live.iter();
        let unwell = live.clone().flat_map(|live| &live.unwell).map(|unwell| {
            let line = format!("{} {} {}", unwell.resource, unwell.health, unwell.message);
            line.trim_end().to_owned()
        });
        let mut told: Vec<String> = own(!proven).into_iter().collect();
        if told.is_empty() && self.live.is_none() && self.phase != Some(Phase::Gone) {
            told.push(WaitingFor::Application.to_string());
        }
        told.extend(unwell);
        told.extend(live.flat_map(|live| live.conditions.iter().cloned()));
        told.extend(own(proven));
        told
    }

    /// That Argo CD has not compared it for a while, in words.
    pub fn staleness(&self, now: Timestamp) -> Option<String> {
        let live = self.live.as_ref().filter(|_| self.stale)?;
        Some(match live.compared {
            Some(at) => format!("stale: compared {} ago", age(between(at, now))),
            None => "stale: never compared".to_owned(),
        })
    }

    /// The same on one line: the first thing that there is to say, and that it is stale.
    pub fn line(&self, now: Timestamp) -> String {
        self.told().into_iter().take(1).chain(self.staleness(now)).collect::<Vec<_>>().join("; ")
    }

    /// Its health in one word: what the gate gave up on is failed, whatever Argo CD says.
    pub fn health(&self) -> NodeHealth {
        match (self.phase, &self.live) {
            (Some(Phase::Failed | Phase::Blocked), _) => NodeHealth::Failed,
            (_, Some(facts)) => facts.health().into(),
            (_, None) => NodeHealth::Missing,
        }
    }

    /// Nothing is left to wish for: proven, Synced, Healthy, and looked at lately. Argo CD's words alone prove nothing
    /// (INV-5), so it takes a run.
    pub fn is_well(&self) -> bool {
        let proven = self.phase == Some(Phase::Proven);
        let live = self.live.as_ref().is_some_and(|facts| facts.is_synced() && facts.health() == Health::Healthy);
        proven && live && !self.stale
    }
}

/// The nodes of an environment: those that runs know, and after them those of the graph that no run has. Where there
/// are runs these are not proven; where there is none at all, Argo CD's own words must do.
pub fn listed<'g>(
    standing: Option<&Standing>,
    graph: impl IntoIterator<Item = (&'g NodeId, &'g ApplicationId)>,
) -> Vec<StatusNode> {
    let told = standing.into_iter().flat_map(|standing| &standing.nodes);
    let mut nodes: Vec<StatusNode> = told
        .map(|(view, application, run)| StatusNode {
            phase: Some(view.phase),
            detail: shown(&view.detail),
            since: view.since,
            began: view.began,
            ended: view.ended,
            run: Some(run.clone()),
            ..StatusNode::unknown(&view.node, application)
        })
        .collect();
    let known: BTreeSet<NodeId> = nodes.iter().map(|node| node.node.clone()).collect();
    for (node, application) in graph.into_iter().filter(|(node, _)| !known.contains(*node)) {
        let mut missing = StatusNode::unknown(node, application);
        if standing.is_some() {
            missing.phase = Some(Phase::Waiting);
            missing.detail = "no run that is kept has this node".to_owned();
        }
        nodes.push(missing);
    }
    nodes
}

/// The health of all nodes in one word (SPEC.md section 6).
pub fn health(nodes: &[StatusNode]) -> NodeHealth {
    aggregate(nodes.iter().map(StatusNode::health))
}

/// An Application of the environment's AppProject that no node stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Stranger {
    /// `namespace/name`.
    pub application: String,
    /// What is odd about it.
    pub why: String,
    /// Its sync and health.
    pub live: ApplicationFacts,
}

/// Applications of the environment's AppProject that no node stands for.
pub fn strangers(
    environment: &EnvironmentName,
    known: &BTreeSet<&ApplicationId>,
    found: &BTreeMap<ApplicationId, ApplicationFacts>,
) -> Vec<Stranger> {
    let mine = |facts: &ApplicationFacts| facts.project.as_deref() == Some(environment.as_str());
    let odd = found.iter().filter(|(id, facts)| !known.contains(id) && mine(facts));
    odd.map(|(id, facts)| Stranger {
        application: id.to_string(),
        why: if facts.path_is_gone() {
            "its path is gone from Git; `forge platform teardown` with its scope removes it".to_owned()
        } else {
            "not in the graph".to_owned()
        },
        live: facts.clone(),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::sample;

    fn facts(installed: Installed, newest: Option<&Header>) -> LeadFacts<'_> {
        LeadFacts {
            installed,
            holder: Seen::Absent,
            window: Seen::Absent,
            newest: newest.map_or(Seen::Absent, Seen::Found),
            proven: false,
            whole: true,
            now: sample::at(60),
        }
    }

    const ALL: Installed = Installed { argocd: true, workflows: true, forge: Some(true) };

    #[test]
    fn the_phase_follows_from_what_the_cluster_holds() {
        let running = sample::stored("r-1", 0).record.header;
        let ended = sample::all_proven("r-1", 0).record.header;
        let held = Holder { run: "r-1".to_owned(), renewed: Some(sample::at(50)), lasts: 15 };
        let gone = Holder { renewed: Some(sample::at(10)), ..held.clone() };
        let other = Holder { run: "r-2".to_owned(), ..held.clone() };
        let window = Window { run: "r-1".to_owned(), applications: ["x".to_owned()].into(), since: None };
        for (facts, phase, because) in [
            (facts(Installed { argocd: false, ..ALL }, None), PlatformPhase::PreBootstrap, "Argo CD is not installed"),
            (
                facts(Installed { forge: Some(false), ..ALL }, None),
                PlatformPhase::Bootstrap,
                "the ClusterWorkflowTemplate `forge-node` is missing",
            ),
            (facts(Installed { forge: None, ..ALL }, None), PlatformPhase::Orchestration, "no run is recorded"),
            (
                LeadFacts { holder: Seen::Found(&held), ..facts(ALL, Some(&running)) },
                PlatformPhase::Orchestration,
                "run r-1 is in progress for 1m",
            ),
            (
                LeadFacts { holder: Seen::Found(&gone), ..facts(ALL, Some(&running)) },
                PlatformPhase::Orchestration,
                "run r-1 is in progress for 1m, but its Lease has run out: stale until its Job is back",
            ),
            (
                facts(ALL, Some(&running)),
                PlatformPhase::Orchestration,
                "run r-1 has no end, and nobody holds the Lease for it: stale",
            ),
            (
                LeadFacts { holder: Seen::Found(&other), ..facts(ALL, Some(&running)) },
                PlatformPhase::Orchestration,
                "run r-1 has no end, and nobody holds the Lease for it: stale",
            ),
            (
                LeadFacts { window: Seen::Found(&window), proven: true, ..facts(ALL, Some(&ended)) },
                PlatformPhase::Orchestration,
                "run r-1 has ended and left 1 Application in its window",
            ),
            (
                LeadFacts { window: Seen::Found(&window), ..facts(ALL, None) },
                PlatformPhase::Orchestration,
                "the window of run r-1 holds 1 Application",
            ),
            (facts(ALL, Some(&ended)), PlatformPhase::Orchestration, "not every node is proven"),
            (
                LeadFacts { proven: true, whole: false, ..facts(ALL, Some(&ended)) },
                PlatformPhase::Orchestration,
                "what is shown is proven, which need not be the whole platform",
            ),
            (
                LeadFacts { proven: true, ..facts(ALL, Some(&ended)) },
                PlatformPhase::SteadyState,
                "every node is proven and there is no window",
            ),
        ] {
            let lead = lead(&facts);
            assert_eq!((lead.phase, lead.because.as_str()), (phase, because));
        }
    }

    #[test]
    fn from_what_may_not_be_read_nothing_follows() {
        let running = sample::stored("r-1", 0).record.header;
        let ended = sample::all_proven("r-1", 0).record.header;
        for (facts, phase, because) in [
            (
                LeadFacts { holder: Seen::Unknown, ..facts(ALL, Some(&running)) },
                PlatformPhase::Orchestration,
                "run r-1 has no end; who holds its Lease is not known",
            ),
            (
                LeadFacts { window: Seen::Unknown, proven: true, ..facts(ALL, Some(&ended)) },
                PlatformPhase::NotKnown,
                "every node is proven; whether there is a window is not known",
            ),
            (
                LeadFacts { newest: Seen::Unknown, ..facts(ALL, None) },
                PlatformPhase::NotKnown,
                "the records of runs may not be read",
            ),
        ] {
            let lead = lead(&facts);
            assert_eq!((lead.phase, lead.because.as_str(), lead.in_progress), (phase, because, None));
        }
    }

    #[test]
    fn what_may_not_be_read_is_written_as_unknown_and_not_as_nothing() {
        let window = Window { run: "r-1".to_owned(), applications: ["x".to_owned()].into(), since: None };
        for (window, json) in [
            (Seen::Absent, serde_json::json!({"state": "absent"})),
            (Seen::Unknown, serde_json::json!({"state": "unknown"})),
            (
                Seen::Found(window),
                serde_json::json!({"state": "found", "run": "r-1", "applications": ["x"], "since": null}),
            ),
        ] {
            assert_eq!(serde_json::to_value(&window).unwrap(), json);
        }
    }

    #[test]
    fn a_later_run_of_one_application_leaves_what_is_known_of_the_others() {
        let platform = sample::stored("r-1", 0);
        let mut scoped = sample::all_proven("r-2", 500);
        scoped.plan.scope = "app:a/two".parse().unwrap();
        scoped.plan.tasks.truncate(2);
        let standing = standing(&[scoped, platform]).unwrap();
        let told: Vec<_> =
            standing.nodes.iter().map(|(view, _, run)| (view.node.as_str(), view.phase, run.as_str())).collect();
        assert_eq!(
            told,
            [
                ("a/one", Phase::Proven, "r-2"),
                ("a/two", Phase::Proven, "r-2"),
                ("b/one", Phase::Blocked, "r-1"),
                ("argocd/proxy", Phase::Syncing, "r-1"),
                ("b/two", Phase::Waiting, "r-1"),
            ]
        );
        assert!(standing.whole);
    }

    /// A run of one application and all that it waits for, every node proven.
    fn of_one(run: &str, offset: i64, scope: &str, nodes: std::ops::Range<usize>) -> StoredRun {
        let mut scoped = sample::all_proven(run, offset);
        scoped.plan.scope = scope.parse().unwrap();
        scoped.plan.tasks = scoped.plan.tasks.drain(nodes).collect();
        for task in &mut scoped.plan.tasks {
            task.before.clear();
        }
        scoped
    }

    #[test]
    fn without_a_run_of_the_platform_smaller_ones_speak_together_and_the_graph_has_what_they_leave_out() {
        let runs = [of_one("r-2", 500, "app:argocd/proxy", 3..4), of_one("r-1", 0, "app:a/two", 0..2)];
        let standing = standing(&runs).unwrap();
        assert!(!standing.whole);
        let whole = sample::stored("r-3", 0).plan;
        let graph = || whole.nodes().map(|node| (&node.id, &node.application));
        let nodes = listed(Some(&standing), graph());
        let told: Vec<_> = nodes.iter().map(|n| (n.node.as_str(), n.phase, n.run.as_deref())).collect();
        let (proven, not) = (Some(Phase::Proven), Some(Phase::Waiting));
        assert_eq!(
            told,
            [
                ("a/one", proven, Some("r-1")),
                ("a/two", proven, Some("r-1")),
                ("argocd/proxy", proven, Some("r-2")),
                ("b/one", not, None),
                ("b/two", not, None),
            ]
        );
        let first = listed(None, graph());
        assert!(first.len() == 5 && first.iter().all(|node| node.phase.is_none()));
    }

    #[test]
    fn which_nodes_no_window_holds_is_said_once_for_each_reason() {
        let mut platform = sample::all_proven("r-1", 0);
        let ids: Vec<NodeId> = platform.plan.nodes().map(|node| node.id.clone()).collect();
        let why = "there is no AppProject `dev`";
        platform.record.header.not_held = ids.iter().map(|id| (id.clone(), why.to_owned())).collect();
        // The later run holds one of its two; the other was found proven, so nobody looked.
        let mut scoped = of_one("r-2", 500, "app:a/two", 0..2);
        scoped.plan.passed = ["a/one".parse().unwrap()].into();
        let mut runs = [scoped, platform];
        assert_eq!(
            standing(&runs).unwrap().not_held_notes(),
            ["run but not held by a window: a/one, argocd/proxy, b/one, b/two: there is no AppProject `dev`"]
        );
        runs[0].plan.passed.insert("a/two".parse().unwrap());
        let notes = standing(&runs).unwrap().not_held_notes();
        assert!(notes.len() == 1 && notes[0].contains("a/one, a/two, argocd/proxy, b/one, b/two: there"), "{notes:?}");
    }

    #[test]
    fn since_when_is_told_by_the_run_or_else_by_argo_cd() {
        let (node, application) = ("a/one".parse().unwrap(), "argocd/dev-a-one".parse().unwrap());
        let mut node = StatusNode::unknown(&node, &application);
        assert_eq!(node.since(), None);
        node.live = Some(ApplicationFacts { since: Some(sample::at(1)), ..ApplicationFacts::default() });
        assert_eq!(node.since(), Some(sample::at(1)));
        node.since = Some(sample::at(2));
        assert_eq!(node.since(), Some(sample::at(2)));
    }

    /// A node in a phase, without an Application.
    fn one(phase: Option<Phase>) -> StatusNode {
        let (node, application) = ("a/one".parse().unwrap(), "argocd/dev-a-one".parse().unwrap());
        StatusNode { phase, ..StatusNode::unknown(&node, &application) }
    }

    fn says(sync: &str, health: &str) -> ApplicationFacts {
        let (sync, health) = (Some(sync.to_owned()), Some(health.to_owned()));
        ApplicationFacts { sync, health, ..ApplicationFacts::default() }
    }

    #[test]
    fn a_node_is_as_its_run_says_and_proven_only_while_argo_cd_has_nothing_against_it() {
        let proven = Some(Phase::Proven);
        for (phase, live, stale, state) in [
            (proven, Some(("Synced", "Healthy")), false, "proven"),
            (None, Some(("Synced", "Healthy")), false, "healthy"),
            (proven, Some(("Synced", "Degraded")), false, "degraded"),
            (None, Some(("Synced", "Degraded")), false, "degraded"),
            (proven, Some(("Synced", "Missing")), false, "missing"),
            (proven, Some(("Synced", "Progressing")), false, "progressing"),
            (proven, Some(("Synced", "Suspended")), false, "suspended"),
            (proven, Some(("Synced", "Splendid")), true, "unknown"),
            (proven, Some(("OutOfSync", "Healthy")), true, "out-of-sync"),
            (proven, Some(("Synced", "Healthy")), true, "stale"),
            (None, Some(("Synced", "Healthy")), true, "stale"),
            (proven, None, false, "missing"),
            (None, None, false, "missing"),
            (Some(Phase::Gone), None, false, "gone"),
            (Some(Phase::Gone), Some(("Synced", "Healthy")), false, "healthy"),
            // What the run is at, or has given up, is told whatever Argo CD says.
            (Some(Phase::Failed), Some(("Synced", "Healthy")), false, "failed"),
            (Some(Phase::Blocked), None, false, "blocked"),
            (Some(Phase::Syncing), Some(("OutOfSync", "Degraded")), true, "syncing"),
            (Some(Phase::Unfinished), Some(("Synced", "Healthy")), false, "unfinished"),
        ] {
            let live = live.map(|(sync, health)| says(sync, health));
            let node = StatusNode { live, stale, ..one(phase) };
            assert_eq!(node.state().as_str(), state, "{node:?}");
            assert_eq!(node.is_well(), state == "proven", "{node:?}");
        }
    }

    #[test]
    fn the_cause_is_told_first_and_that_it_is_stale_last() {
        let mut live = says("Synced", "Degraded");
        live.compared = Some(sample::at(0));
        live.conditions = vec!["SyncError: boom".to_owned()];
        live.unwell = vec![crate::view::UnwellResource {
            resource: "Deployment/a/web".to_owned(),
            health: "Degraded".to_owned(),
            message: String::new(),
        }];
        let detail = "nothing had to change".to_owned();
        let mut node = StatusNode { detail, live: Some(live), stale: true, ..one(Some(Phase::Proven)) };
        let now = sample::at(100_000);
        assert_eq!(node.told(), ["Deployment/a/web Degraded", "SyncError: boom", "nothing had to change"]);
        assert_eq!(node.line(now), "Deployment/a/web Degraded; stale: compared 1d3h ago");
        node.phase = Some(Phase::Blocked);
        node.detail = "blocked by `b/two`, which failed".to_owned();
        assert_eq!(node.line(now), "blocked by `b/two`, which failed; stale: compared 1d3h ago");
        assert_eq!(node.told().len(), 3);
        node.live = Some(ApplicationFacts::default());
        assert_eq!(node.line(now), "blocked by `b/two`, which failed; stale: never compared");
    }

    #[test]
    fn an_application_that_does_not_exist_is_said_once_and_not_where_it_had_to_go() {
        let missing = "the Application does not exist";
        for phase in [None, Some(Phase::Proven), Some(Phase::Waiting)] {
            assert_eq!(one(phase).told(), [missing], "{phase:?}");
        }
        let waits = StatusNode { detail: missing.to_owned(), ..one(Some(Phase::Starting)) };
        assert_eq!(waits.told(), [missing]);
        assert_eq!(one(Some(Phase::Gone)).told(), Vec::<String>::new());
        let failed = StatusNode { detail: "boom".to_owned(), ..one(Some(Phase::Failed)) };
        assert_eq!(failed.told(), ["boom"]);
    }

    #[test]
    fn how_long_a_run_was_at_a_node_is_known_when_it_was_done_with_it() {
        let mut run = sample::stored("r-1", 0);
        run.record.header.ended = sample::all_proven("r-1", 60).record.header.ended;
        let standing = standing(std::slice::from_ref(&run)).unwrap();
        let nodes = listed(Some(&standing), std::iter::empty());
        let told: Vec<_> =
            nodes.iter().map(|node| (node.state().as_str(), node.took().map(Duration::seconds))).collect();
        assert_eq!(
            told,
            [
                ("missing", Some(12)),
                ("failed", Some(46)),
                ("blocked", None),
                ("unfinished", None),
                ("unfinished", None),
            ]
        );
        assert_eq!(nodes[3].since, Some(sample::at(100)));
        assert!(nodes[3].line(sample::at(100)).starts_with("the run ended before it was proven"), "{:?}", nodes[3]);
    }

    #[test]
    fn what_the_gate_gave_up_on_is_failed_and_what_is_missing_or_stale_is_not_well() {
        let healthy = says("Synced", "Healthy");
        let node =
            |phase, live: Option<&ApplicationFacts>, stale| StatusNode { live: live.cloned(), stale, ..one(phase) };
        for (node, word, well) in [
            (node(Some(Phase::Proven), Some(&healthy), false), NodeHealth::Healthy, true),
            (node(None, Some(&healthy), false), NodeHealth::Healthy, false),
            (node(Some(Phase::Proven), Some(&healthy), true), NodeHealth::Healthy, false),
            (node(Some(Phase::Proving), Some(&healthy), false), NodeHealth::Healthy, false),
            (node(Some(Phase::Blocked), Some(&healthy), false), NodeHealth::Failed, false),
            (node(Some(Phase::Proven), None, false), NodeHealth::Missing, false),
        ] {
            assert_eq!((node.health(), node.is_well()), (word, well), "{node:?}");
        }
    }
}
