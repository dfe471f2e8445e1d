//! Forge's own Helm chart, `deploy/chart/forge`. Its templates of what `forge bootstrap --print` prints, and of the accounts that
//! only the chart has, are made from the code that prints it and from the table of rights, with marks in the places of names
//! and images, so that there are not two truths; `make bless` writes them again. What else only the chart has stands in the chart.

use std::collections::BTreeMap;
use std::path::PathBuf;

use forge_core::name::{EnvironmentName, NameError};
use forge_core::render::{self, Placed, Places};
use forge_core::yaml;
use serde_json::{Value, json};

/// A name that no object has by itself.
const ENVIRONMENT: &str = "chart-environment";
/// A number that no object has by itself.
const TICK: u32 = u32::MAX;
/// What stands for a value, and where the value comes from. The sign makes the writer of YAML quote what it is in, so that
/// no value is ever read as something else than a text.
const MARKS: [(&str, &str); 5] = [
    ("@workflows@", "{{ $.Values.namespaces.workflows }}"),
    ("@argocd@", "{{ $.Values.namespaces.argocd }}"),
    ("@image@", "{{ $.Values.images.plugin }}"),
    ("@tick@", "{{ int $.Values.agentTick }}"),
    ("@environment@", "{{ $environment }}"),
];
const HEADER: &str =
    "{{- /* Made from crates/forge-core/src/render/bootstrap.rs; `make bless` writes it again. */ -}}\n";
const RIGHTS_HEADER: &str = "{{- /* Made from crates/forge-core/src/rights.rs; `make bless` writes it again. */ -}}\n";
/// Who makes what runs need.
const BY_CHART: &str = "{{- if eq $.Values.prepare \"chart\" }}\n";
const BY_EXECUTOR: &str = "{{- if and (eq $.Values.prepare \"executor\") $.Values.installer.enabled }}\n";
/// The token is replaced by the calendar, and no Job of the account that installs does it.
const BY_CALENDAR: &str = "{{- if and (get ($.Values.rotate | default dict) \"schedule\") (not (and (eq $.Values.prepare \"executor\") $.Values.installer.enabled)) }}\n";
/// Some Job only validates.
const VALIDATED: &str = "{{- if has \"validate\" $.Values.executor.actions }}\n";
/// Phase 0 of the Jobs tries a volume.
const WITH_VOLUMES: &str = "{{- if eq (get $.Values.executor.environment \"STORAGE\" | toString | lower) \"true\" }}\n";
/// At the end of the last role.
const EXTRA_RULES: &str = "{{- with $.Values.installer.extraRules }}\n{{ toYaml . | indent 2 }}\n{{- end }}\n";
/// At the end of every account: images of a registry that wants to know who pulls.
const PULL_SECRETS: &str =
    "{{- with $.Values.imagePullSecrets }}\nimagePullSecrets:\n{{ toYaml . | indent 2 }}\n{{- end }}\n";
const END: &str = "{{- end }}\n";

/// Where the chart is.
pub fn folder() -> PathBuf {
    crate::checkout().join("deploy/chart/forge")
}

/// The templates that are made, by their path in the chart.
///
/// # Errors
/// Never, while the name above is one of an environment.
pub fn templates() -> Result<BTreeMap<&'static str, String>, NameError> {
    let environment: EnvironmentName = ENVIRONMENT.parse()?;
    let places = Places {
        workflows: "@workflows@".to_owned(),
        argocd: "@argocd@".to_owned(),
        image: "@image@".to_owned(),
        agent_tick: TICK,
    };
    let objects = render::bootstrap(&places, &[environment]);
    let documents: Vec<String> = objects.iter().map(|placed| template(&placed.object)).collect();
    // What names an environment is made for each of them.
    let (each, once): (Vec<String>, Vec<String>) =
        documents.into_iter().partition(|document| document.contains("$environment"));
    let each: String = each.iter().map(|document| format!("---\n{document}")).collect();
    let joined = |objects: Vec<Placed>| -> String {
        let documents: Vec<String> = objects.iter().map(|placed| template(&placed.object)).collect();
        documents.join("---\n")
    };
    let range = "{{- range $environment := $.Values.environments }}\n";
    Ok(BTreeMap::from([
        ("templates/bootstrap.yaml", format!("{HEADER}{BY_CHART}{}{END}", once.join("---\n"))),
        ("templates/environments.yaml", format!("{HEADER}{BY_CHART}{range}{each}{END}{END}")),
        (
            "templates/installer.yaml",
            format!(
                "{RIGHTS_HEADER}{BY_EXECUTOR}{}{}{EXTRA_RULES}{END}",
                joined(render::installer(&places)),
                volume_rules()
            ),
        ),
        ("templates/rotator.yaml", format!("{RIGHTS_HEADER}{BY_CALENDAR}{}{END}", joined(render::rotator(&places)))),
        ("templates/reader.yaml", format!("{RIGHTS_HEADER}{VALIDATED}{}{END}", joined(render::validator(&places)))),
    ]))
}

/// What the last role has beside its rules where a volume is tried.
fn volume_rules() -> String {
    let rules = yaml::write(&json!({"rules": render::volume_rules()}));
    format!("{WITH_VOLUMES}{}{END}", rules.trim_start_matches("rules:\n"))
}

/// An object as a template.
fn template(object: &Value) -> String {
    // Argo Workflows has the same braces; they are not for Helm.
    let mut text = yaml::write(&marked(object)).replace("{{", "{{ \"{{\" }}");
    for (mark, expression) in MARKS {
        text = text.replace(mark, expression);
    }
    if object.get("kind").and_then(Value::as_str) == Some("ServiceAccount") {
        text.push_str(PULL_SECRETS);
    }
    text
}

/// The object with marks in the places of the name and the number that could not be marks themselves.
fn marked(value: &Value) -> Value {
    match value {
        Value::String(text) => {
            let text = text.replace(ENVIRONMENT, "@environment@").replace(&TICK.to_string(), "@tick@");
            Value::String(text)
        }
        Value::Array(items) => items.iter().map(marked).collect(),
        Value::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), marked(value))).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_in_quotes_and_braces_of_others_are_kept_from_helm() {
        let object = json!({
            "name": format!("forge-executor-{ENVIRONMENT}"), "namespace": "@workflows@", "tick": TICK.to_string(),
            "run": "{{workflow.parameters.run}}", "fixed": true,
        });
        assert_eq!(
            template(&object),
            "name: \"forge-executor-{{ $environment }}\"\nnamespace: \"{{ $.Values.namespaces.workflows }}\"\ntick: \"{{ int $.Values.agentTick }}\"\nrun: \"{{ \"{{\" }}workflow.parameters.run}}\"\nfixed: true\n"
        );
    }

    #[test]
    fn no_mark_is_left_and_what_is_made_for_an_environment_is_made_for_each() {
        let templates = templates().unwrap();
        for (path, text) in &templates {
            assert!(!text.contains("@workflows@") && !text.contains(ENVIRONMENT), "{path}");
            assert!(MARKS.iter().all(|(mark, _)| !text.contains(mark)), "{path}");
        }
        let each = &templates["templates/environments.yaml"];
        for kind in ["Role", "RoleBinding"] {
            assert_eq!(each.matches(&format!("\nkind: {kind}\n")).count(), 1, "{each}");
        }
        assert!(!templates["templates/bootstrap.yaml"].contains("$environment"));
        // Whatever pulls has an account, and each of them may be told how.
        for (path, accounts) in [
            ("templates/bootstrap.yaml", 3),
            ("templates/installer.yaml", 1),
            ("templates/rotator.yaml", 1),
            ("templates/reader.yaml", 1),
        ] {
            let documents = templates[path].split("---\n");
            let (with, without): (Vec<&str>, Vec<&str>) =
                documents.partition(|document| document.contains("\nkind: ServiceAccount\n"));
            assert_eq!(with.len(), accounts, "{path}");
            assert!(with.iter().all(|document| document.contains(PULL_SECRETS)), "{path}");
            assert!(!without.iter().any(|document| document.contains(PULL_SECRETS)), "{path}");
        }
        // What a user adds comes after the rules of the cluster's role, which is the last one.
        let installer = &templates["templates/installer.yaml"];
        let (before, after) = installer.split_once(EXTRA_RULES).unwrap();
        assert!(before.rsplit("---\n").next().unwrap().contains("\nkind: ClusterRole\n"), "{installer}");
        assert_eq!(after, END);
        // Where volumes are tried, claims are among those rules.
        let (before, with) = before.rsplit_once(WITH_VOLUMES).unwrap();
        assert!(with.starts_with("  - apiGroups:\n") && with.ends_with(END), "{with}");
        assert!(with.contains("- persistentvolumeclaims\n") && before.ends_with('\n'), "{with}");
    }
}
