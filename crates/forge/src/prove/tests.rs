//! A node with a release, on an Argo CD that keeps manifests: what it is asked for, and what comes of it.

use std::sync::Mutex;

use axum::Json;
use axum::http::{Method, StatusCode, Uri};
use forge_core::digest::Digest;
use forge_core::duration;
use forge_core::gate::{Proof, Rendered, Retry, Timeouts, Why};
use forge_core::graph::Scope;
use forge_core::run::{RunAction, RunNode, RunTask, Runner};
use secrecy::SecretString;
use serde_json::{Value, json};

use super::*;
use crate::argocd::{ArgoCd, NONCE};
use crate::git_reader::GitCredentials;

const COMMIT: &str = "3f2a9c1d5e7b80416a2c9d3e5f70b1a4c6d8e9f0";
const PLUGIN: &str = "Manifest generation error (cached): `catalyst-forge-cmp generate` failed exit status 3: error[FORGE-N001]: no release";

fn digest(name: &str) -> Digest {
    Digest::of(name.as_bytes())
}

/// What Argo CD keeps and what is live, each a release by name.
struct Kept {
    version: u64,
    /// What it would compare and sync with.
    manifests: &'static str,
    /// What a hard refresh makes of that.
    anew: &'static str,
    live: &'static str,
    /// An error that it keeps until a hard refresh.
    error: Option<&'static str>,
    nonce: Option<String>,
    hard: usize,
    syncs: usize,
}

impl Kept {
    fn new(live: &'static str, manifests: &'static str, anew: &'static str) -> Self {
        Self { version: 1, manifests, anew, live, error: None, nonce: None, hard: 0, syncs: 0 }
    }

    fn application(&mut self) -> Value {
        self.version += 1;
        let conditions: Vec<Value> =
            self.error.iter().map(|error| json!({"type": "ComparisonError", "message": error})).collect();
        let sync = match self.error {
            Some(_) => "Unknown",
            None if self.live == self.manifests => "Synced",
            None => "OutOfSync",
        };
        let operation = self
            .nonce
            .as_ref()
            .map(|nonce| json!({"phase": "Succeeded", "operation": {"info": [{"name": NONCE, "value": nonce}]}}));
        json!({
            "metadata": {"namespace": "argocd", "name": "dev-shop-api", "resourceVersion": self.version.to_string()},
            "spec": {"source": {"repoURL": "u", "path": "p"}, "destination": {"namespace": "shop-api"}},
            "status": {
                "sync": {"status": sync, "revision": COMMIT},
                "health": {"status": "Healthy"},
                "conditions": conditions,
                "resources": [{"version": "v1", "kind": "ConfigMap", "namespace": "shop-api", "name": "forge-receipt"}],
                "operationState": operation,
            },
        })
    }

    fn answer(&mut self, method: &Method, uri: &Uri, body: &Value) -> Option<Value> {
        let path = uri.path().strip_prefix("/api/v1")?;
        let hard = uri.query().is_some_and(|query| query.contains("refresh=hard"));
        match (method.as_str(), path) {
            ("GET", "/applications") => Some(json!({"items": [self.application()]})),
            ("GET", "/applications/dev-shop-api") => {
                if hard {
                    (self.manifests, self.error) = (self.anew, None);
                    self.hard += 1;
                }
                Some(self.application())
            }
            ("GET", "/applications/dev-shop-api/resource-tree") => Some(json!({"nodes": []})),
            ("GET", "/applications/dev-shop-api/resource") => {
                let [pointer, release, output] = ["pointer", self.live, "output"].map(digest);
                let receipt = forge_core::release::receipt(&pointer, &release, &output).value;
                Some(json!({"manifest": receipt.to_string()}))
            }
            ("POST", "/applications/dev-shop-api/sync") => {
                self.live = self.manifests;
                self.syncs += 1;
                self.nonce = body.pointer("/infos/0/value").and_then(Value::as_str).map(str::to_owned);
                Some(json!({}))
            }
            _ => None,
        }
    }
}

/// Takes the node to its end; gives that, and what Argo CD was asked for.
async fn proven(kept: Kept) -> (Decision, usize, usize) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let kept = Arc::new(Mutex::new(kept));
    let asked = kept.clone();
    let router = axum::Router::new().fallback(move |method: Method, uri: Uri, body: String| async move {
        if uri.path().ends_with("/stream/applications") {
            // It ends soon, and everything is listed again.
            tokio::time::sleep(Duration::from_millis(50)).await;
            return (StatusCode::OK, Json(json!({})));
        }
        let body: Value = serde_json::from_str(&body).unwrap_or_default();
        match asked.lock().unwrap().answer(&method, &uri, &body) {
            Some(answer) => (StatusCode::OK, Json(answer)),
            None => (StatusCode::FORBIDDEN, Json(json!({"code": 7, "message": "permission denied"}))),
        }
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    let argocd = ArgoCd::at(&format!("http://{address}"), SecretString::from("t".to_owned()), None).unwrap();
    let plan = Arc::new(plan());
    let git = Arc::new(GitReader::temporary(GitCredentials::Helper).unwrap());
    let (feed, recorder) = (Feed::start(argocd), Recorder::in_memory(plan.clone()));
    let deadline = plan.deadline(Timestamp::now());
    let prover = Prover::new(&plan, deadline, feed, recorder, git, Arc::new(Metrics::default()));
    let node = "shop/api".parse().unwrap();
    let decision = tokio::time::timeout(Duration::from_secs(60), prover.prove(&node, Mode::Run)).await;
    let kept = kept.lock().unwrap();
    (decision.unwrap().unwrap(), kept.hard, kept.syncs)
}

/// A run of one node, whose pointer names the release `new`.
fn plan() -> RunPlan {
    let seconds = duration::Duration::from_seconds;
    let [pointer, digest, output] = ["pointer", "new", "output"].map(digest);
    let (pointer, output) = (Some(pointer), Some(output));
    let node = RunNode {
        id: "shop/api".parse().unwrap(),
        application: "argocd/dev-shop-api".parse().unwrap(),
        content: Content::Release { commit: COMMIT.parse().unwrap(), digest, pointer, output },
        images: BTreeMap::new(),
        requires: Vec::new(),
        health: Vec::new(),
        timeouts: Timeouts { sync: seconds(60), health: seconds(60) },
        retry: Retry { limit: 0, backoff: seconds(1), factor: 1, max: seconds(1) },
        removal: None,
    };
    RunPlan {
        run: "dev-0123456789-1".parse().unwrap(),
        environment: "dev".parse().unwrap(),
        action: RunAction::Deploy,
        scope: Scope::Platform,
        plan: Digest::of(b"plan"),
        commit: None,
        repository: None,
        timeout: seconds(600),
        runner: Runner::Plugin,
        passed: Default::default(),
        band: None,
        tasks: vec![RunTask { id: "shop/api".to_owned(), before: Vec::new(), node: Some(node) }],
    }
}

/// How it was proven, and what Argo CD was asked for.
async fn by(kept: Kept) -> (Option<u32>, usize, usize) {
    match proven(kept).await {
        (Decision::Proven(receipt), hard, syncs) => {
            assert_eq!(receipt.proof, Proof::Digest);
            assert_eq!(receipt.render.unwrap().release, digest("new"));
            (receipt.attempt, hard, syncs)
        }
        (other, ..) => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_was_rendered_already_is_proven_without_a_sync() {
    assert_eq!(by(Kept::new("new", "new", "new")).await, (None, 0, 0));
    assert_eq!(by(Kept::new("old", "new", "new")).await, (Some(1), 0, 1));
}

#[tokio::test]
async fn manifests_of_before_that_argo_cd_calls_synced_are_rendered_anew_once_and_then_synced() {
    assert_eq!(by(Kept::new("old", "old", "new")).await, (Some(1), 1, 1));
}

#[tokio::test]
async fn what_a_sync_brought_out_of_a_cache_is_synced_once_more_after_it_was_rendered_anew() {
    assert_eq!(by(Kept::new("old", "cached", "new")).await, (Some(2), 1, 2));
}

#[tokio::test]
async fn manifests_of_before_that_stay_fail_loudly_after_one_request_and_without_a_sync() {
    let (decision, hard, syncs) = proven(Kept::new("old", "old", "old")).await;
    let Decision::Failed(failure) = decision else { panic!("{decision:?}") };
    let found = Rendered::Release { digest: digest("old") };
    assert_eq!(failure.why, Why::NotRendered { release: digest("new"), found });
    assert_eq!((hard, syncs), (1, 0));
}

#[tokio::test]
async fn an_error_of_the_plugin_that_argo_cd_keeps_is_rendered_anew_when_the_run_comes_to_it() {
    let kept = Kept { error: Some(PLUGIN), ..Kept::new("old", "old", "new") };
    assert_eq!(by(kept).await, (Some(1), 1, 1));
}
