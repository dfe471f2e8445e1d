//! The driver itself, on a real sandbox with the real Argo: that it deploys, sees, judges and cleans up. Syncs are asked for
//! by the test, in the right order and in a wrong one.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use forge_core::digest::Digest;
use forge_core::oci::Architecture;
use forge_testkit::images::{self, Built, Shared};
use forge_testkit::order::{self, Why};
use forge_testkit::platform::{Environment, Platform};
use forge_testkit::sandbox::{eventually, run};
use forge_testkit::twin::{self, TwinNode, config_map, deployment, kwok_deployment};
use jiff::Timestamp;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(120);

/// Three nodes in a row: a real pod, a simulated one, a ConfigMap.
fn row(environment: &Environment) -> BTreeMap<String, BTreeSet<String>> {
    let image = &environment.platform.sample;
    let nodes = [
        TwinNode::new("base", &[], vec![deployment("base", image, 3, &[])]),
        TwinNode::new("side", &["base"], vec![kwok_deployment("side", image, 3, false)]),
        TwinNode::new("top", &["side"], vec![config_map("top", "first")]),
    ];
    let commit = environment.push(&twin::small(&environment.options(), &nodes), "three nodes");
    assert_eq!(commit.len(), 40);
    environment.apply();
    let name = |node: &str| environment.options().application(node);
    [("side", "base"), ("top", "side")]
        .into_iter()
        .map(|(node, before)| (name(node), BTreeSet::from([name(before)])))
        .collect()
}

/// Starts a sync as `kubectl` can: by writing the operation into the Application. Options of the Application count only
/// for syncs through Argo CD's server, so they are repeated.
fn sync(environment: &Environment, node: &str) {
    let operation = r#"{"operation":{"initiatedBy":{"username":"test"},"sync":{"prune":true,"syncOptions":["CreateNamespace=true"]}}}"#;
    let name = environment.options().application(node);
    let sandbox = &environment.platform.sandbox;
    sandbox.kubectl(&["patch", "application", &name, "-n", "argocd", "--type=merge", "-p", operation]);
}

fn healthy(environment: &Environment, node: &str) {
    eventually(&format!("{node} is healthy"), PATIENCE, || {
        let status = environment.application(node)["status"].clone();
        let well = status["health"]["status"] == "Healthy" && status["operationState"]["phase"] == "Succeeded";
        if well { Ok(()) } else { Err(status.to_string()) }
    });
}

#[test]
fn a_run_in_order_breaks_no_edge_and_leaves_nothing_behind() {
    let environment = Platform::shared().environment("in-order");
    let predecessors = row(&environment);
    let linted = environment.forge(&["lint"], PATIENCE);
    assert_eq!(linted.code, 0, "{}{}", linted.stdout, linted.stderr);
    let recorder = environment.record();
    for node in ["base", "side", "top"] {
        sync(&environment, node);
        healthy(&environment, node);
    }
    let facts = environment.facts(&predecessors, recorder, &[], true);
    assert_eq!(order::violations(&facts), [], "{facts:#?}");
    assert_eq!(order::edges_judged(&facts), 2, "{facts:#?}");
    let (name, sandbox) = (environment.name.clone(), &environment.platform.sandbox);
    drop(environment);
    eventually("everything of the environment is gone", PATIENCE, || {
        let found = sandbox.kubectl(&["get", "applications,appprojects,namespaces", "-A", "-o", "name"]);
        if found.contains(&name) { Err(found) } else { Ok(()) }
    });
}

#[test]
fn a_run_out_of_order_is_found_out() {
    let environment = Platform::shared().environment("disorder");
    let predecessors = row(&environment);
    let recorder = environment.record();
    for node in ["base", "side", "top"] {
        sync(&environment, node);
    }
    for node in ["base", "side", "top"] {
        healthy(&environment, node);
    }
    let facts = environment.facts(&predecessors, recorder, &[], true);
    let found = order::violations(&facts);
    assert_eq!(found.len(), 2, "{facts:#?}");
    assert!(found.iter().all(|violation| !matches!(violation.why, Why::NeverDeployed)), "{found:?}");
}

#[test]
fn pods_run_the_forge_that_is_tested() {
    let platform = Platform::shared();
    let space = platform.sandbox.kubectl(&["get", "namespace", "argo", "-o", "name"]);
    assert_eq!(space.trim(), "namespace/argo");
    let name = format!("forge-version-{}", std::process::id());
    let sandbox = &platform.sandbox;
    let image = format!("--image={}", platform.image());
    sandbox.kubectl(&["run", &name, "-n", "argo", &image, "--restart=Never", "--command", "--", "forge", "--version"]);
    let pod = format!("pod/{name}");
    sandbox.kubectl(&["wait", &pod, "-n", "argo", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s"]);
    let here = run(std::process::Command::new(&platform.binary).arg("--version"), None).stdout;
    assert_eq!(sandbox.kubectl(&["logs", &name, "-n", "argo"]), here);
    sandbox.kubectl(&["delete", &pod, "-n", "argo", "--wait=false"]);
}

/// What a registry that speaks plain HTTP answers.
fn fetched(registry: &str, path: &str) -> Vec<u8> {
    let kinds = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, */*";
    let mut stream = TcpStream::connect(registry).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {registry}\r\nAccept: {kinds}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    assert!(head.starts_with("HTTP/1.1 200"), "{path}: {head}");
    answer.split_off(end + 4)
}

/// `make image` with FORGE_IMAGE_PUSH, of programs that are a few bytes each.
#[test]
fn images_are_pushed_byte_for_byte_and_what_is_in_them_is_found_from_them() {
    let sandbox = &Platform::shared().sandbox;
    let out = tempfile::tempdir().unwrap();
    let built = Architecture::ALL.map(|architecture| Built {
        architecture,
        forge: format!("forge for {architecture}").into_bytes(),
        helm: format!("helm for {architecture}").into_bytes(),
        crates: Vec::new(),
        modules: Vec::new(),
    });
    let shared = Shared { roots: "certificates".to_owned(), parts: Vec::new() };
    let all = images::write_built(&built, &shared, out.path(), Timestamp::UNIX_EPOCH).unwrap();
    let place = format!("pushed-{}", std::process::id());
    let references = images::push::push(out.path(), &format!("http://{}/{place}", sandbox.registry)).unwrap();
    assert_eq!((references.len(), all.len()), (2, 2));
    for made in &all {
        let repository = format!("/v2/{place}/{}", made.name);
        let manifest = |reference: &str| fetched(&sandbox.registry, &format!("{repository}/manifests/{reference}"));
        let by_digest = |digest: &Digest| {
            let bytes = manifest(digest.as_str());
            assert_eq!(Digest::of(&bytes), *digest);
            serde_json::from_slice::<Value>(&bytes).unwrap()
        };
        let wanted = format!("{}/{place}/{}@{}", sandbox.registry, made.name, made.digest);
        assert!(references.contains(&wanted), "{wanted}: {references:?}");
        // The version is the index, which has both processors.
        assert_eq!(Digest::of(&manifest(env!("CARGO_PKG_VERSION"))), made.digest);
        assert_eq!(by_digest(&made.digest)["manifests"].as_array().unwrap().len(), 2);
        for size in &made.sizes {
            by_digest(&size.digest);
            // From the digest of an image to its document, as the distribution specification has it where a registry knows
            // nothing of subjects.
            let listed = manifest(&size.digest.as_str().replace(':', "-"));
            let listed: Value = serde_json::from_slice(&listed).unwrap();
            assert_eq!(listed["manifests"][0]["digest"], size.sbom.as_str(), "{listed}");
            let artifact = by_digest(&size.sbom);
            assert_eq!(artifact["subject"]["digest"], size.digest.as_str(), "{artifact}");
            let layer = artifact["layers"][0]["digest"].as_str().unwrap();
            let document = fetched(&sandbox.registry, &format!("{repository}/blobs/{layer}"));
            assert_eq!(document, made.documents[&size.architecture]);
        }
    }
}
