//! Can this machine run a sandbox? Everything is asked before anything is made, and all that is missing is said at once.

use std::fs;
use std::path::Path;

use crate::program::Program;

/// What the machine says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// As Rust names it.
    pub system: String,
    /// As Rust names it.
    pub architecture: String,
    /// Runs as root.
    pub root: bool,
    /// What the kernel cannot do, with the error that told so.
    pub missing: Vec<String>,
    /// Bytes that are free where sandboxes live.
    pub free: u64,
}

/// Why a sandbox cannot run here.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum HostError {
    /// Another system or architecture.
    #[error("the sandbox runs on Linux on x86_64 or aarch64; this machine is {system} on {architecture}")]
    Machine {
        /// What it is.
        system: String,
        /// What it has.
        architecture: String,
    },
    /// Not root.
    #[error("the sandbox makes namespaces, links and mounts, and only root may do that")]
    NotRoot,
    /// A kernel without what containers need.
    #[error("this kernel cannot run containers: {}", .0.join("; "))]
    Kernel(Vec<String>),
    /// Too little space.
    #[error("only {} MiB are free in `{folder}`; a sandbox needs {} MiB", .free >> 20, .needed >> 20)]
    Disk {
        /// Where.
        folder: String,
        /// What there is.
        free: u64,
        /// What it needs.
        needed: u64,
    },
}

/// What one sandbox writes before anybody uses it, with some room.
pub const NEEDED: u64 = 2 << 30;

impl Machine {
    /// Asks this machine, with its kernel if wanted: that is probed in a network namespace that goes with the probe.
    pub fn read(folder: &Path, probe: bool) -> Self {
        let root = nix::unistd::geteuid().is_root();
        Self {
            system: std::env::consts::OS.to_owned(),
            architecture: std::env::consts::ARCH.to_owned(),
            root,
            missing: if root && probe { kernel() } else { Vec::new() },
            // What is there already needs no more to be repaired.
            free: if folder.join("sandbox.json").exists() { u64::MAX } else { free(folder) },
        }
    }

    /// The first reason that stands in the way; those of the kernel together.
    pub fn check(&self, folder: &Path) -> Result<(), HostError> {
        if self.system != "linux" || !["x86_64", "aarch64"].contains(&self.architecture.as_str()) {
            let (system, architecture) = (self.system.clone(), self.architecture.clone());
            return Err(HostError::Machine { system, architecture });
        }
        if !self.root {
            return Err(HostError::NotRoot);
        }
        if !self.missing.is_empty() {
            return Err(HostError::Kernel(self.missing.clone()));
        }
        if self.free < NEEDED {
            return Err(HostError::Disk { folder: folder.display().to_string(), free: self.free, needed: NEEDED });
        }
        Ok(())
    }
}

/// What the kernel lacks.
fn kernel() -> Vec<String> {
    let mut missing = Vec::new();
    let probes: [(&str, &[&str]); 4] = [
        ("network namespaces", &["true"]),
        ("veth links", &["ip", "link", "add", "probe0", "type", "veth", "peer", "name", "probe1"]),
        ("bridges", &["ip", "link", "add", "probe2", "type", "bridge"]),
        (
            "nftables with connection tracking",
            &[
                "nft",
                "add table inet probe; add chain inet probe c { type filter hook output priority 0; }; add rule inet probe c ct state established accept",
            ],
        ),
    ];
    for (what, command) in probes {
        if let Err(error) = Program::new("unshare").args(["--net", "--"]).args(command).run() {
            missing.push(format!("no {what} ({error})"));
        }
    }
    let filesystems = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if !filesystems.lines().any(|line| line.split_whitespace().last() == Some("overlay")) {
        // A module that was never asked for is not listed.
        if Program::new("modprobe").arg("overlay").run().is_err() {
            missing.push("no overlay file system".to_owned());
        }
    }
    let cgroups = Path::new("/sys/fs/cgroup");
    if !cgroups.join("cgroup.controllers").exists() {
        let absent: Vec<&str> = ["cpu", "cpuset", "memory", "pids", "devices"]
            .into_iter()
            .filter(|controller| !cgroups.join(controller).join("cgroup.procs").exists())
            .collect();
        if !absent.is_empty() {
            missing.push(format!("no cgroup controller {} under /sys/fs/cgroup", absent.join(", ")));
        }
    }
    missing
}

/// Free bytes at a folder, or where it would be made.
fn free(folder: &Path) -> u64 {
    let existing = folder.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    nix::sys::statvfs::statvfs(existing)
        .map(|stat| stat.blocks_available().saturating_mul(stat.fragment_size()))
        .unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn fit() -> Machine {
        Machine {
            system: "linux".to_owned(),
            architecture: "x86_64".to_owned(),
            root: true,
            missing: Vec::new(),
            free: NEEDED,
        }
    }

    fn says(machine: &Machine) -> String {
        machine.check(Path::new("/somewhere")).map_or_else(|error| error.to_string(), |()| "fit".to_owned())
    }

    #[test]
    fn every_reason_is_named() {
        assert_eq!(says(&fit()), "fit");
        assert_eq!(says(&Machine { architecture: "aarch64".to_owned(), ..fit() }), "fit");
        assert!(says(&Machine { architecture: "riscv64".to_owned(), ..fit() }).ends_with("linux on riscv64"));
        assert!(says(&Machine { system: "macos".to_owned(), ..fit() }).contains("macos"));
        assert!(says(&Machine { root: false, ..fit() }).contains("only root"));
        let missing = vec!["no bridges (x)".to_owned(), "no overlay file system".to_owned()];
        assert!(says(&Machine { missing, ..fit() }).ends_with("no bridges (x); no overlay file system"));
        let full = says(&Machine { free: 5 << 20, ..fit() });
        assert_eq!(full, "only 5 MiB are free in `/somewhere`; a sandbox needs 2048 MiB");
    }

    #[test]
    fn free_space_is_that_of_the_nearest_folder_that_exists() {
        assert_eq!(free(Path::new("/proc/none/at/all")), free(Path::new("/proc")));
        assert!(free(Path::new("/tmp/none/at/all")) > 0);
    }
}
