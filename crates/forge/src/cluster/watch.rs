//! A collection, followed: a list first, then its changes; after a loss a list again. What a consumer holds is complete or
//! it is told so by [`Change::All`].

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{AsyncBufReadExt as _, StreamExt as _};
use http::Request;
use serde_json::Value;
use tokio::sync::mpsc;

use super::{Cluster, ClusterError, escaped};

/// How long one watch lasts before it is renewed.
const RENEWED: u64 = 290;
/// A stream that says nothing for so long (not even a bookmark) is taken for dead.
const SILENCE: Duration = Duration::from_secs(100);

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
    Lost,
}

/// Objects by `namespace/name`.
pub(crate) type Store = BTreeMap<String, Value>;

/// A collection that is followed until this is dropped.
pub(crate) struct Watch {
    changes: mpsc::Receiver<Change>,
    task: tokio::task::JoinHandle<()>,
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

    /// The next change, kept: true when something in the store is different now.
    pub(crate) async fn keep(&mut self, store: &mut Store) -> bool {
        match self.next().await {
            Change::All(all) => *store = all.into_iter().map(|object| (key(&object), object)).collect(),
            Change::Set(object) => {
                store.insert(key(&object), object);
            }
            Change::Gone(object) => {
                store.remove(&key(&object));
            }
            Change::Lost => return false,
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
        Watch { changes, task }
    }

    async fn follow(&self, collection: &str, selector: &str, sender: &mpsc::Sender<Change>) {
        let mut pause = Duration::from_millis(200);
        loop {
            match self.one_watch(collection, selector, sender).await {
                // Ended in peace: renewed at once.
                Ok(()) => pause = Duration::from_millis(200),
                Err(_) => {
                    if sender.send(Change::Lost).await.is_err() {
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
