//! What a check makes for a moment: a namespace, a claim, and a pod that runs `forge --version`. Each carries our labels and
//! a time after which it is nobody's any more, so that whoever finds it knows what it is and whether it may go.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{Check, Finding, Judged, Severity, count, items, mark, text};
use crate::render::MANAGED_BY;

/// What the names of all that a check makes begin with.
pub const NAME_PREFIX: &str = "forge-preflight-";
/// The label that marks what a check made, and by which check.
pub const PREFLIGHT_LABEL: &str = "forge.projectcatalyst.io/preflight";
/// The annotation that says until when a check may use it.
pub const EXPIRES_ANNOTATION: &str = "forge.projectcatalyst.io/expires";
/// What says nothing about that is left when it is so old.
const OLD: SignedDuration = SignedDuration::from_hours(1);
/// Labels that say what pods a namespace lets in.
const LEVELS: &str = "pod-security.kubernetes.io/";

/// A pod that is started to see whether it starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// What tells it apart from others: lower-case letters and digits.
    pub id: String,
    /// Where.
    pub namespace: String,
    /// The image of the executor.
    pub image: String,
    /// The account, where it has credentials for a registry.
    pub account: Option<&'static str>,
    /// With a volume.
    pub volume: bool,
    /// Until when it may be used.
    pub expires: Timestamp,
}

impl Probe {
    /// The name of pod and claim, and of the namespace where it has one of its own.
    pub fn name(&self) -> String {
        format!("{NAME_PREFIX}{}", self.id)
    }

    fn metadata(&self) -> Value {
        json!({
            "name": self.name(),
            "labels": {MANAGED_BY: "forge", PREFLIGHT_LABEL: self.id},
            "annotations": {EXPIRES_ANNOTATION: self.expires.strftime("%FT%TZ").to_string()},
        })
    }

    fn metadata_in(&self) -> Value {
        let mut metadata = self.metadata();
        if let Value::Object(fields) = &mut metadata {
            fields.insert("namespace".to_owned(), json!(self.namespace));
        }
        metadata
    }
}

/// A namespace of its own, which lets in the same pods as another one.
pub fn namespace(probe: &Probe, levels: &BTreeMap<String, String>) -> Value {
    let mut metadata = probe.metadata();
    if let Some(Value::Object(labels)) = metadata.get_mut("labels") {
        labels.extend(levels.iter().map(|(key, value)| (key.clone(), json!(value))));
    }
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
}

/// Labels of a namespace that say what pods it lets in.
pub fn pod_security_labels(namespace: &Value) -> BTreeMap<String, String> {
    let labels = namespace.pointer("/metadata/labels").and_then(Value::as_object);
    let levels = labels.into_iter().flatten().filter(|(key, _)| key.starts_with(LEVELS));
    levels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// A claim that names no class, so that it gets the default one.
pub fn claim(probe: &Probe) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": probe.metadata_in(),
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    })
}

/// A pod that is like the executor's in everything that could keep it from starting, and does nothing.
pub fn pod(probe: &Probe) -> Value {
    let mut container = json!({
        "name": "forge",
        "image": probe.image,
        // One that a node has already would say nothing about the registry, which the next node needs.
        "imagePullPolicy": "Always",
        "command": ["forge"],
        "args": ["--version"],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
        },
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"cpu": "1", "memory": "512Mi"}},
    });
    let mut spec = json!({
        "restartPolicy": "Never",
        "automountServiceAccountToken": false,
        "terminationGracePeriodSeconds": 1,
        "securityContext": {"runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
    });
    if probe.volume
        && let (Value::Object(container), Value::Object(spec)) = (&mut container, &mut spec)
    {
        container.insert("volumeMounts".to_owned(), json!([{"name": "volume", "mountPath": "/volume"}]));
        let claim = json!({"name": "volume", "persistentVolumeClaim": {"claimName": probe.name()}});
        spec.insert("volumes".to_owned(), json!([claim]));
    }
    if let Value::Object(spec) = &mut spec {
        spec.extend(probe.account.map(|account| ("serviceAccountName".to_owned(), json!(account))));
        spec.insert("containers".to_owned(), json!([container]));
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": probe.metadata_in(), "spec": spec})
}

/// Whether pods of an account have credentials for a registry by it.
pub fn has_pull_secrets(account: &Value) -> bool {
    items(account, "/imagePullSecrets").next().is_some()
}

/// True for what a check made that did not end well enough to remove it. `now` is the time of the API server. What another
/// check may still be using is not left, and what does not carry all of our marks is not ours (INV-11).
pub fn is_left(object: &Value, now: Timestamp) -> bool {
    let ours = mark(object, "labels", MANAGED_BY) == Some("forge")
        && mark(object, "labels", PREFLIGHT_LABEL).is_some()
        && text(object, "/metadata/name").is_some_and(|name| name.starts_with(NAME_PREFIX));
    let time = |text: &str| text.parse::<Timestamp>().ok();
    let over = match mark(object, "annotations", EXPIRES_ANNOTATION).and_then(time) {
        Some(expires) => now > expires,
        None => text(object, "/metadata/creationTimestamp")
            .and_then(time)
            .is_some_and(|created| now.duration_since(created) > OLD),
    };
    ours && over
}

/// Judges what checks left: `removed` things of earlier ones are gone, and what is `left` is not.
pub fn leftovers(removed: usize, left: &[String]) -> Judged {
    let earlier = if removed == 0 { String::new() } else { format!(", {removed} of earlier checks removed") };
    if left.is_empty() {
        return Judged::new(Check::Leftovers, format!("everything that was made is gone{earlier}"));
    }
    let finding = Finding::new(
        Check::Leftovers,
        Severity::Failed,
        format!("{} of a check could not be removed in time", count(left.len(), "object")),
        "it uses up room; the next check removes what is over by then",
        format!(
            "remove it: `kubectl delete namespace NAME`, or `kubectl delete pod,pvc -l {PREFLIGHT_LABEL} -n NAMESPACE`; a pod that stays has a node that does not answer"
        ),
    );
    Judged::new(Check::Leftovers, format!("{} still there{earlier}", left.len())).with(finding.because(left))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_a_failure_that_names_it_and_what_was_removed_is_told() {
        assert!(leftovers(0, &[]).findings.is_empty());
        assert_eq!(leftovers(2, &[]).seen, "everything that was made is gone, 2 of earlier checks removed");
        let judged = leftovers(0, &["Namespace forge-preflight-x".to_owned()]);
        assert_eq!(judged.worst(), Some(Severity::Failed));
        assert_eq!(judged.findings[0].evidence, ["Namespace forge-preflight-x"]);
    }

    fn probe(volume: bool) -> Probe {
        Probe {
            id: "0a1b2c3d".to_owned(),
            namespace: "forge-preflight-0a1b2c3d".to_owned(),
            image: "forge@sha256:00".to_owned(),
            account: None,
            volume,
            expires: at("2026-11-16T10:05:00Z"),
        }
    }

    fn at(time: &str) -> Timestamp {
        time.parse().unwrap()
    }

    #[test]
    fn everything_that_a_check_makes_is_marked_as_ours_with_its_end() {
        let levels = BTreeMap::from([("pod-security.kubernetes.io/enforce".to_owned(), "restricted".to_owned())]);
        for object in [namespace(&probe(false), &levels), claim(&probe(true)), pod(&probe(true))] {
            let metadata = &object["metadata"];
            assert_eq!(metadata["labels"][MANAGED_BY], "forge");
            assert_eq!(metadata["labels"][PREFLIGHT_LABEL], "0a1b2c3d");
            assert_eq!(metadata["annotations"][EXPIRES_ANNOTATION], "2026-11-16T10:05:00Z");
            assert!(!is_left(&object, at("2026-11-16T10:05:00Z")) && is_left(&object, at("2026-11-16T10:05:01Z")));
        }
        let own = namespace(&probe(false), &levels);
        assert_eq!(own["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "restricted");
        assert_eq!(pod_security_labels(&own), levels);
    }

    #[test]
    fn the_pod_is_as_restricted_as_the_executors_is_really_pulled_and_mounts_a_volume_only_if_it_is_to() {
        let spec = pod(&probe(false))["spec"].clone();
        assert_eq!(spec["securityContext"]["runAsNonRoot"], true);
        assert_eq!(spec["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
        let container = &spec["containers"][0];
        assert_eq!(container["imagePullPolicy"], "Always");
        assert_eq!(container["securityContext"]["capabilities"]["drop"], json!(["ALL"]));
        assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
        assert!(spec.get("volumes").is_none() && container.get("volumeMounts").is_none());
        let with = pod(&probe(true))["spec"].clone();
        let claimed = with["volumes"][0]["persistentVolumeClaim"]["claimName"].clone();
        assert_eq!(claimed, claim(&probe(true))["metadata"]["name"]);
    }

    #[test]
    fn an_account_is_taken_only_where_it_has_credentials_for_a_registry() {
        assert!(has_pull_secrets(&json!({"imagePullSecrets": [{"name": "registry"}]})));
        for without in [json!({}), json!({"imagePullSecrets": []}), json!({"imagePullSecrets": null}), json!(null)] {
            assert!(!has_pull_secrets(&without), "{without}");
        }
        assert!(pod(&probe(false))["spec"].get("serviceAccountName").is_none());
        let with = pod(&Probe { account: Some("forge-executor"), ..probe(false) });
        assert_eq!(with["spec"]["serviceAccountName"], "forge-executor");
        assert_eq!(with["spec"]["automountServiceAccountToken"], false);
    }

    #[test]
    fn what_is_somebody_elses_young_or_unreadable_is_not_left() {
        let now = at("2026-11-16T12:00:00Z");
        let object = |name: &str, labels: Value, created: &str| json!({"metadata": {"name": name, "labels": labels, "creationTimestamp": created}});
        let ours = || json!({MANAGED_BY: "forge", PREFLIGHT_LABEL: "x"});
        assert!(is_left(&object("forge-preflight-x", ours(), "2026-11-16T10:59:59Z"), now));
        assert!(!is_left(&object("forge-preflight-x", ours(), "2026-11-16T11:00:01Z"), now));
        assert!(!is_left(&object("production", ours(), "2020-01-01T00:00:00Z"), now));
        assert!(!is_left(&object("forge-preflight-x", json!({PREFLIGHT_LABEL: "x"}), "2020-01-01T00:00:00Z"), now));
        assert!(!is_left(&object("forge-preflight-x", json!({MANAGED_BY: "forge"}), "2020-01-01T00:00:00Z"), now));
        assert!(!is_left(&object("forge-preflight-x", ours(), "long ago"), now));
        assert!(!is_left(&json!(null), now));
        // An end that cannot be read does not keep it for ever.
        let mut odd = object("forge-preflight-x", ours(), "2020-01-01T00:00:00Z");
        odd["metadata"]["annotations"] = json!({EXPIRES_ANNOTATION: "tomorrow"});
        assert!(is_left(&odd, now));
    }
}
