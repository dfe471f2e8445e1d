//! Keeps the records of the last runs and removes older ones: only what carries our labels and whose order is known
//! (INV-10, INV-11).

use std::collections::BTreeMap;

use forge_core::name::EnvironmentName;
use forge_core::render::{ENVIRONMENT_LABEL, MANAGED_BY, RUN_LABEL};
use forge_core::run::{HEADER_KEY, Header, MOST_RUNS};
use jiff::Timestamp;
use serde_json::Value;

use super::Place;
use crate::cluster::{ClusterError, path};

/// Removes what is older than the last runs of an environment.
pub(super) async fn last_runs(place: &Place, environment: &EnvironmentName) -> Result<usize, ClusterError> {
    let selector = format!("{MANAGED_BY}=forge,{ENVIRONMENT_LABEL}={environment},{RUN_LABEL}");
    let all = place.cluster.list(&place.config_maps(), &selector).await?;
    let mut runs: BTreeMap<String, (Option<Timestamp>, Vec<String>)> = BTreeMap::new();
    for config_map in &all {
        let text = |pointer: &str| config_map.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let run =
            config_map.pointer("/metadata/labels").and_then(|labels| labels.get(RUN_LABEL)).and_then(Value::as_str);
        let Some(run) = run else { continue };
        let known = runs.entry(run.to_owned()).or_default();
        known.1.push(text("/metadata/name").to_owned());
        let header = config_map.get("data").and_then(|data| data.get(HEADER_KEY)).and_then(Value::as_str);
        if let Some(header) = header.and_then(|text| serde_json::from_str::<Header>(text).ok()) {
            // One that has not ended is never old.
            known.0 = header.ended.is_some().then_some(header.started);
        }
    }
    let mut ended: Vec<(Timestamp, Vec<String>)> =
        runs.into_values().filter_map(|(started, names)| Some((started?, names))).collect();
    ended.sort_unstable();
    let surplus = ended.len().saturating_sub(MOST_RUNS);
    for (_, names) in ended.iter().take(surplus) {
        for name in names {
            place.cluster.delete(&path::object(&place.config_maps(), name)).await?;
        }
    }
    Ok(surplus)
}
