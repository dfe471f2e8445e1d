//! What a test leaves in a sandbox that others share.

use std::collections::BTreeSet;

use forge_core::render::ENVIRONMENT_LABEL;
use serde_json::Value;

use crate::sandbox::Sandbox;
use crate::twin::{ARGOCD, LABEL};

/// Removes everything of an environment: what Forge made for it, its Applications (without cascade, as their namespaces go
/// anyway), its namespaces, its definitions and its AppProject. Does not wait until all of it is gone.
pub fn cleanup(sandbox: &Sandbox, environment: &str) {
    let kubectl = |args: &[&str]| sandbox.try_kubectl(args, None);
    let ours = format!("{ENVIRONMENT_LABEL}={environment}");
    // What starts Jobs first, then the Job: it would put back what goes. Where there are no Argo Events, nothing starts them.
    for kinds in ["sensors.argoproj.io,eventsources.argoproj.io", "jobs,configmaps,leases", "workflows"] {
        kubectl(&["delete", kinds, "-A", "-l", &ours, "--ignore-not-found", "--wait=false"]);
    }
    let label = format!("{LABEL}={environment}");
    let list = kubectl(&["get", "applications", "-n", ARGOCD, "-l", &label, "-o", "json"]).stdout;
    let list: Value = serde_json::from_str(&list).unwrap_or_default();
    let items = list.get("items").and_then(Value::as_array);
    let mut namespaces = BTreeSet::new();
    for item in items.into_iter().flatten() {
        let text = |pointer: &str| item.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        namespaces.insert(text("/spec/destination/namespace").to_owned());
        if item.pointer("/metadata/finalizers").is_some() {
            let none = r#"{"metadata":{"finalizers":null}}"#;
            kubectl(&["patch", "application", text("/metadata/name"), "-n", ARGOCD, "--type=merge", "-p", none]);
        }
    }
    kubectl(&["delete", "applications", "-n", ARGOCD, "-l", &label, "--ignore-not-found", "--wait=false"]);
    // Of what a teardown removed no Application tells any more where it was.
    for line in kubectl(&["get", "namespaces", "-o", "name"]).stdout.lines() {
        namespaces.insert(line.trim_start_matches("namespace/").to_owned());
    }
    // Never what was there before: only namespaces that carry the environment's name.
    let start = format!("{environment}-");
    let namespaces: Vec<&str> = namespaces.iter().filter(|name| name.starts_with(&start)).map(String::as_str).collect();
    if !namespaces.is_empty() {
        kubectl(&[&["delete", "namespace", "--ignore-not-found", "--wait=false"], namespaces.as_slice()].concat());
    }
    let definitions = kubectl(&["get", "crd", "-o", "name"]).stdout;
    let end = format!(".{environment}.example.com");
    for definition in definitions.lines().filter(|name| name.ends_with(&end)) {
        kubectl(&["delete", definition, "--wait=false"]);
    }
    kubectl(&["delete", "appproject", environment, "-n", ARGOCD, "--ignore-not-found", "--wait=false"]);
}
