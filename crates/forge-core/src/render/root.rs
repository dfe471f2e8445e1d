//! The root of a repository, `app.yaml`, as objects: what `kubectl apply -f app.yaml` would make (SPEC.md section 2).

use serde_json::{Value, json};

use super::Placed;
use super::bootstrap::placed;
use crate::name::clip;
use crate::repository::ROOT_APP_FILE;
use crate::yaml::{Dialect, Limits, Node, read};

/// Kinds that a root is made of, and what the API calls several of them.
const KINDS: [(&str, &str); 3] =
    [("AppProject", "appprojects"), ("Application", "applications"), ("ApplicationSet", "applicationsets")];
const API_VERSION: &str = "argoproj.io/v1alpha1";

/// Why a root cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RootError {
    /// It is no YAML.
    #[error("{ROOT_APP_FILE}:{at}: {message}")]
    Unreadable {
        /// Where.
        at: String,
        /// Why not.
        message: String,
    },
    /// Something in it is not Argo CD's.
    #[error(
        "{ROOT_APP_FILE}: document {number} is {found}, not an AppProject, Application or ApplicationSet of {API_VERSION}"
    )]
    Foreign {
        /// Counted from 1.
        number: usize,
        /// What it says that it is.
        found: String,
    },
    /// Argo CD does not look there.
    #[error("{ROOT_APP_FILE}: {kind} `{name}` is in namespace `{found}`, and Argo CD in `{expected}`")]
    Elsewhere {
        /// What it is.
        kind: String,
        /// Its name.
        name: String,
        /// Where it says that it is.
        found: String,
        /// Where it has to be.
        expected: String,
    },
}

/// The objects of a root, in their order, for an Argo CD in this namespace.
///
/// # Errors
/// When something in it cannot be applied: then nothing of it is to be.
pub fn root(text: &str, argocd: &str) -> Result<Vec<Placed>, RootError> {
    let stream = read(text, Dialect::Kubernetes, Limits::FILE);
    if let Some(problem) = stream.problems.first() {
        return Err(RootError::Unreadable { at: problem.at.to_string(), message: problem.message.clone() });
    }
    let documents = stream.documents.iter().map(Node::to_json).enumerate();
    documents.filter(|(_, document)| !document.is_null()).map(|(n, object)| one(n + 1, object, argocd)).collect()
}

fn one(number: usize, mut object: Value, argocd: &str) -> Result<Placed, RootError> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (version, kind, name) = (text("/apiVersion"), text("/kind"), text("/metadata/name"));
    let plural = KINDS.iter().find(|(known, _)| *known == kind).map(|(_, plural)| *plural);
    let Some(plural) = plural.filter(|_| version == API_VERSION && !name.is_empty()) else {
        let found = clip(format!("{version} {kind} {name}").trim());
        return Err(RootError::Foreign { number, found: if found.is_empty() { "nothing".to_owned() } else { found } });
    };
    let found = text("/metadata/namespace");
    if !found.is_empty() && found != argocd {
        let (name, found, expected) = (clip(&name), clip(&found), argocd.to_owned());
        return Err(RootError::Elsewhere { kind, name, found, expected });
    }
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.insert("namespace".to_owned(), json!(argocd));
    }
    Ok(placed(format!("/apis/{API_VERSION}/namespaces/{argocd}/{plural}"), object))
}

/// Whether an object of the root is as Git says. Argo CD writes its own objects back without what is empty or false, so either
/// is as good as absent.
pub fn is_planted(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => wanted.iter().all(|(key, wanted)| match live.get(key) {
            Some(live) => is_planted(live, wanted),
            None => is_nothing(wanted),
        }),
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len() && live.iter().zip(wanted).all(|(live, wanted)| is_planted(live, wanted))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Installation;
    use crate::scaffold::{self, With};
    use crate::validate::{self, Content};

    fn installation() -> Installation {
        let text = "apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: Forge\nspec:\n  repository: {url: https://git.example.com/p.git}\n  environments: [{name: dev, cluster: in-cluster, sync: manual}]\n";
        let graph = "apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: DependencyGraph\nspec: {stacks: []}\n";
        let tree = [("forge.yaml", text), ("graph.yaml", graph)];
        let tree = tree.map(|(path, text)| (path.to_owned(), Content::Bytes(text.as_bytes().to_vec())));
        validate::tree(&tree.into()).repository.unwrap().installation
    }

    #[test]
    fn what_init_writes_is_applied_as_it_is_written_projects_first() {
        let with = With { crossplane: true, argocd: true };
        let objects = root(&scaffold::root_app(&installation(), with), "argocd").unwrap();
        let seen: Vec<String> = objects
            .iter()
            .map(|placed| format!("{} {}", placed.object["kind"], placed.object["metadata"]["name"]).replace('"', ""))
            .collect();
        assert_eq!(
            seen,
            [
                "AppProject forge-system",
                "ApplicationSet environments",
                "AppProject forge-components",
                "Application argocd",
                "Application crossplane",
            ]
        );
        assert_eq!(objects[1].collection, "/apis/argoproj.io/v1alpha1/namespaces/argocd/applicationsets");
        assert_eq!(objects[1].object["metadata"]["namespace"], "argocd");
    }

    #[test]
    fn what_argo_cd_left_out_of_its_own_object_is_no_difference_and_everything_else_is() {
        let wanted = json!({"spec": {"automated": {"prune": false, "selfHeal": true}, "helm": {"valuesObject": {}}}});
        let with = |automated: Value| json!({"spec": {"automated": automated, "more": 1}, "status": {}});
        assert!(is_planted(&with(json!({"selfHeal": true})), &wanted));
        assert!(is_planted(&with(json!({"selfHeal": true, "prune": false})), &wanted));
        for other in [json!({"selfHeal": true, "prune": true}), json!({"prune": false}), json!(null)] {
            assert!(!is_planted(&with(other.clone()), &wanted), "{other}");
        }
        assert!(!is_planted(&json!({"a": [1, 2]}), &json!({"a": [1]})));
    }

    #[test]
    fn what_argo_cd_would_not_find_or_is_not_its_own_is_refused_whole() {
        let application = "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: a";
        assert_eq!(root(&format!("{application}}}\n"), "argocd").unwrap().len(), 1);
        assert_eq!(root("", "argocd").unwrap().len(), 0);
        let elsewhere = root(&format!("{application}, namespace: other}}\n"), "argocd").err().unwrap();
        assert_eq!(elsewhere.to_string(), "app.yaml: Application `a` is in namespace `other`, and Argo CD in `argocd`");
        for foreign in ["apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n", "kind: Application\n", "[1, 2]\n"] {
            let both = format!("{application}}}\n---\n{foreign}");
            assert!(matches!(root(&both, "argocd"), Err(RootError::Foreign { number: 2, .. })), "{foreign}");
        }
        assert!(matches!(root("a: [", "argocd"), Err(RootError::Unreadable { .. })));
    }
}
