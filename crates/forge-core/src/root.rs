//! The root file, `app.yaml` (SPEC.md section 2): what of it bootstrap applies, what is to be done about each object, and when
//! Argo CD's own Application is handed over.
//!
//! Pure: what Git says and what was read of a cluster in, one step out. What somebody else made is never overwritten (INV-11):
//! ours is what carries our label, which whoever owns it may set to hand it over. Nothing is ever removed for not being in the
//! file (INV-10).

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::install;
use crate::name::clip;
use crate::render::{MANAGED_BY, Placed, is_ours};
use crate::repository::{Repository, RootFile};
use crate::scaffold::ROOT_SET;

/// The ConfigMap that says what bootstrap applied of the root file.
pub const RECEIPT: &str = "forge-root";

/// What the file may hold, in the order in which it is applied: a project is there before what is in it.
const KINDS: [(&str, &str); 3] =
    [("AppProject", "appprojects"), ("ApplicationSet", "applicationsets"), ("Application", "applications")];

/// What bootstrap applies of the root file.
pub struct Root {
    /// All but Argo CD's own Application, in their order.
    pub objects: Vec<Placed>,
    /// Argo CD's own Application, where the file has one.
    pub own: Option<Placed>,
}

impl Root {
    /// Of a repository; nothing where it has no root file.
    ///
    /// # Errors
    /// With everything that keeps the file from being applied.
    pub fn of(repository: &Repository) -> Result<Option<Self>, Vec<String>> {
        let documents = match &repository.root {
            RootFile::Absent => return Ok(None),
            RootFile::Unusable => return Err(vec!["it cannot be read".to_owned()]),
            RootFile::Objects(documents) => documents,
        };
        let namespace = repository.installation.argo.namespace.as_str();
        let (mut found, mut problems, mut names) = (Vec::new(), Vec::new(), BTreeSet::new());
        for document in documents {
            match placed(document, namespace) {
                Ok((rank, object)) if names.insert(identity(&object.object)) => found.push((rank, object)),
                Ok((_, object)) => problems.push(format!("{} stands twice", identity(&object.object))),
                Err(problem) => problems.push(problem),
            }
        }
        if !names.contains(&format!("ApplicationSet {ROOT_SET}")) {
            problems.push(format!("no ApplicationSet `{ROOT_SET}`, which brings the environments"));
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        found.sort_by_key(|(rank, _)| *rank);
        let own = format!("Application {}", install::APPLICATION);
        let (own, objects): (Vec<Placed>, Vec<Placed>) =
            found.into_iter().map(|(_, placed)| placed).partition(|placed| identity(&placed.object) == own);
        Ok(Some(Self { objects, own: own.into_iter().next() }))
    }
}

/// Kind and name of an object.
pub fn identity(object: &Value) -> String {
    let text = |pointer: &str| clip(object.pointer(pointer).and_then(Value::as_str).unwrap_or_default());
    format!("{} {}", text("/kind"), text("/metadata/name"))
}

/// An object of the file as it is applied: in Argo CD's namespace, with our label, and with the digest of what it says.
fn placed(document: &Value, namespace: &str) -> Result<(usize, Placed), String> {
    let text = |pointer: &str| document.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let kind = text("/kind");
    let known = KINDS.into_iter().enumerate().find(|(_, (known, _))| *known == kind);
    let Some((rank, (_, plural))) = known.filter(|_| text("/apiVersion") == "argoproj.io/v1alpha1") else {
        return Err(format!("{} is neither AppProject, ApplicationSet nor Application of Argo CD", identity(document)));
    };
    if text("/metadata/name").is_empty() {
        return Err(format!("a document of kind {kind} has no name"));
    }
    if !["", namespace].contains(&text("/metadata/namespace")) {
        return Err(format!("{} must be in namespace `{namespace}`", identity(document)));
    }
    let mut object = document.clone();
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.insert("namespace".to_owned(), json!(namespace));
        let mut labels = metadata.remove("labels").filter(Value::is_object).unwrap_or_else(|| json!({}));
        if let Value::Object(labels) = &mut labels {
            labels.insert(MANAGED_BY.to_owned(), json!("forge"));
        }
        metadata.insert("labels".to_owned(), labels);
    }
    let collection = format!("/apis/argoproj.io/v1alpha1/namespaces/{namespace}/{plural}");
    Ok((rank, Placed { collection, object: install::stamped(object) }))
}

/// What is to be done about an object of the root file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It is as it should be.
    Nothing,
    /// It is as it should be, and somebody else's: it stays his.
    Left,
    /// It is not there.
    Make,
    /// It is ours, and says something else.
    Change,
    /// It is somebody else's, and says something else.
    Refuse,
}

/// Decides about an object.
pub fn step(wanted: &Value, live: Option<&Value>) -> Step {
    let Some(live) = live else { return Step::Make };
    match (is_ours(live), agrees(live, wanted)) {
        (true, true) => Step::Nothing,
        (true, false) => Step::Change,
        (false, _) if agrees(live, &without_marks(wanted)) => Step::Left,
        (false, _) => Step::Refuse,
    }
}

/// Whether an object is as Git says. Argo CD writes its own objects back without what is empty or false, so either is as good as
/// absent.
fn agrees(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => wanted.iter().all(|(key, wanted)| match live.get(key) {
            Some(live) => agrees(live, wanted),
            None => is_nothing(wanted),
        }),
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len() && live.iter().zip(wanted).all(|(live, wanted)| agrees(live, wanted))
        }
        _ => live == wanted,
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) | Value::Number(_) => false,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_nothing),
    }
}

/// Without what we add to what the file says.
fn without_marks(object: &Value) -> Value {
    let mut object = object.clone();
    for (place, mark) in [("/metadata/labels", MANAGED_BY), ("/metadata/annotations", install::APPLIED)] {
        if let Some(Value::Object(marks)) = object.pointer_mut(place) {
            marks.remove(mark);
        }
    }
    object
}

/// What is to be done about Argo CD's own Application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handover {
    /// It is in Git, and nobody asked for it.
    NotAsked,
    /// It is not there, or was only compared: Argo CD compares it, and takes over where no pod changes.
    Compare,
    /// It was handed over, and as it is to be it was not seen Synced and Healthy yet: this is to be done about it, and then it
    /// is waited for.
    Unproven(Step),
    /// It was handed over; this is to be done about it, as about any other object.
    Done(Step),
}

/// Decides about Argo CD's own Application; `asked` is whether somebody wants it handed over, `proven` whether the receipt lists
/// it, which it does from when it was Synced and Healthy. What was begun is ended, and what was handed over stays so, asked
/// or not.
pub fn handover(wanted: &Value, live: Option<&Value>, asked: bool, proven: bool) -> Handover {
    match live {
        None if !asked => Handover::NotAsked,
        None => Handover::Compare,
        Some(live) if is_ours(live) && install::is_pending(live) => Handover::Compare,
        live => match step(wanted, live) {
            Step::Nothing if proven => Handover::Done(Step::Nothing),
            step @ (Step::Nothing | Step::Make | Step::Change) => Handover::Unproven(step),
            step @ (Step::Left | Step::Refuse) => Handover::Done(step),
        },
    }
}

/// What a receipt lists, as far as it is ours and can be read.
pub fn listed(receipt: Option<&Value>) -> BTreeSet<String> {
    let text =
        receipt.filter(|receipt| is_ours(receipt)).and_then(|receipt| receipt.pointer("/data/objects")?.as_str());
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// The receipt. It says no time, so that a second bootstrap writes nothing (INV-2).
pub fn receipt(namespace: &str, objects: &BTreeSet<String>) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": RECEIPT, "namespace": namespace, "labels": {MANAGED_BY: "forge"}},
        "data": {"objects": json!(objects).to_string()},
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::scaffold::{Source, With, root_app};
    use crate::validate::{Content, tree};

    const FORGE: &str = "apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: Forge\nspec:\n  repository: {url: https://git.example.com/p.git}\n  argo: {namespace: gitops}\n  environments: [{name: dev, cluster: dev, sync: auto}]\n";
    const GRAPH: &str = "apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: DependencyGraph\nspec:\n  stacks: []\n";

    fn repository(root: Option<&str>) -> Repository {
        let mut files = BTreeMap::from([("forge.yaml", FORGE), ("graph.yaml", GRAPH)]);
        files.extend(root.map(|text| ("app.yaml", text)));
        let files = files.into_iter().map(|(path, text)| (path.to_owned(), Content::Bytes(text.as_bytes().to_vec())));
        tree(&files.collect()).repository.unwrap()
    }

    fn scaffolded() -> String {
        let with = With { crossplane: Source::Published, argocd: Source::Vendored };
        root_app(&repository(None).installation, with)
    }

    fn root(text: &str) -> Result<Option<Root>, Vec<String>> {
        Root::of(&repository(Some(text)))
    }

    #[test]
    fn what_init_writes_is_applied_projects_first_and_argo_cds_own_application_apart() {
        let root = root(&scaffolded()).unwrap().unwrap();
        let names: Vec<String> = root.objects.iter().map(|placed| identity(&placed.object)).collect();
        let expected = [
            "AppProject forge-system",
            "AppProject forge-components",
            "ApplicationSet environments",
            "Application crossplane",
        ];
        assert_eq!(names, expected);
        let own = root.own.unwrap();
        assert_eq!(identity(&own.object), "Application argocd");
        for placed in root.objects.iter().chain([&own]) {
            assert_eq!(placed.object["metadata"]["labels"][MANAGED_BY], "forge");
            assert_eq!(placed.object["metadata"]["namespace"], "gitops");
            assert!(placed.collection.starts_with("/apis/argoproj.io/v1alpha1/namespaces/gitops/app"));
        }
        // And it is one that can take over what Helm installs.
        let installation = repository(None).installation;
        let read = install::Own::read(&own.object, &installation).unwrap();
        let health = crate::health::HealthChecks::merge(&BTreeMap::new());
        let wanted = install::Wanted::new(crate::preflight::Component::Cd, "gitops", &health, None, None);
        assert_eq!(install::Wanted::of_application("gitops", &read, &wanted.version, None), wanted);
        assert_eq!(read.chart, install::ChartPlace::Folder("argo/charts/argo-cd".to_owned()));
    }

    #[test]
    fn a_repository_without_a_root_file_has_no_root() {
        assert!(Root::of(&repository(None)).unwrap().is_none());
    }

    #[test]
    fn what_cannot_be_applied_is_told_at_once() {
        let told = |text: &str| root(text).err().unwrap();
        let missing = "no ApplicationSet `environments`, which brings the environments";
        assert_eq!(told("a: [\n"), ["it cannot be read"]);
        assert_eq!(told(""), [missing]);
        let objects = "apiVersion: v1\nkind: Namespace\nmetadata: {name: x}\n---\napiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: a, namespace: elsewhere}\n---\napiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {}\n";
        let wrong = told(objects);
        assert_eq!(wrong.len(), 4, "{wrong:?}");
        assert!(wrong[0].starts_with("Namespace x is neither") && wrong[1].contains("must be in namespace `gitops`"));
        let twice = format!("{0}---\n{0}", scaffolded());
        assert_eq!(told(&twice).len(), 5);
    }

    fn live(ours: bool, spec: &Value) -> Value {
        let labels = if ours { json!({MANAGED_BY: "forge"}) } else { json!({"a": "b"}) };
        json!({"kind": "ApplicationSet", "metadata": {"name": "x", "uid": "1", "labels": labels}, "spec": spec})
    }

    fn wanted() -> Value {
        json!({"kind": "ApplicationSet", "metadata": {"name": "x", "labels": {MANAGED_BY: "forge"}}, "spec": {"a": 1}})
    }

    #[test]
    fn what_is_somebody_elses_is_left_or_refused_and_never_changed() {
        let (same, other) = (json!({"a": 1, "added": true}), json!({"a": 2}));
        for (found, expected) in [
            (None, Step::Make),
            (Some(live(true, &same)), Step::Nothing),
            (Some(live(true, &other)), Step::Change),
            (Some(live(false, &same)), Step::Left),
            (Some(live(false, &other)), Step::Refuse),
            (Some(json!({})), Step::Refuse),
        ] {
            assert_eq!(step(&wanted(), found.as_ref()), expected, "{found:?}");
        }
    }

    #[test]
    fn what_the_file_says_no_longer_is_a_change_and_whose_it_is_counts_all_the_same() {
        let set = |spec: &str| {
            let head = "apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata: {name: environments}\n";
            let root = root(&format!("{head}spec: {spec}\n")).unwrap().unwrap();
            root.objects.into_iter().next().unwrap().object
        };
        let (more, less) = (set("{a: 1, b: {c: 2}}"), set("{a: 1, b: {}}"));
        assert_eq!(step(&more, Some(&more)), Step::Nothing);
        assert_eq!(step(&less, Some(&more)), Step::Change);
        // One that somebody else applied has no digest, or that of when it was ours.
        let mut foreign = more.clone();
        foreign["metadata"]["labels"] = json!({});
        assert_eq!(step(&more, Some(&foreign)), Step::Left);
        foreign["metadata"]["annotations"] = json!({});
        assert_eq!(step(&more, Some(&foreign)), Step::Left);
        // Handed over by the label, it gets one.
        foreign["metadata"]["labels"] = json!({MANAGED_BY: "forge"});
        assert_eq!(step(&more, Some(&foreign)), Step::Change);
    }

    #[test]
    fn what_argo_cd_left_out_of_its_own_object_is_no_difference_and_everything_else_is() {
        let wanted = json!({"spec": {"automated": {"prune": false, "selfHeal": true}, "helm": {"valuesObject": {}}}});
        let with = |automated: Value| json!({"spec": {"automated": automated, "more": 1}, "status": {}});
        assert!(agrees(&with(json!({"selfHeal": true})), &wanted));
        assert!(agrees(&with(json!({"selfHeal": true, "prune": false})), &wanted));
        for other in [json!({"selfHeal": true, "prune": true}), json!({"prune": false}), json!(null)] {
            assert!(!agrees(&with(other.clone()), &wanted), "{other}");
        }
        assert!(!agrees(&json!({"a": [1, 2]}), &json!({"a": [1]})));
    }

    #[test]
    fn argo_cd_is_handed_over_once_when_somebody_asks_and_what_was_begun_is_ended() {
        let (same, other) = (json!({"a": 1}), json!({"a": 2}));
        let pending = install::inert(&live(true, &same));
        for (found, asked, expected) in [
            (None, false, Handover::NotAsked),
            (None, true, Handover::Compare),
            (Some(pending.clone()), false, Handover::Compare),
            (Some(pending), true, Handover::Compare),
            (Some(live(true, &same)), false, Handover::Done(Step::Nothing)),
            (Some(live(true, &other)), false, Handover::Unproven(Step::Change)),
            (Some(live(false, &same)), true, Handover::Done(Step::Left)),
            (Some(live(false, &other)), true, Handover::Done(Step::Refuse)),
        ] {
            assert_eq!(handover(&wanted(), found.as_ref(), asked, true), expected, "{found:?}");
        }
        // What was not seen Synced and Healthy is waited for again; what is somebody else's is his.
        for (ours, expected) in [(true, Handover::Unproven(Step::Nothing)), (false, Handover::Done(Step::Left))] {
            assert_eq!(handover(&wanted(), Some(&live(ours, &same)), false, false), expected);
        }
    }

    #[test]
    fn a_receipt_is_read_as_it_was_written_and_only_where_it_is_ours() {
        let objects = BTreeSet::from(["AppProject a".to_owned(), "Application b".to_owned()]);
        let written = receipt("gitops", &objects);
        assert_eq!(listed(Some(&written)), objects);
        let mut foreign = written.clone();
        foreign["metadata"]["labels"] = json!({});
        assert!(listed(Some(&foreign)).is_empty() && listed(None).is_empty());
        let mut odd = written;
        odd["data"]["objects"] = json!("{}");
        assert!(listed(Some(&odd)).is_empty());
    }
}
