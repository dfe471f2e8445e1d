//! Releases and the tools of others, in the sandbox's registry: `skopeo`, and a client on the Go OCI client library that knows nothing
//! of Forge (`sandbox/oci-client`). What Forge makes they read to the byte, and what they make the plugin renders.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use forge_core::digest::{CommitId, Digest};
use forge_core::oci::media_type as oci;
use forge_core::release::{DEFAULT_LAYER, ENVIRONMENT as FOR, Limits, RECEIPT, documents, media_type};
use forge_testkit::bench::render::built;
use forge_testkit::releases::Releases;
use forge_testkit::sandbox::run;
use forge_testkit::twin::{Pointer, node_id};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{commit, rendered};
use crate::install::Bare;

/// The environment that there is a layer of its own for.
const ENVIRONMENT: &str = "clients";
/// What the releases of these tests are of.
const NODE: &str = "shared";

/// The registry of a sandbox, and who uses it.
struct Clients {
    bare: Bare,
    releases: Releases,
    program: PathBuf,
    folder: TempDir,
}

impl Clients {
    fn up() -> Self {
        let bare = Bare::up();
        let program = built("oci-client", "oci-client");
        let program = program.unwrap_or_else(|| panic!("there is no oci-client: `forge sandbox build` builds it"));
        let releases = Releases::new(bare.environment.platform);
        Self { bare, releases, program, folder: tempfile::tempdir().unwrap() }
    }

    /// The repository that the releases are in.
    fn repository(&self) -> String {
        format!("{}/{}", self.releases.registry(), node_id(NODE))
    }

    /// A source with something of its own for an environment, of which Forge makes a release.
    fn ours(&self, commit: &CommitId) -> Pointer {
        let source = self.folder.path().join("source");
        put(&source.join("base/app.yaml"), &app());
        put(&source.join("base/settings.yaml"), &settings(DEFAULT_LAYER));
        put(&source.join(ENVIRONMENT).join("settings.yaml"), &settings(ENVIRONMENT));
        self.releases.pushed_from(&source, &node_id(NODE), commit, &[], &[])
    }

    /// What a program answers; fails the test if it fails.
    fn answer(&self, command: &mut Command) -> String {
        let ended = run(command.current_dir(self.folder.path()), None);
        assert_eq!(ended.code, 0, "{command:?}: {}", ended.stderr);
        ended.stdout
    }

    /// The client that knows nothing of Forge.
    fn client(&self, arguments: &[&str]) -> String {
        self.answer(Command::new(&self.program).args(arguments)).trim().to_owned()
    }

    fn skopeo(&self, arguments: &[&str]) -> String {
        // A policy of signatures is for images from elsewhere; without its file every copy would fail.
        self.answer(Command::new("skopeo").arg("--insecure-policy").args(arguments))
    }

    /// `forge release`.
    fn forge(&self, arguments: &[&str]) -> String {
        let ended = self.releases.forge(arguments);
        assert_eq!(ended.code, 0, "forge release {}: {}", arguments.join(" "), ended.stderr);
        ended.stdout
    }

    /// The objects that the plugin renders of a release, but for its receipt, which names the release.
    fn rendered(&self, pointer: &Pointer) -> Vec<String> {
        let text = rendered(&self.bare, &self.releases, ENVIRONMENT, NODE, pointer);
        let (receipts, others): (Vec<_>, Vec<_>) =
            objects([text]).into_iter().partition(|object| object.contains(RECEIPT));
        assert!(receipts.len() == 1 && receipts[0].contains(pointer.digest.as_str()), "{receipts:?}");
        others
    }

    /// Makes a release with the tools of others: GNU tar packs what lies in folders of the names of environments, and the client pushes
    /// it with the metadata that are published for it.
    fn theirs(&self, commit: &CommitId, further: &[&str]) -> Pointer {
        let folder = tempfile::tempdir_in(self.folder.path()).unwrap();
        let mut layers = Vec::new();
        let mut resources = BTreeMap::new();
        for environment in [DEFAULT_LAYER, ENVIRONMENT] {
            let (files, archive) =
                (folder.path().join(environment), folder.path().join(format!("{environment}.tar.gz")));
            put(&files.join("app.yaml"), &app());
            put(&files.join("more/settings.yaml"), &settings(environment));
            self.answer(Command::new("tar").arg("-czf").arg(&archive).arg("-C").arg(&files).arg("."));
            let summary = json!({
                "digest": Digest::of(&fs::read(&archive).unwrap()), "documents": 2,
                "kinds": {"ConfigMap": 1, "Deployment.apps": 1}, "images": [image()],
            });
            resources.insert(environment, summary);
            layers.push(format!("{}={},{FOR}={environment}", archive.display(), media_type::RESOURCES));
        }
        let metadata = json!({
            "schemaVersion": 1, "project": node_id(NODE), "source": {"commit": commit},
            "builder": {"name": "somebody", "version": "1"}, "resources": resources,
        });
        let file = folder.path().join("metadata.json");
        fs::write(&file, format!("{metadata:#}\n")).unwrap();
        layers.push(format!("{}={}", file.display(), media_type::METADATA));
        let reference = format!("{}:{commit}", self.repository());
        let push = ["push", "--plain-http", "--artifact-type", media_type::RELEASE];
        let layers: Vec<&str> = layers.iter().map(String::as_str).collect();
        let said = self.client(&[&push, further, &[reference.as_str()], &layers].concat());
        Pointer { commit: commit.clone(), digest: said.parse().unwrap() }
    }
}

fn image() -> String {
    format!("registry.example.com/shop/app@{}", Digest::of(b"image"))
}

fn app() -> String {
    let image = image();
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: app}}\nspec:\n  selector: {{matchLabels: {{app: app}}}}\n  template:\n    metadata: {{labels: {{app: app}}}}\n    spec:\n      containers:\n        - {{name: app, image: \"{image}\"}}\n"
    )
}

/// What differs between environments.
fn settings(word: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: settings}}\ndata: {{word: {word}}}\n")
}

/// Writes a file, and makes the folders that it is in.
fn put(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// The objects of texts, in an order that does not depend on theirs.
fn objects(texts: impl IntoIterator<Item = String>) -> Vec<String> {
    let read = |text: String| documents("clients.yaml", text.as_bytes(), &Limits::default()).unwrap();
    let mut all: Vec<String> = texts.into_iter().flat_map(read).map(|document| document.text()).collect();
    all.sort();
    all
}

/// The texts of all files below a folder.
fn texts(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| if path.is_dir() { texts(&path) } else { vec![fs::read_to_string(path).unwrap()] })
        .collect()
}

#[test]
fn a_release_of_ours_is_read_by_skopeo_and_pulled_by_a_client_that_knows_nothing_of_forge() {
    let clients = Clients::up();
    let commit = commit("read by others");
    let pointer = clients.ours(&commit);
    let [tagged, fixed] =
        [format!(":{commit}"), format!("@{}", pointer.digest)].map(|which| format!("{}{which}", clients.repository()));

    // Byte by byte, by the tag as by the digest, and as it shows an image.
    let shown = clients.forge(&["inspect", &fixed, "--show", "manifest"]);
    for reference in [&tagged, &fixed] {
        let raw = clients.skopeo(&["inspect", "--raw", "--tls-verify=false", &format!("docker://{reference}")]);
        assert_eq!((&raw, Digest::of(raw.as_bytes())), (&shown, pointer.digest.clone()), "{reference}");
        let read = clients.skopeo(&["inspect", "--tls-verify=false", &format!("docker://{reference}")]);
        let read: Value = serde_json::from_str(&read).unwrap();
        assert_eq!(read["Digest"], pointer.digest.as_str(), "{read:#}");
        assert_eq!(read["Labels"]["org.opencontainers.image.revision"], commit.as_str(), "{read:#}");
        assert_eq!(read["Layers"].as_array().map(Vec::len), Some(3), "{read:#}");
    }
    let manifest: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(
        (&manifest["mediaType"], &manifest["artifactType"]),
        (&oci::MANIFEST.into(), &media_type::RELEASE.into())
    );

    // Into a folder, which Forge reads as the same release, whatever skopeo writes beside it.
    let layout = clients.folder.path().join("layout").display().to_string();
    let copy = ["copy", "--quiet", "--preserve-digests", "--src-tls-verify=false", &format!("docker://{tagged}")];
    clients.skopeo(&[&copy[..], &[&format!("oci:{layout}:{commit}")]].concat());
    assert_eq!(clients.forge(&["verify", &layout]).trim(), pointer.digest.as_str());
    assert_eq!(clients.forge(&["inspect", &layout, "--show", "manifest"]), shown);

    // Pulled and unpacked, every layer holds what Forge says that it does.
    for (n, reference) in [&tagged, &fixed].into_iter().enumerate() {
        let folder = clients.folder.path().join(format!("pulled-{n}"));
        let said = clients.client(&["pull", "--plain-http", reference, &folder.to_string_lossy()]);
        assert_eq!(said, pointer.digest.as_str(), "{reference}");
        let layers = manifest["layers"].as_array().unwrap();
        assert_eq!((layers.len(), fs::read_dir(&folder).unwrap().count()), (3, 3), "{manifest:#}");
        for (number, layer) in layers.iter().enumerate() {
            let place = folder.join(number.to_string());
            if layer["mediaType"] == media_type::METADATA {
                let read: Value = serde_json::from_str(&fs::read_to_string(&place).unwrap()).unwrap();
                let shown = clients.forge(&["inspect", reference, "--show", "metadata"]);
                assert_eq!(read, serde_json::from_str::<Value>(&shown).unwrap());
                continue;
            }
            assert_eq!(layer["mediaType"], media_type::RESOURCES);
            let environment = layer["annotations"][FOR].as_str().unwrap();
            let shown = clients.forge(&["inspect", reference, "--show", "resources", "--environment", environment]);
            let found = objects(texts(&place));
            assert_eq!(found, objects([shown]), "{environment}");
            let word = format!("word: {environment}\n");
            assert!(found.len() == 2 && found.iter().any(|object| object.contains(&word)), "{found:?}");
        }
    }
}

#[test]
fn a_release_that_tools_of_others_made_is_verified_and_rendered_as_ours_is() {
    let clients = Clients::up();
    let ours = clients.rendered(&clients.ours(&commit("ours")));
    assert!(ours.iter().any(|object| object.contains(&format!("word: {ENVIRONMENT}\n"))), "{ours:?}");
    // As tools write it now, and as those of the first OCI do.
    for further in [&[][..], &["--oci-1.0"]] {
        let commit = commit(&format!("theirs {further:?}"));
        let pointer = clients.theirs(&commit, further);
        let reference = format!("{}:{commit}", clients.repository());
        assert_eq!(clients.forge(&["verify", &reference]).trim(), pointer.digest.as_str(), "{further:?}");
        let metadata: Value =
            serde_json::from_str(&clients.forge(&["inspect", &reference, "--show", "metadata"])).unwrap();
        assert_eq!(metadata["builder"]["name"], "somebody", "{further:?}");
        assert_eq!(clients.rendered(&pointer), ours, "{further:?}");
    }
}
