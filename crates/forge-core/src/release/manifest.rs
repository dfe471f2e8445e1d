//! The manifest of a release: which layers there are, and for whom.

use std::collections::BTreeMap;

use super::{Limits, ReleaseError, ReleaseMetadata};
use crate::digest::Digest;
use crate::oci::{Annotations, Descriptor};

/// The manifest of a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// Which it is.
    pub digest: Digest,
    /// Where its metadata is.
    pub metadata: Descriptor,
    /// Where its resources are, by environment.
    pub resources: BTreeMap<String, Descriptor>,
    /// What else it says.
    pub annotations: Annotations,
}

impl Manifest {
    /// Reads the manifest of this digest.
    ///
    /// # Errors
    /// When these are other bytes, or are not the manifest of a release.
    pub fn read(bytes: &[u8], wanted: &Digest, limits: &Limits) -> Result<Self, ReleaseError> {
        let _ = (bytes, wanted, limits);
        Err(ReleaseError::malformed("the manifest", "is not read yet"))
    }

    /// The layer of resources for an environment: its own, or the one for all.
    ///
    /// # Errors
    /// When there is neither.
    pub fn layer(&self, environment: &str) -> Result<&Descriptor, ReleaseError> {
        Err(ReleaseError::NoLayer { environment: environment.to_owned(), known: Vec::new() })
    }

    /// Compares what the metadata says with what the manifest has.
    ///
    /// # Errors
    /// When they do not speak of the same layers.
    pub fn agrees(&self, metadata: &ReleaseMetadata) -> Result<(), ReleaseError> {
        let _ = metadata;
        Ok(())
    }
}

/// Whether a manifest says of itself that it is a release. For those who look through a repository; to use one,
/// [`Manifest::read`] it.
pub fn is_ours(bytes: &[u8], limits: &Limits) -> bool {
    let _ = (bytes, limits);
    false
}
