//! Folders of Go modules that are read and not compiled: the real CRDs, charts and kustomizations of others. They come from the Go
//! module cache, at pinned versions; what is missing is downloaded once, and compared with Go's checksum database.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use thiserror::Error;

/// Modules with charts and kustomizations that are released and rendered by tests; those of Argo's charts and of Crossplane's come
/// with the sandbox, see [`crate::sandbox::Sandbox::charts`].
pub const PUBLIC: [(&str, &str); 5] = [
    ("github.com/argoproj/argo-cd/v3", "v3.2.11"),
    ("github.com/argoproj/argo-events", "v1.9.10"),
    ("github.com/argoproj/argo-workflows/v3", "v3.7.6"),
    ("sigs.k8s.io/external-dns", "v0.19.0"),
    ("sigs.k8s.io/kwok", "v0.8.0"),
];

/// Why a module could not be had.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ModuleError {
    /// `go` is not on the `PATH`, or cannot be started.
    #[error("failed to start `go`, which locates modules (is Go installed and on the PATH?)")]
    StartGo(#[source] io::Error),
    /// `go` ran and failed.
    #[error("failed to run `go {arguments}`: {stderr}")]
    RunGo {
        /// What `go` was asked.
        arguments: String,
        /// What it said.
        stderr: String,
    },
    /// The throwaway module for `go mod download` could not be written.
    #[error("failed to write a throwaway Go module")]
    WriteModule(#[source] io::Error),
}

/// Where these modules are, each by its path and version, after those that were missing have been downloaded.
///
/// # Errors
/// When `go` is absent or fails.
pub fn folders(wanted: &[(&str, &str)]) -> Result<Vec<PathBuf>, ModuleError> {
    let cache = PathBuf::from(go(&["env", "GOMODCACHE"], Path::new("."))?.trim());
    let root = |(module, version): &(&str, &str)| cache.join(format!("{module}@{version}"));
    let missing: Vec<String> = wanted
        .iter()
        .filter(|&wanted| !root(wanted).is_dir())
        .map(|(module, version)| format!("{module}@{version}"))
        .collect();
    if !missing.is_empty() {
        let scratch = tempfile::tempdir().map_err(ModuleError::WriteModule)?;
        fs::write(scratch.path().join("go.mod"), "module throwaway\n").map_err(ModuleError::WriteModule)?;
        let mut arguments = vec!["mod", "download"];
        arguments.extend(missing.iter().map(String::as_str));
        go(&arguments, scratch.path())?;
    }
    Ok(wanted.iter().map(root).collect())
}

fn go(arguments: &[&str], folder: &Path) -> Result<String, ModuleError> {
    let output = Command::new("go")
        .args(arguments)
        .current_dir(folder)
        .env("GOWORK", "off")
        .output()
        .map_err(ModuleError::StartGo)?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(ModuleError::RunGo { arguments: arguments.join(" "), stderr });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_up_fetches_the_modules_whose_charts_and_kustomizations_are_rendered() {
        let versions = crate::checkout().join("tools/versions");
        let versions = fs::read_to_string(versions).unwrap();
        let list = versions.split("PUBLIC_MODULES=(\n").nth(1).unwrap().split(')').next().unwrap();
        let listed: Vec<&str> = list.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        assert_eq!(listed, PUBLIC.map(|(module, version)| format!("{module}@{version}")));
    }
}
