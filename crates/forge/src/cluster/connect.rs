//! Which cluster, and as whom: flag over environment over the usual places (SPEC.md section 5).

use std::path::PathBuf;

use base64::Engine as _;
use clap::Args;
use forge_core::code::Code;
use forge_core::failure::Failure;
use kube::config::{KubeConfigOptions, Kubeconfig};
use secrecy::SecretString;
use serde_json::{Value, json};

use super::{Cluster, chain};

/// Which cluster.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ClusterArguments {
    /// The kubeconfig; the usual places if absent
    #[arg(long, value_name = "FILE", env = "FORGE_KUBECONFIG_PATH")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context in it; the current one if absent
    #[arg(long, value_name = "NAME", env = "FORGE_CONTEXT")]
    pub(crate) context: Option<String>,
    /// The namespace of Argo Workflows, where runs are recorded
    #[arg(long, value_name = "NAMESPACE", default_value = "argo", env = "FORGE_WORKFLOWS_NAMESPACE")]
    pub(crate) workflows_namespace: String,
}

/// Where a pod finds its own account.
const POD: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

impl ClusterArguments {
    /// The kubeconfig that is named, by a flag or as data.
    fn named(&self) -> Result<Option<Kubeconfig>, Failure> {
        let data = std::env::var("FORGE_KUBECONFIG_DATA").ok().filter(|data| !data.is_empty());
        Ok(match (&self.kubeconfig, data) {
            (Some(path), _) => Some(Kubeconfig::read_from(path).map_err(|error| unusable(&chain(&error)))?),
            (None, Some(data)) => {
                let bytes = base64::engine::general_purpose::STANDARD.decode(data.trim());
                let text = bytes.ok().and_then(|bytes| String::from_utf8(bytes).ok());
                let text = text.ok_or_else(|| unusable("FORGE_KUBECONFIG_DATA is not base64 of a kubeconfig"))?;
                Some(Kubeconfig::from_yaml(&text).map_err(|error| unusable(&chain(&error)))?)
            }
            (None, None) => None,
        })
    }

    /// One kubeconfig for a program that is to meet the same cluster as the same account: the one that is named, that of the
    /// usual places, or that of the pod. It holds whatever credentials it was given.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn for_programs(&self) -> Result<SecretString, Failure> {
        let found = match self.named()? {
            Some(named) => Ok(named),
            None => Kubeconfig::read(),
        };
        let text = match found {
            Ok(mut kubeconfig) => {
                if self.context.is_some() {
                    kubeconfig.current_context.clone_from(&self.context);
                }
                serde_json::to_string(&kubeconfig).map_err(|error| unusable(&error.to_string()))?
            }
            Err(error) if self.context.is_some() => return Err(unusable(&chain(&error))),
            Err(error) => in_pod().ok_or_else(|| unusable(&chain(&error)))?.to_string(),
        };
        Ok(SecretString::from(text))
    }
}

/// The pod's own account: the token stays in its file, because it is renewed there.
fn in_pod() -> Option<Value> {
    let host = std::env::var("KUBERNETES_SERVICE_HOST").ok()?;
    let port = std::env::var("KUBERNETES_SERVICE_PORT").ok()?;
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let cluster = json!({"server": format!("https://{host}:{port}"), "certificate-authority": format!("{POD}/ca.crt")});
    Some(json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "pod",
        "clusters": [{"name": "pod", "cluster": cluster}],
        "contexts": [{"name": "pod", "context": {"cluster": "pod", "user": "pod"}}],
        "users": [{"name": "pod", "user": {"tokenFile": format!("{POD}/token")}}],
    }))
}

impl Cluster {
    /// Connects; nothing is asked of the cluster yet.
    ///
    /// # Errors
    /// When there is no kubeconfig, or it cannot be used.
    pub(crate) async fn connect(arguments: &ClusterArguments) -> Result<Self, Failure> {
        let options = KubeConfigOptions { context: arguments.context.clone(), ..KubeConfigOptions::default() };
        let (mut config, context) = match arguments.named()? {
            Some(kubeconfig) => {
                let context = arguments.context.clone().or_else(|| kubeconfig.current_context.clone());
                let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
                (config.map_err(|error| unusable(&chain(&error)))?, context)
            }
            None if arguments.context.is_some() => {
                let config = kube::Config::from_kubeconfig(&options).await;
                (config.map_err(|error| unusable(&chain(&error)))?, arguments.context.clone())
            }
            None => (kube::Config::infer().await.map_err(|error| unusable(&chain(&error)))?, None),
        };
        // Streams are quiet for long; requests have a patience of their own.
        config.read_timeout = None;
        config.connect_timeout = Some(std::time::Duration::from_secs(5));
        let client = kube::Client::try_from(config).map_err(|error| unusable(&chain(&error)))?;
        Ok(Self { client, context: context.unwrap_or_else(|| "the default context".to_owned()) })
    }
}

fn unusable(message: &str) -> Failure {
    Failure::new(Code::NeedsCluster, format!("no cluster: {message}"))
        .hint("name a kubeconfig with --kubeconfig or KUBECONFIG, and a context with --context; no cluster at hand: `forge sandbox up`")
}
