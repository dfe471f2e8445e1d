//! A registry in a thread, on loopback: it keeps everything in memory, writes down what it was asked, and misbehaves when it is
//! told to. For faults that a real one does not produce on demand.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use forge_core::digest::Digest;
use serde_json::{Value, json};

/// The token that its token service gives.
pub const TOKEN: &str = "t0ken-of-the-registry";
/// More than anybody sends here.
const MOST_BODY: usize = 256 << 20;

/// What a registry does instead of what it should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Answers with this status.
    Status(u16),
    /// Answers with this status, and when to come again.
    RetryAfter(u16, String),
    /// Hangs up without an answer, and without doing anything.
    Cut,
    /// Does what it was asked, and hangs up without an answer.
    Lost,
    /// Announces everything, sends so many bytes of it and hangs up.
    Truncate(usize),
    /// Announces everything, sends so many bytes of it and then nothing.
    Stall(usize),
    /// Announces another length than it sends.
    Length(u64),
    /// Sends without end, and announces no length.
    Flood,
    /// Sends other bytes.
    Bytes(Vec<u8>),
    /// Says that it is another digest.
    Digest(String),
    /// Says that it is another media type.
    MediaType(String),
    /// Sends on to another address.
    Redirect(String),
    /// Says that the next page is there.
    Next(String),
    /// Says that an upload goes there.
    Location(String),
}

/// Who may ask.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Access {
    /// Anybody.
    #[default]
    Everybody,
    /// Who has a name and a password.
    Basic {
        /// The name.
        username: String,
        /// The password.
        password: String,
    },
    /// Who has a token.
    Token {
        /// Where tokens are said to be; at the registry itself if nothing.
        realm: Option<String>,
        /// Name and password that it gives one for; to anybody if nothing.
        password: Option<(String, String)>,
        /// What it also gives one for, by itself.
        refresh: Option<String>,
    },
}

/// What was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// How.
    pub method: String,
    /// For what.
    pub target: String,
    /// What it said about who asks.
    pub authorization: Option<String>,
    /// From which byte on.
    pub range: Option<String>,
}

/// What one repository holds.
#[derive(Debug, Default)]
struct Repository {
    blobs: BTreeMap<String, Vec<u8>>,
    /// With their media types.
    manifests: BTreeMap<String, (String, Vec<u8>)>,
    tags: BTreeMap<String, String>,
}

#[derive(Debug)]
struct Planned {
    method: String,
    part: String,
    times: usize,
    fault: Fault,
}

#[derive(Debug)]
struct State {
    repositories: BTreeMap<String, Repository>,
    requests: Vec<Request>,
    planned: VecDeque<Planned>,
    access: Access,
    /// Whether it lists what speaks of something.
    referrers: bool,
    /// Whether it gives parts of blobs.
    ranges: bool,
    /// How many tags are on a page.
    page: usize,
    uploads: usize,
}

/// A registry that runs until the process ends.
#[derive(Debug, Clone)]
pub struct Registry {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

/// An answer before it is sent.
#[derive(Debug, Default)]
struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Answer {
    fn new(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    fn error(status: u16, code: &str, message: &str) -> Self {
        let body = json!({"errors": [{"code": code, "message": message}]}).to_string().into_bytes();
        Self::new(status).with("content-type", "application/json").of(body)
    }

    fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.retain(|(other, _)| *other != name);
        self.headers.push((name, value.into()));
        self
    }

    fn of(self, body: Vec<u8>) -> Self {
        Self { body, ..self }
    }
}

impl Registry {
    /// Starts one.
    ///
    /// # Errors
    /// When there is no port for it.
    pub fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let state = State {
            repositories: BTreeMap::new(),
            requests: Vec::new(),
            planned: VecDeque::new(),
            access: Access::Everybody,
            referrers: true,
            ranges: true,
            page: 1000,
            uploads: 0,
        };
        let registry = Self { address, state: Arc::new(Mutex::new(state)) };
        let serving = registry.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serving = serving.clone();
                // A client that went away needs no answer.
                std::thread::spawn(move || drop(serving.serve(&stream)));
            }
        });
        Ok(registry)
    }

    /// Its host and port, as names of repositories begin.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Misbehaves so many times, when it is asked this way for something whose address has this part.
    pub fn fail(&self, method: &str, part: &str, times: usize, fault: Fault) {
        let planned = Planned { method: method.to_owned(), part: part.to_owned(), times, fault };
        self.state().planned.push_back(planned);
    }

    /// Behaves from now on.
    pub fn heal(&self) {
        self.state().planned.clear();
    }

    /// Wants to know who asks.
    pub fn require(&self, access: Access) {
        self.state().access = access;
    }

    /// Whether it lists what speaks of something; it does unless it is told not to.
    pub fn referrers(&self, known: bool) {
        self.state().referrers = known;
    }

    /// Whether it gives parts of blobs; it does unless it is told not to.
    pub fn ranges(&self, known: bool) {
        self.state().ranges = known;
    }

    /// How many tags it gives at a time.
    pub fn page(&self, tags: usize) {
        self.state().page = tags;
    }

    /// What it was asked until now.
    pub fn requests(&self) -> Vec<Request> {
        self.state().requests.clone()
    }

    /// Forgets what it was asked.
    pub fn forget(&self) {
        self.state().requests.clear();
    }

    /// Stores a blob.
    pub fn put_blob(&self, repository: &str, bytes: &[u8]) -> Digest {
        let digest = Digest::of(bytes);
        let mut state = self.state();
        let repository = state.repositories.entry(repository.to_owned()).or_default();
        repository.blobs.insert(digest.to_string(), bytes.to_vec());
        digest
    }

    /// Stores a manifest, under a tag if there is one.
    pub fn put_manifest(&self, repository: &str, media_type: &str, bytes: &[u8], tag: Option<&str>) -> Digest {
        let digest = Digest::of(bytes);
        let mut state = self.state();
        let repository = state.repositories.entry(repository.to_owned()).or_default();
        repository.manifests.insert(digest.to_string(), (media_type.to_owned(), bytes.to_vec()));
        if let Some(tag) = tag {
            repository.tags.insert(tag.to_owned(), digest.to_string());
        }
        digest
    }

    /// Puts other bytes where a blob or a manifest is, as a broken disk does, or somebody.
    pub fn tamper(&self, repository: &str, digest: &Digest, bytes: &[u8]) {
        let mut state = self.state();
        let Some(repository) = state.repositories.get_mut(repository) else { return };
        if let Some(blob) = repository.blobs.get_mut(digest.as_str()) {
            *blob = bytes.to_vec();
        }
        if let Some((_, manifest)) = repository.manifests.get_mut(digest.as_str()) {
            *manifest = bytes.to_vec();
        }
    }

    /// Loses a blob or a manifest.
    pub fn lose(&self, repository: &str, digest: &Digest) {
        if let Some(repository) = self.state().repositories.get_mut(repository) {
            repository.blobs.remove(digest.as_str());
            repository.manifests.remove(digest.as_str());
        }
    }

    /// The digest that a tag stands for.
    pub fn tag(&self, repository: &str, tag: &str) -> Option<Digest> {
        self.state().repositories.get(repository)?.tags.get(tag)?.parse().ok()
    }

    /// All tags of a repository.
    pub fn tags(&self, repository: &str) -> Vec<String> {
        let state = self.state();
        state.repositories.get(repository).map(|found| found.tags.keys().cloned().collect()).unwrap_or_default()
    }

    /// A manifest or a blob.
    pub fn content(&self, repository: &str, digest: &Digest) -> Option<Vec<u8>> {
        let state = self.state();
        let repository = state.repositories.get(repository)?;
        let manifest = repository.manifests.get(digest.as_str()).map(|(_, bytes)| bytes);
        manifest.or_else(|| repository.blobs.get(digest.as_str())).cloned()
    }

    /// Reads one request, answers it, and hangs up.
    fn serve(&self, stream: &TcpStream) -> io::Result<()> {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let mut words = line.split_whitespace().map(str::to_owned);
        let (Some(method), Some(target)) = (words.next(), words.next()) else { return Ok(()) };
        let mut headers: BTreeMap<String, String> = BTreeMap::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':') {
                headers.insert(name.trim().to_ascii_lowercase(), value.trim().to_owned());
            }
        }
        let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0_usize);
        let mut body = Vec::new();
        reader.by_ref().take(length.min(MOST_BODY) as u64).read_to_end(&mut body)?;
        let (answer, fault, head) = {
            let mut state = self.state();
            let (authorization, range) = (headers.get("authorization").cloned(), headers.get("range").cloned());
            let request = Request { method, target, authorization, range };
            state.requests.push(request.clone());
            let fault = state.fault(&request);
            let answer = match &fault {
                Some(Fault::Status(_) | Fault::RetryAfter(..) | Fault::Redirect(_) | Fault::Cut) => Answer::new(200),
                _ => state.answer(&self.host(), &request, &headers, body),
            };
            (answer, fault, request.method == "HEAD")
        };
        send(stream, answer, fault.as_ref(), head)
    }
}

/// Sends an answer, or what is sent instead.
fn send(mut stream: &TcpStream, mut answer: Answer, fault: Option<&Fault>, head: bool) -> io::Result<()> {
    let whole = answer.body.len();
    let (mut announced, mut sent, mut stalls) = (Some(whole as u64), whole, false);
    match fault {
        None => {}
        Some(Fault::Cut | Fault::Lost) => return Ok(()),
        Some(Fault::Status(status)) => {
            answer = Answer::error(*status, "TEST", "as it was told");
            (announced, sent) = (Some(answer.body.len() as u64), answer.body.len());
        }
        Some(Fault::RetryAfter(status, after)) => {
            answer = Answer::error(*status, "TEST", "as it was told").with("retry-after", after.as_str());
            (announced, sent) = (Some(answer.body.len() as u64), answer.body.len());
        }
        Some(Fault::Redirect(place)) => {
            answer = Answer::new(307).with("location", place.as_str());
            (announced, sent) = (Some(0), 0);
        }
        Some(Fault::Truncate(bytes)) => sent = *bytes,
        Some(Fault::Stall(bytes)) => (sent, stalls) = (*bytes, true),
        Some(Fault::Length(length)) => announced = Some(*length),
        Some(Fault::Flood) => announced = None,
        Some(Fault::Bytes(bytes)) => {
            answer.body.clone_from(bytes);
            (announced, sent) = (Some(bytes.len() as u64), bytes.len());
        }
        Some(Fault::Digest(digest)) => answer = answer.with("docker-content-digest", digest.as_str()),
        Some(Fault::MediaType(kind)) => answer = answer.with("content-type", kind.as_str()),
        Some(Fault::Next(place)) => answer = answer.with("link", format!("<{place}>; rel=\"next\"")),
        Some(Fault::Location(place)) => answer = answer.with("location", place.as_str()),
    }
    let mut text = format!("HTTP/1.1 {} x\r\nconnection: close\r\n", answer.status);
    // What an answer to HEAD says of itself is the length of what is not sent.
    let own = answer.headers.iter().any(|(name, _)| *name == "content-length");
    if let (Some(length), false) = (announced, own) {
        text.push_str(&format!("content-length: {length}\r\n"));
    }
    for (name, value) in &answer.headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    stream.write_all(text.as_bytes())?;
    if !head {
        stream.write_all(answer.body.get(..sent.min(answer.body.len())).unwrap_or_default())?;
    }
    stream.flush()?;
    if fault == Some(&Fault::Flood) {
        // Ends when nobody listens any more.
        loop {
            stream.write_all(&[b' '; 4096])?;
        }
    }
    if stalls {
        // Until the client gives up.
        return stream.read(&mut [0]).map(|_| ());
    }
    Ok(())
}

impl State {
    /// What is to go wrong with this request.
    fn fault(&mut self, request: &Request) -> Option<Fault> {
        let fits = |planned: &Planned| {
            planned.times > 0 && planned.method == request.method && request.target.contains(&planned.part)
        };
        let planned = self.planned.iter_mut().find(|planned| fits(planned))?;
        planned.times -= 1;
        Some(planned.fault.clone())
    }

    fn answer(&mut self, host: &str, request: &Request, headers: &BTreeMap<String, String>, body: Vec<u8>) -> Answer {
        let (path, query) = request.target.split_once('?').unwrap_or((request.target.as_str(), ""));
        if path == "/token" {
            return self.token(request, &body);
        }
        if let Some(refused) = self.refusal(host, request) {
            return refused;
        }
        if path == "/v2/" || path == "/v2" {
            return Answer::new(200);
        }
        let Some(rest) = path.strip_prefix("/v2/") else { return Answer::error(404, "NOT_FOUND", "no such page") };
        for (word, what) in
            [("/blobs/uploads/", 0), ("/blobs/", 1), ("/manifests/", 2), ("/tags/", 3), ("/referrers/", 4)]
        {
            if let Some((repository, which)) = rest.rsplit_once(word) {
                return match what {
                    0 => self.upload(request, repository, query, body),
                    1 => self.blob(request, repository, which),
                    2 => self.manifest(request, repository, which, headers, body),
                    3 => self.listed(repository, path, query),
                    _ => self.speaking(repository, which, query),
                };
            }
        }
        Answer::error(404, "NOT_FOUND", "no such page")
    }

    /// What is said to somebody who did not say who asks.
    fn refusal(&self, host: &str, request: &Request) -> Option<Answer> {
        let said = request.authorization.as_deref();
        let (wanted, challenge) = match &self.access {
            Access::Everybody => return None,
            Access::Basic { username, password } => (basic(username, password), "Basic realm=\"test\"".to_owned()),
            Access::Token { realm, .. } => {
                let realm = realm.clone().unwrap_or_else(|| format!("http://{host}/token"));
                let challenge = format!(
                    "Bearer realm=\"{realm}\",service=\"{host}\",scope=\"repository:everything:pull,push,delete\""
                );
                (format!("Bearer {TOKEN}"), challenge)
            }
        };
        let refused =
            || Answer::error(401, "UNAUTHORIZED", "who are you?").with("www-authenticate", challenge.as_str());
        (said != Some(wanted.as_str())).then(refused)
    }

    fn token(&self, request: &Request, body: &[u8]) -> Answer {
        let Access::Token { password, refresh, .. } = &self.access else {
            // A token service of its own, for registries that name it: anybody gets one.
            return Answer::new(200).of(json!({"token": TOKEN}).to_string().into_bytes());
        };
        let by_password = password.as_ref().map(|(name, password)| basic(name, password));
        let by_refresh = refresh.as_ref().map(|token| format!("refresh_token={token}"));
        let body = String::from_utf8_lossy(body);
        let known = request.authorization.is_some() && request.authorization == by_password
            || by_refresh.is_some_and(|wanted| body.split('&').any(|pair| pair == wanted))
            || password.is_none() && refresh.is_none();
        if known {
            return Answer::new(200).of(json!({"access_token": TOKEN, "expires_in": 60}).to_string().into_bytes());
        }
        Answer::error(401, "UNAUTHORIZED", "who are you?")
    }

    fn upload(&mut self, request: &Request, repository: &str, query: &str, body: Vec<u8>) -> Answer {
        match request.method.as_str() {
            "POST" => {
                self.uploads += 1;
                // With a question in it, as real ones have: it must be kept.
                let place = format!("/v2/{repository}/blobs/uploads/{}?state=a%3Db", self.uploads);
                Answer::new(202).with("location", place)
            }
            "PUT" => {
                let digest = parameter(query, "digest").unwrap_or_default();
                if digest != Digest::of(&body).as_str() || parameter(query, "state").is_none() {
                    return Answer::error(400, "DIGEST_INVALID", "other bytes than were announced");
                }
                let answer = Answer::new(201).with("docker-content-digest", digest.as_str());
                self.repositories.entry(repository.to_owned()).or_default().blobs.insert(digest, body);
                answer
            }
            _ => Answer::error(405, "UNSUPPORTED", "no such method"),
        }
    }

    fn blob(&self, request: &Request, repository: &str, digest: &str) -> Answer {
        let found = self.repositories.get(repository).and_then(|repository| repository.blobs.get(digest));
        let Some(bytes) = found else { return Answer::error(404, "BLOB_UNKNOWN", "no such blob") };
        let answer = Answer::new(200).with("docker-content-digest", digest);
        if request.method == "HEAD" {
            return answer.with("content-length", bytes.len().to_string());
        }
        let range = request.range.as_deref().filter(|_| self.ranges);
        let begin = range.and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse::<usize>().ok());
        match begin.and_then(|begin| Some((begin, bytes.get(begin..)?))) {
            Some((begin, rest)) => {
                let range = format!("bytes {begin}-{}/{}", bytes.len().saturating_sub(1), bytes.len());
                Answer { status: 206, ..answer.with("content-range", range) }.of(rest.to_vec())
            }
            None => answer.of(bytes.clone()),
        }
    }

    fn manifest(
        &mut self,
        request: &Request,
        repository: &str,
        which: &str,
        headers: &BTreeMap<String, String>,
        body: Vec<u8>,
    ) -> Answer {
        if request.method == "PUT" {
            let digest = Digest::of(&body).to_string();
            let value: Value = serde_json::from_slice(&body).unwrap_or_default();
            let subject = value.pointer("/subject/digest").and_then(Value::as_str).map(str::to_owned);
            let kind = headers.get("content-type").cloned().unwrap_or_default();
            let known = self.repositories.entry(repository.to_owned()).or_default();
            // What is not there cannot be referred to.
            let layers = value.get("layers").and_then(Value::as_array).into_iter().flatten();
            let mut parts = layers.chain(value.get("config")).filter_map(|part| part.get("digest")?.as_str());
            if parts.any(|part| !known.blobs.contains_key(part)) {
                return Answer::error(400, "MANIFEST_BLOB_UNKNOWN", "a blob of it is not there");
            }
            if which.contains(':') && which != digest {
                return Answer::error(400, "DIGEST_INVALID", "other bytes than were announced");
            }
            if !which.contains(':') {
                known.tags.insert(which.to_owned(), digest.clone());
            }
            known.manifests.insert(digest.clone(), (kind, body));
            let answer = Answer::new(201).with("docker-content-digest", digest);
            return match subject.filter(|_| self.referrers) {
                Some(subject) => answer.with("oci-subject", subject),
                None => answer,
            };
        }
        let known = self.repositories.get(repository);
        let digest = known.and_then(|known| known.tags.get(which)).map_or(which, String::as_str);
        match known.and_then(|known| known.manifests.get(digest)) {
            Some((kind, bytes)) => Answer::new(200)
                .with("content-type", kind.as_str())
                .with("docker-content-digest", digest)
                .of(bytes.clone()),
            None => Answer::error(404, "MANIFEST_UNKNOWN", "no such manifest"),
        }
    }

    fn listed(&self, repository: &str, path: &str, query: &str) -> Answer {
        let Some(known) = self.repositories.get(repository) else {
            return Answer::error(404, "NAME_UNKNOWN", "no such repository");
        };
        let last = parameter(query, "last").unwrap_or_default();
        let after: Vec<&String> = known.tags.keys().filter(|tag| last.is_empty() || **tag > last).collect();
        let page: Vec<&String> = after.iter().copied().take(self.page).collect();
        let answer = Answer::new(200).with("content-type", "application/json");
        let answer = match page.last().filter(|_| page.len() < after.len()) {
            Some(last) => answer.with("link", format!("<{path}?n={}&last={last}>; rel=\"next\"", self.page)),
            None => answer,
        };
        answer.of(json!({"name": repository, "tags": page}).to_string().into_bytes())
    }

    fn speaking(&self, repository: &str, subject: &str, query: &str) -> Answer {
        if !self.referrers {
            return Answer::error(404, "NOT_FOUND", "no such page");
        }
        let wanted = parameter(query, "artifactType");
        let mut found: Vec<Value> = Vec::new();
        for (digest, (kind, bytes)) in
            self.repositories.get(repository).map(|known| &known.manifests).into_iter().flatten()
        {
            let value: Value = serde_json::from_slice(bytes).unwrap_or_default();
            if value.pointer("/subject/digest").and_then(Value::as_str) != Some(subject) {
                continue;
            }
            let artifact = value.get("artifactType").and_then(Value::as_str).unwrap_or_default();
            if wanted.as_deref().is_none_or(|wanted| wanted == artifact) {
                let annotations = value.get("annotations").cloned().unwrap_or_else(|| json!({}));
                found.push(json!({
                    "mediaType": kind, "digest": digest, "size": bytes.len(), "artifactType": artifact, "annotations": annotations,
                }));
            }
        }
        let kind = "application/vnd.oci.image.index.v1+json";
        let index = json!({"schemaVersion": 2, "mediaType": kind, "manifests": found}).to_string();
        Answer::new(200).with("content-type", kind).of(index.into_bytes())
    }
}

fn basic(username: &str, password: &str) -> String {
    let both = base64::engine::general_purpose::STANDARD.encode(format!("{username}:{password}"));
    format!("Basic {both}")
}

/// A value of a query, with the escapes that are written here taken back.
fn parameter(query: &str, name: &str) -> Option<String> {
    let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?;
    Some(value.replace("%3A", ":").replace("%2F", "/").replace("%2B", "+").replace("%3D", "="))
}
