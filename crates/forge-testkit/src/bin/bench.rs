//! `make bench`: what operations cost, as ratios measured side by side in one run. Nothing here is asserted: machines are
//! shared and noisy, and a figure is for people to judge.
//!
//! Usage: bench FORGE KUBECONFORM

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::collections::BTreeSet;
use std::error::Error;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use forge_core::format::{DependencyGraph, KINDS, schema};
use forge_core::graph::{Graph, Scope};
use forge_core::plan::plan;
use forge_core::repository::Repository;
use forge_core::validate::{Content, tree};
use forge_core::yaml::{Decoder, Dialect, Limits, read};
use forge_testkit::bench::render;
use forge_testkit::generate;

const SEED: u64 = 20_260_101;
const PROJECTS: usize = 10_000;
const EDGES: usize = 30_000;
const PLANTED: usize = 40;
const ROUNDS: usize = 7;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(forge), Some(kubeconform)) = (arguments.next(), arguments.next()) else {
        return Err("usage: bench FORGE KUBECONFORM".into());
    };
    let (forge, kubeconform) = (Path::new(&forge), Path::new(&kubeconform));
    println!("seed {SEED}; medians of {ROUNDS} rounds, measured in turn\n");
    start_up(forge)?;
    lint(forge, kubeconform)?;
    planning()?;
    println!("\n{}", render::measure(forge)?);
    sandbox(forge)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Runs a command with its output thrown away; gives its time and the most memory it was seen to use.
fn run(command: &mut Command) -> Result<(Duration, u64), Box<dyn Error>> {
    let start = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let status = format!("/proc/{}/status", child.id());
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // A thread of its own looks at the memory, seldom enough not to take part in the race.
        let watch = scope.spawn(|| {
            let mut peak = 0;
            while !ended.load(Ordering::Relaxed) {
                let seen = std::fs::read_to_string(&status).ok().and_then(|text| {
                    let line = text.lines().find(|line| line.starts_with("VmHWM:"))?;
                    line.split_whitespace().nth(1)?.parse::<u64>().ok()
                });
                peak = peak.max(seen.unwrap_or(0));
                std::thread::sleep(Duration::from_millis(8));
            }
            peak
        });
        let result = child.wait();
        let elapsed = start.elapsed();
        ended.store(true, Ordering::Relaxed);
        let peak = watch.join().unwrap_or(0);
        result?;
        Ok((elapsed, peak))
    })
}

fn start_up(forge: &Path) -> Result<(), Box<dyn Error>> {
    let (mut ours, mut nothing) = (Vec::new(), Vec::new());
    for _ in 0..30 {
        ours.push(run(Command::new(forge).arg("--version"))?.0);
        nothing.push(run(&mut Command::new("true"))?.0);
    }
    let (ours, nothing) = (median(ours), median(nothing));
    println!("start      forge --version {ours:.2?}   `true` {nothing:.2?}   (wanted: under 10 ms)\n");
    Ok(())
}

fn lint(forge: &Path, kubeconform: &Path) -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let root = folder.path().join("repository");
    let schemas = folder.path().join("schemas");
    std::fs::create_dir_all(&schemas)?;
    for kind in KINDS {
        let schema = schema(kind).ok_or("a kind without a schema")?;
        std::fs::write(schemas.join(format!("{}.json", kind.to_lowercase())), schema.as_value().to_string())?;
    }
    let broken: BTreeSet<String> = generate::repository(&root, PROJECTS, EDGES, PLANTED, SEED)?.into_iter().collect();
    let files = PROJECTS + PROJECTS.div_ceil(4) + 2;
    let location = format!("{}/{{{{.ResourceKind}}}}.json", schemas.display());
    let ours = || {
        let mut command = Command::new(forge);
        command.arg("-C").arg(&root).args(["lint", "--output", "json"]);
        command
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from).to_string();
    let theirs = || {
        let mut command = Command::new(kubeconform);
        command.args(["-n", &cores, "-strict", "-schema-location", &location, "-output", "json"]).arg(&root);
        command
    };
    let found_by_forge: BTreeSet<String> = {
        let output = ours().output()?;
        let report: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        let findings = report.get("findings").and_then(serde_json::Value::as_array).cloned().unwrap_or_default();
        let code = |f: &serde_json::Value| f.get("code").and_then(serde_json::Value::as_str).unwrap_or("").to_owned();
        let wrong = findings.iter().filter(|f| code(f).starts_with("FORGE-F") || code(f).starts_with("FORGE-P"));
        wrong.filter_map(|f| f.get("path")?.as_str().map(ToOwned::to_owned)).collect()
    };
    let found_by_kubeconform: BTreeSet<String> = {
        let output = theirs().output()?;
        let report: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        let resources = report.get("resources").and_then(serde_json::Value::as_array).cloned().unwrap_or_default();
        let names = resources.iter().filter_map(|r| r.get("filename")?.as_str().map(ToOwned::to_owned));
        let prefix = format!("{}/", root.display());
        names.map(|name| name.strip_prefix(&prefix).unwrap_or(&name).to_owned()).collect()
    };
    let (mut mine, mut other, mut mine_peak, mut other_peak) = (Vec::new(), Vec::new(), 0, 0);
    for _ in 0..ROUNDS {
        let (time, peak) = run(&mut ours())?;
        mine.push(time);
        mine_peak = mine_peak.max(peak);
        let (time, peak) = run(&mut theirs())?;
        other.push(time);
        other_peak = other_peak.max(peak);
    }
    let (mine, other) = (median(mine), median(other));
    let rate = |time: Duration| files as f64 / time.as_secs_f64();
    println!(
        "lint       {files} files, a graph of {PROJECTS} nodes and {EDGES} edges, {} planted errors",
        broken.len()
    );
    println!(
        "           forge       {mine:>9.1?}  {:>9.0} files/s  {:>4} MB  planted found: {}",
        rate(mine),
        mine_peak / 1024,
        found_by_forge == broken
    );
    println!(
        "           kubeconform {other:>9.1?}  {:>9.0} files/s  {:>4} MB  planted found: {}",
        rate(other),
        other_peak / 1024,
        found_by_kubeconform == broken
    );
    println!(
        "           ratio {:.1}   (wanted: at least 5, forge under 300 MB)\n",
        other.as_secs_f64() / mine.as_secs_f64()
    );
    Ok(())
}

fn planning() -> Result<(), Box<dyn Error>> {
    println!(
        "plan       read: YAML to graph file; plan: graph, order, plan and hash   (wanted: 10,000 nodes under 200 ms, linear)"
    );
    let forge = b"apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: Forge\nspec:\n  repository: {url: https://git.example.com/p.git}\n  environments: [{name: dev, cluster: dev, sync: auto}]\n";
    let small = "apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: DependencyGraph\nspec: {stacks: []}\n";
    let files = [("forge.yaml", &forge[..]), ("graph.yaml", small.as_bytes())];
    let files = files.into_iter().map(|(path, bytes)| (path.to_owned(), Content::Bytes(bytes.to_vec()))).collect();
    let repository: Repository = tree(&files).repository.ok_or("the empty repository is not one")?;
    let environment = repository.environment("dev").ok_or("no environment")?;
    for nodes in [1_000, 10_000, 25_000, 50_000, 100_000] {
        let text = generate::graph_yaml(nodes, 3 * nodes, SEED);
        let (mut reading, mut planning) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS.min(5) {
            let start = Instant::now();
            let stream = read(&text, Dialect::Strict, Limits::FILE);
            let mut decoder = Decoder::new("graph.yaml");
            let document = stream.documents.first().ok_or("no document")?;
            let graph_file = DependencyGraph::decode(&mut decoder, document).ok_or("no graph")?;
            reading.push(start.elapsed());
            let start = Instant::now();
            let graph = Graph::build(&graph_file, "graph.yaml", None, &[]).graph.ok_or("not a graph")?;
            let (scope, scoped) = graph.scope(&Scope::Platform, None)?;
            let plan = plan(&repository, environment, &graph, &scope, &scoped);
            planning.push(start.elapsed());
            if plan.nodes.len() != nodes {
                return Err("nodes were lost".into());
            }
        }
        let (reading, planning) = (median(reading), median(planning));
        println!(
            "           {nodes:>7} nodes  read {:>8.1?}  plan {:>8.1?}  {:.2} µs a node",
            reading,
            planning,
            planning.as_secs_f64() * 1e6 / nodes as f64
        );
    }
    Ok(())
}

/// From a warm cache to a cluster that serves, beside the time of each of its parts, and back to nothing.
fn sandbox(forge: &Path) -> Result<(), Box<dyn Error>> {
    const ROUNDS: usize = 3;
    let command = |args: &[&str]| {
        let output =
            Command::new(forge).args(["sandbox", "--name", "bench"]).args(args).stderr(Stdio::inherit()).output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            Ok(said)
        } else {
            Err(format!("forge sandbox {}: {}", args.join(" "), output.status))
        }
        .map_err(Box::<dyn Error>::from)
    };
    println!("\nsandbox: medians of {ROUNDS} rounds from a warm cache");
    command(&["down"])?;
    let (mut ups, mut downs, mut parts) = (Vec::new(), Vec::new(), Vec::<(String, Vec<Duration>)>::new());
    let mut memory = 0;
    for round in 0..ROUNDS {
        let said: serde_json::Value = serde_json::from_str(&command(&["up", "--output", "json"])?)?;
        let seconds = |value: &serde_json::Value| {
            Duration::from_secs_f64(value.get("seconds").and_then(serde_json::Value::as_f64).unwrap_or_default())
        };
        ups.push(seconds(&said));
        for step in said.get("steps").and_then(serde_json::Value::as_array).into_iter().flatten() {
            let name = step.get("name").and_then(serde_json::Value::as_str).unwrap_or_default();
            match parts.iter_mut().find(|(known, _)| known == name) {
                Some((_, times)) => times.push(seconds(step)),
                None => parts.push((name.to_owned(), vec![seconds(step)])),
            }
        }
        if round == 0 {
            let status: serde_json::Value = serde_json::from_str(&command(&["status", "--output", "json"])?)?;
            memory = status.get("memoryBytes").and_then(serde_json::Value::as_u64).unwrap_or_default() >> 20;
        }
        let start = Instant::now();
        command(&["down"])?;
        downs.push(start.elapsed());
    }
    let up = median(ups);
    for (name, times) in parts {
        let time = median(times);
        println!(
            "  {name:<32} {:>6.2} s  {:>3.0} %",
            time.as_secs_f64(),
            100.0 * time.as_secs_f64() / up.as_secs_f64()
        );
    }
    println!("  components of one step start together and are timed from its start");
    println!(
        "  up {:.1} s (wanted: 40 s or less), down {:.1} s (10 s), idle {memory} MiB (1536 MiB)",
        up.as_secs_f64(),
        median(downs).as_secs_f64()
    );
    Ok(())
}
