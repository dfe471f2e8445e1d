//! The receipt that the plugin of Argo CD adds to what it renders: by it the gate knows which release, by which pointer, with
//! which output, is live (SPEC.md sections 6 and 8). No commit, time or version: nothing else may turn an Application
//! OutOfSync.

use serde_json::json;

use super::{Document, ReleaseError};
use crate::digest::Digest;

/// The name of the ConfigMap.
pub const RECEIPT: &str = "forge-receipt";

/// Refuses what only the plugin may say, in a file or a layer: by the receipt the gate knows what was rendered.
pub(super) fn is_no_receipt(what: &str, document: &Document) -> Result<(), ReleaseError> {
    if document.kind != "ConfigMap" || !document.group().is_empty() || document.name != RECEIPT {
        return Ok(());
    }
    let why = format!("it holds ConfigMap `{RECEIPT}`, expected no object of this name: the plugin writes it");
    Err(ReleaseError::malformed(what, why))
}

/// The receipt of a rendering: the pointer's bytes, the release, and all of the output before the receipt itself.
pub fn receipt(pointer: &Digest, release: &Digest, output: &Digest) -> Document {
    let value = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": RECEIPT, "labels": {crate::render::MANAGED_BY: "forge"}},
        "data": {"pointer": pointer, "release": release, "output": output},
    });
    Document {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: None,
        name: RECEIPT.to_owned(),
        value,
    }
}

/// How much a receipt adds to what is rendered, with the line before it: what it says are digests, and these are of one length.
pub(super) fn length() -> u64 {
    let any = Digest::of(b"");
    4 + receipt(&any, &any, &any).text().len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_says_what_was_rendered_from_what_and_nothing_else() {
        let digest = |text: &str| Digest::of(text.as_bytes());
        let (pointer, release, output) = (digest("pointer"), digest("release"), digest("output"));
        let text = receipt(&pointer, &release, &output).text();
        let wanted = format!(
            "apiVersion: v1\ndata:\n  output: \"{output}\"\n  pointer: \"{pointer}\"\n  release: \"{release}\"\nkind: ConfigMap\nmetadata:\n  \
             labels:\n    app.kubernetes.io/managed-by: forge\n  name: forge-receipt\n"
        );
        assert_eq!(text, wanted);
        assert_eq!(length(), format!("---\n{text}").len() as u64);
    }
}
