//! What happens before a run: where it takes place, what exactly every node must become, and what is proven already.
//! Reads only, up to the moment at which the Lease is taken.

pub(crate) mod releases;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use forge_core::code::Code;
use forge_core::digest::CommitId;
use forge_core::failure::Failure;
use forge_core::gate::{Content, Decision};
use forge_core::graph::{Graph, NodeIx, Scope};
use forge_core::name::{ApplicationId, NodeId, clip};
use forge_core::plan::Plan;
use forge_core::preflight;
use forge_core::render::{self, AGENT_TICK, AGENT_TICKS, IMAGE_ANNOTATION, PLUGIN, Places, TICK_ANNOTATION};
use forge_core::run::{RunPlan, Runner};
use forge_core::url::same_repository;
use forge_core::view::LookedAt;
use futures::StreamExt as _;
use jiff::Timestamp;
use serde_json::Value;

use super::lease::{self, Conducted};
use super::{Place, job};
use crate::argocd::{self, Application, ArgoCd, Feed};
use crate::cluster::{Cluster, ClusterError, path};
use crate::git_reader::{GitCredentials, GitReader};
use crate::metrics::Metrics;
use crate::prove::{Mode, Prover};
use crate::recorder::Recorder;
use releases::{Releases, Resolved};

/// Comparisons that are asked for at once.
const AT_ONCE: usize = 12;
/// How long all of the looking may take, and how much longer for each node.
const PATIENCE: Duration = Duration::from_secs(180);
const PER_NODE: Duration = Duration::from_millis(500);

/// What a run is made from.
pub(crate) struct Made<'m> {
    pub(crate) plan: &'m Plan,
    pub(crate) graph: &'m Graph,
    pub(crate) nodes: &'m [NodeIx],
    pub(crate) commit: CommitId,
    /// The GitOps repository, as Applications name it.
    pub(crate) repository: Option<String>,
    /// With how many tasks a band is full, instead of what is usual (docs/adr/0025).
    pub(crate) band: Option<usize>,
    /// Whom Git is told that one is: on a workstation somebody else than in a pod.
    pub(crate) credentials: GitCredentials,
    /// Where the releases are that pointers name; nothing where there are none.
    pub(crate) releases: Option<Releases>,
}

/// Where runs take place, as bootstrap left it.
///
/// # Errors
/// When the cluster is not prepared.
pub(crate) async fn place(cluster: &Cluster, workflows: &str, argocd: &str) -> Result<Place, Failure> {
    let places = prepared(cluster, workflows, argocd).await?.ok_or_else(|| {
        unprepared(format!("there is no ConfigMap `{}` in namespace `{workflows}`", plugin_config_map()))
    })?;
    Ok(Place { cluster: cluster.clone(), places })
}

/// What bootstrap noted; nothing where it never was.
///
/// # Errors
/// When what it noted makes no sense.
pub(crate) async fn prepared(cluster: &Cluster, workflows: &str, argocd: &str) -> Result<Option<Places>, Failure> {
    let name = plugin_config_map();
    let Some(plugin) = cluster.get(&path::object(&path::config_maps(workflows), &name)).await? else {
        return Ok(None);
    };
    let noted = |annotation: &str| plugin.pointer("/metadata/annotations")?.get(annotation)?.as_str();
    let image = noted(IMAGE_ANNOTATION).ok_or_else(|| unprepared(format!("ConfigMap `{name}` names no image")))?;
    // A cluster that an earlier version prepared has no tick noted.
    let agent_tick = match noted(TICK_ANNOTATION) {
        None => AGENT_TICK,
        Some(text) => text.parse().ok().filter(|tick| AGENT_TICKS.contains(tick)).ok_or_else(|| {
            let (text, least, most) = (clip(text), AGENT_TICKS.start(), AGENT_TICKS.end());
            let annotation = format!("annotation `{TICK_ANNOTATION}` of ConfigMap `{name}`");
            unprepared(format!("{annotation} is `{text}`, not milliseconds from {least} to {most}"))
        })?,
    };
    let (workflows, argocd) = (workflows.to_owned(), argocd.to_owned());
    Ok(Some(Places { workflows, argocd, image: image.to_owned(), agent_tick }))
}

fn plugin_config_map() -> String {
    format!("{PLUGIN}-executor-plugin")
}

fn unprepared(what: String) -> Failure {
    Failure::new(Code::NotBootstrapped, what).hint("`forge bootstrap` prepares a cluster for runs, once")
}

/// How nodes are run, and what is to be said about it: as somebody wants it, else as tasks of the plugin where the
/// workflow-controller has executor plugins switched on, else each in a pod of its own.
///
/// # Errors
/// When the cluster does not answer.
pub(crate) async fn runner(
    place: &Place,
    asked_for: Option<Runner>,
) -> Result<(Runner, Option<&'static str>), Failure> {
    if asked_for == Some(Runner::Pod) {
        return Ok((Runner::Pod, None));
    }
    Ok(match (asked_for, plugins(place).await?) {
        (None, Some(false)) => {
            let note = "the workflow-controller runs without executor plugins: every node gets a pod of its own";
            (Runner::Pod, Some(note))
        }
        (Some(_), Some(false)) => {
            let note = "the workflow-controller seems to run without executor plugins, and the plugin was asked for: no node gets done unless they are switched on after all";
            (Runner::Plugin, Some(note))
        }
        _ => (Runner::Plugin, None),
    })
}

/// Whether the workflow-controller has executor plugins switched on: the one beside the Workflows, else any that may be
/// seen. Nothing where none is, and who may not look hopes for the best.
async fn plugins(place: &Place) -> Result<Option<bool>, ClusterError> {
    let beside = path::named("apps", "v1", &place.places.workflows, "deployments");
    for collection in [beside, path::global("apps", "v1", "deployments")] {
        let workloads = match place.cluster.list(&collection, "").await {
            Err(error) if !error.is_transient() => continue,
            other => other?,
        };
        let found = preflight::plugins(&workloads);
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// What looking came to.
pub(crate) struct Looked {
    /// The run as it would be, under the plan's own name.
    pub(crate) run: RunPlan,
    /// The last answer of the gate about each node, as if its predecessors were proven.
    pub(crate) decisions: BTreeMap<NodeId, Decision>,
    /// Something of an earlier run is left that only a run removes.
    pub(crate) window_left: bool,
}

impl Looked {
    /// Nodes that are proven, and all that they wait for too.
    pub(crate) fn passed(&self) -> BTreeSet<NodeId> {
        let mut passed: BTreeSet<NodeId> = BTreeSet::new();
        for wanted in self.run.wanted() {
            let proven = matches!(self.decisions.get(&wanted.node), Some(Decision::Proven(_)));
            if proven && wanted.predecessors.iter().all(|node| passed.contains(node)) {
                passed.insert(wanted.node);
            }
        }
        passed
    }

    /// As it is told where no run follows.
    pub(crate) fn told(&self) -> LookedAt<'_> {
        LookedAt { plan: &self.run, decisions: &self.decisions, passed: self.passed() }
    }

    /// Nothing has to be done at all.
    pub(crate) fn is_done(&self) -> bool {
        !self.window_left && self.passed().len() == self.run.len()
    }
}

/// Resolves what every node must become and looks at what is there. Writes nothing; Argo CD is asked to compare.
///
/// # Errors
/// When Argo CD does not answer, or a release cannot be read.
pub(crate) async fn look(place: &Place, argocd: &ArgoCd, made: &Made<'_>, runner: Runner) -> Result<Looked, Failure> {
    let feed = Feed::start(argocd.clone());
    let first = argocd.list().await.map_err(|error| argocd::failure(&error))?;
    let known: BTreeMap<ApplicationId, Application> = first.into_iter().map(|app| (app.id.clone(), app)).collect();
    let mut resolved = resolved(made, &known).await?;
    let contents = contents(argocd, made, &known, &resolved).await;
    let name = made.plan.run().parse().map_err(|error| Failure::new(Code::BadArgument, error))?;
    let default = Content::Git { commit: made.commit.clone() };
    let content = |node: &NodeId| contents.get(node).cloned().unwrap_or_else(|| default.clone());
    let mut run = RunPlan::new(name, made.plan, made.graph, made.nodes, content);
    let images = resolved.iter_mut().map(|(node, found)| (node.clone(), std::mem::take(&mut found.images)));
    run.name_images(&images.collect());
    run.commit = Some(made.commit.clone());
    run.repository.clone_from(&made.repository);
    run.runner = runner;
    run.band = made.band.or(run.band);
    let run = Arc::new(run);
    let decisions = decisions(&run, feed, made.credentials.clone()).await?;
    let window_left = window_left(place, &run).await?;
    let run = Arc::unwrap_or_clone(run);
    Ok(Looked { run, decisions, window_left })
}

/// What the releases of the plan must come to. Before anything is written: what cannot be read cannot be proven.
async fn resolved(
    made: &Made<'_>,
    known: &BTreeMap<ApplicationId, Application>,
) -> Result<BTreeMap<NodeId, Resolved>, Failure> {
    let Some(releases) = &made.releases else {
        return match made.plan.nodes.iter().find(|node| node.release.is_some()) {
            Some(node) => Err(releases::nowhere(&node.id)),
            None => Ok(BTreeMap::new()),
        };
    };
    let resolved =
        releases.resolved(made.plan.nodes.iter(), |node| destination(known.get(&node.application.id()?)?)).await;
    resolved.into_iter().map(|(node, found)| found.map(|found| (node, found))).collect()
}

/// Where an Application puts what names no namespace, as far as it says.
pub(crate) fn destination(application: &Application) -> Option<String> {
    Some(application.destination.clone()).filter(|namespace| !namespace.is_empty())
}

/// What each node must show: the folder at the run's commit where it comes from the GitOps repository, else exactly the
/// revisions that Argo CD resolves now.
async fn contents(
    argocd: &ArgoCd,
    made: &Made<'_>,
    known: &BTreeMap<ApplicationId, Application>,
    resolved: &BTreeMap<NodeId, Resolved>,
) -> BTreeMap<NodeId, Content> {
    let git = Content::Git { commit: made.commit.clone() };
    let mut contents = BTreeMap::new();
    let mut elsewhere = Vec::new();
    for node in &made.plan.nodes {
        let application = node.application.id().and_then(|id| known.get(&id));
        match (&node.release, application) {
            (Some(release), _) => {
                let (commit, digest) = (made.commit.clone(), release.digest.clone());
                let found = resolved.get(&node.id);
                let (pointer, output) =
                    (found.map(|found| found.pointer.clone()), found.map(|found| found.output.clone()));
                contents.insert(node.id.clone(), Content::Release { commit, digest, pointer, output });
            }
            (None, Some(application)) if !is_ours(application, made.repository.as_deref()) => {
                elsewhere.push((node.id.clone(), application.id.clone(), application.revisions.clone()));
            }
            _ => {
                contents.insert(node.id.clone(), git.clone());
            }
        }
    }
    let resolved = futures::stream::iter(elsewhere).map(|(node, id, before)| async move {
        let revisions = argocd.refresh(&id).await.map_or(before, |application| application.revisions);
        (node, Content::Revisions { revisions })
    });
    let resolved: Vec<(NodeId, Content)> = resolved.buffer_unordered(AT_ONCE).collect().await;
    contents.extend(resolved);
    contents
}

/// One folder of the GitOps repository.
pub(crate) fn is_ours(application: &Application, repository: Option<&str>) -> bool {
    match (application.sources.as_slice(), repository) {
        ([source], Some(repository)) => !source.chart && same_repository(&source.url, repository),
        _ => false,
    }
}

async fn decisions(
    run: &Arc<RunPlan>,
    feed: Arc<Feed>,
    credentials: GitCredentials,
) -> Result<BTreeMap<NodeId, Decision>, Failure> {
    let recorder = Recorder::in_memory(run.clone());
    let git = GitReader::temporary(credentials).map_err(|error| {
        Failure::new(Code::CannotWrite, format!("failed to make a folder for clones: {error}"))
            .hint("TMPDIR names the folder that is used")
    })?;
    let git = Arc::new(git);
    let deadline = run.deadline(Timestamp::now());
    let prover = Prover::new(run, deadline, feed, recorder, git, Arc::new(Metrics::default()));
    let nodes: Vec<NodeId> = prover.nodes().cloned().collect();
    let look = futures::stream::iter(nodes).map(|node| {
        let prover = &prover;
        async move { (node.clone(), prover.prove(&node, Mode::Look).await) }
    });
    let patience = PATIENCE + PER_NODE * u32::try_from(run.len()).unwrap_or(u32::MAX);
    let mut looked = BTreeMap::new();
    let all = look.buffer_unordered(AT_ONCE).for_each(|(node, decision)| {
        looked.insert(node, decision);
        std::future::ready(())
    });
    if tokio::time::timeout(patience, all).await.is_err() {
        let late = run.nodes().find(|node| !looked.contains_key(&node.id));
        return Err(not_compared(late.map(|node| &node.application), run.len() - looked.len(), patience));
    }
    Ok(looked.into_iter().filter_map(|(node, decision)| Some((node, decision?))).collect())
}

/// Argo CD had its time, and these are left.
fn not_compared(first: Option<&ApplicationId>, left: usize, patience: Duration) -> Failure {
    let (which, example) = match first {
        Some(id) => (format!("{left} Application(s), `{id}` among them,"), id.name()),
        None => ("everything".to_owned(), "NAME"),
    };
    let message = format!("Argo CD did not compare {which} within {} s", patience.as_secs());
    Failure::new(Code::ArgoUnreachable, message).hint(format!(
        "is the application controller well (`kubectl -n argocd get pods`), and does \
         `argocd app get {example} --refresh` come back?"
    ))
}

async fn window_left(place: &Place, run: &RunPlan) -> Result<bool, Failure> {
    let path = path::object(&path::argo(&place.places.argocd, "appprojects"), run.environment.as_str());
    let project = place.cluster.get(&path).await?;
    let list = project.as_ref().and_then(|project| project.pointer("/spec/syncWindows")).and_then(Value::as_array);
    let held = list.and_then(|list| render::window_names(list)).map(|(_, names)| names).unwrap_or_default();
    Ok(is_left(run, &held))
}

/// Whether a window that holds these Applications is to be put right by this run. One of everything also lets out what has
/// left the graph since then, which no other run does; one of a part leaves alone what is none of its business.
fn is_left(run: &RunPlan, held: &BTreeSet<String>) -> bool {
    match run.scope {
        Scope::Platform => !held.is_empty(),
        Scope::Stack(_) | Scope::App(_) => run.nodes().any(|node| held.contains(node.application.name())),
    }
}

/// Takes the Lease, stores the plan under the run's own name, and starts the Job unless it is to be conducted here.
///
/// # Errors
/// When another run is in progress, or something may not be written.
pub(crate) async fn start(place: &Place, looked: Looked, here: bool) -> Result<RunPlan, Failure> {
    let passed = looked.passed();
    let mut run = looked.run;
    run.passed = passed;
    begin(place, run, here).await
}

/// The same for a run that was put together already.
///
/// # Errors
/// When another run is in progress, or something may not be written.
pub(crate) async fn begin(place: &Place, mut run: RunPlan, here: bool) -> Result<RunPlan, Failure> {
    // A name of the run is a few characters longer; the limit has room for that.
    render::workflow(&run, &place.places, 0).map_err(|error| Failure::new(Code::WorkflowTooLarge, error))?;
    let conducted = if here { Conducted::Here } else { Conducted::ByJob };
    run.run = lease::acquire(place, &run.environment, run.run.as_str(), conducted).await?;
    match submit(place, &run, here).await {
        Ok(()) => Ok(run),
        Err(failure) => {
            // Nobody conducts it, so nobody holds the Lease.
            let _ = lease::release(place, &run.environment, &run.run).await;
            Err(failure)
        }
    }
}

/// Stores the plan, and starts the Job unless the run is conducted here.
async fn submit(place: &Place, run: &RunPlan, here: bool) -> Result<(), Failure> {
    for config_map in render::plan_config_maps(run, &place.places) {
        match place.cluster.create(&place.config_maps(), &config_map).await {
            Err(error) if !error.is_conflict() => return Err(error.into()),
            _ => {}
        }
    }
    if !here {
        place.cluster.create(&job::collection(place), &job::job(run, &place.places)).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::sample;

    fn run_of(scope: &str) -> RunPlan {
        RunPlan { scope: scope.parse().unwrap(), ..sample::plan(&["db"]) }
    }

    #[test]
    fn a_run_of_everything_has_to_let_out_what_left_the_graph_and_a_run_of_a_part_its_own_nodes_alone() {
        for (scope, held, left) in [
            ("platform", None, false),
            ("platform", Some("db"), true),
            ("platform", Some("taken-out"), true),
            ("app:argocd/db", None, false),
            ("app:argocd/db", Some("db"), true),
            ("app:argocd/db", Some("taken-out"), false),
            ("stack:data", Some("db"), true),
            ("stack:data", Some("taken-out"), false),
        ] {
            let held: BTreeSet<String> = held.map(str::to_owned).into_iter().collect();
            assert_eq!(is_left(&run_of(scope), &held), left, "{scope} {held:?}");
        }
    }
}
