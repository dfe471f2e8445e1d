//! The receipt that the plugin of Argo CD adds to what it renders: by it the gate knows which release, by which pointer, with
//! which output, is live (SPEC.md sections 6 and 8). No commit, time or version: nothing else may turn an Application
//! OutOfSync.

use serde_json::json;

use super::Document;
use crate::digest::Digest;

/// The name of the ConfigMap.
pub const RECEIPT: &str = "forge-receipt";

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
    }
}
