//! What must be true of a node before anything that depends on it may start (SPEC section 6).
//!
//! Made once per run and node; nothing in here changes while the run lasts.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::digest::{CommitId, Digest};
use crate::duration::Duration;
use crate::gate::nonce::RunId;
use crate::name::{ApplicationId, NameError, NodeId, clip};

/// One node as the run wants it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Wanted {
    /// The node of the graph.
    pub node: NodeId,
    /// Its Argo CD Application.
    pub application: ApplicationId,
    /// The run that wants it.
    pub run: RunId,
    /// Nodes that must be proven first (INV-1).
    #[serde(default)]
    pub predecessors: Vec<NodeId>,
    /// What must be deployed.
    pub content: Content,
    /// Digests that the release names. Empty for `application:` nodes, whose proof is their revision.
    #[serde(default)]
    pub images: BTreeMap<ContainerKey, Digest>,
    /// Objects that must exist.
    #[serde(default)]
    pub requires: Vec<ObjectRef>,
    /// Objects that must satisfy an expression, in addition to Argo CD's own health.
    #[serde(default)]
    pub health: Vec<HealthRule>,
    /// How long each step may take.
    pub timeouts: Timeouts,
    /// How often a failed sync is asked for again.
    pub retry: Retry,
}

/// How the wanted content is recognised.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", deny_unknown_fields)]
pub enum Content {
    /// A folder of the GitOps repository, at this commit or at a later one that left the folder alone.
    Git {
        /// The run's commit.
        commit: CommitId,
    },
    /// Other sources: exactly these, one per source, in the order of the Application.
    Revisions {
        /// As resolved when the run started.
        revisions: Vec<String>,
    },
    /// A release through the plugin: the pointer's commit, and what the render receipt must name.
    Release {
        /// The run's commit.
        commit: CommitId,
        /// The release.
        digest: Digest,
        /// The pointer's content, where it was read beforehand.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pointer: Option<Digest>,
        /// What the plugin renders from it, where that was computed beforehand.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<Digest>,
    },
}

/// How long each step may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Timeouts {
    /// For a sync to start and end; also for foreign operations, and for an Application to appear.
    pub sync: Duration,
    /// For everything that must hold afterwards.
    pub health: Duration,
}

/// How often a failed sync is asked for again, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Retry {
    /// Attempts after the first.
    pub limit: u32,
    /// Wait before the second attempt.
    pub backoff: Duration,
    /// Growth from wait to wait.
    pub factor: u32,
    /// Longest wait.
    pub max: Duration,
}

/// A Kubernetes object by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ObjectRef {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// Absent for cluster-scoped objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{}/{}/{}", clip(&self.kind), clip(namespace), clip(&self.name)),
            None => write!(f, "{}/{}", clip(&self.kind), clip(&self.name)),
        }
    }
}

/// An object and what must be true of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HealthRule {
    /// The object, bound to the variable `object`.
    pub object: ObjectRef,
    /// CEL that must give true.
    pub expr: String,
}

/// A container of a workload: `Deployment/namespace/name/container`.
///
/// Text in JSON, because it is the key of maps there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ContainerKey {
    workload: Box<str>,
    container: Box<str>,
}

impl ContainerKey {
    /// A container of `Kind/namespace/name`.
    pub fn new(workload: &str, container: &str) -> Result<Self, NameError> {
        if workload.is_empty() || container.is_empty() {
            return Err(NameError::Empty);
        }
        if container.contains('/') {
            let rule = "the container's name comes after the last slash";
            return Err(NameError::Malformed { name: clip(container), what: "container name", rule });
        }
        Ok(Self { workload: workload.into(), container: container.into() })
    }

    /// `Kind/namespace/name`.
    pub fn workload(&self) -> &str {
        &self.workload
    }

    /// The container's name.
    pub fn container(&self) -> &str {
        &self.container
    }
}

impl FromStr for ContainerKey {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let (workload, container) = text.rsplit_once('/').ok_or_else(|| NameError::Malformed {
            name: clip(text),
            what: "container",
            rule: "write it as `Kind/namespace/name/container`",
        })?;
        Self::new(workload, container)
    }
}

impl TryFrom<String> for ContainerKey {
    type Error = NameError;
    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<ContainerKey> for String {
    fn from(key: ContainerKey) -> Self {
        format!("{}/{}", key.workload, key.container)
    }
}

impl fmt::Display for ContainerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", clip(&self.workload), clip(&self.container))
    }
}
