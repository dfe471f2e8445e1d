//! The Ansible role (`deploy/ansible`) on a cluster of its own: it reaches what `forge bootstrap` reaches, object by object, with
//! what starts runs by events, and changes nothing where that is reached, whoever did it. What it reached the executor
//! takes for prepared, and deploys. `tools/cluster` takes the sandbox down afterwards.
//!
//! Compared with `forge bootstrap` and not with `executor deploy`, which is the same code up to here (`bootstrap::bootstrap`):
//! the executor goes on to a run, whose records and windows would have to be told apart from what was compared.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use forge_testkit::platform::mark;
use forge_testkit::sandbox::{Ended, eventually, run};
use serde_json::{Map, Value, json};

use crate::install::{Bare, NOWHERE, PLACES, noted, user, written};
use crate::stage::PATIENCE;

/// What controllers keep for themselves, and comes and goes.
const PASSING: [&str; 9] = [
    "pods",
    "replicasets.apps",
    "controllerrevisions.apps",
    "jobs.batch",
    "events",
    "events.events.k8s.io",
    "endpoints",
    "leases.coordination.k8s.io",
    "endpointslices.discovery.k8s.io",
];
/// Fields that say when and how often, not what.
const VOLATILE: [&str; 6] =
    ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "ownerReferences"];
/// Annotations of that kind.
const COUNTED: [&str; 2] = ["deployment.kubernetes.io/revision", "kubernetes.io/service-account.uid"];
/// Annotations of what was there before of that kind.
const NOTED: [&str; 2] = ["forge.projectcatalyst.io/digest", "forge.projectcatalyst.io/pieces"];
/// Labels of Helm's Secrets of that kind.
const DATED: [&str; 3] = ["createdAt", "modifiedAt", "version"];

/// Where `tools/setup ansible` puts it.
fn ansible_playbook() -> PathBuf {
    let home = || std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default().join(".cache");
    let cache = || std::env::var_os("XDG_CACHE_HOME").map_or_else(home, PathBuf::from).join("forge");
    let cache = std::env::var_os("FORGE_CACHE").map_or_else(cache, PathBuf::from);
    let program = cache.join("tools/ansible/bin/ansible-playbook");
    assert!(program.is_file(), "{} is not there: `tools/setup ansible` installs it", program.display());
    program
}

/// Runs the role.
fn role(bare: &Bare, more: &Value) -> Ended {
    let playbook = forge_testkit::checkout().join("deploy/ansible/bootstrap.yml");
    let (platform, sandbox) = (bare.environment.platform, bare.sandbox());
    let mut variables = json!({
        "forge_bootstrap_repository": bare.environment.repository.folder(),
        "forge_bootstrap_image": platform.image(),
        "forge_bootstrap_charts": sandbox.charts,
        "forge_bootstrap_kubeconfig": sandbox.kubeconfig,
        "forge_bootstrap_forge": platform.binary,
        "forge_bootstrap_helm": sandbox.helm,
    });
    let added = more.as_object().cloned().unwrap_or_default();
    variables.as_object_mut().unwrap().extend(added);
    // What it remembers goes with the test.
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(ansible_playbook());
    command.arg(playbook).arg("--diff").arg("--extra-vars").arg(variables.to_string());
    command.env("ANSIBLE_HOME", home.path()).env("ANSIBLE_REMOTE_TMP", home.path()).env("TMPDIR", home.path());
    command.env("ANSIBLE_NOCOLOR", "1").env("ANSIBLE_LOCALHOST_WARNING", "0");
    for variable in ["FORGE_ENVIRONMENT", "FORGE_FAILPOINT", "FORGE_FAILPOINTS", "FORGE_WITH", "ANSIBLE_CONFIG"] {
        command.env_remove(variable);
    }
    run(&mut command, None)
}

/// How many tasks changed something, by the last line.
fn changed(ended: &Ended) -> u32 {
    assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
    let recap = ended.stdout.lines().rev().find(|line| line.starts_with("localhost")).unwrap_or_default();
    let number = recap.split_whitespace().find_map(|word| word.strip_prefix("changed="));
    number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no figures: {}", ended.stdout))
}

/// Fails with all that it said where a task changed something.
fn unchanged(ended: &Ended) {
    assert_eq!(changed(ended), 0, "{}", ended.stdout);
}

/// Everything in the namespaces of Argo, and of the whole cluster what Forge or Helm made, without what differs from one
/// installation to the next.
fn objects(bare: &Bare) -> BTreeMap<String, Value> {
    let kinds = |namespaced: &str| {
        let all = bare.sandbox().kubectl(&["api-resources", "--verbs=list,delete", "-o", "name", namespaced]);
        let kept: Vec<&str> = all.lines().filter(|kind| !PASSING.contains(kind)).collect();
        kept.join(",")
    };
    let mut lists: Vec<Value> = Vec::new();
    let namespaced = kinds("--namespaced=true");
    for place in PLACES {
        lists.push(bare.json(&["get", &namespaced, "-n", place]));
    }
    let made = "app.kubernetes.io/managed-by in (forge, Helm)";
    lists.push(bare.json(&["get", &kinds("--namespaced=false"), "-l", made]));
    let mut found = BTreeMap::new();
    // Of a release only the last revision is what is there.
    let mut last: BTreeMap<String, u64> = BTreeMap::new();
    for object in lists.iter().flat_map(|list| list["items"].as_array().unwrap()) {
        let metadata = &object["metadata"];
        // What Argo makes of an object of ours has a name of chance, and goes with it.
        let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
        if owners.filter_map(|owner| owner["apiVersion"].as_str()).any(|version| version.starts_with("argoproj.io/")) {
            continue;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, mut name) = (text(&object["kind"]), text(&metadata["name"]));
        // Further pieces of what was there before are named after what it is, which nobody finds twice.
        if kind == "ConfigMap" && name.starts_with("forge-snapshot-") {
            continue;
        }
        if kind == "Secret" && metadata["labels"]["owner"] == "helm" {
            name = format!("release {}", text(&metadata["labels"]["name"]));
            let revision: u64 = text(&metadata["labels"]["version"]).parse().unwrap();
            let newest = last.entry(name.clone()).or_default();
            if revision < *newest {
                continue;
            }
            *newest = revision;
        }
        found.insert(format!("{kind} {}/{name}", text(&metadata["namespace"])), normal(object));
    }
    found
}

/// An object without what differs from one installation to the next.
fn normal(object: &Value) -> Value {
    let mut object = object.clone();
    let remove = |fields: Option<&mut Value>, names: &[&str]| {
        if let Some(Value::Object(fields)) = fields {
            fields.retain(|name, _| !names.contains(&name.as_str()));
        }
    };
    remove(Some(&mut object), &["status"]);
    remove(object.pointer_mut("/metadata"), &VOLATILE);
    remove(object.pointer_mut("/metadata/annotations"), &COUNTED);
    // The API server leaves out what is empty, unless something was in it once.
    let empty = |value: &Value| value.as_object().is_some_and(Map::is_empty);
    if object.pointer("/metadata/annotations").is_some_and(empty) {
        remove(object.pointer_mut("/metadata"), &["annotations"]);
    }
    match object["kind"].as_str().unwrap_or_default() {
        "Secret" => {
            // Tokens, certificates, passwords and what Helm keeps: which there are, not what they say.
            let keys: Vec<String> =
                object["data"].as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect();
            object["data"] = json!(keys);
            if object.pointer("/metadata/labels/owner") == Some(&json!("helm")) {
                remove(object.pointer_mut("/metadata"), &["name"]);
                remove(object.pointer_mut("/metadata/labels"), &DATED);
            }
        }
        "Service" => remove(object.pointer_mut("/spec"), &["clusterIP", "clusterIPs"]),
        "ConfigMap" => {
            // A receipt says as which revision.
            remove(object.pointer_mut("/data"), &["revision"]);
            // What was there before, by identity: that it is noted, and not what.
            if let Some(packed) = object.get_mut("binaryData").and_then(Value::as_object_mut) {
                packed.values_mut().for_each(|value| *value = json!("packed"));
                remove(object.pointer_mut("/metadata/annotations"), &NOTED);
            }
        }
        _ => {}
    }
    object
}

/// Where two objects differ, by the path to it.
fn differences(path: &str, one: &Value, other: &Value, found: &mut Vec<String>) {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let mut keys: Vec<&String> = one.keys().chain(other.keys()).collect();
            keys.sort();
            keys.dedup();
            for key in keys {
                let (one, other) = (one.get(key), other.get(key));
                let (one, other) = (one.unwrap_or(&Value::Null), other.unwrap_or(&Value::Null));
                differences(&format!("{path}.{key}"), one, other, found);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (number, (one, other)) in one.iter().zip(other).enumerate() {
                differences(&format!("{path}[{number}]"), one, other, found);
            }
        }
        _ if one == other => {}
        _ => found.push(format!("{path}: {one} by forge, {other} by the role")),
    }
}

/// Fails with everything that differs. What controllers fill in comes in a moment.
fn same(bare: &Bare, by_forge: &BTreeMap<String, Value>) {
    eventually("the role made what forge makes", PATIENCE, || {
        let by_role = objects(bare);
        let mut found = Vec::new();
        for name in by_forge.keys().chain(by_role.keys()).collect::<BTreeSet<_>>() {
            match (by_forge.get(name), by_role.get(name)) {
                (Some(one), Some(other)) => differences(name, one, other, &mut found),
                (Some(_), None) => found.push(format!("{name}: only by forge")),
                _ => found.push(format!("{name}: only by the role")),
            }
        }
        if found.is_empty() { Ok(()) } else { Err(found.join("\n")) }
    });
}

/// Waits until Argo Events has made all of the triggers: until then it writes to them, which is no change by the role.
fn deployed(bare: &Bare) {
    let sensor = format!("sensor/forge-{}", bare.environment.name);
    eventually("the Sensor is deployed", PATIENCE, || {
        let args = ["wait", sensor.as_str(), "-n", "argo", "--for=condition=Deployed", "--timeout=5s"];
        let ended = bare.sandbox().try_kubectl(&args, None);
        if ended.code == 0 { Ok(()) } else { Err(ended.stderr) }
    });
}

/// `executor deploy` with a kubeconfig, on what the role made; gives its log.
fn executed(bare: &Bare) -> String {
    let sandbox = bare.sandbox();
    let applications = bare.environment.repository.folder().join("argocd/applications.yaml");
    sandbox.kubectl(&["apply", "--server-side", "-f", &applications.to_string_lossy()]);
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("executor");
    std::os::unix::fs::symlink(&bare.environment.platform.binary, &program).unwrap();
    let mut path = sandbox.helm.parent().unwrap().as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let mut command = Command::new(program);
    command.args(["deploy", "--metrics-listen", "127.0.0.1:0"]).env_remove("KUBECONFIG").env("PATH", path);
    command.env("KUBECONFIG_PATH", &sandbox.kubeconfig).env("CHARTS", &sandbox.charts);
    command.env("ENVIRONMENT", &bare.environment.name).env("DOMAIN", "dev.example.com");
    command.env("GIT_REPOSITORY", format!("file://{}", bare.environment.repository.folder().display()));
    command.env("GIT_REVISION", "main");
    let ended = run(&mut command, None);
    assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
    ended.stderr
}

/// One story, because a cluster with Argo takes a while.
#[test]
fn the_role_reaches_what_forge_reaches_and_a_second_time_changes_nothing() {
    let bare = Bare::up();
    // With everything that there is to be made: pushes start runs.
    let text = std::fs::read_to_string(bare.environment.repository.folder().join("forge.yaml")).unwrap();
    let ordered = text.replace("sync: manual", "sync: ordered");
    assert_ne!(ordered, text);
    bare.environment.push(&[("forge.yaml".to_owned(), ordered)], "events start runs");
    // Another test may have left what it made for an environment of its own.
    bare.clear();
    let done = bare.bootstrap(&[], None);
    assert_eq!(done.code, 0, "{}", done.stderr);
    deployed(&bare);
    let by_forge = objects(&bare);
    let sensor = format!("Sensor argo/forge-{}", bare.environment.name);
    for kind in [
        "Namespace /argocd",
        "ConfigMap argo-events/forge-install-argo-events",
        "ConfigMap argo/forge-snapshot",
        "Secret argo/forge-argocd",
        "Secret argo/forge-webhook",
        "Secret argocd/forge-argocd-admin",
        "EventBus argo/forge",
        "EventSource argo/forge-push",
        sensor.as_str(),
    ] {
        assert!(by_forge.contains_key(kind), "{kind}: {:?}", by_forge.keys());
    }

    assert!(!by_forge.contains_key("Secret argocd/argocd-initial-admin-secret"));

    // What forge reached is what the role wants.
    unchanged(&role(&bare, &json!({})));
    same(&bare, &by_forge);

    // From nothing; but not where something needs volumes and nobody makes any.
    bare.clear();
    let needed = json!({"forge_bootstrap_storage": true});
    let annotated = |mark: &str| {
        let mark = format!("storageclass.kubernetes.io/is-default-class{mark}");
        bare.sandbox().kubectl(&["annotate", "storageclass", "local", &mark, "--overwrite"]);
    };
    annotated("-");
    let refused = role(&bare, &needed);
    annotated("=true");
    assert!(refused.code != 0 && refused.stdout.contains("FORGE-B008"), "{}", refused.stdout);
    let first = role(&bare, &needed);
    assert!(changed(&first) > 0, "{}", first.stdout);
    deployed(&bare);
    same(&bare, &by_forge);
    // What was there before its first write, and nothing of what it made.
    noted(&bare);

    // Again, and by forge: nothing is left to be done.
    unchanged(&role(&bare, &json!({})));
    let (since, who) = (mark(), user(bare.sandbox()));
    let check = bare.bootstrap(&["--check"], None);
    assert_eq!(check.code, 0, "{}\n{}", check.stdout, check.stderr);
    let again = bare.bootstrap(&[], None);
    assert_eq!(again.code, 0, "{}", again.stderr);
    assert!(again.stderr.contains("revision 1: nothing to do"), "{}", again.stderr);
    assert_eq!(written(bare.sandbox(), since, &who), Vec::<String>::new());

    // The executor has nothing to prepare either, and deploys.
    let log = executed(&bare);
    assert!(log.contains("the cluster is prepared for this environment"), "{log}");
    assert!(!log.contains("made, or as it was"), "{log}");
}

/// The way back takes as long as it takes not to come up: for `make soak`.
#[test]
#[ignore = "waits for what never comes up; tools/soak runs it"]
fn what_does_not_come_up_the_role_takes_back_and_says_why() {
    let bare = Bare::up();
    assert_eq!(bare.bootstrap(&[], None).code, 0);
    let by_forge = objects(&bare);
    bare.values("argo-events", Some(&format!("global: {{image: {{tag: {NOWHERE}}}}}\n")));
    let failed = role(&bare, &json!({"forge_bootstrap_timeout": 20}));
    assert_eq!(failed.code, 2, "{}", failed.stdout);
    assert!(
        failed.stdout.contains("FORGE-B021: the upgrade of Argo Events failed and was taken back"),
        "{}",
        failed.stdout
    );
    bare.values("argo-events", None);
    same(&bare, &by_forge);
    unchanged(&role(&bare, &json!({})));

    // What somebody deleted is brought back, though version and values are those that are there.
    bare.sandbox().kubectl(&["delete", "deployment", "-n", "argo-events", "--all"]);
    assert!(changed(&role(&bare, &json!({}))) > 0);
    same(&bare, &by_forge);
}

/// The pod of Argo CD's application controller runs an image of this tag.
fn controller_has(bare: &Bare, tag: &str) {
    eventually(&format!("the controller is told to run {tag}"), PATIENCE, || {
        let pod = ["get", "pod", "argocd-application-controller-0", "-n", "argocd", "-o"];
        let image = bare.sandbox().try_kubectl(&[&pod[..], &["jsonpath={.spec.containers[0].image}"]].concat(), None);
        if image.stdout.ends_with(tag) { Ok(()) } else { Err(format!("{}{}", image.stdout, image.stderr)) }
    });
}

/// helm on the release of Argo CD, whose values are those that it has.
fn helm_on_argo_cd(bare: &Bare, command: &str, arguments: &[&str]) -> Command {
    let mut helm = Command::new(&bare.sandbox().helm);
    helm.args([command, "argo-cd", "--namespace", "argocd"]).args(arguments);
    helm.env("KUBECONFIG", &bare.sandbox().kubeconfig);
    helm
}

/// The controller of Argo CD is the hard part: Kubernetes waits for a pod of a StatefulSet that does not start, also on the way
/// back, whether the role went it, or finds it gone by somebody who was killed.
#[test]
#[ignore = "waits for what never comes up; tools/soak runs it"]
fn an_argo_cd_that_does_not_start_is_taken_back_by_the_role_wherever_it_was_cut_off() {
    let bare = Bare::up();
    bare.clear();
    assert_eq!(bare.bootstrap(&[], None).code, 0);
    let by_forge = objects(&bare);
    let brief = json!({"forge_bootstrap_timeout": 60});
    let is_well = |after: &str| {
        assert_eq!(bare.releases("argo-cd").pop().unwrap().1, "deployed", "after {after}");
        same(&bare, &by_forge);
        unchanged(&role(&bare, &json!({})));
    };

    bare.values("argo-cd", Some(&format!("controller: {{image: {{tag: {NOWHERE}}}}}\n")));
    let failed = role(&bare, &brief);
    assert_eq!(failed.code, 2, "{}", failed.stdout);
    for said in [
        "FORGE-B021: the upgrade of Argo CD failed and was taken back (it is what it was, as revision ",
        "StatefulSet argocd-application-controller: of 1 pods",
    ] {
        assert!(failed.stdout.contains(said), "{said}: {}", failed.stdout);
    }
    bare.values("argo-cd", None);
    is_well("a broken upgrade");

    // Killed while helm waited for it.
    let chart = bare.sandbox().charts.join("argo-cd");
    let (chart, tag) = (chart.to_string_lossy(), format!("controller.image.tag={NOWHERE}"));
    let broken = [chart.as_ref(), "--reuse-values", "--set", tag.as_str()];
    let waiting = [&broken[..], &["--wait", "--timeout", "5m"]].concat();
    let mut helm = helm_on_argo_cd(&bare, "upgrade", &waiting).stdout(Stdio::null()).spawn().unwrap();
    controller_has(&bare, NOWHERE);
    helm.kill().unwrap();
    helm.wait().unwrap();
    assert_eq!(bare.releases("argo-cd").pop().unwrap().1, "pending-upgrade");
    assert!(changed(&role(&bare, &brief)) > 0);
    is_well("a helm that was killed");

    // Killed on the way back, after Helm had written it and before the pod was taken away.
    let back: &[&str] = &[];
    for (command, arguments) in [("upgrade", &broken[..]), ("rollback", back)] {
        let ended = run(&mut helm_on_argo_cd(&bare, command, arguments), None);
        assert_eq!(ended.code, 0, "{command}: {}", ended.stderr);
        controller_has(&bare, NOWHERE);
    }
    assert!(changed(&role(&bare, &brief)) > 0);
    is_well("a way back that was cut off");
}
