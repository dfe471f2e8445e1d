//! Programs that render (`helm`, `kustomize`), behind a port: no shell, arguments as they are, an environment that is ours
//! and the same on every machine, no way into the network, bounded time and output, and nothing that outlives us.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forge_core::code::Code;
use forge_core::failure::Failure;
use forge_core::name::clip;
use tempfile::TempDir;
use tokio::process::Command;

use crate::child::{self, Bounds, ChildError};
use crate::interrupt::Interrupts;

/// What one rendering may print: as much as a release may give Argo CD.
const MOST_OUTPUT: u64 = 64 << 20;
/// How long one rendering may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a program may take to end when it is told to.
const GRACE: Duration = Duration::from_secs(5);
/// Nobody listens here. Whatever a program would fetch it is sent here for: what is rendered lies in the source.
const NOWHERE: &str = "http://127.0.0.1:9";

/// Why a program gave nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProgramError {
    /// It is not there, or is no program.
    #[error("`{program}` cannot be started: {error}")]
    Missing {
        /// Which.
        program: String,
        /// Why not.
        error: io::Error,
    },
    /// It said no.
    #[error("`{what}` failed for `{layer}`: {said}")]
    Failed {
        /// What was asked for.
        what: &'static str,
        /// For which layer.
        layer: String,
        /// In its own words.
        said: String,
    },
    /// It did not end.
    #[error("`{what}` did not end within {seconds} s for `{layer}` and was killed")]
    TimedOut {
        /// What was asked for.
        what: &'static str,
        /// For which layer.
        layer: String,
        /// How long it was waited for.
        seconds: u64,
    },
    /// It did not stop talking.
    #[error("`{what}` wrote more than {MOST_OUTPUT} bytes for `{layer}` and was killed")]
    Flooded {
        /// What was asked for.
        what: &'static str,
        /// For which layer.
        layer: String,
    },
    /// Somebody told us to stop.
    #[error("interrupted")]
    Interrupted,
    /// It cannot be waited for.
    #[error("failed to work with `{what}`: {error}")]
    Machine {
        /// What was asked for.
        what: &'static str,
        /// Why not.
        error: io::Error,
    },
}

impl From<ProgramError> for Failure {
    fn from(error: ProgramError) -> Self {
        let hint = match &error {
            ProgramError::Missing { .. } => {
                "install it, or name it with --helm (FORGE_HELM) or --kustomize (FORGE_KUSTOMIZE)"
            }
            ProgramError::Failed { .. } => {
                "run it by hand to see more; nothing is fetched while rendering: charts and bases must lie in the source"
            }
            ProgramError::TimedOut { .. } | ProgramError::Flooded { .. } => "run it by hand and look at what it does",
            ProgramError::Interrupted | ProgramError::Machine { .. } => "run it again; nothing was written",
        };
        Self::new(Code::RenderFailed, &error).hint(hint)
    }
}

/// One rendering.
#[derive(Debug, Clone)]
pub(crate) struct Call<'c> {
    /// The program, as it was named.
    pub(crate) program: &'c Path,
    /// What it is, for messages: `helm template`.
    pub(crate) what: &'static str,
    /// What is rendered, for messages.
    pub(crate) layer: &'c str,
    /// What it is asked for.
    pub(crate) arguments: Vec<OsString>,
    /// The time zone that it finds itself in.
    pub(crate) zone: &'static str,
}

/// Where programs work: a home that is empty at first and gone when this is.
pub(crate) struct Workshop {
    home: TempDir,
    patience: Duration,
}

impl Workshop {
    /// An empty one.
    ///
    /// # Errors
    /// When no temporary folder can be made.
    pub(crate) fn open() -> Result<Self, Failure> {
        let home = tempfile::tempdir().map_err(|error| Failure::write("a temporary folder", &error))?;
        Ok(Self { home, patience: PATIENCE })
    }

    /// What a program prints.
    ///
    /// # Errors
    /// When it cannot be started, fails, does not end, or prints without end.
    pub(crate) async fn run(&self, call: &Call<'_>, interrupts: &mut Interrupts) -> Result<Vec<u8>, ProgramError> {
        let (what, layer) = (call.what, call.layer);
        let bounds = Bounds { time: self.patience, grace: GRACE, output: MOST_OUTPUT };
        child::output(self.command(call), bounds, interrupts).await.map_err(|error| match error {
            ChildError::Start(error) => {
                ProgramError::Missing { program: clip(&call.program.display().to_string()), error }
            }
            ChildError::Failed(said) => ProgramError::Failed { what, layer: layer.to_owned(), said },
            ChildError::TimedOut => {
                ProgramError::TimedOut { what, layer: layer.to_owned(), seconds: self.patience.as_secs() }
            }
            ChildError::Flooded => ProgramError::Flooded { what, layer: layer.to_owned() },
            ChildError::Interrupted => ProgramError::Interrupted,
            ChildError::Machine(error) => ProgramError::Machine { what, error },
        })
    }

    /// The program with an environment in which nothing of the user's is left.
    fn command(&self, call: &Call<'_>) -> Command {
        let home = self.home.path();
        let mut command = Command::new(call.program);
        command.args(&call.arguments).current_dir(home);
        command.env_clear().env("HOME", home).env("TMPDIR", home).env("LC_ALL", "C").env("TZ", call.zone);
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        // A file that is not there: a chart that looks into a cluster finds none.
        command.env("KUBECONFIG", home.join("no-kubeconfig"));
        let folders = [
            ("HELM_CACHE_HOME", "cache"),
            ("HELM_CONFIG_HOME", "config"),
            ("HELM_DATA_HOME", "data"),
            ("XDG_CACHE_HOME", "cache"),
            ("XDG_CONFIG_HOME", "config"),
        ];
        for (name, folder) in folders {
            command.env(name, home.join(folder));
        }
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"] {
            command.env(name, NOWHERE);
        }
        // What kustomize would fetch, it fetches by `git`.
        command.env("GIT_ALLOW_PROTOCOL", "none").env("GIT_TERMINAL_PROMPT", "0");
        command
    }
}

/// The program that is named: one with a slash is a path from here, others are looked for in the path.
pub(crate) fn named(given: Option<&Path>, otherwise: &str) -> PathBuf {
    let Some(given) = given else { return PathBuf::from(otherwise) };
    // It is started in another folder.
    if given.components().count() > 1 {
        std::path::absolute(given).unwrap_or_else(|_| given.to_owned())
    } else {
        given.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::Stdio;

    use super::*;
    use crate::runtime::block_on;

    /// Runs a script as if it were a program that renders.
    fn run(script: &str, patience: Duration) -> Result<Vec<u8>, ProgramError> {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        // Not written by this process: what another test starts meanwhile would hold the file open, and nobody could run it.
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "cat > \"$1\" && chmod 755 \"$1\"", "sh"]).arg(&program).stdin(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        shell.stdin.take().unwrap().write_all(format!("#!/bin/sh\n{script}\n").as_bytes()).unwrap();
        assert!(shell.wait().unwrap().success());
        block_on(async {
            let workshop = Workshop { patience, ..Workshop::open().unwrap() };
            let call = Call {
                program: &program,
                what: "helm template",
                layer: "dev",
                arguments: vec!["a b".into(), "$(id)".into()],
                zone: "UTC",
            };
            workshop.run(&call, &mut Interrupts::listen()).await
        })
        .unwrap()
    }

    #[test]
    fn arguments_are_passed_as_they_are_and_what_is_said_is_given() {
        let said = run("printf '%s|' \"$@\"", PATIENCE).unwrap();
        assert_eq!(String::from_utf8(said).unwrap(), "a b|$(id)|");
    }

    #[test]
    fn nothing_of_the_users_environment_is_left_and_nothing_can_be_fetched() {
        let said = String::from_utf8(run("env; cat \"$KUBECONFIG\" 2>&1; true", PATIENCE).unwrap()).unwrap();
        let value = |name: &str| said.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
        assert_eq!(value("TZ=").as_deref(), Some("UTC"));
        assert_eq!(value("HTTPS_PROXY=").as_deref(), Some(NOWHERE));
        assert_eq!(value("GIT_ALLOW_PROTOCOL=").as_deref(), Some("none"));
        assert_ne!(value("HOME="), std::env::var("HOME").ok());
        assert!(said.contains("No such file"), "{said}");
        // Cargo sets these for tests: none of them gets through.
        assert_eq!(value("CARGO_MANIFEST_DIR="), None);
    }

    #[test]
    fn why_it_failed_is_told_in_its_words_and_without_control_characters() {
        let script = "echo 'WARNING: old' >&2; printf 'Error: no \\033[2J so\\nbad' >&2; exit 1";
        let error = run(script, PATIENCE).unwrap_err();
        assert_eq!(error.to_string(), "`helm template` failed for `dev`: no \u{fffd}[2J so; bad");
        assert_eq!(Failure::from(error).code, Code::RenderFailed);
        let error = run("exit 3", PATIENCE).unwrap_err();
        assert_eq!(error.to_string(), "`helm template` failed for `dev`: it does not say why");
    }

    #[test]
    fn what_hangs_or_does_not_stop_talking_is_killed() {
        let error = run("sleep 300 & wait", Duration::from_millis(500)).unwrap_err();
        assert!(matches!(error, ProgramError::TimedOut { .. }), "{error}");
        let error = run("exec cat /dev/zero", PATIENCE).unwrap_err();
        assert!(matches!(error, ProgramError::Flooded { .. }), "{error}");
    }

    #[test]
    fn a_program_that_is_not_there_is_told() {
        let missing = block_on(async {
            let workshop = Workshop::open().unwrap();
            let (program, arguments) = (Path::new("/nowhere/helm"), Vec::new());
            let call = Call { program, what: "helm template", layer: "dev", arguments, zone: "UTC" };
            workshop.run(&call, &mut Interrupts::listen()).await
        });
        let error = missing.unwrap().unwrap_err();
        assert!(error.to_string().starts_with("`/nowhere/helm` cannot be started: "), "{error}");
    }

    #[test]
    fn a_path_is_taken_from_here_and_a_name_from_the_path() {
        assert_eq!(named(None, "helm"), Path::new("helm"));
        assert_eq!(named(Some(Path::new("helm4")), "helm"), Path::new("helm4"));
        assert!(named(Some(Path::new("./bin/helm")), "helm").is_absolute());
    }
}
