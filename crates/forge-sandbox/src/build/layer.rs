//! Layers of images: tar archives whose bytes depend on nothing but their content.
//!
//! Entries are sorted, times are zero, owners are numbers. Folders above an entry are not written: a base may have a link
//! in their place, and whoever unpacks makes those that are missing.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};

use forge_core::digest::{Digest, hex};
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

use super::BuildError;

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Body {
    /// A folder.
    Folder,
    /// A file with these bytes.
    Bytes(Vec<u8>),
    /// A file with a part of another file's bytes.
    Part {
        /// The other file.
        file: PathBuf,
        /// Where the part begins.
        offset: u64,
        /// How long it is.
        length: u64,
    },
    /// A symbolic link.
    Link(String),
    /// The same file as at this path.
    Same(String),
}

/// An entry of a layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) body: Body,
    pub(crate) mode: u32,
    pub(crate) user: u32,
    pub(crate) group: u32,
    /// Whether it may bind ports below 1024 if its container may.
    pub(crate) binds_low_ports: bool,
}

impl Entry {
    /// An entry that belongs to root.
    pub(crate) fn new(body: Body, mode: u32) -> Self {
        Self { body, mode, user: 0, group: 0, binds_low_ports: false }
    }
}

/// Entries by their path, which has no slash at its start or end.
#[derive(Debug, Default)]
pub(crate) struct Layer {
    pub(crate) entries: BTreeMap<String, Entry>,
}

/// A blob on disk.
#[derive(Debug, Clone)]
pub(crate) struct Blob {
    pub(crate) path: PathBuf,
    pub(crate) digest: Digest,
    pub(crate) size: u64,
}

/// `cap_net_bind_service` permitted and effective, as the kernel stores it with a file: version 2, little endian.
const BIND_LOW_PORTS: [u8; 20] = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

impl Layer {
    /// Adds an entry at an absolute path, over what was there.
    pub(crate) fn add(&mut self, path: &str, entry: Entry) {
        self.entries.insert(path.trim_matches('/').to_owned(), entry);
    }

    /// Adds a file or a folder with all that it holds. Scripts and binaries can be run, nothing else can.
    pub(crate) fn add_tree(&mut self, path: &str, from: &Path) -> Result<(), BuildError> {
        let failed = |error| BuildError::file("read", from, error);
        let metadata = fs::symlink_metadata(from).map_err(failed)?;
        if metadata.is_dir() {
            self.add(path, Entry::new(Body::Folder, 0o755));
            for entry in fs::read_dir(from).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                self.add_tree(&format!("{path}/{}", entry.file_name().to_string_lossy()), &entry.path())?;
            }
        } else if metadata.is_symlink() {
            let target = fs::read_link(from).map_err(failed)?;
            self.add(path, Entry::new(Body::Link(target.to_string_lossy().into_owned()), 0o777));
        } else {
            let mut start = Vec::new();
            File::open(from).and_then(|file| file.take(4).read_to_end(&mut start)).map_err(failed)?;
            let body = Body::Part { file: from.to_owned(), offset: 0, length: metadata.len() };
            self.add(path, Entry::new(body, mode_of(&start)));
        }
        Ok(())
    }

    /// Writes it as a tar archive.
    pub(crate) fn write(&self, path: &Path) -> Result<Blob, BuildError> {
        let failed = |error| BuildError::file("write", path, error);
        let file = File::create(path).map_err(failed)?;
        let mut archive = Builder::new(Hashing::new(BufWriter::with_capacity(1 << 20, file)));
        for (name, entry) in &self.entries {
            entry.append(name, &mut archive).map_err(failed)?;
        }
        let (mut out, digest, size) = archive.into_inner().map_err(failed)?.end();
        out.flush().map_err(failed)?;
        Ok(Blob { path: path.to_owned(), digest, size })
    }
}

/// What may be done with a file that starts like this.
pub(crate) fn mode_of(start: &[u8]) -> u32 {
    if start.starts_with(b"#!") || start.starts_with(b"\x7fELF") { 0o755 } else { 0o644 }
}

impl Entry {
    fn append(&self, name: &str, archive: &mut Builder<impl Write>) -> io::Result<()> {
        if self.binds_low_ports {
            archive.append_pax_extensions([("SCHILY.xattr.security.capability", BIND_LOW_PORTS.as_slice())])?;
        }
        let mut header = Header::new_ustar();
        header.set_mode(self.mode);
        header.set_uid(self.user.into());
        header.set_gid(self.group.into());
        header.set_mtime(0);
        header.set_size(0);
        match &self.body {
            Body::Folder => {
                header.set_entry_type(EntryType::Directory);
                archive.append_data(&mut header, format!("{name}/"), io::empty())
            }
            Body::Link(target) => {
                header.set_entry_type(EntryType::Symlink);
                archive.append_link(&mut header, name, target)
            }
            Body::Same(target) => {
                header.set_entry_type(EntryType::Link);
                archive.append_link(&mut header, name, target)
            }
            Body::Bytes(bytes) => {
                header.set_entry_type(EntryType::Regular);
                header.set_size(bytes.len() as u64);
                archive.append_data(&mut header, name, bytes.as_slice())
            }
            Body::Part { file, offset, length } => {
                header.set_entry_type(EntryType::Regular);
                header.set_size(*length);
                let mut part = Exactly { rest: *length, file: File::open(file)? };
                part.file.seek(SeekFrom::Start(*offset))?;
                archive.append_data(&mut header, name, &mut part)
            }
        }
    }
}

/// So many bytes of a file. Fewer would make an archive that nobody can read.
struct Exactly {
    rest: u64,
    file: File,
}

impl Read for Exactly {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = usize::try_from(self.rest).unwrap_or(usize::MAX).min(buffer.len());
        let count = self.file.read(buffer.get_mut(..wanted).unwrap_or_default())?;
        if count == 0 && wanted > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.rest -= count as u64;
        Ok(count)
    }
}

/// Hashes and counts what is written through it.
pub(crate) struct Hashing<W> {
    out: W,
    hash: Sha256,
    size: u64,
}

impl<W: Write> Hashing<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out, hash: Sha256::new(), size: 0 }
    }

    /// What it wrote to, and the digest and the number of the bytes.
    pub(crate) fn end(self) -> (W, Digest, u64) {
        let digest = format!("sha256:{}", hex(&self.hash.finalize()));
        // It has the form of one, so the empty input's never shows.
        (self.out, digest.parse().unwrap_or_else(|_| Digest::of(b"")), self.size)
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.out.write(bytes)?;
        self.hash.update(bytes.get(..count).unwrap_or(bytes));
        self.size += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn sample(folder: &Path, order: &[&str]) -> Layer {
        let tree = folder.join("tree");
        fs::create_dir_all(tree.join("sub")).unwrap();
        fs::write(tree.join("run"), "#!/bin/sh\n").unwrap();
        fs::write(tree.join("sub/data"), "data").unwrap();
        fs::set_permissions(tree.join("sub/data"), fs::Permissions::from_mode(0o777)).unwrap();
        let mut layer = Layer::default();
        for path in order {
            layer.add(path, Entry::new(Body::Bytes(path.as_bytes().to_vec()), 0o644));
        }
        layer.add_tree("/tree", &tree).unwrap();
        layer.add(&format!("/{}/x", "long".repeat(40)), Entry::new(Body::Link("y".repeat(150)), 0o777));
        let mut server = Entry::new(Body::Bytes(b"\x7fELF".to_vec()), 0o755);
        server.binds_low_ports = true;
        layer.add("/server", server);
        layer
    }

    #[test]
    fn the_same_content_gives_the_same_bytes_whatever_the_order_and_the_times() {
        let folder = tempfile::tempdir().unwrap();
        let one = sample(folder.path(), &["/b", "/a", "/c"]).write(&folder.path().join("1.tar")).unwrap();
        fs::remove_dir_all(folder.path().join("tree")).unwrap();
        let two = sample(folder.path(), &["/c", "/b", "/a"]).write(&folder.path().join("2.tar")).unwrap();
        assert_eq!(fs::read(&one.path).unwrap(), fs::read(&two.path).unwrap());
        assert_eq!((&one.digest, one.size), (&two.digest, two.size));
        assert_eq!(Digest::of(&fs::read(&one.path).unwrap()), one.digest);
        assert_eq!(fs::metadata(&one.path).unwrap().len(), one.size);
    }

    #[test]
    fn entries_are_sorted_and_only_scripts_and_binaries_can_be_run() {
        let folder = tempfile::tempdir().unwrap();
        let blob = sample(folder.path(), &["/a"]).write(&folder.path().join("1.tar")).unwrap();
        let mut archive = tar::Archive::new(File::open(&blob.path).unwrap());
        let mut seen = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let capability = entry
                .pax_extensions()
                .unwrap()
                .is_some_and(|mut all| all.any(|one| one.unwrap().value_bytes() == BIND_LOW_PORTS));
            assert_eq!(entry.header().mtime().unwrap(), 0);
            seen.push((entry.path().unwrap().display().to_string(), entry.header().mode().unwrap(), capability));
        }
        let names: Vec<&str> = seen.iter().map(|(name, _, _)| name.as_str()).collect();
        assert!(names.is_sorted(), "{names:?}");
        let found = |name: &str| seen.iter().find(|(path, _, _)| path == name).map(|(_, mode, low)| (*mode, *low));
        assert_eq!(found("tree/run"), Some((0o755, false)));
        assert_eq!(found("tree/sub/data"), Some((0o644, false)));
        assert_eq!(found("server"), Some((0o755, true)));
        assert!(found(&format!("{}/x", "long".repeat(40))).is_some());
    }

    #[test]
    fn a_file_that_is_shorter_than_it_was_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "12345").unwrap();
        let mut layer = Layer::default();
        layer.add("/part", Entry::new(Body::Part { file: file.clone(), offset: 1, length: 3 }, 0o644));
        layer.write(&folder.path().join("good.tar")).unwrap();
        layer.add("/part", Entry::new(Body::Part { file, offset: 3, length: 3 }, 0o644));
        assert!(layer.write(&folder.path().join("bad.tar")).is_err());
    }
}
