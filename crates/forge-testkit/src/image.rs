//! An image of the `forge` that was just built, for a sandbox: the stripped binary, the libraries that it is linked with,
//! and nothing else.
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
        tree.link("usr/local/bin/executor", "forge");
        tree.file("usr/local/bin/forge", stripped(binary)?, 0o755);
        for library in libraries(binary)? {
            tree.file(&library.to_string_lossy(), read(&library)?, 0o755);
        }
        // Taken from the machine if it has them.
        if let Ok(roots) = fs::read(CERTIFICATES) {
            tree.file(CERTIFICATES, roots, 0o644);
        }
        assembled(&tree)
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

/// The archive of an OCI layout of an image for this machine.
fn assembled(tree: &Tree) -> Result<Image, ImageError> {
    let machine = std::env::consts::ARCH;
    let architecture = Architecture::of_machine(machine).ok_or(ImageError::Machine { machine })?;
    let config = Config {
        user: format!("{USER}:{USER}"),
        environment: [("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())].into(),
        working_folder: "/tmp".to_owned(),
        ..Config::default()
    };
    let (annotations, time) = (Annotations::new(), Timestamp::UNIX_EPOCH);
    let mut layout = Layout::default();
    // It goes to a registry on the same machine, so it is not compressed.
    let compression = Compression::None;
    let (config, annotations) = (&config, &annotations);
    let manifest =
        layout.image(&forge_core::oci::Image { architecture, tree, config, annotations, compression, time })?;
    let digest = manifest.digest.clone();
    layout.offer(manifest, None);
    Ok(Image { name: format!("{REPOSITORY}:{}", digest.short(12)), digest, archive: layout.tree().archive(time)? })
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

    #[test]
    fn an_image_holds_the_binary_its_second_name_its_loader_and_a_user() {
        let image = Image::of(&std::env::current_exe().unwrap()).unwrap();
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
        for wanted in ["usr/local/bin/forge", "usr/local/bin/executor", "etc/passwd", "tmp/"] {
            assert!(names.iter().any(|name| name == wanted), "{wanted} is missing: {names:?}");
        }
        assert!(names.iter().any(|name| name.contains("/libc.so")), "{names:?}");
    }
}
