//! What the checks came to: findings, a line for each check, and how the command ends. One type for text, JSON and JUnit;
//! the JSON Schema is made of it.

use std::fmt::Write as _;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Check, count};
use crate::exit::Exit;
use crate::name::clean;
use crate::render::{TestCase, TestOutcome, TestTrouble, suite};
use crate::view::{between, shown};

/// How many lines of evidence a finding has.
const MOST: usize = 20;

/// What a finding means for whoever wants to go on. The worst comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Severity {
    /// Nothing goes on before it is put right.
    Blocking,
    /// It could not be checked, so nothing is known.
    Failed,
    /// It will do, and may hurt later.
    Warning,
    /// Good to know.
    Note,
}

impl Severity {
    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Blocking => "blocking",
            Self::Failed => "failed",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// One thing that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The check, by its stable name.
    #[schemars(with = "String")]
    pub check: Check,
    /// The code whose page explains it.
    pub code: String,
    /// blocking, failed, warning or note.
    #[schemars(with = "String")]
    pub severity: Severity,
    /// What was seen.
    pub what: String,
    /// What follows from it.
    pub means: String,
    /// The objects that it is about, and what Kubernetes says in its own words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
    /// The next step.
    pub fix: String,
}

impl Finding {
    /// A finding without evidence.
    pub fn new(
        check: Check,
        severity: Severity,
        what: impl AsRef<str>,
        means: impl AsRef<str>,
        fix: impl AsRef<str>,
    ) -> Self {
        let text = |text: &str| clean(text).into_owned();
        Self {
            check,
            code: check.code().id().to_owned(),
            severity,
            what: text(what.as_ref()),
            means: text(means.as_ref()),
            evidence: Vec::new(),
            fix: text(fix.as_ref()),
        }
    }

    /// In a line, without what to do.
    pub fn told(&self) -> String {
        let evidence: String = self.evidence.iter().map(|seen| format!("; seen: {seen}")).collect();
        format!("{}; {}{evidence}", self.what, self.means)
    }

    /// With what it rests on; what says nothing is left out, and there is not too much of it.
    #[must_use]
    pub fn because<T: AsRef<str>>(mut self, evidence: impl IntoIterator<Item = T>) -> Self {
        let all: Vec<String> =
            evidence.into_iter().map(|line| shown(line.as_ref().trim())).filter(|line| !line.is_empty()).collect();
        let more = all.len().saturating_sub(MOST);
        self.evidence.extend(all.into_iter().take(MOST));
        if more > 0 {
            self.evidence.push(format!("… and {more} more"));
        }
        self
    }
}

/// What was asked of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Looked<T> {
    /// It was seen, completely.
    Saw(T),
    /// The account may not look.
    NotPermitted(String),
    /// It could not be seen.
    Failed(String),
}

impl<T> Looked<T> {
    /// With something made of what was seen.
    pub fn map<U>(self, make: impl FnOnce(T) -> U) -> Looked<U> {
        match self {
            Self::Saw(seen) => Looked::Saw(make(seen)),
            Self::NotPermitted(why) => Looked::NotPermitted(why),
            Self::Failed(why) => Looked::Failed(why),
        }
    }

    /// What was seen.
    pub fn saw(&self) -> Option<&T> {
        match self {
            Self::Saw(seen) => Some(seen),
            Self::NotPermitted(_) | Self::Failed(_) => None,
        }
    }

    /// The judgement about what was seen; about what was not, that it was not.
    pub fn judged(&self, check: Check, judge: impl FnOnce(&T) -> Judged) -> Judged {
        match self {
            Self::Saw(seen) => judge(seen),
            Self::NotPermitted(why) => {
                let mut judged = Judged::skipped(check, "the account may not look");
                let fix = "ask for the right that is named, or run `forge preflight` as somebody who has it";
                let what = format!("not checked whether {}", check.title());
                let means = "it may be well, or it may stop bootstrap or a run later";
                judged.findings.push(Finding::new(check, Severity::Note, what, means, fix).because([why]));
                judged
            }
            Self::Failed(why) => Judged::failed(check, why),
        }
    }
}

/// What a check came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// The check.
    pub check: Check,
    /// What was seen, in a few words.
    pub seen: String,
    /// It was not made.
    pub skipped: bool,
    /// What was found.
    pub findings: Vec<Finding>,
}

impl Judged {
    /// A check that was made.
    pub fn new(check: Check, seen: impl AsRef<str>) -> Self {
        Self { check, seen: shown(seen.as_ref()), skipped: false, findings: Vec::new() }
    }

    /// A check that was not made, and why that is right.
    pub fn skipped(check: Check, why: impl AsRef<str>) -> Self {
        Self { skipped: true, ..Self::new(check, why) }
    }

    /// A check that could not be made.
    pub fn failed(check: Check, why: impl AsRef<str>) -> Self {
        let what = format!("it could not be checked whether {}", check.title());
        let means = "nothing is known about it, so nothing goes on";
        let fix = "run `forge preflight` again; if it stays like that, `kubectl get --raw /readyz` with the same context must say ok";
        let finding = Finding::new(check, Severity::Failed, what, means, fix).because([why.as_ref()]);
        Self { findings: vec![finding], ..Self::new(check, "could not be checked") }
    }

    /// With a finding.
    #[must_use]
    pub fn with(mut self, finding: Finding) -> Self {
        self.findings.push(finding);
        self
    }

    /// The worst of what was found.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).min()
    }
}

/// What came of all checks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(title = "PreflightReport")]
pub struct PreflightReport {
    /// The cluster, by the context of the kubeconfig.
    pub context: String,
    /// The version of Kubernetes, where the API server says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<String>,
    /// The image that was started, or would have been.
    pub image: String,
    /// ready, not ready, or not known.
    pub verdict: String,
    /// In a sentence.
    pub summary: String,
    /// What `forge preflight` exits with.
    pub exit: u8,
    /// When it began.
    #[schemars(with = "String")]
    pub started: Timestamp,
    /// When it ended.
    #[schemars(with = "String")]
    pub ended: Timestamp,
    /// All checks in their order.
    pub checks: Vec<Checked>,
    /// What was found, the worst first.
    pub findings: Vec<Finding>,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Checked {
    /// Its stable name.
    #[schemars(with = "String")]
    pub check: Check,
    /// What is true when it finds nothing.
    pub title: String,
    /// passed, skipped, or the worst severity of what it found.
    pub result: String,
    /// What was seen.
    pub seen: String,
}

impl PreflightReport {
    /// The report of these checks.
    pub fn new(
        context: &str,
        kubernetes: Option<&str>,
        image: &str,
        mut judged: Vec<Judged>,
        (started, ended): (Timestamp, Timestamp),
    ) -> Self {
        judged.sort_by_key(|judged| judged.check);
        let checks: Vec<Checked> = judged
            .iter()
            .map(|judged| Checked {
                check: judged.check,
                title: judged.check.title().to_owned(),
                result: match (judged.worst(), judged.skipped) {
                    (None | Some(Severity::Note), true) => "skipped".to_owned(),
                    (None | Some(Severity::Note), false) => "passed".to_owned(),
                    (Some(worst), _) => worst.as_str().to_owned(),
                },
                seen: judged.seen.clone(),
            })
            .collect();
        let mut findings: Vec<Finding> = judged.into_iter().flat_map(|judged| judged.findings).collect();
        // Stable: within a severity by check, and within a check as it was judged.
        findings.sort_by_key(|finding| finding.severity);
        let exit = exit(&findings);
        let verdict = match exit {
            Exit::Done => "ready",
            Exit::Invalid => "not ready",
            _ => "not known",
        };
        let mut report = Self {
            context: shown(context),
            kubernetes: kubernetes.map(shown),
            image: shown(image),
            verdict: verdict.to_owned(),
            summary: String::new(),
            exit: exit as u8,
            started,
            ended,
            checks,
            findings,
        };
        report.summary = report.summed_up();
        report
    }

    /// How a command ends with it: 3 where something must be put right, 1 where something could not be checked.
    pub fn exit(&self) -> Exit {
        exit(&self.findings)
    }

    /// How many findings there are of a severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }

    /// What keeps anything from being written: what blocks, and what could not be checked.
    pub fn obstacles(&self) -> Vec<crate::finding::Finding> {
        let stops = |finding: &&Finding| matches!(finding.severity, Severity::Blocking | Severity::Failed);
        let obstacle = |finding: &Finding| {
            let place = crate::finding::Place::whole(finding.check.id());
            crate::finding::Finding::new(finding.check.code(), place, finding.told()).with_fix(&finding.fix)
        };
        self.findings.iter().filter(stops).map(obstacle).collect()
    }

    fn summed_up(&self) -> String {
        let mut parts = Vec::new();
        for (severity, what) in [
            (Severity::Blocking, "blocking finding"),
            (Severity::Failed, "failed check"),
            (Severity::Warning, "warning"),
            (Severity::Note, "note"),
        ] {
            let found = self.count(severity);
            if found > 0 {
                parts.push(count(found, what));
            }
        }
        let passed = self.checks.iter().filter(|check| check.result == "passed").count();
        parts.push(format!("{passed} of {} passed", count(self.checks.len(), "check")));
        format!("{} in {}", parts.join(", "), between(self.started, self.ended))
    }

    /// For people, at most 100 columns wide where the words allow it.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let kubernetes = self.kubernetes.as_deref().map(|version| format!(", Kubernetes {version}"));
        let _ = writeln!(text, "{}{}: {}", self.context, kubernetes.unwrap_or_default(), self.verdict);
        let _ = writeln!(text, "{}\n", self.summary);
        for checked in &self.checks {
            let _ = writeln!(text, "  {:<8}  {:<14}  {}", checked.result, checked.check, checked.seen);
        }
        for finding in &self.findings {
            let _ = write!(text, "\n{}", finding.text());
        }
        text
    }

    /// As JUnit: one test case per check. What blocks is a failure, what could not be checked an error.
    pub fn junit(&self) -> String {
        let case = |checked: &Checked| {
            let found: Vec<&Finding> = self.findings.iter().filter(|found| found.check == checked.check).collect();
            let body = found.iter().map(|finding| finding.text()).collect::<Vec<_>>().join("\n");
            let message = found.first().map_or(&checked.seen, |finding| &finding.what).clone();
            let kind = checked.check.code().to_string();
            let outcome = match checked.result.as_str() {
                "blocking" => TestOutcome::Failed(TestTrouble { kind, message, body }),
                "failed" => TestOutcome::Broken(TestTrouble { kind, message, body }),
                "skipped" => TestOutcome::Skipped(checked.seen.clone()),
                _ if !found.is_empty() => TestOutcome::Said(body),
                _ => TestOutcome::Passed,
            };
            TestCase { class: "preflight", name: checked.check.to_string(), outcome }
        };
        let cases: Vec<TestCase> = self.checks.iter().map(case).collect();
        let seconds = between(self.started, self.ended).seconds();
        suite(&format!("forge preflight {}", self.context), self.started, seconds, &cases)
    }
}

impl Finding {
    /// For people.
    pub fn text(&self) -> String {
        let mut text = format!("{}: {} ({})\n", self.severity.as_str(), self.check, self.code);
        let _ = writeln!(text, "  what   {}", self.what);
        let _ = writeln!(text, "  means  {}", self.means);
        for (i, line) in self.evidence.iter().enumerate() {
            let _ = writeln!(text, "  {:<5}  {line}", if i == 0 { "seen" } else { "" });
        }
        let _ = writeln!(text, "  fix    {}", self.fix);
        text
    }
}

fn exit(findings: &[Finding]) -> Exit {
    match findings.iter().map(|finding| finding.severity).min() {
        Some(Severity::Blocking) => Exit::Invalid,
        Some(Severity::Failed) => Exit::Findings,
        Some(Severity::Warning | Severity::Note) | None => Exit::Done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(check: Check, severity: Severity) -> Judged {
        let finding =
            Finding::new(check, severity, "something <odd>", "it hurts", "mend it").because(["said\u{1b}[2J"]);
        Judged::new(check, "odd").with(finding)
    }

    fn report(judged: Vec<Judged>) -> PreflightReport {
        let at = |seconds: i64| Timestamp::from_second(1_794_823_200 + seconds).unwrap();
        PreflightReport::new("kind\u{7}", Some("v1.36.3"), "forge@sha256:0", judged, (at(0), at(9)))
    }

    #[test]
    fn what_must_be_put_right_exits_3_what_is_not_known_1_and_a_warning_0() {
        let all = |severities: &[Severity]| {
            report(severities.iter().map(|severity| found(Check::Clock, *severity)).collect())
        };
        assert_eq!(all(&[]).exit(), Exit::Done);
        assert_eq!(all(&[Severity::Note, Severity::Warning]).exit(), Exit::Done);
        assert_eq!(all(&[Severity::Failed, Severity::Warning]).exit(), Exit::Findings);
        let both = all(&[Severity::Failed, Severity::Blocking]);
        assert_eq!((both.exit(), both.exit, both.verdict.as_str()), (Exit::Invalid, 3, "not ready"));
        assert_eq!(report(vec![Judged::failed(Check::Api, "no route to host")]).verdict, "not known");
    }

    #[test]
    fn a_report_is_text_for_people_with_the_worst_first_and_nothing_hostile() {
        let judged = vec![
            found(Check::Storage, Severity::Warning),
            Judged::new(Check::Api, "v1.36.3"),
            found(Check::Rights, Severity::Blocking),
            Judged::skipped(Check::Volume, "nothing needs volumes"),
        ];
        assert_eq!(
            report(judged).text(),
            "kind\u{fffd}, Kubernetes v1.36.3: not ready
1 blocking finding, 1 warning, 1 of 4 checks passed in 9s

  passed    api             v1.36.3
  blocking  rights          odd
  warning   storage         odd
  skipped   volume          nothing needs volumes

blocking: rights (FORGE-B005)
  what   something <odd>
  means  it hurts
  seen   said\u{fffd}[2J
  fix    mend it

warning: storage (FORGE-B008)
  what   something <odd>
  means  it hurts
  seen   said\u{fffd}[2J
  fix    mend it
"
        );
    }

    #[test]
    fn what_blocks_and_what_could_not_be_checked_is_handed_on_with_its_fix_and_nothing_else_is() {
        let judged = vec![
            found(Check::Storage, Severity::Warning),
            Judged::failed(Check::Nodes, "503"),
            found(Check::Rights, Severity::Blocking),
            found(Check::Clock, Severity::Note),
        ];
        let obstacles = report(judged).obstacles();
        let places: Vec<String> = obstacles.iter().map(|obstacle| obstacle.place.to_string()).collect();
        assert_eq!(places, ["rights", "nodes"]);
        let first = obstacles.first().unwrap();
        assert_eq!(first.code, crate::code::Code::RightsMissing);
        assert_eq!(first.message, "something <odd>; it hurts; seen: said\u{fffd}[2J");
        assert_eq!(first.fix.as_deref(), Some("mend it"));
    }

    #[test]
    fn every_check_is_a_test_case_and_counts_add_up() {
        let judged = vec![
            found(Check::Rights, Severity::Blocking),
            Judged::failed(Check::Nodes, "503"),
            found(Check::Clock, Severity::Warning),
            Judged::skipped(Check::Volume, "not \"needed\""),
            Judged::new(Check::Api, "well"),
        ];
        let xml = report(judged).junit();
        assert_eq!(xml.matches("tests=\"5\" failures=\"1\" errors=\"1\" skipped=\"1\" time=\"9\"").count(), 2, "{xml}");
        assert_eq!(xml.matches("<testcase ").count(), 5);
        assert!(xml.contains("<testcase classname=\"preflight\" name=\"api\"/>"), "{xml}");
        assert!(xml.contains("<skipped message=\"not &quot;needed&quot;\"/>"), "{xml}");
        assert!(xml.contains("<failure type=\"FORGE-B005\" message=\"something &lt;odd&gt;\">"), "{xml}");
        assert!(xml.contains("<system-out>warning: clock"), "{xml}");
        assert!(!xml.contains('\u{1b}'));
    }

    #[test]
    fn what_is_written_as_json_reads_back_the_same() {
        let report = report(vec![found(Check::ArgoCd, Severity::Note), Judged::new(Check::Api, "")]);
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<PreflightReport>(&text).unwrap(), report);
        assert!(text.contains("\"check\":\"argo-cd\"") && text.contains("\"severity\":\"note\""), "{text}");
    }

    #[test]
    fn evidence_is_cut_and_what_says_nothing_is_left_out() {
        let lines = (0..50).map(|n| if n % 2 == 0 { String::new() } else { "x".repeat(5_000) });
        let finding = Finding::new(Check::Nodes, Severity::Note, "", "", "").because(lines);
        assert_eq!(finding.evidence.len(), 21);
        assert_eq!(finding.evidence.last().map(String::as_str), Some("… and 5 more"));
        assert!(finding.evidence.iter().all(|line| line.chars().count() <= 401));
    }

    #[test]
    fn what_the_account_may_not_see_is_a_note_and_what_failed_is_a_failure() {
        let judge = |_: &u8| Judged::new(Check::Nodes, "seen");
        assert_eq!(Looked::Saw(1).judged(Check::Nodes, judge).worst(), None);
        let not = Looked::<u8>::NotPermitted("nodes is forbidden".to_owned()).judged(Check::Nodes, judge);
        assert_eq!((not.worst(), not.skipped), (Some(Severity::Note), true));
        let failed = Looked::<u8>::Failed("502".to_owned()).judged(Check::Nodes, judge);
        assert_eq!((failed.worst(), failed.skipped), (Some(Severity::Failed), false));
    }
}
