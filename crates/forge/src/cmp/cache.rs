//! What was rendered once, by what it was made of. A file is written beside the others and then renamed, so that it is there
//! whole or not at all, whoever is killed and however many write it; and it is believed only if its content has the digest
//! that it says. The folder is bounded: what was not used for longest goes, and what a killed process left goes with the next
//! one that renders. Whatever else lies in the folder is somebody else's.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use forge_core::code::Code;
use forge_core::digest::{Digest, Digester};
use forge_core::failure::Failure;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

/// Where the content of an entry begins: its header is one line, filled up with spaces.
const START: u64 = 512;
/// What a killed process left goes after so long, also where files cannot be locked.
const LEFT: Duration = Duration::from_secs(600);
/// Names of files that are being written begin with it.
const UNFINISHED: &str = "unfinished-";
/// How often another process may take a new file for one that was left.
const TRIES: usize = 8;
/// Digits of the name of an entry.
const NAME: usize = 64;

/// What an entry says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Header {
    /// Of the content.
    pub(super) output: Digest,
    /// Of the content, in bytes.
    pub(super) length: u64,
    /// After this a signature that it rests on does not count any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<Timestamp>,
}

/// Something rendered, whole and as it says.
#[derive(Debug)]
pub(super) struct Rendered {
    pub(super) file: File,
    /// Of the content, in bytes.
    pub(super) length: u64,
    hasher: Digester,
}

impl Rendered {
    /// The digest of the content and what follows it.
    pub(super) fn output(&self, more: &[u8]) -> Digest {
        let mut hasher = self.hasher.clone();
        hasher.update(more);
        hasher.finish()
    }

    /// Goes to where the content begins; gives how long it is.
    pub(super) fn rewind(&mut self) -> io::Result<u64> {
        self.file.seek(SeekFrom::Start(START))?;
        Ok(self.length)
    }
}

/// A folder of entries.
#[derive(Debug)]
pub(super) struct Cache {
    folder: PathBuf,
    most: u64,
}

impl Cache {
    /// Makes the folder where it is not there.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(super) fn open(folder: &Path, most: u64) -> Result<Self, Failure> {
        fs::create_dir_all(folder).map_err(|error| {
            Failure::new(Code::CannotCache, format!("failed to make folder `{}`: {error}", folder.display()))
                .hint("FORGE_CMP_CACHE names a folder that can be written, for example an emptyDir of the sidecar")
        })?;
        Ok(Self { folder: folder.to_owned(), most })
    }

    fn path(&self, key: &Digest) -> PathBuf {
        self.folder.join(key.short(NAME))
    }

    /// The entry of a key, if it is there, still counts and is what it says. One that is not goes.
    pub(super) fn find(&self, key: &Digest, now: Timestamp) -> Option<Rendered> {
        let path = self.path(key);
        let file = File::open(&path).ok()?;
        match read(file, now) {
            Ok(found) => {
                // By this the entry is known to be in use; where it cannot be said it goes a little earlier.
                let _ = found.file.set_modified(SystemTime::now());
                Some(found)
            }
            Err(_) => {
                let _ = fs::remove_file(&path);
                None
            }
        }
    }

    /// A file to put something into for as long as this process lives. It has no name: whoever is killed leaves nothing of it.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(super) fn scratch(&self) -> Result<File, Failure> {
        tempfile::tempfile_in(&self.folder).map_err(|error| self.failed(&error))
    }

    /// A file to render into. It is locked while somebody writes it, by which others know that it was not left.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(super) fn unfinished(&self) -> Result<NamedTempFile, Failure> {
        self.sweep();
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for _ in 0..TRIES {
            match self.begun() {
                Ok(file) => return Ok(file),
                // Whoever swept had it before it was locked.
                Err(error) if error.kind() == io::ErrorKind::NotFound => last = error,
                Err(error) => return Err(self.failed(&error)),
            }
        }
        Err(self.failed(&last))
    }

    fn begun(&self) -> io::Result<NamedTempFile> {
        let file = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(&self.folder)?;
        // Where files cannot be locked, what is left goes by its age.
        let _ = file.as_file().lock();
        if file.as_file().metadata()?.nlink() == 0 { Err(io::ErrorKind::NotFound.into()) } else { Ok(file) }
    }

    /// Removes what killed processes left.
    fn sweep(&self) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        for entry in entries.flatten() {
            if !entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
                continue;
            }
            let used = entry.metadata().and_then(|metadata| metadata.modified());
            let old = used.is_ok_and(|used| used.elapsed().is_ok_and(|age| age > LEFT));
            let Ok(file) = File::open(entry.path()) else { continue };
            // The lock is held until it is gone, so that nobody begins to write it meanwhile.
            if file.try_lock().is_ok() || old {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Keeps what was rendered: its content is in the file from where it begins on. Gives it back as it is found from now on.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn keep(
        &self,
        key: &Digest,
        header: &Header,
        mut file: NamedTempFile,
        now: Timestamp,
    ) -> Result<Rendered, Failure> {
        let kept = || -> io::Result<Rendered> {
            let mut line = serde_json::to_vec(header)?;
            line.resize(usize::try_from(START).unwrap_or(usize::MAX) - 1, b' ');
            line.push(b'\n');
            file.seek(SeekFrom::Start(0))?;
            file.write_all(&line)?;
            file.as_file().sync_data()?;
            let again = file.reopen()?;
            file.persist(self.path(key)).map_err(|error| error.error)?;
            read(again, now)
        };
        let kept = kept().map_err(|error| self.failed(&error))?;
        self.shrink();
        Ok(kept)
    }

    /// Removes what was not used for longest until the rest fits. Whoever reads what goes here has it open, and reads on.
    fn shrink(&self) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        let mut found: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for entry in entries.flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_file() && entry.file_name().to_str().is_some_and(is_entry) {
                let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                found.push((used, metadata.len(), entry.path()));
            }
        }
        found.sort();
        let mut total: u64 = found.iter().map(|(_, bytes, _)| *bytes).sum();
        // The newest is the one that was just made.
        let oldest = found.len().saturating_sub(1);
        for (_, bytes, path) in found.into_iter().take(oldest) {
            if total <= self.most {
                break;
            }
            if fs::remove_file(path).is_ok() {
                total -= bytes;
            }
        }
    }

    fn failed(&self, error: &io::Error) -> Failure {
        Failure::new(Code::CannotCache, format!("failed to write into `{}`: {error}", self.folder.display()))
            .hint("give the folder more room, or name another one by FORGE_CMP_CACHE")
    }
}

/// Whether a file is named as entries are; others in the folder are not ours to remove.
fn is_entry(name: &str) -> bool {
    name.len() == NAME && name.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// Reads an entry and compares all of it with what it says.
fn read(file: File, now: Timestamp) -> io::Result<Rendered> {
    let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    let mut reader = BufReader::with_capacity(64 << 10, file);
    let mut line = Vec::new();
    (&mut reader).take(START).read_until(b'\n', &mut line)?;
    let header: Header = serde_json::from_slice(&line).map_err(|_| wrong("no header"))?;
    if line.len() as u64 != START || header.until.is_some_and(|until| until <= now) {
        return Err(wrong("does not count any more"));
    }
    let mut hasher = Digester::default();
    let length = io::copy(&mut reader, &mut hasher)?;
    if length != header.length || hasher.clone().finish() != header.output {
        return Err(wrong("not what it says"));
    }
    Ok(Rendered { file: reader.into_inner(), length, hasher })
}

/// A file that is being rendered into, from where content begins.
pub(super) fn begin(file: &mut NamedTempFile) -> io::Result<()> {
    file.seek(SeekFrom::Start(START)).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }

    fn key(n: u8) -> Digest {
        Digest::of(&[n])
    }

    fn keep(cache: &Cache, n: u8, content: &[u8], until: Option<Timestamp>) -> Rendered {
        let mut file = cache.unfinished().unwrap();
        begin(&mut file).unwrap();
        file.write_all(content).unwrap();
        let header = Header { output: Digest::of(content), length: content.len() as u64, until };
        cache.keep(&key(n), &header, file, now()).unwrap()
    }

    fn content(mut rendered: Rendered) -> Vec<u8> {
        let length = rendered.rewind().unwrap();
        let mut bytes = Vec::new();
        rendered.file.take(length).read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn what_is_kept_is_found_whole_with_the_digest_of_what_follows() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::open(folder.path(), 1 << 20).unwrap();
        assert!(cache.find(&key(1), now()).is_none());
        let kept = keep(&cache, 1, b"a: 1\n", None);
        assert_eq!(kept.output(b"b: 2\n"), Digest::of(b"a: 1\nb: 2\n"));
        assert_eq!(content(kept), b"a: 1\n");
        assert_eq!(content(cache.find(&key(1), now()).unwrap()), b"a: 1\n");
        assert!(cache.find(&key(2), now()).is_none());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing unfinished is left");
    }

    #[test]
    fn what_is_changed_cut_off_or_too_old_is_not_believed_and_goes() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::open(folder.path(), 1 << 20).unwrap();
        let path = cache.path(&key(1));
        let whole = {
            keep(&cache, 1, b"a: 1\n", None);
            fs::read(&path).unwrap()
        };
        let mut changed = whole.clone();
        *changed.last_mut().unwrap() = b'x';
        let longer = [whole.as_slice(), b"x"].concat();
        for bytes in [&changed[..], &longer, &whole[..whole.len() - 1], &whole[..100], b"", b"{}\n"] {
            fs::write(&path, bytes).unwrap();
            assert!(cache.find(&key(1), now()).is_none(), "{bytes:?}");
            assert!(!path.exists());
        }
        let later = Timestamp::from_second(1_800_000_010).unwrap();
        keep(&cache, 1, b"a: 1\n", Some(later));
        assert!(cache.find(&key(1), now()).is_some());
        assert!(cache.find(&key(1), later).is_none());
    }

    #[test]
    fn what_was_not_used_for_longest_goes_until_the_rest_fits() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::open(folder.path(), 3 * (START + 100)).unwrap();
        let used = |n: u8, seconds: u64| {
            let file = File::options().append(true).open(cache.path(&key(n))).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
        };
        for n in 1..=3 {
            keep(&cache, n, &[b'x'; 100], None);
            used(n, 1_000 + u64::from(n));
        }
        used(1, 2_000);
        keep(&cache, 4, &[b'x'; 100], None);
        let there: Vec<bool> = (1..=4).map(|n| cache.path(&key(n)).exists()).collect();
        assert_eq!(there, [true, false, true, true]);
        // One that is larger than all that may be kept is kept alone.
        keep(&cache, 5, &[b'x'; 10_000], None);
        let there: Vec<bool> = (1..=5).map(|n| cache.path(&key(n)).exists()).collect();
        assert_eq!(there, [false, false, false, false, true]);
    }

    #[test]
    fn what_a_killed_process_left_goes_and_what_somebody_writes_stays() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::open(folder.path(), 1 << 20).unwrap();
        let path = |name: &str| folder.path().join(name);
        let written = cache.unfinished().unwrap();
        let scratch = cache.scratch().unwrap();
        for name in ["unfinished-left", "unfinished-locked", "unfinished-old"] {
            fs::write(path(name), "x").unwrap();
        }
        let locked = File::open(path("unfinished-locked")).unwrap();
        let old = File::options().append(true).open(path("unfinished-old")).unwrap();
        locked.lock().unwrap();
        old.lock().unwrap();
        old.set_modified(SystemTime::now() - Duration::from_secs(3_600)).unwrap();
        keep(&cache, 1, b"a: 1\n", None);
        let there = |name: &str| path(name).exists();
        assert_eq!(
            [there("unfinished-left"), there("unfinished-locked"), there("unfinished-old")],
            [false, true, false]
        );
        assert!(written.path().exists());
        // One file that is written, the one that is locked, and the entry.
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
        drop((written, scratch, locked));
        keep(&cache, 1, b"a: 1\n", None);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_others_keep_in_the_folder_stays() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::open(folder.path(), 1).unwrap();
        let names = ["data.db", &"g".repeat(64), &"A".repeat(64), &"a".repeat(63), "lost+found/a"];
        fs::create_dir(folder.path().join("lost+found")).unwrap();
        for name in names {
            fs::write(folder.path().join(name), "x").unwrap();
        }
        keep(&cache, 1, b"a: 1\n", None);
        keep(&cache, 2, b"a: 2\n", None);
        assert!(names.iter().all(|name| folder.path().join(name).exists()));
        assert!(!cache.path(&key(1)).exists() && cache.path(&key(2)).exists());
    }
}
