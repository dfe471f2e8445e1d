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
use forge_core::teardown::inventory::{
    CleanExitReport, Complete, Ending, Inventory, Kind, Listing, Pages, Read, Readings, Snapshot, Stays, base,
    clean_exit, kinds,
};
use forge_core::teardown::whose::{Claims, Going, another};
use forge_core::teardown::{Creator, Volume, creator};
use futures::StreamExt as _;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout, timeout_at};

pub(crate) use snapshot::{Before, snapshot, snapshot_or_note, stored};

use crate::cluster::{Cluster, ClusterError, WHOLE, discovered, escaped, metadata, path};

/// How many kinds are read at once.
const AT_ONCE: usize = 8;
/// Before a list is read again.
const PAUSE: Duration = Duration::from_millis(200);
/// How long everything may take to be listed. A kind that was not by then is not known, and what was is.
const PATIENCE: Duration = Duration::from_secs(150);
/// How long objects of a kind may take to be read whole.
const WHOLLY: Duration = Duration::from_secs(100);
/// How many objects a page holds.
const PAGE: usize = 500;
/// How many objects a page holds that are large.
pub(super) const FEW: usize = 20;
/// Argo CD's Applications.
const APPLICATIONS: (&str, &str) = ("argoproj.io", "applications");

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
    /// Nodes that all environments share: they go with the last one, where they are ours.
    pub(crate) shared: Vec<NodeIx>,
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
    /// The nodes that go.
    pub(crate) nodes: Vec<NodeIx>,
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
    let last = asked.last.unwrap_or_else(|| !another(asked.environment, &inventory));
    let name = |node: &NodeIx| {
        let node = asked.graph.node(*node);
        (node.id.clone(), application_name(asked.environment, asked.argocd, &node.subject))
    };
    let mut going = asked.nodes.clone();
    if last {
        let is_ours = |&node: &&NodeIx| !is_foreign(&inventory, &name(node).1);
        going.extend(asked.shared.iter().filter(is_ours).copied());
    }
    let nodes: Vec<(NodeId, ApplicationName)> = going.iter().map(name).chain(asked.more.iter().cloned()).collect();
    let live = applications(asked, &inventory, &nodes).await?;
    // With those that the graph does not know any more.
    let known: Vec<Going<'_>> = nodes
        .iter()
        .map(|(node, application)| Going { node, application, live: live.get(node).map(|(_, live)| live) })
        .collect();
    let strangers = live.iter().filter(|(node, _)| !nodes.iter().any(|(known, _)| known == *node));
    let strangers = strangers.map(|(node, (application, live))| Going { node, application, live: Some(live) });
    let all: Vec<Going<'_>> = known.into_iter().chain(strangers).collect();
    let about = (asked.environment, asked.scope, last);
    let claims = Claims::new(about, asked.argocd, &all, &inventory);
    Ok(Looked { inventory, claims, nodes: going })
}

/// An Application is there and does not carry our label.
fn is_foreign(inventory: &Inventory, name: &ApplicationName) -> bool {
    let all = inventory.known(APPLICATIONS).map(Complete::items).unwrap_or_default();
    all.iter().any(|item| item.namespace == name.namespace && item.name == name.name && !item.forge)
}

/// The Applications of nodes, as far as they are there, and those that the environment's own set made and no node stands for
/// any more: of each only where it deploys to and what it manages.
async fn applications(
    asked: &Asked<'_>,
    inventory: &Inventory,
    nodes: &[(NodeId, ApplicationName)],
) -> Result<BTreeMap<NodeId, (ApplicationName, Value)>, Failure> {
    // Who may not list them is told so by the inventory.
    let (Some(kind), Some(listed)) = (inventory.kind(APPLICATIONS), inventory.known(APPLICATIONS)) else {
        return Ok(BTreeMap::new());
    };
    let by_place: BTreeMap<(&str, &str), &NodeId> =
        nodes.iter().map(|(node, name)| ((name.namespace.as_str(), name.name.as_str()), node)).collect();
    let own_set = Creator::Set(format!("{}-apps", asked.environment));
    let stranger = |object: &Value, namespace: &str, name: &str| {
        let project = object.pointer("/spec/project").and_then(Value::as_str);
        let own = *asked.scope == Scope::Platform
            && namespace == asked.argocd
            && project == Some(asked.environment.as_str())
            && creator(object).as_ref() == Some(&own_set);
        if own { format!("{namespace}/{name}").parse::<NodeId>().ok() } else { None }
    };
    let read = |object: &Value| {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
        let node = by_place.get(&(namespace, name)).map(|node| (*node).clone());
        let node = node.or_else(|| stranger(object, namespace, name))?;
        let part = |pointer: &str| object.pointer(pointer).cloned().unwrap_or_default();
        let (destination, resources) = (part("/spec/destination"), part("/status/resources"));
        let live = json!({"spec": {"destination": destination}, "status": {"resources": resources}});
        Some((node, (ApplicationName { namespace: namespace.to_owned(), name: name.to_owned() }, live)))
    };
    let found = objects(asked.cluster, (&kind.collection(), FEW), listed, read).await;
    let found = found.map_err(|why| Failure::from(ClusterError::Unreachable(format!("Applications: {why}"))))?;
    Ok(found.into_iter().collect())
}

/// Lists everything. `earlier` is what was read before in the same cluster: nothing that is older is believed.
///
/// # Errors
/// When the cluster cannot be asked what it serves.
pub(crate) async fn take(cluster: &Cluster, earlier: Option<&Inventory>) -> Result<Inventory, Failure> {
    let (taken, end) = (Timestamp::now(), Instant::now() + PATIENCE);
    let (kinds, gaps) = discovered(cluster).await?;
    let everything = may_list(cluster, "*", "*").await;
    let listed = futures::stream::iter(kinds).map(|kind| async move {
        let before = earlier.and_then(|earlier| earlier.known((&kind.group, &kind.resource)));
        let work = async {
            if everything || may_list(cluster, &kind.group, &kind.resource).await {
                listing(cluster, &kind, before).await
            } else {
                Some(Listing::Unknown("the account may not list it".to_owned()))
            }
        };
        let late = || format!("everything together was not listed within {} s", PATIENCE.as_secs());
        let listing = timeout_at(end, work).await.unwrap_or_else(|_| Some(Listing::Unknown(late())));
        (kind, listing)
    });
    let listed: Vec<(Kind, Option<Listing>)> = listed.buffer_unordered(AT_ONCE).collect().await;
    let listed = listed.into_iter().filter_map(|(kind, listing)| Some((kind, listing?))).collect();
    Ok(Inventory::new(taken, listed, gaps, earlier))
}

/// What is left, as of this inventory.
pub(crate) async fn report(asked: &Asked<'_>, began: &Began<'_>, after: &Inventory) -> CleanExitReport {
    let of = ("", "persistentvolumes");
    let volumes = match after.kind(of).zip(after.known(of)) {
        Some((kind, listed)) => objects(asked.cluster, (&kind.collection(), PAGE), listed, Volume::read).await,
        // Who may not list them is told so by the inventory.
        None => Ok(Vec::new()),
    };
    let volumes: Result<BTreeMap<String, String>, String> =
        volumes.map(|found| found.into_iter().map(|volume| (volume.name.clone(), volume.claimed())).collect());
    clean_exit(&Ending {
        context: &asked.cluster.context,
        environment: asked.environment.as_str(),
        claims: began.claims,
        before: began.before,
        snapshot: began.snapshot,
        after,
        volumes: volumes.as_ref().map_err(String::as_str),
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

/// All objects of a collection, whole, as far as `read` makes something of them. `listed` is what is known of them already:
/// where that is nothing, nothing is asked, and nothing that is older, or empty only once, is believed (INV-10).
///
/// # Errors
/// With why they are not known.
pub(super) async fn objects<T>(
    cluster: &Cluster,
    (collection, limit): (&str, usize),
    listed: &Complete,
    read: impl Fn(&Value) -> Option<T>,
) -> Result<Vec<T>, String> {
    if listed.items().is_empty() {
        return Ok(Vec::new());
    }
    let work = async {
        let mut readings = Readings::new(Some(listed));
        loop {
            let mut found = Vec::new();
            let answer = once(cluster, collection, WHOLE, limit, |object| found.extend(read(object))).await;
            let answer = match answer {
                Ok(list) => Read::Whole(list),
                Err(Unread::Broken(why)) => Read::Broken(why),
                Err(Unread::Refused(why) | Unread::Missing(why)) => Read::Refused(why),
            };
            match readings.take(answer) {
                Some(Listing::Known(_)) => return Ok(found),
                Some(Listing::Unknown(why)) => return Err(why),
                None => tokio::time::sleep(PAUSE).await,
            }
        }
    };
    timeout(WHOLLY, work).await.unwrap_or_else(|_| Err(format!("they were not read within {} s", WHOLLY.as_secs())))
}
