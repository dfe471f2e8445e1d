//! Whether a cluster will do for a demo, and as what. Only reads.

use std::collections::BTreeSet;

use forge_core::code::Code;
use forge_core::failure::Failure;
use forge_core::name::EnvironmentName;
use forge_core::render::{EXECUTOR_ACCOUNT, Places};
use forge_core::scaffold::demo::{ENVIRONMENT, is_ours, names};
use serde_json::Value;

use crate::cluster::{Cluster, path};
use crate::run::prepare;

/// What the cluster is like.
pub(super) struct Survey {
    /// Where runs take place.
    pub(super) places: Places,
    /// Environments that it is prepared for already: they stay.
    pub(super) environments: BTreeSet<EnvironmentName>,
}

pub(super) async fn survey(
    cluster: &Cluster,
    workflows: &str,
    argocd: &str,
    image: Option<&str>,
) -> Result<Survey, Failure> {
    for (namespace, plural, what, flag) in [
        (argocd, "applications", "Argo CD", "--argocd-namespace"),
        (workflows, "workflows", "Argo Workflows", "--workflows-namespace"),
    ] {
        let absent = |why: String| {
            Failure::new(Code::NotBootstrapped, why)
                .hint(format!("install {what} first, or say where it is with {flag}; no cluster with both at hand: `make demo` brings one"))
        };
        match cluster.list(&path::argo(namespace, plural), "").await {
            Err(error) if error.is_missing() => {
                return Err(absent(format!("{what} is not installed: {} serves no {plural}", cluster.context)));
            }
            other => other.map(drop)?,
        }
        if cluster.get(&path::object("/api/v1/namespaces", namespace)).await?.is_none() {
            return Err(absent(format!("{what} is not there: {} has no namespace `{namespace}`", cluster.context)));
        }
    }
    foreign(cluster, argocd).await?;
    let places = places(cluster, workflows, argocd, image).await?;
    let environments = environments(cluster, argocd).await?;
    Ok(Survey { places, environments })
}

/// Refuses where something has one of our names and is not ours (INV-11).
async fn foreign(cluster: &Cluster, argocd: &str) -> Result<(), Failure> {
    let applications = path::argo(argocd, "applications");
    let mut wanted = vec![("AppProject", path::object(&path::argo(argocd, "appprojects"), ENVIRONMENT))];
    for name in names() {
        wanted.push(("Application", path::object(&applications, &name)));
        wanted.push(("Namespace", path::object("/api/v1/namespaces", &name)));
    }
    for (kind, place) in wanted {
        let Some(object) = cluster.get(&place).await? else { continue };
        let name = place.rsplit('/').next().unwrap_or_default();
        if !is_ours(&object) {
            return Err(Failure::new(
                Code::BadArgument,
                format!("{kind} `{name}` is there already and was not made by a demo"),
            )
            .hint("it is not touched; rename or remove it, or use another cluster"));
        }
        if object.pointer("/metadata/deletionTimestamp").is_some() {
            return Err(Failure::new(Code::BadArgument, format!("{kind} `{name}` is being deleted"))
                .hint("wait until it is gone, then try again"));
        }
    }
    Ok(())
}

/// Where runs take place: as the cluster was prepared, else with the given image.
async fn places(cluster: &Cluster, workflows: &str, argocd: &str, given: Option<&str>) -> Result<Places, Failure> {
    match (prepare::prepared(cluster, workflows, argocd).await?, given) {
        (Some(there), Some(given)) if there.image != given => Err(Failure::new(
            Code::BadArgument,
            format!("the cluster is prepared with image `{}`, and a demo does not change that", there.image),
        )
        .hint("leave --image out, or prepare it anew with `forge bootstrap`")),
        (Some(there), _) => Ok(there),
        (None, Some(given)) => {
            let (workflows, argocd) = (workflows.to_owned(), argocd.to_owned());
            Ok(Places { workflows, argocd, image: given.to_owned(), ..Places::default() })
        }
        (None, None) => Err(Failure::new(Code::NotBootstrapped, "the cluster is not prepared for runs yet")
            .hint("name the image of forge, by digest, that the cluster can pull: --image")),
    }
}

/// Environments whose AppProjects the executor may write already. Preparing for one more must not take these away.
async fn environments(cluster: &Cluster, argocd: &str) -> Result<BTreeSet<EnvironmentName>, Failure> {
    let roles = path::named("rbac.authorization.k8s.io", "v1", argocd, "roles");
    let role = cluster.get(&path::object(&roles, EXECUTOR_ACCOUNT)).await?;
    let rules = role.as_ref().and_then(|role| role.get("rules")).and_then(Value::as_array);
    let names = rules.into_iter().flatten().filter_map(|rule| rule.get("resourceNames")?.as_array()).flatten();
    Ok(names.filter_map(|name| name.as_str()?.parse().ok()).collect())
}
