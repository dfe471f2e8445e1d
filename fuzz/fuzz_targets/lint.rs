//! All of lint: the first byte picks the path, the rest is the file.
#![no_main]
use std::collections::BTreeMap;

use forge_core::validate::{Content, tree};
use libfuzzer_sys::fuzz_target;

const PATHS: [&str; 9] = [
    "forge.yaml",
    "graph.yaml",
    "app.yaml",
    "dev/app.yaml",
    "dev/graph.yaml",
    "dev/env.yaml",
    "dev/apps/a/b/release.yaml",
    "charts/x/templates/job.yaml",
    "manifests/any.json",
];
const FORGE: &str = "apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: Forge\nspec:\n  repository: {url: https://git.example.com/p.git}\n  environments: [{name: dev, cluster: dev, sync: auto}]\n";
const GRAPH: &str = "apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: DependencyGraph\nspec: {stacks: [{name: s, apps: [{project: a/b}]}]}\n";

fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else { return };
    let mut files: BTreeMap<String, Content> = BTreeMap::new();
    files.insert("forge.yaml".to_owned(), Content::Bytes(FORGE.as_bytes().to_vec()));
    files.insert("graph.yaml".to_owned(), Content::Bytes(GRAPH.as_bytes().to_vec()));
    let path = PATHS[usize::from(*first) % PATHS.len()];
    files.insert(path.to_owned(), Content::Bytes(rest.to_vec()));
    let report = tree(&files);
    assert!(report.findings.is_sorted());
});
