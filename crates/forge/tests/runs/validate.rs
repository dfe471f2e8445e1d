//! `validate` on the real Argo: what is planted is what is said, by an account that can only read, and nothing is written. All
//! sorts of states are in `forge_core::truth`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use forge_core::render;
use forge_testkit::platform::{attempts, mark};
use forge_testkit::sandbox::eventually;
use forge_testkit::twin::{ARGOCD, LABEL, TwinNode, config_map, deployment, kwok_deployment};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::executor::job;
use crate::readers::{forge, kubeconfig, tried};
use crate::stage::{PATIENCE, Stage};

/// How long Argo CD and Kubernetes may take to notice what was planted, roll-outs that give up after a minute included.
const NOTICED: Duration = Duration::from_secs(240);
/// An image that is nowhere; simulated nodes pull none.
const OTHER: &str = "sha256:fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210";

/// A stage, and an account that has nothing but the role of the guide.
struct Reader {
    stage: Stage,
    account: String,
    folder: tempfile::TempDir,
    kubeconfig: PathBuf,
}

impl Reader {
    fn new(stage: Stage) -> Self {
        let account = format!("{}-reader", stage.environment.name);
        let sandbox = &stage.environment.platform.sandbox;
        let folder = tempfile::tempdir().unwrap();
        sandbox.kubectl(&["create", "serviceaccount", &account, "-n", "default"]);
        let role = sandbox.try_kubectl(&["apply", "-f", "-"], Some(&render::reader(&account).to_string()));
        assert_eq!(role.code, 0, "{}", role.stderr);
        let (role, of) = (format!("--clusterrole={account}"), format!("--serviceaccount=default:{account}"));
        sandbox.kubectl(&["create", "clusterrolebinding", &account, &role, &of]);
        let kubeconfig = kubeconfig(sandbox, folder.path(), "default", &account);
        Self { stage, account, folder, kubeconfig }
    }

    fn id(&self, node: &str) -> String {
        self.stage.options.id(node)
    }

    /// Validates as somebody; gives the exit code and the report.
    fn validate_as(&self, kubeconfig: &Path, arguments: &[&str]) -> (i32, Value) {
        let environment = &self.stage.environment;
        let all = [&["platform", "validate", "-o", "json", "-e", environment.name.as_str()], arguments].concat();
        let ended = forge(&environment.platform.binary, kubeconfig, environment.repository.folder(), &all);
        let report = serde_json::from_str(&ended.stdout);
        (ended.code, report.unwrap_or_else(|error| panic!("{error}: {}\n{}", ended.stdout, ended.stderr)))
    }

    fn validate(&self, arguments: &[&str]) -> (i32, Value) {
        self.validate_as(&self.kubeconfig, arguments)
    }

    /// What is said of each component that is not healthy, by its name without that of the environment.
    fn told(&self, report: &Value) -> BTreeMap<String, BTreeSet<String>> {
        let prefix = format!("{ARGOCD}/{}-", self.stage.environment.name);
        let mut told: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for failure in report["failures"].as_array().unwrap() {
            let component = failure["component"].as_str().unwrap().trim_start_matches(&prefix).to_owned();
            told.entry(component).or_default().insert(failure["kind"].as_str().unwrap().to_owned());
        }
        told
    }

    /// Validates until this is what is said, all of it; gives the exit code.
    fn until(&self, what: &str, expected: &[(&str, &[&str])], arguments: &[&str]) -> i32 {
        let expected: BTreeMap<String, BTreeSet<String>> =
            expected.iter().map(|(node, kinds)| ((*node).to_owned(), crate::stage::names(kinds))).collect();
        eventually(what, NOTICED, || {
            let (code, report) = self.validate(arguments);
            let told = self.told(&report);
            if told == expected { Ok(code) } else { Err(format!("{told:#?}\n{:#}", report["failures"])) }
        })
    }

    /// Nothing was written by the account, and nobody was made to compare.
    fn wrote_nothing(&self, since: Timestamp, account: &str) {
        let sandbox = &self.stage.environment.platform.sandbox;
        assert_eq!(tried(sandbox, since, account), Vec::<String>::new());
        self.compared_nothing(since);
    }

    /// Argo CD's server did not ask for a comparison of these Applications.
    fn compared_nothing(&self, since: Timestamp) {
        let sandbox = &self.stage.environment.platform.sandbox;
        let prefix = format!("{}-", self.stage.environment.name);
        let refreshed: Vec<String> = attempts(sandbox, since)
            .into_iter()
            .filter(|line| line.user.contains("argocd-server") && line.name.starts_with(&prefix))
            .map(|line| format!("{line:?}"))
            .collect();
        assert_eq!(refreshed, Vec::<String>::new());
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let sandbox = &self.stage.environment.platform.sandbox;
        sandbox.try_kubectl(&["delete", "clusterrole,clusterrolebinding", &self.account, "--wait=false"], None);
        sandbox.try_kubectl(&["delete", "serviceaccount", &self.account, "-n", "default", "--wait=false"], None);
    }
}

/// A Deployment on a simulated node with something more in its container.
fn simulated(name: &str, image: &str, more: &Value) -> (String, String) {
    let (file, text) = kwok_deployment(name, image, 1, false);
    let mut object: Value = serde_json::from_str(&text).unwrap();
    for (field, value) in more.as_object().unwrap() {
        object["spec"]["template"]["spec"]["containers"][0][field] = value.clone();
    }
    (file, format!("{object:#}\n"))
}

fn platform() -> Stage {
    Stage::new("validate", false, |options| {
        let image = &options.image;
        let pods = |name: &str| TwinNode::new(name, &[], vec![simulated(name, image, &json!({}))]);
        let settings = |name: &str| TwinNode::new(name, &[], vec![config_map(name, "good")]);
        let tagged = json!({"image": "registry.example.com/forge/sample:latest"});
        let plain = json!({"env": [{"name": "DB_PASSWORD", "value": "hunter2hunter2"}]});
        let mut needs = settings("needs");
        needs.manifests.push(("needed.yaml".to_owned(), config_map("needed", "1").1));
        needs.settings = "requires: [{apiVersion: v1, kind: ConfigMap, name: needed}]".to_owned();
        let mut ruled = settings("ruled");
        ruled.settings =
            "health: [{apiVersion: v1, kind: ConfigMap, name: ruled, expr: \"object.data.text == 'good'\"}]".to_owned();
        vec![
            TwinNode::new("real", &[], vec![deployment("real", image, 1, &[])]),
            settings("settings"),
            TwinNode::new("tagged", &[], vec![simulated("tagged", image, &tagged)]),
            TwinNode::new("plain", &[], vec![simulated("plain", image, &plain)]),
            needs,
            ruled,
            settings("drifted"),
            pods("scaled"),
            pods("removed"),
            settings("missing"),
            pods("crashes"),
            pods("digest"),
            settings("claimed"),
            settings("failed"),
            settings("lost"),
        ]
    })
}

/// What is there from the beginning.
const RULES: [(&str, &[&str]); 2] = [("tagged", &["policy"]), ("plain", &["policy"])];

#[test]
fn planted_states_are_told_by_a_reader_and_nothing_is_written() {
    let reader = Reader::new(platform());
    let stage = &reader.stage;
    stage.deploy(0);
    let since = mark();
    // A platform that is well, but for two rules; with those allowed it is healthy.
    assert_eq!(reader.until("the platform is well", &RULES, &[]), 2);
    let allowed = ["--allow", "FORGE-I001,FORGE-S005"];
    assert_eq!(reader.until("rules can be allowed", &[], &allowed), 0);
    // Compared some seconds ago is old for whoever wants it newer.
    eventually("an old comparison is stale", NOTICED, || {
        let (code, report) =
            reader.validate(&["--stale-after", "1s", "--scope", &format!("app:{}", reader.id("real"))]);
        let stale = reader.told(&report).get("real").is_some_and(|kinds| kinds.contains("stale"));
        if stale && code == 2 { Ok(()) } else { Err(format!("{report:#}")) }
    });
    plant(stage);
    let planted: [(&str, &[&str]); 12] = [
        // Argo CD calls an Application that lacks an object missing, and so unhealthy.
        ("needs", &["drift", "missing", "unhealthy"]),
        ("ruled", &["drift", "unhealthy"]),
        ("drifted", &["drift"]),
        ("scaled", &["drift"]),
        ("removed", &["drift", "unhealthy"]),
        ("missing", &["missing"]),
        ("crashes", &["drift", "unhealthy"]),
        ("digest", &["wrong-digest"]),
        ("claimed", &["drift", "tracking"]),
        ("failed", &["unhealthy"]),
        ("lost", &["unhealthy"]),
        ("extra", &["extra"]),
    ];
    let expected: Vec<(&str, &[&str])> = RULES.iter().chain(&planted).copied().collect();
    assert_eq!(reader.until("everything that was planted is told, and nothing else", &expected, &[]), 1);
    // Of one node what is said is what is true of it, whatever the others are.
    for (node, code) in [("real", 0), ("settings", 0), ("drifted", 2), ("digest", 1), ("missing", 1)] {
        let (found, report) = reader.validate(&["--scope", &format!("app:{}", reader.id(node))]);
        assert_eq!(found, code, "{node}: {report:#}");
    }
    windows(&reader, &expected);
    reader.wrote_nothing(since, &reader.account);

    // Whoever may read nothing is told that nothing is known.
    let blind = format!("{}-blind", stage.environment.name);
    let sandbox = &stage.environment.platform.sandbox;
    sandbox.kubectl(&["create", "serviceaccount", &blind, "-n", "default"]);
    let nobody = kubeconfig(sandbox, reader.folder.path(), "default", &blind);
    let (code, report) = reader.validate_as(&nobody, &[]);
    sandbox.kubectl(&["delete", "serviceaccount", &blind, "-n", "default", "--wait=false"]);
    assert_eq!((code, report["verdict"].as_str()), (2, Some("not known")), "{report:#}");
    let components = report["components"].as_array().unwrap().iter();
    let nodes: Vec<&Value> = components.filter(|component| component["sort"] == "node").collect();
    assert_eq!(nodes.len(), 15, "{report:#}");
    assert!(nodes.iter().all(|node| node["verdict"] == "not known"), "{report:#}");
    reader.wrote_nothing(since, &blind);

    // What was pushed a moment ago nobody has compared with.
    stage.environment.push(&[("notes.md".to_owned(), "pushed\n".to_owned())], "something else");
    let (_, report) = reader.validate(&[]);
    assert!(reader.told(&report)["settings"].contains("stale"), "{report:#}");
    reader.wrote_nothing(since, &reader.account);
}

/// One state for each node.
fn plant(stage: &Stage) {
    let namespace = |node: &str| stage.options.application(node);
    let kubectl = |arguments: &[&str]| stage.kubectl(arguments);
    let merge = |kind: &str, name: &str, node: &str, patch: &Value| {
        kubectl(&["patch", kind, name, "-n", &namespace(node), "--type=merge", "-p", &patch.to_string()]);
    };
    let application = |node: &str, patch: &Value| {
        kubectl(&["patch", "application", &namespace(node), "-n", ARGOCD, "--type=merge", "-p", &patch.to_string()]);
    };
    kubectl(&["delete", "configmap", "needed", "-n", &namespace("needs")]);
    merge("configmap", "ruled", "ruled", &json!({"data": {"text": "bad"}}));
    merge("configmap", "drifted", "drifted", &json!({"data": {"text": "bad"}}));
    kubectl(&["scale", "deployment", "scaled", "-n", &namespace("scaled"), "--replicas=2"]);
    kubectl(&["delete", "deployment", "removed", "-n", &namespace("removed")]);
    kubectl(&["delete", "application", &namespace("missing"), "-n", ARGOCD]);
    let fails = json!({"sample.example.com/fail": "true"});
    merge("deployment", "crashes", "crashes", &json!({"spec": {"template": {"metadata": {"annotations": fails}}}}));
    let pod = kubectl(&["get", "pods", "-n", &namespace("digest"), "-o", "jsonpath={.items[0].metadata.name}"]);
    let image = json!([{
        "op": "replace", "path": "/status/containerStatuses/0/imageID", "value": format!("registry.example.com/x@{OTHER}"),
    }]);
    let (place, image) = (namespace("digest"), image.to_string());
    kubectl(&["patch", "pod", pod.trim(), "-n", &place, "--subresource=status", "--type=json", "-p", &image]);
    let mark = format!("argocd.argoproj.io/tracking-id=somebody-else:/ConfigMap:{}/claimed", namespace("claimed"));
    kubectl(&["annotate", "configmap", "claimed", "-n", &namespace("claimed"), &mark, "--overwrite"]);
    application("failed", &json!({"operation": {"sync": {"revision": "0123456789abcdef0123456789abcdef01234567"}}}));
    application("lost", &json!({"spec": {"source": {"path": "apps/nowhere"}}}));
    let environment = &stage.environment;
    let extra = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
        "metadata": {"name": namespace("extra"), "namespace": ARGOCD, "labels": {LABEL: environment.name}},
        "spec": {
            "project": environment.name,
            "source": {"repoURL": environment.url, "targetRevision": "main", "path": "apps/settings"},
            "destination": {"server": "https://kubernetes.default.svc", "namespace": namespace("extra")},
        },
    });
    let made = environment.platform.sandbox.try_kubectl(&["apply", "-f", "-"], Some(&extra.to_string()));
    assert_eq!(made.code, 0, "{}", made.stderr);
}

/// Windows, one after the other, beside everything else.
fn windows(reader: &Reader, expected: &[(&str, &[&str])]) {
    let stage = &reader.stage;
    let (project, held) = (stage.environment.name.as_str(), stage.options.application("settings"));
    let name = format!("AppProject {project}");
    let set = |windows: &Value| {
        let patch = json!({"spec": {"syncWindows": windows}}).to_string();
        stage.kubectl(&["patch", "appproject", project, "-n", ARGOCD, "--type=merge", "-p", &patch]);
    };
    let with = |kinds: &'static [&'static str]| -> Vec<(&str, &[&str])> {
        expected.iter().copied().chain([(name.as_str(), kinds)]).collect()
    };
    set(&json!([{
        "kind": "deny", "schedule": "* * * * *", "duration": "24h", "manualSync": true, "applications": [held],
        "description": "forge-orchestration r-1",
    }]));
    reader.until("a window that was left is told", &with(&["window"]), &[]);
    set(&json!([{"kind": "deny", "schedule": "0 22 * * *", "duration": "1h", "applications": ["*"]}]));
    reader.until("a window of somebody else is told", &with(&["policy"]), &[]);
    set(&Value::Null);
    reader.until("windows are as they must be", expected, &[]);
}

#[test]
fn as_a_job_with_the_rights_of_a_run_it_asks_argo_cd_and_makes_nobody_compare() {
    let stage = Stage::new("validate-job", false, |options| {
        let node =
            |name: &str, before: &[&str]| TwinNode::new(name, before, vec![deployment(name, &options.image, 1, &[])]);
        vec![node("first", &[]), node("second", &["first"])]
    });
    stage.deploy(0);
    let reader = Reader::new(stage);
    let (stage, since) = (&reader.stage, mark());
    let sandbox = &stage.environment.platform.sandbox;
    let name = format!("{}-look", stage.environment.name);
    let mut object = job(stage, &name);
    object["spec"]["template"]["spec"]["containers"][0]["args"] = json!(["validate", "--output", "json"]);
    let made = sandbox.try_kubectl(&["create", "-f", "-"], Some(&object.to_string()));
    assert_eq!(made.code, 0, "{}", made.stderr);
    let text = eventually(&format!("Job {name} has ended"), PATIENCE, || {
        let job = stage.environment.json(&["get", "job", &name, "-n", "argo"]);
        let conditions = job["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is = |kind: &str| conditions.iter().any(|found| found["type"] == kind && found["status"] == "True");
        let logs = sandbox.try_kubectl(&["logs", "-n", "argo", &format!("job/{name}"), "--tail=-1"], None).stdout;
        if is("Failed") || is("Complete") { Ok(logs) } else { Err(logs) }
    });
    stage.kubectl(&["delete", "job", &name, "-n", "argo", "--wait=false"]);
    // The report is the one thing that is written over several lines.
    let report: Vec<&str> = text.lines().skip_while(|line| *line != "{").collect();
    let end = report.iter().position(|line| *line == "}").unwrap_or_else(|| panic!("{text}"));
    let report: Value = serde_json::from_str(&report[..=end].join("\n")).unwrap();
    // Pods it may not read itself, so Argo CD was asked; Argo's own workloads it may not read either, and says so.
    let verdict = |component: &str| {
        let components = report["components"].as_array().unwrap();
        let found = components.iter().find(|found| found["component"] == component);
        found.unwrap_or_else(|| panic!("{component}: {report:#}"))["verdict"].as_str().unwrap().to_owned()
    };
    for node in ["first", "second"] {
        assert_eq!(verdict(&reader.id(node)), "healthy", "{report:#}");
    }
    assert_eq!((verdict("Argo CD").as_str(), report["exit"].as_u64()), ("not known", Some(2)), "{report:#}");
    // The account is that of every run, so only what concerns this environment counts.
    let mine = |line: &String| line.contains(&stage.environment.name);
    let written: Vec<String> = tried(sandbox, since, "forge-executor").into_iter().filter(mine).collect();
    assert_eq!(written, Vec::<String>::new());
    reader.compared_nothing(since);
}

mod alone {
    use super::*;
    use crate::preflight::undo;

    #[test]
    fn a_controller_of_argo_cd_that_is_down_is_told_and_so_is_that_it_is_back() {
        let reader = Reader::new(Stage::new("validate-down", false, |_| {
            vec![TwinNode::new("app", &[], vec![config_map("app", "1")])]
        }));
        reader.stage.deploy(0);
        assert_eq!(reader.until("all is well", &[], &[]), 0);
        let label = "app.kubernetes.io/component=repo-server";
        let server = reader.stage.kubectl(&["get", "deployments", "-n", ARGOCD, "-l", label, "-o", "name"]);
        let server = server.trim();
        let back = ["scale", server, "-n", ARGOCD, "--replicas=1"];
        let _undo = undo(&[&back]);
        reader.stage.kubectl(&["scale", server, "-n", ARGOCD, "--replicas=0"]);
        assert_eq!(reader.until("it is down", &[("Argo CD", &["controller"])], &[]), 1);
        reader.stage.kubectl(&back);
        reader.stage.kubectl(&["rollout", "status", server, "-n", ARGOCD, "--timeout=120s"]);
        assert_eq!(reader.until("it is back", &[], &[]), 0);
    }
}
