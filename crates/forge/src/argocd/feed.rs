//! One stream from Argo CD and a map from Application to state: what every node of a process watches (SPEC.md section 6).
//!
//! The stream loses events on a full buffer and between list and subscription, so everything is listed again every 15 s
//! and after a reconnect. An older read never replaces a newer one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use forge_core::name::ApplicationId;
use futures::{AsyncBufRead, AsyncBufReadExt as _};
use jiff::Timestamp;
use serde::Deserialize;
use tokio::sync::watch;

use super::{Application, ArgoCd, Found, Pruned};
use crate::cluster::ClusterError;

/// How often everything is listed again.
const RELIST: Duration = Duration::from_secs(15);

/// What is known of an Application: nothing yet, that there is none, or its state.
#[derive(Debug, Clone, Default)]
pub(crate) enum Known {
    /// Not listed yet.
    #[default]
    Unread,
    /// There is none.
    Absent,
    /// As last seen.
    Seen(Arc<Application>),
}

/// States of Applications, kept up to date while this lives.
pub(crate) struct Feed {
    argocd: ArgoCd,
    states: Mutex<BTreeMap<ApplicationId, watch::Sender<Known>>>,
    health: Mutex<FeedHealth>,
}

/// When the feed last did something.
#[derive(Debug, Clone, Copy)]
struct FeedHealth {
    tried: Instant,
    /// When everything was read last, and when that began.
    listed: Option<(Instant, Timestamp)>,
}

impl Feed {
    /// Starts following. The task ends with the last reference to the feed.
    pub(crate) fn start(argocd: ArgoCd) -> Arc<Self> {
        let health = FeedHealth { tried: Instant::now(), listed: None };
        let feed = Arc::new(Self { argocd, states: Mutex::default(), health: Mutex::new(health) });
        let weak = Arc::downgrade(&feed);
        tokio::spawn(async move {
            let mut pause = Duration::from_millis(200);
            while let Some(feed) = weak.upgrade() {
                match feed.follow_once(&weak).await {
                    Ok(()) => pause = Duration::from_millis(200),
                    Err(_) => {
                        drop(feed);
                        tokio::time::sleep(pause).await;
                        pause = (pause * 2).min(Duration::from_secs(2));
                    }
                }
            }
        });
        feed
    }

    /// The account.
    pub(crate) fn argocd(&self) -> &ArgoCd {
        &self.argocd
    }

    /// Follows one Application.
    pub(crate) fn subscribe(&self, id: &ApplicationId) -> watch::Receiver<Known> {
        let mut states = lock(&self.states);
        states.entry(id.clone()).or_insert_with(|| watch::Sender::new(Known::Unread)).subscribe()
    }

    /// An Application as last seen.
    pub(crate) fn get(&self, id: &ApplicationId) -> Known {
        lock(&self.states).get(id).map(|sender| sender.borrow().clone()).unwrap_or_default()
    }

    /// A newer read from elsewhere (the answer to a refresh). One that is as new and names the resource behind its health counts
    /// as newer: a list does not name it, and may come first.
    pub(crate) fn offer(&self, application: Application) {
        let mut states = lock(&self.states);
        let sender = states.entry(application.id.clone()).or_insert_with(|| watch::Sender::new(Known::Unread));
        sender.send_if_modified(|known| {
            let is_old = |seen: &Application| {
                let says_more = seen.unwell.is_none() && application.unwell.is_some();
                seen.version > application.version || (seen.version == application.version && !says_more)
            };
            if matches!(&*known, Known::Seen(seen) if is_old(seen)) {
                return false;
            }
            *known = Known::Seen(Arc::new(application));
            true
        });
    }

    /// The loop is alive: it tried something lately.
    pub(crate) fn is_alive(&self) -> bool {
        lock(&self.health).tried.elapsed() < RELIST * 8
    }

    /// Argo CD was read completely lately.
    pub(crate) fn is_fresh(&self) -> bool {
        lock(&self.health).listed.is_some_and(|(at, _)| at.elapsed() < RELIST * 3)
    }

    /// Whether nothing but time has failed a node since Argo CD was read, which was perhaps later for its own Application: it had
    /// not failed then. What came about meanwhile may not be known, and that nobody could look is no failure of the node.
    pub(crate) fn is_hearsay(&self, read: Option<Timestamp>, has_failed: impl FnOnce(Timestamp) -> bool) -> bool {
        read.max(self.read_at()).is_none_or(|then| !has_failed(then))
    }

    /// The moment that everything known is at least as new as; nothing before everything was read once.
    fn read_at(&self) -> Option<Timestamp> {
        lock(&self.health).listed.map(|(_, began)| began)
    }

    /// In which version an Application was seen.
    fn version(&self, id: &ApplicationId) -> Option<u64> {
        if let Known::Seen(seen) = self.get(id) { Some(seen.version) } else { None }
    }

    fn absent(&self, present: &BTreeSet<ApplicationId>) {
        for (id, sender) in lock(&self.states).iter() {
            if !present.contains(id) {
                sender.send_if_modified(|known| {
                    let changed = !matches!(known, Known::Absent);
                    *known = Known::Absent;
                    changed
                });
            }
        }
    }

    async fn list(&self) -> Result<(), ClusterError> {
        lock(&self.health).tried = Instant::now();
        let began = Timestamp::now();
        let mut present = BTreeSet::new();
        for found in self.argocd.list_since(&|id| self.version(id)).await? {
            present.insert(match found {
                Found::Known(id) => id,
                Found::New(application) => {
                    let id = application.id.clone();
                    self.offer(*application);
                    id
                }
            });
        }
        self.absent(&present);
        lock(&self.health).listed = Some((Instant::now(), began));
        Ok(())
    }

    /// Subscribes, lists, and follows until the stream ends.
    async fn follow_once(&self, alive: &std::sync::Weak<Self>) -> Result<(), ClusterError> {
        lock(&self.health).tried = Instant::now();
        // The stream first, so that nothing falls between it and the list.
        let stream = self.argocd.stream().await?;
        let mut lines = Lines { stream: Box::pin(stream), rest: Vec::new() };
        self.list().await?;
        let mut again = tokio::time::interval_at(tokio::time::Instant::now() + RELIST, RELIST);
        loop {
            tokio::select! {
                more = lines.read(|line| self.event(line)) => match more {
                    Ok(true) => {}
                    Ok(false) => return Ok(()),
                    Err(error) => return Err(ClusterError::Unreachable(error.to_string())),
                },
                _ = again.tick() => {
                    // Only we hold it: nobody watches any more.
                    if alive.strong_count() <= 1 {
                        return Ok(());
                    }
                    self.list().await?;
                }
            }
        }
    }

    fn event(&self, line: &[u8]) {
        let Ok(Event { result: Change { kind, application: Pruned(Some(application)) } }) =
            serde_json::from_slice(line)
        else {
            return;
        };
        if kind.as_deref() == Some("DELETED") {
            if let Some(sender) = lock(&self.states).get(&application.id) {
                sender.send_replace(Known::Absent);
            }
            return;
        }
        self.offer(application);
    }
}

/// A line of the stream.
#[derive(Deserialize)]
struct Event {
    result: Change,
}

#[derive(Deserialize)]
struct Change {
    #[serde(rename = "type")]
    kind: Option<String>,
    application: Pruned,
}

/// The lines of a stream, each read where it arrived: only what came in several pieces is put together.
struct Lines<S> {
    stream: S,
    /// The beginning of a line whose end has not arrived.
    rest: Vec<u8>,
}

impl<S: AsyncBufRead + Unpin> Lines<S> {
    /// Waits until more has arrived, and gives every line that is whole now; false where nothing comes any more. Whoever stops
    /// waiting loses nothing.
    async fn read(&mut self, mut give: impl FnMut(&[u8])) -> std::io::Result<bool> {
        let arrived = self.stream.fill_buf().await?;
        let length = arrived.len();
        let mut from = 0;
        for end in memchr::memchr_iter(b'\n', arrived) {
            let line = arrived.get(from..end).unwrap_or_default();
            if self.rest.is_empty() {
                give(line);
            } else {
                self.rest.extend_from_slice(line);
                give(&self.rest);
                self.rest.clear();
            }
            from = end + 1;
        }
        self.rest.extend_from_slice(arrived.get(from..).unwrap_or_default());
        self.stream.consume_unpin(length);
        Ok(length > 0)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::body::Body;
    use axum::http::{HeaderMap, StatusCode};
    use axum::response::{IntoResponse as _, Response};
    use axum::routing::get;
    use futures::{StreamExt as _, TryStreamExt as _};
    use secrecy::SecretString;
    use serde_json::{Value, json};

    use super::*;

    /// The token that is accepted, and the version of the one Application.
    type Accepted = watch::Sender<(&'static str, u64)>;

    fn application(version: u64) -> Value {
        json!({"metadata": {"namespace": "argocd", "name": "a", "resourceVersion": version.to_string()}})
    }

    /// Argo CD that accepts one token at a time, and ends its streams when that changes; counts streams and refusals.
    async fn serve(accepted: Arc<Accepted>) -> (String, Arc<[AtomicUsize; 2]>) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let counts: Arc<[AtomicUsize; 2]> = Arc::default();
        let known = {
            let (accepted, counts) = (accepted.clone(), counts.clone());
            move |headers: &HeaderMap| {
                let (token, version) = *accepted.borrow();
                let cookie = headers.get("cookie").and_then(|cookie| cookie.to_str().ok()).unwrap_or_default();
                if cookie == format!("argocd.token={token}") {
                    return Ok(version);
                }
                counts[1].fetch_add(1, Ordering::Relaxed);
                let refusal = json!({"error": "invalid session", "code": 16, "message": "invalid session"});
                Err(Box::new((StatusCode::UNAUTHORIZED, axum::Json(refusal)).into_response()))
            }
        };
        let list = {
            let known = known.clone();
            move |headers: HeaderMap| async move {
                match known(&headers) {
                    Ok(version) => axum::Json(json!({"metadata": {}, "items": [application(version)]})).into_response(),
                    Err(refusal) => *refusal,
                }
            }
        };
        let one = {
            let known = known.clone();
            move |headers: HeaderMap| async move {
                match known(&headers) {
                    Ok(version) => axum::Json(application(version)).into_response(),
                    Err(refusal) => *refusal,
                }
            }
        };
        let streams = counts.clone();
        let stream = move |headers: HeaderMap| async move {
            if let Err(refusal) = known(&headers) {
                return *refusal;
            }
            streams[0].fetch_add(1, Ordering::Relaxed);
            let mut changes = accepted.subscribe();
            let changed = async move {
                let _ = changes.changed().await;
            };
            let lines = futures::stream::once(async { Ok::<_, std::io::Error>("{}\n") });
            let lines = lines.chain(futures::stream::pending()).take_until(Box::pin(changed));
            Response::new(Body::from_stream(lines))
        };
        let router = axum::Router::new()
            .route("/api/v1/applications", get(list))
            .route("/api/v1/applications/{name}", get(one))
            .route("/api/v1/stream/applications", get(stream));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (address, counts)
    }

    /// A mounted Secret as a kubelet changes it: a folder of its own for each content, and one link that is replaced.
    fn mount(folder: &Path, token: &str) {
        std::fs::create_dir(folder.join(token)).unwrap();
        std::fs::write(folder.join(token).join("token"), token).unwrap();
        std::os::unix::fs::symlink(token, folder.join("..data_tmp")).unwrap();
        std::fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
    }

    /// A feed that follows nobody.
    fn feed(health: FeedHealth) -> Feed {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let argocd = ArgoCd::at("http://127.0.0.1:1", SecretString::from("t".to_owned()), None).unwrap();
        Feed { argocd, states: Mutex::default(), health: Mutex::new(health) }
    }

    #[tokio::test]
    async fn a_feed_is_alive_while_it_tries_and_fresh_while_that_succeeds() {
        let ago = |seconds: u64| Instant::now().checked_sub(Duration::from_secs(seconds)).unwrap();
        let began = Timestamp::now();
        for (tried, listed, wanted) in [
            (0, None, (true, false)),
            (0, Some(0), (true, true)),
            (0, Some(46), (true, false)),
            (121, Some(121), (false, false)),
        ] {
            let listed = listed.map(|seconds| (ago(seconds), began));
            let feed = feed(FeedHealth { tried: ago(tried), listed });
            assert_eq!((feed.is_alive(), feed.is_fresh()), wanted, "{tried} {listed:?}");
            assert_eq!(feed.read_at(), listed.map(|_| began));
        }
    }

    #[tokio::test]
    async fn lines_are_whole_however_they_arrive() {
        let text = "first\n\nthe second, which is longer\nthird\nand no end";
        for size in 1..text.len() {
            let pieces: Vec<std::io::Result<&[u8]>> = text.as_bytes().chunks(size).map(Ok).collect();
            let mut lines = Lines { stream: futures::stream::iter(pieces).into_async_read(), rest: Vec::new() };
            let mut found: Vec<String> = Vec::new();
            while lines.read(|line| found.push(String::from_utf8(line.to_vec()).unwrap())).await.unwrap() {}
            assert_eq!(found, ["first", "", "the second, which is longer", "third"], "in pieces of {size}");
        }
    }

    #[tokio::test]
    async fn of_reads_that_are_as_new_as_each_other_the_one_that_names_a_resource_counts() {
        let feed = feed(FeedHealth { tried: Instant::now(), listed: None });
        let id: ApplicationId = "argocd/a".parse().unwrap();
        let read = |version: u64, resources: &Value| {
            let mut object = application(version);
            object["status"] = json!({"health": {"status": "Degraded"}, "resources": resources});
            Application::read(&object).unwrap()
        };
        let resource = |name: &str| json!([{"kind": "Deployment", "name": name, "health": {"status": "Degraded"}}]);
        let named = || match feed.get(&id) {
            Known::Seen(seen) => seen.unwell.as_ref().map(|unwell| unwell.resource.clone()),
            other => panic!("{other:?}"),
        };
        let mut states = feed.subscribe(&id);
        feed.offer(read(7, &Value::Null));
        assert_eq!(named(), None);
        feed.offer(read(7, &resource("a")));
        assert_eq!(named().as_deref(), Some("Deployment/a"));
        states.borrow_and_update();
        for old in [read(7, &Value::Null), read(7, &resource("b")), read(6, &resource("b"))] {
            feed.offer(old);
            assert_eq!(named().as_deref(), Some("Deployment/a"));
        }
        assert!(!states.has_changed().unwrap());
        feed.offer(read(8, &Value::Null));
        assert_eq!(named(), None);
    }

    #[tokio::test]
    async fn requests_and_the_stream_go_on_when_the_mounted_token_was_replaced() {
        let accepted: Arc<Accepted> = Arc::new(watch::Sender::new(("old", 1)));
        let (address, counts) = serve(accepted.clone()).await;
        let folder = tempfile::tempdir().unwrap();
        mount(folder.path(), "old");
        std::os::unix::fs::symlink("..data/token", folder.path().join("token")).unwrap();
        let argocd = ArgoCd::mounted(&address, &folder.path().join("token")).unwrap();
        let feed = Feed::start(argocd);
        let id: ApplicationId = "argocd/a".parse().unwrap();
        let mut states = feed.subscribe(&id);
        let mut at = async |version: u64| {
            let shown = |known: &Known| matches!(known, Known::Seen(seen) if seen.version == version);
            tokio::time::timeout(Duration::from_secs(20), states.wait_for(shown)).await.unwrap().unwrap();
        };
        at(1).await;
        assert_eq!(counts[0].load(Ordering::Relaxed), 1);
        // The old one is refused from now on, its stream has ended, and the new one is where the old one was.
        mount(folder.path(), "new");
        accepted.send_replace(("new", 2));
        at(2).await;
        assert!(feed.argocd().get(&id).await.unwrap().is_some());
        assert!(counts[0].load(Ordering::Relaxed) >= 2 && counts[1].load(Ordering::Relaxed) >= 1);
        // Nothing was to be had: a refusal stays one, and is not taken for an Application that is gone.
        accepted.send_replace(("another", 3));
        let refused = feed.argocd().get(&id).await.unwrap_err();
        assert!(matches!(refused, ClusterError::Refused { code: 401, .. }), "{refused}");
        mount(folder.path(), "another");
        at(3).await;
    }
}
