//! The agent pod: the one pod of a Workflow whose nodes are tasks of the plugin. It is deleted when it is stuck; Argo
//! Workflows makes a new one, which asks for every open node again (sandbox.md, "Argo facts").

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use forge_core::name::NodeId;
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
}

impl Supervisor {
    /// Looks at nodes and pods; gives the pods to delete and why.
    pub(super) fn stuck(&mut self, views: &[NodeView], pods: &[Value]) -> Option<(String, &'static str)> {
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
                return Some((name(pod), "the agent pod does not start"));
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
            self.idle = None;
            return None;
        }
        match &self.idle {
            Some((before, since)) if before.intersection(&unasked).next().is_some() => {
                if since.elapsed() > UNASKED {
                    self.idle = None;
                    return Some((name(pod), "the agent does not ask for nodes that may start"));
                }
            }
            _ => self.idle = Some((unasked, Instant::now())),
        }
        None
    }
}

/// Deletes a pod of the run.
pub(super) async fn delete(place: &Place, pod: &str) -> Result<(), ClusterError> {
    place.cluster.delete(&path::object(&path::core(&place.places.workflows, "pods"), pod)).await
}
