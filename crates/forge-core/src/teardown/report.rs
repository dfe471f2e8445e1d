//! What a teardown did beside its nodes, as it is recorded and reported: volumes that stay, finalizers that were given up, what
//! was removed, what stays for a reason, and what was left behind.

use std::fmt::Write as _;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Kept;
use crate::view::shown;

/// What a teardown did beside its nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemovalRecord {
    /// What becomes of volumes: retain, delete or snapshot.
    pub policy: String,
    /// Volumes that outlive their claims.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retained: Vec<RetainedVolume>,
    /// Finalizers that a person gave up by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub released: Vec<ReleasedFinalizer>,
    /// What else was stopped or removed, in the order in which that happened.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
    /// What stays, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<Kept>,
    /// What should be gone and is not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub orphans: Vec<Kept>,
}

/// A volume that outlives its claim.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RetainedVolume {
    /// The volume.
    pub volume: String,
    /// Its claim, `namespace/name`.
    pub claim: String,
    /// Its policy before this run changed it; absent where it was Retain already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// The copy of it that was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
}

/// Finalizers of one object that a person gave up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReleasedFinalizer {
    /// `Kind/namespace/name`.
    pub object: String,
    /// Each with its owner, in words.
    pub finalizers: Vec<String>,
    /// Since when it was being deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub deleting: Option<Timestamp>,
    /// When they were taken away.
    #[schemars(with = "String")]
    pub at: Timestamp,
}

/// Most lines of one kind in the record, which lies in a ConfigMap.
const MOST: usize = 200;

impl RemovalRecord {
    /// Under this policy for volumes.
    pub fn new(policy: &str) -> Self {
        Self { policy: policy.to_owned(), ..Self::default() }
    }

    /// Something was stopped or removed; told once however often it is looked at.
    pub fn removed(&mut self, what: impl Into<String>) {
        let what = what.into();
        if self.removed.len() < MOST && !self.removed.contains(&what) {
            self.removed.push(what);
        }
    }

    /// Something stays.
    pub fn kept(&mut self, object: impl Into<String>, why: impl Into<String>) {
        add(&mut self.kept, Kept { object: object.into(), why: why.into() });
    }

    /// A namespace is gone, and with it whatever was to stay of what was in it: that does not stay.
    pub fn removed_namespace(&mut self, namespace: &str) {
        self.removed(format!("Namespace/{namespace}"));
        let inside =
            |kept: &Kept| kept.object.split('/').nth(1) == Some(namespace) && kept.object.split('/').count() == 3;
        let (gone, kept): (Vec<Kept>, Vec<Kept>) = std::mem::take(&mut self.kept).into_iter().partition(inside);
        self.kept = kept;
        for Kept { object, why } in gone {
            self.removed(format!("{object}, with its namespace ({why})"));
        }
    }

    /// Something should be gone and is not.
    pub fn orphan(&mut self, object: impl Into<String>, why: impl Into<String>) {
        add(&mut self.orphans, Kept { object: object.into(), why: why.into() });
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if !self.retained.is_empty() {
            let _ = writeln!(text, "\nvolumes that stay ({}):", self.policy);
            for volume in &self.retained {
                let copy = volume.snapshot.as_ref().map(|name| format!(", copied as {name}")).unwrap_or_default();
                let _ = writeln!(text, "  {} of {}{copy}", shown(&volume.volume), shown(&volume.claim));
            }
        }
        for released in &self.released {
            let names: Vec<String> = released.finalizers.iter().map(|name| shown(name)).collect();
            let _ = writeln!(text, "\nreleased by hand: {}: {}", shown(&released.object), names.join(", "));
        }
        for (title, list) in [("stays", &self.kept), ("left behind", &self.orphans)] {
            if !list.is_empty() {
                let _ = writeln!(text, "\n{title}:");
            }
            for kept in list {
                let _ = writeln!(text, "  {}: {}", shown(&kept.object), shown(&kept.why));
            }
        }
        text
    }
}

fn add(list: &mut Vec<Kept>, kept: Kept) {
    if list.len() < MOST && !list.iter().any(|known| known.object == kept.object) {
        list.push(kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_with_its_namespace_is_not_said_to_stay() {
        let mut record = RemovalRecord::new("retain");
        record.kept("Secret/shop/creds", "it says Delete=false");
        record.kept("Secret/other/creds", "it says Delete=false");
        record.kept("AppProject/shop", "it does not carry our label");
        record.removed_namespace("shop");
        let kept: Vec<&str> = record.kept.iter().map(|kept| kept.object.as_str()).collect();
        assert_eq!(kept, ["Secret/other/creds", "AppProject/shop"]);
        let gone = "Secret/shop/creds, with its namespace (it says Delete=false)";
        assert_eq!(record.removed, ["Namespace/shop", gone]);
    }

    #[test]
    fn everything_is_told_once_and_the_record_reads_back() {
        let mut record = RemovalRecord::new("retain");
        for _ in 0..2 {
            record.removed("Application dev-bootstrap");
            record.kept("CustomResourceDefinition/a", "its chart keeps it");
            record.orphan("Namespace/shop", "something of somebody else is in it\u{1b}");
        }
        record.retained.push(RetainedVolume {
            volume: "pv-1".to_owned(),
            claim: "shop/data".to_owned(),
            before: Some("Delete".to_owned()),
            snapshot: None,
        });
        record.released.push(ReleasedFinalizer {
            object: "Widget/shop/main".to_owned(),
            finalizers: vec!["`x` of y".to_owned()],
            deleting: None,
            at: Timestamp::UNIX_EPOCH,
        });
        assert_eq!((record.removed.len(), record.kept.len(), record.orphans.len()), (1, 1, 1));
        let text = record.text();
        for line in [
            "volumes that stay (retain):\n  pv-1 of shop/data\n",
            "released by hand: Widget/shop/main: `x` of y\n",
            "stays:\n  CustomResourceDefinition/a: its chart keeps it\n",
            "left behind:\n  Namespace/shop: something of somebody else is in it\u{fffd}\n",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        let json = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<RemovalRecord>(&json).unwrap(), record);
    }
}
