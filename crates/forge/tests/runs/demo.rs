//! `forge demo` on a cluster that somebody has, as a newcomer meets it: from an empty repository to a proven platform, broken by the
//! commands that it prints, and taken away again. Its names are fixed, so there is one test of it.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use forge_core::render::ENVIRONMENT_LABEL;
use forge_core::scaffold::demo::{ENVIRONMENT, names};
use forge_testkit::platform::{GIT, Platform, cleanup};
use forge_testkit::registry_client::RegistryClient;
use forge_testkit::sandbox::{Ended, Git, Sandbox, run};
use serde_json::Value;
use tempfile::TempDir;

use crate::preflight::undo;

/// Where the commands stand in what a demo prints, behind their titles.
const INDENT: usize = 12;

/// Somebody with a kubeconfig, a password for Git, and `forge` on the path. Git does not know who commits here.
struct Newcomer {
    home: TempDir,
}

impl Newcomer {
    fn new(platform: &Platform) -> Self {
        let newcomer = Self { home: tempfile::tempdir().unwrap() };
        let sandbox = &platform.sandbox;
        fs::copy(&sandbox.kubeconfig, newcomer.at("kubeconfig")).unwrap();
        fs::create_dir(newcomer.at("bin")).unwrap();
        symlink(platform.binary.canonicalize().unwrap(), newcomer.at("bin/forge")).unwrap();
        let Git { url, user, password } = &sandbox.git;
        let kept = newcomer.at("git-credentials");
        fs::write(&kept, url.replacen("://", &format!("://{user}:{password}@"), 1) + "\n").unwrap();
        let helper = format!("[credential]\n\thelper = \"store --file={}\"\n", kept.display());
        fs::write(newcomer.at(".gitconfig"), helper).unwrap();
        newcomer
    }

    fn at(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Types a line in a folder of the home.
    fn types(&self, folder: &str, line: &str) -> Ended {
        let path = format!("{}:{}", self.at("bin").display(), std::env::var("PATH").unwrap_or_default());
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(self.at(folder));
        command.env("HOME", self.home.path()).env("PATH", path).env("NO_COLOR", "1");
        for variable in ["KUBECONFIG", "XDG_CONFIG_HOME", "FORGE_ENVIRONMENT", "FORGE_REPO"] {
            command.env_remove(variable);
        }
        run(&mut command, None)
    }

    /// The same, and expects this exit code.
    fn ends(&self, code: i32, folder: &str, line: &str) -> Ended {
        let ended = self.types(folder, line);
        assert_eq!(ended.code, code, "{line}: {}\n{}", ended.stdout, ended.stderr);
        ended
    }
}

/// An empty repository, as a Git host makes one for whoever asks.
fn empty_repository(git: &Git, path: &str) {
    let host = git.url.trim_start_matches("http://");
    let who = format!("Basic {}", STANDARD.encode(format!("{}:{}", git.user, git.password)));
    let headers = [("Authorization", who.as_str())];
    let made = RegistryClient::new(host).ask("PUT", &format!("/_repos/{path}"), &headers, b"");
    assert_eq!(made.unwrap().status, 201, "{path}");
}

/// The commands that a demo has printed under a title.
fn printed(said: &str, title: &str) -> Vec<String> {
    let mut lines = said.lines().skip_while(|line| !line.starts_with(title));
    let first = lines.next().unwrap_or_else(|| panic!("nothing is printed under {title}: {said}"));
    let more = lines.take_while(|line| line.starts_with(&" ".repeat(INDENT)));
    [first].into_iter().chain(more).map(|line| line[INDENT..].trim().to_owned()).collect()
}

/// Applications that the window of the demo holds.
fn held(sandbox: &Sandbox) -> BTreeSet<String> {
    let project = sandbox.kubectl(&["get", "appproject", ENVIRONMENT, "-n", "argocd", "-o", "json"]);
    let project: Value = serde_json::from_str(&project).unwrap();
    let windows = project["spec"]["syncWindows"].as_array().cloned().unwrap_or_default();
    let held = windows.iter().flat_map(|window| window["applications"].as_array().cloned().unwrap_or_default());
    held.map(|name| name.as_str().unwrap().to_owned()).collect()
}

/// What carries the label of the demo, of all that a demo makes for itself.
fn labelled(sandbox: &Sandbox) -> String {
    let label = format!("{ENVIRONMENT_LABEL}={ENVIRONMENT}");
    let kinds = ["applications.argoproj.io,appprojects.argoproj.io", "namespaces"];
    kinds.map(|kinds| sandbox.kubectl(&["get", kinds, "-A", "-l", &label, "-o", "name"])).concat()
}

#[test]
fn a_newcomer_sees_ten_applications_proven_breaks_one_as_printed_and_has_everything_removed() {
    let platform = Platform::shared();
    let sandbox = &platform.sandbox;
    let newcomer = Newcomer::new(platform);
    let path = format!("demo/{}.git", std::process::id());
    empty_repository(&sandbox.git, &path);
    let context = sandbox.kubectl(&["config", "current-context"]);
    // What is named from here is named otherwise in the checkout, where what is printed is typed.
    let flags = format!("--kubeconfig kubeconfig --context {}", context.trim());
    let demo = |folder: &str| {
        let (url, push, image, sample) = (GIT, &sandbox.git.url, platform.image(), &platform.sample);
        let repository = format!("--repository {url}/{path} --push-url {push}/{path}");
        format!("forge demo {folder} {flags} {repository} --image {image} --sample-image {sample}")
    };
    // A sandbox that is kept may hold half of an earlier one.
    newcomer.ends(0, "", &format!("forge demo --remove {flags}"));

    newcomer.ends(0, "", &demo("my.shop"));
    assert_eq!((held(sandbox), labelled(sandbox).lines().count()), (BTreeSet::new(), 21));
    let page = fs::read_to_string(newcomer.at("my.shop.html")).unwrap();
    assert!(page.contains("<svg") && names().iter().all(|name| page.contains(name)), "{page}");

    let again = newcomer.ends(0, "", &demo("my.shop"));
    assert!(again.stderr.contains("nothing to do"), "{}", again.stderr);

    let typed = printed(&again.stderr, "Break it:");
    let [edit, push, deploy, why] = typed.as_slice() else { panic!("{typed:?}") };
    newcomer.ends(0, "my.shop", edit);
    newcomer.ends(0, "my.shop", push);
    newcomer.ends(2, "my.shop", deploy);
    let stopped = ["database", "catalog", "orders", "payments", "storefront"];
    let stopped: BTreeSet<String> = stopped.map(|name| format!("{ENVIRONMENT}-{name}")).into();
    assert_eq!(held(sandbox), stopped);
    let told = newcomer.ends(0, "my.shop", why);
    assert!(told.stdout.contains("spec.replicas: Invalid value: -1"), "{}", told.stdout);

    let typed = printed(&again.stderr, "Remove it:");
    let [remove] = typed.as_slice() else { panic!("{typed:?}") };
    newcomer.ends(0, "my.shop", remove);
    assert_eq!(labelled(sandbox), "");
    let nothing = newcomer.ends(0, "my.shop", remove);
    assert!(nothing.stderr.contains("Nothing to do"), "{}", nothing.stderr);

    // What somebody else has under a name of the demo is neither used nor removed, and nothing else is begun.
    let foreign = format!("{ENVIRONMENT}-queue");
    let _undo = undo(&[&["delete", "namespace", &foreign, "--wait=false"]]);
    sandbox.kubectl(&["create", "namespace", &foreign]);
    let refused = newcomer.ends(3, "", &demo("elsewhere"));
    let words = format!("Namespace `{foreign}` is there already and was not made by a demo");
    assert!(refused.stderr.contains(&words), "{}", refused.stderr);
    assert!(!newcomer.at("elsewhere").exists() && labelled(sandbox).is_empty());
    let kept = newcomer.ends(0, "my.shop", remove);
    assert!(kept.stderr.contains(&format!("Namespace {foreign}: it was not made by a demo")), "{}", kept.stderr);
    sandbox.kubectl(&["get", "namespace", &foreign]);
    // What a demo leaves: records of its runs, its Lease.
    cleanup(sandbox, ENVIRONMENT);
}
