//! Programs of others that are started for what they print (`helm`, `kustomize`): no shell, bounded time and output, a group of
//! processes of their own, and nothing that outlives us. What they are started with is the caller's.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use forge_core::name::{clean, cut};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;

use crate::interrupt::Interrupts;

/// What is kept of complaints.
const MOST_COMPLAINTS: usize = 16 << 10;
/// What of them is shown.
const SHOWN: usize = 1000;

/// What a program may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// How long it may take.
    pub(crate) time: Duration,
    /// How long it may take to end when it is told to.
    pub(crate) grace: Duration,
    /// Bytes that it may print.
    pub(crate) output: u64,
}

/// Why a program gave nothing.
#[derive(Debug)]
pub(crate) enum ChildError {
    /// It cannot be started.
    Start(io::Error),
    /// It said no, in its own words.
    Failed(String),
    /// It did not end, and was killed.
    TimedOut,
    /// It did not stop talking, and was killed.
    Flooded,
    /// Somebody told us to stop, and we told it.
    Interrupted,
    /// It cannot be waited for.
    Machine(io::Error),
}

/// What a program prints, if it ends well.
///
/// # Errors
/// When it cannot be started, fails, does not end, or prints without end.
pub(crate) async fn output(
    mut command: Command,
    bounds: Bounds,
    interrupts: &mut Interrupts,
) -> Result<Vec<u8>, ChildError> {
    command.process_group(0).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(ChildError::Start)?;
    let mut group = Group(child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw));
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let work = async {
        let complaints = async { Ok::<_, ChildError>(tail(stderr).await) };
        let ended = async { child.wait().await.map_err(ChildError::Machine) };
        tokio::try_join!(whole(stdout, bounds.output), complaints, ended)
    };
    let mut work = std::pin::pin!(work);
    let outcome = tokio::select! {
        outcome = &mut work => outcome,
        () = tokio::time::sleep(bounds.time) => Err(ChildError::TimedOut),
        () = interrupts.heard() => {
            group.signal(Signal::SIGTERM);
            let _ = tokio::time::timeout(bounds.grace, &mut work).await;
            Err(ChildError::Interrupted)
        }
    };
    // What did not end by itself is killed when the group is dropped.
    let (said, complaints, status) = outcome?;
    group.ended();
    if status.success() {
        return Ok(said);
    }
    Err(ChildError::Failed(complaint(&String::from_utf8_lossy(&complaints))))
}

/// Everything that is said, unless it is too much.
async fn whole(from: Option<impl AsyncRead + Unpin>, most: u64) -> Result<Vec<u8>, ChildError> {
    let mut bytes = Vec::new();
    let Some(from) = from else { return Ok(bytes) };
    let mut limited = from.take(most + 1);
    limited.read_to_end(&mut bytes).await.map_err(ChildError::Machine)?;
    match u64::try_from(bytes.len()) {
        Ok(length) if length <= most => Ok(bytes),
        _ => Err(ChildError::Flooded),
    }
}

/// The end of what is said; all of it is taken, so that nobody waits for a reader.
async fn tail(from: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut kept = Vec::new();
    let Some(mut from) = from else { return kept };
    let mut piece = vec![0; 4 << 10];
    while let Ok(length) = from.read(&mut piece).await {
        if length == 0 {
            break;
        }
        kept.extend_from_slice(piece.get(..length).unwrap_or_default());
        if kept.len() > 2 * MOST_COMPLAINTS {
            kept.drain(..kept.len() - MOST_COMPLAINTS);
        }
    }
    kept
}

/// What a program says last is why; warnings stand before it.
fn complaint(said: &str) -> String {
    let from = said.rfind("Error: ").map_or(0, |at| at + "Error: ".len());
    let lines = said.get(from..).unwrap_or(said).lines().map(str::trim).filter(|line| !line.is_empty());
    let text = lines.collect::<Vec<_>>().join("; ");
    if text.is_empty() {
        return "it does not say why".to_owned();
    }
    cut(&clean(&text), SHOWN).into_owned()
}

/// The processes that were started, all of which end with us.
struct Group(Option<Pid>);

impl Group {
    fn signal(&self, signal: Signal) {
        if let Some(group) = self.0 {
            // Gone already is as good.
            let _ = killpg(group, signal);
        }
    }

    fn ended(&mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
    }
}
