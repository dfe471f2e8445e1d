//! Policies: what is read, what tightens, what is enough.

use super::*;
use crate::release::key::PrivateKey;
use crate::release::signature::{attestation, dsse, payload};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

const CI: &str = include_str!("../../../tests/keys/ci.pub");
const MANAGERS: &str = include_str!("../../../tests/keys/managers.pub");
const RFC: &str = include_str!("../../../tests/keys/rfc6979.pub");
const SLSA: &str = "https://slsa.dev/provenance/v1";
const TESTED: &str = "https://example.com/tested/v1";

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn now() -> Timestamp {
    time("2026-07-01T12:00:00Z")
}

fn trusted(name: &str, pem: &str, until: Option<&str>) -> TrustedKey {
    TrustedKey { name: name.parse().unwrap(), key: PublicKey::read(pem).unwrap(), until: until.map(time) }
}

fn policy(signatures: Signatures, keys: &[TrustedKey], threshold: Option<u32>) -> SignaturePolicy {
    SignaturePolicy { signatures, keys: keys.to_vec(), threshold, attestations: BTreeSet::new() }
}

fn asking(policy: SignaturePolicy, types: &[&str]) -> SignaturePolicy {
    SignaturePolicy { attestations: types.iter().map(|sort| sort.parse().unwrap()).collect(), ..policy }
}

fn three() -> Vec<TrustedKey> {
    vec![trusted("ci", CI, None), trusted("managers", MANAGERS, None), trusted("third", RFC, None)]
}

fn indented(pem: &str) -> String {
    pem.lines().map(|line| format!("        {line}\n")).collect()
}

fn file(spec: &str) -> String {
    format!("apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: SignaturePolicy\nspec:\n{spec}")
}

fn key_lines(name: &str, pem: &str) -> String {
    format!("    - name: {name}\n      pem: |\n{}", indented(pem))
}

fn manifest() -> Digest {
    Digest::of(b"a manifest")
}

fn signed_by(pem: &str, digest: &Digest) -> Found {
    let payload = payload("registry.example.com/releases/shop/api", digest);
    let signature = STANDARD.encode(PrivateKey::read(pem).unwrap().sign(&payload));
    Found { payload, signature }
}

fn by_ci() -> Found {
    signed_by(include_str!("../../../tests/keys/ci.pem"), &manifest())
}

fn by_managers() -> Found {
    signed_by(include_str!("../../../tests/keys/managers.pem"), &manifest())
}

fn read_from(text: &str) -> Result<SignaturePolicy, Failure> {
    SignaturePolicy::read("policy.yaml", text.as_bytes())
}

#[test]
fn a_file_is_read_with_its_keys_and_their_ends() {
    let text = file(&format!(
        "  signatures: required\n  threshold: 2\n  keys:\n{}      until: 2027-01-01T00:00:00+01:00\n{}",
        key_lines("ci", CI),
        key_lines("managers", MANAGERS)
    ));
    let read = read_from(&text).unwrap();
    let keys = [trusted("ci", CI, Some("2026-12-31T23:00:00Z")), trusted("managers", MANAGERS, None)];
    assert_eq!(read, policy(Signatures::Required, &keys, Some(2)));
    let asks = read_from(&format!("{text}  attestations: [{SLSA}, {TESTED}, {SLSA}]\n")).unwrap();
    assert_eq!(asks, asking(policy(Signatures::Required, &keys, Some(2)), &[SLSA, TESTED]));
    let short = read_from(&file("  signatures: optional\n")).unwrap();
    assert_eq!(short, policy(Signatures::Optional, &[], None));
    assert_eq!(short.threshold(), 1);
}

#[test]
fn a_file_that_is_not_right_is_refused_with_all_that_is_wrong() {
    let ci = key_lines("ci", CI);
    let with = |keys: &str| file(&format!("  signatures: required\n  keys:\n{keys}"));
    let too_many: String = (0..=MOST_KEYS).map(|n| key_lines(&format!("k{n}"), CI)).collect();
    let many_types = (0..=MOST_TYPES).map(|n| format!("urn:{n}")).collect::<Vec<_>>().join(", ");
    let cases: &[(String, &[Code])] = &[
        (String::new(), &[Code::DocumentCount]),
        (file("  signatures: required\n  keys: []\n---\n"), &[]),
        (format!("{0}---\n{0}", file("  signatures: required\n")), &[Code::DocumentCount]),
        (file("  signatures: required\n").replace("v1alpha1", "v1"), &[Code::UnknownKind]),
        (file("  threshold: 1\n"), &[Code::MissingField]),
        (file("  signatures: yes\n"), &[Code::InvalidValue]),
        (file("  signatures: required\n  thresholds: 1\n"), &[Code::UnknownField]),
        (file("  signatures: required\n  threshold: 0\n"), &[Code::InvalidValue]),
        (file("  signatures: required\n  signatures: optional\n"), &[Code::DuplicateKey]),
        (with(&format!("{ci}{}", key_lines("ci", MANAGERS))), &[Code::BadSignaturePolicy]),
        (with(&format!("{ci}{}", key_lines("again", CI))), &[Code::BadSignaturePolicy]),
        (with(&format!("{ci}  threshold: 2\n")), &[Code::BadSignaturePolicy]),
        (with(&too_many), &[Code::BadSignaturePolicy]),
        (file("  signatures: required\n  attestations: provenance\n"), &[Code::WrongType]),
        (file("  signatures: required\n  attestations: [provenance, 3]\n"), &[Code::InvalidValue, Code::WrongType]),
        (file(&format!("  signatures: required\n  attestations: [{many_types}]\n")), &[Code::BadSignaturePolicy]),
        (file(&format!("  signatures: optional\n  attestations: [{SLSA}]\n")), &[Code::BadSignaturePolicy]),
        (file("  signatures: optional\n  attestations: []\n"), &[]),
        (with(&format!("{ci}      until: tomorrow\n")), &[Code::InvalidValue]),
        (with("    - {name: CI, pem: x}\n"), &[Code::InvalidValue, Code::BadSigningKey]),
        (with(&key_lines("ci", include_str!("../../../tests/keys/ci.pem"))), &[Code::BadSigningKey]),
        (with(&key_lines("ci", include_str!("../../../tests/keys/p384.pub"))), &[Code::BadSigningKey]),
    ];
    for (text, expected) in cases {
        let result = read_from(text);
        let found: Vec<Code> =
            result.as_ref().err().map(|e| e.findings.iter().map(|f| f.code).collect()).unwrap_or_default();
        assert_eq!(found, *expected, "{text}");
        assert_eq!(result.is_ok(), expected.is_empty(), "{text}");
        if let Err(failure) = result {
            assert_eq!(failure.code, Code::BadSignaturePolicy);
            // The secret half of a key that was put there by mistake is not shown.
            assert!(!format!("{failure:?}").contains("MIGHAgEA"), "{failure:?}");
        }
    }
    assert_eq!(SignaturePolicy::read("p", &[0xff, 0xfe, 0]).unwrap_err().findings[0].code, Code::Encoding);
}

#[test]
fn a_repository_may_ask_for_more_and_never_for_less() {
    use Signatures::{Optional, Required};
    let keys = three();
    let platform = policy(Required, &keys, Some(2));
    let same = |by: &SignaturePolicy| platform.tightened(by);
    // Saying nothing changes nothing.
    assert_eq!(same(&policy(Required, &[], None)), Ok(policy(Required, &keys, Some(2))));
    assert_eq!(same(&policy(Required, &keys[..2], None)), Ok(policy(Required, &keys[..2], Some(2))));
    assert_eq!(same(&policy(Required, &[], Some(3))), Ok(policy(Required, &keys, Some(3))));
    assert_eq!(same(&policy(Optional, &[], None)), Err(PolicyError::Optional));
    assert_eq!(same(&policy(Required, &[], Some(1))), Err(PolicyError::Threshold { own: 1, platform: 2 }));
    assert_eq!(same(&policy(Required, &keys[..1], None)), Err(PolicyError::Unsatisfiable { keys: 1, threshold: 2 }));
    let narrow = policy(Required, &keys[..1], None);
    let unknown = PolicyError::UnknownKey { name: "managers".parse().unwrap() };
    assert_eq!(narrow.tightened(&policy(Required, &keys[..2], None)), Err(unknown));
    // A key of the platform's name that is another key is another key.
    let disguised = [trusted("ci", MANAGERS, None)];
    let unknown = PolicyError::UnknownKey { name: "ci".parse().unwrap() };
    assert_eq!(narrow.tightened(&policy(Required, &disguised, None)), Err(unknown));
    // The platform's name for a key stays.
    let renamed = [trusted("ours", CI, None)];
    assert_eq!(narrow.tightened(&policy(Required, &renamed, None)), Ok(policy(Required, &keys[..1], Some(1))));
}

#[test]
fn a_key_of_a_repository_ends_when_the_platform_says_at_the_latest() {
    use Signatures::Required;
    let ends = |until: Option<&str>| policy(Required, &[trusted("ci", CI, until)], Some(1));
    let (early, late) = ("2027-01-01T00:00:00Z", "2028-01-01T00:00:00Z");
    for (platform, own, expected) in [
        (None, None, Ok(None)),
        (None, Some(early), Ok(Some(early))),
        (Some(late), None, Ok(Some(late))),
        (Some(late), Some(early), Ok(Some(early))),
        (Some(late), Some(late), Ok(Some(late))),
        (Some(early), Some(late), Err(())),
    ] {
        let found = ends(platform).tightened(&ends(own));
        match expected {
            Ok(until) => assert_eq!(found, Ok(ends(until))),
            Err(()) => assert!(matches!(found, Err(PolicyError::LongerKey { .. })), "{found:?}"),
        }
    }
}

#[test]
fn where_nothing_is_required_a_repository_asks_for_what_it_likes_but_not_for_the_impossible() {
    use Signatures::{Optional, Required};
    let keys = three();
    let platform = policy(Optional, &keys[..1], None);
    let own = policy(Required, &keys[1..], Some(2));
    assert_eq!(platform.tightened(&own), Ok(own.clone()));
    assert_eq!(platform.tightened(&policy(Required, &[], None)), Ok(policy(Required, &keys[..1], None)));
    assert_eq!(platform.tightened(&policy(Optional, &[], None)), Ok(platform.clone()));
    let nobody = PolicyError::Unsatisfiable { keys: 0, threshold: 1 };
    assert_eq!(policy(Optional, &[], None).tightened(&policy(Required, &[], None)), Err(nobody));
}

#[test]
fn what_a_tightened_policy_lets_pass_the_platforms_does_too() {
    use Signatures::{Optional, Required};
    let keys = three();
    let subset = |bits: usize| {
        let chosen = keys.iter().enumerate().filter(|(n, _)| (bits >> n) & 1 == 1);
        chosen.map(|(_, key)| key.clone()).collect::<Vec<_>>()
    };
    let subsets: Vec<Vec<TrustedKey>> = (0..8).map(subset).collect();
    let mut policies = Vec::new();
    for signatures in [Optional, Required] {
        for threshold in [None, Some(1), Some(2), Some(3)] {
            policies.extend(subsets.iter().map(|keys| policy(signatures, keys, threshold)));
            // Nobody asks for attestations where signatures are optional.
            if signatures == Required {
                policies.extend(subsets.iter().map(|keys| asking(policy(signatures, keys, threshold), &[SLSA])));
            }
        }
    }
    let signers: Vec<Vec<KeyName>> = subsets.iter().map(|keys| names(keys)).collect();
    let mut made = 0;
    for platform in &policies {
        for own in &policies {
            let Ok(tightened) = platform.tightened(own) else { continue };
            made += 1;
            assert!(tightened.attestations.is_superset(&platform.attestations), "{platform:?}\n{own:?}");
            assert!(tightened.attestations.is_superset(&own.attestations), "{platform:?}\n{own:?}");
            // Whose attestation counts there counts here.
            if platform.signatures == Required {
                assert!(tightened.keys.iter().all(|key| platform.keys.contains(key)), "{platform:?}\n{own:?}");
            }
            for verified in &signers {
                if tightened.judge(verified).is_ok() {
                    assert!(platform.judge(verified).is_ok(), "{platform:?}\n{own:?}\n{verified:?}");
                }
            }
        }
    }
    assert!(made > 500, "{made}");
}

#[test]
fn a_key_counts_once_and_strangers_do_not() {
    let two = policy(Signatures::Required, &three(), Some(2));
    let name = |name: &str| name.parse::<KeyName>().unwrap();
    assert!(two.judge(&[name("ci"), name("third")]).is_ok());
    for few in [vec![], vec![name("ci")], vec![name("ci"), name("ci")], vec![name("ci"), name("stranger")]] {
        let error = two.judge(&few).unwrap_err();
        assert_eq!(error.code(), Code::NotSigned);
        assert!(error.to_string().ends_with("the policy asks for 2 of `ci`, `managers`, `third`"), "{error}");
    }
    assert!(policy(Signatures::Optional, &[], None).judge(&[]).is_ok());
    // Required of nobody is never given.
    assert!(policy(Signatures::Required, &[], None).judge(&[name("ci")]).is_err());
}

#[test]
fn what_lies_beside_a_release_is_judged_as_a_whole() {
    use Signatures::{Optional, Required};
    let keys = three();
    let only = std::slice::from_ref::<Found>;
    let check = |policy: &SignaturePolicy, found: &[Found]| policy.check(&manifest(), found, now());
    let one = policy(Required, &keys, None);
    let two = policy(Required, &keys, Some(2));
    let optional = policy(Optional, &keys, None);
    let (ci, managers) = (by_ci(), by_managers());
    let replayed = signed_by(include_str!("../../../tests/keys/ci.pem"), &Digest::of(b"another manifest"));
    let garbage = Found { payload: b"{}".to_vec(), signature: "!".to_owned() };
    // By a key that nobody named: the release is as good as unsigned.
    let strangers = SignaturePolicy::of(keys[2..].to_vec());
    let names_of = |judged: Result<Judged, SignatureError>| {
        judged.map(|judged| judged.keys.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
    };
    let code_of = |judged: Result<Judged, SignatureError>| judged.map(|_| ()).map_err(|error| error.code());
    assert_eq!(names_of(check(&one, only(&ci))).as_deref(), Ok("ci"));
    assert_eq!(names_of(check(&two, &[managers.clone(), ci.clone()])).as_deref(), Ok("ci managers"));
    assert_eq!(code_of(check(&one, &[])), Err(Code::NotSigned));
    assert_eq!(code_of(check(&two, &[ci.clone(), ci.clone()])), Err(Code::NotSigned));
    assert_eq!(code_of(check(&strangers, only(&ci))), Err(Code::NotSigned));
    // Something wrong does not spoil what is enough, and is said where it is not.
    assert_eq!(names_of(check(&one, &[garbage.clone(), replayed.clone(), ci.clone()])).as_deref(), Ok("ci"));
    assert_eq!(code_of(check(&two, &[ci.clone(), replayed.clone()])), Err(Code::SignatureWrong));
    assert_eq!(code_of(check(&one, only(&garbage))), Err(Code::SignatureWrong));
    // Optional: nothing is fine, and so are strangers; what is wrong is not.
    assert_eq!(names_of(check(&optional, &[])).as_deref(), Ok(""));
    let nobody = policy(Optional, &[], None);
    assert_eq!(names_of(check(&nobody, only(&ci))).as_deref(), Ok(""));
    assert_eq!(code_of(check(&optional, only(&replayed))), Err(Code::SignatureWrong));
    // The same one, found in several places, is one; many different ones are too many.
    assert!(check(&one, &vec![ci.clone(); 200]).is_ok());
    let many: Vec<Found> = (0..=MOST_SIGNATURES)
        .map(|n| Found { signature: format!("{}{}", "A".repeat(4), "A".repeat(4 * n)), ..garbage.clone() })
        .collect();
    assert_eq!(code_of(check(&one, &many)), Err(Code::SignatureWrong));
}

#[test]
fn what_is_judged_holds_until_too_few_keys_count() {
    let early = time("2026-08-01T00:00:00Z");
    let late = "2026-09-01T00:00:00Z";
    let keys = [trusted("ci", CI, Some("2026-08-01T00:00:00Z")), trusted("managers", MANAGERS, Some(late))];
    let until = |keys: &[TrustedKey], threshold: u32, found: &[Found]| {
        policy(Signatures::Required, keys, Some(threshold)).check(&manifest(), found, now()).unwrap().until
    };
    let both = [by_ci(), by_managers()];
    assert_eq!(until(&keys, 1, &both), Some(time(late)));
    assert_eq!(until(&keys, 2, &both), Some(early));
    assert_eq!(until(&keys, 1, &both[..1]), Some(early));
    let endless = [keys[0].clone(), trusted("managers", MANAGERS, None)];
    assert_eq!(until(&endless, 1, &both), None);
    assert_eq!(until(&endless, 2, &both), Some(early));
    // From that moment on the one key is not enough, and the message says why.
    let alone = policy(Signatures::Required, &keys[..1], None);
    let error = alone.check(&manifest(), &both[..1], early).unwrap_err();
    assert!(matches!(error, SignatureError::Expired { .. }), "{error}");
}

/// Said of the release by the key in this PEM.
fn attested_by(pem: &str, sort: &str, manifest: &Digest) -> Vec<u8> {
    let hex = manifest.short(64);
    let statement = format!(
        r#"{{"_type":"https://in-toto.io/Statement/v1","predicateType":"{sort}","subject":[{{"digest":{{"sha256":"{hex}"}}}}],"predicate":{{}}}}"#
    );
    dsse::sign(dsse::STATEMENT, statement.as_bytes(), &PrivateKey::read(pem).unwrap())
}

#[test]
fn what_is_asked_for_must_be_attested_by_one_of_the_keys_and_holds_as_long_as_it_counts() {
    let limits = crate::release::Limits::default();
    let (ci_pem, managers_pem) =
        (include_str!("../../../tests/keys/ci.pem"), include_str!("../../../tests/keys/managers.pem"));
    let (early, late) = ("2026-08-01T00:00:00Z", "2026-09-01T00:00:00Z");
    let keys = [trusted("ci", CI, Some(early)), trusted("managers", MANAGERS, Some(late))];
    let both = asking(policy(Signatures::Required, &keys, None), &[SLSA, TESTED]);
    let signed = [by_ci(), by_managers()];
    let judge = |policy: &SignaturePolicy, envelopes: &[Vec<u8>], now: Timestamp| {
        let judged = policy.check(&manifest(), &signed, now)?;
        let verify = |envelope: &Vec<u8>| attestation::verify(envelope, &manifest(), &policy.keys, now, &limits);
        policy.attested(judged, &manifest(), envelopes.iter().map(verify).collect())
    };
    let slsa = attested_by(ci_pem, SLSA, &manifest());
    let tested = attested_by(managers_pem, TESTED, &manifest());
    let judged = judge(&both, &[slsa.clone(), tested.clone()], now()).unwrap();
    let who: Vec<(&str, &str)> =
        judged.attestations.iter().map(|(sort, keys)| (sort.as_str(), keys[0].as_str())).collect();
    assert_eq!(who, [(TESTED, "managers"), (SLSA, "ci")]);
    // The signature of the managers would hold for longer; the attestation of the other key does not.
    assert_eq!(judged.until, Some(time(early)));
    let again = attested_by(managers_pem, SLSA, &manifest());
    let judged = judge(&both, &[slsa.clone(), again, tested.clone()], now()).unwrap();
    assert_eq!(judged.until, Some(time(late)));
    // Missing, by a stranger, ended, of another release, and no attestation at all.
    let error = judge(&both, std::slice::from_ref(&slsa), now()).unwrap_err();
    assert_eq!(error.code(), Code::NotSigned);
    assert!(error.to_string().contains(&format!("no attestation of type `{TESTED}` by any of `ci`, `managers`")));
    let strange = asking(policy(Signatures::Required, &keys[1..], None), &[SLSA]);
    let error = judge(&strange, std::slice::from_ref(&slsa), now()).unwrap_err();
    assert!(matches!(error, SignatureError::NotAttested { .. }), "{error}");
    let error = judge(&both, &[slsa.clone(), tested.clone()], time(early)).unwrap_err();
    assert!(matches!(error, SignatureError::Expired { .. }), "{error}");
    let replayed = attested_by(ci_pem, SLSA, &Digest::of(b"another manifest"));
    let error = judge(&both, &[replayed.clone(), tested.clone()], now()).unwrap_err();
    assert!(matches!(error, SignatureError::OtherDigest { .. }), "{error}");
    let error = judge(&both, &[b"{}".to_vec(), tested.clone()], now()).unwrap_err();
    assert_eq!(error.code(), Code::SignatureWrong);
    // Beside a good one nothing of it matters.
    assert!(judge(&both, &[b"{}".to_vec(), replayed, slsa, tested], now()).is_ok());
}
