//! Kubernetes documents of a release.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use super::{Limits, ReleaseError};
use crate::digest::Digest;

/// A Kubernetes object as a release holds it.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// Group and version.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace, where it says one.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// All of it.
    pub value: Value,
}

/// What makes a document the one that it is, in the order of output: Namespaces, CustomResourceDefinitions, then by
/// group, kind, namespace and name. The version does not count: it is one object in every version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    rank: u8,
    /// The group; empty for the core one.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The namespace, where one is said.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

/// `Deployment.apps shop/api`.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Where a document names an image.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImageUse {
    /// The field, as `spec.template.spec.containers[0].image`.
    pub at: String,
    /// The reference as it is written.
    pub image: String,
}

/// The documents of a file, YAML or JSON, in their order. Lists are taken apart, what is empty is dropped.
///
/// # Errors
/// When the file is too large, is no YAML, or holds what is no Kubernetes object with a name of its own.
pub fn documents(path: &str, bytes: &[u8], limits: &Limits) -> Result<Vec<Document>, ReleaseError> {
    let _ = (bytes, limits);
    Err(ReleaseError::malformed(path, "is not read yet"))
}

/// The documents in the order of their keys.
///
/// # Errors
/// When two of them are one object.
pub fn distinct(documents: Vec<Document>) -> Result<Vec<Document>, ReleaseError> {
    Ok(documents)
}

impl Document {
    /// What makes it the one that it is.
    pub fn key(&self) -> Key {
        Key {
            rank: 0,
            group: String::new(),
            kind: self.kind.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
    }

    /// The document as YAML that everybody reads alike: sorted keys, quotes where any reader could take a text for
    /// something else, one line break at the end.
    pub fn text(&self) -> String {
        String::new()
    }

    /// The name of its file inside a layer.
    pub fn path(&self) -> String {
        String::new()
    }

    /// The images that it names, in the order of fields.
    pub fn images(&self) -> Vec<ImageUse> {
        Vec::new()
    }

    /// Fixes every image that is in `resolve`, by the reference as it is written, as `registry/repository@digest`.
    pub fn pin(&mut self, resolve: &BTreeMap<String, Digest>) {
        let _ = resolve;
    }
}
