//! What is to be removed, and what is there of it: nodes, Applications that the graph does not know, what makes them, and what
//! an interrupted teardown had found. Writes nothing. Everything that matters is asked for by name (INV-10).

use std::collections::{BTreeMap, BTreeSet};

use forge_core::code::Code;
use forge_core::digest::Digest;
use forge_core::duration::Duration;
use forge_core::executor::PvPolicy;
use forge_core::failure::Failure;
use forge_core::format::Subject;
use forge_core::gate::{Content, RunId};
use forge_core::graph::{Graph, NodeIx, Scope, ScopeError};
use forge_core::name::{ApplicationId, EnvironmentName, NodeId, clip};
use forge_core::plan::{Plan, PlannedNode, plan};
use forge_core::preflight::Intents;
use forge_core::render;
use forge_core::repository::{ApplicationName, EnvironmentFiles, Repository};
use forge_core::run::{RunAction, RunNode, RunPlan, Runner, Stored, Verdict};
use forge_core::scaffold::ROOT_SET;
use forge_core::teardown::{
    self, CROSSPLANE, Creator, Makers, Removal, between, creator, dependents, exclusion, made_again, members, reversed,
};
use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};

use super::inventory::Asked;
use crate::argocd::ArgoCd;
use crate::bootstrap::root::brings;
use crate::cluster::{Cluster, ClusterError, path, secret_text};
use crate::commands::selection;

/// Requests at a time.
const AT_ONCE: usize = 12;
/// How many names a message lists.
const NAMED: usize = 20;
/// How often Argo CD is asked for a tree while nobody answers, and between two times.
const TRIES: usize = 4;
const PAUSE: std::time::Duration = std::time::Duration::from_secs(2);

/// What a repository says about an environment that is to be removed.
pub(crate) struct Environment {
    pub(crate) name: EnvironmentName,
    /// All of it goes.
    pub(crate) whole: bool,
    /// The file that brings it.
    pub(crate) file: String,
    /// The GitOps repository.
    url: String,
    /// The folder of the environment in it.
    folder: String,
    /// The Application that reads that file.
    pub(crate) bootstrap: String,
    /// The other environments, and what brings each.
    pub(crate) others: Vec<(EnvironmentName, String)>,
    /// Who installed what of Argo.
    pub(crate) intents: Intents,
    /// Argo CD's namespace.
    pub(crate) argocd: String,
    /// Projects whose folder is in the repository.
    in_git: BTreeSet<NodeId>,
}

impl Environment {
    /// The GitOps repository and the folder of the environment in it, for whoever tells what is the environment's from what only
    /// has its name.
    pub(super) fn source(&self) -> (&str, &str) {
        (&self.url, &self.folder)
    }
}

/// The Application that the root set makes of a folder.
fn brought(path: &str) -> String {
    format!("{}-bootstrap", path.rsplit('/').next().unwrap_or_default())
}

/// What is to be removed.
pub(crate) struct Made {
    pub(crate) environment: Environment,
    pub(crate) plan: Plan,
    pub(crate) graph: Graph,
    /// The nodes of the scope, and what lies between them.
    pub(crate) nodes: Vec<NodeIx>,
    /// Those that are to go.
    pub(crate) members: BTreeSet<NodeId>,
    /// Those that depend on them and are to stay.
    dependents: Vec<(NodeId, ApplicationId)>,
    /// An Application that the graph does not know, by its name.
    stranger: Option<String>,
}

/// Puts together what is to be removed.
///
/// # Errors
/// When the scope names nothing.
pub(crate) fn made(
    repository: &Repository,
    files: &EnvironmentFiles,
    scope: &Scope,
    timeout: Option<Duration>,
) -> Result<Made, Failure> {
    let graph = selection::graph(repository, Some(files))?;
    let name = &files.environment.name.value;
    let installation = &repository.installation;
    let (scope, chosen, stranger) = match selected(&graph, scope, name) {
        Ok((scope, chosen)) => (scope, chosen, None),
        // What is not in the graph any more may still be there.
        Err(ScopeError::Unknown { kind: "application", .. }) if matches!(scope, Scope::App(_)) => {
            let Scope::App(app) = scope else { return Err(nothing()) };
            (scope.clone(), Vec::new(), Some(app.clone()))
        }
        Err(error) => return Err(error.into()),
    };
    let whole = scope == Scope::Platform;
    let bootstrap = brought(&files.environment.path);
    let first = bootstrap.clone();
    let argocd = installation.argo.namespace.as_str();
    // What brings the environment goes before everything else, and without what it brought.
    let goes = |ix: &NodeIx| match &graph.node(*ix).subject {
        Subject::Application(id) if graph.node(*ix).implicit => id.name() != first,
        _ => true,
    };
    let members: Vec<NodeIx> = chosen.iter().copied().filter(goes).collect();
    let nodes = if whole { chosen.clone() } else { between(&graph, &members) };
    let outside = if whole { Vec::new() } else { dependents(&graph, &members) };
    let mut plan = plan(repository, files, &graph, &scope, &nodes);
    if let Some(timeout) = timeout {
        plan.timeout = timeout;
    }
    let named = |ix: &NodeIx| -> Option<(NodeId, ApplicationId)> {
        let node = graph.node(*ix);
        let id = forge_core::repository::application_name(name, argocd, &node.subject).id()?;
        Some((node.id.clone(), id))
    };
    let in_git = graph.nodes().iter().filter_map(|node| match &node.subject {
        Subject::Project(id) if files.projects.contains_key(id) => Some(node.id.clone()),
        _ => None,
    });
    let others = repository.environments.iter().filter(|other| other.environment.name.value != *name);
    let environment = Environment {
        name: name.clone(),
        whole,
        file: brings(&files.environment.path),
        url: installation.repository.url.value.clone(),
        folder: files.environment.path.trim_matches('/').to_owned(),
        bootstrap,
        others: others.map(|o| (o.environment.name.value.clone(), brought(&o.environment.path))).collect(),
        intents: Intents::of(&installation.argo),
        argocd: argocd.to_owned(),
        in_git: in_git.collect(),
    };
    Ok(Made {
        dependents: outside.iter().filter_map(named).collect(),
        members: members.iter().map(|ix| graph.node(*ix).id.clone()).collect(),
        environment,
        plan,
        nodes,
        graph,
        stranger,
    })
}

impl Made {
    /// What an inventory is about; `last` is whether no other environment is there, where somebody has looked.
    pub(crate) fn asked<'a>(
        &'a self,
        cluster: &'a Cluster,
        workflows: &'a str,
        policy: PvPolicy,
        last: Option<bool>,
    ) -> Asked<'a> {
        let own = |ix: &&NodeIx| self.environment.whole || self.members.contains(&self.graph.node(**ix).id);
        // All environments share Crossplane.
        let (shared, nodes): (Vec<NodeIx>, Vec<NodeIx>) =
            self.nodes.iter().filter(own).copied().partition(|ix| is_shared(&self.graph, *ix));
        Asked {
            cluster,
            environment: &self.environment.name,
            scope: &self.plan.scope,
            argocd: &self.environment.argocd,
            workflows,
            graph: &self.graph,
            nodes,
            shared,
            more: Vec::new(),
            last,
            policy,
        }
    }

    /// Whether the whole environment goes, and no other one is there.
    ///
    /// # Errors
    /// When the cluster does not answer.
    pub(crate) async fn is_last(&self, cluster: &Cluster, workflows: &str) -> Result<bool, Failure> {
        Ok(self.environment.whole && is_last(cluster, workflows, &self.environment).await?)
    }
}

/// A node that all environments have.
fn is_shared(graph: &Graph, ix: NodeIx) -> bool {
    let node = graph.node(ix);
    node.implicit && matches!(&node.subject, Subject::Application(id) if id.name() == CROSSPLANE)
}

fn nothing() -> Failure {
    Failure::new(Code::UnknownName, "the scope names nothing").hint("`forge graph` lists stacks and applications")
}

/// The nodes that a scope names, and no others: a teardown brings nothing along.
fn selected(graph: &Graph, scope: &Scope, name: &EnvironmentName) -> Result<(Scope, Vec<NodeIx>), ScopeError> {
    match scope {
        Scope::Platform => Ok((Scope::Platform, graph.indexes().collect())),
        Scope::Stack(stack) => Ok((scope.clone(), graph.select(&format!("stack:{stack}"), Some(name))?)),
        Scope::App(app) => {
            let nodes = graph.select(app, Some(name))?;
            let full = nodes.first().map_or_else(|| app.clone(), |ix| graph.node(*ix).id.to_string());
            Ok((Scope::App(full), nodes))
        }
    }
}

/// What is there.
pub(crate) struct Seen {
    /// Applications of nodes, as they are.
    applications: BTreeMap<NodeId, Value>,
    /// Applications of the environment that the graph does not know.
    strangers: BTreeMap<NodeId, Value>,
    /// Nodes that an interrupted teardown had planned, and that it did not prove gone.
    earlier: BTreeMap<NodeId, RunNode>,
    /// ApplicationSets that the teardown of this environment removes.
    pub(crate) sets: BTreeSet<String>,
    /// What brings the environment is there.
    pub(crate) brought: bool,
    /// No other environment is there: what all share goes too.
    pub(crate) last: bool,
}

impl Seen {
    /// Something has to go in order.
    pub(crate) fn has_nodes(&self) -> bool {
        !self.applications.is_empty() || !self.strangers.is_empty() || !self.earlier.is_empty()
    }

    /// Applications that go and that the graph does not know.
    pub(super) fn unknown(&self) -> Vec<(NodeId, ApplicationName)> {
        let named = |(node, application): (&NodeId, &Value)| {
            let part = |pointer: &str| text(application, pointer).to_owned();
            let name = ApplicationName { namespace: part("/metadata/namespace"), name: part("/metadata/name") };
            (node.clone(), name)
        };
        self.strangers.iter().map(named).collect()
    }
}

/// A collection, where its kind is served.
async fn served(cluster: &Cluster, collection: &str, selector: &str) -> Result<Vec<Value>, Failure> {
    match super::surely(cluster, collection, selector).await {
        Err(error) if error.is_missing() => Ok(Vec::new()),
        other => Ok(other?),
    }
}

/// Looks at everything that is to be removed, and refuses what must not be.
///
/// # Errors
/// When something that stays depends on it, when somebody else would make it again, or when the cluster does not answer.
pub(crate) async fn look(cluster: &Cluster, workflows: &str, made: &Made, earlier: &Stored) -> Result<Seen, Failure> {
    let environment = &made.environment;
    let mut applications = applications(cluster, made).await?;
    refuse_needed(cluster, made).await?;
    let all = served(cluster, &path::argo(&environment.argocd, "applications"), "").await?;
    believed(cluster, &all, &mut applications, &environment.argocd).await?;
    let sets = served(cluster, &path::argo(&environment.argocd, "applicationsets"), "").await?;
    let brought = named(&all, &environment.bootstrap);
    let own = own_sets(&sets, environment, brought);
    let earlier = unfinished(earlier, made);
    let strangers = strangers(&all, made, &own, &applications, &earlier)?;
    let last = made.is_last(cluster, workflows).await?;
    // All environments share Crossplane: it goes when nobody needs it any more, if it is ours.
    let shared: BTreeSet<&NodeId> =
        made.nodes.iter().filter(|ix| is_shared(&made.graph, **ix)).map(|ix| &made.graph.node(*ix).id).collect();
    applications.retain(|node, application| !shared.contains(node) || (last && render::is_ours(application)));
    let seen = Seen {
        brought: brought.is_some_and(|brought| teardown::brings(brought, environment.source())),
        sets: own,
        applications,
        strangers,
        earlier,
        last,
    };
    refuse_made_again(made, &seen, &all, &sets)?;
    Ok(seen)
}

/// The Applications of the nodes that are to go, each asked for by its name.
async fn applications(cluster: &Cluster, made: &Made) -> Result<BTreeMap<NodeId, Value>, Failure> {
    let going = made.plan.nodes.iter().filter(|node| made.members.contains(&node.id));
    let asked: Vec<(NodeId, ApplicationId)> =
        going.filter_map(|node| Some((node.id.clone(), node.application.id()?))).collect();
    living(cluster, asked).await
}

async fn living(cluster: &Cluster, asked: Vec<(NodeId, ApplicationId)>) -> Result<BTreeMap<NodeId, Value>, Failure> {
    let looks = futures::stream::iter(asked).map(|(node, id)| async move {
        let object = path::object(&path::argo(id.namespace.as_str(), "applications"), id.name());
        Ok::<_, Failure>((node, cluster.get(&object).await?))
    });
    let mut found = BTreeMap::new();
    let mut looks = looks.buffer_unordered(AT_ONCE);
    while let Some(look) = looks.next().await {
        let (node, application) = look?;
        found.extend(application.map(|application| (node, application)));
    }
    Ok(found)
}

/// Nothing is removed while something that depends on it exists, and stays (INV-6).
async fn refuse_needed(cluster: &Cluster, made: &Made) -> Result<(), Failure> {
    let living = living(cluster, made.dependents.clone()).await?;
    if living.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = living.keys().map(|node| format!("`{node}`")).collect();
    let scope = &made.plan.scope;
    let message = format!("{} depend on {scope} and exist; nothing was written", listed(&names));
    Err(Failure::new(Code::StillNeeded, message)
        .hint("remove them first, or name a scope that holds them: `--scope stack:NAME`, `--scope platform`"))
}

fn listed(names: &[String]) -> String {
    let more = names.len().saturating_sub(NAMED);
    let shown = names.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

/// A list that lacks what was found by its name before it, and is found so after it, is not believed (INV-10). What went
/// meanwhile is no longer there: somebody else, or a run that was killed, had asked for it to go.
async fn believed(
    cluster: &Cluster,
    all: &[Value],
    found: &mut BTreeMap<NodeId, Value>,
    argocd: &str,
) -> Result<(), Failure> {
    let is_listed = |known: &Value| {
        let uid = text(known, "/metadata/uid");
        all.iter().any(|listed| text(listed, "/metadata/uid") == uid)
    };
    let mut gone = Vec::new();
    for (node, known) in found.iter() {
        if text(known, "/metadata/namespace") != argocd || is_listed(known) {
            continue;
        }
        let name = text(known, "/metadata/name");
        let now = cluster.get(&path::object(&path::argo(argocd, "applications"), name)).await?;
        if now.is_some_and(|now| text(&now, "/metadata/uid") == text(known, "/metadata/uid")) {
            let message = format!("the list of Applications lacks `{name}`, which is there: it is not believed");
            return Err(Failure::new(Code::Unreachable, message).hint("nothing was written; run it again"));
        }
        gone.push(node.clone());
    }
    found.retain(|node, _| !gone.contains(node));
    Ok(())
}

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn named<'v>(all: &'v [Value], name: &str) -> Option<&'v Value> {
    all.iter().find(|object| text(object, "/metadata/name") == name)
}

/// The ApplicationSets that belong to an environment: those of the layout that read its folder, and what else its `app.yaml`
/// brings. One that only has such a name is somebody else's (INV-11), and so is what an Application brings that only has the name
/// of what brings the environment.
fn own_sets(sets: &[Value], environment: &Environment, brought: Option<&Value>) -> BTreeSet<String> {
    let layout = [format!("{}-apps", environment.name), "platform-clusters".to_owned()];
    let source = environment.source();
    let believed = brought.is_none_or(|brought| teardown::brings(brought, source));
    let tracked = |set: &Value| creator(set) == Some(Creator::Application(environment.bootstrap.clone()));
    let ours = |set: &&Value| {
        let name = text(set, "/metadata/name");
        let clusters = name == "platform-clusters" && environment.name.as_str() != "platform";
        let named = layout.iter().any(|known| known == name) && !clusters;
        (believed && tracked(set)) || (named && teardown::makes(set, source))
    };
    sets.iter().filter(ours).map(|set| text(set, "/metadata/name").to_owned()).collect()
}

/// Nodes of teardowns that did not get to their end, from the newest that knows each. Those that were proven gone are among
/// them: definitions and namespaces go after the last node, and whoever was killed before that knew best which those are.
fn unfinished(earlier: &Stored, made: &Made) -> BTreeMap<NodeId, RunNode> {
    let mut found: BTreeMap<NodeId, RunNode> = BTreeMap::new();
    let teardowns = earlier.runs.iter().take_while(|run| {
        // A deployment since then has made everything anew.
        run.plan.action == RunAction::Teardown
    });
    let mut over: BTreeSet<NodeId> = BTreeSet::new();
    for run in teardowns {
        for node in run.plan.nodes() {
            if run.record.header.ended.as_ref().is_some_and(|ended| ended.verdict == Verdict::Done) {
                over.insert(node.id.clone());
            }
            let wanted = made.environment.whole || made.members.contains(&node.id);
            if wanted && !over.contains(&node.id) && !found.contains_key(&node.id) {
                found.insert(node.id.clone(), node.clone());
            }
        }
    }
    found
}

/// Applications of the environment's AppProject that no node stands for and that are ours: made by a set of the environment, or
/// handed over by name in the scope.
fn strangers(
    all: &[Value],
    made: &Made,
    sets: &BTreeSet<String>,
    nodes: &BTreeMap<NodeId, Value>,
    earlier: &BTreeMap<NodeId, RunNode>,
) -> Result<BTreeMap<NodeId, Value>, Failure> {
    let environment = &made.environment;
    let known: BTreeSet<&str> = nodes.values().map(|application| text(application, "/metadata/uid")).collect();
    let in_project = |application: &&Value| text(application, "/spec/project") == environment.name.as_str();
    let mut found = BTreeMap::new();
    for application in all.iter().filter(in_project).filter(|found| !known.contains(text(found, "/metadata/uid"))) {
        let name = text(application, "/metadata/name");
        let Ok(id) = format!("{}/{name}", environment.argocd).parse::<NodeId>() else { continue };
        let by_set = matches!(creator(application), Some(Creator::Set(set)) if sets.contains(&set));
        let meant = match &made.stranger {
            Some(stranger) => stranger == name || *stranger == id.as_str(),
            // Exactly the one that was to go then: another one of its name is somebody's who made it since.
            None => environment.whole && (by_set || is_known(earlier.get(&id), text(application, "/metadata/uid"))),
        };
        if meant {
            found.insert(id, application.clone());
        }
    }
    match &made.stranger {
        Some(stranger) if found.is_empty() && earlier.is_empty() => Err(Failure::new(
            Code::UnknownName,
            format!("neither the graph nor AppProject `{}` has an Application `{stranger}`", environment.name),
        )
        .hint("`forge status` lists Applications that are not in the graph")),
        _ => Ok(found),
    }
}

/// This very Application was to go in a teardown that did not get to its end.
fn is_known(earlier: Option<&RunNode>, uid: &str) -> bool {
    earlier.and_then(|node| node.removal.as_ref()).and_then(|removal| removal.uid.as_deref()) == Some(uid)
}

/// Whether no other environment of the installation is there, by its receipt, its AppProject, or what brings it.
///
/// # Errors
/// When the cluster does not answer.
pub(super) async fn is_last(cluster: &Cluster, workflows: &str, environment: &Environment) -> Result<bool, Failure> {
    let argocd = &environment.argocd;
    for (other, bootstrap) in &environment.others {
        let project = cluster.get(&path::object(&path::argo(argocd, "appprojects"), other.as_str())).await?;
        let brings = cluster.get(&path::object(&path::argo(argocd, "applications"), bootstrap)).await?;
        if project.is_some_and(|project| render::is_ours(&project)) || brings.is_some() {
            return Ok(false);
        }
    }
    // Other repositories may share the cluster, and other installations its Argo: their receipts say so.
    let selector = format!("{}=forge,{},!{}", render::MANAGED_BY, render::ENVIRONMENT_LABEL, render::RUN_LABEL);
    let receipts = served(cluster, "/api/v1/configmaps", &selector).await?;
    let own = (workflows, format!("forge-bootstrap-{}", environment.name));
    let receipt = |found: &&Value| text(found, "/metadata/name").starts_with("forge-bootstrap-");
    let is_own =
        |found: &Value| (text(found, "/metadata/namespace"), text(found, "/metadata/name")) == (own.0, own.1.as_str());
    Ok(receipts.iter().filter(receipt).all(is_own))
}

fn names<'v>(objects: impl Iterator<Item = &'v Value>) -> BTreeSet<String> {
    objects.map(|object| text(object, "/metadata/name").to_owned()).collect()
}

/// What somebody else would make again is not removed: it would come back at once.
fn refuse_made_again(made: &Made, seen: &Seen, all: &[Value], sets: &[Value]) -> Result<(), Failure> {
    let environment = &made.environment;
    let automated = |application: &&Value| {
        let policy = application.pointer("/spec/syncPolicy/automated");
        policy.is_some_and(|policy| policy.is_object() && policy.get("enabled") != Some(&json!(false)))
    };
    let going = names(seen.applications.values().chain(seen.strangers.values()));
    let makers = Makers {
        whole: environment.whole,
        bootstrap: environment.bootstrap.clone(),
        others: names(sets.iter().filter(|set| !seen.sets.contains(text(set, "/metadata/name")))),
        own: seen.sets.clone(),
        automated: names(all.iter().filter(automated)),
        going,
    };
    let again = |(node, application): (&NodeId, &Value)| {
        let by = made_again(application, &makers, environment.in_git.contains(node))?;
        Some(format!("`{node}` by {by}"))
    };
    let mut found: Vec<String> = seen.applications.iter().chain(&seen.strangers).filter_map(again).collect();
    // What brings the environment comes back as long as a root set that is somebody else's reads its file.
    let root = named(sets, ROOT_SET).filter(|root| !render::is_ours(root) && environment.whole && seen.brought);
    if root.is_some_and(|root| exclusion(root, &environment.file).is_some()) {
        found.push(format!("`{}` by ApplicationSet {ROOT_SET}, which is somebody else's", environment.bootstrap));
    }
    if found.is_empty() {
        return Ok(());
    }
    let message = format!("would be made again: {}; nothing was written", listed(&found));
    Err(Failure::new(Code::MadeAgain, message)
        .hint("take them out of what makes them, in Git, and push; then tear down again"))
}

/// The run that removes what was seen: what each Application has made is asked of Argo CD.
///
/// # Errors
/// When the run cannot be named, or Argo CD does not answer.
pub(crate) async fn run(argocd: &ArgoCd, made: &Made, seen: &Seen, runner: Runner) -> Result<RunPlan, Failure> {
    let living = seen.applications.iter().chain(&seen.strangers);
    let asked: Vec<(NodeId, Value)> = living.map(|(node, application)| (node.clone(), application.clone())).collect();
    let looks = futures::stream::iter(asked).map(|(node, application)| async move {
        let removal = removal(argocd, &application).await?;
        Ok::<_, Failure>((node, removal))
    });
    let mut removals: BTreeMap<NodeId, Removal> = looks.buffer_unordered(AT_ONCE).try_collect().await?;
    for (node, earlier) in &seen.earlier {
        let Some(before) = &earlier.removal else { continue };
        match removals.get_mut(node) {
            // What an earlier run knew of and what is left of it now: the one that is there is the one that goes.
            Some(now) if now.uid == before.uid => now.members.extend(before.members.iter().cloned()),
            Some(_) => {}
            None => {
                removals.insert(node.clone(), Removal { uid: None, ..before.clone() });
            }
        }
    }
    for removal in removals.values_mut() {
        removal.members.sort_unstable();
        removal.members.dedup();
    }
    let planned: BTreeMap<&NodeId, &PlannedNode> = made.plan.nodes.iter().map(|node| (&node.id, node)).collect();
    let strangers: Vec<RunNode> = seen
        .strangers
        .keys()
        .chain(seen.earlier.keys().filter(|node| !planned.contains_key(node) && !seen.strangers.contains_key(*node)))
        .filter_map(|node| stranger(node, removals.get(node)?.clone(), &made.plan))
        .collect();
    let tasks = reversed(&made.graph, &made.nodes, strangers, |node| {
        let planned = planned.get(node).filter(|_| made.members.contains(node))?;
        Some(RunNode {
            id: node.clone(),
            application: planned.application.id()?,
            content: Content::Revisions { revisions: Vec::new() },
            images: BTreeMap::new(),
            requires: Vec::new(),
            health: Vec::new(),
            timeouts: planned.timeouts,
            retry: planned.retry,
            removal: Some(removals.get(node)?.clone()),
        })
    });
    let digest = Digest::of_json(&json!({"teardown": made.plan.hash}));
    let name = format!("{}-{}", made.plan.environment, digest.short(10));
    let id: RunId = name.parse().map_err(|error| Failure::new(Code::BadArgument, error))?;
    let mut run = RunPlan::teardown(id, &made.plan, tasks);
    run.runner = runner;
    Ok(run)
}

/// An Application that the graph does not know, as a node.
fn stranger(node: &NodeId, removal: Removal, plan: &Plan) -> Option<RunNode> {
    let limits = plan.nodes.first().map(|node| (node.timeouts, node.retry));
    let (timeouts, retry) = limits.unwrap_or_else(default_limits);
    Some(RunNode {
        id: node.clone(),
        application: node.as_str().parse().ok()?,
        content: Content::Revisions { revisions: Vec::new() },
        images: BTreeMap::new(),
        requires: Vec::new(),
        health: Vec::new(),
        timeouts,
        retry,
        removal: Some(removal),
    })
}

/// Limits of something that no graph says anything about: those of a graph that says nothing.
fn default_limits() -> (forge_core::gate::Timeouts, forge_core::gate::Retry) {
    let seconds = Duration::from_seconds;
    let timeouts = forge_core::gate::Timeouts { sync: seconds(300), health: seconds(600) };
    (timeouts, forge_core::gate::Retry { limit: 0, backoff: seconds(5), factor: 2, max: seconds(60) })
}

/// What there is to remove of an Application. Where Argo CD has no tree of it, what the Application says of itself must do; that
/// nobody answered is no reason to know less: what is not known is neither waited for nor secured (INV-10).
async fn removal(argocd: &ArgoCd, application: &Value) -> Result<Removal, Failure> {
    let id = format!("{}/{}", text(application, "/metadata/namespace"), text(application, "/metadata/name"));
    let tree = match id.parse::<ApplicationId>() {
        Ok(id) => tree(argocd, &id).await?,
        Err(_) => Value::Null,
    };
    let members = members(application, &tree);
    let destination = text(application, "/spec/destination/namespace");
    let mut namespaces: BTreeSet<String> = members.iter().map(|member| member.namespace.clone()).collect();
    namespaces.insert(destination.to_owned());
    namespaces.remove("");
    Ok(Removal {
        uid: Some(text(application, "/metadata/uid").to_owned()),
        project: project(application).to_owned(),
        here: is_here(application),
        destination: destination.to_owned(),
        namespaces: namespaces.into_iter().collect(),
        members,
    })
}

/// The tree of an Application; nothing where Argo CD answers that it has none.
async fn tree(argocd: &ArgoCd, id: &ApplicationId) -> Result<Value, Failure> {
    for _ in 1..TRIES {
        match argocd.tree(id).await {
            Err(error) if is_outage(&error) => tokio::time::sleep(PAUSE).await,
            other => return Ok(other.unwrap_or_default()),
        }
    }
    match argocd.tree(id).await {
        Err(error) if is_outage(&error) => {
            let message = format!("what `{id}` has made could not be read: {error}; nothing was written");
            Err(Failure::new(Code::ArgoUnreachable, message).hint("run it again when Argo CD answers"))
        }
        other => Ok(other.unwrap_or_default()),
    }
}

/// Nobody answered. A tree that Argo CD does not have, such as that of an Application without its project, is an error of its own.
fn is_outage(error: &ClusterError) -> bool {
    matches!(error, ClusterError::Unreachable(_) | ClusterError::Refused { code: 408 | 429 | 502..=504, .. })
}

/// The AppProject of an Application.
fn project(application: &Value) -> &str {
    match text(application, "/spec/project") {
        "" => "default",
        project => project,
    }
}

/// Refuses Applications that Argo CD could not remove: without its AppProject one never gets to its end, and without the Secret of
/// its cluster it goes and leaves there, without a word, everything that it had made.
///
/// # Errors
/// With what is missing, or when the cluster does not answer.
pub(super) async fn refuse_unremovable(cluster: &Cluster, made: &Made, seen: &Seen) -> Result<(), Failure> {
    let argocd = made.environment.argocd.as_str();
    let going = || seen.applications.values().chain(seen.strangers.values());
    let mut missing = Vec::new();
    for project in going().map(project).collect::<BTreeSet<&str>>() {
        if cluster.get(&path::object(&path::argo(argocd, "appprojects"), project)).await?.is_none() {
            let user = going().find(|application| self::project(application) == project);
            let user = user.map(|user| text(user, "/metadata/name")).unwrap_or_default();
            missing.push(format!("AppProject {} of `{}`", clip(project), clip(user)));
        }
    }
    let elsewhere: Vec<&Value> = going().filter(|application| !is_here(application)).collect();
    if !elsewhere.is_empty() {
        let selector = "argocd.argoproj.io/secret-type=cluster";
        let secrets = super::surely(cluster, &path::core(argocd, "secrets"), selector).await?;
        for application in elsewhere.into_iter().filter(|found| !secrets.iter().any(|secret| is_for(secret, found))) {
            let (name, server) =
                (text(application, "/spec/destination/name"), text(application, "/spec/destination/server"));
            let place = if name.is_empty() { server } else { name };
            let user = text(application, "/metadata/name");
            missing.push(format!("the Secret of cluster {} of `{}`", clip(place), clip(user)));
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let message = format!("Argo CD could not remove everything without {}; nothing was written", listed(&missing));
    Err(Failure::new(Code::Unremovable, message)
        .hint("make again what is named, as the Applications say it; then tear down again"))
}

/// Whether a cluster Secret of Argo CD is that of the cluster that an Application deploys to.
pub(super) fn is_for(secret: &Value, application: &Value) -> bool {
    let said = |key: &str, pointer: &str| {
        let wanted = text(application, pointer).trim_end_matches('/');
        let known = secret_text(secret, key);
        !wanted.is_empty() && known.is_some_and(|known| known.trim_end_matches('/') == wanted)
    };
    said("name", "/spec/destination/name") || said("server", "/spec/destination/server")
}

/// It deploys to the cluster that runs Argo CD, by the name that Argo CD has for that.
fn is_here(application: &Value) -> bool {
    let server = text(application, "/spec/destination/server");
    server == "https://kubernetes.default.svc" || text(application, "/spec/destination/name") == "in-cluster"
}

/// What the volumes of these nodes are in the way of: claims in another cluster cannot be secured from here.
pub(crate) fn out_of_reach(run: &RunPlan) -> Vec<String> {
    let elsewhere = run.nodes().filter(|node| node.removal.as_ref().is_some_and(|removal| !removal.here));
    let claims = elsewhere.flat_map(|node| node.removal.iter().flat_map(|removal| &removal.members));
    let is_claim = |member: &&teardown::Member| member.group.is_empty() && member.kind == "PersistentVolumeClaim";
    claims.filter(is_claim).map(ToString::to_string).collect()
}

/// An environment `dev` of which everything goes, for tests.
#[cfg(test)]
pub(super) fn sample() -> Environment {
    Environment {
        name: "dev".parse().unwrap(),
        whole: true,
        file: "dev/app.yaml".to_owned(),
        url: "https://git.example.com/p.git".to_owned(),
        folder: "dev".to_owned(),
        bootstrap: "dev-bootstrap".to_owned(),
        others: Vec::new(),
        intents: Intents::install(),
        argocd: "argocd".to_owned(),
        in_git: BTreeSet::new(),
    }
}

/// That no node is there, for tests.
#[cfg(test)]
pub(super) fn nothing_seen(last: bool) -> Seen {
    let (applications, strangers, earlier) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    Seen { applications, strangers, earlier, sets: BTreeSet::new(), brought: false, last }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_of_a_cluster_is_found_by_its_name_or_by_its_address() {
        use base64::Engine as _;
        let encoded = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
        let data = json!({"name": encoded("east"), "server": encoded("https://east.example.com/")});
        let secret = json!({"data": data});
        let to = |destination: Value| json!({"spec": {"destination": destination}});
        assert!(is_for(&secret, &to(json!({"name": "east"}))));
        assert!(is_for(&secret, &to(json!({"server": "https://east.example.com"}))));
        for other in [json!({"name": "west"}), json!({"server": "https://west.example.com"}), json!({})] {
            assert!(!is_for(&secret, &to(other.clone())), "{other}");
        }
        assert!(!is_for(&json!({}), &to(json!({}))));
    }

    #[test]
    fn only_silence_is_an_outage_and_a_tree_that_is_not_there_is_none() {
        let refused = |code| ClusterError::Refused { code, message: String::new() };
        assert!([408, 429, 502, 503, 504].into_iter().all(|code| is_outage(&refused(code))));
        assert!(is_outage(&ClusterError::Unreachable(String::new())));
        assert!(![400, 403, 404, 500].into_iter().any(|code| is_outage(&refused(code))));
    }
}
