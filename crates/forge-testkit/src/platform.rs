//! The driver of tests that run a platform on the real Argo: one sandbox with Argo CD and Argo Workflows that all of them
//! share, an environment for each, with a Git repository, an AppProject, Applications and namespaces of its own.
//!
//! A sandbox that is not there is started and left for the next test: `forge sandbox --name argo down` ends it.

#![allow(clippy::panic, reason = "a driver of tests fails by panicking, with what it saw")]

mod audit;
mod cleanup;
mod recorder;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

pub use audit::{Asked, asked, attempts, audit, mark};
pub use cleanup::cleanup;
pub use recorder::Recorder;

use crate::image;
use crate::order::{self, Facts, Line};
use crate::sandbox::{Ended, Sandbox, built_binary, collect};
use crate::twin::{ARGOCD, GitRepository, LABEL, Options};

/// Simulated nodes that a sandbox is given if it has none: custom resources and Ingresses have a status only then.
const NODES: &str = "4";
/// How pods name the Git server.
pub const GIT: &str = "http://git.sandbox.internal:3000";

/// A sandbox with Argo CD and Argo Workflows.
#[derive(Debug)]
pub struct Platform {
    /// The sandbox.
    pub sandbox: Sandbox,
    /// The sample workload, by digest, as pods name it.
    pub sample: String,
    /// The `forge` that is tested.
    pub binary: PathBuf,
    image: OnceLock<String>,
}

impl Platform {
    /// The one that tests share.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Platform> = OnceLock::new();
        SHARED.get_or_init(|| Self::up("argo"))
    }

    /// Brings one up, or fails the test.
    pub fn up(name: &str) -> Self {
        Self::with(name, "argo-cd,argo-workflows")
    }

    /// Brings one up with these charts, or fails the test.
    pub fn with(name: &str, charts: &str) -> Self {
        let mut sandbox = Sandbox::up(name, &["--with", charts]);
        if sandbox.kubectl(&["get", "nodes", "-l", "type=kwok", "-o", "name"]).trim().is_empty() {
            sandbox = Sandbox::up(name, &["--nodes", NODES]);
        }
        Self::on(sandbox)
    }

    /// Brings one up without Argo, for those who install it themselves, or fails the test.
    pub fn bare(name: &str) -> Self {
        Self::on(Sandbox::up(name, &[]))
    }

    fn on(sandbox: Sandbox) -> Self {
        let binary = std::env::var_os("FORGE_BINARY").map_or_else(|| built_binary("forge"), PathBuf::from);
        Self { sample: sample(&sandbox), sandbox, binary, image: OnceLock::new() }
    }

    /// The image of the `forge` that is tested, as pods name it; loaded when it is first asked for.
    pub fn image(&self) -> &str {
        self.image.get_or_init(|| image::load(&self.sandbox, &self.binary))
    }

    /// An environment of its own for a test: `<test>-<process>-<number>`. It goes when the test ends; when the test
    /// fails, what explains it is kept.
    pub fn environment(&'static self, test: &str) -> Environment {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{test}-{}-{number}", std::process::id());
        let path = format!("{test}/{name}.git");
        let repository = GitRepository::open(&self.sandbox.git, &path, "main");
        let repository = repository.unwrap_or_else(|error| panic!("no repository for {name}: {error}"));
        Environment { platform: self, url: format!("{GIT}/{path}"), name, repository, started: mark() }
    }
}

/// The sample workload of a sandbox, by digest, as pods name it; fails the test where it has none.
pub fn sample(sandbox: &Sandbox) -> String {
    let listed = sandbox.command(&["image", "list"]).stdout;
    let sample = listed.lines().find(|line| line.starts_with("forge/sample:"));
    let sample = sample.unwrap_or_else(|| panic!("the sandbox has no sample workload:\n{listed}"));
    format!("registry.example.com/{sample}")
}

/// How long it may take to print what is to be merged.
const MERGING: Duration = Duration::from_secs(60);

/// Makes the whole objects of what `forge bootstrap --print --output json` has for owners.
pub fn merge(sandbox: &Sandbox, printed: &Value) {
    let list = |value: &Value, key: &str| value.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let fragments = list(printed, "merge").into_iter().flat_map(|part| list(&part, "fragments"));
    let whole = fragments.filter(|fragment| fragment.get("whole") == Some(&Value::Bool(true)));
    for object in whole.filter_map(|fragment| fragment.get("object").cloned()) {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (kind, name) = (text("/kind"), text("/metadata/name"));
        let there = ["get", kind, name, "-n", ARGOCD, "--ignore-not-found", "-o", "name"];
        if kind == "AppProject" && !sandbox.kubectl(&there).trim().is_empty() {
            continue;
        }
        let made = sandbox.try_kubectl(&["apply", "--server-side", "-f", "-"], Some(&object.to_string()));
        assert_eq!(made.code, 0, "{kind} {name}: {}", made.stderr);
    }
}

/// An environment that one test has for itself.
#[derive(Debug)]
pub struct Environment {
    /// Where it is.
    pub platform: &'static Platform,
    /// Its name, which is that of its AppProject and the start of all others.
    pub name: String,
    /// Its repository, by the name that it has for pods.
    pub url: String,
    /// Its repository, as a working copy.
    pub repository: GitRepository,
    /// When it was made.
    pub started: Timestamp,
}

impl Environment {
    /// What a twin here is made with.
    pub fn options(&self) -> Options {
        Options::new(&self.name, &self.url, &self.platform.sample)
    }

    /// Commits and pushes files on top of what is there; gives the commit.
    pub fn push(&self, files: &[(String, String)], message: &str) -> String {
        let pushed = self.repository.write(files).and_then(|()| self.repository.commit_and_push(message));
        pushed.unwrap_or_else(|error| panic!("failed to push to {}: {error}", self.url))
    }

    /// Gives Argo CD the AppProject and the Applications that the repository holds.
    pub fn apply(&self) {
        for file in ["argocd/project.yaml", "argocd/applications.yaml"] {
            let path = self.repository.folder().join(file);
            self.platform.sandbox.kubectl(&["apply", "--server-side", "-f", &path.to_string_lossy()]);
        }
    }

    /// Makes what `forge bootstrap` prints for the owner of Argo CD to make, with his hands: whole objects, among them the AppProject
    /// whose window holds everything. One that is there stays as it is.
    pub fn merge(&self) {
        let image = self.platform.image();
        let printed = self.forge(&["bootstrap", "--print", "--image", image, "--output", "json"], MERGING);
        assert_eq!(printed.code, 0, "{}", printed.stderr);
        let printed: Value = serde_json::from_str(&printed.stdout).unwrap_or_else(|error| panic!("{error}"));
        merge(&self.platform.sandbox, &printed);
    }

    /// Runs `forge` on the repository, for this environment and with all rights in the sandbox, whatever comes of it. One
    /// that takes longer is killed: its code is 124, and stderr says so.
    pub fn forge(&self, args: &[&str], limit: Duration) -> Ended {
        let mut command = Command::new(&self.platform.binary);
        command.args(args).current_dir(self.repository.folder());
        command.env("KUBECONFIG", &self.platform.sandbox.kubeconfig).env("NO_COLOR", "1");
        command.env("FORGE_REPO", self.repository.folder()).env("FORGE_ENVIRONMENT", &self.name);
        recorder::run_within(&mut command, limit)
    }

    /// An Application as it is now, by the name of its node.
    pub fn application(&self, node: &str) -> Value {
        let name = self.options().application(node);
        self.json(&["get", "application", &name, "-n", ARGOCD])
    }

    /// What kubectl answers, as JSON; fails the test if it fails.
    pub fn json(&self, args: &[&str]) -> Value {
        let text = self.platform.sandbox.kubectl(&[args, &["-o", "json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("kubectl {}: {error}", args.join(" ")))
    }

    /// What changed the cluster since a moment, in the order of the log.
    pub fn audit(&self, since: Timestamp) -> Vec<Line> {
        audit(&self.platform.sandbox, since)
    }

    /// Begins to record when workloads of this environment become ready. Begin before the run.
    pub fn record(&self) -> Recorder {
        Recorder::start(&self.platform.sandbox)
    }

    /// What is known from outside of a run that was recorded: see [`order`] for what follows from it. `conditioned` are
    /// kinds (`plural.group`) that are ready by a condition of their own, as [`crate::twin::conditioned`] lists them; of
    /// these only the last readiness is known. `fresh` if nothing was deployed before the run.
    pub fn facts(
        &self,
        predecessors: &BTreeMap<String, BTreeSet<String>>,
        recorder: Recorder,
        conditioned: &[&str],
        fresh: bool,
    ) -> Facts {
        let since = recorder.since;
        let transitions = recorder.stop(conditioned);
        let plurals: Vec<&str> = conditioned.iter().filter_map(|kind| kind.split('.').next()).collect();
        order::facts(predecessors, &self.audit(since), &transitions, &plurals, fresh)
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        let sandbox = &self.platform.sandbox;
        if thread::panicking() {
            let folder = collect(sandbox, ARGOCD);
            let applications = sandbox.try_kubectl(
                &["get", "applications", "-n", ARGOCD, "-l", &format!("{LABEL}={}", self.name), "-o", "yaml"],
                None,
            );
            let _ = std::fs::write(folder.join(format!("{}.yaml", self.name)), applications.stdout);
            let _ = writeln!(std::io::stderr(), "what explains it is in {}", folder.display());
        }
        if std::env::var_os("FORGE_KEEP").is_none() {
            cleanup(sandbox, &self.name);
        }
    }
}
