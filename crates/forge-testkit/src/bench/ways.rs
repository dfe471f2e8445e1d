//! The example's 46 nodes with real pods by three ways, one after the other on one sandbox: our plugin; a pod per node on
//! a controller that nobody tuned; Argo CD's app-of-apps with sync waves.

use std::fmt::Write as _;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::ticks::{tune, tuning};
use super::times::{Hops, Predecessors, Timed, between, waves};
use super::watch::{self, Watch};
use super::{Measured, again, apply, compared, deploy, kubectl, leave, prepare, say, wait_for};
use crate::platform::{Environment, Platform, mark};
use crate::twin::{self, ARGOCD, LABEL, Options, TwinNode, deployment};

/// Where `argocd-cm` keeps how the health of an Application is judged.
const HEALTH: &str = "resource.customizations.health.argoproj.io_Application";
/// As Argo CD documents it: without it an Application has no health, and no wave waits for one.
const HEALTH_OF_APPLICATIONS: &str = r#"hs = {}
hs.status = "Progressing"
hs.message = ""
if obj.status ~= nil then
  if obj.status.health ~= nil then
    hs.status = obj.status.health.status
    if obj.status.health.message ~= nil then
      hs.message = obj.status.health.message
    end
  end
end
return hs
"#;
/// The parent of the app-of-apps, after the name of the environment. No node is called so.
const PARENT: &str = "app-of-apps";

/// A way to deploy a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// `forge platform deploy`.
    Plugin,
    /// `forge platform deploy --runner pod`, and the controller as it comes.
    Pod,
    /// Argo CD alone.
    Waves,
}

impl Way {
    /// All, in the order in which they run.
    pub const ALL: [Self; 3] = [Self::Plugin, Self::Pod, Self::Waves];

    /// By the word that `FORGE_BENCH_WAYS` has for it.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|way| way.word() == name)
    }

    fn word(self) -> &'static str {
        match self {
            Self::Plugin => "plugin",
            Self::Pod => "pod",
            Self::Waves => "waves",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Plugin => "plugin",
            Self::Pod => "pod per node, stock controller",
            Self::Waves => "app-of-apps with sync waves",
        }
    }
}

/// What a way took.
#[derive(Debug, Clone)]
pub struct Outcome {
    way: Way,
    /// Seconds from the first sync request to the last health.
    makespan: f64,
    /// Seconds of the critical path as configured.
    nominal: f64,
    /// Seconds of the critical path as measured.
    measured: f64,
    /// Pods beside those of the platform and the Job's.
    pods: usize,
    /// Edges whose second node was asked for before the first was healthy.
    broken: usize,
    ours: Option<Ours>,
}

/// What only our own record knows.
#[derive(Debug, Clone)]
struct Ours {
    hops: Hops,
    /// Seconds from the first sync request to the last proof.
    to_proof: f64,
    /// The makespan as it was seen from outside.
    outside: f64,
    /// Seconds of a second time, with nothing to do.
    again: f64,
    resubmitted: u32,
    agents_replaced: u32,
}

/// One node deployed and thrown away: images are there, caches are filled, and no way has to pay for being the first.
///
/// # Errors
/// When it is not deployed.
pub fn warm_up(platform: &'static Platform) -> Measured<()> {
    say("one node, to warm up");
    let environment = platform.environment("warm");
    let nodes = [TwinNode::new("first", &[], vec![deployment("first", &platform.sample, 1, &[])])];
    environment.push(&twin::small(&environment.options(), &nodes), "one node");
    prepare(&environment, 1, &[])?;
    deploy(&environment, &[])?;
    leave(platform, environment)
}

/// Deploys the 46 nodes by a way, in an environment that is gone afterwards.
///
/// # Errors
/// When they do not all become healthy.
pub fn measure(platform: &'static Platform, way: Way, scale: f64) -> Measured<Outcome> {
    say(way.title());
    match way {
        Way::Plugin => run(platform, way, scale, &[]),
        Way::Pod => {
            let before = tuning(platform)?;
            tune(platform, None)?;
            let outcome = run(platform, way, scale, &["--runner", "pod"]);
            tune(platform, before.as_deref()).and(outcome)
        }
        Way::Waves => {
            let before = health_rule(platform)?;
            set_health_rule(platform, Some(HEALTH_OF_APPLICATIONS))?;
            let outcome = sync_waves(platform, scale);
            set_health_rule(platform, before.as_deref()).and(outcome)
        }
    }
}

fn options(environment: &Environment, scale: f64, auto: bool) -> Options {
    // Nothing may give up here: what takes long is to be seen as long.
    let timeouts = Some(("15m".to_owned(), "15m".to_owned()));
    Options { pods: true, auto, scale, timeouts, ..environment.options() }
}

fn run(platform: &'static Platform, way: Way, scale: f64, further: &[&str]) -> Measured<Outcome> {
    let environment = platform.environment("bench");
    let options = options(&environment, scale, false);
    let predecessors = twin::predecessors(&options);
    environment.push(&twin::files(&options), "the platform");
    prepare(&environment, predecessors.len(), &[])?;
    let sandbox = &platform.sandbox;
    let (applications, pods) = (Watch::applications(sandbox, &environment.name)?, Watch::workflow_pods(sandbox)?);
    let (run, _) = deploy(&environment, further)?;
    let outside = watch::times(&applications.stop(), &predecessors);
    let pods = watch::pods(&pods.stop(), &format!("forge-{}", run.plan.run));
    // Of the record, edges are those of the reduced graph; the whole graph has them all.
    let timed = Timed { predecessors, ..Timed::of(&run) };
    complete(&timed)?;
    let entries = run.record.entries.values();
    let first = entries.clone().filter_map(|entry| entry.asked.first()).map(|asked| asked.at).min();
    let last_proof = entries.map(|entry| entry.since).max();
    let header = &run.record.header;
    let outcome = Outcome {
        way,
        makespan: first.zip(timed.end()).map_or(0.0, |(begin, end)| between(begin, end)),
        nominal: twin::nominal_critical_path(&options),
        measured: timed.critical_path(),
        pods,
        broken: timed.broken_edges(),
        ours: Some(Ours {
            hops: Hops::of(&run),
            to_proof: first.zip(last_proof).map_or(0.0, |(begin, end)| between(begin, end)),
            outside: outside.makespan(),
            again: again(&environment)?,
            resubmitted: header.resubmitted,
            agents_replaced: header.agents_replaced,
        }),
    };
    leave(platform, environment)?;
    Ok(outcome)
}

/// That every node has its times.
fn complete(timed: &Timed) -> Measured<()> {
    let missing: Vec<&str> =
        timed.predecessors.keys().filter(|name| !timed.nodes.contains_key(*name)).map(String::as_str).collect();
    if missing.is_empty() { Ok(()) } else { Err(format!("no times of {}", missing.join(", ")).into()) }
}

fn sync_waves(platform: &'static Platform, scale: f64) -> Measured<Outcome> {
    let environment = platform.environment("bench");
    let options = options(&environment, scale, true);
    let predecessors = twin::predecessors(&options);
    let mut files = twin::files(&options);
    let applications = files.iter().find(|(path, _)| path == "argocd/applications.yaml");
    let applications =
        applications.map(|(_, text)| waved(text, &predecessors)).ok_or("the twin has no Applications")?;
    files.push(("waves/applications.yaml".to_owned(), applications));
    environment.push(&files, "the platform in waves");
    apply(&environment, "argocd/project.yaml")?;
    let parent = format!("{}-{PARENT}", environment.name);
    let sandbox = &platform.sandbox;
    kubectl(sandbox, &["apply", "--server-side", "-f", "-"], Some(&parent_of(&environment, &parent).to_string()))?;
    compared(&environment, 1)?;
    let watch = Watch::applications(sandbox, &environment.name)?;
    // The watch lists what is there before it says what changes.
    wait_for("the watch begins", Duration::from_millis(50), || Ok((!watch.heard().is_empty()).then_some(())))?;
    let operation = r#"{"operation":{"initiatedBy":{"username":"bench"},"sync":{}}}"#;
    let requested = mark();
    kubectl(sandbox, &["patch", "application", &parent, "-n", ARGOCD, "--type=merge", "-p", operation], None)?;
    let timed = wait_for("all waves are healthy", Duration::from_millis(250), || {
        let heard = watch.heard();
        if let Some(phase @ ("Failed" | "Error")) = watch::last_phase(&heard, &parent) {
            let args = ["get", "application", &parent, "-n", ARGOCD, "-o", "jsonpath={.status.operationState.message}"];
            let why = kubectl(sandbox, &args, None).unwrap_or_default();
            return Err(format!("the sync of the parent ended as {phase}: {why}").into());
        }
        let timed = watch::times(&heard, &predecessors);
        Ok((timed.nodes.len() == predecessors.len()).then_some(timed))
    })?;
    drop(watch);
    let outcome = Outcome {
        way: Way::Waves,
        makespan: between(requested, timed.end().unwrap_or(Timestamp::UNIX_EPOCH)),
        nominal: twin::nominal_critical_path(&options),
        measured: timed.critical_path(),
        pods: 0,
        broken: timed.broken_edges(),
        ours: None,
    };
    leave(platform, environment)?;
    Ok(outcome)
}

/// Applications with the waves that their graph has.
fn waved(applications: &str, predecessors: &Predecessors) -> String {
    let waves = waves(predecessors);
    let documents = applications.split("---\n").map(|document| {
        let name = document.lines().find_map(|line| line.strip_prefix("  name: ")).unwrap_or_default();
        let wave = waves.get(name).copied().unwrap_or(0);
        let annotation = format!("  annotations:\n    argocd.argoproj.io/sync-wave: \"{wave}\"\n  labels:\n");
        document.replacen("  labels:\n", &annotation, 1)
    });
    documents.collect::<Vec<_>>().join("---\n")
}

/// The Application whose folder holds the others. It syncs when it is asked to.
fn parent_of(environment: &Environment, name: &str) -> Value {
    json!({
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {"name": name, "namespace": ARGOCD, "labels": {LABEL: environment.name}},
        "spec": {
            "project": environment.name,
            "source": {"repoURL": environment.url, "targetRevision": "main", "path": "waves"},
            "destination": {"server": "https://kubernetes.default.svc", "namespace": ARGOCD},
        },
    })
}

fn health_rule(platform: &Platform) -> Measured<Option<String>> {
    let text = kubectl(&platform.sandbox, &["get", "configmap", "argocd-cm", "-n", ARGOCD, "-o", "json"], None)?;
    let settings: Value = serde_json::from_str(&text)?;
    Ok(settings.get("data").and_then(|data| data.get(HEALTH)).and_then(Value::as_str).map(ToOwned::to_owned))
}

fn set_health_rule(platform: &Platform, rule: Option<&str>) -> Measured<()> {
    let patch = json!({"data": {HEALTH: rule}}).to_string();
    let args = ["patch", "configmap", "argocd-cm", "-n", ARGOCD, "--type=merge", "-p", &patch];
    kubectl(&platform.sandbox, &args, None)?;
    Ok(())
}

/// The outcomes side by side.
pub fn table(outcomes: &[Outcome]) -> String {
    let mut text = format!(
        "  {:<32}{:>11}{:>11}{:>12}{:>8}{:>15}\n",
        "", "makespan", "÷ nominal", "÷ measured", "pods", "edges broken"
    );
    if let Some(Outcome { nominal, .. }) = outcomes.first() {
        let _ = writeln!(text, "  nominal critical path (configured times to readiness): {nominal:.1} s");
    }
    for outcome in outcomes {
        let Outcome { way, makespan, nominal, measured, pods, broken, .. } = outcome;
        let ratio = |path: &f64| if *path > 0.0 { makespan / path } else { 0.0 };
        let (title, by_nominal, by_measured) = (way.title(), ratio(nominal), ratio(measured));
        let _ =
            writeln!(text, "  {title:<32}{makespan:>9.1} s{by_nominal:>11.3}{by_measured:>12.3}{pods:>8}{broken:>15}");
    }
    text.push_str("  makespan: first sync request (of the parent, for waves) to last health; pods: beside the Job's\n");
    text.push_str("  wanted of the plugin: ÷ nominal 1.15, ÷ measured 1.10, one pod, no edge broken\n");
    for outcome in outcomes {
        let Outcome { way, measured, ours, .. } = outcome;
        let Some(Ours { hops, to_proof, outside, again, resubmitted, agents_replaced }) = ours else {
            let _ = writeln!(text, "\n  {}: measured critical path {measured:.1} s", way.title());
            continue;
        };
        let _ = writeln!(
            text,
            "\n  {}: measured critical path {measured:.1} s, first request to last proof {to_proof:.1} s, makespan seen from outside {outside:.1} s",
            way.title()
        );
        let _ = writeln!(
            text,
            "    proof of the last predecessor to the sync request, {} nodes: p50 {:.3} s, p95 {:.3} s, most {:.3} s   (wanted of the plugin: 0.5 s, 1 s)",
            hops.count(),
            hops.quantile(0.5),
            hops.quantile(0.95),
            hops.quantile(1.0)
        );
        let _ = writeln!(text, "    a second time, with nothing to do: {again:.1} s   (wanted: under 15 s)");
        if resubmitted + agents_replaced > 0 {
            let _ = writeln!(text, "    submitted again {resubmitted} times, agents replaced {agents_replaced} times");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_application_of_the_twin_gets_the_wave_of_its_graph() {
        let options = Options { pods: true, auto: true, ..Options::new("dev", "http://git/x.git", "image@sha256:0") };
        let files = twin::files(&options);
        let text = &files.iter().find(|(path, _)| path == "argocd/applications.yaml").unwrap().1;
        let predecessors = twin::predecessors(&options);
        let said = waved(text, &predecessors);
        let wave = |name: &str| -> usize {
            let document =
                said.split("---\n").find(|document| document.contains(&format!("\n  name: {name}\n"))).unwrap();
            let line = document.lines().find_map(|line| line.trim().strip_prefix("argocd.argoproj.io/sync-wave: "));
            line.unwrap().trim_matches('"').parse().unwrap()
        };
        assert_eq!(said.matches("sync-wave").count(), 46);
        for (name, before) in &predecessors {
            assert!(before.iter().all(|before| wave(before) < wave(name)), "{name}");
        }
    }
}
