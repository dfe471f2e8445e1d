//! `forge adopt` from the API to the files, and the other commands on what it wrote. The API server is a stand-in that holds the
//! golden case of the core, refuses what a test wants refused, and notes every request: none may be anything but a GET.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

struct Server {
    kubeconfig: PathBuf,
    requests: Arc<Mutex<Vec<String>>>,
}

/// Serves the golden case; paths that contain one of `refused` are answered with 403, `absent` ones with 404.
fn serve(folder: &Path, refused: &'static [&'static str], absent: &'static [&'static str]) -> Server {
    let input = forge_testkit::checkout().join("crates/forge-core/tests/adopt/input.json");
    let input: Value = serde_json::from_str(&fs::read_to_string(input).unwrap()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let requests = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&requests);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, input, noted) = (stream.unwrap(), input.clone(), Arc::clone(&noted));
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                loop {
                    let mut first = String::new();
                    if reader.read_line(&mut first).unwrap_or(0) == 0 {
                        return;
                    }
                    let mut header = String::new();
                    while reader.read_line(&mut header).unwrap() > 2 {
                        header.clear();
                    }
                    noted.lock().unwrap().push(first.clone());
                    let path = first.split_whitespace().nth(1).unwrap();
                    let (code, body) = answer(path, &input, refused, absent);
                    let body = body.to_string();
                    let head = format!(
                        "HTTP/1.1 {code}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                        body.len()
                    );
                    if stream.write_all(format!("{head}{body}").as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    let kubeconfig = folder.join("kubeconfig");
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "c", "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "test", "context": {"cluster": "c", "user": "u"}}],
    });
    fs::write(&kubeconfig, text.to_string()).unwrap();
    Server { kubeconfig, requests }
}

fn answer(uri: &str, input: &Value, refused: &[&str], absent: &[&str]) -> (&'static str, Value) {
    let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
    let status = |code: u16, message: &str| json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message, "reason": "x"});
    if refused.iter().any(|part| path.contains(part)) {
        return ("403 Forbidden", status(403, &format!("{path} is forbidden")));
    }
    let missing = ("404 Not Found", status(404, "not found"));
    if absent.iter().any(|part| path.contains(part)) {
        return missing;
    }
    let name = match path.rsplit('/').next().unwrap() {
        "applications" => "applications",
        "applicationsets" => "applicationSets",
        "appprojects" => "projects",
        "customresourcedefinitions" => "definitions",
        _ => return missing,
    };
    let selector = query.split('&').find_map(|part| part.strip_prefix("labelSelector=")?.split_once("%3D"));
    let fits = |item: &&Value| selector.is_none_or(|(key, value)| item["metadata"]["labels"][key] == value);
    let all: Vec<&Value> = input[name].as_array().unwrap().iter().filter(fits).collect();
    // Two pages, so that a client that reads one only is found out.
    let middle = all.len() / 2;
    let (items, rest) = if query.contains("continue=next") { (&all[middle..], "") } else { (&all[..middle], "next") };
    ("200 OK", json!({"apiVersion": "v1", "kind": "List", "metadata": {"continue": rest}, "items": items}))
}

fn forge(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["60", env!("CARGO_BIN_EXE_forge")]).args(arguments).current_dir(folder).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", folder).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn adopt(folder: &Path, server: &Server, more: &[&str]) -> Output {
    let mut arguments = vec!["adopt", "platform", "--kubeconfig", server.kubeconfig.to_str().unwrap()];
    arguments.extend(more);
    forge(folder, &arguments)
}

#[test]
fn what_is_written_lints_and_can_be_shown_planned_and_simulated() {
    let home = tempfile::tempdir().unwrap();
    let server = serve(home.path(), &[], &[]);
    let output = adopt(home.path(), &server, &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let golden = forge_testkit::checkout().join("crates/forge-core/tests/adopt/expected");
    for name in ["forge.yaml", "graph.yaml", "ADOPTED.md"] {
        let written = fs::read_to_string(home.path().join("platform").join(name)).unwrap();
        assert_eq!(written, fs::read_to_string(golden.join(name)).unwrap(), "{name}");
    }
    let shown = text(&output.stdout);
    assert!(shown.starts_with("platform: 31 Applications in 17 stacks\n"), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
    for arguments in [
        &["lint"][..],
        &["graph", "--environment", "platform"],
        &["plan", "--offline", "--environment", "platform"],
        &["plan", "--offline", "--environment", "platform", "--show", "workflow"],
        &["plan", "--simulate", "--environment", "platform"],
    ] {
        let output = forge(&home.path().join("platform"), arguments);
        assert!(output.status.success(), "{arguments:?}\n{}{}", text(&output.stdout), text(&output.stderr));
    }
    let requests = server.requests.lock().unwrap();
    assert!(!requests.is_empty() && requests.iter().all(|request| request.starts_with("GET ")), "{requests:?}");
}

#[test]
fn adopting_again_changes_nothing_and_another_folder_is_not_touched() {
    let home = tempfile::tempdir().unwrap();
    let server = serve(home.path(), &[], &[]);
    assert!(adopt(home.path(), &server, &[]).status.success());
    let output = adopt(home.path(), &server, &[]);
    assert!(output.status.success());
    assert!(!text(&output.stderr).contains("wrote"), "{}", text(&output.stderr));
    let graph = home.path().join("platform/graph.yaml");
    fs::write(&graph, fs::read_to_string(&graph).unwrap() + "# mine\n").unwrap();
    let output = adopt(home.path(), &server, &[]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("holds `graph.yaml` already"));
    assert!(fs::read_to_string(&graph).unwrap().ends_with("# mine\n"));
}

#[test]
fn what_may_not_be_read_is_told_and_the_rest_is_adopted() {
    let home = tempfile::tempdir().unwrap();
    let refused =
        &["/v1alpha1/applications", "applicationsets", "appprojects", "customresourcedefinitions", "configmaps"];
    let server = serve(home.path(), refused, &[]);
    let output = adopt(home.path(), &server, &["--output", "json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let unread = answer["hazards"].as_array().unwrap().iter().filter(|hazard| hazard["kind"] == "unread");
    let about: Vec<&str> = unread.map(|hazard| hazard["about"].as_str().unwrap()).collect();
    let all =
        ["AppProjects", "ApplicationSets", "ConfigMap argocd-cm", "CustomResourceDefinitions", "other namespaces"];
    assert_eq!(about, all);
    assert!(forge(&home.path().join("platform"), &["lint"]).status.success());
}

#[test]
fn a_cluster_without_argo_cd_or_without_rights_is_no_empty_platform() {
    let home = tempfile::tempdir().unwrap();
    for (refused, absent, code, message) in
        [(&["applications"][..], &[][..], 6, "is forbidden"), (&[], &["argoproj.io"], 3, "there is no Argo CD in it")]
    {
        let server = serve(home.path(), refused, absent);
        let output = adopt(home.path(), &server, &[]);
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains(message), "{}", text(&output.stderr));
        assert!(!home.path().join("platform").exists());
    }
    let server = serve(home.path(), &[], &[]);
    let output = adopt(home.path(), &server, &["--project", "nobody"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("no Application fits the selection"));
}

#[test]
fn a_selector_chooses_nodes_and_what_it_leaves_out_is_still_seen() {
    let home = tempfile::tempdir().unwrap();
    let server = serve(home.path(), &[], &[]);
    let output = adopt(home.path(), &server, &["--selector", "tenant=a", "--output", "json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&answer["summary"]["applications"], &answer["summary"]["leftOut"]), (&json!(1), &json!(31)));
    let of_kind = |kind: &str| -> Vec<&str> {
        let hazards = answer["hazards"].as_array().unwrap().iter().filter(|hazard| hazard["kind"] == kind);
        hazards.map(|hazard| hazard["about"].as_str().unwrap()).collect()
    };
    assert_eq!(of_kind("outside-selection"), ["Application argocd/tenant-a"]);
    assert_eq!(of_kind("wave-between-applications"), ["Application argocd/root"]);
    assert!(of_kind("wave-without-parent").is_empty());
    assert!(forge(&home.path().join("platform"), &["lint"]).status.success());
    let server = serve(home.path(), &[], &[]);
    let output = adopt(home.path(), &server, &["--dry-run", "--selector", "tenant=nobody"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("no Application fits the selection"));
}

#[test]
fn a_dry_run_prints_and_writes_nothing() {
    let home = tempfile::tempdir().unwrap();
    let server = serve(home.path(), &[], &[]);
    let output = adopt(home.path(), &server, &["--dry-run", "--environment", "prod", "--project", "data"]);
    assert!(output.status.success());
    let shown = text(&output.stdout);
    assert!(shown.contains("==> graph.yaml <==") && shown.contains("name: prod") && shown.contains("protected: true"));
    assert!(!home.path().join("platform").exists());
}
