//! What images start from: a root file system of Debian packages, unpacked but not installed, and a small part of it for
//! static binaries.
//!
//! Nothing of it is run, so root is not needed and no script of a package decides what is in it. What an installation
//! would have made is made here: the bundle of certificates, and `/bin` and its like as links into `/usr`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use forge_core::digest::Digest;
use serde::{Deserialize, Serialize};

use super::layer::{Blob, Body, Entry, Layer};
use super::run::{self, Site};
use super::{BuildError, debian, tree};
use crate::recipe::{self, Base, Layers};

/// Changes when the same recipe gives something else.
const FORMAT: u32 = 2;

/// Folders that are links into `/usr`.
const MERGED: [&str; 6] = ["bin", "lib", "lib32", "lib64", "libx32", "sbin"];
const CERTIFICATES: &str = "usr/share/ca-certificates/";
const BUNDLE: &str = "etc/ssl/certs/ca-certificates.crt";
const CONTENTS: &str = "base.json";

/// Prints the names of the archives of packages, which tell their versions, into the log.
const LIST: &str = r#"ls "$1/var/cache/apt/archives" >&2"#;

/// What is in the entry of the base.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Contents {
    /// Upstream versions of the packages.
    pub(crate) packages: BTreeMap<String, String>,
    debian: Stored,
    #[serde(rename = "static")]
    static_files: Stored,
}

#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    digest: Digest,
    size: u64,
}

/// The release whose packages are taken: the machine's own, whose sources it knows.
pub(crate) fn suite(base: &Base) -> String {
    debian::suite().unwrap_or_else(|| base.suite.clone())
}

/// What the base's entry is made from.
pub(crate) fn made_from(base: &Base, suite: &str) -> Digest {
    recipe::made_from(FORMAT, base, &[], &[suite])
}

/// Makes the entry: two layers, and what is in them.
pub(crate) fn build(base: &Base, suite: &str, site: &mut Site<'_>) -> Result<(), BuildError> {
    let mmdebstrap = run::find("mmdebstrap", &[])
        .ok_or(BuildError::MissingProgram { program: "mmdebstrap", help: "sudo apt-get install mmdebstrap" })?;
    let root = site.folder.join("root.tar");
    let mut command = run::command(&mmdebstrap);
    command.current_dir(site.folder).args(["--variant=extract", "--format=tar"]);
    command.arg(format!("--extract-hook={LIST}")).arg(format!("--include={}", base.packages.join(",")));
    // Without root, no namespace of users is needed either: nothing of the packages is run.
    command.arg(if nix::unistd::geteuid().is_root() { "--mode=root" } else { "--mode=chrootless" });
    command.env("TMPDIR", site.folder);
    command.arg(suite).arg(&root);
    if let Some(sources) = debian::sources(suite) {
        let path = site.folder.join("sources");
        tree::write(&path, sources.as_bytes())?;
        command.arg(path);
    }
    site.run(&mut command)?;

    site.progress.doing("writing layers");
    let failed = |error| BuildError::file("read", &root, error);
    let whole = normal(read(&root).map_err(failed)?, base, &root).map_err(failed)?;
    let mut part = Layer::default();
    for (path, entry) in &whole.entries {
        if base.static_files.iter().any(|wanted| within(path, wanted)) {
            part.add(path, entry.clone());
        }
    }
    let whole = whole.write(&layer(site.folder, "debian"))?;
    let part = part.write(&layer(site.folder, "static"))?;
    let contents = Contents {
        packages: debian::versions(&tree::read(site.log)?),
        debian: Stored { digest: whole.digest, size: whole.size },
        static_files: Stored { digest: part.digest, size: part.size },
    };
    tree::write(&site.folder.join(CONTENTS), &serde_json::to_vec_pretty(&contents).unwrap_or_default())?;
    for path in [root, site.folder.join("sources")] {
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

fn layer(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.tar"))
}

impl Contents {
    /// Reads what is in the base's entry.
    pub(crate) fn read(entry: &Path) -> Result<Self, BuildError> {
        let path = entry.join(CONTENTS);
        serde_json::from_str(&tree::read(&path)?)
            .map_err(|error| BuildError::file("read", &path, io::Error::new(io::ErrorKind::InvalidData, error)))
    }

    /// The layer that images of this kind start from.
    pub(crate) fn layer(&self, entry: &Path, kind: Layers) -> Option<Blob> {
        let (name, stored) = match kind {
            Layers::None => return None,
            Layers::Static => ("static", &self.static_files),
            Layers::Debian => ("debian", &self.debian),
        };
        Some(Blob { path: layer(entry, name), digest: stored.digest.clone(), size: stored.size })
    }
}

/// The entries of an archive; their content stays in it. Devices are left out.
fn read(path: &Path) -> io::Result<BTreeMap<String, Entry>> {
    let mut archive = tar::Archive::new(File::open(path)?);
    let mut entries = BTreeMap::new();
    for entry in archive.entries_with_seek()? {
        let entry = entry?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let target = entry.link_name_bytes().map(|target| String::from_utf8_lossy(&target).into_owned());
        let header = entry.header();
        let body = match header.entry_type() {
            tar::EntryType::Directory => Body::Folder,
            tar::EntryType::Symlink => Body::Link(target.unwrap_or_default()),
            tar::EntryType::Link => Body::Same(trimmed(&target.unwrap_or_default()).to_owned()),
            tar::EntryType::Regular => {
                Body::Part { file: path.to_owned(), offset: entry.raw_file_position(), length: entry.size() }
            }
            _ => continue,
        };
        // Nobody in a container becomes somebody else by running a file, and all files are root's.
        let mode = header.mode()? & 0o1777;
        entries.insert(trimmed(&name).to_owned(), Entry::new(body, mode));
    }
    entries.retain(|path, _| !matches!(path.as_str(), "" | "."));
    Ok(entries)
}

/// A path without `./` and slashes around it.
fn trimmed(path: &str) -> &str {
    path.trim_start_matches("./").trim_matches('/')
}

/// Where a path is once `/bin` and its like are links.
fn merged(path: &str) -> String {
    let first = path.split('/').next().unwrap_or_default();
    if MERGED.contains(&first) { format!("usr/{path}") } else { path.to_owned() }
}

fn within(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The layer of a root file system.
fn normal(entries: BTreeMap<String, Entry>, base: &Base, root: &Path) -> io::Result<Layer> {
    let place = |path: &str| {
        let path = merged(path);
        base.rename.get(&path).cloned().unwrap_or(path)
    };
    let mut layer = Layer::default();
    for (path, mut entry) in entries {
        if MERGED.contains(&path.as_str()) {
            layer.add(&path, Entry::new(Body::Link(format!("usr/{path}")), 0o777));
            layer.entries.entry(merged(&path)).or_insert(Entry::new(Body::Folder, 0o755));
            continue;
        }
        let new = place(&path);
        if base.leave_out.iter().any(|out| within(&new, out)) {
            continue;
        }
        if let Body::Same(target) = &mut entry.body {
            *target = place(target);
        }
        // Where `/bin/x` and `/usr/bin/x` were two, one of them is a link to the other.
        let itself = matches!(&entry.body, Body::Link(target) if merged(trimmed(target)) == new);
        let less = layer.entries.contains_key(&new) && matches!(entry.body, Body::Link(_) | Body::Folder);
        if !(itself || less) {
            layer.add(&new, entry);
        }
    }
    first_of_the_same(&mut layer);
    let bundle = bundle(&layer, root)?;
    layer.add(BUNDLE, Entry::new(Body::Bytes(bundle), 0o644));
    Ok(layer)
}

/// Of names of the same file, the first one in the archive must be the one with the content. Names whose file was left out
/// go with it.
fn first_of_the_same(layer: &mut Layer) {
    let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
    layer.entries.retain(|path, entry| {
        let Body::Same(file) = &entry.body else { return true };
        names.entry(file.clone()).or_default().push(path.clone());
        false
    });
    for (file, mut names) in names {
        let Some(entry) = layer.entries.remove(&file) else { continue };
        names.push(file);
        names.sort();
        let first = names.first().cloned().unwrap_or_default();
        for name in names {
            let body = if name == first { entry.body.clone() } else { Body::Same(first.clone()) };
            layer.entries.insert(name, Entry { body, ..entry.clone() });
        }
    }
}

/// All certificates in one file, as `update-ca-certificates` makes it.
fn bundle(layer: &Layer, root: &Path) -> io::Result<Vec<u8>> {
    let mut archive = File::open(root)?;
    let mut bundle = Vec::new();
    for (path, entry) in layer.entries.range(CERTIFICATES.to_owned()..) {
        if !path.starts_with(CERTIFICATES) {
            break;
        }
        if let Body::Part { offset, length, .. } = &entry.body {
            archive.seek(SeekFrom::Start(*offset))?;
            archive.by_ref().take(*length).read_to_end(&mut bundle)?;
        }
    }
    Ok(bundle)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An archive as `mmdebstrap` makes it.
    fn archive(path: &Path, entries: &[(&str, tar::EntryType, &str)]) {
        let mut archive = tar::Builder::new(File::create(path).unwrap());
        for (name, kind, content) in entries {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_mode(0o4755);
            header.set_mtime(1_700_000_000);
            header.set_uid(0);
            header.set_gid(42);
            header.set_path(name).unwrap();
            if kind.is_symlink() || kind.is_hard_link() {
                header.set_link_name(content).unwrap();
                header.set_size(0);
                header.set_cksum();
                archive.append(&header, io::empty()).unwrap();
            } else {
                header.set_size(content.len() as u64);
                header.set_cksum();
                archive.append(&header, content.as_bytes()).unwrap();
            }
        }
        archive.finish().unwrap();
    }

    #[test]
    fn a_root_file_system_becomes_a_layer_without_traces_of_its_making() {
        use tar::EntryType as T;
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root.tar");
        archive(
            &root,
            &[
                ("./", T::Directory, ""),
                ("./dev/null", T::Char, ""),
                ("./bin/", T::Directory, ""),
                ("./bin/cp", T::Regular, "cp"),
                ("./bin/sh", T::Symlink, "dash"),
                ("./bin/which", T::Symlink, "/usr/bin/which"),
                ("./usr/bin/which", T::Regular, "which"),
                ("./usr/bin/git", T::Regular, "git"),
                ("./usr/bin/a-git", T::Link, "./usr/bin/git"),
                ("./usr/bin/z-git", T::Link, "./usr/bin/git"),
                ("./usr/share/doc/git/x", T::Regular, "doc"),
                ("./usr/share/docile", T::Regular, "kept"),
                ("./usr/share/ca-certificates/mozilla/b.crt", T::Regular, "B\n"),
                ("./usr/share/ca-certificates/mozilla/a.crt", T::Regular, "A\n"),
                ("./usr/share/zoneinfo/UTC", T::Regular, "utc"),
            ],
        );
        let base = Base {
            suite: String::new(),
            packages: Vec::new(),
            leave_out: vec!["usr/share/doc".into(), "dev".into()],
            rename: [("usr/bin/cp".to_owned(), "usr/bin/cp.real".to_owned())].into(),
            static_files: Vec::new(),
            mebibytes: 0,
        };
        let layer = normal(read(&root).unwrap(), &base, &root).unwrap();
        let paths: Vec<&str> = layer.entries.keys().map(String::as_str).collect();
        assert_eq!(
            paths,
            [
                "bin",
                "etc/ssl/certs/ca-certificates.crt",
                "usr/bin",
                "usr/bin/a-git",
                "usr/bin/cp.real",
                "usr/bin/git",
                "usr/bin/sh",
                "usr/bin/which",
                "usr/bin/z-git",
                "usr/share/ca-certificates/mozilla/a.crt",
                "usr/share/ca-certificates/mozilla/b.crt",
                "usr/share/docile",
                "usr/share/zoneinfo/UTC",
            ]
        );
        let body = |path: &str| &layer.entries[path].body;
        assert_eq!(body("bin"), &Body::Link("usr/bin".into()));
        assert_eq!(body("usr/bin/git"), &Body::Same("usr/bin/a-git".into()));
        assert_eq!(body("usr/bin/z-git"), &Body::Same("usr/bin/a-git".into()));
        assert!(matches!(body("usr/bin/a-git"), Body::Part { length: 3, .. }));
        assert!(matches!(body("usr/bin/which"), Body::Part { .. }));
        assert_eq!(body("etc/ssl/certs/ca-certificates.crt"), &Body::Bytes(b"A\nB\n".to_vec()));
        assert_eq!((layer.entries["usr/bin/git"].mode, layer.entries["usr/bin/git"].group), (0o755, 0));
        layer.write(&folder.path().join("layer.tar")).unwrap();
    }
}
