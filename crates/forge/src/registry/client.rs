//! Requests to registries. One request is sent, sent again with credentials where it must be, and followed where a registry keeps
//! its blobs elsewhere; everything else here says what is asked for and believes nothing about the answer.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use forge_core::code::Code;
use forge_core::digest::{Digest, Digester};
use forge_core::failure::Failure;
use forge_core::name::{clean, clip, cut};
use forge_core::oci::{Annotations, Descriptor, Layout, media_type};
use reqwest::header::{self, HeaderMap, HeaderValue};
use reqwest::{Method, StatusCode, Url};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use tokio::time::Instant;

use super::content::{self, DOCKER_LIST, DOCKER_MANIFEST};
use super::credentials::Identity;
use super::name::{Reference, RepositoryName};
use super::{Options, Patience, RegistryError};
use crate::cluster::chain;

/// How often a request is sent on before that is called a circle.
const MOST_REDIRECTS: usize = 5;
/// What is read of a refusal.
const MOST_REFUSAL: usize = 16 << 10;
/// What of it is shown.
const SHOWN: usize = 300;
/// What a token service may answer.
const MOST_TOKEN: usize = 256 << 10;
/// What a page of a list may come to.
const MOST_PAGE: usize = 4 << 20;
/// How many pages a list may have.
const MOST_PAGES: usize = 200;
/// How many tags are taken.
const MOST_TAGS: usize = 100_000;
/// How many things may speak of one; who wants to hide a signature among them must find another way.
const MOST_REFERRERS: usize = 1_000;
/// How often an index of what speaks of something is written again when somebody else wrote it too.
const INDEX_TRIES: usize = 4;
/// What manifests are asked for as.
const MANIFESTS: [&str; 4] = [media_type::MANIFEST, media_type::INDEX, DOCKER_MANIFEST, DOCKER_LIST];

/// Registries, as one account sees them.
pub(crate) struct Registry {
    /// Speaks TLS and nothing else, through the proxy that the environment names. Made when it is needed: reading what the
    /// system trusts takes longer than many a request.
    secure: OnceLock<Result<reqwest::Client, String>>,
    /// Speaks plain HTTP, past every proxy.
    plain: reqwest::Client,
    /// Authorities that are trusted besides those of the system.
    certificates: Vec<reqwest::Certificate>,
    options: Options,
    /// What was found out about who one is, by host, repository, and whether something is written.
    access: Mutex<BTreeMap<Scope, Access>>,
}

/// For what a token is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Scope {
    of: RepositoryName,
    write: bool,
}

/// What is said to a registry about who asks.
#[derive(Clone)]
struct Access {
    scheme: &'static str,
    /// What follows the scheme.
    said: SecretString,
    /// What that was made of, or given for, by the registry itself: it knows that too.
    own: Option<SecretString>,
}

impl Access {
    fn basic(username: &str, password: &SecretString) -> Self {
        let both = format!("{username}:{}", password.expose_secret());
        let said = SecretString::from(base64::engine::general_purpose::STANDARD.encode(both));
        Self { scheme: "Basic", said, own: Some(password.clone()) }
    }

    fn bearer(token: SecretString, own: Option<SecretString>) -> Self {
        Self { scheme: "Bearer", said: token, own }
    }

    fn header(&self) -> Option<HeaderValue> {
        let mut value = HeaderValue::from_str(&format!("{} {}", self.scheme, self.said.expose_secret())).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// Whether a text repeats what was said, or what that was made of.
    fn is_in(&self, text: &str) -> bool {
        std::iter::once(&self.said).chain(&self.own).any(|secret| {
            let secret = secret.expose_secret();
            !secret.is_empty() && text.contains(secret)
        })
    }
}

/// One request.
struct Call<'c> {
    of: &'c RepositoryName,
    method: Method,
    url: Url,
    headers: HeaderMap,
    body: Option<&'c [u8]>,
    /// Whether it is part of writing something.
    write: bool,
    /// To do what, as the end of "refused to".
    what: String,
    /// How many bytes are expected to travel.
    bytes: u64,
}

/// How often and until when something is tried.
struct Tries {
    until: Instant,
    left: u32,
    pause: Duration,
    retry_after: Duration,
}

impl Tries {
    /// Waits before the next try.
    ///
    /// # Errors
    /// The one that is given, where there is none.
    async fn again(&mut self, error: RegistryError) -> Result<(), RegistryError> {
        if !error.is_transient() || self.left == 0 {
            return Err(error);
        }
        let asked = match &error {
            RegistryError::Unavailable { after, .. } => after.unwrap_or_default(),
            _ => Duration::ZERO,
        };
        let wait = self.pause.max(asked);
        if asked > self.retry_after || Instant::now() + wait >= self.until {
            return Err(error);
        }
        self.left -= 1;
        self.pause *= 2;
        tokio::time::sleep(wait).await;
        Ok(())
    }
}

/// An answer whose body is still to come.
struct Answer {
    response: reqwest::Response,
    at: At,
    /// What we said about who we are, which a refusal must not repeat to others.
    said: Option<Access>,
}

/// Whom is waited for, for what, and until when.
#[derive(Clone)]
struct At {
    host: String,
    what: String,
    idle: Duration,
    until: Instant,
    began: Instant,
}

impl At {
    /// What comes before the time is over.
    async fn waited<T>(
        &self,
        idle: Duration,
        future: impl Future<Output = Result<T, reqwest::Error>>,
    ) -> Result<T, RegistryError> {
        let until = self.until.min(Instant::now() + idle);
        match tokio::time::timeout_at(until, future).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(self.failed(error)),
            Err(_) => {
                let seconds = self.began.elapsed().as_secs().max(1);
                Err(RegistryError::TimedOut { host: self.host.clone(), what: self.what.clone(), seconds })
            }
        }
    }

    fn failed(&self, error: reqwest::Error) -> RegistryError {
        let host = self.host.clone();
        let (connecting, builder) = (error.is_connect(), error.is_builder());
        let why = chain(&error.without_url());
        let why = cut(&clean(&why), SHOWN).into_owned();
        // Only asking somebody else would help.
        if connecting && why.contains("certificate") {
            let hint = "name the authority that issued it with SSL_CERT_FILE, or mend the certificate";
            return RegistryError::Refused { host, what: self.what.clone(), said: why, hint: hint.to_owned() };
        }
        if builder {
            let hint = "check the address";
            return RegistryError::Refused { host, what: self.what.clone(), said: why, hint: hint.to_owned() };
        }
        RegistryError::Unavailable { host, why, after: None }
    }

    fn lied(&self, why: impl Into<String>) -> RegistryError {
        RegistryError::Lied { host: self.host.clone(), why: why.into(), again: true }
    }

    fn refused(&self, said: impl Into<String>, hint: impl Into<String>) -> RegistryError {
        RegistryError::Refused {
            host: self.host.clone(),
            what: self.what.clone(),
            said: said.into(),
            hint: hint.into(),
        }
    }
}

impl Answer {
    fn status(&self) -> StatusCode {
        self.response.status()
    }

    fn header(&self, name: header::HeaderName) -> Option<&str> {
        self.response.headers().get(name).and_then(|value| value.to_str().ok())
    }

    fn named(&self, name: &'static str) -> Option<&str> {
        self.header(header::HeaderName::from_static(name))
    }

    /// The length that the body is said to have.
    fn length(&self) -> Option<u64> {
        self.header(header::CONTENT_LENGTH).and_then(|length| length.trim().parse().ok())
    }

    /// All of the body.
    ///
    /// # Errors
    /// When there is more than is taken, or less than was said.
    async fn whole(&mut self, what: &str, most: usize) -> Result<Vec<u8>, RegistryError> {
        let too_large = |found: String| RegistryError::TooLarge { what: what.to_owned(), found, most: most as u64 };
        if let Some(length) = self.length().filter(|length| *length > most as u64) {
            return Err(too_large(format!("{length} bytes")));
        }
        let mut bytes = Vec::new();
        while let Some(piece) = self.at.waited(self.at.idle, self.response.chunk()).await? {
            if piece.len() > most.saturating_sub(bytes.len()) {
                return Err(too_large(format!("more than {most} bytes")));
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }

    /// The answer, if it is one of success.
    ///
    /// # Errors
    /// What the registry says instead.
    async fn accepted(mut self, missing: Option<&str>) -> Result<Self, RegistryError> {
        let status = self.status();
        if status.is_success() {
            return Ok(self);
        }
        let after =
            self.header(header::RETRY_AFTER).and_then(|after| after.trim().parse().ok()).map(Duration::from_secs);
        let host = self.at.host.clone();
        let said = self.refusal().await;
        let words = match (status.canonical_reason(), said.is_empty()) {
            (Some(reason), true) => format!("{} {reason}", status.as_u16()),
            (Some(reason), false) => format!("{} {reason}: {said}", status.as_u16()),
            (None, true) => status.as_u16().to_string(),
            (None, false) => format!("{}: {said}", status.as_u16()),
        };
        Err(match (status.as_u16(), missing) {
            (404, Some(what)) => {
                let said = if said.is_empty() { said } else { format!(": {said}") };
                RegistryError::Missing { what: what.to_owned(), said }
            }
            (408 | 429 | 500 | 502..=504 | 506..=599, _) => RegistryError::Unavailable { host, why: words, after },
            (300..=399, _) => {
                self.at.refused(format!("{words}, which leads elsewhere"), "name the other address itself")
            }
            (401, _) if self.said.is_none() => self.at.refused(words, "it needs credentials, and has none from us"),
            (401, _) => self.at.refused(words, "the credentials are not accepted: log in to it again"),
            (403, _) => self.at.refused(words, "ask for the right to do this, or log in as somebody who has it"),
            (404, None) => {
                self.at.refused(words, "there may be no such repository: some registries want it made first")
            }
            _ => self.at.refused(words, ""),
        })
    }

    /// What the registry says about a refusal, without what we said to it.
    async fn refusal(&mut self) -> String {
        // A registry that cannot even say this in time has said nothing.
        let Ok(bytes) = self.whole("refusal", MOST_REFUSAL).await else { return String::new() };
        let value: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let error = value.get("errors").and_then(|errors| errors.get(0));
        let text = |key: &str| error.and_then(|error| error.get(key)).and_then(Value::as_str).unwrap_or_default();
        let (code, message) = (text("code"), text("message"));
        let said = match (code, message) {
            (code, "") => code.to_owned(),
            ("", message) => message.to_owned(),
            (code, message) => format!("{code}: {message}"),
        };
        let secret = self.said.as_ref().is_some_and(|access| access.is_in(&said));
        if secret { String::new() } else { cut(&clean(&said), SHOWN).into_owned() }
    }
}

impl Registry {
    /// A client with these options.
    ///
    /// # Errors
    /// When the certificates cannot be used, or there is no client at all.
    pub(crate) fn new(options: Options) -> Result<Self, Failure> {
        // One provider for every TLS connection; whoever comes second finds it installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let bad = |error: reqwest::Error| {
            let why = chain(&error);
            Failure::new(Code::BadArgument, format!("the client for registries cannot be made: {why}"))
        };
        let certificates = match &options.certificates {
            Some(pem) => reqwest::Certificate::from_pem_bundle(pem.as_bytes()).map_err(bad)?,
            None => Vec::new(),
        };
        // A file that holds none would make no difference until the registry is asked.
        if certificates.is_empty() && options.certificates.as_ref().is_some_and(|pem| !pem.trim().is_empty()) {
            let message = "what says which authorities registries have holds no certificate";
            return Err(
                Failure::new(Code::BadArgument, message).hint("certificates are PEM: -----BEGIN CERTIFICATE-----")
            );
        }
        // It trusts nobody, because it never speaks TLS.
        let nobody = std::iter::empty::<reqwest::Certificate>();
        let plain = builder(&options).no_proxy().tls_certs_only(nobody).build().map_err(bad)?;
        Ok(Self { secure: OnceLock::new(), certificates, plain, options, access: Mutex::default() })
    }

    /// The client for an address.
    fn client(&self, url: &Url, at: &At) -> Result<&reqwest::Client, RegistryError> {
        if url.scheme() == "http" {
            return Ok(&self.plain);
        }
        let make = || {
            let certificates = self.certificates.iter().cloned();
            let builder = builder(&self.options).https_only(true).tls_certs_merge(certificates);
            builder.build().map_err(|error| chain(&error))
        };
        let client = self.secure.get_or_init(make).as_ref();
        client.map_err(|why| at.refused(why.as_str(), "this machine must trust some authority for certificates"))
    }

    /// A manifest and what it is. A tag is resolved by this and never again: the digest is that of the bytes that came.
    ///
    /// # Errors
    /// When it is not there, is too large, or is not what was asked for.
    pub(crate) async fn manifest(
        &self,
        of: &RepositoryName,
        reference: &Reference,
        most: usize,
    ) -> Result<(Descriptor, Vec<u8>), RegistryError> {
        let mut tries = self.tries(most as u64);
        loop {
            match self.manifest_once(of, reference, most, &tries).await {
                Err(error) => tries.again(error).await?,
                found => return found,
            }
        }
    }

    async fn manifest_once(
        &self,
        of: &RepositoryName,
        reference: &Reference,
        most: usize,
        tries: &Tries,
    ) -> Result<(Descriptor, Vec<u8>), RegistryError> {
        let shown = shown(of, reference);
        let mut headers = HeaderMap::new();
        for kind in MANIFESTS {
            headers.append(header::ACCEPT, HeaderValue::from_static(kind));
        }
        let call = Call {
            headers,
            bytes: most as u64,
            ..self.call(of, Method::GET, &format!("manifests/{reference}"), format!("give `{shown}`"))?
        };
        let answer = self.send(&call, tries).await?;
        let mut answer = answer.accepted(Some(&shown)).await?;
        let kind =
            answer.header(header::CONTENT_TYPE).map(|kind| kind.split(';').next().unwrap_or(kind).trim().to_owned());
        let said = answer.named("docker-content-digest").map(str::to_owned);
        let bytes = answer.whole(&shown, most).await?;
        let digest = Digest::of(&bytes);
        if let Reference::Digest(wanted) = reference
            && *wanted != digest
        {
            return Err(answer.at.lied(format!("`{shown}` came as {digest}, {} bytes", bytes.len())));
        }
        // Other algorithms than ours cannot be compared; a wrong one of ours is a sign of something in between.
        if let Some(said) = said.filter(|said| said.starts_with("sha256:") && said != digest.as_str()) {
            return Err(answer.at.lied(format!("`{shown}` is said to be {}, and came as {digest}", clip(&said))));
        }
        let value: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let inside = value.get("mediaType").and_then(Value::as_str);
        let media_type = match (kind, inside) {
            (Some(kind), Some(inside)) if kind != inside => {
                let (kind, inside) = (clip(&kind), clip(inside));
                return Err(answer.at.lied(format!("`{shown}` is said to be `{kind}`, and says of itself `{inside}`")));
            }
            (Some(kind), _) => kind,
            (None, inside) => inside.unwrap_or_default().to_owned(),
        };
        let artifact_type = value.get("artifactType").and_then(Value::as_str).map(str::to_owned);
        let size = bytes.len() as u64;
        let annotations = Annotations::new();
        let found = Descriptor { media_type, digest, size, architecture: None, artifact_type, annotations };
        Ok((found, bytes))
    }

    /// Writes a blob somewhere, as it comes. What was written is right only if this succeeds.
    ///
    /// # Errors
    /// When it is not there, is too large, or is not what was asked for.
    pub(crate) async fn blob(
        &self,
        of: &RepositoryName,
        what: &Descriptor,
        most: u64,
        sink: &mut (dyn Write + Send),
    ) -> Result<(), RegistryError> {
        if what.size > most {
            let found = format!("{} bytes", what.size);
            return Err(RegistryError::TooLarge { what: what.digest.to_string(), found, most });
        }
        let mut tries = self.tries(what.size);
        let mut got = Digester::default();
        while got.length() < what.size {
            if let Err(error) = self.blob_once(of, what, &mut got, sink, &tries).await {
                tries.again(error).await?;
            }
        }
        let digest = got.finish();
        if digest == what.digest {
            return Ok(());
        }
        let why = format!("{} came as {digest}, {} bytes", what.digest, what.size);
        Err(RegistryError::Lied { host: of.host().to_owned(), why, again: false })
    }

    /// Goes on where an earlier try ended: what has passed is not asked for again, or passed over.
    async fn blob_once(
        &self,
        of: &RepositoryName,
        what: &Descriptor,
        got: &mut Digester,
        sink: &mut (dyn Write + Send),
        tries: &Tries,
    ) -> Result<(), RegistryError> {
        let (digest, begin) = (&what.digest, got.length());
        let mut headers = HeaderMap::new();
        if begin > 0 {
            // Digits and letters only.
            let range = HeaderValue::from_str(&format!("bytes={begin}-"));
            headers.extend(range.ok().map(|range| (header::RANGE, range)));
        }
        let call = Call {
            headers,
            bytes: what.size,
            ..self.call(of, Method::GET, &format!("blobs/{digest}"), format!("give {digest}"))?
        };
        let answer = self.send(&call, tries).await?;
        let mut answer = answer.accepted(Some(&format!("{of}@{digest}"))).await?;
        let mut skip = begin;
        if answer.status() == StatusCode::PARTIAL_CONTENT {
            let range = answer.header(header::CONTENT_RANGE).unwrap_or_default();
            if !range.starts_with(&format!("bytes {begin}-")) {
                return Err(answer.at.lied(format!("asked for {digest} from byte {begin}, it sent `{}`", clip(range))));
            }
            skip = 0;
        }
        let expected = what.size - begin + skip;
        if let Some(length) = answer.length().filter(|length| *length != expected) {
            return Err(answer.at.lied(format!("it has {length} bytes of {digest}, which has {expected}")));
        }
        while let Some(piece) = answer.at.waited(answer.at.idle, answer.response.chunk()).await? {
            let passed = usize::try_from(skip).unwrap_or(usize::MAX).min(piece.len());
            skip = skip.saturating_sub(passed as u64);
            let piece = piece.get(passed..).unwrap_or_default();
            if piece.len() as u64 > what.size.saturating_sub(got.length()) {
                let why = format!("it sent more than the {} bytes of {digest}", what.size);
                return Err(RegistryError::Lied { host: answer.at.host, why, again: false });
            }
            got.update(piece);
            sink.write_all(piece).map_err(|error| RegistryError::Write { what: digest.to_string(), error })?;
        }
        if got.length() < what.size {
            let why = format!("it sent {} of {} bytes of {digest}", got.length(), what.size);
            return Err(RegistryError::Unavailable { host: answer.at.host, why, after: None });
        }
        Ok(())
    }

    /// Whether a registry has a blob. Asked as part of writing it.
    async fn has_blob(&self, of: &RepositoryName, what: &Descriptor, tries: &Tries) -> Result<bool, RegistryError> {
        let digest = &what.digest;
        let call = self.call(of, Method::HEAD, &format!("blobs/{digest}"), format!("say whether it has {digest}"))?;
        let answer = self.send(&Call { write: true, ..call }, tries).await?;
        if answer.status() == StatusCode::NOT_FOUND {
            return Ok(false);
        }
        let answer = answer.accepted(None).await?;
        match answer.length() {
            Some(length) if length != what.size => {
                Err(answer.at.lied(format!("it has {length} bytes of {digest}, which has {}", what.size)))
            }
            _ => Ok(true),
        }
    }

    /// Stores a blob, unless it is there.
    ///
    /// # Errors
    /// When it is not stored, as far as is known.
    pub(crate) async fn push_blob(
        &self,
        of: &RepositoryName,
        what: &Descriptor,
        bytes: &[u8],
    ) -> Result<(), RegistryError> {
        own(what, bytes)?;
        let mut tries = self.tries(what.size);
        loop {
            match self.push_blob_once(of, what, bytes, &tries).await {
                Err(error) => tries.again(error).await?,
                Ok(()) => return Ok(()),
            }
        }
    }

    async fn push_blob_once(
        &self,
        of: &RepositoryName,
        what: &Descriptor,
        bytes: &[u8],
        tries: &Tries,
    ) -> Result<(), RegistryError> {
        if self.has_blob(of, what, tries).await? {
            return Ok(());
        }
        let digest = &what.digest;
        let doing = || format!("take {digest} into `{of}`");
        let call = Call { write: true, body: Some(&[]), ..self.call(of, Method::POST, "blobs/uploads/", doing())? };
        let answer = self.send(&call, tries).await?;
        let answer = answer.accepted(None).await?;
        let place = answer.header(header::LOCATION).and_then(|place| call.url.join(place).ok());
        let Some(mut url) = place else {
            return Err(answer.at.lied("it takes an upload and does not say where"));
        };
        url.query_pairs_mut().append_pair("digest", digest.as_str());
        self.allowed(&url, &call.url, &answer.at)?;
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        let call = Call { url, headers, method: Method::PUT, body: Some(bytes), bytes: what.size, ..call };
        let answer = self.send(&call, tries).await?;
        let answer = answer.accepted(None).await?;
        confirmed(&answer, digest)
    }

    /// Stores a manifest, under a tag if there is one. Where it speaks of another one and the registry does not keep such
    /// lists, the list is kept for it.
    ///
    /// # Errors
    /// When it is not stored, as far as is known.
    pub(crate) async fn push_manifest(
        &self,
        of: &RepositoryName,
        what: &Descriptor,
        bytes: &[u8],
        tag: Option<&str>,
    ) -> Result<(), RegistryError> {
        own(what, bytes)?;
        let reference = match tag {
            Some(tag) => Reference::Tag(tag.to_owned()),
            None => Reference::Digest(what.digest.clone()),
        };
        let listed = self.put_manifest(of, &reference, what, bytes).await?;
        let found = content::references(bytes).ok();
        let Some((subject, found)) = found.and_then(|mut found| Some((found.subject.take()?, found))) else {
            return Ok(());
        };
        if listed {
            return Ok(());
        }
        let speaks = Descriptor { artifact_type: found.artifact_type, annotations: found.annotations, ..what.clone() };
        self.list_referrer(of, &subject, &speaks).await
    }

    /// Gives whether the registry noticed that it speaks of another one.
    async fn put_manifest(
        &self,
        of: &RepositoryName,
        reference: &Reference,
        what: &Descriptor,
        bytes: &[u8],
    ) -> Result<bool, RegistryError> {
        let mut tries = self.tries(what.size);
        loop {
            match self.put_manifest_once(of, reference, what, bytes, &tries).await {
                Err(error) => tries.again(error).await?,
                done => return done,
            }
        }
    }

    async fn put_manifest_once(
        &self,
        of: &RepositoryName,
        reference: &Reference,
        what: &Descriptor,
        bytes: &[u8],
        tries: &Tries,
    ) -> Result<bool, RegistryError> {
        let doing = format!("take `{}`", shown(of, reference));
        let call = self.call(of, Method::PUT, &format!("manifests/{reference}"), doing)?;
        let Ok(kind) = HeaderValue::from_str(&what.media_type) else {
            let why = "its media type cannot be sent".to_owned();
            return Err(RegistryError::Malformed { what: what.digest.to_string(), why });
        };
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, kind);
        let call = Call { headers, write: true, body: Some(bytes), bytes: what.size, ..call };
        let answer = self.send(&call, tries).await?;
        let answer = answer.accepted(None).await?;
        confirmed(&answer, &what.digest)?;
        Ok(answer.named("oci-subject").is_some())
    }

    /// Adds to the list that is kept under the tag that the specification has for it. Nobody can lock it: it is read
    /// again, and written again where somebody else was in between.
    async fn list_referrer(
        &self,
        of: &RepositoryName,
        subject: &Descriptor,
        speaks: &Descriptor,
    ) -> Result<(), RegistryError> {
        let tag = Reference::Tag(subject.referrers_tag());
        for _ in 0..INDEX_TRIES {
            let (listed, bytes) = self.fallback(of, &tag).await?;
            if listed.iter().any(|one| one.digest == speaks.digest) {
                return Ok(());
            }
            // What others listed stays as they wrote it, also what is not read here.
            let bytes = content::extended(bytes.as_deref(), speaks);
            let index = Layout::default().blob(media_type::INDEX, bytes.clone());
            self.put_manifest(of, &tag, &index, &bytes).await?;
        }
        // Whoever wrote last may have been we.
        if self.fallback(of, &tag).await?.0.iter().any(|one| one.digest == speaks.digest) {
            return Ok(());
        }
        let why = format!("`{}` is written by somebody else all the time", shown(of, &tag));
        Err(RegistryError::Unavailable { host: of.host().to_owned(), why, after: None })
    }

    /// What is listed under the tag of the specification, and the index itself; nothing where there is no such tag.
    async fn fallback(
        &self,
        of: &RepositoryName,
        tag: &Reference,
    ) -> Result<(Vec<Descriptor>, Option<Vec<u8>>), RegistryError> {
        match self.manifest(of, tag, MOST_PAGE).await {
            Ok((_, bytes)) => {
                let listed = content::index(&bytes, MOST_REFERRERS)
                    .map_err(|why| RegistryError::Malformed { what: shown(of, tag), why })?;
                Ok((listed, Some(bytes)))
            }
            Err(error) if error.is_missing() => Ok((Vec::new(), None)),
            Err(error) => Err(error),
        }
    }

    /// All tags of a repository, sorted.
    ///
    /// # Errors
    /// When there is no such repository, or there are more than anybody has.
    pub(crate) async fn tags(&self, of: &RepositoryName) -> Result<Vec<String>, RegistryError> {
        let mut tags: Vec<String> = Vec::new();
        let mut next = Some(self.call(of, Method::GET, "tags/list?n=1000", format!("list the tags of `{of}`"))?);
        for _ in 0..MOST_PAGES {
            let Some(call) = next.take() else {
                tags.sort_unstable();
                tags.dedup();
                return Ok(tags);
            };
            let (bytes, following, at) = self.page(&call, Some(&of.to_string())).await?;
            let value: Value = serde_json::from_slice(&bytes).unwrap_or_default();
            match value.get("tags") {
                Some(Value::Array(some)) => {
                    tags.extend(some.iter().filter_map(Value::as_str).map(str::to_owned));
                }
                // A repository without any.
                Some(Value::Null) => {}
                _ => return Err(at.lied("its list of tags is none")),
            }
            if tags.len() > MOST_TAGS {
                let (what, found) = (of.to_string(), format!("more than {MOST_TAGS} tags"));
                return Err(RegistryError::TooLarge { what, found, most: MOST_TAGS as u64 });
            }
            next = following.map(|url| Call { url, ..call });
        }
        Err(endless(of, "tags"))
    }

    /// What speaks of something: signatures, for example.
    ///
    /// # Errors
    /// When the registry does not say, or there is more than anybody has.
    pub(crate) async fn referrers(
        &self,
        of: &RepositoryName,
        subject: &Digest,
        artifact_type: Option<&str>,
    ) -> Result<Vec<Descriptor>, RegistryError> {
        let mut found: Vec<Descriptor> = Vec::new();
        let doing = format!("list what speaks of {subject}");
        let mut first = self.call(of, Method::GET, &format!("referrers/{subject}"), doing)?;
        if let Some(kind) = artifact_type {
            first.url.query_pairs_mut().append_pair("artifactType", kind);
        }
        let wanted = |one: &Descriptor| artifact_type.is_none_or(|kind| one.artifact_type.as_deref() == Some(kind));
        let mut next = Some(first);
        for number in 0..MOST_PAGES {
            let Some(call) = next.take() else {
                found.retain(wanted);
                return Ok(found);
            };
            let page = self.page(&call, Some(&of.to_string())).await;
            let (bytes, following, at) = match page {
                // One that does not know the question; the answer may be under a tag.
                Err(error) if error.is_missing() && number == 0 => {
                    let tag = Reference::Tag(subject.as_str().replace(':', "-"));
                    let (mut found, _) = self.fallback(of, &tag).await?;
                    found.retain(wanted);
                    return Ok(found);
                }
                page => page?,
            };
            found.extend(content::index(&bytes, MOST_REFERRERS).map_err(|why| at.lied(why))?);
            if found.len() > MOST_REFERRERS {
                let (what, found) = (format!("{of}@{subject}"), format!("more than {MOST_REFERRERS} that speak of it"));
                return Err(RegistryError::TooLarge { what, found, most: MOST_REFERRERS as u64 });
            }
            next = following.map(|url| Call { url, ..call });
        }
        Err(endless(of, "what speaks of it"))
    }

    /// One page of a list, and where the next one is.
    async fn page(&self, call: &Call<'_>, missing: Option<&str>) -> Result<(Vec<u8>, Option<Url>, At), RegistryError> {
        let mut tries = self.tries(0);
        loop {
            match self.page_once(call, missing, &tries).await {
                Err(error) => tries.again(error).await?,
                page => return page,
            }
        }
    }

    async fn page_once(
        &self,
        call: &Call<'_>,
        missing: Option<&str>,
        tries: &Tries,
    ) -> Result<(Vec<u8>, Option<Url>, At), RegistryError> {
        let answer = self.send(call, tries).await?;
        let mut answer = answer.accepted(missing).await?;
        let next = answer.header(header::LINK).and_then(next_page).map(str::to_owned);
        let bytes = answer.whole(&format!("a list of {}", call.of), MOST_PAGE).await?;
        let next = match next.map(|next| call.url.join(&next)) {
            None => None,
            Some(Ok(url)) if url.origin() == call.url.origin() && url != call.url => Some(url),
            Some(_) => return Err(answer.at.lied("the next page of its list is elsewhere")),
        };
        Ok((bytes, next, answer.at))
    }

    fn tries(&self, bytes: u64) -> Tries {
        let Patience { whole, retries, pause, retry_after, .. } = self.options.patience;
        Tries { until: Instant::now() + whole + Patience::for_bytes(bytes), left: retries, pause, retry_after }
    }

    fn call<'c>(
        &self,
        of: &'c RepositoryName,
        method: Method,
        path: &str,
        what: String,
    ) -> Result<Call<'c>, RegistryError> {
        let scheme = if self.options.is_plain(of.host()) { "http" } else { "https" };
        let address = format!("{scheme}://{}/v2/{}/{path}", of.endpoint(), of.path());
        let url = Url::parse(&address).map_err(|error| RegistryError::Refused {
            host: of.host().to_owned(),
            what: what.clone(),
            said: format!("its address cannot be used: {error}"),
            hint: String::new(),
        })?;
        Ok(Call { of, method, url, headers: HeaderMap::new(), body: None, write: false, what, bytes: 0 })
    }

    /// Whether a registry may send us there: never from TLS to plain HTTP, and never to a host that is not spoken with so.
    fn allowed(&self, url: &Url, from: &Url, at: &At) -> Result<(), RegistryError> {
        let host = host_of(url);
        let secure = url.scheme() == "https";
        let plain = url.scheme() == "http" && from.scheme() == "http" && self.options.is_plain(&host);
        if url.username().is_empty() && url.password().is_none() && (secure || plain) {
            return Ok(());
        }
        let said = format!("it sends on to `{}` over `{}`", clip(&host), clip(url.scheme()));
        Err(at.refused(said, "only HTTPS is followed, and no address with a user in it"))
    }

    /// Sends a request, with credentials where they belong, and follows to where blobs are kept.
    async fn send(&self, call: &Call<'_>, tries: &Tries) -> Result<Answer, RegistryError> {
        let began = Instant::now();
        let Patience { idle, request, .. } = self.options.patience;
        let until = tries.until.min(began + request + Patience::for_bytes(call.bytes));
        let host = call.of.host().to_owned();
        let at = At { host, what: call.what.clone(), idle, until, began };
        let registry = self.call(call.of, Method::GET, "", String::new())?.url;
        let scope = Scope { of: call.of.clone(), write: call.write };
        let (mut url, mut asked, mut redirects) = (call.url.clone(), false, 0);
        loop {
            // Nobody else is told who we are.
            let home = url.origin() == registry.origin();
            let access = if home { self.remembered(&scope) } else { None };
            let response = self.once(call, &url, access.as_ref(), &at).await?;
            let answer = Answer { response, at: at.clone(), said: access };
            let status = answer.status();
            if status == StatusCode::UNAUTHORIZED && home && !asked {
                asked = true;
                self.forget(&scope);
                let challenge = challenge(answer.response.headers());
                let access = self.authorise(&scope, &registry, challenge, &at).await?;
                locked(&self.access).insert(scope.clone(), access);
                continue;
            }
            let moved = matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308);
            if moved && (call.method == Method::GET || call.method == Method::HEAD) {
                redirects += 1;
                let place = answer.header(header::LOCATION).and_then(|place| url.join(place).ok());
                let Some(place) = place.filter(|_| redirects <= MOST_REDIRECTS) else {
                    return Err(at.lied("it sends on, and on, or does not say where to"));
                };
                self.allowed(&place, &url, &at)?;
                url = place;
                continue;
            }
            return Ok(answer);
        }
    }

    async fn once(
        &self,
        call: &Call<'_>,
        url: &Url,
        access: Option<&Access>,
        at: &At,
    ) -> Result<reqwest::Response, RegistryError> {
        let client = self.client(url, at)?;
        let mut request = client.request(call.method.clone(), url.clone()).headers(call.headers.clone());
        // Bytes are counted and compared as they are.
        request = request.header(header::ACCEPT_ENCODING, "identity");
        if let Some(header) = access.and_then(Access::header) {
            request = request.header(header::AUTHORIZATION, header);
        }
        let sent = call.body.map_or(0, <[u8]>::len) as u64;
        if let Some(body) = call.body {
            request = request.body(body.to_vec());
        }
        // While something is sent, nothing comes.
        let idle = at.idle + Patience::for_bytes(sent);
        at.waited(idle, request.send()).await
    }

    fn remembered(&self, scope: &Scope) -> Option<Access> {
        let access = locked(&self.access);
        // Who may write may read.
        let wider = Scope { write: true, ..scope.clone() };
        access.get(scope).or_else(|| access.get(&wider)).cloned()
    }

    fn forget(&self, scope: &Scope) {
        let mut access = locked(&self.access);
        access.remove(&Scope { write: true, ..scope.clone() });
        access.remove(scope);
    }

    /// Finds out what is to be said to a registry that asks who we are.
    async fn authorise(
        &self,
        scope: &Scope,
        registry: &Url,
        challenge: Option<Challenge>,
        at: &At,
    ) -> Result<Access, RegistryError> {
        let host = scope.of.host();
        let identity = self.options.credentials.identity(host, scope.of.path()).await;
        let identity = identity.map_err(|why| RegistryError::Credentials { host: host.to_owned(), why })?;
        let place = self.options.credentials.place();
        match (challenge, identity) {
            (_, Some(Identity::Token(token))) => Ok(Access::bearer(token, None)),
            (Some(Challenge::Bearer(asked)), identity) => self.token(scope, registry, &asked, identity, at).await,
            (Some(Challenge::Basic), Some(Identity::Password { username, password })) => {
                Ok(Access::basic(&username, &password))
            }
            (Some(Challenge::Basic), Some(Identity::Refresh(_))) => {
                Err(at.refused("401: it wants a name and a password", "the credentials for it are a token"))
            }
            (Some(Challenge::Basic), None) => {
                Err(at.refused("401: it wants credentials, and there are none for it", place))
            }
            (None, _) => Err(at.refused("401: it does not say what credentials it wants", "")),
        }
    }

    /// Asks the token service that a registry names. Only one that is the registry itself is told who we are: another one
    /// could be anybody's, and what it gives for our credentials would go to the registry.
    async fn token(
        &self,
        scope: &Scope,
        registry: &Url,
        asked: &Asked,
        identity: Option<Identity>,
        at: &At,
    ) -> Result<Access, RegistryError> {
        let bad = || at.lied(format!("`{}` cannot be the address of its token service", clip(&asked.realm)));
        let mut url = registry.join(&asked.realm).map_err(|_| bad())?;
        self.allowed(&url, registry, at)?;
        let home = url.origin() == registry.origin();
        let service = host_of(&url);
        let known = identity.is_some();
        let identity = identity.filter(|_| home);
        let actions = if scope.write { "pull,push" } else { "pull" };
        let wanted = format!("repository:{}:{actions}", scope.of.path());
        let client = self.client(&url, at)?;
        let request = if let Some(Identity::Refresh(token)) = &identity {
            let mut form = registry.clone();
            form.set_query(None);
            form.query_pairs_mut()
                .append_pair("grant_type", "refresh_token")
                .append_pair("client_id", "forge")
                .append_pair("service", &asked.service)
                .append_pair("scope", &wanted)
                .append_pair("refresh_token", token.expose_secret());
            let form = form.query().unwrap_or_default().to_owned();
            client.post(url).header(header::CONTENT_TYPE, "application/x-www-form-urlencoded").body(form)
        } else {
            if !asked.service.is_empty() {
                url.query_pairs_mut().append_pair("service", &asked.service);
            }
            url.query_pairs_mut().append_pair("scope", &wanted);
            let said = match &identity {
                Some(Identity::Password { username, password }) => Some(Access::basic(username, password)),
                _ => None,
            };
            let mut request = client.get(url);
            if let Some(said) = said.as_ref().and_then(Access::header) {
                request = request.header(header::AUTHORIZATION, said);
            }
            request
        };
        let response = at.waited(at.idle, request.send()).await?;
        // What it says may repeat what it was told.
        let mut answer = Answer { response, at: at.clone(), said: None };
        let status = answer.status();
        if matches!(status.as_u16(), 408 | 429 | 500..=599) {
            let why = format!("its token service `{}` says {}", clip(&service), status.as_u16());
            return Err(RegistryError::Unavailable { host: at.host.clone(), why, after: None });
        }
        if !status.is_success() {
            let said = format!("its token service `{}` says {}", clip(&service), status.as_u16());
            let hint = match (home, known) {
                (true, true) => "the credentials are not accepted: log in to it again".to_owned(),
                (false, true) => "credentials are not sent to a token service on another host".to_owned(),
                (_, false) => format!("there are no credentials for it: {}", self.options.credentials.place()),
            };
            return Err(at.refused(said, hint));
        }
        let bytes = answer.whole("a token", MOST_TOKEN).await?;
        let value: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let token = ["token", "access_token"].iter().find_map(|key| value.get(*key)?.as_str());
        let usable = |token: &&str| !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
        let token = token.filter(usable).ok_or_else(|| at.lied("what its token service gives is no token"))?;
        let own = identity.map(|identity| match identity {
            Identity::Password { password, .. } => password,
            Identity::Refresh(token) | Identity::Token(token) => token,
        });
        Ok(Access::bearer(SecretString::from(token.to_owned()), own))
    }
}

/// What both clients have in common: they follow nobody and try nothing again by themselves.
fn builder(options: &Options) -> reqwest::ClientBuilder {
    let mut builder = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .connect_timeout(options.patience.connect)
        .user_agent(concat!("forge/", env!("CARGO_PKG_VERSION")));
    for (name, address) in &options.resolved {
        builder = builder.resolve(name, *address);
    }
    builder
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Refuses to send what is not what it is said to be.
fn own(what: &Descriptor, bytes: &[u8]) -> Result<(), RegistryError> {
    if what.size == bytes.len() as u64 && what.digest == Digest::of(bytes) {
        return Ok(());
    }
    let why = format!("it is {}, {} bytes", Digest::of(bytes), bytes.len());
    Err(RegistryError::Malformed { what: what.digest.to_string(), why })
}

fn endless(of: &RepositoryName, what: &str) -> RegistryError {
    let why = format!("its list of {what} has no end");
    RegistryError::Lied { host: of.host().to_owned(), why, again: false }
}

/// What is asked for, as people write it.
fn shown(of: &RepositoryName, reference: &Reference) -> String {
    match reference {
        Reference::Tag(tag) => format!("{of}:{tag}"),
        Reference::Digest(digest) => format!("{of}@{digest}"),
    }
}

/// Host and port of an address, as registries are named.
fn host_of(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// What a registry says that it stored is what we sent.
fn confirmed(answer: &Answer, digest: &Digest) -> Result<(), RegistryError> {
    match answer.named("docker-content-digest") {
        Some(said) if said.starts_with("sha256:") && said != digest.as_str() => {
            Err(answer.at.lied(format!("it was sent {digest}, and stored {}", clip(said))))
        }
        _ => Ok(()),
    }
}

/// The address of the next page in a header `Link`.
fn next_page(link: &str) -> Option<&str> {
    let (address, rest) = link.trim().strip_prefix('<')?.split_once('>')?;
    rest.split(';').any(|part| matches!(part.trim(), "rel=\"next\"" | "rel=next")).then_some(address)
}

/// How a registry wants to be told who asks.
#[derive(Debug, PartialEq, Eq)]
enum Challenge {
    Basic,
    Bearer(Asked),
}

/// Where there are tokens, and for whom.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    realm: String,
    service: String,
}

/// What a registry asks for; a token before a password.
fn challenge(headers: &HeaderMap) -> Option<Challenge> {
    let mut basic = None;
    for value in headers.get_all(header::WWW_AUTHENTICATE) {
        let Ok(text) = value.to_str() else { continue };
        for (scheme, parameters) in challenges(text) {
            if scheme.eq_ignore_ascii_case("basic") {
                basic = Some(Challenge::Basic);
            }
            if scheme.eq_ignore_ascii_case("bearer") {
                let parameter = |name: &str| {
                    parameters.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.clone())
                };
                // What it would have us ask for is not looked at: we know what we need.
                if let Some(realm) = parameter("realm") {
                    return Some(Challenge::Bearer(Asked { realm, service: parameter("service").unwrap_or_default() }));
                }
            }
        }
    }
    basic
}

/// Schemes and their parameters, in one value of the header.
fn challenges(text: &str) -> Vec<(String, Vec<(String, String)>)> {
    let mut found: Vec<(String, Vec<(String, String)>)> = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let end = rest.find(|c: char| c.is_whitespace() || c == ',' || c == '=').unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let after_space = after.trim_start();
        if let (Some(value), false) = (after_space.strip_prefix('='), word.is_empty()) {
            let (value, following) = parameter_value(value.trim_start());
            if let Some((_, parameters)) = found.last_mut() {
                parameters.push((word.to_owned(), value));
            }
            rest = following;
        } else {
            if !word.is_empty() {
                found.push((word.to_owned(), Vec::new()));
            }
            rest = after_space.strip_prefix('=').unwrap_or(after_space);
        }
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
    }
    found
}

/// A value, quoted or not, and what follows it.
fn parameter_value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(|c: char| c.is_whitespace() || c == ',').unwrap_or(text.len());
        let (value, rest) = text.split_at(end);
        return (value.to_owned(), rest);
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, quoted.get(at + 1..).unwrap_or_default()),
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            other => value.push(other),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests;
