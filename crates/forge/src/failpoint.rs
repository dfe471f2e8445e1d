//! Where a process can be made to die, for tests: before a write of phase 1 or of a teardown, at once and without putting
//! anything away, as a machine that loses its power does. `FORGE_FAILPOINT` says before which: its number, counted from 1, or
//! its name.
//! `FORGE_FAILPOINTS` names a file that every write is noted in, so that a test finds out how many there are.
//!
//! Every write of both passes here but one: the Lease is renewed beside the work, and by the clock. Only in builds with debug
//! assertions: a release has none of it.

/// Something is about to be written.
#[cfg(debug_assertions)]
pub(crate) fn write(what: &str) {
    use std::fs::OpenOptions;
    use std::io::Write as _;
    use std::sync::atomic::{AtomicU32, Ordering};
    static WRITES: AtomicU32 = AtomicU32::new(0);
    let number = WRITES.fetch_add(1, Ordering::Relaxed).saturating_add(1);
    if let Some(file) = std::env::var_os("FORGE_FAILPOINTS") {
        let noted = OpenOptions::new().create(true).append(true).open(file);
        // Who asked for it finds nothing in it.
        let _ = noted.and_then(|mut file| writeln!(file, "{what}"));
    }
    let deadly = std::env::var("FORGE_FAILPOINT").unwrap_or_default();
    if deadly == what || deadly == number.to_string() {
        std::process::abort();
    }
}

/// Something is about to be written.
#[cfg(not(debug_assertions))]
pub(crate) fn write(_what: &str) {}
