use serde_json::json;

use super::*;
use crate::release::{Document, Limits, documents};

fn application(source: &Value) -> Value {
    json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": {"name": "legacy", "namespace": "argocd"},
        "spec": {"project": "default", "source": source, "destination": {"namespace": "shop", "name": "in-cluster"}},
    })
}

fn source(more: &Value) -> Value {
    let mut source =
        json!({"repoURL": "https://git.example.com/shop.git", "path": "deploy/", "targetRevision": "main"});
    if let (Value::Object(all), Value::Object(more)) = (&mut source, more) {
        all.extend(more.clone());
    }
    source
}

fn read(text: &str) -> Vec<Document> {
    documents("a.yaml", text.as_bytes(), &Limits::default()).unwrap()
}

#[test]
fn an_application_says_where_its_source_is_and_what_it_deployed_last() {
    let mut given = application(&source(&json!({})));
    let import = Import::of(&given).unwrap();
    assert_eq!((import.path.as_str(), import.revision.as_str(), &import.how), ("deploy", "main", &How::Found));
    assert_eq!((import.namespace.as_deref(), import.managed), (Some("shop"), None));
    given["status"] = json!({
        "sync": {"status": "Synced", "revision": "3f2a"},
        "resources": [
            {"kind": "Service", "version": "v1", "namespace": "shop", "name": "api"},
            {"group": "batch", "kind": "Job", "namespace": "shop", "name": "before", "hook": true},
            {"kind": "ConfigMap", "namespace": "shop", "name": "old", "requiresPruning": true},
        ],
    });
    let import = Import::of(&given).unwrap();
    assert_eq!(import.revision, "3f2a");
    let managed: Vec<String> = import.managed.unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(managed, ["Service shop/api"]);
    given["status"]["sync"]["status"] = json!("OutOfSync");
    assert_eq!(Import::of(&given).unwrap().managed, None);
}

#[test]
fn everything_that_a_source_could_not_repeat_is_refused_at_once() {
    for (more, why) in [
        (json!({"plugin": {"name": "x"}}), "rendered by a plugin"),
        (json!({"ref": "values"}), "only there to be referred to"),
        (json!({"helm": {"a": 1}, "kustomize": {"namePrefix": "x"}}), "both `helm` and `kustomize`"),
        (json!({"helm": {"valueFiles": ["https://example.com/v.yaml"]}}), "is fetched"),
        (json!({"helm": {"valueFiles": ["$values/v.yaml"]}}), "of another source"),
        (json!({"helm": {"fileParameters": [{"name": "a", "path": "b"}]}}), "fileParameters"),
        (json!({"helm": {"parameters": [{"name": "a", "value": "$ARGOCD_APP_NAME"}]}}), "variable of Argo CD"),
        (json!({"helm": {"version": "v2"}}), "Helm 2"),
        (json!({"kustomize": {"images": ["a=b:${ARGOCD_APP_REVISION}"]}}), "variable of Argo CD"),
        (json!({"kustomize": {"namePrefix": "x", "ignoreMissingComponents": true}}), "by chance"),
        (json!({"directory": {"jsonnet": {"libs": ["x"]}}}), "Jsonnet"),
        (json!({"directory": {"recurse": true, "exclude": "[a-z].yaml"}}), "only `*`, `?`"),
        (json!({"path": "../other"}), "leads out of its repository"),
        (json!({"repoURL": "oci://registry.example.com/x"}), "OCI image"),
    ] {
        let refused = Import::of(&application(&source(&more))).unwrap_err();
        assert!(refused.iter().any(|refused| refused.contains(why)), "{why}: {refused:?}");
    }
    let both = source(&json!({"plugin": {"name": "x"}, "path": ".."}));
    assert_eq!(Import::of(&application(&both)).unwrap_err().len(), 2);
    let several = json!({"spec": {"sources": [source(&json!({})), source(&json!({}))]}});
    assert!(Import::of(&several).unwrap_err()[0].contains("2 sources"));
    let one = json!({"metadata": {"name": "a"}, "spec": {"sources": [source(&json!({}))]}});
    assert_eq!(Import::of(&one).unwrap().path, "deploy");
    assert!(Import::of(&json!({})).is_err());
}

#[test]
fn values_are_laid_over_each_other_and_parameters_over_all_as_helm_does_it() {
    let parameter = |name: &str, value: &str, force_string: bool| Parameter {
        name: name.to_owned(),
        value: value.to_owned(),
        force_string,
    };
    let files = vec![json!({"a": {"b": 1, "c": [1, 2]}, "d": "x"}), Value::Null, json!({"a": {"c": [3], "e": null}})];
    let parameters = [
        parameter("a.b", "12", true),
        parameter("a.b", "13", false),
        parameter("image.tag", "1.20", false),
        parameter("n", "007", false),
        parameter("zero", "0", false),
        parameter("on", "True", false),
        parameter("labels.app\\.kubernetes\\.io/name", "a\\,b,c", false),
        parameter("d", "null", false),
    ];
    assert_eq!(
        values(files, &parameters).unwrap(),
        json!({
            "a": {"b": "12", "c": [3], "e": null}, "d": null, "image": {"tag": "1.20"}, "n": "007", "zero": 0, "on": true,
            "labels": {"app.kubernetes.io/name": "a,b,c"},
        })
    );
    for (name, value) in [("a[0]", "1"), ("a..b", "1"), ("a", "{1,2}"), ("d.x", "1"), ("", "1")] {
        assert!(values(vec![json!({"d": "x"})], &[parameter(name, value, false)]).is_err(), "{name}");
    }
    assert!(values(vec![json!([1])], &[]).is_err());
}

#[test]
fn a_kustomization_is_changed_as_argo_cd_changes_it() {
    let mut kustomization = json!({
        "resources": ["a.yaml"], "namePrefix": "old-", "images": [{"name": "web", "newTag": "1"}, {"name": "db", "newTag": "1"}],
        "commonAnnotations": {"x": "1"}, "patches": [{"path": "p.yaml"}],
    });
    let options = json!({
        "namePrefix": "new-", "namespace": "shop", "images": ["web=registry.example.com:5000/web:2", "alpine@sha256:00", "node:8"],
        "replicas": [{"name": "api", "count": "3"}], "commonLabels": {"team": "shop"}, "commonAnnotations": {"y": "2"},
        "labelWithoutSelector": true, "patches": [{"patch": "- op: remove"}], "components": ["../c"],
    });
    edit(&mut kustomization, &options).unwrap();
    assert_eq!(
        kustomization,
        json!({
            "resources": ["a.yaml"], "namePrefix": "new-", "namespace": "shop",
            "images": [
                {"name": "db", "newTag": "1"}, {"name": "web", "newName": "registry.example.com:5000/web", "newTag": "2"},
                {"name": "alpine", "digest": "sha256:00"}, {"name": "node", "newTag": "8"},
            ],
            "replicas": [{"name": "api", "count": 3}], "labels": [{"pairs": {"team": "shop"}}],
            "commonAnnotations": {"x": "1", "y": "2"},
            "patches": [{"path": "p.yaml"}, {"patch": "- op: remove"}], "components": ["../c"],
        })
    );
    assert!(edit(&mut json!({}), &json!({"images": ["*:1"]})).is_err());
    assert!(edit(&mut json!([]), &json!({})).is_err());
}

#[test]
fn what_a_kustomization_fetches_is_refused() {
    let entries = |entry: &str| folders(&json!({"resources": ["a.yaml", entry]}));
    assert_eq!(entries("../base").unwrap(), ["a.yaml", "../base"]);
    for remote in ["https://example.com/a.yaml", "github.com/example/a//base?ref=v1", "git@example.com:a/b.git"] {
        assert!(entries(remote).unwrap_err().contains("is fetched"), "{remote}");
    }
    assert!(folders(&json!({"helmCharts": [{"name": "x"}]})).unwrap_err().contains("helmCharts"));
}

#[test]
fn files_of_a_folder_are_chosen_as_argo_cd_chooses_them() {
    let directory = |recurse: bool, include: &str, exclude: &str| Directory {
        recurse,
        include: Some(include.to_owned()).filter(|pattern| !pattern.is_empty()),
        exclude: Some(exclude.to_owned()).filter(|pattern| !pattern.is_empty()),
    };
    assert!(directory(false, "", "").takes("a.yaml") && !directory(false, "", "").takes("b/a.yaml"));
    assert!(directory(true, "*.yaml", "").takes("b/a.yaml") && !directory(true, "*.yaml", "").takes("a.json"));
    let chosen = directory(true, "{a,b/c}*", "*secret*");
    assert!(chosen.takes("a.yaml") && chosen.takes("b/c.yaml"));
    assert!(!chosen.takes("b/d.yaml") && !chosen.takes("a/secret.yaml"));
    assert!(directory(true, "?.yaml", "").takes("a.yaml") && !directory(true, "?.yaml", "").takes("ab.yaml"));
}

#[test]
fn a_namespace_is_known_from_what_is_managed_from_definitions_and_from_kubernetes() {
    let all = read(
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a}}
---
{apiVersion: example.com/v1, kind: Widget, metadata: {name: a}}
---
{apiVersion: example.com/v1, kind: Other, metadata: {name: a}}
---
{apiVersion: example.com/v1, kind: Third, metadata: {name: a}}
---
{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets.example.com}, spec: {group: \
         example.com, scope: Cluster, names: {kind: Widget, plural: widgets}}}
",
    );
    let managed = [Managed {
        group: "example.com".to_owned(),
        kind: "Other".to_owned(),
        namespace: "shop".to_owned(),
        name: "x".to_owned(),
    }]
    .into();
    let scopes = Scopes::new(Some(&managed), &all);
    let found: Vec<Option<bool>> = all.iter().map(|document| scopes.is_namespaced(document)).collect();
    assert_eq!(found, [Some(true), Some(false), Some(false), Some(true), None, Some(false)]);
}
