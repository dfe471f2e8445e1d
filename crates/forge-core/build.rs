//! Copies the pages of errors to where they are embedded from.
//!
//! Checkouts share one target directory: a path out of the package would be remembered as that of one checkout, and another one would get
//! its pages.

#![expect(clippy::disallowed_methods, reason = "a build script reads and writes files")]

use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// From the manifest.
const FOLDER: &str = "../../docs/errors";

fn main() -> io::Result<()> {
    let variable = |name| env::var_os(name).map(PathBuf::from).ok_or(io::ErrorKind::NotFound);
    let out = variable("OUT_DIR")?;
    // A page that is gone is missed.
    for old in pages(&out)? {
        fs::remove_file(old)?;
    }
    for page in pages(&variable("CARGO_MANIFEST_DIR")?.join(FOLDER))? {
        fs::copy(&page, out.join(page.file_name().unwrap_or_default()))?;
    }
    let mut stdout = io::stdout().lock();
    io::Write::write_all(&mut stdout, format!("cargo::rerun-if-changed={FOLDER}\n").as_bytes())
}

fn pages(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    Ok(paths.into_iter().filter(|path| path.extension().is_some_and(|end| end == "md")).collect())
}
