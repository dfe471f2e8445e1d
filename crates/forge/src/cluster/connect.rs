//! Which cluster, and as whom: flag over environment over the usual places (SPEC.md section 5).

use std::path::PathBuf;

use base64::Engine as _;
use clap::Args;
use forge_core::code::Code;
use forge_core::executor::Access;
use forge_core::failure::Failure;
use forge_core::name::clip;
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
                let text = decoded(&data);
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

/// The same for the executor, which looks at nothing but what it was told.
///
/// # Errors
/// When the kubeconfig, or the account of the pod, cannot be used.
pub(crate) fn for_programs(access: &Access, variable: &str) -> Result<SecretString, Failure> {
    let text = match told(access, variable)? {
        Some(kubeconfig) => serde_json::to_string(&kubeconfig).map_err(|error| unusable(&error.to_string()))?,
        None => in_pod().ok_or_else(|| no_account("this is no pod"))?.to_string(),
    };
    Ok(SecretString::from(text))
}

/// The kubeconfig that the executor was told; none where the account of the pod is meant.
fn told(access: &Access, variable: &str) -> Result<Option<Kubeconfig>, Failure> {
    let wrong = |why: String| Failure::new(Code::InvalidInput, why).hint("a kubeconfig with a current context");
    match access {
        Access::InCluster => Ok(None),
        Access::Path(path) => Kubeconfig::read_from(path)
            .map(Some)
            .map_err(|error| wrong(format!("`{}` is no kubeconfig: {}", clip(path), chain(&error)))),
        // What is wrong with it is not said in its own words, because they may be a secret.
        Access::Data(data) => decoded(data.expose())
            .and_then(|text| Kubeconfig::from_yaml(&text).ok())
            .map(Some)
            .ok_or_else(|| wrong(format!("{variable} is not base64 of a kubeconfig"))),
    }
}

fn no_account(why: &str) -> Failure {
    Failure::new(Code::NeedsCluster, format!("no cluster: {why}"))
        .hint("run it in a pod with an account, or give a kubeconfig")
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
        let (config, context) = match arguments.named()? {
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
        let Some(kubeconfig) = told(access, variable)? else {
            let config = kube::Config::incluster().map_err(|error| no_account(&chain(&error)))?;
            return Self::with(config, "in-cluster".to_owned());
        };
        let context = kubeconfig.current_context.clone().unwrap_or_else(|| "the default context".to_owned());
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let config = config.map_err(|error| {
            Failure::new(Code::InvalidInput, format!("the kubeconfig cannot be used: {}", chain(&error)))
                .hint("a kubeconfig with a current context")
        })?;
        Self::with(config, context)
    }

    /// At an address, as nobody in particular.
    #[cfg(test)]
    pub(crate) fn at(address: &str) -> Result<Self, Failure> {
        let address: http::Uri = address.parse().map_err(|_| unusable("this is no address"))?;
        Self::with(kube::Config::new(address), "test".to_owned())
    }

    fn with(mut config: kube::Config, context: String) -> Result<Self, Failure> {
        // Streams are quiet for long; requests have a patience of their own.
        config.read_timeout = None;
        config.connect_timeout = Some(std::time::Duration::from_secs(5));
        let made = |config| kube::Client::try_from(config).map_err(|error| unusable(&chain(&error)));
        let client = made(config.clone())?;
        config.default_retry = false;
        Ok(Self { client, plain: made(config)?, context })
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
