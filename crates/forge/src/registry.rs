//! Registries, by the distribution specification of OCI: manifests, blobs, tags, and what speaks of something.
//!
//! The client is our own (docs/adr/0031): whoever gets which credential must be ours to decide. They go to exactly the host that
//! they are for, and never to a redirect, a token service or an upload location elsewhere. What comes is believed only
//! where its length and its digest say so; every request is bounded in time and in bytes, and what can be tried again is,
//! a few times. Plain HTTP is spoken with this machine and with hosts that somebody named, and with nobody else.

mod client;
mod content;
mod credentials;
mod name;
mod transfer;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forge_core::code::Code;
use forge_core::failure::Failure;

pub(crate) use client::Registry;
pub(crate) use content::{index, references};
pub(crate) use credentials::Credentials;
pub(crate) use name::{Located, Reference, RepositoryName};
pub(crate) use transfer::{Held, fetch, push};

/// The variable that names registries which speak plain HTTP, separated by commas.
pub(crate) const PLAIN_HTTP: &str = "FORGE_PLAIN_HTTP_REGISTRIES";
/// Keys that a mounted Secret may have beside credentials: certificates, as PEM, and hosts that speak plain HTTP.
const CA_KEY: &str = "ca.crt";
const PLAIN_HTTP_KEY: &str = "plain-http";

/// How long is waited, and how often it is tried.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// For a connection.
    pub(crate) connect: Duration,
    /// For the next bytes.
    pub(crate) idle: Duration,
    /// For one request; more where there is much to send, at [`Self::SLOWEST`].
    pub(crate) request: Duration,
    /// For what is wanted, with all that is tried; more where there is much to send.
    pub(crate) whole: Duration,
    /// How often it is tried again.
    pub(crate) retries: u32,
    /// Before the first retry; twice as long before each further one.
    pub(crate) pause: Duration,
    /// What a registry may ask to be waited for; whoever asks for more is not waited for.
    pub(crate) retry_after: Duration,
}

impl Patience {
    /// Bytes a second of the slowest line that large things are still waited for on.
    pub(crate) const SLOWEST: u64 = 256 << 10;

    /// How much longer than what is small something may take.
    pub(super) fn for_bytes(bytes: u64) -> Duration {
        Duration::from_secs(bytes / Self::SLOWEST)
    }
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            idle: Duration::from_secs(15),
            request: Duration::from_secs(30),
            whole: Duration::from_secs(120),
            retries: 4,
            pause: Duration::from_millis(250),
            retry_after: Duration::from_secs(30),
        }
    }
}

/// How registries are spoken with.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    /// Hosts, with their ports, that speak plain HTTP.
    pub(crate) plain_http: Vec<String>,
    /// Who one is for whom.
    pub(crate) credentials: Credentials,
    /// Certificates, as PEM, that are trusted besides those of the system.
    pub(crate) certificates: Option<String>,
    /// How long.
    pub(crate) patience: Patience,
    /// Hosts, without ports, that are looked for at an address, past all servers of names.
    pub(crate) resolved: Vec<(String, SocketAddr)>,
}

impl Options {
    /// As a mounted Secret says it, in a folder, of which nothing need be there; or with credentials of this file alone.
    ///
    /// # Errors
    /// When something of it is there and cannot be read.
    pub(crate) fn mounted(place: &Path) -> Result<Self, Failure> {
        let said = |key: &str| if place.is_dir() { text(&place.join(key)) } else { Ok(None) };
        Ok(Self {
            plain_http: said(PLAIN_HTTP_KEY)?.map(|text| hosts(&text)).unwrap_or_default(),
            credentials: Credentials::Mounted(place.to_owned()),
            certificates: said(CA_KEY)?,
            ..Self::default()
        })
    }

    /// As another place says it, and where that says nothing, as before.
    pub(crate) fn under(self, other: Self) -> Self {
        let plain_http = if other.plain_http.is_empty() { self.plain_http } else { other.plain_http };
        Self { plain_http, certificates: other.certificates.or(self.certificates), ..other }
    }

    /// With what somebody named in the place of what is usual: a file of credentials, a file of certificates, and hosts that
    /// speak plain HTTP.
    ///
    /// # Errors
    /// When there are no certificates in that place.
    pub(crate) fn named(
        mut self,
        config: Option<PathBuf>,
        ca: Option<&Path>,
        plain_http: Vec<String>,
    ) -> Result<Self, Failure> {
        if let Some(file) = config {
            self.credentials = Credentials::Named(file);
        }
        if let Some(file) = ca {
            self.certificates = Some(text(file)?.ok_or_else(|| unread(file, "it is missing"))?);
        }
        if !plain_http.is_empty() {
            self.plain_http = plain_http;
        }
        Ok(self)
    }

    /// Whether a host is spoken with in plain HTTP.
    pub(crate) fn is_plain(&self, host: &str) -> bool {
        name::is_loopback(host) || self.plain_http.iter().any(|named| named.eq_ignore_ascii_case(host))
    }
}

/// Hosts as variables and Secrets name them: with commas or white space between them.
pub(crate) fn hosts(text: &str) -> Vec<String> {
    let hosts = text.split(|c: char| c == ',' || c.is_whitespace());
    hosts.filter(|host| !host.is_empty()).map(str::to_owned).collect()
}

/// A file that says how registries are spoken with; nothing where there is none.
fn text(file: &Path) -> Result<Option<String>, Failure> {
    match credentials::read(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unread(file, &error.to_string())),
    }
}

fn unread(file: &Path, why: &str) -> Failure {
    Failure::new(Code::BadArgument, format!("failed to read `{}`: {why}", file.display()))
        .hint("certificates are PEM; hosts without TLS have commas between them")
}

/// Why a registry did not give or take something.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RegistryError {
    /// It is not there.
    #[error("`{what}` is not there{said}")]
    Missing {
        /// What.
        what: String,
        /// What the registry says about it.
        said: String,
    },
    /// It said no, or we do.
    #[error("{host} refused to {what}: {said}")]
    Refused {
        /// Which registry.
        host: String,
        /// To do what.
        what: String,
        /// In its own words.
        said: String,
        /// What to do.
        hint: String,
    },
    /// It cannot be reached, or is in trouble.
    #[error("{host} does not answer: {why}")]
    Unavailable {
        /// Which registry.
        host: String,
        /// How that showed.
        why: String,
        /// When it may be asked again, if it said so.
        after: Option<Duration>,
    },
    /// It took too long.
    #[error("{host} took longer than {seconds} s to {what}")]
    TimedOut {
        /// Which registry.
        host: String,
        /// To do what.
        what: String,
        /// How long it was waited for.
        seconds: u64,
    },
    /// What it sent is not what was asked for.
    #[error("{host} contradicts itself: {why}")]
    Lied {
        /// Which registry.
        host: String,
        /// How.
        why: String,
        /// Whether asking again can help: nothing of it was passed on.
        again: bool,
    },
    /// There is more of it than is taken.
    #[error("`{what}` has {found}; at most {most} are taken")]
    TooLarge {
        /// What.
        what: String,
        /// How much there is.
        found: String,
        /// How much may be.
        most: u64,
    },
    /// What is passed on is no manifest that we know how to pass on.
    #[error("`{what}` cannot be used: {why}")]
    Malformed {
        /// What.
        what: String,
        /// Why not.
        why: String,
    },
    /// Credentials cannot be found out.
    #[error("failed to read credentials for {host}: {why}")]
    Credentials {
        /// For which registry.
        host: String,
        /// Why not.
        why: String,
    },
    /// What came cannot be put where it belongs.
    #[error("failed to write `{what}`: {error}")]
    Write {
        /// What.
        what: String,
        /// Why not.
        error: std::io::Error,
    },
}

impl RegistryError {
    /// Which code it has.
    pub(crate) fn code(&self) -> Code {
        match self {
            Self::Missing { .. } => Code::ReleaseMissing,
            Self::Refused { .. } => Code::RegistryRefused,
            Self::Unavailable { .. } => Code::RegistryUnavailable,
            Self::TimedOut { .. } => Code::RegistryTimeout,
            Self::Lied { .. } => Code::RegistryLied,
            Self::TooLarge { .. } => Code::ReleaseTooLarge,
            Self::Malformed { .. } => Code::ReleaseMalformed,
            Self::Credentials { .. } => Code::BadArgument,
            Self::Write { .. } => Code::CannotWrite,
        }
    }

    /// Whether asking again may help.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Unavailable { .. } | Self::TimedOut { .. } => true,
            Self::Lied { again, .. } => *again,
            _ => false,
        }
    }

    /// Whether it simply is not there.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::Missing { .. })
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Refused { hint, .. } => return (!hint.is_empty()).then(|| hint.clone()),
            Self::Missing { .. } => "check the name; some registries say this too where credentials are missing",
            Self::Unavailable { .. } | Self::TimedOut { .. } => {
                "try again; `curl -v https://HOST/v2/` from the same place shows more"
            }
            Self::Lied { .. } => "try again, past proxies and mirrors; nothing of it was used",
            Self::TooLarge { .. } | Self::Malformed { .. } => return None,
            Self::Credentials { .. } => "name a file of credentials with `--registry-config FILE`",
            Self::Write { .. } => "make room, or check who may write there",
        };
        Some(hint.to_owned())
    }
}

impl From<RegistryError> for Failure {
    fn from(error: RegistryError) -> Self {
        let hint = error.hint();
        Self { hint, ..Self::new(error.code(), &error) }
    }
}

#[cfg(test)]
mod tests {
    use forge_core::code::Class;

    use super::*;

    #[test]
    fn every_error_has_the_class_that_decides_what_is_done_about_it() {
        let host = || "registry.example.com".to_owned();
        let what = || "give `a:b`".to_owned();
        let refused =
            RegistryError::Refused { host: host(), what: what(), said: "403".to_owned(), hint: "x".to_owned() };
        let cases = [
            (RegistryError::Missing { what: what(), said: String::new() }, Class::User, false),
            (refused, Class::User, false),
            (RegistryError::Unavailable { host: host(), why: what(), after: None }, Class::Transient, true),
            (RegistryError::TimedOut { host: host(), what: what(), seconds: 3 }, Class::Timeout, true),
            (RegistryError::Lied { host: host(), why: what(), again: true }, Class::Transient, true),
            (RegistryError::Lied { host: host(), why: what(), again: false }, Class::Transient, false),
            (RegistryError::TooLarge { what: what(), found: what(), most: 1 }, Class::User, false),
        ];
        for (error, class, transient) in cases {
            assert_eq!((error.code().class(), error.is_transient()), (class, transient), "{error}");
        }
    }

    #[test]
    fn a_mounted_secret_says_how_registries_are_spoken_with_and_what_is_named_goes_over_it() {
        let folder = tempfile::tempdir().unwrap();
        let mounted = || Options::mounted(folder.path());
        let nothing = mounted().unwrap();
        assert_eq!(nothing.credentials, Credentials::Mounted(folder.path().to_owned()));
        assert_eq!((nothing.certificates.as_deref(), nothing.plain_http.len()), (None, 0));
        std::fs::write(folder.path().join("ca.crt"), "theirs").unwrap();
        std::fs::write(folder.path().join("plain-http"), "Registry.local:5000,\n b\n").unwrap();
        let all = mounted().unwrap();
        assert_eq!((all.certificates.as_deref(), all.plain_http.len()), (Some("theirs"), 2));
        assert!(all.is_plain("registry.local:5000") && all.is_plain("b") && !all.is_plain("registry.local"));
        // Nothing that was named leaves all of it.
        let same = all.clone().named(None, None, Vec::new()).unwrap();
        assert_eq!((same.credentials, same.plain_http), (all.credentials.clone(), all.plain_http.clone()));
        let file = folder.path().join("own.pem");
        std::fs::write(&file, "ours").unwrap();
        let named = all.clone().named(Some("/x/config.json".into()), Some(&file), vec!["c".to_owned()]).unwrap();
        assert_eq!(named.credentials, Credentials::Named("/x/config.json".into()));
        assert_eq!((named.certificates.as_deref(), named.plain_http.join(" ")), (Some("ours"), "c".to_owned()));
        let alone = Options::mounted(&file).unwrap();
        assert_eq!((alone.credentials, alone.certificates), (Credentials::Mounted(file), None));
        // What is named must be there, and what is there must be a file.
        let failure = all.named(None, Some(Path::new("/not/there")), Vec::new()).unwrap_err();
        assert_eq!(failure.code, Code::BadArgument);
        std::fs::remove_file(folder.path().join("ca.crt")).unwrap();
        std::fs::create_dir(folder.path().join("ca.crt")).unwrap();
        assert_eq!(mounted().unwrap_err().code, Code::BadArgument);
    }

    #[test]
    fn large_things_may_take_longer() {
        assert_eq!(Patience::for_bytes(0), Duration::ZERO);
        assert_eq!(Patience::for_bytes(100 << 20), Duration::from_secs(400));
    }
}
