//! The simulated run: order, blast radius and determinism on random graphs (SPEC sections 1 and 6).
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

use std::collections::BTreeSet;

use forge_core::duration::Duration;
use forge_core::gate::{Retry, Timeouts};
use forge_core::simulate::{Change, Event, Moment, NodeState, Options, Outcome, Subject, run};
use proptest::prelude::*;

fn subject(index: usize, predecessors: Vec<usize>, wave: usize) -> Subject {
    Subject {
        id: format!("shop/n{index}").parse().unwrap(),
        application: format!("argocd/dev-shop-n{index}").parse().unwrap(),
        predecessors,
        wave,
        timeouts: Timeouts { sync: Duration::from_seconds(300), health: Duration::from_seconds(600) },
        retry: Retry { limit: 3, backoff: Duration::from_seconds(5), factor: 2, max: Duration::from_seconds(120) },
    }
}

/// Edges point from lower to higher; waves are the longest way from a root.
fn graph(edges: Vec<BTreeSet<usize>>) -> Vec<Subject> {
    let mut subjects: Vec<Subject> = Vec::new();
    for (index, predecessors) in edges.into_iter().enumerate() {
        let wave = predecessors.iter().map(|p| subjects[*p].wave + 1).max().unwrap_or(0);
        subjects.push(subject(index, predecessors.into_iter().collect(), wave));
    }
    subjects
}

fn graphs() -> impl Strategy<Value = Vec<Subject>> {
    (1..40_usize)
        .prop_flat_map(|count| {
            (0..count).map(|n| prop::collection::btree_set(0..n.max(1), 0..=n.min(4))).collect::<Vec<_>>()
        })
        .prop_map(|mut edges| {
            edges[0].clear();
            graph(edges)
        })
}

fn options(seed: u64, fail: impl IntoIterator<Item = usize>) -> Options {
    let fail = fail.into_iter().map(|n| format!("shop/n{n}").parse().unwrap()).collect();
    Options { seed, fail, run_timeout: Duration::from_seconds(30 * 24 * 3600) }
}

fn play(subjects: &[Subject], options: &Options) -> (Outcome, Vec<Event>) {
    let mut events = Vec::new();
    let outcome = run(subjects, options, |event| events.push(event.clone()));
    (outcome, events)
}

/// Everything that depends on one of these, without them.
fn dependents(subjects: &[Subject], failed: &BTreeSet<usize>) -> BTreeSet<usize> {
    let mut reached = failed.clone();
    loop {
        let more: Vec<usize> = (0..subjects.len())
            .filter(|n| !reached.contains(n) && subjects[*n].predecessors.iter().any(|p| reached.contains(p)))
            .collect();
        if more.is_empty() {
            return reached.difference(failed).copied().collect();
        }
        reached.extend(more);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(forge_testkit::cases(300)))]

    #[test]
    fn a_node_starts_only_after_all_its_predecessors_are_proven(
        subjects in graphs(), seed in any::<u64>(), fail in prop::collection::btree_set(0..40_usize, 0..4)
    ) {
        let (outcome, events) = play(&subjects, &options(seed, fail.clone()));
        let mut proven = BTreeSet::new();
        let mut ended = BTreeSet::new();
        let mut last = Moment(0);
        for event in &events {
            prop_assert!(event.at >= last);
            last = event.at;
            match &event.change {
                Change::Started => {
                    prop_assert!(subjects[event.node].predecessors.iter().all(|p| proven.contains(p)));
                }
                Change::Proven => drop(proven.insert(event.node)),
                Change::Blocked(by) => {
                    prop_assert!(subjects[event.node].predecessors.contains(by));
                    prop_assert!(ended.contains(by) && !proven.contains(by));
                }
                _ => {}
            }
            if matches!(event.change, Change::Proven | Change::Failed(_) | Change::Blocked(_)) {
                prop_assert!(ended.insert(event.node), "ended twice");
            }
        }
        prop_assert_eq!(ended.len(), subjects.len());
        prop_assert!(outcome.never_started.is_empty());
        for (subject, node) in subjects.iter().zip(&outcome.nodes) {
            let ready = subject.predecessors.iter().map(|p| outcome.nodes[*p].finished.unwrap()).max();
            if let Some(started) = node.started {
                prop_assert_eq!(started, ready.unwrap_or_default());
            }
        }
    }

    #[test]
    fn a_failure_blocks_all_that_depends_on_it_and_nothing_else(
        subjects in graphs(), seed in any::<u64>(), fail in prop::collection::btree_set(0..40_usize, 0..4)
    ) {
        let (outcome, _) = play(&subjects, &options(seed, fail.clone()));
        let fail: BTreeSet<usize> = fail.into_iter().filter(|n| *n < subjects.len()).collect();
        // One that would fail but depends on another that does never gets that far.
        let first = |n: &usize| !dependents(&subjects, &fail.iter().copied().filter(|m| m != n).collect()).contains(n);
        let failed: BTreeSet<usize> = fail.iter().copied().filter(first).collect();
        prop_assert_eq!(outcome.failed.iter().copied().collect::<BTreeSet<_>>(), failed.clone());
        prop_assert_eq!(outcome.blocked.iter().copied().collect::<BTreeSet<_>>(), dependents(&subjects, &failed));
        for node in &outcome.blocked {
            prop_assert!(outcome.nodes[*node].started.is_none());
        }
    }

    #[test]
    fn without_a_failure_the_graph_is_never_slower_than_its_waves(subjects in graphs(), seed in any::<u64>()) {
        let (outcome, _) = play(&subjects, &options(seed, []));
        prop_assert!(outcome.nodes.iter().all(|node| node.state == NodeState::Proven));
        prop_assert!(outcome.makespan <= outcome.wave_barriers);
        prop_assert!((1..=subjects.len()).contains(&outcome.max_parallel));
        let path = &outcome.critical_path;
        prop_assert_eq!(outcome.nodes[path[0]].started, Some(Moment(0)));
        prop_assert_eq!(outcome.nodes[*path.last().unwrap()].finished, Some(outcome.makespan));
        for pair in path.windows(2) {
            prop_assert!(subjects[pair[1]].predecessors.contains(&pair[0]));
            prop_assert_eq!(outcome.nodes[pair[0]].finished, outcome.nodes[pair[1]].started);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_events(subjects in graphs(), seed in any::<u64>()) {
        prop_assert_eq!(play(&subjects, &options(seed, [0])), play(&subjects, &options(seed, [0])));
    }
}

#[test]
fn a_failed_node_fails_at_its_health_timeout_and_says_so() {
    let subjects = graph(vec![BTreeSet::new(), BTreeSet::from([0]), BTreeSet::from([1]), BTreeSet::new()]);
    let (outcome, events) = play(&subjects, &options(7, [0]));
    assert_eq!(outcome.nodes[0].state, NodeState::Failed { why: "health stayed Degraded".to_owned() });
    assert_eq!((outcome.failed, outcome.blocked), (vec![0], vec![1, 2]));
    assert_eq!(outcome.nodes[3].state, NodeState::Proven);
    assert!(outcome.makespan >= Moment(600_000) && outcome.makespan < Moment(640_000), "{:?}", outcome.makespan);
    assert!(events.iter().any(|e| e.node == 0 && e.change == Change::WaitingFor("health is Degraded".to_owned())));
}

#[test]
fn about_three_nodes_in_a_hundred_are_retried_and_all_are_proven() {
    let subjects: Vec<Subject> = (0..2000).map(|n| subject(n, vec![], 0)).collect();
    let (outcome, events) = play(&subjects, &options(1, []));
    let syncs = events.iter().filter(|e| e.change == Change::Syncing).count();
    assert!((2030..2100).contains(&syncs), "{syncs}");
    assert!(outcome.failed.is_empty());
    assert_eq!(outcome.max_parallel, 2000);
}

#[test]
fn the_run_timeout_ends_every_node() {
    let subjects = graph(vec![BTreeSet::new(), BTreeSet::from([0])]);
    for seconds in [0, 1, 3] {
        let options = Options { run_timeout: Duration::from_seconds(seconds), ..options(1, []) };
        let (outcome, _) = play(&subjects, &options);
        assert_eq!(outcome.nodes[0].state, NodeState::Failed { why: "the run timed out".to_owned() });
        assert_eq!(outcome.nodes[1].state, NodeState::Blocked { by: 0 });
        assert_eq!(outcome.makespan, Moment(seconds * 1000));
    }
}

#[test]
fn what_is_no_graph_never_starts_and_never_hangs() {
    let subjects = vec![subject(0, vec![1], 0), subject(1, vec![0], 0), subject(2, vec![99], 0), subject(3, vec![], 0)];
    let (outcome, _) = play(&subjects, &options(1, []));
    assert_eq!(outcome.never_started, [0, 1, 2]);
    assert_eq!(outcome.nodes[3].state, NodeState::Proven);
    assert_eq!(run(&[], &options(1, []), |_| {}), Outcome::default());
}

#[test]
fn ten_thousand_nodes_are_looked_at_a_few_times_each() {
    let mut edges: Vec<BTreeSet<usize>> = Vec::new();
    for n in 0..10_000_usize {
        edges.push((1..=5).filter_map(|k| (n * 7919 * k).checked_rem(n)).collect::<BTreeSet<_>>());
        if n > 50 {
            edges[n] = (1..=5).map(|k| n - 1 - (n * 31 + k * 7) % 50).collect();
        }
    }
    let subjects = graph(edges);
    let (outcome, events) = play(&subjects, &options(3, []));
    assert!(outcome.failed.is_empty() && outcome.never_started.is_empty());
    // The clock is not ours to read here; the number of events bounds the number of looks.
    assert!(events.len() < 10_000 * 12, "{}", events.len());
}
