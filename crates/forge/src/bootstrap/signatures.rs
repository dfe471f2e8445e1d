//! What Argo CD rendered under another policy of signatures is rendered again. Argo CD keeps what the plugin wrote until Git
//! changes, whatever the mounted policy says meanwhile; so the policy that everything was rendered under is written down, and
//! where another one counts now, every Application that the plugin makes is refreshed hard.
//!
//! First, no pod may be left that still knows the one before. Kubelets bring a changed ConfigMap to a pod that runs when they get
//! to it, and nobody can see when they did; so pods that are older than the change are made anew, where Argo CD is ours, and
//! otherwise their owner is asked to. What was done is written down last.

use std::time::{Duration, Instant};

use forge_core::failure::Failure;
use forge_core::install::{
    CMP, POLICY_MAP, POLICY_SEEN, has_sidecar, outdated_pods, policy_is_seen, policy_seen, renewal, uses_plugin,
};
use forge_core::name::ApplicationId;
use forge_core::render::{Places, is_ours};
use futures::StreamExt as _;
use serde_json::Value;

use super::permitted;
use crate::account;
use crate::argocd::ArgoCd;
use crate::cluster::{Cluster, ClusterError, path};
use crate::failpoint;

/// How long pods may take to be made anew.
const PATIENCE: Duration = Duration::from_secs(300);
/// Between two looks.
const PAUSE: Duration = Duration::from_secs(1);
/// How many Applications are rendered at once.
const AT_ONCE: usize = 8;

/// The policy, and what is written down about it; nothing for whoever may not look.
async fn looked(cluster: &Cluster, places: &Places) -> Result<Option<(Option<Value>, Option<Value>)>, ClusterError> {
    let Places { workflows, argocd, .. } = places;
    let policy = permitted(cluster.get(&path::object(&path::config_maps(argocd), POLICY_MAP)).await)?;
    let seen = permitted(cluster.get(&path::object(&path::config_maps(workflows), POLICY_SEEN)).await)?;
    Ok(policy.zip(seen))
}

/// Whether something may have been rendered under another policy than the one that is there.
///
/// # Errors
/// When the cluster does not answer.
pub(crate) async fn is_due(cluster: &Cluster, places: &Places) -> Result<bool, ClusterError> {
    let looked = looked(cluster, places).await?;
    Ok(looked.is_some_and(|(policy, seen)| !policy_is_seen(policy.as_ref(), seen.as_ref())))
}

/// Lets everything be rendered again where another policy counts; gives what is left to be done by somebody.
///
/// # Errors
/// When the cluster does not answer, or what is written down is somebody else's.
pub(super) async fn settle(
    cluster: &Cluster,
    places: &Places,
    handed: bool,
    done: &mut impl FnMut(&str),
) -> Result<Option<String>, Failure> {
    let Some((policy, seen)) = looked(cluster, places).await? else { return Ok(None) };
    let (policy, argocd) = (policy.as_ref(), places.argocd.as_str());
    if policy_is_seen(policy, seen.as_ref()) {
        return Ok(None);
    }
    let object = policy_seen(&places.workflows, policy);
    if seen.is_some_and(|seen| !is_ours(&seen)) {
        return Err(account::foreign_object(&format!("ConfigMap {POLICY_SEEN}"), &object));
    }
    let Some(outdated) = outdated(cluster, argocd, policy).await? else {
        let what =
            format!("pods in `{argocd}` may not be listed, so it is not known by which policy releases are verified");
        return Ok(Some(format!("{what}: run this as somebody who may")));
    };
    if let Some(first) = outdated.first() {
        let older = format!("pod {first} of the repo-server in `{argocd}` is older than ConfigMap {POLICY_MAP}");
        if handed {
            let advice = "let its owner restart it (`kubectl rollout restart`), then run this again";
            return Ok(Some(format!("{older}, so it may verify by the policy before: {advice}")));
        }
        if !renewed(cluster, argocd, policy, done).await? {
            let seconds = PATIENCE.as_secs();
            return Ok(Some(format!("{older}, and was not replaced within {seconds} s; when it is, run this again")));
        }
    }
    let Some(all) = permitted(cluster.list(&path::argo(argocd, "applications"), "").await)? else {
        let what = format!("Applications in `{argocd}` may not be listed, so none was rendered by the new policy");
        return Ok(Some(format!("{what}: run this as somebody who may")));
    };
    let by = match policy {
        Some(_) => format!("the policy in ConfigMap {POLICY_MAP}"),
        None => format!("no policy, now that ConfigMap {POLICY_MAP} is gone"),
    };
    let ids: Vec<ApplicationId> = all.iter().filter(|found| uses_plugin(found)).filter_map(id).collect();
    if let Some(left) = rendered(cluster, places, &ids).await {
        return Ok(Some(format!("not everything was rendered by {by}: {left}; run this again")));
    }
    failpoint::write(&format!("ConfigMap {POLICY_SEEN}"));
    cluster.apply(&path::object(&path::config_maps(&places.workflows), POLICY_SEEN), &object).await?;
    done(&format!("{} Applications rendered by {by}", ids.len()));
    Ok(None)
}

fn id(application: &Value) -> Option<ApplicationId> {
    let text = |pointer: &str| application.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    format!("{}/{}", text("/metadata/namespace"), text("/metadata/name")).parse().ok()
}

/// Pods that may know another policy; nothing for whoever may not look. All pods of the namespace are listed: by which labels
/// those of an Argo CD of somebody else are known is not known.
async fn outdated(
    cluster: &Cluster,
    argocd: &str,
    policy: Option<&Value>,
) -> Result<Option<Vec<String>>, ClusterError> {
    let pods = permitted(cluster.list(&path::core(argocd, "pods"), "").await)?;
    Ok(pods.map(|pods| outdated_pods(policy, &pods)))
}

/// Has the pods of the repo-server made anew; false where some of them did not go in time.
async fn renewed(
    cluster: &Cluster,
    argocd: &str,
    policy: Option<&Value>,
    done: &mut impl FnMut(&str),
) -> Result<bool, Failure> {
    let deployments = path::named("apps", "v1", argocd, "deployments");
    for deployment in cluster.list(&deployments, "").await?.iter().filter(|found| has_sidecar(found)) {
        let name = deployment.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        failpoint::write(&format!("Deployment {name} is made anew"));
        cluster.merge(&path::object(&deployments, name), &renewal(policy)).await?;
        done(&format!("Deployment {name}: its pods are made anew, so that {CMP} knows the policy"));
    }
    let deadline = Instant::now() + PATIENCE;
    while !outdated(cluster, argocd, policy).await?.is_some_and(|left| left.is_empty()) {
        if Instant::now() >= deadline {
            return Ok(false);
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(true)
}

/// Has Applications rendered anew; gives what went wrong first. What the plugin refuses is Argo CD's to show, and no reason to try
/// again; one that is gone neither.
async fn rendered(cluster: &Cluster, places: &Places, ids: &[ApplicationId]) -> Option<String> {
    if ids.is_empty() {
        return None;
    }
    let argocd = match ArgoCd::through(cluster, &places.workflows).await {
        Ok(argocd) => argocd,
        Err(failure) => return Some(failure.message),
    };
    let argocd = &argocd;
    let one = move |id: &ApplicationId| {
        let id = id.clone();
        async move {
            match argocd.refresh_hard(&id).await {
                Err(error) if !error.is_missing() => Some(format!("Application {}: {error}", id.name())),
                _ => None,
            }
        }
    };
    let mut answers = futures::stream::iter(ids.iter().map(one)).buffer_unordered(AT_ONCE);
    let mut left = None;
    while let Some(answer) = answers.next().await {
        left = left.or(answer);
    }
    left
}
