//! Writing: files that are missing, whole or not at all, never over something that is there; and edits of `forge.yaml`
//! and `graph.yaml`, under a lock, so that two commands at once lose nothing.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use forge_core::code::Code;
use forge_core::scaffold;
use forge_core::yaml::Limits;

use crate::output::{Output, Paint};
use forge_core::failure::Failure;

/// Holds other commands off that edit the same repository, until it is dropped.
pub(crate) struct Lock(#[expect(dead_code, reason = "the lock lives as long as the file")] File);

impl Lock {
    /// Waits for its turn. The folder itself is locked, so no file is left behind.
    pub(crate) fn take(root: &Path) -> Result<Self, Failure> {
        let lock = || {
            let folder = File::open(root)?;
            folder.lock()?;
            Ok(folder)
        };
        lock().map(Self).map_err(|error: io::Error| Failure::write(format!("`{}`", root.display()), &error))
    }
}

/// Reads a file of ours as text: regular, and within the limits of every other read.
pub(crate) fn read_own(root: &Path, name: &str) -> Result<String, Failure> {
    let failed = |why: String| Failure::new(Code::Unreadable, format!("failed to read {name}: {why}"));
    let path = root.join(name);
    // Asked before it is opened: opening a pipe would wait for ever.
    let metadata = fs::metadata(&path).map_err(|error| failed(error.to_string()))?;
    if !metadata.is_file() {
        return Err(failed("it is not a regular file".to_owned()));
    }
    if metadata.len() > Limits::FILE.bytes as u64 {
        return Err(failed(format!("{} bytes; at most {} are read", metadata.len(), Limits::FILE.bytes)));
    }
    let mut text = String::new();
    let read = File::open(&path).and_then(|file| file.take(Limits::FILE.bytes as u64).read_to_string(&mut text));
    read.map_err(|error| failed(error.to_string()))?;
    Ok(text)
}

/// Writes the files that are missing and says what happened to each; gives how many were written and which were kept.
pub(crate) fn write_new(
    root: &Path,
    files: &[scaffold::File],
    output: &mut Output<'_>,
) -> Result<(usize, Vec<String>), Failure> {
    let (mut written, mut kept) = (0, Vec::new());
    for file in files {
        let what = match write_one(root, file)? {
            Outcome::Written => {
                written += 1;
                output.paint(Paint::Good, "wrote    ")
            }
            Outcome::Same => output.paint(Paint::Dim, "unchanged"),
            Outcome::Kept => {
                kept.push(file.path.clone());
                output.paint(Paint::Busy, "kept     ")
            }
        };
        // Schemas come with every version; they are not news.
        if !file.path.starts_with(".forge/") {
            output.say(&format!("{what} {}", file.path));
        }
    }
    Ok((written, kept))
}

enum Outcome {
    Written,
    Same,
    Kept,
}

fn write_one(root: &Path, file: &scaffold::File) -> Result<Outcome, Failure> {
    let path = root.join(&file.path);
    let failed = |error: &io::Error| Failure::write(format!("`{}`", path.display()), error);
    if let Some(outcome) = present(&path, &file.text).map_err(|error| failed(&error))? {
        return Ok(outcome);
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|error| failed(&error))?;
    }
    match place(&path, &file.text, None) {
        Ok(()) => Ok(Outcome::Written),
        // Somebody was faster: what they wrote is there, and stays.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Ok(present(&path, &file.text).map_err(|error| failed(&error))?.unwrap_or(Outcome::Kept))
        }
        Err(error) => Err(failed(&error)),
    }
}

/// What is there already: nothing, the same, or something else, which may be anything and is not read beyond its size.
fn present(path: &Path, text: &str) -> io::Result<Option<Outcome>> {
    let metadata = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    if !metadata.is_file() || metadata.len() != text.len() as u64 {
        return Ok(Some(Outcome::Kept));
    }
    let same = fs::read(path)? == text.as_bytes();
    Ok(Some(if same { Outcome::Same } else { Outcome::Kept }))
}

/// Replaces a file that was read under the same lock. A link stays a link, and the file keeps its mode.
pub(crate) fn replace_edited(root: &Path, name: &str, after: &str, _lock: &Lock) -> Result<(), Failure> {
    let replace = || {
        let path = root.join(name).canonicalize()?;
        let permissions = fs::metadata(&path)?.permissions();
        place(&path, after, Some(permissions))
    };
    replace().map_err(|error| Failure::write(format!("`{name}`"), &error))
}

/// Through a temporary file beside it, so that a reader sees the old file or the new one and never half of one. A new file
/// is linked, not renamed, into its place, so that one that appeared in the meantime is not lost.
fn place(path: &Path, text: &str, replaces: Option<fs::Permissions>) -> io::Result<()> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let temporary: PathBuf = path.with_file_name(format!(".{name}.forge-{}", std::process::id()));
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
        file.write_all(text.as_bytes())?;
        match replaces {
            Some(permissions) => {
                file.set_permissions(permissions)?;
                file.sync_all()?;
                fs::rename(&temporary, path)
            }
            None => {
                file.sync_all()?;
                fs::hard_link(&temporary, path)
            }
        }
    };
    let result = write();
    let _ = fs::remove_file(&temporary);
    result
}
