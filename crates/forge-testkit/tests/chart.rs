//! The chart of Forge itself: what of it is generated is what the code says, and what is not fits to it. What Helm makes of
//! it is compared on a sandbox (`forge-sandbox/tests/cluster/chart.rs`).

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::fs;

use forge_core::executor::Input;
use forge_core::render::{
    AGENT_TICK, AGENT_TICKS, ARGOCD_SECRET, EXECUTOR_ACCOUNT, GIT_SECRET, GIT_SECRET_PATH, INSTALLER_ACCOUNT, Places,
    READER_ACCOUNT, REGISTRY_SECRET, REGISTRY_SECRET_PATH, ROTATOR_ACCOUNT,
};
use forge_core::rights::{self, Rule};
use forge_core::yaml::{Dialect, Limits, Node, read};
use forge_testkit::chart;
use forge_testkit::reference::compare;
use serde_json::{Value, json};

fn parsed(file: &str) -> Value {
    let text = fs::read_to_string(chart::folder().join(file)).unwrap();
    let stream = read(&text, Dialect::Kubernetes, Limits::FILE);
    assert!(stream.problems.is_empty(), "{file}: {:?}", stream.problems);
    stream.documents.first().map(Node::to_json).unwrap()
}

fn schema() -> Value {
    serde_json::from_str(&fs::read_to_string(chart::folder().join("values.schema.json")).unwrap()).unwrap()
}

fn usable() -> Value {
    let mut values = parsed("values.yaml");
    let image = |name: &str| json!(format!("registry.example.com/forge/{name}@sha256:{}", "a".repeat(64)));
    values["images"] = json!({"executor": image("executor"), "plugin": image("plugin")});
    values["environments"] = json!(["dev", "production"]);
    values
}

#[test]
fn the_templates_of_bootstrap_are_what_the_code_says() {
    for (path, text) in chart::templates().unwrap() {
        compare(&chart::folder().join(path), &text);
    }
}

#[test]
fn the_chart_has_the_version_of_what_it_installs() {
    let description = parsed("Chart.yaml");
    for field in ["version", "appVersion"] {
        assert_eq!(description[field], env!("CARGO_PKG_VERSION"), "{field}");
    }
}

#[test]
fn the_values_begin_where_the_command_line_does() {
    let (values, places, schema) = (parsed("values.yaml"), Places::default(), schema());
    assert_eq!(values["namespaces"], json!({"workflows": places.workflows, "argocd": places.argocd}));
    assert_eq!(values["agentTick"], AGENT_TICK);
    let ticks = &schema["properties"]["agentTick"];
    assert_eq!((&ticks["minimum"], &ticks["maximum"]), (&json!(AGENT_TICKS.start()), &json!(AGENT_TICKS.end())));
    let longest = &schema["properties"]["environments"]["items"]["allOf"][1]["maxLength"];
    assert_eq!(longest, forge_core::name::MAX_ENVIRONMENT);
}

#[test]
fn values_are_refused_that_would_not_be_what_they_look_like() {
    let schema = jsonschema::validator_for(&schema()).unwrap();
    assert!(schema.is_valid(&usable()), "{:?}", schema.iter_errors(&usable()).next().map(|error| error.to_string()));
    let mut private = usable();
    private["imagePullSecrets"] = json!([{"name": "registry.example.com"}]);
    assert!(schema.is_valid(&private));
    // As it is, it says what is missing.
    assert!(!schema.is_valid(&parsed("values.yaml")));
    let wrong = [
        ("/images/plugin", json!("registry.example.com/forge/plugin:latest")),
        ("/images/plugin", json!("a\"b@sha256:00")),
        ("/namespaces/workflows", json!("Argo")),
        ("/environments/0", json!("dev\"")),
        ("/agentTick", json!(5)),
        ("/rotate/schedule", json!("weekly")),
        ("/rotate", json!({"every": "week"})),
        ("/executor/actions", json!(["teardown"])),
        ("/executor/environment", json!({"KUBECONFIG_DATA": "x"})),
        ("/executor/environment", json!({"DRY_RUN": true})),
        ("/prepare", json!("nobody")),
        ("/imagePullSecrets", json!(["registry"])),
        ("/imagePullSecrets", json!([{"name": "Registry"}])),
        ("/installer/enabled", json!("yes")),
        ("/installer/extraRules", json!([{"apiGroups": ["*"]}])),
        ("/executor/unknown", json!(1)),
    ];
    for (place, value) in wrong {
        let mut values = usable();
        match values.pointer_mut(place) {
            Some(found) => *found = value,
            None => values["executor"]["unknown"] = value,
        }
        assert!(!schema.is_valid(&values), "{place}");
    }
}

/// A document of a template that holds no braces but in texts.
fn documents(file: &str, kind: &str) -> Vec<Value> {
    let text = fs::read_to_string(chart::folder().join(file)).unwrap();
    let wanted = |document: &&str| document.contains(&format!("\nkind: {kind}\n"));
    let parse = |document: &str| {
        let lines = document.lines().filter(|line| !line.starts_with("{{"));
        let document: String = lines.flat_map(|line| [line, "\n"]).collect();
        let stream = read(&document, Dialect::Kubernetes, Limits::FILE);
        assert!(stream.problems.is_empty(), "{document}: {:?}", stream.problems);
        stream.documents.first().map(Node::to_json).unwrap()
    };
    text.split("---\n").filter(wanted).map(parse).collect()
}

#[test]
fn the_jobs_of_the_chart_have_exactly_the_rights_that_the_executor_needs() {
    let mut given = Vec::new();
    for (file, named) in [("templates/bootstrap.yaml", false), ("templates/environments.yaml", true)] {
        let of = |role: &&Value| {
            let name = role["metadata"]["name"].as_str().unwrap_or_default();
            name == EXECUTOR_ACCOUNT || (named && name.starts_with(EXECUTOR_ACCOUNT))
        };
        for role in documents(file, "Role").iter().filter(of) {
            given.extend(role["rules"].as_array().unwrap().iter().cloned());
        }
    }
    let name = ["{{ $environment }}"];
    let wanted = |rule: &Rule| rule.rbac(if rule.named { &name } else { &[] });
    let needed: Vec<Value> = rights::granted(EXECUTOR_ACCOUNT).iter().map(wanted).collect();
    assert_eq!(given, needed);
}

#[test]
fn the_account_that_installs_has_no_right_by_a_star_and_may_give_any() {
    let roles = [documents("templates/installer.yaml", "Role"), documents("templates/installer.yaml", "ClusterRole")];
    let [role, cluster_role] = roles.map(|found| {
        assert_eq!(found.len(), 1);
        assert_eq!(found[0]["metadata"]["name"], INSTALLER_ACCOUNT);
        found[0]["rules"].as_array().unwrap().clone()
    });
    let mut giving = 0;
    for rule in role.iter().chain(&cluster_role) {
        assert!(!rule.to_string().contains('*'), "{rule}");
        giving += rule.to_string().matches("\"escalate\"").count();
    }
    assert_eq!(giving, 1, "{cluster_role:#?}");
    // Its subjects are of the namespace that is named, wherever the chart itself is installed.
    for kind in ["RoleBinding", "ClusterRoleBinding"] {
        let binding = &documents("templates/installer.yaml", kind)[0];
        assert_eq!(binding["subjects"][0]["namespace"], "{{ $.Values.namespaces.workflows }}");
    }
}

#[test]
fn jobs_that_only_look_or_only_replace_the_token_have_accounts_that_can_do_nothing_else() {
    let template = |file: &str| fs::read_to_string(chart::folder().join("templates").join(file)).unwrap();
    let (jobs, rotate, rotator) = (template("executor.yaml"), template("rotate.yaml"), template("rotator.yaml"));
    assert!(jobs.contains(&format!("ternary \"{READER_ACCOUNT}\" $deployer (eq $action \"validate\")")), "{jobs}");
    let roles = documents("templates/reader.yaml", "ClusterRole");
    let rules: Vec<&Value> = roles.iter().map(|role| &role["rules"]).collect();
    assert_eq!(rules, [&forge_core::render::reader(READER_ACCOUNT)["rules"]]);
    assert_eq!(documents("templates/rotator.yaml", "Role").len(), 2);
    for wanted in [
        format!("serviceAccountName: {ROTATOR_ACCOUNT}\n"),
        "image: {{ $values.images.plugin | quote }}\n              command: [forge]\n".to_owned(),
        "                - rotate\n".to_owned(),
    ] {
        assert!(rotate.contains(&wanted), "{wanted}");
    }
    // What decides whether there is a Job decides whether there is its account.
    let by_others = "(not (and (eq $values.prepare \"executor\") $values.installer.enabled))";
    assert!(rotate.contains(by_others) && rotator.contains(&by_others.replace("$values", "$.Values")), "{rotator}");
    // A token lasts longer than twice the time from one of them to the next.
    let weekly = parsed("values.yaml")["rotate"]["schedule"].as_str().unwrap().to_owned();
    assert!(weekly.ends_with(" * * 1") && forge_core::token::LIFETIME.seconds() > 14 * 24 * 3600, "{weekly}");
}

#[test]
fn the_jobs_of_the_chart_give_the_executor_what_it_reads() {
    let text = fs::read_to_string(chart::folder().join("templates/executor.yaml")).unwrap();
    for wanted in [
        "mountPath: /config,".to_owned(),
        format!("secretName: {ARGOCD_SECRET},"),
        "mountPath: /secrets/argocd,".to_owned(),
        "mountPath: /tmp }".to_owned(),
        "serviceAccountName: {{ $account }}\n".to_owned(),
        format!("ternary \"{INSTALLER_ACCOUNT}\" \"{EXECUTOR_ACCOUNT}\" (and (eq $values.prepare \"executor\")"),
        format!("name: {}, value: {{{{ $environment", Input::Environment.variable()),
        format!("name: {}, value: {{{{ $values.images.plugin", Input::Image.variable()),
    ] {
        assert!(text.contains(&wanted), "{wanted}");
    }
    // What somebody else makes need not be there.
    for (name, path) in [(GIT_SECRET, GIT_SECRET_PATH), (REGISTRY_SECRET, REGISTRY_SECRET_PATH)] {
        let volume = format!("secret: {{ secretName: {name}, defaultMode: 0444, optional: true }}");
        for wanted in [format!("mountPath: {path}, readOnly: true"), volume] {
            assert!(text.contains(&format!("- {{ name: {name}, {wanted} }}\n")), "{wanted}");
        }
    }
    // Every field that the file is given is one of the executor's.
    let file = text.split("environment.yaml: |\n").nth(1).unwrap();
    let fields = file.lines().map_while(|line| line.strip_prefix("    ")?.split_once(": ").map(|(field, _)| field));
    let known: Vec<&str> = Input::ALL.iter().map(|input| input.field()).collect();
    let fields: Vec<&str> = fields.collect();
    assert!(fields.len() >= 6 && fields.iter().all(|field| known.contains(field)), "{fields:?}");
    // And every variable of the values is one that it reads.
    for variable in parsed("values.yaml")["executor"]["environment"].as_object().unwrap().keys() {
        assert!(Input::ALL.iter().any(|input| input.variable() == variable), "{variable}");
    }
}
