//! A GitOps repository: where things are (SPEC.md section 2), and what a valid one holds.

mod layout;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

pub use layout::{Layout, Role, is_health_check, is_manifest};

use crate::format::{ArgoInstall, DependencyGraph, Environment, GraphOverride, Installation, ReleasePointer, Subject};
use crate::graph::{Build, Graph, Implicit};
use crate::health::{CheckName, HealthChecks, Script};
use crate::name::{EnvironmentName, ProjectId};
use crate::preflight::Component;

/// A repository whose files could all be read. What lint says about it beyond that (policies, secrets, images) does not
/// keep a plan from being made.
#[derive(Debug, Clone)]
pub struct Repository {
    /// `forge.yaml`.
    pub installation: Installation,
    /// `graph.yaml`.
    pub graph: DependencyGraph,
    /// What each environment holds, in promotion order.
    pub environments: Vec<EnvironmentFiles>,
    /// The root `app.yaml`.
    pub root: RootFile,
    /// It has an Application `crossplane`.
    pub crossplane: bool,
    /// Its own health checks for Argo CD.
    pub health: HealthFiles,
    /// Its own values of the charts that Forge installs.
    pub values: ValueFiles,
}

/// The root `app.yaml` of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum RootFile {
    /// There is none: the repository has a layout of its own.
    #[default]
    Absent,
    /// It is there and cannot be read.
    Unusable,
    /// What it holds.
    Objects(Vec<serde_json::Value>),
}

/// The values of charts that a repository has of its own.
#[derive(Debug, Clone, Default)]
pub struct ValueFiles {
    /// Those that can be used.
    pub values: BTreeMap<Component, serde_json::Value>,
    /// The paths of those that cannot.
    pub unusable: BTreeSet<String>,
}

/// The health checks for Argo CD that a repository has of its own.
#[derive(Debug, Clone, Default)]
pub struct HealthFiles {
    /// Those that can be used.
    pub scripts: BTreeMap<CheckName, Script>,
    /// The paths of those that cannot.
    pub unusable: BTreeSet<String>,
}

/// What one environment holds.
#[derive(Debug, Clone)]
pub struct EnvironmentFiles {
    /// What `forge.yaml` says about it.
    pub environment: Environment,
    /// Its pointers.
    pub projects: BTreeMap<ProjectId, ReleasePointer>,
    /// Projects whose pointer is there but cannot be used.
    pub unusable: BTreeSet<ProjectId>,
    /// Its own `graph.yaml`.
    pub overrides: Option<GraphOverride>,
    /// It has an `app.yaml`, and so an Application `<env>-bootstrap`.
    pub bootstrap: bool,
    /// It has an `env.yaml`, and so an Application `<env>-config`.
    pub config: bool,
}

/// The path of the graph.
pub const GRAPH_FILE: &str = "graph.yaml";
/// The path of the installation.
pub const INSTALLATION_FILE: &str = "forge.yaml";
/// The path of the root Application file.
pub const ROOT_APP_FILE: &str = "app.yaml";

impl Repository {
    /// An environment by name.
    pub fn environment(&self, name: &str) -> Option<&EnvironmentFiles> {
        self.environments.iter().find(|files| files.environment.name.as_str() == name)
    }

    /// True if bootstrap applies its root file: there is one, and Argo CD is Forge's own. In an Argo CD of somebody else he
    /// applies it himself.
    pub fn applies_root(&self) -> bool {
        self.root != RootFile::Absent && self.installation.argo.cd == ArgoInstall::Install
    }

    /// Forge's health checks for Argo CD and its own. Where one of its own cannot be used there are none: the check that it
    /// was to replace must not take its place.
    ///
    /// # Errors
    /// With the paths of those that cannot be used.
    pub fn health_checks(&self) -> Result<HealthChecks, &BTreeSet<String>> {
        if self.health.unusable.is_empty() {
            Ok(HealthChecks::merge(&self.health.scripts))
        } else {
            Err(&self.health.unusable)
        }
    }

    /// The graph as `graph.yaml` has it, without any environment's changes.
    pub fn base_graph(&self) -> Build {
        Graph::build(&self.graph, GRAPH_FILE, None, &[])
    }

    /// The graph of one environment.
    pub fn environment_graph(&self, files: &EnvironmentFiles) -> Build {
        let path = format!("{}/{GRAPH_FILE}", files.environment.path);
        let over = files.overrides.as_ref().map(|spec| (path.as_str(), spec));
        Graph::build(&self.graph, GRAPH_FILE, over, &self.implicit(files))
    }

    /// True if `graph.yaml` names a node that an environment has by itself.
    pub fn names_implicit_nodes(&self, files: &EnvironmentFiles) -> bool {
        let applications = || self.graph.stacks.iter().flat_map(|stack| &stack.apps).map(|app| &app.subject.value);
        self.implicit(files)
            .iter()
            .any(|Implicit(id)| applications().any(|subject| *subject == Subject::Application(id.clone())))
    }

    /// The implicit first nodes of an environment, in their order.
    fn implicit(&self, files: &EnvironmentFiles) -> Vec<Implicit> {
        let namespace = &self.installation.argo.namespace;
        let name = &files.environment.name;
        let mut names = Vec::new();
        if self.crossplane {
            names.push("crossplane".to_owned());
        }
        if files.bootstrap {
            // The root ApplicationSet names it after the folder.
            let folder = files.environment.path.rsplit('/').next().unwrap_or_default();
            names.push(format!("{folder}-bootstrap"));
            if files.config {
                names.push(format!("{}-config", name.value));
            }
        }
        names.into_iter().filter_map(|name| format!("{namespace}/{name}").parse().ok().map(Implicit)).collect()
    }
}

/// Where a node's Application lives and what it is called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationName {
    /// Namespace of the Application.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ApplicationName {
    /// As an identity; nothing where the name cannot be one.
    pub fn id(&self) -> Option<crate::name::ApplicationId> {
        format!("{}/{}", self.namespace, self.name).parse().ok()
    }
}

/// The names that follow from paths (SPEC.md section 2).
pub fn application_name(environment: &EnvironmentName, argo: &str, subject: &Subject) -> ApplicationName {
    match subject {
        Subject::Project(id) => {
            ApplicationName { namespace: argo.to_owned(), name: format!("{environment}-{}", id.joined()) }
        }
        Subject::Application(id) => ApplicationName { namespace: id.namespace.to_string(), name: id.name().to_owned() },
    }
}
