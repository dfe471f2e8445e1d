//! `--rehearse` on a cluster: reads what rules are given, and nothing is written.

use forge_core::failure::Failure;
use forge_core::teardown::inventory::{Gap, Inventory, Kind};
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
    let Looked { inventory, claims } = looked(asked).await?;
    let facts = facts(asked.cluster, &inventory).await;
    let snapshot = match stored(asked.cluster, asked.workflows).await {
        Ok(snapshot) => snapshot.map(|snapshot| snapshot.taken),
        Err(failure) => {
            say(&format!("note: {} {}", failure.code, failure.message));
            None
        }
    };
    let order = Order::of(asked.graph, &asked.nodes);
    let live = Live::new(&inventory, &claims, order, facts, asked.policy, Timestamp::now());
    let scope = asked.scope.to_string();
    let about = (asked.cluster.context.as_str(), asked.environment.as_str(), scope.as_str());
    Ok(RehearsalReport::new(about, &live, snapshot, (started, Timestamp::now())))
}

/// Reads whole what rules have to know more of than its metadata. What the inventory does not know is not asked for again.
async fn facts(cluster: &Cluster, inventory: &Inventory) -> Facts {
    let collection = |group: &str, plural: &str| {
        inventory.known((group, plural))?;
        inventory.kind((group, plural)).map(Kind::collection)
    };
    let wanted: Vec<(&'static str, String)> =
        WANTED.into_iter().filter_map(|(group, _, plural)| Some((plural, collection(group, plural)?))).collect();
    let read = futures::stream::iter(wanted).map(|(plural, collection)| async move {
        (plural, objects(cluster, &collection, PAGE, |object: &Value| Some(object.clone())).await)
    });
    let read: Vec<(&'static str, Result<Vec<Value>, String>)> = read.buffer_unordered(AT_ONCE).collect().await;
    let (mut whole, mut gaps) = (Objects::default(), Vec::new());
    for (plural, found) in read {
        match found {
            Ok(found) => whole.add(plural, found),
            Err(why) => gaps.push(Gap::new(plural, why)),
        }
    }
    let definitions = match collection("apiextensions.k8s.io", "customresourcedefinitions") {
        // Their schemas are megabytes, of which nothing is kept.
        Some(collection) => objects(cluster, &collection, FEW, Definition::read).await,
        None => Ok(Vec::new()),
    };
    let definitions = definitions.unwrap_or_else(|why| {
        gaps.push(Gap::new("customresourcedefinitions", why));
        Vec::new()
    });
    Facts::read(definitions, &whole, gaps)
}
