//! The images of a release (SPEC.md section 5): the executor and the plugin, for amd64 and arm64, on an empty base, with a
//! list of what is in them. `make image` builds the programs and calls this; docs/adr/0017 says why it is so.
//!
//! Equal programs give equal bytes: nothing of the machine, its paths, its clock or its certificates gets in. Only
//! [`write`](fn@write), [`write_built`], [`helm::build`] and [`push::push`] touch anything; [`compose`] is pure.

pub mod helm;
pub mod program;
pub mod push;
pub mod recipe;
pub mod roots;
pub mod sbom;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use forge_core::digest::Digest;
use forge_core::oci::{self, Annotations, Architecture, Artifact, Compression, Config, Entry, Layout, OciError, Tree};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::image::{self, CERTIFICATES, USER};
use program::ProgramError;
use recipe::{Program, Recipe};
use sbom::{Kind, Part, SbomError};

/// The version of all of it.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Names of files in the folder of a processor, as `tools/image` writes them.
const FORGE: &str = "forge";
const FORGE_MESSAGES: &str = "forge.json";
const FORGE_METADATA: &str = "metadata.json";
const HELM: &str = "helm";
const HELM_MODULES: &str = "helm.txt";
/// What the compiler says of itself, beside those folders.
const RUSTC: &str = "rustc.txt";
/// What was made, in the folder of images.
pub const SUMMARY: &str = "images.json";

/// Why there are no images.
#[derive(Debug, thiserror::Error)]
pub enum ImagesError {
    /// A file cannot be read.
    #[error("failed to read `{path}`: {error}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// A file cannot be written.
    #[error("failed to write `{path}`: {error}")]
    Write {
        /// Which.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// A file of ours is not what this code expects.
    #[error("failed to understand a recipe: {0}")]
    Recipe(serde_json::Error),
    /// A program cannot be started.
    #[error("failed to run `{program}`: {error}")]
    Run {
        /// Which.
        program: &'static str,
        /// Why not.
        error: io::Error,
    },
    /// A program failed, and said why.
    #[error("`{program}` failed, see above")]
    Refused {
        /// Which.
        program: &'static str,
    },
    /// A module is not the one that was pinned.
    #[error("the archive of `{module}` has the checksum `{found}`, not `{expected}` as recorded")]
    Checksum {
        /// Which.
        module: String,
        /// What was recorded.
        expected: String,
        /// What came.
        found: String,
    },
    /// A program would not run in an image.
    #[error("`{path}` cannot be in an image: {error}")]
    Program {
        /// Which.
        path: PathBuf,
        /// Why not.
        error: ProgramError,
    },
    /// The parts of a program are not known.
    #[error("failed to list what is in `{path}`: {error}")]
    Sbom {
        /// Which.
        path: PathBuf,
        /// Why not.
        error: SbomError,
    },
    /// An image cannot be put together.
    #[error(transparent)]
    Oci(#[from] OciError),
}

impl ImagesError {
    fn read(path: &Path, error: io::Error) -> Self {
        Self::Read { path: path.to_owned(), error }
    }

    fn write(path: &Path, error: io::Error) -> Self {
        Self::Write { path: path.to_owned(), error }
    }
}

/// What was built for one processor.
#[derive(Debug, Clone)]
pub struct Built {
    /// Which.
    pub architecture: Architecture,
    /// Our own program.
    pub forge: Vec<u8>,
    /// Helm.
    pub helm: Vec<u8>,
    /// What `forge` is linked from.
    pub crates: Vec<Part>,
    /// What `helm` is linked from.
    pub modules: Vec<Part>,
}

/// What is in every image beside programs.
#[derive(Debug, Clone)]
pub struct Shared {
    /// The certificates that are trusted.
    pub roots: String,
    /// What they, and the library of the language, are called.
    pub parts: Vec<Part>,
}

/// The target that Rust has for a processor.
pub fn target(architecture: Architecture) -> String {
    format!("{}-unknown-linux-musl", architecture.machine())
}

impl Built {
    /// Reads what `tools/image` left in the folder of a processor.
    ///
    /// # Errors
    /// When something is missing, or would not run in an image.
    pub fn read(work: &Path, lock: &str, architecture: Architecture) -> Result<Self, ImagesError> {
        let folder = work.join(architecture.as_str());
        let program = |name: &str| {
            let path = folder.join(name);
            let bytes = fs::read(&path).map_err(|error| ImagesError::read(&path, error))?;
            match program::check(&bytes, architecture) {
                Ok(()) => Ok(bytes),
                Err(error) => Err(ImagesError::Program { path, error }),
            }
        };
        let said = |name: &str| text(&folder.join(name));
        let crates = sbom::crates(&said(FORGE_MESSAGES)?, &said(FORGE_METADATA)?, lock, &target(architecture));
        let modules = sbom::modules(&said(HELM_MODULES)?);
        let listed = |name: &str, error| ImagesError::Sbom { path: folder.join(name), error };
        Ok(Self {
            architecture,
            forge: program(FORGE)?,
            helm: program(HELM)?,
            crates: crates.map_err(|error| listed(FORGE, error))?,
            modules: modules.map_err(|error| listed(HELM, error))?,
        })
    }
}

impl Shared {
    /// From what the compiler says of itself, and what is locked.
    pub fn new(rustc: &str, lock: &str) -> Self {
        let release = rustc.lines().find_map(|line| line.strip_prefix("release: ")).unwrap_or("unknown");
        // With the C library that it brings for these targets.
        let library = Part::new(Kind::Library, "generic", "rust-std", release);
        let (version, checksum) = sbom::locked(lock, roots::CRATE).unwrap_or(("unknown", ""));
        let mut certificates = Part::new(Kind::Data, "cargo", roots::CRATE, version);
        certificates.sha256 = (!checksum.is_empty()).then(|| checksum.to_owned());
        Self { roots: roots::pem(), parts: vec![library, certificates] }
    }
}

/// How large an image is for one processor, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Size {
    /// Which image.
    pub image: String,
    /// For which processor.
    pub architecture: Architecture,
    /// Its manifest.
    pub digest: Digest,
    /// The document that speaks of it.
    pub sbom: Digest,
    /// Where it is unpacked.
    pub unpacked: u64,
    /// Where it is stored.
    pub packed: u64,
    /// What it may have where it is unpacked.
    pub limit: u64,
}

impl Size {
    /// Whether it has more than it may.
    pub fn is_over(&self) -> bool {
        self.unpacked > self.limit
    }
}

/// An image that was made: what is to be written, and what is to be said.
#[derive(Debug, Clone)]
pub struct Made {
    /// What it is called.
    pub name: String,
    /// Its index.
    pub digest: Digest,
    /// Its layout.
    pub layout: Tree,
    /// The layout of what speaks of it.
    pub referrers: Tree,
    /// Those documents, by processor.
    pub documents: BTreeMap<Architecture, Vec<u8>>,
    /// How large it is.
    pub sizes: Vec<Size>,
}

/// Puts an image together. Pure.
///
/// # Errors
/// When something does not fit into an archive.
pub fn compose(
    recipe: &Recipe,
    image: &recipe::Image,
    built: &[Built],
    shared: &Shared,
    time: Timestamp,
) -> Result<Made, OciError> {
    let (annotations, config) = description(recipe, image);
    let (mut layout, mut referrers) = (Layout::default(), Layout::default());
    let (mut manifests, mut documents, mut sizes) = (Vec::new(), BTreeMap::new(), Vec::new());
    for built in built {
        let architecture = built.architecture;
        let tree = tree(recipe, image, built, shared);
        let (config, annotations, compression) = (&config, &annotations, Compression::Gzip);
        let manifest =
            layout.image(&oci::Image { architecture, tree: &tree, config, annotations, compression, time })?;
        let parts = parts(image, built, shared);
        let document = sbom::document(&format!("forge/{}", image.name), VERSION, architecture, &parts);
        let content = referrers.blob(sbom::MEDIA_TYPE, document.clone());
        let layers = [content];
        let artifact = Artifact { subject: Some(&manifest), ..Artifact::new(sbom::MEDIA_TYPE, &layers, annotations) };
        let artifact = referrers.artifact(&artifact);
        let found_by = referrers.index(std::slice::from_ref(&artifact), &Annotations::new());
        referrers.offer(found_by, Some(&manifest.referrers_tag()));
        documents.insert(architecture, document);
        sizes.push(Size {
            image: image.name.clone(),
            architecture,
            digest: manifest.digest.clone(),
            sbom: artifact.digest,
            unpacked: tree.size(),
            packed: 0,
            limit: image.megabytes * 1_000_000,
        });
        manifests.push(manifest);
    }
    let index = layout.index(&manifests, &annotations);
    let digest = index.digest.clone();
    layout.offer(index, Some(VERSION));
    let layout = layout.tree();
    for size in &mut sizes {
        size.packed = packed(&layout, &size.digest);
    }
    Ok(Made { name: image.name.clone(), digest, layout, referrers: referrers.tree(), documents, sizes })
}

/// What is said of an image, and how it starts.
pub(crate) fn description(recipe: &Recipe, image: &recipe::Image) -> (Annotations, Config) {
    let annotations: Annotations = [
        ("title", format!("forge/{}", image.name)),
        ("description", image.description.clone()),
        ("version", VERSION.to_owned()),
        ("licenses", env!("CARGO_PKG_LICENSE").to_owned()),
    ]
    .into_iter()
    .map(|(name, value)| (format!("org.opencontainers.image.{name}"), value))
    .collect();
    let config = Config {
        user: format!("{USER}:{USER}"),
        environment: recipe.environment.clone(),
        entrypoint: image.entrypoint.clone(),
        working_folder: recipe.working_folder.clone(),
        labels: annotations.clone(),
    };
    (annotations, config)
}

/// All that an image holds for a processor.
pub(crate) fn tree(recipe: &Recipe, image: &recipe::Image, built: &Built, shared: &Shared) -> Tree {
    let mut tree = image::base();
    tree.file(CERTIFICATES, shared.roots.as_str(), 0o644);
    for program in &image.programs {
        let bytes = match program {
            Program::Forge => &built.forge,
            Program::Helm => &built.helm,
        };
        tree.file(&format!("usr/local/bin/{}", program.as_str()), bytes.as_slice(), 0o755);
    }
    for name in &recipe.names {
        tree.link(&format!("usr/local/bin/{name}"), Program::Forge.as_str());
    }
    tree
}

/// All that an image is made from for a processor. Of two parts with one identity the later one counts.
fn parts(image: &recipe::Image, built: &Built, shared: &Shared) -> Vec<Part> {
    let mut parts = shared.parts.clone();
    let program = |part: Part, bytes: &[u8]| Part {
        kind: Kind::Application,
        sha256: Some(Digest::of(bytes).short(64).to_owned()),
        ..part
    };
    for kind in &image.programs {
        match kind {
            Program::Forge => {
                parts.extend(built.crates.iter().cloned());
                let mut own = Part::new(Kind::Application, "cargo", FORGE, VERSION);
                own.license = Some(env!("CARGO_PKG_LICENSE").to_owned());
                parts.push(program(own, &built.forge));
            }
            Program::Helm => {
                parts.extend(built.modules.iter().cloned());
                let helm = recipe::Helm::of_checkout().ok();
                let own = helm.map(|helm| Part {
                    go_sum: Some(helm.sum),
                    ..Part::new(Kind::Application, "golang", &helm.module, &helm.version)
                });
                parts.extend(own.map(|own| program(own, &built.helm)));
            }
        }
    }
    parts
}

/// The bytes that a registry keeps of an image for one processor.
fn packed(layout: &Tree, manifest: &Digest) -> u64 {
    let bytes = match layout.get(&format!("blobs/sha256/{}", manifest.short(64))) {
        Some(Entry::File { content, .. }) => content.as_slice(),
        _ => return 0,
    };
    let read: Value = serde_json::from_slice(bytes).unwrap_or_default();
    let layers = read.get("layers").and_then(Value::as_array).into_iter().flatten();
    let sizes = layers.chain(read.get("config")).filter_map(|blob| blob.get("size")).filter_map(Value::as_u64);
    sizes.sum::<u64>() + bytes.len() as u64
}

/// What is said of all images: for scripts, and for whoever pushes them.
pub fn summary(made: &[Made]) -> Value {
    let platform = |size: &Size| {
        let Size { digest, sbom, unpacked, packed, .. } = size;
        (size.architecture.to_string(), json!({"digest": digest, "sbom": sbom, "unpacked": unpacked, "packed": packed}))
    };
    let image = |made: &Made| {
        let platforms: BTreeMap<String, Value> = made.sizes.iter().map(platform).collect();
        (made.name.clone(), json!({"digest": made.digest, "platforms": platforms}))
    };
    let images: BTreeMap<String, Value> = made.iter().map(image).collect();
    json!({"version": VERSION, "images": images})
}

/// The folder with what speaks of an image.
fn referrers_folder(image: &str) -> String {
    format!("{image}-sbom")
}

/// Makes the images of what `tools/image` built and writes them to a folder, over what was made before: for each a
/// layout, an archive of it, a layout of what speaks of it, and the documents themselves.
///
/// # Errors
/// When something was not built, or cannot be written.
pub fn write(work: &Path, lock: &Path, out: &Path, time: Timestamp) -> Result<Vec<Made>, ImagesError> {
    let lock = text(lock)?;
    let shared = Shared::new(&text(&work.join(RUSTC))?, &lock);
    let built = Architecture::ALL.map(|architecture| Built::read(work, &lock, architecture));
    let built = built.into_iter().collect::<Result<Vec<_>, _>>()?;
    write_built(&built, &shared, out, time)
}

/// The same of programs that are known.
///
/// # Errors
/// When something cannot be written.
pub fn write_built(built: &[Built], shared: &Shared, out: &Path, time: Timestamp) -> Result<Vec<Made>, ImagesError> {
    let recipe = Recipe::of_checkout().map_err(ImagesError::Recipe)?;
    let mut all = Vec::new();
    for image in &recipe.images {
        let made = compose(&recipe, image, built, shared, time)?;
        store(&out.join(&made.name), &made.layout)?;
        store(&out.join(referrers_folder(&made.name)), &made.referrers)?;
        put(&out.join(format!("{}.tar", made.name)), &made.layout.archive(time)?)?;
        for (architecture, document) in &made.documents {
            put(&out.join(format!("{}-{architecture}.cdx.json", made.name)), document)?;
        }
        all.push(made);
    }
    put(&out.join(SUMMARY), format!("{:#}\n", summary(&all)).as_bytes())?;
    Ok(all)
}

/// Writes a tree of files in the place of what was there.
fn store(folder: &Path, tree: &Tree) -> Result<(), ImagesError> {
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(|error| ImagesError::write(folder, error))?;
    }
    for (path, entry) in tree.entries() {
        // A layout holds nothing else.
        if let Entry::File { content, .. } = entry {
            put(&folder.join(path), content)?;
        }
    }
    Ok(())
}

fn put(path: &Path, bytes: &[u8]) -> Result<(), ImagesError> {
    let made = path.parent().map_or(Ok(()), fs::create_dir_all);
    made.and_then(|()| fs::write(path, bytes)).map_err(|error| ImagesError::write(path, error))
}

fn text(path: &Path) -> Result<String, ImagesError> {
    fs::read_to_string(path).map_err(|error| ImagesError::read(path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = "[[package]]\nname = \"webpki-root-certs\"\nversion = \"1.0.11\"\nchecksum = \"e49d\"\n";

    fn built(architecture: Architecture, ballast: usize) -> Built {
        let mut forge = program::tests::program(architecture, &[1]);
        forge.resize(forge.len() + ballast, 7);
        Built {
            architecture,
            forge,
            helm: program::tests::program(architecture, &[1, 2]),
            crates: vec![
                Part::new(Kind::Library, "cargo", "ring", "0.17.14"),
                Part::new(Kind::Library, "cargo", "forge", VERSION),
            ],
            modules: vec![Part::new(Kind::Library, "golang", "std", "1.26.8")],
        }
    }

    fn made(name: &str, ballast: usize) -> Made {
        let recipe = Recipe::of_checkout().unwrap();
        let image = recipe.images.iter().find(|image| image.name == name).unwrap();
        let built = Architecture::ALL.map(|architecture| built(architecture, ballast));
        let shared = Shared::new("rustc 1.95.0\nrelease: 1.95.0\nLLVM version: 22\n", LOCK);
        compose(&recipe, image, &built, &shared, Timestamp::UNIX_EPOCH).unwrap()
    }

    fn blob(tree: &Tree, descriptor: &Value) -> Vec<u8> {
        let digest: Digest = descriptor["digest"].as_str().unwrap().parse().unwrap();
        match tree.get(&format!("blobs/sha256/{}", digest.short(64))) {
            Some(Entry::File { content, .. }) => content.clone(),
            other => panic!("{digest}: {other:?}"),
        }
    }

    fn parsed(tree: &Tree, descriptor: &Value) -> Value {
        serde_json::from_slice(&blob(tree, descriptor)).unwrap()
    }

    fn root(tree: &Tree) -> Value {
        let Some(Entry::File { content, .. }) = tree.get("index.json") else { panic!("no index") };
        serde_json::from_slice(content).unwrap()
    }

    #[test]
    fn an_image_has_one_name_both_processors_and_starts_as_nobody() {
        for (name, entrypoint) in [("executor", "/usr/local/bin/executor"), ("plugin", "/usr/local/bin/forge")] {
            let made = made(name, 0);
            let root = root(&made.layout);
            // Exactly one, or `skopeo` and `forge sandbox image load` would ask which.
            assert_eq!(root["manifests"].as_array().unwrap().len(), 1);
            assert_eq!(root["manifests"][0]["digest"], made.digest.as_str());
            let index = parsed(&made.layout, &root["manifests"][0]);
            let platforms: Vec<&str> = index["manifests"]
                .as_array()
                .unwrap()
                .iter()
                .map(|manifest| manifest["platform"]["architecture"].as_str().unwrap())
                .collect();
            assert_eq!(platforms, ["amd64", "arm64"]);
            let manifest = parsed(&made.layout, &index["manifests"][1]);
            let config = parsed(&made.layout, &manifest["config"]);
            assert_eq!(config["config"]["User"], "65532:65532");
            assert_eq!(config["config"]["Entrypoint"], json!([entrypoint]));
            assert_eq!(config["architecture"], "arm64");
            assert_eq!(manifest["annotations"]["org.opencontainers.image.title"], format!("forge/{name}"));
        }
    }

    #[test]
    fn an_image_holds_its_programs_their_names_certificates_a_user_and_nothing_else() {
        let recipe = Recipe::of_checkout().unwrap();
        let built = built(Architecture::Amd64, 0);
        let shared = Shared::new("release: 1.95.0\n", LOCK);
        let paths = |image: &recipe::Image| {
            let tree = tree(&recipe, image, &built, &shared);
            tree.entries().map(|(path, _)| path.to_owned()).collect::<Vec<_>>()
        };
        let executor = paths(&recipe.images[0]);
        assert_eq!(
            executor,
            [
                "etc/group",
                "etc/passwd",
                "etc/ssl/certs/ca-certificates.crt",
                "tmp",
                "usr/local/bin/catalyst-forge-cmp",
                "usr/local/bin/executor",
                "usr/local/bin/forge",
                "usr/local/bin/helm",
            ]
        );
        let plugin: Vec<String> = executor.into_iter().filter(|path| path != "usr/local/bin/helm").collect();
        assert_eq!(paths(&recipe.images[1]), plugin);
    }

    #[test]
    fn every_document_speaks_of_the_image_of_its_processor() {
        let made = made("executor", 0);
        let found = root(&made.referrers);
        for (entry, size) in found["manifests"].as_array().unwrap().iter().zip(&made.sizes) {
            let tag = size.digest.as_str().replace(':', "-");
            assert_eq!(entry["annotations"][oci::REF_NAME], tag);
            let index = parsed(&made.referrers, entry);
            assert_eq!(index["manifests"][0]["artifactType"], sbom::MEDIA_TYPE);
            assert_eq!(index["manifests"][0]["digest"], size.sbom.as_str());
            let artifact = parsed(&made.referrers, &index["manifests"][0]);
            assert_eq!(artifact["subject"]["digest"], size.digest.as_str());
            let document = blob(&made.referrers, &artifact["layers"][0]);
            assert_eq!(document, made.documents[&size.architecture]);
            let document: Value = serde_json::from_slice(&document).unwrap();
            let kind = |purl: &str| {
                let parts = document["components"].as_array().unwrap();
                parts.iter().find(|part| part["purl"] == purl).map(|part| part["type"].as_str().unwrap().to_owned())
            };
            let purl = format!("pkg:cargo/forge@{VERSION}");
            assert_eq!(kind(&purl).as_deref(), Some("application"));
            assert_eq!(kind("pkg:cargo/ring@0.17.14").as_deref(), Some("library"));
            assert_eq!(kind("pkg:cargo/webpki-root-certs@1.0.11").as_deref(), Some("data"));
            assert_eq!(kind("pkg:golang/std@1.26.8").as_deref(), Some("library"));
            assert_eq!(kind("pkg:generic/rust-std@1.95.0").as_deref(), Some("library"));
        }
        assert_eq!(made.documents.len(), 2);
    }

    #[test]
    fn the_same_programs_give_the_same_bytes_and_other_programs_others() {
        let bytes = |made: &Made| {
            let archive = |tree: &Tree| tree.archive(Timestamp::UNIX_EPOCH).unwrap();
            (archive(&made.layout), archive(&made.referrers))
        };
        let first = made("plugin", 0);
        assert_eq!(bytes(&first), bytes(&made("plugin", 0)));
        assert_ne!(first.digest, made("plugin", 1).digest);
    }

    #[test]
    fn what_counts_is_how_large_an_image_is_unpacked() {
        let small = made("plugin", 0);
        assert!(small.sizes.iter().all(|size| !size.is_over() && size.packed > 0 && size.packed < size.unpacked));
        // It packs to next to nothing, and is too large all the same.
        let large = made("plugin", 20_000_000);
        assert!(large.sizes.iter().all(|size| size.is_over() && size.packed < 1_000_000), "{:?}", large.sizes);
        let said = summary(&[small.clone(), large]);
        assert_eq!(said["images"]["plugin"]["platforms"]["amd64"]["unpacked"].as_u64().unwrap() / 1_000_000, 20);
    }

    #[test]
    fn what_was_built_is_read_and_what_would_not_run_is_refused() {
        let work = tempfile::tempdir().unwrap();
        let folder = work.path().join("arm64");
        let target = target(Architecture::Arm64);
        let message = json!({
            "reason": "compiler-artifact", "package_id": "p#forge", "target": {"kind": ["bin"]},
            "filenames": [format!("/t/{target}/image/forge")],
        });
        let metadata = json!({"packages": [{"id": "p#forge", "name": "forge", "version": "0.1.0"}]});
        let write = |name: &str, bytes: &[u8]| put(&folder.join(name), bytes).unwrap();
        write(FORGE_MESSAGES, message.to_string().as_bytes());
        write(FORGE_METADATA, metadata.to_string().as_bytes());
        write(HELM_MODULES, b"helm: go1.26.8\n");
        write(FORGE, &program::tests::program(Architecture::Arm64, &[1]));
        write(HELM, &program::tests::program(Architecture::Arm64, &[1]));
        let built = Built::read(work.path(), LOCK, Architecture::Arm64).unwrap();
        assert_eq!((built.crates.len(), built.modules.len()), (1, 1));
        write(HELM, &program::tests::program(Architecture::Arm64, &[3]));
        let refused = Built::read(work.path(), LOCK, Architecture::Arm64).unwrap_err();
        let reason = "it is linked dynamically, and an empty base has no loader";
        assert!(refused.to_string().ends_with(reason), "{refused}");
        assert!(matches!(Built::read(work.path(), LOCK, Architecture::Amd64), Err(ImagesError::Read { .. })));
    }

    #[test]
    fn writing_again_leaves_nothing_of_before() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("plugin");
        store(&place, &made("plugin", 1).layout).unwrap();
        store(&place, &made("plugin", 0).layout).unwrap();
        let kept = fs::read_dir(place.join("blobs/sha256")).unwrap().count();
        let wanted = made("plugin", 0).layout.entries().filter(|(path, _)| path.starts_with("blobs/")).count();
        assert_eq!(kept, wanted);
    }
}
