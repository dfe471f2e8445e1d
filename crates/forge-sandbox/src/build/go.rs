//! Binaries from Go modules, and files out of them.
//!
//! A module comes from the user's module proxy and is checked by Go's checksum database and against the sum in the
//! recipe. It is compiled in a copy of its folder, with the user's caches and nothing else of the user's settings.

use std::ffi::OsString;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use super::run::{self, Site};
use super::{BuildError, tree};
use crate::recipe::{self, Module, Patch, Source};

/// Changes when the same recipe gives something else.
const FORMAT: u32 = 1;

/// What is taken over from the user's settings: where things are kept and whence they come.
const SETTINGS: [&str; 11] = [
    "GOPATH",
    "GOCACHE",
    "GOMODCACHE",
    "GOPROXY",
    "GOSUMDB",
    "GONOPROXY",
    "GONOSUMDB",
    "GOPRIVATE",
    "GOINSECURE",
    "GOAUTH",
    "GOROOT",
];

/// What a module's entry is made from.
pub(crate) fn made_from(module: &Module) -> forge_core::digest::Digest {
    let sources: Vec<_> = match &module.source {
        Source::Embedded { folder } => recipe::folder(folder).collect(),
        Source::Published { .. } => Vec::new(),
    };
    recipe::made_from(FORMAT, module, &sources, &[])
}

/// There is no Go.
pub(crate) fn missing() -> BuildError {
    BuildError::MissingProgram { program: "go", help: "install Go, https://go.dev/doc/install" }
}

/// The Go of this machine.
pub(crate) struct Go {
    program: PathBuf,
    settings: Vec<(OsString, OsString)>,
}

impl Go {
    /// Finds it and asks for the user's settings.
    pub(crate) fn find(needed: &str) -> Result<Self, BuildError> {
        let program = run::find("go", &["/usr/local/go/bin".into()]).ok_or_else(missing)?;
        let mut ask = run::command(&program);
        for name in SETTINGS {
            if let Some(value) = std::env::var_os(name) {
                ask.env(name, value);
            }
        }
        // The toolchain that is installed decides; none is downloaded behind the user's back.
        ask.env("GOTOOLCHAIN", "local").args(["env", "GOVERSION"]).args(SETTINGS);
        let answer = run::ask(&mut ask)?;
        let mut lines = answer.lines();
        let found = lines.next().unwrap_or_default().trim_start_matches("go").to_owned();
        if number(&found) < number(needed) {
            return Err(BuildError::OldGo { found, needed: needed.to_owned() });
        }
        let set = SETTINGS.iter().zip(lines).filter(|(_, value)| !value.is_empty());
        Ok(Self { program, settings: set.map(|(name, value)| (name.into(), value.into())).collect() })
    }

    /// Where compiled packages are kept.
    pub(crate) fn build_cache(&self) -> Option<&Path> {
        self.settings.iter().find(|(name, _)| name == "GOCACHE").map(|(_, value)| Path::new(value))
    }

    fn command(&self, folder: &Path, flags: &str) -> Command {
        let mut command = run::command(&self.program);
        command.current_dir(folder).envs(self.settings.iter().map(|(name, value)| (name, value)));
        command.envs([("GOENV", "off"), ("GOWORK", "off"), ("GOTOOLCHAIN", "local"), ("CGO_ENABLED", "0")]);
        command.env("GOFLAGS", flags);
        command
    }

    /// Makes the entry of a module: `bin/` and `share/`.
    pub(crate) fn build(&self, module: &Module, site: &mut Site<'_>) -> Result<(), BuildError> {
        let source = site.folder.join("source");
        match &module.source {
            Source::Embedded { folder } => {
                let mut files = recipe::folder(folder).peekable();
                if files.peek().is_none() {
                    let (recipe, name) = (module.name.clone(), folder.clone());
                    return Err(recipe::RecipeError::Unknown { recipe, name }.into());
                }
                for (path, content) in files {
                    tree::write(&source.join(path), content.as_bytes())?;
                }
            }
            Source::Published { module: path, sum } => {
                site.progress.doing("downloading");
                let mut command = self.command(site.folder, "-mod=mod");
                let ended =
                    site.watch(command.args(["mod", "download", "-json"]).arg(format!("{path}@{}", module.version)))?;
                tree::copy(&downloaded(path, &module.version, sum, &ended.stdout)?, &source)?;
            }
        }
        for patch in &module.patches {
            match patch {
                Patch::Copy { copy, to, .. } => tree::copy(&source.join(copy), &source.join(to))?,
                Patch::Write { write, lines, .. } => tree::write(&source.join(write), text(lines).as_bytes())?,
            }
        }

        let bin = site.folder.join("bin");
        tree::make(&bin)?;
        let variables = module.variables.iter().map(|(name, value)| format!(" -X {name}={value}"));
        let linker = format!("-s -w{}", variables.collect::<String>());
        for (package, output) in &module.builds {
            let mut command = self.command(&source, "-mod=readonly");
            // Here it goes with everything else if the build is killed.
            command.env("GOTMPDIR", site.folder);
            command.args(["build", "-v", "-trimpath", "-buildvcs=false", "-ldflags", &linker, "-o"]);
            site.run(command.arg(bin.join(output)).arg(package))?;
        }
        for (link, target) in &module.links {
            let path = bin.join(link);
            symlink(target, &path).map_err(|error| BuildError::file("link", &path, error))?;
        }
        for path in &module.keep {
            tree::copy(&source.join(path), &site.folder.join("share").join(path))?;
        }
        std::fs::remove_dir_all(&source).map_err(|error| BuildError::file("remove", &source, error))
    }
}

/// The lines as a file's content.
pub(crate) fn text(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// `1.26.0` as numbers; what follows them is left away.
fn number(version: &str) -> Vec<u32> {
    let digits = |part: &str| part.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0);
    version.split('.').map(digits).collect()
}

/// What `go mod download -json` answers.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Download {
    #[serde(default)]
    dir: PathBuf,
    #[serde(default)]
    sum: String,
    #[serde(default)]
    error: String,
}

/// The folder of a module whose archive has the sum that was pinned.
fn downloaded(module: &str, version: &str, expected: &str, answer: &[u8]) -> Result<PathBuf, BuildError> {
    let failed = |reason| BuildError::Download { module: module.to_owned(), version: version.to_owned(), reason };
    let download: Download = serde_json::from_slice(answer).map_err(|error| failed(error.to_string()))?;
    if !download.error.is_empty() {
        return Err(if download.error.contains("no space left on device") {
            BuildError::DiskFull { path: download.dir }
        } else {
            failed(download.error)
        });
    }
    if download.sum != expected {
        return Err(BuildError::Checksum {
            module: module.to_owned(),
            version: version.to_owned(),
            expected: expected.to_owned(),
            found: download.sum,
        });
    }
    Ok(download.dir)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::Recipes;

    #[test]
    fn a_module_whose_archive_has_another_sum_is_refused_with_both_sums() {
        let answer = br#"{"Path": "example.com/m", "Dir": "/mod/m@v1", "Sum": "h1:found="}"#;
        assert_eq!(downloaded("example.com/m", "v1", "h1:found=", answer).unwrap(), Path::new("/mod/m@v1"));
        let text = downloaded("example.com/m", "v1", "h1:pinned=", answer).unwrap_err().to_string();
        assert_eq!(
            text,
            "the archive of `example.com/m@v1` has the checksum `h1:found=`, not `h1:pinned=` as recorded"
        );
    }

    #[test]
    fn a_download_that_failed_says_why() {
        let answer = br#"{"Path": "example.com/m", "Error": "checksum mismatch"}"#;
        let text = downloaded("example.com/m", "v1", "h1:pinned=", answer).unwrap_err().to_string();
        assert_eq!(text, "failed to download the Go module `example.com/m@v1`: checksum mismatch");
        assert!(downloaded("example.com/m", "v1", "h1:pinned=", b"").is_err());
    }

    #[test]
    fn versions_of_go_compare_by_number() {
        assert!(number("1.9.1") < number("1.26.0"));
        assert!(number("1.26.8") > number("1.26.0"));
        assert!(number("1.27rc1") > number("1.26.8"));
    }

    #[test]
    fn the_key_of_our_own_module_changes_with_its_files() {
        let recipes = Recipes::embedded().unwrap();
        let module = recipes.modules.iter().find(|module| module.name == "kubernetes").unwrap();
        let with = |sources: &[(&str, &str)]| recipe::made_from(FORMAT, module, sources, &[]);
        let files: Vec<_> = recipe::folder("kubernetes").collect();
        assert!(files.iter().any(|(path, _)| *path == "go.sum"));
        assert_eq!(made_from(module), with(&files));
        assert_ne!(made_from(module), with(&files[1..]));
    }
}
