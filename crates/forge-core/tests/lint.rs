//! Every lint rule against golden cases: at least one repository in which it fires, with the exact place, message and
//! fix, and at least one near miss in which it does not.
//!
//! `tests/lint/<CODE>.txt` holds the cases of one code. A case is a change of the repository that [`base`] makes:
//!
//! ```text
//! === fires: what it shows                  or `passes:`
//! --- path/of/a/file.yaml                   the file's content follows; flags in brackets, see `Change`
//! !!! hunter2                               a secret in it, which no message may hold
//! >>> path:line:column: CODE message        all findings, in the order of the report
//!     fix: what to do
//! <<< path:line:column: CODE message        what a comment suppresses
//!     reason: why
//! ```
//!
//! `UPDATE_GOLDEN=1` writes what lint says now; read the difference before you commit it.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "the crate is pure; its tests read golden files, and panic where one is wrong"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use forge_core::code::Code;
use forge_core::scaffold::{self, With};
use forge_core::validate::{Content, Context, Report, tree};

const INSTALLATION: &str = "apiVersion: forge.projectcatalyst.io/v1alpha1
kind: Forge
spec:
  repository: {url: https://git.example.com/p.git}
  environments:
    - {name: dev, cluster: dev, sync: auto}
    - {name: production, cluster: production, sync: manual, protected: true, approvals: 1}
";

const GRAPH: &str = "apiVersion: forge.projectcatalyst.io/v1alpha1
kind: DependencyGraph
spec:
  stacks:
    - name: shop
      apps:
        - project: shop/api
";

type Files = BTreeMap<String, Content>;

/// Two environments and one project, and nothing wrong with them.
fn base() -> Files {
    let mut files =
        vec![("forge.yaml".to_owned(), INSTALLATION.to_owned()), ("graph.yaml".to_owned(), GRAPH.to_owned())];
    let content = Content::Bytes(INSTALLATION.into());
    let installation = Context::new(Some(&content), std::iter::empty()).installation.expect("forge.yaml is good");
    let project = "shop/api".parse().unwrap();
    let commit = "3f2a9c1d5e7b8a6f4c0d2e1f3a5b7c9d8e6f4a2b".parse().unwrap();
    let digest = format!("sha256:{}", "5e".repeat(32)).parse().unwrap();
    files.push(("app.yaml".to_owned(), scaffold::root_app(&installation, With::default())));
    for environment in &installation.environments {
        let pointer = scaffold::pointer_file(environment, &project, Some((&commit, &digest)));
        for file in scaffold::environment_files(&installation, environment).into_iter().chain([pointer]) {
            files.push((file.path, file.text));
        }
    }
    files.into_iter().map(|(path, text)| (path, Content::Bytes(text.into_bytes()))).collect()
}

/// What a case does to one file, by the flag behind its path.
#[derive(Debug)]
enum Change {
    /// No flag, `(hex)`, `(bom)`, `(crlf)`, `(repeat N)`: this is the content. `symlink`, `unreadable`: why.
    /// `(toolarge N)`: its size. `(unread)`: it is only listed.
    Put(Content),
    /// `(absent)`
    Remove,
    /// `(edit)`: lines with `-` are replaced by those with `+`; those with a space stay. Each block must be unique.
    Edit(String),
}

#[derive(Debug)]
struct Case {
    fires: bool,
    name: String,
    changes: Vec<(String, Change)>,
    planted: Vec<String>,
    /// Findings and suppressions as they are written in the file.
    expected: String,
    /// The case without what is expected.
    source: String,
}

fn folder() -> PathBuf {
    forge_testkit::checkout().join("crates/forge-core/tests/lint")
}

/// The codes that lint can report: all families but those of the command line and of clusters.
fn codes() -> impl Iterator<Item = Code> {
    let elsewhere = |code: &&Code| {
        let families = [
            "FORGE-B", "FORGE-C", "FORGE-D", "FORGE-K", "FORGE-M", "FORGE-N", "FORGE-O", "FORGE-T", "FORGE-U",
            "FORGE-V", "FORGE-X",
        ];
        // Too large is a plan; and what releases show is only there once they are read.
        !families.iter().any(|prefix| code.id().starts_with(prefix))
            && !matches!(code, Code::WorkflowTooLarge | Code::ForgottenEdge)
    };
    Code::ALL.iter().filter(elsewhere).copied()
}

fn parse(text: &str, path: &Path) -> (String, Vec<Case>) {
    let mut preface = String::new();
    let mut cases: Vec<Case> = Vec::new();
    let mut file: Option<(String, String)> = None;
    let finish = |file: &mut Option<(String, String)>, case: Option<&mut Case>| {
        if let (Some((heading, body)), Some(case)) = (file.take(), case) {
            case.changes.push(change(&heading, &body));
        }
    };
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("=== ") {
            finish(&mut file, cases.last_mut());
            let (what, name) = heading.split_once(": ").unwrap_or_else(|| panic!("{}: {line}", path.display()));
            assert!(matches!(what, "fires" | "passes"), "{}: {line}", path.display());
            cases.push(Case {
                fires: what == "fires",
                name: name.to_owned(),
                changes: Vec::new(),
                planted: Vec::new(),
                expected: String::new(),
                source: format!("{line}\n"),
            });
            continue;
        }
        let Some(case) = cases.last_mut() else {
            preface.push_str(line);
            preface.push('\n');
            continue;
        };
        let expectation = [">>> ", "<<< "].iter().any(|mark| line.starts_with(mark));
        let detail = file.is_none() && ["    fix: ", "    reason: "].iter().any(|mark| line.starts_with(mark));
        if expectation || detail {
            finish(&mut file, Some(case));
            case.expected.push_str(line);
            case.expected.push('\n');
            continue;
        }
        case.source.push_str(line);
        case.source.push('\n');
        if let Some(heading) = line.strip_prefix("--- ") {
            finish(&mut file, Some(&mut *case));
            file = Some((heading.to_owned(), String::new()));
        } else if let Some(planted) = line.strip_prefix("!!! ") {
            finish(&mut file, Some(&mut *case));
            case.planted.push(planted.to_owned());
        } else if let Some((_, body)) = &mut file {
            body.push_str(line);
            body.push('\n');
        } else {
            assert!(line.is_empty(), "{}: a line that belongs to no file: {line}", path.display());
        }
    }
    finish(&mut file, cases.last_mut());
    (preface, cases)
}

fn change(heading: &str, body: &str) -> (String, Change) {
    let (path, flag) = match heading.split_once(" (") {
        Some((path, flag)) => (path, flag.strip_suffix(')').unwrap_or_else(|| panic!("{heading}"))),
        None => (heading, ""),
    };
    // Blank lines at the end are for the reader of the case.
    let trimmed = body.trim_end_matches('\n');
    let text = if trimmed.is_empty() { String::new() } else { format!("{trimmed}\n") };
    let (flag, argument) = flag.split_once(' ').unwrap_or((flag, ""));
    let number = || argument.parse::<usize>().unwrap_or_else(|_| panic!("{heading}"));
    let content = match flag {
        "" => Content::Bytes(text.into_bytes()),
        "bom" => Content::Bytes([b"\xef\xbb\xbf".as_slice(), text.as_bytes()].concat()),
        "crlf" => Content::Bytes(text.replace('\n', "\r\n").into_bytes()),
        "repeat" => Content::Bytes(trimmed.repeat(number()).into_bytes()),
        "hex" => {
            let digits: Vec<char> = text.chars().filter(char::is_ascii_hexdigit).collect();
            let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap();
            Content::Bytes(digits.chunks(2).map(byte).collect())
        }
        "toolarge" => Content::TooLarge(number() as u64),
        "unreadable" => Content::Unreadable(trimmed.to_owned()),
        "symlink" => Content::Symlink(trimmed.to_owned().leak()),
        "unread" => Content::Unread,
        "absent" => return (path.to_owned(), Change::Remove),
        "edit" => return (path.to_owned(), Change::Edit(body.to_owned())),
        _ => panic!("unknown flag: {heading}"),
    };
    (path.to_owned(), Change::Put(content))
}

/// Replaces every block of lines that a change describes.
fn edited(path: &str, text: &str, body: &str) -> String {
    let mut text = text.to_owned();
    for hunk in body.split("\n\n").filter(|hunk| !hunk.trim().is_empty()) {
        let (mut old, mut new) = (String::new(), String::new());
        for line in hunk.lines() {
            let rest = line.get(1..).unwrap_or_default();
            match line.get(..1) {
                Some("-") => old.push_str(&format!("{rest}\n")),
                Some("+") => new.push_str(&format!("{rest}\n")),
                _ => [&mut old, &mut new].into_iter().for_each(|side| side.push_str(&format!("{rest}\n"))),
            }
        }
        assert_eq!(text.matches(&old).count(), 1, "{path}: this must occur exactly once:\n{old}\nin:\n{text}");
        text = text.replacen(&old, &new, 1);
    }
    text
}

fn report(case: &Case) -> Report {
    let mut files = base();
    for (path, change) in &case.changes {
        match change {
            Change::Put(content) => {
                files.insert(path.clone(), content.clone());
            }
            Change::Remove => {
                assert!(files.remove(path).is_some(), "{}: {path} is not there", case.name);
            }
            Change::Edit(body) => {
                let Some(Content::Bytes(bytes)) = files.get(path) else { panic!("{}: no {path}", case.name) };
                let text = edited(path, std::str::from_utf8(bytes).unwrap(), body);
                files.insert(path.clone(), Content::Bytes(text.into_bytes()));
            }
        }
    }
    tree(&files)
}

fn shown(report: &Report) -> String {
    let mut text = String::new();
    for finding in &report.findings {
        writeln!(text, ">>> {}: {} {}", finding.place, finding.code, finding.message).unwrap();
        if let Some(fix) = &finding.fix {
            writeln!(text, "    fix: {fix}").unwrap();
        }
    }
    for suppressed in &report.suppressed {
        let finding = &suppressed.finding;
        writeln!(text, "<<< {}: {} {}", finding.place, finding.code, finding.message).unwrap();
        writeln!(text, "    reason: {}", suppressed.reason).unwrap();
    }
    text
}

fn golden(code: Code) -> PathBuf {
    folder().join(format!("{}.txt", code.id()))
}

fn cases(code: Code) -> (String, Vec<Case>) {
    let path = golden(code);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    parse(&text, &path)
}

#[test]
fn the_repository_that_every_case_starts_from_is_clean() {
    let report = tree(&base());
    assert_eq!(shown(&report), "");
    assert!(report.repository.is_some());
}

#[test]
fn every_rule_fires_where_it_should_and_nowhere_else() {
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let mut wrong = String::new();
    for code in codes() {
        let (preface, cases) = cases(code);
        let mut rewritten = preface;
        for case in &cases {
            let report = report(case);
            let actual = shown(&report);
            if update {
                let source = case.source.trim_end_matches('\n');
                let gap = if rewritten.is_empty() { "" } else { "\n" };
                rewritten = format!("{}{gap}{source}\n{actual}", rewritten.trim_end_matches('\n').to_owned() + gap);
            } else if actual != case.expected {
                let name = &case.name;
                writeln!(wrong, "\n{code}, {name}\n--- expected\n{}--- found\n{actual}", case.expected).unwrap();
            }
            let found = report.findings.iter().any(|finding| finding.code == code);
            if found != case.fires {
                let what = if case.fires { "does not fire" } else { "fires" };
                writeln!(wrong, "\n{code}, {}: {what}\n{actual}", case.name).unwrap();
            }
        }
        if update {
            fs::write(golden(code), rewritten).unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn every_rule_has_a_case_that_fires_and_one_that_does_not() {
    let mut files = BTreeSet::new();
    for code in codes() {
        let (_, cases) = cases(code);
        assert!(cases.iter().any(|case| case.fires), "{code} has no case that fires");
        assert!(cases.iter().any(|case| !case.fires), "{code} has no case that passes");
        files.insert(golden(code));
    }
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        assert!(files.contains(&path), "{} belongs to no rule", path.display());
    }
}

#[test]
fn no_message_holds_a_secret() {
    for code in codes() {
        for case in cases(code).1 {
            let said = shown(&report(&case));
            let name = &case.name;
            if code.id().starts_with("FORGE-S") && case.fires {
                assert!(!case.planted.is_empty(), "{code}, {name}: say with `!!!` what the secret is");
            }
            for secret in &case.planted {
                let there = case.changes.iter().any(|(_, change)| match change {
                    Change::Put(Content::Bytes(bytes)) => String::from_utf8_lossy(bytes).contains(secret.as_str()),
                    Change::Edit(body) => body.contains(secret.as_str()),
                    _ => false,
                });
                assert!(there, "{code}, {name}: `{secret}` is not in its files");
                assert!(!said.contains(secret.as_str()), "{code}, {name}: the secret is shown\n{said}");
            }
        }
    }
}
