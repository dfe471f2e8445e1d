//! What the repository says about the folder that Argo CD runs the plugin in. Identity is taken from the path, never from a
//! name (SPEC.md section 2). No link is followed and nothing is read without a limit.

use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use forge_core::code::Code;
use forge_core::digest::Digest;
use forge_core::failure::Failure;
use forge_core::format::ReleasePointer;
use forge_core::name::{EnvironmentName, ProjectId, clip};
use forge_core::repository::{INSTALLATION_FILE, Role};
use forge_core::validate::{Content, Context, Facts, inspect};
use forge_core::yaml::Limits;
use nix::fcntl::OFlag;

use super::Settings;
use crate::registry::RepositoryName;

/// By this name a repository says more about signatures than the mounted policy does.
pub(super) const POLICY_FILE: &str = "signatures.yaml";

/// A project of an environment.
pub(super) struct Project {
    pub(super) id: ProjectId,
    pub(super) environment: EnvironmentName,
    /// Where it is in the repository.
    path: String,
    pub(super) pointer: ReleasePointer,
    /// Of the bytes of the pointer.
    pub(super) pointer_hash: Digest,
    /// `env.yaml`, where there is one.
    pub(super) config: Option<Vec<u8>>,
    /// Where its releases are kept.
    pub(super) repository: RepositoryName,
    /// What the repository asks of signatures, where it does.
    pub(super) policy: Option<Vec<u8>>,
}

impl Project {
    /// Reads what belongs to the folder.
    ///
    /// # Errors
    /// When it is no folder of a project, or one of its files cannot be used.
    pub(super) fn read(settings: &Settings) -> Result<Self, Failure> {
        // Whatever it is: one that cannot be used does not make another one above it count.
        let holds = |folder: &&Path| folder.join(INSTALLATION_FILE).symlink_metadata().is_ok();
        let root = settings.folder.ancestors().find(holds).ok_or_else(|| {
            let message = format!("no {INSTALLATION_FILE} in `{}` or in a folder above", settings.folder.display());
            Failure::new(Code::NotARepository, message)
                .hint("an Application with this plugin has a folder `<environment>/apps/<repo>/<project>` as its path")
        })?;
        let installation = required(root, INSTALLATION_FILE)?;
        let context = Context::new(Some(&Content::Bytes(installation.clone())), std::iter::empty());
        let Some(forge) = &context.installation else {
            return Err(Failure::unusable(
                inspect(&context, INSTALLATION_FILE, &Content::Bytes(installation)).findings,
            ));
        };
        let path = settings.folder.strip_prefix(root).ok().and_then(Path::to_str).unwrap_or_default().to_owned();
        let pointer_path = format!("{path}/release.yaml");
        let Role::Pointer { environment, repo, project } = context.layout.role(&pointer_path) else {
            let message = format!("`{}` is not the folder of a project", clip(&path));
            return Err(Failure::new(Code::BadArgument, message).hint(
                "an Application with this plugin has a folder `<environment>/apps/<repo>/<project>` as its path",
            ));
        };
        let id: ProjectId =
            format!("{repo}/{project}").parse().map_err(|error| Failure::new(Code::WrongName, error))?;
        let environment = forge.environments.get(environment).map(|environment| environment.name.value.clone());
        let environment = environment
            .ok_or_else(|| Failure::new(Code::BadArgument, format!("`{}` is of no environment", clip(&path))))?;
        let bytes = required(root, &pointer_path)?;
        let pointer_hash = Digest::of(&bytes);
        let inspected = inspect(&context, &pointer_path, &Content::Bytes(bytes));
        // One that can be read may still be of another project.
        let refused = inspected.findings.iter().any(|finding| !finding.code.allowable());
        let pointer = match inspected.facts {
            Facts::Pointer(_, _, _, Some(pointer)) if !refused => pointer,
            _ => return Err(Failure::unusable(inspected.findings)),
        };
        let config_path = format!("{path}/env.yaml");
        let config = optional(root, &config_path)?;
        if let Some(config) = &config {
            let findings = inspect(&context, &config_path, &Content::Bytes(config.clone())).findings;
            if findings.iter().any(|finding| !finding.code.allowable()) {
                return Err(Failure::unusable(findings));
            }
        }
        let Some(registry) = &forge.registry else {
            return Err(Failure::new(Code::MissingField, format!("{INSTALLATION_FILE} names no registry"))
                .hint("set `spec.registry` to where releases are kept, for example registry.example.com/releases"));
        };
        let repository = format!("{}/{id}", registry.value).parse()?;
        let policy = optional(root, POLICY_FILE)?;
        Ok(Self { id, environment, path, pointer, pointer_hash, config, repository, policy })
    }

    /// Where its pointer is.
    pub(super) fn pointer_path(&self) -> String {
        format!("{}/release.yaml", self.path)
    }

    /// Where its `env.yaml` is.
    pub(super) fn config_path(&self) -> String {
        format!("{}/env.yaml", self.path)
    }
}

fn required(root: &Path, path: &str) -> Result<Vec<u8>, Failure> {
    optional(root, path)?.ok_or_else(|| {
        Failure::new(Code::Unreadable, format!("`{path}` is missing"))
            .hint("every folder of a project has a release.yaml; `forge project add` writes one")
    })
}

/// A regular file of the repository within the limits of every other read; nothing where there is none.
fn optional(root: &Path, path: &str) -> Result<Option<Vec<u8>>, Failure> {
    let bounded = Limits::FILE.bytes as u64;
    read_plain(&root.join(path), bounded)
        .map_err(|why| Failure::new(Code::Unreadable, format!("failed to read `{path}`: {why}")))
}

/// The bytes of a file that is mounted; nothing where there is none. What Kubernetes mounts is a link into a folder that it
/// replaces, so this one is followed.
pub(super) fn read_mounted(path: &Path, most: u64) -> Result<Option<Vec<u8>>, String> {
    match path.canonicalize() {
        Ok(real) => read_plain(&real, most),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// The bytes of a regular file, no link and not more than so many bytes; nothing where there is none.
pub(super) fn read_plain(path: &Path, most: u64) -> Result<Option<Vec<u8>>, String> {
    // Neither a link nor a pipe that nobody writes to holds it up.
    let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC).bits();
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(nix::errno::Errno::ELOOP as i32) => {
            return Err("it is a symbolic link, which is not followed".to_owned());
        }
        Err(error) => return Err(error.to_string()),
    };
    let metadata = file.metadata().map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > most {
        return Err(format!("it has more than {most} bytes"));
    }
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_regular_file_within_the_limit_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("file"), "12345").unwrap();
        std::os::unix::fs::symlink(path("file"), path("link")).unwrap();
        nix::unistd::mkfifo(&path("pipe"), nix::sys::stat::Mode::S_IRUSR).unwrap();
        assert_eq!(read_plain(&path("file"), 5), Ok(Some(b"12345".to_vec())));
        assert_eq!(read_plain(&path("none"), 5), Ok(None));
        assert!(read_plain(&path("file"), 4).unwrap_err().contains("more than 4 bytes"));
        assert!(read_plain(&path("link"), 5).unwrap_err().contains("symbolic link"));
        assert!(read_plain(&path("pipe"), 5).unwrap_err().contains("not a regular file"));
        assert!(read_plain(folder.path(), 5).unwrap_err().contains("not a regular file"));
        assert_eq!(read_mounted(&path("link"), 5), Ok(Some(b"12345".to_vec())));
        assert_eq!(read_mounted(&path("none"), 5), Ok(None));
    }
}
