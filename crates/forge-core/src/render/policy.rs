//! Policies of the API server for the accounts that `bootstrap` makes: RBAC says which kinds an account may write, these say
//! what may stand in them (SPEC.md section 4).
//!
//! Pure. A policy is in no namespace and is about the accounts of one, so it is named after that: several installations
//! share a cluster without taking their policies from each other.

use serde_json::{Value, json};

use super::bootstrap::{Placed, metadata, placed};
use super::events::EVENTS_ACCOUNT;
use super::workflow::{ARGOCD_SECRET, EXECUTOR_ACCOUNT, PLUGIN_ACCOUNT, Places, WORKFLOW_ACCOUNT, pod_patch};
use super::{WINDOW_PREFIX, is_ours};
use crate::run::Runner;

/// Whoever writes for a run.
const WRITERS: [&str; 2] = [EXECUTOR_ACCOUNT, PLUGIN_ACCOUNT];
/// Most digits of the number of workers in an agent.
const MOST_DIGITS: usize = 5;
/// What a Workflow of ours says.
const WORKFLOW_FIELDS: &str = "['activeDeadlineSeconds', 'arguments', 'entrypoint', 'executor', 'parallelism', 'podGC', 'podSpecPatch', 'serviceAccountName', 'templates', 'ttlStrategy']";

/// What policies were called before they were named after their namespace, and whom each is about.
const UNNAMED: [(&str, &str); 2] = [("forge-window-writer", EXECUTOR_ACCOUNT), ("forge-event-jobs", EVENTS_ACCOUNT)];
/// Where policies are.
const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const VERSION: &str = "admissionregistration.k8s.io/v1";

/// A policy that an earlier version of Forge may have left: names alone.
pub struct FormerPolicy {
    /// What applies it, which goes first.
    pub binding: Placed,
    /// The policy.
    pub policy: Placed,
    account: &'static str,
}

impl FormerPolicy {
    /// All that may be there.
    pub fn all() -> Vec<Self> {
        let named = |plural: &str, kind: &str, name: &str| {
            let object = json!({"apiVersion": VERSION, "kind": kind, "metadata": {"name": name}});
            placed(format!("{GROUP}/{plural}"), object)
        };
        let of = |(name, account)| Self {
            binding: named("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", name),
            policy: named("validatingadmissionpolicies", "ValidatingAdmissionPolicy", name),
            account,
        };
        UNNAMED.into_iter().map(of).collect()
    }

    /// Whether what is there was made by an earlier version for this namespace (INV-11): it carries our label, and is about the
    /// account there and about nobody else. That of another installation is in use as long as that is of such a version.
    pub fn is_of(&self, live: &Value, workflows: &str) -> bool {
        let conditions = live.pointer("/spec/matchConditions").and_then(Value::as_array);
        let about = user(workflows, self.account);
        let only = |conditions: &Vec<Value>| {
            conditions.len() == 1
                && conditions.iter().all(|one| one.get("expression").and_then(Value::as_str) == Some(about.as_str()))
        };
        is_ours(live) && conditions.is_some_and(only)
    }

    /// Whether a binding of that name is of it.
    pub fn binds(&self, live: &Value) -> bool {
        let name = self.policy.object.pointer("/metadata/name");
        is_ours(live) && name.is_some() && live.pointer("/spec/policyName") == name
    }
}

/// Whether a request comes from an account.
fn user(workflows: &str, account: &str) -> String {
    format!("request.userInfo.username == 'system:serviceaccount:{workflows}:{account}'")
}

/// A policy.
pub(super) struct Policy<'p> {
    /// Its name, before that of the namespace.
    pub(super) name: &'static str,
    /// Whom it is about, for messages of the API server.
    pub(super) who: &'static str,
    /// Their accounts.
    pub(super) accounts: &'p [&'p str],
    /// The group and the plural of what they write.
    pub(super) kind: (&'static str, &'static str),
    /// What they do with it.
    pub(super) operations: &'p [&'p str],
    /// What must hold then, and what is said where it does not.
    pub(super) rules: Vec<(String, &'static str)>,
}

impl Policy<'_> {
    /// The policy and its binding.
    pub(super) fn objects(&self, places: &Places) -> Vec<Placed> {
        let name = format!("{}-{}", self.name, places.workflows);
        let of = |account: &&str| user(&places.workflows, account);
        let accounts: Vec<String> = self.accounts.iter().map(of).collect();
        let validation = |(expression, message): &(String, &str)| json!({"expression": expression, "message": message});
        let validations: Vec<Value> = self.rules.iter().map(validation).collect();
        let policy = json!({
            "apiVersion": VERSION, "kind": "ValidatingAdmissionPolicy",
            "metadata": metadata(&name, None),
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [{
                    "apiGroups": [self.kind.0], "apiVersions": ["*"], "resources": [self.kind.1],
                    "operations": self.operations,
                }]},
                "matchConditions": [{"name": self.who, "expression": accounts.join(" || ")}],
                "validations": validations,
            },
        });
        let binding = json!({
            "apiVersion": VERSION, "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": metadata(&name, None),
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        });
        vec![
            placed(format!("{GROUP}/validatingadmissionpolicies"), policy),
            placed(format!("{GROUP}/validatingadmissionpolicybindings"), binding),
        ]
    }
}

/// The policies of the accounts of a run.
pub(super) fn policies(places: &Places) -> Vec<Placed> {
    [windows(), workflows(), records()].iter().flat_map(|policy| policy.objects(places)).collect()
}

/// A field that is what it was. Absent is the same as empty: the API server leaves empty ones out.
fn kept(field: &str, empty: &str) -> String {
    format!(
        "(has(object.{field}) ? object.{field} : {empty}) == (has(oldObject.{field}) ? oldObject.{field} : {empty})"
    )
}

/// The Job is the only writer of windows, and windows are all that it writes: of an AppProject nothing but
/// `spec.syncWindows` may change under its account, and of those only the one that is ours.
fn windows() -> Policy<'static> {
    let others = |object: &str| {
        format!(
            "(has({object}.spec.syncWindows) ? {object}.spec.syncWindows : []).filter(w, !(has(w.description) && w.description.startsWith('{WINDOW_PREFIX}')))"
        )
    };
    let marks = [kept("metadata.labels", "{}"), kept("metadata.annotations", "{}")].join(" && ");
    let bonds = [kept("metadata.ownerReferences", "[]"), kept("metadata.finalizers", "[]")].join(" && ");
    let update = |expression: &str| format!("request.operation != 'UPDATE' || {expression}");
    Policy {
        name: "forge-window-writer",
        who: "the-executor",
        accounts: &[EXECUTOR_ACCOUNT],
        kind: ("argoproj.io", "appprojects"),
        operations: &["CREATE", "UPDATE", "DELETE"],
        rules: vec![
            ("request.operation == 'UPDATE'".to_owned(), "the executor neither makes nor removes AppProjects"),
            (
                update(
                    "(object.spec.all(k, k == 'syncWindows' || (k in oldObject.spec && object.spec[k] == oldObject.spec[k])) && oldObject.spec.all(k, k == 'syncWindows' || k in object.spec))",
                ),
                "the executor changes nothing of an AppProject but spec.syncWindows",
            ),
            (update(&format!("({marks})")), "the executor changes neither labels nor annotations of an AppProject"),
            // Either would decide when it goes away, and what goes with it.
            (update(&format!("({bonds})")), "the executor changes neither owners nor finalizers of an AppProject"),
            // It holds tokens of roles, and is no subresource: who may patch the object may patch it too.
            (
                update(&format!("({})", kept("status", "{}"))),
                "the executor does not change the status of an AppProject",
            ),
            (
                update(&format!("{} == {}", others("object"), others("oldObject"))),
                "the executor changes no sync window but its own",
            ),
        ],
    }
}

/// A Workflow gives its pods an account, so who may make any Workflow is every account of the namespace: the executor makes
/// only those that are rendered here, and changes nothing of one but that it is to stop.
fn workflows() -> Policy<'static> {
    let made = made().into_iter();
    let made = made.map(|(rule, message)| (format!("request.operation != 'CREATE' || ({rule})"), message));
    let fields = [
        ("metadata.labels", "{}"),
        ("metadata.annotations", "{}"),
        ("metadata.ownerReferences", "[]"),
        ("metadata.finalizers", "[]"),
        // Argo Workflows keeps in it what it executes, and it is no subresource.
        ("status", "{}"),
    ];
    let rest = fields.map(|(field, empty)| kept(field, empty)).join(" && ");
    let stopped = "object.spec.all(k, k == 'shutdown' || (k in oldObject.spec && object.spec[k] == oldObject.spec[k])) && oldObject.spec.all(k, k in object.spec)";
    let changed = [
        (
            format!("request.operation != 'UPDATE' || ({stopped})"),
            "a run changes nothing of a Workflow but spec.shutdown",
        ),
        (format!("request.operation != 'UPDATE' || ({rest})"), "a run changes neither marks nor status of a Workflow"),
    ];
    Policy {
        name: "forge-workflow-writer",
        who: "a-run",
        accounts: &WRITERS,
        kind: ("argoproj.io", "workflows"),
        operations: &["CREATE", "UPDATE"],
        rules: made.chain(changed).collect(),
    }
}

/// What must hold of a Workflow that is made. What each costs grows with its tasks by some tens, so that the largest that is
/// ever submitted stays far below what the API server allows one expression.
fn made() -> Vec<(String, &'static str)> {
    // Without a loop over its fields: there are as many as are known.
    let fields =
        ["template", "templateRef", "arguments", "dependencies"].map(|field| format!("(has(k.{field}) ? 1 : 0)"));
    let task = format!(
        "has(k.name) && size(k) == 1 + {} && (!has(k.templateRef) || (k.templateRef.name == 'forge-node' && k.templateRef.clusterScope))",
        fields.join(" + ")
    );
    vec![
        (
            "object.metadata.name.startsWith('forge-')".to_owned(),
            "the name of the Workflow of a run begins with forge-",
        ),
        (
            format!(
                "object.spec.serviceAccountName == '{WORKFLOW_ACCOUNT}' && size(object.spec.executor) == 1 && object.spec.executor.serviceAccountName == '{WORKFLOW_ACCOUNT}'"
            ),
            "the Workflow of a run has the account of the agent",
        ),
        (
            format!("!has(object.status) && object.spec.all(k, k in {WORKFLOW_FIELDS})"),
            "the Workflow of a run says what is rendered, and nothing else",
        ),
        (
            format!(
                "object.spec.templates.all(t, size(t) == 2 && has(t.name) && has(t.dag) && t.dag.tasks.all(k, {task}))"
            ),
            "the Workflow of a run is made of the tasks of forge-node, and of nothing of its own",
        ),
        (patched(), "the pods of a run are patched as is rendered: a patch could give them another account"),
    ]
}

/// The patch of pods, whatever tick and number of workers are. It is text in which nothing else fits into the places of the numbers.
/// The Secret in it is the one of a deployment: the token of a teardown is for the Workflow of whoever confirmed that.
fn patched() -> String {
    const TICK: &str = "@tick@";
    const WORKERS: &str = "@workers@";
    let agent = pod_patch(Runner::Plugin, ARGOCD_SECRET, TICK, WORKERS).to_string();
    let (before, rest) = agent.split_once(TICK).unwrap_or((agent.as_str(), ""));
    let (between, after) = rest.split_once(WORKERS).unwrap_or((rest, ""));
    let pod = pod_patch(Runner::Pod, ARGOCD_SECRET, TICK, WORKERS);
    let patch = "object.spec.podSpecPatch";
    let longest = before.len() + between.len() + after.len() + 2 * MOST_DIGITS;
    format!(
        "{patch} == '{pod}' || ({patch}.startsWith('{before}') && {patch}.contains('{between}') && {patch}.endsWith('{after}') && size({patch}) <= {longest})"
    )
}

/// Plans and records are all that a run writes into ConfigMaps: those of Argo Workflows, and of its plugins, say what runs under
/// other accounts.
fn records() -> Policy<'static> {
    let named = |object: &str| {
        format!("({object}.metadata.name.startsWith('forge-plan-') || {object}.metadata.name.startsWith('forge-run-'))")
    };
    let rule = format!("request.operation == 'DELETE' ? {} : {}", named("oldObject"), named("object"));
    Policy {
        name: "forge-record-writer",
        who: "a-run",
        accounts: &WRITERS,
        kind: ("", "configmaps"),
        operations: &["CREATE", "UPDATE", "DELETE"],
        rules: vec![(rule, "a run writes plans and records of runs, and no other ConfigMap")],
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::gate;
    use crate::render::{plan_config_maps, workflow};
    use crate::run::{RunAction, record_name};
    use crate::view::sample;

    #[test]
    fn a_policy_of_an_earlier_version_is_known_by_its_label_and_by_whom_it_is_about() {
        let names: Vec<Value> =
            FormerPolicy::all().iter().map(|former| former.policy.object["metadata"]["name"].clone()).collect();
        assert_eq!(names, ["forge-window-writer", "forge-event-jobs"]);
        for former in FormerPolicy::all() {
            let name = &former.policy.object["metadata"]["name"];
            // As an earlier version made it, in `argo`.
            let mut live = windows().objects(&Places::default()).remove(0).object;
            live["metadata"]["name"] = name.clone();
            live["spec"]["matchConditions"][0]["expression"] = json!(user("argo", former.account));
            assert!(former.is_of(&live, "argo") && !former.is_of(&live, "elsewhere"), "{live}");
            let mut foreign = live.clone();
            foreign["metadata"]["labels"] = json!({});
            let mut wider = live.clone();
            wider["spec"]["matchConditions"] = json!([]);
            let mut other = live;
            other["spec"]["matchConditions"][0]["expression"] = json!(user("argo", "another"));
            for not in [foreign, wider, other, json!({})] {
                assert!(!former.is_of(&not, "argo"), "{not}");
            }
            let binding = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "forge"}}, "spec": {"policyName": name}});
            let elsewhere = json!({"metadata": binding["metadata"], "spec": {"policyName": "another"}});
            assert!(former.binds(&binding) && !former.binds(&elsewhere) && !former.binds(&json!({})));
        }
        // What is made today is none of them.
        let named = |placed: &Placed| placed.object["metadata"]["name"].clone();
        let today: Vec<Value> = policies(&Places::default()).iter().map(named).collect();
        assert!(FormerPolicy::all().iter().all(|former| !today.contains(&named(&former.policy))));
    }

    fn submitted(runner: Runner) -> Value {
        let mut plan = sample::stored("dev-0123456789-1", 0).plan;
        plan.runner = runner;
        workflow(&plan, &Places::default(), 0).unwrap()
    }

    /// What the policy minds of a Workflow that is made.
    fn minded(workflow: &Value) -> Vec<&'static str> {
        let broken = |(rule, _): &(String, &str)| !gate::holds(rule, workflow);
        made().into_iter().filter(broken).map(|(_, message)| message).collect()
    }

    #[test]
    fn the_workflow_of_a_run_passes_by_plugin_by_pod_and_in_bands() {
        for runner in [Runner::Plugin, Runner::Pod] {
            assert_eq!(minded(&submitted(runner)), Vec::<&str>::new(), "{runner:?}");
        }
        // Several DAGs, one of which begins the others, and a task that opens one.
        let mut bands = submitted(Runner::Plugin);
        let reference = json!({"name": "forge-node", "template": "open", "clusterScope": true});
        let argument = json!({"parameters": [{"name": "band", "value": "1"}]});
        let tasks = json!([
            {"name": "band-0", "template": "band-0"},
            {"name": "open-1", "templateRef": reference, "arguments": argument},
            {"name": "band-1", "template": "band-1", "dependencies": ["open-1"]},
        ]);
        let templates = bands["spec"]["templates"].as_array_mut().unwrap();
        templates.push(json!({"name": "graph", "dag": {"failFast": false, "tasks": tasks}}));
        assert_eq!(minded(&bands), Vec::<&str>::new());
    }

    #[test]
    fn the_account_of_a_run_submits_no_teardown_and_that_is_all_that_is_wrong_with_one() {
        let mut plan = sample::stored("dev-0123456789-1", 0).plan;
        plan.action = RunAction::Teardown;
        for runner in [Runner::Plugin, Runner::Pod] {
            plan.runner = runner;
            let minded = minded(&workflow(&plan, &Places::default(), 0).unwrap());
            assert_eq!(minded.len(), 1, "{minded:?}");
            assert!(minded[0].starts_with("the pods of a run are patched as is rendered"), "{minded:?}");
        }
    }

    #[test]
    fn no_other_workflow_passes() {
        let task = "/spec/templates/0/dag/tasks/0";
        let container = json!({"image": "another", "command": ["sh"]});
        let put: [(&str, &str, Value); 19] = [
            ("/metadata", "name", json!("another")),
            ("/spec", "serviceAccountName", json!("forge-installer")),
            ("/spec/executor", "serviceAccountName", json!("argo-workflows-workflow-controller")),
            ("/spec/executor", "other", json!("x")),
            ("/spec", "workflowTemplateRef", json!({"name": "x"})),
            ("/spec", "templateDefaults", json!({"serviceAccountName": "forge-installer"})),
            ("/spec", "hooks", json!({"exit": {"template": "x"}})),
            ("/spec", "onExit", json!("graph")),
            ("/spec", "volumes", json!([])),
            ("", "status", json!({"storedTemplates": {}})),
            ("/spec/templates/0", "container", container.clone()),
            ("/spec/templates/0", "serviceAccountName", json!("forge-installer")),
            (task, "inline", json!({"container": container})),
            (task, "hooks", json!({"exit": {"template": "x"}})),
            (task, "onExit", json!("x")),
            ("/spec/templates/0/dag/tasks/0/templateRef", "name", json!("another")),
            ("/spec/templates/0/dag/tasks/0/templateRef", "clusterScope", json!(false)),
            ("/spec", "podSpecPatch", json!("{\"serviceAccountName\":\"forge-installer\"}")),
            ("/spec", "podSpecPatch", json!(null)),
        ];
        for (place, field, value) in put {
            let mut workflow = submitted(Runner::Plugin);
            workflow.pointer_mut(place).unwrap()[field] = value;
            assert!(!minded(&workflow).is_empty(), "{place} {field}");
        }
        // Nothing is added to the patch, in the place of the number or behind it.
        let patch = submitted(Runner::Plugin)["spec"]["podSpecPatch"].as_str().unwrap().to_owned();
        let number = "\"ARGO_AGENT_TASK_WORKERS\",\"value\":\"";
        assert!(patch.contains(number), "{patch}");
        for other in [
            patch
                .replace(number, &format!("{number}1\"}}]}}],\"serviceAccountName\":\"x\",\"z\":[{{\"y\":[{{\"x\":\"")),
            format!("{},\"serviceAccountName\":\"x\"}}", patch.trim_end_matches('}')),
            patch.replace("forge-argocd", "argocd-secret"),
        ] {
            assert_ne!(other, patch);
            let mut workflow = submitted(Runner::Plugin);
            workflow["spec"]["podSpecPatch"] = json!(other);
            assert_eq!(minded(&workflow).len(), 1, "{other}");
        }
    }

    #[test]
    fn a_run_writes_its_plans_and_records_and_no_other_config_map() {
        let (rule, _) = records().rules.into_iter().next().unwrap();
        // What is made or changed; what is removed is only known as it was.
        let made = rule.rsplit(" : ").next().unwrap();
        let named = |name: &str| gate::holds(made, &json!({"metadata": {"name": name}}));
        let plan = sample::stored("dev-0123456789-1", 0).plan;
        for config_map in plan_config_maps(&plan, &Places::default()) {
            assert!(named(config_map["metadata"]["name"].as_str().unwrap()), "{config_map}");
        }
        assert!(named(&record_name(&plan.run, 0)) && named(&record_name(&plan.run, 7)));
        for other in
            ["workflow-controller-configmap", "forge-executor-plugin", "forge-bootstrap-dev", "forge-event-dev"]
        {
            assert!(!named(other), "{other}");
        }
    }

    #[test]
    fn whatever_could_hand_an_app_project_to_somebody_else_is_compared_with_what_it_was() {
        let all: String = windows().rules.into_iter().map(|(expression, _)| format!("{expression}\n")).collect();
        for field in ["labels", "annotations", "ownerReferences", "finalizers"] {
            let both = format!("(has(object.metadata.{field}) ? object.metadata.{field} : ");
            assert!(all.contains(&both) && all.contains(&format!("has(oldObject.metadata.{field})")), "{field}");
        }
        assert!(all.contains("has(object.status) ? object.status : {}"));
    }

    #[test]
    fn every_expression_is_balanced() {
        for placed in policies(&Places::default()) {
            for validation in placed.object["spec"]["validations"].as_array().into_iter().flatten() {
                let expression = validation["expression"].as_str().unwrap();
                let count = |c: char| expression.chars().filter(|found| *found == c).count();
                let even = count('(') == count(')') && count('{') == count('}') && count('[') == count(']');
                assert!(even, "{expression}");
            }
        }
    }

    #[test]
    fn two_installations_have_policies_of_their_own() {
        let names = |workflows: &str| -> BTreeSet<String> {
            let places = Places { workflows: workflows.to_owned(), ..Places::default() };
            let of = |placed: &Placed| format!("{} {}", placed.object["kind"], placed.object["metadata"]["name"]);
            policies(&places).iter().map(of).collect()
        };
        let (one, other) = (names("argo"), names("flows"));
        assert_eq!(one.len(), other.len());
        assert!(one.is_disjoint(&other), "{one:?}");
        // A binding is of its own policy.
        for placed in
            policies(&Places::default()).iter().filter(|placed| placed.object["spec"]["policyName"].is_string())
        {
            assert_eq!(placed.object["spec"]["policyName"], placed.object["metadata"]["name"]);
        }
    }
}
