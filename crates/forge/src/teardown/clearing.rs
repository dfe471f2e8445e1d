//! Looks for what nodes had made, once Argo CD has let go of them: the Application itself and every member that was known when
//! the run was planned, each by its name in the cluster (INV-10). Whoever conducts the run does this; runners have no right to
//! look at anything.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forge_core::name::NodeId;
use forge_core::run::RunNode;
use forge_core::teardown::{Clearance, Kept, Member, Remnant, judge};
use futures::StreamExt as _;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::cluster::{Cluster, ClusterError, Kinds, path};

/// Members of one node that are asked for at once.
const AT_ONCE: usize = 8;
/// Members that are followed while they go; the others are asked for again.
const FOLLOWED: usize = 8;
/// How long at most until everything is asked for again.
const AGAIN: Duration = Duration::from_secs(3);

/// What is looked for at the moment.
pub(crate) struct Clearing {
    cluster: Cluster,
    kinds: Arc<Kinds>,
    tasks: BTreeMap<NodeId, JoinHandle<()>>,
    sender: mpsc::Sender<(NodeId, Clearance)>,
    found: mpsc::Receiver<(NodeId, Clearance)>,
}

impl Drop for Clearing {
    fn drop(&mut self) {
        self.tasks.values().for_each(JoinHandle::abort);
    }
}

impl Clearing {
    pub(crate) fn new(cluster: &Cluster) -> Self {
        let (sender, found) = mpsc::channel(64);
        let kinds = Arc::new(Kinds::new(cluster));
        Self { cluster: cluster.clone(), kinds, tasks: BTreeMap::new(), sender, found }
    }

    /// Begins to look for what a node had made, unless that is on its way. Goes on until nothing is left that has to go.
    pub(crate) fn begin(&mut self, node: &RunNode) {
        if self.tasks.contains_key(&node.id) {
            return;
        }
        let look = Look { cluster: self.cluster.clone(), kinds: self.kinds.clone(), node: node.clone() };
        let sender = self.sender.clone();
        self.tasks.insert(node.id.clone(), tokio::spawn(async move { look.until_cleared(&sender).await }));
    }

    /// What looking came to, whenever that changes. Safe to drop and ask again.
    pub(crate) async fn next(&mut self) -> (NodeId, Clearance) {
        match self.found.recv().await {
            Some(found) => found,
            // We hold a sender ourselves.
            None => std::future::pending().await,
        }
    }
}

/// One node that is looked for.
struct Look {
    cluster: Cluster,
    kinds: Arc<Kinds>,
    node: RunNode,
}

/// A member that is still there: where, and as which version.
struct There {
    collection: String,
    name: String,
    version: String,
}

impl Look {
    async fn until_cleared(&self, sender: &mpsc::Sender<(NodeId, Clearance)>) {
        let mut told: Option<Clearance> = None;
        loop {
            let (clearance, there) = self.once().await;
            let cleared = clearance.left.is_empty();
            if told.as_ref() != Some(&clearance) {
                told = Some(clearance.clone());
                if sender.send((self.node.id.clone(), clearance)).await.is_err() {
                    return;
                }
            }
            if cleared {
                return;
            }
            self.until_something_happens(&there).await;
        }
    }

    /// Asks for the Application and for every member.
    async fn once(&self) -> (Clearance, Vec<There>) {
        let mut clearance = Clearance::default();
        let mut there = Vec::new();
        let (judged, found) = self.application().await;
        clearance.add(judged);
        there.extend(found);
        let Some(removal) = &self.node.removal else { return (clearance, there) };
        if !removal.here {
            if !removal.members.is_empty() {
                let why = "it is in another cluster: Argo CD says that what it managed is gone";
                clearance
                    .add(Ok(Some(Kept { object: format!("{} objects", removal.members.len()), why: why.to_owned() })));
            }
            return (clearance, there);
        }
        let members = removal.members.clone();
        let looks = futures::stream::iter(members).map(|member| async move { self.member(&member).await });
        let all: Vec<_> = looks.buffered(AT_ONCE).collect().await;
        for (judged, found) in all {
            clearance.add(judged);
            there.extend(found);
        }
        (clearance, there)
    }

    /// Any Application of its name is in the way, whoever made it and whatever it says: nothing of it is taken for gone.
    async fn application(&self) -> (Result<Option<Kept>, Remnant>, Option<There>) {
        let id = &self.node.application;
        let object = format!("Application/{id}");
        let collection = path::argo(id.namespace.as_str(), "applications");
        match self.cluster.get_metadata(&path::object(&collection, id.name())).await {
            Ok(None) => (Ok(None), None),
            Ok(Some(live)) => {
                let version = live.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default();
                let there = There { collection, name: id.name().to_owned(), version: version.to_owned() };
                (Err(Remnant::read(&object, &live)), Some(there))
            }
            Err(error) => (Err(Remnant::unread(&object, &error.to_string())), None),
        }
    }

    async fn member(&self, member: &Member) -> (Result<Option<Kept>, Remnant>, Option<There>) {
        let collection = match self.kinds.place(member).await {
            Ok(Some(collection)) => collection,
            // Its kind is not served any more.
            Ok(None) => return (Ok(None), None),
            Err(error) => return (Err(Remnant::unread(&member.to_string(), &error.to_string())), None),
        };
        let found = self.cluster.get_metadata(&path::object(&collection, &member.name)).await;
        judged(member, collection, found)
    }

    /// Follows some of what is left: when one of them changes, everything is asked for again.
    async fn until_something_happens(&self, there: &[There]) {
        let followed = there
            .iter()
            .take(FOLLOWED)
            .map(|there| Box::pin(self.cluster.changed(&there.collection, &there.name, &there.version, AGAIN)));
        let followed: Vec<_> = followed.collect();
        if followed.is_empty() {
            tokio::time::sleep(AGAIN).await;
        } else {
            futures::future::select_all(followed).await;
        }
    }
}

/// What is still there of what a node had made, and has to go: each object is asked for once, by its name.
pub(super) async fn left_of(cluster: &Cluster, kinds: &Arc<Kinds>, node: &RunNode) -> Vec<Remnant> {
    let look = Look { cluster: cluster.clone(), kinds: kinds.clone(), node: node.clone() };
    look.once().await.0.left
}

/// What follows from an answer about a member.
fn judged(
    member: &Member,
    collection: String,
    found: Result<Option<Value>, ClusterError>,
) -> (Result<Option<Kept>, Remnant>, Option<There>) {
    let live = match found {
        Ok(live) => live,
        // What may not be read may be there: it is never taken for gone.
        Err(error) => return (Err(Remnant::unread(&member.to_string(), &error.to_string())), None),
    };
    let judged = judge(member, live.as_ref());
    let version = live.as_ref().and_then(|live| live.pointer("/metadata/resourceVersion")).and_then(Value::as_str);
    let there = match (&judged, version) {
        (Err(_), Some(version)) => Some(There { collection, name: member.name.clone(), version: version.to_owned() }),
        _ => None,
    };
    (judged, there)
}
