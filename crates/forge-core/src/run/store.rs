//! How a run lies in ConfigMaps: names, keys and pieces of at most 256 KiB (SPEC.md section 6).
//!
//! The plan is one JSON text cut into pieces. The record has one data key per node, so that writers of different nodes
//! never meet: a piece is patched key by key and never read, changed and written back.

use serde_json::Value;

use crate::digest::Digest;
use crate::gate::{Decision, RunId};
use crate::name::NodeId;
use crate::run::{Entry, RunPlan};

/// Largest piece.
const PIECE: usize = 256 << 10;
/// Largest entry: this many of them fit into a piece.
const LONGEST_ENTRY: usize = PIECE / NODES_PER_PIECE - 128;
/// Nodes whose entries share a ConfigMap.
pub const NODES_PER_PIECE: usize = 32;
/// Runs whose records are kept for each environment.
pub const MOST_RUNS: usize = 20;
/// The data key of the header, in piece 0 of the record.
pub const HEADER_KEY: &str = "run.json";
/// The data key of a person's wish to stop, beside the header.
pub const CANCEL_KEY: &str = "cancel";
/// The data key of a piece of the plan.
const PLAN_KEY: &str = "plan.json";

/// The ConfigMap of a piece of the plan.
pub fn plan_name(run: &RunId, piece: usize) -> String {
    format!("forge-plan-{run}-{piece}")
}

/// The ConfigMap of a piece of the record; piece 0 holds the header, nodes begin in piece 1.
pub fn record_name(run: &RunId, piece: usize) -> String {
    format!("forge-run-{run}-{piece}")
}

/// The piece of the record that holds the entry of the node at this place of the plan.
pub fn entry_piece(place: usize) -> usize {
    place / NODES_PER_PIECE + 1
}

/// The data key of a node. No name has an underscore, so no two nodes have one key.
pub fn entry_key(node: &NodeId) -> String {
    format!("{}.json", node.as_str().replace('/', "_"))
}

/// A plan cut into texts, to be stored under the key that comes with them.
pub struct Pieces {
    /// The data key.
    pub key: &'static str,
    /// The texts, in order.
    pub texts: Vec<String>,
}

/// Cuts a plan into pieces.
pub fn plan_pieces(plan: &RunPlan) -> Pieces {
    let text = serde_json::to_string(plan).unwrap_or_default();
    let mut texts = Vec::new();
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let mut end = rest.len().min(PIECE);
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let (piece, after) = rest.split_at(end);
        texts.push(piece.to_owned());
        rest = after;
    }
    Pieces { key: PLAN_KEY, texts }
}

/// Puts the pieces of a plan together again: ConfigMaps in the order of their numbers.
///
/// # Errors
/// When a piece is missing or the text is not a plan.
pub fn read_plan(config_maps: &[Value]) -> Result<RunPlan, String> {
    let mut text = String::new();
    for config_map in config_maps {
        let piece = config_map.pointer("/data").and_then(|data| data.get(PLAN_KEY)).and_then(Value::as_str);
        text.push_str(piece.ok_or_else(|| format!("a piece of the plan has no `{PLAN_KEY}`"))?);
    }
    serde_json::from_str(&text).map_err(|error| format!("the stored plan cannot be read: {error}"))
}

/// The text of an entry, never longer than its share of a piece: of a receipt that is, what is listed most is replaced by
/// its count and digest.
pub fn shortened(entry: &Entry) -> String {
    let text = serde_json::to_string(entry).unwrap_or_default();
    if text.len() <= LONGEST_ENTRY {
        return text;
    }
    let mut entry = entry.clone();
    if let Decision::Proven(receipt) = &mut entry.decision {
        let count = receipt.workloads.len() + receipt.sidecars.len() + receipt.images.len() + receipt.not_running.len();
        let digest = Digest::of(text.as_bytes());
        receipt.workloads = [(format!("{count} workloads and containers, {digest}"), 0)].into();
        receipt.sidecars.clear();
        receipt.images.clear();
        receipt.not_running.clear();
    }
    entry.asked.truncate(8);
    serde_json::to_string(&entry).unwrap_or_default()
}
