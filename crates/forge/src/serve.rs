//! What runs inside the cluster beside the Job: the executor plugin of Argo Workflows, and a node in a pod of its own.
//! Both take nodes to their proofs with the same code (SPEC.md section 6).

mod gather;
mod node;
mod plugin;

use std::path::Path;
use std::sync::Arc;

use forge_core::code::Code;
use forge_core::failure::Failure;
use forge_core::gate::{Decision, RunId};
use forge_core::name::NodeId;
use forge_core::render::GIT_SECRET_PATH;
use forge_core::run::{HEADER_KEY, Header, RunAction, RunPlan, plan_name, read_plan, record_name};
use serde_json::Value;

use crate::argocd::{ArgoCd, Feed};
use crate::cluster::{Cluster, path};
use crate::git_reader::{GitCredentials, GitReader};
use crate::metrics::Metrics;
use crate::prove::{Mode, Prover};
use crate::recorder::Recorder;
use crate::teardown::Remover;

use gather::Gather;

pub(crate) use node::node;
pub(crate) use plugin::{Listen, plugin};

/// A run that this process works for.
struct Open {
    work: Work,
    recorder: Arc<Recorder>,
    gather: Gather,
}

/// What becomes of the nodes of a run.
enum Work {
    Prove(Prover),
    Remove(Remover),
}

/// The plan of a run, from its ConfigMaps.
///
/// # Errors
/// When a piece is missing or broken.
pub(crate) async fn plan(cluster: &Cluster, namespace: &str, run: &RunId) -> Result<RunPlan, Failure> {
    let broken =
        |why: String| Failure::new(Code::RunBroken, why).hint("start another run; proven nodes pass without a sync");
    let piece = |n: usize| path::object(&path::config_maps(namespace), &plan_name(run, n));
    let missing = |n: usize| broken(format!("ConfigMap `{}` is missing in `{namespace}`", plan_name(run, n)));
    let first = cluster.get(&piece(0)).await?.ok_or_else(|| missing(0))?;
    let count = first.pointer("/metadata/annotations/forge.projectcatalyst.io~1pieces").and_then(Value::as_str);
    let count: usize = count.and_then(|count| count.parse().ok()).unwrap_or(1).min(200);
    let mut pieces = vec![first];
    for n in 1..count {
        pieces.push(cluster.get(&piece(n)).await?.ok_or_else(|| missing(n))?);
    }
    let plan = read_plan(&pieces).map_err(broken)?;
    if plan.run != *run {
        return Err(broken(format!("the plan of `{run}` says that it is of `{}`", plan.run)));
    }
    Ok(plan)
}

/// The header of a run; nothing before the Job has begun.
///
/// # Errors
/// When it cannot be read.
pub(crate) async fn header(cluster: &Cluster, namespace: &str, run: &RunId) -> Result<Option<Header>, Failure> {
    let name = record_name(run, 0);
    let Some(found) = cluster.get(&path::object(&path::config_maps(namespace), &name)).await? else { return Ok(None) };
    // Whoever wished that the run stops may have come first.
    let Some(text) = found.get("data").and_then(|data| data.get(HEADER_KEY)).and_then(Value::as_str) else {
        return Ok(None);
    };
    let header = serde_json::from_str(text)
        .map_err(|error| Failure::new(Code::RunBroken, format!("ConfigMap `{name}` cannot be read: {error}")))?;
    Ok(Some(header))
}

impl Open {
    async fn new(
        cluster: &Cluster,
        namespace: &str,
        run: &RunId,
        feed: Arc<Feed>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, Failure> {
        let plan = Arc::new(plan(cluster, namespace, run).await?);
        let Some(header) = header(cluster, namespace, run).await? else {
            return Err(Failure::new(Code::RunBroken, format!("run `{run}` has no header yet")));
        };
        let recorder = Recorder::open(cluster, namespace, plan.clone()).await?;
        let gather = Gather::new(plan.gathers());
        if plan.action == RunAction::Teardown {
            let remover = Remover::new(&plan, header.deadline, feed, recorder.clone(), metrics);
            return Ok(Self { work: Work::Remove(remover), recorder, gather });
        }
        let credentials = GitCredentials::Mounted(GIT_SECRET_PATH.into());
        let git = GitReader::temporary(credentials)
            .map_err(|error| Failure::new(Code::CannotWrite, format!("failed to make a folder for clones: {error}")))?;
        let git = Arc::new(git);
        let prover = Prover::new(&plan, header.deadline, feed, recorder.clone(), git, metrics);
        Ok(Self { work: Work::Prove(prover), recorder, gather })
    }

    /// True if the run has such a node.
    fn knows(&self, node: &NodeId) -> bool {
        match &self.work {
            Work::Prove(prover) => prover.knows(node),
            Work::Remove(remover) => remover.knows(node),
        }
    }

    /// Takes a node to its end and says how it ended; nothing for a node that the run does not have.
    async fn take(&self, node: &NodeId) -> Option<Decision> {
        match &self.work {
            Work::Prove(prover) => prover.prove(node, Mode::Run).await,
            Work::Remove(remover) => remover.remove(node).await,
        }
    }

    /// Returns when a band may begin, or the run is over; gives nothing where the run has no such band.
    async fn opened(&self, band: usize) -> Option<()> {
        match &self.work {
            Work::Prove(prover) => prover.opened(band).await,
            Work::Remove(remover) => remover.opened(band).await,
        }
    }

    /// Returns when Argo Workflows may be told that a node has ended.
    async fn gathered(&self) {
        if self.recorder.is_over() {
            self.gather.release();
        } else {
            self.gather.wait().await;
        }
    }

    /// Watches over a proven node until it falls. What is gone needs nobody to watch it.
    async fn guard(&self, node: &NodeId) {
        match &self.work {
            Work::Prove(prover) => prover.guard(node).await,
            Work::Remove(_) => std::future::pending().await,
        }
    }
}

/// Serves figures beside whatever else this process does, until it ends.
///
/// # Errors
/// When the address cannot be had.
pub(crate) async fn metrics(address: std::net::SocketAddr, metrics: Arc<Metrics>) -> Result<(), Failure> {
    let failed =
        |error: std::io::Error| Failure::new(Code::BadArgument, format!("failed to listen on `{address}`: {error}"));
    let listener = tokio::net::TcpListener::bind(address).await.map_err(failed)?;
    let router = axum::Router::new().route("/metrics", axum::routing::get(move || async move { metrics.text() }));
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(())
}

/// Argo CD as a process in the cluster reaches it.
fn argocd(address: &str, token_file: &Path) -> Result<Arc<Feed>, Failure> {
    Ok(Feed::start(ArgoCd::mounted(address, token_file)?))
}
