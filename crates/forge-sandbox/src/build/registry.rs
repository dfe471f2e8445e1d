//! What every sandbox's registry starts with: the storage of a registry into which all images were pushed.
//!
//! The registry's own program writes it, so it is right whatever its form is; each image is read back and hashed.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use forge_core::digest::Digest;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::base::Contents;
use super::run::{self, Site};
use super::{BuildError, Parts, image, tree};
use crate::health::http;
use crate::recipe;

/// Changes when the same recipe gives something else.
pub(crate) const FORMAT: u32 = 2;

const STORAGE: &str = "storage";
const IMAGES: &str = "images.json";
/// How long the registry may take to listen, and to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// An image in the sandbox's registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// What its recipe is called.
    pub name: String,
    /// Its repository, without a host.
    pub repository: String,
    /// Its tag.
    pub tag: String,
    /// Its digest.
    pub digest: Digest,
}

/// The storage in the registry's entry.
pub(crate) fn storage(entry: &Path) -> std::path::PathBuf {
    entry.join(STORAGE)
}

/// The images in the registry's entry.
pub(crate) fn images(entry: &Path) -> Result<Vec<Image>, BuildError> {
    let path = entry.join(IMAGES);
    let invalid = |error| BuildError::file("read", &path, std::io::Error::new(std::io::ErrorKind::InvalidData, error));
    serde_json::from_str(&tree::read(&path)?).map_err(invalid)
}

/// Makes the entry: the storage, and the list of images in it.
pub(crate) fn build(recipes: &[recipe::Image], parts: &Parts<'_>, site: &mut Site<'_>) -> Result<(), BuildError> {
    let registry = Registry::start(&parts.path("registry", "services/bin/registry")?, &storage(site.folder))?;
    let base = Contents::read(&parts.path("registry", "base")?)?;
    let mut images = Vec::new();
    let mut layouts = Vec::new();
    for recipe in recipes {
        let layout = parts.path("registry", &super::image_name(&recipe.name))?;
        let digest = image::digest(&layout)?;
        for reference in image::references(recipe, Some(&base))? {
            site.progress.doing(&reference.to_string());
            let pushed = image::push(&registry.address, &layout, &reference)?;
            let served = registry.digest(&reference)?;
            for found in [pushed, served] {
                if found != digest {
                    return Err(BuildError::Pushed { image: reference.to_string(), expected: digest, found });
                }
            }
            images.push(Image {
                name: recipe.name.clone(),
                repository: reference.repository().to_owned(),
                tag: reference.tag().to_owned(),
                digest: digest.clone(),
            });
        }
        layouts.push(layout);
    }
    registry.stop()?;
    layouts.iter().try_for_each(|layout| share(layout, &storage(site.folder)))?;
    tree::write(&site.folder.join(IMAGES), &serde_json::to_vec_pretty(&images).unwrap_or_default())
}

/// Makes blobs of the storage the same files as those of a layout, so that a gigabyte of images is on the disk once. What
/// is not where it is looked for stays as it is.
fn share(layout: &Path, storage: &Path) -> Result<(), BuildError> {
    let blobs = layout.join("blobs/sha256");
    let failed = |error| BuildError::file("read", &blobs, error);
    for blob in std::fs::read_dir(&blobs).map_err(failed)? {
        let blob = blob.map_err(failed)?;
        let name = blob.file_name().to_string_lossy().into_owned();
        let folder =
            storage.join("docker/registry/v2/blobs/sha256").join(name.get(..2).unwrap_or_default()).join(&name);
        let (data, link) = (folder.join("data"), folder.join("shared"));
        let size = |path: &Path| std::fs::metadata(path).map(|metadata| metadata.len()).ok();
        // Both have the name of their hash; the registry and our own code saw to that.
        if size(&data).is_some_and(|found| size(&blob.path()) == Some(found))
            && std::fs::hard_link(blob.path(), &link).is_ok()
        {
            std::fs::rename(&link, &data).map_err(|error| BuildError::file("link", &data, error))?;
        }
    }
    Ok(())
}

/// A registry that runs on the loopback device.
struct Registry {
    process: Child,
    address: String,
}

impl Registry {
    fn start(program: &Path, storage: &Path) -> Result<Self, BuildError> {
        let failed = |reason: String| BuildError::Registry { reason };
        let mut command = run::command(program);
        command.args(["--listen", "127.0.0.1:0", "--root"]).arg(storage).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().map_err(|error| failed(error.to_string()))?;
        let stderr = process.stderr.take();
        // It is stopped by its drop from here on, whatever happens.
        let mut registry = Self { process, address: String::new() };
        let (sender, lines) = mpsc::channel();
        // Reads to the end, or the registry would one day wait for somebody to read.
        thread::spawn(move || {
            for line in stderr.map(BufReader::new).into_iter().flat_map(|lines| lines.lines().map_while(Result::ok)) {
                let _ = sender.send(line);
            }
        });
        let deadline = Instant::now() + PATIENCE;
        let mut said = Vec::new();
        while let Ok(line) = lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            if let Some((_, address)) = line.split_once("listening on ") {
                registry.address = address.trim().to_owned();
                return Ok(registry);
            }
            said.push(line);
        }
        Err(failed(format!("it did not say where it listens, but `{}`", forge_core::name::clip(&said.join("; ")))))
    }

    /// The digest of the manifest that is served under a tag.
    fn digest(&self, reference: &image::Reference) -> Result<Digest, BuildError> {
        let path = format!("/v2/{}/manifests/{}", reference.repository(), reference.tag());
        let failed = |reason: String| BuildError::Registry { reason: format!("`{reference}` {reason}") };
        let address = self.address.parse().map_err(|_| failed(format!("is at no address: `{}`", self.address)))?;
        match http(address, &path).map_err(failed)? {
            (200, manifest) => Ok(Digest::of(manifest.as_bytes())),
            (status, body) => Err(failed(format!("answers {status}: {}", forge_core::name::clip(&body)))),
        }
    }

    /// Lets it end by itself, so that all is on disk.
    fn stop(mut self) -> Result<(), BuildError> {
        let failed = |reason: String| BuildError::Registry { reason };
        self.signal(Signal::SIGTERM);
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.process.try_wait().map_err(|error| failed(error.to_string()))? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(failed(format!("it ended with {status}"))),
                None if Instant::now() > deadline => return Err(failed("it does not end".to_owned())),
                None => thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    fn signal(&self, signal: Signal) {
        if let Ok(pid) = i32::try_from(self.process.id()) {
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn a_blob_that_layout_and_storage_both_hold_is_on_the_disk_once() {
        let folder = tempfile::tempdir().unwrap();
        let (layout, storage) = (folder.path().join("layout"), folder.path().join("storage"));
        let name = Digest::of(b"blob").short(64).to_owned();
        let blob = layout.join("blobs/sha256").join(&name);
        let data = storage.join("docker/registry/v2/blobs/sha256").join(&name[..2]).join(&name).join("data");
        tree::write(&blob, b"blob").unwrap();
        tree::write(&layout.join("blobs/sha256/0123"), b"nowhere else").unwrap();
        tree::write(&data, b"blob").unwrap();
        share(&layout, &storage).unwrap();
        let file = |path: &Path| std::fs::metadata(path).unwrap().ino();
        assert_eq!(file(&blob), file(&data));
        assert_eq!(std::fs::read_dir(data.parent().unwrap()).unwrap().count(), 1);
    }
}
