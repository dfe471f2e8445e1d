//! Folders copied with everything in them.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use super::BuildError;

/// Makes the folder and those above it.
pub(crate) fn make(folder: &Path) -> Result<(), BuildError> {
    fs::create_dir_all(folder).map_err(|error| BuildError::file("make the folder", folder, error))
}

/// Writes a file and makes the folders above it.
pub(crate) fn write(path: &Path, content: &[u8]) -> Result<(), BuildError> {
    if let Some(parent) = path.parent() {
        make(parent)?;
    }
    fs::write(path, content).map_err(|error| BuildError::file("write", path, error))
}

/// Reads a file of text.
pub(crate) fn read(path: &Path) -> Result<String, BuildError> {
    fs::read_to_string(path).map_err(|error| BuildError::file("read", path, error))
}

/// Copies a file or a folder. Copies can be written to, whatever the original allows: a module cache is read-only.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<(), BuildError> {
    let failed = |error| BuildError::file("copy", from, error);
    let metadata = fs::symlink_metadata(from).map_err(failed)?;
    if metadata.is_dir() {
        make(to)?;
        for entry in fs::read_dir(from).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
        return Ok(());
    }
    if let Some(parent) = to.parent() {
        make(parent)?;
    }
    let failed = |error| BuildError::file("copy to", to, error);
    if metadata.is_symlink() {
        return fs::read_link(from).and_then(|target| symlink(target, to)).map_err(failed);
    }
    fs::copy(from, to).map_err(failed)?;
    let mode = if metadata.permissions().mode() & 0o111 == 0 { 0o644 } else { 0o755 };
    fs::set_permissions(to, Permissions::from_mode(mode)).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_a_read_only_folder_can_be_changed_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let from = folder.path().join("from");
        write(&from.join("a/file"), b"x").unwrap();
        symlink("file", from.join("a/link")).unwrap();
        fs::set_permissions(from.join("a/file"), Permissions::from_mode(0o444)).unwrap();
        fs::set_permissions(from.join("a"), Permissions::from_mode(0o555)).unwrap();
        let to = folder.path().join("to");
        copy(&from, &to).unwrap();
        write(&to.join("a/file"), b"y").unwrap();
        assert_eq!(fs::read_link(to.join("a/link")).unwrap(), Path::new("file"));
        fs::remove_dir_all(&to).unwrap();
        fs::set_permissions(from.join("a"), Permissions::from_mode(0o755)).unwrap();
    }
}
