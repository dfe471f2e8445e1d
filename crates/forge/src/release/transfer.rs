//! Places that keep releases, alike: a repository of a registry, or a folder with an OCI layout. Releases are found there, read,
//! and copied from one to another byte by byte, with their signatures and attestations. A tag of a release is never moved to another one.

use std::collections::BTreeSet;

use forge_core::code::Code;
use forge_core::digest::{CommitId, Digest};
use forge_core::failure::Failure;
use forge_core::name::clip;
use forge_core::oci::{Annotations, Descriptor, Layout, REF_NAME};
use forge_core::release::manifest::is_ours;
use forge_core::release::signature::{self, ANNOTATION, MOST_SIGNATURES};
use forge_core::release::{Limits, PROJECT, ReleaseMetadata};
use futures::{StreamExt as _, TryStreamExt as _};

use super::opened::Release;
use super::place::{Place, Which, ambiguous, fitting, is_beginning, missing, version_tag};
use super::sign::{Kind, Manifests, Turns, manifests};
use crate::layout_folder::{self, LayoutFolder};
use crate::registry::{self, Held, Reference, Registry, references};

/// What OCI calls the version of something.
const VERSION: &str = "org.opencontainers.image.version";
/// How many manifests are asked for at a time.
const AT_ONCE: usize = 8;

/// A place that keeps releases.
pub(crate) struct Store<'r> {
    registry: &'r Registry,
    place: Place,
    /// What is in the folder, where it is one and there already.
    folder: Option<LayoutFolder>,
    limits: Limits,
}

/// A release as a list shows it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Row {
    pub(crate) commit: String,
    pub(crate) version: Option<String>,
    pub(crate) digest: Digest,
}

/// The releases of a place.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) releases: Vec<Row>,
    /// How many were not looked at.
    pub(crate) left: usize,
}

impl<'r> Store<'r> {
    /// Opens a place. A folder need not be there: it may be what is written to.
    ///
    /// # Errors
    /// When a folder is a layout that cannot be read.
    pub(crate) fn open(registry: &'r Registry, place: &Place, limits: &Limits) -> Result<Self, Failure> {
        let folder = match place {
            Place::Folder(path) if path.join("oci-layout").exists() => Some(LayoutFolder::open(path)?),
            _ => None,
        };
        Ok(Self { registry, place: place.clone(), folder, limits: *limits })
    }

    /// The same place, as it is now.
    ///
    /// # Errors
    /// When a folder is a layout that cannot be read.
    pub(super) fn again(&self) -> Result<Self, Failure> {
        Self::open(self.registry, &self.place, &self.limits)
    }

    /// Which place it is.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// The manifest of a reference.
    ///
    /// # Errors
    /// When it is not there, is too large, or is not what was asked for.
    pub(crate) async fn manifest(&self, reference: &Reference, most: usize) -> Result<(Descriptor, Vec<u8>), Failure> {
        if let (Place::Folder(path), None) = (&self.place, &self.folder) {
            // Says what is the matter with it.
            LayoutFolder::open(path)?;
        }
        self.try_manifest(reference, most).await?.ok_or_else(|| missing(&self.place, &reference.to_string()))
    }

    /// The manifest of a reference, if it is there.
    ///
    /// # Errors
    /// When that is not known, or it is too large or not what was asked for.
    pub(crate) async fn try_manifest(
        &self,
        reference: &Reference,
        most: usize,
    ) -> Result<Option<(Descriptor, Vec<u8>)>, Failure> {
        match &self.place {
            Place::Registry(repository) => match self.registry.manifest(repository, reference, most).await {
                Err(error) if error.is_missing() => Ok(None),
                found => Ok(Some(found?)),
            },
            Place::Folder(_) => {
                let Some(folder) = &self.folder else { return Ok(None) };
                let wanted = |root: &&Descriptor| match reference {
                    Reference::Tag(tag) => root.annotations.get(REF_NAME) == Some(tag),
                    Reference::Digest(digest) => root.digest == *digest,
                };
                let Some(root) = folder.roots().iter().find(wanted) else { return Ok(None) };
                let bytes = folder.blob(root, most as u64)?;
                Ok(Some((Descriptor { annotations: Annotations::new(), ..root.clone() }, bytes)))
            }
        }
    }

    /// A blob, which is what it should be.
    ///
    /// # Errors
    /// When it is not there, is too large, or is something else.
    pub(crate) async fn blob(&self, what: &Descriptor, most: u64) -> Result<Vec<u8>, Failure> {
        match (&self.place, &self.folder) {
            (Place::Registry(repository), _) => {
                let mut bytes = Vec::new();
                self.registry.blob(repository, what, most, &mut bytes).await?;
                Ok(bytes)
            }
            (Place::Folder(_), Some(folder)) => Ok(folder.blob(what, most)?),
            (Place::Folder(path), None) => Ok(LayoutFolder::open(path)?.blob(what, most)?),
        }
    }

    /// What says that it speaks of something, and is of this kind.
    ///
    /// # Errors
    /// When that is not known.
    pub(crate) async fn referrers(&self, subject: &Digest, kind: &str) -> Result<Vec<Descriptor>, Failure> {
        match (&self.place, &self.folder) {
            (Place::Registry(repository), _) => Ok(self.registry.referrers(repository, subject, Some(kind)).await?),
            (Place::Folder(_), None) => Ok(Vec::new()),
            (Place::Folder(_), Some(folder)) => {
                let mut found = Vec::new();
                for root in folder.roots() {
                    // What cannot be read speaks of nothing that is known; one that is asked for by name says why.
                    let Ok(bytes) = folder.blob(root, self.limits.manifest as u64) else { continue };
                    let Ok(said) = references(&bytes) else { continue };
                    let speaks = said.subject.is_some_and(|other| other.digest == *subject);
                    if speaks && said.artifact_type.as_deref() == Some(kind) {
                        found.push(root.clone());
                    }
                }
                Ok(found)
            }
        }
    }

    /// Finds which release is meant.
    ///
    /// # Errors
    /// When there is none, or it fits several.
    pub(crate) async fn find(&self, which: &Which) -> Result<Reference, Failure> {
        match (which, &self.place) {
            (Which::Digest(digest), _) => Ok(Reference::Digest(digest.clone())),
            (Which::Tagged(tag), _) => Ok(Reference::Tag(tag.clone())),
            (_, Place::Folder(path)) => match &self.folder {
                Some(folder) => self.find_root(folder, which),
                None => Err(LayoutFolder::open(path).err().map_or_else(|| missing(&self.place, "any"), Failure::from)),
            },
            (Which::Only, Place::Registry(repository)) => {
                let message = format!("which release of {repository}?");
                Err(Failure::new(Code::BadArgument, message)
                    .hint("add `:COMMIT` or `@sha256:…`, or --release; `forge release list` shows what is there"))
            }
            (Which::Named(name), Place::Registry(repository)) => {
                // A whole commit, or what can be no part of one, is a tag.
                if !is_beginning(name) {
                    return version_tag(name).parse().map_err(Failure::from);
                }
                let tags = self.registry.tags(repository).await?;
                match fitting(name, tags.iter().map(String::as_str)).as_slice() {
                    [] => Err(missing(&self.place, name)),
                    [tag] => Ok(Reference::Tag((*tag).to_owned())),
                    several => Err(ambiguous(name, several)),
                }
            }
        }
    }

    /// The root of a folder that is meant.
    fn find_root(&self, folder: &LayoutFolder, which: &Which) -> Result<Reference, Failure> {
        let roots = self.roots(folder);
        let named = |root: &Root| root.name.clone().unwrap_or_else(|| root.digest.to_string());
        let fits = |root: &&Root| match which {
            Which::Named(name) => {
                root.version.as_ref() == Some(name)
                    || !fitting(name, root.name.as_deref()).is_empty()
                    || root.name.as_ref() == Some(name)
            }
            Which::Only | Which::Digest(_) | Which::Tagged(_) => true,
        };
        let found: Vec<&Root> = roots.iter().filter(fits).collect();
        let asked = if let Which::Named(name) = which { name.as_str() } else { "any" };
        let digests: BTreeSet<&Digest> = found.iter().map(|root| &root.digest).collect();
        match (found.first(), digests.len()) {
            (None, _) => Err(missing(&self.place, asked)),
            (Some(root), 1) => {
                // By its commit, if one of its names is that: then it is compared with what the release says of itself.
                let commit = found.iter().find(|root| root.name.as_deref().is_some_and(is_commit)).unwrap_or(root);
                Ok(commit.name.clone().map_or_else(|| Reference::Digest(commit.digest.clone()), Reference::Tag))
            }
            _ => {
                let names: Vec<String> = found.iter().map(|root| named(root)).collect();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                Err(ambiguous(asked, &names))
            }
        }
    }

    /// What a folder offers that says of itself that it is a release; everything where it offers only one thing, which then says
    /// itself what is the matter with it.
    fn roots(&self, folder: &LayoutFolder) -> Vec<Root> {
        let only = folder.roots().len() == 1;
        let mut found = Vec::new();
        for root in folder.roots() {
            let bytes = folder.blob(root, self.limits.manifest as u64).unwrap_or_default();
            if !only && !is_ours(&bytes, &self.limits) {
                continue;
            }
            let version = references(&bytes).ok().and_then(|said| said.annotations.get(VERSION).cloned());
            found.push(Root { name: root.annotations.get(REF_NAME).cloned(), digest: root.digest.clone(), version });
        }
        found
    }

    /// The releases of a place, in the order of their commits; at most so many are looked at.
    ///
    /// # Errors
    /// When that is not known.
    pub(crate) async fn list(&self, wanted: Option<&str>, most: usize) -> Result<Listed, Failure> {
        let repository = match (&self.place, &self.folder) {
            (Place::Registry(repository), _) => repository,
            (Place::Folder(path), None) => {
                LayoutFolder::open(path)?;
                return Ok(Listed { releases: Vec::new(), left: 0 });
            }
            (Place::Folder(_), Some(folder)) => {
                let rows = self.roots(folder).into_iter().filter_map(|root| {
                    let commit = root.name.filter(|name| is_commit(name))?;
                    Some(Row { commit, version: root.version, digest: root.digest })
                });
                let releases = rows.filter(|row| row.fits(wanted)).collect();
                return Ok(Listed { releases, left: 0 });
            }
        };
        let tags = self.registry.tags(repository).await?;
        let begins = wanted.filter(|wanted| is_beginning(wanted) || is_commit(wanted));
        let mut commits: Vec<String> = tags.into_iter().filter(|tag| is_commit(tag)).collect();
        if let Some(begin) = begins {
            commits.retain(|commit| commit.starts_with(begin));
        }
        let left = commits.len().saturating_sub(most);
        commits.truncate(most);
        let limits = self.limits;
        let rows = futures::stream::iter(commits).map(|commit| async move {
            let reference = Reference::Tag(commit.clone());
            let Some((descriptor, bytes)) = self.try_manifest(&reference, limits.manifest).await? else {
                return Ok::<_, Failure>(None);
            };
            if !is_ours(&bytes, &limits) {
                return Ok(None);
            }
            let version = references(&bytes).ok().and_then(|said| said.annotations.get(VERSION).cloned());
            Ok(Some(Row { commit, version, digest: descriptor.digest }))
        });
        let rows: Vec<Option<Row>> = rows.buffered(AT_ONCE).try_collect().await?;
        // By its beginning it was looked for already.
        let wanted = if begins.is_some() { None } else { wanted };
        Ok(Listed { releases: rows.into_iter().flatten().filter(|row| row.fits(wanted)).collect(), left })
    }

    /// Stores a manifest with blobs of a layout, under a tag, in the place of what was there before. What else it refers to is there
    /// already. False, and nothing is written, where something else is there by now; a registry cannot tell.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub(super) async fn put(
        &self,
        mut layout: Layout,
        manifest: &Descriptor,
        tag: &str,
        before: Option<&Digest>,
    ) -> Result<bool, Failure> {
        let repository = match &self.place {
            Place::Registry(repository) => repository,
            Place::Folder(path) => {
                layout.offer(manifest.clone(), Some(tag));
                return Ok(layout_folder::replace(path, &layout.tree(), tag, before)?);
            }
        };
        let tree = layout.tree();
        let bytes = tree.held(manifest, self.limits.manifest as u64)?;
        for blob in references(&bytes).map(|said| said.blobs).unwrap_or_default() {
            if tree.get(&format!("blobs/sha256/{}", blob.digest.short(64))).is_some() {
                let content = tree.held(&blob, self.limits.compressed)?;
                self.registry.push_blob(repository, &blob, &content).await?;
            }
        }
        self.registry.push_manifest(repository, manifest, &bytes, Some(tag)).await?;
        Ok(true)
    }

    /// Whether a release is there under all of its tags.
    ///
    /// # Errors
    /// When one of them is that of another release.
    async fn has_tagged(&self, manifest: &Descriptor, tags: &[String]) -> Result<bool, Failure> {
        let mut all = true;
        for tag in tags {
            match self.try_manifest(&Reference::Tag(tag.clone()), self.limits.manifest).await? {
                None => all = false,
                Some((there, _)) if there.digest == manifest.digest => {}
                Some((there, _)) => {
                    let message = format!(
                        "{}:{} is {} already, and this is {}",
                        self.place,
                        clip(tag),
                        there.digest,
                        manifest.digest
                    );
                    return Err(Failure::new(Code::RegistryRefused, message).hint(
                        "a release does not change: find out why two builds differ, or release another commit or version",
                    ));
                }
            }
        }
        Ok(all)
    }

    /// That a folder does not hold a release of another project under the same commit: a layout has one name for each.
    ///
    /// # Errors
    /// When it does.
    pub(crate) async fn is_free_for(&self, metadata: &ReleaseMetadata) -> Result<(), Failure> {
        let commit = &metadata.source.commit;
        let tag = Reference::Tag(commit.as_str().to_owned());
        let Some((_, bytes)) = self.try_manifest(&tag, self.limits.manifest).await? else { return Ok(()) };
        let said = references(&bytes).map(|said| said.annotations).unwrap_or_default();
        let own = metadata.project.to_string();
        match said.get(PROJECT).filter(|project| **project != own) {
            None => Ok(()),
            Some(other) => {
                let message = format!("{} holds a release of `{}` of commit {commit} already", self.place, clip(other));
                Err(Failure::new(Code::BadArgument, message).hint("name another folder: one for each project"))
            }
        }
    }

    /// Gives a manifest, with all that it refers to, to another place, under these tags; under none it is there by its digest.
    async fn give(
        &self,
        to: &Store<'_>,
        manifest: &Descriptor,
        tags: &[String],
        limits: &Limits,
    ) -> Result<(), Failure> {
        if let (Some(folder), Place::Registry(_)) = (&self.folder, &to.place) {
            return to.take(folder, manifest, tags, limits).await;
        }
        let mut layout = self.gathered(manifest, limits).await?;
        match &to.place {
            Place::Registry(_) => to.take(&layout.tree(), manifest, tags, limits).await,
            Place::Folder(path) => {
                for tag in tags {
                    layout.offer(manifest.clone(), Some(tag));
                }
                if tags.is_empty() {
                    layout.offer(manifest.clone(), None);
                }
                Ok(layout_folder::write(path, &layout.tree())?)
            }
        }
    }

    /// A manifest with all that it refers to, which a layout does not offer yet.
    async fn gathered(&self, manifest: &Descriptor, limits: &Limits) -> Result<Layout, Failure> {
        let mut layout = Layout::default();
        match &self.place {
            Place::Registry(repository) => {
                let reference = Reference::Digest(manifest.digest.clone());
                registry::fetch(self.registry, repository, &reference, limits, &mut layout).await?;
            }
            Place::Folder(_) => {
                let bytes = self.blob(manifest, limits.manifest as u64).await?;
                let said = references(&bytes).map_err(|why| {
                    Failure::new(Code::ReleaseMalformed, format!("{} cannot be copied: {why}", manifest.digest))
                })?;
                for blob in said.blobs {
                    layout.blob(&blob.media_type, self.blob(&blob, limits.compressed).await?);
                }
                layout.blob(&manifest.media_type, bytes);
            }
        }
        Ok(layout)
    }

    /// Takes a manifest, with all that it refers to, into a repository.
    async fn take(
        &self,
        from: &(impl Held + Sync),
        manifest: &Descriptor,
        tags: &[String],
        limits: &Limits,
    ) -> Result<(), Failure> {
        let Place::Registry(repository) = &self.place else { return Ok(()) };
        if tags.is_empty() {
            return registry::push(self.registry, repository, from, manifest, None, limits).await;
        }
        for tag in tags {
            registry::push(self.registry, repository, from, manifest, Some(tag), limits).await?;
        }
        Ok(())
    }
}

/// Something that a folder offers.
struct Root {
    name: Option<String>,
    digest: Digest,
    version: Option<String>,
}

impl Row {
    fn fits(&self, wanted: Option<&str>) -> bool {
        wanted.is_none_or(|wanted| {
            self.commit.starts_with(wanted) || self.version.as_deref() == Some(wanted) || self.digest.as_str() == wanted
        })
    }
}

fn is_commit(text: &str) -> bool {
    text.parse::<CommitId>().is_ok()
}

/// The tags of a release: its commit, and its version if it has one.
fn tags(metadata: &ReleaseMetadata) -> Vec<String> {
    let mut tags = vec![metadata.source.commit.as_str().to_owned()];
    tags.extend(metadata.version.as_deref().map(version_tag));
    tags
}

/// Pushes a release that was just built; gives whether it was not there.
///
/// # Errors
/// When it cannot be stored, or another release has one of its tags.
pub(crate) async fn push(
    to: &Store<'_>,
    from: &(impl Held + Sync),
    manifest: &Descriptor,
    metadata: &ReleaseMetadata,
) -> Result<bool, Failure> {
    let tags = tags(metadata);
    if to.has_tagged(manifest, &tags).await? {
        return Ok(false);
    }
    to.take(from, manifest, &tags, &to.limits).await?;
    Ok(true)
}

/// What was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Copied {
    /// The release was not there.
    fresh: bool,
    /// How many signatures lie beside it.
    signatures: usize,
    /// How many attestations.
    attestations: usize,
    /// How many manifests beside it were not taken along, because nobody could read them.
    left: usize,
}

impl Copied {
    /// What happened to the release.
    pub(crate) fn word(self) -> &'static str {
        if self.fresh { "copied" } else { "unchanged" }
    }

    /// What came along.
    pub(crate) fn with(self) -> String {
        let counted = |count: usize, what: &str| match count {
            0 => None,
            1 => Some(format!("1 {what}")),
            count => Some(format!("{count} {what}s")),
        };
        let parts: Vec<String> = [counted(self.signatures, "signature"), counted(self.attestations, "attestation")]
            .into_iter()
            .flatten()
            .collect();
        let with = if parts.is_empty() { String::new() } else { format!(", with {}", parts.join(" and ")) };
        match counted(self.left, "manifest") {
            None => with,
            Some(left) => format!("{with}, and without {left} beside it that cannot be read"),
        }
    }
}

/// Copies a release, with its signatures and attestations, to another place.
///
/// # Errors
/// When something of it cannot be read or stored, or another release has one of its tags there.
pub(crate) async fn copy(from: &Store<'_>, to: &Store<'_>, release: &Release) -> Result<Copied, Failure> {
    let (manifest, limits) = (&release.manifest, from.limits);
    let tags = tags(&release.metadata);
    if let Place::Folder(_) = &to.place {
        to.is_free_for(&release.metadata).await?;
    }
    let fresh = !to.has_tagged(manifest, &tags).await?;
    if fresh {
        from.give(to, manifest, &tags, &limits).await?;
    }
    let (signatures, unread) = copy_beside(from, to, manifest, Kind::Signature).await?;
    let (attestations, more) = copy_beside(from, to, manifest, Kind::Attestation).await?;
    Ok(Copied { fresh, signatures, attestations, left: unread + more })
}

/// The limits of what lies beside a release: it has more layers than one.
fn wide(limits: &Limits) -> Limits {
    Limits { layers: MOST_SIGNATURES, ..*limits }
}

/// Copies what lies of a kind beside a release; gives how many of it there are, and how many manifests were left.
async fn copy_beside(
    from: &Store<'_>,
    to: &Store<'_>,
    manifest: &Descriptor,
    kind: Kind,
) -> Result<(usize, usize), Failure> {
    let limits = from.limits;
    let (mut count, mut left) = (BTreeSet::new(), 0);
    let fits = |blob: &Descriptor| blob.size <= limits.compressed;
    let of = |one: &Descriptor| (one.digest.clone(), one.annotations.get(ANNOTATION).cloned());
    let Manifests { tagged, others } = manifests(from, manifest, kind, &limits).await?;
    if let Some(tagged) = &tagged {
        match kind.held(&tagged.1, &limits) {
            Ok(held) => {
                copy_tagged(from, to, manifest, kind, tagged, &held).await?;
                count.extend(held.iter().map(of));
            }
            // No policy asks for them.
            Err(_) if kind == Kind::Attestation => left += 1,
            Err(error) => return Err(error.into()),
        }
    }
    let by_tag = to.again()?.try_manifest(&Reference::Tag(kind.tag(&manifest.digest)), limits.manifest).await?;
    for (found, bytes) in others {
        // Anybody may put something beside a release: what nobody can read keeps nobody from copying it.
        let held = match kind.held(&bytes, &limits) {
            Ok(held) if references(&bytes).is_ok_and(|said| said.blobs.iter().all(fits)) => held,
            _ => {
                left += 1;
                continue;
            }
        };
        count.extend(held.iter().map(of));
        if by_tag.as_ref().is_none_or(|(there, _)| there.digest != found.digest) {
            from.give(to, &found, &[], &wide(&limits)).await?;
        }
    }
    Ok((count.len(), left))
}

/// Copies what cosign's tag names, with what it holds. What the other place has under its tag stays: then the tag names a manifest
/// with both. Cosign's own say nowhere of what they speak, so without the tag nobody would find them.
async fn copy_tagged(
    from: &Store<'_>,
    to: &Store<'_>,
    subject: &Descriptor,
    kind: Kind,
    (found, bytes): &(Descriptor, Vec<u8>),
    held: &[Descriptor],
) -> Result<(), Failure> {
    let (limits, tag) = (from.limits, kind.tag(&subject.digest));
    let mut turns = Turns::default();
    loop {
        let to = to.again()?;
        let there = to.try_manifest(&Reference::Tag(tag.clone()), limits.manifest).await?;
        let kept = match &there {
            None => Vec::new(),
            Some((other, _)) if other.digest == found.digest => return Ok(()),
            Some((_, other)) => match kind.held(other, &limits) {
                Ok(kept) if held.iter().all(|one| kept.contains(one)) => return Ok(()),
                Ok(kept) => kept,
                // Nobody knows what it is, so it stays; what says itself of what it speaks is found beside it.
                Err(error) => {
                    let said = references(bytes).ok().and_then(|said| said.subject);
                    if said.is_some_and(|said| said.digest == subject.digest) {
                        return from.give(&to, found, &[], &wide(&limits)).await;
                    }
                    return Err(error.into());
                }
            },
        };
        if !turns.next(&to, &tag, &found.digest).await? {
            continue;
        }
        let mut layout = from.gathered(found, &wide(&limits)).await?;
        let made = if kept.iter().all(|one| held.contains(one)) {
            found.clone()
        } else {
            let mut all = kept;
            kind.unite(&mut all, held.to_vec())?;
            signature::manifest(&mut layout, subject, &all, kind.artifact_type())
        };
        let before = there.map(|(other, _)| other.digest);
        to.put(layout, &made, &tag, before.as_ref()).await?;
    }
}

#[cfg(test)]
mod tests {
    use forge_core::oci::Artifact;
    use forge_core::release::media_type;

    use super::*;
    use crate::registry::Options;
    use crate::runtime::block_on;

    const COMMIT: &str = "3f2a9c1d5e7b80416a2c9d3e5f70b1a4c6d8e9f0";
    const OTHER: &str = "3f2a00b1c6d8e9f03f2a9c1d5e7b80416a2c9d3e";

    /// A folder that offers things which say that they are releases, under these names.
    fn folder(names: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let mut layout = Layout::default();
        for (name, version) in names {
            let annotations: Annotations = [(VERSION.to_owned(), (*version).to_owned())].into();
            let layer = layout.blob("application/x", format!("{name}{version}").into_bytes());
            let made = layout.artifact(&Artifact::new(media_type::RELEASE, &[layer], &annotations));
            layout.offer(made, Some(name));
        }
        layout_folder::write(&folder.path().join("layout"), &layout.tree()).unwrap();
        folder
    }

    fn find(folder: &tempfile::TempDir, which: &Which) -> Result<Reference, Failure> {
        let registry = Registry::new(Options::default()).unwrap();
        let place = Place::Folder(folder.path().join("layout"));
        block_on(async { Store::open(&registry, &place, &Limits::default())?.find(which).await }).unwrap()
    }

    #[test]
    fn a_release_of_a_folder_is_found_by_commit_beginning_and_version() {
        let kept = folder(&[(COMMIT, "1.4.0"), (OTHER, "1.5.0+b"), ("sha256-x.sig", "")]);
        let named = |name: &str| find(&kept, &Which::Named(name.to_owned()));
        let tag = |tag: &str| Reference::Tag(tag.to_owned());
        assert_eq!(named(COMMIT).unwrap(), tag(COMMIT));
        assert_eq!(named("3f2a9").unwrap(), tag(COMMIT));
        assert_eq!(named("1.5.0+b").unwrap(), tag(OTHER));
        assert_eq!(named("3f2a").unwrap_err().code, Code::ReleaseAmbiguous);
        assert_eq!(named("9.9.9").unwrap_err().code, Code::ReleaseMissing);
        assert_eq!(find(&kept, &Which::Only).unwrap_err().code, Code::ReleaseAmbiguous);
        assert_eq!(find(&folder(&[(COMMIT, "1")]), &Which::Only).unwrap(), tag(COMMIT));
    }

    #[test]
    fn the_releases_of_a_folder_are_those_with_a_commit() {
        let kept = folder(&[(COMMIT, "1.4.0"), ("latest", "1")]);
        let registry = Registry::new(Options::default()).unwrap();
        let place = Place::Folder(kept.path().join("layout"));
        let listed = block_on(async {
            let store = Store::open(&registry, &place, &Limits::default())?;
            store.list(None, 10).await
        });
        let listed = listed.unwrap().unwrap();
        let rows: Vec<_> = listed.releases.iter().map(|row| (row.commit.as_str(), row.version.as_deref())).collect();
        assert_eq!(rows, [(COMMIT, Some("1.4.0"))]);
    }

    #[test]
    fn what_was_copied_is_said() {
        let copied = |signatures: usize, attestations: usize| Copied { fresh: true, signatures, attestations, left: 0 };
        assert_eq!((copied(2, 0).word(), copied(2, 0).with().as_str()), ("copied", ", with 2 signatures"));
        assert_eq!(copied(1, 3).with(), ", with 1 signature and 3 attestations");
        assert_eq!(copied(0, 1).with(), ", with 1 attestation");
        assert_eq!(copied(0, 0).with(), "");
        assert_eq!(Copied { fresh: false, ..copied(0, 0) }.word(), "unchanged");
        let left = |count: usize| Copied { left: count, ..copied(1, 0) }.with();
        assert_eq!(left(1), ", with 1 signature, and without 1 manifest beside it that cannot be read");
        assert_eq!(left(2), ", with 1 signature, and without 2 manifests beside it that cannot be read");
    }
}
