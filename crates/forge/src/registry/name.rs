//! Names of what a registry keeps: where it is, and which. They can only be built valid, so an address that is made of one
//! has no part that could lead elsewhere.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use forge_core::code::Code;
use forge_core::digest::Digest;
use forge_core::failure::Failure;
use forge_core::name::clip;

/// What the whole name of a repository may come to; registries take no more.
const LONGEST: usize = 255;
/// What a tag may come to.
const LONGEST_TAG: usize = 128;
/// The registry that is meant where images name none, and the host that answers for it.
const HUB: (&str, &str) = ("docker.io", "registry-1.docker.io");

/// Why a text names nothing in a registry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` cannot be the name of something in a registry: {why}")]
pub(crate) struct BadName {
    given: String,
    why: &'static str,
}

impl BadName {
    fn new(given: &str, why: &'static str) -> Self {
        Self { given: clip(given), why }
    }
}

impl From<BadName> for Failure {
    fn from(error: BadName) -> Self {
        Self::new(Code::BadArgument, error).hint("for example `registry.example.com/releases/shop/api`")
    }
}

/// A repository: the host of its registry, and its path there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RepositoryName {
    host: String,
    path: String,
}

impl RepositoryName {
    /// The registry as it is named, with its port if it has one.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// The path inside the registry.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The host that is asked, which is another one where the name is a way of speaking.
    pub(super) fn endpoint(&self) -> &str {
        if self.host == HUB.0 { HUB.1 } else { &self.host }
    }
}

impl fmt::Display for RepositoryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.host, self.path)
    }
}

impl FromStr for RepositoryName {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let bad = |why| BadName::new(text, why);
        if text.contains("://") {
            return Err(bad("write it without a scheme"));
        }
        if text.len() > LONGEST {
            return Err(bad("it has more than 255 characters"));
        }
        let (host, path) = text.split_once('/').ok_or_else(|| bad("a registry and a path are needed"))?;
        let host = host.to_ascii_lowercase();
        if !is_host(&host) {
            return Err(bad("it must begin with a host: a name with a dot, `localhost`, or one with a port"));
        }
        if !path.split('/').all(is_component) {
            return Err(bad(
                "parts of a path have lower-case letters and digits, and between them `.`, `_`, `__` or hyphens",
            ));
        }
        Ok(Self { host, path: path.to_owned() })
    }
}

/// A host as others tell it from the first part of a path: with a dot or a port, or `localhost`.
fn is_host(host: &str) -> bool {
    let (name, port) = split_port(host);
    let port_is_one = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0) && !port.starts_with('+'));
    let labels = || {
        name.split('.').all(|label| {
            !label.is_empty()
                && label.len() <= 63
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        })
    };
    let bracketed = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    let named = match bracketed {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => labels(),
    };
    named && port_is_one && (bracketed.is_some() || port.is_some() || name.contains('.') || name == "localhost")
}

/// A host without its port, and the port.
pub(super) fn split_port(host: &str) -> (&str, Option<&str>) {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, Some(port)),
        _ => (host, None),
    }
}

/// Whether a host is this machine, whoever answers for names.
pub(super) fn is_loopback(host: &str) -> bool {
    let (name, _) = split_port(host);
    let bracketed = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    name == "localhost"
        || name.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
        || bracketed.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok_and(|address| address.is_loopback()))
}

/// One part of a path, by the rule of the distribution specification.
fn is_component(part: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = part.as_bytes();
    if !bytes.first().copied().is_some_and(word) || !bytes.last().copied().is_some_and(word) {
        return false;
    }
    // What stands between two words is one dot, one or two underscores, or hyphens.
    part.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        .all(|between| matches!(between, "" | "." | "_" | "__") || between.bytes().all(|byte| byte == b'-'))
}

fn is_tag(text: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.len() <= LONGEST_TAG
        && text.bytes().next().is_some_and(word)
        && text.bytes().all(|byte| word(byte) || byte == b'.' || byte == b'-')
}

/// Which of the things in a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reference {
    /// By a name that may be moved; resolved once.
    Tag(String),
    /// By what it is.
    Digest(Digest),
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tag(tag) => f.write_str(tag),
            Self::Digest(digest) => f.write_str(digest.as_str()),
        }
    }
}

impl FromStr for Reference {
    type Err = BadName;

    /// A digest where it begins like one, a tag otherwise.
    fn from_str(text: &str) -> Result<Self, BadName> {
        if text.contains(':') {
            let digest = text.parse::<Digest>().map_err(|_| BadName::new(text, "it is no digest by SHA-256"))?;
            return Ok(Self::Digest(digest));
        }
        if is_tag(text) {
            return Ok(Self::Tag(text.to_owned()));
        }
        Err(BadName::new(
            text,
            "a tag has up to 128 letters, digits, `_`, `.` and `-`, and begins with none of the last",
        ))
    }
}

/// A repository and, if it says so, what of it: `host/path`, `host/path:tag`, `host/path@sha256:…`. Where both are given, the
/// digest is meant, and the tag only tells people something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Located {
    /// Where.
    pub(crate) repository: RepositoryName,
    /// Which.
    pub(crate) reference: Option<Reference>,
}

impl FromStr for Located {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (text, None),
        };
        let no_digest = |_| BadName::new(text, "it is no digest by SHA-256");
        let digest = digest.map(|digest| digest.parse::<Digest>().map_err(no_digest)).transpose()?;
        // A colon after the last slash is not that of a port.
        let (name, tag) = match rest.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
            _ => (rest, None),
        };
        let repository = name.parse::<RepositoryName>().map_err(|error| BadName::new(text, error.why))?;
        let tag = match tag {
            Some(tag) if is_tag(tag) => Some(Reference::Tag(tag.to_owned())),
            Some(_) => return Err(BadName::new(text, "what follows the colon is no tag")),
            None => None,
        };
        Ok(Self { repository, reference: digest.map(Reference::Digest).or(tag) })
    }
}

impl fmt::Display for Located {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reference {
            Some(reference @ Reference::Tag(_)) => write!(f, "{}:{reference}", self.repository),
            Some(reference @ Reference::Digest(_)) => write!(f, "{}@{reference}", self.repository),
            None => self.repository.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_is_a_host_and_a_path_and_nothing_that_could_lead_elsewhere() {
        for (text, host, path) in [
            ("registry.example.com/releases/shop/api", "registry.example.com", "releases/shop/api"),
            ("Registry.example.com:5000/a", "registry.example.com:5000", "a"),
            ("localhost/a-b/c__d/e.f/g--h", "localhost", "a-b/c__d/e.f/g--h"),
            ("127.0.0.1:5000/a", "127.0.0.1:5000", "a"),
            ("[::1]:5000/a", "[::1]:5000", "a"),
            ("registry:5000/a", "registry:5000", "a"),
        ] {
            let name: RepositoryName = text.parse().unwrap();
            assert_eq!((name.host(), name.path()), (host, path), "{text}");
            assert_eq!(name.to_string().parse::<RepositoryName>().unwrap(), name);
        }
        for bad in [
            "",
            "registry.example.com",
            "registry.example.com/",
            "shop/api",
            "https://registry.example.com/a",
            "oci://registry.example.com/a",
            "registry.example.com/../a",
            "registry.example.com/a//b",
            "registry.example.com/A",
            "registry.example.com/a?b",
            "registry.example.com/a#b",
            "registry.example.com/a%2fb",
            "registry.example.com/-a",
            "registry.example.com/a-",
            "registry.example.com/a..b",
            "registry.example.com/a___b",
            "registry.example.com/a.-b",
            "me@registry.example.com/a",
            "registry.example.com:/a",
            "registry.example.com:0/a",
            "registry.example.com:+80/a",
            "registry.example.com:99999/a",
            "registry..example.com/a",
            "-registry.example.com/a",
            "[::1/a",
            "[1::2::3]:5000/a",
            "registry.example.com/a\nb",
        ] {
            assert!(bad.parse::<RepositoryName>().is_err(), "{bad}");
        }
        assert!(format!("registry.example.com/{}", "a".repeat(300)).parse::<RepositoryName>().is_err());
        assert_eq!("docker.io/library/nginx".parse::<RepositoryName>().unwrap().endpoint(), "registry-1.docker.io");
    }

    #[test]
    fn what_is_meant_is_a_digest_before_a_tag() {
        let digest = Digest::of(b"x");
        let located = |text: &str| text.parse::<Located>();
        let reference = |text: &str| located(text).unwrap().reference;
        assert_eq!(reference("r.example.com:5000/a"), None);
        assert_eq!(reference("r.example.com:5000/a:v1"), Some(Reference::Tag("v1".to_owned())));
        for text in [format!("r.example.com/a@{digest}"), format!("r.example.com/a:v1@{digest}")] {
            assert_eq!(reference(&text), Some(Reference::Digest(digest.clone())), "{text}");
        }
        for text in ["r.example.com/a:v1", "r.example.com/a", &format!("r.example.com/a@{digest}")] {
            assert_eq!(located(text).unwrap().to_string(), text);
        }
        for bad in
            ["r.example.com/a:", "r.example.com/a:.v", "r.example.com/a@sha256:00", "r.example.com/a:v/1", "a:v1"]
        {
            assert!(located(bad).is_err(), "{bad}");
        }
        assert_eq!(digest.as_str().parse::<Reference>(), Ok(Reference::Digest(digest.clone())));
        for bad in ["", "sha512:00", "a/b", "-a", &"a".repeat(129)] {
            assert!(bad.parse::<Reference>().is_err(), "{bad}");
        }
    }

    #[test]
    fn only_this_machine_is_loopback() {
        for host in ["localhost", "localhost:5000", "127.0.0.1:5000", "127.9.9.9", "[::1]:5000", "[::1]"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "localhost.example.com",
            "128.0.0.1",
            "0.0.0.0:5000",
            "[::2]:5000",
            "127.0.0.1.example.com",
            "registry:5000",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
