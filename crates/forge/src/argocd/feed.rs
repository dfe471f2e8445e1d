//! One stream from Argo CD and a map from Application to state: what every node of a process watches (SPEC.md section 6).
//!
//! The stream loses events on a full buffer and between list and subscription, so everything is listed again every 15 s
//! and after a reconnect. An older read never replaces a newer one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use forge_core::name::ApplicationId;
use futures::{AsyncBufReadExt as _, StreamExt as _};
use serde_json::Value;
use tokio::sync::watch;

use super::{Application, ArgoCd};
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
    listed: Option<Instant>,
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

    /// A newer read from elsewhere (the answer to a refresh).
    pub(crate) fn offer(&self, application: Application) {
        let mut states = lock(&self.states);
        let sender = states.entry(application.id.clone()).or_insert_with(|| watch::Sender::new(Known::Unread));
        sender.send_if_modified(|known| {
            if matches!(known, Known::Seen(seen) if seen.version >= application.version) {
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
        lock(&self.health).listed.is_some_and(|at| at.elapsed() < RELIST * 3)
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
        let all = self.argocd.list().await?;
        let present: BTreeSet<ApplicationId> = all.iter().map(|application| application.id.clone()).collect();
        all.into_iter().for_each(|application| self.offer(application));
        self.absent(&present);
        lock(&self.health).listed = Some(Instant::now());
        Ok(())
    }

    /// Subscribes, lists, and follows until the stream ends.
    async fn follow_once(&self, alive: &std::sync::Weak<Self>) -> Result<(), ClusterError> {
        lock(&self.health).tried = Instant::now();
        // The stream first, so that nothing falls between it and the list.
        let lines = self.argocd.stream().await?;
        let mut lines = std::pin::pin!(lines.lines());
        self.list().await?;
        let mut again = tokio::time::interval_at(tokio::time::Instant::now() + RELIST, RELIST);
        loop {
            tokio::select! {
                line = lines.next() => match line {
                    Some(Ok(line)) => self.event(&line),
                    Some(Err(error)) => return Err(ClusterError::Unreachable(error.to_string())),
                    None => return Ok(()),
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

    fn event(&self, line: &str) {
        let Ok(event) = serde_json::from_str::<Value>(line) else { return };
        let Some(application) = event.pointer("/result/application").and_then(Application::read) else { return };
        if event.pointer("/result/type").and_then(Value::as_str) == Some("DELETED") {
            if let Some(sender) = lock(&self.states).get(&application.id) {
                sender.send_replace(Known::Absent);
            }
            return;
        }
        self.offer(application);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
