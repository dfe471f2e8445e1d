//! [Garbage collection](https://kubernetes.io/docs/concepts/architecture/garbage-collection/),
//! [owners and dependents](https://kubernetes.io/docs/concepts/overview/working-with-objects/owners-dependents/),
//! and what controllers clean up after themselves.

use forge_testkit::sandbox::{Namespace, eventually};
use serde_json::{Value, json};

use super::{LIMIT, config_map, deployment, namespace, sample, sample_once, text, until};

#[test]
fn dependents_go_when_their_last_owner_is_gone() {
    let namespace = namespace("gc-background");
    namespace.apply(&[config_map("first", &json!({})), config_map("second", &json!({}))]);
    let (first, second) = (owner(&namespace, "first"), owner(&namespace, "second"));
    let uid = "00000000-0000-4000-8000-000000000000";
    let never = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "never", "uid": uid});
    namespace.apply(&[
        dependent("of-first", &[&first]),
        dependent("of-both", &[&first, &second]),
        dependent("of-second", &[&second]),
        dependent("of-never", &[&never]),
    ]);
    namespace.kubectl(&["delete", "configmap", "first"]);

    namespace.wait("configmap/of-first", "delete", LIMIT);
    namespace.wait("configmap/of-never", "delete", LIMIT);
    let both = until(&namespace, "configmap", "of-both", "the owner that is gone is forgotten", |both| {
        owners(both) == ["second"]
    });
    assert!(both["metadata"]["deletionTimestamp"].is_null());
    assert_eq!(owners(&namespace.get("configmap", "of-second")), ["second"]);
}

#[test]
fn an_owner_that_is_deleted_in_the_foreground_goes_last() {
    let namespace = namespace("gc-foreground");
    namespace.apply(&[config_map("owner", &json!({}))]);
    let mut reference = owner(&namespace, "owner");
    reference["blockOwnerDeletion"] = json!(true);
    let mut slow = dependent("slow", &[&reference]);
    slow["metadata"]["finalizers"] = json!(["forge.example/hold"]);
    namespace.apply(&[slow, dependent("quick", &[&reference])]);
    namespace.kubectl(&["delete", "configmap", "owner", "--cascade=foreground", "--wait=false"]);

    until(&namespace, "configmap", "slow", "the dependent is told to go", |slow| {
        !slow["metadata"]["deletionTimestamp"].is_null()
    });
    namespace.wait("configmap/quick", "delete", LIMIT);
    let waiting = namespace.get("configmap", "owner");
    assert!(!waiting["metadata"]["deletionTimestamp"].is_null());
    assert_eq!(waiting["metadata"]["finalizers"], json!(["foregroundDeletion"]));

    namespace.kubectl(&["patch", "configmap", "slow", "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#]);
    namespace.wait("configmap/owner", "delete", LIMIT);
    namespace.wait("configmap/slow", "delete", LIMIT);
}

#[test]
fn orphans_stay_and_can_be_adopted() {
    let namespace = namespace("gc-orphan");
    let web = deployment("web", 0, &sample(&[]));
    namespace.apply(std::slice::from_ref(&web));
    let set = replica_sets(&namespace, 1).remove(0);
    assert_eq!(owners(&set), ["web"]);
    namespace.kubectl(&["delete", "deployment", "web", "--cascade=orphan"]);

    let name = text(&set, "/metadata/name");
    let orphan = until(&namespace, "replicaset", name, "it has no owner", |set| owners(set).is_empty());
    assert!(orphan["metadata"]["deletionTimestamp"].is_null());
    assert_eq!(orphan["metadata"]["uid"], set["metadata"]["uid"]);

    namespace.apply(&[web]);
    let adopted = until(&namespace, "replicaset", name, "it has an owner again", |set| owners(set) == ["web"]);
    assert_eq!(adopted["metadata"]["uid"], set["metadata"]["uid"]);
    assert_eq!(adopted["metadata"]["ownerReferences"][0]["controller"], true);
    assert_eq!(replica_sets(&namespace, 1).len(), 1);
}

#[test]
fn an_owner_in_another_namespace_is_no_owner() {
    let (here, there) = (namespace("gc-here"), namespace("gc-there"));
    there.apply(&[config_map("owner", &json!({}))]);
    here.apply(&[dependent("stray", &[&owner(&there, "owner")])]);

    here.wait("configmap/stray", "delete", LIMIT);
    eventually("an event says why", LIMIT, || {
        let events = here.kubectl(&["get", "events", "-o", "jsonpath={.items[*].reason}"]);
        if events.contains("OwnerRefInvalidNamespace") { Ok(()) } else { Err(events) }
    });
    there.get("configmap", "owner");
}

#[test]
fn a_finished_job_goes_after_its_time() {
    let namespace = namespace("gc-job");
    namespace.apply(&[json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "brief"},
        "spec": {"ttlSecondsAfterFinished": 2, "template": {"spec": sample_once(&[])}},
    })]);
    namespace.wait("job/brief", "condition=Complete", LIMIT);
    let pods = namespace.kubectl(&["get", "pods", "-l", "batch.kubernetes.io/job-name=brief", "-o", "name"]);
    assert_eq!(pods.lines().count(), 1);
    namespace.wait("job/brief", "delete", LIMIT);
    namespace.wait(pods.trim(), "delete", LIMIT);
}

#[test]
fn a_deployment_keeps_as_many_old_revisions_as_it_is_told() {
    let namespace = namespace("gc-revisions");
    let version = |version: &str| {
        let mut web = deployment("web", 0, &sample(&[("VERSION", version)]));
        web["spec"]["revisionHistoryLimit"] = json!(1);
        namespace.apply(&[web]);
        until(&namespace, "deployment", "web", "it is rolled out", |web| {
            web["status"]["observedGeneration"] == web["metadata"]["generation"]
        })
    };
    for text in ["one", "two", "three"] {
        version(text);
    }
    let kept = eventually("one old revision is left", LIMIT, || {
        let mut kept: Vec<String> = replica_sets(&namespace, 1).iter().map(revision).collect();
        kept.sort();
        if kept == ["2", "3"] { Ok(kept) } else { Err(format!("{kept:?}")) }
    });
    let history = namespace.kubectl(&["rollout", "history", "deployment/web"]);
    assert!(kept.iter().all(|number| history.lines().any(|line| line.starts_with(number.as_str()))), "{history}");

    // Going back makes the old revision the newest.
    namespace.kubectl(&["rollout", "undo", "deployment/web"]);
    assert_eq!(text(&namespace.get("deployment", "web"), "/spec/template/spec/containers/0/env/0/value"), "two");
    eventually("the revision before is the newest", LIMIT, || {
        let mut kept: Vec<String> = replica_sets(&namespace, 1).iter().map(revision).collect();
        kept.sort();
        if kept == ["3", "4"] { Ok(()) } else { Err(format!("{kept:?}")) }
    });
}

fn owner(namespace: &Namespace, name: &str) -> Value {
    let uid = &namespace.get("configmap", name)["metadata"]["uid"];
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid})
}

fn dependent(name: &str, owners: &[&Value]) -> Value {
    let mut object = config_map(name, &json!({}));
    object["metadata"]["ownerReferences"] = json!(owners);
    object
}

/// The names of the owners of an object.
fn owners(object: &Value) -> Vec<&str> {
    let all = object["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().map(|owner| text(owner, "/name")).collect()
}

/// The replica sets of a namespace, at least so many.
fn replica_sets(namespace: &Namespace, least: usize) -> Vec<Value> {
    eventually("there are replica sets", LIMIT, || {
        let said = namespace.kubectl(&["get", "replicasets", "-o", "json"]);
        let list: Value = serde_json::from_str(&said).map_err(|error| error.to_string())?;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        if items.len() >= least { Ok(items) } else { Err(said) }
    })
}

fn revision(set: &Value) -> String {
    text(set, "/metadata/annotations/deployment.kubernetes.io~1revision").to_owned()
}
