//! Other programs: found, started with an environment that holds no surprises, watched, and their output kept.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use super::BuildError;
use super::progress::Progress;

/// Where system programs are that the `PATH` of a user or of `sudo` may lack.
const FURTHER: [&str; 5] = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"];

/// Variables that programs get from us: who and where the user is, and how the network is reached.
const KEPT: [&str; 20] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "TMPDIR",
    "XDG_CACHE_HOME",
    "XDG_RUNTIME_DIR",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NETRC",
    "SSH_AUTH_SOCK",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
];

/// How many of its last lines an error shows.
const TAIL: usize = 15;

/// How often progress is shown while a program is silent.
const TICK: Duration = Duration::from_millis(200);

/// The program of this name in `PATH`, in the system's folders, or in these.
pub(crate) fn find(name: &str, further: &[PathBuf]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders
        .into_iter()
        .chain(further.iter().cloned())
        .chain(FURTHER.iter().map(PathBuf::from))
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(name))
        .find(|program| is_program(program))
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// A command of this program with the variables that are kept, in the C locale. It is told to end when the thread that
/// starts it dies: a killed build leaves no compiler behind. Not by an interrupt, which programs started in the background
/// ignore.
pub(crate) fn command(program: &Path) -> Command {
    let mut command = match find("setpriv", &[]) {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "TERM", "--"]).arg(program);
            command
        }
        None => Command::new(program),
    };
    command.env_clear().env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
    for name in KEPT {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command
}

/// Where a step is built, and who is told.
pub(crate) struct Site<'a> {
    /// What is built.
    pub(crate) step: &'a str,
    /// The folder that becomes the entry.
    pub(crate) folder: &'a Path,
    /// Where output of programs is kept.
    pub(crate) log: &'a Path,
    /// Who is told.
    pub(crate) progress: &'a mut dyn Progress,
}

/// How a program ended.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    program: String,
    tail: Vec<String>,
}

impl Site<'_> {
    /// Runs a program to its end; its errors are lines of the log, its result is what it wrote to stdout.
    pub(crate) fn run(&mut self, command: &mut Command) -> Result<Vec<u8>, BuildError> {
        let ended = self.watch(command)?;
        if ended.status.success() { Ok(ended.stdout) } else { Err(self.failure(ended)) }
    }

    /// The same, where failing is not the end.
    pub(crate) fn watch(&mut self, command: &mut Command) -> Result<Ended, BuildError> {
        let program = name(command);
        let start = |error| BuildError::Start { program: program.clone(), error };
        let failed = |error| BuildError::file("write", self.log, error);
        let mut log = File::options().create(true).append(true).open(self.log).map_err(failed)?;
        writeln!(log, "$ {}", line(command)).map_err(failed)?;

        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(start)?;
        let (sender, lines) = mpsc::channel();
        let errors = child.stderr.take().map(|stderr| {
            thread::spawn(move || {
                for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
                    if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                        break;
                    }
                }
            })
        });
        let output = child.stdout.take().map(|mut stdout| {
            thread::spawn(move || {
                let mut bytes = Vec::new();
                stdout.read_to_end(&mut bytes).map(|_| bytes)
            })
        });

        let mut tail = VecDeque::new();
        let mut latest = String::new();
        loop {
            match lines.recv_timeout(TICK) {
                Ok(line) => {
                    // A log that cannot be written must not end a build that may succeed.
                    let _ = writeln!(log, "{line}");
                    latest.clone_from(&line);
                    tail.push_back(line);
                    if tail.len() > TAIL {
                        tail.pop_front();
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.progress.doing(&latest);
        }
        let status = child.wait().map_err(start)?;
        if let Some(thread) = errors {
            let _ = thread.join();
        }
        let stdout = output.and_then(|thread| thread.join().ok()).transpose().map_err(start)?.unwrap_or_default();
        Ok(Ended { status, stdout, program, tail: tail.into() })
    }

    /// Why a program failed, with the last lines that it wrote.
    pub(crate) fn failure(&self, ended: Ended) -> BuildError {
        let Ended { status, stdout, program, mut tail } = ended;
        if tail.is_empty() {
            tail = String::from_utf8_lossy(&stdout).lines().rev().take(TAIL).map(str::to_owned).collect();
            tail.reverse();
        }
        if tail.iter().any(|line| line.contains("no space left on device") || line.contains("No space left on device"))
        {
            return BuildError::DiskFull { path: self.folder.to_owned() };
        }
        let tail = tail.iter().map(|line| format!("\n  {}", forge_core::name::clean(line))).collect();
        BuildError::Failed { step: self.step.to_owned(), program, status, tail, log: self.log.to_owned() }
    }
}

/// Its words without the wrapper.
fn words(command: &Command) -> Vec<OsString> {
    let all: Vec<OsString> =
        std::iter::once(command.get_program()).chain(command.get_args()).map(OsString::from).collect();
    let wrapper =
        all.iter().position(|word| word == "--").filter(|_| all.get(1).is_some_and(|word| word == "--pdeathsig"));
    match wrapper {
        Some(at) => all.into_iter().skip(at + 1).collect(),
        None => all,
    }
}

fn name(command: &Command) -> String {
    let program = words(command).into_iter().next().map(PathBuf::from).unwrap_or_default();
    program.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn line(command: &Command) -> String {
    words(command).iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// The result of a quick question to a program, without a log.
pub(crate) fn ask(command: &mut Command) -> Result<String, BuildError> {
    let program = name(command);
    let output = command.output().map_err(|error| BuildError::Start { program: program.clone(), error })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(BuildError::Start { program, error: io::Error::other(reason) })
}

#[cfg(test)]
mod tests {
    use super::super::progress::Silent;
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = command(Path::new("/bin/sh"));
        command.args(["-c", script]);
        command
    }

    fn run(script: &str) -> (Result<Vec<u8>, BuildError>, String) {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let mut site = Site { step: "thing", folder: folder.path(), log: &log, progress: &mut Silent };
        let result = site.run(&mut shell(script));
        (result, std::fs::read_to_string(&log).unwrap())
    }

    #[test]
    fn what_a_program_prints_is_its_result_and_what_it_complains_about_is_logged() {
        let (result, log) = run("echo result; echo complaint >&2");
        assert_eq!(result.unwrap(), b"result\n");
        assert_eq!(log, "$ /bin/sh -c echo result; echo complaint >&2\ncomplaint\n");
    }

    #[test]
    fn a_failed_program_is_named_with_its_last_lines_and_its_log() {
        let (result, _) = run("seq 100 >&2; exit 3");
        let error = result.unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("failed to build `thing`: `sh` ended with exit status: 3"), "{text}");
        assert!(text.contains("\n  86\n") && text.contains("\n  100\n") && !text.contains("\n  85\n"), "{text}");
        assert!(text.contains("/log`"), "{text}");
    }

    #[test]
    fn a_compiler_that_meets_a_full_disk_is_a_full_disk() {
        let (result, _) = run("echo 'write /x: no space left on device' >&2; exit 1");
        assert!(matches!(result, Err(BuildError::DiskFull { .. })));
    }

    #[test]
    fn a_program_ends_with_the_thread_that_started_it() {
        let (sender, started) = mpsc::channel();
        let mut command = shell("trap '' INT; echo started; exec sleep 600");
        command.stdout(Stdio::piped());
        // It ends at once and leaves the program alone.
        thread::spawn(move || {
            let mut child = command.spawn().unwrap();
            let mut line = String::new();
            let mut stdout = BufReader::new(child.stdout.take().unwrap());
            stdout.read_line(&mut line).unwrap();
            sender.send((child, stdout)).unwrap();
        });
        let (mut child, _stdout) = started.recv().unwrap();
        use std::os::unix::process::ExitStatusExt as _;
        assert_eq!(child.wait().unwrap().signal(), Some(nix::sys::signal::Signal::SIGTERM as i32));
    }

    #[test]
    fn programs_see_no_variables_that_could_change_what_they_build() {
        let mut command = command(Path::new("/usr/bin/env"));
        let variables = ask(&mut command).unwrap();
        assert!(variables.contains("LC_ALL=C.UTF-8"));
        assert!(!variables.contains("CARGO_PKG_NAME"), "{variables}");
    }
}
