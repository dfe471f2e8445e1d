//! Where objects of a kind are in the Kubernetes API: asked of the API server, once for each group.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::Mutex;

use crate::cluster::{Cluster, ClusterError, escaped};

/// Kinds of one group and version: their plurals, and whether they live in namespaces.
type Served = BTreeMap<String, (String, bool)>;

/// Kinds that were asked for.
pub(super) struct Kinds<'c> {
    cluster: &'c Cluster,
    known: Mutex<BTreeMap<String, Arc<Served>>>,
}

impl<'c> Kinds<'c> {
    pub(super) fn new(cluster: &'c Cluster) -> Self {
        Self { cluster, known: Mutex::default() }
    }

    /// A live object; nothing where there is none, or no such kind.
    pub(super) async fn get(
        &self,
        api_version: &str,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, ClusterError> {
        let base = base(api_version);
        let served = self.served(&base).await?;
        let Some((plural, namespaced)) = served.get(kind) else { return Ok(None) };
        let place = if *namespaced { format!("/namespaces/{}", escaped(namespace)) } else { String::new() };
        self.cluster.get(&format!("{base}{place}/{}/{}", escaped(plural), escaped(name))).await
    }

    /// What a group serves; nothing where there is no such group.
    async fn served(&self, base: &str) -> Result<Arc<Served>, ClusterError> {
        // Held while it is asked for: whoever waits finds the answer.
        let mut known = self.known.lock().await;
        if let Some(served) = known.get(base) {
            return Ok(served.clone());
        }
        let list = self.cluster.get(base).await?;
        let resources = list.as_ref().and_then(|list| list.get("resources")).and_then(Value::as_array);
        let kind = |resource: &Value| {
            let text = |name: &str| resource.get(name).and_then(Value::as_str).map(str::to_owned);
            let namespaced = resource.get("namespaced").and_then(Value::as_bool).unwrap_or(false);
            // `deployments/status` is a part of one.
            let plural = text("name").filter(|name| !name.contains('/'))?;
            Some((text("kind")?, (plural, namespaced)))
        };
        let served: Arc<Served> = Arc::new(resources.into_iter().flatten().filter_map(kind).collect());
        // A group that is not there may come while somebody watches.
        if !served.is_empty() {
            known.insert(base.to_owned(), served.clone());
        }
        Ok(served)
    }
}

/// Where a group and version are served.
fn base(api_version: &str) -> String {
    match api_version.split_once('/') {
        Some((group, version)) => format!("/apis/{}/{}", escaped(group), escaped(version)),
        None => format!("/api/{}", escaped(api_version)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_its_own_place_and_no_query_gets_into_it() {
        assert_eq!(base("v1"), "/api/v1");
        assert_eq!(base("apps/v1"), "/apis/apps/v1");
        assert_eq!(base("apps/v1?watch=true"), "/apis/apps/v1%3Fwatch%3Dtrue");
    }
}
