//! The components of a sandbox: what each is started with, which files it reads, and how its health is asked.
//!
//! Order matters: a component is started when those before it serve, except where they are started together.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::build::{BuildError, Built};
use crate::folder::Folder;
use crate::health::Check;
use crate::init::Start;
use crate::pki;
use crate::range::Range;

/// Go collects garbage when the heap has grown by so many percent: a sandbox has memory, and is short of processors.
pub(crate) const GOGC: &str = "400";

/// What components are made from.
#[derive(Debug)]
pub struct Context<'c> {
    /// Of the sandbox.
    pub folder: &'c Folder,
    /// Its addresses.
    pub range: Range,
    /// Programs and images.
    pub built: &'c Built,
    /// True if there are simulated nodes.
    pub simulate: bool,
}

/// A process of the sandbox.
#[derive(Debug)]
pub struct Component {
    /// How it is started.
    pub start: Start,
    /// How its health is asked.
    pub check: Check,
    /// Those with the same number are started together.
    pub step: u8,
}

impl Component {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.start.name
    }
}

/// Ports at the address of the node.
pub mod port {
    /// The API server.
    pub const API: u16 = 6443;
    /// The registry.
    pub const REGISTRY: u16 = 5000;
    /// The Git server.
    pub const GIT: u16 = 3000;
    /// The provisioner's health.
    pub const PROVISIONER: u16 = 10270;
    /// KWOK's health.
    pub const KWOK: u16 = 10247;
}

/// The name of the real node.
pub const NODE: &str = "sandbox";

impl Context<'_> {
    /// All components, in order.
    pub fn components(&self) -> Vec<Component> {
        let node = self.range.node();
        let http = |port: u16, path: &str| Check::Http { address: (node, port).into(), path: path.to_owned() };
        let raw = |port: u16| Check::Raw { server: format!("https://{node}:{port}"), path: "/healthz" };
        let mut all = vec![
            self.component(0, "etcd", &self.built.kubernetes, self.etcd(), http(2381, "/health")),
            self.component(0, "containerd", Path::new("/usr/bin"), self.containerd(), Check::Containerd),
            self.component(0, "registry", &self.built.services, self.registry(), http(port::REGISTRY, "/v2/")),
            self.component(0, "git-server", &self.built.services, self.git(), http(port::GIT, "/healthz")),
            self.component(1, "kube-apiserver", &self.built.kubernetes, self.apiserver(), Check::Api),
            self.component(2, "kubelet", &self.built.kubernetes, self.kubelet(), http(10248, "/healthz")),
            self.component(2, "kube-controller-manager", &self.built.kubernetes, self.controllers(), raw(10257)),
            self.component(2, "kube-scheduler", &self.built.kubernetes, self.scheduler(), raw(10259)),
            self.component(2, "kube-proxy", &self.built.kubernetes, self.proxy(), http(10256, "/healthz")),
            self.component(
                3,
                "provisioner",
                &self.built.services,
                self.provisioner(),
                http(port::PROVISIONER, "/healthz"),
            ),
        ];
        if self.simulate {
            let folder = self.built.kwok.parent().unwrap_or(Path::new("/"));
            all.push(self.component(3, "kwok", folder, self.kwok(), http(port::KWOK, "/healthz")));
        }
        all
    }

    fn component(&self, step: u8, name: &str, folder: &Path, args: Vec<String>, check: Check) -> Component {
        let path =
            format!("{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", self.built.kubernetes.display());
        let env = [("PATH", path.as_str()), ("HOME", "/tmp"), ("GOGC", GOGC)];
        let env: BTreeMap<String, String> = env.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        let start = Start { name: name.to_owned(), program: folder.join(name), args, env, log: self.folder.log(name) };
        Component { start, check, step }
    }

    fn data(&self, name: &str) -> String {
        self.folder.join("data").join(name).display().to_string()
    }

    fn pki(&self, name: &str) -> String {
        self.folder.pki().join(name).display().to_string()
    }

    fn config(&self, name: &str) -> String {
        self.folder.join("etc").join(name).display().to_string()
    }

    fn etcd(&self) -> Vec<String> {
        let node = self.range.node();
        args(&[
            ("name", "sandbox"),
            ("data-dir", &self.data("etcd")),
            ("listen-client-urls", "http://127.0.0.1:2379"),
            ("advertise-client-urls", "http://127.0.0.1:2379"),
            ("listen-peer-urls", "http://127.0.0.1:2380"),
            ("initial-advertise-peer-urls", "http://127.0.0.1:2380"),
            ("initial-cluster", "sandbox=http://127.0.0.1:2380"),
            ("listen-metrics-urls", &format!("http://{node}:2381")),
            // A sandbox survives the death of any process; it need not survive a power cut.
            ("unsafe-no-fsync", "true"),
            ("log-level", "warn"),
        ])
    }

    fn containerd(&self) -> Vec<String> {
        args(&[("config", &self.config("containerd.toml"))])
    }

    fn registry(&self) -> Vec<String> {
        args(&[("listen", &format!("0.0.0.0:{}", port::REGISTRY)), ("root", &self.data("registry"))])
    }

    fn git(&self) -> Vec<String> {
        args(&[
            ("listen", &format!("0.0.0.0:{}", port::GIT)),
            ("root", &self.data("git")),
            ("users", &self.pki("git-users")),
            ("anonymous-read", "true"),
        ])
    }

    fn apiserver(&self) -> Vec<String> {
        args(&[
            ("advertise-address", &self.range.node().to_string()),
            ("secure-port", &port::API.to_string()),
            ("etcd-servers", "http://127.0.0.1:2379"),
            ("service-cluster-ip-range", &self.range.services().to_string()),
            ("tls-cert-file", &self.pki("apiserver.crt")),
            ("tls-private-key-file", &self.pki("apiserver.key")),
            ("client-ca-file", &self.pki("ca.crt")),
            ("token-auth-file", &self.pki("tokens.csv")),
            ("authorization-mode", "Node,RBAC"),
            ("enable-admission-plugins", "NodeRestriction"),
            ("allow-privileged", "true"),
            ("service-account-issuer", "https://kubernetes.default.svc.cluster.local"),
            ("service-account-key-file", &self.pki("sa.pub")),
            ("service-account-signing-key-file", &self.pki("sa.key")),
            // Without these two `logs` and `exec` do not reach the kubelet.
            ("kubelet-client-certificate", &self.pki("apiserver-kubelet-client.crt")),
            ("kubelet-client-key", &self.pki("apiserver-kubelet-client.key")),
            ("kubelet-certificate-authority", &self.pki("ca.crt")),
            ("kubelet-preferred-address-types", "InternalIP"),
            ("requestheader-client-ca-file", &self.pki("front-proxy-ca.crt")),
            ("requestheader-allowed-names", "front-proxy-client"),
            ("requestheader-extra-headers-prefix", "X-Remote-Extra-"),
            ("requestheader-group-headers", "X-Remote-Group"),
            ("requestheader-username-headers", "X-Remote-User"),
            ("proxy-client-cert-file", &self.pki("front-proxy-client.crt")),
            ("proxy-client-key-file", &self.pki("front-proxy-client.key")),
            ("enable-aggregator-routing", "true"),
            ("audit-policy-file", &self.config("audit.json")),
            ("audit-log-path", &self.folder.log("audit").display().to_string()),
            ("audit-log-maxsize", "100"),
            ("audit-log-maxbackup", "3"),
            ("profiling", "false"),
        ])
    }

    fn controllers(&self) -> Vec<String> {
        let kubeconfig = self.pki("kube-controller-manager.kubeconfig");
        let mut all = self.controller("kube-controller-manager");
        all.extend(args(&[
            ("root-ca-file", &self.pki("ca.crt")),
            ("service-account-private-key-file", &self.pki("sa.key")),
            ("cluster-signing-cert-file", &self.pki("ca.crt")),
            ("cluster-signing-key-file", &self.pki("ca.key")),
            ("use-service-account-credentials", "true"),
            ("kube-api-qps", "200"),
            ("kube-api-burst", "400"),
            ("client-ca-file", &self.pki("ca.crt")),
            ("kubeconfig", &kubeconfig),
        ]));
        all
    }

    fn scheduler(&self) -> Vec<String> {
        let kubeconfig = self.pki("kube-scheduler.kubeconfig");
        let mut all = self.controller("kube-scheduler");
        all.extend(args(&[("kubeconfig", &kubeconfig), ("kube-api-qps", "200"), ("kube-api-burst", "400")]));
        all
    }

    /// What controller manager and scheduler have in common.
    fn controller(&self, name: &str) -> Vec<String> {
        let kubeconfig = self.pki(&format!("{name}.kubeconfig"));
        args(&[
            ("authentication-kubeconfig", &kubeconfig),
            ("authorization-kubeconfig", &kubeconfig),
            ("leader-elect", "false"),
            ("profiling", "false"),
            ("tls-cert-file", &self.pki("controllers.crt")),
            ("tls-private-key-file", &self.pki("controllers.key")),
        ])
    }

    fn kubelet(&self) -> Vec<String> {
        args(&[
            ("config", &self.config("kubelet.json")),
            ("kubeconfig", &self.pki("kubelet.kubeconfig")),
            ("root-dir", &self.data("kubelet")),
            ("hostname-override", NODE),
            ("node-ip", &self.range.node().to_string()),
        ])
    }

    fn proxy(&self) -> Vec<String> {
        args(&[("config", &self.config("kube-proxy.json")), ("hostname-override", NODE)])
    }

    fn provisioner(&self) -> Vec<String> {
        args(&[
            ("kubeconfig", &self.pki("provisioner.kubeconfig")),
            ("root", &self.data("volumes")),
            ("provisioner", PROVISIONER),
            ("node", NODE),
            ("listen", &format!("0.0.0.0:{}", port::PROVISIONER)),
        ])
    }

    fn kwok(&self) -> Vec<String> {
        args(&[
            ("kubeconfig", &self.pki("kwok.kubeconfig")),
            // Stages are objects of the cluster: from a file, a kind that does not exist yet would end it.
            ("enable-crds", "Stage"),
            ("manage-nodes-with-annotation-selector", "kwok.x-k8s.io/node=fake"),
            ("server-address", &format!("0.0.0.0:{}", port::KWOK)),
            ("cidr", &self.range.simulated().to_string()),
            ("node-ip", &self.range.node().to_string()),
            ("node-port", &port::KWOK.to_string()),
            ("tls-cert-file", &self.pki("kubelet.crt")),
            ("tls-private-key-file", &self.pki("kubelet.key")),
            ("node-lease-duration-seconds", "40"),
        ])
    }

    /// The files that components read, by their name in `etc/`.
    pub fn files(&self) -> Result<Vec<(&'static str, String)>, BuildError> {
        Ok(vec![
            ("audit.json", audit().to_string()),
            ("containerd.toml", self.containerd_config()?),
            ("certs.d/_default/hosts.toml", self.registry_hosts()),
            ("cni/10-pods.conflist", self.pod_network().to_string()),
            ("kubelet.json", self.kubelet_config().to_string()),
            ("kube-proxy.json", self.proxy_config().to_string()),
            // For pods that want the node's own resolver: it has none, because there is nowhere to ask.
            ("resolv.conf", "search .\n".to_owned()),
        ])
    }

    fn containerd_config(&self) -> Result<String, BuildError> {
        let pause = self.built.image("pause")?;
        let pause = format!("{}@{}", pause.repository, pause.digest);
        let node = self.range.node();
        Ok(format!(
            r#"version = 2
root = "{root}"
state = "/run/containerd"
oom_score = 0
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd-opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{node}:{registry}/{pause}"
  restrict_oom_score_adj = true
  enable_unprivileged_ports = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{cni}"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{certs}"
"#,
            root = self.data("containerd"),
            cni = self.config("cni"),
            certs = self.config("certs.d"),
            registry = port::REGISTRY,
        ))
    }

    /// Whatever registry an image names, it comes from ours.
    fn registry_hosts(&self) -> String {
        format!(
            "[host.\"http://{}:{}\"]\n  capabilities = [\"pull\", \"resolve\"]\n",
            self.range.node(),
            port::REGISTRY
        )
    }

    /// Each pod gets a link of its own to the node, so that all its packets pass the node's rules; over a bridge an answer
    /// of a pod to its neighbour would go round them, and services would fail between neighbours.
    fn pod_network(&self) -> Value {
        json!({
            "cniVersion": "0.4.0",
            "name": "pods",
            "plugins": [{
                "type": "ptp",
                "ipMasq": false,
                "mtu": 1500,
                "ipam": {
                    "type": "host-local",
                    "dataDir": "/run/cni-ipam",
                    "ranges": [[{"subnet": self.range.pods().to_string()}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            }],
        })
    }

    fn kubelet_config(&self) -> Value {
        json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "authentication": {
                "anonymous": {"enabled": false},
                "webhook": {"enabled": true},
                "x509": {"clientCAFile": self.pki("ca.crt")},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": self.pki("kubelet.crt"),
            "tlsPrivateKeyFile": self.pki("kubelet.key"),
            "healthzBindAddress": self.range.node().to_string(),
            "clusterDNS": [self.range.dns().to_string()],
            "clusterDomain": "cluster.local",
            "resolvConf": self.config("resolv.conf"),
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": format!("/{}", self.range.cgroup()),
            "failCgroupV1": false,
            "failSwapOn": false,
            "enforceNodeAllocatable": [],
            "localStorageCapacityIsolation": false,
            // The machine's disk is not the sandbox's to defend: it must not start to evict because of other files.
            "imageGCHighThresholdPercent": 100,
            "evictionHard": {"memory.available": "100Mi"},
            "maxPods": 250,
            "registryPullQPS": 0,
            "eventRecordQPS": 0,
            "serializeImagePulls": false,
            "volumePluginDir": "/var/lib/kubelet-plugins",
            "registerNode": true,
            "nodeStatusUpdateFrequency": "10s",
            "kubeAPIQPS": 100,
            "kubeAPIBurst": 200,
        })
    }

    fn proxy_config(&self) -> Value {
        json!({
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "clientConnection": {"kubeconfig": self.pki("kube-proxy.kubeconfig")},
            "clusterCIDR": self.range.pods().to_string(),
            "conntrack": {"maxPerCore": 0, "min": 0},
            "healthzBindAddress": format!("{}:10256", self.range.node()),
            "metricsBindAddress": "127.0.0.1:10249",
        })
    }
}

/// The provisioner that the default StorageClass names.
pub const PROVISIONER: &str = "forge.example/local";

/// Verbs that change something.
const WRITES: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];

/// Who changed what, without bodies. Reading is not recorded, because it is most of the traffic, but for the accounts of Forge's
/// Jobs: their rights are compared with what they ask for (docs/adr/0024). Leases are renewed all the time; those of a person are
/// recorded, because whoever has nothing to do must take none.
fn audit() -> Value {
    let accounts = ["forge-executor", "forge-installer", "forge-reader", "forge-rotator"];
    let accounts = accounts.map(|name| format!("system:serviceaccount:argo:{name}"));
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "Metadata", "users": accounts},
            {"level": "Metadata", "users": [pki::ADMIN], "verbs": WRITES, "resources": [{"group": "coordination.k8s.io", "resources": ["leases"]}]},
            {"level": "None", "resources": [{"group": "coordination.k8s.io", "resources": ["leases"]}, {"group": "", "resources": ["events"]}, {"group": "events.k8s.io", "resources": ["events"]}]},
            {"level": "Metadata", "verbs": WRITES},
            {"level": "None"},
        ],
    })
}

fn args(pairs: &[(&str, &str)]) -> Vec<String> {
    pairs.iter().map(|(name, value)| format!("--{name}={value}")).collect()
}

/// The folders that must exist before anything starts.
pub const FOLDERS: [&str; 9] =
    ["logs", "etc", "data/containerd", "data/kubelet", "data/git", "data/volumes", "run", "var/log", "var/lib"];

/// Where the registry keeps its blobs.
pub fn registry_folder(folder: &Folder) -> PathBuf {
    folder.join("data/registry")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a request is recorded: the first rule that fits decides.
    fn is_recorded(user: &str, verb: &str, group: &str, resource: &str) -> bool {
        let has = |rule: &Value, key: &str, value: &str| {
            rule.get(key).and_then(Value::as_array).is_none_or(|list| list.iter().any(|one| one == value))
        };
        let of = |rule: &Value| {
            let kinds = rule.get("resources").and_then(Value::as_array);
            kinds
                .is_none_or(|kinds| kinds.iter().any(|kind| kind["group"] == group && has(kind, "resources", resource)))
        };
        let policy = audit();
        let fits = |rule: &&Value| has(rule, "users", user) && has(rule, "verbs", verb) && of(rule);
        let rule = policy["rules"].as_array().unwrap().iter().find(fits).unwrap();
        rule["level"] == "Metadata"
    }

    #[test]
    fn the_audit_log_has_writes_the_leases_of_a_person_and_all_that_jobs_of_forge_ask_for() {
        let (executor, node) = ("system:serviceaccount:argo:forge-executor", "system:node:sandbox");
        let leases = "coordination.k8s.io";
        for (user, verb, group, resource, recorded) in [
            (pki::ADMIN, "patch", "apps", "deployments", true),
            (pki::ADMIN, "get", "apps", "deployments", false),
            (pki::ADMIN, "create", leases, "leases", true),
            (pki::ADMIN, "get", leases, "leases", false),
            (pki::ADMIN, "create", "", "events", false),
            (node, "patch", "", "pods", true),
            (node, "update", leases, "leases", false),
            (executor, "get", "", "secrets", true),
            (executor, "patch", leases, "leases", true),
        ] {
            assert_eq!(is_recorded(user, verb, group, resource), recorded, "{user} {verb} {resource}");
        }
    }
}
