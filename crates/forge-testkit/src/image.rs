//! An image of the `forge` that was just built, for a sandbox: the stripped binary, the libraries that it is linked with,
//! and nothing else. Also the images of a release, put together by the same code as those of `make image`, but of programs of
//! this machine: one processor, the debug build, and the libraries that it is linked with.
//!
//! Equal binaries give equal bytes: entries are sorted, times are zero, and the tag is derived from what is in it. So a
//! second load of the same binary is recognised by the registry and costs nothing. This is not the image that is
//! released: it has the C library of the machine that built it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use forge_core::digest::Digest;
use forge_core::oci::{Annotations, Architecture, Compression, Config, Layout, OciError, Tree};
use jiff::Timestamp;

use crate::images::recipe::{Program, Recipe};
use crate::images::{self, Built, Shared};
use crate::sandbox::Sandbox;

/// The repository of the image, without a host.
pub const REPOSITORY: &str = "forge/forge";
/// The user that it runs as.
pub const USER: u32 = 65532;
/// Where roots for TLS are looked for: the client for HTTPS refuses to start without any.
pub const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Whatever host a reference names, the registry of the sandbox serves it.
const HOST: &str = "registry.example.com";

/// Why there is no image.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// A file cannot be read.
    #[error("failed to read `{path}`: {error}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// A program cannot be started.
    #[error("failed to run `{program}`: {error}")]
    Run {
        /// Which.
        program: &'static str,
        /// Why not.
        error: io::Error,
    },
    /// A program refused.
    #[error("`{program}` failed: {reason}")]
    Refused {
        /// Which.
        program: &'static str,
        /// What it said.
        reason: String,
    },
    /// The binary needs a library that this machine does not have.
    #[error("`{binary}` needs `{library}`, which is not found")]
    Library {
        /// The binary.
        binary: PathBuf,
        /// The library.
        library: String,
    },
    /// A temporary file cannot be written.
    #[error("failed to write a temporary file: {0}")]
    Write(io::Error),
    /// The image cannot be put together.
    #[error(transparent)]
    Oci(#[from] OciError),
    /// The recipe of images is not what this code expects.
    #[error("failed to understand the recipe of images: {0}")]
    Recipe(serde_json::Error),
    /// There is no such image.
    #[error("no image of a release is called `{name}`")]
    Unknown {
        /// Which.
        name: String,
    },
    /// No sandbox runs on such a machine.
    #[error("there are no images for `{machine}`")]
    Machine {
        /// What it is.
        machine: &'static str,
    },
}

/// An image, as a tar of an OCI layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// What to call it: repository and tag, as `forge sandbox image load --as` takes them.
    pub name: String,
    /// The digest of its manifest.
    pub digest: Digest,
    /// The bytes of the archive.
    pub archive: Vec<u8>,
}

impl Image {
    /// Makes the image of a binary.
    ///
    /// # Errors
    /// When the binary or its libraries cannot be read.
    pub fn of(binary: &Path) -> Result<Self, ImageError> {
        let mut tree = base();
        // The C library would ask for names in another order without it.
        tree.file("etc/nsswitch.conf", "hosts: files dns\n", 0o644);
        tree.link("usr/local/bin/catalyst-forge-cmp", "forge");
        tree.link("usr/local/bin/executor", "forge");
        tree.file("usr/local/bin/forge", stripped(binary)?, 0o755);
        for library in libraries(binary)? {
            tree.file(&library.to_string_lossy(), read(&library)?, 0o755);
        }
        // Taken from the machine if it has them.
        if let Ok(roots) = fs::read(CERTIFICATES) {
            tree.file(CERTIFICATES, roots, 0o644);
        }
        let config = Config {
            user: format!("{USER}:{USER}"),
            environment: [("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())].into(),
            working_folder: "/tmp".to_owned(),
            ..Config::default()
        };
        assembled(REPOSITORY, &tree, &Annotations::new(), &config)
    }

    /// One of the images of a release, of programs of this machine.
    ///
    /// # Errors
    /// When there is no such image, or a program or its libraries cannot be read.
    pub fn released(name: &str, forge: &Path, helm: &Path) -> Result<Self, ImageError> {
        let recipe = Recipe::of_checkout().map_err(ImageError::Recipe)?;
        let unknown = || ImageError::Unknown { name: name.to_owned() };
        let image = recipe.images.iter().find(|image| image.name == name).ok_or_else(unknown)?;
        let helm = if image.programs.contains(&Program::Helm) { read(helm)? } else { Vec::new() };
        let (crates, modules) = (Vec::new(), Vec::new());
        let built = Built { architecture: architecture()?, forge: stripped(forge)?, helm, crates, modules };
        let shared = Shared { roots: images::roots::pem(), parts: Vec::new() };
        let mut tree = images::tree(&recipe, image, &built, &shared);
        // What a static build does without.
        tree.file("etc/nsswitch.conf", "hosts: files dns\n", 0o644);
        for library in libraries(forge)? {
            tree.file(&library.to_string_lossy(), read(&library)?, 0o755);
        }
        let (annotations, config) = images::description(&recipe, image);
        assembled(&format!("forge/{name}"), &tree, &annotations, &config)
    }

    /// How a pod names it.
    pub fn reference(&self) -> String {
        format!("{HOST}/{}@{}", self.name, self.digest)
    }
}

/// Loads the image of a binary into a sandbox, or fails the test. Gives the reference, with tag and digest, that pods
/// use.
#[allow(clippy::panic, reason = "a driver of tests fails by panicking, with what it saw")]
pub fn load(sandbox: &Sandbox, binary: &Path) -> String {
    let image = Image::of(binary).unwrap_or_else(|error| panic!("no image of {}: {error}", binary.display()));
    pushed(sandbox, &image)
}

/// Loads an image of a release into a sandbox, or fails the test, and gives the reference that pods use: the one that `make
/// image` wrote to the folder that `FORGE_IMAGES` names, else one of this binary and of the sandbox's helm.
#[allow(clippy::panic, reason = "a driver of tests fails by panicking, with what it saw")]
pub fn load_released(sandbox: &Sandbox, name: &str, binary: &Path) -> String {
    let Some(folder) = std::env::var_os("FORGE_IMAGES").filter(|folder| !folder.is_empty()) else {
        let image = Image::released(name, binary, &sandbox.helm);
        return pushed(sandbox, &image.unwrap_or_else(|error| panic!("no image `{name}`: {error}")));
    };
    let archive = Path::new(&folder).join(format!("{name}.tar"));
    let called = format!("forge/{name}:{}", env!("CARGO_PKG_VERSION"));
    let ended = sandbox.command(&["image", "load", &archive.to_string_lossy(), "--as", &called]);
    assert!(ended.code == 0, "image load {}: {}", archive.display(), ended.stderr);
    let (_, digest) = ended.stdout.trim().split_once('@').unwrap_or_else(|| panic!("loaded as {}", ended.stdout));
    format!("{HOST}/{called}@{digest}")
}

/// Pushes an image into the registry of a sandbox.
#[allow(clippy::panic, reason = "a driver of tests fails by panicking, with what it saw")]
fn pushed(sandbox: &Sandbox, image: &Image) -> String {
    let file = tempfile::NamedTempFile::new()
        .and_then(|file| fs::write(file.path(), &image.archive).map(|()| file))
        .unwrap_or_else(|error| panic!("failed to write the image: {error}"));
    let ended = sandbox.command(&["image", "load", &file.path().to_string_lossy(), "--as", &image.name]);
    assert!(ended.code == 0, "image load: {}", ended.stderr);
    assert!(ended.stdout.contains(image.digest.as_str()), "loaded as {}, made as {}", ended.stdout, image.digest);
    image.reference()
}

/// What every image of ours holds: a user, and a place for temporary files.
pub fn base() -> Tree {
    let mut tree = Tree::default();
    let people = format!("root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:{USER}:{USER}::/tmp:/sbin/nologin\n");
    tree.folder("tmp", 0o1777);
    tree.file("etc/passwd", people, 0o644);
    tree.file("etc/group", format!("root:x:0:\nnonroot:x:{USER}:\n"), 0o644);
    tree
}

fn read(path: &Path) -> Result<Vec<u8>, ImageError> {
    fs::read(path).map_err(|error| ImageError::Read { path: path.to_owned(), error })
}

/// A binary without what only debuggers read; as it is where `strip` is not installed.
fn stripped(binary: &Path) -> Result<Vec<u8>, ImageError> {
    const PROGRAM: &str = "strip";
    let whole = read(binary)?;
    let out = tempfile::NamedTempFile::new().map_err(ImageError::Write)?;
    let output = match Command::new(PROGRAM).arg("-o").arg(out.path()).arg(binary).output() {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(whole),
        Err(error) => return Err(ImageError::Run { program: PROGRAM, error }),
    };
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(ImageError::Refused { program: PROGRAM, reason });
    }
    read(out.path())
}

/// The libraries that a binary is linked with, the loader included, where this machine has them.
fn libraries(binary: &Path) -> Result<Vec<PathBuf>, ImageError> {
    const PROGRAM: &str = "ldd";
    let output = Command::new(PROGRAM)
        .arg(binary)
        .env("LC_ALL", "C")
        .env_remove("LD_LIBRARY_PATH")
        .env_remove("LD_PRELOAD")
        .output()
        .map_err(|error| ImageError::Run { program: PROGRAM, error })?;
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if said.contains("not a dynamic executable") || said.contains("statically linked") {
        return Ok(Vec::new());
    }
    if !output.status.success() {
        return Err(ImageError::Refused { program: PROGRAM, reason: said.trim().to_owned() });
    }
    linked(&said).map_err(|library| ImageError::Library { binary: binary.to_owned(), library })
}

/// The paths in what `ldd` says, or the library that it does not find. A line without a path is the kernel's own.
fn linked(said: &str) -> Result<Vec<PathBuf>, String> {
    let mut paths = Vec::new();
    for line in said.lines() {
        let (name, place) = line.trim().split_once(" => ").unwrap_or(("", line.trim()));
        if place.starts_with("not found") {
            return Err(name.to_owned());
        }
        let path = place.split(" (").next().unwrap_or_default();
        if path.starts_with('/') {
            paths.push(PathBuf::from(path));
        }
    }
    Ok(paths)
}

/// The processor of this machine.
fn architecture() -> Result<Architecture, ImageError> {
    let machine = std::env::consts::ARCH;
    Architecture::of_machine(machine).ok_or(ImageError::Machine { machine })
}

/// The archive of an OCI layout of an image for this machine.
fn assembled(repository: &str, tree: &Tree, annotations: &Annotations, config: &Config) -> Result<Image, ImageError> {
    let (architecture, time) = (architecture()?, Timestamp::UNIX_EPOCH);
    let mut layout = Layout::default();
    // It goes to a registry on the same machine, so it is not compressed.
    let compression = Compression::None;
    let manifest =
        layout.image(&forge_core::oci::Image { architecture, tree, config, annotations, compression, time })?;
    let digest = manifest.digest.clone();
    layout.offer(manifest, None);
    Ok(Image { name: format!("{repository}:{}", digest.short(12)), digest, archive: layout.tree().archive(time)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_from_what_ldd_says_and_a_missing_one_is_named() {
        let said =
            "\tlinux-vdso.so.1 (0x00007f)\n\tlibc.so.6 => /lib/x/libc.so.6 (0x00007f)\n\t/lib64/ld.so.2 (0x00007f)\n";
        assert_eq!(linked(said).unwrap(), [PathBuf::from("/lib/x/libc.so.6"), "/lib64/ld.so.2".into()]);
        assert_eq!(linked("\tlibssl.so.3 => not found\n"), Err("libssl.so.3".to_owned()));
    }

    #[test]
    fn the_same_binary_gives_the_same_bytes_and_name() {
        let own = std::env::current_exe().unwrap();
        let (first, second) = (Image::of(&own).unwrap(), Image::of(&own).unwrap());
        assert_eq!(first, second);
        assert_eq!(first.name, format!("forge/forge:{}", first.digest.short(12)));
    }

    /// The names in the layers of an image.
    fn names(image: &Image) -> Vec<String> {
        let mut names = Vec::new();
        let mut layers = tar::Archive::new(image.archive.as_slice());
        for blob in layers.entries().unwrap() {
            let mut blob = blob.unwrap();
            if blob.size() < 100_000 {
                continue;
            }
            for entry in tar::Archive::new(&mut blob).entries().unwrap() {
                let entry = entry.unwrap();
                assert_eq!(entry.header().mtime().unwrap(), 0);
                names.push(entry.path().unwrap().to_string_lossy().into_owned());
            }
        }
        names
    }

    #[test]
    fn an_image_holds_the_binary_its_second_name_its_loader_and_a_user() {
        let names = names(&Image::of(&std::env::current_exe().unwrap()).unwrap());
        for wanted in ["usr/local/bin/forge", "usr/local/bin/executor", "etc/passwd", "tmp/"] {
            assert!(names.iter().any(|name| name == wanted), "{wanted} is missing: {names:?}");
        }
        assert!(names.iter().any(|name| name.contains("/libc.so")), "{names:?}");
    }

    #[test]
    fn an_image_of_a_release_for_a_sandbox_has_what_the_recipe_says_and_the_libraries_of_the_debug_build() {
        let own = std::env::current_exe().unwrap();
        let image = Image::released("executor", &own, &own).unwrap();
        assert!(
            image.name.starts_with("forge/executor:") && image.reference().contains("/executor:"),
            "{}",
            image.name
        );
        let held = names(&image);
        for wanted in ["forge", "helm", "executor", "catalyst-forge-cmp"] {
            assert!(held.contains(&format!("usr/local/bin/{wanted}")), "{wanted}: {held:?}");
        }
        assert!(held.iter().any(|name| name.contains("/libc.so")), "{held:?}");
        let plugin = names(&Image::released("plugin", &own, &own).unwrap());
        assert!(!plugin.contains(&"usr/local/bin/helm".to_owned()), "{plugin:?}");
        assert!(matches!(Image::released("other", &own, &own), Err(ImageError::Unknown { .. })));
    }
}
