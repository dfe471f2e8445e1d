//! Additions to files that people wrote: one block of lines is inserted, nothing else moves, and what comes out is read
//! again before anybody writes it.

use crate::format::{DependencyGraph, Installation, Reference};
use crate::graph::Graph;
use crate::name::{EnvironmentName, ProjectId, StackName};
use crate::yaml::{Decoder, Dialect, Limits, Node, Position, read};

/// Why a file cannot be added to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// It cannot be read as it is.
    #[error("{path} cannot be read as it is")]
    Unreadable {
        /// The file.
        path: &'static str,
    },
    /// What comes out would not be a graph.
    #[error("{path} would not be a graph any more: {}", why.join("; "))]
    NotAGraph {
        /// The file.
        path: &'static str,
        /// What would be wrong.
        why: Vec<String>,
    },
    /// It is written in a way that lines cannot be added to.
    #[error("{path}: {what} is not written as a block list; add this by hand:\n\n{block}")]
    NotABlock {
        /// The file.
        path: &'static str,
        /// The list.
        what: &'static str,
        /// What to add.
        block: String,
    },
}

/// `forge.yaml` with one more environment, at the end or before another one.
pub fn add_environment(
    text: &str,
    name: &EnvironmentName,
    cluster: &str,
    sync: &str,
    prefix: Option<&str>,
    before: Option<&EnvironmentName>,
) -> Result<String, EditError> {
    const PATH: &str = "forge.yaml";
    let stream = read(text, Dialect::Strict, Limits::FILE);
    let unreadable = || EditError::Unreadable { path: PATH };
    let document = stream.documents.first().filter(|_| stream.problems.is_empty()).ok_or_else(unreadable)?;
    let items = document.path(&["spec", "environments"]).and_then(Node::items).ok_or_else(unreadable)?;
    let prefix = prefix.map(|prefix| format!(", namespacePrefix: {}", super::quote(prefix))).unwrap_or_default();
    let entry = format!("- {{name: {name}, cluster: {}{prefix}, sync: {sync}}}", super::quote(cluster));
    let not_a_block = || EditError::NotABlock { path: PATH, what: "environments", block: format!("  {entry}") };
    let lines = lines_of(text);
    let anchor = match before {
        Some(before) => items.iter().find(|item| item.text_at(&["name"]) == Some(before.as_str())),
        None => items.last(),
    };
    let item = item_lines(&lines, anchor.ok_or_else(unreadable)?.at).ok_or_else(not_a_block)?;
    let at = if before.is_some() { item.first } else { item.after };
    let edited = insert(&lines, at, &[format!("{}{entry}", " ".repeat(item.indent))]);
    let holds = decode_installation(&edited).is_some_and(|new| new.environments.iter().any(|e| e.name.value == *name));
    if holds { Ok(edited) } else { Err(not_a_block()) }
}

fn decode_installation(text: &str) -> Option<Installation> {
    let stream = read(text, Dialect::Strict, Limits::FILE);
    let mut decoder = Decoder::new("forge.yaml");
    Installation::decode(&mut decoder, stream.documents.first().filter(|_| stream.problems.is_empty())?)
}

fn decode_graph(text: &str) -> Option<DependencyGraph> {
    let stream = read(text, Dialect::Strict, Limits::FILE);
    let mut decoder = Decoder::new("graph.yaml");
    let graph = DependencyGraph::decode(&mut decoder, stream.documents.first().filter(|_| stream.problems.is_empty())?);
    graph.filter(|_| decoder.is_clean())
}

/// `graph.yaml` with one more node in a stack, which is made if it is not there.
pub fn add_project(
    text: &str,
    project: &ProjectId,
    stack: &StackName,
    depends_on: &[Reference],
) -> Result<String, EditError> {
    const PATH: &str = "graph.yaml";
    let graph = decode_graph(text).ok_or(EditError::Unreadable { path: PATH })?;
    let mut block = vec![format!("- project: {project}")];
    if !depends_on.is_empty() {
        let list: Vec<String> = depends_on.iter().map(|reference| super::quote(&reference.to_string())).collect();
        block.push(format!("  dependsOn: [{}]", list.join(", ")));
    }
    let not_a_block = |what| EditError::NotABlock { path: PATH, what, block: block.join("\n") };
    let lines = lines_of(text);
    let indented = |indent: usize, block: &[String]| -> Vec<String> {
        block.iter().map(|line| format!("{}{line}", " ".repeat(indent))).collect()
    };
    let edited = match graph.stacks.iter().find(|known| known.name.value == *stack) {
        Some(known) => match known.apps.last() {
            Some(last) => {
                let item = item_lines(&lines, last.subject.at).ok_or_else(|| not_a_block("apps"))?;
                insert(&lines, item.after, &indented(item.indent, &block))
            }
            None => return Err(not_a_block("apps")),
        },
        None => {
            let mut new = vec![format!("- name: {stack}"), "  apps:".to_owned()];
            new.extend(indented(4, &block));
            match graph.stacks.last() {
                Some(last) => {
                    let item = item_lines(&lines, last.name.at).ok_or_else(|| not_a_block("stacks"))?;
                    insert(&lines, item.after, &indented(item.indent, &new))
                }
                None => {
                    let empty = lines.iter().position(|line| line.trim() == "stacks: []");
                    let at = empty.ok_or_else(|| not_a_block("stacks"))?;
                    let indent = lines.get(at).map_or(0, |line| line.len() - line.trim_start().len());
                    let mut lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
                    if let Some(line) = lines.get_mut(at) {
                        *line = format!("{}stacks:", " ".repeat(indent));
                    }
                    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
                    insert(&lines, at + 1, &indented(indent + 2, &new))
                }
            }
        }
    };
    let holds = decode_graph(&edited).is_some_and(|graph| {
        let mut stacks = graph.stacks.iter().filter(|known| known.name.value == *stack);
        stacks.any(|known| known.apps.iter().any(|app| app.subject.id() == project.into()))
    });
    if !holds {
        return Err(not_a_block("apps"));
    }
    // What was wrong before is not this edit's fault.
    let wrong = |text: &str| -> Vec<String> {
        let build = decode_graph(text).map(|graph| Graph::build(&graph, PATH, None, &[]));
        build.map(|build| build.findings.into_iter().map(|finding| finding.message).collect()).unwrap_or_default()
    };
    let before = wrong(text);
    let why: Vec<String> = wrong(&edited).into_iter().filter(|message| !before.contains(message)).collect();
    if why.is_empty() { Ok(edited) } else { Err(EditError::NotAGraph { path: PATH, why }) }
}

/// The lines of one item of a block list.
struct ItemLines {
    /// Column of the dash.
    indent: usize,
    /// Its first line, from 0.
    first: usize,
    /// The line after its last.
    after: usize,
}

/// Finds the item of a block list in which a position lies: the nearest line at or above it that begins with a dash
/// left of it.
fn item_lines(lines: &[&str], at: Position) -> Option<ItemLines> {
    let line = usize::try_from(at.line).ok()?.checked_sub(1)?;
    let column = usize::try_from(at.column).ok()?.checked_sub(1)?;
    let indent_of = |line: &str| line.len() - line.trim_start().len();
    let first = (0..=line)
        .rev()
        .find(|n| lines.get(*n).is_some_and(|text| text.trim_start().starts_with("- ") && indent_of(text) < column))?;
    let indent = indent_of(lines.get(first)?);
    let inside = |text: &&str| text.trim().is_empty() || indent_of(text) > indent;
    let length = lines.iter().skip(first + 1).take_while(|text| inside(text)).count();
    let block = lines.get(first..first + 1 + length)?;
    let used = block.iter().rposition(|text| !text.trim().is_empty() && !text.trim_start().starts_with('#'))?;
    Some(ItemLines { indent, first, after: first + used + 1 })
}

/// The lines with their line ends but for `\\n`, so that a file keeps the ends it has.
fn lines_of(text: &str) -> Vec<&str> {
    text.strip_suffix('\n').unwrap_or(text).split('\n').collect()
}

fn insert(lines: &[&str], at: usize, block: &[String]) -> String {
    let (before, after) = lines.split_at(at.min(lines.len()));
    let mut text = String::new();
    let returns = lines.first().is_some_and(|line| line.ends_with('\r'));
    for line in before {
        text.push_str(line);
        text.push('\n');
    }
    for line in block {
        text.push_str(line);
        text.push_str(if returns { "\r\n" } else { "\n" });
    }
    for line in after {
        text.push_str(line);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORGE: &str = "apiVersion: forge.projectcatalyst.io/v1alpha1
kind: Forge
spec:
  repository: {url: https://git.example.com/p.git}
  environments:
    # the first
    - {name: dev, cluster: dev, sync: auto} # flow
    - name: production
      cluster: production
      sync: manual
      protected: true
      approvals: 1

  # after the list
  argo: {cd: install}
";

    #[test]
    fn an_environment_goes_to_the_end_of_the_list_and_nothing_else_moves() {
        let edited = add_environment(FORGE, &"qa".parse().unwrap(), "qa", "auto", None, None).unwrap();
        let expected = FORGE
            .replace("      approvals: 1\n", "      approvals: 1\n    - {name: qa, cluster: \"qa\", sync: auto}\n");
        assert_eq!(edited, expected);
        // Line ends stay what they are.
        let windows = FORGE.replace('\n', "\r\n");
        let edited = add_environment(&windows, &"qa".parse().unwrap(), "qa", "auto", None, None).unwrap();
        assert_eq!(edited, expected.replace('\n', "\r\n"));
    }

    #[test]
    fn an_environment_can_be_put_before_another_one() {
        let before = "production".parse().unwrap();
        let edited = add_environment(FORGE, &"qa".parse().unwrap(), "qa", "auto", Some("qa-"), Some(&before)).unwrap();
        let expected = FORGE.replace(
            "    - name: production\n",
            "    - {name: qa, cluster: \"qa\", namespacePrefix: \"qa-\", sync: auto}\n    - name: production\n",
        );
        assert_eq!(edited, expected);
    }

    #[test]
    fn a_flow_list_is_left_alone_and_the_addition_is_printed() {
        let flow = "apiVersion: forge.projectcatalyst.io/v1alpha1\nkind: Forge\nspec:\n  repository: {url: x}\n  environments: [{name: dev, cluster: dev, sync: auto}]\n";
        let error = add_environment(flow, &"qa".parse().unwrap(), "qa", "auto", None, None).unwrap_err();
        assert!(error.to_string().contains("- {name: qa"), "{error}");
    }

    #[test]
    fn a_project_goes_into_its_stack_or_into_a_new_one() {
        let text = super::super::graph_file().text;
        let (a, b): (ProjectId, ProjectId) = ("r/a".parse().unwrap(), "r/b".parse().unwrap());
        let (base, top): (StackName, StackName) = ("base".parse().unwrap(), "top".parse().unwrap());
        let text = add_project(&text, &a, &base, &[]).unwrap();
        let text = add_project(&text, &b, &base, &["r/a".parse().unwrap()]).unwrap();
        let text = add_project(&text, &"x/c".parse().unwrap(), &top, &["stack:base".parse().unwrap()]).unwrap();
        let graph = decode_graph(&text).unwrap();
        let shape: Vec<(&str, usize)> = graph.stacks.iter().map(|s| (s.name.as_str(), s.apps.len())).collect();
        assert_eq!(shape, [("base", 2), ("top", 1)]);
        assert!(text.contains("  stacks:\n    - name: base\n      apps:\n        - project: r/a\n"), "{text}");
    }
}
