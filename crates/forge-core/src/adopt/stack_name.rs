//! Names of stacks, made of names that follow other rules: cleaned, short enough, and each once.

use std::collections::BTreeSet;

use crate::graph::SYSTEM_STACK;
use crate::lookup::Lookup;
use crate::name::{MAX_NAME, StackName};

/// The names that are taken.
#[derive(Default)]
pub(super) struct StackNames {
    taken: BTreeSet<String>,
    /// For a name that was wanted more than once, the last number that was put behind it.
    last: Lookup<String, usize>,
}

impl StackNames {
    /// The name that is nearest to the wanted one and free.
    pub(super) fn take(&mut self, base: &str, suffix: &str) -> Option<StackName> {
        let base = clean(base);
        let wanted = join(&base, suffix);
        let mut name = wanted.clone();
        let mut number = self.last.get(&wanted).copied().unwrap_or(1);
        while name == SYSTEM_STACK || self.taken.contains(&name) {
            number += 1;
            name = join(&base, &format!("{suffix}-{number}"));
        }
        self.last.insert(wanted, number);
        self.taken.insert(name.clone());
        name.parse().ok()
    }
}

/// Both together, the first cut where they would be too long.
fn join(base: &str, suffix: &str) -> String {
    let room = MAX_NAME.saturating_sub(suffix.len());
    let base: String = base.chars().take(room).collect();
    format!("{}{suffix}", base.trim_end_matches('-'))
}

fn clean(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars().take(2 * MAX_NAME) {
        let c = c.to_ascii_lowercase();
        if c.is_ascii_lowercase() || c.is_ascii_digit() {
            out.push(c);
        } else if !out.is_empty() && !out.ends_with('-') {
            out.push('-');
        }
    }
    let out = out.trim_end_matches('-');
    if out.is_empty() { "apps".to_owned() } else { out.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_has_a_valid_name_of_its_own_whatever_it_is_made_of() {
        let mut names = StackNames::default();
        let mut taken = BTreeSet::new();
        for base in ["Team A", "team-a", "ä", "", "--", "forge-system", "x.y.z", &"long".repeat(40), &"long".repeat(41)]
        {
            for suffix in ["", "-wave-minus-9223372036854775808", "-done"] {
                let name = names.take(base, suffix).unwrap();
                assert!(taken.insert(name.clone()), "{name} twice");
            }
        }
        assert!(taken.contains(&"team-a-2".parse().unwrap()) && taken.contains(&"x-y-z".parse().unwrap()));
    }
}
