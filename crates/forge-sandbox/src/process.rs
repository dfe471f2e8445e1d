//! Processes as /proc shows them: is it still the same one, which belong to a sandbox, how much memory do they hold.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// One process of a sandbox, seen from the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its id on the host.
    pub pid: i32,
    /// Its id in the sandbox.
    pub inner: i32,
    /// When it started, in clock ticks since boot.
    pub started: u64,
    /// Its share of memory, in bytes: pages that several processes map are divided among them.
    pub memory: u64,
}

/// When a process started, if it is there and not a zombie. One whose first thread has ended shows as a zombie while its
/// other threads still live; they count.
pub fn started(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (state, start) = parse_stat(&stat)?;
    let threads = || fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    (!matches!(state, 'Z' | 'X') || threads() > 1).then_some(start)
}

/// The PID namespace that a process lives in.
pub fn namespace(pid: i32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/pid")).ok()
}

/// True if some process lives in this PID namespace.
pub fn inhabited(wanted: &Path) -> bool {
    let Ok(entries) = fs::read_dir("/proc") else { return false };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.into_iter().any(|pid| started(pid).is_some() && namespace(pid).is_some_and(|found| found == wanted))
}

/// State and start time. The name of the program stands in brackets and may hold anything.
fn parse_stat(stat: &str) -> Option<(char, u64)> {
    let after = stat.rsplit_once(')')?.1;
    let mut fields = after.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

/// All processes in the PID namespace of a process, by their id in it.
pub fn of_namespace(init: i32) -> BTreeMap<i32, Process> {
    let Some(wanted) = namespace(init) else { return BTreeMap::new() };
    let Ok(entries) = fs::read_dir("/proc") else { return BTreeMap::new() };
    entries
        .flatten()
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            (namespace(pid)? == wanted).then_some(())?;
            let status = fs::read_to_string(entry.path().join("status")).ok()?;
            let inner = field(&status, "NSpid:")?.split_whitespace().last()?.parse().ok()?;
            Some((inner, Process { pid, inner, started: started(pid)?, memory: memory(&entry.path()) }))
        })
        .collect()
}

fn memory(folder: &Path) -> u64 {
    let rollup = fs::read_to_string(folder.join("smaps_rollup")).unwrap_or_default();
    let kilobytes = field(&rollup, "Pss:").and_then(|value| value.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// How many seconds ago a process started.
pub fn age(started: u64) -> Option<u64> {
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let seconds: f64 = uptime.split_whitespace().next()?.parse().ok()?;
    // USER_HZ, which is 100 on every platform that we build for.
    Some((seconds as u64).saturating_sub(started / 100))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_confuse_the_parser() {
        let stat = "42 (a) b (c)) S 1 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 12345 1000 1 18446744073709551615";
        assert_eq!(parse_stat(stat), Some(('S', 12345)));
    }

    #[test]
    fn this_process_is_alive_and_a_reaped_one_is_not() {
        assert!(started(std::process::id() as i32).is_some());
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert_eq!(started(child.id() as i32), None);
    }

    #[test]
    fn this_process_is_among_those_of_its_namespace() {
        let all = of_namespace(std::process::id() as i32);
        let own = all.values().find(|process| process.pid == std::process::id() as i32).unwrap();
        assert!(own.memory > 0);
    }
}
