//! The small platform of `forge demo`: ten applications whose every node is an Application on a plain folder of one Git
//! repository. A pod needs no program of ours: how long one takes to be healthy is said by `minReadySeconds`, so that the
//! order can be seen with any image that does nothing.
//!
//! Everything is named after the environment and carries its labels, so that what was made can be told from what was
//! there (INV-11).

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{File, quote};
use crate::format::API_VERSION;
use crate::render::{ENVIRONMENT_LABEL, MANAGED_BY};
use crate::yaml;

/// The environment, which is also the AppProject and the start of every name.
pub const ENVIRONMENT: &str = "forge-demo";
/// What runs in the pods unless another image is named: it waits.
pub const SAMPLE_IMAGE: &str =
    "registry.k8s.io/pause:3.10@sha256:ee6521f290b2168b6e0935a181d4cff9be1ac3f505666ef0e3c98fae8199917a";
/// How Argo CD names the cluster that it runs in.
const IN_CLUSTER: &str = "https://kubernetes.default.svc";

/// What the demo is made for.
#[derive(Debug, Clone)]
pub struct Demo<'d> {
    /// The repository, as Argo CD reads it.
    pub url: &'d str,
    /// The branch.
    pub branch: &'d str,
    /// The image of all pods.
    pub image: &'d str,
    /// The namespace of Argo CD.
    pub argocd: &'d str,
}

struct Node {
    name: &'static str,
    after: &'static [&'static str],
    /// Seconds from its start to its health.
    seconds: u32,
}

struct Stack {
    name: &'static str,
    nodes: &'static [Node],
}

const fn node(name: &'static str, after: &'static [&'static str], seconds: u32) -> Node {
    Node { name, after, seconds }
}

const STACKS: &[Stack] = &[
    Stack { name: "foundation", nodes: &[node("network", &[], 3), node("secrets", &["network"], 4)] },
    Stack {
        name: "data",
        nodes: &[
            node("storage", &["network"], 6),
            node("database", &["storage", "secrets"], 10),
            node("queue", &["storage"], 5),
        ],
    },
    Stack {
        name: "shop",
        nodes: &[
            node("catalog", &["database"], 4),
            node("orders", &["database", "queue"], 6),
            node("payments", &["database", "secrets"], 5),
            node("storefront", &["catalog", "orders", "payments"], 4),
        ],
    },
    Stack { name: "observability", nodes: &[node("dashboards", &["network"], 8)] },
];

fn nodes() -> impl Iterator<Item = &'static Node> {
    STACKS.iter().flat_map(|stack| stack.nodes)
}

/// The Application of a node, which is also its namespace.
fn application_name(node: &str) -> String {
    format!("{ENVIRONMENT}-{node}")
}

/// The names of all Applications, and of their namespaces, each after all that it waits for.
pub fn names() -> Vec<String> {
    nodes().map(|node| application_name(node.name)).collect()
}

/// What the demo made carries these labels.
pub fn is_ours(object: &Value) -> bool {
    let labels = object.pointer("/metadata/labels");
    let label = |name: &str| labels.and_then(|labels| labels.get(name)).and_then(Value::as_str);
    label(MANAGED_BY) == Some("forge") && label(ENVIRONMENT_LABEL) == Some(ENVIRONMENT)
}

impl Demo<'_> {
    /// The repository, sorted by path.
    pub fn files(&self) -> Vec<File> {
        let file = |path: &str, text: String| File { path: path.to_owned(), text };
        let documents: Vec<String> = self.applications().iter().map(yaml::write).collect();
        let mut files = vec![
            file("forge.yaml", self.installation()),
            file("graph.yaml", self.graph()),
            file("argocd/applications.yaml", documents.join("---\n")),
        ];
        for node in nodes() {
            files.push(file(&format!("apps/{}/deployment.yaml", node.name), yaml::write(&self.deployment(node))));
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files
    }

    fn installation(&self) -> String {
        format!(
            "apiVersion: {API_VERSION}
kind: Forge
spec:
  registry: registry.example.com/releases
  repository: {{url: {}, branch: {}}}
  argo: {{cd: existing, workflows: existing, events: none, namespace: {}}}
  environments:
    - {{name: {ENVIRONMENT}, cluster: in-cluster, sync: auto}}
",
            quote(self.url),
            quote(self.branch),
            self.argocd
        )
    }

    fn graph(&self) -> String {
        let mut text = format!(
            "apiVersion: {API_VERSION}
kind: DependencyGraph
spec:
  defaults:
    timeouts: {{sync: 2m, health: 2m}}
    retry: {{limit: 1, backoff: 5s, factor: 2, max: 1m}}
  timeout: 30m
  stacks:
"
        );
        for (layer, stack) in STACKS.iter().enumerate() {
            let _ = writeln!(text, "    - name: {}\n      layer: {layer}\n      apps:", stack.name);
            for node in stack.nodes {
                let id = |name: &str| format!("{}/{}", self.argocd, application_name(name));
                let _ = writeln!(text, "        - application: {}", id(node.name));
                if !node.after.is_empty() {
                    let after: Vec<String> = node.after.iter().map(|name| id(name)).collect();
                    let _ = writeln!(text, "          dependsOn: [{}]", after.join(", "));
                }
            }
        }
        text
    }

    /// The Applications, each after all that it waits for. Removing one removes what it deployed.
    pub fn applications(&self) -> Vec<Value> {
        let labels = json!({MANAGED_BY: "forge", ENVIRONMENT_LABEL: ENVIRONMENT});
        let application = |node: &Node| {
            let name = application_name(node.name);
            json!({
                "apiVersion": "argoproj.io/v1alpha1",
                "kind": "Application",
                "metadata": {
                    "name": name, "namespace": self.argocd, "labels": labels,
                    "finalizers": ["resources-finalizer.argocd.argoproj.io"],
                },
                "spec": {
                    "project": ENVIRONMENT,
                    "source": {
                        "repoURL": self.url, "targetRevision": self.branch, "path": format!("apps/{}", node.name),
                    },
                    "destination": {"server": IN_CLUSTER, "namespace": name},
                    "syncPolicy": {
                        "automated": {"prune": true, "selfHeal": true},
                        "managedNamespaceMetadata": {"labels": labels},
                        "syncOptions": ["CreateNamespace=true"],
                    },
                },
            })
        };
        nodes().map(application).collect()
    }

    fn deployment(&self, node: &Node) -> Value {
        let labels = json!({"app.kubernetes.io/name": node.name, "app.kubernetes.io/part-of": ENVIRONMENT});
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": node.name, "labels": labels},
            "spec": {
                "replicas": 1,
                "minReadySeconds": node.seconds,
                // A failed roll-out is Degraded after this and not after ten minutes.
                "progressDeadlineSeconds": 60,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "automountServiceAccountToken": false,
                        "terminationGracePeriodSeconds": 1,
                        "securityContext": {
                            "runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"},
                        },
                        "containers": [{
                            "name": "sample",
                            "image": self.image,
                            "securityContext": {
                                "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                                "capabilities": {"drop": ["ALL"]},
                            },
                            "resources": {
                                "requests": {"cpu": "5m", "memory": "8Mi"}, "limits": {"memory": "32Mi"},
                            },
                        }],
                    },
                },
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEMO: Demo<'static> =
        Demo { url: "https://git.example.com/demo.git", branch: "main", image: SAMPLE_IMAGE, argocd: "argocd" };

    #[test]
    fn every_node_comes_after_all_that_it_waits_for() {
        let mut seen: Vec<&str> = Vec::new();
        for node in nodes() {
            assert!(node.after.iter().all(|name| seen.contains(name)), "{}", node.name);
            assert!(node.seconds < 60, "{} would be called degraded", node.name);
            seen.push(node.name);
        }
    }

    #[test]
    fn applications_and_folders_are_those_of_the_names() {
        let applications = DEMO.applications();
        assert!(applications.iter().all(is_ours));
        let named: Vec<_> = applications.iter().map(|a| a["metadata"]["name"].as_str().unwrap().to_owned()).collect();
        assert_eq!(named, names());
        let files = DEMO.files();
        for application in &applications {
            let folder = application["spec"]["source"]["path"].as_str().unwrap();
            assert!(files.iter().any(|file| file.path == format!("{folder}/deployment.yaml")), "{folder}");
        }
    }
}
