//! What follows from when nodes were asked for and when they were healthy. Pure.

use std::collections::{BTreeMap, BTreeSet};

use forge_core::run::StoredRun;
use jiff::Timestamp;

/// What each node waits for, by names of Applications.
pub type Predecessors = BTreeMap<String, BTreeSet<String>>;

/// Two moments of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// When its last sync was asked for.
    pub asked: Timestamp,
    /// When it was first seen Healthy after that.
    pub healthy: Timestamp,
}

/// The times of a graph.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Timed {
    /// What each node waits for directly.
    pub predecessors: Predecessors,
    /// What is known of each node.
    pub nodes: BTreeMap<String, Times>,
}

/// From the proof of the last predecessor to the sync request.
#[derive(Debug, Clone, PartialEq)]
pub struct Hops {
    /// Seconds, sorted.
    seconds: Vec<f64>,
}

impl Hops {
    /// Those of a run, where nodes had predecessors and were synced.
    pub fn of(run: &StoredRun) -> Self {
        let entries = &run.record.entries;
        let mut found = Vec::new();
        for wanted in run.plan.wanted() {
            let Some(entry) = entries.get(&wanted.node) else { continue };
            let (Some(_), Some(asked)) = (entry.receipt(), entry.asked.last()) else { continue };
            let proofs = wanted.predecessors.iter().filter_map(|before| entries.get(before)).map(|entry| entry.since);
            if let Some(last) = proofs.max() {
                found.push(between(last, asked.at));
            }
        }
        found.sort_by(f64::total_cmp);
        Self { seconds: found }
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.seconds.len()
    }

    /// The one that this share of all does not exceed; 0 if there are none.
    pub fn quantile(&self, share: f64) -> f64 {
        quantile(&self.seconds, share)
    }
}

/// The one that this share of sorted figures does not exceed; 0 if there are none.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let place = (share * sorted.len() as f64) as usize;
    sorted.get(place.min(last)).copied().unwrap_or(0.0)
}

/// Seconds from one moment to a later one.
pub fn between(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64()
}

impl Timed {
    /// Those that the record of a run has, joins dissolved. What was proven without a sync of ours has none.
    pub fn of(run: &StoredRun) -> Self {
        let mut timed = Self::default();
        let wanted = run.plan.wanted();
        let name: BTreeMap<_, _> =
            wanted.iter().map(|wanted| (&wanted.node, wanted.application.name().to_owned())).collect();
        for wanted in &wanted {
            let Some(own) = name.get(&wanted.node) else { continue };
            let before = wanted.predecessors.iter().filter_map(|node| name.get(node).cloned()).collect();
            timed.predecessors.insert(own.clone(), before);
            let Some(entry) = run.record.entries.get(&wanted.node) else { continue };
            if let (Some(asked), Some(healthy)) = (entry.asked.last(), entry.healthy) {
                timed.nodes.insert(own.clone(), Times { asked: asked.at, healthy });
            }
        }
        timed
    }

    /// The first sync request.
    pub fn begin(&self) -> Option<Timestamp> {
        self.nodes.values().map(|times| times.asked).min()
    }

    /// The last health.
    pub fn end(&self) -> Option<Timestamp> {
        self.nodes.values().map(|times| times.healthy).max()
    }

    /// Seconds from the first sync request to the last health.
    pub fn makespan(&self) -> f64 {
        self.begin().zip(self.end()).map_or(0.0, |(begin, end)| between(begin, end))
    }

    /// Seconds of the longest path through the graph, where each node takes as long as it did from its sync request to its
    /// health.
    pub fn critical_path(&self) -> f64 {
        let waves = waves(&self.predecessors);
        let mut order: Vec<(&String, &usize)> = waves.iter().collect();
        order.sort_by_key(|(name, wave)| (**wave, *name));
        let mut ends: BTreeMap<&str, f64> = BTreeMap::new();
        for (name, _) in order {
            let before = self.predecessors.get(name).into_iter().flatten();
            let begin = before.filter_map(|before| ends.get(before.as_str())).fold(0.0_f64, |most, end| most.max(*end));
            let own = self.nodes.get(name).map_or(0.0, |times| between(times.asked, times.healthy));
            ends.insert(name, begin + own);
        }
        ends.into_values().fold(0.0, f64::max)
    }

    /// Edges whose second node was asked for before the first was healthy.
    pub fn broken_edges(&self) -> usize {
        let early = |name: &String, before: &String| match (self.nodes.get(name), self.nodes.get(before)) {
            (Some(node), Some(before)) => node.asked < before.healthy,
            _ => false,
        };
        self.predecessors.iter().map(|(name, before)| before.iter().filter(|before| early(name, before)).count()).sum()
    }
}

/// How many nodes are on the longest way to each: the sync wave that people would give it. Ends also if there is a
/// cycle.
pub fn waves(predecessors: &Predecessors) -> BTreeMap<String, usize> {
    let names = predecessors.iter().flat_map(|(name, before)| before.iter().chain([name]));
    let mut waves: BTreeMap<String, usize> = names.map(|name| (name.clone(), 0)).collect();
    for _ in 0..predecessors.len() {
        let mut changed = false;
        for (name, before) in predecessors {
            let wave = before.iter().filter_map(|before| waves.get(before)).max().map_or(0, |wave| wave + 1);
            if waves.get(name) != Some(&wave) {
                waves.insert(name.clone(), wave);
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    waves
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[(&str, &[&str])]) -> Predecessors {
        let before = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        edges.iter().map(|(name, names)| ((*name).to_owned(), before(names))).collect()
    }

    fn timed(edges: &[(&str, &[&str])], times: &[(&str, i64, i64)]) -> Timed {
        let at = |second| Timestamp::from_second(second).unwrap();
        let times = times
            .iter()
            .map(|(name, asked, healthy)| ((*name).to_owned(), Times { asked: at(*asked), healthy: at(*healthy) }));
        Timed { predecessors: graph(edges), nodes: times.collect() }
    }

    #[test]
    fn a_wave_is_the_longest_way_and_a_cycle_ends() {
        let waves_of = waves(&graph(&[("a", &[]), ("b", &["a"]), ("c", &["a", "b"]), ("d", &["a"])]));
        assert_eq!(waves_of.values().copied().collect::<Vec<_>>(), [0, 1, 2, 1]);
        assert_eq!(waves(&graph(&[("a", &["b"]), ("b", &["a"])])).len(), 2);
    }

    #[test]
    fn the_critical_path_is_made_of_own_times_and_the_makespan_of_the_clock() {
        let edges: &[(&str, &[&str])] = &[("a", &[]), ("b", &["a"]), ("c", &["a"]), ("d", &["b", "c"])];
        let times = timed(edges, &[("a", 0, 4), ("b", 5, 7), ("c", 5, 10), ("d", 12, 13)]);
        assert!((times.critical_path() - 10.0).abs() < 1e-9);
        assert!((times.makespan() - 13.0).abs() < 1e-9);
        assert_eq!(times.broken_edges(), 0);
    }

    #[test]
    fn an_edge_is_broken_when_its_second_node_is_asked_for_before_the_first_is_healthy() {
        let times = timed(&[("a", &[]), ("b", &["a"])], &[("a", 0, 4), ("b", 3, 7)]);
        assert_eq!(times.broken_edges(), 1);
    }

    #[test]
    fn quantiles_are_values_that_occurred() {
        let hops = Hops { seconds: (1..=20).map(f64::from).collect() };
        assert!((hops.quantile(0.5) - 11.0).abs() < 1e-9);
        assert!((hops.quantile(0.95) - 20.0).abs() < 1e-9);
        assert!(Hops { seconds: vec![] }.quantile(0.5).abs() < 1e-9);
    }
}
