//! The Job that conducts a run: Kubernetes starts it again when its pod is lost, so a laptop that goes to sleep loses
//! nothing (SPEC.md section 4). An exit code of ours ends it; anything else is infrastructure, and tried again. A pod that is
//! told to end leaves the run to the next one; where none will come, because the Job itself goes, it ends the run first. At the
//! deadline of the Job it does so before it is told.

use std::time::Duration;

use forge_core::code::Code;
use forge_core::failure::Failure;
use forge_core::gate::RunId;
use forge_core::render::{
    ARGOCD_SECRET, ARGOCD_SECRET_PATH, ENVIRONMENT_LABEL, EXECUTOR_ACCOUNT, MANAGED_BY, Places, RUN_LABEL,
};
use forge_core::run::RunPlan;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{Place, follow};
use crate::cluster::path;
use crate::serve;

/// How much longer than the run its Job may last, in seconds: for a pod that starts late, and for the end of the run.
const LONGER: u64 = 30 * 60;
/// How long a pod that is told to end may take, in seconds. One that ends the run first stops its Workflow, which is given a
/// minute, and puts the window right.
const GRACE: i64 = 90;
/// Before something is asked again that was not answered.
const AGAIN: Duration = Duration::from_secs(1);
/// When a Job is looked at again whose time has not begun, as far as it says, or that may not be looked at.
const NOT_BEGUN: Duration = Duration::from_secs(60);
/// Who calls a run off whose Job has no time left: such a run took too long.
pub(super) const DEADLINE: &str = "the deadline of its Job";

/// The name of the Job of a run.
pub(super) fn name(run: &RunId) -> String {
    format!("forge-{run}")
}

/// Where Jobs are.
pub(super) fn collection(place: &Place) -> String {
    path::named("batch", "v1", &place.places.workflows, "jobs")
}

/// The first condition of these kinds that holds for a Job.
pub(super) fn condition<'j>(job: &'j Value, kinds: &[&str]) -> Option<&'j Value> {
    let conditions = job.pointer("/status/conditions").and_then(Value::as_array)?;
    let text = |condition: &'j Value, field: &str| condition.get(field).and_then(Value::as_str).unwrap_or_default();
    conditions.iter().find(|&found| kinds.contains(&text(found, "type")) && text(found, "status") == "True")
}

/// Returns when this pod of a Job is told to end and another one will take its place: Kubernetes ends a pod with its node. Where
/// none will, the run is called off, and this never returns: whoever conducts the run ends it. At its deadline Kubernetes would
/// give the pod less time than that may take, so it does not wait to be told.
pub(crate) async fn left(place: &Place, run: &RunId, told: impl Future<Output = ()>) {
    let mut told = std::pin::pin!(told);
    let mut is_told = false;
    // A Job that goes while its pod starts may tell it before anybody listens.
    while let Some(lasts) = lasts(place, run).await {
        if is_told {
            return;
        }
        tokio::select! {
            () = &mut told => is_told = true,
            () = tokio::time::sleep(lasts) => {}
        }
    }
    std::future::pending::<()>().await;
}

/// How long a run can go on in another pod before that is to be looked at again; where it cannot, it is called off, and there is
/// nothing to wait for. Where that may not be known it can.
async fn lasts(place: &Place, run: &RunId) -> Option<Duration> {
    loop {
        match call_off(place, run).await {
            Ok(lasts) => return lasts,
            Err(failure) if failure.code == Code::Unreachable => tokio::time::sleep(AGAIN).await,
            Err(_) => return Some(NOT_BEGUN),
        }
    }
}

async fn call_off(place: &Place, run: &RunId) -> Result<Option<Duration>, Failure> {
    let job = place.cluster.get(&path::object(&collection(place), &name(run))).await?;
    let now = Timestamp::now();
    let Some(by) = end(job.as_ref(), now) else {
        let left = job.and_then(|job| time_left(&job, now)).and_then(|left| Duration::try_from(left).ok());
        return Ok(Some(left.unwrap_or(NOT_BEGUN).max(AGAIN)));
    };
    let plan = serve::plan(&place.cluster, &place.places.workflows, run).await?;
    follow::cancel(place, &plan, by).await?;
    Ok(None)
}

/// What ends a Job for good; nothing while Kubernetes would make another pod of it, which it also does of one that is
/// suspended, later.
fn end(job: Option<&Value>, now: Timestamp) -> Option<&'static str> {
    let Some(job) = job.filter(|job| job.pointer("/metadata/deletionTimestamp").is_none()) else {
        return Some("the deletion of its Job");
    };
    let has_failed = condition(job, &["Failed", "FailureTarget"]).is_some();
    // At its deadline Kubernetes ends the pods of a Job first, and says so in its status afterwards.
    let is_late = time_left(job, now).is_some_and(|left| left <= SignedDuration::ZERO);
    (has_failed || is_late).then_some(DEADLINE)
}

/// How much of the time of a Job is left until another pod could not end the run in it; nothing while it has not begun.
fn time_left(job: &Value, now: Timestamp) -> Option<SignedDuration> {
    // The time of one that is suspended begins anew.
    if job.pointer("/spec/suspend") == Some(&json!(true)) {
        return None;
    }
    let started = job.pointer("/status/startTime").and_then(Value::as_str);
    let started: Option<Timestamp> = started.and_then(|text| text.parse().ok());
    let lasts = job.pointer("/spec/activeDeadlineSeconds").and_then(Value::as_i64);
    let (started, lasts) = started.zip(lasts)?;
    Some(SignedDuration::from_secs(lasts.saturating_sub(GRACE)).saturating_sub(now.duration_since(started)))
}

/// The Job of a run.
pub(super) fn job(plan: &RunPlan, places: &Places) -> Value {
    let labels = json!({MANAGED_BY: "forge", ENVIRONMENT_LABEL: plan.environment, RUN_LABEL: plan.run});
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name(&plan.run), "namespace": places.workflows, "labels": labels},
        "spec": {
            "backoffLimit": 50,
            "activeDeadlineSeconds": plan.timeout.seconds().saturating_add(LONGER),
            "ttlSecondsAfterFinished": 24 * 3600,
            "podFailurePolicy": {"rules": [
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
                {"action": "FailJob", "onExitCodes": {"containerName": "executor", "operator": "In", "values": [1, 2, 3, 4, 5, 6]}},
            ]},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "restartPolicy": "Never",
                    "serviceAccountName": EXECUTOR_ACCOUNT,
                    "terminationGracePeriodSeconds": GRACE,
                    "securityContext": {"runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
                    "containers": [{
                        "name": "executor",
                        "image": places.image,
                        "command": ["forge"],
                        "args": [
                            "serve", "run", "--run", plan.run, "--workflows-namespace", places.workflows,
                            "--argocd-namespace", places.argocd, "--image", places.image,
                            "--agent-tick", places.agent_tick.to_string(),
                            "--argocd", format!("@{ARGOCD_SECRET_PATH}/server"),
                            "--token-file", format!("{ARGOCD_SECRET_PATH}/token"),
                        ],
                        "ports": [{"name": "metrics", "containerPort": 9090}],
                        "securityContext": {
                            "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false,
                            "capabilities": {"drop": ["ALL"]},
                        },
                        "resources": {
                            "requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"cpu": "1", "memory": "512Mi"},
                        },
                        "volumeMounts": [{"name": ARGOCD_SECRET, "mountPath": ARGOCD_SECRET_PATH, "readOnly": true}],
                    }],
                    "volumes": [{"name": ARGOCD_SECRET, "secret": {"secretName": ARGOCD_SECRET, "defaultMode": 0o444}}],
                },
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use forge_core::run::{CANCEL_KEY, record_name};

    use super::*;
    use crate::cluster::fake::{Fake, served};
    use crate::run::sample;

    fn plan() -> RunPlan {
        sample::plan(&["db"])
    }

    /// Tells a pod of this Job to end; gives whether it leaves, and who called the run off.
    async fn told(job: Option<Value>) -> (bool, Value) {
        conducting(job, std::future::ready(())).await
    }

    /// The same of a pod that is told to end then.
    async fn conducting(job: Option<Value>, told: impl Future<Output = ()>) -> (bool, Value) {
        let mut fake = Fake::default();
        for config_map in forge_core::render::plan_config_maps(&plan(), &Places::default()) {
            fake.put(&path::config_maps("argo"), config_map);
        }
        if let Some(job) = job {
            fake.put(&path::named("batch", "v1", "argo", "jobs"), job);
        }
        let (cluster, fake) = served(fake).await;
        let place = Place { cluster, places: Places::default() };
        let run = plan().run;
        let wish = path::object(&path::config_maps("argo"), &record_name(&run, 0));
        let called_off = async {
            loop {
                let wish = fake.lock().unwrap().objects.get(&wish).map(|found| found["data"][CANCEL_KEY].clone());
                match wish {
                    Some(by) => return by,
                    None => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            }
        };
        let ended = async {
            tokio::select! {
                () = left(&place, &run, told) => (true, Value::Null),
                by = called_off => (false, by),
            }
        };
        tokio::time::timeout(Duration::from_secs(20), ended).await.unwrap()
    }

    #[tokio::test]
    async fn a_pod_leaves_the_run_to_the_next_one_and_ends_it_where_there_will_be_none() {
        let job = |more: Value| {
            let mut job = job(&plan(), &Places::default());
            job["status"] = more;
            job
        };
        let condition = |kind: &str, status: &str| json!({"conditions": [{"type": kind, "status": status}]});
        // Its node is drained, somebody deleted it, the Job is suspended: the Job is as it was.
        assert_eq!(told(Some(job(json!({"active": 1})))).await, (true, Value::Null));
        assert_eq!(told(Some(job(condition("Suspended", "True")))).await, (true, Value::Null));
        assert_eq!(told(Some(job(condition("Failed", "False")))).await, (true, Value::Null));
        let mut going = job(json!({}));
        going["metadata"]["deletionTimestamp"] = json!("2026-11-16T12:00:00Z");
        let deleted = (false, json!("the deletion of its Job"));
        assert_eq!((told(None).await, told(Some(going)).await), (deleted.clone(), deleted));
        let late = (false, json!("the deadline of its Job"));
        assert_eq!(told(Some(job(condition("FailureTarget", "True")))).await, late);
        // Kubernetes may say so only after it has told the pod.
        let started = |seconds| Timestamp::now().checked_sub(SignedDuration::from_secs(seconds)).unwrap().to_string();
        assert_eq!(told(Some(job(json!({"startTime": started(3600 + 1800)})))).await, late);
        assert_eq!(told(Some(job(json!({"startTime": started(3600)})))).await, (true, Value::Null));
        let mut suspended = job(json!({"startTime": started(3600 + 1800)}));
        suspended["spec"]["suspend"] = json!(true);
        assert_eq!(told(Some(suspended)).await, (true, Value::Null));
    }

    #[tokio::test]
    async fn a_pod_does_not_wait_until_the_deadline_of_its_job_tells_it_to_end() {
        // Its time to end the run begins in a moment, and Kubernetes tells it so much later.
        let started = Timestamp::now().checked_sub(SignedDuration::from_secs(3600 + 1800 - GRACE - 2)).unwrap();
        let mut job = job(&plan(), &Places::default());
        job["status"] = json!({"startTime": started.to_string()});
        let told = tokio::time::sleep(Duration::from_secs(GRACE.unsigned_abs()));
        assert_eq!(conducting(Some(job), told).await, (false, json!(DEADLINE)));
    }

    #[test]
    fn a_job_lasts_longer_than_its_run_and_not_for_ever_and_its_pod_has_time_to_end_the_run() {
        let job = job(&plan(), &Places::default());
        assert_eq!(job["spec"]["activeDeadlineSeconds"], 3600 + 1800);
        assert_eq!(job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"], 90);
    }
}
