//! The pod that is really started: how far it is, and what follows from how it ended. Kubernetes' own words are kept.

use serde_json::Value;

use super::{Check, Finding, Judged, Severity, items, text};
use crate::duration::Duration;
use crate::name::clip;
use crate::view::shown;

/// How far the pod of a check is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// On its way, and what it waits for.
    Waiting(String),
    /// It ran to its end.
    Done,
    /// It will not.
    Over,
}

/// How a check with a pod ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The pod ran to its end.
    Done,
    /// It will not run.
    Over,
    /// It took longer than this.
    TimedOut(Duration),
    /// Somebody stopped the check.
    Interrupted,
    /// The API server refused what was to be made.
    Refused {
        /// What.
        what: &'static str,
        /// The HTTP code.
        code: u16,
        /// What it said.
        message: String,
    },
    /// The API server could not be asked.
    Unreachable(String),
}

/// What was last seen of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen {
    /// The pod.
    pub pod: Option<Value>,
    /// The claim.
    pub claim: Option<Value>,
    /// What happened to both, in Kubernetes' own words.
    pub events: Vec<String>,
}

/// A pod that was started to see whether it starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tried {
    /// The image.
    pub image: String,
    /// Where.
    pub namespace: String,
    /// The class that its claim gets, where it has one.
    pub class: Option<String>,
    /// How it ended.
    pub ended: Ended,
    /// What was last seen.
    pub seen: Seen,
}

/// Reasons for which the kubelet does not pull an image.
const PULL: [&str; 5] =
    ["ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"];
/// Reasons that do not pass by themselves. An image that cannot be pulled is tried once more before it is given up.
const FINAL: [&str; 7] = [
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "CrashLoopBackOff",
];

/// A state of a pod's container: reason and message.
fn state<'p>(pod: &'p Value, kind: &str) -> Option<(&'p str, &'p str)> {
    let states = items(pod, "/status/containerStatuses").filter_map(|status| status.get("state")?.get(kind));
    let found = states.last()?;
    Some((text(found, "/reason").unwrap_or("?"), text(found, "/message").unwrap_or_default()))
}

/// Why it was not scheduled, where that is said.
fn unscheduled(pod: &Value) -> Option<String> {
    let condition = items(pod, "/status/conditions").find(|found| text(found, "/type") == Some("PodScheduled"))?;
    let words = || {
        let reason = text(condition, "/reason").unwrap_or("?");
        format!("{reason}: {}", text(condition, "/message").unwrap_or_default())
    };
    (text(condition, "/status") == Some("False")).then(words)
}

/// Reads how far a pod is.
pub fn stage(pod: &Value) -> Stage {
    match text(pod, "/status/phase") {
        Some("Succeeded") => return Stage::Done,
        Some("Failed") => return Stage::Over,
        _ => {}
    }
    if let Some((reason, message)) = state(pod, "waiting") {
        if FINAL.contains(&reason) {
            return Stage::Over;
        }
        return Stage::Waiting(shown(format!("{reason} {message}").trim()));
    }
    if let Some(why) = unscheduled(pod) {
        return Stage::Waiting(shown(&why));
    }
    Stage::Waiting(clip(text(pod, "/status/phase").unwrap_or("not seen yet")))
}

/// Judges how it went: the pod, its image and its volume.
pub fn tried(tried: &Tried) -> Vec<Judged> {
    let place = clip(&tried.namespace);
    match &tried.ended {
        Ended::Done => done(tried, &place),
        Ended::Interrupted => alone(Judged::failed(Check::Pod, "interrupted before the pod had ended"), tried),
        Ended::Unreachable(why) => alone(Judged::failed(Check::Pod, why), tried),
        Ended::Refused { what, code, message } => {
            let seen = format!("{what} was refused");
            alone(Judged::new(Check::Pod, seen).with(refused(what, *code, message, &place)), tried)
        }
        Ended::Over => ended(tried, None),
        Ended::TimedOut(limit) => ended(tried, Some(*limit)),
    }
}

/// Nothing follows from it about image and volume.
fn alone(judged: Judged, tried: &Tried) -> Vec<Judged> {
    let why = "the pod did not get so far";
    let volume = tried.class.as_ref().map(|_| Judged::skipped(Check::Volume, why));
    [judged, Judged::skipped(Check::Image, why)].into_iter().chain(volume).collect()
}

fn done(tried: &Tried, place: &str) -> Vec<Judged> {
    let pod = tried.seen.pod.as_ref();
    let id = pod.and_then(|pod| items(pod, "/status/containerStatuses").find_map(|status| text(status, "/imageID")));
    let node = pod.and_then(|pod| text(pod, "/spec/nodeName")).map(|node| format!(" on {}", clip(node)));
    let mut all = vec![
        Judged::new(Check::Pod, format!("ran in `{place}`{}", node.unwrap_or_default())),
        Judged::new(Check::Image, format!("pulled: {}", id.map_or_else(|| clip(&tried.image), shown))),
    ];
    all.extend(tried.class.as_ref().map(|class| Judged::new(Check::Volume, format!("bound by {}", clip(class)))));
    all
}

/// What was refused, by whom, and what to do about that one.
fn refused(what: &str, code: u16, message: &str, place: &str) -> Finding {
    let means = "neither the Job of a run nor its agent could start";
    let fix = if message.contains("violates PodSecurity") {
        format!(
            "let pods pass that are restricted as the message says: `kubectl label namespace NAMESPACE pod-security.kubernetes.io/enforce=restricted --overwrite`; where the level comes from the cluster, make an exception for `{place}` and the namespace of Argo Workflows"
        )
    } else if message.contains("exceeded quota") || message.contains("LimitRange") {
        format!("raise the quota or limit that the message names: `kubectl -n {place} get quota,limitrange`")
    } else if message.contains("admission webhook") || message.contains("ValidatingAdmissionPolicy") {
        "let pods with the label `app.kubernetes.io/managed-by: forge` pass in the policy that the message names"
            .to_owned()
    } else if matches!(code, 401 | 403) {
        "ask for the right that the message names, or run it as somebody who has it".to_owned()
    } else {
        "the message names what the API server minds".to_owned()
    };
    Finding::new(Check::Pod, Severity::Blocking, format!("{what} was refused"), means, fix).because([message])
}

/// It did not run: by the image, by the volume, or by itself.
fn ended(tried: &Tried, limit: Option<Duration>) -> Vec<Judged> {
    let empty = Value::Null;
    let pod = tried.seen.pod.as_ref().unwrap_or(&empty);
    let within = limit.map(|limit| format!(" within {limit}")).unwrap_or_default();
    let waiting = state(pod, "waiting");
    let mut words: Vec<String> = waiting.iter().map(|(reason, message)| format!("{reason}: {message}")).collect();
    words.extend(unscheduled(pod));
    words.extend(state(pod, "terminated").map(|(reason, message)| format!("{reason}: {message}")));
    words.extend(text(pod, "/status/message").map(str::to_owned));
    words.extend(tried.seen.events.iter().cloned());
    let pulling = waiting.is_some_and(|(reason, _)| PULL.contains(&reason))
        || (limit.is_some() && words.iter().any(|line| line.starts_with("Failed: Failed to pull")));
    if pulling {
        return by_image(tried, words);
    }
    let unbound = tried.class.is_some()
        && tried.seen.claim.as_ref().is_none_or(|claim| text(claim, "/status/phase") != Some("Bound"));
    // With a volume that waits for its first pod, a pod that no node takes has no volume either.
    let blamed = unscheduled(pod).is_none_or(|words| words.to_ascii_lowercase().contains("volume"));
    if unbound && blamed && limit.is_some() {
        return by_volume(tried, words, &within);
    }
    let image = if state(pod, "terminated").is_some() || state(pod, "running").is_some() {
        Judged::new(Check::Image, format!("pulled: {}", clip(&tried.image)))
    } else {
        Judged::skipped(Check::Image, "the pod did not get so far")
    };
    let volume = tried.class.as_ref().map(|class| {
        if unbound {
            Judged::skipped(Check::Volume, "the pod did not get so far")
        } else {
            Judged::new(Check::Volume, format!("bound by {}", clip(class)))
        }
    });
    let finding = by_itself(tried, pod, &within).because(words);
    let judged = Judged::new(Check::Pod, format!("did not run{within}")).with(finding);
    [judged, image].into_iter().chain(volume).collect()
}

fn by_image(tried: &Tried, words: Vec<String>) -> Vec<Judged> {
    let image = clip(&tried.image);
    let all = words.join("\n").to_ascii_lowercase();
    let has = |parts: &[&str]| parts.iter().any(|part| all.contains(part));
    let fix = if has(&["unauthorized", "authentication required", "denied", "403 forbidden"]) {
        "give the nodes credentials for this registry (`crictl pull IMAGE` on a node must work), or give accounts `forge-executor`, `forge-workflow` and `forge-executor-plugin` in the namespace of Argo Workflows an imagePullSecret, before this: docs/guides/credentials.md"
    } else if has(&["not found", "manifest unknown", "invalidimagename", "couldn't parse"]) {
        "push the image that --image names, or correct it: `skopeo inspect docker://IMAGE` must find it"
    } else if has(&["no such host", "no route", "connection refused", "timeout", "deadline", "i/o timeout", "dial tcp"])
    {
        "let the nodes reach the registry (DNS, proxy, firewall), or mirror the image to one that they reach and name that with --image"
    } else if has(&["no match for platform", "exec format"]) {
        "push an image for the processors of the nodes: `skopeo inspect --raw docker://IMAGE` lists those that it has"
    } else if has(&["x509", "certificate"]) {
        "let the container runtime of the nodes trust the registry's certificate"
    } else {
        "`crictl pull IMAGE` on a node must work; what the registry says is above"
    };
    let finding = Finding::new(
        Check::Image,
        Severity::Blocking,
        format!("image `{image}` cannot be pulled"),
        "neither the Job of a run nor its agent could start",
        fix,
    );
    let mut all = vec![
        Judged::skipped(Check::Pod, "its image is not there"),
        Judged::new(Check::Image, format!("not pulled: {image}")).with(finding.because(words)),
    ];
    all.extend(tried.class.as_ref().map(|_| Judged::skipped(Check::Volume, "the pod did not get so far")));
    all
}

fn by_volume(tried: &Tried, words: Vec<String>, within: &str) -> Vec<Judged> {
    let class = clip(tried.class.as_deref().unwrap_or_default());
    let finding = Finding::new(
        Check::Volume,
        Severity::Blocking,
        format!("no volume of StorageClass `{class}` was bound{within}"),
        "an application with a claim waits for ever",
        format!(
            "see whether the provisioner of `{class}` is well and may make volumes: `kubectl describe storageclass {class}` names it; with a slow one, raise --timeout"
        ),
    );
    vec![
        Judged::skipped(Check::Pod, "its volume is not there"),
        Judged::skipped(Check::Image, "the pod did not get so far"),
        Judged::new(Check::Volume, format!("not bound{within}")).with(finding.because(words)),
    ]
}

fn by_itself(tried: &Tried, pod: &Value, within: &str) -> Finding {
    let blocking =
        |what: String, means: &str, fix: &str| Finding::new(Check::Pod, Severity::Blocking, what, means, fix);
    let never = "neither the Job of a run nor its agent could start";
    if unscheduled(pod).is_some() {
        return blocking(
            format!("no node took the pod{within}"),
            never,
            "make room or add a node: what each one minds is above, `kubectl describe nodes` shows what is used",
        );
    }
    if let Some((reason, message)) = state(pod, "terminated") {
        let image = clip(&tried.image);
        let fix = if message.contains("exec format error") {
            "push an image for the processors of the nodes"
        } else if reason == "OOMKilled" {
            "give the node more memory, or see what else runs there"
        } else {
            "name the image of forge with --image: it must run `forge --version` as user 65532 on a root that cannot be written"
        };
        return blocking(format!("`forge --version` failed in image `{image}` ({})", clip(reason)), never, fix);
    }
    let fix = "what the kubelet minds is above; `kubectl get events -A --sort-by=.lastTimestamp` shows more, and with slow nodes raise --timeout";
    blocking(format!("the pod did not start{within}"), never, fix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn waiting(reason: &str, message: &str) -> Value {
        json!({"status": {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": reason, "message": message}}}]}})
    }

    fn unschedulable(message: &str) -> Value {
        json!({"status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]}})
    }

    fn terminated(reason: &str, message: &str) -> Value {
        json!({"status": {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"reason": reason, "exitCode": 128, "message": message}}}]}})
    }

    fn one(ended: Ended, pod: Value, class: Option<&str>) -> Tried {
        Tried {
            image: "registry.example.com/forge@sha256:00".to_owned(),
            namespace: "forge-preflight-x".to_owned(),
            class: class.map(str::to_owned),
            ended,
            seen: Seen { pod: Some(pod), ..Seen::default() },
        }
    }

    fn results(all: &[Judged]) -> Vec<(Check, Option<Severity>, bool)> {
        all.iter().map(|judged| (judged.check, judged.worst(), judged.skipped)).collect()
    }

    fn limit() -> Ended {
        Ended::TimedOut(Duration::from_seconds(120))
    }

    #[test]
    fn a_pod_is_followed_until_it_has_ended_or_cannot_start() {
        assert_eq!(stage(&json!({"status": {"phase": "Succeeded"}})), Stage::Done);
        assert_eq!(stage(&json!({"status": {"phase": "Failed"}})), Stage::Over);
        assert_eq!(stage(&waiting("ImagePullBackOff", "")), Stage::Over);
        assert_eq!(stage(&waiting("CreateContainerConfigError", "")), Stage::Over);
        // The first failure may be a hiccup of the registry.
        assert!(matches!(stage(&waiting("ErrImagePull", "x")), Stage::Waiting(words) if words == "ErrImagePull x"));
        // A node may yet come.
        assert!(
            matches!(stage(&unschedulable("0/1 nodes")), Stage::Waiting(words) if words == "Unschedulable: 0/1 nodes")
        );
        for hostile in
            [json!(null), json!({"status": 7}), json!({"status": {"containerStatuses": [null, {"state": []}]}})]
        {
            assert!(matches!(stage(&hostile), Stage::Waiting(_)), "{hostile}");
        }
    }

    #[test]
    fn a_pod_that_ran_proves_its_image_and_its_volume() {
        let pod = json!({"spec": {"nodeName": "node"}, "status": {"phase": "Succeeded", "containerStatuses": [{"imageID": "registry.example.com/forge@sha256:00"}]}});
        let all = tried(&one(Ended::Done, pod.clone(), Some("local")));
        let well = |check: Check| -> (Check, Option<Severity>, bool) { (check, None, false) };
        assert_eq!(results(&all), [well(Check::Pod), well(Check::Image), well(Check::Volume)]);
        assert_eq!(all[1].seen, "pulled: registry.example.com/forge@sha256:00");
        assert_eq!(tried(&one(Ended::Done, pod, None)).len(), 2);
    }

    #[test]
    fn an_image_that_cannot_be_pulled_is_told_in_kubernetes_own_words_with_the_fix_for_its_kind() {
        for (message, fix) in [
            ("rpc error: code = NotFound desc = failed to pull and unpack image: not found", "push the image"),
            ("pull access denied, repository does not exist or may require authorization", "`forge-workflow`"),
            ("dial tcp: lookup registry.example.com: no such host", "reach the registry"),
            ("x509: certificate signed by unknown authority", "trust the registry"),
            ("no match for platform in manifest", "processors of the nodes"),
            ("something new", "crictl pull"),
        ] {
            let all = tried(&one(Ended::Over, waiting("ImagePullBackOff", message), None));
            assert_eq!(results(&all), [(Check::Pod, None, true), (Check::Image, Some(Severity::Blocking), false)]);
            let finding = &all[1].findings[0];
            assert!(finding.evidence[0].contains(message) && finding.fix.contains(fix), "{finding:?}");
        }
        // Still at it when the time was over.
        let all = tried(&one(limit(), waiting("ErrImagePull", "i/o timeout"), None));
        assert_eq!(all[1].worst(), Some(Severity::Blocking));
    }

    #[test]
    fn a_pod_that_no_node_takes_and_one_that_fails_block_by_themselves() {
        let all = tried(&one(limit(), unschedulable("0/3 nodes are available: 3 Insufficient memory."), None));
        assert_eq!(all[0].worst(), Some(Severity::Blocking));
        assert_eq!(all[0].findings[0].what, "no node took the pod within 2m");
        assert_eq!(all[0].findings[0].evidence, ["Unschedulable: 0/3 nodes are available: 3 Insufficient memory."]);
        let all =
            tried(&one(Ended::Over, terminated("StartError", "exec /usr/local/bin/forge: exec format error"), None));
        assert!(all[0].findings[0].fix.contains("processors"), "{all:?}");
        assert_eq!(all[1].worst(), None);
        let all = tried(&one(
            Ended::Over,
            terminated("StartError", "exec: \"forge\": executable file not found in $PATH"),
            None,
        ));
        assert!(all[0].findings[0].fix.contains("--image"), "{all:?}");
        let all = tried(&one(limit(), waiting("ContainerCreating", ""), None));
        assert_eq!(all[0].findings[0].what, "the pod did not start within 2m");
    }

    #[test]
    fn a_volume_that_is_not_bound_blocks_by_its_class() {
        let mut late = one(limit(), unschedulable("pod has unbound immediate PersistentVolumeClaims"), Some("slow"));
        late.seen.claim = Some(json!({"status": {"phase": "Pending"}}));
        late.seen.events = vec!["ProvisioningFailed: quota exceeded".to_owned()];
        let all = tried(&late);
        let skipped = |check: Check| -> (Check, Option<Severity>, bool) { (check, None, true) };
        assert_eq!(
            results(&all),
            [skipped(Check::Pod), skipped(Check::Image), (Check::Volume, Some(Severity::Blocking), false)]
        );
        assert!(all[2].findings[0].evidence.iter().any(|line| line.contains("quota exceeded")));
    }

    #[test]
    fn what_is_refused_is_told_with_who_refused_it() {
        for (code, message, fix) in [
            (
                403,
                "pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\": seccompProfile",
                "enforce=restricted",
            ),
            (403, "pods \"x\" is forbidden: exceeded quota: small, requested: pods=1", "raise the quota"),
            (
                403,
                "admission webhook \"images.example.com\" denied the request: not on the list",
                "policy that the message names",
            ),
            (403, "pods is forbidden: User \"x\" cannot create resource \"pods\"", "ask for the right"),
            (422, "Pod \"x\" is invalid", "API server minds"),
        ] {
            let ended = Ended::Refused { what: "the pod", code, message: message.to_owned() };
            let all = tried(&one(ended, json!(null), None));
            assert_eq!(all[0].worst(), Some(Severity::Blocking), "{message}");
            assert!(all[0].findings[0].fix.contains(fix), "{:?}", all[0].findings[0]);
            assert!(all[1].skipped);
        }
    }

    #[test]
    fn an_interrupt_and_a_server_that_is_away_prove_nothing() {
        for ended in [Ended::Interrupted, Ended::Unreachable("no answer".to_owned())] {
            let all = tried(&one(ended, json!(null), Some("local")));
            assert_eq!(
                results(&all),
                [(Check::Pod, Some(Severity::Failed), false), (Check::Image, None, true), (Check::Volume, None, true)]
            );
        }
    }

    #[test]
    fn hostile_words_are_cut_and_clean() {
        let long = "\u{1b}[2J".repeat(10_000);
        let all = tried(&one(Ended::Over, waiting("ImagePullBackOff", &long), None));
        let text = all[1].findings[0].text();
        assert!(text.len() < 4_000 && !text.contains('\u{1b}'), "{text}");
    }
}
