//! What a sandbox could leave on the machine. Everything is looked for by what only a sandbox of this name or range has.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use forge_testkit::sandbox::run;

/// What the machine has that a sandbox could have made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Traces {
    mounts: BTreeSet<String>,
    links: BTreeSet<String>,
    routes: BTreeSet<String>,
    tables: String,
    namespaces: String,
    cgroups: BTreeSet<PathBuf>,
    processes: BTreeSet<String>,
    settings: BTreeSet<String>,
    files: BTreeSet<PathBuf>,
}

/// Looks at everything.
pub(crate) fn traces() -> Traces {
    let text = |program: &str, args: &[&str]| run(Command::new(program).args(args), None).stdout;
    let lines = |text: String| text.lines().map(|line| line.trim().to_owned()).collect();
    let links = fs::read_dir("/sys/class/net").unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut cgroups = BTreeSet::new();
    for hierarchy in fs::read_dir("/sys/fs/cgroup").unwrap().flatten() {
        cgroups.extend(fs::read_dir(hierarchy.path()).into_iter().flatten().flatten().map(|entry| entry.path()));
        cgroups.insert(hierarchy.path());
    }
    cgroups.retain(|path| path.is_dir());
    Traces {
        mounts: fs::read_to_string("/proc/mounts").unwrap().lines().map(str::to_owned).collect(),
        links: links.collect(),
        routes: lines(text("ip", &["route", "show", "table", "all"])),
        tables: text("nft", &["list", "tables"]),
        namespaces: text("ip", &["netns", "list"]),
        cgroups,
        processes: processes(),
        settings: settings(),
        files: sandboxes()
            .into_iter()
            .flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten())
            .map(|entry| entry.path())
            .collect(),
    }
}

/// Settings of the whole machine that a kubelet would change, and what they are.
fn settings() -> BTreeSet<String> {
    let names =
        ["vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "net/ipv4/ip_forward"];
    names
        .iter()
        .map(|name| format!("{name}={}", fs::read_to_string(format!("/proc/sys/{name}")).unwrap().trim()))
        .collect()
}

/// The topmost process of every PID namespace but ours, and whoever makes one. The kernel lets no other process of such a
/// namespace outlive it, and one that came from nowhere would be topmost itself.
fn processes() -> BTreeSet<String> {
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let own = namespace("self");
    let mut found = BTreeSet::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(mut pid) = entry.file_name().to_str().filter(|name| name.parse::<u32>().is_ok()).map(str::to_owned)
        else {
            continue;
        };
        while let Some(parent) = parent(&pid).filter(|parent| namespace(parent).is_some_and(|other| Some(other) != own))
        {
            pid = parent;
        }
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let other = namespace(&pid).is_some_and(|found| Some(found) != own);
        if other || line.contains("forge-sandbox init") || line.contains("forge-sandbox enter") {
            found.insert(format!("{pid} {line}"));
        }
    }
    found
}

fn parent(pid: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:")).map(|parent| parent.trim().to_owned())
}

fn sandboxes() -> Option<PathBuf> {
    let cache = std::env::var_os("FORGE_CACHE").map(PathBuf::from).or_else(|| {
        let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        base.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")))
            .map(|base| base.join("forge"))
    });
    cache.map(|cache| cache.join("sandboxes"))
}

impl Traces {
    /// What is there now and was not then, in words.
    pub(crate) fn since(&self, before: &Self) -> String {
        let mut found = Vec::new();
        let mut more = |what: &str, now: BTreeSet<String>, then: BTreeSet<String>| {
            found.extend(now.difference(&then).map(|new| format!("{what}: {new}")));
        };
        let paths = |set: &BTreeSet<PathBuf>| set.iter().map(|path| path.display().to_string()).collect();
        let one = |text: &str| text.lines().map(str::to_owned).collect();
        more("mount", self.mounts.clone(), before.mounts.clone());
        more("link", self.links.clone(), before.links.clone());
        more("route", self.routes.clone(), before.routes.clone());
        more("nft table", one(&self.tables), one(&before.tables));
        more("network namespace", one(&self.namespaces), one(&before.namespaces));
        more("cgroup", paths(&self.cgroups), paths(&before.cgroups));
        more("process", self.processes.clone(), before.processes.clone());
        more("setting", self.settings.clone(), before.settings.clone());
        more("file", paths(&self.files), paths(&before.files));
        found.join("\n")
    }
}
