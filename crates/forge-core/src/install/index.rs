//! The index of a repository of charts (`index.yaml`): which archives of a chart there are at a version, by digest. helm finds
//! a chart through it, and holds against it neither what it downloads nor the version to the letter.

use crate::digest::Digest;
use crate::name::clip;
use crate::yaml::{Dialect, Limits, Node, read};

/// How many versions are named of those that are there.
const NAMED: usize = 3;

/// What an index says of a chart at one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The digests of its archives; an old index has none.
    digests: Vec<Digest>,
}

impl Listed {
    /// Looks a chart up, by its name and at exactly this version.
    ///
    /// # Errors
    /// With what is wrong: the index cannot be read, has no such chart, or not at this version.
    pub fn read(index: &str, name: &str, version: &str) -> Result<Self, String> {
        let stream = read(index, Dialect::Kubernetes, Limits::FILE);
        if let Some(problem) = stream.problems.first() {
            return Err(format!("its index cannot be read: {}: {}", problem.at, problem.message));
        }
        let entries = stream.documents.first().and_then(|document| document.get("entries"));
        let entries = entries.filter(|entries| entries.entries().is_some()).ok_or("its index has no entries")?;
        let versions = entries.get(name).and_then(Node::items).unwrap_or_default();
        if versions.is_empty() {
            return Err(format!("its index has no chart {name}"));
        }
        let of = |entry: &&Node<'_>| entry.text_at(&["version"]) == Some(version);
        let found: Vec<&Node<'_>> = versions.iter().filter(of).collect();
        if found.is_empty() {
            return Err(format!("its index has chart {name} at {}, and not at {version}", named(versions)));
        }
        let digests = found.into_iter().filter_map(|entry| entry.text_at(&["digest"])).filter(|text| !text.is_empty());
        let digests = digests.map(|text| {
            let digest = format!("sha256:{}", text.trim_start_matches("sha256:")).parse();
            digest
                .map_err(|_| format!("its index has a digest of chart {name} {version} that is none: `{}`", clip(text)))
        });
        Ok(Self { digests: digests.collect::<Result<_, _>>()? })
    }

    /// Holds what was downloaded against it.
    ///
    /// # Errors
    /// When it is something else than the index says.
    pub fn admit(&self, archive: &Digest) -> Result<(), String> {
        match self.digests.first() {
            Some(first) if !self.digests.contains(archive) => {
                Err(format!("its index says that the archive is {first}, and what was downloaded is {archive}"))
            }
            _ => Ok(()),
        }
    }
}

/// The versions that are there, the first ones by name.
fn named(versions: &[Node<'_>]) -> String {
    let texts = versions.iter().map(|entry| entry.text_at(&["version"]).unwrap_or("no version"));
    let mut shown = texts.take(NAMED).map(clip).collect::<Vec<_>>().join(", ");
    if let Some(more @ 1..) = versions.len().checked_sub(NAMED) {
        shown.push_str(&format!(" and {more} others"));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(entries: &str) -> String {
        format!("apiVersion: v1\ngenerated: 2026-01-01T00:00:00Z\nentries:\n{entries}")
    }

    fn refused(index: &str) -> String {
        Listed::read(index, "argo-cd", "9.2.0").unwrap_err()
    }

    #[test]
    fn a_chart_is_found_by_its_name_and_exact_version_and_held_against_its_digest() {
        let (good, bad) = (Digest::of(b"good"), Digest::of(b"bad"));
        let hex = good.as_str().trim_start_matches("sha256:");
        for digest in [hex, good.as_str()] {
            let text = index(&format!(
                "  argo-cd:\n  - {{version: 9.2.1, digest: x}}\n  - version: 9.2.0\n    digest: {digest}\n    urls: [a.tgz]\n  other: []\n"
            ));
            let listed = Listed::read(&text, "argo-cd", "9.2.0").unwrap();
            assert_eq!(listed.admit(&good), Ok(()));
            let why = listed.admit(&bad).unwrap_err();
            assert!(why.contains(good.as_str()) && why.ends_with(bad.as_str()), "{why}");
        }
        // Nothing is said of what it must be, as in indexes of old.
        let listed = Listed::read(&index("  argo-cd: [{version: 9.2.0}]\n"), "argo-cd", "9.2.0").unwrap();
        assert_eq!(listed.admit(&bad), Ok(()));
    }

    #[test]
    fn what_an_index_does_not_have_is_told() {
        for (text, why) in [
            ("<html>not found</html>".to_owned(), "its index has no entries"),
            ("a: [".to_owned(), "its index cannot be read: "),
            (String::new(), "its index has no entries"),
            ("not found".to_owned(), "its index has no entries"),
            ("entries: []\n".to_owned(), "its index has no entries"),
            (index("  argo-events: [{version: 9.2.0}]\n"), "its index has no chart argo-cd"),
            (index("  argo-cd: []\n"), "its index has no chart argo-cd"),
            (
                index("  argo-cd: [{version: 9.2.0, digest: 12}]\n"),
                "its index has a digest of chart argo-cd 9.2.0 that is",
            ),
        ] {
            assert!(refused(&text).starts_with(why), "{text}: {}", refused(&text));
        }
    }

    #[test]
    fn a_version_that_helm_would_take_for_another_one_is_not_it() {
        let text =
            index("  argo-cd: [{version: 9.2.0+mine}, {version: v9.2.0}, {version: 9.2}, {version: 9.1.0}, {}]\n");
        let why = "its index has chart argo-cd at 9.2.0+mine, v9.2.0, 9.2 and 2 others, and not at 9.2.0";
        assert_eq!(refused(&text), why);
    }
}
