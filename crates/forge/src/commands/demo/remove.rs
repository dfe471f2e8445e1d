//! Takes away what a demo made: Applications in reverse order (INV-6), their namespaces, the AppProject; by name, and only
//! what carries our labels (INV-11). Forge's own objects and the records of runs stay: other environments share them.

use std::time::Duration;

use forge_core::code::Code;
use forge_core::exit::Exit;
use forge_core::failure::Failure;
use forge_core::scaffold::demo::{ENVIRONMENT, is_ours, names};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::time::Instant;

use crate::cluster::{Cluster, ClusterArguments, path};
use crate::output::{Output, Paint};

/// How long an object may take to go.
const PATIENCE: Duration = Duration::from_secs(180);

pub(super) async fn remove(
    arguments: &ClusterArguments,
    argocd: &str,
    output: &mut Output<'_>,
) -> Result<Exit, Failure> {
    let cluster = Cluster::connect(arguments).await?;
    is_idle(&cluster, &arguments.workflows_namespace).await?;
    let applications = path::argo(argocd, "applications");
    let mut removed = 0;
    // What depends on others goes first, and is gone before the next one goes.
    for name in names().iter().rev() {
        let place = path::object(&applications, name);
        if delete(&cluster, "Application", name, &place, output).await? {
            gone(&cluster, "Application", name, &place).await?;
            removed += 1;
        }
    }
    let place = |name: &str| path::object("/api/v1/namespaces", name);
    let mut going = Vec::new();
    for name in names().into_iter().rev() {
        // Never under an Application that stayed.
        let kept = cluster.get(&path::object(&applications, &name)).await?.is_some();
        if !kept && delete(&cluster, "Namespace", &name, &place(&name), output).await? {
            going.push(name);
        }
    }
    for name in &going {
        gone(&cluster, "Namespace", name, &place(name)).await?;
    }
    removed += going.len();
    removed += usize::from(project(&cluster, argocd, output).await?);
    output.say(if removed == 0 {
        "Nothing to do: there is nothing of a demo."
    } else {
        "\nThe demo is gone. What `forge bootstrap` made, the records of its runs and the repository stay."
    });
    Ok(Exit::Done)
}

/// A run would put it all back, or fail on the way.
async fn is_idle(cluster: &Cluster, workflows: &str) -> Result<(), Failure> {
    let leases = path::named("coordination.k8s.io", "v1", workflows, "leases");
    let Some(lease) = cluster.get(&path::object(&leases, &format!("forge-{ENVIRONMENT}"))).await? else {
        return Ok(());
    };
    let text = |pointer: &str| lease.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let renewed: Option<Timestamp> = text("/spec/renewTime").parse().ok();
    let lasts = lease.pointer("/spec/leaseDurationSeconds").and_then(Value::as_i64).unwrap_or(60);
    let alive = renewed.is_some_and(|at| Timestamp::now().duration_since(at) < SignedDuration::from_secs(lasts));
    if text("/spec/holderIdentity").is_empty() || !alive {
        return Ok(());
    }
    Err(Failure::new(Code::RunInProgress, format!("run `{}` is in progress", text("/spec/holderIdentity")))
        .hint("wait for it, or interrupt the command that follows it"))
}

/// True where it is being deleted now.
async fn delete(
    cluster: &Cluster,
    kind: &str,
    name: &str,
    place: &str,
    output: &mut Output<'_>,
) -> Result<bool, Failure> {
    let Some(object) = cluster.get(place).await? else { return Ok(false) };
    if !is_ours(&object) {
        output.say(&format!("{} {kind} {name}: it was not made by a demo", output.paint(Paint::Busy, "kept   ")));
        return Ok(false);
    }
    cluster.delete(place).await?;
    output.say(&format!("{} {kind} {name}", output.paint(Paint::Good, "removed")));
    Ok(true)
}

async fn gone(cluster: &Cluster, kind: &str, name: &str, place: &str) -> Result<(), Failure> {
    let give_up = Instant::now() + PATIENCE;
    while cluster.get(place).await?.is_some() {
        if Instant::now() >= give_up {
            let message = format!("{kind} `{name}` is still there after {} s", PATIENCE.as_secs());
            return Err(Failure::new(Code::ArgoUnreachable, message)
                .hint("is the application controller of Argo CD well? run this again to go on"));
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    Ok(())
}

/// The AppProject, once no Application is in it.
async fn project(cluster: &Cluster, argocd: &str, output: &mut Output<'_>) -> Result<bool, Failure> {
    let applications = cluster.list(&path::argo(argocd, "applications"), "").await?;
    let inside =
        |application: &&Value| application.pointer("/spec/project").and_then(Value::as_str) == Some(ENVIRONMENT);
    if let Some(application) = applications.iter().find(inside) {
        let name = application.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        output.say(&format!(
            "{} AppProject {ENVIRONMENT}: Application {name} is in it",
            output.paint(Paint::Busy, "kept   ")
        ));
        return Ok(false);
    }
    let place = path::object(&path::argo(argocd, "appprojects"), ENVIRONMENT);
    if !delete(cluster, "AppProject", ENVIRONMENT, &place, output).await? {
        return Ok(false);
    }
    gone(cluster, "AppProject", ENVIRONMENT, &place).await?;
    Ok(true)
}
