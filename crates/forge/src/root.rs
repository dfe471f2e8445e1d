//! The root of a repository, `app.yaml`: whether phase 1 applies it, what it holds, and what must be held back before it is
//! there (SPEC.md section 4). Reads files; what they mean is decided in `forge_core::render`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use forge_core::code::Code;
use forge_core::failure::Failure;
use forge_core::format::ArgoInstall;
use forge_core::graph::Scope;
use forge_core::name::EnvironmentName;
use forge_core::plan::plan;
use forge_core::render::{self, Placed};
use forge_core::repository::{ROOT_APP_FILE, Repository};

use crate::commands::selection;
use crate::write_files::read_own;

/// Phase 1 applies it: there is one, and Argo CD is Forge's. Where Argo CD is somebody else's, so is what it is given.
pub(crate) fn is_applied(repository: &Repository) -> bool {
    repository.root && repository.installation.argo.cd == ArgoInstall::Install
}

/// The objects that phase 1 applies, from a checkout; none where it applies none.
///
/// # Errors
/// When the file holds something that cannot be applied.
pub(crate) fn objects(folder: &Path, repository: &Repository) -> Result<Vec<Placed>, Failure> {
    if !is_applied(repository) {
        return Ok(Vec::new());
    }
    let unusable = |why: String| {
        Failure::new(Code::Unusable, format!("the root of the repository cannot be applied: {why}"))
            .hint("`forge init` in an empty folder shows what belongs into it")
    };
    // A link of the repository must not lead this out of it.
    if !fs::symlink_metadata(folder.join(ROOT_APP_FILE)).is_ok_and(|metadata| metadata.is_file()) {
        return Err(unusable(format!("{ROOT_APP_FILE} is not a regular file")));
    }
    let text = read_own(folder, ROOT_APP_FILE)?;
    render::root(&text, repository.installation.argo.namespace.as_str()).map_err(|error| unusable(error.to_string()))
}

/// What a first window of each environment holds: of those that are prepared, and of all of them where a root is applied,
/// because that brings the Applications of every environment.
///
/// # Errors
/// When the graph of one of them cannot be used.
pub(crate) fn held(
    repository: &Repository,
    prepared: &[EnvironmentName],
) -> Result<Vec<(EnvironmentName, BTreeSet<String>)>, Failure> {
    let mut held = Vec::new();
    for files in &repository.environments {
        let name = &files.environment.name.value;
        if !prepared.contains(name) && !is_applied(repository) {
            continue;
        }
        let graph = selection::graph(repository, Some(files))?;
        let (scope, nodes) = graph.scope(&Scope::Platform, Some(name))?;
        let plan = plan(repository, files, &graph, &scope, &nodes);
        let names = plan.nodes.iter().filter(|node| !node.implicit).map(|node| node.application.name.clone());
        held.push((name.clone(), names.collect()));
    }
    Ok(held)
}
