//! What Argo CD rendered under another policy of signatures is rendered again. Argo CD keeps what the plugin wrote until Git
//! changes, whatever the mounted policy says meanwhile; so the policy that everything was rendered under is written down, and
//! where another one counts now, every Application that the plugin makes is refreshed hard.
//!
//! First, no pod may be left that still knows the one before. Kubelets bring a changed ConfigMap to a pod that runs when they get
//! to it, and nobody can see when they did; so pods that are older than the change are made anew, where Argo CD is ours, and
//! otherwise their owner is asked to. What was done is written down last.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use forge_core::code::Code;
use forge_core::failure::Failure;
use forge_core::install::{
    CMP, POLICY_MAP, POLICY_SEEN, has_sidecar, is_served, outdated_pods, policy_is_seen, policy_seen, renewal,
    serves_elsewhere, uses_plugin,
};
use forge_core::name::{ApplicationId, clip};
use forge_core::release::SignaturePolicy;
use forge_core::render::{Places, is_ours};
use futures::StreamExt as _;
use serde_json::Value;

use super::permitted;
use crate::account;
use crate::argocd::ArgoCd;
use crate::cluster::{Cluster, ClusterError, path};
use crate::failpoint;

/// The key of the ConfigMap that the plugin reads.
const KEY: &str = "policy.yaml";
/// How long pods may take to be made anew.
const PATIENCE: Duration = Duration::from_secs(300);
/// Between two looks.
const PAUSE: Duration = Duration::from_secs(1);
/// How many Applications are rendered at once.
const AT_ONCE: usize = 8;

/// The policy, and what is written down about it; nothing for whoever may not look.
async fn looked(cluster: &Cluster, places: &Places) -> Result<Option<(Option<Value>, Option<Value>)>, ClusterError> {
    let Places { workflows, argocd, .. } = places;
    let policy = permitted(cluster.get(&path::object(&path::config_maps(argocd), POLICY_MAP)).await)?;
    let seen = permitted(cluster.get(&path::object(&path::config_maps(workflows), POLICY_SEEN)).await)?;
    Ok(policy.zip(seen))
}

/// How the policy stands.
#[derive(Debug)]
pub(crate) enum Standing {
    /// Everything was rendered under it, as far as may be known.
    Well,
    /// Something may have been rendered under another one.
    Due,
    /// It cannot be used: the plugin renders nothing by it.
    Unusable(Failure),
}

/// Looks how the policy stands that is there.
///
/// # Errors
/// When the cluster does not answer.
pub(crate) async fn look(cluster: &Cluster, places: &Places) -> Result<Standing, ClusterError> {
    let Some((policy, seen)) = looked(cluster, places).await? else { return Ok(Standing::Well) };
    let policy = policy.as_ref();
    if let Some(Err(failure)) = policy.map(|policy| usable(policy, &places.argocd)) {
        return Ok(Standing::Unusable(failure));
    }
    Ok(if policy_is_seen(policy, seen.as_ref()) { Standing::Well } else { Standing::Due })
}

/// Refuses a policy that cannot be used, for whoever is about to write: bootstrap could not come to its end with it. A cluster that
/// does not answer is phase 0's to tell of.
///
/// # Errors
/// Exactly then.
pub(crate) async fn refuse(cluster: &Cluster, places: &Places) -> Result<(), Failure> {
    match look(cluster, places).await {
        Ok(Standing::Unusable(failure)) => Err(failure),
        _ => Ok(()),
    }
}

/// That the ConfigMap holds a policy, where the plugin looks for it: nobody may be told that releases are judged by one that is not
/// read, or that cannot be.
fn usable(policy: &Value, argocd: &str) -> Result<(), Failure> {
    let bad = |failure: Failure| Failure {
        message: format!("ConfigMap {POLICY_MAP} in `{argocd}`: {}", failure.message),
        ..failure
    };
    let held = |field: &str| policy.get(field)?.as_object();
    let text = |field: &str| held(field)?.get(KEY)?.as_str();
    let bytes = match (text("data"), text("binaryData")) {
        (Some(text), _) => text.as_bytes().to_vec(),
        (None, Some(encoded)) => STANDARD.decode(encoded).unwrap_or_default(),
        (None, None) => {
            let keys = ["data", "binaryData"].into_iter().filter_map(held).flat_map(serde_json::Map::keys);
            let keys: Vec<String> = keys.take(3).map(|key| format!("`{}`", clip(key))).collect();
            let instead = if keys.is_empty() { String::new() } else { format!(", but {}", keys.join(", ")) };
            let failure = Failure::new(Code::BadSignaturePolicy, format!("it has no `{KEY}`{instead}"));
            return Err(bad(failure.hint(format!(
                "make it with `--from-file={KEY}=FILE`, or delete it if no signature is to be asked for"
            ))));
        }
    };
    SignaturePolicy::read(KEY, &bytes).map(|_| ()).map_err(bad)
}

/// Lets everything be rendered again where another policy counts; gives what is left to be done by somebody.
///
/// # Errors
/// When the cluster does not answer, the policy cannot be used, or what is written down is somebody else's.
pub(super) async fn settle(
    cluster: &Cluster,
    places: &Places,
    handed: bool,
    done: &mut impl FnMut(&str),
) -> Result<Option<String>, Failure> {
    let Some((policy, seen)) = looked(cluster, places).await? else { return Ok(None) };
    let (policy, argocd) = (policy.as_ref(), places.argocd.as_str());
    // Before all: an earlier Forge wrote down what it had not read.
    if let Some(policy) = policy {
        usable(policy, argocd)?;
    }
    if policy_is_seen(policy, seen.as_ref()) {
        return Ok(None);
    }
    let object = policy_seen(&places.workflows, policy);
    if seen.is_some_and(|seen| !is_ours(&seen)) {
        return Err(account::foreign_object(&format!("ConfigMap {POLICY_SEEN}"), &object));
    }
    let Some(outdated) = outdated(cluster, argocd, policy).await? else {
        let what =
            format!("pods in `{argocd}` may not be listed, so it is not known by which policy releases are verified");
        return Ok(Some(format!("{what}: run this as somebody who may")));
    };
    if let Some(first) = outdated.first() {
        let older = format!("pod {first} of the repo-server in `{argocd}` is older than ConfigMap {POLICY_MAP}");
        if handed {
            let advice = "let its owner restart it (`kubectl rollout restart`), then run this again";
            return Ok(Some(format!("{older}, so it may verify by the policy before: {advice}")));
        }
        if !renewed(cluster, argocd, policy, done).await? {
            let seconds = PATIENCE.as_secs();
            return Ok(Some(format!("{older}, and was not replaced within {seconds} s; when it is, run this again")));
        }
    }
    let Some(Served { all, hidden }) = served(cluster, argocd).await? else {
        let what = format!("Applications in `{argocd}` may not be listed, so none was rendered by the new policy");
        return Ok(Some(format!("{what}: run this as somebody who may")));
    };
    let by = match policy {
        Some(_) => format!("the policy in ConfigMap {POLICY_MAP}"),
        None => format!("no policy, now that ConfigMap {POLICY_MAP} is gone"),
    };
    let ids: Vec<ApplicationId> = all.iter().filter(|found| uses_plugin(found)).filter_map(id).collect();
    if let Some(left) = rendered(cluster, places, &ids).await {
        return Ok(Some(format!("not everything was rendered by {by}: {left}; run this again")));
    }
    if let Some(hidden) = hidden {
        let what = format!("Applications in {hidden}, which Argo CD serves too, may not be listed");
        let those = format!("those that {CMP} makes may be as the policy before let them");
        return Ok(Some(format!("{what}, so {those}: run this as somebody who may")));
    }
    failpoint::write(&format!("ConfigMap {POLICY_SEEN}"));
    cluster.apply(&path::object(&path::config_maps(&places.workflows), POLICY_SEEN), &object).await?;
    done(&format!("{} Applications rendered by {by}", ids.len()));
    Ok(None)
}

fn id(application: &Value) -> Option<ApplicationId> {
    let text = |pointer: &str| application.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    format!("{}/{}", text("/metadata/namespace"), text("/metadata/name")).parse().ok()
}

/// The Applications that Argo CD serves.
struct Served {
    all: Vec<Value>,
    /// Where else it serves some, if they may not be listed there.
    hidden: Option<String>,
}

/// Lists them, as far as that may be done; nothing for whoever may not even list those beside Argo CD.
async fn served(cluster: &Cluster, argocd: &str) -> Result<Option<Served>, ClusterError> {
    let parameters = path::object(&path::config_maps(argocd), "argocd-cmd-params-cm");
    let parameters = permitted(cluster.get(&parameters).await)?.flatten();
    let elsewhere = serves_elsewhere(parameters.as_ref());
    if let Some(patterns) = elsewhere {
        let everywhere = path::global("argoproj.io", "v1alpha1", "applications");
        if let Some(mut all) = permitted(cluster.list(&everywhere, "").await)? {
            let namespace = |found: &Value| id(found).map(|id| id.namespace.to_string()).unwrap_or_default();
            all.retain(|found| {
                let namespace = namespace(found);
                namespace == argocd || is_served(patterns, &namespace)
            });
            return Ok(Some(Served { all, hidden: None }));
        }
    }
    let own = permitted(cluster.list(&path::argo(argocd, "applications"), "").await)?;
    Ok(own.map(|all| Served { all, hidden: elsewhere.map(|patterns| format!("`{}`", clip(patterns))) }))
}

/// Pods that may know another policy; nothing for whoever may not look. All pods of the namespace are listed: by which labels
/// those of an Argo CD of somebody else are known is not known.
async fn outdated(
    cluster: &Cluster,
    argocd: &str,
    policy: Option<&Value>,
) -> Result<Option<Vec<String>>, ClusterError> {
    let pods = permitted(cluster.list(&path::core(argocd, "pods"), "").await)?;
    Ok(pods.map(|pods| outdated_pods(policy, &pods)))
}

/// Has the pods of the repo-server made anew; false where some of them did not go in time.
async fn renewed(
    cluster: &Cluster,
    argocd: &str,
    policy: Option<&Value>,
    done: &mut impl FnMut(&str),
) -> Result<bool, Failure> {
    let deployments = path::named("apps", "v1", argocd, "deployments");
    for deployment in cluster.list(&deployments, "").await?.iter().filter(|found| has_sidecar(found)) {
        let name = deployment.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        failpoint::write(&format!("Deployment {name} is made anew"));
        cluster.merge(&path::object(&deployments, name), &renewal(policy)).await?;
        done(&format!("Deployment {name}: its pods are made anew, so that {CMP} knows the policy"));
    }
    let deadline = Instant::now() + PATIENCE;
    while !outdated(cluster, argocd, policy).await?.is_some_and(|left| left.is_empty()) {
        if Instant::now() >= deadline {
            return Ok(false);
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(true)
}

/// Has Applications rendered anew; gives what went wrong first. What the plugin refuses is Argo CD's to show, and no reason to try
/// again; one that is gone neither.
async fn rendered(cluster: &Cluster, places: &Places, ids: &[ApplicationId]) -> Option<String> {
    if ids.is_empty() {
        return None;
    }
    let argocd = match ArgoCd::through(cluster, &places.workflows).await {
        Ok(argocd) => argocd,
        Err(failure) => return Some(failure.message),
    };
    let argocd = &argocd;
    let one = move |id: &ApplicationId| {
        let id = id.clone();
        async move {
            match argocd.refresh_hard(&id).await {
                Err(error) if !error.is_missing() => Some(format!("Application {id}: {error}")),
                _ => None,
            }
        }
    };
    let mut answers = futures::stream::iter(ids.iter().map(one)).buffer_unordered(AT_ONCE);
    let mut left = None;
    while let Some(answer) = answers.next().await {
        left = left.or(answer);
    }
    left
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::{Arc, Mutex};

    use forge_testkit::http::{Request, reply};
    use serde_json::json;

    use super::*;

    const PROXY: &str = "/api/v1/namespaces/argocd/services/http:argocd-server:80/proxy/api/v1/applications/";
    const SEEN: &str = "/api/v1/namespaces/argo/configmaps/forge-signatures-seen";
    const CHANGED: &str = "2026-01-02T00:00:00Z";
    const POLICY: &str =
        "apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: SignaturePolicy\nspec: {signatures: optional}\n";

    /// A cluster with an Argo CD behind it.
    struct Fake {
        policy: Option<Value>,
        seen: Option<Value>,
        /// When the pod of the repo-server was made.
        made: &'static str,
        /// Argo CD renders.
        renders: bool,
        /// Where else it serves Applications, and whether they may be listed there.
        elsewhere: Option<(&'static str, bool)>,
        /// What is asked of it that is no looking, in order.
        log: Vec<String>,
    }

    impl Fake {
        fn new(policy: Option<&str>) -> Self {
            let policy = policy.map(|version| {
                let fields = json!([{"time": CHANGED}]);
                let metadata = json!({"uid": "u", "resourceVersion": version, "managedFields": fields});
                json!({"metadata": metadata, "data": {KEY: POLICY}})
            });
            let (made, renders) = ("2026-01-01T00:00:00Z", true);
            Self { policy, seen: None, made, renders, elsewhere: None, log: Vec::new() }
        }

        fn answer(&mut self, request: &Request) -> (u16, Value) {
            let missing = || (404, json!({"kind": "Status", "code": 404, "message": "none", "reason": "NotFound"}));
            let found = |object: Option<&Value>| object.map_or_else(missing, |object| (200, object.clone()));
            let list = |items: Value| (200, json!({"metadata": {}, "items": items}));
            let (path, query) = request.uri.split_once('?').unwrap_or((&request.uri, ""));
            let sidecar = json!([{"name": "repo-server"}, {"name": CMP}]);
            let application_in = |namespace: &str, name: &str, plugin: &str| {
                json!({
                    "metadata": {"namespace": namespace, "name": name},
                    "spec": {"source": {"plugin": {"name": plugin}}},
                })
            };
            let application = |name: &str, plugin: &str| application_in("argocd", name, plugin);
            match (request.method.as_str(), path) {
                ("GET", "/api/v1/namespaces/argocd/configmaps/argocd-cmd-params-cm") => {
                    let data = self.elsewhere.map(|(patterns, _)| json!({"application.namespaces": patterns}));
                    (200, json!({"data": data}))
                }
                ("GET", "/apis/argoproj.io/v1alpha1/applications") => match self.elsewhere {
                    Some((_, true)) => list(json!([
                        application("api", CMP),
                        application_in("team-a", "far", CMP),
                        application_in("team-a", "plain", "other"),
                        application_in("argocd-of-others", "not-ours", CMP),
                    ])),
                    _ => (403, json!({"kind": "Status", "code": 403, "message": "no", "reason": "Forbidden"})),
                },
                ("GET", "/api/v1/namespaces/argocd/configmaps/forge-signatures") => found(self.policy.as_ref()),
                ("GET", SEEN) => found(self.seen.as_ref()),
                ("PATCH", SEEN) => {
                    let seen: Value = serde_json::from_slice(&request.body).unwrap();
                    self.log.push(format!("seen {}", seen["data"]["version"].as_str().unwrap()));
                    self.seen = Some(seen.clone());
                    (200, seen)
                }
                ("GET", "/api/v1/namespaces/argocd/pods") => list(json!([
                    {"metadata": {"name": "repo", "creationTimestamp": self.made}, "spec": {"containers": sidecar}},
                ])),
                ("GET", "/apis/apps/v1/namespaces/argocd/deployments") => list(json!([
                    {"metadata": {"name": "repo"}, "spec": {"template": {"spec": {"containers": sidecar}}}},
                    {"metadata": {"name": "server"}},
                ])),
                ("PATCH", path) if path.ends_with("/deployments/repo") => {
                    self.log.push("restart".to_owned());
                    self.made = "2026-01-03T00:00:00Z";
                    (200, json!({}))
                }
                ("GET", "/apis/argoproj.io/v1alpha1/namespaces/argocd/applications") => {
                    list(json!([application("api", CMP), application("own", "other"), application("web", CMP)]))
                }
                ("GET", "/api/v1/namespaces/argo/secrets/forge-argocd") => {
                    let encoded = |text: &str| STANDARD.encode(text);
                    let server = encoded("http://argocd-server.argocd.svc");
                    (200, json!({"data": {"server": server, "token": encoded("t")}}))
                }
                ("GET", path) if path.starts_with(PROXY) && query.contains("refresh=hard") => {
                    let name = path.rsplit('/').next().unwrap();
                    let namespace = query.split('&').find_map(|part| part.strip_prefix("appNamespace=")).unwrap();
                    let place = if namespace == "argocd" { String::new() } else { format!("{namespace}/") };
                    self.log.push(format!("render {place}{name}"));
                    if self.renders {
                        (200, application(name, CMP))
                    } else {
                        (400, json!({"code": 3, "message": "no"}))
                    }
                }
                _ => missing(),
            }
        }
    }

    /// Serves it.
    async fn served(fake: Fake) -> (Cluster, Arc<Mutex<Fake>>) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let fake = Arc::new(Mutex::new(fake));
        let shared = Arc::clone(&fake);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || {
                    let Some(request) = Request::read(&stream) else { return };
                    let (code, answer) = shared.lock().unwrap().answer(&request);
                    reply(&stream, code, &[], &answer.to_string());
                });
            }
        });
        (Cluster::at(&format!("http://{address}")).unwrap(), fake)
    }

    /// Settles on a cluster like this; gives what is left to do, and what was asked of the cluster.
    async fn settled(fake: Fake, handed: bool) -> (Option<String>, Fake) {
        let ((cluster, fake), places) = (served(fake).await, Places::default());
        let note = settle(&cluster, &places, handed, &mut |_: &str| {}).await.unwrap();
        // What is left to do is found again, and nothing else is.
        assert_eq!(matches!(look(&cluster, &places).await.unwrap(), Standing::Due), note.is_some());
        let left = std::mem::replace(&mut *fake.lock().unwrap(), Fake::new(None));
        (note, left)
    }

    #[tokio::test]
    async fn where_there_is_no_policy_and_never_was_nothing_is_asked_for() {
        let (note, fake) = settled(Fake::new(None), false).await;
        assert_eq!((note, fake.log, fake.seen), (None, Vec::new(), None));
    }

    #[tokio::test]
    async fn another_policy_has_pods_made_anew_and_everything_rendered_once_and_is_written_down_last() {
        let (note, mut fake) = settled(Fake::new(Some("7")), false).await;
        assert_eq!(note, None);
        fake.log[1..3].sort();
        assert_eq!(fake.log, ["restart", "render api", "render web", "seen u.7"]);
        // Again: nothing.
        fake.log.clear();
        let (note, fake) = settled(fake, false).await;
        assert_eq!((note, fake.log.len()), (None, 0));
        // Who was killed before it was written down renders again, with pods that know the policy already.
        let (_, mut fake) = settled(Fake { seen: None, ..fake }, false).await;
        fake.log[..2].sort();
        assert_eq!(fake.log, ["render api", "render web", "seen u.7"]);
        // One that is gone takes no pod along.
        fake.log.clear();
        let (note, fake) = settled(Fake { policy: None, made: "2026-01-01T00:00:00Z", ..fake }, false).await;
        assert_eq!((note, fake.log.last().map(String::as_str)), (None, Some("seen none")));
        assert!(!fake.log.contains(&"restart".to_owned()), "{:?}", fake.log);
    }

    #[tokio::test]
    async fn pods_of_an_argo_cd_of_somebody_else_are_his_to_restart_and_then_everything_is_rendered() {
        let (note, fake) = settled(Fake::new(Some("7")), true).await;
        let note = note.unwrap();
        assert!(note.contains("pod repo of the repo-server") && note.contains("rollout restart"), "{note}");
        assert_eq!((fake.log.len(), &fake.seen), (0, &None));
        let (note, fake) = settled(Fake { made: "2026-01-02T00:00:01Z", ..fake }, true).await;
        assert_eq!((note, fake.log.len()), (None, 3));
        assert!(!fake.log.contains(&"restart".to_owned()), "{:?}", fake.log);
    }

    #[tokio::test]
    async fn what_could_not_be_rendered_is_told_and_tried_again_the_next_time() {
        let young = Fake { made: "2026-01-03T00:00:00Z", renders: false, ..Fake::new(Some("7")) };
        let (note, fake) = settled(young, false).await;
        assert!(note.as_ref().is_some_and(|note| note.contains("run this again")), "{note:?}");
        assert_eq!((fake.log.len(), fake.seen), (2, None));
    }

    #[tokio::test]
    async fn applications_in_other_namespaces_are_rendered_too_or_it_is_told_that_they_were_not() {
        let young = |elsewhere| Fake { made: "2026-01-03T00:00:00Z", elsewhere, ..Fake::new(Some("7")) };
        let (note, mut fake) = settled(young(Some(("team-*, shop", true))), false).await;
        assert_eq!(note, None);
        fake.log[..2].sort();
        assert_eq!(fake.log, ["render api", "render team-a/far", "seen u.7"]);
        // Who may not list them renders what he sees, and it is not written down that all is well.
        let (note, fake) = settled(young(Some(("team-*, shop", false))), false).await;
        let note = note.unwrap();
        assert!(note.contains("Applications in `team-*, shop`") && note.contains("may not be listed"), "{note}");
        assert_eq!((fake.log.len(), fake.seen), (2, None));
        // Where Argo CD serves its own namespace alone, nobody needs to see more.
        for elsewhere in [None, Some((" ", false))] {
            let (note, fake) = settled(young(elsewhere), false).await;
            assert_eq!((note, fake.log.len()), (None, 3));
        }
    }

    #[tokio::test]
    async fn what_somebody_else_wrote_down_is_left_alone() {
        let foreign = json!({"metadata": {"labels": {}}, "data": {"version": "u.7"}});
        let (cluster, fake) = served(Fake { seen: Some(foreign), ..Fake::new(Some("7")) }).await;
        let failure = settle(&cluster, &Places::default(), false, &mut |_: &str| {}).await.unwrap_err();
        assert_eq!(failure.code, Code::ForeignObject);
        assert_eq!(fake.lock().unwrap().log.len(), 0);
    }

    #[tokio::test]
    async fn a_policy_that_nobody_reads_is_told_and_nothing_is_rendered_by_it() {
        let broken = POLICY.replace("optional", "sometimes");
        let cases = [
            (json!({"data": {"signatures.yaml": POLICY}}), "has no `policy.yaml`, but `signatures.yaml`"),
            (json!({"binaryData": {"b": ""}}), "has no `policy.yaml`, but `b`"),
            (json!({}), "has no `policy.yaml`"),
            (json!({"data": {KEY: broken}}), "`policy.yaml` is not a signature policy"),
            (json!({"binaryData": {KEY: "/w=="}}), "`policy.yaml` is not a signature policy"),
        ];
        for (held, words) in cases {
            let mut fake = Fake::new(Some("7"));
            let metadata = fake.policy.as_ref().unwrap()["metadata"].clone();
            let mut policy = held;
            policy["metadata"] = metadata;
            // Also where an earlier Forge wrote down that all is well.
            fake.seen = Some(policy_seen("argo", Some(&policy)));
            fake.policy = Some(policy);
            let ((cluster, fake), places) = (served(fake).await, Places::default());
            let settled = settle(&cluster, &places, false, &mut |_: &str| {}).await.unwrap_err();
            // Whoever checks is told of it among all else, and whoever writes is refused before.
            let Standing::Unusable(seen) = look(&cluster, &places).await.unwrap() else { panic!("{words}") };
            let refused = refuse(&cluster, &places).await.unwrap_err();
            for failure in [settled, seen, refused] {
                assert_eq!(failure.code, Code::BadSignaturePolicy, "{}", failure.message);
                let told = failure.message.contains(words) && failure.message.contains("ConfigMap forge-signatures");
                assert!(told, "{words}: {}", failure.message);
            }
            assert_eq!(fake.lock().unwrap().log.len(), 0);
        }
        // As bytes it is as good as a text.
        let mut fake = Fake { made: "2026-01-03T00:00:00Z", ..Fake::new(Some("7")) };
        let metadata = fake.policy.as_ref().unwrap()["metadata"].clone();
        fake.policy = Some(json!({"metadata": metadata, "binaryData": {KEY: STANDARD.encode(POLICY)}}));
        let (note, fake) = settled(fake, false).await;
        assert_eq!((note, fake.log.last().map(String::as_str)), (None, Some("seen u.7")));
    }
}
