//! The same chains under different ticks: how soon the next node starts, and what looking so often costs (docs/adr/0012).
//! A tick is set twice: the agent's (`forge bootstrap --agent-tick`) and the controller's (its environment).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::processes::{Part, Sampler, Usage};
use super::times::{Hops, Timed};
use super::{CONTROLLER, Measured, WORKFLOWS, controller_ready, deploy, kubectl, leave, prepare, say};
use crate::platform::Platform;
use crate::twin::{self, TwinNode, config_map};

/// What the sandbox sets of the controller, and a stock one does not.
const TUNED: &str = "DEFAULT_REQUEUE_TIME";
/// Chains beside each other.
const CHAINS: usize = 3;
/// Nodes of a chain.
const LENGTH: usize = 8;

/// What a tick came to.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Milliseconds.
    tick: u32,
    hops: Hops,
    makespan: f64,
    usage: BTreeMap<Part, Usage>,
}

/// Runs the chains with this tick, in an environment that is gone afterwards.
///
/// # Errors
/// When they do not all become healthy.
pub fn measure(platform: &'static Platform, tick: u32) -> Measured<Outcome> {
    say(&format!("chains with a tick of {tick} ms"));
    let before = tuning(platform)?;
    tune(platform, Some(&format!("{tick}ms")))?;
    let outcome = chains(platform, tick);
    tune(platform, before.as_deref()).and(outcome)
}

fn chains(platform: &'static Platform, tick: u32) -> Measured<Outcome> {
    let environment = platform.environment("ticks");
    let name = |chain: usize, n: usize| format!("c{chain}-{n}");
    let mut nodes = Vec::new();
    for chain in 0..CHAINS {
        for n in 0..LENGTH {
            let before: Vec<String> = n.checked_sub(1).map(|before| name(chain, before)).into_iter().collect();
            let before: Vec<&str> = before.iter().map(String::as_str).collect();
            let name = name(chain, n);
            nodes.push(TwinNode::new(&name, &before, vec![config_map(&name, &name)]));
        }
    }
    environment.push(&twin::small(&environment.options(), &nodes), "chains");
    prepare(&environment, nodes.len(), &["--agent-tick", &tick.to_string()])?;
    let sampler = Sampler::start(&platform.sandbox);
    let (run, _) = deploy(&environment, &[])?;
    let usage = sampler.stop();
    let (hops, makespan) = (Hops::of(&run), Timed::of(&run).makespan());
    leave(platform, environment)?;
    Ok(Outcome { tick, hops, makespan, usage })
}

/// The controller's tuning, if it has one.
pub(super) fn tuning(platform: &Platform) -> Measured<Option<String>> {
    let path = format!("jsonpath={{.spec.template.spec.containers[0].env[?(@.name==\"{TUNED}\")].value}}");
    let said = kubectl(&platform.sandbox, &["get", CONTROLLER, "-n", WORKFLOWS, "-o", &path], None)?;
    Ok(Some(said.trim().to_owned()).filter(|value| !value.is_empty()))
}

/// Sets or removes the controller's tuning, and waits until it runs so.
pub(super) fn tune(platform: &Platform, value: Option<&str>) -> Measured<()> {
    let setting = value.map_or_else(|| format!("{TUNED}-"), |value| format!("{TUNED}={value}"));
    kubectl(&platform.sandbox, &["set", "env", CONTROLLER, "-n", WORKFLOWS, &setting], None)?;
    controller_ready(platform)
}

/// The ticks side by side.
pub fn table(outcomes: &[Outcome]) -> String {
    let mut text =
        format!("  {CHAINS} chains of {LENGTH} nodes, each a ConfigMap; hop: proof to the next sync request\n");
    text.push_str("  tick, ms   hop p50, s   hop p95, s   makespan, s   controller, s of processor   agent   plugin\n");
    for Outcome { tick, hops, makespan, usage } in outcomes {
        let processor = |part| usage.get(&part).map_or(0.0, |usage: &Usage| usage.processor);
        let (p50, p95) = (hops.quantile(0.5), hops.quantile(0.95));
        let _ = writeln!(
            text,
            "  {tick:>8}{p50:>13.3}{p95:>13.3}{makespan:>14.1}{:>29.1}{:>8.1}{:>9.1}",
            processor(Part::Controller),
            processor(Part::Agent),
            processor(Part::Plugin)
        );
    }
    text
}
