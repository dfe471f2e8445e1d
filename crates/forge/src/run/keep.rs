//! Keeps the records of the last runs, and of the last one of the whole platform, and removes older ones: only what
//! carries our labels and whose order is known (INV-10, INV-11).

use std::collections::{BTreeMap, BTreeSet};

use forge_core::gate::RunId;
use forge_core::graph::Scope;
use forge_core::name::EnvironmentName;
use forge_core::render::{ENVIRONMENT_LABEL, MANAGED_BY, RUN_LABEL};
use forge_core::run::{HEADER_KEY, Header, MOST_RUNS};
use jiff::Timestamp;
use serde_json::Value;

use super::Place;
use crate::cluster::{ClusterError, path};

/// A run that has ended.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct EndedRun {
    started: Timestamp,
    /// It was about the whole platform.
    whole: bool,
    /// Its ConfigMaps.
    names: Vec<String>,
}

/// Removes what is older than the last runs of an environment, of which this is the newest.
pub(super) async fn last_runs(
    place: &Place,
    environment: &EnvironmentName,
    newest: &RunId,
) -> Result<usize, ClusterError> {
    let selector = format!("{MANAGED_BY}=forge,{ENVIRONMENT_LABEL}={environment},{RUN_LABEL}");
    let all = place.cluster.list(&place.config_maps(), &selector).await?;
    let (surplus, headless) = (surplus(ended(&all)), headless(&all, newest));
    for name in surplus.iter().flat_map(|run| &run.names).chain(&headless) {
        place.cluster.delete(&path::object(&place.config_maps(), name)).await?;
    }
    Ok(surplus.len())
}

fn run_of(config_map: &Value) -> Option<&str> {
    config_map.pointer("/metadata/labels")?.get(RUN_LABEL)?.as_str()
}

fn name_of(config_map: &Value) -> String {
    config_map.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn header_of(config_map: &Value) -> Option<&str> {
    config_map.get("data")?.get(HEADER_KEY)?.as_str()
}

/// What earlier runs left that never began, or whose removal was cut off: pieces without a header.
fn headless(config_maps: &[Value], newest: &RunId) -> Vec<String> {
    let number = |run: &str| run.rsplit_once('-').and_then(|(_, number)| number.parse::<u64>().ok());
    let begun: BTreeSet<&str> = config_maps.iter().filter(|c| header_of(c).is_some()).filter_map(run_of).collect();
    let left = config_maps.iter().filter(|config_map| {
        let run = run_of(config_map).filter(|run| !begun.contains(run)).and_then(number);
        run.zip(number(newest.as_str())).is_some_and(|(run, newest)| run < newest)
    });
    left.map(name_of).collect()
}

/// The runs of these ConfigMaps that have ended; one that has not is never old.
fn ended(config_maps: &[Value]) -> Vec<EndedRun> {
    let mut runs: BTreeMap<&str, (Option<Header>, Vec<String>)> = BTreeMap::new();
    for config_map in config_maps {
        let Some(run) = run_of(config_map) else { continue };
        let known = runs.entry(run).or_default();
        match header_of(config_map) {
            // The header goes last: without it nobody would know what the rest is.
            Some(header) => {
                known.1.push(name_of(config_map));
                known.0 = serde_json::from_str(header).ok();
            }
            None => known.1.insert(0, name_of(config_map)),
        }
    }
    let ended = runs.into_values().filter_map(|(header, names)| {
        let header = header.filter(|header| header.ended.is_some())?;
        Some(EndedRun { started: header.started, whole: header.scope == Scope::Platform, names })
    });
    ended.collect()
}

/// Those that nobody needs any more. The newest run of the whole platform stays however many smaller ones came after
/// it: of most nodes no other run says anything.
fn surplus(mut runs: Vec<EndedRun>) -> Vec<EndedRun> {
    runs.sort_unstable();
    let too_many = runs.len().saturating_sub(MOST_RUNS);
    let base = runs.iter().rposition(|run| run.whole);
    let old = runs.into_iter().enumerate().take(too_many).filter(|(place, _)| Some(*place) != base);
    old.map(|(_, run)| run).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The ConfigMaps of a run that began in this minute.
    fn config_maps(minute: usize, scope: &str, ended: bool) -> Vec<Value> {
        let run = format!("dev-{minute}");
        let at = format!("2026-11-16T10:{minute:02}:00Z");
        let mut header = json!({
            "run": run, "environment": "dev", "scope": scope, "runner": "plugin", "nodes": 1,
            "started": at, "deadline": at,
            "plan": "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        });
        if ended {
            header["ended"] = json!({"at": at, "verdict": "done"});
        }
        let labels = json!({RUN_LABEL: run});
        vec![
            json!({"metadata": {"name": format!("forge-plan-{run}-0"), "labels": labels}, "data": {"plan.json": "{}"}}),
            json!({"metadata": {"name": format!("forge-run-{run}-0"), "labels": labels},
                "data": {HEADER_KEY: header.to_string()}}),
        ]
    }

    fn removed(config_maps: &[Value]) -> Vec<String> {
        surplus(ended(config_maps)).into_iter().flat_map(|run| run.names).collect()
    }

    #[test]
    fn the_newest_run_of_the_platform_outlives_any_number_of_smaller_ones() {
        let mut all = config_maps(0, "platform", true);
        all.extend(config_maps(1, "platform", true));
        for minute in 2..=MOST_RUNS + 2 {
            all.extend(config_maps(minute, "app:shop/api", true));
        }
        let names = ["forge-plan-dev-0-0", "forge-run-dev-0-0", "forge-plan-dev-2-0", "forge-run-dev-2-0"];
        assert_eq!(removed(&all), names);
    }

    #[test]
    fn what_never_began_goes_with_the_next_run_and_the_header_of_a_run_goes_last() {
        let mut all = config_maps(3, "platform", true);
        all.extend(config_maps(2, "platform", true).into_iter().take(1));
        all.extend(config_maps(4, "platform", true).into_iter().take(1));
        // The plan of run 2 alone: of run 4 the header may still come.
        assert_eq!(headless(&all, &"dev-3".parse().unwrap()), ["forge-plan-dev-2-0"]);
        all.reverse();
        assert_eq!(ended(&all)[0].names.last().map(String::as_str), Some("forge-run-dev-3-0"));
    }

    #[test]
    fn the_last_runs_stay_and_one_that_has_not_ended_is_never_old() {
        let mut all = config_maps(0, "app:shop/api", false);
        for minute in 1..=MOST_RUNS {
            all.extend(config_maps(minute, "platform", true));
        }
        assert_eq!(removed(&all), Vec::<String>::new());
        all.extend(config_maps(MOST_RUNS + 1, "platform", true));
        assert_eq!(removed(&all), ["forge-plan-dev-1-0", "forge-run-dev-1-0"]);
    }
}
