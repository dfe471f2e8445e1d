//! Text into trees, within limits.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde_saphyr::granit_parser::{Event, Options, Parser, ScalarStyle, Span};

use super::node::{Comment, Key, Node, Position, Scalar, Value};
use crate::name::clip;

/// How a file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Our own files: no anchors, aliases, merge keys or tags.
    Strict,
    /// Files of others: what Kubernetes accepts.
    Kubernetes,
}

/// What a file may cost.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of the file.
    pub bytes: usize,
    /// Nesting.
    pub depth: usize,
    /// Nodes in all, keys and values, those that aliases expand to included.
    pub nodes: usize,
}

impl Limits {
    /// What a file of a repository may cost: a graph of 100,000 nodes fits, a bomb does not.
    pub const FILE: Self = Self { bytes: 32 << 20, depth: 64, nodes: 4_000_000 };
    /// What a text inside a file may cost (Helm values in an Application, a document in a ConfigMap).
    pub const EMBEDDED: Self = Self { bytes: 1 << 20, depth: 64, nodes: 100_000 };
    /// Nodes that aliases of one file may add.
    const EXPANDED: usize = 20_000;
    /// Nodes that anchors of one file may keep, each counted as often as it is anchored.
    const ANCHORED: usize = 500_000;
}

/// What is wrong with a text as YAML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What sort of thing.
    pub kind: ProblemKind,
    /// Where.
    pub at: Position,
    /// The rest of the sentence.
    pub message: String,
}

/// The sorts of problems, each a code of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProblemKind {
    /// Not YAML.
    Syntax,
    /// A key twice in one mapping.
    DuplicateKey,
    /// Not UTF-8.
    Encoding,
    /// Beyond a limit.
    TooLarge,
    /// YAML that our own files do not use.
    Unsupported,
}

/// What was read.
#[derive(Debug, Default)]
pub struct Stream<'a> {
    /// The documents that are not empty.
    pub documents: Vec<Node<'a>>,
    /// All comments, if one of them is a suppression.
    pub comments: Vec<Comment<'a>>,
    /// Everything wrong. After a syntax error the documents before it are still there.
    pub problems: Vec<Problem>,
}

/// Bytes as text, or what is wrong with their encoding.
pub fn decode_text(bytes: &[u8]) -> Result<&str, Problem> {
    let problem = |at, message: &str| Problem { kind: ProblemKind::Encoding, at, message: message.to_owned() };
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err(problem(Position::START, "the file is UTF-16; save it as UTF-8"));
    }
    let bytes = bytes.strip_prefix(&[0xef, 0xbb, 0xbf]).unwrap_or(bytes);
    std::str::from_utf8(bytes).map_err(|error| {
        let good = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let line = good.iter().filter(|b| **b == b'\n').count() + 1;
        let last = good.rsplit(|b| *b == b'\n').next().unwrap_or_default();
        let column = String::from_utf8_lossy(last).chars().count() + 1;
        let byte = bytes.get(error.valid_up_to()).copied().unwrap_or_default();
        let message = format!("byte 0x{byte:02x} is not UTF-8; save the file as UTF-8");
        problem(Position { line: small(line), column: small(column) }, &message)
    })
}

/// Reads all documents of a text.
pub fn read(text: &str, dialect: Dialect, limits: Limits) -> Stream<'_> {
    let mut reader = Reader {
        dialect,
        limits,
        out: Stream::default(),
        open: Vec::new(),
        anchors: BTreeMap::new(),
        nodes: 0,
        expanded: 0,
        anchored: 0,
        source: text,
    };
    if text.len() > limits.bytes {
        reader.problem(
            ProblemKind::TooLarge,
            Position::START,
            format!("{} bytes; at most {} are read", text.len(), limits.bytes),
        );
        return reader.out;
    }
    let mut options = Options::default();
    options.block_nesting_limit = limits.depth;
    options.flow_nesting_limit = limits.depth;
    // Comments cost time, and only suppressions are read from them.
    options.set_emit_comments(text.contains("forge:allow"));
    for event in Parser::new_from_str_with_options(text, options) {
        let go_on = match event {
            Ok((event, span)) => reader.event(event, span),
            Err(error) => {
                let at = position(error.marker().line(), error.marker().col());
                let message = error.info().to_string();
                if message.contains("limit") || message.contains("nesting") {
                    reader.too_deep(at);
                } else {
                    reader.problem(ProblemKind::Syntax, at, clip(&message));
                }
                false
            }
        };
        if !go_on {
            break;
        }
    }
    reader.out
}

fn small(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

fn position(line: usize, column_from_zero: usize) -> Position {
    Position { line: small(line), column: small(column_from_zero.saturating_add(1)) }
}

/// A collection whose end has not been read yet.
enum Open<'a> {
    Sequence { at: Position, anchor: usize, items: Vec<Node<'a>> },
    Mapping { at: Position, anchor: usize, entries: Vec<(Key<'a>, Node<'a>)>, key: Option<Key<'a>>, merge: bool },
}

struct Reader<'a> {
    dialect: Dialect,
    limits: Limits,
    out: Stream<'a>,
    open: Vec<Open<'a>>,
    anchors: BTreeMap<usize, (Node<'a>, usize)>,
    nodes: usize,
    expanded: usize,
    anchored: usize,
    source: &'a str,
}

impl<'a> Reader<'a> {
    fn problem(&mut self, kind: ProblemKind, at: Position, message: impl Into<String>) {
        const MOST: usize = 100;
        if self.out.problems.len() < MOST {
            self.out.problems.push(Problem { kind, at, message: message.into() });
        }
    }

    fn unsupported(&mut self, at: Position, what: &str) {
        if self.dialect == Dialect::Strict {
            self.problem(ProblemKind::Unsupported, at, format!("{what} are not supported in this file; write it out"));
        }
    }

    /// Takes one event; false ends the reading.
    fn event(&mut self, event: Event<'a>, span: Span) -> bool {
        let at = position(span.start.line(), span.start.col());
        match event {
            Event::Comment(text, _) => {
                let before = span.byte_range().and_then(|r| self.source.get(..r.start));
                let line = before.and_then(|b| b.rsplit('\n').next());
                let own_line = line.is_some_and(|l| l.trim().is_empty());
                self.out.comments.push(Comment { text, at, own_line });
                true
            }
            Event::DocumentStart(..) => {
                self.anchors.clear();
                true
            }
            Event::Scalar(text, style, anchor, tag) => {
                if tag.is_some() || anchor != 0 {
                    self.unsupported(at, "anchors and tags");
                }
                let plain = style == ScalarStyle::Plain && tag.is_none();
                let literal = style == ScalarStyle::Literal && !text.starts_with('\n');
                self.close(Node { value: Value::Scalar(Scalar { text, plain, literal }), at }, anchor, 1)
            }
            Event::SequenceStart(_, anchor, tag) => {
                if tag.is_some() || anchor != 0 {
                    self.unsupported(at, "anchors and tags");
                }
                self.open.push(Open::Sequence { at, anchor, items: Vec::new() });
                self.within_depth(at)
            }
            Event::MappingStart(_, anchor, tag) => {
                if tag.is_some() || anchor != 0 {
                    self.unsupported(at, "anchors and tags");
                }
                self.open.push(Open::Mapping { at, anchor, entries: Vec::new(), key: None, merge: false });
                self.within_depth(at)
            }
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(Open::Sequence { at, anchor, items }) => {
                    self.close(Node { value: Value::Sequence(items), at }, anchor, 1)
                }
                Some(Open::Mapping { at, anchor, entries, merge, .. }) => {
                    let entries = self.unique(if merge { merged(entries) } else { entries });
                    self.close(Node { value: Value::Mapping(entries), at }, anchor, 1)
                }
                None => true,
            },
            Event::Alias(id) => {
                self.unsupported(at, "aliases");
                match self.anchors.get(&id).cloned() {
                    Some((mut node, size)) => {
                        if let Value::Scalar(scalar) = &mut node.value {
                            // Its lines are elsewhere.
                            scalar.literal = false;
                        }
                        self.expanded = self.expanded.saturating_add(size);
                        if self.expanded > Limits::EXPANDED {
                            let message = format!("aliases expand to more than {} nodes", Limits::EXPANDED);
                            self.problem(ProblemKind::TooLarge, at, message);
                            return false;
                        }
                        self.close(Node { value: node.value, at }, 0, size)
                    }
                    None if self.dialect == Dialect::Strict => {
                        let nothing = Scalar { text: Cow::Borrowed(""), plain: true, literal: false };
                        self.close(Node { value: Value::Scalar(nothing), at }, 0, 1)
                    }
                    None => {
                        self.problem(ProblemKind::Syntax, at, "an alias that refers to itself");
                        false
                    }
                }
            }
            _ => true,
        }
    }

    fn within_depth(&mut self, at: Position) -> bool {
        if self.open.len() > self.limits.depth {
            self.too_deep(at);
            return false;
        }
        true
    }

    fn too_deep(&mut self, at: Position) {
        self.problem(ProblemKind::TooLarge, at, format!("nested deeper than {} levels", self.limits.depth));
    }

    /// Puts a finished node where it belongs.
    fn close(&mut self, node: Node<'a>, anchor: usize, size: usize) -> bool {
        self.nodes = self.nodes.saturating_add(size);
        if self.nodes > self.limits.nodes {
            self.problem(ProblemKind::TooLarge, node.at, format!("more than {} keys and values", self.limits.nodes));
            return false;
        }
        if anchor != 0 && self.dialect == Dialect::Kubernetes {
            let size = count(&node);
            // Each anchor keeps a copy, and anchors may be nested in each other.
            self.anchored = self.anchored.saturating_add(size);
            if self.anchored > Limits::ANCHORED {
                let message = format!("anchors keep more than {} keys and values", Limits::ANCHORED);
                self.problem(ProblemKind::TooLarge, node.at, message);
                return false;
            }
            self.anchors.insert(anchor, (node.clone(), size));
        }
        match self.open.last_mut() {
            None => {
                if !node.is_null() {
                    self.out.documents.push(node);
                }
            }
            Some(Open::Sequence { items, .. }) => items.push(node),
            Some(Open::Mapping { entries, key, merge, .. }) => match key.take() {
                Some(key) => entries.push((key, node)),
                None => {
                    let Node { value, at } = node;
                    let Value::Scalar(Scalar { text, plain, .. }) = value else {
                        *key = Some(Key { text: Cow::Borrowed(""), plain: false, at });
                        self.problem(ProblemKind::Unsupported, at, "a key must be a text");
                        return true;
                    };
                    let merges = plain && text == "<<";
                    *key = Some(Key { text, plain, at });
                    if merges {
                        *merge = true;
                        self.unsupported(at, "merge keys");
                    }
                }
            },
        }
        true
    }

    /// Reports keys that come twice and keeps the first of each.
    fn unique(&mut self, entries: Vec<(Key<'a>, Node<'a>)>) -> Vec<(Key<'a>, Node<'a>)> {
        let repeated: Vec<usize> = if entries.len() <= 12 {
            let twice = |(i, (key, _)): (usize, &(Key<'a>, Node<'a>))| {
                entries.iter().take(i).any(|(k, _)| k.text == key.text).then_some(i)
            };
            entries.iter().enumerate().filter_map(twice).collect()
        } else {
            let mut seen = BTreeSet::new();
            entries.iter().enumerate().filter_map(|(i, (k, _))| (!seen.insert(&*k.text)).then_some(i)).collect()
        };
        if repeated.is_empty() {
            return entries;
        }
        let mut kept = Vec::with_capacity(entries.len());
        for (i, (key, node)) in entries.into_iter().enumerate() {
            if repeated.binary_search(&i).is_ok() {
                let message = format!("key `{}` stands twice in this mapping", clip(&key.text));
                self.problem(ProblemKind::DuplicateKey, key.at, message);
            } else {
                kept.push((key, node));
            }
        }
        kept
    }
}

/// Resolves `<<`: keys of the mapping itself win, then those of earlier merged mappings.
fn merged<'a>(entries: Vec<(Key<'a>, Node<'a>)>) -> Vec<(Key<'a>, Node<'a>)> {
    let (merges, mut own): (Vec<_>, Vec<_>) = entries.into_iter().partition(|(key, _)| key.text == "<<");
    let mut known: BTreeSet<Cow<'a, str>> = own.iter().map(|(key, _)| key.text.clone()).collect();
    let mut add = |node: Node<'a>| {
        if let Value::Mapping(entries) = node.value {
            own.extend(entries.into_iter().filter(|(key, _)| known.insert(key.text.clone())));
        }
    };
    for (_, node) in merges {
        match node.value {
            Value::Sequence(items) => items.into_iter().for_each(&mut add),
            _ => add(node),
        }
    }
    own
}

fn count(node: &Node<'_>) -> usize {
    match &node.value {
        Value::Scalar(_) => 1,
        Value::Sequence(items) => 1 + items.iter().map(count).sum::<usize>(),
        Value::Mapping(entries) => 1 + entries.iter().map(|(_, node)| 1 + count(node)).sum::<usize>(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strict(text: &str) -> Stream<'_> {
        read(text, Dialect::Strict, Limits::FILE)
    }

    fn foreign(text: &str) -> Stream<'_> {
        read(text, Dialect::Kubernetes, Limits::FILE)
    }

    #[test]
    fn positions_count_lines_and_columns_from_one() {
        let stream = strict("a: 1\nb:\n  - x\n  - é: y\n");
        let b = stream.documents[0].get("b").unwrap();
        let second = &b.items().unwrap()[1];
        assert_eq!(second.at.to_string(), "4:5");
        assert_eq!(second.get("é").unwrap().at.to_string(), "4:8");
    }

    #[test]
    fn a_key_that_comes_twice_is_reported_where_it_comes_again() {
        let stream = strict("a: 1\nb: 2\na: 3\n");
        assert_eq!(stream.problems[0].kind, ProblemKind::DuplicateKey);
        assert_eq!(stream.problems[0].at.to_string(), "3:1");
        assert_eq!(stream.documents[0].text_at(&["a"]), Some("1"));
    }

    #[test]
    fn a_billion_laughs_ends_early_and_says_so() {
        let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x]\n");
        for n in 1..30 {
            let alias = format!("*a{},", n - 1).repeat(9);
            bomb.push_str(&format!("a{n}: &a{n} [{}]\n", alias.trim_end_matches(',')));
        }
        let stream = foreign(&bomb);
        assert!(stream.problems.iter().any(|p| p.kind == ProblemKind::TooLarge), "{:?}", stream.problems);
    }

    #[test]
    fn what_an_alias_stands_for_counts_like_what_is_written_out() {
        // Twice the mapping, its key and its value; the mapping around them, and its two keys.
        let (alias, written) = ("a: &a {x: 1}\nb: *a\n", "a: {x: 1}\nb: {x: 1}\n");
        for text in [alias, written] {
            let bounded = |nodes: usize| read(text, Dialect::Kubernetes, Limits { nodes, ..Limits::FILE }).problems;
            assert!(bounded(9).is_empty(), "{text}: {:?}", bounded(9));
            assert!(bounded(8).iter().any(|problem| problem.message == "more than 8 keys and values"), "{text}");
        }
    }

    #[test]
    fn depth_is_bounded_in_both_styles() {
        for text in ["[".repeat(5000), (0..200).map(|n| format!("{}a:\n", " ".repeat(n))).collect::<String>()] {
            let stream = strict(&text);
            assert!(!stream.problems.is_empty(), "{} bytes", text.len());
        }
    }

    #[test]
    fn merge_keys_and_aliases_are_for_files_of_others() {
        let text = "base: &b {x: 1, z: 2}\nuse:\n  <<: *b\n  z: 3\n";
        let stream = foreign(text);
        assert!(stream.problems.is_empty(), "{:?}", stream.problems);
        let json = stream.documents[0].to_json();
        assert_eq!(json["use"], serde_json::json!({"z": 3, "x": 1}));
        assert!(strict(text).problems.iter().all(|p| p.kind == ProblemKind::Unsupported));
        assert!(!strict(text).problems.is_empty());
    }

    #[test]
    fn the_first_bad_byte_has_a_position() {
        let problem = decode_text(b"a: b\nc: \xff\n").unwrap_err();
        assert_eq!((problem.kind, problem.at.to_string().as_str()), (ProblemKind::Encoding, "2:4"));
        assert!(decode_text(b"\xff\xfea\x00").is_err());
        assert_eq!(decode_text(b"\xef\xbb\xbfa: 1").unwrap(), "a: 1");
    }

    #[test]
    fn json_is_read_too_tabs_included() {
        let stream = foreign("{\n\t\"a\": [1, true, null, \"x\\n\"],\n\t\"b\": {}\n}\n");
        assert!(stream.problems.is_empty(), "{:?}", stream.problems);
        assert_eq!(stream.documents[0].to_json(), serde_json::json!({"a": [1, true, null, "x\n"], "b": {}}));
    }

    #[test]
    fn comments_are_kept_with_their_place() {
        let stream = strict("# first forge:allow\na: 1 # second\n");
        let seen: Vec<_> = stream.comments.iter().map(|c| (c.text.trim(), c.at.line, c.own_line)).collect();
        assert_eq!(seen, [("first forge:allow", 1, true), ("second", 2, false)]);
    }
}
