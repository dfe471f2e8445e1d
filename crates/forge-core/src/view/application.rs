//! What a live Application says of itself, as far as `status` and `why` show it. Read loosely: a field of another shape
//! than expected is a field that is not there.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::duration::Duration;
use crate::gate::{Health, Unwell, plugin_says};
use crate::view::{between, shown};

/// Resources and conditions that are kept: enough to see what is wrong.
const MOST: usize = 5;

/// An Application as Argo CD last wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationFacts {
    /// `.status.sync.status`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync: Option<String>,
    /// `.status.health.status`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<String>,
    /// Since when it has that health.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Its AppProject.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The namespace that it deploys to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    /// The revisions that it was compared with.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub revisions: Vec<String>,
    /// Errors and warnings, `type: message`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<String>,
    /// Resources that are neither Healthy nor without health, the worst first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unwell: Vec<UnwellResource>,
    /// The operation that runs, and who asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// When Argo CD last compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compared: Option<Timestamp>,
    /// Argo CD syncs it by itself.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub automated: bool,
    /// Resources that are not what Git says, as far as Argo CD names them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub differs: Vec<String>,
    /// When something about it last changed: it was made, a sync began or ended, its health or a condition became another.
    #[serde(skip)]
    pub changed: Option<Timestamp>,
    /// It deploys to the cluster that Argo CD runs in.
    #[serde(skip)]
    pub local: bool,
    /// Since when the operation that runs has begun, where Argo CD says so.
    #[serde(skip)]
    pub syncing: Option<Timestamp>,
    /// Since when it is being deleted.
    #[serde(skip)]
    pub deleting: Option<Timestamp>,
    /// Why Argo CD cannot compare it, in all its words.
    #[serde(skip)]
    pub comparison: Option<String>,
}

/// How Argo CD names the cluster that it runs in.
const OWN_CLUSTER: (&str, &str) = ("https://kubernetes.default.svc", "in-cluster");

/// A resource that is not well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UnwellResource {
    /// `Kind/namespace/name`.
    pub resource: String,
    /// Its health.
    pub health: String,
    /// What Argo CD says about it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl ApplicationFacts {
    /// Reads an Application.
    pub fn read(application: &Value) -> Self {
        let text = |pointer: &str| application.pointer(pointer).and_then(Value::as_str).filter(|t| !t.is_empty());
        let time = |pointer: &str| text(pointer).and_then(|time| time.parse::<Timestamp>().ok());
        let list = |pointer: &str| application.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
        let field = |value: &Value, name: &str| shown(value.get(name).and_then(Value::as_str).unwrap_or_default());
        let mut revisions: Vec<String> = list("/status/sync/revisions").filter_map(Value::as_str).map(shown).collect();
        if revisions.is_empty() {
            revisions.extend(text("/status/sync/revision").map(shown));
        }
        let conditions = list("/status/conditions").take(MOST);
        // What our plugin says, without all that Argo CD says before it: of both together the middle would be cut.
        let said = |condition: &Value| {
            let message = condition.get("message").and_then(Value::as_str).unwrap_or_default();
            shown(&plugin_says(message).unwrap_or_else(|| message.to_owned()))
        };
        let automated = application.pointer("/spec/syncPolicy/automated").filter(|automated| automated.is_object());
        Self {
            sync: text("/status/sync/status").map(shown),
            health: text("/status/health/status").map(shown),
            since: time("/status/health/lastTransitionTime"),
            project: text("/spec/project").map(shown),
            destination: text("/spec/destination/namespace").map(shown),
            revisions,
            conditions: conditions.map(|c| format!("{}: {}", field(c, "type"), said(c))).collect(),
            unwell: unwell(list("/status/resources")).into_iter().take(MOST).collect(),
            operation: operation(application),
            compared: time("/status/reconciledAt"),
            automated: automated.is_some_and(|policy| policy.get("enabled").and_then(Value::as_bool) != Some(false)),
            differs: differs(list("/status/resources")),
            changed: [
                "/metadata/creationTimestamp",
                "/status/health/lastTransitionTime",
                "/status/operationState/startedAt",
                "/status/operationState/finishedAt",
            ]
            .into_iter()
            .filter_map(time)
            .chain(list("/status/conditions").filter_map(|condition| {
                condition.get("lastTransitionTime").and_then(Value::as_str)?.parse::<Timestamp>().ok()
            }))
            .max(),
            local: text("/spec/destination/server").is_some_and(|server| server.trim_end_matches('/') == OWN_CLUSTER.0)
                || text("/spec/destination/name") == Some(OWN_CLUSTER.1),
            syncing: time("/status/operationState/startedAt")
                .filter(|_| matches!(text("/status/operationState/phase"), Some("Running" | "Terminating"))),
            deleting: time("/metadata/deletionTimestamp"),
            comparison: list("/status/conditions")
                .filter(|c| c.get("type").and_then(Value::as_str) == Some("ComparisonError"))
                .find_map(|c| c.get("message")?.as_str().map(ToOwned::to_owned)),
        }
    }

    /// Argo CD's word for its health, as far as it is one of Argo CD's words.
    pub fn health(&self) -> Health {
        match self.health.as_deref() {
            Some("Healthy") => Health::Healthy,
            Some("Progressing") => Health::Progressing,
            Some("Degraded") => Health::Degraded,
            Some("Suspended") => Health::Suspended,
            Some("Missing") => Health::Missing,
            _ => Health::Unknown,
        }
    }

    /// Argo CD sees no difference.
    pub fn is_synced(&self) -> bool {
        self.sync.as_deref() == Some("Synced")
    }

    /// Nobody compared for a while, or ever: what is shown may no longer be so.
    pub fn is_stale(&self, now: Timestamp, after: Duration) -> bool {
        self.compared.is_none_or(|compared| between(compared, now) > after)
    }

    /// Its path is gone from Git, as far as Argo CD says so.
    pub fn path_is_gone(&self) -> bool {
        self.conditions.iter().any(|text| text.contains("app path does not exist"))
    }
}

fn operation(application: &Value) -> Option<String> {
    let asked = |at: &str| {
        let by = application.pointer(&format!("{at}/initiatedBy"))?;
        let name = by.get("username").and_then(Value::as_str).filter(|name| !name.is_empty());
        let automated = by.get("automated").and_then(Value::as_bool).unwrap_or(false);
        Some(match name {
            Some(name) => format!("asked for by `{}`", crate::name::clip(name)),
            None if automated => "an automated sync of Argo CD".to_owned(),
            None => "asked for by somebody who left no name".to_owned(),
        })
    };
    if application.get("operation").is_some_and(Value::is_object) {
        return asked("/operation").or_else(|| Some("asked for by somebody who left no name".to_owned()));
    }
    let phase = application.pointer("/status/operationState/phase").and_then(Value::as_str)?;
    matches!(phase, "Running" | "Terminating").then(|| asked("/status/operationState/operation")).flatten()
}

/// `Kind/namespace/name` of a resource of an Application.
fn named(resource: &Value) -> String {
    let text = |name: &str| resource.get(name).and_then(Value::as_str).unwrap_or_default();
    let named: Vec<&str> =
        [text("kind"), text("namespace"), text("name")].into_iter().filter(|part| !part.is_empty()).collect();
    shown(&named.join("/"))
}

fn differs<'v>(resources: impl Iterator<Item = &'v Value>) -> Vec<String> {
    let out = resources.filter(|resource| resource.get("status").and_then(Value::as_str) == Some("OutOfSync"));
    out.take(MOST).map(named).collect()
}

/// The resource behind the health of an Application: the first that has the same health, else the worst. Argo CD tells how
/// resources are in its stream and where it is asked for one Application; its list, and what is stored in the cluster, do so
/// only with `controller.resource.health.persist`.
pub fn worst<'v>(health: Health, resources: impl Iterator<Item = &'v Value>) -> Option<Unwell> {
    if health == Health::Healthy {
        return None;
    }
    let (found, health) = (unwell(resources), health.to_string());
    let at = found.iter().position(|resource| resource.health == health).unwrap_or(0);
    let UnwellResource { resource, message, .. } = found.into_iter().nth(at)?;
    Some(Unwell { resource, message })
}

/// Those that are neither Healthy nor without health, the worst first.
fn unwell<'v>(resources: impl Iterator<Item = &'v Value>) -> Vec<UnwellResource> {
    let text = |value: &'v Value, pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let rank = |health: &str| match health {
        "Degraded" => 0,
        "Missing" => 1,
        "Unknown" => 2,
        "Progressing" => 3,
        _ => 4,
    };
    let mut found: Vec<UnwellResource> = resources
        .filter_map(|resource| {
            let health = text(resource, "/health/status");
            if health.is_empty() || health == "Healthy" {
                return None;
            }
            Some(UnwellResource {
                resource: named(resource),
                health: shown(health),
                message: shown(text(resource, "/health/message")),
            })
        })
        .collect();
    found.sort_by(|a, b| (rank(&a.health), &a.resource).cmp(&(rank(&b.health), &b.resource)));
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_worst_resource_comes_first_and_messages_are_clean() {
        let facts = ApplicationFacts::read(&json!({
            "metadata": {"creationTimestamp": "2026-11-16T08:00:00Z"},
            "spec": {"project": "dev", "destination": {"namespace": "shop-api", "server": "https://kubernetes.default.svc"}},
            "operation": {"initiatedBy": {"username": "eve\u{7}"}},
            "status": {
                "sync": {"status": "Synced", "revision": "abc"},
                "health": {"status": "Degraded", "lastTransitionTime": "2026-11-16T10:00:00Z"},
                "reconciledAt": "2026-11-16T10:00:00Z",
                "conditions": [{"type": "ComparisonError", "message": "dev/apps/x: app path does not exist"}],
                "resources": [
                    {"kind": "Service", "name": "s", "namespace": "n", "status": "OutOfSync"},
                    {"kind": "Deployment", "name": "b", "namespace": "n", "health": {"status": "Progressing"}},
                    {"kind": "StatefulSet", "name": "a", "namespace": "n", "health": {"status": "Degraded", "message": "\u{1b}[2Jx"}},
                ],
            },
        }));
        assert_eq!(
            facts.unwell.iter().map(|r| r.resource.as_str()).collect::<Vec<_>>(),
            ["StatefulSet/n/a", "Deployment/n/b"]
        );
        assert_eq!(facts.unwell[0].message, "\u{fffd}[2Jx");
        assert_eq!(facts.operation.as_deref(), Some("asked for by `eve\u{fffd}`"));
        assert!(facts.path_is_gone() && facts.is_synced() && facts.health() == Health::Degraded);
        assert_eq!((facts.differs.as_slice(), facts.local), (&["Service/n/s".to_owned()][..], true));
        let at = |time: &str| time.parse().unwrap();
        assert_eq!(facts.changed, Some(at("2026-11-16T10:00:00Z")));
        assert_eq!((facts.syncing, facts.deleting), (None, None));
        let after = Duration::from_seconds(600);
        assert!(
            !facts.is_stale(at("2026-11-16T10:10:00Z"), after) && facts.is_stale(at("2026-11-16T10:10:01Z"), after)
        );
    }

    #[test]
    fn behind_a_health_is_a_resource_that_has_it_or_the_worst_there_is() {
        let resource = |name: &str, health: &str| {
            let health = json!({"status": health, "message": name.repeat(900)});
            json!({"kind": "Deployment", "namespace": "n", "name": name, "health": health})
        };
        // More than are kept for people are worse than the one that is looked for.
        let mut all: Vec<Value> = ["d", "e", "f", "g", "h", "i"].map(|name| resource(name, "Missing")).into();
        all.push(resource("c", "Progressing"));
        all.push(resource("b", "Progressing"));
        all.push(resource("a", "Healthy"));
        all.push(json!({"kind": "Service", "namespace": "n", "name": "none"}));
        let name = |health: Health| worst(health, all.iter()).map(|unwell| unwell.resource);
        assert_eq!(name(Health::Progressing).as_deref(), Some("Deployment/n/b"));
        assert_eq!(name(Health::Missing).as_deref(), Some("Deployment/n/d"));
        assert_eq!(name(Health::Degraded).as_deref(), Some("Deployment/n/d"));
        assert_eq!((name(Health::Healthy), worst(Health::Degraded, all[8..].iter())), (None, None));
        assert!(worst(Health::Progressing, all.iter()).unwrap().message.chars().count() < 450);
    }

    #[test]
    fn since_when_it_syncs_and_goes_is_read_and_what_has_ended_does_not_run() {
        let read = |phase: &str| {
            ApplicationFacts::read(&json!({
                "metadata": {"deletionTimestamp": "2026-11-16T11:00:00Z"},
                "status": {"operationState": {"phase": phase, "startedAt": "2026-11-16T10:00:00Z"}},
            }))
        };
        let at = |time: &str| -> Option<Timestamp> { Some(time.parse().unwrap()) };
        for (phase, runs) in [("Running", true), ("Terminating", true), ("Succeeded", false), ("Error", false)] {
            let facts = read(phase);
            assert_eq!(facts.syncing, at("2026-11-16T10:00:00Z").filter(|_| runs), "{phase}");
            assert_eq!(facts.deleting, at("2026-11-16T11:00:00Z"));
        }
    }

    #[test]
    fn what_our_plugin_says_is_shown_from_its_code_on_however_much_stands_before_it() {
        let before = "Failed to load target state: failed to generate manifest for source 1 of 1: rpc error: code = Unknown desc = plugin sidecar failed. error generating manifests in cmp: rpc error: code = Unknown desc = error generating manifests: `/usr/local/bin/catalyst-forge-cmp generate` failed exit status 3: ";
        let names =
            format!("`dev/apps/shop/api/release.yaml` names `r.example.com/shop/api@sha256:{}`", "0".repeat(64));
        let hint = "push it, or correct the pointer ".repeat(8);
        let message = format!("{before}error[FORGE-N001]: {names}: it is not there\n\nhint: {hint}");
        let facts = ApplicationFacts::read(
            &json!({"status": {"conditions": [{"type": "ComparisonError", "message": message}]}}),
        );
        let [condition] = facts.conditions.as_slice() else { panic!("{:?}", facts.conditions) };
        assert!(condition.starts_with("ComparisonError: FORGE-N001 `dev/apps/shop/api/release.yaml`"), "{condition}");
        assert_eq!(facts.comparison, Some(message));
    }

    #[test]
    fn an_application_of_any_shape_is_read_as_unknown() {
        for odd in
            [json!(null), json!([]), json!({"status": "x"}), json!({"status": {"resources": {"a": 1}, "health": 3}})]
        {
            let facts = ApplicationFacts::read(&odd);
            assert_eq!(facts, ApplicationFacts::default());
            assert!(facts.health() == Health::Unknown && facts.is_stale(Timestamp::UNIX_EPOCH, Duration::ZERO));
        }
    }
}
