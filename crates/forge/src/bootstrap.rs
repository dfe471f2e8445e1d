//! Prepares a cluster that runs Argo CD and Argo Workflows for runs: Forge's own objects and the token of its account
//! (SPEC.md section 4, phase 1). Applied on the server's side, and only where something else is there: a second time
//! writes nothing (INV-2).

use std::collections::BTreeSet;

use forge_core::code::Code;
use forge_core::duration::Duration;
use forge_core::failure::Failure;
use forge_core::install::says;
use forge_core::name::EnvironmentName;
use forge_core::render::{self, ARGOCD_SECRET, Places};
use forge_core::token;
use jiff::Timestamp;
use secrecy::SecretString;
use serde_json::Value;

use crate::account::{self, Content, Minter, Stored};
use crate::argocd::{self, ACCOUNT, ArgoCd};
use crate::cluster::{Cluster, path, secret_text};
use crate::failpoint;

/// What is to be prepared.
pub(crate) struct Wanted<'w> {
    pub(crate) cluster: &'w Cluster,
    pub(crate) places: Places,
    pub(crate) environments: Vec<EnvironmentName>,
    /// For each environment that has no AppProject yet, what its first window holds.
    pub(crate) held: Vec<(EnvironmentName, BTreeSet<String>)>,
    /// The address of Argo CD inside the cluster; found by its labels if absent.
    pub(crate) server: Option<String>,
    /// A token of the account `forge`; made by the account itself, or with the initial administrator's password, if absent.
    pub(crate) token: Option<SecretString>,
    /// How long a token is good for that is made.
    pub(crate) lifetime: Duration,
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
        let path = path::object(&placed.collection, &name);
        // Who may not look may still be allowed to write.
        let live = cluster.get(&path).await.ok().flatten();
        if !live.is_some_and(|live| says(&live, &placed.object)) {
            failpoint::write();
            cluster.apply(&path, &placed.object).await?;
        }
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
        failpoint::write();
        match cluster.create(&projects, &project).await {
            Err(error) if !error.is_conflict() => return Err(error.into()),
            _ => done(&format!("AppProject {environment}, holding {} Applications", names.len())),
        }
    }
    account(wanted, &mut done).await
}

/// The Secret of the account. Who prepares the same cluster at the same time may be first with it, and what he stored is as
/// good.
async fn account(wanted: &Wanted<'_>, done: &mut impl FnMut(&str)) -> Result<(), Failure> {
    const TRIES: usize = 5;
    for _ in 1..TRIES {
        match settled(wanted, done).await {
            Err(failure) if failure.code == Code::TokenContested => {}
            other => return other,
        }
    }
    settled(wanted, done).await
}

/// The account's token, Argo CD's address and its certificate, in a Secret beside the Workflows. What is stored and
/// works is kept until two thirds of its life are over, except for what was named.
async fn settled(wanted: &Wanted<'_>, done: &mut impl FnMut(&str)) -> Result<(), Failure> {
    let (cluster, places) = (wanted.cluster, &wanted.places);
    let secret = cluster.get(&account::secret_path(&places.workflows)).await?;
    let stored = secret.as_ref().and_then(Stored::read);
    let taken = taken(wanted, stored.as_ref()).await?;
    let server = taken.server.as_str();
    let encrypted = server.starts_with("https://");
    let certificates = if encrypted { certificates(cluster, &places.argocd).await? } else { None };
    // Whoever runs now still reads the old token: it stays until the next time.
    let retire_after = match &taken.minted {
        Some(_) if stored.is_some() => Timestamp::now().checked_add(token::GRACE.as_jiff()).ok(),
        Some(_) => None,
        None => stored.as_ref().filter(|_| wanted.token.is_none()).and_then(|stored| stored.retire_after),
    };
    let content = Content { server, token: &taken.token, certificates: certificates.as_deref(), retire_after };
    failpoint::write();
    match account::store(cluster, &places.workflows, secret.as_ref(), &content).await {
        Ok(false) => {}
        Ok(true) => {
            let trust = match (encrypted, &certificates) {
                (false, _) => "",
                (true, Some(_)) => ", and its certificate",
                (true, None) => "; no certificate of Argo CD was found, so the image must trust the one that it shows",
            };
            let made = taken.minted.as_ref().map_or(String::new(), |(minter, _)| format!(", made by {}", minter.who));
            done(&format!(
                "Secret {ARGOCD_SECRET}: a token of the Argo CD account `{ACCOUNT}`{made}, at {server}{trust}"
            ));
        }
        Err(failure) => {
            if let Some((minter, id)) = &taken.minted {
                minter.take_back(id).await;
            }
            return Err(failure);
        }
    }
    // A rotation that did not come to its end, or a bootstrap that has replaced a token.
    if let (None, Some(after), Some(id)) = (&taken.minted, retire_after, stored.and_then(|stored| stored.id)) {
        if after <= Timestamp::now() {
            let gone = account::retire(cluster, &places.workflows, &id).await?;
            done(&format!("{} older tokens of the Argo CD account `{ACCOUNT}` are deleted", gone.len()));
        } else {
            done(&format!(
                "older tokens of the Argo CD account `{ACCOUNT}` go on until {after}; the next `forge bootstrap` or `forge rotate` after that deletes them"
            ));
        }
    }
    Ok(())
}

/// An address and a token, and if it was made just now, by whom and under which id.
struct Taken {
    server: String,
    token: SecretString,
    minted: Option<(Minter, String)>,
}

/// The address and the token that were named, else those that are stored where Argo CD accepts them and their end is far,
/// else found and made.
async fn taken(wanted: &Wanted<'_>, stored: Option<&Stored>) -> Result<Taken, Failure> {
    let (cluster, places) = (wanted.cluster, &wanted.places);
    let server = match wanted.server.clone().or_else(|| stored.map(|stored| stored.server.clone())) {
        Some(server) => server,
        None => server(cluster, &places.argocd).await?,
    };
    if let Some(token) = &wanted.token {
        // That it is one inside the cluster is found out now and not in the middle of a run.
        ArgoCd::proxied(cluster, &server, token.clone()).ok_or_else(|| account::unusable(&server))?;
        return Ok(Taken { server, token: token.clone(), minted: None });
    }
    let (server, accepted) = match stored {
        Some(stored) => asked(wanted, server, stored).await?,
        None => (server, None),
    };
    if let (Some(stored), Some(name)) = (stored, &accepted) {
        // One of somebody else was named once, and is not ours to replace.
        if name != ACCOUNT || !stored.is_due(Timestamp::now()) {
            return Ok(Taken { server, token: stored.token.clone(), minted: None });
        }
    }
    let token = stored.map_or_else(|| SecretString::from(String::new()), |stored| stored.token.clone());
    let argocd = ArgoCd::proxied(cluster, &server, token).ok_or_else(|| account::unusable(&server))?;
    let minter = account::minter(cluster, &places.argocd, &argocd, accepted.is_some(), None).await?;
    let (id, token) = minter.mint(wanted.lifetime).await?;
    Ok(Taken { server, token, minted: Some((minter, id)) })
}

/// Whose Argo CD says that the stored token is, at the stored address or, where that does not answer, at the one that is
/// found now; nothing where it is not accepted.
async fn asked(wanted: &Wanted<'_>, server: String, stored: &Stored) -> Result<(String, Option<String>), Failure> {
    let who = async |server: &str| match ArgoCd::proxied(wanted.cluster, server, stored.token.clone()) {
        Some(argocd) => argocd.who().await.ok(),
        None => None,
    };
    if let Some(name) = who(&server).await {
        return Ok((server, name));
    }
    if wanted.server.is_some() {
        return Ok((server, None));
    }
    let found = self::server(wanted.cluster, &wanted.places.argocd).await?;
    let name = who(&found).await.flatten();
    Ok((found, name))
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
    use base64::Engine as _;
    use serde_json::json;

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
}
