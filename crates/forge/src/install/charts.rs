//! Where charts come from: a folder, an OCI registry, or a repository. A folder is enough where there is no way out.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use forge_core::code::Code;
use forge_core::digest::Digest;
use forge_core::failure::Failure;
use forge_core::install::Chart;
use forge_core::name::clip;
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
            return Err(bad(format!("--charts `{}` must not hold credentials", without_credentials(text)))
                .hint("`helm registry login` and `helm repo add` keep them where helm finds them"));
        }
        let url = text.trim_end_matches('/').to_owned();
        match scheme {
            "oci" => Ok(Self::Registry(url)),
            "https" | "http" => Ok(Self::Repository(url)),
            _ => Err(bad(format!("--charts `{}` is neither a folder nor oci:// nor https://", clip(text)))
                .hint("a folder holds `argo-cd/` or `argo-cd-<version>.tgz`, and the same for the others")),
        }
    }

    /// One chart of it, at the version that is installed and no other.
    ///
    /// # Errors
    /// When it is not there, or is another version.
    pub(crate) fn source(&self, chart: &Chart) -> Result<Source, Failure> {
        let name = chart.name;
        let (repository, version, content) = (None, Some(chart.version.to_owned()), None);
        Ok(match self {
            Self::Registry(url) => Source { reference: format!("{url}/{name}").into(), repository, version, content },
            Self::Repository(url) => Source { reference: name.into(), repository: Some(url.clone()), version, content },
            Self::Folder(folder) => {
                let (path, content) = at_hand(folder, name, chart.version)?;
                Source { reference: path.into(), repository, version: None, content: Some(content) }
            }
        })
    }
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
        let found = read_version(&unpacked.join("Chart.yaml")).map_err(unread)?;
        if found.as_deref() != Some(version) {
            let found = found.map_or_else(|| "no version".to_owned(), |found| format!("version {}", clip(&found)));
            return Err(unusable(format!("chart {name} in `{shown}` has {found}; installed is {version}")));
        }
        let mut files = Vec::new();
        collect(&unpacked, "", DEEPEST, &mut files).map_err(unread)?;
        files.sort();
        return Ok((unpacked, Digest::of_json(&files)));
    }
    if archive.is_file() {
        let content = digest(&archive).map_err(unread)?;
        return Ok((archive, content));
    }
    Err(unusable(format!("`{shown}` has neither {name}/ nor {name}-{version}.tgz")))
}

/// The version that a chart says it is.
fn read_version(description: &Path) -> std::io::Result<Option<String>> {
    let text = fs::read_to_string(description)?;
    let stream = read(&text, Dialect::Kubernetes, Limits::EMBEDDED);
    Ok(stream.documents.first().and_then(|document| document.text_at(&["version"])).map(str::to_owned))
}

fn digest(file: &Path) -> std::io::Result<Digest> {
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

    const CHART: Chart = Chart { name: "argo-cd", version: "9.2.0", app_version: "v3.2.2", oldest: (3, 0) };

    fn words(source: &Source) -> Vec<String> {
        source.arguments().into_iter().map(|word| word.into_string().unwrap()).collect()
    }

    #[test]
    fn a_place_is_a_folder_a_registry_or_a_repository() {
        let source = |text: &str| Charts::parse(text).unwrap().source(&CHART).unwrap();
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
    fn a_folder_has_the_version_that_is_installed_and_its_content_counts() {
        let folder = tempfile::tempdir().unwrap();
        let charts = Charts::Folder(folder.path().to_owned());
        let failure = charts.source(&CHART).unwrap_err();
        assert!(failure.message.contains("neither argo-cd/ nor argo-cd-9.2.0.tgz"), "{}", failure.message);
        fs::create_dir_all(folder.path().join("argo-cd/templates")).unwrap();
        let write = |path: &str, text: &str| fs::write(folder.path().join("argo-cd").join(path), text).unwrap();
        write("Chart.yaml", "name: argo-cd\nversion: 9.1.0\n");
        let failure = charts.source(&CHART).unwrap_err();
        assert_eq!(failure.code, Code::ChartUnusable);
        assert!(failure.message.ends_with("has version 9.1.0; installed is 9.2.0"), "{}", failure.message);
        write("Chart.yaml", "name: argo-cd\nversion: 9.2.0\n");
        write("templates/a.yaml", "a: 1\n");
        let first = charts.source(&CHART).unwrap();
        assert_eq!(first, charts.source(&CHART).unwrap());
        assert!(Path::new(&first.reference).is_absolute());
        assert_eq!((&first.repository, &first.version), (&None, &None));
        write("templates/a.yaml", "a: 2\n");
        assert_ne!(first.content, charts.source(&CHART).unwrap().content);
    }

    #[test]
    fn an_archive_does_where_nothing_is_unpacked() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("argo-cd-9.2.0.tgz"), "archive").unwrap();
        let source = Charts::Folder(folder.path().to_owned()).source(&CHART).unwrap();
        assert!(words(&source)[0].ends_with("/argo-cd-9.2.0.tgz"));
        assert_eq!(source.content, Some(Digest::of(b"archive")));
        assert!(Charts::Folder(folder.path().join("nowhere")).source(&CHART).is_err());
    }
}
