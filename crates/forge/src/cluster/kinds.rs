//! Which kinds a cluster serves, and where: asked of the API server itself, group by group. A group that does not answer is an
//! error, or told as not known, and never an empty one (INV-10).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forge_core::teardown::inventory::{Gap, Group, Kind, Served, base, groups, kinds, merged};
use forge_core::teardown::{Member, Target};
use futures::StreamExt as _;
use serde_json::Value;
use tokio::sync::Mutex;

use super::{Cluster, ClusterError, WHOLE, escaped, path};

/// How many versions of groups are asked at once.
const AT_ONCE: usize = 8;
/// How often everything is asked for while a group is about to go.
const TRIES: usize = 4;
/// How long an API server may take to know of a group that has just gone.
const SETTLING: Duration = Duration::from_secs(2);

/// The kinds that a cluster serves, read when they are asked for.
pub(crate) struct Kinds {
    cluster: Cluster,
    /// By where their group and version are served: `/apis/apps/v1`.
    known: Mutex<BTreeMap<String, Arc<Vec<Kind>>>>,
    /// All that count.
    all: Mutex<Option<Arc<Vec<Kind>>>>,
}

impl Kinds {
    pub(crate) fn new(cluster: &Cluster) -> Self {
        Self { cluster: cluster.clone(), known: Mutex::default(), all: Mutex::default() }
    }

    /// The kinds of a version of a group; nothing where it is not served.
    async fn served(&self, group: &str, version: &str) -> Result<Option<Arc<Vec<Kind>>>, ClusterError> {
        let place = base(&escaped(group), &escaped(version));
        // Held while it is asked for: whoever waits finds the answer.
        let mut known = self.known.lock().await;
        if let Some(found) = known.get(&place) {
            return Ok(Some(found.clone()));
        }
        let Some(answer) = self.cluster.get(&place).await? else { return Ok(None) };
        let Some(found) = kinds(group, version, &answer) else {
            return Err(ClusterError::Unreadable(format!("`{place}` names no resources")));
        };
        let found = Arc::new(found);
        // What is not there may come while somebody watches.
        if !found.is_empty() {
            known.insert(place, found.clone());
        }
        Ok(Some(found))
    }

    async fn find(&self, group: &str, version: &str, kind: &str) -> Result<Option<Kind>, ClusterError> {
        let served = self.served(group, version).await?;
        Ok(served.and_then(|served| served.iter().find(|found| found.kind == kind).cloned()))
    }

    /// A live object; nothing where there is none, or no such kind.
    pub(crate) async fn get(
        &self,
        api_version: &str,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, ClusterError> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let Some(kind) = self.find(group, version, kind).await? else { return Ok(None) };
        self.cluster.get(&path::object(&kind.within(&escaped(namespace)), &escaped(name))).await
    }

    /// Where a member is, or was; nothing where its kind is not served any more, in any version, so that there can be none of it.
    pub(crate) async fn place(&self, member: &Member) -> Result<Option<String>, ClusterError> {
        let mut kind = self.find(&member.group, &member.version, &member.kind).await?;
        if kind.is_none() && !member.group.is_empty() {
            kind = self.of_another_version(&member.group, &member.kind).await?;
        }
        Ok(kind.map(|kind| kind.within(&member.namespace)))
    }

    /// A kind of a group in whichever version has it: a definition may serve another one by now, and its objects are still there.
    async fn of_another_version(&self, group: &str, kind: &str) -> Result<Option<Kind>, ClusterError> {
        let Some(answer) = self.cluster.get(&format!("/apis/{}", escaped(group))).await? else { return Ok(None) };
        let versions = versions_of(&answer);
        let versions = versions.ok_or_else(|| ClusterError::Unreadable(format!("`{group}` names no versions")))?;
        for version in versions {
            if let Some(found) = self.find(group, version, kind).await? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The kinds that a person means by a name, as far as it is known what is served, and the first group that is not known and
    /// could have one of them too: that some other group is down is no reason not to find a kind.
    pub(crate) async fn meant(&self, target: &Target) -> Result<(Vec<Kind>, Option<Gap>), ClusterError> {
        let of = |kind: &&Kind| {
            kind.kind == target.kind
                && target.group.as_ref().is_none_or(|group| *group == kind.group)
                && kind.namespaced != target.namespace.is_empty()
        };
        let hides = |gap: &Gap| target.group.as_ref().is_none_or(|group| gap.what.split('/').next() == Some(group));
        let (all, gaps) = self.listed().await?;
        Ok((all.iter().filter(of).cloned().collect(), gaps.into_iter().find(hides)))
    }

    /// All kinds that can be listed and deleted, each in the version that the server prefers.
    ///
    /// # Errors
    /// When it is not known what a group serves.
    pub(crate) async fn all(&self) -> Result<Arc<Vec<Kind>>, ClusterError> {
        let (all, gaps) = self.listed().await?;
        match gaps.first() {
            None => Ok(all),
            Some(gap) => Err(ClusterError::Unreachable(unknown(gap))),
        }
    }

    /// The same, and what is not known; asked for again while that is anything.
    async fn listed(&self) -> Result<(Arc<Vec<Kind>>, Vec<Gap>), ClusterError> {
        let mut all = self.all.lock().await;
        if let Some(known) = all.as_ref() {
            return Ok((known.clone(), Vec::new()));
        }
        let (found, gaps) = discovered(&self.cluster).await?;
        let found = Arc::new(found);
        if gaps.is_empty() {
            *all = Some(found.clone());
        }
        Ok((found, gaps))
    }

    /// The same without what was remembered: definitions go.
    pub(crate) async fn forget(&self) {
        self.known.lock().await.clear();
        *self.all.lock().await = None;
    }
}

/// How it is said that nobody knows what a group has.
pub(crate) fn unknown(gap: &Gap) -> String {
    format!("what `{}` serves is not known: {}", gap.what, gap.why)
}

/// The versions that a group serves, as it says itself; nothing where it says none.
fn versions_of(group: &Value) -> Option<Vec<&str>> {
    let versions = group.get("versions")?.as_array()?;
    Some(versions.iter().filter_map(|version| version.get("version")?.as_str()).collect())
}

/// What a cluster serves, and what of that is not known. A group that goes is listed for a moment longer than it is served.
///
/// # Errors
/// When it cannot be asked.
pub(crate) async fn discovered(cluster: &Cluster) -> Result<(Vec<Kind>, Vec<Gap>), ClusterError> {
    for _ in 1..TRIES {
        let (served, settled) = discovery(cluster).await?;
        if settled {
            return Ok(merged(served));
        }
        tokio::time::sleep(SETTLING).await;
    }
    let (served, _) = discovery(cluster).await?;
    Ok(merged(served))
}

/// What every version of every group says that it serves, and whether none of them is about to go.
async fn discovery(cluster: &Cluster) -> Result<(Vec<Served>, bool), ClusterError> {
    let list = cluster.answered("/apis", WHOLE).await?;
    let unreadable = || ClusterError::Unreadable("`/apis` lists no groups".to_owned());
    let groups = groups(&list).ok_or_else(unreadable)?;
    let mut versions: Vec<(String, String, String)> = Vec::new();
    for group in std::iter::once(Group::core()).chain(groups) {
        versions.extend(group.paths().map(|(version, path)| (group.name.clone(), version.to_owned(), path)));
    }
    let served = futures::stream::iter(versions).map(|(group, version, path)| async move {
        let answer = cluster.answered(&path, WHOLE).await;
        let settled = !answer.as_ref().is_err_and(ClusterError::is_missing);
        let kinds = match answer {
            Ok(list) => kinds(&group, &version, &list).ok_or_else(|| "it does not say what it serves".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        (Served { group, version, kinds }, settled)
    });
    // In their order: of two versions that have a kind, the first one counts.
    let served: Vec<(Served, bool)> = served.buffered(AT_ONCE).collect().await;
    let settled = served.iter().all(|(_, settled)| *settled);
    Ok((served.into_iter().map(|(served, _)| served).collect(), settled))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_says_its_versions_or_cannot_be_read() {
        let group = serde_json::json!({"versions": [{"version": "v1"}, {"version": "v1beta1"}, {}]});
        assert_eq!(versions_of(&group), Some(vec!["v1", "v1beta1"]));
        assert_eq!(versions_of(&serde_json::json!({"kind": "Status"})), None);
    }

    #[tokio::test]
    async fn a_kind_is_found_although_another_group_is_down_and_that_is_told_where_it_may_have_one_too() {
        use axum::response::IntoResponse as _;
        use serde_json::json;

        let kinds = |kind: &str| {
            let verbs = ["get", "list", "delete"];
            json!({"resources": [{"name": format!("{kind}s").to_lowercase(), "kind": kind, "namespaced": true, "verbs": verbs}]})
        };
        let router = axum::Router::new().fallback(move |uri: axum::http::Uri| async move {
            let group = |name: &str| json!({"name": name, "versions": [{"version": "v1"}]});
            match uri.path() {
                "/apis" => {
                    axum::Json(json!({"groups": [group("a.example.com"), group("down.example.com")]})).into_response()
                }
                "/api/v1" => axum::Json(kinds("ConfigMap")).into_response(),
                "/apis/a.example.com/v1" => axum::Json(kinds("Widget")).into_response(),
                _ => axum::http::StatusCode::SERVICE_UNAVAILABLE.into_response(),
            }
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let _ = rustls::crypto::ring::default_provider().install_default();
        let known = Kinds::new(&Cluster::at(&address).unwrap());
        let hidden = Some("down.example.com/v1");
        for (target, groups, gap) in [
            ("Widget.a.example.com/shop/main", vec!["a.example.com"], None),
            ("Widget/shop/main", vec!["a.example.com"], hidden),
            ("ConfigMap/shop/main", vec![""], hidden),
            ("Gadget.down.example.com/shop/main", vec![], hidden),
            ("Gadget.a.example.com/shop/main", vec![], None),
        ] {
            let (found, unknown) = known.meant(&target.parse().unwrap()).await.unwrap();
            assert_eq!(found.iter().map(|kind| kind.group.as_str()).collect::<Vec<_>>(), groups, "{target}");
            assert_eq!(unknown.as_ref().map(|gap| gap.what.as_str()), gap, "{target}");
        }
        assert!(
            matches!(known.all().await, Err(ClusterError::Unreachable(why)) if why.contains("down.example.com/v1"))
        );
    }

    #[test]
    fn a_group_has_its_own_place_and_no_query_gets_into_it() {
        assert_eq!(base(&escaped(""), &escaped("v1")), "/api/v1");
        assert_eq!(base(&escaped("apps"), &escaped("v1?watch=true")), "/apis/apps/v1%3Fwatch%3Dtrue");
    }
}
