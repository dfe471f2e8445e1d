//! The administrator of an Argo CD that Forge installed. Argo CD makes his first password itself and leaves it in a Secret,
//! where it counts until somebody changes it; bootstrap puts one of its own in its place (SPEC.md section 4, docs/adr/0034).

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::plugin::written;
use crate::preflight::text;

/// Where Argo CD leaves the password that it made.
pub const INITIAL_SECRET: &str = "argocd-initial-admin-secret";
/// Where the password is that bootstrap put in its place, in Argo CD's namespace: whoever may read Secrets there has the key that
/// Argo CD signs sessions with, and so is its administrator already.
pub const ADMINISTRATOR_SECRET: &str = "forge-argocd-admin";
/// The key of the password in both.
pub const PASSWORD_KEY: &str = "password";

/// More than clocks differ: Argo CD notes a change by its own, and the API server when a Secret was written.
const CLOCKS: SignedDuration = SignedDuration::from_mins(5);

/// Whether the first password counts no more, as far as Argo CD's own objects tell: it was changed well after its Secret was written,
/// or there is no administrator who could use it. `changed` is when Argo CD noted the last change, `settings` is `argocd-cm`.
///
/// Only with this is a password that Argo CD refuses known to be an old one: after some failed logins it refuses a good one too.
pub fn is_spent(initial: &Value, changed: Option<&str>, settings: Option<&Value>) -> bool {
    let enabled = settings.and_then(|settings| text(settings, "/data/admin.enabled"));
    // As Go reads it; what it cannot read it does not count.
    let is_off = matches!(enabled, Some("0" | "f" | "F" | "false" | "FALSE" | "False"));
    let changed = changed.and_then(|text| text.parse::<Timestamp>().ok());
    is_off || changed.zip(written(initial)).is_some_and(|(changed, written)| changed.duration_since(written) > CLOCKS)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_password_that_was_changed_well_after_it_was_written_down_is_spent() {
        let made = json!({"metadata": {"creationTimestamp": "2026-01-01T10:00:00Z"}});
        // Argo CD notes the time of the password before it writes its Secret.
        for (changed, spent) in [
            (None, false),
            (Some("no time"), false),
            (Some("2026-01-01T09:59:59Z"), false),
            (Some("2026-01-01T10:00:00Z"), false),
            // One of two clocks is ahead.
            (Some("2026-01-01T10:00:01Z"), false),
            (Some("2026-01-01T10:05:00Z"), false),
            (Some("2026-01-01T10:05:01Z"), true),
        ] {
            assert_eq!(is_spent(&made, changed, None), spent, "{changed:?}");
        }
        // A Secret that Argo CD wrote again, because the password was taken back, holds the newest one.
        let fields = json!([{"time": "2026-02-01T10:00:00Z"}]);
        let again = json!({"metadata": {"creationTimestamp": "2026-01-01T10:00:00Z", "managedFields": fields}});
        assert!(!is_spent(&again, Some("2026-02-01T10:00:00Z"), None));
        assert!(is_spent(&again, Some("2026-02-02T10:00:00Z"), None));
        // When it was written is not known, so it is not known to be old.
        assert!(!is_spent(&json!({}), Some("2026-02-02T10:00:00Z"), None));
    }

    #[test]
    fn without_an_administrator_his_password_is_nobodys() {
        let settings = |text: &str| json!({"data": {"admin.enabled": text}});
        for (said, spent) in
            [("false", true), ("False", true), ("0", true), ("true", false), ("no", false), ("", false)]
        {
            assert_eq!(is_spent(&json!({}), None, Some(&settings(said))), spent, "{said}");
        }
        assert!(!is_spent(&json!({}), None, Some(&json!({"data": {}}))));
    }
}
