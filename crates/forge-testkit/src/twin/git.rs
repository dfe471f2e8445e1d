//! A clone of a repository of the sandbox's Git server, driven by the real `git` and by nothing of this machine's settings.
//! The same files and messages give the same commits.

use std::path::Path;
use std::process::{Command, Output};
use std::{fs, io};

use tempfile::TempDir;

use crate::sandbox::Git;

/// Every commit is made then.
const DATE: &str = "2026-01-01T00:00:00Z";

/// Why something did not get into a repository.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// A file could not be written, or git not started.
    #[error("failed to {act} `{path}`: {error}")]
    File {
        /// What was tried.
        act: &'static str,
        /// Where.
        path: String,
        /// Why not.
        error: io::Error,
    },
    /// Git refused.
    #[error("`git {act}` failed: {reason}")]
    Refused {
        /// Which command of git.
        act: String,
        /// What it said.
        reason: String,
    },
}

/// A working copy of a repository. The copy goes with the handle; what was pushed stays.
#[derive(Debug)]
pub struct GitRepository {
    folder: TempDir,
    remote: String,
    branch: String,
}

impl GitRepository {
    /// A working copy of what is at a path of the server (`team/app.git`); empty if nothing is there yet: the first push
    /// makes the repository.
    ///
    /// # Errors
    /// When there can be no working copy.
    pub fn open(git: &Git, path: &str, branch: &str) -> Result<Self, GitError> {
        let folder = tempfile::tempdir().map_err(|error| failed("make", "a temporary folder", error))?;
        let credentials = format!("://{}:{}@", git.user, git.password);
        let remote = format!("{}/{path}", git.url).replacen("://", &credentials, 1);
        let repository = Self { folder, remote, branch: branch.to_owned() };
        repository.git(&["init", "-q", "-b", branch])?;
        // For whoever looks at the copy; pushing needs the credentials, which stay out of it.
        repository.git(&["remote", "add", "origin", &format!("{}/{path}", git.url)])?;
        // A repository that is not there has no branch to go on from, and says so by an error.
        if repository.git(&["fetch", "-q", &repository.remote, branch]).is_ok() {
            repository.git(&["reset", "-q", "--hard", "FETCH_HEAD"])?;
        }
        Ok(repository)
    }

    /// The working copy.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Writes files; others stay.
    ///
    /// # Errors
    /// When one cannot be written.
    pub fn write(&self, files: &[(String, String)]) -> Result<(), GitError> {
        for (path, text) in files {
            let file = self.folder().join(path);
            let parent = file.parent().unwrap_or(self.folder());
            fs::create_dir_all(parent)
                .and_then(|()| fs::write(&file, text))
                .map_err(|error| failed("write", path, error))?;
        }
        Ok(())
    }

    /// Removes a file or a folder.
    ///
    /// # Errors
    /// When it is not there, or stays.
    pub fn remove(&self, path: &str) -> Result<(), GitError> {
        let place = self.folder().join(path);
        let removed = if place.is_dir() { fs::remove_dir_all(&place) } else { fs::remove_file(&place) };
        removed.map_err(|error| failed("remove", path, error))
    }

    /// Commits everything, changed or not, pushes it, and gives the commit.
    ///
    /// # Errors
    /// When git refuses.
    pub fn commit_and_push(&self, message: &str) -> Result<String, GitError> {
        let commit = self.commit(message)?;
        self.push(&commit)?;
        Ok(commit)
    }

    /// Commits everything, changed or not, and gives the commit, which nobody else knows of until it is pushed.
    ///
    /// # Errors
    /// When git refuses.
    pub fn commit(&self, message: &str) -> Result<String, GitError> {
        self.git(&["add", "--all"])?;
        self.git(&["commit", "-q", "--allow-empty", "-m", message])?;
        Ok(self.git(&["rev-parse", "HEAD"])?.trim().to_owned())
    }

    /// Moves the branch on to a commit.
    ///
    /// # Errors
    /// When git refuses.
    pub fn push(&self, commit: &str) -> Result<(), GitError> {
        self.git(&["push", "-q", &self.remote, &format!("{commit}:refs/heads/{}", self.branch)])?;
        Ok(())
    }

    fn git(&self, args: &[&str]) -> Result<String, GitError> {
        let output = self.run(args).map_err(|error| failed("run", "git", error))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let act = args.first().copied().unwrap_or_default().to_owned();
        Err(GitError::Refused { act, reason: String::from_utf8_lossy(&output.stderr).trim().to_owned() })
    }

    fn run(&self, args: &[&str]) -> io::Result<Output> {
        let mut command = Command::new("git");
        command.current_dir(self.folder()).args(args).env_clear();
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        command.env("HOME", self.folder()).env("LC_ALL", "C").env("GIT_TERMINAL_PROMPT", "0");
        command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
        for who in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{who}_NAME"), "forge-testkit");
            command.env(format!("GIT_{who}_EMAIL"), "testkit@example.com");
            command.env(format!("GIT_{who}_DATE"), DATE);
        }
        command.output()
    }
}

fn failed(act: &'static str, path: &str, error: io::Error) -> GitError {
    GitError::File { act, path: path.to_owned(), error }
}

/// Commits files to a repository of the server, on top of what is there, and gives the working copy and the commit.
///
/// # Errors
/// When they do not get there.
pub fn push(
    git: &Git,
    path: &str,
    files: &[(String, String)],
    branch: &str,
) -> Result<(GitRepository, String), GitError> {
    let repository = GitRepository::open(git, path, branch)?;
    repository.write(files)?;
    let commit = repository.commit_and_push("The platform")?;
    Ok((repository, commit))
}
