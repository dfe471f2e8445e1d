//! A run that removes its nodes: what is done before the first goes, what is looked for when one is gone, and what comes after
//! the last (SPEC.md section 4, phase 4). Nodes themselves are removed by plugin or pods.

use std::cell::RefCell;
use std::time::Duration;

use forge_core::code::Code;
use forge_core::failure::Failure;
use forge_core::gate::{Decision, WaitingFor};
use forge_core::name::NodeId;
use forge_core::run::{CLEARANCE_KEY, RunNode, Verdict, record_name};
use forge_core::teardown::{Clearance, RemovalRecord, Waiting};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tokio::time::Instant;

use super::{Conductor, patiently};
use crate::recorder::write_piece;
use crate::teardown::{Clearing, Teardown};

/// How often what is stopped is looked at while nodes go.
const MEANWHILE: Duration = Duration::from_secs(5);
/// How long an operation that is in the way of a deletion may go on before it is asked to end.
const OPERATION: SignedDuration = SignedDuration::from_secs(10);

/// What looking for members came to; nothing is ever heard where nobody looks.
pub(super) async fn cleared(clearing: Option<&mut Clearing>) -> (NodeId, Clearance) {
    match clearing {
        Some(clearing) => clearing.next().await,
        None => std::future::pending().await,
    }
}

impl Conductor<'_> {
    /// Before the first node goes: what would make it again is stopped, and volumes are secured.
    pub(super) async fn before_removal(&mut self) -> Result<(), Failure> {
        let Some(teardown) = self.teardown else { return Ok(()) };
        let record = RefCell::new(self.removal_record());
        let plan = self.plan.clone();
        let prepared = in_time(teardown, patiently(|| teardown.before(&plan, &record))).await;
        // What was done until then is written down, whatever came of the rest.
        self.header.removal = Some(record.into_inner());
        self.save().await?;
        prepared
    }

    fn removal_record(&self) -> RemovalRecord {
        let policy = self.teardown.map(Teardown::policy).unwrap_or_default();
        self.header.removal.clone().unwrap_or_else(|| RemovalRecord::new(policy))
    }

    /// Begins to look for what nodes had made that Argo CD has let go of.
    pub(super) fn look_for_members(&mut self) {
        let standing = self.standing();
        let Some(clearing) = &mut self.clearing else { return };
        for node in self.plan.nodes() {
            let entry = standing.record.entries.get(&node.id);
            if entry.is_some_and(|entry| awaits_clearance(&entry.decision)) {
                clearing.begin(node);
            }
        }
    }

    /// Writes down what was found, where runners read it.
    pub(super) async fn keep_clearance(&mut self, node: NodeId, clearance: Clearance) -> Result<(), Failure> {
        self.clearances.insert(node, clearance);
        let data = json!({CLEARANCE_KEY: serde_json::to_string(&self.clearances).unwrap_or_default()});
        let name = record_name(&self.plan.run, 0);
        let namespace = &self.place.places.workflows;
        let write = || async {
            write_piece(&self.place.cluster, namespace, &self.plan, &name, &data).await.map_err(Failure::from)
        };
        patiently(write).await
    }

    /// What nobody tells of while nodes go: something that was stopped and came back, something that was given up by name, an
    /// operation of Argo CD that is in the way.
    pub(super) async fn meanwhile(&mut self) -> Result<(), Failure> {
        let Some(teardown) = self.teardown.filter(|_| self.meanwhile.elapsed() >= MEANWHILE) else { return Ok(()) };
        self.meanwhile = Instant::now();
        for node in self.busy() {
            // Refused where it has ended meanwhile.
            let _ = self.argocd.terminate(&node.application).await;
        }
        let record = RefCell::new(self.removal_record());
        let plan = self.plan.clone();
        let done = in_time(teardown, patiently(|| teardown.meanwhile(&plan, &record))).await;
        let after = Some(record.into_inner());
        if self.header.removal != after {
            self.header.removal = after;
            self.save().await?;
        }
        done
    }

    /// Nodes whose deletion an operation of Argo CD has kept waiting for a while.
    fn busy(&self) -> Vec<RunNode> {
        let standing = self.standing();
        let waits = |node: &&RunNode| {
            let Some(entry) = standing.record.entries.get(&node.id) else { return false };
            let Decision::Wait(wait) = &entry.decision else { return false };
            let long = Timestamp::now().duration_since(entry.since) >= OPERATION;
            long && wait.on == (WaitingFor::Removal { on: Waiting::Operation })
        };
        self.plan.nodes().filter(waits).cloned().collect()
    }

    /// After the last node is gone: what the environment shared. What should be gone and is not changes how the run ended.
    pub(super) async fn after_removal(
        &mut self,
        (verdict, message): (Verdict, Option<String>),
    ) -> Result<(Verdict, Option<String>), Failure> {
        let Some(teardown) = self.teardown.filter(|_| verdict == Verdict::Done) else { return Ok((verdict, message)) };
        let record = RefCell::new(self.removal_record());
        let (plan, standing) = (self.plan.clone(), self.standing());
        let done = in_time(teardown, patiently(|| teardown.after(&plan, &standing.record, &record))).await;
        let removal = record.into_inner();
        let orphans = !removal.orphans.is_empty();
        self.header.removal = Some(removal);
        self.save().await?;
        done?;
        Ok((if orphans { Verdict::Orphans } else { verdict }, message))
    }
}

/// Does it while there is time: a cluster that does not answer is not asked for longer than the whole teardown may take.
async fn in_time<T>(teardown: &Teardown<'_>, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::time::timeout(teardown.left(), work).await.unwrap_or_else(|_| {
        let message = "the teardown took too long around its nodes, and was given up";
        Err(Failure::new(Code::RemovalStuck, message).hint("tear down again: what is gone stays gone"))
    })
}

fn awaits_clearance(decision: &Decision) -> bool {
    let Decision::Wait(wait) = decision else { return false };
    matches!(&wait.on, WaitingFor::Removal { on: Waiting::Clearance | Waiting::Members { .. } })
}
