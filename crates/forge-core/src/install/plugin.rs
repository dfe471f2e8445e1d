//! The plugin of Argo CD (SPEC.md section 8), as a sidecar of its repo-server: what the chart is given for it, what the owner of
//! an Argo CD that is there merges, and when everything has to be rendered again because another policy of signatures counts.
//!
//! It has no version and no discovery: Applications name it, so that the repo-server sends it a repository once and not twice,
//! and only for those. docs/adr/0032 says why each part is as it is.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::values::merged;
use crate::preflight::{Purpose, items, text};
use crate::release::import::fits;
use crate::render::{MANAGED_BY, REGISTRY_SECRET, REGISTRY_SECRET_PATH, is_ours};

/// By this name Applications ask for the plugin; its container has it too.
pub const CMP: &str = "catalyst-forge-cmp";
/// The ConfigMap in Argo CD's namespace whose `policy.yaml` says which signatures a release needs. Who answers for the cluster
/// makes it; without it only the repository asks for any.
pub const POLICY_MAP: &str = "forge-signatures";
/// The ConfigMap beside Argo Workflows that says under which policy everything was rendered last.
pub const POLICY_SEEN: &str = "forge-signatures-seen";
/// The annotation of pods of the repo-server that were made anew for another policy.
pub const POLICY_ANNOTATION: &str = "forge.projectcatalyst.io/signatures";

/// The ConfigMap that plugins are described in, as the chart calls it.
pub(super) const PLUGINS_MAP: &str = "argocd-cmp-cm";
/// What the repo-server is told by its environment, and what happens without it.
pub(super) const VARIABLES: [(&str, &str, &str); 2] = [
    // In bytes; every message costs a system call and a copy on both sides.
    ("ARGOCD_CMP_CHUNK_SIZE", "262144", "the repository goes to the plugin in pieces of 1 KiB"),
    (
        "ARGOCD_PAUSE_GEN_AFTER_FAILED_ATTEMPTS",
        "0",
        "after three failures Argo CD shows the last one for an hour, whatever was mended meanwhile",
    ),
];
/// In `argocd-cmd-params-cm`: what of a repository is not sent to plugins.
pub(super) const EXCLUSIONS: (&str, &str) = ("reposerver.plugin.tar.exclusions", ".git");

/// Lists of the chart whose entries have names: what the repository says lies over ours entry by entry.
const LISTS: [&str; 3] = ["/repoServer/env", "/repoServer/extraContainers", "/repoServer/volumes"];
/// What the cache may take, in bytes; the volume has room for what is being rendered beside it.
const CACHE_BYTES: u64 = 1 << 30;
/// How long is waited for registries, in seconds. Argo CD's controller gives a rendering 60 s, in which the repository is fetched and sent
/// too; who is killed then says nothing.
const TIMEOUT_SECONDS: u64 = 45;
/// Of no policy.
const NONE: &str = "none";

/// What the chart of Argo CD is given for the plugin; nothing where nothing is made of releases.
pub(super) fn values(purpose: &Purpose) -> Option<Value> {
    let (exclusions, git) = EXCLUSIONS;
    purpose.releases.then(|| {
        json!({
            "configs": {
                "cmp": {"create": true, "plugins": {CMP: described()}},
                "params": {exclusions: git},
            },
            "repoServer": {
                "env": variables(),
                "extraContainers": [sidecar(&purpose.image)],
                "volumes": volumes(),
            },
        })
    })
}

/// Values with those of the repository over them. A list is replaced, as everywhere, but for those that hold our sidecar: who has
/// another plugin, or another variable, has ours too.
pub(super) fn over(values: Value, own: &Value) -> Value {
    let mut own = own.clone();
    for list in LISTS {
        if let (Some(ours), Some(theirs)) = (values.pointer(list), own.pointer_mut(list))
            && theirs.is_array()
        {
            *theirs = joined(ours, theirs);
        }
    }
    merged(values, &own)
}

/// One over the other, where entries of lists are known by a name: containers of one name are joined, of other entries of one name
/// the other one counts, and all that have no counterpart stay, ours first.
fn joined(ours: &Value, theirs: &Value) -> Value {
    match (ours, theirs) {
        (Value::Object(fields), Value::Object(others)) => {
            let mut all = fields.clone();
            for (key, other) in others {
                let value = fields.get(key).map_or_else(|| other.clone(), |value| joined(value, other));
                all.insert(key.clone(), value);
            }
            Value::Object(all)
        }
        (Value::Array(entries), Value::Array(others)) => {
            if entries.iter().chain(others).any(|entry| known_by(entry).is_none()) {
                return theirs.clone();
            }
            let is_container = |entry: &Value| entry.get("image").is_some();
            let one = |entry: &Value| match others.iter().find(|other| known_by(other) == known_by(entry)) {
                Some(other) if is_container(entry) => joined(entry, other),
                Some(other) => other.clone(),
                None => entry.clone(),
            };
            let is_new = |other: &&Value| !entries.iter().any(|entry| known_by(entry) == known_by(other));
            entries.iter().map(one).chain(others.iter().filter(is_new).cloned()).collect()
        }
        (_, other) => other.clone(),
    }
}

/// What an entry of a list is known by.
fn known_by(entry: &Value) -> Option<&str> {
    entry.get("mountPath").or_else(|| entry.get("name"))?.as_str()
}

/// The plugin as `argocd-cmp-server` reads it, but for its name.
fn described() -> Value {
    json!({"generate": {"command": [format!("/usr/local/bin/{CMP}"), "generate"]}})
}

/// The same with its name: an entry of a ConfigMap, as the chart would write it.
pub(super) fn description() -> (String, String) {
    let object = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "ConfigManagementPlugin",
        "metadata": {"name": CMP}, "spec": described(),
    });
    (format!("{CMP}.yaml"), crate::yaml::write(&object))
}

/// What the repo-server is told by its environment.
pub(super) fn variables() -> Vec<Value> {
    VARIABLES.iter().map(|(name, value, _)| json!({"name": name, "value": value})).collect()
}

/// The container. What it runs is Argo CD's own server for plugins, which an init container of the repo-server puts there, and which
/// starts the plugin for each rendering.
pub(super) fn sidecar(image: &str) -> Value {
    json!({
        "name": CMP,
        "image": image,
        "command": ["/var/run/argocd/argocd-cmp-server"],
        "env": [
            {"name": "FORGE_CMP_CACHE", "value": "/tmp/forge-cmp"},
            {"name": "FORGE_CMP_CACHE_BYTES", "value": CACHE_BYTES.to_string()},
            {"name": "FORGE_CMP_TIMEOUT", "value": TIMEOUT_SECONDS.to_string()},
        ],
        // No limit for the processor: renderings come all at once, after a commit that changes all Applications.
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "2Gi"}},
        "securityContext": {
            // The repo-server's own user: the socket between the two is his.
            "runAsUser": 999, "runAsNonRoot": true, "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [
            {"name": "var-files", "mountPath": "/var/run/argocd", "readOnly": true},
            {"name": "plugins", "mountPath": "/home/argocd/cmp-server/plugins"},
            {
                "name": "forge-cmp", "mountPath": "/home/argocd/cmp-server/config/plugin.yaml",
                "subPath": format!("{CMP}.yaml"), "readOnly": true,
            },
            // Not that of the repo-server, which holds repositories of others.
            {"name": "forge-cmp-tmp", "mountPath": "/tmp"},
            {"name": "forge-cmp-policy", "mountPath": "/etc/forge/cmp", "readOnly": true},
            {"name": "forge-cmp-registry", "mountPath": REGISTRY_SECRET_PATH, "readOnly": true},
        ],
    })
}

/// What it needs of the pod. Policy and credentials are mounted where they are, so that a change of either is seen.
pub(super) fn volumes() -> Vec<Value> {
    vec![
        json!({"name": "forge-cmp", "configMap": {"name": PLUGINS_MAP}}),
        json!({"name": "forge-cmp-tmp", "emptyDir": {"sizeLimit": "4Gi"}}),
        json!({"name": "forge-cmp-policy", "configMap": {"name": POLICY_MAP, "optional": true}}),
        json!({"name": "forge-cmp-registry", "secret": {"secretName": REGISTRY_SECRET, "optional": true}}),
    ]
}

/// The sidecar of a workload or a pod, where it has one. `place` is where its containers are.
pub(super) fn found<'w>(workload: &'w Value, place: &str) -> Option<&'w Value> {
    items(workload, place).find(|container| text(container, "/name") == Some(CMP))
}

/// Whether a Deployment has the sidecar.
pub fn has_sidecar(deployment: &Value) -> bool {
    found(deployment, "/spec/template/spec/containers").is_some()
}

/// Whether an Application is made by the plugin.
pub fn uses_plugin(application: &Value) -> bool {
    let mut sources = application.pointer("/spec/source").into_iter().chain(items(application, "/spec/sources"));
    sources.any(|source| text(source, "/plugin/name") == Some(CMP))
}

/// Where else than in its own namespace Argo CD serves Applications, as `argocd-cmd-params-cm` says it; nothing where it does not.
pub fn serves_elsewhere(parameters: Option<&Value>) -> Option<&str> {
    text(parameters?, "/data/application.namespaces").filter(|patterns| !patterns.trim().is_empty())
}

/// Whether a namespace is among those. Argo CD reads what stands between slashes as a regular expression, and nobody does so here: it may
/// be, so it is, and Argo CD says where it is not.
pub fn is_served(patterns: &str, namespace: &str) -> bool {
    let is_expression = |pattern: &str| pattern.len() > 1 && pattern.starts_with('/') && pattern.ends_with('/');
    patterns.split(',').map(str::trim).any(|pattern| is_expression(pattern) || fits(pattern, namespace))
}

/// What tells one policy from another, and from one that said the same before: whoever goes back to it may have rendered something
/// in between.
fn version(policy: Option<&Value>) -> String {
    policy.map_or_else(
        || NONE.to_owned(),
        |policy| {
            let of = |pointer: &str| text(policy, pointer).unwrap_or_default();
            format!("{}.{}", of("/metadata/uid"), of("/metadata/resourceVersion"))
        },
    )
}

/// Whether everything was rendered under this policy, by what bootstrap wrote down when it had seen to it.
pub fn policy_is_seen(policy: Option<&Value>, seen: Option<&Value>) -> bool {
    let noted = seen.filter(|seen| is_ours(seen)).and_then(|seen| text(seen, "/data/version"));
    noted.unwrap_or(NONE) == version(policy)
}

/// What is written down when everything was rendered under this policy.
pub fn policy_seen(workflows: &str, policy: Option<&Value>) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": POLICY_SEEN, "namespace": workflows, "labels": {MANAGED_BY: "forge"}},
        "data": {"version": version(policy)},
    })
}

/// What a Deployment is given so that its pods are made anew, once for each policy.
pub fn renewal(policy: Option<&Value>) -> Value {
    json!({"spec": {"template": {"metadata": {"annotations": {POLICY_ANNOTATION: version(policy)}}}}})
}

fn time(object: &Value, pointer: &str) -> Option<Timestamp> {
    text(object, pointer).and_then(|text| text.parse().ok())
}

/// When an object was written last, as far as it says.
pub(super) fn written(object: &Value) -> Option<Timestamp> {
    let fields = items(object, "/metadata/managedFields").filter_map(|fields| time(fields, "/time"));
    fields.chain(time(object, "/metadata/creationTimestamp")).max()
}

/// Pods that may still render under the policy before this one, by name: kubelets bring a changed ConfigMap to a pod that runs when
/// they get to it, and nothing says when they did. A pod that was made after the change has it. Where the policy is gone there is
/// nothing that could be missed.
pub fn outdated_pods(policy: Option<&Value>, pods: &[Value]) -> Vec<String> {
    let Some(policy) = policy else { return Vec::new() };
    let changed = written(policy);
    let is_outdated = |pod: &&Value| {
        let ended = matches!(text(pod, "/status/phase"), Some("Succeeded" | "Failed"));
        // Times have a resolution of a second.
        let after = time(pod, "/metadata/creationTimestamp").zip(changed).is_some_and(|(made, changed)| made > changed);
        found(pod, "/spec/containers").is_some() && !ended && !after
    };
    let name = |pod: &Value| crate::name::clip(text(pod, "/metadata/name").unwrap_or("?"));
    pods.iter().filter(is_outdated).map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const IMAGE: &str = "registry.example.com/forge@sha256:00";

    fn purpose() -> Purpose {
        Purpose { releases: true, image: IMAGE.to_owned(), ..Purpose::default() }
    }

    #[test]
    fn the_chart_is_given_a_sidecar_that_can_do_little_and_sees_nothing_of_the_repo_servers_own() {
        assert_eq!(values(&Purpose::default()), None);
        let values = values(&purpose()).unwrap();
        assert_eq!(
            crate::yaml::write(&values),
            "\
configs:
  cmp:
    create: true
    plugins:
      catalyst-forge-cmp:
        generate:
          command:
            - \"/usr/local/bin/catalyst-forge-cmp\"
            - generate
  params:
    reposerver.plugin.tar.exclusions: \".git\"
repoServer:
  env:
    - name: ARGOCD_CMP_CHUNK_SIZE
      value: \"262144\"
    - name: ARGOCD_PAUSE_GEN_AFTER_FAILED_ATTEMPTS
      value: \"0\"
  extraContainers:
    - name: catalyst-forge-cmp
      image: \"registry.example.com/forge@sha256:00\"
      command:
        - \"/var/run/argocd/argocd-cmp-server\"
      env:
        - name: FORGE_CMP_CACHE
          value: \"/tmp/forge-cmp\"
        - name: FORGE_CMP_CACHE_BYTES
          value: \"1073741824\"
        - name: FORGE_CMP_TIMEOUT
          value: \"45\"
      resources:
        requests:
          cpu: \"50m\"
          memory: \"64Mi\"
        limits:
          memory: \"2Gi\"
      securityContext:
        runAsUser: 999
        runAsNonRoot: true
        readOnlyRootFilesystem: true
        allowPrivilegeEscalation: false
        capabilities:
          drop:
            - ALL
        seccompProfile:
          type: RuntimeDefault
      volumeMounts:
        - name: var-files
          mountPath: \"/var/run/argocd\"
          readOnly: true
        - name: plugins
          mountPath: \"/home/argocd/cmp-server/plugins\"
        - name: forge-cmp
          mountPath: \"/home/argocd/cmp-server/config/plugin.yaml\"
          subPath: catalyst-forge-cmp.yaml
          readOnly: true
        - name: forge-cmp-tmp
          mountPath: \"/tmp\"
        - name: forge-cmp-policy
          mountPath: \"/etc/forge/cmp\"
          readOnly: true
        - name: forge-cmp-registry
          mountPath: \"/secrets/registry\"
          readOnly: true
  volumes:
    - name: forge-cmp
      configMap:
        name: argocd-cmp-cm
    - name: forge-cmp-tmp
      emptyDir:
        sizeLimit: \"4Gi\"
    - name: forge-cmp-policy
      configMap:
        name: forge-signatures
        optional: true
    - name: forge-cmp-registry
      secret:
        secretName: forge-registry
        optional: true
"
        );
        // The chart renders containers as templates.
        assert!(!values.to_string().contains("{{"));
    }

    #[test]
    fn every_volume_is_mounted_and_every_mount_has_its_volume_or_is_argo_cds() {
        let volumes = volumes();
        let names: Vec<&str> = volumes.iter().filter_map(|volume| text(volume, "/name")).collect();
        let sidecar = sidecar(IMAGE);
        let mounted: Vec<&str> = items(&sidecar, "/volumeMounts").filter_map(|mount| text(mount, "/name")).collect();
        let argo = ["var-files", "plugins"];
        assert_eq!(mounted.iter().copied().filter(|name| !argo.contains(name)).collect::<Vec<_>>(), names);
        let (key, written) = description();
        assert_eq!(key, "catalyst-forge-cmp.yaml");
        assert_eq!(
            written,
            "apiVersion: argoproj.io/v1alpha1\nkind: ConfigManagementPlugin\nmetadata:\n  name: catalyst-forge-cmp\nspec:\n  generate:\n    command:\n      - \"/usr/local/bin/catalyst-forge-cmp\"\n      - generate\n"
        );
    }

    #[test]
    fn what_the_repository_has_beside_it_stays_and_what_it_says_of_it_counts() {
        let own = json!({"repoServer": {
            "replicas": 2,
            "env": [{"name": "GOGC", "value": "50"}, {"name": "ARGOCD_CMP_CHUNK_SIZE", "valueFrom": {"a": "b"}}],
            "extraContainers": [
                {"name": "other-cmp", "image": "other"},
                {
                    "name": CMP,
                    "env": [{"name": "FORGE_PLAIN_HTTP_REGISTRIES", "value": "registry:5000"}],
                    "resources": {"limits": {"memory": "1Gi"}},
                    "volumeMounts": [{"name": "mine", "mountPath": "/secrets/registry"}],
                    "securityContext": {"runAsUser": null},
                },
            ],
            "volumes": [{"name": "other-tmp", "emptyDir": {}}, {"name": "forge-cmp-tmp", "persistentVolumeClaim": {}}],
        }});
        let merged = over(values(&purpose()).unwrap(), &own);
        let server = &merged["repoServer"];
        let names = |list: &str| -> Vec<&str> { items(server, list).filter_map(known_by).collect() };
        assert_eq!(server["replicas"], 2);
        assert_eq!(names("/env"), ["ARGOCD_CMP_CHUNK_SIZE", "ARGOCD_PAUSE_GEN_AFTER_FAILED_ATTEMPTS", "GOGC"]);
        assert_eq!(server["env"][0], json!({"name": "ARGOCD_CMP_CHUNK_SIZE", "valueFrom": {"a": "b"}}));
        assert_eq!(names("/extraContainers"), [CMP, "other-cmp"]);
        let volumes = ["forge-cmp", "forge-cmp-tmp", "forge-cmp-policy", "forge-cmp-registry", "other-tmp"];
        assert_eq!(names("/volumes"), volumes);
        assert_eq!(server["volumes"][1], json!({"name": "forge-cmp-tmp", "persistentVolumeClaim": {}}));
        let sidecar = &server["extraContainers"][0];
        assert_eq!((&sidecar["image"], sidecar["env"].as_array().unwrap().len()), (&json!(IMAGE), 4));
        assert_eq!(sidecar["resources"]["requests"]["cpu"], "50m");
        assert_eq!(sidecar["resources"]["limits"], json!({"memory": "1Gi"}));
        assert_eq!(sidecar["volumeMounts"][5]["name"], "mine");
        assert_eq!(sidecar["volumeMounts"].as_array().unwrap().len(), 6);
        assert_eq!(sidecar["securityContext"].get("runAsUser"), Some(&Value::Null));
        assert_eq!(sidecar["securityContext"]["runAsNonRoot"], true);
    }

    #[test]
    fn without_releases_lists_are_replaced_as_everywhere_and_whoever_says_null_has_none() {
        let own = json!({"repoServer": {"env": [{"name": "A"}], "extraContainers": null, "volumes": ["odd"]}});
        assert_eq!(over(json!({}), &own), own);
        let merged = over(values(&purpose()).unwrap(), &own);
        assert_eq!(merged["repoServer"]["extraContainers"], Value::Null);
        assert_eq!(merged["repoServer"]["volumes"], json!(["odd"]));
        assert_eq!(merged["repoServer"]["env"].as_array().unwrap().len(), 3);
    }

    fn policy(version: &str, changed: &str) -> Value {
        let fields = json!([{"time": changed}, {"time": "2026-01-01T00:00:00Z"}, {}]);
        json!({"metadata": {
            "uid": "u", "resourceVersion": version, "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": fields,
        }})
    }

    #[test]
    fn a_policy_is_seen_when_it_was_written_down_as_it_is_now() {
        assert!(policy_is_seen(None, None));
        let now = policy("7", "2026-01-02T00:00:00Z");
        let seen = policy_seen("argo", Some(&now));
        assert!(is_ours(&seen));
        assert!(!policy_is_seen(Some(&now), None) && policy_is_seen(Some(&now), Some(&seen)));
        // Also one that says again what an earlier one said, and one that is gone.
        assert!(!policy_is_seen(Some(&policy("9", "2026-01-02T00:00:00Z")), Some(&seen)));
        assert!(!policy_is_seen(None, Some(&seen)));
        assert!(policy_is_seen(None, Some(&policy_seen("argo", None))));
        let mut foreign = seen;
        foreign["metadata"]["labels"] = json!({});
        assert!(!policy_is_seen(Some(&now), Some(&foreign)));
        assert_eq!(renewal(Some(&now))["spec"]["template"]["metadata"]["annotations"][POLICY_ANNOTATION], "u.7");
    }

    #[test]
    fn a_pod_with_the_sidecar_that_is_not_younger_than_the_policy_may_know_another_one() {
        let pod = |name: &str, made: &str, container: &str, phase: &str| {
            json!({
                "metadata": {"name": name, "creationTimestamp": made}, "status": {"phase": phase},
                "spec": {"containers": [{"name": "repo-server"}, {"name": container}]},
            })
        };
        let changed = "2026-01-02T00:00:00Z";
        let pods = [
            pod("before", "2026-01-01T23:59:59Z", CMP, "Running"),
            pod("same", changed, CMP, "Running"),
            pod("after", "2026-01-02T00:00:01Z", CMP, "Pending"),
            pod("other", "2026-01-01T00:00:00Z", "x", "Running"),
            pod("ended", "2026-01-01T00:00:00Z", CMP, "Failed"),
            pod("odd", "yesterday", CMP, "Running"),
        ];
        assert_eq!(outdated_pods(Some(&policy("7", changed)), &pods), ["before", "same", "odd"]);
        assert_eq!(outdated_pods(Some(&json!({})), &pods).len(), 4);
        assert!(outdated_pods(None, &pods).is_empty());
    }

    #[test]
    fn applications_that_name_the_plugin_are_known() {
        let with = |source: Value| json!({ "spec": source });
        let plugin = json!({"plugin": {"name": CMP}});
        assert!(uses_plugin(&with(json!({"source": plugin}))));
        assert!(uses_plugin(&with(json!({"sources": [{"path": "a"}, plugin]}))));
        for other in [json!({}), json!({"source": {"plugin": {}}}), json!({"source": {"plugin": {"name": "x"}}})] {
            assert!(!uses_plugin(&with(other.clone())), "{other}");
        }
    }

    #[test]
    fn namespaces_that_argo_cd_serves_beside_its_own_are_known_by_its_patterns() {
        let of = |data: Value| json!({ "data": data });
        let patterns = of(json!({"application.namespaces": "shop, team-*"}));
        assert_eq!(serves_elsewhere(Some(&patterns)), Some("shop, team-*"));
        for none in [None, Some(of(json!({}))), Some(of(json!({"application.namespaces": " "}))), Some(json!({}))] {
            assert_eq!(serves_elsewhere(none.as_ref()), None, "{none:?}");
        }
        for (namespace, served) in [("shop", true), ("team-a", true), ("shop-2", false), ("my-team-a", false)] {
            assert_eq!(is_served("shop, team-*", namespace), served, "{namespace}");
        }
        // What an expression means is not known, so it may be that one.
        assert!(is_served("shop,/^team-[0-9]+$/", "team-1"));
        assert!(!is_served("/,a", "b") && is_served("*", "b"));
    }
}
