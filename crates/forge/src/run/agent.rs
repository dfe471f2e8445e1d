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
}

impl Supervisor {
    /// Looks at nodes and pods; gives the pod to delete and why.
    pub(super) fn stuck(&mut self, views: &[NodeView], pods: &[Value]) -> Option<Stuck> {
        let name = |pod: &Value| pod.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let pod = pods.iter().find(|pod| name(pod).ends_with("-agent"))?;
        let going = pod.pointer("/metadata/deletionTimestamp").is_some();
        if pod.pointer("/status/phase").and_then(Value::as_str) != Some("Running") || going {
            self.idle = None;
            let same = self.absent.as_ref().filter(|(which, _)| *which == name(pod)).map(|(_, since)| *since);
            let since = same.unwrap_or_else(Instant::now);
            self.absent = Some((name(pod), since));
            if since.elapsed() > NOT_RUNNING && !going {
                self.absent = None;
                let why = format!("the agent pod did not start{}", reason(pod));
                return Some(Stuck { pod: name(pod), why });
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
                if since.elapsed() > UNASKED * 2_u32.pow(self.replaced.min(4)) {
                    self.idle = None;
                    self.replaced += 1;
                    let why = "the agent did not ask for nodes that may start".to_owned();
                    return Some(Stuck { pod: name(pod), why });
                }
            }
            _ => self.idle = Some((unasked, Instant::now())),
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
