//! How a run lies in ConfigMaps: names, keys and pieces of at most 256 KiB (SPEC.md section 6).
//!
//! The plan is one JSON text cut into pieces. The record has one data key per node, so that writers of different nodes
//! never meet: a piece is patched key by key and never read, changed and written back.

use serde_json::Value;

use crate::digest::Digest;
use crate::gate::{Decision, RunId};
use crate::name::{NodeId, clean, cut};
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
/// The data key of what was looked for of nodes that are to go, beside the header.
pub const CLEARANCE_KEY: &str = "clearance.json";
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

/// What is cut where an entry is too long for its share, step by step: bytes of every text, items of every list. No
/// identity has more than 317 bytes, so what is left can still be read.
const CUTS: [(usize, usize); 4] = [(1024, 16), (512, 8), (320, 3), (320, 1)];

/// The text of an entry, never longer than its share of a piece: of a receipt that is, what is listed most is replaced
/// by its count and digest; where that is not enough, every text and every list is cut.
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
    let whole = serde_json::to_value(&entry).unwrap_or_default();
    let mut text = whole.to_string();
    for (longest, most) in CUTS {
        if text.len() <= LONGEST_ENTRY {
            break;
        }
        let mut value = whole.clone();
        shrink(&mut value, longest, most);
        text = value.to_string();
    }
    text
}

/// Cuts every text and every list. Control characters go too: in JSON each would take six bytes.
fn shrink(value: &mut Value, longest: usize, most: usize) {
    match value {
        Value::String(text) => {
            let short = cut(&clean(text), longest).into_owned();
            *text = short;
        }
        Value::Array(items) => {
            items.truncate(most);
            items.iter_mut().for_each(|item| shrink(item, longest, most));
        }
        Value::Object(fields) => fields.values_mut().for_each(|field| shrink(field, longest, most)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::{Failure, Health, ObjectRef, Unwell, Wait, WaitingFor, Why};
    use crate::view::sample;

    /// Texts that make the most of their bytes: many of one, of several bytes each, and such that JSON escapes.
    fn hostile() -> [String; 4] {
        ["x".repeat(90_000), "日本語".repeat(10_000), "\u{1}".repeat(90_000), "\"\\".repeat(45_000)]
    }

    fn object(text: &str) -> ObjectRef {
        let text = text.to_owned();
        ObjectRef { api_version: text.clone(), kind: text.clone(), name: text.clone(), namespace: Some(text) }
    }

    /// An entry with this decision and every other text as long, of a node with the longest of all names.
    fn entry(decision: Decision, text: &str) -> Entry {
        let label = "n".repeat(61);
        let mut entry = sample::all_proven("r-1", 0).record.entries.into_values().next().unwrap();
        entry.node = format!("{}/{label}.{label}.{label}.{label}", "s".repeat(63)).parse().unwrap();
        entry.progress.refused = Some(text.to_owned());
        entry.asked = entry.asked.iter().cycle().take(5_000).copied().collect();
        entry.decision = decision;
        entry
    }

    fn decisions(text: &str) -> Vec<Decision> {
        let proven = sample::all_proven("r-1", 0).record.entries.into_values().next().unwrap().decision;
        let Decision::Proven(mut receipt) = proven else { panic!("not proven") };
        receipt.revisions = vec![text.to_owned(); 20];
        receipt.workloads = (0..1_000).map(|n| (format!("Deployment/a/{n}"), n)).collect();
        receipt.objects = (0..40).map(|n| object(&format!("{n}{}", &text[..9_000]))).collect();
        let texts = vec![text.to_owned(); 20];
        let unmet = Why::RuleUnmet { object: object(text), detail: text.to_owned() };
        let moved = Why::RevisionMoved { wanted: texts.clone(), found: texts };
        let unwell = Some(Unwell { resource: text.to_owned(), message: text.to_owned() });
        let unhealthy = Why::Unhealthy { health: Health::Degraded, unwell };
        let on = WaitingFor::Operation { attempt: 1, message: text.to_owned() };
        vec![
            Decision::Proven(receipt),
            Decision::Failed(Failure::from(unmet)),
            Decision::Failed(Failure::from(moved)),
            Decision::Failed(Failure::from(unhealthy)),
            Decision::Wait(Wait { on, until: sample::at(9), since: None }),
        ]
    }

    #[test]
    fn an_entry_keeps_to_its_share_whatever_its_texts_and_can_still_be_read() {
        for text in hostile() {
            for decision in decisions(&text) {
                let whole = entry(decision, &text);
                let short = shortened(&whole);
                assert!(short.len() <= LONGEST_ENTRY, "{} bytes", short.len());
                let read: Entry = serde_json::from_str(&short).unwrap();
                assert_eq!((&read.node, read.since), (&whole.node, whole.since));
                assert_eq!(std::mem::discriminant(&read.decision), std::mem::discriminant(&whole.decision));
            }
        }
    }

    #[test]
    fn an_entry_that_fits_is_stored_as_it_is() {
        for entry in sample::stored("r-1", 0).record.entries.values() {
            assert_eq!(serde_json::from_str::<Entry>(&shortened(entry)).unwrap(), *entry);
        }
    }

    #[test]
    fn one_long_message_costs_the_rest_of_the_entry_nothing() {
        let whole = entry(decisions(&"m".repeat(100_000)).pop().unwrap(), "short");
        let read: Entry = serde_json::from_str(&shortened(&whole)).unwrap();
        assert_eq!(read.progress, whole.progress);
        let Decision::Wait(Wait { on: WaitingFor::Operation { message, .. }, .. }) = &read.decision else {
            panic!("{read:?}")
        };
        assert_eq!((message.len(), message.ends_with("m…")), (1024, true));
    }
}
