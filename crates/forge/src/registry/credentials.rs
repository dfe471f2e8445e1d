//! Who one is for a registry: files as Docker, Podman and Kubernetes write them, and the helper programs that such a file names.
//!
//! An entry is for exactly its host, and where it names a path, for what lies below that. Files are read whenever a registry asks, so a
//! Secret that changed is used without a restart. Where a Secret is mounted, no program is started, whatever it says.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use forge_core::name::clip;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

/// How long a helper may take: some ask a service.
const PATIENCE: Duration = Duration::from_secs(10);
/// What a helper may say.
const MOST_SAID: u64 = 64 << 10;
/// What a file may come to.
const MOST_FILE: u64 = 1 << 20;
/// The user by which helpers say that a password is none, but a token to get others with.
const TOKEN_USER: &str = "<token>";
/// The names under which a folder has such a file.
const FILES: [&str; 2] = [".dockerconfigjson", "config.json"];
/// What helpers need to find what they keep, or the service that they ask.
const PASSED: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "DBUS_SESSION_BUS_ADDRESS",
    "DOCKER_CONFIG",
    "GNUPGHOME",
    "PASSWORD_STORE_DIR",
    "HTTPS_PROXY",
    "https_proxy",
    "NO_PROXY",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];
/// Beginnings of further names: folders of the user, and the clouds whose registries have helpers.
const PASSED_BEGINNINGS: &[&str] = &["XDG_", "AWS_", "AZURE_", "CLOUDSDK_", "GOOGLE_"];

/// Where credentials are looked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Credentials {
    /// Nowhere.
    #[default]
    None,
    /// In the user's own file, where there is one.
    User(PathBuf),
    /// In a file that somebody named, which must be there.
    Named(PathBuf),
    /// In a mounted Secret: a file, or the folder that it is in. Starts no program.
    Mounted(PathBuf),
}

/// Who one is.
#[derive(Debug)]
pub(super) enum Identity {
    /// A name and a password.
    Password {
        /// The name.
        username: String,
        /// The password.
        password: SecretString,
    },
    /// What the registry's own token service exchanges for a token.
    Refresh(SecretString),
    /// A token as the registry takes it.
    Token(SecretString),
}

impl Credentials {
    /// Those of the user: `config.json` in `DOCKER_CONFIG` or in `~/.docker`.
    pub(crate) fn of_user() -> Self {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let folder = set("DOCKER_CONFIG").or_else(|| set("HOME").map(|home| home.join(".docker")));
        folder.map_or(Self::None, |folder| Self::User(folder.join("config.json")))
    }

    /// Where they are looked for, for whoever misses them.
    pub(super) fn place(&self) -> String {
        match self {
            Self::None => "no file of credentials was named".to_owned(),
            Self::User(file) | Self::Named(file) | Self::Mounted(file) => {
                format!("they are looked for in `{}`", file.display())
            }
        }
    }

    /// Who one is for a repository of a host; nothing where nobody says it.
    ///
    /// # Errors
    /// Why that cannot be found out. Never with anything that is secret.
    pub(super) async fn identity(&self, host: &str, path: &str) -> Result<Option<Identity>, String> {
        let Some((file, text)) = self.text()? else { return Ok(None) };
        let config = parsed(&file, &text)?;
        let helpers = !matches!(self, Self::Mounted(_));
        if let (true, Some((server, helper))) = (helpers, helper_for(&config, host)) {
            return helped(&helper, &server).await;
        }
        if let Some(entry) = entry_for(&config, host, path)
            && let Some(identity) = written(entry).map_err(|why| format!("`{}`: {why}", file.display()))?
        {
            return Ok(Some(identity));
        }
        match config.get("credsStore").and_then(Value::as_str).filter(|store| !store.is_empty()) {
            Some(store) if helpers => helped(store, host).await,
            _ => Ok(None),
        }
    }

    /// The same for a program that reads such a file itself: what is to be in it. Nothing where nobody says anything, and where
    /// the program finds the user's own. Of a mounted Secret it gets what starts no program.
    ///
    /// # Errors
    /// Why that cannot be found out. Never with anything that is secret.
    pub(crate) fn for_programs(&self) -> Result<Option<SecretString>, String> {
        if matches!(self, Self::None | Self::User(_)) {
            return Ok(None);
        }
        let Some((file, text)) = self.text()? else { return Ok(None) };
        let config = parsed(&file, &text)?;
        if matches!(self, Self::Named(_)) {
            return Ok(Some(SecretString::from(text)));
        }
        let entries = config.get("auths").cloned().unwrap_or_else(|| json!({}));
        Ok(Some(SecretString::from(json!({"auths": entries}).to_string())))
    }

    /// The file that they are in, and what it says; nothing where there need not be one and is none.
    fn text(&self) -> Result<Option<(PathBuf, String)>, String> {
        let file = match self {
            Self::None => return Ok(None),
            Self::User(file) | Self::Named(file) => file.clone(),
            Self::Mounted(place) if place.is_dir() => {
                let inside = FILES.iter().map(|name| place.join(name)).find(|file| file.exists());
                inside.unwrap_or_else(|| place.join(".dockerconfigjson"))
            }
            Self::Mounted(file) => file.clone(),
        };
        match read(&file) {
            Ok(text) => Ok(Some((file, text))),
            Err(error) if error.kind() == io::ErrorKind::NotFound && !matches!(self, Self::Named(_)) => Ok(None),
            Err(error) => Err(format!("`{}`: {error}", file.display())),
        }
    }
}

/// What such a file says. The message of a parser may show what it stumbled over.
fn parsed(file: &Path, text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|_| format!("`{}` is not JSON", file.display()))
}

/// A regular file, within bounds. What it is, is asked before it is opened: opening a pipe would wait for ever.
pub(super) fn read(file: &Path) -> io::Result<String> {
    let metadata = std::fs::metadata(file)?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    if metadata.len() > MOST_FILE {
        return Err(io::Error::other(format!("{} bytes; at most {MOST_FILE} are read", metadata.len())));
    }
    std::fs::read_to_string(file)
}

/// Host and path that a key of the file is for: those of Docker are addresses.
fn place_of(key: &str) -> (String, &str) {
    let rest = key.split_once("://").map_or(key, |(_, rest)| rest);
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let path = path.trim_matches('/');
    let path = if path == "v1" || path == "v2" { "" } else { path };
    (plain_host(host), path)
}

/// A host without the port that everybody means.
fn plain_host(host: &str) -> String {
    let host = host.to_ascii_lowercase();
    host.strip_suffix(":443").map(str::to_owned).unwrap_or(host)
}

/// The helper that the file names for a host, and by what name of it.
fn helper_for(config: &Value, host: &str) -> Option<(String, String)> {
    let helpers = config.get("credHelpers")?.as_object()?;
    let mine = |(key, _): &(&String, &Value)| {
        let (wanted, path) = place_of(key);
        wanted == plain_host(host) && path.is_empty()
    };
    let (key, helper) = helpers.iter().find(mine)?;
    Some((key.clone(), helper.as_str()?.to_owned()))
}

/// The entry for a repository: of its host, and of the longest path that it lies below.
fn entry_for<'c>(config: &'c Value, host: &str, path: &str) -> Option<&'c Value> {
    let entries = config.get("auths")?.as_object()?;
    let mine = entries.iter().filter_map(|(key, entry)| {
        let (wanted, prefix) = place_of(key);
        let below =
            prefix.is_empty() || path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        (wanted == plain_host(host) && below).then_some((prefix.len(), entry))
    });
    mine.max_by_key(|(length, _)| *length).map(|(_, entry)| entry)
}

/// What an entry says; nothing where it only marks that a helper knows.
fn written(entry: &Value) -> Result<Option<Identity>, &'static str> {
    let text = |key: &str| entry.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    if let Some(token) = text("registrytoken") {
        return Ok(Some(Identity::Token(SecretString::from(token.to_owned()))));
    }
    if let Some(token) = text("identitytoken") {
        return Ok(Some(Identity::Refresh(SecretString::from(token.to_owned()))));
    }
    if let (Some(username), Some(password)) = (text("username"), text("password")) {
        return Ok(Some(identity(username, password)));
    }
    let Some(auth) = text("auth") else { return Ok(None) };
    let bad = "`auth` of an entry is not the base64 of a name, a colon and a password";
    let decoded = base64::engine::general_purpose::STANDARD.decode(auth.trim()).map_err(|_| bad)?;
    let decoded = String::from_utf8(decoded).map_err(|_| bad)?;
    let (username, password) = decoded.split_once(':').ok_or(bad)?;
    Ok(Some(identity(username, password.trim_end_matches('\0'))))
}

fn identity(username: &str, password: &str) -> Identity {
    let password = SecretString::from(password.to_owned());
    if username == TOKEN_USER {
        return Identity::Refresh(password);
    }
    Identity::Password { username: username.to_owned(), password }
}

fn passes(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    PASSED.contains(&name) || PASSED_BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
}

/// What a helper knows about a server.
async fn helped(helper: &str, server: &str) -> Result<Option<Identity>, String> {
    let named = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if helper.is_empty() || !helper.bytes().all(named) {
        return Err(format!("`{}` cannot be the name of a credential helper", clip(helper)));
    }
    let program = format!("docker-credential-{helper}");
    asked(&program, server, PATIENCE).await
}

async fn asked(program: &str, server: &str, patience: Duration) -> Result<Option<Identity>, String> {
    let mut command = Command::new(program);
    command.arg("get").env_clear().envs(std::env::vars_os().filter(|(name, _)| passes(name)));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.process_group(0).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| format!("`{program}` cannot be started: {error}"))?;
    let group = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
    let work = async {
        if let Some(mut stdin) = child.stdin.take() {
            // One that does not listen has nothing to say.
            let _ = stdin.write_all(server.as_bytes()).await;
        }
        let mut said = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            stdout.take(MOST_SAID).read_to_end(&mut said).await?;
        }
        let status = child.wait().await?;
        Ok::<_, io::Error>((said, status))
    };
    let ended = tokio::time::timeout(patience, work).await;
    let Ok(ended) = ended else {
        if let Some(group) = group {
            // Whatever it has started ends with it.
            let _ = killpg(group, Signal::SIGKILL);
        }
        return Err(format!("`{program}` did not end within {} s and was killed", patience.as_secs()));
    };
    let (said, status) = ended.map_err(|error| format!("`{program}` cannot be waited for: {error}"))?;
    if !status.success() {
        let said = String::from_utf8_lossy(&said);
        // The words that the protocol has for it.
        let none = said.contains("credentials not found") || said.contains("no credentials");
        return if none { Ok(None) } else { Err(format!("`{program}` failed: {}", clip(said.trim()))) };
    }
    let answer: Value = serde_json::from_slice(&said).map_err(|_| format!("`{program}` did not answer with JSON"))?;
    let text = |key: &str| answer.get(key).and_then(Value::as_str).unwrap_or_default();
    match (text("Username"), text("Secret")) {
        ("", "") => Ok(None),
        (username, secret) => Ok(Some(identity(username, secret))),
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    fn said(identity: Option<Identity>) -> Option<String> {
        identity.map(|identity| match identity {
            Identity::Password { username, password } => format!("{username}:{}", password.expose_secret()),
            Identity::Refresh(token) => format!("refresh {}", token.expose_secret()),
            Identity::Token(token) => format!("token {}", token.expose_secret()),
        })
    }

    async fn found(config: &Value, host: &str, path: &str) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(".dockerconfigjson"), config.to_string()).unwrap();
        said(Credentials::Mounted(folder.path().to_owned()).identity(host, path).await.unwrap())
    }

    #[tokio::test]
    async fn an_entry_is_for_exactly_its_host_and_for_what_lies_below_its_path() {
        // `me:s3cret` and `team:other`.
        let config = json!({"auths": {
            "registry.example.com": {"auth": "bWU6czNjcmV0"},
            "registry.example.com/team": {"auth": "dGVhbTpvdGhlcg=="},
            "https://old.example.com/v1/": {"username": "o", "password": "p"},
            "ported.example.com:5000": {"username": "a", "password": "b:c"},
            "refresh.example.com": {"identitytoken": "r"},
            "user.example.com": {"auth": "PHRva2VuPjpy"},
            "token.example.com": {"registrytoken": "t", "auth": "bWU6czNjcmV0"},
            "marked.example.com": {},
        }});
        for (host, path, wanted) in [
            ("registry.example.com", "a", Some("me:s3cret")),
            ("registry.example.com:443", "a", Some("me:s3cret")),
            ("registry.example.com", "team", Some("team:other")),
            ("registry.example.com", "team/a", Some("team:other")),
            ("registry.example.com", "teamwork/a", Some("me:s3cret")),
            ("registry.example.com:5000", "a", None),
            ("example.com", "a", None),
            ("evil-registry.example.com", "a", None),
            ("registry.example.com.evil.com", "a", None),
            ("old.example.com", "a", Some("o:p")),
            ("ported.example.com:5000", "a", Some("a:b:c")),
            ("ported.example.com", "a", None),
            ("refresh.example.com", "a", Some("refresh r")),
            ("user.example.com", "a", Some("refresh r")),
            ("token.example.com", "a", Some("token t")),
            ("marked.example.com", "a", None),
        ] {
            assert_eq!(found(&config, host, path).await.as_deref(), wanted, "{host}/{path}");
        }
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_said_without_what_is_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.json");
        let named = Credentials::Named(file.clone());
        assert!(named.identity("h.example.com", "a").await.unwrap_err().contains("config.json"));
        for usual in [Credentials::User(file.clone()), Credentials::Mounted(file.clone()), Credentials::None] {
            assert_eq!(said(usual.identity("h.example.com", "a").await.unwrap()), None);
        }
        for text in ["s3cret", r#"{"auths":{"h.example.com":{"auth":"czNjcmV0"}}}"#] {
            std::fs::write(&file, text).unwrap();
            let why = named.identity("h.example.com", "a").await.unwrap_err();
            assert!(why.contains("config.json") && !why.contains("s3cret") && !why.contains("czNj"), "{why}");
        }
        std::fs::write(&file, " ".repeat(2 << 20)).unwrap();
        assert!(named.identity("h.example.com", "a").await.unwrap_err().contains("at most"));
        let folder = Credentials::Named(folder.path().to_owned());
        assert!(folder.identity("h.example.com", "a").await.unwrap_err().contains("regular"));
    }

    /// A program that does this. Another process writes it: one that is started meanwhile elsewhere in these tests would hold
    /// a file of ours open, and what is open for writing cannot be run.
    fn program(folder: &Path, script: &str) -> String {
        let file = folder.join("docker-credential-test").to_str().unwrap().to_owned();
        let mut shell = std::process::Command::new("sh");
        shell.args([
            "-c",
            r#"rm -f "$1"; printf '#!/bin/sh\n%s\n' "$2" > "$1" && chmod 755 "$1""#,
            "sh",
            &file,
            script,
        ]);
        assert!(shell.status().unwrap().success());
        file
    }

    #[tokio::test]
    async fn a_helper_is_asked_for_the_host_and_may_know_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let ask = async |script: &str| {
            let program = program(folder.path(), script);
            asked(&program, "h.example.com", Duration::from_secs(5)).await.map(said)
        };
        let echo = r#"read -r host; echo "{\"Username\":\"$1\",\"Secret\":\"$host\"}""#;
        assert_eq!(ask(echo).await.unwrap().as_deref(), Some("get:h.example.com"));
        let none = "echo 'credentials not found in native keychain'; exit 1";
        assert_eq!(ask(none).await.unwrap(), None);
        assert!(ask("echo locked; exit 1").await.unwrap_err().contains("locked"));
        assert!(ask("echo no").await.unwrap_err().contains("JSON"));
        // Nothing of our own environment that is not its business.
        let environment = r#"echo "{\"Username\":\"${CARGO_MANIFEST_DIR:-none}\",\"Secret\":\"x\"}""#;
        assert_eq!(ask(environment).await.unwrap().as_deref(), Some("none:x"));
        assert!(asked("/nowhere/docker-credential-x", "h", PATIENCE).await.unwrap_err().contains("cannot be started"));
    }

    #[tokio::test]
    async fn a_helper_that_does_not_end_is_ended_with_all_that_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let program = program(folder.path(), "sleep 600 & sleep 600");
        let why = asked(&program, "h.example.com", Duration::from_millis(200)).await.unwrap_err();
        assert!(why.contains("was killed"), "{why}");
    }

    #[test]
    fn a_program_gets_what_was_named_or_mounted_and_of_a_secret_nothing_that_starts_others() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.json");
        let told = |credentials: &Credentials| {
            credentials.for_programs().map(|text| text.map(|text| text.expose_secret().to_owned()))
        };
        let mounted = Credentials::Mounted(folder.path().to_owned());
        assert_eq!(told(&mounted), Ok(None));
        assert!(told(&Credentials::Named(file.clone())).unwrap_err().contains("config.json"));
        let entries = json!({"h.example.com": {"auth": "bWU6czNjcmV0"}});
        let text = json!({"auths": entries, "credsStore": "x", "credHelpers": {"h": "y"}}).to_string();
        std::fs::write(&file, &text).unwrap();
        assert_eq!(told(&Credentials::Named(file.clone())), Ok(Some(text)));
        assert_eq!(told(&mounted), Ok(Some(json!({"auths": entries}).to_string())));
        // It finds these by itself.
        for usual in [Credentials::User(file.clone()), Credentials::None] {
            assert_eq!(told(&usual), Ok(None));
        }
        std::fs::write(&file, "s3cret").unwrap();
        let why = told(&mounted).unwrap_err();
        assert!(why.contains("is not JSON") && !why.contains("s3cret"), "{why}");
    }

    #[tokio::test]
    async fn a_mounted_secret_starts_no_program_and_no_name_leads_to_another_one() {
        let config = json!({
            "credsStore": "x", "credHelpers": {"h.example.com": "../../bin/sh"},
            "auths": {"h.example.com": {"username": "a", "password": "b"}},
        });
        assert_eq!(found(&config, "h.example.com", "a").await.as_deref(), Some("a:b"));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.json");
        std::fs::write(&file, config.to_string()).unwrap();
        let user = Credentials::User(file);
        assert!(user.identity("h.example.com", "a").await.unwrap_err().contains("cannot be the name"));
    }
}
