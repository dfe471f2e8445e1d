//! `why`: the shortest chain from a node that is not proven to what keeps it so (SPEC.md section 6).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use jiff::Timestamp;
use serde::Serialize;

use crate::gate::{Decision, Health, SyncState, WaitingFor, Why};
use crate::graph::Graph;
use crate::name::{ApplicationId, NodeId};
use crate::run::{NodeView, Phase, Record, RunPlan};
use crate::teardown::Waiting;
use crate::view::{ApplicationFacts, Spot, advice, advice_waiting, shown};

/// Why a node is where it is: what was asked about first, the root cause last.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Chain {
    /// Each waits for the next.
    pub links: Vec<Link>,
    /// Other nodes that would keep the first one from starting if the root cause were gone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<NodeId>,
    /// What to do next.
    pub next: String,
}

/// One node of a chain.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Link {
    /// The node.
    pub node: NodeId,
    /// Its Application.
    pub application: ApplicationId,
    /// Where it stands in the run; absent where no run is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// What it waits for, or why it failed.
    pub detail: String,
    /// The resource that it is about, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// What Argo CD says about it now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live: Option<ApplicationFacts>,
}

/// The chain of a node of the run; nothing where the run has no such node.
pub fn why(
    plan: &RunPlan,
    record: &Record,
    node: &NodeId,
    facts: &BTreeMap<NodeId, ApplicationFacts>,
) -> Option<Chain> {
    let views = record.stands(plan);
    let by_id: BTreeMap<&NodeId, &NodeView> = views.iter().map(|view| (&view.node, view)).collect();
    let applications: BTreeMap<&NodeId, &ApplicationId> = plan.nodes().map(|n| (&n.id, &n.application)).collect();
    let steps: BTreeMap<&NodeId, Step<'_>> = views
        .iter()
        .map(|view| {
            let (satisfied, failed) = (view.phase.is_done(), view.phase == Phase::Failed);
            (&view.node, Step { satisfied, failed, waits_for: view.waits_for.iter().collect() })
        })
        .collect();
    let (ids, others) = path(by_id.get(node).map(|view| &view.node)?, &steps);
    let path: Vec<&NodeView> = ids.iter().filter_map(|id| by_id.get(id).copied()).collect();
    let mut links: Vec<Link> = Vec::new();
    for (step, view) in path.iter().enumerate() {
        let entry = record.entries.get(&view.node);
        let next = path.get(step + 1).map(|next| &next.node);
        let detail = match next {
            Some(next) => format!("waits for `{next}`"),
            None => shown(&view.detail),
        };
        let live = facts.get(&view.node);
        let own = entry.filter(|_| next.is_none()).and_then(|entry| resource(&entry.decision));
        let worst = live.filter(|_| next.is_none()).and_then(|facts| facts.unwell.first()).map(|r| r.resource.clone());
        links.push(Link {
            node: view.node.clone(),
            application: (*applications.get(&view.node)?).clone(),
            phase: Some(view.phase),
            detail,
            resource: own.or(worst).map(|text| shown(&text)),
            since: view.since,
            // What is between is only the way; the first and the last are what is asked about.
            live: live.filter(|_| step == 0 || next.is_none()).cloned(),
        });
    }
    let root = links.last()?;
    let next = next_step(record, root, facts.get(&root.node));
    Some(Chain { links, others, next })
}

/// The chain of a node as Argo CD alone tells it, where no run is known: a node that is not Synced and Healthy stands for
/// one that is not proven. Nothing where the graph has no such node.
pub fn why_live(
    graph: &Graph,
    applications: &BTreeMap<NodeId, ApplicationId>,
    node: &NodeId,
    facts: &BTreeMap<NodeId, ApplicationFacts>,
) -> Option<Chain> {
    let well = |id: &NodeId| facts.get(id).is_some_and(|f| f.is_synced() && f.health() == Health::Healthy);
    let steps: BTreeMap<&NodeId, Step<'_>> = graph
        .indexes()
        .map(|ix| {
            let id = &graph.node(ix).id;
            let before = graph.predecessors(ix).into_iter().map(|before| &graph.node(before).id);
            let bad = facts.get(id).is_none_or(|f| matches!(f.health(), Health::Degraded | Health::Missing));
            (id, Step { satisfied: well(id), failed: bad, waits_for: before.filter(|id| !well(id)).collect() })
        })
        .collect();
    let (ids, others) = path(&graph.node(graph.find(node)?).id, &steps);
    let mut links = Vec::new();
    for (step, id) in ids.iter().enumerate() {
        let (next, live) = (ids.get(step + 1), facts.get(*id));
        links.push(Link {
            node: (*id).clone(),
            application: applications.get(*id)?.clone(),
            phase: None,
            detail: match (next, live) {
                (Some(next), _) => format!("comes after `{next}`"),
                (None, None) => WaitingFor::Application.to_string(),
                (None, Some(live)) => live_detail(live),
            },
            resource: live.filter(|_| next.is_none()).and_then(|f| f.unwell.first()).map(|r| r.resource.clone()),
            since: live.and_then(|live| live.since),
            live: live.filter(|_| step == 0 || next.is_none()).cloned(),
        });
    }
    let root = links.last()?;
    let live = facts.get(&root.node);
    let spot = Spot { application: &root.application, destination: live.and_then(|live| live.destination.as_deref()) };
    let next = match live {
        None => advice_waiting(&WaitingFor::Application, spot),
        Some(live) if live.health() != Health::Healthy => {
            advice_waiting(&WaitingFor::Health { health: live.health(), unwell: None }, spot)
        }
        Some(live) if !live.is_synced() => advice_waiting(&WaitingFor::InSync { sync: SyncState::OutOfSync }, spot),
        Some(_) => "nothing; Argo CD calls it Synced and Healthy. No run has proven it".to_owned(),
    };
    Some(Chain { links, others, next })
}

fn live_detail(live: &ApplicationFacts) -> String {
    let word = |word: &Option<String>| word.clone().unwrap_or_else(|| "unknown".to_owned());
    let mut detail = format!("Argo CD says {}, {}", word(&live.sync), word(&live.health));
    if let Some(condition) = live.conditions.first() {
        detail = format!("{detail}; {condition}");
    }
    detail
}

/// What the search for a chain needs to know of a node.
struct Step<'v> {
    satisfied: bool,
    failed: bool,
    /// Nodes before it that are not satisfied.
    waits_for: Vec<&'v NodeId>,
}

/// The way to the nearest node that is not satisfied although all before it are; failed ones first, because waiting does
/// not help there. And the other such nodes.
fn path<'v>(first: &'v NodeId, steps: &BTreeMap<&'v NodeId, Step<'v>>) -> (Vec<&'v NodeId>, Vec<NodeId>) {
    let mut came_from: BTreeMap<&NodeId, &'v NodeId> = BTreeMap::new();
    let mut seen: BTreeSet<&NodeId> = [first].into();
    let mut open: VecDeque<&'v NodeId> = [first].into();
    let mut roots: Vec<(&'v NodeId, bool)> = Vec::new();
    while let Some(id) = open.pop_front() {
        let Some(step) = steps.get(id) else { continue };
        // A failed node is a cause even where one before it is not satisfied any more.
        if step.satisfied || step.waits_for.is_empty() || (step.failed && id != first) {
            roots.push((id, step.failed));
            continue;
        }
        for before in &step.waits_for {
            if seen.insert(before) {
                came_from.insert(before, id);
                open.push_back(before);
            }
        }
    }
    // Breadth first, so the first of a kind is the nearest.
    let root = roots.iter().find(|(_, failed)| *failed).or(roots.first()).map_or(first, |(id, _)| *id);
    let mut path = vec![root];
    let mut at = root;
    while let Some(next) = came_from.get(at).copied() {
        path.push(next);
        at = next;
    }
    path.reverse();
    let others = roots.iter().filter(|(id, _)| *id != root).map(|(id, _)| (*id).clone()).collect();
    (path, others)
}

/// The resource that a decision is about.
pub(super) fn resource(decision: &Decision) -> Option<String> {
    match decision {
        Decision::Proven(_) | Decision::Gone(_) => None,
        Decision::Wait(wait) => match &wait.on {
            WaitingFor::Generation { workload } => Some(workload.clone()),
            WaitingFor::Health { unwell: Some(unwell), .. } => Some(unwell.resource.clone()),
            WaitingFor::Image { container } => Some(container.to_string()),
            WaitingFor::Object { object, .. } | WaitingFor::Rule { object, .. } => Some(object.to_string()),
            WaitingFor::Removal { on: Waiting::Members { remnants } | Waiting::Deletion { remnants, .. } } => {
                remnants.first().map(|remnant| remnant.object.clone())
            }
            _ => None,
        },
        Decision::Failed(failure) => match &failure.why {
            Why::StaleGeneration { workload } => Some(workload.clone()),
            Why::Unhealthy { unwell: Some(unwell), .. } => Some(unwell.resource.clone()),
            Why::WrongImage { container, .. } => Some(container.to_string()),
            Why::MissingObject { object } | Why::RuleUnmet { object, .. } | Why::RuleBroken { object, .. } => {
                Some(object.to_string())
            }
            Why::Removal { why } => why.remnants().first().map(|remnant| remnant.object.clone()),
            _ => None,
        },
    }
}

fn next_step(record: &Record, root: &Link, facts: Option<&ApplicationFacts>) -> String {
    let spot =
        Spot { application: &root.application, destination: facts.and_then(|facts| facts.destination.as_deref()) };
    let ended = record.header.ended.is_some();
    match record.entries.get(&root.node).map(|entry| &entry.decision) {
        Some(Decision::Failed(failure)) => advice(&failure.why, spot),
        Some(Decision::Proven(_)) => match facts {
            None => {
                format!("it was proven, and its Application does not exist: {}", advice(&Why::MissingApplication, spot))
            }
            Some(facts) if facts.health() != Health::Healthy => format!(
                "it was proven, and Argo CD now says {}: {}",
                facts.health.as_deref().unwrap_or("nothing"),
                advice(&Why::Unhealthy { health: facts.health(), unwell: None }, spot)
            ),
            Some(ApplicationFacts { comparison: Some(message), .. }) => {
                let why = Why::Comparison { message: message.clone() };
                format!("it was proven, and now {why}; {}", advice(&why, spot))
            }
            Some(facts) if !facts.is_synced() => format!(
                "it was proven, and Argo CD now says {}: see what differs and who writes it: `argocd app diff {}`",
                facts.sync.as_deref().unwrap_or("nothing of its sync"),
                root.application
            ),
            Some(_) => "nothing; it is proven".to_owned(),
        },
        Some(Decision::Gone(_)) => "nothing; it is gone. Deploying it again brings it back".to_owned(),
        // Nothing waits in a run that has ended.
        _ if ended => "deploy again: the run ended before this node was proven".to_owned(),
        Some(Decision::Wait(wait)) => advice_waiting(&wait.on, spot),
        None => "nothing; the run takes it up next".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::sample;

    fn ids(chain: &Chain) -> Vec<&str> {
        chain.links.iter().map(|link| link.node.as_str()).collect()
    }

    fn asked(run: &crate::run::StoredRun, node: &str) -> Chain {
        why(&run.plan, &run.record, &node.parse().unwrap(), &BTreeMap::new()).unwrap()
    }

    #[test]
    fn a_blocked_node_leads_to_the_one_that_failed_and_says_what_to_do_about_it() {
        let run = sample::stored("r-1", 0);
        let chain = asked(&run, "b/one");
        assert_eq!(ids(&chain), ["b/one", "a/two"]);
        assert_eq!(chain.links[0].detail, "waits for `a/two`");
        let root = &chain.links[1];
        assert_eq!((root.phase, root.detail.as_str()), (Some(Phase::Failed), "health stayed Degraded"));
        assert!(root.since.is_some() && chain.next.contains("argocd app get argocd/dev-a-two"), "{chain:?}");
    }

    #[test]
    fn a_waiting_node_leads_to_the_one_that_runs() {
        let run = sample::stored("r-1", 0);
        let chain = asked(&run, "b/two");
        assert_eq!(ids(&chain), ["b/two", "argocd/proxy"]);
        assert_eq!(chain.links[1].detail, "sync 1 runs: applying \u{fffd}[2J<b>");
        assert_eq!(chain.next, "nothing yet; `argocd app get argocd/proxy` shows what the sync is at");
    }

    #[test]
    fn in_a_run_that_has_ended_the_root_is_unfinished_and_wants_another_run() {
        let mut run = sample::stored("r-1", 0);
        run.record.header.ended = sample::all_proven("r-1", 60).record.header.ended;
        let chain = asked(&run, "b/two");
        assert_eq!(ids(&chain), ["b/two", "argocd/proxy"]);
        let root = &chain.links[1];
        assert_eq!((root.phase, root.since), (Some(Phase::Unfinished), Some(sample::at(100))));
        assert!(root.detail.starts_with("the run ended before it was proven; last seen syncing"), "{chain:?}");
        assert!(chain.next.starts_with("deploy again"), "{}", chain.next);
    }

    #[test]
    fn of_several_causes_the_failed_one_is_the_chain_and_the_others_are_named() {
        let mut run = sample::stored("r-1", 0);
        run.plan.tasks[4].before = vec![1, 3];
        run.record.entries.remove(&"b/two".parse().unwrap());
        let chain = asked(&run, "b/two");
        assert_eq!(ids(&chain), ["b/two", "a/two"]);
        assert_eq!(chain.others, ["argocd/proxy".parse().unwrap()]);
    }

    #[test]
    fn a_proven_node_waits_for_nothing_unless_argo_cd_has_changed_its_mind() {
        let run = sample::stored("r-1", 0);
        let gone = asked(&run, "a/one").next;
        assert!(gone.starts_with("it was proven, and its Application does not exist: see whether"), "{gone}");
        for (sync, next) in [
            ("Synced", "nothing; it is proven"),
            (
                "OutOfSync",
                "it was proven, and Argo CD now says OutOfSync: see what differs and who writes it: `argocd app diff argocd/dev-a-one`",
            ),
        ] {
            let (sync, health) = (Some(sync.to_owned()), Some("Healthy".to_owned()));
            let facts = ApplicationFacts { sync, health, ..ApplicationFacts::default() };
            let facts = BTreeMap::from([("a/one".parse().unwrap(), facts)]);
            assert_eq!(why(&run.plan, &run.record, &"a/one".parse().unwrap(), &facts).unwrap().next, next);
        }
        let facts = ApplicationFacts { health: Some("Degraded".to_owned()), ..ApplicationFacts::default() };
        let facts = BTreeMap::from([("a/one".parse().unwrap(), facts)]);
        let chain = why(&run.plan, &run.record, &"a/one".parse().unwrap(), &facts).unwrap();
        assert!(chain.next.starts_with("it was proven, and Argo CD now says Degraded"), "{}", chain.next);
        // A pointer that nothing can be rendered of leaves what is live as it was, and healthy.
        let said = "`catalyst-forge-cmp generate` failed exit status 3: error[FORGE-N001]: no release `x`";
        let (health, comparison) = (Some("Healthy".to_owned()), Some(said.to_owned()));
        let facts = ApplicationFacts { health, comparison, ..ApplicationFacts::default() };
        let facts = BTreeMap::from([("a/one".parse().unwrap(), facts)]);
        let chain = why(&run.plan, &run.record, &"a/one".parse().unwrap(), &facts).unwrap();
        let wanted = "it was proven, and now Argo CD cannot compare: FORGE-N001 no release `x`; repair what the plugin";
        assert!(chain.next.starts_with(wanted), "{}", chain.next);
    }

    #[test]
    fn the_resource_is_the_one_that_the_gate_names_or_the_worst_that_argo_cd_shows() {
        let run = sample::stored("r-1", 0);
        let mut facts = ApplicationFacts::default();
        facts.unwell.push(crate::view::UnwellResource {
            resource: "Deployment/a-two/web".to_owned(),
            health: "Degraded".to_owned(),
            message: String::new(),
        });
        let facts = BTreeMap::from([("a/two".parse().unwrap(), facts)]);
        let chain = why(&run.plan, &run.record, &"b/one".parse().unwrap(), &facts).unwrap();
        assert_eq!(chain.links[1].resource.as_deref(), Some("Deployment/a-two/web"));
        assert!(chain.links[1].live.is_some() && chain.links[0].live.is_none());
        // What is stored in the cluster names none by default: what the run was told does.
        let run = sample::named("r-1", 0);
        let root = |facts: &BTreeMap<NodeId, ApplicationFacts>| {
            let chain = why(&run.plan, &run.record, &"b/one".parse().unwrap(), facts).unwrap();
            (chain.links[1].resource.clone(), chain.links[1].detail.clone())
        };
        let detail = "health stayed Degraded: Deployment/a-two/api: Deployment \"api\" exceeded its progress deadline";
        for facts in [&facts, &BTreeMap::new()] {
            assert_eq!(root(facts), (Some("Deployment/a-two/api".to_owned()), detail.to_owned()));
        }
    }

    #[test]
    fn without_a_run_argo_cds_word_stands_for_the_proof() {
        let run = sample::stored("r-1", 0);
        let graph = crate::view::graph(&run.plan).unwrap();
        let applications = run.plan.nodes().map(|node| (node.id.clone(), node.application.clone())).collect();
        let live = |sync: &str, health: &str| ApplicationFacts {
            sync: Some(sync.to_owned()),
            health: Some(health.to_owned()),
            ..ApplicationFacts::default()
        };
        let facts = BTreeMap::from([
            ("a/one".parse().unwrap(), live("Synced", "Healthy")),
            ("a/two".parse().unwrap(), live("OutOfSync", "Healthy")),
            ("argocd/proxy".parse().unwrap(), live("Synced", "Healthy")),
        ]);
        let chain = |node: &str| why_live(&graph, &applications, &node.parse().unwrap(), &facts).unwrap();
        let blocked = chain("b/one");
        assert_eq!(ids(&blocked), ["b/one", "a/two"]);
        assert_eq!(blocked.links[1].detail, "Argo CD says OutOfSync, Healthy");
        assert_eq!(blocked.next, "see what differs and who writes it: `argocd app diff argocd/dev-a-two`");
        assert_eq!(chain("b/two").links[0].detail, "the Application does not exist");
        assert!(chain("argocd/proxy").next.contains("No run has proven it"));
    }

    #[test]
    fn a_node_that_the_run_does_not_have_has_no_chain() {
        let run = sample::stored("r-1", 0);
        assert!(why(&run.plan, &run.record, &"x/y".parse().unwrap(), &BTreeMap::new()).is_none());
    }
}
