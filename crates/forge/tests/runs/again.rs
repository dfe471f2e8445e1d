//! A finished node that is executed again. Argo Workflows deletes a finished task and updates the Workflow in two steps, and
//! a new agent executes whatever task it finds: the shorter the ticks, the likelier that is a finished one (ADR 0012). And a
//! Workflow that is lost with its agent: what it left open goes on in another one.

use forge_testkit::sandbox::eventually;
use forge_testkit::twin::{TwinNode, deployment};
use serde_json::{Value, json};

use crate::stage::{PATIENCE, Stage};

const AGENTS: &str = "workflows.argoproj.io/component=agent";

/// A node that is on its way while something happens to the agent, and has its time afterwards.
fn slow(mut node: TwinNode) -> TwinNode {
    node.settings = "timeouts: {sync: 60s, health: 4m}".to_owned();
    node
}

#[test]
fn a_proven_node_that_is_executed_again_is_proven_still_and_not_synced_again() {
    let stage = Stage::new("again", false, |options| {
        let node = |name: &str, before: &[&str], ready| {
            TwinNode::new(name, before, vec![deployment(name, &options.image, ready, &[])])
        };
        vec![node("first", &[], 1), slow(node("second", &["first"], 45))]
    });
    let started = stage.forge(&["platform", "deploy", "--detach"]);
    assert_eq!(started.code, 0, "{}", started.stderr);
    stage.until_asked("second");
    let run = stage.runs().last().unwrap().clone();
    let workflow = format!("forge-{run}");

    // Another agent, which does not know what the one before it did.
    let selector = format!("{AGENTS},workflows.argoproj.io/workflow={workflow}");
    let agent = || -> Option<(String, bool, String)> {
        let pods = stage.environment.json(&["get", "pods", "-n", "argo", "-l", &selector]);
        let pod = pods["items"].as_array()?.first()?.clone();
        let text = |field: &str| pod["metadata"][field].as_str().map(str::to_owned);
        Some((text("uid")?, pod["status"]["phase"] == "Running", text("name")?))
    };
    let (before, ..) = agent().unwrap();
    stage.kubectl(&["delete", "pods", "-n", "argo", "-l", &selector, "--grace-period=0", "--force"]);
    let pod = eventually("there is another agent", PATIENCE, || match agent() {
        Some((uid, true, name)) if uid != before => Ok(name),
        other => Err(format!("{other:?}")),
    });

    // It is given the finished node's task, made from the open one's, until it has taken it up.
    let nodes = stage.environment.json(&["get", "workflow", &workflow, "-n", "argo"])["status"]["nodes"].clone();
    let id_of = |node: &str| -> String {
        let wanted = stage.options.application(node);
        let of = |value: &Value| value["inputs"]["parameters"][0]["value"].as_str().map(str::to_owned);
        let mut found = nodes.as_object().unwrap().iter().filter(|(_, value)| value["type"] == "Plugin");
        found.find(|(_, value)| of(value).is_some_and(|id| id.ends_with(&wanted))).unwrap().0.clone()
    };
    let (first, second) = (id_of("first"), id_of("second"));
    assert_eq!(nodes[&first]["phase"], "Succeeded");
    let tasks = stage.environment.json(&["get", "workflowtaskset", &workflow, "-n", "argo"])["spec"]["tasks"].clone();
    assert!(tasks.get(&first).is_none(), "the finished task is still there: {tasks}");
    let name = |node: &str| stage.options.application(node);
    let task = tasks[&second].to_string().replace(&name("second"), &name("first"));
    let task: Value = serde_json::from_str(&task).unwrap();
    let patch = json!({"spec": {"tasks": {&first: task}}}).to_string();
    // The other node is not proven yet, so an answer of this plugin that says so is one for the finished node.
    let metrics = format!("/api/v1/namespaces/argo/pods/{pod}:4355/proxy/metrics");
    eventually("the agent executes the finished node again", PATIENCE, || {
        stage.kubectl(&["patch", "workflowtaskset", &workflow, "-n", "argo", "--type=merge", "-p", &patch]);
        let figures = stage.environment.platform.sandbox.try_kubectl(&["get", "--raw", &metrics], None).stdout;
        if figures.contains("forge_agent_answers_total{answer=\"proven\"} 1") { Ok(()) } else { Err(figures) }
    });
    assert_ne!(
        stage.answer("second").as_deref(),
        Some("proven"),
        "it was over before the finished node was executed again"
    );

    let header = stage.ended();
    assert_eq!(header["ended"]["verdict"], "done", "{header}");
    for node in ["first", "second"] {
        assert_eq!(stage.answer(node).as_deref(), Some("proven"), "{node}");
        assert_eq!(stage.syncs(node), 1, "{node}");
    }
    let entry = &stage.entries()["first"];
    assert_eq!(entry["asked"].as_array().map(Vec::len), Some(1), "{entry}");
}

#[test]
fn what_a_workflow_left_open_that_failed_with_its_agent_goes_on_in_another_one_of_the_same_run() {
    let stage = Stage::new("lost", false, |options| {
        let node = |name: &str, before: &[&str], ready| {
            TwinNode::new(name, before, vec![deployment(name, &options.image, ready, &[])])
        };
        vec![node("first", &[], 1), slow(node("second", &["first"], 45)), node("third", &["second"], 1)]
    });
    let started = stage.forge(&["platform", "deploy", "--detach"]);
    assert_eq!(started.code, 0, "{}", started.stderr);
    stage.until_asked("second");
    let run = stage.runs().last().unwrap().clone();
    let selector = format!("{AGENTS},workflows.argoproj.io/workflow=forge-{run}");
    let agent = stage.kubectl(&["get", "pods", "-n", "argo", "-l", &selector, "-o", "name"]);
    // As a kubelet says it that had to end the pod. Argo Workflows gives up all tasks of it. This kubelet knows better and takes it
    // back at once, so it is said until the controller has looked in between.
    let failed = r#"{"status":{"phase":"Failed","reason":"Evicted","message":"the node was low on memory"}}"#;
    let patch = ["patch", agent.trim(), "-n", "argo", "--subresource=status", "--type=merge", "-p", failed];
    let workflow = format!("forge-{run}");
    eventually("Argo Workflows has given the Workflow up", PATIENCE, || {
        let sandbox = &stage.environment.platform.sandbox;
        let patched = sandbox.try_kubectl(&patch, None);
        let phase = ["get", "workflow", &workflow, "-n", "argo", "-o", "jsonpath={.status.phase}"];
        let phase = sandbox.try_kubectl(&phase, None).stdout;
        if ["Failed", "Error"].contains(&phase.as_str()) { Ok(()) } else { Err(format!("{phase}; {}", patched.stderr)) }
    });
    let header = stage.ended();
    assert_eq!((&header["run"], &header["ended"]["verdict"]), (&json!(run), &json!("done")), "{header:#}");
    assert_eq!((&header["resubmitted"], &header["agentsReplaced"]), (&json!(1), &json!(0)), "{header:#}");
    assert_eq!(header["workflow"], format!("forge-{run}-r1"), "{header:#}");
    for node in ["first", "second", "third"] {
        assert_eq!(stage.syncs(node), 1, "{node}");
        let entry = &stage.entries()[node];
        assert_eq!(entry["asked"].as_array().map(Vec::len), Some(1), "{entry}");
    }
}
