//! Follows a run from outside: reads its record as it grows, until it has ended. Conducts nothing.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use forge_core::code::Code;
use forge_core::failure::Failure;
use forge_core::name::{NodeId, clip};
use forge_core::run::{CANCEL_KEY, HEADER_KEY, Header, Record, RunPlan, record_name};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::agent::reason as pod_reason;
use super::lease::{self, Conducted, Pulse};
use super::pieces::Pieces;
use super::{Place, job};
use crate::cluster::{Store, Watch, path};
use crate::interrupt::Interrupts;
use crate::recorder::write_piece;
use crate::serve;

/// When a Job whose pod does not start is worth a word.
const SLOW_START: Duration = Duration::from_secs(15);
/// How often it is looked whether anybody conducts the run.
const ATTENDED: Duration = Duration::from_secs(5);

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
/// When the Job of the run ends, or is deleted, without ending the run; when it does not begin in time.
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
    // Whoever conducts it here has no Job, and need not be allowed to look at any.
    let mut jobs = (conducted == Conducted::ByJob).then(|| place.cluster.watch(&job::collection(place), &selector));
    let (mut store, mut job_store, known) = (Store::new(), Store::new(), plan.names());
    let (mut listed, mut attendance) = (false, Attendance::default());
    let mut look = tokio::time::interval(ATTENDED);
    let mut pieces = Pieces::default();
    let (mut heard, mut changed, mut trouble) = (0, false, None);
    // Only a Job can be late.
    let mut slow = (conducted == Conducted::ByJob).then(|| tokio::time::Instant::now() + SLOW_START);
    let mut tick = tokio::time::interval(Duration::from_millis(500));
    let mut last = None;
    loop {
        tokio::select! {
            _ = config_maps.keep(&mut store) => changed = true,
            told = heard_of(jobs.as_mut(), &mut job_store) => {
                listed |= told;
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
            _ = look.tick(), if conducted == Conducted::ByJob => {
                let is_gone = listed && job_in(&job_store, plan).is_none();
                if is_gone && !std::mem::replace(&mut attendance.is_gone, true) {
                    say("the Job of the run was deleted; nothing new starts");
                }
                match attendance.is_conducted(place, plan).await {
                    Some(false) if is_gone || last.is_none() => return Err(attendance.lost(place, plan).await),
                    // While its Job is there, Kubernetes starts another pod of one that has begun.
                    Some(false) if !std::mem::replace(&mut attendance.is_left, true) => {
                        say(&attendance.left(place, plan).await);
                    }
                    Some(true) if std::mem::take(&mut attendance.is_left) => say("the run is conducted again"),
                    _ => {}
                }
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
                let (namespace, job) = (&place.places.workflows, job::name(&plan.run));
                say(&format!(
                    "{}; `kubectl -n {namespace} describe job {job}` tells more",
                    not_begun(place, plan).await
                ));
            }
            continue;
        };
        if record.header.trouble != trouble {
            trouble.clone_from(&record.header.trouble);
            trouble.iter().for_each(|why| say(why));
        }
        show(record);
        if record.header.ended.is_some() {
            return Ok(last);
        }
    }
}

/// Keeps what is heard of Jobs, and says whether that was anything; nothing is ever heard where nobody listens.
async fn heard_of(jobs: Option<&mut Watch>, store: &mut Store) -> bool {
    match jobs {
        Some(jobs) => jobs.keep(store).await,
        None => std::future::pending().await,
    }
}

/// Whether anybody conducts a run: whoever does renews its Lease.
#[derive(Default)]
struct Attendance {
    pulse: Pulse,
    /// Since when the Lease is over.
    over: Option<Instant>,
    /// When it was renewed last.
    renewed: Option<Timestamp>,
    /// The Job was there, or must have been, and is not.
    is_gone: bool,
    /// It was told that nobody conducts it.
    is_left: bool,
}

impl Attendance {
    /// Whether anybody conducts it; nothing where that cannot be told now. A Lease that is over by the clock is looked at for a
    /// while, because clocks differ.
    async fn is_conducted(&mut self, place: &Place, plan: &RunPlan) -> Option<bool> {
        let lease = lease::read(&place.cluster, &place.places.workflows, &plan.environment).await.ok()?;
        let now = Instant::now();
        self.renewed = lease.as_ref().and_then(lease::renewed);
        if self.pulse.beats(lease.as_ref(), &plan.run, now) {
            self.over = None;
            return Some(true);
        }
        let since = *self.over.get_or_insert(now);
        // Its end may be written before it is heard of.
        if now.saturating_duration_since(since) < lease::LOOKED_AT || has_ended(place, plan).await.unwrap_or(true) {
            return None;
        }
        Some(false)
    }

    /// That nobody conducts a run that has begun, since when, why, as far as the pods of its Job tell, and where to look: a pod of
    /// a node that is lost waits for nothing.
    async fn left(&self, place: &Place, plan: &RunPlan) -> String {
        let (namespace, job, reason) = (&place.places.workflows, job::name(&plan.run), waits_for(place, plan).await);
        let since = self.renewed.map(|at| format!(" since {}", at.strftime("%FT%TZ"))).unwrap_or_default();
        format!(
            "nobody conducts the run{since}, and nothing new starts until the Job `{job}` has another pod{reason}; \
             `kubectl -n {namespace} describe job {job}` tells more"
        )
    }

    /// Why nobody will end the run any more.
    async fn lost(&self, place: &Place, plan: &RunPlan) -> Failure {
        if self.is_gone {
            let message = format!("the Job of run `{}` was deleted before the run had ended", plan.run);
            return Failure::new(Code::RunBroken, message)
                .hint("deploy again: proven nodes pass without a sync, and the window is put right");
        }
        let (namespace, job) = (&place.places.workflows, job::name(&plan.run));
        Failure::new(Code::RunNotBegun, not_begun(place, plan).await).hint(format!(
            "`kubectl -n {namespace} describe job {job}` tells more; its run begins when a pod of it starts, unless another \
             run has begun by then; `kubectl -n {namespace} delete job {job}` calls it off"
        ))
    }
}

/// Whether the run has ended by now: the Job's end may be heard of before the record's.
async fn has_ended(place: &Place, plan: &RunPlan) -> Result<bool, Failure> {
    let header = serve::header(&place.cluster, &place.places.workflows, &plan.run).await?;
    Ok(header.is_some_and(|header| header.ended.is_some()))
}

/// That the Job has not begun, and why, as far as its pods tell.
async fn not_begun(place: &Place, plan: &RunPlan) -> String {
    format!("the Job `{}` has not begun{}", job::name(&plan.run), waits_for(place, plan).await)
}

/// What the newest pod of the Job waits for: earlier ones may have failed.
async fn waits_for(place: &Place, plan: &RunPlan) -> String {
    let pods = place.cluster.list(&path::core(&place.places.workflows, "pods"), &Place::of(&plan.run)).await;
    let pods = pods.unwrap_or_default();
    pods.iter().max_by(|one, other| created(one).cmp(created(other))).map(pod_reason).unwrap_or_default()
}

fn created(object: &Value) -> &str {
    object.pointer("/metadata/creationTimestamp").and_then(Value::as_str).unwrap_or_default()
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

/// The Job of a run.
fn job_in<'j>(jobs: &'j Store, plan: &RunPlan) -> Option<&'j Value> {
    let name = job::name(&plan.run);
    jobs.values().find(|found| found.pointer("/metadata/name").and_then(Value::as_str) == Some(name.as_str()))
}

/// The Job failed without ending the run.
fn dead(jobs: &Store, plan: &RunPlan) -> Option<Failure> {
    let failed = job::condition(job_in(jobs, plan)?, &["Failed"])?;
    let text = |field: &str| failed.get(field).and_then(Value::as_str).map(clip).unwrap_or_default();
    let (code, how) = match text("reason").as_str() {
        "DeadlineExceeded" => (Code::RunOverdue, "had no time left, and nobody conducted it"),
        _ => (Code::RunBroken, "failed"),
    };
    let message = format!("the Job of run `{}` {how}: {}", plan.run, text("message"));
    let job = job::name(&plan.run);
    let hint = format!("kubectl logs job/{job}; then deploy again: proven nodes pass without a sync");
    Some(Failure::new(code, message).hint(hint))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use forge_core::exit::Exit;
    use forge_core::render::Places;
    use forge_core::run::{Ended, Verdict};

    use super::*;
    use crate::cluster::fake::{Fake, served};
    use crate::run::sample;

    fn plan() -> RunPlan {
        sample::plan(&["db"])
    }

    /// The record of a run, which has ended like this.
    fn header(verdict: Option<Verdict>) -> Value {
        let mut header = Header::new(&plan(), Timestamp::now());
        header.ended = verdict.map(|verdict| Ended { at: Timestamp::now(), verdict, message: None });
        let text = serde_json::to_string(&header).unwrap();
        json!({"metadata": {"name": record_name(&plan().run, 0)}, "data": {HEADER_KEY: text}})
    }

    fn renew(fake: &mut Fake, at: Timestamp) {
        sample::put_lease(fake, "r-1", at);
    }

    /// A cluster on which the Lease of the run was renewed then.
    fn renewed(at: Timestamp) -> Fake {
        let mut fake = Fake::default();
        renew(&mut fake, at);
        fake
    }

    fn long_ago() -> Timestamp {
        "2020-01-01T00:00:00Z".parse().unwrap()
    }

    /// The Job of the run, with this status.
    fn put_job(fake: &mut Fake, status: &Value) {
        let jobs = path::named("batch", "v1", "argo", "jobs");
        fake.put(&jobs, json!({"metadata": {"name": "forge-r-1"}, "status": status}));
    }

    /// A pod of that Job, whose container waits because of this.
    fn put_pod(fake: &mut Fake, name: &str, created: &str, reason: &str) {
        let waiting = json!({"waiting": {"reason": reason, "message": "no such image"}});
        let status = json!({"containerStatuses": [{"state": waiting}]});
        let pod = json!({"metadata": {"name": name, "creationTimestamp": created}, "status": status});
        fake.put(&path::core("argo", "pods"), pod);
    }

    /// What happens when something was said.
    type Step = (&'static str, fn(&mut Fake));

    /// Follows the run to its end, while this happens; also gives what was said.
    async fn followed<const N: usize>(fake: Fake, steps: [Step; N]) -> (Result<Option<Record>, Failure>, String) {
        let (cluster, fake) = served(fake).await;
        let place = Place { cluster, places: Places::default() };
        let (plan, mut interrupts, said) = (plan(), Interrupts::none(), RefCell::new(String::new()));
        let say = |text: &str| said.borrow_mut().push_str(text);
        let show = |_: &Record| {};
        let follow = follow(&place, &plan, Conducted::ByJob, "me", &mut interrupts, show, say);
        let then = async {
            for (words, happens) in steps {
                while !said.borrow().contains(words) {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                happens(&mut fake.lock().unwrap());
            }
            std::future::pending::<()>().await;
        };
        let both = async {
            tokio::select! {
                ended = follow => ended,
                () = then => panic!("it waits for ever"),
            }
        };
        let ended = tokio::time::timeout(Duration::from_secs(60), both).await.unwrap();
        (ended, said.into_inner())
    }

    #[tokio::test]
    async fn a_run_whose_job_is_gone_or_never_starts_is_followed_only_while_somebody_conducts_it() {
        let records = path::config_maps("argo");
        let mut killed = renewed(long_ago());
        killed.put(&records, header(None));
        let mut pending = renewed(long_ago());
        put_job(&mut pending, &json!({}));
        put_pod(&mut pending, "a", "2026-11-16T12:00:00Z", "CreateContainerError");
        put_pod(&mut pending, "b", "2026-11-16T12:01:00Z", "ImagePullBackOff");
        put_pod(&mut pending, "c", "2026-11-16T12:00:30Z", "CreateContainerError");
        let mut ending = renewed(Timestamp::now());
        ending.put(&records, header(None));
        // Whoever is told that the Job is gone ends the run before it goes.
        let ends: Step = ("was deleted", |fake| fake.put(&path::config_maps("argo"), header(Some(Verdict::Cancelled))));
        let (killed, pending, ending) =
            tokio::join!(followed(killed, []), followed(pending, []), followed(ending, [ends]));
        let failure = killed.0.unwrap_err();
        assert_eq!((failure.code, failure.exit()), (Code::RunBroken, Exit::Findings), "{}", failure.message);
        assert!(failure.message.contains("was deleted") && killed.1.contains("was deleted"), "{}", failure.message);
        let failure = pending.0.unwrap_err();
        assert_eq!((failure.code, failure.exit()), (Code::RunNotBegun, Exit::Timeout), "{}", failure.message);
        assert!(failure.message.ends_with("has not begun: ImagePullBackOff no such image"), "{}", failure.message);
        let ended = ending.0.unwrap().and_then(|record| record.header.ended).unwrap();
        assert_eq!(ended.verdict, Verdict::Cancelled);
    }

    #[tokio::test]
    async fn it_is_told_once_that_nobody_conducts_a_run_that_has_begun_and_once_that_somebody_does_again() {
        let begun = || {
            let mut fake = renewed(long_ago());
            fake.put(&path::config_maps("argo"), header(None));
            put_job(&mut fake, &json!({"active": 1}));
            put_pod(&mut fake, "p", "2026-11-16T12:00:00Z", "ImagePullBackOff");
            fake
        };
        let goes_on: [Step; 2] = [
            ("nobody conducts the run", |fake| renew(fake, Timestamp::now())),
            ("conducted again", |fake| fake.put(&path::config_maps("argo"), header(Some(Verdict::Done)))),
        ];
        // No pod of it will come any more.
        let fails: Step = ("nobody conducts the run", |fake| {
            let failed =
                json!({"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "too often"});
            put_job(fake, &json!({"conditions": [failed]}));
        });
        let overdue: Step = ("nobody conducts the run", |fake| {
            let failed =
                json!({"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "too long"});
            put_job(fake, &json!({"conditions": [failed]}));
        });
        let (goes_on, fails, overdue) =
            tokio::join!(followed(begun(), goes_on), followed(begun(), [fails]), followed(begun(), [overdue]));
        let ended = goes_on.0.unwrap().and_then(|record| record.header.ended).unwrap();
        assert_eq!(ended.verdict, Verdict::Done);
        let left = "nobody conducts the run since 2020-01-01T00:00:00Z, and nothing new starts until the Job `forge-r-1` has \
                    another pod: ImagePullBackOff no such image; `kubectl -n argo describe job forge-r-1` tells more";
        assert_eq!(goes_on.1, format!("{left}the run is conducted again"));
        let failure = fails.0.unwrap_err();
        assert_eq!((failure.code, fails.1.as_str()), (Code::RunBroken, left), "{}", failure.message);
        let failure = overdue.0.unwrap_err();
        assert_eq!((failure.code, failure.exit()), (Code::RunOverdue, Exit::Timeout), "{}", failure.message);
        assert!(failure.message.ends_with("nobody conducted it: too long"), "{}", failure.message);
    }
}
