//! The samples of Forge's health checks: objects as they lie in a cluster, each with what Argo CD is to say of it in two
//! comments at its top (`crates/forge-core/health/samples/<check>/<status>[-<what>].yaml`).

#![allow(clippy::panic, reason = "a sample that cannot be read fails the test that wants it")]

use std::fs;
use std::path::{Path, PathBuf};

/// An object, and what Argo CD is to say of it.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Its file.
    pub path: PathBuf,
    /// The check that it is for, by the name of its folder.
    pub check: String,
    /// The health.
    pub status: String,
    /// The words beside it.
    pub message: String,
}

impl Sample {
    /// `<check>/<name>`, for messages.
    pub fn name(&self) -> String {
        format!("{}/{}", self.check, last(self.path.with_extension("").file_name()))
    }
}

/// All samples, by check and name.
pub fn samples() -> Vec<Sample> {
    let folder = crate::checkout().join("crates/forge-core/health/samples");
    let mut paths: Vec<PathBuf> = entries(&folder).iter().flat_map(|check| entries(check)).collect();
    paths.sort();
    paths.into_iter().map(sample).collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let listed = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let path = |entry: std::io::Result<fs::DirEntry>| match entry {
        Ok(entry) => entry.path(),
        Err(error) => panic!("{}: {error}", folder.display()),
    };
    listed.map(path).collect()
}

fn sample(path: PathBuf) -> Sample {
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut lines = text.lines();
    let mut said = |what: &str| {
        let line = lines.next().and_then(|line| line.strip_prefix(&format!("# {what}:")));
        line.unwrap_or_else(|| panic!("{}: begins with `# expect:` and `# message:`", path.display())).trim().to_owned()
    };
    let (status, message) = (said("expect"), said("message"));
    let check = last(path.parent().and_then(Path::file_name));
    Sample { check, status, message, path }
}

fn last(name: Option<&std::ffi::OsStr>) -> String {
    name.unwrap_or_default().to_string_lossy().into_owned()
}
