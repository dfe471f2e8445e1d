//! The process that holds a pod's namespaces: it waits, reaps what is left to it as PID 1, and ends when told to.
//!
//! One file, no crates, built by plain `rustc`; outside the workspace, because it talks to the C library.

use std::ffi::{c_int, c_void};
use std::ptr;

const SIGINT: c_int = 2;
const SIGTERM: c_int = 15;
const SIGCHLD: c_int = 17;
const WNOHANG: c_int = 1;
const SIG_ERR: usize = usize::MAX;

unsafe extern "C" {
    fn signal(number: c_int, handler: extern "C" fn(c_int)) -> usize;
    fn waitpid(process: c_int, status: *mut c_void, options: c_int) -> c_int;
    fn pause() -> c_int;
    fn _exit(code: c_int) -> !;
}

extern "C" fn end(_: c_int) {
    // SAFETY: `_exit` may be called in a signal handler.
    unsafe { _exit(0) }
}

extern "C" fn reap(_: c_int) {
    // SAFETY: `waitpid` may be called in a signal handler, and a null status is allowed.
    while unsafe { waitpid(-1, ptr::null_mut(), WNOHANG) } > 0 {}
}

fn main() {
    for (number, handler) in [(SIGINT, end as extern "C" fn(c_int)), (SIGTERM, end), (SIGCHLD, reap)] {
        // SAFETY: the handlers only call what POSIX lists as safe there.
        if unsafe { signal(number, handler) } == SIG_ERR {
            std::process::exit(1);
        }
    }
    loop {
        // SAFETY: it has no arguments and returns after a handler ran.
        unsafe { pause() };
    }
}
