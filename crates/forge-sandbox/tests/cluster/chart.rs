//! The chart of Forge itself, as Helm renders it: it installs exactly what `forge bootstrap` does, and Jobs that may do no
//! more than they must.

use std::collections::BTreeMap;
use std::process::Command;

use forge_core::name::EnvironmentName;
use forge_core::render::{self, EXECUTOR_ACCOUNT, INSTALLER_ACCOUNT, Placed, Places, READER_ACCOUNT, ROTATOR_ACCOUNT};
use forge_core::yaml::{Dialect, Limits, Node, read};
use forge_testkit::sandbox::{Ended, Sandbox, run};
use serde_json::{Value, json};

const ENVIRONMENTS: [&str; 2] = ["dev", "production"];

fn image(name: &str) -> String {
    format!("registry.example.com/forge/{name}@sha256:{}", "a".repeat(64))
}

fn places(workflows: &str) -> Places {
    Places { workflows: workflows.to_owned(), argocd: "cd".to_owned(), image: image("plugin"), agent_tick: 70 }
}

fn helm(command: &str, places: &Places, more: &[&str]) -> Ended {
    let chart = forge_testkit::checkout().join("deploy/chart/forge");
    let mut helm = Command::new(&Sandbox::shared().helm);
    helm.arg(command);
    if command == "template" {
        helm.arg("forge");
    }
    helm.arg(chart);
    for (name, value) in [
        ("images.executor", image("executor")),
        ("images.plugin", places.image.clone()),
        ("namespaces.workflows", places.workflows.clone()),
        ("namespaces.argocd", places.argocd.clone()),
        ("agentTick", places.agent_tick.to_string()),
        ("environments", format!("{{{}}}", ENVIRONMENTS.join(","))),
        ("executor.domain", "example.com".to_owned()),
        ("executor.gitRepository", "https://git.example.com/platform.git".to_owned()),
    ] {
        // Helm takes JSON first, so what is given in both ways would be this.
        if !more.iter().any(|given| given.starts_with(&format!("{name}="))) {
            helm.args(["--set", &format!("{name}={value}")]);
        }
    }
    for value in more {
        helm.args(["--set-json", value]);
    }
    run(&mut helm, None)
}

fn documents(text: &str) -> Vec<Value> {
    let stream = read(text, Dialect::Kubernetes, Limits::FILE);
    assert!(stream.problems.is_empty(), "{:?}", stream.problems);
    stream.documents.iter().map(Node::to_json).filter(|document| !document.is_null()).collect()
}

/// By kind, namespace and name. What is a text with YAML in it is read, because quotes in it may differ.
fn named(objects: impl IntoIterator<Item = Value>) -> BTreeMap<String, Value> {
    let of = |mut object: Value| {
        if let Some(found) = object.pointer_mut("/data/sidecar.container") {
            let text = found.as_str().unwrap_or_default().to_owned();
            *found = documents(&text).remove(0);
        }
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let name = format!("{} {}/{}", text("/kind"), text("/metadata/namespace"), text("/metadata/name"));
        (name, object)
    };
    objects.into_iter().map(of).collect()
}

fn rendered(places: &Places, more: &[&str]) -> BTreeMap<String, Value> {
    let ended = helm("template", places, more);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    named(documents(&ended.stdout))
}

/// Takes these away, which must be there as they are.
fn take(rendered: &mut BTreeMap<String, Value>, objects: Vec<Placed>) {
    for (name, object) in named(objects.into_iter().map(|placed| placed.object)) {
        assert_eq!(rendered.remove(&name), Some(object), "{name}");
    }
}

#[test]
fn the_chart_installs_what_bootstrap_does_and_jobs_for_each_environment() {
    let places = places("flows");
    let mut rendered = rendered(&places, &[]);
    let environments: Vec<EnvironmentName> = ENVIRONMENTS.iter().map(|name| name.parse().unwrap()).collect();
    take(&mut rendered, render::bootstrap(&places, &environments));
    take(&mut rendered, render::rotator(&places));
    let rest: Vec<&str> = rendered.keys().map(String::as_str).collect();
    assert_eq!(
        rest,
        [
            "ConfigMap flows/forge-environment-dev",
            "ConfigMap flows/forge-environment-production",
            "CronJob flows/forge-deploy-dev",
            "CronJob flows/forge-deploy-production",
            "CronJob flows/forge-rotate",
        ]
    );
    // What is mounted is what the executor reads.
    for environment in ENVIRONMENTS {
        let config_map = &rendered[&format!("ConfigMap flows/forge-environment-{environment}")];
        let given = forge_core::executor::Given {
            action: forge_core::executor::Action::Deploy,
            prefix: "",
            flags: BTreeMap::new(),
            variables: BTreeMap::from([(forge_core::executor::Input::Environment, Some(environment.to_owned()))]),
            file: config_map["data"]["environment.yaml"].as_str().map(|text| ("file".to_owned(), text.to_owned())),
        };
        let inputs = forge_core::executor::resolve(&given).unwrap();
        assert_eq!(inputs.workflows_namespace.as_str(), "flows");
        assert_eq!(inputs.argocd_namespace.unwrap().value.as_str(), "cd");
    }
    let ended = helm("lint", &places, &[]);
    assert_eq!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
}

#[test]
fn each_environment_may_have_a_domain_of_its_own() {
    let places = places("flows");
    let rendered = rendered(&places, &[r#"executor.domains={"production": "shop.example.com"}"#]);
    let domain = |environment: &str| {
        let config_map = &rendered[&format!("ConfigMap flows/forge-environment-{environment}")];
        documents(config_map["data"]["environment.yaml"].as_str().unwrap())[0]["domain"].clone()
    };
    assert_eq!(ENVIRONMENTS.map(domain), [json!("example.com"), json!("shop.example.com")]);
    // One of them without any is told by its name.
    let without = [r#"executor.domain="""#, r#"executor.domains={"production": "shop.example.com"}"#];
    let ended = helm("template", &places, &without);
    assert!(ended.code != 0 && ended.stderr.contains("executor.domains.dev"), "{}", ended.stderr);
}

#[test]
fn an_environment_may_have_a_graph_of_its_own() {
    let places = places("flows");
    let graph = json!({
        "apiVersion": "forge.projectcatalyst.io/v1alpha1", "kind": "GraphOverride",
        "spec": {"defaults": {"timeouts": {"sync": "90s"}}},
    });
    let rendered = rendered(&places, &[&format!(r#"executor.graphs={{"dev": {graph}}}"#)]);
    let given =
        |environment: &str| rendered[&format!("ConfigMap flows/forge-environment-{environment}")]["data"].clone();
    assert_eq!(documents(given("dev")["dag.yaml"].as_str().unwrap()), [graph]);
    assert_eq!(given("production")["dag.yaml"], json!(null));
    let ended = helm("template", &places, &[r#"executor.graphs={"dev": {"kind": "Other"}}"#]);
    assert!(ended.code != 0 && ended.stderr.contains("graphs"), "{}", ended.stderr);
}

#[test]
fn every_account_and_every_job_pulls_with_the_secrets_that_are_named() {
    let places = places("flows");
    let secrets = json!([{"name": "registry"}]);
    // Those of runs and the one that replaces the token, or the one that installs; and the one that only looks.
    for (prepare, accounts) in [("chart", 5), ("executor", 2)] {
        let prepare = format!("prepare={}", json!(prepare));
        let actions = r#"executor.actions=["deploy", "validate"]"#;
        let rendered = rendered(&places, &[&prepare, actions, &format!("imagePullSecrets={secrets}")]);
        let of = |kind: &str| rendered.values().filter(|object| object["kind"] == kind).collect::<Vec<&Value>>();
        let found = of("ServiceAccount");
        assert_eq!(found.len(), accounts, "{prepare}");
        for account in found {
            assert_eq!(account["imagePullSecrets"], secrets, "{account}");
        }
        for job in of("CronJob") {
            let pod = &job["spec"]["jobTemplate"]["spec"]["template"]["spec"];
            assert_eq!(pod["imagePullSecrets"], secrets, "{job}");
        }
    }
}

/// The account that each Job of the executor runs as.
fn accounts(rendered: &BTreeMap<String, Value>) -> Vec<&str> {
    let jobs = rendered.values().filter(|object| object["kind"] == "CronJob" && object["spec"]["suspend"] == true);
    jobs.map(|job| job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["serviceAccountName"].as_str().unwrap())
        .collect()
}

#[test]
fn whoever_validates_has_an_account_that_can_only_read_and_whoever_does_not_has_none() {
    let places = places("flows");
    let actions = r#"executor.actions=["deploy", "validate"]"#;
    for (more, deployer) in [("prepare=\"chart\"", EXECUTOR_ACCOUNT), ("prepare=\"executor\"", INSTALLER_ACCOUNT)] {
        let mut with = rendered(&places, &[more, actions]);
        take(&mut with, render::validator(&places));
        assert_eq!(accounts(&with), [deployer, deployer, READER_ACCOUNT, READER_ACCOUNT]);
        let without = rendered(&places, &[more]);
        assert!(!without.keys().any(|name| name.contains(READER_ACCOUNT)), "{:?}", without.keys());
    }
}

#[test]
fn the_token_is_replaced_by_the_calendar_unless_somebody_else_does_it() {
    let places = places("flows");
    let with = |more: &[&str]| rendered(&places, more).contains_key("CronJob flows/forge-rotate");
    let (executor, done) = ("prepare=\"executor\"", "installer.enabled=false");
    assert!(with(&[]) && with(&[executor, done]));
    // Jobs of the account that installs do it themselves.
    assert!(!with(&[executor]));
    assert!(!with(&[r#"rotate.schedule="""#]) && !with(&[executor, done, r#"rotate.schedule="""#]));
    // Values of a release that an older chart made have no such place.
    assert!(!with(&["rotate=null"]));
    let weekly = rendered(&places, &[r#"rotate.schedule="@weekly""#]);
    assert_eq!(weekly["CronJob flows/forge-rotate"]["spec"]["schedule"], "@weekly");
    let ended = helm("template", &places, &[r#"rotate.schedule="weekly""#]);
    assert!(ended.code != 0 && ended.stderr.contains("schedule"), "{}", ended.stderr);
}

#[test]
fn where_the_executor_prepares_the_chart_brings_the_account_that_installs_until_it_is_told_not_to() {
    let places = places("flows");
    let by_executor = "prepare=\"executor\"";
    let mut first = rendered(&places, &[by_executor]);
    take(&mut first, render::installer(&places));
    assert_eq!(accounts(&first), [INSTALLER_ACCOUNT; 2]);
    // Nothing that needs a namespace or a definition of Argo's, which are not there yet.
    let kinds: Vec<&str> = first.keys().filter_map(|name| name.split(' ').next()).collect();
    assert_eq!(kinds, ["ConfigMap", "ConfigMap", "CronJob", "CronJob"]);
    let mut later = rendered(&places, &[by_executor, "installer.enabled=false"]);
    take(&mut later, render::rotator(&places));
    assert!(later.remove("CronJob flows/forge-rotate").is_some());
    assert_eq!(later.keys().collect::<Vec<_>>(), first.keys().collect::<Vec<_>>());
    assert_eq!(accounts(&later), [EXECUTOR_ACCOUNT; 2]);
    // Rules of a user lie beside ours.
    let more = r#"installer.extraRules=[{"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": ["create"]}]"#;
    let extended = rendered(&places, &[by_executor, more]);
    let rules = extended[&format!("ClusterRole /{INSTALLER_ACCOUNT}")]["rules"].as_array().unwrap().clone();
    let wanted = json!({"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": ["create"]});
    assert!(rules.len() > 10 && rules.last() == Some(&wanted), "{rules:?}");
    // And so do those of phase 0 that tries a volume, where it does.
    let tries = rendered(&places, &[by_executor, more, r#"executor.environment={"STORAGE": "True"}"#]);
    let also = tries[&format!("ClusterRole /{INSTALLER_ACCOUNT}")]["rules"].as_array().unwrap().clone();
    let added: Vec<&Value> = also.iter().filter(|rule| !rules.contains(rule)).collect();
    assert_eq!(added, render::volume_rules().iter().collect::<Vec<_>>());
    let ended = helm("lint", &places, &[by_executor, more]);
    assert_eq!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
}

#[test]
fn the_api_server_takes_the_jobs_which_run_as_nobody_and_write_nowhere() {
    let namespace = Sandbox::shared().namespace("chart");
    let rendered = rendered(&places(&namespace.name), &[]);
    let jobs: Vec<&Value> = rendered.values().filter(|object| object["kind"] == "CronJob").collect();
    assert_eq!(jobs.len(), 3);
    for job in jobs {
        let rotates = job["metadata"]["name"] == "forge-rotate";
        let (account, from) =
            if rotates { (ROTATOR_ACCOUNT, image("plugin")) } else { (EXECUTOR_ACCOUNT, image("executor")) };
        // The API server fills in what is not said, and refuses what is not right.
        let text = job.to_string();
        let ended = namespace.try_kubectl(&["create", "--dry-run=server", "-o", "json", "-f", "-"], Some(&text));
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        let taken: Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!(taken["spec"]["suspend"], !rotates);
        let pod = &taken["spec"]["jobTemplate"]["spec"]["template"]["spec"];
        assert_eq!(pod["serviceAccountName"], account);
        assert_eq!((&pod["securityContext"]["runAsNonRoot"], &pod["hostNetwork"]), (&json!(true), &Value::Null));
        let container = &pod["containers"][0];
        assert_eq!(container["image"], from);
        let security = json!({
            "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
        });
        assert_eq!(container["securityContext"], security);
    }
}
