//! Argo CD that manages itself, and what else the root file brings, on the bare cluster that `install` has too: it takes its
//! Helm release over from Git without a restart, Helm is not run for it any more, Crossplane and the configuration of an
//! environment come from Git, what is somebody else's is left alone, and in the end all of it goes. `tools/cluster` takes the sandbox down afterwards.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use forge_testkit::platform::{GIT, mark};
use forge_testkit::sandbox::{Ended, eventually, run};
use forge_testkit::twin::GitRepository;
use serde_json::{Value, json};

use crate::install::{Bare, copy, killed_before_each, points, user, writes, written};

/// How long Argo CD may take to do what Git says.
const PATIENCE: Duration = Duration::from_secs(300);
/// The root file, as the test edits it.
const ROOT: &str = "app.yaml";

/// A bare cluster, and a repository that says how it manages itself, with the charts in it.
struct Platform {
    bare: Bare,
    repository: GitRepository,
}

impl Platform {
    fn up() -> Self {
        Self::with("none", "manual")
    }

    /// With these events, and this sync of its environment.
    fn with(events: &str, sync: &str) -> Self {
        let bare = Bare::up();
        bare.clear();
        let path = format!("self-managed/{}.git", std::process::id());
        let repository = GitRepository::open(&bare.sandbox().git, &path, "main").unwrap();
        let header = "apiVersion: forge.projectcatalyst.io/v1alpha1\n";
        let installation = format!(
            "{header}kind: Forge\nspec:\n  repository: {{url: \"{GIT}/{path}\", branch: main}}\n  argo: {{cd: install, workflows: install, events: {events}}}\n  environments: [{{name: bare, cluster: in-cluster, sync: {sync}}}]\n"
        );
        let graph = format!("{header}kind: DependencyGraph\nspec:\n  stacks: []\n");
        let files = [("forge.yaml".to_owned(), installation), ("graph.yaml".to_owned(), graph)];
        repository.write(&files).unwrap();
        for chart in ["argo-cd", "crossplane"] {
            copy(&bare.sandbox().charts.join(chart), &repository.folder().join("argo/charts").join(chart));
        }
        // Another content than that of the folder that Helm installs from, which renders the same.
        fs::write(repository.folder().join("argo/charts/argo-cd/README.md"), "Ours.\n").unwrap();
        let platform = Self { bare, repository };
        let made = platform.forge(&["init", "--with", "crossplane,self-managed-argocd"]);
        assert_eq!(made.code, 0, "{}", made.stderr);
        let lint = platform.forge(&["lint"]);
        assert_eq!(lint.code, 0, "{}", lint.stdout);
        platform.push("the platform");
        platform
    }

    fn forge(&self, arguments: &[&str]) -> Ended {
        run(&mut self.bare.forge(self.repository.folder(), arguments), None)
    }

    fn bootstrap(&self, arguments: &[&str]) -> Ended {
        run(&mut self.bare.bootstrapping(self.repository.folder(), arguments), None)
    }

    /// `executor deploy`, which hands Argo CD over to itself.
    fn executor(&self, program: &Path) -> Command {
        let platform = self.bare.environment.platform;
        let mut command = Command::new(program);
        command.args(["deploy", "--metrics-listen", "127.0.0.1:0"]).env_remove("KUBECONFIG");
        for variable in ["FORGE_FAILPOINT", "FORGE_FAILPOINTS"] {
            command.env_remove(variable);
        }
        // It looks for helm where programs are.
        let helm = platform.sandbox.helm.parent().unwrap().to_owned();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(std::iter::once(helm).chain(std::env::split_paths(&path))).unwrap();
        command.env("PATH", path).env("KUBECONFIG_PATH", &platform.sandbox.kubeconfig);
        command.env("ENVIRONMENT", "bare").env("DOMAIN", "dev.example.com").env("WITH", "self-managed-argocd");
        command.env("GIT_REPOSITORY", format!("file://{}", self.repository.folder().display()));
        command.env("GIT_REVISION", "main").env("IMAGE", platform.image()).env("CHARTS", &platform.sandbox.charts);
        command
    }

    fn push(&self, message: &str) {
        self.repository.commit_and_push(message).unwrap();
    }

    /// Changes a file of the repository, and pushes it.
    fn edit(&self, path: &str, change: impl FnOnce(String) -> String) {
        let file = self.repository.folder().join(path);
        let before = fs::read_to_string(&file).unwrap();
        let after = change(before.clone());
        assert_ne!(before, after, "{path} has not what the test looks for");
        fs::write(&file, after).unwrap();
        self.push(path);
    }

    fn items(&self, kind: &str) -> Vec<Value> {
        self.bare.json(&["get", kind, "-n", "argocd"])["items"].as_array().unwrap().clone()
    }

    /// Everything of Argo CD that changes when a pod restarts: workloads with their templates, and who their pods are.
    fn running(&self) -> BTreeMap<String, Value> {
        let mut found = BTreeMap::new();
        for kind in ["deployments", "statefulsets", "replicasets", "pods"] {
            // The chart makes a Secret by a Job of its own, which Argo CD starts at every sync as Helm does.
            let of_job = |item: &Value| item["metadata"]["ownerReferences"][0]["kind"] == "Job";
            for item in self.items(kind).iter().filter(|item| !of_job(item)) {
                let metadata = &item["metadata"];
                let name = format!("{kind}/{}", metadata["name"].as_str().unwrap());
                // The generation of a Deployment counts annotations too, and adoption adds one.
                found.insert(name, json!([metadata["uid"], item["spec"]["template"]]));
            }
        }
        found
    }

    /// Waits until an Application is Synced and Healthy, and this holds too.
    fn well(&self, name: &str, also: impl Fn(&Value) -> bool) {
        eventually(&format!("Application {name} is well"), PATIENCE, || {
            let found =
                self.bare.sandbox().try_kubectl(&["get", "application", name, "-n", "argocd", "-o", "json"], None);
            let found: Value = serde_json::from_str(&found.stdout).map_err(|_| found.stderr.clone())?;
            let status = &found["status"];
            let well = status["sync"]["status"] == "Synced" && status["health"]["status"] == "Healthy";
            if well && also(&found) { Ok(()) } else { Err(status.to_string()) }
        });
    }

    /// Revisions of Argo CD's Helm release.
    fn revisions(&self) -> Vec<u64> {
        self.bare.releases("argo-cd").into_iter().map(|(number, ..)| number).collect()
    }
}

/// One story, because each step begins where the last one ended, and a cluster with Argo takes a while.
#[test]
fn argo_cd_takes_its_release_over_from_git_and_keeps_every_pod() {
    let platform = Platform::up();
    let who = user(platform.bare.sandbox());

    // Nobody asked: Helm installs, the root is applied, and Argo CD's own Application is not.
    let installed = platform.bootstrap(&[]);
    assert_eq!(installed.code, 0, "{}", installed.stderr);
    assert!(installed.stderr.contains("Argo CD was not handed over to it"), "{}", installed.stderr);
    assert_eq!(platform.revisions(), [1]);
    let root = platform.bare.json(&["get", "applicationset", "environments", "-n", "argocd"]);
    assert_eq!(root["metadata"]["labels"]["app.kubernetes.io/managed-by"], "forge");
    let there = platform.bare.sandbox().try_kubectl(&["get", "application", "argocd", "-n", "argocd"], None);
    assert_ne!(there.code, 0, "{}", there.stdout);

    // Somebody asks: what renders the same is not upgraded, and nothing restarts.
    let before = platform.running();
    assert!(before.len() >= 8, "{before:?}");
    let over = platform.bootstrap(&["--with", "self-managed-argocd"]);
    assert_eq!(over.code, 0, "{}", over.stderr);
    assert!(
        over.stderr.contains("other values, or another content of the chart, and renders the same"),
        "{}",
        over.stderr
    );
    assert!(over.stderr.contains("Application argocd: Argo CD manages itself"), "{}", over.stderr);
    platform.well("argocd", |application| application["spec"]["syncPolicy"]["automated"].is_object());
    assert_eq!(platform.running(), before);
    assert_eq!(platform.revisions(), [1]);
    for workload in platform.items("deployments") {
        let id = workload["metadata"]["annotations"]["argocd.argoproj.io/tracking-id"].as_str().unwrap_or_default();
        assert!(id.starts_with("argocd:apps/Deployment:argocd/"), "{}", workload["metadata"]);
    }

    // Again, asked or not: nothing is written, and Helm is not run.
    for arguments in [&["--with", "self-managed-argocd"][..], &[]] {
        let since = mark();
        let again = platform.bootstrap(arguments);
        assert_eq!(again.code, 0, "{}", again.stderr);
        let managed = "pre-check managed by its own Application `argocd` (Synced, Healthy); Helm is not run for it";
        assert!(again.stderr.contains(managed), "{}", again.stderr);
        assert_eq!(written(platform.bare.sandbox(), since, &who), Vec::<String>::new());
    }
    let check = platform.bootstrap(&["--check"]);
    assert_eq!(check.code, 0, "{}\n{}", check.stdout, check.stderr);
    assert_eq!((platform.running(), platform.revisions()), (before, vec![1]));

    values_come_from_git(&platform);
    configuration_comes_from_git(&platform);
    foreign(&platform);
    everything_goes(&platform);
    platform.bare.clear();
}

/// What would make nodes again is stopped first, each without what it made, and Argo CD lets go of itself before Helm removes it.
fn everything_goes(platform: &Platform) {
    let sandbox = platform.bare.sandbox();
    let arguments = ["platform", "teardown", "--environment", "bare", "--confirm", "bare", "--output", "json"];
    let mut command = platform.bare.forge(platform.repository.folder(), &arguments);
    let ended = run(command.arg("--helm").arg(&sandbox.helm), None);
    // Also what Crossplane makes for itself when it starts, which nobody tracks: it was not there at phase 0, and nobody uses it.
    assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(report["cleanExit"]["orphaned"], json!([]), "{report:#}");
    assert!(report["cleanExit"]["snapshot"].is_string(), "{report:#}");
    let others = report["cleanExit"]["others"].to_string();
    assert!(!others.contains(".crossplane.io"), "{others}");
    let removed = report["removal"]["removed"].to_string();
    let steps = [
        "ApplicationSet environments leaves bare/app.yaml out",
        "Application bare-bootstrap, without what it brought",
        "ApplicationSet bare-apps, without its Applications",
        "CustomResourceDefinition/locks.pkg.crossplane.io",
        "Application argocd, without Argo CD",
    ];
    let places: Vec<Option<usize>> = steps.iter().map(|step| removed.find(step)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}: {report:#}");
    assert_eq!(report["statistics"]["gone"], report["statistics"]["nodes"], "{report:#}");
    assert_eq!(report["cleanExit"]["notKnown"], json!([]), "{report:#}");
    for gone in [
        ["namespace", "argocd"],
        ["namespace", "argo"],
        ["crd", "applications.argoproj.io"],
        ["crd", "locks.pkg.crossplane.io"],
        ["validatingwebhookconfiguration", "crossplane-no-usages"],
    ] {
        let found = sandbox.try_kubectl(&["get", gone[0], gone[1]], None);
        assert_ne!(found.code, 0, "{gone:?} is still there: {report:#}");
    }
}

/// From then on the Application's values are Argo CD's, and Helm's release stays what it was.
fn values_come_from_git(platform: &Platform) {
    let more = "      valuesObject:\n        server:\n          replicas: 2\n";
    platform.edit(ROOT, |text| text.replacen("      valuesObject:\n", more, 1));
    let changed = platform.bootstrap(&[]);
    assert_eq!(changed.code, 0, "{}", changed.stderr);
    eventually("argocd-server has two pods", PATIENCE, || {
        let server = platform.bare.json(&["get", "deployment", "argo-cd-argocd-server", "-n", "argocd"]);
        if server["status"]["availableReplicas"] == 2 { Ok(()) } else { Err(server["status"].to_string()) }
    });
    platform.well("argocd", |_| true);
    assert_eq!(platform.revisions(), [1]);

    // And what Git says no longer goes.
    platform.edit(ROOT, |text| text.replacen(more, "      valuesObject:\n", 1));
    let check = platform.bootstrap(&["--check"]);
    assert!(check.stdout.contains("Application argocd says something else than app.yaml"), "{}", check.stdout);
    let changed = platform.bootstrap(&[]);
    assert_eq!(changed.code, 0, "{}", changed.stderr);
    let application = platform.bare.json(&["get", "application", "argocd", "-n", "argocd"]);
    assert!(application["spec"]["source"]["helm"]["valuesObject"]["server"]["replicas"].is_null(), "{application}");
    eventually("argocd-server has one pod", PATIENCE, || {
        let server = platform.bare.json(&["get", "deployment", "argo-cd-argocd-server", "-n", "argocd"]);
        if server["status"]["replicas"] == 1 { Ok(()) } else { Err(server["status"].to_string()) }
    });
}

/// Crossplane, and with it what an environment is told: first nodes of every run.
fn configuration_comes_from_git(platform: &Platform) {
    let deploy = || {
        let deployed = platform.forge(&["platform", "deploy", "--environment", "bare"]);
        assert_eq!(deployed.code, 0, "{}\n{}", deployed.stdout, deployed.stderr);
        platform.bare.json(&["get", "environmentconfigs.apiextensions.crossplane.io", "bare"])["data"].clone()
    };
    assert_eq!(deploy(), json!({"environment": "bare"}));
    for name in ["crossplane", "bare-bootstrap", "bare-config"] {
        platform.well(name, |_| true);
    }
    platform.edit("bare/env.yaml", |text| format!("{text}  region: here\n"));
    assert_eq!(deploy(), json!({"environment": "bare", "region": "here"}));
}

/// What carries our label no longer is left alone: as it is where it says the same, refused where it does not.
fn foreign(platform: &Platform) {
    let sandbox = platform.bare.sandbox();
    let set = ["applicationset", "environments", "-n", "argocd"];
    let label = |mark: &str| sandbox.kubectl(&[&["label"], &set[..], &["--overwrite", mark]].concat());
    let kept = || {
        let found = platform.bare.json(&[&["get"], &set[..]].concat());
        found["spec"]["syncPolicy"]["preserveResourcesOnDeletion"].clone()
    };
    label("app.kubernetes.io/managed-by-");
    let left = platform.bootstrap(&[]);
    assert_eq!(left.code, 0, "{}", left.stderr);
    assert!(left.stderr.contains("ApplicationSet environments, which is somebody else's"), "{}", left.stderr);
    let other = r#"{"spec":{"syncPolicy":{"preserveResourcesOnDeletion":false}}}"#;
    sandbox.kubectl(&[&["patch"], &set[..], &["--type", "merge", "-p", other]].concat());
    let refused = platform.bootstrap(&[]);
    assert_eq!(refused.code, 3, "{}", refused.stderr);
    assert!(refused.stderr.contains("FORGE-M002"), "{}", refused.stderr);
    assert_eq!(kept(), false);
    // Handed over by name.
    label("app.kubernetes.io/managed-by=forge");
    let done = platform.bootstrap(&[]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert_eq!(kept(), true);
}

/// What `install` sweeps of `forge bootstrap`, for the executor and for all that a root brings: the root file and its receipt,
/// triggers, and Argo CD's own Application. For `make soak`.
#[test]
#[ignore = "takes hours; tools/soak runs it"]
fn killed_before_any_write_the_executor_completes_what_a_root_brings() {
    let platform = Platform::with("install", "ordered");
    // What the executor is told is what the repository says.
    platform.edit("bare/env.yaml", |text| format!("{text}  domain: dev.example.com\n"));
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("executor");
    std::os::unix::fs::symlink(&platform.bare.environment.platform.binary, &program).unwrap();
    let deploy = || platform.executor(&program);
    let writes = writes(deploy(), 0);
    // The handover has the Lease for itself, and the receipt is written before it and after it.
    for point in [
        "ApplicationSet environments",
        "Application argocd to be compared",
        "Application argocd",
        "ConfigMap forge-root",
        "ConfigMap forge-root#2",
        "Sensor forge-bare in argo",
        "Secret forge-webhook",
        "Lease forge-bootstrap#2",
        "Lease forge-bootstrap given back#2",
    ] {
        assert!(points(&writes).iter().any(|found| found == point), "{point}: {writes:?}");
    }
    let then = |after: &str| {
        let done = run(&mut deploy(), None);
        assert_eq!(done.code, 0, "after {after}: {}", done.stderr);
        platform.bare.is_whole(after);
        platform.well("argocd", |application| application["spec"]["syncPolicy"]["automated"].is_object());
        let check = platform.bootstrap(&["--check", "--with", "self-managed-argocd"]);
        assert_eq!(check.code, 0, "after {after}: {}\n{}", check.stdout, check.stderr);
    };
    let swept = killed_before_each(&writes, || platform.bare.clear(), deploy, then);
    assert!(swept > 43, "{writes:?}");
    platform.bare.clear();
}
