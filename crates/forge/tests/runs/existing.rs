//! An Argo that is somebody else's (`existing`, SPEC.md section 4): installed by plain Helm with the charts' own values, on a
//! sandbox of its own. Forge says what is missing and what to merge, makes what is its own, deploys by what is there, and
//! writes nothing else. `tools/cluster` takes the sandbox down afterwards.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::thread;

use forge_core::install::chart;
use forge_core::preflight::Component;
use forge_testkit::order::Line;
use forge_testkit::platform::{Platform, attempts, mark, merge};
use forge_testkit::sandbox::{Ended, Sandbox, run};
use forge_testkit::twin::{self, TwinNode, config_map, deployment};
use serde_json::{Value, json};

use crate::readers::kubeconfig;
use crate::stage::Stage;

/// A sandbox whose Argo has an owner.
const NAME: &str = "existing";
/// Whoever runs Forge. May do everything, so that nothing but Forge itself keeps it from anything.
const NEWCOMER: &str = "newcomer";
/// The owner's releases: chart, name and namespace.
const CD: [&str; 3] = ["argo-cd", "argocd", "argocd"];
const WORKFLOWS: [&str; 3] = ["argo-workflows", "workflows", "argo"];
/// As the owner upgrades: over the values that are there, or over those of the chart.
const REUSE: &str = "--reuse-values";
const RESET: &str = "--reset-values";

/// A cluster with an owner, whose hands are kubectl and Helm, and somebody new, whose are Forge's.
struct Existing {
    stage: Stage,
    newcomer: PathBuf,
    _folder: tempfile::TempDir,
}

/// A line of `--check`: verdict, part, what.
type Told = (String, String, String);

impl Existing {
    fn up() -> Self {
        static PLATFORM: OnceLock<Platform> = OnceLock::new();
        let environment = PLATFORM.get_or_init(|| Platform::bare(NAME)).environment("existing");
        let mut options = environment.options();
        options.timeouts = Some(("2m".to_owned(), "4m".to_owned()));
        let nodes = [
            TwinNode::new("base", &[], vec![deployment("base", &options.image, 1, &[])]),
            TwinNode::new("top", &["base"], vec![config_map("top", "1")]),
        ];
        environment.push(&twin::small(&options, &nodes), "the platform");
        let sandbox = &environment.platform.sandbox;
        // Both go with the sandbox, and may be there from a run by hand.
        let account = format!("--serviceaccount=default:{NEWCOMER}");
        sandbox.try_kubectl(&["create", "serviceaccount", NEWCOMER, "-n", "default"], None);
        sandbox.try_kubectl(&["create", "clusterrolebinding", NEWCOMER, "--clusterrole=cluster-admin", &account], None);
        let folder = tempfile::tempdir().unwrap();
        let newcomer = kubeconfig(sandbox, folder.path(), "default", NEWCOMER);
        Self { stage: Stage { environment, options }, newcomer, _folder: folder }
    }

    fn sandbox(&self) -> &Sandbox {
        &self.stage.environment.platform.sandbox
    }

    /// Makes a release what its owner wants.
    fn helm(&self, [chart, name, namespace]: [&str; 3], over: &str, values: &Value) {
        let mut helm = Command::new(&self.sandbox().helm);
        helm.args(["upgrade", "--install", name]).arg(self.sandbox().charts.join(chart));
        helm.args(["-n", namespace, "--create-namespace", "--wait", "--timeout", "5m", over, "--values", "-"]);
        let ended = run(helm.env("KUBECONFIG", &self.sandbox().kubeconfig), Some(&values.to_string()));
        assert_eq!(ended.code, 0, "{name}: {}", ended.stderr);
    }

    /// The same for both at once: most of it is waiting.
    fn both(&self, over: &str, cd: &Value, workflows: &Value) {
        thread::scope(|scope| {
            scope.spawn(|| self.helm(CD, over, cd));
            self.helm(WORKFLOWS, over, workflows);
        });
    }

    /// Runs Forge as the newcomer.
    fn forge(&self, arguments: &[&str]) -> Ended {
        let environment = &self.stage.environment;
        let mut command = Command::new(&environment.platform.binary);
        command.args(arguments).env("KUBECONFIG", &self.newcomer).env("NO_COLOR", "1");
        command.env("FORGE_REPO", environment.repository.folder()).env("FORGE_ENVIRONMENT", &environment.name);
        run(command.current_dir(environment.repository.folder()), None)
    }

    /// What `--check` says, and its exit code.
    fn check(&self) -> (i32, Vec<Told>) {
        let ended = self.forge(&["bootstrap", "--check", "--output", "json"]);
        let said: Value = serde_json::from_str(&ended.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}\n{}", ended.stdout, ended.stderr));
        let text = |finding: &Value, key: &str| finding[key].as_str().unwrap().to_owned();
        let told = |finding: &Value| (text(finding, "verdict"), text(finding, "part"), text(finding, "what"));
        (ended.code, said["findings"].as_array().unwrap().iter().map(told).collect())
    }

    /// Deploys until all is proven; gives what was said on the way, and the report.
    fn deploy(&self) -> (String, Value) {
        let ended = self.forge(&["platform", "deploy", "--timeout", "5m", "--output", "json"]);
        assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
        let report = serde_json::from_str(&ended.stdout).unwrap();
        (ended.stderr, report)
    }

    /// What was tried with Forge's hands since then: those of whoever runs it, and those of the accounts that it makes.
    /// Reviews of rights are answered and not stored.
    fn tried(&self, since: jiff::Timestamp) -> Vec<Line> {
        let newcomer = format!("system:serviceaccount:default:{NEWCOMER}");
        let is_forge = |user: &str| user == newcomer || user.starts_with("system:serviceaccount:argo:forge-");
        let lines = attempts(self.sandbox(), since).into_iter();
        lines.filter(|line| is_forge(&line.user) && !line.resource.starts_with("selfsubject")).collect()
    }

    /// What is Forge's own, by INV-11: what it makes itself, all of it named `forge-…`, in no namespace or in that of runs. In Argo CD's
    /// only the account of a run writes, and only the AppProject that its owner handed over by name. A request to Argo CD goes
    /// through the API server and writes nothing there; what Argo CD writes then is limited by the policy of the account.
    fn is_ours(&self, line: &Line) -> bool {
        let (place, ours) = (line.namespace.as_str(), line.name.starts_with("forge-"));
        let checked = place.starts_with("forge-preflight-");
        match line.resource.as_str() {
            "services" => line.subresource == "proxy" && place == "argocd",
            "appprojects" => {
                let run = line.user.ends_with(":forge-executor");
                run && place == "argocd" && line.name == self.stage.environment.name
            }
            "namespaces" => line.name.starts_with("forge-preflight-"),
            "pods" => checked || (ours && place == "argo"),
            "clusterworkflowtemplates" | "validatingadmissionpolicies" | "validatingadmissionpolicybindings" => ours,
            "roles" | "rolebindings" | "serviceaccounts" | "secrets" | "configmaps" | "jobs" | "workflows" => {
                ours && place == "argo"
            }
            // What Argo Workflows has its agent and its pods write about a Workflow of ours.
            "workflowtasksets" | "workflowtaskresults" => ours && place == "argo",
            _ => false,
        }
    }

    /// Of the objects that lines name, those that do not carry Forge's label.
    fn unlabelled(&self, lines: &[Line]) -> Vec<String> {
        let made = lines.iter().filter(|line| {
            let elsewhere =
                ["services", "namespaces", "pods", "workflowtasksets", "workflowtaskresults", "appprojects"];
            !elsewhere.contains(&line.resource.as_str())
        });
        let made: BTreeSet<[&str; 3]> =
            made.map(|line| [line.resource.as_str(), line.namespace.as_str(), line.name.as_str()]).collect();
        let label = r"-o=jsonpath={.metadata.labels.app\.kubernetes\.io/managed-by}";
        let without = made.into_iter().filter(|[resource, namespace, name]| {
            let namespace = format!("--namespace={namespace}");
            self.sandbox().kubectl(&["get", resource, name, label, &namespace]).trim() != "forge"
        });
        without.map(|words| words.join(" ")).collect()
    }
}

/// One story, because each step begins where the last one ended.
#[test]
fn an_argo_of_somebody_else_is_told_what_it_lacks_used_as_it_is_and_never_written_to() {
    let existing = Existing::up();
    let image = existing.stage.environment.platform.image();
    let since = mark();
    // As the charts come, but for Dex and for another version of Argo CD, whose images the sandbox does not have.
    let tested = json!({"tag": chart(Component::Cd).app_version});
    existing.both(RESET, &json!({"dex": {"enabled": false}, "global": {"image": tested}}), &json!({}));

    // Everything that is missing is told, and nothing is written to say so.
    let (code, told) = existing.check();
    assert_eq!(code, 1, "{told:?}");
    for (verdict, part, words) in [
        ("missing", "argo-cd", "accounts.forge"),
        ("missing", "argo-cd", "no health check for"),
        ("missing", "argo-cd", "get and sync all Applications"),
        ("missing", "argo-cd", "no container `catalyst-forge-cmp` beside the repo-server"),
        ("advice", "argo-cd", "controller.sync.wave.delay.seconds"),
        ("advice", "argo-workflows", "ARGO_EXECUTOR_PLUGINS"),
        ("advice", "argo-workflows", "DEFAULT_REQUEUE_TIME"),
        ("missing", "argo-cd", "Role forge-executor is not there"),
        ("missing", "argo-cd", "AppProject"),
    ] {
        let found = told.iter().any(|(is, of, what)| is == verdict && of == part && what.contains(words));
        assert!(found, "{verdict} {part} {words}: {told:?}");
    }
    assert_eq!(existing.tried(since), []);

    // What is printed is what the owner merges, all of it but the plugins, which may not be switched on here.
    let printed = existing.forge(&["bootstrap", "--print", "--image", image, "--output", "json"]);
    assert_eq!(printed.code, 0, "{}", printed.stderr);
    let printed: Value = serde_json::from_str(&printed.stdout).unwrap();
    let values = |chart: &str| {
        let mut parts = printed["merge"].as_array().unwrap().iter();
        parts.find(|part| part["chart"] == chart).unwrap()["values"].clone()
    };
    let mut without = values("argo-workflows");
    let variables = without["controller"]["extraEnv"].as_array_mut().unwrap();
    variables.retain(|variable| variable["name"] != "ARGO_EXECUTOR_PLUGINS");
    assert_eq!(variables.len(), 1, "{variables:?}");
    existing.both(REUSE, &values("argo-cd"), &without);
    merge(existing.sandbox(), &printed);
    let (_, told) = existing.check();
    let owners = told.iter().filter(|(verdict, part, _)| verdict == "missing" && part != "forge");
    assert_eq!(owners.collect::<Vec<_>>(), Vec::<&Told>::new());

    // What is ours is made, and a run finds out by itself that it has to do without plugins.
    let made = existing.forge(&["bootstrap", "--image", image]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let (code, told) = existing.check();
    assert_eq!(code, 0, "{told:?}");
    let applications = existing.stage.environment.repository.folder().join("argocd/applications.yaml");
    existing.sandbox().kubectl(&["apply", "--server-side", "-f", &applications.to_string_lossy()]);
    let (said, report) = existing.deploy();
    assert!(said.contains("every node gets a pod of its own"), "{said}");
    assert_eq!((&report["runner"], &report["verdict"]), (&json!("pod"), &json!("done")), "{report:#}");
    for node in ["base", "top"] {
        assert_eq!(existing.stage.answer(node).as_deref(), Some("proven"), "{node}");
    }

    // With the rest merged nothing is left to be said, and the next run is one of the plugin.
    existing.helm(WORKFLOWS, REUSE, &values("argo-workflows"));
    let (code, told) = existing.check();
    assert_eq!(code, 0, "{told:?}");
    assert!(told.iter().all(|(verdict, ..)| verdict == "ok"), "{told:?}");
    let change = ("apps/top/configmap.yaml".to_owned(), config_map("top", "2").1);
    existing.stage.environment.push(&[change], "another text");
    let (said, report) = existing.deploy();
    assert!(!said.contains("a pod of its own"), "{said}");
    assert_eq!((&report["runner"], &report["verdict"]), (&json!("plugin"), &json!("done")), "{report:#}");
    assert_eq!((existing.stage.syncs("base"), existing.stage.syncs("top")), (1, 2));

    // All that time nothing was written, or tried to be, that is not Forge's own.
    let tried = existing.tried(since);
    let foreign: Vec<&Line> = tried.iter().filter(|line| !existing.is_ours(line)).collect();
    assert_eq!(foreign, Vec::<&Line>::new());
    for account in [NEWCOMER, "forge-executor", "forge-executor-plugin"] {
        let end = format!(":{account}");
        assert!(tried.iter().any(|line| line.user.ends_with(&end)), "nothing of {account} was looked at");
    }
    assert_eq!(existing.unlabelled(&tried), Vec::<String>::new());
}
