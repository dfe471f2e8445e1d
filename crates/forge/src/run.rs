//! A run on a cluster: its preparation, the Job that conducts it, and who follows it (SPEC.md sections 4 and 6).
//!
//! `deploy` prepares (reads, looks, takes the Lease, stores the plan) and starts the Job; the Job conducts: it owns window,
//! Workflow and agent pod and writes the header; nodes are proven elsewhere, by plugin or pods. `--local` conducts in the
//! terminal, with the same code.

mod agent;
pub(crate) mod conduct;
pub(crate) mod follow;
mod job;
mod keep;
pub(crate) mod lease;
pub(crate) mod prepare;
pub(crate) mod turn;
mod window;

use crate::cluster::{Cluster, path};
use forge_core::gate::RunId;
use forge_core::render::Places;

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
