//! The window is right however a run ends, never wedges an operation, and only the Job's account may write it, and only it
//! (SPEC.md section 4).

use forge_testkit::sandbox::eventually;
use forge_testkit::twin::{LABEL, TwinNode, config_map, deployment, push};
use serde_json::{Value, json};

use crate::stage::{PATIENCE, Stage, names, placed, refused_service};

fn chain(options: &forge_testkit::twin::Options) -> Vec<TwinNode> {
    vec![
        TwinNode::new("first", &[], vec![config_map("first", "1")]),
        TwinNode::new("slow", &["first"], vec![deployment("slow", &options.image, 600, &[])]),
        TwinNode::new("last", &["slow"], vec![config_map("last", "1")]),
    ]
}

/// Runs until the slow one is on its way, then ends the run like this; the window holds exactly what is not proven.
fn ended_by(test: &str, end: impl FnOnce(&Stage, &str)) {
    let stage = Stage::new(test, true, chain);
    assert_eq!(stage.held(), names(&["first", "last", "slow"]), "the AppProject holds everything");
    let started = stage.forge(&["platform", "deploy", "--detach"]);
    assert_eq!(started.code, 0, "{}", started.stderr);
    stage.until_asked("slow");
    eventually("the proven one has left", PATIENCE, || {
        let held = stage.held();
        if held == names(&["last", "slow"]) { Ok(()) } else { Err(format!("{held:?}")) }
    });
    let workflow = format!("forge-{}", stage.runs().last().unwrap());
    end(&stage, &workflow);
    let header = stage.ended();
    assert_eq!(header["ended"]["verdict"], "cancelled", "{header:#}");
    assert_eq!((stage.held(), stage.syncs("last")), (names(&["last", "slow"]), 0));
}

#[test]
fn a_run_of_a_part_leaves_the_rest_held() {
    let stage = Stage::new("part", true, chain);
    let scope = format!("app:{}", stage.options.id("first"));
    let ended = stage.forge(&["platform", "deploy", "--scope", &scope]);
    assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
    assert_eq!(stage.held(), names(&["last", "slow"]));
    // Compared after the run, so that Argo CD would have begun.
    for node in ["slow", "last"] {
        let name = stage.options.application(node);
        stage.kubectl(&["annotate", "application", &name, "-n", "argocd", "argocd.argoproj.io/refresh=normal"]);
        eventually("it was compared", PATIENCE, || {
            let annotations = stage.environment.application(node)["metadata"]["annotations"].clone();
            if annotations.get("argocd.argoproj.io/refresh").is_none() { Ok(()) } else { Err(annotations.to_string()) }
        });
        assert_eq!(stage.syncs(node), 0, "{node}");
    }
}

#[test]
fn what_failed_and_was_taken_out_of_the_graph_is_held_no_longer_although_all_else_is_proven() {
    let stays = || TwinNode::new("stays", &[], vec![config_map("stays", "1")]);
    let stage = Stage::new("out", false, |_| {
        let mut taken = TwinNode::new("taken", &[], vec![refused_service(700_000)]);
        taken.settings = "retry: {limit: 0}".to_owned();
        vec![stays(), taken]
    });
    stage.deploy(2);
    assert_eq!(stage.held(), names(&["taken"]));
    stage.environment.push(&forge_testkit::twin::small(&stage.options, &[stays()]), "without it");
    // Nothing is left to prove, and yet there is something to do.
    let report = stage.deploy(0);
    assert_eq!((stage.held(), stage.syncs("stays")), (names(&[]), 1), "{report:#}");
    let again = stage.forge(&["platform", "deploy"]);
    assert!(again.code == 0 && again.stderr.contains("nothing to do"), "{} {}", again.code, again.stderr);
}

#[test]
fn an_appproject_whose_owner_takes_the_window_away_ends_the_run_before_anything_starts() {
    let stage = Stage::new("contested", false, |_| vec![TwinNode::new("app", &[], vec![config_map("app", "1")])]);
    let (name, sandbox) = (stage.environment.name.clone(), &stage.environment.platform.sandbox);
    // Somebody else's Git has the AppProject, with a list of windows of its own.
    let mut project = stage.environment.json(&["get", "appproject", &name, "-n", "argocd"]);
    project["metadata"] = json!({"name": name, "namespace": "argocd", "labels": project["metadata"]["labels"]});
    let always = json!({"kind": "allow", "schedule": "* * * * *", "duration": "24h", "applications": ["*"]});
    project["spec"]["syncWindows"] = json!([always]);
    let repository = format!("{name}/owner.git");
    push(&sandbox.git, &repository, &[("project.json".to_owned(), project.to_string())], "main").unwrap();
    let owner = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
        "metadata": {"name": format!("{name}-owner"), "namespace": "argocd", "labels": {LABEL: name}},
        "spec": {
            "project": "default",
            "source": {
                "repoURL": format!("http://git.sandbox.internal:3000/{repository}"), "targetRevision": "main", "path": ".",
            },
            "destination": {"server": "https://kubernetes.default.svc", "namespace": "argocd"},
            "syncPolicy": {"automated": {"selfHeal": true}},
        },
    });
    let made = sandbox.try_kubectl(&["apply", "--server-side", "-f", "-"], Some(&owner.to_string()));
    assert_eq!(made.code, 0, "{}", made.stderr);
    eventually("it owns the AppProject", PATIENCE, || {
        let found = stage.environment.json(&["get", "appproject", &name, "-n", "argocd"]);
        let owned = found["metadata"]["annotations"]["argocd.argoproj.io/tracking-id"].is_string();
        if owned && found["spec"]["syncWindows"] == json!([always]) { Ok(()) } else { Err(found.to_string()) }
    });
    let ended = stage.forge(&["platform", "deploy"]);
    let said = format!("{}\n{}", ended.stdout, ended.stderr);
    assert_eq!(ended.code, 5, "{said}");
    let told = format!("Application `{name}-owner` takes the window of AppProject `{name}` away");
    assert!(said.contains(&format!("FORGE-D009 {told}: let it ignore /spec/syncWindows")), "{said}");
    assert_eq!(stage.syncs("app"), 0);
    // Nobody heals any more.
    stage.kubectl(&["delete", "application", &format!("{name}-owner"), "-n", "argocd"]);
    stage.deploy(0);
    assert_eq!((stage.held(), stage.syncs("app")), (names(&["*"]), 1));
}

/// What `argo stop` and `argo terminate` do.
fn shut_down(stage: &Stage, workflow: &str, how: &str) {
    let patch = format!(r#"{{"spec":{{"shutdown":"{how}"}}}}"#);
    stage.kubectl(&["patch", "workflow", workflow, "-n", "argo", "--type=merge", "-p", &patch]);
}

#[test]
fn the_window_is_right_after_argo_stop() {
    ended_by("stop", |stage, workflow| shut_down(stage, workflow, "Stop"));
}

#[test]
fn the_window_is_right_after_argo_terminate_and_a_killed_job_pod() {
    ended_by("terminate", |stage, workflow| {
        let run = workflow.trim_start_matches("forge-");
        let pods = format!("forge.projectcatalyst.io/run={run},batch.kubernetes.io/job-name");
        stage.kubectl(&["delete", "pods", "-n", "argo", "-l", &pods, "--grace-period=0", "--force"]);
        shut_down(stage, workflow, "Terminate");
    });
}

/// A pod of the Job that is told to end because its node goes must leave the run alone; here nobody would come after it.
#[test]
fn the_window_is_right_after_the_job_was_deleted() {
    ended_by("job", |stage, workflow| {
        // The Job has the name of the first Workflow.
        stage.kubectl(&["delete", "job", workflow, "-n", "argo", "--wait=false"]);
    });
}

#[test]
fn a_run_goes_on_in_the_next_pod_of_its_job_when_one_is_told_to_end() {
    let stage = Stage::new("evicted", false, |options| {
        vec![
            TwinNode::new("first", &[], vec![deployment("first", &options.image, 20, &[])]),
            TwinNode::new("last", &["first"], vec![config_map("last", "1")]),
        ]
    });
    let started = stage.forge(&["platform", "deploy", "--detach"]);
    assert_eq!(started.code, 0, "{}", started.stderr);
    stage.until_asked("first");
    let run = stage.runs().last().unwrap().clone();
    let pods = format!("forge.projectcatalyst.io/run={run},batch.kubernetes.io/job-name");
    stage.kubectl(&["delete", "pods", "-n", "argo", "-l", &pods, "--wait=false"]);
    let header = stage.ended();
    assert_eq!((&header["ended"]["verdict"], &header["run"]), (&json!("done"), &json!(run)), "{header:#}");
    assert_eq!((stage.held(), stage.syncs("first"), stage.syncs("last")), (names(&[]), 1, 1));
}

#[test]
fn the_window_is_right_after_the_workflow_was_deleted() {
    ended_by("delete", |stage, workflow| {
        stage.kubectl(&["delete", "workflow", workflow, "-n", "argo", "--wait=false"]);
    });
}

#[test]
fn an_application_in_automated_retry_does_not_wedge_the_run_and_heals_after_it_left() {
    let stage = Stage::new("retry", true, |options| {
        let mut broken = TwinNode::new("broken", &[], vec![refused_service(700_000)]);
        broken.settings = "retry: {limit: 1, backoff: 1s}".to_owned();
        vec![
            broken,
            TwinNode::new("side", &[], vec![config_map("side", "1")]),
            TwinNode::new("top", &["broken"], vec![deployment("top", &options.image, 1, &[])]),
        ]
    });
    let (project, name) = (&stage.environment.name, stage.options.application("broken"));
    let retry =
        r#"{"spec":{"syncPolicy":{"retry":{"limit":50,"backoff":{"duration":"2s","factor":1,"maxDuration":"2s"}}}}}"#;
    stage.kubectl(&["patch", "application", &name, "-n", "argocd", "--type=merge", "-p", retry]);
    let hold = |nodes: &[&str]| {
        let names: Vec<String> = nodes.iter().map(|node| stage.options.application(node)).collect();
        let window = json!({
            "kind": "deny", "schedule": "* * * * *", "duration": "24h", "applications": names, "manualSync": true,
            "description": "forge-orchestration r1",
        });
        let patch = json!({"spec": {"syncWindows": [window]}}).to_string();
        stage.kubectl(&["patch", "appproject", project, "-n", "argocd", "--type=merge", "-p", &patch]);
    };
    let wedge = || {
        // Nobody holds it: Argo CD tries to sync it by itself, again and again.
        hold(&["side", "top"]);
        let refresh = "argocd.argoproj.io/refresh=normal";
        stage.kubectl(&["annotate", "application", &name, "-n", "argocd", refresh, "--overwrite"]);
        eventually("an automated operation is in flight", PATIENCE, || {
            let application = stage.environment.application("broken");
            let automated = application["operation"]["initiatedBy"]["automated"] == true;
            let again = application["status"]["operationState"]["retryCount"].as_u64().unwrap_or(0) > 0;
            if automated && again { Ok(()) } else { Err(application["status"]["operationState"].to_string()) }
        });
        // A window that came too late wedges it: the operation neither goes on nor ends while it is inside.
        hold(&["broken", "side", "top"]);
    };
    wedge();
    // It is asked to end, and does; then it fails like any other, and stops nothing but what is behind it.
    let failed = stage.deploy(2);
    assert_eq!(failed.get("notHeld"), None, "{failed}");
    assert_eq!((stage.answer("side").as_deref(), stage.syncs("top")), (Some("proven"), 0), "{failed:#}");
    assert_eq!(stage.held(), names(&["broken", "top"]));
    let (root, said) = stage.cause("top");
    assert!(root == "broken" && said.contains("Invalid value: 700000"), "{root}: {said}");
    // The same again at another commit, at which Argo CD has not tried yet, and then the fix.
    stage.environment.push(&[placed("broken", refused_service(700_001))], "as bad as before");
    wedge();
    stage.environment.repository.remove("apps/broken/bad.yaml").unwrap();
    stage.environment.push(&[("apps/broken/good.yaml".to_owned(), config_map("good", "1").1)], "the fix");
    let deployed = stage.deploy(0);
    // It was asked to end, and did; then it was held like any other.
    assert_eq!(deployed.get("notHeld"), None, "{deployed}");
    assert_eq!(stage.held(), names(&[]));
    // Out of the window Argo CD is in charge again: it heals what somebody changes.
    let namespace = stage.options.application("top");
    stage.kubectl(&["delete", "deployment", "top", "-n", &namespace]);
    eventually("Argo CD heals it", PATIENCE, || {
        let found =
            stage.environment.platform.sandbox.try_kubectl(&["get", "deployment", "top", "-n", &namespace], None);
        if found.code == 0 { Ok(()) } else { Err(found.stderr) }
    });
}

#[test]
fn the_account_of_the_job_may_write_its_window_and_nothing_else() {
    let stage = Stage::new("policy", false, |_| vec![TwinNode::new("app", &[], vec![config_map("app", "1")])]);
    let project = &stage.environment.name;
    let sandbox = &stage.environment.platform.sandbox;
    let patch = |patch: &str| {
        let user = "--as=system:serviceaccount:argo:forge-executor";
        sandbox.try_kubectl(&["patch", "appproject", project, "-n", "argocd", "--type=merge", "-p", patch, user], None)
    };
    let ours = r#"{"kind":"deny","schedule":"* * * * *","duration":"24h","applications":["x"],"manualSync":true,"description":"forge-orchestration r1"}"#;
    let owner = r#"{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"6f1c2d3e-0000-4000-8000-000000000000"}"#;
    let other = r#"{"kind":"allow","schedule":"* * * * *","duration":"1h","applications":["*"]}"#;
    let allowed = patch(&format!(r#"{{"spec":{{"syncWindows":[{ours}]}}}}"#));
    assert_eq!(allowed.code, 0, "{}", allowed.stderr);
    for (bad, why) in [
        (r#"{"spec":{"sourceRepos":["https://evil.example.com/x"]}}"#.to_owned(), "spec.syncWindows"),
        (r#"{"spec":{"destinations":null}}"#.to_owned(), "spec.syncWindows"),
        (format!(r#"{{"spec":{{"syncWindows":[{ours},{other}]}}}}"#), "but its own"),
        (r#"{"metadata":{"labels":{"a":"b"}}}"#.to_owned(), "labels"),
        (r#"{"metadata":{"finalizers":["example.com/never"]}}"#.to_owned(), "finalizers"),
        (format!(r#"{{"metadata":{{"ownerReferences":[{owner}]}}}}"#), "owners"),
        (r#"{"status":{"jwtTokensByRole":{"admin":{"items":[{"iat":1}]}}}}"#.to_owned(), "status"),
    ] {
        let refused = patch(&bad);
        assert!(refused.code != 0 && refused.stderr.contains(why), "{bad}: {} {}", refused.stdout, refused.stderr);
    }
    let elsewhere = sandbox.try_kubectl(
        &[
            "patch",
            "appproject",
            "default",
            "-n",
            "argocd",
            "--type=merge",
            "-p",
            r#"{"spec":{"syncWindows":null}}"#,
            "--as=system:serviceaccount:argo:forge-executor",
        ],
        None,
    );
    assert!(elsewhere.code != 0 && elsewhere.stderr.contains("forbidden"), "{}", elsewhere.stderr);
}

/// RBAC does not look into objects: without policies, who may make a Workflow could be any account of the namespace.
#[test]
fn the_accounts_of_a_run_make_its_workflow_stop_it_write_its_records_and_nothing_else() {
    let stage = Stage::new("writers", false, |_| vec![TwinNode::new("app", &[], vec![config_map("app", "1")])]);
    let sandbox = &stage.environment.platform.sandbox;
    let planned = stage.forge(&["plan", "--offline", "--show", "objects", "--output", "json"]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    let planned: Value = serde_json::from_str(&planned.stdout).unwrap();
    let workflow = planned["items"].as_array().unwrap().iter().find(|item| item["kind"] == "Workflow").unwrap();
    let name = workflow["metadata"]["name"].as_str().unwrap();
    let user = |account: &str| format!("--as=system:serviceaccount:argo:{account}");
    // Judged as if it were made, and not kept.
    let make = |account: &str, object: &Value| {
        let user = user(account);
        let arguments = ["create", "-n", "argo", "--dry-run=server", "--validate=false", "-f", "-", user.as_str()];
        sandbox.try_kubectl(&arguments, Some(&object.to_string()))
    };
    let patch = |account: &str, kind: &str, name: &str, patch: &str| {
        let user = user(account);
        let dry = "--dry-run=server";
        sandbox.try_kubectl(&["patch", kind, name, "-n", "argo", dry, "--type=merge", "-p", patch, user.as_str()], None)
    };
    let made = make("forge-executor", workflow);
    assert_eq!(made.code, 0, "{}", made.stderr);
    for (place, field, value, why) in [
        ("/spec", "serviceAccountName", json!("default"), "account of the agent"),
        ("/spec", "podSpecPatch", json!(r#"{"serviceAccountName":"default"}"#), "another account"),
        ("/spec", "onExit", json!("graph"), "nothing else"),
        ("/spec/templates/0", "container", json!({"image": "x"}), "nothing of its own"),
        ("/metadata", "name", json!("another"), "begins with forge-"),
    ] {
        let mut other = workflow.clone();
        other.pointer_mut(place).unwrap()[field] = value;
        let refused = make("forge-executor", &other);
        assert!(refused.code != 0 && refused.stderr.contains(why), "{field}: {} {}", refused.stdout, refused.stderr);
    }
    // One that is there, and does nothing.
    let mut waiting = workflow.clone();
    waiting["spec"]["suspend"] = json!(true);
    let there = sandbox.try_kubectl(&["create", "-n", "argo", "-f", "-"], Some(&waiting.to_string()));
    assert_eq!(there.code, 0, "{}", there.stderr);
    let stopped = patch("forge-executor", "workflow", name, r#"{"spec":{"shutdown":"Stop"}}"#);
    let others = [
        r#"{"spec":{"serviceAccountName":"default"}}"#,
        r#"{"spec":{"suspend":null}}"#,
        r#"{"status":{"storedTemplates":{"x":{"name":"x"}}}}"#,
        r#"{"metadata":{"labels":{"a":"b"}}}"#,
    ];
    let others = others.map(|other| (other, patch("forge-executor", "workflow", name, other)));
    stage.kubectl(&["delete", "workflow", name, "-n", "argo", "--wait=false"]);
    assert_eq!(stopped.code, 0, "{}", stopped.stderr);
    for (other, refused) in others {
        let said = refused.stderr.contains("a run changes n");
        assert!(refused.code != 0 && said, "{other}: {} {}", refused.stdout, refused.stderr);
    }
    let named = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    for account in ["forge-executor", "forge-executor-plugin"] {
        let made = make(account, &named("forge-run-writers-0"));
        assert_eq!(made.code, 0, "{}", made.stderr);
        let other = make(account, &named("another"));
        let plugin = patch(account, "configmap", "forge-executor-plugin", r#"{"data":{"x":"y"}}"#);
        for refused in [other, plugin] {
            assert!(refused.code != 0 && refused.stderr.contains("no other ConfigMap"), "{}", refused.stderr);
        }
    }
    let executor = user("forge-executor");
    let gone = ["delete", "configmap", "forge-executor-plugin", "-n", "argo", "--dry-run=server", executor.as_str()];
    let gone = sandbox.try_kubectl(&gone, None);
    assert!(gone.code != 0 && gone.stderr.contains("no other ConfigMap"), "{}", gone.stderr);
}
