//! OCI image layouts in folders: what `release build` writes, and what carries releases to where no registry is in reach.
//!
//! A layout appears whole, or grows so that whoever reads it meanwhile finds only what is complete: blobs first, the index last.
//! What is read is checked like what comes from a registry. No link below the folder is followed, in either direction.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use forge_core::code::Code;
use forge_core::digest::Digest;
use forge_core::failure::Failure;
use forge_core::oci::{Descriptor, Entry, REF_NAME, Tree};
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use serde_json::{Value, json};

use crate::registry;

/// What says that a folder is a layout.
const MARK: &str = "oci-layout";
/// What says what is in it.
const INDEX: &str = "index.json";
/// What the two above may come to.
const MOST_INDEX: u64 = 4 << 20;
/// How many things a layout may offer.
const MOST_ROOTS: usize = 10_000;

/// Why a layout cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LayoutError {
    /// The machine does not let us.
    #[error("failed to read `{place}`: {error}")]
    Read {
        /// Which file or folder.
        place: String,
        /// Why not.
        error: io::Error,
    },
    /// It is something else.
    #[error("`{place}` is no OCI layout: {why}")]
    NotALayout {
        /// Which folder.
        place: String,
        /// How that showed.
        why: String,
    },
    /// It is not in there.
    #[error("{what} is not in `{place}`")]
    Missing {
        /// Which blob.
        what: Digest,
        /// Which folder.
        place: String,
    },
    /// It is in there, and is something else.
    #[error("{what} in `{place}` is not what it should be: {why}")]
    Corrupt {
        /// Which blob.
        what: Digest,
        /// Which folder.
        place: String,
        /// How that showed.
        why: String,
    },
    /// There is more of it than is taken.
    #[error("{what} in `{place}` has {size} bytes; at most {most} are taken")]
    TooLarge {
        /// Which blob.
        what: Digest,
        /// Which folder.
        place: String,
        /// How much there is.
        size: u64,
        /// How much may be.
        most: u64,
    },
    /// Something else is where a layout should be.
    #[error("`{place}` is there already, and is no OCI layout")]
    Occupied {
        /// Which folder.
        place: String,
    },
    /// The machine does not let us.
    #[error("failed to write `{place}`: {error}")]
    Write {
        /// Which folder.
        place: String,
        /// Why not.
        error: io::Error,
    },
}

impl From<LayoutError> for Failure {
    fn from(error: LayoutError) -> Self {
        let (code, hint) = match &error {
            LayoutError::Read { .. } => (Code::Unreadable, "check its name and who may read it"),
            LayoutError::NotALayout { .. } => (Code::ReleaseMalformed, "name a folder that `--output-layout` wrote"),
            LayoutError::Missing { .. } => (Code::ReleaseMissing, "copy the whole folder, or build the release again"),
            LayoutError::Corrupt { .. } => (Code::ReleaseCorrupt, "copy the folder again, or build the release again"),
            LayoutError::TooLarge { .. } => (Code::ReleaseTooLarge, "a release that is this large cannot be deployed"),
            LayoutError::Occupied { .. } => (Code::BadArgument, "name a folder that is empty or not there"),
            LayoutError::Write { .. } => (Code::CannotWrite, "make room, or check who may write there"),
        };
        Self::new(code, &error).hint(hint)
    }
}

/// A layout that is there.
#[derive(Debug)]
pub(crate) struct LayoutFolder {
    place: String,
    folder: File,
    roots: Vec<Descriptor>,
}

impl LayoutFolder {
    /// Opens a layout.
    ///
    /// # Errors
    /// When it is none.
    pub(crate) fn open(path: &Path) -> Result<Self, LayoutError> {
        let place = path.display().to_string();
        let unread = |error: io::Error| LayoutError::Read { place: place.clone(), error };
        let folder = File::open(path).map_err(unread)?;
        let (_, index) = marked(&folder, &place)?;
        let not = |why: String| LayoutError::NotALayout { place: place.clone(), why };
        let roots = registry::index(&index, MOST_ROOTS).map_err(|why| not(format!("{INDEX}: {why}")))?;
        Ok(Self { folder, roots, place })
    }

    /// What it offers, with the names that it has for it.
    pub(crate) fn roots(&self) -> &[Descriptor] {
        &self.roots
    }

    /// A blob, which is what it should be.
    ///
    /// # Errors
    /// When it is not there, is too large, or is something else.
    pub(crate) fn blob(&self, what: &Descriptor, most: u64) -> Result<Vec<u8>, LayoutError> {
        let (place, digest) = (|| self.place.clone(), &what.digest);
        let missing = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => LayoutError::Missing { what: digest.clone(), place: place() },
            _ => LayoutError::Read { place: format!("{}/blobs/sha256/{}", self.place, digest.short(64)), error },
        };
        let corrupt = |why: String| LayoutError::Corrupt { what: digest.clone(), place: place(), why };
        if what.size > most {
            return Err(LayoutError::TooLarge { what: digest.clone(), place: place(), size: what.size, most });
        }
        let open = || regular(&folder(&folder(&self.folder, "blobs")?, "sha256")?, digest.short(64));
        let file = open().map_err(missing)?;
        let mut bytes = Vec::new();
        file.take(what.size.saturating_add(1)).read_to_end(&mut bytes).map_err(missing)?;
        if bytes.len() as u64 != what.size {
            return Err(corrupt(format!("it has not the {} bytes that it should have", what.size)));
        }
        let found = Digest::of(&bytes);
        if found != *digest {
            return Err(corrupt(format!("its digest is {found}")));
        }
        Ok(bytes)
    }
}

/// Writes a layout: as a new folder, or into one that is there. What that offers stays, but for what has the same name.
///
/// # Errors
/// When something else is there, or it cannot be written. Then nothing of it is offered.
pub(crate) fn write(path: &Path, layout: &Tree) -> Result<(), LayoutError> {
    let place = path.display().to_string();
    let failed = |error: io::Error| LayoutError::Write { place: place.clone(), error };
    match fs::read_dir(path).map(|mut entries| entries.next().is_none()) {
        // Something is in it.
        Ok(false) => {
            let folder = File::open(path).map_err(failed)?;
            // Held until the end, so that two who add something lose nothing.
            folder.lock().map_err(failed)?;
            return match add(&folder, layout, &place) {
                Err(LayoutError::NotALayout { .. } | LayoutError::Read { .. }) => Err(LayoutError::Occupied { place }),
                other => other,
            };
        }
        Ok(true) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Err(LayoutError::Occupied { place }),
        Err(error) => return Err(failed(error)),
    }
    appear(path, layout).map_err(failed)
}

/// Adds to a layout that is there, if what it offers under a name is still this, or nothing; false where it is not, and nothing is
/// written then.
///
/// # Errors
/// When it is no layout, or cannot be written.
pub(crate) fn replace(path: &Path, layout: &Tree, name: &str, before: Option<&Digest>) -> Result<bool, LayoutError> {
    let place = path.display().to_string();
    let failed = |error: io::Error| LayoutError::Write { place: place.clone(), error };
    let folder = File::open(path).map_err(failed)?;
    // From the look at what is there to the end.
    folder.lock().map_err(failed)?;
    let (index, _) = marked(&folder, &place)?;
    let mut roots = index.get("manifests").and_then(Value::as_array).into_iter().flatten();
    let there = roots
        .find(|root| root.get("annotations").and_then(|all| all.get(REF_NAME)).and_then(Value::as_str) == Some(name));
    if there.and_then(|root| root.get("digest")).and_then(Value::as_str) != before.map(Digest::as_str) {
        return Ok(false);
    }
    add(&folder, layout, &place).map(|()| true)
}

/// A new folder with files, which is there whole or not at all; an empty one may be there.
///
/// # Errors
/// When it cannot be written, or something is there.
pub(crate) fn appear(path: &Path, tree: &Tree) -> io::Result<()> {
    let beside = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    fs::create_dir_all(&beside)?;
    let unfinished = tempfile::Builder::new().prefix(".forge-layout-").tempdir_in(&beside)?;
    for (name, entry) in tree.entries() {
        let Entry::File { content, mode } = entry else { continue };
        let file = unfinished.path().join(name);
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut file = File::create_new(file)?;
        file.set_permissions(fs::Permissions::from_mode(*mode))?;
        file.write_all(content)?;
        file.sync_all()?;
    }
    fs::set_permissions(unfinished.path(), fs::Permissions::from_mode(0o755))?;
    // Over an empty folder too; over nothing else.
    fs::rename(unfinished.path(), path)?;
    let _ = unfinished.keep();
    File::open(beside)?.sync_all()
}

/// Adds to a layout that is there and locked.
fn add(root: &File, tree: &Tree, place: &str) -> Result<(), LayoutError> {
    let failed = |error: io::Error| LayoutError::Write { place: place.to_owned(), error };
    let (mut index, _) = marked(root, place)?;
    let blobs = made(root, "blobs").and_then(|blobs| made(&blobs, "sha256")).map_err(failed)?;
    for (path, entry) in tree.entries() {
        if let (Some(name), Entry::File { content, .. }) = (path.strip_prefix("blobs/sha256/"), entry) {
            keep(&blobs, name, content).map_err(failed)?;
        }
    }
    let Some(Entry::File { content, .. }) = tree.get(INDEX) else { return Ok(()) };
    let offered: Value = serde_json::from_slice(content).unwrap_or_default();
    let offered = offered.get("manifests").and_then(Value::as_array).cloned().unwrap_or_default();
    let name = |root: &Value| root.get("annotations").and_then(|all| all.get(REF_NAME)).cloned();
    if let Some(Value::Array(roots)) = index.get_mut("manifests") {
        // What is offered under a name that is taken takes it.
        roots.retain(|old| {
            !offered.iter().any(|new| match name(new) {
                Some(taken) => name(old) == Some(taken),
                None => name(old).is_none() && old.get("digest") == new.get("digest"),
            })
        });
        roots.extend(offered);
    }
    index.sort_all_objects();
    place_file(root, INDEX, index.to_string().as_bytes()).map_err(failed)?;
    root.sync_all().map_err(failed)
}

/// The index of a folder that says of itself that it is a layout; also as bytes.
fn marked(root: &File, place: &str) -> Result<(Value, Vec<u8>), LayoutError> {
    let not = |why: String| LayoutError::NotALayout { place: place.to_owned(), why };
    let part = |name: &'static str| {
        let unread = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => not(format!("it has no `{name}`")),
            _ => LayoutError::Read { place: format!("{place}/{name}"), error },
        };
        let file = regular(root, name).map_err(unread)?;
        let mut bytes = Vec::new();
        file.take(MOST_INDEX + 1).read_to_end(&mut bytes).map_err(unread)?;
        if bytes.len() as u64 > MOST_INDEX {
            return Err(not(format!("`{name}` has more than {MOST_INDEX} bytes")));
        }
        let value: Value =
            serde_json::from_slice(&bytes).map_err(|error| not(format!("`{name}` is no JSON: {error}")))?;
        Ok((value, bytes))
    };
    let (mark, _) = part(MARK)?;
    if mark.get("imageLayoutVersion") != Some(&json!("1.0.0")) {
        return Err(not(format!("`{MARK}` names no version that is known")));
    }
    let (index, bytes) = part(INDEX)?;
    if !index.get("manifests").is_some_and(Value::is_array) {
        return Err(not(format!("`{INDEX}` lists no manifests")));
    }
    Ok((index, bytes))
}

/// A folder right below another one, which is no link.
fn folder(below: &impl std::os::fd::AsFd, name: &str) -> io::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Ok(openat(below, name, flags, Mode::empty())?)
}

/// The same, made if it is not there.
fn made(below: &impl std::os::fd::AsFd, name: &str) -> io::Result<OwnedFd> {
    match mkdirat(below, name, Mode::from_bits_truncate(0o755)) {
        Ok(()) | Err(Errno::EEXIST) => folder(below, name),
        Err(error) => Err(error.into()),
    }
}

/// A regular file right below a folder, which is no link; one that is something else is not waited for.
fn regular(below: &impl std::os::fd::AsFd, name: &str) -> io::Result<File> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = match openat(below, name, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::ELOOP) => return Err(io::Error::other("it is a link, and none is followed")),
        Err(error) => return Err(error.into()),
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    Ok(file)
}

/// A blob, unless the same one is there; one that is broken is replaced.
fn keep(blobs: &OwnedFd, name: &str, content: &[u8]) -> io::Result<()> {
    let there = regular(blobs, name).and_then(|file| {
        let mut bytes = Vec::new();
        file.take(content.len() as u64 + 1).read_to_end(&mut bytes)?;
        Ok(bytes == content)
    });
    match there {
        Ok(true) => Ok(()),
        Ok(false) => place_file(blobs, name, content),
        Err(error) if error.kind() == io::ErrorKind::NotFound => place_file(blobs, name, content),
        Err(error) => Err(error),
    }
}

/// Through another file beside it, so that a reader sees the old one or the new one.
fn place_file(below: &impl std::os::fd::AsFd, name: &str, content: &[u8]) -> io::Result<()> {
    let unfinished = format!(".{name}.forge-{}", std::process::id());
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    // One that a process of the same number left behind when it was killed; whoever writes holds the lock.
    let _ = unlinkat(below, unfinished.as_str(), UnlinkatFlags::NoRemoveDir);
    let mut file = File::from(openat(below, unfinished.as_str(), flags, Mode::from_bits_truncate(0o644))?);
    let written = file.write_all(content).and_then(|()| file.sync_all());
    let written = written.and_then(|()| Ok(renameat(below, unfinished.as_str(), below, name)?));
    if written.is_err() {
        let _ = unlinkat(below, unfinished.as_str(), UnlinkatFlags::NoRemoveDir);
    }
    written
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use forge_core::oci::{Annotations, Artifact, Layout, media_type};

    use super::*;

    /// A layout with one artifact, and its manifest.
    fn layout(content: &str, name: &str) -> (Layout, Descriptor, Descriptor) {
        let mut layout = Layout::default();
        let layer = layout.blob("text/plain", content.as_bytes().to_vec());
        let (layers, annotations) = ([layer.clone()], Annotations::new());
        let manifest = layout.artifact(&Artifact::new("application/x", &layers, &annotations));
        layout.offer(manifest.clone(), Some(name));
        (layout, manifest, layer)
    }

    fn names(folder: &LayoutFolder) -> Vec<(&str, &Digest)> {
        folder.roots().iter().map(|root| (root.annotations[REF_NAME].as_str(), &root.digest)).collect()
    }

    #[test]
    fn what_is_written_is_read_back_and_a_second_time_changes_nothing() {
        let temporary = tempfile::tempdir().unwrap();
        for path in [temporary.path().join("a/b"), temporary.path().join("empty")] {
            if path.ends_with("empty") {
                fs::create_dir(&path).unwrap();
            }
            let (made, manifest, layer) = layout("one", "v1");
            write(&path, &made.tree()).unwrap();
            let first = fs::read(path.join(INDEX)).unwrap();
            write(&path, &layout("one", "v1").0.tree()).unwrap();
            assert_eq!(fs::read(path.join(INDEX)).unwrap(), first);
            let folder = LayoutFolder::open(&path).unwrap();
            assert_eq!(names(&folder), [("v1", &manifest.digest)]);
            assert_eq!(folder.roots()[0].media_type, media_type::MANIFEST);
            assert_eq!(folder.blob(&layer, 3).unwrap(), b"one");
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o755);
        }
        // Nothing unfinished is left beside them.
        let left: Vec<_> = fs::read_dir(temporary.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left.len(), 2, "{left:?}");
    }

    #[test]
    fn a_layout_grows_and_a_name_is_given_to_what_came_last() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("layout");
        let (one, first, layer) = layout("one", "v1");
        let (two, second, _) = layout("two", "v2");
        let (three, third, _) = layout("three", "v1");
        write(&path, &one.tree()).unwrap();
        write(&path, &two.tree()).unwrap();
        let folder = LayoutFolder::open(&path).unwrap();
        assert_eq!(names(&folder), [("v1", &first.digest), ("v2", &second.digest)]);
        // One who reads goes on to find what was offered.
        write(&path, &three.tree()).unwrap();
        assert_eq!(folder.blob(&layer, 10).unwrap(), b"one");
        let folder = LayoutFolder::open(&path).unwrap();
        assert_eq!(names(&folder), [("v2", &second.digest), ("v1", &third.digest)]);
    }

    #[test]
    fn nobody_replaces_what_he_has_not_read() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("layout");
        let (one, first, _) = layout("one", "v1");
        let (two, second, _) = layout("two", "v1");
        assert!(matches!(replace(&path, &layout("one", "v1").0.tree(), "v1", None), Err(LayoutError::Write { .. })));
        write(&path, &one.tree()).unwrap();
        let two = two.tree();
        for stale in [None, Some(&second.digest)] {
            assert!(!replace(&path, &two, "v1", stale).unwrap());
            assert_eq!(names(&LayoutFolder::open(&path).unwrap()), [("v1", &first.digest)]);
        }
        assert!(replace(&path, &two, "v1", Some(&first.digest)).unwrap());
        assert_eq!(names(&LayoutFolder::open(&path).unwrap()), [("v1", &second.digest)]);
        let (three, third, _) = layout("three", "v2");
        assert!(replace(&path, &three.tree(), "v2", None).unwrap());
        assert_eq!(names(&LayoutFolder::open(&path).unwrap()), [("v1", &second.digest), ("v2", &third.digest)]);
    }

    #[test]
    fn a_broken_blob_is_refused_and_mended_by_writing_it_again() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("layout");
        let (made, _, layer) = layout("one", "v1");
        write(&path, &made.tree()).unwrap();
        let blob = path.join("blobs/sha256").join(layer.digest.short(64));
        let refused = |why: &str| {
            let error = LayoutFolder::open(&path).unwrap().blob(&layer, 10).unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
            Failure::from(error).code
        };
        for (text, why) in [("onf", "its digest"), ("on", "3 bytes"), ("onee", "3 bytes")] {
            fs::write(&blob, text).unwrap();
            assert_eq!(refused(why), Code::ReleaseCorrupt);
        }
        fs::remove_file(&blob).unwrap();
        assert_eq!(refused("is not in"), Code::ReleaseMissing);
        write(&path, &layout("one", "v1").0.tree()).unwrap();
        fs::write(&blob, "onf").unwrap();
        write(&path, &layout("one", "v1").0.tree()).unwrap();
        let folder = LayoutFolder::open(&path).unwrap();
        assert_eq!(folder.blob(&layer, 3).unwrap(), b"one");
        let error = folder.blob(&layer, 2).unwrap_err();
        assert_eq!(Failure::from(error).code, Code::ReleaseTooLarge);
    }

    #[test]
    fn what_is_no_layout_is_neither_read_nor_written_to() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("other");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("precious"), "x").unwrap();
        let file = temporary.path().join("file");
        fs::write(&file, "x").unwrap();
        for taken in [&path, &file] {
            let error = write(taken, &layout("one", "v1").0.tree()).unwrap_err();
            assert!(matches!(error, LayoutError::Occupied { .. }), "{error}");
        }
        assert_eq!(fs::read_dir(&path).unwrap().count(), 1);
        for (name, text) in [
            (MARK, "{}"),
            (MARK, "nonsense"),
            (MARK, r#"{"imageLayoutVersion":"2.0.0"}"#),
            (MARK, r#"{"imageLayoutVersion":"1.0.0"}"#),
            (INDEX, "{}"),
            (INDEX, r#"{"manifests":[{"digest":"sha256:00","size":1}]}"#),
        ] {
            fs::write(path.join(name), text).unwrap();
            let error = LayoutFolder::open(&path).unwrap_err();
            assert!(matches!(error, LayoutError::NotALayout { .. }), "{text}: {error}");
        }
        assert_eq!(Failure::from(LayoutFolder::open(&temporary.path().join("no")).unwrap_err()).code, Code::Unreadable);
    }

    #[test]
    fn no_link_is_followed_out_of_a_layout() {
        let temporary = tempfile::tempdir().unwrap();
        let (outside, path) = (temporary.path().join("outside"), temporary.path().join("layout"));
        let (made, _, layer) = layout("one", "v1");
        write(&path, &made.tree()).unwrap();
        let name = layer.digest.short(64).to_owned();
        // The blob, then the folders above it.
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join(&name), "one").unwrap();
        fs::remove_file(path.join("blobs/sha256").join(&name)).unwrap();
        symlink(outside.join(&name), path.join("blobs/sha256").join(&name)).unwrap();
        let error = LayoutFolder::open(&path).unwrap().blob(&layer, 10).unwrap_err();
        assert!(error.to_string().contains("link"), "{error}");
        assert!(matches!(write(&path, &layout("one", "v1").0.tree()), Err(LayoutError::Write { .. })));
        fs::remove_dir_all(path.join("blobs/sha256")).unwrap();
        symlink(&outside, path.join("blobs/sha256")).unwrap();
        assert!(LayoutFolder::open(&path).unwrap().blob(&layer, 10).is_err());
        assert!(matches!(write(&path, &layout("two", "v2").0.tree()), Err(LayoutError::Write { .. })));
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
        // What was not written whole is not offered.
        assert_eq!(LayoutFolder::open(&path).unwrap().roots().len(), 1);
        fs::rename(path.join(INDEX), temporary.path().join("index")).unwrap();
        symlink(temporary.path().join("index"), path.join(INDEX)).unwrap();
        assert!(LayoutFolder::open(&path).unwrap_err().to_string().contains("link"));
    }

    #[test]
    fn what_two_write_at_once_is_all_there() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("layout");
        write(&path, &layout("first", "v").0.tree()).unwrap();
        std::thread::scope(|scope| {
            for number in 0..8 {
                let path = &path;
                scope
                    .spawn(move || write(path, &layout(&format!("{number}"), &format!("v{number}")).0.tree()).unwrap());
            }
        });
        assert_eq!(LayoutFolder::open(&path).unwrap().roots().len(), 9);
    }
}
