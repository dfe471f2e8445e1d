//! The state table of the gate (SPEC section 6): `tests/gate/cases.json`, and what must hold beyond it.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may fail loudly")]

use forge_core::gate::{
    Act, Content, Decision, Folder, Freshness, Health, Observed, Operation, Phase, PredecessorState, Progress, Proof,
    Receipt, SyncRequested, SyncState, Wait, Wanted, decide, remember,
};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Table {
    wanted: Value,
    observed: Value,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    now: String,
    #[serde(default)]
    wanted: Value,
    #[serde(default)]
    observed: Value,
    expect: String,
}

fn table() -> Table {
    serde_json::from_str(include_str!("gate/cases.json")).unwrap()
}

/// RFC 7396.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Default::default());
    }
    let target = target.as_object_mut().unwrap();
    for (key, field) in fields {
        if field.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key).or_insert(Value::Null), field);
        }
    }
}

fn patched<T: for<'de> Deserialize<'de>>(base: &Value, patch: &Value) -> T {
    let mut value = base.clone();
    if !patch.is_null() {
        merge(&mut value, patch);
    }
    serde_json::from_value(value).unwrap()
}

fn base() -> (Wanted, Observed) {
    let table = table();
    (patched(&table.wanted, &Value::Null), patched(&table.observed, &Value::Null))
}

fn time(clock: &str) -> Timestamp {
    format!("2026-01-01T{clock}Z").parse().unwrap()
}

fn clock(moment: Timestamp) -> String {
    moment.to_string().rsplit('T').next().unwrap().to_owned()
}

fn act(act: Act) -> String {
    match act {
        Act::RequestSync { attempt } => format!("requestSync {attempt}"),
        Act::RequestRefresh => "requestRefresh".to_owned(),
        Act::RequestHardRefresh => "requestHardRefresh".to_owned(),
        Act::TerminateForeign => "terminateForeign".to_owned(),
        Act::ReadTree => "readTree".to_owned(),
        Act::ReadRepository => "readRepository".to_owned(),
        Act::ReadReceipt => "readReceipt".to_owned(),
    }
}

/// A decision as one line.
fn line(decision: &Decision) -> String {
    match decision {
        Decision::Proven(receipt) => {
            let proof = if receipt.proof == Proof::Digest { "digest" } else { "revision" };
            assert_eq!(receipt.synced, receipt.attempt.is_some());
            let attempt = receipt.attempt.map_or("nothing had to change".to_owned(), |n| format!("sync {n}"));
            format!("proven: {proof}, {attempt}")
        }
        Decision::Wait(Wait { on, until, since }) => {
            let since = since.map(|since| format!(" since {}", clock(since))).unwrap_or_default();
            let act = on.act().map(|a| format!(" [act: {}]", act(a))).unwrap_or_default();
            format!("wait: {on} until {}{since}{act}", clock(*until))
        }
        Decision::Gone(removed) => panic!("the gate removes nothing: {removed}"),
        Decision::Failed(failure) => {
            let class = serde_json::to_value(failure.class).unwrap();
            format!("failed ({}): {}", class.as_str().unwrap(), failure.why)
        }
    }
}

#[test]
fn every_case_of_the_state_table_is_decided_as_written() {
    let table = table();
    assert!(table.cases.len() >= 60);
    let mut wrong = Vec::new();
    let mut names = std::collections::BTreeSet::new();
    for case in &table.cases {
        assert!(names.insert(&case.name), "two cases are called `{}`", case.name);
        let (wanted, observed): (Wanted, Observed) =
            (patched(&table.wanted, &case.wanted), patched(&table.observed, &case.observed));
        let decision = decide(&wanted, &observed, time(&case.now));
        let found = line(&decision);
        // A star stands for the parser's own words.
        let fits = match case.expect.strip_suffix('*') {
            Some(start) => found.starts_with(start),
            None => found == case.expect,
        };
        if !fits {
            wrong.push(format!("{}\n  expected {}\n  found    {found}", case.name, case.expect));
        }
        let json = serde_json::to_string(&decision).unwrap();
        assert_eq!(serde_json::from_str::<Decision>(&json).unwrap(), decision, "{}", case.name);
        assert_eq!(line(&ends(&wanted, &observed, time(&case.now), &case.name)), found);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Every wait lies ahead, and where there is nothing to do, time alone ends it.
fn ends(wanted: &Wanted, observed: &Observed, now: Timestamp, name: &str) -> Decision {
    let decision = decide(wanted, observed, now);
    if let Decision::Wait(wait) = &decision {
        assert!(wait.until > now, "{name}: {wait:?}");
        if wait.on.act().is_none() {
            let mut later = observed.clone();
            later.progress = remember(wanted, observed, now);
            let next = decide(wanted, &later, wait.until);
            let same = matches!(&next, Decision::Wait(again) if again.on == wait.on && again.on.act().is_none());
            assert!(!same, "{name}: still {next:?}");
        }
    }
    decision
}

#[test]
fn a_receipt_lists_what_was_compared_and_what_was_not() {
    let (wanted, mut observed) = base();
    let receipt = |observed: &Observed| -> Receipt {
        match decide(&wanted, observed, time("12:03:00")) {
            Decision::Proven(receipt) => *receipt,
            other => panic!("{other:?}"),
        }
    };
    let full = receipt(&observed);
    assert_eq!(full.images, wanted.images);
    assert_eq!(full.sidecars.keys().map(ToString::to_string).collect::<Vec<_>>(), ["Deployment/shop/api/istio-proxy"]);
    assert!(full.not_running.is_empty());
    assert_eq!(full.workloads.values().copied().collect::<Vec<_>>(), [3]);
    assert_eq!(full.objects.len(), 2);
    let tree = observed.application.as_mut().unwrap().tree.as_mut().unwrap();
    tree.containers.reverse();
    tree.objects.reverse();
    assert_eq!(serde_json::to_vec(&receipt(&observed)).unwrap(), serde_json::to_vec(&full).unwrap());
    observed.application.as_mut().unwrap().tree.as_mut().unwrap().containers.clear();
    assert_eq!(receipt(&observed).not_running.len(), 1);
}

#[test]
fn what_others_did_before_a_node_was_ready_is_not_held_against_it() {
    let (wanted, mut observed) = base();
    let now = time("12:03:00");
    observed.progress = Progress::default();
    operation(&mut observed, |op| (op.nonce, op.phase) = (None, Phase::Running));
    set_first(&mut observed, PredecessorState::Waiting);
    let early = remember(&wanted, &observed, now);
    assert_eq!((early.ready_at, early.foreign_since, early.foreign_seen), (None, None, false));
    set_first(&mut observed, PredecessorState::Proven);
    let ready = remember(&wanted, &observed, now);
    assert_eq!((ready.ready_at, ready.foreign_since, ready.foreign_seen), (Some(now), Some(now), true));
}

#[test]
fn since_when_an_application_is_gone_is_forgotten_when_it_is_back() {
    let (wanted, mut observed) = base();
    let there = observed.application.take();
    let gone = remember(&wanted, &observed, time("12:30:00"));
    assert_eq!(gone.absent_since, Some(time("12:30:00")));
    observed.progress = gone;
    assert_eq!(remember(&wanted, &observed, time("12:31:00")).absent_since, Some(time("12:30:00")));
    observed.application = there;
    assert_eq!(remember(&wanted, &observed, time("12:32:00")).absent_since, None);
}

/// Each breaks one condition that a proof needs; none may survive it.
type Break = (&'static str, fn(&mut Wanted, &mut Observed));

const BREAKS: &[Break] = &[
    ("predecessor waits", |_, o| set_first(o, PredecessorState::Waiting)),
    ("predecessor failed", |_, o| set_first(o, PredecessorState::Failed)),
    ("predecessor unknown", |_, o| drop(o.predecessors.pop_first())),
    ("run over", |_, o| o.deadline = time("12:00:00")),
    ("application gone", |_, o| o.application = None),
    ("foreign operation runs", |_, o| operation(o, |op| (op.nonce, op.phase) = (None, Phase::Running))),
    ("last operation failed", |_, o| operation(o, |op| op.phase = Phase::Failed)),
    ("last operation errored", |_, o| operation(o, |op| op.phase = Phase::Error)),
    ("operation runs", |_, o| operation(o, |op| op.phase = Phase::Running)),
    ("refresh not asked", |_, o| app(o).refresh = Freshness::NotAsked),
    ("refresh not answered", |_, o| app(o).refresh = Freshness::Asked),
    ("comparison error", |_, o| app(o).conditions.push("x".to_owned())),
    ("empty", |_, o| app(o).resources = 0),
    ("out of sync", |_, o| app(o).sync = SyncState::OutOfSync),
    ("sync unknown", |_, o| app(o).sync = SyncState::Unknown),
    ("content", |w, o| match &mut w.content {
        Content::Revisions { .. } => app(o).revisions.push("x".to_owned()),
        Content::Git { .. } | Content::Release { .. } => app(o).git = None,
    }),
    ("content moved", |w, o| match &mut w.content {
        Content::Revisions { revisions } => revisions.clear(),
        _ => app(o).git.as_mut().unwrap().folder = Folder::Changed,
    }),
    ("content unknown", |w, o| match &mut w.content {
        Content::Revisions { .. } => app(o).revisions.clear(),
        _ => app(o).git.as_mut().unwrap().folder = Folder::Unknown,
    }),
    ("commit not contained", |w, o| match &mut w.content {
        Content::Revisions { revisions } => revisions.push("x".to_owned()),
        _ => app(o).git.as_mut().unwrap().contains_commit = false,
    }),
    ("render", |w, o| match &w.content {
        Content::Release { .. } => app(o).render = None,
        _ => app(o).tree = None,
    }),
    ("receipt unread", |w, o| match &w.content {
        Content::Release { .. } => app(o).render_unread = true,
        _ => app(o).tree = None,
    }),
    ("another pointer", |w, o| match &mut w.content {
        Content::Release { pointer, .. } => *pointer = Some(forge_core::digest::Digest::of(b"other")),
        _ => app(o).tree = None,
    }),
    ("tree unread", |_, o| app(o).tree = None),
    ("generation", |_, o| app(o).tree.as_mut().unwrap().workloads[0].generation += 1),
    ("generation unknown", |_, o| app(o).tree.as_mut().unwrap().workloads[0].observed_generation = None),
    ("image", |w, o| {
        let key = app(o).tree.as_ref().unwrap().containers[0].key.clone();
        w.images.insert(key, forge_core::digest::Digest::of(b"other"));
    }),
    ("image unknown", |w, o| {
        let container = &mut app(o).tree.as_mut().unwrap().containers[0];
        w.images.entry(container.key.clone()).or_insert(forge_core::digest::Digest::of(b"other"));
        container.image = None;
    }),
    ("progressing", |_, o| app(o).health = Health::Progressing),
    ("degraded", |_, o| app(o).health = Health::Degraded),
    ("suspended", |_, o| app(o).health = Health::Suspended),
    ("missing", |_, o| app(o).health = Health::Missing),
    ("health unknown", |_, o| app(o).health = Health::Unknown),
    ("required absent", |_, o| app(o).tree.as_mut().unwrap().objects[0].value = None),
    ("required unread", |_, o| drop(app(o).tree.as_mut().unwrap().objects.remove(0))),
    ("rule false", |w, _| w.health[0].expr = "false".to_owned()),
    ("rule no boolean", |w, _| w.health[0].expr = "1".to_owned()),
    ("rule broken", |w, _| w.health[0].expr = "((".to_owned()),
    ("rule object empty", |_, o| app(o).tree.as_mut().unwrap().objects[1].value = Some(Value::Null)),
];

fn app(observed: &mut Observed) -> &mut forge_core::gate::ApplicationState {
    observed.application.as_mut().unwrap()
}

fn set_first(observed: &mut Observed, state: PredecessorState) {
    *observed.predecessors.values_mut().next().unwrap() = state;
}

fn operation(observed: &mut Observed, change: fn(&mut Operation)) {
    change(app(observed).operation.as_mut().unwrap());
}

/// States that are proven, in several ways.
fn proven() -> impl Strategy<Value = (Wanted, Observed, Timestamp)> {
    (0..3_u8, any::<bool>(), any::<bool>(), 1..5_u32, 120..7000_i64, any::<bool>()).prop_map(
        |(content, ours, images, attempt, seconds, foreign)| {
            let (mut wanted, mut observed) = base();
            let Content::Release { commit, .. } = wanted.content.clone() else { unreachable!() };
            match content {
                0 => {}
                1 => wanted.content = Content::Git { commit },
                _ => wanted.content = Content::Revisions { revisions: app(&mut observed).revisions.clone() },
            }
            if !images {
                wanted.images.clear();
            }
            let operation = app(&mut observed).operation.as_mut().unwrap();
            if ours {
                operation.nonce.as_mut().unwrap().attempt = attempt;
                observed.progress.sync_requested = Some(SyncRequested { attempt, at: time("12:01:00") });
                observed.progress.foreign_seen = foreign;
            } else {
                operation.nonce = None;
                observed.progress.sync_requested = None;
            }
            (wanted, observed, time("12:00:00") + SignedDuration::from_secs(seconds))
        },
    )
}

fn moment() -> impl Strategy<Value = Timestamp> {
    (0..9000_i64).prop_map(|s| time("12:00:00") + SignedDuration::from_secs(s))
}

/// Anything at all: a proven state in which any number of things is broken, at any time.
fn anything() -> impl Strategy<Value = (Wanted, Observed, Timestamp)> {
    let times = prop::collection::vec(prop::option::of(moment()), 8);
    let breaks = prop::collection::vec(prop::sample::select(BREAKS), 0..3);
    (proven(), breaks, times, moment(), 0..4_u32, any::<bool>(), 0..4_u8).prop_map(
        |((mut wanted, mut observed, _), breaks, times, now, limit, ours, attempt)| {
            for (_, change) in breaks {
                // Some breaks need what another has taken away.
                if observed.application.as_ref().is_some_and(|a| {
                    a.git.is_some()
                        && a.operation.is_some()
                        && a.tree.as_ref().is_some_and(|t| t.objects.len() == 2 && !t.containers.is_empty())
                }) && !observed.predecessors.is_empty()
                {
                    change(&mut wanted, &mut observed);
                }
            }
            wanted.retry.limit = limit;
            let progress = &mut observed.progress;
            progress.ready_at = times[0];
            progress.attempt_failed_at = times[1];
            progress.operation_finished_seen_at = times[2];
            progress.foreign_since = times[3];
            progress.terminated_at = times[4];
            progress.rendered_anew_at = times[6];
            progress.absent_since = times[7];
            progress.sync_requested =
                times[5].filter(|_| ours).map(|at| SyncRequested { attempt: u32::from(attempt), at });
            (wanted, observed, now)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(forge_testkit::cases(2000)))]

    #[test]
    fn breaking_any_one_condition_undoes_the_proof((wanted, observed, now) in proven()) {
        prop_assert!(matches!(decide(&wanted, &observed, now), Decision::Proven(_)));
        for (name, change) in BREAKS {
            let (mut wanted, mut observed) = (wanted.clone(), observed.clone());
            change(&mut wanted, &mut observed);
            let decision = decide(&wanted, &observed, now);
            prop_assert!(!matches!(decision, Decision::Proven(_)), "{name}");
        }
    }

    #[test]
    fn nothing_panics_and_every_wait_ends((wanted, observed, now) in anything()) {
        ends(&wanted, &observed, now, "anything");
        let once = remember(&wanted, &observed, now);
        let again = Observed { progress: once.clone(), ..observed.clone() };
        prop_assert_eq!(remember(&wanted, &again, now), once);
        prop_assert_eq!(decide(&wanted, &again, now), decide(&wanted, &observed, now));
    }
}
