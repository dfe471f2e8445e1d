//! Looks at a run from outside: what a watch of `kubectl` says, with the moment at which it was heard.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use jiff::Timestamp;

use super::times::{Predecessors, Timed, Times};
use super::{Measured, WORKFLOWS};
use crate::platform::mark;
use crate::sandbox::Sandbox;
use crate::twin::{ARGOCD, LABEL};

/// Name, health, phase of the operation and the operation that is asked for, one line each time that an Application
/// changes. What is asked for comes last, as it is JSON.
const APPLICATION: &str =
    r#"jsonpath={.metadata.name}|{.status.health.status}|{.status.operationState.phase}|{.operation}{"\n"}"#;

/// A line, and when it was heard.
pub type Heard = (Timestamp, String);

/// A watch that runs.
#[derive(Debug)]
pub struct Watch {
    child: Child,
    reader: Option<JoinHandle<()>>,
    heard: Arc<Mutex<Vec<Heard>>>,
}

impl Watch {
    /// Watches the Applications of an environment.
    ///
    /// # Errors
    /// When kubectl cannot be started.
    pub fn applications(sandbox: &Sandbox, environment: &str) -> Measured<Self> {
        let label = format!("{LABEL}={environment}");
        Self::start(sandbox, &["get", "applications", "-n", ARGOCD, "-l", &label, "--watch", "-o", APPLICATION])
    }

    /// Watches the pods that Argo Workflows makes.
    ///
    /// # Errors
    /// When kubectl cannot be started.
    pub fn workflow_pods(sandbox: &Sandbox) -> Measured<Self> {
        let label = "workflows.argoproj.io/workflow";
        Self::start(sandbox, &["get", "pods", "-n", WORKFLOWS, "-l", label, "--watch", "-o", "name"])
    }

    fn start(sandbox: &Sandbox, args: &[&str]) -> Measured<Self> {
        let mut child = Command::new(&sandbox.kubectl)
            .args(args)
            .env("KUBECONFIG", &sandbox.kubeconfig)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let out = child.stdout.take().ok_or("kubectl has no stdout")?;
        let heard = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&heard);
        let reader = thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                into.lock().unwrap_or_else(PoisonError::into_inner).push((mark(), line));
            }
        });
        Ok(Self { child, reader: Some(reader), heard })
    }

    /// What was said so far.
    pub fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends it, and gives all that was said.
    pub fn stop(mut self) -> Vec<Heard> {
        self.end();
        self.heard()
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end();
    }
}

/// When each Application was first seen to be asked for a sync, and first seen Healthy after that.
pub fn times(heard: &[Heard], predecessors: &Predecessors) -> Timed {
    let mut asked: BTreeMap<&str, Timestamp> = BTreeMap::new();
    let mut timed = Timed { predecessors: predecessors.clone(), nodes: BTreeMap::new() };
    for (at, line) in heard {
        let mut fields = line.splitn(4, '|');
        let (Some(name), Some(health), Some(phase), Some(operation)) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        if !predecessors.contains_key(name) {
            continue;
        }
        if !operation.is_empty() || !phase.is_empty() {
            asked.entry(name).or_insert(*at);
        }
        if let (Some(asked), "Healthy") = (asked.get(name), health) {
            timed.nodes.entry(name.to_owned()).or_insert(Times { asked: *asked, healthy: *at });
        }
    }
    timed
}

/// The last phase that was heard of an Application's operation.
pub fn last_phase<'h>(heard: &'h [Heard], application: &str) -> Option<&'h str> {
    let mut of = heard.iter().rev().filter(|(_, line)| line.split('|').next() == Some(application));
    of.next().and_then(|(_, line)| line.split('|').nth(2))
}

/// How many pods whose names begin so were heard of.
pub fn pods(heard: &[Heard], start: &str) -> usize {
    let start = format!("pod/{start}");
    heard.iter().map(|(_, line)| line.trim()).filter(|name| name.starts_with(&start)).collect::<BTreeSet<_>>().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_counts_from_the_request_and_only_the_first_of_each() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let heard: Vec<Heard> = [
            (1, "e-a|Healthy||"),
            (2, "e-a|Missing||map[sync:{}]"),
            (3, "e-a|Progressing|Running|"),
            (4, "e-other|Healthy|Succeeded|"),
            (5, "e-a|Healthy|Succeeded|"),
            (6, "e-a|Healthy|Succeeded|"),
        ]
        .map(|(second, line)| (at(second), line.to_owned()))
        .into();
        let timed = times(&heard, &Predecessors::from([("e-a".to_owned(), BTreeSet::new())]));
        assert_eq!(timed.nodes, BTreeMap::from([("e-a".to_owned(), Times { asked: at(2), healthy: at(5) })]));
        assert_eq!(last_phase(&heard, "e-a"), Some("Succeeded"));
    }

    #[test]
    fn a_pod_counts_once_however_often_it_changes() {
        let heard: Vec<Heard> = ["pod/forge-r-1-agent", "pod/forge-r-1-agent", "pod/forge-r-2-agent", "pod/other"]
            .map(|name| (Timestamp::UNIX_EPOCH, name.to_owned()))
            .into();
        assert_eq!(pods(&heard, "forge-r-1"), 1);
    }
}
