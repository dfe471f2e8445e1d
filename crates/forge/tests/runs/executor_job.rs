//! From a bare cluster to a proven platform by nothing but Forge's own chart and a Job of the executor's image: Argo from charts
//! in Git, Applications from the root of the repository, no input. Again, and nothing is written; with the account that
//! installs taken away, and a run still goes; the token of Argo CD replaced by the calendar's Job, and the platform looked at by
//! one that can only read; after the cluster was lost, and what runs is the same. No account asks for anything that it is
//! not given, and none but the reader is given what it does not ask for.
//!
//! `tools/cluster` takes the sandbox down afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;
use std::time::Duration;

use forge_core::preflight::Purpose;
use forge_core::render::{ARGOCD_SECRET, EXECUTOR_ACCOUNT, INSTALLER_ACCOUNT, READER_ACCOUNT, ROTATOR_ACCOUNT};
use forge_core::rights::{self, Grant, Request};
use forge_testkit::platform::{self, asked, attempts, mark};
use forge_testkit::sandbox::{Sandbox, built_binary, eventually, forge_sandbox, run};
use forge_testkit::twin::{self, GitRepository, Options, TwinNode, config_map, deployment};
use forge_testkit::{chart, image};
use jiff::Timestamp;
use serde_json::Value;

/// The sandbox without Argo: one of its own, because the one of `install` is in use beside it.
const NAME: &str = "job";
const ENVIRONMENT: &str = "dev";
const REPOSITORY: &str = "platform/dev.git";
/// The charts of Argo, which the repository brings.
const CHARTS: [&str; 3] = ["argo-cd", "argo-workflows", "argo-events"];
/// What everybody of Forge is called in the cluster.
const ACCOUNTS: &str = "system:serviceaccount:argo:forge-";
/// How long a Job may take that installs Argo and deploys a few nodes, on a machine with other work; and the whole example.
const PATIENCE: Duration = Duration::from_secs(900);
const LONG: Duration = Duration::from_secs(3600);

/// A cluster with nothing in it, a repository that says everything, and the images of a release.
struct Bare {
    sandbox: Sandbox,
    repository: GitRepository,
    executor: String,
    plugin: String,
    patience: Duration,
}

impl Bare {
    fn up(arguments: &[&str], patience: Duration, nodes: impl FnOnce(&mut Options) -> Vec<(String, String)>) -> Self {
        // As bare as can be: another test may have left its Argo in it.
        let down = forge_sandbox(NAME, &["down"]);
        assert_eq!(down.code, 0, "{}", down.stderr);
        let sandbox = Sandbox::up(NAME, arguments);
        let binary = built_binary("forge");
        let [executor, plugin] = ["executor", "plugin"].map(|name| image::load_released(&sandbox, name, &binary));
        let url = format!("{}/{REPOSITORY}", platform::GIT);
        let mut options = Options::new(ENVIRONMENT, &url, &platform::sample(&sandbox));
        options.argo = "{cd: install, workflows: install, events: install}".to_owned();
        let files = nodes(&mut options);
        let repository = GitRepository::open(&sandbox.git, REPOSITORY, "main").unwrap();
        repository.write(&twin::rooted(&options, &files)).unwrap();
        let charts = repository.folder().join("argo/charts");
        fs::create_dir_all(&charts).unwrap();
        for chart in CHARTS {
            let mut helm = Command::new(&sandbox.helm);
            helm.arg("package").arg(sandbox.charts.join(chart)).arg("--destination").arg(&charts);
            let packed = run(&mut helm, None);
            assert_eq!(packed.code, 0, "{}", packed.stderr);
        }
        repository.commit_and_push("the platform").unwrap();
        Self { sandbox, repository, executor, plugin, patience }
    }

    /// Installs Forge's chart, as an administrator does it once.
    fn install(&self, more: &[&str]) {
        let mut helm = Command::new(&self.sandbox.helm);
        helm.args(["upgrade", "--install", "forge"]).arg(chart::folder());
        helm.args(["--namespace", "argo", "--create-namespace"]);
        let values = [
            "prepare=executor".to_owned(),
            format!("images.executor={}", self.executor),
            format!("images.plugin={}", self.plugin),
            format!("environments={{{ENVIRONMENT}}}"),
            "executor.domain=dev.example.com".to_owned(),
            format!("executor.gitRepository={}/{REPOSITORY}", platform::GIT),
        ];
        for value in values.iter().map(String::as_str).chain(more.iter().copied()) {
            helm.args(["--set", value]);
        }
        let ended = run(helm.env("KUBECONFIG", &self.sandbox.kubeconfig), None);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.sandbox.kubectl(&[arguments, &["-o", "json"]].concat())).unwrap()
    }

    fn items(&self, arguments: &[&str]) -> Vec<Value> {
        self.json(&[&["get"], arguments].concat())["items"].as_array().cloned().unwrap_or_default()
    }

    /// Makes a Job of a template of the chart; gives its name.
    fn begun(&self, template: &str, number: u32) -> String {
        let (name, from) = (format!("{template}-{number}"), format!("--from=cronjob/{template}"));
        self.sandbox.kubectl(&["create", "job", &name, "-n", "argo", &from]);
        name
    }

    /// Waits until a Job has ended, which ran as this account and from this image; gives whether it went well, and all that it
    /// wrote.
    fn ended(&self, name: &str, account: &str, image: &str) -> (bool, String) {
        let target = format!("job/{name}");
        let written = || self.sandbox.try_kubectl(&["logs", "-n", "argo", &target, "--tail=-1"], None).stdout;
        let well = eventually(&format!("Job {name} has ended"), self.patience, || {
            let job = self.json(&["get", "job", name, "-n", "argo"]);
            let conditions = job["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let is = |kind: &str| conditions.iter().any(|found| found["type"] == kind && found["status"] == "True");
            if is("Failed") || is("Complete") { Ok(is("Complete")) } else { Err(written()) }
        });
        for pod in self.items(&["pods", "-n", "argo", "-l", &format!("job-name={name}")]) {
            assert_eq!(pod["spec"]["serviceAccountName"], account);
            let (_, digest) = image.split_once('@').unwrap();
            let runs = pod["status"]["containerStatuses"][0]["imageID"].as_str().unwrap_or_default();
            assert!(runs.ends_with(digest), "{runs} is not {image}");
        }
        (well, written())
    }

    /// Makes a Job that deploys, as this account, and waits until it is done; gives all that it wrote.
    fn job(&self, number: u32, account: &str) -> String {
        let name = self.begun(&format!("forge-deploy-{ENVIRONMENT}"), number);
        let (well, text) = self.ended(&name, account, &self.executor);
        assert!(well, "{name} failed:\n{text}");
        text
    }

    /// Nodes that are proven by some run, by their names.
    fn proven(&self) -> BTreeSet<String> {
        let label = format!("forge.projectcatalyst.io/environment={ENVIRONMENT}");
        let mut proven = BTreeSet::new();
        for config_map in self.items(&["configmaps", "-n", "argo", "-l", &label]) {
            for (key, text) in config_map["data"].as_object().into_iter().flatten() {
                let entry: Value = serde_json::from_str(text.as_str().unwrap_or_default()).unwrap_or_default();
                if key.ends_with(".json") && entry["decision"]["type"] == "proven" {
                    proven.insert(entry["node"].as_str().unwrap_or_default().to_owned());
                }
            }
        }
        proven
    }

    /// What runs of the platform: containers by namespace and name, with the digests of their images.
    fn digests(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for pod in self.items(&["pods", "-A"]) {
            let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
            if !namespace.starts_with(&format!("{ENVIRONMENT}-")) || !pod["metadata"]["deletionTimestamp"].is_null() {
                continue;
            }
            for container in pod["status"]["containerStatuses"].as_array().into_iter().flatten() {
                let place = format!("{namespace}/{}", container["name"].as_str().unwrap_or_default());
                let image = container["imageID"].as_str().unwrap_or_default().to_owned();
                found.entry(place).or_default().insert(image);
            }
        }
        found
    }

    /// What anybody of Forge changed, or tried to, since a moment: Leases too.
    fn written(&self, since: Timestamp) -> Vec<String> {
        let own = asked(&self.sandbox, since).into_iter().filter(forge_testkit::platform::Asked::writes);
        let own = own.map(|asked| format!("{asked:?}"));
        let others = attempts(&self.sandbox, since).into_iter();
        let others = others.filter(|line| line.user.starts_with(ACCOUNTS) && !line.resource.starts_with("selfsubject"));
        own.chain(others.map(|line| format!("{line:?}"))).collect()
    }

    /// No account was refused anything, and each was seen to need everything that it is given, but for what a good day does not
    /// need; the reader's table is for more than one platform has, and is held against what it asked for alone.
    fn rights_fit(&self, since: Timestamp) {
        let all = asked(&self.sandbox, since);
        let refused: Vec<_> = all.iter().filter(|asked| asked.forbidden).collect();
        assert!(refused.is_empty(), "{refused:#?}");
        let purpose = Purpose::default();
        for (account, grants) in [
            (INSTALLER_ACCOUNT, rights::installer()),
            (EXECUTOR_ACCOUNT, rights::grants(EXECUTOR_ACCOUNT)),
            (ROTATOR_ACCOUNT, rights::rotator()),
            (READER_ACCOUNT, rights::reader()),
        ] {
            let user = format!("system:serviceaccount:argo:{account}");
            let own = all.iter().filter(|asked| asked.user == user && !asked.request.is_review());
            let requests: BTreeSet<Request> = own.map(|asked| asked.request.clone()).collect();
            assert!(!requests.is_empty(), "nothing was asked for by {account}");
            // Everybody may ask some things; of what takes a rule, each takes one of these.
            let by_rule = |request: &&Request| !grants.iter().any(|grant: &Grant| grant.covers(request, &purpose));
            let beside: Vec<&Request> = requests.iter().filter(by_rule).collect();
            assert!(beside.is_empty(), "{account} has rights from elsewhere: {beside:#?}");
            if account == READER_ACCOUNT {
                continue;
            }
            let unneeded: Vec<String> = grants.iter().flat_map(|grant| grant.unneeded(&requests, &purpose)).collect();
            assert_eq!(unneeded, Vec::<String>::new(), "{account} is given what it did not need");
        }
    }
}

/// The verdict that a Job wrote last.
pub(crate) fn verdict(text: &str) -> String {
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let told = lines.filter(|line| line["phase"] == "all").filter_map(|line| {
        let (verdict, _) = line["message"].as_str()?.split_once(": ")?;
        Some(verdict.to_owned())
    });
    told.collect::<Vec<String>>().pop().unwrap_or_default()
}

/// Six nodes, and three of them with pods.
fn few(options: &mut Options) -> Vec<(String, String)> {
    // Applications come some seconds after the run has begun: Argo CD makes them from the root.
    options.timeouts = Some(("180s".to_owned(), "180s".to_owned()));
    let pods =
        |name: &str, before: &[&str]| TwinNode::new(name, before, vec![deployment(name, &options.image, 1, &[])]);
    let settings = |name: &str, before: &[&str]| TwinNode::new(name, before, vec![config_map(name, "1")]);
    let nodes = [
        pods("base", &[]),
        settings("settings", &[]),
        pods("database", &["base"]),
        settings("cache", &["base"]),
        pods("api", &["database", "cache", "settings"]),
        settings("web", &["api"]),
    ];
    twin::small(options, &nodes)
}

/// One story, because each step begins where the last one ended, and a cluster with Argo takes a while.
#[test]
fn a_job_takes_a_bare_cluster_to_a_proven_platform_with_exactly_the_rights_that_it_needs() {
    let bare = Bare::up(&[], PATIENCE, few);
    let since = mark();
    bare.install(&[]);
    let text = bare.job(1, INSTALLER_ACCOUNT);
    assert_eq!(verdict(&text), "done", "{text}");
    let names = |nodes: &[&str]| nodes.iter().map(|node| format!("argocd/{ENVIRONMENT}-{node}")).collect();
    // With the app-of-apps of the environment, which comes before all others.
    let all: BTreeSet<String> = names(&["base", "settings", "database", "cache", "api", "web", "bootstrap"]);
    assert_eq!(bare.proven(), all, "{text}");
    for chart in CHARTS {
        let receipt = format!("forge-install-{chart}");
        let listed = bare.sandbox.kubectl(&["get", "configmaps", "-A", "-o", "name"]);
        assert!(listed.contains(&receipt), "{listed}");
    }

    // Again: nothing is written by anybody of Forge.
    let again = mark();
    let text = bare.job(2, INSTALLER_ACCOUNT);
    assert!(text.contains("nothing was written"), "{text}");
    assert_eq!(bare.written(again), Vec::<String>::new());

    // The account that installs goes, and a run has what it needs.
    bare.install(&["installer.enabled=false"]);
    let gone = bare.sandbox.kubectl(&["get", "clusterrole", INSTALLER_ACCOUNT, "--ignore-not-found", "-o", "name"]);
    assert_eq!(gone.trim(), "");
    bare.repository.write(&[("apps/web/configmap.yaml".to_owned(), config_map("web", "2").1)]).unwrap();
    bare.repository.commit_and_push("another text").unwrap();
    let text = bare.job(3, EXECUTOR_ACCOUNT);
    assert_eq!(verdict(&text), "done", "{text}");
    let shown = ["get", "configmap", "web", "-n", "dev-web", "-o", "jsonpath={.data.text}"];
    assert_eq!(bare.sandbox.kubectl(&shown), "2");

    // The token is replaced, and meanwhile an account looks that can only read. What is true of a platform is what
    // `tests/runs/validate.rs` is about; here it is that nothing was hidden from it.
    bare.install(&["installer.enabled=false", "executor.actions={deploy,validate}"]);
    let stored = ["get", "secret", ARGOCD_SECRET, "-n", "argo", "-o", "jsonpath={.data.token-id}"];
    let before = bare.sandbox.kubectl(&stored);
    let rotation = bare.begun("forge-rotate", 1);
    let look = bare.begun(&format!("forge-validate-{ENVIRONMENT}"), 1);
    let (_, text) = bare.ended(&look, READER_ACCOUNT, &bare.executor);
    assert!(["healthy", "degraded"].contains(&verdict(&text).as_str()), "{text}");
    assert!(!text.contains("not-known"), "{text}");
    let (well, text) = bare.ended(&rotation, ROTATOR_ACCOUNT, &bare.plugin);
    assert!(well && text.contains("a new token, made by the account itself"), "{text}");
    let after = bare.sandbox.kubectl(&stored);
    assert!(after != before && !after.is_empty(), "{before} {after}");
    // Whoever comes next has the new one.
    let text = bare.job(4, EXECUTOR_ACCOUNT);
    assert!(text.contains("nothing was written"), "{text}");
    bare.rights_fit(since);
}

/// The whole example, and after the cluster was lost what runs is the same, from Git and registry alone: for `make soak`.
#[test]
#[ignore = "takes half an hour; tools/soak runs it"]
fn forty_six_applications_come_from_a_bare_cluster_and_again_after_the_cluster_was_lost() {
    let mut bare = Bare::up(&["--nodes", "4"], LONG, |options| {
        options.scale = 0.25;
        twin::files(options)
    });
    bare.install(&[]);
    let text = bare.job(1, INSTALLER_ACCOUNT);
    assert_eq!(verdict(&text), "done", "{text}");
    assert_eq!(bare.proven().len(), 47, "{text}");
    let again = mark();
    let text = bare.job(2, INSTALLER_ACCOUNT);
    assert!(text.contains("nothing was written"), "{text}");
    assert_eq!(bare.written(again), Vec::<String>::new());
    let digests = bare.digests();
    assert!(digests.len() > 20, "{digests:#?}");

    bare.sandbox = bare.sandbox.lose();
    assert_eq!(bare.items(&["pods", "-n", "argocd"]), Vec::<Value>::new());
    bare.install(&[]);
    let text = bare.job(1, INSTALLER_ACCOUNT);
    assert_eq!(verdict(&text), "done", "{text}");
    assert_eq!(bare.proven().len(), 47, "{text}");
    assert_eq!(bare.digests(), digests);
}
