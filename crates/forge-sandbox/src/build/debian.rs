//! What the sandbox needs of the machine, and the machine's own Debian where it has to come from.
//!
//! Programs are looked for, not packages, so a machine of another distribution that has them is fine.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::progress::{Progress, Step};
use super::run;

/// A Debian package, and how to tell that what the sandbox needs of it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Package {
    /// Its name in Debian.
    pub name: &'static str,
    /// Programs of it that are run.
    programs: &'static [&'static str],
    /// Places of a file of it, any of which will do.
    files: &'static [&'static str],
}

/// Where the plugins of the container network are, in the order in which they are looked for.
pub const NETWORK_PLUGINS: [&str; 3] = ["/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"];

const fn programs(name: &'static str, programs: &'static [&'static str]) -> Package {
    Package { name, programs, files: &[] }
}

const PACKAGES: [Package; 11] = [
    Package {
        name: "ca-certificates",
        programs: &[],
        files: &["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"],
    },
    programs("conntrack", &["conntrack"]),
    programs("containerd", &["containerd", "containerd-shim-runc-v2", "ctr"]),
    Package {
        name: "containernetworking-plugins",
        programs: &[],
        files: &["/usr/lib/cni/bridge", "/opt/cni/bin/bridge", "/usr/libexec/cni/bridge"],
    },
    programs("git", &["git"]),
    programs("iproute2", &["ip"]),
    programs("mmdebstrap", &["mmdebstrap"]),
    programs("nftables", &["nft"]),
    programs("runc", &["runc"]),
    programs("skopeo", &["skopeo"]),
    programs("util-linux", &["mount", "nsenter", "setpriv", "umount", "unshare"]),
];

/// Why what is missing could not be installed.
#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    /// Only root on Debian can.
    #[error("these packages are missing: {}", .missing.join(", "))]
    Missing {
        /// Their names in Debian.
        missing: Vec<&'static str>,
    },
    /// The package manager failed.
    #[error("failed to install {}: {reason}", .missing.join(", "))]
    Install {
        /// Their names in Debian.
        missing: Vec<&'static str>,
        /// What it said last.
        reason: String,
    },
}

impl PackageError {
    /// The next step: the one line that installs them.
    pub fn hint(&self) -> String {
        let (Self::Missing { missing } | Self::Install { missing, .. }) = self;
        format!("sudo apt-get install --no-install-recommends {}", missing.join(" "))
    }
}

impl Package {
    fn present(&self) -> bool {
        self.programs.iter().all(|program| run::find(program, &[]).is_some())
            && (self.files.is_empty() || self.files.iter().any(|file| Path::new(file).exists()))
    }
}

/// The names of packages of which something is missing.
pub fn missing_packages() -> Vec<&'static str> {
    PACKAGES.iter().filter(|package| !package.present()).map(|package| package.name).collect()
}

/// Installs what is missing if this is root on Debian or one of its kin, after saying what. No service starts because of
/// it, now or at the next boot.
pub fn ensure_packages(progress: &mut dyn Progress) -> Result<(), PackageError> {
    let missing = missing_packages();
    if missing.is_empty() {
        return Ok(());
    }
    let apt = run::find("apt-get", &[]).filter(|_| nix::unistd::geteuid().is_root());
    let Some(apt) = apt else { return Err(PackageError::Missing { missing }) };
    progress.note(&format!("installing Debian packages: {}", missing.join(", ")));
    progress.started(Step { name: "packages", version: None, number: 1, total: 1 });
    let result = install(&apt, &missing, progress);
    match &result {
        Ok(()) => progress.finished(),
        Err(_) => progress.failed(),
    }
    let failed = |reason| PackageError::Install { missing: missing.clone(), reason };
    result.map_err(|error| failed(error.to_string()))?;
    match missing_packages() {
        left if left.is_empty() => Ok(()),
        left => Err(failed(format!("they were installed, but these still lack something: {}", left.join(", ")))),
    }
}

/// In a namespace of mounts in which systemd is not to be seen, so that scripts of packages do not ask it to start
/// anything; it is gone with the command, however that ends. `RUNLEVEL` says the same to scripts of the older kind.
const WITHOUT_SERVICES: &str = r#"mount -t tmpfs -o mode=755 none /run/systemd && exec "$@""#;

fn install(apt: &Path, missing: &[&str], progress: &mut dyn Progress) -> io::Result<()> {
    // Without systemd there is nothing to hide, and a container may not make namespaces.
    let unshare = run::find("unshare", &[]).filter(|_| Path::new("/run/systemd/system").is_dir());
    let apt_get = |words: &[&str]| {
        let mut command = match &unshare {
            Some(unshare) => {
                let mut command = Command::new(unshare);
                command.args(["--mount", "--propagation", "private", "sh", "-c", WITHOUT_SERVICES, "sh"]).arg(apt);
                command
            }
            None => Command::new(apt),
        };
        command.args(words).stdin(std::process::Stdio::null());
        command.env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1").env("LC_ALL", "C.UTF-8");
        command
    };
    let containerd_is_new = missing.contains(&"containerd");
    let install = || {
        let mut command = apt_get(&["install", "--yes", "--no-install-recommends", "-o", "Dpkg::Use-Pty=0"]);
        command.args(missing);
        command
    };
    progress.doing("apt-get install");
    if let Err(first) = finish(install()) {
        // Lists that are old or were never fetched are the usual reason.
        progress.doing("apt-get update");
        finish(apt_get(&["update"])).map_err(|_| first)?;
        progress.doing("apt-get install");
        finish(install())?;
    }
    if containerd_is_new && let Some(systemctl) = run::find("systemctl", &[]) {
        // Its package enables it; the sandbox starts its own. Offline: the files alone decide about the next boot.
        let mut command = Command::new(systemctl);
        command.args(["disable", "containerd.service"]).env("SYSTEMD_OFFLINE", "1");
        let _ = finish(command);
    }
    Ok(())
}

fn finish(mut command: Command) -> io::Result<()> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let mut last: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).rev().take(5).collect();
    last.reverse();
    Err(io::Error::other(if last.is_empty() { output.status.to_string() } else { last.join("; ") }))
}

/// The release that this machine runs, if it is Debian or one that names its releases as Debian does.
pub(crate) fn suite() -> Option<String> {
    codename(&std::fs::read_to_string("/etc/os-release").ok()?)
}

fn codename(release: &str) -> Option<String> {
    let value = |name: &str| {
        release.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix('=')?.trim_matches('"').to_owned()))
    };
    matches!(value("ID")?.as_str(), "debian" | "ubuntu").then(|| value("VERSION_CODENAME"))?
}

/// What `apt-get indextargets` is asked to print of each list of packages.
const INDEX: &str = "$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(ORIGIN)|$(CODENAME)";

/// The sources of this machine that hold the release's own packages, as lines of a list of sources.
pub(crate) fn sources(suite: &str) -> Option<String> {
    let apt: PathBuf = run::find("apt-get", &[])?;
    let mut command = run::command(&apt);
    let index = run::ask(command.args(["indextargets", "--format", INDEX, "Created-By: Packages"])).ok()?;
    source_lines(&index, suite)
}

fn source_lines(index: &str, suite: &str) -> Option<String> {
    let mut lines: Vec<String> = index
        .lines()
        .filter_map(|line| {
            let mut fields = line.split('|');
            let (uri, release, component) = (fields.next()?, fields.next()?, fields.next()?);
            let (origin, codename) = (fields.next()?, fields.next()?);
            // Also `bookworm-security` and `bookworm-updates`, which are of the same release.
            let own =
                matches!(origin, "Debian" | "Ubuntu") && codename.starts_with(suite) && release.starts_with(suite);
            own.then(|| format!("deb {uri} {release} {component}\n"))
        })
        .collect();
    lines.sort();
    lines.dedup();
    (!lines.is_empty()).then(|| lines.concat())
}

/// The names and upstream versions of packages, from lines that are the names of their archives.
pub(crate) fn versions(lines: &str) -> std::collections::BTreeMap<String, String> {
    lines
        .lines()
        .filter(|line| !line.contains([' ', '/']))
        .filter_map(|archive| {
            let (name, version) = archive.strip_suffix(".deb")?.split_once('_')?;
            let version = version.rsplit_once('_').map_or(version, |(version, _architecture)| version);
            let version = version.split_once("%3a").map_or(version, |(_epoch, version)| version);
            let upstream = version.rsplit_once('-').map_or(version, |(upstream, _revision)| upstream);
            Some((name.to_owned(), upstream.to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_in_one_line_that_installs_it() {
        let error = PackageError::Missing { missing: vec!["runc", "skopeo"] };
        assert_eq!(error.to_string(), "these packages are missing: runc, skopeo");
        assert_eq!(error.hint(), "sudo apt-get install --no-install-recommends runc skopeo");
    }

    #[test]
    fn a_package_is_missing_if_a_program_or_every_place_of_its_file_is() {
        assert!(programs("x", &["sh"]).present());
        assert!(!programs("x", &["sh", "no-such-program"]).present());
        assert!(Package { name: "x", programs: &[], files: &["/no/such/file", "/"] }.present());
        assert!(!Package { name: "x", programs: &[], files: &["/no/such/file"] }.present());
    }

    #[test]
    fn only_the_sources_of_the_release_itself_are_used() {
        let index = "http://mirror/debian/|bookworm|main|Debian|bookworm\n\
                     http://mirror/debian/|bookworm-updates|main|Debian|bookworm-updates\n\
                     http://mirror/debian/|bookworm|main|Debian|bookworm\n\
                     http://mirror/debian/|trixie|main|Debian|trixie\n\
                     http://vendor/apt/|bookworm|main|Vendor|bookworm\n";
        let lines = "deb http://mirror/debian/ bookworm main\ndeb http://mirror/debian/ bookworm-updates main\n";
        assert_eq!(source_lines(index, "bookworm").unwrap(), lines);
        assert_eq!(source_lines("", "bookworm"), None);
    }

    #[test]
    fn the_release_is_known_on_debian_and_ubuntu_only() {
        assert_eq!(codename("ID=debian\nVERSION_CODENAME=bookworm\n").unwrap(), "bookworm");
        assert_eq!(codename("NAME=\"Ubuntu\"\nVERSION_CODENAME=noble\nID=ubuntu\n").unwrap(), "noble");
        assert_eq!(codename("ID=fedora\nVERSION_CODENAME=\"\"\n"), None);
    }

    #[test]
    fn the_version_of_a_package_is_what_upstream_calls_it() {
        let log = "I: extracting /x/git_1_all.deb\nredis-server_5%3a7.0.15-1~deb12u10_amd64.deb\nadduser_3.134_all.deb\npartial\n";
        let versions = versions(log);
        assert_eq!(versions["redis-server"], "7.0.15");
        assert_eq!(versions["adduser"], "3.134");
        assert_eq!(versions.len(), 2);
    }
}
