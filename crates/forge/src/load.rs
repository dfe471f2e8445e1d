//! Reading a repository: every file once, on all cores, within limits, without following a link out of it.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};

use forge_core::code::Code;
use forge_core::repository::{INSTALLATION_FILE, is_manifest};
use forge_core::validate::{Content, Context, Inspected, Report, assemble, inspect};
use forge_core::yaml::Limits;

use crate::failure::Failure;

/// More files than any repository has; beyond it lies a wrong folder.
const MOST_FILES: usize = 1_000_000;

/// The folder that `forge.yaml` is in: the one given, or the nearest at or above the current one.
pub(crate) fn root(given: Option<&Path>) -> Result<PathBuf, Failure> {
    let hint = "`forge init` makes a repository here; `--repo DIR` names one elsewhere";
    if let Some(folder) = given {
        if !folder.is_dir() {
            return Err(
                Failure::new(Code::NotARepository, format!("`{}` is not a folder", folder.display())).hint(hint)
            );
        }
        if !folder.join(INSTALLATION_FILE).exists() {
            let message = format!("no {INSTALLATION_FILE} in `{}`", folder.display());
            return Err(Failure::new(Code::NotARepository, message).hint(hint));
        }
        return Ok(folder.to_owned());
    }
    let current = std::env::current_dir()
        .map_err(|error| Failure::new(Code::NotARepository, format!("the current folder cannot be read: {error}")))?;
    let found = current.ancestors().find(|folder| folder.join(INSTALLATION_FILE).is_file());
    found.map(Path::to_owned).ok_or_else(|| {
        Failure::new(Code::NotARepository, format!("no {INSTALLATION_FILE} here or in a folder above")).hint(hint)
    })
}

/// Reads and checks a whole repository.
pub fn lint(root: &Path) -> Result<Report, String> {
    let mut files = walk(root)?;
    // The few files at the top first: the graph is the largest of all, and nobody should wait for it at the end.
    files.sort_by(|a, b| a.path.contains('/').cmp(&b.path.contains('/')).then_with(|| a.path.cmp(&b.path)));
    let installation = files.iter().find(|file| file.path == INSTALLATION_FILE).map(|file| read(root, file));
    let context = Context::new(installation.as_ref(), files.iter().map(|file| file.path.as_str()));
    let next = AtomicUsize::new(0);
    const BATCH: usize = 64;
    let inspected: Vec<Inspected> = on_all_cores(|| {
        let mut mine = Vec::new();
        loop {
            let start = next.fetch_add(BATCH, Ordering::Relaxed);
            let Some(batch) = files.get(start..files.len().min(start + BATCH)).filter(|b| !b.is_empty()) else {
                return mine;
            };
            mine.extend(batch.iter().map(|file| inspect(&context, &file.path, &read(root, file))));
        }
    });
    if inspected.len() != files.len() {
        return Err("a worker ended early; this is a defect of forge".to_owned());
    }
    Ok(assemble(&context, inspected))
}

/// A file that was found, and what is known about it without reading it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Found {
    path: String,
    kind: Kind,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Regular,
    Link,
    Other,
    BadName,
}

/// Folders that are still to be listed, and how many are being listed.
#[derive(Default)]
struct Queue {
    folders: Vec<String>,
    busy: usize,
    files: usize,
    failed: Option<String>,
}

/// All files below a folder. Hidden folders and `node_modules` hold no desired state and are not entered.
fn walk(root: &Path) -> Result<Vec<Found>, String> {
    let queue = Mutex::new(Queue { folders: vec![String::new()], ..Queue::default() });
    let changed = Condvar::new();
    let work = || {
        let mut mine: Vec<Found> = Vec::new();
        let mut below: Vec<String> = Vec::new();
        let Ok(mut shared) = queue.lock() else { return mine };
        loop {
            let Some(folder) = shared.folders.pop() else {
                if shared.busy == 0 {
                    changed.notify_all();
                    return mine;
                }
                let Ok(woken) = changed.wait(shared) else { return mine };
                shared = woken;
                continue;
            };
            shared.busy += 1;
            drop(shared);
            let before = mine.len();
            let result = list(root, &folder, &mut mine, &mut below);
            let Ok(locked) = queue.lock() else { return mine };
            shared = locked;
            shared.busy -= 1;
            shared.files += mine.len() - before;
            let failure = match result {
                Err(message) => Some(message),
                Ok(()) if shared.files > MOST_FILES => {
                    Some(format!("more than {MOST_FILES} files; is this the right folder?"))
                }
                Ok(()) => None,
            };
            if failure.is_some() {
                shared.failed = shared.failed.take().or(failure);
                shared.folders.clear();
            } else {
                shared.folders.append(&mut below);
            }
            changed.notify_all();
        }
    };
    let found = on_all_cores(work);
    match queue.into_inner() {
        Ok(Queue { failed: Some(message), .. }) => Err(message),
        _ => Ok(found),
    }
}

/// Does the same work on every core and gives everything that came of it, in any order.
fn on_all_cores<T: Send>(work: impl Fn() -> Vec<T> + Sync) -> Vec<T> {
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(16);
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..workers).map(|_| scope.spawn(&work)).collect();
        let mut all = work();
        for other in others {
            all.extend(other.join().unwrap_or_default());
        }
        all
    })
}

fn list(root: &Path, folder: &str, files: &mut Vec<Found>, folders: &mut Vec<String>) -> Result<(), String> {
    let shown = if folder.is_empty() { "." } else { folder };
    let entries = fs::read_dir(root.join(folder)).map_err(|error| format!("failed to list `{shown}`: {error}"))?;
    for entry in entries {
        let entry = entry.map_err(|error| format!("failed to list `{shown}`: {error}"))?;
        let name = entry.file_name();
        let text = name.to_string_lossy();
        let path = if folder.is_empty() { text.to_string() } else { format!("{folder}/{text}") };
        let kind = entry.file_type().map_err(|error| format!("failed to look at `{path}`: {error}"))?;
        if kind.is_dir() {
            if !text.starts_with('.') && text != "node_modules" {
                folders.push(path);
            }
            continue;
        }
        let kind = match kind {
            _ if name.to_str().is_none() => Kind::BadName,
            kind if kind.is_file() => Kind::Regular,
            kind if kind.is_symlink() => Kind::Link,
            _ => Kind::Other,
        };
        files.push(Found { path, kind });
    }
    Ok(())
}

/// Files beside manifests that people put secrets into.
fn may_hold_secrets(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.starts_with("kubeconfig")
        || name.starts_with(".env")
        || name == ".dockerconfigjson"
        || [".kubeconfig", ".pem", ".key", ".env", ".tpl", ".ref", ".properties", ".tfvars"]
            .iter()
            .any(|ending| name.ends_with(ending))
}

fn read(root: &Path, file: &Found) -> Content {
    match file.kind {
        Kind::BadName => return Content::Unreadable("its name is not UTF-8".to_owned()),
        Kind::Other => return Content::Unreadable("it is not a regular file".to_owned()),
        Kind::Regular | Kind::Link => {}
    }
    if !is_manifest(&file.path) && !may_hold_secrets(&file.path) {
        return Content::Unread;
    }
    let path = root.join(&file.path);
    if file.kind == Kind::Link
        && let Some(why) = leads_astray(root, &path)
    {
        return Content::Symlink(why);
    }
    let limit = Limits::FILE.bytes as u64;
    // Most files are small: one read for all of it, one for its end.
    let mut bytes = Vec::with_capacity(4096);
    match File::open(&path).and_then(|file| file.take(limit + 1).read_to_end(&mut bytes)) {
        Ok(length) if length as u64 > limit => {
            Content::TooLarge(fs::metadata(&path).map_or(length as u64, |metadata| metadata.len()))
        }
        Ok(_) => Content::Bytes(bytes),
        Err(error) => Content::Unreadable(error.kind().to_string()),
    }
}

/// Why a link is not followed.
fn leads_astray(root: &Path, link: &Path) -> Option<&'static str> {
    let (Ok(root), Ok(target)) = (root.canonicalize(), link.canonicalize()) else {
        return Some("leads nowhere");
    };
    if !target.starts_with(&root) {
        return Some("leads out of the repository");
    }
    (!target.is_file()).then_some("does not lead to a regular file")
}
