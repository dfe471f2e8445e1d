//! The account that takes a cluster from bare to a proven platform, and what it may do (docs/adr/0024). Forge's chart makes
//! it where the first `executor deploy` is to prepare the cluster; `bootstrap` never does. And the role of one that only looks.

use serde_json::{Value, json};

use super::bootstrap::{Placed, metadata, placed};
use super::workflow::{INSTALLER_ACCOUNT, Places};
use crate::rights::{self, Grant, Scope};

/// The account, a Role beside Argo Workflows, and a ClusterRole for everything that is elsewhere.
pub fn installer(places: &Places) -> Vec<Placed> {
    const RBAC: &str = "rbac.authorization.k8s.io";
    let workflows = &places.workflows;
    let here = Some(workflows.as_str());
    let grants = rights::installer();
    let of = |scope: Scope| -> Vec<Value> {
        let fits = |grant: &&Grant| grant.scope == scope;
        rights::rules(grants.iter().filter(fits))
    };
    let version = format!("{RBAC}/v1");
    let role = |kind: &str, namespace: Option<&str>, scope: Scope| {
        json!({
            "apiVersion": version, "kind": kind, "metadata": metadata(INSTALLER_ACCOUNT, namespace), "rules": of(scope),
        })
    };
    let binding = |kind: &str, namespace: Option<&str>, of: &str| {
        json!({
            "apiVersion": version, "kind": kind, "metadata": metadata(INSTALLER_ACCOUNT, namespace),
            "roleRef": {"apiGroup": RBAC, "kind": of, "name": INSTALLER_ACCOUNT},
            "subjects": [{"kind": "ServiceAccount", "name": INSTALLER_ACCOUNT, "namespace": workflows}],
        })
    };
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(INSTALLER_ACCOUNT, here),
        "automountServiceAccountToken": true,
    });
    let inside = |plural: &str| format!("/apis/{version}/namespaces/{workflows}/{plural}");
    let outside = |plural: &str| format!("/apis/{version}/{plural}");
    vec![
        placed(format!("/api/v1/namespaces/{workflows}/serviceaccounts"), account),
        placed(inside("roles"), role("Role", here, Scope::Workflows)),
        placed(inside("rolebindings"), binding("RoleBinding", here, "Role")),
        placed(outside("clusterrolebindings"), binding("ClusterRoleBinding", None, "ClusterRole")),
        // The last one: the chart adds rules of its user at its end.
        placed(outside("clusterroles"), role("ClusterRole", None, Scope::Everywhere)),
    ]
}

/// The ClusterRole of an account that validates and cannot do anything else, for whoever wants to make one.
pub fn reader(name: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
        "rules": rights::rules(&rights::reader()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_roles_are_bound_to_the_account_and_the_rules_of_the_cluster_stand_at_the_end() {
        let objects = installer(&Places { workflows: "flows".to_owned(), ..Places::default() });
        let kinds: Vec<&str> = objects.iter().filter_map(|placed| placed.object["kind"].as_str()).collect();
        assert_eq!(kinds, ["ServiceAccount", "Role", "RoleBinding", "ClusterRoleBinding", "ClusterRole"]);
        for binding in &objects[2..4] {
            assert_eq!(binding.object["subjects"][0]["namespace"], "flows");
            assert_eq!(binding.object["subjects"][0]["name"], INSTALLER_ACCOUNT);
        }
        let last = objects.last().unwrap();
        assert_eq!(last.object.as_object().unwrap().keys().next_back().map(String::as_str), Some("rules"));
        assert!(
            objects[1].object["metadata"]["namespace"] == "flows" && last.object["metadata"]["namespace"].is_null()
        );
        assert!(!last.object["rules"].as_array().unwrap().is_empty());
    }
}
