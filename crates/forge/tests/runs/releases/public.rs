//! Charts and kustomizations that others publish, as they are: what the plugin renders of their releases is what `helm template`
//! and `kustomize build` give, in the eyes of an API server, which is asked to create both and creates neither. Two differences are
//! meant: images are fixed by digests, and there is a receipt.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use forge_core::release::{ImageReference, Limits, RECEIPT, documents};
use forge_testkit::modules;
use forge_testkit::releases::Releases;
use forge_testkit::sandbox::{Sandbox, run};
use forge_testkit::twin::{Pointer, node_id};
use serde_json::Value;

use super::world::{World, fixed};
use super::{commit, rendered};
use crate::install::Bare;

/// The Kubernetes that charts are told of.
const KUBERNETES: &str = "1.36.0";
/// The environment whose plugin renders.
const ENVIRONMENT: &str = "public";
/// How much of a value is shown.
const SHOWN: usize = 200;

const ARGO_CD: &str = "github.com/argoproj/argo-cd/v3";
const ARGO_EVENTS: &str = "github.com/argoproj/argo-events";
const ARGO_WORKFLOWS: &str = "github.com/argoproj/argo-workflows/v3";
const EXTERNAL_DNS: &str = "sigs.k8s.io/external-dns";
const KWOK: &str = "sigs.k8s.io/kwok";

/// Where something public lies.
enum Place {
    /// A chart that the sandbox has under this name, from the modules of Argo's charts and of Crossplane.
    Sandbox(&'static str),
    /// A chart in a module.
    Chart(&'static str, &'static str),
    /// A kustomization in a module.
    Kustomization(&'static str, &'static str),
}

/// Something that somebody publishes.
struct Public {
    /// As a project of ours.
    name: &'static str,
    from: Place,
    /// The kustomization, and its module, with the definitions of what it holds, if it does not bring them.
    definitions: Option<(&'static str, &'static str)>,
}

impl Public {
    const fn new(name: &'static str, from: Place) -> Self {
        Self { name, from, definitions: None }
    }
}

static ALL: [Public; 11] = [
    Public::new("argo-cd", Place::Sandbox("argo-cd")),
    Public::new("argo-events", Place::Sandbox("argo-events")),
    Public::new("argo-rollouts", Place::Sandbox("argo-rollouts")),
    Public::new("argo-workflows", Place::Sandbox("argo-workflows")),
    Public::new("crossplane", Place::Sandbox("crossplane")),
    Public::new("external-dns", Place::Chart(EXTERNAL_DNS, "charts/external-dns")),
    Public::new("argo-cd-manifests", Place::Kustomization(ARGO_CD, "manifests/cluster-install")),
    Public::new("argo-events-manifests", Place::Kustomization(ARGO_EVENTS, "manifests/cluster-install")),
    // Of its images some are fixed by their authors, and others are `latest`.
    Public::new("argo-workflows-postgres", Place::Kustomization(ARGO_WORKFLOWS, "manifests/quick-start/postgres")),
    Public::new("kwok", Place::Kustomization(KWOK, "kustomize/kwok")),
    // Nothing but custom resources, whose texts are templates of another program.
    Public {
        name: "kwok-stages",
        from: Place::Chart(KWOK, "charts/stage-fast"),
        definitions: Some((KWOK, "kustomize/crd")),
    },
];

/// A bare cluster, and what stands for the rest of the world.
struct Ground {
    bare: Bare,
    releases: Releases,
    world: World,
    modules: BTreeMap<&'static str, PathBuf>,
}

impl Ground {
    fn up() -> Self {
        let bare = Bare::up();
        // Of Argo nothing is there, so nothing of it is met.
        bare.clear();
        let folders = modules::folders(&modules::PUBLIC).unwrap();
        let modules = modules::PUBLIC.iter().map(|(module, _)| *module).zip(folders).collect();
        let releases = Releases::new(bare.environment.platform);
        Self { bare, releases, world: World::start(), modules }
    }

    fn sandbox(&self) -> &Sandbox {
        self.bare.sandbox()
    }

    fn source(&self, public: &Public) -> PathBuf {
        match public.from {
            Place::Sandbox(chart) => self.sandbox().charts.join(chart),
            Place::Chart(module, path) | Place::Kustomization(module, path) => self.modules[module].join(path),
        }
    }

    /// What a kustomization comes to.
    fn kustomized(&self, folder: &Path) -> String {
        let built = run(Command::new(&self.sandbox().kustomize).arg("build").arg(folder), None);
        assert_eq!(built.code, 0, "kustomize build {}: {}", folder.display(), built.stderr);
        built.stdout
    }

    /// What people without Forge would deploy.
    fn plain(&self, public: &Public) -> String {
        let source = self.source(public);
        if matches!(public.from, Place::Kustomization(..)) {
            return self.kustomized(&source);
        }
        let mut helm = Command::new(&self.sandbox().helm);
        helm.args(["template", public.name]).arg(&source).args(["--namespace", &namespace(public)]);
        helm.args(["--include-crds", "--skip-tests", "--kube-version", KUBERNETES]);
        let rendered = run(&mut helm, None);
        assert_eq!(rendered.code, 0, "helm template {}: {}", public.name, rendered.stderr);
        rendered.stdout
    }

    /// Builds a release and pushes it. Tags of images are looked up, where the world is a proxy.
    fn released(&self, public: &Public) -> Pointer {
        let sandbox = self.sandbox();
        let [helm, kustomize, certificates] = [&sandbox.helm, &sandbox.kustomize, &self.world.certificates()]
            .map(|path| path.to_string_lossy().into_owned());
        let namespace = namespace(public);
        let further = [
            ["--helm", helm.as_str()],
            ["--kustomize", kustomize.as_str()],
            ["--registry-ca", certificates.as_str()],
            ["--release-name", public.name],
            ["--namespace", namespace.as_str()],
            ["--kube-version", KUBERNETES],
        ];
        let further = [&["--resolve"][..], further.as_flattened()].concat();
        let variables = [("HTTPS_PROXY", self.world.proxy.as_str())];
        self.releases.pushed_from(
            &self.source(public),
            &node_id(public.name),
            &commit(public.name),
            &further,
            &variables,
        )
    }

    /// Where objects of these texts are to be is there; gives what was made for it.
    fn made_room(&self, texts: [&str; 2]) -> BTreeSet<String> {
        let all = texts.map(|text| documents("rendered", text.as_bytes(), &Limits::default()).unwrap());
        let named: BTreeSet<String> = all.iter().flatten().filter_map(|document| document.namespace.clone()).collect();
        let missing = |name: &String| {
            let there = ["get", "namespace", name, "--ignore-not-found", "-o", "name"];
            self.sandbox().kubectl(&there).trim().is_empty()
        };
        let made: BTreeSet<String> = named.into_iter().filter(missing).collect();
        for name in &made {
            self.sandbox().kubectl(&["create", "namespace", name]);
        }
        made
    }

    /// The objects of a text as the API server would store them, by what they are.
    fn judged(&self, text: &str) -> BTreeMap<String, Value> {
        self.created("--dry-run=server", text).into_iter().map(settled).collect()
    }

    /// A text with its images fixed. Before it is judged: what an API server fills in depends on them (`imagePullPolicy`).
    fn fixed(&self, text: &str) -> String {
        let mut objects = self.created("--dry-run=client", text);
        objects.iter_mut().for_each(fix);
        objects.iter().map(|object| format!("---\n{object}\n")).collect()
    }

    fn created(&self, dry_run: &str, text: &str) -> Vec<Value> {
        let create = ["create", dry_run, "--validate=warn", "-f", "-", "-o", "json"];
        let ended = self.sandbox().try_kubectl(&create, Some(text));
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        serde_json::Deserializer::from_str(&ended.stdout).into_iter::<Value>().map(Result::unwrap).collect()
    }

    /// In what the rendering of a release differs from what there would be without Forge, but for what is meant.
    fn differences(&self, public: &Public, room: &mut BTreeSet<String>) -> Vec<String> {
        let sandbox = self.sandbox();
        let plain = self.plain(public);
        let pointer = self.released(public);
        let rendered = rendered(&self.bare, &self.releases, ENVIRONMENT, public.name, &pointer);
        room.extend(self.made_room([&plain, &rendered]));
        let definitions = public.definitions.map(|(module, path)| self.kustomized(&self.modules[module].join(path)));
        if let Some(definitions) = &definitions {
            let made = sandbox.try_kubectl(&["apply", "--server-side", "-f", "-"], Some(definitions));
            assert_eq!(made.code, 0, "{}", made.stderr);
            let served = ["wait", "--for=condition=Established", "--timeout=60s", "-f", "-"];
            let served = sandbox.try_kubectl(&served, Some(definitions));
            assert_eq!(served.code, 0, "{}", served.stderr);
        }
        // What an earlier test left could not be created.
        sandbox.try_kubectl(&["delete", "--ignore-not-found", "-f", "-"], Some(&plain));

        let (without, mut with) = (self.judged(&self.fixed(&plain)), self.judged(&rendered));
        let receipt = with.remove(&format!("v1 ConfigMap default/{RECEIPT}"));
        let receipt = receipt.unwrap_or_else(|| panic!("{}: no receipt", public.name));
        assert_eq!(receipt["data"]["release"], pointer.digest.as_str(), "{}", public.name);
        if let Some(definitions) = &definitions {
            sandbox.try_kubectl(&["delete", "-f", "-"], Some(definitions));
        }
        let mut found = Vec::new();
        let names: BTreeSet<&String> = without.keys().chain(with.keys()).collect();
        assert!(!names.is_empty(), "{}", public.name);
        for name in names {
            let at = format!("{}: {name}", public.name);
            match (without.get(name), with.get(name)) {
                (Some(without), Some(with)) => differ(&at, without, with, &mut found),
                (Some(_), None) => found.push(format!("{at} is not in the release")),
                _ => found.push(format!("{at} is only in the release")),
            }
        }
        found
    }
}

/// The namespace that a chart is installed in.
fn namespace(public: &Public) -> String {
    format!("{ENVIRONMENT}-{}", public.name)
}

/// An object by what it is, without what the API server makes up: it would be another one the next time.
fn settled(mut object: Value) -> (String, Value) {
    let text = |object: &Value, pointer: &str| object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    // A Job knows its pods by its own identity.
    if let Some(uid) = text(&object, "/metadata/uid") {
        object = serde_json::from_str(&object.to_string().replace(&uid, "identity")).unwrap();
    }
    let metadata = object["metadata"].as_object_mut().unwrap();
    for made_up in ["uid", "creationTimestamp", "managedFields", "resourceVersion"] {
        metadata.remove(made_up);
    }
    if object["kind"] == "Service" && object["spec"]["clusterIP"] != "None" {
        let spec = object["spec"].as_object_mut().unwrap();
        for made_up in ["clusterIP", "clusterIPs", "healthCheckNodePort"] {
            spec.remove(made_up);
        }
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            port.as_object_mut().unwrap().remove("nodePort");
        }
    }
    let said = |pointer: &str| text(&object, pointer).unwrap_or_default();
    let place = match text(&object, "/metadata/namespace") {
        Some(namespace) => format!("{namespace}/"),
        None => String::new(),
    };
    (format!("{} {} {place}{}", said("/apiVersion"), said("/kind"), said("/metadata/name")), object)
}

/// Fixes the images of an object as a release must have fixed them.
fn fix(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, field) in fields {
                let image =
                    field.as_str().filter(|_| key == "image").and_then(|text| text.parse::<ImageReference>().ok());
                match image.filter(|image| !image.is_pinned()) {
                    Some(image) => *field = Value::from(image.pinned(&fixed(&image)).to_string()),
                    None => fix(field),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(fix),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Says where two values differ.
fn differ(at: &str, without: &Value, with: &Value, found: &mut Vec<String>) {
    let cut = |value: Option<&Value>| -> String {
        value.map_or_else(|| "nothing".to_owned(), |value| value.to_string().chars().take(SHOWN).collect())
    };
    match (without, with) {
        (Value::Object(one), Value::Object(other)) => {
            let keys: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            for key in keys {
                let at = format!("{at}.{key}");
                match (one.get(key), other.get(key)) {
                    (Some(one), Some(other)) => differ(&at, one, other, found),
                    (one, other) => found.push(format!("{at}: {} became {}", cut(one), cut(other))),
                }
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (n, (one, other)) in one.iter().zip(other).enumerate() {
                differ(&format!("{at}[{n}]"), one, other, found);
            }
        }
        (one, other) if one == other => {}
        (one, other) => found.push(format!("{at}: {} became {}", cut(Some(one)), cut(Some(other)))),
    }
}

/// Compares all of these, and leaves nothing behind.
fn compare(all: &[&Public]) {
    let ground = Ground::up();
    let (mut found, mut room) = (Vec::new(), BTreeSet::new());
    for public in all {
        found.extend(ground.differences(public, &mut room));
    }
    for namespace in room {
        ground.sandbox().kubectl(&["delete", "namespace", &namespace]);
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_public_chart_and_a_public_kustomization_are_rendered_by_the_plugin_to_what_they_are_without_forge() {
    let few: Vec<&Public> = ALL.iter().filter(|public| ["external-dns", "kwok"].contains(&public.name)).collect();
    assert_eq!(few.len(), 2);
    compare(&few);
}

/// Ten, and one of nothing but custom resources.
#[test]
#[ignore = "takes five minutes; tools/soak runs it"]
fn every_public_chart_and_kustomization_is_rendered_by_the_plugin_to_what_it_is_without_forge() {
    compare(&ALL.iter().collect::<Vec<_>>());
}

#[test]
fn what_differs_is_said_and_what_is_made_up_is_not() {
    let object = |uid: &str, address: &str, port: u64| {
        serde_json::json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "a", "namespace": "b", "uid": uid, "labels": {"owner": uid}, "creationTimestamp": uid},
            "spec": {"clusterIP": address, "clusterIPs": [address], "ports": [{"port": port, "nodePort": port + 30000}]},
        })
    };
    let ((name, one), (_, same)) = (settled(object("1f", "10.0.0.1", 80)), settled(object("2e", "10.0.0.2", 80)));
    assert_eq!((name.as_str(), &one), ("v1 Service b/a", &same));
    let (_, other) = settled(object("3d", "None", 81));
    let mut found = Vec::new();
    differ("a", &one, &other, &mut found);
    let said = [
        "a.spec.clusterIP: ",
        "a.spec.clusterIPs: ",
        "a.spec.ports[0].nodePort: ",
        "a.spec.ports[0].port: 80 became 81",
    ];
    assert!(
        found.len() == said.len() && said.iter().zip(&found).all(|(start, found)| found.starts_with(start)),
        "{found:?}"
    );

    let mut pod = serde_json::json!({"image": "quay.io/a/b:1", "containers": [{"image": "quay.io/a/b:1@sha256:0"}], "args": ["quay.io/a/b:1"]});
    fix(&mut pod);
    let reference: ImageReference = "quay.io/a/b:1".parse().unwrap();
    assert_eq!(pod["image"], format!("quay.io/a/b@{}", fixed(&reference)));
    assert_eq!(
        (&pod["containers"][0]["image"], &pod["args"][0]),
        (&"quay.io/a/b:1@sha256:0".into(), &"quay.io/a/b:1".into())
    );
}
