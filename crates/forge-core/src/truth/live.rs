//! What runs, and live objects by the rules: digests as they run, whose objects are, what lint says of them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::cause::Cause;
use super::node::{LiveApplication, LiveManifest};
use crate::digest::Digest;
use crate::gate::{ContainerKey, Health, Wanted};
use crate::name::ApplicationId;
use crate::validate;

/// Where Argo CD writes whose an object is.
const TRACKING: &str = "argocd.argoproj.io/tracking-id";
/// No object is told more about than this.
const MOST_OF_ONE: usize = 10;

/// Containers that run another image than their workload names by digest. What a release names is the gate's.
pub(super) fn digests(wanted: &Wanted, application: &LiveApplication) -> Vec<Cause> {
    let Some(tree) = application.tree.saw() else { return Vec::new() };
    let named: BTreeMap<ContainerKey, Digest> = application.objects.iter().flat_map(templates).collect();
    let rolls = application.objects.iter().filter(|object| rolls_out(&object.value));
    let rolls: BTreeSet<&str> = rolls.map(|object| object.id.as_str()).collect();
    let syncs = application.state.operation.as_ref().is_some_and(|operation| operation.phase.is_running());
    let still = application.state.health != Health::Progressing && !syncs;
    let mut causes: Vec<Cause> = Vec::new();
    for container in tree.containers.iter().filter(|container| container.running) {
        let Some(digest) = named.get(&container.key).filter(|_| !wanted.images.contains_key(&container.key)) else {
            continue;
        };
        let cause = match &container.image {
            Some(running) if running == digest => continue,
            Some(running) => Cause::WrongDigest {
                container: container.key.clone(),
                wanted: digest.clone(),
                running: running.clone(),
                settled: still && !rolls.contains(container.key.workload()),
            },
            None => Cause::NotRead {
                what: format!("the image of {}", container.key),
                why: "its status does not say".to_owned(),
            },
        };
        // Several pods of one workload say the same.
        if !causes.contains(&cause) {
            causes.push(cause);
        }
    }
    causes
}

/// Its controller is still at the last change: pods of before are there, and will go. Argo CD says so a moment later.
fn rolls_out(workload: &Value) -> bool {
    let said = |pointer: &str| workload.pointer(pointer).and_then(Value::as_i64);
    let number = |pointer: &str| said(pointer).unwrap_or(0);
    let strategy = workload.pointer("/spec/updateStrategy/type").and_then(Value::as_str);
    // There pods of before stay until somebody deletes them.
    if strategy == Some("OnDelete") {
        return false;
    }
    // Not every kind says what it has seen.
    said("/status/observedGeneration").is_some_and(|seen| seen < number("/metadata/generation"))
        || number("/status/replicas") > number("/status/updatedReplicas")
        || number("/status/currentNumberScheduled") > number("/status/updatedNumberScheduled")
}

/// What the pod template of a workload, or a pod that stands for itself, names by digest.
fn templates(object: &LiveManifest) -> Vec<(ContainerKey, Digest)> {
    let is_pod = object.value.get("kind").and_then(Value::as_str) == Some("Pod");
    let place = if is_pod { "/spec/containers" } else { "/spec/template/spec/containers" };
    let containers = object.value.pointer(place).and_then(Value::as_array);
    let named = |container: &Value| {
        let name = container.get("name").and_then(Value::as_str)?;
        let (_, digest) = container.get("image").and_then(Value::as_str)?.split_once('@')?;
        Some((ContainerKey::new(&object.id, name).ok()?, digest.parse().ok()?))
    };
    containers.into_iter().flatten().filter_map(named).collect()
}

/// Objects that carry the mark of another Application.
pub(super) fn claims(application: &ApplicationId, objects: &[LiveManifest]) -> Vec<Cause> {
    let (plain, full) = (application.name(), format!("{}_{}", application.namespace, application.name()));
    // Whose the Application itself is, is the business of whoever made it.
    let itself = format!("Application/{}/{}", application.namespace, application.name());
    let claimed = |object: &LiveManifest| {
        let id = object.value.get("metadata")?.get("annotations")?.get(TRACKING)?.as_str()?;
        let (by, rest) = id.split_once(':')?;
        // A mark that somebody copied from another object means nothing to Argo CD.
        let meant = rest == own_mark(&object.value);
        (meant && by != plain && by != full).then(|| Cause::Claimed { object: object.id.clone(), by: by.to_owned() })
    };
    objects.iter().filter(|object| object.id != itself).filter_map(claimed).collect()
}

/// What stands behind the name of the Application in the mark of an object: `group/Kind:namespace/name`.
fn own_mark(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let group = text("/apiVersion").split_once('/').map_or("", |(group, _)| group);
    format!("{group}/{}:{}/{}", text("/kind"), text("/metadata/namespace"), text("/metadata/name"))
}

/// What lint says of the objects.
pub(super) fn rules(objects: &[LiveManifest]) -> Vec<Cause> {
    let mut causes = Vec::new();
    for object in objects {
        let findings = validate::live(&object.value).into_iter().take(MOST_OF_ONE);
        causes.extend(findings.map(|finding| Cause::Rule {
            code: finding.code,
            object: object.id.clone(),
            message: finding.message,
            fix: finding.fix,
        }));
    }
    causes
}
