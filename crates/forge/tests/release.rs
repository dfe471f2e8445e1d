//! `forge release` through the real binary: from a source to a registry that keeps everything in memory, and back. Programs that
//! render are scripts here; the real ones are met on the sandbox.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use forge_core::digest::Digest;
use forge_core::release::key::PrivateKey;
use forge_testkit::registry::{Fault, Registry};
use forge_testkit::registry_client::RegistryClient;
use forge_testkit::releases::{layer, stored};
use serde_json::{Value, json};

const COMMIT: &str = "3f2a9c1d5e7b80416a2c9d3e5f70b1a4c6d8e9f0";
const OTHER: &str = "3f2a00b1c6d8e9f03f2a9c1d5e7b80416a2c9d3e";
const IMAGE: &str =
    "registry.example.com/shop/api@sha256:9b74c9897bac770ffc029102a200c5de4a6f0b3d1e8c7a5f2d4b6e8091a3c5d7";

/// A folder of its own, in which commands run with an environment of their own.
struct World {
    folder: tempfile::TempDir,
    variables: Vec<(&'static str, String)>,
}

struct Said {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Said {
    fn ok(self) -> String {
        assert_eq!(self.code, 0, "{}{}", self.stdout, self.stderr);
        self.stdout
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
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), variables: Vec::new() }
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

    /// A script as a program. Not written by this process: what another test starts meanwhile would hold the file open.
    fn program(&self, name: &str, script: &str) -> PathBuf {
        let path = self.path(name);
        let mut shell = Command::new("sh");
        shell.args(["-c", "cat > \"$1\" && chmod 755 \"$1\"", "sh"]).arg(&path).stdin(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        shell.stdin.take().unwrap().write_all(format!("#!/bin/sh\n{script}\n").as_bytes()).unwrap();
        assert!(shell.wait().unwrap().success());
        path
    }

    fn forge(&self, arguments: &[&str]) -> Said {
        let output = Command::new(env!("CARGO_BIN_EXE_forge"))
            .arg("release")
            .args(arguments)
            .current_dir(self.folder.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.folder.path())
            .envs(self.variables.iter().map(|(name, value)| (*name, value.as_str())))
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Said { code: output.status.code().unwrap_or(-1), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Builds `source` at a commit, with more arguments.
    fn build(&self, commit: &str, more: &[&str]) -> Said {
        let mut arguments = vec!["build", "source", "--project", "shop/api", "--commit", commit];
        arguments.extend(more);
        self.forge(&arguments)
    }
}

fn deployment(image: &str, replicas: u32) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: api}}\nspec:\n  replicas: {replicas}\n  \
         selector: {{matchLabels: {{app: api}}}}\n  template:\n    metadata: {{labels: {{app: api}}}}\n    \
         spec:\n      containers:\n        - {{name: api, image: \"{image}\"}}\n"
    )
}

fn settings(value: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: settings}}\ndata: {{key: \"{value}\"}}\n")
}

/// Everything in a folder, by path.
fn tree(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
                found.insert(name, fs::read(path).unwrap());
            }
        }
    }
    found
}

fn digest(text: &str) -> Digest {
    text.trim().rsplit('@').next().unwrap().parse().unwrap()
}

#[test]
fn the_same_source_gives_the_same_bytes_wherever_it_is_and_in_whatever_order_it_was_written() {
    let files = [("base/a.yaml", deployment(IMAGE, 1)), ("base/b.yaml", settings("1")), ("dev/a.yaml", settings("2"))];
    let mut built = Vec::new();
    for (zone, backwards) in [("UTC", false), ("Asia/Tokyo", true)] {
        let mut world = World::new();
        world.variables = vec![("TZ", zone.to_owned()), ("LANG", "de_DE.UTF-8".to_owned())];
        let mut files: Vec<_> = files.iter().collect();
        if backwards {
            files.reverse();
        }
        for (name, text) in files {
            world.write(&format!("source/{name}"), text);
        }
        let said = world.build(COMMIT, &["--output-layout", "layout", "--version", "1.4.0"]).ok();
        built.push((digest(&said), tree(&world.path("layout"))));
    }
    assert_eq!(built[0], built[1]);
}

/// Programs in a folder that everybody may use: forge, and helm and kustomize as the sandbox's build cache has them. Where it has none,
/// scripts that give what lies in the source, in the order of the folder.
struct Programs(tempfile::TempDir);

impl Programs {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let world = World { folder, variables: Vec::new() };
        let print =
            "for f in $(ls -U \"$d\"); do [ \"$f\" = kustomization.yaml ] || { echo ---; cat \"$d/$f\"; }; done";
        for (name, folder) in [("helm", "$3/templates"), ("kustomize", "${2%/overlays/dev}/base")] {
            match forge_testkit::bench::render::built(name, name) {
                Some(real) => copied(&real, &world.path(name)),
                // A base that is built by itself is not looked for beside itself.
                None => drop(world.program(name, &format!("d=\"{folder}\"; [ -d \"$d\" ] || d=\"$2\"\n{print}"))),
            }
        }
        copied(Path::new(env!("CARGO_BIN_EXE_forge")), &world.path("forge"));
        Self(world.folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }
}

/// A copy of a program. Not written by this process: what another test starts meanwhile would hold the file open.
fn copied(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg(from).arg(to).status().unwrap().success());
    assert!(Command::new("chmod").arg("755").arg(to).status().unwrap().success());
}

/// Whether all folders above a path let everybody in: one for temporary files may be its owner's alone.
fn everybody_gets_to(path: &Path) -> bool {
    path.canonicalize().unwrap().ancestors().skip(1).all(|above| fs::metadata(above).unwrap().mode() & 0o001 != 0)
}

/// Where, when and by whom a release is built.
struct Circumstances {
    /// Below a folder whose name differs anyway.
    folder: &'static str,
    zone: &'static str,
    /// Files are written the other way round, which some file systems show in the order of a folder.
    backwards: bool,
    /// When files say that they were written, and what others are told to take for the time.
    time: u64,
    /// What others may do with files of the source, and with what is written.
    mode: u32,
    umask: &'static str,
    /// By somebody else, if that is possible.
    user: Option<u32>,
}

impl Circumstances {
    /// The digest of what is built of these files, and all that was written.
    fn build(&self, files: &[(&str, String)], programs: &Programs) -> (Digest, BTreeMap<String, Vec<u8>>) {
        let world = World::new();
        let root = world.path(self.folder);
        let mut files: Vec<_> = files.iter().collect();
        if self.backwards {
            files.reverse();
        }
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(self.time);
        for (name, text) in files {
            let path = world.write(&format!("{}/source/{name}", self.folder), text);
            fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(self.mode)).unwrap();
        }
        let mut command = Command::new("sh");
        command.args(["-c", "umask \"$1\"; shift; exec \"$@\"", "sh", self.umask, &programs.path("forge")]);
        command.args(["release", "build", "source", "--project", "shop/api", "--commit", COMMIT]);
        command.args(["--version", "1.4.0", "--output-layout", "layout"]);
        command.args(["--helm", &programs.path("helm"), "--kustomize", &programs.path("kustomize")]);
        command.current_dir(&root).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", &root).env("TZ", self.zone).env("LANG", "de_DE.UTF-8");
        command.env("SOURCE_DATE_EPOCH", self.time.to_string());
        // Only root can be somebody else, who must get to where his files and the programs are.
        let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
        let gets_there = || [&world.folder, &programs.0].iter().all(|folder| everybody_gets_to(folder.path()));
        if let Some(user) = self.user.filter(|_| is_root && gets_there()) {
            let owner = format!("{user}:{user}");
            assert!(Command::new("chown").arg("-R").arg(owner).arg(world.folder.path()).status().unwrap().success());
            command.uid(user).gid(user);
        }
        let ended = command.output().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        (digest(&String::from_utf8(ended.stdout).unwrap()), tree(&root.join("layout")))
    }
}

/// Two paths, users, time zones, umasks and modes, ages of files, and orders of writing. Not the clock of the machine, which no test can
/// shift without shifting it for everybody: that nothing of it gets in is what the two renderings of a chart are compared for, and of the
/// rest of a release no byte comes from it.
#[test]
fn every_kind_of_source_gives_the_same_bytes_wherever_and_whenever_and_by_whom_it_is_built() {
    let programs = Programs::new();
    let kustomization = |resources: &str| {
        format!("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [{resources}]\n")
    };
    let (one, two) = (deployment(IMAGE, 1), settings("1"));
    let sources: [(&str, Vec<(&str, String)>); 3] = [
        ("plain YAML", vec![("base/a.yaml", one.clone()), ("base/b.yaml", two.clone()), ("dev/a.yaml", settings("2"))]),
        (
            "Kustomize",
            vec![
                ("base/a.yaml", one.clone()),
                ("base/b.yaml", two.clone()),
                ("base/kustomization.yaml", kustomization("a.yaml, b.yaml")),
                ("overlays/dev/kustomization.yaml", kustomization("../../base")),
            ],
        ),
        (
            "a chart",
            vec![
                ("Chart.yaml", "apiVersion: v2\nname: api\nversion: 1.0.0\n".to_owned()),
                ("templates/a.yaml", one),
                ("templates/b.yaml", two),
                ("values-dev.yaml", "a: 1\n".to_owned()),
            ],
        ),
    ];
    let here = Circumstances {
        folder: "here",
        zone: "UTC",
        backwards: false,
        time: 1_700_000_000,
        mode: 0o644,
        umask: "022",
        user: None,
    };
    let there = Circumstances {
        folder: "some where/else",
        zone: "Asia/Tokyo",
        backwards: true,
        time: 86_400,
        mode: 0o400,
        umask: "077",
        user: Some(65_534),
    };
    for (kind, files) in sources {
        let (one, other) = (here.build(&files, &programs), there.build(&files, &programs));
        assert_eq!(one.0, other.0, "{kind}");
        assert_eq!(one.1, other.1, "{kind}");
        assert!(one.1.len() > 4, "{kind}: {:?}", one.1.keys());
    }
}

#[test]
fn a_release_goes_from_a_source_to_a_registry_and_can_be_looked_at() {
    let (world, registry) = (World::new(), Registry::start().unwrap());
    world.write("source/base/a.yaml", &deployment(IMAGE, 1));
    world.write("source/base/b.yaml", &settings("all"));
    world.write("source/dev/b.yaml", &settings("dev"));
    let place = format!("{}/releases", registry.host());
    let said = world.build(COMMIT, &["--push", &place, "--version", "1.4.0+b"]).ok();
    let built = digest(&said);
    assert_eq!(said, format!("{place}/shop/api@{built}\n"));
    assert_eq!(registry.tag("releases/shop/api", COMMIT), Some(built.clone()));
    assert_eq!(registry.tag("releases/shop/api", "1.4.0_b"), Some(built.clone()));

    // By every name that people have for it.
    for name in [
        format!("{place}/shop/api:{COMMIT}"),
        format!("{place}/shop/api:3f2a"),
        format!("{place}/shop/api@{built}"),
        "shop/api:1.4.0+b".to_owned(),
    ] {
        let said = world.forge(&["inspect", &name, "--registry", &place, "--output", "json"]).ok();
        let found: Value = serde_json::from_str(&said).unwrap();
        assert_eq!(found["digest"], built.as_str(), "{name}");
        assert_eq!(found["metadata"]["source"]["commit"], COMMIT);
        assert_eq!(found["metadata"]["version"], "1.4.0+b");
        assert_eq!(found["metadata"]["resources"]["dev"]["images"][0], IMAGE);
        assert_eq!((&found["signatures"], &found["attestations"]), (&json!(0), &json!([])));
    }
    let shown = |environment: &str| {
        let name = format!("{place}/shop/api:{COMMIT}");
        world.forge(&["inspect", &name, "--show", "resources", "--environment", environment]).ok()
    };
    assert!(shown("dev").contains("key: dev\n"), "{}", shown("dev"));
    assert!(shown("production").contains("key: all\n"), "{}", shown("production"));
    let text = world.forge(&["inspect", "shop/api:3f2a", "--registry", &place]).ok();
    for part in ["shop/api", COMMIT, built.as_str(), "Deployment.apps", IMAGE] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let listed = world.forge(&["list", "shop/api", "--registry", &place]).ok();
    assert_eq!(listed, format!("{COMMIT}  {:<16}  {built}\n", "1.4.0+b"));
    // What is there already is not pushed again.
    registry.forget();
    world.build(COMMIT, &["--push", &place, "--version", "1.4.0+b"]).ok();
    assert!(registry.requests().iter().all(|request| request.method != "PUT" && request.method != "POST"));
}

#[test]
fn a_tag_of_a_release_is_never_moved() {
    let (world, registry) = (World::new(), Registry::start().unwrap());
    let place = format!("{}/releases", registry.host());
    world.write("source/a.yaml", &settings("1"));
    let first = digest(&world.build(COMMIT, &["--push", &place]).ok());
    world.write("source/a.yaml", &settings("2"));
    let why = world.build(COMMIT, &["--push", &place]).failed(3, "N010");
    assert!(why.contains(first.as_str()), "{why}");
    assert_eq!(registry.tag("releases/shop/api", COMMIT), Some(first));
}

#[test]
fn a_folder_holds_one_project_of_a_commit_and_is_written_again_for_the_same() {
    let world = World::new();
    world.write("source/a.yaml", &settings("1"));
    world.build(COMMIT, &["--output-layout", "layout"]).ok();
    let other = ["build", "source", "--project", "shop/web", "--commit", COMMIT, "--output-layout", "layout"];
    let why = world.forge(&other).failed(3, "C007");
    assert!(why.contains("`shop/api`"), "{why}");
    // However it would come there.
    world.forge(&[&other[..other.len() - 1], &["web"]].concat()).ok();
    for come in ["copy", "pull"] {
        let why = world.forge(&[come, "./web", "./layout"]).failed(3, "C007");
        assert!(why.contains("`shop/api`") && why.contains("one for each project"), "{come}: {why}");
    }
    world.write("source/a.yaml", &settings("2"));
    let built = digest(&world.build(COMMIT, &["--output-layout", "layout"]).ok());
    assert_eq!(digest(&world.forge(&["verify", "layout"]).ok()), built);
}

#[test]
fn a_name_that_fits_several_releases_or_none_chooses_nothing() {
    let (world, registry) = (World::new(), Registry::start().unwrap());
    let place = format!("{}/releases", registry.host());
    world.write("source/a.yaml", &settings("1"));
    world.build(COMMIT, &["--push", &place]).ok();
    world.build(OTHER, &["--push", &place]).ok();
    let inspect = |name: &str| world.forge(&["inspect", name, "--registry", &place]);
    let why = inspect("shop/api:3f2a").failed(3, "N016");
    assert!(why.contains(COMMIT) && why.contains(OTHER), "{why}");
    inspect("shop/api:3f2a9").ok();
    inspect("shop/api:0123").failed(3, "N001");
    inspect("shop/api:9.9.9").failed(3, "N001");
    inspect("shop/other:3f2a").failed(3, "N001");
    inspect("shop/api").failed(3, "C007");
    // A tag is only a claim: one that was moved to another release is noticed.
    let name = "releases/shop/api";
    let other = registry.content(name, &registry.tag(name, OTHER).unwrap()).unwrap();
    registry.put_manifest(name, "application/vnd.oci.image.manifest.v1+json", &other, Some(COMMIT));
    inspect(&format!("shop/api:{COMMIT}")).failed(6, "N018");
}

#[test]
fn images_by_tag_are_refused_all_at_once_or_looked_up() {
    let (world, registry) = (World::new(), Registry::start().unwrap());
    let image = format!("{}/shop/api:1.4", registry.host());
    world.write("source/a.yaml", &deployment(&image, 1));
    world.write("source/b.yaml", &deployment("shop/worker", 1).replace("name: api", "name: worker"));
    let why = world.build(COMMIT, &["--output-layout", "layout"]).failed(3, "N008");
    assert!(why.contains(&image) && why.contains("shop/worker"), "{why}");
    assert!(!world.path("layout").exists());

    fs::remove_file(world.path("source/b.yaml")).unwrap();
    let manifest = br#"{"schemaVersion":2,"config":{},"layers":[]}"#;
    let kind = "application/vnd.oci.image.manifest.v1+json";
    let wanted = registry.put_manifest("shop/api", kind, manifest, Some("1.4"));
    world.build(COMMIT, &["--output-layout", "layout", "--resolve"]).ok();
    let shown = world.forge(&["inspect", "layout", "--show", "resources"]).ok();
    assert!(shown.contains(&format!("{}/shop/api@{wanted}", registry.host())), "{shown}");
    // A tag that is not there fixes nothing.
    world.write("source/a.yaml", &deployment(&format!("{}/shop/api:9", registry.host()), 1));
    world.build(COMMIT, &["--output-layout", "other", "--resolve"]).failed(3, "N001");
}

#[test]
fn a_chart_is_rendered_for_every_environment_by_values_in_their_order() {
    let world = World::new();
    world.write("source/Chart.yaml", "apiVersion: v2\nname: api\nversion: 1.0.0\n");
    world.write("source/values-dev.yaml", "a: 1\n");
    // Says as an object what it was given.
    let script =
        "printf 'apiVersion: v1\\nkind: ConfigMap\\nmetadata: {name: given}\\ndata: {arguments: \"%s\"}\\n' \"$*\"";
    let helm = world.program("helm", script);
    let helm = helm.to_str().unwrap();
    let build = ["--output-layout", "layout", "--helm", helm, "--set", "b=2", "--namespace", "apis"];
    world.build(COMMIT, &build).ok();
    let shown = |environment: &str| {
        world.forge(&["inspect", "layout", "--show", "resources", "--environment", environment]).ok()
    };
    let dev = shown("dev");
    assert!(dev.contains("template api ") && dev.contains("--namespace apis"), "{dev}");
    assert!(dev.contains("values-dev.yaml --set b=2"), "{dev}");
    assert!(!shown("production").contains("values-dev"), "{}", shown("production"));
}

#[test]
fn a_chart_that_renders_differently_twice_is_refused_and_one_that_fails_says_why() {
    let world = World::new();
    world.write("source/Chart.yaml", "apiVersion: v2\nname: api\nversion: 1.0.0\n");
    let object = "printf 'apiVersion: v1\\nkind: ConfigMap\\nmetadata: {name: a}\\ndata: {at: \"%s\"}\\n'";
    for odd in ["$(date +%s)", "$$", "$TZ", "$HOME"] {
        let helm = world.program("helm", &format!("{object} \"{odd}\""));
        let arguments = ["--output-layout", "layout", "--helm", helm.to_str().unwrap()];
        let why = world.build(COMMIT, &arguments).failed(3, "N009");
        assert!(why.contains("ConfigMap a"), "{odd}: {why}");
        assert!(!world.path("layout").exists());
    }
    let helm = world.program("helm", "echo 'Error: values.replicas is missing' >&2; exit 1");
    let arguments = ["--output-layout", "layout", "--helm", helm.to_str().unwrap()];
    let why = world.build(COMMIT, &arguments).failed(3, "N013");
    assert!(why.contains("`helm template` failed for `default`: values.replicas is missing"), "{why}");
    let why = world.build(COMMIT, &["--output-layout", "layout", "--helm", "/nowhere/helm"]).failed(3, "N013");
    assert!(why.contains("/nowhere/helm"), "{why}");
}

#[test]
fn a_chart_gives_nothing_away_that_a_link_in_it_leads_to() {
    let world = World::new();
    world.write("source/Chart.yaml", "apiVersion: v2\nname: api\nversion: 1.0.0\n");
    world.write(".docker/config.json", "{}");
    std::os::unix::fs::symlink("../.docker/config.json", world.path("source/config.json")).unwrap();
    // Whoever asks helm has lost already.
    let helm = world.program("helm", "touch \"$(dirname \"$0\")/asked\"");
    let why = world.build(COMMIT, &["--output-layout", "layout", "--helm", helm.to_str().unwrap()]).failed(6, "Y005");
    assert!(why.contains("`config.json` is a link"), "{why}");
    assert!(!world.path("asked").exists() && !world.path("layout").exists());
}

#[test]
fn kustomize_builds_overlays() {
    let world = World::new();
    for folder in ["base", "overlays/dev"] {
        world.write(&format!("source/{folder}/kustomization.yaml"), "resources: []\n");
    }
    let script =
        "printf 'apiVersion: v1\\nkind: ConfigMap\\nmetadata: {name: a}\\ndata: {of: %s}\\n' \"$(basename \"$2\")\"";
    let kustomize = world.program("kustomize", script);
    world.build(COMMIT, &["--output-layout", "layout", "--kustomize", kustomize.to_str().unwrap()]).ok();
    let shown = |environment: &str| {
        world.forge(&["inspect", "layout", "--show", "resources", "--environment", environment]).ok()
    };
    assert!(shown("dev").contains("of: dev\n"), "{}", shown("dev"));
    assert!(shown("production").contains("of: base\n"), "{}", shown("production"));
}

#[test]
fn what_cannot_be_a_release_is_refused_and_nothing_is_written() {
    let world = World::new();
    world.write("source/a.yaml", "# nothing\n");
    world.build(COMMIT, &["--output-layout", "layout"]).failed(3, "N005");
    world.write("source/a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: a-}\n");
    world.build(COMMIT, &["--output-layout", "layout"]).failed(3, "N004");
    world.write("source/a.yaml", &settings("1"));
    world.write("source/b.yaml", &settings("2"));
    world.build(COMMIT, &["--output-layout", "layout"]).failed(3, "N004");
    world.write("source/b.yaml", &settings("2").replace("settings", "forge-receipt"));
    let why = world.build(COMMIT, &["--output-layout", "layout"]).failed(3, "N004");
    assert!(why.contains("ConfigMap `forge-receipt`"), "{why}");
    world.forge(&["build", "nowhere", "--project", "a/b", "--output-layout", "layout"]).failed(3, "Y007");
    world.forge(&["build", "source", "--project", "a/b", "--output-layout", "layout"]).failed(3, "D006");
    world.build(COMMIT, &["--output-layout", "layout", "--set", "a=1"]).failed(3, "C007");
    world.build(COMMIT, &["--push"]).failed(3, "C007");
    world.build(COMMIT, &["--output-layout", "layout", "--version", COMMIT]).failed(3, "C007");
    assert!(!world.path("layout").exists());
}

#[test]
fn a_release_is_pulled_copied_and_pushed_byte_by_byte_with_its_signatures() {
    let (world, one, other) = (World::new(), Registry::start().unwrap(), Registry::start().unwrap());
    let (here, there) = (format!("{}/releases", one.host()), format!("{}/mirror", other.host()));
    world.write("source/a.yaml", &settings("1"));
    let built = digest(&world.build(COMMIT, &["--push", &here]).ok());
    let name = format!("{here}/shop/api:{COMMIT}");
    let (key, public) = keys("ci");
    let verify = |name: &str, key: &str| world.forge(&["verify", name, "--key", key]);
    verify(&name, &public).failed(6, "N006");
    world.forge(&["sign", &name, "--key", &key]).ok();
    assert_eq!(digest(&verify(&name, &public).ok()), built);
    // Signing again changes nothing; another key adds to it.
    let tag = format!("sha256-{}.sig", built.short(64));
    let signed = one.tag("releases/shop/api", &tag).unwrap();
    world.forge(&["sign", &name, "--key", &key]).ok();
    assert_eq!(one.tag("releases/shop/api", &tag), Some(signed));
    let (managers, managers_public) = keys("managers");
    verify(&name, &managers_public).failed(6, "N006");
    world.forge(&["sign", &name, "--key", &managers]).ok();
    verify(&name, &public).ok();
    verify(&name, &managers_public).ok();

    // From one registry to another.
    let copied = world.forge(&["copy", &name, &format!("{there}/shop/api")]).ok();
    assert_eq!(digest(&copied), built);
    let copy = format!("{there}/shop/api:{COMMIT}");
    verify(&copy, &public).ok();
    verify(&copy, &managers_public).ok();
    // Through a folder, as to where no way leads.
    let third = Registry::start().unwrap();
    assert_eq!(digest(&world.forge(&["pull", &name, "layout"]).ok()), built);
    verify("layout", &public).ok();
    let far = format!("{}/far", third.host());
    world.forge(&["push", "layout", "--registry", &far]).ok();
    assert_eq!(third.tag("far/shop/api", COMMIT), Some(built.clone()));
    verify(&format!("{far}/shop/api:{COMMIT}"), &managers_public).ok();
    let again = world.forge(&["push", "layout", "--registry", &far]);
    assert!(again.stderr.starts_with("unchanged "), "{}", again.stderr);
}

#[test]
fn a_folder_can_be_signed_before_it_is_pushed_and_a_registry_need_not_know_referrers() {
    let (world, registry) = (World::new(), Registry::start().unwrap());
    registry.referrers(false);
    world.write("source/a.yaml", &settings("1"));
    world.build(COMMIT, &["--output-layout", "layout"]).ok();
    let (key, public) = keys("ci");
    world.forge(&["sign", "layout", "--key", &key]).ok();
    world.forge(&["verify", "layout", "--key", &public]).ok();
    let place = format!("{}/releases", registry.host());
    world.forge(&["push", "layout", "--registry", &place]).ok();
    world.forge(&["verify", &format!("{place}/shop/api:{COMMIT}"), "--key", &public]).ok();
}

#[test]
fn a_policy_says_who_must_have_signed() {
    let world = World::new();
    world.write("source/a.yaml", &settings("1"));
    world.build(COMMIT, &["--output-layout", "layout"]).ok();
    let (key, _) = keys("ci");
    let (managers, _) = keys("managers");
    let pem = |name: &str| fs::read_to_string(keys(name).1).unwrap().replace('\n', "\n        ");
    let policy = format!(
        "apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: SignaturePolicy\nspec:\n  signatures: required\n  \
         threshold: 2\n  keys:\n    - name: ci\n      pem: |\n        {}\n    - name: managers\n      pem: |\n        {}\n",
        pem("ci").trim_end(),
        pem("managers").trim_end()
    );
    world.write("policy.yaml", &policy);
    let verify = || world.forge(&["verify", "layout", "--policy", "policy.yaml"]);
    world.forge(&["sign", "layout", "--key", &key]).ok();
    let why = verify().failed(6, "N006");
    assert!(why.contains("`ci`"), "{why}");
    world.forge(&["sign", "layout", "--key", &managers]).ok();
    verify().ok();
    world.write("policy.yaml", "kind: SignaturePolicy\n");
    verify().failed(3, "N015");
    world.forge(&["verify", "layout", "--policy", "nowhere.yaml"]).failed(3, "N015");
    world.forge(&["verify", "layout", "--key", &key]).failed(3, "N014");
    world.forge(&["sign", "layout", "--key", "nowhere.pem"]).failed(3, "N014");
}

#[test]
fn a_signature_of_another_release_or_too_many_of_them_stop_it() {
    let (world, registry) = (World::new(), Registry::start().unwrap());
    let place = format!("{}/releases", registry.host());
    world.write("source/a.yaml", &settings("1"));
    let signed = digest(&world.build(COMMIT, &["--push", &place]).ok());
    let other = digest(&world.build(OTHER, &["--push", &place]).ok());
    let (key, public) = keys("ci");
    world.forge(&["sign", &format!("{place}/shop/api:{COMMIT}"), "--key", &key]).ok();
    let (name, kind) = ("releases/shop/api", "application/vnd.oci.image.manifest.v1+json");
    let tag = |digest: &Digest| format!("sha256-{}.sig", digest.short(64));
    let signature = registry.content(name, &registry.tag(name, &tag(&signed)).unwrap()).unwrap();
    registry.put_manifest(name, kind, &signature, Some(&tag(&other)));
    let verify = || world.forge(&["verify", &format!("{place}/shop/api:{OTHER}"), "--key", &public]);
    let why = verify().failed(6, "N007");
    assert!(why.contains(signed.as_str()) && why.contains(other.as_str()), "{why}");

    let mut many: Value = serde_json::from_slice(&signature).unwrap();
    let one = many["layers"][0].clone();
    many["layers"] = vec![one; 10_000].into();
    registry.put_manifest(name, kind, many.to_string().as_bytes(), Some(&tag(&other)));
    let why = verify().failed(6, "N007");
    assert!(why.contains("10000 signatures"), "{why}");
    // A good one beside it is enough.
    let verify = || world.forge(&["verify", &format!("{place}/shop/api:{COMMIT}"), "--key", &public]);
    verify().ok();
    // What others wrote over stays beside it; that may be more than there are signatures, but not without end.
    let stale = |n: u32| {
        let mut one: Value = serde_json::from_slice(&signature).unwrap();
        one["annotations"] = json!({"n": n.to_string()});
        registry.put_manifest(name, kind, one.to_string().as_bytes(), None)
    };
    let mut others: Vec<Digest> = (0..70).map(stale).collect();
    verify().ok();
    others.extend((70..256).map(stale));
    let why = verify().failed(6, "N007");
    assert!(why.contains("257 manifests of signatures, at most 256"), "{why}");
    others.iter().for_each(|digest| registry.lose(name, digest));
    verify().ok();
    // All together they may have the bytes of one manifest: they are in memory at once.
    let mut large: Value = serde_json::from_slice(&signature).unwrap();
    large["pad"] = "x".repeat(3 << 20).into();
    registry.put_manifest(name, kind, large.to_string().as_bytes(), None);
    verify().failed(3, "N003");
}

const SLSA: &str = "https://slsa.dev/provenance/v1";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// The tag under which cosign keeps the attestations of a release.
fn attestations_tag(digest: &Digest) -> String {
    format!("sha256-{}.att", digest.short(64))
}

/// An envelope around a statement of a release, as cosign writes both.
fn envelope_of_cosign(digest: &Digest, sort: &str, key: &str) -> Vec<u8> {
    use base64::Engine as _;
    let encode = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
    let statement = format!(
        r#"{{"_type":"https://in-toto.io/Statement/v0.1","predicateType":"{sort}","subject":[{{"name":"elsewhere.example.com/shop/api","digest":{{"sha256":"{}"}}}}],"predicate":{{"buildDefinition":{{}}}}}}"#,
        digest.short(64)
    );
    let signed = format!("DSSEv1 28 application/vnd.in-toto+json {} {statement}", statement.len());
    let key = PrivateKey::read(&fs::read_to_string(key).unwrap()).unwrap();
    format!(
        r#"{{"payloadType":"application/vnd.in-toto+json","payload":"{}","signatures":[{{"keyid":"","sig":"{}"}}]}}"#,
        encode(statement.as_bytes()),
        encode(&key.sign(signed.as_bytes()))
    )
    .into_bytes()
}

/// Puts envelopes beside a release as `cosign attest` does: an image under its tag, without a subject.
fn attest_as_cosign(registry: &Registry, release: &Digest, envelopes: &[(&[u8], &str)]) {
    let name = "releases/shop/api";
    let config = br#"{"architecture":"","created":"0001-01-01T00:00:00Z","os":"","rootfs":{"type":"layers","diff_ids":[]},"config":{}}"#;
    let layers: Vec<Value> = envelopes
        .iter()
        .map(|(bytes, sort)| {
            json!({
                "mediaType": "application/vnd.dsse.envelope.v1+json", "size": bytes.len(),
                "digest": registry.put_blob(name, bytes),
                "annotations": {"dev.cosignproject.cosign/signature": "", "predicateType": sort},
            })
        })
        .collect();
    let config = json!({
        "mediaType": "application/vnd.oci.image.config.v1+json", "size": config.len(),
        "digest": registry.put_blob(name, config),
    });
    let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers});
    registry.put_manifest(name, MANIFEST, manifest.to_string().as_bytes(), Some(&attestations_tag(release)));
}

#[test]
fn what_is_attested_of_a_release_is_asked_for_by_type_listed_and_taken_along() {
    let (world, one, other) = (World::new(), Registry::start().unwrap(), Registry::start().unwrap());
    let (here, there) = (format!("{}/releases", one.host()), format!("{}/mirror", other.host()));
    world.write("source/a.yaml", &settings("1"));
    world.write("provenance.json", r#"{"buildDefinition": {"buildType": "https://example.com/build/v1"}}"#);
    let built = digest(&world.build(COMMIT, &["--push", &here]).ok());
    let name = format!("{here}/shop/api:{COMMIT}");
    let (key, public) = keys("ci");
    let (_, managers_public) = keys("managers");
    let attest = |name: &str, key: &str| {
        world.forge(&["sign", name, "--key", key, "--predicate", "provenance.json", "--type", SLSA])
    };
    let verify = |name: &str, key: &str| world.forge(&["verify", name, "--key", key, "--attestation", SLSA]);
    // An attestation is no signature, and a signature no attestation.
    attest(&name, &key).ok();
    verify(&name, &public).failed(6, "N006");
    world.forge(&["sign", &name, "--key", &key]).ok();
    assert_eq!(digest(&verify(&name, &public).ok()), built);
    let why = world.forge(&["verify", &name, "--key", &public, "--attestation", "urn:tested"]).failed(6, "N006");
    assert!(why.contains("no attestation of type `urn:tested` by any of `ci`"), "{why}");
    verify(&name, &managers_public).failed(6, "N006");
    // As cosign looks for it.
    let manifest = one.content("releases/shop/api", &one.tag("releases/shop/api", &attestations_tag(&built)).unwrap());
    let manifest: Value = serde_json::from_slice(&manifest.unwrap()).unwrap();
    assert_eq!(manifest["subject"]["digest"], built.as_str());
    assert_eq!(manifest["layers"][0]["mediaType"], "application/vnd.dsse.envelope.v1+json");
    assert_eq!(manifest["layers"][0]["annotations"]["dev.cosignproject.cosign/signature"], "");
    // Once is enough.
    let again = attest(&name, &key);
    assert!(again.stderr.starts_with("attested already: "), "{}", again.stderr);

    let said = world.forge(&["verify", &name, "--key", &public, "--attestation", SLSA, "--output", "json"]).ok();
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["attestations"], json!([{"type": SLSA, "by": ["ci"]}]));
    let shown: Value = serde_json::from_str(&world.forge(&["inspect", &name, "--output", "json"]).ok()).unwrap();
    assert_eq!((&shown["signatures"], &shown["attestations"]), (&json!(1), &json!([SLSA])));
    let shown = world.forge(&["inspect", &name]).ok();
    assert!(shown.contains(&format!("\nattested    {SLSA}, not verified here\n")), "{shown}");

    // From one registry to another, and through a folder to where no way leads.
    let copied = world.forge(&["copy", &name, &format!("{there}/shop/api")]);
    assert!(copied.stderr.contains(", with 1 signature and 1 attestation\n"), "{}", copied.stderr);
    let copy = format!("{there}/shop/api:{COMMIT}");
    verify(&copy, &public).ok();
    // It names no repository, so whoever attests the copy adds nothing.
    assert!(attest(&copy, &key).stderr.starts_with("attested already: "));
    world.forge(&["pull", &name, "layout"]).ok();
    verify("layout", &public).ok();
    let third = Registry::start().unwrap();
    third.referrers(false);
    let far = format!("{}/far", third.host());
    world.forge(&["push", "layout", "--registry", &far]).ok();
    verify(&format!("{far}/shop/api:{COMMIT}"), &public).ok();
    // What lies at the target is kept.
    attest(&copy, &keys("managers").0).ok();
    world.forge(&["copy", &name, &format!("{there}/shop/api")]).ok();
    world.forge(&["sign", &copy, "--key", &keys("managers").0]).ok();
    verify(&copy, &managers_public).ok();
    verify(&copy, &public).ok();

    // What cannot be said, or asked for.
    world.write("provenance.json", "[]");
    attest(&name, &key).failed(3, "C007");
    world.forge(&["verify", &name, "--attestation", SLSA]).failed(3, "C007");
    let alone = world.forge(&["sign", &name, "--key", &key, "--type", SLSA]);
    assert!(alone.code != 0 && alone.stderr.contains("--predicate"), "{}", alone.stderr);
    let alone = world.forge(&["verify", &name, "--key", &public, "--attestation", "provenance"]);
    assert!(alone.code != 0 && alone.stderr.contains("type of a predicate"), "{}", alone.stderr);
}

#[test]
fn attestations_of_cosign_count_and_hostile_ones_do_not() {
    let (world, registry) = (World::new(), Registry::start().unwrap());
    let place = format!("{}/releases", registry.host());
    world.write("source/a.yaml", &settings("1"));
    let built = digest(&world.build(COMMIT, &["--push", &place]).ok());
    let other = digest(&world.build(OTHER, &["--push", &place]).ok());
    let name = format!("{place}/shop/api:{COMMIT}");
    let (key, public) = keys("ci");
    world.forge(&["sign", &name, "--key", &key]).ok();
    let verify = || world.forge(&["verify", &name, "--key", &public, "--attestation", SLSA]);
    let good = envelope_of_cosign(&built, SLSA, &key);
    attest_as_cosign(&registry, &built, &[(&good, SLSA)]);
    verify().ok();
    // Of another release, by a stranger, under a type that was not signed, and nothing at all.
    let replayed = envelope_of_cosign(&other, SLSA, &key);
    let stranger = envelope_of_cosign(&built, SLSA, &keys("managers").0);
    let tested = envelope_of_cosign(&built, "urn:tested", &key);
    let cases: [(&[u8], &str, &str); 4] = [
        (&replayed, "N007", other.as_str()),
        (&stranger, "N006", "no attestation of type"),
        (&tested, "N006", "no attestation of type"),
        (b"{}", "N007", "the envelope cannot be read"),
    ];
    for (bytes, id, words) in cases {
        attest_as_cosign(&registry, &built, &[(bytes, SLSA)]);
        let why = verify().failed(6, id);
        assert!(why.contains(words), "{why}");
        // A good one beside it is enough.
        attest_as_cosign(&registry, &built, &[(bytes, SLSA), (&good, SLSA)]);
        verify().ok();
    }
    // What says that it is something else is not even fetched.
    registry.forget();
    attest_as_cosign(&registry, &built, &[(&good, SLSA), (&tested, "urn:tested")]);
    verify().ok();
    let fetched = Digest::of(&tested);
    assert!(registry.requests().iter().all(|request| !request.target.contains(fetched.as_str())));
    // Nor is one that nobody could read; beside a good one it does not matter either.
    let large = vec![b'a'; (4 << 20) + 1];
    for sort in ["urn:tested", SLSA] {
        attest_as_cosign(&registry, &built, &[(&large, sort), (&good, SLSA)]);
        verify().ok();
    }
    attest_as_cosign(&registry, &built, &[(&large, SLSA)]);
    let why = verify().failed(6, "N007");
    assert!(why.contains("the envelope has 4194305 bytes, at most 4194304"), "{why}");
    // The same bytes under another type hide nothing.
    attest_as_cosign(&registry, &built, &[(&good, "urn:tested"), (&good, SLSA)]);
    verify().ok();
    // Too many, more than there used to be room for, and no manifest of attestations.
    let many: Vec<(&[u8], &str)> = vec![(good.as_slice(), SLSA); 10_000];
    attest_as_cosign(&registry, &built, &many);
    let why = verify().failed(6, "N007");
    assert!(why.contains("10000 attestations, at most 64"), "{why}");
    let large: Vec<Vec<u8>> = (0..3_u8).map(|n| vec![b'a' + n; 2 << 20]).collect();
    let mut large: Vec<(&[u8], &str)> = large.iter().map(|bytes| (bytes.as_slice(), SLSA)).collect();
    attest_as_cosign(&registry, &built, &large);
    let why = verify().failed(6, "N007");
    assert!(why.contains("the envelope cannot be read"), "{why}");
    large.push((&good, SLSA));
    attest_as_cosign(&registry, &built, &large);
    verify().ok();
    registry.put_manifest("releases/shop/api", MANIFEST, b"{}", Some(&attestations_tag(&built)));
    verify().failed(6, "N007");
    // Whoever does not ask for attestations is not stopped by them.
    world.forge(&["verify", &name, "--key", &public]).ok();
    attest_as_cosign(&registry, &built, &[(&good, SLSA)]);
    // One of ours beside it, as cosign would add one.
    world.write("tests.json", r#"{"passed": true}"#);
    world.forge(&["sign", &name, "--key", &key, "--predicate", "tests.json", "--type", "urn:tested"]).ok();
    let both = world.forge(&["verify", &name, "--key", &public, "--attestation", SLSA, "--attestation", "urn:tested"]);
    both.ok();
}

/// How many signatures or attestations a tag of the release names.
fn under_tag(registry: &Registry, tag: &str) -> usize {
    let name = "releases/shop/api";
    let manifest = registry.content(name, &registry.tag(name, tag).unwrap()).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    manifest["layers"].as_array().unwrap().len()
}

#[test]
fn what_cosign_attested_here_and_we_there_is_all_found_after_copying_and_what_nobody_can_read_is_left() {
    let (world, one, other) = (World::new(), Registry::start().unwrap(), Registry::start().unwrap());
    world.write("source/a.yaml", &settings("1"));
    world.write("provenance.json", "{}");
    let (ci, managers) = (keys("ci"), keys("managers"));
    let named = |registry: &Registry| format!("{}/releases/shop/api:{COMMIT}", registry.host());
    let (here, there) = (named(&one), named(&other));
    let built = digest(&world.build(COMMIT, &["--push", &format!("{}/releases", one.host())]).ok());
    world.build(COMMIT, &["--push", &format!("{}/releases", other.host())]).ok();
    world.forge(&["sign", &here, "--key", &ci.0]).ok();
    world.forge(&["sign", &there, "--key", &managers.0]).ok();
    attest_as_cosign(&one, &built, &[(&envelope_of_cosign(&built, SLSA, &ci.0), SLSA)]);
    world.forge(&["sign", &there, "--key", &managers.0, "--predicate", "provenance.json", "--type", SLSA]).ok();
    let unreadable = json!({
        "schemaVersion": 2, "mediaType": MANIFEST, "artifactType": "application/vnd.in-toto+json",
        "config": {"mediaType": "application/vnd.oci.empty.v1+json", "digest": Digest::of(b"{}"), "size": 2},
        "subject": {"mediaType": MANIFEST, "digest": built, "size": 1}, "layers": [1],
    });
    one.put_manifest("releases/shop/api", MANIFEST, unreadable.to_string().as_bytes(), None);
    let copy = || world.forge(&["copy", &here, &format!("{}/releases/shop/api", other.host())]);
    let copied = copy();
    let words = ", with 1 signature and 1 attestation, and without 1 manifest beside it that cannot be read\n";
    assert!(copied.stderr.contains(words), "{}", copied.stderr);
    copied.ok();
    for (_, public) in [&ci, &managers] {
        world.forge(&["verify", &there, "--key", public, "--attestation", SLSA]).ok();
    }
    // Under the tags, where cosign looks, and once.
    let tags = [format!("sha256-{}.sig", built.short(64)), attestations_tag(&built)];
    let now = || tags.each_ref().map(|tag| (under_tag(&other, tag), other.tag("releases/shop/api", tag)));
    let first = now();
    assert_eq!(first.each_ref().map(|(count, _)| *count), [2, 2]);
    copy().ok();
    assert_eq!(now(), first);
}

#[test]
fn what_two_signed_at_the_same_time_is_all_under_the_tag_in_the_end() {
    let (world, one, other) = (World::new(), Registry::start().unwrap(), Registry::start().unwrap());
    world.write("source/a.yaml", &settings("1"));
    let place = |registry: &Registry| format!("{}/releases", registry.host());
    let built = digest(&world.build(COMMIT, &["--push", &place(&one)]).ok());
    world.build(COMMIT, &["--push", &place(&other)]).ok();
    let sign = |registry: &Registry, who: &str| {
        let name = format!("{}/shop/api:{COMMIT}", place(registry));
        world.forge(&["sign", &name, "--key", &keys(who).0]).ok()
    };
    sign(&one, "ci");
    sign(&other, "managers");
    // Somebody who looked before there was a signature writes over the tag; then he looks whether his is there.
    let (name, tag) = ("releases/shop/api", format!("sha256-{}.sig", built.short(64)));
    let theirs = other.content(name, &other.tag(name, &tag).unwrap()).unwrap();
    let manifest: Value = serde_json::from_slice(&theirs).unwrap();
    let payload: Digest = manifest["layers"][0]["digest"].as_str().unwrap().parse().unwrap();
    one.put_blob(name, &other.content(name, &payload).unwrap());
    one.put_manifest(name, MANIFEST, &theirs, Some(&tag));
    assert_eq!(under_tag(&one, &tag), 1);
    sign(&one, "managers");
    assert_eq!(under_tag(&one, &tag), 2);
    let both = one.tag(name, &tag);
    sign(&one, "ci");
    assert_eq!(one.tag(name, &tag), both);
}

#[test]
fn who_signs_while_others_do_waits_a_little_longer_each_time_and_gives_up() {
    let (world, registry) = (World::new(), Registry::start().unwrap());
    let place = format!("{}/releases", registry.host());
    world.write("source/a.yaml", &settings("1"));
    world.build(COMMIT, &["--push", &place]).ok();
    let (name, (key, public)) = (format!("{place}/shop/api:{COMMIT}"), keys("ci"));
    // Says that it was stored, and somebody else's is there: nobody's, here.
    registry.fail("PUT", ".sig", 5, Fault::Status(201));
    let began = Instant::now();
    world.forge(&["sign", &name, "--key", &key]).ok();
    // At least 50, 100, 200, 400 and 400 milliseconds.
    assert!(began.elapsed() >= Duration::from_millis(1150), "{:?}", began.elapsed());
    world.forge(&["verify", &name, "--key", &public]).ok();
    registry.fail("PUT", ".sig", usize::MAX, Fault::Status(201));
    let (managers, _) = keys("managers");
    let why = world.forge(&["sign", &name, "--key", &managers]).failed(1, "N011");
    assert!(why.contains("is written by somebody else all the time"), "{why}");
}

#[test]
fn what_was_damaged_is_noticed_whatever_is_asked_of_it() {
    let world = World::new();
    world.write("source/a.yaml", &settings("1"));
    world.build(COMMIT, &["--output-layout", "layout"]).ok();
    let whole = tree(&world.path("layout"));
    for name in whole.keys().filter(|name| name.starts_with("blobs/")) {
        let mut bytes = whole[name].clone();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(world.path("layout").join(name), &bytes).unwrap();
        world.forge(&["verify", "layout"]).failed(3, "N002");
        fs::remove_file(world.path("layout").join(name)).unwrap();
        world.forge(&["verify", "layout"]).failed(3, "N001");
        fs::write(world.path("layout").join(name), &whole[name]).unwrap();
    }
    let said = world.forge(&["verify", "layout"]);
    assert!(said.stderr.contains("no signature was asked for"), "{}", said.stderr);
    said.ok();
}

#[test]
fn what_the_plugin_would_not_render_and_what_says_something_else_of_itself_is_not_verified() {
    let (world, registry) = (World::new(), Registry::start().unwrap());
    let client = RegistryClient::new(&registry.host());
    let made = |files: &[(&str, &str)]| {
        let files: Vec<(&str, &[u8])> = files.iter().map(|(path, text)| (*path, text.as_bytes())).collect();
        let layer = layer(&files).unwrap();
        let digest = stored(&client, "releases/shop/api", "shop/api", &COMMIT.parse().unwrap(), &layer).unwrap();
        format!("{}/releases/shop/api@{digest}", registry.host())
    };
    let (key, _) = keys("ci");
    let (object, receipt) = (settings("1"), settings("1").replace("settings", "forge-receipt"));
    let loose = deployment("nginx:latest", 1);
    // Each file is within the limits, and all of them together come to more than Argo CD takes.
    let large: Vec<(String, String)> = (0..5)
        .map(|n| {
            let (name, value) = (format!("a{n}"), "x".repeat(13 << 20));
            let object = serde_json::json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": value},
            });
            (format!("{n}.json"), object.to_string())
        })
        .collect();
    let large: Vec<(&str, &str)> = large.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    type Files<'f> = &'f [(&'f str, &'f str)];
    let cases: [(Files<'_>, &str, &str); 4] = [
        (&[("a.yaml", &object), ("b.yaml", &receipt)], "N004", "ConfigMap `forge-receipt`"),
        (&[("a.yaml", &loose)], "N008", "`nginx:latest`"),
        (&[], "N005", "holds no resources"),
        (&large, "N003", "more than 67108864 bytes"),
    ];
    for (files, id, words) in cases {
        let name = made(files);
        for arguments in [&["verify", &name][..], &["inspect", &name, "--show", "resources"][..]] {
            let why = world.forge(arguments).failed(3, id);
            assert!(why.contains(words), "{why}");
        }
    }
    // What people are shown of it is not what it holds.
    let name = made(&[("a.yaml", &object)]);
    world.forge(&["inspect", &name, "--show", "resources"]).ok();
    for arguments in [&["verify", &name][..], &["sign", &name, "--key", &key][..]] {
        let why = world.forge(arguments).failed(3, "N004");
        assert!(why.contains("the layer for `default` has 0 of `ConfigMap`, which has 1"), "{why}");
    }
}

#[test]
fn two_releases_differ_object_by_object_and_by_environment() {
    let world = World::new();
    world.write("source/base/a.yaml", &deployment(IMAGE, 1));
    world.write("source/dev/b.yaml", &settings("1"));
    world.build(COMMIT, &["--output-layout", "before"]).ok();
    world.write("source/base/a.yaml", &deployment(IMAGE, 2));
    fs::remove_file(world.path("source/dev/b.yaml")).unwrap();
    world.write("source/dev/c.yaml", &settings("1").replace("settings", "others"));
    world.build(OTHER, &["--output-layout", "after"]).ok();
    let same = world.forge(&["diff", "before", "before"]);
    assert_eq!((same.code, same.stdout.as_str()), (0, ""));
    let said = world.forge(&["diff", "before", "after", "--environment", "dev", "--output", "json"]);
    assert_eq!(said.code, 1, "{}", said.stderr);
    let found: Value = serde_json::from_str(&said.stdout).unwrap();
    let changes =
        found["changes"].as_array().unwrap().iter().map(|change| {
            (change["document"].as_str().unwrap().to_owned(), change["what"].as_str().unwrap().to_owned())
        });
    let mut changes: Vec<_> = changes.collect();
    changes.sort();
    let pair = |document: &str, what: &str| (document.to_owned(), what.to_owned());
    assert_eq!(
        changes,
        [
            pair("ConfigMap others", "added"),
            pair("ConfigMap settings", "removed"),
            pair("Deployment.apps api", "changed"),
        ]
    );
    let said = world.forge(&["diff", "before", "after"]);
    assert_eq!(said.code, 1);
    assert!(said.stdout.contains("-  replicas: 1\n+  replicas: 2\n"), "{}", said.stdout);
}

/// A private key of the core's tests, and its public half.
fn keys(name: &str) -> (String, String) {
    let folder = forge_testkit::checkout().join("crates/forge-core/tests/keys");
    let path = |ending: &str| folder.join(format!("{name}.{ending}")).to_str().unwrap().to_owned();
    (path("pem"), path("pub"))
}
