//! A pod that really starts: in a namespace of its own, with the executor's image and restrictions, and with a volume where
//! something needs one. Whatever comes of it, everything that was made is removed before this ends.
//!
//! A request that makes something is never given up half way, so that what is removed afterwards is all that there is.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

use forge_core::preflight::{
    self, Check, ClassFacts, Ended, Finding, Judged, NAME_PREFIX, PREFLIGHT_LABEL, Probe, Purpose, Seen, Severity,
    Stage, Tried,
};
use forge_core::rights;
use jiff::SignedDuration;
use serde_json::Value;
use tokio::time::Instant;

use super::Wanted;
use super::gather::Ground;
use super::leftovers::{self, Made, REMOVAL, Removed};
use crate::cluster::{Cluster, ClusterError, Store, escaped, path};
use crate::interrupt::Interrupts;

/// How long the account of a new namespace may take to be there.
const ACCOUNT: Duration = Duration::from_secs(15);
/// What a check made is nobody's so long after it must have ended.
const MARGIN: Duration = Duration::from_secs(60);

/// Where a pod is started.
enum Place {
    /// In a namespace of its own.
    Apart,
    /// In that of Argo Workflows.
    There,
}

/// Starts a pod, judges what became of it, and leaves nothing.
pub(super) async fn probe(
    cluster: &Cluster,
    wanted: &Wanted,
    ground: &Ground,
    deadline: Instant,
    interrupts: &mut Interrupts,
    say: &mut impl FnMut(&str),
) -> Vec<Judged> {
    let purpose = &wanted.purpose;
    if let Some(why) = &wanted.started_before {
        return not_tried(purpose, Judged::skipped(Check::Pod, why), why);
    }
    let (removed, Removed { mut left, interrupted }) = leftovers::earlier(cluster, purpose, ground, interrupts).await;
    let place = if interrupted || interrupts.told().await {
        Err(Judged::failed(Check::Pod, "interrupted before a pod was started"))
    } else {
        place(purpose, ground)
    };
    let mut judged = match place {
        Err(judged) => not_tried(purpose, judged, "no pod was started"),
        Ok(place) => {
            let (class, without) = class(purpose, ground);
            let mut attempt = Attempt::new(cluster, wanted, ground, &place, class.is_some());
            say(&format!("starting a pod in namespace `{}`", attempt.probe.namespace));
            let (ended, pod) = match attempt.start(&ground.levels).await {
                Ok(()) => attempt.follow(deadline, wanted.timeout, interrupts, say).await,
                Err(ended) => (ended, None),
            };
            let seen = attempt.look(pod, &ended).await;
            say("removing what was made");
            left.extend(leftovers::remove(cluster, &attempt.made, interrupts).await.left);
            let Probe { image, namespace, .. } = attempt.probe;
            let class = class.map(|class| class.name);
            let mut judged = preflight::tried(&Tried { image, namespace, class, ended, seen });
            judged.extend(without);
            judged
        }
    };
    judged.push(preflight::leftovers(removed, &left));
    judged
}

/// What is said of image and volume where there is no pod.
fn not_tried(purpose: &Purpose, judged: Judged, why: &str) -> Vec<Judged> {
    let volume = purpose.storage.then(|| Judged::skipped(Check::Volume, why));
    [judged, Judged::skipped(Check::Image, why)].into_iter().chain(volume).collect()
}

/// Where a pod may be started, or what is to be said instead.
fn place(purpose: &Purpose, ground: &Ground) -> Result<Place, Judged> {
    if !ground.nodes {
        return Err(Judged::skipped(Check::Pod, "no node could take it"));
    }
    let (apart, there) = rights::probing(purpose);
    let there = ground.workflows && preflight::whole(&there, &ground.answers);
    if there && ground.account.is_some() {
        return Ok(Place::There);
    }
    if preflight::whole(&apart, &ground.answers) {
        return Ok(Place::Apart);
    }
    if there {
        return Ok(Place::There);
    }
    let finding = Finding::new(
        Check::Pod,
        Severity::Failed,
        format!("the account may neither make a namespace nor start a pod in `{}`", purpose.workflows),
        "it is not known whether a pod of a run would start",
        "let somebody who may run `forge preflight`: it takes namespaces and pods, to create, watch and delete",
    );
    Err(Judged::new(Check::Pod, "not tried").with(finding))
}

/// The class of a volume that is tried, and what is said where none is although volumes are needed.
fn class(purpose: &Purpose, ground: &Ground) -> (Option<ClassFacts>, Option<Judged>) {
    let skipped = |why: String| (None, Some(Judged::skipped(Check::Volume, why)));
    match &ground.class {
        _ if !purpose.storage => (None, None),
        None => skipped("there is no default StorageClass".to_owned()),
        // The volume would stay, and its disk with it.
        Some(class) if class.retains => skipped(format!("{} retains its volumes: one would stay", class.name)),
        Some(class) => (Some(class.clone()), None),
    }
}

/// A pod on its way.
struct Attempt<'a> {
    cluster: &'a Cluster,
    probe: Probe,
    apart: bool,
    /// What has to be removed, in this order.
    made: Vec<Made>,
}

impl<'a> Attempt<'a> {
    fn new(cluster: &'a Cluster, wanted: &Wanted, ground: &Ground, place: &Place, volume: bool) -> Self {
        let id = random();
        let apart = matches!(place, Place::Apart);
        let namespace = if apart { format!("{NAME_PREFIX}{id}") } else { wanted.purpose.workflows.clone() };
        let lasts = SignedDuration::try_from(wanted.timeout + REMOVAL + MARGIN).unwrap_or(SignedDuration::MAX);
        let now = ground.now();
        let expires = now.checked_add(lasts).unwrap_or(now);
        let account = ground.account.filter(|_| !apart);
        let probe = Probe { id, namespace, image: wanted.purpose.image.clone(), account, volume, expires };
        Self { cluster, probe, apart, made: Vec::new() }
    }

    /// Makes namespace, claim and pod.
    async fn start(&mut self, levels: &BTreeMap<String, String>) -> Result<(), Ended> {
        if self.apart {
            let namespace = preflight::namespace(&self.probe, levels);
            self.make("the namespace", "Namespace", "/api/v1/namespaces", &namespace).await?;
        }
        if self.probe.volume {
            let claims = path::core(&self.probe.namespace, "persistentvolumeclaims");
            let claim = preflight::claim(&self.probe);
            self.make("the claim", "PersistentVolumeClaim", &claims, &claim).await?;
        }
        let (pods, pod) = (path::core(&self.probe.namespace, "pods"), preflight::pod(&self.probe));
        let patience = Instant::now() + ACCOUNT;
        loop {
            match self.make("the pod", "Pod", &pods, &pod).await {
                // Kubernetes gives a new namespace its account a moment later.
                Err(Ended::Refused { message, .. }) if is_early(&message) && Instant::now() < patience => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                other => return other,
            }
        }
    }

    /// Makes one object, and notes it down where it was made or may have been: the last one goes first.
    async fn make(
        &mut self,
        what: &'static str,
        kind: &'static str,
        collection: &str,
        object: &Value,
    ) -> Result<(), Ended> {
        let (unclear, answer) = match self.cluster.create(collection, object).await {
            Ok(_) => (false, Ok(())),
            Err(ClusterError::Refused { code, message }) if code < 500 && !matches!(code, 408 | 429) => {
                return Err(Ended::Refused { what, code, message });
            }
            Err(error) => (true, Err(Ended::Unreachable(error.to_string()))),
        };
        let name = self.probe.name();
        let (path, by) = (path::object(collection, &name), Some(self.probe.id.clone()));
        self.made.insert(0, Made { kind, name, path, by, unclear });
        answer
    }

    /// Follows the pod until it has ended, will not start, or the time is over.
    async fn follow(
        &self,
        deadline: Instant,
        timeout: Duration,
        interrupts: &mut Interrupts,
        say: &mut impl FnMut(&str),
    ) -> (Ended, Option<Value>) {
        let selector = format!("{PREFLIGHT_LABEL}={}", self.probe.id);
        let mut watch = self.cluster.watch(&path::core(&self.probe.namespace, "pods"), &selector);
        let (mut store, mut said) = (Store::new(), String::new());
        let ended = loop {
            tokio::select! {
                _ = watch.keep(&mut store) => {}
                () = tokio::time::sleep_until(deadline) => {
                    break Ended::TimedOut(forge_core::duration::Duration::from_seconds(timeout.as_secs()));
                }
                () = interrupts.heard() => break Ended::Interrupted,
            }
            if let Some(refused) = watch.refused() {
                break Ended::Unreachable(refused.message);
            }
            let Some(pod) = store.values().next() else { continue };
            match preflight::stage(pod) {
                Stage::Done => break Ended::Done,
                Stage::Over => break Ended::Over,
                Stage::Waiting(words) => {
                    if words != said {
                        say(&format!("waiting for the pod: {words}"));
                        said = words;
                    }
                }
            }
        };
        (ended, store.into_values().next())
    }

    /// What else is there to be seen, before it is removed; what cannot be read is not there.
    async fn look(&mut self, pod: Option<Value>, ended: &Ended) -> Seen {
        let (name, namespace) = (self.probe.name(), self.probe.namespace.clone());
        let mut seen = Seen { pod, ..Seen::default() };
        if self.probe.volume {
            let claims = path::core(&namespace, "persistentvolumeclaims");
            seen.claim = self.cluster.get(&path::object(&claims, &name)).await.ok().flatten();
            let volume = seen.claim.as_ref().and_then(|claim| claim.pointer("/spec/volumeName")?.as_str());
            if let Some(volume) = volume {
                // Its provisioner removes it, some time after the claim.
                let (name, path) = (volume.to_owned(), path::object("/api/v1/persistentvolumes", volume));
                self.made.push(Made { kind: "PersistentVolume", name, path, by: None, unclear: false });
            }
        }
        if *ended != Ended::Done {
            let about = escaped(&format!("involvedObject.name={name}"));
            let events = format!("{}?fieldSelector={about}&limit=50", path::core(&namespace, "events"));
            let list = self.cluster.get(&events).await.ok().flatten().unwrap_or_default();
            let events = list.get("items").and_then(Value::as_array).into_iter().flatten();
            seen.events = events.filter_map(event).collect();
        }
        seen
    }
}

/// A warning, in Kubernetes' own words.
fn event(event: &Value) -> Option<String> {
    let field = |name: &str| event.get(name).and_then(Value::as_str);
    (field("type")? == "Warning")
        .then(|| format!("{}: {}", field("reason").unwrap_or_default(), field("message").unwrap_or_default()))
}

/// The namespace is there and its account is not yet.
fn is_early(message: &str) -> bool {
    message.contains("service account") && message.contains("not found")
}

/// What no other check has: chance comes from the standard library, which takes it from the system.
fn random() -> String {
    format!("{:016x}", RandomState::new().build_hasher().finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_are_valid_and_no_two_are_the_same() {
        let names: std::collections::BTreeSet<String> = (0..1_000).map(|_| random()).collect();
        assert_eq!(names.len(), 1_000);
        for name in names {
            assert!(
                name.len() == 16 && name.chars().all(|c| c.is_ascii_hexdigit() && !c.is_ascii_uppercase()),
                "{name}"
            );
        }
    }

    #[test]
    fn only_a_missing_account_is_waited_for() {
        let early =
            "pods \"x\" is forbidden: error looking up service account x/default: serviceaccount \"default\" not found";
        assert!(is_early(early));
        assert!(!is_early("pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\""));
        assert!(!is_early("namespaces \"x\" not found"));
    }

    #[test]
    fn warnings_are_kept_in_kubernetes_own_words_and_nothing_else_is() {
        let warning = json!({"type": "Warning", "reason": "FailedMount", "message": "no such volume"});
        assert_eq!(event(&warning).as_deref(), Some("FailedMount: no such volume"));
        for other in [json!({"type": "Normal", "reason": "Pulling"}), json!(null), json!({"type": 7})] {
            assert_eq!(event(&other), None, "{other}");
        }
    }
}
