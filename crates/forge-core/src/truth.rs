//! What is true of an environment, and what is not as it should be (SPEC.md sections 4 to 6): every node through the gate, what
//! really runs, the rules on live objects, windows, the controllers themselves, what is there and should not be.
//!
//! Pure: facts in, a report out. It never asks for a comparison: what Argo CD last said is taken as it is, and called stale
//! where it is old. What could not be read is not known, and never healthy.

mod cause;
mod config;
mod controller;
mod live;
mod node;
mod report;
#[cfg(test)]
mod tests;
mod window;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;

pub use cause::{Cause, Kind, Verdict};
pub use config::ConfigFacts;
pub use controller::ControllerFacts;
pub use node::{LiveApplication, LiveManifest, NodeFacts, Unread};
pub use report::{Problem, Standing, Tally, ValidationReport, changes};
#[cfg(test)]
pub(crate) use tests::every_cause;

use crate::code::{Class, Code};
use crate::digest::CommitId;
use crate::duration::Duration;
use crate::gate::{Proof, Receipt};
use crate::graph::Scope;
use crate::name::{ApplicationId, EnvironmentName};
use crate::preflight::Looked;
use crate::run::Phase;
use crate::view::{Holder, Spot, StatusNode, Stranger, shown};

/// How old Argo CD's comparison may be before it is called stale, unless somebody says otherwise.
pub const STALE_AFTER: Duration = Duration::from_seconds(600);
/// No component is told more about than this.
const MOST: usize = 30;

/// Codes of rules that are told and do not count, as people write them: separated by commas.
///
/// # Errors
/// When one is no code, or none of a rule; in words.
pub fn allowed(text: &str) -> Result<BTreeSet<Code>, String> {
    let one = |word: &str| {
        let code = word.trim().parse::<Code>().map_err(|error| error.to_string())?;
        if code.class() == Class::Policy || code == Code::ForeignWindows {
            Ok(code)
        } else {
            Err(format!("{code} is not a rule for live objects: {} cannot be allowed", code.title()))
        }
    };
    text.split(',').map(one).collect()
}

/// What Git holds, as far as is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Branch {
    /// The commit that is validated, or somebody named that commit.
    Holds,
    /// Another commit.
    Moved {
        /// The branch.
        branch: String,
        /// What it holds.
        tip: String,
    },
    /// It could not be asked.
    NotRead {
        /// The branch.
        branch: String,
    },
}

/// Everything that a report rests on.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// The environment.
    pub environment: EnvironmentName,
    /// What of it.
    pub scope: Scope,
    /// The cluster, for people.
    pub context: String,
    /// The commit that nodes are held against.
    pub commit: CommitId,
    /// Whether that is what Git holds now.
    pub branch: Branch,
    /// The nodes, in the order of the plan.
    pub nodes: Vec<NodeFacts>,
    /// Names of all Applications that the graph has, those outside the scope too.
    pub known: BTreeSet<String>,
    /// Applications of the environment that no node stands for.
    pub strangers: Looked<Vec<Stranger>>,
    /// Argo CD, Argo Workflows, Argo Events.
    pub controllers: Vec<ControllerFacts>,
    /// The AppProject of the environment; nothing where there is none.
    pub project: Looked<Option<Value>>,
    /// Who holds the Lease of the environment.
    pub holder: Looked<Option<Holder>>,
    /// EnvironmentConfigs.
    pub configs: Vec<ConfigFacts>,
    /// How old a comparison may be.
    pub stale_after: Duration,
    /// Codes of rules that are told and do not count.
    pub allowed: BTreeSet<Code>,
    /// What else is good to know.
    pub notes: Vec<String>,
}

/// What the facts come to.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// For programs and people.
    pub report: ValidationReport,
    /// The nodes as `status` shows them, for a page.
    pub nodes: Vec<StatusNode>,
}

/// Something that stands for itself, and what is wrong with it.
struct Judgement {
    standing: Standing,
    causes: Vec<Cause>,
    application: Option<ApplicationId>,
    destination: Option<String>,
    since: Option<Timestamp>,
}

impl Judgement {
    fn new(sort: &str, name: &str, causes: Vec<Cause>) -> Self {
        let standing = Standing::new(sort, name);
        Self { standing, causes, application: None, destination: None, since: None }
    }

    fn verdict(&self) -> Verdict {
        self.causes.iter().map(Cause::verdict).max().unwrap_or(Verdict::Healthy)
    }
}

/// Says what is true. `started` is when somebody began to look.
pub fn judge(facts: &Facts, started: Timestamp, now: Timestamp) -> Judged {
    let mut notes = facts.notes.clone();
    let mut judgements: Vec<Judgement> = Vec::new();
    let mut nodes = Vec::new();
    for node in &facts.nodes {
        let (causes, receipt) = node::judged(node, facts.stale_after, now);
        let allowed: BTreeSet<Code> = facts.allowed.union(&node.allowed).copied().collect();
        let judgement = judgement(node, counted(causes, &allowed, node.wanted.node.as_str(), &mut notes), receipt);
        nodes.push(shown_node(node, &judgement, facts.stale_after, now));
        judgements.push(judgement);
    }
    let window = project(facts, &judgements, now);
    judgements.extend(
        facts.controllers.iter().map(|controller| {
            Judgement::new("controller", controller.component.title(), controller::judged(controller))
        }),
    );
    let name = format!("AppProject {}", facts.environment);
    judgements.push(Judgement::new("project", &name, counted(window, &facts.allowed, &name, &mut notes)));
    judgements.extend(
        facts
            .configs
            .iter()
            .map(|found| Judgement::new("config", &format!("EnvironmentConfig {}", found.name), config::judged(found))),
    );
    judgements.push(Judgement::new("repository", "repository", branch(&facts.branch)));
    judgements.extend(strangers(&facts.strangers));
    if let Looked::Saw(Some(holder)) = &facts.holder
        && !holder.has_expired(now)
    {
        notes.push(format!("run {} is in progress: what it has not proven yet is on its way", shown(&holder.run)));
    }
    let report = report::report(facts, judgements, &notes, (started, now));
    Judged { report, nodes }
}

fn judgement(node: &NodeFacts, causes: Vec<Cause>, receipt: Option<Receipt>) -> Judgement {
    let application = node.application.saw().and_then(Option::as_ref);
    let mut judgement = Judgement::new("node", node.wanted.node.as_str(), causes);
    judgement.application = Some(node.wanted.application.clone());
    if let Some(application) = application {
        judgement.destination.clone_from(&application.facts.destination);
        judgement.since = application.facts.since;
        judgement.standing.compared = application.facts.compared;
        judgement.standing.revisions.clone_from(&application.facts.revisions);
    }
    judgement.standing.application = Some(node.wanted.application.to_string());
    judgement.standing.detail = receipt.map(|receipt| proof(&receipt)).unwrap_or_default();
    judgement
}

fn proof(receipt: &Receipt) -> String {
    let running = receipt.images.len() + receipt.sidecars.len();
    let on = match receipt.proof {
        Proof::Digest => "proven by the digests of its release",
        Proof::Revision => "proven by its revision",
    };
    match running {
        0 => on.to_owned(),
        1 => format!("{on}; 1 container runs"),
        more => format!("{on}; {more} containers run"),
    }
}

/// What counts, the worst first, so that what is too much is never that. A rule that is allowed is told in a note; there is not
/// too much of anything.
fn counted(causes: Vec<Cause>, allowed: &BTreeSet<Code>, of: &str, notes: &mut Vec<String>) -> Vec<Cause> {
    let is_allowed = |cause: &Cause| matches!(cause, Cause::Rule { code, .. } if allowed.contains(code));
    let (passed, mut counted): (Vec<Cause>, Vec<Cause>) = causes.into_iter().partition(is_allowed);
    let told = passed.iter().take(MOST);
    notes.extend(told.map(|cause| format!("allowed: {of}: {} {cause}", cause.code())));
    counted.sort_by_key(|cause| std::cmp::Reverse(cause.verdict()));
    let more = counted.len().saturating_sub(MOST);
    if more > 0 {
        counted.truncate(MOST);
        notes.push(format!("{of}: {more} more things are wrong, and not told"));
    }
    counted
}

/// The window of the environment, held against how the nodes stand.
fn project(facts: &Facts, judgements: &[Judgement], now: Timestamp) -> Vec<Cause> {
    let stands: BTreeMap<&str, Verdict> = judgements
        .iter()
        .filter_map(|judgement| Some((judgement.application.as_ref()?.name(), judgement.verdict())))
        .collect();
    let holder = facts.holder.saw().and_then(Option::as_ref).filter(|holder| !holder.has_expired(now));
    let running = holder.map(|holder| holder.run.as_str());
    let unread = match &facts.holder {
        Looked::NotPermitted(why) | Looked::Failed(why) => Some(why.as_str()),
        Looked::Saw(_) => None,
    };
    let names = window::Names { stands, known: &facts.known, running, unread };
    window::judged(&facts.environment, &facts.project, &names)
}

fn branch(branch: &Branch) -> Vec<Cause> {
    match branch {
        Branch::Holds => Vec::new(),
        Branch::Moved { branch, tip } => vec![Cause::OldCheckout { branch: branch.clone(), tip: tip.clone() }],
        Branch::NotRead { branch } => {
            let why = "the remote `origin` did not answer, or has no such branch".to_owned();
            vec![Cause::NotRead { what: format!("what branch `{branch}` holds now"), why }]
        }
    }
}

fn strangers(found: &Looked<Vec<Stranger>>) -> Vec<Judgement> {
    match found {
        Looked::NotPermitted(why) | Looked::Failed(why) => {
            let what = "which Applications are there that Git does not have".to_owned();
            vec![Judgement::new("application", "other Applications", vec![Cause::NotRead { what, why: why.clone() }])]
        }
        Looked::Saw(strangers) => {
            let extra = |stranger: &Stranger| {
                let causes = vec![Cause::Extra { why: stranger.why.clone() }];
                let mut judgement = Judgement::new("application", &stranger.application, causes);
                judgement.standing.application = Some(stranger.application.clone());
                judgement
            };
            strangers.iter().map(extra).collect()
        }
    }
}

/// A node as `status` shows it: proven, failed, or somewhere between.
fn shown_node(node: &NodeFacts, judgement: &Judgement, stale_after: Duration, now: Timestamp) -> StatusNode {
    let live = node.application.saw().and_then(Option::as_ref).map(|application| application.facts.clone());
    StatusNode {
        phase: Some(match judgement.verdict() {
            Verdict::Healthy => Phase::Proven,
            Verdict::NotKnown => Phase::Waiting,
            Verdict::Degraded => Phase::Proving,
            Verdict::Unhealthy => Phase::Failed,
        }),
        detail: judgement.causes.first().map_or_else(|| judgement.standing.detail.clone(), ToString::to_string),
        since: judgement.since,
        stale: live.as_ref().is_some_and(|live| live.is_stale(now, stale_after)),
        live,
        ..StatusNode::unknown(&node.wanted.node, &node.wanted.application)
    }
}

/// Where the commands in an advice point to.
fn spot(judgement: &Judgement) -> Option<Spot<'_>> {
    let application = judgement.application.as_ref()?;
    Some(Spot { application, destination: judgement.destination.as_deref() })
}
