//! Gone without a trace. Killing PID 1 of a sandbox takes its processes, mounts, links, routes and nft tables; what is left
//! are cgroups and its folder.

use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::cgroup;
use crate::error::DownError;
use crate::folder::{Folder, Lock};
use crate::init::Init;
use crate::network;
use crate::process;

/// How long the kernel may take to end what was killed.
const LIMIT: Duration = Duration::from_secs(20);

/// Takes a sandbox down; the data stays if asked. True if there was one.
pub fn down(folder: &Folder, lock: &Lock, keep_data: bool) -> Result<bool, DownError> {
    let record = folder.record()?;
    let running = Init::running(folder);
    if let Some(init) = running {
        end(init)?;
    }
    if let Some(range) = record.as_ref().and_then(|record| record.range)
        && network::release(range, folder.path())?
    {
        cgroup::remove(range, LIMIT).map_err(DownError::Cgroup)?;
    }
    if !keep_data {
        folder.remove()?;
        folder.forget_lock(lock);
    }
    Ok(record.is_some() && (running.is_some() || !keep_data))
}

/// Kills PID 1 and waits until it is gone; the kernel lets it go only after every other process of its namespace.
pub fn end(init: Init) -> Result<(), DownError> {
    match kill(Pid::from_raw(init.pid), Signal::SIGKILL) {
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(error) => return Err(DownError::Kill { pid: init.pid, source: error }),
    }
    let start = Instant::now();
    // A zombie has let go of its namespaces.
    while process::started(init.pid).is_some() {
        if start.elapsed() > LIMIT {
            return Err(DownError::Lives { pid: init.pid, seconds: LIMIT.as_secs() });
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
