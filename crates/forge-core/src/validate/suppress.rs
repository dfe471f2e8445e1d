//! Suppressions: `# forge:allow FORGE-I001 why this is fine here`, on the line or above it. They name a code and a
//! reason, they are reported, and one that suppresses nothing is a finding itself.
//!
//! A line that begins a block of text (`key: |`) stands for the whole block: inside of it nobody can write a comment.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use crate::code::Code;
use crate::finding::{Finding, Place, Suppressed};
use crate::lookup::Lookup;
use crate::name::clean;
use crate::yaml::{Comment, Position};

pub(super) const MARK: &str = "forge:allow";

/// One comment that allows findings of one code on one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suppression {
    code: Code,
    reason: String,
    at: Position,
    /// The lines whose findings it allows: one, or a block of text.
    lines: RangeInclusive<u32>,
}

impl Suppression {
    /// Whether it allows what only shows when releases are read.
    pub(super) fn is_of_releases(&self) -> bool {
        self.code == Code::ForgottenEdge
    }
}

/// Reads the suppressions among the comments of a file, and reports malformed ones.
pub(super) fn read(path: &str, text: &str, comments: &[Comment<'_>], findings: &mut Vec<Finding>) -> Vec<Suppression> {
    let marked = |comment: &Comment<'_>| comment.text.trim_start().starts_with(MARK);
    if !comments.iter().any(marked) {
        return Vec::new();
    }
    let lines: Vec<&str> = text.lines().collect();
    let below = below(comments);
    let mut ends: BTreeMap<u32, u32> = BTreeMap::new();
    let mut found = Vec::new();
    for (comment, below) in comments.iter().zip(below) {
        let Some(rest) = comment.text.trim_start().strip_prefix(MARK) else { continue };
        let rest = rest.trim_start_matches(':').trim();
        let (code, reason) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let problem = match code.parse::<Code>() {
            Err(_) if code.is_empty() => Some("a suppression needs a code and a reason".to_owned()),
            Err(error) => Some(error.to_string()),
            Ok(code) if !code.allowable() => Some(format!("{code} cannot be allowed, only fixed")),
            Ok(_) if reason.trim().is_empty() => Some("a suppression needs a reason".to_owned()),
            Ok(code) => {
                let line = if comment.own_line { below } else { comment.at.line };
                let lines = line..=*ends.entry(line).or_insert_with(|| block_end(&lines, line));
                found.push(Suppression { code, reason: clean(reason.trim()).into_owned(), at: comment.at, lines });
                None
            }
        };
        if let Some(problem) = problem {
            let fix = format!("write `# {MARK}`, one code such as `FORGE-I001`, and the reason");
            findings.push(Finding::new(Code::SuppressionInvalid, Place::new(path, comment.at), problem).with_fix(fix));
        }
    }
    found
}

/// Reads the suppressions of a file that is not YAML: a template, a list of variables.
pub(super) fn read_lines(path: &str, text: &str, findings: &mut Vec<Finding>) -> Vec<Suppression> {
    const SIGNS: [&str; 4] = ["#", "//", "/*", "<!--"];
    const ENDS: [&str; 5] = ["*/ -}}", "*/ }}", "*/}}", "*/", "-->"];
    let mut comments = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let Some((before, _)) = line.split_once(MARK) else { continue };
        let before = before.trim_end();
        let Some(outside) = SIGNS.iter().find_map(|sign| before.strip_suffix(sign)) else { continue };
        let rest = line.get(before.len()..).unwrap_or_default().trim();
        let rest = ENDS.iter().find_map(|end| rest.strip_suffix(end)).unwrap_or(rest);
        let column = u32::try_from(outside.chars().count() + 1).unwrap_or(u32::MAX);
        let own_line = matches!(outside.trim(), "" | "{{" | "{{-");
        comments.push(Comment { text: Cow::Borrowed(rest), at: Position { line: number, column }, own_line });
    }
    read(path, text, &comments, findings)
}

/// For each comment the first line below it, and below comments that follow it, that is not one.
fn below(comments: &[Comment<'_>]) -> Vec<u32> {
    let mut lines = vec![0; comments.len()];
    let mut next: Option<(&Comment<'_>, u32)> = None;
    for (comment, line) in comments.iter().zip(&mut lines).rev() {
        let following = comment.at.line.saturating_add(1);
        *line = match next {
            Some((after, below)) if after.own_line && after.at.line == following => below,
            _ => following,
        };
        next = Some((comment, *line));
    }
    lines
}

/// The last line of the block of text that begins on this line; the line itself if none does.
fn block_end(lines: &[&str], line: u32) -> u32 {
    let at = |line: u32| usize::try_from(line).ok().and_then(|n| lines.get(n.checked_sub(1)?)).copied();
    let Some(header) = at(line) else { return line };
    let code = header.split(" #").next().unwrap_or(header).trim_end();
    let indicator = code.rsplit([' ', ':']).next().unwrap_or_default();
    let block = indicator.starts_with(['|', '>'])
        && indicator.bytes().skip(1).all(|b| matches!(b, b'+' | b'-') || b.is_ascii_digit());
    if !block {
        return line;
    }
    // A key behind dashes is indented by them.
    let mut indent = 0;
    for (i, c) in code.char_indices() {
        match c {
            ' ' => {}
            '-' if code.get(i + 1..).is_some_and(|rest| rest.starts_with(' ')) => indent = i,
            _ => {
                let key = code.get(i..).is_some_and(|rest| rest != indicator);
                indent = if key { i } else { indent };
                break;
            }
        }
    }
    let inside = |text: &str| text.trim().is_empty() || text.len() - text.trim_start_matches(' ').len() > indent;
    let length = (line + 1..).map_while(at).take_while(|text| inside(text)).count();
    line.saturating_add(u32::try_from(length).unwrap_or(u32::MAX))
}

/// Splits findings into those that stand and those that a comment allows; adds what is wrong with the comments.
pub(super) fn apply(
    findings: Vec<Finding>,
    suppressions: &[(String, Vec<Suppression>)],
) -> (Vec<Finding>, Vec<Suppressed>) {
    // Most allow one line and are found by it; those for whole blocks are few.
    let mut single: Lookup<(&str, Code, u32), &Suppression> = Lookup::new();
    let mut blocks: Lookup<(&str, Code), Vec<&Suppression>> = Lookup::new();
    for (path, list) in suppressions {
        for suppression in list {
            if suppression.lines.start() == suppression.lines.end() {
                single.entry((path, suppression.code, *suppression.lines.start())).or_insert(suppression);
            } else {
                blocks.entry((path, suppression.code)).or_default().push(suppression);
            }
        }
    }
    let mut used: BTreeSet<(&str, Position)> = BTreeSet::new();
    let (mut standing, mut suppressed) = (Vec::with_capacity(findings.len()), Vec::new());
    for finding in findings {
        let of_file = suppressions.binary_search_by(|(path, _)| path.as_str().cmp(&finding.place.path)).ok();
        let path = of_file.and_then(|i| suppressions.get(i)).map(|(path, _)| path.as_str());
        let allowed = path.zip(finding.place.at.map(|at| at.line)).and_then(|(path, line)| {
            let one = single.get(&(path, finding.code, line)).copied();
            let block = || blocks.get(&(path, finding.code))?.iter().find(|s| s.lines.contains(&line)).copied();
            one.or_else(block).map(|suppression| (path, suppression))
        });
        match allowed {
            Some((path, suppression)) => {
                used.insert((path, suppression.at));
                suppressed.push(Suppressed { finding, reason: suppression.reason.clone() });
            }
            None => standing.push(finding),
        }
    }
    for (path, list) in suppressions {
        for suppression in list.iter().filter(|s| !used.contains(&(path.as_str(), s.at))) {
            let message = format!("{} does not occur on line {}", suppression.code, suppression.lines.start());
            standing.push(
                Finding::new(Code::SuppressionUnused, Place::new(path, suppression.at), message)
                    .with_fix("remove the comment, or put it on the line of the finding or the line above"),
            );
        }
    }
    (standing, suppressed)
}
