//! Other programs, run to their end: what they said is kept for the error, and none may run for ever.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A program that did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It could not be started.
    #[error("failed to start `{program}`: {source}")]
    Start {
        /// Its name.
        program: String,
        /// Why.
        source: std::io::Error,
    },
    /// It ended badly.
    #[error("`{command}` failed ({status}): {said}")]
    Failed {
        /// Name and arguments.
        command: String,
        /// How it ended.
        status: String,
        /// The last that it wrote to stderr.
        said: String,
    },
    /// It did not end in time.
    #[error("`{command}` did not end within {seconds} s")]
    Late {
        /// Name and arguments.
        command: String,
        /// The limit.
        seconds: u64,
    },
}

/// A program with its arguments, input and limit.
#[derive(Debug)]
pub struct Program {
    command: Command,
    input: Vec<u8>,
    limit: Duration,
}

impl Program {
    /// A program that may run for a minute.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self { command: Command::new(program), input: Vec::new(), limit: Duration::from_secs(60) }
    }

    /// One more argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// More arguments.
    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.command.args(args);
        self
    }

    /// A variable of its environment.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// What it reads from stdin.
    pub fn input(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.input = input.into();
        self
    }

    /// How long it may take.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Runs it and gives what it wrote to stdout.
    pub fn run(self) -> Result<String, ProgramError> {
        let line = self.line();
        let output = self.output()?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(ProgramError::Failed { command: line, status: output.status.to_string(), said: last_lines(&output.stderr) })
    }

    /// Runs it and gives everything, however it ended.
    pub fn output(mut self) -> Result<Output, ProgramError> {
        let line = self.line();
        let program = self.command.get_program().to_string_lossy().into_owned();
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().map_err(|source| ProgramError::Start { program, source })?;
        let writer = child.stdin.take().map(|mut stdin| {
            let input = std::mem::take(&mut self.input);
            // A program that does not read its input says why in its own way.
            thread::spawn(move || drop(stdin.write_all(&input)))
        });
        let stdout = child.stdout.take().map(collect);
        let stderr = child.stderr.take().map(collect);
        let Some(status) = wait(&mut child, self.limit) else {
            return Err(ProgramError::Late { command: line, seconds: self.limit.as_secs() });
        };
        let join = |reader: Option<thread::JoinHandle<Vec<u8>>>| {
            reader.and_then(|reader| reader.join().ok()).unwrap_or_default()
        };
        drop(writer);
        Ok(Output { status, stdout: join(stdout), stderr: join(stderr) })
    }

    fn line(&self) -> String {
        let words = std::iter::once(self.command.get_program()).chain(self.command.get_args());
        words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
    }
}

fn collect(mut stream: impl Read + Send + 'static) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        bytes
    })
}

/// Waits for a child; kills it when the limit has passed.
fn wait(child: &mut Child, limit: Duration) -> Option<std::process::ExitStatus> {
    let start = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if start.elapsed() < limit => thread::sleep(pause),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// The last lines of what a program said, in one line.
fn last_lines(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.get(lines.len().saturating_sub(3)..).unwrap_or_default().join("; ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn a_program_that_fails_is_quoted_with_its_last_words() {
        let error = Program::new("sh").args(["-c", "echo one >&2; echo two >&2; exit 7"]).run().unwrap_err();
        assert_eq!(error.to_string(), "`sh -c echo one >&2; echo two >&2; exit 7` failed (exit status: 7): one; two");
    }

    #[test]
    fn a_program_that_hangs_is_ended_at_its_limit() {
        let error = Program::new("sleep").arg("60").limit(Duration::from_millis(50)).run().unwrap_err();
        assert!(matches!(error, ProgramError::Late { .. }), "{error}");
    }

    #[test]
    fn input_larger_than_a_pipe_passes_through() {
        let input = "x".repeat(1 << 20);
        assert_eq!(Program::new("cat").input(input.clone()).run().unwrap(), input);
    }
}
