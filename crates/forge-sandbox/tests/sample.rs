//! The sample workload as pods run it: compiled for this machine, which takes less than for a container.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by panicking")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

static PROGRAM: LazyLock<(tempfile::TempDir, PathBuf)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("sample");
    let source = forge_testkit::checkout().join("sandbox/sample/main.rs");
    let mut rustc = Command::new("rustc");
    assert!(rustc.args(["--edition", "2024", "-o"]).arg(&program).arg(source).status().unwrap().success());
    (folder, program)
});

/// One that runs, on a port of its own.
struct Sample {
    process: Child,
    port: u16,
}

impl Sample {
    fn start(settings: &[(&str, &str)]) -> Self {
        // Free a moment ago, and nobody else here asks for a certain port.
        let port = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let mut command = Command::new(&PROGRAM.1);
        command.env_clear().env("PORT", port.to_string()).envs(settings.iter().copied()).stderr(Stdio::null());
        Self { process: command.spawn().unwrap(), port }
    }

    fn connect(&self) -> TcpStream {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match TcpStream::connect(("127.0.0.1", self.port)) {
                Ok(stream) => return stream,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            std::thread::yield_now();
        }
    }

    /// The answer to a request, as text.
    fn ask(&self, request: &str) -> String {
        let mut stream = self.connect();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn ready(&self) -> bool {
        let answer = self.ask("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 ") || answer.starts_with("HTTP/1.1 503 "), "{answer}");
        answer.starts_with("HTTP/1.1 200 ")
    }

    fn becomes(&self, ready: bool) {
        let deadline = Instant::now() + PATIENCE;
        while self.ready() != ready {
            assert!(Instant::now() < deadline, "it does not become ready = {ready}");
        }
    }

    fn end(mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::yield_now();
        }
    }

    fn tell_to_end(&self) {
        let pid = nix::unistd::Pid::from_raw(self.process.id().try_into().unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    }
}

impl Drop for Sample {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn it_answers_at_once_and_is_ready_when_its_time_has_come() {
    let started = Instant::now();
    let sample = Sample::start(&[("READY_AFTER", "700ms")]);
    assert!(!sample.ready() || started.elapsed() >= Duration::from_millis(700));
    sample.becomes(true);
    assert!(started.elapsed() >= Duration::from_millis(700));
}

#[test]
fn it_tells_who_it_is() {
    let sample = Sample::start(&[("NAME", "a \"b\""), ("VERSION", "v2"), ("HOSTNAME", "pod-1")]);
    let answer = sample.ask("GET / HTTP/1.1\r\n\r\n");
    assert!(answer.contains(r#"{"name":"a \"b\"","version":"v2","pod":"pod-1","uptimeSeconds":"#), "{answer}");
    assert!(sample.ask("POST / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
    assert!(sample.ask("GET /other HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    assert!(
        sample
            .ask(&format!("POST / HTTP/1.1\r\nContent-Length: 40000\r\n\r\n{}", "x".repeat(40_000)))
            .contains(" 405 ")
    );
    assert!(sample.ask(&format!("GET /{}", "x".repeat(20_000))).starts_with("HTTP/1.1 431 "));
}

#[test]
fn a_job_ends_with_0_once_it_is_ready_and_with_what_it_was_told_otherwise() {
    let once =
        |fail: &str| Sample::start(&[("RUN_ONCE", "true"), ("READY_AFTER", "100ms"), ("FAIL", fail)]).end().code();
    assert_eq!(once(""), Some(0));
    assert_eq!(once("exit=7"), Some(7));
    assert_eq!(once("crash"), Some(1));
    assert_eq!(once("crash-after=10ms"), Some(1));
    assert_eq!(once("burn"), Some(2));
}

#[test]
fn a_file_switches_failure_on_and_off_while_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("fail");
    let sample = Sample::start(&[("FAIL_FILE", file.to_str().unwrap())]);
    sample.becomes(true);
    std::fs::write(&file, "never-ready\n").unwrap();
    sample.becomes(false);
    std::fs::remove_file(&file).unwrap();
    sample.becomes(true);
    std::fs::write(&file, "exit=3").unwrap();
    assert_eq!(sample.end().code(), Some(3));
}

#[test]
fn it_ends_at_once_when_told_to_or_after_its_grace() {
    let sample = Sample::start(&[]);
    sample.becomes(true);
    sample.tell_to_end();
    assert_eq!(sample.end().code(), Some(0));

    let sample = Sample::start(&[("GRACE", "300ms")]);
    sample.becomes(true);
    let told = Instant::now();
    sample.tell_to_end();
    sample.becomes(false);
    assert_eq!(sample.end().code(), Some(0));
    assert!(told.elapsed() >= Duration::from_millis(300));
}

#[test]
fn clients_that_send_nothing_do_not_keep_others_from_an_answer() {
    let sample = Sample::start(&[]);
    let silent: Vec<TcpStream> = (0..200).map(|_| sample.connect()).collect();
    let asked = Instant::now();
    sample.becomes(true);
    // They would be dropped after five seconds; nobody waited for that.
    assert!(asked.elapsed() < Duration::from_secs(4), "{:?}", asked.elapsed());
    drop(silent);
}
