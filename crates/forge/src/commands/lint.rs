//! `forge lint`

use clap::{Args, ValueEnum};
use forge_core::code::Code;
use forge_core::release::Limits;
use forge_core::release::edges::judge;
use forge_core::repository::EnvironmentFiles;
use forge_core::validate::Report;

use super::release::RegistryArguments;
use super::selection;
use crate::cli::Global;
use crate::lint_report::{json, junit, sarif, text};
use crate::output::Output;
use crate::release::profiles::profiles;
use crate::runtime::block_on;
use forge_core::exit::Exit;
use forge_core::failure::Failure;

/// Say everything that is wrong with the repository, at once
///
/// Exit code 0 means clean, 1 means findings, 3 means that there is no forge.yaml that can be used. A finding can be allowed by a
/// comment on its line or above it that names the code and a reason: `# forge:allow FORGE-I001 why`.
///
/// --releases also reads the release that every pointer names, and compares what releases bring and need with the graph:
/// definitions, namespaces, classes, issuers, secret stores, webhooks. A dependency that the graph does not have is a finding with its
/// evidence (FORGE-G011); one that no release explains is a note.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// How to write the findings
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,
    /// Print the page of a code instead
    #[arg(long, value_name = "CODE")]
    explain: Option<String>,
    /// Read releases from their registry, and find dependencies that the graph forgot
    #[arg(long)]
    releases: bool,
    /// Only the releases of these environments; all if absent
    #[arg(long, short, value_delimiter = ',', value_name = "ENVIRONMENT", requires = "releases")]
    environment: Vec<String>,
    #[command(flatten)]
    registry: RegistryArguments,
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
    let mut report = selection::report(global)?;
    if arguments.releases {
        add_releases(global, arguments, &mut report, output)?;
    }
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

/// Reads releases, and adds what they show.
fn add_releases(
    global: &Global,
    arguments: &Arguments,
    report: &mut Report,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let Some(repository) = report.repository.take() else {
        output.say("releases were not read: the repository cannot be used as it is");
        return Ok(());
    };
    let mut chosen: Vec<&EnvironmentFiles> = Vec::new();
    for name in &arguments.environment {
        chosen.push(selection::environment(&repository, name)?);
    }
    let whole = chosen.is_empty();
    if whole {
        chosen.extend(&repository.environments);
    }
    if chosen.iter().all(|files| files.projects.is_empty()) {
        output.say("no releases to read: no environment has a pointer");
        return Ok(());
    }
    let prefix = arguments.registry.prefix(global)?;
    let registry = arguments.registry.client()?;
    output.say(&format!("reading releases from {}", forge_core::name::clip(&prefix)));
    let read = block_on(profiles(&chosen, &prefix, &registry, &Limits::default()))??;
    let mut judged = judge(&repository, &read.profiles);
    // What could not be read could be what a comment is about.
    let whole = whole && read.findings.is_empty();
    judged.findings.extend(read.findings);
    report.add_releases(judged, whole);
    output.say(&format!("read {} release{}", read.releases, if read.releases == 1 { "" } else { "s" }));
    Ok(())
}
