//! What would be submitted, and pictures of the graph. Pure: plan and graph in, text out, the same bytes every time.

mod argocd;
mod bootstrap;
mod dot;
mod html;
mod junit;
mod markup;
mod mermaid;
mod svg;
mod workflow;

pub use argocd::{WINDOW_PREFIX, applications, window, window_names, windows};
pub use bootstrap::{IMAGE_ANNOTATION, Placed, TICK_ANNOTATION, app_project, bootstrap};
pub use dot::dot;
pub use html::{Page, html};
pub use junit::junit;
pub use markup::escape;
pub use mermaid::mermaid;
pub use svg::{svg, svg_with};
pub use workflow::{
    AGENT_TICK, AGENT_TICKS, ARGOCD_SECRET, ARGOCD_SECRET_PATH, EXECUTOR_ACCOUNT, GIT_SECRET, GIT_SECRET_PATH, PLUGIN,
    PLUGIN_ACCOUNT, Places, RenderError, WORKFLOW_ACCOUNT, WORKFLOW_LIMIT, plan_config_maps, templates, workflow,
    workflow_name,
};

/// The label that marks what Forge made (INV-11).
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The label that names the environment.
pub const ENVIRONMENT_LABEL: &str = "forge.projectcatalyst.io/environment";
/// The label that names the run.
pub const RUN_LABEL: &str = "forge.projectcatalyst.io/run";
