//! The Workflow of a run: submitted, submitted again when infrastructure was lost, asked to stop (SPEC.md section 6).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forge_core::code::Code;
use forge_core::failure::Failure;
use forge_core::name::{NodeId, clip};
use forge_core::render::{self, ENVIRONMENT_LABEL, MANAGED_BY, RUN_LABEL};
use forge_core::run::{CANCEL_KEY, Ended, HEADER_KEY, Header, Record, Verdict, result};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Conductor, STOPPING, patiently};
use crate::cluster::{Kept, path};

/// How often a lost Workflow is submitted again.
const MOST_RESUBMISSIONS: u32 = 30;
/// How often in a row without any node getting further.
pub(super) const MOST_IN_VAIN: u32 = 6;

impl Conductor<'_> {
    /// Ends what earlier runs of the environment left: their Lease is ours, so nobody conducts them, but their Workflows
    /// may go on. Comes before anything of ours starts.
    pub(super) async fn supersede(&self) -> Result<(), Failure> {
        let selector = format!("{MANAGED_BY}=forge,{ENVIRONMENT_LABEL}={},{RUN_LABEL}", self.plan.environment);
        let list = || async { self.place.cluster.list(&self.place.config_maps(), &selector).await };
        let all = patiently(|| async { list().await.map_err(Failure::from) }).await?;
        let header = |found: &Value| -> Option<Header> {
            serde_json::from_str(found.get("data")?.get(HEADER_KEY)?.as_str()?).ok()
        };
        let left = all.iter().filter_map(|found| Some((found, header(found)?)));
        for (found, header) in left.filter(|(_, header)| header.run != self.plan.run && header.ended.is_none()) {
            let by = format!("superseded by run `{}`", self.plan.run);
            let mut ended = header.clone();
            ended.ended = Some(Ended { at: Timestamp::now(), verdict: Verdict::Cancelled, message: Some(by.clone()) });
            let text = serde_json::to_string(&ended).unwrap_or_default();
            let name = found.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
            let path = path::object(&self.place.config_maps(), name);
            let patch = json!({"data": {CANCEL_KEY: by, HEADER_KEY: text}});
            patiently(|| self.change(&path, &patch)).await?;
            if let Some(workflow) = &header.workflow {
                patiently(|| self.shut_down(workflow)).await?;
            }
        }
        Ok(())
    }

    /// Changes an object, if it is there.
    async fn change(&self, path: &str, patch: &Value) -> Result<(), Failure> {
        match self.place.cluster.merge(path, patch).await {
            Err(error) if !error.is_missing() => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Asks Argo Workflows to start nothing more of a Workflow.
    async fn shut_down(&self, workflow: &str) -> Result<(), Failure> {
        let path = path::object(&self.place.workflows(), workflow);
        self.change(&path, &json!({"spec": {"shutdown": "Stop"}})).await
    }

    /// The Workflow that runs now, under its number.
    pub(super) fn workflow(&self) -> Option<&Value> {
        let name = render::workflow_name(&self.plan.run, self.header.resubmitted);
        self.workflows.get(&format!("{}/{name}", self.place.places.workflows))
    }

    /// Reads the Workflow without the watch; true where it is there.
    pub(super) async fn read_workflow(&mut self) -> Result<bool, Failure> {
        let name = render::workflow_name(&self.plan.run, self.header.resubmitted);
        let path = path::object(&self.place.workflows(), &name);
        let found = patiently(|| async { self.place.cluster.get(&path).await.map_err(Failure::from) }).await?;
        let there = found.is_some();
        if let Some(workflow) = found {
            self.workflows.insert(format!("{}/{name}", self.place.places.workflows), workflow);
        }
        Ok(there)
    }

    /// Infrastructure was lost: what is open goes on in a new Workflow, unless that leads nowhere.
    pub(super) async fn lost(
        &mut self,
        record: &Record,
        message: &str,
    ) -> Result<Option<(Verdict, Option<String>)>, Failure> {
        self.stranded = false;
        let far: usize =
            record.entries.values().map(|entry| 1 + entry.asked.len() + usize::from(entry.is_final())).sum();
        let vain = match self.in_vain {
            Some((before, times)) if before == far => times + 1,
            _ => 1,
        };
        self.in_vain = Some((far, vain));
        if vain >= MOST_IN_VAIN || self.header.resubmitted >= MOST_RESUBMISSIONS {
            let times = self.header.resubmitted + 1;
            let message = format!("its Workflow failed {times} times, the last time with: {}", clip(message));
            return Ok(Some((result(&self.plan, record, false), Some(message))));
        }
        tokio::time::sleep(Duration::from_millis(500) * 2_u32.pow(vain - 1)).await;
        self.header.resubmitted += 1;
        self.seen_workflow = false;
        self.save().await?;
        self.submit().await?;
        Ok(None)
    }

    /// Ends the Workflow before this one, where it still goes on: two of a run would ask for the same nodes. It is done here, so
    /// that a process that begins again in between does it too.
    async fn end_former(&self, name: &str) -> Result<(), Failure> {
        let Some(former) = self.header.workflow.as_deref().filter(|former| *former != name) else { return Ok(()) };
        let known = self.workflows.get(&format!("{}/{former}", self.place.places.workflows));
        if known.is_none_or(|workflow| Found::of(workflow).ended) {
            return Ok(());
        }
        patiently(|| self.shut_down(former)).await?;
        let path = path::object(&self.place.workflows(), former);
        let read = || async { self.place.cluster.get_metadata(&path).await.map_err(Failure::from) };
        let give_up = Instant::now() + STOPPING;
        while Instant::now() < give_up {
            let found = patiently(read).await?.and_then(|found| serde_json::from_value::<Followed>(found).ok());
            if found.is_none_or(|found| Found::of(&found.kept()).ended) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        Ok(())
    }

    pub(super) async fn submit(&mut self) -> Result<(), Failure> {
        self.end_former(&render::workflow_name(&self.plan.run, self.header.resubmitted)).await?;
        let workflow = render::workflow(&self.plan, &self.place.places, self.header.resubmitted)
            .map_err(|error| Failure::new(Code::WorkflowTooLarge, error))?;
        let create = || async {
            match self.place.cluster.create(&self.place.workflows(), &workflow).await {
                Err(error) if !error.is_conflict() => Err(Failure::from(error)),
                _ => Ok(()),
            }
        };
        patiently(create).await?;
        let name = render::workflow_name(&self.plan.run, self.header.resubmitted);
        // The watch will tell; until then it is not submitted a second time.
        self.workflows.insert(format!("{}/{name}", self.place.places.workflows), workflow);
        if self.header.workflow.as_ref() != Some(&name) {
            self.header.workflow = Some(name);
            self.save().await?;
        }
        Ok(())
    }

    /// Asks the Workflow to stop, once.
    pub(super) async fn stop_once(&mut self) -> Result<(), Failure> {
        if self.stopping.is_none() {
            let name = render::workflow_name(&self.plan.run, self.header.resubmitted);
            patiently(|| self.shut_down(&name)).await?;
            self.stopping = Some(Instant::now());
        }
        Ok(())
    }
}

/// What is followed of a Workflow: which it is and its phase, which Argo Workflows writes into a label too. Everything else is
/// read when it matters ([`Conductor::read_workflow`]): of a thousand nodes it is a megabyte, several times a second.
#[derive(Deserialize)]
pub(super) struct Followed {
    metadata: Named,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Named {
    name: String,
    namespace: String,
    labels: BTreeMap<String, String>,
}

/// Where Argo Workflows writes the phase.
const PHASE_LABEL: &str = "workflows.argoproj.io/phase";

impl Kept for Followed {
    const METADATA: bool = true;

    fn kept(self) -> Value {
        let Named { name, namespace, labels } = self.metadata;
        let phase = labels.get(PHASE_LABEL);
        json!({"metadata": {"name": name, "namespace": namespace}, "status": {"phase": phase}})
    }
}

/// What counts of a Workflow.
pub(super) struct Found {
    pub(super) ended: bool,
    /// How it was asked to end before its time.
    pub(super) stopped: Option<String>,
    pub(super) message: String,
}

impl Found {
    pub(super) fn of(workflow: &Value) -> Self {
        let text = |pointer: &str| workflow.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        Self {
            ended: matches!(text("/status/phase"), "Succeeded" | "Failed" | "Error"),
            stopped: Some(text("/spec/shutdown").to_owned()).filter(|shutdown| !shutdown.is_empty()),
            message: text("/status/message").to_owned(),
        }
    }
}

/// Whether a Workflow will never ask for one of these nodes: its task is over, or the band that the task is of. The agent gives
/// a task up that it could not ask the plugin about, and what follows is left out, whatever the record says. Nothing is
/// known, so nothing is said, where the nodes of the status are compressed.
pub(super) fn leaves_out(workflow: &Value, nodes: &BTreeSet<NodeId>) -> bool {
    let nodes: BTreeSet<&str> = nodes.iter().map(NodeId::as_str).collect();
    let statuses = workflow.pointer("/status/nodes").and_then(Value::as_object);
    let statuses = statuses.into_iter().flat_map(serde_json::Map::values);
    let is_over = |status: &&Value| {
        let phase = status.get("phase").and_then(Value::as_str).unwrap_or_default();
        matches!(phase, "Succeeded" | "Failed" | "Error" | "Skipped" | "Omitted")
    };
    let over: BTreeSet<&str> =
        statuses.filter(is_over).filter_map(|status| status.get("displayName")?.as_str()).collect();
    let is_one = |task: &&Value| {
        let parameters = task.pointer("/arguments/parameters").and_then(Value::as_array);
        let mut values = parameters.into_iter().flatten().filter_map(|parameter| parameter.get("value")?.as_str());
        values.any(|value| nodes.contains(value))
    };
    let is_named = |named: &Value| named.get("name").and_then(Value::as_str).is_some_and(|name| over.contains(name));
    let mut templates = workflow.pointer("/spec/templates").and_then(Value::as_array).into_iter().flatten();
    templates.any(|template| {
        let tasks = template.pointer("/dag/tasks").and_then(Value::as_array);
        let mut wanted = tasks.into_iter().flatten().filter(is_one);
        // A band is a task under the name of its template.
        wanted.any(|task| is_named(task) || is_named(template))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_followed_of_a_workflow_says_whether_it_has_ended() {
        for (phase, ended) in [("Running", false), ("Succeeded", true), ("Failed", true), ("Error", true)] {
            let metadata = json!({
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
                "metadata": {"name": "forge-dev-1", "namespace": "argo", "labels": {PHASE_LABEL: phase}},
            });
            let followed: Followed = serde_json::from_value(metadata).unwrap();
            let kept = followed.kept();
            assert_eq!((&kept["metadata"]["name"], Found::of(&kept).ended), (&json!("forge-dev-1"), ended));
        }
        // One that nobody has looked at yet.
        let new: Followed = serde_json::from_value(json!({"metadata": {"name": "x", "namespace": "argo"}})).unwrap();
        assert!(!Found::of(&new.kept()).ended);
    }

    #[test]
    fn a_workflow_leaves_a_node_out_when_its_task_or_its_band_is_over_and_nobody_asked() {
        let task = |name: &str, node: &str| {
            let parameters = json!([{"name": "node", "value": node}]);
            json!({"name": name, "arguments": {"parameters": parameters}})
        };
        let join = json!({"name": "stack-data"});
        let spec = json!({"templates": [
            {"name": "graph", "dag": {"tasks": [{"name": "band-0"}, {"name": "open-1"}, {"name": "band-1"}]}},
            {"name": "band-0", "dag": {"tasks": [task("argocd-db", "argocd/db"), task("argocd-api", "argocd/api"), join]}},
            {"name": "band-1", "dag": {"tasks": [task("argocd-web", "argocd/web")]}},
        ]});
        let leaves = |statuses: &[(&str, &str)], nodes: &[&str]| {
            let status = |(name, phase): &(&str, &str)| {
                (format!("id-{name}"), json!({"name": format!("w.{name}"), "displayName": name, "phase": phase}))
            };
            let statuses: BTreeMap<String, Value> = statuses.iter().map(status).collect();
            let workflow = json!({"spec": spec, "status": {"nodes": statuses}});
            leaves_out(&workflow, &nodes.iter().map(|node| node.parse().unwrap()).collect())
        };
        // What runs, or has no status yet, may still be asked for.
        assert!(!leaves(&[], &["argocd/db"]));
        assert!(!leaves(&[("argocd-db", "Running"), ("band-0", "Running"), ("open-1", "Error")], &["argocd/db"]));
        assert!(!leaves(&[("argocd-db", "Error"), ("stack-data", "Omitted")], &["argocd/api"]));
        for phase in ["Omitted", "Error", "Failed", "Skipped", "Succeeded"] {
            assert!(leaves(&[("argocd-db", "Running"), ("argocd-api", phase)], &["argocd/api"]), "{phase}");
            assert!(leaves(&[("argocd-api", phase)], &["argocd/api", "argocd/db"]), "{phase}");
        }
        // The band could not be opened, so nothing in it has a status.
        assert!(leaves(&[("argocd-db", "Succeeded"), ("open-1", "Error"), ("band-1", "Omitted")], &["argocd/web"]));
        assert!(!leaves(&[("argocd-db", "Error")], &[]));
        let compressed = json!({"spec": spec, "status": {"compressedNodes": "H4sI"}});
        assert!(!leaves_out(&compressed, &BTreeSet::from(["argocd/db".parse().unwrap()])));
    }
}
