//! Runs for tests: nodes by name, each an Application of that name.

use forge_core::run::{RunAction, RunPlan};
use forge_core::teardown::Removal;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::lease;
use crate::cluster::fake::Fake;
use crate::cluster::path;

/// A run of nodes that do not wait for each other.
pub(crate) fn plan(nodes: &[impl AsRef<str>]) -> RunPlan {
    let tasks: Vec<Value> = nodes.iter().map(|name| task(name.as_ref(), &[])).collect();
    of(&tasks)
}

/// A run of nodes each of which waits for the one before.
pub(crate) fn chain(nodes: &[impl AsRef<str>]) -> RunPlan {
    let before = |place: usize| Vec::from_iter(place.checked_sub(1));
    let tasks = nodes.iter().enumerate().map(|(place, name)| task(name.as_ref(), &before(place)));
    of(&tasks.collect::<Vec<Value>>())
}

/// A run that removes one node.
pub(crate) fn teardown(node: &str, removal: Removal) -> RunPlan {
    let mut plan = RunPlan { action: RunAction::Teardown, ..plan(&[node]) };
    plan.tasks[0].node.as_mut().unwrap().removal = Some(removal);
    plan
}

fn task(name: &str, before: &[usize]) -> Value {
    let id = format!("argocd/{name}");
    json!({"id": id, "before": before, "node": {
        "id": id, "application": id, "content": {"type": "revisions", "revisions": []},
        "timeouts": {"sync": "5m", "health": "5m"},
        "retry": {"limit": 1, "backoff": "5s", "factor": 2, "max": "1m"},
    }})
}

fn of(tasks: &[Value]) -> RunPlan {
    let plan = json!({
        "run": "r-1", "environment": "dev", "scope": "platform", "timeout": "1h", "runner": "plugin",
        "plan": "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", "tasks": tasks,
    });
    serde_json::from_value(plan).unwrap()
}

/// Has a run, or nobody, hold the Lease of their environment, renewed then.
pub(crate) fn put_lease(fake: &mut Fake, holder: &str, renewed: Timestamp) {
    let name = lease::name(&"dev".parse().unwrap());
    let spec =
        json!({"holderIdentity": holder, "renewTime": lease::micro(renewed), "leaseDurationSeconds": lease::LASTS});
    let leases = path::named("coordination.k8s.io", "v1", "argo", "leases");
    fake.put(&leases, json!({"metadata": {"name": name}, "spec": spec}));
}
