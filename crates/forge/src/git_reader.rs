//! Reads a remote Git repository, read-only, with gix: whether a revision contains a commit, and whether a folder is
//! the same in both (SPEC.md section 6). Needed only when Argo CD compared with another revision than the run's.
//!
//! A bare clone per repository in a folder of its own, thrown away with the reader. It fetches only what it does not
//! have, once for all who ask, and remembers for a moment that it could not. It blocks: call it where that is allowed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use forge_core::digest::{CommitId, Digest};
use forge_core::gate::{Folder, GitContent};
use forge_core::name::{clip, cut};
use gix::ObjectId;
use tempfile::TempDir;

use crate::cluster::chain;

/// How long what a fetch did not bring is not fetched again, so that a thousand nodes do not wait in turn for a
/// repository that does not answer.
const AGAIN: Duration = Duration::from_secs(3);
/// How much of an error is kept.
const LONGEST_ERROR: usize = 1 << 10;

/// Clones of the repositories that were asked about.
pub(crate) struct GitReader {
    folder: PathBuf,
    /// Removed with the reader.
    _temporary: Option<TempDir>,
    again: Duration,
    mirrors: Mutex<BTreeMap<String, Arc<Mirror>>>,
}

impl GitReader {
    /// Clones into this folder, which stays.
    fn new(folder: PathBuf) -> Self {
        Self { folder, _temporary: None, again: AGAIN, mirrors: Mutex::default() }
    }

    /// Clones into a folder that nobody else can read or guess, and that goes with the reader.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub(crate) fn temporary() -> Result<Self, std::io::Error> {
        let temporary = tempfile::Builder::new().prefix("forge-git-").tempdir()?;
        let folder = temporary.path().to_owned();
        Ok(Self { _temporary: Some(temporary), ..Self::new(folder) })
    }

    /// What a repository says about a revision, compared with a commit, for a folder.
    ///
    /// # Errors
    /// When the repository cannot be read, in words that can be shown.
    pub(crate) fn content(
        &self,
        url: &str,
        path: &str,
        commit: &CommitId,
        revision: &str,
    ) -> Result<GitContent, String> {
        if revision == commit.as_str() {
            return Ok(GitContent { contains_commit: true, folder: Folder::Same });
        }
        let failed = |error: String| {
            cut(&format!("failed to read `{}`: {error}", clip(without_user(url))), LONGEST_ERROR).into_owned()
        };
        self.read(url, path, commit.as_str(), revision).map_err(failed)
    }

    fn read(&self, url: &str, path: &str, commit: &str, revision: &str) -> Result<GitContent, String> {
        let id = |text: &str| ObjectId::from_hex(text.as_bytes()).map_err(|error| chain(&error));
        let (wanted, seen) = (id(commit)?, id(revision)?);
        let Some(repository) = self.mirror(url).holding(wanted, seen, self.again)? else {
            return Ok(GitContent { contains_commit: false, folder: Folder::Unknown });
        };
        let base = repository.merge_base(wanted, seen).map_err(|error| chain(&error))?;
        let contains_commit = base.is_some_and(|base| base == wanted);
        let folder = match parts(path) {
            Some(parts) => compared(tree(&repository, wanted, &parts)?, tree(&repository, seen, &parts)?),
            None => Folder::Unknown,
        };
        Ok(GitContent { contains_commit, folder })
    }

    fn mirror(&self, url: &str) -> Arc<Mirror> {
        let mut mirrors = lock(&self.mirrors);
        let made = || {
            let folder = self.folder.join(Digest::of(url.as_bytes()).short(20));
            Arc::new(Mirror { url: url.to_owned(), folder, fetching: Mutex::default() })
        };
        mirrors.entry(url.to_owned()).or_insert_with(made).clone()
    }
}

/// The clone of one repository.
struct Mirror {
    url: String,
    folder: PathBuf,
    /// Held while it is fetched: whoever waits finds what the one before brought, or why it could not.
    fetching: Mutex<Fetching>,
}

/// What the last fetches did not bring, and when.
#[derive(Default)]
struct Fetching {
    failed: Option<(Instant, String)>,
    absent: BTreeMap<(ObjectId, ObjectId), Instant>,
}

impl Mirror {
    /// The clone where it holds both commits. Commits do not change, so one that does is not fetched for them.
    fn holding(&self, wanted: ObjectId, seen: ObjectId, again: Duration) -> Result<Option<gix::Repository>, String> {
        if let Some(repository) = self.opened_with(wanted, seen) {
            return Ok(Some(repository));
        }
        let mut fetching = lock(&self.fetching);
        if let Some(repository) = self.opened_with(wanted, seen) {
            return Ok(Some(repository));
        }
        fetching.absent.retain(|_, at| at.elapsed() < again);
        if fetching.absent.contains_key(&(wanted, seen)) {
            return Ok(None);
        }
        if let Some((_, error)) = fetching.failed.as_ref().filter(|(at, _)| at.elapsed() < again) {
            return Err(error.clone());
        }
        if let Err(error) = self.fetch() {
            // From now, not from its beginning: those who waited for it must not each try too.
            fetching.failed = Some((Instant::now(), error.clone()));
            return Err(error);
        }
        fetching.failed = None;
        let found = self.opened_with(wanted, seen);
        if found.is_none() {
            fetching.absent.insert((wanted, seen), Instant::now());
        }
        Ok(found)
    }

    fn opened(&self) -> Option<gix::Repository> {
        gix::open_opts(&self.folder, gix::open::Options::isolated()).ok()
    }

    fn opened_with(&self, wanted: ObjectId, seen: ObjectId) -> Option<gix::Repository> {
        self.opened().filter(|repository| repository.has_object(wanted) && repository.has_object(seen))
    }

    /// Brings everything that the branches of the repository hold now.
    fn fetch(&self) -> Result<(), String> {
        let repository = match self.opened() {
            Some(repository) => repository,
            None => {
                // Half of what a process that was killed made is no repository.
                let _ = std::fs::remove_dir_all(&self.folder);
                std::fs::create_dir_all(&self.folder).map_err(|error| error.to_string())?;
                gix::init_bare(&self.folder).map_err(|error| chain(&error))?
            }
        };
        let remote = repository.remote_at(self.url.as_str()).map_err(|error| chain(&error))?;
        let branches = ["+refs/heads/*:refs/remotes/origin/*"];
        let remote = remote.with_refspecs(branches, gix::remote::Direction::Fetch).map_err(|error| chain(&error))?;
        let connection = remote.connect(gix::remote::Direction::Fetch).map_err(|error| chain(&error))?;
        let fetch = connection
            .prepare_fetch(gix::progress::Discard, gix::remote::ref_map::Options::default())
            .map_err(|error| chain(&error))?;
        fetch.receive(gix::progress::Discard, &AtomicBool::new(false)).map_err(|error| chain(&error))?;
        Ok(())
    }
}

/// The parts of a folder's path as Git names them, none for the root; nothing where it leaves the repository.
fn parts(path: &str) -> Option<Vec<&str>> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    (!parts.contains(&"..")).then_some(parts)
}

/// The folder at a commit; nothing where there is none. A link is none: what it points to may change without it.
fn tree(repository: &gix::Repository, commit: ObjectId, parts: &[&str]) -> Result<Option<ObjectId>, String> {
    let root = repository.find_commit(commit).map_err(|error| chain(&error))?.tree().map_err(|error| chain(&error))?;
    if parts.is_empty() {
        return Ok(Some(root.id));
    }
    let entry = root.lookup_entry(parts.iter().map(|part| part.as_bytes())).map_err(|error| chain(&error))?;
    Ok(entry.filter(|entry| entry.mode().is_tree()).map(|entry| entry.object_id()))
}

/// A folder that exists at neither commit is not the same in both: it proves nothing.
fn compared(wanted: Option<ObjectId>, seen: Option<ObjectId>) -> Folder {
    match (wanted, seen) {
        (None, None) => Folder::Unknown,
        (wanted, seen) if wanted == seen => Folder::Same,
        _ => Folder::Changed,
    }
}

/// An address without the user and password that it may carry.
pub(crate) fn without_user(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = rest.split('/').next().unwrap_or(rest);
    match host.rsplit_once('@') {
        Some((user, _)) => rest.get(user.len() + 1..).unwrap_or(rest),
        None => url,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::*;

    const SAME: GitContent = GitContent { contains_commit: true, folder: Folder::Same };
    const CHANGED: GitContent = GitContent { contains_commit: true, folder: Folder::Changed };
    const UNKNOWN: GitContent = GitContent { contains_commit: true, folder: Folder::Unknown };

    fn git(folder: &Path, arguments: &[&str]) -> String {
        let output = Command::new("git")
            .current_dir(folder)
            .args(["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main"])
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn commit(folder: &Path, file: &str, text: &str) -> String {
        std::fs::create_dir_all(folder.join(file).parent().unwrap()).unwrap();
        std::fs::write(folder.join(file), text).unwrap();
        git(folder, &["add", "."]);
        git(folder, &["commit", "-q", "-m", file]);
        git(folder, &["rev-parse", "HEAD"])
    }

    /// An empty repository in a folder of its own, and its address.
    fn source(folder: &Path) -> (PathBuf, String) {
        let source = folder.join("source");
        std::fs::create_dir_all(&source).unwrap();
        git(&source, &["init", "-q"]);
        let url = format!("file://{}", source.display());
        (source, url)
    }

    #[test]
    fn a_later_revision_counts_only_if_it_contains_the_commit_and_left_the_folder_alone() {
        let temporary = tempfile::tempdir().unwrap();
        let (source, url) = source(temporary.path());
        let first = commit(&source, "apps/a/x.yaml", "1");
        let reader = GitReader::temporary().unwrap();
        let wanted: CommitId = first.parse().unwrap();
        // Asked before the others exist, so that the reader must fetch again.
        assert_eq!(reader.content(&url, "apps/a", &wanted, &first), Ok(SAME));
        let elsewhere = commit(&source, "apps/b/x.yaml", "1");
        assert_eq!(reader.content(&url, "apps/a", &wanted, &elsewhere), Ok(SAME));
        let moved = commit(&source, "apps/a/x.yaml", "2");
        assert_eq!(reader.content(&url, "apps/a", &wanted, &moved), Ok(CHANGED));
        // An older revision does not contain a newer commit, and an unknown one nothing.
        let newer: CommitId = moved.parse().unwrap();
        assert!(!reader.content(&url, "apps/a", &newer, &first).unwrap().contains_commit);
        let unknown = "1".repeat(40);
        assert!(!reader.content(&url, "apps/a", &newer, &unknown).unwrap().contains_commit);
        assert!(reader.content("file:///nowhere/at/all", "a", &newer, &unknown).is_err());
    }

    #[test]
    fn a_folder_is_compared_however_its_path_is_written() {
        let temporary = tempfile::tempdir().unwrap();
        let (source, url) = source(temporary.path());
        commit(&source, "apps/b/x.yaml", "1");
        let first = commit(&source, "apps/a/x.yaml", "1");
        let moved = commit(&source, "apps/a/x.yaml", "2");
        let reader = GitReader::temporary().unwrap();
        let content = |path: &str| reader.content(&url, path, &first.parse().unwrap(), &moved).unwrap();
        let changed = ["apps/a", "./apps/a", "/apps/a", "apps//a/", "apps/./a/.", "./apps", "", ".", "./", "/", "./."];
        for path in changed {
            assert_eq!(content(path), CHANGED, "{path:?}");
        }
        for path in ["apps/b", "./apps/b", "/apps/b/", "apps/./b"] {
            assert_eq!(content(path), SAME, "{path:?}");
        }
        // What is not there, not a folder, or outside proves nothing.
        for path in ["apps/c", "./nothing", "apps/b/x.yaml", "..", "apps/../apps/b", "apps/b/.."] {
            assert_eq!(content(path), UNKNOWN, "{path:?}");
        }
    }

    #[test]
    fn the_root_is_the_same_only_where_nothing_changed_and_a_folder_that_came_or_went_has_changed() {
        let temporary = tempfile::tempdir().unwrap();
        let (source, url) = source(temporary.path());
        let first = commit(&source, "apps/a/x.yaml", "1");
        git(&source, &["commit", "-q", "--allow-empty", "-m", "nothing"]);
        let same = git(&source, &["rev-parse", "HEAD"]);
        let came = commit(&source, "apps/new/x.yaml", "1");
        git(&source, &["rm", "-q", "-r", "apps/new"]);
        git(&source, &["commit", "-q", "-m", "gone"]);
        let went = git(&source, &["rev-parse", "HEAD"]);
        let reader = GitReader::temporary().unwrap();
        let content = |path: &str, from: &str, to: &str| reader.content(&url, path, &from.parse().unwrap(), to);
        for root in ["", ".", "./", "/"] {
            assert_eq!(content(root, &first, &same), Ok(SAME), "{root:?}");
            assert_eq!(content(root, &first, &came), Ok(CHANGED), "{root:?}");
        }
        assert_eq!(content("apps/new", &first, &came), Ok(CHANGED));
        assert_eq!(content("apps/new", &came, &went), Ok(CHANGED));
    }

    #[test]
    fn a_link_is_no_folder_because_what_it_points_to_may_change() {
        let temporary = tempfile::tempdir().unwrap();
        let (source, url) = source(temporary.path());
        std::os::unix::fs::symlink("real", source.join("link")).unwrap();
        let first = commit(&source, "real/x.yaml", "1");
        let moved = commit(&source, "real/x.yaml", "2");
        let reader = GitReader::temporary().unwrap();
        assert_eq!(reader.content(&url, "link", &first.parse().unwrap(), &moved), Ok(UNKNOWN));
    }

    #[test]
    fn a_revision_is_fetched_once_for_all_folders_and_all_who_ask() {
        let temporary = tempfile::tempdir().unwrap();
        let (source, url) = source(temporary.path());
        let first = commit(&source, "apps/a/x.yaml", "1");
        let moved = commit(&source, "apps/b/x.yaml", "1");
        let reader = GitReader::temporary().unwrap();
        let wanted: CommitId = first.parse().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| assert_eq!(reader.content(&url, "apps/a", &wanted, &moved), Ok(SAME)));
            }
        });
        // Nothing is fetched for another folder: the repository is not there any more.
        std::fs::remove_dir_all(&source).unwrap();
        assert_eq!(reader.content(&url, "apps/b", &wanted, &moved), Ok(CHANGED));
    }

    #[test]
    fn what_a_fetch_did_not_bring_is_remembered_for_a_while() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path().join("source");
        let url = format!("file://{}", folder.display());
        let (one, other) = ("1".repeat(40), "2".repeat(40));
        let wanted: CommitId = one.parse().unwrap();
        let mut reader = GitReader { again: Duration::from_secs(3600), ..GitReader::temporary().unwrap() };
        let error = reader.content(&url, "a", &wanted, &other).unwrap_err();
        assert!(error.starts_with("failed to read `file:///"), "{error}");
        // It is there now, which nobody asks about: neither for this revision nor for another.
        let (source, _) = source(temporary.path());
        let first = commit(&source, "a/x.yaml", "1");
        let second = commit(&source, "b/x.yaml", "1");
        assert_eq!(reader.content(&url, "a", &wanted, &other).unwrap_err(), error);
        assert_eq!(reader.content(&url, "a", &first.parse().unwrap(), &second).unwrap_err(), error);
        reader.again = Duration::ZERO;
        assert_eq!(reader.content(&url, "a", &first.parse().unwrap(), &second), Ok(SAME));
    }

    #[test]
    fn the_clones_go_with_the_reader_and_passwords_are_not_shown() {
        let reader = GitReader::temporary().unwrap();
        let folder = reader.folder.clone();
        assert!(folder.is_dir());
        drop(reader);
        assert!(!folder.exists());
        assert_eq!(without_user("https://me:secret@git.example.com/a@b.git"), "git.example.com/a@b.git");
        assert_eq!(without_user("git@git.example.com:a/b.git"), "git.example.com:a/b.git");
        assert_eq!(without_user("https://git.example.com/a@b.git"), "https://git.example.com/a@b.git");
    }
}
