//! Lists everything in a cluster, over all API groups, page by page, and metadata alone. What may not be read, is not answered
//! or contradicts itself becomes *not known*, and never an empty list (INV-10).

mod snapshot;

use std::collections::BTreeMap;
use std::time::Duration;

use forge_core::executor::PvPolicy;
use forge_core::failure::Failure;
use forge_core::graph::{Graph, NodeIx, Scope};
use forge_core::name::{EnvironmentName, NodeId};
use forge_core::repository::{ApplicationName, application_name};
use forge_core::rights::Answer;
use forge_core::teardown::Volume;
use forge_core::teardown::inventory::{
    CleanExitReport, Complete, Ending, Inventory, Kind, Listing, Pages, Read, Readings, Snapshot, Stays, base,
    clean_exit, kinds,
};
use forge_core::teardown::whose::{Claims, Going, another};
use futures::StreamExt as _;
use jiff::Timestamp;
use serde_json::{Value, json};

pub(crate) use snapshot::{Before, snapshot, stored};

use crate::cluster::{Cluster, ClusterError, WHOLE, discovered, escaped, metadata, path};

/// How many kinds are read at once.
const AT_ONCE: usize = 8;
/// How often a list is read that is no whole one.
const TRIES: usize = 4;
/// Before a list is read again.
const PAUSE: Duration = Duration::from_millis(200);
/// How many objects a page holds.
const PAGE: usize = 500;
/// How many objects a page holds that are large.
pub(super) const FEW: usize = 20;

/// What a teardown is about.
pub(crate) struct Asked<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) environment: &'a EnvironmentName,
    pub(crate) scope: &'a Scope,
    /// Argo CD's namespace.
    pub(crate) argocd: &'a str,
    /// The namespace of Argo Workflows.
    pub(crate) workflows: &'a str,
    pub(crate) graph: &'a Graph,
    /// The nodes that go.
    pub(crate) nodes: Vec<NodeIx>,
    /// Applications that go and that the graph does not know.
    pub(crate) more: Vec<(NodeId, ApplicationName)>,
    /// No other environment is there: what Forge itself made goes too. What is listed says so where nobody has looked.
    pub(crate) last: Option<bool>,
    pub(crate) policy: PvPolicy,
}

/// What is there, and what of it is whose.
pub(crate) struct Looked {
    pub(crate) inventory: Inventory,
    pub(crate) claims: Claims,
}

/// What was known when a teardown began, or what is now where none did.
pub(crate) struct Began<'b> {
    pub(crate) claims: &'b Claims,
    pub(crate) before: Option<&'b Inventory>,
    pub(crate) snapshot: Option<&'b Snapshot>,
    /// What was left where it is, and said so.
    pub(crate) stays: &'b Stays,
}

/// Lists everything, and finds out whose it is. Take it before the first deletion: Applications say best what they manage.
///
/// # Errors
/// When the cluster cannot be asked what it serves.
pub(crate) async fn looked(asked: &Asked<'_>) -> Result<Looked, Failure> {
    let inventory = take(asked.cluster, None).await?;
    let name = |node: &NodeIx| {
        let node = asked.graph.node(*node);
        (node.id.clone(), application_name(asked.environment, asked.argocd, &node.subject))
    };
    let nodes: Vec<(NodeId, ApplicationName)> =
        asked.nodes.iter().map(name).chain(asked.more.iter().cloned()).collect();
    let live = applications(asked.cluster, &inventory, &nodes).await?;
    let going: Vec<Going<'_>> =
        nodes.iter().map(|(node, application)| Going { node, application, live: live.get(node) }).collect();
    let last = asked.last.unwrap_or_else(|| !another(asked.environment, &inventory));
    let about = (asked.environment, asked.scope, last);
    let claims = Claims::new(about, asked.argocd, &going, &inventory);
    Ok(Looked { inventory, claims })
}

/// The Applications of nodes, as far as they are there: of each only where it deploys to and what it manages.
async fn applications(
    cluster: &Cluster,
    inventory: &Inventory,
    nodes: &[(NodeId, ApplicationName)],
) -> Result<BTreeMap<NodeId, Value>, Failure> {
    let of = ("argoproj.io", "applications");
    // Who may not list them is told so by the inventory.
    let (Some(kind), Some(_)) = (inventory.kind(of), inventory.known(of)) else { return Ok(BTreeMap::new()) };
    let by_place: BTreeMap<(&str, &str), &NodeId> =
        nodes.iter().map(|(node, name)| ((name.namespace.as_str(), name.name.as_str()), node)).collect();
    let read = |object: &Value| {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let node = by_place.get(&(text("/metadata/namespace"), text("/metadata/name")))?;
        let part = |pointer: &str| object.pointer(pointer).cloned().unwrap_or_default();
        let (destination, resources) = (part("/spec/destination"), part("/status/resources"));
        let live = json!({"spec": {"destination": destination}, "status": {"resources": resources}});
        Some(((*node).clone(), live))
    };
    let found = objects(cluster, &kind.collection(), FEW, read).await;
    let found = found.map_err(|why| Failure::from(ClusterError::Unreachable(format!("Applications: {why}"))))?;
    Ok(found.into_iter().collect())
}

/// Lists everything. `earlier` is what was read before in the same cluster: nothing that is older is believed.
///
/// # Errors
/// When the cluster cannot be asked what it serves.
pub(crate) async fn take(cluster: &Cluster, earlier: Option<&Inventory>) -> Result<Inventory, Failure> {
    let taken = Timestamp::now();
    let (kinds, gaps) = discovered(cluster).await?;
    let everything = may_list(cluster, "*", "*").await;
    let listed = futures::stream::iter(kinds).map(|kind| async move {
        let before = earlier.and_then(|earlier| earlier.known((&kind.group, &kind.resource)));
        let listing = if everything || may_list(cluster, &kind.group, &kind.resource).await {
            listing(cluster, &kind, before).await
        } else {
            Some(Listing::Unknown("the account may not list it".to_owned()))
        };
        (kind, listing)
    });
    let listed: Vec<(Kind, Option<Listing>)> = listed.buffer_unordered(AT_ONCE).collect().await;
    let listed = listed.into_iter().filter_map(|(kind, listing)| Some((kind, listing?))).collect();
    Ok(Inventory::new(taken, listed, gaps, earlier))
}

/// What is left, as of this inventory.
pub(crate) async fn report(asked: &Asked<'_>, began: &Began<'_>, after: &Inventory) -> CleanExitReport {
    // Who may not list them is told so by the inventory.
    let volumes = match after.kind(("", "persistentvolumes")) {
        Some(kind) => objects(asked.cluster, &kind.collection(), PAGE, Volume::read).await.unwrap_or_default(),
        None => Vec::new(),
    };
    let volumes = volumes.into_iter().map(|volume| (volume.name.clone(), volume.claimed())).collect();
    clean_exit(&Ending {
        context: &asked.cluster.context,
        environment: asked.environment.as_str(),
        claims: began.claims,
        before: began.before,
        snapshot: began.snapshot,
        after,
        volumes: &volumes,
        policy: asked.policy,
        stays: began.stays,
        ended: Timestamp::now(),
    })
}

/// Whether the account may list a kind, in all namespaces: asked, and not tried, because a refusal is nothing to cause for every
/// kind. What is not answered is tried.
async fn may_list(cluster: &Cluster, group: &str, resource: &str) -> bool {
    let reviews = path::global("authorization.k8s.io", "v1", "selfsubjectaccessreviews");
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"group": group, "resource": resource, "verb": "list"}},
    });
    match cluster.create(&reviews, &review).await {
        Ok(answer) => !matches!(Answer::read(&answer), Answer::Denied(_)),
        Err(_) => true,
    }
}

/// Why a list was not read.
enum Unread {
    /// It is no whole list; reading it again may help.
    Broken(String),
    /// It may not be read, or was not answered however often it was asked for.
    Refused(String),
    /// There is no such kind.
    Missing(String),
}

impl From<ClusterError> for Unread {
    fn from(error: ClusterError) -> Self {
        let message = error.to_string();
        match error {
            // The pages after the first one are kept for some minutes only.
            ClusterError::Refused { code: 410, .. } | ClusterError::Unreadable(_) => Self::Broken(message),
            ClusterError::Refused { code: 404, .. } => Self::Missing(message),
            ClusterError::Refused { .. } | ClusterError::Unreachable(_) => Self::Refused(message),
        }
    }
}

/// Reads a list once, page by page. `keep` is given every object.
async fn once(
    cluster: &Cluster,
    collection: &str,
    accept: &str,
    limit: usize,
    mut keep: impl FnMut(&Value),
) -> Result<Complete, Unread> {
    let mut pages = Pages::default();
    let mut uri = format!("{collection}?limit={limit}");
    loop {
        let page = cluster.answered(&uri, accept).await?;
        let more = pages.take(&page).map_err(Unread::Broken)?;
        page.get("items").and_then(Value::as_array).into_iter().flatten().for_each(&mut keep);
        match more {
            Some(token) => uri = format!("{collection}?limit={limit}&continue={}", escaped(&token)),
            None => return pages.complete().map_err(Unread::Broken),
        }
    }
}

/// What is known of a kind; nothing where it is not served any more.
async fn listing(cluster: &Cluster, kind: &Kind, earlier: Option<&Complete>) -> Option<Listing> {
    let mut readings = Readings::new(earlier);
    let (collection, metadata) = (kind.collection(), metadata("PartialObjectMetadataList"));
    loop {
        let read = match once(cluster, &collection, &metadata, PAGE, |_| {}).await {
            Ok(list) => Read::Whole(list),
            Err(Unread::Broken(why)) => Read::Broken(why),
            Err(Unread::Refused(why)) => Read::Refused(why),
            Err(Unread::Missing(why)) => {
                if !is_served(cluster, kind).await {
                    return None;
                }
                Read::Broken(why)
            }
        };
        if let Some(listing) = readings.take(read) {
            return Some(listing);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Whether a kind is still served, as far as that is answered.
async fn is_served(cluster: &Cluster, kind: &Kind) -> bool {
    match cluster.answered(&base(&kind.group, &kind.version), WHOLE).await {
        Ok(list) => {
            let found = kinds(&kind.group, &kind.version, &list);
            found.is_none_or(|found| found.iter().any(|found| found.resource == kind.resource))
        }
        Err(error) => !error.is_missing(),
    }
}

/// All objects of a collection, whole, as far as `read` makes something of them.
///
/// # Errors
/// With why they are not known.
pub(super) async fn objects<T>(
    cluster: &Cluster,
    collection: &str,
    limit: usize,
    read: impl Fn(&Value) -> Option<T>,
) -> Result<Vec<T>, String> {
    let mut why = String::new();
    for _ in 1..TRIES {
        let mut found = Vec::new();
        let whole = once(cluster, collection, WHOLE, limit, |object| found.extend(read(object))).await;
        match whole {
            Ok(_) => return Ok(found),
            Err(Unread::Broken(broken)) => why = broken,
            Err(Unread::Refused(refused) | Unread::Missing(refused)) => return Err(refused),
        }
    }
    Err(why)
}
