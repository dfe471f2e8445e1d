//! Container images as OCI image layouts, and how they get into a registry.
//!
//! A layout's bytes depend on nothing but the recipe and what it holds, so equal builds have equal digests. Layers are not
//! compressed: they go to a registry on the same machine.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use forge_core::digest::Digest;
use serde_json::{Value, json};

use super::base::Contents;
use super::layer::{self, Blob, Body, Entry, Layer};
use super::{BuildError, Parts, go, run, tree};
use crate::recipe::{self, Folder, Image, Layers, RecipeError};

/// Changes when the same recipe gives something else.
pub(crate) const FORMAT: u32 = 1;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What an image is made from.
pub(crate) fn needs(image: &Image) -> Vec<String> {
    let base = (image.base != Layers::None || image.tags.iter().any(|tag| tag.contains('{'))).then_some("base");
    let files = image.files.values().map(|from| recipe::split(from).0);
    base.into_iter().chain(files).map(str::to_owned).collect()
}

/// A repository and a tag, without a host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    repository: String,
    tag: String,
}

/// Why a text is not a repository and a tag.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a repository and a tag: expected something like `team/app:v1`, in lower case and without a host")]
pub struct ReferenceError(String);

impl Reference {
    /// The repository.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The tag.
    pub fn tag(&self) -> &str {
        &self.tag
    }
}

impl FromStr for Reference {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        let part = |part: &str| {
            edge(part.chars().next())
                && edge(part.chars().next_back())
                && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '_' | '-'))
        };
        let letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
        text.split_once(':')
            .filter(|(repository, _)| repository.len() <= 255 && repository.split('/').all(part))
            .filter(|(_, tag)| tag.len() <= 128 && tag.starts_with(letter))
            .filter(|(_, tag)| tag.chars().all(|c| letter(c) || matches!(c, '.' | '-')))
            .map(|(repository, tag)| Self { repository: repository.to_owned(), tag: tag.to_owned() })
            .ok_or_else(|| ReferenceError(forge_core::name::clip(text)))
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.repository, self.tag)
    }
}

/// The tags of an image, with the versions of packages filled in.
pub(crate) fn references(image: &Image, base: Option<&Contents>) -> Result<Vec<Reference>, BuildError> {
    let unknown = |name: &str| RecipeError::Unknown { recipe: image.name.clone(), name: name.to_owned() };
    let mut references = Vec::new();
    for tag in &image.tags {
        let mut text = tag.clone();
        if let Some((before, rest)) = tag.split_once('{') {
            let (package, after) = rest.split_once('}').unwrap_or((rest, ""));
            let version = base.and_then(|base| base.packages.get(package)).ok_or_else(|| unknown(package))?;
            text = format!("{before}{version}{after}");
        }
        references.push(text.parse().map_err(|_| unknown(&text))?);
    }
    Ok(references)
}

/// Makes the entry of an image: an image layout.
pub(crate) fn build(image: &Image, parts: &Parts<'_>, folder: &Path) -> Result<(), BuildError> {
    let base = if needs(image).iter().any(|need| need == "base") {
        let entry = parts.path(&image.name, "base")?;
        Some((Contents::read(&entry)?, entry))
    } else {
        None
    };
    let references = references(image, base.as_ref().map(|(contents, _)| contents))?;
    let below = base.as_ref().and_then(|(contents, entry)| contents.layer(entry, image.base));
    let top = top_layer(image, parts)?;
    let version = references.first().map(|reference| reference.tag().trim_start_matches('v')).unwrap_or_default();
    write(folder, image, version, below, &top)
}

/// All that the recipe adds to the base.
fn top_layer(image: &Image, parts: &Parts<'_>) -> Result<Layer, BuildError> {
    let mut layer = Layer::default();
    let user = &image.user;
    let text = |text: String| Entry::new(Body::Bytes(text.clone().into_bytes()), layer::mode_of(text.as_bytes()));
    layer.add("/tmp", Entry::new(Body::Folder, 0o1777));
    let people = format!(
        "root:x:0:0:root:/root:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n{}:x:{}:{}::{}:/sbin/nologin\n",
        user.name, user.id, user.group, user.home
    );
    layer.add("/etc/passwd", text(people));
    layer.add("/etc/group", text(format!("root:x:0:\nnogroup:x:65534:\n{}:x:{}:\n", user.name, user.group)));
    for (path, Folder { owner, mode }) in &image.folders {
        let mode = mode.as_deref().map_or(Ok(0o755), |mode| u32::from_str_radix(mode, 8));
        let mode = mode.map_err(|_| RecipeError::Unknown { recipe: image.name.clone(), name: path.clone() })?;
        layer.add(path, Entry { user: *owner, ..Entry::new(Body::Folder, mode) });
    }
    for (path, lines) in &image.texts {
        layer.add(path, text(go::text(lines)));
    }
    for (path, from) in &image.files {
        layer.add_tree(path, &parts.path(&image.name, from)?)?;
    }
    for (path, target) in &image.links {
        layer.add(path, Entry::new(Body::Link(target.clone()), 0o777));
    }
    for path in &image.binds_low_ports {
        if let Some(entry) = layer.entries.get_mut(path.trim_matches('/')) {
            entry.binds_low_ports = true;
        }
    }
    Ok(layer)
}

fn write(folder: &Path, image: &Image, version: &str, below: Option<Blob>, top: &Layer) -> Result<(), BuildError> {
    let blobs = folder.join("blobs/sha256");
    tree::make(&blobs)?;
    let place = |digest: &Digest| blobs.join(digest.short(64));
    let mut layers = Vec::new();
    if let Some(blob) = below {
        let path = place(&blob.digest);
        // The same bytes, so the same file, where the disk can do that.
        fs::hard_link(&blob.path, &path)
            .or_else(|_| fs::copy(&blob.path, &path).map(drop))
            .map_err(|error| BuildError::file("write", &path, error))?;
        layers.push(blob);
    }
    let blob = top.write(&folder.join("layer.tar"))?;
    let path = place(&blob.digest);
    fs::rename(&blob.path, &path).map_err(|error| BuildError::file("write", &path, error))?;
    layers.push(blob);

    let store = |value: &Value, kind: &str| {
        let bytes = value.to_string().into_bytes();
        let digest = Digest::of(&bytes);
        tree::write(&place(&digest), &bytes)?;
        Ok::<Value, BuildError>(json!({"mediaType": kind, "digest": digest, "size": bytes.len()}))
    };
    let config = store(&configuration(image, version, &layers), CONFIG)?;
    let layers: Vec<Value> =
        layers.iter().map(|blob| json!({"mediaType": LAYER, "digest": blob.digest, "size": blob.size})).collect();
    let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers});
    let manifest = store(&manifest, MANIFEST)?;
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [manifest],
    });
    tree::write(&folder.join("index.json"), index.to_string().as_bytes())?;
    tree::write(&folder.join("oci-layout"), br#"{"imageLayoutVersion":"1.0.0"}"#)
}

fn configuration(image: &Image, version: &str, layers: &[Blob]) -> Value {
    let mut environment = vec![PATH.to_owned()];
    environment.extend(image.environment.iter().map(|(name, value)| format!("{name}={value}")));
    let config = json!({
        "User": format!("{}:{}", image.user.id, image.user.group),
        "Env": environment,
        "Entrypoint": image.entrypoint,
        "Cmd": image.command,
        "WorkingDir": image.working_folder.as_deref().unwrap_or("/"),
        "Labels": {
            "org.opencontainers.image.title": image.name,
            "org.opencontainers.image.version": version,
        },
    });
    json!({
        "created": "1970-01-01T00:00:00Z",
        "architecture": architecture(),
        "os": "linux",
        "config": config,
        // A layer that is not compressed is its own difference.
        "rootfs": {"type": "layers", "diff_ids": layers.iter().map(|blob| &blob.digest).collect::<Vec<_>>()},
    })
}

/// What OCI calls this machine's processor.
pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "aarch64" => "arm64",
        "x86_64" => "amd64",
        other => other,
    }
}

/// The digest of the only image in a layout.
pub(crate) fn digest(layout: &Path) -> Result<Digest, BuildError> {
    let path = layout.join("index.json");
    let invalid = |reason: &str| BuildError::file("read", &path, io::Error::new(io::ErrorKind::InvalidData, reason));
    let index: Value = serde_json::from_str(&tree::read(&path)?).map_err(|error| invalid(&error.to_string()))?;
    let digest = index.pointer("/manifests/0/digest").and_then(Value::as_str).unwrap_or_default();
    digest.parse().map_err(|_| invalid("it names no image"))
}

/// Why an image could not be pushed.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// It is not there, or may not be read.
    #[error("failed to read the image `{path}`: {error}")]
    Read {
        /// Where.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// It has none of the forms that are known.
    #[error(
        "`{path}` is no image: expected an OCI image layout, or an archive as `docker save` or `skopeo copy` make it"
    )]
    Unknown {
        /// Where.
        path: PathBuf,
    },
    /// The program that does it is not installed.
    #[error("`skopeo` is not installed")]
    MissingSkopeo,
    /// It could not be copied.
    #[error("failed to push `{path}` to `{to}`: {reason}")]
    Copy {
        /// From where.
        path: PathBuf,
        /// To where.
        to: String,
        /// What the program said.
        reason: String,
    },
}

/// The forms of images that can be pushed, as `skopeo` names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Layout,
    OciArchive,
    DockerArchive,
}

impl Form {
    fn transport(self) -> &'static str {
        match self {
            Self::Layout => "oci",
            Self::OciArchive => "oci-archive",
            Self::DockerArchive => "docker-archive",
        }
    }
}

/// Copies the image of a layout or an archive to a registry that speaks plain HTTP, and says under which digest it is
/// there. What is in it stays as it is, byte by byte.
pub fn push(registry: &str, source: &Path, reference: &Reference) -> Result<Digest, PushError> {
    let read = |error| PushError::Read { path: source.to_owned(), error };
    let mut path = fs::canonicalize(source).map_err(read)?;
    let scratch;
    if let Some(program) = compression(&path).map_err(read)? {
        // `skopeo` would do it, but the one of Debian 12 fails for archives of `docker save`.
        scratch = Scratch::new().map_err(read)?;
        path = scratch.decompress(&path, program).map_err(read)?;
    } else if path.to_string_lossy().contains(':') {
        // Its path goes into a name that splits at colons.
        scratch = Scratch::new().map_err(read)?;
        path = scratch.link(&path).map_err(read)?;
    }
    let form = form(&path).map_err(read)?.ok_or(PushError::Unknown { path: source.to_owned() })?;
    let skopeo = run::find("skopeo", &[]).ok_or(PushError::MissingSkopeo)?;

    let to = format!("{registry}/{reference}");
    let failed = |reason: String| PushError::Copy { path: source.to_owned(), to: to.clone(), reason };
    let mut command = run::command(&skopeo);
    // A policy of signatures is for images from elsewhere; without its file every copy would fail.
    command.args(["--insecure-policy", "copy", "--quiet", "--preserve-digests", "--dest-tls-verify=false"]);
    command.args(["--dest-no-creds", "--digestfile", "/dev/stdout"]);
    command.arg(format!("{}:{}", form.transport(), path.display())).arg(format!("docker://{to}"));
    let digest = answer(&mut command).map_err(&failed)?;
    digest.trim().parse().map_err(|_| failed(format!("it answered `{}`", forge_core::name::clip(&digest))))
}

/// A folder for temporary files that nobody else may look into, gone when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt as _;
        let mut number = 0;
        loop {
            let folder = std::env::temp_dir().join(format!("forge-image-{}-{number}", std::process::id()));
            match fs::DirBuilder::new().mode(0o700).create(&folder) {
                Ok(()) => return Ok(Self(folder)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Another path to the same.
    fn link(&self, path: &Path) -> io::Result<PathBuf> {
        let link = self.0.join("image");
        std::os::unix::fs::symlink(path, &link)?;
        Ok(link)
    }

    /// What is in a compressed file.
    fn decompress(&self, path: &Path, program: &str) -> io::Result<PathBuf> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, format!("`{program}` is not installed"));
        let image = self.0.join("image.tar");
        let mut command = run::command(&run::find(program, &[]).ok_or_else(missing)?);
        let output = command.arg("-dc").arg(path).stdout(File::create(&image)?).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() { Ok(image) } else { Err(io::Error::other(said.trim().to_owned())) }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The program that decompresses a file, if it is compressed.
fn compression(path: &Path) -> io::Result<Option<&'static str>> {
    if path.is_dir() {
        return Ok(None);
    }
    let mut start = Vec::new();
    File::open(path)?.take(6).read_to_end(&mut start)?;
    let kinds: [(&[u8], _); 4] =
        [(b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"\xfd7zXZ\0", "xz"), (b"BZh", "bzip2")];
    Ok(kinds.iter().find(|(magic, _)| start.starts_with(magic)).map(|(_, program)| *program))
}

fn answer(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it did not say why");
    // A log line with a message in quotes; the message is what matters.
    let message = last.split_once("msg=\"").and_then(|(_, rest)| rest.strip_suffix('"')).unwrap_or(last);
    Err(forge_core::name::clean(&message.replace("\\\"", "`")).into_owned())
}

/// What an image is, by what is in it.
fn form(path: &Path) -> io::Result<Option<Form>> {
    if path.is_dir() {
        return Ok(path.join("oci-layout").is_file().then_some(Form::Layout));
    }
    let names = names(path)?;
    let has = |name: &str| names.iter().any(|entry| entry.trim_start_matches("./") == name);
    // What `docker save` makes today is both; as its own form it may hold tags that the other one lacks.
    Ok(if has("manifest.json") {
        Some(Form::DockerArchive)
    } else if has("oci-layout") {
        Some(Form::OciArchive)
    } else {
        None
    })
}

/// The names in an archive; none if it is not one.
fn names(path: &Path) -> io::Result<Vec<String>> {
    let mut archive = tar::Archive::new(File::open(path)?);
    let entries = archive.entries_with_seek()?.map_while(Result::ok);
    Ok(entries.map(|entry| String::from_utf8_lossy(&entry.path_bytes()).into_owned()).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::recipe::User;

    fn recipe() -> Image {
        Image {
            name: "thing".into(),
            version: Some("v1".into()),
            tags: vec!["team/thing:v1".into()],
            base: Layers::None,
            user: User { name: "thing".into(), id: 65532, group: 65532, home: "/".into() },
            files: BTreeMap::new(),
            texts: [("/bin/run".into(), vec!["#!/bin/sh".into(), "exit 0".into()])].into(),
            folders: [("/home/thing".into(), Folder { owner: 65532, mode: Some("0700".into()) })].into(),
            links: [("/run".into(), "bin/run".into())].into(),
            binds_low_ports: Vec::new(),
            environment: [("A".into(), "b".into())].into(),
            entrypoint: vec!["/bin/run".into()],
            command: Vec::new(),
            working_folder: None,
        }
    }

    fn layout(folder: &Path) {
        let below = Layer::default().write(&folder.join("below.tar")).unwrap();
        tree::make(&folder.join("layout")).unwrap();
        let top = top_layer(&recipe(), &Parts::default()).unwrap();
        write(&folder.join("layout"), &recipe(), "1", Some(below), &top).unwrap();
    }

    fn blob(layout: &Path, descriptor: &Value) -> Vec<u8> {
        let digest: Digest = descriptor["digest"].as_str().unwrap().parse().unwrap();
        let bytes = fs::read(layout.join("blobs/sha256").join(digest.short(64))).unwrap();
        assert_eq!(Digest::of(&bytes), digest);
        assert_eq!(bytes.len() as u64, descriptor["size"].as_u64().unwrap());
        bytes
    }

    #[test]
    fn digests_and_sizes_in_a_layout_are_those_of_its_blobs() {
        let folder = tempfile::tempdir().unwrap();
        layout(folder.path());
        let layout = folder.path().join("layout");
        let index: Value = serde_json::from_slice(&fs::read(layout.join("index.json")).unwrap()).unwrap();
        let manifest: Value = serde_json::from_slice(&blob(&layout, &index["manifests"][0])).unwrap();
        let config: Value = serde_json::from_slice(&blob(&layout, &manifest["config"])).unwrap();
        let layers = manifest["layers"].as_array().unwrap();
        assert_eq!(layers.len(), 2);
        for (layer, difference) in layers.iter().zip(config["rootfs"]["diff_ids"].as_array().unwrap()) {
            blob(&layout, layer);
            assert_eq!(&layer["digest"], difference);
        }
        assert_eq!(config["config"]["User"], "65532:65532");
        assert_eq!(digest(&layout).unwrap().as_str(), index["manifests"][0]["digest"]);
    }

    #[test]
    fn the_same_recipe_gives_the_same_digest() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        layout(one.path());
        layout(two.path());
        assert_eq!(digest(&one.path().join("layout")).unwrap(), digest(&two.path().join("layout")).unwrap());
    }

    #[test]
    fn skopeo_reads_a_layout_where_it_is_installed() {
        let Some(skopeo) = run::find("skopeo", &[]) else { return };
        let folder = tempfile::tempdir().unwrap();
        layout(folder.path());
        let mut command = run::command(&skopeo);
        let layout = folder.path().join("layout");
        let seen = answer(command.args(["--insecure-policy", "inspect"]).arg(format!("oci:{}", layout.display())));
        let seen: Value = serde_json::from_str(&seen.unwrap()).unwrap();
        assert_eq!(seen["Digest"], digest(&layout).unwrap().as_str());
        assert_eq!(seen["Labels"]["org.opencontainers.image.title"], "thing");
    }

    #[test]
    fn only_a_repository_with_a_tag_is_a_reference() {
        for good in ["pause:v1", "docker/library/redis:8.2.2-alpine", "a.b/c_d/e-f:1"] {
            assert_eq!(good.parse::<Reference>().unwrap().to_string(), good);
        }
        for bad in
            ["", "pause", "pause:", ":v1", "Team/app:v1", "host:5000/app:v1", "a//b:v1", "-a:v1", "a:v 1", "a:-1"]
        {
            assert!(bad.parse::<Reference>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_form_of_an_image_is_told_by_what_is_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let archive = |names: &[&str]| {
            let path = folder.path().join("image.tar");
            let mut archive = tar::Builder::new(File::create(&path).unwrap());
            for name in names {
                let mut header = tar::Header::new_ustar();
                header.set_size(0);
                archive.append_data(&mut header, name, io::empty()).unwrap();
            }
            archive.finish().unwrap();
            form(&path).unwrap()
        };
        assert_eq!(archive(&["blobs/x", "oci-layout", "index.json"]), Some(Form::OciArchive));
        assert_eq!(archive(&["blobs/x", "oci-layout", "index.json", "manifest.json"]), Some(Form::DockerArchive));
        assert_eq!(archive(&["etc/passwd"]), None);
        let file = folder.path().join("text");
        fs::write(&file, "text").unwrap();
        assert_eq!(form(&file).unwrap(), None);
        layout(folder.path());
        assert_eq!(form(&folder.path().join("layout")).unwrap(), Some(Form::Layout));
        assert_eq!(form(folder.path()).unwrap(), None);
    }

    #[test]
    fn a_compressed_archive_is_looked_into() {
        let folder = tempfile::tempdir().unwrap();
        let plain = folder.path().join("image");
        fs::write(&plain, "text").unwrap();
        assert_eq!(compression(&plain).unwrap(), None);
        let mut gzip = run::command(Path::new("/usr/bin/env"));
        assert!(gzip.arg("gzip").arg(&plain).status().unwrap().success());
        let packed = folder.path().join("image.gz");
        assert_eq!(compression(&packed).unwrap(), Some("gzip"));
        let scratch = Scratch::new().unwrap();
        let unpacked = scratch.decompress(&packed, "gzip").unwrap();
        assert_eq!(fs::read_to_string(&unpacked).unwrap(), "text");
        drop(scratch);
        assert!(!unpacked.parent().unwrap().exists());
    }

    #[test]
    fn what_is_no_image_is_refused_before_anything_is_pushed() {
        let folder = tempfile::tempdir().unwrap();
        let reference = "team/app:v1".parse().unwrap();
        let refused = push("127.0.0.1:1", folder.path(), &reference);
        assert!(matches!(refused, Err(PushError::Unknown { .. })));
        assert!(matches!(push("127.0.0.1:1", Path::new("/no/such"), &reference), Err(PushError::Read { .. })));
    }
}
