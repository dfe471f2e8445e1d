//! [CustomResourceDefinitions](https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/)
//! and their [versions](https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/).

use forge_testkit::sandbox::{Ended, Namespace, eventually};
use serde_json::{Value, json};

use super::{LIMIT, assert_refused, belonging, condition, namespace, text, until};

#[test]
fn defaults_are_filled_in_and_unknown_fields_are_dropped() {
    let namespace = namespace("crd-defaults");
    let parts = install(
        &namespace,
        version(
            "v1",
            &json!({
                "replicas": {"type": "integer", "default": 1},
                "color": {"type": "string", "default": "red"},
                "store": {
                    "type": "object",
                    "default": {},
                    "properties": {"size": {"type": "string", "default": "small"}},
                },
                "holes": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"depth": {"type": "integer", "default": 3}}},
                },
                "nothing": {"type": "string", "nullable": true, "default": "something"},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            }),
        ),
    );
    let spec = json!({
        "color": "blue",
        "holes": [{}, {"depth": 7}],
        "nothing": null,
        "free": {"any": {"thing": 1}},
        "colour": "green",
    });

    let ended = parts.create(&namespace, "one", &spec, &["--validate=strict"]);
    assert_refused(&ended, &["unknown field \"spec.colour\""]);
    let ended = parts.create(&namespace, "one", &spec, &["--validate=ignore"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let wanted = json!({
        "replicas": 1,
        "color": "blue",
        "store": {"size": "small"},
        "holes": [{"depth": 3}, {"depth": 7}],
        "nothing": null,
        "free": {"any": {"thing": 1}},
    });
    assert_eq!(namespace.get(&parts.name, "one")["spec"], wanted);
}

#[test]
fn a_wrong_object_is_refused_with_every_fault_and_where_it_is() {
    let namespace = namespace("crd-schema");
    let mut schema = version(
        "v1",
        &json!({
            "name": {"type": "string", "pattern": "^[a-z]+$"},
            "label": {"type": "string", "maxLength": 5},
            "count": {"type": "integer", "minimum": 1, "maximum": 9},
            "kind": {"type": "string", "enum": ["large", "small"]},
            "when": {"type": "string", "format": "date-time"},
            "port": {"x-kubernetes-int-or-string": true},
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "holes": {
                "type": "array",
                "maxItems": 2,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["id"],
                "items": {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}},
            },
        }),
    );
    schema["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["required"] = json!(["count", "kind"]);
    let parts = install(&namespace, schema);
    let good = json!({
        "name": "abc",
        "label": "abcde",
        "count": 3,
        "kind": "small",
        "when": "2026-01-01T00:00:00Z",
        "port": "http",
        "tags": ["a", "b"],
        "holes": [{"id": 1}, {"id": 2}],
    });
    let ended = parts.create(&namespace, "good", &good, &["--dry-run=server"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);

    let bad = json!({
        "name": "ABC",
        "label": "abcdef",
        "count": 0,
        "when": "yesterday",
        "port": 1.5,
        "holes": [{"id": "x"}, {}, {"id": 1}],
    });
    let ended = parts.create(&namespace, "bad", &bad, &[]);
    assert_refused(
        &ended,
        &[
            "spec.kind: Required value",
            "spec.label: Too long: may not be more than 5 bytes",
            "spec.name: Invalid value: \"ABC\": spec.name in body should match '^[a-z]+$'",
            "spec.count: Invalid value: 0: spec.count in body should be greater than or equal to 1",
            "spec.port: Invalid value: \"number\": spec.port in body must be of type integer,string",
            "spec.holes: Too many: 3: must have at most 2 items",
            "spec.holes[0].id: Invalid value: \"string\": spec.holes[0].id in body must be of type integer",
            "spec.holes[1].id: Required value",
        ],
    );
    let twice =
        json!({"count": 1, "kind": "huge", "when": "yesterday", "tags": ["a", "a"], "holes": [{"id": 1}, {"id": 1}]});
    let ended = parts.create(&namespace, "bad", &twice, &[]);
    assert_refused(
        &ended,
        &["spec.kind: Unsupported value: \"huge\": supported values: \"large\", \"small\"", "spec.when"],
    );
    let twice = json!({"count": 1, "kind": "small", "tags": ["a", "a"], "holes": [{"id": 1}, {"id": 1}]});
    let ended = parts.create(&namespace, "bad", &twice, &[]);
    assert_refused(&ended, &["spec.tags[1]: Duplicate value: \"a\"", "spec.holes[1]: Duplicate value: {\"id\":1}"]);
}

#[test]
fn rules_in_cel_decide_and_know_the_object_before() {
    let namespace = namespace("crd-cel");
    let mut schema = version(
        "v1",
        &json!({
            "min": {"type": "integer"},
            "max": {"type": "integer"},
            "owner": {
                "type": "string",
                "maxLength": 20,
                "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "the owner stays"}],
            },
        }),
    );
    schema["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"] = json!([
        {
            "rule": "self.min <= self.max",
            "messageExpression": "self.min > self.max + 10 ? 'min is far above max' : 'min is above max'",
            "fieldPath": ".min",
        },
        {
            "rule": "!has(oldSelf.max) || self.max >= oldSelf.max",
            "message": "max only grows",
            "reason": "FieldValueForbidden",
        },
    ]);
    let parts = install(&namespace, schema);

    let ended = parts.create(&namespace, "one", &json!({"min": 5, "max": 4}), &[]);
    assert_refused(&ended, &["spec.min: Invalid value", "min is above max"]);
    let ended = parts.create(&namespace, "one", &json!({"min": 1, "max": 4, "owner": "alice"}), &[]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let patch = |spec: Value| {
        let patch = json!({"spec": spec}).to_string();
        namespace.try_kubectl(&["patch", &parts.name, "one", "--type=merge", "-p", &patch], None)
    };
    assert_refused(&patch(json!({"owner": "bob"})), &["spec.owner: Invalid value", "the owner stays"]);
    assert_refused(&patch(json!({"max": 3})), &["spec: Forbidden: max only grows"]);
    let ended = patch(json!({"max": 5}));
    assert_eq!(ended.code, 0, "{}", ended.stderr);

    // A rule that may cost too much, or that does not compile, never gets in.
    let mut dear = definition(
        &namespace,
        version(
            "v1",
            &json!({
                "list": {
                    "type": "array",
                    "items": {"type": "string"},
                    "x-kubernetes-validations": [{"rule": "self.all(x, self.all(y, x == y || self.all(z, z != x)))"}],
                },
                "text": {"type": "string", "x-kubernetes-validations": [{"rule": "self.size() > nonsense"}]},
            }),
        ),
    );
    dear["metadata"]["name"] = json!(format!("dears.{}", parts.group));
    dear["spec"]["names"] = json!({"plural": "dears", "kind": "Dear"});
    assert_refused(
        &namespace.try_apply(&[dear]),
        &["estimated rule cost exceeds budget", "undeclared reference to 'nonsense'"],
    );
}

#[test]
fn status_is_apart_from_spec_and_only_spec_makes_a_generation() {
    let namespace = namespace("crd-status");
    let mut schema = version("v1", &json!({"replicas": {"type": "integer"}}));
    schema["versions"][0]["subresources"] = json!({"status": {}});
    let parts = install(&namespace, schema);
    let mut object = parts.object("one", &json!({"replicas": 1}));
    object["status"] = json!({"phase": "Invented"});
    let ended = namespace.try_kubectl(&["create", "-f", "-"], Some(&object.to_string()));
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let now = || {
        let object = namespace.get(&parts.name, "one");
        (
            object["metadata"]["generation"].as_u64().unwrap(),
            object["spec"]["replicas"].as_u64().unwrap(),
            text(&object, "/status/phase").to_owned(),
        )
    };
    let patch = |more: &[&str], patch: Value| {
        let patch = patch.to_string();
        let mut args = vec!["patch", &parts.name, "one", "--type=merge", "-p", &patch];
        args.extend(more);
        namespace.kubectl(&args);
    };
    assert_eq!(now(), (1, 1, String::new()));
    patch(&["--subresource=status"], json!({"status": {"phase": "Ready"}, "spec": {"replicas": 9}}));
    assert_eq!(now(), (1, 1, "Ready".to_owned()));
    patch(&[], json!({"status": {"phase": "Broken"}, "spec": {"replicas": 2}}));
    assert_eq!(now(), (2, 2, "Ready".to_owned()));
    patch(&[], json!({"metadata": {"labels": {"color": "red"}}}));
    assert_eq!(now(), (2, 2, "Ready".to_owned()));
}

#[test]
fn a_resource_can_be_scaled_listed_in_columns_and_selected_by_its_fields() {
    let namespace = namespace("crd-columns");
    let mut schema = version("v1", &json!({"replicas": {"type": "integer"}, "color": {"type": "string"}}));
    schema["names"]["shortNames"] = json!(["pt"]);
    schema["names"]["categories"] = json!(["everything"]);
    schema["versions"][0]["subresources"] = json!({
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    });
    schema["versions"][0]["additionalPrinterColumns"] = json!([
        {"name": "Color", "type": "string", "jsonPath": ".spec.color"},
        {"name": "Wanted", "type": "integer", "jsonPath": ".spec.replicas", "priority": 1},
    ]);
    schema["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.color"}]);
    let parts = install(&namespace, schema);
    for (name, color) in [("one", "red"), ("two", "blue")] {
        let ended = parts.create(&namespace, name, &json!({"replicas": 1, "color": color}), &[]);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
    }

    let table = |args: &[&str]| {
        let said = namespace.kubectl(args);
        said.lines().map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect::<Vec<_>>()
    };
    assert_eq!(table(&["get", &parts.name]), [["NAME", "COLOR"], ["one", "red"], ["two", "blue"]]);
    assert_eq!(
        table(&["get", &parts.name, "-o", "wide", "--field-selector=spec.color=blue"]),
        [["NAME", "COLOR", "WANTED"], ["two", "blue", "1"]]
    );
    assert_eq!(table(&["get", &format!("pt.{}", parts.group), "one", "--no-headers"]), [["one", "red"]]);
    let all = namespace.kubectl(&["get", "everything", "-o", "name"]);
    assert!(all.contains(&format!("part.{}/one", parts.group)), "{all}");

    let one = format!("{}/one", parts.name);
    namespace.kubectl(&["scale", &one, "--replicas=5"]);
    let status = r#"{"status":{"replicas":4,"selector":"app=web"}}"#;
    namespace.kubectl(&["patch", &one, "--subresource=status", "--type=merge", "-p", status]);
    let scale: Value =
        serde_json::from_str(&namespace.kubectl(&["get", &one, "--subresource=scale", "-o", "json"])).unwrap();
    assert_eq!(scale["spec"], json!({"replicas": 5}));
    assert_eq!(scale["status"], json!({"replicas": 4, "selector": "app=web"}));
}

#[test]
fn every_served_version_shows_the_same_object() {
    let namespace = namespace("crd-versions");
    let fields = json!({"color": {"type": "string"}});
    let mut schema = version("v1", &fields);
    let mut extra = |name: &str, served: bool, deprecated: bool| {
        let mut extra = version(name, &fields)["versions"][0].clone();
        extra["storage"] = json!(false);
        extra["served"] = json!(served);
        if deprecated {
            extra["deprecated"] = json!(true);
            extra["deprecationWarning"] = json!("this one is old");
        }
        schema["versions"].as_array_mut().unwrap().push(extra);
    };
    extra("v1beta1", true, true);
    extra("v1alpha1", false, false);
    let parts = install(&namespace, schema);
    let ended = parts.create(&namespace, "one", &json!({"color": "red"}), &[]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);

    let ended = namespace.try_kubectl(&["get", &format!("parts.v1beta1.{}", parts.group), "one", "-o", "json"], None);
    let old: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(old["apiVersion"], format!("{}/v1beta1", parts.group));
    assert_eq!(text(&old, "/spec/color"), "red");
    assert!(ended.stderr.contains("Warning: this one is old"), "{}", ended.stderr);
    let path = |version: &str| format!("/apis/{}/{version}/namespaces/{}/parts/one", parts.group, namespace.name);
    assert_refused(&namespace.try_kubectl(&["get", "--raw", &path("v1alpha1")], None), &["(NotFound)"]);
    namespace.kubectl(&["get", "--raw", &path("v1")]);
    // The preferred one is the most stable of those that are served.
    let group: Value =
        serde_json::from_str(&namespace.kubectl(&["get", "--raw", &format!("/apis/{}", parts.group)])).unwrap();
    assert_eq!(text(&group, "/preferredVersion/version"), "v1");
    assert_eq!(namespace.get("crd", &parts.name)["status"]["storedVersions"], json!(["v1"]));
}

#[test]
fn a_name_that_is_taken_is_not_accepted_until_it_is_free() {
    let namespace = namespace("crd-names");
    let parts = install(&namespace, version("v1", &json!({})));
    let mut second = definition(&namespace, version("v1", &json!({})));
    let name = format!("pieces.{}", parts.group);
    second["metadata"]["name"] = json!(name);
    second["spec"]["names"] = json!({"plural": "pieces", "kind": "Part"});
    namespace.apply(&[second]);
    let refused = until(&namespace, "crd", &name, "the conflict is seen", |crd| {
        condition(crd, "NamesAccepted").starts_with("False")
    });
    let why = condition(&refused, "NamesAccepted");
    assert!(
        why.contains("Conflict: ") && why.contains("\"Part\" is already in use")
            || why.contains("\"PartList\" is already in use"),
        "{why}"
    );
    assert!(!condition(&refused, "Established").starts_with("True"));

    namespace.kubectl(&["delete", "crd", &parts.name]);
    namespace.wait(&format!("crd/{name}"), "condition=Established", LIMIT);
}

#[test]
fn with_a_definition_go_its_objects() {
    let namespace = namespace("crd-delete");
    let schema = version("v1", &json!({"color": {"type": "string"}}));
    let parts = install(&namespace, schema.clone());
    for name in ["one", "two"] {
        let ended = parts.create(&namespace, name, &json!({"color": "red"}), &[]);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
    }
    namespace.kubectl(&["delete", "crd", &parts.name, "--timeout=60s"]);
    eventually("the group is gone", LIMIT, || {
        let ended = namespace.try_kubectl(&["get", "--raw", &format!("/apis/{}/v1", parts.group)], None);
        if ended.stderr.contains("(NotFound)") { Ok(()) } else { Err(ended.stdout + &ended.stderr) }
    });
    let parts = install(&namespace, schema);
    assert_eq!(namespace.kubectl(&["get", &parts.name, "-o", "name"]), "");
}

#[test]
fn a_definition_must_have_a_structural_schema_that_its_defaults_fit() {
    let namespace = namespace("crd-structural");
    let refused = |fields: Value, words: &[&str]| {
        let object = definition(&namespace, version("v1", &fields)).to_string();
        assert_refused(&namespace.try_kubectl(&["create", "--dry-run=server", "-f", "-"], Some(&object)), words);
    };
    refused(
        json!({"color": {"description": "no type"}}),
        &["properties[color].type: Required value: must not be empty for specified object fields"],
    );
    refused(json!({"count": {"type": "integer", "default": "many"}}), &["properties[count].default: Invalid value"]);
    refused(json!({"list": {"type": "array"}}), &["properties[list].items: Required value: must be specified"]);
    refused(
        json!({"map": {"type": "object", "x-kubernetes-preserve-unknown-fields": false}}),
        &["x-kubernetes-preserve-unknown-fields"],
    );
}

/// A kind `Part` of a test.
pub(super) struct Parts {
    pub(super) group: String,
    /// Plural and group.
    name: String,
}

impl Parts {
    fn object(&self, name: &str, spec: &Value) -> Value {
        json!({"apiVersion": format!("{}/v1", self.group), "kind": "Part", "metadata": {"name": name}, "spec": spec})
    }

    fn create(&self, namespace: &Namespace, name: &str, spec: &Value, more: &[&str]) -> Ended {
        let mut args = vec!["create", "-f", "-"];
        args.extend(more);
        namespace.try_kubectl(&args, Some(&self.object(name, spec).to_string()))
    }
}

/// The rest of a definition with one version whose `spec` has these fields.
pub(super) fn version(name: &str, fields: &Value) -> Value {
    let schema = json!({
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": fields},
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        },
    });
    json!({
        "names": {"plural": "parts", "singular": "part", "kind": "Part"},
        "versions": [{"name": name, "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
    })
}

/// A definition in a group of the test's own.
fn definition(namespace: &Namespace, mut rest: Value) -> Value {
    let group = format!("{}.forge.example", namespace.name);
    rest["group"] = json!(group);
    rest["scope"] = json!("Namespaced");
    let (kind, metadata) = ("CustomResourceDefinition", json!({"name": format!("parts.{group}")}));
    belonging(
        namespace,
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": rest}),
    )
}

/// Makes the kind known and waits until kubectl knows it.
pub(super) fn install(namespace: &Namespace, rest: Value) -> Parts {
    let definition = definition(namespace, rest);
    let parts = Parts {
        group: text(&definition, "/spec/group").to_owned(),
        name: text(&definition, "/metadata/name").to_owned(),
    };
    namespace.apply(&[definition]);
    namespace.wait(&format!("crd/{}", parts.name), "condition=Established", LIMIT);
    eventually("kubectl knows the kind", LIMIT, || {
        let ended = namespace.try_kubectl(&["get", &parts.name], None);
        if ended.code == 0 { Ok(()) } else { Err(ended.stderr) }
    });
    parts
}
