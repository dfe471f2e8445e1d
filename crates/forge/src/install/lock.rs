//! One bootstrap at a time: a Lease. Helm refuses to work on a release that is pending, but whoever repairs one that a killed
//! bootstrap left must know that nobody is still at it.

use std::fs;
use std::path::Path;
use std::time::Duration;

use forge_core::code::Code;
use forge_core::failure::Failure;
use forge_core::name::clip;
use forge_core::render::MANAGED_BY;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::cluster::{Cluster, ClusterError, path};
use crate::failpoint;

/// Its name, in the namespace of Argo Workflows.
pub(crate) const NAME: &str = "forge-bootstrap";
/// A holder that did not renew for so long is gone.
const LASTS: Duration = Duration::from_secs(30);
/// Between two renewals.
const RENEWED: Duration = Duration::from_secs(5);
/// Between two looks.
const PAUSE: Duration = Duration::from_secs(1);
/// How often somebody else may be quicker.
const TRIES: usize = 5;

/// The Lease, held.
pub(crate) struct Lock {
    path: String,
    holder: String,
    /// Ends when the Lease is not ours any more, with who has it.
    renewing: JoinHandle<String>,
}

/// Who a process is, so that another one of the same machine can tell whether it still runs.
fn identity(process: u32) -> String {
    let place = place().unwrap_or_else(|| "elsewhere".to_owned());
    format!("{place}/{process}")
}

/// The machine since it was started, and its namespace of processes; nothing where that cannot be told. A name is not enough:
/// many are called `localhost`, and the first namespace has the same number everywhere.
fn place() -> Option<String> {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let start = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{}/{}/{}", host.trim(), start.trim(), namespace.display()))
}

/// True for a process of this machine that has ended.
fn has_ended(holder: &str) -> bool {
    let Some((there, process)) = holder.rsplit_once('/') else { return false };
    let known = place().is_some_and(|here| here == there) && process.parse::<u32>().is_ok();
    known && !Path::new("/proc").join(process).exists()
}

/// True where nobody is at work any more: the holder has ended, or is this very process, which has given it back in vain.
fn is_free(holder: &str, own: &str) -> bool {
    has_ended(holder) || (holder == own && place().is_some())
}

fn holder(lease: &Value) -> Option<&str> {
    lease.pointer("/spec/holderIdentity").and_then(Value::as_str).filter(|holder| !holder.is_empty())
}

fn version(lease: &Value) -> Value {
    lease.pointer("/metadata/resourceVersion").cloned().unwrap_or_default()
}

fn spec(holder: &str) -> Value {
    let now = now();
    json!({"holderIdentity": holder, "leaseDurationSeconds": LASTS.as_secs(), "acquireTime": now, "renewTime": now})
}

/// The time as a Lease has it.
fn now() -> String {
    format!("{:.6}", Timestamp::now())
}

/// Takes the Lease. One whose holder does not renew it any more is waited for, and then taken. Safe to drop: whoever ends is
/// known not to hold it.
///
/// # Errors
/// When another bootstrap has it.
pub(crate) async fn take(cluster: &Cluster, namespace: &str, say: &mut dyn FnMut(&str)) -> Result<Lock, Failure> {
    let collection = path::named("coordination.k8s.io", "v1", namespace, "leases");
    let path = path::object(&collection, NAME);
    let own = identity(std::process::id());
    let mut seen: Option<(Value, Instant)> = None;
    let mut tries = 0;
    loop {
        let current = cluster.get(&path).await?;
        if let Some(lease) = &current
            && let Some(other) = holder(lease).filter(|other| !is_free(other, &own))
        {
            match &seen {
                None => {
                    say(&format!("waiting: another bootstrap has Lease {NAME} ({})", clip(other)));
                    seen = Some((version(lease), Instant::now()));
                }
                Some((before, _)) if *before != version(lease) => return Err(in_progress(other)),
                Some(_) => {}
            }
            if seen.as_ref().is_some_and(|(_, since)| since.elapsed() < LASTS) {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        }
        failpoint::write(&format!("Lease {NAME}"));
        let written = match &current {
            None => {
                let lease = json!({
                    "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                    "metadata": {"name": NAME, "labels": {MANAGED_BY: "forge"}}, "spec": spec(&own),
                });
                cluster.create(&collection, &lease).await
            }
            Some(lease) => {
                let metadata = json!({"resourceVersion": version(lease)});
                cluster.merge(&path, &json!({"metadata": metadata, "spec": spec(&own)})).await
            }
        };
        match written {
            Ok(_) => return Ok(held(cluster, path, own)),
            Err(error) if error.is_conflict() && tries < TRIES => {
                tries += 1;
                seen = None;
            }
            Err(error) if error.is_conflict() => return Err(in_progress("somebody else")),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Who is at work now, as far as that can be told without waiting: whoever has the Lease and renewed it lately. Who may not
/// look is not told.
pub(super) async fn at_work(cluster: &Cluster, namespace: &str) -> Option<String> {
    let collection = path::named("coordination.k8s.io", "v1", namespace, "leases");
    let lease = cluster.get(&path::object(&collection, NAME)).await.ok().flatten()?;
    renewed_lately(&lease, Timestamp::now())
}

fn renewed_lately(lease: &Value, now: Timestamp) -> Option<String> {
    let other = holder(lease).filter(|other| !has_ended(other))?;
    let renewed: Timestamp = lease.pointer("/spec/renewTime").and_then(Value::as_str)?.parse().ok()?;
    let age = now.as_second().saturating_sub(renewed.as_second());
    (age < i64::try_from(LASTS.as_secs()).unwrap_or(i64::MAX)).then(|| clip(other))
}

fn in_progress(other: &str) -> Failure {
    Failure::new(Code::BootstrapInProgress, format!("another bootstrap is at work ({})", clip(other)))
        .hint("wait until it has ended, then run this again")
}

fn held(cluster: &Cluster, path: String, own: String) -> Lock {
    let renewing = tokio::spawn({
        let (cluster, path, own) = (cluster.clone(), path.clone(), own.clone());
        async move {
            loop {
                tokio::time::sleep(RENEWED).await;
                if let Some(other) = renewed(&cluster, &path, &own).await {
                    return other;
                }
            }
        }
    });
    Lock { path, holder: own, renewing }
}

/// Renews the Lease where it is still ours; gives who has it where it is not.
async fn renewed(cluster: &Cluster, path: &str, own: &str) -> Option<String> {
    loop {
        // Who is not answered asks again with the next one: it lasts longer than that.
        let lease = cluster.get(path).await.ok()?;
        if let Some(other) = lost_to(lease.as_ref(), own) {
            return Some(other);
        }
        let metadata = json!({"resourceVersion": lease.as_ref().map(version)});
        match cluster.merge(path, &json!({"metadata": metadata, "spec": {"renewTime": now()}})).await {
            // Somebody was quicker: who, is looked at.
            Err(error) if error.is_conflict() => {}
            _ => return None,
        }
    }
}

/// Who has a Lease that was ours, where we have it no more.
fn lost_to(lease: Option<&Value>, own: &str) -> Option<String> {
    match lease.map(holder) {
        Some(Some(holder)) if holder == own => None,
        Some(Some(other)) => Some(clip(other)),
        Some(None) => Some("somebody gave it back".to_owned()),
        None => Some("somebody removed it".to_owned()),
    }
}

impl Lock {
    /// Ends when somebody else has the Lease, with that. Whoever works beside it is to be dropped then.
    pub(crate) async fn lost(&mut self) -> Failure {
        match (&mut self.renewing).await {
            Ok(other) => Failure::new(
                Code::BootstrapInProgress,
                format!("Lease {NAME} is not this bootstrap's any more ({other}), so it has stopped"),
            )
            .hint("wait until it has ended, then run this again"),
            // Nobody renews it any more, and nobody else can have it before it has run out.
            Err(_) => std::future::pending().await,
        }
    }

    /// Gives the Lease back, if it is still ours.
    pub(crate) async fn release(self, cluster: &Cluster) -> Result<(), ClusterError> {
        self.renewing.abort();
        let Some(lease) = cluster.get(&self.path).await? else { return Ok(()) };
        if holder(&lease) != Some(self.holder.as_str()) {
            return Ok(());
        }
        failpoint::write(&format!("Lease {NAME} given back"));
        let metadata = json!({"resourceVersion": version(&lease)});
        let patch = json!({"metadata": metadata, "spec": {"holderIdentity": ""}});
        match cluster.merge(&self.path, &patch).await {
            // A renewal that was on its way: it ends by itself.
            Err(error) if !error.is_conflict() => Err(error),
            _ => Ok(()),
        }
    }
}

impl Lock {
    /// Gives the Lease back for good: nobody bootstraps here any more.
    pub(crate) async fn discard(self, cluster: &Cluster) -> Result<(), ClusterError> {
        let path = self.path.clone();
        self.release(cluster).await?;
        failpoint::write(&format!("Lease {NAME} goes"));
        cluster.delete(&path).await
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_this_machine_is_known_to_live_or_to_have_ended_and_one_of_another_is_not() {
        assert!(!has_ended(&identity(std::process::id())));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let ended = identity(child.id());
        child.wait().unwrap();
        assert!(has_ended(&ended), "{ended}");
        for other in ["elsewhere/1", "", "/", "host/pid:[1]/1", "no number"] {
            assert!(!has_ended(other), "{other}");
        }
        // A machine of the same name, with the same number of its first namespace.
        let start = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let namesake = ended.replace(start.trim(), "3f2a7c1e-0000-4000-8000-000000000000");
        assert!(namesake != ended && !has_ended(&namesake), "{namesake}");
        // What this process took before, and nobody else, it may take again.
        let own = identity(std::process::id());
        assert!(is_free(&own, &own) && is_free(&ended, &own) && !is_free(&namesake, &own));
    }

    #[test]
    fn whoever_lost_the_lease_is_told_to_whom() {
        let lease = |holder: &str| json!({"spec": {"holderIdentity": holder}});
        assert_eq!(lost_to(Some(&lease("here/1")), "here/1"), None);
        assert_eq!(lost_to(Some(&lease("elsewhere/1")), "here/1").as_deref(), Some("elsewhere/1"));
        // Nobody has it: that is not ours either.
        for nobody in [None, Some(json!({})), Some(lease(""))] {
            assert!(lost_to(nobody.as_ref(), "here/1").is_some(), "{nobody:?}");
        }
    }

    #[test]
    fn who_renewed_lately_is_at_work_and_who_did_not_or_has_ended_is_not() {
        let now = Timestamp::from_second(1_000).unwrap();
        let lease = |holder: &str, second: i64| {
            let renewed = format!("{:.6}", Timestamp::from_second(second).unwrap());
            json!({"spec": {"holderIdentity": holder, "renewTime": renewed}})
        };
        assert_eq!(renewed_lately(&lease("elsewhere/1", 990), now).as_deref(), Some("elsewhere/1"));
        for other in [lease("elsewhere/1", 960), lease("", 990), json!({"spec": {"holderIdentity": "elsewhere/1"}})] {
            assert_eq!(renewed_lately(&other, now), None, "{other}");
        }
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let ended = identity(child.id());
        child.wait().unwrap();
        assert_eq!(renewed_lately(&lease(&ended, 990), now), None);
    }
}
