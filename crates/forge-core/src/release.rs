//! Releases: immutable OCI artifacts that hold, per environment, every Kubernetes document of a project (SPEC.md section
//! 7), and the limits within which they are read (section 8).
//!
//! Pure: bytes in, documents out, and back. What is written depends on nothing but what it holds: documents are sorted,
//! keys are sorted, no time and no path of the machine gets in. What is read is hostile until it has been checked: sizes
//! before memory, digests before meaning, and nothing outside a cap is ever held.

pub mod archive;
pub mod assemble;
pub mod diff;
pub mod document;
pub mod edges;
mod expected;
pub mod image;
pub mod import;
mod json;
pub mod key;
mod layer;
pub mod manifest;
pub mod metadata;
pub mod policy;
mod receipt;
pub mod signature;

pub use archive::{Packed, pack, unpack};
pub use assemble::{Assembled, Inputs, assemble};
pub use diff::{Change, ChangeKind, diff};
pub use document::{Document, ImageUse, Key, distinct, documents};
pub use expected::{Expected, expected, is_sidecar};
pub use image::{BadReference, ImageReference};
pub use layer::read_layer;
pub use manifest::Manifest;
pub use metadata::{ArtifactReference, Builder, LayerSummary, ReleaseMetadata, Source};
pub use policy::SignaturePolicy;
pub use receipt::{RECEIPT, receipt};

use crate::code::Code;
use crate::digest::Digest;
use crate::failure::Failure;
use crate::oci::{Descriptor, OciError};

/// Media types of releases.
pub mod media_type {
    /// What a release is: the artifact type of its manifest.
    pub const RELEASE: &str = "application/vnd.forge.release.v1";
    /// The layer that says where a release comes from and what it holds.
    pub const METADATA: &str = "application/vnd.forge.release.metadata.v1+json";
    /// A layer of Kubernetes documents.
    pub const RESOURCES: &str = "application/vnd.forge.release.resources.v1.tar+gzip";
}

/// The annotation of a layer of resources that says for which environment it is.
pub const ENVIRONMENT: &str = "forge.projectcatalyst.io/environment";

/// The annotation of a release's manifest that says of which project it is.
pub const PROJECT: &str = "forge.projectcatalyst.io/project";

/// The layer for every environment that has none of its own.
pub const DEFAULT_LAYER: &str = "default";

/// What a release may cost whoever reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a manifest, and of the metadata.
    pub manifest: usize,
    /// Layers of a manifest.
    pub layers: usize,
    /// Bytes of a layer as it is transferred.
    pub compressed: u64,
    /// Bytes that a layer unpacks to, headers of its archive included.
    pub extracted: u64,
    /// Files and folders of a layer, and documents of it.
    pub entries: usize,
    /// Bytes of one file.
    pub file: usize,
    /// Nesting of a document.
    pub depth: usize,
    /// Bytes of what is rendered.
    pub output: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            manifest: 4 << 20,
            layers: 10,
            compressed: 100 << 20,
            extracted: 256 << 20,
            entries: 20_000,
            file: 16 << 20,
            depth: 64,
            output: 64 << 20,
        }
    }
}

/// Why there is no release.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// Other bytes than were promised.
    #[error("{what} has digest `{found}`, expected `{expected}`")]
    Digest {
        /// What was read.
        what: String,
        /// What it is.
        found: Digest,
        /// What it should be.
        expected: Digest,
    },
    /// More or fewer bytes than were promised.
    #[error("{what} has {found} bytes, expected {expected}")]
    Size {
        /// What was read.
        what: String,
        /// How many there are, or at least are.
        found: u64,
        /// How many there should be.
        expected: u64,
    },
    /// Bytes that do not unpack.
    #[error("{what} cannot be unpacked: {why}")]
    Corrupt {
        /// What was read.
        what: String,
        /// The rest of the sentence.
        why: String,
    },
    /// Beyond a limit.
    #[error("{what} has {found} {unit}, at most {limit} are allowed")]
    TooLarge {
        /// What was read.
        what: String,
        /// How many there are, or at least are.
        found: u64,
        /// How many there may be.
        limit: u64,
        /// Of what.
        unit: &'static str,
    },
    /// Beyond a limit that is not counted in one number.
    #[error("{what}: {why}")]
    Beyond {
        /// Which file or part.
        what: String,
        /// Of what there is too much, and how much there may be.
        why: String,
    },
    /// More documents than Argo CD takes.
    #[error("{what} has more than {most} bytes, which is the most that Argo CD takes")]
    TooMuchOutput {
        /// What is rendered.
        what: String,
        /// How many bytes there may be.
        most: u64,
    },
    /// Nothing that Forge reads as a release, or as a part of one.
    #[error("{what}: {why}")]
    Malformed {
        /// Which file or part.
        what: String,
        /// What is wrong with it, and what was expected.
        why: String,
    },
    /// A release or a layer with nothing in it.
    #[error("{what} holds no resources, expected at least one")]
    Empty {
        /// Which.
        what: String,
    },
    /// Two documents that are one object to Kubernetes.
    #[error("{what} holds `{document}` twice, expected each object once")]
    Twice {
        /// Which layer or file.
        what: String,
        /// The object.
        document: String,
    },
    /// Images that are not fixed by digest.
    #[error("{}", not_pinned(.images, *.more))]
    NotPinned {
        /// What names them, and how, one sentence each; the first of them.
        images: Vec<String>,
        /// How many more there are.
        more: usize,
    },
    /// A release without a layer for the environment.
    #[error("the release has no resources for environment `{environment}`; it has them for {}", .known.join(", "))]
    NoLayer {
        /// The environment.
        environment: String,
        /// Those that it has layers for.
        known: Vec<String>,
    },
    /// What should be read does not come.
    #[error("failed to read {what}: {error}")]
    Read {
        /// What was read.
        what: String,
        /// Why it does not come.
        error: std::io::Error,
    },
    /// What was read could not be passed on.
    #[error("failed to write {what}: {error}")]
    Write {
        /// What was written.
        what: String,
        /// Why not.
        error: std::io::Error,
    },
    /// The bytes of a release could not be made.
    #[error("failed to make a layer: {0}")]
    Pack(OciError),
}

/// Images that are not fixed, at most, of which each is told.
const SHOWN_IMAGES: usize = 50;

fn not_pinned(images: &[String], more: usize) -> String {
    let count = images.len().saturating_add(more);
    let mut text = match count {
        1 => "1 image is not fixed by digest".to_owned(),
        _ => format!("{count} images are not fixed by digest"),
    };
    for image in images {
        text.push_str("\n  ");
        text.push_str(image);
    }
    if more > 0 {
        text.push_str(&format!("\n  and {more} more"));
    }
    text
}

impl ReleaseError {
    /// Something that is not as Forge reads it.
    pub fn malformed(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Malformed { what: what.into(), why: why.into() }
    }

    /// Images that are not fixed by digest, in a sentence each. Of many only the first are kept.
    fn not_pinned(mut images: Vec<String>) -> Self {
        let more = images.len().saturating_sub(SHOWN_IMAGES);
        images.truncate(SHOWN_IMAGES);
        Self::NotPinned { images, more }
    }

    /// The stable code.
    pub fn code(&self) -> Code {
        match self {
            Self::Digest { .. } | Self::Size { .. } | Self::Corrupt { .. } => Code::ReleaseCorrupt,
            Self::TooLarge { .. } | Self::Beyond { .. } | Self::TooMuchOutput { .. } => Code::ReleaseTooLarge,
            Self::Malformed { .. } | Self::Twice { .. } => Code::ReleaseMalformed,
            Self::Empty { .. } => Code::ReleaseEmpty,
            Self::NotPinned { .. } => Code::ImageNotPinned,
            Self::NoLayer { .. } => Code::ReleaseMissing,
            Self::Read { .. } => Code::Unreadable,
            Self::Write { .. } | Self::Pack(_) => Code::CannotWrite,
        }
    }

    /// The next step, where there is more to say than on the page of the code.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Digest { .. } | Self::Size { .. } | Self::Corrupt { .. } => {
                "it was changed or cut off on its way, or in the registry; push it again from its source"
            }
            Self::TooLarge { .. } | Self::Beyond { .. } | Self::TooMuchOutput { .. } => {
                "split the project, or leave out what is not deployed"
            }
            Self::Empty { .. } => "check that the source renders something for this environment",
            Self::Twice { .. } => "keep one of them; the same name in two namespaces is two objects",
            Self::NotPinned { .. } => "write them as `name@sha256:…`, or let `--resolve` look their tags up",
            Self::NoLayer { .. } => "build the release again with `--environment` for this one",
            Self::Malformed { .. } | Self::Read { .. } | Self::Write { .. } | Self::Pack(_) => return None,
        };
        Some(hint.to_owned())
    }
}

/// Compares bytes with what points at them.
fn whole(what: &str, bytes: &[u8], expected: &Descriptor) -> Result<(), ReleaseError> {
    let found = bytes.len() as u64;
    if found != expected.size {
        return Err(ReleaseError::Size { what: what.to_owned(), found, expected: expected.size });
    }
    same(what, Digest::of(bytes), &expected.digest)
}

/// Compares a digest with the one that was promised.
fn same(what: &str, found: Digest, expected: &Digest) -> Result<(), ReleaseError> {
    if found == *expected {
        return Ok(());
    }
    Err(ReleaseError::Digest { what: what.to_owned(), found, expected: expected.clone() })
}

impl From<OciError> for ReleaseError {
    fn from(error: OciError) -> Self {
        Self::Pack(error)
    }
}

impl From<ReleaseError> for Failure {
    fn from(error: ReleaseError) -> Self {
        let failure = Self::new(error.code(), &error);
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_has_the_code_the_sentence_and_the_next_step() {
        let images: Vec<String> =
            (0..52).map(|n| format!("`Pod a`: spec.containers[0].image is `nginx:{n}`")).collect();
        let failure = Failure::from(ReleaseError::not_pinned(images));
        assert_eq!(failure.code, Code::ImageNotPinned);
        assert!(failure.message.starts_with("52 images are not fixed by digest\n  `Pod a`: "), "{}", failure.message);
        assert!(failure.message.ends_with("`nginx:49`\n  and 2 more"), "{}", failure.message);
        assert!(failure.hint.is_some_and(|hint| hint.contains("--resolve")));
        let known = vec!["dev".to_owned(), "staging".to_owned()];
        let missing = ReleaseError::NoLayer { environment: "production".to_owned(), known };
        assert_eq!(
            missing.to_string(),
            "the release has no resources for environment `production`; it has them for dev, staging"
        );
        assert!(Failure::from(ReleaseError::malformed("x", "y")).hint.is_none());
    }
}
