//! The namespaces of a sandbox, and the root file system that its processes see.
//!
//! Everything that a sandbox runs lives in one PID, mount, network, host name and IPC namespace, whose PID 1 is
//! [`crate::init`]. When that process ends, the kernel ends all others and takes the mounts, links, routes and nft tables
//! with it: nothing has to be found and undone (docs/adr/0009).

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};

use crate::folder::{Folder, InitRecord, boot};
use crate::process;

/// What could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// The kernel refused namespaces.
    #[error("failed to make namespaces: {0}")]
    Unshare(nix::Error),
    /// PID 1.
    #[error("failed to start the first process of the sandbox: {0}")]
    Start(io::Error),
    /// A mount.
    #[error("failed to mount `{target}`: {source}")]
    Mount {
        /// Where.
        target: PathBuf,
        /// Why.
        source: nix::Error,
    },
    /// A file or folder that is needed for it.
    #[error("failed to prepare `{path}`: {source}")]
    Prepare {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Leaves for new namespaces, starts PID 1 in them and records it. Runs in a process of its own, which ends afterwards.
pub fn enter(folder: &Folder, cache: &Path, parent: i32) -> Result<(), NamespaceError> {
    // Whoever called holds the lock, and only as long as it lives.
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL).map_err(NamespaceError::Unshare)?;
    if nix::unistd::getppid().as_raw() != parent {
        return Err(NamespaceError::Start(io::Error::other("whoever called is gone")));
    }
    unshare(
        CloneFlags::CLONE_NEWNS
            | CloneFlags::CLONE_NEWPID
            | CloneFlags::CLONE_NEWNET
            | CloneFlags::CLONE_NEWUTS
            | CloneFlags::CLONE_NEWIPC,
    )
    .map_err(NamespaceError::Unshare)?;
    let prepare = |path: PathBuf| move |source| NamespaceError::Prepare { path, source };
    let path = folder.log("init");
    let log = fs::File::options().create(true).append(true).open(&path).map_err(prepare(path.clone()))?;
    let both = log.try_clone().map_err(prepare(path))?;
    let program = std::env::current_exe().map_err(NamespaceError::Start)?;
    let mut child = Command::new(program)
        .arg("init")
        .args([folder.path(), cache])
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(log)
        .stderr(both)
        .spawn()
        .map_err(NamespaceError::Start)?;
    let pid = i32::try_from(child.id()).map_err(io::Error::other).map_err(NamespaceError::Start)?;
    let gone = || NamespaceError::Start(io::Error::other("it ended at once"));
    let record = InitRecord { pid, started: process::started(pid).ok_or_else(gone)?, boot: boot() };
    folder
        .publish("init.json", &format!("{}\n", serde_json::json!(record)))
        .map_err(|error| NamespaceError::Start(io::Error::other(error)))?;
    // Only now may it go on: a first process that nobody knows of could never be ended.
    child.stdin.take().ok_or_else(gone)?.write_all(b"!").map_err(NamespaceError::Start)
}

/// Waits until the process that made us has recorded us. False if it died first.
pub fn may_go_on() -> bool {
    io::stdin().read_exact(&mut [0]).is_ok()
}

/// Replaces the root file system with one that has the host's programs, read-only, and the sandbox's own `/run`, `/var` and
/// `/tmp`. Runs in PID 1.
pub fn build_root(folder: &Path, cache: &Path) -> Result<(), NamespaceError> {
    attach(None, Path::new("/"), None, MsFlags::MS_REC | MsFlags::MS_PRIVATE)?;
    let root = folder.join("root");
    make(&root)?;
    attach(Some(Path::new("tmpfs")), &root, Some("tmpfs"), MsFlags::empty())?;
    for name in ["usr", "etc", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "nix", "opt"] {
        host_folder(&root, name)?;
    }
    for name in ["run", "var", "tmp"] {
        let own = folder.join(name);
        make(&own)?;
        bind(&own, &root.join(name), false)?;
    }
    fs::set_permissions(root.join("tmp"), std::os::unix::fs::PermissionsExt::from_mode(0o1777))
        .map_err(|source| NamespaceError::Prepare { path: root.join("tmp"), source })?;
    link("/run", &root.join("var/run"))?;
    bind(Path::new("/dev"), &root.join("dev"), false)?;
    make(&root.join("proc"))?;
    attach(Some(Path::new("proc")), &root.join("proc"), Some("proc"), MsFlags::empty())?;
    shield(&root)?;
    make(&root.join("sys"))?;
    attach(Some(Path::new("sysfs")), &root.join("sys"), Some("sysfs"), MsFlags::empty())?;
    bind(Path::new("/sys/fs/cgroup"), &root.join("sys/fs/cgroup"), false)?;
    bind(cache, &inside(&root, cache), true)?;
    bind(folder, &inside(&root, folder), false)?;

    let old = root.join("old");
    make(&old)?;
    let failed = |source| NamespaceError::Mount { target: PathBuf::from("/"), source };
    nix::unistd::pivot_root(&root, &old).map_err(failed)?;
    nix::unistd::chdir("/").map_err(failed)?;
    umount2("/old", MntFlags::MNT_DETACH).map_err(failed)?;
    let _ = fs::remove_dir("/old");
    // Volumes that a container mounts for others travel through here.
    attach(None, Path::new("/"), None, MsFlags::MS_REC | MsFlags::MS_SHARED)?;
    nix::unistd::sethostname("sandbox").map_err(|source| NamespaceError::Mount { target: "host name".into(), source })
}

/// Settings of the whole machine that a kubelet wants to change, with the values that it wants. It reads before it writes:
/// files in front of them let it find what it wants and leave the machine as it is.
const SETTINGS: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

fn shield(root: &Path) -> Result<(), NamespaceError> {
    let folder = root.join("settings");
    make(&folder)?;
    for (name, value) in SETTINGS {
        let target = root.join("proc/sys").join(name);
        if !target.exists() {
            continue;
        }
        let file = folder.join(name.replace('/', "."));
        fs::write(&file, format!("{value}\n"))
            .map_err(|source| NamespaceError::Prepare { path: file.clone(), source })?;
        attach(Some(&file), &target, None, MsFlags::MS_BIND)?;
    }
    Ok(())
}

fn inside(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// A folder of the host, read-only; a link to one stays a link.
fn host_folder(root: &Path, name: &str) -> Result<(), NamespaceError> {
    let host = Path::new("/").join(name);
    let target = root.join(name);
    match fs::symlink_metadata(&host) {
        Ok(meta) if meta.is_symlink() => {
            let leads_to = fs::read_link(&host).map_err(|source| NamespaceError::Prepare { path: host, source })?;
            link(leads_to, &target)
        }
        Ok(meta) if meta.is_dir() => bind(&host, &target, true),
        _ => Ok(()),
    }
}

fn link(leads_to: impl AsRef<Path>, path: &Path) -> Result<(), NamespaceError> {
    match symlink(leads_to, path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(NamespaceError::Prepare { path: path.to_owned(), source: error })
        }
        _ => Ok(()),
    }
}

fn make(path: &Path) -> Result<(), NamespaceError> {
    fs::create_dir_all(path).map_err(|source| NamespaceError::Prepare { path: path.to_owned(), source })
}

fn bind(source: &Path, target: &Path, read_only: bool) -> Result<(), NamespaceError> {
    make(target)?;
    attach(Some(source), target, None, MsFlags::MS_BIND | MsFlags::MS_REC)?;
    if read_only {
        attach(None, target, None, MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY)?;
    }
    Ok(())
}

fn attach(source: Option<&Path>, target: &Path, kind: Option<&str>, flags: MsFlags) -> Result<(), NamespaceError> {
    mount(source, target, kind, flags, None::<&str>)
        .map_err(|source| NamespaceError::Mount { target: target.to_owned(), source })
}
