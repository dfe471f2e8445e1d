//! Ready-made manifests for nodes of a small graph. Objects name no namespace: Argo CD's destination decides it.

use serde_json::{Value, json};

/// The name of a file and its text.
pub type File = (String, String);

/// A Deployment of the sample workload on the real node: ready so many seconds after its start. `extra_env` sets what
/// else the sample understands, such as `FAIL`.
pub fn deployment(name: &str, image: &str, ready_after_seconds: u32, extra_env: &[(&str, &str)]) -> File {
    let mut environment = vec![json!({"name": "READY_AFTER", "value": format!("{ready_after_seconds}s")})];
    environment.extend(extra_env.iter().map(|(name, value)| json!({"name": name, "value": value})));
    let pod = json!({
        "automountServiceAccountToken": false,
        "terminationGracePeriodSeconds": 1,
        "containers": [{
            "name": "sample",
            "image": image,
            "env": environment,
            "ports": [{"name": "http", "containerPort": 8080}],
            "readinessProbe": {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 1},
            "resources": {"requests": {"cpu": "5m", "memory": "8Mi"}, "limits": {"memory": "32Mi"}},
        }],
    });
    of_pod(name, &json!({}), &pod)
}

/// A Deployment on a simulated node, which costs nothing: ready so many seconds after its pod was bound, or, if it fails,
/// in a loop of crashes from then on. Needs a sandbox with simulated nodes.
pub fn kwok_deployment(name: &str, image: &str, ready_after_seconds: u32, fails: bool) -> File {
    let annotations = json!({
        "sample.example.com/ready-after": format!("{ready_after_seconds}s"),
        "sample.example.com/fail": fails.to_string(),
    });
    let pod = json!({
        "automountServiceAccountToken": false,
        "terminationGracePeriodSeconds": 1,
        "nodeSelector": {"type": "kwok"},
        "tolerations": [{"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}],
        "containers": [{"name": "sample", "image": image}],
    });
    of_pod(name, &annotations, &pod)
}

fn of_pod(name: &str, annotations: &Value, pod: &Value) -> File {
    let labels = json!({"app.kubernetes.io/name": name});
    let object = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": 1,
            // A failed roll-out is Degraded after this and not after ten minutes.
            "progressDeadlineSeconds": 60,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": pod},
        },
    });
    ("deployment.yaml".to_owned(), text(&object))
}

/// A ConfigMap with one text: healthy as soon as it is there.
pub fn config_map(name: &str, data: &str) -> File {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": data}});
    ("configmap.yaml".to_owned(), text(&object))
}

/// JSON, which is YAML.
fn text(object: &Value) -> String {
    format!("{object:#}\n")
}
