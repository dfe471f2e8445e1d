//! Workflows within Kubernetes' limits, whatever the shape of the graph (issue: a 1,000-node Workflow under 400 KiB).

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by panicking")]

use forge_core::gate;
use forge_core::graph::{Graph, NodeIx, Scope};
use forge_core::plan::{Plan, plan};
use forge_core::render::{self, Places, RenderError};
use forge_core::repository::Repository;
use forge_core::run::{BAND, RunPlan, Runner};
use forge_core::validate::{Content, tree};
use forge_testkit::generate;
use serde_json::{Value, json};

fn repository(graph: &str) -> Repository {
    let forge = "apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: Forge\nspec:\n  repository: {url: https://git.example.com/p.git}\n  environments: [{name: production, cluster: c, sync: manual, protected: true, approvals: 1}]\n";
    let files = [("forge.yaml", forge), ("graph.yaml", graph)];
    let files = files.into_iter().map(|(p, t)| (p.to_owned(), Content::Bytes(t.as_bytes().to_vec()))).collect();
    tree(&files).repository.unwrap()
}

fn planned(repository: &Repository) -> (Graph, Vec<NodeIx>, Plan) {
    let files = &repository.environments[0];
    let graph = repository.environment_graph(files).graph.unwrap();
    let (scope, nodes) = graph.scope(&Scope::Platform, None).unwrap();
    let plan = plan(repository, files, &graph, &scope, &nodes);
    (graph, nodes, plan)
}

fn run(plan: &Plan, graph: &Graph, nodes: &[NodeIx]) -> RunPlan {
    let content = |_: &_| gate::Content::Revisions { revisions: Vec::new() };
    RunPlan::new(plan.run().parse().unwrap(), plan, graph, nodes, content)
}

fn size(graph: &str) -> usize {
    let repository = repository(graph);
    let (graph, nodes, plan) = planned(&repository);
    render::workflow(&run(&plan, &graph, &nodes), &Places::default(), 0).unwrap().to_string().len()
}

const LIMIT: usize = 400 << 10;

#[test]
fn a_thousand_nodes_and_three_thousand_edges_fit() {
    let bytes = size(&generate::graph_yaml(1000, 3000, 7));
    assert!(bytes < LIMIT, "{bytes}");
}

#[test]
fn a_thousand_nodes_with_the_longest_names_and_ten_edges_each_fit() {
    let name = |n: usize| format!("repository-{n:04}-{}/project-{n:04}-{}", "x".repeat(8), "y".repeat(12));
    let mut text = String::from(
        "apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: DependencyGraph\nspec:\n  stacks:\n    - name: s\n      apps:\n",
    );
    let mut random = generate::Random::new(3);
    for n in 0..1000 {
        let wave = n / 50;
        let on: std::collections::BTreeSet<usize> =
            (0..if wave == 0 { 0 } else { 10 }).map(|_| (wave - 1) * 50 + random.below(50)).collect();
        let on: Vec<String> = on.into_iter().map(name).collect();
        text.push_str(&format!("        - project: {}\n          dependsOn: [{}]\n", name(n), on.join(", ")));
    }
    let bytes = size(&text);
    assert!(bytes < LIMIT, "{bytes}");
}

#[test]
fn stacks_of_a_hundred_that_wait_for_each_other_fit_because_they_join() {
    let mut text =
        String::from("apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: DependencyGraph\nspec:\n  stacks:\n");
    for s in 0..10 {
        let on = if s == 0 { String::new() } else { format!("\"stack:s{}\"", s - 1) };
        text.push_str(&format!("    - name: s{s}\n      dependsOn: [{on}]\n      apps:\n"));
        for n in 0..100 {
            text.push_str(&format!("        - project: repo{s}/project{n}\n"));
        }
    }
    // 90,000 edges if they were written out.
    let repository = repository(&text);
    let (graph, nodes, plan) = planned(&repository);
    let reduced = graph.reduced(&nodes);
    assert!(reduced.edges() <= 2 * 1000, "{}", reduced.edges());
    let cut = run(&plan, &graph, &nodes);
    let whole = RunPlan { band: None, ..cut.clone() };
    let text = |run: &RunPlan| render::workflow(run, &Places::default(), 0).unwrap().to_string();
    assert!(text(&whole).len() < LIMIT, "{}", text(&whole).len());
    assert!(text(&whole).contains("\"stack-s0\""));
    // In bands there is no edge, and so nothing to join.
    assert!(!text(&cut).contains("\"stack-s0\""));
}

#[test]
fn a_small_stack_does_not_cost_a_join() {
    let text = "apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: DependencyGraph\nspec:\n  stacks:\n    - {name: a, apps: [{project: a/x}, {project: a/y}]}\n    - {name: b, dependsOn: [\"stack:a\"], apps: [{project: b/x}, {project: b/y}]}\n";
    let repository = repository(text);
    let (graph, nodes, plan) = planned(&repository);
    let workflow = render::workflow(&run(&plan, &graph, &nodes), &Places::default(), 0).unwrap();
    let tasks = workflow["spec"]["templates"][0]["dag"]["tasks"].as_array().unwrap();
    let shape: Vec<(String, Vec<String>)> = tasks
        .iter()
        .map(|t| {
            let before =
                t["dependencies"].as_array().map(|d| d.iter().map(|d| d.as_str().unwrap().to_owned()).collect());
            (t["name"].as_str().unwrap().to_owned(), before.unwrap_or_default())
        })
        .collect();
    let both = || vec!["a-x".to_owned(), "a-y".to_owned()];
    assert_eq!(shape, [("a-x".into(), vec![]), ("a-y".into(), vec![]), ("b-x".into(), both()), ("b-y".into(), both())]);
}

/// The names of a DAG's tasks, and what each waits for in it.
fn dag(template: &Value) -> Vec<(String, Vec<String>)> {
    let tasks = template["dag"]["tasks"].as_array().unwrap();
    assert_eq!(template["dag"]["failFast"], false);
    let name = |name: &Value| name.as_str().unwrap().to_owned();
    let before = |task: &Value| task["dependencies"].as_array().into_iter().flatten().map(name).collect();
    tasks.iter().map(|task| (name(&task["name"]), before(task))).collect()
}

#[test]
fn a_run_of_few_tasks_is_one_dag_whatever_a_band_holds() {
    let repository = repository(&generate::graph_yaml(BAND, 3 * BAND, 7));
    let (graph, nodes, plan) = planned(&repository);
    let run = run(&plan, &graph, &nodes);
    assert_eq!((run.tasks.len(), run.band), (BAND, None));
    let whole = render::workflow(&run, &Places::default(), 0).unwrap();
    assert_eq!(whole["spec"]["templates"].as_array().unwrap().len(), 1);
    let banded = RunPlan { band: Some(BAND), ..run };
    assert_eq!(render::workflow(&banded, &Places::default(), 0).unwrap().to_string(), whole.to_string());
}

#[test]
fn a_large_run_is_a_dag_for_each_band_and_its_edges_are_the_gates() {
    let repository = repository(&generate::graph_yaml(450, 1350, 7));
    let (graph, nodes, plan) = planned(&repository);
    let run = run(&plan, &graph, &nodes);
    assert_eq!(run.band, Some(BAND));
    let bands = run.bands();
    assert!(bands.len() > 2, "{}", bands.len());
    let workflow = render::workflow(&run, &Places::default(), 0).unwrap();
    let templates = workflow["spec"]["templates"].as_array().unwrap();
    assert_eq!(
        (workflow["spec"]["entrypoint"].as_str(), templates[0]["name"].as_str()),
        (Some("graph"), Some("graph"))
    );
    // The first one runs the others, each as soon as the plugin opens it.
    let mut outer = vec![("band-0".to_owned(), vec![])];
    for number in 1..bands.len() {
        outer.push((format!("open-{number}"), vec![]));
        outer.push((format!("band-{number}"), vec![format!("open-{number}")]));
    }
    assert_eq!(dag(&templates[0]), outer);
    let tasks = templates[0]["dag"]["tasks"].as_array().unwrap();
    assert_eq!(tasks[0]["template"], "band-0");
    assert_eq!(tasks[1]["arguments"], json!({"parameters": [{"name": "band", "value": "1"}]}));
    assert_eq!(tasks[1]["templateRef"], json!({"name": "forge-node", "template": "open", "clusterScope": true}));
    // All nodes, and no edge: those the gate knows by the plan.
    let inner: Vec<_> = templates[1..].iter().map(dag).collect();
    let names: Vec<Value> = templates[1..].iter().map(|template| template["name"].clone()).collect();
    assert_eq!(names, (0..bands.len()).map(|number| json!(format!("band-{number}"))).collect::<Vec<_>>());
    assert_eq!(inner.iter().map(Vec::len).collect::<Vec<_>>(), bands.iter().map(Vec::len).collect::<Vec<_>>());
    assert_eq!(inner.iter().map(Vec::len).sum::<usize>(), run.len());
    assert!(inner.iter().flatten().all(|(_, before)| before.is_empty()));
    assert!(run.tasks.iter().any(|task| !task.before.is_empty()));
    let workers = format!(r#""name":"ARGO_AGENT_TASK_WORKERS","value":"{}""#, run.tasks.len() + bands.len() + 15);
    assert!(workflow["spec"]["podSpecPatch"].as_str().unwrap().contains(&workers));
    // With a pod for each node it is one DAG: a node that waits would be a pod that waits.
    let pods = render::workflow(&RunPlan { runner: Runner::Pod, ..run }, &Places::default(), 0).unwrap();
    assert_eq!(pods["spec"]["templates"].as_array().unwrap().len(), 1);
}

#[test]
fn every_template_that_a_workflow_refers_to_is_there_and_takes_what_it_is_given() {
    let repository = repository(&generate::graph_yaml(250, 700, 3));
    let (graph, nodes, plan) = planned(&repository);
    let workflow = render::workflow(&run(&plan, &graph, &nodes), &Places::default(), 0).unwrap();
    let shared = render::templates();
    let shared = shared[0]["spec"]["templates"].as_array().unwrap();
    let own = workflow["spec"]["templates"].as_array().unwrap();
    let named = |list: &[Value], name: &Value| list.iter().find(|template| template["name"] == *name).cloned().unwrap();
    let parameters = |of: &Value| -> Vec<Value> {
        of["parameters"].as_array().into_iter().flatten().map(|parameter| parameter["name"].clone()).collect()
    };
    for task in own.iter().flat_map(|template| template["dag"]["tasks"].as_array().unwrap()) {
        let template = match &task["template"] {
            Value::Null => named(shared, &task["templateRef"]["template"]),
            name => named(own, name),
        };
        assert_eq!(parameters(&task["arguments"]), parameters(&template["inputs"]), "{task}");
        // Argo Workflows refuses such names where a task waits for another.
        assert!(!task["name"].as_str().unwrap().starts_with(|c: char| c.is_ascii_digit()), "{task}");
    }
}

#[test]
fn a_graph_that_cannot_fit_is_refused_with_its_size_and_at_once() {
    let repository = repository(&generate::graph_yaml(10_000, 30_000, 1));
    let (graph, nodes, plan) = planned(&repository);
    let error = render::workflow(&run(&plan, &graph, &nodes), &Places::default(), 0).unwrap_err();
    assert!(matches!(error, RenderError::TooMany { nodes: 10_000 }), "{error}");
}

#[test]
fn names_that_become_one_task_name_are_told_apart() {
    let text = "apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: DependencyGraph\nspec:\n  stacks:\n    - {name: a, apps: [{application: ns/a.b}, {application: ns/a-b}]}\n";
    let repository = repository(text);
    let (graph, nodes, plan) = planned(&repository);
    let workflow = render::workflow(&run(&plan, &graph, &nodes), &Places::default(), 0).unwrap();
    let tasks = workflow["spec"]["templates"][0]["dag"]["tasks"].as_array().unwrap();
    let names: std::collections::BTreeSet<&str> = tasks.iter().map(|t| t["name"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

#[test]
fn the_pieces_of_a_plan_put_together_are_the_plan() {
    let repository = repository(&generate::graph_yaml(3000, 9000, 5));
    let (graph, nodes, plan) = planned(&repository);
    let run = run(&plan, &graph, &nodes);
    let maps = render::plan_config_maps(&run, &Places::default());
    assert!(maps.len() > 1);
    assert_eq!(forge_core::run::read_plan(&maps).unwrap(), run);
    assert!(forge_core::run::read_plan(&maps[1..]).is_err());
    for map in &maps {
        assert!(map.to_string().len() < 600 << 10);
    }
}
