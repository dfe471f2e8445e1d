//! Storage: whether a claim that names no class gets a volume.

use jiff::Timestamp;
use serde_json::Value;

use super::{Check, Finding, Judged, Severity, mark, text};
use crate::name::clip;

/// What is known of a StorageClass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassFacts {
    /// Its name.
    pub name: String,
    /// Claims that name no class get this one.
    pub default: bool,
    /// Who makes its volumes.
    pub provisioner: String,
    /// Volumes stay when their claims go.
    pub retains: bool,
    /// When it was made.
    pub created: Option<Timestamp>,
}

impl ClassFacts {
    /// Reads a StorageClass.
    pub fn read(class: &Value) -> Self {
        let marks = ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
        Self {
            name: clip(text(class, "/metadata/name").unwrap_or("?")),
            default: marks.iter().any(|key| mark(class, "annotations", key) == Some("true")),
            provisioner: clip(text(class, "/provisioner").unwrap_or("?")),
            retains: text(class, "/reclaimPolicy") == Some("Retain"),
            created: text(class, "/metadata/creationTimestamp").and_then(|time| time.parse().ok()),
        }
    }

    /// Nobody makes volumes of it.
    fn is_static(&self) -> bool {
        self.provisioner == "kubernetes.io/no-provisioner"
    }
}

/// The class that a claim gets which names none: of several the newest, as Kubernetes decides.
pub fn default_class(classes: &[ClassFacts]) -> Option<&ClassFacts> {
    let defaults = classes.iter().filter(|class| class.default);
    defaults.max_by(|a, b| a.created.cmp(&b.created).then_with(|| b.name.cmp(&a.name)))
}

/// Judges all classes of a cluster; `needed` if something has claims.
pub fn storage(classes: &[ClassFacts], needed: bool) -> Judged {
    let names = || {
        classes.iter().map(|class| {
            let default = if class.default { ", default" } else { "" };
            format!("StorageClass {}, provisioner {}{default}", class.name, class.provisioner)
        })
    };
    let severity = if needed { Severity::Blocking } else { Severity::Warning };
    let Some(default) = default_class(classes) else {
        let seen = match classes.len() {
            0 => "no StorageClass".to_owned(),
            1 => "1 StorageClass, which is not the default".to_owned(),
            found => format!("{found} StorageClasses, none of them the default"),
        };
        let fix = if classes.is_empty() {
            "install a provisioner with a StorageClass, and make it the default: `kubectl annotate storageclass NAME storageclass.kubernetes.io/is-default-class=true`"
        } else {
            "choose one: `kubectl annotate storageclass NAME storageclass.kubernetes.io/is-default-class=true`"
        };
        let finding = Finding::new(
            Check::Storage,
            severity,
            "no StorageClass is the default",
            "a claim that names no class waits for ever, and so does the pod that mounts it",
            fix,
        );
        return Judged::new(Check::Storage, seen).with(finding.because(names()));
    };
    let mut judged = Judged::new(Check::Storage, format!("{} by {}", default.name, default.provisioner));
    if default.is_static() {
        let what = format!("nobody makes volumes of the default StorageClass `{}`", default.name);
        let means = "a claim is bound only if somebody has made a fitting volume by hand";
        let fix = "make a class with a provisioner the default, or make the volumes that claims will ask for";
        judged = judged.with(Finding::new(Check::Storage, severity, what, means, fix).because(names()));
    }
    let defaults = classes.iter().filter(|class| class.default).count();
    if defaults > 1 {
        let what = format!("{defaults} StorageClasses are the default");
        let means = format!("claims get the newest, `{}`, until somebody makes another one", default.name);
        let fix = "leave one: `kubectl annotate storageclass NAME storageclass.kubernetes.io/is-default-class-`";
        judged = judged.with(Finding::new(Check::Storage, Severity::Warning, what, means, fix).because(names()));
    }
    judged
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn class(name: &str, default: bool, created: &str) -> ClassFacts {
        let key = "storageclass.kubernetes.io/is-default-class";
        ClassFacts::read(&json!({
            "metadata": {"name": name, "creationTimestamp": created, "annotations": {key: default.to_string()}},
            "provisioner": "example.com/disk",
        }))
    }

    #[test]
    fn without_a_default_claims_wait_which_blocks_where_something_needs_volumes() {
        for classes in [vec![], vec![class("a", false, "2026-01-01T00:00:00Z")]] {
            assert_eq!(storage(&classes, true).worst(), Some(Severity::Blocking));
            assert_eq!(storage(&classes, false).worst(), Some(Severity::Warning));
            assert_eq!(default_class(&classes), None);
        }
        let two = [class("a", false, ""), class("b", false, "")];
        assert_eq!(storage(&two, true).seen, "2 StorageClasses, none of them the default");
    }

    #[test]
    fn of_several_defaults_the_newest_counts_and_somebody_should_choose() {
        let classes = [class("old", true, "2025-01-01T00:00:00Z"), class("new", true, "2026-01-01T00:00:00Z")];
        assert_eq!(default_class(&classes).map(|class| class.name.as_str()), Some("new"));
        assert_eq!(storage(&classes, true).worst(), Some(Severity::Warning));
        assert!(storage(&classes[1..], true).findings.is_empty());
        // Made in the same second: by name, so that it is always the same one.
        let same = [class("b", true, "2026-01-01T00:00:00Z"), class("a", true, "2026-01-01T00:00:00Z")];
        assert_eq!(default_class(&same).map(|class| class.name.as_str()), Some("a"));
    }

    #[test]
    fn a_default_without_a_provisioner_makes_no_volumes() {
        let mut class = class("local", true, "");
        class.provisioner = "kubernetes.io/no-provisioner".to_owned();
        assert_eq!(storage(&[class], true).worst(), Some(Severity::Blocking));
    }

    #[test]
    fn hostile_classes_are_no_default() {
        for hostile in [
            json!(null),
            json!({"metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": true}}}),
            json!({"metadata": {"annotations": [["storageclass.kubernetes.io/is-default-class", "true"]]}}),
            json!({"metadata": {"name": "\u{1b}[2J", "creationTimestamp": "never"}}),
        ] {
            let facts = ClassFacts::read(&hostile);
            assert!(!facts.default && !facts.name.contains('\u{1b}'), "{facts:?}");
        }
        // The older way to say it.
        let beta = json!({"metadata": {"annotations": {"storageclass.beta.kubernetes.io/is-default-class": "true"}}});
        assert!(ClassFacts::read(&beta).default);
    }
}
