//! Policies of the API server for the accounts that `bootstrap` makes: RBAC says which kinds an account may write, these say
//! what may stand in them (SPEC.md section 4).
//!
//! Pure. A policy is in no namespace and is about the accounts of one, so it is named after that: several installations
//! share a cluster without taking their policies from each other.

use serde_json::{Value, json};

use super::WINDOW_PREFIX;
use super::bootstrap::{Placed, metadata, placed};
use super::workflow::{EXECUTOR_ACCOUNT, Places};

/// A policy.
pub(super) struct Policy<'p> {
    /// Its name, before that of the namespace.
    pub(super) name: &'static str,
    /// Whom it is about, for messages of the API server.
    pub(super) who: &'static str,
    /// Their accounts.
    pub(super) accounts: &'p [&'p str],
    /// The group and the plural of what they write.
    pub(super) kind: (&'static str, &'static str),
    /// What they do with it.
    pub(super) operations: &'p [&'p str],
    /// What must hold then, and what is said where it does not.
    pub(super) rules: Vec<(String, &'static str)>,
}

impl Policy<'_> {
    /// The policy and its binding.
    pub(super) fn objects(&self, places: &Places) -> Vec<Placed> {
        let group = "/apis/admissionregistration.k8s.io/v1";
        let name = format!("{}-{}", self.name, places.workflows);
        let of = |account: &&str| {
            format!("request.userInfo.username == 'system:serviceaccount:{}:{account}'", places.workflows)
        };
        let accounts: Vec<String> = self.accounts.iter().map(of).collect();
        let validation = |(expression, message): &(String, &str)| json!({"expression": expression, "message": message});
        let validations: Vec<Value> = self.rules.iter().map(validation).collect();
        let policy = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": metadata(&name, None),
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [{
                    "apiGroups": [self.kind.0], "apiVersions": ["*"], "resources": [self.kind.1],
                    "operations": self.operations,
                }]},
                "matchConditions": [{"name": self.who, "expression": accounts.join(" || ")}],
                "validations": validations,
            },
        });
        let binding = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": metadata(&name, None),
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        });
        vec![
            placed(format!("{group}/validatingadmissionpolicies"), policy),
            placed(format!("{group}/validatingadmissionpolicybindings"), binding),
        ]
    }
}

/// The policies of the accounts of a run.
pub(super) fn policies(places: &Places) -> Vec<Placed> {
    windows().objects(places)
}

/// A field that is what it was. Absent is the same as empty: the API server leaves empty ones out.
fn kept(field: &str, empty: &str) -> String {
    format!(
        "(has(object.{field}) ? object.{field} : {empty}) == (has(oldObject.{field}) ? oldObject.{field} : {empty})"
    )
}

/// The Job is the only writer of windows, and windows are all that it writes: of an AppProject nothing but
/// `spec.syncWindows` may change under its account, and of those only the one that is ours.
fn windows() -> Policy<'static> {
    let others = |object: &str| {
        format!(
            "(has({object}.spec.syncWindows) ? {object}.spec.syncWindows : []).filter(w, !(has(w.description) && w.description.startsWith('{WINDOW_PREFIX}')))"
        )
    };
    let marks = [kept("metadata.labels", "{}"), kept("metadata.annotations", "{}")].join(" && ");
    let bonds = [kept("metadata.ownerReferences", "[]"), kept("metadata.finalizers", "[]")].join(" && ");
    let update = |expression: &str| format!("request.operation != 'UPDATE' || {expression}");
    Policy {
        name: "forge-window-writer",
        who: "the-executor",
        accounts: &[EXECUTOR_ACCOUNT],
        kind: ("argoproj.io", "appprojects"),
        operations: &["CREATE", "UPDATE", "DELETE"],
        rules: vec![
            ("request.operation == 'UPDATE'".to_owned(), "the executor neither makes nor removes AppProjects"),
            (
                update(
                    "(object.spec.all(k, k == 'syncWindows' || (k in oldObject.spec && object.spec[k] == oldObject.spec[k])) && oldObject.spec.all(k, k == 'syncWindows' || k in object.spec))",
                ),
                "the executor changes nothing of an AppProject but spec.syncWindows",
            ),
            (update(&format!("({marks})")), "the executor changes neither labels nor annotations of an AppProject"),
            // Either would decide when it goes away, and what goes with it.
            (update(&format!("({bonds})")), "the executor changes neither owners nor finalizers of an AppProject"),
            // It holds tokens of roles, and is no subresource: who may patch the object may patch it too.
            (
                update(&format!("({})", kept("status", "{}"))),
                "the executor does not change the status of an AppProject",
            ),
            (
                update(&format!("{} == {}", others("object"), others("oldObject"))),
                "the executor changes no sync window but its own",
            ),
        ],
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn whatever_could_hand_an_app_project_to_somebody_else_is_compared_with_what_it_was() {
        let all: String = windows().rules.into_iter().map(|(expression, _)| format!("{expression}\n")).collect();
        for field in ["labels", "annotations", "ownerReferences", "finalizers"] {
            let both = format!("(has(object.metadata.{field}) ? object.metadata.{field} : ");
            assert!(all.contains(&both) && all.contains(&format!("has(oldObject.metadata.{field})")), "{field}");
        }
        assert!(all.contains("has(object.status) ? object.status : {}"));
    }

    #[test]
    fn every_expression_is_balanced() {
        for placed in policies(&Places::default()) {
            for validation in placed.object["spec"]["validations"].as_array().into_iter().flatten() {
                let expression = validation["expression"].as_str().unwrap();
                let count = |c: char| expression.chars().filter(|found| *found == c).count();
                let even = count('(') == count(')') && count('{') == count('}') && count('[') == count(']');
                assert!(even, "{expression}");
            }
        }
    }

    #[test]
    fn two_installations_have_policies_of_their_own() {
        let names = |workflows: &str| -> BTreeSet<String> {
            let places = Places { workflows: workflows.to_owned(), ..Places::default() };
            let of = |placed: &Placed| format!("{} {}", placed.object["kind"], placed.object["metadata"]["name"]);
            policies(&places).iter().map(of).collect()
        };
        let (one, other) = (names("argo"), names("flows"));
        assert_eq!(one.len(), other.len());
        assert!(one.is_disjoint(&other), "{one:?}");
        // A binding is of its own policy.
        for placed in
            policies(&Places::default()).iter().filter(|placed| placed.object["spec"]["policyName"].is_string())
        {
            assert_eq!(placed.object["spec"]["policyName"], placed.object["metadata"]["name"]);
        }
    }
}
