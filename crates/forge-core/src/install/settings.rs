//! An Argo that is somebody else's (`existing`): what it must be told to work with Forge, what of that is missing, and the
//! fragments that its owner merges, each with why. Nothing of it is ever written by Forge (INV-11).

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::chart::chart;
use super::plugin;
use super::values::{ACCOUNT, CONTROLLER, POLICY, POLICY_KEY, TEARDOWN, WAVE_DELAY, merged, needed, variables};
use crate::health::HealthChecks;
use crate::name::{EnvironmentName, clip};
use crate::preflight::{self, Component, Intent, Purpose, WorkloadFacts};
use crate::render::{self, Places, TEARDOWN_ACCOUNT};
use crate::yaml;

/// How much a difference matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// Without it a run does not work, or waits for the wrong thing.
    Missing,
    /// It works, and could be better.
    Advice,
}

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    /// Of what.
    pub component: Component,
    /// How much it matters.
    pub weight: Weight,
    /// What, lower case, no full stop.
    pub what: String,
    /// What to do.
    pub fix: String,
}

/// What was read of an Argo that is there.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    /// ConfigMap `argocd-cm`.
    pub settings: Option<Value>,
    /// ConfigMap `argocd-rbac-cm`.
    pub policies: Option<Value>,
    /// ConfigMap `argocd-cmd-params-cm`.
    pub parameters: Option<Value>,
    /// All Deployments and StatefulSets of the cluster.
    pub workloads: Vec<Value>,
}

/// What is missing or different in those parts of Argo that are somebody else's.
pub fn differences(purpose: &Purpose, observed: &Observed, health: &HealthChecks) -> Vec<Difference> {
    let mut found = Vec::new();
    for component in Component::ALL {
        if purpose.intent(component) != Intent::Existing {
            continue;
        }
        let mut tell = |weight, what: String, fix: String| found.push(Difference { component, weight, what, fix });
        version(component, observed, &mut tell);
        match component {
            Component::Cd => {
                cd(purpose, observed, health, &mut tell);
                sidecar(purpose, observed, &mut tell);
            }
            Component::Workflows => workflows(observed, &mut tell),
            Component::Events => {}
        }
    }
    found
}

/// It is there, and not older than what Forge works with.
fn version(component: Component, observed: &Observed, tell: &mut impl FnMut(Weight, String, String)) {
    let title = component.title();
    let facts: Vec<WorkloadFacts> = observed.workloads.iter().filter_map(WorkloadFacts::read).collect();
    let mut mine = facts.iter().filter(|facts| facts.component == component).peekable();
    if mine.peek().is_none() {
        let fix = format!("install {title}, or set `argo: {{{}: install}}` in forge.yaml", component.field());
        return tell(Weight::Missing, format!("{title} is not there"), fix);
    }
    let (major, minor) = chart(component).oldest;
    let Some(version) = mine.find_map(|facts| facts.version.clone()) else { return };
    match numbers(&version) {
        Some(numbers) if numbers < (major, minor) => tell(
            Weight::Missing,
            format!("{title} is {version}, older than {major}.{minor}"),
            format!("upgrade {title}"),
        ),
        _ => {}
    }
}

/// `v3.2.2` as `(3, 2)`; nothing where it is no version, which may be a digest or a build of one's own.
fn numbers(version: &str) -> Option<(u64, u64)> {
    let mut parts = version.trim_start_matches('v').split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn data<'v>(config_map: Option<&'v Value>, key: &str) -> Option<&'v str> {
    config_map?.get("data")?.get(key)?.as_str()
}

fn cd(purpose: &Purpose, observed: &Observed, health: &HealthChecks, tell: &mut impl FnMut(Weight, String, String)) {
    let merge = |map: &str| {
        format!("merge ConfigMap {map} as `forge bootstrap --print` has it, by whatever Argo CD was installed with")
    };
    let settings = observed.settings.as_ref();
    let (account, kind) = ACCOUNT;
    let has = data(settings, account).is_some_and(|kinds| kinds.split(',').any(|found| found.trim() == kind));
    if !has {
        let what = format!("argocd-cm has no `{account}: {kind}`: a run has no account to ask Argo CD with");
        tell(Weight::Missing, what, merge("argocd-cm"));
    }
    let (mut absent, mut other) = (Vec::new(), Vec::new());
    for (name, script, _) in health.iter() {
        match data(settings, &name.key()) {
            None => absent.push(name.as_str()),
            Some(found) if found.trim_end() != script.as_str().trim_end() => other.push(name.as_str()),
            Some(_) => {}
        }
    }
    if !absent.is_empty() {
        let what = format!("argocd-cm has no health check for {}", absent.join(", "));
        tell(Weight::Missing, what, merge("argocd-cm"));
    }
    if !other.is_empty() {
        let what = format!("argocd-cm has another health check for {}", other.join(", "));
        let fix = "merge Forge's, or keep yours and put it into health/ of the repository, so that this is quiet";
        tell(Weight::Advice, what, fix.to_owned());
    }
    let refused = |account: &str, actions: [&'static str; 2]| -> Vec<&'static str> {
        actions.into_iter().filter(|action| !may(purpose, observed.policies.as_ref(), account, action)).collect()
    };
    let missing = refused("forge", ["get", "sync"]);
    if !missing.is_empty() {
        let what = format!("argocd-rbac-cm does not let `forge` {} all Applications", missing.join(" and "));
        tell(Weight::Missing, what, merge("argocd-rbac-cm"));
    }
    // Runs do without it: only who removes a platform needs it.
    let (teardown, key) = TEARDOWN;
    if !data(settings, teardown).is_some_and(|kinds| kinds.split(',').any(|found| found.trim() == key)) {
        let what = format!("argocd-cm has no `{teardown}: {key}`: a teardown has no account to delete with");
        tell(Weight::Advice, what, merge("argocd-cm"));
    }
    let missing = refused(TEARDOWN_ACCOUNT, ["get", "delete"]);
    if !missing.is_empty() {
        let what =
            format!("argocd-rbac-cm does not let `{TEARDOWN_ACCOUNT}` {} all Applications", missing.join(" and "));
        tell(Weight::Advice, what, merge("argocd-rbac-cm"));
    }
    let (wave, delay) = WAVE_DELAY;
    if data(observed.parameters.as_ref(), wave) != Some(delay) {
        let what = format!("argocd-cmd-params-cm has no `{wave}: \"{delay}\"`: every sync wave costs two seconds more");
        let fix = format!("{}, and restart the application controller", merge("argocd-cmd-params-cm"));
        tell(Weight::Advice, what, fix);
    }
}

/// Where releases are: the plugin that makes Applications of them, beside the repo-server.
fn sidecar(purpose: &Purpose, observed: &Observed, tell: &mut impl FnMut(Weight, String, String)) {
    let is_cd = |workload: &&Value| WorkloadFacts::read(workload).is_some_and(|facts| facts.component == Component::Cd);
    let workloads: Vec<&Value> = observed.workloads.iter().filter(is_cd).collect();
    // An Argo CD that is not there is told of already.
    if !purpose.releases || workloads.is_empty() {
        return;
    }
    let (name, place) = (plugin::CMP, "/spec/template/spec/containers");
    let merge = |what: &str| {
        format!("merge {what} as `forge bootstrap --print` has it, by whatever Argo CD was installed with")
    };
    let found = workloads.iter().find_map(|workload| Some((*workload, plugin::found(workload, place)?)));
    let Some((server, container)) = found else {
        let what = format!("no container `{name}` beside the repo-server: no Application can be made of a release");
        return tell(Weight::Missing, what, merge("the Deployment of the repo-server, and ConfigMap argocd-cmp-cm"));
    };
    let image = preflight::text(container, "/image").unwrap_or_default();
    if !purpose.image.is_empty() && image != purpose.image {
        let what =
            format!("container `{name}` beside the repo-server is of `{}`, not of `{}`", clip(image), purpose.image);
        tell(Weight::Advice, what, merge("the Deployment of the repo-server"));
    }
    for (variable, wanted, otherwise) in plugin::VARIABLES {
        let mut set = preflight::items(server, place).flat_map(|container| preflight::items(container, "/env"));
        if !set.any(|entry| preflight::text(entry, "/name") == Some(variable)) {
            let what = format!("the repo-server runs without {variable}={wanted}: {otherwise}");
            tell(Weight::Advice, what, merge("the Deployment of the repo-server"));
        }
    }
    let (exclusions, git) = plugin::EXCLUSIONS;
    if !data(observed.parameters.as_ref(), exclusions).is_some_and(|globs| globs.split(';').any(|glob| glob == git)) {
        let what =
            format!("argocd-cmd-params-cm has no `{exclusions}: {git}`: all of Git's history goes to the plugin");
        tell(Weight::Advice, what, format!("{}, and restart the repo-server", merge("ConfigMap argocd-cmd-params-cm")));
    }
}

/// True if the policies of Argo CD let an account do this with Applications of every environment. Patterns that are narrower
/// than a project are not followed.
fn may(purpose: &Purpose, policies: Option<&Value>, account: &str, action: &str) -> bool {
    let entries = policies.and_then(|map| map.get("data")).and_then(Value::as_object);
    let is_policy = |key: &str| key.starts_with("policy.") && key.ends_with(".csv");
    let texts = entries.into_iter().flatten().filter(|(key, _)| is_policy(key)).filter_map(|(_, text)| text.as_str());
    let lines: Vec<Vec<&str>> =
        texts.flat_map(str::lines).map(|line| line.split(',').map(str::trim).collect()).collect();
    let mut who = BTreeSet::from([account]);
    who.extend(data(policies, "policy.default"));
    // Each round finds at least one more, or nothing.
    for _ in 0..lines.len() {
        let roles = lines.iter().filter_map(|line| match line.as_slice() {
            ["g", subject, role] if who.contains(subject) => Some(*role),
            _ => None,
        });
        let more: Vec<&str> = roles.filter(|role| !who.contains(role)).collect();
        if more.is_empty() {
            break;
        }
        who.extend(more);
    }
    if who.contains("role:admin") || (action == "get" && who.contains("role:readonly")) {
        return true;
    }
    let rules = |effect: &str, object: &dyn Fn(&str) -> bool| {
        lines.iter().any(|line| match line.as_slice() {
            ["p", subject, resource, verb, pattern, found] => {
                who.contains(subject)
                    && matches!(*resource, "applications" | "*")
                    && (*verb == action || *verb == "*")
                    && object(pattern)
                    && *found == effect
            }
            _ => false,
        })
    };
    let all = |pattern: &str| matches!(pattern, "*" | "*/*");
    if rules("deny", &all) {
        return false;
    }
    let of = |name: &str| rules("allow", &|pattern: &str| all(pattern) || pattern == format!("{name}/*"));
    match purpose.environments.as_slice() {
        [] => rules("allow", &all),
        environments => environments.iter().all(|environment| of(environment.as_str())),
    }
}

fn workflows(observed: &Observed, tell: &mut impl FnMut(Weight, String, String)) {
    let controllers: Vec<&Value> = observed
        .workloads
        .iter()
        .filter(|workload| WorkloadFacts::read(workload).is_some_and(|facts| facts.plugins.is_some()))
        .collect();
    if controllers.is_empty() {
        return;
    }
    let variable = |wanted: &str| {
        let all = controllers.iter().flat_map(|controller| {
            let list = controller.pointer("/spec/template/spec/containers").and_then(Value::as_array);
            list.into_iter().flatten()
        });
        let all = all.filter_map(|container| container.get("env").and_then(Value::as_array)).flatten();
        let mut all = all.filter(|entry| entry.get("name").and_then(Value::as_str) == Some(wanted));
        all.find_map(|entry| entry.get("value").and_then(Value::as_str))
    };
    let [(plugins, on), (requeue, often)] = CONTROLLER;
    if preflight::plugins(controllers.iter().copied()) != Some(true) {
        let what = format!(
            "the workflow-controller runs without {plugins}={on}: every node gets a pod of its own, which takes longer"
        );
        tell(Weight::Advice, what, format!("set {plugins}=\"{on}\" in its environment, where plugins are allowed"));
    }
    if variable(requeue).is_none() {
        let what = format!(
            "the workflow-controller runs without {requeue}: each step of a chain takes up to ten seconds longer"
        );
        tell(Weight::Advice, what, format!("set {requeue}={often} in its environment"));
    }
}

/// Something for an owner to merge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Fragment {
    /// Into what, and why.
    pub why: String,
    /// True for an object of its own, which is to be made where there is none.
    pub whole: bool,
    /// An object; where it is not whole, with nothing in it but what is to be merged.
    pub object: Value,
}

impl Fragment {
    fn new(why: &str, object: Value) -> Self {
        Self { why: why.to_owned(), whole: false, object }
    }

    fn whole(why: &str, object: Value) -> Self {
        Self { whole: true, ..Self::new(why, object) }
    }

    /// As a YAML document.
    fn text(&self) -> String {
        let why: String = self.why.lines().map(|line| format!("# {line}\n")).collect();
        format!("{why}{}", yaml::write_blocks(&self.object))
    }
}

/// What the owner of a part of Argo that is there should merge, in both ways in which it may have been installed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Merge {
    /// The chart of that part.
    pub chart: &'static str,
    /// The namespace that it is in.
    pub namespace: String,
    /// What is to be merged as values of the chart, where Helm installed it. Whole objects are no values.
    pub values: Value,
    /// The same as objects, where something else did, and whole objects.
    pub fragments: Vec<Fragment>,
}

/// What the owner of an Argo CD that is there makes in its namespace, for each environment with the Applications that its window
/// holds at first: Forge writes nothing there but the windows of what is handed over by it.
pub fn handed(places: &Places, held: &[(EnvironmentName, BTreeSet<String>)]) -> Vec<Fragment> {
    let environments: Vec<EnvironmentName> = held.iter().map(|(environment, _)| environment.clone()).collect();
    let rights = "To be made in Argo CD's namespace: what the Job of a run may do there. It lists Applications, and writes the sync window\n\
                  of the AppProjects that are named, and nothing else of them.";
    let project = "To be made in Argo CD's namespace where there is none, before its Applications: its window holds all of them, so that\n\
                   nothing syncs before its turn. One that is there stays as it is.";
    let roles = render::handed(places, &environments).into_iter();
    let projects = held.iter().map(|(environment, names)| {
        let mut object = render::app_project(places, environment, &render::windows(&[], "bootstrap", names));
        render::unlabelled(&mut object);
        Fragment::whole(project, object)
    });
    roles.map(|placed| Fragment::whole(rights, placed.object)).chain(projects).collect()
}

/// What the owner of each part of Argo that is there should merge, for programs; with what [`handed`] gives.
pub fn merges(purpose: &Purpose, health: &HealthChecks, handed: &[Fragment]) -> Vec<Merge> {
    let there = [Component::Workflows, Component::Cd].into_iter().filter(|part| is_there(purpose, *part));
    let merge = |component: Component| {
        let namespace = purpose.place(component);
        let (mut values, mut fragments) = (needed(component), settings(component, purpose));
        if component == Component::Cd {
            values = merged(values, &health.chart_values());
            if let Some(plugin) = plugin::values(purpose) {
                values = merged(values, &plugin);
            }
            fragments.extend_from_slice(handed);
            let why = "To be merged into the data of Argo CD's ConfigMap argocd-cm: health checks. Argo CD takes them up without a\n\
                       restart.";
            fragments.push(Fragment::new(why, config_map("argocd-cm", namespace, &Value::Object(health.entries()))));
        }
        Merge { chart: chart(component).name, namespace: namespace.to_owned(), values, fragments }
    };
    there.map(merge).collect()
}

/// What the owner of each part of Argo that is there should merge, and why: one YAML document each; with what [`handed`] gives. The
/// health checks are the last one.
pub fn fragments(purpose: &Purpose, health: &HealthChecks, handed: &[Fragment]) -> Vec<String> {
    let there = [Component::Workflows, Component::Cd].into_iter().filter(|part| is_there(purpose, *part));
    let settings = there.flat_map(|component| settings(component, purpose));
    let mut documents: Vec<String> = settings.map(|fragment| fragment.text()).collect();
    if is_there(purpose, Component::Cd) {
        documents.extend(handed.iter().map(Fragment::text));
        documents.push(health.fragment(purpose.place(Component::Cd)));
    }
    documents
}

fn is_there(purpose: &Purpose, component: Component) -> bool {
    purpose.intent(component) == Intent::Existing
}

fn config_map(name: &str, namespace: &str, data: &Value) -> Value {
    let metadata = json!({"name": name, "namespace": namespace});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
}

/// What the repo-server is told of the plugin, where there are releases.
fn beside_the_repo_server(purpose: &Purpose) -> Vec<Fragment> {
    if !purpose.releases {
        return Vec::new();
    }
    let namespace = purpose.place(Component::Cd);
    let ((key, described), (exclusions, git)) = (plugin::description(), plugin::EXCLUSIONS);
    let server = json!({"name": "argocd-repo-server", "env": plugin::variables()});
    let pod = json!({"containers": [server, plugin::sidecar(&purpose.image)], "volumes": plugin::volumes()});
    vec![
        Fragment::new(
            "To be merged into the data of Argo CD's ConfigMap argocd-cmp-cm, which is to be made where there is none: the plugin that\n\
             makes Applications of releases. It has neither version nor discovery, so only Applications that name it are sent to it.",
            config_map(plugin::PLUGINS_MAP, namespace, &json!({key: described})),
        ),
        Fragment::new(
            "To be merged into the Deployment of Argo CD's repo-server, by whoever owns it; Deployment and container may have other\n\
             names where you are, the volumes var-files and plugins are Argo CD's own. The sidecar pulls, verifies and renders releases.\n\
             ConfigMap forge-signatures (whose signatures count) and Secret forge-registry (credentials of the registry) may be there\n\
             or not. ARGOCD_CMP_CHUNK_SIZE: a repository goes to it in pieces of 256 KiB and not of 1 KiB.\n\
             ARGOCD_PAUSE_GEN_AFTER_FAILED_ATTEMPTS: what was mended is rendered at the next look, and not after an hour.",
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": "argocd-repo-server", "namespace": namespace},
                "spec": {"template": {"spec": pod}},
            }),
        ),
        Fragment::new(
            "To be merged into the data of Argo CD's ConfigMap argocd-cmd-params-cm, if you like and no other plugin needs Git's\n\
             history: without it all of that goes to the plugin with every rendering. The repo-server has to be restarted to take it up.",
            config_map("argocd-cmd-params-cm", namespace, &json!({exclusions: git})),
        ),
    ]
}

/// Everything but the health checks.
fn settings(component: Component, purpose: &Purpose) -> Vec<Fragment> {
    let ((account, kind), (teardown, key), (wave, delay)) = (ACCOUNT, TEARDOWN, WAVE_DELAY);
    let namespace = purpose.place(component);
    match component {
        Component::Cd => {
            let mut fragments = vec![
                Fragment::new(
                    "To be merged into the data of Argo CD's ConfigMap argocd-cm: the accounts that runs ask Argo CD with. They have no\n\
                     password and cannot log in; `forge bootstrap` makes a token of the first, a teardown one of the second while it lasts.",
                    config_map("argocd-cm", namespace, &json!({account: kind, teardown: key})),
                ),
                Fragment::new(
                    "To be merged into the data of Argo CD's ConfigMap argocd-rbac-cm: the first account sees and syncs Applications, the\n\
                     second sees and deletes them, and neither may do anything else. Argo CD reads every key policy.<name>.csv beside policy.csv.",
                    config_map("argocd-rbac-cm", namespace, &json!({POLICY_KEY: POLICY})),
                ),
                Fragment::new(
                    "To be merged into the data of Argo CD's ConfigMap argocd-cmd-params-cm, if you like: without it the application\n\
                     controller sleeps two seconds after every sync wave. It has to be restarted to take it up.",
                    config_map("argocd-cmd-params-cm", namespace, &json!({wave: delay})),
                ),
            ];
            fragments.extend(beside_the_repo_server(purpose));
            fragments
        }
        Component::Workflows => {
            let container = json!({"name": "workflow-controller", "env": variables()});
            vec![Fragment::new(
                "To be merged into the environment of the workflow-controller, by whoever owns it; Deployment and container may have\n\
                 other names where you are. ARGO_EXECUTOR_PLUGINS: nodes of a run are tasks of a plugin; without it, each is a pod,\n\
                 which takes longer. DEFAULT_REQUEUE_TIME: how soon a finished node is looked at; the default is ten seconds a step.",
                json!({
                    "apiVersion": "apps/v1", "kind": "Deployment",
                    "metadata": {"name": "workflow-controller", "namespace": namespace},
                    "spec": {"template": {"spec": {"containers": [container]}}},
                }),
            )]
        }
        Component::Events => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Intents;
    use crate::yaml::{Dialect, Limits, Node, read};
    use std::collections::BTreeMap;

    fn purpose() -> Purpose {
        let environments = vec!["dev".parse().unwrap(), "production".parse().unwrap()];
        Purpose { intents: Intents::existing(), environments, ..Purpose::default() }
    }

    fn health() -> HealthChecks {
        HealthChecks::merge(&BTreeMap::new())
    }

    fn workload(part: &str, image: &str) -> Value {
        json!({
            "metadata": {"name": part, "labels": {"app.kubernetes.io/part-of": part}},
            "spec": {"template": {"spec": {"containers": [{"name": "c", "image": image, "env": []}]}}},
        })
    }

    fn bare() -> Observed {
        let workloads =
            vec![workload("argocd", "argocd:v3.1.0"), workload("argo-workflows", "workflow-controller:v3.6.2")];
        Observed { workloads, ..Observed::default() }
    }

    /// An Argo into which the fragments were merged.
    fn merged() -> Observed {
        let mut observed = bare();
        let text = fragments(&purpose(), &health(), &[]).join("---\n");
        let stream = read(&text, Dialect::Kubernetes, Limits::FILE);
        assert!(stream.problems.is_empty(), "{:?}", stream.problems);
        for object in stream.documents.iter().map(Node::to_json) {
            let place = match object["metadata"]["name"].as_str().unwrap() {
                "argocd-cm" => &mut observed.settings,
                "argocd-rbac-cm" => &mut observed.policies,
                "argocd-cmd-params-cm" => &mut observed.parameters,
                "workflow-controller" => {
                    let env = object["spec"]["template"]["spec"]["containers"][0]["env"].clone();
                    observed.workloads[1]["spec"]["template"]["spec"]["containers"][0]["env"] = env;
                    continue;
                }
                other => panic!("{other}"),
            };
            let map = place.get_or_insert_with(|| json!({"data": {}}));
            map["data"].as_object_mut().unwrap().extend(object["data"].as_object().unwrap().clone());
        }
        observed
    }

    #[test]
    fn what_is_printed_and_merged_leaves_no_difference() {
        assert_eq!(differences(&purpose(), &merged(), &health()), []);
    }

    fn of_releases() -> Purpose {
        Purpose { releases: true, image: "forge@sha256:1".to_owned(), ..purpose() }
    }

    /// Argo CD's own Deployment of its repo-server.
    fn repo_server(containers: &Value) -> Value {
        json!({
            "metadata": {"name": "argocd-repo-server", "labels": {"app.kubernetes.io/part-of": "argocd"}},
            "spec": {"template": {"spec": {"containers": containers}}},
        })
    }

    #[test]
    fn where_releases_are_the_owner_of_argo_cd_is_given_the_plugin_and_told_what_of_it_is_missing() {
        let found = |observed: &Observed| -> Vec<(Weight, String)> {
            let found = differences(&of_releases(), observed, &health()).into_iter();
            found.map(|found| (found.weight, found.what)).collect()
        };
        let mut observed = merged();
        let what = "no container `catalyst-forge-cmp` beside the repo-server: no Application can be made of a release";
        assert_eq!(found(&observed), [(Weight::Missing, what.to_owned())]);
        // What is printed makes it good.
        let merges = merges(&of_releases(), &health(), &[]);
        let named = |name: &str| {
            let fragments = merges[1].fragments.iter().map(|fragment| &fragment.object);
            fragments.filter(|object| object["metadata"]["name"] == name).cloned().collect::<Vec<Value>>()
        };
        let server = named("argocd-repo-server").remove(0);
        let containers = &server["spec"]["template"]["spec"]["containers"];
        observed.workloads.push(repo_server(containers));
        let (key, value) = plugin::EXCLUSIONS;
        assert_eq!(named("argocd-cmd-params-cm")[1]["data"], json!({key: value}));
        observed.parameters.as_mut().unwrap()["data"][key] = json!(value);
        assert_eq!(found(&observed), []);
        // As objects and as values of the chart it is the same.
        let values = &merges[1].values["repoServer"];
        assert_eq!(values["extraContainers"], json!([containers[1]]));
        assert_eq!(values["env"], containers[0]["env"]);
        assert_eq!(values["volumes"], server["spec"]["template"]["spec"]["volumes"]);
        let plugins = named("argocd-cmp-cm").remove(0);
        let described = plugins["data"]["catalyst-forge-cmp.yaml"].as_str().unwrap();
        let described = read(described, Dialect::Kubernetes, Limits::FILE);
        let described = described.documents[0].to_json();
        assert_eq!(merges[1].values["configs"]["cmp"]["plugins"]["catalyst-forge-cmp"], described["spec"]);
        assert_eq!(described["metadata"], json!({"name": "catalyst-forge-cmp"}));
        let text = fragments(&of_releases(), &health(), &[]).join("---\n");
        assert!(read(&text, Dialect::Kubernetes, Limits::FILE).problems.is_empty());
        assert!(text.contains("# To be merged into the Deployment of Argo CD's repo-server"), "{text}");
    }

    #[test]
    fn a_plugin_that_is_not_quite_as_forge_has_it_works_and_is_told_of() {
        let advice = |containers: Value, purpose: &Purpose| -> Vec<String> {
            let mut observed = merged();
            observed.workloads.push(repo_server(&containers));
            let found = differences(purpose, &observed, &health());
            assert!(found.iter().all(|found| found.weight == Weight::Advice), "{found:?}");
            found.into_iter().map(|found| found.what).collect()
        };
        let bare = json!([{"name": "argocd-repo-server"}, {"name": "catalyst-forge-cmp", "image": "forge@sha256:0"}]);
        let told = advice(bare.clone(), &of_releases());
        assert_eq!(told.len(), 4, "{told:?}");
        assert!(told[0].contains("is of `forge@sha256:0`, not of `forge@sha256:1`"), "{told:?}");
        assert!(told[1].contains("ARGOCD_CMP_CHUNK_SIZE=262144") && told[2].contains("for an hour"), "{told:?}");
        assert!(told[3].contains("reposerver.plugin.tar.exclusions"), "{told:?}");
        // Whoever only looks may not know with which image the cluster was prepared.
        let unknown = Purpose { image: String::new(), ..of_releases() };
        assert_eq!(advice(bare, &unknown).len(), 3);
    }

    #[test]
    fn for_programs_the_same_is_there_as_objects_and_as_values_of_the_charts() {
        let merges = merges(&purpose(), &health(), &[]);
        assert_eq!(merges.iter().map(|merge| merge.chart).collect::<Vec<_>>(), ["argo-workflows", "argo-cd"]);
        let (workflows, cd) = (&merges[0], &merges[1]);
        let env = &workflows.fragments[0].object["spec"]["template"]["spec"]["containers"][0]["env"];
        assert_eq!(&workflows.values["controller"]["extraEnv"], env);
        // Every key of every ConfigMap is in the values, and nothing else is.
        let mut values = serde_json::Map::new();
        for fragment in &cd.fragments {
            assert!(fragment.why.starts_with("To be merged into "), "{}", fragment.why);
            let place = match fragment.object["metadata"]["name"].as_str().unwrap() {
                "argocd-cm" => "cm",
                "argocd-rbac-cm" => "rbac",
                "argocd-cmd-params-cm" => "params",
                other => panic!("{other}"),
            };
            let found = values.entry(place).or_insert_with(|| json!({}));
            found.as_object_mut().unwrap().extend(fragment.object["data"].as_object().unwrap().clone());
        }
        assert_eq!(cd.values, json!({"configs": values}));
        // What Forge would leave out of an Argo of its own is the owner's affair.
        assert!(workflows.values.get("server").is_none() && cd.values.get("dex").is_none());
    }

    #[test]
    fn what_is_made_in_the_namespace_of_somebody_elses_argo_cd_is_handed_over_whole_before_the_health_checks() {
        let environment: EnvironmentName = "dev".parse().unwrap();
        let held = [(environment, BTreeSet::from(["dev-a".to_owned()]))];
        let handed = handed(&Places::default(), &held);
        let named = |fragment: &Fragment| {
            let text =
                |field: &str| fragment.object.pointer(field).and_then(Value::as_str).unwrap_or_default().to_owned();
            format!("{} {} {}", text("/kind"), text("/metadata/namespace"), text("/metadata/name"))
        };
        assert_eq!(
            handed.iter().map(named).collect::<Vec<_>>(),
            [
                "Role argocd forge-executor",
                "RoleBinding argocd forge-executor",
                "Role argocd forge-executor-dev",
                "RoleBinding argocd forge-executor-dev",
                "AppProject argocd dev",
            ]
        );
        // They are the owner's, and the window of a project holds everything.
        assert!(handed.iter().all(|fragment| fragment.whole && !render::is_ours(&fragment.object)));
        assert_eq!(handed[4].object["spec"]["syncWindows"][0]["applications"], json!(["dev-a"]));
        let merges = merges(&purpose(), &health(), &handed);
        let whole = merges[1].fragments.iter().filter(|fragment| fragment.whole).count();
        assert_eq!((whole, merges[0].fragments.iter().any(|fragment| fragment.whole)), (5, false));
        let documents = fragments(&purpose(), &health(), &handed);
        assert!(documents[documents.len() - 2].starts_with("# To be made in Argo CD's namespace where there is none"));
    }

    #[test]
    fn without_it_everything_is_told_with_what_to_do() {
        let found = differences(&purpose(), &bare(), &health());
        let what = |weight| -> Vec<&str> {
            found.iter().filter(|found| found.weight == weight).map(|found| found.what.as_str()).collect()
        };
        let missing = what(Weight::Missing);
        assert_eq!(missing.len(), 3, "{missing:?}");
        assert!(missing[0].contains("accounts.forge") && missing[1].contains("apps_StatefulSet"), "{missing:?}");
        assert!(missing[2].contains("get and sync"), "{missing:?}");
        let advice = what(Weight::Advice);
        assert_eq!(advice.len(), 5, "{advice:?}");
        assert!(advice[0].contains("accounts.forge-teardown") && advice[1].contains("get and delete"), "{advice:?}");
        // A run works without plugins, by pods.
        assert!(
            advice[3].contains("ARGO_EXECUTOR_PLUGINS") && advice[4].contains("DEFAULT_REQUEUE_TIME"),
            "{advice:?}"
        );
    }

    #[test]
    fn what_is_not_there_or_too_old_is_told_and_what_forge_installs_is_not() {
        let found = differences(&purpose(), &Observed { workloads: Vec::new(), ..merged() }, &health());
        let what: Vec<&str> = found.iter().map(|found| found.what.as_str()).collect();
        assert_eq!(what, ["Argo CD is not there", "Argo Workflows is not there"]);
        let mut old = merged();
        old.workloads[0] = workload("argocd", "argocd:v2.14.3");
        let found = differences(&purpose(), &old, &health());
        assert_eq!(found[0].what, "Argo CD is v2.14.3, older than 3.0");
        let install = Purpose { intents: Intents::install(), ..purpose() };
        assert_eq!(differences(&install, &Observed::default(), &health()), []);
        assert!(fragments(&install, &health(), &[]).is_empty() && merges(&install, &health(), &[]).is_empty());
        assert_eq!((numbers("v3.7.6"), numbers("latest"), numbers("sha256:00")), (Some((3, 7)), None, None));
    }

    #[test]
    fn a_check_of_the_owners_own_is_advice() {
        let mut own = merged();
        let key = format!("{}batch_Job", crate::health::KEY_PREFIX);
        own.settings.as_mut().unwrap()["data"][&key] = json!("return {}");
        let found = differences(&purpose(), &own, &health());
        assert_eq!((found.len(), found[0].weight), (1, Weight::Advice));
        assert!(found[0].what.contains("batch_Job"));
    }

    #[test]
    fn rights_are_found_in_every_policy_through_roles_and_by_project() {
        let may = |data: Value| {
            let map = json!({ "data": data });
            ["get", "sync"].map(|action| super::may(&purpose(), Some(&map), "forge", action))
        };
        assert_eq!(may(json!({})), [false, false]);
        assert_eq!(may(json!({"policy.csv": POLICY})), [true, true]);
        assert_eq!(may(json!({"policy.own.csv": POLICY, "policy.csv": "p, x, *, *, *, allow"})), [true, true]);
        assert_eq!(may(json!({"policy.default": "role:readonly"})), [true, false]);
        let role = "g, forge, role:run\np, role:run, applications, *, */*, allow";
        assert_eq!(may(json!({"policy.csv": role})), [true, true]);
        let one = "p, forge, applications, *, dev/*, allow";
        assert_eq!(may(json!({"policy.csv": one})), [false, false]);
        let both = format!("{one}\np, forge, applications, *, production/*, allow");
        assert_eq!(may(json!({"policy.csv": both})), [true, true]);
        let denied = format!("{POLICY}p, forge, applications, sync, */*, deny");
        assert_eq!(may(json!({"policy.csv": denied})), [true, false]);
        assert_eq!(may(json!({"policy.csv": 7, "scopes": "[groups]"})), [false, false]);
    }
}
