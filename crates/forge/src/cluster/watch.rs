//! A collection, followed: a list first, then its changes; after a loss a list again. What a consumer holds is complete or
//! it is told so by [`Change::All`].

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use forge_core::failure::Failure;
use futures::{AsyncBufReadExt as _, StreamExt as _};
use http::Request;
use serde_json::Value;
use tokio::sync::mpsc;

use super::{Cluster, ClusterError, escaped};

/// How long one watch lasts before it is renewed.
const RENEWED: u64 = 290;
/// A stream that says nothing for so long (not even a bookmark) is taken for dead.
const SILENCE: Duration = Duration::from_secs(100);
/// A refusal that lasts so long is meant.
const REFUSALS: Duration = Duration::from_secs(30);

/// What happened to a collection.
#[derive(Debug)]
pub(crate) enum Change {
    /// All there is, now.
    All(Vec<Value>),
    /// One was made or changed.
    Set(Value),
    /// One is gone.
    Gone(Value),
    /// It cannot be followed at the moment; tried again.
    Lost(ClusterError),
}

/// Objects by `namespace/name`.
pub(crate) type Store = BTreeMap<String, Value>;

/// A collection that is followed until this is dropped.
pub(crate) struct Watch {
    changes: mpsc::Receiver<Change>,
    task: tokio::task::JoinHandle<()>,
    /// Since when it cannot be followed, and why.
    trouble: Option<(Instant, ClusterError)>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watch {
    /// The next change. Safe to drop and ask again.
    pub(crate) async fn next(&mut self) -> Change {
        match self.changes.recv().await {
            Some(change) => change,
            // The task ends only with this.
            None => std::future::pending().await,
        }
    }

    /// It may not be read, and has not been for a while: an API server that has just started refuses everybody.
    pub(crate) fn refused(&self) -> Option<Failure> {
        let (since, error) = self.trouble.as_ref()?;
        let refused = matches!(error, ClusterError::Refused { code: 401 | 403, .. });
        (refused && since.elapsed() > REFUSALS).then(|| error.clone().into())
    }

    /// The next change, kept: true when something in the store is different now.
    pub(crate) async fn keep(&mut self, store: &mut Store) -> bool {
        let change = self.next().await;
        if !matches!(change, Change::Lost(_)) {
            self.trouble = None;
        }
        match change {
            Change::All(all) => *store = all.into_iter().map(|object| (key(&object), object)).collect(),
            Change::Set(object) => {
                store.insert(key(&object), object);
            }
            Change::Gone(object) => {
                store.remove(&key(&object));
            }
            Change::Lost(error) => {
                let since = self.trouble.as_ref().map_or_else(Instant::now, |(since, _)| *since);
                self.trouble = Some((since, error));
                return false;
            }
        }
        true
    }
}

fn key(object: &Value) -> String {
    let field = |name: &str| object.pointer(&format!("/metadata/{name}")).and_then(Value::as_str).unwrap_or_default();
    format!("{}/{}", field("namespace"), field("name"))
}

impl Cluster {
    /// Follows a collection.
    pub(crate) fn watch(&self, collection: &str, selector: &str) -> Watch {
        let (sender, changes) = mpsc::channel(256);
        let (cluster, collection, selector) = (self.clone(), collection.to_owned(), selector.to_owned());
        let task = tokio::spawn(async move { cluster.follow(&collection, &selector, &sender).await });
        Watch { changes, task, trouble: None }
    }

    /// Waits until something happens to an object after this version of it, or so long. Whoever may not watch waits that long.
    pub(crate) async fn changed(&self, collection: &str, name: &str, version: &str, limit: Duration) {
        let (seconds, name, version) = (limit.as_secs().max(1), escaped(name), escaped(version));
        let uri = format!(
            "{collection}?fieldSelector=metadata.name%3D{name}&watch=true&timeoutSeconds={seconds}&resourceVersion={version}"
        );
        let metadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
        let heard = async {
            let request = Request::get(uri).header("accept", metadata).body(Vec::new()).ok()?;
            let lines = self.client.request_stream(request).await.ok()?;
            let mut lines = std::pin::pin!(lines.lines());
            lines.next().await?.ok()
        };
        let began = Instant::now();
        let heard = tokio::time::timeout(limit, heard).await;
        // A watch that is refused or cut off tells nothing, and must not be asked for without end.
        if !matches!(heard, Ok(Some(_))) {
            tokio::time::sleep(limit.saturating_sub(began.elapsed())).await;
        }
    }

    async fn follow(&self, collection: &str, selector: &str, sender: &mpsc::Sender<Change>) {
        let mut pause = Duration::from_millis(200);
        loop {
            match self.one_watch(collection, selector, sender).await {
                // Ended in peace: renewed, but never in a loop of its own.
                Ok(()) => {
                    pause = Duration::from_millis(200);
                    tokio::time::sleep(pause).await;
                }
                Err(error) => {
                    if sender.send(Change::Lost(error)).await.is_err() {
                        return;
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(3));
                }
            }
            if sender.is_closed() {
                return;
            }
        }
    }

    async fn one_watch(
        &self,
        collection: &str,
        selector: &str,
        sender: &mpsc::Sender<Change>,
    ) -> Result<(), ClusterError> {
        let selector = escaped(selector);
        let uri = format!("{collection}?labelSelector={selector}");
        let mut list = self.send(http::Method::GET, &uri, "", Vec::new()).await?;
        let version = list.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default().to_owned();
        let items = match list.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        };
        if sender.send(Change::All(items)).await.is_err() {
            return Ok(());
        }
        let uri = format!(
            "{collection}?labelSelector={selector}&watch=true&allowWatchBookmarks=true&timeoutSeconds={RENEWED}&resourceVersion={version}"
        );
        let request =
            Request::get(uri).body(Vec::new()).map_err(|error| ClusterError::Unreachable(error.to_string()))?;
        let lines = tokio::time::timeout(Duration::from_secs(20), self.client.request_stream(request)).await;
        let lines = lines.map_err(|_| ClusterError::Unreachable("a watch was not answered".to_owned()))??;
        let mut lines = std::pin::pin!(lines.lines());
        loop {
            let line = match tokio::time::timeout(SILENCE, lines.next()).await {
                Ok(Some(Ok(line))) => line,
                Ok(Some(Err(error))) => return Err(ClusterError::Unreachable(error.to_string())),
                Ok(None) => return Ok(()),
                Err(_) => return Err(ClusterError::Unreachable("a watch fell silent".to_owned())),
            };
            let mut event: Value =
                serde_json::from_str(&line).map_err(|error| ClusterError::Unreadable(error.to_string()))?;
            let object = event.get_mut("object").map(Value::take).unwrap_or_default();
            let change = match event.get("type").and_then(Value::as_str) {
                Some("ADDED" | "MODIFIED") => Change::Set(object),
                Some("DELETED") => Change::Gone(object),
                Some("BOOKMARK") => continue,
                // Too old: listed again.
                _ => return Ok(()),
            };
            if sender.send(change).await.is_err() {
                return Ok(());
            }
        }
    }
}
