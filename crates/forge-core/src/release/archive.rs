//! Layers of resources: tar archives, packed by gzip.

use std::io::Read;

use super::{Document, Limits, ReleaseError};
use crate::oci::Descriptor;

/// A layer of documents: one file each, in the order of their keys, without time or owner.
///
/// # Errors
/// When a document stands twice, or its name fits no archive.
pub fn pack(documents: &[Document]) -> Result<Vec<u8>, ReleaseError> {
    let _ = documents;
    Ok(Vec::new())
}

/// Unpacks a layer as it comes, gives every file to `each` by its path, and says how many bytes they unpacked to.
///
/// What `each` was given counts only once this has returned: the digest is known at the end.
///
/// # Errors
/// When these are not the bytes that the descriptor promises, or not an archive of regular files within the limits; or
/// when `each` fails.
pub fn unpack(
    packed: &mut dyn Read,
    expected: &Descriptor,
    limits: &Limits,
    each: &mut dyn FnMut(&str, Vec<u8>) -> Result<(), ReleaseError>,
) -> Result<u64, ReleaseError> {
    let _ = (packed, expected, limits, each);
    Ok(0)
}
