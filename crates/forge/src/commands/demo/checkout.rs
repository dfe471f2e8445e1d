//! The repository of a demo: cloned, filled, committed, pushed, with the `git` program. Nothing that is there is
//! overwritten, and nothing is forced.

use std::path::Path;

use forge_core::code::Code;
use forge_core::failure::Failure;
use forge_core::scaffold::File;

use crate::git;
use crate::output::Output;
use crate::write_files::{Lock, write_new};

/// Clones the repository into the folder, unless that is its checkout already; gives the branch.
pub(super) fn get(folder: &Path, url: &str) -> Result<String, Failure> {
    let unusable = |message: String| Failure::new(Code::BadArgument, message);
    let is_empty = match std::fs::read_dir(folder) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => true,
        Err(error) => return Err(unusable(format!("failed to read `{}`: {error}", folder.display()))),
    };
    if is_empty {
        let was_there = folder.exists();
        std::fs::create_dir_all(folder).map_err(|error| Failure::write(format!("`{}`", folder.display()), &error))?;
        git::run(folder, &["clone", "--quiet", "--", url, "."]).map_err(|why| {
            if !was_there {
                // Only where it is empty.
                let _ = std::fs::remove_dir(folder);
            }
            Failure::new(Code::NotInGit, format!("failed to clone `{url}`: {why}"))
                .hint("--repository takes an empty repository that you may push to; --push-url says how, if it differs")
        })?;
        if git::head(folder).is_none() {
            // Empty: whatever this machine calls a first branch.
            let _ = git::run(folder, &["symbolic-ref", "HEAD", "refs/heads/main"]);
        }
    } else if git::origin(folder).as_deref() != Some(url) || !folder.join(".git").exists() {
        return Err(unusable(format!("`{}` is not a checkout of `{url}`", folder.display()))
            .hint("name a folder that is new or empty"));
    }
    git::branch(folder).ok_or_else(|| {
        unusable(format!("no branch is checked out in `{}`", folder.display())).hint("git checkout main")
    })
}

/// Writes what is missing of these files, commits and pushes it.
pub(super) fn publish(folder: &Path, branch: &str, files: &[File], output: &mut Output<'_>) -> Result<(), Failure> {
    let _lock = Lock::take(folder)?;
    is_a_demo(folder, files)?;
    write_new(folder, files, output)?;
    let failed = |what: &str, why: String| Failure::new(Code::NotInGit, format!("failed to {what}: {why}"));
    let mut add = vec!["add", "--"];
    // Only what was never committed: a change of the user's is for the user to commit.
    let tracked = git::run(folder, &["ls-files"]).map_err(|why| failed("read the index", why))?;
    let tracked: Vec<&str> = tracked.lines().collect();
    add.extend(files.iter().map(|file| file.path.as_str()).filter(|path| !tracked.contains(path)));
    // In the checkout, and not for this commit alone: who breaks the demo and mends it commits here too.
    for (key, value) in [("user.name", "forge demo"), ("user.email", "forge-demo@localhost")] {
        if git::run(folder, &["config", key]).is_err() {
            git::run(folder, &["config", key, value]).map_err(|why| failed("say who commits", why))?;
        }
    }
    if add.len() > 2 {
        git::run(folder, &add).map_err(|why| failed("add files", why))?;
        let commit = ["commit", "--quiet", "-m", "forge demo: a platform of ten applications"];
        git::run(folder, &commit).map_err(|why| failed("commit", why))?;
    }
    let to = format!("HEAD:refs/heads/{branch}");
    git::run(folder, &["push", "--quiet", "origin", &to]).map_err(|why| {
        failed("push", why).hint(format!(
            "nothing was forced. `git -C {0} push origin {to}` must work for you, without a question; where somebody else \
             pushed: git -C {0} pull --rebase; then run this again",
            folder.display()
        ))
    })?;
    Ok(())
}

/// Refuses a repository that holds something else: the demo is no part of anybody's platform.
fn is_a_demo(folder: &Path, files: &[File]) -> Result<(), Failure> {
    let ours = |name: &str| files.iter().any(|file| file.path.split('/').next() == Some(name));
    let refused = |what: String| {
        Failure::new(Code::BadArgument, what).hint("--repository takes an empty repository, or that of an earlier demo")
    };
    let entries = std::fs::read_dir(folder)
        .map_err(|error| refused(format!("failed to read `{}`: {error}", folder.display())))?;
    let mut names: Vec<String> =
        entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned())).collect();
    names.sort();
    let stranger =
        |name: &&String| !(name.starts_with('.') || ["README.md", "LICENSE"].contains(&name.as_str()) || ours(name));
    if let Some(name) = names.iter().find(stranger) {
        return Err(refused(format!("the repository holds `{}`", forge_core::name::clip(name))));
    }
    let wanted = files.iter().find(|file| file.path == "forge.yaml").map(|file| file.text.as_str());
    match std::fs::read_to_string(folder.join("forge.yaml")) {
        Ok(text) if Some(text.as_str()) == wanted => Ok(()),
        Ok(_) => Err(refused("forge.yaml in the repository is not that of this demo".to_owned())),
        Err(_) if names.iter().any(|name| ours(name)) => {
            Err(refused("the repository holds something, and no forge.yaml of a demo".to_owned()))
        }
        Err(_) => Ok(()),
    }
}
