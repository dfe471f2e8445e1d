//! The cgroup under which the pods of a sandbox run: made before the kubelet starts, removed when all is dead.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::range::Range;

/// Makes the cgroup in every hierarchy.
pub fn ensure(range: Range) -> io::Result<()> {
    let unified = Path::new(TOP).join("cgroup.controllers");
    for root in roots() {
        let folder = root.join(range.cgroup());
        fs::create_dir_all(&folder)?;
        if unified.exists() {
            // Version 2 gives a group only the controllers that its parent passes on.
            for parent in [&root, &folder] {
                fs::write(parent.join("cgroup.subtree_control"), "+cpu +cpuset +memory +pids +io")?;
            }
        } else if root.ends_with("cpuset") {
            // A new group of version 1 has no processors and no memory, and takes no process until it has.
            for file in ["cpuset.cpus", "cpuset.mems"] {
                fs::write(folder.join(file), fs::read(root.join(file))?)?;
            }
        }
    }
    Ok(())
}

const TOP: &str = "/sys/fs/cgroup";

/// Removes the cgroups that the pods of a sandbox ran in. Its processes are dead; the kernel needs a moment for each.
pub fn remove(range: Range, limit: Duration) -> io::Result<()> {
    let start = Instant::now();
    for root in roots() {
        let top = root.join(range.cgroup());
        while let Err(error) = remove_tree(&top) {
            if start.elapsed() > limit {
                return Err(error);
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
    Ok(())
}

/// Every hierarchy of version 1, or the one of version 2.
fn roots() -> Vec<PathBuf> {
    let top = Path::new(TOP);
    if top.join("cgroup.controllers").exists() {
        return vec![top.to_owned()];
    }
    let Ok(entries) = fs::read_dir(top) else { return Vec::new() };
    entries.flatten().map(|entry| entry.path()).filter(|path| path.join("cgroup.procs").exists()).collect()
}

/// Folders of a cgroup file system are removed one by one, the innermost first; their files cannot be.
fn remove_tree(folder: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path())?;
        }
    }
    match fs::remove_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
