//! The report of a run, or of a validation, as it is written out: for people, for programs, for CI.

use clap::ValueEnum;
use forge_core::render;
use forge_core::truth::ValidationReport;
use forge_core::view::RunReport;

/// How a report is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// For programs
    Json,
    /// For CI: one test case per node
    Junit,
}

/// The report in that form.
pub(crate) fn document(format: Format, report: &RunReport) -> String {
    match format {
        Format::Text => report.text(),
        Format::Json => format!("{:#}\n", serde_json::json!(report)),
        Format::Junit => render::junit(report),
    }
}

/// The report of a validation in that form.
pub(crate) fn validation(format: Format, report: &ValidationReport) -> String {
    match format {
        Format::Text => report.text(),
        Format::Json => format!("{:#}\n", serde_json::json!(report)),
        Format::Junit => report.junit(),
    }
}
