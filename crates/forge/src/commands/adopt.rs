//! `forge adopt`

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use forge_core::adopt::{Adopted, Found, Kind, Options, Severity, adopt, identity};
use forge_core::code::Code;
use forge_core::name::{EnvironmentName, MAX_ENVIRONMENT, Namespace};
use forge_core::scaffold::File;
use serde_json::{Value, json};

use crate::cli::Global;
use crate::cluster::{Cluster, ClusterArguments, ClusterError, path};
use crate::output::{Output, Paint};
use crate::runtime::block_on;
use crate::write_files::{Lock, write_new};
use forge_core::exit::Exit;
use forge_core::failure::Failure;

/// Make a repository of an Argo CD that is there already, without a write to its cluster
///
/// Reads Applications, ApplicationSets and AppProjects (get and list are enough; CustomResourceDefinitions and argocd-cm where
/// permitted), and writes forge.yaml, a graph.yaml of these Applications, and ADOPTED.md with what to know before the first run.
/// Dependencies come from app-of-apps with their sync waves, from ApplicationSets with their steps, and from CRDs. The folder
/// must be new, empty, or hold what this wrote before.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The folder; --repo or the current one if absent
    folder: Option<PathBuf>,
    /// The environment's name; if absent that of the AppProject with most Applications, or production if that is `default`
    #[arg(long, short, value_name = "NAME", env = "FORGE_ENVIRONMENT")]
    environment: Option<String>,
    /// The namespace of Argo CD
    #[arg(long, value_name = "NAMESPACE", default_value = "argocd", env = "FORGE_ARGOCD_NAMESPACE")]
    argocd_namespace: Namespace,
    /// Only Applications of this AppProject; may be given several times
    #[arg(long, value_name = "NAME")]
    project: Vec<String>,
    /// Only Applications with these labels, as kubectl takes them
    #[arg(long, short = 'l', value_name = "KEY=VALUE", default_value = "", hide_default_value = true)]
    selector: String,
    /// Print what would be written, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// How to write the hazards
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,
    #[command(flatten)]
    cluster: ClusterArguments,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs: everything, and with --dry-run the files too
    Json,
}

pub(crate) fn run(global: &Global, arguments: &Arguments, output: &mut Output<'_>) -> Result<Exit, Failure> {
    let folder = arguments.folder.clone().or_else(|| global.repo.clone()).unwrap_or_else(|| PathBuf::from("."));
    if !arguments.dry_run {
        // Before anything is asked of a cluster: the answer would be thrown away.
        is_free(&folder, &[])?;
    }
    let environment = environment(arguments.environment.as_deref())?;
    let Read { found, listed, context } = block_on(find(arguments))??;
    let options = Options {
        environment,
        argocd: arguments.argocd_namespace.clone(),
        projects: arguments.project.iter().cloned().collect(),
        listed,
    };
    let adopted = adopt(&found, &options).map_err(|error| Failure::new(Code::BadArgument, error))?;
    if adopted.summary.applications == 0 {
        let selected = !options.projects.is_empty() || !arguments.selector.is_empty();
        let which = if selected { "no Application fits the selection" } else { "there are no Applications" };
        let message = format!("{which} in the Argo CD in namespace `{}` of {context}", options.argocd);
        return Err(Failure::new(Code::UnknownName, message)
            .hint("--argocd-namespace and --context say where to look, --project and --selector for what"));
    }
    if arguments.dry_run {
        return dry_run(&adopted, arguments.output, output);
    }
    std::fs::create_dir_all(&folder).map_err(|error| Failure::write(format!("`{}`", folder.display()), &error))?;
    let _lock = Lock::take(&folder)?;
    is_free(&folder, &adopted.files)?;
    write_new(&folder, &adopted.files, output)?;
    output.say("");
    let rendered = match arguments.output {
        Format::Text => text(&adopted, output),
        Format::Json => format!("{:#}\n", value(&adopted)),
    };
    output.data(&rendered)?;
    output.say("\nNothing was changed in the cluster. ADOPTED.md has every hazard with what to do.");
    output.say(&format!(
        "Next: forge lint, forge graph --environment {0}, forge plan --simulate --environment {0}.",
        adopted.environment
    ));
    Ok(Exit::Done)
}

/// The environment's name, where one is given.
fn environment(given: Option<&str>) -> Result<Option<EnvironmentName>, Failure> {
    let Some(given) = given.filter(|name| !name.is_empty()) else { return Ok(None) };
    let name: EnvironmentName = given.parse().map_err(|error| Failure::new(Code::BadArgument, error))?;
    let length = name.as_str().len();
    if length > MAX_ENVIRONMENT {
        let message = format!(
            "--environment `{name}` has {length} characters; at most {MAX_ENVIRONMENT} are allowed, because the \
             Workflows of its runs are named after it"
        );
        return Err(Failure::new(Code::BadArgument, message).hint("shorten it, or leave it out and a name is chosen"));
    }
    Ok(Some(name))
}

/// Refuses a folder that holds something else: half of one repository and half of another would be neither.
fn is_free(folder: &Path, files: &[File]) -> Result<(), Failure> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            let message = format!("failed to read `{}`: {error}", folder.display());
            return Err(Failure::new(Code::BadArgument, message).hint("name a folder that is new or empty"));
        }
        Ok(entries) => entries,
    };
    let ours = ["forge.yaml", "graph.yaml", forge_core::adopt::REPORT_FILE];
    let mut names: Vec<String> =
        entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned())).collect();
    names.sort();
    for name in names {
        // A fresh clone holds these; nothing of them is a part of Forge's layout.
        if name.starts_with('.') || ["README.md", "LICENSE"].contains(&name.as_str()) {
            continue;
        }
        let same = |file: &File| std::fs::read(folder.join(&name)).is_ok_and(|bytes| bytes == file.text.as_bytes());
        let before = match files.iter().find(|file| file.path == name) {
            Some(file) => same(file),
            // Not known yet what will be written.
            None => files.is_empty() && ours.contains(&name.as_str()),
        };
        if !before {
            let name = forge_core::name::clip(&name);
            return Err(Failure::new(Code::BadArgument, format!("`{}` holds `{name}` already", folder.display()))
                .hint("name a folder that is new or empty and compare the two; --dry-run prints without writing"));
        }
    }
    Ok(())
}

/// What was read.
struct Read {
    found: Found,
    /// The identities of the Applications that fit --selector.
    listed: Option<BTreeSet<String>>,
    context: String,
}

/// Everything that may be read. Only Applications must be.
async fn find(arguments: &Arguments) -> Result<Read, Failure> {
    let cluster = Cluster::connect(&arguments.cluster).await?;
    let argocd = arguments.argocd_namespace.as_str();
    let (all, one_namespace) = applications(&cluster, argocd, "").await?;
    let listed = match arguments.selector.as_str() {
        "" => None,
        // Listed again, because those that do not fit may manage those that do, or define what they use.
        selector => {
            let (fitting, _) = applications(&cluster, argocd, selector).await?;
            Some(fitting.iter().map(|object| identity(object, &arguments.argocd_namespace)).collect())
        }
    };
    let definitions = path::global("apiextensions.k8s.io", "v1", "customresourcedefinitions");
    let settings = path::object(&path::config_maps(argocd), "argocd-cm");
    let (sets, projects, definitions, settings) = tokio::join!(
        everywhere(&cluster, argocd, "applicationsets", ""),
        cluster_list(&cluster, path::argo(argocd, "appprojects")),
        cluster_list(&cluster, definitions),
        cluster.get(&settings),
    );
    let found = Found {
        applications: all,
        application_sets: permitted(sets)?.map(|(sets, _)| sets),
        projects: permitted(projects)?,
        definitions: permitted(definitions)?,
        // Absent is known: there are no settings.
        settings: permitted(settings)?.map(|settings| settings.unwrap_or_else(|| json!({}))),
        one_namespace,
    };
    Ok(Read { found, listed, context: cluster.context })
}

/// The Applications that fit a selector; true where only Argo CD's namespace may be read.
async fn applications(cluster: &Cluster, argocd: &str, selector: &str) -> Result<(Vec<Value>, bool), Failure> {
    let answer = everywhere(cluster, argocd, "applications", selector).await;
    answer.map_err(|error| no_applications(error, &cluster.context))
}

async fn cluster_list(cluster: &Cluster, collection: String) -> Result<Vec<Value>, ClusterError> {
    cluster.list(&collection, "").await
}

/// A collection of all namespaces, or of Argo CD's own where only that is permitted; true for the latter.
async fn everywhere(
    cluster: &Cluster,
    argocd: &str,
    plural: &str,
    selector: &str,
) -> Result<(Vec<Value>, bool), ClusterError> {
    let all = path::global("argoproj.io", "v1alpha1", plural);
    match cluster.list(&all, selector).await {
        Err(ClusterError::Refused { code: 403, .. }) => {
            Ok((cluster.list(&path::argo(argocd, plural), selector).await?, true))
        }
        other => other.map(|items| (items, false)),
    }
}

/// What is refused, or is no kind of this cluster, is not known; every other failure is one.
fn permitted<T>(answer: Result<T, ClusterError>) -> Result<Option<T>, Failure> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(ClusterError::Refused { code: 401 | 403 | 404, .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn no_applications(error: ClusterError, context: &str) -> Failure {
    if error.is_missing() {
        return Failure::new(
            Code::NotBootstrapped,
            format!("{context} serves no Applications: there is no Argo CD in it"),
        )
        .hint("--context takes the cluster that runs Argo CD, not one that it deploys to");
    }
    let refused = matches!(error, ClusterError::Refused { code: 400, .. });
    let failure = Failure::from(error);
    if refused { Failure::new(Code::BadArgument, failure.message).hint("check --selector") } else { failure }
}

fn dry_run(adopted: &Adopted, format: Format, output: &mut Output<'_>) -> Result<Exit, Failure> {
    let files: Vec<&File> = adopted.files.iter().filter(|file| !file.path.starts_with('.')).collect();
    let rendered = match format {
        Format::Text => {
            files.iter().map(|file| format!("==> {} <==\n{}", file.path, file.text)).collect::<Vec<_>>().join("\n")
        }
        Format::Json => {
            let mut value = value(adopted);
            let files: Vec<Value> = files.iter().map(|file| json!({"path": file.path, "text": file.text})).collect();
            if let Some(fields) = value.as_object_mut() {
                fields.insert("files".to_owned(), json!(files));
            }
            format!("{value:#}\n")
        }
    };
    output.data(&rendered)?;
    output.say("\nNothing was written.");
    Ok(Exit::Done)
}

fn value(adopted: &Adopted) -> Value {
    json!({"environment": adopted.environment, "summary": adopted.summary, "hazards": adopted.hazards})
}

/// One line per kind of hazard; ADOPTED.md has them all.
fn text(adopted: &Adopted, output: &Output<'_>) -> String {
    let summary = &adopted.summary;
    let count = |n: usize, one: &str, many: &str| format!("{n} {}", if n == 1 { one } else { many });
    let mut text = format!(
        "{}: {} in {}\n{} from app-of-apps, sync waves and steps; {} from CRDs; {} left out\n",
        output.paint(Paint::Strong, adopted.environment.as_str()),
        count(summary.applications, "Application", "Applications"),
        count(summary.stacks, "stack", "stacks"),
        count(summary.stack_dependencies, "dependency", "dependencies"),
        summary.definition_dependencies,
        summary.dropped,
    );
    let mut kinds: Vec<Kind> = adopted.hazards.iter().map(|hazard| hazard.kind).collect();
    kinds.sort_by_key(|kind| (kind.severity(), *kind));
    kinds.dedup();
    if !kinds.is_empty() {
        let _ = writeln!(text, "\n{:<9} {:<26} {:>4}  ABOUT", "SEVERITY", "HAZARD", "");
    }
    for kind in kinds {
        let hazards = || adopted.hazards.iter().filter(|hazard| hazard.kind == kind);
        let (count, about) = (hazards().count(), hazards().map(|hazard| short(&hazard.about)).collect());
        let paint = match kind.severity() {
            Severity::Blocking => Paint::Bad,
            Severity::Caution => Paint::Busy,
            Severity::Note => Paint::Dim,
        };
        let severity = output.paint(paint, &format!("{:<9}", kind.severity().word()));
        let _ = writeln!(text, "{severity} {:<26} {count:>4}  {}", kind.id(), fitting(&about, 55));
    }
    text
}

/// The name without the kind of object.
fn short(about: &str) -> &str {
    about.split_once(' ').map_or(about, |(_, name)| name)
}

/// As many names as fit into a width; the first may be cut.
fn fitting(names: &BTreeSet<&str>, width: usize) -> String {
    let mut text = String::new();
    for (shown, name) in names.iter().enumerate() {
        let rest = names.len() - shown;
        let room = width.saturating_sub(", … 1234 more".chars().count());
        if text.is_empty() {
            text.extend(name.chars().take(room));
            if name.chars().count() > room {
                text.push('…');
            }
        } else if text.chars().count() + 2 + name.chars().count() > room {
            let _ = write!(text, ", … {rest} more");
            break;
        } else {
            let _ = write!(text, ", {name}");
        }
    }
    text
}
