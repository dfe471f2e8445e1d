//! What must hold of a state that is new enough to count (SPEC section 6), and the first thing that does not.
//!
//! Knows neither operations nor time: `gate` turns what is unmet into a wait, a request or a failure.

use kube_cel::cel::Program;

use crate::digest::Digest;
use crate::gate::decision::{Rendered, WaitingFor, Why};
use crate::gate::expression::{self, Verdict};
use crate::gate::observed::{ApplicationState, Folder, Health, SyncState, Tree};
use crate::gate::receipt::Receipt;
use crate::gate::wanted::{Content, HealthRule, ObjectRef, Wanted};

/// The first thing that does not hold.
pub(super) enum Unmet {
    /// Time cannot help.
    Never(Why),
    /// The caller has not looked yet.
    Unread(WaitingFor),
    /// A sync brings it about, if none of ours has been made yet; after one, time must.
    Sync(WaitingFor, Why),
    /// Time must bring it about.
    Time(WaitingFor, Why),
}

fn never(why: Why) -> Box<Unmet> {
    Box::new(Unmet::Never(why))
}

fn unread(on: WaitingFor) -> Box<Unmet> {
    Box::new(Unmet::Unread(on))
}

fn by_sync(on: WaitingFor, why: Why) -> Box<Unmet> {
    Box::new(Unmet::Sync(on, why))
}

fn time(on: WaitingFor, why: Why) -> Box<Unmet> {
    Box::new(Unmet::Time(on, why))
}

/// What stands behind a state.
#[derive(Clone, Copy)]
pub(super) enum After {
    /// A sync of ours that succeeded.
    Attempt(u32),
    /// No sync of ours; perhaps none is needed.
    Nothing,
    /// Somebody else's, which failed: what it left behind may be half of something.
    Failure,
}

/// Checks everything, in the order in which things come about. `anew` says that Argo CD was asked to render past everything
/// that it keeps, and did.
pub(super) fn check(
    wanted: &Wanted,
    state: &ApplicationState,
    after: After,
    anew: bool,
) -> Result<Receipt, Box<Unmet>> {
    let rules = programs(wanted)?;
    // Without a comparison all that follows is left over from an earlier one.
    if let Some(message) = state.conditions.first() {
        let message = message.clone();
        return Err(time(WaitingFor::Comparison { message: message.clone() }, Why::Comparison { message }));
    }
    if state.resources == 0 {
        return Err(never(Why::Empty));
    }
    source(wanted, state)?;
    if state.sync != SyncState::Synced || matches!(after, After::Failure) {
        let sync = state.sync;
        return Err(by_sync(WaitingFor::InSync { sync }, Why::NotInSync { sync }));
    }
    // Before health: what is not well may be what the wanted release mends.
    render(wanted, state, anew)?;
    // Before the tree: what was read of it while it still changed would be thrown away.
    if state.health != Health::Healthy {
        let (health, unwell) = (state.health, state.unwell.clone());
        return Err(time(WaitingFor::Health { health, unwell: unwell.clone() }, Why::Unhealthy { health, unwell }));
    }
    let tree = state.tree.as_ref().ok_or_else(|| unread(WaitingFor::Tree))?;
    workloads(tree)?;
    images(wanted, tree)?;
    for object in &wanted.requires {
        live(tree, object)?;
    }
    for (rule, program) in &rules {
        holds(rule, program, tree)?;
    }
    let attempt = if let After::Attempt(attempt) = after { Some(attempt) } else { None };
    Ok(Receipt::new(wanted, state, tree, attempt))
}

/// Compiled first: a rule that can never be used must not cost a health timeout.
fn programs(wanted: &Wanted) -> Result<Vec<(&HealthRule, Program)>, Box<Unmet>> {
    let compiled = wanted.health.iter().map(|rule| match expression::program(&rule.expr) {
        Ok(program) => Ok((rule, program)),
        Err(error) => Err(never(Why::RuleBroken { object: rule.object.clone(), error })),
    });
    compiled.collect()
}

/// The revision that Argo CD compared with. Wrong ones are not synced: that would deploy something else.
pub(super) fn source(wanted: &Wanted, state: &ApplicationState) -> Result<(), Box<Unmet>> {
    let commit = match &wanted.content {
        Content::Revisions { revisions } if *revisions == state.revisions => return Ok(()),
        Content::Revisions { revisions } => {
            let (wanted, found) = (revisions.clone(), state.revisions.clone());
            return Err(never(Why::RevisionMoved { wanted, found }));
        }
        Content::Git { commit } | Content::Release { commit, .. } => commit,
    };
    let git = state.git.as_ref().ok_or_else(|| unread(WaitingFor::Repository { read: false }))?;
    match git.folder {
        _ if !git.contains_commit => {
            let commit = commit.clone();
            Err(time(WaitingFor::Commit { commit: commit.clone() }, Why::CommitMissing { commit }))
        }
        Folder::Changed => Err(never(Why::FolderMoved)),
        Folder::Unknown => {
            let message = git.error.clone().unwrap_or_default();
            Err(time(WaitingFor::Repository { read: true }, Why::RepositoryUnread { message }))
        }
        Folder::Same => Ok(()),
    }
}

/// What is live was rendered of the wanted release, by the wanted pointer. Argo CD calls it Synced with the wanted revision,
/// so where it was not, Argo CD compared with manifests that it kept from before, and a sync would only bring them again: it must
/// render anew, once. What is wrong after that stays wrong.
fn render(wanted: &Wanted, state: &ApplicationState, anew: bool) -> Result<(), Box<Unmet>> {
    let Content::Release { digest, pointer, output, .. } = &wanted.content else { return Ok(()) };
    if state.render_unread {
        return Err(unread(WaitingFor::Receipt));
    }
    let differs = |wanted: Option<&Digest>, found: &Digest| wanted.is_some_and(|wanted| wanted != found);
    let found = match &state.render {
        None => Rendered::Nothing,
        Some(found) if found.release != *digest => Rendered::Release { digest: found.release.clone() },
        Some(found) if differs(pointer.as_ref(), &found.pointer) => Rendered::Pointer,
        Some(found) if differs(output.as_ref(), &found.output) => Rendered::Output,
        Some(_) => return Ok(()),
    };
    let why = Why::NotRendered { release: digest.clone(), found };
    Err(if anew { never(why) } else { time(WaitingFor::Render { release: digest.clone() }, why) })
}

fn workloads(tree: &Tree) -> Result<(), Box<Unmet>> {
    match tree.workloads.iter().find(|w| w.observed_generation.is_none_or(|seen| seen < w.generation)) {
        None => Ok(()),
        Some(late) => {
            let workload = late.id.clone();
            Err(time(WaitingFor::Generation { workload: workload.clone() }, Why::StaleGeneration { workload }))
        }
    }
}

fn images(wanted: &Wanted, tree: &Tree) -> Result<(), Box<Unmet>> {
    for container in tree.containers.iter().filter(|c| c.running) {
        if let Some(digest) = wanted.images.get(&container.key)
            && container.image.as_ref() != Some(digest)
        {
            let (key, running) = (container.key.clone(), container.image.clone());
            let why = Why::WrongImage { container: key.clone(), wanted: digest.clone(), running };
            return Err(time(WaitingFor::Image { container: key }, why));
        }
    }
    Ok(())
}

fn live<'a>(tree: &'a Tree, object: &ObjectRef) -> Result<&'a serde_json::Value, Box<Unmet>> {
    let found = tree.objects.iter().find(|live| live.object == *object);
    found.and_then(|live| live.value.as_ref()).ok_or_else(|| {
        let on = WaitingFor::Object { object: object.clone(), read: found.is_some() };
        time(on, Why::MissingObject { object: object.clone() })
    })
}

fn holds(rule: &HealthRule, program: &Program, tree: &Tree) -> Result<(), Box<Unmet>> {
    let object = rule.object.clone();
    match expression::evaluate(program, live(tree, &rule.object)?) {
        Verdict::Holds => Ok(()),
        Verdict::NotYet(detail) => {
            let on = WaitingFor::Rule { object: object.clone(), detail: detail.clone() };
            Err(time(on, Why::RuleUnmet { object, detail }))
        }
        Verdict::Broken(error) => Err(never(Why::RuleBroken { object, error })),
    }
}
