//! What runs in the cluster of every sandbox, and the questions that `up` asks it: through kubectl, as a user would.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::build::{BuildError, Built, Image};
use crate::component::{NODE, PROVISIONER};
use crate::folder::Folder;
use crate::program::{Program, ProgramError};
use crate::range::Range;

/// kubectl with all rights.
#[derive(Debug, Clone)]
pub struct Cluster {
    kubectl: std::path::PathBuf,
    kubeconfig: std::path::PathBuf,
}

impl Cluster {
    /// The cluster of a sandbox.
    pub fn new(folder: &Folder, built: &Built) -> Self {
        Self { kubectl: built.kubernetes.join("kubectl"), kubeconfig: folder.kubeconfig() }
    }

    /// kubectl.
    pub fn program(&self) -> &Path {
        &self.kubectl
    }

    /// Its kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// kubectl with these arguments.
    pub fn kubectl(&self, args: &[&str]) -> Program {
        Program::new(&self.kubectl).args(args).env("KUBECONFIG", &self.kubeconfig)
    }

    /// Applies objects as the one who owns all their fields.
    pub fn apply(&self, objects: &[Value]) -> Result<(), ProgramError> {
        self.apply_text(&json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string())
    }

    fn apply_text(&self, text: &str) -> Result<(), ProgramError> {
        let apply = ["apply", "--server-side", "--force-conflicts", "--field-manager=forge-sandbox", "-f", "-"];
        self.kubectl(&apply).input(text).limit(Duration::from_secs(120)).run().map(drop)
    }

    /// A KWOK that was killed held the Leases of its nodes; the next one would wait until they have run out.
    pub fn release_leases(&self) -> Result<(), ProgramError> {
        let nodes = self.simulated_nodes()?;
        if nodes.is_empty() {
            return Ok(());
        }
        let delete = ["delete", "lease", "-n", "kube-node-lease", "--wait=false", "--ignore-not-found"];
        self.kubectl(&delete).args(nodes).run().map(drop)
    }

    /// The kind that holds what KWOK pretends.
    pub fn apply_stage_kind(&self) -> Result<(), ProgramError> {
        self.apply_text(include_str!(concat!(env!("OUT_DIR"), "/kwok-stage-crd.yaml")))
    }

    /// Nothing if that kind is served, or why it is not.
    pub fn stage_kind_served(&self) -> Result<(), String> {
        self.kubectl(&["get", "stages.kwok.x-k8s.io"]).run().map(drop).map_err(|error| error.to_string())
    }

    /// What KWOK pretends.
    pub fn apply_stages(&self) -> Result<(), ProgramError> {
        self.apply_text(include_str!(concat!(env!("OUT_DIR"), "/kwok-stages.yaml")))
    }

    /// Nothing if the real node is ready, or why it is not.
    pub fn node_ready(&self) -> Result<(), String> {
        let jsonpath = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status} {.status.conditions[?(@.type==\"Ready\")].message}";
        // An API server without its etcd holds a request for a minute; who asks wants to know now.
        let ask =
            self.kubectl(&["get", "node", NODE, "-o", jsonpath, "--request-timeout=5s"]).limit(Duration::from_secs(8));
        let said = ask.run().map_err(|error| error.to_string())?;
        match said.split_once(' ') {
            Some(("True", _)) => Ok(()),
            Some((_, why)) => Err(format!("node {NODE} is not ready: {why}")),
            None => Err(format!("node {NODE} has not reported yet")),
        }
    }

    /// The names of the simulated nodes.
    pub fn simulated_nodes(&self) -> Result<Vec<String>, ProgramError> {
        let said = self.kubectl(&["get", "nodes", "-l", "type=kwok", "-o", "name"]).run()?;
        Ok(said.lines().filter_map(|line| line.strip_prefix("node/")).map(str::to_owned).collect())
    }
}

/// The name of a simulated node.
pub fn simulated_name(number: u32) -> String {
    format!("simulated-{number}")
}

/// A node that KWOK pretends to run. The taint keeps away whatever did not ask for it.
pub fn simulated_node(number: u32) -> Value {
    let name = simulated_name(number);
    let size = json!({"cpu": "32", "memory": "256Gi", "pods": "500"});
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake", "node.alpha.kubernetes.io/ttl": "0"},
            "labels": {
                "type": "kwok",
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
                "node-role.kubernetes.io/simulated": "",
            },
        },
        "spec": {"taints": [{"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}]},
        "status": {"allocatable": size, "capacity": size},
    })
}

/// CoreDNS, the default StorageClass, and the rights of the sandbox's own identities.
pub fn addons(range: Range, built: &Built) -> Result<Vec<Value>, BuildError> {
    let mut all = rights();
    all.extend(name_server(range, built.image("coredns")?));
    all.push(json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "local", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer",
    }));
    Ok(all)
}

fn rights() -> Vec<Value> {
    let role = |name: &str, rules: Value| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules});
    let binding = |role: &str, subject: Value| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": role},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [subject],
        })
    };
    let user = |name: &str| json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name});
    let read = ["get", "list", "watch"];
    let write = ["get", "list", "watch", "create", "update", "patch", "delete"];
    vec![
        role(
            "sandbox-provisioner",
            json!([
                {"apiGroups": [""], "resources": ["persistentvolumes"], "verbs": write},
                {"apiGroups": [""], "resources": ["persistentvolumeclaims", "nodes"], "verbs": read},
                {"apiGroups": ["storage.k8s.io"], "resources": ["storageclasses"], "verbs": read},
                {"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch", "update"]},
            ]),
        ),
        binding("sandbox-provisioner", user("sandbox-provisioner")),
        // Simulation reports the status of whatever kind a stage names, and ends pods as a kubelet does.
        role(
            "sandbox-kwok",
            json!([
                {"apiGroups": ["*"], "resources": ["*"], "verbs": read},
                {"apiGroups": ["*"], "resources": ["*/status"], "verbs": ["patch"]},
                {"apiGroups": [""], "resources": ["pods"], "verbs": ["delete"]},
                {"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]},
                {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create", "update"]},
                {"apiGroups": ["kwok.x-k8s.io"], "resources": ["stages"], "verbs": ["create", "patch"]},
            ]),
        ),
        binding("sandbox-kwok", user("sandbox-kwok")),
        role(
            "sandbox-coredns",
            json!([
                {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": read},
                {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": read},
            ]),
        ),
        binding("sandbox-coredns", json!({"kind": "ServiceAccount", "name": "coredns", "namespace": "kube-system"})),
    ]
}

/// Names of the sandbox's own servers, so that what is written in Git does not depend on the range of a sandbox.
pub const GIT_NAME: &str = "git.sandbox.internal";
/// See [`GIT_NAME`].
pub const REGISTRY_NAME: &str = "registry.sandbox.internal";

fn name_server(range: Range, image: &Image) -> Vec<Value> {
    let image = format!("{REGISTRY_NAME}/{}@{}", image.repository, image.digest);
    let node = range.node();
    // Nothing is forwarded: there is nobody to ask, and a name that is not known here is not known.
    let corefile = format!(
        ".:53 {{\n  errors\n  health :8080\n  ready :8181\n  hosts {{\n    {node} {GIT_NAME} {REGISTRY_NAME}\n    fallthrough\n  }}\n  \
         kubernetes cluster.local in-addr.arpa {{\n    pods insecure\n    ttl 5\n  }}\n  prometheus :9153\n  reload\n}}\n"
    );
    let labels = json!({"k8s-app": "kube-dns"});
    let meta = |name: &str| json!({"name": name, "namespace": "kube-system", "labels": labels});
    vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta("coredns")}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("coredns"), "data": {"Corefile": corefile}}),
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": meta("coredns"),
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "serviceAccountName": "coredns",
                        "priorityClassName": "system-cluster-critical",
                        "dnsPolicy": "Default",
                        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
                        "containers": [{
                            "name": "coredns",
                            "image": image,
                            "args": ["-conf", "/etc/coredns/Corefile"],
                            "ports": [
                                {"containerPort": 53, "name": "dns", "protocol": "UDP"},
                                {"containerPort": 53, "name": "dns-tcp", "protocol": "TCP"},
                            ],
                            "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
                            "livenessProbe": {"httpGet": {"path": "/health", "port": 8080}, "initialDelaySeconds": 30},
                            "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
                            "securityContext": {
                                "allowPrivilegeEscalation": false,
                                "readOnlyRootFilesystem": true,
                                "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]},
                            },
                            "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": true}],
                        }],
                        "volumes": [{"name": "config", "configMap": {"name": "coredns"}}],
                    },
                },
            },
        }),
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": meta("kube-dns"),
            "spec": {
                "clusterIP": range.dns().to_string(),
                "selector": labels,
                "ports": [
                    {"name": "dns", "port": 53, "protocol": "UDP"},
                    {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
                    {"name": "metrics", "port": 9153, "protocol": "TCP"},
                ],
            },
        }),
    ]
}
