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
        Err(SignatureError::TooMany { count: MOST_SIGNATURES + 1 })
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
        let many = Value::Array(vec![made["signatures"][0].clone(); MOST_SIGNATURES + 1]);
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
