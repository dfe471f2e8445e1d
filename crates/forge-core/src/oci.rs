//! OCI images and artifacts as bytes: archives, layers, manifests, indexes and layouts that depend on nothing but what
//! they hold (INV-9). Entries and keys are sorted, the time is an argument, everything belongs to root; no name, path or
//! clock of the machine gets in.
//!
//! Pure: trees in, bytes out. Reading programs, writing folders and talking to registries is for whoever calls it.

mod archive;
mod gzip;
mod layout;

pub use archive::{Entry, Tree};
pub use gzip::{gunzip, gzip};
pub use layout::{Annotations, Artifact, Compression, Config, Descriptor, Image, Layout};

/// Media types that more than one module writes or reads.
pub mod media_type {
    /// An index of manifests.
    pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
    /// A manifest, of an image or of an artifact.
    pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
    /// The configuration of an image.
    pub const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
    /// A layer as it is.
    pub const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
    /// A layer that is compressed.
    pub const LAYER_GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
    /// The configuration of what has none.
    pub const EMPTY: &str = "application/vnd.oci.empty.v1+json";
}

/// The annotation by which a layout names what it holds.
pub const REF_NAME: &str = "org.opencontainers.image.ref.name";

/// Why there are no bytes.
#[derive(Debug, thiserror::Error)]
pub enum OciError {
    /// An entry does not fit into an archive.
    #[error("failed to write `{path}` into an archive: {error}")]
    Entry {
        /// Which.
        path: String,
        /// Why not.
        error: std::io::Error,
    },
    /// The compressor gave up.
    #[error("failed to compress {bytes} bytes")]
    Compress {
        /// How many there were.
        bytes: usize,
    },
}

/// The processors that images are made for, as OCI calls them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Architecture {
    /// `x86_64`.
    Amd64,
    /// `aarch64`.
    Arm64,
}

impl Architecture {
    /// All of them, in the order of their names.
    pub const ALL: [Self; 2] = [Self::Amd64, Self::Arm64];

    /// As OCI and Go call it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// As the kernel and Rust call it.
    pub fn machine(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64",
            Self::Arm64 => "aarch64",
        }
    }

    /// That of a machine, if images are made for it.
    pub fn of_machine(machine: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|architecture| architecture.machine() == machine)
    }
}

impl std::fmt::Display for Architecture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
