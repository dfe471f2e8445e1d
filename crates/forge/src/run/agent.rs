//! The agent pod: the one pod of a Workflow whose nodes are tasks of the plugin. It is deleted when it is stuck; Argo
//! Workflows makes a new one, which asks for every open node again (sandbox.md, "Argo facts").

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use forge_core::name::{NodeId, clip};
use forge_core::run::{NodeView, Phase};
use serde_json::Value;

use super::Place;
use crate::cluster::{ClusterError, path};

/// A node that may start and that nobody asks for.
const UNASKED: Duration = Duration::from_secs(20);
/// A pod that does not run.
const NOT_RUNNING: Duration = Duration::from_secs(120);

/// Watches over the agent pod.
#[derive(Default)]
pub(super) struct Supervisor {
    /// Nodes that could start, and since when the set is the same.
    idle: Option<(BTreeSet<NodeId>, Instant)>,
    /// The pod that does not run, and since when.
    absent: Option<(String, Instant)>,
    /// How often one was deleted because nobody asked: each time it is given longer.
    replaced: u32,
}

/// A pod to delete.
pub(super) struct Stuck {
    pub(super) pod: String,
    /// In a sentence.
    pub(super) why: String,
    /// Nodes that may start and that it does not ask for, where that is why.
    pub(super) unasked: BTreeSet<NodeId>,
}

impl Supervisor {
    /// Looks at nodes and pods as they are now; gives the pod to delete and why.
    pub(super) fn stuck(&mut self, views: &[NodeView], pods: &[Value], now: Instant) -> Option<Stuck> {
        let name = |pod: &Value| pod.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let pod = pods.iter().find(|pod| name(pod).ends_with("-agent"))?;
        let going = pod.pointer("/metadata/deletionTimestamp").is_some();
        if pod.pointer("/status/phase").and_then(Value::as_str) != Some("Running") || going {
            self.idle = None;
            let same = self.absent.as_ref().filter(|(which, _)| *which == name(pod)).map(|(_, since)| *since);
            let since = same.unwrap_or(now);
            self.absent = Some((name(pod), since));
            if now.saturating_duration_since(since) > NOT_RUNNING && !going {
                self.absent = None;
                let why = format!("the agent pod did not start{}", reason(pod));
                return Some(Stuck { pod: name(pod), why, unasked: BTreeSet::new() });
            }
            return None;
        }
        self.absent = None;
        let unasked: BTreeSet<NodeId> = views
            .iter()
            .filter(|view| view.phase == Phase::Starting && view.started.is_none())
            .map(|view| view.node.clone())
            .collect();
        if unasked.is_empty() {
            (self.idle, self.replaced) = (None, 0);
            return None;
        }
        match &self.idle {
            Some((before, since)) if before.intersection(&unasked).next().is_some() => {
                if now.saturating_duration_since(*since) > UNASKED * 2_u32.pow(self.replaced.min(4)) {
                    self.idle = None;
                    self.replaced += 1;
                    let why = "the agent did not ask for nodes that may start".to_owned();
                    return Some(Stuck { pod: name(pod), why, unasked });
                }
            }
            _ => self.idle = Some((unasked, now)),
        }
        None
    }
}

/// What its containers wait for, by Kubernetes' own words.
pub(super) fn reason(pod: &Value) -> String {
    let lists =
        ["/status/initContainerStatuses", "/status/containerStatuses"].into_iter().filter_map(|l| pod.pointer(l));
    let mut waiting = lists.filter_map(Value::as_array).flatten().filter_map(|status| status.pointer("/state/waiting"));
    let text = |waiting: &Value, key: &str| waiting.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let Some(first) = waiting.next() else { return String::new() };
    format!(": {}", clip(format!("{} {}", text(first, "reason"), text(first, "message")).trim()))
}

/// Deletes a pod of the run.
pub(super) async fn delete(place: &Place, pod: &str) -> Result<(), ClusterError> {
    place.cluster.delete(&path::object(&path::core(&place.places.workflows, "pods"), pod)).await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Nodes that may start, and one that waits for them.
    fn views(names: &[&str]) -> Vec<NodeView> {
        let view = |name: &str, phase: Phase| NodeView {
            node: format!("argocd/{name}").parse().unwrap(),
            phase,
            detail: String::new(),
            since: None,
            started: None,
            began: None,
            ended: None,
            waits_for: Vec::new(),
        };
        let mut views: Vec<NodeView> = names.iter().map(|name| view(name, Phase::Starting)).collect();
        views.push(view("last", Phase::Waiting));
        views
    }

    fn pod(phase: &str) -> Value {
        json!({"metadata": {"name": "forge-r-1-agent"}, "status": {"phase": phase}})
    }

    /// Looks in these seconds; gives those in which it wants the pod deleted.
    fn deleted(seconds: &[u64], views: &[NodeView], pod: &Value) -> Vec<u64> {
        let (start, mut supervisor) = (Instant::now(), Supervisor::default());
        let mut is_stuck = |second: u64| {
            supervisor.stuck(views, std::slice::from_ref(pod), start + Duration::from_secs(second)).is_some()
        };
        seconds.iter().copied().filter(|second| is_stuck(*second)).collect()
    }

    #[test]
    fn an_agent_that_does_not_ask_is_given_longer_each_time_before_it_is_replaced() {
        let every: Vec<u64> = (0..=180).collect();
        // Twenty seconds, then forty, then eighty, each from the look after.
        assert_eq!(deleted(&every, &views(&["db"]), &pod("Running")), [21, 63, 145]);
        // What it is to be asked for is known afterwards.
        let (mut supervisor, start) = (Supervisor::default(), Instant::now());
        let (views, pods) = (views(&["db", "api"]), [pod("Running")]);
        assert!(supervisor.stuck(&views, &pods, start).is_none());
        let stuck = supervisor.stuck(&views, &pods, start + Duration::from_secs(30)).unwrap();
        let named: Vec<String> = stuck.unasked.iter().map(ToString::to_string).collect();
        assert_eq!(
            (stuck.pod.as_str(), named),
            ("forge-r-1-agent", vec!["argocd/api".to_owned(), "argocd/db".to_owned()])
        );
    }

    #[test]
    fn an_agent_that_asks_or_has_nothing_to_ask_for_is_left_alone() {
        let every: Vec<u64> = (0..=180).collect();
        assert_eq!(deleted(&every, &views(&[]), &pod("Running")), Vec::<u64>::new());
        // Another node each time: it goes on.
        let (mut supervisor, start) = (Supervisor::default(), Instant::now());
        for second in 0..180 {
            let views = views(&[&format!("n{}", second / 15)]);
            let now = start + Duration::from_secs(second);
            assert!(supervisor.stuck(&views, &[pod("Running")], now).is_none(), "{second}");
        }
    }

    #[test]
    fn an_agent_that_does_not_start_is_replaced_after_two_minutes_and_one_that_goes_is_not() {
        let every: Vec<u64> = (0..=130).collect();
        assert_eq!(deleted(&every, &views(&["db"]), &pod("Pending")), [121]);
        let mut going = pod("Running");
        going["metadata"]["deletionTimestamp"] = json!("2026-11-16T12:00:00Z");
        assert_eq!(deleted(&every, &views(&["db"]), &going), Vec::<u64>::new());
        // Of the run's other pods nothing is known here.
        let mut other = pod("Pending");
        other["metadata"]["name"] = json!("forge-r-1-node");
        assert_eq!(deleted(&every, &views(&["db"]), &other), Vec::<u64>::new());
    }
}
