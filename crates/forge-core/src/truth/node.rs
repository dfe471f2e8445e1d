//! One node: through the gate (SPEC.md section 6), which is asked again as if what it said were put right until it has nothing
//! more to say, so that everything that is wrong is told and not the first thing; then what the gate does not look at.
//!
//! The gate gives everything a time. A validation has none of its own, so what counts is how long nothing has changed: what
//! does not hold although everything had its time has failed, and what changed a moment ago may still come right.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::cause::Cause;
use super::live;
use crate::code::Code;
use crate::duration::Duration;
use crate::gate::{
    ApplicationState, ContainerKey, Content, Decision, Folder, GitContent, Health, LiveObject, ObjectRef, Observed,
    PredecessorState, Progress, Receipt, SyncState, Tree, WaitingFor, Wanted, Why, decide,
};
use crate::preflight::Looked;
use crate::view::{ApplicationFacts, between};

/// The gate names one thing at a time; more than this many are wrong with no node that anybody would read about.
const MOST: usize = 25;

/// What was read of a node.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeFacts {
    /// What it must be.
    pub wanted: Wanted,
    /// Its Application; nothing where there is none.
    pub application: Looked<Option<LiveApplication>>,
    /// Codes of rules that the repository allows in the folder of the node.
    pub allowed: BTreeSet<Code>,
}

/// An Application, as Argo CD last wrote it, and what lives below it.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveApplication {
    /// What Argo CD says.
    pub facts: ApplicationFacts,
    /// The same for the gate, as if it were fresh: how old it is, is judged apart. Without a tree.
    pub state: ApplicationState,
    /// Workloads and containers. Objects that the node requires are not in it: whoever may not see pods may see those.
    pub tree: Looked<Tree>,
    /// Objects that the node requires or has rules for, as far as they were read.
    pub required: Vec<LiveObject>,
    /// Objects that Argo CD calls Synced and that are not in the cluster.
    pub vanished: Vec<ObjectRef>,
    /// Live objects that are judged by rules: the Application itself, and its members.
    pub objects: Vec<LiveManifest>,
    /// What of it could not be read, and why.
    pub unread: Vec<Unread>,
}

/// A live object.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveManifest {
    /// `Kind/namespace/name`.
    pub id: String,
    /// As the API server gives it, with its kind.
    pub value: serde_json::Value,
}

/// Something that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unread {
    /// What.
    pub what: String,
    /// Why.
    pub why: String,
    /// The object that the node requires, if it is one.
    pub object: Option<ObjectRef>,
}

/// What is wrong with a node, and the proof that the gate gave where nothing is.
pub(super) fn judged(node: &NodeFacts, stale_after: Duration, now: Timestamp) -> (Vec<Cause>, Option<Receipt>) {
    let application = match &node.application {
        Looked::NotPermitted(why) | Looked::Failed(why) => {
            let what = format!("Application {}", node.wanted.application);
            return (vec![Cause::NotRead { what, why: why.clone() }], None);
        }
        Looked::Saw(application) => application.as_ref(),
    };
    let (mut causes, receipt) = gate(&node.wanted, application, now);
    let Some(application) = application else { return (causes, None) };
    if let Some(since) = application.facts.deleting {
        let age = between(since, now);
        causes.push(Cause::Going { age, settled: age > node.wanted.timeouts.sync });
    }
    for object in &application.vanished {
        let cause = vanished(object.clone(), between(changed(application), now) < node.wanted.timeouts.health);
        // Perhaps the node requires it.
        if !causes.contains(&cause) {
            causes.push(cause);
        }
    }
    if application.facts.is_stale(now, stale_after) {
        let age = application.facts.compared.map(|compared| between(compared, now));
        causes.push(Cause::NotCompared { age, limit: stale_after });
    }
    causes.extend(live::digests(&node.wanted, application));
    causes.extend(live::claims(&node.wanted.application, &application.objects));
    causes.extend(live::rules(&application.objects));
    let unread = application.unread.iter();
    causes.extend(unread.map(|unread| Cause::NotRead { what: unread.what.clone(), why: unread.why.clone() }));
    let receipt = receipt.filter(|_| causes.is_empty());
    (causes, receipt)
}

/// Argo CD has not noticed yet, or notices nothing any more. What changed a moment ago may have been pruned.
fn vanished(object: ObjectRef, lately: bool) -> Cause {
    if lately {
        Cause::Waits(WaitingFor::Object { object, read: true })
    } else {
        Cause::Failed(Why::MissingObject { object })
    }
}

/// What is put right before the gate is asked again.
enum Mended {
    /// Nothing can be: what follows would rest on what is not there.
    Nothing,
    Operation,
    Sync,
    Render,
    Content,
    Health,
    /// What runs is not known: what else was read is judged all the same.
    Tree,
    Workload(String),
    Container(ContainerKey),
    Object(ObjectRef),
}

fn gate(wanted: &Wanted, application: Option<&LiveApplication>, now: Timestamp) -> (Vec<Cause>, Option<Receipt>) {
    let mut wanted = wanted.clone();
    // Of what could not be read nobody can say that it is missing.
    let unread: Vec<&ObjectRef> =
        application.iter().flat_map(|application| &application.unread).filter_map(|one| one.object.as_ref()).collect();
    wanted.requires.retain(|object| !unread.contains(&object));
    wanted.health.retain(|rule| !unread.contains(&&rule.object));
    let mut observed = observed(&wanted, application);
    let mut causes = Vec::new();
    let mut unwell = false;
    for _ in 0..MOST {
        let (cause, mended) = match decide(&wanted, &observed, now) {
            Decision::Proven(receipt) => return (causes, Some(*receipt)),
            // The gate says so of nothing that is to be there.
            Decision::Gone(_) => return (causes, None),
            Decision::Failed(failure) => failed(failure.why, application, now),
            Decision::Wait(wait) => waits(wait.on, &observed, application),
        };
        // That it does not stay well goes without saying of what is not well.
        let flaps = matches!(cause, Cause::Failed(Why::Flapping { .. }) | Cause::Waits(WaitingFor::Settling { .. }));
        if unwell && flaps {
            break;
        }
        unwell |= matches!(mended, Mended::Health);
        causes.push(cause);
        match (mended, observed.application.as_mut()) {
            (Mended::Nothing, _) | (_, None) => break,
            (Mended::Operation, Some(state)) => state.operation = None,
            (Mended::Sync, Some(state)) => {
                state.sync = SyncState::Synced;
                not_yet(&mut wanted, state);
            }
            (Mended::Render, Some(_)) => {
                if let Content::Release { commit, .. } = &wanted.content {
                    wanted.content = Content::Git { commit: commit.clone() };
                }
            }
            (Mended::Content, Some(state)) => {
                state.git = Some(GitContent { contains_commit: true, folder: Folder::Same, error: None });
                not_yet(&mut wanted, state);
            }
            (Mended::Health, Some(state)) => state.health = Health::Healthy,
            (Mended::Tree, Some(state)) => {
                let objects = application.map(|application| application.required.clone()).unwrap_or_default();
                let read = |object: &ObjectRef| objects.iter().any(|live| live.object == *object);
                wanted.requires.retain(read);
                wanted.health.retain(|rule| read(&rule.object));
                state.tree = Some(Tree { objects, ..Tree::default() });
            }
            (Mended::Workload(id), Some(state)) => {
                if let Some(tree) = &mut state.tree {
                    tree.workloads.retain(|workload| workload.id != id);
                }
            }
            (Mended::Container(key), Some(_)) => {
                wanted.images.remove(&key);
            }
            (Mended::Object(object), Some(_)) => {
                wanted.requires.retain(|required| *required != object);
                wanted.health.retain(|rule| rule.object != object);
            }
        }
    }
    (causes, None)
}

/// A release that was not deployed yet was not rendered either, and has other images than those that run: that follows, and
/// is not told again.
fn not_yet(wanted: &mut Wanted, state: &ApplicationState) {
    let Content::Release { commit, digest, .. } = &wanted.content else { return };
    if state.render.as_ref().is_none_or(|render| render.release != *digest) {
        wanted.content = Content::Git { commit: commit.clone() };
        wanted.images.clear();
    }
}

fn observed(wanted: &Wanted, application: Option<&LiveApplication>) -> Observed {
    let proven = |node: &crate::name::NodeId| (node.clone(), PredecessorState::Proven);
    let state = application.map(|application| {
        let mut state = application.state.clone();
        state.tree = application.tree.saw().map(|tree| Tree { objects: application.required.clone(), ..tree.clone() });
        // Whoever asked for it, it is not ours: nothing runs for us.
        if let Some(operation) = &mut state.operation {
            operation.nonce = None;
        }
        state
    });
    let syncing = application.and_then(|application| application.facts.syncing);
    Observed {
        // What follows from what others are is theirs.
        predecessors: wanted.predecessors.iter().map(proven).collect(),
        deadline: Timestamp::MAX,
        progress: Progress {
            // Nothing is asked for here: what was rendered is what counts.
            rendered_anew_at: Some(Timestamp::UNIX_EPOCH),
            ready_at: Some(application.map_or(Timestamp::UNIX_EPOCH, changed)),
            // Since when it is missing nobody knows.
            absent_since: application.is_none().then_some(Timestamp::UNIX_EPOCH),
            healthy_since: application.and_then(healthy_since),
            // A sync that does not end is no progress: it has the time that a run gives it, and that of being told to end.
            foreign_since: syncing,
            terminated_at: syncing,
            ..Progress::default()
        },
        application: state,
    }
}

/// When something last changed, as far as is known; long ago where nothing is known.
fn changed(application: &LiveApplication) -> Timestamp {
    let containers = application.tree.saw().into_iter().flat_map(|tree| &tree.containers);
    let restarted = containers.filter(|container| container.running && container.restarts > 0);
    let restarted = restarted.filter_map(|container| container.started).max();
    application.facts.changed.into_iter().chain(restarted).max().unwrap_or(Timestamp::UNIX_EPOCH)
}

fn healthy_since(application: &LiveApplication) -> Option<Timestamp> {
    application.facts.since.filter(|_| application.state.health == Health::Healthy)
}

fn failed(why: Why, application: Option<&LiveApplication>, now: Timestamp) -> (Cause, Mended) {
    match why {
        Why::ForeignOperation => {
            let age = application.and_then(|application| application.facts.syncing).map(|since| between(since, now));
            (Cause::SyncHangs { by: asked_for(application), age: age.unwrap_or_default() }, Mended::Operation)
        }
        Why::CommitMissing { commit } => (Cause::OldCommit { commit }, Mended::Content),
        Why::FolderMoved => (Cause::LaterCommit, Mended::Content),
        Why::RepositoryUnread { message } => (unread_repository(message), Mended::Content),
        Why::NotRendered { .. } => (Cause::Failed(why), Mended::Render),
        Why::Unhealthy { .. } => (Cause::Failed(why), Mended::Health),
        Why::StaleGeneration { ref workload } => {
            let workload = workload.clone();
            (Cause::Failed(why), Mended::Workload(workload))
        }
        Why::WrongImage { ref container, .. } => {
            let container = container.clone();
            (Cause::Failed(why), Mended::Container(container))
        }
        Why::MissingObject { ref object } | Why::RuleUnmet { ref object, .. } | Why::RuleBroken { ref object, .. } => {
            let object = object.clone();
            (Cause::Failed(why), Mended::Object(object))
        }
        other => (Cause::Failed(other), Mended::Nothing),
    }
}

fn waits(on: WaitingFor, observed: &Observed, application: Option<&LiveApplication>) -> (Cause, Mended) {
    match on {
        WaitingFor::ForeignOperation
        | WaitingFor::ForeignTermination { .. }
        | WaitingFor::SyncStart { .. }
        | WaitingFor::Operation { .. }
        | WaitingFor::Backoff { .. } => (Cause::Syncing { by: asked_for(application) }, Mended::Operation),
        WaitingFor::SyncRequest { .. } => wants_a_sync(observed, application),
        WaitingFor::Commit { commit } => (Cause::OldCommit { commit }, Mended::Content),
        WaitingFor::Repository { .. } => {
            let git = observed.application.as_ref().and_then(|state| state.git.as_ref());
            let message = git.and_then(|git| git.error.clone()).unwrap_or_default();
            (unread_repository(message), Mended::Content)
        }
        WaitingFor::Tree => {
            let why = match application.map(|application| &application.tree) {
                Some(Looked::NotPermitted(why) | Looked::Failed(why)) => why.clone(),
                _ => String::new(),
            };
            (Cause::NotRead { what: "what runs of it".to_owned(), why }, Mended::Tree)
        }
        WaitingFor::Health { .. } => (Cause::Waits(on), Mended::Health),
        WaitingFor::Generation { ref workload } => {
            let workload = workload.clone();
            (Cause::Waits(on), Mended::Workload(workload))
        }
        WaitingFor::Image { ref container } => {
            let container = container.clone();
            (Cause::Waits(on), Mended::Container(container))
        }
        WaitingFor::Object { ref object, .. } | WaitingFor::Rule { ref object, .. } => {
            let object = object.clone();
            (Cause::Waits(on), Mended::Object(object))
        }
        other => (Cause::Waits(other), Mended::Nothing),
    }
}

/// Who asked for the operation that runs.
fn asked_for(application: Option<&LiveApplication>) -> String {
    let by = application.and_then(|application| application.facts.operation.clone());
    by.unwrap_or_else(|| "asked for by somebody".to_owned())
}

/// Only a sync would bring it about: because the last one failed, or because something differs.
fn wants_a_sync(observed: &Observed, application: Option<&LiveApplication>) -> (Cause, Mended) {
    let state = observed.application.as_ref();
    let sync = state.map_or(SyncState::Unknown, |state| state.sync);
    let last = state.and_then(|state| state.operation.as_ref()).filter(|operation| operation.phase.is_failed());
    if let Some(operation) = last {
        let (message, in_sync) = (operation.message.clone(), sync == SyncState::Synced);
        return (Cause::SyncFailed { message, in_sync }, Mended::Operation);
    }
    match sync {
        SyncState::Unknown => {
            let why = "Argo CD says Unknown".to_owned();
            (Cause::NotRead { what: "whether it is what Git says".to_owned(), why }, Mended::Sync)
        }
        SyncState::Synced | SyncState::OutOfSync => {
            let resources = application.map(|application| application.facts.differs.clone()).unwrap_or_default();
            (Cause::Drift { resources }, Mended::Sync)
        }
    }
}

fn unread_repository(why: String) -> Cause {
    Cause::NotRead { what: "what the repository holds at the revision that Argo CD compared with".to_owned(), why }
}
