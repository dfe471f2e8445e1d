//! Documents into a release. What is made here reads back within the limits, or is not made.

use std::collections::{BTreeMap, BTreeSet};

use super::metadata::SCHEMA_VERSION;
use super::receipt::{self, is_no_receipt};
use super::{
    ArtifactReference, Builder, DEFAULT_LAYER, Document, ENVIRONMENT, LayerSummary, Limits, PROJECT, Packed,
    ReleaseError, ReleaseMetadata, Source, media_type, pack, read_layer,
};
use crate::digest::Digest;
use crate::name::{EnvironmentName, ProjectId, clip};
use crate::oci::{Annotations, Artifact, Descriptor, Layout};

/// What a release is made of.
#[derive(Debug, Clone)]
pub struct Inputs {
    /// Of which project.
    pub project: ProjectId,
    /// What it was built from.
    pub source: Source,
    /// What builds it.
    pub builder: Builder,
    /// The version that people give it.
    pub version: Option<String>,
    /// What was built along with it.
    pub artifacts: Vec<ArtifactReference>,
    /// The documents by environment; [`super::DEFAULT_LAYER`] where there is one set for all.
    pub layers: BTreeMap<String, Vec<Document>>,
}

/// A release as bytes.
#[derive(Debug)]
pub struct Assembled {
    /// Its manifest.
    pub manifest: Descriptor,
    /// Its metadata.
    pub metadata: ReleaseMetadata,
    /// All of its blobs; the manifest is offered under the commit.
    pub layout: Layout,
}

/// Makes a release. The same inputs give the same bytes, whatever the order of documents.
///
/// Where several environments have the same documents, all of them, there is one layer for all.
///
/// # Errors
/// When there is nothing to release, an image is not fixed by digest, an object stands twice, or whoever reads the
/// release would find it beyond a limit.
pub fn assemble(inputs: &Inputs, limits: &Limits) -> Result<Assembled, ReleaseError> {
    if inputs.layers.is_empty() {
        return Err(ReleaseError::Empty { what: "the release".to_owned() });
    }
    for (name, documents) in &inputs.layers {
        if name.parse::<EnvironmentName>().is_err() {
            return Err(ReleaseError::malformed(
                format!("layer `{}`", clip(name)),
                "expected the name of an environment",
            ));
        }
        if documents.is_empty() {
            return Err(ReleaseError::Empty { what: format!("layer `{name}`") });
        }
        for document in documents {
            is_no_receipt(&format!("layer `{name}`"), document)?;
        }
    }
    pinned(&inputs.layers)?;
    let mut layout = Layout::default();
    let mut layers: BTreeMap<&str, (Descriptor, Digest, LayerSummary)> = BTreeMap::new();
    for (name, documents) in &inputs.layers {
        layers.insert(name, layer(name, documents, limits, &mut layout)?);
    }
    let distinct: BTreeSet<_> = layers.values().map(|(layer, ..)| &layer.digest).collect();
    let one = distinct.len() == 1 && layers.len() > 1;
    if one && let Some((_, layer)) = layers.pop_first() {
        layers = [(DEFAULT_LAYER, layer)].into();
    }
    // One more is the metadata.
    if layers.len() >= limits.layers {
        let (found, limit) = (layers.len() as u64 + 1, limits.layers as u64);
        let what = "the manifest of the release".to_owned();
        return Err(ReleaseError::TooLarge { what, found, limit, unit: "layers" });
    }
    let artifacts: BTreeSet<ArtifactReference> = inputs.artifacts.iter().cloned().collect();
    let metadata = ReleaseMetadata {
        schema_version: SCHEMA_VERSION,
        project: inputs.project.clone(),
        source: inputs.source.clone(),
        builder: inputs.builder.clone(),
        version: inputs.version.clone(),
        artifacts: artifacts.into_iter().collect(),
        resources: layers.iter().map(|(name, (.., summary))| ((*name).to_owned(), summary.clone())).collect(),
    };
    let blob = layout.blob(media_type::METADATA, metadata.bytes());
    // Whoever reads the release reads this too: what it would not take is found here, by whoever can mend it.
    ReleaseMetadata::read(&metadata.bytes(), &blob, limits)?;
    // The metadata is not packed.
    let (mut unpacked, mut blobs) = (vec![blob.digest.clone()], vec![blob]);
    for (name, (layer, contents, _)) in layers {
        unpacked.push(contents);
        blobs.push(layer.annotated(ENVIRONMENT, name));
    }
    let manifest = layout.artifact(&Artifact {
        artifact_type: media_type::RELEASE,
        layers: &blobs,
        subject: None,
        annotations: &annotations(inputs),
        shown: Some(&unpacked),
    });
    if manifest.size > limits.manifest as u64 {
        let (what, found, limit) = ("the manifest of the release".to_owned(), manifest.size, limits.manifest as u64);
        return Err(ReleaseError::TooLarge { what, found, limit, unit: "bytes" });
    }
    layout.offer(manifest.clone(), Some(inputs.source.commit.as_str()));
    Ok(Assembled { manifest, metadata, layout })
}

/// What tools that know nothing of releases show of one.
fn annotations(inputs: &Inputs) -> Annotations {
    let mut annotations = Annotations::new();
    let mut add = |name: &str, value: &str| annotations.insert(name.to_owned(), value.to_owned());
    add(PROJECT, &inputs.project.to_string());
    add("org.opencontainers.image.revision", inputs.source.commit.as_str());
    if let Some(repository) = &inputs.source.repository {
        add("org.opencontainers.image.source", repository);
    }
    if let Some(version) = &inputs.version {
        add("org.opencontainers.image.version", version);
    }
    annotations
}

/// Names every image that is not fixed, once for each document.
fn pinned(layers: &BTreeMap<String, Vec<Document>>) -> Result<(), ReleaseError> {
    let mut loose = BTreeSet::new();
    for document in layers.values().flatten() {
        document.each_loose_image(&mut |image| {
            loose.insert(image);
        });
    }
    if loose.is_empty() { Ok(()) } else { Err(ReleaseError::not_pinned(loose.into_iter().collect())) }
}

fn layer(
    name: &str,
    documents: &[Document],
    limits: &Limits,
    layout: &mut Layout,
) -> Result<(Descriptor, Digest, LayerSummary), ReleaseError> {
    let what = format!("layer `{name}`");
    let too_large = |what: String, found: u64, limit: u64, unit: &'static str| {
        if found > limit { Err(ReleaseError::TooLarge { what, found, limit, unit }) } else { Ok(()) }
    };
    too_large(what.clone(), documents.len() as u64, limits.entries as u64, "documents")?;
    // What the plugin adds to every rendering; what an archive adds to every file, at most, and at its end.
    let (mut output, mut extracted) = (receipt::length(), 1024_u64);
    for document in documents {
        let length = document.text().len() as u64;
        too_large(format!("`{}` in {what}", document.key()), length, limits.file as u64, "bytes")?;
        // With the line that separates it from the one before.
        output = output.saturating_add(length + 4);
        extracted = extracted.saturating_add(512 + length.next_multiple_of(512));
    }
    if output > limits.output {
        return Err(ReleaseError::TooMuchOutput { what: format!("what {what} renders to"), most: limits.output });
    }
    too_large(what.clone(), extracted, limits.extracted, "unpacked bytes")?;
    let Packed { bytes: packed, unpacked } = pack(documents).map_err(|error| match error {
        ReleaseError::Twice { document, .. } => ReleaseError::Twice { what: what.clone(), document },
        other => other,
    })?;
    too_large(what.clone(), packed.len() as u64, limits.compressed, "bytes")?;
    // A document may come out of a text that is read by other limits, as that of all objects of a chart. So it is read as the plugin
    // reads it: what that would refuse is found here, by whoever can mend it.
    let descriptor = Descriptor::of(media_type::RESOURCES, &packed);
    read_layer(&mut packed.as_slice(), &descriptor, limits, &mut |_, _| Ok(())).map_err(|error| match error {
        ReleaseError::Beyond { what: file, why } => ReleaseError::Beyond { what: format!("{file} in {what}"), why },
        other => other,
    })?;
    let blob = layout.blob(media_type::RESOURCES, packed);
    let summary = LayerSummary::of(&blob.digest, documents);
    Ok((blob, unpacked, summary))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::oci::{Entry, REF_NAME, Tree, gunzip};
    use crate::release::{Manifest, documents, unpack};

    fn image() -> String {
        format!("registry.example.com/shop/api@{}", Digest::of(b"image"))
    }

    fn deployment(name: &str, image: &str) -> String {
        format!(
            "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}, namespace: shop}}\nspec: {{template: {{spec: {{containers: [{{name: a, image: '{image}'}}]}}}}}}\n"
        )
    }

    fn read(text: &str) -> Vec<Document> {
        documents("a.yaml", text.as_bytes(), &Limits::default()).unwrap()
    }

    fn inputs(layers: &[(&str, &str)]) -> Inputs {
        Inputs {
            project: "shop/api".parse().unwrap(),
            source: Source {
                repository: Some("https://git.example.com/shop.git".to_owned()),
                commit: "0123456789abcdef0123456789abcdef01234567".parse().unwrap(),
                path: None,
            },
            builder: Builder { name: "forge".to_owned(), version: "0.1.0".to_owned() },
            version: Some("1.2.3".to_owned()),
            artifacts: Vec::new(),
            layers: layers.iter().map(|(name, text)| ((*name).to_owned(), read(text))).collect(),
        }
    }

    fn made(layers: &[(&str, &str)]) -> Assembled {
        assemble(&inputs(layers), &Limits::default()).unwrap()
    }

    fn refused(layers: &[(&str, &str)], limits: &Limits) -> String {
        assemble(&inputs(layers), limits).unwrap_err().to_string()
    }

    fn blob<'t>(tree: &'t Tree, digest: &Digest) -> &'t [u8] {
        match tree.get(&format!("blobs/sha256/{}", digest.short(64))) {
            Some(Entry::File { content, .. }) => content,
            other => panic!("{digest}: {other:?}"),
        }
    }

    #[test]
    fn what_is_made_reads_back() {
        let (one, two) = (deployment("api", &image()), deployment("b", &image()));
        let both = format!("{one}{two}");
        let made = made(&[("dev", &one), ("staging", &both)]);
        let limits = Limits::default();
        let tree = made.layout.tree();
        let index = match tree.get("index.json") {
            Some(Entry::File { content, .. }) => serde_json::from_slice::<serde_json::Value>(content).unwrap(),
            other => panic!("{other:?}"),
        };
        let root = &index["manifests"][0];
        assert_eq!(root["annotations"][REF_NAME], "0123456789abcdef0123456789abcdef01234567");
        assert_eq!(root["artifactType"], media_type::RELEASE);
        let manifest = Manifest::read(blob(&tree, &made.manifest.digest), &made.manifest.digest, &limits).unwrap();
        assert_eq!(manifest.annotations[PROJECT], "shop/api");
        assert_eq!(manifest.annotations["org.opencontainers.image.version"], "1.2.3");
        let metadata = blob(&tree, &manifest.metadata.digest);
        let metadata = ReleaseMetadata::read(metadata, &manifest.metadata, &limits).unwrap();
        assert_eq!(metadata, made.metadata);
        manifest.agrees(&metadata).unwrap();
        let staging = manifest.layer("staging").unwrap();
        let mut found = Vec::new();
        let mut each = |path: &str, bytes: Vec<u8>| -> Result<(), ReleaseError> {
            found.extend(documents(path, &bytes, &limits)?);
            Ok(())
        };
        unpack(&mut blob(&tree, &staging.digest), staging, &limits, &mut each).unwrap();
        assert_eq!(found, read(&both));
        let summary = &metadata.resources["staging"];
        assert_eq!((summary.documents, summary.kinds["Deployment.apps"]), (2, 2));
        assert_eq!(summary.images, [image()]);
        // Who knows of images alone is shown what it is, and that every layer unpacks to what was packed.
        let raw: serde_json::Value = serde_json::from_slice(blob(&tree, &made.manifest.digest)).unwrap();
        assert_eq!(raw["config"]["mediaType"], crate::oci::media_type::CONFIG);
        let config = blob(&tree, &raw["config"]["digest"].as_str().unwrap().parse().unwrap());
        let config: serde_json::Value = serde_json::from_slice(config).unwrap();
        assert_eq!(config["config"]["Labels"], raw["annotations"]);
        let unpacked = |layer: &serde_json::Value| {
            let bytes = blob(&tree, &layer["digest"].as_str().unwrap().parse().unwrap());
            Digest::of(&gunzip(bytes, 1 << 20).unwrap_or_else(|| bytes.to_vec()))
        };
        let all: Vec<Digest> = raw["layers"].as_array().unwrap().iter().map(unpacked).collect();
        assert_eq!(config["rootfs"]["diff_ids"], serde_json::json!(all));
    }

    #[test]
    fn the_same_inputs_give_the_same_digest_and_others_another() {
        let of = |text: &str| made(&[("default", text)]).manifest.digest;
        let text = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {a: 'on'}}";
        assert_eq!(of(text), of(text));
        assert_eq!(of(text), of(&text.replace("'on'", "\"on\"")));
        assert_ne!(of(text), of(&text.replace("'on'", "'off'")));
    }

    #[test]
    fn environments_that_do_not_differ_share_one_layer_for_all() {
        let (a, b) = (deployment("a", &image()), deployment("b", &image()));
        let names = |layers: &[(&str, &str)]| made(layers).metadata.resources.into_keys().collect::<Vec<_>>();
        assert_eq!(names(&[("dev", &a), ("staging", &a)]), ["default"]);
        assert_eq!(names(&[("default", &a), ("dev", &a)]), ["default"]);
        assert_eq!(names(&[("dev", &a), ("staging", &a), ("production", &b)]), ["dev", "production", "staging"]);
        // One that was built for one environment is for no other.
        assert_eq!(names(&[("dev", &a)]), ["dev"]);
        assert_eq!(names(&[("default", &a)]), ["default"]);
    }

    #[test]
    fn every_image_that_is_not_fixed_is_named_at_once() {
        let text = deployment("a", "nginx:1.25") + &deployment("b", &image()) + &deployment("c", "not an image");
        let said = refused(&[("dev", &text), ("staging", &text)], &Limits::default());
        let at = "spec.template.spec.containers[0].image";
        assert_eq!(
            said,
            format!(
                "2 images are not fixed by digest\n  `Deployment.apps shop/a`: {at} is `nginx:1.25`\n  `Deployment.apps shop/c`: {at}: `not an image` is not a reference to an image: its repository has parts that are not lower-case letters, digits, `.`, `_` and `-` between them"
            )
        );
    }

    #[test]
    fn what_nobody_could_read_is_not_made() {
        let (a, limits) = (deployment("a", &image()), Limits::default());
        assert!(refused(&[], &limits).contains("the release holds no resources"));
        assert!(
            refused(&[("dev", &a), ("staging", "# nothing\n")], &limits).contains("layer `staging` holds no resources")
        );
        assert!(refused(&[("../dev", &a)], &limits).contains("expected the name of an environment"));
        assert!(
            refused(&[("dev", &format!("{a}{a}"))], &limits)
                .contains("layer `dev` holds `Deployment.apps shop/a` twice")
        );
        let receipt = format!("{a}---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: forge-receipt}}\n");
        assert!(refused(&[("dev", &receipt)], &limits).contains("layer `dev`: it holds ConfigMap `forge-receipt`"));
        let b = deployment("b", &image());
        for (limits, why) in [
            (Limits { file: 100, ..limits }, "`Deployment.apps shop/a` in layer `dev` has "),
            (Limits { entries: 1, ..limits }, "layer `dev` has 2 documents, at most 1"),
            (
                Limits { output: 100, ..limits },
                "what layer `dev` renders to has more than 100 bytes, which is the most",
            ),
            (Limits { extracted: 2000, ..limits }, "unpacked bytes, at most 2000"),
            (Limits { compressed: 100, ..limits }, "layer `dev` has "),
            (Limits { layers: 1, ..limits }, "the manifest of the release has 2 layers, at most 1"),
        ] {
            let said = refused(&[("dev", &format!("{a}{b}"))], &limits);
            assert!(said.contains(why), "{said}");
        }
        // To the byte where the plugin begins to refuse: it adds its receipt to what it renders.
        let texts = [read(&a), read(&b)].concat();
        let rendered: u64 = texts.iter().map(|document| 4 + document.text().len() as u64).sum();
        let output = rendered + receipt::length();
        let both = format!("{a}{b}");
        assert!(assemble(&inputs(&[("dev", &both)]), &Limits { output, ..limits }).is_ok());
        let said = assemble(&inputs(&[("dev", &both)]), &Limits { output: output - 1, ..limits }).unwrap_err();
        assert_eq!(said.code(), crate::code::Code::ReleaseTooLarge, "{said}");
        // Read from a text that may have more in it than one file: what is left of it in one document is too much for the plugin.
        let many = |count: usize| {
            let wide = Limits { file: usize::try_from(limits.output).unwrap(), ..limits };
            let text =
                format!("apiVersion: v1\nkind: Wide\nmetadata: {{name: a}}\nspec: [{}]\n", vec!["1"; count].join(","));
            let mut inputs = inputs(&[("dev", &a)]);
            inputs.layers.insert("dev".to_owned(), documents("chart", text.as_bytes(), &wide).unwrap());
            assemble(&inputs, &limits)
        };
        // Beside what is in the list there are the document, its four keys and values, and the key and value in one of these.
        let most = 512 * 1024 - 11;
        assert!(many(most).is_ok());
        let said = many(most + 1).unwrap_err();
        assert_eq!(said.code(), crate::code::Code::ReleaseTooLarge);
        assert!(said.to_string().contains("a.yaml"), "{said}");
        assert!(said.to_string().ends_with("in layer `dev`: more than 524288 keys and values"), "{said}");
        let mut hostile = inputs(&[("dev", &a)]);
        hostile.version = Some("1\n2".to_owned());
        assert!(assemble(&hostile, &limits).unwrap_err().to_string().contains("control characters"));
    }

    #[test]
    fn what_was_built_along_with_it_is_in_order_and_once() {
        let artifact =
            |reference: &str| ArtifactReference { reference: reference.to_owned(), digest: Digest::of(b"x") };
        let mut inputs = inputs(&[("dev", &deployment("a", &image()))]);
        inputs.artifacts = vec![artifact("b"), artifact("a"), artifact("b")];
        let made = assemble(&inputs, &Limits::default()).unwrap();
        assert_eq!(made.metadata.artifacts, [artifact("a"), artifact("b")]);
    }

    proptest! {
        #[test]
        fn the_order_of_documents_and_keys_does_not_matter(count in 1..12_usize, seed in any::<u64>()) {
            let texts: Vec<String> = (0..count).map(|n| deployment(&format!("a{n}"), &image())).collect();
            let mut shuffled = texts.clone();
            shuffled.sort_by_key(|text| Digest::of(format!("{seed}{text}").as_bytes()));
            let one = made(&[("dev", &texts.concat())]);
            // The same documents with their keys the other way round.
            let mut other = inputs(&[("dev", &shuffled.concat())]);
            for document in other.layers.values_mut().flatten() {
                if let serde_json::Value::Object(fields) = &mut document.value {
                    *fields = std::mem::take(fields).into_iter().rev().collect();
                }
            }
            let two = assemble(&other, &Limits::default()).unwrap();
            prop_assert_eq!(&one.manifest, &two.manifest);
            prop_assert_eq!(one.layout.tree(), two.layout.tree());
        }
    }
}
