//! `--rehearse` on a cluster: reads what rules are given, and nothing is written.

use forge_core::failure::Failure;
use forge_core::teardown::inventory::{Complete, Gap, Inventory, Kind};
use forge_core::teardown::rehearse::{Definition, Facts, Live, Objects, RehearsalReport, WANTED};
use forge_core::teardown::whose::Order;
use futures::StreamExt as _;
use jiff::Timestamp;
use serde_json::Value;

use super::inventory::{Asked, FEW, Looked, looked, objects, stored};
use crate::cluster::Cluster;

/// How many kinds are read at once.
const AT_ONCE: usize = 6;
/// How many objects a page holds.
const PAGE: usize = 200;

/// Says what would stand in the way of a teardown. `say` hears what is done.
///
/// # Errors
/// When the cluster cannot be asked what it serves.
pub(crate) async fn run(asked: &Asked<'_>, say: &mut dyn FnMut(&str)) -> Result<RehearsalReport, Failure> {
    let started = Timestamp::now();
    say(&format!("listing everything on {}; nothing is written", asked.cluster.context));
    let Looked { inventory, claims, nodes } = looked(asked).await?;
    let facts = facts(asked.cluster, &inventory).await;
    let snapshot = match stored(asked.cluster, asked.workflows).await {
        Ok(snapshot) => snapshot.map(|snapshot| snapshot.taken),
        Err(failure) => {
            say(&format!("note: {} {}", failure.code, failure.message));
            None
        }
    };
    let order = Order::of(asked.graph, &nodes);
    let live = Live::new(&inventory, &claims, order, facts, asked.policy, Timestamp::now());
    let scope = asked.scope.to_string();
    let about = (asked.cluster.context.as_str(), asked.environment.as_str(), scope.as_str());
    Ok(RehearsalReport::new(about, &live, snapshot, (started, Timestamp::now())))
}

/// Reads whole what rules have to know more of than its metadata. What the inventory does not know is not asked for again.
async fn facts(cluster: &Cluster, inventory: &Inventory) -> Facts {
    let known = |group: &str, plural: &str| {
        let of = (group, plural);
        inventory.kind(of).map(Kind::collection).zip(inventory.known(of))
    };
    let wanted: Vec<(&'static str, (String, &Complete))> =
        WANTED.into_iter().filter_map(|(group, _, plural)| Some((plural, known(group, plural)?))).collect();
    let read = futures::stream::iter(wanted).map(|(plural, (collection, listed))| async move {
        (plural, objects(cluster, (&collection, PAGE), listed, trimmed).await)
    });
    let read: Vec<(&'static str, Result<Vec<Value>, String>)> = read.buffer_unordered(AT_ONCE).collect().await;
    let (mut whole, mut gaps) = (Objects::default(), Vec::new());
    for (plural, found) in read {
        match found {
            Ok(found) => whole.add(plural, found),
            Err(why) => gaps.push(Gap::new(plural, why)),
        }
    }
    let definitions = match known("apiextensions.k8s.io", "customresourcedefinitions") {
        // Their schemas are megabytes, of which nothing is kept.
        Some((collection, listed)) => objects(cluster, (&collection, FEW), listed, Definition::read).await,
        None => Ok(Vec::new()),
    };
    let definitions = definitions.unwrap_or_else(|why| {
        gaps.push(Gap::new("customresourcedefinitions", why));
        Vec::new()
    });
    Facts::read(definitions, &whole, gaps)
}

/// An object without what is most of it and decides nothing: who manages its fields, and what was applied last.
fn trimmed(object: &Value) -> Option<Value> {
    let mut object = object.clone();
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut)?;
    metadata.remove("managedFields");
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
    Some(object)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_kept_of_an_object_is_what_decides() {
        let object = json!({
            "metadata": {
                "name": "x", "managedFields": [{"manager": "kubectl"}],
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "argocd.argoproj.io/sync-wave": "1"},
            },
            "spec": {"type": "LoadBalancer"},
        });
        let kept = json!({
            "metadata": {"name": "x", "annotations": {"argocd.argoproj.io/sync-wave": "1"}},
            "spec": {"type": "LoadBalancer"},
        });
        assert_eq!(trimmed(&object), Some(kept));
        assert_eq!(trimmed(&json!(7)), None);
    }
}
