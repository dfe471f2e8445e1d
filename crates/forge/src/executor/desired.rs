//! What is to be deployed: the GitOps repository at a revision, in a folder that goes with it, checked as lint checks it, with
//! the graph of this run in place of its own where one was given.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use forge_core::code::Code;
use forge_core::digest::CommitId;
use forge_core::executor::Inputs;
use forge_core::failure::Failure;
use forge_core::graph::{Graph, NodeIx, Scope};
use forge_core::name::EnvironmentName;
use forge_core::plan::{Plan, plan};
use forge_core::repository::{EnvironmentFiles, GRAPH_FILE, INSTALLATION_FILE, Repository};
use forge_core::yaml::{self, Dialect, Limits};
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::oneshot;

use super::{Options, gather};
use crate::commands::selection::{self, Usable};
use crate::git_checkout::checkout;
use crate::git_reader::GitCredentials;
use crate::load;
use crate::registry;
use crate::run::prepare::releases::Releases;
use crate::teardown::{self, Made};
use crate::write_files::read_own;

/// What is to be deployed.
pub(super) struct Desired {
    usable: Usable,
    pub(super) graph: Graph,
    pub(super) nodes: Vec<NodeIx>,
    pub(super) plan: Plan,
    pub(super) commit: CommitId,
    /// Applications that a first window holds.
    held: BTreeSet<String>,
    /// Where the repository is, until this is dropped.
    folder: TempDir,
}

impl Desired {
    pub(super) fn usable(&self) -> &Usable {
        &self.usable
    }

    pub(super) fn repository(&self) -> &Repository {
        &self.usable.repository
    }

    /// What the first windows hold: of this environment, and of all of them where there is a root file, which brings them all.
    ///
    /// # Errors
    /// When the graph of another environment cannot be built.
    pub(super) fn held(&self, own: &EnvironmentName) -> Result<Vec<(EnvironmentName, BTreeSet<String>)>, Failure> {
        let repository = self.repository();
        let mut held = vec![(own.clone(), self.held.clone())];
        let others = repository.environments.iter().filter(|files| files.environment.name.value != *own);
        for files in others.filter(|_| repository.applies_root()) {
            let (name, graph) = (&files.environment.name.value, selection::graph(repository, Some(files))?);
            let (scope, nodes) = graph.scope(&Scope::Platform, Some(name))?;
            held.push((name.clone(), explicit(&plan(repository, files, &graph, &scope, &nodes))));
        }
        Ok(held)
    }

    /// Where the releases of an environment are; nothing where it has none.
    ///
    /// # Errors
    /// When there is no such environment, or what says how registries are reached, and as whom, cannot be used.
    pub(super) fn releases(&self, inputs: &Inputs, options: &Options) -> Result<Option<Releases>, Failure> {
        let files = selection::environment(self.repository(), inputs.environment.as_str())?;
        Releases::of(self.repository(), files, &self.files(), || {
            let registries = registries(inputs, options)?;
            // Files of credentials are read when a registry asks for some: too late to find out that they are none.
            registries.credentials.for_programs().map_err(|why| {
                Failure::new(Code::BadArgument, format!("credentials of registries cannot be read: {why}"))
                    .hint("they are as Docker keeps them; leave them out where the registry asks for none")
            })?;
            Ok(registries)
        })
    }

    /// Its files: a chart may be among them.
    pub(super) fn files(&self) -> PathBuf {
        tree(&self.folder)
    }
}

/// Reads the repository, and everything that is wrong with it.
///
/// # Errors
/// When it cannot be read, cannot be used, or says something else than the inputs.
pub(super) async fn read(inputs: &Inputs, options: &Options) -> Result<Desired, Failure> {
    let (folder, commit, replaced) = at_hand(inputs, options).await?;
    judged(inputs, folder, commit).map_err(|failure| renamed(failure, replaced.as_ref()))
}

/// The same for what is to be removed: a project without a pointer goes too.
///
/// # Errors
/// When the repository cannot be read or used, says something else than the inputs, or has no such scope.
pub(super) async fn read_to_remove(inputs: &Inputs, options: &Options) -> Result<Made, Failure> {
    let (folder, _, replaced) = at_hand(inputs, options).await?;
    let made = checked(inputs, &folder).and_then(|(usable, files)| {
        teardown::made(&usable.repository, &inputs.limited(&files), &inputs.scope, inputs.timeouts.run)
    });
    made.map_err(|failure| renamed(failure, replaced.as_ref()))
}

/// The place of a file that the graph of this run was put into, and the name of that graph.
type Replaced = Option<(String, String)>;

/// The repository in a folder of its own, with the graph of this run in place of its own where one was given.
async fn at_hand(inputs: &Inputs, options: &Options) -> Result<(TempDir, CommitId, Replaced), Failure> {
    let dag = gather::dag(options)?;
    let folder = tempfile::Builder::new().prefix("forge-executor-").tempdir().map_err(|error| {
        Failure::new(Code::CannotWrite, format!("failed to make a folder for the repository: {error}"))
            .hint("TMPDIR names the folder that is used; in a pod, mount an emptyDir at /tmp")
    })?;
    let (folder, commit) = fetched(inputs, options, folder).await?;
    let tree = tree(&folder);
    let replaced = match dag {
        Some((path, text)) => Some((replace(&tree, inputs, &path, &text)?, path)),
        None => None,
    };
    Ok((folder, commit, replaced))
}

/// Where the files of the repository are.
fn tree(folder: &TempDir) -> PathBuf {
    folder.path().join("tree")
}

/// Those of a private repository: files, because there is no `git` in the image that could be asked.
pub(super) fn credentials(options: &Options) -> GitCredentials {
    GitCredentials::Mounted(options.secrets.join("git"))
}

/// How registries are spoken with: as the inputs say, and otherwise as the mounted Secret does.
///
/// # Errors
/// When what is named or mounted cannot be read.
pub(super) fn registries(inputs: &Inputs, options: &Options) -> Result<registry::Options, Failure> {
    let mounted = registry::Options::mounted(&options.secrets.join("registry"))?;
    let config = inputs.registry_config.as_ref().map(PathBuf::from);
    mounted.named(config, inputs.registry_ca.as_deref().map(Path::new), inputs.plain_http.clone())
}

/// The repository, on a thread that nobody has to wait for: whoever is told to stop does.
async fn fetched(inputs: &Inputs, options: &Options, folder: TempDir) -> Result<(TempDir, CommitId), Failure> {
    let credentials = credentials(options);
    let (url, revision) = (inputs.git_repository.value.to_string(), inputs.git_revision.value.to_string());
    let (sender, receiver) = oneshot::channel();
    std::thread::spawn(move || {
        let (clone, tree) = (folder.path().join("clone"), tree(&folder));
        let found = checkout(&url, &revision, &credentials, &clone, &tree);
        // The history is not needed any more, and a pod has little room.
        let _ = fs::remove_dir_all(&clone);
        let _ = sender.send(found.map(|commit| (folder, commit)));
    });
    let lost = || Failure::new(Code::RepositoryUnread, "reading the repository ended by itself").hint("try again");
    receiver.await.map_err(|_| lost())?
}

/// Puts the graph of this run in the place of the repository's own: a DependencyGraph in that of `graph.yaml`, a
/// GraphOverride in that of the environment's. Gives the place.
fn replace(tree: &Path, inputs: &Inputs, path: &str, text: &str) -> Result<String, Failure> {
    let stream = yaml::read(text, Dialect::Strict, Limits::FILE);
    let document = stream.documents.first().map(yaml::Node::to_json).unwrap_or_default();
    let place = if document.get("kind").and_then(Value::as_str) == Some("GraphOverride") {
        let installation = load::installation(&read_own(tree, INSTALLATION_FILE)?)?;
        let environment = installation.environments.iter().find(|known| known.name.value == inputs.environment);
        // One that is not there is told as such when the repository is judged.
        let folder = environment.map_or_else(|| inputs.environment.to_string(), |known| known.path.clone());
        format!("{folder}/{GRAPH_FILE}")
    } else {
        GRAPH_FILE.to_owned()
    };
    let failed = |error: std::io::Error| Failure::write(format!("`{path}` into the repository"), &error);
    let target = tree.join(&place);
    let parent = target.parent().unwrap_or(tree);
    fs::create_dir_all(parent).map_err(failed)?;
    // A link of the repository must not lead this out of it.
    let inside = parent.canonicalize().map_err(failed)?.starts_with(tree.canonicalize().map_err(failed)?);
    if !inside {
        return Err(Failure::new(Code::Symlink, format!("`{place}` of the repository leads out of it")));
    }
    match fs::remove_file(&target) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let file = OpenOptions::new().write(true).create_new(true).open(&target);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(failed)?;
    Ok(place)
}

/// What is wrong with the graph of this run is told by its own name.
fn renamed(mut failure: Failure, replaced: Option<&(String, String)>) -> Failure {
    if let Some((place, path)) = replaced {
        for finding in failure.findings.iter_mut().filter(|finding| finding.place.path == *place) {
            finding.place.path.clone_from(path);
        }
    }
    failure
}

/// Checks the repository, and that it is the one that is meant; gives the files of the environment.
fn checked(inputs: &Inputs, folder: &TempDir) -> Result<(Usable, EnvironmentFiles), Failure> {
    let tree = tree(folder);
    if !tree.join(INSTALLATION_FILE).exists() {
        let (repository, revision) = (&inputs.git_repository.value, &inputs.git_revision.value);
        let message = format!("no {INSTALLATION_FILE} in `{repository}` at {revision}");
        return Err(Failure::new(Code::NotARepository, message).hint("is this the GitOps repository that is meant?"));
    }
    let report = load::lint(&tree).map_err(|message| Failure::new(Code::Unreadable, message))?;
    let usable = Usable::of(report)?;
    let repository = &usable.repository;
    let files = selection::environment(repository, inputs.environment.as_str())?;
    let domain = load::domain(&tree, &files.environment.path);
    let findings = inputs.contradictions(&repository.installation, &files.environment, domain.as_deref());
    if !findings.is_empty() {
        let message = "the inputs and the repository contradict each other; nothing was written";
        return Err(
            Failure { findings, ..Failure::new(Code::ContradictoryInput, message) }.hint("decide for one of them")
        );
    }
    let files = files.clone();
    Ok((usable, files))
}

/// Checks the repository and makes the plan.
pub(super) fn judged(inputs: &Inputs, folder: TempDir, commit: CommitId) -> Result<Desired, Failure> {
    let (usable, files) = checked(inputs, &folder)?;
    let repository = &usable.repository;
    let files = inputs.limited(&files);
    let graph = selection::graph(repository, Some(&files))?;
    let name = &files.environment.name.value;
    let planned = |scope: &Scope| -> Result<(Vec<NodeIx>, Plan), Failure> {
        let (scope, nodes) = graph.scope(scope, Some(name))?;
        let plan = plan(repository, &files, &graph, &scope, &nodes);
        Ok((nodes, plan))
    };
    let (nodes, plan) = planned(&inputs.scope)?;
    usable.require_pointers(&files, &graph, &nodes)?;
    // A first window holds everything, whatever this run is about.
    let held = explicit(&planned(&Scope::Platform)?.1);
    Ok(Desired { graph, nodes, plan, commit, held, folder, usable })
}

/// The Applications of a plan that are not Forge's own first nodes.
fn explicit(plan: &Plan) -> BTreeSet<String> {
    plan.nodes.iter().filter(|node| !node.implicit).map(|node| node.application.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use forge_core::executor::{Action, Given, Input, resolve};

    use super::*;
    use crate::executor::Reports;
    use crate::registry::Credentials;
    use crate::run_report::Format;

    /// Those of a pod whose Secrets are mounted there.
    fn mounted(secrets: &Path) -> Options {
        Options {
            config: None,
            dag: None,
            secrets: secrets.to_owned(),
            metrics_listen: ([127, 0, 0, 1], 0).into(),
            reports: Reports {
                stdout: Format::Text,
                files: [(Format::Text, None), (Format::Json, None), (Format::Junit, None)],
                page: None,
            },
        }
    }

    /// What is needed, and these flags.
    fn inputs(flags: &[(Input, &str)]) -> Inputs {
        let needed = [
            (Input::Environment, "dev"),
            (Input::Domain, "dev.example.com"),
            (Input::GitRepository, "https://git.example.com/p.git"),
            (Input::GitRevision, "main"),
        ];
        let flags = needed.iter().chain(flags).map(|(input, text)| (*input, (*text).to_owned())).collect();
        let variables = BTreeMap::new();
        resolve(&Given { action: Action::Deploy, prefix: "", flags, variables, file: None }).unwrap()
    }

    #[test]
    fn credentials_are_files_that_were_mounted_and_never_those_of_a_workstation() {
        let options = mounted(Path::new("/secrets"));
        assert_eq!(credentials(&options), GitCredentials::Mounted("/secrets/git".into()));
        let found = registries(&inputs(&[]), &options).unwrap();
        assert_eq!(found.credentials, Credentials::Mounted("/secrets/registry".into()));
    }

    #[test]
    fn what_inputs_do_not_say_of_registries_is_said_by_the_mounted_secret() {
        let folder = tempfile::tempdir().unwrap();
        let (options, secret) = (mounted(folder.path()), folder.path().join("registry"));
        fs::create_dir(&secret).unwrap();
        fs::write(secret.join("ca.crt"), "mounted").unwrap();
        fs::write(secret.join("plain-http"), "registry:5000").unwrap();
        let found = registries(&inputs(&[]), &options).unwrap();
        assert!(found.is_plain("registry:5000") && !found.is_plain("other:5000"));
        assert_eq!(found.certificates.as_deref(), Some("mounted"));
        let (config, ca) = (folder.path().join("config.json"), folder.path().join("own.pem"));
        fs::write(&ca, "given").unwrap();
        let flags = [
            (Input::RegistryConfig, config.to_str().unwrap()),
            (Input::RegistryCa, ca.to_str().unwrap()),
            (Input::PlainHttp, "other:5000"),
        ];
        let found = registries(&inputs(&flags), &options).unwrap();
        assert!(found.is_plain("other:5000") && !found.is_plain("registry:5000"));
        assert_eq!((found.certificates.as_deref(), found.credentials), (Some("given"), Credentials::Named(config)));
        let missing = registries(&inputs(&[(Input::RegistryCa, "/not/there")]), &options).unwrap_err();
        assert_eq!(missing.code, Code::BadArgument);
    }
}
