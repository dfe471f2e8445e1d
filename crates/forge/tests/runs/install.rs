//! Phase 1 on a bare cluster of its own: Helm installs Argo, a second time writes nothing, what is cut off is repaired, what
//! fails is taken back, and the platform that runs on it does not notice. `tools/cluster` takes the sandbox down
//! afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use forge_testkit::http;
use forge_testkit::platform::{Environment, Platform, attempts, mark};
use forge_testkit::sandbox::{Ended, Sandbox, eventually, run};
use forge_testkit::twin::{self, TwinNode, deployment};
use serde_json::Value;

use crate::stage::PATIENCE;

/// The sandbox without Argo.
const NAME: &str = "bare";
/// Namespaces that Argo is installed in, and those that what it deploys is in.
pub(crate) const PLACES: [&str; 5] = ["argocd", "argo", "argo-events", "crossplane-system", "forge-system"];
/// Helm releases, in the order of installation.
const RELEASES: [&str; 3] = ["argo-cd", "argo-workflows", "argo-events"];
/// How long Kubernetes may take to remove a namespace with all that is in it.
const GONE: Duration = Duration::from_secs(180);
/// Writes that come once more by chance: a token that Argo CD loses is made again.
const BY_CHANCE: [&str; 2] = ["a token of the Argo CD account", "an old token of the Argo CD account goes"];
/// An image that is in no registry.
pub(crate) const NOWHERE: &str = "v0.0.0-nowhere";

/// A bare cluster, and a platform of two applications whose repository says that Forge installs everything.
pub(crate) struct Bare {
    pub(crate) environment: Environment,
}

impl Bare {
    pub(crate) fn up() -> Self {
        static PLATFORM: OnceLock<Platform> = OnceLock::new();
        let environment = PLATFORM.get_or_init(|| Platform::bare(NAME)).environment("install");
        let mut options = environment.options();
        options.timeouts = Some(("2m".to_owned(), "4m".to_owned()));
        let node =
            |name: &str, before: &[&str]| TwinNode::new(name, before, vec![deployment(name, &options.image, 1, &[])]);
        let nodes = [node("first", &[]), node("second", &["first"])];
        options.argo = "{cd: install, workflows: install, events: install}".to_owned();
        environment.push(&twin::small(&options, &nodes), "the platform");
        Self { environment }
    }

    pub(crate) fn sandbox(&self) -> &Sandbox {
        &self.environment.platform.sandbox
    }

    /// What kubectl answers.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        self.environment.json(arguments)
    }

    /// `forge` on a repository.
    pub(crate) fn forge(&self, folder: &Path, arguments: &[&str]) -> Command {
        let platform = self.environment.platform;
        let mut command = Command::new(&platform.binary);
        command.args(arguments).current_dir(folder);
        command.env("KUBECONFIG", &platform.sandbox.kubeconfig).env("NO_COLOR", "1");
        for variable in ["FORGE_ENVIRONMENT", "FORGE_FAILPOINT", "FORGE_FAILPOINTS", "FORGE_WITH"] {
            command.env_remove(variable);
        }
        command
    }

    /// `forge bootstrap` on a repository.
    pub(crate) fn bootstrapping(&self, folder: &Path, arguments: &[&str]) -> Command {
        self.bootstrapping_from(&self.sandbox().charts, folder, arguments)
    }

    /// The same, with charts from there.
    pub(crate) fn bootstrapping_from(&self, charts: &Path, folder: &Path, arguments: &[&str]) -> Command {
        let platform = self.environment.platform;
        let mut command = self.forge(folder, &["bootstrap", "--image", platform.image()]);
        command.args(arguments).arg("--charts").arg(charts).arg("--helm").arg(&platform.sandbox.helm);
        command
    }

    /// `forge bootstrap`, on the repository of this test.
    fn command(&self, arguments: &[&str]) -> Command {
        self.bootstrapping(self.environment.repository.folder(), arguments)
    }

    /// Runs `forge bootstrap`, dying before a write where one is named, by its name or its number.
    pub(crate) fn bootstrap(&self, arguments: &[&str], dies: Option<&str>) -> Ended {
        let mut command = self.command(arguments);
        if let Some(point) = dies {
            command.env("FORGE_FAILPOINT", point);
        }
        run(&mut command, None)
    }

    /// Begins it and kills it, and with it the helm that it has started, while helm installs this release.
    fn killed_while_helm_works(&self, release: &str) {
        let mut command = self.command(&[]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        eventually(&format!("helm installs {release}"), GONE, || {
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "it ended before helm had begun with {release}");
            let newest = self.releases(release).pop();
            if newest.as_ref().is_some_and(|(_, status, _)| status == "pending-install") {
                Ok(())
            } else {
                Err(format!("{newest:?}"))
            }
        });
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Runs it to its end after it was killed, and sees to it that nothing half is left.
    fn completes(&self, after: &str) {
        let done = self.bootstrap(&[], None);
        assert_eq!(done.code, 0, "after {after}: {}", done.stderr);
        self.is_whole(after);
        let check = self.bootstrap(&["--check"], None);
        assert_eq!(check.code, 0, "after {after}: {}\n{}", check.stdout, check.stderr);
    }

    /// No release is half installed.
    pub(crate) fn is_whole(&self, after: &str) {
        for release in RELEASES {
            let releases = self.releases(release);
            let whole = releases.iter().all(|(_, status, ours)| *ours && !status.starts_with("pending"));
            assert!(whole, "after {after}: {releases:?}");
            assert_eq!(releases.last().map(|(_, status, _)| status.as_str()), Some("deployed"), "after {after}");
        }
    }

    /// Values that lie over Forge's own; none for nothing.
    pub(crate) fn values(&self, chart: &str, text: Option<&str>) {
        let path = self.environment.repository.folder().join("argo/values").join(format!("{chart}.yaml"));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        match text {
            Some(text) => std::fs::write(path, text).unwrap(),
            None => std::fs::remove_file(path).unwrap(),
        }
    }

    /// Status, revision and owner of every revision of every release, newest last.
    pub(crate) fn releases(&self, name: &str) -> Vec<(u64, String, bool)> {
        let all = self.environment.json(&["get", "secrets", "-A", "-l", &format!("owner=helm,name={name}")]);
        let of = |secret: &Value| {
            let labels = &secret["metadata"]["labels"];
            let text = |key: &str| labels[key].as_str().unwrap_or_default().to_owned();
            (text("version").parse().unwrap(), text("status"), labels["app.kubernetes.io/managed-by"] == "forge")
        };
        let mut found: Vec<_> = all["items"].as_array().unwrap().iter().map(of).collect();
        found.sort();
        found
    }

    /// Pods of Argo by their identity: another one is a restart.
    fn pods(&self) -> BTreeSet<String> {
        let all = self.environment.json(&["get", "pods", "-A", "-l", "app.kubernetes.io/part-of"]);
        // What is on its way out, and a Job that is done and is cleared away after a minute, is not restarted by anybody.
        let stays = |pod: &&Value| {
            pod["metadata"]["deletionTimestamp"].is_null()
                && !["Succeeded", "Failed"].contains(&pod["status"]["phase"].as_str().unwrap())
        };
        let items = all["items"].as_array().unwrap().iter().filter(stays);
        items.map(|pod| pod["metadata"]["uid"].as_str().unwrap().to_owned()).collect()
    }

    /// The pod of Argo CD's application controller, by its identity.
    fn controller(&self) -> String {
        let label = "app.kubernetes.io/name=argocd-application-controller";
        self.sandbox().kubectl(&["get", "pods", "-n", "argocd", "-l", label, "-o", "jsonpath={.items[*].metadata.uid}"])
    }

    /// Pods of the platform by their identity, and how often their containers were restarted.
    fn running(&self) -> BTreeMap<String, u64> {
        let all = self.environment.json(&["get", "pods", "-A", "--field-selector=status.phase=Running"]);
        let start = format!("{}-", self.environment.name);
        let items = all["items"].as_array().unwrap().iter();
        let ours = items.filter(|pod| pod["metadata"]["namespace"].as_str().unwrap().starts_with(&start));
        let of = |pod: &Value| {
            let containers = pod["status"]["containerStatuses"].as_array().unwrap().iter();
            let restarts = containers.map(|container| container["restartCount"].as_u64().unwrap()).sum::<u64>();
            (pod["metadata"]["uid"].as_str().unwrap().to_owned(), restarts)
        };
        ours.map(of).collect()
    }

    /// The same pods run, Argo CD says that all is well, and a run has nothing to do.
    fn runs_on(&self, running: &BTreeMap<String, u64>) {
        eventually("the Applications are Synced and Healthy", PATIENCE, || {
            let states = ["first", "second"].map(|node| {
                let status = self.environment.application(node)["status"].clone();
                (status["sync"]["status"].clone(), status["health"]["status"].clone())
            });
            let well = states.iter().all(|(sync, health)| sync == "Synced" && health == "Healthy");
            if well { Ok(()) } else { Err(format!("{states:?}")) }
        });
        let again = self.environment.forge(&["platform", "deploy"], PATIENCE);
        assert_eq!(again.code, 0, "{}\n{}", again.stdout, again.stderr);
        assert!(again.stderr.contains("nothing to do"), "{}", again.stderr);
        assert_eq!(self.running(), *running);
    }

    /// Takes everything away, as if it had never been, so that a test can be run again by hand.
    pub(crate) fn clear(&self) {
        // An Argo CD that manages itself would heal what is removed.
        self.sandbox().try_kubectl(&["delete", "application", "argocd", "-n", "argocd", "--wait=false"], None);
        // Argo Events lets go what it made of these, while it is there; a bus last, when nobody listens to it any more.
        for kinds in ["sensors.argoproj.io,eventsources.argoproj.io", "eventbus.argoproj.io"] {
            self.sandbox().try_kubectl(&["delete", kinds, "-n", "argo", "--all", "--timeout=60s"], None);
        }
        for (release, place) in [("argo-events", "argo-events"), ("argo-workflows", "argo"), ("argo-cd", "argocd")] {
            let mut helm = Command::new(&self.sandbox().helm);
            helm.args(["uninstall", release, "-n", place, "--ignore-not-found", "--wait"]);
            run(helm.env("KUBECONFIG", &self.sandbox().kubeconfig), None);
        }
        // Nobody is there any more who would do what these wait for.
        for (kind, place) in [
            ("applicationsets.argoproj.io", "argocd"),
            ("applications.argoproj.io", "argocd"),
            ("sensors.argoproj.io", "argo"),
            ("eventsources.argoproj.io", "argo"),
            ("eventbus.argoproj.io", "argo"),
        ] {
            let names = self.sandbox().try_kubectl(&["get", kind, "-n", place, "-o", "name"], None).stdout;
            for name in names.lines() {
                let nothing = r#"{"metadata":{"finalizers":null}}"#;
                self.sandbox().try_kubectl(&["patch", name, "-n", place, "--type", "merge", "-p", nothing], None);
            }
        }
        for webhook in ["crossplane", "crossplane-no-usages"] {
            let delete = ["delete", "validatingwebhookconfiguration", webhook, "--ignore-not-found"];
            self.sandbox().try_kubectl(&delete, None);
        }
        self.sandbox().kubectl(&[&["delete", "namespace", "--ignore-not-found", "--wait=false"], &PLACES[..]].concat());
        eventually("the namespaces are gone", GONE, || {
            let left = self.sandbox().kubectl(&["get", "namespaces", "-o", "name"]);
            let mut names = left.lines().map(|line| line.trim_start_matches("namespace/"));
            if names.any(|name| PLACES.contains(&name)) { Err(left) } else { Ok(()) }
        });
        let crds = self.sandbox().kubectl(&["get", "crd", "-o", "name"]);
        let of_ours = |line: &&str| line.ends_with(".argoproj.io") || line.ends_with(".crossplane.io");
        for crd in crds.lines().filter(of_ours) {
            self.sandbox().try_kubectl(&["delete", crd, "--wait=false"], None);
        }
        let policies = "validatingadmissionpolicies,validatingadmissionpolicybindings";
        self.sandbox().kubectl(&["delete", policies, "-l", "app.kubernetes.io/managed-by=forge", "--ignore-not-found"]);
        // One that is on its way out is not taken over by the next installation.
        eventually("the definitions are gone", GONE, || {
            let left = self.sandbox().kubectl(&["get", "crd", "-o", "name"]);
            if left.contains(".argoproj.io") { Err(left) } else { Ok(()) }
        });
    }
}

/// What somebody tried to change with Forge's or Helm's hands since then: not the checks of phase 0, which ask and are not
/// stored.
pub(crate) fn written(sandbox: &Sandbox, since: jiff::Timestamp, user: &str) -> Vec<String> {
    let lines = attempts(sandbox, since).into_iter();
    let lines = lines.filter(|line| line.user == user && !line.resource.starts_with("selfsubject"));
    lines.map(|line| format!("{line:?}")).collect()
}

/// Who the kubeconfig of the sandbox is.
pub(crate) fn user(sandbox: &Sandbox) -> String {
    let said = sandbox.kubectl(&["auth", "whoami", "-o", "json"]);
    let said: Value = serde_json::from_str(&said).unwrap();
    said["status"]["userInfo"]["username"].as_str().unwrap().to_owned()
}

/// One story, because each step begins where the last one ended, and a cluster with Argo takes a while.
#[test]
fn a_bare_cluster_gets_its_argo_whatever_happens_on_the_way() {
    let bare = Bare::up();
    bare.clear();

    // Nothing is there, and nothing is written to say so.
    let since = mark();
    let who = user(bare.sandbox());
    let check = bare.bootstrap(&["--check"], None);
    assert_eq!(check.code, 1, "{}\n{}", check.stdout, check.stderr);
    assert!(
        check.stdout.contains("missing  Argo CD is not installed; chart argo-cd 9.2.0 would be"),
        "{}",
        check.stdout
    );
    assert_eq!(written(bare.sandbox(), since, &who), Vec::<String>::new());
    nothing_begins_without_all_charts(&bare);

    // Killed at three places: before anything; with the Lease taken and the first chart installed, before its receipt; with
    // everything made but a token that is not stored yet.
    let [.., last] = ["Namespace argo", "ConfigMap forge-install-argo-cd", "Secret forge-argocd"].map(|point| {
        let killed = bare.bootstrap(&[], Some(point));
        assert_eq!(killed.code, -1, "{point}: {}", killed.stderr);
        killed.stderr
    });
    // What was installed before a death is taken as it is.
    assert!(last.contains("Argo CD        apply     nothing to apply"), "{last}");
    assert!(last.contains("Argo Events    result    chart argo-events 2.4.19, revision 1, proven"), "{last}");
    // And with the administrator's password replaced, and the first one's Secret still there.
    let killed = bare.bootstrap(&[], Some("Secret argocd-initial-admin-secret goes"));
    assert_eq!(killed.code, -1, "{}", killed.stderr);
    let done = bare.bootstrap(&[], None);
    assert_eq!(done.code, 0, "{}", done.stderr);
    for release in RELEASES {
        assert_eq!(bare.releases(release), [(1, "deployed".to_owned(), true)], "{release}: {}", done.stderr);
    }
    let receipt = bare.environment.json(&["get", "configmap", "forge-install-argo-cd", "-n", "argocd"]);
    assert_eq!(receipt["data"]["revision"], "1");
    assert_eq!(receipt["metadata"]["labels"]["app.kubernetes.io/managed-by"], "forge");
    noted(&bare);
    rotated(&bare);

    // Somebody who takes the Lease is seen.
    let leases = |line: &String| line.contains("resource: \"leases\"");
    assert!(written(bare.sandbox(), since, &who).iter().any(leases), "no Lease is in the audit log");

    // Again: nothing is written, nothing restarts, and --check agrees.
    let (pods, since) = (bare.pods(), mark());
    assert!(pods.len() >= RELEASES.len(), "{pods:?}");
    let again = bare.bootstrap(&[], None);
    assert_eq!(again.code, 0, "{}", again.stderr);
    let check = bare.bootstrap(&["--check"], None);
    assert_eq!(check.code, 0, "{}\n{}", check.stdout, check.stderr);
    assert_eq!(written(bare.sandbox(), since, &who), Vec::<String>::new());
    assert_eq!(bare.pods(), pods);

    upgraded(&bare);
    repaired(&bare);
    foreign(&bare);
}

/// The password that Argo CD made for its administrator is gone with its Secret, and the one in its place is accepted: without a token
/// of the account another one is made with it.
fn rotated(bare: &Bare) {
    let first = bare.sandbox().try_kubectl(&["get", "secret", "argocd-initial-admin-secret", "-n", "argocd"], None);
    assert!(first.code != 0 && first.stderr.contains("NotFound"), "{}{}", first.stdout, first.stderr);
    let secret = bare.json(&["get", "secret", "forge-argocd-admin", "-n", "argocd"]);
    assert_eq!(secret["metadata"]["labels"]["app.kubernetes.io/managed-by"], "forge");
    bare.sandbox().kubectl(&["delete", "secret", "forge-argocd", "-n", "argo"]);
    let made = bare.bootstrap(&["--credentials"], None);
    assert_eq!(made.code, 0, "{}", made.stderr);
    assert!(made.stdout.contains("made by the administrator"), "{}", made.stdout);
}

/// What was there before the first write is kept, however often it died on the way, and nothing of what came after it.
pub(crate) fn noted(bare: &Bare) {
    let snapshot = bare.json(&["get", "configmap", "forge-snapshot", "-n", "argo"]);
    assert_eq!(snapshot["metadata"]["labels"]["app.kubernetes.io/managed-by"], "forge");
    assert_eq!((&snapshot["immutable"], &snapshot["data"]), (&Value::Bool(true), &Value::Null), "{snapshot:#}");
    let name = bare.environment.name.as_str();
    let arguments = ["platform", "teardown", "--report", "--environment", name, "--output", "json"];
    let ended = run(&mut bare.forge(bare.environment.repository.folder(), &arguments), None);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {}", ended.stderr));
    // Everything that bootstrap made is still there, and nothing that was there before it is called its own.
    assert_eq!((ended.code, &report["verdict"]), (2, &Value::from("orphans left")), "{report:#}");
    assert_eq!(report["notKnown"], Value::Array(Vec::new()), "{report:#}");
    let orphaned: Vec<&str> =
        report["orphaned"].as_array().unwrap().iter().map(|orphan| orphan["object"].as_str().unwrap()).collect();
    for place in ["argocd", "argo", "argo-events"] {
        assert!(orphaned.contains(&format!("namespaces {place}").as_str()), "{orphaned:#?}");
    }
    let foreign: Vec<&&str> =
        orphaned.iter().filter(|object| object.contains("kube-") || object.contains("default/")).collect();
    assert!(foreign.is_empty(), "{foreign:?}");
    let kept = |left: &Value| left["object"].as_str().unwrap().ends_with("applications.argoproj.io");
    assert!(report["retained"].as_array().unwrap().iter().any(kept), "{report:#}");
}

/// Whatever becomes of its Argo CD, the platform keeps running: what does not come up is taken back, what does restarts
/// nothing but itself.
fn upgraded(bare: &Bare) {
    let file = bare.environment.repository.folder().join("argocd/applications.yaml");
    bare.sandbox().kubectl(&["apply", "--server-side", "-f", &file.to_string_lossy()]);
    let deployed = bare.environment.forge(&["platform", "deploy"], PATIENCE);
    assert_eq!(deployed.code, 0, "{}\n{}", deployed.stdout, deployed.stderr);
    let running = bare.running();
    assert_eq!(running.len(), 2, "{running:?}");

    // The controller is the hard part: Kubernetes waits for the pod of a StatefulSet that does not start, also on the way
    // back.
    bare.values(
        "argo-cd",
        Some(&format!("controller: {{image: {{tag: {NOWHERE}}}}}\nserver: {{image: {{tag: {NOWHERE}}}}}\n")),
    );
    let failed = bare.bootstrap(&["--timeout", "40s"], None);
    assert_eq!(failed.code, 1, "{}", failed.stderr);
    assert!(failed.stderr.contains("FORGE-B021"), "{}", failed.stderr);
    assert!(failed.stderr.contains("Argo CD        rollback  back to what it was"), "{}", failed.stderr);
    assert!(failed.stderr.contains("argocd-application-controller-0 is of another revision"), "{}", failed.stderr);
    let releases = bare.releases("argo-cd");
    assert_eq!(releases.last().map(|(_, status, ours)| (status.as_str(), *ours)), Some(("deployed", true)));
    let images = "jsonpath={.items[*].spec.template.spec.containers[*].image}";
    let images = bare.sandbox().kubectl(&["get", "deployments,statefulsets", "-n", "argocd", "-o", images]);
    assert!(!images.contains(NOWHERE), "{images}");
    // With the values as they were, what is there is what is wanted.
    bare.values("argo-cd", None);
    let again = bare.bootstrap(&["--check"], None);
    assert_eq!(again.code, 0, "{}\n{}", again.stdout, again.stderr);
    bare.runs_on(&running);

    let quieter = ("argo/values/argo-cd.yaml".to_owned(), "global: {logging: {level: warn}}\n".to_owned());
    bare.environment.push(&[quieter], "a quieter Argo CD");
    let before = bare.controller();
    let done = bare.bootstrap(&[], None);
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert!(done.stderr.contains("Argo CD        apply     upgraded"), "{}", done.stderr);
    assert_ne!(bare.controller(), before, "Argo CD was not replaced, so nothing was tried");
    bare.runs_on(&running);
}

/// What a killed helm leaves, and what somebody broke, is put right.
fn repaired(bare: &Bare) {
    let (last, ..) = bare.releases("argo-events").pop().unwrap();
    let next = last + 1;
    let mut helm = Command::new(&bare.sandbox().helm);
    helm.args(["upgrade", "argo-events"]).arg(bare.sandbox().charts.join("argo-events"));
    helm.args(["-n", "argo-events", "--set", "global.image.tag=v0.0.0-nowhere", "--wait", "--timeout", "5m"]);
    let mut helm = helm.env("KUBECONFIG", &bare.sandbox().kubeconfig).stdout(Stdio::null()).spawn().unwrap();
    eventually("helm is on its way", PATIENCE, || {
        let newest = bare.releases("argo-events").pop().unwrap();
        if newest.1 == "pending-upgrade" { Ok(()) } else { Err(format!("{newest:?}")) }
    });
    helm.kill().unwrap();
    helm.wait().unwrap();
    let check = bare.bootstrap(&["--check"], None);
    assert!(check.stdout.contains(&format!("Argo Events: revision {next} is pending-upgrade")), "{}", check.stdout);
    let done = bare.bootstrap(&[], None);
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert!(done.stderr.contains(&format!("repair    revision {next} is pending-upgrade")), "{}", done.stderr);
    assert_eq!(bare.releases("argo-events").last().unwrap().1, "deployed");

    bare.sandbox().kubectl(&["delete", "deployment", "-n", "argo-events", "--all"]);
    indexed(bare);
}

/// A folder with these charts as a repository of charts has them, and its index.
fn packaged(bare: &Bare, releases: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let helm = |command: &[&str], more: &Path| {
        let ended = run(Command::new(&bare.sandbox().helm).args(command).arg(more).current_dir(folder.path()), None);
        assert_eq!(ended.code, 0, "helm {command:?}: {}", ended.stderr);
    };
    for release in releases {
        helm(&["package"], &bare.sandbox().charts.join(release));
    }
    helm(&["repo", "index"], folder.path());
    folder
}

/// The last chart cannot be had: nothing is installed of what comes before it, and no namespace is made.
fn nothing_begins_without_all_charts(bare: &Bare) {
    let folder = packaged(bare, &RELEASES[..2]);
    let url = http::serve_folder(folder.path()).unwrap();
    let repository = bare.environment.repository.folder();
    let refused = run(&mut bare.bootstrapping_from(Path::new(&url), repository, &[]), None);
    assert_eq!(refused.code, 3, "{}", refused.stderr);
    for said in ["FORGE-B019", "the chart of Argo Events cannot be used, and nothing of it was changed"] {
        assert!(refused.stderr.contains(said), "{said}: {}", refused.stderr);
    }
    let there = bare.sandbox().kubectl(&["get", "namespaces", "-o", "name"]);
    assert!(!there.lines().any(|line| PLACES.contains(&line.trim_start_matches("namespace/"))), "{there}");
}

/// What is gone comes back from a repository with an index: charts are found there by name and exact version and held against
/// its digests, and whatever is wrong is told before anything is changed.
fn indexed(bare: &Bare) {
    let (folder, elsewhere) = (packaged(bare, &RELEASES), tempfile::tempdir().unwrap());
    let (index, archive) = (folder.path().join("index.yaml"), folder.path().join("argo-cd-9.2.0.tgz"));
    let good = [std::fs::read(&index).unwrap(), std::fs::read(&archive).unwrap()];
    let plant = |text: &[u8], bytes: &[u8]| {
        std::fs::write(&index, text).unwrap();
        std::fs::write(&archive, bytes).unwrap();
    };
    let url = http::serve_folder(folder.path()).unwrap();
    // A folder of that name where it is started is no chart that anybody asked for.
    std::fs::create_dir(elsewhere.path().join("argo-cd")).unwrap();
    let bootstrap = || {
        let repository = bare.environment.repository.folder();
        let mut command = bare.bootstrapping_from(Path::new(&url), repository, &[]);
        run(command.arg("--repo").arg(repository).current_dir(elsewhere.path()), None)
    };
    let before = RELEASES.map(|release| bare.releases(release));
    let text = String::from_utf8(good[0].clone()).unwrap();
    let other = text.replace("version: 9.2.0\n", "version: 9.2.0+mine\n");
    assert_ne!(other, text);
    let events = std::fs::read(folder.path().join("argo-events-2.4.19.tgz")).unwrap();
    for (index, archive, why) in [
        (other.as_bytes(), &good[1], "its index has chart argo-cd at 9.2.0+mine, and not at 9.2.0".to_owned()),
        (&b"<html>not found</html>"[..], &good[1], format!("looks like \"{url}\" is not a valid chart repository")),
        (good[0].as_slice(), &events, "its index says that the archive is sha256:".to_owned()),
    ] {
        plant(index, archive);
        let refused = bootstrap();
        assert_eq!(refused.code, 3, "{why}: {}", refused.stderr);
        for said in ["FORGE-B019", "the chart of Argo CD cannot be used, and nothing of it was changed", why.as_str()] {
            assert!(refused.stderr.contains(said), "{said}: {}", refused.stderr);
        }
    }
    assert_eq!(RELEASES.map(|release| bare.releases(release)), before);
    plant(&good[0], &good[1]);
    let done = bootstrap();
    assert_eq!(done.code, 0, "{}", done.stderr);
    // Another place, and the same chart; and one of which something is gone.
    for said in [
        "chart argo-cd 9.2.0 renders; revision",
        "and renders the same",
        "is gone",
        "Argo Events    apply     upgraded",
    ] {
        assert!(done.stderr.contains(said), "{said}: {}", done.stderr);
    }
    // What is done needs no repository any more.
    plant(b"", b"");
    let again = bootstrap();
    assert_eq!(again.code, 0, "{}", again.stderr);
    assert_eq!(again.stderr.matches(": nothing to do").count(), RELEASES.len(), "{}", again.stderr);
}

/// A release that does not carry our label is left alone.
fn foreign(bare: &Bare) {
    let all = ["label", "secrets", "-n", "argo-events", "-l", "owner=helm,name=argo-events"];
    bare.sandbox().kubectl(&[&all[..], &["app.kubernetes.io/managed-by-"]].concat());
    let before = bare.releases("argo-events");
    let refused = bare.bootstrap(&[], None);
    assert_eq!(refused.code, 3, "{}", refused.stderr);
    assert_eq!(bare.releases("argo-events"), before);
    bare.sandbox().kubectl(&[&all[..], &["app.kubernetes.io/managed-by=forge", "--overwrite"]].concat());
}

/// Runs a command to its end, which must be this one, and gives the names of all writes that it came by.
pub(crate) fn writes(mut command: Command, code: i32) -> Vec<String> {
    let file = std::env::temp_dir().join(format!("forge-writes-{}", std::process::id()));
    let _ = std::fs::remove_file(&file);
    let done = run(command.env("FORGE_FAILPOINTS", &file), None);
    assert_eq!(done.code, code, "{}\n{}", done.stdout, done.stderr);
    let noted = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    noted.lines().map(str::to_owned).collect()
}

/// Where to die before each of these writes: its name, with `#2` where it is the second one of that name. No numbers: what comes
/// by chance would shift those of all that comes after it.
pub(crate) fn points(writes: &[String]) -> Vec<String> {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let mut points = Vec::new();
    for write in writes {
        let times = seen.entry(write).or_default();
        *times += 1;
        match *times {
            1 => points.push(write.clone()),
            _ if BY_CHANCE.contains(&write.as_str()) => {}
            time => points.push(format!("{write}#{time}")),
        }
    }
    points
}

#[test]
fn each_write_of_a_name_is_a_point_unless_it_comes_by_chance() {
    let token = BY_CHANCE[0];
    let writes = ["Lease l", token, "ConfigMap c", token, "Lease l", "Lease l"].map(str::to_owned);
    assert_eq!(points(&writes), ["Lease l", token, "ConfigMap c", "Lease l#2", "Lease l#3"]);
}

/// Begins anew for each of these writes, lets a command die before it, and hands over to what has to come to its end then. Gives
/// how many there are. With `FORGE_POINTS=7-12` only those, counted from one: a sweep that was cut off goes on where it was.
pub(crate) fn killed_before_each(
    writes: &[String],
    begin: impl Fn(),
    command: impl Fn() -> Command,
    then: impl Fn(&str),
) -> usize {
    let points = points(writes);
    let wanted = std::env::var("FORGE_POINTS").unwrap_or_else(|_| format!("1-{}", points.len()));
    let ends = wanted.split_once('-').and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
    let (first, last): (usize, usize) = ends.unwrap_or_else(|| panic!("FORGE_POINTS={wanted} is not like 7-12"));
    for (at, write) in (1..).zip(&points).filter(|(at, _)| (first..=last).contains(at)) {
        begin();
        let killed = run(command().env("FORGE_FAILPOINT", write), None);
        assert_eq!(killed.code, -1, "{write}: {}", killed.stderr);
        then(&format!("it died before {write}, {at} of {}", points.len()));
        let said = format!("point {at} of {}: killed before {write}; the next run came to its end", points.len());
        let _ = writeln!(std::io::stderr(), "{said}");
    }
    points.len()
}

/// Every point at which it can be killed, and the middle of helm's work: for `make soak`, because each one takes a cluster from
/// bare to done. How many there are is found out by counting. What a root, triggers and the handover write is swept in
/// `self_managed`.
#[test]
#[ignore = "takes hours; tools/soak runs it"]
fn killed_before_any_write_the_next_run_completes_and_nothing_half_stays() {
    let bare = Bare::up();
    bare.clear();
    let writes = writes(bare.command(&[]), 0);
    let kinds = |what: &str| writes.iter().filter(|write| write.starts_with(what)).count();
    // Namespaces, the Lease, three charts with their receipts, Forge's own objects, the token and its Secret, the administrator's.
    assert_eq!((kinds("helm upgrade "), kinds("ConfigMap forge-install-")), (3, 3), "{writes:?}");
    assert!(kinds("Role ") >= 4 && kinds("Secret forge-argocd") == 2, "{writes:?}");
    let last = format!("ConfigMap forge-bootstrap-{} in argo", bare.environment.name);
    assert_eq!(writes.last(), Some(&last), "{writes:?}");
    let begin = || bare.clear();
    let points = killed_before_each(&writes, begin, || bare.command(&[]), |after| bare.completes(after));
    assert!(points > 30, "{writes:?}");
    for release in RELEASES {
        bare.clear();
        bare.killed_while_helm_works(release);
        bare.completes(&format!("helm was killed with {release}"));
    }
}

/// A chart whose upgrade Helm calls good and whose own test fails, so that going back is ours.
fn failing(bare: &Bare, folder: &Path) {
    copy(&bare.sandbox().charts, folder);
    let templates = folder.join("argo-events/templates");
    let marker = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: forge-marker}\n";
    std::fs::write(templates.join("forge-marker.yaml"), marker).unwrap();
    let image = bare.environment.platform.image();
    let test = format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: forge-fails\n  annotations: {{helm.sh/hook: test, helm.sh/hook-delete-policy: before-hook-creation}}\nspec:\n  restartPolicy: Never\n  containers: [{{name: fails, image: \"{image}\", command: [forge], args: [nothing-of-ours]}}]\n"
    );
    std::fs::write(templates.join("forge-fails.yaml"), test).unwrap();
}

pub(crate) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The same for an upgrade that fails: whoever is killed on the way there or back, what was proven comes back.
#[test]
#[ignore = "tools/soak runs it"]
fn killed_before_any_write_of_an_upgrade_that_fails_it_becomes_what_it_was() {
    let bare = Bare::up();
    bare.clear();
    assert_eq!(bare.bootstrap(&[], None).code, 0);
    let charts = tempfile::tempdir().unwrap();
    failing(&bare, charts.path());
    let folder = bare.environment.repository.folder();
    let upgrade = || bare.bootstrapping_from(charts.path(), folder, &["--timeout", "60s"]);
    let back = |after: &str| {
        let failed = run(&mut upgrade(), None);
        assert_eq!(failed.code, 1, "after {after}: {}", failed.stderr);
        assert!(failed.stderr.contains("FORGE-B021"), "after {after}: {}", failed.stderr);
        let marker = ["get", "configmap", "forge-marker", "-n", "argo-events"];
        assert_ne!(bare.sandbox().try_kubectl(&marker, None).code, 0, "after {after}: {}", failed.stderr);
        bare.completes(after);
    };
    let writes = writes(upgrade(), 1);
    for point in ["helm upgrade argo-events", "helm test argo-events", "helm rollback argo-events"] {
        assert!(writes.iter().any(|write| write == point), "{point}: {writes:?}");
    }
    bare.completes("an upgrade that failed");
    killed_before_each(&writes, || {}, upgrade, back);
}
