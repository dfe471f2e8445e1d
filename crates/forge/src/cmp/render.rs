//! A release that was not rendered before: pulled by digest, verified, unpacked, checked, sorted. Of what it holds one file is in
//! memory at a time; the rest lies in the cache's folder, in files that go with this process. Whatever is wrong is told with the
//! file that names the release: Argo CD shows nothing else.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;

use forge_core::code::Code;
use forge_core::digest::{Digest, Digester};
use forge_core::failure::Failure;
use forge_core::oci::Descriptor;
use forge_core::release::{
    Document, Key, Limits, Manifest, ReleaseError, ReleaseMetadata, SignaturePolicy, read_layer,
};
use jiff::Timestamp;

use super::Settings;
use super::cache::{Cache, Header, Rendered, begin};
use super::project::{POLICY_FILE, Project, read_mounted};
use crate::registry::{Options, Reference, Registry};
use crate::release::verified;
use crate::runtime::block_on_and_leave;

/// Larger than any list of keys.
const LARGEST_MOUNTED: u64 = 1 << 20;

/// What is asked of signatures.
pub(super) struct Policy {
    /// The mounted one, as the repository tightened it; nothing where nobody asks for anything.
    rules: Option<SignaturePolicy>,
    /// Of the files that it comes from.
    hash: Digest,
}

impl Policy {
    /// Reads the mounted file and the repository's, which may only tighten it.
    ///
    /// # Errors
    /// When one of them cannot be used. Nothing is rendered by a policy that nobody understands.
    pub(super) fn read(settings: &Settings, project: &Project) -> Result<Self, Failure> {
        let mut hasher = Digester::default();
        let mut rules = None;
        if let Some(path) = &settings.policy {
            let shown = path.display().to_string();
            let missing = || {
                Failure::new(Code::BadSignaturePolicy, format!("`{shown}` is missing"))
                    .hint("mount it, or unset FORGE_CMP_POLICY")
            };
            let bytes = read_mounted(path, LARGEST_MOUNTED)
                .map_err(|why| Failure::new(Code::BadSignaturePolicy, format!("failed to read `{shown}`: {why}")))?
                .ok_or_else(missing)?;
            hasher.update(&bytes);
            rules = Some(SignaturePolicy::read(&shown, &bytes)?);
        }
        hasher.update(b"\0");
        if let Some(bytes) = &project.policy {
            hasher.update(bytes);
            let own = SignaturePolicy::read(POLICY_FILE, bytes)?;
            rules = Some(match rules {
                Some(mounted) => mounted.tightened(&own)?,
                None => own,
            });
        }
        Ok(Self { rules, hash: hasher.finish() })
    }
}

/// What a rendering depends on; nothing else does, so it is found again by this. Another version of Forge may write documents in another
/// way, or refuse them, and a cache may outlive the version that filled it.
pub(super) fn key(version: &str, limits: &Limits, project: &Project, policy: &Policy) -> Digest {
    let (pointer, repository) = (&project.pointer, &project.repository);
    let of = format!(
        "forge-cmp {version}\n{limits:?}\n{repository}\n{}\n{}\n{}\n{}\n",
        pointer.digest.value, pointer.release.value, project.environment, policy.hash
    );
    Digest::of(of.as_bytes())
}

/// Renders and keeps it.
///
/// # Errors
/// When the release cannot be had, is not what the pointer says, or is not what a release may be.
pub(super) fn rendered(
    settings: &Settings,
    project: &Project,
    policy: &Policy,
    cache: &Cache,
    key: &Digest,
) -> Result<Rendered, Failure> {
    let fresh = || -> Result<(Sorted, Option<Timestamp>), Failure> {
        let pulled = block_on_and_leave(async {
            let pulling = pull(settings, project, policy, cache);
            tokio::time::timeout(settings.timeout, pulling).await.unwrap_or_else(|_| {
                let message = format!("it could not be pulled within {} s", settings.timeout.as_secs());
                Err(Failure::new(Code::RegistryTimeout, message)
                    .hint("look at the registry, and at what lies between; Argo CD tries again when it is refreshed"))
            })
        })??;
        Ok((sort(pulled.packed, &pulled.layer, &settings.limits, cache, project)?, pulled.until))
    };
    let (sorted, until) = fresh().map_err(|failure| told(failure, project))?;
    let cannot =
        |error: io::Error| Failure::new(Code::CannotCache, format!("failed to write what is rendered: {error}"));
    let mut file = cache.unfinished()?;
    begin(&mut file).map_err(cannot)?;
    let (output, length) = sorted.write(&mut file).map_err(cannot)?;
    let header = Header { output, length, until };
    cache.keep(key, &header, file, Timestamp::now())
}

/// What is wrong with a release, with the file that names it.
fn told(failure: Failure, project: &Project) -> Failure {
    match failure.code {
        Code::CannotCache => failure,
        // Nothing is written here but into the cache.
        Code::CannotWrite => Failure { code: Code::CannotCache, ..failure },
        _ => {
            let (file, digest) = (project.pointer_path(), &project.pointer.digest.value);
            let message = format!("`{file}` names `{}@{digest}`: {}", project.repository, failure.message);
            Failure { message, ..failure }
        }
    }
}

/// The layer of an environment as the registry keeps it.
struct Pulled {
    packed: File,
    layer: Descriptor,
    /// After this a signature that it rests on does not count any more.
    until: Option<Timestamp>,
}

/// How registries are spoken with: as variables say, each for itself, and otherwise as the mounted Secret does.
fn registries(settings: &Settings) -> Result<Options, Failure> {
    let said = |place: &Option<PathBuf>| place.as_deref().map(Options::mounted).transpose();
    let mounted = said(&settings.registry_secret)?.unwrap_or_default();
    let over = match said(&settings.registry_config)? {
        Some(named) => mounted.under(named),
        None => mounted,
    };
    over.named(None, settings.registry_ca.as_deref(), settings.plain_http.clone())
}

async fn pull(settings: &Settings, project: &Project, policy: &Policy, cache: &Cache) -> Result<Pulled, Failure> {
    let registry = Registry::new(registries(settings)?)?;
    let (repository, pointer) = (&project.repository, &project.pointer);
    let reference = Reference::Digest(pointer.digest.value.clone());
    let (descriptor, bytes) = registry.manifest(repository, &reference, settings.limits.manifest).await?;
    let manifest = Manifest::read(&bytes, &pointer.digest.value, &settings.limits)?;
    let until = match &policy.rules {
        Some(rules) => verified(&registry, repository, &descriptor, rules, Timestamp::now()).await?,
        None => None,
    };
    let mut metadata: Vec<u8> = Vec::new();
    registry.blob(repository, &manifest.metadata, settings.limits.manifest as u64, &mut metadata).await?;
    let metadata = ReleaseMetadata::read(&metadata, &manifest.metadata, &settings.limits)?;
    manifest.agrees(&metadata)?;
    if metadata.project != project.id || metadata.source.commit != pointer.release.value {
        let message = format!(
            "it is a release of `{}` at commit `{}`, expected `{}` at commit `{}`",
            metadata.project, metadata.source.commit, project.id, pointer.release.value
        );
        return Err(Failure::new(Code::PointerMismatch, message)
            .hint("write both fields of release.yaml from one release: `forge release inspect` shows them"));
    }
    let layer = manifest.layer(project.environment.as_str())?.clone();
    let mut packed = cache.scratch()?;
    registry.blob(repository, &layer, settings.limits.compressed, &mut packed).await?;
    Ok(Pulled { packed, layer, until })
}

/// Documents in a file, and where each is, in the order of the output.
struct Sorted {
    texts: File,
    places: Vec<(u64, u64)>,
}

/// Unpacks a layer, checks every document, and finds their order.
fn sort(
    mut packed: File,
    layer: &Descriptor,
    limits: &Limits,
    cache: &Cache,
    project: &Project,
) -> Result<Sorted, Failure> {
    let cannot =
        |error: io::Error| Failure::new(Code::CannotCache, format!("failed to write what is rendered: {error}"));
    packed.seek(SeekFrom::Start(0)).map_err(cannot)?;
    let mut writer = BufWriter::new(cache.scratch()?);
    let mut found: Vec<(Key, u64, u64)> = Vec::new();
    let mut end = 0_u64;
    let mut each = |document: Document, text: String| -> Result<(), ReleaseError> {
        let written = writer.write_all(text.as_bytes());
        written.map_err(|error| ReleaseError::Write { what: "what is rendered".to_owned(), error })?;
        found.push((document.key(), end, text.len() as u64));
        end += text.len() as u64;
        Ok(())
    };
    read_layer(&mut BufReader::new(packed), layer, limits, &mut each)?;
    if found.is_empty() {
        let message = format!("it has nothing for environment `{}`, expected at least one object", project.environment);
        return Err(Failure::new(Code::ReleaseEmpty, message)
            .hint("with `prune` an empty release would delete everything; to remove a project use `forge platform teardown --scope`"));
    }
    found.sort();
    if let Some(twice) = found.windows(2).find_map(|pair| match pair {
        [(first, ..), (second, ..)] if first == second => Some(first),
        _ => None,
    }) {
        let what = format!("the layer for `{}`", project.environment);
        return Err(ReleaseError::Twice { what, document: twice.to_string() }.into());
    }
    let texts = writer.into_inner().map_err(|error| cannot(error.into_error()))?;
    Ok(Sorted { texts, places: found.into_iter().map(|(_, start, length)| (start, length)).collect() })
}

impl Sorted {
    /// Writes the documents in their order; gives the digest of all and how long they are.
    fn write(mut self, to: &mut tempfile::NamedTempFile) -> io::Result<(Digest, u64)> {
        let mut to = BufWriter::new(to);
        let mut hasher = Digester::default();
        let mut text = Vec::new();
        let mut total = 0;
        for (start, length) in self.places {
            self.texts.seek(SeekFrom::Start(start))?;
            text.clear();
            (&mut self.texts).take(length).read_to_end(&mut text)?;
            hasher.update(&text);
            to.write_all(&text)?;
            total += text.len() as u64;
        }
        to.flush()?;
        Ok((hasher.finish(), total))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::time::Duration;

    use super::*;
    use crate::registry::Credentials;

    /// Those of a plugin that runs in this folder, with nothing mounted.
    fn settings(folder: PathBuf, cache: PathBuf) -> Settings {
        Settings {
            folder,
            cache,
            cache_bytes: 1,
            policy: None,
            registry_secret: None,
            registry_config: None,
            registry_ca: None,
            plain_http: Vec::new(),
            timeout: Duration::ZERO,
            limits: Limits::default(),
        }
    }

    #[test]
    fn credentials_of_another_file_leave_authorities_and_plain_http_of_the_mounted_secret_as_they_are() {
        let root = tempfile::tempdir().unwrap();
        let (secret, file, other) = (root.path().join("secret"), root.path().join("file"), root.path().join("other"));
        let write = |folder: &Path, ca: &str, hosts: &str| {
            fs::create_dir_all(folder).unwrap();
            fs::write(folder.join("ca.crt"), ca).unwrap();
            fs::write(folder.join("plain-http"), hosts).unwrap();
        };
        write(&secret, "of the secret", "registry:5000");
        fs::write(&file, "{}").unwrap();
        let of = |config: Option<&PathBuf>| {
            let own = settings(root.path().to_owned(), root.path().to_owned());
            let (registry_secret, registry_config) = (Some(secret.clone()), config.cloned());
            registries(&Settings { registry_secret, registry_config, ..own }).unwrap()
        };
        for (config, place) in [(None, &secret), (Some(&file), &file)] {
            let found = of(config);
            assert_eq!(found.credentials, Credentials::Mounted(place.clone()));
            assert_eq!(found.certificates.as_deref(), Some("of the secret"));
            assert!(found.is_plain("registry:5000"));
        }
        // Another Secret goes over it where it says something.
        write(&other, "of the other", "other:5000");
        let found = of(Some(&other));
        assert_eq!(found.credentials, Credentials::Mounted(other.clone()));
        assert_eq!(found.certificates.as_deref(), Some("of the other"));
        assert!(found.is_plain("other:5000") && !found.is_plain("registry:5000"));
        // Nothing is mounted, and nothing is named.
        let nothing = registries(&settings(root.path().to_owned(), root.path().to_owned())).unwrap();
        assert_eq!((nothing.credentials, nothing.certificates), (Credentials::None, None));
    }

    #[test]
    fn another_version_of_forge_or_other_limits_find_nothing_of_the_one_before() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("dev/apps/shop/api");
        fs::create_dir_all(&folder).unwrap();
        let header = "apiVersion: forge.projectcatalyst.io/v1alpha1\n";
        let installation = "kind: Forge\nspec:\n  registry: registry.example.com/releases\n  repository: {url: \
                            https://git.example.com/p.git}\n  environments: [{name: dev, cluster: dev, sync: manual}]\n";
        fs::write(root.path().join("forge.yaml"), format!("{header}{installation}")).unwrap();
        let pointer = format!(
            "{header}kind: ReleasePointer\nmetadata: {{name: api}}\nspec: {{release: \"{}\", digest: \"{}\"}}\n",
            "a".repeat(40),
            Digest::of(b"release")
        );
        fs::write(folder.join("release.yaml"), pointer).unwrap();
        let settings = settings(folder, root.path().join("cache"));
        let project = Project::read(&settings).unwrap();
        let policy = Policy::read(&settings, &project).unwrap();
        let of = |version: &str, limits: &Limits| key(version, limits, &project, &policy);
        let limits = Limits::default();
        assert_eq!(of("1.0.0", &limits), of("1.0.0", &Limits::default()));
        assert_ne!(of("1.0.0", &limits), of("1.0.1", &limits));
        assert_ne!(of("1.0.0", &limits), of("1.0.0", &Limits { output: limits.output - 1, ..limits }));
    }
}
