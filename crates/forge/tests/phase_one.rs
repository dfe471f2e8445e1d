//! What must be true of the source of phase 1 and of a teardown, because no test could miss it otherwise: every write can be died
//! before, and every kind that is asked for is in the table of rights. What is really asked for is compared on a cluster:
//! `tests/runs/executor_job.rs`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use forge_core::render::EXECUTOR_ACCOUNT;
use forge_core::rights::{self, Grant};

/// Where phase 1 writes.
const WRITERS: [&str; 7] = [
    "account.rs",
    "bootstrap.rs",
    "bootstrap/root.rs",
    "bootstrap/signatures.rs",
    "install.rs",
    "install/lock.rs",
    "teardown/inventory/snapshot.rs",
];
/// Where a teardown does.
const REMOVERS: [&str; 7] = [
    "teardown.rs",
    "teardown/look.rs",
    "teardown/primitives.rs",
    "teardown/release.rs",
    "teardown/rest.rs",
    "teardown/stop.rs",
    "teardown/volumes.rs",
];
/// How a write looks: requests to the cluster, work of helm, tokens of Argo CD.
const WRITES: [&str; 11] = [
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
];
/// How what can be died before it looks.
const POINTS: [&str; 3] = ["failpoint::write(", "self.point(", " point("];
/// How far above a write its point may stand, in lines: the object is often put together in between.
const ABOVE: usize = 12;

/// Where the executor asks the cluster for anything: phase 0, phase 1, and the run.
const ASKERS: [&str; 17] = [
    "account.rs",
    "argocd.rs",
    "bootstrap.rs",
    "bootstrap/root.rs",
    "bootstrap/signatures.rs",
    "executor/phase_one.rs",
    "install.rs",
    "install/lock.rs",
    "preflight/gather.rs",
    "preflight/leftovers.rs",
    "preflight/probe.rs",
    "run.rs",
    "run/follow.rs",
    "recorder.rs",
    "records.rs",
    "teardown/inventory.rs",
    "teardown/inventory/snapshot.rs",
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
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(name);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.split("#[cfg(test)]").next().unwrap().to_owned()
}

#[test]
fn every_write_of_phase_1_and_of_a_teardown_can_be_died_before() {
    assert!(writes_of(&WRITERS) >= 19);
    assert!(writes_of(&REMOVERS) >= 18);
}

/// Counts writes, each of which must have its point.
fn writes_of(names: &[&str]) -> usize {
    let mut writes = 0;
    for name in names {
        let text = source(name);
        let lines: Vec<&str> = text.lines().collect();
        for (n, line) in lines.iter().enumerate() {
            // The Lease is renewed beside the work, by the clock.
            if !WRITES.iter().any(|write| line.contains(write)) || line.contains("renewTime") {
                continue;
            }
            writes += 1;
            let above = &lines[n.saturating_sub(ABOVE)..n];
            let point = above.iter().any(|line| POINTS.iter().any(|point| line.contains(point)));
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

fn missing(files: &[&str], grants: &[Grant], elsewhere: &[&str]) -> Vec<(String, String)> {
    let has = |(group, plural): &(String, String)| {
        let same = |grant: &Grant| grant.group == group && grant.resource.split('/').next() == Some(plural.as_str());
        grants.iter().any(same) || elsewhere.contains(&plural.as_str())
    };
    let all: BTreeSet<(String, String)> = files.iter().flat_map(|name| kinds(&source(name))).collect();
    assert!(all.len() > 4, "{all:?}");
    all.into_iter().filter(|kind| !has(kind)).collect()
}

#[test]
fn every_kind_that_the_executor_asks_for_is_in_the_table_of_rights() {
    // Everybody may ask who he is and what he may do; a volume is only tried where a person asks for it.
    let elsewhere = ["selfsubjectaccessreviews", "selfsubjectreviews", "persistentvolumes"];
    let files: Vec<&str> = ASKERS.iter().chain(&CONDUCTORS).copied().collect();
    assert_eq!(missing(&files, &rights::installer(), &elsewhere), Vec::new());
    assert_eq!(missing(&CONDUCTORS, &rights::grants(EXECUTOR_ACCOUNT), &[]), Vec::new());
}

#[test]
fn every_kind_that_a_teardown_asks_for_is_in_the_table_of_rights() {
    // Claims are only read, as everything is.
    assert_eq!(missing(&REMOVERS, &rights::remover(), &["persistentvolumeclaims"]), Vec::new());
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
