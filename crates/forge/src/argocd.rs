//! The API of Argo CD, with an account that can get and sync Applications, or get and delete them while a teardown lasts, and
//! nothing else (SPEC.md section 4).
//!
//! In the cluster it is reached by its address, from outside through the API server; the token travels as a cookie,
//! because the API server keeps the Authorization header for itself.

mod application;
mod feed;
mod list;
mod pruned;
mod token;
mod tree;
mod trust;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forge_core::code::Code;
use forge_core::duration;
use forge_core::failure::Failure;
use forge_core::gate::Nonce;
use forge_core::name::{ApplicationId, clip};
use forge_core::render;
use forge_core::token::Token;
use futures::AsyncBufRead;
use http::{Method, Request};
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

use crate::cluster::{Cluster, ClusterError, escaped, path, secret_text};

pub(crate) use application::{Application, Resource};
pub(crate) use feed::{Feed, Known};
pub(crate) use pruned::Pruned;
pub(crate) use token::claims;
pub(crate) use tree::{Member, assembled, is_pod, is_receipt, is_workload};
pub(crate) use trust::certificates;

use list::{Found, Versions};
use token::{Bearer, Source};
use tree::Trees;

/// The account that is Forge's.
pub(crate) const ACCOUNT: &str = "forge";
/// The name of the info that carries our nonce.
pub(crate) const NONCE: &str = "forge-nonce";
/// The key of Argo CD's certificate in the Secret of the account, and its file beside the token.
pub(crate) const CERTIFICATE: &str = "ca.crt";
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long a comparison may take.
const REFRESH_PATIENCE: Duration = Duration::from_secs(60);
/// After so long without an answer the controller may not have heard that it was asked.
const HEARD: Duration = Duration::from_secs(30);
/// How long it may take where everything is rendered for it: a plugin alone has 90 s.
const RENDER_PATIENCE: Duration = Duration::from_secs(150);

/// Argo CD, as one account sees it.
#[derive(Clone)]
pub(crate) struct ArgoCd {
    /// Reads; may ask again by itself.
    client: kube::Client,
    /// Asks once, for everything else: what was not answered well may have been done all the same, and whoever asked decides.
    once: kube::Client,
    prefix: String,
    bearer: Arc<Bearer>,
    trees: Arc<Trees>,
}

impl ArgoCd {
    /// At an address of its own. Over TLS it must show one of these certificates, or one that they issued; without any,
    /// one that the system trusts.
    ///
    /// # Errors
    /// When the address or the certificates cannot be used.
    fn reached(url: &str, bearer: Bearer, certificates: Option<&str>) -> Result<Self, Failure> {
        let bad = |why: &dyn std::fmt::Display| {
            Failure::new(Code::BadArgument, format!("`{}` cannot be the address of Argo CD: {why}", clip(url)))
        };
        let uri: http::Uri = url.parse().map_err(|error| bad(&error))?;
        let mut config = kube::Config::new(uri);
        config.read_timeout = None;
        config.connect_timeout = Some(Duration::from_secs(5));
        let made = |config: kube::Config| kube::Client::try_from(config).map_err(|error| bad(&error));
        let (client, once) = match certificates.filter(|_| config.cluster_url.scheme_str() == Some("https")) {
            // It never asks again by itself.
            Some(pem) => {
                let client = trust::client(&config, pem).map_err(|error| bad(&format!("`{CERTIFICATE}`: {error}")))?;
                (client.clone(), client)
            }
            None => {
                let client = made(config.clone())?;
                config.default_retry = false;
                (client, made(config)?)
            }
        };
        Ok(Self { client, once, prefix: String::new(), bearer: Arc::new(bearer), trees: Arc::default() })
    }

    #[cfg(test)]
    pub(crate) fn at(url: &str, token: SecretString, certificates: Option<&str>) -> Result<Self, Failure> {
        Self::reached(url, Bearer::new(Source::Given, token), certificates)
    }

    /// Through the API server, as the Secret of the account says.
    ///
    /// # Errors
    /// When there is no such Secret, or it may not be read.
    pub(crate) async fn through(cluster: &Cluster, workflows: &str) -> Result<Self, Failure> {
        let path = path::object(&path::core(workflows, "secrets"), render::ARGOCD_SECRET);
        let Some(secret) = cluster.get(&path).await? else {
            return Err(Failure::new(
                Code::NotBootstrapped,
                format!("no Secret `{}` in `{workflows}`", render::ARGOCD_SECRET),
            )
            .hint("`forge bootstrap` makes the account's token"));
        };
        let broken =
            || Failure::new(Code::NotBootstrapped, "the Secret of the Argo CD account is not what bootstrap writes");
        let (server, token) = secret_text(&secret, "server").zip(secret_text(&secret, "token")).ok_or_else(broken)?;
        // Whoever conducts a run from a terminal outlives a rotation too.
        let bearer =
            Bearer::new(Source::Secret { cluster: Box::new(cluster.clone()), path }, SecretString::from(token));
        Self::behind(cluster, &server, bearer).ok_or_else(broken)
    }

    /// Through the API server, with this token; nothing where the address is not one inside the cluster.
    pub(crate) fn proxied(cluster: &Cluster, server: &str, token: SecretString) -> Option<Self> {
        Self::behind(cluster, server, Bearer::new(Source::Given, token))
    }

    fn behind(cluster: &Cluster, server: &str, bearer: Bearer) -> Option<Self> {
        let (client, once) = (cluster.client().clone(), cluster.asks_once().clone());
        Some(Self { client, once, prefix: proxied(server)?, bearer: Arc::new(bearer), trees: Arc::default() })
    }

    /// The same Argo CD, with another token.
    pub(crate) fn with(&self, token: SecretString) -> Self {
        Self { bearer: Arc::new(Bearer::new(Source::Given, token)), ..self.clone() }
    }

    /// The same Argo CD as its administrator sees it.
    pub(crate) async fn administrator(&self, password: &SecretString) -> Result<Self, ClusterError> {
        let session = json!({"username": "admin", "password": password.expose_secret()});
        let answer = self.send(Method::POST, "/session", Some(&session), PATIENCE).await?;
        Ok(self.with(token_in(&answer)?))
    }

    /// A new token of an account of ours. The account itself may always make one, whatever its policy says, and so may an
    /// administrator.
    pub(crate) async fn mint(
        &self,
        account: &str,
        id: &str,
        lifetime: duration::Duration,
    ) -> Result<SecretString, ClusterError> {
        let body = json!({"name": account, "id": id, "expiresIn": lifetime.seconds()});
        let path = format!("/account/{account}/token");
        token_in(&self.send(Method::POST, &path, Some(&body), PATIENCE).await?)
    }

    /// All tokens of an account of ours, also those that have ended.
    pub(crate) async fn tokens(&self, account: &str) -> Result<Vec<Token>, ClusterError> {
        let answer = self.send(Method::GET, &format!("/account/{account}"), None, PATIENCE).await?;
        let tokens = match answer.get("tokens") {
            None | Some(Value::Null) => return Ok(Vec::new()),
            Some(tokens) => tokens.as_array(),
        };
        let listed: Option<Vec<Token>> = tokens.and_then(|tokens| tokens.iter().map(listed).collect());
        listed.ok_or_else(|| ClusterError::Unreadable("a list of tokens that cannot be read".to_owned()))
    }

    /// Takes a token from an account of ours; one that is not there is no error.
    pub(crate) async fn forget(&self, account: &str, id: &str) -> Result<(), ClusterError> {
        let path = format!("/account/{account}/token/{}", escaped(id));
        match self.send(Method::DELETE, &path, None, PATIENCE).await {
            Err(error) if !error.is_missing() && !not_there(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Who the token belongs to; nothing where it is not accepted.
    pub(crate) async fn who(&self) -> Result<Option<String>, ClusterError> {
        let answer = self.send(Method::GET, "/session/userinfo", None, PATIENCE).await?;
        let name = answer.get("username").and_then(Value::as_str).filter(|name| !name.is_empty());
        Ok(name.map(str::to_owned))
    }

    /// With a token from a mounted file, and Argo CD's certificate from the file beside it, where there is one.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(crate) fn mounted(address: &str, token_file: &Path) -> Result<Self, Failure> {
        let read = |file: &Path| {
            std::fs::read_to_string(file).map(|text| text.trim().to_owned()).map_err(|error| {
                Failure::new(Code::NotBootstrapped, format!("failed to read `{}`: {error}", file.display()))
            })
        };
        let beside = token_file.with_file_name(CERTIFICATE);
        let certificates = if beside.exists() { Some(read(&beside)?) } else { None };
        let address = match address.strip_prefix('@') {
            Some(file) => read(Path::new(file))?,
            None => address.to_owned(),
        };
        let bearer = Bearer::new(Source::File(token_file.to_owned()), SecretString::from(read(token_file)?));
        Self::reached(&address, bearer, certificates.as_deref())
    }

    fn request(
        &self,
        token: &SecretString,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Request<Vec<u8>>, ClusterError> {
        let uri = format!("{}/api/v1{path}", self.prefix);
        // Argo CD refuses everything but GET without a content type, whether there is content or not.
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .header("content-type", "application/json")
            .header("cookie", format!("argocd.token={}", token.expose_secret()));
        let bytes = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        request.body(bytes).map_err(|error| ClusterError::Unreachable(error.to_string()))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        patience: Duration,
    ) -> Result<Value, ClusterError> {
        let token = self.bearer.current().await;
        let answer = self.send_with(&token, method.clone(), path, body, patience).await;
        if !answer.as_ref().is_err_and(is_about_the_token) {
            return answer;
        }
        match self.bearer.another(&token).await {
            Some(another) => self.send_with(&another, method, path, body, patience).await,
            None => answer,
        }
    }

    async fn send_with(
        &self,
        token: &SecretString,
        method: Method,
        path: &str,
        body: Option<&Value>,
        patience: Duration,
    ) -> Result<Value, ClusterError> {
        let client = if method == Method::GET { &self.client } else { &self.once };
        let request = self.request(token, method, path, body)?;
        match tokio::time::timeout(patience, client.request::<Value>(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(plain(error.into())),
            Err(_) => Err(late(patience)),
        }
    }

    /// All Applications that the account may see.
    pub(crate) async fn list(&self) -> Result<Vec<Application>, ClusterError> {
        let all = self.list_since(&|_| None).await?;
        let new = all.into_iter().filter_map(|found| if let Found::New(found) = found { Some(*found) } else { None });
        Ok(new.collect())
    }

    /// All Applications that the account may see, and of those that have not changed since only that they are there.
    async fn list_since(&self, known: Versions<'_>) -> Result<Vec<Found>, ClusterError> {
        let token = self.bearer.current().await;
        let answer = self.list_with(&token, known).await;
        if !answer.as_ref().is_err_and(is_about_the_token) {
            return answer;
        }
        match self.bearer.another(&token).await {
            Some(another) => self.list_with(&another, known).await,
            None => answer,
        }
    }

    async fn list_with(&self, token: &SecretString, known: Versions<'_>) -> Result<Vec<Found>, ClusterError> {
        let request = self.request(token, Method::GET, "/applications", None)?;
        let listed = async {
            let body = self.client.request_stream(request).await.map_err(|error| plain(error.into()))?;
            list::read(body, known).await
        };
        tokio::time::timeout(REFRESH_PATIENCE, listed).await.unwrap_or_else(|_| Err(late(REFRESH_PATIENCE)))
    }

    /// One Application, as it is stored.
    pub(crate) async fn get(&self, id: &ApplicationId) -> Result<Option<Application>, ClusterError> {
        let path = format!("/applications/{}?appNamespace={}", id.name(), id.namespace);
        match self.send(Method::GET, &path, None, PATIENCE).await {
            Ok(answer) => Ok(Application::read(&answer)),
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// One Application of a project, by its name; nothing where the project has none of that name. Without the project Argo CD
    /// says that it may not be seen where it is not there.
    pub(crate) async fn find(&self, id: &ApplicationId, project: &str) -> Result<Option<Application>, ClusterError> {
        let (namespace, project) = (&id.namespace, escaped(project));
        let path = format!("/applications/{}?appNamespace={namespace}&project={project}", id.name());
        match self.send(Method::GET, &path, None, PATIENCE).await {
            Ok(answer) => Ok(Application::read(&answer)),
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Deletes an Application. With `cascade` everything that it made goes first, and all that it owns before it; else nothing
    /// of it goes. One that is not there is no error.
    pub(crate) async fn delete(&self, id: &ApplicationId, project: &str, cascade: bool) -> Result<(), ClusterError> {
        let how = if cascade { "cascade=true&propagationPolicy=foreground" } else { "cascade=false" };
        let (namespace, project) = (&id.namespace, escaped(project));
        let path = format!("/applications/{}?{how}&appNamespace={namespace}&project={project}", id.name());
        match self.send(Method::DELETE, &path, None, PATIENCE).await {
            Err(error) if !error.is_missing() => Err(error),
            _ => Ok(()),
        }
    }

    /// Asks for a comparison and waits for it: what comes back was read after the comparison began with our request.
    pub(crate) async fn refresh(&self, id: &ApplicationId) -> Result<Application, ClusterError> {
        self.refresh_heard(id, HEARD).await
    }

    /// The wish for a comparison is an annotation. Argo CD 3.2.11 keeps the answer to its own last write in place of what its
    /// watch brought meanwhile, and so can miss it; the same wish again changes nothing, and nothing tells it either. Another
    /// one does.
    async fn refresh_heard(&self, id: &ApplicationId, heard: Duration) -> Result<Application, ClusterError> {
        match tokio::time::timeout(heard, self.compare(id, "normal", REFRESH_PATIENCE)).await {
            Ok(answer) => answer,
            Err(_) => self.refresh_hard(id).await,
        }
    }

    /// The same, and whatever Argo CD kept of it does not count, an error neither: it is rendered anew.
    pub(crate) async fn refresh_hard(&self, id: &ApplicationId) -> Result<Application, ClusterError> {
        self.compare(id, "hard", RENDER_PATIENCE).await
    }

    async fn compare(&self, id: &ApplicationId, how: &str, patience: Duration) -> Result<Application, ClusterError> {
        let path = format!("/applications/{}?refresh={how}&appNamespace={}", id.name(), id.namespace);
        let answer = self.send(Method::GET, &path, None, patience).await?;
        Application::read(&answer).ok_or_else(|| ClusterError::Unreadable("not an Application".to_owned()))
    }

    /// Asks for a sync that carries our nonce: with prune, without a retry of Argo CD's own, without a revision.
    pub(crate) async fn sync(&self, id: &ApplicationId, nonce: &Nonce) -> Result<(), ClusterError> {
        let path = format!("/applications/{}/sync", id.name());
        let body = json!({
            "appNamespace": id.namespace,
            "prune": true,
            "retryStrategy": {"limit": 0},
            "infos": [{"name": NONCE, "value": nonce}],
        });
        self.send(Method::POST, &path, Some(&body), PATIENCE).await.map(|_| ())
    }

    /// Asks the running operation to end.
    pub(crate) async fn terminate(&self, id: &ApplicationId) -> Result<(), ClusterError> {
        let path = format!("/applications/{}/operation?appNamespace={}", id.name(), id.namespace);
        self.send(Method::DELETE, &path, None, PATIENCE).await.map(|_| ())
    }

    /// The tree of everything below an Application.
    pub(crate) async fn tree(&self, id: &ApplicationId) -> Result<Value, ClusterError> {
        let path = format!("/applications/{}/resource-tree?appNamespace={}", id.name(), id.namespace);
        self.send(Method::GET, &path, None, PATIENCE).await
    }

    /// The workloads of an Application, of one kind, as Argo CD compared them last: what each is, and what a sync would make of
    /// it.
    pub(crate) async fn compared(&self, id: &ApplicationId, kind: &str) -> Result<Vec<Value>, ClusterError> {
        let query = format!("appNamespace={}&group=apps&kind={}", id.namespace, escaped(kind));
        let path = format!("/applications/{}/managed-resources?{query}", id.name());
        let mut answer = self.send(Method::GET, &path, None, REFRESH_PATIENCE).await?;
        match answer.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => Ok(items),
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(_) => Err(ClusterError::Unreadable("a comparison that cannot be read".to_owned())),
        }
    }

    /// A live object of an Application's tree; nothing where it is not there.
    async fn object(&self, id: &ApplicationId, resource: &Resource) -> Result<Option<Value>, ClusterError> {
        let path = format!(
            "/applications/{}/resource?appNamespace={}&namespace={}&resourceName={}&version={}&group={}&kind={}",
            id.name(),
            id.namespace,
            escaped(&resource.namespace),
            escaped(&resource.name),
            escaped(&resource.version),
            escaped(&resource.group),
            escaped(&resource.kind),
        );
        match self.send(Method::GET, &path, None, PATIENCE).await {
            Ok(answer) => {
                let manifest = answer.get("manifest").and_then(Value::as_str).unwrap_or_default();
                Ok(serde_json::from_str(manifest).ok())
            }
            Err(error) if error.is_missing() || not_found(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// One JSON object a line, for every change of every Application.
    async fn stream(&self) -> Result<impl AsyncBufRead + use<>, ClusterError> {
        let token = self.bearer.current().await;
        let refused = match self.stream_with(&token).await {
            Err(error) if is_about_the_token(&error) => error,
            other => return other,
        };
        match self.bearer.another(&token).await {
            Some(another) => self.stream_with(&another).await,
            None => Err(refused),
        }
    }

    async fn stream_with(&self, token: &SecretString) -> Result<impl AsyncBufRead + use<>, ClusterError> {
        let request = self.request(token, Method::GET, "/stream/applications", None)?;
        let answer = tokio::time::timeout(PATIENCE, self.client.request_stream(request)).await;
        let answer = answer.map_err(|_| ClusterError::Unreachable("Argo CD's stream was not answered".to_owned()))?;
        answer.map_err(|error| plain(error.into()))
    }
}

fn late(patience: Duration) -> ClusterError {
    ClusterError::Unreachable(format!("Argo CD did not answer within {} s", patience.as_secs()))
}

/// The token was refused. Where Argo CD lets strangers in, a token that has ended makes one of whoever shows it, and is answered
/// with what a stranger may not do.
fn is_about_the_token(error: &ClusterError) -> bool {
    matches!(error, ClusterError::Refused { code: 401 | 403, .. })
}

fn token_in(answer: &Value) -> Result<SecretString, ClusterError> {
    let token = answer.get("token").and_then(Value::as_str).filter(|token| !token.is_empty());
    let token = token.map(|token| SecretString::from(token.to_owned()));
    token.ok_or_else(|| ClusterError::Unreadable("no token in the answer".to_owned()))
}

/// A token as Argo CD lists it: times in seconds, as numbers or as text, and none where there is none.
fn listed(token: &Value) -> Option<Token> {
    let time = |name: &str| match token.get(name) {
        None | Some(Value::Null) => Some(0),
        Some(Value::String(text)) => text.parse().ok(),
        Some(other) => other.as_i64(),
    };
    let id = token.get("id").and_then(Value::as_str)?.to_owned();
    let issued = Timestamp::from_second(time("issuedAt")?).ok()?;
    let expires = match time("expiresAt")? {
        0 => None,
        seconds => Some(Timestamp::from_second(seconds).ok()?),
    };
    Some(Token { id, issued, expires })
}

/// How Argo CD says that an account has no such token.
fn not_there(error: &ClusterError) -> bool {
    matches!(error, ClusterError::Refused { message, .. } if message.contains("does not exist"))
}

/// Argo CD says some of its not-founds with other codes.
fn not_found(error: &ClusterError) -> bool {
    matches!(error, ClusterError::Refused { message, .. } if message.contains("not found"))
}

/// The code that was sent. The body of Argo CD's errors says which one it was in gRPC, and that is what kube reads.
fn sent(code: u16) -> u16 {
    match code {
        1 => 408,
        // Unknown (2) too: refusals without a code of their own have it, and asking again does not help those.
        2 | 3 | 9 | 11 => 400,
        4 => 504,
        5 => 404,
        6 | 10 => 409,
        7 => 403,
        8 => 429,
        12 => 501,
        13 | 15 => 500,
        14 => 503,
        16 => 401,
        other => other,
    }
}

/// Code and message inside Argo CD's own form of an error.
fn plain(error: ClusterError) -> ClusterError {
    match error {
        ClusterError::Refused { code, message } => {
            let inner: Option<Value> = serde_json::from_str(&message).ok();
            let text = inner.as_ref().and_then(|inner| inner.get("message")).and_then(Value::as_str);
            ClusterError::Refused { code: sent(code), message: application::message(text.unwrap_or(&message)) }
        }
        other => other,
    }
}

/// `http://name.namespace.svc:port` as a path of the API server.
fn proxied(server: &str) -> Option<String> {
    let (scheme, rest) = server.trim_end_matches('/').split_once("://")?;
    let (host, port) = match rest.split_once(':') {
        Some((host, port)) => (host, port),
        None => (rest, if scheme == "https" { "443" } else { "80" }),
    };
    let mut labels = host.split('.');
    let (name, namespace) = (labels.next()?, labels.next()?);
    Some(format!("/api/v1/namespaces/{namespace}/services/{scheme}:{name}:{port}/proxy"))
}

/// What the user is told when Argo CD cannot be asked.
pub(crate) fn failure(error: &ClusterError) -> Failure {
    match error {
        ClusterError::Refused { code: 401 | 403, message } => {
            Failure::new(Code::Forbidden, format!("Argo CD refused: {message}")).hint(
                "`forge bootstrap` gives the account `forge` a token and the permission to get and sync Applications",
            )
        }
        // It does answer, and would say the same again. Of a refusal without a code of its own that is not known.
        error if error.is_missing() => Failure::new(Code::ClusterRefused, format!("Argo CD refused: {error}")),
        other => {
            let said = other.to_string();
            let hint = if said.contains("certificate") {
                "it shows another certificate than the stored one, or an expired one: `forge bootstrap` stores it anew"
            } else {
                "`kubectl -n argocd get pods` must show a running argocd-server"
            };
            Failure::new(Code::ArgoUnreachable, format!("Argo CD does not answer: {said}")).hint(hint)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::http::StatusCode;

    use super::*;

    #[test]
    fn the_codes_of_grpc_are_told_apart_and_long_refusals_are_cut() {
        let refused = |code: u16, message: &str| plain(ClusterError::Refused { code, message: message.to_owned() });
        assert!(refused(5, "").is_missing() && refused(404, "").is_missing());
        assert!(refused(14, "").is_transient() && !refused(2, "").is_transient());
        for code in [7, 16] {
            assert_eq!(failure(&refused(code, "permission denied")).code, Code::Forbidden);
        }
        for (code, wanted) in [(5, Code::ClusterRefused), (14, Code::ArgoUnreachable), (2, Code::ArgoUnreachable)] {
            assert_eq!(failure(&refused(code, "no such account")).code, wanted, "{code}");
        }
        let long = json!({"message": "x".repeat(100_000)}).to_string();
        assert!(refused(9, &long).to_string().len() <= 1024);
    }

    #[test]
    fn the_certificate_lies_beside_the_token() {
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token");
        std::fs::write(&token, "t\n").unwrap();
        std::fs::write(folder.path().join("server"), "https://argocd-server.argocd.svc\n").unwrap();
        std::fs::write(folder.path().join(CERTIFICATE), "not a certificate").unwrap();
        let address = format!("@{}", folder.path().join("server").display());
        // Never ignored: what cannot be used is an error, not a reason to trust somebody else.
        let failure = ArgoCd::mounted(&address, &token).err().unwrap();
        assert!(failure.message.contains(CERTIFICATE), "{}", failure.message);
    }

    #[tokio::test]
    async fn what_is_read_may_be_asked_for_again_and_nothing_else_is() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let counts: Arc<[AtomicUsize; 2]> = Arc::default();
        let counted = counts.clone();
        // Reads are answered the second time, everything else never.
        let router = axum::Router::new().fallback(move |method: Method| async move {
            let reads = method == Method::GET;
            let before = counted[usize::from(!reads)].fetch_add(1, Ordering::Relaxed);
            let busy = json!({"code": 14, "message": "unavailable"});
            let application = json!({"metadata": {"namespace": "argocd", "name": "a"}});
            if reads && before % 2 == 1 {
                (StatusCode::OK, axum::Json(application))
            } else {
                (StatusCode::SERVICE_UNAVAILABLE, axum::Json(busy))
            }
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let token = SecretString::from("t".to_owned());
        let direct = ArgoCd::at(&address, token.clone(), None).unwrap();
        let cluster = Cluster::at(&address).unwrap();
        let proxied = ArgoCd::proxied(&cluster, "http://argocd-server.argocd.svc", token).unwrap();
        let (id, nonce) = ("argocd/a".parse().unwrap(), "r1/shop/api/1".parse().unwrap());
        for (ways, argocd) in [(1, direct), (2, proxied)] {
            assert!(argocd.get(&id).await.unwrap().is_some());
            assert!(argocd.sync(&id, &nonce).await.unwrap_err().is_transient());
            assert!(argocd.terminate(&id).await.unwrap_err().is_transient());
            assert_eq!([0, 1].map(|which: usize| counts[which].load(Ordering::Relaxed)), [2 * ways, 2 * ways]);
        }
    }

    #[tokio::test]
    async fn a_wish_for_a_comparison_that_was_not_heard_is_made_in_other_words() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let asked: Arc<std::sync::Mutex<Vec<String>>> = Arc::default();
        let told = asked.clone();
        // Who asks as before waits for ever.
        let router = axum::Router::new().fallback(move |uri: axum::http::Uri| async move {
            let query = uri.query().unwrap_or_default().to_owned();
            let how = query.split('&').next().unwrap_or_default().to_owned();
            let heard = how == "refresh=hard";
            told.lock().unwrap().push(how);
            if !heard {
                std::future::pending::<()>().await;
            }
            axum::Json(json!({"metadata": {"namespace": "argocd", "name": "a", "resourceVersion": "7"}}))
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let argocd = ArgoCd::at(&address, SecretString::from("t".to_owned()), None).unwrap();
        let compared = argocd.refresh_heard(&"argocd/a".parse().unwrap(), Duration::from_secs(3)).await.unwrap();
        assert_eq!((compared.version, asked.lock().unwrap().join(" ")), (7, "refresh=normal refresh=hard".to_owned()));
    }

    #[test]
    fn an_address_in_the_cluster_becomes_a_path_of_the_api_server() {
        assert_eq!(
            proxied("http://argo-cd-argocd-server.argocd.svc").as_deref(),
            Some("/api/v1/namespaces/argocd/services/http:argo-cd-argocd-server:80/proxy")
        );
        assert_eq!(
            proxied("https://argocd-server.argocd.svc.cluster.local:8443/").as_deref(),
            Some("/api/v1/namespaces/argocd/services/https:argocd-server:8443/proxy")
        );
        assert_eq!(proxied("argocd-server"), None);
    }
}
