//! What Forge writes and would submit, against the real CRDs of Argo CD, Argo Workflows and Crossplane, as an API server
//! would judge it (`forge-testkit` reads the CRDs from the modules that the sandbox is built from).

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;

use forge_core::yaml::{Dialect, Limits, Node, read};
use forge_testkit::crd::Crds;
use serde_json::Value;

fn forge(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_forge")).arg("-C").arg(folder).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn documents(text: &str) -> Vec<Value> {
    let stream = read(text, Dialect::Kubernetes, Limits::FILE);
    assert!(stream.problems.is_empty(), "{:?}", stream.problems);
    stream.documents.iter().map(Node::to_json).collect()
}

/// Validates every object of a kind that the CRDs know; gives how many there were.
fn validate(crds: &Crds, from: &str, objects: &[Value]) -> usize {
    let text = |object: &Value, key: &str| object[key].as_str().unwrap_or_default().to_owned();
    let known = objects.iter().filter(|object| crds.knows(&text(object, "apiVersion"), &text(object, "kind")));
    let mut count = 0;
    for object in known {
        count += 1;
        let problems = crds.validate(object);
        assert!(problems.is_empty(), "{from}: {} {}: {problems:#?}", object["kind"], object["metadata"]["name"]);
    }
    count
}

/// The Argo CD and Crossplane files of a repository.
fn repository_objects(folder: &Path) -> Vec<(String, Vec<Value>)> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && !name.starts_with('.') {
                open.push(path);
            } else if name == "app.yaml" || name == "env.yaml" {
                found.push((path.display().to_string(), documents(&std::fs::read_to_string(&path).unwrap())));
            }
        }
    }
    found
}

#[test]
fn the_scaffold_is_valid_for_the_real_crds() {
    let crds = Crds::load().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let url = ["--url", "https://git.example.com/platform.git", "--registry", "registry.example.com/releases"];
    let init = [&["init", "--with", "crossplane,self-managed-argocd"][..], &url[..]].concat();
    forge(folder.path(), &init);
    forge(
        folder.path(),
        &["env", "add", "qa", "--cluster", "in-cluster", "--namespace-prefix", "qa-", "--sync", "ordered"],
    );
    forge(folder.path(), &["lint"]);
    let mut count = 0;
    for (path, objects) in repository_objects(folder.path()) {
        let valid = validate(&crds, &path, &objects);
        assert_eq!(valid, objects.len(), "{path} has objects without a schema");
        count += valid;
    }
    // Root: 2 AppProjects, 1 set, 2 charts; 5 environments with 3 objects each, clusters, 5 EnvironmentConfigs.
    assert_eq!(count, 5 + 15 + 1 + 5);
}

#[test]
fn the_objects_of_every_plan_of_the_example_are_valid_for_the_real_crds() {
    let crds = Crds::load().unwrap();
    let example = forge_testkit::checkout().join("examples/platform");
    for environment in ["platform", "dev", "staging", "production"] {
        let text = forge(&example, &["plan", "--offline", "-e", environment, "--show", "objects"]);
        let objects = documents(&text);
        let maps = objects.iter().filter(|object| object["kind"] == "ConfigMap").count();
        let valid = validate(&crds, environment, &objects);
        assert_eq!(valid + maps, objects.len());
        for kind in ["Application", "AppProject", "ClusterWorkflowTemplate", "Workflow"] {
            assert!(objects.iter().any(|object| object["kind"] == kind), "{environment}: no {kind}");
        }
        // YAML and JSON say the same.
        let json: Value = serde_json::from_str(&forge(
            &example,
            &["plan", "--offline", "-e", environment, "--show", "objects", "-o", "json"],
        ))
        .unwrap();
        assert_eq!(json["items"], Value::Array(objects));
    }
}

#[test]
fn bootstrap_prints_what_starts_runs_where_events_do_and_no_key() {
    let folder = tempfile::tempdir().unwrap();
    forge(folder.path(), &["init", "--url", "https://git.example.com/platform.git", "--registry", "r.example.com/x"]);
    let print = ["bootstrap", "--print", "--image", "registry.example.com/forge"];
    let kinds = |text: &str| -> Vec<String> {
        let all = documents(text);
        let events =
            all.iter().filter(|object| matches!(object["kind"].as_str(), Some("EventBus" | "EventSource" | "Sensor")));
        events.map(|object| format!("{} {}", object["kind"], object["metadata"]["name"])).collect()
    };
    assert_eq!(kinds(&forge(folder.path(), &print)), Vec::<String>::new());
    let add = ["env", "add", "qa", "--cluster", "in-cluster", "--namespace-prefix", "qa-", "--sync", "ordered"];
    forge(folder.path(), &add);
    let printed = forge(folder.path(), &print);
    let expected = [r#""EventBus" "forge""#, r#""EventSource" "forge-push""#, r#""Sensor" "forge-qa""#];
    assert_eq!(kinds(&printed), expected);
    for object in documents(&printed).iter().filter(|object| object["kind"] == "Secret") {
        assert_eq!(object["type"], "kubernetes.io/service-account-token", "{object}");
        assert!(object["data"].is_null() && object["stringData"].is_null(), "{object}");
    }
}

/// The objects of one group of what `bootstrap` prints for programs.
fn group(plan: &Value, title: &str) -> Vec<Value> {
    let groups = plan["objects"].as_array().unwrap();
    let found = groups.iter().find(|group| group["title"] == title);
    found.unwrap_or_else(|| panic!("no {title}: {groups:?}"))["objects"].as_array().unwrap().clone()
}

#[test]
fn what_bootstrap_prints_for_programs_is_what_it_prints_for_people() {
    let folder = tempfile::tempdir().unwrap();
    let header = "apiVersion: forge.projectcatalyst.io/v1alpha1\n";
    let installation = format!(
        "{header}kind: Forge\nspec:\n  repository: {{url: https://git.example.com/p.git}}\n  argo: {{cd: existing, workflows: existing, events: install}}\n  environments: [{{name: dev, cluster: dev, sync: auto}}]\n"
    );
    let graph = format!(
        "{header}kind: DependencyGraph\nspec:\n  stacks: [{{name: base, apps: [{{application: argocd/one}}]}}]\n"
    );
    std::fs::write(folder.path().join("forge.yaml"), installation).unwrap();
    std::fs::write(folder.path().join("graph.yaml"), graph).unwrap();
    let print = |format: &str| {
        forge(folder.path(), &["bootstrap", "--print", "--image", "registry.example.com/forge", "--output", format])
    };
    let (people, programs) = (documents(&print("text")), print("json"));
    let programs: Value = serde_json::from_str(&programs).unwrap();
    assert_eq!(documents(&print("yaml")), std::slice::from_ref(&programs));
    let list = |value: &Value| value.as_array().unwrap().clone();
    let charts = list(&programs["charts"]);
    assert_eq!((charts.len(), charts[0]["chart"].as_str()), (1, Some("argo-events")));
    let fragments = list(&programs["merge"]).iter().flat_map(|part| list(&part["fragments"])).collect::<Vec<Value>>();
    let all: Vec<Value> = group(&programs, "what every run needs")
        .into_iter()
        .chain(charts.iter().map(|chart| chart["values"].clone()))
        .chain(fragments.iter().map(|fragment| fragment["object"].clone()))
        .collect();
    assert_eq!(people, all);
}

#[test]
fn an_argo_cd_that_manages_itself_is_printed_as_its_application_in_place_of_its_values() {
    let folder = tempfile::tempdir().unwrap();
    forge(folder.path(), &["init", "--url", "https://git.example.com/platform.git", "--registry", "r.example.com/x"]);
    let print = |format: &str| {
        let with = ["bootstrap", "--print", "--image", "registry.example.com/forge", "--with", "self-managed-argocd"];
        forge(folder.path(), &[&with[..], &["--output", format]].concat())
    };
    let (people, programs) = (documents(&print("text")), print("json"));
    let programs: Value = serde_json::from_str(&programs).unwrap();
    assert_eq!(programs["application"]["metadata"]["name"], "argocd");
    assert!(people.contains(&programs["application"]), "{}", programs["application"]);
    let charts = programs["charts"].as_array().unwrap();
    assert!(!charts.is_empty() && charts.iter().all(|chart| chart["chart"] != "argo-cd"), "{charts:?}");
}

#[test]
fn a_program_is_told_where_charts_are_and_all_that_is_made_in_its_order() {
    let crds = Crds::load().unwrap();
    let folder = tempfile::tempdir().unwrap();
    forge(folder.path(), &["init", "--url", "https://git.example.com/platform.git", "--registry", "r.example.com/x"]);
    let add = ["env", "add", "qa", "--cluster", "in-cluster", "--namespace-prefix", "qa-", "--sync", "ordered"];
    forge(folder.path(), &add);
    let print = ["bootstrap", "--print", "--image", "registry.example.com/forge"];
    let plan = |more: &[&str]| -> Value {
        serde_json::from_str(&forge(folder.path(), &[&print[..], &["--output", "json"], more].concat())).unwrap()
    };
    let told = plan(&[]);
    let list = |key: &str| told[key].as_array().unwrap().clone();
    let of = |title: &str| group(&told, title);
    let printed = documents(&forge(folder.path(), &print));
    let charts = list("charts");
    let values: Vec<Value> = charts.iter().map(|chart| chart["values"].clone()).collect();
    assert_eq!(printed, [of("what every run needs"), of("what starts runs"), values].concat());
    let ways: Vec<Value> = list("objects").iter().map(|group| group["way"].clone()).collect();
    assert_eq!(ways, ["apply", "create", "credentials", "remove", "apply", "ours", "create", "apply"]);
    let names: Vec<&Value> = charts.iter().map(|chart| &chart["chart"]).collect();
    assert_eq!(names, ["argo-cd", "argo-workflows", "argo-events"]);
    for chart in &charts {
        assert_eq!(chart["source"]["chart"], chart["chart"]);
        assert!(chart["source"]["repository"].as_str().unwrap().starts_with("https://"), "{chart}");
        assert_eq!(chart["source"]["version"], chart["version"]);
        assert_eq!(chart["labels"]["forge.projectcatalyst.io/chart-version"], chart["version"]);
    }
    let namespaces: Vec<Value> = list("namespaces").iter().map(|object| object["metadata"]["name"].clone()).collect();
    assert_eq!(namespaces, ["argo", "argo-events", "argocd"]);
    // Each environment has its project; only `qa` starts by itself, and what started others once would be taken away.
    assert_eq!(validate(&crds, "projects", &of("AppProjects")), 5);
    let withdrawn = of("what no longer starts runs");
    assert!(withdrawn.iter().any(|object| object["metadata"]["name"] == "forge-dev"), "{withdrawn:?}");
    assert!(!withdrawn.iter().any(|object| object["metadata"]["name"] == "forge-qa"), "{withdrawn:?}");
    // The root comes when everything else is there, and what says that it is done comes last.
    assert_eq!(validate(&crds, "root", &of("the root")), of("the root").len());
    assert_eq!(of("the receipt of the root")[0]["metadata"]["name"], "forge-root");
    assert_eq!(of("what says that it is done").len(), 5);
    let registry = plan(&["--charts", "oci://registry.example.com/charts"]);
    assert_eq!(registry["charts"][0]["source"]["chart"], "oci://registry.example.com/charts/argo-cd");
    assert!(registry["charts"][0]["source"]["repository"].is_null());
    // Another place is another chart, and nothing else.
    assert_eq!(registry["charts"][0]["values"], charts[0]["values"]);
}
