//! An Argo CD that is there already, as a repository of Forge: `forge.yaml`, a `graph.yaml` of `application:` nodes, and a list
//! of hazards (SPEC.md section 6).
//!
//! Pure: objects as JSON go in, texts come out, the same bytes whatever the order of the objects (INV-9). The input is
//! other people's: nothing in it is trusted, a field that is missing or odd is a hazard at most. What comes out always
//! builds and has no cycle, and it lints, except where no source is in Git: then a placeholder stands for the URL of
//! the repository, which lint reports (FORGE-R007) and hazard `no-repository` tells.
//!
//! Where dependencies come from, the stronger first; a weaker one that would close a cycle is left out and listed:
//! 1. the forest of app-of-apps and ApplicationSets with its sync waves and RollingSync steps ([`forest`]): people wrote it;
//! 2. providers and users of custom resource definitions ([`definitions`]): seen in the cluster.
//!
//! Where Argo CD assesses the health of Applications, a parent waits for its children by that alone. It is no
//! dependency in `graph.yaml`, but what contradicts it is left out like what closes a cycle: no run could end.

mod acyclic;
mod definitions;
mod forest;
mod hazard;
mod inspect;
mod read;
mod stack_name;
mod write;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

pub(crate) use definitions::is_plural_of;
pub use hazard::{Hazard, Kind, Severity};

use crate::format::{KINDS, schema};
use crate::name::{ApplicationId, EnvironmentName, MAX_ENVIRONMENT, NameError, Namespace, NodeId};
use crate::scaffold::File;
use crate::url::without_credentials;

/// The report beside the files.
pub const REPORT_FILE: &str = "ADOPTED.md";

/// What was read from the cluster. `None` is what could not be read.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// Applications.
    pub applications: Vec<Value>,
    /// ApplicationSets.
    pub application_sets: Option<Vec<Value>>,
    /// AppProjects of Argo CD's namespace.
    pub projects: Option<Vec<Value>>,
    /// CustomResourceDefinitions.
    pub definitions: Option<Vec<Value>>,
    /// ConfigMap `argocd-cm`.
    pub settings: Option<Value>,
    /// Applications and ApplicationSets of Argo CD's namespace only.
    pub one_namespace: bool,
}

/// What is wanted.
#[derive(Debug, Clone)]
pub struct Options {
    /// The environment's name, of at most [`MAX_ENVIRONMENT`] characters; chosen if absent.
    pub environment: Option<EnvironmentName>,
    /// Argo CD's namespace.
    pub argocd: Namespace,
    /// Only Applications of these AppProjects; all if empty.
    pub projects: BTreeSet<String>,
    /// Only Applications with these identities, see [`identity`]; all if absent.
    pub listed: Option<BTreeSet<String>>,
}

/// `namespace/name` of an object, as it says them.
pub fn identity(object: &Value, argocd: &Namespace) -> String {
    read::key(object, argocd.as_str())
}

impl Options {
    fn selects_all(&self) -> bool {
        self.projects.is_empty() && self.listed.is_none()
    }

    /// Whether an Application becomes a node. One that does not is still read: it may manage one that does.
    fn selects(&self, json: &Value) -> bool {
        let in_project = self.projects.is_empty() || self.projects.contains(read::project(json));
        in_project && self.listed.as_ref().is_none_or(|listed| listed.contains(&identity(json, &self.argocd)))
    }
}

/// How much was found and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Applications that are nodes.
    pub applications: usize,
    /// Applications that were read and are none.
    pub left_out: usize,
    /// ApplicationSets that were read.
    pub application_sets: usize,
    /// Stacks.
    pub stacks: usize,
    /// Dependencies of stacks: from parents, sync waves and steps.
    pub stack_dependencies: usize,
    /// Dependencies of single Applications: from CRDs.
    pub definition_dependencies: usize,
    /// Dependencies that would have made a cycle.
    pub dropped: usize,
}

/// What adoption gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adopted {
    /// The environment.
    pub environment: EnvironmentName,
    /// The files, `forge.yaml` first.
    pub files: Vec<File>,
    /// The hazards, by kind and object.
    pub hazards: Vec<Hazard>,
    /// How much there is.
    pub summary: Summary,
}

/// Turns what was found into a repository.
///
/// # Errors
/// When the environment's name is too long. None that is chosen is.
pub fn adopt(found: &Found, options: &Options) -> Result<Adopted, NameError> {
    let argocd = options.argocd.as_str();
    let mut hazards = Vec::new();
    let applications = read::applications(&found.applications, argocd, |json| options.selects(json), &mut hazards);
    let chosen: Vec<&read::Application<'_>> = applications.iter().filter(|app| app.selected).collect();
    let sets = sets(found, &applications, options, &mut hazards);
    let assessed = inspect::assesses_applications(found.settings.as_ref(), &applications);
    let seen = forest::Seen { applications: &applications, sets: &sets, argocd, assessed };
    let order = forest::order(&seen, &mut hazards);
    let (kept, dropped) = uses(found, &applications, &order, argocd, &mut hazards);

    let repository = repository(&chosen);
    for app in &chosen {
        inspect::application(app, repository.as_ref().map(|(url, _)| url.as_str()), argocd, &mut hazards);
    }
    inspect::shared(&applications, &mut hazards);
    let mut by_project: BTreeMap<&str, usize> = BTreeMap::new();
    chosen.iter().for_each(|app| *by_project.entry(app.project).or_default() += 1);
    inspect::projects(found.projects.as_deref(), &by_project, &mut hazards);
    let cluster = cluster(&chosen, &mut hazards);
    unread(found, argocd, &mut hazards);
    if repository.is_none() {
        hazards.push(Hazard::new(Kind::NoRepository, "forge.yaml", "a placeholder stands for its URL"));
    }
    hazards.sort();
    hazards.dedup();

    let environment = match &options.environment {
        Some(given) => fitting(given)?,
        None => environment(&by_project)?,
    };
    let summary = Summary {
        applications: chosen.len(),
        left_out: found.applications.len().saturating_sub(chosen.len()),
        application_sets: sets.iter().filter(|set| set.json.is_object()).count(),
        stacks: order.stacks.len(),
        stack_dependencies: order.stacks.iter().map(|stack| stack.depends_on.len()).sum(),
        definition_dependencies: kept.len(),
        dropped: dropped.len(),
    };
    let mut files = vec![
        write::installation(&environment, repository.as_ref(), &cluster, &options.argocd),
        write::graph(&order.stacks, &applications, &kept),
        write::report(&environment, &options.argocd, &summary, &hazards),
    ];
    for kind in KINDS {
        if let Some(schema) = schema(kind) {
            let text = format!("{:#}\n", schema.as_value());
            files.push(File { path: format!(".forge/schemas/{kind}.json"), text });
        }
    }
    Ok(Adopted { environment, files, hazards, summary })
}

/// The ApplicationSets, with those that may not be read but are known by what they own. Under a selection only what
/// owns a part of it is of interest.
fn sets<'j>(
    found: &'j Found,
    applications: &[read::Application<'_>],
    options: &Options,
    hazards: &mut Vec<Hazard>,
) -> Vec<read::Set<'j>> {
    static NOTHING: Value = Value::Null;
    let argocd = options.argocd.as_str();
    let chosen = applications.iter().filter(|app| app.selected);
    let owning: BTreeSet<String> = chosen.filter_map(read::Application::set).collect();
    let concerns = |json: &Value| options.selects_all() || owning.contains(&read::key(json, argocd));
    let mut sets = read::sets(found.application_sets.as_deref().unwrap_or_default(), argocd, concerns, hazards);
    sets.iter().filter(|set| concerns(set.json)).for_each(|set| inspect::set(set, hazards));
    let listed: BTreeSet<ApplicationId> = sets.iter().map(|set| set.id.clone()).collect();
    let owners: BTreeSet<ApplicationId> = applications.iter().filter_map(|app| app.set()?.parse().ok()).collect();
    let unlisted = owners.difference(&listed).cloned();
    sets.extend(unlisted.map(|id| read::Set { id, json: &NOTHING, wave: None, tracked_by: None }));
    sets
}

/// What selected Applications use of each other's definitions: what is written, and what would close a cycle.
fn uses(
    found: &Found,
    applications: &[read::Application<'_>],
    order: &forest::Order,
    argocd: &str,
    hazards: &mut Vec<Hazard>,
) -> (Vec<definitions::Use>, Vec<definitions::Use>) {
    let uses = definitions::uses(applications, found.definitions.as_deref(), argocd, hazards);
    let is_selected = |index: usize| applications.get(index).is_some_and(|app| app.selected);
    let (uses, outside): (Vec<_>, Vec<_>) = uses.into_iter().partition(|each| is_selected(each.provider));
    let nodes = applications.iter().enumerate().filter(|(_, app)| app.selected);
    let nodes: BTreeMap<NodeId, usize> = nodes.map(|(i, app)| (NodeId::from(&app.id), i)).collect();
    let (kept, dropped) = acyclic::split(order, &nodes, uses);
    for (kind, list) in [(Kind::OutsideSelection, &outside), (Kind::OrderConflict, &dropped)] {
        for each in list {
            if let (Some(user), Some(provider)) = (applications.get(each.user), applications.get(each.provider)) {
                let detail = format!("uses {} of {}", each.definition, provider.id);
                hazards.push(Hazard::new(kind, &user.about(), detail));
            }
        }
    }
    (kept, dropped)
}

/// The name, if the Workflows of its runs can be named after it.
fn fitting(name: &EnvironmentName) -> Result<EnvironmentName, NameError> {
    match name.as_str().len() {
        length if length > MAX_ENVIRONMENT => {
            Err(NameError::TooLong { name: name.to_string(), length, max: MAX_ENVIRONMENT })
        }
        _ => Ok(name.clone()),
    }
}

/// The environment is named after the AppProject that most Applications are in, because that is the one that carries its
/// window; `production`, the careful choice, where that is everybody's or its name cannot be used.
fn environment(by_project: &BTreeMap<&str, usize>) -> Result<EnvironmentName, NameError> {
    const RESERVED: [&str; 3] = [inspect::DEFAULT_PROJECT, crate::graph::SYSTEM_STACK, "forge-components"];
    let most = by_project.iter().max_by(|(a, m), (b, n)| m.cmp(n).then_with(|| b.cmp(a)));
    let name = most.map(|(name, _)| *name).filter(|name| !RESERVED.contains(name) && name.len() <= MAX_ENVIRONMENT);
    name.and_then(|name| name.parse().ok()).map_or_else(|| "production".parse(), Ok)
}

/// The most frequent of some texts; the first in the alphabet among equals.
fn most_used<T: Ord>(all: impl Iterator<Item = T>) -> Option<T> {
    let mut count: BTreeMap<T, usize> = BTreeMap::new();
    all.for_each(|each| *count.entry(each).or_default() += 1);
    count.into_iter().max_by(|(a, m), (b, n)| m.cmp(n).then_with(|| b.cmp(a))).map(|(each, _)| each)
}

/// A text that may stand in a file as it is.
fn is_plain(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 500
        && !text.chars().any(|c| c.is_whitespace() || c.is_control())
        && crate::validate::scrubbed(text) == text
}

/// The Git repository that most sources read, without credentials, and its most frequent branch.
fn repository(chosen: &[&read::Application<'_>]) -> Option<(String, String)> {
    let sources = || chosen.iter().flat_map(|app| &app.sources).filter(|source| !source.chart);
    let urls = sources().map(|source| without_credentials(source.repository)).filter(|url| is_plain(url));
    let url =
        most_used(urls.filter(|url| !url.contains(".example.invalid") && !url.contains(crate::scaffold::PLACEHOLDER)))?;
    let own = sources().filter(|source| without_credentials(source.repository) == url);
    let branch = most_used(own.map(|source| source.revision).filter(|branch| *branch != "HEAD" && is_plain(branch)));
    Some((url, branch.unwrap_or("main").to_owned()))
}

/// The cluster that most Applications go to.
fn cluster(chosen: &[&read::Application<'_>], hazards: &mut Vec<Hazard>) -> String {
    let all: BTreeSet<&str> = chosen.iter().map(|app| app.cluster).filter(|cluster| !cluster.is_empty()).collect();
    if all.len() > 1 {
        let names: Vec<String> = all.iter().take(10).map(|name| without_credentials(name)).collect();
        let detail = format!("{} clusters: {}", all.len(), names.join(", "));
        hazards.push(Hazard::new(Kind::SeveralClusters, "Applications", detail));
    }
    let usable = chosen.iter().map(|app| without_credentials(app.cluster)).filter(|cluster| is_plain(cluster));
    most_used(usable).unwrap_or_else(|| read::IN_CLUSTER.to_owned())
}

fn unread(found: &Found, argocd: &str, hazards: &mut Vec<Hazard>) {
    let mut tell = |missing: bool, about: &str, detail: &str| {
        if missing {
            hazards.push(Hazard::new(Kind::Unread, about, detail));
        }
    };
    tell(found.application_sets.is_none(), "ApplicationSets", "their policies and RollingSync steps are not known");
    tell(found.projects.is_none(), "AppProjects", "their sync windows are not known");
    let kinds = "which kind a CRD defines was guessed from its plural, or taken from its group alone";
    tell(found.definitions.is_none(), "CustomResourceDefinitions", kinds);
    let health = "whether Argo CD assesses the health of Applications was judged by their status alone";
    tell(found.settings.is_none(), "ConfigMap argocd-cm", health);
    let namespace = format!("only Applications in namespace {argocd} were read");
    tell(found.one_namespace, "other namespaces", &namespace);
}

/// A text from the cluster as it may stand in our files and on a terminal: short, without control characters, secrets that
/// can be recognised, marks that lint would obey, and signs that end a quotation.
fn shown(text: &str) -> String {
    const LONGEST: usize = 300;
    let text = crate::validate::scrubbed(text);
    let mut out = String::with_capacity(text.len().min(LONGEST));
    for (count, c) in text.chars().enumerate() {
        if count == LONGEST {
            out.push('…');
            break;
        }
        out.push(match c {
            '`' => '\'',
            c if c.is_control() => '\u{fffd}',
            c => c,
        });
    }
    out.replace("forge:allow", "forge-allow")
}
