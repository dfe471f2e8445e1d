//! Secret values in desired state: structure first (Secrets, kubeconfigs, fields named like passwords), then patterns
//! (private keys, tokens, credentials in URLs). A value is never part of a message.
//!
//! What passes: SOPS documents whose values are encrypted, SealedSecrets, references to secrets kept elsewhere.

use std::borrow::Cow;
use std::ops::Range;

use crate::code::Code;
use crate::finding::{Finding, Place};
use crate::name::clip;
use crate::yaml::{Dialect, Limits, Node, Position, Resolved, Scalar, Value, read};

use super::embedded::Embedded;
use super::manifest::Hints;

/// Texts that every pattern below begins with; a file without them is not searched. Searched in any case, matched in
/// their own.
pub(super) const ANCHORS: &[&str] = &[
    PEM,
    PEM_BASE64,
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

const PEM: &str = "-----BEGIN ";
/// The same in base64, as `data` of a Secret and kubeconfigs hold it.
const PEM_BASE64: &str = "LS0tLS1CRUdJTi";
/// What follows in base64 for the sorts of private keys.
const PRIVATE_BASE64: &[&str] = &[
    "BQUklWQVRFIEtFW",
    "BSU0EgUFJJVkFURSBLRV",
    "BFQyBQUklWQVRFIEtFW",
    "BPUEVOU1NIIFBSSVZBVEUgS0VZ",
    "BEU0EgUFJJVkFURSBLRV",
    "BFTkNSWVBURUQgUFJJVkFURSBLRV",
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

/// No file is told more than this about: it would not be read, and each is taken out of every message.
const MOST: usize = 1000;

/// What no structure is needed to recognise.
struct Recognised {
    code: Code,
    /// Where it begins for the reader.
    start: usize,
    /// The part that nobody may see.
    secret: Range<usize>,
    message: Cow<'static, str>,
}

/// Searches a text, comments included, and gives the parts that no message may show.
pub(super) fn in_text<'t>(path: &str, text: &'t str, hints: Hints, findings: &mut Vec<Finding>) -> Vec<&'t str> {
    let mut shown = Vec::new();
    if !hints.has(Hints::TOKEN) {
        return shown;
    }
    // Counted on from the last find: a file is one line, or has many.
    let (mut counted, mut at) = (0, Position::START);
    for found in recognised(text).take(MOST) {
        if found.start < counted {
            (counted, at) = (0, Position::START);
        }
        for c in text.get(counted..found.start).unwrap_or_default().chars() {
            at = match c {
                '\n' => Position { line: at.line.saturating_add(1), column: 1 },
                _ => Position { column: at.column.saturating_add(1), ..at },
            };
        }
        counted = found.start;
        let place = Place::new(path, at);
        findings.push(Finding::new(found.code, place, found.message).with_fix(KEEP_ELSEWHERE));
        shown.extend(text.get(found.secret));
    }
    shown
}

/// A text for a message, without the secrets that can be recognised in it.
pub(crate) fn scrubbed(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut rest = 0;
    for found in recognised(text) {
        if found.secret.start >= rest {
            out.push_str(text.get(rest..found.secret.start).unwrap_or_default());
            out.push('…');
            rest = found.secret.end;
        }
    }
    if rest == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(text.get(rest..).unwrap_or_default());
    Cow::Owned(out)
}

/// Takes secrets out of what was said about the file that holds them. A message may show a secret cut short.
pub(super) fn scrub(finding: &mut Finding, secrets: &[&str]) {
    const RECOGNISABLE: usize = 12;
    let without = |text: &mut String| {
        for secret in secrets {
            let head: String = secret.chars().take(RECOGNISABLE).collect();
            while let Some(start) = text.find(&head) {
                let same =
                    text.get(start..).unwrap_or_default().chars().zip(secret.chars()).take_while(|(a, b)| a == b);
                let end = start + same.map(|(c, _)| c.len_utf8()).sum::<usize>();
                text.replace_range(start..end, "…");
            }
        }
    };
    without(&mut finding.message);
    finding.fix.as_mut().map(without);
}

fn recognised(text: &str) -> impl Iterator<Item = Recognised> + '_ {
    super::manifest::anchors(text).filter_map(|(anchor, start)| recognise(text, anchor, start))
}

/// As much of a text as a secret may take: a file may be one line of megabytes.
fn window(text: &str) -> &str {
    const LONGEST: usize = 4096;
    let end = (0..=LONGEST.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    end.and_then(|end| text.get(..end)).unwrap_or_default()
}

fn recognise(text: &str, anchor: &str, start: usize) -> Option<Recognised> {
    // A token begins a word. Asked first: what repeats an anchor a million times is looked at once.
    let begins = anchor == "://" || anchor == PEM || !text.get(..start)?.bytes().next_back().is_some_and(word);
    if !begins {
        return None;
    }
    let line = window(text.get(start..)?).lines().next()?;
    let rest = line.strip_prefix(anchor)?;
    let end = start + line.len();
    match anchor {
        PEM => {
            let (sort, tail) = rest.split_once("PRIVATE KEY")?;
            let key = sort.len() < 30
                && sort.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b' ')
                && (tail.starts_with("-----") || tail.starts_with(" BLOCK-----"));
            let message = Cow::Borrowed("a private key in plain text");
            key.then_some(Recognised { code: Code::PrivateKey, start, secret: start..end, message })
        }
        PEM_BASE64 => {
            let key = PRIVATE_BASE64.iter().any(|sort| rest.starts_with(sort));
            let length = line.bytes().take_while(|b| alphanumeric(*b) || matches!(b, b'+' | b'/' | b'=')).count();
            let message = Cow::Borrowed("a private key in base64, which hides nothing");
            key.then_some(Recognised { code: Code::PrivateKey, start, secret: start..start + length, message })
        }
        "eyJ" => {
            let length = line.bytes().take_while(|b| url_safe(*b) || *b == b'.').count();
            let mut parts = line.get(..length)?.split('.');
            let mut long = |first: &str| parts.next().is_some_and(|p| p.len() >= 10 && p.starts_with(first));
            let message = Cow::Borrowed("a signed token (JWT) in plain text");
            let token = long("eyJ") && long("eyJ") && long("");
            token.then_some(Recognised { code: Code::Token, start, secret: start..start + length, message })
        }
        "://" => {
            let ends =
                |c: char| c.is_whitespace() || matches!(c, '/' | '"' | '\'' | '`' | ',' | '?' | '#' | ')' | ']' | '}');
            let authority = rest.split(ends).next().unwrap_or("");
            let (user_info, host) = authority.rsplit_once('@')?;
            let (_, password) = user_info.split_once(':')?;
            // `docker://name:tag@sha256:…` has a tag and a digest there.
            let held = !password.is_empty() && !is_reference(password) && !host.starts_with("sha256:");
            let message = Cow::Borrowed("a password inside a URL");
            let from = start + anchor.len();
            let secret = from..from + user_info.len() + 1;
            held.then_some(Recognised { code: Code::Password, start, secret, message })
        }
        _ => {
            let (_, follows, least) = TOKENS.iter().find(|(prefix, ..)| *prefix == anchor)?;
            let length = rest.bytes().take_while(|b| follows(*b)).count();
            let token = length >= *least;
            token.then(|| Recognised {
                code: Code::Token,
                start,
                secret: start + anchor.len()..start + anchor.len() + length,
                message: Cow::Owned(format!("an access token (`{anchor}…`) in plain text")),
            })
        }
    }
}

/// Looks at a file that is neither manifest nor template, such as a kubeconfig or a list of variables; or at a template.
pub(super) fn in_file(path: &str, text: &str, template: bool, findings: &mut Vec<Finding>) {
    if !template && text.len() <= Limits::EMBEDDED.bytes {
        let stream = read(text, Dialect::Kubernetes, Limits::EMBEDDED);
        let mapping = |document: &Node<'_>| matches!(document.value, Value::Mapping(_));
        if stream.problems.is_empty() && !stream.documents.is_empty() && stream.documents.iter().all(mapping) {
            stream.documents.iter().for_each(|document| in_document(path, document, findings));
            return;
        }
    }
    for (line, number) in text.lines().zip(1..) {
        if let Some((start, key)) = assigned(line) {
            let column = line.get(..start).map_or(0, |before| before.chars().count()) + 1;
            let at = Position { line: number, column: u32::try_from(column).unwrap_or(u32::MAX) };
            let message = format!("`{}` has a value in plain text", clip(key));
            findings.push(Finding::new(Code::Password, Place::new(path, at), message).with_fix(KEEP_ELSEWHERE));
        }
    }
}

/// Where in a line something named like a secret gets a value, and its name: `password = x`, `--password=x`,
/// `"password": "x"`, `User=u;Password=x`.
fn assigned(line: &str) -> Option<(usize, &str)> {
    if ["#", "//", "{{/*"].iter().any(|comment| line.trim_start().starts_with(comment)) {
        return None;
    }
    let named = |before: &str, value: &str| {
        let before = before.trim_end().trim_end_matches(['"', '\'']);
        // Only what can be a name is ever shown; the text before it may be a secret itself.
        let start = before
            .rfind(|c: char| !(c.is_ascii() && url_safe(c as u8)))
            .map_or(0, |at| at + before.get(at..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8));
        let key = before.get(start..)?;
        let variable = before.get(..start)?.ends_with(['$', '{']);
        (!variable && named_like_a_secret(key, literal(value)?)).then_some((start, start + key.len()))
    };
    let whole = line.split_once(['=', ':']).and_then(|(before, value)| named(before, value));
    let (start, end) = whole.or_else(|| {
        let ends = |c: char| c.is_whitespace() || matches!(c, ';' | '&' | ',' | '?' | '"' | '\'');
        line.match_indices('=').find_map(|(equals, _)| {
            let after = window(line.get(equals + 1..)?).trim_start();
            let quoted = after.starts_with(['"', '\'']);
            let value = if quoted { after } else { after.split(ends).next().unwrap_or_default() };
            named(line.get(..equals)?, value)
        })
    })?;
    Some((start, line.get(start..end)?))
}

/// A value as a text holds it, unless it is code or prose.
fn literal(value: &str) -> Option<&str> {
    let value = value.trim_start();
    let value = match value.chars().next() {
        Some(quote @ ('"' | '\'')) => value.get(1..)?.split(quote).next()?,
        _ => value.split(" #").next()?.trim_end().trim_end_matches([';', ',', '"', '\'']),
    };
    let code =
        value.contains(|c: char| c.is_whitespace() || matches!(c, '(' | ')' | '[' | ']' | '{' | '}' | '<' | '>' | '`'));
    let nothing = matches!(value, "" | "null" | "nil" | "None" | "undefined" | "true" | "false");
    (!code && !nothing).then_some(value)
}

/// Looks at one document.
pub(super) fn in_document(path: &str, document: &Node<'_>, findings: &mut Vec<Finding>) {
    let mut search = Search { path, findings, embedded: None };
    search.document(document);
}

struct Search<'f> {
    path: &'f str,
    findings: &'f mut Vec<Finding>,
    /// Inside a text.
    embedded: Option<Embedded>,
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
        let at = self.embedded.map_or(at, |text| text.place(at));
        self.findings.push(Finding::new(code, Place::new(self.path, at), message).with_fix(KEEP_ELSEWHERE));
    }

    fn document(&mut self, document: &Node<'_>) {
        let kind = document.text_at(&["kind"]).unwrap_or_default();
        if let (Some(of), Some(items)) = (kind.strip_suffix("List"), document.get("items").and_then(Node::items)) {
            for item in items {
                match of {
                    "Secret" if item.get("kind").is_none() => self.secret(item),
                    _ => self.document(item),
                }
            }
            return;
        }
        match kind {
            // SOPS included: what it encrypted passes, what it was told to leave alone does not.
            "Secret" => self.secret(document),
            "Config" if document.get("clusters").is_some() || document.get("users").is_some() => {
                self.kubeconfig(document);
            }
            _ if REFERRING.contains(&kind) => {}
            _ => self.fields(document),
        }
    }

    fn secret(&mut self, document: &Node<'_>) {
        for field in ["data", "stringData"] {
            let Some((key, value)) = document.entries().and_then(|e| e.iter().find(|(k, _)| k.text == field)) else {
                continue;
            };
            let held = |node: &Node<'_>| match node.text() {
                Some(text) => !text.is_empty() && !node.is_null() && !is_reference(text),
                None => true,
            };
            let keys: Vec<String> = match value.entries() {
                Some(entries) => entries.iter().filter(|(_, v)| held(v)).map(|(k, _)| clip(&k.text)).collect(),
                None if value.is_null() => Vec::new(),
                None => vec!["?".to_owned()],
            };
            self.values(key.at, field, &keys);
        }
    }

    fn values(&mut self, at: Position, field: &str, keys: &[String]) {
        if keys.is_empty() {
            return;
        }
        let shown: Vec<String> = keys.iter().take(5).map(|key| format!("`{key}`")).collect();
        let more = keys.len().saturating_sub(5);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        self.report(Code::SecretValue, at, format!("a Secret with values in `{field}`: {}{more}", shown.join(", ")));
    }

    /// kustomize: `literals` of a `secretGenerator` become a Secret.
    fn generators(&mut self, generators: &Node<'_>) {
        for literals in generators.items().unwrap_or_default().iter().filter_map(|one| one.get("literals")) {
            let pairs = literals.items().unwrap_or_default().iter().filter_map(|item| item.text()?.split_once('='));
            let held = pairs.filter(|(_, value)| !value.is_empty() && !is_reference(value));
            let keys: Vec<String> = held.map(|(key, _)| clip(key)).collect();
            self.values(literals.at, "literals", &keys);
        }
    }

    fn kubeconfig(&mut self, document: &Node<'_>) {
        let users = document.get("users").and_then(Node::items).unwrap_or_default();
        let holds = |value: &Node<'_>| value.text().is_some_and(|text| !text.is_empty() && !is_reference(text));
        for user in users.iter().filter_map(|user| user.get("user")) {
            let own = ["token", "password", "client-key-data"];
            let provided = ["access-token", "refresh-token", "id-token", "client-secret"];
            let provider = user.path(&["auth-provider", "config"]);
            let fields = [(Some(user), &own[..]), (provider, &provided[..])];
            let held = fields.into_iter().find_map(|(node, names)| {
                let entries = node.and_then(Node::entries).unwrap_or_default();
                entries.iter().find(|(key, value)| names.contains(&&*key.text) && holds(value))
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
                    } else if key.text == "secretGenerator" {
                        self.generators(value);
                    } else {
                        self.nested(value);
                    }
                }
            }
            Value::Sequence(items) => {
                for (item, next) in items.iter().zip(items.iter().skip(1)) {
                    // Arguments: `--password`, then the value.
                    let name = item.text().filter(|text| is_password_flag(text));
                    let value = next.text().filter(|text| !text.starts_with('-') && !is_reference(text));
                    if let (Some(name), Some(_)) = (name, value) {
                        self.report(Code::Password, next.at, format!("`{}` has a value in plain text", clip(name)));
                    }
                }
                items.iter().for_each(|item| self.nested(item));
            }
            Value::Scalar(scalar) => {
                let lines = !scalar.plain && scalar.text.contains(['\n', '{']);
                if lines || scalar.text.contains('=') {
                    self.text(node.at, scalar);
                }
            }
        }
    }

    /// Objects may stand inside others: extra objects of Helm values, what a provider applies.
    fn nested(&mut self, node: &Node<'_>) {
        if node.text_at(&["kind"]).is_some() && node.text_at(&["apiVersion"]).is_some() {
            self.document(node);
        } else {
            self.fields(node);
        }
    }

    /// A text that may hold YAML, JSON or properties: Helm values of an Application, a file in a ConfigMap.
    fn text(&mut self, at: Position, scalar: &Scalar<'_>) {
        let text = &*scalar.text;
        let documents = text.contains('\n') || text.trim_start().starts_with('{');
        if self.embedded.is_none() && documents && text.contains(':') && text.len() <= Limits::EMBEDDED.bytes {
            let stream = read(text, Dialect::Kubernetes, Limits::EMBEDDED);
            let structured = stream.problems.is_empty()
                && stream.documents.iter().any(|document| matches!(document.value, Value::Mapping(_)));
            if structured {
                let before = self.findings.len();
                self.embedded = Some(Embedded::new(at, scalar));
                stream.documents.iter().for_each(|document| self.document(document));
                self.embedded = None;
                // Where they all stand at one place, one is enough.
                let mut added = self.findings.split_off(before);
                added.sort();
                added.dedup();
                self.findings.append(&mut added);
                return;
            }
        }
        let found = text.lines().zip(1..).find_map(|(line, number)| Some((number, line, assigned(line)?)));
        if let Some((line, content, (start, key))) = found {
            let column = content.get(..start).map_or(1, |before| before.chars().count() + 1);
            let inside = Position { line, column: u32::try_from(column).unwrap_or(u32::MAX) };
            let place = Embedded::new(at, scalar).place(inside);
            self.report(Code::Password, place, format!("`{}` has a value in plain text", clip(key)));
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

/// `--password`, whose value is the next argument; not `--no-password`.
fn is_password_flag(argument: &str) -> bool {
    argument.strip_prefix("--").is_some_and(|name| !name.starts_with("no-") && is_password_key(&folded(name)))
}

/// `DB_PASS`, `smtpPass`, `db-pwd`; not `bypass`, and not the working directory.
fn is_short_password_key(key: &str) -> bool {
    let last = key.rsplit(['-', '_', '.']).next().unwrap_or(key);
    let word = ["pass", "pwd"].iter().any(|short| last.eq_ignore_ascii_case(short));
    let hump = ["Pass", "Pwd"].iter().any(|short| {
        last.strip_suffix(short)
            .is_some_and(|before| before.bytes().next_back().is_some_and(|b| b.is_ascii_lowercase()))
    });
    hump || (word && !key.eq_ignore_ascii_case("pwd"))
}

fn named_like_a_secret(key: &str, value: &str) -> bool {
    if value.is_empty() || is_reference(value) || key.len() > 200 {
        return false;
    }
    if is_short_password_key(key) && value.len() >= 4 && !value.contains("://") {
        return true;
    }
    let key = folded(key);
    if is_password_key(&key) {
        return true;
    }
    let secret = ["token", "secret", "apikey", "accesskey", "secretkey", "privatekey", "credentials"];
    secret.iter().any(|ending| key.ends_with(ending)) && looks_random(value)
}

/// Long, without spaces, with digits and letters, and not the name of something.
fn looks_random(value: &str) -> bool {
    value.len() >= 16
        && !value.contains(char::is_whitespace)
        && value.bytes().any(|b| b.is_ascii_digit())
        && value.bytes().any(|b| b.is_ascii_alphabetic())
        && !is_name(value)
}

/// Words and numbers such as people give to things: `shop-db1-credentials`, `k8s-token-2024`.
fn is_name(value: &str) -> bool {
    let letters = |part: &str| part.bytes().take_while(u8::is_ascii_alphabetic).count();
    let mut words = false;
    value.split(['-', '_', '.', '/', ':']).all(|part| {
        let leading = letters(part);
        words |= leading >= 4;
        let number = part.get(leading..).unwrap_or_default();
        let short = part.len() <= 4 && part.bytes().all(alphanumeric);
        short || (number.len() <= 4 && number.bytes().all(|b| b.is_ascii_digit()))
    }) && words
}

/// A value that says where the secret is, not what it is.
fn is_reference(value: &str) -> bool {
    let value = value.trim();
    ["${", "$(", "{{", "ref+", "vault:", "op://", "arn:", "ENC[", "secretRef:", "$__", "projects/"]
        .iter()
        .any(|start| value.starts_with(start))
        || (value.starts_with('<') && value.ends_with('>'))
        || value.bytes().all(|b| b == b'*')
        || value.strip_prefix('$').is_some_and(is_variable)
}

/// `$1`, `$NAME`, `$name`, and Argo CD's `$oidc.auth0.clientSecret`: but not `$3cret`.
fn is_variable(name: &str) -> bool {
    let any = |test: fn(&u8) -> bool| name.as_bytes().iter().any(test);
    let legal = name.bytes().all(|b| url_safe(b) || matches!(b, b'.' | b':'));
    let starts = name.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    let path = any(|b| matches!(b, b'.' | b':'));
    let plain = !any(u8::is_ascii_lowercase) || !any(u8::is_ascii_digit);
    let position = name.len() == 1 && any(u8::is_ascii_digit);
    position || (legal && starts && (path || plain))
}
