//! Graphs of growing size in one Workflow: time, memory and processor time of those who run it, and the size of what is
//! stored. Every node is an Application with a workload on a simulated node, or with nothing but a ConfigMap.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::growth::{self, Row};
use super::processes::{Part, Sampler, Usage};
use super::times::{Hops, Timed, between};
use super::{CONTROLLER, Measured, WORKFLOWS, config_maps, controller_ready, deploy, kubectl, leave, prepare, say};
use crate::generate::Random;
use crate::platform::Platform;
use crate::twin::{self, Options, TwinNode, config_map, kwok_deployment};

/// Nodes of a layer.
const WIDTH: usize = 20;
/// Most direct predecessors of a node.
const MOST: usize = 3;
/// Seconds to readiness of a simulated workload.
const READY_AFTER: u32 = 1;

/// What a node deploys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// A Deployment with a simulated pod.
    Kwok,
    /// A ConfigMap, where Deployments are too much for the machine.
    ConfigMap,
}

impl Workload {
    /// By the word that `FORGE_BENCH_WORKLOAD` has for it.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "kwok" => Some(Self::Kwok),
            "configmap" => Some(Self::ConfigMap),
            _ => None,
        }
    }

    /// As people say it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kwok => "a Deployment with a simulated pod, ready after 1 s",
            Self::ConfigMap => "a ConfigMap",
        }
    }
}

/// What a size took.
#[derive(Debug, Clone)]
pub struct Figures {
    nodes: usize,
    edges: usize,
    /// Seconds until Argo CD had compared all Applications for the first time: before the run.
    compared: f64,
    /// Seconds that the command took.
    command: f64,
    /// Seconds of the run by its header.
    run: Option<f64>,
    makespan: f64,
    critical: f64,
    hops: Hops,
    usage: BTreeMap<Part, Usage>,
    stored: Stored,
    resubmitted: u32,
    agents_replaced: u32,
}

/// Bytes of what a run leaves in the cluster, as JSON without white space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Stored {
    spec: usize,
    status: usize,
    /// Of the status, the nodes in compressed form; 0 where they are not compressed.
    compressed: usize,
    plan: usize,
    record: usize,
    config_maps: usize,
}

/// A graph of layers: every node waits for one to three of the layer before. The same seed gives the same graph.
pub fn layered(nodes: usize, seed: u64) -> Vec<(String, Vec<String>)> {
    let mut random = Random::new(seed);
    let name = |n: usize| format!("n{n:04}");
    let node = |n: usize| {
        let first = (n / WIDTH) * WIDTH;
        let mut before = BTreeSet::new();
        if first > 0 {
            let wanted = 1 + random.below(MOST);
            while before.len() < wanted {
                before.insert(first - WIDTH + random.below(WIDTH));
            }
        }
        (name(n), before.into_iter().map(name).collect())
    };
    (0..nodes).map(node).collect()
}

/// Deploys a graph of this size, in an environment that is gone afterwards.
///
/// # Errors
/// When it is not deployed.
pub fn measure(platform: &'static Platform, nodes: usize, workload: Workload, seed: u64) -> Measured<Figures> {
    say(&format!("{nodes} nodes, each {}", workload.as_str()));
    // Memory that a controller once had it keeps: each size has one of its own.
    kubectl(&platform.sandbox, &["rollout", "restart", CONTROLLER, "-n", WORKFLOWS], None)?;
    controller_ready(platform)?;
    let environment = platform.environment("scale");
    let timeouts = Some(("1h".to_owned(), "1h".to_owned()));
    let options = Options { timeouts, ..environment.options() };
    let graph = layered(nodes, seed);
    let twins: Vec<TwinNode> =
        graph.iter().map(|(name, before)| node(name, before, workload, &options.image)).collect();
    let files = twin::small(&options, &twins);
    let files: Vec<_> = files.into_iter().map(|file| in_one_namespace(file, &options)).collect();
    environment.push(&files, "layers");
    let compared = prepare(&environment, nodes, &[])?;
    say(&format!("Argo CD compared all for the first time after {compared:.0} s"));
    let sampler = Sampler::start(&platform.sandbox);
    let (run, command) = deploy(&environment, &[])?;
    let usage = sampler.stop();
    let timed = Timed::of(&run);
    let header = &run.record.header;
    let workflow = header.workflow.clone().unwrap_or_else(|| format!("forge-{}", header.run));
    let workflow = environment.json(&["get", "workflow", &workflow, "-n", WORKFLOWS]);
    let figures = Figures {
        nodes,
        edges: run.plan.tasks.iter().map(|task| task.before.len()).sum(),
        compared,
        command,
        run: header.ended.as_ref().map(|ended| between(header.started, ended.at)),
        makespan: timed.makespan(),
        critical: timed.critical_path(),
        hops: Hops::of(&run),
        usage,
        stored: Stored::of(&workflow, &config_maps(&environment)),
        resubmitted: header.resubmitted,
        agents_replaced: header.agents_replaced,
    };
    say(&format!("{nodes} nodes are proven after {command:.0} s"));
    leave(platform, environment)?;
    Ok(figures)
}

fn node(name: &str, before: &[String], workload: Workload, image: &str) -> TwinNode {
    let before: Vec<&str> = before.iter().map(String::as_str).collect();
    let manifest = match workload {
        Workload::Kwok => kwok_deployment(name, image, READY_AFTER, false),
        Workload::ConfigMap => config_map(name, name),
    };
    TwinNode::new(name, &before, vec![manifest])
}

/// A file with all Applications bound for one namespace: making and removing a thousand of them is not what is measured.
fn in_one_namespace((path, text): (String, String), options: &Options) -> (String, String) {
    if path != "argocd/applications.yaml" {
        return (path, text);
    }
    let start = format!("    namespace: {}-", options.environment);
    let wanted = format!("    namespace: {}\n", options.application("nodes"));
    let lines = text.split_inclusive('\n');
    let text = lines.map(|line| if line.starts_with(&start) { wanted.as_str() } else { line }).collect();
    (path, text)
}

impl Stored {
    fn of(workflow: &Value, config_maps: &[Value]) -> Self {
        let size = |value: Option<&Value>| value.map_or(0, |value| value.to_string().len());
        let status = workflow.get("status");
        let compressed = status.and_then(|status| status.get("compressedNodes")).and_then(Value::as_str);
        let mut stored = Self {
            spec: size(workflow.get("spec")),
            status: size(status),
            compressed: compressed.map_or(0, str::len),
            ..Self::default()
        };
        for config_map in config_maps {
            let name = config_map.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
            let data = config_map.get("data").and_then(Value::as_object);
            let bytes: usize =
                data.into_iter().flatten().map(|(key, text)| key.len() + text.as_str().map_or(0, str::len)).sum();
            if name.starts_with("forge-plan-") {
                stored.plan += bytes;
            } else if name.starts_with("forge-run-") {
                stored.record += bytes;
            } else {
                continue;
            }
            stored.config_maps += 1;
        }
        stored
    }
}

/// A row of the table: what it is, its decimals, and how it is read off.
type Column<'c> = (String, usize, Box<dyn Fn(&Figures) -> Option<f64> + 'c>);

fn processor<'c>(part: Part) -> Column<'c> {
    let of = move |f: &Figures| f.usage.get(&part).map(|usage| usage.processor);
    (format!("{} processor time, s", part.as_str()), 2, Box::new(of))
}

fn rows(columns: Vec<Column<'_>>, figures: &[Figures]) -> Vec<Row> {
    let row = |(what, decimals, of): Column<'_>| Row { what, decimals, values: figures.iter().map(of).collect() };
    columns.into_iter().map(row).collect()
}

/// The sizes side by side.
pub fn table(figures: &[Figures]) -> String {
    let kib = |bytes: usize| Some(bytes as f64 / 1024.0);
    let mut columns: Vec<Column<'_>> = vec![
        ("edges after reduction".into(), 0, Box::new(|f| Some(f.edges as f64))),
        ("first comparison by Argo CD, s".into(), 1, Box::new(|f| Some(f.compared))),
        ("command, s".into(), 1, Box::new(|f| Some(f.command))),
        ("run, s".into(), 1, Box::new(|f| f.run)),
        ("makespan, s".into(), 1, Box::new(|f| Some(f.makespan))),
        ("run before and after that, s".into(), 1, Box::new(|f| f.run.map(|run| run - f.makespan))),
        ("measured critical path, s".into(), 1, Box::new(|f| Some(f.critical))),
        ("proof to sync request p50, s".into(), 3, Box::new(|f| Some(f.hops.quantile(0.5)))),
        ("proof to sync request p95, s".into(), 3, Box::new(|f| Some(f.hops.quantile(0.95)))),
    ];
    for part in Part::ALL {
        let peak = move |f: &Figures| f.usage.get(&part).map(|usage| usage.peak as f64 / 1024.0);
        columns.push((format!("{} peak memory, MiB", part.as_str()), 1, Box::new(peak)));
        columns.push(processor(part));
    }
    columns.push(("Workflow spec, KiB".into(), 1, Box::new(move |f| kib(f.stored.spec))));
    columns.push(("Workflow status, KiB".into(), 1, Box::new(move |f| kib(f.stored.status))));
    columns.push(("plan, KiB".into(), 1, Box::new(move |f| kib(f.stored.plan))));
    columns.push(("record, KiB".into(), 1, Box::new(move |f| kib(f.stored.record))));
    columns.push(("ConfigMaps of plan and record".into(), 0, Box::new(|f| Some(f.stored.config_maps as f64))));
    let sizes: Vec<usize> = figures.iter().map(|figures| figures.nodes).collect();
    let mut text = growth::table("nodes", &sizes, &rows(columns, figures));
    text.push_str("  growth: of the figure ÷ of the nodes; 1 is linear   (wanted: no worse than linear)\n");
    // Of the first layer nobody waits for anything, so a larger graph has more edges for each node.
    let sizes: Vec<usize> = figures.iter().map(|figures| figures.nodes + figures.edges).collect();
    text.push_str(&growth::table("nodes and edges", &sizes, &rows(Part::ALL.map(processor).into(), figures)));
    for figures in figures {
        let Figures { nodes, stored, resubmitted, agents_replaced, .. } = figures;
        let nodes_in_status = match stored.compressed {
            0 => "not compressed".to_owned(),
            bytes => format!("compressed to {} KiB", bytes >> 10),
        };
        text.push_str(&format!(
            "  {nodes} nodes: those in the status are {nodes_in_status}; submitted again {resubmitted} times, agents replaced {agents_replaced} times\n"
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn layers_wait_for_the_layer_before_and_a_seed_replays() {
        let graph = layered(95, 7);
        assert_eq!(graph, layered(95, 7));
        assert_ne!(graph, layered(95, 8));
        for (n, (_, before)) in graph.iter().enumerate() {
            let layer = n / WIDTH;
            assert_eq!(before.is_empty(), layer == 0);
            assert!(before.len() <= MOST);
            for name in before {
                let place: usize = name.trim_start_matches('n').parse().unwrap();
                assert_eq!(place / WIDTH + 1, layer, "n{n} waits for {name}");
            }
        }
    }

    #[test]
    fn all_applications_share_a_namespace_that_goes_with_the_environment() {
        let options = Options::new("dev", "http://git/x.git", "image@sha256:0");
        let nodes = [TwinNode::new("n0000", &[], vec![]), TwinNode::new("n0001", &["n0000"], vec![])];
        let files = twin::small(&options, &nodes).into_iter().map(|file| in_one_namespace(file, &options));
        let text = files.filter(|(path, _)| path == "argocd/applications.yaml").map(|(_, text)| text).next().unwrap();
        assert_eq!(text.matches("    namespace: dev-nodes\n").count(), 2);
        assert_eq!(text.matches("\n  namespace: argocd\n").count(), 2);
        assert!(text.contains("  name: dev-n0001\n"));
    }

    #[test]
    fn what_is_stored_is_told_apart_by_name() {
        let map = |name: &str, text: &str| json!({"metadata": {"name": name}, "data": {"k": text}});
        let maps =
            [map("forge-plan-r-0", "1234"), map("forge-run-r-0", "12"), map("forge-run-r-1", "1"), map("x", "9")];
        let stored = Stored::of(&json!({"spec": {}, "status": {"compressedNodes": "abc"}}), &maps);
        let wanted = Stored { spec: 2, status: 25, compressed: 3, plan: 5, record: 5, config_maps: 3 };
        assert_eq!(stored, wanted);
    }
}
