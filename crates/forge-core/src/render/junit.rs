//! A report as JUnit XML: one test case per node, for the servers that know nothing else.

use std::fmt::Write as _;

use crate::render::escape;
use crate::view::RunReport;

/// Writes a report. A node that failed is a failure; one that never started or did not end is skipped, and says why.
pub fn junit(report: &RunReport) -> String {
    let s = &report.statistics;
    let skipped = s.nodes.saturating_sub(s.proven + s.failed);
    let counts = format!(
        "tests=\"{}\" failures=\"{}\" skipped=\"{skipped}\" time=\"{}\"",
        s.nodes, s.failed, s.makespan_seconds
    );
    let name = escape(&format!("forge {} {}", report.environment, report.run));
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
            ("proven", None) => xml.push_str("/>\n"),
            (phase, None) => {
                let said = component.detail.starts_with(phase);
                let why = if said { component.detail.clone() } else { format!("{phase}: {}", component.detail) };
                let why = escape(why.trim_end_matches(": "));
                let _ = writeln!(xml, ">\n      <skipped message=\"{why}\"/>\n    </testcase>");
            }
        }
    }
    xml.push_str("  </testsuite>\n</testsuites>\n");
    xml
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::sample;

    #[test]
    fn every_node_is_a_test_case_and_nothing_hostile_becomes_markup() {
        let run = sample::stored("r-1", 0);
        let report = RunReport::ended(&run.plan, &run.record, sample::at(100));
        assert_eq!(
            junit(&report),
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>
<testsuites name=\"forge dev r-1\" tests=\"5\" failures=\"1\" skipped=\"3\" time=\"100\">
  <testsuite name=\"forge dev r-1\" tests=\"5\" failures=\"1\" skipped=\"3\" time=\"100\" timestamp=\"2026-11-16T10:00:00Z\">
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
}
