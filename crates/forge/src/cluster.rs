//! The Kubernetes API, as much of it as we need: objects are JSON, read loosely and written by patches of our own fields.
//!
//! Must not know what an object means; that is the caller's. Every request ends: those without a deadline of their own get
//! one here.

mod connect;
#[cfg(test)]
pub(crate) mod fake;
mod kinds;
pub(crate) mod path;
mod watch;

use std::time::Duration;

use forge_core::code::Code;
use forge_core::failure::Failure;
use forge_core::name::clip;
use forge_core::preflight::Looked;
use http::{Method, Request};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

pub(crate) use connect::{ClusterArguments, for_programs};
pub(crate) use kinds::{Kinds, discovered, unknown};
pub(crate) use watch::{Kept, Store, Watch};

/// The field manager of everything that is applied.
pub(crate) const MANAGER: &str = "forge";
/// How long a request may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// How many objects one page of a list holds.
const PAGE: usize = 500;
/// How often something is asked for that was not answered, where that may help.
const TRIES: usize = 4;
/// Before it is asked for again; each time twice as long.
const AGAIN: Duration = Duration::from_millis(200);
/// What is asked for where all of an object matters.
pub(crate) const WHOLE: &str = "application/json";

/// A cluster, through one kubeconfig.
#[derive(Clone)]
pub(crate) struct Cluster {
    client: kube::Client,
    /// Asks once, where `client` asks again by itself: for whoever wants to know what the answer was.
    plain: kube::Client,
    /// Who it is, for messages: the context or `in-cluster`.
    pub(crate) context: String,
}

/// Why a request was not answered as wished.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum ClusterError {
    /// The API server refused.
    #[error("{message}")]
    Refused {
        /// The HTTP code.
        code: u16,
        /// What it says.
        message: String,
    },
    /// It could not be asked.
    #[error("{0}")]
    Unreachable(String),
    /// It answered something that cannot be read.
    #[error("unexpected answer: {0}")]
    Unreadable(String),
}

impl ClusterError {
    /// The object was changed, or made, by somebody else meanwhile.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused { code: 409, .. })
    }

    /// The object is not there.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::Refused { code: 404, .. })
    }

    /// Asking again may help.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable(_) => true,
            Self::Refused { code, .. } => matches!(code, 408 | 429 | 500..=599),
            Self::Unreadable(_) => false,
        }
    }
}

/// What was answered, told apart by whether it was refused or failed.
pub(crate) fn looked<T>(answer: Result<T, ClusterError>) -> Looked<T> {
    match answer {
        Ok(seen) => Looked::Saw(seen),
        Err(ClusterError::Refused { code: 401 | 403, message }) => Looked::NotPermitted(message),
        Err(error) => Looked::Failed(error.to_string()),
    }
}

impl From<kube::Error> for ClusterError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::Refused { code: status.code, message: status.message },
            kube::Error::SerdeError(error) => Self::Unreadable(error.to_string()),
            other => Self::Unreachable(chain(&other)),
        }
    }
}

/// An error and all that is behind it, once each.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(behind) = source {
        let more = behind.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = behind.source();
    }
    text
}

impl From<ClusterError> for Failure {
    fn from(error: ClusterError) -> Self {
        let (message, transient) = (error.to_string(), error.is_transient());
        match error {
            ClusterError::Refused { code: 401 | 403, .. } => Self::new(Code::Forbidden, message)
                .hint("ask for the permission that the message names, or use another --context"),
            ClusterError::Refused { code: 409, .. } => Self::new(Code::RunInProgress, message),
            ClusterError::Refused { code: 404, .. } => {
                Self::new(Code::NotBootstrapped, message).hint("`forge bootstrap` prepares a cluster for runs")
            }
            ClusterError::Refused { code: 400..=499, .. } if !transient => Self::new(Code::ClusterRefused, message)
                .hint("asking again does not help: the message names what the API server, or a policy of the cluster, minds"),
            _ => Self::new(Code::Unreachable, message)
                .hint("`kubectl get --raw /readyz` with the same context must say ok"),
        }
    }
}

impl Cluster {
    /// The HTTP client, for what is reached through the API server.
    pub(crate) fn client(&self) -> &kube::Client {
        &self.client
    }

    /// The same that asks once.
    pub(crate) fn asks_once(&self) -> &kube::Client {
        &self.plain
    }

    async fn send(&self, method: Method, path: &str, kind: &str, body: Vec<u8>) -> Result<Value, ClusterError> {
        let mut request = Request::builder().method(method).uri(path);
        if !body.is_empty() {
            request = request.header("content-type", kind);
        }
        let request = request.body(body).map_err(|error| ClusterError::Unreachable(error.to_string()))?;
        within(path, async { Ok(self.client.request::<Value>(request).await?) }).await
    }

    /// What is at a path, and what time the server says it is, as it writes it.
    pub(crate) async fn dated(&self, path: &str) -> Result<(Value, Option<String>), ClusterError> {
        let request = Request::get(path).body(kube::client::Body::empty());
        let request = request.map_err(|error| ClusterError::Unreachable(error.to_string()))?;
        within(path, async {
            let response = self.client.send(request).await?;
            let date = response.headers().get(http::header::DATE).and_then(|date| date.to_str().ok());
            let (date, status) = (date.map(str::to_owned), response.status());
            let bytes = response.into_body().collect_bytes().await?;
            if !status.is_success() {
                let message = clip(&String::from_utf8_lossy(&bytes));
                return Err(ClusterError::Refused { code: status.as_u16(), message });
            }
            let said = serde_json::from_slice(&bytes).map_err(|error| ClusterError::Unreadable(error.to_string()))?;
            Ok((said, date))
        })
        .await
    }

    /// One object; nothing where there is none.
    pub(crate) async fn get(&self, path: &str) -> Result<Option<Value>, ClusterError> {
        match self.send(Method::GET, path, "", Vec::new()).await {
            Err(error) if error.is_missing() => Ok(None),
            other => other.map(Some),
        }
    }

    /// The metadata of one object; nothing where there is none.
    pub(crate) async fn get_metadata(&self, path: &str) -> Result<Option<Value>, ClusterError> {
        match self.answer(path, &metadata("PartialObjectMetadata")).await {
            Err(error) if error.is_missing() => Ok(None),
            other => other.map(Some),
        }
    }

    /// All objects of a collection, page by page; a list that was cut off is an error, never a short list (INV-10).
    pub(crate) async fn list(&self, path: &str, selector: &str) -> Result<Vec<Value>, ClusterError> {
        self.pages(path, selector, WHOLE).await
    }

    /// The same, and of every object only what is read into this: the rest is never built.
    pub(crate) async fn list_of<T: DeserializeOwned>(
        &self,
        path: &str,
        selector: &str,
    ) -> Result<Vec<T>, ClusterError> {
        self.pages(path, selector, WHOLE).await
    }

    /// The metadata of all objects of a collection, for what is large and of which nothing else matters.
    pub(crate) async fn list_metadata(&self, path: &str, selector: &str) -> Result<Vec<Value>, ClusterError> {
        self.pages(path, selector, &metadata("PartialObjectMetadataList")).await
    }

    /// What is said at an address, in the form that is asked for; asked again, a few times, where that may help.
    pub(crate) async fn answered(&self, uri: &str, accept: &str) -> Result<Value, ClusterError> {
        let mut pause = AGAIN;
        for _ in 1..TRIES {
            match asked(&self.plain, uri, accept).await {
                Err(error) if error.is_transient() => tokio::time::sleep(pause).await,
                other => return other,
            }
            pause *= 2;
        }
        asked(&self.plain, uri, accept).await
    }

    /// What is said at an address, in the form that is asked for.
    async fn answer<T: DeserializeOwned>(&self, uri: &str, accept: &str) -> Result<T, ClusterError> {
        asked(&self.client, uri, accept).await
    }

    async fn pages<T: DeserializeOwned>(
        &self,
        path: &str,
        selector: &str,
        accept: &str,
    ) -> Result<Vec<T>, ClusterError> {
        let mut items = Vec::new();
        let mut rest = String::new();
        loop {
            let uri = format!("{path}?limit={PAGE}&labelSelector={}&continue={rest}", escaped(selector));
            let page: Page<T> = self.answer(&uri, accept).await?;
            let Some(found) = page.items else { return Err(unreadable("a list has no items")) };
            // An empty collection may say `null`.
            items.extend(found.into_iter().flatten());
            rest = page.metadata.r#continue.as_deref().map(escaped).unwrap_or_default();
            if rest.is_empty() {
                let left = page.metadata.remaining_item_count.unwrap_or(0);
                if left > 0 {
                    let message = format!("a list ends although {left} more objects are said to follow");
                    return Err(ClusterError::Unreadable(message));
                }
                return Ok(items);
            }
        }
    }

    /// Makes an object; a conflict where it is there already.
    pub(crate) async fn create(&self, collection: &str, object: &Value) -> Result<Value, ClusterError> {
        let uri = format!("{collection}?fieldManager={MANAGER}");
        self.send(Method::POST, &uri, "application/json", object.to_string().into_bytes()).await
    }

    /// Changes the fields that the patch names. With a `resourceVersion` in it, it is compare-and-swap.
    pub(crate) async fn merge(&self, path: &str, patch: &Value) -> Result<Value, ClusterError> {
        let uri = format!("{path}?fieldManager={MANAGER}");
        self.send(Method::PATCH, &uri, "application/merge-patch+json", patch.to_string().into_bytes()).await
    }

    /// The same, where nobody reads what became of the object: of a large one only the metadata comes back.
    pub(crate) async fn merge_unread(&self, path: &str, patch: &Value) -> Result<(), ClusterError> {
        let uri = format!("{path}?fieldManager={MANAGER}");
        let request = Request::patch(&uri)
            .header("content-type", "application/merge-patch+json")
            .header("accept", metadata("PartialObjectMetadata"))
            .body(patch.to_string().into_bytes());
        let request = request.map_err(|error| ClusterError::Unreachable(error.to_string()))?;
        within(&uri, async { Ok(self.client.request::<IgnoredAny>(request).await?) }).await.map(|_| ())
    }

    /// Makes our fields of an object what they are here (server-side apply).
    pub(crate) async fn apply(&self, path: &str, object: &Value) -> Result<Value, ClusterError> {
        let uri = format!("{path}?fieldManager={MANAGER}&force=true");
        self.send(Method::PATCH, &uri, "application/apply-patch+yaml", object.to_string().into_bytes()).await
    }

    /// The last lines that a container of a pod wrote: of the one that runs, or of the last one that ended.
    pub(crate) async fn log(&self, pod: &str, container: &str, lines: u32) -> Result<String, ClusterError> {
        let uri = format!("{pod}/log?container={container}&tailLines={lines}");
        let request = Request::get(&uri).body(Vec::new());
        let request = request.map_err(|error| ClusterError::Unreachable(error.to_string()))?;
        within(&uri, async { Ok(self.client.request_text(request).await?) }).await
    }

    /// Removes an object; one that is not there is no error.
    pub(crate) async fn delete(&self, path: &str) -> Result<(), ClusterError> {
        let body = br#"{"propagationPolicy":"Background"}"#.to_vec();
        match self.send(Method::DELETE, path, "application/json", body).await {
            Err(error) if !error.is_missing() => Err(error),
            _ => Ok(()),
        }
    }
}

/// A page of a list, as the API server writes it.
#[derive(Deserialize)]
#[serde(bound(deserialize = "T: Deserialize<'de>"))]
struct Page<T> {
    #[serde(default)]
    metadata: PageMetadata,
    /// Nothing where it does not say that it is a list.
    #[serde(default, deserialize_with = "said")]
    items: Option<Option<Vec<T>>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct PageMetadata {
    r#continue: Option<String>,
    remaining_item_count: Option<u64>,
}

fn said<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<Vec<T>>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// What asks the API server for metadata alone; a server that does not know how sends everything.
pub(crate) fn metadata(of: &str) -> String {
    format!("application/json;as={of};g=meta.k8s.io;v=v1,application/json")
}

/// What becomes of the objects that an object owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owned {
    /// They go after it.
    Follow,
    /// They stay, and are nobody's.
    Stay,
}

impl Cluster {
    /// Removes exactly this object, as Kubernetes knows it: another one of its name stays. One that is not there is no error.
    pub(crate) async fn remove(&self, path: &str, uid: &str, owned: Owned) -> Result<(), ClusterError> {
        let policy = match owned {
            Owned::Follow => "Background",
            Owned::Stay => "Orphan",
        };
        let body = json!({"propagationPolicy": policy, "preconditions": {"uid": uid}});
        match self.send(Method::DELETE, path, "application/json", body.to_string().into_bytes()).await {
            Err(error) if !error.is_missing() => Err(error),
            _ => Ok(()),
        }
    }
}

/// An answer, or that there was none in time.
async fn within<T>(path: &str, answer: impl Future<Output = Result<T, ClusterError>>) -> Result<T, ClusterError> {
    tokio::time::timeout(PATIENCE, answer).await.unwrap_or_else(|_| {
        let place = path.split('?').next().unwrap_or(path);
        Err(ClusterError::Unreachable(format!("no answer to `{}` within {} s", clip(place), PATIENCE.as_secs())))
    })
}

async fn asked<T: DeserializeOwned>(client: &kube::Client, uri: &str, accept: &str) -> Result<T, ClusterError> {
    let request = Request::get(uri).header("accept", accept).body(Vec::new());
    let request = request.map_err(|error| ClusterError::Unreachable(error.to_string()))?;
    within(uri, async { Ok(client.request(request).await?) }).await
}

fn unreadable(text: &str) -> ClusterError {
    ClusterError::Unreadable(text.to_owned())
}

/// A text that a Secret holds.
pub(crate) fn secret_text(secret: &Value, key: &str) -> Option<String> {
    use base64::Engine as _;
    let encoded = secret.get("data")?.get(key)?.as_str()?;
    String::from_utf8(base64::engine::general_purpose::STANDARD.decode(encoded).ok()?).ok()
}

/// A text as part of a query.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}
