//! What a release must come to in a cluster: the output that the plugin's receipt must name, and which container must run which
//! image. A run computes it before anything is written, and the gate holds what is there against it (SPEC.md section 6).

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Document, ImageReference};
use crate::digest::{Digest, Digester};
use crate::gate::ContainerKey;

/// What a release must come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// Of everything that the plugin writes before its receipt.
    pub output: Digest,
    /// Which container must run which image.
    pub images: BTreeMap<ContainerKey, Digest>,
}

/// What these documents, in the order of output, come to with those of `env.yaml` behind them; `namespace` is where the
/// Application puts what names none.
pub fn expected(documents: &[Document], config: &[Document], namespace: &str) -> Expected {
    let mut output = Digester::default();
    for document in documents.iter().chain(config) {
        output.update(b"---\n");
        output.update(document.text().as_bytes());
    }
    let images = documents.iter().flat_map(|document| images(document, namespace)).collect();
    Expected { output: output.finish(), images }
}

/// The containers of a workload, and the digests of their images.
fn images(document: &Document, namespace: &str) -> Vec<(ContainerKey, Digest)> {
    let Some(spec) = pod_spec(document) else { return Vec::new() };
    let namespace = document.namespace.as_deref().unwrap_or(namespace);
    let workload = format!("{}/{namespace}/{}", document.kind, document.name);
    let all = |field: &str| spec.get(field).and_then(Value::as_array).into_iter().flatten();
    let found = all("containers").chain(all("initContainers").filter(|container| is_sidecar(container)));
    let named = |container: &Value| {
        let name = container.get("name").and_then(Value::as_str)?;
        let image: ImageReference = container.get("image").and_then(Value::as_str)?.parse().ok()?;
        Some((ContainerKey::new(&workload, name).ok()?, image.digest()?.clone()))
    };
    found.filter_map(named).collect()
}

/// Whether what begins before the containers of a pod runs on beside them.
pub fn is_sidecar(init_container: &Value) -> bool {
    init_container.get("restartPolicy").and_then(Value::as_str) == Some("Always")
}

/// What a kind says of the pods that it runs as long as it is there. What a CronJob started before a release came runs on with what
/// it was started with, so its pods say nothing about the release.
fn pod_spec(document: &Document) -> Option<&Value> {
    let place = match (document.group(), document.kind.as_str()) {
        ("apps", "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet")
        | ("", "ReplicationController")
        | ("batch", "Job")
        | ("argoproj.io", "Rollout") => "/spec/template/spec",
        ("", "Pod") => "/spec",
        _ => return None,
    };
    document.value.pointer(place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::release::{Limits, distinct, documents};

    const A: &str = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const B: &str = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

    fn read(text: &str) -> Vec<Document> {
        distinct(documents("x.yaml", text.as_bytes(), &Limits::default()).unwrap()).unwrap()
    }

    fn workload(api_version: &str, kind: &str, namespace: &str, place: &str) -> String {
        format!(
            "---\napiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: x{namespace}}}\nspec: {{{place}: [{{name: app, image: r.example.com/app@{A}}}, {{name: side, image: r.example.com/side:1@{B}}}, {{name: odd, image: 7}}]"
        )
    }

    #[test]
    fn containers_of_workloads_are_named_where_the_tree_of_argo_cd_has_their_pods() {
        let template = "template: {spec: {containers";
        let text = [
            format!("{}}}}}}}\n", workload("apps/v1", "Deployment", "", template)),
            format!("{}}}}}}}\n", workload("apps/v1", "StatefulSet", ", namespace: other", template)),
            format!("{}}}\n", workload("v1", "Pod", "", "containers")),
            // Neither of these says what runs now.
            format!(
                "{}}}}}}}}}}}\n",
                workload("batch/v1", "CronJob", "", "jobTemplate: {spec: {template: {spec: {containers")
            ),
            format!("{}}}}}}}\n", workload("example.com/v1", "Deployment", "", template)),
        ]
        .concat();
        let found = expected(&read(&text), &[], "shop-api");
        let shown: Vec<String> =
            found.images.iter().map(|(key, digest)| format!("{key} {}", digest.short(1))).collect();
        assert_eq!(
            shown,
            [
                "Deployment/shop-api/x/app a",
                "Deployment/shop-api/x/side b",
                "Pod/shop-api/x/app a",
                "Pod/shop-api/x/side b",
                "StatefulSet/other/x/app a",
                "StatefulSet/other/x/side b",
            ]
        );
    }

    #[test]
    fn sidecars_that_begin_before_the_containers_are_named_with_them() {
        let text = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: x}}\nspec:\n  initContainers:\n    - {{name: once, image: r.example.com/once@{A}}}\n    - {{name: proxy, image: r.example.com/proxy@{B}, restartPolicy: Always}}\n  containers: [{{name: app, image: r.example.com/app@{A}}}]\n"
        );
        let found = expected(&read(&text), &[], "shop-api");
        let shown: Vec<String> =
            found.images.iter().map(|(key, digest)| format!("{key} {}", digest.short(1))).collect();
        assert_eq!(shown, ["Pod/shop-api/x/app a", "Pod/shop-api/x/proxy b"]);
    }

    #[test]
    fn the_output_is_of_all_that_is_written_before_the_receipt() {
        let text = |name: &str| format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n");
        let (release, config) = (read(&[text("b"), text("a")].concat()), read(&text("env")));
        let written: String =
            release.iter().chain(&config).map(|document| format!("---\n{}", document.text())).collect();
        assert!(written.starts_with("---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n---\n"), "{written}");
        assert_eq!(expected(&release, &config, "x").output, Digest::of(written.as_bytes()));
        assert_ne!(expected(&release, &[], "x").output, expected(&release, &config, "x").output);
    }
}
