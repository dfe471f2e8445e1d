//! Watches readiness from outside, and runs programs that may take too long.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{fs, io};

use jiff::Timestamp;
use serde_json::Value;
use tempfile::TempDir;

use crate::order::{Transition, transitions};
use crate::sandbox::{Ended, Sandbox};

/// How often a child is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// When a watch that ended is begun again.
const AGAIN: Duration = Duration::from_millis(250);
/// What is watched, in all namespaces.
const KINDS: [&str; 2] = ["pods", "jobs"];

/// Records every readiness that the cluster shows from now on: a pod that fails later, or is gone at the end, was ready
/// all the same. A watch that ends (an API server that was killed) is begun again.
#[derive(Debug)]
pub struct Recorder {
    /// When it began.
    pub since: Timestamp,
    folder: TempDir,
    over: Arc<AtomicBool>,
    watches: Vec<JoinHandle<()>>,
    sandbox: Sandbox,
}

impl Recorder {
    /// Begins.
    #[allow(clippy::panic, reason = "a driver of tests fails by panicking, with what it saw")]
    pub fn start(sandbox: &Sandbox) -> Self {
        let since = super::mark();
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("no folder for the record: {error}"));
        let over = Arc::new(AtomicBool::new(false));
        let watches = KINDS.iter().map(|kind| {
            let (sandbox, over, file) = (sandbox.clone(), Arc::clone(&over), folder.path().join(kind));
            thread::spawn(move || watch(&sandbox, kind, &file, &over))
        });
        let watches = watches.collect();
        Self { since, folder, over, watches, sandbox: sandbox.clone() }
    }

    /// Ends, and gives all that became ready. Objects that are there now count too, so that nothing is lost that came in
    /// the last moment; also those of `further` kinds (`plural.group`), which may not have existed when it began.
    pub fn stop(mut self, further: &[&str]) -> BTreeSet<Transition> {
        self.over.store(true, Ordering::Relaxed);
        for watch in self.watches.drain(..) {
            let _ = watch.join();
        }
        let mut found = BTreeSet::new();
        for entry in fs::read_dir(self.folder.path()).into_iter().flatten().flatten() {
            let text = fs::read(entry.path()).unwrap_or_default();
            let events = serde_json::Deserializer::from_slice(&text).into_iter::<Value>().map_while(Result::ok);
            let objects: Vec<Value> = events.filter_map(|event| event.get("object").cloned()).collect();
            found.extend(transitions(&objects));
        }
        for kind in KINDS.iter().chain(further) {
            found.extend(present(&self.sandbox, kind));
        }
        found
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// What objects of a kind show now, in all namespaces.
fn present(sandbox: &Sandbox, kind: &str) -> BTreeSet<Transition> {
    let text = sandbox.try_kubectl(&["get", kind, "-A", "-o", "json"], None).stdout;
    let list: Value = serde_json::from_str(&text).unwrap_or_default();
    transitions(list.get("items").and_then(Value::as_array).into_iter().flatten())
}

/// Writes what a watch says into files until it is over.
fn watch(sandbox: &Sandbox, kind: &str, file: &std::path::Path, over: &AtomicBool) {
    let mut number = 0;
    while !over.load(Ordering::Relaxed) {
        number += 1;
        let place = PathBuf::from(format!("{}-{number}", file.display()));
        let Ok(mut child) = begin(sandbox, kind, &place) else { return };
        while !over.load(Ordering::Relaxed) && matches!(child.try_wait(), Ok(None)) {
            thread::sleep(LOOK);
        }
        let _ = child.kill();
        let _ = child.wait();
        if !over.load(Ordering::Relaxed) {
            thread::sleep(AGAIN);
        }
    }
}

fn begin(sandbox: &Sandbox, kind: &str, file: &std::path::Path) -> io::Result<Child> {
    Command::new(&sandbox.kubectl)
        .args(["get", kind, "-A", "--watch", "--output-watch-events", "-o", "json"])
        .env("KUBECONFIG", &sandbox.kubeconfig)
        .stdin(Stdio::null())
        .stdout(File::create(file)?)
        .stderr(Stdio::null())
        .spawn()
}

/// Runs a program to its end, or kills it: then its code is 124, as with `timeout`.
#[allow(clippy::panic, reason = "a driver of tests fails by panicking, with what it saw")]
pub(super) fn run_within(command: &mut Command, limit: Duration) -> Ended {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("no folder for what is said: {error}"));
    let (out, err) = (folder.path().join("out"), folder.path().join("err"));
    let file = |path: &PathBuf| File::create(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut child = command
        .stdin(Stdio::null())
        .stdout(file(&out))
        .stderr(file(&err))
        .spawn()
        .unwrap_or_else(|error| panic!("failed to start {command:?}: {error}"));
    let start = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if start.elapsed() < limit => thread::sleep(LOOK),
            _ => break None,
        }
    };
    let said = |path: &PathBuf| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
    let code = match status {
        Some(status) => status.code().unwrap_or(-1),
        None => {
            let _ = child.kill();
            let _ = child.wait();
            124
        }
    };
    let mut stderr = said(&err);
    if status.is_none() {
        stderr.push_str(&format!("\nkilled after {} s\n", limit.as_secs()));
    }
    Ended { code, stdout: said(&out), stderr }
}
