//! PID 1 of a sandbox: starts what it is told to, reaps everything, and knows how each component ended.
//!
//! It decides nothing: `up` says what to start and judges what is healthy. It restarts nothing by itself, so that `status`
//! shows a dead component as dead.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::wait::{WaitStatus, waitpid};
use serde::{Deserialize, Serialize};

use crate::folder::{Folder, InitRecord};
use crate::namespace::{self, NamespaceError};
use crate::process;

/// Where it listens, as its own processes see it.
const SOCKET: &str = "/run/init.sock";

/// How long a component that was killed may take to be gone; less than a client waits for an answer.
const KILLED: Duration = Duration::from_secs(15);

/// What cannot be asked of PID 1.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// It does not answer.
    #[error("the first process of the sandbox does not answer: {0}")]
    Silent(#[from] io::Error),
    /// It answers something else.
    #[error("the first process of the sandbox answers nonsense: {0}")]
    Nonsense(#[from] serde_json::Error),
    /// It could not do it.
    #[error("failed to start {name}: {why}")]
    Refused {
        /// The component.
        name: String,
        /// Why not.
        why: String,
    },
}

/// A component to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// Of the component.
    pub name: String,
    /// The file to run.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its whole environment.
    pub env: BTreeMap<String, String>,
    /// Where stdout and stderr go.
    pub log: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Request {
    Start(Start),
    Kill(String),
    List,
}

/// What PID 1 knows of a component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Child {
    /// Its process id in the sandbox.
    pub pid: i32,
    /// How it ended, if it did.
    pub ended: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Reply {
    Children(BTreeMap<String, Child>),
    Refused(String),
}

/// The way to talk to PID 1 of a running sandbox.
#[derive(Debug, Clone, Copy)]
pub struct Init {
    /// Its process id on the host.
    pub pid: i32,
}

impl Init {
    /// The one that is running, if any.
    pub fn running(folder: &Folder) -> Option<Self> {
        let InitRecord { pid, started, boot } = folder.init()?;
        (boot == crate::folder::boot() && process::started(pid) == Some(started)).then_some(Self { pid })
    }

    /// All components that were ever started, by name.
    pub fn list(self) -> Result<BTreeMap<String, Child>, InitError> {
        self.ask(&Request::List, "")
    }

    /// Starts a component, unless it runs already.
    pub fn start(self, start: &Start) -> Result<(), InitError> {
        self.ask(&Request::Start(start.clone()), &start.name).map(drop)
    }

    /// Kills a component and returns when it is gone.
    pub fn kill(self, name: &str) -> Result<(), InitError> {
        self.ask(&Request::Kill(name.to_owned()), name).map(drop)
    }

    fn ask(self, request: &Request, name: &str) -> Result<BTreeMap<String, Child>, InitError> {
        let mut stream = UnixStream::connect(format!("/proc/{}/root{SOCKET}", self.pid))?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        serde_json::to_writer(&stream, request)?;
        stream.write_all(b"\n")?;
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line)?;
        match serde_json::from_str(&line)? {
            Reply::Children(children) => Ok(children),
            Reply::Refused(why) => Err(InitError::Refused { name: name.to_owned(), why }),
        }
    }
}

/// What PID 1 shares between the thread that answers and the one that reaps.
#[derive(Default)]
struct Shared {
    children: Mutex<BTreeMap<String, Child>>,
    changed: Condvar,
}

impl Shared {
    fn children(&self) -> MutexGuard<'_, BTreeMap<String, Child>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs as PID 1 until it is killed. Returns only if the sandbox could not be set up.
pub fn run(folder: &Path, cache: &Path) -> Result<(), NamespaceError> {
    let _ = nix::unistd::setsid();
    if !namespace::may_go_on() {
        return Ok(());
    }
    namespace::build_root(folder, cache)?;
    let prepare = |path: &str| {
        let path = PathBuf::from(path);
        move |source| NamespaceError::Prepare { path, source }
    };
    for (name, value) in
        [("ipv4/ip_forward", "1"), ("ipv6/conf/all/disable_ipv6", "1"), ("ipv6/conf/default/disable_ipv6", "1")]
    {
        let path = format!("/proc/sys/net/{name}");
        match fs::write(&path, value) {
            // A kernel without IPv6 has nothing to turn off.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other.map_err(prepare(&path))?,
        }
    }
    let _ = fs::remove_file(SOCKET);
    let listener = UnixListener::bind(SOCKET).map_err(prepare(SOCKET))?;
    fs::set_permissions(SOCKET, fs::Permissions::from_mode(0o600)).map_err(prepare(SOCKET))?;
    let shared = Arc::new(Shared::default());
    let reaper = Arc::clone(&shared);
    thread::spawn(move || reap(&reaper));
    loop {
        let Ok((stream, _)) = listener.accept() else { continue };
        // A client that says nothing must not keep the others waiting for ever.
        let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
        let reply = match read(&stream) {
            Ok(request) => answer(&shared, request),
            Err(error) => Reply::Refused(error.to_string()),
        };
        let _ = serde_json::to_writer(&stream, &reply);
        let _ = (&stream).write_all(b"\n");
    }
}

fn read(stream: &UnixStream) -> io::Result<Request> {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    serde_json::from_str(&line).map_err(io::Error::other)
}

fn answer(shared: &Shared, request: Request) -> Reply {
    match request {
        Request::List => Reply::Children(shared.children().clone()),
        Request::Start(start) => {
            // Held while it starts: the reaper must not meet a child that is not listed yet.
            let mut children = shared.children();
            if children.get(&start.name).is_none_or(|child| child.ended.is_some()) {
                match spawn(&start) {
                    Ok(pid) => children.insert(start.name, Child { pid, ended: None }),
                    Err(error) => return Reply::Refused(error.to_string()),
                };
                shared.changed.notify_all();
            }
            Reply::Children(children.clone())
        }
        Request::Kill(name) => {
            let mut children = shared.children();
            if let Some(child) = children.get(&name).filter(|child| child.ended.is_none()) {
                let _ =
                    nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.pid), nix::sys::signal::Signal::SIGKILL);
            }
            // What hangs in the kernel does not die at once, and others want to be answered.
            let start = Instant::now();
            while children.get(&name).is_some_and(|child| child.ended.is_none()) {
                let Some(left) = KILLED.checked_sub(start.elapsed()) else {
                    return Reply::Refused(format!("it still lives {} s after it was killed", KILLED.as_secs()));
                };
                children = shared.changed.wait_timeout(children, left).unwrap_or_else(PoisonError::into_inner).0;
            }
            Reply::Children(children.clone())
        }
    }
}

#[allow(clippy::zombie_processes, reason = "the reaper waits for every child")]
fn spawn(start: &Start) -> io::Result<i32> {
    rotate(&start.log);
    let log = fs::File::options().create(true).append(true).open(&start.log)?;
    let child = Command::new(&start.program)
        .args(&start.args)
        .env_clear()
        .envs(&start.env)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("`{}`: {error}", start.program.display())))?;
    i32::try_from(child.id()).map_err(io::Error::other)
}

/// A log that has grown large makes room for a new one when its component starts again.
fn rotate(log: &Path) {
    const LARGE: u64 = 32 << 20;
    if fs::metadata(log).is_ok_and(|meta| meta.len() > LARGE) {
        let _ = fs::rename(log, log.with_extension("log.old"));
    }
}

/// Waits for every process that ends here: components, and orphans such as the shims of containerd.
fn reap(shared: &Shared) {
    loop {
        let (pid, how) = match waitpid(None, None) {
            Ok(WaitStatus::Exited(pid, code)) => (pid, format!("ended with exit code {code}")),
            Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, format!("killed by {signal}")),
            Ok(_) | Err(Errno::EINTR) => continue,
            // Nothing runs: an orphan can only come from a child, and a child only from a start.
            Err(_) => {
                let children = shared.children();
                if children.values().all(|child| child.ended.is_some()) {
                    drop(shared.changed.wait(children));
                }
                continue;
            }
        };
        let mut children = shared.children();
        if let Some(child) = children.values_mut().find(|child| child.pid == pid.as_raw() && child.ended.is_none()) {
            child.ended = Some(how);
            shared.changed.notify_all();
        }
    }
}
