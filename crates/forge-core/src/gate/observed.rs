//! What was seen of a node, and the few times that must outlive a process (SPEC section 6).
//!
//! The caller reads; [`remember`] says which times to store. Times that Argo CD writes appear nowhere: they have a
//! resolution of a second and prove nothing.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::gate::nonce::Nonce;
use crate::gate::wanted::{ContainerKey, ObjectRef, Wanted};
use crate::name::NodeId;

/// Everything that a decision rests on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Observed {
    /// A predecessor that is not listed counts as waiting.
    #[serde(default)]
    pub predecessors: BTreeMap<NodeId, PredecessorState>,
    /// When the whole run gives up.
    pub deadline: Timestamp,
    /// Stored times.
    #[serde(default)]
    pub progress: Progress,
    /// Absent when there is no such Application.
    pub application: Option<ApplicationState>,
}

/// How far a predecessor got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PredecessorState {
    /// It has a receipt of this run.
    Proven,
    /// Neither proven nor failed.
    Waiting,
    /// It failed, or is blocked by one that did.
    Failed,
}

/// Times that the caller stores between decisions. [`remember`] fills in all but the three that record acts:
/// `sync_requested` after [`super::Act::RequestSync`], `terminated_at` after [`super::Act::TerminateForeign`] and
/// `rendered_anew_at` when what [`super::WaitingFor::Render`] asks for was answered.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Progress {
    /// When every predecessor was first seen proven.
    pub ready_at: Option<Timestamp>,
    /// Our newest request.
    pub sync_requested: Option<SyncRequested>,
    /// When the newest attempt was first seen failed or overtaken.
    pub attempt_failed_at: Option<Timestamp>,
    /// When the newest attempt was first seen succeeded.
    pub operation_finished_seen_at: Option<Timestamp>,
    /// Since when an operation of somebody else runs, from the moment on at which the node became ready.
    pub foreign_since: Option<Timestamp>,
    /// One was seen since the node became ready: state that it left behind does not pass without a sync of ours.
    #[serde(default)]
    pub foreign_seen: bool,
    /// When we asked for its end.
    pub terminated_at: Option<Timestamp>,
    /// Since when there is no such Application, from the moment on at which the node became ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent_since: Option<Timestamp>,
    /// When Argo CD had rendered anew, past everything that it keeps, because what it showed was not rendered of the wanted
    /// release. That is asked for once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rendered_anew_at: Option<Timestamp>,
    /// Since when it is Healthy without a break, as far as was seen since the node became ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthy_since: Option<Timestamp>,
    /// How often it was Healthy and then was not.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub falls: u32,
    /// Why Argo CD refused our newest request, where it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

impl Progress {
    /// Our newest sync was asked for before Argo CD had rendered anew: what it brought is not what counts, and one more is due.
    pub fn is_synced_before_rendered(&self) -> bool {
        let anew = self.rendered_anew_at.zip(self.sync_requested);
        anew.is_some_and(|(anew, request)| request.at < anew)
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// A request of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SyncRequested {
    /// Counted from 1.
    pub attempt: u32,
    /// When it was sent.
    pub at: Timestamp,
}

/// An Argo CD Application.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApplicationState {
    /// `.operation` where there is one, else `.status.operationState`; absent for a moment after every request.
    pub operation: Option<Operation>,
    /// Whether what follows is new enough to count.
    pub refresh: Freshness,
    /// When the comparison that is waited for was asked for: no answer can be older than that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_asked_at: Option<Timestamp>,
    /// `.status.sync.status`.
    pub sync: SyncState,
    /// `.status.health.status`.
    pub health: Health,
    /// The resource behind that health, where it is not Healthy and Argo CD names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unwell: Option<Unwell>,
    /// Comparison errors.
    #[serde(default)]
    pub conditions: Vec<String>,
    /// How many resources it manages.
    pub resources: usize,
    /// One per source.
    #[serde(default)]
    pub revisions: Vec<String>,
    /// What the repository says about the revision; absent until read.
    pub git: Option<GitContent>,
    /// The ConfigMap `forge-receipt`, where it exists.
    pub render: Option<RenderReceipt>,
    /// It was not looked for yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub render_unread: bool,
    /// Workloads, containers and objects; absent until read.
    pub tree: Option<Tree>,
}

/// The resource behind an Application's health. What is said of it is for people: no decision rests on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Unwell {
    /// `Kind/namespace/name`.
    pub resource: String,
    /// What Argo CD says about it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// An operation of Argo CD.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Operation {
    /// Absent when nothing of the sort was found in its infos.
    pub nonce: Option<Nonce>,
    /// How far it is.
    pub phase: Phase,
    /// What Argo CD says about it.
    #[serde(default)]
    pub message: String,
}

/// Argo CD's phases of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "Argo CD's words in Argo CD's meaning")]
pub enum Phase {
    Running,
    Terminating,
    Succeeded,
    Failed,
    Error,
}

impl Phase {
    /// It still occupies the Application.
    pub fn is_running(self) -> bool {
        matches!(self, Self::Running | Self::Terminating)
    }

    /// It ended badly.
    pub fn is_failed(self) -> bool {
        matches!(self, Self::Failed | Self::Error)
    }
}

/// Whether a refresh stands between the last operation and what was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Freshness {
    /// Nobody asked yet.
    NotAsked,
    /// Asked; the annotation is still there.
    Asked,
    /// Asked after our operation was seen finished (or after the node became ready, where there is none of ours),
    /// answered since, and everything else was read after the answer.
    Answered,
}

/// `.status.sync.status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "Argo CD's words in Argo CD's meaning")]
pub enum SyncState {
    Synced,
    OutOfSync,
    Unknown,
}

/// `.status.health.status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "Argo CD's words in Argo CD's meaning")]
pub enum Health {
    Healthy,
    Progressing,
    Degraded,
    Suspended,
    Missing,
    Unknown,
}

impl fmt::Display for SyncState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What the repository, read by ourselves, says about the revision that Argo CD compared with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GitContent {
    /// The run's commit is that revision or an ancestor of it.
    pub contains_commit: bool,
    /// The node's folder, compared with the run's commit.
    pub folder: Folder,
    /// Why the repository could not be read, where it could not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A folder at two commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Folder {
    /// Byte for byte.
    Same,
    /// Somebody moved it on.
    Changed,
    /// Could not be read.
    Unknown,
}

/// What the plugin says it rendered (SPEC section 8).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RenderReceipt {
    /// Hash of the pointer's content.
    pub pointer: Digest,
    /// The release.
    pub release: Digest,
    /// Hash of the output.
    pub output: Digest,
}

impl RenderReceipt {
    /// Reads the ConfigMap that the plugin adds to what it renders; nothing where it does not say what was rendered.
    pub fn read(config_map: &serde_json::Value) -> Option<Self> {
        let said = |key: &str| config_map.get("data")?.get(key)?.as_str()?.parse().ok();
        Some(Self { pointer: said("pointer")?, release: said("release")?, output: said("output")? })
    }
}

/// What lives below the Application.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Tree {
    /// Only kinds that have an observedGeneration.
    #[serde(default)]
    pub workloads: Vec<Workload>,
    /// Of all pods; a container of several pods appears several times.
    #[serde(default)]
    pub containers: Vec<Container>,
    /// The objects that the node requires or has rules for; one that is not listed was not read yet.
    #[serde(default)]
    pub objects: Vec<LiveObject>,
}

impl Tree {
    /// Whether a container was started again after this moment, or has crashed and is not even started again. Within the
    /// second of the moment nobody can tell.
    pub fn restarted_after(&self, moment: Timestamp) -> bool {
        let again = self.containers.iter().filter(|container| container.running && container.restarts > 0);
        self.crashes() || again.filter_map(|container| container.started).any(|started| started > moment)
    }

    /// How often the container was started again that was most often, of those that run or are held back.
    pub fn restarts(&self) -> u32 {
        let there = self.containers.iter().filter(|container| container.running || container.held_back);
        there.map(|container| container.restarts).max().unwrap_or(0)
    }

    /// Whether a container crashes so often that Kubernetes holds it back.
    pub fn crashes(&self) -> bool {
        self.containers.iter().any(|container| container.held_back)
    }
}

/// A workload and its controller's answer to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Workload {
    /// `Kind/namespace/name`.
    pub id: String,
    /// `.metadata.generation`.
    pub generation: i64,
    /// `.status.observedGeneration`.
    pub observed_generation: Option<i64>,
}

/// A container of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Container {
    /// Which one.
    pub key: ContainerKey,
    /// Only running ones are compared.
    pub running: bool,
    /// From the imageID in the pod's status, never from its spec.
    pub image: Option<Digest>,
    /// How often it was started again, the last time not long ago; of one that is held back, ever.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub restarts: u32,
    /// It has crashed, and Kubernetes waits before it starts it again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held_back: bool,
    /// When it was started last, to the second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
}

/// An object that was looked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LiveObject {
    /// Which one.
    pub object: ObjectRef,
    /// Absent when it does not exist.
    pub value: Option<serde_json::Value>,
}

/// Whose the operation is that the Application shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner<'a> {
    /// None, or one of ours that is older than our newest request: what was asked for does not show yet.
    Nobody,
    /// The newest attempt of ours.
    Ours(&'a Operation, u32),
    /// Of another run, of Argo CD itself, of a person.
    Foreign(&'a Operation),
}

/// Says whose operation it is, seen from the newest request.
pub(super) fn owner<'a>(wanted: &Wanted, observed: &'a Observed) -> Owner<'a> {
    let Some(operation) = observed.application.as_ref().and_then(|a| a.operation.as_ref()) else {
        return Owner::Nobody;
    };
    match &operation.nonce {
        Some(nonce) if nonce.is_of(&wanted.run, &wanted.node) => {
            let newest = observed.progress.sync_requested.map_or(0, |request| request.attempt);
            if nonce.attempt < newest { Owner::Nobody } else { Owner::Ours(operation, nonce.attempt) }
        }
        _ => Owner::Foreign(operation),
    }
}

/// The stored times, brought up to date with what is seen now: the caller stores the result before it acts.
///
/// [`super::decide`] applies it first, so a time that is not stored yet counts as `now`; a caller that never stores it
/// waits for ever. Applying it twice changes nothing.
pub fn remember(wanted: &Wanted, observed: &Observed, now: Timestamp) -> Progress {
    let mut progress = observed.progress.clone();
    let proven = |node| observed.predecessors.get(node) == Some(&PredecessorState::Proven);
    if progress.ready_at.is_none() && wanted.predecessors.iter().all(proven) {
        progress.ready_at = Some(now);
    }
    // One that was there and is gone for a moment has its time from then on.
    let absent = observed.application.is_none() && progress.ready_at.is_some();
    progress.absent_since = absent.then_some(progress.absent_since.unwrap_or(now));
    let owner = owner(wanted, observed);
    match owner {
        Owner::Foreign(operation) if operation.phase.is_running() => {
            // A node may be asked for long before it is ready: until then others may do as they like.
            if progress.ready_at.is_some() {
                progress.foreign_since.get_or_insert(now);
                progress.foreign_seen = true;
            }
        }
        _ => {
            progress.foreign_since = None;
            progress.terminated_at = None;
        }
    }
    // An attempt that is not stored was asked for by a process that died before it could: adopt it.
    if let Owner::Ours(_, attempt) = owner
        && progress.sync_requested.is_none_or(|request| request.attempt < attempt)
    {
        progress.sync_requested = Some(SyncRequested { attempt, at: now });
    }
    // Only state that is new enough tells of health; an older one may be left over from before the sync.
    if let Some(application) = observed.application.as_ref().filter(|a| a.refresh == Freshness::Answered) {
        match (application.health == Health::Healthy, progress.healthy_since) {
            (true, None) => progress.healthy_since = Some(now),
            (false, Some(_)) => {
                progress.healthy_since = None;
                progress.falls = progress.falls.saturating_add(1);
            }
            _ => {}
        }
    }
    let newest = |time: &Timestamp| progress.sync_requested.is_none_or(|request| *time >= request.at);
    let succeeded = matches!(owner, Owner::Ours(operation, _) if operation.phase == Phase::Succeeded);
    let failed = match owner {
        Owner::Ours(operation, _) => operation.phase.is_failed(),
        Owner::Foreign(operation) => progress.sync_requested.is_some() && !operation.phase.is_running(),
        Owner::Nobody => false,
    };
    // A clock that runs behind the one that stored the request must not make each look the first.
    let first = progress.sync_requested.map_or(now, |request| now.max(request.at));
    let kept = progress.operation_finished_seen_at.filter(newest).unwrap_or(first);
    progress.operation_finished_seen_at = succeeded.then_some(kept);
    let kept = progress.attempt_failed_at.filter(newest).unwrap_or(first);
    progress.attempt_failed_at = failed.then_some(kept);
    progress
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_is_read_as_the_plugin_writes_it_and_half_of_one_is_none() {
        let digest = |text: &str| Digest::of(text.as_bytes());
        let wanted = RenderReceipt { pointer: digest("p"), release: digest("r"), output: digest("o") };
        let mut written = crate::release::receipt(&wanted.pointer, &wanted.release, &wanted.output).value;
        assert_eq!(RenderReceipt::read(&written), Some(wanted));
        written["data"]["output"] = "sha256:0".into();
        assert_eq!(RenderReceipt::read(&written), None);
        assert_eq!(RenderReceipt::read(&serde_json::json!({"data": null})), None);
    }

    #[test]
    fn a_restart_counts_only_after_the_second_of_the_moment_and_only_of_what_runs() {
        let moment: Timestamp = "2026-01-01T12:00:00.400Z".parse().unwrap();
        let container = |restarts, running, started: &str| Container {
            key: ContainerKey::new("Deployment/web", "web").unwrap(),
            running,
            image: None,
            restarts,
            held_back: false,
            started: Some(started.parse().unwrap()),
        };
        for (container, wanted) in [
            (container(1, true, "2026-01-01T12:00:01Z"), true),
            (container(1, true, "2026-01-01T12:00:00Z"), false),
            (container(0, true, "2026-01-01T12:00:03Z"), false),
            (container(1, false, "2026-01-01T12:00:03Z"), false),
        ] {
            let tree = Tree { containers: vec![container], ..Tree::default() };
            assert_eq!(tree.restarted_after(moment), wanted, "{tree:?}");
        }
        // What the gate holds for settled does not contradict a proof of that moment, and what it does not hold for settled does.
        for (started, contradicts) in [("2026-01-01T11:59:45Z", false), ("2026-01-01T11:59:46Z", true)] {
            let tree = Tree { containers: vec![container(1, true, started)], ..Tree::default() };
            assert_eq!(tree.restarted_after(crate::gate::settled_before(moment)), contradicts, "{started}");
        }
        let held_back = Container { held_back: true, ..container(4, false, "2026-01-01T11:00:00Z") };
        let gone = container(9, false, "2026-01-01T11:00:00Z");
        let running = container(2, true, "2026-01-01T11:00:00Z");
        let tree = Tree { containers: vec![gone, running, held_back], ..Tree::default() };
        assert!(tree.restarted_after(moment));
        assert_eq!((tree.restarts(), Tree::default().restarts()), (4, 0));
    }
}
