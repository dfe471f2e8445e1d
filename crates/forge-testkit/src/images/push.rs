//! Images and the documents that speak of them into a registry, by `skopeo`.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{ImagesError, SUMMARY, referrers_folder};

const PROGRAM: &str = "skopeo";

/// Where to: a registry and what goes in front of names, and whether it speaks TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Registry<'r> {
    address: &'r str,
    tls: bool,
}

impl<'r> Registry<'r> {
    /// `http://` in front says that it speaks plain HTTP.
    fn of(text: &'r str) -> Self {
        let text = text.trim_end_matches('/');
        match text.strip_prefix("http://") {
            Some(address) => Self { address, tls: false },
            None => Self { address: text.strip_prefix("https://").unwrap_or(text), tls: true },
        }
    }
}

/// One copy: from a layout, or what it calls by this name, to a repository and tag.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Copying {
    layout: String,
    name: Option<String>,
    to: String,
}

/// Pushes everything in a folder that `write` made, and gives the references by digest.
///
/// Registries that know of subjects find the documents by themselves; for the others they are under the tag that the
/// distribution specification wants. Images and documents arrive byte for byte. Only the list under that tag may not:
/// `skopeo` of Debian 12 leaves out what kind of artifact it lists, and refuses to copy it if it may not.
///
/// # Errors
/// When there is nothing to push, or the registry does not take it.
pub fn push(out: &Path, to: &str) -> Result<Vec<String>, ImagesError> {
    let file = out.join(SUMMARY);
    let text = fs::read_to_string(&file).map_err(|error| ImagesError::read(&file, error))?;
    let summary: Value = serde_json::from_str(&text).map_err(ImagesError::Recipe)?;
    let registry = Registry::of(to);
    let (copies, references) = wanted(&summary, registry.address);
    for copying in copies {
        let from = out.join(&copying.layout);
        let name = copying.name.as_ref().map(|name| format!(":{name}")).unwrap_or_default();
        let mut command = Command::new(PROGRAM);
        // A policy of signatures is for images from elsewhere; without its file every copy would fail.
        command.args(["--insecure-policy", "copy", "--quiet", "--all"]);
        if copying.name.is_none() {
            command.arg("--preserve-digests");
        }
        command.arg(format!("--dest-tls-verify={}", registry.tls));
        command.arg(format!("oci:{}{name}", from.display())).arg(format!("docker://{}", copying.to));
        let status =
            command.stdin(Stdio::null()).status().map_err(|error| ImagesError::Run { program: PROGRAM, error })?;
        if !status.success() {
            return Err(ImagesError::Refused { program: PROGRAM });
        }
    }
    Ok(references)
}

/// What is to be copied, and how it is called afterwards.
fn wanted(summary: &Value, address: &str) -> (Vec<Copying>, Vec<String>) {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let version = text(summary.get("version"));
    let (mut copies, mut references) = (Vec::new(), Vec::new());
    for (name, image) in summary.get("images").and_then(Value::as_object).into_iter().flatten() {
        let repository = format!("{address}/{name}");
        copies.push(Copying { layout: name.clone(), name: None, to: format!("{repository}:{version}") });
        let platforms = image.get("platforms").and_then(Value::as_object);
        for platform in platforms.into_iter().flat_map(serde_json::Map::values) {
            let tag = text(platform.get("digest")).replace(':', "-");
            let layout = referrers_folder(name);
            copies.push(Copying { layout, to: format!("{repository}:{tag}"), name: Some(tag) });
        }
        references.push(format!("{repository}@{}", text(image.get("digest"))));
    }
    (copies, references)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_scheme_says_whether_a_registry_speaks_tls() {
        let plain = Registry { address: "10.0.0.1:5000/forge", tls: false };
        assert_eq!(Registry::of("http://10.0.0.1:5000/forge/"), plain);
        for text in ["https://r.example.com/forge", "r.example.com/forge"] {
            assert_eq!(Registry::of(text), Registry { address: "r.example.com/forge", tls: true });
        }
    }

    #[test]
    fn an_image_goes_under_its_version_and_its_documents_under_the_digest_they_speak_of() {
        let summary = json!({"version": "0.1.0", "images": {"plugin": {
            "digest": "sha256:aa", "platforms": {"amd64": {"digest": "sha256:bb"}, "arm64": {"digest": "sha256:cc"}},
        }}});
        let (copies, references) = wanted(&summary, "r.example.com/forge");
        let seen: Vec<(&str, Option<&str>, &str)> = copies
            .iter()
            .map(|copying| (copying.layout.as_str(), copying.name.as_deref(), copying.to.as_str()))
            .collect();
        assert_eq!(
            seen,
            [
                ("plugin", None, "r.example.com/forge/plugin:0.1.0"),
                ("plugin-sbom", Some("sha256-bb"), "r.example.com/forge/plugin:sha256-bb"),
                ("plugin-sbom", Some("sha256-cc"), "r.example.com/forge/plugin:sha256-cc"),
            ]
        );
        assert_eq!(references, ["r.example.com/forge/plugin@sha256:aa"]);
    }
}
