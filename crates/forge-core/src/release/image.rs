//! References to images, read as containerd reads them: what is not written follows from Docker's rules.

use std::fmt;
use std::str::FromStr;

use crate::digest::Digest;

/// A text that is no reference to an image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{image}` is not a reference to an image: {why}")]
pub struct BadReference {
    /// The text, cut.
    pub image: String,
    /// What is wrong with it.
    pub why: &'static str,
}

/// A reference to an image, whole: `nginx` is `docker.io/library/nginx`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImageReference {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

impl ImageReference {
    /// The registry, with its port where it has one.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The repository inside the registry.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The tag, where one is written.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The digest, where one is written.
    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// Registry and repository.
    pub fn name(&self) -> String {
        format!("{}/{}", self.registry, self.repository)
    }

    /// Whether it names one content for ever.
    pub fn is_pinned(&self) -> bool {
        self.digest.is_some()
    }

    /// The same image, fixed: the tag is gone, because it says nothing any more.
    #[must_use]
    pub fn pinned(&self, digest: &Digest) -> Self {
        Self { tag: None, digest: Some(digest.clone()), ..self.clone() }
    }
}

impl FromStr for ImageReference {
    type Err = BadReference;
    fn from_str(text: &str) -> Result<Self, BadReference> {
        Err(BadReference { image: crate::name::clip(text), why: "not read yet" })
    }
}

impl fmt::Display for ImageReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        match &self.digest {
            Some(digest) => write!(f, "@{digest}"),
            None => Ok(()),
        }
    }
}
