//! Documents into a release.

use std::collections::BTreeMap;

use super::{ArtifactReference, Builder, Document, Limits, ReleaseError, ReleaseMetadata, Source};
use crate::name::ProjectId;
use crate::oci::{Descriptor, Layout};

/// What a release is made of.
#[derive(Debug, Clone)]
pub struct Inputs {
    /// Of which project.
    pub project: ProjectId,
    /// What it was built from.
    pub source: Source,
    /// What builds it.
    pub builder: Builder,
    /// The version that people give it.
    pub version: Option<String>,
    /// What was built along with it.
    pub artifacts: Vec<ArtifactReference>,
    /// The documents by environment; [`super::DEFAULT_LAYER`] where there is one set for all.
    pub layers: BTreeMap<String, Vec<Document>>,
}

/// A release as bytes.
#[derive(Debug)]
pub struct Assembled {
    /// Its manifest.
    pub manifest: Descriptor,
    /// Its metadata.
    pub metadata: ReleaseMetadata,
    /// All of its blobs; the manifest is offered under the commit.
    pub layout: Layout,
}

/// Makes a release. The same inputs give the same bytes, whatever the order of documents.
///
/// # Errors
/// When there is nothing to release, an image is not fixed by digest, an object stands twice, or whoever reads the
/// release would find it beyond a limit.
pub fn assemble(inputs: &Inputs, limits: &Limits) -> Result<Assembled, ReleaseError> {
    let _ = (inputs, limits);
    Err(ReleaseError::malformed("the release", "is not made yet"))
}
