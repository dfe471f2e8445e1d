//! Machines and folders that a sandbox cannot use: a clear error with the next step, the right exit code, nothing left.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use forge_testkit::sandbox::{Ended, Sandbox, binary, forge_sandbox, run};

/// A cache directory of its own that shares what was built, so that nothing is built again.
struct Home {
    folder: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        symlink(built(), folder.path().join("sandbox")).unwrap();
        Self { folder }
    }

    fn up(&self, name: &str) -> Ended {
        run(Command::new(binary()).args(["--name", name, "up"]).env("FORGE_CACHE", self.folder.path()), None)
    }

    fn left(&self) -> Vec<PathBuf> {
        let sandboxes = fs::read_dir(self.folder.path().join("sandboxes"));
        sandboxes.into_iter().flatten().flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
    }
}

/// Where programs and images were built, which every sandbox of this user shares.
fn built() -> PathBuf {
    let sandbox = Sandbox::shared();
    sandbox
        .charts
        .ancestors()
        .find(|folder| folder.file_name().is_some_and(|name| name == "sandbox"))
        .unwrap()
        .to_owned()
}

fn assert_refused(ended: &Ended, code: i32, id: &str, hint: &str) {
    assert_eq!(ended.code, code, "{}", ended.stderr);
    assert!(ended.stderr.contains(&format!("error[{id}]")), "{}", ended.stderr);
    assert!(ended.stderr.contains("hint: ") && ended.stderr.contains(hint), "{}", ended.stderr);
    assert_eq!(ended.stdout, "");
}

#[test]
fn who_is_not_root_is_told_so() {
    let home = Home::new();
    let program = home.folder.path().join("forge-sandbox");
    fs::copy(binary(), &program).unwrap();
    fs::set_permissions(home.folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    for command in ["up", "down"] {
        let mut nobody = Command::new("setpriv");
        nobody.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(&program).arg(command);
        let ended = run(nobody.env("FORGE_CACHE", home.folder.path()), None);
        assert_refused(&ended, 3, "FORGE-K001", "sudo");
    }
    assert_eq!(home.left(), Vec::<PathBuf>::new());
}

#[test]
fn a_full_disk_is_noticed_before_anything_is_made() {
    let home = Home::new();
    let small = home.folder.path().join("sandboxes");
    fs::create_dir(&small).unwrap();
    let mount = run(Command::new("mount").args(["-t", "tmpfs", "-o", "size=64m", "tmpfs"]).arg(&small), None);
    assert_eq!(mount.code, 0, "{}", mount.stderr);
    let ended = home.up("full");
    let left = home.left();
    let unmount = run(Command::new("umount").arg(&small), None);
    assert_refused(&ended, 1, "FORGE-K004", "FORGE_CACHE");
    assert!(ended.stderr.contains("64 MiB are free"), "{}", ended.stderr);
    assert_eq!(left, Vec::<PathBuf>::new());
    assert_eq!(unmount.code, 0, "something still holds the disk: {}", unmount.stderr);
}

#[test]
fn a_kernel_that_lacks_something_is_told_apart_from_a_failure() {
    let home = Home::new();
    let programs = home.folder.path().join("bin");
    fs::create_dir(&programs).unwrap();
    // A kernel without bridges, as far as anybody can tell.
    let fake = programs.join("ip");
    let real = run(Command::new("sh").args(["-c", "command -v ip"]), None).stdout;
    fs::write(&fake, format!("#!/bin/sh\ncase \"$*\" in *bridge*) echo 'Error: Unknown device type.' >&2; exit 2;; esac\nexec {} \"$@\"\n", real.trim())).unwrap();
    fs::set_permissions(&fake, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let mut up = Command::new(binary());
    let ended = run(up.args(["--name", "kernel", "up"]).env("FORGE_CACHE", home.folder.path()).env("PATH", path), None);
    assert_refused(&ended, 3, "FORGE-K002", "modprobe");
    assert!(ended.stderr.contains("no bridges"), "{}", ended.stderr);
    assert_eq!(home.left(), Vec::<PathBuf>::new());
}

#[test]
fn a_name_that_something_else_has_is_left_alone() {
    let home = Home::new();
    let taken = home.folder.path().join("sandboxes/taken");
    fs::create_dir_all(&taken).unwrap();
    fs::write(taken.join("thesis.tex"), "years").unwrap();
    assert_refused(&home.up("taken"), 3, "FORGE-K006", "--name");
    let mut down = Command::new(binary());
    let ended = run(down.args(["--name", "taken", "down"]).env("FORGE_CACHE", home.folder.path()), None);
    assert_refused(&ended, 3, "FORGE-K006", "--name");
    assert_eq!(fs::read_to_string(taken.join("thesis.tex")).unwrap(), "years");
    assert_refused(&home.up("../x"), 3, "FORGE-C007", "--name");
}

#[test]
fn two_at_once_on_one_sandbox_do_not_meet() {
    let home = Home::new();
    let sandboxes = home.folder.path().join("sandboxes");
    fs::create_dir(&sandboxes).unwrap();
    let lock = fs::File::create(sandboxes.join("busy.lock")).unwrap();
    fs::write(sandboxes.join("busy.lock"), "4242").unwrap();
    lock.lock().unwrap();
    let ended = home.up("busy");
    assert_refused(&ended, 5, "FORGE-K005", "--name");
    assert!(ended.stderr.contains("process 4242"), "{}", ended.stderr);
    assert_eq!(home.left(), Vec::<PathBuf>::new());
}

#[test]
fn what_needs_a_sandbox_says_that_there_is_none() {
    for args in [&["status"][..], &["logs", "etcd"], &["kubeconfig"], &["exec", "get", "pods"]] {
        assert_refused(&forge_sandbox("nowhere", args), 3, "FORGE-K010", "forge sandbox up");
    }
    let ended = forge_sandbox("nowhere", &["down"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (0, ""), "{}", ended.stderr);
    Sandbox::shared();
    let ended = forge_sandbox("test", &["logs", "../pki/ca"]);
    assert_refused(&ended, 3, "FORGE-C002", "there are: ");
    assert!(Path::new(&built()).is_dir());
}
