//! The folder of built things: one entry per key, whole or absent.
//!
//! An entry is made in a folder beside it and renamed when it is complete and on the disk, so what has its name is good
//! without being looked into. One build at a time changes the cache; others wait for it. What a killed build left is
//! removed by the next one.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use forge_core::digest::Digest;

/// What names of unfinished entries start with.
const UNFINISHED: &str = ".building-";
const LOCK: &str = ".lock";
const LOGS: &str = "logs";

/// Why the cache cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// There is no place for it.
    #[error("there is no cache folder: none of `FORGE_CACHE`, `XDG_CACHE_HOME` and `HOME` is set")]
    NoPlace,
    /// A file or folder of it could not be made, written, renamed or removed.
    #[error("failed to {act} `{path}`: {error}")]
    Touch {
        /// What was tried.
        act: &'static str,
        /// Where.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// The disk is full.
    #[error("the disk that holds `{path}` is full")]
    DiskFull {
        /// What was to be written.
        path: PathBuf,
    },
}

impl CacheError {
    /// The error of an act on a path; a full disk is its own.
    pub(crate) fn new(act: &'static str, path: &Path, error: io::Error) -> Self {
        let path = path.to_owned();
        if is_disk_full(&error) { Self::DiskFull { path } } else { Self::Touch { act, path, error } }
    }
}

/// Whether this is the error of a disk, or of the user's share of it, that is full.
pub(crate) fn is_disk_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// The name of an entry: what it is, which version, and a hash of all that it is made from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(String);

impl Key {
    /// The key of a thing that is made from this.
    pub fn new(name: &str, version: Option<&str>, made_from: &Digest) -> Self {
        let hash = made_from.short(12);
        Self(match version {
            Some(version) => format!("{name}-{version}-{hash}"),
            None => format!("{name}-{hash}"),
        })
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The folder of built things.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// The user's: `sandbox` in `$FORGE_CACHE`, `$XDG_CACHE_HOME/forge` or `$HOME/.cache/forge`.
    pub fn of_user() -> Result<Self, CacheError> {
        Self::of_environment(|name| std::env::var_os(name))
    }

    fn of_environment(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, CacheError> {
        let path = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let forge = path("FORGE_CACHE")
            // The XDG specification says to ignore relative paths.
            .or_else(|| path("XDG_CACHE_HOME").filter(|path| path.is_absolute()).map(|path| path.join("forge")))
            .or_else(|| path("HOME").map(|path| path.join(".cache/forge")))
            .ok_or(CacheError::NoPlace)?;
        let root = std::path::absolute(forge.join("sandbox"))
            .map_err(|error| CacheError::new("find the folder", &forge, error))?;
        Ok(Self { root })
    }

    /// One in this folder, which need not exist.
    pub fn at(root: PathBuf) -> Self {
        Self { root }
    }

    /// Its folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where the entry is, or would be.
    pub fn entry(&self, key: &Key) -> PathBuf {
        self.root.join(key.as_str())
    }

    /// Whether the entry is there.
    pub fn has(&self, key: &Key) -> bool {
        self.entry(key).is_dir()
    }

    /// Notes that the entry is in use, which keeps it. A cache that may not be written to is not cleaned up either.
    pub fn used(&self, key: &Key) {
        let _ = File::open(self.entry(key)).and_then(|entry| entry.set_modified(SystemTime::now()));
    }

    /// Where the output of a build that failed is kept.
    pub(crate) fn log(&self, key: &Key) -> PathBuf {
        self.root.join(LOGS).join(format!("{key}.log"))
    }

    /// Takes the right to change the cache. If another build has it, says whose process that is and waits.
    pub fn lock(&self, waiting: impl FnOnce(Option<u32>)) -> Result<Lock<'_>, CacheError> {
        let logs = self.root.join(LOGS);
        fs::create_dir_all(&logs).map_err(|error| CacheError::new("make the folder", &logs, error))?;
        let path = self.root.join(LOCK);
        let failed = |error| CacheError::new("lock", &path, error);
        // Never removed: who waits for a removed lock would hold another one than who comes later.
        let mut file =
            File::options().read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let _ = file.read_to_string(&mut holder);
                waiting(holder.trim().parse().ok());
                file.lock().map_err(failed)?;
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let written = file.set_len(0).and_then(|()| io::Seek::rewind(&mut file));
        written.and_then(|()| writeln!(file, "{}", std::process::id())).map_err(failed)?;
        let lock = Lock { cache: self, _file: file };
        lock.sweep()?;
        Ok(lock)
    }
}

/// The right to change the cache, given back when dropped, whatever happens to the process.
#[derive(Debug)]
pub struct Lock<'a> {
    cache: &'a Cache,
    _file: File,
}

impl Lock<'_> {
    /// Removes what killed builds left: while this lock is held nobody else builds.
    fn sweep(&self) -> Result<(), CacheError> {
        let root = &self.cache.root;
        let failed = |error| CacheError::new("look into", root, error);
        for entry in fs::read_dir(root).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
                remove(&entry.path())?;
            }
        }
        Ok(())
    }

    /// Removes entries that were not used for so long, by this or any other version of Forge, and says how many.
    pub fn forget(&self, unused_for: Duration) -> Result<usize, CacheError> {
        let root = &self.cache.root;
        let failed = |error| CacheError::new("look into", root, error);
        let mut forgotten = 0;
        for entry in fs::read_dir(root).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let metadata = entry.metadata().map_err(failed)?;
            let age = metadata.modified().ok().and_then(|used| used.elapsed().ok()).unwrap_or_default();
            if metadata.is_dir() && name != LOGS && !name.starts_with('.') && age > unused_for {
                // Renamed first: half of an entry must not have its name.
                let unfinished = root.join(format!("{UNFINISHED}{name}"));
                fs::rename(entry.path(), &unfinished).map_err(|error| CacheError::new("remove", &unfinished, error))?;
                remove(&unfinished)?;
                forgotten += 1;
            }
        }
        Ok(forgotten)
    }

    /// An empty folder in which the entry can be made.
    pub fn begin(&self, key: &Key) -> Result<Unfinished, CacheError> {
        let path = self.cache.root.join(format!("{UNFINISHED}{key}"));
        remove(&path)?;
        fs::create_dir(&path).map_err(|error| CacheError::new("make the folder", &path, error))?;
        Ok(Unfinished { path, entry: self.cache.entry(key) })
    }
}

/// An entry in the making; gone when dropped.
#[derive(Debug)]
pub struct Unfinished {
    path: PathBuf,
    entry: PathBuf,
}

impl Unfinished {
    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes it the entry. The files reach the disk first: a machine that loses power must not keep a name without
    /// content.
    pub fn publish(self) -> Result<PathBuf, CacheError> {
        sync(&self.path)?;
        fs::rename(&self.path, &self.entry).map_err(|error| CacheError::new("publish", &self.entry, error))?;
        Ok(self.entry.clone())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Published: nothing there. Otherwise what cannot be removed now is removed by the next build.
        let _ = remove(&self.path);
    }
}

fn remove(path: &Path) -> Result<(), CacheError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(CacheError::new("remove", path, error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn sync(folder: &Path) -> Result<(), CacheError> {
    let failed = |path: &Path, error| CacheError::new("write", path, error);
    for entry in fs::read_dir(folder).map_err(|error| failed(folder, error))? {
        let entry = entry.map_err(|error| failed(folder, error))?;
        let (path, kind) = (entry.path(), entry.file_type());
        let kind = kind.map_err(|error| failed(&path, error))?;
        if kind.is_dir() {
            sync(&path)?;
        } else if kind.is_file() {
            File::open(&path).and_then(|file| file.sync_all()).map_err(|error| failed(&path, error))?;
        }
    }
    File::open(folder).and_then(|file| file.sync_all()).map_err(|error| failed(folder, error))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    fn key(text: &str) -> Key {
        Key::new("thing", Some("v1"), &Digest::of(text.as_bytes()))
    }

    fn cache() -> (tempfile::TempDir, Cache) {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().join("sandbox"));
        (folder, cache)
    }

    #[test]
    fn the_place_follows_forge_then_xdg_then_home() {
        let place = |set: &[(&str, &str)]| {
            let set: Vec<(String, String)> = set.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
            Cache::of_environment(|name| set.iter().find(|(n, _)| n == name).map(|(_, v)| v.into()))
                .map(|cache| cache.root.display().to_string())
        };
        assert_eq!(place(&[("FORGE_CACHE", "/f"), ("HOME", "/h")]).unwrap(), "/f/sandbox");
        assert_eq!(place(&[("XDG_CACHE_HOME", "/x"), ("HOME", "/h")]).unwrap(), "/x/forge/sandbox");
        assert_eq!(place(&[("XDG_CACHE_HOME", "x"), ("HOME", "/h")]).unwrap(), "/h/.cache/forge/sandbox");
        assert_eq!(place(&[("FORGE_CACHE", ""), ("HOME", "/h")]).unwrap(), "/h/.cache/forge/sandbox");
        assert!(matches!(place(&[]), Err(CacheError::NoPlace)));
    }

    #[test]
    fn an_entry_is_there_only_once_it_is_published() {
        let (_folder, cache) = cache();
        let lock = cache.lock(|_| panic!("nobody else is here")).unwrap();
        let unfinished = lock.begin(&key("a")).unwrap();
        fs::create_dir(unfinished.path().join("bin")).unwrap();
        fs::write(unfinished.path().join("bin/x"), "x").unwrap();
        std::os::unix::fs::symlink("nowhere", unfinished.path().join("bin/y")).unwrap();
        assert!(!cache.has(&key("a")));
        let entry = unfinished.publish().unwrap();
        assert!(cache.has(&key("a")));
        assert_eq!(fs::read_to_string(entry.join("bin/x")).unwrap(), "x");
    }

    #[test]
    fn what_fails_or_is_killed_leaves_no_entry_and_is_swept() {
        let (_folder, cache) = cache();
        let lock = cache.lock(|_| ()).unwrap();
        let failed = lock.begin(&key("failed")).unwrap();
        let failed_path = failed.path().to_owned();
        drop(failed);
        assert!(!failed_path.exists());

        let killed = lock.begin(&key("killed")).unwrap();
        fs::write(killed.path().join("half"), "half").unwrap();
        let killed_path = killed.path().to_owned();
        std::mem::forget(killed);
        drop(lock);
        assert!(killed_path.exists() && !cache.has(&key("killed")));
        drop(cache.lock(|_| ()).unwrap());
        assert!(!killed_path.exists());
    }

    #[test]
    fn the_second_of_two_builds_says_whom_it_waits_for_and_waits() {
        let (_folder, cache) = cache();
        let (tell, told) = mpsc::channel();
        let first = cache.lock(|_| panic!("nobody else is here")).unwrap();
        let other = cache.clone();
        let second = thread::spawn(move || {
            let waits = tell.clone();
            let lock = other.lock(move |holder| waits.send(holder).unwrap()).unwrap();
            tell.send(None).unwrap();
            drop(lock);
        });
        assert_eq!(told.recv().unwrap(), Some(std::process::id()));
        assert!(told.try_recv().is_err());
        drop(first);
        assert_eq!(told.recv().unwrap(), None);
        second.join().unwrap();
    }

    #[test]
    fn only_what_nobody_used_for_long_is_forgotten() {
        let (_folder, cache) = cache();
        let lock = cache.lock(|_| ()).unwrap();
        let month = Duration::from_secs(30 * 24 * 3600);
        for name in ["old", "used", "new"] {
            let unfinished = lock.begin(&key(name)).unwrap();
            fs::write(unfinished.path().join("file"), name).unwrap();
            let entry = unfinished.publish().unwrap();
            if name != "new" {
                File::open(entry).unwrap().set_modified(SystemTime::now() - month).unwrap();
            }
        }
        cache.used(&key("used"));
        assert_eq!(lock.forget(month / 2).unwrap(), 1);
        assert!(!cache.has(&key("old")) && cache.has(&key("used")) && cache.has(&key("new")));
        assert!(cache.root().join(LOGS).is_dir());
    }

    #[test]
    fn a_full_disk_is_told_from_other_errors() {
        let full = |code| {
            let error = io::Error::from_raw_os_error(code);
            matches!(CacheError::new("write", Path::new("/x"), error), CacheError::DiskFull { .. })
        };
        assert!(full(nix::errno::Errno::ENOSPC as i32));
        assert!(full(nix::errno::Errno::EDQUOT as i32));
        assert!(!full(nix::errno::Errno::EACCES as i32));
    }
}
