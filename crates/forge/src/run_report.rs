//! The report of a run as it is written out: for people, for programs, for CI.

use clap::ValueEnum;
use forge_core::render;
use forge_core::view::RunReport;

/// How the report of a run is written.
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
