//! The audit log of a sandbox's API server, those files included that it was moved to when it had grown.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

use crate::order::Line;
use crate::sandbox::Sandbox;

/// Requests since a moment that succeeded and changed something, in the order of their answers.
pub fn audit(sandbox: &Sandbox, since: Timestamp) -> Vec<Line> {
    attempts(sandbox, since).into_iter().filter(Line::succeeded).collect()
}

/// Requests since a moment that were to change something, those included that were refused, in the order of their answers.
///
/// # Panics
/// When there is no log: what was looked for in nothing was not looked for.
#[expect(clippy::panic, reason = "a test that reads no log proves nothing")]
pub fn attempts(sandbox: &Sandbox, since: Timestamp) -> Vec<Line> {
    let mut found: Vec<Line> = Vec::new();
    let files = files(sandbox, since);
    if files.is_empty() {
        panic!("sandbox {}: no audit log was written to since {since}", sandbox.name);
    }
    for file in files {
        let file = fs::File::open(&file).unwrap_or_else(|error| panic!("failed to open {}: {error}", file.display()));
        let lines = BufReader::new(file).lines().map_while(Result::ok);
        found.extend(lines.filter_map(|line| Line::parse(&line)).filter(|line| line.at.latest >= since));
    }
    found.sort_by_key(|line| line.at.latest);
    found
}

/// The log, and what was moved away, as far as it was written to since then.
fn files(sandbox: &Sandbox, since: Timestamp) -> Vec<PathBuf> {
    // Folder of the sandbox, its `pki`, the file.
    let Some(logs) = sandbox.kubeconfig.ancestors().nth(2).map(|folder| folder.join("logs")) else { return Vec::new() };
    let entries = fs::read_dir(logs).into_iter().flatten().flatten();
    let recent = |path: &PathBuf| {
        let written = fs::metadata(path).and_then(|data| data.modified()).ok();
        written.is_some_and(|time| timestamp(time) >= since)
    };
    let of_audit = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("audit"));
    entries.map(|entry| entry.path()).filter(of_audit).filter(recent).collect()
}

/// A time of this machine, whose clock is also the cluster's.
pub(super) fn timestamp(time: SystemTime) -> Timestamp {
    let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let micros = i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_microsecond(micros).unwrap_or(Timestamp::MAX)
}

/// The time now: where a window of [`audit`] begins.
pub fn mark() -> Timestamp {
    timestamp(SystemTime::now())
}
