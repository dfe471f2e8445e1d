//! The report of a run (SPEC.md section 5): summary, components, failures with diagnosis and next action, statistics. One
//! type for text, JSON and JUnit; the JSON Schema is made of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::exit::Exit;
use crate::finding::Finding;
use crate::gate::{Decision, WaitingFor};
use crate::name::NodeId;
use crate::run::{Entry, Phase, Record, RunAction, RunPlan, Runner, Verdict, result};
use crate::teardown::RemovalRecord;
use crate::teardown::inventory::CleanExitReport;
use crate::view::chain::resource;
use crate::view::{Spot, advice, between, shown};

/// The verdict of a run that was only looked at.
pub(super) const DRY_RUN: &str = "dry run";

/// What came of a run. Also made while it lasts; then there is no `ended`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(title = "RunReport")]
pub struct RunReport {
    /// The run; empty where there was none.
    pub run: String,
    /// The environment.
    pub environment: String,
    /// deploy or teardown.
    #[serde(default = "deploy")]
    pub action: String,
    /// What it was about: platform, stack:<name> or app:<name>.
    pub scope: String,
    /// The commit that it deployed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Digest of its plan.
    pub plan: String,
    /// How its nodes were run: plugin or pod.
    pub runner: String,
    /// In a sentence.
    pub summary: String,
    /// done, partial, failed, timed out, cancelled, orphans left, conflict; running, or stale where nobody conducts it; or dry run.
    pub verdict: String,
    /// What `forge platform deploy` or `teardown` exits with; absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<u8>,
    /// What the run itself said at its end, where that is more than its nodes say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When it began.
    #[schemars(with = "String")]
    pub started: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub ended: Option<Timestamp>,
    /// Figures.
    pub statistics: Statistics,
    /// Nodes that failed themselves, and what to do about each.
    pub failures: Vec<FailedNode>,
    /// What kept a run from beginning, in the repository or on the cluster: at most 50; the message counts them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Found>,
    /// All nodes in the order of the plan.
    pub components: Vec<Component>,
    /// Nodes that no window held, and why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub not_held: BTreeMap<String, String>,
    /// What a teardown did beside its nodes, what it left for a reason, and what it left behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removal: Option<RemovalRecord>,
    /// What is left of the platform, by complete lists of everything, where a teardown came to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clean_exit: Option<CleanExitReport>,
}

fn deploy() -> String {
    RunAction::Deploy.as_str().to_owned()
}

/// Why there was no run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoRun {
    /// Something before it failed.
    Failed,
    /// It was told to stop.
    Cancelled,
    /// Nothing may be written.
    DryRun,
    /// There was nothing to do.
    Done,
}

impl NoRun {
    /// As a verdict.
    fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::DryRun => DRY_RUN,
            Self::Done => Verdict::Done.as_str(),
        }
    }
}

/// Figures of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Statistics {
    /// Nodes in all.
    pub nodes: usize,
    /// Proven.
    pub proven: usize,
    /// Of these, after a sync of this run.
    pub synced: usize,
    /// Of these, without one, because nothing had to change.
    pub unchanged: usize,
    /// Removed, with all that they had made.
    #[serde(default)]
    pub gone: usize,
    /// Failed themselves.
    pub failed: usize,
    /// Never started, because one before them failed.
    pub blocked: usize,
    /// Neither proven nor failed nor blocked.
    pub unfinished: usize,
    /// Syncs that were asked for again.
    pub retries: u32,
    /// From the begin to the end, or to now, in seconds.
    pub makespan_seconds: u64,
    /// How often the Workflow was submitted again because infrastructure was lost.
    pub resubmitted: u32,
    /// How often the agent pod was replaced.
    pub agents_replaced: u32,
    /// The nodes that took longest.
    pub slowest: Vec<SlowNode>,
}

/// A node that took long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SlowNode {
    /// The node.
    pub node: String,
    /// From when all before it was proven, in seconds.
    pub seconds: u64,
}

/// One node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Component {
    /// The node.
    pub node: String,
    /// Its Application, `namespace/name`.
    pub application: String,
    /// waiting, starting, syncing, proving, deleting, proven, gone, failed or blocked.
    pub phase: String,
    /// What it waits for, why it failed, or on what its proof rests.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// When all before it was proven.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub started: Option<Timestamp>,
    /// When it was proven, failed or blocked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub ended: Option<Timestamp>,
    /// Between the two, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
    /// Syncs that were asked for.
    pub syncs: u32,
    /// The revisions that it is proven at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub revisions: Vec<String>,
}

/// A node that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailedNode {
    /// The node.
    pub node: String,
    /// Its Application, `namespace/name`.
    pub application: String,
    /// Why it failed.
    pub diagnosis: String,
    /// user, policy, conflict, transient, timeout, unhealthy or internal.
    pub class: String,
    /// The resource that it is about, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// When it failed.
    #[schemars(with = "String")]
    pub at: Timestamp,
    /// Nodes that never started because of it.
    pub blocks: Vec<String>,
    /// What to do next.
    pub next: String,
}

/// Something that kept a run from beginning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Found {
    /// Where: a file with line and column, or a check of the cluster.
    pub place: String,
    /// The code whose page explains it.
    pub code: String,
    /// What is wrong.
    pub message: String,
    /// What to do about it, where that is more than the page says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Found {
    fn new(finding: &Finding) -> Self {
        Self {
            place: shown(&finding.place.to_string()),
            code: finding.code.id().to_owned(),
            message: shown(&finding.message),
            fix: finding.fix.as_deref().map(shown),
        }
    }

    /// As many of them as a report holds.
    pub(crate) fn some(findings: &[Finding]) -> Vec<Self> {
        const MOST: usize = 50;
        findings.iter().take(MOST).map(Self::new).collect()
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("\nfound: {} ({})\n  what   {}\n", self.place, self.code, self.message);
        if let Some(fix) = &self.fix {
            let _ = writeln!(text, "  fix    {fix}");
        }
        text
    }

    /// For the body of a test case.
    pub(crate) fn line(&self) -> String {
        let fix = self.fix.as_ref().map(|fix| format!("\nfix: {fix}")).unwrap_or_default();
        format!("{}: {} {}{fix}", self.place, self.code, self.message)
    }
}

impl RunReport {
    /// The report of a run, as of now.
    pub fn new(plan: &RunPlan, record: &Record, now: Timestamp) -> Self {
        let header = &record.header;
        let views = record.view(plan);
        let until = header.ended.as_ref().map_or(now, |ended| ended.at);
        let verdict = header.ended.as_ref().map(|ended| ended.verdict);
        let stopped = matches!(verdict, Some(Verdict::Cancelled | Verdict::TimedOut));
        let mut statistics = Statistics {
            nodes: views.len(),
            makespan_seconds: between(header.started, until).seconds(),
            resubmitted: header.resubmitted,
            agents_replaced: header.agents_replaced,
            ..Statistics::default()
        };
        let mut components = Vec::new();
        let mut failures = Vec::new();
        let mut culprits: BTreeMap<NodeId, BTreeSet<NodeId>> = BTreeMap::new();
        let mut blocks: BTreeMap<NodeId, Vec<String>> = BTreeMap::new();
        for (view, node) in views.iter().zip(plan.nodes()) {
            let entry = record.entries.get(&view.node);
            let started = entry.and_then(Entry::began).filter(|_| view.phase != Phase::Blocked);
            let seconds = started.zip(view.ended).map(|(from, to)| between(from, to).seconds());
            let syncs = entry.map_or(0, |entry| u32::try_from(entry.asked.len()).unwrap_or(u32::MAX));
            statistics.retries = statistics.retries.saturating_add(syncs.saturating_sub(1));
            let receipt = entry.and_then(|entry| entry.receipt());
            match view.phase {
                Phase::Proven => {
                    statistics.proven += 1;
                    let synced = receipt.is_some_and(|receipt| receipt.synced);
                    *(if synced { &mut statistics.synced } else { &mut statistics.unchanged }) += 1;
                }
                Phase::Gone => statistics.gone += 1,
                Phase::Failed => {
                    statistics.failed += 1;
                    culprits.insert(view.node.clone(), [view.node.clone()].into());
                }
                Phase::Blocked => {
                    statistics.blocked += 1;
                    let behind: BTreeSet<NodeId> =
                        view.waits_for.iter().filter_map(|before| culprits.get(before)).flatten().cloned().collect();
                    for culprit in &behind {
                        blocks.entry(culprit.clone()).or_default().push(view.node.to_string());
                    }
                    culprits.insert(view.node.clone(), behind);
                }
                _ => statistics.unfinished += 1,
            }
            if let (Phase::Failed, Some(entry)) = (view.phase, entry)
                && let Decision::Failed(failure) = &entry.decision
            {
                failures.push(FailedNode {
                    node: view.node.to_string(),
                    application: node.application.to_string(),
                    diagnosis: shown(&failure.why.to_string()),
                    class: word(&failure.class),
                    resource: resource(&entry.decision).map(|text| shown(&text)),
                    at: entry.since,
                    blocks: Vec::new(),
                    next: advice(&failure.why, Spot { application: &node.application, destination: None }),
                });
            }
            let was_left = stopped && !view.phase.is_over();
            let detail = if was_left { left(entry) } else { view.detail.clone() };
            components.push(Component {
                node: view.node.to_string(),
                application: node.application.to_string(),
                phase: view.phase.as_str().to_owned(),
                detail: shown(&detail),
                started,
                ended: view.ended,
                seconds,
                syncs,
                revisions: receipt.map(|r| r.revisions.iter().map(|text| shown(text)).collect()).unwrap_or_default(),
            });
        }
        for failure in &mut failures {
            let id = failure.node.parse().ok();
            failure.blocks = id.and_then(|id: NodeId| blocks.remove(&id)).unwrap_or_default();
        }
        let mut slowest: Vec<SlowNode> = components
            .iter()
            .filter_map(|c| Some(SlowNode { node: c.node.clone(), seconds: c.seconds.filter(|seconds| *seconds > 0)? }))
            .collect();
        slowest.sort_by(|a, b| b.seconds.cmp(&a.seconds).then_with(|| a.node.cmp(&b.node)));
        slowest.truncate(5);
        statistics.slowest = slowest;
        let (verdict, exit) = match &header.ended {
            Some(ended) => (ended.verdict.as_str(), Some(ended.verdict.exit(header.action) as u8)),
            None => ("running", None),
        };
        Self {
            run: header.run.to_string(),
            environment: header.environment.to_string(),
            action: header.action.as_str().to_owned(),
            scope: shown(&header.scope.to_string()),
            commit: header.commit.as_ref().map(ToString::to_string),
            plan: header.plan.to_string(),
            runner: match header.runner {
                Runner::Plugin => "plugin".to_owned(),
                Runner::Pod => "pod".to_owned(),
            },
            summary: summary(header.action, verdict, &statistics),
            verdict: verdict.to_owned(),
            exit,
            message: header.ended.as_ref().and_then(|ended| ended.message.as_deref()).map(shown),
            started: header.started,
            ended: header.ended.as_ref().map(|ended| ended.at),
            statistics,
            failures,
            findings: Vec::new(),
            components,
            not_held: header.not_held.iter().map(|(node, why)| (node.to_string(), shown(why))).collect(),
            removal: header.removal.clone(),
            clean_exit: None,
        }
    }

    /// The report where there was no run: something before it failed, it was told to stop, or nothing may be written. A
    /// program that asked for a report gets one all the same.
    pub fn without_run(
        action: RunAction,
        environment: &str,
        scope: &str,
        verdict: NoRun,
        exit: Exit,
        message: &str,
        (started, ended): (Timestamp, Timestamp),
    ) -> Self {
        let makespan_seconds = between(started, ended).seconds();
        Self {
            run: String::new(),
            environment: shown(environment),
            action: action.as_str().to_owned(),
            scope: shown(scope),
            commit: None,
            plan: String::new(),
            runner: String::new(),
            summary: match action {
                RunAction::Deploy => "there was no run; nothing was deployed".to_owned(),
                RunAction::Teardown => "there was no run; no node was removed".to_owned(),
            },
            verdict: verdict.as_str().to_owned(),
            exit: Some(exit as u8),
            message: Some(shown(message)),
            started,
            ended: Some(ended),
            statistics: Statistics { makespan_seconds, ..Statistics::default() },
            failures: Vec::new(),
            findings: Vec::new(),
            components: Vec::new(),
            not_held: BTreeMap::new(),
            removal: None,
            clean_exit: None,
        }
    }

    /// With what kept the run from beginning: whoever has only the report must be able to put it right.
    #[must_use]
    pub fn because(mut self, findings: &[Finding]) -> Self {
        self.findings = Found::some(findings);
        self
    }

    /// The report of a run that is about to end: the same, with the verdict that follows from its nodes.
    pub fn ended(plan: &RunPlan, record: &Record, now: Timestamp) -> Self {
        let mut record = record.clone();
        if record.header.ended.is_none() {
            let verdict = result(plan, &record, false);
            record.header.ended = Some(crate::run::Ended { at: now, verdict, message: None });
        }
        Self::new(plan, &record, now)
    }

    /// It did not end well although no node failed: what went wrong is the run's own.
    pub fn failed_itself(&self) -> bool {
        self.failures.is_empty() && !matches!(self.verdict.as_str(), "done" | "running" | DRY_RUN)
    }

    /// For people, at most 100 columns wide where the words allow it.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let s = &self.statistics;
        let run = if self.run.is_empty() { "no run".to_owned() } else { format!("run {}", self.run) };
        let of = if self.action == RunAction::Teardown.as_str() { "teardown " } else { "" };
        let _ = writeln!(text, "{of}{run} of {}, scope {}: {}", self.environment, self.scope, self.verdict);
        let _ = writeln!(text, "{}", self.summary);
        if let Some(message) = &self.message {
            let _ = writeln!(text, "{message}");
        }
        text.extend(self.findings.iter().map(Found::text));
        for failure in &self.failures {
            let _ = writeln!(text, "\nfailed: {} (Application {})", failure.node, failure.application);
            let _ = writeln!(text, "  why    {}", failure.diagnosis);
            if let Some(resource) = &failure.resource {
                let _ = writeln!(text, "  which  {resource}");
            }
            let _ = writeln!(text, "  since  {}", failure.at.strftime("%FT%TZ"));
            let _ = writeln!(text, "  next   {}", failure.next);
            if !failure.blocks.is_empty() {
                let _ = writeln!(text, "  blocks {}", list(&failure.blocks, 90));
            }
        }
        let over = |phase: &str| matches!(phase, "proven" | "gone" | "failed" | "blocked");
        let rest = self.components.iter().filter(|component| !over(&component.phase));
        for component in rest {
            let _ = writeln!(text, "\nunfinished: {} {} {}", component.node, component.phase, component.detail);
        }
        if !self.not_held.is_empty() {
            let _ = writeln!(text, "\nno window held:");
            for (node, why) in &self.not_held {
                let _ = writeln!(text, "  {node}: {why}");
            }
        }
        if let Some(removal) = &self.removal {
            text.push_str(&removal.text());
        }
        if let Some(left) = &self.clean_exit {
            text.push_str(&left.beside());
        }
        if !s.slowest.is_empty() {
            let slow: Vec<String> = s
                .slowest
                .iter()
                .map(|slow| format!("{} {}", slow.node, crate::duration::Duration::from_seconds(slow.seconds)))
                .collect();
            let _ = writeln!(text, "\nslowest: {}", list(&slow, 90));
        }
        // One that took too long and left nothing open has a next step for each node that failed.
        let late = self.verdict == Verdict::TimedOut.as_str() && s.unfinished > 0;
        if (late || self.verdict == Verdict::Cancelled.as_str()) && !self.run.is_empty() {
            let next = if self.action == RunAction::Teardown.as_str() {
                "tear down again: what is gone stays gone"
            } else {
                "deploy again: proven nodes pass without a sync; what is not proven stays in the window until then"
            };
            let _ = writeln!(text, "\nnext: {next}");
        }
        text
    }
}

/// What a run that was stopped left of a node: what was asked of Argo CD goes on there, and nothing else goes on.
fn left(entry: Option<&Entry>) -> String {
    let waiting = entry.and_then(|entry| match &entry.decision {
        Decision::Wait(wait) => Some((&wait.on, entry.asked.last())),
        Decision::Proven(_) | Decision::Gone(_) | Decision::Failed(_) => None,
    });
    match waiting {
        None => "not started".to_owned(),
        Some((on, None)) => format!("not started: {on}"),
        Some((WaitingFor::Backoff { attempt, message }, _)) => {
            format!("sync {attempt} failed, and it is not tried again: {message}").trim_end_matches(": ").to_owned()
        }
        Some((WaitingFor::SyncRequest { attempt }, Some(last))) if *attempt > last.attempt => {
            format!("sync {attempt} is not asked for any more")
        }
        Some((WaitingFor::Removal { on }, _)) => format!("its deletion goes on without the run: {on}"),
        Some((on, Some(_))) => format!("left to Argo CD when the run was stopped: {on}"),
    }
}

pub(super) fn summary(action: RunAction, verdict: &str, s: &Statistics) -> String {
    let took = crate::duration::Duration::from_seconds(s.makespan_seconds);
    let mut text = match action {
        RunAction::Deploy => format!("{} of {} nodes proven", s.proven, s.nodes),
        RunAction::Teardown => format!("{} of {} nodes gone", s.gone, s.nodes),
    };
    if s.proven > 0 {
        let _ = write!(text, " ({} synced, {} unchanged)", s.synced, s.unchanged);
    }
    for (count, word) in [(s.failed, "failed"), (s.blocked, "blocked"), (s.unfinished, "unfinished")] {
        if count > 0 {
            let _ = write!(text, ", {count} {word}");
        }
    }
    let _ = write!(text, " {} {took}", if verdict == "running" { "after" } else { "in" });
    match s.retries {
        0 => {}
        1 => text.push_str(", 1 retry"),
        retries => {
            let _ = write!(text, ", {retries} retries");
        }
    }
    text
}

/// As many of these as fit into a line.
pub fn list(items: &[String], width: usize) -> String {
    let mut text = String::new();
    for (i, item) in items.iter().enumerate() {
        if i > 0 && text.chars().count() + item.chars().count() + 2 > width {
            let _ = write!(text, " and {} more", items.len() - i);
            break;
        }
        if i > 0 {
            text.push_str(", ");
        }
        text.push_str(item);
    }
    text
}

/// A value of an enumeration as its JSON has it.
fn word(value: &impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::sample;

    #[test]
    fn a_report_says_what_failed_why_what_it_blocks_and_what_to_do() {
        let run = sample::stored("r-1", 0);
        let report = RunReport::ended(&run.plan, &run.record, sample::at(100));
        assert_eq!((report.verdict.as_str(), report.exit), ("partial", Some(2)));
        assert_eq!(
            report.text(),
            "run r-1 of dev, scope platform: partial
1 of 5 nodes proven (1 synced, 0 unchanged), 1 failed, 1 blocked, 2 unfinished in 1m40s, 1 retry

failed: a/two (Application argocd/dev-a-two)
  why    health stayed Degraded
  since  2026-11-16T10:01:00Z
  next   see what is not well: `kubectl get pods` in its namespace and `argocd app get argocd/dev-a-two`; repair it, then deploy again: proven nodes pass without a sync
  blocks b/one

unfinished: argocd/proxy syncing sync 1 runs: applying \u{fffd}[2J<b>

unfinished: b/two waiting `argocd/proxy` is not proven

slowest: a/two 46s, a/one 12s
"
        );
    }

    #[test]
    fn what_is_not_healthy_is_reported_with_the_resource_behind_it_and_its_message() {
        let run = sample::named("r-1", 0);
        let report = RunReport::ended(&run.plan, &run.record, sample::at(100));
        let wanted = "
  why    health stayed Degraded: Deployment/a-two/api: Deployment \"api\" exceeded its progress deadline
  which  Deployment/a-two/api
";
        assert!(report.text().contains(wanted), "{}", report.text());
        assert_eq!(report.failures[0].resource.as_deref(), Some("Deployment/a-two/api"));
    }

    #[test]
    fn a_run_that_was_stopped_says_what_it_left_to_argo_cd_what_did_not_start_and_what_to_do() {
        let mut run = sample::stored("r-1", 0);
        let report = |run: &crate::run::StoredRun| RunReport::new(&run.plan, &run.record, sample::at(100));
        assert!(!report(&run).text().contains("\nnext: "), "nobody stopped it");
        let message = Some("cancelled by bob".to_owned());
        run.record.header.ended = Some(crate::run::Ended { at: sample::at(40), verdict: Verdict::Cancelled, message });
        let text = report(&run).text();
        for line in [
            " left to Argo CD when the run was stopped: sync 1 runs: applying \u{fffd}[2J<b>\n",
            " not started: `argocd/proxy` is not proven\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
        let next = "deploy again: proven nodes pass without a sync; what is not proven stays in the window until then";
        assert!(text.ends_with(&format!("\n\nnext: {next}\n")), "{text}");
        // So does one that had no time left.
        let mut late = run.clone();
        late.record.header.ended.as_mut().unwrap().verdict = Verdict::TimedOut;
        assert_eq!(report(&late).components, report(&run).components);
        assert!(report(&late).text().ends_with(&format!("\n\nnext: {next}\n")), "{}", report(&late).text());
        // What is done, failed or blocked is told as ever.
        let told = |run: &crate::run::StoredRun, node: &str| -> String {
            let found = report(run).components.into_iter().find(|component| component.node == node);
            found.unwrap().detail
        };
        assert_eq!(
            ["a/one", "a/two", "b/one"].map(|node| told(&run, node)),
            ["", "health stayed Degraded", "blocked by `a/two`, which failed"]
        );
        run.record.entries.remove(&"b/two".parse().unwrap());
        assert_eq!(told(&run, "b/two"), "not started");
        let mut waits = |on: WaitingFor| {
            let entry = run.record.entries.get_mut(&"argocd/proxy".parse().unwrap()).unwrap();
            entry.decision = Decision::Wait(crate::gate::Wait { on, until: sample::at(600), since: None });
            told(&run, "argocd/proxy")
        };
        assert_eq!(
            waits(WaitingFor::Backoff { attempt: 1, message: "boom".to_owned() }),
            "sync 1 failed, and it is not tried again: boom"
        );
        assert_eq!(waits(WaitingFor::SyncRequest { attempt: 2 }), "sync 2 is not asked for any more");
        let removal = crate::teardown::Waiting::Clearance;
        assert_eq!(
            waits(WaitingFor::Removal { on: removal }),
            "its deletion goes on without the run: what it had made is looked for"
        );
        run.record.header.action = RunAction::Teardown;
        assert!(report(&run).text().ends_with("\nnext: tear down again: what is gone stays gone\n"));
    }

    #[test]
    fn what_was_asked_for_before_its_time_has_not_started() {
        let mut run = sample::stored("r-1", 0);
        let told = |run: &crate::run::StoredRun| {
            let report = RunReport::new(&run.plan, &run.record, sample::at(100));
            let held = report.components.into_iter().find(|component| component.node == "b/two").unwrap();
            (held.phase, held.started, held.seconds)
        };
        assert_eq!(told(&run), ("waiting".to_owned(), None, None));
        let entry = run.record.entries.get_mut(&"b/two".parse().unwrap()).unwrap();
        entry.decision = Decision::Failed(
            crate::gate::Why::RunTimeout { predecessor: Some("argocd/proxy".parse().unwrap()) }.into(),
        );
        assert_eq!(told(&run), ("failed".to_owned(), None, None));
    }

    #[test]
    fn a_report_of_a_run_that_lasts_has_no_verdict_and_no_exit_code() {
        let run = sample::stored("r-1", 0);
        let report = RunReport::new(&run.plan, &run.record, sample::at(100));
        assert_eq!((report.verdict.as_str(), report.exit, report.ended), ("running", None, None));
    }

    #[test]
    fn where_there_was_no_run_the_report_says_why_and_is_not_green() {
        let times = (sample::at(0), sample::at(3));
        let why = "FORGE-B001 the cluster is not ready; nothing was changed";
        let none = |verdict, exit, message: &str| {
            RunReport::without_run(RunAction::Deploy, "dev", "platform", verdict, exit, message, times)
        };
        let report = none(NoRun::Failed, Exit::Invalid, why);
        assert_eq!(
            report.text(),
            "no run of dev, scope platform: failed\nthere was no run; nothing was deployed\nFORGE-B001 the cluster is not ready; nothing was changed\n"
        );
        let xml = crate::render::junit(&report);
        assert!(xml.contains("<testsuites name=\"forge dev\" tests=\"1\" failures=\"0\" errors=\"1\""), "{xml}");
        assert_eq!((report.exit, report.statistics.makespan_seconds), (Some(3), 3));
        let dry = none(NoRun::DryRun, Exit::Done, "nothing");
        assert!(!dry.failed_itself());
        let stopped = none(NoRun::Cancelled, Exit::Partial, "stopped");
        assert!(stopped.failed_itself());
    }

    #[test]
    fn what_kept_a_run_from_beginning_is_in_every_form_of_the_report_and_there_is_not_too_much_of_it() {
        let finding = |n: usize| {
            let place = crate::finding::Place::whole(&format!("check-{n}"));
            Finding::new(crate::code::Code::RightsMissing, place, "may not <create> namespaces\u{1b}[2J")
        };
        let findings: Vec<Finding> = (0..70).map(|n| finding(n).with_fix("ask for it")).collect();
        let times = (sample::at(0), sample::at(3));
        let (action, why) = (RunAction::Deploy, NoRun::Failed);
        let report = RunReport::without_run(action, "dev", "platform", why, Exit::Invalid, "not ready", times);
        let one = report.clone().because(&findings[..1]);
        assert_eq!(
            one.text(),
            "no run of dev, scope platform: failed
there was no run; nothing was deployed
not ready

found: check-0 (FORGE-B005)
  what   may not <create> namespaces\u{fffd}[2J
  fix    ask for it
"
        );
        let json = serde_json::json!(one);
        assert_eq!(json.pointer("/findings/0/fix").and_then(serde_json::Value::as_str), Some("ask for it"));
        let xml = crate::render::junit(&one);
        let line = "check-0: FORGE-B005 may not &lt;create&gt; namespaces\u{fffd}[2J&#10;fix: ask for it</error>";
        assert!(xml.contains("errors=\"1\"") && xml.contains(line), "{xml}");
        assert_eq!(report.because(&findings).findings.len(), 50);
    }

    #[test]
    fn what_is_written_as_json_reads_back_the_same() {
        let run = sample::all_proven("r-1", 0);
        let report = RunReport::new(&run.plan, &run.record, sample::at(100));
        assert_eq!(report.statistics.unchanged, 1);
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<RunReport>(&text).unwrap(), report);
    }
}
