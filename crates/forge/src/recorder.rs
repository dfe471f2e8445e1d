//! Writes what becomes of nodes into the ConfigMaps of the run, one data key per node, coalesced.
//!
//! A receipt is written before anybody is told of it: [`Recorder::commit`] returns when it is stored, and until then the node
//! is open for those that wait for it. Several nodes that end together cost one write. Waits are stored when there is time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use forge_core::failure::Failure;
use forge_core::gate::{Decision, PredecessorState};
use forge_core::name::NodeId;
use forge_core::render::{ENVIRONMENT_LABEL, MANAGED_BY, RUN_LABEL};
use forge_core::run::{
    CANCEL_KEY, CLEARANCE_KEY, Entry, HEADER_KEY, Header, Openings, RunPlan, Withdrawn, entry_key, entry_piece,
    record_name, shortened, stopped,
};
use forge_core::teardown::Clearance;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};

use crate::cluster::{Cluster, ClusterError, path};
use crate::run::lease::{self, Pulse};

/// How long what is not urgent may wait.
const LAZY: Duration = Duration::from_millis(500);

/// The record of a run, as far as nodes go.
pub(crate) struct Recorder {
    target: Option<(Cluster, String)>,
    plan: Arc<RunPlan>,
    places: BTreeMap<NodeId, usize>,
    /// What each node waits for, in the order of the plan.
    waits: Vec<(NodeId, Vec<NodeId>)>,
    state: Mutex<State>,
    work: Notify,
    openings: Openings,
    /// By node: grows when it is asked for, when it is proven or has failed, and that is stored, when it is open again, and
    /// when any other has failed. What else is put says nothing to others, who would otherwise wake each other without end.
    changed: BTreeMap<NodeId, watch::Sender<u64>>,
    /// Grows when a band may begin.
    begun: watch::Sender<u64>,
    /// Grows when something was stored.
    stored: watch::Sender<u64>,
    /// What was found of nodes that are to go, and when that was read.
    clearances: tokio::sync::Mutex<Option<(Instant, BTreeMap<NodeId, Clearance>)>>,
    /// Whether anybody conducts the run.
    pulse: Mutex<Pulse>,
    /// When it was last said that nothing may start.
    refused: Mutex<Option<Instant>>,
}

struct State {
    entries: BTreeMap<NodeId, Entry>,
    dirty: BTreeSet<NodeId>,
    urgent: bool,
    version: u64,
    /// The newest change of each node; none for what was read.
    versions: BTreeMap<NodeId, u64>,
    /// The newest change of each node that is stored.
    stored: BTreeMap<NodeId, u64>,
    /// Nodes whose end is not stored yet.
    unstored: BTreeSet<NodeId>,
    /// How many have failed, as far as others may know.
    failed: usize,
    /// What is never done any more, until another node ends.
    stopped: Option<Arc<BTreeSet<NodeId>>>,
    /// The bands that may begin.
    opened: BTreeSet<usize>,
    failing_since: Option<Instant>,
}

impl State {
    /// The last answer about a node, as far as others may know: how it ended they know when that is stored.
    fn told(&self, node: &NodeId) -> Option<&Decision> {
        self.entries.get(node).filter(|_| !self.unstored.contains(node)).map(|entry| &entry.decision)
    }

    /// From now on others know how a node ended. True where it has failed.
    fn ends(&mut self, node: &NodeId) -> bool {
        self.stopped = None;
        let has_failed = matches!(self.told(node), Some(Decision::Failed(_)));
        self.failed += usize::from(has_failed);
        has_failed
    }
}

impl Recorder {
    /// A record that is kept in memory only: for looking without writing.
    pub(crate) fn in_memory(plan: Arc<RunPlan>) -> Arc<Self> {
        Arc::new(Self::new(None, plan, BTreeMap::new()))
    }

    /// The record of a run in the cluster, with what is there already.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) async fn open(cluster: &Cluster, namespace: &str, plan: Arc<RunPlan>) -> Result<Arc<Self>, Failure> {
        let selector = format!("{MANAGED_BY}=forge,{RUN_LABEL}={}", plan.run);
        let mut entries = BTreeMap::new();
        let known = plan.names();
        for config_map in cluster.list(&path::config_maps(namespace), &selector).await? {
            entries.extend(read_entries(&config_map, &known));
        }
        let recorder = Arc::new(Self::new(Some((cluster.clone(), namespace.to_owned())), plan, entries));
        let weak = Arc::downgrade(&recorder);
        tokio::spawn(async move {
            while let Some(recorder) = weak.upgrade() {
                recorder.flush_once().await;
            }
        });
        Ok(recorder)
    }

    fn new(target: Option<(Cluster, String)>, plan: Arc<RunPlan>, entries: BTreeMap<NodeId, Entry>) -> Self {
        let places = plan.nodes().enumerate().map(|(place, node)| (node.id.clone(), place)).collect();
        let changed = plan.nodes().map(|node| (node.id.clone(), watch::Sender::new(0))).collect();
        let waits = plan.waits().into_iter().map(|(node, before)| (node.id.clone(), before)).collect();
        let state = State {
            failed: entries.values().filter(|entry| matches!(entry.decision, Decision::Failed(_))).count(),
            stopped: None,
            opened: BTreeSet::new(),
            unstored: BTreeSet::new(),
            entries,
            dirty: BTreeSet::new(),
            urgent: false,
            version: 0,
            versions: BTreeMap::new(),
            stored: BTreeMap::new(),
            failing_since: None,
        };
        let recorder = Self {
            target,
            openings: Openings::of(&plan),
            plan,
            places,
            waits,
            state: Mutex::new(state),
            work: Notify::new(),
            changed,
            begun: watch::Sender::new(0),
            stored: watch::Sender::new(0),
            clearances: tokio::sync::Mutex::new(None),
            pulse: Mutex::default(),
            refused: Mutex::default(),
        };
        recorder.open_bands(&mut recorder.lock(), recorder.openings.all());
        recorder
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// What is known of a node.
    pub(crate) fn entry(&self, node: &NodeId) -> Option<Entry> {
        self.lock().entries.get(node).cloned()
    }

    /// Nodes that were asked for and may still change: whoever begins again takes them up. Of those that are proven and of
    /// those whose proof was withdrawn the task of the Workflow has succeeded, so nobody asks for them again.
    pub(crate) fn taken_up(&self) -> Vec<NodeId> {
        let state = self.lock();
        let lasting = |entry: &&Entry| matches!(entry.decision, Decision::Proven(_) | Decision::Wait(_));
        state.entries.values().filter(lasting).map(|entry| entry.node.clone()).collect()
    }

    /// True when every node has ended.
    pub(crate) fn is_over(&self) -> bool {
        let state = self.lock();
        state.entries.len() == self.places.len() && state.entries.values().all(Entry::is_final)
    }

    /// True while nothing could be stored for a while.
    pub(crate) fn is_stuck(&self) -> bool {
        self.lock().failing_since.is_some_and(|since| since.elapsed() > Duration::from_secs(60))
    }

    /// As if nothing could be stored since then.
    #[cfg(test)]
    pub(crate) fn fails_since(&self, since: Instant) {
        self.lock().failing_since = Some(since);
    }

    /// False when somebody stopped the run, or it has ended, or nobody conducts it now, or that cannot be read. Only whoever
    /// conducts it lets proven nodes out of the window.
    pub(crate) async fn may_start(&self) -> bool {
        let refused = || self.refused.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // However many nodes wait for it, a refusal is asked for again twice a second.
        if refused().is_some_and(|at| at.elapsed() < LAZY) {
            return false;
        }
        let may = self.may_start_now().await;
        if !may {
            *refused() = Some(Instant::now());
        }
        may
    }

    async fn may_start_now(&self) -> bool {
        let Some((cluster, namespace)) = &self.target else { return true };
        let header = path::object(&path::config_maps(namespace), &record_name(&self.plan.run, 0));
        let (found, lease) =
            tokio::join!(cluster.get(&header), lease::read(cluster, namespace, &self.plan.environment));
        let Ok(Some(found)) = found else { return false };
        let is_conducted = match lease {
            Ok(lease) => {
                let mut pulse = self.pulse.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                pulse.beats(lease.as_ref(), &self.plan.run, Instant::now())
            }
            // A Role of before Leases were read: the header alone says it, as it did then.
            Err(ClusterError::Refused { code: 403, .. }) => true,
            Err(_) => false,
        };
        if !is_conducted {
            return false;
        }
        let data = found.get("data");
        let header = data.and_then(|data| data.get(HEADER_KEY)).and_then(Value::as_str);
        let header: Option<Header> = header.and_then(|text| serde_json::from_str(text).ok());
        data.and_then(|data| data.get(CANCEL_KEY)).is_none() && header.is_some_and(|header| header.ended.is_none())
    }

    /// How many nodes have failed.
    pub(crate) fn failures(&self) -> usize {
        self.lock().failed
    }

    /// Whether nothing has changed for whoever waits for this node: it is as open as before, and nothing has failed since
    /// there were so many failures.
    pub(crate) fn is_waited_for(&self, node: &NodeId, failures: usize) -> bool {
        let state = self.lock();
        state.failed == failures && matches!(state.told(node), None | Some(Decision::Wait(_)))
    }

    /// Tells when something has changed for whoever waits for this node; nothing for a node that the run does not have.
    pub(crate) fn subscribe(&self, node: &NodeId) -> Option<watch::Receiver<u64>> {
        self.changed.get(node).map(watch::Sender::subscribe)
    }

    /// Returns when something has changed for whoever waits for this node; at once where it has already.
    pub(crate) async fn moves(&self, node: &NodeId, failures: usize) {
        let Some(mut changes) = self.subscribe(node) else { return std::future::pending().await };
        while self.is_waited_for(node, failures) {
            // It cannot be closed: we hold it.
            let _ = changes.changed().await;
        }
    }

    /// Tells those who wait for these nodes, or everybody where one has failed: that may concern whoever waits for anything.
    fn tell<'n>(&self, nodes: impl Iterator<Item = &'n NodeId>, has_failed: bool) {
        let grow = |changed: &watch::Sender<u64>| changed.send_modify(|at| *at += 1);
        if has_failed {
            self.changed.values().for_each(grow);
        } else {
            nodes.filter_map(|node| self.changed.get(node)).for_each(grow);
        }
    }

    /// Whether a node is proven, as far as others may know.
    pub(crate) fn is_proven(&self, node: &NodeId) -> bool {
        matches!(self.lock().told(node), Some(Decision::Proven(_)))
    }

    /// Takes what is known now; stored when there is time. What ended does not change any more, and what is known already
    /// is not stored again. Gives the newest change of the node.
    pub(crate) fn put(&self, entry: Entry) -> u64 {
        let mut state = self.lock();
        let known = state.entries.get(&entry.node);
        if known.is_some_and(|known| known.is_final() || *known == entry) {
            return state.versions.get(&entry.node).copied().unwrap_or(0);
        }
        let same = known.is_some_and(|_| !entry.is_final());
        let begins = entry.has_begun() && known.is_none_or(|known| entry.is_final() || !known.has_begun());
        let ends = entry.is_final();
        let node = entry.node.clone();
        state.version += 1;
        let version = state.version;
        state.versions.insert(node.clone(), version);
        state.dirty.insert(node.clone());
        state.entries.insert(node.clone(), entry);
        // Who waits for it is told when its end is stored.
        let later = ends && self.target.is_some();
        let mut has_failed = false;
        if later {
            state.unstored.insert(node.clone());
        } else if ends {
            has_failed = state.ends(&node);
        } else if !same {
            state.stopped = None;
        }
        if has_failed {
            self.open_bands(&mut state, self.openings.all());
        } else if begins {
            self.open_bands(&mut state, self.openings.behind(&node));
        }
        drop(state);
        if !same && !later {
            self.tell(std::iter::once(&node), has_failed);
        }
        self.work.notify_one();
        version
    }

    /// Takes the proof of a node that fell back, and returns when that is stored.
    pub(crate) async fn withdraw(&self, node: &NodeId, deadline: Timestamp) {
        let Some(mut entry) = self.entry(node).filter(|entry| entry.receipt().is_some()) else { return };
        entry.decision = forge_core::run::not_looked_at(deadline);
        entry.since = Timestamp::now();
        entry.withdrawn = Some(Withdrawn { times: entry.withdrawals().saturating_add(1), at: entry.since });
        entry.healthy = None;
        entry.progress.healthy_since = None;
        // Its time begins anew: what it took the first time is none of what it may take now.
        entry.progress.operation_finished_seen_at = None;
        entry.progress.ready_at = None;
        entry.progress.falls = entry.progress.falls.saturating_add(1);
        self.lock().entries.remove(node);
        self.commit(entry).await;
    }

    /// Takes what is known now, and returns when it is stored.
    pub(crate) async fn commit(&self, entry: Entry) {
        let node = entry.node.clone();
        let version = self.put(entry);
        if self.target.is_none() || version == 0 {
            return;
        }
        self.lock().urgent = true;
        self.work.notify_one();
        let mut stored = self.stored.subscribe();
        // It cannot be closed: we hold it.
        let _ = stored.wait_for(|_| self.lock().stored.get(&node).is_some_and(|at| *at >= version)).await;
    }

    /// How far these nodes are, which another one waits for. One behind a failure has failed too, although nobody asked for it:
    /// Argo Workflows leaves it out.
    pub(crate) fn predecessors(&self, nodes: &[NodeId]) -> BTreeMap<NodeId, PredecessorState> {
        let mut state = self.lock();
        let stopped = self.stopped(&mut state);
        let of = |node: &NodeId| match state.told(node) {
            Some(Decision::Proven(_) | Decision::Gone(_)) => PredecessorState::Proven,
            Some(Decision::Failed(_)) => PredecessorState::Failed,
            Some(Decision::Wait(_)) | None if stopped.contains(node) => PredecessorState::Failed,
            Some(Decision::Wait(_)) | None => PredecessorState::Waiting,
        };
        nodes.iter().map(|node| (node.clone(), of(node))).collect()
    }

    /// What whoever conducts the run found of what a node had made. Read at most twice a second, however many nodes ask;
    /// nothing where it says nothing yet, or cannot be read.
    pub(crate) async fn clearance(&self, node: &NodeId) -> Option<Clearance> {
        let mut known = self.clearances.lock().await;
        if known.as_ref().is_none_or(|(at, _)| at.elapsed() >= LAZY) {
            let (cluster, namespace) = self.target.as_ref()?;
            let name = record_name(&self.plan.run, 0);
            let found = cluster.get(&path::object(&path::config_maps(namespace), &name)).await.ok()??;
            let text = found.get("data").and_then(|data| data.get(CLEARANCE_KEY)).and_then(Value::as_str);
            let read = text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
            *known = Some((Instant::now(), read));
        }
        known.as_ref().and_then(|(_, clearances)| clearances.get(node).cloned())
    }

    /// Returns when a band may begin, or the run is over; gives nothing where the run has no such band. Opened early it
    /// costs nothing but time of the controller: whether a node may start is asked of whoever decides about it.
    pub(crate) async fn opened(&self, band: usize, deadline: Timestamp) -> Option<()> {
        if !self.openings.all().contains(&band) {
            return None;
        }
        let mut begins = self.begun.subscribe();
        while !self.lock().opened.contains(&band) && Timestamp::now() < deadline {
            // It cannot be closed: we hold it. Whoever asks for a band asks again after a while, so at the deadline too.
            let _ = begins.changed().await;
        }
        Some(())
    }

    /// Opens those of these bands that may begin (docs/adr/0025).
    fn open_bands(&self, state: &mut State, bands: impl Iterator<Item = usize>) {
        let stopped = self.stopped(state);
        let has_begun = |node: &NodeId| state.entries.get(node).is_some_and(Entry::has_begun) || stopped.contains(node);
        let opens = |band: &usize| self.openings.opens(*band, has_begun) == Some(true);
        let opened: Vec<usize> = bands.filter(|band| !state.opened.contains(band)).filter(opens).collect();
        if !opened.is_empty() {
            state.opened.extend(opened);
            self.begun.send_modify(|at| *at += 1);
        }
    }

    /// What is never done any more. Worked out where something has failed, and again when another node has ended.
    fn stopped(&self, state: &mut State) -> Arc<BTreeSet<NodeId>> {
        if state.failed == 0 {
            return Arc::default();
        }
        let known = state.stopped.take().unwrap_or_else(|| Arc::new(stopped(&self.waits, |node| state.told(node))));
        state.stopped = Some(known.clone());
        known
    }

    async fn flush_once(&self) {
        let idle = self.lock().dirty.is_empty();
        if idle && tokio::time::timeout(Duration::from_secs(5), self.work.notified()).await.is_err() {
            return;
        }
        let lazy = tokio::time::Instant::now() + LAZY;
        while !self.lock().urgent {
            if tokio::time::timeout_at(lazy, self.work.notified()).await.is_err() {
                break;
            }
        }
        let (version, dirty) = {
            let mut state = self.lock();
            state.urgent = false;
            (state.version, std::mem::take(&mut state.dirty))
        };
        if dirty.is_empty() {
            return;
        }
        let failed = self.write(&dirty).await;
        let complete = failed.is_empty();
        let (mut ended, mut has_failed) = (Vec::new(), false);
        {
            let mut state = self.lock();
            for node in dirty.difference(&failed) {
                state.stored.insert(node.clone(), version);
                // One that changed while it was written is written again.
                let newest = state.versions.get(node).is_none_or(|at| *at <= version);
                if newest && state.unstored.remove(node) {
                    has_failed |= state.ends(node);
                    ended.push(node);
                }
            }
            if has_failed {
                self.open_bands(&mut state, self.openings.all());
            }
            if complete {
                state.failing_since = None;
            }
        }
        self.stored.send_modify(|at| *at += 1);
        self.tell(ended.into_iter(), has_failed);
        if !complete {
            self.keep(failed);
            tokio::time::sleep(Duration::from_millis(500)).await;
            self.work.notify_one();
        }
    }

    /// What could not be stored is stored next.
    fn keep(&self, dirty: BTreeSet<NodeId>) {
        let mut state = self.lock();
        state.dirty.extend(dirty);
        state.urgent = true;
        state.failing_since.get_or_insert_with(Instant::now);
    }

    /// Stores these nodes, piece by piece; gives those that could not be stored. One piece does not stop the others.
    async fn write(&self, dirty: &BTreeSet<NodeId>) -> BTreeSet<NodeId> {
        let Some((cluster, namespace)) = &self.target else { return BTreeSet::new() };
        let mut pieces: BTreeMap<usize, BTreeMap<NodeId, String>> = BTreeMap::new();
        {
            let state = self.lock();
            for node in dirty {
                if let (Some(place), Some(entry)) = (self.places.get(node), state.entries.get(node)) {
                    pieces.entry(entry_piece(*place)).or_default().insert(node.clone(), shortened(entry));
                }
            }
        }
        let mut failed = BTreeSet::new();
        for (piece, entries) in pieces {
            let name = record_name(&self.plan.run, piece);
            let data: BTreeMap<String, &String> = entries.iter().map(|(node, text)| (entry_key(node), text)).collect();
            if write_piece(cluster, namespace, &self.plan, &name, &json!(data)).await.is_err() {
                failed.extend(entries.into_keys());
            }
        }
        failed
    }
}

/// Writes data keys of a ConfigMap of the run, which is made where it is not there.
pub(crate) async fn write_piece(
    cluster: &Cluster,
    namespace: &str,
    plan: &RunPlan,
    name: &str,
    data: &Value,
) -> Result<(), ClusterError> {
    let collection = path::config_maps(namespace);
    let object = path::object(&collection, name);
    // Made first by whoever comes first; then patched, key by key.
    let mut tries = 0;
    loop {
        tries += 1;
        match cluster.merge_unread(&object, &json!({"data": data})).await {
            Err(error) if error.is_missing() => {}
            other => return other,
        }
        let made = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": {MANAGED_BY: "forge", ENVIRONMENT_LABEL: plan.environment, RUN_LABEL: plan.run},
            },
            "data": data,
        });
        match cluster.create(&collection, &made).await {
            Err(error) if error.is_conflict() && tries < 3 => {}
            other => return other.map(|_| ()),
        }
    }
}

/// The entries that a ConfigMap of a run holds; none for those of the plan and the header. What cannot be read, or is of
/// no node of the run, is as good as not written: that node is open (ADR 0011).
pub(crate) fn read_entries(config_map: &Value, known: &BTreeSet<NodeId>) -> Vec<(NodeId, Entry)> {
    let name = config_map.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    if !name.starts_with("forge-run-") {
        return Vec::new();
    }
    let data = config_map.get("data").and_then(Value::as_object).into_iter().flatten();
    let entries = data.filter_map(|(key, text)| {
        let entry: Entry = serde_json::from_str(text.as_str()?).ok()?;
        (*key == entry_key(&entry.node) && known.contains(&entry.node)).then(|| (entry.node.clone(), entry))
    });
    entries.collect()
}

#[cfg(test)]
mod tests {
    use forge_core::gate::Wanted;
    use forge_core::run::{Ended, Verdict};
    use futures::FutureExt as _;

    use super::*;
    use crate::cluster::fake::{Fake, served};
    use crate::run::sample;

    /// Nodes that wait for the one before, each in a band of its own.
    fn plan(nodes: &[&str]) -> RunPlan {
        RunPlan { band: Some(1), ..sample::chain(nodes) }
    }

    const WAITS: &str = r#"{"type": "wait", "on": {"type": "application"}, "until": "2026-11-16T12:09:00Z"}"#;
    const FAILED: &str =
        r#"{"type": "failed", "class": "unhealthy", "why": {"type": "unhealthy", "health": "Degraded"}}"#;

    const PROVEN: &str = r#"{"type": "proven", "run": "r-1", "node": "argocd/db", "application": "argocd/db",
        "attempt": 1, "synced": true, "proof": "revision", "commit": null, "revisions": [], "render": null,
        "workloads": {}, "images": {}, "notRunning": [], "sidecars": {}, "objects": [], "health": "Healthy"}"#;

    fn entry_of(node: &str, decision: &str, since: &str) -> Entry {
        let text = format!(r#"{{"node": "argocd/{node}", "since": "{since}", "decision": {decision}, "asked": []}}"#);
        serde_json::from_str(&text).unwrap()
    }

    fn entry(decision: &str, since: &str) -> Entry {
        entry_of("db", decision, since)
    }

    fn id(node: &str) -> NodeId {
        format!("argocd/{node}").parse().unwrap()
    }

    fn recorder(nodes: &[&str]) -> Recorder {
        Recorder::new(None, Arc::new(plan(nodes)), BTreeMap::new())
    }

    #[tokio::test]
    async fn whoever_waits_for_a_node_is_woken_when_it_ends_and_by_nothing_else() {
        let recorder = recorder(&["db"]);
        let mut changes = recorder.changed[&id("db")].subscribe();
        let first = recorder.put(entry(WAITS, "2026-11-16T12:00:00Z"));
        assert!(changes.has_changed().unwrap());
        changes.borrow_and_update();
        assert_eq!(recorder.put(entry(WAITS, "2026-11-16T12:00:00Z")), first, "the same is not stored again");
        assert!(recorder.put(entry(WAITS, "2026-11-16T12:00:01Z")) > first);
        assert!(!changes.has_changed().unwrap(), "it wakes nobody while it waits");
        recorder.put(entry(FAILED, "2026-11-16T12:00:02Z"));
        assert!(changes.has_changed().unwrap());
    }

    #[tokio::test]
    async fn every_proof_that_is_withdrawn_is_counted_and_says_when() {
        let recorder = recorder(&["db"]);
        let deadline = "2026-11-16T13:00:00Z".parse().unwrap();
        recorder.put(entry(PROVEN, "2026-11-16T12:00:00Z"));
        for times in 1..=2 {
            recorder.withdraw(&id("db"), deadline).await;
            let mut open = recorder.entry(&id("db")).unwrap();
            assert_eq!((open.is_final(), open.withdrawn), (false, Some(Withdrawn { times, at: open.since })));
            // What is not proven has no proof to lose.
            recorder.withdraw(&id("db"), deadline).await;
            assert_eq!(recorder.entry(&id("db")).as_ref(), Some(&open));
            open.decision = entry(PROVEN, "2026-11-16T12:00:00Z").decision;
            recorder.put(open);
        }
    }

    #[tokio::test]
    async fn nothing_starts_of_a_run_that_was_stopped_or_has_ended_or_that_nobody_conducts() {
        let plan = Arc::new(plan(&["db"]));
        let mut header = Header::new(&plan, Timestamp::now());
        let record = |header: &Header, cancel: Option<&str>| {
            let text = serde_json::to_string(header).unwrap();
            let mut data = json!({HEADER_KEY: text});
            if let Some(by) = cancel {
                data[CANCEL_KEY] = json!(by);
            }
            json!({"metadata": {"name": record_name(&plan.run, 0)}, "data": data})
        };
        let (now, long_ago) = (Timestamp::now(), "2020-01-01T00:00:00Z".parse().unwrap());
        let (cluster, fake) = served(Fake::default()).await;
        let recorder = Recorder::new(Some((cluster, "argo".to_owned())), plan.clone(), BTreeMap::new());
        let put = |object: Value| fake.lock().unwrap().put(&path::config_maps("argo"), object);
        let renew = |run: &str, at: Timestamp| sample::put_lease(&mut fake.lock().unwrap(), run, at);
        renew("r-1", now);
        assert!(!recorder.may_start_now().await, "there is no header");
        put(record(&header, None));
        assert!(recorder.may_start_now().await);
        renew("r-1", long_ago);
        // Renewed between two looks, by a clock that is behind.
        assert!(recorder.may_start_now().await);
        renew("r-2", now);
        assert!(!recorder.may_start_now().await, "another run has the Lease");
        renew("", now);
        assert!(!recorder.may_start_now().await, "nobody has it");
        let late = Recorder::new(recorder.target.clone(), plan.clone(), BTreeMap::new());
        renew("r-1", long_ago);
        assert!(!late.may_start_now().await, "nobody renews it");
        renew("r-1", now);
        put(record(&header, Some("me")));
        assert!(!recorder.may_start_now().await, "somebody stopped it");
        header.ended = Some(Ended { at: Timestamp::now(), verdict: Verdict::Cancelled, message: None });
        put(record(&header, None));
        assert!(!recorder.may_start_now().await, "it has ended");
    }

    #[test]
    fn what_is_behind_a_failure_has_failed_although_nobody_asked_for_it() {
        let recorder = recorder(&["db", "api", "web"]);
        let wanted: BTreeMap<NodeId, Wanted> =
            recorder.plan.wanted().into_iter().map(|wanted| (wanted.node.clone(), wanted)).collect();
        let state = |node: &str| recorder.predecessors(&wanted[&id(node)].predecessors).into_values().next().unwrap();
        let (db, api) = (id("db"), id("api"));
        assert_eq!(state("web"), PredecessorState::Waiting);
        assert!(recorder.is_waited_for(&db, 0) && recorder.is_waited_for(&api, 0));
        // It was asked for once, and is not asked for again after what it waits for has failed.
        recorder.put(entry_of("api", WAITS, "2026-11-16T12:00:00Z"));
        assert!(recorder.is_waited_for(&api, 0));
        assert_eq!(state("web"), PredecessorState::Waiting);
        recorder.put(entry_of("db", FAILED, "2026-11-16T12:00:01Z"));
        assert_eq!((state("api"), state("web")), (PredecessorState::Failed, PredecessorState::Failed));
        assert!(!recorder.is_waited_for(&api, 0), "what has failed may concern whoever waits");
        assert!(recorder.is_waited_for(&api, recorder.failures()));
        assert!(!recorder.is_waited_for(&db, recorder.failures()));
        // Whoever starts again reads the same.
        let entries = recorder.lock().entries.clone();
        let again = Recorder::new(None, recorder.plan.clone(), entries);
        let web = again.predecessors(&wanted[&id("web")].predecessors);
        assert_eq!((web.into_values().next(), again.failures()), (Some(PredecessorState::Failed), 1));
    }

    #[test]
    fn how_a_node_ended_counts_for_others_when_it_is_stored() {
        let recorder = recorder(&["db", "api", "web"]);
        let wanted = recorder.plan.wanted();
        let state = |place: usize| recorder.predecessors(&wanted[place].predecessors).into_values().next().unwrap();
        recorder.lock().unstored.insert(id("db"));
        recorder.put(entry_of("db", FAILED, "2026-11-16T12:00:00Z"));
        assert_eq!(
            (state(1), state(2), recorder.failures()),
            (PredecessorState::Waiting, PredecessorState::Waiting, 0)
        );
        assert!(recorder.is_waited_for(&id("db"), 0));
        let mut stored = recorder.lock();
        stored.unstored.remove(&id("db"));
        stored.ends(&id("db"));
        drop(stored);
        assert_eq!((state(1), state(2), recorder.failures()), (PredecessorState::Failed, PredecessorState::Failed, 1));
    }

    #[test]
    fn a_run_is_over_when_all_its_nodes_have_ended() {
        let recorder = recorder(&["db", "api"]);
        recorder.put(entry_of("db", FAILED, "2026-11-16T12:00:00Z"));
        assert!(!recorder.is_over(), "nobody has asked for the other one");
        recorder.put(entry_of("api", WAITS, "2026-11-16T12:00:00Z"));
        assert!(!recorder.is_over());
        recorder.put(entry_of("api", FAILED, "2026-11-16T12:00:01Z"));
        assert!(recorder.is_over());
    }

    #[tokio::test]
    async fn a_band_opens_when_what_it_waits_for_begins_and_not_when_that_is_only_asked_for() {
        let recorder = recorder(&["db", "api", "web"]);
        let deadline = "2126-11-16T13:00:00Z".parse().unwrap();
        let opened = || [0, 1, 2].map(|band| recorder.opened(band, deadline).now_or_never().is_some());
        assert_eq!(opened(), [true, false, false]);
        assert_eq!(recorder.opened(3, deadline).await, None);
        let mut begins = recorder.begun.subscribe();
        recorder.put(entry_of("db", WAITS, "2026-11-16T12:00:00Z"));
        assert_eq!(opened(), [true, false, false]);
        assert!(!begins.has_changed().unwrap());
        let mut ready = entry_of("db", WAITS, "2026-11-16T12:00:00Z");
        ready.progress.ready_at = Some(ready.since);
        recorder.put(ready);
        assert!(begins.has_changed().unwrap());
        begins.borrow_and_update();
        assert_eq!(opened(), [true, true, false]);
        recorder.put(entry_of("api", WAITS, "2026-11-16T12:00:01Z"));
        assert_eq!(opened(), [true, true, false], "it is held, and has not begun");
        // Whoever starts again finds the same bands open.
        let entries = recorder.lock().entries.clone();
        assert_eq!(Recorder::new(None, recorder.plan.clone(), entries).lock().opened, BTreeSet::from([0, 1]));
        // What follows a failure is over before it began.
        recorder.put(entry_of("db", FAILED, "2026-11-16T12:00:02Z"));
        assert!(begins.has_changed().unwrap());
        assert_eq!(opened(), [true, true, true]);
    }

    #[tokio::test]
    async fn whoever_waits_for_a_node_hears_of_it_and_of_failures_and_of_nobody_else() {
        let recorder = recorder(&["db", "api", "web"]);
        let (db, api) = (id("db"), id("api"));
        let ends = recorder.changed[&api].subscribe();
        recorder.put(entry_of("db", PROVEN, "2026-11-16T12:00:00Z"));
        assert!(recorder.moves(&db, 0).now_or_never().is_some(), "what has changed is not waited for");
        assert!(!ends.has_changed().unwrap());
        assert!(recorder.moves(&api, 0).now_or_never().is_none());
        let fails = async { recorder.put(entry_of("web", FAILED, "2026-11-16T12:00:01Z")) };
        tokio::join!(recorder.moves(&api, 0), fails);
        assert!(ends.has_changed().unwrap(), "what has failed may concern whoever waits");
    }
}
