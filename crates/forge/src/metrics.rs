//! Figures for Prometheus: what the plugin, the Job of a run and the executor are doing.

use forge_core::code::Class;
use forge_core::gate::Decision;
use forge_core::run::Phase;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// Labels by name.
type Labels<const N: usize> = [(&'static str, String); N];

/// Everything that is counted.
pub(crate) struct Metrics {
    registry: Registry,
    decisions: Family<[(&'static str, &'static str); 1], Counter>,
    answers: Family<[(&'static str, &'static str); 1], Counter>,
    syncs: Counter,
    held: Gauge,
    window_age: Gauge,
    durations: Family<Labels<2>, Histogram, fn() -> Histogram>,
    statuses: Family<Labels<3>, Gauge>,
    components: Family<Labels<1>, Gauge>,
    errors: Family<Labels<1>, Counter>,
}

/// What becomes of an action, or of a phase of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Running,
    Done,
    Failed,
    Cancelled,
}

impl Status {
    const ALL: [Self; 4] = [Self::Running, Self::Done, Self::Failed, Self::Cancelled];

    fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// From a tenth of a second to an hour and more.
fn buckets() -> Histogram {
    Histogram::new(exponential_buckets(0.1, 2.0, 17))
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
        let constructor: fn() -> Histogram = buckets;
        Self {
            registry,
            decisions,
            answers,
            syncs,
            held,
            window_age,
            durations: Family::new_with_constructor(constructor),
            statuses: Family::default(),
            components: Family::default(),
            errors: Family::default(),
        }
    }
}

impl Metrics {
    /// Those of the Job, which owns the window.
    pub(crate) fn of_job() -> Self {
        let mut metrics = Self::default();
        let help = "Seconds since the start of the run, while its window holds anything; 0 when that holds nothing";
        metrics.registry.register("forge_window_age_seconds", help, metrics.window_age.clone());
        metrics
    }

    /// Those of the executor, which is also the Job of its run (SPEC.md section 5).
    pub(crate) fn of_executor() -> Self {
        let mut metrics = Self::of_job();
        let Self { registry, durations, statuses, components, errors, .. } = &mut metrics;
        let help = "How long an action, a phase of it or one of its nodes took";
        registry.register("executor_action_duration_seconds", help, durations.clone());
        registry.register("executor_action_status", "1 for how an action or a phase of it stands", statuses.clone());
        let help = "1 where a component is proven or gone, as wished, -1 where it failed or is blocked, else 0";
        registry.register("executor_component_health", help, components.clone());
        registry.register("executor_errors", "What went wrong, by class", errors.clone());
        metrics
    }

    /// How a phase of an action stands; one status at a time.
    pub(crate) fn status(&self, action: &str, phase: &str, status: Status) {
        for known in Status::ALL {
            let labels =
                [("action", action.to_owned()), ("phase", phase.to_owned()), ("status", known.as_str().to_owned())];
            self.statuses.get_or_create(&labels).set(i64::from(known == status));
        }
    }

    /// How long a phase of an action took.
    pub(crate) fn took(&self, action: &str, phase: &str, seconds: f64) {
        let labels = [("action", action.to_owned()), ("phase", phase.to_owned())];
        self.durations.get_or_create(&labels).observe(seconds.max(0.0));
    }

    /// Where a component stands.
    pub(crate) fn component(&self, name: &str, phase: Phase) {
        let health = match phase {
            Phase::Proven | Phase::Gone => 1,
            Phase::Failed | Phase::Blocked => -1,
            _ => 0,
        };
        self.components.get_or_create(&[("component", name.to_owned())]).set(health);
    }

    /// Something went wrong.
    pub(crate) fn error(&self, class: Class) {
        let class = match class {
            Class::User => "user",
            Class::Policy => "policy",
            Class::Conflict => "conflict",
            Class::Transient => "transient",
            Class::Timeout => "timeout",
            Class::Unhealthy => "unhealthy",
            Class::Blocked => "blocked",
            Class::Internal => "internal",
        };
        self.errors.get_or_create(&[("class", class.to_owned())]).inc();
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
        Decision::Gone(_) => "gone",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_executor_has_the_figures_of_the_contract_and_a_job_has_not() {
        let metrics = Metrics::of_executor();
        metrics.status("deploy", "bootstrap", Status::Running);
        metrics.status("deploy", "bootstrap", Status::Done);
        metrics.took("deploy", "bootstrap", 3.5);
        metrics.component("shop/api", Phase::Proven);
        metrics.component("shop/db", Phase::Blocked);
        metrics.error(Class::Timeout);
        let text = metrics.text();
        for line in [
            "executor_action_duration_seconds_sum{action=\"deploy\",phase=\"bootstrap\"} 3.5",
            "executor_action_duration_seconds_count{action=\"deploy\",phase=\"bootstrap\"} 1",
            "executor_action_status{action=\"deploy\",phase=\"bootstrap\",status=\"running\"} 0",
            "executor_action_status{action=\"deploy\",phase=\"bootstrap\",status=\"done\"} 1",
            "executor_component_health{component=\"shop/api\"} 1",
            "executor_component_health{component=\"shop/db\"} -1",
            "executor_errors_total{class=\"timeout\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(text.contains("forge_window_age_seconds"));
        assert!(!Metrics::of_job().text().contains("executor_"));
    }
}
