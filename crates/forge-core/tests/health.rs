//! Forge's health checks and their samples, and the checks of a repository. What Argo CD's engine says of the samples is
//! tested where that engine is: `crates/forge-sandbox/tests/lua.rs`.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking, and reads its samples"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use forge_core::code::Code;
use forge_core::health::{BUILT_IN, CheckName, HealthChecks, MOST_BYTES, MOST_BYTES_IN_ALL, Origin, Script};
use forge_core::validate::{Content, Report, tree};
use forge_core::yaml::{Dialect, Limits, read};
use forge_testkit::health::samples;
use proptest::prelude::*;

#[test]
fn every_check_has_samples_of_each_health_that_it_tells() {
    let samples = samples();
    for check in BUILT_IN {
        let of: BTreeSet<&str> =
            samples.iter().filter(|sample| sample.check == check.name).map(|sample| sample.status.as_str()).collect();
        for status in ["Healthy", "Progressing", "Degraded"] {
            assert!(of.contains(status), "{} has no sample that is {status}", check.name);
        }
        let told = check.script.split("status = \"").skip(1).filter_map(|rest| rest.split('"').next());
        for status in told {
            assert!(of.contains(status), "{} can say {status}, and no sample shows it", check.name);
        }
    }
    let checks: BTreeSet<&str> = BUILT_IN.iter().map(|check| check.name).collect();
    assert!(samples.iter().all(|sample| checks.contains(sample.check.as_str())));
}

#[test]
fn every_sample_is_of_the_kind_of_its_check_and_named_after_its_health() {
    for sample in samples() {
        let name = sample.name();
        let text = fs::read_to_string(&sample.path).unwrap();
        let stream = read(&text, Dialect::Kubernetes, Limits::FILE);
        assert!(stream.problems.is_empty() && stream.documents.len() == 1, "{name}: {:?}", stream.problems);
        let object = stream.documents[0].to_json();
        let (group, _version) = object["apiVersion"].as_str().unwrap().split_once('/').unwrap();
        assert_eq!(format!("{group}_{}", object["kind"].as_str().unwrap()), sample.check, "{name}");
        let stem = sample.path.file_stem().unwrap().to_str().unwrap();
        assert_eq!(stem.split('-').next().unwrap(), sample.status.to_lowercase(), "{name}");
    }
}

/// A repository of one Application, with these files in `health/`.
fn repository(health: &[(&str, &str)]) -> Report {
    let installation = "apiVersion: forge.projectcatalyst.io/v1alpha1
kind: Forge
spec:
  repository: {url: https://git.example.com/p.git}
  environments: [{name: dev, cluster: dev, sync: auto}]
";
    let graph = "apiVersion: forge.projectcatalyst.io/v1alpha1
kind: DependencyGraph
spec:
  stacks: [{name: a, apps: [{application: argocd/x}]}]
";
    let own = [("forge.yaml".to_owned(), installation), ("graph.yaml".to_owned(), graph)];
    let health = health.iter().map(|(name, text)| (format!("health/{name}"), *text));
    let files: BTreeMap<String, Content> =
        own.into_iter().chain(health).map(|(path, text)| (path, Content::Bytes(text.into()))).collect();
    tree(&files)
}

#[test]
fn without_a_folder_there_is_what_forge_brings_and_nothing_to_say() {
    let report = repository(&[]);
    assert!(report.findings.is_empty() && report.notes.is_empty(), "{:?} {:?}", report.findings, report.notes);
    let checks = report.repository.unwrap().health_checks().unwrap();
    assert_eq!(checks, HealthChecks::merge(&BTreeMap::new()));
    assert_eq!(checks.iter().count(), BUILT_IN.len());
}

#[test]
fn what_a_repository_adds_is_added_and_what_it_replaces_is_told() {
    let report = repository(&[
        ("example.com_Widget.lua", "return {status = \"Healthy\"}"),
        ("batch_Job.lua", "return {status = string.upper(\"healthy\")}"),
        ("README.md", "ours"),
    ]);
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    let notes: Vec<String> = report.notes.iter().map(|note| format!("{}: {}", note.place, note.message)).collect();
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert_eq!(notes[0], "health/batch_Job.lua: takes the place of the check that Forge brings for this kind");
    assert!(notes[1].starts_with("health/batch_Job.lua: uses `string`, which Argo CD does not load"), "{}", notes[1]);
    let checks = report.repository.unwrap().health_checks().unwrap();
    let own: Vec<(&str, Origin)> = checks
        .iter()
        .filter(|(.., origin)| !matches!(origin, Origin::Forge(_)))
        .map(|(name, _, origin)| (name.as_str(), origin))
        .collect();
    assert_eq!(own, [("batch_Job", Origin::Replaced), ("example.com_Widget", Origin::Added)]);
}

#[test]
fn a_check_that_cannot_be_used_is_not_silently_forges_again() {
    for (name, text) in [("batch_Job.lua", ""), ("batch_job_.lua", "return {}"), ("own/batch_Job.lua", "return {}")] {
        let report = repository(&[(name, text)]);
        assert!(report.findings.iter().all(|finding| finding.code == Code::UnusableHealthCheck), "{name}");
        let repository = report.repository.unwrap();
        assert_eq!(repository.health_checks().unwrap_err(), &BTreeSet::from([format!("health/{name}")]));
    }
}

#[test]
fn all_checks_together_must_fit_into_argocd_cm() {
    let script = format!("return {{}} -- {}", "x".repeat(MOST_BYTES - 20));
    let enough = MOST_BYTES_IN_ALL / script.len() + 1;
    let names: Vec<String> = (0..enough).map(|n| format!("example.com_K{n}.lua")).collect();
    let files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), script.as_str())).collect();
    let report = repository(&files);
    assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
    assert!(report.findings[0].code == Code::TooLarge && report.findings[0].place.path == "health");
    assert!(repository(&files[..2]).findings.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(forge_testkit::cases(200)))]

    #[test]
    fn whatever_a_script_looks_like_the_fragment_carries_it_unchanged(
        before in "[ -~\t\n\u{e9}\u{1f600}]{0,80}",
        after in "[ -~\t\n]{0,40}",
    ) {
        let text = format!("{before}\nreturn {{}} --{after}");
        // What is before may hide the answer in a comment or a text.
        if let Ok(script) = Script::new(&text) {
            let name: CheckName = "example.com_Widget".parse().unwrap();
            let key = name.key();
            let checks = HealthChecks::merge(&BTreeMap::from([(name, script.clone())]));
            let fragment = checks.fragment("argocd");
            let stream = read(&fragment, Dialect::Kubernetes, Limits::FILE);
            prop_assert!(stream.problems.is_empty(), "{:?}\n{fragment}", stream.problems);
            let object = stream.documents[0].to_json();
            prop_assert_eq!(object["data"][key.as_str()].as_str(), Some(script.as_str()), "{}", fragment);
        }
    }
}
