//! What can keep a sandbox from coming up or going down, and what users see of it: a code, a sentence, the next step.

use std::path::PathBuf;

use forge_core::code::Code;
use forge_core::failure::Failure;

use crate::build::BuildError;
use crate::build::debian::PackageError;
use crate::build::image::PushError;
use crate::cache::CacheError;
use crate::folder::FolderError;
use crate::host::HostError;
use crate::init::InitError;
use crate::network::NetworkError;
use crate::pki::PkiError;
use crate::program::ProgramError;

/// Why a sandbox did not come up.
#[derive(Debug, thiserror::Error)]
pub enum UpError {
    /// Its folder.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// Its network.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// Its certificates.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// Its first process.
    #[error(transparent)]
    Init(#[from] InitError),
    /// A program that was asked for help.
    #[error(transparent)]
    Asked(#[from] ProgramError),
    /// What was there before could not be ended.
    #[error(transparent)]
    Before(#[from] DownError),
    /// Something was not built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// This very program.
    #[error("failed to start forge-sandbox again: {0}")]
    Program(std::io::Error),
    /// The namespaces.
    #[error("failed to enter the sandbox: {0}")]
    Enter(String),
    /// The cgroups.
    #[error("failed to prepare the cgroup of the sandbox: {0}")]
    Cgroup(std::io::Error),
    /// The registry's storage.
    #[error("failed to fill the registry in `{folder}`: {source}")]
    Seed {
        /// Where.
        folder: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A component ended.
    #[error("{name} {how}; it said last:\n{said}")]
    Died {
        /// Which.
        name: String,
        /// How.
        how: String,
        /// The end of its log.
        said: String,
    },
    /// A component does not serve.
    #[error("{name} is not well after {seconds} s: {why}")]
    Unwell {
        /// Which.
        name: String,
        /// How long it was waited for.
        seconds: u64,
        /// Why.
        why: String,
    },
}

/// Why a sandbox did not go.
#[derive(Debug, thiserror::Error)]
pub enum DownError {
    /// Its folder.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// Its link.
    #[error(transparent)]
    Network(#[from] ProgramError),
    /// Its cgroups.
    #[error("failed to remove the cgroup of the sandbox: {0}")]
    Cgroup(std::io::Error),
    /// Its processes.
    #[error("failed to kill process {pid}: {source}")]
    Kill {
        /// The first process.
        pid: i32,
        /// Why.
        source: nix::Error,
    },
    /// They do not go.
    #[error("process {pid} still lives {seconds} s after it was killed")]
    Lives {
        /// The first process.
        pid: i32,
        /// How long it was waited for.
        seconds: u64,
    },
}

/// A failure as users see it.
pub trait IntoFailure {
    /// With code and next step.
    fn into_failure(self) -> Failure;
}

fn full(source: &std::io::Error) -> bool {
    source.kind() == std::io::ErrorKind::StorageFull
}

fn step(message: impl std::fmt::Display) -> Failure {
    Failure::new(Code::SandboxStep, message)
        .hint("run the command again, it goes on where it stopped; `forge sandbox logs init` may say more")
}

impl IntoFailure for HostError {
    fn into_failure(self) -> Failure {
        match &self {
            Self::Machine { .. } => Failure::new(Code::SandboxMachine, self).hint("use such a machine, or a cluster that you have: `forge` needs only a kubeconfig"),
            Self::NotRoot => Failure::new(Code::SandboxNotRoot, self).hint("run it with sudo -E, or as root"),
            Self::Kernel(_) => Failure::new(Code::SandboxMachine, self).hint("load the modules that are missing (modprobe veth bridge nf_tables nf_conntrack overlay), or use a kernel that has them"),
            Self::Disk { .. } => Failure::new(Code::SandboxDiskFull, self).hint("free some space, or set FORGE_CACHE to a folder on a larger disk"),
        }
    }
}

impl IntoFailure for FolderError {
    fn into_failure(self) -> Failure {
        match &self {
            Self::Name(_) => Failure::new(Code::BadArgument, self).hint("for example `--name ci-2`"),
            Self::Busy { .. } => {
                Failure::new(Code::SandboxBusy, self).hint("wait for it, or take another name with --name")
            }
            Self::Foreign { .. } => {
                Failure::new(Code::SandboxForeign, self).hint("take another name with --name, or move that folder away")
            }
            Self::Disk { source, .. } if full(source) => Failure::new(Code::SandboxDiskFull, self)
                .hint("free some space and run the command again, it goes on where it stopped"),
            Self::Disk { .. } => step(self),
        }
    }
}

impl IntoFailure for NetworkError {
    fn into_failure(self) -> Failure {
        match &self {
            Self::Full => {
                Failure::new(Code::SandboxNoAddresses, self).hint("take a sandbox down: `forge sandbox list`")
            }
            Self::Taken { .. } => Failure::new(Code::SandboxNoAddresses, self)
                .hint("free that range, or start afresh: `forge sandbox down` and `up`"),
            Self::Program(_) | Self::Forwarding { .. } => step(self),
        }
    }
}

impl IntoFailure for DownError {
    fn into_failure(self) -> Failure {
        match self {
            Self::Folder(error) => error.into_failure(),
            other => step(other),
        }
    }
}

impl IntoFailure for UpError {
    fn into_failure(self) -> Failure {
        match self {
            Self::Folder(error) => error.into_failure(),
            Self::Network(error) => error.into_failure(),
            Self::Before(error) => error.into_failure(),
            Self::Build(error) => error.into_failure(),
            Self::Seed { ref source, .. } | Self::Pki(PkiError::Write { ref source, .. }) if full(source) => {
                Failure::new(Code::SandboxDiskFull, self)
                    .hint("free some space and run the command again, it goes on where it stopped")
            }
            Self::Died { ref name, .. } => {
                let hint = format!("`forge sandbox logs {name}` shows all of it; `forge sandbox up` starts it again");
                Failure::new(Code::SandboxUnwell, self).hint(hint)
            }
            Self::Unwell { ref name, .. } => {
                let hint =
                    format!("`forge sandbox logs {name}`, then `forge sandbox up` again: it repairs what is missing");
                Failure::new(Code::SandboxUnwell, self).hint(hint)
            }
            other => step(other),
        }
    }
}

impl IntoFailure for BuildError {
    fn into_failure(self) -> Failure {
        let code = match &self {
            Self::Platform { .. } => Code::SandboxMachine,
            Self::UnknownComponent { .. } => Code::UnknownName,
            Self::MissingProgram { .. } | Self::OldGo { .. } | Self::MissingTarget { .. } => Code::SandboxPackages,
            Self::Push(PushError::MissingSkopeo) => Code::SandboxPackages,
            Self::Checksum { .. } => Code::SandboxChecksum,
            Self::Space { .. } | Self::DiskFull { .. } => Code::SandboxDiskFull,
            _ => Code::SandboxBuild,
        };
        let hint = self
            .hint()
            .unwrap_or_else(|| "fix it and run `forge sandbox build` again: what is finished stays".to_owned());
        Failure::new(code, self).hint(hint)
    }
}

impl IntoFailure for CacheError {
    fn into_failure(self) -> Failure {
        BuildError::from(self).into_failure()
    }
}

impl IntoFailure for PackageError {
    fn into_failure(self) -> Failure {
        let hint = self.hint();
        Failure::new(Code::SandboxPackages, self).hint(hint)
    }
}

impl IntoFailure for PushError {
    fn into_failure(self) -> Failure {
        match self {
            Self::Read { .. } | Self::Unknown { .. } => Failure::new(Code::BadArgument, self)
                .hint("give it a folder with an OCI layout, or an archive of an image"),
            other => BuildError::from(other).into_failure(),
        }
    }
}
