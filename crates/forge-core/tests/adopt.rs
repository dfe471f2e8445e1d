//! Adoption: a golden case of about 35 foreign Applications, and properties that hold for any input.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "the crate is pure; its tests read golden files, and panic where one is wrong"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use forge_core::adopt::{Adopted, Found, Kind, Options, Severity, adopt};
use forge_core::code::Code;
use forge_core::graph::Graph;
use forge_core::validate::{Content, Report, tree};
use forge_testkit::generate::Random;
use proptest::prelude::*;
use serde_json::{Value, json};

fn folder() -> PathBuf {
    forge_testkit::checkout().join("crates/forge-core/tests/adopt")
}

fn golden() -> Found {
    let mut input: Value =
        serde_json::from_str(&std::fs::read_to_string(folder().join("input.json")).unwrap()).unwrap();
    let mut take = |name: &str| input[name].take().as_array().unwrap().clone();
    Found {
        applications: take("applications"),
        application_sets: Some(take("applicationSets")),
        projects: Some(take("projects")),
        definitions: Some(take("definitions")),
        settings: Some(json!({"data": {}})),
        one_namespace: false,
    }
}

fn options() -> Options {
    Options { environment: None, argocd: "argocd".parse().unwrap(), projects: Default::default(), listed: None }
}

fn adopted(found: &Found) -> Adopted {
    adopt(found, &options()).unwrap()
}

fn text<'a>(adopted: &'a Adopted, path: &str) -> &'a str {
    &adopted.files.iter().find(|file| file.path == path).unwrap().text
}

/// What lint says about what was written.
fn linted(adopted: &Adopted) -> Report {
    let files: BTreeMap<String, Content> =
        adopted.files.iter().map(|file| (file.path.clone(), Content::Bytes(file.text.clone().into_bytes()))).collect();
    tree(&files)
}

/// The graph of what was written, after lint has found nothing wrong with it but a repository that nobody knows.
fn built(adopted: &Adopted) -> Graph {
    let report = linted(adopted);
    let unknown = !of_kind(adopted, Kind::NoRepository).is_empty();
    let findings: Vec<_> = report.findings.iter().filter(|f| !(unknown && f.code == Code::Placeholder)).collect();
    assert!(findings.is_empty(), "{findings:#?}\n{}", text(adopted, "graph.yaml"));
    let repository = report.repository.expect("a repository that can be used");
    let build = repository.environment_graph(&repository.environments[0]);
    build.graph.unwrap_or_else(|| panic!("{:#?}", build.findings))
}

fn awaited(graph: &Graph, id: &str) -> Vec<String> {
    let node = graph.find(&id.parse().unwrap()).unwrap_or_else(|| panic!("no node {id}"));
    let all = graph.with_predecessors(&[node]);
    all.iter().filter(|other| **other != node).map(|other| graph.node(*other).id.to_string()).collect()
}

fn of_kind(adopted: &Adopted, kind: Kind) -> Vec<(&str, &str)> {
    let hazards = adopted.hazards.iter().filter(|hazard| hazard.kind == kind);
    hazards.map(|hazard| (hazard.about.as_str(), hazard.detail.as_str())).collect()
}

#[test]
fn a_foreign_platform_becomes_these_files() {
    let adopted = adopted(&golden());
    built(&adopted);
    for name in ["forge.yaml", "graph.yaml", "ADOPTED.md"] {
        forge_testkit::reference::compare(&folder().join("expected").join(name), text(&adopted, name));
    }
    assert!(adopted.files.iter().all(|file| !file.text.contains("hunter2")), "a password of the cluster was written");
}

#[test]
fn shuffled_objects_give_the_same_bytes() {
    let expected = adopted(&golden());
    for seed in 0..20 {
        let mut found = golden();
        let mut random = Random::new(seed);
        let mut shuffle = |list: &mut Vec<Value>| {
            for i in (1..list.len()).rev() {
                list.swap(i, random.below(i + 1));
            }
        };
        shuffle(&mut found.applications);
        found
            .application_sets
            .iter_mut()
            .chain(&mut found.projects)
            .chain(&mut found.definitions)
            .for_each(&mut shuffle);
        assert_eq!(adopted(&found), expected, "seed {seed}");
    }
}

#[test]
fn a_level_waits_for_all_below_the_level_before_it() {
    let graph = built(&adopted(&golden()));
    let portal = awaited(&graph, "argocd/portal");
    for before in ["root", "cert-manager", "postgres-operator", "monitoring", "alerts", "grafana", "tenant-c"] {
        assert!(portal.contains(&format!("argocd/{before}")), "{before} is not before portal: {portal:?}");
    }
    assert!(!portal.contains(&"argocd/shop-dev".to_owned()));
    assert_eq!(awaited(&graph, "argocd/shop-us"), ["argocd/shop-dev", "argocd/shop-staging"]);
}

#[test]
fn where_every_source_is_a_chart_lint_asks_for_the_repository_and_for_nothing_else() {
    let source = json!({"repoURL": "https://charts.example.com", "chart": "proxy", "targetRevision": "1.2.3"});
    let application =
        json!({"metadata": {"name": "a", "namespace": "argocd"}, "spec": {"project": "p", "source": source}});
    let adopted = adopted(&Found { applications: vec![application], ..Found::default() });
    let codes: Vec<Code> = linted(&adopted).findings.iter().map(|finding| finding.code).collect();
    assert_eq!(codes, [Code::Placeholder]);
    assert_eq!(of_kind(&adopted, Kind::NoRepository).len(), 1);
    assert!(linted(&self::adopted(&golden())).findings.is_empty());
}

#[test]
fn waves_win_over_definitions_and_what_was_dropped_is_named() {
    let adopted = adopted(&golden());
    let dropped = of_kind(&adopted, Kind::OrderConflict);
    assert!(
        dropped
            .contains(&("Application argocd/policies", "uses postgresqls.acid.zalan.do of argocd/postgres-operator"))
    );
    assert_eq!(dropped.len(), adopted.summary.dropped);
}

#[test]
fn what_the_gate_never_proves_is_blocking_and_hooks_alone_are_not() {
    let adopted = adopted(&golden());
    assert_eq!(of_kind(&adopted, Kind::EmptyApplication), [("Application team-a/ledger", "no resources")]);
    assert_eq!(of_kind(&adopted, Kind::OnlyHooks), [("Application argocd/migrations", "only hooks")]);
    assert_eq!(Kind::EmptyApplication.severity(), Severity::Blocking);
    assert_eq!(Kind::OnlyHooks.severity(), Severity::Caution);
}

#[test]
fn without_the_list_of_definitions_kinds_are_told_by_their_plural() {
    let mut found = golden();
    found.definitions = None;
    let adopted = adopted(&found);
    assert!(awaited(&built(&adopted), "argocd/tenant-a").contains(&"argocd/postgres-operator".to_owned()));
    assert_eq!(of_kind(&adopted, Kind::Unread).len(), 1);
}

#[test]
fn a_parent_whose_health_includes_its_children_is_not_waited_for() {
    let mut found = golden();
    found.settings =
        Some(json!({"data": {"resource.customizations.health.argoproj.io_Application": "hs = {} return hs"}}));
    let adopted = adopted(&found);
    let graph = built(&adopted);
    assert!(awaited(&graph, "argocd/cert-manager").is_empty());
    // The children of a child still come after the wave before it.
    assert!(awaited(&graph, "argocd/alerts").contains(&"argocd/ingress".to_owned()));
    assert_eq!(of_kind(&adopted, Kind::ParentHealth).len(), 2);
}

#[test]
fn a_child_does_not_wait_for_the_definitions_of_a_parent_whose_health_waits_for_it() {
    let application = |name: &str, resources: Value| {
        json!({"metadata": {"name": name, "namespace": "argocd"}, "spec": {"project": "p"},
            "status": {"resources": resources}})
    };
    let child =
        |name: &str| json!({"group": "argoproj.io", "kind": "Application", "namespace": "argocd", "name": name});
    let definition =
        json!({"group": "apiextensions.k8s.io", "kind": "CustomResourceDefinition", "name": "widgets.example.com"});
    let widget = json!({"group": "example.com", "kind": "Widget", "namespace": "n", "name": "w"});
    let mut found = Found {
        applications: vec![
            application("root", json!([definition, child("apps")])),
            application("apps", json!([child("web")])),
            application("web", json!([widget])),
            application("other", json!([widget])),
        ],
        ..Found::default()
    };
    let before = adopted(&found);
    assert_eq!(awaited(&built(&before), "argocd/web"), ["argocd/apps", "argocd/root"]);
    assert!(of_kind(&before, Kind::OrderConflict).is_empty());
    found.settings =
        Some(json!({"data": {"resource.customizations.health.argoproj.io_Application": "hs = {} return hs"}}));
    let adopted = adopted(&found);
    let graph = built(&adopted);
    assert!(awaited(&graph, "argocd/web").is_empty());
    assert_eq!(awaited(&graph, "argocd/other"), ["argocd/root"]);
    let dropped = [("Application argocd/web", "uses widgets.example.com of argocd/root")];
    assert_eq!(of_kind(&adopted, Kind::OrderConflict), dropped);
}

#[test]
fn a_selection_keeps_the_order_that_leads_through_what_is_left_out() {
    let options = Options { projects: ["tenants".to_owned()].into(), ..options() };
    let adopted = adopt(&golden(), &options).unwrap();
    assert_eq!(adopted.environment.as_str(), "tenants");
    assert_eq!((adopted.summary.applications, adopted.summary.left_out), (3, 29));
    assert_eq!(of_kind(&adopted, Kind::OutsideSelection).len(), 3);
    built(&adopted);
}

#[test]
fn a_selection_has_the_hazards_of_its_applications_and_of_what_manages_them() {
    let about = |project: &str| -> Vec<String> {
        let options = Options { projects: [project.to_owned()].into(), ..options() };
        let hazards = adopt(&golden(), &options).unwrap().hazards;
        let about: BTreeSet<String> = hazards.into_iter().map(|hazard| hazard.about).collect();
        about.into_iter().collect()
    };
    let tenants = ["argocd/root", "argocd/tenant-a", "argocd/tenant-b", "argocd/tenant-c"];
    assert_eq!(about("tenants"), tenants.map(|name| format!("Application {name}")));
    let shop = ["Application argocd/shop-demo", "Application argocd/shop-us", "ApplicationSet argocd/shop"];
    assert_eq!(about("shop"), shop);
}

#[test]
fn a_selection_by_identity_keeps_the_waves_of_a_parent_that_is_not_in_it() {
    let listed = ["argocd/Not_A_Name", "argocd/cert-manager", "argocd/ingress", "argocd/legacy-proxy", "argocd/portal"];
    let options = Options { listed: Some(listed.map(str::to_owned).into()), ..options() };
    let adopted = adopt(&golden(), &options).unwrap();
    assert_eq!((adopted.summary.applications, adopted.summary.left_out), (4, 28));
    assert_eq!(awaited(&built(&adopted), "argocd/portal"), ["argocd/cert-manager", "argocd/ingress"]);
    assert_eq!(of_kind(&adopted, Kind::WaveBetweenApplications).len(), 1);
    assert_eq!(of_kind(&adopted, Kind::InvalidName).len(), 1);
    // What is not selected is told where it touches what is, and only there.
    let shared = ("Application argocd/legacy-proxy", "Deployment proxy and 1 more, also in argocd/legacy-cache");
    assert_eq!(of_kind(&adopted, Kind::SharedResource), [shared]);
    for kind in [Kind::WaveWithoutParent, Kind::AppOfApps, Kind::SetDeletes, Kind::RollingSync] {
        assert!(of_kind(&adopted, kind).is_empty(), "{kind:?}");
    }
}

#[test]
fn an_environment_is_named_so_that_the_workflows_of_its_runs_can_be() {
    let named = |project: &str| {
        let application = json!({"metadata": {"name": "a", "namespace": "argocd"}, "spec": {"project": project}});
        let adopted = adopted(&Found { applications: vec![application], ..Found::default() });
        built(&adopted);
        adopted.environment.to_string()
    };
    let (longest, longer) = ("p".repeat(36), "p".repeat(37));
    assert_eq!(named(&longest), longest);
    assert_eq!(named(&longer), "production");
    let wanted = |name: &str| Options { environment: Some(name.parse().unwrap()), ..options() };
    built(&adopt(&golden(), &wanted(&longest)).unwrap());
    let error = adopt(&golden(), &wanted(&longer)).unwrap_err().to_string();
    assert_eq!(error, format!("`{longer}` has 37 characters; at most 36 are allowed"));
}

#[test]
fn applications_that_manage_each_other_are_told_and_not_ordered() {
    let parent = |name: &str, of: &str| {
        json!({"metadata": {"name": name, "namespace": "argocd"}, "spec": {"project": "p"},
            "status": {"resources": [{"group": "argoproj.io", "kind": "Application", "name": of, "namespace": "argocd"}]}})
    };
    let found = Found {
        applications: vec![parent("a", "b"), parent("b", "a"), parent("c", "d"), parent("d", "none")],
        ..Found::default()
    };
    let adopted = adopted(&found);
    assert_eq!(of_kind(&adopted, Kind::Circle).len(), 2);
    let graph = built(&adopted);
    assert!(awaited(&graph, "argocd/b").is_empty());
    assert_eq!(awaited(&graph, "argocd/d"), ["argocd/c"]);
}

#[test]
fn what_is_no_application_is_left_out_and_told() {
    let long = "x".repeat(300);
    let found = Found {
        applications: vec![
            json!(null),
            json!([1]),
            json!("text"),
            json!({}),
            json!({"metadata": {"name": "\u{1b}[31m`forge:allow`", "namespace": "a\nb"}}),
            json!({"metadata": {"name": long, "namespace": "argocd"}}),
            json!({"metadata": {"name": "ok", "annotations": [], "labels": 3}, "spec": "x", "status": {"resources": {}, "conditions": 1}}),
            json!({"metadata": {"name": "true", "namespace": "argocd"}, "spec": {"project": "null"}, "status": null}),
        ],
        application_sets: Some(vec![json!(7), json!({"metadata": {"name": "s"}, "spec": {"strategy": []}})]),
        projects: Some(vec![json!(null)]),
        definitions: Some(vec![json!({"metadata": {"name": 1}})]),
        ..Found::default()
    };
    let adopted = adopted(&found);
    let graph = built(&adopted);
    assert_eq!(graph.nodes().len(), 2);
    assert!(!text(&adopted, "ADOPTED.md").contains('\u{1b}'));
}

/// A platform of any shape: parents, waves, sets, definitions and uses at random, circles and contradictions included.
fn random(seed: u64, size: usize) -> Found {
    let mut random = Random::new(seed);
    let size = size.max(1);
    let mut applications = Vec::new();
    for n in 0..size {
        let mut resources = Vec::new();
        for _ in 0..random.below(4) {
            let kind = random.below(6);
            resources.push(match random.below(4) {
                0 => json!({"group": "argoproj.io", "kind": "Application", "namespace": "argocd", "name": format!("a{}", random.below(size)), "syncWave": random.below(3)}),
                1 => json!({"group": "argoproj.io", "kind": "ApplicationSet", "namespace": "argocd", "name": format!("s{}", random.below(4))}),
                2 => json!({"group": "apiextensions.k8s.io", "kind": "CustomResourceDefinition", "name": format!("k{kind}s.g{}.io", kind % 2)}),
                _ => json!({"group": format!("g{}.io", kind % 2), "kind": format!("K{kind}"), "name": "x", "namespace": "n"}),
            });
        }
        let mut metadata =
            json!({"name": format!("a{n}"), "namespace": "argocd", "labels": {"l": random.below(4).to_string()}});
        if random.below(3) == 0 {
            metadata["annotations"] = json!({
                "argocd.argoproj.io/sync-wave": (random.below(5) as i64 - 2).to_string(),
                "argocd.argoproj.io/tracking-id": format!("a{}:argoproj.io/Application:argocd/a{n}", random.below(size)),
            });
        }
        if random.below(4) == 0 {
            metadata["ownerReferences"] = json!([{"kind": "ApplicationSet", "name": format!("s{}", random.below(6))}]);
        }
        applications.push(json!({
            "metadata": metadata,
            "spec": {"project": format!("P{}", random.below(3)), "destination": {"name": format!("c{}", random.below(2))}},
            "status": {"resources": resources},
        }));
    }
    let mut sets = Vec::new();
    for n in 0..4 {
        let steps: Vec<Value> = (0..random.below(3))
            .map(|step| json!({"matchExpressions": [{"key": "l", "operator": if random.below(5) == 0 { "NotIn" } else { "In" }, "values": [step.to_string()]}]}))
            .collect();
        sets.push(json!({"metadata": {"name": format!("s{n}"), "namespace": "argocd"},
            "spec": {"strategy": {"type": "RollingSync", "rollingSync": {"steps": steps}}}}));
    }
    let settings = (random.below(2) == 0)
        .then(|| json!({"data": {"resource.customizations.health.argoproj.io_Application": "x"}}));
    Found { application_sets: Some(sets), applications, settings, ..Found::default() }
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

/// The manager of every Application and ApplicationSet of a random platform, by name, as the guide tells it.
fn managers(found: &Found) -> BTreeMap<String, String> {
    let mut applications: Vec<&Value> = found.applications.iter().collect();
    applications.sort_by_key(|app| name(app).to_owned());
    let mut managers = BTreeMap::new();
    // The weaker first, and of those that list the same the first last: what comes later counts.
    for app in applications.iter().rev() {
        for resource in app["status"]["resources"].as_array().unwrap() {
            let listed = resource["name"].as_str().unwrap();
            if resource["group"] == "argoproj.io" && listed != name(app) {
                managers.insert(listed.to_owned(), name(app).to_owned());
            }
        }
    }
    for app in applications {
        let tracked = app["metadata"]["annotations"]["argocd.argoproj.io/tracking-id"].as_str();
        if let Some((manager, _)) = tracked.and_then(|id| id.split_once(':'))
            && manager != name(app)
        {
            managers.insert(name(app).to_owned(), manager.to_owned());
        }
        if let Some(set) = app["metadata"]["ownerReferences"][0]["name"].as_str() {
            managers.insert(name(app).to_owned(), set.to_owned());
        }
    }
    managers
}

/// The names of those in an AppProject and of all that manages them, near or far.
fn concerned(found: &Found, project: &str) -> BTreeSet<String> {
    let managers = managers(found);
    let mut concerned = BTreeSet::new();
    for app in found.applications.iter().filter(|app| app["spec"]["project"] == project) {
        let mut next = Some(name(app).to_owned());
        while let Some(name) = next.filter(|name| concerned.insert(name.clone())) {
            next = managers.get(&name).cloned();
        }
    }
    concerned
}

/// Those that could never become Healthy, if everybody waits for its predecessors and for all that it manages.
fn stuck(graph: &Graph, managers: &BTreeMap<String, String>) -> Vec<String> {
    let own = |node| graph.node(node).id.as_str().trim_start_matches("argocd/").to_owned();
    let mut awaited: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (child, manager) in managers {
        awaited.entry(manager.clone()).or_default().push(child.clone());
    }
    for node in graph.indexes() {
        awaited.entry(own(node)).or_default().extend(graph.predecessors(node).into_iter().map(own));
    }
    loop {
        let is_open = |names: &Vec<String>| names.iter().any(|name| awaited.contains_key(name));
        let done: Vec<String> =
            awaited.iter().filter(|(_, names)| !is_open(names)).map(|(name, _)| name.clone()).collect();
        if done.is_empty() {
            return awaited.into_keys().collect();
        }
        for name in done {
            awaited.remove(&name);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(forge_testkit::cases(200)))]

    #[test]
    fn whatever_is_there_the_result_lints_builds_and_has_no_cycle(seed in any::<u64>(), size in 1..60_usize) {
        let mut found = random(seed, size);
        let first = adopted(&found);
        prop_assert_eq!(built(&first).nodes().len(), size);
        found.applications.reverse();
        let again = adopted(&found);
        prop_assert_eq!(&again, &first);
        let options = Options { projects: ["P1".to_owned()].into(), ..options() };
        let selected = adopt(&found, &options).unwrap();
        let concerned = concerned(&found, "P1");
        for hazard in &selected.hazards {
            if let Some((_, name)) = hazard.about.split_once("argocd/") {
                prop_assert!(concerned.contains(name), "{:?}", hazard);
            }
        }
        let graphs = [built(&first), built(&selected)];
        // Assessed by Argo CD, a parent is Healthy only after its children, selected or not.
        if found.settings.is_some() {
            let circles = of_kind(&first, Kind::Circle);
            let mut managers = managers(&found);
            managers.retain(|child, _| !circles.iter().any(|(about, _)| about.ends_with(&format!("/{child}"))));
            for graph in graphs {
                let stuck = stuck(&graph, &managers);
                prop_assert!(stuck.is_empty(), "{:?} wait for each other", stuck);
            }
        }
    }

    #[test]
    fn texts_of_any_kind_never_make_files_that_cannot_be_read(texts in proptest::collection::vec(".{0,40}", 12)) {
        let at = |n: usize| texts[n].as_str();
        let found = Found {
            applications: vec![json!({
                "metadata": {"name": "a", "namespace": "argocd", "annotations": {"argocd.argoproj.io/sync-wave": at(0)}},
                "spec": {"project": at(1), "destination": {"name": at(2)}, "source": {"repoURL": at(3), "targetRevision": at(4)}},
                "status": {"health": {"status": at(5)}, "conditions": [{"type": format!("{}Error", at(6))}],
                    "resources": [
                        {"group": "apiextensions.k8s.io", "kind": "CustomResourceDefinition", "name": at(7)},
                        {"group": at(8), "kind": at(9), "name": at(10), "hook": true},
                        {"group": at(8), "kind": at(9), "name": at(10), "requiresPruning": true}]},
            }), json!({"metadata": {"name": at(11), "namespace": "argocd"}})],
            ..Found::default()
        };
        built(&adopted(&found));
    }
}

/// Runs it and fails if it takes long.
fn quickly(found: &Found) -> Adopted {
    #[expect(clippy::disallowed_types, reason = "a test may look at the clock")]
    let start = std::time::Instant::now();
    let adopted = adopted(found);
    let took = start.elapsed();
    assert!(took.as_secs() < 10, "{took:?}");
    adopted
}

#[test]
fn a_knot_of_two_thousand_applications_is_cut_where_it_must_be() {
    let size = 2000;
    let definition = |n: usize| json!({"group": "apiextensions.k8s.io", "kind": "CustomResourceDefinition", "name": format!("k{n}s.g.io")});
    let used =
        |n: usize| json!({"group": "g.io", "kind": format!("K{}", n % size), "namespace": "n", "name": n.to_string()});
    let application = |n: usize| {
        json!({"metadata": {"name": format!("a{n}"), "namespace": "argocd"}, "spec": {"project": "p"},
            "status": {"resources": [definition(n), used(n + 1), used(n + 7), used(n + 100)]}})
    };
    let found = Found { applications: (0..size).map(application).collect(), ..Found::default() };
    let adopted = quickly(&found);
    assert!(adopted.summary.dropped > 0 && adopted.summary.dropped < 200, "{:?}", adopted.summary);
    built(&adopted);
}

#[test]
fn two_thousand_applications_take_no_more_than_a_moment() {
    let mut found = random(1, 2000);
    let resources: Vec<Value> =
        (0..10_000).map(|n| json!({"kind": "ConfigMap", "namespace": "n", "name": format!("c{n}")})).collect();
    found.applications[7]["status"]["resources"] = json!(resources);
    found.applications[8]["status"]["resources"] = json!(resources);
    let adopted = quickly(&found);
    assert_eq!(built(&adopted).nodes().len(), 2000);
}
