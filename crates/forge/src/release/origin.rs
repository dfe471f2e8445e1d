//! Where a source comes from: its commit, its repository and its folder there, so far as Git knows it. Nothing of the machine
//! gets in: two checkouts of one commit give the same answer, wherever they are and however they were cloned.

use std::path::{Component, Path, PathBuf};

use forge_core::code::Code;
use forge_core::digest::CommitId;
use forge_core::failure::Failure;
use forge_core::name::clip;
use forge_core::release::Source as Origin;
use forge_core::repository::is_manifest;

use super::source::{Kind, Source};
use crate::git;

/// Where a chart keeps what it depends on.
const DEPENDENCIES: &str = "charts";
/// What says which that is, in a chart of today and in one of before.
const LOCKS: [&str; 2] = ["Chart.lock", "requirements.lock"];

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
        let below = prefix.as_deref().unwrap_or_default();
        let found = differs(folder, source.kind, below, &file).map_err(|why| unsaid(folder, &why))?;
        if let Some(found) = found {
            return Err(found.failure(&format!("the release would not be commit {commit}")));
        }
    }
    let path = prefix.map(|prefix| format!("{prefix}{file}").trim_matches('/').to_owned());
    let repository = match said.repository {
        Some(given) => Some(git::without_credentials(given)),
        None => git::origin(folder).filter(|_| head.is_some()).and_then(|url| address(&url)),
    };
    Ok(Origin { repository, commit, path: path.filter(|path| !path.is_empty()) })
}

/// That a file of values is what is committed, where it lies in a Git checkout, and that no link of the source's repository leads
/// from it to somewhere else.
///
/// # Errors
/// When it is not, does, or cannot be read.
pub(crate) fn is_committed(values: &Path, source: &Source, said: Said<'_>) -> Result<(), Failure> {
    let shown = clip(&values.display().to_string());
    let unread = |error: std::io::Error| Failure::new(Code::Unreadable, format!("failed to read `{shown}`: {error}"));
    let real = values.canonicalize().map_err(unread)?;
    let folder = if source.root.is_dir() { Some(source.root.as_path()) } else { source.root.parent() };
    let top = folder.and_then(|folder| git::run(folder, &["rev-parse", "--show-toplevel"]).ok()).map(PathBuf::from);
    if let Some(top) = top.filter(|top| !real.starts_with(top)) {
        let named = without_dots(&std::path::absolute(values).map_err(unread)?);
        // By name it is in the repository.
        if named.ancestors().any(|above| above.canonicalize().is_ok_and(|above| above == top)) {
            let message = format!("`{shown}` is a link that leads out of the repository");
            return Err(Failure::new(Code::Symlink, message).hint("put the file itself there"));
        }
    }
    let (Some(folder), Some(name)) = (real.parent(), real.file_name().and_then(|name| name.to_str())) else {
        return Err(Failure::new(Code::Unreadable, format!("the name of `{shown}` is not UTF-8")));
    };
    if said.allow_dirty || git::head(folder).is_none() {
        return Ok(());
    }
    let known =
        status(folder, &["--ignored", "--untracked-files=all", "--", name]).map_err(|why| unsaid(folder, &why))?;
    match known.into_iter().next() {
        None => Ok(()),
        Some(found) => Err(found.failure("the release would be of no commit")),
    }
}

/// A path in which `..` is done, by name.
fn without_dots(path: &Path) -> PathBuf {
    let mut found = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                found.pop();
            }
            part => found.push(part),
        }
    }
    found
}

fn not_in_git(message: String) -> Failure {
    Failure::new(Code::NotInGit, message)
}

fn unsaid(folder: &Path, why: &str) -> Failure {
    not_in_git(format!("`git` does not say what is changed in `{}`: {why}", clip(&folder.display().to_string())))
}

/// A file that is not as it was committed.
#[derive(Debug)]
struct Differing {
    /// From the root of the repository.
    path: String,
    /// Git is told to leave it out.
    ignored: bool,
}

impl Differing {
    fn failure(&self, so: &str) -> Failure {
        let path = clip(&self.path);
        if self.ignored {
            return not_in_git(format!("`{path}` is ignored by Git and not committed; {so}")).hint(
                "commit it, or Chart.lock if a chart depends on it, or move it away; or say --allow-dirty and name a commit \
                 with --commit",
            );
        }
        not_in_git(format!("`{path}` is changed and not committed; {so}"))
            .hint("commit it; or say --allow-dirty and name a commit with --commit")
    }
}

/// The first file that differs from what is checked out, of those that a release is made from. What Git is told to ignore is read by
/// helm and kustomize all the same. Kustomize reads beside its folder too, so there every file of the repository counts that Git knows.
fn differs(folder: &Path, kind: Kind, below: &str, file: &str) -> Result<Option<Differing>, String> {
    let found = status(folder, &["--ignored", "--untracked-files=all", "--", "."])?;
    // By what is locked, dependencies of a chart are the same for everybody, whoever fetches them.
    let committed = |name: &str| git::run(folder, &["ls-files", "--error-unmatch", "--", name]).is_ok();
    let locked = kind == Kind::Chart && LOCKS.into_iter().any(committed);
    let counts = |path: &str| match kind {
        _ if !file.is_empty() => path == file,
        Kind::Chart => !(locked && path.split('/').next() == Some(DEPENDENCIES)),
        Kind::Kustomization => true,
        Kind::Plain => !path.split('/').any(|part| part.starts_with('.')) && (is_manifest(path) || path.ends_with('/')),
    };
    let counts = |one: &Differing| !one.ignored || counts(one.path.strip_prefix(below).unwrap_or(&one.path));
    let first = found.into_iter().find(counts);
    if first.is_some() || kind != Kind::Kustomization {
        return Ok(first);
    }
    Ok(status(folder, &["--untracked-files=no"])?.into_iter().next())
}

/// What Git says of files that are not as they were committed; those that it is told to ignore come last.
fn status(folder: &Path, more: &[&str]) -> Result<Vec<Differing>, String> {
    let mut arguments = vec!["--literal-pathspecs", "status", "--porcelain", "-z", "--no-renames"];
    arguments.extend(more);
    let said = git::run(folder, &arguments)?;
    // The first of them has lost its leading space.
    let records = said.split('\0').filter_map(|record| record.trim_start().split_once(' '));
    let one = |(state, path): (&str, &str)| Differing { path: path.trim_start().to_owned(), ignored: state == "!!" };
    Ok(records.map(one).collect())
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

    #[test]
    fn what_git_ignores_is_not_the_commit_where_a_release_would_be_made_from_it() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        git(folder.path(), &["init", "-q"]);
        write(".gitignore", "*.tgz\n*.local.yaml\n.env\nnotes\n");
        write("plain/a.yaml", "a: 1\n");
        write("chart/Chart.yaml", "name: api\n");
        write("tree/kustomization.yaml", "resources: []\n");
        git(folder.path(), &["add", "."]);
        git(folder.path(), &["commit", "-q", "-m", "first"]);
        let said = |path: &str| origin(&Source::open(&folder.path().join(path)).unwrap(), Said::default());
        let refused = |path: &str, file: &str| {
            let failure = said(path).unwrap_err();
            assert_eq!(failure.code, Code::NotInGit);
            assert!(failure.message.starts_with(&format!("`{file}` is ignored by Git")), "{}", failure.message);
            failure.hint.unwrap_or_default()
        };
        // What plain YAML does not read does not count.
        for unread in ["plain/notes", "plain/.env", "plain/.x/b.local.yaml"] {
            write(unread, "");
        }
        said("plain").unwrap();
        write("plain/x/b.local.yaml", "");
        refused("plain", "plain/x/b.local.yaml");
        said("plain/a.yaml").unwrap();
        refused("plain/x/b.local.yaml", "plain/x/b.local.yaml");
        // What generators read does.
        write("tree/.env", "a=1\n");
        refused("tree", "tree/.env");
        // Dependencies of a chart are those that are locked.
        write("chart/charts/lib-1.tgz", "");
        assert!(refused("chart", "chart/charts/lib-1.tgz").contains("Chart.lock"));
        write("chart/Chart.lock", "");
        git(folder.path(), &["add", "chart/Chart.lock"]);
        git(folder.path(), &["commit", "-q", "-m", "locked"]);
        said("chart").unwrap();
        write("chart/notes", "");
        refused("chart", "chart/notes");
    }

    #[test]
    fn values_that_lie_in_git_are_committed_there_and_are_no_way_out() {
        let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = |name: &str| folder.path().join(name);
        git(folder.path(), &["init", "-q"]);
        std::fs::create_dir(path("chart")).unwrap();
        for (name, text) in [("chart/Chart.yaml", ""), (".gitignore", "secret.yaml\n"), ("good.yaml", "a: 1\n")] {
            std::fs::write(path(name), text).unwrap();
        }
        git(folder.path(), &["add", "."]);
        git(folder.path(), &["commit", "-q", "-m", "first"]);
        let source = Source::open(&path("chart")).unwrap();
        let asked = |values: &Path| is_committed(values, &source, Said::default()).map_err(|failure| failure.code);
        assert_eq!(asked(&path("good.yaml")), Ok(()));
        for name in ["secret.yaml", "new.yaml"] {
            std::fs::write(path(name), "a: 1\n").unwrap();
            assert_eq!(asked(&path(name)), Err(Code::NotInGit), "{name}");
            let dirty = Said { allow_dirty: true, ..Said::default() };
            assert!(is_committed(&path(name), &source, dirty).is_ok());
        }
        std::fs::write(path("good.yaml"), "a: 2\n").unwrap();
        assert_eq!(asked(&path("good.yaml")), Err(Code::NotInGit));
        // Nobody keeps a history of what lies elsewhere; that it is named is enough, unless a link of the repository does.
        let other = outside.path().join("values.yaml");
        std::fs::write(&other, "a: 1\n").unwrap();
        assert_eq!(asked(&other), Ok(()));
        std::os::unix::fs::symlink(&other, path("chart/more.yaml")).unwrap();
        std::os::unix::fs::symlink(outside.path(), path("chart/more")).unwrap();
        for name in ["chart/more.yaml", "chart/more/values.yaml", "chart/../chart/more.yaml"] {
            assert_eq!(asked(&path(name)), Err(Code::Symlink), "{name}");
        }
        assert_eq!(asked(&path("nothing.yaml")), Err(Code::Unreadable));
    }
}
