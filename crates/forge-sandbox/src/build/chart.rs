//! Helm charts for installing without a network.

use std::collections::BTreeMap;
use std::path::Path;

use super::{BuildError, Parts, tree};
use crate::recipe::{self, Chart};

/// Changes when the same recipe gives something else.
pub(crate) const FORMAT: u32 = 1;

/// Makes the entry of all charts: a folder for each.
pub(crate) fn build(charts: &BTreeMap<String, Chart>, parts: &Parts<'_>, folder: &Path) -> Result<(), BuildError> {
    for (name, chart) in charts {
        let to = folder.join(name);
        tree::copy(&parts.path(name, &chart.from)?, &to)?;
        let description = to.join("Chart.yaml");
        let mut yaml = tree::read(&description)?;
        if chart.without_dependencies {
            yaml = without(&yaml, "dependencies");
            let lock = to.join("Chart.lock");
            std::fs::remove_file(&lock).map_err(|error| BuildError::file("remove", &lock, error))?;
        }
        if let Some(version) = &chart.version {
            yaml = with(&with(&yaml, "version", version), "appVersion", version);
        }
        tree::write(&description, yaml.as_bytes())?;
    }
    Ok(())
}

/// What charts are made from.
pub(crate) fn needs(charts: &BTreeMap<String, Chart>) -> Vec<String> {
    charts.values().map(|chart| recipe::split(&chart.from).0.to_owned()).collect()
}

/// Whether a line begins another field of the document; lists may be written without indentation.
fn begins(line: &str, field: &str) -> bool {
    line.strip_prefix(field).is_some_and(|rest| rest.starts_with(':'))
}

/// The description without one of its fields.
fn without(yaml: &str, field: &str) -> String {
    let mut inside = false;
    yaml.split_inclusive('\n')
        .filter(|line| {
            if !line.starts_with([' ', '-', '#', '\n']) {
                inside = begins(line, field);
            }
            !inside
        })
        .collect()
}

/// The description with another value of a field.
fn with(yaml: &str, field: &str, value: &str) -> String {
    yaml.split_inclusive('\n')
        .map(|line| if begins(line, field) { format!("{field}: {value}\n") } else { line.to_owned() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_goes_with_all_that_belongs_to_it() {
        for list in ["  - name: redis-ha\n    version: 1\n", "- name: redis-ha\n  version: 1\n"] {
            let yaml =
                format!("name: argo-cd\nversion: 9\ndependencies:\n{list}annotations:\n  a: |\n    dependencies:\n");
            assert_eq!(
                without(&yaml, "dependencies"),
                "name: argo-cd\nversion: 9\nannotations:\n  a: |\n    dependencies:\n"
            );
        }
    }

    #[test]
    fn a_placeholder_of_a_version_is_replaced_and_nothing_else() {
        let yaml = "appVersion: 0.0.1\nversion: 0.0.1\nlist:\n  version: 0.0.1\n";
        let yaml = with(&with(yaml, "version", "2.2.0"), "appVersion", "2.2.0");
        assert_eq!(yaml, "appVersion: 2.2.0\nversion: 2.2.0\nlist:\n  version: 0.0.1\n");
    }
}
