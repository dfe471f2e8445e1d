//! `forge serve node`: one node in a pod of its own, where executor plugins are not allowed.

use std::path::Path;
use std::sync::Arc;

use forge_core::code::Code;
use forge_core::exit::Exit;
use forge_core::failure::Failure;
use forge_core::gate::{Decision, RunId};
use forge_core::name::NodeId;

use super::Open;
use crate::cluster::Cluster;
use crate::metrics::Metrics;

/// Takes one node to its end.
pub(crate) async fn node(
    cluster: &Cluster,
    namespace: &str,
    run: &RunId,
    node: &NodeId,
    address: &str,
    token_file: &Path,
) -> Result<Exit, Failure> {
    let feed = super::argocd(address, token_file)?;
    let open = Open::new(cluster, namespace, run, feed, Arc::new(Metrics::default())).await?;
    match open.take(node).await {
        Some(Decision::Proven(_) | Decision::Gone(_)) => Ok(Exit::Done),
        Some(Decision::Failed(failure)) => Err(Failure::new(Code::NodeFailed, format!("`{node}`: {}", failure.why))
            .hint(format!("forge why {node} --environment <environment>"))),
        Some(Decision::Wait(_)) | None => {
            Err(Failure::new(Code::UnknownName, format!("run `{run}` has no node `{node}`")))
        }
    }
}
