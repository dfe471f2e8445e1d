//! A release that was found: its manifest and metadata, compared with their digests and with each other. A tag is looked up
//! once; from then on there is only the digest.

use forge_core::code::Code;
use forge_core::digest::CommitId;
use forge_core::failure::Failure;
use forge_core::oci::{self, Descriptor};
use forge_core::release::{
    Document, LayerSummary, Limits, Manifest, ReleaseError, ReleaseMetadata, distinct, read_layer,
};

use super::build::Layers;
use super::place::{Named, Which};
use super::transfer::Store;
use crate::registry::Reference;

/// A release whose manifest and metadata were read.
#[derive(Debug)]
pub(crate) struct Release {
    /// What its manifest is.
    pub(crate) manifest: Descriptor,
    /// Its bytes.
    pub(crate) bytes: Vec<u8>,
    /// What they say.
    pub(crate) read: Manifest,
    /// What its metadata says.
    pub(crate) metadata: ReleaseMetadata,
}

impl Release {
    /// Finds a release and reads what it is.
    ///
    /// # Errors
    /// When there is none, or another one than was named, or it is not what its digest says.
    pub(crate) async fn open(store: &Store<'_>, named: &Named, limits: &Limits) -> Result<Self, Failure> {
        let reference = store.find(&named.which).await?;
        let (manifest, bytes) = store.manifest(&reference, limits.manifest).await?;
        let read = Manifest::read(&bytes, &manifest.digest, limits)?;
        let metadata = store.blob(&read.metadata, limits.manifest as u64).await?;
        let metadata = ReleaseMetadata::read(&metadata, &read.metadata, limits)?;
        read.agrees(&metadata)?;
        let release = Self { manifest, bytes, read, metadata };
        release.is(named, &reference, store)?;
        Ok(release)
    }

    /// That it is the one that was named: a tag is only a claim.
    fn is(&self, named: &Named, reference: &Reference, store: &Store<'_>) -> Result<(), Failure> {
        let metadata = &self.metadata;
        let other = |what: &str, found: &str| {
            let message = format!("{}@{} is {what} {found}", store.place(), self.manifest.digest);
            Failure::new(Code::PointerMismatch, message)
                .hint("somebody moved a tag, or pushed to the wrong place; `forge release list` shows what is there")
        };
        if let Some(project) = named.project.as_ref().filter(|project| **project != metadata.project) {
            return Err(other(&format!("no release of `{project}`, but of"), &metadata.project.to_string()));
        }
        if let Reference::Tag(tag) = reference
            && tag.parse::<CommitId>().is_ok_and(|commit| commit != metadata.source.commit)
        {
            return Err(other(&format!("not of commit {tag}, but of"), metadata.source.commit.as_str()));
        }
        let by_version = match (&named.which, reference) {
            (Which::Named(name), Reference::Tag(tag)) if tag.parse::<CommitId>().is_err() => Some(name),
            _ => None,
        };
        if let Some(version) = by_version.filter(|version| metadata.version.as_ref() != Some(*version)) {
            let found = metadata.version.as_deref().unwrap_or("none");
            return Err(other(&format!("not version {version}, but"), found));
        }
        Ok(())
    }

    /// What it would deploy in an environment.
    ///
    /// # Errors
    /// When it has nothing for it, or what it has is damaged.
    pub(crate) async fn documents(
        &self,
        store: &Store<'_>,
        environment: &str,
        limits: &Limits,
    ) -> Result<Vec<Document>, Failure> {
        let layer = self.read.layer(environment)?;
        layer_of(store, layer, limits).await
    }

    /// All of it, by layer.
    ///
    /// # Errors
    /// When anything of it is damaged.
    pub(crate) async fn layers(&self, store: &Store<'_>, limits: &Limits) -> Result<Layers, Failure> {
        let mut layers = Layers::new();
        for (name, layer) in &self.read.resources {
            layers.insert(name.clone(), layer_of(store, layer, limits).await?);
        }
        Ok(layers)
    }

    /// That all of it is what its metadata say, and as whoever renders it wants it. One layer is in memory at a time.
    ///
    /// # Errors
    /// When anything of it is damaged, would not be rendered, or is something else than is said.
    pub(crate) async fn check(&self, store: &Store<'_>, limits: &Limits) -> Result<(), Failure> {
        for (name, layer) in &self.read.resources {
            let documents = layer_of(store, layer, limits).await?;
            self.metadata.agrees(name, &LayerSummary::of(&layer.digest, &documents))?;
        }
        // Who shows images would miss it.
        if self.read.config.media_type == oci::media_type::CONFIG {
            store.blob(&self.read.config, limits.manifest as u64).await?;
        }
        Ok(())
    }

    /// The bytes of everything that it holds.
    pub(crate) fn size(&self) -> u64 {
        let layers: u64 = self.read.resources.values().map(|layer| layer.size).sum();
        self.manifest.size.saturating_add(self.read.metadata.size).saturating_add(layers)
    }
}

/// The documents of a layer, read as the plugin reads it: what it would refuse is refused here, before anybody relies on it.
async fn layer_of(store: &Store<'_>, layer: &Descriptor, limits: &Limits) -> Result<Vec<Document>, Failure> {
    let packed = store.blob(layer, limits.compressed).await?;
    let mut found = Vec::new();
    read_layer(&mut packed.as_slice(), layer, limits, &mut |document, _| {
        found.push(document);
        Ok(())
    })?;
    // With prune, nothing in the place of something would delete it.
    if found.is_empty() {
        let what = format!("layer `sha256:{}…`", layer.digest.short(12));
        return Err(ReleaseError::Empty { what }.into());
    }
    Ok(distinct(found)?)
}
