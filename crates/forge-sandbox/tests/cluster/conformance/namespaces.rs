//! [Namespaces](https://kubernetes.io/docs/concepts/overview/working-with-objects/namespaces/),
//! and what limits what is in one: [quotas](https://kubernetes.io/docs/concepts/policy/resource-quotas/) and
//! [limit ranges](https://kubernetes.io/docs/concepts/policy/limit-range/).

use forge_testkit::sandbox::eventually;
use serde_json::{Value, json};

use super::{LIMIT, assert_refused, condition, config_map, deployment, namespace, pod, sample, service, text, until};

#[test]
fn deleting_a_namespace_deletes_everything_in_it() {
    let (namespace, other) = (namespace("ns-delete"), namespace("ns-other"));
    assert_eq!(
        text(&namespace.get("namespace", &namespace.name), "/metadata/labels/kubernetes.io~1metadata.name"),
        namespace.name
    );
    let mut objects = vec![
        config_map("settings", &json!({"color": "red"})),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "password"}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}),
        service("web", &json!({})),
    ];
    other.apply(&objects);
    objects.push(deployment("web", 1, &sample(&[])));
    namespace.apply(&objects);
    namespace.wait("deployment/web", "condition=Available", LIMIT);

    namespace.kubectl(&["delete", "namespace", &namespace.name, "--timeout=60s"]);
    assert_refused(&namespace.try_kubectl(&["get", "namespace", &namespace.name], None), &["(NotFound)"]);
    assert_refused(&namespace.try_apply(&[config_map("late", &json!({}))]), &["not found"]);

    // Its name can be taken again, and leads to none of the old objects; what has the same name elsewhere is untouched.
    namespace.kubectl(&["create", "namespace", &namespace.name]);
    let kinds = "configmaps,secrets,services,deployments,replicasets,pods,endpointslices";
    let left = namespace.kubectl(&["get", kinds, "-o", "name"]);
    let left: Vec<&str> = left.lines().filter(|name| *name != "configmap/kube-root-ca.crt").collect();
    assert!(left.is_empty(), "{left:?}");
    until(&namespace, "serviceaccount", "default", "it gets its own account", |_| true);
    until(&namespace, "configmap", "kube-root-ca.crt", "it gets the certificate", |_| true);
    assert_eq!(text(&other.get("configmap", "settings"), "/data/color"), "red");
    other.get("service", "web");
}

#[test]
fn a_finalizer_keeps_a_namespace_and_is_named() {
    let namespace = namespace("ns-finalizer");
    let mut held = config_map("held", &json!({}));
    held["metadata"]["finalizers"] = json!(["forge.example/hold"]);
    namespace.apply(&[held, config_map("free", &json!({}))]);
    namespace.kubectl(&["delete", "namespace", &namespace.name, "--wait=false"]);

    let terminating = until(&namespace, "namespace", &namespace.name, "it says what it waits for", |now| {
        condition(now, "NamespaceFinalizersRemaining").starts_with("True")
    });
    assert_eq!(text(&terminating, "/status/phase"), "Terminating");
    let why = condition(&terminating, "NamespaceFinalizersRemaining");
    assert!(why.contains("forge.example/hold in 1 resource instances"), "{why}");
    let what = condition(&terminating, "NamespaceContentRemaining");
    assert!(what.contains("configmaps. has 1 resource instances"), "{what}");
    assert_refused(&namespace.try_kubectl(&["get", "configmap", "free"], None), &["(NotFound)"]);
    let ended = namespace.try_apply(&[config_map("late", &json!({}))]);
    assert_refused(&ended, &["forbidden", "because it is being terminated"]);

    let patch = r#"{"metadata":{"finalizers":null}}"#;
    namespace.kubectl(&["patch", "configmap", "held", "--type=merge", "-p", patch]);
    namespace.wait(&format!("namespace/{}", namespace.name), "delete", LIMIT);
}

#[test]
fn a_quota_refuses_what_would_be_too_much() {
    let namespace = namespace("ns-quota");
    let hard = json!({"count/secrets": "1", "services.nodeports": "0", "pods": "2", "requests.memory": "100Mi"});
    namespace.apply(&[
        json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small"}, "spec": {"hard": hard}}),
    ]);
    until(&namespace, "resourcequota", "small", "the quota is counted", |quota| quota["status"]["hard"] == hard);
    let secret = |name: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});

    namespace.apply(&[secret("one")]);
    let ended = namespace.try_apply(&[secret("two")]);
    let numbers = "requested: count/secrets=1, used: count/secrets=1, limited: count/secrets=1";
    assert_refused(&ended, &["(Forbidden)", "exceeded quota: small", numbers]);
    let ended = namespace.try_apply(&[service("outside", &json!({"type": "NodePort"}))]);
    assert_refused(&ended, &["(Forbidden)", "exceeded quota: small", "limited: services.nodeports=0"]);
    let ended = namespace.try_apply(&[pod("vague", &sample(&[]))]);
    assert_refused(&ended, &["(Forbidden)", "failed quota: small", "must specify requests.memory for: main"]);
    let mut large = sample(&[]);
    large["containers"][0]["resources"] = json!({"requests": {"memory": "101Mi"}});
    let ended = namespace.try_apply(&[pod("large", &large)]);
    assert_refused(
        &ended,
        &["(Forbidden)", "requested: requests.memory=101Mi, used: requests.memory=0, limited: requests.memory=100Mi"],
    );

    // What is deleted no longer counts.
    namespace.kubectl(&["delete", "secret", "one"]);
    eventually("there is room again", LIMIT, || {
        let ended = namespace.try_apply(&[secret("two")]);
        if ended.code == 0 { Ok(()) } else { Err(ended.stderr) }
    });
}

#[test]
fn a_limit_range_fills_in_what_is_missing_and_refuses_what_is_beyond_it() {
    let namespace = namespace("ns-limits");
    namespace.apply(&[json!({
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "modest"},
        "spec": {"limits": [{
            "type": "Container",
            "default": {"memory": "64Mi"},
            "defaultRequest": {"memory": "32Mi"},
            "min": {"memory": "16Mi"},
            "max": {"memory": "128Mi"},
        }]},
    })]);
    let try_pod = |resources: Value| {
        let mut spec = sample(&[]);
        spec["containers"][0]["resources"] = resources;
        let args = ["create", "--dry-run=server", "-o", "json", "-f", "-"];
        namespace.try_kubectl(&args, Some(&pod("web", &spec).to_string()))
    };
    eventually("the defaults are filled in", LIMIT, || {
        let ended = try_pod(json!({}));
        let made: Value = serde_json::from_str(&ended.stdout).map_err(|_| ended.stderr)?;
        let resources = &made["spec"]["containers"][0]["resources"];
        let wanted = json!({"limits": {"memory": "64Mi"}, "requests": {"memory": "32Mi"}});
        if *resources == wanted { Ok(()) } else { Err(resources.to_string()) }
    });
    let ended = try_pod(json!({"limits": {"memory": "200Mi"}}));
    assert_refused(&ended, &["(Forbidden)", "maximum memory usage per Container is 128Mi, but limit is 200Mi"]);
    let ended = try_pod(json!({"requests": {"memory": "8Mi"}}));
    assert_refused(&ended, &["(Forbidden)", "minimum memory usage per Container is 16Mi, but request is 8Mi"]);
    // A limit alone is also the request.
    let ended = try_pod(json!({"limits": {"memory": "100Mi"}}));
    let made: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(made["spec"]["containers"][0]["resources"]["requests"]["memory"], "100Mi");
}
