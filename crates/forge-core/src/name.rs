//! Identifiers. Every one is a newtype that can only be built valid, so the rest of the code never checks again. Clones
//! share their text: a graph of 100,000 nodes names each of them many times.
//!
//! A project's identity is its path (`repo/project`); it is never split back out of a joined name (SPEC.md section 2).

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Longest name Kubernetes accepts for a label value and a namespace, and so for every name we derive.
pub const MAX_NAME: usize = 63;

/// Longest name of an environment. The longest name that follows from it, also a label value, is that of a Workflow:
/// `forge-<environment>-<10 digits of the plan>-<number of the run>`, and `-r<number>` where it was submitted again.
/// There is room for 99,999 runs and for 99 submissions of each.
pub const MAX_ENVIRONMENT: usize = MAX_NAME - "forge--0123456789-99999-r99".len();

/// Why a text is not a valid identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing there.
    #[error("a name must not be empty")]
    Empty,
    /// Over the limit of its kind.
    #[error("`{name}` has {length} characters; at most {max} are allowed")]
    TooLong {
        /// The name as given.
        name: String,
        /// Its length in characters.
        length: usize,
        /// The limit.
        max: usize,
    },
    /// A character or a place that the rule does not allow.
    #[error("`{name}` is not a valid {what}: {rule}")]
    Malformed {
        /// The name as given.
        name: String,
        /// What it was meant to be.
        what: &'static str,
        /// The rule it breaks.
        rule: &'static str,
    },
}

const LABEL_RULE: &str = "use lower-case letters, digits and `-`, starting and ending with a letter or digit";
const SUBDOMAIN_RULE: &str = "use lower-case letters, digits, `-` and `.`, starting and ending with a letter or digit";

/// True for an RFC 1123 label without a length limit.
pub(crate) fn is_label(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    edge(text.chars().next())
        && edge(text.chars().next_back())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

fn label(text: &str, what: &'static str) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty);
    }
    if !is_label(text) {
        return Err(NameError::Malformed { name: clip(text), what, rule: LABEL_RULE });
    }
    if text.len() > MAX_NAME {
        return Err(NameError::TooLong { name: clip(text), length: text.len(), max: MAX_NAME });
    }
    Ok(())
}

/// A text without control characters, which could drive a terminal or forge a line.
pub fn clean(text: &str) -> Cow<'_, str> {
    if text.chars().any(char::is_control) {
        Cow::Owned(text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect())
    } else {
        Cow::Borrowed(text)
    }
}

/// A name that is shown in a message, cut so that hostile input cannot flood a terminal.
pub fn clip(text: &str) -> String {
    const LONGEST: usize = 80;
    let clean: String = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).take(LONGEST + 1).collect();
    if clean.chars().count() > LONGEST {
        let cut: String = clean.chars().take(LONGEST).collect();
        format!("{cut}…")
    } else {
        clean
    }
}

/// A text of at most so many bytes, three or more: cut between characters, with an ellipsis where something is missing.
pub fn cut(text: &str, longest: usize) -> Cow<'_, str> {
    const ELLIPSIS: char = '…';
    if text.len() <= longest {
        return Cow::Borrowed(text);
    }
    let (kept, _) = text.split_at(text.floor_char_boundary(longest.saturating_sub(ELLIPSIS.len_utf8())));
    Cow::Owned(format!("{kept}{ELLIPSIS}"))
}

macro_rules! label_name {
    ($(#[$doc:meta])* $type:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(Arc<str>);

        impl $type {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $type {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                label(text, $what)?;
                Ok(Self(text.into()))
            }
        }

        impl TryFrom<String> for $type {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> Self {
                name.0.as_ref().to_owned()
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }
            fn inline_schema() -> bool {
                true
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": MAX_NAME})
            }
        }
    };
}

label_name!(
    /// The name of an environment, which is also its AppProject and the prefix of its Applications.
    EnvironmentName,
    "environment name"
);
label_name!(
    /// The name of a stack of the dependency graph.
    StackName,
    "stack name"
);
label_name!(
    /// The name of a source repository: one segment of a project's path.
    RepoName,
    "repository folder name"
);
label_name!(
    /// The name of a project inside its repository: one segment of a project's path.
    ProjectName,
    "project folder name"
);
label_name!(
    /// A Kubernetes namespace.
    Namespace,
    "namespace"
);

/// The identity of a project: `repo/project`, taken from its path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ProjectId {
    /// The repository folder.
    pub repo: RepoName,
    /// The project folder.
    pub project: ProjectName,
}

impl ProjectId {
    /// `<repo>-<project>`: the tail of the Application's name, the namespace's and the EnvironmentConfig's name.
    pub fn joined(&self) -> String {
        format!("{}-{}", self.repo, self.project)
    }
}

impl FromStr for ProjectId {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let malformed =
            || NameError::Malformed { name: clip(text), what: "project", rule: "write it as `repo/project`" };
        let (repo, project) = text.split_once('/').ok_or_else(malformed)?;
        if project.contains('/') {
            return Err(malformed());
        }
        Ok(Self { repo: repo.parse()?, project: project.parse()? })
    }
}

impl TryFrom<String> for ProjectId {
    type Error = NameError;
    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<ProjectId> for String {
    fn from(id: ProjectId) -> Self {
        id.to_string()
    }
}

impl fmt::Display for ProjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.repo, self.project)
    }
}

impl JsonSchema for ProjectId {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ProjectId".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-a-z0-9]*[a-z0-9])?$"})
    }
}

/// An Argo CD Application that exists outside the layout: `namespace/name`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ApplicationId {
    /// The namespace that the Application lives in.
    pub namespace: Namespace,
    /// Its name, an RFC 1123 subdomain.
    name: Box<str>,
}

impl ApplicationId {
    /// The Application's name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl FromStr for ApplicationId {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let (namespace, name) = text.split_once('/').ok_or_else(|| NameError::Malformed {
            name: clip(text),
            what: "application",
            rule: "write it as `namespace/name`",
        })?;
        if name.is_empty() {
            return Err(NameError::Empty);
        }
        if !name.split('.').all(is_label) {
            return Err(NameError::Malformed { name: clip(name), what: "application name", rule: SUBDOMAIN_RULE });
        }
        if name.len() > 253 {
            return Err(NameError::TooLong { name: clip(name), length: name.len(), max: 253 });
        }
        Ok(Self { namespace: namespace.parse()?, name: name.into() })
    }
}

impl TryFrom<String> for ApplicationId {
    type Error = NameError;
    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<ApplicationId> for String {
    fn from(id: ApplicationId) -> Self {
        id.to_string()
    }
}

impl fmt::Display for ApplicationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl JsonSchema for ApplicationId {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ApplicationId".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"})
    }
}

/// The identity of a node of the graph as people write it: `repo/project`, or `namespace/name` of an Application.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeId(Arc<str>);

impl NodeId {
    /// The identity as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&ProjectId> for NodeId {
    fn from(id: &ProjectId) -> Self {
        Self(id.to_string().into())
    }
}

impl From<&ApplicationId> for NodeId {
    fn from(id: &ApplicationId) -> Self {
        Self(id.to_string().into())
    }
}

impl FromStr for NodeId {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        // A project's identity is the stricter form of an Application's.
        let id: ApplicationId = text.parse()?;
        Ok(Self::from(&id))
    }
}

impl TryFrom<String> for NodeId {
    type Error = NameError;
    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<NodeId> for String {
    fn from(id: NodeId) -> Self {
        id.0.as_ref().to_owned()
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_has_no_capitals_no_edges_of_dashes_and_at_most_63_characters() {
        for good in ["a", "a-b", "0", "api-server-2"] {
            assert!(good.parse::<RepoName>().is_ok(), "{good}");
        }
        for bad in ["", "A", "-a", "a-", "a.b", "a/b", "ä", "a\u{0}b", &"x".repeat(64)] {
            assert!(bad.parse::<RepoName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_last_workflow_of_the_longest_environment_still_fits_a_label() {
        let run = format!("{}-0123456789-99999", "e".repeat(MAX_ENVIRONMENT)).parse().unwrap();
        assert_eq!(crate::render::workflow_name(&run, 99).len(), MAX_NAME);
    }

    #[test]
    fn a_project_is_exactly_two_segments() {
        assert_eq!("a/b".parse::<ProjectId>().unwrap().joined(), "a-b");
        for bad in ["a", "a/", "/b", "a/b/c", "a//b"] {
            assert!(bad.parse::<ProjectId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_text_is_cut_between_characters_and_one_that_fits_is_left_alone() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdefg", 6), "abc…");
        // Two bytes each: the one that does not fit whole is left out.
        assert_eq!(cut("äääää", 8), "ää…");
        assert!((3..40).all(|longest| cut(&"日本語".repeat(9), longest).len() <= longest));
    }

    #[test]
    fn hostile_names_are_cut_and_cleaned_before_they_are_shown() {
        let shown = "\u{1b}[31m".repeat(100).parse::<RepoName>().unwrap_err().to_string();
        assert!(!shown.contains('\u{1b}'));
        assert!(shown.len() < 400);
    }
}
