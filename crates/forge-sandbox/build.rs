//! Embeds every source and recipe of `sandbox/` by its path, so that a new Go file cannot be forgotten.
//!
//! Checkouts share one target directory: what is written holds the texts, and the folder is watched where this checkout has it, so that
//! none is built with the sources of another.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// From the manifest.
const FOLDER: &str = "../../sandbox";
/// What is given to the cluster, each by its name.
const OBJECTS: [&str; 2] = ["kwok-stage-crd.yaml", "kwok-stages.yaml"];
/// How names of sources end. Tools leave other files beside them.
const SOURCES: [&str; 5] = [".go", "go.mod", "go.sum", ".rs", ".json"];

fn main() -> io::Result<()> {
    let variable = |name| env::var_os(name).map(PathBuf::from).ok_or(io::ErrorKind::NotFound);
    let root = fs::canonicalize(variable("CARGO_MANIFEST_DIR")?.join(FOLDER))?;
    let mut files = Vec::new();
    collect(&root, &mut files)?;
    files.sort();

    let mut source = String::from("&[\n");
    for file in &files {
        let name = file.strip_prefix(&root).unwrap_or(file);
        let _ = writeln!(source, "    ({name:?}, {:?}),", fs::read_to_string(file)?);
    }
    source.push_str("]\n");
    let out = variable("OUT_DIR")?;
    fs::write(out.join("sandbox.rs"), source)?;
    for name in OBJECTS {
        fs::copy(root.join(name), out.join(name))?;
    }

    let mut stdout = io::stdout().lock();
    io::Write::write_all(&mut stdout, format!("cargo::rerun-if-changed={FOLDER}\n").as_bytes())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            collect(&path, files)?;
        } else if SOURCES.iter().any(|end| name.ends_with(end)) && !name.ends_with("_test.go") {
            files.push(path);
        }
    }
    Ok(())
}
