//! What releases show about the order of projects: who brings what another one needs (SPEC.md section 7, issue 8).
//!
//! Pure. [`Profile::of`] keeps of a release what it brings and what it needs, so that no release has to stay in memory;
//! [`judge`] compares that with the graph of every environment. A dependency is only told where both ends are known from
//! releases: what an `application:` node or the cluster itself brings is nobody's business here. What is found is evidence,
//! never a guess from names of projects; and what is not found proves nothing, so a declared dependency that no release
//! explains is a note, not a finding.

mod compare;
mod profile;

use std::collections::BTreeMap;

pub use profile::Profile;

use crate::code::Code;
use crate::finding::{Finding, Note, Place};
use crate::format::Reference;
use crate::graph::SYSTEM_STACK;
use crate::name::{EnvironmentName, NodeId, ProjectId, StackName};
use crate::repository::{GRAPH_FILE, Repository};
use crate::yaml::Position;

/// The releases of one environment.
pub type Profiles = BTreeMap<ProjectId, Profile>;

/// How many reasons are told for one dependency.
const SHOWN: usize = 3;

/// What releases show about the graph.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Judged {
    /// Dependencies that the graph does not have.
    pub findings: Vec<Finding>,
    /// Dependencies that it has and no release explains.
    pub notes: Vec<Note>,
}

/// Who waits, as it is written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    Node(NodeId),
    Stack(StackName),
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Node(id) => id.fmt(f),
            Self::Stack(name) => write!(f, "stack:{name}"),
        }
    }
}

/// A dependency that the graph does not have, in one environment.
#[derive(Debug, PartialEq, Eq)]
struct Missing {
    user: NodeId,
    /// Any of them would do.
    providers: Vec<NodeId>,
    reasons: Vec<String>,
    /// All of them wait for the user.
    contradicts: bool,
}

/// Compares the graph of every environment with its releases, those that were read.
pub fn judge(repository: &Repository, read: &BTreeMap<EnvironmentName, Profiles>) -> Judged {
    let mut missing: BTreeMap<_, (Missing, Vec<&EnvironmentName>)> = BTreeMap::new();
    // Whether each declared dependency is without a reason wherever that is known.
    let mut idle: BTreeMap<(Owner, Reference), bool> = BTreeMap::new();
    for files in &repository.environments {
        let name = &files.environment.name.value;
        let Some(profiles) = read.get(name) else { continue };
        let Some(graph) = repository.environment_graph(files).graph else { continue };
        let compared = compare::compare(&graph, profiles);
        for found in compared.missing {
            let key = (found.user.clone(), found.providers.clone());
            missing.entry(key).or_insert_with(|| (found, Vec::new())).1.push(name);
        }
        for (owner, reference, without) in compared.declared {
            *idle.entry((owner, reference)).or_insert(true) &= without;
        }
    }
    let findings = missing.into_values().map(|(found, environments)| finding(repository, &found, &environments));
    let notes = idle.into_iter().filter(|(_, without)| *without);
    let mut judged = Judged {
        findings: findings.collect(),
        notes: notes.map(|((owner, reference), _)| note(repository, &owner, &reference)).collect(),
    };
    judged.findings.sort();
    judged.notes.sort();
    judged
}

fn finding(repository: &Repository, found: &Missing, environments: &[&EnvironmentName]) -> Finding {
    let user = &found.user;
    let names = |separator: &str| {
        let names: Vec<String> = found.providers.iter().map(|id| format!("`{id}`")).collect();
        names.join(separator)
    };
    let environments: Vec<&str> = environments.iter().map(|name| name.as_str()).collect();
    let mut reasons: Vec<&str> = found.reasons.iter().take(SHOWN).map(String::as_str).collect();
    let more = found.reasons.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    reasons.dedup();
    let message = format!(
        "`{user}` does not wait for {}, which brings what it needs (in {}): {}{more}",
        names(" or "),
        environments.join(", "),
        reasons.join("; ")
    );
    let fix = if found.contradicts {
        format!("{} waits for it already: turn that dependency round, or split one of them", names(", "))
    } else {
        match found.providers.as_slice() {
            [provider] => format!("add `dependsOn: [{provider}]` to it, or to what it waits for"),
            _ => format!("add one of {} to its `dependsOn`", names(", ")),
        }
    };
    Finding::new(Code::ForgottenEdge, place(repository, user), message).with_fix(fix)
}

/// Where a node stands in `graph.yaml`.
fn place(repository: &Repository, node: &NodeId) -> Place {
    let mut apps = repository.graph.stacks.iter().flat_map(|stack| &stack.apps);
    let app = apps.find(|app| app.subject.id() == *node);
    Place::new(GRAPH_FILE, app.map_or(Position::START, |app| app.subject.at))
}

fn note(repository: &Repository, owner: &Owner, reference: &Reference) -> Note {
    let written = match owner {
        Owner::Stack(name) => {
            let stack = repository.graph.stacks.iter().find(|stack| stack.name.value == *name);
            stack.map(|stack| (&stack.depends_on, stack.name.at))
        }
        Owner::Node(id) => {
            let mut apps = repository.graph.stacks.iter().flat_map(|stack| &stack.apps);
            apps.find(|app| app.subject.id() == *id).map(|app| (&app.depends_on, app.subject.at))
        }
    };
    let at = written.map(|(all, own)| all.iter().find(|one| one.value == *reference).map_or(own, |one| one.at));
    let message = format!(
        "`{owner}` waits for `{reference}`, and nothing in their releases says why: if it does not need it to start, \
         this only costs parallelism"
    );
    Note { place: Place::new(GRAPH_FILE, at.unwrap_or(Position::START)), message }
}

/// True for what is there because of the layout.
fn is_system(reference: &Reference) -> bool {
    matches!(reference, Reference::Stack(name) if name.as_str() == SYSTEM_STACK)
}

#[cfg(test)]
mod tests;
