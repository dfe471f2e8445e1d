//! One run of an environment at a time: a Lease that names it (SPEC.md section 4). Its count of transitions is also the
//! number that tells runs of one plan apart.

use std::time::Duration;

use forge_core::code::Code;
use forge_core::failure::Failure;
use forge_core::gate::RunId;
use forge_core::name::EnvironmentName;
use forge_core::render::{ENVIRONMENT_LABEL, MANAGED_BY, RUN_LABEL};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::Place;
use crate::cluster::{ClusterError, path};

/// A holder that did not renew for so long is gone.
const LASTS: i64 = 30;
/// Between two renewals.
pub(super) const RENEWED: Duration = Duration::from_secs(5);

/// Who has the Lease of an environment.
#[derive(Debug, Clone)]
pub(crate) struct Holder {
    /// The run.
    pub(crate) run: String,
    /// It renewed lately.
    pub(crate) alive: bool,
}

fn collection(place: &Place) -> String {
    path::named("coordination.k8s.io", "v1", &place.places.workflows, "leases")
}

fn object(place: &Place, environment: &EnvironmentName) -> String {
    path::object(&collection(place), &format!("forge-{environment}"))
}

fn holder(lease: &Value) -> Option<Holder> {
    let run = lease.pointer("/spec/holderIdentity").and_then(Value::as_str).filter(|holder| !holder.is_empty())?;
    let renewed =
        lease.pointer("/spec/renewTime").and_then(Value::as_str).and_then(|text| text.parse::<Timestamp>().ok());
    let alive = renewed.is_some_and(|at| Timestamp::now().duration_since(at) < SignedDuration::from_secs(LASTS));
    Some(Holder { run: run.to_owned(), alive })
}

/// A time as a Lease has it.
fn micro(now: Timestamp) -> String {
    format!("{now:.6}")
}

/// Takes the Lease for a new run of this plan and names the run.
///
/// # Errors
/// When another run has it.
pub(crate) async fn acquire(place: &Place, environment: &EnvironmentName, plan: &str) -> Result<RunId, Failure> {
    for _ in 0..5 {
        let path = object(place, environment);
        let current = place.cluster.get(&path).await?;
        if let Some(holder) = current.as_ref().and_then(holder).filter(|holder| holder.alive) {
            return Err(Failure::new(
                Code::RunInProgress,
                format!("run `{}` of `{environment}` is in progress", holder.run),
            )
            .hint(format!("look at it with `forge status --environment {environment}`, or add --wait to queue")));
        }
        let number = current.as_ref().and_then(|lease| lease.pointer("/spec/leaseTransitions")).and_then(Value::as_i64);
        let number = match number {
            Some(number) => number + 1,
            // A Lease that somebody deleted took its count with it; the records of runs still have theirs.
            None => highest(place, environment).await? + 1,
        };
        let run: RunId = format!("{plan}-{number}").parse().map_err(|error| {
            Failure::new(Code::BadArgument, format!("the run cannot be named: {error}"))
                .hint("use a shorter environment name")
        })?;
        let now = micro(Timestamp::now());
        let spec = json!({
            "holderIdentity": run, "leaseDurationSeconds": LASTS, "acquireTime": now, "renewTime": now,
            "leaseTransitions": number,
        });
        let written = match &current {
            None => {
                let labels = json!({MANAGED_BY: "forge", ENVIRONMENT_LABEL: environment});
                let lease = json!({
                    "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                    "metadata": {"name": format!("forge-{environment}"), "labels": labels},
                    "spec": spec,
                });
                place.cluster.create(&collection(place), &lease).await
            }
            Some(lease) => {
                let version = lease.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
                place.cluster.merge(&path, &json!({"metadata": {"resourceVersion": version}, "spec": spec})).await
            }
        };
        match written {
            Ok(_) => return Ok(run),
            Err(error) if error.is_conflict() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Failure::new(Code::RunInProgress, format!("others take the Lease of `{environment}` all the time"))
        .hint("try again"))
}

/// The highest number of any run of an environment that is recorded.
async fn highest(place: &Place, environment: &EnvironmentName) -> Result<i64, ClusterError> {
    let selector = format!("{MANAGED_BY}=forge,{ENVIRONMENT_LABEL}={environment},{RUN_LABEL}");
    let all = place.cluster.list(&place.config_maps(), &selector).await?;
    let runs = all.iter().filter_map(|found| found.pointer("/metadata/labels")?.get(RUN_LABEL)?.as_str());
    Ok(runs.filter_map(|run| run.rsplit_once('-')?.1.parse().ok()).max().unwrap_or(0))
}

/// What a renewal found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Renewal {
    /// Still ours.
    Ours,
    /// Somebody else has it.
    Lost(String),
}

/// Says that the run is alive.
pub(super) async fn renew(place: &Place, environment: &EnvironmentName, run: &RunId) -> Result<Renewal, ClusterError> {
    let path = object(place, environment);
    let Some(lease) = place.cluster.get(&path).await? else { return Ok(Renewal::Lost("nobody".to_owned())) };
    match holder(&lease) {
        Some(holder) if holder.run == run.as_str() => {}
        // Given back, or taken: this run is over.
        other => return Ok(Renewal::Lost(other.map_or_else(|| "nobody".to_owned(), |holder| holder.run))),
    }
    let version = lease.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
    let spec = json!({"renewTime": micro(Timestamp::now())});
    match place.cluster.merge(&path, &json!({"metadata": {"resourceVersion": version}, "spec": spec})).await {
        Ok(_) => Ok(Renewal::Ours),
        // Settled by the next one.
        Err(error) if error.is_conflict() => Ok(Renewal::Ours),
        Err(error) => Err(error),
    }
}

/// Gives the Lease back, if it is ours.
pub(super) async fn release(place: &Place, environment: &EnvironmentName, run: &RunId) -> Result<(), ClusterError> {
    let path = object(place, environment);
    let Some(lease) = place.cluster.get(&path).await? else { return Ok(()) };
    if holder(&lease).is_none_or(|holder| holder.run != run.as_str()) {
        return Ok(());
    }
    let version = lease.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
    let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"holderIdentity": ""}});
    match place.cluster.merge(&path, &patch).await {
        Err(error) if !error.is_conflict() => Err(error),
        _ => Ok(()),
    }
}
