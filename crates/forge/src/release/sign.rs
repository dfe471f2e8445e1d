//! Signatures and attestations beside a release, in any place that keeps releases: found, judged, added. Verification fails closed:
//! where it is not known what is there, there is no answer.

use std::collections::BTreeSet;
use std::time::Duration;

use forge_core::code::Code;
use forge_core::digest::Digest;
use forge_core::failure::Failure;
use forge_core::oci::{Descriptor, Layout};
use forge_core::release::Limits;
use forge_core::release::key::{KeyName, PrivateKey, TrustedKey};
use forge_core::release::policy::{Judged, SignaturePolicy};
use forge_core::release::signature::attestation::{self, ATTESTATIONS, Attested, Predicate};
use forge_core::release::signature::{
    self, ANNOTATION, Found, LARGEST_PAYLOAD, MOST_SIGNATURES, SIGNATURES, SignatureError, SignatureManifest, dsse,
    media_type,
};
use jiff::Timestamp;

use super::opened::Release;
use super::place::Place;
use super::transfer::Store;
use crate::registry::{Reference, Registry, RepositoryName};

/// How often something is written when somebody else writes at the same time.
const TRIES: u32 = 16;
/// Manifests of a kind beside one release that are looked at. More than what they hold: one that somebody wrote over stays as a referrer.
const MOST_MANIFESTS: usize = 4 * MOST_SIGNATURES;

/// What may lie beside a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// That it is ours.
    Signature,
    /// Something that is said of it.
    Attestation,
}

impl Kind {
    /// The tag under which cosign keeps them.
    pub(super) fn tag(self, manifest: &Digest) -> String {
        match self {
            Self::Signature => signature::tag(manifest),
            Self::Attestation => attestation::tag(manifest),
        }
    }

    /// What their manifest is.
    pub(super) fn artifact_type(self) -> &'static str {
        match self {
            Self::Signature => media_type::SIGNATURE,
            Self::Attestation => attestation::ARTIFACT,
        }
    }

    /// Several of them.
    fn plural(self) -> &'static str {
        match self {
            Self::Signature => SIGNATURES,
            Self::Attestation => ATTESTATIONS,
        }
    }

    /// Several manifests of them.
    fn manifests(self) -> &'static str {
        match self {
            Self::Signature => "manifests of signatures",
            Self::Attestation => "manifests of attestations",
        }
    }

    /// Adds to some what is not among them.
    pub(super) fn unite(self, held: &mut Vec<Descriptor>, more: Vec<Descriptor>) -> Result<(), SignatureError> {
        for one in more {
            if !held.contains(&one) {
                held.push(one);
            }
        }
        match held.len() {
            count if count > MOST_SIGNATURES => {
                Err(SignatureError::TooMany { what: self.plural(), count, most: MOST_SIGNATURES })
            }
            _ => Ok(()),
        }
    }

    /// Where those are that a manifest holds. Two that differ have other digests or annotations.
    pub(super) fn held(self, manifest: &[u8], limits: &Limits) -> Result<Vec<Descriptor>, SignatureError> {
        match self {
            Self::Signature => {
                let SignatureManifest { payloads } = signature::read(manifest, limits)?;
                Ok(payloads.into_iter().map(|(payload, _)| payload).collect())
            }
            Self::Attestation => attestation::read(manifest, limits),
        }
    }
}

/// What lies beside a release.
#[derive(Debug)]
pub(crate) struct Beside<T> {
    /// What can be looked at.
    pub(crate) found: Vec<T>,
    /// What is there and cannot; the first of it.
    pub(crate) wrong: Option<SignatureError>,
}

/// The manifests of a kind that lie beside a release.
#[derive(Debug)]
pub(super) struct Manifests {
    /// The one that cosign's tag names.
    pub(super) tagged: Option<(Descriptor, Vec<u8>)>,
    /// The others: those that say that they speak of it.
    pub(super) others: Vec<(Descriptor, Vec<u8>)>,
}

impl Manifests {
    /// The bytes of all of them.
    fn all(&self) -> Vec<&[u8]> {
        self.tagged.iter().chain(&self.others).map(|(_, bytes)| bytes.as_slice()).collect()
    }
}

/// Finds the manifests of a kind that lie beside a release. All of them together are no larger than one may be.
pub(super) async fn manifests(
    store: &Store<'_>,
    subject: &Descriptor,
    kind: Kind,
    limits: &Limits,
) -> Result<Manifests, Failure> {
    let tag = Reference::Tag(kind.tag(&subject.digest));
    let tagged = store.try_manifest(&tag, limits.manifest).await?;
    let mut left = limits.manifest.saturating_sub(tagged.as_ref().map_or(0, |(_, bytes)| bytes.len()));
    let referrers = store.referrers(&subject.digest, kind.artifact_type()).await?;
    let is_tagged = |digest: &Digest| tagged.as_ref().is_some_and(|(tagged, _)| tagged.digest == *digest);
    let digests: BTreeSet<_> =
        referrers.into_iter().map(|one| one.digest).filter(|digest| !is_tagged(digest)).collect();
    if digests.len() > MOST_MANIFESTS {
        let (what, count) = (kind.manifests(), digests.len());
        return Err(SignatureError::TooMany { what, count, most: MOST_MANIFESTS }.into());
    }
    let mut others = Vec::new();
    for digest in digests {
        // One that went since is none.
        if let Some(manifest) = store.try_manifest(&Reference::Digest(digest), left).await? {
            left = left.saturating_sub(manifest.1.len());
            others.push(manifest);
        }
    }
    Ok(Manifests { tagged, others })
}

/// Everything that lies beside a release as a signature of it.
///
/// # Errors
/// When that is not known, or is more than anybody looks at.
pub(crate) async fn signatures(
    store: &Store<'_>,
    subject: &Descriptor,
    limits: &Limits,
) -> Result<Beside<Found>, Failure> {
    let mut beside = Beside { found: Vec::new(), wrong: None };
    let mut known = BTreeSet::new();
    let there = manifests(store, subject, Kind::Signature, limits).await?;
    for bytes in there.all() {
        let SignatureManifest { payloads } = match signature::read(bytes, limits) {
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
                let (what, count) = (SIGNATURES, known.len());
                return Err(SignatureError::TooMany { what, count, most: MOST_SIGNATURES }.into());
            }
            let payload = store.blob(&descriptor, LARGEST_PAYLOAD as u64).await?;
            beside.found.push(Found { payload, signature });
        }
    }
    Ok(beside)
}

/// Where everything is that lies beside a release as an attestation of it. Nothing of it was looked at.
///
/// # Errors
/// When that is not known, or is more than anybody looks at.
pub(crate) async fn attestations(
    store: &Store<'_>,
    subject: &Descriptor,
    limits: &Limits,
) -> Result<Beside<Descriptor>, Failure> {
    let mut beside: Beside<Descriptor> = Beside { found: Vec::new(), wrong: None };
    let there = manifests(store, subject, Kind::Attestation, limits).await?;
    for bytes in there.all() {
        match attestation::read(bytes, limits) {
            Err(error) => {
                beside.wrong.get_or_insert(error);
            }
            Ok(envelopes) => {
                for envelope in envelopes {
                    // The same one may be in several manifests; what says something else of it hides nothing.
                    if !beside.found.iter().any(|other| said(other) == said(&envelope)) {
                        beside.found.push(envelope);
                    }
                }
            }
        }
        if beside.found.len() > MOST_SIGNATURES {
            let (what, count) = (ATTESTATIONS, beside.found.len());
            return Err(SignatureError::TooMany { what, count, most: MOST_SIGNATURES }.into());
        }
    }
    Ok(beside)
}

/// What a manifest says of an envelope.
fn said(envelope: &Descriptor) -> (&Digest, u64, Option<&str>) {
    (&envelope.digest, envelope.size, attestation::said_type(envelope))
}

/// What comes of the envelopes that a policy asks for, as far as they say what is in them; and what is there and cannot be looked at. One
/// is in memory at a time, and all of them together are no larger than a layer may be, so that nobody fetches without end.
async fn envelopes<'p>(
    store: &Store<'_>,
    subject: &Descriptor,
    policy: &'p SignaturePolicy,
    now: Timestamp,
    limits: &Limits,
) -> Result<Beside<Result<Attested<'p>, SignatureError>>, Failure> {
    let Beside { found, wrong } = attestations(store, subject, limits).await?;
    let mut beside = Beside { found: Vec::new(), wrong };
    let mut seen = BTreeSet::new();
    let (one, together) = (limits.manifest as u64, limits.compressed);
    let mut sum = 0_u64;
    for envelope in found {
        let wanted = |said: &str| policy.attestations.iter().any(|sort| sort.as_str() == said);
        if !attestation::said_type(&envelope).is_none_or(wanted) {
            continue;
        }
        // Two manifests may say two things of it.
        if !seen.insert((envelope.digest.clone(), envelope.size)) {
            continue;
        }
        if envelope.size > one {
            let (what, bytes) = (dsse::WHAT, envelope.size);
            beside.wrong.get_or_insert(SignatureError::TooLarge { what, bytes, most: one });
            continue;
        }
        let bytes = sum.saturating_add(envelope.size);
        if bytes > together {
            let what = "the attestations that are asked for together";
            beside.wrong.get_or_insert(SignatureError::TooLarge { what, bytes, most: together });
            continue;
        }
        sum = bytes;
        let bytes = store.blob(&envelope, one).await?;
        beside.found.push(attestation::verify(&bytes, &subject.digest, &policy.keys, now, limits));
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
    let at_place = |error: SignatureError| {
        let failure = Failure::from(error);
        let message = format!("{}@{}: {}", store.place(), manifest.digest, failure.message);
        Failure { message, ..failure }
    };
    let Beside { found, wrong } = signatures(store, manifest, limits).await?;
    let enough = |judged: &Judged| judged.keys.len() >= usize::try_from(policy.threshold()).unwrap_or(usize::MAX);
    let judged = match (policy.check(&manifest.digest, &found, now), wrong) {
        // Enough good ones are enough; otherwise what is wrong is told before what is missing.
        (Ok(judged), Some(wrong)) if !enough(&judged) => Err(wrong),
        (Err(error), Some(wrong)) if !error.is_wrong() => Err(wrong),
        (judged, _) => judged,
    };
    let judged = judged.map_err(at_place)?;
    if policy.attestations.is_empty() {
        return Ok(judged);
    }
    let Beside { found, wrong } = envelopes(store, manifest, policy, now, limits).await?;
    let attested = policy.attested(judged, &manifest.digest, found);
    attested.map_err(|error| at_place(wrong.filter(|_| !error.is_wrong()).unwrap_or(error)))
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

/// What is signed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Signed<'s> {
    /// The release.
    Release,
    /// Something that is said of it.
    Statement(&'s Predicate),
}

/// Signs a release, or something that is said of it; gives whether that changed anything. What others signed stays, also what they
/// sign meanwhile: in a folder nobody writes over what he has not read, and in a registry, which cannot be locked, it is read again and
/// added again, after a while, until the tag, where cosign looks, has all that lies beside the release.
///
/// # Errors
/// When it cannot be stored, or what is there under cosign's tag is no manifest of such.
pub(crate) async fn sign(
    store: &Store<'_>,
    release: &Release,
    key: &PrivateKey,
    signed: Signed<'_>,
    limits: &Limits,
) -> Result<bool, Failure> {
    let subject = &release.manifest;
    let kind = match signed {
        Signed::Release => Kind::Signature,
        Signed::Statement(_) => Kind::Attestation,
    };
    let tag = kind.tag(&subject.digest);
    let (mut changed, mut turns) = (false, Turns::default());
    loop {
        let store = &store.again()?;
        let Manifests { tagged, others } = manifests(store, subject, kind, limits).await?;
        let by_tag = tagged.as_ref().map_or_else(|| Ok(Vec::new()), |(_, bytes)| kind.held(bytes, limits))?;
        let mut held = by_tag.clone();
        for (_, bytes) in &others {
            // What cannot be read is nothing that could be kept.
            kind.unite(&mut held, kind.held(bytes, limits).unwrap_or_default())?;
        }
        let mut layout = Layout::default();
        let made = match signed {
            Signed::Release => added(store, release, key, &held, &mut layout).await?,
            Signed::Statement(predicate) => {
                // The same in every place that a release is copied to, so that it is attested once.
                let name = release.metadata.project.to_string();
                attestation::added(&mut layout, subject, &name, predicate, key, held.clone(), limits)?
            }
        };
        let made = match made {
            Some(made) => made,
            None if held.len() == by_tag.len() => return Ok(changed),
            // Somebody wrote over it who had not read it.
            None => signature::manifest(&mut layout, subject, &held, kind.artifact_type()),
        };
        if !turns.next(store, &tag, &made.digest).await? {
            continue;
        }
        let before = tagged.map(|(descriptor, _)| descriptor.digest);
        changed |= store.put(layout, &made, &tag, before.as_ref()).await?;
    }
}

/// The turns of whoever writes a tag that others write too: it is looked at, written, and looked at again, until it is as it should be.
#[derive(Debug, Default)]
pub(super) struct Turns {
    written: bool,
    lost: u32,
}

impl Turns {
    /// What is to be done when the tag is not as it should be: true if it is to be written. If it was, somebody else was faster, and may go
    /// on; what was read before a pause is old after it, so it is to be looked at again.
    ///
    /// # Errors
    /// When others write all the time.
    pub(super) async fn next(&mut self, store: &Store<'_>, tag: &str, made: &Digest) -> Result<bool, Failure> {
        self.written = !self.written;
        if self.written {
            return Ok(true);
        }
        self.lost += 1;
        if self.lost == TRIES {
            let message = format!("{}:{tag} is written by somebody else all the time", store.place());
            return Err(Failure::new(Code::RegistryUnavailable, message).hint("do it again when the others are done"));
        }
        tokio::time::sleep(pause(self.lost, made)).await;
        Ok(false)
    }
}

/// How long is waited after somebody else was faster so often: longer each time, up to an end, and for everything that is written another
/// while, so that two who met once do not go on meeting, also where both have the same key.
fn pause(lost: u32, written: &Digest) -> Duration {
    let least = 25_u64 << lost.min(4);
    let own = u64::from_str_radix(written.short(2), 16).unwrap_or_default();
    Duration::from_millis(least + least * own / 256)
}

/// A manifest with this signature and those that are there; nothing if one of them is by this key.
async fn added(
    store: &Store<'_>,
    release: &Release,
    key: &PrivateKey,
    held: &[Descriptor],
    layout: &mut Layout,
) -> Result<Option<Descriptor>, Failure> {
    let subject = &release.manifest;
    // Cosign writes the repository; nobody believes it, because releases are copied.
    let reference = match store.place() {
        Place::Registry(repository) => repository.to_string(),
        Place::Folder(_) => release.metadata.project.to_string(),
    };
    let signed = |one: &Descriptor| Some((one.clone(), one.annotations.get(ANNOTATION)?.clone()));
    let held = SignatureManifest { payloads: held.iter().filter_map(signed).collect() };
    // One key signs once, whatever repository is written in: the payload of a copy is as good.
    if signed_by(store, &held, release, key).await? {
        return Ok(None);
    }
    Ok(Some(signature::added(layout, subject, &reference, key, &held)?))
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

    use forge_core::release::{Builder, Inputs, Source, assemble, documents};

    use super::*;
    use crate::layout_folder;
    use crate::registry::Options;
    use crate::release::place::Named;
    use crate::release::transfer::copy;
    use crate::runtime::block_on;

    fn key(name: &str) -> PrivateKey {
        let folder = forge_testkit::checkout().join("crates/forge-core/tests/keys");
        PrivateKey::read(&std::fs::read_to_string(folder.join(name)).unwrap()).unwrap()
    }

    /// A release in a new folder.
    fn released(folder: &tempfile::TempDir, limits: &Limits) -> Named {
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
            layers: [("default".to_owned(), documents("a.yaml", text, limits).unwrap())].into(),
        };
        layout_folder::write(&path, &assemble(&inputs, limits).unwrap().layout.tree()).unwrap();
        Named::folder(&path, None).unwrap()
    }

    #[test]
    fn who_signs_keeps_what_somebody_else_signed_since_he_looked() {
        let (folder, limits) = (tempfile::tempdir().unwrap(), Limits::default());
        let registry = Registry::new(Options::default()).unwrap();
        let named = released(&folder, &limits);
        let signed = block_on(async {
            // Both look before one of them signs.
            let (one, other) = (
                Store::open(&registry, &named.place, &limits).unwrap(),
                Store::open(&registry, &named.place, &limits).unwrap(),
            );
            let release = Release::open(&one, &named, &limits).await.unwrap();
            assert!(sign(&one, &release, &key("ci.pem"), Signed::Release, &limits).await.unwrap());
            assert!(sign(&other, &release, &key("managers.pem"), Signed::Release, &limits).await.unwrap());
            // Who looked before he signed himself has signed.
            assert!(!sign(&one, &release, &key("ci.pem"), Signed::Release, &limits).await.unwrap());
            // What is said of it is kept likewise, each thing once for each key.
            let said = |text: &str| {
                let sort = "https://example.com/tested/v1".parse().unwrap();
                Predicate::read(sort, text.as_bytes(), &limits).unwrap()
            };
            let (tests, more) = (said(r#"{"tests": 12}"#), said(r#"{"tests": 13}"#));
            for (store, name, what, changes) in [
                (&one, "ci.pem", &tests, true),
                (&other, "managers.pem", &tests, true),
                (&one, "ci.pem", &tests, false),
                (&other, "ci.pem", &more, true),
            ] {
                let changed = sign(store, &release, &key(name), Signed::Statement(what), &limits).await.unwrap();
                assert_eq!(changed, changes, "{name} {what:?}");
            }
            let now = one.again().unwrap();
            let mut counts = Vec::new();
            for kind in [Kind::Signature, Kind::Attestation] {
                let tag = Reference::Tag(kind.tag(&release.manifest.digest));
                let (_, bytes) = now.try_manifest(&tag, limits.manifest).await.unwrap().unwrap();
                counts.push(kind.held(&bytes, &limits).unwrap().len());
            }
            counts
        });
        assert_eq!(signed.unwrap(), [2, 3]);
    }

    #[test]
    fn what_is_signed_at_the_target_since_it_was_opened_is_kept_when_a_release_is_copied_there() {
        let (folder, limits) = (tempfile::tempdir().unwrap(), Limits::default());
        let registry = Registry::new(Options::default()).unwrap();
        let named = released(&folder, &limits);
        let target = Named::folder(&folder.path().join("copy"), None).unwrap();
        let counts = block_on(async {
            let from = Store::open(&registry, &named.place, &limits).unwrap();
            let to = Store::open(&registry, &target.place, &limits).unwrap();
            let release = Release::open(&from, &named, &limits).await.unwrap();
            sign(&from, &release, &key("ci.pem"), Signed::Release, &limits).await.unwrap();
            let from = from.again().unwrap();
            copy(&from, &to, &release).await.unwrap();
            sign(&to.again().unwrap(), &release, &key("managers.pem"), Signed::Release, &limits).await.unwrap();
            // It was opened when nothing was there.
            copy(&from, &to, &release).await.unwrap();
            let both = signatures(&to.again().unwrap(), &release.manifest, &limits).await.unwrap().found.len();
            // What both have by now under their tags is united the other way too.
            sign(&from, &release, &key("rfc6979.pem"), Signed::Release, &limits).await.unwrap();
            copy(&from.again().unwrap(), &to, &release).await.unwrap();
            let tag = Reference::Tag(Kind::Signature.tag(&release.manifest.digest));
            let (_, bytes) = to.again().unwrap().try_manifest(&tag, limits.manifest).await.unwrap().unwrap();
            (both, Kind::Signature.held(&bytes, &limits).unwrap().len())
        });
        assert_eq!(counts.unwrap(), (2, 3));
    }

    #[test]
    fn a_good_attestation_is_enough_whatever_more_of_the_same_type_there_is() {
        let (folder, limits) = (tempfile::tempdir().unwrap(), Limits::default());
        let registry = Registry::new(Options::default()).unwrap();
        let named = released(&folder, &limits);
        let sort = |text: &str| -> attestation::PredicateType { text.parse().unwrap() };
        let (wanted, other) = ("https://example.com/tested/v1", "https://example.com/other/v1");
        block_on(async {
            let store = Store::open(&registry, &named.place, &limits).unwrap();
            let release = Release::open(&store, &named, &limits).await.unwrap();
            sign(&store, &release, &key("ci.pem"), Signed::Release, &limits).await.unwrap();
            for (sort, text) in [
                (sort(wanted), r#"{"tests": 12}"#.to_owned()),
                (sort(wanted), format!(r#"{{"tests": "{}"}}"#, "x".repeat(3000))),
                (sort(other), format!(r#"{{"tests": "{}"}}"#, "x".repeat(3000))),
            ] {
                let predicate = Predicate::read(sort, text.as_bytes(), &limits).unwrap();
                sign(&store, &release, &key("ci.pem"), Signed::Statement(&predicate), &limits).await.unwrap();
            }
            let store = store.again().unwrap();
            let name: KeyName = "ci".parse().unwrap();
            let keys = vec![TrustedKey { name, key: key("ci.pem").public(), until: None }];
            let asks =
                |text: &str| SignaturePolicy { attestations: [sort(text)].into(), ..SignaturePolicy::of(keys.clone()) };
            let now = Timestamp::UNIX_EPOCH;
            // The second one does not fit into what all may have, then not into what one may have.
            for small in [Limits { compressed: 4000, ..limits }, Limits { manifest: 3000, ..limits }] {
                judged(&store, &release.manifest, &asks(wanted), now, &small).await.unwrap();
            }
            for (small, why) in [
                (Limits { compressed: 4000, ..limits }, "the attestations that are asked for together"),
                (Limits { manifest: 3000, ..limits }, "the envelope has "),
            ] {
                let failure = judged(&store, &release.manifest, &asks(other), now, &small).await.unwrap_err();
                assert_eq!(failure.code, Code::SignatureWrong);
                assert!(failure.message.contains(why), "{}", failure.message);
            }
        })
        .unwrap();
    }

    #[test]
    fn who_is_never_the_last_to_write_gives_up_after_so_many_times() {
        let folder = tempfile::tempdir().unwrap();
        let registry = Registry::new(Options::default()).unwrap();
        let place = Place::Folder(folder.path().join("layout"));
        let (written, failure) = block_on(async {
            let store = Store::open(&registry, &place, &Limits::default()).unwrap();
            // Two times are left; the pauses before are those of the next test.
            let mut turns = Turns { written: false, lost: TRIES - 2 };
            let (mut written, made) = (0, Digest::of(b"made"));
            loop {
                match turns.next(&store, "tag", &made).await {
                    Ok(turn) => written += u32::from(turn),
                    Err(failure) => break (written, failure),
                }
            }
        })
        .unwrap();
        assert_eq!((written, failure.code), (2, Code::RegistryUnavailable));
        assert!(failure.message.contains(":tag is written by somebody else all the time"), "{}", failure.message);
    }

    #[test]
    fn who_lost_waits_longer_each_time_but_not_for_ever_and_not_as_long_as_others() {
        let (one, other) = (Digest::of(b"one"), Digest::of(b"other"));
        let of = |written: &Digest| (1..TRIES).map(|lost| pause(lost, written)).collect::<Vec<_>>();
        for written in [&one, &other] {
            let all = of(written);
            assert!(all.is_sorted() && all[0] >= Duration::from_millis(50), "{all:?}");
            assert!(all[0] < all[3] && all[3] == all[14], "{all:?}");
            assert!(all.iter().sum::<Duration>() < Duration::from_secs(12), "{all:?}");
        }
        assert!(of(&one).iter().zip(of(&other)).all(|(one, other)| *one != other));
    }
}
