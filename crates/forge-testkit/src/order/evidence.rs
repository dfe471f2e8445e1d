//! From the audit log and the pods' conditions to facts.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;

use super::{Facts, Moment, NodeFacts, Workload};

/// Who writes what an Application says, and who is asked to.
const CONTROLLER: &str = "argocd-application-controller";
const SERVER: &str = "argocd-server";
/// Objects that are ready when their pods are.
const PODS: [&str; 3] = ["deployments", "statefulsets", "daemonsets"];

/// A request in the audit log that was to change something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: String,
    /// Who asked.
    pub user: String,
    /// The plural.
    pub resource: String,
    /// Its namespace, if it has one.
    pub namespace: String,
    /// Its name; empty if the server was to find one.
    pub name: String,
    /// `status`, or nothing.
    pub subresource: String,
    /// The status that it was answered with.
    pub code: u64,
    /// From the arrival of the request to its answer.
    pub at: Moment,
}

impl Line {
    /// Reads a line; `None` if it is no request that was answered and meant.
    pub fn parse(line: &str) -> Option<Self> {
        let event: Value = serde_json::from_str(line).ok()?;
        let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let code = event.pointer("/responseStatus/code").and_then(Value::as_u64)?;
        let tried = text("/requestURI").contains("dryRun=");
        if text("/stage") != "ResponseComplete" || tried {
            return None;
        }
        let at = |pointer: &str| text(pointer).parse::<Timestamp>().ok();
        Some(Self {
            verb: text("/verb"),
            user: text("/user/username"),
            resource: text("/objectRef/resource"),
            namespace: text("/objectRef/namespace"),
            name: text("/objectRef/name"),
            subresource: text("/objectRef/subresource"),
            code,
            at: Moment::between(at("/requestReceivedTimestamp")?, at("/stageTimestamp")?),
        })
    }

    /// Whether it did change something.
    pub fn succeeded(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// Argo CD's server updates an Application to start or to end an operation, and patches it for everything else.
    fn is_request(&self) -> bool {
        self.resource == "applications" && self.verb == "update" && self.is_by(SERVER)
    }

    fn is_by(&self, account: &str) -> bool {
        self.user.rsplit(':').next() == Some(account)
    }

    /// The node whose namespace this is in, or is.
    fn place(&self) -> &str {
        if self.resource == "namespaces" && self.namespace.is_empty() { &self.name } else { &self.namespace }
    }
}

/// How often Argo CD's server was asked to start or to end an operation of each Application, and did so, by its name. Unlike
/// the history of an Application this has what failed too, and tells two of the same second apart.
pub fn requests(lines: &[Line]) -> BTreeMap<String, usize> {
    let mut requests: BTreeMap<String, usize> = BTreeMap::new();
    for line in lines.iter().filter(|line| line.is_request() && line.succeeded()) {
        *requests.entry(line.name.clone()).or_default() += 1;
    }
    requests
}

/// A workload became ready, in the second that a condition names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Transition {
    /// Where.
    pub namespace: String,
    /// `deployments/name`: what the pod belongs to, or the custom resource itself.
    pub workload: String,
    /// The object that has the condition: `pods/name`.
    pub object: String,
    /// When.
    pub second: Timestamp,
}

/// Transitions to readiness that objects show: pods by their condition `Ready`, Jobs by their completion, other objects by
/// a condition `Ready` of their own. An object that was seen many times may be given many times.
pub fn transitions<'o>(objects: impl IntoIterator<Item = &'o Value>) -> BTreeSet<Transition> {
    objects.into_iter().filter_map(transition).collect()
}

fn transition(object: &Value) -> Option<Transition> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let (kind, name) = (text("/kind")?, text("/metadata/name")?);
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array)?;
    let wanted = if kind == "Job" { "Complete" } else { "Ready" };
    let holds = |condition: &&Value| condition["type"] == wanted && condition["status"] == "True";
    let second = conditions.iter().find(holds)?.pointer("/lastTransitionTime")?.as_str()?.parse().ok()?;
    let namespace = text("/metadata/namespace").unwrap_or_default().to_owned();
    if kind != "Pod" {
        let own = format!("{}/{name}", plural(kind));
        return Some(Transition { namespace, workload: own.clone(), object: own, second });
    }
    let owner = object.pointer("/metadata/ownerReferences/0")?;
    let (of, owner) = (owner.get("kind")?.as_str()?, owner.get("name")?.as_str()?);
    let workload = match of {
        // A ReplicaSet is named after its Deployment and a hash.
        "ReplicaSet" => format!("deployments/{}", owner.rsplit_once('-')?.0),
        "StatefulSet" => format!("statefulsets/{owner}"),
        "DaemonSet" => format!("daemonsets/{owner}"),
        // A pod of a Job is not what makes the Job complete.
        _ => return None,
    };
    Some(Transition { namespace, workload, object: format!("pods/{name}"), second })
}

/// What an API calls several of a kind, as far as the kinds of the example go.
fn plural(kind: &str) -> String {
    let kind = kind.to_lowercase();
    let ending = if kind.ends_with('s') { "es" } else { "s" };
    kind + ending
}

/// Puts the facts of a window together. A node is an Application whose namespace has the same name, as in the twin.
/// `conditioned` are the plurals of further kinds that are ready when a condition of their own says so, such as custom
/// resources whose operator runs.
pub fn facts(
    predecessors: &BTreeMap<String, BTreeSet<String>>,
    lines: &[Line],
    transitions: &BTreeSet<Transition>,
    conditioned: &[&str],
    fresh: bool,
) -> Facts {
    let mut facts = Facts { predecessors: predecessors.clone(), nodes: BTreeMap::new(), fresh };
    let names = predecessors.iter().flat_map(|(node, before)| before.iter().chain([node]));
    for node in names.collect::<BTreeSet<_>>() {
        facts.nodes.insert(node.clone(), of_node(node, lines, transitions, conditioned));
    }
    facts
}

fn of_node(node: &str, lines: &[Line], transitions: &BTreeSet<Transition>, conditioned: &[&str]) -> NodeFacts {
    let writes = |line: &&Line| line.is_by(CONTROLLER) && line.place() == node && line.subresource.is_empty();
    let mut writes: Vec<&Line> = lines.iter().filter(writes).filter(|line| !line.verb.starts_with("delete")).collect();
    writes.sort_by_key(|line| line.at.earliest);
    // The first request is the start, whatever came of it. The controller updates an Application to start an automated
    // operation, and for more: its last update before the first write is the one that led to it, or a later one.
    let of = |line: &&Line| line.resource == "applications" && line.name == node && line.verb == "update";
    let updates = || lines.iter().filter(of);
    let asked = updates().filter(|line| line.is_request()).min_by_key(|line| line.at.earliest);
    let automated = writes.first().and_then(|first| {
        let before = updates().filter(|line| line.is_by(CONTROLLER) && line.at.earliest <= first.at.latest);
        before.max_by_key(|line| line.at.earliest).or(Some(*first))
    });
    let first = writes.first().map(|first| first.at.earliest);
    let asked = asked.filter(|asked| first.is_none_or(|first| asked.at.earliest <= first));
    let started = asked.or(automated).map(|line| line.at);
    let mut workloads: Vec<Workload> = Vec::new();
    for line in &writes {
        let name = format!("{}/{}", line.resource, line.name);
        if workloads.iter().all(|known| known.name != name) {
            let ready = ready(node, line, &name, lines, transitions, conditioned);
            workloads.push(Workload { name, written: line.at, ready });
        }
    }
    NodeFacts { started, workloads }
}

/// When a workload became ready after it was written; `None` for what has no readiness, or made no new pod.
fn ready(
    node: &str,
    write: &Line,
    name: &str,
    lines: &[Line],
    transitions: &BTreeSet<Transition>,
    conditioned: &[&str],
) -> Option<Vec<Moment>> {
    let resource = write.resource.as_str();
    if !PODS.contains(&resource) && resource != "jobs" && !conditioned.contains(&resource) {
        return None;
    }
    let moments: Vec<Moment> = transitions
        .iter()
        .filter(|transition| transition.namespace == node && transition.workload == name)
        .map(|transition| moment(transition, lines))
        .filter(|at| !at.is_certainly_before(&write.at))
        .collect();
    // A change that rolled nothing out leaves the pods that were ready already.
    if write.verb != "create" && moments.is_empty() { None } else { Some(moments) }
}

/// The second of a transition, and in that second not before the first request that could have carried it. A request of
/// a later second sharpens nothing: the one that carried it might be missing.
fn moment(transition: &Transition, lines: &[Line]) -> Moment {
    let within = Moment::within_second(transition.second);
    let carries = |line: &&Line| {
        line.subresource == "status"
            && line.namespace == transition.namespace
            && format!("{}/{}", line.resource, line.name) == transition.object
            && line.at.latest >= within.earliest
    };
    let carrier = lines.iter().filter(carries).map(|line| line.at.earliest).min();
    let carrier = carrier.filter(|carrier| *carrier <= within.latest);
    Moment { earliest: carrier.map_or(within.earliest, |carrier| carrier.max(within.earliest)), ..within }
}
