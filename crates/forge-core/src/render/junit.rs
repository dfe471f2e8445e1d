//! A report as JUnit XML, for the servers that know nothing else: of a run with one test case per node, of other things with
//! one for each that was looked at.

use std::fmt::Write as _;

use jiff::Timestamp;

use crate::render::escape;
use crate::view::RunReport;

/// Something that was looked at.
pub struct TestCase {
    /// What it is a part of.
    pub class: &'static str,
    /// Its name.
    pub name: String,
    /// What came of it.
    pub outcome: TestOutcome,
}

/// What came of looking.
pub enum TestOutcome {
    /// It is well.
    Passed,
    /// It is well, and there is something to say.
    Said(String),
    /// It was not looked at, and why.
    Skipped(String),
    /// It is not well.
    Failed(TestTrouble),
    /// It could not be looked at.
    Broken(TestTrouble),
}

/// What is wrong.
pub struct TestTrouble {
    /// The code.
    pub kind: String,
    /// In a sentence.
    pub message: String,
    /// All of it.
    pub body: String,
}

/// Writes test cases as one suite.
pub fn suite(name: &str, started: Timestamp, seconds: u64, cases: &[TestCase]) -> String {
    let of = |fits: fn(&TestOutcome) -> bool| cases.iter().filter(|case| fits(&case.outcome)).count();
    let counts = format!(
        "tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{seconds}\"",
        cases.len(),
        of(|outcome| matches!(outcome, TestOutcome::Failed(_))),
        of(|outcome| matches!(outcome, TestOutcome::Broken(_))),
        of(|outcome| matches!(outcome, TestOutcome::Skipped(_))),
    );
    let name = escape(name);
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"{name}\" {counts}>\n  <testsuite name=\"{name}\" {counts} timestamp=\"{}\">\n",
        started.strftime("%FT%TZ")
    );
    for case in cases {
        let _ = write!(xml, "    <testcase classname=\"{}\" name=\"{}\"", escape(case.class), escape(&case.name));
        let inside = match &case.outcome {
            TestOutcome::Passed => {
                xml.push_str("/>\n");
                continue;
            }
            TestOutcome::Said(text) => format!("<system-out>{}</system-out>", escape(text)),
            TestOutcome::Skipped(why) => format!("<skipped message=\"{}\"/>", escape(why)),
            TestOutcome::Failed(trouble) => trouble.element("failure"),
            TestOutcome::Broken(trouble) => trouble.element("error"),
        };
        let _ = writeln!(xml, ">\n      {inside}\n    </testcase>");
    }
    xml.push_str("  </testsuite>\n</testsuites>\n");
    xml
}

impl TestTrouble {
    fn element(&self, name: &str) -> String {
        let (kind, message, body) = (escape(&self.kind), escape(&self.message), escape(&self.body));
        format!("<{name} type=\"{kind}\" message=\"{message}\">{body}</{name}>")
    }
}

/// Writes a report. A node that failed is a failure; one that never started or did not end is skipped, and says why.
/// A run that did not end well although no node failed is an error of its own, because skipped cases alone are green.
pub fn junit(report: &RunReport) -> String {
    let s = &report.statistics;
    let skipped = s.nodes.saturating_sub(s.proven + s.gone + s.failed);
    let errors = usize::from(report.failed_itself());
    let counts = format!(
        "tests=\"{}\" failures=\"{}\" errors=\"{errors}\" skipped=\"{skipped}\" time=\"{}\"",
        s.nodes + errors,
        s.failed,
        s.makespan_seconds
    );
    let name = escape(format!("forge {} {}", report.environment, report.run).trim_end());
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"{name}\" {counts}>\n  <testsuite name=\"{name}\" {counts} timestamp=\"{}\">\n",
        report.started.strftime("%FT%TZ")
    );
    for component in &report.components {
        let _ = write!(
            xml,
            "    <testcase classname=\"{}\" name=\"{}\" time=\"{}\"",
            escape(&report.environment),
            escape(&component.node),
            component.seconds.unwrap_or(0)
        );
        let failure = report.failures.iter().find(|failure| failure.node == component.node);
        match (component.phase.as_str(), failure) {
            (_, Some(failure)) => {
                let mut body = failure.diagnosis.clone();
                if let Some(resource) = &failure.resource {
                    let _ = write!(body, "\nresource: {resource}");
                }
                let _ = write!(body, "\nnext: {}", failure.next);
                let (class, why, body) = (escape(&failure.class), escape(&failure.diagnosis), escape(&body));
                let _ = writeln!(
                    xml,
                    ">\n      <failure type=\"{class}\" message=\"{why}\">{body}</failure>\n    </testcase>"
                );
            }
            ("proven" | "gone", None) => xml.push_str("/>\n"),
            (phase, None) => {
                let said = component.detail.starts_with(phase);
                let why = if said { component.detail.clone() } else { format!("{phase}: {}", component.detail) };
                let why = escape(why.trim_end_matches(": "));
                let _ = writeln!(xml, ">\n      <skipped message=\"{why}\"/>\n    </testcase>");
            }
        }
    }
    own_words(report, &mut xml);
    xml.push_str("  </testsuite>\n</testsuites>\n");
    xml
}

/// What is said of the run and not of a node.
fn own_words(report: &RunReport, xml: &mut String) {
    if report.failed_itself() {
        let message = escape(report.message.as_deref().unwrap_or(&report.summary));
        let (environment, verdict) = (escape(&report.environment), escape(&report.verdict));
        let mut body = report.summary.clone();
        for found in &report.findings {
            let _ = write!(body, "\n{}", found.line());
        }
        let (seconds, body) = (report.statistics.makespan_seconds, escape(&body));
        let _ = writeln!(xml, "    <testcase classname=\"{environment}\" name=\"run\" time=\"{seconds}\">");
        let _ = writeln!(xml, "      <error type=\"{verdict}\" message=\"{message}\">{body}</error>");
        xml.push_str("    </testcase>\n");
    } else if let Some(message) = &report.message {
        let _ = writeln!(xml, "    <system-out>{}</system-out>", escape(message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{Ended, Verdict};
    use crate::view::sample;

    #[test]
    fn every_node_is_a_test_case_and_nothing_hostile_becomes_markup() {
        let run = sample::stored("r-1", 0);
        let report = RunReport::ended(&run.plan, &run.record, sample::at(100));
        assert_eq!(
            junit(&report),
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>
<testsuites name=\"forge dev r-1\" tests=\"5\" failures=\"1\" errors=\"0\" skipped=\"3\" time=\"100\">
  <testsuite name=\"forge dev r-1\" tests=\"5\" failures=\"1\" errors=\"0\" skipped=\"3\" time=\"100\" timestamp=\"2026-11-16T10:00:00Z\">
    <testcase classname=\"dev\" name=\"a/one\" time=\"12\"/>
    <testcase classname=\"dev\" name=\"a/two\" time=\"46\">
      <failure type=\"unhealthy\" message=\"health stayed Degraded\">health stayed Degraded&#10;next: see what is not well: `kubectl get pods` in its namespace and `argocd app get argocd/dev-a-two`; repair it, then deploy again: proven nodes pass without a sync</failure>
    </testcase>
    <testcase classname=\"dev\" name=\"b/one\" time=\"0\">
      <skipped message=\"blocked by `a/two`, which failed\"/>
    </testcase>
    <testcase classname=\"dev\" name=\"argocd/proxy\" time=\"0\">
      <skipped message=\"syncing: sync 1 runs: applying \u{fffd}[2J&lt;b&gt;\"/>
    </testcase>
    <testcase classname=\"dev\" name=\"b/two\" time=\"0\">
      <skipped message=\"waiting: `argocd/proxy` is not proven\"/>
    </testcase>
  </testsuite>
</testsuites>
"
        );
    }

    #[test]
    fn a_run_that_ended_badly_without_a_failed_node_is_not_green() {
        for (verdict, message) in [
            (Verdict::Failed, Some("its Workflow was lost 30 times")),
            (Verdict::TimedOut, Some("the run took too long")),
            (Verdict::Cancelled, Some("cancelled by <eve>")),
            (Verdict::Partial, None),
        ] {
            let mut run = sample::all_proven("r-1", 0);
            run.record.entries.remove(&"b/one".parse().unwrap());
            let message = message.map(str::to_owned);
            run.record.header.ended = Some(Ended { at: sample::at(40), verdict, message: message.clone() });
            let xml = junit(&RunReport::new(&run.plan, &run.record, sample::at(100)));
            assert_eq!(xml.matches("tests=\"6\" failures=\"0\" errors=\"1\" skipped=\"1\"").count(), 2, "{xml}");
            let why = message
                .unwrap_or_else(|| "4 of 5 nodes proven (3 synced, 1 unchanged), 1 unfinished in 40s".to_owned());
            let error = format!(
                "    <testcase classname=\"dev\" name=\"run\" time=\"40\">\n      <error type=\"{}\" message=\"{}\">",
                verdict.as_str(),
                escape(&why)
            );
            assert!(xml.contains(&error), "{xml}");
        }
    }

    #[test]
    fn what_the_run_says_beside_a_failed_node_is_kept() {
        let mut run = sample::stored("r-1", 0);
        let message = Some("cancelled by bob".to_owned());
        run.record.header.ended = Some(Ended { at: sample::at(40), verdict: Verdict::Cancelled, message });
        let xml = junit(&RunReport::new(&run.plan, &run.record, sample::at(100)));
        assert!(xml.contains("    <system-out>cancelled by bob</system-out>\n") && !xml.contains("<error"), "{xml}");
    }

    #[test]
    fn a_run_that_goes_well_or_still_runs_has_no_error() {
        for run in [sample::all_proven("r-1", 0), sample::stored("r-1", 0)] {
            let xml = junit(&RunReport::new(&run.plan, &run.record, sample::at(100)));
            assert!(xml.contains("tests=\"5\"") && !xml.contains("<error"), "{xml}");
        }
    }
}
