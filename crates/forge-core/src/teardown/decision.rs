//! What is known of a node that is to go, and the three answers, in words for people and in types for callers.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Clearance, Kept, Remnant};
use crate::code::Class;
use crate::gate::{self, Timeouts};
use crate::name::{ApplicationId, NodeId, clip};
use crate::view::shown;

/// How many objects a sentence names.
const NAMED: usize = 3;

/// What is wanted of a node: that it is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The node.
    pub node: NodeId,
    /// Its Application.
    pub application: ApplicationId,
    /// The Application as Kubernetes knows it; absent where there was none when the run was planned.
    pub uid: Option<String>,
    /// The nodes that depend on it: all of them go first.
    pub dependents: Vec<NodeId>,
    /// How long a request may take to show, and everything to go.
    pub timeouts: Timeouts,
}

/// Everything that a decision rests on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// One that is not listed counts as living.
    pub dependents: BTreeMap<NodeId, DependentState>,
    /// When the whole run gives up.
    pub deadline: Timestamp,
    /// Stored times.
    pub progress: Progress,
    /// Absent when there is no such Application, and somebody asked for it by name.
    pub application: Option<ApplicationState>,
    /// What was looked for of what the Application had made; absent before somebody did.
    pub clearance: Option<Clearance>,
}

/// How far a dependent got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DependentState {
    /// It is gone, with all that it had made.
    Gone,
    /// It is not.
    Living,
    /// It will not go in this run.
    Failed,
}

/// An Application that is to go.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ApplicationState {
    /// As Kubernetes knows it.
    pub uid: String,
    /// It is being deleted.
    pub deleting: bool,
    /// An operation of Argo CD runs.
    pub in_flight: bool,
    /// What Argo CD says about its deletion, where something went wrong.
    pub error: Option<String>,
    /// Who makes it, as far as it says.
    pub creator: Option<String>,
    /// What of it is still there and keeps it; empty where nobody looked.
    pub remnants: Vec<Remnant>,
}

/// Times that the caller stores between decisions. [`remember`] fills in all but `requested` and `refused`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// When everything that depends on it was first seen gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_at: Option<Timestamp>,
    /// Since when an operation of Argo CD is in the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_since: Option<Timestamp>,
    /// When its deletion was first asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested: Option<Timestamp>,
    /// Why Argo CD refused that last, where it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// When it was first seen to go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleting_since: Option<Timestamp>,
    /// When it was first seen gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone_at: Option<Timestamp>,
}

/// The stored times, brought up to date with what is seen now. Applying it twice changes nothing.
pub fn remember(wanted: &Wanted, observed: &Observed, now: Timestamp) -> Progress {
    let mut progress = observed.progress.clone();
    let gone = |node| observed.dependents.get(node) == Some(&DependentState::Gone);
    if wanted.dependents.iter().all(gone) {
        progress.ready_at.get_or_insert(now);
    }
    match &observed.application {
        None => {
            progress.busy_since = None;
            progress.gone_at.get_or_insert(now);
        }
        Some(application) => {
            progress.gone_at = None;
            if application.deleting {
                progress.deleting_since.get_or_insert(now);
            }
            if application.in_flight && !application.deleting {
                progress.busy_since.get_or_insert(now);
            } else {
                progress.busy_since = None;
            }
        }
    }
    progress
}

/// What is to be done about a node that is to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It is gone, and everything that it had made; what it depends on may go.
    Gone(Removed),
    /// Not yet.
    Wait(Wait),
    /// Not in this run.
    Failed(Why),
}

/// How a node went.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Removed {
    /// This run asked for it; else it was gone already, or somebody else did.
    pub asked: bool,
    /// What of it stays, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<Kept>,
}

impl fmt::Display for Removed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.asked, self.kept.len()) {
            (true, 0) => Ok(()),
            (false, 0) => f.write_str("nothing had to be removed"),
            (_, 1) => f.write_str("1 object of it stays"),
            (_, more) => write!(f, "{more} objects of it stay"),
        }
    }
}

/// A wait that ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// What for.
    pub on: Waiting,
    /// When the answer changes even if nothing else does. Always later than now.
    pub until: Timestamp,
    /// Since when, where that is known.
    pub since: Option<Timestamp>,
}

/// What a node that is to go waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
#[allow(missing_docs, reason = "the fields are what the text names")]
pub enum Waiting {
    /// Something that depends on it.
    Dependent { node: NodeId },
    /// Our own request, which is due: the caller's turn.
    Request,
    /// Argo CD does not show it yet.
    Shown { message: String },
    /// An operation of Argo CD runs, which comes first.
    Operation,
    /// Argo CD removes it.
    Deletion { remnants: Vec<Remnant>, error: Option<String> },
    /// Nobody has looked yet for what it had made.
    Clearance,
    /// Something that it had made is still there.
    Members { remnants: Vec<Remnant> },
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dependent { node } => write!(f, "`{node}`, which depends on it, still exists"),
            Self::Request => f.write_str("its deletion must be asked for"),
            Self::Shown { message } if message.is_empty() => f.write_str("its deletion does not show yet"),
            Self::Shown { message } => write!(f, "Argo CD refuses to delete it: {}", shown(message)),
            Self::Operation => f.write_str("an operation of Argo CD must end first"),
            Self::Deletion { remnants, error } => {
                f.write_str("Argo CD deletes it")?;
                if let Some(error) = error {
                    write!(f, ": {}", shown(error))?;
                }
                if remnants.is_empty() { Ok(()) } else { write!(f, ": {}", named(remnants)) }
            }
            Self::Clearance => f.write_str("what it had made is looked for"),
            Self::Members { remnants } => write!(f, "still there: {}", named(remnants)),
        }
    }
}

/// Why a node did not go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
#[allow(missing_docs, reason = "the fields are what the text names")]
pub enum Why {
    /// Something that depends on it did not go (INV-6).
    Blocked { by: NodeId },
    /// The whole run took too long.
    RunTimeout { dependent: Option<NodeId> },
    /// An operation of Argo CD did not end.
    Operation,
    /// Argo CD did not begin to delete it.
    NotDeleted { message: String },
    /// Argo CD did not get to the end of it.
    Stuck { remnants: Vec<Remnant>, error: Option<String>, at: Timestamp },
    /// Nobody looked for what it had made.
    NotCleared,
    /// Something that it had made did not go.
    Left { remnants: Vec<Remnant>, at: Timestamp },
    /// Somebody made it again.
    Recreated { by: Option<String> },
}

impl Why {
    /// What sort of failure it is.
    pub fn class(&self) -> Class {
        match self {
            Self::Blocked { .. } => Class::Blocked,
            Self::RunTimeout { .. } | Self::Stuck { .. } | Self::NotCleared | Self::Left { .. } => Class::Timeout,
            Self::NotDeleted { message } if message.is_empty() => Class::Timeout,
            Self::NotDeleted { .. } => Class::Policy,
            Self::Operation | Self::Recreated { .. } => Class::Conflict,
        }
    }

    /// What is still there, where that is the reason.
    pub fn remnants(&self) -> &[Remnant] {
        match self {
            Self::Stuck { remnants, .. } | Self::Left { remnants, .. } => remnants,
            _ => &[],
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blocked { by } => write!(f, "blocked by `{by}`, which depends on it and did not go"),
            Self::RunTimeout { dependent: Some(node) } => {
                write!(f, "the run timed out while `{node}`, which depends on it, still existed")
            }
            Self::RunTimeout { dependent: None } => f.write_str("the run timed out"),
            Self::Operation => f.write_str("an operation of Argo CD did not end"),
            Self::NotDeleted { message } if message.is_empty() => f.write_str("Argo CD did not begin to delete it"),
            Self::NotDeleted { message } => write!(f, "Argo CD refused to delete it: {}", shown(message)),
            Self::Stuck { remnants, error, at } => {
                f.write_str("Argo CD did not finish deleting it")?;
                if let Some(error) = error {
                    write!(f, ": {}", shown(error))?;
                }
                if remnants.is_empty() { Ok(()) } else { write!(f, ": {}", aged(remnants, *at)) }
            }
            Self::NotCleared => f.write_str("nobody could look for what it had made"),
            Self::Left { remnants, at } => write!(f, "it is gone, and this is not: {}", aged(remnants, *at)),
            Self::Recreated { by: Some(by) } => write!(f, "it was made again by {}", clip(by)),
            Self::Recreated { by: None } => f.write_str("it was made again by somebody else"),
        }
    }
}

fn named(remnants: &[Remnant]) -> String {
    joined(remnants.iter().map(ToString::to_string).collect())
}

fn aged(remnants: &[Remnant], at: Timestamp) -> String {
    joined(remnants.iter().map(|remnant| remnant.told(at)).collect())
}

/// The first of these, and how many more there are.
fn joined(all: Vec<String>) -> String {
    let more = all.len().saturating_sub(NAMED);
    let mut text = all.into_iter().take(NAMED).collect::<Vec<_>>().join("; ");
    if more > 0 {
        text.push_str(&format!("; and {more} more"));
    }
    text
}

/// As the record of a run holds it, beside the answers of the gate.
impl From<Decision> for gate::Decision {
    fn from(decision: Decision) -> Self {
        match decision {
            Decision::Gone(removed) => Self::Gone(Box::new(removed)),
            Decision::Wait(Wait { on, until, since }) => {
                Self::Wait(gate::Wait { on: gate::WaitingFor::Removal { on }, until, since })
            }
            // What is blocked is told alike, whatever it waits for.
            Decision::Failed(Why::Blocked { by }) => Self::Failed(gate::Why::Blocked { by }.into()),
            Decision::Failed(why) => Self::Failed(gate::Why::Removal { why }.into()),
        }
    }
}
