//! Reads a remote Git repository, read-only, with gix: whether a revision contains a commit, and whether a folder is the
//! same in both (SPEC.md section 6). Needed only when Argo CD compared with another revision than the run's.
//!
//! A bare clone per repository in a folder of its own, thrown away with the process. It blocks: call it where that is
//! allowed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use forge_core::digest::{CommitId, Digest};
use forge_core::gate::{Folder, GitContent};

use crate::cluster::chain;

/// Clones of the repositories that were asked about.
pub(crate) struct GitReader {
    folder: PathBuf,
    /// One at a time; what was found does not change, because commits do not.
    found: Mutex<BTreeMap<(String, String, String, String), GitContent>>,
}

impl GitReader {
    /// Clones into this folder.
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder, found: Mutex::default() }
    }

    /// What a repository says about a revision, compared with a commit, for a folder.
    ///
    /// # Errors
    /// When the repository cannot be read, in words.
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
        let key = (url.to_owned(), path.to_owned(), commit.to_string(), revision.to_owned());
        let mut found = self.found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(content) = found.get(&key) {
            return Ok(content.clone());
        }
        let content = self.read(url, path, commit, revision)?;
        // Only what cannot change is kept: a commit that is not there yet may come.
        if content.contains_commit {
            found.insert(key, content.clone());
        }
        Ok(content)
    }

    fn read(&self, url: &str, path: &str, commit: &CommitId, revision: &str) -> Result<GitContent, String> {
        let repository = self.fetched(url)?;
        let id = |text: &str| gix::ObjectId::from_hex(text.as_bytes()).map_err(|error| chain(&error));
        let (wanted, seen) = (id(commit.as_str())?, id(revision)?);
        if !repository.has_object(wanted) || !repository.has_object(seen) {
            return Ok(GitContent { contains_commit: false, folder: Folder::Unknown });
        }
        let base = repository.merge_base(wanted, seen).map_err(|error| chain(&error))?;
        let folder = |commit: gix::ObjectId| -> Result<Option<gix::ObjectId>, String> {
            let tree = repository.find_commit(commit).map_err(|error| chain(&error))?.tree().map_err(|e| chain(&e))?;
            if path.is_empty() || path == "." {
                return Ok(Some(tree.id));
            }
            let entry = tree.lookup_entry_by_path(path).map_err(|error| chain(&error))?;
            Ok(entry.map(|entry| entry.object_id()))
        };
        let same = folder(wanted)? == folder(seen)?;
        Ok(GitContent {
            contains_commit: base.is_some_and(|base| base == wanted),
            folder: if same { Folder::Same } else { Folder::Changed },
        })
    }

    /// The repository with everything that its branches hold now.
    fn fetched(&self, url: &str) -> Result<gix::Repository, String> {
        let folder = self.folder.join(Digest::of(url.as_bytes()).short(20));
        let repository = match gix::open_opts(&folder, gix::open::Options::isolated()) {
            Ok(repository) => repository,
            Err(_) => {
                // Half of what a process that was killed made is no repository.
                let _ = std::fs::remove_dir_all(&folder);
                std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
                gix::init_bare(&folder).map_err(|error| chain(&error))?
            }
        };
        let remote = repository.remote_at(url).map_err(|error| chain(&error))?;
        let branches = ["+refs/heads/*:refs/remotes/origin/*"];
        let remote = remote.with_refspecs(branches, gix::remote::Direction::Fetch).map_err(|error| chain(&error))?;
        let connection = remote.connect(gix::remote::Direction::Fetch).map_err(|error| chain(&error))?;
        let fetch = connection
            .prepare_fetch(gix::progress::Discard, gix::remote::ref_map::Options::default())
            .map_err(|error| chain(&error))?;
        fetch.receive(gix::progress::Discard, &AtomicBool::new(false)).map_err(|error| chain(&error))?;
        Ok(repository)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::*;

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

    #[test]
    fn a_later_revision_counts_only_if_it_contains_the_commit_and_left_the_folder_alone() {
        let temporary = tempfile::tempdir().unwrap();
        let source = temporary.path().join("source");
        std::fs::create_dir_all(&source).unwrap();
        git(&source, &["init", "-q"]);
        let first = commit(&source, "apps/a/x.yaml", "1");
        let reader = GitReader::new(temporary.path().join("clones"));
        let url = format!("file://{}", source.display());
        let wanted: CommitId = first.parse().unwrap();
        // Asked before the others exist, so that the reader must fetch again.
        let same = GitContent { contains_commit: true, folder: Folder::Same };
        assert_eq!(reader.content(&url, "apps/a", &wanted, &first), Ok(same.clone()));
        let elsewhere = commit(&source, "apps/b/x.yaml", "1");
        assert_eq!(reader.content(&url, "apps/a", &wanted, &elsewhere), Ok(same.clone()));
        let moved = commit(&source, "apps/a/x.yaml", "2");
        let changed = GitContent { contains_commit: true, folder: Folder::Changed };
        assert_eq!(reader.content(&url, "apps/a", &wanted, &moved), Ok(changed));
        // An older revision does not contain a newer commit, and an unknown one nothing.
        let newer: CommitId = moved.parse().unwrap();
        assert!(!reader.content(&url, "apps/a", &newer, &first).unwrap().contains_commit);
        let unknown = "1".repeat(40);
        assert!(!reader.content(&url, "apps/a", &newer, &unknown).unwrap().contains_commit);
        assert!(reader.content("file:///nowhere/at/all", "a", &newer, &unknown).is_err());
    }
}
