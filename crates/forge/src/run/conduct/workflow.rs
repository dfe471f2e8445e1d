//! The Workflow of a run: submitted, submitted again when infrastructure was lost, asked to stop (SPEC.md section 6).

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

/// What is followed of a Workflow: which it is and how it stands. Its tasks and their status are the plugin's business.
#[derive(Deserialize)]
pub(super) struct Followed {
    metadata: Named,
    #[serde(default)]
    spec: Wished,
    status: Option<Shown>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Named {
    name: String,
    namespace: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Wished {
    shutdown: Option<String>,
    suspend: Option<bool>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Shown {
    phase: Option<String>,
    message: Option<String>,
}

impl Kept for Followed {
    fn kept(self) -> Value {
        let (metadata, spec, status) = (self.metadata, self.spec, self.status.unwrap_or_default());
        json!({
            "metadata": {"name": metadata.name, "namespace": metadata.namespace},
            "spec": {"shutdown": spec.shutdown, "suspend": spec.suspend},
            "status": {"phase": status.phase, "message": status.message},
        })
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
    fn what_is_followed_of_a_workflow_is_all_that_counts() {
        let whole = json!({
            "metadata": {"name": "forge-dev-1", "namespace": "argo", "labels": {"a": "b"}, "managedFields": [{}]},
            "spec": {"shutdown": "Stop", "suspend": true, "templates": [{"name": "graph"}]},
            "status": {"phase": "Failed", "message": "stopped", "nodes": {"x": {"phase": "Failed"}}},
        });
        let followed: Followed = serde_json::from_value(whole.clone()).unwrap();
        let kept = followed.kept();
        for pointer in ["/metadata/name", "/metadata/namespace", "/spec/suspend"] {
            assert_eq!(kept.pointer(pointer), whole.pointer(pointer), "{pointer}");
        }
        let told = |workflow: &Value| {
            let found = Found::of(workflow);
            (found.ended, found.stopped, found.message)
        };
        assert_eq!(told(&kept), told(&whole));
        // One that nobody has looked at yet.
        let new = json!({"metadata": {"name": "x", "namespace": "argo"}, "spec": {"templates": []}});
        let followed: Followed = serde_json::from_value(new.clone()).unwrap();
        assert_eq!(told(&followed.kept()), told(&new));
    }
}
