//! How people name a release: by a repository of a registry and a tag or digest, by its project and what they know of the
//! release (commit, beginning of one, version), or by a folder with an OCI layout.

use std::path::{Path, PathBuf};

use forge_core::code::Code;
use forge_core::digest::{CommitId, Digest};
use forge_core::failure::Failure;
use forge_core::name::{ProjectId, clip};

use crate::registry::{Located, Reference, RepositoryName};

/// Fewer digits fit too much.
const FEWEST_DIGITS: usize = 4;

/// What holds releases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// A repository of a registry.
    Registry(RepositoryName),
    /// A folder with an OCI layout.
    Folder(PathBuf),
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Registry(repository) => repository.fmt(f),
            Self::Folder(folder) => f.write_str(&clip(&folder.display().to_string())),
        }
    }
}

/// Which of the releases there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Which {
    /// The one with this digest.
    Digest(Digest),
    /// By its commit, the beginning of one, or its version.
    Named(String),
    /// By a tag that somebody gave it, which says nothing about it.
    Tagged(String),
    /// Nobody says; good where there is only one.
    Only,
}

/// A release as it was named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) place: Place,
    pub(crate) which: Which,
    /// The project, where it was named by it.
    pub(crate) project: Option<ProjectId>,
}

impl Named {
    /// A release in a folder.
    ///
    /// # Errors
    /// When what says which of them is meant cannot be the name of a release.
    pub(crate) fn folder(folder: &Path, release: Option<&str>) -> Result<Self, Failure> {
        let which = release.map_or(Ok(Which::Only), which_of)?;
        Ok(Self { place: Place::Folder(folder.to_owned()), which, project: None })
    }

    /// Reads a name; `registry` is asked for where releases are kept, if the name is that of a project.
    ///
    /// # Errors
    /// When it is none, or says twice which release is meant.
    pub(crate) fn read(
        text: &str,
        release: Option<&str>,
        registry: impl FnOnce() -> Result<String, Failure>,
    ) -> Result<Self, Failure> {
        let named = split(text, registry)?;
        let which = match (named.which, release) {
            (which, None) => which,
            (Which::Only, Some(release)) => which_of(release)?,
            (_, Some(_)) => {
                let message = format!("`{}` says which release is meant, and --release says it again", clip(text));
                return Err(Failure::new(Code::BadArgument, message).hint("leave one of them out"));
            }
        };
        Ok(Self { which, ..named })
    }
}

fn split(text: &str, registry: impl FnOnce() -> Result<String, Failure>) -> Result<Named, Failure> {
    if let Some(folder) = folder(text) {
        return Ok(Named { place: Place::Folder(folder), which: Which::Only, project: None });
    }
    let (name, which) = ends(text);
    if let Some(folder) = which.and_then(|_| folder(name)) {
        return Named::folder(&folder, which);
    }
    // `localhost` is a registry for everybody.
    let project = name.parse::<ProjectId>().ok().filter(|project| project.repo.as_str() != "localhost");
    if let Some(project) = project {
        let place = Place::Registry(repository(&registry()?, &project)?);
        let which = which.map_or(Ok(Which::Only), which_of)?;
        return Ok(Named { place, which, project: Some(project) });
    }
    let located: Located = text.parse().map_err(|error| {
        Failure::new(Code::BadArgument, error)
            .hint("write `repo/project:COMMIT`, `registry.example.com/path:COMMIT`, `…@sha256:…`, or a folder with an OCI layout")
    })?;
    let which = match located.reference {
        Some(Reference::Digest(digest)) => Which::Digest(digest),
        Some(Reference::Tag(tag)) if is_beginning(&tag) || tag.parse::<CommitId>().is_ok() => Which::Named(tag),
        Some(Reference::Tag(tag)) => Which::Tagged(tag),
        None => Which::Only,
    };
    Ok(Named { place: Place::Registry(located.repository), which, project: None })
}

/// A name, and what stands behind the last `@`, or the last `:` of its last part.
fn ends(text: &str) -> (&str, Option<&str>) {
    if let Some((name, digest)) = text.rsplit_once('@') {
        return (name, Some(digest));
    }
    match text.rsplit_once(':') {
        Some((name, which)) if !which.contains('/') => (name, Some(which)),
        _ => (text, None),
    }
}

fn which_of(text: &str) -> Result<Which, Failure> {
    if text.contains(':') {
        return match text.parse() {
            Ok(digest) => Ok(Which::Digest(digest)),
            Err(error) => Err(Failure::new(Code::BadArgument, error).hint("`forge release list` shows digests")),
        };
    }
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '+');
    if text.is_empty() || text.len() > 128 || !text.chars().all(good) {
        let message = format!("`{}` names no release", clip(text));
        return Err(Failure::new(Code::BadArgument, message).hint("give a commit, the beginning of one, or a version"));
    }
    Ok(Which::Named(text.to_owned()))
}

/// The folder, if the text is one that holds a layout or can only be a path.
fn folder(text: &str) -> Option<PathBuf> {
    let path = Path::new(text);
    let only_a_path = text == "." || text == ".." || ["/", "./", "../"].iter().any(|begin| text.starts_with(begin));
    (path.join("oci-layout").is_file() || (only_a_path && !tagged(text))).then(|| path.to_owned())
}

/// Whether a path ends in what says which release of it is meant.
fn tagged(text: &str) -> bool {
    let (name, which) = ends(text);
    which.is_some() && Path::new(name).join("oci-layout").is_file()
}

/// The repository of a project, below where an installation keeps its releases.
///
/// # Errors
/// When that is no place in a registry.
pub(crate) fn repository(registry: &str, project: &ProjectId) -> Result<RepositoryName, Failure> {
    format!("{}/{project}", registry.trim_end_matches('/')).parse().map_err(Failure::from)
}

/// The tag that a version is kept under: what a tag cannot hold is written otherwise, as Helm does it.
pub(crate) fn version_tag(version: &str) -> String {
    version.replace('+', "_")
}

/// The commits that a name fits, of those that are there.
pub(crate) fn fitting<'t>(name: &str, tags: impl IntoIterator<Item = &'t str>) -> Vec<&'t str> {
    let begins = is_beginning(name);
    let version = version_tag(name);
    let mut found: Vec<&str> = tags
        .into_iter()
        .filter(|tag| *tag == version || (begins && tag.starts_with(name) && tag.parse::<CommitId>().is_ok()))
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Whether a text can be the beginning of a commit.
pub(crate) fn is_beginning(name: &str) -> bool {
    (FEWEST_DIGITS..40).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// Says that a name fits several releases.
pub(crate) fn ambiguous(name: &str, found: &[&str]) -> Failure {
    const SHOWN: usize = 5;
    let shown: Vec<&str> = found.iter().take(SHOWN).copied().collect();
    let more = if found.len() > SHOWN { format!(" and {} more", found.len() - SHOWN) } else { String::new() };
    let message = format!("`{}` fits {}{more}", clip(name), shown.join(" and "));
    Failure::new(Code::ReleaseAmbiguous, message).hint("give more digits of the commit, or all 40")
}

/// Says that there is no such release.
pub(crate) fn missing(place: &Place, name: &str) -> Failure {
    Failure::new(Code::ReleaseMissing, format!("{place} has no release `{}`", clip(name)))
        .hint("`forge release list` shows what is there")
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &str = "3f2a9c1d5e7b80416a2c9d3e5f70b1a4c6d8e9f0";

    fn read(text: &str, release: Option<&str>) -> Result<Named, Failure> {
        Named::read(text, release, || Ok("registry.example.com/releases/".to_owned()))
    }

    fn found(text: &str, release: Option<&str>) -> (String, Which) {
        let named = read(text, release).unwrap();
        (named.place.to_string(), named.which)
    }

    #[test]
    fn a_project_lies_below_the_registry_of_the_installation() {
        let place = "registry.example.com/releases/shop/api".to_owned();
        let named = |name: &str| Which::Named(name.to_owned());
        let digest = Digest::of(b"x");
        for (text, release, which) in [
            ("shop/api".to_owned(), None, Which::Only),
            (format!("shop/api:{COMMIT}"), None, named(COMMIT)),
            ("shop/api:3f2a".to_owned(), None, named("3f2a")),
            ("shop/api:1.4.0+build.1".to_owned(), None, named("1.4.0+build.1")),
            ("shop/api".to_owned(), Some("1.4.0"), named("1.4.0")),
            (format!("shop/api@{digest}"), None, Which::Digest(digest.clone())),
            ("shop/api".to_owned(), Some(digest.as_str()), Which::Digest(digest.clone())),
        ] {
            assert_eq!(found(&text, release), (place.clone(), which), "{text}");
        }
    }

    #[test]
    fn a_host_is_a_host_and_nobody_asks_for_the_registry_of_the_installation() {
        let nobody = || -> Result<String, Failure> { panic!("asked") };
        for (text, place) in [
            ("r.example.com/a/shop/api:3f2a", "r.example.com/a/shop/api"),
            ("localhost:5000/shop/api:3f2a", "localhost:5000/shop/api"),
            ("localhost/api:3f2a", "localhost/api"),
        ] {
            let named = Named::read(text, None, nobody).unwrap();
            assert_eq!((named.place.to_string().as_str(), named.which), (place, Which::Named("3f2a".to_owned())));
        }
        let tagged = Named::read("r.example.com/a:latest", None, nobody).unwrap();
        assert_eq!(tagged.which, Which::Tagged("latest".to_owned()));
        let named = Named::read("r.example.com:5000/a", Some("3f2a"), nobody).unwrap();
        assert_eq!(named.which, Which::Named("3f2a".to_owned()));
    }

    #[test]
    fn a_folder_with_a_layout_is_one_also_with_what_says_which() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("oci-layout"), "{}").unwrap();
        let path = folder.path().to_str().unwrap();
        assert_eq!(read(path, None).unwrap().place, Place::Folder(folder.path().to_owned()));
        let named = read(&format!("{path}:3f2a"), None).unwrap();
        assert_eq!(named, Named::folder(folder.path(), Some("3f2a")).unwrap());
        let digest = Digest::of(b"x");
        assert_eq!(read(&format!("{path}@{digest}"), None).unwrap().which, Which::Digest(digest));
        assert_eq!(read("./not/there", None).unwrap().place, Place::Folder("./not/there".into()));
    }

    #[test]
    fn what_says_twice_or_nothing_is_refused() {
        for (text, release) in [
            ("shop/api:3f2a", Some("3f2a")),
            ("shop", None),
            ("", None),
            ("shop/api:", None),
            ("shop/api:a b", None),
            ("shop/api@sha256:00", None),
        ] {
            assert_eq!(read(text, release).unwrap_err().code, Code::BadArgument, "{text}");
        }
    }

    #[test]
    fn a_name_fits_a_version_and_every_commit_that_begins_so() {
        let other = "3f2a00b1c6d8e9f03f2a9c1d5e7b80416a2c9d3e";
        let tags = [COMMIT, other, "1.4.0_b", "3f2a", "3f2abc", "sha256-3f2a.sig"];
        assert_eq!(fitting("3f2a9", tags), [COMMIT]);
        assert_eq!(fitting("3f2a", tags), ["3f2a", other, COMMIT]);
        assert_eq!(fitting("1.4.0+b", tags), ["1.4.0_b"]);
        assert_eq!(fitting("3f2", tags), Vec::<&str>::new());
        assert_eq!(fitting("3F2A", tags), Vec::<&str>::new());
        let failure = ambiguous("3f2a", &fitting("3f2a", [COMMIT, other]));
        assert_eq!(failure.code, Code::ReleaseAmbiguous);
        assert_eq!(failure.message, format!("`3f2a` fits {other} and {COMMIT}"));
    }
}
