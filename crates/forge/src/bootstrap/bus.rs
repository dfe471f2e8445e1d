//! Whether what hears events can store them. Three servers of an EventBus that start at once may agree on a cluster of two
//! (docs/guides/triggers.md, "When nothing is heard"): no stream finds enough of them, and whatever hears events ends, again and
//! again.
//!
//! Told by the log of what ended, never guessed. Who says so has no stream, and there is one for all, so nothing was stored and
//! nothing is lost where the servers begin anew. Only an EventBus of ours (INV-11), and nothing is waited for: servers that are
//! still starting are looked at by the next bootstrap, or by `--check`.

use std::collections::BTreeSet;

use forge_core::failure::Failure;
use forge_core::render::{self, EVENT_BUS, Placed, Places, WEBHOOK_SOURCE};
use jiff::Timestamp;
use serde_json::Value;

use super::permitted;
use crate::cluster::{Cluster, ClusterError, Owned, path};
use crate::failpoint;

/// What a server answers where too few of them have agreed for a stream.
const TOO_FEW: &str = "no suitable peers for placement";
/// How much of a log is read.
const LINES: u32 = 50;
/// The container of an EventSource that hears.
const CONTAINER: &str = "main";

/// How the EventBus stands, as far as that was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nothing is known to be wrong.
    Well,
    /// Too few of its servers have agreed: they, and what hears for it.
    TooFew(Vec<Pod>),
    /// This pod ended, and its log may not be read.
    Unread(String),
}

/// A pod, as Kubernetes knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pod {
    name: String,
    uid: String,
}

impl Pod {
    fn of(pod: &Value) -> Self {
        let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        Self { name: text("/metadata/name"), uid: text("/metadata/uid") }
    }
}

impl Standing {
    /// What is wrong, and what to do about it.
    pub(crate) fn told(&self, workflows: &str) -> Option<(String, String)> {
        match self {
            Self::Well => None,
            Self::TooFew(_) => {
                let what = format!("EventBus {EVENT_BUS}: too few of its servers have agreed, so nothing is heard");
                Some((what, "`forge bootstrap` lets them begin anew".to_owned()))
            }
            Self::Unread(pod) => {
                let what = format!("pod {pod} does not stay up, and its log may not be read");
                Some((
                    what,
                    format!("where the log says `{TOO_FEW}`, let the servers begin anew: {}", by_hand(workflows)),
                ))
            }
        }
    }
}

/// How a person lets the servers begin anew.
fn by_hand(workflows: &str) -> String {
    let delete = format!("kubectl delete pods -n {workflows} -l");
    format!("{delete} eventbus-name={EVENT_BUS}; {delete} eventsource-name={WEBHOOK_SOURCE}")
}

/// Looks at the EventBus that these objects are for. Who may not look has nothing to say about it.
///
/// # Errors
/// When the cluster does not answer.
pub(crate) async fn look(cluster: &Cluster, places: &Places, objects: &[Placed]) -> Result<Standing, ClusterError> {
    let names = sources(objects);
    let bus = path::object(&path::argo(&places.workflows, "eventbus"), EVENT_BUS);
    if names.is_empty() {
        return Ok(Standing::Well);
    }
    let Some(bus) = permitted(cluster.get(&bus).await)?.flatten().filter(render::is_ours) else {
        return Ok(Standing::Well);
    };
    let pods = path::core(&places.workflows, "pods");
    let servers = permitted(cluster.list(&pods, &format!("eventbus-name={EVENT_BUS}")).await)?;
    let hearing = permitted(cluster.list(&pods, "eventsource-name").await)?;
    let (Some(servers), Some(hearing)) = (servers, hearing) else { return Ok(Standing::Well) };
    let fallen = fallen(&bus, &servers, &hearing, &names);
    for pod in &fallen {
        // What cannot be read says nothing, and nothing is removed for it.
        match permitted(cluster.log(&path::object(&pods, &pod.name), CONTAINER, LINES).await) {
            Ok(Some(log)) if log.contains(TOO_FEW) => {
                return Ok(Standing::TooFew(servers.iter().map(Pod::of).chain(fallen.iter().cloned()).collect()));
            }
            Ok(None) => return Ok(Standing::Unread(pod.name.clone())),
            Ok(Some(_)) | Err(_) => {}
        }
    }
    Ok(Standing::Well)
}

/// Lets the servers begin anew where too few of them have agreed; gives what a person has to do about it.
pub(super) async fn settle(
    cluster: &Cluster,
    places: &Places,
    objects: &[Placed],
    done: &mut impl FnMut(&str),
) -> Result<Option<String>, Failure> {
    let workflows = places.workflows.as_str();
    let standing = look(cluster, places, objects).await?;
    let Standing::TooFew(pods) = &standing else {
        return Ok(standing.told(workflows).map(|(what, fix)| format!("{what}: {fix}")));
    };
    let collection = path::core(workflows, "pods");
    for pod in pods {
        failpoint::write(&format!("Pod {} goes", pod.name));
        match cluster.remove(&path::object(&collection, &pod.name), &pod.uid, Owned::Follow).await {
            Err(ClusterError::Refused { code: 401 | 403, .. }) => {
                let what = standing.told(workflows).map(|(what, _)| what).unwrap_or_default();
                return Ok(Some(format!("{what}, and pods may not be deleted: {}", by_hand(workflows))));
            }
            // Another one is in its place already.
            Err(error) if !error.is_conflict() => return Err(error.into()),
            _ => {}
        }
    }
    done(&format!("EventBus {EVENT_BUS} begins anew: too few of its servers had agreed, and nothing was stored in it"));
    Ok(None)
}

/// The names of what hears events.
fn sources(objects: &[Placed]) -> BTreeSet<&str> {
    let hears = |placed: &&Placed| placed.object.get("kind").and_then(Value::as_str) == Some("EventSource");
    objects.iter().filter(hears).filter_map(|placed| placed.object.pointer("/metadata/name")?.as_str()).collect()
}

/// What hears events, where all of it ended after every server was ready: then it was not too early. Nothing where one runs,
/// because it may have its stream.
fn fallen(bus: &Value, servers: &[Value], hearing: &[Value], names: &BTreeSet<&str>) -> Vec<Pod> {
    let wanted = bus.pointer("/spec/jetstream/replicas").and_then(Value::as_u64).unwrap_or(3);
    let ready: Option<Vec<Timestamp>> = servers.iter().map(ready_since).collect();
    let since = ready.filter(|ready| u64::try_from(ready.len()).is_ok_and(|count| count >= wanted));
    let Some(since) = since.and_then(|ready| ready.into_iter().max()) else { return Vec::new() };
    let label = |pod: &Value| {
        let name = pod.pointer("/metadata/labels/eventsource-name").and_then(Value::as_str);
        name.is_some_and(|name| names.contains(name))
    };
    let ours: Vec<&Value> = hearing.iter().filter(|pod| label(pod)).collect();
    let all = ours.iter().all(|pod| ended_from(pod).is_some_and(|started| started > since));
    if all { ours.into_iter().map(Pod::of).collect() } else { Vec::new() }
}

/// Since when a pod is ready.
fn ready_since(pod: &Value) -> Option<Timestamp> {
    let conditions = pod.pointer("/status/conditions")?.as_array()?;
    let is = |condition: &&Value, field: &str, value: &str| {
        condition.get(field).and_then(Value::as_str).is_some_and(|text| text == value)
    };
    let ready = conditions.iter().find(|condition| is(condition, "type", "Ready"))?;
    if !is(&ready, "status", "True") {
        return None;
    }
    ready.get("lastTransitionTime")?.as_str()?.parse().ok()
}

/// When the container began that ended with an error, where none runs now.
fn ended_from(pod: &Value) -> Option<Timestamp> {
    let statuses = pod.pointer("/status/containerStatuses")?.as_array()?;
    let named = |status: &&Value| status.get("name").and_then(Value::as_str) == Some(CONTAINER);
    let status = statuses.iter().find(named)?;
    if status.pointer("/state/running").is_some() {
        return None;
    }
    let ended = status.pointer("/state/terminated").or_else(|| status.pointer("/lastState/terminated"))?;
    if ended.get("exitCode").and_then(Value::as_i64).unwrap_or_default() == 0 {
        return None;
    }
    ended.get("startedAt")?.as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn server(name: &str, ready: &str, since: &str) -> Value {
        let conditions = json!([
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-08-02T03:00:00Z"},
            {"type": "Ready", "status": ready, "lastTransitionTime": since},
        ]);
        json!({"metadata": {"name": name, "uid": format!("u-{name}")}, "status": {"conditions": conditions}})
    }

    fn source(name: &str, state: &Value, last: &Value) -> Value {
        let statuses = json!([{"name": "main", "state": state, "lastState": last}]);
        let metadata = json!({"name": format!("{name}-x"), "uid": "u", "labels": {"eventsource-name": name}});
        json!({"metadata": metadata, "status": {"containerStatuses": statuses}})
    }

    fn ended(code: i64, from: &str) -> Value {
        json!({"terminated": {"exitCode": code, "startedAt": from, "finishedAt": from}})
    }

    #[test]
    fn what_hears_events_has_fallen_where_it_ended_although_all_servers_were_ready() {
        let bus = json!({"spec": {"jetstream": {"replicas": 3}}});
        let ready = "2026-08-02T03:01:00Z";
        let servers: Vec<Value> = ["a", "b", "c"].iter().map(|name| server(name, "True", ready)).collect();
        let names = BTreeSet::from(["forge-push"]);
        let held_back = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        let (early, late) = ("2026-08-02T03:00:30Z", "2026-08-02T03:01:30Z");
        let fell = source("forge-push", &held_back, &ended(1, late));
        let found = |servers: &[Value], hearing: &[Value]| -> Vec<String> {
            fallen(&bus, servers, hearing, &names).into_iter().map(|pod| pod.name).collect()
        };
        assert_eq!(found(&servers, std::slice::from_ref(&fell)), ["forge-push-x"]);
        assert_eq!(found(&servers, &[source("forge-push", &ended(1, late), &json!({}))]), ["forge-push-x"]);
        // Of somebody else, which says nothing about ours; and one of ours that runs, and may have its stream.
        let foreign = source("another", &held_back, &ended(1, late));
        assert_eq!(found(&servers, &[fell.clone(), foreign.clone()]), ["forge-push-x"]);
        let running = source("forge-push", &json!({"running": {"startedAt": late}}), &ended(1, late));
        for hearing in [
            vec![foreign],
            vec![running.clone()],
            vec![fell.clone(), running],
            vec![source("forge-push", &held_back, &ended(1, early))],
            vec![source("forge-push", &held_back, &ended(0, late))],
            vec![source("forge-push", &held_back, &json!({}))],
            Vec::new(),
        ] {
            assert_eq!(found(&servers, &hearing), Vec::<String>::new(), "{hearing:?}");
        }
        // A server that is not ready, or not there, may be all that is missing.
        let mut starting = servers.clone();
        starting[1] = server("b", "False", ready);
        for servers in [&starting[..], &servers[..2], &[]] {
            assert_eq!(found(servers, std::slice::from_ref(&fell)), Vec::<String>::new());
        }
    }

    #[test]
    fn what_may_not_be_read_is_told_with_what_a_person_does() {
        assert_eq!(Standing::Well.told("argo"), None);
        let (what, fix) = Standing::Unread("forge-push-x".to_owned()).told("argo").unwrap();
        assert!(what.contains("forge-push-x") && fix.contains(TOO_FEW), "{what}: {fix}");
        assert!(fix.contains("kubectl delete pods -n argo -l eventbus-name=forge"), "{fix}");
        let (what, fix) = Standing::TooFew(Vec::new()).told("argo").unwrap();
        assert!(what.starts_with("EventBus forge") && fix.contains("`forge bootstrap`"), "{what}: {fix}");
    }
}
