//! An Argo CD as other people run it: about 30 Applications that Forge did not make, for tests of `forge adopt` on a real cluster.
//!
//! [`manifests`] is applied with `kubectl`; the Applications read folders of a Git repository that holds what
//! [`repository`] gives. Everything deploys at once and without images: ConfigMaps, small CRDs and resources of them, so
//! that the test is about order and hazards and not about workloads.

use std::fmt::Write as _;

/// The namespace of an Application outside Argo CD's.
pub const OTHER_NAMESPACE: &str = "foreign-team";

/// What is special about an Application.
struct App {
    name: &'static str,
    project: &'static str,
    /// Further lines of `metadata`.
    metadata: &'static str,
    /// Further lines of `spec`.
    spec: &'static str,
    /// Its path in the repository.
    path: &'static str,
}

const AUTOMATED: &str =
    "  syncPolicy:\n    automated: {prune: true, selfHeal: true}\n    syncOptions: [CreateNamespace=true]\n";
const MANUAL: &str = "  syncPolicy:\n    syncOptions: [CreateNamespace=true]\n";
const FINALIZER: &str = "  finalizers: [resources-finalizer.argocd.argoproj.io]\n";

/// Applications that nothing manages, and the app-of-apps.
const APPS: &[App] = &[
    App { name: "foreign-root", project: "foreign-platform", metadata: FINALIZER, spec: AUTOMATED, path: "root" },
    App { name: "foreign-hooks", project: "foreign-data", metadata: FINALIZER, spec: MANUAL, path: "hooks" },
    App {
        name: "foreign-retry",
        project: "foreign-data",
        metadata: FINALIZER,
        spec: "  syncPolicy:\n    automated: {prune: true}\n    retry: {limit: 5}\n    syncOptions: [CreateNamespace=true]\n",
        path: "plain",
    },
    App {
        name: "foreign-allow-empty",
        project: "foreign-data",
        metadata: FINALIZER,
        spec: "  syncPolicy:\n    automated: {prune: true, allowEmpty: true}\n    syncOptions: [CreateNamespace=true]\n",
        path: "plain",
    },
    App { name: "foreign-empty", project: "foreign-data", metadata: FINALIZER, spec: AUTOMATED, path: "empty" },
    App { name: "foreign-shared-one", project: "foreign-data", metadata: FINALIZER, spec: AUTOMATED, path: "shared" },
    App { name: "foreign-shared-two", project: "foreign-data", metadata: FINALIZER, spec: AUTOMATED, path: "shared" },
    App {
        name: "foreign-circle-one",
        project: "foreign-data",
        metadata: FINALIZER,
        spec: AUTOMATED,
        path: "circle-one",
    },
    App {
        name: "foreign-circle-two",
        project: "foreign-data",
        metadata: FINALIZER,
        spec: AUTOMATED,
        path: "circle-two",
    },
    App { name: "foreign-legacy", project: "default", metadata: "", spec: MANUAL, path: "plain" },
    App {
        name: "foreign-paused",
        project: "default",
        metadata: "  annotations: {argocd.argoproj.io/skip-reconcile: \"true\"}\n",
        spec: AUTOMATED,
        path: "plain",
    },
    App {
        name: "foreign-wave-of-its-own",
        project: "default",
        metadata: "  annotations: {argocd.argoproj.io/sync-wave: \"3\"}\n",
        spec: AUTOMATED,
        path: "plain",
    },
    App {
        name: "foreign-name-that-a-generator-made-of-region-team-component-and-stage",
        project: "foreign-data",
        metadata: FINALIZER,
        spec: MANUAL,
        path: "plain",
    },
    App { name: "foreign-degraded", project: "foreign-data", metadata: FINALIZER, spec: AUTOMATED, path: "broken" },
];

/// Children of the app-of-apps: name, sync wave, path.
const CHILDREN: &[(&str, i32, &str)] = &[
    ("foreign-widgets", -2, "widgets"),
    ("foreign-early", -2, "uses-gadgets"),
    ("foreign-gadgets", -1, "gadgets"),
    ("foreign-ingress", -1, "plain"),
    ("foreign-uses-widgets", 0, "uses-widgets"),
    ("foreign-uses-gadgets", 0, "uses-gadgets"),
    ("foreign-monitoring", 0, "monitoring"),
    ("foreign-portal", 2, "plain"),
];

/// Children of the child that is an app-of-apps itself.
const GRANDCHILDREN: &[(&str, i32, &str)] =
    &[("foreign-metrics", 0, "plain"), ("foreign-dashboards", 1, "uses-widgets"), ("foreign-alerts", 1, "plain")];

/// Everything to apply to the cluster that runs Argo CD, into namespace `argocd`.
pub fn manifests(git_url: &str) -> String {
    let mut text = String::new();
    for (name, windows) in [
        (
            "foreign-platform",
            "  syncWindows:\n    - {kind: deny, schedule: \"0 0 1 1 *\", duration: 1h, applications: [\"*\"]}\n",
        ),
        ("foreign-data", ""),
        ("foreign-shop", ""),
    ] {
        let _ = write!(
            text,
            "apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata:
  name: {name}
  namespace: argocd
spec:
  sourceRepos: [\"*\"]
  sourceNamespaces: [{OTHER_NAMESPACE}]
  destinations: [{{server: \"*\", name: \"*\", namespace: \"*\"}}]
  clusterResourceWhitelist: [{{group: \"*\", kind: \"*\"}}]
{windows}---
"
        );
    }
    let _ = write!(text, "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {OTHER_NAMESPACE}\n---\n");
    for app in APPS {
        text.push_str(&application("argocd", app, git_url));
        text.push_str("---\n");
    }
    let outside =
        App { name: "foreign-outside", project: "foreign-data", metadata: FINALIZER, spec: MANUAL, path: "plain" };
    text.push_str(&application(OTHER_NAMESPACE, &outside, git_url));
    let _ = write!(
        text,
        "---
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata:
  name: foreign-nowhere
  namespace: argocd
spec:
  project: foreign-data
  destination: {{name: no-such-cluster, namespace: default}}
  source: {{repoURL: {git_url}, path: plain, targetRevision: main}}
---
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata:
  name: foreign-multi-source
  namespace: argocd
spec:
  project: foreign-data
  destination: {{server: https://kubernetes.default.svc, namespace: foreign-multi-source}}
  sources:
    - {{repoURL: {git_url}, path: plain, targetRevision: main}}
    - {{repoURL: {git_url}, path: second, targetRevision: main}}
  syncPolicy:
    syncOptions: [CreateNamespace=true]
---
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata:
  name: foreign-helm
  namespace: argocd
spec:
  project: foreign-data
  destination: {{server: https://kubernetes.default.svc, namespace: foreign-helm}}
  source: {{repoURL: https://charts.example.invalid, chart: nothing, targetRevision: 1.2.x}}
---
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata:
  name: foreign-oci
  namespace: argocd
spec:
  project: foreign-data
  destination: {{server: https://kubernetes.default.svc, namespace: foreign-oci}}
  source: {{repoURL: oci://registry.example.invalid/charts/nothing, path: ., targetRevision: 1.2.3}}
---
apiVersion: argoproj.io/v1alpha1
kind: ApplicationSet
metadata:
  name: foreign-shop
  namespace: argocd
spec:
  goTemplate: true
  generators:
    - list:
        elements: [{{stage: dev}}, {{stage: staging}}, {{stage: production}}, {{stage: demo}}]
  strategy:
    type: RollingSync
    rollingSync:
      steps:
        - matchExpressions: [{{key: stage, operator: In, values: [dev]}}]
        - matchExpressions: [{{key: stage, operator: In, values: [staging]}}]
        - matchExpressions: [{{key: stage, operator: In, values: [production]}}]
  template:
    metadata:
      name: foreign-shop-{{{{.stage}}}}
      labels: {{stage: \"{{{{.stage}}}}\"}}
    spec:
      project: foreign-shop
      destination: {{server: https://kubernetes.default.svc, namespace: \"foreign-shop-{{{{.stage}}}}\"}}
      source: {{repoURL: {git_url}, path: plain, targetRevision: main}}
      syncPolicy:
        syncOptions: [CreateNamespace=true]
"
    );
    text
}

fn application(namespace: &str, app: &App, git_url: &str) -> String {
    let App { name, project, metadata, spec, path } = app;
    // A namespace has at most 63 characters.
    let place: String = name.chars().take(63).collect();
    let place = place.trim_end_matches('-');
    format!(
        "apiVersion: argoproj.io/v1alpha1
kind: Application
metadata:
  name: {name}
  namespace: {namespace}
{metadata}spec:
  project: {project}
  destination: {{server: https://kubernetes.default.svc, namespace: {place}}}
  source: {{repoURL: {git_url}, path: {path}, targetRevision: main}}
{spec}"
    )
}

/// The files of the Git repository, which is read at branch `main`. The children of the app-of-apps name the repository too, so
/// its address is needed.
pub fn repository(git_url: &str) -> Vec<(String, String)> {
    let config_map =
        |name: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  who: foreign\n");
    let mut files = vec![
        ("plain/config.yaml".to_owned(), config_map("plain")),
        ("second/config.yaml".to_owned(), config_map("second")),
        ("empty/README.md".to_owned(), "Nothing to deploy.\n".to_owned()),
        (
            "shared/config.yaml".to_owned(),
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: foreign-shared\n  namespace: default\ndata:\n  who: both\n".to_owned(),
        ),
        ("hooks/config.yaml".to_owned(), config_map("hooks")),
        (
            "hooks/presync.yaml".to_owned(),
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: presync\n  annotations: {argocd.argoproj.io/hook: PreSync}\ndata: {}\n".to_owned(),
        ),
        // A kind that the cluster does not serve: the comparison fails, and Argo CD says so.
        ("broken/unknown.yaml".to_owned(), "apiVersion: foreign.example.com/v1\nkind: NoSuchKind\nmetadata:\n  name: x\n".to_owned()),
        ("widgets/crd.yaml".to_owned(), definition("widgets", "Widget", "foreign.example.com")),
        ("gadgets/crd.yaml".to_owned(), definition("gadgets", "Gadget", "foreign.example.com")),
        ("uses-widgets/widget.yaml".to_owned(), resource("foreign.example.com", "Widget")),
        ("uses-gadgets/gadget.yaml".to_owned(), resource("foreign.example.com", "Gadget")),
        ("circle-one/crd.yaml".to_owned(), definition("ones", "One", "one.foreign.example.com")),
        ("circle-one/two.yaml".to_owned(), resource("two.foreign.example.com", "Two")),
        ("circle-two/crd.yaml".to_owned(), definition("twos", "Two", "two.foreign.example.com")),
        ("circle-two/one.yaml".to_owned(), resource("one.foreign.example.com", "One")),
    ];
    for (folder, children) in [("root", CHILDREN), ("monitoring", GRANDCHILDREN)] {
        for (name, wave, path) in children {
            let metadata = format!("  annotations: {{argocd.argoproj.io/sync-wave: \"{wave}\"}}\n{FINALIZER}");
            files.push((format!("{folder}/{name}.yaml"), child(name, &metadata, path, git_url)));
        }
    }
    files.push(("root/tenants.yaml".to_owned(), tenants(git_url)));
    files
}

fn child(name: &str, metadata: &str, path: &str, git_url: &str) -> String {
    format!(
        "apiVersion: argoproj.io/v1alpha1
kind: Application
metadata:
  name: {name}
  namespace: argocd
{metadata}spec:
  project: foreign-platform
  destination: {{server: https://kubernetes.default.svc, namespace: {name}}}
  source: {{repoURL: {git_url}, path: {path}, targetRevision: main}}
{AUTOMATED}    retry: {{limit: 20, backoff: {{duration: 2s, factor: 1}}}}
"
    )
}

fn tenants(git_url: &str) -> String {
    format!(
        "apiVersion: argoproj.io/v1alpha1
kind: ApplicationSet
metadata:
  name: foreign-tenants
  namespace: argocd
  annotations: {{argocd.argoproj.io/sync-wave: \"1\"}}
spec:
  goTemplate: true
  generators:
    - list:
        elements: [{{tenant: a}}, {{tenant: b}}, {{tenant: c}}]
  syncPolicy: {{applicationsSync: create-update, preserveResourcesOnDeletion: true}}
  template:
    metadata:
      name: foreign-tenant-{{{{.tenant}}}}
    spec:
      project: foreign-platform
      destination: {{server: https://kubernetes.default.svc, namespace: \"foreign-tenant-{{{{.tenant}}}}\"}}
      source: {{repoURL: {git_url}, path: uses-gadgets, targetRevision: main}}
      syncPolicy:
        automated: {{prune: true}}
        syncOptions: [CreateNamespace=true]
"
    )
}

fn definition(plural: &str, kind: &str, group: &str) -> String {
    format!(
        "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: {plural}.{group}
spec:
  group: {group}
  scope: Namespaced
  names: {{plural: {plural}, singular: {}, kind: {kind}}}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}
",
        kind.to_ascii_lowercase()
    )
}

fn resource(group: &str, kind: &str) -> String {
    format!(
        "apiVersion: {group}/v1
kind: {kind}
metadata:
  name: main
  annotations: {{argocd.argoproj.io/sync-options: SkipDryRunOnMissingResource=true}}
spec: {{}}
"
    )
}

/// An account that may read what `forge adopt` needs and nothing else: no CustomResourceDefinitions, no settings. With a Secret
/// `<name>-token` in namespace `argocd` that holds its token.
pub fn read_only_rbac(name: &str) -> String {
    format!(
        "apiVersion: v1
kind: ServiceAccount
metadata: {{name: {name}, namespace: argocd}}
---
apiVersion: v1
kind: Secret
type: kubernetes.io/service-account-token
metadata:
  name: {name}-token
  namespace: argocd
  annotations: {{kubernetes.io/service-account.name: {name}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: {name}}}
rules:
  - apiGroups: [argoproj.io]
    resources: [applications, applicationsets, appprojects]
    verbs: [get, list]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: {name}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {name}}}
subjects: [{{kind: ServiceAccount, name: {name}, namespace: argocd}}]
"
    )
}

/// How many Applications there are once the app-of-apps and the ApplicationSets have made theirs.
pub const APPLICATIONS: usize = APPS.len() + CHILDREN.len() + GRANDCHILDREN.len() + OTHERS + TENANTS + STAGES;
const OTHERS: usize = 5;
const TENANTS: usize = 3;
const STAGES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use forge_core::yaml::{Dialect, Limits, read};

    #[test]
    fn every_manifest_is_yaml_and_every_application_reads_a_folder_that_is_there() {
        let url = "https://git.example.com/foreign.git";
        let files = repository(url);
        let folders: Vec<&str> = files.iter().filter_map(|(path, _)| path.split('/').next()).collect();
        let mut texts = vec![manifests(url), read_only_rbac("reader")];
        texts.extend(files.iter().filter(|(path, _)| path.ends_with(".yaml")).map(|(_, text)| text.clone()));
        let mut applications = 0;
        for text in &texts {
            let stream = read(text, Dialect::Kubernetes, Limits::FILE);
            assert!(stream.problems.is_empty(), "{text}\n{:?}", stream.problems);
            for document in &stream.documents {
                let json = document.to_json();
                applications += usize::from(json["kind"] == "Application");
                let path = json.pointer("/spec/source/path").and_then(serde_json::Value::as_str);
                assert!(path.is_none_or(|path| path == "." || folders.contains(&path)), "{text}");
            }
        }
        assert_eq!(applications + TENANTS + STAGES, APPLICATIONS);
    }
}
