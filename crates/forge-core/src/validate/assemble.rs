//! What only shows between files: the graph against the pointers, names against each other, environments against each
//! other, and what is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Context, Facts, Inspected, Report, Suppression, suppress};
use crate::code::Code;
use crate::executor::{GitUrl, Revision};
use crate::finding::{Finding, Note, Place};
use crate::format::{
    ArgoEvents, DependencyGraph, Environment, GraphOverride, Installation, ReleasePointer, Subject, Sync,
};
use crate::graph::{Graph, SYSTEM_STACK};
use crate::health;
use crate::install;
use crate::lookup::Lookup;
use crate::name::{MAX_ENVIRONMENT, MAX_NAME, ProjectId, ProjectName, RepoName};
use crate::preflight::{Component, Intent, Intents, Purpose};
use crate::repository::{
    EnvironmentFiles, GRAPH_FILE, HealthFiles, INSTALLATION_FILE, ROOT_APP_FILE, Repository, RootFile, ValueFiles,
    is_manifest,
};
use crate::scaffold::PLACEHOLDER;
use crate::yaml::Position;

/// What the files of one environment say.
#[derive(Default)]
struct Collected {
    /// Folder (repository, project), whether this is its pointer file, and the pointer if it is a good one. Any order.
    projects: Vec<(String, String, bool, Option<ReleasePointer>)>,
    overrides: Option<GraphOverride>,
    /// Its `graph.yaml` cannot be used, so neither can its graph.
    broken: bool,
    app: bool,
    config: bool,
}

/// Puts the files together.
pub fn assemble(context: &Context, inspected: Vec<Inspected>) -> Report {
    let files = inspected.len();
    let mut findings = Vec::new();
    let mut suppressions = Vec::new();
    let mut graph: Option<DependencyGraph> = None;
    let mut root: Option<bool> = None;
    let mut root_file = RootFile::default();
    let mut stray: BTreeSet<String> = BTreeSet::new();
    let mut graph_file = false;
    let mut environments: BTreeMap<usize, Collected> = BTreeMap::new();
    let mut checks = HealthFiles::default();
    let (mut values, mut unknown_values) = (ValueFiles::default(), Vec::new());
    for file in inspected {
        findings.extend(file.findings);
        if !file.suppressions.is_empty() {
            suppressions.push((file.path.clone(), file.suppressions));
        }
        graph_file |= file.path == GRAPH_FILE;
        match file.facts {
            Facts::None | Facts::Installation => {
                if let Some((folder, "app.yaml")) = file.path.split_once('/') {
                    stray.insert(folder.to_owned());
                }
                let below = file.path.strip_prefix(install::VALUES_FOLDER).is_some_and(|rest| rest.starts_with('/'));
                if below && is_manifest(&file.path) {
                    unknown_values.push(file.path);
                }
            }
            Facts::Graph(found) => graph = Some(found),
            Facts::RootApp { crossplane, objects } => {
                root = Some(crossplane);
                root_file = objects.map_or(RootFile::Unusable, RootFile::Objects);
            }
            Facts::Override(env, over) => {
                let collected = environments.entry(env).or_default();
                collected.broken = over.is_none();
                collected.overrides = over;
            }
            Facts::EnvironmentApp(env) => environments.entry(env).or_default().app = true,
            Facts::EnvironmentConfig(env) => environments.entry(env).or_default().config = true,
            Facts::Pointer(env, repo, project, pointer) => {
                environments.entry(env).or_default().projects.push((repo, project, true, pointer));
            }
            Facts::ProjectFile(env, repo, project) => {
                environments.entry(env).or_default().projects.push((repo, project, false, None));
            }
            Facts::HealthCheck(Some((name, script))) => {
                checks.scripts.insert(name, script);
            }
            Facts::HealthCheck(None) => {
                checks.unusable.insert(file.path);
            }
            Facts::Values(component, Some(found)) => {
                values.values.insert(component, found);
            }
            Facts::Values(_, None) => {
                values.unusable.insert(file.path);
            }
        }
    }
    findings.extend(too_many_checks(&checks));
    let mut notes = notes_on_checks(&checks);
    notes.extend(notes_on_values(context, &values, &unknown_values));
    notes.sort();
    let mut repository = None;
    // An installation with a field that nobody knows is not the one that was meant: good for checks, not for plans.
    let unsound = findings.iter().any(|f: &Finding| f.place.path == INSTALLATION_FILE && !f.code.allowable());
    if let Some(installation) = &context.installation {
        let mut check = Check { installation, findings, applications: Lookup::new(), namespaces: Lookup::new() };
        check.own_names();
        check.policies();
        check.triggers();
        check.placeholders();
        if root.is_some() {
            check.stray(&stray);
        }
        let project_nodes = graph.as_ref().is_some_and(|graph| {
            graph
                .stacks
                .iter()
                .flat_map(|stack| &stack.apps)
                .any(|app| matches!(app.subject.value, Subject::Project(_)))
        });
        let managed = project_nodes || root.is_some();
        check.present(graph_file, root.is_some(), managed, &environments);
        let broken = environments.values().any(|collected| collected.broken);
        let mut all = Vec::new();
        let mut folders = BTreeSet::new();
        for (index, environment) in installation.environments.iter().enumerate() {
            if !folders.insert(&environment.path) {
                // Reported as such; its files are the first one's.
                continue;
            }
            let collected = environments.remove(&index).unwrap_or_default();
            all.push(check.environment(environment, collected));
        }
        findings = check.findings;
        if let (Some(graph), false) = (graph, broken) {
            let candidate = Repository {
                installation: installation.clone(),
                graph,
                environments: all,
                root: root_file,
                crossplane: root.unwrap_or(false),
                health: checks,
                values,
            };
            findings.extend(graphs(&candidate));
            repository = (!unsound).then_some(candidate);
        }
    }
    suppressions.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mut waiting = Vec::new();
    for (path, list) in &mut suppressions {
        let (of_releases, rest): (Vec<_>, Vec<_>) = list.drain(..).partition(Suppression::is_of_releases);
        *list = rest;
        if !of_releases.is_empty() {
            waiting.push((path.clone(), of_releases));
        }
    }
    findings.sort();
    findings.dedup();
    let (mut findings, mut suppressed) = suppress::apply(findings, &suppressions);
    findings.sort();
    suppressed.sort();
    Report { findings, suppressed, notes, repository, files, installed: context.installation.is_some(), waiting }
}

/// All checks go into one ConfigMap, which is not theirs alone.
fn too_many_checks(checks: &HealthFiles) -> Option<Finding> {
    let bytes: usize = checks.scripts.values().map(|script| script.as_str().len()).sum();
    let most = health::MOST_BYTES_IN_ALL;
    (bytes > most).then(|| {
        let message = format!("{bytes} bytes of health checks; argocd-cm has room for {most}");
        Finding::new(Code::TooLarge, Place::whole(health::FOLDER), message)
    })
}

/// What is not wrong with a health check and surprises whoever did not mean it.
fn notes_on_checks(checks: &HealthFiles) -> Vec<Note> {
    let mut notes = Vec::new();
    for (name, script) in &checks.scripts {
        let mut note = |message: String| notes.push(Note { place: Place::whole(&name.path()), message });
        if health::is_built_in(name) {
            note("takes the place of the check that Forge brings for this kind".to_owned());
        }
        for library in script.libraries() {
            note(format!(
                "uses `{library}`, which Argo CD does not load: the check fails unless resource.customizations.useOpenLibs.{name} is set"
            ));
        }
    }
    notes
}

/// What is not wrong with values of charts and has no effect.
fn notes_on_values(context: &Context, values: &ValueFiles, unknown: &[String]) -> Vec<Note> {
    let Some(installation) = &context.installation else { return Vec::new() };
    let note = |path: &str, message: String| Note { place: Place::whole(path), message };
    let purpose = Purpose { intents: Intents::of(&installation.argo), ..Purpose::default() };
    let mut notes = Vec::new();
    for component in values.values.keys() {
        if purpose.intent(*component) != Intent::Install {
            let field = component.field();
            let message = format!("has no effect: forge.yaml does not say `argo: {{{field}: install}}`");
            notes.push(note(&install::values_path(*component), message));
        }
    }
    for path in unknown {
        let names: Vec<String> = Component::ALL.into_iter().map(install::values_path).collect();
        notes.push(note(path, format!("has no effect: values of charts are read from {}", names.join(", "))));
    }
    notes
}

struct Check<'c> {
    installation: &'c Installation,
    findings: Vec<Finding>,
    /// Every Application that the layout makes, and the path or thing it comes from.
    applications: Lookup<String, Origin>,
    /// Every namespace by cluster (its first environment), and the project and the environment's folder it comes from.
    namespaces: Lookup<(usize, String), (ProjectId, Arc<str>)>,
}

/// Where the name of an Application comes from.
enum Origin {
    /// An environment's own.
    Environment(String),
    /// A project in the folder of an environment.
    Project(Arc<str>, ProjectId),
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Environment(name) => write!(f, "environment `{name}` itself"),
            Self::Project(path, id) => write!(f, "{path}/apps/{id}/release.yaml"),
        }
    }
}

fn pointer_path(environment: &Environment, id: &ProjectId) -> String {
    format!("{}/apps/{id}/release.yaml", environment.path)
}

impl Check<'_> {
    fn at(&mut self, code: Code, at: Position, message: String, fix: &str) {
        self.findings.push(Finding::new(code, Place::new(INSTALLATION_FILE, at), message).with_fix(fix));
    }

    /// The Applications and AppProjects that environments have by themselves.
    fn own_names(&mut self) {
        let (mut names, mut paths) = (BTreeSet::new(), BTreeSet::new());
        for environment in &self.installation.environments {
            let (name, at) = (environment.name.as_str(), environment.name.at);
            // What is listed twice is told as that.
            if !names.insert(name) || !paths.insert(&environment.path) {
                continue;
            }
            if [SYSTEM_STACK, "forge-components"].contains(&name) {
                let message = format!("environment `{name}` gives AppProject `{name}`, which is one of Forge's own");
                self.at(Code::NameCollision, at, message, "give the environment another name");
            }
            // The root ApplicationSet names the bootstrap Application after the folder.
            let folder = environment.path.rsplit('/').next().unwrap_or(name);
            for own in [format!("{folder}-bootstrap"), format!("{name}-config"), format!("{name}-cluster")] {
                if let Some(other) = self.applications.get(&own) {
                    let message = format!("environment `{name}` gives Application `{own}`, as {other} does");
                    self.at(Code::NameCollision, at, message, "give one of them another folder or name");
                } else {
                    self.applications.insert(own, Origin::Environment(name.to_owned()));
                }
            }
        }
    }

    fn policies(&mut self) {
        let mut names: BTreeMap<&str, Position> = BTreeMap::new();
        let mut paths: BTreeMap<&str, &str> = BTreeMap::new();
        let mut prefixes: BTreeMap<(&str, &str), &str> = BTreeMap::new();
        for environment in &self.installation.environments {
            let (name, at) = (environment.name.as_str(), environment.name.at);
            if names.insert(name, at).is_some() {
                self.at(Code::DuplicateEnvironment, at, format!("environment `{name}` is listed twice"), "remove one");
                continue;
            }
            if let Some(other) = paths.insert(&environment.path, name) {
                let message = format!("environments `{other}` and `{name}` share the folder `{}`", environment.path);
                self.at(Code::DuplicateEnvironment, at, message, "give one of them another `path`");
            }
            if name.len() > MAX_ENVIRONMENT {
                let length = name.len();
                let message =
                    format!("environment `{name}` has {length} characters; at most {MAX_ENVIRONMENT} are allowed");
                self.at(Code::NameTooLong, at, message, "shorten the environment's name");
            }
            let key = (environment.cluster.as_str(), environment.namespace_prefix.as_str());
            if let Some(other) = prefixes.insert(key, name) {
                let message = format!(
                    "environments `{other}` and `{name}` are on cluster `{}` with the same namespaces",
                    environment.cluster.value
                );
                self.at(Code::SharedPrefix, environment.cluster.at, message, "give one of them a `namespacePrefix`");
            }
            let production = matches!(name, "production" | "prod");
            if production && !environment.protected {
                let message = format!("environment `{name}` is not protected");
                self.at(Code::ProtectedWithoutApproval, at, message, "write `protected: true` and `approvals: 1`");
            } else if environment.protected && environment.approvals == 0 {
                let message = format!("protected environment `{name}` needs no approval");
                self.at(Code::ProtectedWithoutApproval, at, message, "write `approvals: 1` or more");
            }
            if environment.protected && environment.sync.value == Sync::Auto {
                let message = format!("protected environment `{name}` syncs by itself");
                self.at(
                    Code::AutoSyncOnProtected,
                    environment.sync.at,
                    message,
                    "write `sync: manual` or `sync: ordered`",
                );
            }
            if self.installation.argo.events == ArgoEvents::None {
                let ordered = environment.sync.value == Sync::Ordered;
                let ordered = ordered.then_some(("sync: ordered", environment.sync.at));
                let schedule = environment.schedule.as_ref().map(|schedule| ("a schedule", schedule.at));
                for (what, at) in ordered.into_iter().chain(schedule) {
                    let message =
                        format!("environment `{name}` has {what}, but there is no Argo Events to start a run");
                    self.at(Code::NobodyListens, at, message, "write `argo: {events: install}` or `existing`");
                }
            }
        }
    }

    /// The Job of an event is told address and branch, and refuses what the executor cannot use (SPEC.md section 5).
    fn triggers(&mut self) {
        let Installation { argo, environments, repository, .. } = self.installation;
        let started =
            |environment: &&Environment| environment.sync.value == Sync::Ordered || environment.schedule.is_some();
        let Some(environment) = environments.iter().find(started).filter(|_| argo.events != ArgoEvents::None) else {
            return;
        };
        let (url, branch) = (&repository.url, &repository.branch);
        let unusable = [
            (url.at, url.value.parse::<GitUrl>().err(), "write the https address, without credentials"),
            (branch.at, branch.value.parse::<Revision>().err(), "give the branch another name"),
        ];
        for (at, error, fix) in unusable {
            let Some(error) = error else { continue };
            let name = &environment.name.value;
            let message = format!("events start runs of environment `{name}`, and their Job cannot read this: {error}");
            self.at(Code::NobodyListens, at, message, fix);
        }
    }

    fn placeholders(&mut self) {
        let registry = self.installation.registry.as_ref().map(|registry| ("registry", registry));
        let all = [("repository.url", &self.installation.repository.url)].into_iter().chain(registry);
        let left: Vec<_> = all
            .filter(|(_, text)| text.contains(PLACEHOLDER) || text.contains(".example.invalid"))
            .map(|(what, t)| (what, t.at))
            .collect();
        for (what, at) in left {
            let message = format!("{what} is still a placeholder");
            self.at(
                Code::Placeholder,
                at,
                message,
                "write the real one here and in every app.yaml, or delete those and run `forge init` again",
            );
        }
    }

    fn stray(&mut self, folders: &BTreeSet<String>) {
        // The root ApplicationSet takes every top-level folder as soon as one environment is such a folder.
        if self.installation.environments.iter().all(|environment| environment.path.contains('/')) {
            return;
        }
        for folder in folders {
            let message =
                "the root ApplicationSet makes an environment of this folder, but forge.yaml does not list it";
            let place = Place::whole(&format!("{folder}/app.yaml"));
            let fix = format!("add it with `forge env add {folder}`, or rename the file");
            self.findings.push(Finding::new(Code::UnknownEnvironment, place, message).with_fix(fix));
        }
    }

    /// What must be there. A repository of `application:` nodes only (`forge adopt`) needs no environment folders.
    fn present(&mut self, graph: bool, root: bool, managed: bool, environments: &BTreeMap<usize, Collected>) {
        let mut missing = Vec::new();
        if !graph {
            missing.push(GRAPH_FILE.to_owned());
        }
        if managed {
            if !root {
                missing.push(ROOT_APP_FILE.to_owned());
            }
            let mut seen = BTreeSet::new();
            for (index, environment) in self.installation.environments.iter().enumerate() {
                if !seen.insert(&environment.path) {
                    continue;
                }
                let found = environments.get(&index);
                if !found.is_some_and(|found| found.app) {
                    missing.push(format!("{}/app.yaml", environment.path));
                }
                if !found.is_some_and(|found| found.config) {
                    missing.push(format!("{}/env.yaml", environment.path));
                }
            }
        }
        for path in missing {
            let finding = Finding::new(Code::MissingFile, Place::whole(&path), "this file is missing");
            self.findings.push(finding.with_fix("`forge init` writes what is missing and touches nothing else"));
        }
    }

    /// The names that follow from a project's path: short enough, and nobody else's. All Applications live in one
    /// namespace, so they must differ between environments too; namespaces must differ within a cluster.
    fn project_names(&mut self, environment: &Environment, folder: &Arc<str>, id: &ProjectId) {
        let (repo, project) = (id.repo.as_str(), id.project.as_str());
        let application = [environment.name.as_str(), "-", repo, "-", project].concat();
        let namespace = [environment.namespace_prefix.as_str(), repo, "-", project].concat();
        for (what, derived) in [("Application", &application), ("namespace", &namespace)] {
            if derived.len() > MAX_NAME {
                let length = derived.len();
                let message = format!("{what} `{derived}` has {length} characters; at most {MAX_NAME} are allowed");
                let place = Place::whole(&pointer_path(environment, id));
                let finding = Finding::new(Code::NameTooLong, place, message);
                self.findings.push(finding.with_fix("shorten the repository or the project folder"));
            }
        }
        if let Some(other) = self.applications.get(&application) {
            let message = format!("gives Application `{application}`, as {other} does");
            self.collides(environment, id, message);
            return;
        }
        let cluster = &environment.cluster.value;
        let mut clusters = self.installation.environments.iter().map(|environment| &environment.cluster.value);
        let key = (clusters.position(|known| known == cluster).unwrap_or(0), namespace);
        match self.namespaces.get(&key) {
            // One project in two environments without a prefix between them is told once, in forge.yaml.
            Some((same, _)) if same == id => {}
            Some((other, path)) => {
                let message = format!("gives namespace `{}`, as {path}/apps/{other}/release.yaml does", key.1);
                self.collides(environment, id, message);
            }
            None => {
                self.namespaces.insert(key, (id.clone(), Arc::clone(folder)));
            }
        }
        self.applications.insert(application, Origin::Project(Arc::clone(folder), id.clone()));
    }

    fn collides(&mut self, environment: &Environment, id: &ProjectId, message: String) {
        let finding = Finding::new(Code::NameCollision, Place::whole(&pointer_path(environment, id)), message);
        self.findings.push(finding.with_fix("rename one of the folders"));
    }

    fn environment(&mut self, environment: &Environment, collected: Collected) -> EnvironmentFiles {
        let name = &environment.name.value;
        let folder: Arc<str> = environment.path.as_str().into();
        let mut projects = BTreeMap::new();
        let mut unusable = BTreeSet::new();
        // A pointer comes before other files of its folder, which then say nothing new.
        let mut folders = collected.projects;
        folders.sort_by(|a, b| (&a.0, &a.1, !a.2).cmp(&(&b.0, &b.1, !b.2)));
        folders.dedup_by(|later, first| (&later.0, &later.1) == (&first.0, &first.1));
        for (repo, project, has_file, pointer) in folders {
            let id = match (repo.parse::<RepoName>(), project.parse::<ProjectName>()) {
                (Ok(repo), Ok(project)) => ProjectId { repo, project },
                (Err(error), _) | (_, Err(error)) => {
                    let folder = format!("{}/apps/{repo}/{project}", environment.path);
                    let finding = Finding::new(Code::IllegalFolder, Place::whole(&folder), error.to_string());
                    self.findings
                        .push(finding.with_fix("rename the folder; its name becomes part of Kubernetes names"));
                    continue;
                }
            };
            self.project_names(environment, &folder, &id);
            match pointer {
                Some(pointer) => {
                    projects.insert(id, pointer);
                }
                None if !has_file => {
                    let place = Place::whole(&pointer_path(environment, &id));
                    let finding = Finding::new(Code::MissingFile, place, "this file is missing");
                    self.findings
                        .push(finding.with_fix(format!("`forge project add {id} --environment {name}` writes it")));
                }
                None => {
                    unusable.insert(id);
                }
            }
        }
        EnvironmentFiles {
            environment: environment.clone(),
            projects,
            unusable,
            overrides: collected.overrides,
            bootstrap: collected.app,
            config: collected.config,
        }
    }
}

/// The graph, and the pointers of every environment against it.
fn graphs(repository: &Repository) -> Vec<Finding> {
    let base = repository.base_graph();
    if base.graph.is_none() {
        return base.findings;
    }
    let apps = repository.graph.stacks.iter().flat_map(|stack| &stack.apps);
    let places: Lookup<&ProjectId, Position> = apps
        .filter_map(|app| match &app.subject.value {
            Subject::Project(id) => Some((id, app.subject.at)),
            Subject::Application(_) => None,
        })
        .collect();
    let mut findings = Vec::new();
    for files in &repository.environments {
        let name = &files.environment.name.value;
        // Without changes of its own an environment has the nodes of `graph.yaml`: no need to build it again.
        let changed = (files.overrides.is_some() || repository.names_implicit_nodes(files))
            .then(|| repository.environment_graph(files));
        let graph = match &changed {
            Some(build) => {
                findings.extend(build.findings.iter().cloned());
                build.graph.as_ref()
            }
            None => base.graph.as_ref(),
        };
        let Some(graph) = graph else { continue };
        findings.extend(named_twice(repository, files, graph));
        // Looked up by hash, walked in the order of identities.
        let nodes: Lookup<&ProjectId, ()> = graph.nodes().iter().filter_map(project).map(|id| (id, ())).collect();
        let pointers: Lookup<&ProjectId, ()> =
            files.projects.keys().chain(&files.unusable).map(|id| (id, ())).collect();
        for id in graph.nodes().iter().filter_map(project).filter(|id| !pointers.contains_key(id)) {
            let message = format!("`{id}` has no release pointer in environment `{name}`");
            let fix = format!(
                "write {}/apps/{}/{}/release.yaml, or leave it out there with `without` in {}/graph.yaml",
                files.environment.path, id.repo, id.project, files.environment.path
            );
            let at = places.get(id).copied().unwrap_or(Position::START);
            let place = Place::new(GRAPH_FILE, at);
            findings.push(Finding::new(Code::NodeWithoutPointer, place, message).with_fix(fix));
        }
        for id in files.projects.keys().chain(&files.unusable).filter(|id| !nodes.contains_key(id)) {
            let path = format!("{}/apps/{}/{}/release.yaml", files.environment.path, id.repo, id.project);
            let message = format!("`{id}` is not in the graph of environment `{name}`, so no run would deploy it");
            let left_out = base.graph.as_ref().is_some_and(|graph| graph.find(&id.into()).is_some());
            let fix = if left_out {
                let over = format!("{}/{GRAPH_FILE}", files.environment.path);
                format!("do not leave it out in {over}, or remove the folder")
            } else {
                format!("add `- project: {id}` to a stack of {GRAPH_FILE}, or remove the folder")
            };
            let at = files.projects.get(id).map_or(Position::START, |pointer| pointer.name.at);
            findings.push(Finding::new(Code::PointerWithoutNode, Place::new(&path, at), message).with_fix(fix));
        }
    }
    findings
}

fn project(node: &crate::graph::Node) -> Option<&ProjectId> {
    match &node.subject {
        Subject::Project(id) => Some(id),
        Subject::Application(_) => None,
    }
}

/// An Application that is a node twice: as a project of this environment, and by its name.
fn named_twice(repository: &Repository, files: &EnvironmentFiles, graph: &Graph) -> Vec<Finding> {
    let environment = &files.environment.name.value;
    let argo = &repository.installation.argo.namespace;
    let by_name = graph.nodes().iter().filter_map(|node| match &node.subject {
        Subject::Application(id) if id.namespace == *argo => id.name().strip_prefix(environment.as_str()),
        _ => None,
    });
    let joined: BTreeSet<&str> = by_name.filter_map(|rest| rest.strip_prefix('-')).collect();
    if joined.is_empty() {
        return Vec::new();
    }
    let apps = repository.graph.stacks.iter().flat_map(|stack| &stack.apps);
    let twice = apps.filter_map(|app| match &app.subject.value {
        Subject::Project(id) if joined.contains(id.joined().as_str()) => Some((id, app.subject.at)),
        _ => None,
    });
    twice
        .map(|(id, at)| {
            let application = format!("{argo}/{environment}-{}", id.joined());
            let message = format!("`{id}` is listed twice: its Application in `{environment}` is `{application}`");
            Finding::new(Code::DuplicateNode, Place::new(GRAPH_FILE, at), message)
                .with_fix(format!("remove `application: {application}`"))
        })
        .collect()
}
