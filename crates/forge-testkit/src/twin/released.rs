//! A twin that is deployed from releases: projects with pointers, in the layout that `forge init` writes and by the same code, so
//! that phase 1 applies its root and nobody applies an Application.

#![allow(clippy::panic, reason = "a driver of tests fails by panicking, with what it saw")]

use std::collections::BTreeMap;

use forge_core::digest::{CommitId, Digest};
use forge_core::format::{API_VERSION, Environment, Installation};
use forge_core::install::CMP;
use forge_core::name::ProjectId;
use forge_core::scaffold::{self, With};
use forge_core::validate::{self, Content};
use serde_json::{Value, json};

use super::{Group, Member, Options, TwinNode, graph, installation};
use crate::example;
use crate::releases::PLAIN_HTTP;

/// The source repository of all projects.
const REPO: &str = "twin";

/// Which release a project runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pointer {
    /// The commit that the release is of.
    pub commit: CommitId,
    /// Which it is.
    pub digest: Digest,
}

/// The project of a node, as `graph.yaml` and commands name it. Its Application, and its namespace, are
/// `<environment>-twin-<node>`.
pub fn node_id(node: &str) -> String {
    format!("{REPO}/{node}")
}

/// The files of a repository whose projects are these nodes, each with its pointer. Releases are kept in this registry. There is
/// no `env.yaml`, because nothing here serves EnvironmentConfigs, so lint has one finding, which keeps nothing from being
/// deployed.
///
/// # Panics
/// When the nodes make no graph, or one has no pointer.
pub fn released(
    options: &Options,
    registry: &str,
    nodes: &[TwinNode],
    pointers: &BTreeMap<String, Pointer>,
) -> Vec<(String, String)> {
    let members = nodes.iter().map(|node| Member { folder: String::new(), node: node.clone() }).collect();
    let groups = [Group { name: "main", layer: 0, depends_on: &[], nodes: members }];
    let mut files = vec![
        ("forge.yaml".to_owned(), described(options, registry)),
        ("graph.yaml".to_owned(), graph(options, &groups, "project", &node_id)),
    ];
    let named = |TwinNode { name, .. }: &TwinNode| {
        let pointer = pointers.get(name).unwrap_or_else(|| panic!("{name} has no pointer"));
        (node_id(name), pointer.clone())
    };
    let pointed: BTreeMap<String, Pointer> = nodes.iter().map(named).collect();
    complete(&mut files, &pointed);
    files
}

/// The environment of the example that [`released_example`] is.
pub const EXAMPLE_ENVIRONMENT: &str = "dev";

/// The files of `examples/platform` with its environment `dev` alone, here and now: its graph, what `dev` changes in it, its
/// configuration, and a pointer for each of its 46 projects, by their ids. Releases are kept in this registry.
///
/// # Panics
/// When the options are for another environment, or a project has no pointer.
pub fn released_example(
    options: &Options,
    registry: &str,
    pointers: &BTreeMap<String, Pointer>,
) -> Vec<(String, String)> {
    assert_eq!(options.environment, EXAMPLE_ENVIRONMENT, "the example says something of its own for it");
    let own = format!("{EXAMPLE_ENVIRONMENT}/");
    let kept = |path: &str| path == "graph.yaml" || path.starts_with(&own);
    // Those of the example name its registry, its Git host and its releases, which are made up.
    let ours = |path: &str| path.ends_with("/app.yaml") || path.ends_with("/release.yaml");
    let mut files: Vec<_> = example::files().into_iter().filter(|(path, _)| kept(path) && !ours(path)).collect();
    files.push(("forge.yaml".to_owned(), described(options, registry)));
    let named = |(_, app): (&example::Stack, &example::App)| {
        let id = app.id();
        let pointer = pointers.get(&id).unwrap_or_else(|| panic!("{id} has no pointer")).clone();
        (id, pointer)
    };
    let pointed: BTreeMap<String, Pointer> = example::apps().map(named).collect();
    complete(&mut files, &pointed);
    files
}

/// Adds what `forge init` would write, and the pointers of projects, by their ids; sorts everything.
fn complete(files: &mut Vec<(String, String)>, pointers: &BTreeMap<String, Pointer>) {
    let installation = read(files);
    let environment = only(&installation);
    files.push(("app.yaml".to_owned(), scaffold::root_app(&installation, With::default())));
    let app = scaffold::environment_app(&installation, environment);
    files.push((format!("{}/app.yaml", environment.path), app));
    files.extend(pointers.iter().map(|(project, pointer)| pointed(environment, project, pointer)));
    files.sort();
}

/// The pointer of a project, as a path and a text.
///
/// # Panics
/// When this is not the id of a project.
pub fn pointer_file(options: &Options, registry: &str, project: &str, pointer: &Pointer) -> (String, String) {
    let installation = read(&[("forge.yaml".to_owned(), described(options, registry))]);
    pointed(only(&installation), project, pointer)
}

/// Values for the chart of Argo CD by which the plugin asks a registry without TLS, and the repo-server is told these variables.
pub fn plugin_values(registry: &str, variables: &[(&str, &str)]) -> (String, String) {
    let host = registry.split('/').next().unwrap_or(registry);
    let variable = |name: &str, value: &str| json!({"name": name, "value": value});
    let told: Vec<Value> = variables.iter().map(|(name, value)| variable(name, value)).collect();
    let values = json!({"repoServer": {
        "env": told,
        "extraContainers": [{"name": CMP, "env": [variable(PLAIN_HTTP, host)]}],
    }});
    ("argo/values/argo-cd.yaml".to_owned(), forge_core::yaml::write(&values))
}

/// `forge.yaml`: namespaces begin with the name of the environment, as those of all twins.
fn described(options: &Options, registry: &str) -> String {
    installation(options, registry, &format!(", namespacePrefix: \"{}-\"", options.environment))
}

fn read(files: &[(String, String)]) -> Installation {
    let bytes = |(path, text): &(String, String)| (path.clone(), Content::Bytes(text.clone().into_bytes()));
    let mut tree: BTreeMap<String, Content> = files.iter().map(bytes).collect();
    let nothing = || {
        Content::Bytes(format!("apiVersion: {API_VERSION}\nkind: DependencyGraph\nspec: {{stacks: []}}\n").into_bytes())
    };
    tree.entry("graph.yaml".to_owned()).or_insert_with(nothing);
    let report = validate::tree(&tree);
    let Some(repository) = report.repository else { panic!("not a repository: {:?}", report.findings) };
    repository.installation
}

fn only(installation: &Installation) -> &Environment {
    installation.environments.first().unwrap_or_else(|| panic!("no environment"))
}

fn pointed(environment: &Environment, project: &str, pointer: &Pointer) -> (String, String) {
    let project: ProjectId = project.parse().unwrap_or_else(|_| panic!("`{project}` is no project"));
    let release = Some((&pointer.commit, &pointer.digest));
    let file = scaffold::pointer_file(environment, &project, release);
    (file.path, file.text)
}
