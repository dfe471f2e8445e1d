//! Releases on the real Argo CD, on the bare cluster that `install` has too: projects whose releases lie in the sandbox's registry,
//! rendered by the plugin beside the repo-server, proven by their digests. What is no good is told by Argo CD in the plugin's words
//! and changes nothing that runs; once it is mended the next run goes on, although this Argo CD keeps errors. `tools/cluster` takes the
//! sandbox down afterwards.
//!
//! `FORGE_SEED` and `FORGE_CHANGES` replay and lengthen a campaign of changes: `make soak` sets them.

mod clients;
mod platform;
mod public;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use forge_core::digest::{CommitId, Digest};
use forge_core::render::{ENVIRONMENT_LABEL, REGISTRY_SECRET};
use forge_testkit::campaign::number;
use forge_testkit::chart;
use forge_testkit::generate::Random;
use forge_testkit::platform::GIT;
use forge_testkit::releases::{self, PLAIN_HTTP, Releases};
use forge_testkit::sandbox::{Ended, eventually, run};
use forge_testkit::twin::{
    self, File, GitRepository, Options, Pointer, TwinNode, config_map, deployment, node_id, plugin_values, pointer_file,
};
use serde_json::Value;

use crate::executor_job::verdict;
use crate::install::Bare;
use crate::stage::PATIENCE;

const ENVIRONMENT: &str = "releases";
/// Each waits for the one before it.
const NODES: [&str; 3] = ["first", "second", "third"];

/// A bare cluster, a repository whose projects have releases, and where these are.
struct Shop {
    bare: Bare,
    options: Options,
    repository: GitRepository,
    releases: Releases,
}

/// What runs of a node: its pods by their identity, with the images that they run.
type Pods = BTreeMap<String, String>;

impl Shop {
    /// With nothing in it but a registry, and an empty repository for an environment.
    fn empty(environment: &str) -> Self {
        let bare = Bare::up();
        bare.clear();
        let platform = bare.environment.platform;
        let path = format!("releases/{environment}-{}.git", std::process::id());
        let mut options = Options::new(environment, &format!("{GIT}/{path}"), &platform.sample);
        options.argo = "{cd: install, workflows: install, events: none}".to_owned();
        let repository = GitRepository::open(&bare.sandbox().git, &path, "main").unwrap();
        let shop = Self { releases: Releases::new(platform), bare, options, repository };
        shop.vanish();
        shop
    }

    /// Pushes the files of the platform, and prepares the cluster for it. The repo-server is told these variables.
    fn install(&self, mut files: Vec<File>, variables: &[(&str, &str)]) {
        files.push(plugin_values(&self.releases.registry(), variables));
        self.push(&files, "the platform");
        let mut bootstrap = self.bare.bootstrapping_from(&self.charts(), self.repository.folder(), &[]);
        let installed = run(bootstrap.env(PLAIN_HTTP, self.releases.host()), None);
        assert_eq!(installed.code, 0, "{}", installed.stderr);
    }

    /// With a release of every node, and a cluster that is prepared for them.
    fn prepared() -> (Self, BTreeMap<String, Pointer>) {
        let mut shop = Self::empty(ENVIRONMENT);
        shop.options.timeouts = Some(("2m".to_owned(), "4m".to_owned()));
        let image = shop.options.image.clone();
        let pointers: BTreeMap<String, Pointer> =
            NODES.iter().map(|node| ((*node).to_owned(), shop.release(node, "one", &image))).collect();
        let files = twin::released(&shop.options, &shop.releases.registry(), &nodes(), &pointers);
        // Argo CD is to keep the first error, as one of somebody else may; Forge's own values switch that off.
        shop.install(files, &[("ARGOCD_PAUSE_GEN_AFTER_FAILED_ATTEMPTS", "1")]);
        (shop, pointers)
    }

    /// Pushes the charts of Argo into the sandbox's registry, which speaks plain HTTP, and gives where they are.
    fn charts(&self) -> PathBuf {
        let (sandbox, folder) = (self.bare.sandbox(), tempfile::tempdir().unwrap());
        let place = format!("oci://{}/charts", self.releases.host());
        for chart in ["argo-cd", "argo-workflows"] {
            let mut helm = Command::new(&sandbox.helm);
            helm.arg("package").arg(sandbox.charts.join(chart)).arg("--destination").arg(folder.path());
            let packed = run(&mut helm, None);
            assert_eq!(packed.code, 0, "{}", packed.stderr);
        }
        for archive in std::fs::read_dir(folder.path()).unwrap() {
            let mut helm = Command::new(&sandbox.helm);
            helm.arg("push").arg(archive.unwrap().path()).arg(&place).arg("--plain-http");
            let pushed = run(&mut helm, None);
            assert_eq!(pushed.code, 0, "{}", pushed.stderr);
        }
        PathBuf::from(place)
    }

    /// Builds a release of a node with the `forge` that is tested, and pushes it.
    fn release(&self, node: &str, round: &str, image: &str) -> Pointer {
        self.releases.pushed(&node_id(node), &commit(&format!("{node} {round}")), &source(node, round, image))
    }

    fn push(&self, files: &[File], message: &str) {
        self.repository.write(files).unwrap();
        self.repository.commit_and_push(message).unwrap();
    }

    /// Changes the pointer of a node, and pushes that.
    fn point(&self, node: &str, pointer: &Pointer, message: &str) {
        self.push(&[self.pointed(&node_id(node), pointer)], message);
    }

    /// The pointer of a project, as a file of the repository.
    fn pointed(&self, project: &str, pointer: &Pointer) -> File {
        pointer_file(&self.options, &self.releases.registry(), project, pointer)
    }

    fn forge(&self, arguments: &[&str]) -> Ended {
        let mut command = self.bare.forge(self.repository.folder(), arguments);
        command.env(PLAIN_HTTP, self.releases.host()).env("FORGE_ENVIRONMENT", &self.options.environment);
        run(&mut command, None)
    }

    /// Deploys and expects this exit code; gives the report, which there is none of where nothing began, and all else that was said.
    fn deploy(&self, code: i32) -> (Value, String) {
        self.deploy_within("5m", code)
    }

    /// The same, with so much time for all of it.
    fn deploy_within(&self, limit: &str, code: i32) -> (Value, String) {
        let ended = self.forge(&["platform", "deploy", "--timeout", limit, "--output", "json"]);
        assert_eq!(ended.code, code, "{}\n{}", ended.stdout, ended.stderr);
        (serde_json::from_str(&ended.stdout).unwrap_or_default(), ended.stderr)
    }

    /// The Application of a project, which is also its namespace.
    fn application_of(&self, project: &str) -> String {
        self.options.application(&project.replace('/', "-"))
    }

    /// The Application of a node.
    fn application(&self, node: &str) -> String {
        self.application_of(&node_id(node))
    }

    /// Pods of the platform that are there to stay, by their namespaces.
    fn running(&self) -> BTreeMap<String, Pods> {
        let all = self.bare.json(&["get", "pods", "-A"]);
        let stay = |pod: &&Value| pod["metadata"]["deletionTimestamp"].is_null() && pod["status"]["phase"] == "Running";
        let mut found: BTreeMap<String, Pods> = BTreeMap::new();
        for pod in all["items"].as_array().unwrap().iter().filter(stay) {
            let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
            let (namespace, image) = (text("/metadata/namespace"), text("/status/containerStatuses/0/imageID"));
            if namespace.starts_with(&self.options.application("")) {
                found.entry(namespace).or_default().insert(text("/metadata/uid"), image);
            }
        }
        found
    }

    /// Pods of a node that are there to stay.
    fn pods(&self, node: &str) -> Pods {
        self.running().remove(&self.application(node)).unwrap_or_default()
    }

    fn all_pods(&self) -> BTreeMap<&'static str, Pods> {
        NODES.iter().map(|node| (*node, self.pods(node))).collect()
    }

    /// How often each Application was synced. Argo CD keeps the last ten, and counts on.
    fn synced(&self) -> BTreeMap<String, u64> {
        let all = self.bare.json(&["get", "applications", "-n", "argocd"]);
        let of = |application: &Value| {
            let last = application["status"]["history"].as_array().and_then(|history| history.last());
            let times = last.map_or(0, |entry| entry["id"].as_u64().unwrap_or(0) + 1);
            (application["metadata"]["name"].as_str().unwrap().to_owned(), times)
        };
        all["items"].as_array().unwrap().iter().map(of).collect()
    }

    /// How often each node was synced.
    fn syncs(&self) -> [u64; 3] {
        let synced = self.synced();
        NODES.map(|node| synced[&self.application(node)])
    }

    /// What runs wrote down.
    fn records(&self) -> Vec<Value> {
        let label = format!("{ENVIRONMENT_LABEL}={}", self.options.environment);
        let all = self.bare.json(&["get", "configmaps", "-n", "argo", "-l", &label]);
        all["items"].as_array().unwrap().clone()
    }

    /// Names of the runs.
    fn runs(&self) -> BTreeSet<String> {
        let name =
            |record: &Value| record["metadata"]["labels"]["forge.projectcatalyst.io/run"].as_str().map(str::to_owned);
        self.records().iter().filter_map(name).collect()
    }

    /// The last answer about each node, by its id, in the run that this is the report of.
    fn answers(&self, report: &Value) -> BTreeMap<String, Value> {
        let mut answers = BTreeMap::new();
        let of_this = |record: &Value| record["metadata"]["labels"]["forge.projectcatalyst.io/run"] == report["run"];
        for record in self.records().into_iter().filter(of_this) {
            for (key, text) in record["data"].as_object().into_iter().flatten() {
                let entry: Value = serde_json::from_str(text.as_str().unwrap_or_default()).unwrap_or_default();
                if let (true, Some(node)) = (key.ends_with(".json"), entry["node"].as_str()) {
                    answers.insert(node.to_owned(), entry["decision"].clone());
                }
            }
        }
        answers
    }

    /// Nodes that our window holds, by their Applications.
    fn held(&self) -> BTreeSet<String> {
        let project = self.bare.json(&["get", "appproject", &self.options.environment, "-n", "argocd"]);
        let windows = project["spec"]["syncWindows"].as_array().cloned().unwrap_or_default();
        let names = windows.iter().flat_map(|window| window["applications"].as_array().cloned().unwrap_or_default());
        names.map(|name| name.as_str().unwrap().to_owned()).collect()
    }

    /// Waits until all pods of a node run this image, and are ready.
    fn until_it_runs(&self, node: &str, image: &str) {
        eventually(&format!("the pods of {node} run {image}"), PATIENCE, || {
            let pods = self.pods(node);
            if run_image(&pods, image) { Ok(()) } else { Err(format!("{pods:?}")) }
        });
        let (workload, namespace) = (format!("deployment/{node}"), self.application(node));
        self.bare.sandbox().kubectl(&["rollout", "status", &workload, "-n", &namespace, "--timeout=60s"]);
    }

    /// Has Argo CD compare, and waits until it says this about a node, in the words of the plugin.
    fn argo_cd_says(&self, node: &str, code: &str) {
        let name = self.application(node);
        let refresh = "argocd.argoproj.io/refresh=normal";
        self.bare.sandbox().kubectl(&["annotate", "application", &name, "-n", "argocd", refresh, "--overwrite"]);
        eventually(&format!("Argo CD says FORGE-{code} of {node}"), PATIENCE, || {
            let found = self.bare.json(&["get", "application", &name, "-n", "argocd"]);
            let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let said = conditions.iter().filter(|condition| condition["type"] == "ComparisonError");
            let said: Vec<&str> = said.filter_map(|condition| condition["message"].as_str()).collect();
            let file = format!("`{ENVIRONMENT}/apps/{}/release.yaml`", node_id(node));
            let told = |message: &&str| message.contains(&format!("error[FORGE-{code}]: {file}"));
            if said.iter().any(told) { Ok(()) } else { Err(format!("{conditions:?}")) }
        });
    }

    /// The second node was pointed at what is no good: no run begins, Argo CD says why, so does `why`, and all that runs stays.
    fn refuses(&self, exit: i32, code: &str) {
        let before = (self.syncs(), self.all_pods(), self.runs());
        let (report, said) = self.deploy(exit);
        assert!(report.is_null(), "{report:#}");
        assert!(said.contains(&format!("error[FORGE-{code}]: `{}`", node_id("second"))), "{code}: {said}");
        self.argo_cd_says("second", code);
        let why = self.forge(&["why", &node_id("second")]);
        assert_eq!(why.code, 0, "{}", why.stderr);
        assert!(why.stdout.contains(&format!("FORGE-{code} `")), "{code}: {}", why.stdout);
        assert_eq!((self.syncs(), self.all_pods(), self.runs()), before, "{code}");
    }

    /// Takes away what earlier tests deployed; Argo CD, which would bring it back, is not there.
    fn vanish(&self) {
        let label = format!("{ENVIRONMENT_LABEL}={}", self.options.environment);
        let sandbox = self.bare.sandbox();
        sandbox.kubectl(&["delete", "namespaces", "-l", &label, "--ignore-not-found", "--wait=false"]);
        eventually("the namespaces of the projects are gone", PATIENCE, || {
            let left = sandbox.kubectl(&["get", "namespaces", "-l", &label, "-o", "name"]);
            if left.trim().is_empty() { Ok(()) } else { Err(left) }
        });
    }

    /// Takes everything away, as if it had never been.
    fn clear(&self) {
        self.bare.clear();
        self.vanish();
    }
}

fn nodes() -> Vec<TwinNode> {
    let node = |name: &str, before: &[&str], settings: &str| TwinNode {
        settings: settings.to_owned(),
        ..TwinNode::new(name, before, Vec::new())
    };
    vec![
        node("first", &[], ""),
        // Its failure is not waited for.
        node("second", &["first"], "timeouts: {sync: 60s, health: 60s}"),
        node("third", &["second"], ""),
    ]
}

/// What a release of a node is made of: a real pod.
fn source(node: &str, round: &str, image: &str) -> Vec<File> {
    vec![deployment(node, image, 1, &[("ROUND", round)])]
}

/// The commit of a release: another one in every process, because a sandbox that is kept has the releases of earlier ones.
fn commit(of: &str) -> CommitId {
    releases::commit(&format!("{of} {}", std::process::id()))
}

/// What the plugin renders of a release, started as Argo CD starts it, in a repository that points to it.
fn rendered(bare: &Bare, releases: &Releases, environment: &str, node: &str, pointer: &Pointer) -> String {
    let folder = tempfile::tempdir().unwrap();
    let repository = folder.path().join("repository");
    let options = Options::new(environment, "https://git.example.com/platform.git", "");
    let pointers = BTreeMap::from([(node.to_owned(), pointer.clone())]);
    let nodes = [TwinNode::new(node, &[], Vec::new())];
    for (path, text) in twin::released(&options, &releases.registry(), &nodes, &pointers) {
        let file = repository.join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }
    let plugin = folder.path().join("catalyst-forge-cmp");
    symlink(bare.environment.platform.binary.canonicalize().unwrap(), &plugin).unwrap();
    let mut command = Command::new(plugin);
    command.arg("generate").current_dir(repository.join(environment).join("apps").join(node_id(node)));
    command.env_clear().env("TMPDIR", folder.path()).env("FORGE_CMP_CACHE", folder.path().join("cache"));
    let ended = run(command.env(PLAIN_HTTP, releases.host()), None);
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{node}");
    ended.stdout
}

/// The digest of an image.
fn digest(image: &str) -> &str {
    image.rsplit('@').next().unwrap()
}

/// Pods of which every one runs this image.
fn run_image(pods: &Pods, image: &str) -> bool {
    !pods.is_empty() && pods.values().all(|running| running.ends_with(digest(image)))
}

/// Keys of the core's tests.
fn key(name: &str) -> PathBuf {
    forge_testkit::checkout().join("crates/forge-core/tests/keys").join(name)
}

/// A policy of the repository: everything must be signed by `ci`.
fn policy() -> File {
    let pem = std::fs::read_to_string(key("ci.pub")).unwrap().trim_end().replace('\n', "\n        ");
    let text = format!(
        "apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: SignaturePolicy\nspec:\n  signatures: required\n  keys:\n    - name: ci\n      pem: |\n        {pem}\n"
    );
    ("signatures.yaml".to_owned(), text)
}

/// One story, because each step begins where the last one ended, and a cluster with Argo takes a while.
#[test]
fn releases_become_what_runs_and_what_is_no_good_changes_nothing_until_it_is_mended() {
    let (shop, mut pointers) = Shop::prepared();
    let image = shop.options.image.clone();
    let component = "app.kubernetes.io/component=repo-server";
    let servers = shop.bare.json(&["get", "deployments", "-n", "argocd", "-l", component]);
    let containers = &servers["items"][0]["spec"]["template"]["spec"]["containers"];
    assert!(containers.to_string().contains("catalyst-forge-cmp"), "{servers:#}");

    // Everything is proven by what was rendered, and by what runs.
    let (report, said) = shop.deploy(0);
    assert_eq!((&report["verdict"], shop.syncs()), (&Value::from("done"), [1, 1, 1]), "{report:#}\n{said}");
    let answers = shop.answers(&report);
    for (node, pointer) in &pointers {
        let proof = &answers[&node_id(node)];
        assert_eq!((&proof["type"], &proof["proof"]), (&"proven".into(), &"digest".into()), "{proof:#}");
        assert_eq!(proof["render"]["release"], pointer.digest.as_str(), "{proof:#}");
        let images: Vec<&Value> = proof["images"].as_object().unwrap().values().collect();
        assert_eq!(images, [digest(&image)], "{proof:#}");
        assert!(run_image(&shop.pods(node), &image), "{node}: {:?}", shop.pods(node));
    }
    assert_eq!(shop.held(), BTreeSet::new());

    // Again: nothing to do.
    let before = (shop.all_pods(), shop.runs());
    let (_, said) = shop.deploy(0);
    assert!(said.contains("nothing to do"), "{said}");
    assert_eq!((shop.syncs(), (shop.all_pods(), shop.runs())), ([1, 1, 1], before.clone()));

    // Another release of one project: its pods run another image, and nothing else was touched.
    let other = shop.releases.another_image(&image, "somebody");
    assert_ne!(digest(&other), digest(&image));
    pointers.insert("second".to_owned(), shop.release("second", "two", &other));
    shop.point("second", &pointers["second"], "another release");
    shop.deploy(0);
    assert_eq!(shop.syncs(), [1, 2, 1]);
    let pods = shop.all_pods();
    assert!(run_image(&pods["second"], &other), "{pods:?}");
    let (was, _) = &before;
    assert_eq!((&pods["first"], &pods["third"]), (&was["first"], &was["third"]));

    no_good_by_its_pointer(&shop);
    mended_where_it_lies(&shop, &mut pointers, &other);
    healthy_at_another_image(&shop, &mut pointers, (&other, &image));
    not_signed(&shop, &pointers);
    by_a_job(&shop);
    shop.clear();
}

/// What can only be mended by another pointer.
fn no_good_by_its_pointer(shop: &Shop) {
    let second = node_id("second");
    let made = |project: &str, name: &str, files: &[(&str, &[u8])]| {
        shop.releases.stored(&second, project, &commit(name), files)
    };
    let object = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n".as_slice();
    let large = vec![b'#'; (16 << 20) + 1];
    // With prune, nothing in the place of something would delete it.
    shop.point("second", &made(&second, "empty", &[]), "an empty release");
    shop.refuses(3, "N005");
    shop.point("second", &made(&second, "large", &[("large.yaml", large.as_slice())]), "a large release");
    shop.refuses(3, "N003");
    shop.point("second", &made(&node_id("first"), "foreign", &[("a.yaml", object)]), "a release of another project");
    shop.refuses(6, "N018");
}

/// What is mended in the registry, where Argo CD does not see it: the next run goes on all the same.
fn mended_where_it_lies(shop: &Shop, pointers: &mut BTreeMap<String, Pointer>, image: &str) {
    let second = node_id("second");
    let before = shop.pods("second");
    let three = shop.release("second", "three", image);
    let damaged = shop.releases.damage(&second, &three);
    shop.point("second", &three, "a damaged release");
    shop.refuses(1, "N012");
    damaged.mend();
    shop.deploy(0);
    assert_eq!(shop.syncs(), [1, 3, 1]);
    let after = shop.pods("second");
    assert!(run_image(&after, image) && before.keys().all(|pod| !after.contains_key(pod)), "{before:?} {after:?}");

    let (layout, four) = shop.releases.kept(&second, &commit("second four"), &source("second", "four", image));
    shop.point("second", &four, "a release that nobody pushed");
    shop.refuses(3, "N001");
    shop.releases.push(&layout);
    shop.deploy(0);
    assert_eq!(shop.syncs(), [1, 4, 1]);
    pointers.insert("second".to_owned(), four);
}

/// Somebody has a pod run another image than its Deployment says, in place, so Argo CD has nothing to find fault with: what it calls
/// Synced and Healthy after our sync is not proven, and what depends on it does not start.
fn healthy_at_another_image(shop: &Shop, pointers: &mut BTreeMap<String, Pointer>, (wanted, wrong): (&str, &str)) {
    let (second, namespace) = (node_id("second"), shop.application("second"));
    let pods = ["pods", "-l", "app.kubernetes.io/name=second", "-n", namespace.as_str()];
    let change = format!("sample={wrong}");
    shop.bare.sandbox().kubectl(&[&["set", "image"][..], &pods, &[change.as_str()]].concat());
    shop.until_it_runs("second", wrong);
    let changed = shop.pods("second");

    // A release that leaves the pods alone, and one of what is behind it.
    let mut files = source("second", "four", wanted);
    files.push(config_map("second", "beside it"));
    pointers.insert("second".to_owned(), shop.releases.pushed(&second, &commit("second five"), &files));
    pointers.insert("third".to_owned(), shop.release("third", "two", &shop.options.image));
    let pointed = ["second", "third"].map(|node| shop.pointed(&node_id(node), &pointers[node]));
    shop.push(&pointed, "another release of both");
    let (report, said) = shop.deploy(2);
    assert_eq!((shop.syncs(), shop.pods("second")), ([1, 5, 1], changed), "{report:#}\n{said}");
    let status = &shop.bare.json(&["get", "application", &namespace, "-n", "argocd"])["status"];
    let words = (&status["sync"]["status"], &status["health"]["status"]);
    assert_eq!(words, (&"Synced".into(), &"Healthy".into()), "{status:#}");
    let answer = &shop.answers(&report)[&second];
    let why = &answer["why"];
    assert_eq!((&answer["type"], &why["type"]), (&"failed".into(), &"wrongImage".into()), "{answer:#}");
    assert_eq!((&why["wanted"], &why["running"]), (&digest(wanted).into(), &digest(wrong).into()), "{answer:#}");
    let failures = report["failures"].as_array().unwrap();
    let [failure] = failures.as_slice() else { panic!("{report:#}\n{said}") };
    assert_eq!((&failure["node"], &failure["class"]), (&second.as_str().into(), &"conflict".into()), "{report:#}");
    assert_eq!(failure["blocks"], serde_json::json!(["twin/third"]), "{report:#}");
    let stopped: BTreeSet<String> = ["second", "third"].map(|node| shop.application(node)).into();
    assert_eq!(shop.held(), stopped);
    let told = shop.forge(&["why", &node_id("third")]);
    assert_eq!(told.code, 0, "{}", told.stderr);
    let container = format!("Deployment/{namespace}/second/sample");
    assert!(told.stdout.contains(&second) && told.stdout.contains(&container), "{}", told.stdout);

    // A pod as its Deployment wants it: nothing of it has to be synced, and what waited for it is.
    shop.bare.sandbox().kubectl(&[&["delete"][..], &pods].concat());
    shop.until_it_runs("second", wanted);
    let (report, _) = shop.deploy(0);
    assert_eq!((&report["verdict"], shop.syncs()), (&"done".into(), [1, 5, 2]), "{report:#}");
    assert_eq!(shop.held(), BTreeSet::new());
}

/// Whoever reads the registry may render what nobody signed, and the plugin may not: the run begins, and stops there.
fn not_signed(shop: &Shop, pointers: &BTreeMap<String, Pointer>) {
    let (syncs, pods) = (shop.syncs(), shop.all_pods());
    for node in ["first", "third"] {
        shop.releases.sign(&node_id(node), &pointers[node], &key("ci.pem"));
    }
    shop.push(&[policy()], "everything is signed");
    let (report, said) = shop.deploy(2);
    let failures = report["failures"].as_array().unwrap();
    let [failure] = failures.as_slice() else { panic!("{report:#}\n{said}") };
    assert_eq!((&failure["node"], &failure["class"]), (&"twin/second".into(), &"policy".into()), "{report:#}");
    assert!(failure["diagnosis"].as_str().unwrap().contains("FORGE-N006"), "{report:#}");
    assert_eq!(failure["blocks"], serde_json::json!(["twin/third"]), "{report:#}");
    let stopped: BTreeSet<String> = ["second", "third"].map(|node| shop.application(node)).into();
    assert_eq!(shop.held(), stopped);
    shop.argo_cd_says("second", "N006");
    let why = shop.forge(&["why", &node_id("third")]);
    assert_eq!(why.code, 0, "{}", why.stderr);
    assert!(why.stdout.contains("twin/second") && why.stdout.contains("FORGE-N006"), "{}", why.stdout);
    assert_eq!((shop.syncs(), &shop.all_pods()), (syncs, &pods));

    // It was rendered to the same before, so nothing has to be synced.
    shop.releases.sign(&node_id("second"), &pointers["second"], &key("ci.pem"));
    let (report, _) = shop.deploy(0);
    assert_eq!(report["verdict"], "done", "{report:#}");
    assert_eq!((shop.syncs(), shop.all_pods(), shop.held()), (syncs, pods, BTreeSet::new()));
}

/// The executor as a Job of Forge's chart reads releases from a registry that takes something: here that no TLS is spoken, of which
/// nothing but the mounted Secret tells it.
fn by_a_job(shop: &Shop) {
    let (sandbox, image) = (shop.bare.sandbox(), shop.bare.environment.platform.image());
    let mut helm = Command::new(&sandbox.helm);
    helm.args(["template", "forge"]).arg(chart::folder()).args(["--show-only", "templates/executor.yaml"]);
    for value in [
        format!("images.executor={image}"),
        format!("images.plugin={image}"),
        format!("environments={{{ENVIRONMENT}}}"),
        format!("executor.domain={ENVIRONMENT}.example.com"),
        format!("executor.gitRepository={}", shop.options.url),
    ] {
        helm.arg("--set").arg(value);
    }
    let rendered = run(&mut helm, None);
    assert_eq!(rendered.code, 0, "{}", rendered.stderr);
    let made = sandbox.try_kubectl(&["apply", "-f", "-"], Some(&rendered.stdout));
    assert_eq!(made.code, 0, "{}", made.stderr);
    let plain = format!("--from-literal=plain-http={}", shop.releases.host());
    sandbox.kubectl(&["create", "secret", "generic", REGISTRY_SECRET, "-n", "argo", &plain]);

    let before = shop.syncs();
    let pointer = shop.release("first", "by a Job", &shop.options.image);
    shop.releases.sign(&node_id("first"), &pointer, &key("ci.pem"));
    shop.point("first", &pointer, "for a Job");
    let (name, from) = (format!("forge-deploy-{ENVIRONMENT}-1"), format!("--from=cronjob/forge-deploy-{ENVIRONMENT}"));
    let mut job = shop.bare.json(&["create", "job", &name, "-n", "argo", &from, "--dry-run=client"]);
    // The image of tests has no entry point.
    job["spec"]["template"]["spec"]["containers"][0]["command"] = serde_json::json!(["executor"]);
    let made = sandbox.try_kubectl(&["create", "-f", "-"], Some(&job.to_string()));
    assert_eq!(made.code, 0, "{}", made.stderr);
    let target = format!("job/{name}");
    let written = || sandbox.try_kubectl(&["logs", "-n", "argo", &target, "--tail=-1"], None).stdout;
    eventually(&format!("Job {name} is done"), PATIENCE, || {
        let conditions = shop.bare.json(&["get", "job", &name, "-n", "argo"])["status"]["conditions"].clone();
        let is = |kind: &str| {
            let mut found = conditions.as_array().into_iter().flatten();
            found.any(|condition| condition["type"] == kind && condition["status"] == "True")
        };
        assert!(!is("Failed"), "{name} failed:\n{}", written());
        if is("Complete") { Ok(()) } else { Err(written()) }
    });
    let text = written();
    assert_eq!(verdict(&text), "done", "{text}");
    assert_eq!((shop.syncs(), shop.held()), ([before[0] + 1, before[1], before[2]], BTreeSet::new()), "{text}");
}

/// Pointers change at random, several at once, now and then to what is not there. For `make soak`.
#[test]
#[ignore = "takes a quarter of an hour; tools/soak runs it"]
fn however_pointers_change_only_what_changed_is_synced_and_everything_runs_what_its_pointer_names() {
    const CHOICES: usize = 4;
    let (seed, changes) = (number("FORGE_SEED", 1), number("FORGE_CHANGES", 50));
    let mut random = Random::new(seed);
    let (shop, first) = Shop::prepared();
    let image = shop.options.image.clone();
    let images = [image.clone(), shop.releases.another_image(&image, "somebody")];
    let mut choices: BTreeMap<&str, Vec<(Pointer, &str)>> = BTreeMap::new();
    for node in NODES {
        let made = (0..CHOICES).map(|n| {
            let image = images[n % images.len()].as_str();
            (shop.release(node, &format!("choice {n}"), image), image)
        });
        choices.insert(node, made.collect());
    }
    shop.deploy(0);
    let mut current: BTreeMap<&str, (Pointer, &str)> =
        NODES.iter().map(|node| (*node, (first[*node].clone(), image.as_str()))).collect();
    let mut syncs = shop.syncs();
    for change in 0..changes {
        let seeded = format!("seed {seed}, change {change}");
        if random.below(5) == 0 {
            let node = NODES[random.below(NODES.len())];
            let nowhere = Pointer { commit: commit("nowhere"), digest: Digest::of(seeded.as_bytes()) };
            let before = shop.all_pods();
            shop.point(node, &nowhere, "to what is not there");
            let (_, said) = shop.deploy(3);
            assert!(said.contains("FORGE-N001"), "{seeded}: {said}");
            shop.argo_cd_says(node, "N001");
            assert_eq!((shop.syncs(), shop.all_pods()), (syncs, before), "{seeded}");
            shop.point(node, &current[node].0, "back");
        }
        let mut files = Vec::new();
        for (at, node) in NODES.iter().enumerate() {
            let choice = &choices[node][random.below(CHOICES)];
            if random.below(2) == 0 || *choice == current[node] {
                continue;
            }
            files.push(shop.pointed(&node_id(node), &choice.0));
            current.insert(*node, choice.clone());
            syncs[at] += 1;
        }
        shop.push(&files, "other releases");
        shop.deploy(0);
        assert_eq!(shop.syncs(), syncs, "{seeded}");
        for (node, (_, image)) in &current {
            let pods = shop.pods(node);
            assert!(run_image(&pods, image), "{seeded}: {node} {pods:?}");
        }
    }
    shop.clear();
}
