//! What really runs of an Application: from the cluster itself where it deploys to the one that Argo CD runs in, else, or where
//! the account may not look there, through Argo CD, which serves the objects of every cluster.
//!
//! Argo CD compares by itself when it is asked for a tree that it has lost, so it is asked only about what it compared
//! lately, which it keeps (docs/adr/0026).

use std::collections::BTreeSet;

use forge_core::duration::Duration;
use forge_core::gate::{LiveObject, ObjectRef, Tree, Wanted};
use forge_core::preflight::Looked;
use forge_core::truth::{LiveManifest, Unread};
use forge_core::view::ApplicationFacts;
use futures::StreamExt as _;
use jiff::Timestamp;
use serde_json::Value;

use super::Looker;
use crate::argocd::{Application, ArgoCd, Member, Resource, assembled, is_pod, is_workload};
use crate::cluster::{ClusterError, looked, path};

/// Requests of one node at a time.
const AT_ONCE: usize = 8;
/// Objects of one Application that are looked at.
const MOST: usize = 1000;
/// How long ago Argo CD must have compared what it is asked about: what it keeps, it keeps for an hour.
const KEPT: Duration = Duration::from_seconds(1800);

/// What was read.
pub(super) struct Live {
    /// Workloads and containers.
    pub(super) tree: Looked<Tree>,
    pub(super) objects: Vec<LiveManifest>,
    /// What the node requires, as far as it could be read.
    pub(super) required: Vec<LiveObject>,
    /// Members that are not in the cluster.
    pub(super) absent: Vec<Resource>,
    pub(super) unread: Vec<Unread>,
}

impl Live {
    fn nothing(tree: Looked<Tree>) -> Self {
        Self { tree, objects: Vec::new(), required: Vec::new(), absent: Vec::new(), unread: Vec::new() }
    }
}

/// Kinds whose live objects rules are about.
fn is_judged(resource: &Resource) -> bool {
    is_workload(resource)
        || matches!(
            (resource.group.as_str(), resource.kind.as_str()),
            ("batch", "Job" | "CronJob") | ("", "ConfigMap" | "Pod")
        )
}

/// Objects that are on their way out do not count.
fn is_going(value: &Value) -> bool {
    value.pointer("/metadata/deletionTimestamp").is_some()
}

/// The objects that a node requires or has rules for.
fn required(wanted: &Wanted) -> BTreeSet<ObjectRef> {
    wanted.requires.iter().cloned().chain(wanted.health.iter().map(|rule| rule.object.clone())).collect()
}

/// What was answered about objects that a node requires: those that were seen, there or not, and those that were not.
fn told(answers: Vec<(ObjectRef, Result<Option<Value>, ClusterError>)>, unread: &mut Vec<Unread>) -> Vec<LiveObject> {
    let mut seen = Vec::new();
    for (object, answer) in answers {
        match looked(answer) {
            Looked::Saw(value) => seen.push(LiveObject { object, value }),
            Looked::NotPermitted(why) | Looked::Failed(why) => {
                unread.push(Unread { what: object.to_string(), why, object: Some(object) });
            }
        }
    }
    seen
}

impl Looker<'_> {
    pub(super) async fn live(
        &self,
        wanted: &Wanted,
        application: &Application,
        facts: &ApplicationFacts,
        elsewhere: &[Application],
    ) -> Live {
        let mut refused = None;
        if facts.local {
            let found = self.local(wanted, application).await;
            if !matches!(found.tree, Looked::NotPermitted(_)) {
                return found;
            }
            refused = Some(found);
        }
        if facts.is_stale(Timestamp::now(), KEPT) {
            let why = "Argo CD has not compared it lately, and to ask it could make it compare".to_owned();
            return refused.unwrap_or_else(|| Live::nothing(Looked::Failed(why)));
        }
        // A refusal is not kept: whoever watches may be given the right.
        let argocd = self.argocd.get_or_try_init(|| async {
            let asked = ArgoCd::through(self.cluster, self.question.workflows).await;
            asked.map_err(|failure| format!("Argo CD cannot be asked: {}", failure.message))
        });
        let found = match argocd.await {
            Ok(argocd) => self.through(argocd, wanted, application, elsewhere).await,
            Err(why) => Live::nothing(Looked::NotPermitted(why)),
        };
        match refused {
            // What was refused in the first place says which right is missing, and some of it was seen.
            Some(refused) if found.tree.saw().is_none() => refused,
            _ => found,
        }
    }

    /// From the cluster itself. What may not be read hides nothing else.
    async fn local(&self, wanted: &Wanted, application: &Application) -> Live {
        let mut unread = Vec::new();
        let judged: Vec<&Resource> = application.resources.iter().filter(|resource| is_judged(resource)).collect();
        unread.extend(too_many(judged.len()));
        let get = |resource: &Resource| {
            let resource = resource.clone();
            async move {
                let version = match resource.group.as_str() {
                    "" => resource.version.clone(),
                    group => format!("{group}/{}", resource.version),
                };
                let answer = self.kinds.get(&version, &resource.kind, &resource.namespace, &resource.name).await;
                (resource, answer)
            }
        };
        let judged = judged.into_iter().take(MOST);
        let answers: Vec<_> = futures::stream::iter(judged).map(get).buffered(AT_ONCE).collect().await;
        let mut found: Vec<(Resource, Value)> = Vec::new();
        let mut absent = Vec::new();
        let mut blind: Option<Looked<Tree>> = None;
        for (resource, answer) in answers {
            match looked(answer) {
                Looked::Saw(Some(value)) => found.push((resource, value)),
                Looked::Saw(None) => absent.push(resource),
                // Without its workloads nobody can say what runs.
                Looked::NotPermitted(why) if is_workload(&resource) => {
                    blind.get_or_insert(Looked::NotPermitted(why));
                }
                Looked::Failed(why) if is_workload(&resource) => {
                    blind.get_or_insert(Looked::Failed(why));
                }
                Looked::NotPermitted(why) | Looked::Failed(why) => {
                    unread.push(Unread { what: resource.id(), why, object: None });
                }
            }
        }
        let objects = manifests(&found);
        let ask = |object: ObjectRef| async move {
            let namespace = object.namespace.clone().unwrap_or_else(|| application.destination.clone());
            let answer = self.kinds.get(&object.api_version, &object.kind, &namespace, &object.name).await;
            (object, answer)
        };
        let answers = futures::stream::iter(required(wanted)).map(ask).buffered(AT_ONCE).collect::<Vec<_>>().await;
        let required = told(answers, &mut unread);
        let tree = match blind {
            Some(blind) => blind,
            None => looked(self.pods(application).await).map(|(members, pods)| {
                found.retain(|(resource, _)| !is_pod(resource));
                found.extend(pods);
                assembled(&members, &found)
            }),
        };
        Live { tree, objects, required, absent, unread }
    }

    /// The pods of an Application's workloads, and who owns which. The owner of a Deployment's pods is a ReplicaSet that is
    /// named after it.
    async fn pods(&self, application: &Application) -> Result<(Vec<Member>, Vec<(Resource, Value)>), ClusterError> {
        let own: BTreeSet<String> = application.resources.iter().map(Resource::id).collect();
        let has_pods = |resource: &&Resource| {
            is_workload(resource) || is_pod(resource) || (resource.group == "batch" && resource.kind == "Job")
        };
        let namespaces: BTreeSet<&str> =
            application.resources.iter().filter(has_pods).map(|resource| resource.namespace.as_str()).collect();
        let member =
            |resource: &Resource| Member { resource: resource.clone(), uid: resource.id(), parents: Vec::new() };
        let mut members: Vec<Member> =
            application.resources.iter().filter(|resource| !is_pod(resource)).map(member).collect();
        let mut pods = Vec::new();
        for namespace in namespaces {
            for pod in self.cluster.list(&path::core(namespace, "pods"), "").await? {
                let name = pod.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
                let (version, kind) = ("v1".to_owned(), "Pod".to_owned());
                let resource = Resource { group: String::new(), version, kind, namespace: namespace.to_owned(), name };
                let owner = owner(&pod, namespace);
                let mine = owner.as_ref().is_some_and(|owner| own.contains(owner)) || own.contains(&resource.id());
                if mine && !is_going(&pod) {
                    let uid = resource.id();
                    members.push(Member { resource: resource.clone(), uid, parents: owner.into_iter().collect() });
                    pods.push((resource, pod));
                }
            }
        }
        Ok((members, pods))
    }

    /// Through Argo CD.
    async fn through(
        &self,
        argocd: &ArgoCd,
        wanted: &Wanted,
        application: &Application,
        elsewhere: &[Application],
    ) -> Live {
        let read = async {
            let members = argocd.tree_members(&application.id).await?;
            let judged = members.iter().map(|member| &member.resource).filter(|resource| is_judged(resource));
            let count = judged.clone().count();
            let found = argocd.objects(&application.id, judged.take(MOST)).await?;
            Ok::<_, ClusterError>((members, found, count))
        };
        let (members, mut found, count) = match looked(read.await) {
            Looked::Saw(read) => read,
            Looked::NotPermitted(why) => return Live::nothing(Looked::NotPermitted(why)),
            Looked::Failed(why) => return Live::nothing(Looked::Failed(why)),
        };
        found.retain(|(_, value)| !is_going(value));
        // Rules are about what Git says, not about pods that follow from it.
        let managed: BTreeSet<String> = application.resources.iter().map(Resource::id).collect();
        let managed_objects: Vec<(Resource, Value)> =
            found.iter().filter(|(resource, _)| managed.contains(&resource.id())).cloned().collect();
        let mut unread: Vec<Unread> = too_many(count).into_iter().collect();
        let tree = assembled(&members, &found);
        let mut answers = Vec::new();
        for object in required(wanted) {
            let answer = argocd.required(application, &members, &object, elsewhere).await;
            answers.push((object, answer));
        }
        let required = told(answers, &mut unread);
        // What is not there Argo CD says itself: what it serves is what it knows.
        Live { tree: Looked::Saw(tree), objects: manifests(&managed_objects), required, absent: Vec::new(), unread }
    }
}

/// Not all of so many objects are read, and that is said.
fn too_many(count: usize) -> Option<Unread> {
    let what = format!("{} of {count} objects", count.saturating_sub(MOST));
    (count > MOST).then(|| Unread { what, why: format!("only {MOST} of one Application are read"), object: None })
}

/// Who owns a pod: `Kind/namespace/name`.
fn owner(pod: &Value, namespace: &str) -> Option<String> {
    let owners = pod.pointer("/metadata/ownerReferences").and_then(Value::as_array)?;
    let is_controller = |owner: &&Value| owner.get("controller").and_then(Value::as_bool) == Some(true);
    let owner = owners.iter().find(is_controller).or_else(|| owners.first())?;
    let text = |name: &str| owner.get(name).and_then(Value::as_str);
    let (kind, name) = (text("kind")?, text("name")?);
    let hash = pod.pointer("/metadata/labels/pod-template-hash").and_then(Value::as_str);
    match (kind, hash.and_then(|hash| name.strip_suffix(hash)?.strip_suffix('-'))) {
        ("ReplicaSet", Some(deployment)) => Some(format!("Deployment/{namespace}/{deployment}")),
        _ => Some(format!("{kind}/{namespace}/{name}")),
    }
}

/// Objects for rules. A pod is judged where Git has it, and Secrets are never read.
fn manifests(found: &[(Resource, Value)]) -> Vec<LiveManifest> {
    found.iter().map(|(resource, value)| LiveManifest { id: resource.id(), value: value.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_pods_of_a_deployment_are_found_through_the_name_of_its_replica_set() {
        let pod = |kind: &str, name: &str, labels: Value| {
            json!({"metadata": {"labels": labels, "ownerReferences": [
                {"kind": "Other", "name": "x"}, {"kind": kind, "name": name, "controller": true},
            ]}})
        };
        let hash = json!({"pod-template-hash": "7d9c"});
        assert_eq!(
            owner(&pod("ReplicaSet", "web-api-7d9c", hash.clone()), "shop").as_deref(),
            Some("Deployment/shop/web-api")
        );
        assert_eq!(owner(&pod("StatefulSet", "db", json!({})), "shop").as_deref(), Some("StatefulSet/shop/db"));
        assert_eq!(owner(&pod("ReplicaSet", "bare", json!({})), "shop").as_deref(), Some("ReplicaSet/shop/bare"));
        assert_eq!(owner(&pod("ReplicaSet", "x7d9c", hash), "shop").as_deref(), Some("ReplicaSet/shop/x7d9c"));
        assert_eq!(owner(&json!({"metadata": {}}), "shop"), None);
        let odd = json!({"metadata": {"ownerReferences": [{"kind": 7}]}});
        assert_eq!(owner(&odd, "shop"), None);
    }

    #[test]
    fn what_is_too_much_to_read_is_said_and_not_passed_over() {
        assert_eq!(too_many(MOST), None);
        let told = too_many(MOST + 3).unwrap();
        assert!(told.what == "3 of 1003 objects" && told.why.contains("1000") && told.object.is_none(), "{told:?}");
    }

    #[test]
    fn secrets_and_what_rules_do_not_know_are_not_read() {
        let resource = |group: &str, kind: &str| Resource {
            group: group.to_owned(),
            version: "v1".to_owned(),
            kind: kind.to_owned(),
            namespace: "shop".to_owned(),
            name: "x".to_owned(),
        };
        for (group, kind) in [("apps", "Deployment"), ("batch", "CronJob"), ("", "ConfigMap"), ("", "Pod")] {
            assert!(is_judged(&resource(group, kind)), "{kind}");
        }
        for (group, kind) in [("", "Secret"), ("", "Service"), ("example.com", "ConfigMap"), ("apps", "ReplicaSet")] {
            assert!(!is_judged(&resource(group, kind)), "{kind}");
        }
    }
}
