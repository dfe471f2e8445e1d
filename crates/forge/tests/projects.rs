//! Projects and their releases through the real binary: what `forge lint --releases` reads out of them, and `forge project import`.
//! Programs that render are scripts here; the real ones are met on the sandbox.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use forge_testkit::registry::Registry;
use serde_json::{Value, json};

const COMMIT: &str = "3f2a9c1d5e7b80416a2c9d3e5f70b1a4c6d8e9f0";

struct World {
    folder: tempfile::TempDir,
}

struct Said {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Said {
    #[track_caller]
    fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{}{}", self.stdout, self.stderr);
        self
    }

    #[track_caller]
    fn failed(self, code: i32, id: &str) -> String {
        assert_eq!(self.code, code, "{}{}", self.stdout, self.stderr);
        assert!(self.stderr.contains(&format!("error[FORGE-{id}]")), "{}", self.stderr);
        assert_eq!(self.stdout, "");
        self.stderr
    }
}

impl World {
    /// A repository whose releases are kept there, with an environment of which the namespaces have this prefix.
    fn new(registry: &str, prefix: &str, stacks: &str) -> Self {
        let world = Self { folder: tempfile::tempdir().unwrap() };
        let prefix = if prefix.is_empty() { String::new() } else { format!(", namespacePrefix: {prefix}") };
        world.write(
            "forge.yaml",
            &format!(
                "apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: Forge\nspec:\n  registry: {registry}/releases\n  \
                 repository: {{url: https://git.example.com/p.git}}\n  environments:\n    \
                 - {{name: dev, cluster: dev, sync: auto{prefix}}}\n"
            ),
        );
        world.write(
            "graph.yaml",
            &format!(
                "apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: DependencyGraph\nspec:\n  stacks:\n{stacks}"
            ),
        );
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// A script as a program. Not written by this process: what another test starts meanwhile would hold the file open.
    fn program(&self, name: &str, script: &str) -> String {
        let path = self.path(name);
        let mut shell = Command::new("sh");
        shell.args(["-c", "cat > \"$1\" && chmod 755 \"$1\"", "sh"]).arg(&path).stdin(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        shell.stdin.take().unwrap().write_all(format!("#!/bin/sh\n{script}\n").as_bytes()).unwrap();
        assert!(shell.wait().unwrap().success());
        path.to_str().unwrap().to_owned()
    }

    fn forge(&self, arguments: &[&str]) -> Said {
        let output = Command::new(env!("CARGO_BIN_EXE_forge"))
            .args(arguments)
            .current_dir(self.folder.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.folder.path())
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Said { code: output.status.code().unwrap_or(-1), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Releases a project with these documents, and points to it.
    fn release(&self, project: &str, text: &str) {
        let source = format!("sources/{project}");
        self.write(&format!("{source}/a.yaml"), text);
        let said = self.forge(&["release", "build", &source, "--project", project, "--commit", COMMIT, "--push"]).ok();
        let digest = said.stdout.trim().rsplit('@').next().unwrap().to_owned();
        self.point(project, COMMIT, &digest);
    }

    fn point(&self, project: &str, commit: &str, digest: &str) {
        let name = project.rsplit('/').next().unwrap();
        self.write(
            &format!("dev/apps/{project}/release.yaml"),
            &format!(
                "apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: ReleasePointer\nmetadata: {{name: {name}}}\n\
                 spec:\n  release: {commit}\n  digest: {digest}\n"
            ),
        );
    }

    fn lint(&self, more: &[&str]) -> (i32, Value) {
        let mut arguments = vec!["lint", "--output", "json"];
        arguments.extend(more);
        let said = self.forge(&arguments);
        let found = serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {}", said.stderr));
        (said.code, found)
    }

    /// Imports `argocd/legacy` of `app.json`, whose repository lies in `checkout`.
    fn import(&self, application: &Value, more: &[&str]) -> Said {
        self.write("app.json", &application.to_string());
        let mut arguments = vec!["project", "import", "argocd/legacy", "--file", "app.json", "--project", "shop/api"];
        arguments.extend(["--environment", "dev", "--source", "checkout", "--into", "source", "--commit", COMMIT]);
        arguments.extend(["--output-layout", "layout"]);
        arguments.extend(more);
        self.forge(&arguments)
    }

    fn resources(&self) -> String {
        self.forge(&["release", "inspect", "layout", "--show", "resources", "--environment", "dev"]).ok().stdout
    }
}

fn of(found: &Value, code: &str) -> Vec<String> {
    let all = found["findings"].as_array().unwrap().iter();
    all.filter(|finding| finding["code"] == code)
        .map(|finding| finding["message"].as_str().unwrap().to_owned())
        .collect()
}

const STACKS: &str = "    - name: all
      apps:
        - {project: a/user}
        - {project: b/provider}
        - {project: c/other, dependsOn: [b/provider]}
";

#[test]
fn lint_reads_releases_and_finds_what_the_graph_forgot() {
    let registry = Registry::start().unwrap();
    let world = World::new(&registry.host(), "", STACKS);
    world.release("a/user", "{apiVersion: example.com/v1, kind: Widget, metadata: {name: w}}");
    world.release(
        "b/provider",
        "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets.example.com}, spec: {group: \
         example.com, scope: Namespaced, names: {kind: Widget, plural: widgets}}}",
    );
    world.release("c/other", "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}");
    registry.forget();
    let (_, without) = world.lint(&[]);
    assert!(of(&without, "FORGE-G011").is_empty());
    assert!(registry.requests().is_empty(), "nothing is asked of a registry unless it is wanted");

    let (code, found) = world.lint(&["--releases"]);
    assert_eq!(code, 1);
    let [forgotten] = of(&found, "FORGE-G011").try_into().unwrap();
    assert_eq!(
        forgotten,
        "`a/user` does not wait for `b/provider`, which brings what it needs (in dev): Widget.example.com w needs the definition \
         of Widget.example.com"
    );
    let notes: Vec<&str> =
        found["notes"].as_array().unwrap().iter().filter_map(|note| note["message"].as_str()).collect();
    assert!(notes.iter().any(|note| note.starts_with("`c/other` waits for `b/provider`, and nothing")), "{notes:?}");
    assert!(registry.requests().iter().all(|request| request.method == "GET" || request.method == "HEAD"));

    // Allowed by a comment; without reading releases the comment is not called idle.
    let allowed = STACKS.replace(
        "        - {project: a/user}",
        "        # forge:allow FORGE-G011 it is made with the cluster\n        - {project: a/user}",
    );
    let text = world.read("graph.yaml").replace(STACKS, &allowed);
    world.write("graph.yaml", &text);
    let (_, found) = world.lint(&["--releases"]);
    assert!(of(&found, "FORGE-G011").is_empty() && of(&found, "FORGE-L002").is_empty());
    assert_eq!(found["suppressed"][0]["code"], "FORGE-G011");
    assert!(of(&world.lint(&[]).1, "FORGE-L002").is_empty());

    // What is wrong with a release is told at its pointer; what is wrong with the registry ends the command.
    let digest = forge_core::digest::Digest::of(b"nothing");
    world.point("c/other", COMMIT, digest.as_str());
    let (_, found) = world.lint(&["--releases"]);
    let missing = found["findings"].as_array().unwrap().iter().find(|finding| finding["code"] == "FORGE-N001").unwrap();
    assert_eq!(missing["path"], "dev/apps/c/other/release.yaml");
    world.forge(&["lint", "--releases", "--registry", "127.0.0.1:1/releases"]).failed(1, "N011");
    world.forge(&["lint", "--releases", "--environment", "nowhere"]).failed(3, "C002");
}

fn application(source: &Value, namespace: &str) -> Value {
    let mut all = json!({"repoURL": "https://git.example.com/shop.git", "path": "deploy", "targetRevision": "main"});
    all.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
    json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": {"name": "legacy", "namespace": "argocd"},
        "spec": {"project": "default", "source": all, "destination": {"name": "in-cluster", "namespace": namespace}},
    })
}

/// A graph in which the project is not.
const OTHERS: &str = "    - name: other
      apps:
        - project: x/y
";

#[test]
fn a_folder_of_manifests_becomes_a_project_with_its_first_release_and_its_pointer() {
    let registry = Registry::start().unwrap();
    let world = World::new(&registry.host(), "", OTHERS);
    world.write("checkout/deploy/a.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n");
    world.write("checkout/deploy/skip.yaml", "# +argocd:skip-file-rendering\nnot: an object\n");
    world.write("checkout/deploy/below/b.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: b}}\n");
    let mut given = application(&json!({}), "shop-api");
    given["status"] = json!({
        "sync": {"status": "Synced", "revision": COMMIT},
        "resources": [{"version": "v1", "kind": "ConfigMap", "namespace": "shop-api", "name": "a"}],
    });
    let said = world.import(&given, &["--push", "--stack", "shop"]).ok();
    assert!(said.stdout.starts_with(&format!("{}/releases/shop/api@sha256:", registry.host())), "{}", said.stdout);
    assert!(said.stderr.contains("argocd app delete legacy --cascade=false"), "{}", said.stderr);
    assert_eq!(world.read("source/base/a.yaml"), world.read("checkout/deploy/a.yaml"));
    assert!(!world.path("source/base/below").exists() && !world.path("source/base/skip.yaml").exists());
    let digest = said.stdout.trim().rsplit('@').next().unwrap();
    assert_eq!(registry.tag("releases/shop/api", COMMIT).unwrap().as_str(), digest);
    let pointer = world.read("dev/apps/shop/api/release.yaml");
    assert!(pointer.contains(COMMIT) && pointer.contains(digest), "{pointer}");
    assert!(world.read("graph.yaml").contains("shop/api"));
    let inspected = world.forge(&["release", "inspect", "layout", "--output", "json"]).ok().stdout;
    let inspected: Value = serde_json::from_str(&inspected).unwrap();
    assert_eq!(inspected["metadata"]["source"]["repository"], "https://git.example.com/shop.git");
    assert_eq!(inspected["metadata"]["source"]["path"], "deploy");
    // Built again from the new source it is the same.
    let build = ["release", "build", "source", "--project", "shop/api", "--environment", "dev", "--commit", COMMIT];
    world.forge(&[&build[..], &["--output-layout", "again"]].concat()).ok();
    let diff = world.forge(&["release", "diff", "layout", "again"]);
    assert_eq!(diff.stdout, "", "{}", diff.stderr);
}

#[test]
fn what_would_move_or_differs_from_what_is_managed_is_refused_and_nothing_is_written() {
    let world = World::new("registry.example.com", "team-", OTHERS);
    world.write("checkout/deploy/a.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n");
    let why = world.import(&application(&json!({}), "legacy"), &[]).failed(3, "N013");
    assert!(why.contains("`ConfigMap a`") && why.contains("`legacy`") && why.contains("`team-shop-api`"), "{why}");
    assert!(why.contains("--flatten"), "{why}");
    let mut given = application(&json!({}), "legacy");
    given["status"] = json!({
        "sync": {"status": "Synced", "revision": COMMIT},
        "resources": [{"kind": "ConfigMap", "namespace": "legacy", "name": "other"}],
    });
    let why = world.import(&given, &["--flatten"]).failed(3, "N013");
    assert!(why.contains("`ConfigMap legacy/other`") && why.contains("`ConfigMap legacy/a`"), "{why}");
    for more in [
        json!({"plugin": {"name": "x"}}),
        json!({"directory": {"jsonnet": {"libs": ["x"]}}}),
        json!({"helm": {"valueFiles": ["$values/a.yaml"]}}),
    ] {
        world.import(&application(&more, "legacy"), &[]).failed(3, "C007");
    }
    let several = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": {"name": "legacy", "namespace": "argocd"},
        "spec": {"sources": [{"repoURL": "a"}, {"repoURL": "b"}]},
    });
    world.import(&several, &[]).failed(3, "C007");
    world.import(&application(&json!({"path": "elsewhere"}), "legacy"), &[]).failed(3, "Y007");
    assert!(!world.path("source").exists() && !world.path("layout").exists());

    let said = world.import(&application(&json!({}), "legacy"), &["--flatten"]).ok();
    assert!(said.stderr.contains("forge project add shop/api --stack STACK"), "{}", said.stderr);
    assert!(world.read("source/base/ConfigMap/legacy/a.yaml").contains("namespace: legacy\n"));
    assert!(world.resources().contains("namespace: legacy\n"));
    // What is there stays.
    world.import(&application(&json!({}), "legacy"), &["--flatten"]).failed(3, "C007");
}

/// Renders one object out of the name, the namespace and `replicas` of all values.
const HELM: &str = r#"[ "$1" = template ] || exit 9
shift
while [ $# -gt 0 ]; do
  case "$1" in
    --name-template) name="$2"; shift;;
    --namespace) namespace="$2"; shift;;
    --values) found=$(sed -n 's/^replicas: //p' "$2"); [ -n "$found" ] && values="$found"; shift;;
    --set) set="${2#replicas=}"; shift;;
    --kube-version|--api-versions) shift;;
    --*) ;;
    /*) ;;
    *) name="$1";;
  esac
  shift
done
printf 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: "%s", namespace: "%s"}\ndata: {replicas: "%s"}\n' "$name" "$namespace" "${set:-$values}""#;

#[test]
fn a_chart_is_taken_with_its_values_in_one_file() {
    let world = World::new("registry.example.com", "", OTHERS);
    let helm = world.program("helm", HELM);
    world.write("checkout/deploy/Chart.yaml", "apiVersion: v2\nname: api\nversion: 1.0.0\n");
    world.write("checkout/deploy/values.yaml", "replicas: 1\n");
    world.write("checkout/deploy/templates/x.yaml", "{{ .Values.x }}\n");
    world.write("checkout/shared.yaml", "replicas: 2\nimage: {tag: a}\n");
    let given = application(
        &json!({"helm": {
            "releaseName": "old", "valueFiles": ["/shared.yaml"], "values": "image:\n  pull: Always\n",
            "parameters": [{"name": "replicas", "value": "3"}],
        }}),
        "legacy",
    );
    let said = world.import(&given, &["--helm", &helm]).ok();
    assert!(said.stderr.contains("--release-name old --namespace legacy"), "{}", said.stderr);
    let values = world.read("source/values-dev.yaml");
    for line in ["replicas: 3\n", "tag: a\n", "pull: Always\n"] {
        assert!(values.contains(line), "{values}");
    }
    assert_eq!(world.read("source/templates/x.yaml"), "{{ .Values.x }}\n");
    let shown = world.resources();
    assert!(shown.contains("name: old\n") && shown.contains("replicas: \"3\"\n"), "{shown}");
    // A parameter that cannot be written as a value is refused.
    let given = application(&json!({"helm": {"parameters": [{"name": "list[0]", "value": "3"}]}}), "legacy");
    fs::remove_dir_all(world.path("source")).unwrap();
    let why = world.import(&given, &["--helm", &helm]).failed(3, "N013");
    assert!(why.contains("`list[0]`"), "{why}");
}

/// Builds what the last folder of a chain holds.
const KUSTOMIZE: &str = r#"[ "$1" = build ] || exit 9
folder="$2"
while true; do
  next=$(sed -n 's/^ *- "\{0,1\}\(\.\.[^"]*\)"\{0,1\}$/\1/p' "$folder/kustomization.yaml")
  [ -n "$next" ] || break
  folder="$folder/$next"
done
cat "$folder/map.yaml""#;

#[test]
fn a_kustomization_is_taken_with_all_folders_that_it_is_built_from() {
    let world = World::new("registry.example.com", "", OTHERS);
    let kustomize = world.program("kustomize", KUSTOMIZE);
    let map = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: legacy}}\n";
    world.write("checkout/deploy/kustomization.yaml", "resources:\n  - ../base\n");
    world.write("checkout/base/kustomization.yaml", "resources:\n  - map.yaml\n");
    world.write("checkout/base/map.yaml", map);
    world.write("checkout/other/unused.yaml", map);
    let given = application(&json!({"kustomize": {"commonAnnotations": {"team": "shop"}}}), "legacy");
    world.import(&given, &["--kustomize", &kustomize]).ok();
    assert!(world.read("source/overlays/dev/kustomization.yaml").contains("../../tree/deploy"));
    assert!(world.read("source/tree/deploy/kustomization.yaml").contains("team: shop"));
    assert_eq!(world.read("source/tree/base/map.yaml"), map);
    assert!(!world.path("source/tree/other").exists());
    assert!(world.resources().contains("name: a\n"));
    // What would be fetched is refused.
    fs::remove_dir_all(world.path("source")).unwrap();
    world.write("checkout/deploy/kustomization.yaml", "resources:\n  - https://example.com/a.yaml\n");
    let why = world.import(&given, &["--kustomize", &kustomize]).failed(3, "N013");
    assert!(why.contains("https://example.com/a.yaml"), "{why}");
}
