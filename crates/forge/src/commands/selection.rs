//! What several commands need: a repository that can be used, one environment of it, its graph.

use forge_core::code::Code;
use forge_core::graph::Graph;
use forge_core::repository::{EnvironmentFiles, Repository};
use forge_core::validate::Report;

use crate::cli::Global;
use crate::failure::Failure;
use crate::load;
use crate::output::Output;

/// Reads the repository and checks everything about it.
pub(super) fn report(global: &Global) -> Result<Report, Failure> {
    let root = load::root(global.repo.as_deref())?;
    load::lint(&root).map_err(|message| {
        Failure::new(Code::Unreadable, message).hint("check the folder and its permissions, then run the command again")
    })
}

/// The repository, if its own files can be used; says so if lint has more to say.
pub(super) fn repository(global: &Global, output: &mut Output<'_>) -> Result<Repository, Failure> {
    let report = report(global)?;
    let Some(repository) = report.repository else { return Err(Failure::unusable(report.findings)) };
    if !report.findings.is_empty() {
        output.say(&format!("note: {} lint findings; `forge lint` shows them\n", report.findings.len()));
    }
    Ok(repository)
}

/// An environment by name.
pub(super) fn environment<'r>(repository: &'r Repository, name: &str) -> Result<&'r EnvironmentFiles, Failure> {
    repository.environment(name).ok_or_else(|| {
        let name = forge_core::name::clip(name);
        Failure::new(Code::UnknownName, format!("no environment `{name}` in forge.yaml"))
            .hint(format!("environments: {}", names(repository)))
    })
}

pub(super) fn names(repository: &Repository) -> String {
    let names: Vec<&str> = repository.environments.iter().map(|files| files.environment.name.as_str()).collect();
    names.join(", ")
}

/// The graph of an environment, or of `graph.yaml` alone.
pub(super) fn graph(repository: &Repository, files: Option<&EnvironmentFiles>) -> Result<Graph, Failure> {
    let build = match files {
        Some(files) => repository.environment_graph(files),
        None => repository.base_graph(),
    };
    build.graph.ok_or_else(|| Failure::unusable(build.findings))
}
