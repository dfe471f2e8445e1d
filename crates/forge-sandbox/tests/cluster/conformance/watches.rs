//! [API concepts](https://kubernetes.io/docs/reference/using-api/api-concepts/): watches, resource versions, pages.

use forge_testkit::sandbox::Namespace;
use serde_json::{Value, json};

use super::{Follow, assert_refused, config_map, crds, namespace, text};

#[test]
fn a_watch_tells_additions_changes_and_deletions_in_order() {
    let namespace = namespace("watch-order");
    namespace.apply(&[config_map("seed", &json!({}))]);
    let line = "jsonpath={.type} {.object.metadata.name} {.object.data.value}{\"\\n\"}";
    let watch = Follow::start(&namespace, &["get", "configmaps", "--watch", "--output-watch-events", "-o", line]);
    // Once it told what is there, it tells whatever comes.
    while watch.line().trim() != "ADDED seed" {}

    namespace.kubectl(&["create", "configmap", "thing", "--from-literal=value=1"]);
    namespace.kubectl(&["patch", "configmap", "thing", "-p", r#"{"data":{"value":"2"}}"#]);
    namespace.kubectl(&["delete", "configmap", "thing"]);
    let seen = std::iter::repeat_with(|| watch.line()).filter(|line| line.contains("thing"));
    assert_eq!(seen.take(3).collect::<Vec<_>>(), ["ADDED thing 1", "MODIFIED thing 2", "DELETED thing 2"]);
}

#[test]
fn a_watch_goes_on_from_any_version_that_was_seen() {
    let namespace = namespace("watch-resume");
    namespace.apply(&[config_map("thing", &json!({"value": "0"}))]);
    let mut versions = vec![version(&namespace.get("configmap", "thing"))];
    for value in ["1", "2", "3"] {
        let patch = json!({"data": {"value": value}}).to_string();
        let said = namespace.kubectl(&["patch", "configmap", "thing", "-p", &patch, "-o", "json"]);
        versions.push(version(&serde_json::from_str(&said).unwrap()));
    }
    namespace.kubectl(&["delete", "configmap", "thing"]);

    let after = |version: &str| {
        let watch = watch(&namespace, &format!("resourceVersion={version}&fieldSelector=metadata.name%3Dthing"));
        let mut seen = Vec::new();
        loop {
            let event = next(&watch);
            seen.push(format!("{} {}", text(&event, "/type"), text(&event, "/object/data/value")));
            if event["type"] == "DELETED" {
                return seen;
            }
        }
    };
    assert_eq!(after(&versions[0]), ["MODIFIED 1", "MODIFIED 2", "MODIFIED 3", "DELETED 3"]);
    assert_eq!(after(&versions[2]), ["MODIFIED 3", "DELETED 3"]);
}

#[test]
fn a_watch_can_begin_with_everything_and_says_when_that_is_told() {
    let namespace = namespace("watch-initial");
    namespace.apply(&[config_map("one", &json!({})), config_map("two", &json!({}))]);
    let query = "sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&resourceVersion=";
    let watch = watch(&namespace, query);
    let mut names = Vec::new();
    let end = loop {
        let event = next(&watch);
        match text(&event, "/type") {
            "ADDED" => names.push(text(&event, "/object/metadata/name").to_owned()),
            "BOOKMARK" => break event,
            other => panic!("{other}: {event}"),
        }
    };
    names.retain(|name| name != "kube-root-ca.crt");
    names.sort();
    assert_eq!(names, ["one", "two"]);
    assert_eq!(text(&end, "/object/metadata/annotations/k8s.io~1initial-events-end"), "true");
    assert!(!version(&end["object"]).is_empty());

    namespace.kubectl(&["delete", "configmap", "one"]);
    let event =
        std::iter::repeat_with(|| next(&watch)).find(|event| text(event, "/object/metadata/name") == "one").unwrap();
    assert_eq!(text(&event, "/type"), "DELETED");
}

#[test]
fn for_a_watch_with_a_selector_an_object_that_no_longer_matches_is_deleted() {
    let namespace = namespace("watch-selector");
    namespace.apply(&[config_map("thing", &json!({}))]);
    let start = version(&namespace.get("configmap", "thing"));
    let watch = watch(&namespace, &format!("labelSelector=color%3Dred&resourceVersion={start}"));
    for color in ["blue", "red", "green"] {
        namespace.kubectl(&["label", "configmap", "thing", "--overwrite", &format!("color={color}")]);
    }
    let (first, second) = (next(&watch), next(&watch));
    let told =
        |event: &Value| (text(event, "/type").to_owned(), text(event, "/object/metadata/labels/color").to_owned());
    assert_eq!(told(&first), ("ADDED".to_owned(), "red".to_owned()));
    // The object as it was last seen, at the version that took it out of sight.
    assert_eq!(told(&second), ("DELETED".to_owned(), "red".to_owned()));
    assert_eq!(version(&second["object"]), version(&namespace.get("configmap", "thing")));
}

#[test]
fn a_version_that_is_too_old_or_none_is_said_to_be() {
    let namespace = namespace("watch-old");
    namespace.apply(&[config_map("thing", &json!({}))]);
    let path = |query: &str| format!("/api/v1/namespaces/{}/configmaps?{query}", namespace.name);
    let raw = |query: &str| namespace.try_kubectl(&["get", "--raw", &path(query)], None);
    for query in ["resourceVersion=nonsense", "watch=1&resourceVersion=nonsense"] {
        assert_refused(&raw(query), &["resourceVersion: Invalid value: \"nonsense\""]);
    }
    assert_refused(&raw("limit=1&continue=nonsense"), &["(BadRequest)", "continue key is not valid"]);
    // Nobody remembers what was before this kind was known.
    let parts = crds::install(&namespace, crds::version("v1", &json!({})));
    let path = format!("/apis/{}/v1/namespaces/{}/parts?watch=1&resourceVersion=1", parts.group, namespace.name);
    let event = next(&Follow::start(&namespace, &["get", "--raw", &path]));
    assert_eq!((text(&event, "/type"), &event["object"]["code"]), ("ERROR", &json!(410)));
    assert_eq!(text(&event, "/object/reason"), "Expired");
}

#[test]
fn a_write_that_knows_an_old_version_is_refused() {
    let namespace = namespace("watch-conflict");
    namespace.apply(&[config_map("thing", &json!({"value": "0"}))]);
    let mut old = namespace.get("configmap", "thing");
    namespace.kubectl(&["patch", "configmap", "thing", "-p", r#"{"data":{"value":"1"}}"#]);
    old["data"]["value"] = json!("2");
    let modified = "the object has been modified; please apply your changes to the latest version and try again";
    let replace = |object: &Value| namespace.try_kubectl(&["replace", "-f", "-"], Some(&object.to_string()));
    assert_refused(&replace(&old), &["(Conflict)", modified]);

    let path = format!("/api/v1/namespaces/{}/configmaps/thing", namespace.name);
    let delete = |preconditions: Value| {
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}).to_string();
        namespace.try_kubectl(&["delete", "--raw", &path, "-f", "-"], Some(&options))
    };
    let uid = "00000000-0000-4000-8000-000000000000";
    assert_refused(
        &delete(json!({"resourceVersion": version(&old)})),
        &["(Conflict)", "the ResourceVersion in the precondition"],
    );
    assert_refused(&delete(json!({"uid": uid})), &["(Conflict)", "the UID in the precondition"]);
    assert_eq!(text(&namespace.get("configmap", "thing"), "/data/value"), "1");

    let mut new = namespace.get("configmap", "thing");
    new["data"]["value"] = json!("3");
    assert_eq!(replace(&new).code, 0);
    let now = namespace.get("configmap", "thing");
    assert_eq!(text(&now, "/data/value"), "3");
    assert_eq!(delete(json!({"resourceVersion": version(&now), "uid": now["metadata"]["uid"]})).code, 0);
}

#[test]
fn a_list_in_pages_is_one_consistent_list() {
    let namespace = namespace("watch-pages");
    let page = |query: &str| {
        let path = format!("/api/v1/namespaces/{}/secrets?limit=2{query}", namespace.name);
        serde_json::from_str::<Value>(&namespace.kubectl(&["get", "--raw", &path])).unwrap()
    };
    let secrets: Vec<Value> = (0..5)
        .map(|number| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": format!("thing-{number}")}}))
        .collect();
    namespace.apply(&secrets);
    let first = page("");
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    // What happens meanwhile is not seen.
    namespace.kubectl(&["delete", "secret", "thing-4"]);
    let mut names = Vec::new();
    let mut now = first.clone();
    loop {
        assert_eq!(version(&now), version(&first));
        names.extend(now["items"].as_array().unwrap().iter().map(|item| text(item, "/metadata/name").to_owned()));
        let more = text(&now, "/metadata/continue").to_owned();
        if more.is_empty() {
            break;
        }
        now = page(&format!("&continue={more}"));
    }
    assert_eq!(names, ["thing-0", "thing-1", "thing-2", "thing-3", "thing-4"]);
}

/// Watches the ConfigMaps of a namespace.
fn watch(namespace: &Namespace, query: &str) -> Follow {
    let path = format!("/api/v1/namespaces/{}/configmaps?watch=1&timeoutSeconds=60&{query}", namespace.name);
    Follow::start(namespace, &["get", "--raw", &path])
}

fn next(watch: &Follow) -> Value {
    let line = watch.line();
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

fn version(object: &Value) -> String {
    text(object, "/metadata/resourceVersion").to_owned()
}
