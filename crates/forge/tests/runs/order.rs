//! Order on random graphs, judged from the API server's audit log and the cluster's own times (INV-1).
//!
//! `FORGE_SEED` and `FORGE_ROUNDS` replay and lengthen it, `FORGE_AT_ONCE` is how many runs go on beside each other:
//! `make soak` sets them.

use std::collections::{BTreeMap, BTreeSet};

use forge_testkit::campaign::{graphs, number};
use forge_testkit::order;
use forge_testkit::random_graph::{Behaviour, RandomNode, blocked, random};

use crate::stage::Stage;

#[test]
fn no_node_of_a_random_graph_starts_before_its_predecessors_are_healthy() {
    let (seed, rounds) = (number("FORGE_SEED", 3), number("FORGE_ROUNDS", 5));
    graphs("order", (seed, rounds), 2, one);
}

fn one(seed: u64) -> usize {
    let nodes = random(seed, 12);
    let stage = Stage::new("order", seed.is_multiple_of(2), |options| {
        nodes
            .iter()
            .map(|node| {
                let mut twin = node.twin(&options.image);
                // What fails is not waited for; what is well has its time, also on a machine with other work.
                if !node.is_well() {
                    twin.settings = "timeouts: {sync: 60s, health: 20s}".to_owned();
                }
                twin
            })
            .collect()
    });
    let name = |node: &str| stage.options.application(node);
    let predecessors: BTreeMap<String, BTreeSet<String>> =
        nodes.iter().map(|node| (name(&node.name), node.depends_on.iter().map(|p| name(p)).collect())).collect();
    let recorder = stage.environment.record();
    // Of two pairs of seeds one runs as a large graph does, in bands: its edges are kept by the plugin alone.
    let banded = (seed / 2).is_multiple_of(2);
    let deploy: &[&str] = if banded { &["platform", "deploy", "--band", "4"] } else { &["platform", "deploy"] };
    let ended = stage.forge(deploy);
    let well = nodes.iter().all(RandomNode::is_well);
    if well {
        assert_eq!(ended.code, 0, "seed {seed}: {}\n{}", ended.stdout, ended.stderr);
    } else {
        assert!([1, 2, 4].contains(&ended.code), "seed {seed}: {} {}\n{}", ended.code, ended.stdout, ended.stderr);
    }
    let facts = stage.environment.facts(&predecessors, recorder, &[], true);
    assert_eq!(order::violations(&facts), [], "seed {seed}: {facts:#?}");
    // What depends on a node that fails never starts. What depends on one that flaps may have started before its proof was
    // withdrawn, and then it may have been synced again; everything else is proven.
    let blocked = blocked(&nodes);
    let mut doubtful: BTreeSet<String> = BTreeSet::new();
    for node in &nodes {
        let below = node.depends_on.iter().any(|before| doubtful.contains(before));
        if below || node.behaviour == Behaviour::Flaps {
            doubtful.insert(node.name.clone());
        }
    }
    let certain: Vec<&RandomNode> = nodes.iter().filter(|node| !doubtful.contains(&node.name)).collect();
    let settled = certain.iter().map(|node| (name(&node.name), predecessors[&name(&node.name)].clone())).collect();
    let (early, judged) = stage.began_too_early(&settled);
    assert_eq!(early, Vec::<String>::new(), "seed {seed}");
    let entries = stage.entries();
    let syncs = stage.all_syncs();
    assert_eq!(syncs.len(), nodes.len());
    let synced = |node: &str| syncs[node] > 0;
    let both = |node: &RandomNode| node.depends_on.iter().filter(|before| synced(before)).count();
    let edges: usize = nodes.iter().filter(|node| synced(&node.name)).map(both).sum();
    assert_eq!(order::edges_judged(&facts), edges, "seed {seed}: {facts:#?}");
    let told: usize = certain.iter().filter(|node| synced(&node.name)).map(|node| node.depends_on.len()).sum();
    assert_eq!(judged, told, "seed {seed}: by Argo CD's own times");
    for node in &nodes {
        let answer = entries.get(&node.name).map(|entry| entry["decision"]["type"].as_str().unwrap_or_default());
        if blocked.contains(&node.name) {
            let known = facts.nodes.get(&name(&node.name)).and_then(|facts| facts.started);
            assert_eq!((syncs[&node.name], known), (0, None), "seed {seed}: {} started", node.name);
        } else if node.behaviour == Behaviour::Flaps {
            assert_ne!(answer, Some("proven"), "seed {seed}: {}", node.name);
        } else if node.is_well() && !doubtful.contains(&node.name) {
            let entry = entries.get(&node.name);
            assert_eq!(answer, Some("proven"), "seed {seed}: {}: {entry:#?}", node.name);
        }
    }
    edges
}
