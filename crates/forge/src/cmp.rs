//! `catalyst-forge-cmp generate`: the plugin of Argo CD (SPEC.md section 8). Argo CD runs it in the folder of a project; it
//! writes what the release that the pointer names holds for this environment, sorted, then `env.yaml`, then one ConfigMap
//! `forge-receipt` by which the gate knows what was rendered.
//!
//! It starts no process and follows no reference. Nothing is written to stdout before everything was read, verified and
//! counted, so that Argo CD never takes a part for the whole. What was rendered once is kept by what it was made of; the
//! cache decides nothing (INV-3).

mod cache;
mod project;
mod render;

use std::ffi::OsString;
use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use forge_core::code::Code;
use forge_core::exit::Exit;
use forge_core::failure::Failure;
use forge_core::name::clip;
use forge_core::release::{Limits, documents, receipt};
use forge_core::render::REGISTRY_SECRET_PATH;
use jiff::Timestamp;

use crate::output::Output;
use crate::registry::{PLAIN_HTTP, hosts};
use cache::{Cache, Rendered};
use project::Project;

/// The name of the binary under which it is this plugin.
pub(crate) const NAME: &str = "catalyst-forge-cmp";
const USAGE: &str = "usage: catalyst-forge-cmp generate\n\nThe plugin of Argo CD: run in the folder of a project, it writes the resources of the release that release.yaml names.\nSettings: FORGE_CMP_CACHE (folder), FORGE_CMP_CACHE_BYTES, FORGE_CMP_TIMEOUT (seconds), FORGE_CMP_POLICY (file),\nFORGE_REGISTRY_CONFIG (file), FORGE_REGISTRY_CA (file), FORGE_PLAIN_HTTP_REGISTRIES (hosts with commas).\n";
/// Where a policy is mounted.
const POLICY: &str = "/etc/forge/cmp/policy.yaml";
/// What the cache may take.
const CACHE_BYTES: u64 = 1 << 30;
/// Argo CD's controller waits 60 s for a rendering, in which the repository is fetched and sent as well, and then ends the plugin, whose
/// message nobody would see.
const TIMEOUT: u64 = 45;
/// Longer than anybody waits.
const MOST_SECONDS: u64 = 3_600;

/// Where things are, by environment variables: Argo CD gives no arguments.
struct Settings {
    /// The folder of the project.
    folder: PathBuf,
    cache: PathBuf,
    cache_bytes: u64,
    /// The mounted policy, where there is one.
    policy: Option<PathBuf>,
    /// The Secret of registries, where one is mounted.
    registry_secret: Option<PathBuf>,
    /// Another one, or a file of credentials, in place of those of the Secret.
    registry_config: Option<PathBuf>,
    /// Authorities of one's own for registries, in place of those of the Secret.
    registry_ca: Option<PathBuf>,
    /// Hosts that are asked without TLS, in place of those of the Secret.
    plain_http: Vec<String>,
    /// How long is waited for registries in all.
    timeout: Duration,
    limits: Limits,
}

impl Settings {
    fn of_environment() -> Result<Self, Failure> {
        let given = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let folder = std::env::current_dir().map_err(|error| {
            Failure::new(Code::NotARepository, format!("the current folder cannot be read: {error}"))
        })?;
        let number = |name: &str, of: &str, usual: u64| match given(name) {
            None => Ok(usual),
            Some(value) => value.to_str().and_then(|value| value.parse().ok()).ok_or_else(|| {
                let message = format!("{name} is `{}`, expected a number of {of}", clip(&value.to_string_lossy()));
                Failure::new(Code::BadArgument, message).hint(format!("for example {usual}"))
            }),
        };
        let cache_bytes = number("FORGE_CMP_CACHE_BYTES", "bytes", CACHE_BYTES)?;
        let timeout = Duration::from_secs(number("FORGE_CMP_TIMEOUT", "seconds", TIMEOUT)?.min(MOST_SECONDS));
        let plain_http = given(PLAIN_HTTP).and_then(|value| value.into_string().ok()).unwrap_or_default();
        Ok(Self {
            folder,
            cache: given("FORGE_CMP_CACHE").map_or_else(|| std::env::temp_dir().join("forge-cmp"), PathBuf::from),
            cache_bytes,
            policy: mounted_policy(given("FORGE_CMP_POLICY"), Path::new(POLICY))?,
            registry_secret: Some(PathBuf::from(REGISTRY_SECRET_PATH)).filter(|secret| is_there(secret)),
            registry_config: given("FORGE_REGISTRY_CONFIG").map(PathBuf::from),
            registry_ca: given("FORGE_REGISTRY_CA").map(PathBuf::from),
            plain_http: hosts(&plain_http),
            timeout,
            limits: Limits::default(),
        })
    }
}

/// Whether there is something, be it unusable: a policy that cannot be reached is not the same as none.
fn is_there(path: &Path) -> bool {
    !matches!(path.symlink_metadata(), Err(error) if error.kind() == io::ErrorKind::NotFound)
}

/// The mounted policy; nothing where none is mounted. One that is named must be there. The usual one need not, but then nothing may
/// lie in its place: who mounts something there, and be it by another name, asks for signatures.
fn mounted_policy(named: Option<OsString>, usual: &Path) -> Result<Option<PathBuf>, Failure> {
    if let Some(named) = named {
        return Ok(Some(PathBuf::from(named)));
    }
    if is_there(usual) {
        return Ok(Some(usual.to_owned()));
    }
    let folder = usual.parent().unwrap_or(usual);
    let refused = |why: String| {
        Failure::new(Code::BadSignaturePolicy, format!("`{}` is missing: {why}", usual.display()))
            .hint("the policy is key `policy.yaml` of ConfigMap forge-signatures; delete the ConfigMap if no signature is to be asked for")
    };
    let unknown = |error: io::Error| refused(format!("what lies in its place cannot be listed: {error}"));
    let entries = match folder.read_dir() {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unknown(error)),
    };
    for entry in entries {
        let name = entry.map_err(unknown)?.file_name();
        // By names with two points before them Kubernetes keeps what it mounts, also where there is no ConfigMap; no key has such a name.
        if !name.as_encoded_bytes().starts_with(b"..") {
            return Err(refused(format!("`{}` is mounted in its place", clip(&name.to_string_lossy()))));
        }
    }
    Ok(None)
}

/// Does what Argo CD asks for and says how it ended.
pub(crate) fn main(arguments: &[OsString]) -> Exit {
    let (mut out, mut err) = (io::stdout().lock(), io::stderr().lock());
    let asked: Vec<&str> = arguments.iter().skip(1).map(|argument| argument.to_str().unwrap_or_default()).collect();
    match asked.as_slice() {
        ["generate"] => {}
        ["--help" | "-h"] => {
            let _ = out.write_all(USAGE.as_bytes());
            return Exit::Done;
        }
        ["--version" | "-V"] => {
            let _ = writeln!(out, "{NAME} {}", env!("CARGO_PKG_VERSION"));
            return Exit::Done;
        }
        _ => {
            let _ = err.write_all(USAGE.as_bytes());
            return Exit::Invalid;
        }
    }
    match Settings::of_environment().and_then(|settings| generate(&settings, &mut out)) {
        Ok(()) => Exit::Done,
        Err(failure) => Output::new(&mut out, &mut err, true).failure(&failure),
    }
}

/// Writes the resources of a project, its configuration and the receipt; nothing before all of it is known to be good.
fn generate(settings: &Settings, out: &mut dyn Write) -> Result<(), Failure> {
    let project = Project::read(settings)?;
    let cache = Cache::open(&settings.cache, settings.cache_bytes)?;
    let policy = render::Policy::read(settings, &project)?;
    let key = render::key(env!("CARGO_PKG_VERSION"), &settings.limits, &project, &policy);
    let mut rendered = match cache.find(&key, Timestamp::now()) {
        Some(rendered) => rendered,
        None => render::rendered(settings, &project, &policy, &cache, &key)?,
    };
    let config = configuration(&project, &settings.limits)?;
    let output = rendered.output(config.as_bytes());
    let receipt = receipt(&project.pointer_hash, &project.pointer.digest.value, &output);
    let receipt = format!("---\n{}", receipt.text());
    let length = rendered.length + config.len() as u64 + receipt.len() as u64;
    if length > settings.limits.output {
        let message = format!(
            "`{}` renders to {length} bytes; at most {} are given to Argo CD",
            project.id, settings.limits.output
        );
        return Err(
            Failure::new(Code::ReleaseTooLarge, message).hint("split the project, or leave out what is not needed")
        );
    }
    write_all(&mut rendered, &config, &receipt, out).map_err(|error| Failure::write("standard output", &error))
}

fn write_all(rendered: &mut Rendered, config: &str, receipt: &str, out: &mut dyn Write) -> io::Result<()> {
    let mut room = vec![0; 64 << 10];
    let mut left = rendered.rewind()?;
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(room.len());
        let read = rendered.file.read(room.get_mut(..most).unwrap_or_default())?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        out.write_all(room.get(..read).unwrap_or_default())?;
        left -= read as u64;
    }
    out.write_all(config.as_bytes())?;
    out.write_all(receipt.as_bytes())?;
    out.flush()
}

/// `env.yaml` as it is appended; nothing where there is none.
fn configuration(project: &Project, limits: &Limits) -> Result<String, Failure> {
    let Some(bytes) = &project.config else { return Ok(String::new()) };
    let documents = documents(&project.config_path(), bytes, limits)?;
    Ok(documents.iter().map(|document| format!("---\n{}", document.text())).collect())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// Mounts a ConfigMap of these keys as Kubernetes does; gives where the policy would be.
    fn mounted(folder: &Path, keys: &[&str]) -> PathBuf {
        let data = folder.join("..2026_01_01_00_00_00.1");
        fs::create_dir_all(&data).unwrap();
        symlink("..2026_01_01_00_00_00.1", folder.join("..data")).unwrap();
        for key in keys {
            fs::write(data.join(key), "x").unwrap();
            symlink(format!("..data/{key}"), folder.join(key)).unwrap();
        }
        folder.join("policy.yaml")
    }

    #[test]
    fn a_policy_that_is_mounted_under_another_key_is_not_taken_for_none() {
        let folder = tempfile::tempdir().unwrap();
        let of = |name: &str, keys: &[&str]| mounted(&folder.path().join(name), keys);
        for keys in [&["signatures.yaml"][..], &["a", "policy.yml"][..]] {
            let failure = mounted_policy(None, &of(&keys.concat(), keys)).unwrap_err();
            assert_eq!(failure.code, Code::BadSignaturePolicy);
            let words = keys.iter().find(|key| failure.message.contains(&format!("`{key}` is mounted in its place")));
            assert!(words.is_some(), "{}", failure.message);
        }
        // Something that cannot be used is something.
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(mounted_policy(None, &file.join("policy.yaml")).unwrap().is_some());
        // Another file may be named.
        let other = of("named", &["signatures.yaml"]).with_file_name("signatures.yaml");
        assert_eq!(mounted_policy(Some(other.clone().into()), &of("unused", &["a"])).unwrap(), Some(other));
        // No ConfigMap, whose volume is there all the same; no volume; the policy, beside something else.
        assert_eq!(mounted_policy(None, &of("none", &[])).unwrap(), None);
        assert_eq!(mounted_policy(None, &folder.path().join("nowhere/policy.yaml")).unwrap(), None);
        let there = of("there", &["notes", "policy.yaml"]);
        assert_eq!(mounted_policy(None, &there).unwrap(), Some(there));
    }
}
