//! Findings for people, for programs, for code scanning (SARIF 2.1.0) and for CI servers (JUnit).

use std::collections::BTreeSet;
use std::fmt::Write as _;

use forge_core::code::Code;
use forge_core::finding::{Finding, Place};
use forge_core::render::escape;
use forge_core::validate::Report;
use serde_json::{Value, json};

use crate::output::{Output, Paint};

pub(crate) fn text(report: &Report, output: &Output<'_>) -> String {
    let mut text = String::new();
    for finding in &report.findings {
        text.push_str(&output.finding(finding));
    }
    for allowed in &report.suppressed {
        let word = output.paint(Paint::Dim, "allowed");
        let Finding { code, place, .. } = &allowed.finding;
        let _ = writeln!(text, "{place}: {word} {code}: {}", allowed.reason);
    }
    for note in &report.notes {
        let word = output.paint(Paint::Dim, "note");
        let _ = writeln!(text, "{}: {word}: {}", note.place, note.message);
    }
    text
}

pub(crate) fn json(report: &Report) -> String {
    let value = json!({
        "files": report.files,
        "findings": report.findings,
        "suppressed": report.suppressed,
        "notes": report.notes,
    });
    format!("{value:#}\n")
}

pub(crate) fn sarif(report: &Report) -> String {
    let used: BTreeSet<Code> = report
        .findings
        .iter()
        .map(|finding| finding.code)
        .chain(report.suppressed.iter().map(|suppressed| suppressed.finding.code))
        .collect();
    let rules: Vec<Value> = used
        .iter()
        .map(|code| {
            json!({
                "id": code.id(),
                "shortDescription": {"text": code.title()},
                "help": {"text": code.page(), "markdown": code.page()},
            })
        })
        .collect();
    let standing = report.findings.iter().map(|finding| result(finding, None));
    let allowed = report.suppressed.iter().map(|allowed| result(&allowed.finding, Some(&allowed.reason)));
    let notes = report.notes.iter().map(|note| {
        let message = json!({"text": note.message});
        json!({"level": "note", "message": message, "locations": [{"physicalLocation": location(&note.place)}]})
    });
    let value = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {"name": "forge", "version": env!("CARGO_PKG_VERSION"), "rules": rules}},
            "columnKind": "unicodeCodePoints",
            "results": standing.chain(allowed).chain(notes).collect::<Vec<_>>(),
        }],
    });
    format!("{value:#}\n")
}

fn result(finding: &Finding, reason: Option<&String>) -> Value {
    let fix = finding.fix.as_ref().map(|fix| format!(" (fix: {fix})")).unwrap_or_default();
    let suppressions = match reason {
        Some(reason) => json!([{"kind": "inSource", "justification": reason}]),
        None => json!([]),
    };
    json!({
        "ruleId": finding.code.id(),
        "level": "error",
        "message": {"text": format!("{}{fix}", finding.message)},
        "locations": [{"physicalLocation": location(&finding.place)}],
        "suppressions": suppressions,
    })
}

fn location(place: &Place) -> Value {
    let mut location = json!({"artifactLocation": {"uri": uri(place)}});
    if let (Some(at), Value::Object(fields)) = (place.at, &mut location) {
        fields.insert("region".to_owned(), json!({"startLine": at.line, "startColumn": at.column}));
    }
    location
}

/// A path as a relative URI reference.
fn uri(place: &Place) -> String {
    let mut uri = String::new();
    for byte in place.path.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'-' | b'_' | b'.' | b'~') {
            uri.push(char::from(byte));
        } else {
            let _ = write!(uri, "%{byte:02X}");
        }
    }
    uri
}

pub(crate) fn junit(report: &Report) -> String {
    let (failures, skipped) = (report.findings.len(), report.suppressed.len());
    let tests = (failures + skipped).max(1);
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(
        xml,
        "<testsuites name=\"forge lint\" tests=\"{tests}\" failures=\"{failures}\" skipped=\"{skipped}\">\n  \
         <testsuite name=\"forge lint\" tests=\"{tests}\" failures=\"{failures}\" skipped=\"{skipped}\">"
    );
    for finding in &report.findings {
        let fix = finding.fix.as_ref().map(|fix| format!("\nfix: {fix}")).unwrap_or_default();
        let _ = writeln!(
            xml,
            "    <testcase classname=\"{}\" name=\"{}\">\n      <failure type=\"{}\" message=\"{}\">{}{}</failure>\n    </testcase>",
            finding.code,
            escape(&finding.place.to_string()),
            finding.code,
            escape(&finding.message),
            escape(finding.code.title()),
            escape(&fix)
        );
    }
    for allowed in &report.suppressed {
        let _ = writeln!(
            xml,
            "    <testcase classname=\"{}\" name=\"{}\">\n      <skipped message=\"{}\"/>\n    </testcase>",
            allowed.finding.code,
            escape(&allowed.finding.place.to_string()),
            escape(&allowed.reason)
        );
    }
    if failures + skipped == 0 {
        let _ = writeln!(xml, "    <testcase classname=\"forge\" name=\"{} files\"/>", report.files);
    }
    xml.push_str("  </testsuite>\n</testsuites>\n");
    xml
}
