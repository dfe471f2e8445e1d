//! The state of an environment: its phase and who has authority in it (SPEC.md section 4), the window, where every node
//! stands. Computed from what the cluster holds, every time (INV-3).

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Serialize;

use crate::gate::{NodeHealth, aggregate};
use crate::name::{ApplicationId, NodeId, clip};
use crate::run::{Header, NodeView, Phase, RunPlan, StoredRun};
use crate::view::{ApplicationFacts, between};

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
}

impl PlatformPhase {
    /// Its number and name.
    pub fn title(self) -> &'static str {
        match self {
            Self::PreBootstrap => "0 pre-bootstrap",
            Self::Bootstrap => "1 bootstrap",
            Self::Orchestration => "2 orchestration",
            Self::SteadyState => "3 steady state",
        }
    }

    /// Who decides in it.
    pub fn authority(self) -> &'static str {
        match self {
            Self::PreBootstrap => "the caller",
            Self::Bootstrap => "the executor",
            Self::Orchestration => "Argo Workflows",
            Self::SteadyState => "Argo CD; Kargo and Rollouts for promotion",
        }
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
    pub holder: Option<&'f Holder>,
    /// The window.
    pub window: Option<&'f Window>,
    /// The newest run.
    pub newest: Option<&'f Header>,
    /// Every node is proven.
    pub proven: bool,
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
    let running = facts.newest.filter(|header| header.ended.is_none());
    let held = |header: &&Header| facts.holder.is_some_and(|holder| holder.run == header.run.as_str());
    let in_progress = running.filter(held);
    let (phase, because) = if !facts.installed.argocd || !facts.installed.workflows {
        let missing = match (facts.installed.argocd, facts.installed.workflows) {
            (false, false) => "neither Argo CD nor Argo Workflows is",
            (false, true) => "Argo CD is not",
            _ => "Argo Workflows is not",
        };
        (PlatformPhase::PreBootstrap, format!("{missing} installed"))
    } else if facts.installed.forge == Some(false) {
        (PlatformPhase::Bootstrap, "the ClusterWorkflowTemplate `forge-node` is missing".to_owned())
    } else if let Some(header) = in_progress {
        let expired = facts.holder.is_some_and(|holder| holder.has_expired(facts.now));
        let stale = if expired { ", but its Lease has run out: stale until its Job is back" } else { "" };
        let age = between(header.started, facts.now);
        (PlatformPhase::Orchestration, format!("run {} is in progress for {age}{stale}", header.run))
    } else if let Some(header) = running {
        (
            PlatformPhase::Orchestration,
            format!("run {} has no end, and nobody holds the Lease for it: stale", header.run),
        )
    } else if let Some(window) = facts.window {
        (
            PlatformPhase::Orchestration,
            format!("run {} has ended and left {} in its window", clip(&window.run), count(window)),
        )
    } else if facts.newest.is_none() {
        (PlatformPhase::Orchestration, "no run is recorded".to_owned())
    } else if facts.proven {
        (PlatformPhase::SteadyState, "every node is proven and there is no window".to_owned())
    } else {
        (PlatformPhase::Orchestration, "not every node is proven".to_owned())
    };
    Lead { phase, authority: phase.authority(), in_progress: in_progress.map(|header| header.run.to_string()), because }
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
    /// The newest run of the whole platform, or the newest at all.
    pub plan: RunPlan,
    /// It is about the whole platform, so what it does not name is not in the graph.
    pub whole: bool,
    /// The nodes in the order of that plan; those that only other runs know come last. With the run that says so.
    pub nodes: Vec<(NodeView, ApplicationId, String)>,
}

/// What the runs of an environment, the newest first, say together. A run of a smaller scope says nothing about the nodes
/// that it leaves out; what the last run of the platform said about them still holds.
pub fn standing(runs: &[StoredRun]) -> Option<Standing> {
    let whole = runs.iter().position(|run| run.plan.scope == crate::graph::Scope::Platform);
    let base = runs.get(whole.unwrap_or(0))?;
    let views = |run: &StoredRun| {
        let applications: Vec<ApplicationId> = run.plan.nodes().map(|node| node.application.clone()).collect();
        run.record.view(&run.plan).into_iter().zip(applications).collect::<Vec<_>>()
    };
    let name = |run: &StoredRun| run.plan.run.to_string();
    let mut nodes: Vec<(NodeView, ApplicationId, String)> =
        views(base).into_iter().map(|(view, application)| (view, application, name(base))).collect();
    let mut places: BTreeMap<NodeId, usize> =
        nodes.iter().enumerate().map(|(place, (view, ..))| (view.node.clone(), place)).collect();
    for run in runs.iter().take(whole.unwrap_or(0)).rev() {
        for (view, application) in views(run) {
            match places.get(&view.node).and_then(|place| nodes.get_mut(*place)) {
                Some(known) => *known = (view, application, name(run)),
                None => {
                    places.insert(view.node.clone(), nodes.len());
                    nodes.push((view, application, name(run)));
                }
            }
        }
    }
    Some(Standing { plan: base.plan.clone(), whole: whole.is_some(), nodes })
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
    /// Its health in one word: what the gate gave up on is failed, whatever Argo CD says.
    pub fn health(&self) -> NodeHealth {
        match (self.phase, &self.live) {
            (Some(Phase::Failed | Phase::Blocked), _) => NodeHealth::Failed,
            (_, Some(facts)) => facts.health().into(),
            (_, None) => NodeHealth::Missing,
        }
    }

    /// Nothing is left to wish for: proven where a run is known, Synced, Healthy, and looked at lately.
    pub fn is_well(&self) -> bool {
        let proven = self.phase.is_none_or(|phase| phase == Phase::Proven);
        let live =
            self.live.as_ref().is_some_and(|facts| facts.is_synced() && facts.health() == crate::gate::Health::Healthy);
        proven && live && !self.stale
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::sample;

    fn facts<'f>(installed: Installed, newest: Option<&'f Header>) -> LeadFacts<'f> {
        LeadFacts { installed, holder: None, window: None, newest, proven: false, now: sample::at(60) }
    }

    const ALL: Installed = Installed { argocd: true, workflows: true, forge: Some(true) };

    #[test]
    fn the_phase_follows_from_what_the_cluster_holds() {
        let running = sample::stored("r-1", 0).record.header;
        let ended = sample::all_proven("r-1", 0).record.header;
        let held = Holder { run: "r-1".to_owned(), renewed: Some(sample::at(50)), lasts: 15 };
        let gone = Holder { renewed: Some(sample::at(10)), ..held.clone() };
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
                LeadFacts { holder: Some(&held), ..facts(ALL, Some(&running)) },
                PlatformPhase::Orchestration,
                "run r-1 is in progress for 1m",
            ),
            (
                LeadFacts { holder: Some(&gone), ..facts(ALL, Some(&running)) },
                PlatformPhase::Orchestration,
                "run r-1 is in progress for 1m, but its Lease has run out: stale until its Job is back",
            ),
            (
                facts(ALL, Some(&running)),
                PlatformPhase::Orchestration,
                "run r-1 has no end, and nobody holds the Lease for it: stale",
            ),
            (
                LeadFacts { window: Some(&window), proven: true, ..facts(ALL, Some(&ended)) },
                PlatformPhase::Orchestration,
                "run r-1 has ended and left 1 Application in its window",
            ),
            (facts(ALL, Some(&ended)), PlatformPhase::Orchestration, "not every node is proven"),
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

    #[test]
    fn what_the_gate_gave_up_on_is_failed_and_what_is_missing_or_stale_is_not_well() {
        let healthy = ApplicationFacts {
            sync: Some("Synced".to_owned()),
            health: Some("Healthy".to_owned()),
            ..ApplicationFacts::default()
        };
        let node = |phase, live: Option<&ApplicationFacts>, stale| StatusNode {
            node: "a/one".parse().unwrap(),
            application: "argocd/dev-a-one".parse().unwrap(),
            phase,
            detail: String::new(),
            since: None,
            run: None,
            live: live.cloned(),
            stale,
        };
        for (node, word, well) in [
            (node(Some(Phase::Proven), Some(&healthy), false), NodeHealth::Healthy, true),
            (node(None, Some(&healthy), false), NodeHealth::Healthy, true),
            (node(Some(Phase::Proven), Some(&healthy), true), NodeHealth::Healthy, false),
            (node(Some(Phase::Proving), Some(&healthy), false), NodeHealth::Healthy, false),
            (node(Some(Phase::Blocked), Some(&healthy), false), NodeHealth::Failed, false),
            (node(Some(Phase::Proven), None, false), NodeHealth::Missing, false),
        ] {
            assert_eq!((node.health(), node.is_well()), (word, well), "{node:?}");
        }
    }
}
