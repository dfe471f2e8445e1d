//! The clean-exit report: what is gone, what policy keeps, what is left and why, and how the cluster compares with the
//! snapshot of phase 0. One type for text, JSON and JUnit; the JSON Schema is made of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::snapshot::{Index, is_passing};
use super::{Complete, DEFINITIONS, Gap, Inventory, Item, Kind, Snapshot};
use crate::code::Code;
use crate::executor::PvPolicy;
use crate::exit::Exit;
use crate::name::clip;
use crate::preflight::count;
use crate::render::{TestCase, TestOutcome, TestTrouble, suite};
use crate::teardown::member::left_alone;
use crate::teardown::whose::{Claims, Ownership, Whose};
use crate::view::shown;

/// Volumes.
const VOLUMES: (&str, &str) = ("", "persistentvolumes");
/// Namespaces.
const NAMESPACES: (&str, &str) = ("", "namespaces");
/// Copies of volumes, which are what is wanted of a teardown that makes them.
const COPIES: [(&str, &str); 2] =
    [("snapshot.storage.k8s.io", "volumesnapshots"), ("snapshot.storage.k8s.io", "volumesnapshotcontents")];
/// How many names a line of a report holds.
const NAMED: usize = 3;

/// What a report is made of.
pub struct Ending<'e> {
    /// The cluster, by the context of the kubeconfig.
    pub context: &'e str,
    /// The environment.
    pub environment: &'e str,
    /// What was the teardown's own.
    pub claims: &'e Claims,
    /// What was there when it began.
    pub before: Option<&'e Inventory>,
    /// What was there before bootstrap.
    pub snapshot: Option<&'e Snapshot>,
    /// What is there now.
    pub after: &'e Inventory,
    /// The volumes that are there now, and whose claim each was made for, `namespace/name`; or why that is not known.
    pub volumes: Result<&'e BTreeMap<String, String>, &'e str>,
    /// What was to become of volumes.
    pub policy: PvPolicy,
    /// What the teardown left where it is, and said so.
    pub stays: &'e Stays,
    /// When it ended.
    pub ended: Timestamp,
}

/// What a teardown left where it is, and said so.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stays {
    /// Objects that are not its own, or that somebody wants to keep, with the reason: `Kind/namespace/name`.
    pub objects: BTreeMap<String, String>,
    /// Helm releases, `namespace/name`, that are told of as a whole.
    pub releases: BTreeSet<String>,
    /// Namespaces that are told of as a whole.
    pub namespaces: BTreeSet<String>,
}

impl Stays {
    /// It is a part of something that is told of as a whole.
    fn covers(&self, kind: &Kind, item: &Item) -> bool {
        let namespace = if kind.is(NAMESPACES) { &item.name } else { &item.namespace };
        let release = item.release.as_ref().is_some_and(|release| self.releases.contains(release));
        release || self.namespaces.contains(namespace)
    }
}

/// Why something is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Reason {
    /// It is being deleted, and a finalizer of it is not cleared.
    Finalizer,
    /// Somebody else's object owns it.
    ForeignOwner,
    /// It holds something that is somebody else's.
    NotOurs,
    /// Nothing says why.
    Unknown,
}

impl Reason {
    /// As people say it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Finalizer => "finalizer",
            Self::ForeignOwner => "foreign owner",
            Self::NotOurs => "not ours",
            Self::Unknown => "unknown",
        }
    }
}

/// Objects of a kind that are gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GoneKind {
    /// The kind, as `plural.group`.
    pub kind: String,
    /// Its objects, `namespace/name` or `name`.
    pub objects: Vec<String>,
}

/// Something that is there, or is not, and why that is so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Left {
    /// What: kind and place.
    pub object: String,
    /// Why.
    pub why: String,
}

/// Something that is left and should not be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Orphan {
    /// What: kind and place.
    pub object: String,
    /// The same as `--release-finalizer` takes it: `Kind.group/namespace/name`.
    pub target: String,
    /// Why it is left.
    pub reason: Reason,
    /// In words, with what it rests on.
    pub detail: String,
    /// What to do next.
    pub next: String,
}

/// What a teardown left of a platform.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(title = "CleanExitReport")]
pub struct CleanExitReport {
    /// The cluster, by the context of the kubeconfig.
    pub context: String,
    /// The environment.
    pub environment: String,
    /// clean, orphans left, or not known.
    pub verdict: String,
    /// In a sentence.
    pub summary: String,
    /// What `forge platform teardown` exits with.
    pub exit: u8,
    /// When the cluster was looked at.
    #[schemars(with = "String")]
    pub ended: Timestamp,
    /// When the snapshot was taken that it was compared with; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub snapshot: Option<Timestamp>,
    /// What is gone, kind by kind.
    pub gone: Vec<GoneKind>,
    /// What policy keeps.
    pub retained: Vec<Left>,
    /// What is left and should not be.
    pub orphaned: Vec<Orphan>,
    /// What else differs from before, and is somebody else's.
    pub others: Vec<Left>,
    /// What could not be listed, so that nothing is known about it.
    pub not_known: Vec<Gap>,
    /// What could not be listed when the snapshot was taken, so that it was not compared.
    pub not_compared: Vec<Gap>,
}

/// Judges what is there at the end of a teardown.
pub fn clean_exit(ending: &Ending<'_>) -> CleanExitReport {
    let judging = Judging {
        ending,
        whose: ending.claims.ownership(ending.after),
        earlier: ending.before.map(|before| ending.claims.ownership(before)),
        index: ending.snapshot.map(Snapshot::index),
        by_uid: ending.after.objects().map(|(kind, item)| (item.uid.as_str(), (kind, item))).collect(),
    };
    let (mut retained, mut orphaned, mut others) = (Vec::new(), Vec::new(), Vec::new());
    let stuck = judging.namespaces();
    for (kind, item) in ending.after.objects() {
        match judging.verdict(kind, item, &stuck) {
            Verdict::AsBefore => {}
            Verdict::Retained(why) => retained.push(Left { object: address(kind, item), why }),
            Verdict::Orphaned(orphan) => orphaned.push(orphan),
            Verdict::Other(why) => others.push(Left { object: address(kind, item), why }),
        }
    }
    others.extend(judging.missing());
    CleanExitReport {
        snapshot: ending.snapshot.map(|snapshot| snapshot.taken),
        gone: judging.gone(),
        retained,
        orphaned,
        others,
        not_known: judging.gaps(),
        not_compared: ending.snapshot.map(|snapshot| snapshot.gaps.clone()).unwrap_or_default(),
        ..CleanExitReport::empty(ending.context, ending.environment, ending.ended)
    }
    .judged()
}

/// What an object is at the end.
enum Verdict {
    AsBefore,
    Retained(String),
    Orphaned(Orphan),
    Other(String),
}

struct Judging<'j> {
    ending: &'j Ending<'j>,
    whose: Ownership,
    /// Whose everything was when the teardown began.
    earlier: Option<Ownership>,
    index: Option<Index<'j>>,
    by_uid: BTreeMap<&'j str, (&'j Kind, &'j Item)>,
}

/// Kind and place, as kubectl takes them.
fn address(kind: &Kind, item: &Item) -> String {
    format!("{} {}", kind.name(), item.place())
}

impl Judging<'_> {
    /// What is not known: what could not be listed, and volumes of which nobody said whose they are.
    fn gaps(&self) -> Vec<Gap> {
        let mut gaps = self.ending.after.gaps().to_vec();
        let unread = self.ending.volumes.err().map(|why| Gap::new(VOLUMES.1, why));
        let unread = unread.filter(|unread| !gaps.iter().any(|gap| gap.what == unread.what));
        gaps.extend(unread);
        gaps.sort();
        gaps
    }

    /// It is known what there is of a kind now. Of one that is not served any more there can be nothing, unless it is not
    /// known whether it is.
    fn is_known(&self, kind: &Kind) -> bool {
        let (after, of) = (self.ending.after, (kind.group.as_str(), kind.resource.as_str()));
        if after.kind(of).is_some() {
            return after.known(of).is_some();
        }
        !after.gaps().iter().any(|gap| gap.hides(kind))
    }

    /// Namespaces of ours that are still there: what is in them is told of with them. One that Argo CD made without our label is
    /// nobody's that we know (INV-11).
    fn namespaces(&self) -> BTreeSet<String> {
        let all = self.ending.after.known(NAMESPACES).map(Complete::items).unwrap_or_default();
        all.iter().filter(|item| self.is_left(item)).map(|item| item.name.clone()).collect()
    }

    /// A namespace of ours that was not there before.
    fn is_left(&self, item: &Item) -> bool {
        self.whose.of(item).goes() && !self.index.as_ref().is_some_and(|index| index.has_namespace(&item.name))
    }

    /// Why something that is ours stays, as it should.
    fn kept(&self, kind: &Kind, item: &Item) -> Option<&str> {
        if kind.is(DEFINITIONS) && item.kept {
            return Some("its chart marks it to be kept");
        }
        if let Some(why) = self.ending.stays.objects.get(&format!("{}/{}", kind.kind, item.place())) {
            return Some(why);
        }
        let started = self.ending.claims.started(kind, item) && !self.ending.claims.goes_with_definition(kind, item);
        if started && self.index.is_none() {
            return Some("Crossplane made it, and without a snapshot nothing says that it was not there before");
        }
        if self.ending.policy == PvPolicy::Snapshot && COPIES.iter().any(|copy| kind.is(*copy)) {
            return Some("a copy of a volume, policy snapshot");
        }
        // What says so to the end: with the last environment the records go too.
        if item.run && !self.ending.claims.is_whole() {
            return Some("the record of a run");
        }
        // Applications and what makes them are removed whatever they say, and definitions where nobody uses them.
        let managed = matches!(self.whose.of(item), Whose::Node(_)) && kind.group != "argoproj.io";
        left_alone(item.kept, item.undeleted).filter(|_| managed)
    }

    fn verdict(&self, kind: &Kind, item: &Item, stuck: &BTreeSet<String>) -> Verdict {
        if self.index.as_ref().is_some_and(|index| index.holds(kind, item)) {
            // What a node managed was to go, whoever made it; what else was there is nobody's business here.
            let handed_over = matches!(self.whose.of(item), Whose::Node(_));
            let stuck = handed_over && is_held(item);
            return if stuck { Verdict::Orphaned(self.orphan(kind, item)) } else { Verdict::AsBefore };
        }
        if kind.is(VOLUMES) {
            return self.volume(kind, item);
        }
        if kind.is(NAMESPACES) && stuck.contains(&item.name) && !self.ending.stays.covers(kind, item) {
            return Verdict::Orphaned(self.namespace(kind, item));
        }
        if !self.whose.of(item).goes() {
            return self.foreign(kind, item);
        }
        if let Some(why) = self.kept(kind, item) {
            return Verdict::Retained(why.to_owned());
        }
        if self.ending.stays.covers(kind, item) {
            return Verdict::AsBefore;
        }
        // What is told of with its namespace, or goes with its owner, is not told of again unless it is what holds that.
        let with_another = stuck.contains(&item.namespace)
            || self.parent(item).is_some_and(|(_, whose)| whose.goes())
            || self.ending.claims.goes_with_definition(kind, item);
        if (with_another && !is_held(item)) || is_passing(kind) {
            return Verdict::AsBefore;
        }
        Verdict::Orphaned(self.orphan(kind, item))
    }

    /// A volume is ours by the claim that it was made for.
    fn volume(&self, kind: &Kind, item: &Item) -> Verdict {
        let claims = self.ending.claims;
        let own = |namespace: &str| claims.namespaces.contains(namespace) || claims.destinations.contains(namespace);
        // That it is not known is told of once.
        let Ok(volumes) = self.ending.volumes else { return Verdict::AsBefore };
        let claim = volumes.get(&item.name);
        match claim.and_then(|claim| claim.split_once('/')) {
            Some((namespace, name)) if own(namespace) && !self.is_anothers(namespace, name) => {
                let claim = claim.map(|claim| clip(claim)).unwrap_or_default();
                match self.ending.policy {
                    PvPolicy::Retain => Verdict::Retained(format!("volume of {claim}, policy retain")),
                    PvPolicy::Delete | PvPolicy::Snapshot => Verdict::Orphaned(Orphan {
                        detail: format!("volume of {claim}, which was to go"),
                        next: format!(
                            "`kubectl describe pv {}` says why its provisioner does not remove it",
                            clip(&item.name)
                        ),
                        ..self.orphan(kind, item)
                    }),
                }
            }
            // Whatever claims it is somebody else's.
            Some(_) => Verdict::AsBefore,
            None if self.index.is_some() => {
                Verdict::Other("it was not there at the snapshot; no claim names it".to_owned())
            }
            None => Verdict::AsBefore,
        }
    }

    /// A claim that is there, in a namespace that stays, and says that somebody else made it: a teardown left it alone.
    fn is_anothers(&self, namespace: &str, name: &str) -> bool {
        let claims = self.ending.after.known(("", "persistentvolumeclaims")).map(Complete::items).unwrap_or_default();
        let claim = claims.iter().find(|claim| claim.namespace == namespace && claim.name == name);
        claim.is_some_and(|claim| {
            !self.whose.of(claim).goes() && (claim.made_by().is_some() || !claim.parents.is_empty())
        })
    }

    /// A namespace of ours, and what is in it.
    fn namespace(&self, kind: &Kind, item: &Item) -> Orphan {
        let inside: Vec<(&Kind, &Item)> =
            self.ending.after.objects().filter(|(kind, held)| kind.namespaced && held.namespace == item.name).collect();
        let told = |found: &[&(&Kind, &Item)]| -> String {
            let names: Vec<String> = found.iter().take(NAMED).map(|(kind, item)| address(kind, item)).collect();
            let more = found.len().saturating_sub(NAMED);
            if more > 0 { format!("{} and {more} more", names.join(", ")) } else { names.join(", ") }
        };
        let held: Vec<&(&Kind, &Item)> = inside.iter().filter(|(_, item)| is_held(item)).collect();
        let is_marked = |(_, item): &&(&Kind, &Item)| !self.whose.of(item).goes() || self.is_foreign(item);
        let foreign: Vec<&(&Kind, &Item)> =
            inside.iter().filter(is_marked).filter(|(_, item)| !item.automatic).collect();
        let mut orphan = self.orphan(kind, item);
        if item.going && !held.is_empty() {
            orphan.reason = Reason::Finalizer;
            orphan.detail = format!("it is being deleted, and held by {}", told(&held));
            orphan.next = "see what holds it: it is told of below, each with its next step".to_owned();
        } else if !foreign.is_empty() {
            orphan.reason = Reason::NotOurs;
            orphan.detail = format!("it holds what is somebody else's: {}", told(&foreign));
            orphan.next = "let whoever owns that move or remove it, then run this again".to_owned();
        }
        orphan
    }

    /// Somebody else says that he made it.
    fn is_foreign(&self, item: &Item) -> bool {
        item.parents.is_empty() && matches!(self.whose.of(item), Whose::Inside(_)) && item.made_by().is_some()
    }

    /// The first owner of an object that is still there, and whose that is.
    fn parent(&self, item: &Item) -> Option<(String, &Whose)> {
        let found = item.parents.iter().find_map(|parent| self.by_uid.get(parent.uid.as_str()));
        found.map(|(kind, owner)| (address(kind, owner), self.whose.of(owner)))
    }

    fn orphan(&self, kind: &Kind, item: &Item) -> Orphan {
        let (object, target) = (address(kind, item), kind.target(item));
        let whose = self.whose.of(item);
        let finalizers: Vec<String> = item.finalizers.iter().map(ToString::to_string).collect();
        if item.going && !finalizers.is_empty() {
            let since = item.since.map_or_else(String::new, |since| format!(" since {}", since.strftime("%FT%TZ")));
            let detail = format!("it is being deleted{since}, and nobody clears {}; {whose}", finalizers.join(", "));
            let next = format!(
                "find out who should; once nothing is left behind it: `forge platform teardown --release-finalizer {target}`"
            );
            return Orphan { object, target, reason: Reason::Finalizer, detail, next };
        }
        if let Some((owner, Whose::Foreign)) = self.parent(item) {
            let detail = format!("{owner} owns it, which is somebody else's; {whose}");
            let next = "it goes with its owner: ask whoever that belongs to".to_owned();
            return Orphan { object, target, reason: Reason::ForeignOwner, detail, next };
        }
        if let Some(users) = self.users(kind, item) {
            let detail = format!("{users} of this kind that are somebody else's; {whose}");
            let next = "let whoever owns them remove them, or keep the definition".to_owned();
            return Orphan { object, target, reason: Reason::NotOurs, detail, next };
        }
        let detail = format!("it was not deleted, and nothing says why; {whose}");
        let next = format!("run this again; if it stays, `kubectl describe {object}` says who uses it");
        Orphan { object, target, reason: Reason::Unknown, detail, next }
    }

    /// Objects of others that a definition is still there for.
    fn users(&self, kind: &Kind, item: &Item) -> Option<String> {
        if !kind.is(DEFINITIONS) {
            return None;
        }
        let of = |found: &&Kind| found.name() == item.name;
        let defined = self.ending.after.kinds().find(of)?;
        let all = self.ending.after.known((&defined.group, &defined.resource)).map(Complete::items).unwrap_or_default();
        let foreign = all.iter().filter(|item| !self.whose.of(item).goes()).count();
        (foreign > 0).then(|| {
            format!("there {}", if foreign == 1 { "is 1 object".to_owned() } else { format!("are {foreign} objects") })
        })
    }

    /// Something that is not ours and was not there before. In a namespace of somebody else, and with an owner, it is his
    /// life; of the whole cluster, it is told of, and what nobody claims may be ours where nothing of Forge's is to stay.
    fn foreign(&self, kind: &Kind, item: &Item) -> Verdict {
        let known = self.index.as_ref().is_some_and(|index| index.has_namespace(&item.name));
        if kind.is(NAMESPACES) && !known && self.ending.claims.destinations.contains(&item.name) {
            let why =
                "an Application of the platform deployed into it, and it does not carry Forge's label, so it stays";
            return Verdict::Other(why.to_owned());
        }
        let Some(index) = &self.index else { return Verdict::AsBefore };
        let gaps = self.ending.snapshot.map(|snapshot| snapshot.gaps.as_slice()).unwrap_or_default();
        if kind.namespaced
            || is_passing(kind)
            || item.automatic
            || !item.parents.is_empty()
            || !index.covers(kind, gaps)
        {
            return Verdict::AsBefore;
        }
        let anew =
            if index.find(kind, item).is_some() { "made anew since the snapshot" } else { "not there at the snapshot" };
        match item.made_by() {
            Some(who) => Verdict::Other(format!("{anew}; made by {who}")),
            // Whoever makes a namespace does not say so.
            None if kind.is(NAMESPACES) => Verdict::Other(format!("{anew}; nothing of the platform was in it")),
            None if self.was_defined(kind, index) => Verdict::Other(format!(
                "{anew}; of a kind that was there before the platform, and nobody says that he made it"
            )),
            None if !self.ending.claims.is_whole() => Verdict::Other(format!("{anew}; nobody says that he made it")),
            None => {
                let orphan = self.orphan(kind, item);
                let detail = format!("{anew}, and nobody says that he made it");
                let next = format!("`kubectl get {} -o yaml` may tell whose it is", orphan.object);
                Verdict::Orphaned(Orphan { reason: Reason::Unknown, detail, next, ..orphan })
            }
        }
    }

    /// A kind that somebody else had defined before the platform came: networks keep identities of pods in such objects, and
    /// backups their copies. What comes and goes of it is his.
    fn was_defined(&self, kind: &Kind, index: &Index<'_>) -> bool {
        let (after, name) = (self.ending.after, kind.name());
        let all = after.known(DEFINITIONS).map(Complete::items).unwrap_or_default();
        let definition = all.iter().find(|item| item.name == name);
        after
            .kind(DEFINITIONS)
            .zip(definition)
            .is_some_and(|(of, definition)| index.holds(of, definition) && !self.whose.of(definition).goes())
    }

    /// What was ours when the teardown began, and is gone.
    fn gone(&self) -> Vec<GoneKind> {
        let Some((before, whose)) = self.ending.before.zip(self.earlier.as_ref()) else { return Vec::new() };
        let mut gone: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (kind, item) in before.objects().filter(|(kind, _)| !is_passing(kind)) {
            if whose.of(item).goes() && self.is_known(kind) && !self.by_uid.contains_key(item.uid.as_str()) {
                gone.entry(kind.name()).or_default().push(item.place());
            }
        }
        gone.into_iter().map(|(kind, objects)| GoneKind { kind, objects }).collect()
    }

    /// What was somebody else's when the teardown began, goes with nothing, and is not there any more: no teardown may have
    /// taken it. That includes objects whose kind is gone.
    fn missing(&self) -> Vec<Left> {
        let Some((before, whose)) = self.ending.before.zip(self.earlier.as_ref()) else { return Vec::new() };
        let now: BTreeSet<(String, &str, &str)> = self
            .by_uid
            .values()
            .map(|(kind, item)| (kind.name(), item.namespace.as_str(), item.name.as_str()))
            .collect();
        let is_missing = |(kind, item): &(&Kind, &Item)| {
            let stays = item.parents.is_empty() && !item.going && !is_passing(kind) && !item.automatic;
            stays
                && !whose.of(item).goes()
                && self.is_known(kind)
                && !now.contains(&(kind.name(), item.namespace.as_str(), item.name.as_str()))
        };
        let why = "it is somebody else's, was there when the teardown began, and is gone";
        let left = |(kind, item): (&Kind, &Item)| Left { object: address(kind, item), why: why.to_owned() };
        before.objects().filter(is_missing).map(left).collect()
    }
}

/// It cannot go by itself.
fn is_held(item: &Item) -> bool {
    item.going && !item.finalizers.is_empty()
}

impl CleanExitReport {
    fn empty(context: &str, environment: &str, ended: Timestamp) -> Self {
        Self {
            context: shown(context),
            environment: shown(environment),
            verdict: String::new(),
            summary: String::new(),
            exit: 0,
            ended,
            snapshot: None,
            gone: Vec::new(),
            retained: Vec::new(),
            orphaned: Vec::new(),
            others: Vec::new(),
            not_known: Vec::new(),
            not_compared: Vec::new(),
        }
    }

    /// Where nothing could be listed: such a cluster is never called clean.
    pub fn unlisted(context: &str, environment: &str, why: &str, ended: Timestamp) -> Self {
        let not_known = vec![Gap::new("everything", why)];
        Self { not_known, ..Self::empty(context, environment, ended) }.judged()
    }

    /// With what follows from what it holds.
    fn judged(mut self) -> Self {
        self.exit = self.exit() as u8;
        let verdict = match self.exit() {
            Exit::Done => "clean",
            Exit::Partial => "orphans left",
            _ => "not known",
        };
        self.verdict = verdict.to_owned();
        self.summary = self.summed_up();
        self
    }

    /// How a teardown ends with it: 2 where something is left, 1 where it is not known.
    pub fn exit(&self) -> Exit {
        match (self.orphaned.is_empty(), self.not_known.is_empty()) {
            (false, _) => Exit::Partial,
            (true, false) => Exit::Findings,
            (true, true) => Exit::Done,
        }
    }

    fn summed_up(&self) -> String {
        let gone: usize = self.gone.iter().map(|kind| kind.objects.len()).sum();
        let mut text =
            format!("{gone} gone, {} retained by policy, {} orphaned", self.retained.len(), self.orphaned.len());
        if !self.not_known.is_empty() {
            let _ = write!(text, ", {} not known", count(self.not_known.len(), "kind"));
        }
        match self.snapshot {
            Some(taken) => {
                let _ = write!(text, "; compared with the snapshot of {}", taken.strftime("%FT%TZ"));
            }
            None => text.push_str("; there is no snapshot to compare with"),
        }
        text
    }

    /// For people, beside the record of the teardown, which tells what stays and what is left: the sum of it, what is not
    /// known, and what is somebody else's.
    pub fn beside(&self) -> String {
        let mut text = format!("\nwhat is left: {}\n", self.summary);
        self.tell_gaps(&mut text);
        if !self.others.is_empty() {
            let _ = writeln!(text, "\nsomebody else's:");
        }
        for left in &self.others {
            let _ = writeln!(text, "  {}: {}", left.object, left.why);
        }
        text
    }

    fn tell_gaps(&self, text: &mut String) {
        for gap in &self.not_known {
            let _ = writeln!(text, "\nnot known: {} ({})\n  why    {}", gap.what, Code::InventoryUnknown, gap.why);
        }
    }

    /// For people, at most 100 columns wide where the words allow it.
    pub fn text(&self) -> String {
        let mut text =
            format!("{}, environment {}: {}\n{}\n", self.context, self.environment, self.verdict, self.summary);
        for orphan in &self.orphaned {
            let _ = writeln!(text, "\norphaned: {} ({})", orphan.object, Code::OrphansLeft);
            let _ = writeln!(text, "  why    {}: {}", orphan.reason.as_str(), orphan.detail);
            let _ = writeln!(text, "  next   {}", orphan.next);
        }
        self.tell_gaps(&mut text);
        for (title, list) in [("retained by policy", &self.retained), ("somebody else's", &self.others)] {
            if !list.is_empty() {
                let _ = writeln!(text, "\n{title}:");
            }
            for left in list {
                let _ = writeln!(text, "  {}: {}", left.object, left.why);
            }
        }
        if !self.not_compared.is_empty() {
            let _ = writeln!(text, "\nnot compared, because the snapshot does not know it:");
            for gap in &self.not_compared {
                let _ = writeln!(text, "  {}: {}", gap.what, gap.why);
            }
        }
        if !self.gone.is_empty() {
            let _ = writeln!(text, "\ngone:");
            for kind in &self.gone {
                let _ = writeln!(text, "  {:>5}  {}", kind.objects.len(), kind.kind);
            }
        }
        text
    }

    /// As JUnit: what is left is a failure, what is not known an error; what is gone, kind by kind, and what policy keeps
    /// are test cases that passed.
    pub fn junit(&self) -> String {
        let case =
            |class: &'static str, name: &str, outcome: TestOutcome| TestCase { class, name: name.to_owned(), outcome };
        let mut cases = Vec::new();
        for orphan in &self.orphaned {
            let kind = Code::OrphansLeft.to_string();
            let message = format!("{}: {}", orphan.reason.as_str(), orphan.detail);
            let body = format!("{message}\nnext: {}", orphan.next);
            cases.push(case("orphaned", &orphan.object, TestOutcome::Failed(TestTrouble { kind, message, body })));
        }
        for gap in &self.not_known {
            let (kind, message, body) = (Code::InventoryUnknown.to_string(), gap.why.clone(), gap.why.clone());
            cases.push(case("not known", &gap.what, TestOutcome::Broken(TestTrouble { kind, message, body })));
        }
        for left in &self.retained {
            cases.push(case("retained", &left.object, TestOutcome::Said(left.why.clone())));
        }
        for gone in &self.gone {
            cases.push(case("gone", &gone.kind, TestOutcome::Passed));
        }
        suite(&format!("forge teardown {}", self.environment), self.ended, 0, &cases)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::render::{ENVIRONMENT_LABEL, MANAGED_BY, RUN_LABEL};
    use crate::teardown::inventory::Listing;
    use crate::teardown::inventory::tests::{at, kind, known, object};
    use crate::teardown::whose::Going;
    use crate::teardown::whose::tests::{application, node};

    type Kinds = BTreeMap<&'static str, Vec<Value>>;

    fn ours() -> Value {
        json!({"labels": {MANAGED_BY: "forge", ENVIRONMENT_LABEL: "dev"}})
    }

    /// What every cluster has: somebody else's namespace with a workload in it.
    fn bare() -> Kinds {
        BTreeMap::from([
            ("namespaces", vec![object("other", json!({}))]),
            ("configmaps", vec![object("other/settings", json!({}))]),
            ("clusterroles.rbac.authorization.k8s.io", vec![]),
            ("customresourcedefinitions.apiextensions.k8s.io", vec![]),
            ("persistentvolumes", vec![]),
            ("events", vec![]),
        ])
    }

    fn with(mut kinds: Kinds, more: Vec<(&'static str, Value)>) -> Kinds {
        for (kind, object) in more {
            kinds.entry(kind).or_default().push(object);
        }
        kinds
    }

    fn inventory(kinds: &Kinds, unknown: &[&str]) -> Inventory {
        after(kinds, unknown, vec![], None)
    }

    fn after(kinds: &Kinds, unknown: &[&str], gaps: Vec<Gap>, earlier: Option<&Inventory>) -> Inventory {
        let cluster_wide = [
            "namespaces",
            "persistentvolumes",
            "clusterroles.rbac.authorization.k8s.io",
            "customresourcedefinitions.apiextensions.k8s.io",
            "identities.example.org",
            "locks.pkg.crossplane.io",
        ];
        let listed = kinds.iter().map(|(name, objects)| {
            let listing =
                if unknown.contains(name) { Listing::Unknown("forbidden".to_owned()) } else { known(9, objects) };
            (kind(name, name, !cluster_wide.contains(name)), listing)
        });
        Inventory::new(at(0), listed.collect(), gaps, earlier)
    }

    /// The report of a teardown of the last environment, with one node, whose Application deployed into `shop`.
    fn report(before: &Kinds, after: &Kinds, unknown: &[&str], policy: PvPolicy) -> CleanExitReport {
        told(before, after, unknown, policy, (true, &Stays::default()))
    }

    /// The same where another environment stays.
    fn of_part(before: &Kinds, after: &Kinds) -> CleanExitReport {
        told(before, after, &[], PvPolicy::Retain, (false, &Stays::default()))
    }

    fn told(
        before: &Kinds,
        after: &Kinds,
        unknown: &[&str],
        policy: PvPolicy,
        (last, stays): (bool, &Stays),
    ) -> CleanExitReport {
        let before = inventory(before, &[]);
        let volumes =
            BTreeMap::from([("pv-1".to_owned(), "shop/data".to_owned()), ("pv-2".to_owned(), "other/data".to_owned())]);
        judged(&before, (&inventory(after, unknown), &bare()), Ok(&volumes), policy, (last, stays))
    }

    /// What is there now, held against what was when the teardown began and what was before bootstrap.
    fn judged(
        before: &Inventory,
        (after, bare): (&Inventory, &Kinds),
        volumes: Result<&BTreeMap<String, String>, &str>,
        policy: PvPolicy,
        (last, stays): (bool, &Stays),
    ) -> CleanExitReport {
        let live = json!({"spec": {"destination": {"name": "in-cluster", "namespace": "shop"}}});
        let (api, name) = (node("shop/api"), application("dev-api"));
        let nodes = [Going { node: &api, application: &name, live: Some(&live) }];
        let environment = "dev".parse().unwrap();
        let scope = "platform".parse().unwrap();
        let claims = Claims::new((&environment, &scope, last), "argocd", &nodes, before);
        let snapshot = Snapshot::of(&inventory(bare, &[]));
        clean_exit(&Ending {
            context: "kind",
            environment: "dev",
            claims: &claims,
            before: Some(before),
            snapshot: Some(&snapshot),
            after,
            volumes,
            policy,
            stays,
            ended: at(60),
        })
    }

    fn platform() -> Kinds {
        with(bare(), vec![("namespaces", object("shop", ours())), ("configmaps", object("shop/settings", json!({})))])
    }

    #[test]
    fn what_was_there_before_and_nothing_else_is_clean() {
        let report = report(&platform(), &bare(), &[], PvPolicy::Retain);
        assert_eq!((report.verdict.as_str(), report.exit), ("clean", 0), "{}", report.text());
        assert_eq!(
            report.text(),
            "kind, environment dev: clean
2 gone, 0 retained by policy, 0 orphaned; compared with the snapshot of 2026-11-16T10:00:00Z

gone:
      1  configmaps
      1  namespaces
"
        );
        let xml = report.junit();
        assert!(xml.contains("tests=\"2\" failures=\"0\" errors=\"0\""), "{xml}");
    }

    #[test]
    fn what_policy_keeps_is_retained_and_what_should_have_gone_is_not() {
        let kept = json!({"labels": {MANAGED_BY: "forge", ENVIRONMENT_LABEL: "dev"}, "annotations": {"helm.sh/resource-policy": "keep"}});
        let after = with(
            bare(),
            vec![
                ("persistentvolumes", object("pv-1", json!({}))),
                ("persistentvolumes", object("pv-2", json!({}))),
                ("customresourcedefinitions.apiextensions.k8s.io", object("widgets.example.com", kept)),
                ("widgets.example.com", object("other/w", json!({}))),
            ],
        );
        let retain = report(&platform(), &after, &[], PvPolicy::Retain);
        assert_eq!(retain.exit, 0, "{}", retain.text());
        let names: Vec<&str> = retain.retained.iter().map(|left| left.object.as_str()).collect();
        assert_eq!(
            names,
            ["persistentvolumes pv-1", "customresourcedefinitions.apiextensions.k8s.io widgets.example.com"]
        );
        let delete = report(&platform(), &after, &[], PvPolicy::Delete);
        assert_eq!((delete.exit, delete.orphaned.len()), (2, 1), "{}", delete.text());
        assert!(delete.orphaned[0].detail.contains("volume of shop/data"), "{}", delete.text());
    }

    #[test]
    fn a_volume_of_somebody_else_where_a_node_deployed_to_is_neither_retained_nor_left() {
        let helm = json!({"annotations": {"meta.helm.sh/release-name": "p", "meta.helm.sh/release-namespace": "shop"}});
        let theirs = |claim: Value| {
            let more = vec![
                ("namespaces", object("shop", json!({}))),
                ("persistentvolumes", object("pv-1", json!({}))),
                ("persistentvolumeclaims", object("shop/data", claim)),
            ];
            with(bare(), more)
        };
        for policy in [PvPolicy::Retain, PvPolicy::Delete] {
            let report = report(&theirs(helm.clone()), &theirs(helm.clone()), &[], policy);
            assert_eq!((report.exit, report.retained.len()), (0, 0), "{}", report.text());
        }
        // One that says nothing may be a node's.
        let (before, after) = (theirs(json!({})), theirs(json!({})));
        assert_eq!(report(&before, &after, &[], PvPolicy::Retain).retained.len(), 1);
    }

    #[test]
    fn a_finalizer_that_is_not_cleared_is_named_with_its_age_and_the_namespace_that_it_holds() {
        let going = json!({"deletionTimestamp": "2026-11-16T10:00:00Z", "labels": {MANAGED_BY: "forge", ENVIRONMENT_LABEL: "dev"}});
        let held = json!({"deletionTimestamp": "2026-11-16T10:00:00Z", "finalizers": ["example.com/hold"]});
        let after = with(
            bare(),
            vec![
                ("namespaces", object("shop", going)),
                ("configmaps", object("shop/held", held)),
                ("configmaps", object("shop/kube-root-ca.crt", json!({}))),
                ("events", object("shop/said", json!({}))),
            ],
        );
        let report = report(&platform(), &after, &[], PvPolicy::Retain);
        assert_eq!((report.verdict.as_str(), report.exit), ("orphans left", 2));
        let told: Vec<(&str, Reason)> =
            report.orphaned.iter().map(|orphan| (orphan.object.as_str(), orphan.reason)).collect();
        assert_eq!(told, [("configmaps shop/held", Reason::Finalizer), ("namespaces shop", Reason::Finalizer)]);
        assert!(
            report.orphaned[0].detail.contains("since 2026-11-16T10:00:00Z")
                && report.orphaned[0].detail.contains("example.com/hold")
        );
        assert!(report.orphaned[0].next.contains("--release-finalizer configmaps/shop/held"));
        assert!(report.orphaned[1].detail.contains("configmaps shop/held"), "{}", report.text());
        let xml = report.junit();
        assert!(xml.contains("<failure type=\"FORGE-O002\""), "{xml}");
    }

    #[test]
    fn what_is_left_with_a_foreign_owner_with_foreign_users_or_without_a_reason_says_so() {
        let mut owned = ours();
        owned["ownerReferences"] = json!([{"kind": "ConfigMap", "name": "settings", "uid": "uid-other/settings"}]);
        let after = with(
            bare(),
            vec![
                ("configmaps", object("other/copy", owned)),
                ("clusterroles.rbac.authorization.k8s.io", object("forge-left", ours())),
                ("clusterroles.rbac.authorization.k8s.io", object("whose", json!({}))),
                ("customresourcedefinitions.apiextensions.k8s.io", object("widgets.example.com", ours())),
                ("widgets.example.com", object("other/w", json!({}))),
                ("namespaces", object("shop", json!({}))),
            ],
        );
        let report = report(&platform(), &after, &[], PvPolicy::Retain);
        let told: BTreeMap<&str, Reason> =
            report.orphaned.iter().map(|orphan| (orphan.object.as_str(), orphan.reason)).collect();
        assert_eq!(
            told,
            BTreeMap::from([
                ("configmaps other/copy", Reason::ForeignOwner),
                ("clusterroles.rbac.authorization.k8s.io forge-left", Reason::Unknown),
                ("clusterroles.rbac.authorization.k8s.io whose", Reason::Unknown),
                ("customresourcedefinitions.apiextensions.k8s.io widgets.example.com", Reason::NotOurs),
            ]),
            "{}",
            report.text()
        );
        // Made by Argo CD without a label: the Application deployed into it, and nothing says that it is ours.
        let shop = report.others.iter().find(|left| left.object == "namespaces shop").unwrap();
        assert!(shop.why.contains("does not carry Forge's label"), "{}", report.text());
        // Where another environment stays, what nobody claims is nobody's orphan, and neither is what Forge itself made.
        let part = of_part(&platform(), &after);
        assert!(part.orphaned.iter().all(|orphan| !orphan.object.ends_with(" whose")), "{}", part.text());
        assert!(part.others.iter().any(|left| left.object.ends_with(" whose")), "{}", part.text());
    }

    #[test]
    fn what_a_node_managed_and_argo_cd_leaves_alone_is_retained_and_so_are_records_while_another_environment_stays() {
        let tracked = |of: &str, more: Value| {
            let mut metadata = json!({"annotations": {"argocd.argoproj.io/tracking-id": format!("dev-api:x:{of}")}});
            for (key, value) in more.as_object().unwrap() {
                metadata["annotations"][key] = value.clone();
            }
            metadata
        };
        let record = json!({"labels": {MANAGED_BY: "forge", ENVIRONMENT_LABEL: "dev", RUN_LABEL: "dev-1"}});
        let after = with(
            bare(),
            vec![
                ("configmaps", object("other/kept", tracked("other/kept", json!({"helm.sh/resource-policy": "keep"})))),
                (
                    "configmaps",
                    object(
                        "other/said",
                        tracked("other/said", json!({"argocd.argoproj.io/sync-options": "Prune=false,Delete=false"})),
                    ),
                ),
                ("configmaps", object("other/record", record)),
            ],
        );
        let part = of_part(&platform(), &after);
        assert_eq!(part.exit, 0, "{}", part.text());
        let kept: Vec<&str> = part.retained.iter().map(|left| left.object.as_str()).collect();
        assert_eq!(kept, ["configmaps other/kept", "configmaps other/record", "configmaps other/said"]);
        let whole = report(&platform(), &after, &[], PvPolicy::Retain);
        let orphaned: Vec<&str> = whole.orphaned.iter().map(|orphan| orphan.object.as_str()).collect();
        assert_eq!(orphaned, ["configmaps other/record"], "{}", whole.text());
    }

    #[test]
    fn what_the_teardown_left_and_said_so_is_told_once() {
        let helm = json!({"annotations": {"meta.helm.sh/release-name": "argo-cd", "meta.helm.sh/release-namespace": "argocd"}});
        let owned = json!({"labels": {MANAGED_BY: "forge"}});
        let release = object("argocd/sh.helm.release.v1.argo-cd.v1", owned.clone());
        let more = vec![
            ("namespaces", object("argocd", owned)),
            ("secrets", release),
            ("clusterroles.rbac.authorization.k8s.io", object("argocd-server", helm)),
            ("configmaps", object("other/shared", ours())),
        ];
        let platform = with(platform(), more.clone());
        let after = with(bare(), more);
        let whole = report(&platform, &after, &[], PvPolicy::Retain);
        assert_eq!((whole.exit, whole.orphaned.len()), (2, 3), "{}", whole.text());
        let stays = Stays {
            objects: BTreeMap::from([("configmaps/other/shared".to_owned(), "another one has it too".to_owned())]),
            releases: BTreeSet::from(["argocd/argo-cd".to_owned()]),
            namespaces: BTreeSet::from(["argocd".to_owned()]),
        };
        let said = told(&platform, &after, &[], PvPolicy::Retain, (true, &stays));
        assert_eq!((said.exit, said.retained.len()), (0, 1), "{}", said.text());
        assert_eq!(said.retained[0].why, "another one has it too");
    }

    #[test]
    fn a_cluster_of_which_nothing_could_be_listed_is_not_known() {
        let report = CleanExitReport::unlisted("kind", "dev", "it took too long", at(60));
        assert_eq!((report.verdict.as_str(), report.exit), ("not known", 1));
        assert!(
            report.text().contains("not known: everything (FORGE-O001)\n  why    it took too long"),
            "{}",
            report.text()
        );
    }

    #[test]
    fn the_life_of_others_is_no_orphan_and_what_went_of_theirs_is_told() {
        let helm =
            json!({"annotations": {"meta.helm.sh/release-name": "db", "meta.helm.sh/release-namespace": "other"}});
        let mut after = with(
            bare(),
            vec![
                ("namespaces", object("newcomer", json!({}))),
                ("configmaps", object("newcomer/x", json!({}))),
                ("configmaps", object("other/more", json!({}))),
                ("clusterroles.rbac.authorization.k8s.io", object("theirs", helm)),
                (
                    "clusterroles.rbac.authorization.k8s.io",
                    object("system", json!({"labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}})),
                ),
            ],
        );
        let whole = report(&platform(), &after, &[], PvPolicy::Retain);
        assert_eq!(whole.exit, 0, "{}", whole.text());
        let others: Vec<&str> = whole.others.iter().map(|left| left.object.as_str()).collect();
        assert_eq!(others, ["namespaces newcomer", "clusterroles.rbac.authorization.k8s.io theirs"]);
        after.insert("configmaps", vec![]);
        let report = report(&platform(), &after, &[], PvPolicy::Retain);
        assert!(
            report.others.iter().any(|left| left.object == "configmaps other/settings" && left.why.contains("is gone"))
        );
    }

    #[test]
    fn what_may_not_be_listed_is_neither_gone_nor_clean() {
        let report = report(&platform(), &bare(), &["configmaps"], PvPolicy::Retain);
        assert_eq!((report.verdict.as_str(), report.exit), ("not known", 1), "{}", report.text());
        assert_eq!(report.not_known, [Gap::new("configmaps", "forbidden")]);
        assert!(report.gone.iter().all(|gone| gone.kind != "configmaps"), "{}", report.text());
        assert!(report.others.is_empty());
        assert!(report.junit().contains("<error type=\"FORGE-O001\""));
    }

    const ROLES: &str = "clusterroles.rbac.authorization.k8s.io";
    const DEFINED: &str = "customresourcedefinitions.apiextensions.k8s.io";

    #[test]
    fn a_kind_whose_group_does_not_answer_is_not_gone_and_what_went_with_a_definition_is_told() {
        let began = with(
            platform(),
            vec![
                (DEFINED, object("widgets.example.com", ours())),
                ("widgets.example.com", object("shop/own", json!({}))),
                ("widgets.example.com", object("other/theirs", json!({}))),
            ],
        );
        let before = inventory(&began, &[]);
        let none = BTreeMap::new();
        let ended = |kinds: &Kinds, gaps: Vec<Gap>| {
            let now = after(kinds, &[], gaps, Some(&before));
            judged(&before, (&now, &bare()), Ok(&none), PvPolicy::Retain, (true, &Stays::default()))
        };
        // It is defined, and its group does not answer.
        let mut kinds = began.clone();
        kinds.remove("widgets.example.com");
        let down = ended(&kinds, vec![Gap::new("example.com/v1", "503")]);
        assert!(down.gone.iter().all(|gone| gone.kind != "widgets.example.com"), "{}", down.text());
        assert!(down.others.is_empty(), "{}", down.text());
        // The definition went, and took what was somebody else's along.
        let gone = ended(&bare(), vec![]);
        assert!(gone.gone.iter().any(|gone| gone.kind == "widgets.example.com"), "{}", gone.text());
        let told: Vec<&str> = gone.others.iter().map(|left| left.object.as_str()).collect();
        assert_eq!(told, ["widgets.example.com other/theirs"], "{}", gone.text());
    }

    #[test]
    fn volumes_of_which_nobody_says_whose_they_are_are_not_known_and_never_clean() {
        let before = inventory(&platform(), &[]);
        let now = inventory(&with(bare(), vec![("persistentvolumes", object("pv-1", json!({})))]), &[]);
        let report = judged(&before, (&now, &bare()), Err("it is down"), PvPolicy::Delete, (true, &Stays::default()));
        assert_eq!((report.verdict.as_str(), report.exit), ("not known", 1), "{}", report.text());
        assert_eq!(report.not_known, [Gap::new("persistentvolumes", "it is down")]);
        assert!(report.others.is_empty() && report.retained.is_empty(), "{}", report.text());
    }

    #[test]
    fn what_others_keep_in_kinds_of_their_own_comes_and_goes_and_is_no_orphan() {
        let identity = |name: &str| ("identities.example.org", object(name, json!({})));
        let theirs = with(bare(), vec![(DEFINED, object("identities.example.org", json!({}))), identity("1")]);
        let now = with(theirs.clone(), vec![identity("2"), (ROLES, object("whose", json!({})))]);
        let none = BTreeMap::new();
        let before = inventory(&with(theirs.clone(), vec![("namespaces", object("shop", ours()))]), &[]);
        let now = after(&now, &[], vec![], Some(&before));
        let report = judged(&before, (&now, &theirs), Ok(&none), PvPolicy::Retain, (true, &Stays::default()));
        let orphaned: Vec<&str> = report.orphaned.iter().map(|orphan| orphan.object.as_str()).collect();
        assert_eq!(orphaned, ["clusterroles.rbac.authorization.k8s.io whose"], "{}", report.text());
        let told: Vec<&str> = report.others.iter().map(|left| left.object.as_str()).collect();
        assert_eq!(told, ["identities.example.org 2"], "{}", report.text());
    }

    #[test]
    fn what_was_there_before_and_was_handed_over_to_a_node_is_left_where_it_is_held() {
        let handed = |more: Value| {
            let mut metadata =
                json!({"annotations": {"argocd.argoproj.io/tracking-id": "dev-api:/ConfigMap:other/old"}});
            metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            ("configmaps", object("other/old", metadata))
        };
        let was = with(bare(), vec![handed(json!({}))]);
        let before = inventory(&was, &[]);
        let none = BTreeMap::new();
        let ended = |more: Value| {
            let now = inventory(&with(bare(), vec![handed(more)]), &[]);
            judged(&before, (&now, &was), Ok(&none), PvPolicy::Retain, (true, &Stays::default()))
        };
        let held = ended(json!({"deletionTimestamp": "2026-11-16T10:00:00Z", "finalizers": ["example.com/hold"]}));
        assert_eq!((held.exit, held.orphaned[0].reason), (2, Reason::Finalizer), "{}", held.text());
        assert_eq!(ended(json!({})).exit, 0);
    }

    #[test]
    fn what_crossplane_made_when_it_started_goes_with_it_and_is_left_or_kept_where_it_did_not() {
        const LOCKS: &str = "locks.pkg.crossplane.io";
        let by = json!({"managedFields": [{"manager": "crossplane", "operation": "Update"}]});
        let own = vec![(DEFINED, object(LOCKS, by.clone())), (LOCKS, object("lock", by))];
        let (crossplane, name) = (node("argocd/crossplane"), application("crossplane"));
        let ended = |was: &Kinds, now: &Kinds, snapshot: Option<&Kinds>| {
            let before = inventory(was, &[]);
            let now = after(now, &[], vec![], Some(&before));
            let nodes = [Going { node: &crossplane, application: &name, live: None }];
            let (environment, scope) = ("dev".parse().unwrap(), "platform".parse().unwrap());
            let claims = Claims::new((&environment, &scope, true), "argocd", &nodes, &before);
            let snapshot = snapshot.map(|kinds| Snapshot::of(&inventory(kinds, &[])));
            clean_exit(&Ending {
                context: "kind",
                environment: "dev",
                claims: &claims,
                before: Some(&before),
                snapshot: snapshot.as_ref(),
                after: &now,
                volumes: Ok(&BTreeMap::new()),
                policy: PvPolicy::Retain,
                stays: &Stays::default(),
                ended: at(60),
            })
        };
        let platform = with(bare(), own);
        // Gone, and not said to have been somebody else's.
        let gone = ended(&platform, &bare(), Some(&bare()));
        assert_eq!((gone.exit, gone.others.len()), (0, 0), "{}", gone.text());
        assert!(gone.gone.iter().any(|gone| gone.objects == [LOCKS]), "{}", gone.text());
        // Left: the definition is told of, and with it what is of it.
        let left = ended(&platform, &platform, Some(&bare()));
        let orphaned: Vec<&str> = left.orphaned.iter().map(|orphan| orphan.object.as_str()).collect();
        assert_eq!(orphaned, [format!("{DEFINED} {LOCKS}")], "{}", left.text());
        // It was there before, or nobody knows whether it was.
        assert_eq!(ended(&platform, &platform, Some(&platform)).exit, 0);
        let unknown = ended(&platform, &platform, None);
        assert_eq!((unknown.exit, unknown.retained.len()), (0, 1), "{}", unknown.text());
        assert!(unknown.retained[0].why.contains("without a snapshot"), "{}", unknown.text());
    }

    #[test]
    fn what_is_written_as_json_reads_back_the_same() {
        let report = report(&platform(), &platform(), &[], PvPolicy::Snapshot);
        assert_eq!(report.exit, 2);
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<CleanExitReport>(&text).unwrap(), report);
        assert!(text.contains("\"reason\":\"unknown\""), "{text}");
    }
}
