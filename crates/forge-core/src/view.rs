//! A run as people and programs see it: why a node waits, a table while it lasts, a report when it has ended, the state of
//! an environment. Everything here is computed from a [`crate::run::RunPlan`], a [`crate::run::Record`] and what Argo CD
//! shows, and changes nothing.
//!
//! Messages of Argo CD and whatever else comes out of a cluster are cut and cleaned before they are shown ([`shown`]).

mod advice;
mod application;
mod chain;
mod event;
mod looked;
mod ordered;
mod picture;
mod report;
#[cfg(test)]
pub(crate) mod sample;
mod status;
mod table;

use jiff::Timestamp;

pub use advice::{Spot, advice, advice_cause, advice_waiting};
pub use application::{ApplicationFacts, UnwellResource, worst};
pub use chain::{Chain, Link, why, why_live};
pub use event::{Event, Happened, events};
pub use looked::LookedAt;
pub use ordered::ordered;
pub use picture::graph;
pub use report::{Component, FailedNode, Found, NoRun, RunReport, SlowNode, Statistics, list};
pub use status::{
    Holder, Installed, Lead, LeadFacts, NodeState, PlatformPhase, Seen, Standing, StatusNode, Stranger, Window, health,
    lead, listed, standing, strangers, verdict,
};
pub use table::{Running, Table, predicted};

use crate::duration::Duration;

/// The time between two moments; none where the second is the earlier.
pub fn between(from: Timestamp, to: Timestamp) -> Duration {
    let seconds = to.duration_since(from).as_secs();
    Duration::from_seconds(u64::try_from(seconds).unwrap_or(0))
}

/// A span of time in its two largest units: how long ago something was, for who does not want to know the second.
pub fn age(span: Duration) -> String {
    let seconds = span.seconds();
    let coarse = match seconds {
        0..3600 => seconds,
        3600..86_400 => seconds / 60 * 60,
        _ => seconds / 3600 * 3600,
    };
    Duration::from_seconds(coarse).to_string()
}

/// A text from a cluster as it may be shown: on one line, without control characters, and not endless. What is cut is the
/// middle: programs that pass an error on put their own words in front, so the cause is at the end.
pub fn shown(text: &str) -> String {
    const HEAD: usize = 150;
    const TAIL: usize = 250;
    let clean = crate::name::clean(text);
    let length = clean.chars().count();
    if length <= HEAD + TAIL {
        return clean.into_owned();
    }
    let head: String = clean.chars().take(HEAD).collect();
    let tail: String = clean.chars().skip(length - TAIL).collect();
    format!("{head}…{tail}")
}
