//! The twin of the example: that it is the example, that Forge takes it without a complaint, and that twins do not meet.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "clippy.toml allows it in tests, but not in what they share"
)]

use std::collections::{BTreeMap, BTreeSet};

use forge_core::digest::Digest;
use forge_core::validate::{self, Content, Report};
use forge_testkit::example;
use forge_testkit::releases::commit;
use forge_testkit::twin::{self, Options, Pointer, TwinNode, config_map, deployment, kwok_deployment};
use serde_json::Value;

const URL: &str = "http://git.sandbox.internal:3000/t/twin.git";
const IMAGE: &str =
    "registry.example.com/forge/sample@sha256:9b73ab299fdcb06d382e8a47b44bac79241406f8a6e809e5fd3ecdf30860c479";

fn options() -> Options {
    Options::new("dev", URL, IMAGE)
}

fn report(files: Vec<(String, String)>) -> Report {
    let tree: BTreeMap<String, Content> =
        files.into_iter().map(|(path, text)| (path, Content::Bytes(text.into_bytes()))).collect();
    validate::tree(&tree)
}

fn documents(text: &str) -> Vec<Value> {
    text.split("---\n").map(|document| serde_saphyr::from_str(document).unwrap()).collect()
}

fn file(files: &[(String, String)], path: &str) -> String {
    files.iter().find(|(name, _)| name == path).unwrap_or_else(|| panic!("{path} is missing")).1.clone()
}

/// Every edge of a repository's only environment, by names of Applications.
fn edges(files: Vec<(String, String)>) -> BTreeMap<String, BTreeSet<String>> {
    let report = report(files);
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    let repository = report.repository.unwrap();
    let built = repository.environment_graph(&repository.environments[0]);
    let graph = built.graph.unwrap();
    let name = |ix| graph.node(ix).id.to_string().rsplit('/').next().unwrap().to_owned();
    graph.indexes().map(|ix| (name(ix), graph.predecessors(ix).iter().map(|before| name(*before)).collect())).collect()
}

#[test]
fn lint_finds_nothing_and_no_node_is_implicit() {
    for options in [options(), Options { auto: true, scale: 0.25, retry_limit: Some(0), ..options() }] {
        let found = edges(twin::files(&options));
        assert_eq!(found.len(), 46);
        assert_eq!(found, twin::predecessors(&options));
    }
}

#[test]
fn there_is_an_application_for_every_row_of_the_table_on_a_folder_that_exists() {
    let files = twin::files(&options());
    let applications = documents(&file(&files, "argocd/applications.yaml"));
    assert_eq!(applications.len(), example::apps().count());
    for (application, (_, app)) in applications.iter().zip(example::apps()) {
        let name = format!("dev-{}-{}", app.repo, app.project);
        assert_eq!(application["metadata"]["name"], name);
        assert_eq!(application["spec"]["destination"]["namespace"], name);
        assert_eq!(application["spec"]["project"], "dev");
        let folder = application["spec"]["source"]["path"].as_str().unwrap();
        assert!(files.iter().any(|(path, _)| path.starts_with(&format!("{folder}/"))), "{folder}");
    }
    let project = documents(&file(&files, "argocd/project.yaml"));
    assert_eq!(project[0]["metadata"]["name"], "dev");
}

#[test]
fn a_twin_with_a_root_needs_nobody_to_apply_its_applications_and_is_the_same_graph() {
    let options = Options { argo: "{cd: install, workflows: install, events: install}".to_owned(), ..options() };
    let files = twin::rooted(&options, &twin::files(&options));
    assert!(files.iter().all(|(path, _)| !path.starts_with("argocd/")));
    let documents = documents(&file(&files, "dev/app.yaml"));
    let set = documents.last().unwrap();
    assert_eq!((&set["kind"], &set["metadata"]["name"]), (&"ApplicationSet".into(), &"dev-twin".into()));
    let elements = set["spec"]["generators"][0]["list"]["elements"].as_array().unwrap();
    assert_eq!(elements.len(), 46);
    for element in elements {
        let folder = element["folder"].as_str().unwrap();
        assert!(files.iter().any(|(path, _)| path.starts_with(&format!("{folder}/"))), "{folder}");
    }
    assert_eq!(set["spec"]["template"]["metadata"]["name"], "{{.name}}");
    let report = report(files);
    let findings: Vec<String> = report.findings.iter().map(|finding| finding.place.path.clone()).collect();
    assert_eq!(findings, ["dev/env.yaml"], "{:?}", report.findings);
    let repository = report.repository.unwrap();
    assert!(repository.applies_root());
    let graph = repository.environment_graph(&repository.environments[0]).graph.unwrap();
    // The app-of-apps of the environment comes first.
    assert_eq!(graph.indexes().count(), 47);
}

#[test]
fn a_twin_of_releases_has_pointers_that_forge_init_would_write_and_no_application_of_its_own() {
    let options = Options { argo: "{cd: install, workflows: install, events: none}".to_owned(), ..options() };
    let nodes = [TwinNode::new("first", &[], Vec::new()), TwinNode::new("second", &["first"], Vec::new())];
    let pointer = |name: &str| Pointer { commit: commit(name), digest: Digest::of(name.as_bytes()) };
    let pointers = nodes.iter().map(|node| (node.name.clone(), pointer(&node.name))).collect();
    let registry = "10.225.255.2:5000/releases";
    let mut files = twin::released(&options, registry, &nodes, &pointers);
    let (path, text) = twin::pointer_file(&options, registry, &twin::node_id("second"), &pointer("second"));
    assert_eq!((path.as_str(), &file(&files, &path)), ("dev/apps/twin/second/release.yaml", &text));
    assert!(text.contains(pointer("second").digest.as_str()), "{text}");
    files.push(twin::plugin_values(registry, &[("SOME", "1")]));
    let values = documents(&file(&files, "argo/values/argo-cd.yaml")).remove(0);
    let server = &values["repoServer"];
    assert_eq!(server["env"], serde_json::json!([{"name": "SOME", "value": "1"}]));
    let told = serde_json::json!([{"name": "FORGE_PLAIN_HTTP_REGISTRIES", "value": "10.225.255.2:5000"}]);
    assert_eq!(
        (&server["extraContainers"][0]["name"], &server["extraContainers"][0]["env"]),
        (&"catalyst-forge-cmp".into(), &told)
    );
    let report = report(files);
    let findings: Vec<String> = report.findings.iter().map(|finding| finding.place.path.clone()).collect();
    assert_eq!(findings, ["dev/env.yaml"], "{:?}", report.findings);
    let repository = report.repository.unwrap();
    assert!(repository.applies_root());
    let graph = repository.environment_graph(&repository.environments[0]).graph.unwrap();
    let ids: BTreeSet<String> = graph.indexes().map(|ix| graph.node(ix).id.to_string()).collect();
    assert!(ids.contains("twin/first") && ids.contains("twin/second") && ids.len() == 3, "{ids:?}");
}

/// What each project of environment `dev` waits for, by ids.
fn projects(report: &Report) -> BTreeMap<String, BTreeSet<String>> {
    let repository = report.repository.as_ref().unwrap();
    let dev = repository.environments.iter().find(|files| files.environment.name.as_str() == "dev").unwrap();
    let graph = repository.environment_graph(dev).graph.unwrap();
    let id = |ix| graph.node(ix).id.to_string();
    // What comes before all projects differs: only the example has Crossplane.
    let is_project = |id: &String| !id.starts_with("argocd/");
    let all = graph.indexes().map(|ix| {
        let before = graph.predecessors(ix).into_iter().map(id).filter(is_project);
        (id(ix), before.collect())
    });
    all.filter(|(id, _)| is_project(id)).collect()
}

#[test]
fn the_example_from_releases_is_the_example_with_pointers_to_those() {
    let options = Options { argo: "{cd: install, workflows: install, events: none}".to_owned(), ..options() };
    let pointer = |id: &str| Pointer { commit: commit(id), digest: Digest::of(id.as_bytes()) };
    let pointers = example::apps().map(|(_, app)| (app.id(), pointer(&app.id()))).collect();
    let files = twin::released_example(&options, "10.225.255.2:5000/releases", &pointers);
    for (_, app) in example::apps() {
        let text = file(&files, &format!("dev/apps/{}/release.yaml", app.id()));
        assert!(text.contains(pointer(&app.id()).digest.as_str()), "{text}");
    }
    let released = report(files);
    assert!(released.findings.is_empty(), "{:?}", released.findings);
    let whole = report(example::files().into_iter().filter(|(path, _)| !path.starts_with('.')).collect());
    assert_eq!(projects(&released), projects(&whole));
    assert_eq!(projects(&released).len(), 46);
}

#[test]
fn only_an_automatic_twin_syncs_by_itself() {
    for auto in [false, true] {
        let files = twin::files(&Options { auto, ..options() });
        assert_eq!(file(&files, "argocd/applications.yaml").contains("selfHeal: true"), auto);
        assert_eq!(file(&files, "forge.yaml").contains("sync: auto"), auto);
    }
}

#[test]
fn times_and_limits_are_those_that_were_asked_for() {
    let files = twin::files(&Options {
        scale: 0.25,
        timeouts: Some(("20s".into(), "30s".into())),
        retry_limit: Some(1),
        ..options()
    });
    assert!(file(&files, "apps/net/mesh-control/deployment.yaml").contains("value: 1950ms\n"));
    assert!(file(&files, "apps/net/metrics-server/deployment.yaml").contains("value: 700ms\n"));
    assert!(file(&files, "apps/storage/ceph-cluster/resource.yaml").contains("ready-after: 3s\n"));
    let graph = file(&files, "graph.yaml");
    assert!(graph.contains("timeouts: {sync: 20s, health: 30s}"));
    assert_eq!(graph.matches("timeouts:").count(), 1);
    assert_eq!(graph.matches("retry:").count(), 1);
    assert!(!files.iter().any(|(_, text)| text.contains(example::SAMPLE_IMAGE)));
}

#[test]
fn the_longest_path_scales_and_is_that_of_the_example() {
    let path = twin::nominal_critical_path(&options());
    // foundation 7, ceph-operator 5, ceph-cluster 12, vault 8, secret-store 2, postgres 10, identity 6, api-gateway 4,
    // payments 6, orders 4, storefront 3.
    assert!((path - 67.0).abs() < 0.001, "{path}");
    let half = twin::nominal_critical_path(&Options { scale: 0.5, ..options() });
    assert!((half - path / 2.0).abs() < 0.001, "{half}");
}

#[test]
fn two_environments_share_no_object_without_a_namespace() {
    let names = |environment: &str| -> BTreeSet<String> {
        let files = twin::files(&Options::new(environment, URL, IMAGE));
        let objects = files.iter().filter(|(path, _)| path.starts_with("apps/")).flat_map(|(_, text)| documents(text));
        let cluster =
            objects.filter(|object| object["kind"] == "CustomResourceDefinition" || object["kind"] == "ClusterIssuer");
        cluster.map(|object| format!("{} {}", object["apiVersion"], object["metadata"]["name"])).collect()
    };
    assert_eq!(names("one").len(), 6);
    assert!(names("one").is_disjoint(&names("two")), "{:?}", names("one"));
}

#[test]
fn a_small_graph_has_the_same_shape() {
    let nodes = [
        TwinNode::new("base", &[], vec![deployment("base", IMAGE, 1, &[("FAIL", "crash")])]),
        TwinNode::new("side", &["base"], vec![kwok_deployment("side", IMAGE, 2, false)]),
        TwinNode {
            settings: "timeouts: {health: 5s}\nretry: {limit: 0}".into(),
            ..TwinNode::new("top", &["base", "side"], vec![config_map("top", "text: with \"quotes\"\n")])
        },
    ];
    let files = twin::small(&options(), &nodes);
    let found = edges(files.clone());
    assert_eq!(found["dev-top"], BTreeSet::from(["dev-base".to_owned(), "dev-side".to_owned()]));
    assert_eq!(documents(&file(&files, "argocd/applications.yaml")).len(), 3);
    let config = documents(&file(&files, "apps/top/configmap.yaml"));
    assert_eq!(config[0]["data"]["text"], "text: with \"quotes\"\n");
}

#[test]
fn custom_resources_in_namespaces_are_listed_with_the_group_of_their_environment() {
    let kinds = twin::conditioned(&options());
    assert_eq!(kinds.len(), 4);
    assert!(kinds.contains(&"cephclusters.ceph.dev.example.com".to_owned()), "{kinds:?}");
}
