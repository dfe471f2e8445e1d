//! Planted states of a small platform, and what is said about each.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::exit::Exit;
use crate::finding::{Finding, Place};
use crate::gate::{
    ApplicationState, Container, ContainerKey, Content, Folder, Freshness, GitContent, Health, HealthRule, LiveObject,
    ObjectRef, Operation, RenderReceipt, Retry, SyncState, Timeouts, Tree, Unwell, Wanted, Workload,
};
use crate::preflight::{Component, needed};
use crate::render::{Page, html};
use crate::view::{ApplicationFacts, sample};

const COMMIT: &str = "3f2a9c1d5e7b80416a2c9d3e5f70b1a4c6d8e9f0";
const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const OTHER: &str = "sha256:fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210";

/// Every sort of cause, and every reason of the gate.
pub(crate) fn every_cause() -> Vec<Cause> {
    let text = || "something".to_owned();
    let mut all: Vec<Cause> = sample::every_why().into_iter().map(Cause::Failed).collect();
    all.extend(sample::every_wait().into_iter().map(Cause::Waits));
    all.extend([
        Cause::Syncing { by: text() },
        Cause::SyncHangs { by: text(), age: STALE_AFTER },
        Cause::Going { age: STALE_AFTER, settled: true },
        Cause::Going { age: STALE_AFTER, settled: false },
        Cause::SyncFailed { message: text(), in_sync: true },
        Cause::SyncFailed { message: String::new(), in_sync: false },
        Cause::Drift { resources: vec![text()] },
        Cause::Drift { resources: Vec::new() },
        Cause::NotCompared { age: None, limit: STALE_AFTER },
        Cause::NotCompared { age: Some(STALE_AFTER), limit: STALE_AFTER },
        Cause::OldCommit { commit: COMMIT.parse().unwrap() },
        Cause::LaterCommit,
        Cause::OldCheckout { branch: text(), tip: text() },
        Cause::WrongDigest {
            container: "Deployment/shop/api/api".parse().unwrap(),
            wanted: DIGEST.parse().unwrap(),
            running: OTHER.parse().unwrap(),
            settled: true,
        },
        Cause::Extra { why: text() },
        Cause::NotRead { what: text(), why: text() },
        Cause::NotRead { what: text(), why: String::new() },
        Cause::Rule { code: Code::MutableTag, object: text(), message: text(), fix: None },
        Cause::Rule {
            code: Code::MutableTag,
            object: text(),
            message: text(),
            fix: Some("write the digest: `name@sha256:…`".to_owned()),
        },
        Cause::Claimed { object: text(), by: text() },
        Cause::Controller { what: text(), down: true },
        Cause::NotServed { kinds: vec![text()] },
        Cause::NoProject,
        Cause::Held { run: text(), well: vec![text()], unknown: vec![text()] },
        Cause::ConfigMissing,
        Cause::ConfigDiffers { keys: vec![text()] },
    ]);
    all
}

fn now() -> Timestamp {
    sample::at(100_000)
}

fn ago(seconds: i64) -> Timestamp {
    sample::at(100_000 - seconds)
}

fn object(kind: &str, name: &str) -> ObjectRef {
    ObjectRef {
        api_version: "v1".to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        namespace: Some("shop".to_owned()),
    }
}

fn wanted(node: &str, application: &str, content: Content) -> Wanted {
    let seconds = Duration::from_seconds;
    Wanted {
        node: node.parse().unwrap(),
        application: application.parse().unwrap(),
        run: "dev-0123456789".parse().unwrap(),
        predecessors: Vec::new(),
        content,
        images: Default::default(),
        requires: Vec::new(),
        health: Vec::new(),
        timeouts: Timeouts { sync: seconds(300), health: seconds(600) },
        retry: Retry { limit: 3, backoff: seconds(5), factor: 2, max: seconds(120) },
    }
}

fn deployment(image: &str, environment: &Value) -> LiveManifest {
    LiveManifest {
        id: "Deployment/shop/api".to_owned(),
        value: json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": "api", "namespace": "shop",
                "annotations": {"argocd.argoproj.io/tracking-id": "dev-a-one:apps/Deployment:shop/api"},
            },
            "spec": {"template": {"spec": {"containers": [{"name": "api", "image": image, "env": environment}]}}},
        }),
    }
}

fn pinned(digest: &str) -> String {
    format!("registry.example.com/api@{digest}")
}

fn container(name: &str, image: Option<&str>) -> Container {
    Container {
        key: ContainerKey::new("Deployment/shop/api", name).unwrap(),
        running: true,
        image: image.map(|digest| digest.parse().unwrap()),
        restarts: 0,
        held_back: false,
        started: Some(ago(5000)),
    }
}

fn release() -> Content {
    Content::Release { commit: COMMIT.parse().unwrap(), digest: DIGEST.parse().unwrap(), pointer: None, output: None }
}

fn rendered(release: &str) -> RenderReceipt {
    let some = || DIGEST.parse().unwrap();
    RenderReceipt { pointer: some(), release: release.parse().unwrap(), output: some() }
}

fn application() -> LiveApplication {
    LiveApplication {
        facts: ApplicationFacts {
            sync: Some("Synced".to_owned()),
            health: Some("Healthy".to_owned()),
            since: Some(ago(5000)),
            project: Some("dev".to_owned()),
            destination: Some("shop".to_owned()),
            revisions: vec![COMMIT.to_owned()],
            compared: Some(ago(60)),
            changed: Some(ago(5000)),
            local: true,
            ..ApplicationFacts::default()
        },
        state: ApplicationState {
            operation: Some(Operation { nonce: None, phase: crate::gate::Phase::Succeeded, message: String::new() }),
            refresh: Freshness::Answered,
            refresh_asked_at: None,
            sync: SyncState::Synced,
            health: Health::Healthy,
            unwell: None,
            conditions: Vec::new(),
            resources: 2,
            revisions: vec![COMMIT.to_owned()],
            git: Some(GitContent { contains_commit: true, folder: Folder::Same, error: None }),
            render: None,
            render_unread: false,
            tree: None,
        },
        tree: Looked::Saw(Tree {
            workloads: vec![Workload {
                id: "Deployment/shop/api".to_owned(),
                generation: 2,
                observed_generation: Some(2),
            }],
            containers: vec![container("api", Some(DIGEST)), container("injected", Some(OTHER))],
            objects: Vec::new(),
        }),
        required: vec![
            LiveObject { object: object("ConfigMap", "ready"), value: Some(json!({"data": {}})) },
            LiveObject { object: object("CephCluster", "main"), value: Some(json!({"status": {"phase": "Ready"}})) },
        ],
        vanished: Vec::new(),
        objects: vec![deployment(&pinned(DIGEST), &json!([]))],
        unread: Vec::new(),
    }
}

fn node(node: &str, application_id: &str, content: Content) -> NodeFacts {
    let wanted = wanted(node, application_id, content);
    NodeFacts { wanted, application: Looked::Saw(Some(application())), allowed: BTreeSet::new() }
}

fn workload(component: &str, name: &str, wanted: u64, ready: u64) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "argocd", "labels": {"app.kubernetes.io/part-of": component}},
        "spec": {"replicas": wanted}, "status": {"readyReplicas": ready},
    })
}

fn controller(component: Component, workloads: Vec<Value>) -> ControllerFacts {
    ControllerFacts {
        component,
        namespace: "argocd".to_owned(),
        workloads: Looked::Saw(workloads),
        served: Looked::Saw(needed(component).iter().map(|plural| (*plural).to_owned()).collect()),
    }
}

/// What Argo CD consists of, with so many pods of its repo server that are wanted and ready.
fn argocd(wanted: u64, ready: u64) -> Vec<Value> {
    vec![
        workload("argocd", "argocd-application-controller", 1, 1),
        workload("argocd", "argocd-repo-server", wanted, ready),
    ]
}

/// Two nodes of the repository and one of elsewhere, all of them well, and so is what they rest on.
fn healthy() -> Facts {
    let git = || Content::Git { commit: COMMIT.parse().unwrap() };
    let mut two = node("b/two", "argocd/dev-b-two", git());
    two.wanted.requires = vec![object("ConfigMap", "ready")];
    two.wanted.health =
        vec![HealthRule { object: object("CephCluster", "main"), expr: "object.status.phase == 'Ready'".to_owned() }];
    let mut proxy = node("argocd/proxy", "argocd/proxy", Content::Revisions { revisions: vec![COMMIT.to_owned()] });
    for node in [&mut two, &mut proxy] {
        of(node).objects.clear();
    }
    Facts {
        environment: "dev".parse().unwrap(),
        scope: Scope::Platform,
        context: "kind".to_owned(),
        commit: COMMIT.parse().unwrap(),
        branch: Branch::Holds,
        nodes: vec![node("a/one", "argocd/dev-a-one", git()), two, proxy],
        known: ["dev-a-one", "dev-b-two", "proxy"].map(str::to_owned).into(),
        strangers: Looked::Saw(Vec::new()),
        controllers: vec![
            controller(Component::Cd, argocd(1, 1)),
            controller(Component::Workflows, vec![workload("argo-workflows", "workflow-controller", 1, 1)]),
        ],
        project: Looked::Saw(Some(json!({"spec": {}}))),
        holder: Looked::Saw(None),
        configs: vec![ConfigFacts {
            name: "dev".to_owned(),
            wanted: json!({"domain": "dev.example.com"}),
            live: Looked::Saw(Some(json!({"data": {"domain": "dev.example.com"}}))),
        }],
        stale_after: STALE_AFTER,
        allowed: BTreeSet::new(),
        notes: Vec::new(),
    }
}

/// The live Application of a node.
fn of(node: &mut NodeFacts) -> &mut LiveApplication {
    match &mut node.application {
        Looked::Saw(Some(application)) => application,
        other => panic!("{other:?}"),
    }
}

fn one(facts: &mut Facts) -> &mut LiveApplication {
    of(&mut facts.nodes[0])
}

fn two(facts: &mut Facts) -> &mut LiveApplication {
    of(&mut facts.nodes[1])
}

fn tree(application: &mut LiveApplication) -> &mut Tree {
    match &mut application.tree {
        Looked::Saw(tree) => tree,
        other => panic!("{other:?}"),
    }
}

/// With another health since so many seconds.
fn health(facts: &mut Facts, health: Health, since: i64) {
    let application = one(facts);
    application.state.health = health;
    application.facts.health = Some(health.to_string());
    (application.facts.since, application.facts.changed) = (Some(ago(since)), Some(ago(since)));
}

fn window(facts: &mut Facts, list: &Value) {
    facts.project = Looked::Saw(Some(json!({"spec": {"syncWindows": list}})));
}

fn ours(names: &[&str]) -> Value {
    json!([{
        "kind": "deny", "schedule": "* * * * *", "duration": "24h", "manualSync": true, "applications": names,
        "description": "forge-orchestration dev-1",
    }])
}

fn refused() -> String {
    "pods is forbidden".to_owned()
}

const WELL: Verdict = Verdict::Healthy;
const DOUBT: Verdict = Verdict::NotKnown;
const HALF: Verdict = Verdict::Degraded;
const BAD: Verdict = Verdict::Unhealthy;

/// A state: its name, how it is planted, what is true of the whole, and what is said of which component.
type Case = (&'static str, fn(&mut Facts), Verdict, &'static [(&'static str, &'static str)]);

const CASES: &[Case] = &[
    ("nothing is wrong", |_| {}, WELL, &[]),
    // Health.
    ("an Application is missing", |f| f.nodes[0].application = Looked::Saw(None), BAD, &[("a/one", "missing")]),
    ("Degraded for long", |f| health(f, Health::Degraded, 5000), BAD, &[("a/one", "unhealthy")]),
    ("Degraded a moment ago", |f| health(f, Health::Degraded, 30), HALF, &[("a/one", "unhealthy")]),
    ("Progressing a moment ago", |f| health(f, Health::Progressing, 30), HALF, &[("a/one", "progressing")]),
    ("Progressing for long", |f| health(f, Health::Progressing, 5000), BAD, &[("a/one", "unhealthy")]),
    ("Suspended for long", |f| health(f, Health::Suspended, 5000), BAD, &[("a/one", "unhealthy")]),
    ("its resources are Missing", |f| health(f, Health::Missing, 5000), BAD, &[("a/one", "unhealthy")]),
    ("its health is Unknown", |f| health(f, Health::Unknown, 5000), BAD, &[("a/one", "unhealthy")]),
    ("it manages nothing", |f| one(f).state.resources = 0, BAD, &[("a/one", "unhealthy")]),
    (
        "Argo CD cannot compare, for long",
        |f| one(f).state.conditions = vec!["rpc error".to_owned()],
        BAD,
        &[("a/one", "unhealthy")],
    ),
    (
        "Argo CD cannot compare, since a moment",
        |f| {
            one(f).state.conditions = vec!["rpc error".to_owned()];
            one(f).facts.changed = Some(ago(10));
        },
        HALF,
        &[("a/one", "unhealthy")],
    ),
    (
        "a container crashes again and again while Argo CD says Healthy",
        |f| {
            let container = &mut tree(one(f)).containers[0];
            (container.running, container.held_back) = (false, true);
        },
        BAD,
        &[("a/one", "unhealthy")],
    ),
    (
        "a container was started again a moment ago",
        |f| {
            let container = &mut tree(one(f)).containers[0];
            (container.restarts, container.started) = (1, Some(ago(5)));
        },
        HALF,
        &[("a/one", "progressing")],
    ),
    (
        "a container was started again a while ago",
        |f| {
            let container = &mut tree(one(f)).containers[0];
            (container.restarts, container.started) = (1, Some(ago(50)));
        },
        WELL,
        &[],
    ),
    (
        "a controller has not caught up, for long",
        |f| tree(one(f)).workloads[0].observed_generation = None,
        BAD,
        &[("a/one", "unhealthy")],
    ),
    (
        "a controller has not caught up with a change of a moment ago",
        |f| {
            tree(one(f)).workloads[0].generation = 3;
            one(f).facts.changed = Some(ago(2));
        },
        HALF,
        &[("a/one", "progressing")],
    ),
    // Drift and operations.
    ("it drifted", |f| one(f).state.sync = SyncState::OutOfSync, HALF, &[("a/one", "drift")]),
    (
        "it drifted and is not well: both are told",
        |f| {
            health(f, Health::Degraded, 5000);
            one(f).state.sync = SyncState::OutOfSync;
        },
        BAD,
        &[("a/one", "drift"), ("a/one", "unhealthy")],
    ),
    (
        "Argo CD does not know whether it drifted",
        |f| one(f).state.sync = SyncState::Unknown,
        DOUBT,
        &[("a/one", "not-known")],
    ),
    (
        "the last sync failed and left a difference",
        |f| {
            let state = &mut one(f).state;
            state.sync = SyncState::OutOfSync;
            state.operation.as_mut().unwrap().phase = crate::gate::Phase::Failed;
        },
        BAD,
        &[("a/one", "unhealthy"), ("a/one", "drift")],
    ),
    (
        "the last sync failed and left no difference",
        |f| one(f).state.operation.as_mut().unwrap().phase = crate::gate::Phase::Error,
        HALF,
        &[("a/one", "unhealthy")],
    ),
    (
        "a sync runs",
        |f| one(f).state.operation.as_mut().unwrap().phase = crate::gate::Phase::Running,
        HALF,
        &[("a/one", "progressing")],
    ),
    (
        "a sync runs for longer than a run would wait for it",
        |f| {
            one(f).state.operation.as_mut().unwrap().phase = crate::gate::Phase::Running;
            one(f).facts.syncing = Some(ago(601));
        },
        BAD,
        &[("a/one", "unhealthy")],
    ),
    (
        "a sync runs that began a while ago, and it drifted",
        |f| {
            one(f).state.operation.as_mut().unwrap().phase = crate::gate::Phase::Terminating;
            one(f).facts.syncing = Some(ago(590));
            one(f).state.sync = SyncState::OutOfSync;
        },
        HALF,
        &[("a/one", "progressing"), ("a/one", "drift")],
    ),
    ("a sync that ended is none, however long ago it began", |f| one(f).facts.syncing = Some(ago(5000)), WELL, &[]),
    // On its way out.
    ("it is being deleted", |f| one(f).facts.deleting = Some(ago(10)), HALF, &[("a/one", "missing")]),
    (
        "it is being deleted, and something keeps it",
        |f| one(f).facts.deleting = Some(ago(301)),
        BAD,
        &[("a/one", "missing")],
    ),
    (
        "a member that Argo CD calls Synced is not there",
        |f| one(f).vanished = vec![object("ConfigMap", "gone")],
        BAD,
        &[("a/one", "missing")],
    ),
    (
        "a member is not there since a moment",
        |f| {
            one(f).vanished = vec![object("ConfigMap", "gone")];
            one(f).facts.changed = Some(ago(5));
        },
        HALF,
        &[("a/one", "missing")],
    ),
    // Stale.
    ("compared long ago", |f| one(f).facts.compared = Some(ago(601)), HALF, &[("a/one", "stale")]),
    ("compared just within the limit", |f| one(f).facts.compared = Some(ago(600)), WELL, &[]),
    ("never compared", |f| one(f).facts.compared = None, HALF, &[("a/one", "stale")]),
    (
        "compared with an older commit",
        |f| one(f).state.git = Some(GitContent { contains_commit: false, folder: Folder::Unknown, error: None }),
        HALF,
        &[("a/one", "stale")],
    ),
    (
        "compared with an older commit, and not well",
        |f| {
            health(f, Health::Degraded, 5000);
            one(f).state.git = Some(GitContent { contains_commit: false, folder: Folder::Unknown, error: None });
        },
        BAD,
        &[("a/one", "stale"), ("a/one", "unhealthy")],
    ),
    (
        "compared with a later commit that changed its folder",
        |f| one(f).state.git = Some(GitContent { contains_commit: true, folder: Folder::Changed, error: None }),
        HALF,
        &[("a/one", "stale")],
    ),
    (
        "the branch holds another commit",
        |f| f.branch = Branch::Moved { branch: "main".to_owned(), tip: "fedcba".to_owned() },
        HALF,
        &[("repository", "stale")],
    ),
    // What runs.
    (
        "a pod runs another image than its workload says",
        |f| tree(one(f)).containers[0].image = Some(OTHER.parse().unwrap()),
        BAD,
        &[("a/one", "wrong-digest")],
    ),
    (
        "one of two pods runs another image",
        |f| tree(one(f)).containers.push(container("api", Some(OTHER))),
        BAD,
        &[("a/one", "wrong-digest")],
    ),
    (
        "old pods run while new ones are rolled out",
        |f| {
            health(f, Health::Progressing, 10);
            tree(one(f)).containers.push(container("api", Some(OTHER)));
        },
        HALF,
        &[("a/one", "progressing"), ("a/one", "wrong-digest")],
    ),
    (
        "old pods run while new ones are rolled out, which Argo CD has not noticed",
        |f| {
            tree(one(f)).containers[0].image = Some(OTHER.parse().unwrap());
            one(f).objects[0].value["status"] = json!({"replicas": 2, "updatedReplicas": 1});
        },
        HALF,
        &[("a/one", "wrong-digest")],
    ),
    (
        "old pods stay where nobody replaces them",
        |f| {
            tree(one(f)).containers[0].image = Some(OTHER.parse().unwrap());
            let value = &mut one(f).objects[0].value;
            value["spec"]["updateStrategy"] = json!({"type": "OnDelete"});
            value["status"] = json!({"currentNumberScheduled": 2, "updatedNumberScheduled": 1});
        },
        BAD,
        &[("a/one", "wrong-digest")],
    ),
    (
        "a pod that stands for itself runs another image than it names",
        |f| {
            let value = json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "tool", "namespace": "shop"},
                "spec": {"containers": [{"name": "tool", "image": pinned(DIGEST)}]},
            });
            one(f).objects.push(LiveManifest { id: "Pod/shop/tool".to_owned(), value });
            let key = ContainerKey::new("Pod/shop/tool", "tool").unwrap();
            tree(one(f)).containers.push(Container { key, ..container("tool", Some(OTHER)) });
        },
        BAD,
        &[("a/one", "wrong-digest")],
    ),
    (
        "what does not run is not compared",
        |f| {
            let mut old = container("api", Some(OTHER));
            old.running = false;
            tree(one(f)).containers.push(old);
        },
        WELL,
        &[],
    ),
    (
        "a container does not show its image",
        |f| tree(one(f)).containers[0].image = None,
        DOUBT,
        &[("a/one", "not-known")],
    ),
    (
        "a container runs another image than its release says",
        |f| {
            let key = ContainerKey::new("Deployment/shop/api", "injected").unwrap();
            f.nodes[0].wanted.images = [(key, DIGEST.parse().unwrap())].into();
        },
        BAD,
        &[("a/one", "wrong-digest")],
    ),
    (
        "the wanted release was not rendered",
        |f| {
            f.nodes[0].wanted.content = release();
        },
        BAD,
        &[("a/one", "wrong-digest")],
    ),
    (
        "the wanted release was rendered",
        |f| {
            f.nodes[0].wanted.content = release();
            one(f).state.render = Some(rendered(DIGEST));
        },
        WELL,
        &[],
    ),
    (
        "another release was rendered although Argo CD calls it Synced",
        |f| {
            f.nodes[0].wanted.content = release();
            one(f).state.render = Some(rendered(OTHER));
        },
        BAD,
        &[("a/one", "wrong-digest")],
    ),
    (
        "the wanted release was rendered to something else",
        |f| {
            let mut content = release();
            if let Content::Release { output, .. } = &mut content {
                *output = Some(OTHER.parse().unwrap());
            }
            f.nodes[0].wanted.content = content;
            one(f).state.render = Some(rendered(DIGEST));
        },
        BAD,
        &[("a/one", "wrong-digest")],
    ),
    (
        "a release that is not synced yet has other images, and that follows",
        |f| {
            let key = ContainerKey::new("Deployment/shop/api", "api").unwrap();
            f.nodes[0].wanted.images = [(key, OTHER.parse().unwrap())].into();
            f.nodes[0].wanted.content = release();
            one(f).state.render = Some(rendered(OTHER));
            one(f).state.sync = SyncState::OutOfSync;
        },
        HALF,
        &[("a/one", "drift")],
    ),
    (
        "an image was changed by hand after the release was rendered: both are told",
        |f| {
            let key = ContainerKey::new("Deployment/shop/api", "api").unwrap();
            f.nodes[0].wanted.images = [(key, OTHER.parse().unwrap())].into();
            f.nodes[0].wanted.content = release();
            one(f).state.render = Some(rendered(DIGEST));
            one(f).state.sync = SyncState::OutOfSync;
        },
        BAD,
        &[("a/one", "wrong-digest"), ("a/one", "drift")],
    ),
    // Objects that are required.
    ("a required object is missing", |f| two(f).required[0].value = None, BAD, &[("b/two", "missing")]),
    (
        "a required object is missing since a moment",
        |f| {
            two(f).required[0].value = None;
            two(f).facts.changed = Some(ago(20));
        },
        HALF,
        &[("b/two", "missing")],
    ),
    (
        "a rule does not hold",
        |f| two(f).required[1].value = Some(json!({"status": {"phase": "Error"}})),
        BAD,
        &[("b/two", "unhealthy")],
    ),
    (
        "a rule cannot be used, and an object is missing: both are told",
        |f| {
            f.nodes[1].wanted.health[0].expr = "self.status == 1".to_owned();
            two(f).required[0].value = None;
        },
        BAD,
        &[("b/two", "unhealthy"), ("b/two", "missing")],
    ),
    (
        "a required object may not be read",
        |f| {
            let object = object("ConfigMap", "ready");
            two(f).required.remove(0);
            let unread = Unread { what: object.to_string(), why: refused(), object: Some(object) };
            two(f).unread.push(unread);
        },
        DOUBT,
        &[("b/two", "not-known")],
    ),
    // What may not be read.
    ("pods may not be read", |f| one(f).tree = Looked::NotPermitted(refused()), DOUBT, &[("a/one", "not-known")]),
    (
        "pods may not be read, and it is not well",
        |f| {
            health(f, Health::Degraded, 5000);
            one(f).tree = Looked::NotPermitted(refused());
        },
        BAD,
        &[("a/one", "unhealthy"), ("a/one", "not-known")],
    ),
    (
        "pods may not be read, and what it requires is missing: both are told",
        |f| {
            two(f).tree = Looked::NotPermitted(refused());
            two(f).required[0].value = None;
        },
        BAD,
        &[("b/two", "not-known"), ("b/two", "missing")],
    ),
    (
        "pods may not be read, and a rule does not hold: both are told",
        |f| {
            two(f).tree = Looked::NotPermitted(refused());
            two(f).required[1].value = Some(json!({"status": {"phase": "Error"}}));
        },
        BAD,
        &[("b/two", "not-known"), ("b/two", "unhealthy")],
    ),
    (
        "nothing of it could be read: nobody says that something is missing",
        |f| {
            two(f).tree = Looked::Failed("502".to_owned());
            two(f).required.clear();
        },
        DOUBT,
        &[("b/two", "not-known")],
    ),
    (
        "an Application may not be read",
        |f| f.nodes[0].application = Looked::NotPermitted(refused()),
        DOUBT,
        &[("a/one", "not-known")],
    ),
    (
        "an Application could not be read",
        |f| f.nodes[0].application = Looked::Failed("502".to_owned()),
        DOUBT,
        &[("a/one", "not-known")],
    ),
    (
        "a member may not be read",
        |f| one(f).unread.push(Unread { what: "ConfigMap/shop/x".to_owned(), why: refused(), object: None }),
        DOUBT,
        &[("a/one", "not-known")],
    ),
    (
        "the repository could not be read",
        |f| {
            let error = Some("no route to host".to_owned());
            one(f).state.git = Some(GitContent { contains_commit: true, folder: Folder::Unknown, error });
        },
        DOUBT,
        &[("a/one", "not-known")],
    ),
    (
        "the branch could not be asked",
        |f| f.branch = Branch::NotRead { branch: "main".to_owned() },
        DOUBT,
        &[("repository", "not-known")],
    ),
    (
        "Applications may not be listed",
        |f| f.strangers = Looked::NotPermitted(refused()),
        DOUBT,
        &[("other Applications", "not-known")],
    ),
    // Rules on live objects.
    (
        "an image is not fixed by digest",
        |f| one(f).objects = vec![deployment("registry.example.com/api:v1", &json!([]))],
        HALF,
        &[("a/one", "policy")],
    ),
    (
        "a secret stands in plain text",
        |f| {
            let environment = json!([{"name": "DB_PASSWORD", "value": "hunter2hunter2"}]);
            one(f).objects = vec![deployment(&pinned(DIGEST), &environment)];
        },
        HALF,
        &[("a/one", "policy")],
    ),
    (
        "a rule that somebody allows does not count",
        |f| {
            one(f).objects = vec![deployment("registry.example.com/api:v1", &json!([]))];
            f.allowed.insert(Code::MutableTag);
        },
        WELL,
        &[],
    ),
    (
        "a rule that the repository allows does not count",
        |f| {
            one(f).objects = vec![deployment("registry.example.com/api:v1", &json!([]))];
            f.nodes[0].allowed.insert(Code::MutableTag);
        },
        WELL,
        &[],
    ),
    (
        "an object is claimed by another Application",
        |f| {
            let annotations = &mut one(f).objects[0].value["metadata"]["annotations"];
            annotations["argocd.argoproj.io/tracking-id"] = json!("dev-other:apps/Deployment:shop/api");
        },
        HALF,
        &[("a/one", "tracking")],
    ),
    (
        "a mark that was copied from another object claims nothing",
        |f| {
            let annotations = &mut one(f).objects[0].value["metadata"]["annotations"];
            annotations["argocd.argoproj.io/tracking-id"] = json!("dev-other:apps/Deployment:shop/else");
        },
        WELL,
        &[],
    ),
    (
        "a mark that was copied from its namesake elsewhere claims nothing",
        |f| {
            let annotations = &mut one(f).objects[0].value["metadata"]["annotations"];
            annotations["argocd.argoproj.io/tracking-id"] = json!("dev-other:apps/Deployment:other/api");
        },
        WELL,
        &[],
    ),
    // Extra.
    (
        "an Application that Git does not have",
        |f| {
            let stranger = Stranger {
                application: "argocd/dev-old".to_owned(),
                why: "its path is gone from Git".to_owned(),
                live: ApplicationFacts::default(),
            };
            f.strangers = Looked::Saw(vec![stranger]);
        },
        HALF,
        &[("argocd/dev-old", "extra")],
    ),
    // Controllers.
    (
        "a controller has no pod",
        |f| f.controllers[0].workloads = Looked::Saw(argocd(1, 0)),
        BAD,
        &[("Argo CD", "controller")],
    ),
    (
        "a controller has some of its pods",
        |f| f.controllers[0].workloads = Looked::Saw(argocd(2, 1)),
        HALF,
        &[("Argo CD", "controller")],
    ),
    (
        "a controller that everything needs is scaled to zero",
        |f| f.controllers[1].workloads = Looked::Saw(vec![workload("argo-workflows", "workflow-controller", 0, 0)]),
        BAD,
        &[("Argo Workflows", "controller")],
    ),
    (
        "one that nobody needs is scaled to zero",
        |f| {
            let mut all = argocd(1, 1);
            all.push(workload("argocd", "argocd-dex-server", 0, 0));
            f.controllers[0].workloads = Looked::Saw(all);
        },
        WELL,
        &[],
    ),
    (
        "a controller that everything needs is gone while the others are well",
        |f| f.controllers[0].workloads = Looked::Saw(argocd(1, 1).split_off(1)),
        BAD,
        &[("Argo CD", "controller")],
    ),
    (
        "the server that runs ask is scaled to zero",
        |f| {
            let mut all = argocd(1, 1);
            all.push(workload("argocd", "argocd-server", 0, 0));
            f.controllers[0].workloads = Looked::Saw(all);
        },
        BAD,
        &[("Argo CD", "controller")],
    ),
    (
        "nothing of Argo CD is there",
        |f| f.controllers[0].workloads = Looked::Saw(vec![workload("argo-workflows", "workflow-controller", 1, 1)]),
        BAD,
        &[("Argo CD", "controller")],
    ),
    (
        "controllers may not be read",
        |f| f.controllers[0].workloads = Looked::NotPermitted(refused()),
        DOUBT,
        &[("Argo CD", "not-known")],
    ),
    (
        "a kind of Argo is not served",
        |f| {
            if let Looked::Saw(served) = &mut f.controllers[1].served {
                served.remove("workflowtasksets");
            }
        },
        BAD,
        &[("Argo Workflows", "controller")],
    ),
    // Windows.
    ("the AppProject is missing", |f| f.project = Looked::Saw(None), BAD, &[("AppProject dev", "window")]),
    (
        "the AppProject may not be read",
        |f| f.project = Looked::NotPermitted(refused()),
        DOUBT,
        &[("AppProject dev", "not-known")],
    ),
    (
        "a window was left that holds what is well",
        |f| window(f, &ours(&["dev-a-one"])),
        HALF,
        &[("AppProject dev", "window")],
    ),
    (
        "a window that holds what is not well is right",
        |f| {
            f.nodes[0].application = Looked::Saw(None);
            window(f, &ours(&["dev-a-one"]));
        },
        BAD,
        &[("a/one", "missing")],
    ),
    ("a window holds what no node has", |f| window(f, &ours(&["dev-gone"])), HALF, &[("AppProject dev", "window")]),
    (
        "the window of a run that is in progress",
        |f| {
            window(f, &ours(&["dev-a-one"]));
            let holder = Holder { run: "dev-1".to_owned(), renewed: Some(ago(1)), lasts: 60 };
            f.holder = Looked::Saw(Some(holder));
        },
        WELL,
        &[],
    ),
    (
        "the window of a run whose Lease nobody renews",
        |f| {
            window(f, &ours(&["dev-a-one"]));
            let holder = Holder { run: "dev-1".to_owned(), renewed: Some(ago(600)), lasts: 60 };
            f.holder = Looked::Saw(Some(holder));
        },
        HALF,
        &[("AppProject dev", "window")],
    ),
    (
        "a window holds what is well, and whether its run is in progress may not be read",
        |f| {
            window(f, &ours(&["dev-a-one"]));
            f.holder = Looked::NotPermitted("leases is forbidden".to_owned());
        },
        DOUBT,
        &[("AppProject dev", "not-known")],
    ),
    (
        "a window holds nothing that is well: whether a run is in progress does not matter",
        |f| {
            f.nodes[0].application = Looked::Saw(None);
            window(f, &ours(&["dev-a-one"]));
            f.holder = Looked::NotPermitted("leases is forbidden".to_owned());
        },
        BAD,
        &[("a/one", "missing")],
    ),
    (
        "a window of somebody else that refuses the syncs of a run",
        |f| window(f, &json!([{"kind": "allow", "schedule": "0 9 * * 1-5", "duration": "8h"}])),
        HALF,
        &[("AppProject dev", "policy")],
    ),
    // EnvironmentConfigs.
    (
        "an EnvironmentConfig is missing",
        |f| f.configs[0].live = Looked::Saw(None),
        BAD,
        &[("EnvironmentConfig dev", "config")],
    ),
    (
        "an EnvironmentConfig differs",
        |f| f.configs[0].live = Looked::Saw(Some(json!({"data": {"domain": "other.example.com", "more": 1}}))),
        HALF,
        &[("EnvironmentConfig dev", "config")],
    ),
    (
        "an EnvironmentConfig is the same as the API server writes it",
        |f| {
            f.configs[0].wanted = json!({"ratio": 1.0, "none": null, "of": [{"x": null, "y": 2}]});
            f.configs[0].live = Looked::Saw(Some(json!({"data": {"ratio": 1, "of": [{"y": 2.0}]}})));
        },
        WELL,
        &[],
    ),
    (
        "an EnvironmentConfig differs deep inside",
        |f| {
            f.configs[0].wanted = json!({"of": [{"y": 2}]});
            f.configs[0].live = Looked::Saw(Some(json!({"data": {"of": [{"y": 2, "z": false}]}})));
        },
        HALF,
        &[("EnvironmentConfig dev", "config")],
    ),
    (
        "an EnvironmentConfig may not be read",
        |f| f.configs[0].live = Looked::NotPermitted(refused()),
        DOUBT,
        &[("EnvironmentConfig dev", "not-known")],
    ),
];

#[test]
fn every_planted_state_is_told_and_nothing_else() {
    assert!(CASES.len() >= 90, "{}", CASES.len());
    for (name, plant, verdict, expected) in CASES {
        let mut facts = healthy();
        plant(&mut facts);
        let report = judge(&facts, ago(3), now()).report;
        let told: BTreeSet<(&str, &str)> =
            report.failures.iter().map(|problem| (problem.component.as_str(), problem.kind.as_str())).collect();
        assert_eq!(told, expected.iter().copied().collect(), "{name}: {:#?}", report.failures);
        assert_eq!(report.verdict, verdict.as_str(), "{name}: {:#?}", report.failures);
        assert_eq!((report.exit, report.exit()), (verdict.exit() as u8, verdict.exit()), "{name}");
        for problem in &report.failures {
            assert!(!problem.diagnosis.is_empty() && problem.next.len() > 8, "{name}: {problem:?}");
            assert!(problem.code.parse::<Code>().is_ok(), "{name}: {problem:?}");
        }
        let s = &report.statistics;
        assert_eq!(s.components, s.healthy + s.degraded + s.unhealthy + s.not_known, "{name}");
        assert_eq!((s.nodes, report.components.len()), (3, s.components), "{name}");
    }
}

#[test]
fn only_rules_can_be_allowed_and_codes_are_written_as_everywhere() {
    assert_eq!(allowed("FORGE-I001, s005"), Ok([Code::MutableTag, Code::Password].into()));
    assert_eq!(allowed("B014"), Ok([Code::ForeignWindows].into()));
    for wrong in ["V002", "G001", "nothing", "", "I001,"] {
        assert!(allowed(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn exit_codes_are_those_of_the_contract_and_doubt_is_never_fine() {
    let codes = [WELL, DOUBT, HALF, BAD].map(|verdict| verdict.exit() as u8);
    assert_eq!(codes, [0, 2, 2, 1]);
    assert!(WELL < DOUBT && DOUBT < HALF && HALF < BAD);
}

#[test]
fn names_of_kinds_are_stable_and_every_cause_has_a_code_and_words_without_control_characters() {
    let mut ids: Vec<&str> = Kind::ALL.iter().map(|kind| kind.id()).collect();
    for kind in Kind::ALL {
        assert_eq!(json!(kind), kind.id());
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), Kind::ALL.len());
    for cause in every_cause() {
        let text = cause.to_string();
        assert!(!text.is_empty() && !text.contains(char::is_control), "{cause:?}: {text}");
        assert!(cause.verdict() > Verdict::Healthy, "{cause:?}");
        // Policy is the only sort whose code is not one of validate.
        let own = cause.code().id().starts_with("FORGE-V");
        assert_eq!(own, cause.kind() != Kind::Policy, "{cause:?}");
    }
}

#[test]
fn what_is_allowed_and_who_is_at_work_are_told_in_notes() {
    let mut facts = healthy();
    one(&mut facts).objects = vec![deployment("registry.example.com/api:v1", &json!([]))];
    facts.allowed.insert(Code::MutableTag);
    facts.holder = Looked::Saw(Some(Holder { run: "dev-1".to_owned(), renewed: Some(ago(1)), lasts: 60 }));
    let report = judge(&facts, ago(3), now()).report;
    assert_eq!(
        report.notes,
        [
            "allowed: a/one: FORGE-I001 Deployment/shop/api: image `registry.example.com/api:v1` is not fixed by digest",
            "run dev-1 is in progress: what it has not proven yet is on its way",
        ]
    );
}

#[test]
fn of_too_much_that_is_wrong_the_worst_is_never_what_is_left_out() {
    let mut facts = healthy();
    // More containers than anybody is told of do not show their image; the last one runs another.
    let mut names: Vec<String> = (0..40).map(|n| format!("c{n}")).collect();
    names.push("last".to_owned());
    let containers = names.iter().map(|name| json!({"name": name, "image": pinned(DIGEST)}));
    one(&mut facts).objects[0].value["spec"]["template"]["spec"]["containers"] = containers.collect();
    tree(one(&mut facts)).containers =
        names.iter().map(|name| container(name, (name == "last").then_some(OTHER))).collect();
    let judged = judge(&facts, ago(3), now());
    let report = judged.report;
    assert_eq!(report.verdict, "unhealthy", "{:#?}", report.failures);
    assert_eq!((report.failures.len(), report.failures[0].kind.as_str()), (30, "wrong-digest"));
    assert_eq!(report.notes, ["a/one: 11 more things are wrong, and not told"]);
    // A page says of a node what the report says first.
    assert_eq!(judged.nodes[0].detail, report.failures[0].diagnosis);
}

#[test]
fn a_sync_that_does_not_end_and_an_application_that_goes_are_told_with_their_time() {
    let mut facts = healthy();
    one(&mut facts).state.operation.as_mut().unwrap().phase = crate::gate::Phase::Running;
    one(&mut facts).facts.syncing = Some(ago(7200));
    one(&mut facts).facts.operation = Some("asked for by `eve`".to_owned());
    two(&mut facts).facts.deleting = Some(ago(90));
    let failures = judge(&facts, ago(3), now()).report.failures;
    let said: Vec<&str> = failures.iter().map(|problem| problem.diagnosis.as_str()).collect();
    assert_eq!(
        said,
        ["a sync runs for 2h and does not end, asked for by `eve`", "the Application is being deleted, for 1m30s"]
    );
    assert!(failures[0].next.contains("`argocd app terminate-op argocd/dev-a-one`"), "{failures:#?}");
}

#[test]
fn what_is_not_healthy_names_the_resource_behind_it_where_argo_cd_does() {
    for (health_is, kind) in [(Health::Degraded, "unhealthy"), (Health::Progressing, "progressing")] {
        let mut facts = healthy();
        health(&mut facts, health_is, 30);
        let unwell = Unwell { resource: "Deployment/shop/api".to_owned(), message: "1 of 2 updated".to_owned() };
        one(&mut facts).state.unwell = Some(unwell);
        let failures = judge(&facts, ago(3), now()).report.failures;
        assert_eq!((failures[0].kind.as_str(), failures[0].resource.as_deref()), (kind, Some("Deployment/shop/api")));
        assert!(failures[0].diagnosis.ends_with(": Deployment/shop/api: 1 of 2 updated"), "{failures:#?}");
    }
}

/// One node that is not well, one that is not known, one Application too many.
fn unwell() -> Facts {
    let mut facts = healthy();
    health(&mut facts, Health::Degraded, 5000);
    one(&mut facts).state.sync = SyncState::OutOfSync;
    one(&mut facts).facts.differs = vec!["Deployment/shop/api".to_owned()];
    facts.nodes[1].application = Looked::NotPermitted("applications is forbidden\u{1b}[2J<b>".to_owned());
    facts
}

#[test]
fn a_report_is_text_for_people_with_what_to_do_next() {
    let report = judge(&unwell(), ago(3), now()).report;
    let text = report.text();
    assert!(
        text.starts_with(
            "dev in kind, scope platform: unhealthy
6 of 8 components healthy, 1 unhealthy, 1 not known; 3 nodes held against 3f2a9c1d5e

unhealthy: a/one (Application argocd/dev-a-one)
  unhealthy    health stayed Degraded
    since      "
        ),
        "{text}"
    );
    assert!(text.contains("  drift        Argo CD sees a difference to Git: Deployment/shop/api\n"), "{text}");
    assert!(
        text.contains("    next       see what differs and who writes it: `argocd app diff argocd/dev-a-one`"),
        "{text}"
    );
    assert!(text.contains("    code       FORGE-V004\n"), "{text}");
    assert!(text.contains("\nnot known: b/two (Application argocd/dev-b-two)\n  not-known    Application"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
    let well = judge(&healthy(), ago(3), now()).report.text();
    assert_eq!(
        well,
        "dev in kind, scope platform: healthy
8 of 8 components healthy; 3 nodes held against 3f2a9c1d5e
"
    );
}

#[test]
fn every_component_is_a_test_case_and_nothing_that_is_not_healthy_is_green() {
    let xml = judge(&unwell(), ago(3), now()).report.junit();
    assert_eq!(xml.matches("tests=\"8\" failures=\"1\" errors=\"1\" skipped=\"0\" time=\"3\"").count(), 2, "{xml}");
    assert_eq!(xml.matches("<testcase ").count(), 8);
    assert!(xml.contains("<testcase classname=\"dev\" name=\"argocd/proxy\"/>"), "{xml}");
    assert!(xml.contains("<failure type=\"unhealthy\" message=\"health stayed Degraded\">FORGE-V002"), "{xml}");
    assert!(xml.contains("<error type=\"not-known\"") && !xml.contains("<b>"), "{xml}");
    let times = (ago(3), now());
    let none = ValidationReport::nothing("dev", "platform", ("failed", Exit::Findings), "no <answer>", times);
    let xml = none.junit();
    assert!(xml.contains("tests=\"1\" failures=\"0\" errors=\"1\""), "{xml}");
    assert!(xml.contains("<error type=\"failed\" message=\"no &lt;answer&gt;\"></error>"), "{xml}");
    assert!(none.text().ends_with("nothing was looked at\nno <answer>\n"), "{}", none.text());
    // Whoever has only the report must be able to put right what kept it from looking.
    let finding = Finding::new(Code::Token, Place::whole("forge.yaml"), "a <token>").with_fix("take it out");
    let told = none.because(&[finding]);
    assert!(told.text().ends_with("\nfound: forge.yaml (FORGE-S004)\n  what   a <token>\n  fix    take it out\n"));
    let line = ">forge.yaml: FORGE-S004 a &lt;token&gt;&#10;fix: take it out</error>";
    assert!(told.junit().contains(line), "{}", told.junit());
}

#[test]
fn a_page_shows_everything_as_text_and_needs_nothing_else() {
    let judged = judge(&unwell(), ago(3), now());
    let (lead, problems) = (judged.report.lead(), judged.report.lines());
    let page = html(&Page {
        title: "dev: unhealthy",
        lead: &lead,
        nodes: &judged.nodes,
        graph: None,
        strangers: &[],
        problems: &problems,
        notes: &judged.report.notes,
        now: now(),
    });
    assert!(page.contains("<td class=\"p-failed\">failed</td>") && page.contains("<h2>What is wrong</h2>"), "{page}");
    assert!(page.contains("FORGE-V002 unhealthy") && !page.contains("<b>") && !page.contains("<script"), "{page}");
}

#[test]
fn what_is_written_as_json_reads_back_the_same() {
    let report = judge(&unwell(), ago(3), now()).report;
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<ValidationReport>(&text).unwrap(), report);
    assert!(text.contains("\"notKnown\":1") && text.contains("\"kind\":\"not-known\""), "{text}");
}

#[test]
fn a_change_is_one_line_and_what_only_grew_older_is_none() {
    let before = judge(&healthy(), ago(3), now()).report;
    assert_eq!(changes(None, &before), ["healthy: 8 of 8 components healthy; 3 nodes held against 3f2a9c1d5e"]);
    assert_eq!(changes(Some(&before), &before), Vec::<String>::new());
    let mut facts = healthy();
    one(&mut facts).facts.compared = Some(ago(700));
    let stale = judge(&facts, ago(3), now()).report;
    let lines = changes(Some(&before), &stale);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(lines[0], "a/one: healthy → degraded: Argo CD has not compared it for 11m40s, and 10m is the limit");
    assert!(lines[1].starts_with("healthy → degraded: 7 of 8"), "{lines:?}");
    one(&mut facts).facts.compared = Some(ago(760));
    let older = judge(&facts, ago(3), now()).report;
    assert_eq!(changes(Some(&stale), &older), Vec::<String>::new());
    // Another thing that is wrong is a change, and so is one that is gone.
    health(&mut facts, Health::Degraded, 10);
    let worse = judge(&facts, ago(3), now()).report;
    assert_eq!(changes(Some(&older), &worse).len(), 1);
    let mut fewer = worse.clone();
    fewer.components.pop();
    assert_eq!(changes(Some(&worse), &fewer), ["repository: is not there any more"]);
}
