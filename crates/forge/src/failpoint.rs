//! Where a process can be made to die, for tests: with `FORGE_FAILPOINT=n` it ends before its n-th write of phase 1, at once
//! and without putting anything away, as a machine that loses its power does. Only in builds with debug assertions: a
//! release has none of it.

/// Something of phase 1 is about to be written.
#[cfg(debug_assertions)]
pub(crate) fn write() {
    use std::sync::atomic::{AtomicU32, Ordering};
    static WRITES: AtomicU32 = AtomicU32::new(0);
    let number = WRITES.fetch_add(1, Ordering::Relaxed).saturating_add(1);
    let deadly = std::env::var("FORGE_FAILPOINT").ok().and_then(|text| text.parse::<u32>().ok());
    if deadly == Some(number) {
        std::process::abort();
    }
}

/// Something of phase 1 is about to be written.
#[cfg(not(debug_assertions))]
pub(crate) fn write() {}
