//! Whatever is killed while a platform goes, this teardown or the next one ends, in order, and a hundred strangers stay. For
//! `make soak`: `FORGE_SEED` replays it, `FORGE_TEARDOWN_KILLS` says how often.

use std::io::Write as _;
use std::process::{Child, Stdio};
use std::time::Duration;

use forge_testkit::campaign::number;
use forge_testkit::generate::Random;
use forge_testkit::order;
use forge_testkit::platform::mark;
use forge_testkit::sandbox::{eventually, run};
use forge_testkit::twin::{self, TwinNode, config_map, deployment};
use serde_json::json;

use super::{Keeper, applications, by_forge, command, completed, predecessors};
use crate::install::{points, writes};
use crate::kill::{self, TARGETS};
use crate::stage::{PATIENCE, Stage};

/// Applications and namespaces of somebody else, all in one go; gives what Kubernetes knows them by.
fn strangers(stage: &Stage, count: usize) -> Vec<String> {
    let name = |n: usize| format!("somebodys-{}-{n}", stage.environment.name);
    let label = json!({(twin::LABEL): format!("{}-strangers", stage.environment.name)});
    let mut items = Vec::new();
    for n in 0..count {
        let metadata = json!({"name": name(n), "labels": label});
        items.push(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}));
        items.push(json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
            "metadata": {"name": name(n), "namespace": "argocd", "labels": label},
            "spec": {
                "project": "default",
                "source": {"repoURL": stage.environment.url, "targetRevision": "main", "path": "apps/base"},
                "destination": {"server": "https://kubernetes.default.svc", "namespace": name(n)},
            },
        }));
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
    let made = stage.environment.platform.sandbox.try_kubectl(&["apply", "--server-side", "-f", "-"], Some(&list));
    assert_eq!(made.code, 0, "{}", made.stderr);
    theirs(stage)
}

/// Who is there of them: those that are being deleted count as gone.
fn theirs(stage: &Stage) -> Vec<String> {
    let label = format!("{}={}-strangers", twin::LABEL, stage.environment.name);
    let mut found = Vec::new();
    for (kind, place) in [("applications", "argocd"), ("namespaces", "default")] {
        let list = stage.environment.json(&["get", kind, "-n", place, "-l", &label]);
        for item in list["items"].as_array().into_iter().flatten() {
            if item["metadata"]["deletionTimestamp"].is_null() {
                found.push(item["metadata"]["uid"].as_str().unwrap().to_owned());
            }
        }
    }
    found.sort_unstable();
    found
}

/// A teardown, with nobody who listens.
fn begun(stage: &Stage) -> Child {
    command(stage).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Before a write of its own.
fn at_a_write(stage: &Stage, point: &str) -> (String, bool) {
    let killed = run(command(stage).env("FORGE_FAILPOINT", point), None);
    assert_eq!(killed.code, -1, "{point}: {}\n{}", killed.stdout, killed.stderr);
    (format!("killed before {point}"), true)
}

/// What Forge wrote since then to what is somebody else's: nothing, whatever it is.
fn meddling(stage: &Stage, lines: &[order::Line]) -> Vec<String> {
    let theirs = format!("somebodys-{}-", stage.environment.name);
    let of_theirs = |line: &&order::Line| line.name.starts_with(&theirs) || line.namespace.starts_with(&theirs);
    lines.iter().filter(|line| by_forge(&line.user)).filter(of_theirs).map(|line| format!("{line:?}")).collect()
}

/// When so many nodes are left. What happened, and whether it met the teardown.
fn with_nodes_left(stage: &Stage, left: usize) -> (String, bool) {
    let mut child = begun(stage);
    eventually("so many nodes are gone", PATIENCE, || {
        let there = applications(stage).len();
        if there <= left || child.try_wait().unwrap().is_some() { Ok(()) } else { Err(there.to_string()) }
    });
    let lives = child.try_wait().unwrap().is_none();
    let _ = child.kill();
    child.wait().unwrap();
    (format!("{} with {left} nodes left", if lives { "killed" } else { "it had ended" }), lives)
}

/// Somebody whom it needs dies at a random moment. It may give up or come to its end; it may not stay.
fn without(stage: &Stage, target: &str, random: &mut Random) -> (String, bool) {
    let before = stage.runs();
    let mut child = begun(stage);
    let run_name = eventually("its nodes begin to go", PATIENCE, || match stage.runs().last() {
        Some(newest) if !before.contains(newest) => Ok(newest.clone()),
        _ if child.try_wait().unwrap().is_some() => Ok(String::new()),
        _ => Err("no run yet".to_owned()),
    });
    // The moment is what is random here, so it is drawn and not waited for.
    std::thread::sleep(Duration::from_millis(100 * u64::try_from(random.below(50)).unwrap()));
    let sandbox = &stage.environment.platform.sandbox;
    let hit = kill::lose(sandbox, target, &run_name, || child.try_wait().unwrap().is_some());
    let ended =
        eventually("it ends without a person", 2 * PATIENCE, || child.try_wait().unwrap().ok_or_else(String::new));
    let met = if hit { "lost" } else { "it had ended before it lost" };
    (format!("{met} {target}, exit {}", ended.code().unwrap_or(-1)), hit)
}

#[test]
#[ignore = "takes two hours; tools/soak runs it"]
fn killed_at_any_moment_the_next_one_ends_and_a_hundred_strangers_stay() {
    let stage = Stage::new("teardown-kills", false, |options| {
        let node = |name: &str, before: &[&str], file| {
            let mut node = TwinNode::new(name, before, vec![file]);
            // What was killed is not started again at once.
            node.settings = "timeouts: {sync: 5m, health: 5m}".to_owned();
            node
        };
        let pod = |name: &str| deployment(name, &options.image, 1, &[]);
        vec![
            node("base", &[], config_map("base", "1")),
            node("db", &["base"], pod("db")),
            node("web", &["db"], pod("web")),
        ]
    });
    let (seed, rounds) = (number("FORGE_SEED", 1), number("FORGE_TEARDOWN_KILLS", 50));
    let mut random = Random::new(seed);
    let keeper = Keeper::new(&stage);
    let graph = predecessors(&stage, &[("db", &["base"]), ("web", &["db"])]);
    let before = strangers(&stage, 100);
    assert_eq!(before.len(), 200);
    let sandbox = &stage.environment.platform.sandbox;
    let image = stage.environment.platform.image().to_owned();
    let file = stage.environment.repository.folder().join("argocd/applications.yaml");
    // The teardown itself dies in every other round.
    let targets: Vec<&str> = TARGETS.into_iter().filter(|target| *target != "executor").collect();
    let come = || {
        kill::fresh(sandbox);
        let made = stage.forge(&["bootstrap", "--image", &image]);
        assert_eq!(made.code, 0, "{}", made.stderr);
        stage.kubectl(&["apply", "--server-side", "-f", &file.to_string_lossy()]);
        stage.deploy(0);
    };
    // What it writes where nothing comes between.
    come();
    let points = points(&writes(command(&stage), 0));
    let mut hits = 0;
    for round in 0..rounds {
        come();
        let since = mark();
        let turn = round / 4;
        let (after, hit) = match round % 4 {
            0 => at_a_write(&stage, &points[random.below(points.len())]),
            2 => with_nodes_left(&stage, usize::try_from(turn % 3).unwrap()),
            _ => without(&stage, targets[usize::try_from(round / 2).unwrap() % targets.len()], &mut random),
        };
        hits += u64::from(hit);
        completed(&stage, &after);
        assert_eq!(theirs(&stage), before, "seed {seed}, round {round}, {after}");
        let lines = stage.environment.audit(since);
        assert_eq!(meddling(&stage, &lines), Vec::<String>::new(), "seed {seed}, round {round}, {after}");
        assert_eq!(
            order::removed_too_early(&graph, &lines),
            Vec::<String>::new(),
            "seed {seed}, round {round}, {after}"
        );
        let edges = order::removals_judged(&graph, &lines);
        // What was not logged while the API server was away cannot be judged.
        let logged = !["kube-apiserver", "etcd"].iter().any(|lost| after.contains(lost));
        assert!(edges == 2 || !logged, "seed {seed}, round {round}, {after}: {edges} edges judged");
        let _ = writeln!(std::io::stderr(), "teardown: seed {seed}, round {round}: {after}; {edges} edges judged");
    }
    let _ = writeln!(std::io::stderr(), "teardown: seed {seed}, {rounds} rounds, {hits} of them met it");
    assert!(hits * 2 >= rounds, "{hits} of {rounds}");
    drop(keeper);
    let label = format!("{}={}-strangers", twin::LABEL, stage.environment.name);
    stage.kubectl(&["delete", "applications", "-n", "argocd", "-l", &label, "--wait=false"]);
    stage.kubectl(&["delete", "namespaces", "-l", &label, "--wait=false"]);
}
