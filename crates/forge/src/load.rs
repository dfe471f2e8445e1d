//! Reading a repository: `forge.yaml` first, which says where the environments are, then every file where it is found, on
//! all cores, within limits, without following a link out of it.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};

use forge_core::code::Code;
use forge_core::failure::Failure;
use forge_core::format::Installation;
use forge_core::repository::{INSTALLATION_FILE, is_health_check, is_manifest};
use forge_core::validate::{Content, Context, Inspected, Report, assemble, inspect};
use forge_core::yaml::{self, Dialect, Limits};
use serde_json::Value;

use crate::write_files::read_own;

/// More files than any repository has; beyond it lies a wrong folder.
const MOST_FILES: usize = 1_000_000;

/// The folder that `forge.yaml` is in: the one given, or the nearest at or above the current one.
pub(crate) fn root(given: Option<&Path>) -> Result<PathBuf, Failure> {
    let hint = "`forge init` makes a repository here; `--repo DIR` names one elsewhere";
    if let Some(folder) = given.filter(|folder| !folder.as_os_str().is_empty()) {
        let shown = forge_core::name::clip(&folder.display().to_string());
        if !folder.is_dir() {
            return Err(Failure::new(Code::NotARepository, format!("`{shown}` is not a folder")).hint(hint));
        }
        if !folder.join(INSTALLATION_FILE).exists() {
            let message = format!("no {INSTALLATION_FILE} in `{shown}`");
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

/// `forge.yaml` alone, for commands that extend it.
pub(crate) fn installation(text: &str) -> Result<Installation, Failure> {
    let context = Context::new(Some(&Content::Bytes(text.as_bytes().to_vec())), std::iter::empty());
    context.installation.ok_or_else(|| {
        Failure::new(Code::Unusable, format!("{INSTALLATION_FILE} cannot be used as it is"))
            .hint("`forge lint` says what is wrong with it")
    })
}

/// Reads and checks a whole repository.
pub fn lint(root: &Path) -> Result<Report, String> {
    let installation = match fs::symlink_metadata(root.join(INSTALLATION_FILE)) {
        Ok(metadata) => {
            Some(read(root, &Found { path: INSTALLATION_FILE.to_owned(), kind: Kind::of(metadata.file_type()) }))
        }
        Err(_) => None,
    };
    let context = Context::new(installation.as_ref(), std::iter::empty());
    if context.installation.is_some() {
        // The usual way: every file is read and looked at where it is found.
        let inspected = walk(root, |file| inspect(&context, &file.path, &read(root, &file)))?;
        return Ok(assemble(&context, inspected));
    }
    // Without a usable forge.yaml the paths themselves must tell what is an environment.
    let files = walk(root, |file| file)?;
    let context = Context::new(installation.as_ref(), files.iter().map(|file| file.path.as_str()));
    let inspected: Vec<Inspected> = files.iter().map(|file| inspect(&context, &file.path, &read(root, file))).collect();
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
    /// A folder that could not be listed, and why.
    Unlisted(String),
}

impl Kind {
    fn of(kind: fs::FileType) -> Self {
        if kind.is_file() {
            Self::Regular
        } else if kind.is_symlink() {
            Self::Link
        } else {
            Self::Other
        }
    }
}

/// Folders that wait for anybody, and how many workers are still at work.
struct Queue {
    folders: Vec<String>,
    busy: usize,
    files: usize,
    failed: Option<String>,
}

/// Visits all files below a folder, on all cores, in any order. Hidden folders and `node_modules` hold no desired state
/// and are not entered.
fn walk<T: Send>(root: &Path, visit: impl Fn(Found) -> T + Sync) -> Result<Vec<T>, String> {
    let queue = Mutex::new(Queue { folders: vec![String::new()], busy: workers(), files: 0, failed: None });
    let (changed, hungry) = (Condvar::new(), AtomicUsize::new(0));
    let work = || {
        let mut visited: Vec<T> = Vec::new();
        let (mut files, mut below): (Vec<Found>, Vec<String>) = (Vec::new(), Vec::new());
        let mut counted = 0;
        loop {
            let Some(folder) = below.pop() else {
                // Out of work: wait until somebody gives some away, or nobody has any.
                let Ok(mut shared) = queue.lock() else { return visited };
                shared.files += visited.len() - counted;
                counted = visited.len();
                shared.busy -= 1;
                loop {
                    if shared.files > MOST_FILES {
                        shared.failed.get_or_insert(format!("more than {MOST_FILES} files; is this the right folder?"));
                    }
                    if shared.failed.is_some() || (shared.busy == 0 && shared.folders.is_empty()) {
                        changed.notify_all();
                        return visited;
                    }
                    if let Some(folder) = shared.folders.pop() {
                        shared.busy += 1;
                        below.push(folder);
                        break;
                    }
                    hungry.fetch_add(1, Ordering::Relaxed);
                    let Ok(woken) = changed.wait(shared) else { return visited };
                    hungry.fetch_sub(1, Ordering::Relaxed);
                    shared = woken;
                }
                continue;
            };
            if let Err(message) = list(root, &folder, &mut files, &mut below) {
                if folder.is_empty() {
                    let Ok(mut shared) = queue.lock() else { return visited };
                    shared.failed.get_or_insert(message);
                } else {
                    files.push(Found { path: folder.clone(), kind: Kind::Unlisted(message) });
                }
            }
            // Before the files are looked at, which may take long: the root holds the graph. At the root all is given.
            let spare = if folder.is_empty() { below.len() } else { below.len() / 2 };
            if spare > 0 && (folder.is_empty() || hungry.load(Ordering::Relaxed) > 0) {
                let Ok(mut shared) = queue.lock() else { return visited };
                shared.folders.extend(below.drain(..spare));
                changed.notify_all();
            }
            visited.extend(files.drain(..).map(&visit));
        }
    };
    let visited = on_all_cores(work);
    match queue.into_inner() {
        Ok(Queue { failed: Some(message), .. }) => Err(message),
        _ => Ok(visited),
    }
}

fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(16)
}

/// Does the same work on every core and gives everything that came of it, in any order.
fn on_all_cores<T: Send>(work: impl Fn() -> Vec<T> + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..workers()).map(|_| scope.spawn(&work)).collect();
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
        let kind = if name.to_str().is_none() { Kind::BadName } else { Kind::of(kind) };
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
    match &file.kind {
        Kind::Unlisted(why) => return Content::Unreadable(why.clone()),
        Kind::BadName => return Content::Unreadable("its name is not UTF-8".to_owned()),
        Kind::Other => return Content::Unreadable("it is not a regular file".to_owned()),
        Kind::Regular | Kind::Link => {}
    }
    if !is_manifest(&file.path) && !is_health_check(&file.path) && !may_hold_secrets(&file.path) {
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

/// The domain that the environment's own `env.yaml` has, where it has one.
pub(crate) fn domain(tree: &Path, folder: &str) -> Option<String> {
    let path = format!("{folder}/env.yaml");
    fs::symlink_metadata(tree.join(&path)).ok().filter(fs::Metadata::is_file)?;
    let text = read_own(tree, &path).ok()?;
    let stream = yaml::read(&text, Dialect::Strict, Limits::FILE);
    let document = stream.documents.first()?.to_json();
    document.pointer("/data/domain").and_then(Value::as_str).map(str::to_owned)
}
