//! Commands that write: several at once lose nothing, what is there stays, nothing half-written is left behind.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn forge(folder: &Path, arguments: &[&str]) -> Output {
    // `timeout` ends a hang; it is part of coreutils.
    let mut command = Command::new("timeout");
    command.args(["60", env!("CARGO_BIN_EXE_forge"), "-C"]).arg(folder).args(arguments).output().unwrap()
}

fn repository() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let output =
        forge(folder.path(), &["init", "--url", "https://git.example.com/p.git", "--registry", "r.example.com/x"]);
    assert!(output.status.success());
    folder
}

#[test]
fn twenty_projects_added_at_once_are_all_there() {
    let folder = repository();
    let children: Vec<_> = (0..20)
        .map(|n| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_forge"));
            command.arg("-C").arg(folder.path()).args(["project", "add", &format!("a/p{n}"), "--stack", "s"]);
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let graph = fs::read_to_string(folder.path().join("graph.yaml")).unwrap();
    assert_eq!(graph.matches("- project: a/p").count(), 20);
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("forge-")), "{left:?}");
}

#[test]
fn six_inits_at_once_make_one_repository() {
    let folder = tempfile::tempdir().unwrap();
    let children: Vec<_> = (0..6)
        .map(|_| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_forge"));
            command.arg("init").arg(folder.path()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert!(folder.path().join("production/app.yaml").exists());
}

#[test]
fn a_file_keeps_its_mode_and_a_link_stays_a_link() {
    let folder = repository();
    let root = folder.path();
    fs::rename(root.join("graph.yaml"), root.join("the-graph.yaml")).unwrap();
    fs::set_permissions(root.join("the-graph.yaml"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("the-graph.yaml", root.join("graph.yaml")).unwrap();
    assert!(forge(root, &["project", "add", "a/b", "--stack", "s"]).status.success());
    assert!(root.join("graph.yaml").is_symlink());
    let metadata = fs::metadata(root.join("the-graph.yaml")).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o777, 0o640);
    assert!(fs::read_to_string(root.join("the-graph.yaml")).unwrap().contains("- project: a/b"));
}

#[test]
fn what_would_not_be_a_graph_is_not_written() {
    let folder = repository();
    let root = folder.path();
    assert!(forge(root, &["project", "add", "a/b", "--stack", "s"]).status.success());
    let before = fs::read_to_string(root.join("graph.yaml")).unwrap();
    let output = forge(root, &["project", "add", "a/c", "--stack", "s", "--depends-on", "stack:s"]);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(fs::read_to_string(root.join("graph.yaml")).unwrap(), before);
    assert!(!root.join("dev/apps/a/c").exists());
}

#[test]
fn options_that_cannot_be_applied_are_refused_and_not_dropped() {
    let folder = repository();
    let root = folder.path();
    assert!(forge(root, &["project", "add", "a/b", "--stack", "s"]).status.success());
    let digest = format!("sha256:{}", "1".repeat(64));
    for arguments in [
        &["project", "add", "a/b", "--depends-on", "a/b"][..],
        &["project", "add", "a/b", "--release", &"1".repeat(40), "--digest", &digest][..],
        &["env", "add", "dev", "--cluster", "other"][..],
        &["env", "add", "qa", "--namespace-prefix", "Bad_"][..],
        &["init", "--url", "https://me:token@git.example.com/p.git"][..],
    ] {
        assert_eq!(forge(root, arguments).status.code(), Some(3), "{arguments:?}");
    }
    assert!(!fs::read_to_string(root.join("forge.yaml")).unwrap().contains("qa"));
}

#[test]
fn special_files_in_the_way_are_neither_read_nor_replaced() {
    let folder = tempfile::tempdir().unwrap();
    symlink("/dev/zero", folder.path().join("forge.yaml")).unwrap();
    assert_eq!(forge(folder.path(), &["init"]).status.code(), Some(3));
    let folder = tempfile::tempdir().unwrap();
    assert!(Command::new("mkfifo").arg(folder.path().join("forge.yaml")).status().unwrap().success());
    assert_eq!(forge(folder.path(), &["init"]).status.code(), Some(3));
}
