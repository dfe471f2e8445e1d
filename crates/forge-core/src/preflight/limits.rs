//! Quotas and limits of the namespace of runs: whether a Job and an agent pod fit, as they are made.

use serde_json::Value;

use super::quantity::thousandths;
use super::{Check, Finding, Judged, Severity, count, items, text};
use crate::name::clip;

/// What a run takes of a quota: its Job with a pod, and the agent pod with the plugin in it. In thousandths.
const RUN: [(&[&str], u128, &str); 9] = [
    (&["pods", "count/pods"], 2_000, "2"),
    (&["requests.cpu", "cpu"], 200, "200m"),
    (&["requests.memory", "memory"], (256 << 20) * 1000, "256Mi"),
    (&["limits.cpu"], 4_000, "4"),
    (&["limits.memory"], (1536 << 20) * 1000, "1536Mi"),
    (&["count/jobs.batch"], 1_000, "1"),
    (&["configmaps", "count/configmaps"], 10_000, "10"),
    (&["secrets", "count/secrets"], 3_000, "3"),
    (&["count/leases.coordination.k8s.io"], 1_000, "1"),
];

/// What containers of a run ask for and are limited to: the smallest request and the largest limit, in thousandths.
const CONTAINERS: [(&str, u128, u128); 2] = [("cpu", 10, 2_000), ("memory", (32 << 20) * 1000, (512 << 20) * 1000)];
/// The largest limit that a container has of its own request.
const RATIO: [(&str, u128); 2] = [("cpu", 100_000), ("memory", 16_000)];

/// What is left of a quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaFacts {
    /// Its name.
    pub name: String,
    /// It concerns some pods only.
    pub scoped: bool,
    /// What may be used, and what is, by resource, as it is written.
    pub amounts: Vec<(String, String, String)>,
}

impl QuotaFacts {
    /// Reads a ResourceQuota.
    pub fn read(quota: &Value) -> Self {
        // What is enforced is in the status; a new quota has none yet.
        let hard = quota.pointer("/status/hard").or_else(|| quota.pointer("/spec/hard")).and_then(Value::as_object);
        let used = quota.pointer("/status/used");
        let amounts = hard.into_iter().flatten().filter_map(|(resource, amount)| {
            let used = used.and_then(|used| used.get(resource)).and_then(Value::as_str).unwrap_or("0");
            Some((clip(resource), clip(amount.as_str()?), clip(used)))
        });
        Self {
            name: clip(text(quota, "/metadata/name").unwrap_or("?")),
            scoped: items(quota, "/spec/scopes").next().is_some() || quota.pointer("/spec/scopeSelector").is_some(),
            amounts: amounts.collect(),
        }
    }
}

/// What a LimitRange asks of containers and pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitFacts {
    /// Its name.
    pub name: String,
    /// What is smaller than allowed, larger, or too far from its request, in words.
    pub refuses: Vec<String>,
}

impl LimitFacts {
    /// Reads a LimitRange.
    pub fn read(range: &Value) -> Self {
        let mut refuses = Vec::new();
        for limit in items(range, "/spec/limits") {
            let Some(kind @ ("Container" | "Pod")) = text(limit, "/type") else { continue };
            let amount = |field: &str, resource: &str| {
                let written = limit.get(field)?.get(resource)?.as_str()?;
                Some((thousandths(written)?, clip(written)))
            };
            for (resource, request, most) in CONTAINERS {
                if let Some((_, written)) = amount("min", resource).filter(|(least, _)| *least > request) {
                    refuses.push(format!("{resource} of a {kind} is at least {written}, and a run asks for less"));
                }
                if let Some((_, written)) = amount("max", resource).filter(|(largest, _)| *largest < most) {
                    refuses.push(format!("{resource} of a {kind} is at most {written}, and a run may use more"));
                }
            }
            for (resource, ratio) in RATIO {
                if let Some((_, written)) = amount("maxLimitRequestRatio", resource).filter(|(most, _)| *most < ratio) {
                    refuses.push(format!(
                        "the limit of {resource} of a {kind} is at most {written} times its request, and that of a run is more"
                    ));
                }
            }
        }
        Self { name: clip(text(range, "/metadata/name").unwrap_or("?")), refuses }
    }
}

/// Judges quotas and limits of the namespace of runs.
pub fn limits(namespace: &str, quotas: &[QuotaFacts], ranges: &[LimitFacts]) -> Judged {
    let namespace = clip(namespace);
    let seen = format!("{}, {} in `{namespace}`", count(quotas.len(), "quota"), count(ranges.len(), "limit range"));
    let mut judged = Judged::new(Check::Limits, seen);
    for quota in quotas {
        let tight: Vec<String> = quota.amounts.iter().filter_map(short).collect();
        if tight.is_empty() {
            continue;
        }
        let severity = if quota.scoped { Severity::Warning } else { Severity::Blocking };
        let some = if quota.scoped { " (for some pods)" } else { "" };
        let finding = Finding::new(
            Check::Limits,
            severity,
            format!("quota `{}` of namespace `{namespace}` leaves no room for a run{some}", quota.name),
            "Kubernetes would refuse the pods of a run, which then waits until its deadline",
            format!("raise it, or remove what uses it up: `kubectl -n {namespace} describe quota {}`", quota.name),
        );
        judged = judged.with(finding.because(tight));
    }
    for range in ranges.iter().filter(|range| !range.refuses.is_empty()) {
        let finding = Finding::new(
            Check::Limits,
            Severity::Blocking,
            format!("limit range `{}` of namespace `{namespace}` refuses pods of a run", range.name),
            "Kubernetes would refuse the pods of a run, which then waits until its deadline",
            format!(
                "widen it: `kubectl -n {namespace} edit limitrange {}`; containers of a run ask for 10m to 50m of cpu and 32Mi to 64Mi of memory, limited to 2 and 512Mi",
                range.name
            ),
        );
        judged = judged.with(finding.because(&range.refuses));
    }
    judged
}

/// What is left of an amount, where that is less than a run needs.
fn short((resource, hard, used): &(String, String, String)) -> Option<String> {
    let (_, needed, words) = RUN.iter().find(|(names, _, _)| names.contains(&resource.as_str()))?;
    let left = thousandths(hard)?.saturating_sub(thousandths(used)?);
    (left < *needed).then(|| format!("{resource}: {used} of {hard} used, a run needs {words}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn quota(hard: &Value, used: &Value) -> QuotaFacts {
        QuotaFacts::read(&json!({"metadata": {"name": "small"}, "status": {"hard": hard, "used": used}}))
    }

    #[test]
    fn a_quota_that_leaves_no_room_blocks_and_names_what_is_short() {
        let full =
            quota(&json!({"pods": "10", "limits.cpu": "100", "services": "1"}), &json!({"pods": "9", "services": "1"}));
        let judged = limits("argo", &[full], &[]);
        assert_eq!(judged.worst(), Some(Severity::Blocking));
        assert_eq!(judged.findings[0].evidence, ["pods: 9 of 10 used, a run needs 2"]);
        let enough =
            quota(&json!({"pods": "10", "requests.memory": "1Gi"}), &json!({"pods": "8", "requests.memory": "512Mi"}));
        assert!(limits("argo", &[enough], &[]).findings.is_empty());
        let memory = quota(&json!({"requests.memory": "1Gi"}), &json!({"requests.memory": "1000Mi"}));
        assert_eq!(limits("argo", &[memory], &[]).worst(), Some(Severity::Blocking));
    }

    #[test]
    fn a_quota_of_some_pods_only_warns_and_a_new_one_is_read_from_its_spec() {
        let scoped = json!({"metadata": {"name": "low"}, "spec": {"scopes": ["BestEffort"], "hard": {"pods": "0"}}});
        assert_eq!(limits("argo", &[QuotaFacts::read(&scoped)], &[]).worst(), Some(Severity::Warning));
        let new = json!({"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}});
        assert_eq!(limits("argo", &[QuotaFacts::read(&new)], &[]).worst(), Some(Severity::Blocking));
    }

    #[test]
    fn limits_that_refuse_a_container_of_a_run_block() {
        let range = |limit: Value| LimitFacts::read(&json!({"metadata": {"name": "r"}, "spec": {"limits": [limit]}}));
        for tight in [
            json!({"type": "Container", "min": {"cpu": "100m"}}),
            json!({"type": "Container", "max": {"memory": "256Mi"}}),
            json!({"type": "Pod", "max": {"cpu": "500m"}}),
            json!({"type": "Container", "maxLimitRequestRatio": {"cpu": "10"}}),
        ] {
            let judged = limits("argo", &[], &[range(tight.clone())]);
            assert_eq!(judged.worst(), Some(Severity::Blocking), "{tight}");
            assert_eq!(judged.findings[0].evidence.len(), 1, "{tight}");
        }
        for wide in [
            json!({"type": "Container", "min": {"cpu": "10m", "memory": "4Mi"}, "max": {"cpu": "4", "memory": "1Gi"}}),
            json!({"type": "PersistentVolumeClaim", "max": {"cpu": "1m", "storage": "1Gi"}}),
            json!({"type": "Container", "default": {"cpu": "1m"}, "defaultRequest": {"cpu": "1m"}}),
        ] {
            assert!(limits("argo", &[], &[range(wide.clone())]).findings.is_empty(), "{wide}");
        }
    }

    #[test]
    fn hostile_quotas_and_limits_are_not_guessed() {
        for hostile in [
            json!(null),
            json!({"status": {"hard": [], "used": 1}}),
            json!({"status": {"hard": {"pods": 3, "limits.cpu": "many", "\u{1b}[2J": "1"}}}),
            json!({"spec": {"limits": {"type": "Container"}}}),
            json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": 1}, "min": "x"}, 7]}}),
        ] {
            let judged = limits("argo", &[QuotaFacts::read(&hostile)], &[LimitFacts::read(&hostile)]);
            assert!(judged.findings.is_empty(), "{hostile}: {judged:?}");
        }
    }
}
