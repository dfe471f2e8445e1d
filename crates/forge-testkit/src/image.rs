//! An image of the `forge` that was just built, for a sandbox: the stripped binary, the libraries that it is linked with,
//! and nothing else.
//!
//! Equal binaries give equal bytes: entries are sorted, times are zero, and the tag is derived from what is in it. So a
//! second load of the same binary is recognised by the registry and costs nothing. This is not the image that is
//! released: it has the C library of the machine that built it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use forge_core::digest::Digest;
use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};

use crate::sandbox::Sandbox;

/// The repository of the image, without a host.
pub const REPOSITORY: &str = "forge/forge";
/// The user that it runs as.
pub const USER: u32 = 65532;

/// Whatever host a reference names, the registry of the sandbox serves it.
const HOST: &str = "registry.example.com";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
/// Roots for TLS: the client for HTTPS refuses to start without any. Taken from the machine if it has them.
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

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
    /// The archive cannot be written.
    #[error("failed to write the archive: {0}")]
    Write(io::Error),
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
        let mut entries = skeleton();
        entries.insert("usr/local/bin/forge".into(), Entry::File(stripped(binary)?, 0o755));
        for library in libraries(binary)? {
            let bytes = read(&library)?;
            entries.insert(library.to_string_lossy().trim_start_matches('/').to_owned(), Entry::File(bytes, 0o755));
        }
        if let Ok(roots) = fs::read(CERTIFICATES) {
            entries.insert(CERTIFICATES.trim_start_matches('/').to_owned(), Entry::File(roots, 0o644));
        }
        assembled(archive(&entries).map_err(ImageError::Write)?).map_err(ImageError::Write)
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

/// What is at a path of the image; all of it belongs to root.
enum Entry {
    Folder(u32),
    File(Vec<u8>, u32),
    Link(&'static str),
}

/// What the image holds beside the binary and its libraries.
fn skeleton() -> BTreeMap<String, Entry> {
    let text = |text: String| Entry::File(text.into_bytes(), 0o644);
    let people = format!("root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:{USER}:{USER}::/tmp:/sbin/nologin\n");
    BTreeMap::from([
        ("tmp".into(), Entry::Folder(0o1777)),
        ("etc/passwd".into(), text(people)),
        ("etc/group".into(), text(format!("root:x:0:\nnonroot:x:{USER}:\n"))),
        // The C library would ask for names in another order without it.
        ("etc/nsswitch.conf".into(), text("hosts: files dns\n".into())),
        ("usr/local/bin/executor".into(), Entry::Link("forge")),
    ])
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

/// A tar archive. Folders above an entry are not written: whoever unpacks makes them.
fn archive(entries: &BTreeMap<String, Entry>) -> io::Result<Vec<u8>> {
    let mut archive = Builder::new(Vec::new());
    for (path, entry) in entries {
        let mut header = Header::new_ustar();
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(0);
        match entry {
            Entry::Folder(mode) => {
                header.set_mode(*mode);
                header.set_entry_type(EntryType::Directory);
                archive.append_data(&mut header, format!("{path}/"), io::empty())?;
            }
            Entry::File(bytes, mode) => {
                header.set_mode(*mode);
                header.set_size(bytes.len() as u64);
                archive.append_data(&mut header, path, bytes.as_slice())?;
            }
            Entry::Link(target) => {
                header.set_mode(0o777);
                header.set_entry_type(EntryType::Symlink);
                archive.append_link(&mut header, path, target)?;
            }
        }
    }
    archive.into_inner()
}

/// The OCI layout of an image with one layer.
fn assembled(layer: Vec<u8>) -> io::Result<Image> {
    let mut blobs: BTreeMap<String, Entry> = BTreeMap::new();
    let mut store = |bytes: Vec<u8>, kind: &str| {
        let digest = Digest::of(&bytes);
        let descriptor = json!({"mediaType": kind, "digest": digest, "size": bytes.len()});
        blobs.insert(format!("blobs/sha256/{}", digest.short(64)), Entry::File(bytes, 0o644));
        (digest, descriptor)
    };
    let (difference, layer) = store(layer, LAYER);
    let config = json!({
        "created": "1970-01-01T00:00:00Z",
        "architecture": architecture(),
        "os": "linux",
        "config": {
            "User": format!("{USER}:{USER}"),
            "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"],
            "WorkingDir": "/tmp",
        },
        // A layer that is not compressed is its own difference.
        "rootfs": {"type": "layers", "diff_ids": [difference]},
    });
    let (_, config) = store(config.to_string().into_bytes(), CONFIG);
    let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer]});
    let (digest, manifest) = store(manifest.to_string().into_bytes(), MANIFEST);
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [manifest],
    });
    let json = |value: &Value| Entry::File(value.to_string().into_bytes(), 0o644);
    blobs.insert("index.json".into(), json(&index));
    blobs.insert("oci-layout".into(), json(&json!({"imageLayoutVersion": "1.0.0"})));
    Ok(Image { name: format!("{REPOSITORY}:{}", digest.short(12)), digest, archive: archive(&blobs)? })
}

/// What OCI calls this machine's processor.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "aarch64" => "arm64",
        "x86_64" => "amd64",
        other => other,
    }
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
