//! What the `git` program knows about a folder. Only reads, with a scrubbed environment; no `git` means no answer.

use std::path::Path;
use std::process::{Command, Stdio};

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

fn without_credentials(url: &str) -> String {
    match url.split_once("://") {
        Some((scheme, rest)) if scheme.starts_with("http") => {
            let (authority, path) = rest.split_once('/').map_or((rest, None), |(a, p)| (a, Some(p)));
            let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
            path.map_or_else(|| format!("{scheme}://{host}"), |path| format!("{scheme}://{host}/{path}"))
        }
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_of_a_remote_never_reach_the_repository() {
        for (url, clean) in [
            ("https://user:token@git.example.com/a/b.git", "https://git.example.com/a/b.git"),
            ("https://token@git.example.com/a", "https://git.example.com/a"),
            ("https://git.example.com/a@b", "https://git.example.com/a@b"),
            ("git@git.example.com:a/b.git", "git@git.example.com:a/b.git"),
            ("ssh://git@git.example.com/a/b.git", "ssh://git@git.example.com/a/b.git"),
        ] {
            assert_eq!(without_credentials(url), clean);
        }
    }
}
