//! `forge demo`: the whole way on a cluster that the user has, with a small platform that comes with the product.

mod checkout;
mod remove;
mod survey;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use forge_core::code::Code;
use forge_core::exit::Exit;
use forge_core::failure::Failure;
use forge_core::name::{EnvironmentName, Namespace};
use forge_core::preflight::{Intents, Purpose};
use forge_core::scaffold::demo::{Demo, ENVIRONMENT, SAMPLE_IMAGE, names};
use forge_core::token;
use secrecy::SecretString;
use serde_json::Value;

use super::platform::deploy;
use super::status;
use crate::account;
use crate::bootstrap::{Wanted, bootstrap};
use crate::cli::Global;
use crate::cluster::{Cluster, ClusterArguments, path};
use crate::git;
use crate::output::{Output, Paint};
use crate::preflight;
use crate::runtime::block_on;
use survey::Survey;

/// Show the main job on a cluster that you have: ten small applications, in order, proven
///
/// Argo CD and Argo Workflows must be there. Writes a small platform into an empty Git repository that you may push to and
/// Argo CD may read, prepares the cluster as `forge bootstrap` does, makes an AppProject and ten Applications named
/// `forge-demo…`, and deploys. What is there under these names and was not made by this is never touched. Run it again at any
/// time; --remove takes the Applications, their namespaces and the AppProject away again, in reverse order.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The folder for the checkout of the repository; --repo or forge-demo if absent
    folder: Option<PathBuf>,
    /// An empty repository, or that of an earlier demo, as Argo CD reads it
    #[arg(long, value_name = "URL", required_unless_present = "remove")]
    repository: Option<String>,
    /// The same repository as it is pushed to from here; --repository if absent
    #[arg(long, value_name = "URL")]
    push_url: Option<String>,
    /// The image of forge, by digest, that the cluster can pull; not needed where `forge bootstrap` has been
    #[arg(long, env = "FORGE_IMAGE")]
    image: Option<String>,
    /// What runs in the pods of the demo: any image that keeps running without arguments, also as another user than root
    #[arg(long, value_name = "IMAGE", default_value = SAMPLE_IMAGE)]
    sample_image: String,
    /// The namespace of Argo CD
    #[arg(long, value_name = "NAMESPACE", default_value = "argocd", env = "FORGE_ARGOCD_NAMESPACE")]
    argocd_namespace: Namespace,
    /// The address of Argo CD inside the cluster; found by its labels if absent
    #[arg(long, value_name = "URL")]
    argocd_server: Option<String>,
    /// A file with a token of the Argo CD account `forge`; made with the initial administrator's password if absent
    #[arg(long, value_name = "FILE")]
    argocd_token_file: Option<PathBuf>,
    /// Remove what a demo made in the cluster instead; the repository and the checkout stay
    #[arg(long, conflicts_with_all = ["repository", "push_url", "folder"])]
    remove: bool,
    #[command(flatten)]
    cluster: ClusterArguments,
}

pub(crate) fn run(global: &Global, arguments: &Arguments, output: &mut Output<'_>) -> Result<Exit, Failure> {
    is_named(&arguments.cluster)?;
    let argocd = arguments.argocd_namespace.to_string();
    if arguments.remove {
        return block_on(remove::remove(&arguments.cluster, &argocd, output))?;
    }
    let url = arguments.repository.as_deref().unwrap_or_default();
    let push_url = arguments.push_url.as_deref().unwrap_or(url);
    for (what, text) in [("--repository", url), ("--push-url", push_url)] {
        if text.is_empty() || text.chars().any(char::is_whitespace) {
            return Err(Failure::new(Code::BadArgument, format!("{what} must not be empty or hold white space")));
        }
        if git::without_credentials(text) != text {
            let message = format!("{what} holds a password or token, which would be written to files");
            return Err(Failure::new(Code::BadArgument, message).hint(
                "leave it out; `git` asks for it or has a credential helper, Argo CD has credentials of its own",
            ));
        }
    }
    let token = arguments.argocd_token_file.as_deref().map(account::token_in).transpose()?;
    let workflows = &arguments.cluster.workflows_namespace;
    // Nothing is written, not even a folder, before the cluster is known to do.
    let survey = block_on(async {
        let cluster = Cluster::connect(&arguments.cluster).await?;
        let survey = survey::survey(&cluster, workflows, &argocd, arguments.image.as_deref()).await?;
        let purpose = preflight::purpose(None, workflows, &survey.places.image, vec![environment()?]);
        let purpose = Purpose { argocd: argocd.clone(), intents: Intents::existing(), ..purpose };
        let checked = preflight::Wanted::new(purpose).unless_prepared(&cluster).await;
        preflight::required(&cluster, &checked, output).await?;
        Ok::<_, Failure>(survey)
    })??;
    let folder = arguments.folder.clone().or_else(|| global.repo.clone()).unwrap_or_else(|| PathBuf::from(ENVIRONMENT));
    let branch = checkout::get(&folder, push_url)?;
    let demo = Demo { url, branch: &branch, image: &arguments.sample_image, argocd: &argocd };
    checkout::publish(&folder, &branch, &demo.files(), output)?;
    let mut lines = Vec::new();
    let context = block_on(async {
        let cluster = Cluster::connect(&arguments.cluster).await?;
        let server = arguments.argocd_server.clone();
        prepare(&cluster, &survey, server, token, &demo.applications(), |line| lines.push(line.to_owned())).await?;
        Ok::<_, Failure>(cluster.context.clone())
    })?;
    for line in lines {
        output.say(&format!("{} {line}", output.paint(Paint::Good, "ok")));
    }
    let context = context?;
    output.say(&format!("{context} is prepared\n"));
    let here = Global { repo: Some(folder.clone()), no_color: global.no_color };
    let deploy = deploy::Arguments::of(ENVIRONMENT, arguments.cluster.clone());
    let exit = deploy::run(&here, &deploy, output)?;
    let page = page(&here, &folder, arguments)?;
    output.say(&next(&folder, &page, &branch, arguments));
    Ok(exit)
}

/// A demo makes namespaces and Applications: it must not meet a cluster by accident.
fn is_named(cluster: &ClusterArguments) -> Result<(), Failure> {
    let data = std::env::var_os("FORGE_KUBECONFIG_DATA").is_some_and(|data| !data.is_empty());
    if cluster.context.is_some() || cluster.kubeconfig.is_some() || data {
        return Ok(());
    }
    Err(Failure::new(Code::BadArgument, "which cluster? a demo does not take the current context by itself")
        .hint("name it with --context; `kubectl config get-contexts` lists them; none at hand: `make demo` brings one"))
}

fn environment() -> Result<EnvironmentName, Failure> {
    ENVIRONMENT.parse().map_err(|error| Failure::new(Code::BadArgument, format!("{error}")))
}

/// Forge's own objects, the AppProject with its window, and then the Applications.
async fn prepare(
    cluster: &Cluster,
    survey: &Survey,
    server: Option<String>,
    token: Option<SecretString>,
    applications: &[Value],
    mut done: impl FnMut(&str),
) -> Result<(), Failure> {
    let environment = environment()?;
    let mut environments = survey.environments.clone();
    environments.insert(environment.clone());
    let held: Vec<(EnvironmentName, BTreeSet<String>)> = vec![(environment, names().into_iter().collect())];
    let places = survey.places.clone();
    let collection = path::argo(&places.argocd, "applications");
    let (environments, lifetime) = (environments.into_iter().collect(), token::LIFETIME);
    // Who wants a demo lets it write into Argo CD's namespace: its Applications are there too.
    let (events, root, handed, installed) = (None, None, false, false);
    let wanted =
        Wanted { cluster, places, environments, held, server, token, lifetime, events, root, handed, installed };
    bootstrap(&wanted, &mut done).await?;
    for application in applications {
        let name = application.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        cluster.apply(&path::object(&collection, name), application).await?;
        done(&format!("Application {name}"));
    }
    Ok(())
}

/// The state as one HTML page, beside the checkout: a file in it would be a change that is not committed.
fn page(here: &Global, folder: &Path, arguments: &Arguments) -> Result<PathBuf, Failure> {
    let whole = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
    let mut name = whole.file_name().unwrap_or_default().to_os_string();
    name.push(".html");
    let file = whole.with_file_name(name);
    let mut bytes = Vec::new();
    {
        let mut nowhere = io::sink();
        let mut output = Output::new(&mut bytes, &mut nowhere, true);
        status::run(here, &status::Arguments::page(ENVIRONMENT, arguments.cluster.clone()), &mut output)?;
    }
    std::fs::write(&file, bytes).map_err(|error| Failure::write(format!("`{}`", file.display()), &error))?;
    Ok(file)
}

/// What to try now.
fn next(folder: &Path, page: &Path, branch: &str, arguments: &Arguments) -> String {
    let mut flags = String::new();
    let cluster = &arguments.cluster;
    if let Some(file) = &cluster.kubeconfig {
        // As it is named from everywhere: the commands are for the checkout.
        let file = std::path::absolute(file).unwrap_or_else(|_| file.clone());
        flags.push_str(&format!(" --kubeconfig {}", file.display()));
    }
    if let Some(context) = &cluster.context {
        flags.push_str(&format!(" --context {context}"));
    }
    if cluster.workflows_namespace != "argo" {
        flags.push_str(&format!(" --workflows-namespace {}", cluster.workflows_namespace));
    }
    let remove = match arguments.argocd_namespace.as_str() {
        "argocd" => String::new(),
        other => format!(" --argocd-namespace {other}"),
    };
    let (folder, page) = (folder.display(), page.display());
    format!(
        "
The state as a page: {page}

Look:       cd {folder}
            forge status -e {ENVIRONMENT}{flags}
            forge history -e {ENVIRONMENT}{flags}
Again:      forge platform deploy -e {ENVIRONMENT}{flags}      # nothing to do
Break it:   sed -i 's/replicas: 1/replicas: -1/' apps/database/deployment.yaml
            git commit -am break && git push origin HEAD:{branch}
            forge platform deploy -e {ENVIRONMENT}{flags}      # what depends on it does not start
            forge why database -e {ENVIRONMENT}{flags}
Mend it:    git revert --no-edit HEAD && git push origin HEAD:{branch}, and deploy again
Remove it:  forge demo --remove{flags}{remove}"
    )
}
