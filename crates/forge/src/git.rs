//! The `git` program, with a scrubbed environment: what it knows about a folder (no `git` means no answer), and for the
//! commands that write, what it takes to commit and push. Never with force.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use forge_core::digest::CommitId;
use forge_core::gate::{Folder, GitContent};
pub(crate) use forge_core::url::without_credentials;
use secrecy::SecretString;

fn ask(folder: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .arg("-C")
        .arg(folder)
        .args(arguments)
        .env_clear()
        .envs(["PATH", "HOME"].iter().filter_map(|name| Some((*name, std::env::var_os(name)?))))
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let line = text.trim();
    (output.status.success() && !line.is_empty()).then(|| line.to_owned())
}

/// What `git` needs to reach a remote as the user does.
const REACHING: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "TERM",
    "XDG_CONFIG_HOME",
    "XDG_RUNTIME_DIR",
    "SSH_AUTH_SOCK",
    "SSH_ASKPASS",
    "DISPLAY",
    "GIT_ASKPASS",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_SSL_CAINFO",
    "http_proxy",
    "https_proxy",
    "HTTPS_PROXY",
    "no_proxy",
    "NO_PROXY",
];

/// Does something with `git` and gives what it printed. It may ask for a password where somebody is there to answer.
///
/// # Errors
/// What it complained of.
pub(crate) fn run(folder: &Path, arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new("git");
    command.arg("-C").arg(folder).args(arguments).env_clear();
    command.envs(REACHING.iter().filter_map(|name| Some((*name, std::env::var_os(name)?)))).env("LC_ALL", "C");
    if !std::io::stdin().is_terminal() {
        command.env("GIT_TERMINAL_PROMPT", "0").stdin(Stdio::null());
    }
    let output = command.output().map_err(|error| format!("failed to start `git`: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

/// What a credential helper needs to find what it keeps.
const KEEPING: &[&str] = &["PATH", "HOME", "USER", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"];

/// What the user's own `git` knows to say to a server, by `git credential fill`. Nobody is asked for anything.
///
/// # Errors
/// Why it says nothing, as the end of a sentence.
pub(crate) fn credential(
    options: &[&str],
    protocol: &str,
    host: &str,
    path: &str,
) -> Result<(String, SecretString), String> {
    let question = format!("protocol={protocol}\nhost={host}\npath={path}\n\n");
    if [protocol, host, path].iter().any(|value| value.chars().any(char::is_control)) {
        return Err("its address has characters that no address has".to_owned());
    }
    let mut command = Command::new("git");
    command.args(options).args(["credential", "fill"]).env_clear();
    command.envs(KEEPING.iter().filter_map(|name| Some((*name, std::env::var_os(name)?))));
    // Helpers that would open a window are told not to.
    command.env("GIT_TERMINAL_PROMPT", "0").env("GCM_INTERACTIVE", "never").env("LC_ALL", "C");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let nobody = |error: std::io::Error| format!("`git` cannot be asked for them ({error})");
    let mut child = command.spawn().map_err(nobody)?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that does not listen has nothing to say.
        let _ = stdin.write_all(question.as_bytes());
    }
    let output = child.wait_with_output().map_err(nobody)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).filter(|value| !value.is_empty());
    match (value("username="), value("password=")) {
        (Some(username), Some(password)) if output.status.success() => {
            Ok((username.to_owned(), SecretString::from(password.to_owned())))
        }
        _ => Err("`git credential fill` knows none".to_owned()),
    }
}

/// The URL of `origin`, without credentials: what goes into desired state must hold no secret.
pub(crate) fn origin(folder: &Path) -> Option<String> {
    ask(folder, &["config", "--get", "remote.origin.url"]).map(|url| without_credentials(&url))
}

/// The branch that is checked out, also before its first commit.
pub(crate) fn branch(folder: &Path) -> Option<String> {
    ask(folder, &["symbolic-ref", "--short", "HEAD"])
}

/// The commit that is checked out.
pub(crate) fn head(folder: &Path) -> Option<String> {
    ask(folder, &["rev-parse", "--verify", "HEAD^{commit}"])
}

/// The first file below the folder that differs from the commit that is checked out; untracked files count too.
pub(crate) fn changed(folder: &Path) -> Option<String> {
    let text = ask(folder, &["status", "--porcelain", "--untracked-files=normal", "--", "."])?;
    text.lines().next().map(|line| line.trim().split_once(' ').map_or(line, |(_, path)| path.trim()).to_owned())
}

/// How the commit that is checked out stands to a branch of `origin`, as far as is known here.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// The branch holds it.
    Yes,
    /// The branch does not hold it.
    No,
    /// Nobody here knows: the branch has commits that are not here, or there is no such branch or remote.
    Unknown,
}

/// What a branch of `origin` holds now. Nothing is fetched.
pub(crate) fn tip(folder: &Path, branch: &str) -> Option<String> {
    let line = ask(folder, &["ls-remote", "--heads", "origin", &format!("refs/heads/{branch}")])?;
    line.split_whitespace().next().map(str::to_owned)
}

/// What the checkout itself knows about a revision, compared with a commit, for a folder; nothing where it does not have
/// both.
pub(crate) fn compared(folder: &Path, path: &str, commit: &CommitId, revision: &str) -> Option<GitContent> {
    // A revision is passed on only if it can be nothing else.
    let revision: CommitId = revision.parse().ok()?;
    for id in [commit, &revision] {
        ask(folder, &["cat-file", "-t", id.as_str()]).filter(|kind| kind == "commit")?;
    }
    let contains_commit =
        ask(folder, &["merge-base", commit.as_str(), revision.as_str()]).is_some_and(|base| base == commit.as_str());
    let path = path.trim_start_matches("./").trim_matches('/');
    let path = if path == "." { "" } else { path };
    let tree = |id: &CommitId| ask(folder, &["rev-parse", "--verify", &format!("{id}:{path}")]);
    let folder = match (tree(commit), tree(&revision)) {
        (Some(wanted), Some(seen)) if wanted == seen => Folder::Same,
        (None, None) => Folder::Unknown,
        _ => Folder::Changed,
    };
    Some(GitContent { contains_commit, folder, error: None })
}

/// Asks `origin` for the branch. Nothing is fetched.
pub(crate) fn pushed(folder: &Path, branch: &str) -> Pushed {
    let (Some(tip), Some(head)) = (tip(folder, branch), head(folder)) else { return Pushed::Unknown };
    if tip == head {
        return Pushed::Yes;
    }
    if ask(folder, &["cat-file", "-t", &tip]).is_none() {
        return Pushed::Unknown;
    }
    // Known here, so it can be compared.
    match ask(folder, &["merge-base", &head, &tip]) {
        Some(base) if base == head => Pushed::Yes,
        _ => Pushed::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn git(folder: &Path, arguments: &[&str]) -> String {
        let mut all = vec!["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main"];
        all.extend(arguments);
        run(folder, &all).unwrap()
    }

    fn commit(folder: &Path, file: &str, text: &str) -> CommitId {
        let path = folder.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        git(folder, &["add", "."]);
        git(folder, &["commit", "-q", "-m", file]);
        head(folder).unwrap().parse().unwrap()
    }

    #[test]
    fn a_checkout_knows_whether_a_revision_holds_a_commit_and_whether_a_folder_is_the_same() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path();
        git(folder, &["init", "-q"]);
        let first = commit(folder, "apps/a/x.yaml", "1");
        let second = commit(folder, "apps/b/x.yaml", "1");
        let third = commit(folder, "apps/a/x.yaml", "2");
        let ask = |path: &str, commit: &CommitId, revision: &CommitId| {
            let found = compared(folder, path, commit, revision.as_str()).unwrap();
            (found.contains_commit, found.folder)
        };
        assert_eq!(ask("apps/a", &first, &second), (true, Folder::Same));
        assert_eq!(ask("apps/a/", &first, &third), (true, Folder::Changed));
        assert_eq!(ask("apps/a", &second, &first), (false, Folder::Same));
        assert_eq!(ask("apps/b", &second, &first), (false, Folder::Changed));
        assert_eq!(ask(".", &first, &second), (true, Folder::Changed));
        assert_eq!(ask("nowhere", &first, &second), (true, Folder::Unknown));
        let absent = "0123456789abcdef0123456789abcdef01234567";
        assert!(compared(folder, "apps/a", &first, absent).is_none());
        assert!(compared(folder, "apps/a", &first, "--upload-pack=x").is_none());
        assert_eq!(tip(folder, "main"), None);
    }
}
