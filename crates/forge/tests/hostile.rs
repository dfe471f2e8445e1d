//! Files that nobody should have written. Whatever they hold, `forge` says what is wrong, ends with 1 or 3, never
//! panics, never hangs and never follows a link out of the repository.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

const FORGE: &str = "apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: Forge\nspec:\n  repository: {url: https://git.example.com/p.git}\n  environments: [{name: dev, cluster: dev, sync: auto}]\n";
const GRAPH: &str = "apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: DependencyGraph\nspec: {stacks: []}\n";

fn lint(folder: &Path) -> Output {
    // `timeout` ends a hang; it is part of coreutils.
    Command::new("timeout")
        .arg("60")
        .arg(env!("CARGO_BIN_EXE_forge"))
        .arg("-C")
        .arg(folder)
        .arg("lint")
        .output()
        .unwrap()
}

/// Lints a repository in which one file has this content, and checks that the right code is told at the right file.
fn expect(path: &str, content: &[u8], code: &str) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("forge.yaml"), FORGE).unwrap();
    fs::write(folder.path().join("graph.yaml"), GRAPH).unwrap();
    let file = folder.path().join(path);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, content).unwrap();
    told(&lint(folder.path()), path, code);
}

fn told(output: &Output, path: &str, code: &str) {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!err.contains("panicked"), "{err}");
    assert!(matches!(output.status.code(), Some(1 | 3)), "{path} {code}: {:?}\n{out}\n{err}", output.status);
    let line = out.lines().find(|line| line.starts_with(path) && line.contains(code));
    assert!(line.is_some(), "{path} should be told as {code}:\n{}", out.chars().take(2000).collect::<String>());
    // A terminal must survive what is printed.
    assert!(!out.contains('\u{1b}') && !err.contains('\u{1b}'), "control characters reach the terminal");
    assert!(out.len() < 200_000, "{} bytes for one file", out.len());
}

#[test]
fn every_own_file_refuses_what_is_not_yaml() {
    let pointer = "dev/apps/a/b/release.yaml";
    for path in
        ["forge.yaml", "graph.yaml", "dev/graph.yaml", "dev/env.yaml", pointer, "platform/clusters/dev/cluster.yaml"]
    {
        expect(path, b"a: [1, 2", "FORGE-Y001");
        expect(path, b"a: 1\na: 2\n", "FORGE-Y002");
        expect(path, b"a: \xff\xfe\n", "FORGE-Y003");
        expect(path, "[".repeat(100_000).as_bytes(), "FORGE-Y004");
        expect(path, b"a: &x [1]\nb: *x\n", "FORGE-Y006");
        expect(path, b"", "FORGE-F006");
        expect(path, b"# nothing but a comment\n", "FORGE-F006");
        expect(path, b"a: 1\n---\na: 1\n", "FORGE-F006");
        expect(path, b"\x00\x01\x02", "FORGE-Y001");
        expect(path, b"just a text", "FORGE-F0");
        expect(path, "\u{1b}[31mred: \u{1b}[0m\n".as_bytes(), "FORGE-");
    }
}

#[test]
fn bombs_end_early() {
    let mut laughs = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x]\n");
    for n in 1..40 {
        laughs.push_str(&format!("a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 9].join(",")));
    }
    expect("manifests/laughs.yaml", laughs.as_bytes(), "FORGE-Y004");
    let deep: String = (0..3000).map(|n| format!("{}a:\n", " ".repeat(n))).collect();
    expect("manifests/deep.yaml", deep.as_bytes(), "FORGE-Y004");
    let huge = vec![b'#'; 33 << 20];
    expect("manifests/huge.yaml", &huge, "FORGE-Y004");
    let keys: String = (0..300_000).map(|n| format!("k{}: v\n", n % 1000)).collect();
    expect("manifests/keys.yaml", keys.as_bytes(), "FORGE-Y002");
}

#[test]
fn huge_values_do_not_flood_the_terminal() {
    let long = "x".repeat(1 << 20);
    let pointer = format!(
        "apiVersion: {long}\nkind: {long}\nmetadata: {{name: {long}}}\nspec: {{release: {long}, digest: {long}}}\n"
    );
    expect("dev/apps/a/b/release.yaml", pointer.as_bytes(), "FORGE-P001");
}

#[test]
fn links_out_of_the_repository_and_special_files_are_not_read() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret.yaml"), "password: hunter2hunter2\n").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    fs::write(root.join("forge.yaml"), FORGE).unwrap();
    fs::write(root.join("graph.yaml"), GRAPH).unwrap();
    symlink(outside.path().join("secret.yaml"), root.join("out.yaml")).unwrap();
    symlink(outside.path(), root.join("folder.yaml")).unwrap();
    symlink("nowhere.yaml", root.join("broken.yaml")).unwrap();
    symlink("loop.yaml", root.join("loop.yaml")).unwrap();
    symlink("/dev/zero", root.join("zero.yaml")).unwrap();
    symlink("graph.yaml", root.join("inside.yaml")).unwrap();
    fs::create_dir(root.join("round")).unwrap();
    symlink("..", root.join("round/up")).unwrap();
    assert!(Command::new("mkfifo").arg(root.join("pipe.yaml")).status().unwrap().success());
    let output = lint(root);
    for path in ["out.yaml", "folder.yaml", "broken.yaml", "loop.yaml", "zero.yaml"] {
        told(&output, path, "FORGE-Y005");
    }
    told(&output, "pipe.yaml", "FORGE-Y007");
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(!out.contains("inside.yaml"), "a link inside the repository is followed: {out}");
    assert!(!out.contains("hunter2"), "{out}");
}

#[test]
fn names_that_are_not_utf8_are_told_and_the_rest_is_still_checked() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("forge.yaml"), FORGE).unwrap();
    fs::write(folder.path().join("graph.yaml"), "nonsense: true\n").unwrap();
    fs::write(folder.path().join(std::ffi::OsStr::from_bytes(b"bad\xff.yaml")), "a: 1\n").unwrap();
    let output = lint(folder.path());
    told(&output, "bad", "FORGE-Y007");
    told(&output, "graph.yaml", "FORGE-F001");
}

#[test]
fn names_and_reasons_cannot_drive_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("forge.yaml"), FORGE).unwrap();
    fs::write(folder.path().join("graph.yaml"), GRAPH).unwrap();
    fs::write(folder.path().join("\u{1b}[31mred\nfake.yaml"), "a: [1\n").unwrap();
    fs::create_dir(folder.path().join("templates")).unwrap();
    let allowed = "image: {{ .x }}/busybox:1 # forge:allow FORGE-I001 \u{1b}[31mbecause\n";
    fs::write(folder.path().join("templates/a.yaml"), allowed).unwrap();
    let output = lint(folder.path());
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(!out.contains('\u{1b}'), "{out:?}");
    assert!(!out.lines().any(|line| line.starts_with("fake.yaml")), "a forged line: {out}");
    assert!(out.contains("FORGE-Y001"), "{out}");
}

#[test]
fn input_that_is_slow_to_read_twice_is_read_once() {
    // Each of these took between 5 s and 85 s before it was looked at; `timeout` in `lint` would end them.
    let keys: String = (0..100_000).map(|n| format!("k{n}: 1, ")).collect();
    let merge = format!("a: {{<<: {{{keys}}}}}\n");
    let anchors: String = (0..60)
        .map(|n| format!("{}a{n}: &a{n}\n", " ".repeat(n)))
        .chain([format!("{}b: [{}]\n", " ".repeat(61), "1,".repeat(200_000))])
        .collect();
    let comments = format!("{}a: |\n{}", "# forge:allow FORGE-I001 x\n".repeat(5_000), "  x\n".repeat(100_000));
    let tokens = format!("a: {}\n", "eyJ".repeat(1_000_000));
    for (name, text) in [("merge", merge), ("anchors", anchors), ("comments", comments), ("tokens", tokens)] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("forge.yaml"), FORGE).unwrap();
        fs::write(folder.path().join("graph.yaml"), GRAPH).unwrap();
        fs::write(folder.path().join("a.yaml"), text).unwrap();
        assert!(matches!(lint(folder.path()).status.code(), Some(0 | 1)), "{name}");
    }
}

#[test]
fn a_folder_that_cannot_be_listed_is_an_error_and_not_an_empty_repository() {
    let output = Command::new(env!("CARGO_BIN_EXE_forge")).args(["-C", "/proc/self/mem", "lint"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let output = Command::new(env!("CARGO_BIN_EXE_forge")).args(["-C", "/nonexistent", "lint"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("forge.yaml"), FORGE).unwrap();
    fs::write(folder.path().join("graph.yaml"), forge_testkit::generate::graph_yaml(2000, 6000, 1)).unwrap();
    let script = format!("{} -C {} graph | head -n 1", env!("CARGO_BIN_EXE_forge"), folder.path().display());
    let output = Command::new("bash").args(["-o", "pipefail", "-c", &script]).output().unwrap();
    assert!(output.status.success(), "{:?} {}", output.status, String::from_utf8_lossy(&output.stderr));
}
