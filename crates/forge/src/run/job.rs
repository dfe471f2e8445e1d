//! The Job that conducts a run: Kubernetes starts it again when its pod is lost, so a laptop that goes to sleep loses
//! nothing (SPEC.md section 4). An exit code of ours ends it; anything else is infrastructure, and tried again.

use forge_core::render::{
    ARGOCD_SECRET, ARGOCD_SECRET_PATH, ENVIRONMENT_LABEL, EXECUTOR_ACCOUNT, MANAGED_BY, Places, RUN_LABEL,
};
use forge_core::run::RunPlan;
use serde_json::{Value, json};

/// The name of the Job of a run.
pub(super) fn name(plan: &RunPlan) -> String {
    format!("forge-{}", plan.run)
}

/// The Job of a run.
pub(super) fn job(plan: &RunPlan, places: &Places) -> Value {
    let labels = json!({MANAGED_BY: "forge", ENVIRONMENT_LABEL: plan.environment, RUN_LABEL: plan.run});
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name(plan), "namespace": places.workflows, "labels": labels},
        "spec": {
            "backoffLimit": 50,
            "ttlSecondsAfterFinished": 24 * 3600,
            "podFailurePolicy": {"rules": [
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
                {"action": "FailJob", "onExitCodes": {"containerName": "executor", "operator": "In", "values": [1, 2, 3, 4, 5, 6]}},
            ]},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "restartPolicy": "Never",
                    "serviceAccountName": EXECUTOR_ACCOUNT,
                    "terminationGracePeriodSeconds": 10,
                    "securityContext": {"runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
                    "containers": [{
                        "name": "executor",
                        "image": places.image,
                        "command": ["forge"],
                        "args": [
                            "serve", "run", "--run", plan.run, "--workflows-namespace", places.workflows,
                            "--argocd-namespace", places.argocd, "--image", places.image,
                            "--agent-tick", places.agent_tick.to_string(),
                            "--argocd", format!("@{ARGOCD_SECRET_PATH}/server"),
                            "--token-file", format!("{ARGOCD_SECRET_PATH}/token"),
                        ],
                        "ports": [{"name": "metrics", "containerPort": 9090}],
                        "securityContext": {
                            "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false,
                            "capabilities": {"drop": ["ALL"]},
                        },
                        "resources": {
                            "requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"cpu": "1", "memory": "512Mi"},
                        },
                        "volumeMounts": [{"name": ARGOCD_SECRET, "mountPath": ARGOCD_SECRET_PATH, "readOnly": true}],
                    }],
                    "volumes": [{"name": ARGOCD_SECRET, "secret": {"secretName": ARGOCD_SECRET, "defaultMode": 0o444}}],
                },
            },
        },
    })
}
