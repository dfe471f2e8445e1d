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

/// What lies beside a release.
#[derive(Debug, Default)]
pub(crate) struct Beside {
    /// What can be looked at.
    pub(crate) signatures: Vec<Found>,
    /// What is there and cannot; the first of it.
    pub(crate) wrong: Option<SignatureError>,
}

/// The manifests of signatures of a release: the one that cosign's tag names, and those that say they speak of it.
pub(super) async fn manifests(
    store: &Store<'_>,
    subject: &Descriptor,
    limits: &Limits,
) -> Result<Vec<(Descriptor, Vec<u8>)>, Failure> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    let tag = Reference::Tag(signature::tag(&subject.digest));
    if let Some((descriptor, bytes)) = store.try_manifest(&tag, limits.manifest).await? {
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
        if let Some(manifest) = store.try_manifest(&Reference::Digest(digest), limits.manifest).await? {
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

/// Signs a release; gives whether that changed anything. What others signed stays.
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
    let before = store.try_manifest(&Reference::Tag(tag.clone()), limits.manifest).await?;
    let mut layout = Layout::default();
    let made = match &before {
        None => signature::signed(&mut layout, subject, &reference, key),
        Some((_, bytes)) => {
            let held = signature::read(bytes, limits)?;
            // One key signs once, whatever repository is written in: the payload of a copy is as good.
            if signed_by(store, &held, release, key).await? {
                return Ok(false);
            }
            signature::added(&mut layout, subject, &reference, key, &held)?
        }
    };
    if before.is_some_and(|(descriptor, _)| descriptor.digest == made.digest) {
        return Ok(false);
    }
    store.put(layout, &made, &tag).await?;
    Ok(true)
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
