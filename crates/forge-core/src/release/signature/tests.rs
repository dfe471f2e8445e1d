//! Signatures against vectors: payloads and signatures that `openssl` made, and everything that is nearly one.

use serde_json::json;

use super::*;
use crate::oci::Entry;
use crate::release::key::PublicKey;

const REFERENCE: &str = "registry.example.com/releases/shop/api";
/// What cosign signs for this repository and the digest of `a manifest`.
const PAYLOAD: &str = r#"{"critical":{"identity":{"docker-reference":"registry.example.com/releases/shop/api"},"image":{"docker-manifest-digest":"sha256:e59625a822497c164d60705eb3fd6975c375ca213b8140137a826a77790986a9"},"type":"cosign container image signature"},"optional":null}"#;
/// `openssl dgst -sha256 -sign ci.pem` over it, verified by `openssl dgst -verify ci.pub`.
const BY_OPENSSL: &str =
    "MEUCIQCalR0Zc/H1ePaCMKxV98J9EE+C5c5iKxjd/ust+mRpHQIgdwmRqeSAf+q5qe8/pbjVsr8mnvHfx1awdnxZ/5KmeSs=";
/// The same by `managers.pem`.
const BY_MANAGERS: &str =
    "MEYCIQC78Z0m0aTEEXcKksm78Vv/F14TBGaZxnGOocAzwM30SAIhAK30DKZuJWmEB9MFQVyrH/jBsQcJjpduSMc9OpCfYjht";
/// By `ci.pem` as RFC 6979 has it, made by another implementation (pyca/cryptography, `deterministic_signing`).
const DETERMINISTIC: &str =
    "MEUCIQD0g3I1AQ5/hMdq3d6HYlm9lngUUAfxGER4sAH8royqegIgNplBFSW3a0tZirR3hYwwmc+qDzbc8yEw3GfqgVsLzBs=";

fn ci() -> PrivateKey {
    PrivateKey::read(include_str!("../../../tests/keys/ci.pem")).unwrap()
}

fn trusted() -> Vec<TrustedKey> {
    [("ci", include_str!("../../../tests/keys/ci.pub")), ("managers", include_str!("../../../tests/keys/managers.pub"))]
        .map(|(name, pem)| TrustedKey { name: name.parse().unwrap(), key: PublicKey::read(pem).unwrap(), until: None })
        .into()
}

fn digest() -> Digest {
    Digest::of(b"a manifest")
}

fn now() -> Timestamp {
    "2026-07-01T12:00:00Z".parse().unwrap()
}

fn subject() -> Descriptor {
    Layout::default().blob(oci::media_type::MANIFEST, b"a manifest".to_vec())
}

/// The blob of a layout.
fn blob(layout: Layout, digest: &Digest) -> Vec<u8> {
    match layout.tree().get(&format!("blobs/sha256/{}", digest.short(64))) {
        Some(Entry::File { content, .. }) => content.to_vec(),
        other => panic!("{digest}: {other:?}"),
    }
}

#[test]
fn a_payload_is_what_cosign_would_sign() {
    assert_eq!(String::from_utf8(payload(REFERENCE, &digest())).unwrap(), PAYLOAD);
    assert_eq!(STANDARD.encode(ci().sign(PAYLOAD.as_bytes())), DETERMINISTIC);
}

#[test]
fn signatures_of_openssl_verify_and_say_whose_they_are() {
    let keys = trusted();
    for (signature, name) in [(BY_OPENSSL, "ci"), (DETERMINISTIC, "ci"), (BY_MANAGERS, "managers")] {
        let key = verify(PAYLOAD.as_bytes(), signature, &digest(), &keys, now()).unwrap();
        assert_eq!(key.name.as_str(), name);
    }
    // White space around an annotation is nobody's fault.
    assert!(verify(PAYLOAD.as_bytes(), &format!("{BY_OPENSSL}\n"), &digest(), &keys, now()).is_ok());
}

#[test]
fn a_signature_counts_for_one_digest_one_payload_and_trusted_keys_only() {
    let keys = trusted();
    let at = |payload: &str, signature: &str, digest: &Digest, keys: &[TrustedKey]| {
        verify(payload.as_bytes(), signature, digest, keys, now()).map(|key| key.name.clone())
    };
    let other = Digest::of(b"another manifest");
    assert_eq!(
        at(PAYLOAD, BY_OPENSSL, &other, &keys),
        Err(SignatureError::OtherDigest { named: digest().to_string(), wanted: other.clone() })
    );
    let unknown = |trusted: &[TrustedKey]| SignatureError::UnknownKey { manifest: digest(), trusted: names(trusted) };
    assert_eq!(at(PAYLOAD, BY_OPENSSL, &digest(), &keys[1..]), Err(unknown(&keys[1..])));
    assert_eq!(at(PAYLOAD, BY_OPENSSL, &digest(), &[]), Err(unknown(&[])));
    // The same claim in other bytes was not signed.
    assert_eq!(at(&PAYLOAD.replace(":null", ": null"), BY_OPENSSL, &digest(), &keys), Err(unknown(&keys)));
    // Rewritten for the other release, the digest fits and the signature does not.
    let rewritten = PAYLOAD.replace(digest().as_str(), other.as_str());
    let trusted = names(&keys);
    assert_eq!(at(&rewritten, BY_OPENSSL, &other, &keys), Err(SignatureError::UnknownKey { manifest: other, trusted }));
}

#[test]
fn a_key_that_ended_does_not_count_and_is_named() {
    let until = now();
    let mut keys = trusted();
    keys[0].until = Some(until);
    let expired = SignatureError::Expired { manifest: digest(), key: "ci".parse().unwrap(), until };
    assert_eq!(verify(PAYLOAD.as_bytes(), BY_OPENSSL, &digest(), &keys, until), Err(expired.clone()));
    assert_eq!(expired.code(), Code::NotSigned);
    let before = "2026-07-01T11:59:59Z".parse().unwrap();
    assert!(verify(PAYLOAD.as_bytes(), BY_OPENSSL, &digest(), &keys, before).is_ok());
    // The same key under another name that still counts does.
    let again = TrustedKey { name: "again".parse().unwrap(), key: keys[0].key.clone(), until: None };
    keys.push(again);
    assert_eq!(verify(PAYLOAD.as_bytes(), BY_OPENSSL, &digest(), &keys, until).unwrap().name.as_str(), "again");
}

#[test]
fn payloads_that_are_none_are_wrong_even_if_a_trusted_key_signed_them() {
    let keys = trusted();
    let long = PAYLOAD.replace("null", &format!("{{\"x\":\"{}\"}}", "y".repeat(LARGEST_PAYLOAD)));
    let deep = PAYLOAD.replace("null", &format!("{{\"x\":{}{}}}", "[".repeat(100), "]".repeat(100)));
    let cases: Vec<(String, &str)> = vec![
        (String::new(), "JSON"),
        ("null".to_owned(), "not an object"),
        ("[]".to_owned(), "not an object"),
        ("{}".to_owned(), "`critical` is not an object"),
        (PAYLOAD.replace("cosign container", "atomic container"), "type is `atomic"),
        (PAYLOAD.replace("\"type\":\"cosign container image signature\"", "\"type\":1"), "`type` is not a text"),
        (PAYLOAD.replace("\"type\":", "\"extra\":1,\"type\":"), "unknown field"),
        (PAYLOAD.replace("\"critical\":", "\"critical\":{},\"critical\":"), "critical"),
        (PAYLOAD.replace("docker-manifest-digest", "docker-manifest-Digest"), "unknown field"),
        (
            PAYLOAD.replace("\"image\":{", "\"image\":{\"docker-manifest-digest\":\"sha256:00\","),
            "docker-manifest-digest",
        ),
        (format!("{PAYLOAD}{PAYLOAD}"), "cannot be read"),
        (format!("{PAYLOAD}\u{0}"), "cannot be read"),
        (PAYLOAD.replace("sha256:e5", "sha256:E5"), "expected `sha256:e5"),
        (PAYLOAD.replace("sha256:e5", "sha512:e5"), "expected `sha256:e5"),
        (PAYLOAD.replace("a9\"", "a9 \""), "expected `sha256:e5"),
        (PAYLOAD.replace("null", "[]"), "`optional` is not an object"),
        // The same in the other form that derived readers take.
        (format!(r#"[[["{REFERENCE}"],["{}"],"cosign container image signature"],null]"#, digest()), "not an object"),
        (long, "at most"),
        (deep, "cannot be read"),
    ];
    for (payload, expected) in cases {
        let signature = STANDARD.encode(ci().sign(payload.as_bytes()));
        let error = verify(payload.as_bytes(), &signature, &digest(), &keys, now()).unwrap_err();
        assert_eq!(error.code(), Code::SignatureWrong, "{payload}: {error}");
        assert!(error.to_string().contains(expected), "{}: {error}, expected `{expected}`", clip(&payload));
    }
}

#[test]
fn what_others_put_beside_the_claim_is_allowed_and_not_believed() {
    let keys = trusted();
    for payload in [
        PAYLOAD.replace("null", r#"{"creator":"cosign","timestamp":1700000000}"#),
        PAYLOAD.replace(",\"optional\":null", ""),
        PAYLOAD.replace(REFERENCE, "mirror.example.org/elsewhere"),
        PAYLOAD.replace(',', ", ").replace(':', ": ").replace("sha256: ", "sha256:"),
    ] {
        let signature = STANDARD.encode(ci().sign(payload.as_bytes()));
        let key = verify(payload.as_bytes(), &signature, &digest(), &keys, now()).unwrap();
        assert_eq!(key.name.as_str(), "ci", "{payload}");
    }
}

#[test]
fn signatures_that_are_none_are_told_from_those_of_others() {
    let keys = trusted();
    let long = "A".repeat(LONGEST_SIGNATURE + 4);
    let rsa = STANDARD.encode([7; 256]);
    let raw = STANDARD.encode([1; 64]);
    let cases: &[(&str, Code)] = &[
        ("not base64!", Code::SignatureWrong),
        (&BY_OPENSSL[1..], Code::SignatureWrong),
        (&long, Code::SignatureWrong),
        // By keys that we do not know, of algorithms that we do not have.
        ("", Code::NotSigned),
        (&rsa, Code::NotSigned),
        (&raw, Code::NotSigned),
    ];
    for (signature, code) in cases {
        let error = verify(PAYLOAD.as_bytes(), signature, &digest(), &keys, now()).unwrap_err();
        assert_eq!(error.code(), *code, "{signature}: {error}");
    }
    // One bit, anywhere.
    let good = STANDARD.decode(BY_OPENSSL).unwrap();
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(verify(PAYLOAD.as_bytes(), &STANDARD.encode(&bad), &digest(), &keys, now()).is_err(), "bit {bit}");
    }
}

#[test]
fn a_signed_release_reads_back_and_says_of_what_it_speaks() {
    let make = || {
        let mut layout = Layout::default();
        let made = signed(&mut layout, &subject(), REFERENCE, &ci());
        (made.clone(), blob(layout, &made.digest))
    };
    let (made, bytes) = make();
    assert_eq!(made.artifact_type.as_deref(), Some(media_type::SIGNATURE));
    assert_eq!(tag(&subject().digest), format!("sha256-{}.sig", subject().digest.short(64)));
    let value: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(value["artifactType"], media_type::SIGNATURE);
    assert_eq!(value["subject"]["digest"], json!(subject().digest));
    assert_eq!(value["layers"][0]["mediaType"], media_type::PAYLOAD);
    assert_eq!(value["layers"][0]["annotations"][ANNOTATION], DETERMINISTIC);
    let read = read(&bytes, &Limits::default()).unwrap();
    let [(payload, signature)] = read.payloads.as_slice() else { panic!("{read:?}") };
    assert_eq!(payload.digest, Digest::of(PAYLOAD.as_bytes()));
    assert_eq!(payload.size, PAYLOAD.len() as u64);
    assert!(verify(PAYLOAD.as_bytes(), signature, &subject().digest, &trusted(), now()).is_ok());
    assert_eq!(make(), (made, bytes), "the same input, the same bytes");
}

#[test]
fn another_signature_stands_beside_the_first_and_the_same_one_does_not_stand_twice() {
    let managers = PrivateKey::read(include_str!("../../../tests/keys/managers.pem")).unwrap();
    let mut layout = Layout::default();
    let first = signed(&mut layout, &subject(), REFERENCE, &ci());
    let mut before = read(&blob(layout, &first.digest), &Limits::default()).unwrap();
    // What cosign keeps there beside the signature stays.
    before.payloads[0].0.annotations.insert("dev.sigstore.cosign/bundle".to_owned(), "{}".to_owned());
    let mut layout = Layout::default();
    let second = added(&mut layout, &subject(), REFERENCE, &managers, &before).unwrap();
    let both = read(&blob(layout, &second.digest), &Limits::default()).unwrap();
    assert_eq!(both.payloads.len(), 2);
    assert_eq!(both.payloads[0], before.payloads[0]);
    let mut layout = Layout::default();
    let third = added(&mut layout, &subject(), REFERENCE, &managers, &both).unwrap();
    assert_eq!(third, second);
    let one = both.payloads[0].clone();
    let full = SignatureManifest { payloads: vec![one; MOST_SIGNATURES] };
    assert_eq!(
        added(&mut Layout::default(), &subject(), REFERENCE, &managers, &full),
        Err(SignatureError::TooMany { what: SIGNATURES, count: MOST_SIGNATURES + 1, most: MOST_SIGNATURES })
    );
}

fn layer(annotations: &Value) -> Value {
    json!({"mediaType": media_type::PAYLOAD, "digest": Digest::of(b"x"), "size": 1, "annotations": annotations})
}

#[test]
fn manifests_of_signatures_are_read_within_limits() {
    let layer = layer(&json!({ANNOTATION: "AA=="}));
    let manifest =
        |layers: Value| json!({"schemaVersion": 2, "mediaType": oci::media_type::MANIFEST, "layers": layers});
    let many = |count: usize| Value::Array(vec![layer.clone(); count]);
    let with = |field: &str, value: Value| {
        let mut layer = layer.clone();
        layer[field] = value;
        manifest(json!([layer]))
    };
    let good = [
        manifest(json!([])),
        manifest(Value::Null),
        manifest(json!([layer])),
        manifest(many(MOST_SIGNATURES)),
        // What cosign of old writes, and told so.
        json!({"schemaVersion": 2, "layers": [layer], "config": {"mediaType": "application/vnd.oci.image.config.v1+json"}}),
        json!({"schemaVersion": 2, "mediaType": DOCKER_MANIFEST, "layers": [layer]}),
        // Something else beside the signatures.
        manifest(json!([layer, {"mediaType": "text/plain", "digest": Digest::of(b"y"), "size": 1_u64 << 40}])),
    ];
    for (good, count) in good.iter().zip([0, 0, 1, MOST_SIGNATURES, 1, 1, 1]) {
        let read = read(good.to_string().as_bytes(), &Limits::default()).unwrap();
        assert_eq!(read.payloads.len(), count, "{good}");
    }
    let text = manifest(many(1)).to_string();
    let bad: Vec<(String, &str)> = vec![
        (String::new(), "JSON"),
        ("[2,null,null,[]]".to_owned(), "not an object"),
        ("{}".to_owned(), "schemaVersion"),
        (manifest(json!([[media_type::PAYLOAD, digest(), 1, {}]])).to_string(), "a layer is not an object"),
        (manifest(many(MOST_SIGNATURES + 1)).to_string(), "65 signatures, at most 64"),
        (manifest(many(10_000)).to_string(), "10000 signatures, at most 64"),
        (json!({"schemaVersion": 2, "manifests": []}).to_string(), "an index"),
        (json!({"schemaVersion": 1, "layers": []}).to_string(), "schemaVersion is 1"),
        (json!({"schemaVersion": 2, "mediaType": oci::media_type::INDEX}).to_string(), "mediaType is"),
        (with("digest", json!("sha512:00")).to_string(), "not a digest"),
        (with("digest", json!("sha256:../../etc")).to_string(), "not a digest"),
        (with("size", json!(-1)).to_string(), "invalid value"),
        (with("size", json!(LARGEST_PAYLOAD + 1)).to_string(), "at most"),
        (with("size", json!(u64::MAX)).to_string(), "at most"),
        (with("annotations", Value::Null).to_string(), "no annotation"),
        (with("annotations", json!({"x": "y"})).to_string(), "no annotation"),
        (with("annotations", json!({ANNOTATION: 1})).to_string(), "invalid type"),
        (text.replacen("\"size\":1", "\"size\":1,\"size\":2", 1), "size"),
        (text.replacen("\"layers\":", "\"layers\":[],\"layers\":", 1), "layers"),
        (format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)), "cannot be read"),
        (" ".repeat(Limits::default().manifest + 1), "at most"),
    ];
    for (bad, expected) in bad {
        let error = read(bad.as_bytes(), &Limits::default()).unwrap_err();
        assert_eq!(error.code(), Code::SignatureWrong);
        assert!(error.to_string().contains(expected), "{}: {error}, expected `{expected}`", clip(&bad));
    }
}

mod envelopes {
    use super::*;
    use crate::release::policy::MOST_KEYS;
    use crate::release::signature::dsse;

    const STATEMENT: &[u8] = br#"{"_type":"https://in-toto.io/Statement/v1","subject":[]}"#;

    #[test]
    fn an_envelope_gives_its_payload_back_to_those_who_trust_its_key() {
        let keys = trusted();
        let limits = Limits::default();
        let made = dsse::sign(dsse::STATEMENT, STATEMENT, &ci());
        let value: Value = serde_json::from_slice(&made).unwrap();
        assert_eq!(value["payloadType"], dsse::STATEMENT);
        // What is signed is the encoding of the standard.
        let pae = [b"DSSEv1 28 application/vnd.in-toto+json 56 ".as_slice(), STATEMENT].concat();
        let signature = STANDARD.decode(value["signatures"][0]["sig"].as_str().unwrap()).unwrap();
        assert!(ci().public().verifies(&pae, &signature));
        let (payload, signers) = dsse::verify(&made, dsse::STATEMENT, &keys, now(), &limits).unwrap();
        assert_eq!(payload, STATEMENT);
        assert_eq!(signers.iter().map(|key| key.name.as_str()).collect::<Vec<_>>(), ["ci"]);
        let unknown = dsse::verify(&made, dsse::STATEMENT, &keys[1..], now(), &limits).unwrap_err();
        assert_eq!(unknown.code(), Code::NotSigned);
        let mut ended = keys.clone();
        ended[0].until = Some(now());
        let expired = dsse::verify(&made, dsse::STATEMENT, &ended, now(), &limits).unwrap_err();
        assert!(matches!(expired, SignatureError::Expired { .. }), "{expired}");
    }

    #[test]
    fn an_envelope_that_was_changed_is_not_believed() {
        let keys = trusted();
        let limits = Limits::default();
        let made: Value = serde_json::from_slice(&dsse::sign(dsse::STATEMENT, STATEMENT, &ci())).unwrap();
        let with = |field: &str, value: Value| {
            let mut envelope = made.clone();
            envelope[field] = value;
            envelope.to_string()
        };
        let twice = json!([made["signatures"][0], made["signatures"][0]]);
        let (_, signers) = {
            let envelope = with("signatures", twice);
            dsse::verify(envelope.as_bytes(), dsse::STATEMENT, &keys, now(), &limits).unwrap()
        };
        assert_eq!(signers.len(), 1, "one key counts once");
        let signatures = |count: u32| Value::Array((0..count).map(|_| made["signatures"][0].clone()).collect());
        let envelope = with("signatures", signatures(MOST_KEYS));
        assert!(dsse::verify(envelope.as_bytes(), dsse::STATEMENT, &keys, now(), &limits).is_ok());
        // More than there can be keys of a policy; each would have to be tried with every key.
        let many = signatures(MOST_KEYS + 1);
        for (envelope, code) in [
            (with("payload", json!(STANDARD.encode(b"{}"))), Code::NotSigned),
            (with("signatures", json!([])), Code::NotSigned),
            (with("payloadType", json!("text/plain")), Code::SignatureWrong),
            (with("payload", json!("!")), Code::SignatureWrong),
            (with("signatures", json!([{"sig": "!"}])), Code::SignatureWrong),
            (with("signatures", many), Code::SignatureWrong),
            ("{}".to_owned(), Code::SignatureWrong),
            (String::new(), Code::SignatureWrong),
        ] {
            let error = dsse::verify(envelope.as_bytes(), dsse::STATEMENT, &keys, now(), &limits).unwrap_err();
            assert_eq!(error.code(), code, "{envelope}: {error}");
        }
    }
}

mod attestations {
    use super::*;
    use crate::release::signature::attestation::{self, Predicate, PredicateType};
    use crate::release::signature::dsse;

    const SLSA: &str = "https://slsa.dev/provenance/v1";
    /// What `cosign attest --predicate` makes of a file with `tested` in it, for this repository and digest.
    const OF_COSIGN: &str = r#"{"_type":"https://in-toto.io/Statement/v0.1","predicateType":"https://cosign.sigstore.dev/attestation/v1","subject":[{"name":"registry.example.com/releases/shop/api","digest":{"sha256":"e59625a822497c164d60705eb3fd6975c375ca213b8140137a826a77790986a9"}}],"predicate":{"Data":"tested\n","Timestamp":"2026-06-01T10:00:00Z"}}"#;
    /// `openssl dgst -sha256 -sign ci.pem` over the encoding of it, verified by `openssl dgst -verify ci.pub`.
    const BY_OPENSSL: &str =
        "MEQCIB+NrJaNBWiaXbscqIuu2Mk3xz2dVr0fkssL+/A64B0SAiAiLBl3hs/x1MSXeGJ1k4SM6cOxhvKuC4t2S7V0sa2IOQ==";

    fn slsa() -> PredicateType {
        SLSA.parse().unwrap()
    }

    fn predicate(text: &str) -> Predicate {
        Predicate::read(slsa(), text.as_bytes(), &Limits::default()).unwrap()
    }

    /// An attestation of these bytes, and the manifest that holds it.
    fn made(predicate: &Predicate, before: Vec<Descriptor>) -> Option<(Vec<u8>, Vec<u8>)> {
        let mut layout = Layout::default();
        let limits = Limits::default();
        let made =
            attestation::added(&mut layout, &subject(), "shop/api", predicate, &ci(), before, &limits).unwrap()?;
        assert_eq!(made.artifact_type.as_deref(), Some("application/vnd.in-toto+json"));
        let tree = layout.tree();
        let bytes = |digest: &Digest| match tree.get(&format!("blobs/sha256/{}", digest.short(64))) {
            Some(Entry::File { content, .. }) => content.to_vec(),
            other => panic!("{digest}: {other:?}"),
        };
        let manifest = bytes(&made.digest);
        let last = attestation::read(&manifest, &limits).unwrap().pop().unwrap();
        Some((bytes(&last.digest), manifest))
    }

    /// An envelope around a statement, signed by `ci`.
    fn around(statement: &str) -> Vec<u8> {
        dsse::sign(dsse::STATEMENT, statement.as_bytes(), &ci())
    }

    fn verified(envelope: &[u8], keys: &[TrustedKey]) -> Result<(String, Vec<String>), SignatureError> {
        let found = attestation::verify(envelope, &digest(), keys, now(), &Limits::default())?;
        Ok((found.sort.to_string(), found.keys.iter().map(|key| key.name.to_string()).collect()))
    }

    #[test]
    fn an_attestation_of_cosign_says_what_it_is_and_whose() {
        // As Go writes an envelope: with an empty hint at the key.
        let envelope = json!({
            "payloadType": "application/vnd.in-toto+json", "payload": STANDARD.encode(OF_COSIGN),
            "signatures": [{"keyid": "", "sig": BY_OPENSSL}],
        });
        let found = verified(envelope.to_string().as_bytes(), &trusted()).unwrap();
        assert_eq!(found, ("https://cosign.sigstore.dev/attestation/v1".to_owned(), vec!["ci".to_owned()]));
        // The manifest under its tag: an image without a subject, and Rekor's receipt beside an empty signature.
        let layer = json!({
            "mediaType": "application/vnd.dsse.envelope.v1+json", "digest": Digest::of(b"x"), "size": 700,
            "annotations": {
                ANNOTATION: "", "predicateType": "https://cosign.sigstore.dev/attestation/v1",
                "dev.sigstore.cosign/bundle": "{}",
            },
        });
        let config =
            json!({"mediaType": "application/vnd.oci.image.config.v1+json", "digest": Digest::of(b"y"), "size": 233});
        let manifest = json!({
            "schemaVersion": 2, "mediaType": oci::media_type::MANIFEST, "config": config, "layers": [layer],
        });
        let read = attestation::read(manifest.to_string().as_bytes(), &Limits::default()).unwrap();
        assert_eq!(read.len(), 1);
        assert_eq!(attestation::said_type(&read[0]), Some("https://cosign.sigstore.dev/attestation/v1"));
    }

    #[test]
    fn what_is_made_is_what_cosign_looks_for() {
        let predicate = predicate(r#"{"buildDefinition": {"buildType": "x"}, "a": 1}"#);
        let (envelope, manifest) = made(&predicate, Vec::new()).unwrap();
        let value: Value = serde_json::from_slice(&envelope).unwrap();
        assert_eq!(value["payloadType"], "application/vnd.in-toto+json");
        let statement = STANDARD.decode(value["payload"].as_str().unwrap()).unwrap();
        let hex = digest().short(64).to_owned();
        assert_eq!(
            String::from_utf8(statement).unwrap(),
            format!(
                r#"{{"_type":"https://in-toto.io/Statement/v1","predicateType":"{SLSA}","subject":[{{"name":"shop/api","digest":{{"sha256":"{hex}"}}}}],"predicate":{{"buildDefinition":{{"buildType":"x"}},"a":1}}}}"#
            )
        );
        assert_eq!(verified(&envelope, &trusted()).unwrap(), (SLSA.to_owned(), vec!["ci".to_owned()]));
        let value: Value = serde_json::from_slice(&manifest).unwrap();
        assert_eq!(value["subject"]["digest"], json!(digest()));
        assert_eq!(value["layers"][0]["mediaType"], "application/vnd.dsse.envelope.v1+json");
        assert_eq!(value["layers"][0]["annotations"], json!({ANNOTATION: "", "predicateType": SLSA}));
        assert_eq!(attestation::tag(&digest()), format!("sha256-{hex}.att"));
        assert_eq!(made(&predicate, Vec::new()).unwrap(), (envelope, manifest), "the same input, the same bytes");
    }

    #[test]
    fn attestations_stand_beside_each_other_once_each_and_not_without_end() {
        let (one, other) = (predicate(r#"{"a": 1}"#), predicate(r#"{"a": 2}"#));
        let limits = Limits::default();
        let (_, first) = made(&one, Vec::new()).unwrap();
        let held = attestation::read(&first, &limits).unwrap();
        assert_eq!(made(&one, held.clone()), None);
        let (_, second) = made(&other, held.clone()).unwrap();
        let both = attestation::read(&second, &limits).unwrap();
        assert_eq!((both.len(), &both[0]), (2, &held[0]));
        let full = vec![held[0].clone(); MOST_SIGNATURES];
        let mut layout = Layout::default();
        let error = attestation::added(&mut layout, &subject(), "shop/api", &other, &ci(), full, &limits).unwrap_err();
        assert_eq!(error.to_string(), "65 attestations, at most 64 are looked at");
        let large = predicate(&format!(r#"{{"a": "{}"}}"#, "x".repeat(3 << 20)));
        let error = attestation::added(&mut layout, &subject(), "shop/api", &large, &ci(), Vec::new(), &limits);
        assert!(error.unwrap_err().to_string().starts_with("the envelope has "));
    }

    #[test]
    fn an_attestation_counts_for_one_digest_and_trusted_keys_that_have_not_ended() {
        let keys = trusted();
        let envelope = around(OF_COSIGN);
        let unknown = SignatureError::UnknownKey { manifest: digest(), trusted: names(&keys[1..]) };
        assert_eq!(verified(&envelope, &keys[1..]), Err(unknown));
        let mut ended = keys.clone();
        ended[0].until = Some(now());
        let expired = SignatureError::Expired { manifest: digest(), key: "ci".parse().unwrap(), until: now() };
        assert_eq!(verified(&envelope, &ended), Err(expired));
        let other = Digest::of(b"another manifest");
        let replayed = attestation::verify(&envelope, &other, &keys, now(), &Limits::default()).unwrap_err();
        assert_eq!(replayed, SignatureError::OtherDigest { named: digest().to_string(), wanted: other });
        // Of several subjects one is enough.
        let several = OF_COSIGN.replace("\"subject\":[", r#""subject":[{"digest":{"sha256":"00"}},{"name":"x"},"#);
        assert!(verified(&around(&several), &keys).is_ok());
    }

    #[test]
    fn statements_that_are_none_are_wrong_even_if_a_trusted_key_signed_them() {
        let keys = trusted();
        let cases: Vec<(String, &str)> = vec![
            (String::new(), "JSON"),
            ("[]".to_owned(), "`_type` is not a text"),
            (OF_COSIGN.replace("Statement/v0.1", "Statement/v2"), "_type is `https://in-toto.io/Statement/v2`"),
            (OF_COSIGN.replace("\"predicateType\":\"https", "\"predicateType\":\"https x"), "type of a predicate"),
            (OF_COSIGN.replace("\"predicateType\"", "\"predicatetype\""), "`predicateType` is not a text"),
            (OF_COSIGN.replace("\"predicate\":", "\"other\":"), "no `predicate`"),
            (OF_COSIGN.replace("\"subject\":[", "\"subject\":[],\"subject\":["), "stands twice"),
            (OF_COSIGN.replace("\"subject\":", "\"subjects\":"), "`subject` is not a list"),
            (OF_COSIGN.replace("\"sha256\"", "\"sha512\""), "of `nothing`, expected"),
            (OF_COSIGN.replace("\"e59625", "\"E59625"), "expected `sha256:e59625"),
            (OF_COSIGN.replace("\"tested\\n\"", &format!("{}{}", "[".repeat(100), "]".repeat(100))), "deeper than 64"),
        ];
        for (statement, expected) in cases {
            let error = verified(&around(&statement), &keys).unwrap_err();
            assert_eq!(error.code(), Code::SignatureWrong, "{statement}: {error}");
            assert!(error.to_string().contains(expected), "{}: {error}, expected `{expected}`", clip(&statement));
        }
        // A signature of the release is no statement, and a statement of another sort neither.
        let payload = dsse::sign("application/json", OF_COSIGN.as_bytes(), &ci());
        assert_eq!(verified(&payload, &keys).unwrap_err().code(), Code::SignatureWrong);
        assert_eq!(verified(PAYLOAD.as_bytes(), &keys).unwrap_err().code(), Code::SignatureWrong);
    }

    #[test]
    fn manifests_of_attestations_are_read_within_limits() {
        let limits = Limits::default();
        let layer = json!({"mediaType": dsse::ENVELOPE, "digest": Digest::of(b"x"), "size": 1});
        let manifest = |layers: Value| json!({"schemaVersion": 2, "layers": layers}).to_string();
        let read = |text: &str| attestation::read(text.as_bytes(), &limits);
        assert_eq!(read(&manifest(json!([layer]))).unwrap().len(), 1);
        // Others keep statements of their own there, that nobody signed.
        let loose = json!({"mediaType": dsse::STATEMENT, "digest": Digest::of(b"x"), "size": 1_u64 << 40});
        assert!(read(&manifest(json!([loose]))).unwrap().is_empty());
        // Whether anybody wants it is not known here: what is too large for one type is no reason to lose another.
        let mut large = layer.clone();
        large["size"] = json!(limits.manifest + 1);
        assert_eq!(read(&manifest(json!([large, layer]))).unwrap().len(), 2);
        for (text, expected) in [
            (String::new(), "JSON"),
            (manifest(Value::Array(vec![layer; 10_000])), "10000 attestations, at most 64"),
            (json!({"schemaVersion": 2, "manifests": []}).to_string(), "the manifest of attestations cannot be read"),
        ] {
            let error = read(&text).unwrap_err();
            assert_eq!(error.code(), Code::SignatureWrong);
            assert!(error.to_string().contains(expected), "{error}, expected `{expected}`");
        }
    }

    #[test]
    fn types_are_uris_and_predicates_are_objects() {
        for good in [SLSA, "https://cosign.sigstore.dev/attestation/v1", "urn:x", "a+b.c-1:y"] {
            assert_eq!(good.parse::<PredicateType>().unwrap().to_string(), good);
        }
        let long = format!("https://example.com/{}", "a".repeat(255));
        for bad in ["", "slsaprovenance", ":x", "https:", "1a:x", "https://a b", "https://a\nb", "https://é", &long] {
            assert!(bad.parse::<PredicateType>().is_err(), "{bad}");
        }
        for bad in ["", "[]", "\"tested\"", "{\"a\":1,\"a\":2}", "{} {}"] {
            let error = Predicate::read(slsa(), bad.as_bytes(), &Limits::default()).unwrap_err();
            assert!(error.to_string().starts_with("the predicate cannot be read: "), "{bad}: {error}");
        }
        let large = " ".repeat(Limits::default().manifest + 1);
        assert!(Predicate::read(slsa(), large.as_bytes(), &Limits::default()).is_err());
    }
}
