//! A node with a release, on an Argo CD that keeps manifests: what it is asked for, and what comes of it.

use std::sync::Mutex;

use axum::http::{Method, StatusCode, Uri};
use forge_core::digest::Digest;
use forge_core::duration;
use forge_core::gate::{Proof, Rendered, Retry, Timeouts, Unwell};
use forge_core::graph::Scope;
use forge_core::run::{CANCEL_KEY, HEADER_KEY, Header, RunAction, RunNode, RunTask, Runner, record_name};
use futures::FutureExt as _;
use jiff::SignedDuration;
use secrecy::SecretString;
use serde_json::{Value, json};

use super::*;
use crate::argocd::{ArgoCd, NONCE};
use crate::cluster::fake::{Fake, served};
use crate::cluster::path;
use crate::git_reader::GitCredentials;
use crate::run::sample;

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
    /// What is wrong with its Deployment.
    unwell: Option<&'static str>,
    nonce: Option<String>,
    /// An operation of somebody else runs.
    foreign: bool,
    /// What lists show, where that is older.
    listed: Option<Value>,
    /// It says of a sync that it has begun that it is not available.
    denies: bool,
    /// What it answers to a sync, which it does not begin then.
    deaf: Option<StatusCode>,
    /// Every other time that the Application is asked for nothing is answered.
    halting: bool,
    /// When the receipt has been read, nothing is answered until the Application was asked for so often; then it is well.
    outage: usize,
    silent: usize,
    /// How often the Application was asked for, and no comparison.
    reads: watch::Sender<usize>,
    hard: usize,
    syncs: usize,
}

impl Kept {
    fn new(live: &'static str, manifests: &'static str, anew: &'static str) -> Self {
        Self {
            version: 1,
            manifests,
            anew,
            live,
            error: None,
            unwell: None,
            nonce: None,
            foreign: false,
            listed: None,
            denies: false,
            deaf: None,
            halting: false,
            outage: 0,
            silent: 0,
            reads: watch::Sender::new(0),
            hard: 0,
            syncs: 0,
        }
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
        let mut resources =
            vec![json!({"version": "v1", "kind": "ConfigMap", "namespace": "shop-api", "name": "forge-receipt"})];
        resources.extend(self.unwell.map(|message| {
            let health = json!({"status": "Degraded", "message": message});
            json!({"group": "apps", "kind": "Deployment", "namespace": "shop-api", "name": "api", "health": health})
        }));
        let operation = self
            .nonce
            .as_ref()
            .map(|nonce| json!({"phase": "Succeeded", "operation": {"info": [{"name": NONCE, "value": nonce}]}}));
        json!({
            "metadata": {"namespace": "argocd", "name": "dev-shop-api", "resourceVersion": self.version.to_string()},
            "spec": {"source": {"repoURL": "u", "path": "p"}, "destination": {"namespace": "shop-api"}},
            "operation": self.foreign.then(|| json!({"sync": {}})),
            "status": {
                "sync": {"status": sync, "revision": COMMIT},
                "health": {"status": if self.unwell.is_some() { "Degraded" } else { "Healthy" }},
                "conditions": conditions,
                "resources": resources,
                "operationState": operation,
            },
        })
    }

    fn answer(&mut self, method: &Method, uri: &Uri, body: &Value) -> Result<Value, StatusCode> {
        let path = uri.path().strip_prefix("/api/v1").ok_or(StatusCode::NOT_FOUND)?;
        let refresh = |how: &str| uri.query().is_some_and(|query| query.contains(&format!("refresh={how}")));
        if self.silent > 0 {
            if path == "/applications/dev-shop-api" && !refresh("") {
                self.silent -= 1;
                self.unwell = self.unwell.filter(|_| self.silent > 0);
            }
            return Err(StatusCode::INTERNAL_SERVER_ERROR);
        }
        match (method.as_str(), path) {
            ("GET", "/applications") => {
                let shown = self.listed.clone();
                Ok(json!({"items": [shown.unwrap_or_else(|| self.application())]}))
            }
            ("GET", "/applications/dev-shop-api") => {
                if refresh("hard") {
                    (self.manifests, self.error) = (self.anew, None);
                    self.hard += 1;
                } else if !refresh("") {
                    self.reads.send_modify(|times| *times += 1);
                    if self.halting && self.reads.borrow().is_multiple_of(2) {
                        return Err(StatusCode::INTERNAL_SERVER_ERROR);
                    }
                }
                Ok(self.application())
            }
            ("GET", "/applications/dev-shop-api/resource-tree") => Ok(json!({"nodes": []})),
            ("GET", "/applications/dev-shop-api/resource") => {
                self.silent = std::mem::take(&mut self.outage);
                let [pointer, release, output] = ["pointer", self.live, "output"].map(digest);
                let receipt = forge_core::release::receipt(&pointer, &release, &output).value;
                Ok(json!({"manifest": receipt.to_string()}))
            }
            ("POST", "/applications/dev-shop-api/sync") => {
                if let Some(code) = self.deaf {
                    return Err(code);
                }
                self.live = self.manifests;
                self.syncs += 1;
                self.nonce = body.pointer("/infos/0/value").and_then(Value::as_str).map(str::to_owned);
                if self.denies { Err(StatusCode::SERVICE_UNAVAILABLE) } else { Ok(json!({})) }
            }
            _ => Err(StatusCode::FORBIDDEN),
        }
    }
}

/// Takes the node to its end; gives that, and what Argo CD was asked for.
async fn proven(kept: Kept) -> (Decision, usize, usize) {
    within(60, 60, kept).await
}

/// The same where a sync may take so many seconds, and health after it.
async fn within(sync: u64, health: u64, kept: Kept) -> (Decision, usize, usize) {
    let kept = Arc::new(Mutex::new(kept));
    let plan = Arc::new(plan(sync, health));
    let prover = prover(&serve(kept.clone()).await, &plan, Recorder::in_memory(plan.clone()));
    let node = "shop/api".parse().unwrap();
    let decision = tokio::time::timeout(Duration::from_secs(60), prover.prove(&node, Mode::Run)).await;
    let kept = kept.lock().unwrap();
    (decision.unwrap().unwrap(), kept.hard, kept.syncs)
}

/// Argo CD at an address.
async fn serve(kept: Arc<Mutex<Kept>>) -> String {
    super::fake::argocd(move |method, uri, body| kept.lock().unwrap().answer(method, uri, body)).await
}

/// Takes the nodes of a plan to their proofs, with the Argo CD at this address.
fn prover(address: &str, plan: &RunPlan, recorder: Arc<Recorder>) -> Prover {
    let argocd = ArgoCd::at(address, SecretString::from("t".to_owned()), None).unwrap();
    let git = Arc::new(GitReader::temporary(GitCredentials::Helper).unwrap());
    let deadline = plan.deadline(Timestamp::now());
    Prover::new(plan, deadline, Feed::start(argocd), recorder, git, Arc::new(Metrics::default()))
}

/// A run of one node, whose pointer names the release `new`.
fn plan(sync: u64, health: u64) -> RunPlan {
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
        timeouts: Timeouts { sync: seconds(sync), health: seconds(health) },
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
async fn what_stays_degraded_fails_with_the_resource_that_argo_cd_names_and_what_it_says_of_it() {
    let said = "Deployment \"api\" exceeded its progress deadline";
    let (decision, ..) = within(60, 1, Kept { unwell: Some(said), ..Kept::new("new", "new", "new") }).await;
    let Decision::Failed(failure) = decision else { panic!("{decision:?}") };
    let unwell = Unwell { resource: "Deployment/shop-api/api".to_owned(), message: said.to_owned() };
    assert_eq!(failure.why, Why::Unhealthy { health: Health::Degraded, unwell: Some(unwell) });
}

#[tokio::test]
async fn other_words_for_the_same_wait_are_no_other_wait_and_not_written_each_time() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let plan = Arc::new(plan(60, 60));
    let prover = prover("http://127.0.0.1:1", &plan, Recorder::in_memory(plan.clone()));
    let wanted = prover.wanted.values().next().unwrap().clone();
    let mut way = Way::new(&prover, wanted, Mode::Run);
    let start = Timestamp::now();
    let waits = |health: Health, message: Option<&str>| {
        let resource = "Deployment/shop-api/api".to_owned();
        let unwell = message.map(|message| Unwell { resource, message: message.to_owned() });
        Decision::Wait(Wait { on: WaitingFor::Health { health, unwell }, until: prover.deadline, since: None })
    };
    // Since when it waits, in seconds, and whether it is kept as it was decided.
    let mut noted = |second: i64, health: Health, message: Option<&str>| {
        let decision = waits(health, message);
        way.note(None, &decision, start + SignedDuration::from_secs(second));
        (way.entry.since.duration_since(start).as_secs(), way.entry.decision == decision)
    };
    assert_eq!(noted(1, Health::Progressing, None), (1, true));
    assert_eq!(noted(2, Health::Progressing, Some("1 of 3 updated")), (1, true), "a name comes at once");
    assert_eq!(noted(3, Health::Progressing, Some("2 of 3 updated")), (1, false));
    assert_eq!(noted(16, Health::Progressing, Some("3 of 3 updated")), (1, false));
    assert_eq!(noted(17, Health::Progressing, Some("3 of 3 updated")), (1, true), "it may not be old for ever");
    assert_eq!(noted(18, Health::Progressing, None), (1, false));
    assert_eq!(noted(19, Health::Degraded, Some("crashed")), (19, true), "this is another wait");
}

#[tokio::test]
async fn an_error_of_the_plugin_that_argo_cd_keeps_is_rendered_anew_when_the_run_comes_to_it() {
    let kept = Kept { error: Some(PLUGIN), ..Kept::new("old", "old", "new") };
    assert_eq!(by(kept).await, (Some(1), 1, 1));
}

#[tokio::test]
async fn a_sync_that_was_begun_although_argo_cd_says_otherwise_is_not_asked_for_again() {
    let kept = Kept { denies: true, ..Kept::new("old", "new", "new") };
    assert_eq!(by(kept).await, (Some(1), 0, 1));
}

#[tokio::test]
async fn a_sync_of_ours_that_lists_do_not_show_yet_is_adopted_and_not_asked_for_again() {
    let mut kept = Kept::new("old", "new", "new");
    kept.listed = Some(kept.application());
    (kept.live, kept.nonce) = ("new", Some("dev-0123456789-1/shop/api/1".to_owned()));
    assert_eq!(by(kept).await, (Some(1), 0, 0));
}

#[tokio::test]
async fn time_that_is_up_while_argo_cd_cannot_be_read_fails_nothing() {
    let unwell = Some("Deployment \"api\" does not have minimum availability");
    let (decision, ..) = within(60, 2, Kept { unwell, outage: 2, ..Kept::new("new", "new", "new") }).await;
    assert!(matches!(decision, Decision::Proven(_)), "{decision:?}");
}

#[tokio::test]
async fn an_operation_of_somebody_else_that_argo_cd_does_not_let_us_end_becomes_a_conflict() {
    let (decision, _, syncs) = within(1, 60, Kept { foreign: true, ..Kept::new("old", "new", "new") }).await;
    let Decision::Failed(failure) = decision else { panic!("{decision:?}") };
    assert_eq!((failure.why, syncs), (Why::ForeignOperation, 0));
}

/// A record in which one node is as it says, and another one waits for it.
fn waiting_for(first: &Value) -> (Arc<RunPlan>, Arc<Recorder>) {
    let plan = Arc::new(sample::chain(&["db", "api"]));
    let recorder = Recorder::in_memory(plan.clone());
    let predecessor = json!({"type": "predecessor", "node": "argocd/db"});
    let waits = json!({"type": "wait", "on": predecessor, "until": "2126-11-16T13:00:00Z"});
    for (node, decision) in [("db", first), ("api", &waits)] {
        let entry = json!({
            "node": format!("argocd/{node}"), "since": "2026-11-16T12:00:00Z", "decision": decision, "asked": [],
        });
        recorder.put(serde_json::from_value(entry).unwrap());
    }
    (plan, recorder)
}

fn proven_db() -> Value {
    json!({
        "type": "proven", "run": "r-1", "node": "argocd/db", "application": "argocd/db", "attempt": 1, "synced": true,
        "proof": "revision", "commit": null, "revisions": [], "render": null, "workloads": {}, "images": {},
        "notRunning": [], "sidecars": {}, "objects": [], "health": "Healthy",
    })
}

#[test]
fn who_waited_for_what_has_ended_since_leaves_others_their_turn_while_nothing_can_be_read() {
    // What a process finds that was killed after the end of the one was stored, and before the other had looked.
    let (plan, recorder) = waiting_for(&proven_db());
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (sender, heard) = std::sync::mpsc::channel();
    runtime.spawn(async move {
        let prover = prover("http://127.0.0.1:1", &plan, recorder);
        tokio::spawn(async move { prover.prove(&"argocd/api".parse().unwrap(), Mode::Run).await });
        tokio::time::sleep(Duration::from_millis(200)).await;
        sender.send(()).unwrap();
    });
    let heard = heard.recv_timeout(Duration::from_secs(30));
    // Who never gives way could not be waited for.
    runtime.shutdown_background();
    heard.unwrap();
}

#[tokio::test]
async fn who_waits_for_what_is_proven_and_not_well_hears_of_its_application_and_of_the_record() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let health = |version: u64, health: &str| {
        let metadata = json!({"namespace": "argocd", "name": "db", "resourceVersion": version.to_string()});
        crate::argocd::Application::read(&json!({"metadata": metadata, "status": {"health": {"status": health}}}))
            .unwrap()
    };
    let db: NodeId = "argocd/db".parse().unwrap();
    for by_record in [false, true] {
        let (plan, recorder) = waiting_for(&proven_db());
        let prover = prover("http://127.0.0.1:1", &plan, recorder.clone());
        assert_eq!(prover.moves(&db, 0).now_or_never(), Some(()), "it is proven, and nothing else is known");
        prover.feed.offer(health(1, "Degraded"));
        let mut moves = std::pin::pin!(prover.moves(&db, 0));
        assert_eq!((&mut moves).now_or_never(), None);
        if by_record {
            let failed = json!({
                "node": "argocd/api", "since": "2026-11-16T12:00:01Z", "asked": [],
                "decision": {"type": "failed", "class": "unhealthy", "why": {"type": "unhealthy", "health": "Degraded"}},
            });
            recorder.put(serde_json::from_value(failed).unwrap());
        } else {
            prover.feed.offer(health(2, "Progressing"));
            assert_eq!((&mut moves).now_or_never(), None);
            prover.feed.offer(health(3, "Healthy"));
        }
        tokio::time::timeout(Duration::from_secs(30), moves).await.unwrap();
    }
}

/// Who has the Lease of the environment: a run, or nobody.
fn put_lease(fake: &mut Fake, holder: &str) {
    sample::put_lease(fake, holder, Timestamp::now());
}

/// The header of a run that has begun, and was perhaps told to stop.
fn put_header(fake: &mut Fake, plan: &RunPlan, is_stopped: bool) {
    let mut data = json!({HEADER_KEY: serde_json::to_string(&Header::new(plan, Timestamp::now())).unwrap()});
    if is_stopped {
        data[CANCEL_KEY] = json!("somebody");
    }
    fake.put(&path::config_maps("argo"), json!({"metadata": {"name": record_name(&plan.run, 0)}, "data": data}));
}

/// What a process leaves behind that stored that it asked then, and perhaps did not come to it.
fn asked(prover: &Prover, node: &NodeId, at: Timestamp) -> Entry {
    let mut entry = Way::new(prover, prover.wanted[node].clone(), Mode::Run).entry;
    entry.progress.sync_requested = Some(SyncRequested { attempt: 1, at });
    entry
}

/// Goes on until the Application was asked for so often.
async fn until_read(proving: impl Future<Output = Option<Decision>>, reads: &mut watch::Receiver<usize>, times: usize) {
    let read = tokio::time::timeout(Duration::from_secs(60), reads.wait_for(|read| *read >= times));
    tokio::select! {
        decision = proving => panic!("{decision:?}"),
        read = read => drop(read.unwrap().unwrap()),
    }
}

/// Goes on to the end, which is a proof.
async fn until_proven(proving: impl Future<Output = Option<Decision>>) {
    let decision = tokio::time::timeout(Duration::from_secs(60), proving).await.unwrap();
    assert!(matches!(decision, Some(Decision::Proven(_))), "{decision:?}");
}

#[tokio::test]
async fn a_request_that_was_perhaps_never_sent_is_not_sent_while_the_run_is_stopped() {
    let plan = Arc::new(plan(60, 60));
    let mut fake = Fake::default();
    put_header(&mut fake, &plan, true);
    put_lease(&mut fake, plan.run.as_str());
    let (cluster, fake) = served(fake).await;
    let recorder = Recorder::open(&cluster, "argo", plan.clone()).await.unwrap();
    let kept = Kept::new("old", "new", "new");
    let mut reads = kept.reads.subscribe();
    let kept = Arc::new(Mutex::new(kept));
    let prover = prover(&serve(kept.clone()).await, &plan, recorder.clone());
    let node: NodeId = "shop/api".parse().unwrap();
    recorder.put(asked(&prover, &node, Timestamp::now()));
    let mut proving = std::pin::pin!(prover.prove(&node, Mode::Run));
    until_read(proving.as_mut(), &mut reads, 2).await;
    assert_eq!(kept.lock().unwrap().syncs, 0);
    put_header(&mut fake.lock().unwrap(), &plan, false);
    until_proven(proving).await;
    assert_eq!(kept.lock().unwrap().syncs, 1);
}

#[tokio::test]
async fn time_in_which_nobody_conducts_the_run_does_not_count_against_a_request_of_a_process_that_is_gone() {
    let plan = Arc::new(plan(2, 60));
    let mut fake = Fake::default();
    put_header(&mut fake, &plan, false);
    put_lease(&mut fake, "");
    let (cluster, fake) = served(fake).await;
    let recorder = Recorder::open(&cluster, "argo", plan.clone()).await.unwrap();
    let kept = Kept::new("old", "new", "new");
    let mut reads = kept.reads.subscribe();
    let kept = Arc::new(Mutex::new(kept));
    let prover = prover(&serve(kept.clone()).await, &plan, recorder.clone());
    let node: NodeId = "shop/api".parse().unwrap();
    recorder.put(asked(&prover, &node, Timestamp::now() - SignedDuration::from_hours(1)));
    let mut proving = std::pin::pin!(prover.prove(&node, Mode::Run));
    until_read(proving.as_mut(), &mut reads, 3).await;
    assert_eq!(kept.lock().unwrap().syncs, 0);
    put_lease(&mut fake.lock().unwrap(), plan.run.as_str());
    until_proven(proving).await;
    assert_eq!(kept.lock().unwrap().syncs, 1);
    let requested = recorder.entry(&node).unwrap().progress.sync_requested.unwrap();
    let age = Timestamp::now().duration_since(requested.at);
    assert!(age < SignedDuration::from_mins(1), "its time began anew when it was sent: {age:?}");
}

#[tokio::test]
async fn time_in_which_nobody_conducts_the_run_does_not_count_against_a_request_that_argo_cd_did_not_take() {
    let plan = Arc::new(plan(15, 60));
    let mut fake = Fake::default();
    put_header(&mut fake, &plan, false);
    put_lease(&mut fake, plan.run.as_str());
    let (cluster, fake) = served(fake).await;
    let recorder = Recorder::open(&cluster, "argo", plan.clone()).await.unwrap();
    let kept = Kept { deaf: Some(StatusCode::SERVICE_UNAVAILABLE), ..Kept::new("old", "new", "new") };
    let mut reads = kept.reads.subscribe();
    let kept = Arc::new(Mutex::new(kept));
    let prover = prover(&serve(kept.clone()).await, &plan, recorder);
    let node: NodeId = "shop/api".parse().unwrap();
    let mut proving = std::pin::pin!(prover.prove(&node, Mode::Run));
    // Read before it was asked for, and before it was asked for again: about once a second from then on.
    until_read(proving.as_mut(), &mut reads, 2).await;
    put_lease(&mut fake.lock().unwrap(), "");
    until_read(proving.as_mut(), &mut reads, 20).await;
    kept.lock().unwrap().deaf = None;
    put_lease(&mut fake.lock().unwrap(), plan.run.as_str());
    until_proven(proving).await;
    assert_eq!(kept.lock().unwrap().syncs, 1);
}

#[tokio::test]
async fn time_in_which_argo_cd_cannot_be_read_does_not_count_against_a_request_that_it_did_not_take() {
    let plan = Arc::new(plan(2, 60));
    let kept = Kept { deaf: Some(StatusCode::SERVICE_UNAVAILABLE), ..Kept::new("old", "new", "new") };
    let mut reads = kept.reads.subscribe();
    let kept = Arc::new(Mutex::new(kept));
    let prover = prover(&serve(kept.clone()).await, &plan, Recorder::in_memory(plan.clone()));
    let node: NodeId = "shop/api".parse().unwrap();
    let mut proving = std::pin::pin!(prover.prove(&node, Mode::Run));
    // Read before it was asked for; from then on it is away, for longer than a sync may take.
    until_read(proving.as_mut(), &mut reads, 1).await;
    {
        let mut kept = kept.lock().unwrap();
        (kept.silent, kept.deaf) = (8, None);
    }
    until_proven(proving).await;
    assert_eq!(kept.lock().unwrap().syncs, 1);
}

#[tokio::test]
async fn a_sync_that_argo_cd_refuses_fails_in_its_time_also_where_not_every_read_is_answered() {
    let refused = Kept { deaf: Some(StatusCode::FORBIDDEN), halting: true, ..Kept::new("old", "new", "new") };
    let (decision, _, syncs) = within(3, 60, refused).await;
    let Decision::Failed(failure) = decision else { panic!("{decision:?}") };
    assert!(matches!(&failure.why, Why::SyncNotStarted { .. }) && syncs == 0, "{failure:?}");
}
