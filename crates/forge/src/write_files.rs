//! Writing what a scaffold holds: new files only, each whole or not at all, never over something that is there.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use forge_core::scaffold::File;

use crate::failure::Failure;
use crate::output::{Output, Paint};

/// Writes the files that are missing and says what happened to each; gives how many were written.
pub(crate) fn write_new(root: &Path, files: &[File], output: &mut Output<'_>) -> Result<usize, Failure> {
    let mut written = 0;
    for file in files {
        let what = match write_one(root, file)? {
            Outcome::Written => {
                written += 1;
                output.paint(Paint::Good, "wrote    ")
            }
            Outcome::Same => output.paint(Paint::Dim, "unchanged"),
            Outcome::Kept => output.paint(Paint::Busy, "kept     "),
        };
        // Schemas come with every version; they are not news.
        if !file.path.starts_with(".forge/") {
            output.say(&format!("{what} {}", file.path));
        }
    }
    Ok(written)
}

enum Outcome {
    Written,
    Same,
    Kept,
}

fn write_one(root: &Path, file: &File) -> Result<Outcome, Failure> {
    let path = root.join(&file.path);
    let failed = |error: &io::Error| Failure::write(format!("`{}`", path.display()), error);
    match fs::read(&path) {
        Ok(present) if present == file.text.as_bytes() => return Ok(Outcome::Same),
        Ok(_) => return Ok(Outcome::Kept),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(&error)),
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|error| failed(&error))?;
    }
    replace(&path, &file.text, true).map_err(|error| failed(&error))?;
    Ok(Outcome::Written)
}

/// Replaces a file that was read before, if it still holds what was read.
pub(crate) fn replace_edited(root: &Path, name: &str, before: &str, after: &str) -> Result<(), Failure> {
    let path = root.join(name);
    let failed = |error: &io::Error| Failure::write(format!("`{}`", path.display()), error);
    if fs::read(&path).map_err(|error| failed(&error))? != before.as_bytes() {
        let changed = io::Error::other("somebody changed it in the meantime; run the command again");
        return Err(failed(&changed));
    }
    replace(&path, after, false).map_err(|error| failed(&error))
}

/// Through a temporary file beside it, so that a reader sees the old file or the new one and never half of one. A link
/// (and not a rename) makes a new file, so that one that appeared in the meantime is not lost.
fn replace(path: &Path, text: &str, new: bool) -> io::Result<()> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let temporary = path.with_file_name(format!(".{name}.forge-{}", std::process::id()));
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        if new { fs::hard_link(&temporary, path) } else { fs::rename(&temporary, path) }
    };
    let result = write();
    let _ = fs::remove_file(&temporary);
    result
}
