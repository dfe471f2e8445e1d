//! An object, as far as an inventory knows it: who it is, who owns it, what keeps it, and who says that he made it. The
//! metadata are enough.

use jiff::Timestamp;
use serde_json::Value;

use crate::name::clip;
use crate::preflight::{items, mark, text};
use crate::render::{ENVIRONMENT_LABEL, MANAGED_BY, RUN_LABEL};
use crate::teardown::Finalizer;
use crate::teardown::crossplane::{is_unwritten, wrote};
use crate::teardown::member::is_undeleted;

/// Whoever an object goes with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parent {
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uid: String,
}

/// An object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Its namespace; empty where it has none.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its identity: another object of the same name has another one.
    pub uid: String,
    /// What it goes with.
    pub parents: Vec<Parent>,
    /// What keeps it.
    pub finalizers: Vec<Finalizer>,
    /// It is being deleted.
    pub going: bool,
    /// Since when.
    pub since: Option<Timestamp>,
    /// It carries our label.
    pub forge: bool,
    /// The environment that our label names.
    pub environment: Option<String>,
    /// The Helm release that made it, `namespace/name`.
    pub release: Option<String>,
    /// The Application that it says it belongs to, as Argo CD writes it: `name`, or `namespace_name`.
    pub tracked: Option<String>,
    /// Helm and Argo CD leave it where it is.
    pub kept: bool,
    /// Argo CD is told not to delete it.
    pub undeleted: bool,
    /// It is of a run: a plan, a record, a Workflow, a Job.
    pub run: bool,
    /// A part of Kubernetes made it, and looks after it.
    pub automatic: bool,
    /// Crossplane wrote it, and nobody besides.
    pub crossplane: bool,
    /// Nobody wrote more of it than its name.
    pub unwritten: bool,
    /// Its sync wave.
    pub wave: i64,
}

impl Item {
    /// Reads an object; nothing where it has no name or no identity.
    pub fn read(object: &Value) -> Option<Self> {
        let name = text(object, "/metadata/name")?;
        let uid = text(object, "/metadata/uid")?;
        let label = |key: &str| mark(object, "labels", key);
        let annotation = |key: &str| mark(object, "annotations", key);
        let helm = annotation("meta.helm.sh/release-namespace").zip(annotation("meta.helm.sh/release-name"));
        let going = text(object, "/metadata/deletionTimestamp");
        let automatic = label("kube-aggregator.kubernetes.io/automanaged").is_some()
            || label("kubernetes.io/bootstrapping").is_some()
            || annotation("apf.kubernetes.io/autoupdate-spec").is_some();
        Some(Self {
            namespace: text(object, "/metadata/namespace").unwrap_or_default().to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            parents: items(object, "/metadata/ownerReferences").filter_map(parent).collect(),
            finalizers: Finalizer::all(object),
            going: going.is_some(),
            since: going.and_then(|time| time.parse().ok()),
            forge: label(MANAGED_BY) == Some("forge"),
            environment: label(ENVIRONMENT_LABEL).map(str::to_owned),
            release: helm.map(|(namespace, name)| format!("{namespace}/{name}")),
            tracked: tracked(object, name),
            kept: annotation("helm.sh/resource-policy") == Some("keep"),
            undeleted: is_undeleted(object),
            run: label(RUN_LABEL).is_some(),
            automatic,
            crossplane: wrote(object),
            unwritten: is_unwritten(object),
            wave: annotation("argocd.argoproj.io/sync-wave").and_then(|wave| wave.trim().parse().ok()).unwrap_or(0),
        })
    }

    /// Where it is: `namespace/name`, or `name`.
    pub fn place(&self) -> String {
        let (namespace, name) = (clip(&self.namespace), clip(&self.name));
        if namespace.is_empty() { name } else { format!("{namespace}/{name}") }
    }

    /// Who says that he made it.
    pub fn made_by(&self) -> Option<String> {
        if self.forge {
            return Some("Forge".to_owned());
        }
        let application = self.tracked.as_deref().map(|name| format!("Application {}", clip(name)));
        application.or_else(|| self.release.as_deref().map(|name| format!("Helm release {}", clip(name))))
    }

    /// The Helm release, `namespace/name`, that this Secret is the record of, if Forge made it.
    pub fn own_release(&self) -> Option<String> {
        let (name, revision) = self.name.strip_prefix("sh.helm.release.v1.")?.rsplit_once(".v")?;
        let numbered = !revision.is_empty() && revision.bytes().all(|digit| digit.is_ascii_digit());
        (self.forge && numbered).then(|| format!("{}/{name}", self.namespace))
    }
}

fn parent(owner: &Value) -> Option<Parent> {
    let field = |pointer: &str| text(owner, pointer).map(str::to_owned);
    Some(Parent { kind: field("/kind")?, name: field("/name")?, uid: field("/uid")? })
}

/// The Application that an object says it belongs to. Copied along with a template, a tracking id names another object and
/// says nothing about this one.
fn tracked(object: &Value, name: &str) -> Option<String> {
    if let Some(id) = mark(object, "annotations", "argocd.argoproj.io/tracking-id") {
        let mut parts = id.splitn(3, ':');
        let (application, _, place) = (parts.next()?, parts.next()?, parts.next()?);
        if place.rsplit('/').next() == Some(name) {
            return Some(application.to_owned());
        }
    }
    mark(object, "labels", "argocd.argoproj.io/instance").map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_says_who_made_it_what_keeps_it_and_who_set_that() {
        let read = |metadata: Value| Item::read(&json!({ "metadata": metadata })).unwrap();
        let item = read(json!({
            "name": "one", "namespace": "shop", "uid": "u",
            "deletionTimestamp": "2026-11-16T10:00:00Z",
            "finalizers": ["example.com/hold", 7],
            "ownerReferences": [{"kind": "Widget", "name": "w", "uid": "o"}, {"kind": "Widget"}],
            "annotations": {
                "argocd.argoproj.io/tracking-id": "dev-shop:example.com/Widget:shop/one",
                "argocd.argoproj.io/sync-wave": "-2",
                "helm.sh/resource-policy": "keep",
            },
            "managedFields": [
                {"manager": "argocd-controller", "fieldsV1": {"f:metadata": {"f:labels": {}}}},
                {"manager": "kubectl-edit", "fieldsV1": {"f:metadata": {"f:finalizers": {".": {}, "v:\"example.com/hold\"": {}}}}},
            ],
        }));
        assert_eq!((item.place().as_str(), item.wave, item.kept, item.going), ("shop/one", -2, true, true));
        assert_eq!(item.since.map(|time| time.to_string()).as_deref(), Some("2026-11-16T10:00:00Z"));
        assert_eq!((item.parents.len(), item.finalizers.len()), (1, 1));
        assert_eq!(item.finalizers[0].owner.as_deref(), Some("kubectl-edit"));
        assert_eq!(item.made_by().as_deref(), Some("Application dev-shop"));
        // Copied along, the id is another object's.
        let copied = json!({"name": "two", "uid": "u", "annotations": {"argocd.argoproj.io/tracking-id": "a:/ConfigMap:shop/one"}});
        assert_eq!(read(copied).tracked, None);
        let labelled = read(json!({"name": "x", "uid": "u", "labels": {"argocd.argoproj.io/instance": "argocd_x"}}));
        assert_eq!(labelled.tracked.as_deref(), Some("argocd_x"));
        let own = read(json!({"name": "x", "uid": "u", "labels": {MANAGED_BY: "forge", ENVIRONMENT_LABEL: "dev"}}));
        assert_eq!(
            (own.forge, own.environment.as_deref(), own.made_by().as_deref()),
            (true, Some("dev"), Some("Forge"))
        );
    }

    #[test]
    fn a_release_of_ours_is_known_by_the_secret_that_helm_keeps_of_it() {
        let read = |name: &str, by: &str| {
            let metadata = json!({"name": name, "namespace": "argocd", "uid": "u", "labels": {MANAGED_BY: by}});
            Item::read(&json!({ "metadata": metadata })).unwrap().own_release()
        };
        assert_eq!(read("sh.helm.release.v1.argo-cd.v12", "forge").as_deref(), Some("argocd/argo-cd"));
        assert_eq!(read("sh.helm.release.v1.argo-cd.v12", "Helm"), None);
        assert_eq!(read("sh.helm.release.v1.argo-cd.vx", "forge"), None);
        assert_eq!(read("token", "forge"), None);
    }

    #[test]
    fn what_has_no_name_or_identity_is_no_object_and_nothing_hostile_is_shown() {
        for hostile in [json!(null), json!({}), json!({"metadata": {"name": "x"}}), json!({"metadata": {"uid": "x"}})] {
            assert_eq!(Item::read(&hostile), None, "{hostile}");
        }
        let odd = "\u{1b}[2J".repeat(200);
        let item = Item::read(
            &json!({"metadata": {"name": odd, "uid": "u", "deletionTimestamp": "soon", "finalizers": "none"}}),
        );
        let item = item.unwrap();
        assert!(item.going && item.since.is_none() && item.finalizers.is_empty());
        assert!(item.place().chars().all(|c| !c.is_control()));
    }
}
