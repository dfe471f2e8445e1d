//! What is never proven, and what that does to others (INV-1, INV-4, INV-5).

use std::collections::BTreeMap;
use std::time::Duration;

use forge_testkit::sandbox::eventually;
use forge_testkit::twin::{File, TwinNode, config_map, deployment};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kill::crash;
use crate::stage::{PATIENCE, Stage, names, placed, refused_service};

/// A node whose limits are short, so that its failure is not waited for long. On a busy machine Argo CD needs twenty seconds to
/// tell of a health.
fn hasty(mut node: TwinNode) -> TwinNode {
    node.settings = "timeouts: {sync: 60s, health: 30s}\nretry: {limit: 1, backoff: 1s}".to_owned();
    node
}

/// The graph in which what was hasty has its time: what is well now need not be ready at once.
fn unhurried(stage: &Stage) -> (String, String) {
    let graph = std::fs::read_to_string(stage.environment.repository.folder().join("graph.yaml")).unwrap();
    ("graph.yaml".to_owned(), graph.replace("health: 30s", "health: 4m").replace("health: 40s", "health: 4m"))
}

/// A StatefulSet of the sample workload: its pod has a name that a rule can say, and is replaced also while it crashes.
fn stateful_set(name: &str, image: &str, extra: &[(&str, &str)]) -> File {
    let mut object: Value = serde_json::from_str(&deployment(name, image, 1, extra).1).unwrap();
    object["kind"] = json!("StatefulSet");
    let spec = object["spec"].as_object_mut().unwrap();
    spec.remove("progressDeadlineSeconds");
    spec.insert("serviceName".to_owned(), json!(name));
    spec.insert("podManagementPolicy".to_owned(), json!("Parallel"));
    ("statefulset.yaml".to_owned(), object.to_string())
}

/// A node that was started again and is Healthy when its time is over, and was not for long enough (ADR 0013). By its rule it
/// is not proven before a restart, and [`crash_late`] sees to it that there is one when no time is left to settle.
fn restarting(image: &str) -> TwinNode {
    let manifests = vec![stateful_set("restarts", image, &[("VERSION", "crashes")])];
    let mut node = TwinNode::new("restarts", &[], manifests);
    node.settings = r#"timeouts: {health: 40s}
health:
  - apiVersion: v1
    kind: Pod
    name: restarts-0
    expr: "object.spec.containers[0].env.all(e, e.name != 'VERSION') || object.status.containerStatuses[0].restartCount > 0"
"#
    .to_owned();
    node
}

/// Kills what runs in the pod of the node that restarts, so long before its time is over that it is Healthy again, and not so
/// long that it could be for the 15 s that it must be.
fn crash_late(stage: &Stage) {
    let until: Option<Timestamp> = eventually("a restart is all that is missing", PATIENCE, || {
        let decision = stage.entries().get("restarts").map(|entry| entry["decision"].clone()).unwrap_or_default();
        if decision["type"] == "failed" {
            return Ok(None);
        }
        let until = decision["until"].as_str().filter(|_| decision["on"]["type"] == "rule");
        until.and_then(|until| until.parse().ok()).map(Some).ok_or(decision.to_string())
    });
    // The machine is so busy that it was not Healthy in time.
    let Some(until) = until else { return };
    let moment = until - Duration::from_secs(13);
    eventually("its time is nearly over", PATIENCE, || {
        let now = Timestamp::now();
        if now >= moment { Ok(()) } else { Err(format!("{now}, and it is to crash at {moment}")) }
    });
    crash(&stage.environment.platform.sandbox, &stage.options.application("restarts"), "restarts-0");
}

/// Why a node failed, by the record's own word.
fn reason<'e>(entries: &'e BTreeMap<String, Value>, node: &str) -> &'e str {
    entries[node]["decision"]["why"]["type"].as_str().unwrap_or_default()
}

/// The Deployment of a node, as it is named where it is what is wrong.
fn workload(stage: &Stage, node: &str) -> String {
    format!("Deployment/{}/{node}", stage.options.application(node))
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
            hasty(TwinNode::new("invalid", &[], vec![config_map("invalid", "1"), refused_service(700_000)])),
            restarting(image),
            TwinNode::new("after-fails", &["fails"], vec![config_map("after-fails", "1")]),
            TwinNode::new("after-hangs", &["hangs"], vec![config_map("after-hangs", "1")]),
            TwinNode::new("after-empty", &["empty"], vec![config_map("after-empty", "1")]),
            TwinNode::new("after-invalid", &["invalid", "sibling"], vec![config_map("after-invalid", "1")]),
            TwinNode::new("after-restarts", &["restarts"], vec![config_map("after-restarts", "1")]),
        ]
    });
    std::thread::scope(|scope| {
        scope.spawn(|| stage.deploy(2));
        crash_late(&stage);
    });
    for node in ["well", "sibling"] {
        assert_eq!(stage.answer(node).as_deref(), Some("proven"), "{node}");
    }
    let failed = ["fails", "hangs", "flaps", "empty", "invalid", "restarts"];
    let entries = stage.entries();
    for node in failed {
        assert_eq!(stage.answer(node).as_deref(), Some("failed"), "{node}: {:?}", entries.get(node));
    }
    // Healthy or not is a matter of the moment at which its time is over.
    let flaps = reason(&entries, "flaps");
    assert!(["flapping", "unhealthy"].contains(&flaps), "{:?}", entries.get("flaps"));
    // The same: where the machine is so busy that nobody saw the restart in time, its rule or its health says so.
    let restarts = reason(&entries, "restarts");
    assert!(["flapping", "ruleUnmet", "unhealthy"].contains(&restarts), "{:?}", entries.get("restarts"));
    let asked = entries["invalid"]["asked"].as_array().map(Vec::len);
    assert_eq!(asked, Some(2), "one retry is what it has: {:?}", entries.get("invalid"));
    let blocked = ["after-fails", "after-hangs", "after-empty", "after-invalid", "after-restarts"];
    assert_eq!(blocked.map(|node| stage.syncs(node)), [0; 5], "{blocked:?}");
    // Only what failed and what that blocks stays in the window.
    assert_eq!(stage.held(), names(&[&failed[..], &blocked[..]].concat()));
    let (fails, hangs) = (workload(&stage, "fails"), workload(&stage, "hangs"));
    let told_of_restarts = match restarts {
        "flapping" => ["did not stay Healthy", "restarted 1 time"],
        "ruleUnmet" => ["restarts-0", "it is false"],
        _ => ["health stayed", "restarts"],
    };
    for (node, root, words) in [
        ("after-fails", "fails", ["health stayed", fails.as_str()]),
        ("after-hangs", "hangs", ["health stayed Progressing", hangs.as_str()]),
        ("after-empty", "empty", ["the Application", "manages no resources"]),
        ("after-invalid", "invalid", ["sync 2 failed", "Invalid value: 700000"]),
        ("after-restarts", "restarts", told_of_restarts),
    ] {
        let (found, said) = stage.cause(node);
        assert!(found == root && words.iter().all(|word| said.contains(word)), "{node}: {found}: {said}");
    }
    let why = stage.forge(&["why", &stage.options.id("after-hangs")]);
    assert_eq!(why.code, 0, "{}", why.stderr);
    let arrow = format!("→ {} ", stage.options.id("hangs"));
    assert!(why.stdout.contains(&arrow) && why.stdout.contains("health stayed"), "{}", why.stdout);
    let status = stage.forge(&["status"]);
    assert!(status.stdout.contains("failed"), "{}", status.stdout);
    let html = stage.forge(&["status", "--output", "html"]);
    assert!(html.stdout.contains("<svg") && !html.stdout.contains("<script"), "{}", html.stdout);
    // The fix: everything is well now.
    let image = &stage.options.image;
    let mut fixed: Vec<(String, String)> = ["fails", "hangs", "flaps", "empty"]
        .iter()
        .map(|node| (format!("apps/{node}/{node}.yaml"), deployment(node, image, 1, &[]).1))
        .collect();
    fixed.push(placed("restarts", stateful_set("restarts", image, &[])));
    stage.environment.repository.remove("apps/invalid/bad.yaml").unwrap();
    for node in ["fails", "hangs", "flaps"] {
        // The file that the twin wrote has the name that `deployment` gives it.
        let (file, _) = deployment(node, image, 1, &[]);
        let _ = stage.environment.repository.remove(&format!("apps/{node}/{file}"));
    }
    fixed.push(unhurried(&stage));
    stage.environment.push(&fixed, "the fix");
    let report = stage.deploy(0);
    assert_eq!((stage.syncs("well"), stage.syncs("sibling")), (1, 1), "{report:#}");
    assert_eq!(blocked.map(|node| stage.syncs(node)), [1; 5], "{report:#}");
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
    let (root, said) = stage.cause("last");
    assert!(root == "fails" && said.contains(&workload(&stage, "fails")), "{root}: {said}");
    // The fix: the rest is synced, and it alone.
    let fixed = [placed("fails", deployment("fails", &stage.options.image, 1, &[])), unhurried(&stage)];
    stage.environment.push(&fixed, "the fix");
    let ended = stage.forge(&["platform", "deploy", "--band", "2"]);
    assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
    assert_eq!(["well", "side", "end", "far", "last"].map(|node| stage.syncs(node)), [1; 5]);
    assert_eq!(stage.held(), names(&[]));
}

#[test]
fn a_folder_that_changes_during_the_run_a_pinned_revision_and_health_of_before_the_sync_are_never_proven() {
    let stage = Stage::new("moved", false, |options| {
        vec![
            TwinNode::new("side", &[], vec![config_map("side", "1")]),
            TwinNode::new("slow", &[], vec![deployment("slow", &options.image, 12, &[])]),
            TwinNode::new("moved", &["slow"], vec![config_map("moved", "1")]),
            TwinNode::new("other", &["slow"], vec![config_map("other", "1")]),
            hasty(TwinNode::new("pinned", &["slow"], vec![config_map("pinned", "1")])),
            TwinNode::new("after-moved", &["moved"], vec![config_map("after-moved", "1")]),
            TwinNode::new("after-pinned", &["pinned"], vec![config_map("after-pinned", "1")]),
        ]
    });
    // Somebody pins one to the commit before, and then the platform moves on.
    let pin = |revision: &str| {
        let patch = json!({"spec": {"source": {"targetRevision": revision}}}).to_string();
        let name = stage.options.application("pinned");
        stage.kubectl(&["patch", "application", &name, "-n", "argocd", "--type=merge", "-p", &patch]);
    };
    let before = git_head(&stage);
    stage.environment.push(&[placed("pinned", config_map("pinned", "2"))], "newer");
    pin(&before);
    let ended = std::thread::scope(|scope| {
        let deploy = scope.spawn(|| stage.forge(&["platform", "deploy"]));
        stage.until_asked("slow");
        stage.environment.push(&[placed("moved", config_map("moved", "2"))], "meanwhile");
        deploy.join().unwrap()
    });
    assert_eq!(ended.code, 2, "{}\n{}", ended.stdout, ended.stderr);
    let header = stage.ended();
    assert_eq!(header["ended"]["verdict"], "partial", "{header:#}");
    let entries = stage.entries();
    let why = ["moved", "pinned"].map(|node| reason(&entries, node));
    assert_eq!(why, ["folderMoved", "commitMissing"], "{entries:#?}");
    // A commit that leaves a folder alone does not keep it from being proven.
    assert_eq!(stage.answer("other").as_deref(), Some("proven"));
    assert_eq!((stage.syncs("after-moved"), stage.syncs("after-pinned")), (0, 0));
    for (node, root, words) in
        [("after-moved", "moved", "folder was changed"), ("after-pinned", "pinned", "did not see commit")]
    {
        let (found, said) = stage.cause(node);
        assert!(found == root && said.contains(words), "{node}: {found}: {said}");
    }
    // The fix: what is left is synced, and it alone.
    pin("main");
    stage.deploy(0);
    let all = ["side", "slow", "other", "moved", "pinned", "after-moved", "after-pinned"];
    assert_eq!(all.map(|node| stage.syncs(node)), [1; 7]);
    health_of_before_the_sync_is_no_proof(&stage);
}

/// Everything is proven. `slow` gets what never becomes ready, and what waits for it a change that must not start on its
/// health of before.
fn health_of_before_the_sync_is_no_proof(stage: &Stage) {
    let slow = |extra: &[(&str, &str)]| placed("slow", deployment("slow", &stage.options.image, 1, extra));
    let graph = std::fs::read_to_string(stage.environment.repository.folder().join("graph.yaml")).unwrap();
    let shorter = graph.replace("health: 4m", "health: 40s");
    assert_ne!(shorter, graph);
    let worse = [
        ("graph.yaml".to_owned(), shorter),
        slow(&[("FAIL", "never-ready")]),
        placed("other", config_map("other", "2")),
        placed("side", config_map("side", "2")),
    ];
    stage.environment.push(&worse, "worse");
    let syncs = || ["slow", "other", "side", "after-moved"].map(|node| stage.syncs(node));
    // All that failed took too long.
    stage.deploy(4);
    let entries = stage.entries();
    assert_eq!(reason(&entries, "slow"), "unhealthy", "{entries:#?}");
    assert_eq!(entries["side"]["decision"]["type"], "proven", "{entries:#?}");
    assert_eq!(syncs(), [2, 1, 2, 1]);
    let (root, said) = stage.cause("other");
    assert!(root == "slow" && said.contains(&workload(stage, "slow")), "{root}: {said}");
    stage.environment.push(&[("graph.yaml".to_owned(), graph), slow(&[])], "the fix");
    stage.deploy(0);
    assert_eq!(syncs(), [3, 2, 2, 1]);
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
    eventually("the foreign sync goes on", PATIENCE, || {
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
