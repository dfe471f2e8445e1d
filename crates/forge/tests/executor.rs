//! `executor` through the real binary under its own name, without a cluster: every exit code that can be reached so, and what
//! is told to others on the way. On a real cluster: `tests/runs/executor.rs`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use forge_testkit::http::{Request, reply};
use serde_json::{Value, json};

const FORGE: &str = "apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: Forge\nspec:\n  repository: {url: https://git.example.com/p.git}\n  argo: {cd: existing, workflows: existing, events: none}\n  environments: [{name: dev, cluster: in-cluster, sync: manual}]\n";
const GRAPH: &str = "apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: DependencyGraph\nspec:\n  stacks: [{name: base, apps: [{application: argocd/one}]}]\n";

/// A folder with a repository, a file that is to be mounted, and the binary under its name.
struct Home {
    folder: tempfile::TempDir,
}

fn git(folder: &Path, arguments: &[&str]) {
    let status = Command::new("git")
        .current_dir(folder)
        .args(["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main"])
        .args(arguments)
        .status()
        .unwrap();
    assert!(status.success(), "{arguments:?}");
}

impl Home {
    fn new() -> Self {
        let home = Self { folder: tempfile::tempdir().unwrap() };
        let repository = home.path("repository");
        fs::create_dir(&repository).unwrap();
        fs::write(repository.join("forge.yaml"), FORGE).unwrap();
        fs::write(repository.join("graph.yaml"), GRAPH).unwrap();
        git(&repository, &["init", "-q"]);
        git(&repository, &["add", "."]);
        git(&repository, &["commit", "-q", "-m", "one"]);
        symlink(env!("CARGO_BIN_EXE_forge"), home.path("executor")).unwrap();
        home.write("environment.yaml", &home.environment("main"));
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> String {
        fs::write(self.path(name), text).unwrap();
        self.path(name).display().to_string()
    }

    fn environment(&self, revision: &str) -> String {
        let repository = self.path("repository");
        format!(
            "name: dev\ndomain: dev.example.com\ngitRepository: file://{}\ngitRevision: {revision}\n",
            repository.display()
        )
    }

    /// `executor deploy` with nothing but these variables and flags.
    fn deploy(&self, variables: &[(&str, &str)], flags: &[&str]) -> Command {
        let mut command = Command::new(self.path("executor"));
        let (config, secrets) = (self.path("environment.yaml"), self.path("secrets"));
        command.arg("deploy").arg("--config").arg(config).arg("--secrets").arg(secrets);
        command.args(["--metrics-listen", "127.0.0.1:0"]).args(flags);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("TMPDIR", self.folder.path());
        command.envs(variables.iter().copied());
        command
    }

    /// Ends with this code; gives what it wrote.
    fn ends(&self, code: i32, variables: &[(&str, &str)], flags: &[&str]) -> (String, String) {
        told(&self.deploy(variables, flags).output().unwrap(), code)
    }
}

fn told(output: &Output, code: i32) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{out}\n{err}");
    (out, err)
}

type Requests = Arc<Mutex<Vec<(String, String)>>>;

/// Remembers what it is asked, and answers everything with this.
fn serve(code: u16, body: &Value) -> (String, Requests) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (requests, body) = (Requests::default(), body.to_string());
    let kept = requests.clone();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let Some(request) = Request::read(&stream) else { continue };
            let asked = format!("{} {}", request.method, request.uri);
            kept.lock().unwrap().push((asked, String::from_utf8(request.body).unwrap()));
            reply(&stream, code, &[], &body);
        }
    });
    (address, requests)
}

/// A kubeconfig for this server, in base64.
fn kubeconfig(server: &str) -> String {
    use base64::Engine as _;
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": server}}],
        "users": [{"name": "test", "user": {}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    });
    base64::engine::general_purpose::STANDARD.encode(text.to_string())
}

#[test]
fn help_and_version_are_no_failures_and_what_is_not_understood_is_3() {
    let home = Home::new();
    let run = |arguments: &[&str]| Command::new(home.path("executor")).args(arguments).env_clear().output().unwrap();
    assert_eq!(told(&run(&["--version"]), 0).0, "executor 0.1.0\n");
    let help = told(&run(&["deploy", "--help"]), 0).0;
    for wanted in ["--target-scope", "--git-revision", "--otlp-endpoint", "--report-junit"] {
        assert!(help.contains(wanted), "{wanted}\n{help}");
    }
    told(&run(&[]), 3);
    told(&run(&["deploy", "--unknown"]), 3);
    let help = told(&run(&["validate", "--help"]), 0).0;
    assert!(help.contains("--report-html") && help.contains("--stale-after"), "{help}");
    let help = told(&run(&["teardown", "--help"]), 0).0;
    assert!(help.contains("--confirm") && help.contains("--release-finalizer"), "{help}");
}

#[test]
fn a_teardown_that_nobody_confirmed_is_3_and_asks_no_cluster() {
    let home = Home::new();
    let (server, requests) = serve(200, &json!({}));
    let data = kubeconfig(&server);
    let teardown = |variables: &[(&str, &str)]| {
        let mut command = Command::new(home.path("executor"));
        command.args(["teardown", "--metrics-listen", "127.0.0.1:0", "--config"]).arg(home.path("environment.yaml"));
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("TMPDIR", home.folder.path());
        command.env("ENVIRONMENT", "dev").env("KUBECONFIG_DATA", &data).envs(variables.iter().copied());
        told(&command.output().unwrap(), 3).1
    };
    assert!(teardown(&[]).contains("CONFIRM: FORGE-X002 is needed and not given"));
    let other = teardown(&[("CONFIRM", "staging")]);
    assert!(other.contains("CONFIRM: FORGE-X003 confirms `staging`, and ENVIRONMENT says `dev`"), "{other}");
    let finalizer = teardown(&[("CONFIRM", "dev"), ("RELEASE_FINALIZER", "everything")]);
    assert!(finalizer.contains("RELEASE_FINALIZER: FORGE-X001 `everything` names no object"), "{finalizer}");
    assert!(requests.lock().unwrap().is_empty());
}

#[test]
fn inputs_that_cannot_be_used_are_all_told_with_their_source_and_the_exit_code_is_3() {
    let home = Home::new();
    home.write("environment.yaml", &home.environment("main").replace("domain: dev", "domain: DEV"));
    let wrong = [("ENVIRONMENT", "dev"), ("LOG_LEVEL", "loud"), ("DRY_RUN", ""), ("SPAN_ID", "00f067aa0ba902b7")];
    let (out, err) = home.ends(3, &wrong, &["--target-scope", "all"]);
    assert_eq!(out, "");
    let file = home.path("environment.yaml").display().to_string();
    for line in [
        format!("{file}:2:9: FORGE-F004 domain: `DEV.example.com` is not a domain"),
        "--target-scope: FORGE-X001 `all` is not a scope".to_owned(),
        "DRY_RUN: FORGE-X001 is empty".to_owned(),
        "LOG_LEVEL: FORGE-X001 is `loud`; allowed are".to_owned(),
        "SPAN_ID: FORGE-X003 a parent span without a trace".to_owned(),
        "5 things are wrong with the inputs; nothing was written".to_owned(),
    ] {
        assert!(err.contains(&line), "{line}\n{err}");
    }
    // What must be said is not guessed, and a file of another environment is not used.
    home.write("environment.yaml", &home.environment("main"));
    assert!(home.ends(3, &[], &[]).1.contains("ENVIRONMENT: FORGE-X002 is needed and not given"));
    let other = home.ends(3, &[("ENVIRONMENT", "staging")], &[]).1;
    assert!(other.contains("this file is of `dev`, and ENVIRONMENT says `staging`"), "{other}");
    // Variables of `forge` are not those of `executor`.
    assert!(home.ends(3, &[("FORGE_ENVIRONMENT", "dev")], &[]).1.contains("ENVIRONMENT: FORGE-X002"));
    let report = home.path("report").display().to_string();
    let twice = home.ends(3, &[("ENVIRONMENT", "dev")], &["--report-json", &report, "--report-text", &report]).1;
    assert!(twice.contains("FORGE-X003 two reports would be written to"), "{twice}");
    let gone = home.path("gone.yaml").display().to_string();
    assert!(home.ends(3, &[("ENVIRONMENT", "dev")], &["--dag", &gone]).0.contains("FORGE-Y007"));
}

#[test]
fn what_the_repository_says_otherwise_and_what_is_wrong_with_it_is_3_and_there_is_a_report() {
    let home = Home::new();
    let dev = [("ENVIRONMENT", "dev"), ("LOG_FORMAT", "json")];
    let (out, err) = home.ends(3, &dev, &["--cluster-name", "other", "--output", "json"]);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&report["verdict"], &report["exit"], &report["run"]), (&json!("failed"), &json!(3), &json!("")));
    assert!(report["message"].as_str().unwrap().starts_with("FORGE-X003"), "{report}");
    assert!(err.contains("is `other`, and forge.yaml of environment `dev` says `in-cluster`"), "{err}");
    let (_, err) = home.ends(3, &dev, &["--git-revision", "nothing"]);
    assert!(err.contains("FORGE-X006") && err.contains("has no branch, no tag and no commit `nothing`"), "{err}");
    // A graph for this run is checked like that of the repository, and told by its own name.
    let dag = home.write("dag.yaml", &GRAPH.replace("argocd/one}", "argocd/one, dependsOn: [argocd/two]}"));
    let (out, err) = home.ends(3, &dev, &["--dag", &dag, "--output", "json"]);
    assert!(err.contains(&format!("{dag}:4:")) && err.contains("FORGE-G002"), "{err}");
    // Whoever has only the report knows where and what, too.
    let report: Value = serde_json::from_str(&out).unwrap();
    let found = &report["findings"][0];
    assert_eq!(found["code"], "FORGE-G002", "{report}");
    assert!(found["place"].as_str().unwrap().starts_with(&format!("{dag}:4:")), "{report}");
    let over = "apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: GraphOverride\nspec: {only: [argocd/three]}\n";
    let dag = home.write("dag.yaml", over);
    let (_, err) = home.ends(3, &dev, &["--dag", &dag]);
    assert!(err.contains(&dag), "{err}");
    // Nothing is left of what was read.
    let left = fs::read_dir(home.folder.path()).unwrap().flatten().map(|entry| entry.file_name());
    let left: Vec<String> = left.map(|name| name.into_string().unwrap()).collect();
    assert!(left.iter().all(|name| !name.starts_with("forge-executor-")), "{left:?}");
}

#[test]
fn a_repository_that_does_not_answer_is_1_and_logs_report_figures_and_traces_agree() {
    let home = Home::new();
    let url = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}/p.git", listener.local_addr().unwrap())
    };
    let (collector, spans) = serve(200, &json!({}));
    let (gateway, pushed) = serve(202, &json!({}));
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let variables = [
        ("ENVIRONMENT", "dev"),
        ("LOG_FORMAT", "json"),
        ("LOG_LEVEL", "debug"),
        ("TRACE_ID", trace),
        ("SPAN_ID", "00f067aa0ba902b7"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.as_str()),
        ("METRICS_PUSH_URL", gateway.as_str()),
    ];
    let junit = home.path("report.xml").display().to_string();
    let (out, err) = home.ends(1, &variables, &["--report-junit", &junit, "--git-repository", &url]);
    assert!(out.starts_with("no run of dev, scope platform: failed\n"), "{out}");
    assert!(fs::read_to_string(junit).unwrap().contains("errors=\"1\""));
    let lines: Vec<Value> = err.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for line in &lines {
        let keys: Vec<&str> = line.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(
            keys,
            ["timestamp", "level", "action", "phase", "component", "message", "trace_id", "span_id"],
            "{line}"
        );
        assert_eq!((&line["action"], &line["trace_id"]), (&json!("deploy"), &json!(trace)));
    }
    let error = lines.iter().find(|line| line["level"] == "error").unwrap();
    assert!(error["message"].as_str().unwrap().starts_with("FORGE-X005 failed to read `http://127.0.0.1:"), "{error}");
    let told: Vec<Value> = spans
        .lock()
        .unwrap()
        .iter()
        .flat_map(|(request, body)| {
            assert_eq!(request, "POST /v1/traces");
            let body: Value = serde_json::from_str(body).unwrap();
            body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone()
        })
        .collect();
    let named = |name: &str| told.iter().find(|span| span["name"] == name).unwrap_or_else(|| panic!("{told:?}"));
    let (root, read) = (named("deploy dev"), named("read"));
    assert_eq!((&root["traceId"], &root["parentSpanId"]), (&json!(trace), &json!("00f067aa0ba902b7")));
    assert_eq!((&read["parentSpanId"], &read["status"]["code"]), (&root["spanId"], &json!(2)));
    assert_eq!(lines[0]["span_id"], root["spanId"]);
    let (request, figures) = pushed.lock().unwrap().last().unwrap().clone();
    assert_eq!(request, "PUT /metrics/job/forge-executor/environment/dev");
    for line in [
        "executor_action_status{action=\"deploy\",phase=\"all\",status=\"failed\"} 1",
        "executor_action_status{action=\"deploy\",phase=\"read\",status=\"failed\"} 1",
        "executor_action_duration_seconds_count{action=\"deploy\",phase=\"all\"} 1",
        "executor_errors_total{class=\"transient\"} 1",
    ] {
        assert!(figures.lines().any(|found| found == line), "{line}\n{figures}");
    }
}

#[test]
fn a_collector_and_a_gateway_that_are_not_there_change_nothing() {
    let home = Home::new();
    let gone = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    let variables =
        [("ENVIRONMENT", "dev"), ("OTEL_EXPORTER_OTLP_ENDPOINT", gone.as_str()), ("METRICS_PUSH_URL", gone.as_str())];
    let (_, err) = home.ends(3, &variables, &["--git-revision", "nothing"]);
    assert!(err.contains("2 spans did not reach the collector"), "{err}");
    assert!(err.contains("figures did not reach the Pushgateway"), "{err}");
}

#[test]
fn a_cluster_that_lets_nobody_in_is_6_one_that_is_not_there_1_and_a_kubeconfig_that_is_none_3() {
    let home = Home::new();
    let denied = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "reason": "Forbidden",
        "message": "configmaps is forbidden",
    });
    let (server, requests) = serve(403, &denied);
    let data = kubeconfig(&server);
    let (out, err) = home.ends(6, &[("ENVIRONMENT", "dev"), ("KUBECONFIG_DATA", &data)], &["--output", "json"]);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["exit"], 6, "{report}\n{err}");
    let asked = requests.lock().unwrap().clone();
    assert!(!asked.is_empty() && asked.iter().all(|(request, _)| request.starts_with("GET ")), "{asked:?}");
    let gone = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        kubeconfig(&format!("http://{}", listener.local_addr().unwrap()))
    };
    let (_, err) = home.ends(1, &[("ENVIRONMENT", "dev"), ("KUBECONFIG_DATA", &gone)], &[]);
    assert!(err.contains("FORGE-D001"), "{err}");
    let (_, err) = home.ends(3, &[("ENVIRONMENT", "dev"), ("KUBECONFIG_DATA", "hunter2")], &[]);
    assert!(err.contains("KUBECONFIG_DATA is not base64 of a kubeconfig") && !err.contains("hunter2"), "{err}");
    // Without any, the account of the pod is meant, and there is no pod here.
    let (_, err) = home.ends(3, &[("ENVIRONMENT", "dev")], &[]);
    assert!(err.contains("FORGE-C005") && err.contains("run it in a pod with an account"), "{err}");
}

#[test]
fn what_says_how_the_registry_of_releases_is_reached_is_found_unusable_before_a_cluster_is_asked() {
    let home = Home::new();
    let repository = home.path("repository");
    let header = "apiVersion: forge.projectcatalyst.io/v1alpha1\n";
    let project = repository.join("dev/apps/shop/api");
    fs::create_dir_all(&project).unwrap();
    let forge = FORGE.replace("spec:\n", "spec:\n  registry: registry.example.com/releases\n");
    fs::write(repository.join("forge.yaml"), forge).unwrap();
    fs::write(repository.join("graph.yaml"), GRAPH.replace("application: argocd/one", "project: shop/api")).unwrap();
    let (release, digest) = ("a".repeat(40), format!("sha256:{}", "b".repeat(64)));
    let spec = format!("spec: {{release: \"{release}\", digest: \"{digest}\"}}\n");
    let pointer = format!("{header}kind: ReleasePointer\nmetadata: {{name: api}}\n{spec}");
    fs::write(project.join("release.yaml"), pointer).unwrap();
    git(&repository, &["add", "."]);
    git(&repository, &["commit", "-q", "-m", "a release"]);
    let (server, requests) =
        serve(403, &json!({"kind": "Status", "code": 403, "message": "no", "reason": "Forbidden"}));
    let data = kubeconfig(&server);
    let (nonsense, nowhere) = (home.write("nonsense", "hunter2"), home.path("nowhere").display().to_string());
    for (variable, value) in [
        ("REGISTRY_CA", &nowhere),
        ("REGISTRY_CA", &nonsense),
        ("REGISTRY_CONFIG", &nowhere),
        ("REGISTRY_CONFIG", &nonsense),
    ] {
        let given = [("ENVIRONMENT", "dev"), ("KUBECONFIG_DATA", data.as_str()), (variable, value.as_str())];
        let (_, err) = home.ends(3, &given, &[]);
        assert!(!err.contains("hunter2") && requests.lock().unwrap().is_empty(), "{variable} {value}: {err}");
    }
    // With what can be used it goes on.
    let empty = home.write("config.json", "{}");
    let given = [("ENVIRONMENT", "dev"), ("KUBECONFIG_DATA", data.as_str()), ("REGISTRY_CONFIG", empty.as_str())];
    home.ends(6, &given, &[]);
    assert!(!requests.lock().unwrap().is_empty());
}

#[test]
fn told_to_stop_before_there_is_a_run_it_stops_says_so_and_ends_with_2() {
    let home = Home::new();
    // Takes every connection and never says a word.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/p.git", silent.local_addr().unwrap());
    let log = home.path("stderr");
    let mut command =
        home.deploy(&[("ENVIRONMENT", "dev"), ("LOG_LEVEL", "debug")], &["--git-repository", &url, "-o", "json"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(fs::File::create(&log).unwrap());
    let child = command.spawn().unwrap();
    // It waits for an answer when it has asked.
    let (_connection, _) = silent.accept().unwrap();
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    let started = Instant::now();
    let output = child.wait_with_output().unwrap();
    assert!(started.elapsed() < Duration::from_secs(30));
    let said = fs::read_to_string(&log).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["verdict"], &report["exit"]), (&json!("cancelled"), &json!(2)), "{report}");
    assert!(said.contains("told to stop before there was a run"), "{said}");
}

#[test]
fn a_report_that_cannot_be_written_does_not_pass_for_one() {
    let home = Home::new();
    let nowhere = home.path("nowhere/report.json").display().to_string();
    let (out, err) = home.ends(3, &[("ENVIRONMENT", "dev")], &["--git-revision", "nothing", "--report-json", &nowhere]);
    assert!(out.contains("no run of dev") && err.contains("FORGE-C004 failed to write"), "{err}");
}
