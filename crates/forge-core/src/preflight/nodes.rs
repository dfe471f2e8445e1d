//! Nodes: whether one of them takes a pod of ours. Ours ask for little, choose no node and tolerate nothing.

use serde_json::Value;

use super::quantity::{bytes, processors, thousandths};
use super::{Check, Finding, Judged, Severity, count, items, mark, text};
use crate::name::clip;
use crate::view::shown;

/// What the largest pod of a run asks for, in thousandths of processors and bytes.
const POD: (u128, u128) = (200, (256 << 20) * 1000);
/// What Argo CD, Argo Workflows and a run use together, as measured on a small platform.
const ALL: (u128, u128) = (1_000, (2 << 30) * 1000);
/// What the images are made for.
const ARCHITECTURES: [&str; 2] = ["amd64", "arm64"];

/// What is known of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFacts {
    /// Its name.
    pub name: String,
    /// Nothing if it is ready, else why it is not.
    pub not_ready: Option<String>,
    /// Nobody may schedule on it.
    pub cordoned: bool,
    /// Taints that keep pods away, as `key=value:effect`.
    pub taints: Vec<String>,
    /// Pressure that it reports.
    pub pressure: Vec<String>,
    /// Its processor.
    pub architecture: String,
    /// Its operating system.
    pub system: String,
    /// Thousandths of processors that pods can have.
    pub processors: u128,
    /// Thousandths of bytes that pods can have.
    pub memory: u128,
    /// Pods that fit on it, in thousandths.
    pub pods: u128,
}

impl NodeFacts {
    /// Reads a node.
    pub fn read(node: &Value) -> Self {
        let known = |label: &str, field: &str| {
            let found = mark(node, "labels", label).or_else(|| text(node, field));
            clip(found.unwrap_or("unknown"))
        };
        let amount = |field: &str| text(node, field).and_then(thousandths).unwrap_or(0);
        let condition = |kind: &str| {
            items(node, "/status/conditions").find(|condition| text(condition, "/type") == Some(kind)).map(|found| {
                let words = [text(found, "/reason"), text(found, "/message")].into_iter().flatten();
                (text(found, "/status") == Some("True"), shown(&words.collect::<Vec<_>>().join(": ")))
            })
        };
        let not_ready = match condition("Ready") {
            Some((true, _)) => None,
            Some((false, why)) => Some(why),
            None => Some("it has not reported yet".to_owned()),
        };
        let pressed = |kind: &&str| condition(kind).is_some_and(|(holds, _)| holds);
        let taints = items(node, "/spec/taints")
            .filter(|taint| matches!(text(taint, "/effect"), Some("NoSchedule" | "NoExecute")));
        Self {
            name: clip(text(node, "/metadata/name").unwrap_or("?")),
            not_ready,
            cordoned: node.pointer("/spec/unschedulable").and_then(Value::as_bool).unwrap_or(false),
            taints: taints.map(taint).collect(),
            pressure: ["MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"]
                .into_iter()
                .filter(pressed)
                .map(str::to_owned)
                .collect(),
            architecture: known("kubernetes.io/arch", "/status/nodeInfo/architecture"),
            system: known("kubernetes.io/os", "/status/nodeInfo/operatingSystem"),
            processors: amount("/status/allocatable/cpu"),
            memory: amount("/status/allocatable/memory"),
            pods: amount("/status/allocatable/pods"),
        }
    }

    /// Nothing if it takes a pod of ours, else why it does not.
    fn refuses(&self) -> Option<String> {
        if let Some(why) = &self.not_ready {
            return Some(format!("not ready: {why}"));
        }
        if self.cordoned {
            return Some("cordoned".to_owned());
        }
        if !self.taints.is_empty() {
            return Some(format!("taint {}", self.taints.join(", ")));
        }
        if self.system != "linux" {
            return Some(format!("runs {}", self.system));
        }
        if !ARCHITECTURES.contains(&self.architecture.as_str()) {
            return Some(format!(
                "is {}, and the image is made for {}",
                self.architecture,
                ARCHITECTURES.join(" and ")
            ));
        }
        if self.processors < POD.0 || self.memory < POD.1 || self.pods < 1_000 {
            let (cpu, memory, pods) = (processors(self.processors), bytes(self.memory), self.pods / 1000);
            return Some(format!("too small: {cpu} processors, {memory} of memory, {pods} pods"));
        }
        None
    }
}

fn taint(taint: &Value) -> String {
    let value = text(taint, "/value").map(|value| format!("={value}")).unwrap_or_default();
    clip(&format!("{}{value}:{}", text(taint, "/key").unwrap_or_default(), text(taint, "/effect").unwrap_or_default()))
}

/// Judges all nodes of a cluster.
pub fn nodes(nodes: &[NodeFacts]) -> Judged {
    let refusals: Vec<(&NodeFacts, Option<String>)> = nodes.iter().map(|node| (node, node.refuses())).collect();
    let usable: Vec<&NodeFacts> =
        refusals.iter().filter(|(_, refuses)| refuses.is_none()).map(|(node, _)| *node).collect();
    let seen = format!("{} of {} can take a pod", usable.len(), count(nodes.len(), "node"));
    let mut judged = Judged::new(Check::Nodes, seen);
    let finding =
        |severity, what: String, means: &str, fix: &str| Finding::new(Check::Nodes, severity, what, means, fix);
    if usable.is_empty() {
        let what = if nodes.is_empty() { "the cluster has no nodes".to_owned() } else { judged.seen.clone() };
        let fix = "give the cluster a Linux node (amd64 or arm64) without a NoSchedule taint: `kubectl uncordon NODE`, `kubectl taint nodes NODE KEY-`, or add one; `kubectl describe node NODE` says why one is not ready";
        let evidence =
            refusals.iter().map(|(node, refuses)| format!("{}: {}", node.name, refuses.as_deref().unwrap_or_default()));
        let means = "pods would wait for ever: neither Argo nor a run could start";
        return judged.with(finding(Severity::Blocking, what, means, fix).because(evidence));
    }
    let down: Vec<&NodeFacts> = nodes.iter().filter(|node| node.not_ready.is_some()).collect();
    if !down.is_empty() {
        let what = if down.len() == 1 {
            "1 node is not ready".to_owned()
        } else {
            format!("{} nodes are not ready", down.len())
        };
        let evidence =
            down.iter().map(|node| format!("{}: {}", node.name, node.not_ready.as_deref().unwrap_or_default()));
        let means = "pods on it are not well, and what runs there only is not either";
        let fix = "`kubectl describe node NODE` says why; repair or remove it";
        judged = judged.with(finding(Severity::Warning, what, means, fix).because(evidence));
    }
    let pressed: Vec<String> = usable
        .iter()
        .filter(|node| !node.pressure.is_empty())
        .map(|node| format!("{}: {}", node.name, node.pressure.join(", ")))
        .collect();
    if !pressed.is_empty() {
        let what = format!("{} under pressure", count(pressed.len(), "node"));
        let means = "pods are evicted from it, and new ones may not start";
        let fix = "free memory or disk on it, or add a node; `kubectl describe node NODE` shows what is used";
        judged = judged.with(finding(Severity::Warning, what, means, fix).because(pressed));
    }
    let (cpu, memory) = usable.iter().fold((0_u128, 0_u128), |(cpu, memory), node| {
        (cpu.saturating_add(node.processors), memory.saturating_add(node.memory))
    });
    if cpu < ALL.0 || memory < ALL.1 {
        let what = format!(
            "nodes that can take pods have {} processors and {} of memory in all",
            processors(cpu),
            bytes(memory)
        );
        let means = format!("Argo and a run use about {} processor and {} together", processors(ALL.0), bytes(ALL.1));
        let fix = "add a node, or give the ones that are there more";
        judged = judged.with(finding(Severity::Warning, what, &means, fix));
    }
    judged
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(name: &str) -> Value {
        json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}},
            "spec": {},
            "status": {
                "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "False"}],
            },
        })
    }

    fn judge(objects: &[Value]) -> Judged {
        nodes(&objects.iter().map(NodeFacts::read).collect::<Vec<_>>())
    }

    fn changed(pointer: &str, value: Value) -> Value {
        let mut node = node("one");
        *node.pointer_mut(pointer).unwrap() = value;
        node
    }

    #[test]
    fn a_cluster_with_one_good_node_is_well_whatever_keeps_pods_from_others() {
        assert!(judge(&[node("one")]).findings.is_empty());
        let control = changed(
            "/spec",
            json!({"taints": [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]}),
        );
        let cordoned = changed("/spec", json!({"unschedulable": true}));
        let judged = judge(&[control, node("two"), cordoned]);
        assert_eq!((judged.findings.len(), judged.seen.as_str()), (0, "1 of 3 nodes can take a pod"));
        let soft = changed("/spec", json!({"taints": [{"key": "x", "effect": "PreferNoSchedule"}]}));
        assert!(judge(&[soft]).findings.is_empty());
    }

    #[test]
    fn no_node_that_takes_a_pod_blocks_and_says_of_each_why() {
        let taints = json!({"taints": [{"key": "dedicated", "value": "gpu", "effect": "NoExecute"}]});
        let not_ready = json!([{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}]);
        let arch = json!({"kubernetes.io/arch": "s390x", "kubernetes.io/os": "linux"});
        let windows = json!({"kubernetes.io/arch": "amd64", "kubernetes.io/os": "windows"});
        for (bad, words) in [
            (changed("/spec", json!({"unschedulable": true})), "one: cordoned"),
            (changed("/spec", taints), "one: taint dedicated=gpu:NoExecute"),
            (changed("/status/conditions", not_ready), "one: not ready: NodeStatusUnknown: Kubelet stopped"),
            (changed("/status/conditions", json!([])), "one: not ready: it has not reported yet"),
            (changed("/metadata/labels", arch), "one: is s390x"),
            (changed("/metadata/labels", windows), "one: runs windows"),
            (changed("/status/allocatable/memory", json!("64Mi")), "one: too small: 4 processors, 64Mi"),
            (changed("/status/allocatable/pods", json!("0")), "one: too small"),
        ] {
            let judged = judge(&[bad]);
            assert_eq!(judged.worst(), Some(Severity::Blocking), "{words}");
            assert!(judged.findings[0].evidence[0].starts_with(words), "{:?}", judged.findings[0].evidence);
        }
        let none = judge(&[]);
        assert_eq!(
            (none.worst(), none.findings[0].what.as_str()),
            (Some(Severity::Blocking), "the cluster has no nodes")
        );
    }

    #[test]
    fn a_node_that_is_down_or_under_pressure_beside_a_good_one_is_a_warning() {
        let down =
            changed("/status/conditions", json!([{"type": "Ready", "status": "False", "reason": "KubeletNotReady"}]));
        let judged = judge(&[node("good"), down]);
        assert_eq!(
            (judged.worst(), judged.findings[0].what.as_str()),
            (Some(Severity::Warning), "1 node is not ready")
        );
        let pressed = changed(
            "/status/conditions",
            json!([{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "True"}]),
        );
        let judged = judge(&[pressed]);
        assert_eq!(judged.findings[0].evidence, ["one: DiskPressure"]);
        let small = changed("/status/allocatable/cpu", json!("500m"));
        assert_eq!(judge(&[small]).worst(), Some(Severity::Warning));
    }

    #[test]
    fn hostile_nodes_are_read_as_unusable_ones_and_shown_clean() {
        let long = "n".repeat(10_000);
        for hostile in [
            json!(null),
            json!([[]]),
            json!({"metadata": {"name": 7}, "spec": {"taints": "all"}, "status": {"conditions": {"Ready": true}}}),
            json!({"metadata": {"name": format!("\u{1b}[2J{long}")}, "status": {"allocatable": {"cpu": [], "memory": "1e999"}}}),
            changed("/status/allocatable/cpu", json!("99999999999999999999999999999999999999999")),
        ] {
            let judged = judge(std::slice::from_ref(&hostile));
            assert_eq!(judged.worst(), Some(Severity::Blocking));
            let text = judged.findings[0].text();
            assert!(text.len() < 2_000 && !text.contains('\u{1b}'), "{text}");
        }
        let many: Vec<Value> = (0..5_000).map(|_| changed("/spec", json!({"unschedulable": true}))).collect();
        assert_eq!(judge(&many).findings[0].evidence.len(), 21);
    }
}
