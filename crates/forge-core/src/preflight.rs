//! Phase 0 (SPEC.md section 4): whether a cluster can be prepared and can run what Forge runs, before anything is written.
//!
//! Pure: facts in, findings out. The product reads the facts and starts the pod; every judgement is made here, each by a
//! function of its own that is given what was seen and says what it means and what to do. What comes out of a cluster is
//! cut and cleaned before it is shown, and read loosely: whatever is not there is not there.

mod argo;
mod check;
mod clock;
mod definitions;
mod held;
mod limits;
mod namespaces;
mod nodes;
mod objects;
mod own;
mod pod;
mod quantity;
mod report;
mod storage;
mod version;
mod windows;

pub use argo::{Component, Intent, Intents, Owner, WorkloadFacts, argo, is_ours as release_is_ours, plugins};
pub use check::Check;
pub use clock::{Sample, at_server, clock};
pub use definitions::{DefinitionFacts, Definitions, definitions, describes_windows, needed};
pub use held::{rights, whole};
pub use limits::{LimitFacts, QuotaFacts, limits};
pub use namespaces::{NamespaceFacts, namespaces, pod_security};
pub use nodes::{NodeFacts, nodes};
pub use objects::{
    EXPIRES_ANNOTATION, NAME_PREFIX, PREFLIGHT_LABEL, Probe, claim, has_pull_secrets, is_left, leftovers, namespace,
    pod, pod_security_labels,
};
pub use own::{is_foreign, merged, own};
pub use pod::{Ended, Seen, Stage, Tried, stage, tried};
pub use report::{Checked, Finding, Judged, Looked, PreflightReport, Severity};
pub use storage::{ClassFacts, default_class, storage};
pub use version::{policies, version};
pub use windows::windows;

use crate::name::EnvironmentName;

/// What a cluster is to be prepared for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Purpose {
    /// The namespace of Argo Workflows, where runs are.
    pub workflows: String,
    /// Argo CD's namespace.
    pub argocd: String,
    /// The namespace of Argo Events.
    pub events: String,
    /// The image of the executor.
    pub image: String,
    /// Environments.
    pub environments: Vec<EnvironmentName>,
    /// Who installs Argo.
    pub intents: Intents,
    /// Something needs volumes.
    pub storage: bool,
    /// Events start runs.
    pub triggers: bool,
    /// There is a root file to apply, and Argo CD is ours.
    pub root: bool,
    /// Argo CD is somebody else's, who makes what is needed in its namespace and hands AppProjects over by name.
    pub handed: bool,
    /// There is a registry of releases, so Argo CD needs the plugin that makes Applications of them.
    pub releases: bool,
}

impl Default for Purpose {
    fn default() -> Self {
        Self {
            workflows: "argo".to_owned(),
            argocd: "argocd".to_owned(),
            events: "argo-events".to_owned(),
            image: "forge".to_owned(),
            environments: Vec::new(),
            intents: Intents::install(),
            storage: false,
            triggers: false,
            root: false,
            handed: false,
            releases: false,
        }
    }
}

impl Purpose {
    /// What is to be done about a component.
    pub fn intent(&self, component: Component) -> Intent {
        match component {
            Component::Cd => self.intents.cd,
            Component::Workflows => self.intents.workflows,
            Component::Events => self.intents.events,
        }
    }

    /// The namespace of a component.
    pub fn place(&self, component: Component) -> &str {
        match component {
            Component::Cd => &self.argocd,
            Component::Workflows => &self.workflows,
            Component::Events => &self.events,
        }
    }
}

/// A text of an object, where there is one.
pub(crate) fn text<'v>(object: &'v serde_json::Value, pointer: &str) -> Option<&'v str> {
    object.pointer(pointer).and_then(serde_json::Value::as_str).filter(|text| !text.is_empty())
}

/// A label or annotation, whose keys hold characters that a pointer would take for its own.
pub(crate) fn mark<'v>(object: &'v serde_json::Value, kind: &str, key: &str) -> Option<&'v str> {
    let marks = object.get("metadata")?.get(kind)?;
    marks.get(key)?.as_str().filter(|text| !text.is_empty())
}

/// The elements of a list, where there is one.
pub(crate) fn items<'v>(object: &'v serde_json::Value, pointer: &str) -> impl Iterator<Item = &'v serde_json::Value> {
    object.pointer(pointer).and_then(serde_json::Value::as_array).into_iter().flatten()
}

/// `1 node`, `2 nodes`.
pub(crate) fn count(number: usize, one: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") }
}
