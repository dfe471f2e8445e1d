//! `validate` on the real Argo: what is planted is what is said, by an account that can only read, and nothing is written. More
//! than forty states: of nodes (`plant`), of windows and the Lease (`windows`), of rights (`rights`), of the repository
//! (`repository`), of the controllers (`alone`), and the platform that is well. What a real cluster does not do on demand is
//! planted in `tests/validate.rs`, and all sorts of states are in `forge_core::truth`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use forge_core::render;
use forge_testkit::platform::{attempts, mark};
use forge_testkit::sandbox::eventually;
use forge_testkit::twin::{ARGOCD, LABEL, TwinNode, config_map, deployment, kwok_deployment};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::executor::job;
use crate::preflight::undo;
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
        applied(&stage, &render::reader(&account));
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

    /// The same of one node and what it rests on.
    fn until_of(&self, what: &str, node: &str, expected: &[(&str, &[&str])]) -> i32 {
        self.until(what, expected, &["--scope", &format!("app:{}", self.id(node))])
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

/// Makes an object, or changes it.
fn applied(stage: &Stage, object: &Value) {
    let made = stage.environment.platform.sandbox.try_kubectl(&["apply", "-f", "-"], Some(&object.to_string()));
    assert_eq!(made.code, 0, "{}", made.stderr);
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
        needs.settings =
            "timeouts: {health: 90s}\nrequires: [{apiVersion: v1, kind: ConfigMap, name: needed}]".to_owned();
        let mut half = pods("half");
        let (_, text) = &mut half.manifests[0];
        *text = text.replace("\"replicas\": 1", "\"replicas\": 2");
        // What is being deleted may come back for so long.
        let mut going = settings("going");
        going.settings = "timeouts: {sync: 60s}".to_owned();
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
            going,
            settings("astray"),
            settings("copied"),
            pods("paused"),
            pods("retagged"),
            pods("silent"),
            pods("loops"),
            half,
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
    let going = stage.options.application("going");
    let release = json!({"metadata": {"finalizers": null}}).to_string();
    let release = ["patch", "application", going.as_str(), "-n", ARGOCD, "--type=merge", "-p", release.as_str()];
    let released = undo(&[&release]);
    plant(stage);
    let planted: [(&str, &[&str]); 20] = [
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
        // It is being deleted, and a finalizer keeps it.
        ("going", &["missing"]),
        ("astray", &["unhealthy"]),
        // A mark that was copied is a difference to Git, and claims nothing.
        ("copied", &["drift"]),
        // Nobody wrote into Git that it is not paused, so that is no difference.
        ("paused", &["unhealthy"]),
        ("retagged", &["drift", "policy"]),
        ("silent", &["not-known"]),
        // Argo CD calls it Healthy.
        ("loops", &["unhealthy"]),
        ("half", &["wrong-digest"]),
        ("extra", &["extra"]),
    ];
    let expected: Vec<(&str, &[&str])> = RULES.iter().chain(&planted).copied().collect();
    assert_eq!(reader.until("everything that was planted is told, and nothing else", &expected, &[]), 1);
    // Of one node what is said is what is true of it, whatever the others are.
    let scoped = |node: &str| reader.validate(&["--scope", &format!("app:{}", reader.id(node))]);
    for (node, code) in [("real", 0), ("settings", 0), ("drifted", 2), ("silent", 2), ("digest", 1), ("missing", 1)] {
        let (found, report) = scoped(node);
        assert_eq!(found, code, "{node}: {report:#}");
    }
    eventually("what is being deleted has had its time", NOTICED, || match scoped("going") {
        (1, _) => Ok(()),
        (_, report) => Err(format!("{report:#}")),
    });
    windows(&reader, &expected);
    rights(&reader, &expected);
    reader.wrote_nothing(since, &reader.account);
    drop(released);
    eventually("what was kept is gone, which is the same to whoever looks", NOTICED, || {
        let there = stage.kubectl(&["get", "application", &going, "-n", ARGOCD, "--ignore-not-found", "-o", "name"]);
        if there.trim().is_empty() { Ok(()) } else { Err(there) }
    });
    assert_eq!(reader.until_of("what went is missing", "going", &[("going", &["missing"])]), 1);

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
    assert_eq!(nodes.len(), 23, "{report:#}");
    assert!(nodes.iter().all(|node| node["verdict"] == "not known"), "{report:#}");
    reader.wrote_nothing(since, &blind);

    repository(&reader);
    reader.wrote_nothing(since, &reader.account);
}

fn git(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git").current_dir(folder).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// What Git holds, one after the other; all of it about a node that is well otherwise.
fn repository(reader: &Reader) {
    let stage = &reader.stage;
    let folder = stage.environment.repository.folder();
    let origin = git(folder, &["remote", "get-url", "origin"]);
    git(folder, &["remote", "set-url", "origin", "/nowhere/at-all.git"]);
    let expected: [(&str, &[&str]); 1] = [("repository", &["not-known"])];
    assert_eq!(reader.until_of("an origin that does not answer is told", "settings", &expected), 2);
    git(folder, &["remote", "set-url", "origin", &origin]);

    // What was pushed a moment ago nobody has compared with.
    let before = git(folder, &["rev-parse", "HEAD"]);
    let pushed = stage.environment.push(&[("notes.md".to_owned(), "pushed\n".to_owned())], "something else");
    let (_, report) = reader.validate(&[]);
    assert!(reader.told(&report)["settings"].contains("stale"), "{report:#}");
    // Whoever has not pulled looks at what was.
    git(folder, &["reset", "-q", "--hard", &before]);
    let expected: [(&str, &[&str]); 1] = [("repository", &["stale"])];
    assert_eq!(reader.until_of("a checkout that is behind is told", "settings", &expected), 2);
    git(folder, &["reset", "-q", "--hard", &pushed]);

    // A commit that changes the node, which Argo CD has seen and nobody has synced.
    let changed = ("apps/settings/configmap.yaml".to_owned(), config_map("settings", "better").1);
    stage.environment.push(&[changed], "settings");
    let settings = stage.options.application("settings");
    stage.kubectl(&[
        "annotate",
        "application",
        &settings,
        "-n",
        ARGOCD,
        "argocd.argoproj.io/refresh=normal",
        "--overwrite",
    ]);
    let expected: [(&str, &[&str]); 1] = [("settings", &["drift"])];
    assert_eq!(reader.until_of("what was pushed and not synced is a difference", "settings", &expected), 2);
    let expected: [(&str, &[&str]); 1] = [("settings", &["drift", "stale"])];
    let scope = format!("app:{}", reader.id("settings"));
    let arguments = ["--scope", scope.as_str(), "--commit", pushed.as_str()];
    assert_eq!(reader.until("Argo CD is ahead of the commit that was named", &expected, &arguments), 2);
}

/// The role of the guide without some verbs on a resource.
fn role_without(account: &str, resource: &str, verbs: &[&str]) -> Value {
    let mut role = render::reader(account);
    let mut kept = Vec::new();
    for rule in role["rules"].as_array().unwrap() {
        for one in rule["resources"].as_array().unwrap() {
            let mut rule = rule.clone();
            rule["resources"] = json!([one]);
            let left = rule["verbs"].as_array_mut().unwrap();
            left.retain(|verb| one != resource || !verbs.contains(&verb.as_str().unwrap()));
            if !left.is_empty() {
                kept.push(rule);
            }
        }
    }
    role["rules"] = Value::Array(kept);
    role
}

/// A node, what is said when only it and what it rests on is asked about, and the exit code.
type Look<'l> = (&'l str, &'l [(&'l str, &'l [&'l str])], i32);

/// Rights that are missing, one after the other: what may not be read is told, and everything else is judged.
fn rights(reader: &Reader, expected: &[(&str, &[&str])]) {
    const ALL: [&str; 3] = ["get", "list", "watch"];
    let (stage, account) = (&reader.stage, reader.account.as_str());
    let project = format!("AppProject {}", stage.environment.name);
    let (project, unknown): (&str, &[&str]) = (&project, &["not-known"]);
    let of_pods: [Look<'_>; 3] = [
        ("real", &[("real", unknown)], 2),
        // What its pods do nobody can say, and Argo CD calls it Progressing.
        ("crashes", &[("crashes", &["drift", "not-known", "unhealthy"])], 2),
        // What has no pods lacks nothing.
        ("needs", &[("needs", &["drift", "missing", "unhealthy"])], 1),
    ];
    let of_workloads: [Look<'_>; 1] =
        [("real", &[("real", unknown), ("Argo CD", unknown), ("Argo Workflows", unknown)], 2)];
    // Whether its rule holds nobody can say, that it differs Argo CD says.
    let of_config_maps: [Look<'_>; 1] = [("ruled", &[("ruled", &["drift", "not-known"])], 2)];
    let of_projects: [Look<'_>; 1] = [("settings", &[(project, unknown)], 2)];
    let cases: [(&str, &[Look<'_>]); 4] = [
        ("pods", &of_pods),
        ("deployments", &of_workloads),
        ("configmaps", &of_config_maps),
        ("appprojects", &of_projects),
    ];
    for (resource, looks) in cases {
        applied(stage, &role_without(account, resource, &ALL));
        for (node, said, code) in looks {
            // What changed a moment ago has its time before it is more than degraded.
            eventually(&format!("{resource} may not be read, {node}"), NOTICED, || {
                let found = reader.until_of("what is said", node, said);
                if found == *code { Ok(()) } else { Err(format!("it exits {found}")) }
            });
        }
    }
    // Applications one by one, and not which others there are.
    applied(stage, &role_without(account, "applications", &["list", "watch"]));
    let mut without: Vec<(&str, &[&str])> = expected.iter().copied().filter(|(node, _)| *node != "extra").collect();
    without.push(("other Applications", unknown));
    assert_eq!(reader.until("Applications may not be listed", &without, &[]), 1);
    assert_eq!(reader.until_of("for a part that does not matter", "settings", &[]), 0);
    applied(stage, &render::reader(account));
    assert_eq!(reader.until_of("everything may be read again", "real", &[]), 0);
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
    // Nobody looks after the status of a simulated pod once it is ready.
    let of_one_pod = |node: &str, field: &str, value: &Value| {
        let place = namespace(node);
        let pod = kubectl(&["get", "pods", "-n", &place, "-o", "jsonpath={.items[0].metadata.name}"]);
        let path = format!("/status/containerStatuses/0/{field}");
        let patch = json!([{"op": "replace", "path": path, "value": value}]).to_string();
        kubectl(&["patch", "pod", pod.trim(), "-n", &place, "--subresource=status", "--type=json", "-p", &patch]);
    };
    of_one_pod("digest", "imageID", &json!(format!("registry.example.com/x@{OTHER}")));
    let mark = format!("argocd.argoproj.io/tracking-id=somebody-else:/ConfigMap:{}/claimed", namespace("claimed"));
    kubectl(&["annotate", "configmap", "claimed", "-n", &namespace("claimed"), &mark, "--overwrite"]);
    application("failed", &json!({"operation": {"sync": {"revision": "0123456789abcdef0123456789abcdef01234567"}}}));
    application("lost", &json!({"spec": {"source": {"path": "apps/nowhere"}}}));
    application("going", &json!({"metadata": {"finalizers": ["example.com/kept"]}}));
    kubectl(&["delete", "application", &namespace("going"), "-n", ARGOCD, "--wait=false"]);
    application("astray", &json!({"spec": {"project": "nowhere-at-all"}}));
    let mark = format!("argocd.argoproj.io/tracking-id=somebody-else:/ConfigMap:{}/copied", namespace("claimed"));
    kubectl(&["annotate", "configmap", "copied", "-n", &namespace("copied"), &mark, "--overwrite"]);
    merge("deployment", "paused", "paused", &json!({"spec": {"paused": true}}));
    let tag = "sample=registry.example.com/forge/sample:latest";
    kubectl(&["set", "image", "deployment/retagged", tag, "-n", &namespace("retagged")]);
    of_one_pod("silent", "imageID", &json!(""));
    of_one_pod("loops", "state", &json!({"waiting": {"reason": "CrashLoopBackOff", "message": "planted"}}));
    of_one_pod("half", "imageID", &json!(format!("registry.example.com/x@{OTHER}")));
    let environment = &stage.environment;
    // One of the environment that no node stands for, and one that is none of ours.
    for (name, project) in [("extra", environment.name.as_str()), ("foreign", "default")] {
        applied(
            stage,
            &json!({
                "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
                "metadata": {"name": namespace(name), "namespace": ARGOCD, "labels": {LABEL: environment.name}},
                "spec": {
                    "project": project,
                    "source": {"repoURL": environment.url, "targetRevision": "main", "path": "apps/settings"},
                    "destination": {"server": "https://kubernetes.default.svc", "namespace": namespace(name)},
                },
            }),
        );
    }
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
    let ours = |name: &str| {
        json!([{
            "kind": "deny", "schedule": "* * * * *", "duration": "24h", "manualSync": true, "applications": [name],
            "description": "forge-orchestration r-1",
        }])
    };
    set(&ours(&held));
    reader.until("a window that was left is told", &with(&["window"]), &[]);
    // The same window, while its run is in progress and after that; and for whoever may not see which of the two it is.
    let name_of_lease = format!("forge-{project}");
    let lease = |spec: &Value| {
        let patch = json!({"spec": spec}).to_string();
        stage.kubectl(&["patch", "lease", &name_of_lease, "-n", "argo", "--type=merge", "-p", &patch]);
    };
    let ago = |seconds: i64| {
        let at = Timestamp::now().checked_sub(SignedDuration::from_secs(seconds)).unwrap();
        at.strftime("%FT%T.000000Z").to_string()
    };
    let run = |seconds: i64| json!({"holderIdentity": "r-1", "leaseDurationSeconds": 600, "renewTime": ago(seconds)});
    lease(&run(0));
    reader.until("the window of a run in progress is right", expected, &[]);
    lease(&run(7200));
    reader.until("a run that nobody renews is not in progress", &with(&["window"]), &[]);
    applied(stage, &role_without(&reader.account, "leases", &["get"]));
    reader.until("whether a run is in progress may not be read", &with(&["not-known"]), &[]);
    applied(stage, &render::reader(&reader.account));
    lease(&json!({"holderIdentity": ""}));
    set(&ours(&stage.options.application("nobody")));
    reader.until("a window that holds what no node has is told", &with(&["window"]), &[]);
    set(
        &json!([{"kind": "deny", "schedule": "0 22 * * *", "duration": "1h", "manualSync": true, "applications": ["*"]}]),
    );
    reader.until("a window of somebody else that lets a run pass is nobody's business", expected, &[]);
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

    /// A workload of Argo, as kubectl names it.
    fn workload(stage: &Stage, namespace: &str, component: &str) -> String {
        let label = format!("app.kubernetes.io/component={component}");
        let found = stage.kubectl(&["get", "deployments,statefulsets", "-n", namespace, "-l", &label, "-o", "name"]);
        assert_eq!(found.lines().count(), 1, "{component}: {found}");
        found.trim().to_owned()
    }

    #[test]
    fn controllers_of_argo_that_are_down_are_told_and_so_is_that_they_are_back() {
        let reader = Reader::new(Stage::new("validate-down", false, |_| {
            vec![TwinNode::new("app", &[], vec![config_map("app", "1")])]
        }));
        reader.stage.deploy(0);
        assert_eq!(reader.until("all is well", &[], &[]), 0);
        let stage = &reader.stage;
        let rounds: [&[(&str, &str, &str)]; 2] = [
            &[("Argo CD", ARGOCD, "repo-server")],
            &[("Argo CD", ARGOCD, "application-controller"), ("Argo Workflows", "argo", "workflow-controller")],
        ];
        for round in rounds {
            let all: Vec<(String, &str)> = round
                .iter()
                .map(|(_, namespace, component)| (workload(stage, namespace, component), *namespace))
                .collect();
            let scaled =
                |(name, namespace): &(String, &str), to: &str| stage.kubectl(&["scale", name, "-n", namespace, to]);
            let back: Vec<Vec<&str>> = all
                .iter()
                .map(|(name, namespace)| vec!["scale", name.as_str(), "-n", *namespace, "--replicas=1"])
                .collect();
            let back: Vec<&[&str]> = back.iter().map(Vec::as_slice).collect();
            let _undo = undo(&back);
            for workload in &all {
                scaled(workload, "--replicas=0");
            }
            let expected: Vec<(&str, &[&str])> =
                round.iter().map(|(title, ..)| (*title, &["controller"][..])).collect();
            assert_eq!(reader.until("it is down", &expected, &[]), 1);
            for workload in &all {
                scaled(workload, "--replicas=1");
            }
            for (name, namespace) in &all {
                stage.kubectl(&["rollout", "status", name, "-n", namespace, "--timeout=120s"]);
            }
            assert_eq!(reader.until("it is back", &[], &[]), 0);
        }
    }
}
