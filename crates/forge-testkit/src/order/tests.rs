use serde_json::{Value, json};

use super::*;

fn at(text: &str) -> Timestamp {
    format!("2026-01-01T00:00:{text}Z").parse().unwrap()
}

fn moment(from: &str, to: &str) -> Moment {
    Moment::between(at(from), at(to))
}

fn graph(edges: &[(&str, &[&str])]) -> BTreeMap<String, BTreeSet<String>> {
    edges.iter().map(|(node, before)| ((*node).into(), before.iter().map(|b| (*b).into()).collect())).collect()
}

/// `a` with one Deployment, and `b` after it.
fn pair(ready: Vec<Moment>, started: Moment) -> Facts {
    let deployment = Workload { name: "deployments/a".into(), written: moment("01.000", "01.010"), ready: Some(ready) };
    let a = NodeFacts { started: Some(moment("00.500", "00.510")), workloads: vec![deployment] };
    let b = NodeFacts { started: Some(started), workloads: Vec::new() };
    let nodes = BTreeMap::from([("a".to_owned(), a), ("b".to_owned(), b)]);
    Facts { predecessors: graph(&[("b", &["a"])]), nodes, fresh: true }
}

#[test]
fn a_start_within_the_second_of_readiness_is_no_violation() {
    let second = Moment::within_second(at("05"));
    assert_eq!(violations(&pair(vec![second], moment("05.000", "05.001"))), []);
    assert_eq!(violations(&pair(vec![second], moment("05.999", "06.000"))), []);
    assert_eq!(violations(&pair(vec![second], moment("04.990", "05.000"))), []);
}

#[test]
fn a_start_that_is_over_before_the_second_of_readiness_begins_is_one() {
    let second = Moment::within_second(at("05"));
    let found = violations(&pair(vec![second], moment("04.900", "04.999")));
    let [violation] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((violation.node.as_str(), violation.predecessor.as_str()), ("b", "a"));
    assert_eq!(violation.why, Why::Ready { workload: "deployments/a".into(), at: Some(second) });
    assert_eq!(
        violation.to_string(),
        "`b` started at 2026-01-01T00:00:04.999Z before `a` was ready: deployments/a at 2026-01-01T00:00:05Z"
    );
}

#[test]
fn two_starts_of_a_second_resolution_in_one_second_are_never_told_apart() {
    let started = Moment::within_second(at("05"));
    assert_eq!(violations(&pair(vec![Moment::within_second(at("05"))], started)), []);
    assert_eq!(violations(&pair(vec![Moment::within_second(at("06"))], started)).len(), 1);
}

#[test]
fn a_predecessor_that_was_ready_and_failed_later_was_ready() {
    let ready = vec![Moment::within_second(at("03")), Moment::within_second(at("30"))];
    assert_eq!(violations(&pair(ready, moment("05.000", "05.001"))), []);
}

#[test]
fn readiness_from_before_the_change_does_not_count() {
    let facts = pair(vec![moment("00.100", "00.200")], moment("05.000", "05.001"));
    assert_eq!(violations(&facts)[0].why, Why::Ready { workload: "deployments/a".into(), at: None });
}

#[test]
fn a_predecessor_that_never_became_ready_is_a_violation_at_any_time() {
    assert_eq!(violations(&pair(Vec::new(), moment("59.000", "59.001"))).len(), 1);
}

#[test]
fn a_predecessor_whose_objects_are_written_later_is_a_violation() {
    let mut facts = pair(vec![], moment("00.900", "00.950"));
    facts.nodes.get_mut("a").unwrap().workloads[0].ready = None;
    assert!(matches!(violations(&facts)[0].why, Why::Written { .. }));
}

#[test]
fn a_predecessor_that_was_left_alone_is_a_violation_only_if_nothing_was_there() {
    let mut facts = pair(vec![], moment("05.000", "05.001"));
    facts.nodes.insert("a".into(), NodeFacts::default());
    assert_eq!(violations(&facts)[0].why, Why::NeverDeployed);
    assert_eq!(edges_judged(&facts), 0);
    facts.fresh = false;
    assert_eq!(violations(&facts), []);
}

fn line(verb: &str, who: &str, resource: &str, namespace: &str, name: &str, sub: &str, at: &str) -> String {
    let reference = json!({"resource": resource, "namespace": namespace, "name": name, "subresource": sub});
    json!({
        "stage": "ResponseComplete", "verb": verb, "requestURI": "/x", "user": {"username": who},
        "objectRef": reference, "responseStatus": {"code": 200},
        "requestReceivedTimestamp": format!("2026-01-01T00:00:{at}00Z"),
        "stageTimestamp": format!("2026-01-01T00:00:{at}50Z"),
    })
    .to_string()
}

const CONTROLLER: &str = "system:serviceaccount:argocd:argocd-application-controller";
const SERVER: &str = "system:serviceaccount:argocd:argocd-server";

/// The log of a run in which `b` is asked to sync at a given time, and `a` is ready at 04.7.
fn log(asked: &str) -> Vec<Line> {
    let lines = [
        line("update", SERVER, "applications", "argocd", "a", "", "01.0000"),
        line("create", CONTROLLER, "namespaces", "", "a", "", "01.4000"),
        line("create", CONTROLLER, "deployments", "a", "web", "", "01.5000"),
        line("patch", "system:node:n", "pods", "a", "web-1-x", "status", "02.1000"),
        line("patch", "system:node:n", "pods", "a", "web-1-x", "status", "04.7000"),
        line("patch", CONTROLLER, "applications", "argocd", "b", "", "01.0000"),
        line("update", SERVER, "applications", "argocd", "b", "", asked),
        line("create", CONTROLLER, "configmaps", "b", "c", "", "06.0000"),
    ];
    lines.iter().filter_map(|line| Line::parse(line)).collect()
}

fn pod(name: &str, owner: &str, kind: &str, second: &str) -> Value {
    json!({
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "a", "ownerReferences": [{"kind": kind, "name": owner}]},
        "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at(second).to_string()}]},
    })
}

fn from_log(asked: &str) -> Facts {
    let seen = transitions(&[pod("web-1-x", "web-1", "ReplicaSet", "04")]);
    facts(&graph(&[("b", &["a"])]), &log(asked), &seen, &[], true)
}

#[test]
fn the_request_to_sync_is_the_start_and_the_log_sharpens_the_second_of_readiness() {
    let facts = from_log("05.9000");
    assert_eq!(facts.nodes["b"].started.unwrap().earliest, at("05.9"));
    let web = facts.nodes["a"].workloads.iter().find(|w| w.name == "deployments/web").unwrap();
    assert_eq!(web.ready.as_ref().unwrap()[0].earliest, at("04.7"));
    assert_eq!(violations(&facts), []);
    assert_eq!(edges_judged(&facts), 1);
    // In the second of readiness, but before the request that made it known.
    assert_eq!(violations(&from_log("04.6000")).len(), 1);
    assert_eq!(violations(&from_log("04.7000")), []);
}

#[test]
fn a_change_that_makes_no_new_pod_asks_for_no_readiness() {
    let lines: Vec<Line> = [
        line("patch", CONTROLLER, "deployments", "a", "web", "", "10.0000"),
        line("patch", CONTROLLER, "configmaps", "b", "c", "", "11.0000"),
    ]
    .iter()
    .filter_map(|line| Line::parse(line))
    .collect();
    let seen = transitions(&[pod("web-1-x", "web-1", "ReplicaSet", "04")]);
    let facts = facts(&graph(&[("b", &["a"])]), &lines, &seen, &[], false);
    assert_eq!(facts.nodes["a"].workloads[0].ready, None);
    assert_eq!(violations(&facts), []);
}

#[test]
fn requests_that_were_only_tried_are_no_evidence_and_those_that_failed_changed_nothing() {
    let good = line("create", CONTROLLER, "deployments", "a", "web", "", "01.5000");
    assert!(Line::parse(&good).unwrap().succeeded());
    assert!(!Line::parse(&good.replace("\"code\":200", "\"code\":409")).unwrap().succeeded());
    assert_eq!(Line::parse(&good.replace("\"/x\"", "\"/x?dryRun=All&force=true\"")), None);
    assert_eq!(Line::parse("not json"), None);
}

#[test]
fn two_syncs_of_one_second_are_two_requests_and_only_what_argo_cds_server_really_began_counts() {
    let asked = |at: &str| line("update", SERVER, "applications", "argocd", "a", "", at);
    let lines: Vec<Line> = [
        asked("01.1000"),
        asked("01.2000"),
        // Somebody else wrote it meanwhile, so nothing began.
        asked("01.3000").replace("\"code\":200", "\"code\":409"),
        line("patch", SERVER, "applications", "argocd", "a", "", "01.4000"),
        line("update", CONTROLLER, "applications", "argocd", "a", "", "01.5000"),
        line("update", SERVER, "appprojects", "argocd", "a", "", "01.6000"),
        line("update", SERVER, "applications", "argocd", "b", "", "02.0000"),
    ]
    .iter()
    .filter_map(|line| Line::parse(line))
    .collect();
    assert_eq!(requests(&lines), BTreeMap::from([("a".to_owned(), 2), ("b".to_owned(), 1)]));
}

#[test]
fn jobs_and_custom_resources_are_ready_by_their_own_conditions() {
    let job = json!({
        "kind": "Job", "metadata": {"name": "migrate", "namespace": "a"},
        "status": {"conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T00:00:04Z"}]},
    });
    let cluster = json!({
        "kind": "CephCluster", "metadata": {"name": "main", "namespace": "a"},
        "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:05Z"}]},
    });
    let seen: Vec<String> = transitions(&[job, cluster, pod("migrate-x", "migrate", "Job", "03")])
        .into_iter()
        .map(|transition| transition.workload)
        .collect();
    assert_eq!(seen, ["cephclusters/main", "jobs/migrate"]);
}

#[test]
fn a_request_of_a_later_second_sharpens_nothing() {
    let seen = transitions(&[pod("web-1-x", "web-1", "ReplicaSet", "03")]);
    let facts = facts(&graph(&[("b", &["a"])]), &log("04.0000"), &seen, &[], true);
    let web = facts.nodes["a"].workloads.iter().find(|w| w.name == "deployments/web").unwrap();
    assert_eq!(web.ready.as_ref().unwrap()[0], Moment::within_second(at("03")));
    assert_eq!(violations(&facts), []);
}

#[test]
fn a_request_that_came_too_early_and_wrote_nothing_is_seen() {
    let mut lines = log("05.0000");
    let early = line("update", SERVER, "applications", "argocd", "b", "", "02.0000");
    lines.extend(Line::parse(&early));
    let ready = transitions(&[pod("web-1-x", "web-1", "ReplicaSet", "04")]);
    let graph = graph(&[("b", &["a"])]);
    assert_eq!(violations(&facts(&graph, &log("05.0000"), &ready, &[], true)), []);
    let found = violations(&facts(&graph, &lines, &ready, &[], true));
    assert_eq!(found.len(), 1, "{found:?}");
    // Even where nothing was ever written for it.
    lines.retain(|line| line.resource != "configmaps");
    assert_eq!(violations(&facts(&graph, &lines, &ready, &[], true)).len(), 1);
}
