//! Bands: a run of many tasks, cut across its edges into parts that are begun one after the other (docs/adr/0025).
//!
//! At every look Argo Workflows goes through all tasks of a DAG that have not begun, and sorts everything before each that
//! has, so a Workflow of one DAG costs more than its share. A band is a DAG of its own. Edges inside a band are the
//! Workflow's; those between bands are kept by the gate alone, which refuses a node until all before it is proven (INV-1).
//! So nothing here decides whether a node may start: a band that begins early costs the controller time and nothing else,
//! one that begins late costs the run time.

use std::collections::{BTreeMap, BTreeSet};

use crate::gate::Decision;
use crate::name::NodeId;
use crate::run::{RunPlan, Runner};

/// With so many tasks a band is full.
pub const BAND: usize = 100;

impl RunPlan {
    /// The places of its tasks, band by band, each band in the order of the plan. A level is what is as many edges away from
    /// the beginning; a band is made of whole levels, one after the other, until it is full. So every edge stays in its
    /// band or goes to a later one, and whatever is not in the first level of its band waits for something in it.
    pub fn bands(&self) -> Vec<Vec<usize>> {
        // With a pod for each node, one that is asked for and waits would be a pod that waits.
        let full = self.band.filter(|full| self.runner == Runner::Plugin && self.tasks.len() > *full);
        let Some(full) = full else { return vec![(0..self.tasks.len()).collect()] };
        let mut levels: Vec<Vec<usize>> = Vec::new();
        let mut level_of: Vec<usize> = Vec::with_capacity(self.tasks.len());
        for (place, task) in self.tasks.iter().enumerate() {
            let before = task.before.iter().filter_map(|before| level_of.get(*before)).max();
            let level = before.map_or(0, |before| before + 1);
            level_of.push(level);
            match levels.get_mut(level) {
                Some(known) => known.push(place),
                None => levels.push(vec![place]),
            }
        }
        let mut bands: Vec<Vec<usize>> = Vec::new();
        for level in levels {
            match bands.last_mut() {
                Some(band) if band.len() < full => band.extend(level),
                _ => bands.push(level),
            }
        }
        for band in &mut bands {
            band.sort_unstable();
        }
        bands
    }
}

/// What each band of a run waits for before it is begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Openings {
    /// By band: what its entrances wait for, once each. An entrance is a node that waits for none of its own band.
    bands: Vec<BTreeSet<Vec<NodeId>>>,
}

impl Openings {
    /// Those of a run, joins dissolved: what is behind a join waits for what the join waits for.
    pub fn of(plan: &RunPlan) -> Self {
        let places = plan.bands();
        let mut home: BTreeMap<&NodeId, usize> = BTreeMap::new();
        for (number, band) in places.iter().enumerate() {
            let nodes = band.iter().filter_map(|place| plan.tasks.get(*place)?.node.as_ref());
            home.extend(nodes.map(|node| (&node.id, number)));
        }
        let mut bands: Vec<BTreeSet<Vec<NodeId>>> = vec![BTreeSet::new(); places.len()];
        for (node, before) in plan.waits() {
            let own = home.get(&node.id);
            let is_entrance = before.iter().all(|before| home.get(before) != own);
            if let (true, Some(entrances)) = (is_entrance, own.and_then(|own| bands.get_mut(*own))) {
                entrances.insert(before);
            }
        }
        Self { bands }
    }

    /// Whether a band may begin, by what has begun; nothing where there is no such band. It may as soon as everything that
    /// one of its entrances waits for has begun: no node of a band is ready before one of its entrances is, and what has
    /// only begun still takes its time, so nobody waits for a band. One without nodes has nothing to wait for.
    pub fn opens(&self, band: usize, has_begun: impl Fn(&NodeId) -> bool) -> Option<bool> {
        let entrances = self.bands.get(band)?;
        Some(entrances.is_empty() || entrances.iter().any(|before| before.iter().all(&has_begun)))
    }
}

/// Nodes that are never done in this run any more: those that failed, and all behind them that are not done. Argo
/// Workflows leaves out what is behind a failure, so many of these were never asked for. Takes what each node waits for,
/// in the order of the plan, and the last answer about each.
pub fn stopped<'d>(
    waits: &[(NodeId, Vec<NodeId>)],
    answer: impl Fn(&NodeId) -> Option<&'d Decision>,
) -> BTreeSet<NodeId> {
    let mut stopped: BTreeSet<NodeId> = BTreeSet::new();
    for (node, before) in waits {
        let stops = match answer(node) {
            Some(Decision::Failed(_)) => true,
            Some(Decision::Proven(_) | Decision::Gone(_)) => false,
            Some(Decision::Wait(_)) | None => before.iter().any(|before| stopped.contains(before)),
        };
        if stops {
            stopped.insert(node.clone());
        }
    }
    stopped
}

#[cfg(test)]
mod tests {
    use forge_testkit::generate::Random;
    use proptest::prelude::*;

    use super::*;
    use crate::gate::{Failure, Health, Progress, Why};
    use crate::run::{Entry, Phase, Record, RunNode, RunTask, not_looked_at};
    use crate::view::sample;

    /// A run whose tasks wait for these; those named `join` are joins.
    fn run(tasks: &[(&str, &[usize])], band: Option<usize>) -> RunPlan {
        let plan = sample::stored("r-1", 0).plan;
        let like = plan.nodes().next().unwrap().clone();
        let task = |(name, before): &(&str, &[usize])| {
            let node = (!name.starts_with("join"))
                .then(|| RunNode { id: format!("a/{name}").parse().unwrap(), ..like.clone() });
            RunTask { id: (*name).to_owned(), before: before.to_vec(), node }
        };
        RunPlan { tasks: tasks.iter().map(task).collect(), band, ..plan }
    }

    fn id(name: &str) -> NodeId {
        format!("a/{name}").parse().unwrap()
    }

    fn begun(names: &[&str]) -> impl Fn(&NodeId) -> bool {
        let names: BTreeSet<NodeId> = names.iter().map(|name| id(name)).collect();
        move |node| names.contains(node)
    }

    fn entry(name: &str, decision: Decision) -> (NodeId, Entry) {
        let entry = Entry {
            node: id(name),
            progress: Progress::default(),
            decision,
            since: sample::at(0),
            started: None,
            healthy: None,
            asked: Vec::new(),
            removal: None,
        };
        (entry.node.clone(), entry)
    }

    fn stopped_by(waits: &[(NodeId, Vec<NodeId>)], entries: &BTreeMap<NodeId, Entry>) -> BTreeSet<NodeId> {
        stopped(waits, |node| entries.get(node).map(|entry| &entry.decision))
    }

    fn failed() -> Decision {
        Decision::Failed(Failure::from(Why::Unhealthy { health: Health::Degraded }))
    }

    fn proven() -> Decision {
        sample::all_proven("r-1", 0).record.entries.into_values().next().unwrap().decision
    }

    #[test]
    fn levels_are_gathered_until_a_band_is_full() {
        let tasks: &[(&str, &[usize])] =
            &[("a", &[]), ("b", &[0]), ("c", &[0]), ("d", &[1]), ("e", &[]), ("f", &[2, 4]), ("g", &[5])];
        // Levels: a e, b c, d f, g.
        assert_eq!(run(tasks, Some(2)).bands(), [vec![0, 4], vec![1, 2], vec![3, 5], vec![6]]);
        assert_eq!(run(tasks, Some(3)).bands(), [vec![0, 1, 2, 4], vec![3, 5, 6]]);
        assert_eq!(run(tasks, Some(6)).bands(), [vec![0, 1, 2, 3, 4, 5], vec![6]]);
        for whole in [None, Some(7), Some(100)] {
            assert_eq!(run(tasks, whole).bands(), [(0..7).collect::<Vec<_>>()]);
        }
        let pods = RunPlan { runner: Runner::Pod, ..run(tasks, Some(2)) };
        assert_eq!(pods.bands().len(), 1);
    }

    #[test]
    fn a_plan_of_before_bands_is_one_band_and_a_plan_keeps_its_own() {
        let small = serde_json::to_value(run(&[("a", &[]), ("b", &[0])], None)).unwrap();
        assert_eq!(small.get("band"), None);
        let read: RunPlan = serde_json::from_value(small).unwrap();
        assert_eq!((read.band, read.bands().len()), (None, 1));
        let cut = run(&[("a", &[]), ("b", &[0])], Some(1));
        let read: RunPlan = serde_json::from_value(serde_json::to_value(&cut).unwrap()).unwrap();
        assert_eq!((read.bands(), read), (cut.bands(), cut));
    }

    #[test]
    fn a_band_opens_when_all_that_one_of_its_entrances_waits_for_has_begun() {
        let tasks: &[(&str, &[usize])] =
            &[("a", &[]), ("b", &[]), ("c", &[0, 1]), ("d", &[0]), ("e", &[2]), ("f", &[3])];
        let openings = Openings::of(&run(tasks, Some(2)));
        assert_eq!(openings.opens(0, begun(&[])), Some(true));
        assert_eq!(openings.opens(1, begun(&[])), Some(false));
        assert_eq!(openings.opens(1, begun(&["b"])), Some(false));
        assert_eq!(openings.opens(1, begun(&["a"])), Some(true));
        assert_eq!(openings.opens(2, begun(&["a", "b"])), Some(false));
        assert_eq!(openings.opens(2, begun(&["a", "b", "d"])), Some(true));
        assert_eq!(openings.opens(3, begun(&["a", "b", "c", "d", "e", "f"])), None);
    }

    #[test]
    fn what_is_behind_a_join_waits_for_what_the_join_waits_for() {
        let tasks: &[(&str, &[usize])] =
            &[("a", &[]), ("b", &[]), ("join", &[0, 1]), ("c", &[2]), ("d", &[2]), ("join2", &[3, 4]), ("join3", &[5])];
        let plan = run(tasks, Some(2));
        assert_eq!(plan.bands(), [vec![0, 1], vec![2, 3, 4], vec![5, 6]]);
        let openings = Openings::of(&plan);
        assert_eq!(openings.opens(1, begun(&["a"])), Some(false));
        assert_eq!(openings.opens(1, begun(&["a", "b"])), Some(true));
        // Joins alone: nobody waits there.
        assert_eq!(openings.opens(2, begun(&[])), Some(true));
    }

    #[test]
    fn what_is_behind_a_failure_is_stopped_although_nobody_asked_for_it() {
        let tasks: &[(&str, &[usize])] =
            &[("a", &[]), ("b", &[0]), ("c", &[1]), ("d", &[]), ("e", &[3]), ("f", &[0]), ("g", &[5])];
        let plan = run(tasks, Some(1));
        let waits: Vec<(NodeId, Vec<NodeId>)> =
            plan.waits().into_iter().map(|(node, before)| (node.id.clone(), before)).collect();
        let wait = not_looked_at(sample::at(600));
        // What was proven before what it waits for fell stays so, and what is behind it may go on.
        let entries = BTreeMap::from([entry("a", failed()), entry("d", wait.clone()), entry("f", proven())]);
        assert_eq!(stopped_by(&waits, &entries), BTreeSet::from(["a", "b", "c"].map(id)));
        let entries = BTreeMap::from([entry("a", failed()), entry("b", wait)]);
        assert_eq!(stopped_by(&waits, &entries), BTreeSet::from(["a", "b", "c", "f", "g"].map(id)));
        assert_eq!(stopped_by(&waits, &BTreeMap::new()), BTreeSet::new());
    }

    /// A run of any shape: tasks wait for earlier ones, some are joins.
    fn any_run() -> impl Strategy<Value = RunPlan> {
        (any::<u64>(), 1..60_usize, 1..20_usize, 1..6_usize).prop_map(|(seed, tasks, full, most)| {
            let mut random = Random::new(seed);
            let names: Vec<String> =
                (0..tasks).map(|n| if random.below(6) == 0 { format!("join{n}") } else { format!("n{n}") }).collect();
            let before: Vec<Vec<usize>> = (0..tasks)
                .map(|n| {
                    let wanted = random.below(most).min(n);
                    let places: BTreeSet<usize> = (0..wanted).map(|_| random.below(n)).collect();
                    places.into_iter().collect()
                })
                .collect();
            let tasks: Vec<(&str, &[usize])> =
                names.iter().map(String::as_str).zip(before.iter().map(Vec::as_slice)).collect();
            run(&tasks, Some(full))
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(forge_testkit::cases(500)))]

        #[test]
        fn bands_hold_every_task_once_and_no_edge_goes_back(plan in any_run()) {
            let (bands, full) = (plan.bands(), plan.band.unwrap());
            let mut all: Vec<usize> = bands.iter().flatten().copied().collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..plan.tasks.len()).collect::<Vec<_>>());
            let band_of = |place: usize| bands.iter().position(|band| band.contains(&place)).unwrap();
            let mut level: Vec<usize> = vec![0; plan.tasks.len()];
            for (place, task) in plan.tasks.iter().enumerate() {
                for before in &task.before {
                    prop_assert!(band_of(*before) <= band_of(place));
                    level[place] = level[place].max(level[*before] + 1);
                }
            }
            for (number, band) in bands.iter().enumerate() {
                prop_assert!(band.len() >= full || number + 1 == bands.len(), "{bands:?}");
                let first = band.iter().map(|place| level[*place]).min().unwrap();
                for place in band.iter().filter(|place| level[**place] > first) {
                    prop_assert!(plan.tasks[*place].before.iter().any(|before| band.contains(before)));
                }
            }
        }

        #[test]
        fn a_node_whose_predecessors_are_proven_is_in_a_band_that_may_begin(plan in any_run(), seed in any::<u64>()) {
            // A run on the way: a node has begun only where all before it is proven.
            let mut random = Random::new(seed);
            let waits = plan.waits();
            let (mut proven, mut begun) = (BTreeSet::new(), BTreeSet::new());
            for (node, before) in &waits {
                if before.iter().all(|before| proven.contains(before)) && random.below(4) > 0 {
                    begun.insert(node.id.clone());
                    if random.below(4) > 0 {
                        proven.insert(node.id.clone());
                    }
                }
            }
            let (openings, bands) = (Openings::of(&plan), plan.bands());
            for (node, before) in &waits {
                if before.iter().all(|before| proven.contains(before)) {
                    let own = bands.iter().position(|band| {
                        band.iter().any(|place| plan.tasks[*place].node.as_ref().is_some_and(|n| n.id == node.id))
                    });
                    let has_begun = |node: &NodeId| begun.contains(node);
                    prop_assert_eq!(openings.opens(own.unwrap(), has_begun), Some(true), "{}", node.id);
                }
            }
        }

        #[test]
        fn whoever_looks_at_the_record_says_the_same_of_what_is_stopped(plan in any_run(), seed in any::<u64>()) {
            let mut random = Random::new(seed);
            let mut entries = BTreeMap::new();
            for node in plan.nodes() {
                let decision = match random.below(5) {
                    0 => failed(),
                    1 | 2 => proven(),
                    3 => not_looked_at(sample::at(600)),
                    _ => continue,
                };
                let name = node.id.as_str().trim_start_matches("a/").to_owned();
                entries.extend([entry(&name, decision)]);
            }
            let waits: Vec<(NodeId, Vec<NodeId>)> =
                plan.waits().into_iter().map(|(node, before)| (node.id.clone(), before)).collect();
            let stopped = stopped_by(&waits, &entries);
            let record = Record { header: sample::stored("r-1", 0).record.header, entries };
            for view in record.view(&plan) {
                let said = matches!(view.phase, Phase::Failed | Phase::Blocked);
                prop_assert_eq!(said, stopped.contains(&view.node), "{}", view.node);
            }
        }
    }
}
