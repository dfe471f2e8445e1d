//! Objects against the real CRDs of Argo CD, Argo Workflows and Crossplane.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "clippy.toml allows it in tests, but not in what they share"
)]

use std::path::PathBuf;
use std::process::Command;
use std::{fs, str};

use forge_testkit::crd::{Crds, SOURCES};
use serde_json::{Value, json};

fn crds() -> Crds {
    Crds::load().unwrap()
}

fn application() -> Value {
    json!({
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": { "name": "shop-api", "namespace": "argocd" },
        "spec": {
            "project": "shop",
            "destination": { "server": "https://kubernetes.default.svc", "namespace": "shop" },
            "sources": [
                { "repoURL": "https://example.com/shop.git", "targetRevision": "main", "path": "api" },
                { "repoURL": "oci://example.com/charts", "chart": "api", "helm": { "valuesObject": { "any": ["thing"] } } },
            ],
            "syncPolicy": {
                "automated": { "prune": true },
                "retry": { "limit": 3, "backoff": { "duration": "5s", "factor": 2 } },
            },
        },
    })
}

fn application_set() -> Value {
    json!({
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "ApplicationSet",
        "metadata": { "name": "shop", "namespace": "argocd" },
        "spec": {
            "goTemplate": true,
            "generators": [{ "list": { "elements": [{ "stack": "one", "nested": { "a": 1 } }] } }],
            "template": {
                "metadata": { "name": "{{.stack}}", "labels": { "stack": "{{.stack}}" } },
                "spec": {
                    "project": "shop",
                    "destination": { "name": "in-cluster" },
                    "source": { "repoURL": "https://example.com/shop.git", "path": "{{.stack}}" },
                },
            },
        },
    })
}

fn project() -> Value {
    json!({
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "AppProject",
        "metadata": { "name": "shop", "namespace": "argocd", "finalizers": ["resources-finalizer.argocd.argoproj.io"] },
        "spec": {
            "sourceRepos": ["*"],
            "destinations": [{ "server": "*", "namespace": "shop" }],
            "clusterResourceWhitelist": [{ "group": "", "kind": "Namespace" }],
        },
    })
}

fn workflow() -> Value {
    json!({
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": { "generateName": "build-", "namespace": "ci" },
        "spec": {
            "entrypoint": "main",
            "templates": [{
                "name": "main",
                "retryStrategy": { "limit": "2" },
                "container": {
                    "image": "alpine:3",
                    "ports": [{ "containerPort": 80 }],
                    "resources": { "requests": { "cpu": 1, "memory": "64Mi" } },
                },
            }],
        },
    })
}

fn cluster_template() -> Value {
    json!({
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "ClusterWorkflowTemplate",
        "metadata": { "name": "build" },
        "spec": { "templates": [{ "name": "main", "container": { "image": "alpine:3" } }] },
    })
}

fn environment() -> Value {
    json!({
        "apiVersion": "apiextensions.crossplane.io/v1beta1",
        "kind": "EnvironmentConfig",
        "metadata": { "name": "dev" },
        "data": { "region": "eu", "nested": { "any": [1, null] } },
    })
}

/// The object with the value at the pointer replaced, or added.
fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[key] = value;
    object
}

fn without(mut object: Value, pointer: &str) -> Value {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(key).unwrap();
    object
}

#[track_caller]
fn assert_problems(object: &Value, expected: &[&str]) {
    assert_eq!(crds().validate(object), expected);
}

#[test]
fn minimal_objects_pass() {
    for object in [application(), application_set(), project(), workflow(), cluster_template(), environment()] {
        assert_eq!(crds().validate(&object), Vec::<String>::new(), "{object}");
    }
}

#[test]
fn an_unknown_field_is_a_problem_at_any_depth() {
    assert_problems(
        &with(application(), "/spec/sources/1/helm/valueObjects", json!({})),
        &["spec.sources[1].helm.valueObjects: unknown field"],
    );
    assert_problems(
        &with(workflow(), "/spec/templates/0/container/ports/0/Protocol", json!("TCP")),
        &["spec.templates[0].container.ports[0].Protocol: unknown field"],
    );
    assert_problems(&with(environment(), "/spec", json!({})), &["spec: unknown field"]);
    assert_problems(
        &with(application_set(), "/spec/template/metadata/generateName", json!("a-")),
        &["spec.template.metadata.generateName: unknown field"],
    );
}

#[test]
fn a_wrong_type_is_a_problem() {
    assert_problems(
        &with(application(), "/spec/syncPolicy/retry/limit", json!("3")),
        &["spec.syncPolicy.retry.limit: expected integer, found string"],
    );
    assert_problems(
        &with(application(), "/spec/syncPolicy/automated/prune", json!("true")),
        &["spec.syncPolicy.automated.prune: expected boolean, found string"],
    );
    assert_problems(&with(application(), "/spec/sources", json!({})), &["spec.sources: expected array, found object"]);
    assert_problems(
        &with(application(), "/spec/sources/0/path", json!(null)),
        &["spec.sources[0].path: must not be null"],
    );
    assert_problems(&with(environment(), "/data", json!([])), &["data: expected object, found array"]);
}

#[test]
fn a_quantity_is_an_integer_or_a_string_of_its_pattern() {
    let at = "/spec/templates/0/container/resources/requests/memory";
    let path = "spec.templates[0].container.resources.requests.memory";
    let problems = crds().validate(&with(workflow(), at, json!("64 Mi")));
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].starts_with(&format!("{path}: `64 Mi` does not match `^")), "{problems:?}");
    let expected = format!("{path}: expected integer or string, found boolean");
    assert_problems(&with(workflow(), at, json!(true)), &[expected.as_str()]);
}

#[test]
fn a_missing_required_field_is_a_problem() {
    assert_problems(&without(application(), "/spec/project"), &["spec.project: required"]);
    assert_problems(&without(application(), "/spec"), &["spec: required"]);
    assert_problems(&without(application(), "/spec/sources/0/repoURL"), &["spec.sources[0].repoURL: required"]);
    assert_problems(&without(application(), "/metadata/name"), &["metadata.name: required, or `generateName`"]);
    assert_problems(&without(environment(), "/metadata"), &["metadata: required"]);
    assert_problems(&without(application(), "/kind"), &["kind: required, and must be a string that is not empty"]);
}

#[test]
fn a_version_that_is_not_served_is_a_problem() {
    assert_problems(
        &with(environment(), "/apiVersion", json!("apiextensions.crossplane.io/v1alpha1")),
        &["apiVersion: version `v1alpha1` of `EnvironmentConfig` is not served, `v1beta1` is"],
    );
}

#[test]
fn scope_decides_whether_there_is_a_namespace() {
    assert_problems(
        &without(application(), "/metadata/namespace"),
        &["metadata.namespace: required, `Application` is namespaced"],
    );
    assert_problems(
        &with(environment(), "/metadata/namespace", json!("shop")),
        &["metadata.namespace: must be absent, `EnvironmentConfig` is cluster-scoped"],
    );
    assert_problems(
        &with(cluster_template(), "/metadata/namespace", json!("ci")),
        &["metadata.namespace: must be absent, `ClusterWorkflowTemplate` is cluster-scoped"],
    );
}

#[test]
fn a_value_outside_an_enum_is_a_problem() {
    assert_problems(
        &with(workflow(), "/spec/artifactGC", json!({ "strategy": "Sometimes" })),
        &[concat!(
            r#"spec.artifactGC.strategy: `"Sometimes"` is not one of "#,
            r#"`""`, `"OnWorkflowCompletion"`, `"OnWorkflowDeletion"`, `"Never"`"#
        )],
    );
}

#[test]
fn a_port_listed_twice_is_a_problem_because_protocol_has_a_default() {
    let ports = json!([{ "containerPort": 80 }, { "containerPort": 80, "protocol": "TCP" }]);
    assert_problems(
        &with(workflow(), "/spec/templates/0/container/ports", ports),
        &[concat!(
            "spec.templates[0].container.ports[1]: duplicate of an earlier item: ",
            r#"`{"containerPort":80,"protocol":"TCP"}`"#
        )],
    );
}

#[test]
fn metadata_is_that_of_an_object_whatever_the_crd_says() {
    let metadata = json!({
        "name": "Shop_API",
        "namespace": "shop.dev",
        "colour": "red",
        "creationTimestamp": null,
        "labels": { "ok": "", "example.com/x": "y z", "-bad": "v", "long": "v".repeat(64), "typed": 1 },
        "annotations": { "Example.com/UPPER": "any text {}", "no/two/slashes": "", "flag": true },
        "finalizers": ["example.com/finalizer", "not valid"],
        "ownerReferences": [
            { "apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "1", "controller": true },
            { "apiVersion": "v1", "kind": "ConfigMap", "name": "b", "controller": true, "extra": 1 },
        ],
    });
    let paths: Vec<String> = crds()
        .validate(&with(application(), "/metadata", metadata))
        .iter()
        .map(|problem| problem.split_once(": ").unwrap().0.to_owned())
        .collect();
    let expected = [
        "metadata.colour",
        "metadata.labels.typed",
        "metadata.annotations.flag",
        "metadata.ownerReferences[1].uid",
        "metadata.ownerReferences[1].extra",
        "metadata.name",
        "metadata.namespace",
        r#"metadata.labels["example.com/x"]"#,
        "metadata.labels.-bad",
        "metadata.labels.long",
        r#"metadata.annotations["no/two/slashes"]"#,
        "metadata.finalizers[1]",
        "metadata.ownerReferences",
    ];
    let sorted = |mut paths: Vec<String>| {
        paths.sort();
        paths
    };
    assert_eq!(sorted(paths), sorted(expected.map(str::to_owned).to_vec()));
    assert_problems(
        &with(application(), "/metadata", json!([])),
        &["metadata: expected object, found array", "metadata.namespace: required, `Application` is namespaced"],
    );
}

#[test]
fn every_problem_is_reported_not_the_first() {
    let object = with(with(application(), "/spec/nope", json!(1)), "/spec/project", json!(1));
    assert_problems(
        &without(object, "/metadata/namespace"),
        &[
            "spec.project: expected string, found integer",
            "spec.nope: unknown field",
            "metadata.namespace: required, `Application` is namespaced",
        ],
    );
}

#[test]
fn a_kind_without_a_crd_has_no_schema_and_is_not_known() {
    let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a", "namespace": "b" } });
    assert_problems(&object, &["kind: no schema for `ConfigMap` of `v1`"]);
    for (api_version, kind, known) in [
        ("v1", "ConfigMap", false),
        ("argoproj.io/v1alpha1", "AppProject", true),
        ("argoproj.io/v1", "AppProject", false),
        ("argoproj.io/v1alpha1", "Nonesuch", false),
        ("protection.crossplane.io/v1beta1", "Usage", true),
        ("apiextensions.crossplane.io/v2", "CompositeResourceDefinition", true),
        ("apiextensions.crossplane.io/v1alpha1", "EnvironmentConfig", false),
    ] {
        assert_eq!(crds().knows(api_version, kind), known, "{api_version} {kind}");
    }
}

#[test]
fn the_examples_of_argo_workflows_pass_but_for_the_one_that_is_wrong() {
    let cache = Command::new("go").args(["env", "GOMODCACHE"]).output().unwrap().stdout;
    let cache = PathBuf::from(str::from_utf8(&cache).unwrap().trim());
    let crds = crds();
    let (mut checked, mut problems) = (0, Vec::new());
    for entry in fs::read_dir(cache.join("github.com/argoproj/argo-workflows/v3@v3.7.6/examples")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let objects: Vec<Value> = serde_saphyr::from_str_multiple(&text).unwrap();
        for object in objects {
            if !crds.knows(object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap()) {
                continue;
            }
            checked += 1;
            let name = path.file_name().unwrap().display();
            // Examples are for any namespace.
            let found =
                crds.validate(&object).into_iter().filter(|text| !text.starts_with("metadata.namespace: required"));
            problems.extend(found.map(|problem| format!("{name}: {problem}")));
        }
    }
    assert_eq!(problems, ["memoize-simple.yaml: spec.templates[0].memoize.cache.configMap.key: required"]);
    assert!(checked > 150, "{checked}");
}

#[test]
fn set_up_fetches_the_modules_that_are_read_here() {
    let versions = fs::read_to_string(forge_testkit::checkout().join("tools/versions")).unwrap();
    let list = versions.split("CRD_MODULES=(\n").nth(1).unwrap().split(')').next().unwrap();
    let listed: Vec<&str> = list.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let read: Vec<String> = SOURCES.iter().map(|(module, version, _)| format!("{module}@{version}")).collect();
    assert_eq!(listed, read);
}
