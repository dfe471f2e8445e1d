//! The registry and the Git server of a sandbox, from the host and from pods.

use std::fs;
use std::process::Command;

use forge_testkit::sandbox::{Ended, Sandbox, run};

fn git(folder: &std::path::Path, args: &[&str]) -> Ended {
    let mut git = Command::new("git");
    git.current_dir(folder).args(["-c", "user.name=t", "-c", "user.email=t@example.com"]).args(args);
    run(git.env("GIT_TERMINAL_PROMPT", "0").env("GIT_CONFIG_NOSYSTEM", "1").env("HOME", folder), None)
}

#[test]
fn git_takes_a_push_with_the_password_and_gives_it_back_without() {
    let sandbox = Sandbox::shared();
    let folder = tempfile::tempdir().unwrap();
    let path = format!("/team/app-{}.git", std::process::id());
    fs::write(folder.path().join("file"), "content").unwrap();
    let plain = format!("{}{path}", sandbox.git.url);
    let with_password = plain.replacen("://", &format!("://{}:{}@", sandbox.git.user, sandbox.git.password), 1);
    for args in [&["init", "-q", "-b", "main"][..], &["add", "file"], &["commit", "-qm", "first"]] {
        assert_eq!(git(folder.path(), args).code, 0);
    }
    assert_ne!(git(folder.path(), &["push", &plain, "main"]).code, 0, "nobody pushes without a password");
    let pushed = git(folder.path(), &["push", &with_password, "main"]);
    assert_eq!(pushed.code, 0, "{}", pushed.stderr);
    let cloned = git(folder.path(), &["clone", "-q", &plain, "copy"]);
    assert_eq!(cloned.code, 0, "{}", cloned.stderr);
    assert_eq!(fs::read_to_string(folder.path().join("copy/file")).unwrap(), "content");
}

#[test]
fn an_image_that_a_user_brings_is_pushed_and_can_be_pulled_by_the_printed_reference() {
    let sandbox = Sandbox::shared();
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("sample.tar");
    let from = format!("docker://{}/{}", sandbox.registry, crate::images::sample().split_once('/').unwrap().1);
    for form in ["oci-archive", "docker-archive"] {
        let _ = fs::remove_file(&archive);
        let mut copy = Command::new("skopeo");
        let ended = run(
            copy.args(["copy", "--src-tls-verify=false", &from]).arg(format!("{form}:{}:x:1", archive.display())),
            None,
        );
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        let ended = sandbox.command(&["image", "load", archive.to_str().unwrap(), "--as", "mine/sample:2"]);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        let reference = ended.stdout.trim();
        assert!(reference.starts_with(&format!("{}/mine/sample@sha256:", sandbox.registry)), "{reference}");
        let path = reference.split_once('/').unwrap().1.replacen("@", "/manifests/", 1);
        let (status, _) =
            forge_sandbox::health::http(sandbox.registry.parse().unwrap(), &format!("/v2/{path}")).unwrap();
        assert_eq!(status, 200);
    }
    fs::write(&archive, "not an image").unwrap();
    let ended = sandbox.command(&["image", "load", archive.to_str().unwrap(), "--as", "mine/bad:1"]);
    assert_ne!(ended.code, 0);
    assert!(ended.stderr.contains("hint: "), "{}", ended.stderr);
}
