//! `forge release build`

use std::path::PathBuf;

use clap::Args;
use forge_core::code::Code;
use forge_core::digest::{CommitId, Digest};
use forge_core::exit::Exit;
use forge_core::failure::Failure;
use forge_core::name::{EnvironmentName, Namespace, ProjectId, clip};
use forge_core::release::{ArtifactReference, Builder, Inputs, Limits, assemble};
use serde_json::json;

use super::{Format, RegistryArguments, objects};
use crate::cli::Global;
use crate::interrupt::Interrupts;
use crate::layout_folder;
use crate::output::{Output, Paint};
use crate::release::build::{KUBE_VERSION, Rendering, render, resolve};
use crate::release::origin::{Said, is_committed, origin};
use crate::release::place::repository;
use crate::release::program::named;
use crate::release::source::Source;
use crate::release::transfer;
use crate::release::{Place, Store};
use crate::runtime::block_on;

/// Build a release from a Helm chart, a Kustomize folder or plain YAML
///
/// One layer per environment: for a chart that of values.yaml, then values-<env>.yaml, --values and --set; for Kustomize that of
/// overlays/<env>; for plain YAML the files of <env>/ over those of base/. Without --environment there is one for every
/// environment that the source has something of its own for, and one for all others.
///
/// The same source gives the same bytes. A chart is rendered twice, and refused where that differs. Every image must be fixed by
/// digest; --resolve looks tags up. Nothing is fetched while rendering, and nothing is written where anything is wrong.
#[derive(Debug, Args)]
#[command(disable_version_flag = true)]
pub(super) struct Arguments {
    /// A chart, a Kustomize folder, or a file or folder of YAML
    source: PathBuf,
    /// The project, as repo/project
    #[arg(long, short)]
    project: ProjectId,
    /// The commit that the source is of; the one that is checked out if absent
    #[arg(long, value_name = "COMMIT")]
    commit: Option<CommitId>,
    /// The repository that the source is of; that of the Git remote `origin` if absent
    #[arg(long, value_name = "URL")]
    repository: Option<String>,
    /// Build from what is not committed too; needs --commit
    #[arg(long)]
    allow_dirty: bool,
    /// The version that people give it
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,
    /// Environments to build layers for; those of the source, and one for all others, if absent
    #[arg(long, short, value_delimiter = ',', value_name = "ENVIRONMENT")]
    environment: Vec<EnvironmentName>,
    /// A file of values over those of the chart
    #[arg(long, value_name = "FILE")]
    values: Vec<PathBuf>,
    /// A value of the chart over all files, as helm takes it
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// The name that the chart is installed by; that of the project if absent
    #[arg(long, value_name = "NAME")]
    release_name: Option<String>,
    /// The namespace that the chart is installed in; <repo>-<project> if absent
    #[arg(long, value_name = "NAMESPACE")]
    namespace: Option<Namespace>,
    /// The version of Kubernetes that the chart sees
    #[arg(long, value_name = "VERSION", default_value = KUBE_VERSION)]
    kube_version: String,
    /// What else the chart sees that is served, for example monitoring.coreos.com/v1
    #[arg(long, value_delimiter = ',', value_name = "API")]
    api_versions: Vec<String>,
    /// Something that was built along with it, as reference@sha256:…
    #[arg(long, value_name = "REFERENCE", value_parser = artifact)]
    artifact: Vec<ArtifactReference>,
    /// Look up the tags of images in their registries, and fix them by digest
    #[arg(long)]
    resolve: bool,
    /// The helm program
    #[arg(long, value_name = "PROGRAM", env = "FORGE_HELM")]
    helm: Option<PathBuf>,
    /// The kustomize program
    #[arg(long, value_name = "PROGRAM", env = "FORGE_KUSTOMIZE")]
    kustomize: Option<PathBuf>,
    /// Write it into this folder, as an OCI layout
    #[arg(long, value_name = "DIR", required_unless_present = "push")]
    output_layout: Option<PathBuf>,
    /// Push it, to this registry or to the one that --registry or forge.yaml says
    #[arg(long, value_name = "REGISTRY", num_args = 0..=1, default_missing_value = "")]
    push: Option<String>,
    /// How to write what was built
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,
    #[command(flatten)]
    registry: RegistryArguments,
}

/// `reference@digest`.
fn artifact(text: &str) -> Result<ArtifactReference, String> {
    let (reference, digest) = text.rsplit_once('@').ok_or("write it as reference@sha256:…")?;
    if reference.is_empty() || reference.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err("the reference must not be empty or hold white space".to_owned());
    }
    let digest = digest.parse::<Digest>().map_err(|error| error.to_string())?;
    Ok(ArtifactReference { reference: reference.to_owned(), digest })
}

pub(super) fn run(global: &Global, arguments: &Arguments, output: &mut Output<'_>) -> Result<Exit, Failure> {
    if let Some(version) = &arguments.version {
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '+');
        let begins = version.starts_with(|c: char| c.is_ascii_alphanumeric());
        if !begins || version.len() > 128 || !version.chars().all(good) || version.parse::<CommitId>().is_ok() {
            let message = format!("`{}` cannot be a version: it is kept as a tag", clip(version));
            return Err(Failure::new(Code::BadArgument, message).hint("write it like `1.4.0` or `v1.4.0-rc.1`"));
        }
    }
    // Before anything is rendered: whoever cannot push need not build.
    let target = match &arguments.push {
        None => None,
        Some(given) => {
            let prefix = if given.is_empty() { arguments.registry.prefix(global)? } else { given.clone() };
            Some(repository(&prefix, &arguments.project)?)
        }
    };
    let source = Source::open(&arguments.source)?;
    let said = Said {
        commit: arguments.commit.as_ref(),
        repository: arguments.repository.as_deref(),
        allow_dirty: arguments.allow_dirty,
    };
    let from = origin(&source, said)?;
    let values = arguments.values.iter().map(|file| {
        std::path::absolute(file).ok().filter(|file| file.is_file()).ok_or_else(|| {
            Failure::new(Code::Unreadable, format!("no file of values `{}`", clip(&file.display().to_string())))
        })
    });
    let values = values.collect::<Result<Vec<PathBuf>, Failure>>()?;
    for file in &values {
        is_committed(file, &source, said)?;
    }
    let joined = arguments.project.joined();
    let (helm, kustomize) =
        (named(arguments.helm.as_deref(), "helm"), named(arguments.kustomize.as_deref(), "kustomize"));
    let rendering = Rendering {
        source: &source,
        environments: &arguments.environment,
        values: &values,
        set: &arguments.set,
        name: arguments.release_name.as_deref().unwrap_or(arguments.project.project.as_str()),
        namespace: arguments.namespace.as_ref().map_or(joined.as_str(), Namespace::as_str),
        kube_version: &arguments.kube_version,
        api_versions: &arguments.api_versions,
        helm: &helm,
        kustomize: &kustomize,
    };
    let limits = Limits::default();
    block_on(async {
        let registry = arguments.registry.client()?;
        let mut interrupts = Interrupts::listen();
        let mut layers = render(&rendering, &limits, &mut interrupts).await?;
        if arguments.resolve {
            for (image, digest) in resolve(&mut layers, &registry, &limits).await? {
                output.say(&format!("fixed     {} is {digest}", clip(&image)));
            }
        }
        let assembled = assemble(
            &Inputs {
                project: arguments.project.clone(),
                source: from,
                builder: Builder { name: "forge".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() },
                version: arguments.version.clone(),
                artifacts: arguments.artifact.clone(),
                layers,
            },
            &limits,
        )?;
        let (manifest, metadata, layout) = (assembled.manifest, assembled.metadata, assembled.layout.tree());
        for (layer, summary) in &metadata.resources {
            output.say(&format!("{} {layer}: {}", output.paint(Paint::Good, "built    "), objects(summary.documents)));
        }
        let to = match &target {
            Some(repository) => Some(Store::open(&registry, &Place::Registry(repository.clone()), &limits)?),
            None => None,
        };
        let mut reference = None;
        let mut pushed = None;
        if let Some(folder) = &arguments.output_layout {
            let there = Store::open(&registry, &Place::Folder(folder.clone()), &limits)?;
            there.is_free_for(&metadata).await?;
            layout_folder::write(folder, &layout)?;
            output.say(&format!("{} {}", output.paint(Paint::Good, "wrote    "), folder.display()));
        }
        if let Some(to) = &to {
            pushed = Some(transfer::push(to, &layout, &manifest, &metadata).await?);
        }
        if let (Some(to), Some(fresh)) = (&to, pushed) {
            reference = Some(format!("{}@{}", to.place(), manifest.digest));
            let word = if fresh { "pushed   " } else { "unchanged" };
            let word = output.paint(Paint::Good, word);
            output.say(&format!("{word} {}:{}", to.place(), metadata.source.commit));
        }
        match arguments.output {
            Format::Text => {
                let digest = manifest.digest.as_str().to_owned();
                output.data(&format!("{}\n", reference.as_ref().unwrap_or(&digest)))?;
            }
            Format::Json => {
                let layout = arguments.output_layout.as_ref().map(|folder| folder.display().to_string());
                let document = json!({
                    "digest": manifest.digest, "reference": reference, "layout": layout,
                    "metadata": metadata,
                });
                output.data(&format!("{document:#}\n"))?;
            }
        }
        Ok(Exit::Done)
    })?
}
