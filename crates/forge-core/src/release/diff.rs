//! What differs between two releases, per layer and document.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Document;

/// A document that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// The environment, or `default`.
    pub layer: String,
    /// Which document.
    pub document: String,
    /// What happened to it.
    pub what: ChangeKind,
    /// A unified diff of its canonical text.
    pub text: String,
}

/// What happened to a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ChangeKind {
    /// It is only in the later release.
    Added,
    /// It is only in the earlier release.
    Removed,
    /// It is in both, and not the same.
    Changed,
}

/// What differs, by layer and then in the order of documents.
pub fn diff(before: &BTreeMap<String, Vec<Document>>, after: &BTreeMap<String, Vec<Document>>) -> Vec<Change> {
    let _ = (before, after);
    Vec::new()
}
