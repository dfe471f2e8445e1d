//! `graph.yaml` and the overrides of two environments.

use forge_core::format::API_VERSION;
use forge_core::scaffold::schema_line;

use super::{App, Flavour, REFRESH, STACKS, Stack};

/// The stacks that the cluster which runs Argo CD needs itself; nothing in them waits for another stack.
pub const PLATFORM_STACKS: [&str; 5] = ["foundation", "storage", "core", "security", "observability"];

/// Applications that get less time in `dev`, where volumes are small, and how much they get.
const DEV_HEALTH: [(&str, &str); 3] = [("storage/ceph-cluster", "10m"), ("data/postgres", "8m"), ("data/kafka", "8m")];

/// A text in quotes, as both YAML and JSON read it.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A list in one line; only what YAML would misread is quoted.
pub(crate) fn listed(items: &[&str]) -> String {
    let items: Vec<String> =
        items.iter().map(|item| if item.contains(':') { quoted(item) } else { (*item).to_owned() }).collect();
    format!("[{}]", items.join(", "))
}

/// `graph.yaml`.
pub(super) fn graph() -> String {
    let mut text = format!(
        "{}# What waits for what. Written from a table: change crates/forge-testkit/src/example/table.rs and run
#   {REFRESH}
apiVersion: {API_VERSION}
kind: DependencyGraph
spec:
  defaults:
    timeouts: {{sync: 3m, health: 5m}}
    retry: {{limit: 3, backoff: 5s, factor: 2, max: 2m}}
  # Longer than the longest chain may take.
  timeout: 3h
  stacks:
",
        schema_line("DependencyGraph", 0)
    );
    for (index, stack) in STACKS.iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        push_stack(&mut text, stack);
    }
    text
}

fn push_stack(text: &mut String, stack: &Stack) {
    let Stack { name, layer, about, depends_on, apps } = stack;
    text.push_str(&format!("    # {}{about}.\n", capital_prefix(name)));
    text.push_str(&format!("    - name: {name}\n      layer: {layer}\n"));
    if !depends_on.is_empty() {
        text.push_str(&format!("      dependsOn: {}\n", listed(depends_on)));
    }
    text.push_str("      apps:\n");
    for app in *apps {
        push_app(text, app);
    }
}

/// `Platform services: `, from `platform-services`.
fn capital_prefix(name: &str) -> String {
    let mut letters = name.chars().map(|c| if c == '-' { ' ' } else { c });
    let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
    format!("{first}{}: ", letters.collect::<String>())
}

fn push_app(text: &mut String, app: &App) {
    text.push_str(&format!("        - project: {}\n", app.id()));
    if !app.depends_on.is_empty() {
        text.push_str(&format!("          dependsOn: {}\n", listed(app.depends_on)));
    }
    if let Flavour::CustomResource(definition) = app.flavour {
        text.push_str(&format!(
            "          requires:
            - apiVersion: apiextensions.k8s.io/v1
              kind: CustomResourceDefinition
              name: {}
          health:
            - apiVersion: {}
              kind: {}
              name: {}
              expr: {}
",
            definition.name(),
            definition.api_version(),
            definition.kind,
            definition.instance,
            quoted(definition.healthy)
        ));
    }
    let limits: Vec<String> = [("sync", app.sync), ("health", app.health)]
        .into_iter()
        .filter_map(|(what, limit)| Some(format!("{what}: {}", limit?)))
        .collect();
    if !limits.is_empty() {
        text.push_str(&format!("          timeouts: {{{}}}\n", limits.join(", ")));
    }
    if let Some(limit) = app.retries {
        text.push_str(&format!("          retry: {{limit: {limit}}}\n"));
    }
}

/// `platform/graph.yaml`: the environment that runs only a part.
pub(super) fn platform_override() -> String {
    let mut text = format!(
        "{}apiVersion: {API_VERSION}
kind: GraphOverride
spec:
  # The cluster that runs Argo CD runs what keeps it alive and visible, and nothing of the teams.
  only:
",
        schema_line("GraphOverride", 1)
    );
    for stack in PLATFORM_STACKS {
        text.push_str(&format!("    - {}\n", quoted(&format!("stack:{stack}"))));
    }
    text
}

/// `dev/graph.yaml`: the environment that waits less.
pub(super) fn dev_override() -> String {
    let mut text = format!(
        "{}apiVersion: {API_VERSION}
kind: GraphOverride
spec:
  timeout: 2h30m
  # Small volumes and single replicas: what takes longer than this is broken, not slow.
  apps:
",
        schema_line("GraphOverride", 1)
    );
    for (project, health) in DEV_HEALTH {
        text.push_str(&format!("    - project: {project}\n      timeouts: {{health: {health}}}\n"));
    }
    text
}
