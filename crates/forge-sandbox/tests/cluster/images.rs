//! Images of the registry that every sandbox begins with, and images that a user brings.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use forge_testkit::sandbox::{Sandbox, forge_sandbox};

/// Every image by repository, with its digest.
fn images() -> &'static BTreeMap<String, String> {
    static IMAGES: OnceLock<BTreeMap<String, String>> = OnceLock::new();
    IMAGES.get_or_init(|| {
        let ended = forge_sandbox("test", &["image", "list"]);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        let split = |line: &str| {
            let (name, digest) = line.split_once('@')?;
            Some((name.rsplit_once(':')?.0.to_owned(), digest.to_owned()))
        };
        ended.stdout.lines().map(|line| split(line).unwrap()).collect()
    })
}

/// A reference by digest, as a pod would have it. Whatever host it names, the registry of the sandbox serves it.
pub(crate) fn image(repository: &str) -> String {
    let digest = images().get(repository).unwrap_or_else(|| panic!("no image {repository}: {:?}", images().keys()));
    format!("registry.example.com/{repository}@{digest}")
}

/// Our own workload: HTTP, no shell.
pub(crate) fn sample() -> String {
    image("forge/sample")
}

/// An image with a shell.
pub(crate) fn toolbox() -> String {
    image("argoproj/argocd")
}

#[test]
fn every_image_is_served_by_digest_and_runs_as_nobody_in_particular() {
    let sandbox = Sandbox::shared();
    for (repository, digest) in images() {
        let manifest = get(sandbox, &format!("/v2/{repository}/manifests/{digest}"));
        let config =
            manifest["config"]["digest"].as_str().unwrap_or_else(|| panic!("{repository}: {manifest}")).to_owned();
        let config = get(sandbox, &format!("/v2/{repository}/blobs/{config}"));
        let user = config["config"]["User"].as_str().unwrap_or_default();
        let number: u32 = user.split(':').next().unwrap().parse().unwrap_or(0);
        assert!(number > 0, "{repository} runs as `{user}`");
        assert_eq!(config["os"], "linux", "{repository}");
    }
}

fn get(sandbox: &Sandbox, path: &str) -> serde_json::Value {
    let (status, body) = forge_sandbox::health::http(sandbox.registry.parse().unwrap(), path).unwrap();
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap()
}
