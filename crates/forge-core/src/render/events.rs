//! What starts runs by itself: Argo Events hears a push or a clock and makes the Job of SPEC.md section 5, which waits
//! for its turn and deploys what the branch holds then (`sync: ordered`, section 4; docs/adr/0020).
//!
//! Pure: names in, objects out, the same every time. What an event says decides the name of a Job and nothing else of
//! it: the account that makes Jobs may make only these, which a policy of the API server sees to, because RBAC cannot.

use serde_json::{Value, json};

use super::bootstrap::{Placed, metadata, placed};
use super::policy::Policy;
use super::workflow::{
    ARGOCD_SECRET, ARGOCD_SECRET_PATH, EXECUTOR_ACCOUNT, GIT_SECRET, GIT_SECRET_PATH, Places, REGISTRY_SECRET,
    REGISTRY_SECRET_PATH,
};
use super::{ENVIRONMENT_LABEL, MANAGED_BY, RUN_LABEL, is_ours};
use crate::executor::Domain;
use crate::format::{Environment, Repository, Schedule, Sync};
use crate::name::EnvironmentName;
use crate::rights;
use crate::url::same_repository;
use crate::yaml::{self, Dialect, Limits};

/// The account of Sensors: it makes the Jobs of events, and nothing else.
pub const EVENTS_ACCOUNT: &str = "forge-events";
/// The account of EventSources, which may do nothing at all.
pub const WEBHOOK_ACCOUNT: &str = "forge-webhook";
/// The Secret with what a Git host signs deliveries with.
pub const WEBHOOK_SECRET: &str = "forge-webhook";
/// The key in it.
pub const WEBHOOK_SECRET_KEY: &str = "secret";
/// The EventSource that hears pushes. Its Service is `forge-push-eventsource-svc`.
pub const WEBHOOK_SOURCE: &str = "forge-push";
/// The port of its Service.
pub const WEBHOOK_PORT: u16 = 12000;
/// Where it hears them.
pub const WEBHOOK_PATH: &str = "/push";
/// The EventBus.
pub const EVENT_BUS: &str = "forge";
/// On a Job of an event: the commit that was pushed. What is deployed is what the branch holds when the Job begins.
pub const COMMIT_ANNOTATION: &str = "forge.projectcatalyst.io/commit";

/// How a push names its Job: by the commit that the branch went to, and by all that was signed. The same delivery again is a
/// Job that is there already, whoever sent it; a branch that goes back and forth makes one each time, because hosts say when.
/// Two headers, which Argo Events puts into the body, are not signed: whoever sends a delivery again could change them.
const MOVE: &str = r#"{{ substr 0 12 .Input.body.after }}-{{ omit .Input.body "X-GitHub-Event" "X-GitHub-Delivery" | toJson | sha256sum | substr 0 6 }}"#;
/// How a clock does: by its minute.
const MINUTE: &str = r#"{{ substr 0 16 .Input.time | replace "-" "" | replace ":" "" | lower }}"#;
/// What the name of what the executor is told begins with.
const CONFIGURATION: &str = "forge-event-";
/// What both give, behind `forge-<environment>-`.
const NAMES: &str = "([0-9a-f]{12}-[0-9a-f]{6}|at-[0-9]{8}t[0-9]{4})";

/// What starts runs of an environment by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trigger<'t> {
    /// The environment.
    pub environment: &'t EnvironmentName,
    /// Every push to the branch does.
    pub push: bool,
    /// A clock does.
    pub schedule: Option<&'t Schedule>,
}

impl<'t> Trigger<'t> {
    /// What `forge.yaml` says of an environment; none where only people start runs.
    pub fn of(environment: &'t Environment) -> Option<Self> {
        let push = environment.sync.value == Sync::Ordered;
        let schedule = environment.schedule.as_ref().map(|schedule| &schedule.value);
        (push || schedule.is_some()).then_some(Self { environment: &environment.name.value, push, schedule })
    }
}

/// The name of the Sensor of an environment.
pub fn sensor_name(environment: &EnvironmentName) -> String {
    format!("forge-{environment}")
}

/// The name of the EventSource that is the clock of an environment. Never [`WEBHOOK_SOURCE`], whatever its name is.
pub fn clock_name(environment: &EnvironmentName) -> String {
    format!("forge-at-{environment}")
}

/// Everything but the Secret of the webhook, in the order in which it is to be applied; nothing without a trigger.
pub fn events(places: &Places, repository: &Repository, triggers: &[Trigger<'_>]) -> Vec<Placed> {
    if triggers.is_empty() {
        return Vec::new();
    }
    let core = |plural: &str| format!("/api/v1/namespaces/{}/{plural}", places.workflows);
    let argo = |plural: &str| format!("/apis/argoproj.io/v1alpha1/namespaces/{}/{plural}", places.workflows);
    let rbac = |plural: &str| format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{}/{plural}", places.workflows);
    let mut objects = Vec::new();
    for account in [EVENTS_ACCOUNT, WEBHOOK_ACCOUNT] {
        objects.push(placed(
            core("serviceaccounts"),
            json!({
                "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(account, Some(&places.workflows)),
                "automountServiceAccountToken": account == EVENTS_ACCOUNT,
            }),
        ));
    }
    let rules: Vec<Value> = rights::granted(EVENTS_ACCOUNT).iter().map(|rule| rule.rbac(&[])).collect();
    objects.push(placed(
        rbac("roles"),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": metadata(EVENTS_ACCOUNT, Some(&places.workflows)), "rules": rules,
        }),
    ));
    objects.push(placed(
        rbac("rolebindings"),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": metadata(EVENTS_ACCOUNT, Some(&places.workflows)),
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": EVENTS_ACCOUNT},
            "subjects": [{"kind": "ServiceAccount", "name": EVENTS_ACCOUNT, "namespace": places.workflows}],
        }),
    ));
    // Before anything can use the account.
    objects.extend(policy(places));
    objects.push(placed(argo("eventbus"), event_bus(places)));
    if triggers.iter().any(|trigger| trigger.push) {
        objects.push(placed(argo("eventsources"), webhook(places)));
    }
    for trigger in triggers {
        objects.push(placed(core("configmaps"), configuration(places, repository, trigger)));
        if let Some(schedule) = trigger.schedule {
            objects.push(placed(argo("eventsources"), clock(places, trigger.environment, schedule)));
        }
        objects.push(placed(argo("sensors"), sensor(places, &repository.branch.value, trigger)));
    }
    objects
}

/// The name, in the namespace of runs, of an object of one environment.
fn owned(name: &str, places: &Places, environment: &EnvironmentName) -> Value {
    json!({
        "name": name, "namespace": places.workflows,
        "labels": {MANAGED_BY: "forge", ENVIRONMENT_LABEL: environment},
    })
}

/// What a namespace that enforces `restricted` wants of a pod, for the Job and for all pods of Argo Events, whose controller
/// adds nothing of its own. With a user, because images of Argo Events and NATS name none; one for all containers, because
/// NATS is sent signals by its neighbour.
fn of_pod() -> Value {
    json!({"runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}})
}

/// The same of a container.
fn of_container() -> Value {
    json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}})
}

/// How Argo Events makes the pod of an EventSource or a Sensor.
fn template(account: &str) -> Value {
    json!({
        "serviceAccountName": account,
        "securityContext": of_pod(),
        "container": {"securityContext": of_container()},
    })
}

/// Three replicas, as few as JetStream agrees with. Without volumes: what is lost with all three at once is a push that
/// the next one, or the clock, makes up for.
fn event_bus(places: &Places) -> Value {
    let container = json!({"securityContext": of_container()});
    json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "EventBus",
        "metadata": metadata(EVENT_BUS, Some(&places.workflows)),
        "spec": {"jetstream": {
            "version": "latest",
            "replicas": 3,
            "securityContext": of_pod(),
            "containerTemplate": container,
            "reloaderContainerTemplate": container,
            "metricsContainerTemplate": container,
        }},
    })
}

/// Hears pushes and checks their signatures, as GitHub, Gitea and Forgejo make them: an HMAC of the body.
fn webhook(places: &Places) -> Value {
    json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "EventSource",
        "metadata": metadata(WEBHOOK_SOURCE, Some(&places.workflows)),
        "spec": {
            "eventBusName": EVENT_BUS,
            "template": template(WEBHOOK_ACCOUNT),
            "service": {"ports": [{"name": "http", "port": WEBHOOK_PORT, "targetPort": WEBHOOK_PORT}]},
            "github": {"push": {
                // Wanted by validation. Only who registers hooks by himself, for which he would need a token, reads it.
                "repositories": [{"owner": "any", "names": ["any"]}],
                "events": ["push"],
                "contentType": "json",
                "webhook": {"endpoint": WEBHOOK_PATH, "port": WEBHOOK_PORT.to_string(), "method": "POST"},
                // Mounted: without the Secret the pod does not start, so nothing unsigned is ever heard.
                "webhookSecret": {"name": WEBHOOK_SECRET, "key": WEBHOOK_SECRET_KEY},
            }},
        },
    })
}

fn clock(places: &Places, environment: &EnvironmentName, schedule: &Schedule) -> Value {
    json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "EventSource",
        "metadata": owned(&clock_name(environment), places, environment),
        "spec": {
            "eventBusName": EVENT_BUS,
            "template": template(WEBHOOK_ACCOUNT),
            "calendar": {"schedule": {"schedule": schedule.cron(), "timezone": schedule.zone()}},
        },
    })
}

/// What the executor is told of the environment (SPEC.md section 5), and only what forge.yaml says. It wants a domain too, and
/// compares it with that of env.yaml, which may change with every push: one that is nobody's is compared with nothing.
fn configuration(places: &Places, repository: &Repository, trigger: &Trigger<'_>) -> Value {
    let environment = trigger.environment;
    let text = yaml::write(&json!({
        "name": environment,
        "domain": Domain::nobodys(environment),
        "gitRepository": repository.url.value,
        "gitRevision": repository.branch.value,
        "argocdNamespace": places.argocd,
        "workflowsNamespace": places.workflows,
    }));
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": owned(&configuration_name(environment), places, environment),
        "data": {"environment.yaml": text},
    })
}

/// The name of what the executor is told of an environment.
pub fn configuration_name(environment: &EnvironmentName) -> String {
    format!("{CONFIGURATION}{environment}")
}

/// Whose triggers a ConfigMap is of: the environment, where it is one of ours, for this repository and branch. Whoever shares
/// the namespace has environments of his own.
pub fn configured(object: &Value, repository: &Repository) -> Option<EnvironmentName> {
    let name = object.pointer("/metadata/name").and_then(Value::as_str)?;
    let environment: EnvironmentName = name.strip_prefix(CONFIGURATION)?.parse().ok()?;
    let text = object.pointer("/data/environment.yaml").and_then(Value::as_str)?;
    let told = yaml::read(text, Dialect::Kubernetes, Limits::FILE).documents.first()?.to_json();
    let says = |field: &str| told.get(field).and_then(Value::as_str);
    let same = same_repository(says("gitRepository")?, &repository.url.value)
        && says("gitRevision")? == repository.branch.value.as_str();
    (same && is_ours(object)).then_some(environment)
}

fn sensor(places: &Places, branch: &str, trigger: &Trigger<'_>) -> Value {
    let environment = trigger.environment;
    let mut dependencies = Vec::new();
    let mut triggers = Vec::new();
    if trigger.push {
        dependencies.push(json!({
            "name": "push", "eventSourceName": WEBHOOK_SOURCE, "eventName": "push",
            "filters": {"data": filters(branch)},
        }));
        let annotation = format!("metadata.annotations.{}", COMMIT_ANNOTATION.replace('.', "\\."));
        let parameters = json!([
            {"src": {"dependencyName": "push", "dataTemplate": MOVE}, "dest": "metadata.name", "operation": "append"},
            {"src": {"dependencyName": "push", "dataKey": "body.after"}, "dest": annotation},
        ]);
        triggers.push(made_by("push", &parameters, &event_job(places, environment, "")));
    }
    if trigger.schedule.is_some() {
        dependencies.push(json!({
            "name": "schedule", "eventSourceName": clock_name(environment), "eventName": "schedule",
        }));
        let source = json!({"dependencyName": "schedule", "contextTemplate": MINUTE});
        let parameters = json!([{"src": source, "dest": "metadata.name", "operation": "append"}]);
        triggers.push(made_by("schedule", &parameters, &event_job(places, environment, "at-")));
    }
    json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Sensor",
        "metadata": owned(&sensor_name(environment), places, environment),
        "spec": {
            "eventBusName": EVENT_BUS,
            "template": template(EVENTS_ACCOUNT),
            "dependencies": dependencies,
            "triggers": triggers,
        },
    })
}

/// A trigger that makes a Job when this dependency was heard.
fn made_by(dependency: &str, parameters: &Value, job: &Value) -> Value {
    json!({
        "template": {
            "name": dependency,
            "conditions": dependency,
            "k8s": {"operation": "create", "source": {"resource": job}, "parameters": parameters},
        },
        // Acknowledged when the Job is made, and not before.
        "atLeastOnce": true,
        // A burst becomes a row, of which all but two find a seat taken and leave; no node is asked for a hundred pods.
        "rateLimit": {"unit": "Second", "requestsPerUnit": 1},
        // Also a Job that is there already is tried again, so few and soon: what is behind waits for it.
        "retryStrategy": {"steps": 3, "duration": "1s", "factor": 2},
    })
}

/// A push to the branch, and nothing else that a Git host sends. Values are expressions of Go.
fn filters(branch: &str) -> Value {
    let commit = "^[0-9a-f]{40}$";
    json!([
        {"path": "body.X-GitHub-Event", "type": "string", "value": ["^push$"]},
        {"path": "body.ref", "type": "string", "value": [format!("^refs/heads/{}$", literal(branch))]},
        {"path": "body.before", "type": "string", "value": [commit]},
        {"path": "body.after", "type": "string", "value": [commit]},
        // A branch that is gone.
        {"path": "body.after", "type": "string", "comparator": "!=", "value": ["^0{40}$"]},
    ])
}

/// A text as an expression that matches it and nothing else.
fn literal(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii_punctuation() {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// The Job of an event, whose name the event completes: it waits for its turn and runs `executor deploy`, which reads
/// the branch, plans and conducts (SPEC.md section 5).
fn event_job(places: &Places, environment: &EnvironmentName, prefix: &str) -> Value {
    let labels = json!({MANAGED_BY: "forge", ENVIRONMENT_LABEL: environment});
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": format!("forge-{environment}-{prefix}"), "namespace": places.workflows, "labels": labels,
        },
        "spec": {
            "backoffLimit": 50,
            // As long as it is there, the same delivery makes no other.
            "ttlSecondsAfterFinished": 24 * 3600,
            "podFailurePolicy": {"rules": [
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
                {"action": "FailJob", "onExitCodes": {"containerName": "executor", "operator": "In", "values": [1, 2, 3, 4, 5, 6]}},
            ]},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "restartPolicy": "Never",
                    "serviceAccountName": EXECUTOR_ACCOUNT,
                    "terminationGracePeriodSeconds": 10,
                    "securityContext": of_pod(),
                    "containers": [{
                        "name": "executor",
                        "image": places.image,
                        "command": COMMAND,
                        "args": arguments(places),
                        "env": [
                            {"name": "ENVIRONMENT", "value": environment},
                            {"name": "TARGET_SCOPE", "value": "platform"},
                            {"name": "LOG_FORMAT", "value": "json"},
                            {"name": "JOB", "valueFrom": {"fieldRef": {"fieldPath": JOB_LABEL}}},
                        ],
                        "ports": [{"name": "metrics", "containerPort": 9090}],
                        "securityContext": {
                            "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false,
                            "capabilities": {"drop": ["ALL"]},
                        },
                        "resources": {
                            "requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"cpu": "1", "memory": "512Mi"},
                        },
                        "volumeMounts": [
                            {"name": "config", "mountPath": "/config", "readOnly": true},
                            {"name": ARGOCD_SECRET, "mountPath": ARGOCD_SECRET_PATH, "readOnly": true},
                            {"name": GIT_SECRET, "mountPath": GIT_SECRET_PATH, "readOnly": true},
                            {"name": REGISTRY_SECRET, "mountPath": REGISTRY_SECRET_PATH, "readOnly": true},
                            {"name": "tmp", "mountPath": "/tmp"},
                        ],
                    }],
                    "volumes": [
                        {"name": "config", "configMap": {"name": configuration_name(environment)}},
                        {"name": ARGOCD_SECRET, "secret": {"secretName": ARGOCD_SECRET, "defaultMode": 0o444}},
                        // Credentials of the repository, where it is not public.
                        {"name": GIT_SECRET, "secret": {"secretName": GIT_SECRET, "defaultMode": 0o444, "optional": true}},
                        // What the registry of releases wants, where it wants something.
                        {"name": REGISTRY_SECRET, "secret": {"secretName": REGISTRY_SECRET, "defaultMode": 0o444, "optional": true}},
                        // The clone of the repository.
                        {"name": "tmp", "emptyDir": {}},
                    ],
                },
            },
        },
    })
}

const COMMAND: [&str; 1] = ["forge"];
/// Where Kubernetes writes the name of a Job on its pods.
const JOB_LABEL: &str = "metadata.labels['batch.kubernetes.io/job-name']";

/// The same for all environments: what differs is in variables, which Kubernetes puts in.
fn arguments(places: &Places) -> [&str; 8] {
    let namespace = places.workflows.as_str();
    ["serve", "event", "--environment", "$(ENVIRONMENT)", "--name", "$(JOB)", "--workflows-namespace", namespace]
}

/// What of it is in no namespace, and so goes with nothing else.
pub fn of_events(places: &Places) -> Vec<Placed> {
    policy(places)
}

/// What the account of Sensors may make: the Job above, of any environment, and nothing that only looks like it. The
/// account of the executor goes with such a Job, so a field that is not known here is refused.
fn policy(places: &Places) -> Vec<Placed> {
    Policy {
        name: "forge-event-jobs",
        who: "a-sensor",
        accounts: &[EVENTS_ACCOUNT],
        kind: ("batch", "jobs"),
        operations: &["CREATE", "UPDATE"],
        rules: rules(places),
    }
    .objects(places)
}

/// Texts as a list of CEL.
fn list(texts: &[&str]) -> String {
    format!("[{}]", texts.iter().map(|text| format!("'{text}'")).collect::<Vec<_>>().join(", "))
}

/// Fields of a Job, of its pod and of its container. What the API server fills in is among them.
const JOB_FIELDS: &str = "['backoffLimit', 'completionMode', 'completions', 'manualSelector', 'parallelism', 'podFailurePolicy', 'podReplacementPolicy', 'selector', 'suspend', 'template', 'ttlSecondsAfterFinished']";
const POD_FIELDS: &str = "['containers', 'dnsPolicy', 'restartPolicy', 'schedulerName', 'securityContext', 'serviceAccount', 'serviceAccountName', 'terminationGracePeriodSeconds', 'volumes']";
const CONTAINER_FIELDS: &str = "['args', 'command', 'env', 'image', 'imagePullPolicy', 'name', 'ports', 'resources', 'securityContext', 'terminationMessagePath', 'terminationMessagePolicy', 'volumeMounts']";

/// Its volumes, and where each is mounted.
const MOUNTS: [(&str, &str); 5] = [
    ("config", "/config"),
    (ARGOCD_SECRET, ARGOCD_SECRET_PATH),
    (GIT_SECRET, GIT_SECRET_PATH),
    (REGISTRY_SECRET, REGISTRY_SECRET_PATH),
    ("tmp", "/tmp"),
];

/// What must hold of such a Job, and what is said where it does not.
fn rules(places: &Places) -> Vec<(String, &'static str)> {
    let environment = format!("object.metadata.labels['{ENVIRONMENT_LABEL}']");
    let pod = "object.spec.template.spec";
    let container = format!("{pod}.containers[0]");
    let secret = |name: &str| format!("(v.name == '{name}' && has(v.secret) && v.secret.secretName == '{name}')");
    let secrets = [ARGOCD_SECRET, GIT_SECRET, REGISTRY_SECRET].map(secret).join(" || ");
    // Each has its place: what lies in one must not be read for what belongs into another.
    let mounts = MOUNTS.map(|(name, path)| format!("(m.name == '{name}' && m.mountPath == '{path}')")).join(" || ");
    vec![
        (
            format!("object.metadata.name.startsWith('forge-' + {environment} + '-')"),
            "the Job of an event is named after its environment",
        ),
        (
            format!("object.metadata.name.matches('^forge-[a-z0-9-]+-{NAMES}$')"),
            "the Job of an event is named after a push or a minute",
        ),
        (
            format!(
                "!has(object.metadata.ownerReferences) && !has(object.metadata.finalizers) && !('{RUN_LABEL}' in object.metadata.labels)"
            ),
            "the Job of an event is nobody's, and of no run",
        ),
        (
            format!(
                "object.spec.all(k, k in {JOB_FIELDS}) && object.spec.completions == 1 && object.spec.parallelism == 1 && !(has(object.spec.manualSelector) && object.spec.manualSelector)"
            ),
            "the Job of an event has one pod",
        ),
        (
            format!(
                "{pod}.all(k, k in {POD_FIELDS}) && {pod}.serviceAccountName == '{EXECUTOR_ACCOUNT}' && {pod}.containers.size() == 1"
            ),
            "the pod of an event has the executor's account and one container, and nothing of its own",
        ),
        (
            format!(
                "{container}.all(k, k in {CONTAINER_FIELDS}) && {container}.image == '{}' && {container}.command == {} && {container}.args == {}",
                places.image,
                list(&COMMAND),
                list(&arguments(places)),
            ),
            "the container of an event runs what bootstrap was given, as it was rendered",
        ),
        (
            format!(
                "{container}.env.all(e, (e.name == 'ENVIRONMENT' && has(e.value) && e.value == {environment}) || (e.name == 'TARGET_SCOPE' && has(e.value) && e.value == 'platform') || (e.name == 'LOG_FORMAT' && has(e.value) && e.value == 'json') || (e.name == 'JOB' && has(e.valueFrom) && has(e.valueFrom.fieldRef) && e.valueFrom.fieldRef.fieldPath == \"{JOB_LABEL}\"))"
            ),
            "the container of an event is told its environment and its name, and nothing else",
        ),
        (
            format!(
                "{pod}.volumes.all(v, (v.name == 'config' && has(v.configMap) && v.configMap.name == 'forge-event-' + {environment}) || {secrets} || (v.name == 'tmp' && has(v.emptyDir))) && {container}.volumeMounts.all(m, ({mounts}) && !has(m.subPath) && !has(m.subPathExpr))"
            ),
            "the pod of an event has its configuration, the token of Argo CD, credentials for Git and the registry, and a place for a clone",
        ),
        (
            format!(
                "{pod}.securityContext.all(k, k in ['runAsNonRoot', 'runAsUser', 'seccompProfile']) && {pod}.securityContext.runAsNonRoot && {container}.securityContext.all(k, k in ['allowPrivilegeEscalation', 'capabilities', 'readOnlyRootFilesystem']) && !{container}.securityContext.allowPrivilegeEscalation && {container}.securityContext.capabilities.all(k, k == 'drop')"
            ),
            "the pod of an event has no privileges",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate;
    use crate::yaml::{At, Position};

    fn repository() -> Repository {
        let at = |text: &str| At::new(text.to_owned(), Position::START);
        Repository { url: at("https://git.example.com/p.git"), branch: at("release/1.x") }
    }

    fn objects(push: bool, schedule: Option<&str>) -> Vec<Value> {
        let environment: EnvironmentName = "dev".parse().unwrap();
        let schedule: Option<Schedule> = schedule.map(|text| text.parse().unwrap());
        let trigger = Trigger { environment: &environment, push, schedule: schedule.as_ref() };
        let placed = events(&Places::default(), &repository(), &[trigger]);
        placed.into_iter().map(|placed| placed.object).collect()
    }

    fn of<'o>(objects: &'o [Value], kind: &str, name: &str) -> &'o Value {
        let found = objects.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
        found.unwrap_or_else(|| panic!("no {kind} {name}"))
    }

    #[test]
    fn whose_triggers_are_there_is_known_by_repository_and_branch() {
        let objects = objects(true, None);
        let own = of(&objects, "ConfigMap", "forge-event-dev");
        assert_eq!(configured(own, &repository()), Some("dev".parse().unwrap()));
        let at = |text: &str| At::new(text.to_owned(), Position::START);
        let elsewhere = Repository { url: at("https://git.example.com/q.git"), ..repository() };
        let another = Repository { branch: at("main"), ..repository() };
        assert_eq!((configured(own, &elsewhere), configured(own, &another)), (None, None));
        let mut foreign = own.clone();
        foreign["metadata"]["labels"] = json!({});
        assert_eq!(configured(&foreign, &repository()), None);
        for other in [json!({}), json!({"metadata": {"name": "forge-event-dev"}, "data": {"environment.yaml": "x"}})] {
            assert_eq!(configured(&other, &repository()), None, "{other}");
        }
    }

    #[test]
    fn the_job_of_an_event_is_told_no_domain_of_its_own() {
        let objects = objects(true, None);
        let told = &of(&objects, "ConfigMap", "forge-event-dev")["data"]["environment.yaml"];
        assert!(told.as_str().unwrap().contains("dev.invalid"), "{told}");
    }

    #[test]
    fn nothing_is_made_where_nothing_starts_runs() {
        assert!(events(&Places::default(), &repository(), &[]).is_empty());
    }

    #[test]
    fn every_object_is_ours_and_the_secret_is_not_among_them() {
        for object in objects(true, Some("0 3 * * *")) {
            assert_eq!(object["metadata"]["labels"][MANAGED_BY], "forge", "{object}");
            assert_ne!(object["kind"], "Secret");
        }
    }

    #[test]
    fn only_signed_deliveries_are_heard_and_by_an_account_that_may_do_nothing() {
        let objects = objects(true, None);
        let source = of(&objects, "EventSource", WEBHOOK_SOURCE);
        let push = &source["spec"]["github"]["push"];
        assert_eq!(push["webhookSecret"], json!({"name": WEBHOOK_SECRET, "key": WEBHOOK_SECRET_KEY}));
        // With a token Argo Events would write hooks at the Git host.
        assert!(push.get("apiToken").is_none() && push.get("githubApp").is_none());
        assert_eq!(source["spec"]["template"]["serviceAccountName"], WEBHOOK_ACCOUNT);
        let account = of(&objects, "ServiceAccount", WEBHOOK_ACCOUNT);
        assert_eq!(account["automountServiceAccountToken"], false);
        let bindings: Vec<&Value> = objects.iter().filter(|object| object["kind"] == "RoleBinding").collect();
        assert!(bindings.iter().all(|binding| binding["subjects"][0]["name"] == EVENTS_ACCOUNT), "{bindings:?}");
    }

    #[test]
    fn a_push_is_to_this_branch_and_names_two_commits() {
        let objects = objects(true, None);
        let sensor = of(&objects, "Sensor", "forge-dev");
        let filters = &sensor["spec"]["dependencies"][0]["filters"]["data"];
        assert_eq!(filters[1]["path"], "body.ref");
        assert_eq!(filters[1]["value"], json!([r"^refs/heads/release\/1\.x$"]));
        let trigger = &sensor["spec"]["triggers"][0];
        assert_eq!(trigger["template"]["conditions"], "push");
        let k8s = &trigger["template"]["k8s"];
        // Its Job is named after what was signed, and not after what anybody may say about it.
        let named = k8s["parameters"][0]["src"]["dataTemplate"].as_str().unwrap();
        let signed = r#"omit .Input.body "X-GitHub-Event" "X-GitHub-Delivery" | toJson | sha256sum"#;
        assert!(named.contains(".Input.body.after") && named.contains(signed), "{named}");
        assert_eq!(k8s["parameters"][1]["dest"], r"metadata.annotations.forge\.projectcatalyst\.io/commit");
        let job = &k8s["source"]["resource"];
        assert_eq!(job["metadata"]["name"], "forge-dev-");
        assert_eq!(sensor["spec"]["triggers"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn a_clock_is_a_calendar_with_its_own_time_and_no_webhook() {
        let objects = objects(false, Some("0 3 * * 1-5 Europe/Berlin"));
        let clock = of(&objects, "EventSource", "forge-at-dev");
        assert_eq!(
            clock["spec"]["calendar"],
            json!({"schedule": {"schedule": "0 3 * * 1-5", "timezone": "Europe/Berlin"}})
        );
        assert!(!objects.iter().any(|object| object["metadata"]["name"] == WEBHOOK_SOURCE));
        let sensor = of(&objects, "Sensor", "forge-dev");
        let template = &sensor["spec"]["triggers"][0]["template"];
        assert_eq!(sensor["spec"]["dependencies"][0]["eventSourceName"], "forge-at-dev");
        assert_eq!(template["k8s"]["source"]["resource"]["metadata"]["name"], "forge-dev-at-");
        assert_eq!(template["k8s"]["parameters"][0]["src"]["contextTemplate"], MINUTE);
    }

    #[test]
    fn every_pod_of_triggers_passes_where_only_restricted_ones_do() {
        let objects = objects(true, Some("0 3 * * *"));
        let restricted = |pod: &Value, containers: &[&Value]| {
            assert_eq!(pod["runAsNonRoot"], true);
            // Images of Argo Events and NATS name no user, and root is refused.
            assert!(pod["runAsUser"].as_u64().is_some_and(|user| user > 0), "{pod}");
            assert_eq!(pod["seccompProfile"]["type"], "RuntimeDefault");
            for container in containers {
                assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
                assert_eq!(container["securityContext"]["capabilities"]["drop"], json!(["ALL"]));
            }
        };
        let templates = [("EventSource", WEBHOOK_SOURCE), ("EventSource", "forge-at-dev"), ("Sensor", "forge-dev")];
        for (kind, name) in templates {
            let template = &of(&objects, kind, name)["spec"]["template"];
            restricted(&template["securityContext"], &[&template["container"]]);
        }
        let bus = &of(&objects, "EventBus", EVENT_BUS)["spec"]["jetstream"];
        let containers = ["containerTemplate", "reloaderContainerTemplate", "metricsContainerTemplate"];
        restricted(&bus["securityContext"], &containers.map(|container| &bus[container]));
    }

    #[test]
    fn the_longest_environment_still_names_a_job() {
        let longest = "e".repeat(crate::name::MAX_ENVIRONMENT);
        for rest in ["0123456789ab-012345", "at-20260802t0300"] {
            assert!(format!("forge-{longest}-{rest}").len() <= crate::name::MAX_NAME, "{rest}");
        }
    }

    /// As the API server sees it: completed by an event, and with what it fills in itself.
    fn seen(environment: &str) -> Value {
        let mut job = event_job(&Places::default(), &environment.parse().unwrap(), "");
        job["metadata"]["name"] = json!(format!("forge-{environment}-0123456789ab-012345"));
        job["metadata"]["annotations"] = json!({COMMIT_ANNOTATION: "1".repeat(40)});
        job["metadata"]["labels"]["events.argoproj.io/sensor"] = json!("forge-dev");
        let filled = [
            ("completions", json!(1)),
            ("parallelism", json!(1)),
            ("completionMode", json!("NonIndexed")),
            ("suspend", json!(false)),
            ("podReplacementPolicy", json!("Failed")),
            ("manualSelector", json!(false)),
            ("selector", json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}})),
        ];
        for (field, value) in filled {
            job["spec"][field] = value;
        }
        let pod = &mut job["spec"]["template"]["spec"];
        pod["dnsPolicy"] = json!("ClusterFirst");
        pod["schedulerName"] = json!("default-scheduler");
        pod["serviceAccount"] = json!(EXECUTOR_ACCOUNT);
        let container = &mut pod["containers"][0];
        for field in ["imagePullPolicy", "terminationMessagePath", "terminationMessagePolicy"] {
            container[field] = json!("as always");
        }
        container["env"][3]["valueFrom"]["fieldRef"]["apiVersion"] = json!("v1");
        job
    }

    /// What the policy minds; names are matched by the API server's own expressions.
    fn minded(job: &Value) -> Vec<&'static str> {
        let rules = rules(&Places::default()).into_iter().filter(|(expression, _)| !expression.contains(".matches("));
        rules.filter(|(expression, _)| !gate::holds(expression, job)).map(|(_, message)| message).collect()
    }

    #[test]
    fn the_policy_lets_the_job_of_an_event_pass() {
        for environment in ["dev", "production-eu-1"] {
            assert_eq!(minded(&seen(environment)), Vec::<&str>::new());
        }
    }

    #[test]
    fn the_job_of_an_event_has_credentials_of_a_private_repository_and_registry_where_there_are_some() {
        let job = event_job(&Places::default(), &"dev".parse().unwrap(), "");
        let pod = &job["spec"]["template"]["spec"];
        for (name, path) in [(GIT_SECRET, GIT_SECRET_PATH), (REGISTRY_SECRET, REGISTRY_SECRET_PATH)] {
            let named = |list: &Value| {
                let items = list.as_array().cloned().unwrap_or_default();
                items.into_iter().find(|item| item["name"] == name).unwrap_or_default()
            };
            let mount = named(&pod["containers"][0]["volumeMounts"]);
            assert_eq!((&mount["mountPath"], &mount["readOnly"]), (&json!(path), &json!(true)), "{name}");
            let volume = named(&pod["volumes"]);
            let secret = &volume["secret"];
            assert_eq!((&secret["secretName"], &secret["optional"]), (&json!(name), &json!(true)), "{name}");
        }
    }

    #[test]
    fn the_policy_lets_nothing_else_pass() {
        let pod = "/spec/template/spec";
        let container = "/spec/template/spec/containers/0";
        let put: [(&str, &str, Value); 28] = [
            ("/metadata", "name", json!("forge-other-0123456789ab-012345")),
            ("/metadata", "ownerReferences", json!([{"kind": "Workflow"}])),
            ("/metadata", "finalizers", json!(["a/b"])),
            ("/metadata/labels", RUN_LABEL, json!("dev-0123456789-1")),
            ("/metadata/labels", ENVIRONMENT_LABEL, json!("production")),
            ("/spec", "parallelism", json!(50)),
            ("/spec", "activeDeadlineSeconds", json!(1)),
            (pod, "serviceAccountName", json!("argocd-server")),
            (pod, "initContainers", json!([{"name": "a", "image": "b"}])),
            (pod, "hostNetwork", json!(true)),
            (pod, "hostAliases", json!([{"ip": "1.2.3.4", "hostnames": ["argocd"]}])),
            (pod, "automountServiceAccountToken", json!(true)),
            (container, "image", json!("another")),
            (container, "command", json!(["sh"])),
            (container, "args", json!(["rotate"])),
            (container, "envFrom", json!([{"secretRef": {"name": "x"}}])),
            (container, "lifecycle", json!({"postStart": {"exec": {"command": ["forge"]}}})),
            ("/spec/template/spec/containers/0/env/0", "value", json!("production")),
            ("/spec/template/spec/containers/0/volumeMounts/3", "mountPath", json!("/usr/local/bin")),
            ("/spec/template/spec/containers/0/volumeMounts/4", "mountPath", json!("/usr/local/bin")),
            // What is read in one place is not what belongs into another.
            ("/spec/template/spec/containers/0/volumeMounts/3", "mountPath", json!("/config")),
            ("/spec/template/spec/containers/0/volumeMounts/3", "mountPath", json!(ARGOCD_SECRET_PATH)),
            ("/spec/template/spec/volumes/1/secret", "secretName", json!("argocd-secret")),
            ("/spec/template/spec/volumes/2/secret", "secretName", json!("argocd-secret")),
            ("/spec/template/spec/volumes/3/secret", "secretName", json!("argocd-secret")),
            ("/spec/template/spec/volumes/3", "name", json!("another")),
            ("/spec/template/spec/containers/0/securityContext", "privileged", json!(true)),
            ("/spec/template/spec/containers/0/securityContext/capabilities", "add", json!(["SYS_ADMIN"])),
        ];
        for (place, field, value) in put {
            let mut job = seen("dev");
            job.pointer_mut(place).unwrap()[field] = value;
            assert!(!minded(&job).is_empty(), "{place} {field}");
        }
        let mut two = seen("dev");
        let containers = two.pointer_mut("/spec/template/spec/containers").unwrap().as_array_mut().unwrap();
        let first = containers[0].clone();
        containers.push(first);
        assert!(!minded(&two).is_empty());
        // A variable more than there should be, and one that comes from elsewhere.
        let elsewhere = json!({"name": "LOG_FORMAT", "valueFrom": {"secretKeyRef": {}}});
        for variable in [json!({"name": "CONFIRM", "value": "dev"}), elsewhere] {
            let mut job = seen("dev");
            job.pointer_mut("/spec/template/spec/containers/0/env").unwrap().as_array_mut().unwrap().push(variable);
            assert!(!minded(&job).is_empty());
        }
    }
}
