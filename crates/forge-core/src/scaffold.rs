//! The files of a new repository, environment or project: plain Argo CD and Crossplane YAML that works with
//! `kubectl apply -f app.yaml` and no Forge running (SPEC.md section 2).
//!
//! The Argo CD objects written here are also what lint compares a repository's `app.yaml` files with, so there is one
//! description of the layout. Nothing here reads or writes files.

mod argo;
pub mod demo;
mod edit;

pub use argo::{ROOT_SET, environment_app, own_application, root_app};
pub use edit::{EditError, add_environment, add_project};

use crate::digest::{CommitId, Digest};
use crate::format::{API_VERSION, ENVIRONMENT_CONFIG_VERSION, Environment, Installation, KINDS, schema};
use crate::name::{EnvironmentName, ProjectId};

/// What stands in a scaffold where a person must write something; lint reports it (FORGE-R007).
pub const PLACEHOLDER: &str = "CHANGE-ME";

/// A file to write, unless it is there already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Path inside the repository.
    pub path: String,
    /// Its content.
    pub text: String,
}

/// Optional Applications of the root `app.yaml`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct With {
    /// Crossplane.
    pub crossplane: Source,
    /// Argo CD itself.
    pub argocd: Source,
}

/// Where the chart of an optional Application comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Source {
    /// There is no such Application.
    #[default]
    Without,
    /// From where it is published.
    Published,
    /// From the folder of charts of the repository itself.
    Vendored,
}

/// The line that tells editors which schema a file has; `depth` folders lie between the file and the root.
pub fn schema_line(kind: &str, depth: usize) -> String {
    format!("# yaml-language-server: $schema={}.forge/schemas/{kind}.json\n", "../".repeat(depth))
}

/// A text as YAML: quoted, so that no value can change the structure.
pub(super) fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// `forge.yaml` of a new installation.
pub fn installation_file(url: Option<&str>, branch: &str, registry: Option<&str>) -> File {
    let url = url.map_or_else(|| format!("https://git.example.invalid/{PLACEHOLDER}/platform.git"), ToOwned::to_owned);
    let registry = registry.map_or_else(|| format!("registry.example.invalid/{PLACEHOLDER}"), ToOwned::to_owned);
    let text = format!(
        "{}apiVersion: {API_VERSION}
kind: Forge
spec:
  # Where releases are kept: <registry>/<repo>/<project>:<commit>
  registry: {}
  # This repository, as Argo CD reads it.
  repository: {{url: {}, branch: {}}}
  # install: Forge installs it. existing: it is there, and stays yours.
  argo: {{cd: install, workflows: install, events: install}}
  # In promotion order. `cluster` is a cluster registered with Argo CD.
  environments:
    - {{name: platform, cluster: in-cluster, sync: manual}}
    - {{name: dev, cluster: dev, sync: auto}}
    - {{name: staging, cluster: staging, sync: manual}}
    - name: production
      cluster: production
      sync: manual
      protected: true
      approvals: 1
      adoption: shadow
      windows: [{{allow: \"Mon-Thu 09:00-16:00 UTC\"}}]
      soak: 24h
",
        schema_line("Forge", 0),
        quote(&registry),
        quote(&url),
        quote(branch),
    );
    File { path: "forge.yaml".to_owned(), text }
}

/// `graph.yaml` of a new installation.
pub fn graph_file() -> File {
    let text = format!(
        "{}apiVersion: {API_VERSION}
kind: DependencyGraph
spec:
  defaults:
    timeouts: {{sync: 5m, health: 10m}}
    retry: {{limit: 3, backoff: 5s, factor: 2, max: 2m}}
  timeout: 2h
  # Add applications with `forge project add <repo>/<project> --stack <stack>`, or write them here:
  #
  #   - name: storage
  #     dependsOn: [\"stack:foundation\"]        # every app here waits for every app there
  #     apps:
  #       - project: catalog/ceph-operator
  #       - project: catalog/ceph-cluster
  #         dependsOn: [catalog/ceph-operator]
  stacks: []
",
        schema_line("DependencyGraph", 0)
    );
    File { path: "graph.yaml".to_owned(), text }
}

/// Everything that an installation needs beside `forge.yaml` and `graph.yaml`.
pub fn installation_files(installation: &Installation, with: With) -> Vec<File> {
    let mut files = vec![File { path: "app.yaml".to_owned(), text: root_app(installation, with) }];
    for kind in KINDS {
        if let Some(schema) = schema(kind) {
            let text = format!("{:#}\n", schema.as_value());
            files.push(File { path: format!(".forge/schemas/{kind}.json"), text });
        }
    }
    for environment in &installation.environments {
        files.extend(environment_files(installation, environment));
    }
    files
}

/// The files of one environment.
pub fn environment_files(installation: &Installation, environment: &Environment) -> Vec<File> {
    let path = &environment.path;
    let depth = path.split('/').count();
    let mut files = vec![
        File { path: format!("{path}/app.yaml"), text: environment_app(installation, environment) },
        File { path: format!("{path}/env.yaml"), text: environment_config(environment.name.as_str(), depth) },
    ];
    if installation.environments.iter().any(|env| env.name.as_str() == "platform") {
        files.push(cluster_file(&environment.name));
    }
    files
}

fn environment_config(name: &str, depth: usize) -> String {
    format!(
        "{}apiVersion: {ENVIRONMENT_CONFIG_VERSION}
kind: EnvironmentConfig
metadata:
  name: {name}
# What compositions in this environment may read. Never a secret.
data:
  environment: {name}
",
        schema_line("EnvironmentConfig", depth)
    )
}

fn cluster_file(name: &EnvironmentName) -> File {
    let path = format!("platform/clusters/{name}/cluster.yaml");
    let text = if name.as_str() == "platform" {
        format!(
            "{}apiVersion: {API_VERSION}
kind: PlatformCluster
metadata:
  name: platform
# The cluster that runs Argo CD: it exists, nothing is created.
spec: {{}}
",
            schema_line("PlatformCluster", 3)
        )
    } else {
        format!(
            "{}apiVersion: {API_VERSION}
kind: Cluster
metadata:
  name: {name}
spec:
  provider: vcluster # or aws, with region and nodeGroups
",
            schema_line("Cluster", 3)
        )
    };
    File { path, text }
}

/// A pointer. Without a release it holds zeros, which lint reports until a real one is written.
pub fn pointer_file(environment: &Environment, project: &ProjectId, release: Option<(&CommitId, &Digest)>) -> File {
    let path = format!("{}/apps/{}/{}/release.yaml", environment.path, project.repo, project.project);
    let (commit, digest) = match release {
        Some((commit, digest)) => (commit.to_string(), digest.to_string()),
        None => ("0".repeat(40), format!("sha256:{}", "0".repeat(64))),
    };
    let depth = path.split('/').count() - 1;
    let text = format!(
        "{}apiVersion: {API_VERSION}
kind: ReleasePointer
metadata:
  name: {}
spec:
  release: \"{commit}\"
  digest: {digest}
",
        schema_line("ReleasePointer", depth),
        project.project
    );
    File { path, text }
}
