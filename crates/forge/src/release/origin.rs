//! Where a source comes from: its commit, its repository and its folder there, so far as Git knows it. Nothing of the machine
//! gets in: two checkouts of one commit give the same answer, wherever they are and however they were cloned.

use std::path::Path;

use forge_core::code::Code;
use forge_core::digest::CommitId;
use forge_core::failure::Failure;
use forge_core::name::clip;
use forge_core::release::Source as Origin;

use super::source::{Kind, Source};
use crate::git;

/// What was said about it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Said<'s> {
    /// The commit.
    pub(crate) commit: Option<&'s CommitId>,
    /// The repository.
    pub(crate) repository: Option<&'s str>,
    /// What lies there may be something else than the commit.
    pub(crate) allow_dirty: bool,
}

/// Where a source comes from.
///
/// # Errors
/// When its commit is not known, or what lies there is not that commit.
pub(crate) fn origin(source: &Source, said: Said<'_>) -> Result<Origin, Failure> {
    let folder =
        if source.root.is_dir() { source.root.as_path() } else { source.root.parent().unwrap_or(&source.root) };
    // Of a file in the folder that is asked for the name is part of the path.
    let file = (folder != source.root).then(|| source.root.file_name()).flatten();
    let file = file.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let prefix = git::run(folder, &["rev-parse", "--show-prefix"]).ok();
    let head: Option<CommitId> = prefix.as_ref().and_then(|_| git::head(folder)?.parse().ok());
    let not_in_git = |message: String| Failure::new(Code::NotInGit, message);
    let commit = match (said.commit, &head) {
        (None, _) if said.allow_dirty => {
            let message = "with --allow-dirty nobody knows of which commit this is";
            return Err(Failure::new(Code::BadArgument, message).hint("name one with --commit"));
        }
        (None, None) => {
            let message = format!("`{}` is not in a Git checkout with a commit", clip(&folder.display().to_string()));
            return Err(not_in_git(message).hint("commit it, or name the commit with --commit"));
        }
        (Some(given), Some(head)) if given != head && !said.allow_dirty => {
            let message = format!("commit {head} is checked out, not {given}");
            return Err(not_in_git(message).hint("check it out, or use --allow-dirty if you know better"));
        }
        (Some(given), _) => given.clone(),
        (None, Some(head)) => head.clone(),
    };
    if head.is_some() && !said.allow_dirty {
        let changed = changed(folder, source.kind).map_err(|why| {
            not_in_git(format!(
                "`git` does not say what is changed in `{}`: {why}",
                clip(&folder.display().to_string())
            ))
        })?;
        if let Some(path) = changed {
            return Err(not_in_git(format!(
                "`{}` is changed and not committed; the release would not be commit {commit}",
                clip(&path)
            ))
            .hint("commit it; or say --allow-dirty and name a commit with --commit"));
        }
    }
    let path = prefix.map(|prefix| format!("{prefix}{file}").trim_matches('/').to_owned());
    let repository = match said.repository {
        Some(given) => Some(git::without_credentials(given)),
        None => git::origin(folder).filter(|_| head.is_some()).and_then(|url| address(&url)),
    };
    Ok(Origin { repository, commit, path: path.filter(|path| !path.is_empty()) })
}

/// The first file that differs from what is checked out. Kustomize reads beside its folder too, so there every file of the
/// repository counts that Git knows.
fn changed(folder: &Path, kind: Kind) -> Result<Option<String>, String> {
    let mut said = git::run(folder, &["status", "--porcelain", "--untracked-files=normal", "--", "."])?;
    if said.is_empty() && kind == Kind::Kustomization {
        said = git::run(folder, &["status", "--porcelain", "--untracked-files=no"])?;
    }
    let first = said.lines().next().map(str::trim);
    Ok(first.map(|line| line.split_once(' ').map_or(line, |(_, path)| path.trim()).to_owned()))
}

/// One way to write the address of a repository, however it was cloned; nothing for one on this machine.
fn address(url: &str) -> Option<String> {
    let (authority, path) = match url.split_once("://") {
        Some((scheme, rest)) => {
            let known =
                ["https", "http", "ssh", "git", "git+ssh"].iter().any(|known| known.eq_ignore_ascii_case(scheme));
            let (authority, path) = rest.split_once('/').filter(|_| known)?;
            // A port of ssh says nothing about where it is read otherwise.
            let web = scheme.to_ascii_lowercase().starts_with("http");
            let authority = if web { authority } else { authority.split(':').next().unwrap_or(authority) };
            // Without credentials a user of ssh is left.
            (authority.rsplit('@').next().unwrap_or(authority), path)
        }
        // As scp writes it; a colon after a slash is part of a path.
        None => {
            let (authority, path) = url.split_once(':').filter(|(authority, _)| !authority.contains('/'))?;
            (authority.rsplit('@').next().unwrap_or(authority), path)
        }
    };
    let path = path.trim_matches('/');
    let path = path.strip_suffix(".git").unwrap_or(path);
    (!authority.is_empty() && !path.is_empty()).then(|| format!("https://{}/{path}", authority.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_has_one_address_however_it_was_cloned_and_none_on_this_machine() {
        for url in [
            "https://git.example.com/shop/api.git",
            "https://Git.example.com/shop/api/",
            "http://git.example.com/shop/api",
            "ssh://git@git.example.com/shop/api.git",
            "ssh://git@git.example.com:2222/shop/api.git",
            "git@git.example.com:shop/api.git",
            "git.example.com:shop/api",
        ] {
            assert_eq!(address(url).as_deref(), Some("https://git.example.com/shop/api"), "{url}");
        }
        assert_eq!(address("https://git.example.com:8443/a.git").as_deref(), Some("https://git.example.com:8443/a"));
        for url in ["/home/me/api", "../api", "file:///home/me/api", "./a:b", "https://git.example.com", "", "c:"] {
            assert_eq!(address(url), None, "{url}");
        }
    }

    fn git(folder: &Path, arguments: &[&str]) {
        let mut all = vec!["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main"];
        all.extend(arguments);
        git::run(folder, &all).unwrap();
    }

    #[test]
    fn commit_repository_and_folder_are_those_of_the_checkout() {
        let folder = tempfile::tempdir().unwrap();
        let deploy = folder.path().join("deploy");
        std::fs::create_dir(&deploy).unwrap();
        std::fs::write(deploy.join("a.yaml"), "a: 1\n").unwrap();
        let source = Source::open(&deploy).unwrap();
        assert_eq!(origin(&source, Said::default()).unwrap_err().code, Code::NotInGit);
        git(folder.path(), &["init", "-q"]);
        git(folder.path(), &["remote", "add", "origin", "git@git.example.com:shop/api.git"]);
        git(folder.path(), &["add", "."]);
        git(folder.path(), &["commit", "-q", "-m", "first"]);
        let found = origin(&source, Said::default()).unwrap();
        assert_eq!(found.commit.as_str(), git::head(folder.path()).unwrap());
        assert_eq!(found.repository.as_deref(), Some("https://git.example.com/shop/api"));
        assert_eq!(found.path.as_deref(), Some("deploy"));
        let file = origin(&Source::open(&deploy.join("a.yaml")).unwrap(), Said::default()).unwrap();
        assert_eq!(file.path.as_deref(), Some("deploy/a.yaml"));
        // Another commit than the one that is checked out is a claim that nobody checked.
        let other: CommitId = "0123456789abcdef0123456789abcdef01234567".parse().unwrap();
        let claim = Said { commit: Some(&other), ..Said::default() };
        assert_eq!(origin(&source, claim).unwrap_err().code, Code::NotInGit);
        assert_eq!(origin(&source, Said { allow_dirty: true, ..claim }).unwrap().commit, other);
    }

    #[test]
    fn what_is_changed_is_not_the_commit() {
        let folder = tempfile::tempdir().unwrap();
        git(folder.path(), &["init", "-q"]);
        std::fs::write(folder.path().join("a.yaml"), "a: 1\n").unwrap();
        git(folder.path(), &["add", "."]);
        git(folder.path(), &["commit", "-q", "-m", "first"]);
        let source = Source::open(folder.path()).unwrap();
        let clean = origin(&source, Said::default()).unwrap();
        assert_eq!((clean.path, clean.repository), (None, None));
        std::fs::write(folder.path().join("b.yaml"), "b: 1\n").unwrap();
        let failure = origin(&source, Said::default()).unwrap_err();
        assert_eq!(failure.code, Code::NotInGit);
        assert!(failure.message.starts_with("`b.yaml` is changed"), "{}", failure.message);
        let dirty = Said { allow_dirty: true, ..Said::default() };
        assert_eq!(origin(&source, dirty).unwrap_err().code, Code::BadArgument);
        let named = Said { commit: Some(&clean.commit), ..dirty };
        assert_eq!(origin(&source, named).unwrap().commit, clean.commit);
    }
}
