//! `catalyst-forge-cmp generate`, the plugin of Argo CD, through the real binary by its name: in folders as Argo CD would hand
//! them over, against a registry that keeps everything in memory and misbehaves on demand. Whatever is wrong: an exit code
//! that says so, a message with file, value and cause, and nothing on stdout. `FORGE_SEED` and `FORGE_RENDERS` replay and lengthen
//! the killing: `make soak` sets them.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use forge_core::digest::Digest;
use forge_core::oci::{Tree, gzip, media_type as oci};
use forge_core::release::{ENVIRONMENT, media_type};
use forge_testkit::campaign::number;
use forge_testkit::generate::Random;
use forge_testkit::registry::{Access, Fault, Registry};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

const COMMIT: &str = "3f2a9c1d5e7b80416a2c9d3e5f70b1a4c6d8e9f0";
const OTHER: &str = "77ab00b1c6d8e9f03f2a9c1d5e7b80416a2c9d3e";
const HEADER: &str = "apiVersion: forge.projectcatalyst.io/v1alpha1\n";
/// Where the registry keeps the releases of the project.
const NAME: &str = "releases/shop/api";
const POINTER: &str = "dev/apps/shop/api/release.yaml";
/// Where the content of an entry of the cache begins.
const START: usize = 512;

/// A repository, a registry, and a cache.
struct World {
    folder: tempfile::TempDir,
    registry: Registry,
    /// Variables of the plugin.
    settings: BTreeMap<&'static str, String>,
}

struct Said {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

impl Said {
    #[track_caller]
    fn ok(self) -> String {
        assert_eq!((self.code, self.stderr.as_str()), (Some(0), ""), "{}", self.stdout);
        self.stdout
    }

    /// Failed as it should: with this code, all of these words, a hint, and without any output.
    #[track_caller]
    fn failed(self, code: i32, id: &str, words: &[&str]) -> String {
        assert_eq!(self.stdout, "", "{}", self.stderr);
        assert_eq!(self.code, Some(code), "{}", self.stderr);
        for word in ["\nhint: ", &format!("error[FORGE-{id}]: ")].into_iter().chain(words.iter().copied()) {
            assert!(self.stderr.contains(word), "no {word:?} in:\n{}", self.stderr);
        }
        self.stderr
    }
}

impl World {
    fn new() -> Self {
        let (folder, registry) = (tempfile::tempdir().unwrap(), Registry::start().unwrap());
        symlink(env!("CARGO_BIN_EXE_forge"), folder.path().join("catalyst-forge-cmp")).unwrap();
        let world = Self { folder, registry, settings: BTreeMap::new() };
        world.install(&world.place());
        world
    }

    /// With a release of one object for all environments, and a pointer to it in `dev`.
    fn flat() -> (Self, Digest) {
        let world = Self::new();
        let digest = world.release(COMMIT, &[("a.yaml", config_map("settings", "all"))]);
        world.point("dev", COMMIT, &digest);
        (world, digest)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Where the registry keeps releases.
    fn place(&self) -> String {
        format!("{}/releases", self.registry.host())
    }

    /// Writes `forge.yaml`.
    fn install(&self, registry: &str) {
        let environments: String = ["dev", "staging", "production"]
            .map(|name| format!("    - {{name: {name}, cluster: {name}, sync: manual}}\n"))
            .concat();
        let registry = if registry.is_empty() { String::new() } else { format!("  registry: \"{registry}\"\n") };
        let text = format!(
            "{HEADER}kind: Forge\nspec:\n{registry}  repository: {{url: https://git.example.com/p.git}}\n  argo: {{cd: \
             existing, workflows: existing, events: none}}\n  environments:\n{environments}"
        );
        self.write("repo/forge.yaml", &text);
    }

    /// Writes the pointer of an environment.
    fn point(&self, environment: &str, commit: &str, digest: &Digest) {
        self.write(&format!("repo/{environment}/apps/shop/api/release.yaml"), &pointer(commit, digest));
    }

    fn forge(&self, arguments: &[&str]) -> Said {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forge"));
        command.arg("release").args(arguments).current_dir(self.folder.path());
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", self.folder.path()).output().unwrap().into()
    }

    /// Builds a release of these files and pushes it.
    fn release(&self, commit: &str, files: &[(&str, String)]) -> Digest {
        let source = self.path("source");
        if source.exists() {
            fs::remove_dir_all(&source).unwrap();
        }
        for (name, text) in files {
            self.write(&format!("source/{name}"), text);
        }
        let said =
            self.forge(&["build", "source", "--project", "shop/api", "--commit", commit, "--push", &self.place()]);
        assert_eq!(said.code, Some(0), "{}", said.stderr);
        said.stdout.trim().rsplit('@').next().unwrap().parse().unwrap()
    }

    fn sign(&self, commit: &str, key: &str) {
        let name = format!("{}/shop/api:{commit}", self.place());
        let said = self.forge(&["sign", &name, "--key", keys().join(format!("{key}.pem")).to_str().unwrap()]);
        assert_eq!(said.code, Some(0), "{}", said.stderr);
    }

    /// The plugin, as Argo CD runs it in a folder of the repository.
    fn command(&self, folder: &str) -> Command {
        let mut command = Command::new(self.path("catalyst-forge-cmp"));
        command.arg("generate").current_dir(self.path("repo").join(folder)).stdin(Stdio::null()).env_clear();
        command.env("TMPDIR", self.folder.path()).env("FORGE_CMP_CACHE", self.path("cache")).envs(&self.settings);
        command
    }

    fn render(&self, environment: &str) -> Said {
        self.command(&format!("{environment}/apps/shop/api")).output().unwrap().into()
    }

    /// Renders, and gives how often the registry was asked for it.
    fn counted(&self, environment: &str) -> (String, usize) {
        self.registry.forget();
        (self.render(environment).ok(), self.registry.requests().len())
    }

    /// What lies in the cache, by name.
    fn cached(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path("cache")) else { return Vec::new() };
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// That everything in the cache is whole, and how many entries there are.
    #[track_caller]
    fn verified_entries(&self) -> usize {
        let names = self.cached();
        for name in &names {
            assert!(name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit()), "{name}");
            let bytes = fs::read(self.path("cache").join(name)).unwrap();
            let header: Value = serde_json::from_slice(&bytes[..START]).unwrap();
            assert_eq!(header["output"], Digest::of(&bytes[START..]).as_str(), "{name}");
            assert_eq!(header["length"], bytes.len() - START, "{name}");
        }
        names.len()
    }
}

fn pointer(commit: &str, digest: &Digest) -> String {
    format!("{HEADER}kind: ReleasePointer\nmetadata: {{name: api}}\nspec:\n  release: {commit}\n  digest: {digest}\n")
}

fn config_map(name: &str, value: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{key: {value}}}\n")
}

fn config(level: &str) -> String {
    format!(
        "apiVersion: apiextensions.crossplane.io/v1beta1\nkind: EnvironmentConfig\nmetadata: {{name: \
         shop-api}}\ndata: {{level: {level}}}\n"
    )
}

/// Keys of the core's tests.
fn keys() -> PathBuf {
    forge_testkit::checkout().join("crates/forge-core/tests/keys")
}

/// A policy that asks for one signature by these keys, each with its end if it has one.
fn policy(signatures: &str, names: &[(&str, Option<Timestamp>)]) -> String {
    let mut text = format!("{HEADER}kind: SignaturePolicy\nspec:\n  signatures: {signatures}\n  keys:\n");
    for (name, until) in names {
        let pem = fs::read_to_string(keys().join(format!("{name}.pub"))).unwrap();
        let until = until.map(|until| format!("      until: \"{until}\"\n")).unwrap_or_default();
        let pem = pem.trim_end().replace('\n', "\n        ");
        text.push_str(&format!("    - name: {name}\n{until}      pem: |\n        {pem}\n"));
    }
    text
}

/// What was rendered before the receipt, and what the receipt says.
fn taken_apart(output: &str) -> (&str, BTreeMap<&str, Digest>) {
    let (before, receipt) = output.rsplit_once("---\n").unwrap();
    assert!(receipt.contains("\nkind: ConfigMap\n") && receipt.ends_with("\n  name: forge-receipt\n"), "{receipt}");
    let said = |name: &'static str| {
        let line = receipt.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(": "));
        (name, line.unwrap().trim_matches('"').parse::<Digest>().unwrap())
    };
    (before, BTreeMap::from(["output", "pointer", "release"].map(said)))
}

/// A layer of resources as somebody else's tool could make it.
fn layer(files: &[(&str, &str)]) -> Vec<u8> {
    let mut tree = Tree::default();
    for (path, text) in files {
        tree.file(path, text.as_bytes(), 0o644);
    }
    packed(&tree)
}

fn packed(tree: &Tree) -> Vec<u8> {
    gzip(&tree.archive(Timestamp::UNIX_EPOCH).unwrap()).unwrap()
}

/// A release of one layer in its parts, to be changed and stored again.
struct Parts {
    manifest: Value,
    metadata: Value,
    layer: Vec<u8>,
    /// For which environment the layer is.
    environment: &'static str,
}

impl Parts {
    fn of(world: &World, digest: &Digest) -> Self {
        let stored = |digest: &Digest| world.registry.content(NAME, digest).unwrap();
        let manifest: Value = serde_json::from_slice(&stored(digest)).unwrap();
        let part = |n: usize| stored(&manifest["layers"][n]["digest"].as_str().unwrap().parse().unwrap());
        let metadata = serde_json::from_slice(&part(0)).unwrap();
        Self { metadata, layer: part(1), manifest, environment: "default" }
    }

    /// Stores it: what points at what is put right.
    fn store(mut self, world: &World) -> Digest {
        let layer = world.registry.put_blob(NAME, &self.layer);
        let mut summary = self.metadata["resources"]["default"].clone();
        summary["digest"] = layer.as_str().into();
        self.metadata["resources"] = json!({self.environment: summary});
        let metadata = self.metadata.to_string();
        let stored = world.registry.put_blob(NAME, metadata.as_bytes());
        for (n, digest, size) in [(0, &stored, metadata.len()), (1, &layer, self.layer.len())] {
            self.manifest["layers"][n]["digest"] = digest.as_str().into();
            self.manifest["layers"][n]["size"] = size.into();
        }
        self.manifest["layers"][1]["annotations"] = json!({ENVIRONMENT: self.environment});
        self.store_manifest(world)
    }

    /// Stores the manifest as it is.
    fn store_manifest(&self, world: &World) -> Digest {
        world.registry.put_manifest(NAME, oci::MANIFEST, self.manifest.to_string().as_bytes(), None)
    }
}

#[test]
fn a_release_is_rendered_sorted_with_its_configuration_and_the_receipt_last() {
    let mut world = World::new();
    let definition =
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: as.b.example}\n";
    let files = [
        (
            "base/a.yaml",
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: api}\nspec: {replicas: 2}\n".to_owned(),
        ),
        ("base/b.yaml", format!("{}---\n{definition}", config_map("settings", "all"))),
        ("base/c.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n".to_owned()),
        ("dev/a.yaml", config_map("settings", "dev")),
    ];
    let digest = world.release(COMMIT, &files);
    world.point("dev", COMMIT, &digest);
    world.write("repo/dev/apps/shop/api/env.yaml", &config("debug"));
    let (cold, asked) = world.counted("dev");
    assert!(asked >= 3, "{asked}");
    let wanted = "\
---
apiVersion: v1
kind: Namespace
metadata:
  name: shop
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: as.b.example
---
apiVersion: v1
data:
  key: dev
kind: ConfigMap
metadata:
  name: settings
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: api
spec:
  replicas: 2
---
apiVersion: apiextensions.crossplane.io/v1beta1
data:
  level: debug
kind: EnvironmentConfig
metadata:
  name: shop-api
";
    let (before, receipt) = taken_apart(&cold);
    assert_eq!(before, wanted);
    let hash = Digest::of(&fs::read(world.path("repo").join(POINTER)).unwrap());
    let wanted = [("output", Digest::of(before.as_bytes())), ("pointer", hash), ("release", digest)];
    assert_eq!(receipt, BTreeMap::from(wanted));

    // Again, and again from another place: the same bytes, and what is known is not asked for.
    assert_eq!(world.counted("dev"), (cold.clone(), 0));
    assert_eq!(world.verified_entries(), 1);
    fs::rename(world.path("repo"), world.path("moved")).unwrap();
    symlink(world.path("moved"), world.path("repo")).unwrap();
    world.settings.insert("FORGE_CMP_CACHE", world.path("other").to_str().unwrap().to_owned());
    let (again, asked) = world.counted("dev");
    assert_eq!(again, cold);
    assert!(asked >= 3, "{asked}");
}

#[test]
fn an_environment_gets_its_own_layer_or_the_one_for_all() {
    let world = World::new();
    let digest =
        world.release(COMMIT, &[("base/a.yaml", config_map("a", "all")), ("dev/a.yaml", config_map("a", "dev"))]);
    for environment in ["dev", "staging", "production"] {
        world.point(environment, COMMIT, &digest);
        let own = if environment == "dev" { "dev" } else { "all" };
        let output = world.render(environment).ok();
        assert!(output.contains(&format!("\n  key: {own}\n")), "{environment}: {output}");
        assert_eq!(output.matches("---\n").count(), 2, "{output}");
    }
    // One for everybody is one for each: what an environment renders is its own.
    assert_eq!(world.verified_entries(), 3);
    assert_eq!(world.counted("production").1, 0);
}

#[test]
fn what_a_rendering_depends_on_is_followed_and_nothing_else_is_asked_for() {
    let (mut world, first) = World::flat();
    let second = world.release(OTHER, &[("a.yaml", config_map("settings", "other"))]);
    let (before, _) = world.counted("dev");
    // Configuration is not part of the release.
    world.write("repo/dev/apps/shop/api/env.yaml", &config("debug"));
    let (configured, asked) = world.counted("dev");
    assert_eq!(asked, 0);
    assert!(configured.contains("\n  level: debug\n"), "{configured}");
    assert_ne!(taken_apart(&before).1["output"], taken_apart(&configured).1["output"]);
    fs::remove_file(world.path("repo/dev/apps/shop/api/env.yaml")).unwrap();
    assert_eq!(world.counted("dev"), (before.clone(), 0));
    // Of a comment in the pointer only the receipt tells.
    world.write(&format!("repo/{POINTER}"), &format!("# why\n{}", pointer(COMMIT, &first)));
    let (commented, asked) = world.counted("dev");
    assert_eq!((asked, taken_apart(&commented).0), (0, taken_apart(&before).0));
    assert_ne!(taken_apart(&commented).1["pointer"], taken_apart(&before).1["pointer"]);
    // Another release, and back.
    world.point("dev", OTHER, &second);
    let (other, asked) = world.counted("dev");
    assert!(asked > 0 && other.contains("\n  key: other\n"), "{other}");
    assert_eq!(taken_apart(&other).1["release"], second);
    world.point("dev", COMMIT, &first);
    assert_eq!(world.counted("dev"), (before.clone(), 0));
    // Another policy is another judgement.
    world.write("policy.yaml", &policy("optional", &[("ci", None)]));
    world.settings.insert("FORGE_CMP_POLICY", world.path("policy.yaml").to_str().unwrap().to_owned());
    let (judged, asked) = world.counted("dev");
    assert_eq!(judged, before);
    assert!(asked > 0);
    assert_eq!(world.counted("dev"), (before, 0));
}

#[test]
fn a_policy_decides_whose_releases_are_rendered() {
    let (mut world, digest) = World::flat();
    let file = world.path("policy.yaml").to_str().unwrap().to_owned();
    world.settings.insert("FORGE_CMP_POLICY", file.clone());
    let set = |text: &str| world.write("policy.yaml", text);
    let said = |code: i32, id: &str, words: &[&str]| {
        let before = world.cached();
        world.render("dev").failed(code, id, words);
        assert_eq!(world.cached(), before);
    };
    // One that is named must be there, and usable.
    said(3, "N015", &[&file, "is missing"]);
    set("kind: SignaturePolicy\n");
    said(3, "N015", &[&file]);
    // Nobody signed it; then somebody whom nobody knows; then whoever must.
    set(&policy("required", &[("ci", None)]));
    said(6, "N006", &[POINTER, digest.as_str(), "not signed", "`ci`"]);
    world.sign(COMMIT, "managers");
    said(6, "N006", &[POINTER, digest.as_str(), "`ci`"]);
    world.sign(COMMIT, "ci");
    let (rendered, asked) = world.counted("dev");
    assert!(asked > 0);
    assert_eq!(world.counted("dev"), (rendered.clone(), 0));
    // A key that ended does not count, whatever is in the cache.
    let past = Timestamp::now() - SignedDuration::from_secs(60);
    set(&policy("required", &[("ci", Some(past))]));
    said(6, "N006", &["is signed by `ci`, which counted until"]);
    // The repository may ask for more, and never for less.
    let own = |text: &str| world.write("repo/signatures.yaml", text);
    set(&policy("optional", &[("ci", None)]));
    own(&policy("required", &[("rfc6979", None)]));
    said(6, "N006", &["`rfc6979`"]);
    set(&policy("required", &[("ci", None), ("managers", None)]));
    said(3, "N015", &["`rfc6979`", "is not in the platform's"]);
    own(&policy("optional", &[]).replace("  keys:\n", ""));
    said(3, "N015", &["`optional`", "`required`"]);
    own(&policy("required", &[("managers", None)]));
    assert_eq!(world.render("dev").ok(), rendered);
    fs::remove_file(world.path("repo/signatures.yaml")).unwrap();
    symlink(world.path("policy.yaml"), world.path("repo/signatures.yaml")).unwrap();
    said(3, "Y007", &["`signatures.yaml`", "symbolic link"]);
    fs::remove_file(world.path("repo/signatures.yaml")).unwrap();
    assert_eq!(world.render("dev").ok(), rendered);

    // A signature of another release is none, and says so; a registry that does not tell of signatures has none.
    let other = world.release(OTHER, &[("a.yaml", config_map("settings", "evil"))]);
    world.point("dev", OTHER, &other);
    let tag = |digest: &Digest| format!("sha256-{}.sig", digest.short(64));
    let signature = world.registry.content(NAME, &world.registry.tag(NAME, &tag(&digest)).unwrap()).unwrap();
    world.registry.put_manifest(NAME, oci::MANIFEST, &signature, Some(&tag(&other)));
    said(6, "N007", &[POINTER, digest.as_str(), other.as_str()]);
    world.registry.fail("GET", ".sig", usize::MAX, Fault::Status(503));
    said(1, "N011", &[POINTER, "503"]);
    world.registry.heal();
    world.point("dev", COMMIT, &digest);
    assert_eq!(world.counted("dev"), (rendered, 0));
}

#[test]
fn a_policy_may_ask_for_attestations_and_so_may_a_repository() {
    let (mut world, digest) = World::flat();
    world.settings.insert("FORGE_CMP_POLICY", world.path("policy.yaml").to_str().unwrap().to_owned());
    let asking = |types: &str| format!("{}  attestations: [{types}]\n", policy("required", &[("ci", None)]));
    let attest = |key: &str, sort: &str| {
        world.write("said.json", "{}");
        let (name, key) = (format!("{}/shop/api:{COMMIT}", world.place()), keys().join(format!("{key}.pem")));
        let key = key.to_str().unwrap();
        let said = world.forge(&["sign", &name, "--key", key, "--predicate", "said.json", "--type", sort]);
        assert_eq!(said.code, Some(0), "{}", said.stderr);
    };
    world.write("policy.yaml", &asking("urn:tested"));
    world.sign(COMMIT, "ci");
    let words = [POINTER, digest.as_str(), "no attestation of type `urn:tested`", "`ci`"];
    world.render("dev").failed(6, "N006", &words);
    attest("managers", "urn:tested");
    world.render("dev").failed(6, "N006", &words);
    attest("ci", "urn:tested");
    let (rendered, asked) = world.counted("dev");
    assert!(asked > 0);
    assert_eq!(world.counted("dev"), (rendered.clone(), 0));
    // The repository adds to what is asked for, and takes nothing away.
    world.write("repo/signatures.yaml", &asking("urn:scanned"));
    world.render("dev").failed(6, "N006", &["`urn:scanned`"]);
    attest("ci", "urn:scanned");
    world.render("dev").ok();
    world.write("policy.yaml", &asking("urn:other"));
    world.render("dev").failed(6, "N006", &["`urn:other`"]);
    // A registry that does not tell of attestations has none.
    world.write("policy.yaml", &asking("urn:tested"));
    fs::remove_dir_all(world.path("cache")).unwrap();
    world.registry.fail("GET", ".att", usize::MAX, Fault::Status(503));
    world.render("dev").failed(1, "N011", &[POINTER, "503"]);
    world.registry.heal();
    assert_eq!(world.render("dev").ok(), rendered);
}

#[test]
fn what_was_rendered_by_a_key_that_ended_since_is_not_rendered_any_more() {
    let (mut world, _) = World::flat();
    world.sign(COMMIT, "ci");
    world.settings.insert("FORGE_CMP_POLICY", world.path("policy.yaml").to_str().unwrap().to_owned());
    // A busy machine may take longer than the key counts.
    for seconds in [4, 16, 64] {
        let until = Timestamp::now() + SignedDuration::from_secs(seconds);
        world.write("policy.yaml", &policy("required", &[("ci", Some(until))]));
        if world.render("dev").code != Some(0) {
            continue;
        }
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            let said = world.render("dev");
            if said.code != Some(0) {
                assert!(Timestamp::now() >= until);
                said.failed(6, "N006", &["which counted until"]);
                return;
            }
            assert!(Instant::now() < deadline, "{}", said.stdout);
        }
    }
    panic!("no render within a minute");
}

#[test]
fn what_is_no_good_release_is_refused_with_its_file_and_nothing_of_it_appears() {
    let (world, good) = World::flat();
    let parts = || Parts::of(&world, &good);
    let of_layer = |bytes: Vec<u8>| Parts { layer: bytes, ..parts() }.store(&world);
    let of_file = |text: &str| of_layer(layer(&[("file.yaml", text)]));
    let of_manifest = |change: &dyn Fn(&mut Value)| {
        let mut parts = parts();
        change(&mut parts.manifest);
        parts.store_manifest(&world)
    };
    let of_metadata = |change: &dyn Fn(&mut Value)| {
        let mut parts = parts();
        change(&mut parts.metadata);
        parts.store(&world)
    };
    let lost = |n: usize, digest: Digest| {
        let stored: Value = serde_json::from_slice(&world.registry.content(NAME, &digest).unwrap()).unwrap();
        let part: Digest = stored["layers"][n]["digest"].as_str().unwrap().parse().unwrap();
        world.registry.lose(NAME, &part);
        digest
    };
    let tampered = |n: usize, digest: Digest| {
        let stored: Value = serde_json::from_slice(&world.registry.content(NAME, &digest).unwrap()).unwrap();
        let part: Digest = stored["layers"][n]["digest"].as_str().unwrap().parse().unwrap();
        let mut bytes = world.registry.content(NAME, &part).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        world.registry.tamper(NAME, &part, &bytes);
        digest
    };
    let mut linked = Tree::default();
    linked.file("a.yaml", config_map("a", "1").as_bytes(), 0o644);
    linked.link("b.yaml", "/etc/passwd");
    let whole = parts().layer;
    let list = |n: usize| {
        let item =
            |i: usize| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("a-{n}-{i}")}});
        json!({"apiVersion": "v1", "kind": "List", "items": (0..1000).map(item).collect::<Vec<_>>()}).to_string()
    };
    let lists: Vec<(String, String)> = (0..21).map(|n| (format!("{n}.json"), list(n))).collect();
    let lists: Vec<(&str, &str)> = lists.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let index = json!({"schemaVersion": 2, "mediaType": oci::INDEX, "manifests": [
        {"mediaType": oci::MANIFEST, "digest": good, "size": parts().manifest.to_string().len()},
    ]});
    let index = world.registry.put_manifest(NAME, oci::INDEX, index.to_string().as_bytes(), None);

    let cases: Vec<(Digest, i32, &str, &[&str])> = vec![
        // Not there.
        (Digest::of(b"nothing"), 3, "N001", &["is not there"]),
        (lost(1, of_file(&config_map("lost", "1"))), 3, "N001", &["is not there"]),
        (lost(0, of_metadata(&|metadata| metadata["version"] = "lost".into())), 3, "N001", &["is not there"]),
        (
            Parts { environment: "production", ..parts() }.store(&world),
            3,
            "N001",
            &["no resources for environment `dev`", "it has them for production"],
        ),
        // Damaged.
        (of_layer(b"this is no archive".to_vec()), 3, "N002", &["cannot be unpacked"]),
        (of_layer(whole[..whole.len() - 9].to_vec()), 3, "N002", &["cannot be unpacked"]),
        (of_layer([whole.as_slice(), b"more"].concat()), 3, "N002", &["bytes follow"]),
        (tampered(1, of_file(&config_map("tampered", "1"))), 1, "N012", &["contradicts itself", "came as"]),
        (
            tampered(0, of_metadata(&|metadata| metadata["version"] = "tampered".into())),
            1,
            "N012",
            &["contradicts itself", "came as"],
        ),
        // Too large, or said to be.
        (of_manifest(&|manifest| manifest["layers"][1]["size"] = (101_u64 << 20).into()), 3, "N003", &["at most"]),
        (of_manifest(&|manifest| manifest["layers"][0]["size"] = (5_u64 << 20).into()), 3, "N003", &["at most"]),
        (
            of_manifest(&|manifest| manifest["annotations"]["a"] = "x".repeat(5 << 20).into()),
            3,
            "N003",
            &["at most 4194304"],
        ),
        (
            of_manifest(&|manifest| {
                let more = json!({"mediaType": "application/x", "digest": Digest::of(b"x"), "size": 1});
                manifest["layers"].as_array_mut().unwrap().extend(vec![more; 9]);
            }),
            3,
            "N003",
            &["has 11 layers, at most 10"],
        ),
        (of_file(&"#".repeat(17 << 20)), 3, "N003", &["file.yaml", "at most 16777216"]),
        (of_layer(layer(&lists)), 3, "N003", &["documents, at most 20000"]),
        // Empty: with prune it would delete everything.
        (
            of_manifest(&|manifest| {
                manifest["layers"].as_array_mut().unwrap().truncate(1);
            }),
            3,
            "N005",
            &["holds no resources"],
        ),
        (of_layer(layer(&[])), 3, "N005", &["nothing for environment `dev`", "expected at least one object"]),
        (of_file("# nothing\n"), 3, "N005", &["nothing for environment `dev`"]),
        // No release.
        (index, 3, "N004", &["an index of several images, expected the manifest of one release"]),
        (
            of_manifest(&|manifest| manifest["artifactType"] = "application/x".into()),
            3,
            "N004",
            &["artifactType is `application/x`", media_type::RELEASE],
        ),
        (of_metadata(&|metadata| metadata["schemaVersion"] = 2.into()), 3, "N004", &["schemaVersion is 2, expected 1"]),
        (
            of_manifest(&|manifest| {
                let other = layer(&[("a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n")]);
                manifest["layers"][1]["digest"] = world.registry.put_blob(NAME, &other).as_str().into();
                manifest["layers"][1]["size"] = other.len().into();
            }),
            3,
            "N004",
            &["resources for `default` are", "the manifest has"],
        ),
        (of_layer(packed(&linked)), 3, "N004", &["`b.yaml` is a symbolic link"]),
        (of_file("a: [\n"), 3, "N004", &["`file.yaml:"]),
        (of_file("a: 1\n"), 3, "N004", &["`file.yaml:", "no kind"]),
        (
            of_file("apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: a-}\n"),
            3,
            "N004",
            &["generateName, expected metadata.name"],
        ),
        (
            of_layer(layer(&[("a.yaml", config_map("a", "1").as_str()), ("b.yaml", config_map("a", "2").as_str())])),
            3,
            "N004",
            &["`ConfigMap a` twice"],
        ),
        // By the receipt the gate knows what was rendered: nobody else may write one.
        (of_file(&config_map("forge-receipt", "1")), 3, "N004", &["`file.yaml`", "ConfigMap `forge-receipt`"]),
        (
            of_file("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: forge-receipt, namespace: shop}\n"),
            3,
            "N004",
            &["ConfigMap `forge-receipt`"],
        ),
        // What runs could not be compared with it.
        (
            of_file(
                "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: 'nginx:latest'}]}\n",
            ),
            3,
            "N008",
            &["1 image is not fixed by digest", "`Pod a`: spec.containers[0].image is `nginx:latest`"],
        ),
        // Another one than was named.
        (
            of_metadata(&|metadata| metadata["project"] = "shop/web".into()),
            6,
            "N018",
            &["a release of `shop/web`", "expected `shop/api`"],
        ),
        (
            of_metadata(&|metadata| metadata["source"]["commit"] = OTHER.into()),
            6,
            "N018",
            &[OTHER, "expected `shop/api` at commit", COMMIT],
        ),
    ];
    for (digest, code, id, words) in cases {
        world.point("dev", COMMIT, &digest);
        let words = [&[POINTER, digest.as_str()][..], words].concat();
        let why = world.render("dev").failed(code, id, &words);
        assert!(why.len() < 2_000 && !why.chars().any(|c| c.is_control() && c != '\n'), "{why}");
        assert_eq!(world.cached(), Vec::<String>::new(), "{why}");
    }
    // The pointer of another commit.
    world.point("dev", OTHER, &good);
    world.render("dev").failed(6, "N018", &[POINTER, COMMIT, OTHER]);
    // Whoever comes after that finds nothing in its way.
    world.point("dev", COMMIT, &good);
    assert!(world.render("dev").ok().contains("\n  key: all\n"));
    assert_eq!(world.verified_entries(), 1);
    // What is called like a receipt, and is none.
    let other = of_file("apiVersion: example.com/v1\nkind: ConfigMap\nmetadata: {name: forge-receipt}\n");
    world.point("dev", COMMIT, &other);
    assert!(world.render("dev").ok().contains("apiVersion: example.com/v1\n"));
}

/// What is done to a repository, and the code and the words that follow.
type Change<'c> = (&'c dyn Fn(), &'c str, &'c [&'c str]);

#[test]
fn what_is_wrong_with_the_repository_is_told_with_its_file() {
    let (world, digest) = World::flat();
    let pointed = format!("repo/{POINTER}");
    let configured = "repo/dev/apps/shop/api/env.yaml";
    let linked = |name: &str| {
        fs::rename(world.path(name), world.path("elsewhere.yaml")).unwrap();
        symlink(world.path("elsewhere.yaml"), world.path(name)).unwrap();
    };
    let wrong = |from: &str, to: &str| world.write(&pointed, &pointer(COMMIT, &digest).replace(from, to));
    let cases: [Change<'_>; 15] = [
        (&|| fs::remove_file(world.path("repo/forge.yaml")).unwrap(), "C001", &["no forge.yaml in"]),
        (&|| linked("repo/forge.yaml"), "Y007", &["`forge.yaml`", "symbolic link"]),
        (&|| world.write("repo/forge.yaml", "kind: Forge\n"), "C006", &["forge.yaml:1"]),
        (&|| world.install(""), "F002", &["forge.yaml names no registry"]),
        (&|| world.install("https://registry.example.com/releases"), "C007", &["https://registry.example.com"]),
        (&|| fs::remove_file(world.path(&pointed)).unwrap(), "Y007", &[POINTER, "is missing"]),
        (&|| linked(&pointed), "Y007", &[POINTER, "symbolic link"]),
        (
            &|| {
                fs::remove_file(world.path(&pointed)).unwrap();
                fs::create_dir(world.path(&pointed)).unwrap();
            },
            "Y007",
            &[POINTER, "not a regular file"],
        ),
        (&|| wrong("sha256:", "sha512:"), "C006", &[POINTER, "sha512:", "is not a digest"]),
        (&|| wrong(COMMIT, "main"), "C006", &[POINTER, "`main`", "is not a commit"]),
        (&|| wrong("name: api", "name: web"), "C006", &[POINTER, "name is `web`, expected `api`"]),
        (&|| wrong("ReleasePointer", "Release"), "C006", &[POINTER]),
        (
            &|| {
                world.write(configured, &config("debug"));
                linked(configured);
            },
            "Y007",
            &["dev/apps/shop/api/env.yaml", "symbolic link"],
        ),
        (
            &|| world.write(configured, &config_map("shop-api", "1")),
            "C006",
            &["dev/apps/shop/api/env.yaml", "`EnvironmentConfig`"],
        ),
        (
            &|| world.write(configured, &config("debug").replace("shop-api", "shop-web")),
            "C006",
            &["dev/apps/shop/api/env.yaml", "`shop-web`"],
        ),
    ];
    world.registry.forget();
    for (change, id, words) in cases {
        change();
        world.render("dev").failed(3, id, words);
        fs::remove_dir_all(world.path("repo")).unwrap();
        world.install(&world.place());
        world.point("dev", COMMIT, &digest);
    }
    assert!(world.registry.requests().is_empty());
    // Where there is no project.
    world.point("qa", COMMIT, &digest);
    for folder in ["dev", "qa/apps/shop/api", "dev/apps/shop"] {
        let said: Said = world.command(folder).output().unwrap().into();
        said.failed(3, "C007", &[&format!("`{folder}` is not the folder of a project")]);
    }
    world.render("dev").ok();
}

#[test]
fn settings_that_cannot_be_used_are_told_and_other_arguments_do_nothing() {
    let (mut world, _) = World::flat();
    world.write("file", "");
    let file = world.path("file").to_str().unwrap().to_owned();
    let cases = [
        ("FORGE_CMP_CACHE", file.clone(), 1, "N017", file.clone()),
        ("FORGE_CMP_CACHE_BYTES", "1GiB".to_owned(), 3, "C007", "expected a number of bytes".to_owned()),
        ("FORGE_CMP_TIMEOUT", "1m".to_owned(), 3, "C007", "expected a number of seconds".to_owned()),
        ("FORGE_REGISTRY_CA", "/nowhere.pem".to_owned(), 3, "C007", "`/nowhere.pem`".to_owned()),
        ("FORGE_CMP_POLICY", file.clone(), 3, "N015", file),
    ];
    for (name, value, code, id, words) in cases {
        world.settings.insert(name, value);
        world.render("dev").failed(code, id, &[&words]);
        world.settings.remove(name);
    }
    for arguments in [&[][..], &["init"][..], &["generate", "more"][..]] {
        let mut command = Command::new(world.path("catalyst-forge-cmp"));
        let said: Said = command.args(arguments).env_clear().output().unwrap().into();
        assert_eq!((said.code, said.stdout.as_str()), (Some(3), ""));
        assert!(said.stderr.starts_with("usage: catalyst-forge-cmp generate\n"), "{}", said.stderr);
    }
    world.render("dev").ok();
}

#[test]
fn a_registry_in_trouble_costs_bounded_time_leaves_nothing_behind_and_is_asked_again() {
    let (manifests, blobs) = ("/manifests/", "/blobs/");
    let nowhere = format!("sha256:{}", "0".repeat(64));
    let troubles: Vec<(&str, &str, Fault, i32, &str, &str)> = vec![
        ("401", manifests, Fault::Status(401), 3, "N010", "401"),
        ("403", blobs, Fault::Status(403), 3, "N010", "403 Forbidden"),
        ("404", manifests, Fault::Status(404), 3, "N001", "is not there"),
        ("404 of a blob", blobs, Fault::Status(404), 3, "N001", "is not there"),
        ("429", manifests, Fault::RetryAfter(429, "3600".to_owned()), 1, "N011", "429 Too Many Requests"),
        ("500", blobs, Fault::Status(500), 1, "N011", "500 Internal Server Error"),
        ("503", manifests, Fault::Status(503), 1, "N011", "503 Service Unavailable"),
        ("hangs up", blobs, Fault::Cut, 1, "N011", "does not answer"),
        ("truncates", blobs, Fault::Truncate(10), 1, "N011", "does not answer"),
        ("truncates a manifest", manifests, Fault::Truncate(10), 1, "N011", "does not answer"),
        ("lies about a length", blobs, Fault::Length(5), 1, "N012", "contradicts itself"),
        ("has no end", blobs, Fault::Flood, 1, "N012", "it sent more than"),
        ("sends something else", manifests, Fault::Bytes(b"{}".to_vec()), 1, "N012", "came as"),
        ("sends another blob", blobs, Fault::Bytes(b"{}".to_vec()), 1, "N012", "contradicts itself"),
        ("names another digest", manifests, Fault::Digest(nowhere), 1, "N012", "is said to be"),
        ("names another kind", manifests, Fault::MediaType("text/html".to_owned()), 1, "N012", "`text/html`"),
        (
            "redirects to a stranger",
            blobs,
            Fault::Redirect("http://registry.example.com/x".to_owned()),
            3,
            "N010",
            "it sends on to `registry.example.com`",
        ),
        (
            "redirects in a circle",
            manifests,
            Fault::Redirect("/v2/releases/shop/api/manifests/again".to_owned()),
            1,
            "N012",
            "sends on, and on",
        ),
        ("stalls", blobs, Fault::Stall(10), 4, "N019", "within 3 s"),
        ("stalls at once", manifests, Fault::Stall(0), 4, "N019", "within 3 s"),
    ];
    // Most of it is waiting, so they wait together.
    std::thread::scope(|scope| {
        for (name, part, fault, code, id, words) in troubles {
            let work = move || {
                let (mut world, digest) = World::flat();
                if matches!(fault, Fault::Stall(_)) {
                    world.settings.insert("FORGE_CMP_TIMEOUT", "3".to_owned());
                }
                world.registry.forget();
                world.registry.fail("GET", part, usize::MAX, fault);
                let began = Instant::now();
                let host = world.registry.host();
                world.render("dev").failed(code, id, &[POINTER, digest.as_str(), &host, words]);
                assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
                let asked = world.registry.requests().len();
                assert!((1..=40).contains(&asked), "{asked} requests");
                assert_eq!(world.cached(), Vec::<String>::new());
                // Nobody restarts anything.
                world.registry.heal();
                world.settings.clear();
                assert!(world.render("dev").ok().contains("\n  key: all\n"));
                assert_eq!(world.verified_entries(), 1);
                // What is known is rendered whatever the registry does.
                world.registry.fail("GET", "/", usize::MAX, Fault::Cut);
                world.render("dev").ok();
            };
            std::thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, work).unwrap();
        }
    });
}

#[test]
fn trouble_that_passes_is_waited_out_and_nobody_at_all_is_told() {
    let (world, _) = World::flat();
    world.registry.fail("GET", "/manifests/", 1, Fault::Cut);
    world.registry.fail("GET", "/manifests/", 1, Fault::RetryAfter(429, "1".to_owned()));
    world.registry.fail("GET", "/blobs/", 1, Fault::Truncate(10));
    world.registry.fail("GET", "/blobs/", 1, Fault::Status(503));
    world.render("dev").ok();
    assert_eq!(world.verified_entries(), 1);

    let (world, digest) = World::flat();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    world.install(&format!("{port}/releases"));
    world.render("dev").failed(1, "N011", &[POINTER, digest.as_str(), &port.to_string(), "does not answer"]);
    world.install(&world.place());
    world.render("dev").ok();
}

#[test]
fn credentials_are_those_of_a_mounted_secret_and_go_to_their_host_only() {
    let (mut world, digest) = World::flat();
    let access = Access::Basic { username: "forge".to_owned(), password: "s3cret-of-the-registry".to_owned() };
    world.registry.require(access);
    world.render("dev").failed(3, "N010", &[POINTER, "there are none for it"]);
    let secret = |password: &str| {
        let entry = json!({"username": "forge", "password": password});
        let auths = json!({"auths": {world.registry.host(): entry}, "credsStore": "evil"});
        world.write("secret/.dockerconfigjson", &auths.to_string());
    };
    secret("wr0ng-one");
    let file = world.path("secret/.dockerconfigjson").to_str().unwrap().to_owned();
    world.settings.insert("FORGE_REGISTRY_CONFIG", file);
    let why = world.render("dev").failed(3, "N010", &[POINTER, "401"]);
    assert!(!why.contains("wr0ng-one"), "{why}");

    // Where the registry keeps its blobs elsewhere, nobody there is told who asks.
    let other = Registry::start().unwrap();
    let layer: Digest = Parts::of(&world, &digest).manifest["layers"][1]["digest"].as_str().unwrap().parse().unwrap();
    other.put_blob(NAME, &world.registry.content(NAME, &layer).unwrap());
    let place = format!("http://{}/v2/{NAME}/blobs/{layer}", other.host());
    world.registry.fail("GET", layer.as_str(), usize::MAX, Fault::Redirect(place));
    let entry = json!({"username": "forge", "password": "s3cret-of-the-registry"});
    let auths = json!({"auths": {world.registry.host(): entry, other.host(): entry}});
    world.write("secret/.dockerconfigjson", &auths.to_string());
    world.render("dev").ok();
    let asked = other.requests();
    assert!(!asked.is_empty() && asked.iter().all(|request| request.authorization.is_none()), "{asked:?}");
    assert!(world.registry.requests().iter().any(|request| request.authorization.is_some()));
}

#[test]
fn the_mounted_secret_also_says_which_authorities_count_and_who_speaks_plain_http() {
    let (mut world, _) = World::flat();
    // The same registry by an address that leads to it too, and that nobody takes for this machine.
    let host = world.registry.host().replace("127.0.0.1", "0.0.0.0");
    world.install(&format!("{host}/releases"));
    let folder = world.path("secret").to_str().unwrap().to_owned();
    world.settings.insert("FORGE_REGISTRY_CONFIG", folder);
    world.write("secret/plain-http", "registry.example.com:5000\n");
    world.settings.insert("FORGE_CMP_TIMEOUT", "3".to_owned());
    world.registry.forget();
    let said = world.render("dev");
    assert!(said.code != Some(0) && said.stdout.is_empty(), "{}", said.stdout);
    assert!(world.registry.requests().is_empty(), "asked in plain text: {:?}", world.registry.requests());
    world.settings.remove("FORGE_CMP_TIMEOUT");
    world.write("secret/plain-http", &format!("registry.example.com:5000\n{host}\n"));
    world.render("dev").ok();
    assert!(!world.registry.requests().is_empty());
    // What cannot be read is not the same as nothing.
    for key in ["ca.crt", "plain-http"] {
        let (mut world, _) = World::flat();
        world.write(&format!("secret/{key}/file"), "");
        world.settings.insert("FORGE_REGISTRY_CONFIG", world.path("secret").to_str().unwrap().to_owned());
        world.render("dev").failed(3, "C007", &[&format!("secret/{key}`: it is not a regular file")]);
    }
}

#[test]
fn renders_side_by_side_that_are_killed_leave_outputs_whole_or_absent_and_a_cache_that_verifies() {
    let (seed, renders) = (number("FORGE_SEED", 5), number("FORGE_RENDERS", 12));
    let mut random = Random::new(seed);
    let mut world = World::new();
    let environments = ["dev", "staging", "production"];
    let large = |of: &str| -> String {
        let text = "x".repeat(1_000);
        (0..200).map(|n| format!("---\n{}", config_map(&format!("{of}-{n}"), &text))).collect()
    };
    // What each must come to, by itself and with a cache of its own.
    world.settings.insert("FORGE_CMP_CACHE", world.path("alone").to_str().unwrap().to_owned());
    let mut wanted = Vec::new();
    for environment in environments {
        let commit = Digest::of(environment.as_bytes());
        let digest = world.release(commit.short(40), &[("a.yaml", large(environment))]);
        world.point(environment, commit.short(40), &digest);
        wanted.push(world.render(environment).ok());
    }
    world.settings.clear();

    std::thread::scope(|scope| {
        for n in 0..usize::try_from(renders).unwrap() {
            let (environment, wanted) = (environments[n % 3], &wanted[n % 3]);
            let mut command = world.command(&format!("{environment}/apps/shop/api"));
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            // Two of three are killed, each at a moment of its own.
            let killed = (random.below(3) > 0).then(|| Duration::from_millis(random.below(400) as u64));
            scope.spawn(move || {
                let mut child = command.spawn().unwrap();
                if let Some(after) = killed {
                    std::thread::sleep(after);
                    child.kill().unwrap();
                }
                let said: Said = child.wait_with_output().unwrap().into();
                match said.code {
                    // Argo CD takes nothing of one that did not end well.
                    None => assert!(killed.is_some(), "seed {seed}"),
                    Some(_) => assert!(said.ok() == *wanted, "seed {seed}: another output for {environment}"),
                }
            });
        }
        // Meanwhile entries vanish, or become something else.
        for _ in 0..renders * 2 {
            std::thread::sleep(Duration::from_millis(random.below(30) as u64));
            let entries = world.cached();
            let Some(name) = entries.get(random.below(entries.len().max(1))).filter(|name| name.len() == 64) else {
                continue;
            };
            let (path, planted) = (world.path("cache").join(name), world.path("planted"));
            let Ok(mut bytes) = fs::read(&path) else { continue };
            if random.below(2) == 0 || bytes.is_empty() {
                let _ = fs::remove_file(&path);
                continue;
            }
            let at = random.below(bytes.len());
            bytes[at] ^= 1;
            fs::write(&planted, &bytes).unwrap();
            fs::rename(&planted, &path).unwrap();
        }
    });
    // Whoever comes now gets what is right, and then from the cache.
    for (environment, wanted) in environments.iter().zip(&wanted) {
        assert!(world.render(environment).ok() == *wanted, "seed {seed}: {environment}");
    }
    for (environment, wanted) in environments.iter().zip(&wanted) {
        let (output, asked) = world.counted(environment);
        assert!(output == *wanted && asked == 0, "seed {seed}: {environment} asked {asked} times");
    }
    // One more, with little room: what was killed is gone, and what is left fits.
    let entry = fs::metadata(world.path("cache").join(&world.cached()[0])).unwrap().len();
    let most = entry * 5 / 2;
    world.settings.insert("FORGE_CMP_CACHE_BYTES", most.to_string());
    let digest = world.release(COMMIT, &[("a.yaml", large("more"))]);
    world.point("dev", COMMIT, &digest);
    world.render("dev").ok();
    assert_eq!(world.verified_entries(), 2, "seed {seed}");
    let sizes =
        world.cached().iter().map(|name| fs::metadata(world.path("cache").join(name)).unwrap().len()).sum::<u64>();
    assert!(sizes <= most, "seed {seed}: {sizes} of {most} bytes");
}
