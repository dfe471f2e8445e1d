//! `--watch`: looks again when something changes, and every now and then, because what grows old changes nothing; tells what
//! is different.

use std::collections::BTreeSet;
use std::time::Duration;

use forge_core::duration;
use forge_core::failure::Failure;
use forge_core::truth::{Judged, changes};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Looker;
use crate::cluster::path;
use crate::interrupt::Interrupts;

/// Changes come in bursts: what comes within this is looked at together.
const TOGETHER: Duration = Duration::from_secs(1);
/// At least so often everything is looked at: pods and comparisons that grow old are not watched.
const AGAIN: Duration = Duration::from_secs(15);

/// Follows an environment until it is told to stop or the time is over; gives what was true last. `tell` hears of every change,
/// a line each.
///
/// # Errors
/// When the first look fails; later ones are told of, and tried again. When the last one failed: what was true before it may
/// not be true any more.
pub(crate) async fn follow(
    looker: &Looker<'_>,
    limit: Option<duration::Duration>,
    interrupts: &mut Interrupts,
    mut tell: impl FnMut(&str, &Judged),
) -> Result<Option<Judged>, Failure> {
    let deadline = limit.map(|limit| Instant::now() + Duration::from_secs(limit.seconds()));
    let mut changed = looker.watched();
    let mut last: Option<Judged> = None;
    let mut trouble: Option<Failure> = None;
    loop {
        let looked = tokio::select! {
            looked = looker.look() => looked,
            () = interrupts.heard() => return ended(last, trouble),
            () = until(deadline) => return ended(last, trouble),
        };
        match looked {
            Ok(judged) => {
                for line in changes(last.as_ref().map(|last| &last.report), &judged.report) {
                    tell(&line, &judged);
                }
                trouble = None;
                last = Some(judged);
            }
            Err(failure) => {
                let Some(last) = &last else { return Err(failure) };
                if trouble.as_ref().is_none_or(|before| before.message != failure.message) {
                    tell(&format!("not looked at: {}", failure.message), last);
                }
                trouble = Some(failure);
            }
        }
        tokio::select! {
            () = some(&mut changed) => {}
            () = tokio::time::sleep(AGAIN) => {}
            () = interrupts.heard() => return ended(last, trouble),
            () = until(deadline) => return ended(last, trouble),
        }
    }
}

/// What was true last, unless the last look failed.
fn ended(last: Option<Judged>, trouble: Option<Failure>) -> Result<Option<Judged>, Failure> {
    trouble.map_or(Ok(last), Err)
}

/// Something changed, and then nothing for a moment.
async fn some(changed: &mut mpsc::Receiver<()>) {
    if changed.recv().await.is_none() {
        // Nobody watches: the clock does.
        std::future::pending::<()>().await;
    }
    tokio::time::sleep(TOGETHER).await;
    while changed.try_recv().is_ok() {}
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

impl Looker<'_> {
    /// Hears of changes of Applications, of the AppProject, and of the controllers' workloads.
    fn watched(&self) -> mpsc::Receiver<()> {
        let (argocd, workflows) = (self.namespace(), self.question.workflows);
        let nodes = self.question.plan.nodes.iter();
        let mut collections: BTreeSet<String> =
            nodes.map(|node| path::argo(&node.application.namespace, "applications")).collect();
        collections.insert(path::argo(argocd, "applications"));
        collections.insert(path::argo(argocd, "appprojects"));
        for namespace in [argocd, workflows] {
            collections.insert(path::named("apps", "v1", namespace, "deployments"));
            collections.insert(path::named("apps", "v1", namespace, "statefulsets"));
        }
        let (sender, receiver) = mpsc::channel(1);
        for collection in collections {
            let mut watch = self.cluster.watch(&collection, "");
            let sender = sender.clone();
            tokio::spawn(async move {
                let mut store = std::collections::BTreeMap::new();
                loop {
                    // What may not be watched is looked at by the clock.
                    let changed = tokio::select! {
                        changed = watch.keep(&mut store) => changed,
                        () = sender.closed() => return,
                    };
                    if changed {
                        // One that waits to be heard stands for all.
                        let _ = sender.try_send(());
                    }
                }
            });
        }
        receiver
    }
}
