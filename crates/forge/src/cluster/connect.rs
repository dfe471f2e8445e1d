//! Which cluster, and as whom: flag over environment over the usual places (SPEC.md section 5).

use std::path::PathBuf;

use base64::Engine as _;
use clap::Args;
use forge_core::code::Code;
use forge_core::failure::Failure;
use kube::config::{KubeConfigOptions, Kubeconfig};

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

impl Cluster {
    /// Connects; nothing is asked of the cluster yet.
    ///
    /// # Errors
    /// When there is no kubeconfig, or it cannot be used.
    pub(crate) async fn connect(arguments: &ClusterArguments) -> Result<Self, Failure> {
        let options = KubeConfigOptions { context: arguments.context.clone(), ..KubeConfigOptions::default() };
        let data = std::env::var("FORGE_KUBECONFIG_DATA").ok().filter(|data| !data.is_empty());
        let kubeconfig = match (&arguments.kubeconfig, data) {
            (Some(path), _) => Some(Kubeconfig::read_from(path).map_err(|error| unusable(&chain(&error)))?),
            (None, Some(data)) => {
                let bytes = base64::engine::general_purpose::STANDARD.decode(data.trim());
                let text = bytes.ok().and_then(|bytes| String::from_utf8(bytes).ok());
                let text = text.ok_or_else(|| unusable("FORGE_KUBECONFIG_DATA is not base64 of a kubeconfig"))?;
                Some(Kubeconfig::from_yaml(&text).map_err(|error| unusable(&chain(&error)))?)
            }
            (None, None) => None,
        };
        let (mut config, context) = match kubeconfig {
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
