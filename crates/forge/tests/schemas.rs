//! The JSON Schemas and the decoders say the same about every file of the golden cases and of the example: what an editor
//! accepts lint accepts, and what lint calls malformed an editor marks. Rules that no schema can express (a zone that
//! does not exist, a field that another one forbids) are lint's alone and are listed here.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use forge_core::format::{
    ClusterFile, DependencyGraph, EnvironmentConfig, ExecutorEnvironment, GraphOverride, INPUTS, Installation, KINDS,
    ReleasePointer, schema,
};
use forge_core::release::policy::SignaturePolicy;
use forge_core::yaml::{Decoder, Dialect, Limits, Node, read};

fn decode(kind: &str, node: &Node<'_>) -> Vec<String> {
    let mut decoder = Decoder::new("file.yaml");
    match kind {
        "ReleasePointer" => drop(ReleasePointer::decode(&mut decoder, node)),
        "EnvironmentConfig" => drop(EnvironmentConfig::decode(&mut decoder, node)),
        "Cluster" | "PlatformCluster" => drop(ClusterFile::decode(&mut decoder, node)),
        "Forge" => drop(Installation::decode(&mut decoder, node)),
        "DependencyGraph" => drop(DependencyGraph::decode(&mut decoder, node)),
        "GraphOverride" => drop(GraphOverride::decode(&mut decoder, node)),
        "ExecutorEnvironment" => drop(ExecutorEnvironment::decode(&mut decoder, node)),
        "SignaturePolicy" => drop(SignaturePolicy::decode(&mut decoder, node)),
        _ => panic!("{kind}"),
    }
    decoder.into_findings().into_iter().map(|finding| format!("{} {}", finding.code, finding.message)).collect()
}

/// What lint knows and a schema cannot.
fn beyond_a_schema(finding: &str) -> bool {
    [
        "exactly one of",
        "IANA time zone",
        "longer than 0s",
        "is longer than a year",
        "not a CEL expression",
        "provider `aws` needs",
        "provider `vcluster` has no",
        "below minSize",
        "white space",
        "path must be a folder",
        "namespacePrefix must be",
        "must not be empty",
        "FORGE-G008",
        "FORGE-N014",
        "FORGE-N015",
        "characters; at most 63",
    ]
    .iter()
    .any(|known| finding.contains(known))
}

/// A kind, a small valid file of it, and edits (from, to) that break it.
type Case = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

const CASES: &[Case] = &[
    (
        "ReleasePointer",
        "apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: ReleasePointer\nmetadata: {name: b, labels: {a: b}}\nspec:\n  release: \"0123456789abcdef0123456789abcdef01234567\"\n  digest: sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n",
        &[
            ("kind: ReleasePointer", "kind: Releasepointer"),
            ("v1alpha1", "v1"),
            ("  digest:", "  dgest:"),
            ("01234567\"", "0123456\""),
            ("sha256:", "sha512:"),
            ("sha256:", ""),
            ("{name: b", "{nam: b"),
            ("spec:", "status: {}\nspec:"),
            ("release: \"0123456789abcdef0123456789abcdef01234567\"", "release: [x]"),
        ],
    ),
    (
        "EnvironmentConfig",
        "apiVersion: apiextensions.crossplane.io/v1beta1\nkind: EnvironmentConfig\nmetadata: {name: dev}\ndata: {a: [1, {b: null}]}\n",
        &[
            ("v1beta1", "v1alpha1"),
            ("data: {a: [1, {b: null}]}", "data: [a]"),
            ("kind: E", "kind: X"),
            ("data:", "spec:"),
        ],
    ),
    (
        "Cluster",
        "apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: Cluster\nmetadata: {name: dev}\nspec:\n  provider: aws\n  region: eu\n  nodeGroups: [{name: a, instanceType: t, minSize: 1, maxSize: 3}]\n",
        &[
            ("provider: aws", "provider: gcp"),
            ("minSize: 1", "minSize: one"),
            ("minSize: 1", "minSize: -1"),
            ("maxSize: 3", "maxSize: 100000"),
            ("instanceType: t, ", ""),
            ("region: eu", "zone: eu"),
            ("region: eu", "region: 7"),
        ],
    ),
    (
        "PlatformCluster",
        "apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: PlatformCluster\nmetadata: {name: platform}\nspec: {}\n",
        &[("spec: {}", "spec: {provider: aws}"), ("metadata", "meta")],
    ),
    (
        "Forge",
        "apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: Forge\nspec:\n  registry: r.example.com/x\n  repository: {url: https://git.example.com/p.git, branch: main}\n  argo: {cd: install, workflows: existing, events: none, namespace: argocd}\n  environments:\n    - name: dev\n      path: a/b\n      cluster: in-cluster\n      namespacePrefix: dev-\n      sync: ordered\n      schedule: 0 3 * * 1-5 Europe/Berlin\n      protected: true\n      approvals: 2\n      adoption: shadow\n      windows: [{allow: \"Mon-Thu 09:00-16:00 Europe/Berlin\"}, {deny: \"Sat,Sun 00:00-24:00 UTC\"}]\n      soak: 24h\n",
        &[
            ("cd: install", "cd: none"),
            ("events: none", "events: never"),
            ("sync: ordered", "sync: sometimes"),
            ("schedule: 0 3 * * 1-5 Europe/Berlin", "schedule: nightly"),
            ("schedule: 0 3 * * 1-5 Europe/Berlin", "schedule: 0 3 * * MON"),
            ("protected: true", "protected: yes"),
            ("approvals: 2", "approvals: 200"),
            ("approvals: 2", "approvals: two"),
            ("adoption: shadow", "adoption: full"),
            ("soak: 24h", "soak: 1 day"),
            ("soak: 24h", "sock: 24h"),
            ("{allow: \"Mon-Thu 09:00-16:00 Europe/Berlin\"}", "{allow: always}"),
            ("{allow: ", "{permit: "),
            ("name: dev", "name: Dev"),
            ("    - name: dev\n      path: a/b\n", "    - path: a/b\n"),
            ("namespace: argocd", "namespace: Argo_CD"),
            ("{url: https://git.example.com/p.git, branch: main}", "{branch: main}"),
        ],
    ),
    (
        "DependencyGraph",
        "apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: DependencyGraph\nspec:\n  defaults: {timeouts: {sync: 5m, health: 10m}, retry: {limit: 3, backoff: 5s, factor: 2, max: 2m}}\n  timeout: 2h\n  stacks:\n    - name: s\n      layer: 1\n      dependsOn: [\"stack:t\", a/b]\n      apps:\n        - project: r/p\n          dependsOn: [ns/name.x]\n          requires: [{apiVersion: v1, kind: Namespace, name: x}]\n          health: [{apiVersion: v1, kind: Pod, namespace: n, name: x, expr: \"object.status.phase == 'Running'\"}]\n          timeouts: {health: 1h30m}\n          retry: {limit: 0}\n        - application: argocd/legacy\n",
        &[
            ("sync: 5m", "sync: 5"),
            ("limit: 3", "limit: many"),
            ("limit: 3", "limit: 300"),
            ("factor: 2", "factor: 0"),
            ("layer: 1", "layer: one"),
            ("\"stack:t\"", "\"stack:T\""),
            ("a/b]", "a-b]"),
            ("project: r/p", "project: r/p/q"),
            ("project: r/p", "project: p"),
            ("application: argocd/legacy", "application: legacy"),
            ("requires: [{apiVersion: v1, kind: Namespace, name: x}]", "requires: [{kind: Namespace, name: x}]"),
            ("name: x, expr", "name: x, expression"),
            ("timeouts: {health: 1h30m}", "timeouts: {helth: 1h30m}"),
            ("stacks:", "stack:"),
            ("- name: s\n      layer", "- layer"),
        ],
    ),
    (
        "GraphOverride",
        "apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: GraphOverride\nspec:\n  only: [\"stack:s\"]\n  without: [a/b]\n  timeout: 1h\n  defaults: {retry: {limit: 1}}\n  apps: [{project: r/p, dependsOn: {add: [c/d], remove: [e/f]}, timeouts: {sync: 1m}}]\n",
        &[
            ("only:", "just:"),
            ("{add: [c/d], remove: [e/f]}", "[c/d]"),
            ("timeout: 1h", "timeout: soon"),
            ("a/b", "A/b"),
        ],
    ),
    (
        "ExecutorEnvironment",
        "name: dev\ndomain: dev.example.com\ngitRepository: https://git.example.com/p.git\ngitRevision: main\nclusterName: in-cluster\nargocdNamespace: argocd\nworkflowsNamespace: argo\ntimeouts: {sync: 5m, health: 10m, run: 1h}\nretries: {limit: 1, backoff: 5s, factor: 2, max: 1m}\n",
        &[
            ("name: dev", "name: Dev"),
            ("name: dev\n", ""),
            ("domain: dev.", "domain: Dev."),
            ("domain: dev.example.com\n", ""),
            ("https://git", "ssh://git"),
            ("https://git", "https://me:x@git"),
            ("gitRevision: main", "gitRevision: \"-main\""),
            ("gitRevision: main", "gitRevision: 12"),
            ("clusterName: in-cluster", "cluster: in-cluster"),
            ("argocdNamespace: argocd", "argocdNamespace: Argo_CD"),
            ("workflowsNamespace: argo", "workflowsNamespace: [argo]"),
            ("run: 1h", "all: 1h"),
            ("sync: 5m", "sync: 5"),
            ("limit: 1", "limit: 100"),
        ],
    ),
    (
        "SignaturePolicy",
        "apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: SignaturePolicy\nmetadata: {name: platform}\nspec:\n  signatures: required\n  threshold: 1\n  attestations: [\"https://slsa.dev/provenance/v1\"]\n  keys:\n    - name: ci\n      until: 2027-01-01T00:00:00Z\n      pem: \"-----BEGIN PUBLIC KEY-----\\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEw2OSdWhEROL1W5eWYkVALI8DjYsc\\nAuC9CLUOxRawGJJBft/D59K8Tq6ZaJn29GHKtW8zg5pdJ7VwCDwhHrKY8g==\\n-----END PUBLIC KEY-----\"\n",
        &[
            ("kind: SignaturePolicy", "kind: Policy"),
            ("{name: platform}", "{}"),
            ("  signatures: required\n", ""),
            ("signatures: required", "signatures: sometimes"),
            ("threshold: 1", "threshold: 0"),
            ("threshold: 1", "threshold: 2"),
            ("threshold: 1", "threshold: 17"),
            ("[\"https://slsa.dev/provenance/v1\"]", "[3]"),
            ("attestations: ", "attestation: "),
            ("name: ci", "name: CI"),
            ("- name: ci\n      until", "- until"),
            ("until: 2027-01-01T00:00:00Z", "until: soon"),
            ("until:", "expires:"),
            ("PUBLIC KEY", "PRIVATE KEY"),
            ("pem: ", "key: "),
            ("spec:", "status: {}\nspec:"),
        ],
    ),
];

#[test]
fn schema_and_decoder_agree_on_every_case() {
    let validators: BTreeMap<&str, jsonschema::Validator> = KINDS
        .iter()
        .chain(&INPUTS)
        .map(|kind| (*kind, jsonschema::validator_for(schema(kind).unwrap().as_value()).unwrap()))
        .collect();
    let check = |kind: &str, text: &str, valid: bool| {
        let stream = read(text, Dialect::Strict, Limits::FILE);
        assert!(stream.problems.is_empty(), "{text}\n{:?}", stream.problems);
        let node = &stream.documents[0];
        let findings = decode(kind, node);
        let strict = strict_json(node);
        let errors: Vec<String> = validators[kind].iter_errors(&strict).map(|error| error.to_string()).collect();
        assert_eq!(findings.is_empty(), valid, "decoder, {kind}:\n{text}\n{findings:?}");
        let shared = findings.iter().filter(|finding| !beyond_a_schema(finding)).count();
        assert_eq!(errors.is_empty(), shared == 0, "schema, {kind}:\n{text}\n{errors:?}\n{findings:?}");
    };
    let mut kinds = Vec::new();
    for (kind, good, edits) in CASES {
        kinds.push(*kind);
        check(kind, good, true);
        for (from, to) in *edits {
            assert!(good.contains(from), "{kind}: {from}");
            check(kind, &good.replacen(from, to, 1), false);
        }
    }
    kinds.sort_unstable();
    let mut all = [&KINDS[..], &INPUTS[..]].concat();
    all.sort_unstable();
    assert_eq!(kinds, all);
}

/// JSON with the booleans of our own dialect.
fn strict_json(node: &Node<'_>) -> serde_json::Value {
    match (node.items(), node.entries(), node.resolve(Dialect::Strict)) {
        (Some(items), _, _) => items.iter().map(strict_json).collect(),
        (_, Some(entries), _) => {
            serde_json::Value::Object(entries.iter().map(|(k, v)| (k.text.to_string(), strict_json(v))).collect())
        }
        (_, _, resolved) => resolved.map_or(serde_json::Value::Null, |resolved| resolved.to_json()),
    }
}

#[test]
fn every_file_of_the_example_fits_the_schema_that_it_names() {
    let root = forge_testkit::checkout().join("examples/platform");
    let mut open = vec![root.clone()];
    let mut checked = 0;
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
                continue;
            }
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            let Some(named) = text.strip_prefix("# yaml-language-server: $schema=").and_then(|t| t.lines().next())
            else {
                continue;
            };
            let schema =
                std::fs::read_to_string(folder.join(named)).unwrap_or_else(|e| panic!("{path:?}: {named}: {e}"));
            let validator = jsonschema::validator_for(&serde_json::from_str(&schema).unwrap()).unwrap();
            let stream = read(&text, Dialect::Strict, Limits::FILE);
            let value = strict_json(&stream.documents[0]);
            assert!(validator.is_valid(&value), "{path:?}");
            checked += 1;
        }
    }
    assert!(checked > 150, "{checked}");
}

#[test]
fn a_report_fits_its_schema() {
    let report: forge_core::view::RunReport = serde_json::from_value(serde_json::json!({
        "run": "r-1", "environment": "dev", "scope": "platform", "plan": "sha256:0", "runner": "plugin",
        "summary": "1 of 2 nodes proven", "verdict": "partial", "exit": 2, "started": "2026-11-16T10:00:00Z",
        "ended": "2026-11-16T10:01:00Z",
        "statistics": {"nodes": 2, "proven": 1, "synced": 1, "unchanged": 0, "failed": 1, "blocked": 0, "unfinished": 0,
            "retries": 0, "makespanSeconds": 60, "resubmitted": 0, "agentsReplaced": 0,
            "slowest": [{"node": "a/b", "seconds": 3}]},
        "failures": [{"node": "a/c", "application": "argocd/dev-a-c", "diagnosis": "x", "class": "unhealthy",
            "at": "2026-11-16T10:01:00Z", "blocks": [], "next": "y"}],
        "components": [{"node": "a/b", "application": "argocd/dev-a-b", "phase": "proven", "syncs": 1}],
    }))
    .unwrap();
    let validator = jsonschema::validator_for(schema("runreport").unwrap().as_value()).unwrap();
    let mut written = serde_json::to_value(&report).unwrap();
    let errors: Vec<String> = validator.iter_errors(&written).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}");
    written["statistics"]["proven"] = serde_json::json!("one");
    assert!(!validator.is_valid(&written));
}

#[test]
fn a_report_of_a_validation_fits_its_schema() {
    use forge_core::truth::ValidationReport;
    let written = serde_json::json!({
        "environment": "dev", "context": "kind", "scope": "platform", "commit": "3f2a", "verdict": "degraded", "exit": 2,
        "summary": "1 of 2 components healthy", "started": "2026-11-16T10:00:00Z", "ended": "2026-11-16T10:00:03Z",
        "statistics": {"components": 2, "nodes": 1, "healthy": 1, "degraded": 1, "unhealthy": 0, "notKnown": 0,
            "kinds": {"drift": 1}, "seconds": 3},
        "failures": [{"component": "a/b", "kind": "drift", "code": "FORGE-V004", "verdict": "degraded", "diagnosis": "x",
            "resource": "Deployment/a/b", "since": "2026-11-16T09:00:00Z", "next": "y"}],
        "components": [
            {"component": "a/b", "sort": "node", "verdict": "degraded", "detail": "x", "application": "argocd/dev-a-b",
                "revisions": ["1"], "compared": "2026-11-16T09:59:00Z"},
            {"component": "Argo CD", "sort": "controller", "verdict": "healthy"},
        ],
        "notes": ["z"],
    });
    let report: ValidationReport = serde_json::from_value(written.clone()).unwrap();
    // What is read back and written again has lost nothing.
    assert_eq!(serde_json::to_value(&report).unwrap(), written);
    let validator = jsonschema::validator_for(schema("validationreport").unwrap().as_value()).unwrap();
    let errors: Vec<String> = validator.iter_errors(&written).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}");
    let mut wrong = written;
    wrong["statistics"]["healthy"] = serde_json::json!("one");
    assert!(!validator.is_valid(&wrong));
}

#[test]
fn a_report_of_preflight_fits_its_schema() {
    use forge_core::preflight::{Check, Finding, Judged, PreflightReport, Severity};
    let at = |second: i64| jiff::Timestamp::from_second(1_790_000_000 + second).unwrap();
    let finding =
        Finding::new(Check::Rights, Severity::Blocking, "lacks rights", "it stops", "ask").because(["create x"]);
    let judged = vec![Judged::new(Check::Rights, "").with(finding), Judged::skipped(Check::Volume, "not needed")];
    let report = PreflightReport::new("kind", None, "forge@sha256:0", judged, (at(0), at(9)));
    let validator = jsonschema::validator_for(schema("preflightreport").unwrap().as_value()).unwrap();
    let mut written = serde_json::to_value(&report).unwrap();
    let errors: Vec<String> = validator.iter_errors(&written).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}");
    written["exit"] = serde_json::json!("three");
    assert!(!validator.is_valid(&written));
}

#[test]
fn what_bootstrap_tells_a_program_fits_its_schema() {
    use forge_core::health::HealthChecks;
    use forge_core::install::{
        BootstrapCheck, BootstrapPlan, CheckedChart, HISTORY, PlannedChart, PlannedObjects, PlannedSource, PlannedWay,
        Step, Wanted, handed, merges,
    };
    use forge_core::name::EnvironmentName;
    use forge_core::preflight::{Component, Intents, Purpose};
    use forge_core::render::Places;
    let health = HealthChecks::merge(&BTreeMap::new());
    let wanted = Wanted::new(Component::Cd, "argocd", &health, None, None);
    let mut check = BootstrapCheck { at_work: Some("elsewhere/1".to_owned()), ..BootstrapCheck::default() };
    let upgrade = Step::Upgrade { from: 1, why: "other values".to_owned(), broken: false };
    check.charts.extend([&upgrade, &Step::Install].map(|step| CheckedChart::new(&wanted, step)));
    check.good("forge", "objects");
    check.missing("argo-cd", "Argo CD", "install it");
    let (chart, repository, version) = ("argo-cd".to_owned(), None, Some("9.2.0".to_owned()));
    let chart = PlannedChart::new(&wanted, PlannedSource { chart, repository, version });
    let object = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "argocd"}});
    let own = PlannedObjects {
        title: "what starts runs".to_owned(),
        way: PlannedWay::Apply,
        needs: vec!["sensors.argoproj.io".to_owned()],
        objects: vec![object.clone()],
    };
    let secret = PlannedObjects {
        title: "credentials".to_owned(),
        way: PlannedWay::Credentials,
        needs: Vec::new(),
        objects: Vec::new(),
    };
    let there = Purpose { intents: Intents::existing(), ..Purpose::default() };
    let environment: EnvironmentName = "dev".parse().unwrap();
    let held = [(environment, BTreeSet::from(["dev-a".to_owned()]))];
    let plan = BootstrapPlan {
        field_manager: "forge".to_owned(),
        history_max: HISTORY,
        namespaces: vec![object],
        charts: vec![chart],
        application: None,
        objects: vec![own, secret],
        merge: merges(&there, &health, &handed(&Places::default(), &held)),
    };
    for (kind, document) in [("bootstrapcheck", serde_json::json!(check)), ("bootstrapplan", serde_json::json!(plan))] {
        let validator = jsonschema::validator_for(schema(kind).unwrap().as_value()).unwrap();
        let errors: Vec<String> = validator.iter_errors(&document).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{kind}: {errors:?}");
        let mut wrong = document;
        wrong["charts"] = serde_json::json!("none");
        assert!(!validator.is_valid(&wrong), "{kind}");
    }
}
