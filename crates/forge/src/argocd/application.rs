//! An Argo CD Application, read loosely: just enough of it for the gate.

use forge_core::gate::{Health, Nonce, Operation, Phase, SyncState, Unwell};
use forge_core::name::{ApplicationId, cut};
use forge_core::teardown;
use forge_core::view::worst;
use serde_json::Value;

use super::NONCE;

/// How much of a message of Argo CD is kept: it may quote a whole manifest, and goes into the record of the run.
const LONGEST_MESSAGE: usize = 1 << 10;

/// Where an Application's content comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    /// The repository, of Git, Helm or OCI.
    pub(crate) url: String,
    /// The folder; empty for charts.
    pub(crate) path: String,
    /// It is a chart.
    pub(crate) chart: bool,
}

/// A member of an Application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resource {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Resource {
    pub(super) fn read(value: &Value) -> Self {
        let field = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        Self {
            group: field("group"),
            version: field("version"),
            kind: field("kind"),
            namespace: field("namespace"),
            name: field("name"),
        }
    }

    /// `Kind/namespace/name`.
    pub(crate) fn id(&self) -> String {
        format!("{}/{}/{}", self.kind, self.namespace, self.name)
    }
}

/// An Application.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Application {
    pub(crate) id: ApplicationId,
    /// Grows with every change, so that an older read never replaces a newer one.
    pub(crate) version: u64,
    pub(crate) project: String,
    pub(crate) operation: Option<Operation>,
    /// The operation that is in flight was started by Argo CD itself.
    pub(crate) automated: bool,
    /// `.operation` is there: something is in flight or about to be.
    pub(crate) in_flight: bool,
    pub(crate) sync: SyncState,
    pub(crate) health: Health,
    /// The resource behind that health, where Argo CD tells of one: its list does not.
    pub(crate) unwell: Option<Unwell>,
    pub(crate) conditions: Vec<String>,
    pub(crate) resources: Vec<Resource>,
    pub(crate) revisions: Vec<String>,
    pub(crate) sources: Vec<Source>,
    /// The namespace that it deploys to.
    pub(crate) destination: String,
    /// As Kubernetes knows it: another one of its name is another one.
    pub(crate) uid: String,
    /// It is being deleted.
    pub(crate) deleting: bool,
    /// What went wrong with its deletion.
    pub(crate) deletion_error: Option<String>,
    /// Who makes it, as far as it says.
    pub(crate) creator: Option<String>,
}

impl Application {
    /// Reads an Application; nothing where the object has no usable name. Every field that is looked at must be named in
    /// `pruned.rs`: of a text nothing else is there.
    pub(crate) fn read(value: &Value) -> Option<Self> {
        let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let id = format!("{}/{}", text("/metadata/namespace"), text("/metadata/name")).parse().ok()?;
        let list = |pointer: &str| value.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
        let mut sources: Vec<Source> = list("/spec/sources").map(source).collect();
        if sources.is_empty() {
            sources.extend(value.pointer("/spec/source").map(source));
        }
        let mut revisions: Vec<String> =
            list("/status/sync/revisions").filter_map(Value::as_str).map(str::to_owned).collect();
        if revisions.is_empty() && !text("/status/sync/revision").is_empty() {
            revisions.push(text("/status/sync/revision").to_owned());
        }
        let pending = value.get("operation").filter(|operation| operation.is_object());
        let broken = ["ComparisonError", "InvalidSpecError", "UnknownError"];
        let conditions = list("/status/conditions")
            .filter(|condition| condition.get("type").and_then(Value::as_str).is_some_and(|t| broken.contains(&t)))
            .filter_map(|condition| condition.get("message").and_then(Value::as_str).map(message));
        let mut failed = list("/status/conditions")
            .filter(|condition| condition.get("type").and_then(Value::as_str) == Some("DeletionError"));
        let deletion_error = failed.find_map(|condition| condition.get("message")?.as_str());
        let health = health(text("/status/health/status"));
        Some(Self {
            id,
            version: text("/metadata/resourceVersion").parse().unwrap_or(0),
            project: text("/spec/project").to_owned(),
            operation: operation(value, pending),
            automated: pending
                .and_then(|p| p.pointer("/initiatedBy/automated"))
                .and_then(Value::as_bool)
                .unwrap_or(false),
            in_flight: pending.is_some(),
            sync: match text("/status/sync/status") {
                "Synced" => SyncState::Synced,
                "OutOfSync" => SyncState::OutOfSync,
                _ => SyncState::Unknown,
            },
            health,
            unwell: worst(health, list("/status/resources")),
            conditions: conditions.collect(),
            resources: list("/status/resources").map(Resource::read).collect(),
            revisions,
            sources,
            destination: text("/spec/destination/namespace").to_owned(),
            uid: text("/metadata/uid").to_owned(),
            deleting: value.pointer("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null()),
            deletion_error: deletion_error.map(message),
            creator: teardown::creator(value).map(|creator| creator.to_string()),
        })
    }
}

/// What Argo CD says, as much of it as is kept.
pub(super) fn message(text: &str) -> String {
    cut(text, LONGEST_MESSAGE).into_owned()
}

fn health(text: &str) -> Health {
    match text {
        "Healthy" => Health::Healthy,
        "Progressing" => Health::Progressing,
        "Degraded" => Health::Degraded,
        "Suspended" => Health::Suspended,
        "Missing" => Health::Missing,
        _ => Health::Unknown,
    }
}

fn source(value: &Value) -> Source {
    let field = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    Source { url: field("repoURL"), path: field("path"), chart: !field("chart").is_empty() }
}

/// The operation that counts: the one in `.operation`, with what `.status.operationState` says of it where that is about
/// the same one; else the last one.
fn operation(value: &Value, pending: Option<&Value>) -> Option<Operation> {
    let state = value.pointer("/status/operationState").filter(|state| state.is_object());
    let last = state.map(|state| Operation {
        nonce: nonce(state.pointer("/operation/info")),
        phase: phase(state.get("phase")),
        message: message(state.get("message").and_then(Value::as_str).unwrap_or_default()),
    });
    let Some(pending) = pending else { return last };
    let nonce = nonce(pending.get("info"));
    match last {
        Some(last) if last.nonce == nonce && last.phase.is_running() => Some(last),
        _ => Some(Operation { nonce, phase: Phase::Running, message: String::new() }),
    }
}

fn phase(value: Option<&Value>) -> Phase {
    match value.and_then(Value::as_str) {
        Some("Succeeded") => Phase::Succeeded,
        Some("Failed") => Phase::Failed,
        Some("Error") => Phase::Error,
        Some("Terminating") => Phase::Terminating,
        _ => Phase::Running,
    }
}

fn nonce(infos: Option<&Value>) -> Option<Nonce> {
    let infos = infos.and_then(Value::as_array)?;
    let ours = infos.iter().find(|info| info.get("name").and_then(Value::as_str) == Some(NONCE))?;
    ours.get("value").and_then(Value::as_str)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn app(operation: &Value, status: &Value) -> Application {
        let object = json!({
            "metadata": {"namespace": "argocd", "name": "api", "resourceVersion": "42"},
            "spec": {"project": "dev", "source": {"repoURL": "u", "path": "p"}, "destination": {"namespace": "shop"}},
            "operation": operation,
            "status": status,
        });
        Application::read(&object).unwrap()
    }

    fn info(text: &str) -> Value {
        json!([{"name": NONCE, "value": text}])
    }

    #[test]
    fn a_request_that_argo_cd_has_not_begun_hides_the_operation_before_it() {
        let old = json!({"operationState": {"phase": "Succeeded", "operation": {"info": info("r1/a/b/1")}}});
        let found = app(&json!({"info": info("r1/a/b/2"), "sync": {}}), &old).operation.unwrap();
        assert_eq!((found.phase, found.nonce.unwrap().attempt), (Phase::Running, 2));
    }

    #[test]
    fn an_operation_that_runs_is_seen_with_its_message() {
        let state = json!({"operationState": {"phase": "Terminating", "message": "m", "operation": {"info": info("r1/a/b/2")}}});
        let found = app(&json!({"info": info("r1/a/b/2")}), &state).operation.unwrap();
        assert_eq!((found.phase, found.message.as_str()), (Phase::Terminating, "m"));
    }

    #[test]
    fn what_is_being_deleted_says_so_and_why_it_does_not_get_on() {
        let mut object = json!({
            "metadata": {"namespace": "argocd", "name": "api", "uid": "7"},
            "status": {"conditions": [{"type": "DeletionError", "message": "no such project"}]},
        });
        let found = Application::read(&object).unwrap();
        assert_eq!((found.uid.as_str(), found.deleting, found.creator), ("7", false, None));
        object["metadata"]["deletionTimestamp"] = json!("2026-11-16T10:00:00Z");
        object["metadata"]["ownerReferences"] = json!([{"kind": "ApplicationSet", "name": "dev-apps"}]);
        let found = Application::read(&object).unwrap();
        assert!(found.deleting && found.deletion_error.as_deref() == Some("no such project"));
        assert_eq!(found.creator.as_deref(), Some("ApplicationSet dev-apps"));
    }

    #[test]
    fn messages_are_cut_where_they_are_read() {
        let long = "ä".repeat(100_000);
        let status = json!({
            "operationState": {"phase": "Failed", "message": long},
            "conditions": [{"type": "ComparisonError", "message": long}, {"type": "SyncError", "message": long}],
        });
        let found = app(&Value::Null, &status);
        let [condition] = found.conditions.as_slice() else { panic!("{:?}", found.conditions) };
        for text in [condition, &found.operation.unwrap().message] {
            assert!(text.len() <= LONGEST_MESSAGE && text.starts_with("ää") && text.ends_with("ä…"), "{text}");
        }
    }

    #[test]
    fn the_resource_behind_a_health_is_kept_with_what_argo_cd_says_about_it() {
        let message = "Deployment \"api\" exceeded its progress deadline";
        let resource = |name: &str, health: &str| {
            let health = json!({"status": health, "message": message});
            json!({"group": "apps", "kind": "Deployment", "namespace": "shop", "name": name, "health": health})
        };
        let mut status = json!({
            "health": {"status": "Degraded"},
            "resources": [resource("a", "Progressing"), resource("api", "Degraded")],
        });
        let unwell = Unwell { resource: "Deployment/shop/api".to_owned(), message: message.to_owned() };
        assert_eq!(app(&Value::Null, &status).unwell, Some(unwell));
        status["resources"][1]["health"]["message"] = json!("x".repeat(100_000));
        assert!(app(&Value::Null, &status).unwell.unwrap().message.len() < LONGEST_MESSAGE);
        status["health"]["status"] = json!("Healthy");
        assert_eq!(app(&Value::Null, &status).unwell, None);
    }

    #[test]
    fn what_is_not_there_is_unknown_and_never_healthy() {
        let found = app(&Value::Null, &Value::Null);
        assert_eq!((found.sync, found.health, found.resources.len()), (SyncState::Unknown, Health::Unknown, 0));
        assert!(found.operation.is_none() && !found.in_flight);
        assert!(Application::read(&json!({"metadata": {"name": "../x"}})).is_none());
    }
}
