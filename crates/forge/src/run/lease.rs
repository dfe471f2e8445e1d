//! One run of an environment at a time: a Lease that names it (SPEC.md section 4). Its count of transitions is also the
//! number that tells runs of one plan apart.

use std::time::{Duration, Instant};

use forge_core::code::Code;
use forge_core::failure::Failure;
use forge_core::gate::RunId;
use forge_core::name::EnvironmentName;
use forge_core::render::{ENVIRONMENT_LABEL, MANAGED_BY, RUN_LABEL};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::Place;
use crate::cluster::{Cluster, ClusterError, path};

/// A holder that did not renew for so long is gone.
pub(super) const LASTS: i64 = 30;
/// How long a Job may take from its creation to its first renewal: it is scheduled, and its image pulled.
const FIRST: i64 = 180;
/// How long a holder that seems to be gone is looked at: clocks differ, and one that lives renews within that.
pub(super) const LOOKED_AT: Duration = Duration::from_secs(12);
/// Longest name of a run: `forge-<run>-r30` is a label of Argo Workflows.
const LONGEST_NAME: usize = 53;
/// Between two renewals.
pub(super) const RENEWED: Duration = Duration::from_secs(5);
/// How long giving it back may take: where nobody answers, it ends by itself.
const GIVEN_BACK: Duration = Duration::from_secs(5);

/// Who has the Lease of an environment.
#[derive(Debug, Clone)]
pub(crate) struct Holder {
    /// The run.
    pub(crate) run: String,
    /// It renewed lately.
    pub(crate) alive: bool,
}

fn collection(namespace: &str) -> String {
    path::named("coordination.k8s.io", "v1", namespace, "leases")
}

/// The name of the Lease of an environment.
pub(crate) fn name(environment: &EnvironmentName) -> String {
    format!("forge-{environment}")
}

fn object(place: &Place, environment: &EnvironmentName) -> String {
    path::object(&collection(&place.places.workflows), &name(environment))
}

/// The Lease of an environment; nothing where there is none.
///
/// # Errors
/// When it cannot be read.
pub(crate) async fn read(
    cluster: &Cluster,
    namespace: &str,
    environment: &EnvironmentName,
) -> Result<Option<Value>, ClusterError> {
    cluster.get(&path::object(&collection(namespace), &name(environment))).await
}

/// When whoever has, or had, a Lease renewed it last, by their clock.
pub(super) fn renewed(lease: &Value) -> Option<Timestamp> {
    lease.pointer("/spec/renewTime").and_then(Value::as_str).and_then(|text| text.parse().ok())
}

/// Who has a Lease.
pub(super) fn holder(lease: &Value) -> Option<Holder> {
    let run = lease.pointer("/spec/holderIdentity").and_then(Value::as_str).filter(|holder| !holder.is_empty())?;
    let lasts = lease.pointer("/spec/leaseDurationSeconds").and_then(Value::as_i64).unwrap_or(LASTS).clamp(1, FIRST);
    let alive = renewed(lease).is_some_and(|at| Timestamp::now().duration_since(at) < SignedDuration::from_secs(lasts));
    Some(Holder { run: run.to_owned(), alive })
}

/// Whether a run keeps its Lease, for whoever looks at it again and again. Clocks differ: one that is renewed between two looks
/// is alive, whatever the clock says.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    /// The newest renewal that was seen, and when it was looked at last.
    seen: Option<(String, Instant)>,
    /// It was renewed after this moment.
    renewed_after: Option<Instant>,
}

impl Pulse {
    /// Whether this run has the Lease, as it was read now, and renewed it lately.
    pub(crate) fn beats(&mut self, lease: Option<&Value>, run: &RunId, now: Instant) -> bool {
        let Some(lease) = lease else { return false };
        let Some(holder) = holder(lease).filter(|holder| holder.run == run.as_str()) else { return false };
        let renewal = lease.pointer("/spec/renewTime").and_then(Value::as_str).unwrap_or_default();
        let before = self.seen.replace((renewal.to_owned(), now));
        if let Some((_, looked)) = before.filter(|(seen, _)| seen != renewal) {
            self.renewed_after = Some(looked);
        }
        let lasts = Duration::from_secs(LASTS.unsigned_abs());
        holder.alive || self.renewed_after.is_some_and(|after| now.saturating_duration_since(after) < lasts)
    }
}

/// A time as a Lease has it.
pub(super) fn micro(now: Timestamp) -> String {
    format!("{now:.6}")
}

/// Who conducts a run that takes the Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conducted {
    /// This process, at once.
    Here,
    /// A Job, when it has started.
    ByJob,
}

/// Waits until nobody has the Lease of an environment any more.
///
/// # Errors
/// When it cannot be read.
pub(crate) async fn free(place: &Place, environment: &EnvironmentName) -> Result<(), ClusterError> {
    while living(place, environment).await?.is_some() {
        tokio::time::sleep(RENEWED).await;
    }
    Ok(())
}

/// Refuses a run while another one lives: at once, because looking at every node takes its time. Whoever passes still has
/// to take the Lease, and who may not read it is told then.
///
/// # Errors
/// When another run has it.
pub(crate) async fn refuse_a_second(place: &Place, environment: &EnvironmentName) -> Result<(), Failure> {
    match living(place, environment).await {
        Ok(Some(holder)) => Err(in_progress(&holder, environment)),
        Err(ClusterError::Refused { code: 403, .. }) | Ok(None) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn living(place: &Place, environment: &EnvironmentName) -> Result<Option<Holder>, ClusterError> {
    let lease = place.cluster.get(&object(place, environment)).await?;
    Ok(lease.as_ref().and_then(holder).filter(|holder| holder.alive))
}

fn in_progress(holder: &Holder, environment: &EnvironmentName) -> Failure {
    Failure::new(Code::RunInProgress, format!("run `{}` of `{environment}` is in progress", holder.run))
        .hint(format!("look at it with `forge status --environment {environment}`, or add --wait to queue"))
}

/// Looks at the Lease of an environment until it is known whether its holder lives: true where nobody has it any more,
/// false as soon as it is renewed. A pod that was lost leaves its Lease to the one that takes its place.
///
/// # Errors
/// When it cannot be read.
pub(crate) async fn abandoned(place: &Place, environment: &EnvironmentName) -> Result<bool, ClusterError> {
    let version = |lease: Option<&Value>| lease?.pointer("/metadata/resourceVersion").cloned();
    let first = place.cluster.get(&object(place, environment)).await?;
    let mut lease = first.clone();
    loop {
        if lease.as_ref().and_then(holder).is_none_or(|holder| !holder.alive) {
            return Ok(true);
        }
        if version(lease.as_ref()) != version(first.as_ref()) {
            return Ok(false);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        lease = place.cluster.get(&object(place, environment)).await?;
    }
}

/// Takes the Lease for a new run of this plan and names the run.
///
/// # Errors
/// When another run has it.
pub(crate) async fn acquire(
    place: &Place,
    environment: &EnvironmentName,
    plan: &str,
    conducted: Conducted,
) -> Result<RunId, Failure> {
    let lasts = if conducted == Conducted::Here { LASTS } else { FIRST };
    for _ in 0..5 {
        let path = object(place, environment);
        let current = place.cluster.get(&path).await?;
        if let Some(holder) = current.as_ref().and_then(holder)
            && (holder.alive || renews(place, environment, current.as_ref()).await?)
        {
            return Err(in_progress(&holder, environment));
        }
        let number = current.as_ref().and_then(|lease| lease.pointer("/spec/leaseTransitions")).and_then(Value::as_i64);
        let number = match number {
            Some(number) => number + 1,
            // A Lease that somebody deleted took its count with it; the records of runs still have theirs.
            None => highest(place, environment).await? + 1,
        };
        let run = named(plan, number)?;
        let spec = spec(&run, number, lasts);
        let written = match &current {
            None => {
                let leases = collection(&place.places.workflows);
                place.cluster.create(&leases, &lease(environment, &spec)).await
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

fn named(plan: &str, number: i64) -> Result<RunId, Failure> {
    let failed = |why: String| {
        Failure::new(Code::BadArgument, format!("the run cannot be named: {why}"))
            .hint("use a shorter environment name")
    };
    let name = format!("{plan}-{number}");
    if name.len() > LONGEST_NAME {
        return Err(failed(format!("`{name}` is longer than {LONGEST_NAME} characters")));
    }
    name.parse().map_err(|error| failed(format!("{error}")))
}

fn spec(run: &RunId, number: i64, lasts: i64) -> Value {
    let now = micro(Timestamp::now());
    json!({
        "holderIdentity": run, "leaseDurationSeconds": lasts, "acquireTime": now, "renewTime": now,
        "leaseTransitions": number,
    })
}

fn lease(environment: &EnvironmentName, spec: &Value) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {
            "name": name(environment),
            "labels": {MANAGED_BY: "forge", ENVIRONMENT_LABEL: environment},
        },
        "spec": spec,
    })
}

/// Whether a Lease whose time is over by our clock is renewed all the same.
async fn renews(place: &Place, environment: &EnvironmentName, seen: Option<&Value>) -> Result<bool, ClusterError> {
    let version = |lease: Option<&Value>| lease?.pointer("/metadata/resourceVersion").cloned();
    let give_up = tokio::time::Instant::now() + LOOKED_AT;
    while tokio::time::Instant::now() < give_up {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = place.cluster.get(&object(place, environment)).await?;
        if version(now.as_ref()) != version(seen) {
            return Ok(now.as_ref().and_then(holder).is_some());
        }
    }
    Ok(false)
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
    let Some(lease) = place.cluster.get(&path).await? else {
        // Somebody deleted it, and nobody has it: it is made again.
        let number = run.as_str().rsplit_once('-').and_then(|(_, number)| number.parse().ok()).unwrap_or(0);
        let made = self::lease(environment, &spec(run, number, LASTS));
        return match place.cluster.create(&collection(&place.places.workflows), &made).await {
            Err(error) if !error.is_conflict() => Err(error),
            _ => Ok(Renewal::Ours),
        };
    };
    match holder(&lease) {
        Some(holder) if holder.run == run.as_str() => {}
        // Given back, or taken: this run is over.
        other => return Ok(Renewal::Lost(other.map_or_else(|| "nobody".to_owned(), |holder| holder.run))),
    }
    let version = lease.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
    let spec = json!({"renewTime": micro(Timestamp::now()), "leaseDurationSeconds": LASTS});
    match place.cluster.merge(&path, &json!({"metadata": {"resourceVersion": version}, "spec": spec})).await {
        Ok(_) => Ok(Renewal::Ours),
        // Settled by the next one.
        Err(error) if error.is_conflict() => Ok(Renewal::Ours),
        Err(error) => Err(error),
    }
}

/// Takes the Lease for work that is no run of nodes, holds it while that lasts, and gives it back. Nothing where the time was
/// over before it was taken, or before the work was done.
///
/// # Errors
/// When another run has it, or the work fails.
pub(crate) async fn held<T>(
    place: &Place,
    environment: &EnvironmentName,
    plan: &str,
    end: tokio::time::Instant,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<Option<T>, Failure> {
    let taken = tokio::time::timeout_at(end, acquire(place, environment, plan, Conducted::Here)).await;
    let Some(run) = taken.ok().transpose()? else { return Ok(None) };
    let holding = async {
        loop {
            tokio::time::sleep(RENEWED).await;
            if let Ok(Renewal::Lost(to)) = renew(place, environment, &run).await {
                let message = format!("the Lease of `{environment}` was lost to `{to}`");
                return Failure::new(Code::RunInProgress, message).hint("another run has taken over");
            }
        }
    };
    let done = tokio::select! {
        done = tokio::time::timeout_at(end, work) => done.ok().transpose(),
        lost = holding => Err(lost),
    };
    // The next one can do without.
    let _ = tokio::time::timeout(GIVEN_BACK, release(place, environment, &run)).await;
    done
}

/// Removes the Lease of an environment that is gone, with everything that runs of it needed.
///
/// # Errors
/// When it may not be removed.
pub(crate) async fn discard(place: &Place, environment: &EnvironmentName) -> Result<(), ClusterError> {
    place.cluster.delete(&object(place, environment)).await
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use forge_core::render::{AGENT_TICK, Places};

    use super::*;
    use crate::cluster::fake::{Fake, served};

    #[tokio::test]
    async fn a_lease_that_nobody_takes_back_is_left_to_its_end() {
        let (cluster, fake) = served(Fake::default()).await;
        let (workflows, argocd) = ("argo".to_owned(), "argocd".to_owned());
        let place =
            Place { cluster, places: Places { workflows, argocd, image: String::new(), agent_tick: AGENT_TICK } };
        // Nothing is answered from the end of the work on.
        let (silent, is_silent) = mpsc::channel::<()>();
        let (over, is_over) = mpsc::channel::<()>();
        let work = async {
            let fake = std::sync::Arc::clone(&fake);
            std::thread::spawn(move || {
                let _locked = fake.lock().unwrap();
                silent.send(()).unwrap();
                let _ = is_over.recv();
            });
            is_silent.recv().unwrap();
            Ok("done")
        };
        let begun = Instant::now();
        let end = tokio::time::Instant::now() + Duration::from_secs(600);
        let done = super::held(&place, &"dev".parse().unwrap(), "dev-rest", end, work).await.unwrap();
        assert_eq!(done, Some("done"));
        // A request that nobody answers takes four times as long to be given up.
        assert!(begun.elapsed() < GIVEN_BACK * 3, "{:?}", begun.elapsed());
        drop(over);
        assert_eq!(fake.lock().unwrap().writes.len(), 1);
    }

    fn held(run: &str, renewed: &str) -> Value {
        json!({"spec": {"holderIdentity": run, "renewTime": renewed, "leaseDurationSeconds": LASTS}})
    }

    #[test]
    fn a_run_keeps_its_lease_by_the_clock_or_by_renewing_it_while_somebody_looks() {
        let run: RunId = "r-1".parse().unwrap();
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let now = micro(Timestamp::now());
        assert!(Pulse::default().beats(Some(&held("r-1", &now)), &run, start));
        // Somebody else's, nobody's, and none.
        assert!(!Pulse::default().beats(Some(&held("r-2", &now)), &run, start));
        assert!(!Pulse::default().beats(Some(&held("", &now)), &run, start));
        assert!(!Pulse::default().beats(None, &run, start));
        // The clock of whoever renews it is years behind ours.
        let mut pulse = Pulse::default();
        let mut beats = |second, renewed| pulse.beats(Some(&held("r-1", renewed)), &run, after(second));
        assert!(!beats(0, "2020-01-01T00:00:00.000000Z"));
        assert!(!beats(2, "2020-01-01T00:00:00.000000Z"));
        assert!(beats(4, "2020-01-01T00:00:05.000000Z"));
        // Renewed at some moment after the second 2, and not again.
        assert!(beats(31, "2020-01-01T00:00:05.000000Z"));
        assert!(!beats(32, "2020-01-01T00:00:05.000000Z"));
        // Between two looks that are far from each other it may have been long ago.
        assert!(!beats(99, "2020-01-01T00:00:10.000000Z"));
    }
}
