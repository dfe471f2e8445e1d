//! What would be submitted, and pictures of the graph. Pure: plan and graph in, text out, the same bytes every time.

mod argocd;
mod bootstrap;
mod dot;
mod events;
mod html;
mod installer;
mod junit;
mod markup;
mod mermaid;
mod policy;
mod svg;
mod workflow;

pub use argocd::{WINDOW_PREFIX, applications, window, window_names, windows};
pub(crate) use bootstrap::unlabelled;
pub use bootstrap::{IMAGE_ANNOTATION, Placed, TICK_ANNOTATION, app_project, bootstrap, handed, of_runs, receipts};
pub use dot::dot;
pub use events::{
    COMMIT_ANNOTATION, EVENT_BUS, EVENTS_ACCOUNT, Trigger, WEBHOOK_ACCOUNT, WEBHOOK_PATH, WEBHOOK_PORT, WEBHOOK_SECRET,
    WEBHOOK_SECRET_KEY, WEBHOOK_SOURCE, clock_name, configuration_name, configured, events, of_events, sensor_name,
};
pub use html::{Page, html};
pub use installer::{installer, reader, rotator, validator, volume_rules};
pub use junit::{TestCase, TestOutcome, TestTrouble, junit, suite};
pub use markup::escape;
pub use mermaid::mermaid;
pub use policy::FormerPolicy;
pub use svg::{svg, svg_with};
pub use workflow::{
    AGENT_TICK, AGENT_TICKS, ARGOCD_SECRET, ARGOCD_SECRET_PATH, EXECUTOR_ACCOUNT, GIT_SECRET, GIT_SECRET_PATH,
    INSTALLER_ACCOUNT, PLUGIN, PLUGIN_ACCOUNT, Places, READER_ACCOUNT, REGISTRY_SECRET, REGISTRY_SECRET_PATH,
    ROTATOR_ACCOUNT, RenderError, TEARDOWN_ACCOUNT, WORKFLOW_ACCOUNT, WORKFLOW_LIMIT, plan_config_maps,
    teardown_secret, templates, workflow, workflow_name,
};

/// The label that marks what Forge made (INV-11).
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// True for an object that Forge made, or that was handed over by this label (INV-11).
pub fn is_ours(object: &serde_json::Value) -> bool {
    let labels = object.pointer("/metadata/labels");
    labels.and_then(|labels| labels.get(MANAGED_BY)).and_then(serde_json::Value::as_str) == Some("forge")
}

/// How somebody hands an object over.
pub fn handing(object: &serde_json::Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(serde_json::Value::as_str).unwrap_or_default();
    let (name, kind) = (crate::name::clip(text("/metadata/name")), text("/kind").to_ascii_lowercase());
    let place = match text("/metadata/namespace") {
        "" => String::new(),
        namespace => format!(" -n {namespace}"),
    };
    format!("kubectl{place} label {kind} {name} {MANAGED_BY}=forge --overwrite")
}

/// The label that names the environment.
pub const ENVIRONMENT_LABEL: &str = "forge.projectcatalyst.io/environment";
/// The label that names the run.
pub const RUN_LABEL: &str = "forge.projectcatalyst.io/run";
