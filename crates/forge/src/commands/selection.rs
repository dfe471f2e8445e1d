//! What several commands need: a repository that can be used, one environment of it, its graph.

use std::collections::{BTreeMap, BTreeSet};

use forge_core::code::Code;
use forge_core::finding::{Finding, Suppressed};
use forge_core::format::{Reference, Subject};
use forge_core::graph::{Graph, NodeIx, SYSTEM_STACK};
use forge_core::health::HealthChecks;
use forge_core::preflight::Component;
use forge_core::repository::{EnvironmentFiles, Repository};
use forge_core::validate::Report;
use serde_json::Value;

use crate::cli::Global;
use crate::load;
use crate::output::Output;
use forge_core::failure::Failure;

/// Reads the repository and checks everything about it.
pub(crate) fn report(global: &Global) -> Result<Report, Failure> {
    let root = load::root(global.repo.as_deref())?;
    load::lint(&root).map_err(|message| {
        Failure::new(Code::Unreadable, message).hint("check the folder and its permissions, then run the command again")
    })
}

/// A repository whose own files can be used, and what lint has to say about it beyond that.
pub(crate) struct Usable {
    pub(crate) repository: Repository,
    findings: Vec<Finding>,
    suppressed: Vec<Suppressed>,
}

/// The repository, if its own files can be used.
pub(crate) fn repository(global: &Global) -> Result<Usable, Failure> {
    Usable::of(report(global)?)
}

impl Usable {
    /// The repository that was read, if its own files can be used.
    pub(crate) fn of(report: Report) -> Result<Self, Failure> {
        match report.repository {
            Some(repository) => Ok(Self { repository, findings: report.findings, suppressed: report.suppressed }),
            None => Err(Failure::unusable(report.findings)),
        }
    }

    /// The codes that comments allow in a folder of the repository.
    pub(crate) fn allowed(&self, folder: &str) -> BTreeSet<Code> {
        let below = format!("{}/", folder.trim_matches('/'));
        let there = self.suppressed.iter().filter(|allowed| allowed.finding.place.path.starts_with(&below));
        there.map(|allowed| allowed.finding.code).collect()
    }

    /// Says that lint has more to say, once the command has done its work.
    pub(crate) fn note(&self, output: &mut Output<'_>) {
        match self.findings.len() {
            0 => {}
            1 => output.say("\nnote: lint has 1 finding; `forge lint` shows it"),
            count => output.say(&format!("\nnote: lint has {count} findings; `forge lint` shows them")),
        }
    }

    /// The health checks that Argo CD is to have, if those of the repository can all be used.
    pub(crate) fn health_checks(&self) -> Result<HealthChecks, Failure> {
        self.repository.health_checks().map_err(|unusable| {
            let paths: Vec<&str> = unusable.iter().map(String::as_str).collect();
            let message = format!("{} cannot be used as a health check for Argo CD", paths.join(", "));
            let about = |finding: &&Finding| unusable.contains(&finding.place.path);
            let mut failure =
                Failure::new(Code::Unusable, message).hint("fix what is listed above, or remove the file");
            failure.findings = self.findings.iter().filter(about).cloned().collect();
            failure
        })
    }

    /// The values that charts are given, if those of the repository can all be used.
    pub(crate) fn values(&self) -> Result<&BTreeMap<Component, Value>, Failure> {
        let files = &self.repository.values;
        if files.unusable.is_empty() {
            return Ok(&files.values);
        }
        let paths: Vec<&str> = files.unusable.iter().map(String::as_str).collect();
        let message = format!("{} cannot be used as values of a chart", paths.join(", "));
        let about = |finding: &&Finding| files.unusable.contains(&finding.place.path);
        let mut failure = Failure::new(Code::Unusable, message).hint("fix what is listed above, or remove the file");
        failure.findings = self.findings.iter().filter(about).cloned().collect();
        Err(failure)
    }

    /// Refuses a scope in which a project has no release to run.
    pub(crate) fn require_pointers(
        &self,
        files: &EnvironmentFiles,
        graph: &Graph,
        nodes: &[NodeIx],
    ) -> Result<(), Failure> {
        let missing = nodes.iter().filter_map(|node| match &graph.node(*node).subject {
            Subject::Project(id) if !files.projects.contains_key(id) => Some(id),
            _ => None,
        });
        let paths: Vec<String> = missing
            .map(|id| format!("{}/apps/{}/{}/release.yaml", files.environment.path, id.repo, id.project))
            .collect();
        if paths.is_empty() {
            return Ok(());
        }
        let here = format!("in environment `{}`", files.environment.name.value);
        let tells = |f: &&Finding| {
            paths.contains(&f.place.path) || (f.code == Code::NodeWithoutPointer && f.message.ends_with(&here))
        };
        Err(Failure::unusable(self.findings.iter().filter(tells).cloned().collect()))
    }
}

/// An environment by name.
pub(crate) fn environment<'r>(repository: &'r Repository, name: &str) -> Result<&'r EnvironmentFiles, Failure> {
    repository.environment(name).ok_or_else(|| {
        let name = forge_core::name::clip(name);
        Failure::new(Code::UnknownName, format!("no environment `{name}` in forge.yaml"))
            .hint(format!("environments: {}", names(repository)))
    })
}

pub(crate) fn names(repository: &Repository) -> String {
    let names: Vec<&str> = repository.environments.iter().map(|files| files.environment.name.as_str()).collect();
    names.join(", ")
}

/// What a node waits for, cut to fit a line. That everything waits for Forge's own first nodes goes without saying.
pub(crate) fn waits_for<'r>(references: impl Iterator<Item = &'r Reference>, width: usize) -> String {
    let mut text = String::new();
    let system = |reference: &&Reference| matches!(reference, Reference::Stack(name) if name.as_str() == SYSTEM_STACK);
    let mut told: Vec<String> = references.filter(|r| !system(r)).map(Reference::to_string).collect();
    // What a node waits for by itself says more than what its whole stack waits for.
    told.sort_by_key(|name| name.starts_with("stack:"));
    for (i, name) in told.iter().enumerate() {
        let more = format!(" +{}", told.len() - i);
        if !text.is_empty() && text.len() + 2 + name.len() + 4 > width {
            text.push_str(&more);
            break;
        }
        if i > 0 {
            text.push_str(", ");
        }
        text.push_str(name);
    }
    text
}

/// A chain of nodes over as many lines as it needs.
pub(crate) fn chain(nodes: &[&str]) -> String {
    let mut text = String::from(" ");
    let mut width = 1;
    for (i, node) in nodes.iter().enumerate() {
        let arrow = if i == 0 { "" } else { "→ " };
        if width + node.len() + 4 > 98 {
            text.push_str("\n ");
            width = 1;
        }
        text.push_str(&format!(" {arrow}{node}"));
        width += node.len() + 1 + arrow.chars().count();
    }
    text
}

/// The graph of an environment, or of `graph.yaml` alone.
pub(crate) fn graph(repository: &Repository, files: Option<&EnvironmentFiles>) -> Result<Graph, Failure> {
    let build = match files {
        Some(files) => repository.environment_graph(files),
        None => repository.base_graph(),
    };
    build.graph.ok_or_else(|| Failure::unusable(build.findings))
}
