//! Follows a run from outside: reads its record as it grows, until it has ended. Conducts nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use forge_core::code::Code;
use forge_core::failure::Failure;
use forge_core::name::NodeId;
use forge_core::run::{CANCEL_KEY, HEADER_KEY, Header, Record, RunPlan, record_name};
use serde_json::{Value, json};

use super::agent::reason as pod_reason;
use super::lease::Conducted;
use super::pieces::Pieces;
use super::{Place, job};
use crate::cluster::{Store, Watch, path};
use crate::interrupt::Interrupts;
use crate::recorder::write_piece;
use crate::serve;

/// When a Job whose pod does not start is worth a word.
const SLOW_START: Duration = Duration::from_secs(15);

/// The record that these ConfigMaps hold, of which `last` is known; nothing before the run has a header.
fn record(last: Option<Record>, store: &Store, known: &BTreeSet<NodeId>, pieces: &mut Pieces) -> Option<Record> {
    let text = store.values().find_map(|found| found.get("data")?.get(HEADER_KEY)?.as_str());
    let header: Option<Header> = text.and_then(|text| serde_json::from_str(text).ok());
    let Some(header) = header else {
        *pieces = Pieces::default();
        return None;
    };
    let mut entries = last.map(|record| record.entries).unwrap_or_default();
    pieces.update(store, known, &mut entries);
    Some(Record { header, entries })
}

/// Follows until the run has ended and gives its record. A first interrupt asks the run to stop, a second one stops only
/// the following.
///
/// # Errors
/// When the Job of the run ends without ending the run.
pub(crate) async fn follow(
    place: &Place,
    plan: &RunPlan,
    conducted: Conducted,
    who: &str,
    interrupts: &mut Interrupts,
    mut show: impl FnMut(&Record),
    mut say: impl FnMut(&str),
) -> Result<Option<Record>, Failure> {
    let selector = Place::of(&plan.run);
    let mut config_maps = place.cluster.watch(&place.config_maps(), &selector);
    let jobs = path::named("batch", "v1", &place.places.workflows, "jobs");
    // Whoever conducts it here has no Job, and need not be allowed to look at any.
    let mut jobs = (conducted == Conducted::ByJob).then(|| place.cluster.watch(&jobs, &selector));
    let (mut store, mut job_store, known) = (Store::new(), Store::new(), plan.names());
    let mut pieces = Pieces::default();
    let (mut heard, mut changed, mut trouble) = (0, false, None);
    // Only a Job can be late.
    let mut slow = (conducted == Conducted::ByJob).then(|| tokio::time::Instant::now() + SLOW_START);
    let mut tick = tokio::time::interval(Duration::from_millis(500));
    let mut last = None;
    loop {
        tokio::select! {
            _ = config_maps.keep(&mut store) => changed = true,
            () = heard_of(jobs.as_mut(), &mut job_store) => {
                if let Some(why) = dead(&job_store, plan) && !has_ended(place, plan).await? {
                    return Err(why);
                }
            }
            () = interrupts.heard() => {
                heard += 1;
                if heard > 1 {
                    say(match conducted {
                        Conducted::ByJob => "not followed any longer; the run stops by itself",
                        Conducted::Here => "left as it is; the next run ends this one and puts the window right",
                    });
                    return Ok(last);
                }
                say("stopping: nothing new starts, what runs is left to Argo CD (interrupt again to stop following)");
                cancel(place, plan, who).await?;
            }
            _ = tick.tick() => {}
        }
        if let Some(refused) = config_maps.refused() {
            return Err(refused);
        }
        if std::mem::take(&mut changed) {
            last = record(last, &store, &known, &mut pieces);
        }
        let Some(record) = &last else {
            if slow.is_some_and(|at| tokio::time::Instant::now() > at) {
                slow = None;
                say(&waiting(place, plan).await);
            }
            continue;
        };
        if record.header.trouble != trouble {
            trouble.clone_from(&record.header.trouble);
            trouble.iter().for_each(|why| say(&format!("{why}; it was replaced")));
        }
        show(record);
        if record.header.ended.is_some() {
            return Ok(last);
        }
    }
}

/// Keeps what is heard of Jobs; nothing is ever heard where nobody listens.
async fn heard_of(jobs: Option<&mut Watch>, store: &mut Store) {
    match jobs {
        Some(jobs) => {
            jobs.keep(store).await;
        }
        None => std::future::pending().await,
    }
}

/// Whether the run has ended by now: the Job's end may be heard of before the record's.
async fn has_ended(place: &Place, plan: &RunPlan) -> Result<bool, Failure> {
    let header = serve::header(&place.cluster, &place.places.workflows, &plan.run).await?;
    Ok(header.is_some_and(|header| header.ended.is_some()))
}

/// Why the Job has not begun, as far as its pods tell.
async fn waiting(place: &Place, plan: &RunPlan) -> String {
    let pods = place.cluster.list(&path::core(&place.places.workflows, "pods"), &Place::of(&plan.run)).await;
    let reason = pods.ok().and_then(|pods| pods.first().map(pod_reason)).unwrap_or_default();
    let job = job::name(plan);
    format!(
        "the Job `{job}` has not begun{reason}; `kubectl -n {} describe job {job}` tells more",
        place.places.workflows
    )
}

/// Asks a run to stop.
///
/// # Errors
/// When the wish cannot be written.
pub(crate) async fn cancel(place: &Place, plan: &RunPlan, who: &str) -> Result<(), Failure> {
    // The Job may not have written its header yet: it finds the wish when it does.
    let (namespace, name) = (&place.places.workflows, record_name(&plan.run, 0));
    write_piece(&place.cluster, namespace, plan, &name, &json!({CANCEL_KEY: who})).await?;
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
