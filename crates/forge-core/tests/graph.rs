//! The graph against a naive model: stacks expanded to every pair of applications, closures by repeated passes. And
//! INV-9: whatever the order of files, stacks, applications and dependencies, the same bytes come out.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use forge_core::format::{API_VERSION, DependencyGraph};
use forge_core::graph::{Build, Graph, NodeIx, Scope, Task};
use forge_core::plan::plan;
use forge_core::render;
use forge_core::validate::{Content, Context, assemble, inspect};
use forge_core::yaml::{Decoder, Dialect, Limits, read};
use proptest::prelude::*;

/// A graph as people would write it: stacks with dependencies on stacks, applications with dependencies on both.
#[derive(Debug, Clone)]
struct Model {
    stacks: Vec<Vec<usize>>,
    apps: Vec<App>,
}

#[derive(Debug, Clone)]
struct App {
    stack: usize,
    on_apps: Vec<usize>,
    on_stacks: Vec<usize>,
    health: u64,
}

/// Random graphs. With `acyclic` every reference goes to a smaller stack, or to an earlier application of the same one.
fn models(acyclic: bool) -> impl Strategy<Value = Model> {
    (1..6_usize, 0..14_usize).prop_flat_map(move |(stacks, apps)| {
        let stack_edges = prop::collection::vec(prop::collection::vec(0..stacks, 0..3), stacks);
        let app =
            (0..stacks, prop::collection::vec(0..apps.max(1), 0..3), prop::collection::vec(0..stacks, 0..2), 1..90_u64);
        (stack_edges, prop::collection::vec(app, apps)).prop_map(move |(edges, apps)| {
            let home: Vec<usize> = apps.iter().map(|app| app.0).collect();
            let stacks = edges
                .into_iter()
                .enumerate()
                .map(|(me, on)| {
                    on.into_iter().filter(|other| if acyclic { *other < me } else { *other != me }).collect()
                })
                .collect();
            let apps = apps
                .into_iter()
                .enumerate()
                .map(|(me, (stack, on_apps, on_stacks, health))| App {
                    stack,
                    on_apps: on_apps
                        .into_iter()
                        .filter(|other| *other < home.len() && *other != me)
                        .filter(|other| !acyclic || home[*other] < stack || (home[*other] == stack && *other < me))
                        .collect(),
                    on_stacks: on_stacks
                        .into_iter()
                        .filter(|other| if acyclic { *other < stack } else { *other != stack })
                        .collect(),
                    health,
                })
                .collect();
            Model { stacks, apps }
        })
    })
}

fn app_name(n: usize) -> String {
    format!("r{}/p{n:02}", n % 3)
}

impl Model {
    /// `graph.yaml`, everything in an order that `shuffle` decides.
    fn yaml(&self, shuffle: &mut dyn FnMut(usize) -> Vec<usize>) -> String {
        let mut text = format!("apiVersion: {API_VERSION}\nkind: DependencyGraph\nspec:\n  stacks:\n");
        let list = |items: Vec<String>, order: Vec<usize>| {
            let quoted: Vec<String> = order.into_iter().map(|i| format!("\"{}\"", items[i])).collect();
            quoted.join(", ")
        };
        for s in shuffle(self.stacks.len()) {
            let on: Vec<String> = self.stacks[s].iter().map(|on| format!("stack:s{on}")).collect();
            let order = shuffle(on.len());
            let _ = writeln!(text, "    - name: s{s}\n      dependsOn: [{}]\n      apps:", list(on, order));
            let members: Vec<usize> = (0..self.apps.len()).filter(|a| self.apps[*a].stack == s).collect();
            for m in shuffle(members.len()) {
                let app = &self.apps[members[m]];
                let on: Vec<String> = app
                    .on_apps
                    .iter()
                    .map(|on| app_name(*on))
                    .chain(app.on_stacks.iter().map(|on| format!("stack:s{on}")))
                    .collect();
                let order = shuffle(on.len());
                let _ = writeln!(
                    text,
                    "        - project: {}\n          dependsOn: [{}]\n          timeouts: {{health: {}m}}",
                    app_name(members[m]),
                    list(on, order),
                    app.health
                );
            }
        }
        text
    }

    fn build(&self) -> Build {
        let text = self.yaml(&mut |n| (0..n).collect());
        let stream = read(&text, Dialect::Strict, Limits::FILE);
        let mut decoder = Decoder::new("graph.yaml");
        let graph = DependencyGraph::decode(&mut decoder, &stream.documents[0]).unwrap();
        assert!(decoder.is_clean(), "{text}\n{:?}", decoder.into_findings());
        Graph::build(&graph, "graph.yaml", None, &[])
    }

    /// What each application waits for, directly or not, by the plainest means.
    fn closure(&self) -> Vec<BTreeSet<usize>> {
        // A stack waits for what it names, and through an empty stack for what that one names.
        let mut awaited_stacks: Vec<BTreeSet<usize>> =
            self.stacks.iter().map(|on| on.iter().copied().collect()).collect();
        let members = |s: usize| (0..self.apps.len()).filter(move |a| self.apps[*a].stack == s);
        for _ in 0..self.stacks.len() {
            for s in 0..self.stacks.len() {
                let through: Vec<usize> = awaited_stacks[s]
                    .iter()
                    .filter(|on| members(**on).next().is_none())
                    .flat_map(|on| awaited_stacks[*on].clone())
                    .collect();
                awaited_stacks[s].extend(through);
            }
        }
        let mut closure: Vec<BTreeSet<usize>> = self
            .apps
            .iter()
            .map(|app| {
                let mut stacks = awaited_stacks[app.stack].clone();
                for on in &app.on_stacks {
                    stacks.insert(*on);
                    if members(*on).next().is_none() {
                        stacks.extend(awaited_stacks[*on].clone());
                    }
                }
                app.on_apps.iter().copied().chain(stacks.iter().flat_map(|s| members(*s))).collect()
            })
            .collect();
        for _ in 0..self.apps.len() {
            for a in 0..self.apps.len() {
                let more: Vec<usize> = closure[a].iter().flat_map(|on| closure[*on].clone()).collect();
                closure[a].extend(more);
            }
        }
        closure
    }

    /// Empty stacks that wait for each other in a circle are a cycle too, though no application is on it.
    fn stacks_circle(&self) -> bool {
        let mut reach: Vec<BTreeSet<usize>> = self.stacks.iter().map(|on| on.iter().copied().collect()).collect();
        for _ in 0..self.stacks.len() {
            for s in 0..self.stacks.len() {
                let more: Vec<usize> = reach[s].iter().flat_map(|on| reach[*on].clone()).collect();
                reach[s].extend(more);
            }
        }
        reach.iter().enumerate().any(|(s, reach)| reach.contains(&s))
    }
}

fn ids(graph: &Graph, nodes: &[NodeIx]) -> BTreeSet<String> {
    nodes.iter().map(|node| graph.node(*node).id.to_string()).collect()
}

fn names(set: &BTreeSet<usize>) -> BTreeSet<String> {
    set.iter().map(|n| app_name(*n)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(forge_testkit::cases(400)))]

    #[test]
    fn closures_order_waves_and_teardown_agree_with_the_naive_model(model in models(true)) {
        let graph = model.build().graph.unwrap();
        let closure = model.closure();
        let order = graph.order();
        let place: BTreeMap<String, usize> =
            order.iter().enumerate().map(|(i, node)| (graph.node(*node).id.to_string(), i)).collect();
        prop_assert_eq!(place.len(), model.apps.len());
        for (a, before) in closure.iter().enumerate() {
            let node = graph.find(&app_name(a).parse().unwrap()).unwrap();
            let mut with = names(before);
            with.insert(app_name(a));
            prop_assert_eq!(ids(&graph, &graph.with_predecessors(&[node])), with.clone());
            // A scope brings its predecessors along, and nothing else.
            let (_, scoped) = graph.scope(&Scope::App(app_name(a)), None).unwrap();
            prop_assert_eq!(ids(&graph, &scoped), with);
            let after: BTreeSet<usize> = (0..closure.len()).filter(|b| closure[*b].contains(&a) || *b == a).collect();
            prop_assert_eq!(ids(&graph, &graph.with_successors(&[node])), names(&after));
            for b in before {
                // Deployed after, and so torn down before (INV-6 is the order read backwards).
                prop_assert!(place[&app_name(*b)] < place[&app_name(a)]);
            }
            let wave = before.iter().map(|b| graph.wave(graph.find(&app_name(*b).parse().unwrap()).unwrap()) + 1).max();
            prop_assert_eq!(graph.wave(node), wave.unwrap_or(0));
        }
    }

    #[test]
    fn the_critical_path_is_the_heaviest_chain(model in models(true)) {
        let graph = model.build().graph.unwrap();
        let closure = model.closure();
        let weight = |a: usize| 300 + model.apps[a].health * 60;
        let mut heaviest = vec![0_u64; closure.len()];
        for _ in 0..closure.len() {
            for a in 0..closure.len() {
                heaviest[a] = weight(a) + closure[a].iter().map(|b| heaviest[*b]).max().unwrap_or(0);
            }
        }
        let path = graph.critical_path();
        let total: u64 = path.iter().map(|node| graph.node(*node).budget().seconds()).sum();
        prop_assert_eq!(total, heaviest.iter().copied().max().unwrap_or(0));
        for pair in path.windows(2) {
            prop_assert!(graph.predecessors(pair[1]).contains(&pair[0]));
        }
    }

    #[test]
    fn reduction_keeps_every_order_and_no_edge_that_follows_from_others(model in models(true)) {
        let graph = model.build().graph.unwrap();
        let nodes: Vec<NodeIx> = graph.indexes().collect();
        let reduced = graph.reduced(&nodes);
        let mut reach: Vec<BTreeSet<usize>> = Vec::new();
        for (_, before) in &reduced.tasks {
            let direct: Vec<usize> = before.iter().map(|b| b.index()).collect();
            let mut all: BTreeSet<usize> = direct.iter().copied().collect();
            for b in &direct {
                all.extend(reach[*b].clone());
                let others = direct.iter().filter(|o| *o != b).any(|o| reach[*o].contains(b));
                prop_assert!(!others, "an edge that follows from others");
            }
            reach.push(all);
        }
        let closure = model.closure();
        for (t, (task, _)) in reduced.tasks.iter().enumerate() {
            let Task::Node(node) = task else { continue };
            let a = (0..closure.len()).find(|a| app_name(*a) == graph.node(*node).id.as_str()).unwrap();
            let found: BTreeSet<String> = reach[t]
                .iter()
                .filter_map(|r| match reduced.tasks[*r].0 {
                    Task::Node(node) => Some(graph.node(node).id.to_string()),
                    _ => None,
                })
                .collect();
            prop_assert_eq!(found, names(&closure[a]));
        }
    }

    #[test]
    fn a_graph_is_refused_exactly_when_the_model_has_a_cycle_and_the_cycle_is_a_real_one(model in models(false)) {
        let build = model.build();
        let closure = model.closure();
        let cyclic = closure.iter().enumerate().any(|(a, on)| on.contains(&a)) || model.stacks_circle();
        prop_assert_eq!(build.graph.is_none(), cyclic, "{:?}", build.findings);
        for finding in &build.findings {
            let path: Vec<&str> = finding.message.strip_prefix("dependency cycle: ").unwrap().split(" → ").collect();
            prop_assert_eq!(path.first(), path.last());
            prop_assert!(path.len() > 2, "{}", finding.message);
            for name in path.iter().filter(|name| !name.starts_with("stack:")) {
                let a = (0..closure.len()).find(|a| app_name(*a) == **name).unwrap();
                prop_assert!(closure[a].contains(&a), "{} is on no cycle: {}", name, finding.message);
            }
        }
    }
}

/// Everything that a user can get out of a repository, from files in this order.
fn outputs(model: &Model, shuffle: &mut dyn FnMut(usize) -> Vec<usize>) -> [String; 5] {
    let forge = format!(
        "apiVersion: {API_VERSION}\nkind: Forge\nspec:\n  repository: {{url: https://git.example.com/p.git}}\n  environments: [{{name: dev, cluster: dev, sync: auto}}]\n"
    );
    let mut files = vec![("forge.yaml".to_owned(), forge), ("graph.yaml".to_owned(), model.yaml(shuffle))];
    for a in 0..model.apps.len() {
        let (repo, project) = app_name(a).split_once('/').map(|(r, p)| (r.to_owned(), p.to_owned())).unwrap();
        let text = format!(
            "apiVersion: {API_VERSION}\nkind: ReleasePointer\nmetadata: {{name: {project}}}\nspec: {{release: \"{:040x}\", digest: \"sha256:{:064x}\"}}\n",
            a + 1,
            a + 1
        );
        files.push((format!("dev/apps/{repo}/{project}/release.yaml"), text));
    }
    let content = |text: &str| Content::Bytes(text.as_bytes().to_vec());
    let context = Context::new(Some(&content(&files[0].1)), files.iter().map(|(path, _)| path.as_str()));
    let inspected =
        shuffle(files.len()).into_iter().map(|i| inspect(&context, &files[i].0, &content(&files[i].1))).collect();
    let report = assemble(&context, inspected);
    let repository = report.repository.unwrap();
    let environment = repository.environment("dev").unwrap();
    let graph = repository.environment_graph(environment).graph.unwrap();
    let (scope, nodes) = graph.scope(&Scope::Platform, None).unwrap();
    let plan = plan(&repository, environment, &graph, &scope, &nodes);
    let content = |_: &_| forge_core::gate::Content::Revisions { revisions: Vec::new() };
    let run = forge_core::run::RunPlan::new(plan.run().parse().unwrap(), &plan, &graph, &nodes, content);
    let findings: Vec<String> = report.findings.iter().map(|f| format!("{} {}", f.code, f.message)).collect();
    [
        serde_json::to_string(&plan).unwrap(),
        render::workflow(&run, &render::Places::default(), 0).unwrap().to_string(),
        render::svg(&graph, &nodes),
        format!("{}{}", render::mermaid(&graph, &nodes), render::dot(&graph, &nodes)),
        findings.join("\n"),
    ]
}

/// Fisher and Yates with splitmix, so that a failure replays.
fn permutation(state: &mut u64, n: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    for i in (1..n).rev() {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        order.swap(i, usize::try_from((z ^ (z >> 31)) % (i as u64 + 1)).unwrap());
    }
    order
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(forge_testkit::cases(2000).div_ceil(100)))]

    #[test]
    fn two_hundred_shuffles_of_the_input_give_the_same_bytes(model in models(true), seed in any::<u64>()) {
        let straight = outputs(&model, &mut |n| (0..n).collect());
        let mut state = seed;
        for _ in 0..200 {
            let shuffled = outputs(&model, &mut |n| permutation(&mut state, n));
            prop_assert_eq!(&shuffled, &straight);
        }
    }
}
