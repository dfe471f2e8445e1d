//! The controllers' own health: Argo CD, Argo Workflows and Argo Events have the pods that they want, and their kinds are
//! served, which an API server does only for definitions that are established.

use std::collections::BTreeSet;

use serde_json::Value;

use super::cause::Cause;
use crate::preflight::{Component, Looked, WorkloadFacts, needed};

/// Without these nothing is compared, rendered, asked for or run: scaled to zero they are down.
const ESSENTIAL: [&str; 6] =
    ["application-controller", "repo-server", "redis", "argocd-server", "workflow-controller", "controller-manager"];

/// What every installation of a part has, by how the names of workloads end: one that is not there is down, and nobody would
/// miss its pods. Redis may be elsewhere, and Argo CD lives without a server of its own.
const fn always(component: Component) -> &'static [&'static str] {
    match component {
        Component::Cd => &["application-controller", "repo-server"],
        Component::Workflows => &["workflow-controller"],
        Component::Events => &["controller-manager"],
    }
}

/// What was read of one part of Argo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerFacts {
    /// The part.
    pub component: Component,
    /// Where it should be.
    pub namespace: String,
    /// Deployments and StatefulSets, those of others included.
    pub workloads: Looked<Vec<Value>>,
    /// The kinds of Argo that are served, by their plurals.
    pub served: Looked<BTreeSet<String>>,
}

pub(super) fn judged(facts: &ControllerFacts) -> Vec<Cause> {
    let mut causes = Vec::new();
    let title = facts.component.title();
    match &facts.workloads {
        Looked::NotPermitted(why) | Looked::Failed(why) => {
            causes.push(Cause::NotRead { what: format!("whether {title} runs"), why: why.clone() });
        }
        Looked::Saw(workloads) => causes.extend(pods(facts, workloads)),
    }
    match &facts.served {
        Looked::NotPermitted(why) | Looked::Failed(why) => {
            causes.push(Cause::NotRead { what: format!("which kinds of {title} are served"), why: why.clone() });
        }
        Looked::Saw(served) => {
            let missing = needed(facts.component).iter().filter(|plural| !served.contains(**plural));
            let kinds: Vec<String> = missing.map(|plural| format!("{plural}.argoproj.io")).collect();
            if !kinds.is_empty() {
                causes.push(Cause::NotServed { kinds });
            }
        }
    }
    causes
}

fn pods(facts: &ControllerFacts, workloads: &[Value]) -> Vec<Cause> {
    let mine = workloads.iter().filter_map(WorkloadFacts::read);
    let mine: Vec<WorkloadFacts> = mine.filter(|workload| workload.component == facts.component).collect();
    if mine.is_empty() {
        let what = format!("no workload of {} in namespace `{}`", facts.component.title(), facts.namespace);
        return vec![Cause::Controller { what, down: true }];
    }
    let unwell = |workload: &WorkloadFacts| {
        let (wanted, ready) = workload.pods;
        let name = format!("{}/{}", workload.namespace, workload.name);
        if wanted == 0 {
            let essential = ESSENTIAL.iter().any(|end| workload.name.ends_with(end));
            return essential.then(|| Cause::Controller { what: format!("{name} is scaled to zero"), down: true });
        }
        let what = format!("{name}: {ready} of {wanted} pods are ready");
        (ready < wanted).then_some(Cause::Controller { what, down: ready == 0 })
    };
    let absent = |end: &&&str| !mine.iter().any(|workload| workload.name.ends_with(**end));
    let missing = always(facts.component).iter().filter(absent).map(|end| {
        let what = format!("no workload `{end}` of {} in namespace `{}`", facts.component.title(), facts.namespace);
        Cause::Controller { what, down: true }
    });
    missing.chain(mine.iter().filter_map(unwell)).collect()
}
