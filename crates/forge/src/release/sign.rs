//! Signatures beside a release, in any place that keeps releases: found, judged, added. Verification fails closed: where it is
//! not known what is there, there is no answer.

use std::collections::BTreeSet;

use forge_core::code::Code;
use forge_core::failure::Failure;
use forge_core::oci::{Descriptor, Layout};
use forge_core::release::Limits;
use forge_core::release::key::{KeyName, PrivateKey, TrustedKey};
use forge_core::release::policy::{Judged, SignaturePolicy};
use forge_core::release::signature::{
    self, Found, LARGEST_PAYLOAD, MOST_SIGNATURES, SignatureError, SignatureManifest, media_type,
};
use jiff::Timestamp;

use super::opened::Release;
use super::place::Place;
use super::transfer::Store;
use crate::registry::{Reference, Registry, RepositoryName};

/// How often a signature is added again when somebody else signed at the same time.
const TRIES: usize = 16;

/// What lies beside a release.
#[derive(Debug, Default)]
pub(crate) struct Beside {
    /// What can be looked at.
    pub(crate) signatures: Vec<Found>,
    /// What is there and cannot; the first of it.
    pub(crate) wrong: Option<SignatureError>,
}

/// The manifests of signatures of a release: the one that cosign's tag names, and those that say they speak of it. All of them together
/// are no larger than one may be.
pub(super) async fn manifests(
    store: &Store<'_>,
    subject: &Descriptor,
    limits: &Limits,
) -> Result<Vec<(Descriptor, Vec<u8>)>, Failure> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    let mut left = limits.manifest;
    let tag = Reference::Tag(signature::tag(&subject.digest));
    if let Some((descriptor, bytes)) = store.try_manifest(&tag, left).await? {
        left = left.saturating_sub(bytes.len());
        seen.insert(descriptor.digest.clone());
        found.push((descriptor, bytes));
    }
    let referrers = store.referrers(&subject.digest, media_type::SIGNATURE).await?;
    let others: BTreeSet<_> =
        referrers.into_iter().map(|one| one.digest).filter(|digest| !seen.contains(digest)).collect();
    if others.len() > MOST_SIGNATURES {
        return Err(SignatureError::TooMany { count: others.len() }.into());
    }
    for digest in others {
        // One that went since is none.
        if let Some(manifest) = store.try_manifest(&Reference::Digest(digest), left).await? {
            left = left.saturating_sub(manifest.1.len());
            found.push(manifest);
        }
    }
    Ok(found)
}

/// Everything that lies beside a release as a signature of it.
///
/// # Errors
/// When that is not known, or is more than anybody looks at.
pub(crate) async fn signatures(store: &Store<'_>, subject: &Descriptor, limits: &Limits) -> Result<Beside, Failure> {
    let mut beside = Beside::default();
    let mut known = BTreeSet::new();
    for (_, bytes) in manifests(store, subject, limits).await? {
        let SignatureManifest { payloads } = match signature::read(&bytes, limits) {
            Ok(manifest) => manifest,
            Err(error) => {
                beside.wrong.get_or_insert(error);
                continue;
            }
        };
        for (descriptor, signature) in payloads {
            // The same one may be in several manifests.
            if !known.insert((descriptor.digest.clone(), signature.clone())) {
                continue;
            }
            if known.len() > MOST_SIGNATURES {
                return Err(SignatureError::TooMany { count: known.len() }.into());
            }
            let payload = store.blob(&descriptor, LARGEST_PAYLOAD as u64).await?;
            beside.signatures.push(Found { payload, signature });
        }
    }
    Ok(beside)
}

/// What a policy makes of a release.
///
/// # Errors
/// When it does not let it pass, or it is not known what is there.
pub(crate) async fn judged(
    store: &Store<'_>,
    manifest: &Descriptor,
    policy: &SignaturePolicy,
    now: Timestamp,
    limits: &Limits,
) -> Result<Judged, Failure> {
    let Beside { signatures, wrong } = signatures(store, manifest, limits).await?;
    let enough = |judged: &Judged| judged.keys.len() >= usize::try_from(policy.threshold()).unwrap_or(usize::MAX);
    let judged = match (policy.check(&manifest.digest, &signatures, now), wrong) {
        // Enough good ones are enough; otherwise what is wrong is told before what is missing.
        (Ok(judged), Some(wrong)) if !enough(&judged) => Err(wrong),
        (Err(error), Some(wrong)) if !error.is_wrong() => Err(wrong),
        (judged, _) => judged,
    };
    judged.map_err(|error| {
        let failure = Failure::from(error);
        let message = format!("{}@{}: {}", store.place(), manifest.digest, failure.message);
        Failure { message, ..failure }
    })
}

/// That a release in a registry is signed as a policy asks for; gives from when on it is not any more. For whoever has only the
/// registry: the plugin of Argo CD.
///
/// # Errors
/// When it is not, or it is not known what is there.
pub(crate) async fn verified(
    registry: &Registry,
    repository: &RepositoryName,
    manifest: &Descriptor,
    policy: &SignaturePolicy,
    now: Timestamp,
) -> Result<Option<Timestamp>, Failure> {
    let limits = Limits::default();
    let store = Store::open(registry, &Place::Registry(repository.clone()), &limits)?;
    Ok(judged(&store, manifest, policy, now, &limits).await?.until)
}

/// Signs a release; gives whether that changed anything. What others signed stays, also what they sign meanwhile: in a folder nobody
/// writes over what he has not read, and in a registry, which cannot be locked, it is read again and added again.
///
/// # Errors
/// When it cannot be stored, or what is there under cosign's tag is no manifest of signatures.
pub(crate) async fn sign(
    store: &Store<'_>,
    release: &Release,
    key: &PrivateKey,
    limits: &Limits,
) -> Result<bool, Failure> {
    let subject = &release.manifest;
    // Cosign writes the repository; nobody believes it, because releases are copied.
    let reference = match store.place() {
        Place::Registry(repository) => repository.to_string(),
        Place::Folder(_) => release.metadata.project.to_string(),
    };
    let tag = signature::tag(&subject.digest);
    let mut changed = false;
    for again in 0..=TRIES {
        let store = &store.again()?;
        let before = store.try_manifest(&Reference::Tag(tag.clone()), limits.manifest).await?;
        let mut layout = Layout::default();
        let made = match &before {
            None => signature::signed(&mut layout, subject, &reference, key),
            Some((_, bytes)) => {
                let held = signature::read(bytes, limits)?;
                // One key signs once, whatever repository is written in: the payload of a copy is as good.
                if signed_by(store, &held, release, key).await? {
                    return Ok(changed);
                }
                signature::added(&mut layout, subject, &reference, key, &held)?
            }
        };
        if again < TRIES {
            let before = before.map(|(descriptor, _)| descriptor.digest);
            changed |= store.put(layout, &made, &tag, before.as_ref()).await?;
        }
    }
    let message = format!("{}:{tag} is written by somebody else all the time", store.place());
    Err(Failure::new(Code::RegistryUnavailable, message).hint("sign it again when the others are done"))
}

/// Whether one of these signatures is by this key.
async fn signed_by(
    store: &Store<'_>,
    held: &SignatureManifest,
    release: &Release,
    key: &PrivateKey,
) -> Result<bool, Failure> {
    let name: KeyName = "own".parse().map_err(|error| Failure::new(Code::BadSigningKey, error))?;
    let trusted = [TrustedKey { name, key: key.public(), until: None }];
    for (descriptor, signature) in &held.payloads {
        let payload = store.blob(descriptor, LARGEST_PAYLOAD as u64).await?;
        let digest = &release.manifest.digest;
        if signature::verify(&payload, signature, digest, &trusted, Timestamp::UNIX_EPOCH).is_ok() {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use forge_core::release::{Builder, Inputs, Source, assemble, documents};

    use super::*;
    use crate::layout_folder;
    use crate::registry::Options;
    use crate::release::place::Named;
    use crate::runtime::block_on;

    fn key(name: &str) -> PrivateKey {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../forge-core/tests/keys");
        PrivateKey::read(&std::fs::read_to_string(folder.join(name)).unwrap()).unwrap()
    }

    #[test]
    fn who_signs_keeps_what_somebody_else_signed_since_he_looked() {
        let (folder, limits) = (tempfile::tempdir().unwrap(), Limits::default());
        let path = folder.path().join("layout");
        let text = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
        let inputs = Inputs {
            project: "shop/api".parse().unwrap(),
            source: Source {
                repository: None,
                commit: "3f2a9c1d5e7b80416a2c9d3e5f70b1a4c6d8e9f0".parse().unwrap(),
                path: None,
            },
            builder: Builder { name: "forge".to_owned(), version: "1".to_owned() },
            version: None,
            artifacts: Vec::new(),
            layers: [("default".to_owned(), documents("a.yaml", text, &limits).unwrap())].into(),
        };
        layout_folder::write(&path, &assemble(&inputs, &limits).unwrap().layout.tree()).unwrap();
        let registry = Registry::new(Options::default()).unwrap();
        let named = Named::folder(&path, None).unwrap();
        let signed = block_on(async {
            // Both look before one of them signs.
            let (one, other) = (
                Store::open(&registry, &named.place, &limits).unwrap(),
                Store::open(&registry, &named.place, &limits).unwrap(),
            );
            let release = Release::open(&one, &named, &limits).await.unwrap();
            assert!(sign(&one, &release, &key("ci.pem"), &limits).await.unwrap());
            assert!(sign(&other, &release, &key("managers.pem"), &limits).await.unwrap());
            // Who looked before he signed himself has signed.
            assert!(!sign(&one, &release, &key("ci.pem"), &limits).await.unwrap());
            let now = one.again().unwrap();
            let tag = Reference::Tag(signature::tag(&release.manifest.digest));
            let (_, bytes) = now.try_manifest(&tag, limits.manifest).await.unwrap().unwrap();
            signature::read(&bytes, &limits).unwrap().payloads.len()
        });
        assert_eq!(signed.unwrap(), 2);
    }
}
