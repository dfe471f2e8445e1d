//! Writes the files of a repository at a revision into a folder, with gix: the executor has no `git` program (SPEC.md section
//! 5). Bounded, and nothing that a repository holds is written outside the folder.
//!
//! It blocks: call it on a thread of its own.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use forge_core::code::Code;
use forge_core::digest::CommitId;
use forge_core::failure::Failure;
use forge_core::name::{clip, cut};
use gix::ObjectId;

use crate::cluster::chain;
use crate::git_reader::{GitCredentials, fetch, opened, without_user};

/// More files and folders, and bytes, than any repository of desired state has.
const MOST: Size = Size { entries: 1_000_000, bytes: 1 << 30 };
/// How much of an error is shown.
const LONGEST_ERROR: usize = 1 << 10;

/// How much a repository holds. Folders count as files do: one tree can name another one many times, so that few bytes of
/// Git are more folders than any disk takes.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    entries: usize,
    bytes: u64,
}

impl Size {
    /// One file or folder more.
    fn add(&mut self, bytes: u64, most: Self) -> Result<(), String> {
        self.entries += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.entries > most.entries || self.bytes > most.bytes {
            return Err(format!("it has more than {} files and folders, or {} bytes", most.entries, most.bytes));
        }
        Ok(())
    }
}

/// Writes the files of a repository at a revision into `folder`, which must not be there yet; `clone` is for what has to be
/// fetched for it.
///
/// # Errors
/// When the repository cannot be read, has no such revision, or is too large.
pub(crate) fn checkout(
    url: &str,
    revision: &str,
    credentials: &GitCredentials,
    clone: &Path,
    folder: &Path,
) -> Result<CommitId, Failure> {
    let shown = clip(without_user(url));
    let unread = |why: String| {
        let why = cut(&format!("failed to read `{shown}`: {why}"), LONGEST_ERROR).into_owned();
        Failure::new(Code::RepositoryUnread, why)
            .hint("`git ls-remote` with the same address must work; credentials are mounted at /secrets/git")
    };
    let refspecs = ["+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*"];
    fetch(clone, url, &refspecs, credentials).map_err(unread)?;
    let repository = opened(clone).ok_or_else(|| unread("what was fetched cannot be opened".to_owned()))?;
    let commit = resolved(&repository, revision).map_err(unread)?.ok_or_else(|| {
        Failure::new(
            Code::NoSuchRevision,
            format!("`{shown}` has no branch, no tag and no commit `{}`", clip(revision)),
        )
        .hint("push it, or name another one with --git-revision; a commit has 40 digits")
    })?;
    write(&repository, commit, folder, MOST).map_err(unread)?;
    commit.to_string().parse().map_err(|error| unread(format!("{error}")))
}

/// The commit of a revision: a commit, a branch, or a tag, in this order.
fn resolved(repository: &gix::Repository, revision: &str) -> Result<Option<ObjectId>, String> {
    if revision.parse::<CommitId>().is_ok() {
        let id = ObjectId::from_hex(revision.as_bytes()).map_err(|error| chain(&error))?;
        return Ok(repository.find_commit(id).is_ok().then_some(id));
    }
    let names = match (revision.strip_prefix("refs/heads/"), revision.strip_prefix("refs/tags/")) {
        (Some(branch), _) => vec![format!("refs/remotes/origin/{branch}")],
        (_, Some(_)) => vec![revision.to_owned()],
        _ => vec![format!("refs/remotes/origin/{revision}"), format!("refs/tags/{revision}")],
    };
    for name in names {
        let found = repository.try_find_reference(name.as_str()).map_err(|error| chain(&error))?;
        let Some(mut reference) = found else { continue };
        let id = reference.peel_to_id().map_err(|error| chain(&error))?.detach();
        // A tag of something else than a commit is none of ours.
        return Ok(repository.find_commit(id).is_ok().then_some(id));
    }
    Ok(None)
}

/// Writes what lint reads. Hidden folders and `node_modules` hold no desired state, and neither do submodules.
fn write(repository: &gix::Repository, commit: ObjectId, folder: &Path, most: Size) -> Result<(), String> {
    let root = repository.find_commit(commit).map_err(|error| chain(&error))?.tree().map_err(|error| chain(&error))?.id;
    let mut size = Size::default();
    let mut open: Vec<(ObjectId, PathBuf)> = vec![(root, folder.to_owned())];
    while let Some((id, folder)) = open.pop() {
        // Fails where it is there: a tree that names something twice writes through nothing that it made before.
        fs::create_dir(&folder).map_err(|error| format!("a folder cannot be made: {error}"))?;
        let tree = repository.find_tree(id).map_err(|error| chain(&error))?;
        for entry in tree.iter() {
            let entry = entry.map_err(|error| chain(&error))?;
            let (mode, id) = (entry.mode(), entry.object_id());
            let name: &[u8] = entry.filename();
            if matches!(name, b"" | b"." | b"..") || name.contains(&b'/') || name.contains(&0) {
                return Err("a file has a name that no file can have".to_owned());
            }
            let path = folder.join(std::ffi::OsStr::from_bytes(name));
            if mode.is_tree() {
                if !name.starts_with(b".") && name != b"node_modules" {
                    // Before it is made, and before it waits to be.
                    size.add(0, most)?;
                    open.push((id, path));
                }
                continue;
            }
            if !mode.is_blob() && !mode.is_link() {
                continue;
            }
            size.add(repository.find_header(id).map_err(|error| chain(&error))?.size(), most)?;
            let blob = repository.find_blob(id).map_err(|error| chain(&error))?;
            let written = if mode.is_link() {
                // Never followed while writing; whoever reads looks where it leads.
                std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(&blob.data), &path)
            } else {
                let file = OpenOptions::new().write(true).create_new(true).open(&path);
                file.and_then(|mut file| file.write_all(&blob.data))
            };
            written.map_err(|error| format!("a file cannot be written: {error}"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
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

    /// A repository with two commits, a branch, two tags, a link, and what is left out.
    fn source(folder: &Path) -> (String, String, String) {
        let source = folder.join("source");
        fs::create_dir_all(source.join("dev/apps")).unwrap();
        fs::create_dir_all(source.join(".github")).unwrap();
        git(&source, &["init", "-q"]);
        fs::write(source.join("forge.yaml"), "one").unwrap();
        fs::write(source.join("dev/apps/a.yaml"), "a").unwrap();
        fs::write(source.join(".github/x.yaml"), "x").unwrap();
        fs::write(source.join(".gitignore"), "y").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", source.join("link.yaml")).unwrap();
        git(&source, &["add", "."]);
        git(&source, &["commit", "-q", "-m", "one"]);
        let first = git(&source, &["rev-parse", "HEAD"]);
        git(&source, &["tag", "v1"]);
        git(&source, &["tag", "-a", "-m", "v1", "annotated"]);
        fs::write(source.join("forge.yaml"), "two").unwrap();
        git(&source, &["commit", "-q", "-a", "-m", "two"]);
        let second = git(&source, &["rev-parse", "HEAD"]);
        git(&source, &["branch", "release/1"]);
        // A tag and a branch of one name: the branch is meant unless the tag is named in full.
        git(&source, &["branch", "both"]);
        git(&source, &["tag", "both", "v1"]);
        (format!("file://{}", source.display()), first, second)
    }

    #[test]
    fn a_revision_is_a_commit_a_branch_or_a_tag_and_the_folder_holds_what_it_held() {
        let temporary = tempfile::tempdir().unwrap();
        let (url, first, second) = source(temporary.path());
        let cases = [
            (second.as_str(), &second, "two"),
            (first.as_str(), &first, "one"),
            ("main", &second, "two"),
            ("refs/heads/main", &second, "two"),
            ("release/1", &second, "two"),
            ("v1", &first, "one"),
            ("annotated", &first, "one"),
            ("both", &second, "two"),
            ("refs/tags/both", &first, "one"),
        ];
        for (n, (revision, commit, text)) in cases.into_iter().enumerate() {
            let folder = temporary.path().join(format!("tree-{n}"));
            let found = checkout(&url, revision, &GitCredentials::Helper, &temporary.path().join("clone"), &folder);
            assert_eq!(found.unwrap().as_str(), commit, "{revision}");
            assert_eq!(fs::read_to_string(folder.join("forge.yaml")).unwrap(), text, "{revision}");
            assert_eq!(fs::read_to_string(folder.join("dev/apps/a.yaml")).unwrap(), "a");
            assert!(folder.join(".gitignore").exists() && !folder.join(".github").exists());
            assert!(fs::symlink_metadata(folder.join("link.yaml")).unwrap().is_symlink());
        }
    }

    /// A tree of these entries, in the words of `git mktree`.
    fn tree(folder: &Path, entries: &str) -> String {
        let list = folder.join("entries");
        fs::write(&list, entries).unwrap();
        let list = fs::File::open(&list).unwrap();
        let output = Command::new("git").current_dir(folder).arg("mktree").stdin(list).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    #[test]
    fn folders_count_as_files_do_so_a_tree_that_names_another_one_often_is_not_written_out() {
        let temporary = tempfile::tempdir().unwrap();
        let source = temporary.path().join("source");
        fs::create_dir(&source).unwrap();
        git(&source, &["init", "-q"]);
        // No file at all, and ten to the power of ten folders.
        let mut id = tree(&source, "");
        for _ in 0..10 {
            let entries: String = (0..10).map(|n| format!("040000 tree {id}\td{n}\n")).collect();
            id = tree(&source, &entries);
        }
        let commit = git(&source, &["commit-tree", "-m", "many", &id]);
        let repository = opened(&source).unwrap();
        let commit = ObjectId::from_hex(commit.as_bytes()).unwrap();
        let most = Size { entries: 500, bytes: 1 << 20 };
        let folder = temporary.path().join("tree");
        let why = write(&repository, commit, &folder, most).unwrap_err();
        assert_eq!(why, "it has more than 500 files and folders, or 1048576 bytes");
        // And one that is not too large is written out, files and folders.
        let blob = git(&source, &["hash-object", "-w", "--stdin"]);
        let small = tree(&source, &format!("100644 blob {blob}\ta.yaml\n040000 tree {}\td\n", tree(&source, "")));
        let commit = git(&source, &["commit-tree", "-m", "few", &small]);
        let commit = ObjectId::from_hex(commit.as_bytes()).unwrap();
        let folder = temporary.path().join("small");
        write(&repository, commit, &folder, Size { entries: 2, bytes: 0 }).unwrap();
        assert!(folder.join("a.yaml").is_file() && folder.join("d").is_dir());
    }

    #[test]
    fn what_is_not_there_is_said_and_passwords_are_not() {
        let temporary = tempfile::tempdir().unwrap();
        let (url, _, _) = source(temporary.path());
        let try_ = |url: &str, revision: &str| {
            let (clone, tree) = (temporary.path().join("clone"), temporary.path().join("tree"));
            checkout(url, revision, &GitCredentials::Helper, &clone, &tree).unwrap_err()
        };
        for absent in ["nothing", "0123456789abcdef0123456789abcdef01234567", "refs/tags/main"] {
            let failure = try_(&url, absent);
            assert_eq!(failure.code, Code::NoSuchRevision, "{absent}: {}", failure.message);
        }
        let failure = checkout(
            "file:///nowhere/at/all",
            "main",
            &GitCredentials::Helper,
            &temporary.path().join("other"),
            &temporary.path().join("tree"),
        )
        .unwrap_err();
        assert_eq!(failure.code, Code::RepositoryUnread);
        assert!(!temporary.path().join("tree").exists());
    }
}
