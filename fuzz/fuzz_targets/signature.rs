//! Signatures, attestations, envelopes, keys and policies: nothing panics, and nothing is taken for a signature of a release that nobody signed.
#![no_main]
use forge_core::digest::Digest;
use forge_core::release::Limits;
use forge_core::release::key::{PrivateKey, PublicKey, TrustedKey};
use forge_core::release::policy::SignaturePolicy;
use forge_core::release::signature::{MOST_SIGNATURES, attestation, dsse, read, verify};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

const KEY: &str = include_str!("../../crates/forge-core/tests/keys/ci.pub");
const OWN: &str = include_str!("../../crates/forge-core/tests/keys/managers.pem");

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits::default();
    let keys =
        [TrustedKey { name: "ci".parse().expect("a name"), key: PublicKey::read(KEY).expect("a key"), until: None }];
    let now = || "2026-01-01T00:00:00Z".parse().expect("a time");
    if let Ok(manifest) = read(bytes, &limits) {
        assert!(manifest.payloads.len() <= MOST_SIGNATURES);
    }
    if let Ok(envelopes) = attestation::read(bytes, &limits) {
        assert!(envelopes.len() <= MOST_SIGNATURES);
        assert!(envelopes.iter().all(|envelope| envelope.media_type == dsse::ENVELOPE));
    }
    // Payload and signature, if there is a line between them.
    let mut parts = bytes.splitn(2, |byte| *byte == b'\n');
    let (first, second) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    if let Ok(signature) = std::str::from_utf8(first) {
        assert!(verify(second, signature, &Digest::of(b"never signed"), &keys, now()).is_err());
    }
    assert!(keys.iter().all(|key| !key.key.verifies(b"never signed", bytes)));
    assert!(dsse::verify(bytes, "never/signed", &keys, now(), &limits).is_err());
    assert!(attestation::verify(bytes, &Digest::of(b"never signed"), &keys, now(), &limits).is_err());
    // What a key of ours signed is still only a statement if it is one of this release.
    let own = PrivateKey::read(OWN).expect("a key");
    let trusted = [TrustedKey { name: "own".parse().expect("a name"), key: own.public(), until: None }];
    let envelope = dsse::sign(dsse::STATEMENT, bytes, &own);
    let named = Digest::of(b"a release");
    if let Ok(found) = attestation::verify(&envelope, &named, &trusted, now(), &limits) {
        let statement: Value = serde_json::from_slice(bytes).expect("a statement is JSON");
        let subjects = statement["subject"].as_array().expect("a statement has subjects");
        assert!(subjects.iter().any(|subject| subject["digest"]["sha256"] == named.short(64)));
        assert_eq!(statement["predicateType"], found.sort.as_str());
        assert_eq!(found.keys.len(), 1);
        assert!(attestation::verify(&envelope, &named, &keys, now(), &limits).is_err());
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = PrivateKey::read(text);
        if let Ok(key) = PublicKey::read(text) {
            assert_eq!(key.id(), PublicKey::read(text).expect("read once").id());
        }
    }
    if let Ok(policy) = SignaturePolicy::read("policy.yaml", bytes) {
        let tightened = policy.tightened(&policy);
        assert!(tightened.is_ok_and(|tightened| tightened.threshold() == policy.threshold()) || policy.keys.is_empty());
    }
});
