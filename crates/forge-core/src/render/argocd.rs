//! The Argo CD side of a plan: the Applications that the layout's ApplicationSet makes of the plan's projects, and the
//! window that holds automated sync back while the run lasts (SPEC.md section 4).

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::format::Subject;
use crate::graph::{Graph, NodeIx};
use crate::name::ProjectId;
use crate::plan::Plan;
use crate::repository::{EnvironmentFiles, Repository};
use crate::scaffold;
use crate::yaml::{Dialect, Limits, read};

/// The Applications of these nodes as the ApplicationSet `<env>-apps` would make them, in the order of the plan.
pub fn applications(repository: &Repository, files: &EnvironmentFiles, graph: &Graph, nodes: &[NodeIx]) -> Vec<Value> {
    let environment = &files.environment;
    let text = scaffold::environment_app(&repository.installation, environment);
    let set_name = format!("{}-apps", environment.name.value);
    let stream = read(&text, Dialect::Kubernetes, Limits::FILE);
    let set = stream.documents.iter().find(|document| {
        document.text_at(&["kind"]) == Some("ApplicationSet")
            && document.text_at(&["metadata", "name"]) == Some(set_name.as_str())
    });
    let Some(template) = set.and_then(|set| set.path(&["spec", "template"])).map(crate::yaml::Node::to_json) else {
        return Vec::new();
    };
    let ordered = graph.ordered(nodes);
    let projects = ordered.iter().filter_map(|node| match &graph.node(*node).subject {
        Subject::Project(id) => Some(id),
        Subject::Application(_) => None,
    });
    let argo = repository.installation.argo.namespace.as_str();
    projects.map(|id| application(&template, argo, &environment.path, id)).collect()
}

fn application(template: &Value, namespace: &str, environment_path: &str, id: &ProjectId) -> Value {
    let path = format!("{environment_path}/apps/{}/{}", id.repo, id.project);
    let mut filled = template.clone();
    fill(&mut filled, &path);
    let mut metadata = filled.get("metadata").cloned().unwrap_or_else(|| json!({}));
    if let Value::Object(fields) = &mut metadata {
        fields.insert("namespace".to_owned(), json!(namespace));
        // The ApplicationSet controller adds it to what it generates.
        fields.insert("finalizers".to_owned(), json!(["resources-finalizer.argocd.argoproj.io"]));
    }
    json!({
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": metadata,
        "spec": filled.get("spec").cloned().unwrap_or_default(),
    })
}

/// Fills in the few template expressions that the scaffold writes.
fn fill(value: &mut Value, path: &str) {
    match value {
        Value::String(text) => {
            let mut filled = text.replace("{{.path.path}}", path);
            for (n, segment) in path.split('/').enumerate() {
                filled = filled.replace(&format!("{{{{index .path.segments {n}}}}}"), segment);
            }
            *text = filled;
        }
        Value::Array(items) => items.iter_mut().for_each(|item| fill(item, path)),
        Value::Object(fields) => fields.values_mut().for_each(|field| fill(field, path)),
        _ => {}
    }
}

/// What the description of a window of ours begins with; the run's name follows. A window has no name.
pub const WINDOW_PREFIX: &str = "forge-orchestration ";

/// The window as it would be applied to the environment's AppProject: a deny window over exactly the plan's Applications
/// of that project, which lets manual syncs pass. Nothing else of the AppProject is named, so nothing else is touched.
pub fn window(repository: &Repository, plan: &Plan) -> Option<Value> {
    let mine = plan.nodes.iter().filter(|node| node.project.as_deref() == Some(plan.environment.as_str()));
    let names: BTreeSet<String> = mine.map(|node| node.application.name.clone()).collect();
    if names.is_empty() {
        return None;
    }
    Some(json!({
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "AppProject",
        "metadata": {"name": plan.environment, "namespace": repository.installation.argo.namespace},
        "spec": {"syncWindows": windows(&[], &plan.run(), &names)},
    }))
}

/// The list of windows of an AppProject with ours holding exactly these Applications: the others stay as they are, and
/// where nothing is to be held there is none of ours.
pub fn windows(current: &[Value], run: &str, names: &BTreeSet<String>) -> Vec<Value> {
    let mut windows: Vec<Value> = current.iter().filter(|window| !is_ours(window)).cloned().collect();
    if !names.is_empty() {
        windows.push(json!({
            "kind": "deny",
            "schedule": "* * * * *",
            "duration": "24h",
            "applications": names,
            "manualSync": true,
            "description": format!("{WINDOW_PREFIX}{run}"),
        }));
    }
    windows
}

/// The run of our window among these, and what it holds.
pub fn window_names(current: &[Value]) -> Option<(String, BTreeSet<String>)> {
    let window = current.iter().find(|window| is_ours(window))?;
    let run = window.get("description").and_then(Value::as_str)?.strip_prefix(WINDOW_PREFIX)?.to_owned();
    let names = window.get("applications").and_then(Value::as_array);
    Some((run, names.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()))
}

fn is_ours(window: &Value) -> bool {
    window.get("description").and_then(Value::as_str).is_some_and(|text| text.starts_with(WINDOW_PREFIX))
}
