//! Who manages whom: Applications below app-of-apps and ApplicationSets, as a forest, and from it the stacks and their order.
//!
//! An object has one parent: its ApplicationSet, else the Application that its tracking id or label names, else the first
//! Application that lists it among its resources. Below a parent, sync waves and RollingSync steps are levels: a level
//! waits for the level before it, with everything below that. A forest walked this way has no cycles, whatever is in it.

use std::collections::{BTreeMap, BTreeSet};

use super::hazard::{Hazard, Kind};
use super::read::{Application, Set, list, text};
use super::stack_name::StackNames;
use crate::format::Reference;
use crate::name::{ApplicationId, NodeId, StackName};

/// What is read, for the forest.
pub(super) struct Seen<'a, 'j> {
    pub(super) applications: &'a [Application<'j>],
    pub(super) sets: &'a [Set<'j>],
    pub(super) argocd: &'a str,
    /// Argo CD assesses the health of Applications, so a parent is Healthy only after its children.
    pub(super) assessed: bool,
}

/// A place in the forest: Applications first, then ApplicationSets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Application(usize),
    Set(usize),
}

/// Which stack an Application is in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    /// Those that nothing manages, by AppProject.
    Project(String),
    /// The children of an Application or an ApplicationSet on one level; `None` for those that no step selects.
    Level(Place, Option<i64>),
    /// Nothing of its own: what waits for it waits for all of a level.
    Done(Place, Option<i64>),
}

/// A stack to write.
#[derive(Debug)]
pub(super) struct Stack {
    pub(super) name: StackName,
    /// What it is, for people.
    pub(super) comment: String,
    pub(super) depends_on: Vec<Reference>,
    /// Indexes of its Applications.
    pub(super) members: Vec<usize>,
}

/// What the forest says about order.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) stacks: Vec<Stack>,
    /// Pairs of Applications of which the first is Healthy only after the second. No dependency, but one that
    /// contradicts it would never be met.
    pub(super) health: Vec<(usize, usize)>,
}

#[derive(Default)]
struct Level {
    applications: Vec<usize>,
    sets: Vec<usize>,
}

struct Forest<'s, 'a, 'j> {
    seen: &'s Seen<'a, 'j>,
    /// The parent and the level below it.
    parents: BTreeMap<Place, (Place, Option<i64>)>,
    levels: BTreeMap<Place, BTreeMap<Option<i64>, Level>>,
    /// Places whose children come before them in this list.
    upwards: Vec<Place>,
    /// What is selected, and what manages something selected, near or far: of anything else no hazard is told.
    concerned: BTreeSet<Place>,
}

/// Reads the forest and puts the selected Applications into stacks.
pub(super) fn order(seen: &Seen<'_, '_>, hazards: &mut Vec<Hazard>) -> Order {
    let mut forest = Forest {
        seen,
        parents: BTreeMap::new(),
        levels: BTreeMap::new(),
        upwards: Vec::new(),
        concerned: BTreeSet::new(),
    };
    forest.find_parents(hazards);
    forest.find_concerned();
    forest.cut_circles(hazards);
    forest.find_levels();
    forest.tell(hazards);
    Order { stacks: forest.stacks(), health: forest.health() }
}

impl Forest<'_, '_, '_> {
    fn id(&self, place: Place) -> Option<&ApplicationId> {
        match place {
            Place::Application(index) => self.seen.applications.get(index).map(|application| &application.id),
            Place::Set(index) => self.seen.sets.get(index).map(|set| &set.id),
        }
    }

    fn about(&self, place: Place) -> String {
        let kind = if matches!(place, Place::Application(_)) { "Application" } else { "ApplicationSet" };
        self.id(place).map_or_else(String::new, |id| format!("{kind} {id}"))
    }

    fn find_parents(&mut self, hazards: &mut Vec<Hazard>) {
        let seen = self.seen;
        let applications: BTreeMap<(&str, &str), usize> = seen
            .applications
            .iter()
            .enumerate()
            .map(|(i, app)| ((app.id.namespace.as_str(), app.id.name()), i))
            .collect();
        let sets: BTreeMap<(&str, &str), usize> =
            seen.sets.iter().enumerate().map(|(i, set)| ((set.id.namespace.as_str(), set.id.name()), i)).collect();
        // What Applications list: the child, then its first parent with the wave that the parent saw.
        let mut listed: BTreeMap<Place, BTreeMap<usize, i64>> = BTreeMap::new();
        for (index, parent) in seen.applications.iter().enumerate() {
            for resource in parent.resources.iter().filter(|resource| resource.group == "argoproj.io") {
                let namespace = if resource.namespace.is_empty() { seen.argocd } else { resource.namespace };
                let key = (namespace, resource.name);
                let child = match resource.kind {
                    "Application" => applications.get(&key).map(|child| Place::Application(*child)),
                    "ApplicationSet" => sets.get(&key).map(|child| Place::Set(*child)),
                    _ => None,
                };
                // An Application may manage itself; that is no order.
                if let Some(child) = child.filter(|child| *child != Place::Application(index)) {
                    listed.entry(child).or_default().entry(index).or_insert(resource.wave);
                }
            }
        }
        let tracked = |by: Option<super::read::Tracked<'_>>| {
            let by = by?;
            applications.get(&(by.namespace.unwrap_or(seen.argocd), by.name)).copied()
        };
        let mut steps: BTreeMap<usize, Steps> = BTreeMap::new();
        for (index, application) in seen.applications.iter().enumerate() {
            let place = Place::Application(index);
            let owner = application.owner.and_then(|name| sets.get(&(application.id.namespace.as_str(), name)));
            if let Some(set) = owner.copied() {
                let steps = steps.entry(set).or_insert_with(|| seen.sets.get(set).map(Steps::of).unwrap_or_default());
                let step = steps.level(application);
                if application.selected {
                    steps.tell(application, step, hazards);
                }
                self.parents.insert(place, (Place::Set(set), step));
                continue;
            }
            if let Some(parent) = parent_of(place, tracked(application.tracked_by), &listed) {
                let wave = application.wave.unwrap_or_else(|| listed_wave(place, parent, &listed));
                self.parents.insert(place, (Place::Application(parent), Some(wave)));
            } else if let Some(wave) = application.wave.filter(|wave| application.selected && *wave != 0) {
                hazards.push(Hazard::new(Kind::WaveWithoutParent, &application.about(), format!("sync wave {wave}")));
            }
        }
        for (index, set) in seen.sets.iter().enumerate() {
            let place = Place::Set(index);
            if let Some(parent) = parent_of(place, tracked(set.tracked_by), &listed) {
                let wave = set.wave.unwrap_or_else(|| listed_wave(place, parent, &listed));
                self.parents.insert(place, (Place::Application(parent), Some(wave)));
            }
        }
    }

    fn find_concerned(&mut self) {
        for index in 0..self.seen.applications.len() {
            let mut next = Some(Place::Application(index)).filter(|_| self.is_selected(index));
            // Where another one came by before, the way up is known.
            while let Some(place) = next.filter(|place| self.concerned.insert(*place)) {
                next = self.parents.get(&place).map(|(parent, _)| *parent);
            }
        }
    }

    /// Takes the parents away from those that are their own ancestors.
    fn cut_circles(&mut self, hazards: &mut Vec<Hazard>) {
        let mut settled: BTreeSet<Place> = BTreeSet::new();
        let starts: Vec<Place> = self.parents.keys().copied().collect();
        let mut circles: Vec<Vec<Place>> = Vec::new();
        for start in starts {
            let mut way: Vec<Place> = Vec::new();
            let mut on_way: BTreeSet<Place> = BTreeSet::new();
            let mut at = start;
            while !settled.contains(&at) {
                if !on_way.insert(at) {
                    let first = way.iter().position(|place| *place == at).unwrap_or(0);
                    circles.push(way.iter().skip(first).copied().collect());
                    break;
                }
                way.push(at);
                match self.parents.get(&at) {
                    Some((parent, _)) => at = *parent,
                    None => break,
                }
            }
            settled.extend(way);
        }
        for circle in circles {
            let names: Vec<String> = circle.iter().map(|place| self.about(*place)).collect();
            let text = if names.len() > 5 {
                format!("{} and {} more", names.iter().take(5).cloned().collect::<Vec<_>>().join(", "), names.len() - 5)
            } else {
                names.join(", ")
            };
            for place in &circle {
                if self.concerned.contains(place) {
                    hazards.push(Hazard::new(Kind::Circle, &self.about(*place), format!("in a circle of {text}")));
                }
                self.parents.remove(place);
            }
        }
    }

    fn find_levels(&mut self) {
        for (child, (parent, level)) in &self.parents {
            let level = self.levels.entry(*parent).or_default().entry(*level).or_default();
            match child {
                Place::Application(index) => level.applications.push(*index),
                Place::Set(index) => level.sets.push(*index),
            }
        }
        // Children before parents: a walk from the roots, backwards.
        let mut walk: Vec<Place> =
            self.levels.keys().filter(|place| !self.parents.contains_key(place)).copied().collect();
        let mut next = 0;
        while let Some(place) = walk.get(next).copied() {
            next += 1;
            for level in self.levels.get(&place).into_iter().flat_map(BTreeMap::values) {
                let children = level.applications.iter().map(|index| Place::Application(*index));
                let children = children.chain(level.sets.iter().map(|index| Place::Set(*index)));
                walk.extend(children.filter(|child| self.levels.contains_key(child)));
            }
        }
        walk.reverse();
        self.upwards = walk;
    }

    /// What people should know about parents.
    fn tell(&self, hazards: &mut Vec<Hazard>) {
        for (place, levels) in &self.levels {
            let Place::Application(index) = place else { continue };
            if !self.concerned.contains(place) {
                continue;
            }
            let children: usize = levels.values().map(|level| level.applications.len() + level.sets.len()).sum();
            let applications: usize = levels.values().map(|level| level.applications.len()).sum();
            let about = self.about(*place);
            if levels.len() > 1 {
                let waves: Vec<String> = levels.keys().flatten().take(20).map(i64::to_string).collect();
                let detail = format!("{children} children in the waves {}", waves.join(", "));
                hazards.push(Hazard::new(Kind::WaveBetweenApplications, &about, detail));
            }
            // Nothing waits for a parent that is no node.
            if applications > 0 && self.is_selected(*index) {
                let kind = if self.seen.assessed { Kind::ParentHealth } else { Kind::AppOfApps };
                hazards.push(Hazard::new(kind, &about, format!("parent of {applications} Applications")));
            }
        }
    }

    fn group(&self, index: usize) -> Group {
        match self.parents.get(&Place::Application(index)) {
            Some((parent, level)) => Group::Level(*parent, *level),
            None => {
                let project = self.seen.applications.get(index).map_or("", |application| application.project);
                Group::Project(project.to_owned())
            }
        }
    }

    fn is_selected(&self, index: usize) -> bool {
        self.seen.applications.get(index).is_some_and(|application| application.selected)
    }

    fn stacks(&self) -> Vec<Stack> {
        let mut members: BTreeMap<Group, Vec<usize>> = BTreeMap::new();
        for index in 0..self.seen.applications.len() {
            if self.is_selected(index) {
                members.entry(self.group(index)).or_default().push(index);
            }
        }
        let (ends, mut junctions) = self.ends(&members);
        let mut awaits = self.awaits(&members, &ends);
        // Junctions that nobody waits for are not written.
        let mut wanted: BTreeSet<Group> = BTreeSet::new();
        let mut open: Vec<Group> =
            members.keys().filter_map(|group| awaits.get(group)).flatten().filter_map(Await::group).collect();
        while let Some(group) = open.pop() {
            if let Some(behind) = junctions.get(&group)
                && wanted.insert(group)
            {
                open.extend(behind.iter().cloned());
            }
        }
        junctions.retain(|group, _| wanted.contains(group));
        let mut names = StackNames::default();
        let named: BTreeMap<Group, StackName> = members
            .keys()
            .chain(junctions.keys())
            .filter_map(|group| Some((group.clone(), self.name(group, &mut names)?)))
            .collect();
        let reference = |awaited: &Await| match awaited {
            Await::Node(index) => self.seen.applications.get(*index).map(|app| Reference::Node(NodeId::from(&app.id))),
            Await::Stack(group) => named.get(group).cloned().map(Reference::Stack),
        };
        let mut stacks = Vec::new();
        for (group, name) in &named {
            let awaited = match junctions.remove(group) {
                Some(behind) => behind.into_iter().map(Await::Stack).collect(),
                None => awaits.remove(group).unwrap_or_default(),
            };
            let mut depends_on: Vec<Reference> = awaited.iter().filter_map(reference).collect();
            depends_on.sort();
            depends_on.dedup();
            let members = members.remove(group).unwrap_or_default();
            stacks.push(Stack { name: name.clone(), comment: self.comment(group), depends_on, members });
        }
        stacks
    }

    /// Where Argo CD assesses the health of Applications: every node below the next node above it.
    fn health(&self) -> Vec<(usize, usize)> {
        if !self.seen.assessed {
            return Vec::new();
        }
        let mut nearest: BTreeMap<Place, usize> = BTreeMap::new();
        // Parents before children: what is no node passes on the node above it.
        for place in self.upwards.iter().rev() {
            let node = match place {
                Place::Application(index) if self.is_selected(*index) => Some(*index),
                _ => self.parents.get(place).and_then(|(parent, _)| nearest.get(parent)).copied(),
            };
            nearest.extend(node.map(|node| (*place, node)));
        }
        let pair = |(child, (parent, _)): (&Place, &(Place, Option<i64>))| match child {
            Place::Application(index) if self.is_selected(*index) => Some((*nearest.get(parent)?, *index)),
            _ => None,
        };
        self.parents.iter().filter_map(pair).collect()
    }

    /// For every place and level what to wait for so that the level and all below it is done, and the junctions for that.
    fn ends(&self, members: &BTreeMap<Group, Vec<usize>>) -> (Ends, BTreeMap<Group, Vec<Group>>) {
        let mut ends = Ends::default();
        let mut junctions = BTreeMap::new();
        for place in &self.upwards {
            let mut last: Option<Group> = None;
            let mut loose: Option<Group> = None;
            for (key, level) in self.levels.get(place).into_iter().flatten() {
                let own = Group::Level(*place, *key);
                let mut behind: Vec<Group> = Vec::new();
                let children = level.applications.iter().map(|index| Place::Application(*index));
                for child in children.chain(level.sets.iter().map(|index| Place::Set(*index))) {
                    behind.extend(ends.whole.get(&child).into_iter().flatten().cloned());
                }
                if members.contains_key(&own) {
                    behind.insert(0, own);
                }
                let end = match behind.len() {
                    0 => continue,
                    1 => behind.pop(),
                    _ => {
                        let done = Group::Done(*place, *key);
                        junctions.insert(done.clone(), behind);
                        Some(done)
                    }
                };
                if let Some(end) = end {
                    ends.level.insert((*place, *key), end.clone());
                    *(if key.is_some() { &mut last } else { &mut loose }) = Some(end);
                }
            }
            // The last level waits for those before it; what no step selects stands for itself.
            ends.whole.insert(*place, last.into_iter().chain(loose).collect());
        }
        (ends, junctions)
    }

    /// What every stack waits for.
    fn awaits(&self, members: &BTreeMap<Group, Vec<usize>>, ends: &Ends) -> BTreeMap<Group, Vec<Await>> {
        let mut awaits: BTreeMap<Group, Vec<Await>> = BTreeMap::new();
        // Parents before children.
        for place in self.upwards.iter().rev() {
            let above = self.parents.get(place).and_then(|(parent, level)| awaits.get(&Group::Level(*parent, *level)));
            let entry: Vec<Await> = match place {
                // Where the parent is no node, or cannot be waited for, its children wait for what it waits for.
                Place::Application(index) if self.is_selected(*index) && !self.seen.assessed => {
                    vec![Await::Node(*index)]
                }
                _ => above.cloned().unwrap_or_default(),
            };
            let mut before: Option<&Group> = None;
            for key in self.levels.get(place).into_iter().flat_map(BTreeMap::keys) {
                let awaited = match before.filter(|_| key.is_some()) {
                    Some(before) => vec![Await::Stack(before.clone())],
                    None => entry.clone(),
                };
                awaits.insert(Group::Level(*place, *key), awaited);
                if key.is_some() {
                    before = ends.level.get(&(*place, *key)).or(before);
                }
            }
        }
        debug_assert!(members.keys().all(|group| matches!(group, Group::Project(_)) || awaits.contains_key(group)));
        awaits
    }

    fn name(&self, group: &Group, names: &mut StackNames) -> Option<StackName> {
        let (base, suffix) = match group {
            Group::Project(project) => (project.as_str(), String::new()),
            Group::Level(place, level) => (self.id(*place)?.name(), self.suffix(*place, *level)),
            Group::Done(place, level) => (self.id(*place)?.name(), format!("{}-done", self.suffix(*place, *level))),
        };
        names.take(base, &suffix)
    }

    fn suffix(&self, place: Place, level: Option<i64>) -> String {
        if self.levels.get(&place).is_none_or(|levels| levels.len() < 2) {
            return String::new();
        }
        match (place, level) {
            (Place::Application(_), Some(wave)) if wave < 0 => format!("-wave-minus-{}", wave.unsigned_abs()),
            (Place::Application(_), Some(wave)) => format!("-wave-{wave}"),
            (Place::Set(_), Some(step)) => format!("-step-{step}"),
            (_, None) => "-no-step".to_owned(),
        }
    }

    fn comment(&self, group: &Group) -> String {
        match group {
            Group::Project(project) => format!("AppProject {}, managed by nothing else", super::shown(project)),
            Group::Level(place, level) | Group::Done(place, level) => {
                let below = self.about(*place);
                let which = match (place, level) {
                    (_, _) if self.levels.get(place).is_none_or(|levels| levels.len() < 2) => String::new(),
                    (Place::Application(_), Some(wave)) => format!(", sync wave {wave}"),
                    (Place::Set(_), Some(step)) => format!(", step {step}"),
                    (_, None) => ", in no step".to_owned(),
                };
                let all = if matches!(group, Group::Done(..)) { "all of " } else { "" };
                format!("{all}{below}{which}")
            }
        }
    }
}

/// What a stack waits for.
#[derive(Debug, Clone)]
enum Await {
    Node(usize),
    Stack(Group),
}

impl Await {
    fn group(&self) -> Option<Group> {
        match self {
            Self::Stack(group) => Some(group.clone()),
            Self::Node(_) => None,
        }
    }
}

#[derive(Default)]
struct Ends {
    level: BTreeMap<(Place, Option<i64>), Group>,
    whole: BTreeMap<Place, Vec<Group>>,
}

fn parent_of(child: Place, tracked: Option<usize>, listed: &BTreeMap<Place, BTreeMap<usize, i64>>) -> Option<usize> {
    let tracked = tracked.filter(|parent| Place::Application(*parent) != child);
    tracked.or_else(|| listed.get(&child)?.keys().next().copied())
}

fn listed_wave(child: Place, parent: usize, listed: &BTreeMap<Place, BTreeMap<usize, i64>>) -> i64 {
    listed.get(&child).and_then(|parents| parents.get(&parent)).copied().unwrap_or(0)
}

/// The steps of a progressive sync, evaluated as Argo CD's ApplicationSet controller does.
#[derive(Default)]
struct Steps {
    about: String,
    steps: Vec<Vec<(String, bool, BTreeSet<String>)>>,
    /// What people should know about them, until it is told.
    untold: Vec<Hazard>,
}

impl Steps {
    fn of(set: &Set<'_>) -> Self {
        let mut none = Self { about: set.about(), ..Self::default() };
        if text(set.json, "/spec/strategy/type") != Some("RollingSync") {
            return none;
        }
        let written = list(set.json, "/spec/strategy/rollingSync/steps");
        if written.is_empty() {
            return none;
        }
        none.untold.push(Hazard::new(Kind::RollingSync, &none.about, format!("{} steps", written.len())));
        let mut steps = Vec::new();
        for (number, step) in written.iter().enumerate() {
            let mut expressions = Vec::new();
            for expression in list(step, "/matchExpressions") {
                let wants = match text(expression, "/operator") {
                    Some("In") => true,
                    Some("NotIn") => false,
                    other => {
                        let other = other.unwrap_or("nothing");
                        let detail = format!("step {} has operator `{other}`; only In and NotIn are known", number + 1);
                        none.untold.push(Hazard::new(Kind::RollingSyncUnclear, &none.about, detail));
                        return none;
                    }
                };
                let values = list(expression, "/values").iter().filter_map(|value| value.as_str().map(str::to_owned));
                expressions.push((text(expression, "/key").unwrap_or_default().to_owned(), wants, values.collect()));
            }
            steps.push(expressions);
        }
        Self { steps, ..none }
    }

    /// The step of an Application, from 1. Without steps all are on one level.
    fn level(&self, application: &Application<'_>) -> Option<i64> {
        if self.steps.is_empty() {
            return Some(1);
        }
        let holds = |(key, wants, values): &(String, bool, BTreeSet<String>)| match application.labels.get(key.as_str())
        {
            Some(value) => values.contains(*value) == *wants,
            None => !wants,
        };
        let step = self.steps.iter().position(|step| step.iter().all(holds))?;
        i64::try_from(step + 1).ok()
    }

    /// What people should know about an Application on this level, and once about the steps.
    fn tell(&mut self, application: &Application<'_>, level: Option<i64>, hazards: &mut Vec<Hazard>) {
        hazards.append(&mut self.untold);
        if level.is_none() {
            let detail = format!("no step of {} selects it", self.about);
            hazards.push(Hazard::new(Kind::RollingSyncUnclear, &application.about(), detail));
        }
    }
}
