//! Secret values in desired state: structure first (Secrets, kubeconfigs, fields named like passwords), then patterns
//! (private keys, tokens, credentials in URLs). A value is never part of a message.
//!
//! What passes: SOPS documents whose values are encrypted, SealedSecrets, references to secrets kept elsewhere.

use crate::code::Code;
use crate::finding::{Finding, Place};
use crate::name::clip;
use crate::yaml::{Dialect, Limits, Node, Position, Resolved, Value, read};

use super::manifest::Hints;

/// Texts that every pattern below begins with; a file without them is not searched. Searched in any case, matched in
/// their own.
pub(super) const ANCHORS: &[&str] = &[
    "-----BEGIN",
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "xoxr-",
    "AKIA",
    "ASIA",
    "AIza",
    "sk_live_",
    "rk_live_",
    "hvs.",
    "hvb.",
    "npm_",
    "dop_v1_",
    "eyJ",
    "AGE-SECRET-KEY-1",
    "://",
];

type Follows = fn(u8) -> bool;

/// Prefix, which characters follow, and at least how many.
const TOKENS: &[(&str, Follows, usize)] = &[
    ("ghp_", alphanumeric, 36),
    ("gho_", alphanumeric, 36),
    ("ghs_", alphanumeric, 36),
    ("ghu_", alphanumeric, 36),
    ("ghr_", alphanumeric, 36),
    ("github_pat_", word, 22),
    ("glpat-", url_safe, 20),
    ("xoxb-", url_safe, 20),
    ("xoxp-", url_safe, 20),
    ("xoxa-", url_safe, 20),
    ("xoxr-", url_safe, 20),
    ("AKIA", upper, 16),
    ("ASIA", upper, 16),
    ("AIza", url_safe, 35),
    ("sk_live_", alphanumeric, 16),
    ("rk_live_", alphanumeric, 16),
    ("hvs.", url_safe, 24),
    ("hvb.", url_safe, 24),
    ("npm_", alphanumeric, 36),
    ("dop_v1_", alphanumeric, 64),
    ("AGE-SECRET-KEY-1", alphanumeric, 50),
];

fn alphanumeric(b: u8) -> bool {
    b.is_ascii_alphanumeric()
}
fn word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_'
}
fn url_safe(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_' || b == b'-'
}
fn upper(b: u8) -> bool {
    b.is_ascii_uppercase() || b.is_ascii_digit()
}

const KEEP_ELSEWHERE: &str =
    "keep it in a secret store and refer to it with an ExternalSecret, or encrypt it with SOPS or kubeseal";

/// Searches a text line by line for what no structure is needed to recognise. Comments are searched too.
pub(super) fn in_text(path: &str, text: &str, hints: Hints, findings: &mut Vec<Finding>) {
    if !hints.has(Hints::TOKEN) {
        return;
    }
    for (i, line) in text.lines().enumerate() {
        let mut report = |code, start: usize, message: String| {
            let column = line.get(..start).map_or(1, |before| before.chars().count() + 1);
            let at = Position {
                line: u32::try_from(i + 1).unwrap_or(u32::MAX),
                column: u32::try_from(column).unwrap_or(u32::MAX),
            };
            findings.push(Finding::new(code, Place::new(path, at), message).with_fix(KEEP_ELSEWHERE));
        };
        if let Some(start) = private_key(line) {
            report(Code::PrivateKey, start, "a private key in plain text".to_owned());
        }
        for (prefix, follows, least) in TOKENS {
            for (start, _) in line.match_indices(prefix) {
                let preceded = line.get(..start).and_then(|before| before.bytes().next_back()).is_some_and(word);
                let rest = line.get(start + prefix.len()..).unwrap_or_default();
                let length = rest.bytes().take_while(|b| follows(*b)).count();
                if !preceded && length >= *least {
                    report(Code::Token, start, format!("an access token (`{prefix}…`) in plain text"));
                }
            }
        }
        if let Some(start) = web_token(line) {
            report(Code::Token, start, "a signed token (JWT) in plain text".to_owned());
        }
        if let Some(start) = url_password(line) {
            report(Code::Password, start, "a password inside a URL".to_owned());
        }
    }
}

fn private_key(line: &str) -> Option<usize> {
    let start = line.find("-----BEGIN ")?;
    let rest = line.get(start..)?;
    let end = rest.find("PRIVATE KEY")?;
    (end < 40).then_some(start)
}

fn web_token(line: &str) -> Option<usize> {
    line.match_indices("eyJ").map(|(start, _)| start).find(|start| {
        let rest = line.get(*start..).unwrap_or_default();
        let token: &str = rest.split(|c: char| !c.is_ascii() || !(url_safe(c as u8) || c == '.')).next().unwrap_or("");
        let mut parts = token.split('.');
        let long = |part: Option<&str>| part.is_some_and(|part| part.len() >= 10);
        long(parts.next()) && parts.next().is_some_and(|p| p.starts_with("eyJ") && p.len() >= 10) && long(parts.next())
    })
}

fn url_password(line: &str) -> Option<usize> {
    line.match_indices("://").map(|(start, _)| start).find(|start| {
        let rest = line.get(start + 3..).unwrap_or_default();
        let end =
            |c: char| c.is_whitespace() || matches!(c, '/' | '"' | '\'' | '`' | ',' | '?' | '#' | ')' | ']' | '}');
        let authority = rest.split(end).next().unwrap_or("");
        let Some((user_info, _)) = authority.rsplit_once('@') else { return false };
        user_info.split_once(':').is_some_and(|(_, password)| !password.is_empty() && !is_reference(password))
    })
}

/// Looks at one document.
pub(super) fn in_document(path: &str, document: &Node<'_>, findings: &mut Vec<Finding>) {
    let mut search = Search { path, findings, embedded: None };
    search.document(document);
}

struct Search<'f> {
    path: &'f str,
    findings: &'f mut Vec<Finding>,
    /// Inside a text: findings stand where the text begins.
    embedded: Option<Position>,
}

/// Kinds in which a field named like a secret holds the name of one.
const REFERRING: &[&str] = &[
    "ExternalSecret",
    "ClusterExternalSecret",
    "SecretStore",
    "ClusterSecretStore",
    "PushSecret",
    "SealedSecret",
    "VaultStaticSecret",
    "VaultDynamicSecret",
    "VaultAuth",
    "CustomResourceDefinition",
    "CompositeResourceDefinition",
    "DependencyGraph",
    "GraphOverride",
    "ReleasePointer",
];

impl Search<'_> {
    fn report(&mut self, code: Code, at: Position, message: String) {
        let at = self.embedded.unwrap_or(at);
        self.findings.push(Finding::new(code, Place::new(self.path, at), message).with_fix(KEEP_ELSEWHERE));
    }

    fn document(&mut self, document: &Node<'_>) {
        let kind = document.text_at(&["kind"]).unwrap_or_default();
        if kind.ends_with("List")
            && let Some(items) = document.get("items").and_then(Node::items)
        {
            items.iter().for_each(|item| self.document(item));
            return;
        }
        if document.path(&["sops", "mac"]).is_some() {
            // SOPS: what it encrypted is safe. What it was told to leave alone is not.
            self.sops(document, kind);
            return;
        }
        match kind {
            "Secret" => self.secret(document, |_| false),
            "Config" if document.get("clusters").is_some() || document.get("users").is_some() => {
                self.kubeconfig(document);
            }
            _ if REFERRING.contains(&kind) => {}
            _ => self.fields(document),
        }
    }

    fn sops(&mut self, document: &Node<'_>, kind: &str) {
        let encrypted = |node: &Node<'_>| node.text().is_some_and(|text| text.starts_with("ENC["));
        if kind == "Secret" {
            self.secret(document, encrypted);
        }
    }

    fn secret(&mut self, document: &Node<'_>, passes: impl Fn(&Node<'_>) -> bool) {
        for field in ["data", "stringData"] {
            let Some((key, value)) = document.entries().and_then(|e| e.iter().find(|(k, _)| k.text == field)) else {
                continue;
            };
            let held = |node: &Node<'_>| match node.text() {
                Some(text) => !text.is_empty() && !node.is_null() && !is_reference(text) && !passes(node),
                None => true,
            };
            let keys: Vec<String> = match value.entries() {
                Some(entries) => entries.iter().filter(|(_, v)| held(v)).map(|(k, _)| clip(&k.text)).collect(),
                None if value.is_null() => Vec::new(),
                None => vec!["?".to_owned()],
            };
            if !keys.is_empty() {
                let shown: Vec<String> = keys.iter().take(5).map(|key| format!("`{key}`")).collect();
                let more = keys.len().saturating_sub(5);
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                let message = format!("a Secret with values in `{field}`: {}{more}", shown.join(", "));
                self.report(Code::SecretValue, key.at, message);
            }
        }
    }

    fn kubeconfig(&mut self, document: &Node<'_>) {
        let users = document.get("users").and_then(Node::items).unwrap_or_default();
        for user in users {
            let Some(entries) = user.get("user").and_then(Node::entries) else { continue };
            let held = entries.iter().find(|(key, value)| {
                matches!(&*key.text, "token" | "password" | "client-key-data" | "client-certificate-data")
                    && value.text().is_some_and(|text| !text.is_empty() && !is_reference(text))
            });
            if let Some((key, _)) = held {
                self.report(Code::Kubeconfig, key.at, format!("a kubeconfig with credentials (`{}`)", key.text));
            }
        }
    }

    /// Any other document: fields by their names, `name`/`value` pairs, and texts that hold documents of their own.
    fn fields(&mut self, node: &Node<'_>) {
        match &node.value {
            Value::Mapping(entries) => {
                if let (Some(name), Some(value)) = (node.text_at(&["name"]), node.get("value"))
                    && suspicious(name, value)
                {
                    self.report(Code::Password, value.at, format!("`{}` has a value in plain text", clip(name)));
                }
                for (key, value) in entries {
                    if suspicious(&key.text, value) {
                        let message = format!("`{}` has a value in plain text", clip(&key.text));
                        self.report(Code::Password, key.at, message);
                    } else {
                        self.fields(value);
                    }
                }
            }
            Value::Sequence(items) => items.iter().for_each(|item| self.fields(item)),
            Value::Scalar(scalar) if !scalar.plain && scalar.text.contains(['\n', '=', '{']) => {
                self.text(node.at, &scalar.text);
            }
            Value::Scalar(_) => {}
        }
    }

    /// A text that may hold YAML, JSON or properties: Helm values of an Application, a file in a ConfigMap.
    fn text(&mut self, at: Position, text: &str) {
        if self.embedded.is_none() && text.contains(':') && text.len() <= Limits::EMBEDDED.bytes {
            let stream = read(text, Dialect::Kubernetes, Limits::EMBEDDED);
            let structured = stream.problems.is_empty()
                && stream.documents.iter().any(|document| matches!(document.value, Value::Mapping(_)));
            if structured {
                let before = self.findings.len();
                self.embedded = Some(at);
                stream.documents.iter().for_each(|document| self.document(document));
                self.embedded = None;
                // One finding for one text: they all stand at the same place.
                let mut seen = std::collections::BTreeSet::new();
                let added = self.findings.split_off(before);
                self.findings
                    .extend(added.into_iter().filter(|finding| seen.insert((finding.code, finding.message.clone()))));
                return;
            }
        }
        for line in text.lines() {
            let Some((key, value)) = line.split_once(['=', ':']) else { continue };
            let key = key.trim().rsplit(['.', ' ']).next().unwrap_or_default();
            let value = value.trim().trim_matches(['"', '\'']);
            if !value.is_empty() && named_like_a_secret(key, value) {
                self.report(Code::Password, at, format!("`{}` has a value in plain text", clip(key)));
                return;
            }
        }
    }
}

/// A field that is named like a secret and holds a value.
fn suspicious(key: &str, value: &Node<'_>) -> bool {
    match value.resolve(Dialect::Strict) {
        Some(Resolved::Text(text)) => named_like_a_secret(key, text),
        Some(Resolved::Int(_) | Resolved::Float(_)) => {
            value.text().is_some_and(|text| named_like_a_secret(key, text)) && is_password_key(&folded(key))
        }
        _ => false,
    }
}

fn folded(key: &str) -> String {
    key.chars().filter(|c| !matches!(c, '-' | '_' | '.')).map(|c| c.to_ascii_lowercase()).collect()
}

fn is_password_key(folded: &str) -> bool {
    ["password", "passwd", "passphrase"].iter().any(|ending| folded.ends_with(ending))
}

fn named_like_a_secret(key: &str, value: &str) -> bool {
    if value.is_empty() || is_reference(value) || key.len() > 200 {
        return false;
    }
    let key = folded(key);
    if is_password_key(&key) {
        return true;
    }
    let secret = ["token", "secret", "apikey", "accesskey", "secretkey", "privatekey", "credentials"];
    secret.iter().any(|ending| key.ends_with(ending)) && looks_random(value)
}

/// Long, without spaces, with digits and letters: not the name of something.
fn looks_random(value: &str) -> bool {
    let dashes = value.bytes().filter(|b| matches!(b, b'-' | b'.' | b'/')).count();
    value.len() >= 16
        && !value.contains(char::is_whitespace)
        && value.bytes().any(|b| b.is_ascii_digit())
        && value.bytes().any(|b| b.is_ascii_alphabetic())
        && dashes * 6 < value.len()
}

/// A value that says where the secret is, not what it is.
fn is_reference(value: &str) -> bool {
    let value = value.trim();
    ["${", "$(", "{{", "<", "ref+", "vault:", "op://", "arn:", "ENC[", "secretRef:", "$__", "projects/"]
        .iter()
        .any(|start| value.starts_with(start))
        || value.strip_prefix('$').is_some_and(|rest| !rest.is_empty() && rest.bytes().all(word))
}
