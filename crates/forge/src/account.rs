//! The token of the Argo CD account `forge`: how it lies in its Secret, how another one is made and takes its place, and how
//! those before it are taken from the account (SPEC.md section 4); and that of `forge-teardown`, which is lent for one teardown
//! and given back. The decisions are in `forge_core::token`.
//!
//! There is never a moment without a token that works: a new one is proven before it is stored, the old ones go on until
//! every pod has had time to read it, and what is deleted is decided by what the Secret holds then. Who stops anywhere in
//! between leaves a mark in the Secret, and the next `rotate` or `bootstrap` completes it.

use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use forge_core::code::Code;
use forge_core::digest::Digest;
use forge_core::duration;
use forge_core::failure::Failure;
use forge_core::install::{ADMINISTRATOR_SECRET, INITIAL_SECRET, PASSWORD_KEY};
use forge_core::name::EnvironmentName;
use forge_core::render::{
    ARGOCD_SECRET, ENVIRONMENT_LABEL, MANAGED_BY, TEARDOWN_ACCOUNT, handing, is_ours, teardown_secret,
};
use forge_core::token::{self, Token};
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value, json};

use crate::argocd::{self, ACCOUNT, ArgoCd};
use crate::cluster::{Cluster, ClusterError, path, secret_text};
use crate::failpoint;

const TOKEN: &str = "token";
const SERVER: &str = "server";
const TOKEN_ID: &str = "token-id";
const EXPIRES: &str = "expires";
/// From when on every other token of the account may go; there only while that is still to be done.
const RETIRE_AFTER: &str = "retire-after";
/// What of the Secret is ours.
const KEYS: [&str; 6] = [TOKEN, SERVER, argocd::CERTIFICATE, TOKEN_ID, EXPIRES, RETIRE_AFTER];

/// How long a token that was just made may be refused: argocd-server reads its accounts from a cache.
const SETTLING: Duration = Duration::from_secs(15);
/// How many tokens are made until one is accepted.
const MINTS: u32 = 3;
/// How often a token that somebody named is tried.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(500);
/// What tests call writes of this module.
const SECRET_POINT: &str = "Secret forge-argocd";
const TOKEN_POINT: &str = "a token of the Argo CD account";
const RETIRED_POINT: &str = "an old token of the Argo CD account goes";
const LENT_POINT: &str = "the Secret of a teardown";
/// What must be left of a token that an interrupted teardown made, so that the next one goes on with it.
const SHORTEST_LEFT: jiff::SignedDuration = jiff::SignedDuration::from_mins(30);

/// Where the Secret of the account is.
pub(crate) fn secret_path(workflows: &str) -> String {
    path::object(&path::core(workflows, "secrets"), ARGOCD_SECRET)
}

/// What the Secret says.
pub(crate) struct Stored {
    pub(crate) server: String,
    pub(crate) token: SecretString,
    /// Its id; nothing where a version of Forge that knew none wrote it. Empty where the token does not say.
    pub(crate) id: Option<String>,
    pub(crate) expires: Option<Timestamp>,
    pub(crate) retire_after: Option<Timestamp>,
    version: String,
}

impl Stored {
    /// What a Secret says; nothing where it is not what bootstrap writes.
    pub(crate) fn read(secret: &Value) -> Option<Self> {
        let version = secret.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default();
        Self::said(|key| secret_text(secret, key), version)
    }

    /// The same of the Secret where it is mounted: a file for each key.
    pub(crate) fn mounted(folder: &Path) -> Option<Self> {
        let text = |key: &str| std::fs::read_to_string(folder.join(key)).ok();
        Self::said(|key| text(key).map(|text| text.trim().to_owned()), "")
    }

    fn said(text: impl Fn(&str) -> Option<String>, version: &str) -> Option<Self> {
        let time = |key: &str| text(key).and_then(|text| text.parse().ok());
        Some(Self {
            server: text(SERVER)?,
            token: SecretString::from(text(TOKEN)?),
            id: text(TOKEN_ID),
            expires: time(EXPIRES),
            retire_after: time(RETIRE_AFTER),
            version: version.to_owned(),
        })
    }

    /// When the token ends, as it says itself, else as is said beside it.
    pub(crate) fn ends(&self) -> Option<Timestamp> {
        argocd::claims(&self.token).and_then(|claims| claims.token.expires).or(self.expires)
    }

    /// Why the next bootstrap replaces the token, as far as it says itself. One of another account is kept until it has ended: it
    /// is whoever's gave it to renew.
    pub(crate) fn stale(&self, now: Timestamp) -> Option<String> {
        if let Some(expires) = self.ends().filter(|expires| *expires <= now) {
            return Some(format!("ended at {expires}"));
        }
        let own = argocd::claims(&self.token).is_none_or(|claims| claims.account == ACCOUNT);
        (own && self.is_due(now)).then(|| "is due to be replaced".to_owned())
    }

    /// The token is one that this version did not store, or its end is near.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        self.id.is_none() || argocd::claims(&self.token).is_some_and(|claims| claims.token.is_due(now))
    }
}

/// What is to be stored.
pub(crate) struct Content<'c> {
    pub(crate) server: &'c str,
    pub(crate) token: &'c SecretString,
    pub(crate) certificates: Option<&'c str>,
    pub(crate) retire_after: Option<Timestamp>,
}

impl Content<'_> {
    /// As the Secret holds it: what is not there is `null`, so that a patch takes it away.
    fn data(&self) -> Map<String, Value> {
        let encoded = |text: &str| json!(base64::engine::general_purpose::STANDARD.encode(text));
        let claims = argocd::claims(self.token);
        let id = claims.as_ref().map_or("", |claims| claims.token.id.as_str());
        let expires = claims.as_ref().and_then(|claims| claims.token.expires);
        let mut data: Map<String, Value> = KEYS.iter().map(|key| ((*key).to_owned(), Value::Null)).collect();
        let mut put = |key: &str, text: &str| data.insert(key.to_owned(), encoded(text));
        put(TOKEN, self.token.expose_secret());
        put(SERVER, self.server);
        put(TOKEN_ID, id);
        if let Some(certificates) = self.certificates {
            put(argocd::CERTIFICATE, certificates);
        }
        if let Some(expires) = expires {
            put(EXPIRES, &expires.to_string());
        }
        if let Some(after) = self.retire_after {
            put(RETIRE_AFTER, &after.to_string());
        }
        data
    }

    /// A Secret that says this already; what else it says is somebody else's.
    fn is_held(&self, stored: &Value) -> bool {
        let there = |value: &&Value| !value.is_null();
        let found = |key: &str| stored.get("data").and_then(|data| data.get(key)).filter(there);
        self.data().iter().all(|(key, value)| found(key) == Some(value).filter(there))
    }
}

/// Stores it, where it is not stored yet. True if something was written.
///
/// # Errors
/// When it is somebody else's, somebody else changed it since it was read, or it may not be written.
pub(crate) async fn store(
    cluster: &Cluster,
    workflows: &str,
    stored: Option<&Value>,
    content: &Content<'_>,
) -> Result<bool, Failure> {
    let labels = json!({MANAGED_BY: "forge"});
    let written = match stored {
        Some(stored) if content.is_held(stored) => return Ok(false),
        Some(stored) if !is_ours(stored) => {
            return Err(foreign_object(&format!("Secret {ARGOCD_SECRET}"), stored));
        }
        Some(stored) => {
            let version = stored.pointer("/metadata/resourceVersion");
            let patch = json!({"metadata": {"resourceVersion": version, "labels": labels}, "data": content.data()});
            failpoint::write(SECRET_POINT);
            cluster.merge(&secret_path(workflows), &patch).await
        }
        None => {
            let data: Map<String, Value> = content.data().into_iter().filter(|(_, value)| !value.is_null()).collect();
            let object = json!({
                "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
                "metadata": {"name": ARGOCD_SECRET, "namespace": workflows, "labels": labels},
                "data": data,
            });
            failpoint::write(SECRET_POINT);
            cluster.create(&path::core(workflows, "secrets"), &object).await
        }
    };
    match written {
        Ok(_) => Ok(true),
        Err(error) if error.is_conflict() => Err(contested("it was changed after it was read")),
        Err(error) => Err(error.into()),
    }
}

/// What has the name of one of ours and is somebody else's stays as it is (INV-11).
pub(crate) fn foreign_object(title: &str, object: &Value) -> Failure {
    Failure::new(Code::ForeignObject, format!("{title} is somebody else's, and was left as it is"))
        .hint(format!("rename or remove it; if it may be changed, hand it over: {}", handing(object)))
}

/// Somebody else is at it.
fn contested(why: &str) -> Failure {
    Failure::new(Code::TokenContested, format!("Secret `{ARGOCD_SECRET}`: {why}"))
        .hint("the token that is stored works; run it again if it should be replaced once more")
}

/// Whether Argo CD accepts a token as one of an account of ours.
///
/// # Errors
/// When Argo CD does not answer, or the token is one of somebody else: then it is not ours to replace (INV-11).
pub(crate) async fn accepts(argocd: &ArgoCd, account: &str) -> Result<bool, Failure> {
    match argocd.who().await {
        Ok(Some(name)) if name == account => Ok(true),
        Ok(Some(name)) => Err(foreign(&name, account)),
        Ok(None) | Err(ClusterError::Refused { code: 401, .. }) => Ok(false),
        Err(error) => Err(argocd::failure(&error)),
    }
}

/// Proves that a token that somebody named is accepted, whoever it belongs to. One that was made just now may take a moment.
///
/// # Errors
/// When it is not, or Argo CD does not answer: then what is stored stays.
pub(crate) async fn usable(argocd: &ArgoCd) -> Result<(), Failure> {
    let mut last = who(argocd).await;
    for _ in 1..TRIES {
        if last.is_ok() {
            break;
        }
        tokio::time::sleep(PAUSE).await;
        last = who(argocd).await;
    }
    last
}

async fn who(argocd: &ArgoCd) -> Result<(), Failure> {
    match argocd.who().await {
        Ok(Some(_)) => Ok(()),
        Ok(None) | Err(ClusterError::Refused { code: 401, .. }) => {
            Err(Failure::new(Code::TokenUnusable, "Argo CD does not accept the token of --argocd-token-file").hint(
                "what was stored before is stored still; `argocd account generate-token --account forge` makes one",
            ))
        }
        Err(error) => Err(argocd::failure(&error)),
    }
}

fn foreign(name: &str, account: &str) -> Failure {
    let name = forge_core::name::clip(name);
    Failure::new(Code::TokenUnusable, format!("the stored token is one of `{name}` and not of the account `{account}`"))
        .hint(format!("replace it where it was made, or bootstrap with a token of `{ACCOUNT}` in --argocd-token-file"))
}

/// Who makes the next token.
pub(crate) struct Minter {
    argocd: ArgoCd,
    /// Of which account.
    account: &'static str,
    /// In words.
    pub(crate) who: &'static str,
}

/// Who may make a token: whose token was given, else the account itself while the stored one is accepted, else the
/// administrator by his password.
///
/// # Errors
/// When none of them can.
pub(crate) async fn minter(
    cluster: &Cluster,
    namespace: &str,
    stored: &ArgoCd,
    accepted: bool,
    administrator: Option<&SecretString>,
) -> Result<Minter, Failure> {
    if accepted && administrator.is_none() {
        return Ok(Minter { argocd: stored.clone(), account: ACCOUNT, who: "the account itself" });
    }
    let hint = "make one with `argocd account generate-token --account forge` and give it to `forge bootstrap` with --argocd-token-file; or `forge rotate --argocd-admin-token-file FILE`";
    by_administrator(cluster, namespace, stored, ACCOUNT, administrator, hint).await
}

/// An administrator, who may make a token of any account: whose token was given, else Argo CD's own by his password.
async fn by_administrator(
    cluster: &Cluster,
    namespace: &str,
    stored: &ArgoCd,
    account: &'static str,
    administrator: Option<&SecretString>,
    hint: &str,
) -> Result<Minter, Failure> {
    if let Some(token) = administrator {
        let argocd = stored.with(token.clone());
        return Ok(Minter { argocd, account, who: "the account of --argocd-admin-token-file" });
    }
    // The first one is there only until bootstrap has put its own in its place.
    for (name, who) in [(INITIAL_SECRET, "the initial administrator"), (ADMINISTRATOR_SECRET, "the administrator")] {
        let secret = match cluster.get(&path::object(&path::core(namespace, "secrets"), name)).await {
            // Whoever may not read it has none: the account that does this by the calendar, for one.
            Err(ClusterError::Refused { code: 401 | 403, .. }) => None,
            other => other?,
        };
        let password = secret.as_ref().and_then(|secret| secret_text(secret, PASSWORD_KEY)).map(SecretString::from);
        let Some(password) = password else { continue };
        match stored.administrator(&password).await {
            Ok(argocd) => return Ok(Minter { argocd, account, who }),
            // Somebody changed it, and knows what to.
            Err(ClusterError::Refused { code: 401, .. }) => {}
            Err(error) => return Err(argocd::failure(&error)),
        }
    }
    let message = format!(
        "no token of the Argo CD account `{account}` is accepted, and no administrator's password that is can be read to make one with"
    );
    Err(Failure::new(Code::TokenUnusable, message).hint(hint))
}

impl Minter {
    /// Makes a token that ends, and proves that Argo CD accepts it.
    ///
    /// # Errors
    /// When it is not made, or not accepted.
    pub(crate) async fn mint(&self, lifetime: duration::Duration) -> Result<(String, SecretString), Failure> {
        // Of two tokens that are made at the same moment Argo CD may lose one.
        for _ in 1..MINTS {
            match self.mint_once(lifetime).await {
                Err(failure) if failure.code == Code::TokenUnusable => {}
                other => return other,
            }
        }
        self.mint_once(lifetime).await
    }

    async fn mint_once(&self, lifetime: duration::Duration) -> Result<(String, SecretString), Failure> {
        self.mint_as(&new_id(ACCOUNT, Timestamp::now()), lifetime).await
    }

    async fn mint_as(&self, id: &str, lifetime: duration::Duration) -> Result<(String, SecretString), Failure> {
        let account = self.account;
        failpoint::write(TOKEN_POINT);
        let token = self.argocd.mint(account, id, lifetime).await.map_err(|error| {
            let mut failure = argocd::failure(&error);
            let verb = if account == TEARDOWN_ACCOUNT { "delete" } else { "sync" };
            failure.hint = Some(format!(
                "argocd-cm needs `accounts.{account}: apiKey`, argocd-rbac-cm a policy that lets it get and {verb} applications"
            ));
            failure
        })?;
        if let Err(failure) = proven(&self.argocd.with(token.clone()), account).await {
            // It is of no use to anybody.
            failpoint::write(RETIRED_POINT);
            let _ = self.argocd.forget(account, id).await;
            return Err(failure);
        }
        Ok((id.to_owned(), token))
    }

    /// All tokens of the account.
    ///
    /// # Errors
    /// When they may not be listed.
    pub(crate) async fn tokens(&self) -> Result<Vec<Token>, Failure> {
        self.argocd.tokens(self.account).await.map_err(|error| argocd::failure(&error))
    }

    /// Takes a token back that nobody has.
    pub(crate) async fn take_back(&self, id: &str) {
        failpoint::write(RETIRED_POINT);
        let _ = self.argocd.forget(self.account, id).await;
    }
}

/// An id that says whose it is and when it was made, and that no other one has.
fn new_id(whose: &str, now: Timestamp) -> String {
    let unique = Digest::of(format!("{}-{}", now.as_nanosecond(), std::process::id()).as_bytes());
    format!("{whose}-{}-{}", now.strftime("%Y%m%dt%H%M%Sz"), unique.short(8))
}

/// Waits until Argo CD accepts a token.
///
/// # Errors
/// When it does not within a while.
async fn proven(argocd: &ArgoCd, account: &str) -> Result<(), Failure> {
    let end = tokio::time::Instant::now() + SETTLING;
    loop {
        match accepts(argocd, account).await {
            Ok(true) => return Ok(()),
            Err(failure) if failure.code != Code::ArgoUnreachable => return Err(failure),
            last if tokio::time::Instant::now() >= end => {
                last?;
                return Err(Failure::new(
                    Code::TokenUnusable,
                    format!("Argo CD does not accept the new token of the account `{account}`"),
                )
                .hint("no token was deleted; is the account enabled, and do all replicas of argocd-server run?"));
            }
            _ => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Takes every token from the account that is not newer than the stored one, which must be this one; proves first that it is
/// accepted, and again afterwards. Then the mark is taken from the Secret.
///
/// # Errors
/// When another token is stored by now, the stored one is not accepted, or one cannot be deleted.
pub(crate) async fn retire(cluster: &Cluster, workflows: &str, id: &str) -> Result<Vec<String>, Failure> {
    let secret = cluster.get(&secret_path(workflows)).await?;
    let stored = secret.as_ref().and_then(Stored::read).filter(|stored| stored.id.as_deref() == Some(id));
    let Some(stored) = stored else { return Err(contested("another token is stored by now")) };
    let argocd = behind(cluster, &stored)?;
    proven(&argocd, ACCOUNT).await?;
    let all = argocd.tokens(ACCOUNT).await.map_err(|error| argocd::failure(&error))?;
    let mut gone = Vec::new();
    for token in going(&all, id)? {
        failpoint::write(RETIRED_POINT);
        argocd.forget(ACCOUNT, &token.id).await.map_err(|error| argocd::failure(&error))?;
        gone.push(token.id.clone());
    }
    if !gone.is_empty() {
        proven(&argocd, ACCOUNT).await?;
    }
    if stored.retire_after.is_some() {
        let patch = json!({"metadata": {"resourceVersion": stored.version}, "data": {RETIRE_AFTER: null}});
        failpoint::write(SECRET_POINT);
        match cluster.merge(&secret_path(workflows), &patch).await {
            // Who changed it has set a mark of his own, or has no need of ours.
            Err(error) if !error.is_conflict() => return Err(error.into()),
            _ => {}
        }
    }
    Ok(gone)
}

/// The tokens that go when this one stays.
///
/// # Errors
/// When the account does not know it.
fn going<'t>(all: &'t [Token], id: &str) -> Result<Vec<&'t Token>, Failure> {
    token::others(all, id).ok_or_else(|| {
        Failure::new(
            Code::TokenUnusable,
            format!("the account `{ACCOUNT}` does not list its token `{}`", forge_core::name::clip(id)),
        )
        .hint("no token was deleted; run it again when argocd-server is well")
    })
}

/// Where the Secret of a teardown's account is.
fn lent_path(workflows: &str, environment: &EnvironmentName) -> String {
    path::object(&path::core(workflows, "secrets"), &teardown_secret(environment))
}

/// What the ids of an environment's teardowns begin with: two of them at once do not take each other's tokens.
fn lent_ids(environment: &EnvironmentName) -> String {
    format!("{TEARDOWN_ACCOUNT}-{environment}")
}

/// True for the id of a token of this environment's teardowns, as [`new_id`] makes them; `dev` is not `dev-2`.
fn is_lent(id: &str, environment: &EnvironmentName) -> bool {
    let rest = id.strip_prefix(&lent_ids(environment)).and_then(|rest| rest.strip_prefix('-'));
    rest.is_some_and(|rest| rest.matches('-').count() == 1)
}

/// A token of the account `forge-teardown`, stored where the runners of a teardown find it: the one that an interrupted teardown
/// left, if Argo CD accepts it, else a new one, which only an administrator can make. Ends by itself after `lifetime`.
///
/// # Errors
/// When none can be made, or the Secret is somebody else's.
pub(crate) async fn lend(
    cluster: &Cluster,
    (workflows, namespace): (&str, &str),
    environment: &EnvironmentName,
    administrator: Option<&SecretString>,
    lifetime: duration::Duration,
) -> Result<ArgoCd, Failure> {
    let own = cluster.get(&secret_path(workflows)).await?;
    let Some((own, stored)) = own.as_ref().and_then(|secret| Some((secret, Stored::read(secret)?))) else {
        let message = format!("no Secret `{ARGOCD_SECRET}` with a token in `{workflows}`");
        return Err(Failure::new(Code::NotBootstrapped, message).hint("`forge bootstrap` makes the account's token"));
    };
    let at = lent_path(workflows, environment);
    let before = cluster.get(&at).await?;
    if let Some(secret) = before.as_ref().filter(|secret| !is_ours(secret)) {
        return Err(foreign_object(&format!("Secret {}", teardown_secret(environment)), secret));
    }
    if let Some(lent) = before.as_ref().and_then(Stored::read) {
        let argocd = behind(cluster, &lent)?;
        let ends = lent.expires.is_some_and(|at| at < Timestamp::now().saturating_add(SHORTEST_LEFT).unwrap_or(at));
        if !ends && accepts(&argocd, TEARDOWN_ACCOUNT).await.unwrap_or(false) {
            return Ok(argocd);
        }
    }
    let argocd = behind(cluster, &stored)?;
    let hint =
        "give --argocd-admin-token-file FILE with a token of an account that may `accounts, update, forge-teardown`";
    let minter = by_administrator(cluster, namespace, &argocd, TEARDOWN_ACCOUNT, administrator, hint).await?;
    let (id, token) = minter.mint_as(&new_id(&lent_ids(environment), Timestamp::now()), lifetime).await?;
    let certificates = secret_text(own, argocd::CERTIFICATE);
    let certificates = certificates.as_deref();
    let content = Content { server: &stored.server, token: &token, certificates, retire_after: None };
    let data: Map<String, Value> = content.data().into_iter().filter(|(_, value)| !value.is_null()).collect();
    let labels = json!({MANAGED_BY: "forge", ENVIRONMENT_LABEL: environment});
    let object = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": teardown_secret(environment), "namespace": workflows, "labels": labels},
        "data": data,
    });
    failpoint::write(LENT_POINT);
    let written = match &before {
        None => cluster.create(&path::core(workflows, "secrets"), &object).await,
        Some(_) => cluster.merge(&at, &json!({"data": content.data()})).await,
    };
    if let Err(error) = written {
        minter.take_back(&id).await;
        return Err(error.into());
    }
    // What interrupted teardowns made and never stored, or stored and lost.
    for old in minter.tokens().await.unwrap_or_default() {
        if old.id != id && is_lent(&old.id, environment) {
            minter.take_back(&old.id).await;
        }
    }
    Ok(argocd.with(token))
}

/// Whether a teardown that did not get to its end left a token. Reads only.
///
/// # Errors
/// When the cluster does not answer.
pub(crate) async fn is_lent_out(
    cluster: &Cluster,
    workflows: &str,
    environment: &EnvironmentName,
) -> Result<bool, Failure> {
    Ok(cluster.get(&lent_path(workflows, environment)).await?.is_some_and(|secret| is_ours(&secret)))
}

/// Gives the token of a teardown back: it takes itself from the account, and its Secret goes. True where there was one.
///
/// # Errors
/// When Argo CD, or the cluster, does not answer: then it ends by itself.
pub(crate) async fn give_back(
    cluster: &Cluster,
    workflows: &str,
    environment: &EnvironmentName,
) -> Result<bool, Failure> {
    let at = lent_path(workflows, environment);
    let Some(secret) = cluster.get(&at).await?.filter(is_ours) else { return Ok(false) };
    if let Some(lent) = Stored::read(&secret) {
        let argocd = behind(cluster, &lent)?;
        // One that has ended cannot, and need not, be taken back.
        if accepts(&argocd, TEARDOWN_ACCOUNT).await? {
            let own = lent.id.clone().unwrap_or_default();
            let all = argocd.tokens(TEARDOWN_ACCOUNT).await.map_err(|error| argocd::failure(&error))?;
            let others = all.iter().map(|token| token.id.as_str()).filter(|id| is_lent(id, environment));
            // It takes the others first: without itself it can take none.
            for id in others.filter(|id| *id != own).chain([own.as_str()]) {
                failpoint::write(RETIRED_POINT);
                argocd.forget(TEARDOWN_ACCOUNT, id).await.map_err(|error| argocd::failure(&error))?;
            }
        }
    }
    failpoint::write(LENT_POINT);
    cluster.delete(&at).await?;
    Ok(true)
}

/// Argo CD through the API server, as the Secret says.
///
/// # Errors
/// When its address is not one inside the cluster.
pub(crate) fn behind(cluster: &Cluster, stored: &Stored) -> Result<ArgoCd, Failure> {
    ArgoCd::proxied(cluster, &stored.server, stored.token.clone()).ok_or_else(|| unusable(&stored.server))
}

/// An address that the API server cannot reach.
pub(crate) fn unusable(server: &str) -> Failure {
    let server = forge_core::name::clip(server);
    Failure::new(Code::BadArgument, format!("`{server}` is not an address inside the cluster"))
}

/// A token from a file.
///
/// # Errors
/// When it cannot be read, or nothing is in it.
pub(crate) fn token_in(file: &Path) -> Result<SecretString, Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::new(Code::BadArgument, format!("failed to read `{}`: {error}", file.display())))?;
    match text.trim() {
        "" => Err(Failure::new(Code::BadArgument, format!("`{}` holds no token: it is empty", file.display()))),
        token => Ok(SecretString::from(token.to_owned())),
    }
}

/// A lifetime that a token can have.
///
/// # Errors
/// When it is too short to be replaced in time.
pub(crate) fn lifetime(asked: duration::Duration, grace: duration::Duration) -> Result<duration::Duration, Failure> {
    let least = token::SHORTEST.max(duration::Duration::from_seconds(grace.seconds().saturating_mul(4)));
    if asked < least {
        return Err(Failure::new(Code::BadArgument, format!("a token that ends after {asked} ends too soon"))
            .hint(format!("--token-lifetime is at least {least}: four times the grace, and an hour")));
    }
    Ok(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> SecretString {
        SecretString::from(text.to_owned())
    }

    fn jwt(id: &str, issued: i64, expires: Option<i64>) -> SecretString {
        let claims = json!({"sub": "forge:apiKey", "jti": id, "iat": issued, "exp": expires});
        let payload = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(claims.to_string());
        secret(&format!("e30.{payload}.c2ln"))
    }

    fn content<'c>(server: &'c str, token: &'c SecretString, certificates: Option<&'c str>) -> Content<'c> {
        Content { server, token, certificates, retire_after: None }
    }

    fn as_secret(content: &Content<'_>) -> Value {
        let data: Map<String, Value> = content.data().into_iter().filter(|(_, value)| !value.is_null()).collect();
        json!({"metadata": {"resourceVersion": "7"}, "data": data})
    }

    #[test]
    fn a_teardown_takes_back_its_own_tokens_and_none_of_an_environment_whose_name_begins_alike() {
        let (dev, second): (EnvironmentName, EnvironmentName) = ("dev".parse().unwrap(), "dev-2".parse().unwrap());
        let now = Timestamp::UNIX_EPOCH;
        let (first, other) = (new_id(&lent_ids(&dev), now), new_id(&lent_ids(&second), now));
        assert!(is_lent(&first, &dev) && is_lent(&other, &second));
        assert!(!is_lent(&first, &second) && !is_lent(&other, &dev) && !is_lent(&new_id(ACCOUNT, now), &dev));
    }

    #[test]
    fn a_secret_is_written_when_address_token_certificate_or_mark_changed_and_only_then() {
        let (token, other) = (secret("t"), secret("u"));
        let before = content("https://a.argocd.svc", &token, Some("c"));
        let mut stored = as_secret(&before);
        stored["data"]["somebody"] = json!("else");
        assert!(before.is_held(&stored));
        assert!(!content("https://b.argocd.svc", &token, Some("c")).is_held(&stored));
        assert!(!content("https://a.argocd.svc", &token, Some("d")).is_held(&stored));
        assert!(!content("https://a.argocd.svc", &token, None).is_held(&stored));
        assert!(!content("https://a.argocd.svc", &other, Some("c")).is_held(&stored));
        assert!(!before.is_held(&json!({})));
        let marked = Content { retire_after: Some(Timestamp::UNIX_EPOCH), ..before };
        assert!(!marked.is_held(&stored));
        assert!(!content("https://a.argocd.svc", &token, Some("c")).is_held(&as_secret(&marked)));
    }

    #[test]
    fn what_is_stored_beside_a_token_is_what_the_token_says_and_reads_back() {
        let token = jwt("forge-1", 100, Some(1_000));
        let kept = Content { retire_after: Some(Timestamp::UNIX_EPOCH), ..content("http://a.b.svc", &token, None) };
        let stored = Stored::read(&as_secret(&kept)).unwrap();
        assert_eq!((stored.server.as_str(), stored.id.as_deref()), ("http://a.b.svc", Some("forge-1")));
        assert_eq!(stored.expires.map(Timestamp::as_second), Some(1_000));
        assert_eq!((stored.retire_after, stored.version.as_str()), (Some(Timestamp::UNIX_EPOCH), "7"));
        let (early, late) = (Timestamp::from_second(600).unwrap(), Timestamp::from_second(800).unwrap());
        assert!(!stored.is_due(early) && stored.is_due(late));
        let after = Timestamp::from_second(1_000).unwrap();
        assert_eq!((stored.stale(early), stored.stale(late)), (None, Some("is due to be replaced".to_owned())));
        assert_eq!(stored.stale(after), Some("ended at 1970-01-01T00:16:40Z".to_owned()));
        // A token that says nothing is somebody's own: it is kept as it is.
        let opaque = secret("opaque");
        let stored = Stored::read(&as_secret(&content("http://a.b.svc", &opaque, None))).unwrap();
        assert_eq!((stored.id.as_deref(), stored.expires), (Some(""), None));
        assert!(!stored.is_due(late));
        // One that an older version stored, which never ends, is replaced.
        let endless = jwt("x", 100, None);
        let mut old = as_secret(&content("http://a.b.svc", &endless, None));
        old["data"].as_object_mut().unwrap().remove(TOKEN_ID);
        assert!(Stored::read(&old).unwrap().is_due(early));
        assert!(Stored::read(&json!({"data": {}})).is_none());
    }

    #[test]
    fn a_secret_that_is_mounted_says_what_the_secret_does_and_half_of_one_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let token = jwt("forge-1", 100, Some(1_000));
        std::fs::write(folder.path().join(TOKEN), format!("{}\n", token.expose_secret())).unwrap();
        assert!(Stored::mounted(folder.path()).is_none());
        std::fs::write(folder.path().join(SERVER), "http://a.b.svc\n").unwrap();
        let bare = Stored::mounted(folder.path()).unwrap();
        assert_eq!((bare.server.as_str(), bare.id, bare.expires), ("http://a.b.svc", None, None));
        // The token itself says when it ends, whatever is beside it.
        std::fs::write(folder.path().join(TOKEN_ID), "forge-1").unwrap();
        std::fs::write(folder.path().join(EXPIRES), "2001-01-01T00:00:00Z").unwrap();
        let stored = Stored::mounted(folder.path()).unwrap();
        assert_eq!((stored.id.as_deref(), stored.token.expose_secret()), (Some("forge-1"), token.expose_secret()));
        assert_eq!(stored.ends().map(Timestamp::as_second), Some(1_000));
    }

    #[test]
    fn an_empty_file_is_no_token() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        for nothing in ["", "\n", " \t\n"] {
            std::fs::write(&file, nothing).unwrap();
            assert_eq!(token_in(&file).unwrap_err().code, Code::BadArgument, "{nothing:?}");
        }
        std::fs::write(&file, " t\n").unwrap();
        assert_eq!(token_in(&file).unwrap().expose_secret(), "t");
    }

    #[test]
    fn ids_differ_say_when_and_fit_into_a_path() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let later = now.checked_add(jiff::SignedDuration::from_nanos(1)).unwrap();
        let (one, other) = (new_id(ACCOUNT, now), new_id(ACCOUNT, later));
        assert!(one != other && one.starts_with("forge-20270115t080000z-"), "{one}");
        assert!(one.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{one}");
    }

    #[test]
    fn a_token_must_outlive_the_grace_by_far() {
        let (minute, hour) = (duration::Duration::from_seconds(60), duration::Duration::from_seconds(3600));
        assert_eq!(lifetime(hour, minute).unwrap(), hour);
        assert!(lifetime(minute, minute).is_err());
        assert!(lifetime(hour, hour).is_err());
        assert!(lifetime(duration::Duration::ZERO, duration::Duration::ZERO).is_err());
        assert!(lifetime(token::LIFETIME, token::GRACE).is_ok());
    }
}
