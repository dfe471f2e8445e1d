//! Memory and processor time of the processes that a run consists of, from `/proc`: pods of a sandbox are processes of this
//! machine. Another sandbox has the same ones, so only those count whose cgroup names a pod of ours.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::WORKFLOWS;
use crate::sandbox::Sandbox;

/// How often they are looked at.
const PACE: Duration = Duration::from_secs(1);
/// Ticks a second in `/proc/<pid>/stat`.
const TICKS: f64 = 100.0;

/// What a process is in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The controller of Argo Workflows.
    Controller,
    /// The agent of the Workflow, which is Argo's.
    Agent,
    /// Our executor plugin.
    Plugin,
    /// The pod of the Job.
    Executor,
}

impl Part {
    /// All, in the order in which they are shown.
    pub const ALL: [Self; 4] = [Self::Controller, Self::Plugin, Self::Executor, Self::Agent];

    /// As people say it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Controller => "controller",
            Self::Agent => "agent",
            Self::Plugin => "plugin",
            Self::Executor => "executor",
        }
    }

    /// What a command line with its words separated by zeros is.
    fn of(command: &str) -> Option<Self> {
        let mut words = command.split('\0');
        let program = words.next()?.rsplit('/').next()?;
        match (program, words.next().unwrap_or_default(), words.next().unwrap_or_default()) {
            ("workflow-controller", ..) => Some(Self::Controller),
            ("argoexec", "agent", "main") => Some(Self::Agent),
            ("forge", "serve", "plugin") => Some(Self::Plugin),
            ("forge", "serve", "run") => Some(Self::Executor),
            _ => None,
        }
    }
}

/// What a part used.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Usage {
    /// The most memory that one of its processes had, in KiB.
    pub peak: u64,
    /// Seconds of processor time of all its processes.
    pub processor: f64,
}

/// A process as it was last seen.
#[derive(Debug, Clone, Copy)]
struct Seen {
    part: Part,
    /// Processor time from before.
    before: f64,
    usage: Usage,
}

/// Looks at processes until it is stopped.
#[derive(Debug)]
pub struct Sampler {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<BTreeMap<Part, Usage>>>,
}

impl Sampler {
    /// Begins.
    pub fn start(sandbox: &Sandbox) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (until, sandbox) = (Arc::clone(&over), sandbox.clone());
        let thread = thread::spawn(move || sample(&sandbox, &until));
        Self { over, thread: Some(thread) }
    }

    /// Ends, and gives what each part used. A part that was never seen is not there.
    pub fn stop(mut self) -> BTreeMap<Part, Usage> {
        self.over.store(true, Ordering::Relaxed);
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

fn sample(sandbox: &Sandbox, over: &AtomicBool) -> BTreeMap<Part, Usage> {
    // By process, and when it was started: numbers are given again. Nothing is remembered of what is not ours but that.
    let mut known: BTreeMap<(u32, u64), Option<Seen>> = BTreeMap::new();
    let mut first = true;
    while !over.load(Ordering::Relaxed) {
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            let text = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
            let Some(part) = Part::of(&text("cmdline")) else { continue };
            let Some((processor, started)) = stat(&text("stat")) else { continue };
            let seen = match known.entry((pid, started)) {
                Entry::Occupied(seen) => seen.into_mut(),
                Entry::Vacant(place) => {
                    // Asked again at the next look where there was no answer.
                    let Some(ours) = is_ours(sandbox, &text("cgroup")) else { continue };
                    // What ran before is there at the first look; what it used until then was not for this.
                    let before = if first { processor } else { 0.0 };
                    place.insert(ours.then_some(Seen { part, before, usage: Usage::default() }))
                }
            };
            if let Some(seen) = seen {
                seen.usage.peak = seen.usage.peak.max(peak(&text("status")).unwrap_or(0));
                seen.usage.processor = (processor - seen.before).max(seen.usage.processor);
            }
        }
        first = false;
        thread::sleep(PACE);
    }
    let mut usage: BTreeMap<Part, Usage> = BTreeMap::new();
    for seen in known.into_values().flatten() {
        let of = usage.entry(seen.part).or_default();
        of.peak = of.peak.max(seen.usage.peak);
        of.processor += seen.usage.processor;
    }
    usage
}

/// Whether the cgroup of a process is that of a pod beside the Workflows of this sandbox. A pod is known to the API server
/// before its processes are there. Nothing where it cannot be asked.
fn is_ours(sandbox: &Sandbox, cgroup: &str) -> Option<bool> {
    const UIDS: &str = r#"jsonpath={range .items[*]}{.metadata.uid}{"\n"}{end}"#;
    let ended = sandbox.try_kubectl(&["get", "pods", "-n", WORKFLOWS, "-o", UIDS], None);
    if ended.code != 0 {
        return None;
    }
    // systemd's cgroups spell it with underscores.
    let mut uids = ended.stdout.lines().map(str::trim).filter(|uid| !uid.is_empty());
    Some(uids.any(|uid| cgroup.contains(uid) || cgroup.contains(&uid.replace('-', "_"))))
}

/// The most memory that a process had since it began, in KiB: where a run has processes of its own, that is the run's.
fn peak(status: &str) -> Option<u64> {
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Seconds of processor time and the tick of its start. The name may hold anything, so fields count from its end.
fn stat(text: &str) -> Option<(f64, u64)> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |place: usize| fields.get(place).and_then(|field| field.parse::<u64>().ok());
    Some(((number(11)? + number(12)?) as f64 / TICKS, number(19)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_known_by_their_command_lines() {
        assert_eq!(Part::of("/bin/workflow-controller\0--configmap\0x\0"), Some(Part::Controller));
        assert_eq!(Part::of("argoexec\0agent\0main\0"), Some(Part::Agent));
        assert_eq!(Part::of("argoexec\0agent\0init\0"), None);
        assert_eq!(Part::of("forge\0serve\0run\0--run\0r\0"), Some(Part::Executor));
        assert_eq!(Part::of("forge\0platform\0deploy\0"), None);
        assert_eq!(Part::of(""), None);
    }

    #[test]
    fn processor_time_is_read_past_a_name_with_a_bracket() {
        let text = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 9 0 4242 1 1";
        assert_eq!(stat(text), Some((2.0, 4242)));
    }

    #[test]
    fn this_process_has_a_peak() {
        assert!(peak(&fs::read_to_string("/proc/self/status").unwrap()).unwrap() > 0);
    }
}
