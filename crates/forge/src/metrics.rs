//! Figures for Prometheus: what the plugin and the Job of a run are doing.

use forge_core::gate::Decision;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Everything that is counted.
pub(crate) struct Metrics {
    registry: Registry,
    decisions: Family<[(&'static str, &'static str); 1], Counter>,
    answers: Family<[(&'static str, &'static str); 1], Counter>,
    syncs: Counter,
    held: Gauge,
    window_age: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let (decisions, answers) = (Family::default(), Family::default());
        let (syncs, held, window_age) = (Counter::default(), Gauge::default(), Gauge::default());
        registry.register("forge_gate_decisions", "Answers of the gate", decisions.clone());
        registry.register("forge_agent_answers", "Answers to requests of the agent", answers.clone());
        registry.register("forge_sync_requests", "Syncs asked of Argo CD", syncs.clone());
        registry.register("forge_held_requests", "Requests of the agent that are held", held.clone());
        Self { registry, decisions, answers, syncs, held, window_age }
    }
}

impl Metrics {
    /// Those of the Job, which owns the window.
    pub(crate) fn of_job() -> Self {
        let mut metrics = Self::default();
        let help = "Since when a window of this run holds anything; 0 when it holds nothing";
        metrics.registry.register("forge_window_age_seconds", help, metrics.window_age.clone());
        metrics
    }

    pub(crate) fn decided(&self, decision: &Decision) {
        self.decisions.get_or_create(&[("answer", word(decision))]).inc();
    }

    /// The agent was told; nothing is known yet where a request was held for as long as the agent has patience.
    pub(crate) fn answered(&self, decision: Option<&Decision>) {
        self.answers.get_or_create(&[("answer", decision.map_or("wait", word))]).inc();
    }

    pub(crate) fn sync_requested(&self) {
        self.syncs.inc();
    }

    /// A request is held while this lives.
    pub(crate) fn hold(&self) -> Held<'_> {
        self.held.inc();
        Held(&self.held)
    }

    pub(crate) fn window_age(&self, seconds: i64) {
        self.window_age.set(seconds);
    }

    /// In the form that Prometheus reads.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

fn word(decision: &Decision) -> &'static str {
    match decision {
        Decision::Proven(_) => "proven",
        Decision::Wait(_) => "wait",
        Decision::Failed(_) => "failed",
    }
}

/// A request that is held.
pub(crate) struct Held<'m>(&'m Gauge);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}
