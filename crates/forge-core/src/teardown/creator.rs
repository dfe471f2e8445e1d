//! What would make an Application again, and how it is stopped (SPEC.md section 2): the root set, by an exclusion of its
//! generator; the sets of an environment, whose Applications are taken from them before they go; and an app of apps, which
//! must not take its children along before their turn.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::render::is_ours;
use crate::scaffold::ROOT_SET;

/// Where Argo CD writes down which Application an object belongs to.
const TRACKING: &str = "argocd.argoproj.io/tracking-id";
/// The same, as a label, where it is told to.
const INSTANCE: &str = "argocd.argoproj.io/instance";
/// What Argo CD is told about a single object.
const OPTIONS: &str = "argocd.argoproj.io/sync-options";

/// Who makes an Application.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Creator {
    /// An ApplicationSet.
    Set(String),
    /// An app of apps.
    Application(String),
}

impl std::fmt::Display for Creator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Set(name) => write!(f, "ApplicationSet {}", crate::name::clip(name)),
            Self::Application(name) => write!(f, "Application {}", crate::name::clip(name)),
        }
    }
}

fn owners(object: &Value) -> impl Iterator<Item = &Value> {
    object.pointer("/metadata/ownerReferences").and_then(Value::as_array).into_iter().flatten()
}

fn is_set(owner: &Value) -> bool {
    owner.get("kind").and_then(Value::as_str) == Some("ApplicationSet")
}

/// Who makes an Application, or another object that Argo CD keeps as Git has it; nothing where nobody does.
pub fn creator(object: &Value) -> Option<Creator> {
    if let Some(name) = owners(object).find(|owner| is_set(owner)).and_then(|owner| owner.get("name")?.as_str()) {
        return Some(Creator::Set(name.to_owned()));
    }
    let mark = |kind: &str, key: &str| object.pointer(&format!("/metadata/{kind}"))?.get(key)?.as_str();
    let tracked = mark("annotations", TRACKING).and_then(|id| id.split(':').next());
    let name = tracked.or_else(|| mark("labels", INSTANCE)).filter(|name| !name.is_empty())?;
    let own = object.pointer("/metadata/name").and_then(Value::as_str);
    // Argo CD that manages itself is in its own hands.
    (own != Some(name)).then(|| Creator::Application(name.to_owned()))
}

/// Whether an Application that has the name of what brings an environment is it: it carries our label, the root set made it, or
/// it reads the environment's folder (`folder`) of the GitOps repository (`url`). Any other one is somebody else's (INV-11).
pub fn brings(application: &Value, (url, folder): (&str, &str)) -> bool {
    let text = |pointer: &str| application.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let reads = text("/spec/source/repoURL") == url && text("/spec/source/path").trim_matches('/') == folder;
    is_ours(application) || creator(application) == Some(Creator::Set(ROOT_SET.to_owned())) || reads
}

/// Whether a set that has the name of one of an environment is it, by its label or by what it reads: something in the
/// environment's folder of the GitOps repository.
pub fn makes(set: &Value, (url, folder): (&str, &str)) -> bool {
    let inside = |place: &Value| path_of(place).strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
    let reads = |generator: &Value| {
        let Some(git) = generator.get("git") else { return false };
        let list = |key: &str| git.get(key).and_then(Value::as_array).into_iter().flatten();
        git.get("repoURL").and_then(Value::as_str) == Some(url) && list("directories").chain(list("files")).any(inside)
    };
    let generators = set.pointer("/spec/generators").and_then(Value::as_array);
    is_ours(set) || generators.into_iter().flatten().any(reads)
}

/// What takes an Application from a set, so that it does not go with it; nothing where it is not the set's.
pub fn strip_owner(application: &Value, set: &str) -> Option<Value> {
    let of_set = |owner: &&Value| is_set(owner) && owner.get("name").and_then(Value::as_str) == Some(set);
    owners(application).find(of_set)?;
    let others: Vec<&Value> = owners(application).filter(|owner| !of_set(owner)).collect();
    Some(json!({"metadata": {"ownerReferences": others}}))
}

/// What keeps an app of apps from taking this Application along; nothing where that is said already.
pub fn protected(application: &Value) -> Option<Value> {
    let options = application.pointer("/metadata/annotations").and_then(|all| all.get(OPTIONS));
    let options = options.and_then(Value::as_str).unwrap_or_default();
    let said = options.split(',').map(str::trim).filter(|option| !option.is_empty());
    let mut said: Vec<&str> = said.collect();
    if said.contains(&"Delete=false") {
        return None;
    }
    said.push("Delete=false");
    Some(json!({"metadata": {"annotations": {OPTIONS: said.join(",")}}}))
}

/// Which Stage of Kargo may change an Application.
const AUTHORIZED: &str = "kargo.akuity.io/authorized-stage";

/// What keeps Kargo from promoting into this Application: the authorization that it carries is taken back, and nothing of
/// Kargo's own is written. Nothing where it carries none.
pub fn unauthorized(application: &Value) -> Option<Value> {
    application.pointer("/metadata/annotations").and_then(|all| all.get(AUTHORIZED))?;
    Some(json!({"metadata": {"annotations": {AUTHORIZED: null}}}))
}

/// The files that a generator of the set reads, as they are written.
fn files(generator: &Value) -> Option<&Vec<Value>> {
    generator.pointer("/git/files").and_then(Value::as_array)
}

fn path_of(file: &Value) -> &str {
    file.get("path").and_then(Value::as_str).unwrap_or_default()
}

fn excludes(file: &Value) -> bool {
    file.get("exclude").and_then(Value::as_bool) == Some(true)
}

/// What makes the root set leave a file out, and with it an environment: its list of generators, with an exclusion in each
/// that reads files. Nothing where it is left out already.
pub fn exclusion(set: &Value, file: &str) -> Option<Value> {
    let generators = set.pointer("/spec/generators").and_then(Value::as_array)?;
    let mut changed = false;
    let generators: Vec<Value> = generators
        .iter()
        .map(|generator| {
            let mut generator = generator.clone();
            let known = files(&generator).is_none_or(|all| all.iter().any(|f| excludes(f) && path_of(f) == file));
            if let (false, Some(Value::Array(list))) = (known, generator.pointer_mut("/git/files")) {
                list.push(json!({"path": file, "exclude": true}));
                changed = true;
            }
            generator
        })
        .collect();
    changed.then(|| json!({"spec": {"generators": generators}}))
}

/// The root set as Git has it, with the exclusions that are there for environments that were torn down: whoever prepares
/// another environment does not bring them back. `brought` are the files of those that are prepared now.
pub fn keeping_exclusions(wanted: &Value, live: Option<&Value>, brought: &BTreeSet<String>) -> Value {
    let generators = live.and_then(|live| live.pointer("/spec/generators")).and_then(Value::as_array);
    let there = generators.into_iter().flatten().filter_map(files).flatten().filter(|file| excludes(file));
    let mut kept: Vec<&str> = there.map(path_of).filter(|path| !path.is_empty() && !brought.contains(*path)).collect();
    kept.sort_unstable();
    kept.dedup();
    let mut merged = wanted.clone();
    for path in kept {
        if let Some(Value::Object(more)) = exclusion(&merged, path)
            && let Some(generators) = more.get("spec").and_then(|spec| spec.get("generators"))
            && let Some(place) = merged.pointer_mut("/spec/generators")
        {
            place.clone_from(generators);
        }
    }
    merged
}

/// What is known of those who make Applications.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Makers {
    /// The whole environment goes, and with it what its `app.yaml` brings.
    pub whole: bool,
    /// The Application that brings `app.yaml` of the environment.
    pub bootstrap: String,
    /// ApplicationSets that are there and that the teardown of the environment removes.
    pub own: BTreeSet<String>,
    /// ApplicationSets that are there and stay.
    pub others: BTreeSet<String>,
    /// Applications that go too: they are kept from syncing by themselves.
    pub going: BTreeSet<String>,
    /// Applications that are there, stay, and sync by themselves.
    pub automated: BTreeSet<String>,
}

/// Who would make an Application again that is to go, in words; nothing where nobody would. `in_git` is whether its folder is
/// still in the GitOps repository.
pub fn made_again(application: &Value, makers: &Makers, in_git: bool) -> Option<String> {
    let creator = creator(application)?;
    let again = match &creator {
        Creator::Set(name) if makers.own.contains(name) => !makers.whole && in_git,
        Creator::Set(name) => makers.others.contains(name),
        Creator::Application(name) if *name == makers.bootstrap => !makers.whole,
        Creator::Application(name) => !makers.going.contains(name) && makers.automated.contains(name),
    };
    again.then(|| creator.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> Value {
        json!({"spec": {"generators": [
            {"git": {"repoURL": "u", "files": [{"path": "*/app.yaml"}]}},
            {"list": {"elements": []}},
        ]}})
    }

    fn patched(object: &Value, patch: &Value) -> Value {
        let mut object = object.clone();
        object["spec"]["generators"] = patch["spec"]["generators"].clone();
        object
    }

    #[test]
    fn an_environment_is_left_out_once_and_other_generators_stay_as_they_are() {
        let patch = exclusion(&root(), "dev/app.yaml").unwrap();
        let files = &patch["spec"]["generators"][0]["git"]["files"];
        assert_eq!(*files, json!([{"path": "*/app.yaml"}, {"path": "dev/app.yaml", "exclude": true}]));
        assert_eq!(patch["spec"]["generators"][1], root()["spec"]["generators"][1]);
        let after = patched(&root(), &patch);
        assert_eq!(exclusion(&after, "dev/app.yaml"), None);
        assert!(exclusion(&after, "qa/app.yaml").is_some());
        for nothing in [json!({}), json!({"spec": {"generators": [{"list": {}}]}})] {
            assert_eq!(exclusion(&nothing, "dev/app.yaml"), None);
        }
    }

    #[test]
    fn what_was_torn_down_stays_out_until_it_is_prepared_again() {
        let live = patched(&root(), &exclusion(&root(), "dev/app.yaml").unwrap());
        let none = BTreeSet::new();
        assert_eq!(keeping_exclusions(&root(), Some(&live), &none), live);
        assert_eq!(keeping_exclusions(&root(), Some(&live), &["dev/app.yaml".to_owned()].into()), root());
        assert_eq!(keeping_exclusions(&root(), None, &none), root());
        // What Git itself leaves out is not written a second time.
        assert_eq!(keeping_exclusions(&live, Some(&live), &none), live);
    }

    #[test]
    fn the_creator_of_an_application_is_its_set_or_what_tracks_it() {
        let of = |metadata: Value| creator(&json!({"metadata": metadata}));
        let set = json!({"name": "a", "ownerReferences": [{"kind": "ApplicationSet", "name": "dev-apps", "uid": "1"}]});
        assert_eq!(of(set.clone()), Some(Creator::Set("dev-apps".to_owned())));
        let tracked = json!({"name": "a", "annotations": {TRACKING: "root:argoproj.io/Application:argocd/a"}});
        assert_eq!(of(tracked), Some(Creator::Application("root".to_owned())));
        let own = json!({"name": "argocd", "annotations": {TRACKING: "argocd:argoproj.io/Application:argocd/argocd"}});
        assert_eq!((of(own), of(json!({"name": "a"}))), (None, None));
        let labelled = json!({"name": "a", "labels": {INSTANCE: "root"}});
        assert_eq!(of(labelled), Some(Creator::Application("root".to_owned())));
        let owned = json!({"metadata": set});
        assert_eq!(strip_owner(&owned, "dev-apps"), Some(json!({"metadata": {"ownerReferences": []}})));
        assert_eq!(strip_owner(&owned, "other"), None);
    }

    #[test]
    fn what_only_has_the_name_of_what_brings_or_makes_an_environment_is_somebody_elses() {
        let own = ("https://git.example.com/p.git", "dev");
        let reads = |url: &str, path: &str| json!({"spec": {"source": {"repoURL": url, "path": path}}});
        let by = |set: &str| json!({"metadata": {"ownerReferences": [{"kind": "ApplicationSet", "name": set}]}});
        let ours = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "forge"}}});
        for application in [reads(own.0, "dev"), reads(own.0, "dev/"), by(ROOT_SET), ours.clone()] {
            assert!(brings(&application, own), "{application}");
        }
        for other in [reads("https://other.example.com/p.git", "dev"), reads(own.0, "qa"), by("theirs"), json!({})] {
            assert!(!brings(&other, own), "{other}");
        }
        let set = |url: &str, kind: &str, path: &str| json!({"spec": {"generators": [{"git": {"repoURL": url, kind: [{"path": path}]}}]}});
        for made in [set(own.0, "directories", "dev/apps/*/*"), set(own.0, "files", "dev/apps/*/release.yaml"), ours] {
            assert!(makes(&made, own), "{made}");
        }
        for other in [
            set("https://other.example.com/p.git", "directories", "dev/apps/*/*"),
            set(own.0, "directories", "dev-2/apps/*/*"),
            json!({"spec": {"generators": [{"list": {"elements": []}}]}}),
            json!({}),
        ] {
            assert!(!makes(&other, own), "{other}");
        }
    }

    #[test]
    fn who_would_make_it_again_and_stays_is_named_and_who_is_stopped_is_not() {
        let set = |name: &str| {
            let owner = json!([{"kind": "ApplicationSet", "name": name}]);
            json!({"metadata": {"name": "a", "ownerReferences": owner}})
        };
        let tracked = |by: &str| json!({"metadata": {"name": "a", "annotations": {TRACKING: format!("{by}:x")}}});
        let names = |list: &[&str]| -> BTreeSet<String> { list.iter().map(|name| (*name).to_owned()).collect() };
        let whole = Makers {
            whole: true,
            bootstrap: "dev-bootstrap".to_owned(),
            own: names(&["dev-apps"]),
            others: names(&["somebodys"]),
            going: names(&["parent"]),
            automated: names(&["other", "parent"]),
        };
        let part = Makers { whole: false, ..whole.clone() };
        for (application, makers, in_git, by) in [
            (set("dev-apps"), &whole, true, None),
            (set("dev-apps"), &part, true, Some("ApplicationSet dev-apps")),
            (set("dev-apps"), &part, false, None),
            (set("somebodys"), &whole, false, Some("ApplicationSet somebodys")),
            // A set that is gone makes nothing.
            (set("gone"), &whole, true, None),
            (tracked("dev-bootstrap"), &whole, true, None),
            (tracked("dev-bootstrap"), &part, true, Some("Application dev-bootstrap")),
            (tracked("parent"), &whole, true, None),
            (tracked("other"), &whole, true, Some("Application other")),
            (tracked("manual"), &whole, true, None),
            (json!({"metadata": {"name": "a"}}), &part, true, None),
        ] {
            assert_eq!(made_again(&application, makers, in_git).as_deref(), by, "{application}");
        }
    }

    #[test]
    fn a_stage_of_kargo_loses_its_authorization_and_nothing_else_is_written() {
        let said = json!({"metadata": {"annotations": {AUTHORIZED: "shop:dev", "a": "b"}}});
        assert_eq!(unauthorized(&said), Some(json!({"metadata": {"annotations": {AUTHORIZED: null}}})));
        assert_eq!(unauthorized(&json!({"metadata": {"annotations": {"a": "b"}}})), None);
    }

    #[test]
    fn an_application_is_kept_from_its_app_of_apps_without_losing_what_else_it_says() {
        let said = json!({"metadata": {"annotations": {OPTIONS: "Prune=false"}}});
        let patch = protected(&said).unwrap();
        assert_eq!(patch["metadata"]["annotations"][OPTIONS], "Prune=false,Delete=false");
        assert_eq!(protected(&json!({"metadata": patch["metadata"]})), None);
        assert_eq!(protected(&json!({})).unwrap()["metadata"]["annotations"][OPTIONS], "Delete=false");
    }
}
