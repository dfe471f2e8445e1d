//! The Argo CD objects of the layout.
//!
//! Why each protection is there (SPEC.md section 2, docs/adr/0004): `applicationsSync: create-update` keeps an
//! ApplicationSet from deleting Applications when files vanish; the resources finalizer on the ApplicationSet makes its
//! controller drop owner references when the set itself is deleted, so that garbage collection does not take them;
//! `Delete=false,Prune=false` keeps a parent Application from removing what it brought.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Source, With, quote};
use crate::format::{Environment, Installation, Sync};
use crate::health::HealthChecks;
use crate::install::{self, Wanted};
use crate::preflight::Component;
use crate::render::{ENVIRONMENT_LABEL, MANAGED_BY};
use crate::yaml;

const PROTECTED: &str = "argocd.argoproj.io/sync-options: Delete=false,Prune=false";
const RETRY: &str = "retry: {limit: 5, backoff: {duration: 5s, factor: 2, maxDuration: 3m}}";
/// Without end: what Crossplane defines may come later than an environment's configuration, and Argo CD does not try a commit
/// again that it gave up.
const RETRY_ALWAYS: &str = "retry: {limit: -1, backoff: {duration: 5s, factor: 2, maxDuration: 1m}}";

/// The ApplicationSet that brings every environment.
pub const ROOT_SET: &str = "environments";
/// Where Crossplane's chart is published.
const CROSSPLANE_CHARTS: &str = "https://charts.crossplane.io/stable";

/// The root `app.yaml`.
pub fn root_app(installation: &Installation, with: With) -> String {
    let argo = &installation.argo.namespace;
    let url = quote(&installation.repository.url);
    let revision = quote(&installation.repository.branch);
    let mut text = format!(
        "# The root: `kubectl apply -f app.yaml` starts everything, with or without Forge running.
apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata:
  name: forge-system
  namespace: {argo}
  annotations:
    {PROTECTED}
spec:
  description: Bootstrap, configuration and cluster Applications of every environment
  sourceRepos: [{url}]
  destinations:
    - {{name: in-cluster, namespace: {argo}}}
    - {{name: \"*\", namespace: forge-system}}
  clusterResourceWhitelist:
    - {{group: apiextensions.crossplane.io, kind: EnvironmentConfig}}
    - {{group: forge.projectcatalyst.io, kind: Cluster}}
    - {{group: forge.projectcatalyst.io, kind: PlatformCluster}}
    - {{group: \"\", kind: Namespace}}
  namespaceResourceWhitelist:
    - {{group: argoproj.io, kind: AppProject}}
    - {{group: argoproj.io, kind: Application}}
    - {{group: argoproj.io, kind: ApplicationSet}}
---
apiVersion: argoproj.io/v1alpha1
kind: ApplicationSet
metadata:
  name: {ROOT_SET}
  namespace: {argo}
  annotations:
    {PROTECTED}
  finalizers:
    - resources-finalizer.argocd.argoproj.io
spec:
  goTemplate: true
  goTemplateOptions: [missingkey=error]
  generators:
    - git:
        repoURL: {url}
        revision: {revision}
        files:
"
    );
    for glob in environment_globs(installation) {
        text.push_str(&format!("          - path: {}\n", quote(&glob)));
    }
    text.push_str(&format!(
        "  syncPolicy:
    applicationsSync: create-update
    preserveResourcesOnDeletion: true
  template:
    metadata:
      name: \"{{{{.path.basename}}}}-bootstrap\"
    spec:
      project: forge-system
      source:
        repoURL: {url}
        targetRevision: {revision}
        path: \"{{{{.path.path}}}}\"
        directory: {{include: app.yaml}}
      destination: {{name: in-cluster, namespace: {argo}}}
      syncPolicy:
        automated: {{prune: false, selfHeal: true}}
        {RETRY}
        syncOptions: [ServerSideApply=true]
"
    ));
    if with != With::default() {
        text.push_str(&format!("---\n{}", components_project(installation, with)));
    }
    if with.argocd != Source::Without {
        // The same that Helm installs with, so that Argo CD finds nothing to change.
        let (namespace, health) = (argo.as_str(), HealthChecks::merge(&BTreeMap::new()));
        let wanted = Wanted::new(Component::Cd, namespace, &health, None, None);
        text.push_str(&format!("---\n{}", own_application(installation, &wanted.values, with.argocd)));
    }
    if with.crossplane != Source::Without {
        let chart = Chart {
            name: "crossplane",
            why: "Crossplane, which serves EnvironmentConfig; an implicit first node of every run",
            repo: CROSSPLANE_CHARTS,
            chart: "crossplane",
            version: "2.2.0",
            namespace: "crossplane-system",
            values: &json!({}),
        };
        text.push_str(&format!("---\n{}", chart.application(installation, with.crossplane)));
    }
    text
}

/// Argo CD's own Application, with these values.
pub fn own_application(installation: &Installation, values: &Value, source: Source) -> String {
    let cd = install::chart(Component::Cd);
    let chart = Chart {
        name: install::APPLICATION,
        why: "Argo CD manages itself: `forge bootstrap --with self-managed-argocd` hands its Helm release over to this. The values\n# are all of them, as they were installed; from then on they are changed here",
        repo: install::REPOSITORY,
        chart: cd.name,
        version: cd.version,
        namespace: installation.argo.namespace.as_str(),
        values,
    };
    chart.application(installation, source)
}

/// The globs that find every environment's `app.yaml`: one for all top-level folders, one for each other folder.
fn environment_globs(installation: &Installation) -> Vec<String> {
    let mut globs: Vec<String> = installation
        .environments
        .iter()
        .map(|env| if env.path.contains('/') { format!("{}/app.yaml", env.path) } else { "*/app.yaml".to_owned() })
        .collect();
    globs.sort();
    globs.dedup();
    globs
}

fn components_project(installation: &Installation, with: With) -> String {
    let argo = &installation.argo.namespace;
    let mut sources = vec![quote(install::REPOSITORY), quote(CROSSPLANE_CHARTS)];
    if [with.argocd, with.crossplane].contains(&Source::Vendored) {
        sources.push(quote(&installation.repository.url));
    }
    let sources = sources.join(", ");
    format!(
        "apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata:
  name: forge-components
  namespace: {argo}
  annotations:
    {PROTECTED}
spec:
  description: What the platform itself runs on
  sourceRepos: [{sources}]
  destinations:
    - {{name: in-cluster, namespace: {argo}}}
    - {{name: in-cluster, namespace: crossplane-system}}
  clusterResourceWhitelist:
    - {{group: \"*\", kind: \"*\"}}
"
    )
}

struct Chart<'c> {
    name: &'c str,
    why: &'c str,
    repo: &'c str,
    chart: &'c str,
    version: &'c str,
    namespace: &'c str,
    values: &'c Value,
}

impl Chart<'_> {
    fn application(&self, installation: &Installation, source: Source) -> String {
        let Self { name, why, repo, chart, version, namespace, values } = self;
        let argo = &installation.argo.namespace;
        let source = match source {
            Source::Vendored => {
                let (url, branch) = (quote(&installation.repository.url), quote(&installation.repository.branch));
                let folder = install::CHARTS_FOLDER;
                format!("repoURL: {url}\n    path: {folder}/{chart}\n    targetRevision: {branch}")
            }
            Source::Published | Source::Without => {
                format!("repoURL: {repo}\n    chart: {chart}\n    targetRevision: {version}")
            }
        };
        let values = indented(&yaml::write_blocks(&json!({"valuesObject": values})), 6);
        format!(
            "# {why}.
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata:
  name: {name}
  namespace: {argo}
  annotations:
    {PROTECTED}
spec:
  project: forge-components
  source:
    {source}
    helm:
      releaseName: {chart}
{values}  destination: {{name: in-cluster, namespace: {namespace}}}
  syncPolicy:
    automated: {{prune: false, selfHeal: true}}
    {RETRY}
    syncOptions: [CreateNamespace=true, ServerSideApply=true]
"
        )
    }
}

/// A text further to the right; empty lines stay empty.
fn indented(text: &str, spaces: usize) -> String {
    let margin = " ".repeat(spaces);
    let line = |line: &str| if line.is_empty() { "\n".to_owned() } else { format!("{margin}{line}\n") };
    text.lines().map(line).collect()
}

/// `<env>/app.yaml`.
pub fn environment_app(installation: &Installation, environment: &Environment) -> String {
    let argo = installation.argo.namespace.as_str();
    let url = quote(&installation.repository.url);
    let revision = quote(&installation.repository.branch);
    let (name, path) = (&environment.name.value, &environment.path);
    let cluster = quote(&environment.cluster);
    let prefix = &environment.namespace_prefix;
    // A negated namespace allows every other one of that server, so it stands alone; and it only counts by server.
    let destination = if environment.cluster.value == "in-cluster" && prefix.is_empty() {
        format!("{{server: https://kubernetes.default.svc, namespace: \"!{argo}\"}}")
    } else {
        format!("{{name: {cluster}, namespace: {}}}", quote(&format!("{prefix}*")))
    };
    // Segments of <path>/apps/<repo>/<project>.
    let depth = path.split('/').count();
    let joined = format!("{{{{index .path.segments {}}}}}-{{{{index .path.segments {}}}}}", depth + 1, depth + 2);
    let automated = match environment.sync.value {
        Sync::Auto => "        automated: {prune: true, selfHeal: true}\n",
        Sync::Manual | Sync::Ordered => "",
    };
    let mut text = format!(
        "# Environment {name}: its AppProject, its configuration, and one Application per project folder.
apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata:
  name: {name}
  namespace: {argo}
  annotations:
    {PROTECTED}
spec:
  description: Applications of environment {name}
  sourceRepos: [{url}]
  destinations:
    - {destination}
  clusterResourceWhitelist:
    - {{group: \"*\", kind: \"*\"}}
---
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata:
  name: {name}-config
  namespace: {argo}
  annotations:
    {PROTECTED}
spec:
  project: forge-system
  source:
    repoURL: {url}
    targetRevision: {revision}
    path: {path}
    directory: {{include: env.yaml}}
  destination: {{name: {cluster}, namespace: forge-system}}
  syncPolicy:
    automated: {{prune: false, selfHeal: true}}
    {RETRY_ALWAYS}
    syncOptions: [CreateNamespace=true, ServerSideApply=true]
---
apiVersion: argoproj.io/v1alpha1
kind: ApplicationSet
metadata:
  name: {name}-apps
  namespace: {argo}
  annotations:
    {PROTECTED}
  finalizers:
    - resources-finalizer.argocd.argoproj.io
spec:
  goTemplate: true
  goTemplateOptions: [missingkey=error]
  generators:
    # Folders, not files: a broken release.yaml then breaks its own Application only.
    - git:
        repoURL: {url}
        revision: {revision}
        directories:
          - path: {path}/apps/*/*
  syncPolicy:
    applicationsSync: create-update
  template:
    metadata:
      name: \"{name}-{joined}\"
      annotations:
        # What the plugin reads: this folder, where releases are kept, and which signatures they need.
        argocd.argoproj.io/manifest-generate-paths: .;/forge.yaml;/signatures.yaml
    spec:
      project: {name}
      source:
        repoURL: {url}
        targetRevision: {revision}
        path: \"{{{{.path.path}}}}\"
        plugin: {{name: catalyst-forge-cmp}}
      destination: {{name: {cluster}, namespace: \"{prefix}{joined}\"}}
      syncPolicy:
{automated}        {RETRY}
        syncOptions: [CreateNamespace=true, ServerSideApply=true]
        # What a teardown knows its namespaces by.
        managedNamespaceMetadata:
          labels: {{{MANAGED_BY}: forge, {ENVIRONMENT_LABEL}: {name}}}
"
    );
    if name.as_str() == "platform" {
        text.push_str(&clusters_set(argo, &url, &revision));
    }
    text
}

fn clusters_set(argo: &str, url: &str, revision: &str) -> String {
    format!(
        "---
apiVersion: argoproj.io/v1alpha1
kind: ApplicationSet
metadata:
  name: platform-clusters
  namespace: {argo}
  annotations:
    {PROTECTED}
  finalizers:
    - resources-finalizer.argocd.argoproj.io
spec:
  goTemplate: true
  goTemplateOptions: [missingkey=error]
  generators:
    - git:
        repoURL: {url}
        revision: {revision}
        directories:
          - path: platform/clusters/*
  syncPolicy:
    applicationsSync: create-update
  template:
    metadata:
      name: \"{{{{.path.basename}}}}-cluster\"
      annotations:
        argocd.argoproj.io/manifest-generate-paths: .
    spec:
      project: forge-system
      source:
        repoURL: {url}
        targetRevision: {revision}
        path: \"{{{{.path.path}}}}\"
        directory: {{include: cluster.yaml}}
      destination: {{name: in-cluster, namespace: forge-system}}
      syncPolicy:
        {RETRY}
        syncOptions: [CreateNamespace=true, ServerSideApply=true]
"
    )
}
