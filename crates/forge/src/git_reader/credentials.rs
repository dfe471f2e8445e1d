//! Credentials for repositories that are not public. In the cluster they are files of a mounted Secret, on a workstation those
//! that the user's own `git` knows; never environment values (SPEC.md section 5).
//!
//! They are given to the server that they are for and to no other: one that sends on to somebody else ends the reading, and
//! nothing is sent in clear text. They are read for every fetch, so a Secret that changed is used without a restart.

use std::path::{Path, PathBuf};

use forge_core::name::clip;
use forge_core::render::GIT_SECRET;
use gix::Url;
use gix::url::Scheme;
use secrecy::{ExposeSecret as _, SecretString};

use crate::git;

/// Whom a server takes us for, where neither credentials nor address say it: those who hand out tokens do not look.
const ANYBODY: &str = "git";

/// Where credentials come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GitCredentials {
    /// A folder with the keys of a Secret as Argo CD has it for a repository: `url`, `username`, and `password` or `token`;
    /// with `ca.crt`, the server must show a certificate that it issued.
    Mounted(PathBuf),
    /// What `git credential fill` says, where there is a `git`.
    Helper,
}

/// Who one is for a server.
pub(super) struct Identity {
    username: String,
    password: SecretString,
}

impl Identity {
    /// As gix takes it. Nothing of it is stored or forgotten anywhere afterwards.
    pub(super) fn outcome(self) -> gix::credentials::protocol::Outcome {
        let (username, password) = (self.username, self.password.expose_secret().to_owned());
        gix::credentials::protocol::Outcome {
            identity: gix::sec::identity::Account { username, password, oauth_refresh_token: None },
            next: gix::credentials::protocol::Context::default().into(),
        }
    }
}

impl GitCredentials {
    /// Whether an address can be read at all.
    ///
    /// # Errors
    /// Why not, and what to do.
    pub(super) fn reach(&self, wanted: &Url) -> Result<(), String> {
        match (self, &wanted.scheme) {
            (Self::Mounted(_), Scheme::Ssh) => Err(format!(
                "it is an address of SSH, and pods have no `ssh`: give the Application the https address, and credentials in Secret `{GIT_SECRET}`"
            )),
            _ => Ok(()),
        }
    }

    /// What is said to the server that asks, when one repository is wanted.
    ///
    /// # Errors
    /// Why nothing is said, and what to do.
    pub(super) fn identity(&self, wanted: &Url, asking: &Url) -> Result<Identity, String> {
        if !same_server(wanted, asking) {
            return Err(format!(
                "it sends on to `{}`, which asks for credentials and gets none: name that address itself",
                clip(asking.host().unwrap_or_default())
            ));
        }
        if asking.scheme != Scheme::Https {
            return Err("it asks for credentials, which are never sent in clear text: use its https address".to_owned());
        }
        if let (Some(username), Some(password)) = (wanted.user(), wanted.password()) {
            let (username, password) = (username.to_owned(), SecretString::from(password.to_owned()));
            return Ok(Identity { username, password });
        }
        match self {
            Self::Mounted(folder) => mounted(folder, asking),
            Self::Helper => helper(&[], asking),
        }
    }

    /// The certificates that the server of an address is checked with, instead of those that the system trusts.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(super) fn certificates(&self, wanted: &Url) -> Result<Option<String>, String> {
        let Self::Mounted(folder) = self else { return Ok(None) };
        match (read(folder, "ca.crt")?, own(folder)?) {
            (Some(pem), Some(own)) if covers(&own, wanted) => Ok(Some(pem)),
            _ => Ok(None),
        }
    }

    /// What to do about credentials that were refused.
    pub(super) fn after_refusal(&self) -> String {
        match self {
            Self::Mounted(_) => format!("renew those in Secret `{GIT_SECRET}`; they are read again for every fetch"),
            Self::Helper => "renew those that `git credential fill` gives for it".to_owned(),
        }
    }
}

fn same_server(one: &Url, other: &Url) -> bool {
    let host = |url: &Url| url.host().map(str::to_ascii_lowercase);
    one.scheme == other.scheme && host(one) == host(other) && one.port_or_default() == other.port_or_default()
}

/// An address is below another one: the same server, and the same path or one inside it.
fn covers(prefix: &Url, url: &Url) -> bool {
    let path = |url: &Url| url.path.to_string().trim_end_matches('/').to_owned();
    let (outer, inner) = (path(prefix), path(url));
    let dotted = inner.contains("..") || inner.to_ascii_lowercase().contains("%2e");
    let rest = inner.strip_prefix(outer.trim_end_matches(".git"));
    same_server(prefix, url)
        && !dotted
        && rest.is_some_and(|rest| rest.is_empty() || rest == ".git" || rest.starts_with('/'))
}

/// A file of the folder; nothing where there is none, or nothing in it.
fn read(folder: &Path, name: &str) -> Result<Option<String>, String> {
    let file = folder.join(name);
    match std::fs::read_to_string(&file) {
        Ok(text) => Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()).filter(|text| !text.is_empty())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("failed to read `{}`: {error}", file.display())),
    }
}

/// The address that mounted credentials are for.
fn own(folder: &Path) -> Result<Option<Url>, String> {
    let Some(text) = read(folder, "url")? else { return Ok(None) };
    let bad = |_| format!("`url` of Secret `{GIT_SECRET}` is not an address");
    gix::url::parse(text.as_str()).map(Some).map_err(bad)
}

fn mounted(folder: &Path, asking: &Url) -> Result<Identity, String> {
    let keys = "its keys are `url`, `username`, and `password` or `token`";
    let Some(own) = own(folder)? else {
        return Err(format!(
            "it asks for credentials, and there are none: make Secret `{GIT_SECRET}` beside the Workflows; {keys}"
        ));
    };
    if !covers(&own, asking) {
        let place = format!("{}{}", own.host().unwrap_or_default(), own.path);
        return Err(format!(
            "it asks for credentials, and those of Secret `{GIT_SECRET}` are for `{}` only",
            clip(&place)
        ));
    }
    let password = match read(folder, "password")? {
        Some(password) => Some(password),
        None => read(folder, "token")?,
    };
    let Some(password) = password else {
        let found = match read(folder, "sshPrivateKey")? {
            Some(_) => "has a key for SSH, which pods do not speak",
            None => "has neither `password` nor `token`",
        };
        return Err(format!("it asks for credentials, and Secret `{GIT_SECRET}` {found}; {keys}"));
    };
    let username = read(folder, "username")?.unwrap_or_else(|| ANYBODY.to_owned());
    Ok(Identity { username, password: SecretString::from(password) })
}

fn helper(options: &[&str], asking: &Url) -> Result<Identity, String> {
    let host = asking.host().unwrap_or_default();
    let host = asking.port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    let path = asking.path.to_string();
    let found = git::credential(options, "https", &host, path.trim_start_matches('/'));
    let (username, password) = found.map_err(|why| {
        format!("it asks for credentials, and {why}: `git ls-remote` of it must work without a question")
    })?;
    Ok(Identity { username, password })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        gix::url::parse(text).unwrap()
    }

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    fn said(identity: Result<Identity, String>) -> Result<(String, String), String> {
        identity.map(|identity| (identity.username, identity.password.expose_secret().to_owned()))
    }

    #[test]
    fn mounted_credentials_are_for_the_addresses_below_theirs_and_no_others() {
        let files = [("url", "https://git.example.com/team\n"), ("username", "me\n"), ("password", "s3cret\n")];
        let folder = folder(&files);
        let credentials = GitCredentials::Mounted(folder.path().to_owned());
        let identity = |address: &str| said(credentials.identity(&url(address), &url(address)));
        let mine = Ok(("me".to_owned(), "s3cret".to_owned()));
        for address in [
            "https://git.example.com/team/app.git",
            "https://GIT.example.com:443/team/app",
            "https://git.example.com/team",
            "https://git.example.com/team.git",
        ] {
            assert_eq!(identity(address), mine, "{address}");
        }
        for address in [
            "https://git.example.com/teamwork/app.git",
            "https://git.example.com/other/app.git",
            "https://git.example.com/team/../other.git",
            "https://git.example.com/team/%2E%2E/other.git",
            "https://git.example.com:8443/team/app.git",
            "https://evil.example.com/team/app.git",
        ] {
            let why = identity(address).unwrap_err();
            assert!(why.contains("are for `git.example.com/team` only"), "{address}: {why}");
        }
        assert!(identity("http://git.example.com/team/app.git").unwrap_err().contains("clear text"));
    }

    #[test]
    fn a_server_that_sends_on_to_another_gets_nothing_for_it() {
        let files = [("url", "https://git.example.com"), ("token", "s3cret")];
        let folder = folder(&files);
        for credentials in [GitCredentials::Mounted(folder.path().to_owned()), GitCredentials::Helper] {
            let wanted = url("https://me:inline@git.example.com/a.git");
            for asking in ["https://evil.example.com/a.git", "http://git.example.com/a.git"] {
                let why = said(credentials.identity(&wanted, &url(asking))).unwrap_err();
                assert!(why.contains("sends on to") && !why.contains("inline") && !why.contains("s3cret"), "{why}");
            }
            let inline = said(credentials.identity(&wanted, &url("https://git.example.com/a.git")));
            assert_eq!(inline, Ok(("me".to_owned(), "inline".to_owned())));
        }
    }

    #[test]
    fn what_is_missing_is_named_with_what_to_do() {
        let asking = url("https://git.example.com/a.git");
        let why = |files: &[(&str, &str)]| {
            let folder = folder(files);
            said(GitCredentials::Mounted(folder.path().to_owned()).identity(&asking, &asking))
        };
        assert!(why(&[]).unwrap_err().contains("make Secret `forge-git`"));
        let place = ("url", "https://git.example.com");
        assert!(why(&[place]).unwrap_err().contains("neither `password` nor `token`"));
        assert!(why(&[place, ("sshPrivateKey", "k")]).unwrap_err().contains("key for SSH"));
        assert_eq!(why(&[place, ("token", "t")]), Ok(("git".to_owned(), "t".to_owned())));
        let pods = GitCredentials::Mounted("/secrets/git".into());
        for address in ["git@git.example.com:a/b.git", "ssh://git@git.example.com/a/b.git"] {
            assert!(pods.reach(&url(address)).unwrap_err().contains("https address"), "{address}");
            assert_eq!(GitCredentials::Helper.reach(&url(address)), Ok(()));
        }
    }

    #[test]
    fn a_workstation_asks_the_users_own_helper_and_never_a_person() {
        let asking = url("https://git.example.com:8443/a.git");
        let script = "credential.helper=!f() { cat >&2; echo username=me; echo password=s3cret; }; f";
        // Whatever helpers this machine has, they are not asked.
        let found = said(helper(&["-c", "credential.helper=", "-c", script], &asking));
        assert_eq!(found, Ok(("me".to_owned(), "s3cret".to_owned())));
        let none = said(helper(&["-c", "credential.helper="], &asking)).unwrap_err();
        assert!(none.contains("git ls-remote"), "{none}");
    }
}
