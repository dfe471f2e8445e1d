//! The texts: `forge.yaml`, `graph.yaml` with the reason beside every dependency, and the report.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::definitions::Use;
use super::forest::Stack;
use super::hazard::{Hazard, Kind};
use super::read::Application;
use super::{REPORT_FILE, Summary};
use crate::format::{API_VERSION, Reference};
use crate::name::{EnvironmentName, Namespace, NodeId};
use crate::repository::{GRAPH_FILE, INSTALLATION_FILE};
use crate::scaffold::{File, PLACEHOLDER, schema_line};
use crate::yaml;

/// A text as a YAML scalar.
fn scalar(text: &str) -> String {
    yaml::write(&serde_json::Value::from(text)).trim_end().to_owned()
}

/// `forge.yaml` of what is there: Forge installs nothing and syncs nothing by itself.
pub(super) fn installation(
    environment: &EnvironmentName,
    repository: Option<&(String, String)>,
    cluster: &str,
    argocd: &Namespace,
) -> File {
    let placeholder = (format!("https://git.example.invalid/{PLACEHOLDER}/platform.git"), "main".to_owned());
    let (url, branch) = repository.unwrap_or(&placeholder);
    let namespace =
        if argocd.as_str() == "argocd" { String::new() } else { format!(", namespace: {}", scalar(argocd.as_str())) };
    let protected = if matches!(environment.as_str(), "production" | "prod") {
        "\n      # Changes go through pull requests that somebody else approves.\n      protected: true\n      approvals: 1"
    } else {
        ""
    };
    let text = format!(
        "{}# Made by `forge adopt` from an Argo CD that was there; {REPORT_FILE} says what to know before the first run.
apiVersion: {API_VERSION}
kind: Forge
spec:
  # The repository that most Applications read. Keep these files in it, or write the URL of the one that holds them.
  repository: {{url: {}, branch: {}}}
  # existing: it is there, and stays yours.
  argo: {{cd: existing, workflows: existing, events: none{namespace}}}
  environments:
    - name: {}
      cluster: {}
      # Nothing starts by itself: a person or a run syncs.
      sync: manual
      adoption: shadow{protected}
",
        schema_line("Forge", 0),
        scalar(url),
        scalar(branch),
        scalar(environment.as_str()),
        scalar(cluster),
    );
    File { path: INSTALLATION_FILE.to_owned(), text }
}

/// `graph.yaml`.
pub(super) fn graph(stacks: &[Stack], applications: &[Application<'_>], uses: &[Use]) -> File {
    let mut of: BTreeMap<usize, Vec<&Use>> = BTreeMap::new();
    for each in uses {
        of.entry(each.user).or_default().push(each);
    }
    let mut text = format!(
        "{}# Made by `forge adopt`; it is yours now. Stacks are app-of-apps, ApplicationSets and AppProjects.
apiVersion: {API_VERSION}
kind: DependencyGraph
spec:
  defaults:
    timeouts: {{sync: 5m, health: 10m}}
    retry: {{limit: 3, backoff: 5s, factor: 2, max: 2m}}
  timeout: 2h
  stacks:",
        schema_line("DependencyGraph", 0)
    );
    text.push_str(if stacks.is_empty() { " []\n" } else { "\n" });
    for stack in stacks {
        let _ = writeln!(text, "    # {}\n    - name: {}", stack.comment, scalar(stack.name.as_str()));
        if !stack.depends_on.is_empty() {
            let list: Vec<String> = stack.depends_on.iter().map(|reference| scalar(&reference.to_string())).collect();
            let _ = writeln!(text, "      dependsOn: [{}]", list.join(", "));
        }
        if !stack.members.is_empty() {
            text.push_str("      apps:\n");
        }
        for member in &stack.members {
            let Some(app) = applications.get(*member) else { continue };
            let _ = writeln!(text, "        - application: {}", scalar(&app.id.to_string()));
            let mut lines = String::new();
            for each in of.get(member).into_iter().flatten() {
                let Some(provider) = applications.get(each.provider) else { continue };
                // What the whole stack waits for need not be said again.
                let reference = Reference::Node(NodeId::from(&provider.id));
                if !stack.depends_on.contains(&reference) {
                    let _ =
                        writeln!(lines, "            - {} # CRD {}", scalar(&provider.id.to_string()), each.definition);
                }
            }
            if !lines.is_empty() {
                let _ = write!(text, "          dependsOn:\n{lines}");
            }
        }
    }
    File { path: GRAPH_FILE.to_owned(), text }
}

/// The report.
pub(super) fn report(environment: &EnvironmentName, argocd: &Namespace, summary: &Summary, hazards: &[Hazard]) -> File {
    let mut text = format!(
        "# Adopted

`forge adopt` read the Argo CD in namespace `{argocd}` and wrote `{INSTALLATION_FILE}` and `{GRAPH_FILE}` for environment
`{environment}`. It changed nothing in the cluster, and neither do `forge lint`, `forge graph` and `forge plan --offline`.

| | |
|---|---|
| Applications in the graph | {} |
| Applications left out | {} |
| ApplicationSets read | {} |
| Stacks | {} |
| Dependencies from app-of-apps, sync waves and steps | {} |
| Dependencies from CRDs | {} |
| Dependencies left out because they would make a cycle | {} |
| Hazards | {} |

## Next

1. Solve what is marked *blocking* below.
2. Read `{GRAPH_FILE}`: every dependency says where it comes from. Remove what is wrong, add what only people know.
3. `forge lint`, `forge graph --environment {environment}`, `forge plan --simulate --environment {environment}`.
",
        summary.applications,
        summary.left_out,
        summary.application_sets,
        summary.stacks,
        summary.stack_dependencies,
        summary.definition_dependencies,
        summary.dropped,
        hazards.len(),
    );
    text.push_str(if hazards.is_empty() { "\nNo hazards were found.\n" } else { "\n## Hazards\n" });
    let mut kinds: Vec<Kind> = hazards.iter().map(|hazard| hazard.kind).collect();
    kinds.dedup();
    kinds.sort_by_key(|kind| (kind.severity(), *kind));
    for kind in kinds {
        let _ = write!(
            text,
            "\n### {}: {} (`{}`)\n\n{} **Do:** {}\n\n",
            kind.severity().word(),
            kind.title(),
            kind.id(),
            kind.why(),
            kind.advice()
        );
        for hazard in hazards.iter().filter(|hazard| hazard.kind == kind) {
            let _ = writeln!(text, "- `{}`: `{}`", hazard.about, hazard.detail);
        }
    }
    File { path: REPORT_FILE.to_owned(), text }
}
