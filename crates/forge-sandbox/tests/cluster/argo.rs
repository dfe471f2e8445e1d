//! The real Argo and Crossplane, from their real charts, with images of the sandbox's registry: not only ready, but working.

use std::fs;
use std::process::Command;
use std::time::Duration;

use forge_testkit::sandbox::{Sandbox, eventually, run};
use serde_json::{Value, json};

use crate::images::sample;

const PATIENCE: Duration = Duration::from_secs(180);

#[test]
fn argo_cd_workflows_events_and_crossplane_are_ready_and_do_their_work() {
    let sandbox = Sandbox::shared();
    Sandbox::up(&sandbox.name, &["--with", "argo-cd,argo-workflows,argo-events,crossplane"]);
    every_image_came_by_digest(sandbox);
    let space = sandbox.namespace("argo-work");

    // Everything is asked for at once, and then waited for.
    let repository = push(sandbox);
    let application = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": {"name": "from-git", "namespace": "argocd"},
        "spec": {
            "project": "default",
            "source": {"repoURL": repository, "path": "app", "targetRevision": "main"},
            "destination": {"server": "https://kubernetes.default.svc", "namespace": space.name},
            "syncPolicy": {"automated": {}},
        },
    });
    let applied = sandbox.try_kubectl(&["apply", "-f", "-"], Some(&application.to_string()));
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    space.apply(&[
        json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "EventBus", "metadata": {"name": "default"}, "spec": {"jetstream": {"version": "latest", "replicas": 3}}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "workflow"}}),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "workflow"},
            "rules": [{"apiGroups": ["argoproj.io"], "resources": ["workflowtaskresults"], "verbs": ["create", "patch"]}],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "workflow"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "workflow"},
            "subjects": [{"kind": "ServiceAccount", "name": "workflow", "namespace": space.name}],
        }),
        json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"name": "one-pod"},
            "spec": {"entrypoint": "main", "serviceAccountName": "workflow", "templates": [{
                "name": "main",
                "container": {"image": sample(), "command": ["/sample"], "env": [{"name": "RUN_ONCE", "value": "true"}]},
            }]},
        }),
        json!({"apiVersion": "apiextensions.crossplane.io/v1beta1", "kind": "EnvironmentConfig", "metadata": {"name": space.name}, "data": {"region": "here"}}),
    ]);
    space.wait("workflow/one-pod", "jsonpath={.status.phase}=Succeeded", PATIENCE);
    eventually("Argo CD syncs from the sandbox's Git to a healthy pod", PATIENCE, || {
        let text = sandbox.kubectl(&["get", "application", "from-git", "-n", "argocd", "-o", "json"]);
        let status = serde_json::from_str::<Value>(&text).unwrap()["status"].clone();
        let well = status["health"]["status"] == "Healthy" && status["sync"]["status"] == "Synced";
        if well { Ok(()) } else { Err(status.to_string()) }
    });
    space.wait("eventbus/default", "condition=Deployed", PATIENCE);
    space.kubectl(&["rollout", "status", "statefulset/eventbus-default-js", "--timeout=180s"]);
    assert_eq!(space.kubectl(&["get", "environmentconfig", &space.name, "-o", "jsonpath={.data.region}"]), "here");
    sandbox.kubectl(&["delete", "application", "from-git", "-n", "argocd"]);
    sandbox.kubectl(&["delete", "environmentconfig", &space.name]);
}

/// Pods of the charts run what the registry served under the digest that they asked for.
fn every_image_came_by_digest(sandbox: &Sandbox) {
    let template = "jsonpath={range .items[*].status.containerStatuses[*]}{.image} {.imageID}{\"\\n\"}{end}";
    for namespace in ["argocd", "argo", "argo-events", "crossplane-system"] {
        let images = sandbox.kubectl(&["get", "pods", "-n", namespace, "-o", template]);
        assert!(!images.is_empty(), "{namespace} has no pods");
        for line in images.lines() {
            assert!(line.contains("@sha256:"), "{namespace}: {line}");
        }
    }
}

/// A repository with one Deployment, by the name that it has for pods.
fn push(sandbox: &Sandbox) -> String {
    let folder = tempfile::tempdir().unwrap();
    let labels = json!({"app": "from-git"});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "from-git"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "sample", "image": sample(),
                "readinessProbe": {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 1},
            }],
        }}},
    });
    fs::create_dir(folder.path().join("app")).unwrap();
    fs::write(folder.path().join("app/deployment.json"), deployment.to_string()).unwrap();
    let git = &sandbox.git;
    let path = format!("argo/from-git-{}.git", std::process::id());
    let url = format!("{}/{path}", git.url).replacen("://", &format!("://{}:{}@", git.user, git.password), 1);
    for args in
        [&["init", "-q", "-b", "main"][..], &["add", "."], &["commit", "-qm", "first"], &["push", "-q", &url, "main"]]
    {
        let mut command = Command::new("git");
        command.current_dir(folder.path()).args(["-c", "user.name=t", "-c", "user.email=t@example.com"]).args(args);
        let ended = run(&mut command, None);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
    }
    format!("http://git.sandbox.internal:3000/{path}")
}
