//! A run on a cluster: its preparation, the Job that conducts it, and who follows it (SPEC.md sections 4 and 6).
//!
//! `deploy` prepares (reads, looks, takes the Lease, stores the plan) and starts the Job; the Job conducts: it owns window,
//! Workflow and agent pod and writes the header; nodes are proven elsewhere, by plugin or pods. `--local` conducts in the
//! terminal, with the same code.

mod agent;
pub(crate) mod conduct;
pub(crate) mod follow;
pub(crate) mod job;
mod keep;
pub(crate) mod lease;
mod pieces;
pub(crate) mod prepare;
#[cfg(test)]
pub(crate) mod sample;
pub(crate) mod turn;
mod window;

use std::time::Duration;

use crate::argocd::ArgoCd;
use crate::cluster::{Cluster, path};
use crate::metrics::Metrics;
use crate::teardown::Teardown;
use forge_core::failure::Failure;
use forge_core::gate::RunId;
use forge_core::render::Places;
use forge_core::run::{Record, RunPlan};

/// How long somebody who does not wait for the end waits for the token of a teardown to be taken back.
const HURRY: Duration = Duration::from_secs(10);

/// Where a run takes place.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) cluster: Cluster,
    pub(crate) places: Places,
}

impl Place {
    fn workflows(&self) -> String {
        path::argo(&self.places.workflows, "workflows")
    }

    fn config_maps(&self) -> String {
        path::config_maps(&self.places.workflows)
    }

    /// Selects everything of a run.
    fn of(run: &RunId) -> String {
        format!("{}=forge,{}={run}", forge_core::render::MANAGED_BY, forge_core::render::RUN_LABEL)
    }
}

/// Conducts a run in this process while it is followed; gives what it ended with. `teardown` is there for a run that removes
/// its nodes.
///
/// # Errors
/// When it cannot be conducted, or not followed.
pub(crate) async fn here(
    place: &Place,
    argocd: &ArgoCd,
    run: &RunPlan,
    metrics: &Metrics,
    teardown: Option<&Teardown<'_>>,
    follow: impl Future<Output = Result<Option<Record>, Failure>>,
) -> Result<Option<Record>, Failure> {
    let conduct = conduct::conduct(place, argocd, &run.run, metrics, teardown);
    let mut conduct = std::pin::pin!(conduct);
    let mut follow = std::pin::pin!(follow);
    tokio::select! {
        outcome = &mut conduct => {
            outcome?;
            follow.await
        }
        record = &mut follow => {
            let has_ended = |record: &Option<Record>| record.as_ref().is_some_and(|record| record.header.ended.is_some());
            if record.as_ref().is_ok_and(has_ended) {
                // It ends with the Lease given back and old records removed.
                conduct.await?;
            } else if let Some(teardown) = teardown {
                // Whoever leaves in a hurry leaves nobody who may delete.
                let _ = tokio::time::timeout(HURRY, teardown.give_back()).await;
            }
            record
        }
    }
}
