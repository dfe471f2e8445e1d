//! What Forge itself needs in a cluster: accounts with the least that they can do with, the template of all nodes, the
//! executor plugin, the policy that limits the writer of windows, and AppProjects (SPEC.md section 4).
//!
//! Pure: names in, objects out, the same every time. Every object carries our label (INV-11).

use serde_json::{Value, json};

use super::policy::policies;
use super::workflow::{
    ARGOCD_SECRET_PATH, EXECUTOR_ACCOUNT, PLUGIN, PLUGIN_ACCOUNT, Places, WORKFLOW_ACCOUNT, templates,
};
use super::{ENVIRONMENT_LABEL, MANAGED_BY};
use crate::digest::Digest;
use crate::name::EnvironmentName;
use crate::rights::{self, Scope};

/// Annotations of the plugin's ConfigMap: what a run has to know of how the cluster was prepared.
pub const IMAGE_ANNOTATION: &str = "forge.projectcatalyst.io/image";
/// The agent's tick in milliseconds.
pub const TICK_ANNOTATION: &str = "forge.projectcatalyst.io/agent-tick";

/// An object and where it belongs in the API.
pub struct Placed {
    /// The collection, as a path of the Kubernetes API.
    pub collection: String,
    /// The object.
    pub object: Value,
}

/// An object of a collection.
pub(super) fn placed(collection: impl Into<String>, object: Value) -> Placed {
    Placed { collection: collection.into(), object }
}

/// Everything but AppProjects and the token of the Argo CD account, in the order in which it is to be applied.
pub fn bootstrap(places: &Places, environments: &[EnvironmentName]) -> Vec<Placed> {
    let mut objects = of_runs(places);
    objects.extend(of_argocd(places, environments));
    objects
}

/// What of it is beside Argo Workflows, and in no namespace.
pub fn of_runs(places: &Places) -> Vec<Placed> {
    let core = |plural: &str| format!("/api/v1/namespaces/{}/{plural}", places.workflows);
    let mut objects = Vec::new();
    for account in [EXECUTOR_ACCOUNT, PLUGIN_ACCOUNT, WORKFLOW_ACCOUNT] {
        objects.push(placed(
            core("serviceaccounts"),
            json!({
                "apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": metadata(account, Some(&places.workflows)),
                "automountServiceAccountToken": account == EXECUTOR_ACCOUNT || account == PLUGIN_ACCOUNT,
            }),
        ));
    }
    // Argo Workflows mounts the tokens of these two by name.
    for account in [PLUGIN_ACCOUNT, WORKFLOW_ACCOUNT] {
        let mut metadata = metadata(&format!("{account}.service-account-token"), Some(&places.workflows));
        if let Value::Object(fields) = &mut metadata {
            fields.insert("annotations".to_owned(), json!({"kubernetes.io/service-account.name": account}));
        }
        objects.push(placed(core("secrets"), json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token", "metadata": metadata,
        })));
    }
    for account in [EXECUTOR_ACCOUNT, PLUGIN_ACCOUNT, WORKFLOW_ACCOUNT] {
        objects.extend(role(places, account, account, &places.workflows, &rules(account, Scope::Workflows)));
    }
    let template = "/apis/argoproj.io/v1alpha1/clusterworkflowtemplates";
    objects.extend(templates().into_iter().map(|object| placed(template, object)));
    objects.push(placed(core("configmaps"), plugin(places)));
    objects.extend(policies(places));
    objects
}

/// What of it is in Argo CD's namespace: what the executor may do there.
fn of_argocd(places: &Places, environments: &[EnvironmentName]) -> Vec<Placed> {
    let of = |name: &str, rules: &[Value]| role(places, name, EXECUTOR_ACCOUNT, &places.argocd, rules);
    let mut objects = Vec::from(of(EXECUTOR_ACCOUNT, &rules(EXECUTOR_ACCOUNT, Scope::ArgoCd)));
    // One for each environment, so that several installations share a cluster without taking rights from each other.
    for environment in environments {
        let named = rights::granted(EXECUTOR_ACCOUNT).iter().filter(|rule| rule.named);
        let named: Vec<Value> = named.map(|rule| rule.rbac(&[environment.as_str()])).collect();
        objects.extend(of(&format!("{EXECUTOR_ACCOUNT}-{environment}"), &named));
    }
    objects
}

/// The same where Argo CD is somebody else's: its owner makes them, so they do not carry our label. With the last of them he hands
/// the AppProject over by name (SPEC.md section 4).
pub fn handed(places: &Places, environments: &[EnvironmentName]) -> Vec<Placed> {
    let mut objects = of_argocd(places, environments);
    for placed in &mut objects {
        unlabelled(&mut placed.object);
    }
    objects
}

/// Without the label that says whose it is.
pub(crate) fn unlabelled(object: &mut Value) {
    if let Some(labels) = object.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.retain(|label, _| label != MANAGED_BY);
    }
}

/// What says that environments were prepared to the end: it is written last of all. By the digest of what a run relies on,
/// so that another image, or another version of Forge, is prepared for again.
pub fn receipts(places: &Places, environments: &[EnvironmentName]) -> Vec<Placed> {
    let receipt = |environment: &EnvironmentName| {
        let objects = bootstrap(places, std::slice::from_ref(environment));
        let objects: Vec<&Value> = objects.iter().map(|placed| &placed.object).collect();
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": format!("forge-bootstrap-{environment}"), "namespace": places.workflows,
                "labels": {MANAGED_BY: "forge", ENVIRONMENT_LABEL: environment},
            },
            "data": {"digest": Digest::of_json(&objects)},
        });
        placed(format!("/api/v1/namespaces/{}/configmaps", places.workflows), object)
    };
    environments.iter().map(receipt).collect()
}

/// A name and our label.
pub(super) fn metadata(name: &str, namespace: Option<&str>) -> Value {
    let mut metadata = json!({"name": name, "labels": {MANAGED_BY: "forge"}});
    if let (Value::Object(fields), Some(namespace)) = (&mut metadata, namespace) {
        fields.insert("namespace".to_owned(), json!(namespace));
    }
    metadata
}

/// What an account may do in the namespaces of a scope, whatever the environment is.
fn rules(account: &str, scope: Scope) -> Vec<Value> {
    let here = rights::granted(account).iter().filter(|rule| rule.scope == scope && !rule.named);
    here.map(|rule| rule.rbac(&[])).collect()
}

/// A role, and that an account beside the Workflows has it.
pub(super) fn role(places: &Places, name: &str, account: &str, namespace: &str, rules: &[Value]) -> [Placed; 2] {
    let collection = |plural: &str| format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/{plural}");
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": metadata(name, Some(namespace)), "rules": rules,
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": metadata(name, Some(namespace)),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": places.workflows}],
    });
    [placed(collection("roles"), role), placed(collection("rolebindings"), binding)]
}

/// The executor plugin, as Argo Workflows finds it: a ConfigMap with a label.
fn plugin(places: &Places) -> Value {
    let container = json!({
        "name": PLUGIN,
        "image": places.image,
        "command": ["forge"],
        "args": [
            "serve", "plugin", "--listen", "0.0.0.0:4355", "--workflows-namespace", places.workflows,
            "--argocd", format!("@{ARGOCD_SECRET_PATH}/server"), "--token-file", format!("{ARGOCD_SECRET_PATH}/token"),
        ],
        "ports": [{"containerPort": 4355}],
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": "2", "memory": "512Mi"}},
        "securityContext": {
            // No user of its own: only the agent's can read the agent's token.
            "runAsNonRoot": true, "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
        },
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": 4355}, "periodSeconds": 10, "failureThreshold": 3, "timeoutSeconds": 5},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": 4355}, "periodSeconds": 5, "timeoutSeconds": 5},
    });
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": format!("{PLUGIN}-executor-plugin"),
            "namespace": places.workflows,
            "labels": {MANAGED_BY: "forge", "workflows.argoproj.io/configmap-type": "ExecutorPlugin"},
            "annotations": {IMAGE_ANNOTATION: places.image, TICK_ANNOTATION: places.agent_tick.to_string()},
        },
        "data": {
            "sidecar.automountServiceAccountToken": "true",
            "sidecar.container": crate::yaml::write(&container),
        },
    })
}

/// The AppProject of an environment as it is made where there is none: with its window already holding everything, so
/// that no Application syncs by itself before its turn.
pub fn app_project(places: &Places, environment: &EnvironmentName, window: &[Value]) -> Value {
    json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
        "metadata": {
            "name": environment, "namespace": places.argocd,
            "labels": {MANAGED_BY: "forge", ENVIRONMENT_LABEL: environment},
        },
        "spec": {
            "description": format!("applications of environment {environment}"),
            "sourceRepos": ["*"],
            "destinations": [{"namespace": "*", "server": "*"}],
            "clusterResourceWhitelist": [{"group": "*", "kind": "*"}],
            "syncWindows": window,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_argo_cd_is_somebody_elses_its_owner_makes_what_is_in_its_namespace_and_nothing_else() {
        let environments: [EnvironmentName; 2] = ["dev".parse().unwrap(), "production".parse().unwrap()];
        let places = Places::default();
        let namespace = |placed: &Placed| placed.object["metadata"]["namespace"].as_str().map(str::to_owned);
        assert!(of_runs(&places).iter().all(|placed| namespace(placed).is_none_or(|found| found == "argo")));
        let handed = handed(&places, &environments);
        assert_eq!(handed.len(), 6);
        for placed in &handed {
            assert_eq!(namespace(placed).as_deref(), Some("argocd"));
            assert!(!crate::render::is_ours(&placed.object), "{}", placed.object);
        }
        // Both together are everything.
        assert_eq!(of_runs(&places).len() + handed.len(), bootstrap(&places, &environments).len());
    }

    #[test]
    fn a_receipt_is_of_one_environment_and_of_everything_that_a_run_relies_on() {
        let environments: [EnvironmentName; 2] = ["dev".parse().unwrap(), "production".parse().unwrap()];
        let (dev, all) =
            (receipts(&Places::default(), &environments[..1]), receipts(&Places::default(), &environments));
        // Whoever is prepared beside it does not change it.
        assert_eq!(dev[0].object, all[0].object);
        assert_eq!(all[1].object["metadata"]["name"], "forge-bootstrap-production");
        assert_ne!(all[0].object["data"], all[1].object["data"]);
        let other = Places { image: "another".to_owned(), ..Places::default() };
        assert_ne!(receipts(&other, &environments)[0].object, all[0].object);
    }
}
