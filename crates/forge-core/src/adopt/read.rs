//! Argo's objects, as much of them as adoption needs, read loosely: a field that is missing or of another type is not there.

use std::collections::BTreeMap;

use serde_json::Value;

use super::hazard::{Hazard, Kind};
use crate::name::{ApplicationId, NameError, clip};

/// Where resources that nobody placed are.
pub(super) const IN_CLUSTER: &str = "in-cluster";
const WAVE: &str = "argocd.argoproj.io/sync-wave";
const FINALIZER: &str = "resources-finalizer.argocd.argoproj.io";
/// How many resources of one Application are looked at; nobody manages that many in one.
const MOST_RESOURCES: usize = 50_000;

/// Something that Argo CD manages in an Application.
#[derive(Debug, Clone, Copy)]
pub(super) struct Resource<'j> {
    pub(super) group: &'j str,
    pub(super) kind: &'j str,
    pub(super) namespace: &'j str,
    pub(super) name: &'j str,
    pub(super) wave: i64,
    pub(super) hook: bool,
    pub(super) prune: bool,
    pub(super) assessed: bool,
}

/// One source of an Application.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'j> {
    pub(super) repository: &'j str,
    pub(super) revision: &'j str,
    pub(super) chart: bool,
}

/// An Application.
#[derive(Debug)]
pub(super) struct Application<'j> {
    pub(super) id: ApplicationId,
    pub(super) json: &'j Value,
    /// It becomes a node.
    pub(super) selected: bool,
    pub(super) project: &'j str,
    pub(super) labels: BTreeMap<&'j str, &'j str>,
    pub(super) wave: Option<i64>,
    pub(super) sources: Vec<Source<'j>>,
    /// The cluster by name, or by address where it has no other.
    pub(super) cluster: &'j str,
    /// Its ApplicationSet.
    pub(super) owner: Option<&'j str>,
    pub(super) tracked_by: Option<Tracked<'j>>,
    pub(super) resources: Vec<Resource<'j>>,
}

/// An ApplicationSet.
#[derive(Debug)]
pub(super) struct Set<'j> {
    pub(super) id: ApplicationId,
    pub(super) json: &'j Value,
    pub(super) wave: Option<i64>,
    pub(super) tracked_by: Option<Tracked<'j>>,
}

/// Which Application an object says it belongs to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tracked<'j> {
    /// The namespace, where it is not Argo CD's own.
    pub(super) namespace: Option<&'j str>,
    pub(super) name: &'j str,
}

/// A text at a place.
pub(super) fn text<'j>(json: &'j Value, pointer: &str) -> Option<&'j str> {
    json.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// A list at a place; nothing is an empty one.
pub(super) fn list<'j>(json: &'j Value, pointer: &str) -> &'j [Value] {
    json.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Whether something is said to be true.
pub(super) fn truth(json: &Value, pointer: &str) -> bool {
    json.pointer(pointer).and_then(Value::as_bool).unwrap_or(false)
}

/// A table of texts.
fn table<'j>(json: &'j Value, pointer: &str) -> BTreeMap<&'j str, &'j str> {
    let fields = json.pointer(pointer).and_then(Value::as_object);
    fields.into_iter().flatten().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?))).collect()
}

/// An annotation.
pub(super) fn annotation<'j>(json: &'j Value, key: &str) -> Option<&'j str> {
    json.pointer("/metadata/annotations")?.get(key)?.as_str()
}

/// The AppProject of an Application.
pub(super) fn project(json: &Value) -> &str {
    text(json, "/spec/project").unwrap_or("default")
}

/// The namespace and the name that an object says it has.
fn names<'j>(json: &'j Value, argocd: &'j str) -> (&'j str, &'j str) {
    (text(json, "/metadata/namespace").unwrap_or(argocd), text(json, "/metadata/name").unwrap_or_default())
}

/// `namespace/name` as an object says them, whether they can be used or not.
pub(super) fn key(json: &Value, argocd: &str) -> String {
    let (namespace, name) = names(json, argocd);
    format!("{namespace}/{name}")
}

/// The identity of an object, or what to say about one that has none that can be used.
fn identity(what: &str, json: &Value, argocd: &str) -> Result<ApplicationId, Hazard> {
    if !json.is_object() {
        return Err(Hazard::new(Kind::InvalidName, what, "an item of the list is not an object"));
    }
    key(json, argocd).parse().map_err(|error: NameError| {
        let (namespace, name) = names(json, argocd);
        let about = format!("{what} {}/{}", clip(namespace), clip(name));
        Hazard::new(Kind::InvalidName, &about, error.to_string())
    })
}

/// What an object says about who manages it. Copied along with a template, a tracking id names another object and says
/// nothing about this one.
fn tracked<'j>(json: &'j Value, id: &ApplicationId, kind: &str) -> Option<Tracked<'j>> {
    if let Some(value) = annotation(json, "argocd.argoproj.io/tracking-id") {
        let mut parts = value.splitn(3, ':');
        let (application, what, which) = (parts.next()?, parts.next()?, parts.next()?);
        let mine = what.strip_prefix("argoproj.io/") == Some(kind)
            && which.split_once('/').is_some_and(|(_, name)| name == id.name());
        if mine {
            // Outside of Argo CD's namespace the name is `<namespace>_<name>`; neither may hold an underscore.
            return Some(match application.split_once('_') {
                Some((namespace, name)) => Tracked { namespace: Some(namespace), name },
                None => Tracked { namespace: None, name: application },
            });
        }
    }
    let name = json.pointer("/metadata/labels")?.get("argocd.argoproj.io/instance")?.as_str()?;
    Some(Tracked { namespace: None, name })
}

fn wave(json: &Value) -> Option<i64> {
    annotation(json, WAVE)?.trim().parse().ok()
}

/// Reads objects, sorted by identity, each once. What is wrong with an object is told where it is of interest.
fn all<'j, T>(
    what: &str,
    items: &'j [Value],
    argocd: &str,
    concerns: impl Fn(&Value) -> bool,
    hazards: &mut Vec<Hazard>,
    make: impl Fn(&'j Value, ApplicationId) -> T,
) -> Vec<T> {
    let mut found: BTreeMap<ApplicationId, &'j Value> = BTreeMap::new();
    for json in items {
        match identity(what, json, argocd) {
            Ok(id) => {
                // Kubernetes lists nothing twice; where a file does, the choice must not depend on its order (INV-9).
                let kept = found.entry(id).or_insert(json);
                if *kept != json {
                    *kept = std::cmp::min_by_key(json, *kept, ToString::to_string);
                }
            }
            Err(hazard) if concerns(json) => hazards.push(hazard),
            Err(_) => {}
        }
    }
    found.into_iter().map(|(id, json)| make(json, id)).collect()
}

/// The Applications, of which some are selected.
pub(super) fn applications<'j>(
    items: &'j [Value],
    argocd: &str,
    selects: impl Fn(&Value) -> bool,
    hazards: &mut Vec<Hazard>,
) -> Vec<Application<'j>> {
    all("Application", items, argocd, &selects, hazards, |json, id| application(json, id, selects(json)))
}

/// The ApplicationSets, of which some are of interest.
pub(super) fn sets<'j>(
    items: &'j [Value],
    argocd: &str,
    concerns: impl Fn(&Value) -> bool,
    hazards: &mut Vec<Hazard>,
) -> Vec<Set<'j>> {
    all("ApplicationSet", items, argocd, concerns, hazards, |json, id| Set {
        wave: wave(json),
        tracked_by: tracked(json, &id, "ApplicationSet"),
        id,
        json,
    })
}

fn application(json: &Value, id: ApplicationId, selected: bool) -> Application<'_> {
    let several = list(json, "/spec/sources");
    let sources: Vec<Source<'_>> = if several.is_empty() {
        let dry = json.pointer("/spec/sourceHydrator/drySource");
        json.pointer("/spec/source").or(dry).and_then(source).into_iter().collect()
    } else {
        several.iter().filter_map(source).collect()
    };
    let owners = list(json, "/metadata/ownerReferences");
    let set = owners.iter().find(|owner| text(owner, "/kind") == Some("ApplicationSet"));
    Application {
        tracked_by: tracked(json, &id, "Application"),
        id,
        json,
        selected,
        project: project(json),
        labels: table(json, "/metadata/labels"),
        wave: wave(json),
        sources,
        cluster: cluster(json),
        owner: set.and_then(|owner| text(owner, "/name")),
        resources: list(json, "/status/resources").iter().take(MOST_RESOURCES).filter_map(resource).collect(),
    }
}

fn source(json: &Value) -> Option<Source<'_>> {
    let repository = text(json, "/repoURL")?;
    Some(Source {
        repository,
        revision: text(json, "/targetRevision").unwrap_or("HEAD"),
        chart: text(json, "/chart").is_some() || repository.starts_with("oci://"),
    })
}

fn cluster(json: &Value) -> &str {
    match (text(json, "/spec/destination/name"), text(json, "/spec/destination/server")) {
        (Some(name), _) => name,
        (None, Some("https://kubernetes.default.svc" | "https://kubernetes.default.svc/")) => IN_CLUSTER,
        (None, Some(server)) => server,
        (None, None) => "",
    }
}

fn resource(json: &Value) -> Option<Resource<'_>> {
    let field = |name: &str| json.get(name).and_then(Value::as_str).unwrap_or_default();
    let (kind, name) = (field("kind"), field("name"));
    let truth = |name: &str| json.get(name).and_then(Value::as_bool).unwrap_or(false);
    (!kind.is_empty() && !name.is_empty()).then(|| Resource {
        group: field("group"),
        kind,
        namespace: field("namespace"),
        name,
        wave: json.get("syncWave").and_then(Value::as_i64).unwrap_or(0),
        hook: truth("hook"),
        prune: truth("requiresPruning"),
        assessed: json.pointer("/health/status").is_some(),
    })
}

impl Application<'_> {
    /// How messages name it.
    pub(super) fn about(&self) -> String {
        format!("Application {}", self.id)
    }

    /// `namespace/name` of its ApplicationSet.
    pub(super) fn set(&self) -> Option<String> {
        self.owner.map(|name| format!("{}/{name}", self.id.namespace))
    }

    /// Automated sync is on.
    pub(super) fn automated(&self) -> bool {
        self.json.pointer("/spec/syncPolicy/automated").is_some_and(|automated| {
            automated.is_object() && automated.get("enabled").and_then(Value::as_bool).unwrap_or(true)
        })
    }

    /// Deleting it deletes what it deployed.
    pub(super) fn has_finalizer(&self) -> bool {
        list(self.json, "/metadata/finalizers")
            .iter()
            .filter_map(Value::as_str)
            .any(|name| name == FINALIZER || name.strip_prefix(FINALIZER).is_some_and(|rest| rest.starts_with('/')))
    }
}

impl Set<'_> {
    /// How messages name it.
    pub(super) fn about(&self) -> String {
        format!("ApplicationSet {}", self.id)
    }
}
