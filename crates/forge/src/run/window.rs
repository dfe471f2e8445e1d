//! The window: the deny sync window in the environment's AppProject that holds exactly the nodes that are not proven
//! (SPEC.md section 4). The list is atomic, so it is written by compare-and-swap, and only `spec.syncWindows` is named.
//!
//! A deny window wedges an automated operation that is in flight, so a node enters only while its Application has none:
//! an automated one is asked to end first, and after entering it is looked at again for a moment, because Argo CD may begin
//! one on a window that it read before.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forge_core::code::Code;
use forge_core::failure::Failure;
use forge_core::graph::Scope;
use forge_core::name::NodeId;
use forge_core::render::{window_names, windows};
use forge_core::run::RunPlan;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Place;
use crate::argocd::{Application, ArgoCd, Pruned};
use crate::cluster::{ClusterError, path};

/// How long the run waits for automated operations to end before it goes on without holding their Applications.
pub(super) const PATIENCE: Duration = Duration::from_secs(90);
/// The same when the run has ended: its Job has little more time then, and the Workflow may have taken most of that.
pub(super) const LAST_PATIENCE: Duration = Duration::from_secs(10);
/// When one that goes on is asked to end once more: what Argo CD writes of its progress may undo the request.
const ASK_AGAIN: Duration = Duration::from_secs(2);
/// How long what has entered is looked at every second.
const WATCHED: Duration = Duration::from_secs(5);
/// Between two looks later, at least.
const LOOKED_AT: Duration = Duration::from_secs(15);
/// Between them for each node that it may hold: a look lists all Applications, and all looks of a run together are to cost what
/// its nodes cost, not what their square does.
const LOOKED_AT_OF_NODE: Duration = Duration::from_millis(50);
/// Between them at most: for so long an automated operation may be wedged in a window.
const LOOKED_AT_MOST: Duration = Duration::from_secs(60);
/// How often the list is written against somebody who writes it too.
const MOST_WRITES: usize = 20;

/// The window of a run.
pub(super) struct Window {
    place: Place,
    project: String,
    run: String,
    /// Nodes of the run that it may hold, with the names of their Applications.
    held: BTreeMap<NodeId, String>,
    /// The names of all Applications of the run, where it is a run of a part: what the window holds beside them stays.
    part: Option<BTreeSet<String>>,
    /// When something entered last.
    entered: Cell<Instant>,
    /// When what is inside was looked at last.
    looked: Cell<Instant>,
    /// Something that is to be inside could not enter yet.
    outside: Cell<bool>,
    /// Something is inside, a node of the run or what it leaves there.
    holding: Cell<bool>,
}

/// What entering came to.
pub(super) struct Entered {
    pub(super) window: Window,
    /// Nodes that are not held, and why.
    pub(super) not_held: BTreeMap<NodeId, String>,
    /// Nodes that an earlier process or run held, and that left just now.
    pub(super) left: Vec<NodeId>,
}

/// What the window came to.
pub(super) struct Settled {
    /// Nodes that left it just now.
    pub(super) left: Vec<NodeId>,
    /// Nodes that could not enter, and why.
    pub(super) not_held: BTreeMap<NodeId, String>,
}

impl Window {
    /// Puts these nodes into the window, each at a moment at which nothing automated is in flight.
    ///
    /// # Errors
    /// When the AppProject may not be written, or somebody else takes the window away.
    pub(super) async fn enter(
        place: &Place,
        argocd: &ArgoCd,
        plan: &RunPlan,
        nodes: &BTreeSet<NodeId>,
        patience: Duration,
    ) -> Result<Entered, Failure> {
        let mut not_held = BTreeMap::new();
        let applications = applications(place).await?;
        let project = plan.environment.to_string();
        let mut held = BTreeMap::new();
        for node in plan.nodes() {
            let name = node.application.name().to_owned();
            match applications.get(&name) {
                _ if node.application.namespace.as_str() != place.places.argocd => {
                    not_held.insert(node.id.clone(), "its Application lives in another namespace".to_owned());
                }
                Some(application) if application.project != project => {
                    let why = format!("AppProject `{}` was not handed over", application.project);
                    not_held.insert(node.id.clone(), why);
                }
                _ => {
                    held.insert(node.id.clone(), name);
                }
            }
        }
        // What is found proven is not held, and not said to be missing; it may have to be held later.
        not_held.retain(|node, _| nodes.contains(node));
        let names = || plan.nodes().map(|node| node.application.name().to_owned()).collect();
        let part = (plan.scope != Scope::Platform).then(names);
        let (place, run, now) = (place.clone(), plan.run.to_string(), Instant::now());
        let (entered, looked, outside, holding) = (Cell::new(now), Cell::new(now), Cell::default(), Cell::default());
        let window = Self { place, project, run, held, part, entered, looked, outside, holding };
        if window.read().await?.is_none() {
            for node in window.held.keys().filter(|node| nodes.contains(*node)) {
                not_held.insert(node.clone(), format!("there is no AppProject `{}`", window.project));
            }
            return Ok(Entered { window: Self { held: BTreeMap::new(), ..window }, not_held, left: Vec::new() });
        }
        let settled = window.settle(argocd, nodes, patience).await?;
        not_held.extend(settled.not_held);
        window.survives(argocd).await?;
        Ok(Entered { window, not_held, left: settled.left })
    }

    /// Makes the window hold exactly these nodes, and has what is automated and in flight end before its node enters; what does
    /// not end in time stays outside.
    ///
    /// # Errors
    /// When the AppProject cannot be written.
    pub(super) async fn settle(
        &self,
        argocd: &ArgoCd,
        nodes: &BTreeSet<NodeId>,
        patience: Duration,
    ) -> Result<Settled, Failure> {
        let give_up = Instant::now() + patience;
        let wanted = self.held.iter().filter(|(node, _)| nodes.contains(*node));
        let all: BTreeSet<String> = wanted.map(|(_, name)| name.clone()).collect();
        let mut asked: BTreeMap<String, Instant> = BTreeMap::new();
        let mut refused: BTreeMap<String, ClusterError> = BTreeMap::new();
        let mut left: Option<Vec<NodeId>> = None;
        loop {
            let busy = busy(&self.place, &all).await?;
            let inside: BTreeSet<String> = all.difference(&busy).cloned().collect();
            let before = self.write(&inside).await?;
            // What left by the first write is not there any more when the list is written again.
            let left = left.get_or_insert_with(|| self.named(|name| before.contains(name) && !all.contains(name)));
            // One may have begun between reading and entering; it must not stay inside.
            let caught: BTreeSet<String> = self::busy(&self.place, &inside).await?;
            if !caught.is_empty() {
                let free: BTreeSet<String> = inside.difference(&caught).cloned().collect();
                self.write(&free).await?;
            }
            let open: BTreeSet<String> = busy.union(&caught).cloned().collect();
            self.outside.set(!open.is_empty());
            if open.is_empty() || Instant::now() >= give_up {
                let why = |name: &String| {
                    let why = "an automated operation of Argo CD did not end";
                    refused.get(name).map_or(why.to_owned(), |error| format!("{why}: {error}"))
                };
                let outside = self.held.iter().filter(|(_, name)| open.contains(*name));
                let not_held = outside.map(|(node, name)| (node.clone(), why(name))).collect();
                return Ok(Settled { left: std::mem::take(left), not_held });
            }
            asked.retain(|_, at| at.elapsed() < ASK_AGAIN);
            for name in open.into_iter().filter(|name| !asked.contains_key(name)).collect::<Vec<_>>() {
                if Instant::now() >= give_up {
                    break;
                }
                // Refused where it ended meanwhile; the next look tells.
                if let Err(error) = self.end_operation(argocd, &name).await {
                    refused.insert(name, error);
                } else {
                    refused.remove(&name);
                    asked.insert(name, Instant::now());
                }
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }

    async fn end_operation(&self, argocd: &ArgoCd, name: &str) -> Result<(), ClusterError> {
        let Ok(id) = format!("{}/{name}", self.place.places.argocd).parse() else { return Ok(()) };
        argocd.terminate(&id).await
    }

    /// Lets out what has an automated operation although it is inside, and asks that to end. It comes back with the next
    /// [`Window::hold`]. Says whether that is due; to be called every second.
    ///
    /// # Errors
    /// When the cluster cannot be asked.
    pub(super) async fn unwedge(&self, argocd: &ArgoCd) -> Result<bool, ClusterError> {
        if self.entered.get().elapsed() > WATCHED && self.looked.get().elapsed() < looked_at(self.held.len()) {
            return Ok(self.outside.get());
        }
        self.looked.set(Instant::now());
        let project = self.read().await?;
        let Some((_, inside)) = project.as_ref().and_then(|project| window_names(&current(project))) else {
            return Ok(self.outside.get());
        };
        let ours: BTreeSet<String> = self.held.values().filter(|name| inside.contains(*name)).cloned().collect();
        let wedged = busy(&self.place, &ours).await?;
        if wedged.is_empty() {
            return Ok(self.outside.get());
        }
        self.write(&ours.difference(&wedged).cloned().collect()).await?;
        for name in &wedged {
            // Refused where it has ended meanwhile.
            let _ = self.end_operation(argocd, name).await;
        }
        Ok(true)
    }

    /// An AppProject that a GitOps Application owns must let the window be: that Application is asked to compare once.
    async fn survives(&self, argocd: &ArgoCd) -> Result<(), Failure> {
        let Some(project) = self.read().await? else { return Ok(()) };
        let Some(owner) = owner(&project).filter(|_| self.is_holding()) else { return Ok(()) };
        let Ok(id) = format!("{}/{owner}", self.place.places.argocd).parse() else { return Ok(()) };
        // One that we may not see, or that does not answer, may heal all the same; where it is gone this costs three seconds.
        let _ = argocd.refresh(&id).await;
        // A self-heal follows a comparison within a moment, and may have been quicker than this.
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let ours = self.read().await?.as_ref().and_then(|project| window_names(&current(project)));
            if ours.is_none_or(|(run, _)| run != self.run) {
                let message = format!("Application `{owner}` takes the window of AppProject `{}` away", self.project);
                return Err(Failure::new(Code::WindowContested, message)
                    .hint("let it ignore /spec/syncWindows (ignoreDifferences, RespectIgnoreDifferences=true)"));
            }
        }
        Ok(())
    }

    /// Makes the window hold exactly these nodes. Gives the nodes that left it just now. One that is to come back (its
    /// proof was withdrawn) enters only while nothing automated is in flight.
    ///
    /// # Errors
    /// When the AppProject cannot be written.
    pub(super) async fn hold(&self, nodes: &BTreeSet<NodeId>) -> Result<Vec<NodeId>, ClusterError> {
        let mut names: BTreeSet<String> =
            self.held.iter().filter(|(node, _)| nodes.contains(*node)).map(|(_, name)| name.clone()).collect();
        let wanted = names.len();
        let inside = self.read().await?.as_ref().and_then(|project| window_names(&current(project)));
        let inside = inside.map(|(_, names)| names).unwrap_or_default();
        let entering: BTreeSet<String> = names.difference(&inside).cloned().collect();
        if !entering.is_empty() {
            let busy = busy(&self.place, &entering).await?;
            names.retain(|name| !busy.contains(name));
        }
        let before = self.write(&names).await?;
        if !entering.is_empty() {
            // One may have begun between reading and entering; it must not stay inside.
            let caught = busy(&self.place, &entering).await?;
            if names.intersection(&caught).next().is_some() {
                names.retain(|name| !caught.contains(name));
                self.write(&names).await?;
            }
        }
        self.outside.set(names.len() < wanted);
        Ok(self.named(|name| before.contains(name) && !names.contains(name)))
    }

    /// The nodes that it may hold whose Applications have such a name.
    fn named(&self, is_meant: impl Fn(&String) -> bool) -> Vec<NodeId> {
        self.held.iter().filter(|(_, name)| is_meant(name)).map(|(node, _)| node.clone()).collect()
    }

    /// Whether something that is to be inside could not enter when that was tried last.
    pub(super) fn is_incomplete(&self) -> bool {
        self.outside.get()
    }

    /// Whether it may hold a node.
    pub(super) fn may_hold(&self, node: &NodeId) -> bool {
        self.held.contains_key(node)
    }

    /// Whether it held anything when it was looked at or written last.
    pub(super) fn is_holding(&self) -> bool {
        self.holding.get()
    }

    async fn read(&self) -> Result<Option<Value>, ClusterError> {
        let path = path::object(&path::argo(&self.place.places.argocd, "appprojects"), &self.project);
        self.place.cluster.get(&path).await
    }

    /// Writes the list, if it is not right. Gives what our window held before. What is no business of a run of a part
    /// stays held: an earlier run failed on it, or none has begun.
    async fn write(&self, names: &BTreeSet<String>) -> Result<BTreeSet<String>, ClusterError> {
        let path = path::object(&path::argo(&self.place.places.argocd, "appprojects"), &self.project);
        let mut tries = 0;
        loop {
            let Some(project) = self.read().await? else {
                self.holding.set(false);
                return Ok(BTreeSet::new());
            };
            let now = current(&project);
            let before = window_names(&now).map(|(_, names)| names).unwrap_or_default();
            let others = self.part.iter().flat_map(|part| before.difference(part));
            let inside: BTreeSet<String> = others.chain(names).cloned().collect();
            let wanted = windows(&now, &self.run, &inside);
            if wanted == now {
                self.holding.set(!inside.is_empty());
                return Ok(before);
            }
            let version = project.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
            let list = if wanted.is_empty() { Value::Null } else { json!(wanted) };
            let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"syncWindows": list}});
            match self.place.cluster.merge(&path, &patch).await {
                Ok(_) => {
                    self.holding.set(!inside.is_empty());
                    if names.difference(&before).next().is_some() {
                        self.entered.set(Instant::now());
                    }
                    return Ok(before);
                }
                Err(error) if error.is_conflict() && tries < MOST_WRITES => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }
}

/// How often what is inside is looked at, where the window may hold so many.
fn looked_at(nodes: usize) -> Duration {
    let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
    LOOKED_AT_OF_NODE.saturating_mul(nodes).clamp(LOOKED_AT, LOOKED_AT_MOST)
}

fn current(project: &Value) -> Vec<Value> {
    project.pointer("/spec/syncWindows").and_then(Value::as_array).cloned().unwrap_or_default()
}

/// The Application that manages an object, by Argo CD's tracking.
fn owner(object: &Value) -> Option<String> {
    let metadata = object.get("metadata")?;
    let tracked = metadata.pointer("/annotations/argocd.argoproj.io~1tracking-id").and_then(Value::as_str);
    let label = metadata.pointer("/labels/argocd.argoproj.io~1instance").and_then(Value::as_str);
    tracked.and_then(|id| id.split(':').next()).or(label).map(str::to_owned)
}

/// All Applications of Argo CD's namespace by name.
pub(super) async fn applications(place: &Place) -> Result<BTreeMap<String, Application>, ClusterError> {
    let all: Vec<Pruned> = place.cluster.list_of(&path::argo(&place.places.argocd, "applications"), "").await?;
    let read = all.into_iter().filter_map(|Pruned(application)| application);
    Ok(read.map(|application| (application.id.name().to_owned(), application)).collect())
}

/// An Application, as far as its operation goes: all of them are read every few seconds, so nothing else is built.
#[derive(Deserialize)]
struct Flying {
    metadata: Named,
    operation: Option<InFlight>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InFlight {
    initiated_by: Option<Initiator>,
}

#[derive(Deserialize)]
struct Initiator {
    #[serde(default)]
    automated: bool,
}

/// Those of these that have an automated operation in flight.
async fn busy(place: &Place, names: &BTreeSet<String>) -> Result<BTreeSet<String>, ClusterError> {
    // Nobody has to be asked about nobody.
    if names.is_empty() {
        return Ok(BTreeSet::new());
    }
    let all: Vec<Flying> = place.cluster.list_of(&path::argo(&place.places.argocd, "applications"), "").await?;
    Ok(all
        .into_iter()
        .filter(Flying::is_automated)
        .map(|flying| flying.metadata.name)
        .filter(|name| names.contains(name))
        .collect())
}

impl Flying {
    fn is_automated(&self) -> bool {
        let by = self.operation.as_ref().and_then(|operation| operation.initiated_by.as_ref());
        by.is_some_and(|by| by.automated)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use forge_core::render::Places;
    use secrecy::SecretString;

    use super::*;
    use crate::cluster::fake::{Fake, served};
    use crate::run::sample;

    const PROJECTS: &str = "/apis/argoproj.io/v1alpha1/namespaces/argocd/appprojects";
    const APPLICATIONS: &str = "/apis/argoproj.io/v1alpha1/namespaces/argocd/applications";

    /// An AppProject whose window holds these, Applications of which one may be in an operation of Argo CD's own, and an Argo CD
    /// that ends that when it is asked to.
    async fn held(names: &[&str], busy: Option<&str>) -> (Place, Arc<Mutex<Fake>>, ArgoCd) {
        let mut fake = Fake::default();
        let held = names.iter().map(|name| (*name).to_owned()).collect();
        let spec = json!({"syncWindows": windows(&[], "r-1", &held)});
        fake.put(PROJECTS, json!({"metadata": {"name": "dev"}, "spec": spec}));
        for name in ["db", "api", "web"] {
            let mut application = json!({"metadata": {"name": name}, "spec": {"project": "dev"}});
            if busy == Some(name) {
                application["operation"] = json!({"sync": {}, "initiatedBy": {"automated": true}});
            }
            fake.put(APPLICATIONS, application);
        }
        let (cluster, fake) = served(fake).await;
        let shared = fake.clone();
        let router = axum::Router::new().fallback(move |method: http::Method, uri: http::Uri| async move {
            let name = uri.path().split('/').nth(4).unwrap_or_default().to_owned();
            if method == http::Method::DELETE && uri.path().ends_with("/operation") {
                let mut fake = shared.lock().unwrap();
                let mut application = fake.objects[&format!("{APPLICATIONS}/{name}")].clone();
                application.as_object_mut().unwrap().remove("operation");
                fake.put(APPLICATIONS, application);
            }
            axum::Json(json!({}))
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let argocd = ArgoCd::at(&address, SecretString::from("t".to_owned()), None).unwrap();
        (Place { cluster, places: Places::default() }, fake, argocd)
    }

    fn nodes(names: &[&str]) -> BTreeSet<NodeId> {
        names.iter().map(|name| format!("argocd/{name}").parse().unwrap()).collect()
    }

    fn inside(fake: &Mutex<Fake>) -> Vec<String> {
        let project = fake.lock().unwrap().objects[&format!("{PROJECTS}/dev")].clone();
        window_names(&current(&project)).map(|(_, names)| names.into_iter().collect()).unwrap_or_default()
    }

    #[tokio::test]
    async fn whoever_takes_a_run_up_is_told_what_left_the_window_by_that() {
        let (place, fake, argocd) = held(&["db", "api", "web"], None).await;
        let plan = sample::chain(&["db", "api", "web"]);
        let entered = Window::enter(&place, &argocd, &plan, &nodes(&["web"]), PATIENCE).await.unwrap();
        assert_eq!(entered.left.into_iter().collect::<BTreeSet<_>>(), nodes(&["api", "db"]));
        assert_eq!((entered.not_held, inside(&fake)), (BTreeMap::new(), vec!["web".to_owned()]));
        assert!(!entered.window.is_incomplete());
        // What did not leave just now is not told again.
        let settled = entered.window.settle(&argocd, &nodes(&["web"]), PATIENCE).await.unwrap();
        assert_eq!((settled.left, settled.not_held), (Vec::new(), BTreeMap::new()));
    }

    #[tokio::test]
    async fn what_comes_back_at_the_end_enters_when_the_operation_of_argo_cds_own_was_ended() {
        let (place, fake, argocd) = held(&["api", "web"], Some("db")).await;
        let plan = sample::chain(&["db", "api", "web"]);
        let window = Window::enter(&place, &argocd, &plan, &nodes(&["api", "web"]), PATIENCE).await.unwrap().window;
        // A node whose proof was withdrawn: held where nothing is in flight, and nobody is asked to end anything.
        assert_eq!(window.hold(&nodes(&["db", "web"])).await.unwrap(), [nodes(&["api"]).pop_first().unwrap()]);
        assert_eq!((window.is_incomplete(), inside(&fake)), (true, vec!["web".to_owned()]));
        let settled = window.settle(&argocd, &nodes(&["db", "web"]), PATIENCE).await.unwrap();
        assert_eq!((settled.left, settled.not_held), (Vec::new(), BTreeMap::new()));
        assert_eq!((window.is_incomplete(), inside(&fake)), (false, vec!["db".to_owned(), "web".to_owned()]));
    }

    #[test]
    fn only_what_argo_cd_began_by_itself_is_in_its_way() {
        let is_automated = |operation: Value| {
            let application = json!({"metadata": {"name": "a"}, "spec": {"project": "p"}, "operation": operation});
            serde_json::from_value::<Flying>(application).unwrap().is_automated()
        };
        assert!(is_automated(json!({"sync": {}, "initiatedBy": {"automated": true}})));
        assert!(!is_automated(json!({"sync": {}, "initiatedBy": {"username": "forge"}})));
        assert!(!is_automated(json!({"sync": {}})));
        assert!(!is_automated(Value::Null));
    }
}
