//! Envelopes (DSSE) around statements (in-toto): what is said of a release beside that it is ours, such as evidence. The
//! signature covers the type of the payload as well, so that a statement of one sort is never taken for another.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Nobody, SIGNATURES, SignatureError, decoded, json, signer, why};
use crate::digest::Digest;
use crate::name::clip;
use crate::release::Limits;
use crate::release::key::{PrivateKey, TrustedKey};
use crate::release::policy::MOST_KEYS;

/// The media type of an envelope in a registry.
pub const ENVELOPE: &str = "application/vnd.dsse.envelope.v1+json";
/// The type of a payload that is a statement of in-toto.
pub const STATEMENT: &str = "application/vnd.in-toto+json";

/// An envelope, for a message.
pub const WHAT: &str = "the envelope";

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    payload_type: String,
    payload: String,
    signatures: Vec<Signature>,
}

#[derive(Serialize, Deserialize)]
struct Signature {
    /// A hint, which is not believed.
    #[serde(default)]
    keyid: String,
    sig: String,
}

/// What is signed: type and payload with their lengths, so that neither can reach into the other.
fn encoding(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let mut bytes = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len()).into_bytes();
    bytes.extend_from_slice(payload);
    bytes
}

/// Puts a payload into an envelope.
pub fn sign(payload_type: &str, payload: &[u8], key: &PrivateKey) -> Vec<u8> {
    let signature = key.sign(&encoding(payload_type, payload));
    let envelope = Envelope {
        payload_type: payload_type.to_owned(),
        payload: STANDARD.encode(payload),
        signatures: vec![Signature { keyid: String::new(), sig: STANDARD.encode(signature) }],
    };
    // Texts only: nothing that could fail.
    serde_json::to_vec(&envelope).unwrap_or_default()
}

/// The payload of an envelope, and the keys that signed it and count, each once.
///
/// # Errors
/// When it is no envelope, holds something of another type, or nobody who is trusted signed it.
pub fn verify<'k>(
    envelope: &[u8],
    payload_type: &str,
    keys: &'k [TrustedKey],
    now: Timestamp,
    limits: &Limits,
) -> Result<(Vec<u8>, Vec<&'k TrustedKey>), SignatureError> {
    let malformed = |why: String| SignatureError::Malformed { what: WHAT, why };
    if envelope.len() > limits.manifest {
        let (bytes, most) = (envelope.len() as u64, limits.manifest as u64);
        return Err(SignatureError::TooLarge { what: WHAT, bytes, most });
    }
    let values = json::most_values(limits.manifest);
    let value = json::parse(envelope, limits.depth, values).map_err(|refused| malformed(why(refused)))?;
    if !value.is_object() {
        return Err(malformed("it is not an object".to_owned()));
    }
    let envelope: Envelope = serde_json::from_value(value).map_err(|error| malformed(clip(&error.to_string())))?;
    if envelope.payload_type != payload_type {
        let found = clip(&envelope.payload_type);
        return Err(malformed(format!("payloadType is `{found}`, expected `{payload_type}`")));
    }
    // Of those that count there is one for each key at most, and each may have to be tried with every key.
    let (count, most) = (envelope.signatures.len(), MOST_KEYS as usize);
    if count > most {
        return Err(SignatureError::TooMany { what: SIGNATURES, count, most });
    }
    let payload = STANDARD.decode(&envelope.payload).map_err(|_| malformed("the payload is not base64".to_owned()))?;
    let signed = Sha256::digest(encoding(payload_type, &payload));
    let mut found: Vec<&'k TrustedKey> = Vec::new();
    let mut seen: BTreeSet<Digest> = BTreeSet::new();
    let mut expired = None;
    for signature in &envelope.signatures {
        match signer(&signed, &decoded(&signature.sig)?, keys, now) {
            Ok(key) if seen.insert(key.key.id()) => found.push(key),
            Ok(_) | Err(Nobody::Unknown) => {}
            Err(Nobody::Expired(key, until)) => expired = Some((key, until)),
        }
    }
    if !found.is_empty() {
        return Ok((payload, found));
    }
    let manifest = Digest::of(&payload);
    Err(match expired {
        Some((key, until)) => SignatureError::Expired { manifest, key, until },
        None => SignatureError::UnknownKey { manifest, trusted: super::names(keys) },
    })
}
