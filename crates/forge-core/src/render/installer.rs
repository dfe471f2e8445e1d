//! Accounts that Forge's chart makes and `bootstrap` never does, and what they may do (docs/adr/0024): the one that takes a
//! cluster from bare to a proven platform, where the first `executor deploy` is to prepare the cluster; the one that replaces
//! the token of the Argo CD account by the calendar; and the one that only looks.

use serde_json::{Value, json};

use super::bootstrap::{Placed, metadata, placed, role};
use super::workflow::{ARGOCD_SECRET, INSTALLER_ACCOUNT, Places, READER_ACCOUNT, ROTATOR_ACCOUNT};
use crate::rights::{self, Grant, Scope};

const RBAC: &str = "rbac.authorization.k8s.io";

/// An account whose pods talk to the API server.
fn account(places: &Places, name: &str) -> Placed {
    let object = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(name, Some(&places.workflows)),
        "automountServiceAccountToken": true,
    });
    placed(format!("/api/v1/namespaces/{}/serviceaccounts", places.workflows), object)
}

/// The account, a Role beside Argo Workflows, and a ClusterRole for everything that is elsewhere.
pub fn installer(places: &Places) -> Vec<Placed> {
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
    let inside = |plural: &str| format!("/apis/{version}/namespaces/{workflows}/{plural}");
    let outside = |plural: &str| format!("/apis/{version}/{plural}");
    vec![
        account(places, INSTALLER_ACCOUNT),
        placed(inside("roles"), role("Role", here, Scope::Workflows)),
        placed(inside("rolebindings"), binding("RoleBinding", here, "Role")),
        placed(outside("clusterrolebindings"), binding("ClusterRoleBinding", None, "ClusterRole")),
        // The last one: the chart adds rules of its user at its end.
        placed(outside("clusterroles"), role("ClusterRole", None, Scope::Everywhere)),
    ]
}

/// Rules that come at the end of that ClusterRole where phase 0 is to try a volume.
pub fn volume_rules() -> Vec<Value> {
    rights::rules(&rights::volumes())
}

/// The account that replaces the token of the Argo CD account: a Role beside Argo Workflows, where of all Secrets it has that of
/// the token alone, and one in Argo CD's namespace.
pub fn rotator(places: &Places) -> Vec<Placed> {
    let grants = rights::rotator();
    let of = |scope: Scope| -> Vec<Value> { rights::rules(grants.iter().filter(|grant| grant.scope == scope)) };
    let mut stored = of(Scope::Workflows);
    for rule in stored.iter_mut().filter_map(Value::as_object_mut) {
        rule.insert("resourceNames".to_owned(), json!([ARGOCD_SECRET]));
    }
    let mut objects = vec![account(places, ROTATOR_ACCOUNT)];
    for (namespace, rules) in [(&places.workflows, stored), (&places.argocd, of(Scope::ArgoCd))] {
        objects.extend(role(places, ROTATOR_ACCOUNT, ROTATOR_ACCOUNT, namespace, &rules));
    }
    objects
}

/// The account that validates, with the role of [`reader`].
pub fn validator(places: &Places) -> Vec<Placed> {
    let version = format!("{RBAC}/v1");
    let role = json!({
        "apiVersion": version, "kind": "ClusterRole", "metadata": metadata(READER_ACCOUNT, None),
        "rules": rights::rules(&rights::reader()),
    });
    let binding = json!({
        "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": metadata(READER_ACCOUNT, None),
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": READER_ACCOUNT},
        "subjects": [{"kind": "ServiceAccount", "name": READER_ACCOUNT, "namespace": places.workflows}],
    });
    vec![
        account(places, READER_ACCOUNT),
        placed(format!("/apis/{version}/clusterroles"), role),
        placed(format!("/apis/{version}/clusterrolebindings"), binding),
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

    #[test]
    fn who_replaces_the_token_has_one_secret_by_its_name_and_nobodys_password() {
        let objects = rotator(&Places { workflows: "flows".to_owned(), ..Places::default() });
        let of = |kind: &str| -> Vec<&Value> {
            objects.iter().map(|placed| &placed.object).filter(|object| object["kind"] == kind).collect()
        };
        let [here, there] = of("Role")[..] else { panic!("two roles") };
        let secret = json!({
            "apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "patch"], "resourceNames": [ARGOCD_SECRET],
        });
        assert_eq!((&here["metadata"]["namespace"], &here["rules"]), (&json!("flows"), &json!([secret])));
        assert_eq!(there["metadata"]["namespace"], "argocd");
        assert!(!there["rules"].to_string().contains("secrets"), "{there}");
        assert_eq!(of("RoleBinding").len(), 2);
        for binding in of("RoleBinding") {
            let subject = json!({"kind": "ServiceAccount", "name": ROTATOR_ACCOUNT, "namespace": "flows"});
            assert_eq!(binding["subjects"], json!([subject]));
        }
    }

    #[test]
    fn who_only_validates_has_the_role_of_the_guide_and_no_other() {
        let objects = validator(&Places { workflows: "flows".to_owned(), ..Places::default() });
        let [account, role, binding] = &objects[..] else { panic!("three objects") };
        assert_eq!(account.object["metadata"]["namespace"], "flows");
        assert_eq!(role.object["rules"], reader(READER_ACCOUNT)["rules"]);
        assert_eq!(binding.object["roleRef"]["name"], role.object["metadata"]["name"]);
        assert_eq!(binding.object["subjects"][0]["namespace"], "flows");
    }
}
