//! `up --with`: charts that are installed by plain Helm from the cache, every image by digest from the sandbox's registry.

use std::time::Duration;

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::build::{BuildError, Built};
use crate::cluster::Cluster;
use crate::component::GOGC;
use crate::error::UpError;
use crate::program::Program;

/// What the account `forge` of Argo CD may do: see and sync Applications, see projects, and nothing else.
const FORGE_POLICY: &str = "\
p, forge, applications, get, */*, allow
p, forge, applications, sync, */*, allow
p, forge, projects, get, *, allow
";

/// A chart that can be installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Addition {
    /// Argo CD, in namespace argocd
    ArgoCd,
    /// The controller of Argo Workflows, in namespace argo
    ArgoWorkflows,
    /// The controller of Argo Events, in namespace argo-events
    ArgoEvents,
    /// Crossplane, in namespace crossplane-system
    Crossplane,
}

impl Addition {
    /// In the order of installation.
    pub const ALL: [Self; 4] = [Self::ArgoCd, Self::ArgoWorkflows, Self::ArgoEvents, Self::Crossplane];

    /// The name of the chart and of the release.
    pub fn name(self) -> &'static str {
        match self {
            Self::ArgoCd => "argo-cd",
            Self::ArgoWorkflows => "argo-workflows",
            Self::ArgoEvents => "argo-events",
            Self::Crossplane => "crossplane",
        }
    }

    fn namespace(self) -> &'static str {
        match self {
            Self::ArgoCd => "argocd",
            Self::ArgoWorkflows => "argo",
            Self::ArgoEvents => "argo-events",
            Self::Crossplane => "crossplane-system",
        }
    }

    /// Installs it, or makes it as it should be, and waits until it is ready.
    pub fn install(self, cluster: &Cluster, built: &Built) -> Result<(), UpError> {
        let values = self.values(built)?;
        // A Helm that was killed leaves a release that is pending, and no other Helm touches it.
        let pending =
            format!("owner=helm,name={},status in (pending-install,pending-upgrade,pending-rollback)", self.name());
        cluster.kubectl(&["delete", "secret", "-n", self.namespace(), "-l", &pending]).run()?;
        // It must not go on when we are gone.
        Program::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(&built.helm)
            .args(["upgrade", "--install", self.name()])
            .arg(built.charts.join(self.name()))
            .args(["--namespace", self.namespace(), "--create-namespace", "--wait", "--timeout", "4m", "--values", "-"])
            .input(values.to_string())
            .env("KUBECONFIG", cluster.kubeconfig())
            .limit(Duration::from_secs(300))
            .run()?;
        Ok(())
    }

    /// What a sandbox without a way out needs (images that are there, and nothing that wants more), and what Forge needs to
    /// find in an Argo that somebody else installed: an account with few rights, executor plugins, and no pauses that
    /// would be measured as ours.
    fn values(self, built: &Built) -> Result<Value, BuildError> {
        let tag = |name: &str| built.image(name).map(|image| format!("{}@{}", image.tag, image.digest));
        let whole = |name: &str| built.image(name).map(|image| format!("{}@{}", image.repository, image.digest));
        Ok(match self {
            Self::ArgoCd => json!({
                "global": {"image": {"tag": tag("argocd")?}},
                "redis": {"image": {"tag": tag("redis")?}},
                "redisSecretInit": {"enabled": true},
                "controller": {"env": [memory()]},
                "server": {"env": [memory()]},
                "repoServer": {"env": [memory()]},
                "dex": {"enabled": false},
                "notifications": {"enabled": false},
                "configs": {
                    // Without it every sync wave costs two seconds.
                    "params": {"server.insecure": true, "controller.sync.wave.delay.seconds": "0"},
                    "cm": {"accounts.forge": "apiKey"},
                    "rbac": {"policy.csv": FORGE_POLICY},
                },
            }),
            Self::ArgoWorkflows => json!({
                "controller": {
                    "image": {"tag": tag("workflow-controller")?},
                    // The chart also makes a role for the account below in each of these; it would name `default` too.
                    "workflowNamespaces": [self.namespace()],
                    "extraEnv": [
                        {"name": "ARGO_EXECUTOR_PLUGINS", "value": "true"},
                        // How soon what an agent pod reported is looked at; the default is ten seconds.
                        {"name": "DEFAULT_REQUEUE_TIME", "value": "100ms"},
                        memory(),
                    ],
                    // At every look it warns of each task that has not begun: at a thousand nodes that is most of its work.
                    "logging": {"level": "error"},
                },
                "workflow": {"serviceAccount": {"create": true}, "rbac": {"agentPermissions": true}},
                "executor": {"image": {"tag": tag("argoexec")?}},
                "server": {"enabled": false},
            }),
            Self::ArgoEvents => json!({
                "global": {"image": {"tag": tag("argo-events")?}},
                "configs": {"jetstream": {"versions": [{
                    "version": "latest",
                    "natsImage": whole("nats")?,
                    "metricsExporterImage": whole("nats-exporter")?,
                    "configReloaderImage": whole("nats-config-reloader")?,
                    "startCommand": "/nats-server",
                }]}},
            }),
            Self::Crossplane => json!({"image": {"tag": tag("crossplane")?}}),
        })
    }
}

/// As [`GOGC`] has it.
fn memory() -> Value {
    json!({"name": "GOGC", "value": GOGC})
}
