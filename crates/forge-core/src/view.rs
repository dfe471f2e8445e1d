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

pub use advice::{Spot, advice, advice_waiting};
pub use application::{ApplicationFacts, UnwellResource};
pub use chain::{Chain, Link, why, why_live};
pub use event::{Event, Happened, events};
pub use looked::LookedAt;
pub use ordered::ordered;
pub use picture::graph;
pub use report::{Component, FailedNode, NoRun, RunReport, SlowNode, Statistics, list};
pub use status::{
    Holder, Installed, Lead, LeadFacts, PlatformPhase, Seen, Standing, StatusNode, Stranger, Window, health, lead,
    listed, standing,
};
pub use table::{Running, Table, predicted};

use crate::duration::Duration;

/// The time between two moments; none where the second is the earlier.
pub fn between(from: Timestamp, to: Timestamp) -> Duration {
    let seconds = to.duration_since(from).as_secs();
    Duration::from_seconds(u64::try_from(seconds).unwrap_or(0))
}

/// A text from a cluster as it may be shown: on one line, without control characters, and not endless.
pub fn shown(text: &str) -> String {
    const LONGEST: usize = 400;
    let mut clean: String = crate::name::clean(text).chars().take(LONGEST).collect();
    if text.chars().nth(LONGEST).is_some() {
        clean.push('…');
    }
    clean
}
