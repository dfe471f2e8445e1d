//! Signatures, envelopes, keys and policies: nothing panics, and nothing is taken for a signature of a release that nobody signed.
#![no_main]
use forge_core::digest::Digest;
use forge_core::release::Limits;
use forge_core::release::key::{PrivateKey, PublicKey, TrustedKey};
use forge_core::release::policy::SignaturePolicy;
use forge_core::release::signature::{MOST_SIGNATURES, dsse, read, verify};
use libfuzzer_sys::fuzz_target;

const KEY: &str = include_str!("../../crates/forge-core/tests/keys/ci.pub");

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits::default();
    let keys =
        [TrustedKey { name: "ci".parse().expect("a name"), key: PublicKey::read(KEY).expect("a key"), until: None }];
    let now = || "2026-01-01T00:00:00Z".parse().expect("a time");
    if let Ok(manifest) = read(bytes, &limits) {
        assert!(manifest.payloads.len() <= MOST_SIGNATURES);
    }
    // Payload and signature, if there is a line between them.
    let mut parts = bytes.splitn(2, |byte| *byte == b'\n');
    let (first, second) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    if let Ok(signature) = std::str::from_utf8(first) {
        assert!(verify(second, signature, &Digest::of(b"never signed"), &keys, now()).is_err());
    }
    assert!(keys.iter().all(|key| !key.key.verifies(b"never signed", bytes)));
    assert!(dsse::verify(bytes, "never/signed", &keys, now(), &limits).is_err());
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
