//! Values that only the executor is given. Each can only be built valid, however it was given.

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;

use crate::name::{EnvironmentName, clip, is_label};
use crate::url::without_credentials;

/// Longest address of a repository or of a service.
const LONGEST_URL: usize = 2048;
/// Longest name of a branch or tag: what a file system takes.
const LONGEST_REVISION: usize = 255;
/// Longest DNS name.
const LONGEST_DOMAIN: usize = 253;

/// Why a value cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {what}: {rule}")]
pub struct ValueError {
    text: String,
    what: &'static str,
    rule: &'static str,
}

macro_rules! value {
    ($(#[$doc:meta])* $type:ident, $what:literal, $longest:expr, $pattern:literal, $rule:ident, $shown:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Serialize)]
        pub struct $type(String);

        impl $type {
            /// As text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $type {
            type Err = ValueError;
            fn from_str(text: &str) -> Result<Self, ValueError> {
                let error = |rule| ValueError { text: $shown(text), what: $what, rule };
                if text.len() > $longest {
                    return Err(error("it is too long"));
                }
                $rule(text).map_or_else(|| Ok(Self(text.to_owned())), |rule| Err(error(rule)))
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }
            fn inline_schema() -> bool {
                true
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({"type": "string", "pattern": $pattern, "maxLength": $longest})
            }
        }
    };
}

value!(
    /// The DNS name of an environment.
    Domain,
    "a domain",
    LONGEST_DOMAIN,
    "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
    domain,
    clip
);
value!(
    /// The address of a Git repository that can be read without any other program, and without credentials in it.
    GitUrl,
    "the address of a repository",
    LONGEST_URL,
    "^(https?://[^/@?#\\s]+/[^?#\\s]+|file:///[^?#\\s]+)$",
    git_url,
    shown
);
value!(
    /// A branch, a tag, or a commit of 40 digits.
    Revision,
    "a revision",
    LONGEST_REVISION,
    "^[A-Za-z0-9_][A-Za-z0-9._/+-]*$",
    revision,
    clip
);
value!(
    /// The address of a service that is told something over HTTP.
    HttpUrl,
    "an address",
    LONGEST_URL,
    "^https?://[^/@?#\\s]+(/[^?#\\s]*)?$",
    http_url,
    shown
);

/// A name below it is nobody's, and never will be somebody's (RFC 2606).
const NOBODYS: &str = "invalid";

impl Domain {
    /// A domain of nobody: it says that the repository is to be asked, and whatever that says is meant.
    pub fn nobodys(environment: &EnvironmentName) -> Self {
        Self(format!("{environment}.{NOBODYS}"))
    }

    /// Whether it is one.
    pub fn is_nobodys(&self) -> bool {
        self.0.rsplit('.').next() == Some(NOBODYS)
    }
}

/// An address in a message: what could be a password is never shown.
fn shown(url: &str) -> String {
    clip(&without_credentials(url))
}

fn domain(text: &str) -> Option<&'static str> {
    let good = text.split('.').all(|label| label.len() <= 63 && is_label(label));
    (!good).then_some("use labels of lower-case letters, digits and `-`, with dots between them")
}

/// What comes after `http://` or `https://`, split at the first `/`.
fn split(text: &str) -> Option<(&str, Option<&str>)> {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"))?;
    Some(rest.split_once('/').map_or((rest, None), |(host, path)| (host, Some(path))))
}

fn broken(text: &str) -> bool {
    text.chars().any(|c| c.is_whitespace() || c.is_control() || c == '?' || c == '#')
}

fn git_url(text: &str) -> Option<&'static str> {
    if broken(text) {
        return Some("white space, `?` and `#` do not belong into it");
    }
    if text.strip_prefix("file:///").is_some_and(|path| !path.is_empty()) {
        return None;
    }
    match split(text) {
        Some((host, _)) if host.contains('@') => Some("credentials belong into files below /secrets/git"),
        Some((host, Some(path))) if !host.is_empty() && !path.is_empty() => None,
        _ => Some("write it like `https://git.example.com/platform.git`; ssh takes a program that is not in the image"),
    }
}

fn http_url(text: &str) -> Option<&'static str> {
    if broken(text) {
        return Some("white space, `?` and `#` do not belong into it");
    }
    match split(text) {
        Some((host, _)) if host.contains('@') => Some("credentials do not belong into it"),
        Some((host, _)) if !host.is_empty() => None,
        _ => Some("write it like `http://collector.monitoring.svc:4318`"),
    }
}

fn revision(text: &str) -> Option<&'static str> {
    let known = |c: char| c.is_ascii_alphanumeric() || "._/+-".contains(c);
    let first = text.chars().next().is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
    let rest = text.chars().skip(1).all(|c| known(c) || c == '_');
    if !first || !rest {
        return Some("use letters, digits, `.`, `_`, `/`, `+` and `-`");
    }
    let odd = text.contains("..") || text.contains("//") || text.contains("/.") || text.ends_with(['/', '.']);
    odd.then_some("Git has no such names")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_what_a_schema_says_and_credentials_are_in_no_address() {
        for good in ["https://git.example.com/p.git", "http://git:3000/a/b@c", "file:///srv/git/p"] {
            assert!(good.parse::<GitUrl>().is_ok(), "{good}");
        }
        let scp = "git@git.example.com:a/b";
        for bad in ["", scp, "ssh://git.example.com/a", "https://git.example.com", "https:///a", "file://a"] {
            assert!(bad.parse::<GitUrl>().is_err(), "{bad}");
        }
        for secret in ["https://me:hunter2@git.example.com/p.git", "https://git.example.com/p.git?token=hunter2"] {
            let error = secret.parse::<GitUrl>().unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
        for good in ["http://collector:4318", "https://push.example.com/metrics/job/x"] {
            assert!(good.parse::<HttpUrl>().is_ok(), "{good}");
        }
        for bad in ["collector:4318", "http://", "http://a b", "http://me@collector"] {
            assert!(bad.parse::<HttpUrl>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_domain_of_nobody_is_a_domain_and_is_known_for_one() {
        let nobodys = Domain::nobodys(&"dev".parse().unwrap());
        assert_eq!(nobodys.as_str().parse::<Domain>(), Ok(nobodys.clone()));
        assert!(nobodys.is_nobodys());
        for other in ["dev.example.com", "invalid.example.com", "notinvalid"] {
            assert!(!other.parse::<Domain>().unwrap().is_nobodys(), "{other}");
        }
    }

    #[test]
    fn a_revision_is_a_name_that_git_has_and_a_domain_one_of_dns() {
        let commit = "0123456789abcdef0123456789abcdef01234567";
        for good in ["main", "release/1.2", "v1.0.0+build", "refs/tags/v1", commit, "_x"] {
            assert!(good.parse::<Revision>().is_ok(), "{good}");
        }
        for bad in ["", "-x", "a..b", "a//b", "a/", ".hidden", "a/.b", "a b", "a~1", "a^{}", "ä"] {
            assert!(bad.parse::<Revision>().is_err(), "{bad}");
        }
        for good in ["dev.example.com", "localhost", "a-b.c"] {
            assert!(good.parse::<Domain>().is_ok(), "{good}");
        }
        let long = "a.".repeat(200);
        for bad in ["", "Dev.example.com", ".example.com", "example.com.", "a..b", "*.example.com", long.as_str()] {
            assert!(bad.parse::<Domain>().is_err(), "{bad}");
        }
    }
}
