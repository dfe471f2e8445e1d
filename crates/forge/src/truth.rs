//! Reads what `validate` judges (SPEC.md sections 5 and 6): what Git wants, what Argo CD last said, what really runs, and the
//! controllers. Only gets and lists: it never writes, and never asks Argo CD to compare. What may not be read is told
//! apart from what is not there; judging is `forge_core::truth`.

mod follow;
mod live;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use forge_core::code::Code;
use forge_core::digest::CommitId;
use forge_core::duration::Duration;
use forge_core::failure::Failure;
use forge_core::format::Subject;
use forge_core::gate::{ApplicationState, Content, Folder, Freshness, GitContent, ObjectRef, RenderReceipt, Wanted};
use forge_core::graph::{Graph, NodeIx, Scope};
use forge_core::name::{ApplicationId, NodeId};
use forge_core::plan::{Plan, PlannedNode};
use forge_core::preflight::{Component, Intent, Intents, Looked, Purpose, WorkloadFacts};
use forge_core::render::{self, Page};
use forge_core::repository::{EnvironmentFiles, application_name};
use forge_core::run::RunPlan;
use forge_core::truth::{
    Branch, ConfigFacts, ControllerFacts, Facts, Judged, LiveApplication, LiveManifest, NodeFacts, Unread, judge,
};
use forge_core::view::{ApplicationFacts, Holder, strangers};
use forge_core::yaml::{self, Dialect, Limits};
use futures::StreamExt as _;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::{Mutex, OnceCell};

use crate::argocd::{Application, ArgoCd, Resource, is_receipt};
use crate::cluster::{Cluster, ClusterError, Kinds, looked, path};
use crate::commands::selection::Usable;
use crate::git;
use crate::git_reader::{GitCredentials, GitReader};
use crate::run::prepare::releases::{Releases, Resolved, nowhere};
use crate::run::prepare::{destination, is_ours};
use crate::write_files::read_own;

pub(crate) use follow::follow;

/// Nodes that are looked at at once, and Applications that are asked for one by one.
const AT_ONCE: usize = 8;
/// How long it is known what a branch holds: whoever watches a lively cluster must not ask the remote at every change.
const TIP_KNOWN: std::time::Duration = std::time::Duration::from_secs(10);
/// The group of Crossplane's EnvironmentConfigs, and the version that is served.
const CROSSPLANE: (&str, &str) = ("apiextensions.crossplane.io", "v1beta1");

/// What is asked: what Git wants, and how it is held against what there is.
pub(crate) struct Question<'q> {
    pub(crate) usable: &'q Usable,
    pub(crate) files: &'q EnvironmentFiles,
    pub(crate) graph: &'q Graph,
    pub(crate) nodes: &'q [NodeIx],
    pub(crate) plan: &'q Plan,
    pub(crate) commit: CommitId,
    /// What says whether that commit is what Git holds now.
    pub(crate) tip: Tip<'q>,
    /// Where the files of the repository are.
    pub(crate) tree: &'q Path,
    /// Where the releases are that pointers name; nothing where there are none.
    pub(crate) releases: Option<Releases>,
    /// That folder is a checkout, which knows commits.
    pub(crate) is_checkout: bool,
    /// The namespace of Argo Workflows.
    pub(crate) workflows: &'q str,
    /// How old a comparison may be.
    pub(crate) stale_after: Duration,
    /// Codes of rules that do not count.
    pub(crate) allowed: BTreeSet<Code>,
}

/// What says whether a commit is what Git holds now.
pub(crate) enum Tip<'q> {
    /// Nobody has to: that commit was named, or was read a moment ago.
    Given,
    /// A branch of the origin of a checkout. Whoever watches sees it move.
    Branch {
        /// The checkout.
        checkout: &'q Path,
        /// The branch that Argo CD reads.
        branch: &'q str,
    },
}

/// Whoever looks.
pub(crate) struct Looker<'l> {
    cluster: &'l Cluster,
    question: Question<'l>,
    git: Arc<GitReader>,
    kinds: Kinds,
    /// Argo CD, as the account sees it; found when somebody needs it.
    argocd: OnceCell<ArgoCd>,
    /// What the branch held, and when it was asked.
    asked: Mutex<Option<(Instant, Branch)>>,
    /// What releases must come to, which never changes.
    resolved: Mutex<BTreeMap<NodeId, Resolved>>,
}

/// What the release of each node that has one must come to, or why that is not known.
type Releasing = BTreeMap<NodeId, Result<Resolved, String>>;

/// The Applications, as far as they may be read.
struct Applications {
    /// Those that were asked for.
    wanted: BTreeMap<ApplicationId, Looked<Option<Value>>>,
    /// All that are there; how complete that is.
    all: Looked<BTreeMap<ApplicationId, ApplicationFacts>>,
}

impl Applications {
    fn get(&self, id: &ApplicationId) -> Option<&Value> {
        self.wanted.get(id)?.saw()?.as_ref()
    }

    fn read(&self, id: &ApplicationId) -> Option<Application> {
        Application::read(self.get(id)?)
    }
}

impl<'l> Looker<'l> {
    /// Looks at this cluster. `mounted` is Argo CD where its token is mounted; else it is asked for when it is needed.
    ///
    /// # Errors
    /// When there is no room for clones.
    pub(crate) fn new(
        cluster: &'l Cluster,
        question: Question<'l>,
        credentials: GitCredentials,
        mounted: Option<ArgoCd>,
    ) -> Result<Self, Failure> {
        let git = GitReader::temporary(credentials).map_err(|error| {
            Failure::new(Code::CannotWrite, format!("failed to make a folder for clones: {error}"))
                .hint("TMPDIR names the folder that is used")
        })?;
        let (argocd, asked) = (OnceCell::new_with(mounted), Mutex::new(None));
        let (git, kinds, resolved) = (Arc::new(git), Kinds::new(cluster), Mutex::default());
        Ok(Self { cluster, question, git, kinds, argocd, asked, resolved })
    }

    /// Looks at everything and says what is true.
    ///
    /// # Errors
    /// When the cluster does not answer.
    pub(crate) async fn look(&self) -> Result<Judged, Failure> {
        let started = Timestamp::now();
        // Kinds come and go while somebody watches.
        self.kinds.forget().await;
        let facts = self.facts().await?;
        Ok(judge(&facts, started, Timestamp::now()))
    }

    /// The page of what was seen.
    pub(crate) fn page(&self, judged: &Judged) -> String {
        let (lead, problems) = (judged.report.lead(), judged.report.lines());
        render::html(&Page {
            title: &format!("{}: {}", judged.report.environment, judged.report.verdict),
            lead: &lead,
            nodes: &judged.nodes,
            graph: Some(self.question.graph),
            strangers: &[],
            problems: &problems,
            notes: &judged.report.notes,
            now: judged.report.ended,
        })
    }

    /// The namespace of Argo CD.
    fn namespace(&self) -> &str {
        self.question.usable.repository.installation.argo.namespace.as_str()
    }

    async fn facts(&self) -> Result<Facts, Failure> {
        let question = &self.question;
        let environment = &question.files.environment.name.value;
        let applications = self.applications().await?;
        let releasing = self.releasing(&applications).await;
        let wanted = self.wanted(&applications, &releasing)?;
        let project = path::object(&path::argo(self.namespace(), "appprojects"), environment.as_str());
        let (nodes, controllers, project, holder, configs, branch) = tokio::join!(
            self.nodes(&wanted, &applications, &releasing),
            self.controllers(),
            self.object(&project),
            self.holder(),
            self.configs(&applications),
            self.branch(),
        );
        let (configs, mut notes) = configs;
        if let Looked::NotPermitted(why) | Looked::Failed(why) = &holder {
            notes.push(format!("whether a run is in progress is not known: {why}"));
        }
        let graph = question.graph;
        let argo = self.namespace();
        let names = graph.nodes().iter().map(|node| application_name(environment, argo, &node.subject));
        let known: Vec<ApplicationId> = names.filter_map(|name| name.id()).collect();
        let odd = |all: BTreeMap<ApplicationId, ApplicationFacts>| {
            let known: BTreeSet<&ApplicationId> = known.iter().collect();
            strangers(environment, &known, &all)
        };
        // A part of the platform has no extras of its own, so that they may not be seen is no matter.
        let whole = question.plan.scope == Scope::Platform;
        let strangers = if whole { applications.all.map(odd) } else { Looked::Saw(Vec::new()) };
        Ok(Facts {
            environment: environment.clone(),
            scope: question.plan.scope.clone(),
            context: self.cluster.context.clone(),
            commit: question.commit.clone(),
            branch,
            nodes,
            known: known.iter().map(|id| id.name().to_owned()).collect(),
            strangers,
            controllers,
            project,
            holder,
            configs,
            stale_after: question.stale_after,
            allowed: question.allowed.clone(),
            notes,
        })
    }

    /// Whether the branch that Argo CD reads holds the commit now.
    async fn branch(&self) -> Branch {
        let Tip::Branch { checkout, branch } = self.question.tip else { return Branch::Holds };
        let mut asked = self.asked.lock().await;
        if let Some((at, known)) = asked.as_ref()
            && at.elapsed() < TIP_KNOWN
        {
            return known.clone();
        }
        let (folder, name) = (checkout.to_owned(), branch.to_owned());
        let tip = tokio::task::spawn_blocking(move || git::tip(&folder, &name)).await.ok().flatten();
        let branch = branch.to_owned();
        let found = match tip {
            Some(tip) if tip == self.question.commit.as_str() => Branch::Holds,
            Some(tip) => Branch::Moved { branch, tip },
            None => Branch::NotRead { branch },
        };
        *asked = Some((Instant::now(), found.clone()));
        found
    }

    /// An object by its path; nothing where there is none.
    async fn object(&self, path: &str) -> Looked<Option<Value>> {
        looked(self.cluster.get(path).await)
    }

    async fn holder(&self) -> Looked<Option<Holder>> {
        let leases = path::named("coordination.k8s.io", "v1", self.question.workflows, "leases");
        let name = format!("forge-{}", self.question.files.environment.name.value);
        self.object(&path::object(&leases, &name)).await.map(|lease| lease.as_ref().and_then(Holder::read))
    }

    /// Reads the Applications of the plan's namespaces, or where that is not allowed those of the plan one by one.
    async fn applications(&self) -> Result<Applications, Failure> {
        let ids: BTreeSet<ApplicationId> =
            self.question.plan.nodes.iter().filter_map(|node| node.application.id()).collect();
        let mut namespaces: BTreeSet<&str> = ids.iter().map(|id| id.namespace.as_str()).collect();
        namespaces.insert(self.namespace());
        let mut wanted: BTreeMap<ApplicationId, Looked<Option<Value>>> = BTreeMap::new();
        let mut all: BTreeMap<ApplicationId, ApplicationFacts> = BTreeMap::new();
        let mut refused: Option<Looked<()>> = None;
        for namespace in namespaces {
            let collection = path::argo(namespace, "applications");
            match self.cluster.list(&collection, "").await {
                Ok(items) => {
                    for item in items {
                        let Some(id) = Application::read(&item).map(|application| application.id) else { continue };
                        all.insert(id.clone(), ApplicationFacts::read(&item));
                        if ids.contains(&id) {
                            wanted.insert(id, Looked::Saw(Some(item)));
                        }
                    }
                }
                // Argo CD is not installed.
                Err(error) if error.is_missing() => {}
                Err(error) if error.is_transient() => return Err(error.into()),
                Err(error) => {
                    refused.get_or_insert(looked(Err(error)));
                    let mine = ids.iter().filter(|id| id.namespace.as_str() == namespace).cloned();
                    let one = |id: ApplicationId| {
                        let path = path::object(&collection, id.name());
                        async move {
                            let found = self.object(&path).await;
                            (id, found)
                        }
                    };
                    let answers = futures::stream::iter(mine).map(one).buffer_unordered(AT_ONCE);
                    wanted.extend(answers.collect::<Vec<_>>().await);
                }
            }
        }
        for id in ids {
            wanted.entry(id).or_insert(Looked::Saw(None));
        }
        let all = match refused {
            None => Looked::Saw(all),
            Some(refused) => refused.map(|()| all),
        };
        Ok(Applications { wanted, all })
    }

    /// What the releases of the plan must come to. What was read once is known: a release never changes.
    async fn releasing(&self, applications: &Applications) -> Releasing {
        let mut known = self.resolved.lock().await;
        let released = self.question.plan.nodes.iter().filter(|node| node.release.is_some());
        let Some(releases) = &self.question.releases else {
            return released.map(|node| (node.id.clone(), Err(nowhere(&node.id).message))).collect();
        };
        let new = released.filter(|node| !known.contains_key(&node.id));
        let place = |node: &PlannedNode| destination(&applications.read(&node.application.id()?)?);
        let read = releases.resolved(new, place).await;
        let mut releasing = Releasing::new();
        for (node, found) in read {
            match found {
                Ok(found) => {
                    known.insert(node, found);
                }
                Err(failure) => {
                    releasing.insert(node, Err(failure.message));
                }
            }
        }
        releasing.extend(known.iter().map(|(node, found)| (node.clone(), Ok(found.clone()))));
        releasing
    }

    /// What every node must be: the folder at the commit where it comes from the GitOps repository; of other sources what
    /// Argo CD resolved, because only a comparison could resolve them anew, and that one is too old is told apart.
    fn wanted(&self, applications: &Applications, releasing: &Releasing) -> Result<Vec<Wanted>, Failure> {
        let question = &self.question;
        let repository = Some(question.usable.repository.installation.repository.url.value.as_str());
        let planned: BTreeMap<&NodeId, &PlannedNode> =
            question.plan.nodes.iter().map(|node| (&node.id, node)).collect();
        let content = |id: &NodeId| {
            let commit = question.commit.clone();
            let node = planned.get(id);
            if let Some(release) = node.and_then(|node| node.release.as_ref()) {
                let found = releasing.get(id).and_then(|found| found.as_ref().ok());
                return Content::Release {
                    commit,
                    digest: release.digest.clone(),
                    pointer: found.map(|found| found.pointer.clone()),
                    output: found.map(|found| found.output.clone()),
                };
            }
            let application = node.and_then(|node| applications.read(&node.application.id()?));
            match application {
                Some(application) if !is_ours(&application, repository) => {
                    Content::Revisions { revisions: application.revisions }
                }
                _ => Content::Git { commit },
            }
        };
        let name = question.plan.run().parse().map_err(|error| Failure::new(Code::BadArgument, error))?;
        let mut run = RunPlan::new(name, question.plan, question.graph, question.nodes, content);
        let named = |(node, found): (&NodeId, &Result<Resolved, String>)| {
            Some((node.clone(), found.as_ref().ok()?.images.clone()))
        };
        run.name_images(&releasing.iter().filter_map(named).collect());
        Ok(run.wanted())
    }

    async fn nodes(&self, wanted: &[Wanted], applications: &Applications, releasing: &Releasing) -> Vec<NodeFacts> {
        let by_node: BTreeMap<&NodeId, &Wanted> = wanted.iter().map(|wanted| (&wanted.node, wanted)).collect();
        let by_node = &by_node;
        let look = |wanted: &Wanted| {
            let wanted = wanted.clone();
            async move { self.node(wanted, by_node, applications, releasing).await }
        };
        // In the order of the plan, whoever answers first.
        futures::stream::iter(wanted).map(look).buffered(AT_ONCE).collect().await
    }

    async fn node(
        &self,
        mut wanted: Wanted,
        by_node: &BTreeMap<&NodeId, &Wanted>,
        applications: &Applications,
        releasing: &Releasing,
    ) -> NodeFacts {
        let seen = match applications.wanted.get(&wanted.application) {
            Some(Looked::Saw(Some(value))) => Application::read(value)
                .map(|application| (application, value))
                .ok_or_else(|| Looked::Failed("its name cannot be read".to_owned())),
            Some(Looked::Saw(None)) | None => Err(Looked::Saw(None)),
            Some(Looked::NotPermitted(why)) => Err(Looked::NotPermitted(why.clone())),
            Some(Looked::Failed(why)) => Err(Looked::Failed(why.clone())),
        };
        let (application, value) = match seen {
            Ok(seen) => seen,
            Err(application) => return NodeFacts { wanted, application, allowed: BTreeSet::new() },
        };
        let facts = ApplicationFacts::read(value);
        let elsewhere = ancestors(&wanted, by_node, applications);
        let (git, live) =
            tokio::join!(self.content(&wanted, &application), self.live(&wanted, &application, &facts, &elsewhere),);
        let mut unread = live.unread;
        let render = match receipt(&application, &live.objects, &live.absent) {
            Ok(render) => render,
            // Of what could not be read nobody can say that it is something else.
            Err(resource) => {
                if let Content::Release { commit, .. } = &wanted.content {
                    wanted.content = Content::Git { commit: commit.clone() };
                    let (what, why) = (resource.id(), "what the plugin says it rendered was not read".to_owned());
                    if !unread.iter().any(|unread| unread.what == what) {
                        unread.push(Unread { what, why, object: None });
                    }
                }
                None
            }
        };
        if let Some(Err(why)) = releasing.get(&wanted.node) {
            let (what, why) = ("what its release must come to".to_owned(), why.clone());
            unread.push(Unread { what, why, object: None });
        }
        let mut objects = live.objects;
        objects.insert(0, itself(&application, value));
        let state = ApplicationState {
            operation: application.operation.clone(),
            // As if it had just been compared: how old it is, is judged apart.
            refresh: Freshness::Answered,
            refresh_asked_at: None,
            sync: application.sync,
            health: application.health,
            unwell: application.unwell.clone(),
            conditions: application.conditions.clone(),
            resources: application.resources.len(),
            revisions: application.revisions.clone(),
            git,
            render,
            render_unread: false,
            tree: None,
        };
        let allowed = match application.sources.as_slice() {
            [source] if is_ours(&application, Some(self.repository())) => self.question.usable.allowed(&source.path),
            _ => BTreeSet::new(),
        };
        let live = LiveApplication {
            facts,
            state,
            tree: live.tree,
            required: live.required,
            vanished: vanished(value, &live.absent),
            objects,
            unread,
        };
        NodeFacts { wanted, application: Looked::Saw(Some(live)), allowed }
    }

    fn repository(&self) -> &str {
        self.question.usable.repository.installation.repository.url.value.as_str()
    }

    /// What the repository says about the revision that Argo CD compared with: the checkout where it knows both, else the
    /// repository itself.
    async fn content(&self, wanted: &Wanted, application: &Application) -> Option<GitContent> {
        let (Content::Git { commit } | Content::Release { commit, .. }) = &wanted.content else { return None };
        let nothing = GitContent { contains_commit: false, folder: Folder::Unknown, error: None };
        let (Some(source), Some(revision)) = (application.sources.first(), application.revisions.first()) else {
            return Some(nothing);
        };
        if revision == commit.as_str() {
            return Some(GitContent { contains_commit: true, folder: Folder::Same, error: None });
        }
        let (git, source, commit, revision) = (self.git.clone(), source.clone(), commit.clone(), revision.clone());
        let checkout = self.question.is_checkout.then(|| self.question.tree.to_owned());
        let read = tokio::task::spawn_blocking(move || {
            let known = checkout.and_then(|folder| git::compared(&folder, &source.path, &commit, &revision));
            known.map_or_else(|| git.content(&source.url, &source.path, &commit, &revision), Ok)
        });
        // It could not be read, and why is all that is known.
        let unread = |error| GitContent { contains_commit: true, folder: Folder::Unknown, error };
        Some(match read.await {
            Ok(Ok(content)) => content,
            Ok(Err(error)) => unread(Some(error)),
            Err(_) => unread(None),
        })
    }

    async fn controllers(&self) -> Vec<ControllerFacts> {
        let served = self.served("argoproj.io", "v1alpha1").await;
        let intents = Intents::of(&self.question.usable.repository.installation.argo);
        let purpose = Purpose {
            workflows: self.question.workflows.to_owned(),
            argocd: self.namespace().to_owned(),
            intents,
            ..Purpose::default()
        };
        let mut controllers = Vec::new();
        for component in Component::ALL {
            if purpose.intent(component) == Intent::Without {
                continue;
            }
            let namespace = purpose.place(component).to_owned();
            let workloads = looked(self.workloads(component, &namespace).await);
            controllers.push(ControllerFacts { component, namespace, workloads, served: served.clone() });
        }
        controllers
    }

    /// Deployments and StatefulSets of a namespace; of all of them where the part is not there.
    async fn workloads(&self, component: Component, namespace: &str) -> Result<Vec<Value>, ClusterError> {
        let mut there = Vec::new();
        for plural in ["deployments", "statefulsets"] {
            there.extend(self.cluster.list(&path::named("apps", "v1", namespace, plural), "").await?);
        }
        let is_it = |workload: &Value| WorkloadFacts::read(workload).is_some_and(|found| found.component == component);
        if there.iter().any(is_it) {
            return Ok(there);
        }
        let mut everywhere = Vec::new();
        for plural in ["deployments", "statefulsets"] {
            everywhere.extend(self.cluster.list(&path::global("apps", "v1", plural), "").await?);
        }
        Ok(everywhere)
    }

    /// The kinds of a group that are served, by their plurals; everybody who may log in may ask for that.
    async fn served(&self, group: &str, version: &str) -> Looked<BTreeSet<String>> {
        self.object(&format!("/apis/{group}/{version}")).await.map(|list| {
            let resources = list.as_ref().and_then(|list| list.get("resources")).and_then(Value::as_array);
            let names = resources.into_iter().flatten().filter_map(|kind| kind.get("name").and_then(Value::as_str));
            names.map(str::to_owned).collect()
        })
    }

    /// EnvironmentConfigs that Git has, where they live in this cluster; and what is good to know about them.
    async fn configs(&self, applications: &Applications) -> (Vec<ConfigFacts>, Vec<String>) {
        let mut found = self.wanted_configs(applications);
        if found.is_empty() {
            return (Vec::new(), Vec::new());
        }
        let (group, version) = CROSSPLANE;
        let collection = path::global(group, version, "environmentconfigs");
        // Not served is not the same as not permitted: then asking says so.
        if let Looked::Saw(served) = self.served(group, version).await
            && !served.contains("environmentconfigs")
        {
            let note = "EnvironmentConfigs are not served in this cluster, so they were not compared".to_owned();
            return (Vec::new(), vec![note]);
        }
        for config in &mut found {
            config.live = self.object(&path::object(&collection, &config.name)).await;
        }
        (found, Vec::new())
    }

    /// The files of the environment and of its projects that are EnvironmentConfigs of this cluster.
    fn wanted_configs(&self, applications: &Applications) -> Vec<ConfigFacts> {
        let (files, argo) = (self.question.files, self.namespace());
        let environment = &files.environment.name.value;
        let local = |id: Option<ApplicationId>| {
            let value = id.and_then(|id| applications.get(&id).cloned());
            value.is_some_and(|value| ApplicationFacts::read(&value).local)
        };
        let mut paths: Vec<String> = Vec::new();
        if files.config && local(format!("{argo}/{environment}-config").parse().ok()) {
            paths.push(format!("{}/env.yaml", files.environment.path));
        }
        for node in self.question.nodes {
            let node = self.question.graph.node(*node);
            if let Subject::Project(id) = &node.subject
                && local(application_name(environment, argo, &node.subject).id())
            {
                paths.push(format!("{}/apps/{}/{}/env.yaml", files.environment.path, id.repo, id.project));
            }
        }
        paths.iter().filter_map(|path| self.config(path)).collect()
    }

    fn config(&self, path: &str) -> Option<ConfigFacts> {
        if !self.question.tree.join(path).is_file() {
            return None;
        }
        let text = read_own(self.question.tree, path).ok()?;
        let document = yaml::read(&text, Dialect::Strict, Limits::FILE).documents.first()?.to_json();
        let name = document.pointer("/metadata/name").and_then(Value::as_str)?.to_owned();
        let wanted = document.get("data").cloned().unwrap_or_default();
        Some(ConfigFacts { name, wanted, live: Looked::Saw(None) })
    }
}

/// What the plugin says it rendered; nothing where there is no receipt.
///
/// # Errors
/// With the receipt, where there is one and it was not read.
fn receipt<'a>(
    application: &'a Application,
    objects: &[LiveManifest],
    absent: &[Resource],
) -> Result<Option<RenderReceipt>, &'a Resource> {
    let Some(resource) = application.resources.iter().find(|resource| is_receipt(resource, application)) else {
        return Ok(None);
    };
    match objects.iter().find(|object| object.id == resource.id()) {
        Some(object) => Ok(RenderReceipt::read(&object.value)),
        None if absent.contains(resource) => Ok(None),
        None => Err(resource),
    }
}

/// Of the members that are not in the cluster those that Argo CD calls Synced. Of others it says itself that they are missing,
/// and of what runs before or after a sync it says nothing.
fn vanished(application: &Value, absent: &[Resource]) -> Vec<ObjectRef> {
    let resources = application.pointer("/status/resources").and_then(Value::as_array).into_iter().flatten();
    let synced = resources.filter(|resource| resource.get("status").and_then(Value::as_str) == Some("Synced"));
    let synced: BTreeSet<[&str; 4]> = synced
        .map(|resource| {
            ["group", "kind", "namespace", "name"]
                .map(|field| resource.get(field).and_then(Value::as_str).unwrap_or_default())
        })
        .collect();
    let said = |resource: &&Resource| {
        let Resource { group, kind, namespace, name, .. } = resource;
        synced.contains(&[group.as_str(), kind.as_str(), namespace.as_str(), name.as_str()])
    };
    let object = |resource: &Resource| {
        let Resource { group, version, kind, namespace, name } = resource.clone();
        let api_version = if group.is_empty() { version } else { format!("{group}/{version}") };
        ObjectRef { api_version, kind, name, namespace: Some(namespace).filter(|namespace| !namespace.is_empty()) }
    };
    absent.iter().filter(said).map(object).collect()
}

/// The Application itself, which rules are about too.
fn itself(application: &Application, value: &Value) -> LiveManifest {
    let mut value = value.clone();
    if let Value::Object(fields) = &mut value {
        // Lists leave it out.
        fields.insert("apiVersion".to_owned(), json!("argoproj.io/v1alpha1"));
        fields.insert("kind".to_owned(), json!("Application"));
    }
    LiveManifest { id: format!("Application/{}/{}", application.id.namespace, application.id.name()), value }
}

/// The Applications of everything that a node waits for, near ones first.
fn ancestors(wanted: &Wanted, by_node: &BTreeMap<&NodeId, &Wanted>, applications: &Applications) -> Vec<Application> {
    let mut found = Vec::new();
    let mut queue: VecDeque<&NodeId> = wanted.predecessors.iter().collect();
    let mut seen: BTreeSet<&NodeId> = queue.iter().copied().collect();
    while let Some(node) = queue.pop_front() {
        let Some(before) = by_node.get(node) else { continue };
        found.extend(applications.read(&before.application));
        queue.extend(before.predecessors.iter().filter(|next| seen.insert(next)));
    }
    found
}
