//! Bands: a run of many nodes, cut into parts that are begun one after the other (docs/adr/0025).
//!
//! At every look Argo Workflows goes through all tasks of a DAG that have not begun, sorts everything before each that has,
//! and writes all of them again, so a Workflow of one DAG costs more than its share. A band is a DAG of its own, without
//! edges: those of a run in bands are kept by the gate alone, which refuses a node until all before it is proven (INV-1). So
//! nothing here decides whether a node may start: a band that begins early costs the controller time and nothing else, one
//! that begins late costs the run time. And nobody waits for Argo Workflows to hear that a node has ended, so it is told of
//! many at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use crate::gate::Decision;
use crate::name::NodeId;
use crate::run::{RunPlan, Runner};

/// With so many nodes a band is full.
pub const BAND: usize = 100;
/// How long answers are gathered, for each task: a look costs the controller more the more tasks there are, so it looks
/// rarer, and all looks together cost what the tasks cost.
const GATHERED: Duration = Duration::from_millis(5);
/// How long at most. The agent gives a request up after 30 s, of which the plugin holds it for 20.
const GATHERED_AT_MOST: Duration = Duration::from_secs(5);

impl RunPlan {
    /// The places of its tasks, band by band, each band in the order of the plan. A run that is not cut is one band of all
    /// tasks. Else a level is what is as many nodes away from the beginning; a band is made of whole levels, one after the
    /// other, until it is full. So whoever a node waits for is in its own band or in an earlier one, and what is not in
    /// the first level of its band waits for something in it. Joins are in none: without edges they join nothing.
    pub fn bands(&self) -> Vec<Vec<usize>> {
        let Some(full) = self.cut() else { return vec![(0..self.tasks.len()).collect()] };
        let mut levels: Vec<Vec<usize>> = Vec::new();
        // How many levels end with each task.
        let mut depth: Vec<usize> = Vec::with_capacity(self.tasks.len());
        for (place, task) in self.tasks.iter().enumerate() {
            let before = task.before.iter().filter_map(|before| depth.get(*before)).max().copied().unwrap_or(0);
            depth.push(before + usize::from(task.node.is_some()));
            if task.node.is_none() {
                continue;
            }
            match levels.get_mut(before) {
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

    /// With how many nodes a band is full; nothing for a run that is not cut.
    fn cut(&self) -> Option<usize> {
        // With a pod for each node, one that is asked for and waits would be a pod that waits.
        self.band.filter(|full| self.runner == Runner::Plugin && self.tasks.len() > *full)
    }

    /// Whether its edges are the gate's alone, not the Workflow's too.
    pub fn is_cut(&self) -> bool {
        self.cut().is_some()
    }

    /// How long the plugin gathers answers for Argo Workflows; nothing where a task of it may wait for one.
    pub fn gathers(&self) -> Option<Duration> {
        let tasks = u32::try_from(self.tasks.len()).unwrap_or(u32::MAX);
        self.is_cut().then(|| GATHERED.saturating_mul(tasks).min(GATHERED_AT_MOST))
    }
}

/// What each band of a run waits for before it is begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Openings {
    /// By band: what its entrances wait for, once each. An entrance is a node that waits for none of its own band.
    bands: Vec<BTreeSet<Vec<NodeId>>>,
    /// By node: the bands of which an entrance waits for it.
    behind: BTreeMap<NodeId, BTreeSet<usize>>,
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
        let mut behind: BTreeMap<NodeId, BTreeSet<usize>> = BTreeMap::new();
        for (number, entrances) in bands.iter().enumerate() {
            for before in entrances.iter().flatten() {
                behind.entry(before.clone()).or_default().insert(number);
            }
        }
        Self { bands, behind }
    }

    /// All bands, in order.
    pub fn all(&self) -> Range<usize> {
        0..self.bands.len()
    }

    /// The bands that may begin because this node has: nobody else has to be looked at then.
    pub fn behind(&self, node: &NodeId) -> impl Iterator<Item = usize> {
        self.behind.get(node).into_iter().flatten().copied()
    }

    /// Whether a band may begin, by what has begun; nothing where there is no such band. It may as soon as everything that
    /// one of its entrances waits for has begun: no node of a band is ready before one of its entrances is, and what has
    /// only begun still takes its time, so nobody waits for a band.
    pub fn opens(&self, band: usize, has_begun: impl Fn(&NodeId) -> bool) -> Option<bool> {
        let entrances = self.bands.get(band)?;
        Some(entrances.is_empty() || entrances.iter().any(|before| before.iter().all(&has_begun)))
    }
}

/// Nodes that are never done in this run any more: those that failed, and all behind them that are not done. Many of
/// these were never asked for: Argo Workflows leaves out what is behind a failure. Takes what each node waits for,
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
            withdrawn: None,
            removal: None,
        };
        (entry.node.clone(), entry)
    }

    fn stopped_by(waits: &[(NodeId, Vec<NodeId>)], entries: &BTreeMap<NodeId, Entry>) -> BTreeSet<NodeId> {
        stopped(waits, |node| entries.get(node).map(|entry| &entry.decision))
    }

    fn failed() -> Decision {
        Decision::Failed(Failure::from(Why::Unhealthy { health: Health::Degraded, unwell: None }))
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
        assert_eq!((pods.bands().len(), pods.is_cut()), (1, false));
    }

    #[test]
    fn answers_are_gathered_the_longer_the_more_tasks_there_are_and_never_longer_than_the_agent_waits() {
        let of = |tasks: usize, band| {
            let names: Vec<String> = (0..tasks).map(|n| format!("n{n}")).collect();
            let tasks: Vec<(&str, &[usize])> = names.iter().map(|name| (name.as_str(), &[][..])).collect();
            run(&tasks, band).gathers().map(|gathers| gathers.as_millis())
        };
        assert_eq!(
            (of(300, Some(100)), of(1_000, Some(100)), of(2_000, Some(100))),
            (Some(1_500), Some(5_000), Some(5_000))
        );
        assert_eq!((of(100, Some(100)), of(300, None)), (None, None), "a task of the Workflow may wait for an answer");
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
        assert_eq!(plan.bands(), [vec![0, 1], vec![3, 4]]);
        let openings = Openings::of(&plan);
        assert_eq!(openings.opens(1, begun(&["a"])), Some(false));
        assert_eq!(openings.opens(1, begun(&["a", "b"])), Some(true));
        assert_eq!(openings.opens(2, begun(&[])), None, "nobody waits for joins alone");
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
        fn bands_hold_every_node_once_and_nobody_waits_for_a_later_one(plan in any_run()) {
            let (bands, full) = (plan.bands(), plan.band.unwrap());
            let mut all: Vec<usize> = bands.iter().flatten().copied().collect();
            all.sort_unstable();
            let is_in = |place: &usize| !plan.is_cut() || plan.tasks[*place].node.is_some();
            prop_assert_eq!(all, (0..plan.tasks.len()).filter(is_in).collect::<Vec<_>>());
            if !plan.is_cut() {
                return Ok(());
            }
            let home: BTreeMap<&NodeId, usize> = (0..bands.len())
                .flat_map(|number| bands[number].iter().map(move |place| (number, *place)))
                .map(|(number, place)| (&plan.tasks[place].node.as_ref().unwrap().id, number))
                .collect();
            let mut level: BTreeMap<NodeId, usize> = BTreeMap::new();
            for (node, before) in plan.waits() {
                prop_assert!(before.iter().all(|before| home[before] <= home[&node.id]), "{}", node.id);
                let own = before.iter().map(|before| level[before] + 1).max().unwrap_or(0);
                level.insert(node.id.clone(), own);
            }
            for (number, band) in bands.iter().enumerate() {
                prop_assert!(band.len() >= full || number + 1 == bands.len(), "{bands:?}");
            }
            for (node, before) in plan.waits() {
                let own = home[&node.id];
                let first = home.iter().filter(|(_, at)| **at == own).map(|(id, _)| level[*id]).min().unwrap();
                let waits_inside = before.iter().any(|before| home[before] == own);
                prop_assert!(level[&node.id] == first || waits_inside, "{}", node.id);
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
        fn who_looks_at_what_is_behind_a_node_that_begins_opens_what_whoever_looks_at_all_does(
            plan in any_run(),
            seed in any::<u64>(),
        ) {
            let (mut random, openings) = (Random::new(seed), Openings::of(&plan));
            let mut left: Vec<NodeId> = plan.nodes().map(|node| node.id.clone()).collect();
            let mut begun: BTreeSet<NodeId> = BTreeSet::new();
            let all = |begun: &BTreeSet<NodeId>| -> BTreeSet<usize> {
                let opens = |band: &usize| openings.opens(*band, |node| begun.contains(node)) == Some(true);
                openings.all().filter(opens).collect()
            };
            let mut opened = all(&begun);
            while !left.is_empty() {
                let node = left.swap_remove(random.below(left.len()));
                begun.insert(node.clone());
                opened.extend(openings.behind(&node).filter(|band| all(&begun).contains(band)));
                prop_assert_eq!(&opened, &all(&begun), "{}", node);
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
