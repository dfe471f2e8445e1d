//! `forge serve plugin`: the executor plugin of Argo Workflows, one sidecar in the workflow's single agent pod.
//!
//! The agent posts a template and waits. A request is held until its node ends, but never longer than the agent waits;
//! then the agent is told to ask again. Every node has one task here, however often it is asked for: after a restart of
//! agent, plugin or controller the same question finds the same answer. It never reports Running: such a node would
//! escape every deadline.
//!
//! A large run has bands (docs/adr/0025): a request may also ask whether one may begin. It is held in the same way. Answers
//! about nodes are gathered there.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use axum::{Json, Router};
use forge_core::code::Code;
use forge_core::failure::Failure;
use forge_core::gate::{Decision, RunId};
use forge_core::name::{NodeId, clip};
use forge_core::render::PLUGIN;
use serde_json::{Value, json};
use tokio::sync::{OnceCell, watch};

use super::Open;
use crate::argocd::Feed;
use crate::cluster::Cluster;
use crate::metrics::Metrics;

/// How long a request is held. The agent gives up after 30 s.
const HOLD: Duration = Duration::from_secs(20);
/// When the agent asks again after that.
const REQUEUE: &str = "50ms";
/// Longest request that is read.
const LONGEST: usize = 1 << 20;

/// Where and for whom.
pub(crate) struct Listen {
    /// The address.
    pub(crate) address: SocketAddr,
    /// The file with the agent's token; without one every request is refused.
    pub(crate) agent_token: PathBuf,
}

/// What became of a node; nothing while it is on its way.
type Answer = watch::Receiver<Option<Decision>>;

struct Plugin {
    cluster: Cluster,
    namespace: String,
    feed: Arc<Feed>,
    metrics: Arc<Metrics>,
    token: String,
    runs: Mutex<BTreeMap<RunId, Arc<OnceCell<Arc<Open>>>>>,
    nodes: Mutex<BTreeMap<(RunId, NodeId), Answer>>,
    /// Runs whose nodes of before this process were taken up.
    watched: Mutex<BTreeSet<RunId>>,
    beat: Mutex<Instant>,
}

/// Serves until it is told to stop.
pub(crate) async fn plugin(
    cluster: Cluster,
    namespace: String,
    address: &str,
    token_file: &Path,
    listen: &Listen,
) -> Result<(), Failure> {
    let token = std::fs::read_to_string(&listen.agent_token).map_err(|error| {
        Failure::new(Code::NotBootstrapped, format!("failed to read `{}`: {error}", listen.agent_token.display()))
            .hint("the agent pod of Argo Workflows mounts it; `forge bootstrap` sets the plugin up")
    })?;
    let plugin = Arc::new(Plugin {
        cluster,
        namespace,
        feed: super::argocd(address, token_file)?,
        metrics: Arc::default(),
        token: token.trim().to_owned(),
        runs: Mutex::default(),
        nodes: Mutex::default(),
        watched: Mutex::default(),
        beat: Mutex::new(Instant::now()),
    });
    let beating = plugin.clone();
    tokio::spawn(async move {
        loop {
            *lock(&beating.beat) = Instant::now();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    let router = router(plugin);
    let failed = |error: std::io::Error| {
        Failure::new(Code::BadArgument, format!("failed to listen on `{}`: {error}", listen.address))
    };
    let listener = tokio::net::TcpListener::bind(listen.address).await.map_err(failed)?;
    axum::serve(listener, router).with_graceful_shutdown(told_to_stop()).await.map_err(failed)
}

fn router(plugin: Arc<Plugin>) -> Router {
    Router::new()
        .route("/api/v1/template.execute", post(execute))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(|State(plugin): State<Arc<Plugin>>| async move { plugin.metrics.text() }))
        .layer(axum::extract::DefaultBodyLimit::max(LONGEST))
        .with_state(plugin)
}

async fn told_to_stop() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => {
            terminate.recv().await;
        }
        Err(_) => std::future::pending().await,
    }
}

/// Makes no progress: fails, so that Kubernetes starts it again.
async fn healthz(State(plugin): State<Arc<Plugin>>) -> (StatusCode, &'static str) {
    if lock(&plugin.beat).elapsed() > Duration::from_secs(20) || !plugin.feed.is_alive() {
        return (StatusCode::SERVICE_UNAVAILABLE, "no progress\n");
    }
    let runs: Vec<Arc<OnceCell<Arc<Open>>>> = lock(&plugin.runs).values().cloned().collect();
    if runs.iter().filter_map(|run| run.get()).any(|open| open.recorder.is_stuck()) {
        return (StatusCode::SERVICE_UNAVAILABLE, "the record cannot be written\n");
    }
    (StatusCode::OK, "ok\n")
}

/// Cannot tell what is true: Argo CD was not read completely lately.
async fn readyz(State(plugin): State<Arc<Plugin>>) -> (StatusCode, &'static str) {
    if plugin.feed.is_fresh() {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "Argo CD was not read lately\n")
    }
}

async fn execute(
    State(plugin): State<Arc<Plugin>>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> (StatusCode, Json<Value>) {
    let bearer = headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
    if plugin.token.is_empty() || bearer.strip_prefix("Bearer ") != Some(plugin.token.as_str()) {
        return (StatusCode::FORBIDDEN, Json(json!({"message": "not the token of this agent"})));
    }
    // A template of another plugin is none of our business.
    let Some(asked) = body.pointer("/template/plugin").and_then(|plugin| plugin.get(PLUGIN)) else {
        return (StatusCode::OK, Json(json!({})));
    };
    let field = |name: &str| asked.get(name).and_then(Value::as_str).unwrap_or_default();
    let run = match field("run").parse::<RunId>() {
        Ok(run) => run,
        Err(error) => return failed(&format!("the template names no run: {error}")),
    };
    let open = match plugin.open(&run).await {
        Ok(open) => open,
        // The agent asks again when it is told that the service is not available.
        Err(error) => return (StatusCode::SERVICE_UNAVAILABLE, Json(json!({"message": error.message}))),
    };
    if asked.get("band").is_some() {
        plugin.watch_over(&run, &open);
        return plugin.band(&run, field("band"), &open).await;
    }
    let node = match field("node").parse::<NodeId>() {
        Ok(node) => node,
        Err(error) => return failed(&format!("the template names no node: {error}")),
    };
    if !open.knows(&node) {
        return failed(&format!("run `{run}` has no node `{node}`"));
    }
    plugin.watch_over(&run, &open);
    let mut answer = plugin.node(&run, &node, &open);
    let held = plugin.metrics.hold();
    let has_ended = tokio::time::timeout(HOLD, answer.wait_for(Option::is_some)).await.is_ok();
    if has_ended {
        open.gathered().await;
    }
    // What was proven may have fallen meanwhile.
    let decision = answer.borrow().clone();
    drop(held);
    plugin.metrics.answered(decision.as_ref());
    match decision {
        Some(Decision::Proven(receipt)) => {
            let message = if receipt.synced { "proven" } else { "proven; nothing had to change" };
            (StatusCode::OK, Json(json!({"node": {"phase": "Succeeded", "message": message}})))
        }
        Some(Decision::Gone(_)) => (StatusCode::OK, Json(json!({"node": {"phase": "Succeeded", "message": "gone"}}))),
        Some(Decision::Failed(failure)) => failed(&failure.why.to_string()),
        Some(Decision::Wait(_)) | None => later(),
    }
}

/// The agent is to ask again.
fn later() -> (StatusCode, Json<Value>) {
    (StatusCode::OK, Json(json!({"node": {}, "requeue": REQUEUE})))
}

fn failed(message: &str) -> (StatusCode, Json<Value>) {
    (StatusCode::OK, Json(json!({"node": {"phase": "Failed", "message": clip(message)}})))
}

impl Plugin {
    /// The run, read once.
    async fn open(&self, run: &RunId) -> Result<Arc<Open>, Failure> {
        let cell = lock(&self.runs).entry(run.clone()).or_default().clone();
        let open = cell.get_or_try_init(|| async {
            Open::new(&self.cluster, &self.namespace, run, self.feed.clone(), self.metrics.clone()).await.map(Arc::new)
        });
        open.await.cloned()
    }

    /// Goes on with what was asked for before this process began: nobody asks again for what was proven, also where that
    /// proof was withdrawn since. Whether a node may start is asked of the record, whoever takes it up.
    fn watch_over(&self, run: &RunId, open: &Arc<Open>) {
        if !lock(&self.watched).insert(run.clone()) {
            return;
        }
        for node in open.recorder.taken_up() {
            drop(self.node(run, &node, open));
        }
    }

    /// Whether a band may begin: succeeds when it may, and says otherwise that it is to be asked again.
    async fn band(&self, run: &RunId, band: &str, open: &Open) -> (StatusCode, Json<Value>) {
        let unknown = || failed(&format!("run `{run}` has no band `{}`", clip(band)));
        let Ok(number) = band.parse::<usize>() else { return unknown() };
        let held = self.metrics.hold();
        let opened = tokio::time::timeout(HOLD, open.opened(number)).await;
        drop(held);
        match opened {
            Ok(Some(())) => {
                open.gather.release();
                (StatusCode::OK, Json(json!({"node": {"phase": "Succeeded", "message": "may begin"}})))
            }
            Ok(None) => unknown(),
            Err(_) => later(),
        }
    }

    /// The one task of a node, started by the first who asks.
    fn node(&self, run: &RunId, node: &NodeId, open: &Arc<Open>) -> Answer {
        let mut nodes = lock(&self.nodes);
        let known = nodes.get(&(run.clone(), node.clone()));
        // A task that ended without an answer died; its place is taken.
        if let Some(answer) = known.filter(|answer| answer.borrow().is_some() || answer.has_changed().is_ok()) {
            return answer.clone();
        }
        let (sender, answer) = watch::channel(None);
        nodes.insert((run.clone(), node.clone()), answer.clone());
        let (open, node) = (open.clone(), node.clone());
        tokio::spawn(async move {
            loop {
                let decision = open.take(&node).await;
                let proven = matches!(decision, Some(Decision::Proven(_)));
                sender.send_replace(decision);
                if !proven {
                    return;
                }
                // The task of the Workflow has succeeded; whoever asks from now on waits for the new answer.
                open.guard(&node).await;
                sender.send_replace(None);
            }
        });
        answer
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use forge_core::run::RunPlan;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::argocd::Known;
    use crate::git_reader::{GitCredentials, GitReader};
    use crate::prove::Prover;
    use crate::recorder::Recorder;
    use crate::run::sample;
    use crate::serve::{Gather, Work};

    /// A run of three nodes that do not wait for each other.
    fn plan() -> RunPlan {
        sample::plan(&["db", "api", "web"])
    }

    /// Where nobody answers.
    const NOBODY: &str = "http://127.0.0.1:9";

    /// A plugin that reaches this Argo CD, and no cluster.
    fn plugin(folder: &Path, argocd: &str) -> Plugin {
        let _ = rustls::crypto::ring::default_provider().install_default();
        std::fs::write(folder.join("token"), "t").unwrap();
        Plugin {
            cluster: Cluster::at(NOBODY).unwrap(),
            namespace: "argo".to_owned(),
            feed: crate::serve::argocd(argocd, &folder.join("token")).unwrap(),
            metrics: Arc::default(),
            token: "t".to_owned(),
            runs: Mutex::default(),
            nodes: Mutex::default(),
            watched: Mutex::default(),
            beat: Mutex::new(Instant::now()),
        }
    }

    /// A run that the plugin works for.
    fn open(plugin: &Plugin, folder: &Path, plan: &RunPlan, recorder: Arc<Recorder>) -> Arc<Open> {
        let deadline = "2126-11-16T13:00:00Z".parse().unwrap();
        let git = Arc::new(GitReader::temporary(GitCredentials::Mounted(folder.join("git"))).unwrap());
        let (feed, metrics) = (plugin.feed.clone(), plugin.metrics.clone());
        let prover = Prover::new(plan, deadline, feed, recorder.clone(), git, metrics);
        Arc::new(Open { work: Work::Prove(prover), recorder, gather: Gather::new(plan.gathers()) })
    }

    /// Serves on a port of its own; gives the address.
    async fn listen(router: Router) -> SocketAddr {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        address
    }

    /// What is answered at an address: the code, and what is said.
    async fn said(address: SocketAddr, path: &str) -> (String, String) {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: plugin\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().to_owned(), body.trim().to_owned())
    }

    #[tokio::test]
    async fn it_is_not_healthy_when_nothing_moves_or_nothing_can_be_stored() {
        let folder = tempfile::tempdir().unwrap();
        let plugin = Arc::new(plugin(folder.path(), NOBODY));
        let address = listen(router(plugin.clone())).await;
        let healthz = async || said(address, "/healthz").await;
        let ago = |seconds: u64| Instant::now().checked_sub(Duration::from_secs(seconds)).unwrap();
        let is = |code: &str, what: &str| (code.to_owned(), what.to_owned());
        // That Argo CD does not answer is nothing that another start would mend.
        assert_eq!(healthz().await, is("200", "ok"));
        *lock(&plugin.beat) = ago(21);
        assert_eq!(healthz().await, is("503", "no progress"));
        *lock(&plugin.beat) = Instant::now();
        let plan = Arc::new(plan());
        let recorder = Recorder::in_memory(plan.clone());
        let run = OnceCell::new_with(Some(open(&plugin, folder.path(), &plan, recorder.clone())));
        lock(&plugin.runs).insert(plan.run.clone(), Arc::new(run));
        recorder.fails_since(Instant::now());
        assert_eq!(healthz().await, is("200", "ok"));
        recorder.fails_since(ago(61));
        assert_eq!(healthz().await, is("503", "the record cannot be written"));
    }

    #[tokio::test]
    async fn it_is_ready_when_argo_cd_was_read_and_not_before() {
        let folder = tempfile::tempdir().unwrap();
        let deaf = listen(router(Arc::new(plugin(folder.path(), NOBODY)))).await;
        assert_eq!(said(deaf, "/readyz").await, ("503".to_owned(), "Argo CD was not read lately".to_owned()));
        let argocd = Router::new().fallback(|uri: axum::http::Uri| async move {
            if uri.path().ends_with("/stream/applications") {
                // It ends soon, and everything is listed again.
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Json(json!({"metadata": {}, "items": []}))
        });
        let plugin = Arc::new(plugin(folder.path(), &format!("http://{}", listen(argocd).await)));
        let mut states = plugin.feed.subscribe(&"argocd/db".parse().unwrap());
        let listed = states.wait_for(|known| matches!(known, Known::Absent));
        drop(tokio::time::timeout(Duration::from_secs(20), listed).await.unwrap().unwrap());
        let address = listen(router(plugin)).await;
        assert_eq!(said(address, "/readyz").await, ("200".to_owned(), "ok".to_owned()));
    }

    #[tokio::test]
    async fn a_node_whose_proof_was_withdrawn_is_taken_up_after_a_restart_although_nobody_asks_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let plugin = plugin(folder.path(), NOBODY);
        let plan = Arc::new(plan());
        let recorder = Recorder::in_memory(plan.clone());
        let entry = |node: &str, decision: Value| {
            let entry = json!({
                "node": format!("argocd/{node}"), "since": "2026-11-16T12:00:00Z", "started": "2026-11-16T11:50:00Z",
                "decision": decision, "asked": [],
            });
            serde_json::from_value(entry).unwrap()
        };
        // What `withdraw` leaves behind; what failed; and the third was never asked for.
        let open_again = json!({"type": "refresh", "asked": false});
        recorder.put(entry("db", json!({"type": "wait", "on": open_again, "until": "2126-11-16T13:00:00Z"})));
        let degraded = json!({"type": "unhealthy", "health": "Degraded"});
        recorder.put(entry("api", json!({"type": "failed", "class": "unhealthy", "why": degraded})));
        let open = open(&plugin, folder.path(), &plan, recorder);
        let run: RunId = "r-1".parse().unwrap();
        plugin.watch_over(&run, &open);
        let taken: Vec<String> = lock(&plugin.nodes).keys().map(|(_, node)| node.to_string()).collect();
        assert_eq!(taken, ["argocd/db"]);
        // Who asks for it after all finds the same task.
        drop(plugin.node(&run, &"argocd/db".parse().unwrap(), &open));
        assert_eq!(lock(&plugin.nodes).len(), 1);
    }
}
