//! The administrator of an Argo CD that Forge installed gets another password. Argo CD makes his first one itself and leaves it
//! in a Secret: whoever read that while the cluster was being made could do everything for good (SPEC.md section 4,
//! docs/adr/0034).
//!
//! The new one is stored before it counts, and the Secret of the first one goes last: while that is there, something is left to
//! be done, wherever this was cut off. A password that a person chose is never replaced.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use forge_core::code::Code;
use forge_core::failure::Failure;
use forge_core::install::{
    ADMINISTRATOR_SECRET, INITIAL_SECRET, PASSWORD_KEY, is_spent, receipt_is_ours, receipt_name,
};
use forge_core::preflight::Component;
use forge_core::render::{MANAGED_BY, Places, is_ours};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

use super::{permitted, random_bytes};
use crate::account::{self, Stored};
use crate::argocd;
use crate::cluster::{Cluster, ClusterError, path, secret_text};
use crate::failpoint;

fn at(namespace: &str, name: &str) -> String {
    path::object(&path::core(namespace, "secrets"), name)
}

/// The password that a Secret holds.
fn password_in(secret: &Value) -> Option<SecretString> {
    secret_text(secret, PASSWORD_KEY).filter(|text| !text.is_empty()).map(SecretString::from)
}

/// Whether Forge installed this Argo CD, and not only means to: the administrator of any other is its owner's (INV-11).
async fn is_installed(cluster: &Cluster, argocd: &str) -> Result<bool, ClusterError> {
    let receipt = path::object(&path::config_maps(argocd), &receipt_name(Component::Cd));
    Ok(cluster.get(&receipt).await?.is_some_and(|found| receipt_is_ours(&found)))
}

/// Whether the first password of an Argo CD of ours is still there; not for whoever may not look.
///
/// # Errors
/// When the cluster does not answer.
pub(crate) async fn is_due(cluster: &Cluster, argocd: &str) -> Result<bool, ClusterError> {
    let initial = permitted(cluster.get(&at(argocd, INITIAL_SECRET)).await)?.flatten();
    Ok(initial.is_some() && permitted(is_installed(cluster, argocd).await)?.unwrap_or(false))
}

/// Puts a password of our own in the place of the first one, and removes that one's Secret. Where it is gone already, or Argo CD
/// is not of our installing, nothing is written.
///
/// # Errors
/// When Argo CD refuses, or a Secret by the name of ours is somebody else's.
pub(super) async fn settle(cluster: &Cluster, places: &Places, done: &mut impl FnMut(&str)) -> Result<(), Failure> {
    let first = at(&places.argocd, INITIAL_SECRET);
    let Some(initial) = cluster.get(&first).await? else { return Ok(()) };
    if !is_installed(cluster, &places.argocd).await? {
        return Ok(());
    }
    let made = match password_in(&initial) {
        Some(password) => replaced(cluster, places, &initial, &password).await?,
        None => false,
    };
    failpoint::write(&format!("Secret {INITIAL_SECRET} goes"));
    cluster.delete(&first).await?;
    done(&if made {
        format!(
            "Secret {ADMINISTRATOR_SECRET}: another password of Argo CD's administrator; the first one counts no more"
        )
    } else {
        format!("removed Secret {INITIAL_SECRET}: its password counts no more")
    });
    Ok(())
}

/// Lets our password count in place of this one; false where this one does not count any more.
async fn replaced(
    cluster: &Cluster,
    places: &Places,
    initial: &Value,
    password: &SecretString,
) -> Result<bool, Failure> {
    let namespace = places.argocd.as_str();
    let secret = cluster.get(&account::secret_path(&places.workflows)).await?;
    let Some(stored) = secret.as_ref().and_then(Stored::read) else {
        let message = format!("the Secret of the Argo CD account is gone from `{}`", places.workflows);
        return Err(Failure::new(Code::NotBootstrapped, message).hint("run this again: it is made anew"));
    };
    let server = account::behind(cluster, &stored)?;
    let refused = match server.administrator(password).await {
        Ok(administrator) => {
            let own = own_password(cluster, namespace).await?;
            failpoint::write("the password of Argo CD's administrator");
            match administrator.change_password(password, &own).await {
                Ok(()) => return Ok(true),
                // Whoever does the same at the same time may have been first: then the password is another one, and a session that is
                // older than it counts no more.
                Err(ClusterError::Refused { code: 400 | 401, message }) => message,
                Err(error) => return Err(argocd::failure(&error)),
            }
        }
        Err(ClusterError::Refused { code: 401, message }) => message,
        Err(error) => return Err(argocd::failure(&error)),
    };
    // Where ours counts the first one does not.
    let own = cluster.get(&at(namespace, ADMINISTRATOR_SECRET)).await?.filter(is_ours);
    if let Some(own) = own.as_ref().and_then(password_in) {
        match server.administrator(&own).await {
            Ok(_) => return Ok(false),
            Err(ClusterError::Refused { code: 401, .. }) => {}
            Err(error) => return Err(argocd::failure(&error)),
        }
    }
    let own = cluster.get(&at(namespace, "argocd-secret")).await?;
    let settings = cluster.get(&path::object(&path::config_maps(namespace), "argocd-cm")).await?;
    let changed = own.as_ref().and_then(|own| secret_text(own, "admin.passwordMtime"));
    if is_spent(initial, changed.as_deref(), settings.as_ref()) {
        return Ok(false);
    }
    let message = format!("the first password of Argo CD's administrator is not replaced: {refused}");
    Err(Failure::new(Code::PasswordKept, message).hint(format!(
        "after failed logins Argo CD refuses everybody for five minutes: run this again then; or choose one yourself with `argocd account update-password`, then `kubectl -n {namespace} delete secret {INITIAL_SECRET}`, and write it into Secret {ADMINISTRATOR_SECRET}, where that is there, or delete that too"
    )))
}

/// The password that is to count, in a Secret of ours: the one that is stored already, or a new one.
async fn own_password(cluster: &Cluster, namespace: &str) -> Result<SecretString, Failure> {
    let object = at(namespace, ADMINISTRATOR_SECRET);
    let found = cluster.get(&object).await?;
    if let Some(secret) = found.as_ref().filter(|secret| !is_ours(secret)) {
        return Err(account::foreign_object(&format!("Secret {ADMINISTRATOR_SECRET}"), secret));
    }
    if let Some(password) = found.as_ref().and_then(password_in) {
        return Ok(password);
    }
    let password = new_password()?;
    let encoded = |text: &str| STANDARD.encode(text);
    let data = json!({"username": encoded("admin"), PASSWORD_KEY: encoded(password.expose_secret())});
    failpoint::write(&format!("Secret {ADMINISTRATOR_SECRET}"));
    let written = if let Some(found) = &found {
        let version = found.pointer("/metadata/resourceVersion");
        cluster.merge(&object, &json!({"metadata": {"resourceVersion": version}, "data": data})).await
    } else {
        let labels = json!({MANAGED_BY: "forge"});
        let metadata = json!({"name": ADMINISTRATOR_SECRET, "namespace": namespace, "labels": labels});
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata, "data": data});
        cluster.create(&path::core(namespace, "secrets"), &secret).await
    };
    match written {
        Ok(_) => Ok(password),
        Err(error) if error.is_conflict() => {
            // Who prepares the same cluster at the same time was first, and what he stored is as good.
            let theirs = cluster.get(&object).await?.filter(is_ours);
            theirs.as_ref().and_then(password_in).ok_or_else(|| error.into())
        }
        Err(error) => Err(error.into()),
    }
}

/// As long as Argo CD takes one, which is 32 characters; the last of them are one of each kind, for those whose `passwordPattern`
/// asks for that.
fn new_password() -> Result<SecretString, Failure> {
    Ok(SecretString::from(format!("{}-aA1", URL_SAFE_NO_PAD.encode(random_bytes::<21>()?))))
}

/// Removes our password with the Argo CD that it was for.
///
/// # Errors
/// When it may not be removed.
pub(crate) async fn forget(cluster: &Cluster, namespace: &str) -> Result<(), Failure> {
    let object = at(namespace, ADMINISTRATOR_SECRET);
    if cluster.get(&object).await?.is_some_and(|secret| is_ours(&secret)) {
        failpoint::write(&format!("Secret {ADMINISTRATOR_SECRET} goes"));
        cluster.delete(&object).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_another_one_each_time_and_one_that_argo_cd_takes() {
        let (one, other) = (new_password().unwrap(), new_password().unwrap());
        assert_ne!(one.expose_secret(), other.expose_secret());
        let text = one.expose_secret();
        assert_eq!(text.len(), 32);
        let kinds: [fn(&char) -> bool; 4] =
            [char::is_ascii_lowercase, char::is_ascii_uppercase, char::is_ascii_digit, char::is_ascii_punctuation];
        assert!(kinds.iter().all(|kind| text.chars().any(|c| kind(&c))), "{text}");
    }
}
