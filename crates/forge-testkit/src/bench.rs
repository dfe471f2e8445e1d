//! What a run costs on the real Argo, for `make bench`: the example's graph by three ways one after the other ([`ways`]),
//! chains under different ticks ([`ticks`]), and graphs of growing size ([`scale`]); what a hard refresh costs in Argo CD, by the plugin and by
//! other sources ([`refresh`]); and what a rendering of a release costs, which needs no Argo ([`render`]). Figures for people; nothing about
//! time is asserted.

pub mod growth;
pub mod processes;
pub mod refresh;
pub mod render;
pub mod scale;
pub mod ticks;
pub mod times;
pub mod watch;
pub mod ways;

use std::error::Error;
use std::io::{self, Write as _};
use std::thread;
use std::time::{Duration, Instant};

use forge_core::render::ENVIRONMENT_LABEL;
use forge_core::run::{StoredRun, stored};
use serde_json::Value;

use crate::platform::{Environment, Platform};
use crate::sandbox::Sandbox;
use crate::twin::{ARGOCD, LABEL};

/// Where Argo Workflows runs, and with it everything of a run.
pub const WORKFLOWS: &str = "argo";
/// The Deployment of its controller.
pub const CONTROLLER: &str = "deployment/argo-workflows-workflow-controller";
/// Longest wait for something that is not measured.
const PATIENCE: Duration = Duration::from_secs(1800);
/// Longest run.
const LONGEST: Duration = Duration::from_secs(3 * 3600);

/// What a step of the benchmark gives.
pub type Measured<T> = Result<T, Box<dyn Error>>;

/// Says on stderr what is going on.
pub fn say(text: &str) {
    let _ = writeln!(io::stderr(), "bench: {text}");
}

/// Asks until there is an answer, at a pace that does not take part in the race.
fn wait_for<T>(what: &str, pause: Duration, mut ask: impl FnMut() -> Measured<Option<T>>) -> Measured<T> {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        if start.elapsed() > PATIENCE {
            return Err(format!("{what}: not within {} s", PATIENCE.as_secs()).into());
        }
        thread::sleep(pause);
    }
}

/// Runs kubectl and gives what it wrote.
fn kubectl(sandbox: &Sandbox, args: &[&str], input: Option<&str>) -> Measured<String> {
    let ended = sandbox.try_kubectl(args, input);
    if ended.code == 0 { Ok(ended.stdout) } else { Err(format!("kubectl {}: {}", args.join(" "), ended.stderr).into()) }
}

/// Prepares the cluster for an environment whose repository was pushed, gives Argo CD the Applications, and waits until it
/// has compared all of them: that is not part of a run. Gives the seconds that this took.
fn prepare(environment: &Environment, applications: usize, further: &[&str]) -> Measured<f64> {
    let image = environment.platform.image();
    environment.merge();
    let ended = environment.forge(&[&["bootstrap", "--image", image], further].concat(), PATIENCE);
    if ended.code != 0 {
        return Err(format!("forge bootstrap: exit {}\n{}{}", ended.code, ended.stdout, ended.stderr).into());
    }
    // The AppProject is there: its window holds them.
    apply(environment, "argocd/applications.yaml")?;
    compared(environment, applications)
}

/// Applies a file of the environment's repository.
fn apply(environment: &Environment, file: &str) -> Measured<()> {
    let path = environment.repository.folder().join(file);
    kubectl(&environment.platform.sandbox, &["apply", "--server-side", "-f", &path.to_string_lossy()], None)?;
    Ok(())
}

/// Waits until Argo CD has compared so many Applications of an environment.
fn compared(environment: &Environment, applications: usize) -> Measured<f64> {
    const COMPARED: &str = r#"jsonpath={range .items[*]}{.status.sync.status}{"\n"}{end}"#;
    let start = Instant::now();
    let label = format!("{LABEL}={}", environment.name);
    wait_for("Argo CD compares the Applications", Duration::from_secs(2), || {
        let args = ["get", "applications", "-n", ARGOCD, "-l", &label, "-o", COMPARED];
        let said = kubectl(&environment.platform.sandbox, &args, None)?;
        let count = said.lines().filter(|status| !status.trim().is_empty() && *status != "Unknown").count();
        Ok((count >= applications).then_some(()))
    })?;
    Ok(start.elapsed().as_secs_f64())
}

/// Deploys, and gives what the record says of it and the seconds that the command took.
fn deploy(environment: &Environment, further: &[&str]) -> Measured<(StoredRun, f64)> {
    let start = Instant::now();
    let ended = environment.forge(&[&["platform", "deploy"], further].concat(), LONGEST);
    let seconds = start.elapsed().as_secs_f64();
    if ended.code != 0 {
        return Err(format!("forge platform deploy: exit {}\n{}{}", ended.code, ended.stdout, ended.stderr).into());
    }
    let run = stored(&config_maps(environment)).runs.into_iter().next().ok_or("the run left no record")?;
    Ok((run, seconds))
}

/// Deploys once more what is proven, and gives the seconds that it takes to see that nothing is to be done.
fn again(environment: &Environment) -> Measured<f64> {
    let start = Instant::now();
    let ended = environment.forge(&["platform", "deploy"], PATIENCE);
    let seconds = start.elapsed().as_secs_f64();
    if ended.code == 0 && ended.stderr.contains("nothing to do") {
        return Ok(seconds);
    }
    Err(format!("forge platform deploy, again: exit {}\n{}{}", ended.code, ended.stdout, ended.stderr).into())
}

/// The ConfigMaps that the runs of an environment left.
fn config_maps(environment: &Environment) -> Vec<Value> {
    let label = format!("{ENVIRONMENT_LABEL}={}", environment.name);
    let list = environment.json(&["get", "configmaps", "-n", WORKFLOWS, "-l", &label]);
    list.get("items").and_then(Value::as_array).cloned().unwrap_or_default()
}

/// Ends an environment and waits until nothing of it is left that the next one would feel.
fn leave(platform: &Platform, environment: Environment) -> Measured<()> {
    let name = environment.name.clone();
    drop(environment);
    if std::env::var_os("FORGE_KEEP").is_some() {
        return Ok(());
    }
    let (label, start) = (format!("{LABEL}={name}"), format!("namespace/{name}-"));
    wait_for("an environment is gone", Duration::from_secs(2), || {
        let namespaces = kubectl(&platform.sandbox, &["get", "namespaces", "-o", "name"], None)?;
        let args = ["get", "applications", "-n", ARGOCD, "-l", &label, "-o", "name"];
        let applications = kubectl(&platform.sandbox, &args, None)?;
        let gone = applications.trim().is_empty() && !namespaces.lines().any(|line| line.starts_with(&start));
        Ok(gone.then_some(()))
    })
}

/// Waits until the controller of Argo Workflows runs as its Deployment says.
fn controller_ready(platform: &Platform) -> Measured<()> {
    let args = ["rollout", "status", CONTROLLER, "-n", WORKFLOWS, "--timeout=180s"];
    kubectl(&platform.sandbox, &args, None)?;
    Ok(())
}
