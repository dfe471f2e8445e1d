//! A repository like those that `forge adopt` finds: every node an Application that exists already, on a plain folder of
//! Git. [`files`] is the twin of `examples/platform` (the same stacks, edges, objects and times), so that the example can
//! run on a sandbox without releases; [`small`] takes any graph that a test thinks of, [`released()`] deploys one from releases, and
//! [`released_example`] the example itself.
//!
//! Everything in it is named after its environment, the groups of its custom resources too, so that several of them share
//! a cluster without meeting.

mod git;
mod manifests;
mod released;
mod root;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use forge_core::format::API_VERSION;

pub use git::{GitError, GitRepository, push};
pub use manifests::{File, config_map, deployment, kwok_deployment};
pub use released::{EXAMPLE_ENVIRONMENT, Pointer, node_id, plugin_values, pointer_file, released, released_example};
pub use root::rooted;

use crate::example::{self, App, Flavour, REGISTRY, SAMPLE_IMAGE, STACKS, Stack};

/// Where Argo CD runs, and its Applications are.
pub const ARGOCD: &str = "argocd";
/// The label that the Applications and the AppProject of a twin carry. It is no label of Forge's: what Forge finds in an
/// Argo CD that is there already has none of those.
pub const LABEL: &str = "sample.example.com/twin";
/// How Argo CD names the cluster that it runs in.
const IN_CLUSTER: &str = "https://kubernetes.default.svc";
/// No workload of the twin becomes ready sooner: probes run once a second.
const SOONEST: f64 = 1.0;
/// How long before its configured time to readiness a workload with a probe answers: the probe of that second is to see it.
/// Otherwise chance decides whether it is seen a second later.
const BEFORE_THE_PROBE: f64 = 0.3;

/// What a twin is made for.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// The only environment. It is also the AppProject, and the start of every name.
    pub environment: String,
    /// The repository, by the name that it has for pods.
    pub url: String,
    /// The sample workload, by digest.
    pub image: String,
    /// Whether Argo CD syncs by itself, prunes and heals.
    pub auto: bool,
    /// What the times of the example are multiplied with.
    pub scale: f64,
    /// Whether every node is a Deployment with a pod of its own, for measuring: CustomResourceDefinitions make Argo CD and
    /// the API server read all schemas again, which says nothing about who orders the nodes.
    pub pods: bool,
    /// Limits of sync and health, for every node; as in the example if absent.
    pub timeouts: Option<(String, String)>,
    /// How often a failed sync is tried again, for every node; as in the example if absent.
    pub retry_limit: Option<u32>,
    /// Who installs Argo, as `forge.yaml` says it.
    pub argo: String,
}

impl Options {
    /// With manual sync, times and limits of the example, and an Argo that is there.
    pub fn new(environment: &str, url: &str, image: &str) -> Self {
        Self {
            environment: environment.to_owned(),
            url: url.to_owned(),
            image: image.to_owned(),
            auto: false,
            scale: 1.0,
            pods: false,
            timeouts: None,
            retry_limit: None,
            argo: "{cd: existing, workflows: existing, events: none}".to_owned(),
        }
    }

    /// The Application of a node, which is also its namespace.
    pub fn application(&self, node: &str) -> String {
        format!("{}-{node}", self.environment)
    }

    /// The node as `graph.yaml` and commands name it.
    pub fn id(&self, node: &str) -> String {
        format!("{ARGOCD}/{}", self.application(node))
    }

    fn flavoured(&self, app: &App) -> App {
        if self.pods { App { flavour: Flavour::Deployment, ..*app } } else { *app }
    }

    /// Seconds from the start of an application of the example to its health.
    pub fn ready_after(&self, app: &App) -> f64 {
        (f64::from(app.ready_after) * self.scale).max(SOONEST)
    }
}

/// A node of a [`small`] graph.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TwinNode {
    /// Its name; Application and namespace are `<environment>-<name>`.
    pub name: String,
    /// Names of the nodes that it waits for, or `stack:main`.
    pub depends_on: Vec<String>,
    /// File names and texts of its folder.
    pub manifests: Vec<File>,
    /// Further lines of the node in `graph.yaml`: `timeouts: {health: 5s}`, `requires: […]`.
    pub settings: String,
}

impl TwinNode {
    /// A node with nothing said about its limits.
    pub fn new(name: &str, depends_on: &[&str], manifests: Vec<File>) -> Self {
        let depends_on = depends_on.iter().map(|name| (*name).to_owned()).collect();
        Self { name: name.to_owned(), depends_on, manifests, settings: String::new() }
    }
}

/// A stack on its way into files.
struct Group<'t> {
    name: &'t str,
    layer: u32,
    depends_on: &'t [&'t str],
    nodes: Vec<Member>,
}

/// A node on its way into files.
struct Member {
    node: TwinNode,
    folder: String,
}

/// The twin of `examples/platform`, as paths and texts, sorted by path.
pub fn files(options: &Options) -> Vec<(String, String)> {
    let groups = STACKS.iter().map(|stack| Group {
        name: stack.name,
        layer: stack.layer,
        depends_on: stack.depends_on,
        nodes: stack.apps.iter().map(|app| member(options, stack, &options.flavoured(app))).collect(),
    });
    assembled(options, &groups.collect::<Vec<_>>())
}

/// Any graph in the same shape: one stack `main`, a folder for each node.
pub fn small(options: &Options, nodes: &[TwinNode]) -> Vec<(String, String)> {
    let member = |node: &TwinNode| Member { folder: format!("apps/{}", node.name), node: node.clone() };
    let nodes = nodes.iter().map(member).collect();
    assembled(options, &[Group { name: "main", layer: 0, depends_on: &[], nodes }])
}

/// `repo-project`.
fn node_name(id: &str) -> String {
    id.replace('/', "-")
}

/// An application of the example as a node.
fn member(options: &Options, stack: &Stack, app: &App) -> Member {
    let mut settings = String::new();
    if let Flavour::CustomResource(definition) = app.flavour {
        let _ = write!(
            settings,
            "requires:
  - apiVersion: apiextensions.k8s.io/v1
    kind: CustomResourceDefinition
    name: {}
health:
  - apiVersion: {}
    kind: {}
    name: {}
    expr: {}
",
            regrouped(&definition.name(), options, app),
            regrouped(&definition.api_version(), options, app),
            definition.kind,
            definition.instance,
            example::quoted(definition.healthy)
        );
    }
    if options.timeouts.is_none() {
        let limits = [("sync", app.sync), ("health", app.health)];
        let limits: Vec<_> = limits.iter().filter_map(|(what, limit)| Some(format!("{what}: {}", (*limit)?))).collect();
        if !limits.is_empty() {
            let _ = writeln!(settings, "timeouts: {{{}}}", limits.join(", "));
        }
    }
    if let (None, Some(limit)) = (options.retry_limit, app.retries) {
        let _ = writeln!(settings, "retry: {{limit: {limit}}}");
    }
    let (written, ready) = (format!("{}s", app.ready_after), options.ready_after(app));
    let manifests = example::manifests(stack, app).into_iter().map(|(name, text)| {
        let lead = if text.contains("readinessProbe:") { BEFORE_THE_PROBE } else { 0.0 };
        let wanted = duration(ready - lead);
        let text = text
            .replace(SAMPLE_IMAGE, &options.image)
            .replace(&format!("value: {written}\n"), &format!("value: {wanted}\n"))
            .replace(&format!("/ready-after: {written}\n"), &format!("/ready-after: {wanted}\n"));
        (name, regrouped(&text, options, app))
    });
    let node = TwinNode {
        name: node_name(&app.id()),
        depends_on: app.depends_on.iter().map(|id| node_name(id)).collect(),
        manifests: manifests.collect(),
        settings,
    };
    Member { node, folder: format!("apps/{}", app.id()) }
}

/// A text with the group of the application's custom resource turned into the environment's own: definitions belong to
/// no namespace. It still ends as the sandbox's simulated operators want it.
fn regrouped(text: &str, options: &Options, app: &App) -> String {
    let (Flavour::Crd(definition) | Flavour::CustomResource(definition)) = app.flavour else { return text.to_owned() };
    let Some((name, domain)) = definition.group.split_once('.') else { return text.to_owned() };
    text.replace(definition.group, &format!("{name}.{}.{domain}", options.environment))
}

/// A time as the sample workload and the simulated operators read it.
fn duration(seconds: f64) -> String {
    if seconds.fract() == 0.0 { format!("{seconds}s") } else { format!("{}ms", (seconds * 1000.0).round()) }
}

fn assembled(options: &Options, groups: &[Group<'_>]) -> Vec<(String, String)> {
    let mut files = vec![
        ("forge.yaml".to_owned(), installation(options, REGISTRY, "")),
        ("graph.yaml".to_owned(), graph(options, groups, "application", &|name| options.id(name))),
        ("argocd/project.yaml".to_owned(), project(options)),
        ("argocd/applications.yaml".to_owned(), applications(options, groups)),
    ];
    for member in groups.iter().flat_map(|group| &group.nodes) {
        let place = |(name, text): &File| (format!("{}/{name}", member.folder), text.clone());
        files.extend(member.node.manifests.iter().map(place));
    }
    files.sort();
    files
}

/// `forge.yaml`, with what else is said of the environment.
fn installation(options: &Options, registry: &str, further: &str) -> String {
    let Options { environment, url, auto, argo, .. } = options;
    let sync = if *auto { "auto" } else { "manual" };
    format!(
        "apiVersion: {API_VERSION}
kind: Forge
spec:
  registry: {registry}
  repository: {{url: \"{url}\", branch: main}}
  argo: {argo}
  environments:
    - {{name: {environment}, cluster: in-cluster, sync: {sync}{further}}}
"
    )
}

/// `graph.yaml`, whose nodes are of this kind and have these ids by their names.
fn graph(options: &Options, groups: &[Group<'_>], kind: &str, id: &dyn Fn(&str) -> String) -> String {
    let (sync, health) = options.timeouts.as_ref().map_or(("3m", "5m"), |(sync, health)| (sync, health));
    let limit = options.retry_limit.unwrap_or(3);
    let mut text = format!(
        "apiVersion: {API_VERSION}
kind: DependencyGraph
spec:
  defaults:
    timeouts: {{sync: {sync}, health: {health}}}
    retry: {{limit: {limit}, backoff: 5s, factor: 2, max: 2m}}
  timeout: 3h
  stacks:
"
    );
    for group in groups {
        let _ = writeln!(text, "    - name: {}\n      layer: {}", group.name, group.layer);
        if !group.depends_on.is_empty() {
            let _ = writeln!(text, "      dependsOn: {}", example::listed(group.depends_on));
        }
        text.push_str("      apps:\n");
        for Member { node, .. } in &group.nodes {
            let _ = writeln!(text, "        - {kind}: {}", id(&node.name));
            let before: Vec<String> = node.depends_on.iter().map(|name| reference(name, id)).collect();
            if !before.is_empty() {
                let before: Vec<&str> = before.iter().map(String::as_str).collect();
                let _ = writeln!(text, "          dependsOn: {}", example::listed(&before));
            }
            for line in node.settings.lines() {
                let _ = writeln!(text, "          {line}");
            }
        }
    }
    text
}

/// A dependency as `graph.yaml` has it.
fn reference(name: &str, id: &dyn Fn(&str) -> String) -> String {
    if name.starts_with("stack:") { name.to_owned() } else { id(name) }
}

fn project(options: &Options) -> String {
    let Options { environment, url, .. } = options;
    format!(
        "apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata:
  name: {environment}
  namespace: {ARGOCD}
  labels:
    {LABEL}: {environment}
spec:
  sourceRepos:
    - \"{url}\"
  destinations:
    - server: {IN_CLUSTER}
      namespace: \"*\"
  clusterResourceWhitelist:
    - group: \"*\"
      kind: \"*\"
"
    )
}

fn applications(options: &Options, groups: &[Group<'_>]) -> String {
    let Options { environment, url, auto, .. } = options;
    let automated = if *auto { "    automated:\n      prune: true\n      selfHeal: true\n" } else { "" };
    let documents = groups.iter().flat_map(|group| &group.nodes).map(|Member { node, folder }| {
        let application = options.application(&node.name);
        format!(
            "apiVersion: argoproj.io/v1alpha1
kind: Application
metadata:
  name: {application}
  namespace: {ARGOCD}
  labels:
    {LABEL}: {environment}
spec:
  project: {environment}
  source:
    repoURL: \"{url}\"
    targetRevision: main
    path: {folder}
  destination:
    server: {IN_CLUSTER}
    namespace: {application}
  syncPolicy:
{automated}    syncOptions:
      - CreateNamespace=true
"
        )
    });
    documents.collect::<Vec<_>>().join("---\n")
}

/// What each Application of the twin waits for, stacks dissolved, by names of Applications.
pub fn predecessors(options: &Options) -> BTreeMap<String, BTreeSet<String>> {
    let name = |id: &str| options.application(&node_name(id));
    let members = |stack: &str| -> Vec<String> {
        let found = STACKS.iter().find(|known| known.name == stack);
        found.into_iter().flat_map(|stack| stack.apps).map(|app| name(&app.id())).collect()
    };
    let all = example::apps().map(|(stack, app)| {
        let before = stack
            .depends_on
            .iter()
            .chain(app.depends_on)
            .flat_map(|reference| reference.strip_prefix("stack:").map_or_else(|| vec![name(reference)], members));
        (name(&app.id()), before.collect())
    });
    all.collect()
}

/// Seconds that no run of the twin can undercut: the longest path through the graph of configured times to readiness.
pub fn nominal_critical_path(options: &Options) -> f64 {
    let predecessors = predecessors(options);
    let own: BTreeMap<String, f64> = example::apps()
        .map(|(_, app)| (options.application(&node_name(&app.id())), options.ready_after(app)))
        .collect();
    let mut ends: BTreeMap<&str, f64> = BTreeMap::new();
    // The table is no deeper than it is long.
    for _ in 0..own.len() {
        for (name, seconds) in &own {
            let before = predecessors.get(name).into_iter().flatten();
            let begin = before.filter_map(|before| ends.get(before.as_str())).fold(0.0_f64, |most, end| most.max(*end));
            ends.insert(name, begin + seconds);
        }
    }
    ends.into_values().fold(0.0, f64::max)
}

/// The custom resources of the twin that live in namespaces, as `plural.group`: their operators say by a condition when
/// they are ready.
pub fn conditioned(options: &Options) -> Vec<String> {
    let kinds = example::apps().filter_map(|(_, app)| match app.flavour {
        Flavour::CustomResource(kind) if kind.scope == "Namespaced" => Some(regrouped(&kind.name(), options, app)),
        _ => None,
    });
    kinds.collect()
}
