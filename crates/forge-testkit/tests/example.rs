//! `examples/platform`: that it is what the table says, that the table says what was asked for, and that Forge, Argo CD
//! and Kubernetes would take it.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "clippy.toml allows it in tests, but not in what they share"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use forge_core::duration::Duration;
use forge_core::validate::{self, Content, Report};
use forge_testkit::crd::Crds;
use forge_testkit::example::{self, Flavour, STACKS};
use serde_json::Value;

const PODS: [&str; 3] = ["Deployment", "StatefulSet", "Job"];

/// What `forge lint` sees: hidden folders hold no desired state.
fn report() -> Report {
    let visible = example::files().into_iter().filter(|(path, _)| !path.starts_with('.'));
    let tree: BTreeMap<String, Content> =
        visible.map(|(path, text)| (path, Content::Bytes(text.into_bytes()))).collect();
    validate::tree(&tree)
}

/// Every object of the files that a predicate picks, with its path.
fn objects(pick: impl Fn(&str) -> bool) -> Vec<(String, Value)> {
    let mut objects = Vec::new();
    for (path, text) in example::files() {
        if !pick(&path) {
            continue;
        }
        for document in text.split("\n---\n") {
            let object: Value = serde_saphyr::from_str(document).unwrap();
            objects.push((path.clone(), object));
        }
    }
    assert!(!objects.is_empty());
    objects
}

fn sources() -> Vec<(String, Value)> {
    objects(|path| path.starts_with("sources/"))
}

fn kind(object: &Value) -> &str {
    object["kind"].as_str().unwrap()
}

/// `repo/project` of a path below `sources/`.
fn project(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').collect();
    format!("{}/{}", parts[1], parts[2])
}

#[test]
fn the_checked_in_example_is_what_the_table_says() {
    let expected: BTreeMap<String, String> = example::files().into_iter().collect();
    let found: BTreeSet<String> = example::list(&example::folder()).unwrap().into_iter().collect();
    let refresh = format!("run `{}`", example::REFRESH);
    let wanted: BTreeSet<String> = expected.keys().cloned().collect();
    assert_eq!(wanted.difference(&found).collect::<Vec<_>>(), Vec::<&String>::new(), "missing: {refresh}");
    assert_eq!(found.difference(&wanted).collect::<Vec<_>>(), Vec::<&String>::new(), "not in the table: {refresh}");
    for (path, text) in &expected {
        let on_disk = fs::read_to_string(example::folder().join(path)).unwrap();
        assert!(on_disk == *text, "`{path}` says something else than the table: {refresh}");
    }
}

#[test]
fn it_has_eleven_stacks_and_forty_six_applications_with_sources_and_pointers() {
    assert_eq!((STACKS.len(), example::apps().count()), (11, 46));
    let ids: BTreeSet<String> = example::apps().map(|(_, app)| app.id()).collect();
    assert_eq!(ids.len(), 46);
    let with_sources: BTreeSet<String> = sources().iter().map(|(path, _)| project(path)).collect();
    assert_eq!(with_sources, ids);
    let paths: BTreeSet<String> = example::files().into_iter().map(|(path, _)| path).collect();
    for environment in ["dev", "staging", "production"] {
        for id in &ids {
            assert!(paths.contains(&format!("{environment}/apps/{id}/release.yaml")), "{environment}: {id}");
        }
    }
    let platform = paths.iter().filter(|path| path.starts_with("platform/apps/")).count();
    let subset = STACKS.iter().filter(|stack| example::PLATFORM_STACKS.contains(&stack.name));
    assert_eq!(platform, subset.map(|stack| stack.apps.len()).sum::<usize>());
}

#[test]
fn it_has_every_kind_of_application_that_was_asked_for() {
    let sources = sources();
    let of = |wanted: &str| sources.iter().filter(|(_, o)| kind(o) == wanted).map(|(_, o)| o).collect::<Vec<_>>();
    let [stateful] = of("StatefulSet")[..] else { panic!("one StatefulSet") };
    assert!(!stateful["spec"]["volumeClaimTemplates"].as_array().unwrap().is_empty());
    assert_eq!(of("Job").len(), 1);
    let [ingress] = of("Ingress")[..] else { panic!("one Ingress") };
    assert!(!ingress["spec"]["tls"].as_array().unwrap().is_empty());
    let definitions = of("CustomResourceDefinition");
    assert!(definitions.len() >= 2);
    for definition in definitions {
        let kind = definition["spec"]["names"]["kind"].as_str().unwrap();
        assert_eq!(of(kind).len(), 1, "one instance of `{kind}`");
    }
    assert_eq!(of("Secret").len(), 0);
    let times: BTreeSet<u32> = example::apps().map(|(_, app)| app.ready_after).collect();
    assert!(times.len() >= 8 && times.iter().all(|seconds| (1..=12).contains(seconds)), "{times:?}");
}

#[test]
fn it_lints_clean_and_suppresses_nothing() {
    let report = report();
    assert_eq!((report.findings, report.suppressed), (Vec::new(), Vec::new()));
}

#[test]
fn its_graph_is_deep_and_wide_and_its_deadline_is_longer_than_its_longest_chain() {
    let repository = report().repository.unwrap();
    let graph = repository.base_graph().graph.unwrap();
    assert!((9..=12).contains(&graph.waves().len()), "{} waves", graph.waves().len());
    assert!((6..=9).contains(&graph.width()), "{} at once", graph.width());
    for files in &repository.environments {
        let graph = repository.environment_graph(files).graph.unwrap();
        let longest: Duration = graph.critical_path().iter().map(|node| graph.node(*node).budget()).sum();
        assert!(longest <= graph.timeout, "{}: {longest} > {}", files.environment.name.value, graph.timeout);
    }
}

#[test]
fn production_never_has_a_release_that_staging_has_not() {
    let repository = report().repository.unwrap();
    let [dev, staging, production] =
        ["dev", "staging", "production"].map(|name| &repository.environment(name).unwrap().projects);
    let (mut behind, mut apart) = (0, 0);
    for (id, newest) in dev {
        let before = |pointer: &forge_core::format::ReleasePointer| pointer.release.value != newest.release.value;
        let (in_staging, in_production) = (before(&staging[id]), before(&production[id]));
        assert!(in_production || !in_staging, "{id}");
        behind += usize::from(in_production);
        apart += usize::from(in_staging != in_production);
    }
    assert!(behind > 0 && apart > 0 && behind < dev.len());
}

#[test]
fn a_custom_resource_waits_for_the_application_that_brings_its_kind_and_is_what_that_kind_allows() {
    let sources = sources();
    let graph = report().repository.unwrap().base_graph().graph.unwrap();
    let mut checked = 0;
    for (_, app) in example::apps() {
        let Flavour::CustomResource(definition) = app.flavour else { continue };
        let crd = sources.iter().find(|(_, o)| o["metadata"]["name"] == definition.name().as_str());
        let (crd_path, crd) = crd.unwrap();
        let node = |id: &str| graph.find(&id.parse().unwrap()).unwrap();
        let predecessors = graph.predecessors(node(&app.id()));
        assert!(predecessors.contains(&node(&project(crd_path))), "{}", app.id());
        let written = graph.node(node(&app.id()));
        assert_eq!(written.requires.len(), 1);
        assert_eq!(written.requires[0].name, definition.name());

        let path = format!("sources/{}/resource.yaml", app.id());
        let (_, instance) = sources.iter().find(|(found, _)| *found == path).unwrap();
        let version = &crd["spec"]["versions"][0];
        assert!(version["subresources"]["status"].is_object());
        let schema = &version["schema"]["openAPIV3Schema"];
        assert!(jsonschema::is_valid(schema, instance), "{path}");
        let fields = schema["properties"]["spec"]["properties"].as_object().unwrap();
        for field in instance["spec"].as_object().unwrap().keys() {
            assert!(fields.contains_key(field), "{path}: the server would drop `{field}`");
        }
        let rule = &written.health[0];
        assert_eq!(instance["kind"], rule.object.kind.as_str());
        assert_eq!(instance["apiVersion"], rule.object.api_version.as_str());
        assert_eq!(instance["metadata"]["name"], rule.object.name.as_str());
        checked += 1;
    }
    assert!(checked >= 2);
}

#[test]
fn argo_cd_decides_the_namespace_and_every_object_says_what_it_belongs_to() {
    for (path, object) in sources() {
        let metadata = &object["metadata"];
        assert!(metadata.get("namespace").is_none(), "{path}");
        if kind(&object) != "CustomResourceDefinition" {
            for label in ["app.kubernetes.io/name", "app.kubernetes.io/part-of"] {
                assert!(metadata["labels"][label].is_string(), "{path}: {label}");
            }
        }
    }
}

#[test]
fn every_container_is_the_sample_workload_and_has_no_right_that_it_does_not_need() {
    let sources = sources();
    let mut pods = 0;
    for (path, object) in sources.iter().filter(|(_, o)| PODS.contains(&kind(o))) {
        let template = &object["spec"]["template"];
        let pod = &template["spec"];
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{path}");
        assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault", "{path}");
        assert_eq!(pod["automountServiceAccountToken"], false, "{path}");
        let [container] = pod["containers"].as_array().unwrap().as_slice() else { panic!("{path}") };
        assert_eq!(container["image"], example::SAMPLE_IMAGE, "{path}");
        assert_eq!(container["env"][0]["name"], "READY_AFTER", "{path}");
        assert!(container["env"][0]["value"].as_str().unwrap().ends_with('s'), "{path}");
        let rights = &container["securityContext"];
        assert_eq!(rights["readOnlyRootFilesystem"], true, "{path}");
        assert_eq!(rights["allowPrivilegeEscalation"], false, "{path}");
        assert_eq!(rights["capabilities"]["drop"][0], "ALL", "{path}");
        assert!(container["resources"]["requests"].is_object(), "{path}");
        if kind(object) != "Job" {
            assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/healthz", "{path}");
            assert_eq!(container["ports"][0]["containerPort"], 8080, "{path}");
            let selector = object["spec"]["selector"]["matchLabels"].as_object().unwrap();
            let labels = template["metadata"]["labels"].as_object().unwrap();
            assert!(selector.iter().all(|(key, value)| labels.get(key) == Some(value)), "{path}");
            let folder = path.rsplit_once('/').unwrap().0;
            let (_, service) = sources.iter().find(|(p, _)| *p == format!("{folder}/service.yaml")).unwrap();
            assert_eq!(service["spec"]["selector"], Value::Object(selector.clone()), "{path}");
        }
        pods += 1;
    }
    let without = example::apps().filter(|(_, app)| matches!(app.flavour, Flavour::CustomResource(_))).count();
    assert_eq!(pods + without, 46);
}

#[test]
fn argo_cd_and_crossplane_take_its_objects() {
    let crds = Crds::load().unwrap();
    let ours = |path: &str| path.ends_with("app.yaml") || path.ends_with("/env.yaml");
    for (path, object) in objects(|path| !path.starts_with("sources/") && ours(path)) {
        assert_eq!(crds.validate(&object), Vec::<String>::new(), "{path}: {}", object["metadata"]["name"]);
    }
}

#[test]
fn writing_it_twice_changes_nothing_and_what_the_table_lost_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let first = example::write(folder.path()).unwrap();
    assert_eq!(first.written.len(), example::files().len());
    let stale = ["sources/old/gone/deployment.yaml", "dev/apps/old/gone/release.yaml"];
    for path in stale {
        fs::create_dir_all(folder.path().join(path).parent().unwrap()).unwrap();
        fs::write(folder.path().join(path), "x").unwrap();
    }
    fs::write(folder.path().join("notes.txt"), "mine").unwrap();
    let second = example::write(folder.path()).unwrap();
    assert_eq!((second.written.len(), second.removed.len()), (0, 2));
    assert!(!folder.path().join("sources/old").exists() && !folder.path().join("dev/apps/old").exists());
    assert!(folder.path().join("notes.txt").exists());
    assert_eq!(example::write(folder.path()).unwrap(), example::Written::default());
}

#[test]
fn a_folder_that_holds_something_else_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("dev/apps/a/b")).unwrap();
    fs::write(folder.path().join("dev/apps/a/b/release.yaml"), "x").unwrap();
    let error = example::write(folder.path()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
    assert_eq!(example::list(folder.path()).unwrap(), ["dev/apps/a/b/release.yaml"]);
}
