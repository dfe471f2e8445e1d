//! Namespaces that something is to be made in: whether they stay, and what pods they let in.

use serde_json::Value;

use super::{Check, Finding, Judged, Severity, items, mark, text};
use crate::name::clip;
use crate::view::shown;

/// The label that says what pods a namespace lets in.
const ENFORCE: &str = "pod-security.kubernetes.io/enforce";

/// What is known of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NamespaceFacts {
    /// Its name.
    pub name: String,
    /// It is there.
    pub exists: bool,
    /// It is being deleted, since when.
    pub going: Option<String>,
    /// What keeps it from being gone, in Kubernetes' own words.
    pub held_by: Vec<String>,
    /// What pods it lets in, where it says so.
    pub level: Option<String>,
}

impl NamespaceFacts {
    /// Reads a namespace; nothing where there is none of this name.
    pub fn read(name: &str, namespace: Option<&Value>) -> Self {
        let Some(object) = namespace else { return Self { name: clip(name), ..Self::default() } };
        let since = text(object, "/metadata/deletionTimestamp");
        let terminating = text(object, "/status/phase") == Some("Terminating");
        let held_by = items(object, "/status/conditions").filter(|found| text(found, "/status") == Some("True"));
        let held_by =
            held_by.filter_map(|found| Some(format!("{}: {}", text(found, "/type")?, text(found, "/message")?)));
        let going = since.or(terminating.then_some("not known when")).map(shown);
        Self {
            name: clip(name),
            exists: true,
            held_by: if going.is_some() { held_by.map(|words| shown(&words)).collect() } else { Vec::new() },
            going,
            level: mark(object, "labels", ENFORCE).map(clip),
        }
    }
}

/// Judges all namespaces that something is to be made in.
pub fn namespaces(namespaces: &[NamespaceFacts]) -> Judged {
    let (there, going): (Vec<&NamespaceFacts>, Vec<&NamespaceFacts>) =
        namespaces.iter().filter(|namespace| namespace.exists).partition(|namespace| namespace.going.is_none());
    let absent = namespaces.len() - there.len() - going.len();
    let seen = format!("{} there, {absent} to be made, {} being deleted", there.len(), going.len());
    let mut judged = Judged::new(Check::Namespaces, seen);
    for namespace in going {
        let (name, since) = (&namespace.name, namespace.going.as_deref().unwrap_or_default());
        let finding = Finding::new(
            Check::Namespaces,
            Severity::Blocking,
            format!("namespace `{name}` is being deleted (since {since})"),
            "nothing can be made in it, and what is in it goes",
            format!(
                "wait until it is gone; if it stays, `kubectl get namespace {name} -o jsonpath='{{.status.conditions}}'` names what holds it: remove those objects, or the finalizers of a controller that is gone"
            ),
        );
        judged = judged.with(finding.because(&namespace.held_by));
    }
    judged
}

/// Judges what pods the namespace of runs lets in. The pod that is started is started under the same level.
pub fn pod_security(namespace: &NamespaceFacts) -> Judged {
    let name = &namespace.name;
    let Some(level) = namespace.level.as_deref() else {
        return Judged::new(Check::PodSecurity, format!("`{name}` names no level, that of the cluster holds"));
    };
    let judged = Judged::new(Check::PodSecurity, format!("`{name}` enforces {level}"));
    match level {
        "privileged" | "baseline" => judged,
        "restricted" => judged.with(Finding::new(
            Check::PodSecurity,
            Severity::Note,
            format!("namespace `{name}` lets in restricted pods only"),
            "Job, agent and plugin pass; pods of `--runner pod` name no seccomp profile and are refused",
            "use the plugin, or let Argo Workflows set one: `workflowDefaults: {spec: {securityContext: {seccompProfile: {type: RuntimeDefault}}}}` in workflow-controller-configmap",
        )),
        other => judged.with(Finding::new(
            Check::PodSecurity,
            Severity::Warning,
            format!("namespace `{name}` has the label `{ENFORCE}={other}`, which is no level"),
            "Kubernetes takes it for restricted",
            format!("`kubectl label namespace {name} {ENFORCE}=baseline --overwrite`, or restricted"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_namespace_that_is_being_deleted_blocks_with_what_holds_it() {
        let object = json!({
            "metadata": {"name": "argo", "deletionTimestamp": "2026-11-16T10:00:00Z"},
            "status": {"phase": "Terminating", "conditions": [
                {"type": "NamespaceFinalizersRemaining", "status": "True",
                 "message": "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"},
                {"type": "NamespaceDeletionDiscoveryFailure", "status": "False", "message": "All resources successfully discovered"},
            ]},
        });
        let facts = [NamespaceFacts::read("argo", Some(&object)), NamespaceFacts::read("argocd", None)];
        let judged = namespaces(&facts);
        assert_eq!(judged.worst(), Some(Severity::Blocking));
        assert_eq!(judged.seen, "0 there, 1 to be made, 1 being deleted");
        let [finding] = judged.findings.as_slice() else { panic!("{judged:?}") };
        assert_eq!(finding.evidence.len(), 1);
        assert!(finding.evidence[0].contains("example.com/hold") && finding.fix.contains("get namespace argo"));
    }

    #[test]
    fn namespaces_that_stay_and_those_that_are_not_there_are_well() {
        let there = json!({"metadata": {"name": "argo"}, "status": {"phase": "Active"}});
        let facts = [NamespaceFacts::read("argo", Some(&there)), NamespaceFacts::read("events", None)];
        assert!(namespaces(&facts).findings.is_empty() && namespaces(&[]).findings.is_empty());
    }

    #[test]
    fn what_pods_a_namespace_lets_in_is_judged_by_its_label() {
        let level = |level: Value| {
            let object = json!({"metadata": {"labels": {ENFORCE: level}}});
            pod_security(&NamespaceFacts::read("argo", Some(&object))).worst()
        };
        assert_eq!(level(json!("baseline")), None);
        assert_eq!(level(json!("privileged")), None);
        assert_eq!(level(json!("restricted")), Some(Severity::Note));
        assert_eq!(level(json!("strict")), Some(Severity::Warning));
        assert_eq!(level(json!(null)), None);
        assert_eq!(pod_security(&NamespaceFacts::read("argo", None)).worst(), None);
    }

    #[test]
    fn hostile_namespaces_are_there_and_clean() {
        let name = "\u{1b}[2J".repeat(100);
        for hostile in [
            json!(null),
            json!({"metadata": {"deletionTimestamp": name}, "status": {"conditions": [{"type": name, "status": "True", "message": name}]}}),
            json!({"metadata": {"labels": {ENFORCE: name}}, "status": {"conditions": "none"}}),
        ] {
            let facts = NamespaceFacts::read(&name, Some(&hostile));
            assert!(facts.exists && !format!("{facts:?}").contains("\\u{1b}"), "{facts:?}");
        }
    }
}
