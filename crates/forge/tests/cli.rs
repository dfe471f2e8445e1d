//! The command line as users see it: transcripts in `tests/cli/`, each in a folder of its own, commands one after the
//! other. Exit code, stdout and stderr are compared to the letter. `make bless` writes them again.
//!
//! A line that starts with `$ ` runs something: `forge …`, or one of the few words of a shell that [`builtin`] knows.
//! Below it stand `? code` if it is not 0, then stdout with `> ` and stderr with `! ` before each line.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn transcripts() {
    let folder = forge_testkit::checkout().join("crates/forge/tests/cli");
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let mut wrong = Vec::new();
    let mut files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        let expected = fs::read_to_string(&file).unwrap();
        let actual = replay(&expected);
        if update {
            fs::write(&file, actual).unwrap();
        } else if actual != expected {
            let first = actual.lines().zip(expected.lines()).position(|(a, b)| a != b).unwrap_or(0);
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            let around = |text: &str| text.lines().skip(first.saturating_sub(2)).take(6).collect::<Vec<_>>().join("\n");
            wrong.push(format!("{name}:{}\nexpected\n{}\nactual\n{}", first + 1, around(&expected), around(&actual)));
        }
    }
    assert!(wrong.is_empty(), "{}\n\n`make bless` writes them again; read the diff", wrong.join("\n\n"));
}

#[test]
fn the_platform_of_the_demo_has_no_findings_and_one_order() {
    use forge_core::scaffold::demo::{Demo, ENVIRONMENT, SAMPLE_IMAGE};
    let home = tempfile::tempdir().unwrap();
    let demo = Demo { url: "https://git.example.com/demo.git", branch: "main", image: SAMPLE_IMAGE, argocd: "argocd" };
    for file in demo.files() {
        let path = home.path().join(&file.path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, file.text).unwrap();
    }
    let (code, stdout, stderr) = forge(home.path(), &["lint"]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    let (code, stdout, stderr) = forge(home.path(), &["plan", "--simulate", "--instant", "-e", ENVIRONMENT]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    let text = format!("{stdout}{stderr}");
    let proven =
        |name: &str| text.find(&format!("proven   argocd/forge-demo-{name}")).unwrap_or_else(|| panic!("{text}"));
    assert!(proven("network") < proven("storage") && proven("storage") < proven("database"));
    assert!(proven("orders") < proven("storefront"));
    let (code, stdout, stderr) = forge(home.path(), &["graph", "-e", ENVIRONMENT, "--to", "database"]);
    assert_eq!(code, 0, "{stdout}{stderr}");
}

#[test]
fn a_variable_that_is_empty_counts_as_not_set_but_for_those_that_say_what_is_meant() {
    let home = tempfile::tempdir().unwrap();
    let write = |name: &str, rest: &str| {
        let text = format!("apiVersion: forge.projectcatalyst.io/v1alpha1\n{rest}");
        fs::write(home.path().join(name), text).unwrap();
    };
    write(
        "forge.yaml",
        "kind: Forge\nspec:\n  repository: {url: https://git.example.com/p.git}\n  argo: {cd: existing, workflows: existing, events: none}\n  environments: [{name: dev, cluster: dev, sync: auto}]\n",
    );
    write("graph.yaml", "kind: DependencyGraph\nspec:\n  stacks: [{name: a, apps: [{application: argocd/x}]}]\n");
    let with = |arguments: &[&str], variables: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forge"));
        command.args(arguments).current_dir(home.path()).env_clear().env("HOME", home.path());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        let output = command.envs(variables.iter().map(|name| (*name, ""))).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let print = ["bootstrap", "--print", "--image", "example.com/forge"];
    let variables = [
        "FORGE_REPO",
        "FORGE_CHARTS",
        "FORGE_HELM",
        "FORGE_WITH",
        "FORGE_WORKFLOWS_NAMESPACE",
        "FORGE_REGISTRY_CONFIG",
        "FORGE_REGISTRY_CA",
        "FORGE_PLAIN_HTTP_REGISTRIES",
    ];
    let (code, out, err) = with(&print, &variables);
    assert_eq!(code, Some(0), "{err}");
    assert_eq!((code, out, err), with(&print, &[]));
    // Whoever lost what he meant did not ask for everything.
    let (code, _, err) = with(&["platform", "validate", "-e", "dev"], &["FORGE_TARGET_SCOPE"]);
    assert!(code == Some(3) && err.contains("scope"), "{code:?} {err}");
    let (code, _, err) = with(&["platform", "deploy", "-e", "dev"], &["FORGE_DRY_RUN"]);
    assert!(code == Some(3) && err.contains("--dry-run"), "{code:?} {err}");
    let (code, _, err) = with(&["status", "-e", "dev"], &["FORGE_KUBECONFIG_PATH"]);
    assert!(code == Some(3) && err.contains("--kubeconfig"), "{code:?} {err}");
    let (code, _, err) = with(&print, &["FORGE_ENVIRONMENT"]);
    assert!(code == Some(3) && err.contains("no environment `` in forge.yaml"), "{code:?} {err}");
    let kubeconfig = "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: \"http://127.0.0.1:1\"}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {}}]\n";
    fs::write(home.path().join("kubeconfig"), kubeconfig).unwrap();
    let (code, _, err) = with(&["status", "-e", "dev", "--kubeconfig", "kubeconfig"], &["FORGE_CONTEXT"]);
    assert!(code == Some(3) && err.contains("failed to load current context"), "{code:?} {err}");
}

#[test]
fn who_owns_an_argo_cd_is_told_last_what_to_merge_into_it() {
    let home = tempfile::tempdir().unwrap();
    let print = |cd: &str| {
        let installation = format!(
            "apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: Forge\nspec:\n  \
             repository: {{url: https://git.example.com/p.git}}\n  \
             argo: {{cd: {cd}, workflows: existing, namespace: argo-cd}}\n  \
             environments: [{{name: dev, cluster: dev, sync: auto}}]\n"
        );
        let graph = "apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: DependencyGraph\nspec:\n  \
                     stacks: [{name: a, apps: [{application: argo-cd/x}]}]\n";
        fs::write(home.path().join("forge.yaml"), installation).unwrap();
        fs::write(home.path().join("graph.yaml"), graph).unwrap();
        let (code, stdout, stderr) = forge(home.path(), &["bootstrap", "--print", "--image", "example.com/forge"]);
        assert_eq!(code, 0, "{stderr}");
        stdout
    };
    let existing = print("existing");
    let last = existing.rsplit("---\n").next().unwrap();
    assert!(last.starts_with("# Health checks for Argo CD, to be merged into the data of its ConfigMap argocd-cm"));
    assert!(last.contains("\n  name: argocd-cm\n  namespace: argo-cd\ndata:\n"), "{last}");
    assert!(last.contains("\n  resource.customizations.health.apps_StatefulSet: |\n"), "{last}");
    for name in ["argocd-cm", "argocd-rbac-cm", "argocd-cmd-params-cm", "workflow-controller"] {
        assert!(existing.contains(&format!("\n  name: {name}\n")), "{name}");
    }
    // Where Forge installs Argo CD they come with the chart.
    let install = print("install");
    assert!(
        install.contains("\n# Values of chart argo-cd 9.2.0, installed as Helm release argo-cd in namespace argo-cd.")
    );
    assert!(install.contains("\n    resource.customizations.health.apps_StatefulSet: |\n"), "{install}");
    assert!(!install.contains("name: argocd-cm\n"), "{install}");
    fs::create_dir_all(home.path().join("argo/values")).unwrap();
    fs::write(home.path().join("argo/values/argo-cd.yaml"), "dex: {enabled: true}\n").unwrap();
    assert!(print("install").contains("\ndex:\n  enabled: true\n"));
    fs::write(home.path().join("argo/values/argo-cd.yaml"), "[dex]\n").unwrap();
    let (code, _, stderr) = forge(home.path(), &["bootstrap", "--print", "--image", "example.com/forge"]);
    assert_eq!(code, 3, "{stderr}");
    assert!(stderr.contains("FORGE-F003 values of a chart must be a mapping, not a list"), "{stderr}");
}

/// Runs the commands of a transcript and writes down what they do.
fn replay(transcript: &str) -> String {
    let home = tempfile::tempdir().unwrap();
    let work = home.path().join("work");
    fs::create_dir(&work).unwrap();
    let mut out = String::new();
    let mut lines = transcript.lines().peekable();
    while let Some(line) = lines.next() {
        if line.is_empty() || line.starts_with("# ") {
            let _ = writeln!(out, "{line}");
            continue;
        }
        let Some(command) = line.strip_prefix("$ ") else { continue };
        let _ = writeln!(out, "{line}");
        // `$ write PATH` takes the lines below it that start with `| `.
        let mut input = String::new();
        while let Some(text) = lines.next_if(|line| line.starts_with('|')) {
            let _ = writeln!(out, "{text}");
            let _ = writeln!(input, "{}", text.strip_prefix("| ").unwrap_or(""));
        }
        let words: Vec<&str> = command.split_whitespace().collect();
        if words[0] == "forge" {
            let (code, stdout, stderr) = forge(&work, &words[1..]);
            if code != 0 {
                let _ = writeln!(out, "? {code}");
            }
            for text in stdout.lines() {
                let _ = writeln!(out, "> {text}");
            }
            for text in stderr.lines() {
                let _ = writeln!(out, "! {text}");
            }
        } else {
            builtin(&work, &words, &input);
        }
    }
    out
}

fn forge(work: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_forge"))
        .args(arguments)
        .current_dir(work)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", work)
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().replace(work.to_str().unwrap(), "WORK");
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

fn builtin(work: &Path, words: &[&str], input: &str) {
    let path = |n: usize| work.join(words[n]);
    match words {
        ["write", _] => {
            fs::create_dir_all(path(1).parent().unwrap()).unwrap();
            fs::write(path(1), input).unwrap();
        }
        ["append", _] => {
            let before = fs::read_to_string(path(1)).unwrap();
            fs::write(path(1), before + input).unwrap();
        }
        ["replace", _, from, to] => {
            let before = fs::read_to_string(path(1)).unwrap();
            assert!(before.contains(from), "{words:?}");
            fs::write(path(1), before.replace(from, to)).unwrap();
        }
        ["remove", _] => fs::remove_dir_all(path(1)).or_else(|_| fs::remove_file(path(1))).unwrap(),
        ["git", arguments @ ..] => {
            let status =
                Command::new("git").args(arguments).current_dir(work).env("HOME", work).output().unwrap().status;
            assert!(status.success(), "{words:?}");
        }
        _ => panic!("unknown command {words:?}"),
    }
}
