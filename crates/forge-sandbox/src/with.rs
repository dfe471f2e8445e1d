//! `up --with`: charts that are installed by plain Helm from the cache, every image by digest from the sandbox's registry.

use std::time::Duration;

use clap::ValueEnum;
use forge_core::install::{merged, tuned};
use forge_core::preflight::Component;
use serde_json::{Value, json};

use crate::build::{BuildError, Built};
use crate::cluster::Cluster;
use crate::component::GOGC;
use crate::error::UpError;
use crate::program::Program;

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

    /// What a sandbox without a way out needs (images that are there, and nothing that wants more), over what Forge needs to
    /// find in an Argo that somebody else installed: an account with few rights, executor plugins, and no pauses that
    /// would be measured as ours.
    fn values(self, built: &Built) -> Result<Value, BuildError> {
        let tag = |name: &str| built.image(name).map(|image| format!("{}@{}", image.tag, image.digest));
        let whole = |name: &str| built.image(name).map(|image| format!("{}@{}", image.repository, image.digest));
        let with = |component: Component, own: Value| merged(tuned(component, self.namespace()), &own);
        Ok(match self {
            Self::ArgoCd => with(
                Component::Cd,
                json!({
                    "global": {"image": {"tag": tag("argocd")?}},
                    "redis": {"image": {"tag": tag("redis")?}},
                    "redisSecretInit": {"enabled": true},
                    "controller": {"env": [memory()]},
                    "server": {"env": [memory()]},
                    "repoServer": {"env": [memory()]},
                    "configs": {"params": {"server.insecure": true}},
                }),
            ),
            Self::ArgoWorkflows => {
                let mut values = with(
                    Component::Workflows,
                    json!({
                        "controller": {"image": {"tag": tag("workflow-controller")?}},
                        "workflow": {"serviceAccount": {"create": true}, "rbac": {"agentPermissions": true}},
                        "executor": {"image": {"tag": tag("argoexec")?}},
                    }),
                );
                // A list is replaced and not joined by what lies over it.
                if let Some(Value::Array(variables)) = values.pointer_mut("/controller/extraEnv") {
                    variables.push(memory());
                }
                values
            }
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
