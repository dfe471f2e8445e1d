//! What must be true of the source of phase 1 and of a teardown, because no test could miss it otherwise: every write can be died
//! before, and every kind that is asked for is in the table of rights. What is really asked for is compared on a cluster:
//! `tests/runs/executor_job.rs`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use forge_core::render::EXECUTOR_ACCOUNT;
use forge_core::rights::{self, Grant};

/// Where phase 1 writes: modules, each with everything in it, or single files.
const WRITERS: [&str; 4] = ["account", "bootstrap", "install", "teardown/inventory"];
/// Where a teardown does.
const REMOVERS: [&str; 1] = ["teardown"];
/// What else writes, and goes on in other ways where it was killed: phase 0 and the demo put away what is left of an earlier one, a
/// run has its records.
const OTHERS: [&str; 4] = ["commands/demo", "preflight", "recorder.rs", "run"];
/// How a write looks: requests to the cluster, work of helm, tokens of Argo CD.
const WRITES: [&str; 12] = [
    "cluster.create(",
    "cluster.merge(",
    "cluster.apply(",
    "cluster.delete(",
    "cluster.remove(",
    "helm.upgrade(",
    "helm.rollback(",
    "helm.uninstall(",
    "helm.test(",
    "argocd.mint(",
    "argocd.forget(",
    "administrator.change_password(",
];
/// How what can be died before it looks.
const POINTS: [&str; 3] = ["failpoint::write(", "self.point(", " point("];
/// How far above a write its point may stand, in lines: the object is often put together in between.
const ABOVE: usize = 12;

/// Where the executor asks the cluster for anything: phase 0, phase 1, and the run.
const ASKERS: [&str; 11] = [
    "account",
    "argocd.rs",
    "bootstrap",
    "executor/phase_one.rs",
    "install",
    "preflight",
    "recorder.rs",
    "records.rs",
    "run.rs",
    "run/follow.rs",
    "teardown/inventory",
];
/// The same for what conducts a run.
const CONDUCTORS: [&str; 10] = [
    "run.rs",
    "run/agent.rs",
    "run/conduct.rs",
    "run/conduct/workflow.rs",
    "run/job.rs",
    "run/keep.rs",
    "run/lease.rs",
    "run/prepare.rs",
    "run/window.rs",
    "serve.rs",
];

/// A file of the source, without its tests.
fn source(name: &str) -> String {
    let path = forge_testkit::checkout().join("crates/forge/src").join(name);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.split("#[cfg(test)]").next().unwrap().to_owned()
}

/// All files of the source.
fn files() -> Vec<String> {
    let root = forge_testkit::checkout().join("crates/forge/src");
    let (mut folders, mut found) = (vec![root.clone()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

/// Those of these modules and files, each of which there must be.
fn files_of(parts: &[&str]) -> Vec<String> {
    let all = files();
    for part in parts {
        assert!(all.iter().any(|name| is_of(name, part)), "there is no {part}");
    }
    all.into_iter().filter(|name| parts.iter().any(|part| is_of(name, part))).collect()
}

fn is_of(name: &str, part: &str) -> bool {
    name == part || name.strip_prefix(part).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
}

#[test]
fn a_module_is_its_file_and_all_that_is_in_its_folder_and_a_file_is_itself() {
    for (name, part, is) in [
        ("install.rs", "install", true),
        ("install/work.rs", "install", true),
        ("teardown/inventory/snapshot.rs", "teardown/inventory", true),
        ("teardown/look.rs", "teardown/inventory", false),
        ("run.rs", "run.rs", true),
        ("run/lease.rs", "run.rs", false),
        ("run_report.rs", "run", false),
    ] {
        assert_eq!(is_of(name, part), is, "{name}, {part}");
    }
}

#[test]
fn every_write_of_phase_1_and_of_a_teardown_can_be_died_before() {
    assert!(writes_of(&WRITERS) >= 34);
    assert!(writes_of(&REMOVERS) >= 22);
}

#[test]
fn whatever_writes_is_phase_1_a_teardown_or_known_not_to_be() {
    let parts: Vec<&str> = WRITERS.iter().chain(&REMOVERS).chain(&OTHERS).copied().collect();
    let known = files_of(&parts);
    for name in files().into_iter().filter(|name| !known.contains(name)) {
        let text = source(&name);
        assert_eq!(text.lines().find(|line| is_write(line)), None, "{name}");
    }
}

/// A line that writes. The Lease is renewed beside the work, by the clock; who asks what he may do makes an object that
/// nobody keeps.
fn is_write(line: &str) -> bool {
    WRITES.iter().any(|write| line.contains(write)) && !line.contains("renewTime") && !line.contains("review")
}

/// A line that can be died at, and not where that is defined.
fn is_point(line: &str) -> bool {
    POINTS.iter().any(|point| line.contains(point)) && !line.contains("fn ")
}

/// Counts writes, each of which must have its point.
fn writes_of(parts: &[&str]) -> usize {
    let mut writes = 0;
    for name in files_of(parts) {
        let text = source(&name);
        let lines: Vec<&str> = text.lines().collect();
        for (n, line) in lines.iter().enumerate().filter(|(_, line)| is_write(line)) {
            writes += 1;
            let above = &lines[n.saturating_sub(ABOVE)..n];
            let point = above.iter().any(|line| is_point(line));
            assert!(point, "{name}:{}: nothing can die before this: {}", n + 1, line.trim());
        }
    }
    writes
}

/// What stands between the parenthesis at the start of a text and its end.
fn arguments(text: &str) -> &str {
    let mut depth = 0;
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[..at];
        }
    }
    text
}

/// The texts in quotes.
fn literals(text: &str) -> Vec<&str> {
    text.split('"').skip(1).step_by(2).collect()
}

/// Kinds that a source asks for, by group and plural, where it names them.
fn kinds(text: &str) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    let mut add = |group: &str, plural: &str| found.insert((group.to_owned(), plural.to_owned()));
    for (at, _) in text.match_indices("path::") {
        let rest = &text[at + "path::".len()..];
        let Some((function, behind)) = rest.split_once('(') else { continue };
        let named = literals(arguments(&rest[rest.len() - behind.len() - 1..]));
        match (function, named.as_slice()) {
            ("config_maps", _) => {
                add("", "configmaps");
            }
            ("core", [.., plural]) => {
                add("", plural);
            }
            ("argo", [.., plural]) => {
                add("argoproj.io", plural);
            }
            ("named" | "global", [group, _, plural]) => {
                add(group, plural);
            }
            _ => {}
        }
    }
    for (at, start) in text.match_indices("\"/api/v1/") {
        let plural = text[at + start.len()..].split(['"', '/', '{']).next().unwrap();
        add("", plural);
    }
    found
}

fn missing(parts: &[&str], grants: &[Grant], elsewhere: &[&str]) -> Vec<(String, String)> {
    let has = |(group, plural): &(String, String)| {
        let same = |grant: &Grant| grant.group == group && grant.resource.split('/').next() == Some(plural.as_str());
        grants.iter().any(same) || elsewhere.contains(&plural.as_str())
    };
    let all: BTreeSet<(String, String)> = files_of(parts).iter().flat_map(|name| kinds(&source(name))).collect();
    assert!(all.len() > 4, "{all:?}");
    all.into_iter().filter(|kind| !has(kind)).collect()
}

#[test]
fn every_kind_that_the_executor_asks_for_is_in_the_table_of_rights() {
    // Everybody may ask who he is and what he may do; a volume is only tried where a person asks for it.
    let elsewhere = ["selfsubjectaccessreviews", "selfsubjectreviews", "persistentvolumes"];
    let parts: Vec<&str> = ASKERS.iter().chain(&CONDUCTORS).copied().collect();
    assert_eq!(missing(&parts, &rights::installer(), &elsewhere), Vec::new());
    assert_eq!(missing(&CONDUCTORS, &rights::grants(EXECUTOR_ACCOUNT), &[]), Vec::new());
}

#[test]
fn every_kind_that_a_teardown_asks_for_is_in_the_table_of_rights() {
    // Claims are only read, as everything is, and everybody may ask what he may do.
    let elsewhere = ["persistentvolumeclaims", "selfsubjectaccessreviews"];
    assert_eq!(missing(&REMOVERS, &rights::remover(), &elsewhere), Vec::new());
}

#[test]
fn kinds_are_found_in_calls_of_any_shape() {
    let text = r#"
        path::object(&path::core(workflows, "secrets"), ARGOCD_SECRET);
        let collection = path::named("coordination.k8s.io", "v1", namespace, "leases");
        path::global("apps", "v1", plural);
        path::argo(&self.place(of("x")).argocd, "appprojects")
        let nodes = cluster.list("/api/v1/nodes", "");
        format!("/api/v1/namespaces/{namespace}/services")
    "#;
    let found: Vec<(String, String)> = kinds(text).into_iter().collect();
    let names: Vec<&str> = found.iter().map(|(_, plural)| plural.as_str()).collect();
    assert_eq!(names, ["namespaces", "nodes", "secrets", "appprojects", "leases"], "{found:?}");
}
