//! Events start runs (SPEC.md section 4, `sync: ordered`): on a sandbox of their own, because Argo Events is not in the
//! one that the others share. `forge sandbox --name events down` ends it.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use forge_core::digest::{Digest, hex};
use forge_testkit::platform::Platform;
use forge_testkit::sandbox::eventually;
use forge_testkit::twin::{self, TwinNode, config_map, deployment};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::stage::{PATIENCE, Stage};

const ENVIRONMENT: &str = "forge.projectcatalyst.io/environment";
/// How long Argo Events may take to bring its bus and its pods up.
const EVENTS_UP: Duration = Duration::from_secs(300);
/// From one push of a burst to the next: a hundred of them within ten seconds.
const PACE: Duration = Duration::from_millis(90);
/// What a Job says under whose run the branch moved on: its node is never proven then (SPEC.md section 6).
const MOVED: &str = "changed after the commit of this run";
/// What an EventSource says that found too few servers.
const TOO_FEW: &str = "no suitable peers for placement";

fn platform() -> &'static Platform {
    static PLATFORM: OnceLock<Platform> = OnceLock::new();
    PLATFORM.get_or_init(|| Platform::with("events", "argo-cd,argo-workflows,argo-events"))
}

/// A bus whose three servers started at once may have come to an agreement of two (docs/guides/triggers.md, "When nothing is
/// heard"): what the guide says is done. Where the EventSource is just being started once more it comes to nothing, and is
/// done again.
fn assembled_again(stage: &Stage) {
    let args = ["logs", "-n", "argo", "-l", "eventsource-name=forge-push", "--tail=50"];
    if platform().sandbox.try_kubectl(&args, None).stdout.contains(TOO_FEW) {
        bootstrapped(stage);
    }
}

/// `forge bootstrap`; gives what it said.
fn bootstrapped(stage: &Stage) -> String {
    let made = stage.forge(&["bootstrap", "--image", platform().image()]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    format!("{}{}", made.stdout, made.stderr)
}

/// The SHA-256 of some bytes.
fn hash(bytes: &[u8]) -> Vec<u8> {
    let digest = Digest::of(bytes).to_string();
    let digits = digest.trim_start_matches("sha256:");
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

/// The signature of a body, as GitHub makes it: its HMAC (RFC 2104) with the key that both know.
fn signature(key: &str, body: &str) -> String {
    let mut block = key.as_bytes().to_vec();
    if block.len() > 64 {
        block = hash(&block);
    }
    block.resize(64, 0);
    let padded = |with: u8| block.iter().map(|byte| byte ^ with).collect::<Vec<u8>>();
    let inner = hash(&[padded(0x36), body.as_bytes().to_vec()].concat());
    format!("sha256={}", hex(&hash(&[padded(0x5c), inner].concat())))
}

#[test]
fn a_signature_is_the_hmac_of_the_body() {
    // RFC 4231, case 2.
    assert_eq!(
        signature("Jefe", "what do ya want for nothing?"),
        "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    );
}

/// An environment whose runs are started by events.
struct Ordered {
    stage: Stage,
    /// Where deliveries go.
    address: String,
    key: String,
}

impl Ordered {
    fn new(test: &str) -> Self {
        let environment = platform().environment(test);
        let mut options = environment.options();
        options.timeouts = Some(("2m".to_owned(), "4m".to_owned()));
        let nodes = [
            TwinNode::new("first", &[], vec![config_map("first", "1")]),
            TwinNode::new("second", &["first"], vec![deployment("second", &options.image, 1, &[])]),
        ];
        let mut files = twin::small(&options, &nodes);
        for (path, text) in &mut files {
            if path == "forge.yaml" {
                *text = text.replace("events: none", "events: existing").replace("sync: manual", "sync: ordered");
            }
        }
        environment.push(&files, "the platform");
        let stage = Stage::prepared(environment, options);
        let sensor = format!("sensor/forge-{}", stage.environment.name);
        let sandbox = &platform().sandbox;
        eventually("the Sensor is deployed", EVENTS_UP, || {
            let args = ["wait", sensor.as_str(), "-n", "argo", "--for=condition=Deployed", "--timeout=5s"];
            let ended = sandbox.try_kubectl(&args, None);
            if ended.code == 0 { Ok(()) } else { Err(ended.stderr) }
        });
        let selector = format!("sensor-name=forge-{}", stage.environment.name);
        for selector in ["eventsource-name=forge-push", selector.as_str()] {
            eventually("a pod of Argo Events is ready", EVENTS_UP, || {
                let ended = sandbox.try_kubectl(
                    &["wait", "pods", "-n", "argo", "-l", selector, "--for=condition=Ready", "--timeout=5s"],
                    None,
                );
                if ended.code == 0 {
                    return Ok(());
                }
                assembled_again(&stage);
                Err(ended.stderr)
            });
        }
        let service = stage.environment.json(&["get", "service", "forge-push-eventsource-svc", "-n", "argo"]);
        let address = format!("{}:12000", service["spec"]["clusterIP"].as_str().unwrap());
        let template = "go-template={{.data.secret | base64decode}}";
        let key = stage.kubectl(&["get", "secret", "forge-webhook", "-n", "argo", "-o", template]);
        assert_eq!(key.len(), 64);
        let ordered = Self { stage, address, key };
        eventually("deliveries are heard", EVENTS_UP, || match ordered.deliver("{}", Some("sha256=00")) {
            Ok(400) => Ok(()),
            other => {
                // Its pod may have been ready for a moment before it found its bus.
                assembled_again(&ordered.stage);
                Err(format!("{other:?}"))
            }
        });
        ordered.subscribed();
        ordered
    }

    /// Waits until the Sensor listens: what is sent before is nobody's.
    fn subscribed(&self) {
        let selector = format!("sensor-name=forge-{}", self.stage.environment.name);
        eventually("the Sensor listens", EVENTS_UP, || {
            let log = self.stage.kubectl(&["logs", "-n", "argo", "-l", &selector, "--tail=-1"]);
            if log.contains("Subscribing to subject") { Ok(()) } else { Err(log) }
        });
    }

    /// Sends a body as a Git host does; gives the code of the answer.
    fn deliver(&self, body: &str, signature: Option<&str>) -> Result<u16, String> {
        let failed = |error: std::io::Error| error.to_string();
        let address = self.address.to_socket_addrs().map_err(failed)?.next().ok_or("no address")?;
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5)).map_err(failed)?;
        stream.set_read_timeout(Some(Duration::from_secs(30))).map_err(failed)?;
        let signature = signature.map(|text| format!("X-Hub-Signature-256: {text}\r\n")).unwrap_or_default();
        let request = format!(
            "POST /push HTTP/1.1\r\nHost: hooks.example.com\r\nContent-Type: application/json\r\nX-GitHub-Event: push\r\nX-GitHub-Delivery: 1\r\n{signature}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).map_err(failed)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map_err(failed)?;
        answer.split_whitespace().nth(1).and_then(|code| code.parse().ok()).ok_or(answer)
    }

    /// A signed delivery.
    fn signed(&self, body: &str) -> u16 {
        self.deliver(body, Some(&signature(&self.key, body))).unwrap()
    }

    /// Changes a node and pushes; gives the commit.
    fn changed(&self, text: &str) -> String {
        let (file, content) = config_map("first", text);
        self.stage.environment.push(&[(format!("apps/first/{file}"), content)], text)
    }

    /// Jobs that events made.
    fn jobs(&self) -> Vec<Value> {
        let selector = format!("{ENVIRONMENT}={},!forge.projectcatalyst.io/run", self.stage.environment.name);
        let list = self.stage.environment.json(&["get", "jobs", "-n", "argo", "-l", &selector]);
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// Waits until so many Jobs were made and all have ended well.
    fn settled(&self, jobs: usize) {
        self.settled_but(jobs, None);
    }

    /// The same, where a Job may fail that says this.
    fn settled_but(&self, jobs: usize, forgiven: Option<&str>) {
        eventually("all Jobs have ended", PATIENCE * 2, || {
            let found = self.jobs();
            let is = |job: &Value, condition: &str| {
                let conditions = job["status"]["conditions"].as_array();
                conditions.is_some_and(|all| all.iter().any(|c| c["type"] == condition && c["status"] == "True"))
            };
            for job in found.iter().filter(|job| is(job, "Failed")) {
                let job = format!("job/{}", job["metadata"]["name"].as_str().unwrap_or_default());
                let log = self.stage.kubectl(&["logs", "-n", "argo", &job, "--tail=-1"]);
                assert!(forgiven.is_some_and(|text| log.contains(text)), "{job} failed: {log}");
            }
            let done = found.iter().filter(|job| is(job, "Complete") || is(job, "Failed")).count();
            let all = found.len();
            if all >= jobs && done == all { Ok(()) } else { Err(format!("{done} of {all} Jobs have ended")) }
        });
        assert_eq!(self.jobs().len(), jobs);
    }
}

/// A push to the branch `main`, as GitHub and Gitea tell of it; in the order of its keys, as its digest is taken.
fn push(before: &str, after: &str) -> String {
    json!({"after": after, "before": before, "deleted": false, "ref": "refs/heads/main"}).to_string()
}

/// The same with when it was.
fn pushed_at(time: u32, before: &str, after: &str) -> String {
    json!({"after": after, "before": before, "ref": "refs/heads/main", "repository": {"pushed_at": time}}).to_string()
}

fn commit(n: u32) -> String {
    format!("{n:08x}{}", "a".repeat(32))
}

#[test]
fn a_signed_push_starts_one_run_others_none_and_a_hundred_at_once_at_most_two() {
    // One environment for all of it: every Sensor hears every push to its branch.
    let ordered = Ordered::new("events");
    one_run_for_a_signed_push_and_none_for_others(&ordered);
    a_sensor_makes_no_other_job(&ordered);
    at_most_two_runs_for_a_hundred_pushes(&ordered);
    drift_is_told_and_not_healed(&ordered);
    a_clock_starts_one_run_in_a_minute(&ordered);
    servers_that_agreed_on_too_few_begin_anew(&ordered);
}

fn one_run_for_a_signed_push_and_none_for_others(ordered: &Ordered) {
    let stage = &ordered.stage;
    let nothing = "0".repeat(40);

    // Nobody's, or broken: refused by the EventSource.
    let good = push(&nothing, &commit(1));
    assert_eq!(ordered.deliver(&good, None), Ok(400));
    assert_eq!(ordered.deliver(&good, Some(&signature("another key", &good))), Ok(400));
    assert_eq!(ordered.deliver(&push(&nothing, &commit(2)), Some(&signature(&ordered.key, &good))), Ok(400));
    assert_eq!(ordered.signed("{\"ref\": "), 400);
    // Signed, but no push to the branch: taken, and nothing follows.
    let elsewhere = good.replace("refs/heads/main", "refs/heads/mainly");
    for body in [elsewhere, push(&commit(1), &nothing), push(&nothing, "main; rm -rf /"), "{}".to_owned()] {
        assert_eq!(ordered.signed(&body), 200, "{body}");
    }
    // One after the other, so when this one has made its Job, those before it have made none.
    assert_eq!(ordered.signed(&good), 200);
    ordered.settled(1);
    let header = stage.ended();
    assert_eq!(header["ended"]["verdict"], "done", "{header}");
    assert_eq!(stage.runs().len(), 1);
    let job = ordered.jobs()[0].clone();
    let digest = Digest::of(good.as_bytes());
    let name = format!("forge-{}-{}-{}", stage.environment.name, &commit(1)[..12], digest.short(6));
    assert_eq!(job["metadata"]["name"], name.as_str());
    assert_eq!(job["metadata"]["annotations"]["forge.projectcatalyst.io/commit"], commit(1).as_str());

    // The same once more, then a real change, which shows that the replay has been dealt with.
    assert_eq!(ordered.signed(&good), 200);
    let pushed = ordered.changed("2");
    assert_eq!(ordered.signed(&push(&commit(1), &pushed)), 200);
    ordered.settled(2);
    assert_eq!(stage.runs().len(), 2, "{:?}", stage.runs());
    let header = stage.ended();
    assert_eq!((&header["ended"]["verdict"], &header["commit"]), (&json!("done"), &json!(pushed)));

    // Back to an earlier commit, forth to where it was before, and back: each time something is to be looked at. What is sent twice
    // on the way is one push all the same.
    let (one, other) = (commit(1), pushed);
    for (time, before, after) in
        [(1, &other, &one), (2, &one, &other), (1, &other, &one), (2, &one, &other), (3, &other, &one)]
    {
        assert_eq!(ordered.signed(&pushed_at(time, before, after)), 200);
    }
    ordered.settled(5);
    // The branch holds what was deployed.
    assert_eq!(stage.runs().len(), 2, "{:?}", stage.runs());
}

/// What the account of the Sensor may do: make such Jobs, and no others.
fn a_sensor_makes_no_other_job(ordered: &Ordered) {
    let stage = &ordered.stage;
    let account = "system:serviceaccount:argo:forge-events";
    let may = |verb: &str, what: &str| {
        let args = ["auth", "can-i", verb, what, "-n", "argo", "--as", account];
        platform().sandbox.try_kubectl(&args, None).stdout.trim() == "yes"
    };
    assert!(may("create", "jobs"));
    for what in ["pods", "workflows", "secrets", "configmaps", "roles.rbac.authorization.k8s.io"] {
        assert!(!may("create", what) && !may("get", what), "{what}");
    }
    assert!(!may("get", "jobs") && !may("patch", "jobs") && !may("delete", "jobs"));
    let environment = stage.environment.name.as_str();
    let container = json!({"name": "executor", "image": stage.options.image});
    let foreign = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": format!("forge-{environment}-0123456789ab-012345"), "namespace": "argo",
            "labels": {ENVIRONMENT: environment},
        },
        "spec": {"template": {"spec": {
            "restartPolicy": "Never", "serviceAccountName": "forge-executor", "containers": [container],
        }}},
    });
    let made = platform().sandbox.try_kubectl(&["create", "-f", "-", "--as", account], Some(&foreign.to_string()));
    assert!(made.code != 0 && made.stderr.contains("forge-event-jobs"), "{}{}", made.stdout, made.stderr);
}

fn at_most_two_runs_for_a_hundred_pushes(ordered: &Ordered) {
    let stage = &ordered.stage;
    let repository = &stage.environment.repository;
    let (jobs, runs) = (ordered.jobs().len(), stage.runs().len());
    // Made beforehand, so that pushing is all that takes its time.
    let committed = |n: u32| {
        let (file, content) = config_map("first", &format!("{n} of many"));
        repository.write(&[(format!("apps/first/{file}"), content)]).unwrap();
        repository.commit(&format!("{n} of many")).unwrap()
    };
    let commits: Vec<String> = (0..100).map(committed).collect();
    let begun = Instant::now();
    let mut before = "f".repeat(40);
    for (n, after) in (0_u32..).zip(&commits) {
        thread::sleep((begun + PACE * n).saturating_duration_since(Instant::now()));
        repository.push(after).unwrap();
        assert_eq!(ordered.signed(&push(&before, after)), 200);
        before.clone_from(after);
    }
    let took = begun.elapsed();
    let _ = writeln!(std::io::stderr(), "100 pushes were heard within {:.1} s", took.as_secs_f64());
    ordered.settled_but(jobs + 100, Some(MOVED));
    // A machine that cannot push as fast gets one more for each further ten seconds.
    let most = 2 + usize::try_from(took.as_secs() / 10).unwrap();
    let more = stage.runs().len() - runs;
    assert!((1..=most).contains(&more), "{more} runs: {:?}", stage.runs());
    let header = stage.ended();
    assert_eq!((&header["ended"]["verdict"], &header["commit"]), (&json!("done"), &json!(before)));
}

fn drift_is_told_and_not_healed(ordered: &Ordered) {
    let stage = &ordered.stage;
    let runs = stage.runs();
    let name = stage.options.application("first");
    stage.kubectl(&["delete", "configmap", "first", "-n", &name]);
    let refresh = "argocd.argoproj.io/refresh=normal";
    stage.kubectl(&["annotate", "application", &name, "-n", "argocd", refresh, "--overwrite"]);
    eventually("the drift is told", PATIENCE, || {
        let status = stage.forge(&["status"]);
        if status.stdout.contains("differ from Git, which nothing heals") { Ok(()) } else { Err(status.stdout) }
    });
    assert_eq!(stage.runs(), runs);
}

/// With a schedule of every minute, until it has made a Job: named after the minute, so no other is made for it. Its run puts
/// right what had drifted.
fn a_clock_starts_one_run_in_a_minute(ordered: &Ordered) {
    let stage = &ordered.stage;
    let now = || Timestamp::now().strftime("%Y%m%dt%H%M").to_string();
    let changed = |installation: &str, why: &str| {
        stage.environment.push(&[("forge.yaml".to_owned(), installation.to_owned())], why);
        let said = bootstrapped(stage);
        assert!(!said.contains("begins anew"), "{said}");
    };
    let file = stage.environment.repository.folder().join("forge.yaml");
    let without = std::fs::read_to_string(file).unwrap();
    let with = without.replace("sync: ordered", "sync: ordered, schedule: \"* * * * *\"");
    assert_ne!(with, without);
    let (runs, begun) = (stage.runs().len(), now());
    changed(&with, "a clock");
    let prefix = format!("forge-{}-at-", stage.environment.name);
    let minutes = || {
        let minute = |job: &Value| Some(job["metadata"]["name"].as_str()?.strip_prefix(&prefix)?.to_owned());
        ordered.jobs().iter().filter_map(minute).collect::<Vec<String>>()
    };
    eventually("the clock has made a Job", EVENTS_UP, || {
        if minutes().is_empty() { Err("no Job of a minute".to_owned()) } else { Ok(()) }
    });
    // It goes with the schedule.
    changed(&without, "no clock");
    let clock = format!("forge-at-{}", stage.environment.name);
    let selector = format!("eventsource-name={clock}");
    eventually("the clock is gone", EVENTS_UP, || {
        let source = stage.kubectl(&["get", "eventsource", &clock, "-n", "argo", "--ignore-not-found", "-o", "name"]);
        let pods = stage.kubectl(&["get", "pods", "-n", "argo", "-l", &selector, "-o", "name"]);
        if source.trim().is_empty() && pods.trim().is_empty() { Ok(()) } else { Err(format!("{source}{pods}")) }
    });
    // Jobs of the burst are there too.
    ordered.settled_but(ordered.jobs().len(), Some(MOVED));
    let (minutes, ended) = (minutes(), now());
    let each: BTreeSet<&String> = minutes.iter().collect();
    assert_eq!(each.len(), minutes.len(), "{minutes:?}");
    assert!(each.iter().all(|minute| **minute >= begun && **minute <= ended), "{begun} {minutes:?} {ended}");
    assert_eq!(stage.ended()["ended"]["verdict"], "done");
    assert!(stage.runs().len() > runs);
    let name = stage.options.application("first");
    stage.kubectl(&["get", "configmap", "first", "-n", &name]);
}

/// Three servers that start at once seldom agree on too few, so what an EventSource says then is said by another pod, in its
/// place. Nothing is heard when it is over, until they are up again.
fn servers_that_agreed_on_too_few_begin_anew(ordered: &Ordered) {
    let stage = &ordered.stage;
    let (servers, source) = ("eventbus-name=forge", "eventsource-name=forge-push");
    let scaled = |replicas: &str| {
        stage.kubectl(&["scale", "deployment", "-n", "argo", "-l", source, &format!("--replicas={replicas}")]);
    };
    // Pods that are there and not about to go.
    let staying = |selector: &str| {
        let list = stage.environment.json(&["get", "pods", "-n", "argo", "-l", selector]);
        let uid = |pod: &Value| {
            let metadata = &pod["metadata"];
            metadata["deletionTimestamp"].is_null().then(|| metadata["uid"].as_str().unwrap().to_owned())
        };
        list["items"].as_array().unwrap().iter().filter_map(uid).collect::<BTreeSet<String>>()
    };
    let before = staying(servers);
    assert_eq!(before.len(), 3, "{before:?}");
    scaled("0");
    eventually("no EventSource is wanted", PATIENCE, || {
        let pods = staying(source);
        if pods.is_empty() { Ok(()) } else { Err(format!("{pods:?}")) }
    });
    stage.kubectl(&["delete", "pods", "-n", "argo", "-l", source, "--force", "--grace-period=0"]);
    let fallen = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "fallen", "namespace": "argo", "labels": {"eventsource-name": "forge-push"}},
        "spec": {
            "restartPolicy": "Never",
            // It tells which command it does not know, and fails.
            "containers": [{"name": "main", "image": platform().image(), "command": ["forge", TOO_FEW]}],
        },
    });
    let made = platform().sandbox.try_kubectl(&["create", "-f", "-"], Some(&fallen.to_string()));
    assert_eq!(made.code, 0, "{}", made.stderr);
    stage.kubectl(&["wait", "pod/fallen", "-n", "argo", "--for=jsonpath={.status.phase}=Failed", "--timeout=60s"]);
    let said = bootstrapped(stage);
    assert!(said.contains("EventBus forge begins anew"), "{said}");
    // They take leave of each other before they go, which nobody waits for here.
    assert!(staying(servers).is_disjoint(&before), "{before:?}");
    assert_eq!(staying(source), BTreeSet::new());
    scaled("1");
}
