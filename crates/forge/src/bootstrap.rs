//! Prepares a cluster that runs Argo CD and Argo Workflows for runs: Forge's own objects and the token of its account
//! (SPEC.md section 4, phase 1). Applied on the server's side, so a second time changes nothing.

use std::collections::BTreeSet;

use base64::Engine as _;
use forge_core::code::Code;
use forge_core::failure::Failure;
use forge_core::name::EnvironmentName;
use forge_core::render::{self, ARGOCD_SECRET, MANAGED_BY, Places};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

use crate::argocd::{self, ArgoCd};
use crate::cluster::{Cluster, path};

/// What is to be prepared.
pub(crate) struct Wanted<'w> {
    pub(crate) cluster: &'w Cluster,
    pub(crate) places: Places,
    pub(crate) environments: Vec<EnvironmentName>,
    /// For each environment that has no AppProject yet, what its first window holds.
    pub(crate) held: Vec<(EnvironmentName, BTreeSet<String>)>,
    /// The address of Argo CD inside the cluster; found by its labels if absent.
    pub(crate) server: Option<String>,
    /// A token of the account `forge`; made with the initial administrator's password if absent.
    pub(crate) token: Option<SecretString>,
}

/// Prepares the cluster. `done` hears of every object.
///
/// # Errors
/// When Argo is not there, or something may not be made.
pub(crate) async fn bootstrap(wanted: &Wanted<'_>, mut done: impl FnMut(&str)) -> Result<(), Failure> {
    let (cluster, places) = (wanted.cluster, &wanted.places);
    for (crd, what) in [("applications.argoproj.io", "Argo CD"), ("workflows.argoproj.io", "Argo Workflows")] {
        let collection = path::global("apiextensions.k8s.io", "v1", "customresourcedefinitions");
        if cluster.get(&path::object(&collection, crd)).await?.is_none() {
            return Err(Failure::new(
                Code::NotBootstrapped,
                format!("{what} is not installed: there is no CRD `{crd}`"),
            )
            .hint(format!("install {what} first; in the sandbox: forge sandbox up --with argo-cd,argo-workflows")));
        }
    }
    for placed in render::bootstrap(places, &wanted.environments) {
        let name = placed.object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        cluster.apply(&path::object(&placed.collection, &name), &placed.object).await?;
        done(&format!("{} {name}", placed.object.get("kind").and_then(Value::as_str).unwrap_or_default()));
    }
    let projects = path::argo(&places.argocd, "appprojects");
    for (environment, names) in &wanted.held {
        let object = path::object(&projects, environment.as_str());
        if cluster.get(&object).await?.is_some() {
            continue;
        }
        let window = render::windows(&[], "bootstrap", names);
        let project = render::app_project(places, environment, &window);
        match cluster.create(&projects, &project).await {
            Err(error) if !error.is_conflict() => return Err(error.into()),
            _ => done(&format!("AppProject {environment}, holding {} Applications", names.len())),
        }
    }
    account(wanted, &mut done).await
}

/// The account's token, in a Secret beside the Workflows.
async fn account(wanted: &Wanted<'_>, done: &mut impl FnMut(&str)) -> Result<(), Failure> {
    let (cluster, places) = (wanted.cluster, &wanted.places);
    let secret = path::object(&path::core(&places.workflows, "secrets"), ARGOCD_SECRET);
    if wanted.token.is_none()
        && cluster.get(&secret).await?.is_some()
        && let Ok(argocd) = ArgoCd::through(cluster, &places.workflows).await
        && argocd.who().await.is_ok_and(|who| who.is_some())
    {
        return Ok(());
    }
    let server = match &wanted.server {
        Some(server) => server.clone(),
        None => server(cluster, &places.argocd).await?,
    };
    let unusable = || Failure::new(Code::BadArgument, format!("`{server}` is not an address inside the cluster"));
    let argocd = ArgoCd::proxied(cluster, &server, SecretString::from(String::new())).ok_or_else(unusable)?;
    let token = match &wanted.token {
        Some(token) => token.clone(),
        None => argocd.mint(&password(cluster, &places.argocd).await?).await.map_err(|error| {
            let mut failure = argocd::failure(&error);
            failure.hint = Some(
                "argocd-cm needs `accounts.forge: apiKey`, argocd-rbac-cm a policy that lets it get and sync applications".to_owned(),
            );
            failure
        })?,
    };
    let encoded = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let object = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": ARGOCD_SECRET, "namespace": places.workflows, "labels": {MANAGED_BY: "forge"}},
        "data": {"token": encoded(token.expose_secret()), "server": encoded(&server)},
    });
    cluster.apply(&secret, &object).await?;
    done(&format!("Secret {ARGOCD_SECRET}: a token of the Argo CD account `forge`"));
    Ok(())
}

async fn password(cluster: &Cluster, argocd: &str) -> Result<SecretString, Failure> {
    let path = path::object(&path::core(argocd, "secrets"), "argocd-initial-admin-secret");
    let secret = cluster.get(&path).await?;
    let text = secret.as_ref().and_then(|secret| secret.pointer("/data/password")).and_then(Value::as_str);
    let bytes = text.and_then(|text| base64::engine::general_purpose::STANDARD.decode(text).ok());
    bytes.and_then(|bytes| String::from_utf8(bytes).ok()).map(SecretString::from).ok_or_else(|| {
        Failure::new(Code::NotBootstrapped, "there is no initial administrator's password to make a token with")
            .hint("make one with `argocd account generate-token --account forge` and give it with --argocd-token-file")
    })
}

/// The address of argocd-server, from its Service.
async fn server(cluster: &Cluster, argocd: &str) -> Result<String, Failure> {
    let services = cluster.list(&path::core(argocd, "services"), "app.kubernetes.io/name=argocd-server").await?;
    let name = services.iter().find_map(|service| service.pointer("/metadata/name").and_then(Value::as_str));
    let name = name.ok_or_else(|| {
        Failure::new(Code::NotBootstrapped, format!("no Service of argocd-server in namespace `{argocd}`"))
            .hint("name its address inside the cluster with --argocd-server")
    })?;
    let parameters = cluster.get(&path::object(&path::config_maps(argocd), "argocd-cmd-params-cm")).await?;
    let insecure = parameters.as_ref().and_then(|found| found.pointer("/data/server.insecure")).and_then(Value::as_str);
    let scheme = if insecure == Some("true") { "http" } else { "https" };
    Ok(format!("{scheme}://{name}.{argocd}.svc"))
}
