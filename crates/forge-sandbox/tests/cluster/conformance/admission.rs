//! [Validating admission policies](https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/)
//! and [pod security admission](https://kubernetes.io/docs/concepts/security/pod-security-admission/).
//!
//! No policy here has parameters. Once the last one with parameters of a built-in kind is gone, the API server of 1.36
//! never again sees new ones of that kind (kubernetes/kubernetes issue 130887), and all tests share the API server.

use forge_testkit::sandbox::{Ended, Namespace, eventually};
use serde_json::{Value, json};

use super::{LIMIT, assert_refused, belonging, config_map, namespace, pod, sample};

#[test]
fn a_policy_in_cel_denies_or_warns_where_it_is_bound() {
    let (namespace, other) = (namespace("policy"), namespace("policy-other"));
    let name = |suffix: &str| format!("{}-{suffix}", namespace.name);
    let object = |kind: &str, name: &str, spec: Value| {
        let (version, metadata) = ("admissionregistration.k8s.io/v1", json!({"name": name}));
        belonging(&namespace, json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}))
    };
    let here = json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace.name}}});
    let maps = json!({"resourceRules": [{
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["configmaps"],
        "operations": ["CREATE", "UPDATE"],
    }]});
    namespace.apply(&[
        object(
            "ValidatingAdmissionPolicy",
            &name("size"),
            json!({
                "failurePolicy": "Fail",
                "matchConstraints": maps,
                "matchConditions": [{"name": "not-theirs", "expression": "object.metadata.name != 'kube-root-ca.crt'"}],
                "variables": [{"name": "keys", "expression": "has(object.data) ? object.data.size() : 0"}],
                "validations": [{
                    "expression": "variables.keys <= 2",
                    "messageExpression": "'at most 2 keys in ' + request.namespace + ', not ' + string(variables.keys)",
                    "reason": "Invalid",
                }],
            }),
        ),
        object(
            "ValidatingAdmissionPolicyBinding",
            &name("size"),
            json!({
                "policyName": name("size"),
                "validationActions": ["Deny"],
                "matchResources": here,
            }),
        ),
        object(
            "ValidatingAdmissionPolicy",
            &name("color"),
            json!({
                "matchConstraints": maps,
                "validations": [
                    {"expression": "!has(object.data) || !('colour' in object.data)", "message": "it is spelled color"},
                ],
            }),
        ),
        object(
            "ValidatingAdmissionPolicyBinding",
            &name("color"),
            json!({
                "policyName": name("color"),
                "validationActions": ["Warn"],
                "matchResources": here,
            }),
        ),
    ]);
    let many = json!({"a": "1", "b": "2", "c": "3"});
    // Bindings take effect a moment after they are there.
    let ended = eventually("the policy is in force", LIMIT, || {
        let ended = try_map(&namespace, &many);
        if ended.stderr.contains("at most") { Ok(ended) } else { Err(ended.stdout + &ended.stderr) }
    });
    let size = name("size");
    let denied = format!(
        "ValidatingAdmissionPolicy '{size}' with binding '{size}' denied request: at most 2 keys in {}, not 3",
        namespace.name
    );
    assert_refused(&ended, &[&denied]);
    assert_eq!(try_map(&namespace, &json!({"a": "1"})).code, 0);
    assert_eq!(try_map(&other, &many).code, 0);
    eventually("the other policy warns", LIMIT, || {
        let ended = try_map(&namespace, &json!({"colour": "red"}));
        let warned =
            ended.code == 0 && ended.stderr.contains("Warning: ") && ended.stderr.contains("it is spelled color");
        if warned { Ok(()) } else { Err(ended.stderr) }
    });

    // Without its binding a policy is nothing.
    namespace.kubectl(&["delete", "validatingadmissionpolicybinding", &size]);
    eventually("the policy is no longer in force", LIMIT, || {
        let ended = try_map(&namespace, &many);
        if ended.code == 0 { Ok(()) } else { Err(ended.stderr) }
    });
}

#[test]
fn a_namespace_that_wants_restricted_pods_refuses_others() {
    let namespace = namespace("pod-security");
    namespace.kubectl(&["label", "namespace", &namespace.name, "pod-security.kubernetes.io/enforce=restricted"]);
    let try_pod = |spec: &Value| {
        namespace.try_kubectl(&["create", "--dry-run=server", "-f", "-"], Some(&pod("web", spec).to_string()))
    };
    let mut wild = sample(&[]);
    wild["hostNetwork"] = json!(true);
    wild["containers"][0]["securityContext"] = json!({"privileged": true});
    let ended = eventually("the label is seen", LIMIT, || {
        let ended = try_pod(&wild);
        if ended.code == 0 { Err(ended.stdout) } else { Ok(ended) }
    });
    assert_refused(
        &ended,
        &[
            "(Forbidden)",
            "violates PodSecurity \"restricted:latest\"",
            "host namespaces",
            "privileged",
            "runAsNonRoot != true",
        ],
    );

    let mut tame = sample(&[]);
    tame["securityContext"] = json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
    tame["containers"][0]["securityContext"] =
        json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    let ended = try_pod(&tame);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

/// Asks what would come of a ConfigMap.
fn try_map(namespace: &Namespace, data: &Value) -> Ended {
    let map = config_map("thing", data).to_string();
    namespace.try_kubectl(&["create", "--dry-run=server", "-f", "-"], Some(&map))
}
