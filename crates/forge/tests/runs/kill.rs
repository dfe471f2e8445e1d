//! Whatever is killed, the run reaches its goal, or the next one does: no order violation, no second sync of a proven node,
//! no window left behind, no manual step. `FORGE_SEED` and `FORGE_KILLS` replay and lengthen it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

use forge_testkit::campaign::number;
use forge_testkit::generate::Random;
use forge_testkit::order;
use forge_testkit::sandbox::{Sandbox, eventually, run, status};
use forge_testkit::twin::{TwinNode, deployment};
use serde_json::Value;

use crate::stage::{PATIENCE, Stage, names};

/// What can be lost, in the order in which the short slice of `make test` meets it.
pub(crate) const TARGETS: [&str; 10] = [
    "plugin",
    "executor",
    "kube-apiserver",
    "agent pod",
    "argocd-application-controller",
    "workflow-controller",
    "argocd-server",
    "etcd",
    "argocd-repo-server",
    "redis-server",
];

/// Kills during one run.
const KILLS_A_RUN: usize = 3;

/// Processes of the sandbox whose command line holds all of these words.
fn processes(init: u32, words: &[&str]) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if words.iter().all(|word| line.contains(word)) && descends(pid, init) {
            found.push(pid);
        }
    }
    found
}

/// True if a process is below another: only what belongs to the sandbox is ever killed.
fn descends(mut pid: u32, ancestor: u32) -> bool {
    for _ in 0..20 {
        if pid == ancestor {
            return true;
        }
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse().ok());
        match parent {
            Some(parent) if parent > 1 => pid = parent,
            _ => return false,
        }
    }
    false
}

/// The agent pod of a run, by uid and name: that of an earlier one may still be going.
fn agent(sandbox: &Sandbox, run_name: &str) -> Option<(String, String)> {
    let columns = "jsonpath={range .items[*]}{.metadata.uid} {.metadata.name}{\"\\n\"}{end}";
    let selector = "workflows.argoproj.io/component=agent";
    let pods = sandbox.try_kubectl(&["get", "pods", "-n", "argo", "-l", selector, "-o", columns], None).stdout;
    let of_run = format!("forge-{run_name}");
    pods.lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(_, name)| name.starts_with(&of_run))
        .map(|(uid, name)| (uid.to_owned(), name.to_owned()))
}

/// Whether a process belongs to a pod.
fn in_pod(pid: u32, uid: &str) -> bool {
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    groups.replace('_', "-").contains(uid)
}

/// Kills the sample workload in a pod, which Kubernetes starts again there.
pub(crate) fn crash(sandbox: &Sandbox, namespace: &str, pod: &str) {
    let uid = sandbox.kubectl(&["get", "pod", pod, "-n", namespace, "-o", "jsonpath={.metadata.uid}"]);
    let init = pid(&status(&sandbox.name)["initPid"]);
    let mut victims = processes(init.unwrap_or(0), &["sample"]);
    victims.retain(|victim| in_pod(*victim, uid.trim()));
    assert!(!victims.is_empty(), "nothing runs in {namespace}/{pod}");
    kill(&victims);
}

fn kill(victims: &[u32]) {
    for pid in victims {
        run(Command::new("kill").args(["-9", &pid.to_string()]), None);
    }
}

fn pid(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|pid| u32::try_from(pid).ok())
}

/// The processes that a target consists of now.
fn victims(sandbox: &Sandbox, target: &str, run_name: &str) -> Vec<u32> {
    let status = status(&sandbox.name);
    let words: &[&str] = match target {
        "plugin" | "agent pod" => {
            let words = if target == "plugin" { "forge serve plugin" } else { "argoexec agent main" };
            let Some((uid, _)) = agent(sandbox, run_name) else { return Vec::new() };
            let mut found = processes(pid(&status["initPid"]).unwrap_or(0), &[words]);
            found.retain(|pid| in_pod(*pid, &uid));
            return found;
        }
        "executor" => &["forge serve run", run_name],
        "kube-apiserver" | "etcd" => {
            let components = status["components"].as_array().cloned().unwrap_or_default();
            return components
                .iter()
                .find(|line| line["name"] == target)
                .and_then(|line| pid(&line["pid"]))
                .into_iter()
                .collect();
        }
        other => &[other],
    };
    processes(pid(&status["initPid"]).unwrap_or(0), words)
}

/// Whether a run has ended, as far as the API server can tell.
fn is_over(sandbox: &Sandbox, run_name: &str) -> bool {
    let header = format!("forge-run-{run_name}-0");
    let found = sandbox.try_kubectl(&["get", "configmap", &header, "-n", "argo", "-o", "jsonpath={.data}"], None);
    found.stdout.contains("verdict")
}

/// Kills a target, and has the sandbox start again what nobody else does. One that has not started is waited for: a kill that
/// meets nobody tests nothing. False if all was over before there was anybody.
pub(crate) fn lose(sandbox: &Sandbox, target: &str, run_name: &str, mut over: impl FnMut() -> bool) -> bool {
    let victims = eventually(&format!("there is a {target} to kill"), PATIENCE, || {
        // Whatever is lost after the end disturbs nobody.
        if over() {
            return Ok(Vec::new());
        }
        let victims = victims(sandbox, target, run_name);
        if victims.is_empty() { Err("nobody yet".to_owned()) } else { Ok(victims) }
    });
    kill(&victims);
    if target == "agent pod"
        && let Some((_, pod)) = agent(sandbox, run_name)
    {
        // The whole pod, not only its process; also that of a Workflow that was submitted again.
        sandbox.try_kubectl(&["delete", "pod", &pod, "-n", "argo", "--grace-period=0", "--force"], None);
    }
    if !victims.is_empty() && ["kube-apiserver", "etcd"].contains(&target) {
        // One that meets the process while it dies says so; the next one starts it.
        eventually("the sandbox is repaired", PATIENCE, || {
            let up = sandbox.command(&["up"]);
            if up.code == 0 { Ok(()) } else { Err(up.stderr) }
        });
    }
    !victims.is_empty()
}

#[test]
fn whatever_is_killed_the_goal_is_reached_in_order_and_nothing_is_synced_twice() {
    let (seed, rounds) = (number("FORGE_SEED", 1), number("FORGE_KILLS", 5));
    let mut random = Random::new(seed);
    let rounds = usize::try_from(rounds).unwrap();
    let mut open: VecDeque<&str> = (0..rounds)
        .map(|round| TARGETS.get(round).copied().unwrap_or_else(|| TARGETS[random.below(TARGETS.len())]))
        .collect();
    // What a run ended too soon for is killed in the next one.
    for number in 0..rounds * 2 {
        let targets: Vec<&str> = open.drain(..open.len().min(KILLS_A_RUN)).collect();
        if targets.is_empty() {
            return;
        }
        for missed in one(seed, number, &targets).into_iter().rev() {
            open.push_front(missed);
        }
    }
    assert!(open.is_empty(), "seed {seed}: these were never met: {open:?}");
}

/// Kubernetes starts what dies again and again later each time. No long-lived process dies as often as in a campaign, so
/// its pod is replaced before it comes to that. The workflow-controller is replaced in any case: after the API server was
/// away, its two watches of ConfigMaps (3.7.6) spin and log without end, which is half of a machine like this.
pub(crate) fn fresh(sandbox: &Sandbox) {
    let pods = |namespace: &str| -> Vec<Value> {
        let list = sandbox.kubectl(&["get", "pods", "-n", namespace, "-o", "json"]);
        let list: Value = serde_json::from_str(&list).unwrap();
        list["items"].as_array().cloned().unwrap_or_default()
    };
    let statuses = |pod: &Value| pod["status"]["containerStatuses"].as_array().cloned().unwrap_or_default();
    let lives_long = |pod: &Value| {
        let stays = pod["metadata"]["deletionTimestamp"].is_null() && pod["status"]["phase"] != "Failed";
        stays && pod["metadata"]["ownerReferences"][0]["kind"] != "Job" && pod["spec"]["restartPolicy"] == "Always"
    };
    for namespace in ["argocd", "argo"] {
        let before = pods(namespace);
        let wanted = before.iter().filter(|pod| lives_long(pod)).count();
        for pod in before.iter().filter(|pod| lives_long(pod)) {
            let name = pod["metadata"]["name"].as_str().unwrap();
            let often = statuses(pod).iter().any(|status| status["restartCount"].as_u64() >= Some(2));
            if often || name.contains("workflow-controller") {
                sandbox.kubectl(&["delete", "pod", name, "-n", namespace, "--grace-period=0", "--force"]);
            }
        }
        eventually("what was killed runs again", PATIENCE, || {
            let ready = |pod: &&Value| {
                let all = statuses(pod);
                lives_long(pod) && !all.is_empty() && all.iter().all(|status| status["ready"] == true)
            };
            let well = pods(namespace).iter().filter(ready).count();
            if well >= wanted { Ok(()) } else { Err(format!("{well} of {wanted} pods of {namespace} are ready")) }
        });
    }
}

/// One run during which these are killed, one after the other, at random moments. Gives those that it ended too soon for.
fn one<'t>(seed: u64, number: usize, targets: &[&'t str]) -> Vec<&'t str> {
    let mut random = Random::new(seed.wrapping_mul(1000) + u64::try_from(number).unwrap());
    let stage = Stage::new("kill", true, |options| {
        let node = |name: &str, before: &[&str], ready| {
            let mut node = TwinNode::new(name, before, vec![deployment(name, &options.image, ready, &[])]);
            // What was killed is not started again at once.
            node.settings = "timeouts: {sync: 5m, health: 5m}".to_owned();
            node
        };
        vec![
            node("a", &[], 3),
            node("b", &[], 1),
            node("c", &["a"], 2),
            node("d", &["a", "b"], 1),
            node("e", &["c"], 2),
            node("f", &["d", "e"], 1),
        ]
    });
    let sandbox = &stage.environment.platform.sandbox;
    fresh(sandbox);
    let name = |node: &str| stage.options.application(node);
    let edges = [("c", "a"), ("d", "a"), ("d", "b"), ("e", "c"), ("f", "d"), ("f", "e")];
    let mut predecessors: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (node, before) in edges {
        predecessors.entry(name(node)).or_default().insert(name(before));
    }
    let recorder = stage.environment.record();
    let started = stage.forge(&["platform", "deploy", "--detach"]);
    assert_eq!(started.code, 0, "{}", started.stderr);
    let run_name = stage.runs().last().unwrap().clone();
    let start = Instant::now();
    let (mut told, mut missed) = (Vec::new(), Vec::new());
    for target in targets {
        // The moment is what is random here, so it is drawn and not waited for.
        std::thread::sleep(Duration::from_millis(300 + 100 * u64::try_from(random.below(60)).unwrap()));
        // Losing a component of the cluster includes starting it again.
        let at = start.elapsed().as_secs_f64();
        let hit = lose(sandbox, target, &run_name, || is_over(sandbox, &run_name));
        told.push(format!("{target} after {at:.1} s{}", if hit { "" } else { " (the run was over)" }));
        if !hit {
            missed.push(*target);
        }
    }
    let told = told.join(", ");
    let header = stage.ended();
    let mut runs = 1;
    if header["ended"]["verdict"] != "done" {
        // Where the executor survives, it is this run that reaches the goal; else the next one, without a person.
        assert!(targets.contains(&"executor"), "seed {seed}, run {number}, {told}: {header:#}");
        stage.deploy(0);
        runs = 2;
    }
    let facts = stage.environment.facts(&predecessors, recorder, &[], true);
    assert_eq!(order::violations(&facts), [], "seed {seed}, run {number}, {told}: {facts:#?}");
    assert_eq!(order::edges_judged(&facts), edges.len(), "seed {seed}, run {number}, {told}: {facts:#?}");
    let (early, judged) = stage.began_too_early(&predecessors);
    assert_eq!((early, judged), (Vec::new(), edges.len()), "seed {seed}, run {number}, {told}");
    let all = stage.all_syncs();
    assert_eq!(all.len(), 6);
    for (node, syncs) in all {
        assert!(syncs == 1, "seed {seed}, run {number}, {told}: {node} was synced {syncs} times");
    }
    let requests = stage.requests();
    assert!(requests.values().any(|(asked, _)| *asked > 0), "the log has no request: {requests:?}");
    for (node, (asked, attempts)) in requests {
        let said = format!("{node} was asked for {asked} times in {attempts} attempts");
        assert!(asked <= attempts, "seed {seed}, run {number}, {told}: {said}");
    }
    eventually("no window is left", PATIENCE, || {
        let held = stage.held();
        if held == names(&[]) { Ok(()) } else { Err(format!("{held:?}")) }
    });
    let _ = writeln!(
        std::io::stderr(),
        "kill: seed {seed}, run {number}: {told}: done in {runs} runs, {:.0} s, resubmitted {}, agents replaced {}",
        start.elapsed().as_secs_f64(),
        header["resubmitted"],
        header["agentsReplaced"],
    );
    missed
}
