//! The driver of tests that need a cluster: one sandbox that all of them share, a namespace for each, and everything that
//! explains a failure collected into one folder.
//!
//! `make test` starts the sandbox and takes it down again. A test that is run by hand starts it if it is not there, and
//! leaves it for the next one: `forge sandbox --name test down` ends it.

#![allow(clippy::panic, reason = "a driver of tests fails by panicking, with what it saw")]

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// A running sandbox.
#[derive(Debug, Clone)]
pub struct Sandbox {
    /// What `--name` gives.
    pub name: String,
    /// With all rights.
    pub kubeconfig: PathBuf,
    /// Address and port of the registry.
    pub registry: String,
    /// Where Git serves.
    pub git: Git,
    /// The kubectl that fits it.
    pub kubectl: PathBuf,
    /// Helm.
    pub helm: PathBuf,
    /// Kustomize.
    pub kustomize: PathBuf,
    /// Unpacked charts.
    pub charts: PathBuf,
}

/// The Git server of a sandbox.
#[derive(Debug, Clone)]
pub struct Git {
    /// Without a slash at its end.
    pub url: String,
    /// Who may push.
    pub user: String,
    /// With what.
    pub password: String,
}

/// How a program ended.
#[derive(Debug, Clone)]
pub struct Ended {
    /// 0 is good; -1 if a signal ended it.
    pub code: i32,
    /// What it wrote to stdout.
    pub stdout: String,
    /// What it wrote to stderr.
    pub stderr: String,
}

/// The binary of the sandbox: beside the tests that cargo built.
pub fn binary() -> PathBuf {
    built_binary("forge-sandbox")
}

/// A binary of the workspace, beside the tests that cargo built.
pub fn built_binary(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    let target = own.ancestors().find(|folder| folder.join(name).is_file());
    target
        .map(|folder| folder.join(name))
        .unwrap_or_else(|| panic!("{name} is not built beside {}: `make build` does it", own.display()))
}

/// What a sandbox of tests is called: its usual name, or what `FORGE_SANDBOX_<NAME>` says, so that several campaigns of one kind
/// can go on beside each other.
fn called(usual: &str) -> String {
    std::env::var(format!("FORGE_SANDBOX_{}", usual.to_uppercase())).unwrap_or_else(|_| usual.to_owned())
}

/// Runs the sandbox's own command line.
pub fn forge_sandbox(name: &str, args: &[&str]) -> Ended {
    run(Command::new(binary()).args(["--name", &called(name)]).args(args), None)
}

/// Runs a program to its end.
pub fn run(command: &mut Command, input: Option<&str>) -> Ended {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("failed to start {command:?}: {error}"));
    let stdin = child.stdin.take();
    let input = input.unwrap_or_default().to_owned();
    let writer = thread::spawn(move || stdin.map(|mut stdin| stdin.write_all(input.as_bytes())));
    let output = child.wait_with_output().unwrap_or_else(|error| panic!("failed to wait for {command:?}: {error}"));
    let _ = writer.join();
    Ended {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Asks until there is an answer; fails the test with what was last said when the time is over.
pub fn eventually<T>(what: &str, limit: Duration, mut ask: impl FnMut() -> Result<T, String>) -> T {
    let start = Instant::now();
    let mut pause = Duration::from_millis(20);
    loop {
        let asked = Instant::now();
        match ask() {
            Ok(answer) => return answer,
            Err(why) if start.elapsed() > limit => panic!("{what}: not within {} s: {why}", limit.as_secs()),
            // Most ask by a program of its own. Where the answer takes long the machine is busy, and asking more often makes that
            // worse for everybody.
            Err(_) => thread::sleep(pause.max(asked.elapsed()).min(Duration::from_secs(2))),
        }
        pause = (pause * 2).min(Duration::from_millis(500));
    }
}

impl Sandbox {
    /// The sandbox that the tests share, started if it does not run.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Sandbox> = OnceLock::new();
        SHARED.get_or_init(|| Self::up("test", &[]))
    }

    /// Brings a sandbox up, or fails the test.
    pub fn up(name: &str, args: &[&str]) -> Self {
        let mut all = vec!["up", "--output", "json"];
        all.extend(args);
        let mut ended = forge_sandbox(name, &all);
        // Several test programs may start at once; one of them brings it up.
        let start = Instant::now();
        while ended.code == 5 && start.elapsed() < Duration::from_secs(180) {
            thread::sleep(Duration::from_millis(500));
            ended = forge_sandbox(name, &all);
        }
        assert!(ended.code == 0, "forge sandbox --name {name} up: exit {}\n{}", ended.code, ended.stderr);
        let said: Value = serde_json::from_str(&ended.stdout)
            .unwrap_or_else(|error| panic!("`up --output json` says something else: {error}\n{}", ended.stdout));
        let text = |pointer: &str| said.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        Self {
            name: called(name),
            kubeconfig: text("/kubeconfig").into(),
            registry: text("/registry"),
            git: Git { url: text("/git/url"), user: text("/git/user"), password: text("/git/password") },
            kubectl: text("/kubectl").into(),
            helm: text("/helm").into(),
            kustomize: text("/kustomize").into(),
            charts: text("/charts").into(),
        }
    }

    /// Loses the whole cluster: its etcd, its node with all images, its certificates and keys. What the Git server and the
    /// registry hold is all that is left, and a new cluster is brought up over it.
    pub fn lose(&self) -> Self {
        let ended = self.command(&["down", "--keep-data"]);
        assert!(ended.code == 0, "forge sandbox --name {} down: {}", self.name, ended.stderr);
        // Folder of the sandbox, its `pki`, the file.
        let folder = self.kubeconfig.ancestors().nth(2).unwrap_or_else(|| panic!("no folder of {}", self.name));
        let kept = ["sandbox.json", "data"].map(|name| folder.join(name));
        let stores = ["git", "registry"].map(|name| folder.join("data").join(name));
        remove_but(folder, &kept);
        remove_but(&folder.join("data"), &stores);
        Self::up(&self.name, &[])
    }

    /// Runs its command line.
    pub fn command(&self, args: &[&str]) -> Ended {
        forge_sandbox(&self.name, args)
    }

    /// Runs kubectl, whatever comes of it.
    pub fn try_kubectl(&self, args: &[&str], input: Option<&str>) -> Ended {
        run(Command::new(&self.kubectl).args(args).env("KUBECONFIG", &self.kubeconfig), input)
    }

    /// Runs kubectl and gives what it wrote; fails the test if it fails.
    pub fn kubectl(&self, args: &[&str]) -> String {
        let ended = self.try_kubectl(args, None);
        assert!(ended.code == 0, "kubectl {}: {}", args.join(" "), ended.stderr);
        ended.stdout
    }

    /// A namespace of its own for a test. It goes when the test ends; when the test fails, what explains it is kept.
    pub fn namespace(&'static self, test: &str) -> Namespace {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{test}-{}-{number}", std::process::id());
        self.kubectl(&["create", "namespace", &name]);
        Namespace { sandbox: self, name }
    }
}

/// Removes everything in a folder but these.
fn remove_but(folder: &Path, kept: &[PathBuf]) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for path in entries.flatten().map(|entry| entry.path()).filter(|path| !kept.contains(path)) {
        let is_folder = fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_dir());
        let removed = if is_folder { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.unwrap_or_else(|error| panic!("failed to remove {}: {error}", path.display()));
    }
}

/// What `status --output json` says.
pub fn status(name: &str) -> Value {
    let ended = forge_sandbox(name, &["status", "--output", "json"]);
    serde_json::from_str(&ended.stdout)
        .unwrap_or_else(|error| panic!("status: {error}\n{}\n{}", ended.stdout, ended.stderr))
}

/// A namespace that one test has for itself.
#[derive(Debug)]
pub struct Namespace {
    /// Where it is.
    pub sandbox: &'static Sandbox,
    /// Its name in the cluster.
    pub name: String,
}

impl Namespace {
    /// Runs kubectl in it, whatever comes of it.
    pub fn try_kubectl(&self, args: &[&str], input: Option<&str>) -> Ended {
        let mut all = vec!["--namespace", &self.name];
        all.extend(args);
        self.sandbox.try_kubectl(&all, input)
    }

    /// Runs kubectl in it and gives what it wrote; fails the test if it fails.
    pub fn kubectl(&self, args: &[&str]) -> String {
        let ended = self.try_kubectl(args, None);
        assert!(ended.code == 0, "kubectl {}: {}", args.join(" "), ended.stderr);
        ended.stdout
    }

    /// An object as it is now.
    pub fn get(&self, kind: &str, name: &str) -> Value {
        let text = self.kubectl(&["get", kind, name, "-o", "json"]);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("kubectl get {kind} {name}: {error}"))
    }

    /// Applies objects.
    pub fn apply(&self, objects: &[Value]) {
        let ended = self.try_apply(objects);
        assert!(ended.code == 0, "kubectl apply: {}", ended.stderr);
    }

    /// Applies objects, whatever comes of it.
    pub fn try_apply(&self, objects: &[Value]) -> Ended {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
        self.try_kubectl(&["apply", "--server-side", "-f", "-"], Some(&list))
    }

    /// Waits for what `kubectl wait --for` understands.
    pub fn wait(&self, what: &str, condition: &str, limit: Duration) {
        let (condition, limit) = (format!("--for={condition}"), format!("--timeout={}s", limit.as_secs()));
        let mut ended = self.try_kubectl(&["wait", what, &condition, &limit], None);
        // kubectl gives up at once on an object that has no conditions yet.
        let start = Instant::now();
        while ended.stderr.contains("accessor error") && start.elapsed() < Duration::from_secs(20) {
            thread::sleep(Duration::from_millis(50));
            ended = self.try_kubectl(&["wait", what, &condition, &limit], None);
        }
        assert!(ended.code == 0, "kubectl wait {what} {condition}: {}", ended.stderr);
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if thread::panicking() {
            let folder = collect(self.sandbox, &self.name);
            let _ = writeln!(std::io::stderr(), "what explains it is in {}", folder.display());
        }
        let _ = self.sandbox.try_kubectl(&["delete", "namespace", &self.name, "--wait=false"], None);
    }
}

/// Objects, events and logs of a namespace, and the end of every component's log, in one folder.
pub fn collect(sandbox: &Sandbox, namespace: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    let target = own.ancestors().nth(3).unwrap_or(Path::new("/tmp"));
    let folder = std::env::var_os("FORGE_FAILURES")
        .map_or_else(|| target.join("cluster-failures"), PathBuf::from)
        .join(namespace);
    let _ = fs::create_dir_all(&folder);
    let keep = |file: &str, args: &[&str]| {
        let ended = sandbox.try_kubectl(args, None);
        let _ = fs::write(folder.join(file), format!("{}{}", ended.stdout, ended.stderr));
    };
    keep("objects.txt", &["get", "all,pvc,configmap,ingress", "-n", namespace, "-o", "wide"]);
    keep("pods.txt", &["describe", "pods", "-n", namespace]);
    keep("events.txt", &["get", "events", "-n", namespace, "--sort-by=.lastTimestamp"]);
    keep("nodes.txt", &["describe", "nodes"]);
    let pods = sandbox.try_kubectl(&["get", "pods", "-n", namespace, "-o", "name"], None).stdout;
    for pod in pods.lines() {
        let file = format!("{}.log", pod.replace('/', "-"));
        keep(&file, &["logs", "-n", namespace, pod, "--all-containers", "--prefix", "--tail=500"]);
    }
    let ended = sandbox.command(&["status"]);
    let mut text = ended.stdout;
    for name in [
        "etcd",
        "kube-apiserver",
        "kubelet",
        "containerd",
        "kube-controller-manager",
        "kube-scheduler",
        "kube-proxy",
        "kwok",
    ] {
        let log = sandbox.command(&["logs", name, "--tail", "200"]);
        let _ = write!(text, "\n==== {name}\n{}", log.stdout);
    }
    let _ = fs::write(folder.join("components.txt"), text);
    folder
}
