//! Removes what checks made, and looks whether it is gone. Only what carries the marks of the check that made it is touched
//! (INV-11), by its name, never by a selection.

use std::time::Duration;

use forge_core::preflight::{PREFLIGHT_LABEL, Purpose, is_left};
use forge_core::render::MANAGED_BY;
use serde_json::Value;
use tokio::time::Instant;

use super::gather::Ground;
use crate::cluster::{Cluster, ClusterError, path};
use crate::interrupt::Interrupts;

/// How long removing may take: a namespace takes Kubernetes five seconds at least, a volume depends on its provisioner.
pub(super) const REMOVAL: Duration = Duration::from_secs(60);
/// How long something is looked for whose making was not answered.
const UNCLEAR: Duration = Duration::from_secs(10);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(400);

/// Something that a check made.
pub(super) struct Made {
    /// Its kind.
    pub(super) kind: &'static str,
    /// Its name.
    pub(super) name: String,
    /// Where it is in the API.
    pub(super) path: String,
    /// The check that made it; nothing for what somebody made for it, which also goes by him.
    pub(super) by: Option<String>,
    /// It is not known whether it was made.
    pub(super) unclear: bool,
}

/// Where something stands.
enum Standing {
    Gone,
    There,
    /// It cannot be told.
    Unknown(String),
}

impl Made {
    async fn remove(&self, cluster: &Cluster) -> Standing {
        let object = match cluster.get(&self.path).await {
            Ok(Some(object)) => object,
            Ok(None) => return Standing::Gone,
            // Who may not see a volume leaves it to whoever made it.
            Err(ClusterError::Refused { code: 401 | 403, .. }) if self.by.is_none() => return Standing::Gone,
            Err(error) => return Standing::Unknown(error.to_string()),
        };
        let Some(by) = &self.by else { return Standing::There };
        let label = object.pointer("/metadata/labels").and_then(|labels| labels.get(PREFLIGHT_LABEL)?.as_str());
        if label != Some(by.as_str()) {
            // Somebody else's under the same name.
            return Standing::Gone;
        }
        if object.pointer("/metadata/deletionTimestamp").is_some() {
            return Standing::There;
        }
        match cluster.delete(&self.path).await {
            Ok(()) => Standing::There,
            Err(error) => Standing::Unknown(error.to_string()),
        }
    }
}

/// What came of removing.
#[derive(Default)]
pub(super) struct Removed {
    /// What is still there.
    pub(super) left: Vec<String>,
    /// Somebody did not want to wait.
    pub(super) interrupted: bool,
}

/// Removes all of these, in their order, and waits until they are gone. A request to stop ends the waiting.
pub(super) async fn remove(cluster: &Cluster, made: &[Made], interrupts: &mut Interrupts) -> Removed {
    let begin = Instant::now();
    let settled = begin + if made.iter().any(|thing| thing.unclear) { UNCLEAR } else { Duration::ZERO };
    loop {
        let mut left = Vec::new();
        for thing in made {
            match thing.remove(cluster).await {
                Standing::Gone => {}
                Standing::There => left.push(format!("{} {}", thing.kind, thing.name)),
                Standing::Unknown(why) => left.push(format!("{} {}: {why}", thing.kind, thing.name)),
            }
        }
        if (left.is_empty() && Instant::now() >= settled) || begin.elapsed() > REMOVAL {
            return Removed { left, interrupted: false };
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = interrupts.heard() => return Removed { left, interrupted: true },
        }
    }
}

/// Removes what checks left that were killed: how much of it is gone, and what came of the rest.
pub(super) async fn earlier(
    cluster: &Cluster,
    purpose: &Purpose,
    ground: &Ground,
    interrupts: &mut Interrupts,
) -> (usize, Removed) {
    let selector = format!("{MANAGED_BY}=forge,{PREFLIGHT_LABEL}");
    let mut found = Vec::new();
    for (kind, collection) in [
        ("Pod", path::core(&purpose.workflows, "pods")),
        ("PersistentVolumeClaim", path::core(&purpose.workflows, "persistentvolumeclaims")),
        ("Namespace", "/api/v1/namespaces".to_owned()),
    ] {
        // Who may not look cannot have left anything there.
        let Ok(objects) = cluster.list(&collection, &selector).await else { continue };
        let now = ground.now();
        found.extend(objects.iter().filter(|object| is_left(object, now)).filter_map(|object| {
            let name = object.pointer("/metadata/name").and_then(Value::as_str)?;
            let by = object.pointer("/metadata/labels")?.get(PREFLIGHT_LABEL)?.as_str()?;
            let (path, by) = (path::object(&collection, name), Some(by.to_owned()));
            Some(Made { kind, name: name.to_owned(), path, by, unclear: false })
        }));
    }
    if found.is_empty() {
        return (0, Removed::default());
    }
    let removed = remove(cluster, &found, interrupts).await;
    (found.len() - removed.left.len(), removed)
}
