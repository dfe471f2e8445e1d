//! The token of the Argo CD account, as long as a process lives: where it comes from is looked at again at least every
//! minute, and at once when Argo CD refuses it. A kubelet brings a changed Secret into a running pod by swapping a link, so a
//! run goes on over a rotation (SPEC.md sections 4 and 5). Never from an environment value. And the password of its
//! administrator, where that is ours to replace.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use forge_core::token::Token;
use http::Method;
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

use super::{ArgoCd, PATIENCE};
use crate::cluster::{Cluster, ClusterError, secret_text};

/// How long a token is used before its source is looked at again.
const AGAIN: Duration = Duration::from_secs(60);

/// Where a token comes from.
pub(super) enum Source {
    /// From whoever made this; it does not change.
    Given,
    /// A file, usually of a mounted Secret.
    File(PathBuf),
    /// The Secret itself, through the API server.
    Secret { cluster: Box<Cluster>, path: String },
}

/// A token that may be replaced while it is used.
pub(super) struct Bearer {
    source: Source,
    held: Mutex<Held>,
}

struct Held {
    token: SecretString,
    read: Instant,
}

impl Bearer {
    /// Begins with a token that was read just now.
    pub(super) fn new(source: Source, token: SecretString) -> Self {
        Self { source, held: Mutex::new(Held { token, read: Instant::now() }) }
    }

    /// The token to use now.
    pub(super) async fn current(&self) -> SecretString {
        self.no_older_than(AGAIN).await
    }

    async fn no_older_than(&self, age: Duration) -> SecretString {
        let (token, read) = self.held();
        if matches!(self.source, Source::Given) || read.elapsed() < age {
            return token;
        }
        self.read_again().await.unwrap_or(token)
    }

    /// Another token than this one, which was refused; nothing where the source has no other.
    pub(super) async fn another(&self, refused: &SecretString) -> Option<SecretString> {
        let differs = |token: &SecretString| token.expose_secret() != refused.expose_secret();
        // Whoever was refused at the same time may have been here.
        let (held, _) = self.held();
        if differs(&held) {
            return Some(held);
        }
        self.read_again().await.filter(differs)
    }

    fn held(&self) -> (SecretString, Instant) {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        (held.token.clone(), held.read)
    }

    /// What the source says now. What cannot be read, or is empty, replaces nothing.
    async fn read_again(&self) -> Option<SecretString> {
        let read = match &self.source {
            Source::Given => None,
            Source::File(file) => std::fs::read_to_string(file).ok(),
            Source::Secret { cluster, path } => {
                let secret = cluster.get(path).await.ok().flatten();
                secret.and_then(|secret| secret_text(&secret, "token"))
            }
        };
        let read = read.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()).map(SecretString::from);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.read = Instant::now();
        if let Some(token) = &read {
            held.token = token.clone();
        }
        read
    }
}

impl ArgoCd {
    /// Puts another password in the place of one's own. Every session that was begun with the old one ends with it.
    pub(crate) async fn change_password(
        &self,
        current: &SecretString,
        another: &SecretString,
    ) -> Result<(), ClusterError> {
        let body = json!({"currentPassword": current.expose_secret(), "newPassword": another.expose_secret()});
        self.send(Method::PUT, "/account/password", Some(&body), PATIENCE).await?;
        Ok(())
    }
}

/// Whose a token is, and what it says of itself. Only Argo CD can tell whether any of it is true.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claims {
    /// The account.
    pub(crate) account: String,
    /// Its id and its times.
    pub(crate) token: Token,
}

/// What a token says of itself; nothing where it is none that Argo CD made for an account.
pub(crate) fn claims(token: &SecretString) -> Option<Claims> {
    let payload = token.expose_secret().split('.').nth(1)?;
    let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(payload).ok()?;
    let claims: Value = serde_json::from_slice(&bytes).ok()?;
    let text = |name: &str| claims.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let time = |name: &str| claims.get(name).and_then(Value::as_i64).and_then(|s| Timestamp::from_second(s).ok());
    // `forge:apiKey`; that of a role of an AppProject is `proj:<project>:<role>`.
    let account = match text("sub")?.split(':').collect::<Vec<_>>().as_slice() {
        [account] | [account, "apiKey"] => (*account).to_owned(),
        _ => return None,
    };
    let token = Token { id: text("jti")?.to_owned(), issued: time("iat")?, expires: time("exp") };
    Some(Claims { account, token })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> SecretString {
        SecretString::from(text.to_owned())
    }

    fn jwt(claims: &Value) -> SecretString {
        let payload = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(claims.to_string());
        secret(&format!("e30.{payload}.c2lnbmF0dXJl"))
    }

    #[tokio::test]
    async fn a_file_is_read_again_when_its_token_is_refused_or_old_and_not_before() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let bearer = Bearer::new(Source::File(file.clone()), secret("old"));
        // Not there, empty: the one that is held stays.
        assert!(bearer.another(&secret("old")).await.is_none());
        std::fs::write(&file, " \n").unwrap();
        assert!(bearer.another(&secret("old")).await.is_none());
        assert_eq!(bearer.no_older_than(Duration::ZERO).await.expose_secret(), "old");
        std::fs::write(&file, "new\n").unwrap();
        assert_eq!(bearer.current().await.expose_secret(), "old");
        assert_eq!(bearer.no_older_than(Duration::ZERO).await.expose_secret(), "new");
        // Somebody else found it meanwhile: the file is not needed for that.
        std::fs::remove_file(&file).unwrap();
        assert_eq!(bearer.another(&secret("old")).await.unwrap().expose_secret(), "new");
        assert!(bearer.another(&secret("new")).await.is_none());
    }

    #[tokio::test]
    async fn a_token_that_was_given_stays() {
        let bearer = Bearer::new(Source::Given, secret("t"));
        assert_eq!(bearer.no_older_than(Duration::ZERO).await.expose_secret(), "t");
        assert!(bearer.another(&secret("t")).await.is_none());
    }

    #[test]
    fn a_token_says_whose_it_is_and_when_it_ends_if_it_is_one_of_an_account() {
        let own = jwt(&json!({"iss": "argocd", "sub": "forge:apiKey", "jti": "id", "iat": 100, "exp": 400}));
        let found = claims(&own).unwrap();
        assert_eq!((found.account.as_str(), found.token.id.as_str()), ("forge", "id"));
        assert_eq!((found.token.issued.as_second(), found.token.expires.map(Timestamp::as_second)), (100, Some(400)));
        let endless = claims(&jwt(&json!({"sub": "ci", "jti": "id", "iat": 100}))).unwrap();
        assert_eq!((endless.account.as_str(), endless.token.expires), ("ci", None));
        for other in [
            jwt(&json!({"sub": "proj:shop:ci", "jti": "id", "iat": 100})),
            jwt(&json!({"sub": "admin:login", "jti": "id", "iat": 100})),
            jwt(&json!({"sub": "forge:apiKey", "iat": 100})),
            secret(""),
            secret("a.b.c"),
            secret("opaque"),
        ] {
            assert_eq!(claims(&other), None);
        }
    }
}
