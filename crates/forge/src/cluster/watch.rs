//! A collection, followed: a list first, then its changes; after a loss a list again. What a consumer holds is complete or
//! it is told so by [`Change::All`].

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use forge_core::failure::Failure;
use futures::{AsyncBufReadExt as _, StreamExt as _};
use http::Request;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::mpsc;

use super::{Cluster, ClusterError, escaped, metadata, within};

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

/// What is kept of an object that is followed. The rest of it is never built: a Workflow of a thousand nodes is a megabyte,
/// ten times a second.
pub(crate) trait Kept: DeserializeOwned + Send + 'static {
    /// True where metadata is all of it: the API server sends nothing else then.
    const METADATA: bool = false;

    /// As an object with what was kept. Name and namespace are part of it.
    fn kept(self) -> Value;
}

/// All of it.
impl Kept for Value {
    fn kept(self) -> Value {
        self
    }
}

/// A list, as the API server writes it.
#[derive(Deserialize)]
struct List<T> {
    #[serde(default)]
    metadata: ListMetadata,
    items: Option<Vec<T>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ListMetadata {
    resource_version: String,
}

/// An event of a watch.
#[derive(Deserialize)]
struct Event<T> {
    #[serde(rename = "type")]
    kind: String,
    object: T,
}

/// An event, as far as everybody can read it.
#[derive(Deserialize)]
struct AnyEvent {
    #[serde(rename = "type")]
    kind: String,
}

/// The change that a line of a watch tells of; nothing where it is none, and no more lines are worth reading where the
/// server says so.
enum Told {
    Change(Change),
    Nothing,
    End,
}

fn told<T: Kept>(line: &str) -> Result<Told, ClusterError> {
    let unreadable = |error: serde_json::Error| ClusterError::Unreadable(error.to_string());
    let event: Event<T> = match serde_json::from_str(line) {
        Ok(event) => event,
        Err(error) => {
            // What is no object of the collection, as the word that it is too old, need not look like one.
            let any: AnyEvent = serde_json::from_str(line).map_err(unreadable)?;
            let of_object = matches!(any.kind.as_str(), "ADDED" | "MODIFIED" | "DELETED");
            return if of_object { Err(unreadable(error)) } else { Ok(other(&any.kind)) };
        }
    };
    Ok(match event.kind.as_str() {
        "ADDED" | "MODIFIED" => Told::Change(Change::Set(event.object.kept())),
        "DELETED" => Told::Change(Change::Gone(event.object.kept())),
        kind => other(kind),
    })
}

fn other(kind: &str) -> Told {
    // Anything but a bookmark means that it is listed again, as what is too old.
    if kind == "BOOKMARK" { Told::Nothing } else { Told::End }
}

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
        self.watch_for::<Value>(collection, selector)
    }

    /// Follows a collection of which only a part of every object matters.
    pub(crate) fn watch_for<T: Kept>(&self, collection: &str, selector: &str) -> Watch {
        let (sender, changes) = mpsc::channel(256);
        let (cluster, collection, selector) = (self.clone(), collection.to_owned(), selector.to_owned());
        let task = tokio::spawn(async move { cluster.follow::<T>(&collection, &selector, &sender).await });
        Watch { changes, task, trouble: None }
    }

    /// Waits until something happens to an object after this version of it, or so long. Whoever may not watch waits that long.
    pub(crate) async fn changed(&self, collection: &str, name: &str, version: &str, limit: Duration) {
        let (seconds, name, version) = (limit.as_secs().max(1), escaped(name), escaped(version));
        let uri = format!(
            "{collection}?fieldSelector=metadata.name%3D{name}&watch=true&timeoutSeconds={seconds}&resourceVersion={version}"
        );
        let heard = async {
            let request =
                Request::get(uri).header("accept", metadata("PartialObjectMetadata")).body(Vec::new()).ok()?;
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

    async fn follow<T: Kept>(&self, collection: &str, selector: &str, sender: &mpsc::Sender<Change>) {
        let mut pause = Duration::from_millis(200);
        loop {
            match self.one_watch::<T>(collection, selector, sender).await {
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

    async fn one_watch<T: Kept>(
        &self,
        collection: &str,
        selector: &str,
        sender: &mpsc::Sender<Change>,
    ) -> Result<(), ClusterError> {
        let selector = escaped(selector);
        let uri = format!("{collection}?labelSelector={selector}");
        let accept = |of: &str| if T::METADATA { metadata(of) } else { "application/json".to_owned() };
        let request = Request::get(uri.as_str()).header("accept", accept("PartialObjectMetadataList")).body(Vec::new());
        let request = request.map_err(|error| ClusterError::Unreachable(error.to_string()))?;
        let list: List<T> = within(&uri, async { Ok(self.client.request(request).await?) }).await?;
        let version = list.metadata.resource_version;
        let items = list.items.unwrap_or_default().into_iter().map(Kept::kept).collect();
        if sender.send(Change::All(items)).await.is_err() {
            return Ok(());
        }
        let uri = format!(
            "{collection}?labelSelector={selector}&watch=true&allowWatchBookmarks=true&timeoutSeconds={RENEWED}&resourceVersion={version}"
        );
        let request = Request::get(uri).header("accept", accept("PartialObjectMetadata")).body(Vec::new());
        let request = request.map_err(|error| ClusterError::Unreachable(error.to_string()))?;
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
            match told::<T>(&line)? {
                Told::Change(change) => {
                    if sender.send(change).await.is_err() {
                        return Ok(());
                    }
                }
                Told::Nothing => {}
                Told::End => return Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Only the phase.
    #[derive(Deserialize)]
    struct Short {
        metadata: Value,
        status: Option<Status>,
    }

    #[derive(Deserialize)]
    struct Status {
        phase: String,
    }

    impl Kept for Short {
        fn kept(self) -> Value {
            json!({"metadata": self.metadata, "phase": self.status.map(|status| status.phase)})
        }
    }

    fn line(kind: &str, object: &Value) -> String {
        json!({"type": kind, "object": object}).to_string()
    }

    #[test]
    fn of_an_event_that_is_kept_which_is_wanted() {
        let object = json!({"metadata": {"name": "a", "namespace": "n"}, "spec": {"x": [1, 2]}, "status": {"phase": "Running", "nodes": {}}});
        let Ok(Told::Change(Change::Set(whole))) = told::<Value>(&line("MODIFIED", &object)) else {
            panic!("{object}")
        };
        assert_eq!(whole, object);
        let Ok(Told::Change(Change::Gone(short))) = told::<Short>(&line("DELETED", &object)) else {
            panic!("{object}")
        };
        assert_eq!(short, json!({"metadata": {"name": "a", "namespace": "n"}, "phase": "Running"}));
        assert_eq!(key(&short), "n/a");
    }

    #[test]
    fn what_is_no_object_of_the_collection_is_understood_all_the_same() {
        let status = json!({"kind": "Status", "metadata": {}, "status": "Failure", "reason": "Expired", "code": 410});
        let bookmark = json!({"kind": "Workflow", "metadata": {"resourceVersion": "7", "creationTimestamp": null}});
        assert!(matches!(told::<Short>(&line("ERROR", &status)), Ok(Told::End)));
        assert!(matches!(told::<Value>(&line("ERROR", &status)), Ok(Told::End)));
        assert!(matches!(told::<Short>(&line("BOOKMARK", &bookmark)), Ok(Told::Nothing)));
        // One that cannot be read is not passed over: what is kept would not be complete.
        assert!(told::<Short>(&line("ADDED", &status)).is_err());
        assert!(told::<Short>("{").is_err());
    }

    #[test]
    fn a_list_without_items_is_empty_and_keeps_its_version() {
        let list: List<Short> =
            serde_json::from_value(json!({"metadata": {"resourceVersion": "5"}, "items": null})).unwrap();
        assert_eq!((list.metadata.resource_version.as_str(), list.items.is_none()), ("5", true));
        let list: List<Value> = serde_json::from_value(json!({"items": [{"metadata": {"name": "a"}}]})).unwrap();
        assert_eq!(list.items.unwrap_or_default().len(), 1);
    }
}
