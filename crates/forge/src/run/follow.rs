//! Follows a run from outside: reads its record as it grows, until it has ended. Conducts nothing.

use forge_core::code::Code;
use forge_core::failure::Failure;
use forge_core::run::{CANCEL_KEY, HEADER_KEY, Header, Record, RunPlan, record_name};
use serde_json::{Value, json};

use super::{Place, job};
use crate::cluster::{Store, path};
use crate::recorder::read_entries;

/// The record that these ConfigMaps hold; nothing before the run has a header.
pub(crate) fn record(store: &Store) -> Option<Record> {
    let text = store.values().find_map(|found| found.get("data")?.get(HEADER_KEY)?.as_str())?;
    let header: Header = serde_json::from_str(text).ok()?;
    let entries = store.values().flat_map(|config_map| read_entries(config_map).unwrap_or_default());
    Some(Record { header, entries: entries.collect() })
}

/// Follows until the run has ended and gives its record. A first interrupt asks the run to stop, a second one stops only
/// the following.
///
/// # Errors
/// When the Job of the run ends without ending the run.
pub(crate) async fn follow(
    place: &Place,
    plan: &RunPlan,
    who: &str,
    mut show: impl FnMut(&Record),
    mut say: impl FnMut(&str),
) -> Result<Option<Record>, Failure> {
    let selector = Place::of(&plan.run);
    let mut config_maps = place.cluster.watch(&place.config_maps(), &selector);
    let jobs = path::named("batch", "v1", &place.places.workflows, "jobs");
    let mut jobs = place.cluster.watch(&jobs, &selector);
    let (mut store, mut job_store) = (Store::new(), Store::new());
    let mut interrupts = 0;
    let mut tick = tokio::time::interval(std::time::Duration::from_millis(500));
    loop {
        tokio::select! {
            _ = config_maps.keep(&mut store) => {}
            _ = jobs.keep(&mut job_store) => {
                if let Some(why) = dead(&job_store, plan) && record(&store).is_none_or(|record| record.header.ended.is_none()) {
                    return Err(why);
                }
            }
            _ = tokio::signal::ctrl_c() => {
                interrupts += 1;
                if interrupts > 1 {
                    say("not followed any longer; the run stops by itself");
                    return Ok(record(&store));
                }
                say("stopping: nothing new starts, what runs is left to Argo CD (interrupt again to stop following)");
                cancel(place, plan, who).await?;
            }
            _ = tick.tick() => {}
        }
        if let Some(record) = record(&store) {
            show(&record);
            if record.header.ended.is_some() {
                return Ok(Some(record));
            }
        }
    }
}

/// Asks a run to stop.
///
/// # Errors
/// When the wish cannot be written.
pub(crate) async fn cancel(place: &Place, plan: &RunPlan, who: &str) -> Result<(), Failure> {
    let path = path::object(&place.config_maps(), &record_name(&plan.run, 0));
    place.cluster.merge(&path, &json!({"data": {CANCEL_KEY: who}})).await?;
    Ok(())
}

/// The Job failed without ending the run.
fn dead(jobs: &Store, plan: &RunPlan) -> Option<Failure> {
    let found = jobs
        .values()
        .find(|found| found.pointer("/metadata/name").and_then(Value::as_str) == Some(&job::name(plan)))?;
    let conditions = found.pointer("/status/conditions").and_then(Value::as_array)?;
    let failed = conditions.iter().find(|condition| {
        condition.get("type").and_then(Value::as_str) == Some("Failed")
            && condition.get("status").and_then(Value::as_str) == Some("True")
    })?;
    let message = failed.get("message").and_then(Value::as_str).unwrap_or_default();
    Some(
        Failure::new(
            Code::RunBroken,
            format!("the Job of run `{}` failed: {}", plan.run, forge_core::name::clip(message)),
        )
        .hint(format!("kubectl logs job/{}; then deploy again: proven nodes pass without a sync", job::name(plan))),
    )
}
