//! The one folder that holds everything of a sandbox: certificates, configuration, data, logs, and what its processes see as
//! `/run`, `/var` and `/tmp`.
//!
//! Whoever changes a sandbox holds the lock beside its folder; the kernel lets go of it when the holder dies.

use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::range::Range;

/// What can be wrong with the folder of a sandbox.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Not a name.
    #[error("`{0}` cannot name a sandbox: use 1 to 20 lower-case letters, digits and dashes, beginning with a letter")]
    Name(String),
    /// Somebody else changes it.
    #[error("sandbox `{name}` is being changed by another process ({holder})")]
    Busy {
        /// Which.
        name: Name,
        /// What is known of the holder.
        holder: String,
    },
    /// Something is there that is no sandbox.
    #[error("`{path}` exists and is not the folder of a sandbox: {why}")]
    Foreign {
        /// Where.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The disk said no.
    #[error("failed to {act} `{path}`: {source}")]
    Disk {
        /// What was tried.
        act: &'static str,
        /// Where.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
}

/// The name of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(String);

impl Name {
    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = FolderError;

    fn from_str(text: &str) -> Result<Self, FolderError> {
        let fits = (1..=20).contains(&text.len())
            && text.starts_with(|letter: char| letter.is_ascii_lowercase())
            && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        if fits { Ok(Self(text.to_owned())) } else { Err(FolderError::Name(text.to_owned())) }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What is remembered of a sandbox between commands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Of this file.
    pub format: u32,
    /// Its addresses; none until they are taken.
    pub range: Option<Range>,
    /// How many simulated nodes it has.
    pub nodes: u32,
    /// Which components it was told to install.
    #[serde(default)]
    pub with: Vec<String>,
    /// A `down` has begun to remove it: nothing that is still there can be trusted.
    #[serde(default)]
    pub removing: bool,
}

/// The format that this version reads and writes.
pub const FORMAT: u32 = 1;

/// PID 1 of a sandbox, as the host sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InitRecord {
    /// Its process id on the host.
    pub pid: i32,
    /// When it started, in clock ticks since boot: a process id alone may be somebody else's by now.
    pub started: u64,
    /// Which boot that was.
    pub boot: Boot,
}

/// A boot of this machine, as the kernel names it.
pub type Boot = String;

/// The boot that this is.
pub fn boot() -> Boot {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// The folder of one sandbox.
#[derive(Debug, Clone)]
pub struct Folder {
    /// Of the sandbox.
    pub name: Name,
    path: PathBuf,
}

/// Held while a sandbox is changed.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Folder {
    /// The folder of a sandbox among all of them.
    pub fn new(sandboxes: &Path, name: Name) -> Self {
        Self { path: sandboxes.join(name.as_str()), name }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Something in it.
    pub fn join(&self, inner: impl AsRef<Path>) -> PathBuf {
        self.path.join(inner)
    }

    /// Certificates, keys and kubeconfigs.
    pub fn pki(&self) -> PathBuf {
        self.join("pki")
    }

    /// For people and tests: full rights.
    pub fn kubeconfig(&self) -> PathBuf {
        self.pki().join("admin.kubeconfig")
    }

    /// What a component writes.
    pub fn log(&self, component: &str) -> PathBuf {
        self.join("logs").join(format!("{component}.log"))
    }

    /// Takes the lock, or says who holds it.
    pub fn lock(&self) -> Result<Lock, FolderError> {
        let path = self.path.with_extension("lock");
        let disk = |act| move |source| FolderError::Disk { act, path: self.path.with_extension("lock"), source };
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(disk("create the folder of"))?;
        }
        loop {
            let mut file = File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)
                .map_err(disk("open"))?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let mut holder = String::new();
                    let _ = file.read_to_string(&mut holder);
                    let holder =
                        if holder.is_empty() { "unknown".to_owned() } else { format!("process {}", holder.trim()) };
                    return Err(FolderError::Busy { name: self.name.clone(), holder });
                }
                Err(TryLockError::Error(source)) => return Err(disk("lock")(source)),
            }
            // `down` removes the lock file while it holds it: what was locked may be no longer what the name leads to.
            if !same_file(&file, &path) {
                continue;
            }
            file.set_len(0).and_then(|()| file.rewind()).map_err(disk("write"))?;
            write!(file, "{}", std::process::id()).map_err(disk("write"))?;
            return Ok(Lock { _file: file });
        }
    }

    /// Removes the lock file; only for who holds it and leaves nothing behind.
    pub fn forget_lock(&self, _lock: &Lock) {
        let _ = fs::remove_file(self.path.with_extension("lock"));
    }

    /// What is remembered, if there is a sandbox.
    pub fn record(&self) -> Result<Option<Record>, FolderError> {
        let foreign = |why: String| FolderError::Foreign { path: self.path.clone(), why };
        let path = self.join("sandbox.json");
        match fs::read(&path) {
            Ok(bytes) => {
                let record: Record = serde_json::from_slice(&bytes)
                    .map_err(|error| foreign(format!("its sandbox.json cannot be read ({error})")))?;
                if record.format == FORMAT {
                    return Ok(Some(record));
                }
                Err(foreign(format!("format {} of another version of Forge; this one knows {FORMAT}", record.format)))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => match self.leftovers() {
                true => Err(foreign("it holds other files and no sandbox.json".to_owned())),
                false => Ok(None),
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => Err(foreign("it is a file".to_owned())),
            Err(source) => Err(FolderError::Disk { act: "read", path, source }),
        }
    }

    /// Files that no sandbox of ours put there. An `up` that was killed before its record was written leaves an empty folder
    /// or a draft of the record.
    fn leftovers(&self) -> bool {
        let Ok(entries) = fs::read_dir(&self.path) else { return self.path.exists() };
        entries.flatten().any(|entry| entry.file_name() != "sandbox.json.draft")
    }

    /// Remembers, by one rename.
    pub fn write_record(&self, record: &Record) -> Result<(), FolderError> {
        let text = format!("{:#}\n", serde_json::json!(record));
        self.publish("sandbox.json", &text)
    }

    /// PID 1, if one was started.
    pub fn init(&self) -> Option<InitRecord> {
        serde_json::from_slice(&fs::read(self.join("init.json")).ok()?).ok()
    }

    /// Writes a file of the sandbox by one rename.
    pub fn publish(&self, name: &str, text: &str) -> Result<(), FolderError> {
        let path = self.join(name);
        let draft = self.join(format!("{name}.draft"));
        let failed = |act| move |source| FolderError::Disk { act, path: self.join(name), source };
        if let Some(parent) = path.parent() {
            // Keys, volumes and the components' own files: for nobody but their owner.
            fs::DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(failed("create the folder of"))?;
        }
        fs::write(&draft, text).map_err(failed("write"))?;
        fs::rename(&draft, &path).map_err(failed("write"))
    }

    /// Makes folders in it.
    pub fn create(&self, inner: &[&str]) -> Result<(), FolderError> {
        for name in inner {
            let path = self.join(name);
            fs::create_dir_all(&path).map_err(|source| FolderError::Disk { act: "create", path, source })?;
        }
        Ok(())
    }

    /// Removes everything. The record goes last: what is half removed must still be known as ours.
    pub fn remove(&self) -> Result<(), FolderError> {
        let failed = |source| FolderError::Disk { act: "remove", path: self.path.clone(), source };
        let entries = match fs::read_dir(&self.path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            other => other.map_err(failed)?,
        };
        for entry in entries {
            let entry = entry.map_err(failed)?;
            if entry.file_name() == "sandbox.json" {
                continue;
            }
            let kind = entry.file_type().map_err(failed)?;
            let removed = if kind.is_dir() { fs::remove_dir_all(entry.path()) } else { fs::remove_file(entry.path()) };
            removed.map_err(|source| FolderError::Disk { act: "remove", path: entry.path(), source })?;
        }
        fs::remove_dir_all(&self.path).map_err(failed)
    }
}

/// The names of all sandboxes in a folder of sandboxes.
pub fn names(sandboxes: &Path) -> Vec<Name> {
    let Ok(entries) = fs::read_dir(sandboxes) else { return Vec::new() };
    let mut names: Vec<Name> = entries
        .flatten()
        .filter(|entry| entry.path().join("sandbox.json").is_file())
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    names.sort();
    names
}

fn same_file(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (file.metadata(), fs::metadata(path)) {
        (Ok(open), Ok(named)) => open.ino() == named.ino() && open.dev() == named.dev(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn folder(home: &tempfile::TempDir) -> Folder {
        Folder::new(home.path(), "box".parse().unwrap())
    }

    fn record() -> Record {
        Record { format: FORMAT, range: Range::candidates("box").next(), nodes: 3, with: Vec::new(), removing: false }
    }

    #[test]
    fn names_are_short_and_plain() {
        for bad in ["", "-a", "1a", "A", "a_b", "a/b", "..", "a b", "abcdefghijklmnopqrstu"] {
            assert!(bad.parse::<Name>().is_err(), "{bad}");
        }
        assert_eq!("ci-2".parse::<Name>().unwrap().to_string(), "ci-2");
    }

    #[test]
    fn a_record_is_read_back_and_listed() {
        let home = tempfile::tempdir().unwrap();
        let folder = folder(&home);
        assert_eq!(folder.record().unwrap(), None);
        folder.write_record(&record()).unwrap();
        assert_eq!(folder.record().unwrap(), Some(record()));
        assert_eq!(names(home.path()), ["box".parse().unwrap()]);
        folder.remove().unwrap();
        folder.remove().unwrap();
        assert!(!folder.path().exists());
    }

    #[test]
    fn what_is_not_ours_is_refused_and_left_alone() {
        let home = tempfile::tempdir().unwrap();
        let folder = folder(&home);
        fs::create_dir(folder.path()).unwrap();
        assert_eq!(folder.record().unwrap(), None, "an up that was killed at once");
        fs::write(folder.join("thesis.tex"), "years").unwrap();
        assert!(matches!(folder.record(), Err(FolderError::Foreign { .. })));
        fs::write(folder.join("sandbox.json"), "{").unwrap();
        assert!(matches!(folder.record(), Err(FolderError::Foreign { .. })));
        fs::write(folder.join("sandbox.json"), r#"{"format":9,"range":1,"nodes":0}"#).unwrap();
        assert!(folder.record().unwrap_err().to_string().contains("another version of Forge"));
        fs::remove_dir_all(folder.path()).unwrap();
        fs::write(folder.path(), "a file").unwrap();
        assert!(matches!(folder.record(), Err(FolderError::Foreign { .. })));
    }

    #[test]
    fn one_process_at_a_time_changes_a_sandbox() {
        let home = tempfile::tempdir().unwrap();
        let folder = folder(&home);
        let lock = folder.lock().unwrap();
        let error = folder.lock().unwrap_err();
        assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
        folder.forget_lock(&lock);
        drop(lock);
        folder.lock().unwrap();
    }
}
