//! Forge's health checks in Argo CD's own Lua engine: `argocd admin settings resource-overrides health`, with the program
//! that the sandbox builds. Needs neither a cluster nor root.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use forge_core::health::{HealthChecks, Script};
use forge_core::yaml::{Dialect, Limits, read};
use forge_sandbox::build;
use forge_sandbox::cache::Cache;
use forge_testkit::health::{Sample, samples};
use forge_testkit::sandbox::run;

/// An `argocd-cm` that says nothing.
const EMPTY: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cm}\ndata: {}\n";

/// What Argo CD says of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Answer {
    Assessed {
        status: String,
        message: String,
    },
    /// It has no check for the kind, and the object counts as Healthy.
    NoCheck,
    /// The check failed, which is Unknown in a cluster.
    Failed(String),
}

fn assessed(status: &str, message: &str) -> Answer {
    Answer::Assessed { status: status.to_owned(), message: message.to_owned() }
}

/// The folder of something that the sandbox builds.
fn built(component: &str) -> PathBuf {
    let cache = Cache::of_user().unwrap();
    build::find(&cache, component).unwrap().unwrap_or_else(|| {
        let place = cache.root().display();
        panic!("`{component}` of this version is not in {place}: `forge sandbox build {component}` builds it")
    })
}

fn assess(argocd: &Path, settings: &Path, object: &Path) -> Answer {
    let mut command = Command::new(argocd);
    command.args(["admin", "settings", "resource-overrides", "health"]).arg(object);
    let ended = run(command.arg("--argocd-cm-path").arg(settings), None);
    if ended.code != 0 {
        return Answer::Failed(ended.stderr);
    }
    let answer = ended.stdout.strip_prefix("STATUS: ").and_then(|rest| rest.split_once("\nMESSAGE: "));
    match answer {
        Some((status, message)) => assessed(status, message.strip_suffix('\n').unwrap_or(message)),
        None if ended.stdout.starts_with("Health script is not configured for") => Answer::NoCheck,
        None => panic!("{}: argocd says something else: {}{}", object.display(), ended.stdout, ended.stderr),
    }
}

/// Asks about all objects with these settings, several at a time: most of an answer is the start of the program.
fn assess_all(settings: &str, objects: &[&Path]) -> Vec<Answer> {
    let argocd = built("argo-cd").join("bin/argocd");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("argocd-cm.yaml");
    fs::write(&file, settings).unwrap();
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let share = objects.len().div_ceil(workers).max(1);
    let (argocd, file) = (argocd.as_path(), file.as_path());
    thread::scope(|scope| {
        let parts = objects.chunks(share).map(|part| {
            scope.spawn(move || part.iter().map(|object| assess(argocd, file, object)).collect::<Vec<_>>())
        });
        // All are started before the first is waited for.
        let parts: Vec<_> = parts.collect();
        parts.into_iter().flat_map(|part| part.join().unwrap()).collect()
    })
}

fn paths(samples: &[Sample]) -> Vec<&Path> {
    samples.iter().map(|sample| sample.path.as_path()).collect()
}

#[test]
fn every_sample_is_assessed_as_it_says() {
    let samples = samples();
    // As the owner of an Argo CD is given them.
    let settings = HealthChecks::merge(&BTreeMap::new()).fragment("argocd");
    let answers = assess_all(&settings, &paths(&samples));
    assert_eq!(answers.len(), samples.len());
    let wrong: Vec<String> = samples
        .iter()
        .zip(answers)
        .filter(|(sample, answer)| *answer != assessed(&sample.status, &sample.message))
        .map(|(sample, answer)| {
            format!("{}: {answer:?}, expected {} `{}`", sample.name(), sample.status, sample.message)
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_check_is_more_lenient_than_argo_cds_own() {
    let healthy: Vec<Sample> = samples().into_iter().filter(|sample| sample.status == "Healthy").collect();
    let mut without = BTreeSet::new();
    for (sample, answer) in healthy.iter().zip(assess_all(EMPTY, &paths(&healthy))) {
        match answer {
            Answer::Assessed { ref status, .. } => assert_eq!(status, "Healthy", "{}: {answer:?}", sample.name()),
            Answer::NoCheck => {
                without.insert(sample.check.as_str());
            }
            Answer::Failed(why) => panic!("{}: {why}", sample.name()),
        }
    }
    // Where Argo CD learns a kind, our check has to be read again beside its own.
    let known = [
        "argoproj.io_Application",
        "ceph.rook.io_CephCluster",
        "temporal.io_TemporalCluster",
        "vault.banzaicloud.com_Vault",
    ];
    assert_eq!(without, BTreeSet::from(known));
}

#[test]
fn where_ours_is_stricter_argo_cds_own_still_is_not() {
    let stricter = [
        "apps_StatefulSet/progressing-not-available",
        "apps_StatefulSet/suspended-on-delete",
        "batch_Job/progressing-resumed",
        "networking.k8s.io_Ingress/degraded",
        "networking.k8s.io_Ingress/progressing-empty",
    ];
    let chosen: Vec<Sample> =
        samples().into_iter().filter(|sample| stricter.contains(&sample.name().as_str())).collect();
    assert_eq!(chosen.len(), stricter.len());
    for (sample, answer) in chosen.iter().zip(assess_all(EMPTY, &paths(&chosen))) {
        let healthy = matches!(&answer, Answer::Assessed { status, .. } if status == "Healthy");
        assert!(healthy, "{}: {answer:?}: the difference that its check explains is gone", sample.name());
    }
}

#[test]
fn what_a_repository_adds_or_replaces_is_what_argo_cd_uses() {
    let script = |status: &str| Script::new(&format!("return {{status = \"{status}\", message = \"ours\"}}")).unwrap();
    let own = BTreeMap::from([
        ("Service".parse().unwrap(), script("Degraded")),
        ("batch_Job".parse().unwrap(), script("Suspended")),
    ]);
    let folder = tempfile::tempdir().unwrap();
    let service = folder.path().join("service.yaml");
    fs::write(&service, "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {type: ClusterIP}\n").unwrap();
    let job = samples().into_iter().find(|sample| sample.name() == "batch_Job/healthy").unwrap();
    let objects = [service.as_path(), job.path.as_path()];
    let answers = assess_all(&HealthChecks::merge(&own).fragment("argocd"), &objects);
    assert_eq!(answers, [assessed("Degraded", "ours"), assessed("Suspended", "ours")]);
}

#[test]
fn the_engine_has_the_holes_that_lint_speaks_of() {
    let job = samples().into_iter().find(|sample| sample.name() == "batch_Job/progressing").unwrap();
    let answer = |script: &str| {
        let indented: String = script.lines().map(|line| format!("    {line}\n")).collect();
        let data = format!("data:\n  resource.customizations.health.batch_Job: |\n{indented}");
        assess_all(&EMPTY.replace("data: {}\n", &data), &[job.path.as_path()]).remove(0)
    };
    // Nothing: counts as Healthy, because no health is worse than none.
    assert_eq!(answer("local hs = {status = \"Degraded\"}"), assessed("", ""));
    let library = answer("return {status = string.upper(\"x\")}");
    assert!(matches!(&library, Answer::Failed(why) if why.contains("upper")), "{library:?}");
}

#[test]
fn the_chart_of_argo_cd_takes_the_values_as_they_are() {
    let text = "-- {{ .Values.global }} and ${this} stay\n\n  return {status = 'Healthy'} -- \"quoted\": yes";
    let own = Script::new(text).unwrap();
    let checks = HealthChecks::merge(&BTreeMap::from([("example.com_Widget".parse().unwrap(), own)]));
    let mut helm = Command::new(built("helm").join("bin/helm"));
    helm.args(["template", "argo-cd"]).arg(built("charts").join("argo-cd"));
    helm.args(["--show-only", "templates/argocd-configs/argocd-cm.yaml", "--values", "-"]);
    let ended = run(&mut helm, Some(&checks.chart_values().to_string()));
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let stream = read(&ended.stdout, Dialect::Kubernetes, Limits::FILE);
    assert!(stream.problems.is_empty() && stream.documents.len() == 1, "{:?}\n{}", stream.problems, ended.stdout);
    let object = stream.documents[0].to_json();
    for (key, script) in checks.entries() {
        assert_eq!(object["data"][&key], script, "{key}");
    }
}
