//! Anything may be killed at any moment, and the next `up` or `down` puts it right.
//!
//! One sandbox of its own, beside the shared one. `make soak` runs more rounds; `FORGE_SEED` replays them.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use forge_testkit::campaign::number;
use forge_testkit::sandbox::{Sandbox, binary, eventually, forge_sandbox, run, status};
use serde_json::{Value, json};

use crate::images::sample;
use crate::trace::traces;

/// A generator whose whole state is its seed: rounds replay.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

#[test]
fn whatever_is_killed_the_next_up_serves_again_and_down_leaves_no_trace() {
    let shared = Sandbox::shared();
    let seed = number("FORGE_SEED", 7);
    let rounds = number("FORGE_ROUNDS", 2);
    let mut dice = Dice(seed);
    let before = traces();
    let start = Instant::now();
    let sandbox = Sandbox::up("crash", &[]);
    let said = |text: String| drop(writeln!(std::io::stderr(), "crash: seed {seed}: {text}"));
    said(format!("up after {:.1} s", start.elapsed().as_secs_f64()));
    assert_ne!(sandbox.registry, shared.registry, "two sandboxes, two ranges");
    deploy(&sandbox);
    serves(&sandbox);
    for round in 0..rounds {
        // The first four take one of each kind; the short slice of `make test` meets a component and `down`.
        let kind = match round {
            0..=3 => [0, 2, 1, 3][round as usize],
            _ => dice.below(4),
        };
        let what = match kind {
            0 => kill_component(&mut dice),
            1 => kill_command(&mut dice, &["up"], 4_000),
            2 => kill_command(&mut dice, &["down"], 250),
            _ => kill_first_process(),
        };
        let start = Instant::now();
        let sandbox = Sandbox::up("crash", &[]);
        let up = start.elapsed();
        assert_eq!(status("crash")["healthy"], json!(true), "seed {seed}, round {round}, {what}");
        deploy(&sandbox);
        serves(&sandbox);
        said(format!(
            "round {round}: {what}; up after {:.1} s, serving after {:.1} s",
            up.as_secs_f64(),
            start.elapsed().as_secs_f64()
        ));
    }
    keeps_its_data();
    if rounds > 2 {
        // A `down` that is killed is finished by the next one.
        said(kill_command(&mut dice, &["down"], 250));
    }
    let start = Instant::now();
    let ended = forge_sandbox("crash", &["down"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let took = start.elapsed();
    // The kernel may need a moment to clear up.
    eventually(&format!("seed {seed}: nothing is left"), Duration::from_secs(10), || {
        let left = traces().since(&before);
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
    said(format!("{rounds} rounds, down after {:.1} s, nothing left", took.as_secs_f64()));
}

/// Stopped with `--keep-data` it does not run, and comes back with what it held.
fn keeps_its_data() {
    let sandbox = Sandbox::up("crash", &[]);
    sandbox.kubectl(&["create", "configmap", "kept", "--from-literal=a=b"]);
    let ended = sandbox.command(&["down", "--keep-data"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(sandbox.command(&["status"]).code, 3);
    let again = Sandbox::up("crash", &[]);
    assert_eq!(again.registry, sandbox.registry, "it has the addresses that it had");
    assert_eq!(again.kubectl(&["get", "configmap", "kept", "-o", "jsonpath={.data.a}"]), "b");
}

fn kill(pid: i64) {
    let ended = run(Command::new("kill").args(["-9", &pid.to_string()]), None);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

fn kill_component(dice: &mut Dice) -> String {
    let status = status("crash");
    let components: Vec<&Value> =
        status["components"].as_array().unwrap().iter().filter(|line| line["pid"].is_i64()).collect();
    let victim = components[dice.below(components.len() as u64) as usize];
    let name = victim["name"].as_str().unwrap();
    kill(victim["pid"].as_i64().unwrap());
    eventually("status shows it as dead", Duration::from_secs(60), || {
        let ended = forge_sandbox("crash", &["status", "--output", "json"]);
        let status: Value = serde_json::from_str(&ended.stdout).map_err(|error| error.to_string())?;
        let line = status["components"].as_array().unwrap().iter().find(|line| line["name"] == name).unwrap().clone();
        let dead =
            line["healthy"] == json!(false) && line["reason"].as_str().is_some_and(|why| why.contains("SIGKILL"));
        if dead && ended.code == 1 { Ok(()) } else { Err(line.to_string()) }
    });
    format!("killed {name}")
}

fn kill_first_process() -> String {
    kill(status("crash")["initPid"].as_i64().unwrap());
    "killed the first process".to_owned()
}

/// Kills our own command somewhere in the middle. For `up` there must be something to do, so everything is dead first.
fn kill_command(dice: &mut Dice, args: &[&str], within: u64) -> String {
    if args == ["up"] {
        kill_first_process();
    }
    let mut child = Command::new(binary())
        .args(["--name", "crash"])
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let after = Duration::from_millis(dice.below(within));
    thread::sleep(after);
    let _ = child.kill();
    child.wait().unwrap();
    format!("killed `{}` after {} ms", args.join(" "), after.as_millis())
}

/// A workload, there or made again.
fn deploy(sandbox: &Sandbox) {
    let labels = json!({"app": "witness"});
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "witness", "namespace": "default"},
            "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {
                "terminationGracePeriodSeconds": 1,
                "containers": [{
                    "name": "sample", "image": sample(),
                    "readinessProbe": {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 1},
                }],
            }}},
        },
        {
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "witness", "namespace": "default"},
            "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": 8080}]},
        },
    ]});
    eventually("the API server takes a Deployment", Duration::from_secs(60), || {
        let ended = sandbox.try_kubectl(&["apply", "--server-side", "-f", "-"], Some(&objects.to_string()));
        if ended.code == 0 { Ok(()) } else { Err(ended.stderr) }
    });
}

/// A new pod runs and answers over the ClusterIP of its service: scheduler, kubelet, containerd, registry and kube-proxy work.
fn serves(sandbox: &Sandbox) {
    sandbox.kubectl(&["rollout", "restart", "deployment/witness"]);
    sandbox.kubectl(&["rollout", "status", "deployment/witness", "--timeout=90s"]);
    let address = sandbox.kubectl(&["get", "service", "witness", "-o", "jsonpath={.spec.clusterIP}"]);
    eventually("the service answers", Duration::from_secs(60), || {
        let answer = forge_sandbox::health::http(format!("{address}:80").parse().unwrap(), "/healthz")?;
        if answer.0 == 200 { Ok(()) } else { Err(format!("{answer:?}")) }
    });
}
