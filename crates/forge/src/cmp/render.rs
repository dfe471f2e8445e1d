//! A release that was not rendered before: pulled by digest, verified, unpacked, checked, sorted. Of what it holds one file is in
//! memory at a time; the rest lies in the cache's folder, in files that go with this process. Whatever is wrong is told with the
//! file that names the release: Argo CD shows nothing else.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read as _, Seek as _, SeekFrom, Write as _};

use forge_core::code::Code;
use forge_core::digest::{Digest, Digester};
use forge_core::failure::Failure;
use forge_core::name::clip;
use forge_core::oci::Descriptor;
use forge_core::release::{
    Document, Key, Limits, Manifest, RECEIPT, ReleaseError, ReleaseMetadata, SignaturePolicy, documents, unpack,
};
use jiff::Timestamp;

use super::Settings;
use super::cache::{Cache, Header, Rendered, begin};
use super::project::{POLICY_FILE, Project, read_mounted};
use crate::registry::{Credentials, Options, Reference, Registry};
use crate::release::verified;
use crate::runtime::block_on_and_leave;

/// Larger than any list of keys, or of authorities.
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

/// What a rendering depends on; nothing else does, so it is found again by this.
pub(super) fn key(project: &Project, policy: &Policy) -> Digest {
    let (pointer, repository) = (&project.pointer, &project.repository);
    let of = format!(
        "forge-cmp 1\n{repository}\n{}\n{}\n{}\n{}\n",
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

async fn pull(settings: &Settings, project: &Project, policy: &Policy, cache: &Cache) -> Result<Pulled, Failure> {
    let registry = Registry::new(Options {
        plain_http: settings.plain_http.clone(),
        credentials: settings.registry_config.clone().map_or(Credentials::None, Credentials::Mounted),
        certificates: certificates(settings)?,
        ..Options::default()
    })?;
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

/// Authorities of one's own for registries; nothing where none are named.
fn certificates(settings: &Settings) -> Result<Option<String>, Failure> {
    let Some(path) = &settings.registry_ca else { return Ok(None) };
    let shown = path.display();
    let bad = |why: String| {
        Failure::new(Code::BadArgument, format!("`{shown}` cannot be used: {why}"))
            .hint("FORGE_REGISTRY_CA names a file with certificates, as PEM")
    };
    let bytes = read_mounted(path, LARGEST_MOUNTED).map_err(bad)?.ok_or_else(|| bad("it is missing".to_owned()))?;
    String::from_utf8(bytes).map(Some).map_err(|_| bad("it is not a text".to_owned()))
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
    let mut each = |path: &str, bytes: Vec<u8>| -> Result<(), ReleaseError> {
        for document in documents(path, &bytes, limits)? {
            allowed(path, &document)?;
            let text = format!("---\n{}", document.text());
            let written = writer.write_all(text.as_bytes());
            written.map_err(|error| ReleaseError::Write { what: "what is rendered".to_owned(), error })?;
            found.push((document.key(), end, text.len() as u64));
            end += text.len() as u64;
            if end > limits.output {
                return Err(ReleaseError::TooMuchOutput { most: limits.output });
            }
            if found.len() > limits.entries {
                let (what, found, limit) = ("the layer".to_owned(), found.len() as u64, limits.entries as u64);
                return Err(ReleaseError::TooLarge { what, found, limit, unit: "documents" });
            }
        }
        Ok(())
    };
    unpack(&mut BufReader::new(packed), layer, limits, &mut each)?;
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

/// Refuses what only the plugin may say: by the receipt the gate knows what was rendered.
fn allowed(path: &str, document: &Document) -> Result<(), ReleaseError> {
    if document.kind != "ConfigMap" || !document.group().is_empty() || document.name != RECEIPT {
        return Ok(());
    }
    let why = format!("it holds ConfigMap `{RECEIPT}`, expected no object of this name: the plugin writes it");
    Err(ReleaseError::malformed(format!("`{}`", clip(path)), why))
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
