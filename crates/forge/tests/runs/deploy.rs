//! From nothing to proven, and a second time that changes nothing.

use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use forge_testkit::order;
use forge_testkit::platform::{Platform, mark};
use forge_testkit::sandbox::eventually;
use forge_testkit::twin::{self, TwinNode, config_map, deployment};
use serde_json::{Value, json};

use crate::stage::{PATIENCE, Stage, names};

/// Identities that act for Forge in a cluster, and the person who calls it.
fn is_forge(user: &str) -> bool {
    user == "sandbox-admin" || user.starts_with("system:serviceaccount:argo:forge-")
}

/// What Forge wrote since then. Other tests have runs of their own meanwhile; everything of a run carries the name of its
/// environment.
fn writes(stage: &Stage, since: jiff::Timestamp) -> Vec<String> {
    let lines = stage.environment.audit(since);
    let own = lines.iter().filter(|line| is_forge(&line.user) && line.name.contains(&stage.environment.name));
    own.map(|line| format!("{line:?}")).collect()
}

/// The version of the environment's Lease, which the audit log leaves out; nothing where there is none.
fn lease(stage: &Stage) -> String {
    let name = format!("forge-{}", stage.environment.name);
    let version = "jsonpath={.metadata.resourceVersion}";
    stage.kubectl(&["get", "lease", &name, "-n", "argo", "--ignore-not-found", "-o", version])
}

#[test]
fn forty_six_applications_are_proven_in_order_and_neither_a_dry_run_nor_a_second_run_writes_anything() {
    let environment = Platform::shared().environment("twin");
    let mut options = environment.options();
    (options.auto, options.scale) = (true, 0.25);
    environment.push(&twin::files(&options), "the platform");
    let stage = Stage::prepared(environment, options);
    let (held, since) = (stage.held(), mark());
    let dry = stage.forge(&["platform", "deploy", "--dry-run", "--output", "json"]);
    assert_eq!(dry.code, 0, "{}", dry.stderr);
    let report: Value = serde_json::from_str(&dry.stdout).unwrap();
    assert_eq!((&report["verdict"], &report["exit"]), (&json!("dry run"), &json!(0)), "{report:#}");
    let figures = &report["statistics"];
    assert_eq!((&figures["nodes"], &figures["proven"]), (&json!(46), &json!(0)), "{report:#}");
    assert_eq!((writes(&stage, since), stage.runs()), (Vec::<String>::new(), Vec::<String>::new()));
    assert_eq!((lease(&stage), stage.held()), (String::new(), held));
    let recorder = stage.environment.record();
    let report = stage.deploy(0);
    assert_eq!(report["statistics"]["proven"], 46, "{report:#}");
    // What is not found below is found where it is: in the namespace of runs, and in the AppProject.
    let written = writes(&stage, since);
    assert!(written.iter().any(|line| line.contains("forge-run-")), "{written:?}");
    assert!(written.iter().any(|line| line.contains("appprojects")), "{written:?}");
    let conditioned = twin::conditioned(&stage.options);
    let conditioned: Vec<&str> = conditioned.iter().map(String::as_str).collect();
    let facts = stage.environment.facts(&twin::predecessors(&stage.options), recorder, &conditioned, true);
    assert_eq!(order::violations(&facts), []);
    assert!(order::edges_judged(&facts) > 200, "{}", order::edges_judged(&facts));
    assert_eq!(stage.held(), names(&[]));
    let (runs, before) = (stage.runs(), lease(&stage));
    assert_ne!(before, "", "a run takes the Lease of its environment");
    let since = mark();
    let start = Instant::now();
    let again = stage.forge(&["platform", "deploy", "--output", "json"]);
    let took = start.elapsed().as_secs_f64();
    // For people: a machine with other work is slow, and a test must not fail for that.
    let _ = writeln!(std::io::stderr(), "deploy: 46 proven nodes, a second time: {took:.1} s (wanted: under 15 s)");
    assert_eq!(again.code, 0, "{}", again.stderr);
    assert!(again.stderr.contains("nothing to do"), "{}", again.stderr);
    let report: Value = serde_json::from_str(&again.stdout).unwrap();
    assert_eq!(report["verdict"], "done", "{report:#}");
    assert_eq!(report["statistics"]["unchanged"], 46, "{report:#}");
    assert_eq!(writes(&stage, since), Vec::<String>::new());
    assert_eq!((stage.runs(), lease(&stage)), (runs, before));
}

#[test]
fn a_pod_per_node_comes_to_the_same() {
    let stage = Stage::new("pods", false, |options| {
        vec![
            TwinNode::new("base", &[], vec![deployment("base", &options.image, 1, &[])]),
            TwinNode::new("top", &["base"], vec![config_map("top", "1")]),
        ]
    });
    let ended = stage.forge(&["platform", "deploy", "--runner", "pod"]);
    assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
    assert_eq!((stage.answer("base").as_deref(), stage.answer("top").as_deref()), (Some("proven"), Some("proven")));
    // The same run in the terminal, with the nodes as tasks again: nothing is left to do, so a change is made first.
    stage.environment.push(&[("apps/top/top.yaml".to_owned(), config_map("top", "2").1)], "another text");
    let ended = stage.forge(&["platform", "deploy", "--local"]);
    assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
    assert_eq!((stage.syncs("base"), stage.syncs("top")), (1, 2));
}

#[test]
fn one_run_of_an_environment_at_a_time_and_an_interrupt_stops_it_cleanly_and_says_what_it_left() {
    let stage = Stage::new("cancel", true, |options| {
        let mut base = TwinNode::new("base", &[], vec![deployment("base", &options.image, 3600, &[])]);
        // The run is there until it is told to stop, on a machine with other work too.
        base.settings = "timeouts: {health: 1h}".to_owned();
        vec![base, TwinNode::new("top", &["base"], vec![config_map("top", "1")])]
    });
    let deploy = |more: &[&str]| {
        Command::new(&stage.environment.platform.binary)
            .args(["platform", "deploy"])
            .args(more)
            .env("KUBECONFIG", &stage.environment.platform.sandbox.kubeconfig)
            .env("FORGE_REPO", stage.environment.repository.folder())
            .env("FORGE_ENVIRONMENT", &stage.environment.name)
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            // Neither is much: no pipe is ever full.
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let mut child = deploy(&[]);
    stage.until_asked("base");
    let first = stage.runs();
    let mut waits = deploy(&["--wait"]);
    let second = stage.forge(&["platform", "deploy"]);
    assert_eq!(second.code, 5, "{}", second.stderr);
    assert!(second.stderr.contains("FORGE-D004"), "{}", second.stderr);
    interrupt(&child);
    eventually("the command has ended", PATIENCE, || child.try_wait().unwrap().ok_or_else(|| "it runs".to_owned()));
    let ended = child.wait_with_output().unwrap();
    let [report, said] = [ended.stdout, ended.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert_eq!(ended.status.code(), Some(2), "{report}\n{said}");
    assert!(said.contains("\nstopping: nothing new starts, what runs is left to Argo CD"), "{said}");
    let left = |node: &str, how: &str| {
        let start = format!("unfinished: {} ", stage.options.id(node));
        report.lines().any(|line| line.starts_with(&start) && line.contains(how))
    };
    assert!(left("base", " left to Argo CD when the run was stopped: "), "{report}");
    assert!(left("top", " waiting not started"), "{report}");
    assert!(report.contains("\nnext: deploy again: proven nodes pass without a sync"), "{report}");
    assert_eq!(stage.ended_as(&first[0])["ended"]["verdict"], "cancelled");
    // Nothing new started, and what is not proven stays out of Argo CD's own hands.
    assert_eq!((stage.syncs("top"), stage.held()), (0, names(&["base", "top"])));
    // Who was willing to wait has its turn, and no other.
    // It listens for interrupts from the moment on at which the run has begun.
    eventually("the one that waited runs", PATIENCE, || {
        let runs = stage.runs();
        let asked = stage.entries().contains_key("base");
        if runs.len() == 2 && asked { Ok(()) } else { Err(format!("{runs:?}")) }
    });
    interrupt(&waits);
    eventually("it has ended too", PATIENCE, || waits.try_wait().unwrap().ok_or_else(|| "it runs".to_owned()));
    let ended = waits.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(2), "{said}");
    assert_eq!((stage.runs().len(), stage.syncs("top"), stage.held()), (2, 0, names(&["base", "top"])));
}

fn interrupt(child: &Child) {
    let told = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(told.success());
}
