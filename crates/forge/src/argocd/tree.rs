//! What lives below an Application: workloads with their generations, containers with the images that really run, and the
//! objects that a node requires. All of it is read through Argo CD, which serves members of an Application's tree only.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use forge_core::digest::Digest;
use forge_core::gate::{Container, ContainerKey, LiveObject, ObjectRef, RenderReceipt, Tree, Workload};
use forge_core::name::ApplicationId;
use forge_core::release::{RECEIPT, is_sidecar};
use forge_core::teardown::{self, Remnant};
use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::Value;

use super::{Application, ArgoCd, Resource};
use crate::cluster::ClusterError;

/// Requests of one node at a time.
const AT_ONCE: usize = 8;
/// Pods of one Application that are whole in memory at a time.
const PODS: usize = 200;

/// Objects of an Application that is being deleted that are looked at.
const MOST_REMNANTS: usize = 60;

/// How long it is remembered what an ancestor's tree holds: many nodes that wait for an object ask for the same trees.
const RECENT: Duration = Duration::from_secs(2);

/// Members of the trees of ancestors, as they were a moment ago. They say where an object lives, never what it is or
/// that it is there: that is read afresh every time.
#[derive(Default)]
pub(super) struct Trees(Mutex<BTreeMap<ApplicationId, Members>>);

/// Since when they are known, and what there was.
type Members = (Instant, Arc<[Resource]>);

impl Trees {
    fn recent(&self, id: &ApplicationId) -> Option<Arc<[Resource]>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(id).filter(|(at, _)| at.elapsed() < RECENT).map(|(_, members)| members.clone())
    }

    fn keep(&self, id: &ApplicationId, members: Arc<[Resource]>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, (at, _)| at.elapsed() < RECENT);
        known.insert(id.clone(), (Instant::now(), members));
    }
}

/// A node of a tree: Argo CD's, or one that was put together from the cluster itself.
pub(crate) struct Member {
    pub(crate) resource: Resource,
    /// What others name it by.
    pub(crate) uid: String,
    /// The names of those that own it.
    pub(crate) parents: Vec<String>,
}

impl ArgoCd {
    /// Reads everything that the gate wants to know of an Application. `elsewhere` are Applications of ancestors, where
    /// objects that the node requires may live too.
    pub(crate) async fn read_tree(
        &self,
        application: &Application,
        objects: &[ObjectRef],
        elsewhere: &[Application],
    ) -> Result<Tree, ClusterError> {
        let id = &application.id;
        let members = self.tree_members(id).await?;
        let mut required = Vec::with_capacity(objects.len());
        for object in objects {
            let value = self.required(application, &members, object, elsewhere).await?;
            required.push(LiveObject { object: object.clone(), value });
        }
        // Pods come last: what an object says because a pod was started again is not believed beside that pod as it was before.
        let (workloads, pods) = (only(&members, is_workload), only(&members, is_pod));
        let mut tree = assembled(&members, &self.objects(id, workloads.into_iter()).await?);
        // All of them: the one that is left out may be the one that runs something else.
        for pods in pods.chunks(PODS) {
            let found = self.objects(id, pods.iter().copied()).await?;
            tree.containers.extend(assembled(&members, &found).containers);
        }
        tree.objects = required;
        Ok(tree)
    }

    /// What the plugin says it rendered, as it is live; nothing where there is no receipt, or none that says it.
    pub(crate) async fn rendered(&self, application: &Application) -> Result<Option<RenderReceipt>, ClusterError> {
        let Some(resource) = application.resources.iter().find(|resource| is_receipt(resource, application)) else {
            return Ok(None);
        };
        Ok(self.object(&application.id, resource).await?.as_ref().and_then(RenderReceipt::read))
    }

    /// Everything in the tree of an Application. Where Argo CD has lost what it kept of it, it compares to find out.
    pub(crate) async fn tree_members(&self, id: &ApplicationId) -> Result<Vec<Member>, ClusterError> {
        Ok(nodes(&self.tree(id).await?).map(member).collect())
    }

    /// Live objects; those that vanished meanwhile are left out.
    pub(crate) async fn objects<'m>(
        &self,
        id: &ApplicationId,
        resources: impl Iterator<Item = &'m Resource>,
    ) -> Result<Vec<(Resource, Value)>, ClusterError> {
        let wanted: Vec<Resource> = resources.cloned().collect();
        let answers = futures::stream::iter(wanted).map(|resource| async move {
            let found = self.object(id, &resource).await?;
            Ok::<_, ClusterError>(found.map(|value| (resource, value)))
        });
        let mut found: Vec<(Resource, Value)> =
            answers.buffer_unordered(AT_ONCE).try_filter_map(|found| async { Ok(found) }).try_collect().await?;
        found.sort_by_key(|(resource, _)| resource.id());
        Ok(found)
    }

    /// What of an Application that is being deleted waits for somebody: objects that are going and that finalizers keep.
    pub(crate) async fn remnants(&self, id: &ApplicationId) -> Result<Vec<Remnant>, ClusterError> {
        let members: Vec<Resource> = self.tree_members(id).await?.into_iter().map(|member| member.resource).collect();
        let live = self.objects(id, members.iter().take(MOST_REMNANTS)).await?;
        let going = live.iter().map(|(resource, value)| Remnant::read(&named(resource), value));
        Ok(going.filter(|remnant| remnant.deleting.is_some() && !remnant.finalizers.is_empty()).collect())
    }

    /// An object that a node requires, wherever Argo CD serves it; nothing where it does not exist.
    pub(crate) async fn required(
        &self,
        application: &Application,
        members: &[Member],
        object: &ObjectRef,
        elsewhere: &[Application],
    ) -> Result<Option<Value>, ClusterError> {
        let own = members.iter().map(|member| &member.resource).find(|resource| is(resource, object, application));
        if let Some(resource) = own {
            return self.object(&application.id, resource).await;
        }
        for ancestor in elsewhere {
            if let Some(resource) = ancestor.resources.iter().find(|resource| is(resource, object, application)) {
                return self.object(&ancestor.id, resource).await;
            }
        }
        // What a controller made of an ancestor's resources is in the ancestor's tree only.
        let mut unread = None;
        for ancestor in elsewhere {
            match self.members(&ancestor.id).await {
                Ok(members) => {
                    if let Some(resource) = members.iter().find(|resource| is(resource, object, application)) {
                        return self.object(&ancestor.id, resource).await;
                    }
                }
                Err(error) => unread = Some(error),
            }
        }
        // A tree that could not be read may hold it: nobody may say that it does not exist.
        unread.map_or(Ok(None), Err)
    }

    /// What the tree of an Application holds, or held a moment ago.
    async fn members(&self, id: &ApplicationId) -> Result<Arc<[Resource]>, ClusterError> {
        if let Some(members) = self.trees.recent(id) {
            return Ok(members);
        }
        let members: Arc<[Resource]> = nodes(&self.tree(id).await?).map(Resource::read).collect();
        self.trees.keep(id, members.clone());
        Ok(members)
    }
}

/// Workloads and containers of objects that were read; `members` say who owns which pod.
pub(crate) fn assembled(members: &[Member], found: &[(Resource, Value)]) -> Tree {
    let by_uid: BTreeMap<&str, &Member> = members.iter().map(|member| (member.uid.as_str(), member)).collect();
    let owner_of = |pod: &Resource| {
        let member = members.iter().find(|member| is_pod(&member.resource) && member.resource == *pod);
        member.map(|member| top(member, &by_uid)).unwrap_or_else(|| pod.id())
    };
    let (workloads, pods) = (found.iter().filter(|(of, _)| is_workload(of)), found.iter().filter(|(of, _)| is_pod(of)));
    Tree {
        workloads: workloads.filter_map(|(resource, value)| workload(resource, value)).collect(),
        containers: pods.flat_map(|(pod, value)| containers(&owner_of(pod), value)).collect(),
        objects: Vec::new(),
    }
}

/// The nodes of a tree, as Argo CD serves it.
fn nodes(tree: &Value) -> impl Iterator<Item = &Value> {
    tree.get("nodes").and_then(Value::as_array).into_iter().flatten()
}

fn member(value: &Value) -> Member {
    let parents = value.get("parentRefs").and_then(Value::as_array).into_iter().flatten();
    Member {
        resource: Resource::read(value),
        uid: value.get("uid").and_then(Value::as_str).unwrap_or_default().to_owned(),
        parents: parents.filter_map(|parent| parent.get("uid").and_then(Value::as_str)).map(str::to_owned).collect(),
    }
}

/// Those of one sort.
fn only(members: &[Member], sort: fn(&Resource) -> bool) -> Vec<&Resource> {
    members.iter().map(|member| &member.resource).filter(|resource| sort(resource)).collect()
}

/// As people name it.
fn named(resource: &Resource) -> String {
    let Resource { group, version, kind, namespace, name } = resource.clone();
    teardown::Member { group, version, kind, namespace, name, uid: None }.to_string()
}

pub(crate) fn is_pod(resource: &Resource) -> bool {
    resource.group.is_empty() && resource.kind == "Pod"
}

/// Kinds whose controllers write an observedGeneration; the ReplicaSets of a Deployment are its own business.
pub(crate) fn is_workload(resource: &Resource) -> bool {
    resource.group == "apps" && matches!(resource.kind.as_str(), "Deployment" | "StatefulSet" | "DaemonSet")
}

/// The topmost owner of a pod, at most a few steps up: what a release names.
fn top(pod: &Member, by_uid: &BTreeMap<&str, &Member>) -> String {
    let mut at = pod;
    for _ in 0..5 {
        match at.parents.iter().find_map(|parent| by_uid.get(parent.as_str())) {
            Some(parent) => at = parent,
            None => break,
        }
    }
    at.resource.id()
}

fn workload(resource: &Resource, value: &Value) -> Option<Workload> {
    Some(Workload {
        id: resource.id(),
        generation: value.pointer("/metadata/generation").and_then(Value::as_i64)?,
        observed_generation: value.pointer("/status/observedGeneration").and_then(Value::as_i64),
    })
}

fn containers(owner: &str, pod: &Value) -> Vec<Container> {
    let list = |place: &str| pod.pointer(place).and_then(Value::as_array).into_iter().flatten();
    let named = |value: &Value| value.get("name").and_then(Value::as_str).map(str::to_owned);
    let sidecars: Vec<String> =
        list("/spec/initContainers").filter(|container| is_sidecar(container)).filter_map(named).collect();
    // Of what begins before the containers only sidecars run on beside them.
    let runs_on = |status: &&Value| named(status).is_some_and(|name| sidecars.contains(&name));
    let starts_again = starts_again(pod);
    let statuses = list("/status/containerStatuses").chain(list("/status/initContainerStatuses").filter(runs_on));
    statuses
        .filter_map(|status| {
            let name = status.get("name").and_then(Value::as_str)?;
            let id = status.get("imageID").and_then(Value::as_str).unwrap_or_default();
            Some(Container {
                key: ContainerKey::new(owner, name).ok()?,
                running: status.pointer("/state/running").is_some(),
                restarts: recent_restarts(status, starts_again),
                held_back: is_held_back(status, starts_again),
                started: started(status),
                // Without a name before it, it is the digest of an image's configuration, which no manifest names.
                image: id.rsplit_once('@').and_then(|(_, digest)| digest.parse::<Digest>().ok()),
            })
        })
        .collect()
}

fn started(status: &Value) -> Option<jiff::Timestamp> {
    status.pointer("/state/running/startedAt").and_then(Value::as_str)?.parse().ok()
}

/// Whether what ends in this pod is started again: it is no pod of a Job, and does not go itself.
fn starts_again(pod: &Value) -> bool {
    let text = |place: &str| pod.pointer(place).and_then(Value::as_str);
    let is_going = pod.pointer("/metadata/deletionTimestamp").is_some();
    text("/spec/restartPolicy") == Some("Always") && text("/status/phase") == Some("Running") && !is_going
}

/// It has crashed, and Kubernetes has not started it again yet: it waits before it does, is about to, or nobody has noticed yet.
fn is_held_back(status: &Value, starts_again: bool) -> bool {
    let waits = status.pointer("/state/waiting/reason").and_then(Value::as_str) == Some("CrashLoopBackOff");
    let ended = status.pointer("/state/terminated").is_some();
    let begins_again = status.pointer("/state/waiting").is_some() && status.pointer("/lastState/terminated").is_some();
    waits || (starts_again && (ended || begins_again))
}

/// How often a container was started again, if the last time was not long ago or it has crashed again since: old restarts tell
/// nothing about now.
fn recent_restarts(status: &Value, starts_again: bool) -> u32 {
    let age = started(status).map(|at| jiff::Timestamp::now().duration_since(at));
    let is_recent = age.is_some_and(|age| age <= jiff::SignedDuration::from_secs(60));
    if !is_recent && !is_held_back(status, starts_again) {
        return 0;
    }
    status.get("restartCount").and_then(Value::as_u64).and_then(|count| count.try_into().ok()).unwrap_or(0)
}

/// The receipt of what the plugin rendered for an Application: it names no namespace, so it is in the destination's.
pub(crate) fn is_receipt(resource: &Resource, application: &Application) -> bool {
    let here = application.destination.is_empty() || resource.namespace == application.destination;
    resource.group.is_empty() && resource.kind == "ConfigMap" && resource.name == RECEIPT && here
}

/// An object by group, kind and name. One without a namespace is looked for in the destination's, or is cluster-scoped.
fn is(resource: &Resource, object: &ObjectRef, application: &Application) -> bool {
    let group = object.api_version.split_once('/').map_or("", |(group, _)| group);
    let namespace = match &object.namespace {
        Some(namespace) => resource.namespace == *namespace,
        None => resource.namespace.is_empty() || resource.namespace == application.destination,
    };
    resource.kind == object.kind && resource.name == object.name && resource.group == group && namespace
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::Json;
    use axum::http::{StatusCode, Uri};
    use secrecy::SecretString;
    use serde_json::json;

    use super::*;

    fn node(kind: &str, name: &str) -> Value {
        json!({"group": "example.com", "version": "v1", "kind": kind, "namespace": "shop", "name": name, "uid": name})
    }

    /// Pods of one Application that are more than anybody reads at once.
    const MANY: usize = 501;

    fn pod(number: usize) -> Value {
        let name = format!("web-{number}");
        json!({"group": "", "version": "v1", "kind": "Pod", "namespace": "shop", "name": name, "uid": name})
    }

    /// What Argo CD knows: `app` and `near` hold nothing of interest, the controller of `far` made a Database.
    fn answer(uri: &Uri) -> (StatusCode, Json<Value>) {
        let path = uri.path().trim_start_matches("/api/v1/applications/");
        let found = match path {
            "app/resource-tree" => json!({"nodes": [node("Claim", "own")]}),
            "near/resource-tree" => json!({}),
            "far/resource-tree" => json!({"nodes": [node("Claim", "c"), node("Database", "main")]}),
            "far/resource" => json!({"manifest": r#"{"status": {"phase": "Ready"}}"#}),
            "released/resource" if uri.query().is_some_and(|query| query.contains("kind=ConfigMap")) => {
                let digest = Digest::of(b"x");
                json!({"manifest": forge_core::release::receipt(&digest, &digest, &digest).value.to_string()})
            }
            "odd/resource" => json!({"manifest": r#"{"data": {"release": "x"}}"#}),
            "many/resource-tree" => json!({"nodes": (0..MANY).map(pod).collect::<Vec<Value>>()}),
            "many/resource" => {
                let state = r#"{"name": "web", "state": {"running": {}}}"#;
                json!({"manifest": format!(r#"{{"status": {{"containerStatuses": [{state}]}}}}"#)})
            }
            // So it says that there is none.
            _ => return (StatusCode::FORBIDDEN, Json(json!({"code": 7, "message": "permission denied"}))),
        };
        (StatusCode::OK, Json(found))
    }

    /// Argo CD, and how many trees it was asked for.
    async fn serve() -> (ArgoCd, Arc<AtomicUsize>) {
        let trees = Arc::new(AtomicUsize::new(0));
        let counted = trees.clone();
        let argocd = serving(move |uri| {
            if uri.path().ends_with("/resource-tree") {
                counted.fetch_add(1, Ordering::Relaxed);
            }
            answer(uri)
        });
        (argocd.await, trees)
    }

    /// An Argo CD that answers so.
    async fn serving(answer: impl Fn(&Uri) -> (StatusCode, Json<Value>) + Clone + Send + Sync + 'static) -> ArgoCd {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let router = axum::Router::new().fallback(move |uri: Uri| async move { answer(&uri) });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        ArgoCd::at(&format!("http://{address}"), SecretString::from("t".to_owned()), None).unwrap()
    }

    fn application(name: &str, resources: &Value) -> Application {
        let object = json!({
            "metadata": {"namespace": "argocd", "name": name},
            "spec": {"destination": {"namespace": "shop"}},
            "status": {"resources": resources},
        });
        Application::read(&object).unwrap()
    }

    fn wanted(kind: &str, name: &str) -> ObjectRef {
        let api_version = "example.com/v1".to_owned();
        ObjectRef { api_version, kind: kind.to_owned(), name: name.to_owned(), namespace: None }
    }

    #[tokio::test]
    async fn an_object_that_an_ancestors_controller_made_is_found_in_the_ancestors_tree() {
        let (argocd, trees) = serve().await;
        let ancestors = [application("near", &json!([])), application("far", &json!([node("Claim", "c")]))];
        let objects = [wanted("Database", "main"), wanted("Database", "none"), wanted("Claim", "c")];
        let tree = argocd.read_tree(&application("app", &json!([])), &objects, &ancestors).await.unwrap();
        let ready = Some(json!({"status": {"phase": "Ready"}}));
        let found: Vec<Option<Value>> = tree.objects.into_iter().map(|live| live.value).collect();
        assert_eq!(found, [ready.clone(), None, ready]);
        // The node's own, and each ancestor's once, although two objects were looked for in them.
        assert_eq!(trees.load(Ordering::Relaxed), 3);
    }

    #[tokio::test]
    async fn the_containers_of_all_pods_are_read_however_many_there_are() {
        let (argocd, _) = serve().await;
        let tree = argocd.read_tree(&application("many", &json!([])), &[], &[]).await.unwrap();
        let shown: std::collections::BTreeSet<String> =
            tree.containers.iter().map(|container| container.key.to_string()).collect();
        assert_eq!((shown.len(), tree.containers.len()), (MANY, MANY));
    }

    #[tokio::test]
    async fn a_pod_that_is_started_again_while_it_is_read_is_not_taken_for_one_that_was_not() {
        let reads = Arc::new(AtomicUsize::new(0));
        let argocd = serving(move |uri| {
            if uri.path().ends_with("/resource-tree") {
                return (StatusCode::OK, Json(json!({"nodes": [pod(0)]})));
            }
            // It restarts after each time that it is read.
            let running = json!({"running": {"startedAt": jiff::Timestamp::now()}});
            let count = reads.fetch_add(1, Ordering::Relaxed);
            let status = json!({"containerStatuses": [{"name": "web", "restartCount": count, "state": running}]});
            (StatusCode::OK, Json(json!({"manifest": json!({"status": status}).to_string()})))
        });
        let object = ObjectRef {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            name: "web-0".to_owned(),
            namespace: None,
        };
        let tree = argocd.await.read_tree(&application("app", &json!([])), &[object], &[]).await.unwrap();
        let told = tree.objects[0].value.as_ref().unwrap()["status"]["containerStatuses"][0]["restartCount"].clone();
        assert_eq!((told, tree.restarts()), (json!(0), 1));
    }

    #[tokio::test]
    async fn the_receipt_of_what_was_rendered_is_the_one_in_the_namespace_of_the_application() {
        let (argocd, _) = serve().await;
        let config_map = |namespace: &str, name: &str| json!({"group": "", "version": "v1", "kind": "ConfigMap", "namespace": namespace, "name": name});
        let own = json!([config_map("other", "forge-receipt"), config_map("shop", "forge-receipt")]);
        let digest = Digest::of(b"x");
        let found = argocd.rendered(&application("released", &own)).await.unwrap();
        assert_eq!(found.map(|receipt| receipt.release), Some(digest));
        // There is none, it says nothing, and it cannot be read: three different things.
        let none = json!([config_map("other", "forge-receipt"), config_map("shop", "settings")]);
        assert_eq!(argocd.rendered(&application("released", &none)).await.unwrap(), None);
        assert_eq!(argocd.rendered(&application("odd", &own)).await.unwrap(), None);
        assert!(argocd.rendered(&application("gone", &own)).await.is_err());
    }

    #[test]
    fn restarts_count_of_what_was_started_lately_or_is_held_back() {
        let ago = |seconds: i64| jiff::Timestamp::now() - jiff::SignedDuration::from_secs(seconds);
        let restarts_in = |policy: &str, state: Value| {
            let mut status = json!({"name": "api", "restartCount": 4, "state": state});
            // As Kubernetes says it of what was started before.
            if let Some(last) = status["state"].as_object_mut().and_then(|state| state.remove("last")) {
                status["lastState"] = last;
            }
            let status = json!({"phase": "Running", "containerStatuses": [status]});
            let pod = json!({"spec": {"restartPolicy": policy}, "status": status});
            let found = containers("Deployment/shop/api", &pod);
            found.iter().map(|container| (container.restarts, container.held_back)).collect::<Vec<_>>()
        };
        let restarts = |state: Value| restarts_in("Always", state);
        assert_eq!(restarts(json!({"running": {"startedAt": ago(5)}})), [(4, false)]);
        assert_eq!(restarts(json!({"running": {"startedAt": ago(500)}})), [(0, false)]);
        assert_eq!(restarts(json!({"waiting": {"reason": "CrashLoopBackOff"}})), [(4, true)]);
        assert_eq!(restarts(json!({"waiting": {"reason": "ContainerCreating"}})), [(0, false)]);
        let last = json!({"terminated": {"exitCode": 137}});
        assert_eq!(restarts(json!({"waiting": {"reason": "ContainerCreating"}, "last": last})), [(4, true)]);
        // It has just crashed; in a pod of a Job it may be done.
        assert_eq!(restarts(json!({"terminated": {"exitCode": 1}})), [(4, true)]);
        assert_eq!(restarts_in("Never", json!({"terminated": {"exitCode": 0}})), [(0, false)]);
    }

    #[test]
    fn sidecars_that_begin_before_the_containers_are_listed_with_them_and_what_only_begins_is_not() {
        let digest = Digest::of(b"x");
        let status = |name: &str| json!({"name": name, "imageID": format!("r.example.com/a@{digest}"), "state": {"running": {}}});
        let pod = json!({
            "spec": {"initContainers": [{"name": "migrate"}, {"name": "proxy", "restartPolicy": "Always"}]},
            "status": {
                "initContainerStatuses": [status("migrate"), status("proxy")],
                "containerStatuses": [status("api")],
            },
        });
        let found = containers("Deployment/shop/api", &pod);
        let shown: Vec<String> = found.iter().map(|container| container.key.to_string()).collect();
        assert_eq!(shown, ["Deployment/shop/api/api", "Deployment/shop/api/proxy"]);
        assert!(found.iter().all(|container| container.running && container.image.as_ref() == Some(&digest)));
    }

    #[tokio::test]
    async fn a_tree_that_cannot_be_read_hides_no_other_and_is_not_taken_for_an_empty_one() {
        let (argocd, _) = serve().await;
        let (app, none) = (application("app", &json!([])), json!([]));
        let ancestors = [application("gone", &none), application("far", &none)];
        let tree = argocd.read_tree(&app, &[wanted("Database", "main")], &ancestors).await.unwrap();
        assert!(tree.objects.iter().all(|live| live.value.is_some()));
        assert!(argocd.read_tree(&app, &[wanted("Database", "none")], &ancestors).await.is_err());
    }
}
