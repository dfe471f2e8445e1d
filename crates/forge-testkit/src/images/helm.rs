//! Helm for images: the module that the sandbox builds too, for every processor that images are made for.
//!
//! Its bytes depend on the module, on Go's version and on nothing else: whatever could change them is set here, while
//! where modules come from and are kept is the user's to say.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use forge_core::oci::Architecture;
use serde::Deserialize;

use super::recipe::Helm;
use super::{HELM, HELM_MODULES, ImagesError};

/// Builds it into the folder of each processor, with what it says of its modules beside it.
///
/// # Errors
/// When Go is missing or refuses, or the module is not the one that was pinned.
pub fn build(work: &Path) -> Result<(), ImagesError> {
    let helm = Helm::of_checkout().map_err(ImagesError::Recipe)?;
    let source = work.join("helm-source");
    make(work)?;
    if source.exists() {
        fs::remove_dir_all(&source).map_err(|error| ImagesError::write(&source, error))?;
    }
    copy(&downloaded(&helm, work)?, &source)?;
    let linker = helm.linker();
    for architecture in Architecture::ALL {
        let folder = work.join(architecture.as_str());
        make(&folder)?;
        let program = fs::canonicalize(&folder).map_err(|error| ImagesError::read(&folder, error))?.join(HELM);
        let mut command = go(&source, "-mod=readonly");
        command.env("GOARCH", architecture.as_str());
        command.args(["build", "-trimpath", "-buildvcs=false", "-ldflags", &linker, "-o"]).arg(&program);
        run(command.arg(&helm.package))?;
        let said = run(go(&source, "-mod=readonly").args(["version", "-m"]).arg(&program))?;
        let file = folder.join(HELM_MODULES);
        fs::write(&file, said).map_err(|error| ImagesError::write(&file, error))?;
    }
    fs::remove_dir_all(&source).map_err(|error| ImagesError::write(&source, error))
}

fn go(folder: &Path, flags: &str) -> Command {
    let mut command = Command::new("go");
    command.current_dir(folder).env("GOFLAGS", flags).env_remove("GODEBUG");
    // No toolchain is downloaded behind the user's back, and no experiment of the user's gets in.
    command.envs([("GOWORK", "off"), ("GOTOOLCHAIN", "local"), ("GOEXPERIMENT", ""), ("GOFIPS140", "off")]);
    command.envs([("CGO_ENABLED", "0"), ("GOOS", "linux"), ("GOAMD64", "v1"), ("GOARM64", "v8.0")]);
    command
}

/// Runs it to its end, and gives what it said. What it complains about is for people.
fn run(command: &mut Command) -> Result<Vec<u8>, ImagesError> {
    const PROGRAM: &str = "go";
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| ImagesError::Run { program: PROGRAM, error })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    // With `-json` it complains there.
    let _ = io::stderr().write_all(&output.stdout);
    Err(ImagesError::Refused { program: PROGRAM })
}

/// What `go mod download -json` answers.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Download {
    #[serde(default)]
    dir: PathBuf,
    #[serde(default)]
    sum: String,
}

/// The folder of the module, whose archive has the sum that was pinned.
fn downloaded(helm: &Helm, folder: &Path) -> Result<PathBuf, ImagesError> {
    let name = format!("{}@{}", helm.module, helm.version);
    let answer = run(go(folder, "-mod=mod").args(["mod", "download", "-json"]).arg(&name))?;
    checked(&name, &helm.sum, &answer)
}

fn checked(name: &str, expected: &str, answer: &[u8]) -> Result<PathBuf, ImagesError> {
    let download: Download = serde_json::from_slice(answer).map_err(ImagesError::Recipe)?;
    if download.sum == expected {
        return Ok(download.dir);
    }
    let (module, expected, found) = (name.to_owned(), expected.to_owned(), download.sum);
    Err(ImagesError::Checksum { module, expected, found })
}

fn make(folder: &Path) -> Result<(), ImagesError> {
    fs::create_dir_all(folder).map_err(|error| ImagesError::write(folder, error))
}

/// Copies a folder of files and folders; archives of modules hold nothing else.
fn copy(from: &Path, to: &Path) -> Result<(), ImagesError> {
    make(to)?;
    let failed = |error| ImagesError::read(from, error);
    for entry in fs::read_dir(from).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let place = to.join(entry.file_name());
        if entry.file_type().map_err(failed)?.is_dir() {
            copy(&entry.path(), &place)?;
        } else {
            fs::copy(entry.path(), &place).map_err(|error| ImagesError::write(&place, error))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_with_another_sum_is_refused_with_both() {
        let answer = br#"{"Path": "helm.sh/helm/v3", "Dir": "/mod/helm", "Sum": "h1:found="}"#;
        assert_eq!(checked("m@v1", "h1:found=", answer).unwrap(), Path::new("/mod/helm"));
        let refused = checked("m@v1", "h1:pinned=", answer).unwrap_err().to_string();
        assert_eq!(refused, "the archive of `m@v1` has the checksum `h1:found=`, not `h1:pinned=` as recorded");
        assert!(checked("m@v1", "h1:pinned=", b"").is_err());
    }

    #[test]
    fn a_folder_is_copied_with_all_below_it() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir_all(from.join("a/b")).unwrap();
        fs::write(from.join("a/b/file"), "text").unwrap();
        copy(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(to.join("a/b/file")).unwrap(), "text");
    }
}
