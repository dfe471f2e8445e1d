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
    fn large_things_may_take_longer() {
        assert_eq!(Patience::for_bytes(0), Duration::ZERO);
        assert_eq!(Patience::for_bytes(100 << 20), Duration::from_secs(400));
    }
}
