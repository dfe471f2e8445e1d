//! Keys that sign releases, and those that are trusted: ECDSA on the curve P-256 with SHA-256, as `cosign` and `openssl`
//! make them. One algorithm, so that nobody chooses a weaker one for us.
//!
//! Private keys never print themselves, and leave memory when they are dropped. Signing is deterministic (RFC 6979): the
//! same key and bytes give the same signature, and no random number can be a bad one.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use p256::SecretKey;
use p256::ecdsa::signature::Signer as _;
use p256::ecdsa::signature::hazmat::PrehashVerifier as _;
use p256::ecdsa::{Signature, SigningKey, VerifyingKey};
use p256::elliptic_curve::zeroize::Zeroizing;
use p256::pkcs8::{DecodePrivateKey as _, DecodePublicKey as _, EncodePublicKey as _};
use sha2::{Digest as _, Sha256};

use crate::code::Code;
use crate::digest::Digest;
use crate::failure::Failure;
use crate::name::{MAX_NAME, NameError, clip, is_label};

/// Bytes of a file with a key that are read at most.
pub const LARGEST_FILE: usize = 64 << 10;

const PUBLIC: &str = "PUBLIC KEY";
const PKCS8: &str = "PRIVATE KEY";
const SEC1: &str = "EC PRIVATE KEY";
const PARAMETERS: &str = "EC PARAMETERS";
const ENCRYPTED: &str = "ENCRYPTED PRIVATE KEY";
/// What `cosign generate-key-pair` writes, and what it wrote before.
const COSIGN: [&str; 2] = ["ENCRYPTED SIGSTORE PRIVATE KEY", "ENCRYPTED COSIGN PRIVATE KEY"];

/// Why a text is no key that can be used. Never shows the key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// No key is that large.
    #[error("{bytes} bytes are too many for a key, at most {most} are read", most = LARGEST_FILE)]
    TooLarge {
        /// How many there are.
        bytes: usize,
    },
    /// Not PEM.
    #[error("no key in PEM, expected `-----BEGIN {expected}-----`")]
    NoPem {
        /// What a key of this sort begins with.
        expected: &'static str,
    },
    /// More than one key.
    #[error("{count} keys, expected one")]
    Several {
        /// How many there are.
        count: usize,
    },
    /// PEM that is cut off or is not base64.
    #[error("`{label}` is cut off or is not base64")]
    Broken {
        /// What it claims to be.
        label: String,
    },
    /// Something else than a key of this sort.
    #[error("`{label}` cannot be used, expected `{expected}`")]
    OtherSort {
        /// What it claims to be.
        label: String,
        /// What was expected.
        expected: &'static str,
    },
    /// A private key that needs a password, in the form that only cosign has.
    #[error("the key is encrypted in cosign's own form (`{label}`)")]
    EncryptedByCosign {
        /// What it claims to be.
        label: String,
    },
    /// A private key that needs a password.
    #[error("the private key is encrypted")]
    Encrypted,
    /// A private key where everybody reads it.
    #[error("a private key where a public one is expected")]
    Private,
    /// Another algorithm, another curve, or no key at all.
    #[error("`{label}` is not an ECDSA key on the curve P-256")]
    OtherAlgorithm {
        /// What it claims to be.
        label: String,
    },
}

impl KeyError {
    /// The stable code.
    pub fn code(&self) -> Code {
        Code::BadSigningKey
    }

    /// The next step.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::EncryptedByCosign { .. } => {
                "cosign does not export it: sign with `cosign sign --key`, which is verified here too, or make a pair with `openssl \
                 genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256`, which `cosign import-key-pair` takes as well"
            }
            Self::Encrypted => {
                "`openssl pkey -in KEY -out PLAIN` asks for the password and writes it without; keep it where secrets are kept"
            }
            Self::Private => "take it away from there, and write what `openssl pkey -in KEY -pubout` gives",
            Self::NoPem { .. } | Self::OtherSort { .. } | Self::OtherAlgorithm { .. } => {
                "`openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256` makes a key, `openssl pkey -in KEY -pubout` its public half"
            }
            Self::TooLarge { .. } | Self::Several { .. } | Self::Broken { .. } => return None,
        };
        Some(hint.to_owned())
    }
}

impl From<KeyError> for Failure {
    fn from(error: KeyError) -> Self {
        let failure = Self::new(error.code(), &error);
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

/// A key that verifies.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    key: VerifyingKey,
    id: Digest,
}

impl PublicKey {
    /// Reads a public key in PEM.
    ///
    /// # Errors
    /// When it is none, or one of another algorithm.
    pub fn read(pem: &str) -> Result<Self, KeyError> {
        let block = only(pem, PUBLIC)?;
        match block.label {
            PUBLIC => {
                let der = block.decode()?;
                let key = VerifyingKey::from_public_key_der(&der).map_err(|_| block.other_algorithm())?;
                Self::of(key).ok_or_else(|| block.other_algorithm())
            }
            PKCS8 | SEC1 | ENCRYPTED => Err(KeyError::Private),
            label if COSIGN.contains(&label) => Err(KeyError::Private),
            _ => Err(block.other_sort(PUBLIC)),
        }
    }

    /// The identity of a key: however it was written, the digest of its DER in the one form that everybody writes.
    fn of(key: VerifyingKey) -> Option<Self> {
        let der = key.to_public_key_der().ok()?;
        Some(Self { key, id: Digest::of(der.as_bytes()) })
    }

    /// The digest of the key in DER, by which it is told from others.
    pub fn id(&self) -> Digest {
        self.id.clone()
    }

    /// True if the private half of this key signed these bytes. The signature is ASN.1 in DER.
    pub fn verifies(&self, bytes: &[u8], signature: &[u8]) -> bool {
        self.verifies_hash(&Sha256::digest(bytes), signature)
    }

    /// The same, where the SHA-256 of the bytes is known: many keys are tried, and large bytes are read once.
    pub(super) fn verifies_hash(&self, hash: &[u8], signature: &[u8]) -> bool {
        Signature::from_der(signature).is_ok_and(|signature| self.key.verify_prehash(hash, &signature).is_ok())
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PublicKey").field(&self.id).finish()
    }
}

/// A key that signs. It never prints itself.
#[derive(Clone)]
pub struct PrivateKey {
    key: SigningKey,
    public: PublicKey,
}

impl PrivateKey {
    /// Reads a private key in PEM, PKCS #8 or SEC 1, that is not encrypted.
    ///
    /// # Errors
    /// When it is none, needs a password, or is one of another algorithm.
    pub fn read(pem: &str) -> Result<Self, KeyError> {
        let block = only(pem, PKCS8)?;
        let secret = match block.label {
            PKCS8 => SecretKey::from_pkcs8_der(&block.decode()?).map_err(|_| block.other_algorithm())?,
            SEC1 => SecretKey::from_sec1_der(&block.decode()?).map_err(|_| block.other_algorithm())?,
            ENCRYPTED => return Err(KeyError::Encrypted),
            label if COSIGN.contains(&label) => return Err(KeyError::EncryptedByCosign { label: label.to_owned() }),
            _ => return Err(block.other_sort(PKCS8)),
        };
        let key = SigningKey::from(secret);
        let public = PublicKey::of(*key.verifying_key()).ok_or_else(|| block.other_algorithm())?;
        Ok(Self { key, public })
    }

    /// The half that verifies.
    pub fn public(&self) -> PublicKey {
        self.public.clone()
    }

    /// Signs bytes; the signature is ASN.1 in DER, and the same for the same bytes (RFC 6979).
    pub fn sign(&self, bytes: &[u8]) -> Vec<u8> {
        let signature: Signature = self.key.sign(bytes);
        signature.to_der().as_bytes().to_vec()
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateKey").field("public", &self.public.id).finish_non_exhaustive()
    }
}

/// The name of a key in a policy, for people and messages.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyName(Arc<str>);

impl KeyName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for KeyName {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        if !is_label(text) {
            let rule = "use lower-case letters, digits and `-`, starting and ending with a letter or digit";
            return Err(NameError::Malformed { name: clip(text), what: "name of a key", rule });
        }
        if text.len() > MAX_NAME {
            return Err(NameError::TooLong { name: clip(text), length: text.len(), max: MAX_NAME });
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A key whose signatures count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedKey {
    /// What people call it.
    pub name: KeyName,
    /// The key.
    pub key: PublicKey,
    /// From this moment on it does not count any more.
    pub until: Option<Timestamp>,
}

impl TrustedKey {
    /// True as long as its signatures count.
    pub fn counts(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

/// One block of PEM.
struct Block<'p> {
    label: &'p str,
    body: &'p str,
}

impl Block<'_> {
    fn decode(&self) -> Result<Zeroizing<Vec<u8>>, KeyError> {
        let broken = || KeyError::Broken { label: clip(self.label) };
        // Headers are what encrypted keys of old have: `Proc-Type: 4,ENCRYPTED`.
        if self.body.contains(':') {
            return Err(if self.body.contains("ENCRYPTED") { KeyError::Encrypted } else { broken() });
        }
        let digits: Zeroizing<Vec<u8>> =
            Zeroizing::new(self.body.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect());
        if digits.is_empty() {
            return Err(broken());
        }
        STANDARD.decode(digits.as_slice()).map(Zeroizing::new).map_err(|_| broken())
    }

    fn other_algorithm(&self) -> KeyError {
        KeyError::OtherAlgorithm { label: clip(self.label) }
    }

    fn other_sort(&self, expected: &'static str) -> KeyError {
        KeyError::OtherSort { label: clip(self.label), expected }
    }
}

/// The only block of a text, but for parameters, which `openssl ecparam -genkey` writes before a key.
fn only<'p>(pem: &'p str, expected: &'static str) -> Result<Block<'p>, KeyError> {
    if pem.len() > LARGEST_FILE {
        return Err(KeyError::TooLarge { bytes: pem.len() });
    }
    let mut found: Option<Block<'p>> = None;
    let mut count = 0_usize;
    let mut rest = pem;
    while let Some((_, after)) = rest.split_once("-----BEGIN ") {
        let (label, body) = after.split_once("-----").ok_or(KeyError::NoPem { expected })?;
        let end = format!("-----END {label}-----");
        let (body, after) = body.split_once(end.as_str()).ok_or_else(|| KeyError::Broken { label: clip(label) })?;
        rest = after;
        if label != PARAMETERS {
            count += 1;
            found = Some(Block { label, body });
        }
    }
    match (found, count) {
        (Some(block), 1) => Ok(block),
        (Some(_), count) => Err(KeyError::Several { count }),
        (None, _) => Err(KeyError::NoPem { expected }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::hex;

    const CI: &str = include_str!("../../tests/keys/ci.pem");
    const CI_PUBLIC: &str = include_str!("../../tests/keys/ci.pub");
    /// The key of RFC 6979, A.2.5.
    const RFC: &str = include_str!("../../tests/keys/rfc6979.pem");

    #[test]
    fn a_signature_is_the_one_of_the_standard() {
        let key = PrivateKey::read(RFC).unwrap();
        let signature = key.sign(b"sample");
        assert_eq!(
            hex(&signature),
            "3046022100efd48b2aacb6a8fd1140dd9cd45e81d69d2c877b56aaf991c34d0ea84eaf3716\
             022100f7cb1c942d657c41d436c7a1b6e29f65f3e900dbb9aff4064dc4ab2f843acda8"
        );
        assert_eq!(key.sign(b"sample"), signature);
        assert!(key.public().verifies(b"sample", &signature));
        assert!(!key.public().verifies(b"sampled", &signature));
        assert!(!PublicKey::read(CI_PUBLIC).unwrap().verifies(b"sample", &signature));
        assert_eq!(
            key.public().id().as_str(),
            "sha256:5a7a78cca4a0f420d9bc62bb669c3c2759e39f723d3ae10dcbe0f0815a07ecd4"
        );
        assert_eq!(PublicKey::read(include_str!("../../tests/keys/rfc6979.pub")).unwrap(), key.public());
    }

    #[test]
    fn one_key_has_one_identity_however_openssl_wrote_it() {
        let key = PrivateKey::read(CI).unwrap().public();
        assert_eq!(key.id().as_str(), "sha256:8cb0c2c37ee30e73ebbff9109c35ca0aaeb21a9390d180724cd3fce070aa8469");
        for private in
            [include_str!("../../tests/keys/ci.sec1.pem"), include_str!("../../tests/keys/ci.parameters.pem")]
        {
            assert_eq!(PrivateKey::read(private).unwrap().public(), key);
        }
        let windows = CI_PUBLIC.replace('\n', "\r\n");
        let spoken = format!("the key of our pipeline:\n\n{CI_PUBLIC}\n# end\n");
        let one_line = {
            let body: String = CI_PUBLIC.lines().filter(|line| !line.starts_with('-')).collect();
            format!("-----BEGIN PUBLIC KEY-----\n{body}\n-----END PUBLIC KEY-----")
        };
        for public in [CI_PUBLIC, include_str!("../../tests/keys/ci.compressed.pub"), &windows, &spoken, &one_line] {
            assert_eq!(PublicKey::read(public).unwrap(), key, "{public}");
        }
    }

    #[test]
    fn what_is_not_a_public_key_on_p256_is_refused_by_name() {
        let other = |text: &str| KeyError::OtherAlgorithm { label: text.to_owned() };
        let cut = CI_PUBLIC.replace("-----END PUBLIC KEY-----", "");
        let twice = format!("{CI_PUBLIC}{CI_PUBLIC}");
        let empty = "-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----\n";
        let not_base64 = "-----BEGIN PUBLIC KEY-----\n!!!!\n-----END PUBLIC KEY-----\n";
        let longer = {
            let body: String = CI_PUBLIC.lines().filter(|line| !line.starts_with('-')).collect();
            let mut der = STANDARD.decode(body).unwrap();
            der.push(0);
            format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----", STANDARD.encode(der))
        };
        // x and y that are on no curve.
        let off_curve = {
            let body: String = CI_PUBLIC.lines().filter(|line| !line.starts_with('-')).collect();
            let mut der = STANDARD.decode(body).unwrap();
            let last = der.len() - 1;
            der[last] ^= 1;
            format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----", STANDARD.encode(der))
        };
        let large = "x".repeat(LARGEST_FILE + 1);
        let certificate = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";
        let cosign =
            "-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\neyJrZGYi\n-----END ENCRYPTED SIGSTORE PRIVATE KEY-----\n";
        let cases: &[(&str, KeyError)] = &[
            ("", KeyError::NoPem { expected: PUBLIC }),
            ("ssh-ed25519 AAAA", KeyError::NoPem { expected: PUBLIC }),
            ("-----BEGIN PUBLIC KEY", KeyError::NoPem { expected: PUBLIC }),
            (&cut, KeyError::Broken { label: PUBLIC.to_owned() }),
            (empty, KeyError::Broken { label: PUBLIC.to_owned() }),
            (not_base64, KeyError::Broken { label: PUBLIC.to_owned() }),
            (&twice, KeyError::Several { count: 2 }),
            (&longer, other(PUBLIC)),
            (&off_curve, other(PUBLIC)),
            (&large, KeyError::TooLarge { bytes: LARGEST_FILE + 1 }),
            (certificate, KeyError::OtherSort { label: "CERTIFICATE".to_owned(), expected: PUBLIC }),
            (CI, KeyError::Private),
            (cosign, KeyError::Private),
            (include_str!("../../tests/keys/ci.sec1.pem"), KeyError::Private),
            (include_str!("../../tests/keys/encrypted.pem"), KeyError::Private),
            (include_str!("../../tests/keys/p384.pub"), other(PUBLIC)),
            (include_str!("../../tests/keys/k256.pub"), other(PUBLIC)),
            (include_str!("../../tests/keys/rsa.pub"), other(PUBLIC)),
            (include_str!("../../tests/keys/ed25519.pub"), other(PUBLIC)),
        ];
        for (text, expected) in cases {
            assert_eq!(PublicKey::read(text).as_ref(), Err(expected), "{}", clip(text));
        }
    }

    #[test]
    fn what_cannot_sign_is_refused_with_what_to_do() {
        let cosign = |label: &str| format!("-----BEGIN {label}-----\neyJrZGYi\n-----END {label}-----\n");
        for label in COSIGN {
            let error = PrivateKey::read(&cosign(label)).unwrap_err();
            assert_eq!(error, KeyError::EncryptedByCosign { label: label.to_owned() });
            assert!(error.hint().unwrap().contains("cosign sign --key"));
        }
        let cases: &[(&str, KeyError)] = &[
            (include_str!("../../tests/keys/encrypted.pem"), KeyError::Encrypted),
            (include_str!("../../tests/keys/encrypted.sec1.pem"), KeyError::Encrypted),
            (include_str!("../../tests/keys/k256.sec1.pem"), KeyError::OtherAlgorithm { label: SEC1.to_owned() }),
            (CI_PUBLIC, KeyError::OtherSort { label: PUBLIC.to_owned(), expected: PKCS8 }),
            ("", KeyError::NoPem { expected: PKCS8 }),
        ];
        for (text, expected) in cases {
            assert_eq!(PrivateKey::read(text).err().as_ref(), Some(expected));
        }
    }

    #[test]
    fn a_private_key_does_not_print_itself() {
        let key = PrivateKey::read(CI).unwrap();
        let printed = format!("{key:?}");
        assert!(printed.contains(key.public().id().as_str()));
        assert!(printed.len() < 130, "{printed}");
        // A file that is cut off in the middle of the key does not show it either.
        let cut = CI.split_at(CI.len() / 2).0;
        let error = PrivateKey::read(cut).unwrap_err();
        let secret = CI.lines().nth(1).unwrap();
        assert!(!format!("{error} {error:?} {:?}", error.hint()).contains(&secret[..12]));
    }

    #[test]
    fn a_key_counts_until_its_moment_and_not_in_it() {
        let until: Timestamp = "2027-01-01T00:00:00Z".parse().unwrap();
        let key =
            TrustedKey { name: "ci".parse().unwrap(), key: PublicKey::read(CI_PUBLIC).unwrap(), until: Some(until) };
        assert!(key.counts("2026-12-31T23:59:59Z".parse().unwrap()));
        assert!(!key.counts(until));
        assert!(TrustedKey { until: None, ..key }.counts(Timestamp::MAX));
    }

    #[test]
    fn signatures_that_are_none_verify_nothing() {
        let key = PrivateKey::read(CI).unwrap();
        let good = key.sign(b"x");
        let longer = [good.as_slice(), &[0]].concat();
        let shorter = &good[..good.len() - 1];
        for bad in [&[] as &[u8], b"x", &[0x30, 0], &[0x30, 6, 2, 1, 0, 2, 1, 0], &longer, shorter, &[0xff; 4096]] {
            assert!(!key.public().verifies(b"x", bad), "{bad:?}");
        }
        assert!(key.public().verifies(b"x", &good));
    }
}
