//! Runs for tests: one in the middle, with a failure and a hostile message, and one that went well.

use jiff::Timestamp;

use crate::digest::Digest;
use crate::duration::Duration;
use crate::gate::{
    Content, Decision, ExprError, Failure, Health, ObjectRef, Progress, Proof, Receipt, Rendered, Retry, SyncRequested,
    SyncState, Timeouts, Unwell, Wait, WaitingFor, Why,
};
use crate::graph::Scope;
use crate::run::{
    Asked, Ended, Entry, Header, Record, RunAction, RunNode, RunPlan, RunTask, Runner, StoredRun, Verdict,
};
use crate::teardown::{self, Remnant, Waiting};

/// A moment: so many seconds after ten o'clock.
pub(crate) fn at(seconds: i64) -> Timestamp {
    let ten: Timestamp = "2026-11-16T10:00:00Z".parse().unwrap();
    ten.checked_add(jiff::SignedDuration::from_secs(seconds)).unwrap()
}

fn plan(run: &str) -> RunPlan {
    let nodes: [(&str, &str, &[usize]); 5] = [
        ("a/one", "argocd/dev-a-one", &[]),
        ("a/two", "argocd/dev-a-two", &[0]),
        ("b/one", "argocd/dev-b-one", &[1]),
        ("argocd/proxy", "argocd/proxy", &[]),
        ("b/two", "argocd/dev-b-two", &[3]),
    ];
    let seconds = Duration::from_seconds;
    let task = |(id, application, before): &(&str, &str, &[usize])| RunTask {
        id: (*id).to_owned(),
        before: before.to_vec(),
        node: Some(RunNode {
            id: id.parse().unwrap(),
            application: application.parse().unwrap(),
            content: Content::Revisions { revisions: vec!["1".to_owned()] },
            images: Default::default(),
            requires: Vec::new(),
            health: Vec::new(),
            timeouts: Timeouts { sync: seconds(300), health: seconds(600) },
            retry: Retry { limit: 3, backoff: seconds(5), factor: 2, max: seconds(120) },
            removal: None,
        }),
    };
    RunPlan {
        run: run.parse().unwrap(),
        environment: "dev".parse().unwrap(),
        action: RunAction::Deploy,
        scope: Scope::Platform,
        plan: Digest::of(b"plan"),
        commit: None,
        repository: None,
        timeout: seconds(3600),
        runner: Runner::Plugin,
        passed: Default::default(),
        band: None,
        tasks: nodes.iter().map(task).collect(),
    }
}

fn header(plan: &RunPlan, offset: i64, ended: Option<Ended>) -> Header {
    let commit = Some("3f2a9c1d5e7b80416a2c9d3e5f70b1a4c6d8e9f0".parse().unwrap());
    Header { commit, ended, ..Header::new(plan, at(offset)) }
}

fn entry(node: &str, ready: i64, asked: &[i64], decision: Decision, since: i64) -> Entry {
    let asked: Vec<Asked> = (1..).zip(asked).map(|(attempt, second)| Asked { attempt, at: at(*second) }).collect();
    Entry {
        node: node.parse().unwrap(),
        progress: Progress {
            ready_at: Some(at(ready)),
            sync_requested: asked.last().map(|asked| SyncRequested { attempt: asked.attempt, at: asked.at }),
            ..Progress::default()
        },
        decision,
        since: at(since),
        started: Some(at(ready)),
        healthy: None,
        asked,
        withdrawn: None,
        removal: None,
    }
}

fn proven(plan: &RunPlan, node: &str, attempt: Option<u32>) -> Decision {
    let id = node.parse().unwrap();
    let found = plan.nodes().find(|node| node.id == id).unwrap();
    Decision::Proven(Box::new(Receipt {
        run: plan.run.clone(),
        node: id,
        application: found.application.clone(),
        attempt,
        synced: attempt.is_some(),
        proof: Proof::Revision,
        commit: None,
        revisions: vec!["1".to_owned()],
        render: None,
        workloads: Default::default(),
        images: Default::default(),
        not_running: Default::default(),
        sidecars: Default::default(),
        objects: Default::default(),
        health: Health::Healthy,
    }))
}

/// In the middle: `a/one` proven, `a/two` failed, `b/one` blocked, `argocd/proxy` syncing, `b/two` waiting for it.
pub(crate) fn stored(run: &str, offset: i64) -> StoredRun {
    let plan = plan(run);
    let failed = |why: Why| Decision::Failed(Failure::from(why));
    let wait = |on: WaitingFor| Decision::Wait(Wait { on, until: at(offset + 600), since: None });
    let hostile = "applying \u{1b}[2J<b>".to_owned();
    let unwell = failed(Why::Unhealthy { health: Health::Degraded, unwell: None });
    let o = offset;
    let entries = [
        entry("a/one", o + 1, &[o + 2], proven(&plan, "a/one", Some(1)), o + 13),
        entry("a/two", o + 14, &[o + 15, o + 20], unwell, o + 60),
        entry("b/one", o + 61, &[], failed(Why::Blocked { by: "a/two".parse().unwrap() }), o + 61),
        entry("argocd/proxy", o + 1, &[o + 2], wait(WaitingFor::Operation { attempt: 1, message: hostile }), o + 3),
        Entry {
            progress: Progress::default(),
            ..entry("b/two", o + 1, &[], wait(WaitingFor::Predecessor { node: "argocd/proxy".parse().unwrap() }), o + 1)
        },
    ];
    let entries = entries.into_iter().map(|entry| (entry.node.clone(), entry)).collect();
    let header = header(&plan, offset, None);
    StoredRun { record: Record { header, entries }, plan, notes: Vec::new() }
}

/// The same, where Argo CD names the resource behind what is wrong with `a/two`.
pub(crate) fn named(run: &str, offset: i64) -> StoredRun {
    let mut run = stored(run, offset);
    let entry = run.record.entries.get_mut(&"a/two".parse().unwrap()).unwrap();
    let why = Why::Unhealthy { health: Health::Degraded, unwell: Some(unwell()) };
    entry.decision = Decision::Failed(Failure::from(why));
    run
}

/// A resource that is not well.
fn unwell() -> Unwell {
    let message = "Deployment \"api\" exceeded its progress deadline".to_owned();
    Unwell { resource: "Deployment/a-two/api".to_owned(), message }
}

/// Every node proven, ten seconds each, `argocd/proxy` without a sync; ended after 40 seconds.
pub(crate) fn all_proven(run: &str, offset: i64) -> StoredRun {
    let plan = plan(run);
    let entries =
        [("a/one", 0), ("a/two", 10), ("b/one", 20), ("argocd/proxy", 0), ("b/two", 10)].map(|(node, from)| {
            let attempt = (node != "argocd/proxy").then_some(1);
            let (ready, asked) = (offset + from, [offset + from]);
            let asked = if attempt.is_some() { &asked[..] } else { &[] };
            entry(node, ready, asked, proven(&plan, node, attempt), ready + 10)
        });
    let entries = entries.into_iter().map(|entry| (entry.node.clone(), entry)).collect();
    let ended = Ended { at: at(offset + 40), verdict: Verdict::Done, message: None };
    let header = header(&plan, offset, Some(ended));
    StoredRun { record: Record { header, entries }, plan, notes: Vec::new() }
}

fn object() -> ObjectRef {
    ObjectRef { api_version: "v1".to_owned(), kind: "ConfigMap".to_owned(), name: "ready".to_owned(), namespace: None }
}

const HEALTHS: [Health; 5] =
    [Health::Progressing, Health::Degraded, Health::Suspended, Health::Missing, Health::Unknown];

/// How Argo CD quotes our plugin.
const PLUGIN: &str =
    "`catalyst-forge-cmp generate` failed exit status 3: error[FORGE-N001]: no release `x`\n\nhint: push it";

/// Every reason to fail. The match keeps this list complete: a new variant does not compile until it is here.
pub(crate) fn every_why() -> Vec<Why> {
    let message = "boom".to_owned();
    let digest = Digest::of(b"x");
    let container: crate::gate::ContainerKey = "Deployment/a/b/c".parse().unwrap();
    let node: crate::name::NodeId = "a/one".parse().unwrap();
    let mut all = vec![
        Why::Blocked { by: node.clone() },
        Why::RunTimeout { predecessor: Some(node) },
        Why::RunTimeout { predecessor: None },
        Why::MissingApplication,
        Why::ForeignOperation,
        Why::Superseded { attempt: 1 },
        Why::SyncNotStarted { attempt: 1, message: message.clone() },
        Why::Flapping { falls: 1, restarts: 2 },
        Why::SyncTimeout { attempt: 1, message: message.clone() },
        Why::SyncFailed { attempt: 1, message: message.clone() },
        Why::RefreshUnanswered,
        Why::Comparison { message: message.clone() },
        Why::Comparison { message: PLUGIN.to_owned() },
        Why::Empty,
        Why::CommitMissing { commit: "3f2a9c1d5e7b80416a2c9d3e5f70b1a4c6d8e9f0".parse().unwrap() },
        Why::RepositoryUnread { message: message.clone() },
        Why::FolderMoved,
        Why::RevisionMoved { wanted: vec![], found: vec![] },
        Why::NotInSync { sync: SyncState::OutOfSync },
        Why::NotRendered { release: digest.clone(), found: Rendered::Nothing },
        Why::NotRendered { release: digest.clone(), found: Rendered::Release { digest: digest.clone() } },
        Why::NotRendered { release: digest.clone(), found: Rendered::Pointer },
        Why::NotRendered { release: digest.clone(), found: Rendered::Output },
        Why::StaleGeneration { workload: "Deployment/a/b".to_owned() },
        Why::WrongImage { container, wanted: digest, running: None },
        Why::MissingObject { object: object() },
        Why::RuleUnmet { object: object(), detail: message },
        Why::RuleBroken { object: object(), error: ExprError::TooLong(1) },
    ];
    all.extend(HEALTHS.map(|health| Why::Unhealthy { health, unwell: None }));
    all.push(Why::Unhealthy { health: Health::Degraded, unwell: Some(unwell()) });
    all.extend(removals().into_iter().map(|why| Why::Removal { why }));
    let counted: std::collections::BTreeSet<usize> = all.iter().map(number).collect();
    assert_eq!(counted.len(), 25, "a reason is missing here");
    all
}

fn number(why: &Why) -> usize {
    match why {
        Why::Blocked { .. } => 0,
        Why::RunTimeout { .. } => 1,
        Why::MissingApplication => 2,
        Why::ForeignOperation => 3,
        Why::Superseded { .. } => 4,
        Why::SyncNotStarted { .. } => 5,
        Why::SyncTimeout { .. } => 6,
        Why::SyncFailed { .. } => 7,
        Why::RefreshUnanswered => 8,
        Why::Comparison { .. } => 9,
        Why::Empty => 10,
        Why::CommitMissing { .. } => 11,
        Why::RepositoryUnread { .. } => 12,
        Why::FolderMoved => 13,
        Why::RevisionMoved { .. } => 14,
        Why::NotInSync { .. } => 15,
        Why::NotRendered { .. } => 16,
        Why::StaleGeneration { .. } => 17,
        Why::WrongImage { .. } => 18,
        Why::Unhealthy { .. } => 19,
        Why::MissingObject { .. } => 20,
        Why::RuleUnmet { .. } => 21,
        Why::RuleBroken { .. } => 22,
        Why::Flapping { .. } => 23,
        Why::Removal { .. } => 24,
    }
}

/// Objects that are still there, of each sort.
fn remnants() -> [Vec<Remnant>; 4] {
    let live = serde_json::json!({"metadata": {"deletionTimestamp": at(0).to_string(), "finalizers": ["x/y"]}});
    [
        Vec::new(),
        vec![Remnant::read("Widget/shop/main", &live)],
        vec![Remnant::read("Widget/shop/main", &serde_json::json!({}))],
        vec![Remnant::unread("Widget/shop/main", "forbidden")],
    ]
}

/// Every reason not to go.
fn removals() -> Vec<teardown::Why> {
    let node: crate::name::NodeId = "a/one".parse().unwrap();
    let mut all = vec![
        teardown::Why::Blocked { by: node.clone() },
        teardown::Why::RunTimeout { dependent: Some(node) },
        teardown::Why::RunTimeout { dependent: None },
        teardown::Why::Operation,
        teardown::Why::NotDeleted { message: "boom".to_owned() },
        teardown::Why::NotCleared,
        teardown::Why::Recreated { by: None },
    ];
    for remnants in remnants() {
        all.push(teardown::Why::Stuck { remnants: remnants.clone(), error: None, at: at(9) });
        all.push(teardown::Why::Left { remnants, at: at(9) });
    }
    all
}

/// Everything to wait for. `advice_waiting` itself keeps this complete: its match has no rest.
pub(crate) fn every_wait() -> Vec<WaitingFor> {
    let message = "boom".to_owned();
    let mut all = vec![
        WaitingFor::Predecessor { node: "a/one".parse().unwrap() },
        WaitingFor::Application,
        WaitingFor::ForeignOperation,
        WaitingFor::ForeignTermination { asked: true },
        WaitingFor::Refresh { asked: true },
        WaitingFor::SyncRequest { attempt: 1 },
        WaitingFor::SyncStart { attempt: 1, message: message.clone() },
        WaitingFor::Settling { falls: 1, restarts: 2 },
        WaitingFor::Operation { attempt: 1, message: message.clone() },
        WaitingFor::Backoff { attempt: 1, message: message.clone() },
        WaitingFor::Comparison { message: message.clone() },
        WaitingFor::Comparison { message: PLUGIN.to_owned() },
        WaitingFor::Commit { commit: "3f2a9c1d5e7b80416a2c9d3e5f70b1a4c6d8e9f0".parse().unwrap() },
        WaitingFor::Repository { read: false },
        WaitingFor::Tree,
        WaitingFor::InSync { sync: SyncState::OutOfSync },
        WaitingFor::Receipt,
        WaitingFor::Render { release: Digest::of(b"x") },
        WaitingFor::Generation { workload: "Deployment/a/b".to_owned() },
        WaitingFor::Image { container: "Deployment/a/b/c".parse().unwrap() },
        WaitingFor::Object { object: object(), read: true },
        WaitingFor::Rule { object: object(), detail: message },
    ];
    all.extend(HEALTHS.map(|health| WaitingFor::Health { health, unwell: None }));
    all.push(WaitingFor::Health { health: Health::Progressing, unwell: Some(unwell()) });
    let mut removal = vec![
        Waiting::Dependent { node: "a/one".parse().unwrap() },
        Waiting::Request,
        Waiting::Shown { message: "boom".to_owned() },
        Waiting::Operation,
        Waiting::Clearance,
    ];
    for remnants in remnants() {
        removal.push(Waiting::Deletion { remnants: remnants.clone(), error: None });
        removal.push(Waiting::Members { remnants });
    }
    all.extend(removal.into_iter().map(|on| WaitingFor::Removal { on }));
    all
}
