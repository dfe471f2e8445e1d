//! Signatures of releases in the form of cosign («simple signing»): a payload that names the digest of a manifest, a
//! signature over its bytes in an annotation, and a manifest that holds both and has the release as its subject. Kept as
//! tag `sha256-<hex>.sig`, where every version of cosign looks, and found as a referrer too. What is said of a release besides, and
//! signed, is an [`attestation`].
//!
//! Only what a trusted key signed counts, and only for exactly the digest that is asked about. What stands in a payload
//! besides (the repository, who and when) is not believed: releases are copied between registries.
//!
//! Beyond what was agreed there are [`added`] (a second signature beside the first), [`tag`] and [`Found`].

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use self::attestation::PredicateType;
use super::key::{KeyName, PrivateKey, TrustedKey};
use super::{Limits, json};
use crate::code::Code;
use crate::digest::Digest;
use crate::failure::Failure;
use crate::name::clip;
use crate::oci::{self, Annotations, Artifact, Descriptor, Layout};

pub mod attestation;
pub mod dsse;

/// Media types of signatures, which are cosign's.
pub mod media_type {
    /// What a manifest of signatures is: its artifact type.
    pub const SIGNATURE: &str = "application/vnd.dev.cosign.artifact.sig.v1+json";
    /// What is signed.
    pub const PAYLOAD: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
}

/// The annotation of a payload that holds its signature, in base64.
pub const ANNOTATION: &str = "dev.cosignproject.cosign/signature";
/// Signatures that are looked at in one manifest; more are refused.
pub const MOST_SIGNATURES: usize = 64;
/// Bytes of a payload.
pub const LARGEST_PAYLOAD: usize = 64 << 10;

/// What there may be too many of.
pub const SIGNATURES: &str = "signatures";

/// Nesting of a payload.
const DEEPEST_PAYLOAD: usize = 32;
/// What every payload of cosign says that it is.
const TYPE: &str = "cosign container image signature";
/// What images were before OCI; cosign can be told to write it.
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
/// Characters of a signature in base64: about 100 for ours, some hundred for the largest keys there are.
const LONGEST_SIGNATURE: usize = 4096;

/// Why something is not the signature of a release.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// More than is looked at.
    #[error("{count} {what}, at most {most} are looked at")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        most: usize,
    },
    /// Larger than anything of its sort.
    #[error("{what} has {bytes} bytes, at most {most} are read")]
    TooLarge {
        /// What.
        what: &'static str,
        /// How many it has.
        bytes: u64,
        /// How many it may have.
        most: u64,
    },
    /// Not as cosign writes it.
    #[error("{what} cannot be read: {why}")]
    Malformed {
        /// What.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// A signature of something else.
    #[error("the signature is of `{named}`, expected `{wanted}`")]
    OtherDigest {
        /// What was signed.
        named: String,
        /// What was asked about.
        wanted: Digest,
    },
    /// Nobody who is trusted signed it.
    #[error("`{manifest}` is signed by none of {}", list(.trusted))]
    UnknownKey {
        /// What was asked about.
        manifest: Digest,
        /// Who would have counted.
        trusted: Vec<KeyName>,
    },
    /// Signed by a key that does not count any more.
    #[error("`{manifest}` is signed by `{key}`, which counted until {until}")]
    Expired {
        /// What was asked about.
        manifest: Digest,
        /// The key.
        key: KeyName,
        /// Its last moment.
        until: Timestamp,
    },
    /// Fewer signatures than the policy asks for.
    #[error("{}", not_enough(.signed, *.threshold, .trusted))]
    NotEnough {
        /// Who signed.
        signed: Vec<KeyName>,
        /// How many must have.
        threshold: u32,
        /// Of whom.
        trusted: Vec<KeyName>,
    },
    /// Nobody who is trusted said what the policy asks for.
    #[error("`{manifest}` has no attestation of type `{wanted}` by any of {}", list(.trusted))]
    NotAttested {
        /// What was asked about.
        manifest: Digest,
        /// What should have been said of it.
        wanted: PredicateType,
        /// Who would have counted.
        trusted: Vec<KeyName>,
    },
}

/// Names for a message.
fn list(names: &[KeyName]) -> String {
    if names.is_empty() {
        return "no key at all".to_owned();
    }
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

fn not_enough(signed: &[KeyName], threshold: u32, trusted: &[KeyName]) -> String {
    match signed {
        [] => format!("not signed; the policy asks for {threshold} of {}", list(trusted)),
        _ => format!("signed by {} only; the policy asks for {threshold} of {}", list(signed), list(trusted)),
    }
}

impl SignatureError {
    /// The stable code.
    pub fn code(&self) -> Code {
        match self {
            Self::UnknownKey { .. } | Self::Expired { .. } | Self::NotEnough { .. } | Self::NotAttested { .. } => {
                Code::NotSigned
            }
            _ => Code::SignatureWrong,
        }
    }

    /// True if somebody put something there that is no signature of this release, rather than nothing.
    pub fn is_wrong(&self) -> bool {
        self.code() == Code::SignatureWrong
    }

    /// The next step.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::UnknownKey { .. } | Self::NotEnough { .. } => {
                "`forge release sign` signs it; a new key goes into the platform's policy first"
            }
            Self::Expired { .. } => "sign it again with the key that took over",
            Self::OtherDigest { .. } => "it is a signature of another release; find out who put it there",
            Self::NotAttested { .. } => {
                "`forge release sign --predicate FILE --type TYPE` attests it; a new key goes into the platform's policy first"
            }
            Self::TooMany { .. } | Self::TooLarge { .. } | Self::Malformed { .. } => {
                "remove what is wrong (tags `sha256-….sig` and `sha256-….att`, and referrers of the release), and sign again"
            }
        };
        Some(hint.to_owned())
    }
}

impl From<SignatureError> for Failure {
    fn from(error: SignatureError) -> Self {
        let failure = Self::new(error.code(), &error);
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

/// A payload, as cosign writes it: these fields in this order.
#[derive(Serialize)]
struct Payload<'p> {
    critical: Critical<'p>,
    optional: Option<()>,
}

#[derive(Serialize)]
struct Critical<'p> {
    identity: Identity<'p>,
    image: Image<'p>,
    #[serde(rename = "type")]
    sort: &'p str,
}

#[derive(Serialize)]
struct Identity<'p> {
    #[serde(rename = "docker-reference")]
    reference: &'p str,
}

#[derive(Serialize)]
struct Image<'p> {
    #[serde(rename = "docker-manifest-digest")]
    digest: &'p str,
}

/// What is signed: byte for byte what cosign would sign. `reference` is the repository, with its host and without a tag.
pub fn payload(reference: &str, manifest: &Digest) -> Vec<u8> {
    let payload = Payload {
        critical: Critical { identity: Identity { reference }, image: Image { digest: manifest.as_str() }, sort: TYPE },
        optional: None,
    };
    // Texts only: nothing that could fail.
    serde_json::to_vec(&payload).unwrap_or_default()
}

/// The tag under which cosign keeps the signatures of a manifest.
pub fn tag(manifest: &Digest) -> String {
    format!("{}.sig", manifest.as_str().replace(':', "-"))
}

/// Signs a release: puts payload and manifest into the layout, and gives the manifest. It is offered as [`tag`] by whoever
/// calls; where there are signatures already, [`added`] keeps them.
pub fn signed(layout: &mut Layout, subject: &Descriptor, reference: &str, key: &PrivateKey) -> Descriptor {
    let layer = layer(layout, subject, reference, key);
    manifest(layout, subject, &[layer], media_type::SIGNATURE)
}

/// Signs a release that has signatures: the manifest that it gives holds theirs and this one. Signing twice with one key
/// changes nothing. Their payloads are where the old manifest was.
///
/// # Errors
/// When there are as many signatures as are looked at.
pub fn added(
    layout: &mut Layout,
    subject: &Descriptor,
    reference: &str,
    key: &PrivateKey,
    before: &SignatureManifest,
) -> Result<Descriptor, SignatureError> {
    let layer = layer(layout, subject, reference, key);
    let mut layers: Vec<Descriptor> = before.payloads.iter().map(|(descriptor, _)| descriptor.clone()).collect();
    let same = |other: &Descriptor| {
        other.digest == layer.digest && other.annotations.get(ANNOTATION) == layer.annotations.get(ANNOTATION)
    };
    if !layers.iter().any(same) {
        layers.push(layer);
    }
    if layers.len() > MOST_SIGNATURES {
        return Err(SignatureError::TooMany { what: SIGNATURES, count: layers.len(), most: MOST_SIGNATURES });
    }
    Ok(manifest(layout, subject, &layers, media_type::SIGNATURE))
}

fn layer(layout: &mut Layout, subject: &Descriptor, reference: &str, key: &PrivateKey) -> Descriptor {
    let payload = payload(reference, &subject.digest);
    let signature = STANDARD.encode(key.sign(&payload));
    layout.blob(media_type::PAYLOAD, payload).annotated(ANNOTATION, &signature)
}

/// A manifest that speaks of a release, with these signatures or attestations of it: put into the layout, where they need not be.
pub fn manifest(layout: &mut Layout, subject: &Descriptor, layers: &[Descriptor], artifact_type: &str) -> Descriptor {
    let annotations = Annotations::new();
    layout.artifact(&Artifact { subject: Some(subject), ..Artifact::new(artifact_type, layers, &annotations) })
}

/// What a manifest of signatures holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SignatureManifest {
    /// Where each payload is, and the signature over it in base64.
    pub payloads: Vec<(Descriptor, String)>,
}

/// A manifest as OCI writes it, as far as it is looked at.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawManifest {
    schema_version: u32,
    media_type: Option<String>,
    /// There in an index, which is no manifest.
    manifests: Option<Value>,
    layers: Option<Vec<Value>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawLayer {
    media_type: String,
    digest: Digest,
    size: u64,
    annotations: Option<Annotations>,
}

/// Reads a manifest of signatures, ours or cosign's. What it holds besides payloads is not looked at.
///
/// # Errors
/// When it is none, holds more signatures than are looked at, or a payload that nobody would read.
pub fn read(manifest: &[u8], limits: &Limits) -> Result<SignatureManifest, SignatureError> {
    let sort = Sort {
        what: "the manifest of signatures",
        many: SIGNATURES,
        one: "the payload of a signature",
        media_type: media_type::PAYLOAD,
        largest: LARGEST_PAYLOAD as u64,
    };
    let signed = |descriptor: Descriptor| match descriptor.annotations.get(ANNOTATION).cloned() {
        Some(signature) => Ok((descriptor, signature)),
        None => Err(SignatureError::Malformed {
            what: sort.what,
            why: format!("layer `{}` has no annotation `{ANNOTATION}`", descriptor.digest),
        }),
    };
    let payloads = sort.layers(manifest, limits)?.into_iter().map(signed).collect::<Result<_, _>>()?;
    Ok(SignatureManifest { payloads })
}

/// Something that lies beside a release: what it is called in messages, and what its layers are.
struct Sort {
    /// The manifest.
    what: &'static str,
    /// Several of what is in it.
    many: &'static str,
    /// One of them.
    one: &'static str,
    /// What they are.
    media_type: &'static str,
    /// Bytes that one of them may have.
    largest: u64,
}

impl Sort {
    /// The layers of a manifest that are of this sort.
    fn layers(&self, manifest: &[u8], limits: &Limits) -> Result<Vec<Descriptor>, SignatureError> {
        let malformed = |why: String| SignatureError::Malformed { what: self.what, why };
        if manifest.len() > limits.manifest {
            let (bytes, most) = (manifest.len() as u64, limits.manifest as u64);
            return Err(SignatureError::TooLarge { what: self.what, bytes, most });
        }
        let values = json::most_values(limits.manifest);
        let value = json::parse(manifest, limits.depth, values).map_err(|refused| malformed(why(refused)))?;
        if !value.is_object() {
            return Err(malformed("it is not an object".to_owned()));
        }
        let raw: RawManifest = serde_json::from_value(value).map_err(|error| malformed(clip(&error.to_string())))?;
        if raw.manifests.is_some() {
            return Err(malformed("it is an index".to_owned()));
        }
        if raw.schema_version != 2 {
            return Err(malformed(format!("schemaVersion is {}, expected 2", raw.schema_version)));
        }
        if let Some(sort) = raw.media_type.filter(|sort| sort != oci::media_type::MANIFEST && sort != DOCKER_MANIFEST) {
            return Err(malformed(format!("mediaType is `{}`, expected `{}`", clip(&sort), oci::media_type::MANIFEST)));
        }
        let layers = raw.layers.unwrap_or_default();
        if layers.len() > MOST_SIGNATURES {
            return Err(SignatureError::TooMany { what: self.many, count: layers.len(), most: MOST_SIGNATURES });
        }
        let mut found = Vec::new();
        for layer in layers {
            if !layer.is_object() {
                return Err(malformed("a layer is not an object".to_owned()));
            }
            let layer: RawLayer = serde_json::from_value(layer).map_err(|error| malformed(clip(&error.to_string())))?;
            if layer.media_type != self.media_type {
                continue;
            }
            if layer.size > self.largest {
                let (bytes, most) = (layer.size, self.largest);
                return Err(SignatureError::TooLarge { what: self.one, bytes, most });
            }
            found.push(Descriptor {
                media_type: layer.media_type,
                digest: layer.digest,
                size: layer.size,
                architecture: None,
                artifact_type: None,
                annotations: layer.annotations.unwrap_or_default(),
            });
        }
        Ok(found)
    }
}

/// A signature that was found beside a release: bytes that are already those of their descriptor.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Found {
    /// What was signed.
    pub payload: Vec<u8>,
    /// The signature over it, in base64.
    pub signature: String,
}

/// Whose signature of exactly this manifest it is.
///
/// # Errors
/// When it is none, is of something else, or of nobody whose signatures count now.
pub fn verify<'k>(
    payload: &[u8],
    signature: &str,
    manifest: &Digest,
    keys: &'k [TrustedKey],
    now: Timestamp,
) -> Result<&'k TrustedKey, SignatureError> {
    const WHAT: &str = "the payload of a signature";
    if payload.len() > LARGEST_PAYLOAD {
        let (bytes, most) = (payload.len() as u64, LARGEST_PAYLOAD as u64);
        return Err(SignatureError::TooLarge { what: WHAT, bytes, most });
    }
    let signature = decoded(signature)?;
    let malformed = |why: String| SignatureError::Malformed { what: WHAT, why };
    let value = json::parse(payload, DEEPEST_PAYLOAD, LARGEST_PAYLOAD).map_err(|refused| malformed(why(refused)))?;
    let named = claim(&value).map_err(malformed)?;
    if named != manifest.as_str() {
        return Err(SignatureError::OtherDigest { named: clip(named), wanted: manifest.clone() });
    }
    signer(&Sha256::digest(payload), &signature, keys, now).map_err(|nobody| match nobody {
        Nobody::Unknown => SignatureError::UnknownKey { manifest: manifest.clone(), trusted: names(keys) },
        Nobody::Expired(key, until) => SignatureError::Expired { manifest: manifest.clone(), key, until },
    })
}

/// The digest that a payload names. `critical` must be understood wholly, so nothing else may stand in it.
fn claim(payload: &Value) -> Result<&str, String> {
    let payload = fields(Some(payload), "the payload", &["critical", "optional"])?;
    if payload.get("optional").is_some_and(|optional| !optional.is_null() && !optional.is_object()) {
        return Err("`optional` is not an object".to_owned());
    }
    let critical = fields(payload.get("critical"), "`critical`", &["identity", "image", "type"])?;
    let sort = text(critical, "type")?;
    if sort != TYPE {
        return Err(format!("type is `{}`, expected `{TYPE}`", clip(sort)));
    }
    let identity = fields(critical.get("identity"), "`identity`", &["docker-reference"])?;
    text(identity, "docker-reference")?;
    text(fields(critical.get("image"), "`image`", &["docker-manifest-digest"])?, "docker-manifest-digest")
}

/// The fields of an object that has no others than these.
fn fields<'v>(value: Option<&'v Value>, what: &str, known: &[&str]) -> Result<&'v Map<String, Value>, String> {
    let Some(Value::Object(fields)) = value else { return Err(format!("{what} is not an object")) };
    match fields.keys().find(|field| !known.contains(&field.as_str())) {
        Some(unknown) => Err(format!("unknown field `{}` in {what}", clip(unknown))),
        None => Ok(fields),
    }
}

fn text<'v>(fields: &'v Map<String, Value>, name: &str) -> Result<&'v str, String> {
    fields.get(name).and_then(Value::as_str).ok_or_else(|| format!("`{name}` is not a text"))
}

/// Why bytes are not taken as JSON, for a message.
fn why(refused: json::Refused) -> String {
    match refused {
        json::Refused::Syntax(why) => format!("it is not JSON: {}", clip(&why)),
        json::Refused::Ambiguous(why) | json::Refused::Beyond(why) => clip(&why),
    }
}

/// A signature in base64.
fn decoded(signature: &str) -> Result<Vec<u8>, SignatureError> {
    const WHAT: &str = "a signature";
    if signature.len() > LONGEST_SIGNATURE {
        let (bytes, most) = (signature.len() as u64, LONGEST_SIGNATURE as u64);
        return Err(SignatureError::TooLarge { what: WHAT, bytes, most });
    }
    STANDARD
        .decode(signature.trim())
        .map_err(|_| SignatureError::Malformed { what: WHAT, why: "it is not base64".to_owned() })
}

/// Why there is no signer.
enum Nobody {
    Unknown,
    Expired(KeyName, Timestamp),
}

/// The key that signed the bytes with this hash and counts.
fn signer<'k>(hash: &[u8], signature: &[u8], keys: &'k [TrustedKey], now: Timestamp) -> Result<&'k TrustedKey, Nobody> {
    let mut nobody = Nobody::Unknown;
    for key in keys.iter().filter(|key| key.key.verifies_hash(hash, signature)) {
        match key.until {
            Some(until) if !key.counts(now) => nobody = Nobody::Expired(key.name.clone(), until),
            _ => return Ok(key),
        }
    }
    Err(nobody)
}

/// What the keys are called.
pub(super) fn names(keys: &[TrustedKey]) -> Vec<KeyName> {
    keys.iter().map(|key| key.name.clone()).collect()
}

#[cfg(test)]
mod tests;
