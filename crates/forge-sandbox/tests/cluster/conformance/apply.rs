//! [Server-side apply](https://kubernetes.io/docs/reference/using-api/server-side-apply/).

use forge_testkit::sandbox::{Ended, Namespace};
use serde_json::{Value, json};

use super::{assert_refused, config_map, deployment, namespace, sample, service, text};

#[test]
fn each_manager_owns_what_it_applied_and_takes_only_that_away() {
    let namespace = namespace("apply-owners");
    let map = |data: Value| config_map("shared", &data);
    apply(&namespace, "one", &map(json!({"a": "1", "both": "same"})));
    apply(&namespace, "two", &map(json!({"b": "2", "both": "same"})));
    assert_eq!(namespace.get("configmap", "shared")["data"], json!({"a": "1", "b": "2", "both": "same"}));
    assert_eq!(owned(&namespace, "shared", "one"), ["f:a", "f:both"]);
    assert_eq!(owned(&namespace, "shared", "two"), ["f:b", "f:both"]);

    // What two own stays until neither wants it.
    apply(&namespace, "one", &map(json!({})));
    assert_eq!(namespace.get("configmap", "shared")["data"], json!({"b": "2", "both": "same"}));
    apply(&namespace, "two", &map(json!({"b": "2"})));
    assert_eq!(namespace.get("configmap", "shared")["data"], json!({"b": "2"}));
}

#[test]
fn a_conflict_is_refused_and_names_the_manager_and_the_field() {
    let namespace = namespace("apply-conflict");
    let map = |value: &str| config_map("contested", &json!({"key": value}));
    apply(&namespace, "first", &map("mine"));
    let ended = try_apply(&namespace, "second", &map("no, mine"), &[]);
    assert_refused(&ended, &["Apply failed with 1 conflict: conflict with \"first\": .data.key", "--force-conflicts"]);
    assert_eq!(ended.code, 1);
    assert_eq!(text(&namespace.get("configmap", "contested"), "/data/key"), "mine");

    let ended = try_apply(&namespace, "second", &map("no, mine"), &["--force-conflicts"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(text(&namespace.get("configmap", "contested"), "/data/key"), "no, mine");
    assert_eq!(owned(&namespace, "contested", "first"), [""; 0]);
    assert_eq!(owned(&namespace, "contested", "second"), ["f:key"]);
    assert_refused(&try_apply(&namespace, "first", &map("mine"), &[]), &["conflict with \"second\""]);
    // The same value is no conflict.
    apply(&namespace, "first", &map("no, mine"));
}

#[test]
fn lists_are_merged_by_their_keys() {
    let namespace = namespace("apply-lists");
    let web = |name: &str, containers: Value| {
        let metadata = json!({"name": name, "finalizers": []});
        let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}});
        let spec = json!({"replicas": 0, "selector": {"matchLabels": {"app": "web"}}, "template": template});
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})
    };
    let env = |name: &str| json!({"name": name, "value": name});
    apply(
        &namespace,
        "owner",
        &web("web", json!([{"name": "main", "image": "main", "env": [env("A")], "ports": [{"containerPort": 80}]}])),
    );
    apply(
        &namespace,
        "injector",
        &web("web", json!([{"name": "main", "env": [env("B")]}, {"name": "proxy", "image": "proxy"}])),
    );
    let containers = || namespace.get("deployment", "web")["spec"]["template"]["spec"]["containers"].clone();
    let names =
        |list: &Value| list.as_array().unwrap().iter().map(|one| text(one, "/name").to_owned()).collect::<Vec<_>>();
    let both = containers();
    assert_eq!(names(&both), ["main", "proxy"]);
    assert_eq!(names(&both[0]["env"]), ["A", "B"]);
    assert_eq!(text(&both[0], "/image"), "main");

    // The owner changes what is its own; what was injected stays. Without the injector what it added goes.
    apply(&namespace, "owner", &web("web", json!([{"name": "main", "image": "newer", "env": [env("C")]}])));
    let both = containers();
    assert_eq!((names(&both), text(&both[0], "/image")), (vec!["main".to_owned(), "proxy".to_owned()], "newer"));
    assert_eq!(names(&both[0]["env"]), ["B", "C"]);
    assert!(both[0]["ports"].is_null());
    apply(&namespace, "injector", &web("web", json!([{"name": "main"}])));
    assert_eq!((names(&containers()), names(&containers()[0]["env"])), (vec!["main".to_owned()], vec!["C".to_owned()]));

    // The ports of a service have two keys.
    let ports = |ports: Value| service("dns", &json!({"ports": ports}));
    apply(&namespace, "owner", &ports(json!([{"name": "udp", "port": 53, "protocol": "UDP"}])));
    apply(&namespace, "other", &ports(json!([{"name": "tcp", "port": 53, "protocol": "TCP"}])));
    assert_eq!(names(&namespace.get("service", "dns")["spec"]["ports"]), ["udp", "tcp"]);
}

#[test]
fn who_changes_a_field_in_another_way_owns_it() {
    let namespace = namespace("apply-handover");
    // Paused: it makes no pods.
    let web = |replicas: Option<u32>| {
        let mut web = deployment("web", 0, &sample(&[]));
        web["spec"]["paused"] = json!(true);
        match replicas {
            Some(replicas) => web["spec"]["replicas"] = json!(replicas),
            None => drop(web["spec"].as_object_mut().unwrap().remove("replicas")),
        }
        web
    };
    apply(&namespace, "owner", &web(Some(1)));
    namespace.kubectl(&["scale", "deployment", "web", "--replicas=3"]);
    let ended = try_apply(&namespace, "owner", &web(Some(1)), &[]);
    assert_refused(&ended, &["conflict with \"kubectl\" with subresource \"scale\"", ".spec.replicas"]);
    // Who gives the field up leaves it as it is.
    apply(&namespace, "owner", &web(None));
    assert_eq!(namespace.get("deployment", "web")["spec"]["replicas"], 3);
}

#[test]
fn what_is_there_already_changes_nothing_and_a_dry_run_keeps_nothing() {
    let namespace = namespace("apply-same");
    let web = service("web", &json!({}));
    apply(&namespace, "owner", &web);
    let before = namespace.get("service", "web");
    apply(&namespace, "owner", &web);
    assert_eq!(namespace.get("service", "web")["metadata"], before["metadata"]);

    let mut other = web;
    other["spec"]["sessionAffinity"] = json!("ClientIP");
    let ended = try_apply(&namespace, "owner", &other, &["--dry-run=server", "-o", "json"]);
    let shown: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(text(&shown, "/spec/sessionAffinity"), "ClientIP");
    assert_eq!(namespace.get("service", "web")["metadata"], before["metadata"]);
    // A field that is no longer applied goes back to its default.
    apply(&namespace, "owner", &other);
    apply(&namespace, "owner", &service("web", &json!({})));
    let now = namespace.get("service", "web");
    assert_eq!(text(&now, "/spec/sessionAffinity"), "None");
    assert_eq!(text(&now, "/spec/clusterIP"), text(&before, "/spec/clusterIP"));
}

fn try_apply(namespace: &Namespace, manager: &str, object: &Value, more: &[&str]) -> Ended {
    let manager = format!("--field-manager={manager}");
    let mut args = vec!["apply", "--server-side", &manager, "-f", "-"];
    args.extend(more);
    namespace.try_kubectl(&args, Some(&object.to_string()))
}

#[track_caller]
fn apply(namespace: &Namespace, manager: &str, object: &Value) {
    let ended = try_apply(namespace, manager, object, &[]);
    assert!(ended.code == 0, "{}", ended.stderr);
}

/// The keys of a ConfigMap's data that a manager owns, in their order.
fn owned(namespace: &Namespace, name: &str, manager: &str) -> Vec<String> {
    let said = namespace.kubectl(&["get", "configmap", name, "--show-managed-fields", "-o", "json"]);
    let object: Value = serde_json::from_str(&said).unwrap();
    let all = object["metadata"]["managedFields"].as_array().map(Vec::as_slice).unwrap_or_default();
    let all = all.iter().filter(|entry| entry["manager"] == manager && entry["operation"] == "Apply");
    let keys = all.filter_map(|entry| entry.pointer("/fieldsV1/f:data")?.as_object()).flat_map(|keys| keys.keys());
    let mut keys: Vec<String> = keys.filter(|key| *key != ".").cloned().collect();
    keys.sort();
    keys
}
