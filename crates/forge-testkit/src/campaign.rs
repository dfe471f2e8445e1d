//! Long random campaigns: how long they are is said by the environment (`make soak` sets it), and every round says its seed.

#![allow(clippy::panic, reason = "a driver of tests fails by panicking, with what it saw")]

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number from the environment; one that is none fails the test, because a campaign that is shorter than somebody thinks
/// shows nothing.
pub fn number(variable: &str, otherwise: u64) -> u64 {
    let Some(text) = std::env::var_os(variable) else { return otherwise };
    let read = text.to_str().and_then(|text| text.parse().ok());
    read.unwrap_or_else(|| panic!("{variable}: {} is not a number", text.display()))
}

/// A graph for each seed from the first, `FORGE_AT_ONCE` of them beside each other: most of a run is waiting. Each gives how
/// many edges were judged, and fails the test where one was violated.
pub fn graphs(what: &str, (first, rounds): (u64, u64), at_once: u64, one: impl Fn(u64) -> usize + Sync) {
    let at_once = number("FORGE_AT_ONCE", at_once).max(1);
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..at_once.min(rounds) {
            scope.spawn(|| {
                loop {
                    let round = next.fetch_add(1, Ordering::Relaxed);
                    if round >= rounds {
                        return;
                    }
                    let edges = one(first + round);
                    let count = done.fetch_add(1, Ordering::Relaxed) + 1;
                    let seed = first + round;
                    let _ = writeln!(
                        std::io::stderr(),
                        "{what}: seed {seed}: {edges} edges judged, 0 violations ({count} of {rounds})"
                    );
                }
            });
        }
    });
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn every_seed_has_its_turn_once() {
        let seen = Mutex::new(Vec::new());
        graphs("test", (7, 5), 3, |seed| {
            seen.lock().unwrap().push(seed);
            0
        });
        let seen = seen.into_inner().unwrap();
        assert_eq!((seen.len(), BTreeSet::from_iter(seen)), (5, (7..12).collect()));
    }
}
