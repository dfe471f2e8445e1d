//! Which cluster, and as whom: flag over environment over the usual places (SPEC.md section 5).

use std::path::PathBuf;

use base64::Engine as _;
use clap::Args;
use forge_core::code::Code;
use forge_core::executor::Access;
use forge_core::failure::Failure;
use forge_core::name::clip;
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
                let text = decoded(&data);
                let text = text.ok_or_else(|| unusable("FORGE_KUBECONFIG_DATA is not base64 of a kubeconfig"))?;
                Some(Kubeconfig::from_yaml(&text).map_err(|error| unusable(&chain(&error)))?)
            }
            (None, None) => None,
        };
        let (config, context) = match kubeconfig {
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
        Self::with(config, context.unwrap_or_else(|| "the default context".to_owned()))
    }

    /// Connects as the executor was told to: by a kubeconfig, or with the account of the pod. Nothing else is looked at.
    ///
    /// # Errors
    /// When the kubeconfig, or the account, cannot be used.
    pub(crate) async fn reach(access: &Access, variable: &str) -> Result<Self, Failure> {
        let wrong = |why: String| Failure::new(Code::InvalidInput, why).hint("a kubeconfig with a current context");
        let kubeconfig = match access {
            Access::InCluster => {
                let config = kube::Config::incluster().map_err(|error| {
                    Failure::new(Code::NeedsCluster, format!("no cluster: {}", chain(&error)))
                        .hint("run it in a pod with an account, or give a kubeconfig")
                })?;
                return Self::with(config, "in-cluster".to_owned());
            }
            Access::Path(path) => Kubeconfig::read_from(path)
                .map_err(|error| wrong(format!("`{}` is no kubeconfig: {}", clip(path), chain(&error))))?,
            // What is wrong with it is not said in its own words, because they may be a secret.
            Access::Data(data) => decoded(data.expose())
                .and_then(|text| Kubeconfig::from_yaml(&text).ok())
                .ok_or_else(|| wrong(format!("{variable} is not base64 of a kubeconfig")))?,
        };
        let context = kubeconfig.current_context.clone().unwrap_or_else(|| "the default context".to_owned());
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let config = config.map_err(|error| wrong(format!("the kubeconfig cannot be used: {}", chain(&error))))?;
        Self::with(config, context)
    }

    fn with(mut config: kube::Config, context: String) -> Result<Self, Failure> {
        // Streams are quiet for long; requests have a patience of their own.
        config.read_timeout = None;
        config.connect_timeout = Some(std::time::Duration::from_secs(5));
        let client = kube::Client::try_from(config).map_err(|error| unusable(&chain(&error)))?;
        Ok(Self { client, context })
    }
}

/// A text that came as base64, in one line or several.
fn decoded(data: &str) -> Option<String> {
    let data: String = data.split_whitespace().collect();
    String::from_utf8(base64::engine::general_purpose::STANDARD.decode(data).ok()?).ok()
}

fn unusable(message: &str) -> Failure {
    Failure::new(Code::NeedsCluster, format!("no cluster: {message}"))
        .hint("name a kubeconfig with --kubeconfig or KUBECONFIG, and a context with --context; no cluster at hand: `forge sandbox up`")
}
