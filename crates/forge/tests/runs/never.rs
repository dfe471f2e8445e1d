//! What is never proven, and what that does to others (INV-1, INV-4, INV-5).

use std::time::Duration;

use forge_testkit::sandbox::eventually;
use forge_testkit::twin::{TwinNode, config_map, deployment};

use crate::stage::{PATIENCE, Stage, names};

/// A node whose limits are short, so that its failure is not waited for.
fn hasty(mut node: TwinNode) -> TwinNode {
    node.settings = "timeouts: {sync: 20s, health: 12s}\nretry: {limit: 1, backoff: 1s}".to_owned();
    node
}

#[test]
fn what_fails_hangs_flaps_or_is_empty_stops_what_depends_on_it_and_after_the_fix_only_the_rest_is_synced() {
    let stage = Stage::new("never", true, |options| {
        let image = &options.image;
        let pod = |name: &str, ready, extra: &[(&str, &str)]| vec![deployment(name, image, ready, extra)];
        vec![
            TwinNode::new("well", &[], pod("well", 1, &[])),
            TwinNode::new("sibling", &["well"], pod("sibling", 1, &[])),
            hasty(TwinNode::new("fails", &["well"], pod("fails", 1, &[("FAIL", "crash")]))),
            hasty(TwinNode::new("hangs", &["well"], pod("hangs", 1, &[("FAIL", "never-ready")]))),
            hasty(TwinNode::new("flaps", &["well"], pod("flaps", 1, &[("FAIL", "crash-after=4s")]))),
            hasty(TwinNode::new("empty", &["well"], vec![("note.txt".to_owned(), "no manifest".to_owned())])),
            hasty(TwinNode::new(
                "invalid",
                &[],
                vec![
                    config_map("invalid", "1"),
                    (
                        "bad.yaml".to_owned(),
                        "apiVersion: v1\nkind: Service\nmetadata:\n  name: bad\nspec:\n  ports: [{port: 700000}]\n"
                            .to_owned(),
                    ),
                ],
            )),
            TwinNode::new("after-fails", &["fails"], vec![config_map("after-fails", "1")]),
            TwinNode::new("after-hangs", &["hangs"], vec![config_map("after-hangs", "1")]),
            TwinNode::new("after-empty", &["empty"], vec![config_map("after-empty", "1")]),
            TwinNode::new("after-invalid", &["invalid", "sibling"], vec![config_map("after-invalid", "1")]),
        ]
    });
    stage.deploy(2);
    for node in ["well", "sibling"] {
        assert_eq!(stage.answer(node).as_deref(), Some("proven"), "{node}");
    }
    for node in ["fails", "hangs", "flaps", "empty", "invalid"] {
        assert_eq!(stage.answer(node).as_deref(), Some("failed"), "{node}: {:?}", stage.entries().get(node));
    }
    for node in ["after-fails", "after-hangs", "after-empty", "after-invalid"] {
        assert_eq!(stage.syncs(node), 0, "{node}");
    }
    // Only what failed and what that blocks stays in the window.
    let left =
        ["fails", "hangs", "flaps", "empty", "invalid", "after-fails", "after-hangs", "after-empty", "after-invalid"];
    assert_eq!(stage.held(), names(&left));
    let why = stage.forge(&["why", &stage.options.id("after-hangs")]);
    assert_eq!(why.code, 0, "{}", why.stderr);
    assert!(why.stdout.contains("hangs") && why.stdout.contains("health stayed"), "{}", why.stdout);
    let status = stage.forge(&["status"]);
    assert!(status.stdout.contains("failed"), "{}", status.stdout);
    let html = stage.forge(&["status", "--output", "html"]);
    assert!(html.stdout.contains("<svg") && !html.stdout.contains("<script"), "{}", html.stdout);
    // The fix: everything is well now.
    let image = &stage.options.image;
    let fixed: Vec<(String, String)> = ["fails", "hangs", "flaps", "empty"]
        .iter()
        .map(|node| (format!("apps/{node}/{node}.yaml"), deployment(node, image, 1, &[]).1))
        .collect();
    stage.environment.repository.remove("apps/invalid/bad.yaml").unwrap();
    for node in ["fails", "hangs", "flaps"] {
        // The file that the twin wrote has the name that `deployment` gives it.
        let (file, _) = deployment(node, image, 1, &[]);
        let _ = stage.environment.repository.remove(&format!("apps/{node}/{file}"));
    }
    stage.environment.push(&fixed, "the fix");
    let report = stage.deploy(0);
    assert_eq!((stage.syncs("well"), stage.syncs("sibling")), (1, 1), "{report:#}");
    assert_eq!(stage.held(), names(&[]));
    let history = stage.forge(&["history"]);
    assert!(history.stdout.contains("partial") && history.stdout.contains("done"), "{}", history.stdout);
}

#[test]
fn a_failure_stops_what_is_behind_it_in_every_band_and_nothing_else() {
    let stage = Stage::new("bands", true, |options| {
        let image = &options.image;
        let pod = |name: &str, extra: &[(&str, &str)]| vec![deployment(name, image, 1, extra)];
        vec![
            TwinNode::new("well", &[], pod("well", &[])),
            hasty(TwinNode::new("fails", &[], pod("fails", &[("FAIL", "crash")]))),
            TwinNode::new("side", &["well"], pod("side", &[])),
            TwinNode::new("after", &["fails"], vec![config_map("after", "1")]),
            // In one band with what is blocked and with what is not, and behind both.
            TwinNode::new("both", &["after", "side"], vec![config_map("both", "1")]),
            TwinNode::new("end", &["side"], vec![config_map("end", "1")]),
            TwinNode::new("last", &["both"], vec![config_map("last", "1")]),
            TwinNode::new("far", &["well", "end"], vec![config_map("far", "1")]),
        ]
    });
    let ended = stage.forge(&["platform", "deploy", "--band", "2"]);
    // All that failed took too long.
    assert_eq!(ended.code, 4, "{}\n{}", ended.stdout, ended.stderr);
    for node in ["well", "side", "end", "far"] {
        assert_eq!(stage.answer(node).as_deref(), Some("proven"), "{node}");
    }
    for node in ["after", "both", "last"] {
        assert_eq!(stage.syncs(node), 0, "{node}");
    }
    assert_eq!(stage.held(), names(&["fails", "after", "both", "last"]));
    // It came to its end by itself: no band was left waiting to be opened.
    let workflow = format!("forge-{}", stage.runs().last().unwrap());
    let found = eventually("the Workflow has ended", PATIENCE, || {
        let found = stage.environment.json(&["get", "workflow", &workflow, "-n", "argo"]);
        if found["status"]["phase"] == "Failed" { Ok(found) } else { Err(found["status"]["phase"].to_string()) }
    });
    let templates = found["spec"]["templates"].as_array().unwrap();
    let templates: Vec<&str> = templates.iter().map(|template| template["name"].as_str().unwrap()).collect();
    assert_eq!(templates, ["graph", "band-0", "band-1", "band-2", "band-3"]);
    let why = stage.forge(&["why", &stage.options.id("last")]);
    assert!(why.stdout.contains("fails"), "{}", why.stdout);
    // The fix: the rest is synced, and it alone.
    let (file, manifest) = deployment("fails", &stage.options.image, 1, &[]);
    stage.environment.push(&[(format!("apps/fails/{file}"), manifest)], "the fix");
    let ended = stage.forge(&["platform", "deploy", "--band", "2"]);
    assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
    assert_eq!(["well", "side", "end", "far", "last"].map(|node| stage.syncs(node)), [1; 5]);
    assert_eq!(stage.held(), names(&[]));
}

#[test]
fn a_folder_that_changes_during_the_run_and_a_pinned_revision_are_never_proven() {
    let stage = Stage::new("moved", false, |options| {
        vec![
            TwinNode::new("slow", &[], vec![deployment("slow", &options.image, 12, &[])]),
            TwinNode::new("moved", &["slow"], vec![config_map("moved", "1")]),
            TwinNode::new("other", &["slow"], vec![config_map("other", "1")]),
            hasty(TwinNode::new("pinned", &["slow"], vec![config_map("pinned", "1")])),
        ]
    });
    // Somebody pins one to the commit before, and then the platform moves on.
    let sandbox = &stage.environment.platform.sandbox;
    let before = git_head(&stage);
    stage.environment.push(&[("apps/pinned/pinned.yaml".to_owned(), config_map("pinned", "2").1)], "newer");
    let patch = format!(r#"{{"spec":{{"source":{{"targetRevision":"{before}"}}}}}}"#);
    sandbox.kubectl(&[
        "patch",
        "application",
        &stage.options.application("pinned"),
        "-n",
        "argocd",
        "--type=merge",
        "-p",
        &patch,
    ]);
    let started = stage.forge(&["platform", "deploy", "--detach"]);
    assert_eq!(started.code, 0, "{}", started.stderr);
    stage.until_asked("slow");
    stage.environment.push(&[("apps/moved/moved.yaml".to_owned(), config_map("moved", "2").1)], "meanwhile");
    let header = stage.ended();
    assert_eq!(header["ended"]["verdict"], "partial", "{header:#}");
    let entries = stage.entries();
    let why = |node: &str| entries[node]["decision"]["why"]["type"].as_str().unwrap_or_default().to_owned();
    assert_eq!((why("moved").as_str(), why("pinned").as_str()), ("folderMoved", "commitMissing"), "{entries:#?}");
    // A commit that leaves a folder alone does not keep it from being proven.
    assert_eq!(stage.answer("other").as_deref(), Some("proven"));
}

fn git_head(stage: &Stage) -> String {
    let folder = stage.environment.repository.folder();
    let output = std::process::Command::new("git").arg("-C").arg(folder).args(["rev-parse", "HEAD"]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_sync_that_somebody_else_started_does_not_count() {
    let stage = Stage::new("foreign", false, |options| {
        // Its operations take their time: a hook of them does.
        let hook = format!(
            "apiVersion: batch/v1
kind: Job
metadata:
  name: slow
  annotations: {{argocd.argoproj.io/hook: PreSync, argocd.argoproj.io/hook-delete-policy: BeforeHookCreation}}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: slow
          image: {}
          env: [{{name: RUN_ONCE, value: \"true\"}}, {{name: READY_AFTER, value: 8s}}]
",
            options.image
        );
        let manifests = vec![("hook.yaml".to_owned(), hook), deployment("app", &options.image, 1, &[])];
        vec![TwinNode::new("app", &[], manifests)]
    });
    let name = stage.options.application("app");
    // A foreign operation is in flight when the run begins: it is awaited, and a sync of our own follows.
    let operation = r#"{"operation":{"initiatedBy":{"username":"somebody"},"sync":{"prune":true,"syncOptions":["CreateNamespace=true"]},"info":[{"name":"forge-nonce","value":"other-run/argocd/app/1"}]}}"#;
    stage.kubectl(&["patch", "application", &name, "-n", "argocd", "--type=merge", "-p", operation]);
    eventually("the foreign sync goes on", Duration::from_secs(30), || {
        let state = stage.environment.application("app")["status"]["operationState"]["phase"].clone();
        if state == "Running" { Ok(()) } else { Err(state.to_string()) }
    });
    stage.deploy(0);
    // What it left is well and as wanted, and yet it was not ours: one of ours came after it.
    let operation = stage.environment.application("app")["status"]["operationState"].clone();
    let nonce = operation["operation"]["info"][0]["value"].as_str().unwrap_or_default();
    assert!(nonce.starts_with(&format!("{}-", stage.environment.name)), "{operation:#}");
    assert_eq!((stage.answer("app").as_deref(), stage.syncs("app")), (Some("proven"), 2));
}
