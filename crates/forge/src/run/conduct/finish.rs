//! The last look before the end: what was proven must stay well for a moment (ADR 0013).

use std::collections::BTreeMap;
use std::time::Duration;

use forge_core::failure::Failure;
use forge_core::gate::{Decision, Health, Why, settled_before};
use forge_core::name::NodeId;
use forge_core::run::{Entry, Record, RunAction, Verdict, entry_key, entry_piece, record_name, result, shortened};
use futures::StreamExt as _;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Conductor, patiently};
use crate::recorder::write_piece;
use crate::run::window;

/// How long everything must stay well before a run is done.
const STEADY: Duration = Duration::from_secs(5);
/// Between two looks at that.
const LOOK: Duration = Duration::from_millis(500);
/// How long that may take.
const GIVE_UP: Duration = Duration::from_secs(45);

/// Everything has ended, and what was proven is watched for a moment.
pub(super) struct Finish {
    give_up: Instant,
    /// Since when nothing was seen down.
    steady_since: Instant,
    /// What was seen down, and when last.
    fell: BTreeMap<NodeId, Instant>,
    /// How often containers of those were started again, where that is what was seen.
    restarts: BTreeMap<NodeId, u32>,
    /// When Argo CD was asked about that.
    asked: Instant,
    /// When everything was looked at last.
    looked: Instant,
    /// Whose pods are looked at again at the end, and from when on a restart counts.
    watched: BTreeMap<NodeId, Timestamp>,
}

impl Conductor<'_> {
    /// All nodes have ended. What was proven must stay well for a moment, for longer where something fell meanwhile;
    /// what does not is not proven after all. Called again and again until it gives the end.
    pub(super) async fn finished(&mut self, record: &Record) -> Result<Option<(Verdict, Option<String>)>, Failure> {
        // What is gone does not fall.
        if self.plan.action == RunAction::Teardown {
            return Ok(Some((result(&self.plan, record, false), None)));
        }
        if self.finish.as_ref().is_some_and(|finish| finish.looked.elapsed() < LOOK) {
            return Ok(None);
        }
        let down = self.fallen(record).await?;
        let now = Instant::now();
        let finish = self.finish.get_or_insert_with(|| {
            let last = record.entries.values().filter(|entry| entry.receipt().is_some()).map(|entry| entry.since).max();
            let age = last.map_or(Ok(STEADY), |at| Duration::try_from(Timestamp::now().duration_since(at)));
            // A clock that is ahead of ours says nothing.
            let steady_since = now.checked_sub(age.unwrap_or(Duration::ZERO)).unwrap_or(now);
            Finish {
                give_up: now + GIVE_UP,
                steady_since,
                fell: BTreeMap::new(),
                restarts: BTreeMap::new(),
                asked: now,
                looked: now,
                watched: watched(record),
            }
        });
        finish.looked = now;
        if !down.is_empty() {
            finish.steady_since = now;
            let known = finish.fell.len();
            finish.fell.extend(down.iter().map(|node| (node.clone(), now)));
            for node in &down {
                finish.watched.entry(node.clone()).or_insert_with(Timestamp::now);
            }
            // What Argo CD shows may be older than what is.
            if finish.fell.len() > known || finish.asked.elapsed() > Duration::from_secs(5) {
                finish.asked = now;
                self.relook(&down);
                return Ok(None);
            }
        }
        let needed = if finish.fell.is_empty() { STEADY } else { STEADY * 3 };
        if down.is_empty() && finish.steady_since.elapsed() >= needed {
            let (watched, give_up) = (finish.watched.clone(), finish.give_up);
            let (again, unread) = self.restarted(&watched).await?;
            // What could not be looked at is looked at again; it was proven once, so not for ever.
            if unread && again.is_empty() && now < give_up {
                return Ok(None);
            }
            let Some(finish) = self.finish.as_mut().filter(|_| !again.is_empty()) else {
                return Ok(Some((result(&self.plan, record, false), None)));
            };
            finish.steady_since = Instant::now();
            for (node, restarts) in again {
                finish.fell.insert(node.clone(), Instant::now());
                finish.restarts.insert(node.clone(), restarts);
                finish.watched.insert(node, Timestamp::now());
            }
            return Ok(None);
        }
        if now < finish.give_up {
            return Ok(None);
        }
        // What has been well for as long as is needed is well.
        let unwell = finish.fell.iter().filter(|(_, seen)| seen.elapsed() < needed);
        let restarts = |node: &NodeId| finish.restarts.get(node).copied().unwrap_or(0);
        let unwell: BTreeMap<NodeId, u32> = unwell.map(|(node, _)| (node.clone(), restarts(node))).collect();
        self.withdraw(record, &unwell).await?;
        Ok(Some((result(&self.plan, &self.standing().record, false), None)))
    }

    /// Marks nodes that did not stay well as failed; containers of each were seen started again so often.
    async fn withdraw(&mut self, record: &Record, nodes: &BTreeMap<NodeId, u32>) -> Result<(), Failure> {
        let namespace = &self.place.places.workflows;
        for (place, node) in self.plan.nodes().enumerate() {
            let Some((restarts, entry)) = nodes.get(&node.id).zip(record.entries.get(&node.id)) else { continue };
            let entry = unsteady(entry, *restarts, Timestamp::now());
            let name = record_name(&self.plan.run, entry_piece(place));
            let data = json!({entry_key(&node.id): shortened(&entry)});
            let write = || async {
                write_piece(&self.place.cluster, namespace, &self.plan, &name, &data).await.map_err(Failure::from)
            };
            patiently(write).await?;
            // The watch will tell; the verdict must not wait for it.
            let key = format!("{namespace}/{name}");
            if let Some(Value::Object(known)) = self.config_maps.get_mut(&key).and_then(|found| found.get_mut("data")) {
                known.insert(entry_key(&node.id), json!(shortened(&entry)));
            }
            self.pieces.borrow_mut().forget(&key);
        }
        self.changed();
        Ok(())
    }

    async fn fallen(&self, record: &Record) -> Result<Vec<NodeId>, Failure> {
        let all = patiently(|| async { window::applications(self.place).await.map_err(Failure::from) }).await?;
        let proven =
            self.plan.nodes().filter(|node| record.entries.get(&node.id).is_some_and(|e| e.receipt().is_some()));
        let fallen = proven.filter(|node| {
            let here = node.application.namespace.as_str() == self.place.places.argocd;
            here && all.get(node.application.name()).is_none_or(|application| application.health != Health::Healthy)
        });
        Ok(fallen.map(|node| node.id.clone()).collect())
    }

    /// Which of these have containers that were started again since, and how often: what crashes is often back before Argo CD has
    /// noticed, and with the Workflow the plugin has gone, which looks at the others. Also whether one could not be looked at.
    async fn restarted(&self, watched: &BTreeMap<NodeId, Timestamp>) -> Result<(Vec<(NodeId, u32)>, bool), Failure> {
        let all = patiently(|| async { window::applications(self.place).await.map_err(Failure::from) }).await?;
        let proven = self.plan.nodes().filter_map(|node| {
            let since = watched.get(&node.id)?;
            Some((&node.id, *since, all.get(node.application.name())?))
        });
        let looks = futures::stream::iter(proven).map(|(node, since, application)| async move {
            let tree = self.argocd.read_tree(application, &[], &[]).await.ok()?;
            // Where one is found, there was at least one.
            Some(tree.restarted_after(since).then(|| (node.clone(), tree.restarts().max(1))))
        });
        let looks: Vec<Option<Option<(NodeId, u32)>>> = looks.buffer_unordered(8).collect().await;
        let unread = looks.iter().any(Option::is_none);
        Ok((looks.into_iter().flatten().flatten().collect(), unread))
    }
}

/// A node that did not stay well after its proof.
fn unsteady(entry: &Entry, restarts: u32, now: Timestamp) -> Entry {
    let falls = entry.progress.falls.saturating_add(1);
    let decision = Decision::Failed(Why::Flapping { falls, restarts }.into());
    Entry { decision, since: now, ..entry.clone() }
}

/// What was proven last, and since when nothing of it may have restarted: the plugin may have gone before it could look at it again.
fn watched(record: &Record) -> BTreeMap<NodeId, Timestamp> {
    let late = Timestamp::now().saturating_sub(SignedDuration::from_secs(15)).unwrap_or(Timestamp::MIN);
    let proven = record.entries.iter().filter(|(_, entry)| entry.receipt().is_some() && entry.since > late);
    proven.map(|(node, entry)| (node.clone(), settled_before(entry.since))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_started_again_at_the_end_says_how_often() {
        let entry = json!({
            "node": "argocd/db", "since": "2026-11-16T12:00:00Z", "asked": [],
            "decision": {"type": "wait", "on": {"type": "tree"}, "until": "2026-11-16T13:00:00Z"},
        });
        let entry: Entry = serde_json::from_value(entry).unwrap();
        let now: Timestamp = "2026-11-16T12:10:00Z".parse().unwrap();
        let ended = unsteady(&entry, 3, now);
        let Decision::Failed(failure) = &ended.decision else { panic!("{ended:?}") };
        assert_eq!(failure.why, Why::Flapping { falls: 1, restarts: 3 });
        assert_eq!((&ended.node, ended.since), (&entry.node, now));
    }
}
