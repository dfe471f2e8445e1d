//! What is there of Argo, whose it is, and whether that is what `forge.yaml` says (INV-11: what somebody else made is his).

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Check, Finding, Judged, Purpose, Severity, items, mark, text};
use crate::format::{Argo, ArgoEvents, ArgoInstall};
use crate::name::clip;
use crate::render::MANAGED_BY;
use crate::rights::Scope;

/// A part of Argo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Component {
    /// Argo CD.
    Cd,
    /// Argo Workflows.
    Workflows,
    /// Argo Events.
    Events,
}

/// What is to be done about a part of Argo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// Forge installs it.
    Install,
    /// It is there, and somebody else's.
    Existing,
    /// It is not used.
    Without,
}

/// What is to be done about each part of Argo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Intents {
    /// Argo CD.
    pub cd: Intent,
    /// Argo Workflows.
    pub workflows: Intent,
    /// Argo Events.
    pub events: Intent,
}

impl Intents {
    /// Everything is installed.
    pub const fn install() -> Self {
        Self { cd: Intent::Install, workflows: Intent::Install, events: Intent::Install }
    }

    /// Argo CD and Argo Workflows are there; nothing starts by event.
    pub const fn existing() -> Self {
        Self { cd: Intent::Existing, workflows: Intent::Existing, events: Intent::Without }
    }

    /// As `forge.yaml` says.
    pub fn of(argo: &Argo) -> Self {
        let intent = |install| match install {
            ArgoInstall::Install => Intent::Install,
            ArgoInstall::Existing => Intent::Existing,
        };
        let events = match argo.events {
            ArgoEvents::Install => Intent::Install,
            ArgoEvents::Existing => Intent::Existing,
            ArgoEvents::None => Intent::Without,
        };
        Self { cd: intent(argo.cd), workflows: intent(argo.workflows), events }
    }
}

impl Component {
    /// All parts, in the order of installation.
    pub const ALL: [Self; 3] = [Self::Cd, Self::Workflows, Self::Events];

    /// What people call it.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Cd => "Argo CD",
            Self::Workflows => "Argo Workflows",
            Self::Events => "Argo Events",
        }
    }

    /// The check that is about it.
    pub const fn check(self) -> Check {
        match self {
            Self::Cd => Check::ArgoCd,
            Self::Workflows => Check::ArgoWorkflows,
            Self::Events => Check::ArgoEvents,
        }
    }

    /// Its field in `forge.yaml`, below `argo`.
    pub const fn field(self) -> &'static str {
        match self {
            Self::Cd => "cd",
            Self::Workflows => "workflows",
            Self::Events => "events",
        }
    }

    /// Where rules about it hold.
    pub const fn scope(self) -> Scope {
        match self {
            Self::Cd => Scope::ArgoCd,
            Self::Workflows => Scope::Workflows,
            Self::Events => Scope::Events,
        }
    }

    /// The Helm release that Forge makes of it, and the chart.
    pub const fn release(self) -> &'static str {
        match self {
            Self::Cd => "argo-cd",
            Self::Workflows => "argo-workflows",
            Self::Events => "argo-events",
        }
    }

    /// What its workloads say that they are a part of.
    const fn part_of(self) -> &'static str {
        match self {
            Self::Cd => "argocd",
            Self::Workflows => "argo-workflows",
            Self::Events => "argo-events",
        }
    }

    /// The image of its controller, without registry and tag.
    const fn image(self) -> &'static str {
        match self {
            Self::Cd => "argocd",
            Self::Workflows => "workflow-controller",
            Self::Events => "argo-events",
        }
    }

    /// The namespace's flag or field, for advice.
    fn move_to(self, namespace: &str) -> String {
        match self {
            Self::Cd => format!("`argo: {{namespace: {namespace}}}` in forge.yaml"),
            Self::Workflows => format!("--workflows-namespace {namespace}"),
            Self::Events => format!("namespace `{namespace}`"),
        }
    }
}

/// Who made an object, by its labels and annotations.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// Forge.
    Forge,
    /// A Helm release, `namespace/name`.
    Helm(String),
    /// An Application of an Argo CD.
    Application(String),
    /// An operator.
    Operator(String),
    /// Nobody who says so: it was applied by hand, or by a tool that leaves no mark.
    Nobody,
}

impl Owner {
    /// Reads the marks of an object.
    pub(super) fn read(object: &Value) -> Self {
        let helm = |part: &str| mark(object, "annotations", &format!("meta.helm.sh/release-{part}"));
        if mark(object, "labels", MANAGED_BY) == Some("forge") {
            return Self::Forge;
        }
        if let Some((name, namespace)) = helm("name").zip(helm("namespace")) {
            return Self::Helm(clip(&format!("{namespace}/{name}")));
        }
        if let Some(id) = mark(object, "annotations", "argocd.argoproj.io/tracking-id") {
            return Self::Application(clip(id.split(':').next().unwrap_or(id)));
        }
        let owner = items(object, "/metadata/ownerReferences").next();
        if let Some((kind, name)) = owner.and_then(|owner| text(owner, "/kind").zip(text(owner, "/name"))) {
            return Self::Operator(clip(&format!("{kind} {name}")));
        }
        let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
        let operator = labels.into_iter().flatten().find(|(key, _)| key.starts_with("operators.coreos.com/"));
        match operator {
            Some((key, _)) => Self::Operator(clip(key)),
            None => Self::Nobody,
        }
    }
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Forge => f.write_str("Forge"),
            Self::Helm(release) => write!(f, "Helm release {release}"),
            Self::Application(name) => write!(f, "Argo CD Application {name}"),
            Self::Operator(name) => write!(f, "operator ({name})"),
            Self::Nobody => f.write_str("nobody who says so"),
        }
    }
}

/// What is known of a Deployment or StatefulSet of Argo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadFacts {
    /// Of what it is a part.
    pub component: Component,
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Who made it.
    pub owner: Owner,
    /// Its version, where that is said.
    pub version: Option<String>,
    /// Pods that are wanted, and those that are ready.
    pub pods: (u64, u64),
    /// It is the workflow-controller, and executor plugins are switched on or not.
    pub plugins: Option<bool>,
}

impl WorkloadFacts {
    /// Reads a workload; nothing where it is not a part of Argo.
    pub fn read(workload: &Value) -> Option<Self> {
        let containers = || items(workload, "/spec/template/spec/containers");
        let images = || containers().filter_map(|container| text(container, "/image"));
        // What a controller of Argo Events made is used by somebody, and is not an installation.
        let mut made_by = items(workload, "/metadata/ownerReferences").filter_map(|owner| text(owner, "/kind"));
        if made_by.any(|kind| matches!(kind, "EventSource" | "Sensor" | "EventBus")) {
            return None;
        }
        let part = mark(workload, "labels", "app.kubernetes.io/part-of");
        let component = Component::ALL.into_iter().find(|component| {
            part == Some(component.part_of()) || images().any(|image| repository(image) == component.image())
        })?;
        let controller = images().any(|image| repository(image) == Component::Workflows.image());
        let labelled = mark(workload, "labels", "app.kubernetes.io/version").map(clip);
        let tagged = || images().find(|image| repository(image) == component.image()).and_then(tag).map(clip);
        let number = |field: &str| workload.pointer(field).and_then(Value::as_u64);
        Some(Self {
            component,
            name: clip(text(workload, "/metadata/name").unwrap_or("?")),
            namespace: clip(text(workload, "/metadata/namespace").unwrap_or("?")),
            owner: Owner::read(workload),
            version: labelled.or_else(tagged),
            pods: (number("/spec/replicas").unwrap_or(1), number("/status/readyReplicas").unwrap_or(0)),
            plugins: controller.then(|| containers().any(has_plugins)),
        })
    }
}

/// Executor plugins are switched on in a container, by its flag or else by its environment. What comes from a ConfigMap is
/// not followed: a pod for each node works either way.
fn has_plugins(container: &Value) -> bool {
    // As Go reads a boolean.
    let on = |value: &str| matches!(value, "1" | "t" | "T" | "true" | "True" | "TRUE");
    let words = items(container, "/command").chain(items(container, "/args")).filter_map(Value::as_str);
    match words.filter_map(|word| word.strip_prefix("--executor-plugins")).last() {
        Some("") => true,
        Some(rest) => rest.strip_prefix('=').is_some_and(on),
        None => {
            let mut variables = items(container, "/env");
            let found = variables.find(|variable| text(variable, "/name") == Some("ARGO_EXECUTOR_PLUGINS"));
            found.and_then(|variable| text(variable, "/value")).is_some_and(on)
        }
    }
}

/// Whether executor plugins are switched on; nothing where no workflow-controller is among the workloads.
pub fn plugins<'w>(workloads: impl IntoIterator<Item = &'w Value>) -> Option<bool> {
    let found = workloads.into_iter().filter_map(|workload| WorkloadFacts::read(workload)?.plugins);
    found.reduce(|one, other| one || other)
}

/// The last part of an image's name, without tag and digest.
fn repository(image: &str) -> &str {
    let name = image.split('@').next().unwrap_or(image);
    let last = name.rsplit('/').next().unwrap_or(name);
    last.split(':').next().unwrap_or(last)
}

/// The tag of an image, where it has one.
fn tag(image: &str) -> Option<&str> {
    let name = image.split('@').next()?;
    name.rsplit('/').next()?.split_once(':').map(|(_, tag)| tag)
}

/// True for the Secret of a Helm release that Forge made: Helm keeps the labels that it was given with the release.
pub fn is_ours(release: &Value) -> bool {
    mark(release, "labels", "owner") == Some("helm") && mark(release, "labels", MANAGED_BY) == Some("forge")
}

/// Judges one part of Argo by its workloads in the whole cluster. `ours` are Helm releases that Forge made, and Argo CD's own
/// Application where it was handed over to that.
pub fn argo(component: Component, purpose: &Purpose, workloads: &[WorkloadFacts], ours: &BTreeSet<Owner>) -> Judged {
    let found: Vec<&WorkloadFacts> = workloads.iter().filter(|workload| workload.component == component).collect();
    let title = component.title();
    let intent = purpose.intent(component);
    if found.is_empty() {
        let judged = Judged::new(component.check(), format!("{title} is not there"));
        return match intent {
            Intent::Existing => judged.with(absent(component)),
            Intent::Install | Intent::Without => judged,
        };
    }
    let is_ours = |owner: &Owner| *owner == Owner::Forge || ours.contains(owner);
    let places: BTreeSet<&str> = found.iter().map(|workload| workload.namespace.as_str()).collect();
    let owners: BTreeSet<&Owner> = found.iter().map(|workload| &workload.owner).collect();
    let version = found.iter().find_map(|workload| workload.version.as_deref());
    let names = |all: &BTreeSet<&str>| all.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let who: Vec<String> = owners.iter().map(ToString::to_string).collect();
    let seen = format!(
        "{title}{} in {}, made by {}",
        version.map(|version| format!(" {version}")).unwrap_or_default(),
        names(&places),
        who.join(" and ")
    );
    let mut judged = Judged::new(component.check(), &seen);
    let evidence: Vec<String> = found
        .iter()
        .map(|workload| {
            let (wanted, ready) = workload.pods;
            format!("{}/{}: {ready} of {wanted} ready, made by {}", workload.namespace, workload.name, workload.owner)
        })
        .collect();
    match intent {
        Intent::Without => {}
        Intent::Install if owners.iter().all(|owner| is_ours(owner)) => {}
        Intent::Install => {
            let field = component.field();
            let finding = Finding::new(
                component.check(),
                Severity::Blocking,
                format!("{seen}, and forge.yaml says `argo: {{{field}: install}}`"),
                "Forge changes only what it made itself, and two of them would work on the same objects",
                format!("set `argo: {{{field}: existing}}` in forge.yaml to use it as it is, or remove it"),
            );
            judged = judged.with(finding.because(evidence));
        }
        Intent::Existing => judged = existing(judged, component, purpose, &found, &evidence),
    }
    judged
}

fn absent(component: Component) -> Finding {
    let (title, field) = (component.title(), component.field());
    Finding::new(
        component.check(),
        Severity::Blocking,
        format!("{title} is not there, and forge.yaml says `argo: {{{field}: existing}}`"),
        "Forge does not install what somebody else is said to have",
        format!(
            "install {title}, or set `argo: {{{field}: install}}` in forge.yaml; `kubectl get deployments -A` lists what there is"
        ),
    )
}

/// What is used as it is must be where it is said to be, run, and be able to do what a run wants of it.
fn existing(
    mut judged: Judged,
    component: Component,
    purpose: &Purpose,
    found: &[&WorkloadFacts],
    evidence: &[String],
) -> Judged {
    let title = component.title();
    let wanted = purpose.place(component);
    if !found.iter().any(|workload| workload.namespace == wanted) {
        let place = found.first().map_or("", |workload| workload.namespace.as_str());
        // A controller of Argo Workflows or Argo Events may serve other namespaces than its own.
        let severity = if component == Component::Cd { Severity::Blocking } else { Severity::Warning };
        judged = judged.with(
            Finding::new(
                component.check(),
                severity,
                format!("{title} runs in `{place}` and not in `{}`", clip(wanted)),
                "what is made for it would be made where it does not look, unless it serves that namespace too",
                format!("say where it is: {}", component.move_to(place)),
            )
            .because(evidence),
        );
    }
    let down = found.iter().any(|workload| workload.pods.1 < workload.pods.0);
    if down {
        judged = judged.with(
            Finding::new(
                component.check(),
                Severity::Warning,
                format!("not all pods of {title} are ready"),
                "a run waits for it, and fails when that takes too long",
                format!("`kubectl -n {} get pods` shows which, `kubectl describe pod` why", clip(wanted)),
            )
            .because(evidence),
        );
    }
    let plugins: Vec<bool> = found.iter().filter_map(|workload| workload.plugins).collect();
    if !plugins.is_empty() && !plugins.contains(&true) {
        judged = judged.with(Finding::new(
            component.check(),
            Severity::Warning,
            "executor plugins are switched off in the workflow-controller",
            "a run gives every node a pod of its own, which takes longer",
            "set ARGO_EXECUTOR_PLUGINS to \"true\" in the environment of the workflow-controller, where plugins are allowed",
        ));
    }
    judged
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn helm(component: &str, name: &str, namespace: &str, image: &str) -> Value {
        json!({
            "metadata": {
                "name": name, "namespace": namespace,
                "labels": {"app.kubernetes.io/part-of": component, "app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/version": "v3.2.2"},
                "annotations": {"meta.helm.sh/release-name": "argo-cd", "meta.helm.sh/release-namespace": namespace},
            },
            "spec": {"replicas": 1, "template": {"spec": {"containers": [{"image": image, "env": [{"name": "ARGO_EXECUTOR_PLUGINS", "value": "true"}]}]}}},
            "status": {"readyReplicas": 1},
        })
    }

    fn facts(objects: &[Value]) -> Vec<WorkloadFacts> {
        objects.iter().filter_map(WorkloadFacts::read).collect()
    }

    fn cd() -> Value {
        helm("argocd", "argocd-server", "argocd", "quay.io/argoproj/argocd:v3.2.2@sha256:00")
    }

    fn purpose(cd: Intent) -> Purpose {
        Purpose { intents: Intents { cd, ..Intents::existing() }, ..Purpose::default() }
    }

    fn worst(intent: Intent, objects: &[Value], ours: &[&str]) -> Option<Severity> {
        let ours = ours.iter().map(|release| Owner::Helm((*release).to_owned())).collect();
        argo(Component::Cd, &purpose(intent), &facts(objects), &ours).worst()
    }

    #[test]
    fn what_somebody_else_installed_is_not_installed_over_and_what_is_ours_is() {
        assert_eq!(worst(Intent::Install, &[cd()], &[]), Some(Severity::Blocking));
        assert_eq!(worst(Intent::Install, &[cd()], &["argocd/argo-cd"]), None);
        assert_eq!(worst(Intent::Install, &[cd()], &["elsewhere/argo-cd"]), Some(Severity::Blocking));
        assert_eq!(worst(Intent::Install, &[], &[]), None);
        assert_eq!(worst(Intent::Without, &[cd()], &[]), None);
    }

    #[test]
    fn what_argo_cds_own_application_made_is_ours_where_that_is() {
        let mut added = cd();
        added["metadata"]["annotations"] =
            json!({"argocd.argoproj.io/tracking-id": "argocd:apps/Deployment:argocd/argo-cd-argocd-dex-server"});
        let judge = |ours: &[Owner]| {
            let ours = ours.iter().cloned().collect();
            argo(Component::Cd, &purpose(Intent::Install), &facts(&[cd(), added.clone()]), &ours).worst()
        };
        let helm = Owner::Helm("argocd/argo-cd".to_owned());
        let own = Owner::Application("argocd".to_owned());
        assert_eq!(judge(&[helm.clone(), own]), None);
        assert_eq!(judge(&[helm]), Some(Severity::Blocking));
    }

    #[test]
    fn what_is_said_to_be_there_must_be_there_and_in_its_namespace() {
        assert_eq!(worst(Intent::Existing, &[cd()], &[]), None);
        assert_eq!(worst(Intent::Existing, &[], &[]), Some(Severity::Blocking));
        let elsewhere = helm("argocd", "argocd-server", "gitops", "argocd:v3");
        let judged = argo(Component::Cd, &purpose(Intent::Existing), &facts(&[elsewhere]), &BTreeSet::new());
        assert_eq!(judged.worst(), Some(Severity::Blocking));
        assert!(judged.findings[0].fix.contains("argo: {namespace: gitops}"), "{judged:?}");
    }

    #[test]
    fn whose_it_is_is_read_from_marks() {
        let of = |metadata: Value| Owner::read(&json!({ "metadata": metadata })).to_string();
        assert_eq!(Owner::read(&cd()).to_string(), "Helm release argocd/argo-cd");
        assert_eq!(of(json!({"labels": {MANAGED_BY: "forge"}})), "Forge");
        let tracked =
            json!({"annotations": {"argocd.argoproj.io/tracking-id": "argo:apps/Deployment:argocd/argocd-server"}});
        assert_eq!(of(tracked), "Argo CD Application argo");
        assert_eq!(
            of(json!({"ownerReferences": [{"kind": "ArgoCD", "name": "example"}]})),
            "operator (ArgoCD example)"
        );
        assert_eq!(
            of(json!({"labels": {"operators.coreos.com/argocd-operator.operators": ""}})),
            "operator (operators.coreos.com/argocd-operator.operators)"
        );
        assert_eq!(of(json!({"labels": {MANAGED_BY: "Helm"}})), "nobody who says so");
        let half = json!({"annotations": {"meta.helm.sh/release-name": "x"}});
        assert_eq!(of(half), "nobody who says so");
    }

    #[test]
    fn an_installation_without_labels_is_known_by_its_image_and_what_is_made_of_argo_events_is_none() {
        let plain = json!({
            "metadata": {"name": "workflow-controller", "namespace": "argo"},
            "spec": {"template": {"spec": {"containers": [{"image": "registry.example.com:5000/argoproj/workflow-controller:v3.7.6"}]}}},
        });
        let found = facts(&[plain]).pop().unwrap();
        assert_eq!((found.component, found.version.as_deref()), (Component::Workflows, Some("v3.7.6")));
        assert_eq!((found.plugins, found.owner, found.pods), (Some(false), Owner::Nobody, (1, 0)));
        let source = json!({
            "metadata": {"name": "hook", "ownerReferences": [{"kind": "EventSource", "name": "hook"}]},
            "spec": {"template": {"spec": {"containers": [{"image": "quay.io/argoproj/argo-events:v1.9.9"}]}}},
        });
        assert!(WorkloadFacts::read(&source).is_none());
        assert!(WorkloadFacts::read(&json!({"metadata": {"name": "argocd"}})).is_none());
        assert_eq!(repository("argocd@sha256:00"), "argocd");
        assert_eq!((tag("a/b:c@d"), tag("localhost:5000/b")), (Some("c"), None));
    }

    #[test]
    fn a_controller_without_plugins_and_pods_that_are_not_ready_are_warnings() {
        let controller = |value: &str, ready: u64| {
            let mut object = helm("argo-workflows", "workflow-controller", "argo", "workflow-controller:v3.7.6");
            object["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"] = json!(value);
            object["status"]["readyReplicas"] = json!(ready);
            argo(Component::Workflows, &purpose(Intent::Existing), &facts(&[object]), &BTreeSet::new())
        };
        assert_eq!(controller("true", 1).worst(), None);
        assert_eq!(controller("false", 1).worst(), Some(Severity::Warning));
        assert!(controller("true", 0).findings[0].what.contains("not all pods"));
    }

    #[test]
    fn plugins_are_switched_on_by_flag_or_else_by_variable_as_the_controller_reads_them() {
        let controller = |args: Value, env: Value| {
            let container = json!({"image": "workflow-controller:v3.7.6", "args": args, "env": env});
            json!({"metadata": {"name": "c"}, "spec": {"template": {"spec": {"containers": [container]}}}})
        };
        let variable = |value: &str| json!([{"name": "ARGO_EXECUTOR_PLUGINS", "value": value}]);
        let none = || json!(null);
        for (args, env, expected) in [
            (none(), none(), false),
            (none(), variable("true"), true),
            (none(), variable("1"), true),
            (none(), variable("yes"), false),
            (none(), json!([{"name": "ARGO_EXECUTOR_PLUGINS", "valueFrom": {}}]), false),
            (json!(["--loglevel", "info", "--executor-plugins"]), none(), true),
            (json!(["--executor-plugins=true"]), none(), true),
            (json!(["--executor-plugins=false"]), variable("true"), false),
        ] {
            let workload = controller(args, env);
            assert_eq!(plugins([&workload]), Some(expected), "{workload}");
        }
        assert_eq!(plugins([&cd()]), None);
        let (off, on) = (controller(none(), none()), controller(none(), variable("true")));
        assert_eq!(plugins([&off, &on, &cd()]), Some(true));
    }

    #[test]
    fn a_helm_release_is_ours_only_by_our_label() {
        let release = |labels: Value| is_ours(&json!({"metadata": {"labels": labels}}));
        assert!(release(json!({"owner": "helm", "name": "argo-cd", MANAGED_BY: "forge"})));
        assert!(!release(json!({"owner": "helm", "name": "argo-cd"})));
        assert!(!release(json!({MANAGED_BY: "forge"})));
        assert!(!is_ours(&json!(null)));
    }

    #[test]
    fn hostile_workloads_are_not_a_part_of_argo() {
        for hostile in [
            json!(null),
            json!({"spec": {"template": {"spec": {"containers": {"image": "argocd"}}}}}),
            json!({"spec": {"template": {"spec": {"containers": [{"image": 7}, {"image": ""}, null]}}}}),
            json!({"metadata": {"labels": {"app.kubernetes.io/part-of": ["argocd"]}}}),
        ] {
            assert_eq!(WorkloadFacts::read(&hostile), None, "{hostile}");
        }
        let mut odd = cd();
        odd["metadata"]["name"] = json!("\u{1b}[2J");
        odd["metadata"]["labels"]["app.kubernetes.io/version"] = json!("\u{7}");
        odd["spec"]["replicas"] = json!(-1);
        let judged = argo(Component::Cd, &purpose(Intent::Install), &facts(&[odd]), &BTreeSet::new());
        assert!(!format!("{judged:?}").contains("\\u{1b}"), "{judged:?}");
    }
}
