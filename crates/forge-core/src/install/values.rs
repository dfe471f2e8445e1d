//! What the charts are given: Forge's own values, the health checks, and over them what the repository says in
//! `argo/values/<chart>.yaml`.

use serde_json::{Value, json};

use super::chart::{Chart, chart};
use super::own::Own;
use super::plugin;
use super::release::{CHART_LABEL, DIGEST_LABEL, digest_label};
use crate::digest::Digest;
use crate::health::HealthChecks;
use crate::preflight::{Component, Purpose};
use crate::render::MANAGED_BY;

/// The folder of a repository that holds values of its own, one `<chart>.yaml` each.
pub const VALUES_FOLDER: &str = "argo/values";

/// What the accounts of Argo CD may do: `forge` sees and syncs Applications, `forge-teardown` sees and deletes them, and
/// neither does anything else. The latter has no token but while a teardown lasts.
pub(super) const POLICY: &str = "\
p, forge, applications, get, */*, allow
p, forge, applications, sync, */*, allow
p, forge-teardown, applications, get, */*, allow
p, forge-teardown, applications, delete, */*, allow
";
/// Its key in `argocd-rbac-cm`. Argo CD reads every `policy.<name>.csv` beside `policy.csv`, which stays the owner's.
pub(super) const POLICY_KEY: &str = "policy.forge.csv";
/// The account, in `argocd-cm`.
pub(super) const ACCOUNT: (&str, &str) = ("accounts.forge", "apiKey");
/// The account of a teardown, in `argocd-cm`.
pub(super) const TEARDOWN: (&str, &str) = ("accounts.forge-teardown", "apiKey");
/// In `argocd-cmd-params-cm`: without it every sync wave costs two seconds.
pub(super) const WAVE_DELAY: (&str, &str) = ("controller.sync.wave.delay.seconds", "0");
/// In the environment of the workflow-controller: nodes are tasks of a plugin, and how soon what an agent pod reported is
/// looked at, which is ten seconds by default.
pub(super) const CONTROLLER: [(&str, &str); 2] = [("ARGO_EXECUTOR_PLUGINS", "true"), ("DEFAULT_REQUEUE_TIME", "100ms")];

/// The part of Argo that a file of a repository has values for.
pub fn values_file(path: &str) -> Option<Component> {
    let name = path.strip_prefix(VALUES_FOLDER)?.strip_prefix('/')?.strip_suffix(".yaml")?;
    Component::ALL.into_iter().find(|component| chart(*component).name == name)
}

/// The file of a repository that has values for a part of Argo.
pub fn values_path(component: Component) -> String {
    format!("{VALUES_FOLDER}/{}.yaml", chart(component).name)
}

/// What every Argo that works with Forge is told, whoever installs it.
pub(super) fn needed(component: Component) -> Value {
    let ((wave, delay), (account, kind), (teardown, key)) = (WAVE_DELAY, ACCOUNT, TEARDOWN);
    match component {
        Component::Cd => json!({"configs": {
            "params": {wave: delay},
            "cm": {account: kind, teardown: key},
            "rbac": {POLICY_KEY: POLICY},
        }}),
        Component::Workflows => json!({"controller": {"extraEnv": variables()}}),
        Component::Events => json!({}),
    }
}

/// The same for an Argo that Forge installs. What Forge does not need is not installed: single sign-on by Dex,
/// notifications, the server of Argo Workflows.
pub fn tuned(component: Component, namespace: &str) -> Value {
    let own = match component {
        Component::Cd => json!({"dex": {"enabled": false}, "notifications": {"enabled": false}}),
        Component::Workflows => json!({
            // The chart gives rights in each of these; by itself it would name `default`.
            "controller": {
                "workflowNamespaces": [namespace],
                // At every look it warns of each task that has not begun: at a thousand nodes that is most of its work.
                "logging": {"level": "error"},
            },
            "server": {"enabled": false},
        }),
        Component::Events => json!({}),
    };
    merged(merged(needed(component), &version(component)), &own)
}

/// The version of Argo, for all its images.
fn version(component: Component) -> Value {
    let tag = chart(component).app_version;
    match component {
        Component::Cd | Component::Events => json!({"global": {"image": {"tag": tag}}}),
        Component::Workflows => json!({"images": {"tag": tag}}),
    }
}

/// The environment of the workflow-controller.
pub(super) fn variables() -> Vec<Value> {
    CONTROLLER.iter().map(|(name, value)| json!({"name": name, "value": value})).collect()
}

/// A value with another one over it: mappings are joined, everything else is replaced. `null` is kept, because Helm takes
/// a chart's own value away with it.
pub fn merged(base: Value, over: &Value) -> Value {
    match (base, over) {
        (Value::Object(mut fields), Value::Object(others)) => {
            for (key, other) in others {
                let value = match fields.remove(key) {
                    Some(value) => merged(value, other),
                    None => other.clone(),
                };
                fields.insert(key.clone(), value);
            }
            Value::Object(fields)
        }
        (_, other) => other.clone(),
    }
}

/// The same value with all keys in order: files that differ in nothing else give one digest (INV-9).
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut entries: Vec<(&String, &Value)> = fields.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            Value::Object(entries.into_iter().map(|(key, value)| (key.clone(), sorted(value))).collect())
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        other => other.clone(),
    }
}

/// What a part of Argo is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Which part.
    pub component: Component,
    /// Its chart, as Forge installs it.
    pub chart: Chart,
    /// The version of the chart: Forge's own, unless Argo CD's own Application names another one.
    pub version: String,
    /// Where.
    pub namespace: String,
    /// The values, all of them.
    pub values: Value,
    /// The digest of chart and values: where it is that of what is there, nothing has to be done.
    pub digest: Digest,
}

impl Wanted {
    /// From the checks and the values of a repository. `content` is the digest of the chart itself, where it is at hand; a
    /// chart that is not is known by name and version.
    pub fn new(
        component: Component,
        namespace: &str,
        health: &HealthChecks,
        own: Option<&Value>,
        content: Option<&Digest>,
    ) -> Self {
        Self::assembled((component, namespace), health, None, own, content)
    }

    /// The same for what a cluster is to be prepared for: where releases are, Argo CD has the plugin that makes Applications of
    /// them.
    pub fn of(
        purpose: &Purpose,
        component: Component,
        health: &HealthChecks,
        own: Option<&Value>,
        content: Option<&Digest>,
    ) -> Self {
        let plugin = plugin::values(purpose).filter(|_| component == Component::Cd);
        Self::assembled((component, purpose.place(component)), health, plugin.as_ref(), own, content)
    }

    fn assembled(
        (component, namespace): (Component, &str),
        health: &HealthChecks,
        plugin: Option<&Value>,
        own: Option<&Value>,
        content: Option<&Digest>,
    ) -> Self {
        let mut values = tuned(component, namespace);
        if component == Component::Cd {
            values = merged(values, &health.chart_values());
        }
        if let Some(plugin) = plugin {
            values = merged(values, plugin);
        }
        if let Some(own) = own {
            values = plugin::over(values, own);
        }
        Self::with(component, namespace, chart(component).version, &values, content)
    }

    /// Argo CD as its own Application says: what Helm is given is what Argo CD will render with, and nothing else.
    pub fn of_application(namespace: &str, own: &Own, version: &str, content: Option<&Digest>) -> Self {
        Self::with(Component::Cd, namespace, version, &own.values, content)
    }

    fn with(component: Component, namespace: &str, version: &str, values: &Value, content: Option<&Digest>) -> Self {
        let (chart, values) = (chart(component), sorted(values));
        let digest = Digest::of_json(&json!({
            "chart": chart.name, "version": version, "content": content, "namespace": namespace, "values": values,
        }));
        let (version, namespace) = (version.to_owned(), namespace.to_owned());
        Self { component, chart, version, namespace, values, digest }
    }

    /// What Helm's own Secret of it is labelled with, so that whoever reads it knows whose it is and what it was made from.
    pub fn labels(&self) -> [(&'static str, String); 3] {
        [(MANAGED_BY, "forge".to_owned()), (DIGEST_LABEL, self.label()), (CHART_LABEL, self.version.clone())]
    }

    /// The digest as a label, which has 63 characters at most.
    pub fn label(&self) -> String {
        digest_label(self.digest.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn wanted(component: Component, own: Option<&Value>) -> Wanted {
        Wanted::new(component, "here", &HealthChecks::merge(&BTreeMap::new()), own, None)
    }

    #[test]
    fn argo_cd_is_told_of_the_account_its_rights_the_waves_and_the_health_checks() {
        let values = wanted(Component::Cd, None).values;
        assert_eq!(values["configs"]["cm"]["accounts.forge"], "apiKey");
        assert_eq!(values["configs"]["cm"]["accounts.forge-teardown"], "apiKey");
        assert_eq!(values["configs"]["rbac"]["policy.forge.csv"], POLICY);
        assert_eq!(values["configs"]["params"], json!({"controller.sync.wave.delay.seconds": "0"}));
        let checks = values["configs"]["cm"].as_object().unwrap().keys();
        let checks = checks.filter(|key| key.starts_with(crate::health::KEY_PREFIX)).count();
        assert_eq!(checks, crate::health::BUILT_IN.len());
        for line in POLICY.lines() {
            let rule: Vec<&str> = line.split(", ").collect();
            let known = match rule.as_slice() {
                ["p", "forge", "applications", action, _, "allow"] => ["get", "sync"].contains(action),
                ["p", "forge-teardown", "applications", action, _, "allow"] => ["get", "delete"].contains(action),
                _ => false,
            };
            assert!(known, "{line}");
        }
    }

    #[test]
    fn argo_workflows_runs_plugins_looks_often_and_only_where_it_is() {
        let values = wanted(Component::Workflows, None).values;
        assert_eq!(
            yaml(&values),
            "\
controller:
  extraEnv:
    - name: ARGO_EXECUTOR_PLUGINS
      value: \"true\"
    - name: DEFAULT_REQUEUE_TIME
      value: \"100ms\"
  logging:
    level: error
  workflowNamespaces:
    - here
images:
  tag: v3.7.6
server:
  enabled: false
"
        );
    }

    #[test]
    fn the_version_of_argo_is_ours_and_not_the_one_that_the_chart_was_made_for_unless_somebody_says_so() {
        for (component, place) in [
            (Component::Cd, "/global/image/tag"),
            (Component::Workflows, "/images/tag"),
            (Component::Events, "/global/image/tag"),
        ] {
            let tag = |own: Option<&Value>| wanted(component, own).values.pointer(place).cloned();
            assert_eq!(tag(None), Some(json!(chart(component).app_version)));
            let own = json!({"global": {"image": {"tag": "v9"}}, "images": {"tag": "v9"}});
            assert_eq!(tag(Some(&own)), Some(json!("v9")));
            // Images of a mirror are of the same version.
            let mirrored = json!({"global": {"image": {"repository": "registry.example.com/argo"}}});
            assert_eq!(tag(Some(&mirrored)), tag(None));
        }
        assert_eq!(wanted(Component::Events, None).values, json!({"global": {"image": {"tag": "v1.9.10"}}}));
    }

    fn yaml(value: &Value) -> String {
        crate::yaml::write(value)
    }

    #[test]
    fn values_of_the_repository_lie_over_ours() {
        let own = json!({
            "dex": {"enabled": true, "env": [1]},
            "configs": {"rbac": {"policy.csv": "g, team, role:admin"}, "cm": {"accounts.forge": null}},
            "server": {"replicas": 2},
        });
        let values = wanted(Component::Cd, Some(&own)).values;
        assert_eq!(values["dex"], json!({"enabled": true, "env": [1]}));
        assert_eq!(values["notifications"], json!({"enabled": false}));
        assert_eq!(values["configs"]["rbac"]["policy.forge.csv"], POLICY);
        assert_eq!(values["configs"]["rbac"]["policy.csv"], "g, team, role:admin");
        assert_eq!(values["configs"]["cm"].get("accounts.forge"), Some(&Value::Null));
        assert_eq!(values["server"]["replicas"], 2);
        // A list is replaced: where it would be joined is not to be known.
        assert_eq!(merged(json!({"a": [1, 2]}), &json!({"a": [3]})), json!({"a": [3]}));
        assert_eq!(merged(json!({"a": {"b": 1}}), &json!({"a": 2})), json!({"a": 2}));
        assert_eq!(merged(json!({"a": 1}), &json!({"a": {"b": 2}})), json!({"a": {"b": 2}}));
    }

    #[test]
    fn where_releases_are_argo_cd_has_the_plugin_with_the_image_that_the_cluster_is_prepared_with() {
        let health = HealthChecks::merge(&BTreeMap::new());
        let of = |purpose: &Purpose, component, own: Option<&Value>| Wanted::of(purpose, component, &health, own, None);
        let without = Purpose { argocd: "here".to_owned(), ..Purpose::default() };
        assert_eq!(of(&without, Component::Cd, None), wanted(Component::Cd, None));
        let with = Purpose { releases: true, image: "forge@sha256:1".to_owned(), ..without.clone() };
        let cd = of(&with, Component::Cd, None);
        assert_eq!(cd.values["repoServer"]["extraContainers"][0]["image"], "forge@sha256:1");
        assert_eq!(cd.values["configs"]["rbac"]["policy.forge.csv"], POLICY);
        assert_eq!(cd.values["configs"]["params"].as_object().unwrap().len(), 2);
        // Another image is another installation, and another part of Argo has nothing of it.
        assert_ne!(
            cd.digest,
            of(&Purpose { image: "forge@sha256:2".to_owned(), ..with.clone() }, Component::Cd, None).digest
        );
        let workflows = Purpose { workflows: "here".to_owned(), ..with.clone() };
        assert_eq!(of(&workflows, Component::Workflows, None), wanted(Component::Workflows, None));
        // A sidecar of the repository's own takes nothing away.
        let own = json!({"repoServer": {"extraContainers": [{"name": "other", "image": "other"}]}});
        let both = of(&with, Component::Cd, Some(&own));
        assert_eq!(both.values["repoServer"]["extraContainers"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn the_digest_is_that_of_chart_and_values_and_of_nothing_else() {
        let a: Value = serde_json::from_str(r#"{"x": 1, "y": {"a": 1, "b": 2}}"#).unwrap();
        let b: Value = serde_json::from_str(r#"{"y": {"b": 2, "a": 1}, "x": 1}"#).unwrap();
        let of = |own: &Value| wanted(Component::Events, Some(own)).digest;
        assert_eq!(of(&a), of(&b));
        assert_ne!(of(&a), of(&json!({"x": 2, "y": {"a": 1, "b": 2}})));
        assert_ne!(wanted(Component::Events, None).digest, wanted(Component::Workflows, None).digest);
        let health = HealthChecks::merge(&BTreeMap::new());
        let content = Digest::of(b"chart");
        let with = Wanted::new(Component::Events, "here", &health, None, Some(&content));
        assert_ne!(with.digest, wanted(Component::Events, None).digest);
        assert_eq!(with.label().len(), 40);
        assert!(with.digest.as_str().contains(&with.label()));
    }

    #[test]
    fn a_file_of_values_is_named_after_its_chart() {
        for component in Component::ALL {
            assert_eq!(values_file(&values_path(component)), Some(component));
        }
        for other in ["values/argocd.yaml", "values/argo-cd.yml", "argo-cd.yaml", "values/x/argo-cd.yaml"] {
            assert_eq!(values_file(&format!("argo/{other}")), None, "{other}");
        }
    }
}
