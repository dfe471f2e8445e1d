//! The proof of one node (SPEC section 6), kept as evidence.
//!
//! Holds only what was observed, in a fixed order: two proofs of the same state are the same bytes (INV-9).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::digest::{CommitId, Digest};
use crate::gate::nonce::RunId;
use crate::gate::observed::{ApplicationState, Health, RenderReceipt, Tree};
use crate::gate::wanted::{ContainerKey, Content, ObjectRef, Wanted};
use crate::name::{ApplicationId, NodeId};

/// What the proof rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Proof {
    /// The node has no release: its revision is all that could be compared.
    Revision,
    /// What was rendered, and the images that run, were compared with the release by their digests.
    #[serde(alias = "images")]
    Digest,
}

/// The proof of one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Receipt {
    /// The run.
    pub run: RunId,
    /// The node.
    pub node: NodeId,
    /// Its Application.
    pub application: ApplicationId,
    /// The attempt of ours that succeeded; absent when nothing had to change.
    pub attempt: Option<u32>,
    /// A sync of ours took place.
    pub synced: bool,
    /// What it rests on.
    pub proof: Proof,
    /// The commit that the revision contains, for Git and releases.
    pub commit: Option<CommitId>,
    /// The revisions that Argo CD compared with.
    pub revisions: Vec<String>,
    /// What the plugin rendered, for releases.
    pub render: Option<RenderReceipt>,
    /// Generations that the controllers have caught up with.
    pub workloads: BTreeMap<String, i64>,
    /// Images that run and were compared.
    pub images: BTreeMap<ContainerKey, Digest>,
    /// Containers that the release names and that were not running, so nothing was compared (scaled to zero, jobs).
    pub not_running: BTreeSet<ContainerKey>,
    /// Running containers that the release does not name: listed, not compared.
    pub sidecars: BTreeMap<ContainerKey, BTreeSet<Digest>>,
    /// Objects that exist and hold.
    pub objects: BTreeSet<ObjectRef>,
    /// Argo CD's health; never anything else than Healthy.
    pub health: Health,
}

impl Receipt {
    /// Writes down a state of which everything was found to hold.
    pub(super) fn new(wanted: &Wanted, state: &ApplicationState, tree: &Tree, attempt: Option<u32>) -> Self {
        let (commit, render) = match &wanted.content {
            Content::Git { commit } => (Some(commit.clone()), None),
            Content::Revisions { .. } => (None, None),
            Content::Release { commit, .. } => (Some(commit.clone()), state.render.clone()),
        };
        let mut images = BTreeMap::new();
        let mut sidecars: BTreeMap<ContainerKey, BTreeSet<Digest>> = BTreeMap::new();
        for container in tree.containers.iter().filter(|c| c.running) {
            match (wanted.images.contains_key(&container.key), &container.image) {
                (true, Some(image)) => {
                    images.insert(container.key.clone(), image.clone());
                }
                (true, None) => {}
                (false, image) => sidecars.entry(container.key.clone()).or_default().extend(image.clone()),
            }
        }
        let rules = wanted.health.iter().map(|rule| &rule.object);
        let by_digest = matches!(wanted.content, Content::Release { .. }) || !wanted.images.is_empty();
        Self {
            run: wanted.run.clone(),
            node: wanted.node.clone(),
            application: wanted.application.clone(),
            attempt,
            synced: attempt.is_some(),
            proof: if by_digest { Proof::Digest } else { Proof::Revision },
            commit,
            revisions: state.revisions.clone(),
            render,
            workloads: tree.workloads.iter().map(|w| (w.id.clone(), w.generation)).collect(),
            not_running: wanted.images.keys().filter(|key| !images.contains_key(*key)).cloned().collect(),
            images,
            sidecars,
            objects: wanted.requires.iter().chain(rules).cloned().collect(),
            health: state.health,
        }
    }
}
