//! Argo CD's own Application, by which it manages itself: what Helm is given, so that Argo CD finds nothing to change when it
//! renders the same chart; and, from Argo CD's own comparison, whether it would change a pod.
//!
//! Release, namespace, chart, version and values decide what comes out. Whatever else an Application can say about Helm would
//! make the two differ, and is refused before anything is written.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::Part;
use super::chart::chart;
use crate::format::Installation;
use crate::name::clip;
use crate::preflight::Component;
use crate::render::is_ours;
use crate::url::same_repository;
use crate::yaml::{Dialect, Limits, read};

/// The name of the Application.
pub const APPLICATION: &str = "argocd";
/// Marks one that Argo CD only compares with what is there: it is handed over when that shows no change of a pod.
pub const HANDOVER: &str = "forge.projectcatalyst.io/handover";
/// Kinds whose pods restart when their template changes.
pub const WORKLOADS: [&str; 3] = ["DaemonSet", "Deployment", "StatefulSet"];

/// The cluster that runs Argo CD, as Argo CD names it.
const HERE: (&str, &str) = ("in-cluster", "https://kubernetes.default.svc");
/// What of an Application's `helm` does not change what comes out, or is given to Helm too.
const HELM_FIELDS: [&str; 6] = ["passCredentials", "releaseName", "skipTests", "values", "valuesObject", "version"];

/// Where the chart of Argo CD's own Application is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChartPlace {
    /// A folder of the GitOps repository.
    Folder(String),
    /// A chart at this version, which Helm gets from where charts come from.
    Version(String),
}

/// What Argo CD's own Application says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Own {
    /// The values, all of them.
    pub values: Value,
    /// The chart.
    pub chart: ChartPlace,
}

impl Own {
    /// Reads the Application as Git has it.
    ///
    /// # Errors
    /// With everything that keeps Helm from rendering the same.
    pub fn read(application: &Value, installation: &Installation) -> Result<Self, Vec<String>> {
        let text = |pointer: &str| application.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let list = |pointer: &str| application.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
        let (release, namespace) = (chart(Component::Cd).name, installation.argo.namespace.as_str());
        let mut problems = Vec::new();
        if list("/metadata/finalizers").next().is_some() {
            problems.push("`metadata.finalizers`: whoever deletes the Application would delete Argo CD".to_owned());
        }
        if application.pointer("/spec/sources").is_some() {
            problems.push("`spec.sources`: Helm is given one chart; write `spec.source`".to_owned());
        }
        let (name, server) = HERE;
        if text("/spec/destination/name") != name && text("/spec/destination/server") != server {
            problems.push(format!("`spec.destination.name` must be `{name}`, the cluster that runs Argo CD"));
        }
        if text("/spec/destination/namespace") != namespace {
            problems.push(format!("`spec.destination.namespace` must be `{namespace}`"));
        }
        if text("/spec/source/helm/releaseName") != release {
            let why = "under another name it is a second Argo CD";
            problems.push(format!("`spec.source.helm.releaseName` must be `{release}`: {why}"));
        }
        let helm = application.pointer("/spec/source/helm").and_then(Value::as_object);
        for key in helm.into_iter().flatten().map(|(key, _)| key.as_str()).filter(|key| !HELM_FIELDS.contains(key)) {
            problems.push(format!("`spec.source.helm.{}` is not given to Helm: write it as values", clip(key)));
        }
        let automated = application.pointer("/spec/syncPolicy/automated").filter(|automated| automated.is_object());
        if automated.is_none_or(|automated| automated.get("enabled") == Some(&Value::Bool(false))) {
            problems.push("`spec.syncPolicy.automated` must be on: nobody else syncs it".to_owned());
        }
        let options: Vec<&str> = list("/spec/syncPolicy/syncOptions").filter_map(Value::as_str).collect();
        if !options.contains(&"ServerSideApply=true") {
            let why = "definitions of Argo CD are too large for the other way";
            problems.push(format!("`spec.syncPolicy.syncOptions` must have `ServerSideApply=true`: {why}"));
        }
        for option in options.into_iter().filter(|option| matches!(*option, "Replace=true" | "Force=true")) {
            problems.push(format!("`spec.syncPolicy.syncOptions` must not have `{option}`: pods would be made anew"));
        }
        let values = values(application).map_err(|problem| problems.push(problem));
        let chart = place(application, installation).map_err(|problem| problems.push(problem));
        match (values, chart) {
            (Ok(values), Ok(chart)) if problems.is_empty() => Ok(Self { values, chart }),
            _ => Err(problems),
        }
    }
}

/// The values, as Argo CD takes them: the object goes over the text.
fn values(application: &Value) -> Result<Value, String> {
    let field = |name: &str| application.pointer("/spec/source/helm").and_then(|helm| helm.get(name));
    if let Some(object) = field("valuesObject").filter(|object| !object.is_null()) {
        let whole = object.is_object().then(|| object.clone());
        return whole.ok_or_else(|| "`spec.source.helm.valuesObject` must be a mapping".to_owned());
    }
    let stream =
        read(field("values").and_then(Value::as_str).unwrap_or_default(), Dialect::Kubernetes, Limits::EMBEDDED);
    match (stream.problems.first(), stream.documents.as_slice()) {
        (Some(problem), _) => Err(format!("`spec.source.helm.values`: {}: {}", problem.at, problem.message)),
        (None, []) => Ok(json!({})),
        (None, [document]) if document.entries().is_some() => Ok(document.to_json()),
        (None, _) => Err("`spec.source.helm.values` must be one mapping".to_owned()),
    }
}

/// Where the chart is, if Helm can get the same.
fn place(application: &Value, installation: &Installation) -> Result<ChartPlace, String> {
    let field = |name: &str| {
        let found = application.pointer("/spec/source").and_then(|source| source.get(name));
        found.and_then(Value::as_str).unwrap_or_default()
    };
    let (url, revision, path) = (field("repoURL"), field("targetRevision"), field("path"));
    let wanted = chart(Component::Cd).name;
    let registry = url.starts_with("oci://");
    let image = registry && url.trim_end_matches('/').rsplit('/').next() == Some(wanted);
    if field("chart") == wanted || image {
        return if is_version(revision) {
            Ok(ChartPlace::Version(revision.to_owned()))
        } else {
            let revision = clip(revision);
            Err(format!("`spec.source.targetRevision` must be one version of the chart, not `{revision}`"))
        };
    }
    if !field("chart").is_empty() || registry || path.is_empty() {
        return Err(format!("`spec.source` must be chart `{wanted}`, or a folder of this repository that holds it"));
    }
    let (own, branch) = (&installation.repository.url.value, &installation.repository.branch.value);
    if !same_repository(url, own) {
        return Err(
            "`spec.source.repoURL`: a chart in Git must be in this repository, where Helm finds it too".to_owned()
        );
    }
    if revision != branch.as_str() {
        return Err(format!("`spec.source.targetRevision` must be `{branch}`, as forge.yaml has it"));
    }
    let folder = path.trim_end_matches('/');
    if folder.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err(format!("`spec.source.path`: `{}` is not a folder of this repository", clip(path)));
    }
    Ok(ChartPlace::Folder(folder.to_owned()))
}

/// One version, and no range of them.
fn is_version(text: &str) -> bool {
    let numbers: Vec<&str> =
        text.trim_start_matches('v').split(['-', '+']).next().unwrap_or_default().split('.').collect();
    numbers.len() == 3 && numbers.iter().all(|number| number.parse::<u64>().is_ok())
}

/// How Argo CD's own Application stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Managed {
    /// In Argo CD's words.
    pub how: String,
    /// Synced and Healthy.
    pub well: bool,
}

/// Reads the Application as it is in a cluster; nothing where it is not one that makes our release of Argo CD, or where it is ours
/// and only compared: until it is handed over, Argo CD is Helm's.
pub fn managed(application: &Value, namespace: &str) -> Option<Managed> {
    let text = |pointer: &str| application.pointer(pointer).and_then(Value::as_str);
    let several = application.pointer("/spec/sources").and_then(Value::as_array).into_iter().flatten();
    let mut sources = application.pointer("/spec/source").into_iter().chain(several);
    let release = chart(Component::Cd).name;
    let makes = sources.any(|source| source.pointer("/helm/releaseName").and_then(Value::as_str) == Some(release));
    if !makes || text("/spec/destination/namespace") != Some(namespace) {
        return None;
    }
    if is_pending(application) {
        let pending = || Managed { how: "not handed over yet".to_owned(), well: false };
        return (!is_ours(application)).then(pending);
    }
    let (sync, health) = (text("/status/sync/status"), text("/status/health/status"));
    let how = format!("{}, {}", clip(sync.unwrap_or("not compared")), clip(health.unwrap_or("health not known")));
    Some(Managed { how, well: sync == Some("Synced") && health == Some("Healthy") })
}

/// The Application as Argo CD only compares it: it syncs nothing by itself, and goes without a trace.
pub fn inert(application: &Value) -> Value {
    let mut inert = application.clone();
    if let Some(Value::Object(policy)) = inert.pointer_mut("/spec/syncPolicy") {
        policy.remove("automated");
    }
    if let Some(Value::Object(metadata)) = inert.get_mut("metadata") {
        metadata.remove("finalizers");
        if let Value::Object(annotations) = metadata.entry("annotations").or_insert_with(|| json!({})) {
            annotations.insert(HANDOVER.to_owned(), json!("comparing"));
        }
    }
    inert
}

/// True for an Application that is only compared.
pub fn is_pending(application: &Value) -> bool {
    application.pointer("/metadata/annotations").and_then(|marks| marks.get(HANDOVER)).is_some()
}

/// Whether Argo CD may take its release over: every workload of it is there, and stays what it is. `items` is Argo CD's own
/// comparison, `parts` what Helm's installation was proven by. Gives how many workloads there are.
///
/// # Errors
/// With everything that would change.
pub fn adoption(items: &[Value], parts: &[Part]) -> Result<usize, Vec<String>> {
    let mut changes = Vec::new();
    let mut seen = BTreeSet::new();
    for item in items {
        let text = |key: &str| item.get(key).and_then(Value::as_str).unwrap_or_default();
        let state = |key: &str| serde_json::from_str::<Value>(text(key)).ok().filter(Value::is_object);
        if text("group") != "apps" || !WORKLOADS.contains(&text("kind")) || state("targetState").is_none() {
            continue;
        }
        let name = format!("{} {}", clip(text("kind")), clip(text("name")));
        let template = |key: &str| state(key).and_then(|object| object.pointer("/spec/template").cloned());
        match (state("liveState"), template("normalizedLiveState"), template("predictedLiveState")) {
            (None, ..) => changes.push(format!("{name} would be made")),
            (Some(_), Some(live), Some(predicted)) => {
                if let Some(path) = difference(&live, &predicted) {
                    changes.push(format!("{name} would get another pod template (`{}`)", clip(&path)));
                }
            }
            _ => changes.push(format!("{name} was not compared")),
        }
        seen.insert(name);
    }
    // A comparison that shows less than what runs is no proof (INV-10).
    let workloads = parts.iter().filter(|part| part.namespace.is_some()).map(Part::to_string);
    changes.extend(workloads.filter(|name| !seen.contains(name)).map(|name| format!("{name} is not part of it")));
    if seen.is_empty() {
        changes.push("it has no workload at all".to_owned());
    }
    if changes.is_empty() { Ok(seen.len()) } else { Err(changes) }
}

/// Where two values differ first; never what they say, which may be nobody's business.
fn difference(one: &Value, other: &Value) -> Option<String> {
    let below = |key: &str, rest: String| if rest.is_empty() { key.to_owned() } else { format!("{key}.{rest}") };
    match (one, other) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            keys.into_iter().find_map(|key| match (a.get(key), b.get(key)) {
                (Some(a), Some(b)) => difference(a, b).map(|rest| below(key, rest)),
                _ => Some(key.clone()),
            })
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let mut pairs = a.iter().zip(b).enumerate();
            pairs.find_map(|(n, (a, b))| difference(a, b).map(|rest| below(&n.to_string(), rest)))
        }
        _ => (one != other).then(String::new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml::{At, Position};

    fn installation() -> Installation {
        let at = |text: &str| At::new(text.to_owned(), Position::START);
        Installation {
            registry: None,
            repository: crate::format::Repository { url: at("https://git.example.com/p.git"), branch: at("main") },
            argo: crate::format::Argo {
                cd: crate::format::ArgoInstall::Install,
                workflows: crate::format::ArgoInstall::Install,
                events: crate::format::ArgoEvents::None,
                namespace: "argocd".parse().unwrap(),
            },
            environments: Vec::new(),
        }
    }

    fn application() -> Value {
        json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
            "metadata": {"name": "argocd", "namespace": "argocd"},
            "spec": {
                "project": "forge-components",
                "source": {
                    "repoURL": "https://charts.example.com", "chart": "argo-cd", "targetRevision": "9.2.0",
                    "helm": {"releaseName": "argo-cd", "valuesObject": {"dex": {"enabled": false}}},
                },
                "destination": {"name": "in-cluster", "namespace": "argocd"},
                "syncPolicy": {"automated": {"selfHeal": true}, "syncOptions": ["ServerSideApply=true"]},
            },
        })
    }

    fn with(pointer: &str, key: &str, value: Value) -> Value {
        let mut application = application();
        application.pointer_mut(pointer).unwrap().as_object_mut().unwrap().insert(key.to_owned(), value);
        application
    }

    fn from(source: Value) -> Result<ChartPlace, Vec<String>> {
        let mut application = application();
        let helm = application["spec"]["source"]["helm"].clone();
        application["spec"]["source"] = source;
        application["spec"]["source"]["helm"] = helm;
        Own::read(&application, &installation()).map(|own| own.chart)
    }

    #[test]
    fn a_chart_comes_from_a_repository_a_registry_or_a_folder_of_git() {
        let own = Own::read(&application(), &installation()).unwrap();
        assert_eq!(own.values, json!({"dex": {"enabled": false}}));
        assert_eq!(own.chart, ChartPlace::Version("9.2.0".to_owned()));
        let registry = json!({"repoURL": "oci://r.example.com/charts/argo-cd", "path": ".", "targetRevision": "9.3.1"});
        assert_eq!(from(registry), Ok(ChartPlace::Version("9.3.1".to_owned())));
        let git =
            json!({"repoURL": "https://git.example.com/p", "path": "argo/charts/argo-cd/", "targetRevision": "main"});
        assert_eq!(from(git), Ok(ChartPlace::Folder("argo/charts/argo-cd".to_owned())));
        for (source, problem) in [
            (json!({"repoURL": "https://x", "chart": "argo-cd", "targetRevision": "9.*"}), "one version of the chart"),
            (json!({"repoURL": "https://x", "chart": "argocd", "targetRevision": "9.2.0"}), "must be chart `argo-cd`"),
            (json!({"repoURL": "oci://x/other", "path": ".", "targetRevision": "9.2.0"}), "must be chart `argo-cd`"),
            (json!({"repoURL": "https://x", "path": "a", "targetRevision": "main"}), "must be in this repository"),
            (
                json!({"repoURL": "https://git.example.com/p.git", "path": "a", "targetRevision": "v1"}),
                "must be `main`",
            ),
            (
                json!({"repoURL": "https://git.example.com/p.git", "path": "../a", "targetRevision": "main"}),
                "not a folder",
            ),
            (json!({}), "must be chart `argo-cd`"),
        ] {
            let told = from(source.clone()).unwrap_err();
            assert!(told.len() == 1 && told[0].contains(problem), "{source}: {told:?}");
        }
    }

    #[test]
    fn everything_that_helm_would_render_otherwise_is_told_at_once() {
        for (pointer, key, value, problem) in [
            ("/metadata", "finalizers", json!(["resources-finalizer.argocd.argoproj.io"]), "metadata.finalizers"),
            ("/spec", "sources", json!([]), "spec.sources"),
            ("/spec/destination", "namespace", json!("elsewhere"), "must be `argocd`"),
            ("/spec/destination", "name", json!("dev"), "must be `in-cluster`"),
            ("/spec/source/helm", "releaseName", json!("argocd"), "must be `argo-cd`"),
            ("/spec/source/helm", "valueFiles", json!(["a.yaml"]), "valueFiles` is not given to Helm"),
            ("/spec/source/helm", "kubeVersion", json!("1.30"), "kubeVersion` is not given to Helm"),
            ("/spec/source/helm", "valuesObject", json!([]), "must be a mapping"),
            ("/spec/syncPolicy", "syncOptions", json!(["ServerSideApply=true", "Replace=true"]), "made anew"),
            ("/spec/syncPolicy", "syncOptions", json!([]), "must have `ServerSideApply=true`"),
            ("/spec/syncPolicy", "automated", json!(null), "nobody else syncs it"),
            ("/spec/syncPolicy", "automated", json!({"enabled": false}), "nobody else syncs it"),
        ] {
            let told = Own::read(&with(pointer, key, value), &installation()).unwrap_err();
            assert!(told.len() == 1 && told[0].contains(problem), "{key}: {told:?}");
        }
        let nothing = Own::read(&json!({}), &installation()).unwrap_err();
        assert_eq!(nothing.len(), 6, "{nothing:?}");
        let server = json!({"server": "https://kubernetes.default.svc", "namespace": "argocd"});
        assert!(Own::read(&with("/spec", "destination", server), &installation()).is_ok());
    }

    #[test]
    fn values_may_be_a_text_and_an_object_goes_over_it() {
        let values = |helm: Value| {
            Own::read(&with("/spec/source", "helm", helm), &installation())
                .map(|own| own.values)
                .map_err(|told| told[0].clone())
        };
        let text = "dex:\n  enabled: true\n";
        assert_eq!(values(json!({"releaseName": "argo-cd", "values": text})), Ok(json!({"dex": {"enabled": true}})));
        let both = json!({"releaseName": "argo-cd", "values": text, "valuesObject": {}});
        assert_eq!(values(both), Ok(json!({})));
        assert_eq!(values(json!({"releaseName": "argo-cd"})), Ok(json!({})));
        for (text, problem) in [("- a\n", "one mapping"), ("a: 1\n---\nb: 2\n", "one mapping"), ("a: [", "values`: ")] {
            let told = values(json!({"releaseName": "argo-cd", "values": text})).unwrap_err();
            assert!(told.contains(problem), "{told}");
        }
    }

    #[test]
    fn an_application_manages_argo_cd_when_it_makes_our_release_there() {
        assert_eq!(managed(&application(), "elsewhere"), None);
        assert_eq!(managed(&with("/spec/source/helm", "releaseName", json!("other")), "argocd"), None);
        assert_eq!(managed(&json!({}), "argocd"), None);
        let new = managed(&application(), "argocd").unwrap();
        assert_eq!((new.how.as_str(), new.well), ("not compared, health not known", false));
        let status = json!({"sync": {"status": "Synced"}, "health": {"status": "Healthy"}});
        let mut well = application();
        well["status"] = status;
        assert_eq!(managed(&well, "argocd"), Some(Managed { how: "Synced, Healthy".to_owned(), well: true }));
        let mut several = application();
        several["spec"]["sources"] = json!([{"ref": "values"}, several["spec"]["source"]]);
        several["spec"].as_object_mut().unwrap().remove("source");
        assert!(managed(&several, "argocd").is_some());
    }

    #[test]
    fn what_is_only_compared_syncs_nothing_and_can_be_deleted() {
        let mut application = with("/metadata", "finalizers", json!(["resources-finalizer.argocd.argoproj.io"]));
        application["metadata"]["annotations"] = json!({"a": "b"});
        let inert = inert(&application);
        assert!(is_pending(&inert) && !is_pending(&application));
        assert!(
            inert.pointer("/spec/syncPolicy/automated").is_none() && inert.pointer("/metadata/finalizers").is_none()
        );
        assert_eq!(inert["metadata"]["annotations"]["a"], "b");
        assert_eq!(inert["spec"]["source"], application["spec"]["source"]);
        assert_eq!(managed(&inert, "argocd").unwrap().how, "not handed over yet");
        // One of ours takes nothing from Helm before it is handed over.
        let mut ours = inert;
        ours["metadata"]["labels"] = json!({"app.kubernetes.io/managed-by": "forge"});
        assert_eq!(managed(&ours, "argocd"), None);
    }

    fn workload(replicas: u64, image: &str) -> Value {
        json!({"spec": {"replicas": replicas, "template": {"spec": {"containers": [{"image": image}]}}}})
    }

    fn item(kind: &str, name: &str, live: &Value, predicted: &Value) -> Value {
        json!({
            "group": "apps", "kind": kind, "name": name, "targetState": predicted.to_string(),
            "liveState": live.to_string(), "normalizedLiveState": live.to_string(),
            "predictedLiveState": predicted.to_string(),
        })
    }

    fn part(kind: &str, name: &str) -> Part {
        let namespace = (kind != "CustomResourceDefinition").then(|| "argocd".to_owned());
        Part { kind: kind.to_owned(), name: name.to_owned(), namespace, images: Vec::new() }
    }

    #[test]
    fn it_is_taken_over_where_no_pod_template_changes() {
        let live = workload(1, "a:1");
        let mut tracked = workload(1, "a:1");
        tracked["metadata"] =
            json!({"annotations": {"argocd.argoproj.io/tracking-id": "argocd:apps/Deployment:argocd/a"}});
        let items = [
            item("Deployment", "server", &live, &tracked),
            item("StatefulSet", "controller", &live, &live),
            json!({"kind": "Service", "name": "server", "targetState": "{}"}),
        ];
        let parts = [part("Deployment", "server"), part("CustomResourceDefinition", "applications.argoproj.io")];
        assert_eq!(adoption(&items, &parts), Ok(2));
    }

    #[test]
    fn whatever_would_change_or_was_not_seen_is_told() {
        let (live, other) = (workload(1, "a:1"), workload(2, "a:2"));
        let changed = item("Deployment", "server", &live, &other);
        let told = adoption(&[changed], &[]).unwrap_err();
        assert_eq!(told, ["Deployment server would get another pod template (`spec.containers.0.image`)"]);
        let fresh = item("Deployment", "server", &json!(null), &live);
        assert_eq!(adoption(&[fresh], &[]).unwrap_err(), ["Deployment server would be made"]);
        let mut half = item("Deployment", "server", &live, &live);
        half["predictedLiveState"] = json!("{}");
        assert_eq!(adoption(&[half], &[]).unwrap_err(), ["Deployment server was not compared"]);
        let parts = [part("StatefulSet", "controller")];
        let told = adoption(&[item("Deployment", "server", &live, &live)], &parts).unwrap_err();
        assert_eq!(told, ["StatefulSet controller is not part of it"]);
        // Nothing listed is no proof.
        assert_eq!(adoption(&[], &[]).unwrap_err(), ["it has no workload at all"]);
        let extra =
            json!({"group": "apps", "kind": "Deployment", "name": "old", "targetState": "null", "liveState": "{}"});
        assert_eq!(adoption(&[extra], &[]).unwrap_err(), ["it has no workload at all"]);
    }
}
