//! Runs as they are found in ConfigMaps: put together where everything is there, named with the reason where it is not.
//!
//! Anybody who may write ConfigMaps may have written these, so nothing in them is believed: names, counts and the order
//! of tasks are checked, and what is quoted from them is cut and cleaned. One node that cannot be read does not hide the
//! others.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;

use crate::gate::RunId;
use crate::name::{NodeId, clip};
use crate::render::{ENVIRONMENT_LABEL, RUN_LABEL};
use crate::run::{Entry, HEADER_KEY, Header, Record, RunPlan, entry_key, read_plan};

/// A run that can be used.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredRun {
    /// What it is to do.
    pub plan: RunPlan,
    /// What has become of it.
    pub record: Record,
    /// What could not be read and was left out, in words.
    pub notes: Vec<String>,
}

/// A run that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenRun {
    /// Its name as the label has it, cut and cleaned.
    pub run: String,
    /// When it began, where at least that is known.
    pub started: Option<Timestamp>,
    /// What is wrong with it.
    pub why: String,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Stored {
    /// Runs, the newest first.
    pub runs: Vec<StoredRun>,
    /// What cannot be used, by name.
    pub broken: Vec<BrokenRun>,
    /// Runs that have a plan and no record yet: submitted, and not begun.
    pub not_begun: Vec<RunId>,
}

impl Stored {
    /// What cannot be used although it began after the newest run that can: showing an older one instead would pass old
    /// news off as new.
    pub fn newest_is_broken(&self) -> Option<&BrokenRun> {
        let newest = self.runs.first().map(|run| run.record.header.started);
        self.broken
            .iter()
            .filter(|broken| broken.started.is_some() && broken.started > newest)
            .max_by_key(|b| b.started)
    }
}

/// Puts runs together from ConfigMaps in any order.
pub fn stored(config_maps: &[Value]) -> Stored {
    let mut pieces: BTreeMap<&str, Pieces<'_>> = BTreeMap::new();
    for config_map in config_maps {
        let Some(run) = config_map.pointer("/metadata/labels").and_then(|l| l.get(RUN_LABEL)).and_then(Value::as_str)
        else {
            continue;
        };
        let name = config_map.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let numbered = |prefix: &str| {
            let digits = name.strip_prefix(prefix)?.strip_prefix(run)?.strip_prefix('-')?;
            // `+1` and `01` parse too, and would be a second spelling of one piece.
            digits.parse::<usize>().ok().filter(|number| number.to_string() == digits)
        };
        let (plan, record) = (numbered("forge-plan-"), numbered("forge-run-"));
        let found = pieces.entry(run).or_default();
        if let Some(number) = plan {
            found.plan.insert(number, config_map);
        } else if let Some(number) = record {
            found.record.insert(number, config_map);
        }
    }
    let mut stored = Stored::default();
    for (run, pieces) in pieces {
        if pieces.plan.is_empty() && pieces.record.is_empty() {
            continue;
        }
        let header = pieces.header(run);
        let started = header.as_ref().ok().and_then(Option::as_ref).map(|header| header.started);
        match pieces.together(run, header) {
            Ok(Together::Begun(found)) => stored.runs.push(*found),
            Ok(Together::NotBegun(run)) => stored.not_begun.push(run),
            Err(why) => stored.broken.push(BrokenRun { run: clip(run), started, why }),
        }
    }
    stored.runs.sort_by(|a, b| {
        let key = |run: &StoredRun| (run.record.header.started, run.plan.run.clone());
        key(b).cmp(&key(a))
    });
    stored
}

/// The ConfigMaps of one run by their numbers.
#[derive(Default)]
struct Pieces<'c> {
    plan: BTreeMap<usize, &'c Value>,
    record: BTreeMap<usize, &'c Value>,
}

enum Together {
    Begun(Box<StoredRun>),
    NotBegun(RunId),
}

impl Pieces<'_> {
    /// The header, where there is one.
    fn header(&self, run: &str) -> Result<Option<Header>, String> {
        let Some(first) = self.record.get(&0) else { return Ok(None) };
        let text = first.pointer("/data").and_then(|data| data.get(HEADER_KEY)).and_then(Value::as_str);
        let text = text.ok_or_else(|| format!("ConfigMap `forge-run-{}-0` has no `{HEADER_KEY}`", clip(run)))?;
        let header: Header = serde_json::from_str(text).map_err(|error| {
            format!("ConfigMap `forge-run-{}-0` is no header: {}", clip(run), clip(&error.to_string()))
        })?;
        if header.run.as_str() != run {
            return Err(format!("ConfigMap `forge-run-{}-0` is the header of run `{}`", clip(run), header.run));
        }
        Ok(Some(header))
    }

    fn together(&self, run: &str, header: Result<Option<Header>, String>) -> Result<Together, String> {
        let plan = self.plan(run)?;
        let Some(header) = header? else {
            if self.record.is_empty() {
                return Ok(Together::NotBegun(plan.run));
            }
            return Err(format!("ConfigMap `forge-run-{}-0`, which holds the header, is missing", clip(run)));
        };
        if header.environment != plan.environment || header.plan != plan.plan {
            return Err("the header and the plan are not of one run".to_owned());
        }
        let mut notes = Vec::new();
        let nodes: BTreeMap<String, NodeId> = plan.nodes().map(|node| (entry_key(&node.id), node.id.clone())).collect();
        let mut entries: BTreeMap<NodeId, Entry> = BTreeMap::new();
        for (number, piece) in self.record.iter().filter(|(number, _)| **number > 0) {
            let data = piece.pointer("/data").and_then(Value::as_object);
            for (key, text) in data.into_iter().flatten() {
                let skipped = |why: &str| {
                    format!("entry `{}` of `forge-run-{}-{number}` is left out: {why}", clip(key), clip(run))
                };
                let Some(node) = nodes.get(key) else {
                    notes.push(skipped("no node of the plan has this key"));
                    continue;
                };
                match serde_json::from_str::<Entry>(text.as_str().unwrap_or_default()) {
                    Ok(entry) if entry.node == *node => {
                        entries.insert(node.clone(), entry);
                    }
                    Ok(_) => notes.push(skipped("it is about another node")),
                    Err(error) => notes.push(skipped(&clip(&error.to_string()))),
                }
            }
        }
        Ok(Together::Begun(Box::new(StoredRun { plan, record: Record { header, entries }, notes })))
    }

    fn plan(&self, run: &str) -> Result<RunPlan, String> {
        let first = self.plan.values().next().ok_or("its plan is missing")?;
        let announced = first
            .pointer("/metadata/annotations")
            .and_then(|annotations| annotations.get("forge.projectcatalyst.io/pieces"))
            .and_then(Value::as_str)
            .and_then(|count| count.parse::<usize>().ok());
        let count = announced.unwrap_or(self.plan.len());
        if let Some(missing) = (0..count).find(|number| !self.plan.contains_key(number)) {
            return Err(format!("piece {missing} of {count} of its plan is missing"));
        }
        let pieces: Vec<Value> = self.plan.values().take(count).map(|piece| (*piece).clone()).collect();
        let plan = read_plan(&pieces).map_err(|error| clip(&error))?;
        if plan.run.as_str() != run {
            return Err(format!("its plan is of run `{}`", plan.run));
        }
        let label = first.pointer("/metadata/labels").and_then(|labels| labels.get(ENVIRONMENT_LABEL));
        if label.and_then(Value::as_str) != Some(plan.environment.as_str()) {
            return Err(format!("its plan is for environment `{}`, its label is not", plan.environment));
        }
        let mut seen: BTreeSet<&NodeId> = BTreeSet::new();
        for (place, task) in plan.tasks.iter().enumerate() {
            if task.before.iter().any(|before| *before >= place) {
                return Err(format!("task `{}` of its plan waits for one that comes after it", clip(&task.id)));
            }
            if let Some(node) = &task.node
                && !seen.insert(&node.id)
            {
                return Err(format!("its plan has node `{}` twice", node.id));
            }
        }
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::run::plan_pieces;
    use crate::view::sample;

    fn config_map(name: &str, run: &str, pieces: usize, data: &Value) -> Value {
        json!({
            "metadata": {
                "name": name,
                "labels": {RUN_LABEL: run, ENVIRONMENT_LABEL: "dev"},
                "annotations": {"forge.projectcatalyst.io/pieces": pieces.to_string()},
            },
            "data": data,
        })
    }

    fn written(run: &StoredRun) -> Vec<Value> {
        let id = run.plan.run.as_str();
        let texts = plan_pieces(&run.plan).texts;
        let mut maps: Vec<Value> = texts
            .iter()
            .enumerate()
            .map(|(n, text)| config_map(&format!("forge-plan-{id}-{n}"), id, texts.len(), &json!({"plan.json": text})))
            .collect();
        let header = serde_json::to_string(&run.record.header).unwrap();
        maps.push(config_map(&format!("forge-run-{id}-0"), id, 0, &json!({"run.json": header})));
        let entries: serde_json::Map<String, Value> = run
            .record
            .entries
            .values()
            .map(|entry| (entry_key(&entry.node), json!(serde_json::to_string(entry).unwrap())))
            .collect();
        maps.push(config_map(&format!("forge-run-{id}-1"), id, 0, &Value::Object(entries)));
        maps
    }

    #[test]
    fn what_was_written_is_read_back_the_newest_run_first() {
        let (old, new) = (sample::stored("r-1", 0), sample::stored("r-2", 500));
        let mut maps = written(&old);
        maps.extend(written(&new));
        maps.reverse();
        let found = stored(&maps);
        assert_eq!(found.runs, [new, old]);
        assert!(found.broken.is_empty() && found.not_begun.is_empty());
    }

    #[test]
    fn a_missing_piece_is_named_and_never_taken_for_a_smaller_plan() {
        let run = sample::stored("r-1", 0);
        let mut maps = written(&run);
        maps[0]["metadata"]["annotations"]["forge.projectcatalyst.io/pieces"] = json!("2");
        let found = stored(&maps);
        assert_eq!(found.broken[0].why, "piece 1 of 2 of its plan is missing");
        assert_eq!(found.broken[0].started, Some(run.record.header.started));
        assert_eq!(found.newest_is_broken(), found.broken.first());
    }

    #[test]
    fn an_entry_that_cannot_be_read_is_mentioned_and_hides_no_other() {
        let run = sample::stored("r-1", 0);
        let mut maps = written(&run);
        maps[2]["data"]["a_one.json"] = json!("{\"node\": \"\u{1b}[2J");
        maps[2]["data"]["not_there.json"] = json!("{}");
        let found = stored(&maps);
        let [read] = found.runs.as_slice() else { panic!("{found:?}") };
        assert_eq!(read.record.entries.len(), run.record.entries.len() - 1);
        assert_eq!(read.notes.len(), 2, "{:?}", read.notes);
        assert!(read.notes.iter().all(|note| !note.contains('\u{1b}')));
    }

    #[test]
    fn a_plan_without_a_record_has_not_begun_and_a_record_without_its_header_is_broken() {
        let maps = written(&sample::stored("r-1", 0));
        assert_eq!(stored(&maps[..1]).not_begun, ["r-1".parse().unwrap()]);
        let torn = stored(&[maps[0].clone(), maps[2].clone()]);
        assert_eq!(torn.broken[0].why, "ConfigMap `forge-run-r-1-0`, which holds the header, is missing");
        assert_eq!(stored(&maps[1..]).broken[0].why, "its plan is missing");
    }

    #[test]
    fn a_plan_whose_tasks_wait_in_a_circle_is_refused() {
        let mut run = sample::stored("r-1", 0);
        run.plan.tasks[0].before = vec![2];
        assert!(stored(&written(&run)).broken[0].why.contains("comes after it"));
    }

    #[test]
    fn a_header_of_another_run_is_not_believed() {
        let mut run = sample::stored("r-1", 0);
        let mut maps = written(&run);
        run.record.header.run = "r-9".parse().unwrap();
        maps[1]["data"]["run.json"] = json!(serde_json::to_string(&run.record.header).unwrap());
        assert_eq!(stored(&maps).broken[0].why, "ConfigMap `forge-run-r-1-0` is the header of run `r-9`");
    }
}
