//! The report of a validation (SPEC.md section 5): summary, components, failures with diagnosis and next action, statistics.
//! One type for text, JSON, JUnit and the page; the JSON Schema is made of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Facts, Judgement, Verdict, spot};
use crate::exit::Exit;
use crate::finding::Finding;
use crate::render::escape;
use crate::view::{Found, advice_cause, between, shown};

/// What is true of an environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(title = "ValidationReport")]
pub struct ValidationReport {
    /// The environment.
    pub environment: String,
    /// The cluster, by the context of the kubeconfig; empty where none was reached.
    pub context: String,
    /// What it is about: platform, stack:<name> or app:<name>.
    pub scope: String,
    /// The commit that nodes are held against.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// healthy, degraded, unhealthy, not known; or failed, cancelled where nothing was looked at.
    pub verdict: String,
    /// What `validate` exits with.
    pub exit: u8,
    /// In a sentence.
    pub summary: String,
    /// Why nothing was looked at, where that is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When somebody began to look.
    #[schemars(with = "String")]
    pub started: Timestamp,
    /// When everything was seen.
    #[schemars(with = "String")]
    pub ended: Timestamp,
    /// Figures.
    pub statistics: Tally,
    /// What is wrong, the worst first, and what to do about each.
    pub failures: Vec<Problem>,
    /// What kept a validation from looking, in the repository: at most 50; the message counts them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Found>,
    /// Everything that was looked at: nodes in the order of the plan, then what they rest on.
    pub components: Vec<Standing>,
    /// What is not wrong and good to know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Figures of a validation.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tally {
    /// Components in all.
    pub components: usize,
    /// Of these, nodes.
    pub nodes: usize,
    /// Healthy.
    pub healthy: usize,
    /// Degraded.
    pub degraded: usize,
    /// Unhealthy.
    pub unhealthy: usize,
    /// Nobody can say, because something may not be read.
    pub not_known: usize,
    /// What is wrong, by its sort.
    pub kinds: BTreeMap<String, usize>,
    /// How long looking took, in seconds.
    pub seconds: u64,
}

/// One component and how it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Standing {
    /// Its name.
    pub component: String,
    /// node, controller, project, config, repository or application.
    pub sort: String,
    /// healthy, degraded, unhealthy or not known.
    pub verdict: String,
    /// What it rests on, or the first thing that is wrong.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// Its Application, `namespace/name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
    /// The revisions that Argo CD compared it with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub revisions: Vec<String>,
    /// When Argo CD last compared it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub compared: Option<Timestamp>,
}

impl Standing {
    /// Of which nothing is wrong yet.
    pub(super) fn new(sort: &str, component: &str) -> Self {
        Self {
            component: shown(component),
            sort: sort.to_owned(),
            verdict: Verdict::Healthy.as_str().to_owned(),
            detail: String::new(),
            application: None,
            revisions: Vec::new(),
            compared: None,
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// With what.
    pub component: String,
    /// Its sort, such as missing, drift, stale, wrong-digest, extra, not-known or policy; the guide has all of them.
    pub kind: String,
    /// The code whose page explains it.
    pub code: String,
    /// degraded, unhealthy or not known.
    pub verdict: String,
    /// What is wrong.
    pub diagnosis: String,
    /// The resource that it is about, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Since when the component is as it is, where Argo CD says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub since: Option<Timestamp>,
    /// What to do next.
    pub next: String,
}

/// Puts the report together.
pub(super) fn report(
    facts: &Facts,
    judgements: Vec<Judgement>,
    notes: &[String],
    (started, ended): (Timestamp, Timestamp),
) -> ValidationReport {
    let environment = facts.environment.as_str();
    let verdict = judgements.iter().map(Judgement::verdict).max().unwrap_or(Verdict::NotKnown);
    let mut tally = Tally { components: judgements.len(), ..Tally::default() };
    tally.seconds = between(started, ended).seconds();
    let mut failures: Vec<(Verdict, Problem)> = Vec::new();
    let mut components = Vec::new();
    for mut judgement in judgements {
        let own = judgement.verdict();
        let count = match own {
            Verdict::Healthy => &mut tally.healthy,
            Verdict::NotKnown => &mut tally.not_known,
            Verdict::Degraded => &mut tally.degraded,
            Verdict::Unhealthy => &mut tally.unhealthy,
        };
        *count += 1;
        tally.nodes += usize::from(judgement.standing.sort == "node");
        // Its worst first: that is what a line about it says.
        judgement.causes.sort_by_key(|cause| std::cmp::Reverse(cause.verdict()));
        for cause in &judgement.causes {
            *tally.kinds.entry(cause.kind().id().to_owned()).or_default() += 1;
            let problem = Problem {
                component: judgement.standing.component.clone(),
                kind: cause.kind().id().to_owned(),
                code: cause.code().id().to_owned(),
                verdict: cause.verdict().as_str().to_owned(),
                diagnosis: shown(&cause.to_string()),
                resource: cause.resource(),
                since: judgement.since,
                next: advice_cause(cause, environment, spot(&judgement)),
            };
            failures.push((cause.verdict(), problem));
        }
        let first = judgement.causes.first().map(|cause| shown(&cause.to_string()));
        let mut standing = judgement.standing;
        own.as_str().clone_into(&mut standing.verdict);
        standing.detail = first.unwrap_or(standing.detail);
        components.push(standing);
    }
    // Stable: within a verdict in the order of the components.
    failures.sort_by_key(|(verdict, _)| std::cmp::Reverse(*verdict));
    let commit = facts.commit.to_string();
    ValidationReport {
        environment: environment.to_owned(),
        context: shown(&facts.context),
        scope: shown(&facts.scope.to_string()),
        summary: summary(&tally, commit.get(..10)),
        commit: Some(commit),
        verdict: verdict.as_str().to_owned(),
        exit: verdict.exit() as u8,
        message: None,
        started,
        ended,
        statistics: tally,
        failures: failures.into_iter().map(|(_, problem)| problem).collect(),
        findings: Vec::new(),
        components,
        notes: notes.iter().map(|note| shown(note)).collect(),
    }
}

fn summary(tally: &Tally, commit: Option<&str>) -> String {
    let mut text = format!("{} of {} components healthy", tally.healthy, tally.components);
    for (count, word) in [(tally.unhealthy, "unhealthy"), (tally.degraded, "degraded"), (tally.not_known, "not known")]
    {
        if count > 0 {
            let _ = write!(text, ", {count} {word}");
        }
    }
    if let Some(commit) = commit {
        let _ = write!(text, "; {} nodes held against {commit}", tally.nodes);
    }
    text
}

impl ValidationReport {
    /// The report where nothing could be looked at. A program that asked for a report gets one all the same.
    pub fn nothing(
        environment: &str,
        scope: &str,
        (verdict, exit): (&str, Exit),
        message: &str,
        (started, ended): (Timestamp, Timestamp),
    ) -> Self {
        Self {
            environment: shown(environment),
            context: String::new(),
            scope: shown(scope),
            commit: None,
            verdict: verdict.to_owned(),
            exit: exit as u8,
            summary: "nothing was looked at".to_owned(),
            message: Some(shown(message)),
            started,
            ended,
            statistics: Tally { seconds: between(started, ended).seconds(), ..Tally::default() },
            failures: Vec::new(),
            findings: Vec::new(),
            components: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// With what kept it from looking: whoever has only the report must be able to put it right.
    #[must_use]
    pub fn because(mut self, findings: &[Finding]) -> Self {
        self.findings = Found::some(findings);
        self
    }

    /// How a command ends with it.
    pub fn exit(&self) -> Exit {
        match self.verdict.as_str() {
            "healthy" => Exit::Done,
            "unhealthy" => Exit::Findings,
            _ => Exit::Partial,
        }
    }

    /// For people, at most 100 columns wide where the words allow it.
    pub fn text(&self) -> String {
        let place = if self.context.is_empty() { String::new() } else { format!(" in {}", self.context) };
        let mut text =
            format!("{}{place}, scope {}: {}\n{}\n", self.environment, self.scope, self.verdict, self.summary);
        if let Some(message) = &self.message {
            let _ = writeln!(text, "{message}");
        }
        text.extend(self.findings.iter().map(Found::text));
        for standing in self.components.iter().filter(|standing| standing.verdict != "healthy") {
            let application = standing.application.as_ref().filter(|name| **name != standing.component);
            let of = application.map(|name| format!(" (Application {name})")).unwrap_or_default();
            let _ = writeln!(text, "\n{}: {}{of}", standing.verdict, standing.component);
            for problem in self.failures.iter().filter(|problem| problem.component == standing.component) {
                let _ = writeln!(text, "  {:<12} {}", problem.kind, problem.diagnosis);
                if let Some(resource) = problem.resource.as_ref().filter(|name| !problem.diagnosis.contains(*name)) {
                    let _ = writeln!(text, "  {:<12} {resource}", "  which");
                }
                if let Some(since) = problem.since {
                    let _ = writeln!(text, "  {:<12} {}", "  since", since.strftime("%FT%TZ"));
                }
                let _ = writeln!(text, "  {:<12} {}", "  next", problem.next);
                let _ = writeln!(text, "  {:<12} {}", "  code", problem.code);
            }
        }
        for note in &self.notes {
            let _ = writeln!(text, "\nnote: {note}");
        }
        text
    }

    /// As JUnit: one test case per component. What is degraded or unhealthy is a failure, what is not known an error: nothing
    /// of it is green.
    pub fn junit(&self) -> String {
        let none = usize::from(self.components.is_empty());
        let s = &self.statistics;
        let counts = format!(
            "tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"0\" time=\"{}\"",
            self.components.len() + none,
            s.degraded + s.unhealthy,
            s.not_known + none,
            s.seconds
        );
        let name = escape(&format!("forge validate {}", self.environment));
        let mut xml = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"{name}\" {counts}>\n  <testsuite name=\"{name}\" {counts} timestamp=\"{}\">\n",
            self.started.strftime("%FT%TZ")
        );
        for standing in &self.components {
            let _ = write!(
                xml,
                "    <testcase classname=\"{}\" name=\"{}\"",
                escape(&self.environment),
                escape(&standing.component)
            );
            let told: Vec<&Problem> =
                self.failures.iter().filter(|problem| problem.component == standing.component).collect();
            let body: Vec<String> = told
                .iter()
                .map(|problem| format!("{} {}\nnext: {}", problem.code, problem.diagnosis, problem.next))
                .collect();
            let (body, why) = (escape(&body.join("\n")), escape(&standing.detail));
            let kind = escape(told.first().map_or("", |problem| problem.kind.as_str()));
            let _ = match standing.verdict.as_str() {
                "healthy" => writeln!(xml, "/>"),
                "not known" => {
                    writeln!(xml, ">\n      <error type=\"{kind}\" message=\"{why}\">{body}</error>\n    </testcase>")
                }
                _ => {
                    writeln!(
                        xml,
                        ">\n      <failure type=\"{kind}\" message=\"{why}\">{body}</failure>\n    </testcase>"
                    )
                }
            };
        }
        if none == 1 {
            let (why, verdict) = (escape(self.message.as_deref().unwrap_or(&self.summary)), escape(&self.verdict));
            let _ = writeln!(xml, "    <testcase classname=\"{}\" name=\"validate\">", escape(&self.environment));
            let found: Vec<String> = self.findings.iter().map(Found::line).collect();
            let body = escape(&found.join("\n"));
            let _ = writeln!(xml, "      <error type=\"{verdict}\" message=\"{why}\">{body}</error>\n    </testcase>");
        }
        xml.push_str("  </testsuite>\n</testsuites>\n");
        xml
    }

    /// The first lines of a page.
    pub fn lead(&self) -> Vec<(String, String)> {
        let mut lead = vec![
            ("verdict".to_owned(), self.verdict.clone()),
            ("summary".to_owned(), self.summary.clone()),
            ("scope".to_owned(), self.scope.clone()),
        ];
        lead.extend(self.commit.as_ref().map(|commit| ("commit".to_owned(), commit.clone())));
        lead.push(("looked at".to_owned(), self.ended.strftime("%FT%TZ").to_string()));
        lead
    }

    /// What is wrong, a line each.
    pub fn lines(&self) -> Vec<String> {
        let line = |problem: &Problem| {
            let Problem { component, verdict, code, kind, diagnosis, next, .. } = problem;
            format!("{component}: {verdict} ({code} {kind}): {diagnosis}; next: {next}")
        };
        self.failures.iter().map(line).collect()
    }
}

/// What changed from one report to the next, a line for each component; of a first one what it comes to. What only grew older
/// is no change.
pub fn changes(before: Option<&ValidationReport>, after: &ValidationReport) -> Vec<String> {
    let Some(before) = before else { return vec![format!("{}: {}", after.verdict, after.summary)] };
    let told = |report: &ValidationReport, name: &str| -> BTreeSet<(String, Option<String>)> {
        let mine = report.failures.iter().filter(|problem| problem.component == name);
        mine.map(|problem| (problem.kind.clone(), problem.resource.clone())).collect()
    };
    let earlier: BTreeMap<&str, &Standing> =
        before.components.iter().map(|standing| (standing.component.as_str(), standing)).collect();
    let mut lines = Vec::new();
    for standing in &after.components {
        let name = standing.component.as_str();
        let was = earlier.get(name).map(|standing| standing.verdict.as_str());
        if was == Some(standing.verdict.as_str()) && told(before, name) == told(after, name) {
            continue;
        }
        let from = was.map(|was| format!("{was} → ")).unwrap_or_default();
        let detail = if standing.detail.is_empty() { String::new() } else { format!(": {}", standing.detail) };
        lines.push(format!("{name}: {from}{}{detail}", standing.verdict));
    }
    let now: BTreeSet<&str> = after.components.iter().map(|standing| standing.component.as_str()).collect();
    let gone = before.components.iter().filter(|standing| !now.contains(standing.component.as_str()));
    lines.extend(gone.map(|standing| format!("{}: is not there any more", standing.component)));
    if before.verdict != after.verdict {
        lines.push(format!("{} → {}: {}", before.verdict, after.verdict, after.summary));
    }
    lines
}
