//! `forge project import`

use std::path::{Path, PathBuf};

use clap::Args;
use forge_core::code::Code;
use forge_core::digest::CommitId;
use forge_core::exit::Exit;
use forge_core::failure::Failure;
use forge_core::format::Reference;
use forge_core::name::{ApplicationId, ProjectId, StackName, clip};
use forge_core::release::import::Import;
use forge_core::release::{Builder, Inputs, Limits, Source as Origin, assemble, documents};
use serde_json::Value;

use super::super::release::{RegistryArguments, read_file};
use super::super::selection;
use super::{Add, add};
use crate::cli::Global;
use crate::cluster::{Cluster, ClusterArguments, path};
use crate::git::without_credentials;
use crate::git_checkout::checkout;
use crate::git_reader::GitCredentials;
use crate::interrupt::Interrupts;
use crate::layout_folder;
use crate::output::{Output, Paint};
use crate::release::build::{KUBE_VERSION, resolve};
use crate::release::import::{Asked, appear, import};
use crate::release::origin::{Said, origin};
use crate::release::place::repository;
use crate::release::program::named;
use crate::release::source::Source;
use crate::release::transfer;
use crate::release::{Place, Store};
use crate::runtime::block_on;

/// Make a project of an Application that Argo CD has: its source in a folder, and its first release
///
/// Reads the Application (from the cluster, where get is enough, or from --file) and its source, and writes a folder that renders
/// to the same objects: the chart with its values in values-<env>.yaml, the kustomization with what it is built from, or the
/// manifests; with --flatten only what is rendered, with namespaces written out. That is compared, object by object, with what Argo
/// CD renders, and with what it says it manages. The release is built from it, of the commit that the Application runs.
///
/// Nothing is changed in the cluster. What cannot be imported is refused with why, and then nothing is written.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The Application, as namespace/name
    application: ApplicationId,
    /// The project that it becomes, as repo/project
    #[arg(long, short)]
    project: ProjectId,
    /// The environment that it is deployed in
    #[arg(long, short, value_name = "ENVIRONMENT")]
    environment: String,
    /// The folder of the new source; must be new or empty
    #[arg(long, value_name = "DIR")]
    into: PathBuf,
    /// Read the Application from this file instead of the cluster
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// A checkout of the Application's repository, or its chart, unpacked; fetched with Git if absent
    #[arg(long, value_name = "DIR")]
    source: Option<PathBuf>,
    /// The commit that the release is of; the one that the Application runs if absent
    #[arg(long, value_name = "COMMIT")]
    commit: Option<CommitId>,
    /// Take the source as it lies there, whatever commit is checked out
    #[arg(long, requires = "source")]
    allow_dirty: bool,
    /// Take what is rendered, with namespaces written out, instead of what it is rendered from
    #[arg(long)]
    flatten: bool,
    /// The version of Kubernetes that a chart sees; that of the Application if it says one
    #[arg(long, value_name = "VERSION", default_value = KUBE_VERSION)]
    kube_version: String,
    /// What else a chart sees that is served, for example monitoring.coreos.com/v1
    #[arg(long, value_delimiter = ',', value_name = "API")]
    api_versions: Vec<String>,
    /// Look up the tags of images in their registries, and fix them by digest
    #[arg(long)]
    resolve: bool,
    /// The helm program
    #[arg(long, value_name = "PROGRAM", env = "FORGE_HELM")]
    helm: Option<PathBuf>,
    /// The kustomize program
    #[arg(long, value_name = "PROGRAM", env = "FORGE_KUSTOMIZE")]
    kustomize: Option<PathBuf>,
    /// Write the release into this folder, as an OCI layout
    #[arg(long, value_name = "DIR", required_unless_present = "push")]
    output_layout: Option<PathBuf>,
    /// Push the release, to this registry or to the one that --registry or forge.yaml says
    #[arg(long, value_name = "REGISTRY", num_args = 0..=1, default_missing_value = "")]
    push: Option<String>,
    /// Add the project to this stack of graph.yaml, and write its pointer
    #[arg(long)]
    stack: Option<StackName>,
    /// What it waits for: repo/project, namespace/name or stack:name
    #[arg(long, value_delimiter = ',', value_name = "NODE", requires = "stack")]
    depends_on: Vec<Reference>,
    #[command(flatten)]
    registry: RegistryArguments,
    #[command(flatten)]
    cluster: ClusterArguments,
}

pub(super) fn run(global: &Global, arguments: &Arguments, output: &mut Output<'_>) -> Result<Exit, Failure> {
    // Before anything is asked of anybody: whoever cannot write need not read.
    is_free(&arguments.into)?;
    let report = selection::report(global)?;
    let Some(installation) = report.repository else { return Err(Failure::unusable(report.findings)) };
    let environment = &selection::environment(&installation, &arguments.environment)?.environment;
    let namespace = format!("{}{}", environment.namespace_prefix, arguments.project.joined());
    let target = match &arguments.push {
        None => None,
        Some(given) => {
            let prefix = if given.is_empty() { arguments.registry.prefix(global)? } else { given.clone() };
            Some(repository(&prefix, &arguments.project)?)
        }
    };
    let application = match &arguments.file {
        Some(file) => from_file(file, &arguments.application)?,
        None => block_on(from_cluster(arguments))??,
    };
    let plan = Import::of(&application).map_err(|refused| {
        let message = format!("`{}` cannot be imported:\n  {}", arguments.application, refused.join("\n  "));
        Failure::new(Code::BadArgument, message).hint("nothing was written")
    })?;
    let (helm, kustomize) =
        (named(arguments.helm.as_deref(), "helm"), named(arguments.kustomize.as_deref(), "kustomize"));
    let limits = Limits::default();
    let (manifest, commit) = block_on(async {
        let fetched = match &arguments.source {
            Some(_) => None,
            None => Some(fetched(&plan, arguments, output).await?),
        };
        let tree = match (&arguments.source, &fetched) {
            (Some(source), _) => source.clone(),
            (None, Some((folder, _))) => folder.path().join("tree"),
            (None, None) => PathBuf::new(),
        };
        let from = match &fetched {
            Some((_, commit)) => made_from(&plan, arguments.commit.as_ref().unwrap_or(commit)),
            None => said_from(&plan, arguments, &tree)?,
        };
        let mut interrupts = Interrupts::listen();
        let asked = Asked {
            import: &plan,
            tree: &tree,
            environment: &environment.name.value,
            namespace: &namespace,
            flatten: arguments.flatten,
            kube_version: &arguments.kube_version,
            api_versions: &arguments.api_versions,
            helm: &helm,
            kustomize: &kustomize,
        };
        let mut made = import(&asked, &limits, &mut interrupts).await?;
        let registry = arguments.registry.client()?;
        if arguments.resolve {
            for (image, digest) in resolve(&mut made.layers, &registry, &limits).await? {
                output.say(&format!("fixed     {} is {digest}", clip(&image)));
            }
        }
        let assembled = assemble(
            &Inputs {
                project: arguments.project.clone(),
                source: from,
                builder: Builder { name: "forge".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() },
                version: None,
                artifacts: Vec::new(),
                layers: made.layers,
            },
            &limits,
        )?;
        let (manifest, metadata, layout) = (assembled.manifest, assembled.metadata, assembled.layout.tree());
        let good = |word: &str| output.paint(Paint::Good, word);
        let (wrote, pushed) = (good("wrote    "), good("pushed   "));
        if let Some(folder) = &arguments.output_layout {
            let there = Store::open(&registry, &Place::Folder(folder.clone()), &limits)?;
            there.is_free_for(&metadata).await?;
        }
        if let Some(repository) = &target {
            let to = Store::open(&registry, &Place::Registry(repository.clone()), &limits)?;
            transfer::push(&to, &layout, &manifest, &metadata).await?;
            output.say(&format!("{pushed} {}:{}", to.place(), metadata.source.commit));
        }
        if let Some(folder) = &arguments.output_layout {
            layout_folder::write(folder, &layout)?;
            output.say(&format!("{wrote} {}", folder.display()));
        }
        // Last: a folder that is there renders to a release that is there.
        is_free(&arguments.into)?;
        appear(&arguments.into, &made.files)?;
        output.say(&format!("{wrote} {} ({} files)", arguments.into.display(), made.files.len()));
        for note in &made.notes {
            output.say(&format!("note: {note}"));
        }
        let more: String = made.arguments.iter().map(|argument| format!(" {}", clip(argument))).collect();
        output.say(&format!(
            "build     forge release build {} --project {} --environment {}{more}",
            arguments.into.display(),
            arguments.project,
            environment.name.value
        ));
        Ok::<_, Failure>((manifest, metadata.source.commit))
    })??;
    output.data(&match &target {
        Some(repository) => format!("{repository}@{}\n", manifest.digest),
        None => format!("{}\n", manifest.digest),
    })?;
    output.say(&format!(
        "\nNothing was changed in the cluster. Once the project is deployed, remove Application `{}` without its resources \
         (`argocd app delete {} --cascade=false`): until then both claim the same objects.",
        arguments.application,
        arguments.application.name()
    ));
    if arguments.stack.is_none() {
        output.say(&format!(
            "Next: forge project add {} --stack STACK --environment {} --release {commit} --digest {}",
            arguments.project, environment.name.value, manifest.digest
        ));
        return Ok(Exit::Done);
    }
    let more = Add {
        project: arguments.project.clone(),
        stack: arguments.stack.clone(),
        depends_on: arguments.depends_on.clone(),
        environment: vec![arguments.environment.clone()],
        release: Some(commit),
        digest: Some(manifest.digest),
    };
    add(global, &more, output)
}

/// Refuses a folder that holds something.
fn is_free(folder: &Path) -> Result<(), Failure> {
    let used = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
        Err(error) => {
            let message = format!("failed to read `{}`: {error}", clip(&folder.display().to_string()));
            return Err(Failure::new(Code::BadArgument, message).hint("name a folder that is new or empty"));
        }
        Ok(mut entries) => entries.next().is_some(),
    };
    if !used {
        return Ok(());
    }
    let message = format!("`{}` is not empty", clip(&folder.display().to_string()));
    Err(Failure::new(Code::BadArgument, message).hint("name a folder that is new or empty with --into"))
}

/// The Application of this name in a file.
fn from_file(file: &Path, wanted: &ApplicationId) -> Result<Value, Failure> {
    let name = clip(&file.display().to_string());
    let text = read_file(file, Code::Unreadable)?;
    let found = documents(&name, text.as_bytes(), &Limits::default())?.into_iter().find(|document| {
        let here = document.namespace.as_deref().is_none_or(|namespace| namespace == wanted.namespace.as_str());
        document.kind == "Application" && document.group() == "argoproj.io" && document.name == wanted.name() && here
    });
    found.map(|document| document.value).ok_or_else(|| {
        Failure::new(Code::UnknownName, format!("`{name}` holds no Application `{wanted}`"))
            .hint("`kubectl get application NAME -o yaml` writes one")
    })
}

async fn from_cluster(arguments: &Arguments) -> Result<Value, Failure> {
    let wanted = &arguments.application;
    let cluster = Cluster::connect(&arguments.cluster).await?;
    let collection = path::argo(wanted.namespace.as_str(), "applications");
    let found = cluster.get(&path::object(&collection, wanted.name())).await?;
    found.ok_or_else(|| {
        let message = format!("{} has no Application `{wanted}`", cluster.context);
        Failure::new(Code::UnknownName, message).hint("--context takes the cluster that runs Argo CD")
    })
}

/// The Application's repository at the revision that it runs, in `tree` of a folder that goes when nobody needs it.
async fn fetched(
    plan: &Import,
    arguments: &Arguments,
    output: &mut Output<'_>,
) -> Result<(tempfile::TempDir, CommitId), Failure> {
    let nowhere = |why: &str| {
        Failure::new(Code::BadArgument, format!("the source of `{}` cannot be fetched: {why}", arguments.application))
            .hint("name where it lies with --source: a checkout of the repository, or the chart, unpacked (`helm pull --untar`)")
    };
    if plan.chart.is_some() {
        return Err(nowhere("it is a chart of a chart repository"));
    }
    let revision = arguments.commit.as_ref().map_or_else(|| plan.revision.clone(), |commit| commit.as_str().to_owned());
    if revision == "HEAD" {
        return Err(nowhere("it follows HEAD, and does not say which commit it runs"));
    }
    output.say(&format!("fetching {} at {}", clip(&without_credentials(&plan.repository)), clip(&revision)));
    let folder = tempfile::tempdir().map_err(|error| Failure::write("a temporary folder", &error))?;
    let url = plan.repository.clone();
    let (sender, receiver) = tokio::sync::oneshot::channel();
    // On a thread that nobody has to wait for: whoever is told to stop does.
    std::thread::spawn(move || {
        let (clone, tree) = (folder.path().join("clone"), folder.path().join("tree"));
        let found = checkout(&url, &revision, &GitCredentials::Helper, &clone, &tree);
        let _ = sender.send(found.map(|commit| (folder, commit)));
    });
    let lost = || Failure::new(Code::RepositoryUnread, "reading the repository ended by itself").hint("try again");
    receiver.await.map_err(|_| lost())?
}

/// What a release says of itself: it is of the Application's own source.
fn made_from(plan: &Import, commit: &CommitId) -> Origin {
    let path = Some(plan.path.clone()).filter(|path| !path.is_empty());
    Origin { repository: Some(without_credentials(&plan.repository)), commit: commit.clone(), path }
}

/// The same for a source that lies on this machine, which must be what it says.
fn said_from(plan: &Import, arguments: &Arguments, tree: &Path) -> Result<Origin, Failure> {
    let runs = plan.revision.parse::<CommitId>().ok();
    let commit = arguments.commit.as_ref().or(runs.as_ref());
    let said = Said { commit, repository: Some(plan.repository.as_str()), allow_dirty: arguments.allow_dirty };
    let found = origin(&Source::open(&tree.join(&plan.path))?, said)?;
    Ok(made_from(plan, &found.commit))
}
