//! Whole artifacts: a manifest with everything that it refers to, from a registry and to one. Blobs go before the manifest, so
//! that nobody finds a manifest whose parts are not there.

use forge_core::digest::Digest;
use forge_core::failure::Failure;
use forge_core::oci::{Descriptor, Entry, Layout, Tree};
use forge_core::release::Limits;

use super::content::{References, references};
use super::{Reference, Registry, RegistryError, RepositoryName};
use crate::layout_folder::LayoutFolder;

/// Something that holds blobs.
pub(crate) trait Held {
    /// A blob of at most so many bytes, which is what it should be.
    ///
    /// # Errors
    /// When it is not there, or is something else.
    fn held(&self, what: &Descriptor, most: u64) -> Result<Vec<u8>, Failure>;
}

impl Held for LayoutFolder {
    fn held(&self, what: &Descriptor, most: u64) -> Result<Vec<u8>, Failure> {
        Ok(self.blob(what, most)?)
    }
}

impl Held for Tree {
    fn held(&self, what: &Descriptor, most: u64) -> Result<Vec<u8>, Failure> {
        let digest = &what.digest;
        let Some(Entry::File { content, .. }) = self.get(&format!("blobs/sha256/{}", digest.short(64))) else {
            return Err(RegistryError::Missing { what: digest.to_string(), said: String::new() }.into());
        };
        if what.size > most {
            let found = format!("{} bytes", what.size);
            return Err(RegistryError::TooLarge { what: digest.to_string(), found, most }.into());
        }
        if content.len() as u64 != what.size || Digest::of(content) != *digest {
            let why = format!("it is {}, {} bytes", Digest::of(content), content.len());
            return Err(RegistryError::Malformed { what: digest.to_string(), why }.into());
        }
        Ok(content.clone())
    }
}

/// What a manifest refers to, if it is no more than is passed on.
fn parts(what: &str, bytes: &[u8], limits: &Limits) -> Result<References, RegistryError> {
    let found = references(bytes).map_err(|why| RegistryError::Malformed { what: what.to_owned(), why })?;
    // The configuration is counted too.
    let most = limits.layers.saturating_add(1);
    if found.blobs.len() > most {
        let count = format!("{} blobs", found.blobs.len());
        return Err(RegistryError::TooLarge { what: what.to_owned(), found: count, most: most as u64 });
    }
    Ok(found)
}

/// Takes a manifest and all that it refers to out of a registry into a layout; gives the manifest, which is not offered there yet.
///
/// # Errors
/// When something is not there, is too large, or is not what was asked for.
pub(crate) async fn fetch(
    registry: &Registry,
    from: &RepositoryName,
    reference: &Reference,
    limits: &Limits,
    into: &mut Layout,
) -> Result<Descriptor, Failure> {
    let (manifest, bytes) = registry.manifest(from, reference, limits.manifest).await?;
    for blob in parts(&format!("{from}@{}", manifest.digest), &bytes, limits)?.blobs {
        let mut content: Vec<u8> = Vec::new();
        registry.blob(from, &blob, limits.compressed, &mut content).await?;
        into.blob(&blob.media_type, content);
    }
    into.blob(&manifest.media_type, bytes);
    Ok(manifest)
}

/// Puts a manifest and all that it refers to into a registry, under a tag if there is one.
///
/// # Errors
/// When something is not there or not what it should be, or the registry does not take it.
pub(crate) async fn push(
    registry: &Registry,
    to: &RepositoryName,
    from: &(impl Held + Sync),
    manifest: &Descriptor,
    tag: Option<&str>,
    limits: &Limits,
) -> Result<(), Failure> {
    let bytes = from.held(manifest, limits.manifest as u64)?;
    for blob in parts(manifest.digest.as_str(), &bytes, limits)?.blobs {
        let content = from.held(&blob, limits.compressed)?;
        registry.push_blob(to, &blob, &content).await?;
    }
    Ok(registry.push_manifest(to, manifest, &bytes, tag).await?)
}
