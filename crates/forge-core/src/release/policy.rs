//! Whose signatures a release needs before it is used: kind `SignaturePolicy`. The platform's is mounted beside whoever
//! renders; a repository may bring one of its own, which may ask for more and never for less.
//!
//! It fails closed: where signatures are required, no answer is no signature, no keys are nobody, and a file that cannot be
//! read stops everything that it would have judged.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use schemars::JsonSchema;

use super::key::{KeyName, PublicKey, TrustedKey};
use super::signature::attestation::{Attested, PredicateType};
use super::signature::{Found, MOST_SIGNATURES, SIGNATURES, SignatureError, names, verify};
use crate::code::Code;
use crate::digest::Digest;
use crate::failure::Failure;
use crate::finding::{Finding, Place};
use crate::format::{API_VERSION, header};
use crate::validate::yaml_finding;
use crate::yaml::{Decoder, Dialect, Limits, Node, Position, decode_text, read};

/// Keys of a policy. Every signature may have to be tried with every one of them.
pub const MOST_KEYS: u32 = 16;
/// Types of attestations that a policy may ask for.
pub const MOST_TYPES: usize = 16;

const KIND: &str = "SignaturePolicy";

/// Whether a release needs signatures at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub enum Signatures {
    /// A release without signatures is used.
    Optional,
    /// It is not.
    Required,
}

/// Whose signatures a release needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignaturePolicy {
    /// Whether it needs any.
    pub signatures: Signatures,
    /// Whose count.
    pub keys: Vec<TrustedKey>,
    /// How many different keys must have signed, where it is said; one is enough where it is not.
    pub threshold: Option<u32>,
    /// What must be said of it besides, each by one of the keys. None where signatures are not required.
    pub attestations: BTreeSet<PredicateType>,
}

/// What a policy makes of the signatures of a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// Whose signatures were found and count.
    pub keys: Vec<KeyName>,
    /// What was asked to be said of it, and who says it.
    pub attestations: BTreeMap<PredicateType, Vec<KeyName>>,
    /// From this moment on there are not enough of them any more.
    pub until: Option<Timestamp>,
}

/// Why two policies do not go together: the second would loosen the first.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// Signatures are required.
    #[error("signatures are `optional` in the repository's policy, and `required` in the platform's")]
    Optional,
    /// Fewer keys would do.
    #[error("threshold is {own} in the repository's policy, and {platform} in the platform's")]
    Threshold {
        /// What the repository asks for.
        own: u32,
        /// What the platform asks for.
        platform: u32,
    },
    /// A key that the platform does not trust.
    #[error("key `{name}` of the repository's policy is not in the platform's")]
    UnknownKey {
        /// Its name.
        name: KeyName,
    },
    /// A key that would count for longer.
    #[error("key `{name}` counts until {own} in the repository's policy, and until {platform} in the platform's")]
    LongerKey {
        /// Its name.
        name: KeyName,
        /// What the repository says.
        own: Timestamp,
        /// What the platform says.
        platform: Timestamp,
    },
    /// Nobody could ever satisfy both.
    #[error("{keys} keys are left, and {threshold} must have signed")]
    Unsatisfiable {
        /// How many keys there are.
        keys: usize,
        /// How many must have signed.
        threshold: u32,
    },
}

impl PolicyError {
    /// The stable code.
    pub fn code(&self) -> Code {
        Code::BadSignaturePolicy
    }

    /// The next step.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::UnknownKey { .. } => {
                "a key goes into the platform's policy first, the file that is mounted into the plugin"
            }
            _ => "a repository may ask for more than the platform, never for less",
        };
        Some(hint.to_owned())
    }
}

impl From<PolicyError> for Failure {
    fn from(error: PolicyError) -> Self {
        let failure = Self::new(error.code(), &error);
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

/// The file as its schema describes it.
#[derive(JsonSchema)]
#[schemars(rename = "SignaturePolicy", rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "describes the file for the schema; the decoder below reads it")]
pub(crate) struct File {
    /// The group and version.
    #[schemars(extend("const" = API_VERSION))]
    api_version: String,
    #[schemars(extend("const" = KIND))]
    kind: String,
    metadata: Option<Metadata>,
    spec: Spec,
}

/// For people: nothing follows from it.
#[derive(JsonSchema)]
#[schemars(rename = "SignaturePolicyMetadata", deny_unknown_fields)]
#[expect(dead_code, reason = "describes the file for the schema")]
struct Metadata {
    /// What people call the policy.
    name: String,
    /// Ignored by Forge.
    labels: Option<BTreeMap<String, String>>,
    /// Ignored by Forge.
    annotations: Option<BTreeMap<String, String>>,
}

/// Whose signatures a release needs.
#[derive(JsonSchema)]
#[schemars(rename = "SignaturePolicySpec", deny_unknown_fields)]
#[expect(dead_code, reason = "describes the file for the schema")]
struct Spec {
    /// Whether it needs any.
    signatures: Signatures,
    /// Whose count. A repository's policy that names none takes the platform's.
    #[schemars(extend("maxItems" = MOST_KEYS))]
    keys: Option<Vec<KeySpec>>,
    /// How many different keys must have signed.
    #[schemars(extend("minimum" = 1, "maximum" = MOST_KEYS))]
    threshold: Option<u32>,
    /// Types of the attestations that it needs too, as URIs; one of the keys must have made each. Only where signatures are required.
    #[schemars(extend("maxItems" = MOST_TYPES))]
    attestations: Option<Vec<String>>,
}

/// A key whose signatures count.
#[derive(JsonSchema)]
#[schemars(rename = "SignaturePolicyKey", deny_unknown_fields)]
#[expect(dead_code, reason = "describes the file for the schema")]
struct KeySpec {
    /// What people call it.
    #[schemars(extend("pattern" = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength" = 63))]
    name: String,
    /// The public key, ECDSA on P-256, in PEM.
    pem: String,
    /// From this moment on it does not count any more.
    #[schemars(extend("pattern" = "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|[+-][0-9:]+)$"))]
    until: Option<String>,
}

impl SignaturePolicy {
    /// A policy that asks for a signature by one of these keys: what `--key` means.
    pub fn of(keys: Vec<TrustedKey>) -> Self {
        Self { signatures: Signatures::Required, keys, threshold: None, attestations: BTreeSet::new() }
    }

    /// Reads a file with a policy.
    ///
    /// # Errors
    /// With everything that is wrong with it, as findings of a failure.
    pub fn read(path: &str, bytes: &[u8]) -> Result<Self, Failure> {
        let (policy, findings) = Self::findings(path, bytes);
        match policy {
            Some(policy) if findings.is_empty() => Ok(policy),
            _ => {
                // The first of them is in the sentence too: where Argo CD shows it, there are no findings below.
                let first = findings.first().map(|first| format!(": {}: {}", first.place, first.message));
                let message =
                    format!("`{path}` is not a signature policy that can be used{}", first.unwrap_or_default());
                Err(Failure { findings, ..Failure::new(Code::BadSignaturePolicy, message) })
            }
        }
    }

    fn findings(path: &str, bytes: &[u8]) -> (Option<Self>, Vec<Finding>) {
        let text = match decode_text(bytes) {
            Ok(text) => text,
            Err(problem) => return (None, vec![yaml_finding(path, &problem)]),
        };
        let stream = read(text, Dialect::Strict, Limits::EMBEDDED);
        if !stream.problems.is_empty() {
            return (None, stream.problems.iter().map(|problem| yaml_finding(path, problem)).collect());
        }
        let [document] = stream.documents.as_slice() else {
            let message = format!("{} documents; this file must hold exactly one", stream.documents.len());
            return (None, vec![Finding::new(Code::DocumentCount, Place::new(path, Position::START), message)]);
        };
        let mut decoder = Decoder::new(path);
        let policy = Self::decode(&mut decoder, document);
        (policy, decoder.into_findings())
    }

    /// Takes a policy out of a document.
    pub fn decode(decoder: &mut Decoder<'_>, node: &Node<'_>) -> Option<Self> {
        let mut fields = header::document(decoder, node, API_VERSION, KIND)?;
        header::optional_name(decoder, &mut fields);
        let spec = decoder.required(&mut fields, "spec");
        decoder.finish(&fields);
        let mut spec = decoder.mapping(spec?, "spec")?;
        let words = [("optional", Signatures::Optional), ("required", Signatures::Required)];
        let signatures =
            decoder.required(&mut spec, "signatures").and_then(|node| decoder.one_of(node, "signatures", &words));
        let list = spec.take("keys");
        let keys = keys(decoder, list);
        let threshold = spec.take("threshold");
        let count = threshold.and_then(|node| decoder.number(node, "threshold", 1..=MOST_KEYS));
        let list_of_types = spec.take("attestations");
        let attestations = types(decoder, list_of_types);
        decoder.finish(&spec);
        // Where everything passes, a repository may bring its own keys: then they would attest what the platform asks for.
        if let (Some(node), Some(Signatures::Optional)) = (list_of_types, signatures)
            && !attestations.is_empty()
        {
            let message = "attestations are asked for, and signatures are `optional`: write `required`";
            decoder.report(Code::BadSignaturePolicy, node.at, message);
        }
        // Of a repository's policy that names no keys this is only known beside the platform's.
        if let (Some(node), Some(count), Some(_)) = (threshold, count, list)
            && decoder.is_clean()
            && keys.len() < count as usize
        {
            let message = format!("threshold is {count}, and there are {} keys", keys.len());
            decoder.report(Code::BadSignaturePolicy, node.at, message);
        }
        Some(Self { signatures: signatures?, keys, threshold: count, attestations })
    }

    /// How many different keys must have signed.
    pub fn threshold(&self) -> u32 {
        self.threshold.unwrap_or(1)
    }

    /// This policy, the platform's, with what a repository asks for besides. What the result lets pass, this one does too.
    ///
    /// # Errors
    /// When the repository asks for less, or for what nobody could give.
    pub fn tightened(&self, by: &Self) -> Result<Self, PolicyError> {
        let attestations: BTreeSet<PredicateType> = self.attestations.union(&by.attestations).cloned().collect();
        let tighter = match self.signatures {
            // Everything passes here, so whatever the repository asks for is more.
            Signatures::Optional => Self {
                signatures: by.signatures,
                keys: if by.keys.is_empty() { self.keys.clone() } else { by.keys.clone() },
                threshold: by.threshold.or(self.threshold),
                attestations,
            },
            Signatures::Required if by.signatures == Signatures::Optional => return Err(PolicyError::Optional),
            Signatures::Required => {
                let keys = match by.keys.as_slice() {
                    [] => self.keys.clone(),
                    own => own.iter().map(|key| self.narrowed(key)).collect::<Result<Vec<_>, PolicyError>>()?,
                };
                let (platform, own) = (self.threshold(), by.threshold.unwrap_or(self.threshold()));
                if own < platform {
                    return Err(PolicyError::Threshold { own, platform });
                }
                Self { signatures: Signatures::Required, keys, threshold: Some(own), attestations }
            }
        };
        let (keys, threshold) = (tighter.keys.len(), tighter.threshold());
        if tighter.signatures == Signatures::Required && keys < threshold as usize {
            return Err(PolicyError::Unsatisfiable { keys, threshold });
        }
        Ok(tighter)
    }

    /// A key of a repository's policy as this one knows it, with the earlier end of the two.
    fn narrowed(&self, own: &TrustedKey) -> Result<TrustedKey, PolicyError> {
        let name = || own.name.clone();
        let known =
            self.keys.iter().find(|key| key.key == own.key).ok_or_else(|| PolicyError::UnknownKey { name: name() })?;
        let until = match (own.until, known.until) {
            (Some(own), Some(platform)) if own > platform => {
                return Err(PolicyError::LongerKey { name: name(), own, platform });
            }
            (own, platform) => own.or(platform),
        };
        Ok(TrustedKey { name: known.name.clone(), key: known.key.clone(), until })
    }

    /// Whether signatures by these keys are enough. Keys that the policy does not name do not count, and none counts twice.
    ///
    /// # Errors
    /// When they are not.
    pub fn judge(&self, verified: &[KeyName]) -> Result<(), SignatureError> {
        if self.signatures == Signatures::Optional {
            return Ok(());
        }
        let signed: Vec<KeyName> =
            self.keys.iter().map(|key| &key.name).filter(|name| verified.contains(name)).cloned().collect();
        let threshold = self.threshold();
        if signed.len() < threshold as usize {
            return Err(SignatureError::NotEnough { signed, threshold, trusted: names(&self.keys) });
        }
        Ok(())
    }

    /// Judges everything that was found beside a release. Enough good signatures are enough, whatever else lies there;
    /// without them what is wrong is said before what is missing, and stops a release also where signatures are optional.
    ///
    /// # Errors
    /// When there are not enough signatures, or some that are none.
    pub fn check(&self, manifest: &Digest, found: &[Found], now: Timestamp) -> Result<Judged, SignatureError> {
        // One signature may be found by its tag and as a referrer.
        let found: BTreeSet<&Found> = found.iter().collect();
        if found.len() > MOST_SIGNATURES {
            return Err(SignatureError::TooMany { what: SIGNATURES, count: found.len(), most: MOST_SIGNATURES });
        }
        let mut good: BTreeSet<&KeyName> = BTreeSet::new();
        let mut wrong = None;
        let mut expired = None;
        for Found { payload, signature } in found {
            match verify(payload, signature, manifest, &self.keys, now) {
                Ok(key) => {
                    good.insert(&key.name);
                }
                Err(error) if error.is_wrong() => wrong = wrong.or(Some(error)),
                Err(error @ SignatureError::Expired { .. }) => expired = expired.or(Some(error)),
                Err(_) => {}
            }
        }
        let keys: Vec<KeyName> = good.into_iter().cloned().collect();
        let enough = keys.len() >= self.threshold() as usize;
        if !enough && let Some(wrong) = wrong {
            return Err(wrong);
        }
        self.judge(&keys).map_err(|missing| match expired {
            // Nobody else signed: that a key ended says more than that nothing is there.
            Some(expired) if keys.is_empty() => expired,
            _ => missing,
        })?;
        let until = self.holds_until(&keys);
        Ok(Judged { keys, attestations: BTreeMap::new(), until })
    }

    /// Adds to what was judged what is attested of a release: what [`verify`](super::signature::attestation::verify) made of each envelope, so that nobody
    /// has to hold them all. For each type that is asked for one that is good is enough, whatever else lies there; without one what is wrong
    /// is said before what is missing.
    ///
    /// # Errors
    /// When something that is asked for is not attested.
    pub fn attested(
        &self,
        mut judged: Judged,
        manifest: &Digest,
        verified: Vec<Result<Attested<'_>, SignatureError>>,
    ) -> Result<Judged, SignatureError> {
        let mut good: BTreeMap<PredicateType, BTreeSet<KeyName>> = BTreeMap::new();
        let mut wrong = None;
        let mut expired = None;
        for one in verified {
            match one {
                Ok(Attested { sort, keys }) => {
                    good.entry(sort).or_default().extend(keys.into_iter().map(|key| key.name.clone()));
                }
                Err(error) if error.is_wrong() => wrong = wrong.or(Some(error)),
                Err(error @ SignatureError::Expired { .. }) => expired = expired.or(Some(error)),
                Err(_) => {}
            }
        }
        for wanted in &self.attestations {
            let Some(keys) = good.remove(wanted) else {
                let (manifest, wanted, trusted) = (manifest.clone(), wanted.clone(), names(&self.keys));
                return Err(wrong.or(expired).unwrap_or(SignatureError::NotAttested { manifest, wanted, trusted }));
            };
            // As long as one of them counts.
            let ends = self.keys.iter().filter(|key| keys.contains(&key.name)).map(|key| key.until);
            let last = ends.map(|until| until.unwrap_or(Timestamp::MAX)).max().filter(|last| *last != Timestamp::MAX);
            judged.until = match (judged.until, last) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
            judged.attestations.insert(wanted.clone(), keys.into_iter().collect());
        }
        Ok(judged)
    }

    /// When there will be fewer than the threshold of these keys that count.
    fn holds_until(&self, keys: &[KeyName]) -> Option<Timestamp> {
        if self.signatures == Signatures::Optional {
            return None;
        }
        let ends = self.keys.iter().filter(|key| keys.contains(&key.name)).map(|key| key.until);
        let mut ends: Vec<Timestamp> = ends.map(|until| until.unwrap_or(Timestamp::MAX)).collect();
        // The last to end first: of these as many as the threshold says must still count.
        ends.sort_unstable_by(|a, b| b.cmp(a));
        let last = ends.get((self.threshold() as usize).saturating_sub(1)).copied()?;
        (last != Timestamp::MAX).then_some(last)
    }
}

/// The keys of a policy: no name and no key twice.
fn keys(decoder: &mut Decoder<'_>, node: Option<&Node<'_>>) -> Vec<TrustedKey> {
    let mut keys: Vec<TrustedKey> = Vec::new();
    let items = decoder.list(node, "keys");
    if items.len() > MOST_KEYS as usize {
        let at = node.map_or(Position::START, |node| node.at);
        decoder.report(Code::BadSignaturePolicy, at, format!("{} keys, at most {MOST_KEYS} are allowed", items.len()));
        return keys;
    }
    for node in items {
        let Some(key) = key(decoder, node) else { continue };
        if let Some(other) = keys.iter().find(|other| other.name == key.name || other.key == key.key) {
            let message = if other.name == key.name {
                format!("two keys are called `{}`", key.name)
            } else {
                format!("`{}` and `{}` are the same key", other.name, key.name)
            };
            decoder.report(Code::BadSignaturePolicy, node.at, message);
            continue;
        }
        keys.push(key);
    }
    keys
}

/// The types of attestations that a policy asks for.
fn types(decoder: &mut Decoder<'_>, node: Option<&Node<'_>>) -> BTreeSet<PredicateType> {
    let items = decoder.list(node, "attestations");
    if items.len() > MOST_TYPES {
        let at = node.map_or(Position::START, |node| node.at);
        let message = format!("{} types of attestations, at most {MOST_TYPES} are allowed", items.len());
        decoder.report(Code::BadSignaturePolicy, at, message);
        return BTreeSet::new();
    }
    let types = items.iter().filter_map(|node| decoder.parse::<PredicateType>(node, "attestations"));
    types.map(|sort| sort.value).collect()
}

fn key(decoder: &mut Decoder<'_>, node: &Node<'_>) -> Option<TrustedKey> {
    let mut fields = decoder.mapping(node, "a key")?;
    let name = decoder.required(&mut fields, "name").and_then(|node| decoder.parse::<KeyName>(node, "name"));
    let pem = decoder.required(&mut fields, "pem").and_then(|node| public(decoder, node));
    let until = fields.take("until");
    let end = until.and_then(|node| decoder.parse::<Timestamp>(node, "until"));
    decoder.finish(&fields);
    // An end that cannot be read is no key without end.
    if until.is_some() && end.is_none() {
        return None;
    }
    Some(TrustedKey { name: name?.value, key: pem?, until: end.map(|end| end.value) })
}

fn public(decoder: &mut Decoder<'_>, node: &Node<'_>) -> Option<PublicKey> {
    let text = decoder.text(node, "pem")?;
    match PublicKey::read(text.value) {
        Ok(key) => Some(key),
        Err(error) => {
            let finding = decoder.report(error.code(), node.at, format!("pem: {error}"));
            if let Some(hint) = error.hint() {
                finding.fix(hint);
            }
            None
        }
    }
}

#[cfg(test)]
mod tests;
