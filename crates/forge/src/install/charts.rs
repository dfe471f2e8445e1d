//! Where charts come from: a folder, an OCI registry, or a repository. A folder is enough where there is no way out.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use forge_core::code::Code;
use forge_core::digest::Digest;
use forge_core::failure::Failure;
use forge_core::install::{APPLICATION, CHARTS_FOLDER, ChartPlace, REPOSITORY, chart};
use forge_core::name::clip;
use forge_core::preflight::Component;
use forge_core::url::without_credentials;
use forge_core::yaml::{Dialect, Limits, read};

/// What a chart may have: several times what any has.
const MOST_FILES: usize = 10_000;
const MOST_BYTES: u64 = 64 << 20;
/// How deep its folders may be.
const DEEPEST: usize = 16;

/// A place that has charts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Charts {
    /// A folder with unpacked charts, or archives of them.
    Folder(PathBuf),
    /// Repositories of an OCI registry.
    Registry(String),
    /// A repository with an index.
    Repository(String),
    /// The folder of charts of the GitOps repository; what it does not have comes from where it is published.
    Own(PathBuf),
}

/// One chart, as helm takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    /// The chart: a path, an address, or a name in the repository.
    pub(crate) reference: OsString,
    /// The repository that has it.
    pub(crate) repository: Option<String>,
    /// The version to ask for; one that is at hand has no other.
    pub(crate) version: Option<String>,
    /// What is in it, where it is at hand.
    pub(crate) content: Option<Digest>,
}

impl Source {
    /// As arguments of helm.
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let mut words = vec![self.reference.clone()];
        if let Some(repository) = &self.repository {
            words.extend([OsString::from("--repo"), OsString::from(repository)]);
        }
        if let Some(version) = &self.version {
            words.extend([OsString::from("--version"), OsString::from(version)]);
        }
        words
    }
}

impl Charts {
    /// A folder, `oci://…`, or the URL of a repository.
    ///
    /// # Errors
    /// When it holds credentials, which everybody could read in the list of processes.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let bad = |message: String| Failure::new(Code::BadArgument, message);
        let Some((scheme, _)) = text.split_once("://") else { return Ok(Self::Folder(PathBuf::from(text))) };
        if without_credentials(text) != text {
            let hint = match scheme {
                "oci" => "`helm registry login` keeps them for helm; in a pod Secret `forge-registry` has them",
                _ => {
                    "a repository with an index is asked without any: charts that need them come from a folder or oci://…"
                }
            };
            return Err(bad(format!("--charts `{}` must not hold credentials", without_credentials(text))).hint(hint));
        }
        let url = text.trim_end_matches('/').to_owned();
        match scheme {
            "oci" => Ok(Self::Registry(url)),
            "https" | "http" => Ok(Self::Repository(url)),
            _ => Err(bad(format!("--charts `{}` is neither a folder nor oci:// nor https://", clip(text)))
                .hint("a folder holds `argo-cd/` or `argo-cd-<version>.tgz`, and the same for the others")),
        }
    }

    /// The place that was named; else the repository's own folder of charts, where it has one; else where they are published.
    ///
    /// # Errors
    /// When what was named cannot be a place.
    pub(crate) fn chosen(named: Option<&str>, repository: &Path) -> Result<Self, Failure> {
        let own = repository.join(CHARTS_FOLDER);
        match named {
            Some(named) => Self::parse(named),
            None if own.is_dir() => Ok(Self::Own(own)),
            None => Self::parse(REPOSITORY),
        }
    }

    /// The chart of Argo CD's own Application, and its version: a folder of the repository holds both, else it comes from where
    /// charts come from.
    ///
    /// # Errors
    /// When it is not there, or is another chart.
    pub(crate) fn own(&self, place: &ChartPlace, repository: &Path) -> Result<(Source, String), Failure> {
        let name = chart(Component::Cd).name;
        match place {
            ChartPlace::Version(version) => Ok((self.source(name, version)?, version.clone())),
            ChartPlace::Folder(folder) => in_repository(repository, folder, name),
        }
    }

    /// One chart of it, at this version and no other.
    ///
    /// # Errors
    /// When it is not there, or is another version.
    pub(crate) fn source(&self, name: &str, version: &str) -> Result<Source, Failure> {
        let (repository, wanted, content) = (None, Some(version.to_owned()), None);
        Ok(match self {
            Self::Registry(url) => {
                Source { reference: format!("{url}/{name}").into(), repository, version: wanted, content }
            }
            Self::Repository(url) => {
                Source { reference: name.into(), repository: Some(url.clone()), version: wanted, content }
            }
            Self::Folder(folder) => {
                let (path, content) = at_hand(folder, name, version)?;
                Source { reference: path.into(), repository, version: None, content: Some(content) }
            }
            Self::Own(folder) => {
                let has = folder.join(name).is_dir() || folder.join(format!("{name}-{version}.tgz")).is_file();
                let place = if has { Self::Folder(folder.clone()) } else { Self::parse(REPOSITORY)? };
                place.source(name, version)?
            }
        })
    }
}

/// A chart that is a folder of the repository.
fn in_repository(repository: &Path, folder: &str, name: &str) -> Result<(Source, String), Failure> {
    let shown = clip(folder);
    let unusable = |message: String| {
        Failure::new(Code::ChartUnusable, message)
            .hint(format!("Application `{APPLICATION}` in app.yaml names the folder that holds chart {name}"))
    };
    let unread = |error: std::io::Error| unusable(format!("chart {name} in `{shown}` cannot be read: {error}"));
    let root = fs::canonicalize(repository).map_err(unread)?;
    let path = fs::canonicalize(root.join(folder)).map_err(unread)?;
    if !path.starts_with(&root) {
        return Err(unusable(format!("`{shown}` leads out of the repository")));
    }
    let description = path.join("Chart.yaml");
    let (found, version) = (read_field(&description, "name"), read_field(&description, "version"));
    match (found.map_err(unread)?, version.map_err(unread)?) {
        (Some(found), Some(version)) if found == name => {
            let content = Some(content(&path).map_err(unread)?);
            Ok((Source { reference: path.into(), repository: None, version: None, content }, version))
        }
        _ => Err(unusable(format!("`{shown}` is not chart {name}"))),
    }
}

/// What is in an unpacked chart.
fn content(unpacked: &Path) -> std::io::Result<Digest> {
    let mut files = Vec::new();
    collect(unpacked, "", DEEPEST, &mut files)?;
    files.sort();
    Ok(Digest::of_json(&files))
}

/// A chart of a folder, by its whole path, and what is in it.
fn at_hand(folder: &Path, name: &str, version: &str) -> Result<(PathBuf, Digest), Failure> {
    let shown = clip(&folder.display().to_string());
    let unusable = |message: String| {
        Failure::new(Code::ChartUnusable, message)
            .hint(format!("`helm pull {name} --version {version} --repo URL` gets it where there is a way out"))
    };
    let unread = |error: std::io::Error| unusable(format!("chart {name} in `{shown}` cannot be read: {error}"));
    // An argument of helm must not begin with a dash, and helm may be started elsewhere.
    let root = fs::canonicalize(folder).map_err(|error| {
        Failure::new(Code::ChartUnusable, format!("charts cannot be read from `{shown}`: {error}"))
            .hint("--charts names a folder, oci://… or the URL of a repository")
    })?;
    let archive = root.join(format!("{name}-{version}.tgz"));
    let unpacked = root.join(name);
    if unpacked.is_dir() {
        let found = read_field(&unpacked.join("Chart.yaml"), "version").map_err(unread)?;
        if found.as_deref() != Some(version) {
            let found = found.map_or_else(|| "no version".to_owned(), |found| format!("version {}", clip(&found)));
            return Err(unusable(format!("chart {name} in `{shown}` has {found}; installed is {version}")));
        }
        let content = content(&unpacked).map_err(unread)?;
        return Ok((unpacked, content));
    }
    if archive.is_file() {
        let content = digest(&archive).map_err(unread)?;
        return Ok((archive, content));
    }
    Err(unusable(format!("`{shown}` has neither {name}/ nor {name}-{version}.tgz")))
}

/// What a chart says it is.
fn read_field(description: &Path, field: &str) -> std::io::Result<Option<String>> {
    Ok(self::field(&fs::read_to_string(description)?, field))
}

/// A field of such a description.
pub(super) fn field(description: &str, name: &str) -> Option<String> {
    let stream = read(description, Dialect::Kubernetes, Limits::EMBEDDED);
    stream.documents.first().and_then(|document| document.text_at(&[name])).map(str::to_owned)
}

/// What is in an archive.
pub(super) fn digest(file: &Path) -> std::io::Result<Digest> {
    let length = fs::metadata(file)?.len();
    if length > MOST_BYTES {
        return Err(std::io::Error::other(format!("{} has {length} bytes", file.display())));
    }
    Ok(Digest::of(&fs::read(file)?))
}

/// All files below a folder, by their paths in it.
fn collect(root: &Path, below: &str, depth: usize, files: &mut Vec<(String, Digest)>) -> std::io::Result<()> {
    if depth == 0 || files.len() > MOST_FILES {
        return Err(std::io::Error::other("too many files or folders for a chart"));
    }
    for entry in fs::read_dir(root.join(below))? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let path = if below.is_empty() { name.to_string() } else { format!("{below}/{name}") };
        // Helm follows links, so what they lead to counts.
        if fs::metadata(entry.path())?.is_dir() {
            collect(root, &path, depth - 1, files)?;
        } else {
            files.push((path, digest(&entry.path())?));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The one that is asked for.
    fn source(charts: &Charts) -> Result<Source, Failure> {
        charts.source("argo-cd", "9.2.0")
    }

    fn words(source: &Source) -> Vec<String> {
        source.arguments().into_iter().map(|word| word.into_string().unwrap()).collect()
    }

    #[test]
    fn a_place_is_a_folder_a_registry_or_a_repository() {
        let source = |text: &str| source(&Charts::parse(text).unwrap()).unwrap();
        let registry = source("oci://r.example.com/charts/");
        assert_eq!(words(&registry), ["oci://r.example.com/charts/argo-cd", "--version", "9.2.0"]);
        assert_eq!(
            words(&source("https://charts.example.com")),
            ["argo-cd", "--repo", "https://charts.example.com", "--version", "9.2.0"]
        );
        assert_eq!(Charts::parse("charts").unwrap(), Charts::Folder(PathBuf::from("charts")));
        for bad in ["https://user:pass@charts.example.com", "oci://token@r.example.com/x", "git://example.com/x"] {
            let failure = Charts::parse(bad).unwrap_err();
            assert_eq!(failure.code, Code::BadArgument);
            assert!(!failure.message.contains("pass") && !failure.message.contains("token"), "{}", failure.message);
        }
    }

    #[test]
    fn a_repository_that_brings_its_charts_needs_no_other_place_unless_one_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let chosen = |named: Option<&str>| Charts::chosen(named, folder.path()).unwrap();
        assert_eq!(chosen(None), Charts::Repository(REPOSITORY.to_owned()));
        let own = folder.path().join(CHARTS_FOLDER);
        fs::create_dir_all(&own).unwrap();
        assert_eq!(chosen(None), Charts::Own(own.clone()));
        fs::write(own.join("argo-cd-9.2.0.tgz"), "archive").unwrap();
        let source = |name: &str, version: &str| chosen(None).source(name, version).unwrap();
        assert_eq!(source("argo-cd", "9.2.0").content, Some(Digest::of(b"archive")));
        // What it does not have is not missing.
        assert!(words(&source("argo-events", "2.4.19")).contains(&REPOSITORY.to_owned()));
        assert_eq!(chosen(Some("oci://r.example.com/x")), Charts::Registry("oci://r.example.com/x".to_owned()));
    }

    #[test]
    fn a_folder_has_the_version_that_is_installed_and_its_content_counts() {
        let folder = tempfile::tempdir().unwrap();
        let charts = Charts::Folder(folder.path().to_owned());
        let failure = source(&charts).unwrap_err();
        assert!(failure.message.contains("neither argo-cd/ nor argo-cd-9.2.0.tgz"), "{}", failure.message);
        fs::create_dir_all(folder.path().join("argo-cd/templates")).unwrap();
        let write = |path: &str, text: &str| fs::write(folder.path().join("argo-cd").join(path), text).unwrap();
        write("Chart.yaml", "name: argo-cd\nversion: 9.1.0\n");
        let failure = source(&charts).unwrap_err();
        assert_eq!(failure.code, Code::ChartUnusable);
        assert!(failure.message.ends_with("has version 9.1.0; installed is 9.2.0"), "{}", failure.message);
        write("Chart.yaml", "name: argo-cd\nversion: 9.2.0\n");
        write("templates/a.yaml", "a: 1\n");
        let first = source(&charts).unwrap();
        assert_eq!(first, source(&charts).unwrap());
        assert!(Path::new(&first.reference).is_absolute());
        assert_eq!((&first.repository, &first.version), (&None, &None));
        write("templates/a.yaml", "a: 2\n");
        assert_ne!(first.content, source(&charts).unwrap().content);
    }

    #[test]
    fn an_archive_does_where_nothing_is_unpacked() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("argo-cd-9.2.0.tgz"), "archive").unwrap();
        let found = source(&Charts::Folder(folder.path().to_owned())).unwrap();
        assert!(words(&found)[0].ends_with("/argo-cd-9.2.0.tgz"));
        assert_eq!(found.content, Some(Digest::of(b"archive")));
        assert!(source(&Charts::Folder(folder.path().join("nowhere"))).is_err());
    }

    #[test]
    fn the_chart_of_argo_cds_own_application_may_be_in_the_repository_at_any_version() {
        let folder = tempfile::tempdir().unwrap();
        let (root, charts) = (folder.path(), Charts::parse("oci://r.example.com/charts").unwrap());
        let own = |path: &str| charts.own(&ChartPlace::Folder(path.to_owned()), root);
        assert_eq!(own("argo/charts/argo-cd").unwrap_err().code, Code::ChartUnusable);
        fs::create_dir_all(root.join("argo/charts/argo-cd")).unwrap();
        let write = |text: &str| fs::write(root.join("argo/charts/argo-cd/Chart.yaml"), text).unwrap();
        write("name: other\nversion: 9.3.1\n");
        assert!(own("argo/charts/argo-cd").unwrap_err().message.ends_with("is not chart argo-cd"));
        write("name: argo-cd\nversion: 9.3.1\n");
        let (found, version) = own("argo/charts/argo-cd").unwrap();
        assert_eq!(version, "9.3.1");
        assert!(words(&found)[0].ends_with("/argo/charts/argo-cd") && found.content.is_some());
        // The same chart elsewhere has the same content.
        let elsewhere = Charts::Folder(root.join("argo/charts")).source("argo-cd", "9.3.1").unwrap();
        assert_eq!(elsewhere, found);
        std::os::unix::fs::symlink("/", root.join("out")).unwrap();
        assert!(own("out").unwrap_err().message.contains("leads out of the repository"));
        let (found, version) = charts.own(&ChartPlace::Version("9.4.0".to_owned()), root).unwrap();
        assert_eq!(version, "9.4.0");
        assert_eq!(words(&found), ["oci://r.example.com/charts/argo-cd", "--version", "9.4.0"]);
    }
}
