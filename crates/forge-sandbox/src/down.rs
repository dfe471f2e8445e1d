//! Gone without a trace. Killing PID 1 of a sandbox takes its processes, mounts, links, routes and nft tables; what is left
//! are cgroups and its folder.

use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::cgroup;
use crate::error::DownError;
use crate::folder::{Folder, Lock, Record};
use crate::init::Init;
use crate::network;
use crate::process;

/// How long the kernel may take to end what was killed.
const LIMIT: Duration = Duration::from_secs(20);

/// Finishes what a killed `down` had begun.
pub fn finish(folder: &Folder, record: &Record) -> Result<(), DownError> {
    take(folder, Some(record))?;
    Ok(folder.remove()?)
}

/// Ends the processes and takes what they had of the machine. True if any ran.
fn take(folder: &Folder, record: Option<&Record>) -> Result<bool, DownError> {
    let running = Init::running(folder);
    if let Some(init) = running {
        end(init)?;
    }
    if let Some(range) = record.and_then(|record| record.range)
        && network::release(range, folder.path())?
    {
        cgroup::remove(range, LIMIT).map_err(DownError::Cgroup)?;
    }
    Ok(running.is_some())
}

/// Takes a sandbox down; the data stays if asked. True if there was one.
pub fn down(folder: &Folder, lock: &Lock, keep_data: bool) -> Result<bool, DownError> {
    let record = folder.record()?;
    let running = take(folder, record.as_ref())?;
    if !keep_data {
        if let Some(record) = &record {
            // From here on there is no way back: what a killed `down` leaves must not be taken for a sandbox.
            folder.write_record(&Record { removing: true, ..record.clone() })?;
        }
        folder.remove()?;
        folder.forget_lock(lock);
    }
    Ok(record.is_some() && (running || !keep_data))
}

/// Kills PID 1 and waits until no process of its namespace is left.
pub fn end(init: Init) -> Result<(), DownError> {
    let namespace = process::namespace(init.pid);
    match kill(Pid::from_raw(init.pid), Signal::SIGKILL) {
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(error) => return Err(DownError::Kill { pid: init.pid, source: error }),
    }
    let start = Instant::now();
    while process::started(init.pid).is_some() || namespace.as_deref().is_some_and(process::inhabited) {
        if start.elapsed() > LIMIT {
            return Err(DownError::Lives { pid: init.pid, seconds: LIMIT.as_secs() });
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
