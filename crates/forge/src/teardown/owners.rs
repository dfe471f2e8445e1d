//! Whose a claim is that belongs to something: what that belongs to is read, step by step, until something is a node's or somebody
//! else's. An operator may have made the owner after the run was planned, so that no plan has it. What cannot be followed to its
//! end is not known, which is neither (INV-11). Reads only.

use std::collections::{BTreeMap, BTreeSet};

use forge_core::failure::Failure;
use forge_core::teardown::{Claimants, Member, Word};
use serde_json::Value;

use super::{Teardown, uid_of};
use crate::cluster::{ClusterError, escaped, path};

/// How far up owners are followed.
const STEPS: usize = 8;
/// How many owners are read in one look, of all claims together.
const MOST: usize = 1000;

/// Whose a claim is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Whose {
    /// A node's.
    Own,
    /// Somebody else's.
    Theirs,
    /// Not known, and why.
    Unknown(String),
}

/// What was read in one look, by identity: many claims belong to the same. Or why it was not.
#[derive(Default)]
pub(super) struct Owners {
    read: BTreeMap<String, Result<Value, String>>,
    /// Kinds were asked for anew.
    fresh: bool,
}

impl Teardown<'_> {
    /// Whose a claim is. One of several owners that is a node's is enough, as it is for whatever else nodes have made.
    ///
    /// # Errors
    /// When the cluster does not answer.
    pub(super) async fn whose(&self, own: &Claimants, claim: &Value, known: &mut Owners) -> Result<Whose, Failure> {
        let mut open = match own.of_claim(claim) {
            Word::Own => return Ok(Whose::Own),
            Word::Theirs => return Ok(Whose::Theirs),
            Word::Of(owners) => owners,
        };
        let (mut seen, mut unknown): (BTreeSet<Option<String>>, Option<String>) = (BTreeSet::new(), None);
        for _ in 0..STEPS {
            let mut above = Vec::new();
            for owner in open.iter().filter(|owner| seen.insert(owner.uid.clone())) {
                match self.owner(owner, known).await? {
                    Err(why) => unknown = unknown.or(Some(why)),
                    Ok(live) => match own.of_owner(&live) {
                        Word::Own => return Ok(Whose::Own),
                        Word::Theirs => {}
                        Word::Of(owners) => above.extend(owners),
                    },
                }
            }
            if above.is_empty() {
                return Ok(unknown.map_or(Whose::Theirs, Whose::Unknown));
            }
            open = above;
        }
        Ok(Whose::Unknown(format!("its owners have owners, more than {STEPS} times over")))
    }

    /// An owner, or why it is not known.
    async fn owner(&self, owner: &Member, known: &mut Owners) -> Result<Result<Value, String>, Failure> {
        let uid = owner.uid.clone().unwrap_or_default();
        if let Some(read) = known.read.get(&uid) {
            return Ok(read.clone());
        }
        if known.read.len() >= MOST {
            return Ok(Err(format!("{owner} was not read: {MOST} others were")));
        }
        let read = match self.live_owner(owner, known).await {
            Ok(Some(live)) if uid_of(&live) == uid => Ok(live),
            Ok(_) => Err(format!("{owner} is not there")),
            Err(error @ ClusterError::Unreachable(_)) => return Err(error.into()),
            // Also what is said to pass: a webhook that converts it, or the server of its kind, may have gone for good.
            Err(error) => Err(format!("{owner} could not be read: {error}")),
        };
        known.read.insert(uid, read.clone());
        Ok(read)
    }

    async fn live_owner(&self, owner: &Member, known: &mut Owners) -> Result<Option<Value>, ClusterError> {
        let mut place = self.kinds.place(owner).await?;
        // Its kind may have come since others of its group were asked for.
        if place.is_none() && !std::mem::replace(&mut known.fresh, true) {
            self.kinds.forget().await;
            place = self.kinds.place(owner).await?;
        }
        let Some(place) = place else { return Ok(None) };
        self.cluster.get_metadata(&path::object(&place, &escaped(&owner.name))).await
    }
}
