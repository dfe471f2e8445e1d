//! Attestations of releases in the form of cosign: a statement (in-toto) that names the digest of a release and says something of it,
//! the predicate, in an envelope ([`dsse`](super::dsse)) that a key signed. The envelopes of a release are the layers of one manifest,
//! which has the release as its subject. Kept as tag `sha256-<hex>.att`, where `cosign verify-attestation` looks, and found as a
//! referrer too.
//!
//! Only what a trusted key signed counts, for exactly the digest that is asked about, and as the type that was signed: what annotations
//! say of an envelope only saves fetching those that nobody asked for. What a predicate says is not judged.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{ANNOTATION, MOST_SIGNATURES, SignatureError, Sort, dsse, json, manifest, names, why};
use crate::digest::Digest;
use crate::name::{NameError, clip};
use crate::oci::{Descriptor, Layout};
use crate::release::Limits;
use crate::release::key::{PrivateKey, TrustedKey};

/// What a manifest of attestations is, its artifact type: cosign says what is in the envelopes.
pub const ARTIFACT: &str = dsse::STATEMENT;
/// The annotation of an envelope that says of what type its predicate is.
pub const PREDICATE_TYPE: &str = "predicateType";
/// What there may be too many of.
pub const ATTESTATIONS: &str = "attestations";

/// What every statement says that it is.
const TYPE: &str = "https://in-toto.io/Statement/v1";
/// What it said before, and says where cosign makes it.
const OLD_TYPE: &str = "https://in-toto.io/Statement/v0.1";
/// Characters of a type.
const LONGEST_TYPE: usize = 255;
const STATEMENT: &str = "the statement of an attestation";
const PREDICATE: &str = "the predicate";

/// Of what type a predicate is: a URI, for example `https://slsa.dev/provenance/v1`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PredicateType(Arc<str>);

impl PredicateType {
    /// The type as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for PredicateType {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let malformed = || NameError::Malformed {
            name: clip(text),
            what: "type of a predicate",
            rule: "write a URI, for example https://slsa.dev/provenance/v1",
        };
        let (scheme, rest) = text.split_once(':').ok_or_else(malformed)?;
        let begins = scheme.starts_with(|c: char| c.is_ascii_alphabetic());
        let is_scheme = begins && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
        if !is_scheme || rest.is_empty() || !rest.chars().all(|c| c.is_ascii_graphic()) {
            return Err(malformed());
        }
        if text.len() > LONGEST_TYPE {
            return Err(NameError::TooLong { name: clip(text), length: text.len(), max: LONGEST_TYPE });
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for PredicateType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Something that is said of a release.
#[derive(Debug, Clone, PartialEq)]
pub struct Predicate {
    /// Of what type it is.
    pub sort: PredicateType,
    /// All of it.
    fields: Map<String, Value>,
}

impl Predicate {
    /// Reads a predicate, which is an object of JSON.
    ///
    /// # Errors
    /// When it is none, or one that two readers could take for two things.
    pub fn read(sort: PredicateType, bytes: &[u8], limits: &Limits) -> Result<Self, SignatureError> {
        let malformed = |why: String| SignatureError::Malformed { what: PREDICATE, why };
        if bytes.len() > limits.manifest {
            let (bytes, most) = (bytes.len() as u64, limits.manifest as u64);
            return Err(SignatureError::TooLarge { what: PREDICATE, bytes, most });
        }
        // One level and some values are those of the statement around it.
        let (depth, values) = (limits.depth.saturating_sub(1), json::most_values(limits.manifest).saturating_sub(16));
        match json::parse(bytes, depth, values).map_err(|refused| malformed(why(refused)))? {
            Value::Object(fields) => Ok(Self { sort, fields }),
            _ => Err(malformed("it is not an object".to_owned())),
        }
    }
}

/// A statement, as cosign writes it: these fields in this order.
#[derive(Serialize)]
struct Statement<'s> {
    #[serde(rename = "_type")]
    sort: &'s str,
    #[serde(rename = "predicateType")]
    predicate_type: &'s str,
    subject: [Subject<'s>; 1],
    predicate: &'s Map<String, Value>,
}

#[derive(Serialize)]
struct Subject<'s> {
    name: &'s str,
    digest: DigestSet<'s>,
}

#[derive(Serialize)]
struct DigestSet<'s> {
    sha256: &'s str,
}

/// The tag under which cosign keeps the attestations of a manifest.
pub fn tag(manifest: &Digest) -> String {
    format!("{}.att", manifest.as_str().replace(':', "-"))
}

/// Attests a release: puts the envelope and a manifest into the layout, with the envelopes that there were before, and gives the
/// manifest. Nothing where the same one is there already. `name` is what the release is called, which nobody believes.
///
/// # Errors
/// When there are as many attestations as are looked at, or this one is larger than anybody would read.
pub fn added(
    layout: &mut Layout,
    subject: &Descriptor,
    name: &str,
    predicate: &Predicate,
    key: &PrivateKey,
    mut before: Vec<Descriptor>,
    limits: &Limits,
) -> Result<Option<Descriptor>, SignatureError> {
    let statement = Statement {
        sort: TYPE,
        predicate_type: predicate.sort.as_str(),
        subject: [Subject { name, digest: DigestSet { sha256: subject.digest.short(64) } }],
        predicate: &predicate.fields,
    };
    // Texts, and values that were JSON: nothing that could fail.
    let statement = serde_json::to_vec(&statement).unwrap_or_default();
    let envelope = dsse::sign(dsse::STATEMENT, &statement, key);
    if envelope.len() > limits.manifest {
        let (bytes, most) = (envelope.len() as u64, limits.manifest as u64);
        return Err(SignatureError::TooLarge { what: dsse::WHAT, bytes, most });
    }
    let layer = layout.blob(dsse::ENVELOPE, envelope);
    if before.iter().any(|other| other.digest == layer.digest) {
        return Ok(None);
    }
    // Cosign refuses a layer without the annotation that holds a signature elsewhere; here it is in the envelope.
    before.push(layer.annotated(ANNOTATION, "").annotated(PREDICATE_TYPE, predicate.sort.as_str()));
    if before.len() > MOST_SIGNATURES {
        return Err(SignatureError::TooMany { what: ATTESTATIONS, count: before.len(), most: MOST_SIGNATURES });
    }
    Ok(Some(manifest(layout, subject, &before, ARTIFACT)))
}

/// Reads a manifest of attestations, ours or cosign's, and gives where the envelopes are, however large: that matters only for those
/// that somebody asks for. What it holds besides is not looked at.
///
/// # Errors
/// When it is none, or holds more than is looked at.
pub fn read(manifest: &[u8], limits: &Limits) -> Result<Vec<Descriptor>, SignatureError> {
    let sort = Sort {
        what: "the manifest of attestations",
        many: ATTESTATIONS,
        one: dsse::WHAT,
        media_type: dsse::ENVELOPE,
        largest: u64::MAX,
    };
    sort.layers(manifest, limits)
}

/// Of what type an envelope says that its predicate is, where it says it. Only a hint.
pub fn said_type(envelope: &Descriptor) -> Option<&str> {
    envelope.annotations.get(PREDICATE_TYPE).map(String::as_str)
}

/// What was attested, and by whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attested<'k> {
    /// Of what type the predicate is.
    pub sort: PredicateType,
    /// Who signed it and counts, each once.
    pub keys: Vec<&'k TrustedKey>,
}

/// What an envelope says of exactly this manifest, and whose it is.
///
/// # Errors
/// When it is no attestation, is of something else, or of nobody whose signatures count now.
pub fn verify<'k>(
    envelope: &[u8],
    wanted: &Digest,
    keys: &'k [TrustedKey],
    now: Timestamp,
    limits: &Limits,
) -> Result<Attested<'k>, SignatureError> {
    let signed = dsse::verify(envelope, dsse::STATEMENT, keys, now, limits);
    let (statement, keys) = signed.map_err(|error| match error {
        SignatureError::UnknownKey { .. } => {
            SignatureError::UnknownKey { manifest: wanted.clone(), trusted: names(keys) }
        }
        SignatureError::Expired { key, until, .. } => SignatureError::Expired { manifest: wanted.clone(), key, until },
        other => other,
    })?;
    let malformed = |why: String| SignatureError::Malformed { what: STATEMENT, why };
    let values = json::most_values(limits.manifest);
    let statement = json::parse(&statement, limits.depth, values).map_err(|refused| malformed(why(refused)))?;
    let text = |field: &str| {
        let text = statement.get(field).and_then(Value::as_str);
        text.ok_or_else(|| malformed(format!("`{field}` is not a text")))
    };
    let sort = text("_type")?;
    if sort != TYPE && sort != OLD_TYPE {
        return Err(malformed(format!("_type is `{}`, expected `{TYPE}`", clip(sort))));
    }
    let sort = text("predicateType")?.parse::<PredicateType>().map_err(|error| malformed(error.to_string()))?;
    if statement.get("predicate").is_none() {
        return Err(malformed("it has no `predicate`".to_owned()));
    }
    let subjects = statement.get("subject").and_then(Value::as_array);
    let subjects = subjects.ok_or_else(|| malformed("`subject` is not a list".to_owned()))?;
    let digests = || subjects.iter().filter_map(|subject| subject.get("digest")?.get("sha256")?.as_str());
    if !digests().any(|digest| digest == wanted.short(64)) {
        let named = digests().next().map_or_else(|| "nothing".to_owned(), |digest| clip(&format!("sha256:{digest}")));
        return Err(SignatureError::OtherDigest { named, wanted: wanted.clone() });
    }
    Ok(Attested { sort, keys })
}
