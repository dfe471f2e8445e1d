//! `forge platform teardown --rehearse` and `--report` through the real binary, against an API server that answers badly on
//! purpose: an empty list once, pages that end too soon, a group that is forbidden, an API that is down. What is not known is
//! never taken for absent (INV-10), and nothing is written. On a real cluster: `tests/runs/rehearse.rs`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use forge_core::teardown::inventory::{
    CleanExitReport, DIGEST_ANNOTATION, Noted, PIECES_ANNOTATION, SNAPSHOT, SNAPSHOT_KEY, Seen, Snapshot,
};
use forge_core::teardown::rehearse::{Foretold, RehearsalReport};
use serde_json::{Value, json};

/// A kind that is served: group, version, plural, kind, and whether its objects are in namespaces.
type Served = (&'static str, &'static str, &'static str, &'static str, bool);

const KINDS: [Served; 14] = [
    ("", "v1", "namespaces", "Namespace", false),
    ("", "v1", "configmaps", "ConfigMap", true),
    ("", "v1", "secrets", "Secret", true),
    ("", "v1", "services", "Service", true),
    ("", "v1", "persistentvolumes", "PersistentVolume", false),
    ("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", false),
    ("apps", "v1", "deployments", "Deployment", true),
    ("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", false),
    ("apiregistration.k8s.io", "v1", "apiservices", "APIService", false),
    ("argoproj.io", "v1alpha1", "applications", "Application", true),
    ("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", true),
    ("example.com", "v1", "widgets", "Widget", true),
    ("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", false),
    ("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", false),
];
const NAMESPACES: &str = "/api/v1/namespaces";
const CONFIG_MAPS: &str = "/api/v1/configmaps";
const SERVICES: &str = "/api/v1/services";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const APPLICATIONS: &str = "/apis/argoproj.io/v1alpha1/applications";
const WIDGETS: &str = "/apis/example.com/v1/widgets";

/// How a list is answered once instead.
#[derive(Clone, Copy)]
enum Odd {
    /// As it should be.
    Well,
    /// As if there was nothing.
    Empty,
    /// A page that ends the list, although there is more.
    Short,
    /// Half of a document.
    Cut,
    /// This code.
    Code(u16),
}

/// A cluster as it is planted.
struct World {
    objects: BTreeMap<String, Vec<Value>>,
    /// What is answered instead, by path, one after the other.
    odd: BTreeMap<&'static str, VecDeque<Odd>>,
    /// What is answered instead, always.
    always: BTreeMap<&'static str, Odd>,
    /// Kinds that a review denies.
    denied: Vec<&'static str>,
    /// Further answers, by path.
    answers: BTreeMap<String, Value>,
    /// Method and address of every request.
    asked: Vec<(String, String)>,
}

fn object(place: &str, more: &Value) -> Value {
    let (namespace, name) = place.split_once('/').unwrap_or(("", place));
    let mut metadata = json!({"name": name, "uid": format!("uid-{place}")});
    if !namespace.is_empty() {
        metadata["namespace"] = json!(namespace);
    }
    metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({ "metadata": metadata })
}

/// What the only node manages.
fn own(place: &str, more: &Value) -> Value {
    let mut object = object(place, more);
    object["metadata"]["annotations"]["argocd.argoproj.io/tracking-id"] = json!(format!("dev-api:x:{place}"));
    object
}

fn held() -> Value {
    json!({"finalizers": ["hold.example.org/x"]})
}

impl World {
    /// A platform of one node with a ConfigMap, beside a namespace of somebody else.
    fn new() -> Self {
        let mut world = Self {
            objects: BTreeMap::new(),
            odd: BTreeMap::new(),
            always: BTreeMap::new(),
            denied: Vec::new(),
            answers: BTreeMap::new(),
            asked: Vec::new(),
        };
        let application = json!({
            "metadata": {"name": "dev-api", "namespace": "argocd", "uid": "uid-app"},
            "spec": {"destination": {"name": "in-cluster", "namespace": "shop"}},
            "status": {"resources": [{"kind": "ConfigMap", "namespace": "shop", "name": "settings"}]},
        });
        world.add("/apis/argoproj.io/v1alpha1/applications", application);
        for name in ["shop", "other"] {
            world.add("/api/v1/namespaces", object(name, &json!({})));
        }
        world.add(CONFIG_MAPS, object("shop/settings", &json!({})));
        world.add("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", object("widgets.example.com", &json!({})));
        world.add(WIDGETS, object("other/theirs", &json!({})));
        world
    }

    fn add(&mut self, path: &str, object: Value) {
        self.objects.entry(path.to_owned()).or_default().push(object);
    }

    fn once(mut self, path: &'static str, odd: &[Odd]) -> Self {
        self.odd.insert(path, odd.iter().copied().collect());
        self
    }

    fn always(mut self, path: &'static str, odd: Odd) -> Self {
        self.always.insert(path, odd);
        self
    }

    /// Code and text of an answer.
    fn answer(&mut self, method: &str, uri: &str, body: &Value) -> (u16, String) {
        self.asked.push((method.to_owned(), uri.to_owned()));
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        if method == "POST" && path.ends_with("/selfsubjectaccessreviews") {
            let resource = body["spec"]["resourceAttributes"]["resource"].as_str().unwrap();
            let denied = self.denied.contains(&resource) || (resource == "*" && !self.denied.is_empty());
            return (201, json!({"status": {"allowed": !denied}}).to_string());
        }
        if method != "GET" {
            return status(405, "nothing is written here");
        }
        let of = |name: &str| query.split('&').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
        let first: usize = of("continue").and_then(|token| token.parse().ok()).unwrap_or(0);
        let odd = self.odd.get_mut(path).and_then(VecDeque::pop_front).or_else(|| self.always.get(path).copied());
        if let Some(Odd::Code(code)) = odd {
            return status(code, &format!("{path}: answered with {code}"));
        }
        if let Some(answer) = self.answers.get(path).cloned().or_else(|| discovery(path)) {
            return (200, answer.to_string());
        }
        if !KINDS.iter().any(|kind| collection(kind) == path) {
            return status(404, &format!("{path} not found"));
        }
        let all = self.objects.get(path).cloned().unwrap_or_default();
        let limit: usize = of("limit").and_then(|limit| limit.parse().ok()).unwrap_or(usize::MAX);
        let page: Vec<&Value> = all.iter().skip(first).take(limit).collect();
        let left = all.len().saturating_sub(first + page.len());
        let text = match odd {
            Some(Odd::Empty) => json!({"kind": "List", "metadata": {"resourceVersion": "9"}, "items": []}),
            // It says itself how many there are.
            Some(Odd::Short) => json!({
                "metadata": {"resourceVersion": "9", "remainingItemCount": all.len() - first}, "items": [],
            }),
            _ if left > 0 => {
                let token = (first + page.len()).to_string();
                json!({"metadata": {"resourceVersion": "9", "continue": token, "remainingItemCount": left}, "items": page})
            }
            _ => json!({"metadata": {"resourceVersion": "9"}, "items": page}),
        };
        let text = text.to_string();
        if matches!(odd, Some(Odd::Cut)) {
            return (200, text[..text.len() / 2].to_owned());
        }
        (200, text)
    }
}

fn status(code: u16, message: &str) -> (u16, String) {
    let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message, "reason": "x"});
    (code, body.to_string())
}

fn version((group, version, ..): &Served) -> String {
    if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") }
}

fn collection(kind: &Served) -> String {
    format!("{}/{}", version(kind), kind.2)
}

/// What the server says that it serves.
fn discovery(path: &str) -> Option<Value> {
    if path == "/apis" {
        let mut groups: Vec<&Served> = KINDS.iter().filter(|kind| !kind.0.is_empty()).collect();
        groups.dedup_by_key(|kind| kind.0);
        let group = |kind: &&Served| {
            let version = json!({"version": kind.1, "groupVersion": format!("{}/{}", kind.0, kind.1)});
            json!({"name": kind.0, "versions": [version], "preferredVersion": version})
        };
        return Some(json!({"groups": groups.iter().map(group).collect::<Vec<_>>()}));
    }
    let here: Vec<&Served> = KINDS.iter().filter(|kind| version(kind) == path).collect();
    let resource = |kind: &&Served| json!({"name": kind.2, "kind": kind.3, "namespaced": kind.4, "verbs": ["delete", "get", "list"]});
    (!here.is_empty()).then(|| json!({"resources": here.iter().map(resource).collect::<Vec<_>>()}))
}

fn serve(world: World) -> (u16, Arc<Mutex<World>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let shared = Arc::new(Mutex::new(world));
    let world = Arc::clone(&shared);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let world = Arc::clone(&world);
            thread::spawn(move || respond(&stream, &world));
        }
    });
    (port, shared)
}

/// Reads one request, answers it, and hangs up.
fn respond(stream: &TcpStream, world: &Mutex<World>) {
    let mut reader = BufReader::new(stream);
    let mut request = String::new();
    let mut length = 0;
    if reader.read_line(&mut request).is_err() || request.is_empty() {
        return;
    }
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 || line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let mut words = request.split(' ');
    let (method, uri) = (words.next().unwrap(), words.next().unwrap());
    let (code, text) = world.lock().unwrap().answer(method, uri, &body);
    let mut stream = stream;
    let _ = write!(
        stream,
        "HTTP/1.1 {code} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
        text.len()
    );
}

/// Fails with everything in a document that its schema does not know.
fn fits(kind: &str, document: &str) {
    let schema = forge_core::format::schema(kind).unwrap();
    let validator = jsonschema::validator_for(schema.as_value()).unwrap();
    let document: Value = serde_json::from_str(document).unwrap_or_else(|error| panic!("{error}: {document}"));
    let errors: Vec<String> = validator.iter_errors(&document).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}\n{document:#}");
}

/// What came of a command.
struct Came {
    code: i32,
    stdout: String,
    stderr: String,
    asked: Vec<(String, String)>,
}

impl Came {
    fn report(&self) -> RehearsalReport {
        fits("RehearsalReport", &self.stdout);
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}\n{}", self.stdout, self.stderr))
    }

    /// The finding of a rule, as text.
    fn told(&self, rule: &str) -> String {
        let report = self.report();
        let of = |finding: &&Foretold| finding.rule.id() == rule;
        report.findings.iter().filter(of).map(Foretold::text).collect()
    }

    /// How often something was asked for.
    fn times(&self, path: &str) -> usize {
        self.asked.iter().filter(|(_, uri)| uri.split('?').next() == Some(path)).count()
    }
}

fn forge(world: World, arguments: &[&str]) -> Came {
    command(world, &[&["platform", "teardown", "--environment", "dev"], arguments].concat())
}

fn command(world: World, arguments: &[&str]) -> Came {
    let (port, world) = serve(world);
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    let header = "apiVersion: forge.projectcatalyst.io/v1alpha1\n";
    write(
        "forge.yaml",
        &format!(
            "{header}kind: Forge\nspec:\n  repository: {{url: https://git.example.com/p.git}}\n  argo: {{cd: existing, workflows: existing, events: none}}\n  environments: [{{name: dev, cluster: in-cluster, sync: manual}}]\n"
        ),
    );
    let graph = format!(
        "{header}kind: DependencyGraph\nspec:\n  stacks: [{{name: base, apps: [{{application: argocd/dev-api}}]}}]\n"
    );
    write("graph.yaml", &graph);
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": format!("http://127.0.0.1:{port}")}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
    });
    write("kubeconfig", &kubeconfig.to_string());
    let mut command = Command::new(env!("CARGO_BIN_EXE_forge"));
    command.args(arguments).args(["--kubeconfig", "kubeconfig"]);
    command.current_dir(folder.path()).env_clear().env("HOME", folder.path());
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let asked = world.lock().unwrap().asked.clone();
    Came { code: output.status.code().unwrap_or(-1), stdout: text(output.stdout), stderr: text(output.stderr), asked }
}

fn rehearse(world: World) -> Came {
    let came = forge(world, &["--rehearse", "--output", "json"]);
    let writes: Vec<&(String, String)> = came
        .asked
        .iter()
        .filter(|(method, uri)| method != "GET" && !uri.contains("/selfsubjectaccessreviews"))
        .collect();
    assert!(writes.is_empty(), "{writes:?}");
    came
}

#[test]
fn a_platform_without_anything_odd_would_end_clean_and_everything_was_listed() {
    let came = rehearse(World::new());
    let report = came.report();
    assert_eq!((came.code, report.verdict.as_str()), (0, "would end clean"), "{}", report.text());
    assert_eq!((report.listed.kinds, report.listed.objects, report.listed.not_known), (KINDS.len(), 6, 0));
    // The Application and what it manages.
    assert_eq!(report.listed.goes, 2, "{}", report.text());
    // What is empty is read twice, what is not once, and what is wanted whole once more.
    assert_eq!((came.times("/api/v1/secrets"), came.times(WIDGETS)), (2, 1), "{:?}", came.asked);
    let text = forge(World::new(), &["--rehearse"]);
    assert!(text.stdout.starts_with("teardown of dev, scope platform, on c: would end clean\n"), "{}", text.stdout);
    assert!(text.stderr.contains("nothing is written"), "{}", text.stderr);
    let xml = forge(World::new(), &["--rehearse", "--output", "junit"]).stdout;
    assert!(xml.contains("tests=\"10\" failures=\"0\" errors=\"0\""), "{xml}");
}

#[test]
fn an_empty_list_once_hides_nothing() {
    let mut world = World::new();
    world.add(CONFIG_MAPS, own("shop/held", &held()));
    let came = rehearse(world.once(CONFIG_MAPS, &[Odd::Empty]));
    assert_eq!(came.code, 1, "{}", came.stdout);
    assert!(came.told("finalizers").contains("configmaps shop/held"), "{}", came.stdout);
    assert_eq!((came.report().listed.not_known, came.times(CONFIG_MAPS)), (0, 3), "{:?}", came.asked);
}

#[test]
fn what_is_read_whole_and_comes_back_empty_once_hides_nothing_either() {
    // The Services, of which the second reading is the one that rules are given.
    let mut world = World::new();
    balanced(&mut world);
    let came = rehearse(world.once(SERVICES, &[Odd::Well, Odd::Empty]));
    assert!(came.told("load-balancers").contains("services shop/edge"), "{}", came.stdout);
    assert_eq!(came.times(SERVICES), 4, "{:?}", came.asked);
    // Where the platform deploys to is only known from its Applications.
    let mut world = World::new();
    released(&mut world);
    let came = rehearse(world.once(APPLICATIONS, &[Odd::Well, Odd::Empty]));
    assert!(came.told("volumes").contains("pv-1 1Gi of shop/old"), "{}", came.stdout);
    // What cannot be read whole is not known, and nothing is foretold of its absence.
    let mut world = World::new();
    guarded(&mut world);
    let down = [Odd::Well, Odd::Code(403)];
    let came = rehearse(world.once(SERVICES, &down));
    assert!(came.told("inventory").contains("services: "), "{}", came.stdout);
    assert_eq!(came.told("webhooks"), "", "{}", came.stdout);
}

#[test]
fn a_list_that_contradicts_itself_is_not_known_and_what_may_pass_is_asked_for_again() {
    let came = rehearse(World::new().once(CONFIG_MAPS, &[Odd::Empty, Odd::Well, Odd::Empty]));
    let told = came.told("inventory");
    assert_eq!((came.code, came.report().listed.not_known), (1, 1), "{}", came.stdout);
    assert!(told.contains("configmaps: it was empty, then not, then empty again"), "{told}");
    let passing = [Odd::Empty, Odd::Code(503), Odd::Code(429)];
    let came = rehearse(World::new().once(CONFIG_MAPS, &passing).always(WIDGETS, Odd::Code(503)));
    let told = came.told("inventory");
    assert_eq!(came.code, 1, "{}", came.stdout);
    assert!(told.contains("widgets.example.com") && !told.contains("configmaps"), "{told}");
    // What is down is asked for a few times, and not for ever.
    assert_eq!(came.times(WIDGETS), 4, "{:?}", came.asked);
}

#[test]
fn a_page_that_ends_too_soon_is_read_again_and_if_it_stays_nothing_is_known() {
    let planted = || {
        let mut world = World::new();
        world.add(CONFIG_MAPS, own("shop/held", &held()));
        world
    };
    for odd in [Odd::Short, Odd::Cut] {
        let came = rehearse(planted().once(CONFIG_MAPS, &[odd]));
        assert!(came.told("finalizers").contains("configmaps shop/held"), "{}", came.stdout);
        assert_eq!(came.report().listed.not_known, 0, "{}", came.stdout);
        let came = rehearse(planted().always(CONFIG_MAPS, odd));
        let report = came.report();
        assert_eq!(
            (came.code, report.verdict.as_str(), report.listed.not_known),
            (1, "not known", 1),
            "{}",
            report.text()
        );
        assert!(came.told("inventory").contains("configmaps: "), "{}", came.stdout);
    }
}

#[test]
fn a_group_that_is_forbidden_is_not_known_and_one_that_a_review_denies_is_not_even_tried() {
    let came = rehearse(World::new().always(WIDGETS, Odd::Code(403)));
    assert_eq!(came.code, 1, "{}", came.stdout);
    assert!(
        came.told("inventory").contains("widgets.example.com: /apis/example.com/v1/widgets: answered with 403"),
        "{}",
        came.stdout
    );
    assert_eq!(came.times(WIDGETS), 1);
    let mut world = World::new();
    world.denied.push("widgets");
    let came = rehearse(world);
    assert_eq!((came.code, came.times(WIDGETS)), (1, 0), "{}", came.stdout);
    assert!(came.told("inventory").contains("widgets.example.com: the account may not list it"), "{}", came.stdout);
}

#[test]
fn a_group_whose_api_is_down_is_not_known_and_the_rest_is() {
    let came = rehearse(World::new().always("/apis/example.com/v1", Odd::Code(503)));
    let told = came.told("inventory");
    assert_eq!(came.code, 1, "{}", came.stdout);
    assert!(told.contains("example.com/v1: ") && told.contains("answered with 503"), "{told}");
    // It is defined, so it has objects or not.
    assert!(told.contains("widgets.example.com: it is defined, and discovery does not serve it"), "{told}");
    assert_eq!(came.report().listed.kinds, KINDS.len() - 1);
}

#[test]
fn a_long_list_is_read_page_by_page_and_from_the_start_where_a_page_has_expired() {
    let long = || {
        let mut world = World::new();
        for n in 0..1_200 {
            world.add(CONFIG_MAPS, object(&format!("other/n-{n}"), &json!({})));
        }
        world.add(CONFIG_MAPS, own("shop/held", &held()));
        world
    };
    let came = rehearse(long());
    assert_eq!((came.report().listed.objects, came.times(CONFIG_MAPS)), (6 + 1_201, 3), "{}", came.stderr);
    assert!(came.told("finalizers").contains("configmaps shop/held"));
    // The second page of the first reading has expired.
    let came = rehearse(long().once(CONFIG_MAPS, &[Odd::Well, Odd::Code(410)]));
    assert_eq!((came.report().listed.objects, came.report().listed.not_known), (6 + 1_201, 0), "{}", came.stdout);
}

/// An object with more than its metadata.
fn with(mut object: Value, more: &Value) -> Value {
    object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    object
}

/// A custom resource, the definition of its kind and its controller, all of one node and of one wave.
fn operated(world: &mut World) {
    world.objects.insert(DEFINITIONS.to_owned(), vec![own("widgets.example.com", &json!({}))]);
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let rules = json!({"rules": [{"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["update"]}]});
    world.add(&format!("{rbac}/clusterroles"), with(object("operator", &json!({})), &rules));
    let binding = json!({
        "roleRef": {"kind": "ClusterRole", "name": "operator"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "shop", "name": "operator"}],
    });
    world.add(&format!("{rbac}/clusterrolebindings"), with(object("operator", &json!({})), &binding));
    let workload = json!({
        "spec": {"template": {"spec": {"serviceAccountName": "operator"}}}, "status": {"readyReplicas": 1},
    });
    world.add("/apis/apps/v1/deployments", with(own("shop/operator", &json!({})), &workload));
    world.add(WIDGETS, own("shop/one", &json!({"finalizers": ["widgets.example.com/clean"]})));
}

/// A finalizer that nobody clears.
fn unowned(world: &mut World) {
    world.add(CONFIG_MAPS, own("shop/held", &held()));
}

/// A definition of the platform with an object of somebody else.
fn used(world: &mut World) {
    world.objects.insert(DEFINITIONS.to_owned(), vec![own("widgets.example.com", &json!({}))]);
}

/// Somebody else's webhook for what goes, which is asked at this Service.
fn asked(world: &mut World) {
    let webhook = json!({"webhooks": [{
        "name": "guard.example.com", "clientConfig": {"service": {"namespace": "shop", "name": "guard"}},
        "failurePolicy": "Fail", "rules": [{"apiGroups": [""], "resources": ["configmaps"], "operations": ["DELETE"]}],
    }]});
    world.add(WEBHOOKS, with(object("guard", &json!({})), &webhook));
}

/// A Service of the platform that answers.
fn answering(world: &mut World) {
    world.add(SERVICES, with(own("shop/guard", &json!({})), &json!({"spec": {"type": "ClusterIP"}})));
    let slice = object("shop/guard-1", &json!({"labels": {"kubernetes.io/service-name": "guard"}}));
    let endpoints = json!({"endpoints": [{"conditions": {"ready": true}}]});
    world.add("/apis/discovery.k8s.io/v1/endpointslices", with(slice, &endpoints));
}

/// A webhook whose Service goes.
fn guarded(world: &mut World) {
    asked(world);
    answering(world);
}

/// Objects of somebody else that a Service of the platform converts.
fn converted(world: &mut World) {
    answering(world);
    let service = json!({"namespace": "shop", "name": "guard"});
    let conversion = json!({"strategy": "Webhook", "webhook": {"clientConfig": {"service": service}}});
    let definition = with(own("widgets.example.com", &json!({})), &json!({"spec": {"conversion": conversion}}));
    world.objects.insert(DEFINITIONS.to_owned(), vec![definition]);
}

/// A volume whose claim is gone.
fn released(world: &mut World) {
    let volume = json!({
        "spec": {
            "claimRef": {"namespace": "shop", "name": "old"}, "persistentVolumeReclaimPolicy": "Retain",
            "capacity": {"storage": "1Gi"},
        },
        "status": {"phase": "Released"},
    });
    world.add(VOLUMES, with(object("pv-1", &json!({})), &volume));
}

/// A load balancer that nothing waits for.
fn balanced(world: &mut World) {
    let status = json!({"loadBalancer": {"ingress": [{"ip": "203.0.113.7"}]}});
    let balancer = json!({"spec": {"type": "LoadBalancer"}, "status": status});
    world.add(SERVICES, with(own("shop/edge", &json!({})), &balancer));
}

/// A load balancer that never came, and whose finalizer nobody clears.
fn unbalanced(world: &mut World) {
    let cleanup = json!({"finalizers": ["service.kubernetes.io/load-balancer-cleanup"]});
    world.add(SERVICES, with(own("shop/edge", &cleanup), &json!({"spec": {"type": "LoadBalancer"}})));
}

/// A registered API at a Service of the platform.
fn registered(world: &mut World, available: &str) {
    let condition = json!({"type": "Available", "status": available, "reason": "MissingEndpoints", "message": "none"});
    let api = json!({
        "spec": {"service": {"namespace": "shop", "name": "guard"}}, "status": {"conditions": [condition]},
    });
    world.add(API_SERVICES, with(object("v1.figures.example.com", &json!({})), &api));
}

/// A namespace of the platform that is being deleted, and held.
fn terminating(world: &mut World) {
    let going = object("shop", &json!({"deletionTimestamp": "2020-01-01T00:00:00Z"}));
    let condition =
        json!({"type": "NamespaceFinalizersRemaining", "status": "True", "message": "example.com/hold in 1 resource"});
    let status = json!({"status": {"phase": "Terminating", "conditions": [condition]}});
    world.objects.insert(NAMESPACES.to_owned(), vec![with(going, &status), object("other", &json!({}))]);
}

/// An object that is being deleted for long.
fn stuck(world: &mut World) {
    let more = json!({"deletionTimestamp": "2020-01-01T00:00:00Z", "finalizers": ["foregroundDeletion"]});
    world.add(CONFIG_MAPS, own("shop/stuck", &more));
}

/// A wedge: what it is, how it is planted, and the rule, the severity and the words that foretell it.
type Wedge = (&'static str, fn(&mut World), &'static str, &'static str, &'static str);

const WEDGES: [Wedge; 16] = [
    (
        "a custom resource whose controller goes first",
        operated,
        "controllers",
        "wedges",
        "widgets.example.com shop/one",
    ),
    ("a finalizer without an owner", unowned, "finalizers", "wedges", "configmaps shop/held"),
    ("a foreign instance of our definition", used, "foreign", "leaves", "widgets.example.com: other/theirs"),
    (
        "a webhook whose service goes first",
        guarded,
        "webhooks",
        "wedges",
        "guard.example.com (somebody else's): Service shop/guard",
    ),
    ("a webhook without a service", asked, "webhooks", "wedges", "Service shop/guard is not there"),
    (
        "objects whose converter goes first",
        converted,
        "conversions",
        "wedges",
        "Service shop/guard (of argocd/dev-api)",
    ),
    ("a volume that leaks", released, "volumes", "leaves", "pv-1 1Gi of shop/old"),
    ("a load balancer that leaks", balanced, "load-balancers", "leaves", "services shop/edge"),
    ("a load balancer that never came", unbalanced, "load-balancers", "wedges", "services shop/edge"),
    ("an API that is down", |world| registered(world, "False"), "api-services", "wedges", "v1.figures.example.com"),
    (
        "an API whose service goes first",
        |world| {
            registered(world, "True");
            answering(world);
        },
        "api-services",
        "wedges",
        "may outlive its service",
    ),
    ("a namespace that is stuck", terminating, "stuck", "wedges", "NamespaceFinalizersRemaining: example.com/hold"),
    ("an object that is stuck", stuck, "stuck", "wedges", "configmaps shop/stuck"),
    (
        "a list that is empty once",
        |world| {
            unowned(world);
            world.odd.insert(CONFIG_MAPS, VecDeque::from([Odd::Empty]));
        },
        "finalizers",
        "wedges",
        "configmaps shop/held",
    ),
    (
        "a page that is cut off",
        |world| {
            unowned(world);
            world.odd.insert(CONFIG_MAPS, VecDeque::from([Odd::Short, Odd::Cut]));
        },
        "finalizers",
        "wedges",
        "configmaps shop/held",
    ),
    (
        "a group that is forbidden",
        |world| {
            world.always.insert(WIDGETS, Odd::Code(403));
        },
        "inventory",
        "not known",
        "widgets.example.com: ",
    ),
];

/// Every kind of thing that wedges a teardown, alone: foretold, with what to do, soon, and without a write.
#[test]
fn every_wedge_is_foretold_with_its_fix_within_its_time() {
    for (what, plant, rule, severity, words) in WEDGES {
        let mut world = World::new();
        plant(&mut world);
        let began = Instant::now();
        let came = rehearse(world);
        assert!(began.elapsed() < Duration::from_secs(60), "{what} took {:?}", began.elapsed());
        let report = came.report();
        let mut of = report.findings.iter().filter(|finding| finding.rule.id() == rule);
        let found = of.find(|finding| finding.severity.as_str() == severity && finding.text().contains(words));
        let found = found.unwrap_or_else(|| panic!("{what}: no `{words}` in\n{}", report.text()));
        assert!(!found.fix.is_empty() && !found.means.is_empty(), "{what}: {}", found.text());
        let code = if severity == "leaves" { 2 } else { 1 };
        assert_eq!((came.code, i32::from(report.exit)), (code, code), "{what}: {}", report.text());
    }
}

#[test]
fn objects_in_another_order_make_the_same_report() {
    let planted = |turned: bool| {
        let mut world = World::new();
        for n in 0..30 {
            world.add(CONFIG_MAPS, own(&format!("shop/held-{n}"), &held()));
            world.add(WIDGETS, object(&format!("other/theirs-{n}"), &json!({})));
        }
        used(&mut world);
        if turned {
            for objects in world.objects.values_mut() {
                objects.reverse();
            }
        }
        let report = rehearse(world).report();
        (report.findings, report.rules, report.listed)
    };
    assert_eq!(planted(false), planted(true));
}

#[test]
fn an_application_that_no_node_stands_for_any_more_is_looked_at_with_the_others() {
    let planted = |set: &str| {
        let mut world = World::new();
        let owner = json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet", "name": set, "uid": "s", "controller": true});
        let application = json!({
            "metadata": {"name": "dev-old", "namespace": "argocd", "uid": "uid-old", "ownerReferences": [owner]},
            "spec": {"project": "dev", "destination": {"name": "in-cluster", "namespace": "old"}},
        });
        world.add(APPLICATIONS, application);
        let mut left = object("old/left", &held());
        left["metadata"]["annotations"]["argocd.argoproj.io/tracking-id"] = json!("dev-old:/ConfigMap:old/left");
        world.add(CONFIG_MAPS, left);
        rehearse(world)
    };
    let own = planted("dev-apps");
    assert!(own.told("finalizers").contains("configmaps old/left, of argocd/dev-old"), "{}", own.stdout);
    assert_eq!(planted("somebodys").told("finalizers"), "");
}

#[test]
fn a_cluster_that_does_not_say_what_it_serves_is_no_empty_one() {
    for (path, code) in [("/apis", 403), ("/apis", 503)] {
        let came = forge(World::new().always(path, Odd::Code(code)), &["--rehearse"]);
        assert_ne!(came.code, 0, "{}", came.stdout);
        assert!(came.stderr.contains("error[FORGE-D00"), "{}", came.stderr);
    }
}

/// A snapshot as it is kept, of these objects.
fn kept(kinds: &[(&str, &str, &[&str])]) -> Value {
    let seen = |(group, resource, places): &(&str, &str, &[&str])| Seen {
        group: (*group).to_owned(),
        resource: (*resource).to_owned(),
        objects: places
            .iter()
            .map(|place| {
                let (namespace, name) = place.split_once('/').unwrap_or(("", place));
                Noted(namespace.to_owned(), name.to_owned(), format!("uid-{place}"), false)
            })
            .collect(),
    };
    let taken = jiff::Timestamp::from_second(1_794_823_200).unwrap();
    let snapshot = Snapshot { taken, kinds: kinds.iter().map(seen).collect(), gaps: Vec::new() };
    let packed = snapshot.packed().unwrap();
    let data = base64::engine::general_purpose::STANDARD.encode(packed.pieces.concat());
    json!({
        "metadata": {
            "name": SNAPSHOT, "namespace": "argo", "uid": "uid-argo/forge-snapshot",
            "labels": {"app.kubernetes.io/managed-by": "forge"},
            "annotations": {PIECES_ANNOTATION: "1", DIGEST_ANNOTATION: packed.digest},
        },
        "binaryData": {SNAPSHOT_KEY: data},
    })
}

#[test]
fn what_is_left_is_compared_with_the_snapshot_that_is_kept() {
    let report = |world: World| {
        let came = forge(world, &["--report", "--output", "json"]);
        fits("CleanExitReport", &came.stdout);
        let report: CleanExitReport = serde_json::from_str(&came.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}{}", came.stdout, came.stderr));
        (came.code, report)
    };
    let place = format!("/api/v1/namespaces/argo/configmaps/{SNAPSHOT}");
    let planted = |orphan: bool| {
        let mut world = World::new();
        world.objects.remove("/apis/argoproj.io/v1alpha1/applications");
        world.objects.insert("/api/v1/namespaces".to_owned(), vec![object("other", &json!({}))]);
        world.objects.insert(CONFIG_MAPS.to_owned(), vec![object("other/settings", &json!({}))]);
        if orphan {
            world.add(CONFIG_MAPS, own("other/copy", &json!({})));
        }
        let kinds: [(&str, &str, &[&str]); 4] = [
            ("", "namespaces", &["other"]),
            ("", "configmaps", &["other/settings"]),
            ("apiextensions.k8s.io", "customresourcedefinitions", &["widgets.example.com"]),
            ("example.com", "widgets", &["other/theirs"]),
        ];
        world.answers.insert(place.clone(), kept(&kinds));
        world
    };
    let (code, clean) = report(planted(false));
    assert_eq!((code, clean.verdict.as_str(), clean.exit), (0, "clean", 0), "{}", clean.text());
    assert!(clean.snapshot.is_some());
    let (code, left) = report(planted(true));
    assert_eq!((code, left.verdict.as_str()), (2, "orphans left"), "{}", left.text());
    assert_eq!(left.orphaned[0].object, "configmaps other/copy");
    // What is not known is not clean.
    let (code, unknown) = report(planted(false).always(WIDGETS, Odd::Code(403)));
    assert_eq!((code, unknown.verdict.as_str()), (1, "not known"), "{}", unknown.text());
    // Volumes of which it cannot be read whose they are are not known either.
    let mut world = planted(false);
    released(&mut world);
    let (code, unread) = report(world.once(VOLUMES, &[Odd::Well, Odd::Code(403)]));
    assert_eq!((code, unread.verdict.as_str()), (1, "not known"), "{}", unread.text());
    assert_eq!(unread.not_known[0].what, "persistentvolumes", "{}", unread.text());
    // A snapshot that was changed is refused, and none is no reason not to look.
    let mut world = planted(false);
    world.answers.get_mut(&place).unwrap()["binaryData"][SNAPSHOT_KEY] = json!("aGVsbG8=");
    let came = forge(world, &["--report"]);
    assert!(came.code == 3 && came.stderr.contains("error[FORGE-O003]"), "{}", came.stderr);
    let mut world = planted(false);
    world.answers.clear();
    let (code, without) = report(world);
    assert_eq!((code, without.snapshot), (0, None), "{}", without.text());
}

/// For those who bootstrap by other means: the Ansible role, on a real cluster, in `tests/runs/ansible.rs`.
#[test]
fn what_is_there_before_a_bootstrap_is_printed_as_it_is_kept_unless_something_is_prepared() {
    let printed = |world: World| {
        let came = command(world, &["bootstrap", "--snapshot", "--output", "json"]);
        let writes = came.asked.iter().filter(|(method, uri)| method != "GET" && !uri.contains("selfsubject"));
        assert_eq!((came.code, writes.count()), (0, 0), "{}", came.stderr);
        let list: Value = serde_json::from_str(&came.stdout).unwrap();
        assert_eq!((&list["apiVersion"], &list["kind"]), (&json!("v1"), &json!("List")), "{list:#}");
        (list["items"].as_array().unwrap().clone(), came.stderr)
    };
    let mut world = World::new();
    // What a bootstrap that was killed left is not what was there before it.
    world.add(NAMESPACES, object("argo", &json!({"labels": {"app.kubernetes.io/managed-by": "forge"}})));
    let (objects, said) = printed(world);
    assert_eq!((objects.len(), said.as_str()), (1, ""), "{objects:#?}");
    let metadata = &objects[0]["metadata"];
    assert_eq!((&metadata["name"], &metadata["namespace"]), (&json!(SNAPSHOT), &json!("argo")));
    assert_eq!(metadata["labels"]["app.kubernetes.io/managed-by"], "forge");
    let digest = metadata["annotations"][DIGEST_ANNOTATION].as_str().unwrap().parse().unwrap();
    let data = objects[0]["binaryData"][SNAPSHOT_KEY].as_str().unwrap();
    let bytes = base64::engine::general_purpose::STANDARD.decode(data).unwrap();
    let snapshot = Snapshot::unpacked(&bytes, &digest).unwrap();
    let namespaces = ("", "namespaces");
    assert!(!snapshot.lacks(namespaces, "shop") && snapshot.lacks(namespaces, "argo"), "{snapshot:?}");

    // One that is kept, a platform that is prepared, and what may not be read.
    let place = |name: &str| format!("/api/v1/namespaces/argo/configmaps/{name}");
    let image = json!({"metadata": {"annotations": {"forge.projectcatalyst.io/image": "forge"}}});
    for (name, answer) in [(SNAPSHOT, objects[0].clone()), ("forge-executor-plugin", image)] {
        let mut world = World::new();
        world.answers.insert(place(name), answer);
        assert_eq!(printed(world), (Vec::new(), String::new()), "{name}");
    }
    // An empty list would say that there is nothing to keep.
    let came = command(World::new().always("/apis", Odd::Code(403)), &["bootstrap", "--snapshot", "--output", "json"]);
    assert_eq!((came.code, came.stdout.as_str()), (6, ""), "{}", came.stderr);
    assert!(came.stderr.contains("what is in the cluster is not noted"), "{}", came.stderr);
}

#[test]
fn a_teardown_that_nobody_confirmed_asks_for_nothing() {
    let came = forge(World::new(), &[]);
    assert_eq!(came.code, 3, "{}", came.stderr);
    assert!(came.stderr.contains("error[FORGE-U004]") && came.asked.is_empty(), "{}", came.stderr);
}
