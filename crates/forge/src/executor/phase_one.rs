//! Phase 1 as the executor enters it (SPEC.md section 4): whether it is complete, and one function that completes it, so that
//! whatever installs Argo has one place to stand in.

use std::collections::BTreeSet;

use forge_core::code::Code;
use forge_core::executor::{Input, Inputs};
use forge_core::failure::Failure;
use forge_core::name::EnvironmentName;
use forge_core::render::{AGENT_TICK, ARGOCD_SECRET, Places};

use super::desired::Desired;
use crate::bootstrap::{Wanted, bootstrap};
use crate::cluster::{Cluster, ClusterError, path};
use crate::run::prepare;

/// Where a cluster stands.
pub(super) enum Prepared {
    /// Phase 1 is complete for this environment; with what it was completed.
    Yes(Places),
    /// It is not; with what it is to be completed.
    No(Places),
}

/// Looks where a cluster stands. Reads only, and only what the account of a run may read.
///
/// # Errors
/// When it cannot be told, or when it is not known with what to prepare it.
pub(super) async fn looked(
    cluster: &Cluster,
    inputs: &Inputs,
    desired: &Desired,
    mounted: bool,
    variable: &str,
) -> Result<Prepared, Failure> {
    let workflows = inputs.workflows_namespace.as_str();
    let argocd = desired.repository().installation.argo.namespace.as_str();
    let noted = prepare::prepared(cluster, workflows, argocd).await?;
    let same = noted.as_ref().is_some_and(|noted| inputs.image.as_ref().is_none_or(|image| *image == noted.image));
    let project = path::object(&path::argo(argocd, "appprojects"), inputs.environment.as_str());
    let secret = path::object(&path::core(workflows, "secrets"), ARGOCD_SECRET);
    let complete = same && there(cluster, &project).await? && (mounted || there(cluster, &secret).await?);
    match (noted, complete) {
        (Some(places), true) => Ok(Prepared::Yes(places)),
        (noted, _) => {
            let agent_tick = noted.as_ref().map_or(AGENT_TICK, |noted| noted.agent_tick);
            let image = inputs.image.clone().or(noted.map(|noted| noted.image)).ok_or_else(|| {
                let flag = Input::Image.flag();
                let hint = format!("set {variable} or give {flag}: an image, by digest, that the cluster can pull");
                Failure::new(Code::MissingInput, "the cluster is not prepared, and no image is given").hint(hint)
            })?;
            let (workflows, argocd) = (workflows.to_owned(), argocd.to_owned());
            Ok(Prepared::No(Places { workflows, argocd, image, agent_tick }))
        }
    }
}

/// Whether an object is there, as far as the account may know: what it may not read it cannot rely on.
async fn there(cluster: &Cluster, object: &str) -> Result<bool, Failure> {
    match cluster.get(object).await {
        Ok(found) => Ok(found.is_some()),
        Err(ClusterError::Refused { code: 401 | 403, .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Completes phase 1 for one environment. `done` hears of everything that was made.
///
/// # Errors
/// When something may not be made, or Argo is not there.
pub(super) async fn phase_one(
    cluster: &Cluster,
    places: Places,
    environment: &EnvironmentName,
    held: BTreeSet<String>,
    done: impl FnMut(&str),
) -> Result<(), Failure> {
    let environments = vec![environment.clone()];
    let held = vec![(environment.clone(), held)];
    bootstrap(&Wanted { cluster, places, environments, held, server: None, token: None }, done).await
}
