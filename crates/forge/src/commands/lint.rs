//! `forge lint`

use clap::{Args, ValueEnum};
use forge_core::code::Code;

use super::selection;
use crate::cli::Global;
use crate::lint_report::{json, junit, sarif, text};
use crate::output::Output;
use forge_core::exit::Exit;
use forge_core::failure::Failure;

/// Say everything that is wrong with the repository, at once
///
/// Exit code 0 means clean, 1 means findings, 3 means that there is no forge.yaml that can be used. A finding can be allowed by a
/// comment on its line or above it that names the code and a reason: `# forge:allow FORGE-I001 why`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// How to write the findings
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,
    /// Print the page of a code instead
    #[arg(long, value_name = "CODE")]
    explain: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs
    Json,
    /// For code scanning
    Sarif,
    /// For CI servers
    Junit,
}

pub(crate) fn run(global: &Global, arguments: &Arguments, output: &mut Output<'_>) -> Result<Exit, Failure> {
    if let Some(code) = &arguments.explain {
        let code: Code = code.parse().map_err(|error| {
            Failure::new(Code::BadArgument, error).hint("the codes are listed in docs/errors/README.md")
        })?;
        output.data(code.page())?;
        return Ok(Exit::Done);
    }
    let report = selection::report(global)?;
    let rendered = match arguments.output {
        Format::Text => text(&report, output),
        Format::Json => json(&report),
        Format::Sarif => sarif(&report),
        Format::Junit => junit(&report),
    };
    output.data(&rendered)?;
    let count = |n: usize, what: &str| if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") };
    let mut summary = format!("{} in {}", count(report.findings.len(), "finding"), count(report.files, "file"));
    if !report.suppressed.is_empty() {
        summary.push_str(&format!(", {} allowed by comments", report.suppressed.len()));
    }
    output.say(&summary);
    let first = report.findings.first().map(|finding| finding.code);
    let exit = if report.installed { Exit::Findings } else { Exit::Invalid };
    if !report.installed {
        output.say("forge.yaml cannot be used, so only single files were checked");
    }
    // The process ends here, and taking a repository of thousands of files apart takes as long as reading some of it.
    std::mem::forget(report);
    if let Some(code) = first {
        output.say(&format!("\nhint: `forge lint --explain {code}` explains a code"));
        return Ok(exit);
    }
    Ok(Exit::Done)
}
