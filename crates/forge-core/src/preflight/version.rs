//! The version of Kubernetes, and whether it serves what Forge needs of a new one.

use serde_json::Value;

use super::{Check, Finding, Judged, Severity, items, text};
use crate::view::shown;

/// The oldest that serves ValidatingAdmissionPolicy v1.
const OLDEST: (u32, u32) = (1, 30);
/// The newest that this version was tested with.
const NEWEST: (u32, u32) = (1, 36);

/// Judges what `/version` says.
pub fn version(said: &Value) -> Judged {
    let name = text(said, "/gitVersion").map(shown);
    let Some((major, minor)) = numbers(said) else {
        let words = shown(&said.to_string());
        return Judged::failed(Check::Version, format!("the API server says of its version: {words}"));
    };
    let judged = Judged::new(Check::Version, name.unwrap_or_else(|| format!("v{major}.{minor}")));
    let ((oldest_major, oldest), (newest_major, newest)) = (OLDEST, NEWEST);
    if (major, minor) < OLDEST {
        return judged.with(Finding::new(
            Check::Version,
            Severity::Blocking,
            format!("Kubernetes {major}.{minor} is too old"),
            format!(
                "what limits the executor to its own sync window is a ValidatingAdmissionPolicy, which is served from {oldest_major}.{oldest} on"
            ),
            format!("upgrade the cluster to {oldest_major}.{oldest} or newer, at most {newest_major}.{newest}"),
        ));
    }
    if major > newest_major {
        return judged.with(Finding::new(
            Check::Version,
            Severity::Blocking,
            format!("Kubernetes {major}.{minor} is of another kind than {newest_major}.x"),
            "nothing is known about what it serves",
            format!("use a cluster of {oldest_major}.{oldest} to {newest_major}.{newest}, or a newer Forge"),
        ));
    }
    if (major, minor) > NEWEST {
        return judged.with(Finding::new(
            Check::Version,
            Severity::Warning,
            format!("Kubernetes {major}.{minor} is newer than {newest_major}.{newest}, the newest that was tested"),
            "what it has removed or changed is not known to this version of Forge",
            "look for a newer Forge; nothing has to be done where everything else passes",
        ));
    }
    judged
}

/// Major and minor, by their own fields or by the name of the version. Some providers write `30+`.
fn numbers(said: &Value) -> Option<(u32, u32)> {
    let number = |text: &str| -> Option<u32> {
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    };
    let own = || Some((number(text(said, "/major")?)?, number(text(said, "/minor")?)?));
    let by_name = || {
        let mut parts = text(said, "/gitVersion")?.trim_start_matches('v').split('.');
        Some((number(parts.next()?)?, number(parts.next()?)?))
    };
    own().or_else(by_name)
}

/// Judges what the API server serves of `admissionregistration.k8s.io/v1`; nothing where it serves no such version.
pub fn policies(served: Option<&Value>) -> Judged {
    let wanted = ["validatingadmissionpolicies", "validatingadmissionpolicybindings"];
    let serves = |plural: &str| {
        served.is_some_and(|list| items(list, "/resources").any(|found| text(found, "/name") == Some(plural)))
    };
    let missing: Vec<&str> = wanted.into_iter().filter(|plural| !serves(plural)).collect();
    if missing.is_empty() {
        return Judged::new(Check::Policies, "ValidatingAdmissionPolicy v1 is served");
    }
    Judged::new(Check::Policies, "ValidatingAdmissionPolicy v1 is not served").with(
        Finding::new(
            Check::Policies,
            Severity::Blocking,
            format!("admissionregistration.k8s.io/v1 serves no {}", missing.join(" and no ")),
            "nothing would keep the executor from changing more of an AppProject than its own sync window",
            "upgrade to Kubernetes 1.30 or newer; where the API server was told not to serve it, take `admissionregistration.k8s.io/v1=false` out of its --runtime-config",
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(major: &str, minor: &str) -> Option<Severity> {
        version(&json!({"major": major, "minor": minor, "gitVersion": format!("v{major}.{minor}.1")})).worst()
    }

    #[test]
    fn a_version_that_is_too_old_or_of_another_kind_blocks_and_a_newer_one_warns() {
        assert_eq!(of("1", "29"), Some(Severity::Blocking));
        assert_eq!(of("0", "99"), Some(Severity::Blocking));
        assert_eq!(of("1", "30"), None);
        assert_eq!(of("1", "30+"), None);
        assert_eq!(of("1", "36"), None);
        assert_eq!(of("1", "37"), Some(Severity::Warning));
        assert_eq!(of("2", "0"), Some(Severity::Blocking));
    }

    #[test]
    fn a_version_is_also_read_from_its_name_and_what_is_none_is_not_guessed() {
        assert_eq!(version(&json!({"gitVersion": "v1.31.4-eks-2d5f260"})).worst(), None);
        assert_eq!(version(&json!({"gitVersion": "1.28"})).worst(), Some(Severity::Blocking));
        for hostile in [
            json!(null),
            json!([]),
            json!({"major": 1, "minor": 30}),
            json!({"gitVersion": "latest"}),
            json!({"major": "", "minor": "", "gitVersion": "v1"}),
            json!({"major": "99999999999999999999", "minor": "1"}),
            json!({"gitVersion": "\u{1b}[2J".repeat(1000)}),
        ] {
            let judged = version(&hostile);
            assert_eq!(judged.worst(), Some(Severity::Failed), "{hostile}");
            assert!(!format!("{judged:?}").contains("\\u{1b}"), "{judged:?}");
        }
    }

    #[test]
    fn both_kinds_of_admission_policies_must_be_served() {
        let served = |names: &[&str]| {
            let resources: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
            json!({ "resources": resources })
        };
        let (policy, binding) = ("validatingadmissionpolicies", "validatingadmissionpolicybindings");
        assert_eq!(policies(Some(&served(&["x", policy, binding]))).worst(), None);
        for missing in [Some(served(&[policy])), Some(served(&[])), Some(json!("no")), None] {
            let judged = policies(missing.as_ref());
            assert_eq!(judged.worst(), Some(Severity::Blocking), "{missing:?}");
        }
    }
}
