use super::*;

const FILE: &str = "name: dev
domain: file.example.com
gitRepository: https://git.example.com/file.git
gitRevision: file
clusterName: file
argocdNamespace: file
workflowsNamespace: file
timeouts: {sync: 3s, health: 3s, run: 3s}
retries: {limit: 3, backoff: 3s, factor: 3, max: 3s}
";

fn given(flags: &[(Input, &str)], variables: &[(Input, &str)], file: Option<&str>) -> Given {
    Given {
        action: Action::Deploy,
        prefix: "",
        flags: flags.iter().map(|(input, text)| (*input, (*text).to_owned())).collect(),
        variables: variables.iter().map(|(input, text)| (*input, Some((*text).to_owned()))).collect(),
        file: file.map(|text| ("/config/environment.yaml".to_owned(), text.to_owned())),
    }
}

/// What is needed beside an input, by variable.
const NEEDED: [(Input, &str); 4] = [
    (Input::Environment, "dev"),
    (Input::Domain, "needed.example.com"),
    (Input::GitRepository, "https://git.example.com/needed.git"),
    (Input::GitRevision, "needed"),
];

fn found(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(|finding| format!("{} {} {}", finding.place, finding.code, finding.message)).collect()
}

fn refused(given: &Given) -> Vec<String> {
    found(&resolve(given).unwrap_err())
}

type Reader = fn(&Inputs) -> String;

/// An input, what it is by flag and by variable, what the file says, what holds otherwise, and where it is read.
const LAYERED: [(Input, &str, &str, &str, &str, Reader); 13] = [
    (Input::Domain, "a.example.com", "b.example.com", "file.example.com", "", |i| i.domain.value.to_string()),
    (
        Input::GitRepository,
        "https://git.example.com/a",
        "https://git.example.com/b",
        "https://git.example.com/file.git",
        "",
        |i| i.git_repository.value.to_string(),
    ),
    (Input::GitRevision, "a", "b", "file", "", |i| i.git_revision.value.to_string()),
    (Input::ClusterName, "a", "b", "file", "none", |i| {
        i.cluster_name.as_ref().map_or("none".to_owned(), |name| name.value.clone())
    }),
    (Input::ArgocdNamespace, "a", "b", "file", "none", |i| {
        i.argocd_namespace.as_ref().map_or("none".to_owned(), |name| name.value.to_string())
    }),
    (Input::WorkflowsNamespace, "a", "b", "file", "argo", |i| i.workflows_namespace.to_string()),
    (Input::SyncTimeout, "1s", "2s", "3s", "none", |i| shown(i.timeouts.sync)),
    (Input::HealthTimeout, "1s", "2s", "3s", "none", |i| shown(i.timeouts.health)),
    (Input::RunTimeout, "1s", "2s", "3s", "none", |i| shown(i.timeouts.run)),
    (Input::RetryLimit, "1", "2", "3", "none", |i| shown(i.retries.limit)),
    (Input::RetryBackoff, "1s", "2s", "3s", "none", |i| shown(i.retries.backoff)),
    (Input::RetryFactor, "1", "2", "3", "none", |i| shown(i.retries.factor)),
    (Input::RetryMax, "1s", "2s", "3s", "none", |i| shown(i.retries.max)),
];

fn shown(value: Option<impl ToString>) -> String {
    value.map_or("none".to_owned(), |value| value.to_string())
}

#[test]
fn flag_goes_over_variable_over_file_over_default_in_every_combination() {
    for (input, by_flag, by_variable, by_file, by_default, read) in LAYERED {
        for combination in 0..8 {
            let (flag, variable, file) = (combination & 1 != 0, combination & 2 != 0, combination & 4 != 0);
            let flags: Vec<_> = flag.then_some((input, by_flag)).into_iter().collect();
            // What is needed is given by variable, but for the input in question.
            let needed = NEEDED.into_iter().filter(|(other, _)| *other != input);
            let variables: Vec<_> = needed.chain(variable.then_some((input, by_variable))).collect();
            let given = given(&flags, &variables, file.then_some(FILE));
            let expected = match (flag, variable, file) {
                (true, _, _) => by_flag,
                (_, true, _) => by_variable,
                (_, _, true) => by_file,
                _ => by_default,
            };
            match resolve(&given) {
                Ok(inputs) => assert_eq!(read(&inputs), expected, "{input:?} {combination}"),
                Err(findings) => {
                    assert_eq!(expected, "", "{input:?} {combination}: {findings:?}");
                    let missing = format!("{} FORGE-X002 is needed and not given", input.variable());
                    assert_eq!(found(&findings), [missing]);
                }
            }
        }
    }
    // Every input of the file but the name is in the table.
    let fields = Input::ALL.iter().filter(|input| !input.field().is_empty()).count();
    assert_eq!(fields, LAYERED.len() + 1);
}

/// An input that no file has, what it is by flag and by variable, what holds otherwise, and where it is read.
const TWO_LAYERS: [(Input, &str, &str, &str, Reader); 21] = [
    (Input::Scope, "stack:a", "app:b", "platform", |i| i.scope.to_string()),
    (Input::DryRun, "true", "false", "false", |i| i.dry_run.to_string()),
    (Input::LogLevel, "error", "TRACE", "info", |i| i.log_level.as_str().to_owned()),
    (Input::LogFormat, "json", "Json", "text", |i| {
        (if i.log_format == LogFormat::Json { "json" } else { "text" }).to_owned()
    }),
    (Input::PvPolicy, "delete", "snapshot", "Retain", |i| format!("{:?}", i.pv_policy)),
    (Input::ReleaseFinalizer, "Widget/shop/main", "Widget/shop/a,Pod/shop/b", "", |i| {
        i.release_finalizers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }),
    (Input::TraceId, "00000000000000000000000000000001", "00000000000000000000000000000002", "none", |i| {
        shown(i.trace.as_ref())
    }),
    (Input::Image, "a@sha256:1", "b@sha256:2", "none", |i| shown(i.image.as_ref())),
    (Input::Charts, "/charts", "oci://registry.example.com/charts", "none", |i| shown(i.charts.as_ref())),
    (Input::RegistryConfig, "/a.json", "/b.json", "none", |i| shown(i.registry_config.as_ref())),
    (Input::RegistryCa, "/a.pem", "/b.pem", "none", |i| shown(i.registry_ca.as_ref())),
    (Input::PlainHttp, "a:5000", "b:5000,c", "", |i| i.plain_http.join(",")),
    (Input::With, "self-managed-argocd", "Self-Managed-ArgoCD", "nothing", |i| {
        (if i.self_managed_argocd { "self-managed-argocd" } else { "nothing" }).to_owned()
    }),
    (Input::Runner, "pod", "plugin", "none", |i| shown(i.runner.map(|runner| format!("{runner:?}")))),
    (Input::StaleAfter, "1m", "2m", "10m", |i| i.stale_after.to_string()),
    (Input::Allow, "I001", "s005,i001", "none", |i| {
        let mut codes: Vec<&str> = i.allowed.iter().map(|code| code.id().trim_start_matches("FORGE-")).collect();
        codes.sort_unstable_by(|a, b| b.cmp(a));
        if codes.is_empty() { "none".to_owned() } else { codes.join(",") }
    }),
    (Input::Watch, "true", "false", "false", |i| i.watch.to_string()),
    (Input::WatchTimeout, "1m", "2m", "none", |i| shown(i.watch_timeout)),
    (Input::KubeconfigPath, "/a", "/b", "InCluster", |i| match &i.access {
        Access::Path(path) => path.clone(),
        other => format!("{other:?}"),
    }),
    (Input::OtlpEndpoint, "http://a", "http://b", "none", |i| shown(i.otlp_endpoint.as_ref())),
    (Input::MetricsPushUrl, "http://a", "http://b", "none", |i| shown(i.metrics_push_url.as_ref())),
];

#[test]
fn what_no_file_has_is_taken_by_flag_then_by_variable() {
    for (input, by_flag, by_variable, by_default, read) in TWO_LAYERS {
        for (flag, variable) in [(false, false), (false, true), (true, false), (true, true)] {
            let flags: Vec<_> = flag.then_some((input, by_flag)).into_iter().collect();
            let variables: Vec<_> = NEEDED.into_iter().chain(variable.then_some((input, by_variable))).collect();
            let expected = match (flag, variable) {
                (true, _) => by_flag,
                (_, true) => by_variable,
                _ => by_default,
            };
            let inputs = resolve(&given(&flags, &variables, None)).unwrap();
            assert!(read(&inputs).eq_ignore_ascii_case(expected), "{input:?}: {} is not {expected}", read(&inputs));
        }
    }
}

#[test]
fn volumes_are_needed_only_where_that_is_said_and_a_flag_goes_over_the_variable() {
    let storage = |flag: Option<&'static str>, variable: Option<&'static str>| {
        let flags: Vec<_> = flag.map(|text| (Input::Storage, text)).into_iter().collect();
        let variables: Vec<_> = NEEDED.into_iter().chain(variable.map(|text| (Input::Storage, text))).collect();
        resolve(&given(&flags, &variables, None)).map(|inputs| inputs.storage)
    };
    assert_eq!((storage(None, None), storage(None, Some("True"))), (Ok(false), Ok(true)));
    assert_eq!((storage(Some("true"), Some("false")), storage(Some("false"), Some("true"))), (Ok(true), Ok(false)));
    assert!(found(&storage(None, Some("yes")).unwrap_err())[0].starts_with("STORAGE FORGE-X001 is `yes`"));
}

#[test]
fn the_environment_is_named_by_flag_or_variable_and_the_file_must_be_its_own() {
    let rest = &NEEDED[1..];
    let by = |flag: Option<&'static str>, variable: Option<&'static str>, file: bool| {
        let flags: Vec<_> = flag.map(|name| (Input::Environment, name)).into_iter().collect();
        let variables: Vec<_> = rest.iter().copied().chain(variable.map(|name| (Input::Environment, name))).collect();
        resolve(&given(&flags, &variables, file.then_some(FILE))).map(|inputs| inputs.environment.to_string())
    };
    assert_eq!(by(Some("dev"), None, true).unwrap(), "dev");
    assert_eq!(by(Some("dev"), Some("staging"), true).unwrap(), "dev");
    assert_eq!(by(Some("dev"), Some("staging"), false).unwrap(), "dev");
    assert_eq!(by(None, Some("dev"), true).unwrap(), "dev");
    let missing = ["ENVIRONMENT FORGE-X002 is needed and not given"];
    assert_eq!(found(&by(None, None, true).unwrap_err()), missing);
    assert_eq!(found(&by(None, None, false).unwrap_err()), missing);
    let other = "/config/environment.yaml:1:7 FORGE-X003 this file is of `dev`, and ENVIRONMENT says `staging`";
    assert_eq!(found(&by(None, Some("staging"), true).unwrap_err()), [other]);
    let long = found(&by(None, Some("an-environment-whose-name-is-far-too-long"), false).unwrap_err());
    assert!(long[0].ends_with("has more than 36 characters"), "{long:?}");
}

#[test]
fn everything_that_is_wrong_is_told_at_once_with_where_it_was_given() {
    let mut given = given(
        &[(Input::Scope, "everything"), (Input::RetryLimit, "21")],
        &[
            (Input::Environment, ""),
            (Input::DryRun, "yes"),
            (Input::LogLevel, "loud"),
            (Input::GitRepository, "https://me:hunter2@git.example.com/p"),
            (Input::GitRevision, "main"),
            (Input::SyncTimeout, "0s"),
            (Input::TraceId, "abc"),
            (Input::SpanId, "00f067aa0ba902b7"),
            (Input::Image, "an image"),
        ],
        None,
    );
    given.variables.insert(Input::Domain, None);
    given.variables.insert(Input::PvPolicy, Some("x".repeat(5000)));
    let findings = refused(&given);
    let expected = [
        "ENVIRONMENT FORGE-X001 is empty; leave it out where the default is meant",
        "--target-scope FORGE-X001 `everything` is not a scope: write `platform`, `stack:<name>` or `app:<name>`",
        "DRY_RUN FORGE-X001 is `yes`; allowed are `true`, `false`",
        "LOG_LEVEL FORGE-X001 is `loud`; allowed are `error`, `warn`, `info`, `debug`, `trace`",
        "PV_POLICY FORGE-X001 has 5000 bytes; at most 4096 are read",
        "TRACE_ID FORGE-X001 `abc` is not the id of a trace: expected 32 hexadecimal digits that are not all 0",
        "DOMAIN FORGE-X001 is not UTF-8",
        "GIT_REPOSITORY FORGE-X001 `https://git.example.com/p` is not the address of a repository: credentials belong into files below /secrets/git",
        "SYNC_TIMEOUT FORGE-X001 must be longer than 0s",
        "--retry-limit FORGE-X001 `21` is not a whole number from 0 to 20",
        "IMAGE FORGE-X001 `an image` is not the name of an image",
    ];
    assert_eq!(findings, expected);
}

#[test]
fn a_value_that_something_goes_over_is_checked_all_the_same() {
    let variables: Vec<_> = NEEDED.into_iter().chain([(Input::LogLevel, "loud")]).collect();
    let findings = refused(&given(&[(Input::LogLevel, "info")], &variables, None));
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert!(findings[0].starts_with("LOG_LEVEL FORGE-X001 is `loud`"), "{findings:?}");
}

#[test]
fn what_is_wrong_in_the_file_is_told_with_its_line_and_is_not_missing_as_well() {
    let environment = [(Input::Environment, "dev")];
    let file = FILE.replace("domain: file", "domain: FILE").replace("clusterName", "clustername");
    let findings = refused(&given(&[], &environment, Some(&file)));
    assert_eq!(findings.len(), 2, "{findings:?}");
    let wrong = ["2:9 FORGE-F004 domain: `FILE.example.com`", "5:1 FORGE-F001 unknown field `clustername`"];
    for (finding, wrong) in findings.iter().zip(wrong) {
        assert!(finding.starts_with(&format!("/config/environment.yaml:{wrong}")), "{findings:?}");
    }
    let two = "a: 1\n---\nb: 2\n";
    for (text, code) in [("a: [", "FORGE-Y001"), ("", "FORGE-F006"), (two, "FORGE-F006"), ("- a\n", "FORGE-F003")] {
        let findings = refused(&given(&[], &environment, Some(text)));
        assert!(findings.len() == 1 && findings[0].contains(code), "{text:?}: {findings:?}");
    }
}

#[test]
fn what_cannot_both_be_meant_is_refused() {
    let with = |more: &[(Input, &'static str)]| -> Vec<(Input, &'static str)> {
        NEEDED.into_iter().chain(more.iter().copied()).collect()
    };
    let two = with(&[(Input::KubeconfigData, "YQ=="), (Input::KubeconfigPath, "/k")]);
    assert_eq!(
        refused(&given(&[], &two, None)),
        ["KUBECONFIG_DATA FORGE-X003 two kubeconfigs: KUBECONFIG_PATH is given too"]
    );
    // A flag goes over both.
    let inputs = resolve(&given(&[(Input::KubeconfigPath, "/f")], &two, None)).unwrap();
    assert_eq!(inputs.access, Access::Path("/f".to_owned()));
    let orphan = with(&[(Input::SpanId, "00f067aa0ba902b7")]);
    assert_eq!(
        refused(&given(&[], &orphan, None)),
        ["SPAN_ID FORGE-X003 a parent span without a trace: TRACE_ID is not given"]
    );
}

#[test]
fn registries_without_tls_are_hosts_and_never_addresses() {
    let with = |text: &'static str| {
        let variables: Vec<_> = NEEDED.into_iter().chain([(Input::PlainHttp, text)]).collect();
        resolve(&given(&[], &variables, None)).map(|inputs| inputs.plain_http)
    };
    assert_eq!(with("a:5000, ,b.example.com").unwrap(), ["a:5000", "b.example.com"]);
    for (text, wrong) in [("http://a:5000", "http://a:5000"), ("a, b/c", "b/c"), ("a b", "a b")] {
        let told = format!(
            "PLAIN_HTTP_REGISTRIES FORGE-X001 `{wrong}` is not a host: write it like `registry.example.com:5000`"
        );
        assert_eq!(found(&with(text).unwrap_err()), [told]);
    }
}

#[test]
fn a_teardown_is_confirmed_by_name_and_a_deployment_needs_no_word() {
    let teardown = |confirm: Option<&'static str>| {
        let variables: Vec<_> = NEEDED.into_iter().chain(confirm.map(|name| (Input::Confirm, name))).collect();
        resolve(&Given { action: Action::Teardown, ..given(&[], &variables, None) })
    };
    assert!(teardown(Some("dev")).is_ok());
    assert_eq!(found(&teardown(None).unwrap_err()), ["CONFIRM FORGE-X002 is needed and not given"]);
    let other = ["CONFIRM FORGE-X003 confirms `staging`, and ENVIRONMENT says `dev`"];
    assert_eq!(found(&teardown(Some("staging")).unwrap_err()), other);
    assert!(resolve(&given(&[], &NEEDED, None)).is_ok());
}

#[test]
fn a_kubeconfig_is_never_shown() {
    let variables: Vec<_> = NEEDED.into_iter().chain([(Input::KubeconfigData, "aHVudGVyMg==\n")]).collect();
    let inputs = resolve(&given(&[], &variables, None)).unwrap();
    assert!(!format!("{inputs:?}").contains("aHVudGVyMg"));
    assert!(matches!(&inputs.access, Access::Data(data) if data.expose().starts_with("aHVudGVyMg")));
}

#[test]
fn forge_reads_the_same_names_with_a_prefix_and_says_so() {
    let mut given = given(&[], &NEEDED, None);
    given.prefix = "FORGE_";
    given.variables.insert(Input::LogFormat, Some("xml".to_owned()));
    assert_eq!(refused(&given), ["FORGE_LOG_FORMAT FORGE-X001 is `xml`; allowed are `text`, `json`"]);
}

fn repository() -> crate::repository::Repository {
    let files = [
        (
            "forge.yaml",
            "apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: Forge\nspec:\n  repository: {url: https://git.example.com/p.git}\n  argo: {namespace: argo-cd}\n  environments: [{name: dev, cluster: in-cluster, sync: manual}]\n",
        ),
        (
            "graph.yaml",
            "apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: DependencyGraph\nspec:\n  stacks: [{name: a, apps: [{application: argo-cd/x}, {application: argo-cd/y, timeouts: {sync: 9m}}]}]\n",
        ),
        (
            "dev/graph.yaml",
            "apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: GraphOverride\nspec:\n  defaults: {timeouts: {sync: 7m, health: 7m}}\n",
        ),
    ];
    let files = files.map(|(path, text)| (path.to_owned(), crate::validate::Content::Bytes(text.as_bytes().to_vec())));
    crate::validate::tree(&files.into()).repository.unwrap()
}

#[test]
fn what_the_repository_says_otherwise_is_a_contradiction() {
    let repository = repository();
    let environment = &repository.environments[0].environment;
    let variables: Vec<_> =
        NEEDED.into_iter().chain([(Input::ClusterName, "other"), (Input::ArgocdNamespace, "argocd")]).collect();
    let inputs = resolve(&given(&[], &variables, None)).unwrap();
    let told = found(&inputs.contradictions(&repository.installation, environment, Some("dev.example.com")));
    assert_eq!(
        told,
        [
            "CLUSTER_NAME FORGE-X003 is `other`, and forge.yaml of environment `dev` says `in-cluster`",
            "ARGOCD_NAMESPACE FORGE-X003 is `argocd`, and forge.yaml says `argo-cd`",
            "DOMAIN FORGE-X003 is `needed.example.com`, and data.domain of dev/env.yaml says `dev.example.com`",
        ]
    );
    let silent = resolve(&given(&[], &NEEDED, None)).unwrap();
    assert!(silent.contradictions(&repository.installation, environment, None).is_empty());
    // The Job of an event is told nothing that may change in Git after `forge bootstrap`.
    let nobodys = given(&[(Input::Domain, "dev.invalid")], &NEEDED, None);
    let nobodys = resolve(&nobodys).unwrap();
    assert!(nobodys.contradictions(&repository.installation, environment, Some("dev.example.com")).is_empty());
}

#[test]
fn limits_go_over_those_of_the_environment_and_under_those_of_a_node() {
    let repository = repository();
    let files = &repository.environments[0];
    let variables: Vec<_> = NEEDED
        .into_iter()
        .chain([(Input::SyncTimeout, "1m"), (Input::RunTimeout, "1h"), (Input::RetryLimit, "1")])
        .collect();
    let inputs = resolve(&given(&[], &variables, None)).unwrap();
    let graph = repository.environment_graph(&inputs.limited(files)).graph.unwrap();
    let of = |name: &str| {
        let node = graph.nodes().iter().find(|node| node.id.as_str() == name).unwrap();
        (node.timeouts.sync.to_string(), node.timeouts.health.to_string(), node.retry.limit)
    };
    assert_eq!(of("argo-cd/x"), ("1m".to_owned(), "7m".to_owned(), 1));
    assert_eq!(of("argo-cd/y"), ("9m".to_owned(), "7m".to_owned(), 1));
    assert_eq!(graph.timeout.to_string(), "1h");
    // Where nothing is given, nothing changes: not even the hash of the plan.
    let silent = resolve(&given(&[], &NEEDED, None)).unwrap();
    assert_eq!(silent.limited(files).overrides, files.overrides);
}
