//! Prepares a cluster that runs Argo CD and Argo Workflows for runs: Forge's own objects and the token of its account
//! (SPEC.md section 4, phase 1). Applied on the server's side, so a second time changes nothing.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use base64::Engine as _;
use forge_core::code::Code;
use forge_core::failure::Failure;
use forge_core::name::EnvironmentName;
use forge_core::render::{self, ARGOCD_SECRET, MANAGED_BY, Places};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

use crate::argocd::{self, ArgoCd};
use crate::cluster::{Cluster, path, secret_text};

/// How many tokens are tried, how long each has to be accepted, and how often that is looked at.
const MINTS: u32 = 3;
const SETTLING: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(200);

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

/// The account's token, Argo CD's address and its certificate, in a Secret beside the Workflows. What is stored and
/// works is kept, except for what was named.
async fn account(wanted: &Wanted<'_>, done: &mut impl FnMut(&str)) -> Result<(), Failure> {
    let (cluster, places) = (wanted.cluster, &wanted.places);
    let secret = path::object(&path::core(&places.workflows, "secrets"), ARGOCD_SECRET);
    let stored = cluster.get(&secret).await?;
    let (server, token) = match kept(wanted, stored.as_ref()).await {
        Some(kept) => kept,
        None => made(wanted).await?,
    };
    let encrypted = server.starts_with("https://");
    let certificates = if encrypted { certificates(cluster, &places.argocd).await? } else { None };
    let data = data(&server, &token, certificates.as_deref());
    if stored.is_some_and(|stored| holds(&stored, &data)) {
        return Ok(());
    }
    let object = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": ARGOCD_SECRET, "namespace": places.workflows, "labels": {MANAGED_BY: "forge"}},
        "data": data,
    });
    cluster.apply(&secret, &object).await?;
    let trust = match (encrypted, certificates) {
        (false, _) => "",
        (true, Some(_)) => ", and its certificate",
        (true, None) => "; no certificate of Argo CD was found, so the image must trust the one that it shows",
    };
    done(&format!("Secret {ARGOCD_SECRET}: a token of the Argo CD account `forge` at {server}{trust}"));
    Ok(())
}

/// The address and the token that are stored, where Argo CD accepts them; at the address that was named, if one was.
async fn kept(wanted: &Wanted<'_>, stored: Option<&Value>) -> Option<(String, SecretString)> {
    let stored = stored.filter(|_| wanted.token.is_none())?;
    let server = wanted.server.clone().or_else(|| secret_text(stored, "server"))?;
    let token = SecretString::from(secret_text(stored, "token")?);
    let argocd = ArgoCd::proxied(wanted.cluster, &server, token.clone())?;
    let accepted = argocd.who().await.is_ok_and(|who| who.is_some());
    accepted.then_some((server, token))
}

/// The address and a token: those that were named, else found and made.
async fn made(wanted: &Wanted<'_>) -> Result<(String, SecretString), Failure> {
    let (cluster, places) = (wanted.cluster, &wanted.places);
    let server = match &wanted.server {
        Some(server) => server.clone(),
        None => server(cluster, &places.argocd).await?,
    };
    let unusable = || Failure::new(Code::BadArgument, format!("`{server}` is not an address inside the cluster"));
    let argocd = ArgoCd::proxied(cluster, &server, SecretString::from(String::new())).ok_or_else(unusable)?;
    let token = match &wanted.token {
        Some(token) => token.clone(),
        None => minted(&argocd, &password(cluster, &places.argocd).await?).await?,
    };
    Ok((server, token))
}

/// A new token that Argo CD accepts: it reads its accounts from a cache, so the newest token is unknown for a moment, and one
/// that was made at the same moment as another may be lost.
async fn minted(argocd: &ArgoCd, password: &SecretString) -> Result<SecretString, Failure> {
    let mut last = Ok(None);
    for _ in 0..MINTS {
        let token = argocd.mint(password).await.map_err(|error| {
            let mut failure = argocd::failure(&error);
            failure.hint = Some(
                "argocd-cm needs `accounts.forge: apiKey`, argocd-rbac-cm a policy that lets it get and sync applications".to_owned(),
            );
            failure
        })?;
        let until = Instant::now() + SETTLING;
        while Instant::now() < until {
            last = argocd.with(token.clone()).who().await;
            if matches!(last, Ok(Some(_))) {
                return Ok(token);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
    let refused = format!("Argo CD made {MINTS} tokens for the account `forge` and accepts none");
    Err(match last {
        Err(error) => argocd::failure(&error),
        Ok(_) => Failure::new(Code::Forbidden, refused)
            .hint("look at the log of argocd-server; is the clock of its node right?"),
    })
}

/// What the Secret holds.
fn data(server: &str, token: &SecretString, certificates: Option<&str>) -> Value {
    let encoded = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let mut data = json!({"token": encoded(token.expose_secret()), "server": encoded(server)});
    if let (Value::Object(fields), Some(certificates)) = (&mut data, certificates) {
        fields.insert(argocd::CERTIFICATE.to_owned(), json!(encoded(certificates)));
    }
    data
}

/// A Secret that says this already; what else it says is somebody else's.
fn holds(stored: &Value, data: &Value) -> bool {
    let found = |key: &str| stored.get("data").and_then(|data| data.get(key));
    ["token", "server", argocd::CERTIFICATE].into_iter().all(|key| found(key) == data.get(key))
}

/// The certificate that Argo CD shows: that of `argocd-server-tls` where there is one, else the one that it made.
async fn certificates(cluster: &Cluster, argocd: &str) -> Result<Option<String>, Failure> {
    for name in ["argocd-server-tls", "argocd-secret"] {
        let secret = cluster.get(&path::object(&path::core(argocd, "secrets"), name)).await?;
        if let Some(found) = secret.as_ref().and_then(shown) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The certificate of a Secret, and who issued it where it says so.
fn shown(secret: &Value) -> Option<String> {
    let shown = argocd::certificates(&secret_text(secret, "tls.crt")?)?;
    let issuer = secret_text(secret, "ca.crt").and_then(|text| argocd::certificates(&text)).unwrap_or_default();
    argocd::certificates(&format!("{issuer}{shown}"))
}

async fn password(cluster: &Cluster, argocd: &str) -> Result<SecretString, Failure> {
    let path = path::object(&path::core(argocd, "secrets"), "argocd-initial-admin-secret");
    let secret = cluster.get(&path).await?;
    let text = secret.as_ref().and_then(|secret| secret_text(secret, "password"));
    text.map(SecretString::from).ok_or_else(|| {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(name: &str) -> String {
        rcgen::generate_simple_self_signed([name.to_owned()]).unwrap().cert.pem()
    }

    fn secret(fields: &[(&str, &str)]) -> Value {
        let encoded = |text: &str| json!(base64::engine::general_purpose::STANDARD.encode(text));
        let data: serde_json::Map<String, Value> =
            fields.iter().map(|(key, text)| ((*key).to_owned(), encoded(text))).collect();
        json!({ "data": data })
    }

    #[test]
    fn of_a_secret_of_argo_cd_the_certificate_and_its_issuer_are_taken_and_nothing_else() {
        let (own, issuer) = (certificate("own"), certificate("issuer"));
        let made = secret(&[("tls.crt", &own), ("tls.key", "k"), ("admin.password", "p")]);
        assert_eq!(shown(&made), argocd::certificates(&own));
        let issued = secret(&[("ca.crt", &issuer), ("tls.crt", &own)]);
        assert_eq!(shown(&issued), argocd::certificates(&format!("{issuer}{own}")));
        // Self-signed, as cert-manager writes it: once is enough.
        let twice = secret(&[("ca.crt", &own), ("tls.crt", &own)]);
        assert_eq!(shown(&twice), argocd::certificates(&own));
        // Argo CD does not use a Secret that has no certificate of its own.
        for nothing in [secret(&[]), secret(&[("tls.crt", "")]), secret(&[("ca.crt", &issuer)])] {
            assert_eq!(shown(&nothing), None);
        }
    }

    #[test]
    fn a_secret_is_written_when_address_token_or_certificate_changed_and_only_then() {
        let token = SecretString::from("t".to_owned());
        let before = data("https://a.argocd.svc", &token, Some("c"));
        let mut stored = json!({ "data": before });
        stored["data"]["somebody"] = json!("else");
        assert!(holds(&stored, &before));
        assert!(!holds(&stored, &data("https://b.argocd.svc", &token, Some("c"))));
        assert!(!holds(&stored, &data("https://a.argocd.svc", &token, Some("d"))));
        assert!(!holds(&stored, &data("https://a.argocd.svc", &token, None)));
        assert!(!holds(&stored, &data("https://a.argocd.svc", &SecretString::from("u".to_owned()), Some("c"))));
        assert!(!holds(&json!({}), &before));
    }
}
