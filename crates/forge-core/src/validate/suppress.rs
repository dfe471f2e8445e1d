//! Suppressions: `# forge:allow FORGE-I001 why this is fine here`, on the line or above it. They name a code and a
//! reason, they are reported, and one that suppresses nothing is a finding itself.

use crate::code::Code;
use crate::finding::{Finding, Place, Suppressed};
use crate::yaml::{Comment, Position};

const MARK: &str = "forge:allow";

/// One comment that allows findings of one code on one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suppression {
    code: Code,
    reason: String,
    at: Position,
    /// The line whose findings it allows.
    line: u32,
}

/// Reads the suppressions among the comments of a file, and reports malformed ones.
pub(super) fn read(path: &str, comments: &[Comment<'_>], findings: &mut Vec<Finding>) -> Vec<Suppression> {
    let mut found = Vec::new();
    for (i, comment) in comments.iter().enumerate() {
        let Some(rest) = comment.text.trim_start().strip_prefix(MARK) else { continue };
        let rest = rest.trim_start_matches(':').trim();
        let (code, reason) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let problem = match code.parse::<Code>() {
            Err(error) => Some(error.to_string()),
            Ok(code) if matches!(code, Code::SuppressionInvalid | Code::SuppressionUnused) => {
                Some(format!("{code} cannot be suppressed"))
            }
            Ok(_) if reason.trim().is_empty() => Some("a suppression needs a reason".to_owned()),
            Ok(code) => {
                let line = if comment.own_line { below(comments, i) } else { comment.at.line };
                found.push(Suppression { code, reason: reason.trim().to_owned(), at: comment.at, line });
                None
            }
        };
        if let Some(problem) = problem {
            let fix = format!("write `# {MARK} FORGE-X000 the reason`");
            findings.push(Finding::new(Code::SuppressionInvalid, Place::new(path, comment.at), problem).with_fix(fix));
        }
    }
    found
}

/// The first line below a comment, and below comments that follow it, that is not one.
fn below(comments: &[Comment<'_>], from: usize) -> u32 {
    let first = comments.get(from).map_or(0, |comment| comment.at.line);
    let run = comments
        .iter()
        .skip(from)
        .zip(first..)
        .take_while(|(comment, line)| comment.own_line && comment.at.line == *line);
    first + u32::try_from(run.count()).unwrap_or(0)
}

/// Splits findings into those that stand and those that a comment allows; adds what is wrong with the comments.
pub(super) fn apply(
    findings: Vec<Finding>,
    suppressions: &[(String, Vec<Suppression>)],
) -> (Vec<Finding>, Vec<Suppressed>) {
    let mut used: std::collections::BTreeSet<(&str, Position)> = std::collections::BTreeSet::new();
    let (mut standing, mut suppressed) = (Vec::with_capacity(findings.len()), Vec::new());
    for finding in findings {
        let line = finding.place.at.map(|at| at.line);
        let of_file = suppressions.binary_search_by(|(path, _)| path.as_str().cmp(&finding.place.path)).ok();
        let allowed = of_file.and_then(|i| suppressions.get(i)).and_then(|(path, list)| {
            let hit = list.iter().find(|s| s.code == finding.code && Some(s.line) == line)?;
            Some((path.as_str(), hit))
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
            let message = format!("{} does not occur on line {}", suppression.code, suppression.line);
            standing.push(
                Finding::new(Code::SuppressionUnused, Place::new(path, suppression.at), message)
                    .with_fix("remove the comment"),
            );
        }
    }
    (standing, suppressed)
}
