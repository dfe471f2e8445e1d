//! [RBAC](https://kubernetes.io/docs/reference/access-authn-authz/rbac/) and
//! [service accounts](https://kubernetes.io/docs/concepts/security/service-accounts/).

use forge_testkit::sandbox::{Namespace, eventually};
use serde_json::{Value, json};

use super::toolbox::{Toolbox, tools};
use super::{LIMIT, assert_refused, belonging, config_map, namespace, pod, until};

#[test]
fn a_service_account_without_rights_is_known_and_forbidden() {
    let namespace = namespace("rbac-none");
    namespace.kubectl(&["create", "serviceaccount", "nobody"]);
    let token = namespace.kubectl(&["create", "token", "nobody", "--duration=10m"]);
    let token = format!("--token={}", token.trim());
    let user = format!("system:serviceaccount:{}:nobody", namespace.name);

    let who: Value = serde_json::from_str(&namespace.kubectl(&[&token, "auth", "whoami", "-o", "json"])).unwrap();
    assert_eq!(who["status"]["userInfo"]["username"], user);
    let groups = who["status"]["userInfo"]["groups"].to_string();
    for group in
        ["system:serviceaccounts", &format!("system:serviceaccounts:{}", namespace.name), "system:authenticated"]
    {
        assert!(groups.contains(&format!("\"{group}\"")), "{groups}");
    }
    let forbidden = format!("User \"{user}\" cannot list resource \"pods\" in API group \"\" in the namespace");
    assert_refused(&namespace.try_kubectl(&[&token, "get", "pods"], None), &["(Forbidden)", &forbidden]);
    let ended = namespace.try_kubectl(&[&token, "--as=system:admin", "get", "pods"], None);
    assert_refused(&ended, &["(Forbidden)", &format!("User \"{user}\" cannot impersonate")]);

    // Tokens that are not for this server, made up, or whose account is gone, are nobody's.
    namespace.kubectl(&["create", "serviceaccount", "gone"]);
    let other = namespace.kubectl(&["create", "token", "nobody", "--audience=elsewhere"]);
    let late = namespace.kubectl(&["create", "token", "gone"]);
    namespace.kubectl(&["delete", "serviceaccount", "gone"]);
    for token in [other.trim(), late.trim(), "made-up"] {
        let ended = namespace.try_kubectl(&["--token", token, "get", "pods"], None);
        assert_refused(&ended, &["You must be logged in to the server"]);
    }
}

#[test]
fn a_role_allows_what_it_says_in_its_namespace_only() {
    let namespace = namespace("rbac-role");
    namespace.apply(&[
        config_map("open", &json!({})),
        role(
            "reader",
            &json!([
                {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]},
                {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["one"], "verbs": ["get"]},
                {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
                {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["*"]},
            ]),
        ),
        binding("reader", "Role", "reader", "alice"),
    ]);
    may(&namespace, "alice", &["list", "configmaps"], true);
    may(&namespace, "alice", &["get", "secrets/one"], true);
    may(&namespace, "alice", &["get", "pods", "--subresource=log"], true);
    may(&namespace, "alice", &["delete", "deployments.apps"], true);
    may(&namespace, "alice", &["create", "configmaps"], false);
    may(&namespace, "alice", &["get", "secrets/two"], false);
    may(&namespace, "alice", &["list", "secrets"], false);
    may(&namespace, "alice", &["get", "pods"], false);
    may(&namespace, "alice", &["list", "configmaps", "--namespace=kube-system"], false);
    may(&namespace, "alice", &["list", "configmaps", "--all-namespaces"], false);
    may(&namespace, "bob", &["list", "configmaps"], false);

    // What the review says is what happens.
    let read = namespace.kubectl(&["--as=alice", "get", "configmap", "open", "-o", "name"]);
    assert_eq!(read.trim(), "configmap/open");
    let ended = namespace.try_kubectl(&["--as=alice", "delete", "configmap", "open"], None);
    assert_refused(&ended, &["(Forbidden)", "User \"alice\" cannot delete resource \"configmaps\""]);

    // What a binding leads to cannot be changed, only its subjects; without it the right is gone.
    let patch = r#"{"roleRef":{"kind":"ClusterRole","name":"cluster-admin"}}"#;
    let ended = namespace.try_kubectl(&["patch", "rolebinding", "reader", "-p", patch], None);
    assert_refused(&ended, &["cannot change roleRef"]);
    namespace.kubectl(&["delete", "rolebinding", "reader"]);
    may(&namespace, "alice", &["list", "configmaps"], false);
}

#[test]
fn a_cluster_role_gathers_the_rules_of_those_that_it_selects() {
    let namespace = namespace("rbac-aggregate");
    let (whole, part) = (format!("{}-whole", namespace.name), format!("{}-part", namespace.name));
    let cluster_role = |name: &str, more: Value| {
        let mut role =
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}});
        role.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        belonging(&namespace, role)
    };
    let label = json!({"forge.example/part-of": namespace.name});
    let mut labelled = cluster_role(
        &part,
        json!({"rules": [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"]}]}),
    );
    labelled["metadata"]["labels"] = label.clone();
    namespace.apply(&[
        cluster_role(&whole, json!({"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": label}]}})),
        labelled,
        binding("gathered", "ClusterRole", &whole, "carol"),
    ]);
    let gathered = until(&namespace, "clusterrole", &whole, "the rules are gathered", |role| role["rules"].is_array());
    assert_eq!(
        gathered["rules"],
        json!([{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"]}])
    );
    may(&namespace, "carol", &["get", "leases.coordination.k8s.io"], true);

    namespace.kubectl(&["label", "clusterrole", &part, "forge.example/part-of-"]);
    may(&namespace, "carol", &["get", "leases.coordination.k8s.io"], false);
}

#[test]
fn nobody_can_grant_what_they_do_not_have() {
    let namespace = namespace("rbac-escalate");
    let group = "rbac.authorization.k8s.io";
    let rights = json!([
        {"apiGroups": [group], "resources": ["roles", "rolebindings"], "verbs": ["get", "create", "update", "patch"]},
        {"apiGroups": [group], "resources": ["clusterroles"], "resourceNames": ["view"], "verbs": ["bind"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
    ]);
    namespace.apply(&[role("deputy", &rights), binding("deputy", "Role", "deputy", "dave")]);
    may(&namespace, "dave", &["create", "rolebindings.rbac.authorization.k8s.io"], true);
    let as_dave = |args: &[&str]| {
        let mut all = vec!["--as=dave", "create"];
        all.extend(args);
        namespace.try_kubectl(&all, None)
    };
    let refusal = "is attempting to grant RBAC permissions not currently held";

    let ended = as_dave(&["role", "lower", "--verb=get", "--resource=configmaps"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_refused(
        &as_dave(&["role", "higher", "--verb=get", "--resource=secrets"]),
        &["(Forbidden)", refusal, "secrets"],
    );
    let ended = as_dave(&["rolebinding", "higher", "--clusterrole=cluster-admin", "--user=dave"]);
    assert_refused(&ended, &["is forbidden", refusal]);
    // Unless binding that very role is a right of theirs.
    let ended = as_dave(&["rolebinding", "view", "--clusterrole=view", "--user=erin"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    may(&namespace, "erin", &["list", "pods"], true);
}

#[test]
fn the_roles_for_users_are_there_and_differ_as_documented() {
    let namespace = namespace("rbac-users");
    namespace.apply(&[
        binding("viewer", "ClusterRole", "view", "viewer"),
        binding("editor", "ClusterRole", "edit", "editor"),
        binding("admin", "ClusterRole", "admin", "admin"),
    ]);
    let role = ["create", "roles.rbac.authorization.k8s.io"];
    may(&namespace, "viewer", &["list", "deployments.apps"], true);
    may(&namespace, "viewer", &["get", "secrets"], false);
    may(&namespace, "viewer", &["create", "pods"], false);
    may(&namespace, "editor", &["get", "secrets"], true);
    may(&namespace, "editor", &["create", "pods"], true);
    may(&namespace, "editor", &role, false);
    may(&namespace, "admin", &role, true);
    may(&namespace, "admin", &["update", "resourcequotas"], false);
    may(&namespace, "admin", &["get", "nodes"], false);
}

#[test]
fn a_pod_speaks_to_the_api_server_as_its_service_account() {
    let namespace = namespace("rbac-pod");
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "speaker"}});
    let mut spec = tools("exec sleep infinity");
    spec["serviceAccountName"] = json!("speaker");
    spec["automountServiceAccountToken"] = json!(true);
    namespace.apply(&[account, pod("speaker", &spec)]);
    namespace.wait("pod/speaker", "condition=Ready", LIMIT);
    let inside = Toolbox { namespace: namespace.name.clone(), pod: "speaker".to_owned() };

    let folder = "/var/run/secrets/kubernetes.io/serviceaccount";
    assert_eq!(inside.exec(&["cat", &format!("{folder}/namespace")], None).stdout, namespace.name);
    let url = format!("https://kubernetes.default.svc/api/v1/namespaces/{}/configmaps", namespace.name);
    let options = format!(
        "-c http.sslCAInfo={folder}/ca.crt -c http.extraHeader=\"Authorization: Bearer $(cat {folder}/token)\""
    );
    let (answer, _) = eventually("the API server answers", LIMIT, || inside.fetch_with(&options, &url));
    assert_eq!(answer.status, 403, "known, but without rights");

    let user = format!("system:serviceaccount:{}:speaker", namespace.name);
    let rights = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]);
    namespace.apply(&[role("speaker", &rights), binding("speaker", "Role", "speaker", &user)]);
    let answer = eventually("the pod may list", LIMIT, || match inside.fetch_with(&options, &url)? {
        (answer, _) if answer.status == 200 => Ok(answer),
        (answer, _) => Err(format!("{} {}", answer.status, answer.body)),
    });
    assert!(answer.body.contains("\"kind\":\"ConfigMapList\""), "{}", answer.body);

    // A pod that wants no token has none.
    let ended = Toolbox::shared().exec(&["ls", folder], None);
    assert_refused(&ended, &["No such file or directory"]);
}

fn role(name: &str, rules: &Value) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name}, "rules": rules})
}

fn binding(name: &str, kind: &str, role: &str, user: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    })
}

/// Waits until a user may, or may not, do something: rights take effect as soon as the API server hears of them.
#[track_caller]
fn may(namespace: &Namespace, user: &str, what: &[&str], wanted: bool) {
    let mut args = vec!["auth", "can-i", "--as", user];
    args.extend(what);
    eventually(&format!("{user} may {}: {wanted}", what.join(" ")), LIMIT, || {
        let ended = namespace.try_kubectl(&args, None);
        if ended.stdout.trim() == if wanted { "yes" } else { "no" } {
            Ok(())
        } else {
            Err(ended.stdout + &ended.stderr)
        }
    });
}
