//! What the `git` program knows about a folder. Only reads, with a scrubbed environment; no `git` means no answer.

use std::path::Path;
use std::process::{Command, Stdio};

pub(crate) use forge_core::url::without_credentials;

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

/// The URL of `origin`, without credentials: what goes into desired state must hold no secret.
pub(crate) fn origin(folder: &Path) -> Option<String> {
    ask(folder, &["config", "--get", "remote.origin.url"]).map(|url| without_credentials(&url))
}

/// The branch that is checked out, also before its first commit.
pub(crate) fn branch(folder: &Path) -> Option<String> {
    ask(folder, &["symbolic-ref", "--short", "HEAD"])
}
