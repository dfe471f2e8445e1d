//! Which kinds a cluster serves, and where: asked of the API server itself, group by group. A group that does not answer is an
//! error and never an empty one (INV-10).

use std::collections::BTreeMap;
use std::sync::Arc;

use forge_core::teardown::{Member, Target};
use serde_json::Value;
use tokio::sync::Mutex;

use super::{Cluster, ClusterError, path};

/// A kind of objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) plural: String,
    pub(crate) namespaced: bool,
    /// It can be listed.
    pub(crate) listed: bool,
}

impl Kind {
    /// The collection in a namespace, or of the whole cluster where that is empty.
    pub(crate) fn collection(&self, namespace: &str) -> String {
        let Self { group, version, plural, .. } = self;
        match (group.is_empty(), self.namespaced && !namespace.is_empty()) {
            (true, true) => path::core(namespace, plural),
            (true, false) => format!("/api/{version}/{plural}"),
            (false, true) => path::named(group, version, namespace, plural),
            (false, false) => path::global(group, version, plural),
        }
    }
}

/// The kinds that a cluster serves, read when they are asked for.
pub(crate) struct Kinds {
    cluster: Cluster,
    /// By group and version, as the API has them: `apps/v1`.
    known: Mutex<BTreeMap<String, Arc<Vec<Kind>>>>,
}

impl Kinds {
    pub(crate) fn new(cluster: &Cluster) -> Self {
        Self { cluster: cluster.clone(), known: Mutex::new(BTreeMap::new()) }
    }

    /// The kinds of a version of a group; nothing where it is not served.
    async fn served(&self, group: &str, version: &str) -> Result<Option<Arc<Vec<Kind>>>, ClusterError> {
        let place = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        if let Some(known) = self.known.lock().await.get(&place) {
            return Ok(Some(known.clone()));
        }
        let Some(answer) = self.cluster.get(&place).await? else { return Ok(None) };
        let Some(resources) = answer.get("resources").and_then(Value::as_array) else {
            return Err(ClusterError::Unreadable(format!("`{place}` names no resources")));
        };
        let kinds: Arc<Vec<Kind>> =
            Arc::new(resources.iter().filter_map(|found| kind(found, group, version)).collect());
        self.known.lock().await.insert(place, kinds.clone());
        Ok(Some(kinds))
    }

    /// Where a member is, or was; nothing where its kind is not served any more, so that there can be none of it.
    pub(crate) async fn place(&self, member: &Member) -> Result<Option<String>, ClusterError> {
        let Some(kinds) = self.served(&member.group, &member.version).await? else { return Ok(None) };
        Ok(kinds.iter().find(|kind| kind.kind == member.kind).map(|kind| kind.collection(&member.namespace)))
    }

    /// The kinds that a person means by a name.
    pub(crate) async fn meant(&self, target: &Target) -> Result<Vec<Kind>, ClusterError> {
        let of = |kind: &Kind| {
            kind.kind == target.kind
                && target.group.as_ref().is_none_or(|group| *group == kind.group)
                && kind.namespaced != target.namespace.is_empty()
        };
        Ok(self.all().await?.into_iter().filter(of).collect())
    }

    /// All kinds that are served, each in the version that the server prefers.
    pub(crate) async fn all(&self) -> Result<Vec<Kind>, ClusterError> {
        let groups = self.cluster.get("/apis").await?;
        let Some(groups) = groups.as_ref().and_then(|list| list.get("groups")).and_then(Value::as_array) else {
            return Err(ClusterError::Unreadable("`/apis` names no groups".to_owned()));
        };
        let mut versions = vec![(String::new(), "v1".to_owned())];
        for group in groups {
            let text = |pointer: &str| group.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
            versions.push((text("/name"), text("/preferredVersion/version")));
        }
        let mut all = Vec::new();
        for (group, version) in versions {
            // Gone since it was named: there can be none of it.
            if let Some(kinds) = self.served(&group, &version).await? {
                all.extend(kinds.iter().cloned());
            }
        }
        Ok(all)
    }

    /// The same without what was remembered: definitions go.
    pub(crate) async fn forget(&self) {
        self.known.lock().await.clear();
    }
}

/// Reads one entry of a list of resources; nothing for a part of an object, such as its status.
fn kind(found: &Value, group: &str, version: &str) -> Option<Kind> {
    let text = |key: &str| found.get(key).and_then(Value::as_str).unwrap_or_default();
    let plural = text("name");
    if plural.is_empty() || plural.contains('/') || text("kind").is_empty() {
        return None;
    }
    let verbs = found.get("verbs").and_then(Value::as_array);
    let listed = verbs.is_some_and(|verbs| verbs.iter().any(|verb| verb.as_str() == Some("list")));
    Some(Kind {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: text("kind").to_owned(),
        plural: plural.to_owned(),
        namespaced: found.get("namespaced").and_then(Value::as_bool).unwrap_or(false),
        listed,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_kind_is_found_where_the_api_has_it_and_parts_of_objects_are_none() {
        let found = json!({"name": "deployments", "kind": "Deployment", "namespaced": true, "verbs": ["get", "list"]});
        let deployments = kind(&found, "apps", "v1").unwrap();
        assert!(deployments.listed);
        assert_eq!(deployments.collection("shop"), "/apis/apps/v1/namespaces/shop/deployments");
        assert_eq!(deployments.collection(""), "/apis/apps/v1/deployments");
        let nodes = kind(&json!({"name": "nodes", "kind": "Node", "verbs": []}), "", "v1").unwrap();
        assert_eq!((nodes.collection("shop"), nodes.listed), ("/api/v1/nodes".to_owned(), false));
        let pods = kind(&json!({"name": "pods", "kind": "Pod", "namespaced": true}), "", "v1").unwrap();
        assert_eq!(pods.collection("shop"), "/api/v1/namespaces/shop/pods");
        for none in [json!({"name": "pods/log", "kind": "Pod"}), json!({"name": "pods"}), json!({})] {
            assert_eq!(kind(&none, "", "v1"), None);
        }
    }
}
