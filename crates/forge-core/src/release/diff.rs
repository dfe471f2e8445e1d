//! What differs between two releases, per layer and document.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;

use super::{DEFAULT_LAYER, Document, Key};

/// Lines around a change that are shown with it.
const CONTEXT: usize = 3;
/// Pairs of lines that are compared; texts that differ in more are shown as replaced.
const MOST_PAIRS: usize = 4_000_000;
/// Bytes of what is shown of one document.
const MOST_BYTES: usize = 256 << 10;

/// A document that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// The environment, or `default`.
    pub layer: String,
    /// Which document.
    pub document: String,
    /// What happened to it.
    pub what: ChangeKind,
    /// A unified diff of its canonical text, without the values of Secrets.
    pub text: String,
}

/// What happened to a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ChangeKind {
    /// It is only in the later release.
    Added,
    /// It is only in the earlier release.
    Removed,
    /// It is in both, and not the same.
    Changed,
}

/// What differs, by layer and then in the order of documents. A layer that only one release has is compared with the one
/// for all of the other, because that is what the environment gets.
pub fn diff(before: &BTreeMap<String, Vec<Document>>, after: &BTreeMap<String, Vec<Document>>) -> Vec<Change> {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let mut changes = Vec::new();
    for name in &names {
        // Where one release has no layer for all, its own environments are compared, and nothing else.
        let everywhere = before.contains_key(*name) && after.contains_key(*name);
        if *name == DEFAULT_LAYER && !everywhere && names.len() > 1 {
            continue;
        }
        let (earlier, later) = (of(before, name), of(after, name));
        let keys: BTreeSet<&Key> = earlier.keys().chain(later.keys()).collect();
        for key in keys {
            let (what, text) = match (earlier.get(key), later.get(key)) {
                (Some(earlier), Some(later)) if earlier.text() == later.text() => continue,
                (Some(earlier), Some(later)) => {
                    let (earlier, later) = shown(earlier, later);
                    (ChangeKind::Changed, unified(&earlier, &later))
                }
                (Some(earlier), None) => (ChangeKind::Removed, unified(&shown(earlier, earlier).0, "")),
                (None, Some(later)) => (ChangeKind::Added, unified("", &shown(later, later).1)),
                (None, None) => continue,
            };
            changes.push(Change { layer: (*name).clone(), document: key.to_string(), what, text });
        }
    }
    changes
}

/// The documents that an environment gets of a release.
fn of<'d>(release: &'d BTreeMap<String, Vec<Document>>, name: &str) -> BTreeMap<Key, &'d Document> {
    let documents = release.get(name).or_else(|| release.get(DEFAULT_LAYER));
    documents.into_iter().flatten().map(|document| (document.key(), document)).collect()
}

/// The texts as they are shown: of a Secret the names of values, and which of them differ.
fn shown(earlier: &Document, later: &Document) -> (String, String) {
    if (earlier.group(), earlier.kind.as_str()) != ("", "Secret") {
        return (earlier.text(), later.text());
    }
    let (mut hidden_earlier, mut hidden_later) = (earlier.clone(), later.clone());
    for field in ["data", "stringData"] {
        let of = |document: &Document| document.value.get(field).cloned().unwrap_or_default();
        hide(&mut hidden_earlier, field, &of(later), "***** (before)");
        hide(&mut hidden_later, field, &of(earlier), "***** (after)");
    }
    // What kubectl applied last is a copy of everything.
    for document in [&mut hidden_earlier, &mut hidden_later] {
        if let Some(Value::Object(annotations)) = document.value.pointer_mut("/metadata/annotations") {
            annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        }
    }
    (hidden_earlier.text(), hidden_later.text())
}

fn hide(document: &mut Document, field: &str, other: &Value, differs: &str) {
    if let Some(Value::Object(values)) = document.value.get_mut(field) {
        for (name, value) in values.iter_mut() {
            let same = other.get(name).is_none_or(|other| *other == *value);
            *value = Value::from(if same { "*****" } else { differs });
        }
    }
}

/// A line of a diff.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Line<'t> {
    Both(&'t str),
    Earlier(&'t str),
    Later(&'t str),
}

/// A unified diff of two texts.
fn unified(earlier: &str, later: &str) -> String {
    let lines = compared(&earlier.lines().collect::<Vec<_>>(), &later.lines().collect::<Vec<_>>());
    let changed: Vec<usize> =
        lines.iter().enumerate().filter(|(_, line)| !matches!(line, Line::Both(_))).map(|(i, _)| i).collect();
    // Changes whose surroundings touch are one hunk.
    let mut hunks: Vec<(usize, usize)> = Vec::new();
    for at in changed {
        let (start, end) = (at.saturating_sub(CONTEXT), (at + CONTEXT + 1).min(lines.len()));
        match hunks.last_mut() {
            Some(last) if start <= last.1 => last.1 = end,
            _ => hunks.push((start, end)),
        }
    }
    let mut text = String::new();
    let (mut from, mut to, mut position) = (0_usize, 0_usize, 0_usize);
    let count = |lines: &[Line<'_>]| {
        let earlier = lines.iter().filter(|line| !matches!(line, Line::Later(_))).count();
        (earlier, lines.iter().filter(|line| !matches!(line, Line::Earlier(_))).count())
    };
    for (start, end) in hunks {
        let (skipped_from, skipped_to) = count(lines.get(position..start).unwrap_or_default());
        (from, to) = (from + skipped_from, to + skipped_to);
        let hunk = lines.get(start..end).unwrap_or_default();
        let (removed, added) = count(hunk);
        let _ = writeln!(text, "@@ -{} +{} @@", range(from, removed), range(to, added));
        for line in hunk {
            let (sign, line) = match line {
                Line::Both(line) => (' ', line),
                Line::Earlier(line) => ('-', line),
                Line::Later(line) => ('+', line),
            };
            let _ = writeln!(text, "{sign}{line}");
        }
        (from, to, position) = (from + removed, to + added, end);
        if text.len() > MOST_BYTES {
            break;
        }
    }
    cut(text)
}

/// Where a part begins, counted from 1, and how long it is. One without lines stands after the line before it.
fn range(before: usize, count: usize) -> String {
    match count {
        0 => format!("{before},0"),
        1 => format!("{}", before + 1),
        _ => format!("{},{count}", before + 1),
    }
}

fn cut(mut text: String) -> String {
    if text.len() > MOST_BYTES {
        let end =
            text.get(..text.floor_char_boundary(MOST_BYTES)).and_then(|kept| kept.rfind('\n')).map_or(0, |at| at + 1);
        text.truncate(end);
        text.push_str("… the rest is not shown\n");
    }
    text
}

/// The lines of both texts, those that they share once: as few as possible are not shared.
fn compared<'t>(earlier: &[&'t str], later: &[&'t str]) -> Vec<Line<'t>> {
    let start = earlier.iter().zip(later).take_while(|(a, b)| a == b).count();
    let (shared, earlier) = earlier.split_at_checked(start).unwrap_or_default();
    let later = later.get(start..).unwrap_or_default();
    let end = earlier.iter().rev().zip(later.iter().rev()).take_while(|(a, b)| a == b).count();
    let (earlier, ending) = earlier.split_at_checked(earlier.len() - end).unwrap_or_default();
    let later = later.get(..later.len() - end).unwrap_or_default();
    let mut lines: Vec<Line<'t>> = shared.iter().copied().map(Line::Both).collect();
    lines.extend(middle(earlier, later));
    lines.extend(ending.iter().copied().map(Line::Both));
    lines
}

/// The same by the longest common subsequence, where that is affordable.
fn middle<'t>(earlier: &[&'t str], later: &[&'t str]) -> Vec<Line<'t>> {
    let width = later.len() + 1;
    if earlier.is_empty() || later.is_empty() || width.saturating_mul(earlier.len() + 1) > MOST_PAIRS {
        let removed = earlier.iter().copied().map(Line::Earlier);
        return removed.chain(later.iter().copied().map(Line::Later)).collect();
    }
    // How long the longest common subsequence is of what begins at each pair of lines.
    let mut longest = vec![0_u32; width * (earlier.len() + 1)];
    let at = |longest: &[u32], i: usize, j: usize| longest.get(i * width + j).copied().unwrap_or_default();
    for (i, a) in earlier.iter().enumerate().rev() {
        for (j, b) in later.iter().enumerate().rev() {
            let length = if a == b {
                at(&longest, i + 1, j + 1) + 1
            } else {
                at(&longest, i + 1, j).max(at(&longest, i, j + 1))
            };
            if let Some(cell) = longest.get_mut(i * width + j) {
                *cell = length;
            }
        }
    }
    let mut lines = Vec::with_capacity(earlier.len() + later.len());
    let (mut i, mut j) = (0, 0);
    loop {
        match (earlier.get(i), later.get(j)) {
            (Some(a), Some(b)) if a == b => {
                lines.push(Line::Both(a));
                (i, j) = (i + 1, j + 1);
            }
            (Some(a), b) if b.is_none() || at(&longest, i + 1, j) >= at(&longest, i, j + 1) => {
                lines.push(Line::Earlier(a));
                i += 1;
            }
            (_, Some(b)) => {
                lines.push(Line::Later(b));
                j += 1;
            }
            (_, None) => return lines,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::release::{Limits, documents};

    fn read(text: &str) -> Vec<Document> {
        documents("a.yaml", text.as_bytes(), &Limits::default()).unwrap()
    }

    fn release(layers: &[(&str, &str)]) -> BTreeMap<String, Vec<Document>> {
        layers.iter().map(|(name, text)| ((*name).to_owned(), read(text))).collect()
    }

    fn config(name: &str, value: &str) -> String {
        format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{a: {value}}}\n")
    }

    fn summary(changes: &[Change]) -> Vec<(String, String, ChangeKind)> {
        changes.iter().map(|c| (c.layer.clone(), c.document.clone(), c.what)).collect()
    }

    #[test]
    fn added_removed_and_changed_documents_are_told_per_layer() {
        let before = release(&[("dev", &(config("a", "one") + &config("b", "same") + &config("c", "gone")))]);
        let after = release(&[("dev", &(config("a", "two") + &config("b", "same") + &config("d", "new")))]);
        let changes = diff(&before, &after);
        let change = |document: &str, what| ("dev".to_owned(), document.to_owned(), what);
        let wanted = [
            change("ConfigMap a", ChangeKind::Changed),
            change("ConfigMap c", ChangeKind::Removed),
            change("ConfigMap d", ChangeKind::Added),
        ];
        assert_eq!(summary(&changes), wanted);
        assert_eq!(
            changes[0].text,
            "@@ -1,6 +1,6 @@\n apiVersion: v1\n data:\n-  a: one\n+  a: two\n kind: ConfigMap\n metadata:\n   name: a\n"
        );
        assert!(changes[1].text.starts_with("@@ -1,6 +0,0 @@\n-apiVersion: v1\n"), "{}", changes[1].text);
        assert!(changes[2].text.starts_with("@@ -0,0 +1,6 @@\n+apiVersion: v1\n"), "{}", changes[2].text);
        assert!(diff(&after, &after).is_empty());
    }

    #[test]
    fn an_environment_without_a_layer_has_the_one_for_all() {
        let (a, b) = (config("a", "one"), config("a", "two"));
        let (all, own) = (release(&[("default", &a)]), release(&[("dev", &a), ("staging", &b)]));
        let change = |layer: &str, what| (layer.to_owned(), "ConfigMap a".to_owned(), what);
        assert_eq!(summary(&diff(&all, &own)), [change("staging", ChangeKind::Changed)]);
        assert_eq!(summary(&diff(&own, &all)), [change("staging", ChangeKind::Changed)]);
        let both = release(&[("default", &b), ("dev", &a)]);
        assert_eq!(summary(&diff(&all, &both)), [change("default", ChangeKind::Changed)]);
        // An environment that nothing was built for.
        let dev = release(&[("dev", &a)]);
        assert_eq!(summary(&diff(&dev, &own)), [change("staging", ChangeKind::Added)]);
        assert_eq!(summary(&diff(&release(&[]), &all)), [change("default", ChangeKind::Added)]);
    }

    #[test]
    fn values_of_secrets_are_not_shown() {
        let secret = |value: &str| {
            format!(
                "{{apiVersion: v1, kind: Secret, metadata: {{name: a}}, stringData: {{same: hunter2, other: {value}}}}}"
            )
        };
        let changes = diff(&release(&[("dev", &secret("hunter3"))]), &release(&[("dev", &secret("hunter4"))]));
        let text = &changes[0].text;
        assert!(!text.contains("hunter"), "{text}");
        assert!(
            text.contains("-  other: \"***** (before)\"\n+  other: \"***** (after)\"\n   same: \"*****\"\n"),
            "{text}"
        );
        let added = diff(&release(&[]), &release(&[("dev", &secret("hunter3"))]));
        assert!(!added[0].text.contains("hunter"), "{}", added[0].text);
    }

    #[test]
    fn changes_that_are_far_apart_are_hunks_of_their_own() {
        let lines = |changed: &[usize]| -> String {
            (0..30).map(|n| if changed.contains(&n) { format!("x{n}\n") } else { format!("{n}\n") }).collect()
        };
        let text = unified(&lines(&[]), &lines(&[5, 20]));
        let heads: Vec<&str> = text.lines().filter(|line| line.starts_with("@@")).collect();
        assert_eq!(heads, ["@@ -3,7 +3,7 @@", "@@ -18,7 +18,7 @@"]);
        assert!(text.contains("-5\n+x5\n"), "{text}");
    }

    #[test]
    fn what_differs_too_much_costs_little_and_is_cut() {
        let (a, b): (String, String) =
            ((0..50_000).map(|n| format!("a{n}\n")).collect(), (0..50_000).map(|n| format!("b{n}\n")).collect());
        let text = unified(&a, &b);
        assert!(text.len() < MOST_BYTES + 100 && text.ends_with("… the rest is not shown\n"), "{}", text.len());
    }

    proptest! {
        #[test]
        fn both_texts_can_be_made_from_what_is_shown(a in prop::collection::vec("[a-c]", 0..30), b in prop::collection::vec("[a-c]", 0..30)) {
            let (a, b): (Vec<&str>, Vec<&str>) = (a.iter().map(String::as_str).collect(), b.iter().map(String::as_str).collect());
            let lines = compared(&a, &b);
            let side = |other: bool| -> Vec<&str> {
                lines.iter().filter_map(|line| match line {
                    Line::Both(line) => Some(*line),
                    Line::Earlier(line) => (!other).then_some(*line),
                    Line::Later(line) => other.then_some(*line),
                }).collect()
            };
            prop_assert_eq!(side(false), a);
            prop_assert_eq!(side(true), b);
        }
    }
}
