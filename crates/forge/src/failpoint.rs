//! Where a process can be made to die, for tests: before a write of phase 1 or of a teardown, at once and without putting
//! anything away, as a machine that loses its power does. `FORGE_FAILPOINT` says before which: its number, counted from 1, or
//! its name, with `#2` for the second one of that name.
//! `FORGE_FAILPOINTS` names a file that every write is noted in, so that a test finds out how many there are.
//!
//! Every write of both passes here but one: the Lease is renewed beside the work, and by the clock. Only in builds with debug
//! assertions: a release has none of it.

/// Something is about to be written.
#[cfg(debug_assertions)]
pub(crate) fn write(what: &str) {
    use std::collections::BTreeMap;
    use std::fs::OpenOptions;
    use std::io::Write as _;
    use std::sync::{Mutex, PoisonError};
    /// How many there were of each name.
    static WRITES: Mutex<BTreeMap<String, u32>> = Mutex::new(BTreeMap::new());
    let (number, time) = {
        let mut writes = WRITES.lock().unwrap_or_else(PoisonError::into_inner);
        let times = writes.entry(what.to_owned()).or_default();
        *times = times.saturating_add(1);
        let time = *times;
        (writes.values().sum::<u32>(), time)
    };
    if let Some(file) = std::env::var_os("FORGE_FAILPOINTS") {
        let noted = OpenOptions::new().create(true).append(true).open(file);
        // Who asked for it finds nothing in it.
        let _ = noted.and_then(|mut file| writeln!(file, "{what}"));
    }
    if is_deadly(&std::env::var("FORGE_FAILPOINT").unwrap_or_default(), what, number, time) {
        std::process::abort();
    }
}

/// Whether this is the write to die before: the `number`th of all, the `time`th of its name.
#[cfg(debug_assertions)]
fn is_deadly(deadly: &str, what: &str, number: u32, time: u32) -> bool {
    let of_name = if time == 1 { deadly == what } else { deadly == format!("{what}#{time}") };
    of_name || deadly == number.to_string()
}

/// Something is about to be written.
#[cfg(not(debug_assertions))]
pub(crate) fn write(_what: &str) {}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_known_by_its_number_and_by_its_name_and_which_of_that_name_it_is() {
        // Four writes, of which the second and the fourth have one name.
        let writes = [("a", 1, 1), ("b", 2, 1), ("c", 3, 1), ("b", 4, 2)];
        let dies = |deadly: &str| {
            let found = writes.iter().find(|(what, number, time)| is_deadly(deadly, what, *number, *time));
            found.map(|(_, number, _)| *number)
        };
        assert_eq!([dies("b"), dies("b#2"), dies("b#3")], [Some(2), Some(4), None]);
        assert_eq!([dies("3"), dies("4"), dies("5"), dies("")], [Some(3), Some(4), None, None]);
    }
}
