//! Reads a remote Git repository, read-only, with gix: whether a revision contains a commit, and whether a folder is
//! the same in both (SPEC.md section 6). Needed only when Argo CD compared with another revision than the run's.
//!
//! A bare clone per repository in a folder of its own, thrown away with the reader. It fetches only what it does not
//! have, once for all who ask, and remembers for a moment that it could not. It blocks: call it where that is allowed.

mod credentials;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use forge_core::digest::{CommitId, Digest};
use forge_core::gate::{Folder, GitContent};
use forge_core::name::{clip, cut};
use gix::ObjectId;
use gix::credentials::helper::Action;
use gix::credentials::protocol::Outcome;
use gix::protocol::transport::client::blocking_io::http;
use gix::url::Scheme;
use tempfile::TempDir;

use crate::cluster::chain;

pub(crate) use credentials::GitCredentials;

/// How long what a fetch did not bring is not fetched again, so that a thousand nodes do not wait in turn for a
/// repository that does not answer.
const AGAIN: Duration = Duration::from_secs(3);
/// How much of an error is kept.
const LONGEST_ERROR: usize = 1 << 10;

/// Clones of the repositories that were asked about.
pub(crate) struct GitReader {
    folder: PathBuf,
    credentials: GitCredentials,
    /// Removed with the reader.
    _temporary: Option<TempDir>,
    again: Duration,
    mirrors: Mutex<BTreeMap<String, Arc<Mirror>>>,
}

impl GitReader {
    /// Clones into this folder, which stays.
    fn new(folder: PathBuf, credentials: GitCredentials) -> Self {
        Self { folder, credentials, _temporary: None, again: AGAIN, mirrors: Mutex::default() }
    }

    /// Clones into a folder that nobody else can read or guess, and that goes with the reader.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub(crate) fn temporary(credentials: GitCredentials) -> Result<Self, std::io::Error> {
        let temporary = tempfile::Builder::new().prefix("forge-git-").tempdir()?;
        let folder = temporary.path().to_owned();
        Ok(Self { _temporary: Some(temporary), ..Self::new(folder, credentials) })
    }

    /// What a repository says about a revision, compared with a commit, for a folder.
    ///
    /// # Errors
    /// When the repository cannot be read, in words that can be shown.
    pub(crate) fn content(
        &self,
        url: &str,
        path: &str,
        commit: &CommitId,
        revision: &str,
    ) -> Result<GitContent, String> {
        if revision == commit.as_str() {
            return Ok(GitContent { contains_commit: true, folder: Folder::Same, error: None });
        }
        let failed = |error: String| {
            cut(&format!("failed to read `{}`: {error}", clip(without_user(url))), LONGEST_ERROR).into_owned()
        };
        self.read(url, path, commit.as_str(), revision).map_err(failed)
    }

    fn read(&self, url: &str, path: &str, commit: &str, revision: &str) -> Result<GitContent, String> {
        let id = |text: &str| ObjectId::from_hex(text.as_bytes()).map_err(|error| chain(&error));
        let (wanted, seen) = (id(commit)?, id(revision)?);
        let Some(repository) = self.mirror(url).holding(wanted, seen, self.again, &self.credentials)? else {
            return Ok(GitContent { contains_commit: false, folder: Folder::Unknown, error: None });
        };
        let base = repository.merge_base(wanted, seen).map_err(|error| chain(&error))?;
        let contains_commit = base.is_some_and(|base| base == wanted);
        let folder = match parts(path) {
            Some(parts) => compared(tree(&repository, wanted, &parts)?, tree(&repository, seen, &parts)?),
            None => Folder::Unknown,
        };
        Ok(GitContent { contains_commit, folder, error: None })
    }

    fn mirror(&self, url: &str) -> Arc<Mirror> {
        let mut mirrors = lock(&self.mirrors);
        let made = || {
            let folder = self.folder.join(Digest::of(url.as_bytes()).short(20));
            Arc::new(Mirror { url: url.to_owned(), folder, fetching: Mutex::default() })
        };
        mirrors.entry(url.to_owned()).or_insert_with(made).clone()
    }
}

/// The clone of one repository.
struct Mirror {
    url: String,
    folder: PathBuf,
    /// Held while it is fetched: whoever waits finds what the one before brought, or why it could not.
    fetching: Mutex<Fetching>,
}

/// What the last fetches did not bring, and when.
#[derive(Default)]
struct Fetching {
    failed: Option<(Instant, String)>,
    absent: BTreeMap<(ObjectId, ObjectId), Instant>,
}

impl Mirror {
    /// The clone where it holds both commits. Commits do not change, so one that does is not fetched for them.
    fn holding(
        &self,
        wanted: ObjectId,
        seen: ObjectId,
        again: Duration,
        credentials: &GitCredentials,
    ) -> Result<Option<gix::Repository>, String> {
        if let Some(repository) = self.opened_with(wanted, seen) {
            return Ok(Some(repository));
        }
        let mut fetching = lock(&self.fetching);
        if let Some(repository) = self.opened_with(wanted, seen) {
            return Ok(Some(repository));
        }
        fetching.absent.retain(|_, at| at.elapsed() < again);
        if fetching.absent.contains_key(&(wanted, seen)) {
            return Ok(None);
        }
        if let Some((_, error)) = fetching.failed.as_ref().filter(|(at, _)| at.elapsed() < again) {
            return Err(error.clone());
        }
        if let Err(error) = self.fetch(credentials) {
            // From now, not from its beginning: those who waited for it must not each try too.
            fetching.failed = Some((Instant::now(), error.clone()));
            return Err(error);
        }
        fetching.failed = None;
        let found = self.opened_with(wanted, seen);
        if found.is_none() {
            fetching.absent.insert((wanted, seen), Instant::now());
        }
        Ok(found)
    }

    fn opened_with(&self, wanted: ObjectId, seen: ObjectId) -> Option<gix::Repository> {
        opened(&self.folder).filter(|repository| repository.has_object(wanted) && repository.has_object(seen))
    }

    /// Brings everything that the branches of the repository hold now.
    fn fetch(&self, credentials: &GitCredentials) -> Result<(), String> {
        fetch(&self.folder, &self.url, &["+refs/heads/*:refs/remotes/origin/*"], credentials)
    }
}

/// The clone in a folder, if there is one.
pub(crate) fn opened(folder: &Path) -> Option<gix::Repository> {
    gix::open_opts(folder, gix::open::Options::isolated()).ok()
}

/// Brings what these refspecs name into the bare clone in a folder, which is made where there is none.
///
/// # Errors
/// When the repository cannot be read, in words that can be shown.
pub(crate) fn fetch(folder: &Path, url: &str, refspecs: &[&str], credentials: &GitCredentials) -> Result<(), String> {
    let wanted = gix::url::parse(url).map_err(|error| chain(&error))?;
    credentials.reach(&wanted)?;
    let mut address = wanted.clone();
    // What an address carries is credentials too: they are asked for, and not sent to whoever answers.
    if matches!(address.scheme, Scheme::Http | Scheme::Https) {
        address.set_user(None);
        address.set_password(None);
    }
    let repository = match opened(folder) {
        Some(repository) => repository,
        None => {
            // Half of what a process that was killed made is no repository.
            let _ = std::fs::remove_dir_all(folder);
            std::fs::create_dir_all(folder).map_err(|error| error.to_string())?;
            gix::init_bare(folder).map_err(|error| chain(&error))?
        }
    };
    let refused: RefCell<Option<String>> = RefCell::default();
    let failed = |error: gix::Error| refused.take().unwrap_or_else(|| explained(&chain(&error), credentials));
    let answer = |action: Action| -> gix::Result<Option<Outcome>> {
        // What is stored or forgotten elsewhere is not ours to change.
        let Action::Get(context) = action else { return Ok(None) };
        let asking = context.url.map(|url| gix::url::parse(&url)).transpose()?;
        match credentials.identity(&wanted, asking.as_ref().unwrap_or(&wanted)) {
            Ok(identity) => Ok(Some(identity.outcome())),
            Err(why) => {
                refused.replace(Some(why.clone()));
                Err(gix::Error::from_error(std::io::Error::other(why)))
            }
        }
    };
    let remote = repository.remote_at(address).map_err(failed)?;
    let refspecs = refspecs.iter().copied();
    let remote = remote.with_refspecs(refspecs, gix::remote::Direction::Fetch).map_err(failed)?;
    let connection = remote.connect(gix::remote::Direction::Fetch).map_err(failed)?;
    let mut connection = connection.with_credentials(answer);
    if let Some(pem) = credentials.certificates(&wanted)? {
        connection.set_transport_options(Box::new(trusting(&pem)?));
    }
    let fetch =
        connection.prepare_fetch(gix::progress::Discard, gix::remote::ref_map::Options::default()).map_err(failed)?;
    fetch.receive(gix::progress::Discard, &AtomicBool::new(false)).map_err(failed)?;
    Ok(())
}

/// An error of a fetch, with what to do where credentials were refused.
fn explained(error: &str, credentials: &GitCredentials) -> String {
    if error.contains("were not accepted") {
        return format!("{error}; {}", credentials.after_refusal());
    }
    error.to_owned()
}

/// Trusts these certificates, and no others.
fn trusting(pem: &str) -> Result<http::Options, String> {
    let bad = |why: String| format!("`ca.crt` of the credentials cannot be used: {why}");
    let certificates = reqwest::Certificate::from_pem_bundle(pem.as_bytes()).map_err(|error| bad(chain(&error)))?;
    if certificates.is_empty() {
        return Err(bad("it holds no certificate".to_owned()));
    }
    let trust = move |client: reqwest::blocking::ClientBuilder| -> gix::Result<reqwest::blocking::ClientBuilder> {
        Ok(client.tls_certs_only(certificates.iter().cloned()))
    };
    let options = http::reqwest::Options { configure_client: Some(Box::new(trust)), configure_request: None };
    let backend: Arc<Mutex<dyn std::any::Any + Send + Sync>> = Arc::new(Mutex::new(options));
    Ok(http::Options { backend: Some(backend), ..http::Options::default() })
}

/// The parts of a folder's path as Git names them, none for the root; nothing where it leaves the repository.
fn parts(path: &str) -> Option<Vec<&str>> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    (!parts.contains(&"..")).then_some(parts)
}

/// The folder at a commit; nothing where there is none. A link is none: what it points to may change without it.
fn tree(repository: &gix::Repository, commit: ObjectId, parts: &[&str]) -> Result<Option<ObjectId>, String> {
    let root = repository.find_commit(commit).map_err(|error| chain(&error))?.tree().map_err(|error| chain(&error))?;
    if parts.is_empty() {
        return Ok(Some(root.id));
    }
    let entry = root.lookup_entry(parts.iter().map(|part| part.as_bytes())).map_err(|error| chain(&error))?;
    Ok(entry.filter(|entry| entry.mode().is_tree()).map(|entry| entry.object_id()))
}

/// A folder that exists at neither commit is not the same in both: it proves nothing.
fn compared(wanted: Option<ObjectId>, seen: Option<ObjectId>) -> Folder {
    match (wanted, seen) {
        (None, None) => Folder::Unknown,
        (wanted, seen) if wanted == seen => Folder::Same,
        _ => Folder::Changed,
    }
}

/// An address without the user and password that it may carry.
pub(crate) fn without_user(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = rest.split('/').next().unwrap_or(rest);
    match host.rsplit_once('@') {
        Some((user, _)) => rest.get(user.len() + 1..).unwrap_or(rest),
        None => url,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::path::Path;
    use std::process::{Command, Stdio};

    use super::*;

    const SAME: GitContent = GitContent { contains_commit: true, folder: Folder::Same, error: None };
    const CHANGED: GitContent = GitContent { contains_commit: true, folder: Folder::Changed, error: None };
    const UNKNOWN: GitContent = GitContent { contains_commit: true, folder: Folder::Unknown, error: None };

    fn git(folder: &Path, arguments: &[&str]) -> String {
        let output = Command::new("git")
            .current_dir(folder)
            .args(["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main"])
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn commit(folder: &Path, file: &str, text: &str) -> String {
        std::fs::create_dir_all(folder.join(file).parent().unwrap()).unwrap();
        std::fs::write(folder.join(file), text).unwrap();
        git(folder, &["add", "."]);
        git(folder, &["commit", "-q", "-m", file]);
        git(folder, &["rev-parse", "HEAD"])
    }

    /// An empty repository in a folder of its own, and its address.
    fn source(folder: &Path) -> (PathBuf, String) {
        let source = folder.join("source");
        std::fs::create_dir_all(&source).unwrap();
        git(&source, &["init", "-q"]);
        let url = format!("file://{}", source.display());
        (source, url)
    }

    #[test]
    fn a_later_revision_counts_only_if_it_contains_the_commit_and_left_the_folder_alone() {
        let temporary = tempfile::tempdir().unwrap();
        let (source, url) = source(temporary.path());
        let first = commit(&source, "apps/a/x.yaml", "1");
        let reader = GitReader::temporary(GitCredentials::Helper).unwrap();
        let wanted: CommitId = first.parse().unwrap();
        // Asked before the others exist, so that the reader must fetch again.
        assert_eq!(reader.content(&url, "apps/a", &wanted, &first), Ok(SAME));
        let elsewhere = commit(&source, "apps/b/x.yaml", "1");
        assert_eq!(reader.content(&url, "apps/a", &wanted, &elsewhere), Ok(SAME));
        let moved = commit(&source, "apps/a/x.yaml", "2");
        assert_eq!(reader.content(&url, "apps/a", &wanted, &moved), Ok(CHANGED));
        // An older revision does not contain a newer commit, and an unknown one nothing.
        let newer: CommitId = moved.parse().unwrap();
        assert!(!reader.content(&url, "apps/a", &newer, &first).unwrap().contains_commit);
        let unknown = "1".repeat(40);
        assert!(!reader.content(&url, "apps/a", &newer, &unknown).unwrap().contains_commit);
        assert!(reader.content("file:///nowhere/at/all", "a", &newer, &unknown).is_err());
    }

    #[test]
    fn a_folder_is_compared_however_its_path_is_written() {
        let temporary = tempfile::tempdir().unwrap();
        let (source, url) = source(temporary.path());
        commit(&source, "apps/b/x.yaml", "1");
        let first = commit(&source, "apps/a/x.yaml", "1");
        let moved = commit(&source, "apps/a/x.yaml", "2");
        let reader = GitReader::temporary(GitCredentials::Helper).unwrap();
        let content = |path: &str| reader.content(&url, path, &first.parse().unwrap(), &moved).unwrap();
        let changed = ["apps/a", "./apps/a", "/apps/a", "apps//a/", "apps/./a/.", "./apps", "", ".", "./", "/", "./."];
        for path in changed {
            assert_eq!(content(path), CHANGED, "{path:?}");
        }
        for path in ["apps/b", "./apps/b", "/apps/b/", "apps/./b"] {
            assert_eq!(content(path), SAME, "{path:?}");
        }
        // What is not there, not a folder, or outside proves nothing.
        for path in ["apps/c", "./nothing", "apps/b/x.yaml", "..", "apps/../apps/b", "apps/b/.."] {
            assert_eq!(content(path), UNKNOWN, "{path:?}");
        }
    }

    #[test]
    fn the_root_is_the_same_only_where_nothing_changed_and_a_folder_that_came_or_went_has_changed() {
        let temporary = tempfile::tempdir().unwrap();
        let (source, url) = source(temporary.path());
        let first = commit(&source, "apps/a/x.yaml", "1");
        git(&source, &["commit", "-q", "--allow-empty", "-m", "nothing"]);
        let same = git(&source, &["rev-parse", "HEAD"]);
        let came = commit(&source, "apps/new/x.yaml", "1");
        git(&source, &["rm", "-q", "-r", "apps/new"]);
        git(&source, &["commit", "-q", "-m", "gone"]);
        let went = git(&source, &["rev-parse", "HEAD"]);
        let reader = GitReader::temporary(GitCredentials::Helper).unwrap();
        let content = |path: &str, from: &str, to: &str| reader.content(&url, path, &from.parse().unwrap(), to);
        for root in ["", ".", "./", "/"] {
            assert_eq!(content(root, &first, &same), Ok(SAME), "{root:?}");
            assert_eq!(content(root, &first, &came), Ok(CHANGED), "{root:?}");
        }
        assert_eq!(content("apps/new", &first, &came), Ok(CHANGED));
        assert_eq!(content("apps/new", &came, &went), Ok(CHANGED));
    }

    #[test]
    fn a_link_is_no_folder_because_what_it_points_to_may_change() {
        let temporary = tempfile::tempdir().unwrap();
        let (source, url) = source(temporary.path());
        std::os::unix::fs::symlink("real", source.join("link")).unwrap();
        let first = commit(&source, "real/x.yaml", "1");
        let moved = commit(&source, "real/x.yaml", "2");
        let reader = GitReader::temporary(GitCredentials::Helper).unwrap();
        assert_eq!(reader.content(&url, "link", &first.parse().unwrap(), &moved), Ok(UNKNOWN));
    }

    #[test]
    fn a_revision_is_fetched_once_for_all_folders_and_all_who_ask() {
        let temporary = tempfile::tempdir().unwrap();
        let (source, url) = source(temporary.path());
        let first = commit(&source, "apps/a/x.yaml", "1");
        let moved = commit(&source, "apps/b/x.yaml", "1");
        let reader = GitReader::temporary(GitCredentials::Helper).unwrap();
        let wanted: CommitId = first.parse().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| assert_eq!(reader.content(&url, "apps/a", &wanted, &moved), Ok(SAME)));
            }
        });
        // Nothing is fetched for another folder: the repository is not there any more.
        std::fs::remove_dir_all(&source).unwrap();
        assert_eq!(reader.content(&url, "apps/b", &wanted, &moved), Ok(CHANGED));
    }

    #[test]
    fn what_a_fetch_did_not_bring_is_remembered_for_a_while() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path().join("source");
        let url = format!("file://{}", folder.display());
        let (one, other) = ("1".repeat(40), "2".repeat(40));
        let wanted: CommitId = one.parse().unwrap();
        let mut reader =
            GitReader { again: Duration::from_secs(3600), ..GitReader::temporary(GitCredentials::Helper).unwrap() };
        let error = reader.content(&url, "a", &wanted, &other).unwrap_err();
        assert!(error.starts_with("failed to read `file:///"), "{error}");
        // It is there now, which nobody asks about: neither for this revision nor for another.
        let (source, _) = source(temporary.path());
        let first = commit(&source, "a/x.yaml", "1");
        let second = commit(&source, "b/x.yaml", "1");
        assert_eq!(reader.content(&url, "a", &wanted, &other).unwrap_err(), error);
        assert_eq!(reader.content(&url, "a", &first.parse().unwrap(), &second).unwrap_err(), error);
        reader.again = Duration::ZERO;
        assert_eq!(reader.content(&url, "a", &first.parse().unwrap(), &second), Ok(SAME));
    }

    /// `me:s3cret`, as it is sent.
    const BASIC: &str = "Basic bWU6czNjcmV0";

    /// A Git server behind TLS and a password.
    struct Served {
        address: String,
        certificate: String,
        /// What each request said about who asks.
        told: Arc<Mutex<Vec<String>>>,
    }

    /// Serves a repository to whoever has the password, or sends everybody on.
    fn serve(source: PathBuf, elsewhere: Option<String>) -> Served {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let _ = rustls::crypto::ring::default_provider().install_default();
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
        let key = rustls::pki_types::PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key);
        let config = Arc::new(config.unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("https://localhost:{}", listener.local_addr().unwrap().port());
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let heard = told.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let connection = rustls::ServerConnection::new(config.clone()).unwrap();
                let stream = rustls::StreamOwned::new(connection, stream);
                // A client that went away needs no answer.
                let _ = answer(stream, &source, elsewhere.as_deref(), &heard);
            }
        });
        Served { address, certificate: certificate.pem(), told }
    }

    fn line(stream: &mut impl Read) -> Option<String> {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).ok()?;
            line.push(byte[0]);
        }
        Some(String::from_utf8_lossy(&line).trim_end().to_owned())
    }

    fn answer(
        mut stream: impl Read + Write,
        source: &Path,
        elsewhere: Option<&str>,
        heard: &Mutex<Vec<String>>,
    ) -> Option<()> {
        let request = line(&mut stream)?;
        let mut headers: BTreeMap<String, String> = BTreeMap::new();
        loop {
            let header = line(&mut stream)?;
            let Some((name, value)) = header.split_once(':') else { break };
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        let mut body = Vec::new();
        if headers.get("transfer-encoding").is_some_and(|coding| coding == "chunked") {
            loop {
                let length = u64::from_str_radix(&line(&mut stream)?, 16).ok()?;
                Read::by_ref(&mut stream).take(length).read_to_end(&mut body).ok()?;
                line(&mut stream)?;
                if length == 0 {
                    break;
                }
            }
        } else if let Some(length) = headers.get("content-length") {
            Read::by_ref(&mut stream).take(length.parse().ok()?).read_to_end(&mut body).ok()?;
        }
        let who = headers.get("authorization").cloned().unwrap_or_default();
        heard.lock().unwrap().push(who.clone());
        let path = request.split(' ').nth(1)?;
        let protocol = headers.get("git-protocol").map(String::as_str).unwrap_or_default();
        let (status, header, content) = if let Some(elsewhere) = elsewhere {
            ("302 Found", format!("location: {elsewhere}{path}"), Vec::new())
        } else if who != BASIC {
            ("401 Unauthorized", "www-authenticate: Basic realm=\"git\"".to_owned(), Vec::new())
        } else if path.contains("/info/refs") {
            let old = if protocol.contains("version=2") { "" } else { "001e# service=git-upload-pack\n0000" };
            let mut content = old.as_bytes().to_vec();
            content.extend(upload_pack(source, protocol, &["--advertise-refs"], &[]));
            ("200 OK", "content-type: application/x-git-upload-pack-advertisement".to_owned(), content)
        } else {
            let content = upload_pack(source, protocol, &[], &body);
            ("200 OK", "content-type: application/x-git-upload-pack-result".to_owned(), content)
        };
        let length = content.len();
        let head = format!("HTTP/1.1 {status}\r\n{header}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).ok()?;
        stream.write_all(&content).ok()?;
        stream.flush().ok()
    }

    fn upload_pack(source: &Path, protocol: &str, options: &[&str], input: &[u8]) -> Vec<u8> {
        let mut command = Command::new("git");
        command.args(["upload-pack", "--stateless-rpc"]).args(options).arg(source).env("GIT_PROTOCOL", protocol);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        child.wait_with_output().unwrap().stdout
    }

    /// What a Secret for a repository holds, as files.
    fn mounted(files: &[(&str, &str)]) -> (TempDir, GitReader) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let reader = GitReader::temporary(GitCredentials::Mounted(folder.path().to_owned())).unwrap();
        (folder, reader)
    }

    #[test]
    fn a_private_repository_is_read_with_the_mounted_credentials_and_not_without() {
        let temporary = tempfile::tempdir().unwrap();
        let (source, _) = source(temporary.path());
        let first = commit(&source, "apps/a/x.yaml", "1");
        let moved = commit(&source, "apps/b/x.yaml", "1");
        let served = serve(source, None);
        let url = format!("{}/team/platform.git", served.address);
        let (place, pem) = (("url", served.address.as_str()), ("ca.crt", served.certificate.as_str()));
        let read = |reader: &GitReader| reader.content(&url, "apps/a", &first.parse().unwrap(), &moved);
        let (_kept, reader) = mounted(&[place, pem, ("username", "me"), ("password", "s3cret\n")]);
        assert_eq!(read(&reader), Ok(SAME));
        {
            let told = served.told.lock().unwrap();
            assert_eq!(told.first().map(String::as_str), Some(""), "said before it was asked");
            assert!(told.len() > 2 && told.iter().skip(1).all(|who| who == BASIC), "{told:?}");
        }
        let (_kept, reader) = mounted(&[place, pem, ("username", "me"), ("password", "wr0ng")]);
        let refused = read(&reader).unwrap_err();
        assert!(refused.contains("were not accepted") && refused.contains("renew those in Secret"), "{refused}");
        assert!(!refused.contains("wr0ng"), "{refused}");
        let (_kept, reader) = mounted(&[place, pem]);
        let missing = read(&reader).unwrap_err();
        assert!(missing.contains("has neither `password` nor `token`"), "{missing}");
        // A server that cannot show whose it is hears nothing.
        let before = served.told.lock().unwrap().len();
        let (_kept, reader) = mounted(&[place, ("username", "me"), ("password", "s3cret")]);
        assert!(read(&reader).is_err());
        assert_eq!(served.told.lock().unwrap().len(), before);
    }

    #[test]
    fn credentials_never_follow_to_another_server() {
        let temporary = tempfile::tempdir().unwrap();
        let (source, _) = source(temporary.path());
        let first = commit(&source, "apps/a/x.yaml", "1");
        let moved = commit(&source, "apps/b/x.yaml", "1");
        let other = serve(source.clone(), None);
        let served = serve(source, Some(other.address.clone()));
        let pem = format!("{}{}", served.certificate, other.certificate);
        let (place, pem) = (("url", served.address.as_str()), ("ca.crt", pem.as_str()));
        let (_kept, reader) = mounted(&[place, pem, ("username", "me"), ("password", "s3cret")]);
        let url = format!("{}/team/platform.git", served.address);
        let error = reader.content(&url, "apps/a", &first.parse().unwrap(), &moved).unwrap_err();
        assert!(error.contains("sends on to `localhost`"), "{error}");
        for server in [&served, &other] {
            let told = server.told.lock().unwrap();
            assert!(!told.is_empty() && told.iter().all(String::is_empty), "{told:?}");
        }
    }

    #[test]
    fn the_clones_go_with_the_reader_and_passwords_are_not_shown() {
        let reader = GitReader::temporary(GitCredentials::Helper).unwrap();
        let folder = reader.folder.clone();
        assert!(folder.is_dir());
        drop(reader);
        assert!(!folder.exists());
        assert_eq!(without_user("https://me:secret@git.example.com/a@b.git"), "git.example.com/a@b.git");
        assert_eq!(without_user("git@git.example.com:a/b.git"), "git.example.com:a/b.git");
        assert_eq!(without_user("https://git.example.com/a@b.git"), "https://git.example.com/a@b.git");
    }
}
