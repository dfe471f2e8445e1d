//! What a command is about: the platform, a stack, an application. A scope brings its predecessors along.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Graph, NodeIx};
use crate::format::Subject;
use crate::name::{EnvironmentName, StackName, clip};

/// What a command is about (SPEC.md section 5, `TARGET_SCOPE`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Everything.
    Platform,
    /// One stack.
    Stack(StackName),
    /// One application: `repo/project`, a unique suffix of it, or the Argo CD name.
    App(String),
}

/// A scope that fits nothing, or several things.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScopeError {
    /// Not written as a scope.
    #[error("`{0}` is not a scope: write `platform`, `stack:<name>` or `app:<name>`")]
    Malformed(String),
    /// Nothing has this name.
    #[error("no {kind} `{name}` in the graph{}", near.as_ref().map(|n| format!("; did you mean `{n}`?")).unwrap_or_default())]
    Unknown {
        /// Stack or application.
        kind: &'static str,
        /// The name as given.
        name: String,
        /// What was probably meant.
        near: Option<String>,
    },
    /// Several have it.
    #[error("`{name}` fits {}; write one of them in full", candidates.join(", "))]
    Ambiguous {
        /// The name as given.
        name: String,
        /// What it fits.
        candidates: Vec<String>,
    },
}

impl FromStr for Scope {
    type Err = ScopeError;
    fn from_str(text: &str) -> Result<Self, ScopeError> {
        let malformed = || ScopeError::Malformed(clip(text));
        match text.split_once(':') {
            None if text == "platform" => Ok(Self::Platform),
            Some(("stack", name)) => name.parse().map(Self::Stack).map_err(|_| malformed()),
            Some(("app", name)) if !name.is_empty() => Ok(Self::App(name.to_owned())),
            _ => Err(malformed()),
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Platform => f.write_str("platform"),
            Self::Stack(name) => write!(f, "stack:{name}"),
            Self::App(name) => write!(f, "app:{name}"),
        }
    }
}

impl<'de> Deserialize<'de> for Scope {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Serialize for Scope {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Graph {
    /// The nodes of a scope with all that they wait for, sorted, and the scope with its name in full.
    pub fn scope(
        &self,
        scope: &Scope,
        environment: Option<&EnvironmentName>,
    ) -> Result<(Scope, Vec<NodeIx>), ScopeError> {
        match scope {
            Scope::Platform => Ok((Scope::Platform, self.indexes().collect())),
            Scope::Stack(name) => {
                let members = self.stack_members(name)?;
                Ok((scope.clone(), self.with_predecessors(&members)))
            }
            Scope::App(name) => {
                let node = self.named(name, environment)?;
                Ok((Scope::App(self.node(node).id.to_string()), self.with_predecessors(&[node])))
            }
        }
    }

    /// The nodes that a name of the command line means: `stack:name`, or one node.
    pub fn select(&self, name: &str, environment: Option<&EnvironmentName>) -> Result<Vec<NodeIx>, ScopeError> {
        match name.strip_prefix("stack:") {
            Some(stack) => {
                let stack = stack.parse().map_err(|_| ScopeError::Malformed(clip(name)))?;
                self.stack_members(&stack)
            }
            None => Ok(vec![self.named(name.strip_prefix("app:").unwrap_or(name), environment)?]),
        }
    }

    fn stack_members(&self, name: &StackName) -> Result<Vec<NodeIx>, ScopeError> {
        if self.stacks.binary_search_by(|stack| stack.name.cmp(name)).is_err() {
            let names = self.stacks.iter().map(|stack| stack.name.as_str());
            let near = crate::yaml::nearest(name.as_str(), names).map(|near| format!("stack:{near}"));
            return Err(ScopeError::Unknown { kind: "stack", name: name.to_string(), near });
        }
        Ok(self.indexes().filter(|node| self.node(*node).stack == *name).collect())
    }

    /// One node by `repo/project`, a unique suffix of it, or the Argo CD name.
    fn named(&self, name: &str, environment: Option<&EnvironmentName>) -> Result<NodeIx, ScopeError> {
        if let Ok(id) = name.parse()
            && let Some(node) = self.find(&id)
        {
            return Ok(node);
        }
        let argo_name = |node: &NodeIx| match &self.node(*node).subject {
            Subject::Project(id) => environment.is_some_and(|env| name == format!("{env}-{}", id.joined())),
            Subject::Application(id) => id.name() == name,
        };
        let mut found: Vec<NodeIx> = self.indexes().filter(argo_name).collect();
        if found.is_empty() && !name.is_empty() {
            let suffix = |node: &NodeIx| {
                let id = self.node(*node).id.as_str();
                id.strip_suffix(name).is_some_and(|front| front.ends_with(['/', '-', '.']))
            };
            found = self.indexes().filter(suffix).collect();
            // A whole last segment says more than the end of one.
            let whole: Vec<NodeIx> = found
                .iter()
                .copied()
                .filter(|node| self.node(*node).id.as_str().rsplit('/').next() == Some(name))
                .collect();
            if whole.len() == 1 {
                found = whole;
            }
        }
        match found.as_slice() {
            [node] => Ok(*node),
            [] => {
                let ids = self.nodes.iter().map(|node| node.id.as_str());
                let tails = self.nodes.iter().filter_map(|node| node.id.as_str().split_once('/')).map(|(_, tail)| tail);
                let near = crate::yaml::nearest(name, ids.chain(tails)).map(ToOwned::to_owned);
                Err(ScopeError::Unknown { kind: "application", name: clip(name), near })
            }
            several => {
                let candidates = several.iter().take(8).map(|node| format!("`{}`", self.node(*node).id)).collect();
                Err(ScopeError::Ambiguous { name: clip(name), candidates })
            }
        }
    }
}
