//! Simulated nodes: many pods, and none of them costs anything.

use std::time::Duration;

use forge_testkit::sandbox::{Sandbox, eventually};
use serde_json::json;

use crate::images::sample;

#[test]
fn five_hundred_pods_run_on_twenty_simulated_nodes_and_report_the_digest_of_their_image() {
    let sandbox = Sandbox::shared();
    // As before if absent: `tools/cluster` starts it with these, a developer may not have.
    Sandbox::up(&sandbox.name, &["--nodes", "20"]);
    let space = sandbox.namespace("simulated");
    let labels = json!({"app": "many"});
    space.apply(&[json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "many"},
        "spec": {"replicas": 500, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {
            "nodeSelector": {"type": "kwok"},
            "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists", "effect": "NoSchedule"}],
            "containers": [{"name": "sample", "image": sample()}],
        }}},
    })]);
    space.wait("deployment/many", "jsonpath={.status.readyReplicas}=500", Duration::from_secs(180));
    let template = "jsonpath={range .items[*]}{.spec.nodeName} {.status.containerStatuses[0].imageID}{\"\\n\"}{end}";
    let pods = space.kubectl(&["get", "pods", "-o", template]);
    let digest = sample().split_once('@').unwrap().1.to_owned();
    assert!(pods.lines().all(|line| line.ends_with(&digest)), "{}", pods.lines().next().unwrap());
    let mut nodes: Vec<&str> = pods.lines().filter_map(|line| line.split(' ').next()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    assert_eq!(nodes.len(), 20, "{nodes:?}");
    // What did not ask for a simulated node does not get one.
    space.apply(&[json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "real"},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "sample", "image": sample()}]},
    })]);
    space.wait("pod/real", "condition=Ready", Duration::from_secs(60));
    assert_eq!(space.get("pod", "real")["spec"]["nodeName"], "sandbox");
    space.kubectl(&["delete", "deployment", "many"]);
    eventually("simulated pods go", Duration::from_secs(120), || {
        let left = space.kubectl(&["get", "pods", "-l", "app=many", "-o", "name"]);
        if left.is_empty() { Ok(()) } else { Err(format!("{} are left", left.lines().count())) }
    });
}
