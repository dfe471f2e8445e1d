//! The Workflow of a run: submitted, submitted again when infrastructure was lost, asked to stop (SPEC.md section 6).

use std::collections::BTreeMap;
use std::time::Duration;

use forge_core::code::Code;
use forge_core::failure::Failure;
use forge_core::name::clip;
use forge_core::render::{self, ENVIRONMENT_LABEL, MANAGED_BY, RUN_LABEL};
use forge_core::run::{CANCEL_KEY, Ended, HEADER_KEY, Header, Record, Verdict, result};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Conductor, patiently};
use crate::cluster::{Kept, path};

/// How often a lost Workflow is submitted again.
const MOST_RESUBMISSIONS: u32 = 30;
/// How often in a row without any node getting further.
const MOST_IN_VAIN: u32 = 6;

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

    pub(super) async fn submit(&mut self) -> Result<(), Failure> {
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
}
